/* SPDX-License-Identifier: BSD-3-Clause */
/* All kinds and their v forms through the back end flat: thousands of random calls, back to back and some in flight at
 * once, on threads and on processes, with large and with small slots of staging; long runs of rooted calls alone, in
 * which nothing but the slots keeps ranks together. */
#include "test.h"

#include "random.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { IN_FLIGHT = 3 };

struct mix {
    struct random_draw draw;
    uint32_t n_batches;
    uint64_t seed;
};

static void check_batch(struct rank *rank, const struct random_plan *plans, struct random_slot *slots, uint32_t n,
                        enum tutti_op user)
{
    char text[256];
    for (uint32_t i = 0; i < n; i++) random_prepare(rank, &plans[i], &slots[i]);
    for (uint32_t i = 0; i < n; i++) {
        enum tutti_status status = random_start(rank, &plans[i], user, &slots[i]);
        if (status == TUTTI_OK) continue;
        random_print(&plans[i], text, sizeof text);
        rank_fail(rank, __FILE__, __LINE__, "%s: %s", text, tutti_last_error()->text);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (slots[i].work) RANK_CHECK_OK(rank, tutti_work_wait(slots[i].work, 0));
        tutti_work_free(slots[i].work);
    }
    for (uint32_t i = 0; i < n && !rank->failure[0]; i++) {
        const char *wrong = random_compare(&plans[i], &slots[i]);
        random_print(&plans[i], text, sizeof text);
        if (wrong) rank_fail(rank, __FILE__, __LINE__, "%s: %s", text, wrong);
    }
}

static void run_mix(struct rank *rank)
{
    const struct mix *mix = rank->arg;
    struct random_plan plans[IN_FLIGHT];
    struct random_slot slots[IN_FLIGHT];
    uint64_t random = mix->seed + (uint64_t)rank->n * 7919; /* the same on all ranks */
    enum tutti_op user;
    for (int i = 0; i < IN_FLIGHT; i++) RANK_CHECK(rank, random_slot_open(rank, &slots[i]));
    RANK_CHECK_OK(rank, tutti_op_create(rank->context, random_compose, NULL, false, &user));
    for (uint32_t b = 0; b < mix->n_batches && !rank->failure[0]; b++) {
        uint32_t n = 1 + (uint32_t)(random_next(&random) % IN_FLIGHT);
        for (uint32_t i = 0; i < n; i++) random_plan(&random, &mix->draw, &plans[i]);
        check_batch(rank, plans, slots, n, user);
    }
    RANK_CHECK_OK(rank, tutti_op_destroy(rank->context, user));
    for (int i = 0; i < IN_FLIGHT; i++) random_slot_close(rank, &slots[i]);
}

struct world {
    uint32_t n;
    bool forked, small; /* slots of a page: sizes of many rounds are small */
    uint32_t n_batches;
    size_t most;
    bool rooted, reproducible;
};

static void run(struct world w)
{
    const struct tutti_option options[] = {{"staging", w.small ? "448K" : "4M"},
                                           {"reproducible", w.reproducible ? "1" : "0"}};
    struct mix mix = {.n_batches = w.n_batches, .seed = test_seed() + w.small + 2 * (uint64_t)w.forked + w.n_batches};
    mix.draw = (struct random_draw){w.n, w.small ? 4096 : 65536, w.most, w.rooted, w.n <= 16 || w.reproducible};
    struct ranks_config config = {.n = w.n,
                                  .forked = w.forked,
                                  .options = options,
                                  .n_options = 2,
                                  .timeout_ns = UINT64_C(60000000000),
                                  .deadline_s = 120,
                                  .arg = &mix};
    if (ranks_run(&config, run_mix) != 0) fail_msg("seed %llu", (unsigned long long)test_seed());
}

static void alone(void **state)
{
    (void)state;
    run((struct world){.n = 1, .n_batches = 120});
}

static void two_threads(void **state)
{
    (void)state;
    run((struct world){.n = 2, .small = true, .n_batches = 300});
    run((struct world){.n = 2, .n_batches = 80});
}

static void more_threads(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {3, 4, 5, 8};
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++)
        run((struct world){.n = worlds[i], .small = true, .n_batches = 98});
    run((struct world){.n = 4, .n_batches = 27});
}

static void many_threads(void **state)
{
    (void)state;
    run((struct world){.n = 17, .small = true, .n_batches = 15});
    run((struct world){.n = 20, .small = true, .n_batches = 15}); /* butterflies of two levels */
    run((struct world){.n = 17, .small = true, .n_batches = 6, .reproducible = true});
}

static void processes(void **state)
{
    (void)state;
    run((struct world){.n = 2, .forked = true, .small = true, .n_batches = 220});
    run((struct world){.n = 2, .forked = true, .n_batches = 80});
    run((struct world){.n = 3, .forked = true, .small = true, .n_batches = 110});
    run((struct world){.n = 5, .forked = true, .small = true, .n_batches = 80});
}

/* Nothing but the slots keeps ranks together. */
static void rooted_calls_alone(void **state)
{
    (void)state;
    run((struct world){.n = 2, .small = true, .n_batches = 120, .most = 20000, .rooted = true});
    run((struct world){.n = 5, .small = true, .n_batches = 60, .most = 20000, .rooted = true});
    run((struct world){.n = 4, .forked = true, .small = true, .n_batches = 60, .most = 20000, .rooted = true});
    run((struct world){.n = 17, .small = true, .n_batches = 16, .most = 20000, .rooted = true});
}

/* ---- ranks that are far ahead of those who take from them ---- */

enum { AHEAD_MOST = 3000, AHEAD_CALLS = 40 };

static uint64_t value_of(int call, int32_t rank, size_t i)
{
    return (uint64_t)call * 1000003 + (uint64_t)rank * 10007 + i;
}

static void fill_all(uint64_t *data, int call, int32_t from, int32_t n_blocks, size_t count)
{
    for (int32_t b = 0; b < n_blocks; b++)
        for (size_t i = 0; i < count; i++) data[(size_t)b * count + i] = value_of(call, from + b, i);
}

/* One call of a kind; the first wrong element, or SIZE_MAX. */
static size_t call_ahead(struct rank *rank, enum tutti_kind kind, int call, size_t count, uint64_t *in, uint64_t *out)
{
    int32_t me = rank->index, n = rank->n, root = 0, first = me, last = me;
    enum tutti_status status = TUTTI_OK;
    size_t blocks = 1;
    bool gets = true;
    fill_all(in, call, kind == TUTTI_SCATTER ? 0 : me, kind == TUTTI_SCATTER ? n : 1, count);
    if (kind == TUTTI_BROADCAST) {
        if (me == root) memcpy(out, in, count * 8);
        status = tutti_broadcast(out, count, TUTTI_UINT64, root, rank->comm, NULL, NULL), first = last = root;
    } else if (kind == TUTTI_SCATTER) {
        status = tutti_scatter(in, out, count, TUTTI_UINT64, root, rank->comm, NULL, NULL);
    } else if (kind == TUTTI_GATHER) {
        status = tutti_gather(in, out, count, TUTTI_UINT64, root, rank->comm, NULL, NULL);
        gets = me == root, blocks = (size_t)n, first = last = 0;
    } else if (kind == TUTTI_REDUCE) {
        status = tutti_reduce(in, out, count, TUTTI_UINT64, TUTTI_SUM, root, rank->comm, NULL, NULL);
        gets = me == root, first = 0, last = n - 1;
    } else {
        status = tutti_scan(in, out, count, TUTTI_UINT64, TUTTI_SUM, rank->comm, NULL, NULL), first = 0;
    }
    for (size_t i = 0; status == TUTTI_OK && gets && i < blocks * count; i++) {
        uint64_t want = 0;
        for (int32_t r = first; r <= last; r++) want += value_of(call, r + (int32_t)(i / count), i % count);
        if (out[i] != want) return i;
    }
    return status == TUTTI_OK ? SIZE_MAX : 0;
}

static void run_ahead(struct rank *rank)
{
    static const size_t counts[] = {1, 20, 300, AHEAD_MOST};
    static const enum tutti_kind kinds[] = {TUTTI_BROADCAST, TUTTI_SCATTER, TUTTI_GATHER, TUTTI_REDUCE, TUTTI_SCAN};
    uint64_t *in = calloc((size_t)rank->n * AHEAD_MOST, 8), *out = calloc((size_t)rank->n * AHEAD_MOST, 8);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (int call = 0; call < AHEAD_CALLS && in && out && !rank->failure[0]; call++) {
                bool takes = (rank->index != 0) != (kinds[k] == TUTTI_GATHER || kinds[k] == TUTTI_REDUCE);
                if (takes && rank_random(rank) % 40 == 0) nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
                size_t wrong = call_ahead(rank, kinds[k], call, counts[c], in, out);
                if (wrong != SIZE_MAX)
                    rank_fail(rank, __FILE__, __LINE__, "kind %d, %zu elements, call %d: element %zu", (int)kinds[k],
                              counts[c], call, wrong);
            }
    if (!in || !out) rank_fail(rank, __FILE__, __LINE__, "out of memory");
    free(in);
    free(out);
}

static void far_ahead(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {2, 3, 5};
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        assert_int_equal(ranks_threads(worlds[i], run_ahead, NULL), 0);
        assert_int_equal(ranks_forked(worlds[i], run_ahead, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),        cmocka_unit_test(two_threads), cmocka_unit_test(more_threads),
        cmocka_unit_test(many_threads), cmocka_unit_test(processes),   cmocka_unit_test(rooted_calls_alone),
        cmocka_unit_test(far_ahead),
    };
    return cmocka_run_group_tests_name("flat random", tests, NULL, NULL);
}
