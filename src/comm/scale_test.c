/* SPDX-License-Identifier: BSD-3-Clause */
/* Many ranks and many calls: 1,000 ranks in one process, and resident memory that stays flat over 10^5 collectives and
 * 10^3 splits. */
#include "comm/comm.h"
#include "ranks.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

static size_t resident_bytes(void)
{
    char text[128] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    size_t pages = 0;
    if (!got || sscanf(text, "%*u %zu", &pages) != 1) return 0;
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void few_calls(struct rank *rank)
{
    int64_t in = rank->index, sum = -1;
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, NULL));
    RANK_CHECK(rank, sum == (int64_t)rank->n * (rank->n - 1) / 2);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    /* Split into groups of ten, at a number of messages that grows with the logarithm of the ranks. */
    struct tutti_engine_stats before, after;
    struct tutti_comm *group = NULL;
    tutti_engine_stats(rank->context->engine, &before);
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index / 10, -rank->index, &group));
    tutti_engine_stats(rank->context->engine, &after);
    uint64_t packets = after.packets_sent - before.packets_sent, log2_n = 0;
    while (INT32_C(1) << log2_n < rank->n) log2_n++;
    /* Bruck, and a tree up and down, with their grants and credits. */
    if (packets > 10 * log2_n)
        rank_fail(rank, __FILE__, __LINE__, "%llu packets for a split", (unsigned long long)packets);
    int32_t first = rank->index / 10 * 10, size = rank->n - first < 10 ? rank->n - first : 10;
    RANK_CHECK(rank, tutti_comm_size(group) == size);
    RANK_CHECK(rank, tutti_comm_rank(group) == size - 1 - (rank->index - first)); /* by descending rank */
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT64, TUTTI_SUM, group, NULL, NULL));
    RANK_CHECK(rank, sum == (int64_t)size * first + (int64_t)size * (size - 1) / 2);
    tutti_comm_destroy(group);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#endif
#ifdef SANITIZED
#define MANY_RANKS 128 /* what the sanitizers' thread tables and stacks allow on a small machine */
#define CALLS 4000
#define SPLITS 40
#define SLACK ((size_t)1 << 30) /* they keep what is freed for a while */
#else
#define SLACK ((size_t)1 << 20)
#define MANY_RANKS 1000
#define CALLS 100000
#define SPLITS 1000
#endif

static void a_thousand_ranks(void **state)
{
    (void)state;
    struct ranks_config config = {.n = MANY_RANKS, .deadline_s = 180, .timeout_ns = UINT64_C(100) * 1000000000};
    assert_int_equal(ranks_run(&config, few_calls), 0);
}

/* A tenth warms up; then nothing may grow by more than SLACK. */
static void flat(struct rank *rank)
{
    size_t warm = 0;
    for (int i = 0; i < CALLS; i++) {
        int64_t in = i, sum = -1;
        if (i % 3 == 2) {
            struct tutti_work *work = NULL;
            RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, &work));
            RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
            tutti_work_free(work);
        } else {
            RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, NULL));
        }
        RANK_CHECK(rank, sum == (int64_t)i * rank->n);
        if (i == CALLS / 10) warm = resident_bytes();
    }
    RANK_CHECK(rank, warm > 0);
    RANK_CHECK(rank, resident_bytes() <= warm + SLACK);
    for (int i = 0; i < SPLITS; i++) {
        struct tutti_comm *part = NULL;
        RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, i % 2 ? rank->index : 0, 0, &part));
        int64_t one = 1, sum = 0;
        RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT64, TUTTI_SUM, part, NULL, NULL));
        RANK_CHECK(rank, sum == tutti_comm_size(part));
        tutti_comm_destroy(part);
        if (i == SPLITS / 10) warm = resident_bytes();
    }
    RANK_CHECK(rank, resident_bytes() <= warm + SLACK);
}

static void flat_memory(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .deadline_s = 180};
    assert_int_equal(ranks_run(&config, flat), 0);
    config.forked = true;
    assert_int_equal(ranks_run(&config, flat), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_ranks),
        cmocka_unit_test(flat_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
