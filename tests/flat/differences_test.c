/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that do not call the same, in every pairing of the ways through the back end flat: tiny, by lines, staged,
 * mapped and asynchronous calls that differ in kind, count, type, operation or root. Each is a sentence at once, long
 * before ranks would compare what they wait in; and life goes on. */
#include "test.h"

#include "comm/comm.h"
#include "flat/support/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, ODD = 2, WORDS = 1 << 15 };
#define LONG_NS UINT64_C(10000000000)

/* A way to make a call. */
struct way {
    const char *name, *algorithm;
    size_t count;
    bool mapped, async;
};
static const struct way ways[] = {
    {"tiny", NULL, 4, false, false},
    {"by lines", "flat:line", 40, false, false},
    {"staged", "flat:stage", WORDS / RANKS - 5, false, false},
    {"mapped", "flat:mapped", WORDS / RANKS - 5, true, false},
    {"asynchronous", NULL, 40, false, true},
};

struct call {
    enum tutti_kind kind;
    size_t count; /* beside the way's */
    enum tutti_dtype dtype;
    enum tutti_op op;
    int32_t root;
};
static const struct pair {
    const char *name;
    struct call usual, odd;
} pairs[] = {
    {"no more than the way",
     {TUTTI_ALL_REDUCE, 0, TUTTI_INT64, TUTTI_SUM, 0},
     {TUTTI_ALL_REDUCE, 0, TUTTI_INT64, TUTTI_SUM, 0}},
    {"count", {TUTTI_ALL_REDUCE, 0, TUTTI_INT64, TUTTI_SUM, 0}, {TUTTI_ALL_REDUCE, 1, TUTTI_INT64, TUTTI_SUM, 0}},
    {"count", {TUTTI_ALL_TO_ALL, 0, TUTTI_INT64, TUTTI_SUM, 0}, {TUTTI_ALL_TO_ALL, 1, TUTTI_INT64, TUTTI_SUM, 0}},
    {"type", {TUTTI_ALL_REDUCE, 0, TUTTI_INT64, TUTTI_SUM, 0}, {TUTTI_ALL_REDUCE, 0, TUTTI_UINT64, TUTTI_SUM, 0}},
    {"type",
     {TUTTI_REDUCE_SCATTER, 0, TUTTI_INT64, TUTTI_SUM, 0},
     {TUTTI_REDUCE_SCATTER, 0, TUTTI_FLOAT32, TUTTI_SUM, 0}},
    {"operation", {TUTTI_ALL_REDUCE, 0, TUTTI_INT64, TUTTI_SUM, 0}, {TUTTI_ALL_REDUCE, 0, TUTTI_INT64, TUTTI_MAX, 0}},
    {"operation", {TUTTI_REDUCE, 0, TUTTI_INT64, TUTTI_SUM, ODD}, {TUTTI_REDUCE, 0, TUTTI_INT64, TUTTI_MAX, ODD}},
    {"kind", {TUTTI_ALL_REDUCE, 0, TUTTI_INT64, TUTTI_SUM, 0}, {TUTTI_ALL_GATHER, 0, TUTTI_INT64, TUTTI_SUM, 0}},
    {"kind", {TUTTI_ALL_GATHER, 0, TUTTI_INT64, TUTTI_SUM, 0}, {TUTTI_BARRIER, 0, TUTTI_INT64, TUTTI_SUM, 0}},
    {"kind", {TUTTI_ALL_REDUCE, 0, TUTTI_INT64, TUTTI_SUM, 0}, {TUTTI_BROADCAST, 0, TUTTI_INT64, TUTTI_SUM, 0}},
    {"kind", {TUTTI_GATHER, 0, TUTTI_INT64, TUTTI_SUM, ODD}, {TUTTI_SCAN, 0, TUTTI_INT64, TUTTI_SUM, 0}},
    {"root", {TUTTI_BROADCAST, 0, TUTTI_INT64, TUTTI_SUM, 0}, {TUTTI_BROADCAST, 0, TUTTI_INT64, TUTTI_SUM, 1}},
    {"root", {TUTTI_SCATTER, 0, TUTTI_INT64, TUTTI_SUM, 1}, {TUTTI_SCATTER, 0, TUTTI_INT64, TUTTI_SUM, 0}},
    /* A rank that takes itself for the root waits for nobody: the barrier behind tells. */
    {"root, its own",
     {TUTTI_BROADCAST, 0, TUTTI_INT64, TUTTI_SUM, 0},
     {TUTTI_BROADCAST, 0, TUTTI_INT64, TUTTI_SUM, ODD}},
    {"root, its own", {TUTTI_SCATTER, 0, TUTTI_INT64, TUTTI_SUM, 1}, {TUTTI_SCATTER, 0, TUTTI_INT64, TUTTI_SUM, ODD}},
    {"root, its own", {TUTTI_SCAN, 0, TUTTI_INT64, TUTTI_SUM, 0}, {TUTTI_BROADCAST, 0, TUTTI_INT64, TUTTI_SUM, ODD}},
};
enum { N_WAYS = sizeof ways / sizeof ways[0], N_PAIRS = sizeof pairs / sizeof pairs[0] };

struct buffers {
    void *private[2], *mapped[2];
};

static enum tutti_status start(const struct call *c, const struct way *way, const struct buffers *b,
                               struct tutti_comm *comm, struct tutti_work **work)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    const struct tutti_call_options *o = way->algorithm ? &options : NULL;
    void *send = way->mapped ? b->mapped[0] : b->private[0], *recv = way->mapped ? b->mapped[1] : b->private[1];
    size_t n = way->count + c->count;
    options.algorithm = way->algorithm;
    switch (c->kind) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(send, recv, n, c->dtype, c->op, comm, o, work);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(send, recv, n, c->dtype, comm, o, work);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(send, recv, n, c->dtype, comm, o, work);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(send, recv, n, c->dtype, c->op, comm, o, work);
    case TUTTI_REDUCE:
        return tutti_reduce(send, recv, n, c->dtype, c->op, c->root, comm, o, work);
    case TUTTI_GATHER:
        return tutti_gather(send, recv, n, c->dtype, c->root, comm, o, work);
    case TUTTI_SCATTER:
        return tutti_scatter(send, recv, n, c->dtype, c->root, comm, o, work);
    case TUTTI_SCAN:
        return tutti_scan(send, recv, n, c->dtype, c->op, comm, o, work);
    case TUTTI_BROADCAST:
        return tutti_broadcast(send, n, c->dtype, c->root, comm, o, work);
    default:
        return tutti_barrier(comm, o, work);
    }
}

static enum tutti_status make(const struct call *c, const struct way *way, const struct buffers *b,
                              struct tutti_comm *comm)
{
    struct tutti_work *work = NULL;
    enum tutti_status status = start(c, way, b, comm, way->async ? &work : NULL);
    if (status < 0 || !work) return status;
    status = tutti_work_wait(work, 0);
    tutti_work_free(work);
    return status;
}

/* The sentence: who called what. */
static bool is_told(const struct pair *pair, const char *text)
{
    if (pair->odd.kind == TUTTI_BROADCAST || pair->odd.kind == TUTTI_SCATTER)
        if (strstr(text, "barrier") && strstr(text, "another root in a call before")) return pair->odd.root == ODD;
    return strstr(text, "rank 2 called") && strstr(text, tutti_kind_name(pair->usual.kind)) &&
           strstr(text, tutti_kind_name(pair->odd.kind));
}

static void differ(struct rank *rank, const struct buffers *b, const struct pair *pair, const struct way *usual,
                   const struct way *odd)
{
    bool is_odd = rank->index == ODD;
    struct tutti_comm *fresh = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, NULL, 0, &fresh));
    RANK_CHECK(rank, fresh->backend);
    tutti_comm_set_timeout(fresh, 6 * LONG_NS);
    uint64_t start_ns = calls_now_ns();
    enum tutti_status status = TUTTI_OK;
    for (int i = 0; i < 3 && status == TUTTI_OK; i++) status = tutti_barrier(fresh, NULL, NULL);
    /* Quick ranks may fail the communicator while others still come out of the barrier. */
    if (status == TUTTI_OK) status = make(is_odd ? &pair->odd : &pair->usual, is_odd ? odd : usual, b, fresh);
    if (status == TUTTI_OK)
        status = tutti_barrier(fresh, NULL, NULL); /* its own part was done before others differed */
    const char *text = status < 0 ? tutti_last_error()->text : "nothing";
    uint64_t took_ns = calls_now_ns() - start_ns;
    if (status != TUTTI_ERR_MISMATCH || !is_told(pair, text) || took_ns > LONG_NS)
        rank_fail(rank, __FILE__, __LINE__, "another %s, %s against %s (%s, %s): %s after %llu ms: \"%s\"", pair->name,
                  usual->name, odd->name, tutti_kind_name(pair->usual.kind), tutti_kind_name(pair->odd.kind),
                  tutti_status_name(status), (unsigned long long)took_ns / 1000000, text);
    tutti_comm_destroy(fresh);
}

static bool is_same(const struct pair *pair, const struct way *usual, const struct way *odd)
{
    return memcmp(&pair->usual, &pair->odd, sizeof pair->usual) == 0 && usual->count == odd->count;
}

static void all_pairs(struct rank *rank)
{
    struct buffers b;
    for (int i = 0; i < 2; i++) {
        b.private[i] = calloc(WORDS, 8);
        RANK_CHECK(rank, b.private[i]);
        RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, WORDS * 8, &b.mapped[i]));
    }
    for (size_t p = 0; p < N_PAIRS; p++)
        for (size_t u = 0; u < N_WAYS; u++)
            for (size_t o = 0; o < N_WAYS && !rank->failure[0]; o++)
                if (!is_same(&pairs[p], &ways[u], &ways[o])) differ(rank, &b, &pairs[p], &ways[u], &ways[o]);
    for (int i = 0; i < 2; i++) {
        free(b.private[i]);
        RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, b.mapped[i]));
    }
}

static void run(bool forked)
{
    static const struct tutti_option options[] = {{"compare_after", "1h"}, {"log", "error"}};
    struct ranks_config config = {.n = RANKS, .forked = forked, .options = options, .n_options = 2, .deadline_s = 200};
    assert_int_equal(ranks_run(&config, all_pairs), 0);
}

static void threads(void **state)
{
    (void)state, run(false);
}

static void processes(void **state)
{
    (void)state, run(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads), cmocka_unit_test(processes)};
    return cmocka_run_group_tests_name("flat differences", tests, NULL, NULL);
}
