/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of three of which one does not do as the others do, on memory of Intel GPUs: it dies, never comes, or calls
 * something else, while the others wait for it on their streams. Each is a sentence on all that are left, within a
 * second or two, by kernels and through the host; the streams come to their end, and the device serves the next
 * communicator. */

#include "test.h"

#include "base/base.h"

#include "ranks.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

enum { RANKS = 3, VICTIM = 1, N = 30000 };
#define TIMEOUT_NS (UINT64_C(300) * 1000000)
#define LIMIT_NS (UINT64_C(8) * 1000000000) /* on a machine that is busy */

static const struct wrong {
    const char *name;
    enum tutti_status status;
    const char *says[2];
    uint64_t timeout_ns; /* for the others' calls; 0: the communicator's */
    bool dies, calls;    /* the victim */
} wrongs[] = {
    {"dies", TUTTI_ERR_PEER_DEAD, {"rank 1", "all_reduce"}, .dies = true},
    {"never comes", TUTTI_ERR_TIMEOUT, {"rank 1", "all_reduce"}, .timeout_ns = TIMEOUT_NS},
    {"calls another", TUTTI_ERR_MISMATCH, {"rank 1", "max"}, .calls = true},
};
struct plan {
    const struct wrong *wrong;
    size_t n; /* elements */
};

static enum tutti_status call(struct tutti_comm *comm, void *stream, int32_t *words, size_t n, enum tutti_op op,
                              uint64_t timeout_ns)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = stream, options.timeout_ns = timeout_ns;
    return tutti_all_reduce(words, words, n, TUTTI_INT32, op, comm, &options, NULL);
}

/* What the communicator says when the stream has come to its end. */
static enum tutti_status outcome(struct tutti_accelerator *acc, struct tutti_comm *comm, void *stream,
                                 struct tutti_error *error)
{
    const uint64_t start = tutti_now_ns();
    (void)tutti_accelerator_stream_sync(acc, stream);
    while (tutti_comm_state(comm, error) == TUTTI_OK && tutti_now_ns() - start < LIMIT_NS)
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    return tutti_comm_state(comm, error);
}

/* Without the victim. */
static void go_on(struct rank *rank, struct tutti_accelerator *acc, void *stream, int32_t *words)
{
    struct tutti_comm *left = NULL;
    const int32_t victim = VICTIM, own = 1 << rank->index;
    int32_t all = 0;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, &victim, 1, &left));
    RANK_CHECK_OK(rank, tutti_accelerator_copy(acc, words, &own, sizeof own, stream));
    RANK_CHECK_OK(rank, call(left, stream, words, 1, TUTTI_SUM, 0));
    RANK_CHECK_OK(rank, tutti_accelerator_copy(acc, &all, words, sizeof all, stream));
    RANK_CHECK_OK(rank, tutti_accelerator_stream_sync(acc, stream));
    RANK_CHECK(rank, all == 5);
    RANK_CHECK_OK(rank, tutti_barrier(left, NULL, NULL));
    tutti_comm_destroy(left);
}

static void others(struct rank *rank, struct tutti_accelerator *acc, void *stream, int32_t *words)
{
    const struct plan *plan = rank->arg;
    const struct wrong *wrong = plan->wrong;
    struct tutti_error error = {0};
    const uint64_t start = tutti_now_ns();
    enum tutti_status status = call(rank->comm, stream, words, plan->n, TUTTI_SUM, wrong->timeout_ns);
    if (status == TUTTI_OK)
        status = outcome(acc, rank->comm, stream, &error);
    else
        error = *tutti_last_error(); /* it was known by then */
    const uint64_t late_ns = tutti_now_ns() - start;
    if (status == wrong->status && strstr(error.text, wrong->says[0]) && strstr(error.text, wrong->says[1]) &&
        late_ns < LIMIT_NS) {
        if (wrong->dies) go_on(rank, acc, stream, words);
        return;
    }
    rank_fail(rank, __FILE__, __LINE__, "%s: %s after %llu ms: \"%s\"", wrong->name, tutti_status_name(status),
              (unsigned long long)(late_ns / TUTTI_NS_PER_MS), error.text);
}

static void victim(struct rank *rank, struct tutti_accelerator *acc, void *stream, int32_t *words)
{
    const struct plan *plan = rank->arg;
    struct tutti_error error = {0};
    if (plan->wrong->dies) raise(SIGKILL);
    if (plan->wrong->calls) (void)call(rank->comm, stream, words, plan->n, TUTTI_MAX, 0);
    RANK_CHECK_STATUS(rank, plan->wrong->status, outcome(acc, rank->comm, stream, &error));
}

static void run(struct rank *rank)
{
    struct tutti_accelerator *acc = NULL;
    const struct plan *plan = rank->arg;
    void *stream = NULL, *words = NULL;
    RANK_CHECK_OK(rank, tutti_accelerator_open("xpu", rank->index % 2, &acc));
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, tutti_accelerator_device(acc)));
    RANK_CHECK_OK(rank, tutti_accelerator_stream_create(acc, &stream));
    RANK_CHECK_OK(rank, tutti_accelerator_alloc(acc, N * sizeof(int32_t), &words));
    RANK_CHECK_OK(rank, call(rank->comm, stream, words, plan->n, TUTTI_SUM, 0)); /* all is well */
    RANK_CHECK_OK(rank, tutti_accelerator_stream_sync(acc, stream));
    const enum tutti_status met = tutti_barrier(rank->comm, NULL, NULL); /* for a slow rank the failure may be first */
    RANK_CHECK(rank, met == TUTTI_OK || met == plan->wrong->status);
    (rank->index == VICTIM ? victim : others)(rank, acc, stream, words);
    tutti_accelerator_stream_destroy(acc, stream);
}

static void test_ways(void **state)
{
    static const size_t sizes[] = {100, N};
    struct tutti_option way = {"gpu", *state};
    for (size_t i = 0; i < 2 * TUTTI_ARRAY_LEN(wrongs); i++) {
        struct plan plan = {&wrongs[i / 2], sizes[i % 2]};
        if (plan.wrong->dies && !ranks_can_fork()) continue;
        const struct ranks_config config = {.n = RANKS,
                                            .forked = true,
                                            .deadline_s = 60,
                                            .arg = &plan,
                                            .options = &way,
                                            .n_options = 1,
                                            .may_die = plan.wrong->dies ? 1u << VICTIM : 0};
        const unsigned n_failed = ranks_run(&config, run);
        if (n_failed) fail_msg("%s, %zu elements, by %s", plan.wrong->name, plan.n, way.value);
    }
}

int main(void)
{
    struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_ways, (void *)(uintptr_t) "auto"),
                                 cmocka_unit_test_prestate(test_ways, (void *)(uintptr_t) "host")};
    tests[0].name = "by kernels", tests[1].name = "through the host";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
