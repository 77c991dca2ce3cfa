/* SPDX-License-Identifier: BSD-3-Clause */
/* Newcomers: processes are killed, others knock at the store, and the members take them in between two calls. Every
 * result must be that of the contributors that it names, on all alike; a newcomer must be in the next call; spares wait
 * until there is a place. Kills are at random moments, also while newcomers are taken in. */
#include "base/base.h"
#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { SIZE = 4, SPARES = 4, PROCESSES = SIZE + SPARES, LEAST_CALLS = 100, MOST_CALLS = 4000, COUNT = 600 };

static struct board {
    uint64_t digests[MOST_CALLS]; /* by the program's step; 0: none yet */
    _Atomic uint32_t differ, n_admitted, n_in[PROCESSES];
    _Atomic bool is_over;
    uint64_t seed;
} * board;

static struct tutti_store store;

static uint64_t value_of(uint64_t step, int32_t rank, size_t i)
{
    return tutti_mix64(step * 1000003 + (uint64_t)rank * 7919 + i * 31) >> 20;
}

static enum tutti_status make(struct rank *rank, bool joins, int32_t index, struct tutti_comm **out)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = index, config.n_ranks = SIZE, config.name = rank->name, config.survive = 1;
    config.store = &store;
    config.joins = joins;
    config.timeout_ns = 30 * TUTTI_NS_PER_S;
    return tutti_comm_create(rank->context, &config, out);
}

static void *killer(void *arg)
{
    tutti_sleep_ns(*(const uint64_t *)arg);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* A digest of result and contributors must be the one that others had from the same step. */
static void compare(struct rank *rank, struct tutti_comm *comm, uint64_t step, const uint64_t *out)
{
    int32_t set[SIZE];
    size_t n = 0;
    RANK_CHECK_OK(rank, tutti_work_contributors(NULL, comm, set, SIZE, &n));
    uint64_t digest = 1;
    bool own = false;
    for (size_t k = 0; k < n; k++) {
        digest = tutti_mix64(digest ^ (uint64_t)set[k]);
        own = own || set[k] == tutti_comm_rank(comm);
    }
    RANK_CHECK(rank, own);
    for (size_t i = 0; i < COUNT; i += 37) {
        uint64_t sum = 0;
        for (size_t k = 0; k < n; k++) sum += value_of(step, set[k], i);
        RANK_CHECK(rank, out[i] == sum);
    }
    const uint64_t before = __sync_val_compare_and_swap(&board->digests[step], 0, digest);
    if (before != 0 && before != digest) board->differ++;
}

/* Every rank's program: a newcomer hears from the lowest rank at which step the others are. */
static void work(struct rank *rank, struct tutti_comm *comm, bool is_new, uint64_t until_admitted)
{
    uint64_t *in = rank_alloc(rank, COUNT * sizeof(*in)), *out = rank_alloc(rank, COUNT * sizeof(*out));
    uint64_t told[2] = {0, 0}; /* step, newcomers so far */
    for (bool first = is_new;; first = false) {
        size_t n_new = 0;
        if (!first) RANK_CHECK_OK(rank, tutti_comm_admit(comm, NULL, 0, &n_new));
        if (first || n_new > 0) {
            told[1] += n_new;
            RANK_CHECK_OK(rank, tutti_all_reduce(told, told, 2, TUTTI_UINT64, TUTTI_MAX, comm, NULL, NULL));
        }
        if (told[0] == MOST_CALLS || (told[0] > LEAST_CALLS && told[1] >= until_admitted)) break;
        for (size_t i = 0; i < COUNT; i++) in[i] = value_of(told[0], tutti_comm_rank(comm), i);
        RANK_CHECK_OK(rank, tutti_all_reduce(in, out, COUNT, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL));
        compare(rank, comm, told[0]++, out);
        if (rank->failure[0]) return;
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    RANK_CHECK(rank, told[1] >= until_admitted);
    board->n_admitted = (uint32_t)told[1];
    board->n_in[rank->index]++;
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    tutti_comm_destroy(comm);
}

/* Ranks 1 and 2 die; two of the spares take their numbers, and the others end with a sentence. */
static void replaced(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    uint64_t dies_ns = (uint64_t)(10 + 30 * rank->index) * TUTTI_NS_PER_MS;
    pthread_t thread;
    if (rank->index < SIZE) {
        RANK_CHECK_OK(rank, make(rank, false, rank->index, &comm));
        if (rank->index == 1 || rank->index == 2)
            RANK_CHECK(rank, pthread_create(&thread, NULL, killer, &dies_ns) == 0);
        work(rank, comm, false, 2);
        return;
    }
    RANK_CHECK_OK(rank, make(rank, true, rank->index == SIZE ? 2 : -1, &comm));
    RANK_CHECK(rank, rank->index == SIZE ? tutti_comm_rank(comm) == 2 : tutti_comm_rank(comm) == 1);
    RANK_CHECK(rank, tutti_comm_size(comm) == SIZE);
    work(rank, comm, true, 2);
}

/* A newcomer that waits when the others have done ends by force. */
static void *leaver(void *arg)
{
    const _Atomic uint32_t *in = arg; /* the rank may be over by then */
    while (!board->is_over) tutti_sleep_ns(TUTTI_NS_PER_MS);
    if (*in == 0) kill(getpid(), SIGKILL);
    return NULL;
}

/* All but rank 0 may die at any moment: at work, at the door, while they are taken in. */
static void random_moments(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    uint64_t seed = board->seed + (uint64_t)rank->index * 1000, dies_ns = 0;
    pthread_t thread, other;
    const uint64_t draw = tutti_random64(&seed) >> 33;
    if (rank->index > 0 && draw % 3 != 0) dies_ns = 1 + draw % (150 * TUTTI_NS_PER_MS);
    if (rank->index < SIZE) RANK_CHECK_OK(rank, make(rank, false, rank->index, &comm));
    if (dies_ns) RANK_CHECK(rank, pthread_create(&thread, NULL, killer, &dies_ns) == 0);
    if (rank->index >= SIZE) {
        tutti_sleep_ns(tutti_random64(&seed) % (50 * TUTTI_NS_PER_MS));
        RANK_CHECK(rank, pthread_create(&other, NULL, leaver, &board->n_in[rank->index]) == 0);
    }
    if (rank->index >= SIZE) RANK_CHECK_OK(rank, make(rank, true, -1, &comm));
    board->n_in[rank->index]++;
    work(rank, comm, rank->index >= SIZE, 0);
    board->is_over = true;
}

static void store_fresh(char path[64])
{
    char address[80];
    snprintf(path, 64, "/tmp/tutti-admit-XXXXXX");
    assert_non_null(mkdtemp(path));
    snprintf(address, sizeof(address), "file://%s", path);
    assert_int_equal(tutti_store_open(address, NULL, tutti_deadline_ns(TUTTI_NS_PER_S), &store), TUTTI_OK);
    memset(board, 0, sizeof(*board));
}

static void store_end(const char *path)
{
    char command[96];
    tutti_store_close(&store);
    snprintf(command, sizeof(command), "rm -rf %s", path);
    assert_int_equal(system(command), 0);
}

static void test_replaced(void **state)
{
    char path[64];
    (void)state;
    store_fresh(path);
    struct ranks_config config = {.n = SIZE + 2, .forked = true, .no_comm = true, .may_die = 6};
    assert_int_equal(ranks_run(&config, replaced), 0);
    assert_int_equal(board->differ, 0);
    assert_int_equal(board->n_admitted, 2);
    for (uint32_t r = 0; r < SIZE + 2; r++) assert_int_equal(board->n_in[r], r != 1 && r != 2);
    store_end(path);
}

static void test_random_moments(void **state)
{
    const char *more = getenv("SURVIVE_SEEDS");
    const uint64_t first = test_seed(), n = more ? strtoull(more, NULL, 10) : 3;
    uint64_t n_admitted = 0;
    char path[64];
    (void)state;
    for (uint64_t k = 0; k < n; k++) {
        store_fresh(path);
        board->seed = (first + k) * 77777;
        struct ranks_config config = {
            .n = PROCESSES, .forked = true, .no_comm = true, .may_die = (UINT64_C(1) << PROCESSES) - 2};
        if (ranks_run(&config, random_moments) != 0 || board->differ)
            fail_msg("seed %llu: %u differ", (unsigned long long)(first + k), board->differ);
        n_admitted += board->n_admitted;
        store_end(path);
    }
    print_message("%llu newcomers in %llu runs\n", (unsigned long long)n_admitted, (unsigned long long)n);
}

int main(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replaced), cmocka_unit_test(test_random_moments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
