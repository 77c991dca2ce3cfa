/* SPDX-License-Identifier: BSD-3-Clause */
/* all_gather, reduce_scatter, all_to_all and their v forms through the back end flat: thousands of random calls, back
 * to back and some in flight at once, among calls of other kinds, on threads and on processes, with large and with
 * small slots of staging. */
#include "test.h"

#include "peer.h"

#include <stdio.h>
#include <string.h>

enum { IN_FLIGHT = 3 };

struct mix {
    uint32_t n_batches;
    size_t chunk;
    uint64_t seed;
};

static void check_batch(struct rank *rank, const struct peer_plan *plans, struct peer_slot *slots, uint32_t n,
                        enum tutti_op user)
{
    char text[256];
    for (uint32_t i = 0; i < n; i++) peer_prepare(rank, &plans[i], &slots[i]);
    for (uint32_t i = 0; i < n; i++) {
        enum tutti_status status = peer_start(rank, &plans[i], user, &slots[i]);
        if (status == TUTTI_OK) continue;
        peer_print(&plans[i], text, sizeof text);
        rank_fail(rank, __FILE__, __LINE__, "%s: %s", text, tutti_last_error()->text);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (slots[i].work) RANK_CHECK_OK(rank, tutti_work_wait(slots[i].work, 0));
        tutti_work_free(slots[i].work);
    }
    for (uint32_t i = 0; i < n && !rank->failure[0]; i++) {
        const char *wrong = peer_compare(rank, &plans[i], &slots[i]);
        peer_print(&plans[i], text, sizeof text);
        if (wrong) rank_fail(rank, __FILE__, __LINE__, "%s: %s", text, wrong);
    }
}

static void run_mix(struct rank *rank)
{
    const struct mix *mix = rank->arg;
    struct peer_plan plans[IN_FLIGHT];
    struct peer_slot slots[IN_FLIGHT];
    uint64_t random = mix->seed + (uint64_t)rank->n * 7919; /* the same on all ranks */
    enum tutti_op user;
    for (int i = 0; i < IN_FLIGHT; i++) RANK_CHECK(rank, peer_slot_open(rank, &slots[i]));
    RANK_CHECK_OK(rank, tutti_op_create(rank->context, peer_compose, NULL, false, &user));
    for (uint32_t b = 0; b < mix->n_batches && !rank->failure[0]; b++) {
        uint32_t n = 1 + (uint32_t)(peer_random(&random) % IN_FLIGHT);
        for (uint32_t i = 0; i < n; i++) peer_plan(&random, (uint32_t)rank->n, mix->chunk, &plans[i]);
        check_batch(rank, plans, slots, n, user);
    }
    RANK_CHECK_OK(rank, tutti_op_destroy(rank->context, user));
    for (int i = 0; i < IN_FLIGHT; i++) peer_slot_close(rank, &slots[i]);
}

static void run(uint32_t n, bool forked, const char *staging, size_t chunk, uint32_t n_batches)
{
    const struct tutti_option options[] = {{"staging", staging}};
    struct mix mix = {.n_batches = n_batches, .chunk = chunk, .seed = test_seed() + chunk + forked};
    struct ranks_config config = {.n = n,
                                  .forked = forked,
                                  .options = options,
                                  .n_options = 1,
                                  .timeout_ns = UINT64_C(60000000000),
                                  .deadline_s = 120,
                                  .arg = &mix};
    if (ranks_run(&config, run_mix) != 0) fail_msg("seed %llu", (unsigned long long)test_seed());
}

#define SMALL "448K", 4096 /* slots of a page: sizes of many rounds are small */
#define LARGE "4M", 65536

static void two_threads(void **state)
{
    (void)state;
    run(2, false, SMALL, 150);
    run(2, false, LARGE, 40);
}

static void more_threads(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {3, 4, 5, 8};
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) run(worlds[i], false, SMALL, 50);
    run(4, false, LARGE, 15);
}

static void many_threads(void **state)
{
    (void)state;
    run(17, false, SMALL, 15);
    run(20, false, SMALL, 15); /* butterflies of two levels */
}

static void processes(void **state)
{
    (void)state;
    run(2, true, SMALL, 100);
    run(2, true, LARGE, 40);
    run(3, true, SMALL, 50);
    run(5, true, SMALL, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads),
        cmocka_unit_test(more_threads),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(processes),
    };
    return cmocka_run_group_tests_name("flat peer", tests, NULL, NULL);
}
