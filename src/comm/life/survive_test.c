/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators that survive: processes are killed at random moments inside calls of 8 B to 4 MiB, and the survivors
 * must all have, from every call, the same bits, made of the contributors that they are told; then what a lost root, a
 * call that is not carried out, and an abort give. */
#include "base/base.h"
#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { MOST = 6, CALLS = 60 };
#define LARGEST ((size_t)1 << 19) /* elements */

/* What all processes see: a digest of each call's result by rank, 0: the rank did not return from it. */
static struct board {
    uint64_t digests[CALLS][MOST];
    uint32_t n_deaths;
    uint64_t seed;
} * board;

static uint64_t value_of(uint64_t call, int32_t rank, size_t i)
{
    return tutti_mix64(call * 1000003 + (uint64_t)rank * 7919 + i * 31) >> 20;
}

static enum tutti_status make(struct rank *rank, struct tutti_comm **out)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank->index, config.n_ranks = rank->n, config.name = rank->name, config.survive = 1;
    config.timeout_ns = 60 * TUTTI_NS_PER_S;
    return tutti_comm_create(rank->context, &config, out);
}

static void *killer(void *arg)
{
    tutti_sleep_ns(*(const uint64_t *)arg);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* ---- every kind, whose results are computed from the contributors ---- */

struct call {
    struct rank *rank;
    struct tutti_comm *comm;
    uint64_t number;
    size_t count;
    int32_t root;
    uint64_t *in, *out;
    int32_t set[MOST];
    size_t n_set;
};

static uint64_t sum_at(const struct call *c, size_t i)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < c->n_set; k++) sum += value_of(c->number, c->set[k], i);
    return sum;
}

static bool contributed(const struct call *c, int32_t rank)
{
    for (size_t k = 0; k < c->n_set; k++)
        if (c->set[k] == rank) return true;
    return false;
}

static enum tutti_status start(struct call *c, uint32_t form)
{
    const size_t n = c->count, me = (size_t)c->rank->index;
    switch (form) {
    case 0:
        return tutti_all_reduce(c->in, c->out, n, TUTTI_UINT64, TUTTI_SUM, c->comm, NULL, NULL);
    case 1:
        memcpy(c->out, c->in, n * sizeof(*c->in));
        return tutti_all_reduce(c->out, c->out, n, TUTTI_UINT64, TUTTI_SUM, c->comm, NULL, NULL);
    case 2:
        return tutti_all_gather(c->in, c->out, n, TUTTI_UINT64, c->comm, NULL, NULL);
    case 3:
        return tutti_reduce_scatter(c->in, c->out, n, TUTTI_UINT64, TUTTI_SUM, c->comm, NULL, NULL);
    case 4: /* in place: the own block of the input becomes the result */
        memcpy(c->out, c->in, (size_t)c->rank->n * n * sizeof(*c->in));
        return tutti_reduce_scatter(c->out, c->out + me * n, n, TUTTI_UINT64, TUTTI_SUM, c->comm, NULL, NULL);
    case 5:
        if (c->rank->index == c->root) memcpy(c->out, c->in, n * sizeof(*c->in));
        return tutti_broadcast(c->out, n, TUTTI_UINT64, c->root, c->comm, NULL, NULL);
    default:
        return tutti_reduce(c->in, c->out, n, TUTTI_UINT64, TUTTI_SUM, c->root, c->comm, NULL, NULL);
    }
}

/* A digest of what is the same on all ranks; 0: the result is wrong. */
static uint64_t check(const struct call *c, uint32_t form)
{
    const size_t n = c->count, me = (size_t)c->rank->index;
    uint64_t digest = tutti_mix64(form + 1);
    for (size_t k = 0; k < c->n_set; k++) digest = tutti_mix64(digest ^ (uint64_t)c->set[k]);
    if (!contributed(c, c->rank->index)) return 0;
    for (size_t i = 0; i < n; i += 1 + i / 50) {
        bool right = true;
        if (form < 2 || (form == 6 && c->rank->index == c->root)) right = c->out[i] == sum_at(c, i);
        if (form == 3) right = c->out[i] == sum_at(c, me * n + i);
        if (form == 4) right = c->out[me * n + i] == sum_at(c, me * n + i);
        if (form == 5) right = c->out[i] == value_of(c->number, c->root, i);
        for (int32_t r = 0; form == 2 && r < c->rank->n; r++)
            right = right && c->out[(size_t)r * n + i] == (contributed(c, r) ? value_of(c->number, r, i) : 0);
        if (!right) return 0;
    }
    return digest | 1;
}

static void killed_at_random(struct rank *rank)
{
    static const size_t counts[] = {1, 3, 100, 512, 513, 5000, 40000, LARGEST / MOST};
    uint64_t seed = board->seed, dies_ns = 0;
    struct call c = {.rank = rank};
    RANK_CHECK_OK(rank, make(rank, &c.comm));
    c.in = rank_alloc(rank, LARGEST * sizeof(*c.in));
    c.out = rank_alloc(rank, LARGEST * sizeof(*c.out));
    uint32_t victims = 1 + (uint32_t)(tutti_random64(&seed) % (uint64_t)(rank->n - 1));
    pthread_t thread;
    for (uint32_t k = 0; k < victims; k++) { /* all ranks draw the same */
        const int32_t victim = (int32_t)(tutti_random64(&seed) % (uint64_t)rank->n);
        const uint64_t when_ns = tutti_random64(&seed) % (60 * TUTTI_NS_PER_MS);
        if (victim == rank->index && victim > 0) dies_ns = when_ns;
    }
    if (dies_ns) RANK_CHECK(rank, pthread_create(&thread, NULL, killer, &dies_ns) == 0);
    for (c.number = 0; c.number < CALLS; c.number++) {
        const uint32_t form = (uint32_t)(tutti_random64(&seed) % 7);
        c.count = counts[tutti_random64(&seed) % TUTTI_ARRAY_LEN(counts)];
        c.root = (int32_t)(tutti_random64(&seed) % (uint64_t)rank->n);
        const size_t n = c.count * (form == 3 || form == 4 ? (size_t)rank->n : 1);
        for (size_t i = 0; i < n; i++) c.in[i] = value_of(c.number, rank->index, i);
        const enum tutti_status status = start(&c, form);
        RANK_CHECK_OK(rank, tutti_comm_contributors(c.comm, c.set, MOST, &c.n_set));
        if (form >= 5 && !contributed(&c, c.root)) continue; /* an older set: the root died */
        if (form >= 5 && status == TUTTI_ERR_PEER_DEAD) {
            RANK_CHECK(rank, strstr(tutti_last_error()->text, "which is the root") != NULL);
            board->digests[c.number][rank->index] = 1;
            continue;
        }
        RANK_CHECK_OK(rank, status);
        board->digests[c.number][rank->index] = check(&c, form);
        RANK_CHECK(rank, board->digests[c.number][rank->index] != 0);
    }
    RANK_CHECK_OK(rank, tutti_barrier(c.comm, NULL, NULL));
    tutti_comm_destroy(c.comm);
}

static void random_deaths(void **state)
{
    const char *more = getenv("SURVIVE_SEEDS");
    const uint64_t first = test_seed(), n = more ? strtoull(more, NULL, 10) : 12;
    (void)state;
    for (uint64_t k = 0; k < n; k++) {
        const uint32_t size = 2 + (uint32_t)((first + k) % (MOST - 1));
        memset(board, 0, sizeof(*board));
        board->seed = first + k;
        struct ranks_config config = {.n = size, .forked = true, .no_comm = true, .may_die = (UINT64_C(1) << size) - 2};
        if (ranks_run(&config, killed_at_random) != 0) fail_msg("seed %llu", (unsigned long long)(first + k));
        for (uint32_t call = 0; call < CALLS; call++)
            for (uint32_t r = 1; r < size; r++)
                if (board->digests[CALLS - 1][r] && board->digests[call][r] != board->digests[call][0])
                    fail_msg("seed %llu: ranks 0 and %u differ in call %u", (unsigned long long)(first + k), r, call);
    }
}

int main(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_deaths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
