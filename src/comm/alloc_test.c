/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory runs out at every allocation in turn, on one rank, inside create, split, window and calls: that rank gets a
 * clean error, the others a sentence or success, nobody hangs, nothing leaks (under ASan). */
#include "base/base.h"
#include "ranks.h"
#include "test.h"

#include <stdatomic.h>
#include <string.h>
#include <tutti/tutti.h>

struct trial {
    uint64_t fail_at; /* the allocation that fails, on rank `victim` */
    uint64_t timeout_ns;
    int32_t victim;
    _Atomic bool reached;        /* whether there was such an allocation */
    _Atomic int failed;          /* ranks that got an error */
    char text[TUTTI_ERROR_TEXT]; /* the victim's */
};

static void arm(const struct rank *rank, const struct trial *trial)
{
    if (rank->index == trial->victim) tutti_alloc_fail_at(trial->fail_at);
}

static void disarm(const struct rank *rank, struct trial *trial)
{
    if (rank->index == trial->victim && tutti_alloc_fail_at(0) >= trial->fail_at) atomic_store(&trial->reached, true);
}

/* Errors say what happened; the victim's is of memory, unless another rank's failure came first. */
static void judge(struct rank *rank, struct trial *trial, enum tutti_status status)
{
    if (status < 0) atomic_fetch_add(&trial->failed, 1);
    if (status < 0 && rank->index == trial->victim) strcpy(trial->text, tutti_last_error()->text);
    RANK_CHECK(rank, status <= 0);
    RANK_CHECK(rank, status == TUTTI_OK || tutti_last_error()->text[0]);
}

static void in_create(struct rank *rank)
{
    struct trial *trial = rank->arg;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank->index;
    config.n_ranks = rank->n;
    config.name = rank->name;
    config.timeout_ns = trial->timeout_ns;
    arm(rank, trial);
    struct tutti_context *context = NULL;
    struct tutti_option self = {"transport", "self"};
    enum tutti_status status = tutti_context_create(&self, 1, &context);
    if (status == TUTTI_OK) status = tutti_comm_create(context, &config, &rank->comm);
    disarm(rank, trial);
    judge(rank, trial, status);
    if (status == TUTTI_OK && rank->comm) tutti_barrier(rank->comm, NULL, NULL); /* a sentence, or success */
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    tutti_context_destroy(context);
}

static void in_split(struct rank *rank)
{
    struct trial *trial = rank->arg;
    struct tutti_comm *part = NULL;
    arm(rank, trial);
    enum tutti_status status = tutti_comm_split(rank->comm, rank->index % 2, 0, &part);
    disarm(rank, trial);
    judge(rank, trial, status);
    RANK_CHECK(rank, (status == TUTTI_OK) == (part != NULL));
    if (part) {
        int32_t one = 1, sum = 0;
        status = tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, part, NULL, NULL);
        if (status == TUTTI_OK) RANK_CHECK(rank, sum == tutti_comm_size(part));
    }
    if (rank->index == trial->victim) tutti_alloc_fail_at(1);
    tutti_comm_destroy(part); /* must not need memory */
    if (rank->index == trial->victim) tutti_alloc_fail_at(0);
}

static void in_window(struct rank *rank)
{
    struct trial *trial = rank->arg;
    void *memory = NULL;
    struct tutti_window *window = NULL;
    arm(rank, trial);
    enum tutti_status allocated = tutti_mem_alloc(rank->comm, 4096, &memory);
    enum tutti_status status = tutti_window_create(rank->comm, memory, memory ? 4096 : 0, NULL, &window);
    disarm(rank, trial);
    judge(rank, trial, allocated < 0 ? allocated : status);
    tutti_window_destroy(window);
    if (memory) tutti_mem_free(rank->comm, memory);
}

static void in_calls(struct rank *rank)
{
    struct trial *trial = rank->arg;
    int64_t in[300], out[900];
    size_t counts[3] = {1, 2, 3};
    struct tutti_work *work = NULL;
    tutti_comm_set_timeout(rank->comm, trial->timeout_ns);
    memset(in, 1, sizeof(in));
    arm(rank, trial);
    enum tutti_status status = tutti_all_reduce(in, out, 300, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, &work);
    if (status == TUTTI_OK) status = tutti_work_wait(work, 0);
    tutti_work_free(work);
    if (status == TUTTI_OK) status = tutti_group_start();
    if (status == TUTTI_OK) {
        tutti_all_gather_v(in, out, counts, NULL, TUTTI_INT64, rank->comm, NULL, NULL);
        tutti_send(in, 1, TUTTI_INT64, rank->index, 1, rank->comm, NULL, NULL);
        tutti_recv(out + 500, 1, TUTTI_INT64, rank->index, 1, rank->comm, NULL, NULL, NULL);
        status = tutti_group_end(NULL);
    }
    disarm(rank, trial);
    judge(rank, trial, status);
}

static void in_shrink(struct rank *rank)
{
    struct trial *trial = rank->arg;
    struct tutti_comm *rest = NULL;
    arm(rank, trial);
    enum tutti_status status = tutti_comm_shrink(rank->comm, NULL, 0, &rest);
    disarm(rank, trial);
    judge(rank, trial, status);
    RANK_CHECK(rank, (status == TUTTI_OK) == (rest != NULL));
    tutti_comm_destroy(rest);
}

#define SHORT_NS (UINT64_C(50) * 1000000) /* how long the others wait for a rank that could not call */
#define LONG_NS (UINT64_C(30) * 1000000000)

static void attempt(rank_function function, bool makes_comm, struct trial *trial)
{
    struct ranks_config config = {.n = 3, .no_comm = makes_comm, .no_context = makes_comm, .arg = trial};
    assert_int_equal(ranks_run(&config, function), 0);
}

/* Every allocation in turn, until there are no more: then all must succeed, given time. */
static void each_allocation(rank_function function, bool makes_comm, int32_t victim)
{
    for (uint64_t at = 1; at < 400; at++) {
        struct trial trial = {.fail_at = at, .timeout_ns = SHORT_NS, .victim = victim};
        attempt(function, makes_comm, &trial);
        if (atomic_load(&trial.reached)) continue;
        assert_true(at > 1); /* something was allocated at all */
        struct trial last = {.fail_at = at, .timeout_ns = LONG_NS, .victim = victim};
        attempt(function, makes_comm, &last);
        if (atomic_load(&last.reached)) continue; /* the short one was over before it came to that */
        if (last.failed) fail_msg("%d ranks failed with enough memory: %s", last.failed, last.text);
        return;
    }
    fail_msg("more than 400 allocations");
}

static void create_without_memory(void **state)
{
    (void)state;
    each_allocation(in_create, true, 0);
    each_allocation(in_create, true, 2);
}

static void split_without_memory(void **state)
{
    (void)state;
    each_allocation(in_split, false, 1);
}

static void window_without_memory(void **state)
{
    (void)state;
    each_allocation(in_window, false, 0);
}

static void calls_without_memory(void **state)
{
    (void)state;
    each_allocation(in_calls, false, 1);
}

static void shrink_without_memory(void **state)
{
    (void)state;
    each_allocation(in_shrink, false, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_without_memory), cmocka_unit_test(split_without_memory),
        cmocka_unit_test(window_without_memory), cmocka_unit_test(calls_without_memory),
        cmocka_unit_test(shrink_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
