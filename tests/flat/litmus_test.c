/* SPDX-License-Identifier: BSD-3-Clause */
/* The protocols of the back end flat under every order of steps that a random scheduler finds: slots and posts that
 * rotate, rounds of staging, rooted calls without any symmetric one between, tiny calls that meet operations, sleepers.
 * Every result is compared, nobody may be touched after its call, and nobody may be left asleep. That the same would be
 * found out if a wait were forgotten is tried, too. */
#include "test.h"

#include "flat/support/rig.h"
#include "flat/support/steps.h"

#include "backend/flat/flat.h"

#include <string.h>

enum { CHUNK = 4096, PLANS_MOST = 400 };

static struct mark_plan plans[PLANS_MOST];

static void draw(const struct rig *rig, struct mark_mix mix, size_t n, uint64_t seed)
{
    mix.chunk = rig_chunk(rig) ? rig_chunk(rig) : CHUNK;
    mix.words_most = rig_words_most(rig) / 4;
    for (size_t i = 0; i < n; i++) mark_draw(&seed, &mix, &plans[i]);
}

/* A world, and so many random calls in it. */
static void run(struct rig_config config, struct mark_mix mix, size_t n_plans, uint64_t seed)
{
    config.chunk = CHUNK;
    config.seed = seed * UINT64_C(2654435761) + config.n;
    struct rig *rig = rig_open(&config);
    mix.n = config.n;
    draw(rig, mix, n_plans, config.seed);
    if (!rig_run(rig, plans, n_plans)) fail_msg("%s", rig_why(rig));
    rig_close(rig);
}

/* All that there is, between threads and between processes, crowded or not. */
static void mixes(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {2, 3, 4, 5, 8, 17};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++)
        for (uint32_t way = 0; way < 4; way++) {
            struct rig_config config = {.n = worlds[w], .addresses = way & 1, .crowded = way & 2};
            run(config, (struct mark_mix){.named = true}, 150, test_seed() + way);
        }
}

/* No rank writes to a buffer of another. */
static void survivors(void **state)
{
    (void)state;
    for (uint32_t n = 2; n < 5; n++)
        for (uint32_t crowded = 0; crowded < 2; crowded++)
            run((struct rig_config){.n = n, .survives = true, .crowded = crowded}, (struct mark_mix){.named = true},
                150, test_seed() + n);
}

/* Many ranks that sleep whenever they wait. */
static void crowds(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {8, 16, 64};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct rig_config config = {.n = worlds[w], .crowded = true, .sleepy = true};
        run(config, (struct mark_mix){.named = true}, 60, test_seed());
        run(config, (struct mark_mix){.rooted = true, .small = true}, 60, test_seed());
    }
}

/* As many ranks as there may be. */
static void hundreds(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {100, 256};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        run((struct rig_config){.n = worlds[w]}, (struct mark_mix){.small = true}, 15, test_seed());
        run((struct rig_config){.n = worlds[w], .crowded = true}, (struct mark_mix){.named = true}, 8, test_seed());
    }
}

static void reproducible(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {3, 20};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++)
        run((struct rig_config){.n = worlds[w], .reproducible = true}, (struct mark_mix){0}, 100, test_seed());
}

/* Lines and posts rotate many times; tiny calls meet operations. */
static void small_calls(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {2, 3, 7, 16};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++)
        run((struct rig_config){.n = worlds[w]}, (struct mark_mix){.small = true}, PLANS_MOST, test_seed());
}

/* Nothing tells anybody that all are done with the calls before, but the acknowledgements. */
static void rooted_calls(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {2, 3, 5, 18, 33};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct mark_mix mix = {.rooted = true, .named = true};
        run((struct rig_config){.n = worlds[w]}, mix, 200, test_seed());
        mix.small = true;
        run((struct rig_config){.n = worlds[w]}, mix, 200, test_seed());
    }
}

/* Every method of a lane in turn, by the option. */
static void methods(void **state)
{
    (void)state;
    for (size_t i = 0; i < flat_n_methods; i++) {
        bool seen = false;
        for (size_t k = 0; k < i; k++) seen |= strcmp(flat_methods[k].name, flat_methods[i].name) == 0;
        if (seen) continue;
        for (uint32_t n = 2; n < 7; n += 2)
            run((struct rig_config){.n = n, .method = flat_methods[i].name}, (struct mark_mix){0}, 80, test_seed() + i);
    }
}

/* ---- that it can fail ---- */

/* Whether the flaw is found by any of some runs. */
static bool found(struct rig_config config, struct mark_mix mix)
{
    bool found = false;
    for (uint64_t seed = 1; seed <= 20 && !found; seed++) {
        config.chunk = CHUNK;
        config.seed = test_seed() + seed;
        struct rig *rig = rig_open(&config);
        mix.n = config.n;
        draw(rig, mix, 200, config.seed);
        found = !rig_run(rig, plans, 200);
        rig_close(rig);
    }
    return found;
}

static void planted(void **state)
{
    (void)state;
    for (int flaw = FLAW_NONE; flaw < N_FLAWS; flaw++) {
        steps_flaw = (enum steps_flaw)flaw;
        bool seen = found((struct rig_config){.n = 3}, (struct mark_mix){.named = true}) ||
                    found((struct rig_config){.n = 4},
                          (struct mark_mix){.rooted = true, .small = flaw == FLAW_ROOM, .ahead = flaw == FLAW_ROOM});
        steps_flaw = FLAW_NONE;
        if (seen != (flaw != FLAW_NONE)) fail_msg("flaw %d %s", flaw, seen ? "is none" : "was not found");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixes),        cmocka_unit_test(crowds),       cmocka_unit_test(hundreds),
        cmocka_unit_test(survivors),    cmocka_unit_test(reproducible), cmocka_unit_test(small_calls),
        cmocka_unit_test(rooted_calls), cmocka_unit_test(methods),      cmocka_unit_test(planted),
    };
    return cmocka_run_group_tests_name("flat litmus", tests, NULL, NULL);
}
