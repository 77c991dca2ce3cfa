/* SPDX-License-Identifier: BSD-3-Clause */
/* Fingerprints through every method of the back end flat, in every number of ranks that the algorithms are checked for:
 * each word of each output is made of exactly the words that it should be. The methods are taken from their table, so
 * that a new one is tried without being named here; one that could not be made to run is a failure. */
#include "test.h"

#include "backend/flat/flat.h"
#include "flat/support/rig.h"

#include <string.h>

static const uint32_t worlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 64};
enum { CHUNK = 4096, SIZES = 12 };

/* Words of a block, around what methods have as limits: lines, rounds, and where they take another way. */
static size_t size_of(size_t i, enum tutti_kind kind, uint32_t n, uint64_t random)
{
    const size_t slot = CHUNK / 8, part = slot / n ? slot / n : 1;
    const size_t sizes[SIZES] = {1,        7,        70 / n,       70,           part,         5 * part + 1,
                                 slot - 1, slot + 3, 2 * slot + 1, 5 * slot + 7, 9 * slot + 1, 1 + random % (6 * slot)};
    size_t most = (n > 9 ? (size_t)48 << 10 : (size_t)96 << 10) / (mark_words(kind, n, 1) > 1 ? n : 1);
    size_t count = kind == TUTTI_BARRIER ? 0 : sizes[i] ? sizes[i] : 1;
    return count < most ? count : most - random % 7;
}

/* Whether it ran. Where it can, it has to. */
static bool run_method(struct rig *rig, const struct flat_method *m, uint32_t n, uint64_t *random)
{
    uint32_t could = 0, ran = 0;
    /* Many ranks take as long as all others together, so each method gets a third of the sizes there. */
    size_t step = n > 9 ? 3 : 1;
    for (size_t i = mark_random(random) % step; i < SIZES; i += step) {
        struct mark_plan plan;
        mark_suit(random, m, n, size_of(i, m->kind, n, mark_random(random)), &plan);
        plan.v = mark_has_v(m->kind) && i % 3 == 2;
        plan.scaled = tutti_kind_info(m->kind)->reduces && i % 5 == 4;
        could += rig_fits(rig, m, &plan);
        if (!rig_run(rig, &plan, 1)) fail_msg("%s", rig_why(rig));
        ran += rig_ran(rig, m) == n;
    }
    if (could > 0 && ran == 0)
        fail_msg("%s by %s on %u ranks ran %u times of %u", tutti_kind_name(m->kind), m->name, n, ran, could);
    return ran > 0;
}

static void run_world(struct rig_config config, bool *ran)
{
    config.chunk = CHUNK;
    config.seed = test_seed() + config.n;
    struct rig *rig = rig_open(&config);
    uint64_t random = config.seed * 31;
    for (size_t i = 0; i < flat_n_methods; i++) ran[i] |= run_method(rig, &flat_methods[i], config.n, &random);
    rig_close(rig);
}

static void every_method(void **state)
{
    (void)state;
    bool ran[256] = {false};
    assert_in_range(flat_n_methods, 1, 256);
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) run_world((struct rig_config){.n = worlds[w]}, ran);
    for (size_t i = 0; i < flat_n_methods; i++)
        if (!ran[i]) fail_msg("%s by %s never ran", tutti_kind_name(flat_methods[i].kind), flat_methods[i].name);
}

/* Else a kind would take the long way in silence. */
static void every_size(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 40; n += 6) {
        struct rig *rig = rig_open(&(struct rig_config){.n = n, .chunk = CHUNK, .seed = test_seed()});
        for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++)
            if (!rig_serves(rig, (enum tutti_kind)kind))
                fail_msg("flat refuses some %s of %u ranks", tutti_kind_name((enum tutti_kind)kind), n);
        rig_close(rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_size), cmocka_unit_test(every_method)};
    return cmocka_run_group_tests_name("flat marks", tests, NULL, NULL);
}
