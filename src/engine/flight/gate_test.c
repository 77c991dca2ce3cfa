/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls whose input comes while they are under way: what has not come is not looked at, what is said to be over is
 * final, ranks with and without a gate meet, and a deadline that passes meanwhile says so. */

#include "engine/bind.h"
#include "engine/pass/rig_test.h"

enum { COUNT = 40009, SLICE_BYTES = 4096, POISON = 0x55555555 };

struct feed {
    struct rig_rank *rank;
    struct tutti_gate gate;
    struct tutti_layout layout;
    struct tutti_schedule *schedule;
    int32_t *source, *input, *output, *taken; /* input: as much of source as has come; taken: of output, as it passed */
    uint32_t n_taken;
};

static size_t blocks(const struct feed *feed)
{
    return feed->layout.n_blocks;
}

/* These slices of all blocks. */
static void carry(const struct feed *feed, uint32_t first, uint32_t until, const int32_t *from, int32_t *to)
{
    const struct tutti_layout *l = &feed->layout;
    for (uint32_t b = 0; b < l->n_blocks; b++)
        for (uint32_t chunk = 0; chunk < l->per_block; chunk++)
            for (uint32_t s = first; s < until; s++) {
                size_t at, n = tutti_layout_part(l, b, chunk, s, &at);
                memcpy(to + b * COUNT + at, from + b * COUNT + at, n * sizeof(*to));
            }
}

static void passed(void *arg, uint32_t n)
{
    struct feed *feed = arg;
    RIG_CHECK(feed->rank, n >= feed->n_taken && n <= atomic_load(&feed->gate.n_open), "%u passed after %u", n,
              feed->n_taken);
    if (n > feed->n_taken) carry(feed, feed->n_taken, n, feed->output, feed->taken);
    feed->n_taken = n;
}

static void *give(void *arg)
{
    struct feed *feed = arg;
    uint64_t random = feed->rank->random;
    for (uint32_t s = 0; s < feed->layout.n_slices; s++) {
        if (tutti_random64(&random) % 3 == 0) rig_sleep(tutti_random64(&random) % 300000);
        carry(feed, s, s + 1, feed->source, feed->input);
        tutti_gate_open(feed->rank->team, &feed->gate, s + 1);
    }
    return NULL;
}

static void feed_open(struct rig_rank *rank, enum tutti_kind kind, struct feed *feed)
{
    const struct tutti_shape shape = {.slot = rank->me, .size = rank->n};
    struct tutti_need need = {0};
    *feed = (struct feed){.rank = rank, .gate = {.passed = passed}};
    feed->gate.arg = feed;
    assert_int_equal(tutti_schedule_seal(&rig_linear, kind, &shape, true, &feed->schedule), TUTTI_OK);
    const struct tutti_bind bind = {.schedule = feed->schedule, .count = COUNT, .dtype = TUTTI_INT32};
    assert_int_equal(tutti_layout_init(&feed->layout, &bind, tutti_team_slice_bytes(rank->team), &need), TUTTI_OK);
    assert_true(feed->layout.n_slices > 10);
    const size_t n = blocks(feed) * COUNT;
    int32_t **all[] = {&feed->source, &feed->input, &feed->output, &feed->taken};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(all); i++) {
        *all[i] = malloc(n * sizeof(int32_t));
        assert_non_null(*all[i]);
        for (size_t k = 0; k < n; k++) (*all[i])[k] = POISON;
    }
    for (size_t k = 0; k < n; k++) feed->source[k] = (int32_t)(k % 10007 * (rank->me + 1));
}

static void feed_close(struct feed *feed)
{
    tutti_schedule_destroy(feed->schedule);
    free(feed->source), free(feed->input), free(feed->output), free(feed->taken);
}

static int32_t wanted(const struct rig_rank *rank, enum tutti_kind kind, size_t k)
{
    const size_t from = k / COUNT;
    if (kind == TUTTI_ALL_REDUCE) return (int32_t)(k % 10007 * rank->n * (rank->n + 1) / 2);
    return (int32_t)((rank->me * (size_t)COUNT + k % COUNT) % 10007 * (from + 1)); /* all_to_all */
}

static void fed(struct rig_rank *rank, enum tutti_kind kind, bool gated)
{
    struct feed feed;
    struct tutti_work *work = NULL;
    pthread_t thread;
    feed_open(rank, kind, &feed);
    struct rig_call call = {.kind = kind,
                            .dtype = TUTTI_INT32,
                            .op = kind == TUTTI_ALL_REDUCE ? TUTTI_SUM : -1,
                            .count = COUNT,
                            .input = gated ? feed.input : feed.source,
                            .output = feed.output,
                            .gate = gated ? &feed.gate : NULL};
    RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
    if (gated) assert_int_equal(pthread_create(&thread, NULL, give, &feed), 0);
    RIG_OK(rank, tutti_work_finish(work));
    if (gated) pthread_join(thread, NULL);
    RIG_CHECK(rank, feed.n_taken == (gated ? feed.layout.n_slices : 0), "%u slices passed", feed.n_taken);
    const int32_t *got = gated ? feed.taken : feed.output;
    for (size_t k = 0; k < blocks(&feed) * COUNT && !rank->wrong[0]; k++)
        RIG_CHECK(rank, got[k] == wanted(rank, kind, k), "%zu is %d", k, (int)got[k]);
    tutti_schedule_destroy(call.schedule);
    feed_close(&feed);
}

static void feeds(struct rig_rank *rank)
{
    for (uint32_t round = 0; round < 6; round++) {
        fed(rank, TUTTI_ALL_REDUCE, round < 3 || rank->me != round % rank->n);
        fed(rank, TUTTI_ALL_TO_ALL, round < 3 || rank->me == round % rank->n);
    }
}

static void test_input_comes(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        struct rig rig = {.n = n, .slice_bytes = SLICE_BYTES, .main = feeds};
        rig_run(&rig);
        rig = (struct rig){.n = n, .slice_bytes = SLICE_BYTES, .tcp = true, .main = feeds};
        rig_run(&rig);
    }
}

/* Some of rank 1's input never comes. */
static void starve(struct rig_rank *rank)
{
    struct feed feed;
    struct tutti_error error;
    feed_open(rank, TUTTI_ALL_REDUCE, &feed);
    struct rig_call call = {.kind = TUTTI_ALL_REDUCE,
                            .dtype = TUTTI_INT32,
                            .op = TUTTI_SUM,
                            .count = COUNT,
                            .timeout_ns = (rank->me == 1 ? 300 : 20000) * TUTTI_NS_PER_MS,
                            .input = feed.source,
                            .output = feed.output,
                            .gate = rank->me == 1 ? &feed.gate : NULL};
    atomic_store(&feed.gate.n_open, 3);
    enum tutti_status status = rig_call(rank, rank->team, &call);
    RIG_CHECK(rank, status == TUTTI_ERR_TIMEOUT, "status %d", (int)status);
    tutti_team_state(rank->team, &error);
    RIG_CHECK(rank, strstr(error.text, "rank 1 timed out after 300 ms while its input comes"), "\"%s\"", error.text);
    feed_close(&feed);
}

static void test_input_stays_away(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .slice_bytes = SLICE_BYTES, .main = starve};
    rig_run(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_input_comes), cmocka_unit_test(test_input_stays_away)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
