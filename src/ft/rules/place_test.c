/* SPDX-License-Identifier: BSD-3-Clause */

/* Places of groups in quorums: torchft's vectors, and what must hold of all members together in random quorums. */

#include "test.h"

#include "ft/rules/place.h"

#include <stdio.h>
#include <string.h>

#define MOST 9

struct sample {
    struct tutti_quorum quorum;
    struct tutti_replica replicas[MOST];
    struct tutti_replica *members[MOST];
    char names[MOST][8], addresses[MOST][16], stores[MOST][16];
};

static void sample_make(struct sample *s, uint32_t n, const int64_t *steps)
{
    *s = (struct sample){.quorum = {.n = n, .id = 7}};
    s->quorum.members = s->members;
    for (uint32_t i = 0; i < n; i++) {
        snprintf(s->names[i], sizeof s->names[i], "r%u", i);
        snprintf(s->addresses[i], sizeof s->addresses[i], "addr_%u", i);
        snprintf(s->stores[i], sizeof s->stores[i], "store_%u", i);
        s->replicas[i] = (struct tutti_replica){.replica_id = s->names[i],
                                                .address = s->addresses[i],
                                                .store_address = s->stores[i],
                                                .data = "",
                                                .step = steps[i]};
        s->members[i] = &s->replicas[i];
    }
}

static void check_targets(const struct sample *s, const char *name, uint32_t group_rank, bool init_sync,
                          const char *expected)
{
    struct tutti_place place;
    char text[64] = "";

    assert_int_equal(tutti_place_find(&s->quorum, name, group_rank, init_sync, &place), TUTTI_OK);
    for (uint32_t i = 0; i < place.n_targets; i++)
        tutti_append(text, sizeof text, "%s%u", i ? " " : "", place.targets[i]);
    assert_string_equal(text, expected);
    tutti_place_fini(&place);
}

static void test_two_at_the_first_step(void **state)
{
    const int64_t steps[] = {0, 0};
    struct sample s;
    struct tutti_place place;

    (void)state;
    sample_make(&s, 2, steps);
    assert_int_equal(tutti_place_find(&s.quorum, "r0", 0, true, &place), TUTTI_OK);
    assert_false(place.heals);
    assert_int_equal(place.rank, 0);
    assert_int_equal(place.max_rank, 0);
    assert_int_equal(place.max_size, 2);
    assert_string_equal(place.store_address, "store_0");
    tutti_place_fini(&place);
    check_targets(&s, "r0", 0, true, "1");
    check_targets(&s, "r1", 1, true, "0"); /* the next rank of each group starts from the other one */
    check_targets(&s, "r0", 0, false, ""); /* nobody asked for one start */
    assert_int_equal(tutti_place_find(&s.quorum, "r1", 0, true, &place), TUTTI_OK);
    assert_true(place.heals);
    assert_int_equal(place.source, 0);
    assert_string_equal(place.source_address, "addr_0");
    tutti_place_fini(&place);
    assert_int_equal(tutti_place_find(&s.quorum, "nobody", 0, true, &place), TUTTI_ERR_ARGUMENT);
}

static void test_recovery(void **state)
{
    const int64_t steps[] = {0, 1, 0, 1, 0};
    struct sample s;
    struct tutti_place place;

    (void)state;
    sample_make(&s, 5, steps);
    check_targets(&s, "r1", 0, true, "0 4");
    check_targets(&s, "r3", 0, true, "2");
    check_targets(&s, "r1", 1, true, "2");
    check_targets(&s, "r3", 1, true, "0 4");
    check_targets(&s, "r0", 0, true, "");
    assert_int_equal(tutti_place_find(&s.quorum, "r0", 0, true, &place), TUTTI_OK);
    assert_int_equal(place.n_sources, 2); /* all that are up to date, the one that torchft would name first */
    assert_int_equal(place.sources[0], 1);
    assert_int_equal(place.sources[1], 3);
    tutti_place_fini(&place);
}

/* All members' places together: who heals has one source, which is up to date, does not heal itself and knows of it. */
static void test_all_places_fit(void **state)
{
    uint64_t random = 11;

    (void)state;
    for (int turn = 0; turn < 20000; turn++) {
        const uint32_t n = 1 + (uint32_t)(tutti_random64(&random) % MOST),
                       group_rank = (uint32_t)(tutti_random64(&random) % 5);
        const bool init_sync = tutti_random64(&random) % 2;
        const int64_t spread = 1 + (int64_t)(tutti_random64(&random) % 3);
        int64_t steps[MOST];
        struct sample s;
        struct tutti_place places[MOST];
        uint32_t told[MOST] = {0}, n_up = 0;
        for (uint32_t i = 0; i < n; i++) steps[i] = (int64_t)(tutti_random64(&random) % (uint64_t)spread);
        sample_make(&s, n, steps);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(tutti_place_find(&s.quorum, s.names[i], group_rank, init_sync, &places[i]), TUTTI_OK);
        for (uint32_t i = 0; i < n; i++) {
            const struct tutti_place *p = &places[i];
            assert_string_equal(p->store_address, places[0].store_address);
            assert_int_equal(p->max_step, places[0].max_step);
            assert_int_equal(p->max_rank != TUTTI_NOBODY, steps[i] == p->max_step);
            if (p->max_rank != TUTTI_NOBODY) assert_int_equal(p->max_rank, n_up++);
            if (steps[i] != p->max_step) assert_true(p->heals);
            if (p->heals) {
                assert_false(places[p->source].heals);
                assert_int_equal(steps[p->source], p->max_step);
                assert_int_equal(p->n_targets, 0);
                assert_int_equal(p->sources[0], p->source);
            }
            assert_int_equal(p->n_sources > 0, p->heals);
            for (uint32_t k = 0; k < p->n_sources; k++) {
                const uint32_t source = p->sources[k];
                assert_true(places[source].offers && !places[source].heals);
                assert_int_equal(steps[source], p->max_step);
                for (uint32_t l = 0; l < k; l++) assert_int_not_equal(source, p->sources[l]);
            }
            assert_false(p->n_targets > 0 && !p->offers);
            for (uint32_t t = 0; t < p->n_targets; t++) {
                assert_int_equal(places[p->targets[t]].source, i);
                told[p->targets[t]]++;
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(told[i], places[i].heals);
            assert_int_equal(places[i].max_size, n_up);
            tutti_place_fini(&places[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_at_the_first_step), cmocka_unit_test(test_recovery),
                                       cmocka_unit_test(test_all_places_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
