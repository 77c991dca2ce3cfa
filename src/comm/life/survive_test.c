/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators that survive: processes are killed at random moments inside calls of 8 B to 4 MiB, and the survivors
 * must all have, from every call, the same bits, made of the contributors that they are told; then what a lost root, a
 * call that is not carried out, and an abort give. */
#include "base/base.h"
#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
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
    uint64_t seed;
    int32_t pids[MOST];
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
    size_t counts[MOST], begins[MOST]; /* unequal blocks */
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

static enum tutti_status start(struct call *c, uint32_t form, struct tutti_work **work)
{
    const size_t n = c->count, me = (size_t)c->rank->index;
    switch (form) {
    case 0:
        return tutti_all_reduce(c->in, c->out, n, TUTTI_UINT64, TUTTI_SUM, c->comm, NULL, work);
    case 1:
        memcpy(c->out, c->in, n * sizeof(*c->in));
        return tutti_all_reduce(c->out, c->out, n, TUTTI_UINT64, TUTTI_SUM, c->comm, NULL, work);
    case 2:
        return tutti_all_gather(c->in, c->out, n, TUTTI_UINT64, c->comm, NULL, work);
    case 3:
        return tutti_reduce_scatter(c->in, c->out, n, TUTTI_UINT64, TUTTI_SUM, c->comm, NULL, work);
    case 4: /* in place: the own block of the input becomes the result */
        memcpy(c->out, c->in, (size_t)c->rank->n * n * sizeof(*c->in));
        return tutti_reduce_scatter(c->out, c->out + me * n, n, TUTTI_UINT64, TUTTI_SUM, c->comm, NULL, work);
    case 5:
        if (c->rank->index == c->root) memcpy(c->out, c->in, n * sizeof(*c->in));
        return tutti_broadcast(c->out, n, TUTTI_UINT64, c->root, c->comm, NULL, work);
    case 7:
        return tutti_all_gather_v(c->in, c->out, c->counts, c->begins, TUTTI_UINT64, c->comm, NULL, work);
    case 8:
        return tutti_reduce_scatter_v(c->in, c->out, c->counts, TUTTI_UINT64, TUTTI_SUM, c->comm, NULL, work);
    default:
        return tutti_reduce(c->in, c->out, n, TUTTI_UINT64, TUTTI_SUM, c->root, c->comm, NULL, work);
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
        if (form == 3 || form == 4) right = c->out[(form - 3) * me * n + i] == sum_at(c, me * n + i);
        if (form == 5) right = c->out[i] == value_of(c->number, c->root, i);
        if (form == 8) right = c->out[i] == sum_at(c, c->begins[me] + i);
        for (int32_t r = 0; form == 7 && r < c->rank->n; r++)
            right = right && c->out[c->begins[r] + i] == (contributed(c, r) ? value_of(c->number, r, i) : 0);
        for (int32_t r = 0; form == 2 && r < c->rank->n; r++)
            right = right && c->out[(size_t)r * n + i] == (contributed(c, r) ? value_of(c->number, r, i) : 0);
        if (!right) return 0;
    }
    return digest | 1;
}

/* Nothing is written to a buffer after its call has returned: the outputs of two calls take turns, and that of the call
 * before is looked at when the next one has ended. */
struct past {
    uint64_t *outs[2], hash;
    size_t bytes; /* 0: there was no call before */
};

static bool past_is_intact(struct past *past, const struct call *c)
{
    const size_t most = LARGEST + (size_t)MOST * MOST, n = (c->count + MOST) * MOST;
    const uint64_t *before = past->outs[(c->number + 1) % 2];
    const bool intact = past->bytes == 0 || tutti_hash64(before, past->bytes, 1) == past->hash;
    past->bytes = (n < most ? n : most) * sizeof(*before);
    past->hash = tutti_hash64(c->out, past->bytes, 1);
    return intact;
}

static void killed_at_random(struct rank *rank)
{
    static const size_t counts[] = {1, 3, 100, 512, 513, 5000, 40000, LARGEST / MOST, LARGEST - 7, LARGEST};
    uint64_t seed = board->seed, dies_ns = 0;
    const size_t most = (LARGEST + MOST * MOST) * sizeof(uint64_t);
    struct call c = {.rank = rank};
    RANK_CHECK_OK(rank, make(rank, &c.comm));
    c.in = rank_alloc(rank, most);
    struct past past = {.bytes = 0};
    for (int k = 0; k < 2; k++) past.outs[k] = memset(rank_alloc(rank, most), 0, most);
    uint32_t victims = 1 + (uint32_t)(tutti_random64(&seed) % (uint64_t)(rank->n - 1));
    pthread_t thread;
    for (uint32_t k = 0; k < victims; k++) { /* all ranks draw the same */
        const int32_t victim = (int32_t)(tutti_random64(&seed) % (uint64_t)rank->n);
        const uint64_t when_ns = tutti_random64(&seed) % (60 * TUTTI_NS_PER_MS);
        if (victim == rank->index && victim > 0) dies_ns = when_ns;
    }
    if (dies_ns) RANK_CHECK(rank, pthread_create(&thread, NULL, killer, &dies_ns) == 0);
    for (c.number = 0; c.number < CALLS; c.number++) {
        c.out = past.outs[c.number % 2];
        const uint32_t form = (uint32_t)(tutti_random64(&seed) % 9);
        c.count = counts[tutti_random64(&seed) % TUTTI_ARRAY_LEN(counts)];
        c.root = (int32_t)(tutti_random64(&seed) % (uint64_t)rank->n);
        if (form > 1 && c.count > LARGEST / MOST) c.count = LARGEST / MOST; /* a block for each rank */
        for (size_t r = 0, at = 0; r < MOST; at += c.counts[r++]) c.counts[r] = c.count + r, c.begins[r] = at;
        const size_t n = form == 8 ? c.begins[MOST - 1] + c.counts[MOST - 1]
                                   : MOST + c.count * (form == 3 || form == 4 ? (size_t)rank->n : 1);
        for (size_t i = 0; i < n; i++) c.in[i] = value_of(c.number, rank->index, i);
        struct tutti_work *work = NULL;
        const bool blocks = tutti_random64(&seed) % 2;
        enum tutti_status status = start(&c, form, blocks ? NULL : &work);
        if (work) status = tutti_work_wait(work, 0);
        RANK_CHECK_OK(rank, tutti_work_contributors(work, c.comm, c.set, MOST, &c.n_set));
        tutti_work_free(work);
        RANK_CHECK(rank, past_is_intact(&past, &c));
        if ((form == 5 || form == 6) && !contributed(&c, c.root)) {
            RANK_CHECK(rank, status == TUTTI_ERR_PEER_DEAD && strstr(tutti_last_error()->text, "which is the root"));
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
    const uint64_t first = test_seed(), n = more ? strtoull(more, NULL, 10) : MOST - 1; /* each size */
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

/* ---- calls in flight, and what is refused ---- */

static void many_in_flight(struct rank *rank)
{
    enum { N = 100, COUNT = 5000 };
    struct tutti_comm *comm = NULL;
    struct tutti_work *works[N];
    uint64_t *data = rank_alloc(rank, N * COUNT * sizeof(*data)), dies_ns = 10 * TUTTI_NS_PER_MS, last = 1;
    pthread_t thread;
    int32_t ranks[4];
    size_t n = 0;
    RANK_CHECK_OK(rank, make(rank, &comm));
    if (rank->index == 2) RANK_CHECK(rank, pthread_create(&thread, NULL, killer, &dies_ns) == 0);
    for (int turn = 0; turn < 5; turn++) {
        for (size_t i = 0; i < N * COUNT; i++) data[i] = (uint64_t)(rank->index + 1);
        for (size_t i = 0; i < N; i++)
            RANK_CHECK_OK(rank, tutti_all_reduce(data + i * COUNT, data + i * COUNT, i % 3 ? COUNT : 1, TUTTI_UINT64,
                                                 TUTTI_SUM, comm, NULL, &works[i]));
        RANK_CHECK_OK(rank,
                      tutti_all_reduce(&last, &last, 1, TUTTI_UINT64, TUTTI_MAX, comm, NULL, NULL)); /* after them */
        for (size_t i = 0; i < N; i++) {
            RANK_CHECK_OK(rank, tutti_work_test(works[i]));
            tutti_work_free(works[i]);
            /* Ranks 0, 1 and 3 have put in 1 + 2 + 4; rank 2, 3. */
            RANK_CHECK(rank, data[i * COUNT] == 10 || data[i * COUNT] == 7);
            if (i > 0) RANK_CHECK(rank, data[i * COUNT] <= data[(i - 1) * COUNT]);
        }
        tutti_sleep_ns(5 * TUTTI_NS_PER_MS);
    }
    RANK_CHECK_OK(rank, tutti_work_contributors(NULL, comm, ranks, 4, &n));
    RANK_CHECK(rank, n == 3 && ranks[0] == 0 && ranks[1] == 1 && ranks[2] == 3);
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    tutti_comm_destroy(comm);
}

/* Groups on two communicators, which the ranks name in two orders, waited for in three ways, while rank 2 dies. */
static void groups(struct rank *rank)
{
    enum { N = 3, COUNT = 3000, BIG = 400000 };
    struct tutti_comm *comms[2] = {NULL, NULL};
    struct rank other = *rank;
    char name[80];
    uint64_t *data = rank_alloc(rank, 2 * N * BIG * sizeof(*data)), dies_ns = 15 * TUTTI_NS_PER_MS;
    pthread_t thread;
    snprintf(name, sizeof name, "%s-other", rank->name);
    other.name = name;
    RANK_CHECK_OK(rank, make(rank, &comms[0]));
    RANK_CHECK_OK(rank, make(&other, &comms[1]));
    if (rank->index == 2) RANK_CHECK(rank, pthread_create(&thread, NULL, killer, &dies_ns) == 0);
    for (uint32_t turn = 0; turn < 12; turn++) {
        struct tutti_work *works[2 * N] = {NULL}, *all = NULL;
        for (size_t i = 0; i < 2 * N * BIG; i++) data[i] = (uint64_t)(rank->index + 1);
        RANK_CHECK_OK(rank, tutti_group_start());
        for (uint32_t k = 0; k < 2 * N; k++) {
            const uint32_t i = rank->index % 2 ? k : 2 * N - 1 - k, of = i / N; /* N calls of each, in one order */
            const uint32_t place = rank->index % 2 ? i : of * N + (N - 1 - i % N);
            uint64_t *at = data + place * BIG;
            RANK_CHECK_OK(rank, tutti_all_reduce(at, at, place % N ? COUNT : BIG, TUTTI_UINT64, TUTTI_SUM, comms[of],
                                                 NULL, turn % 3 == 2 ? &works[place] : NULL));
        }
        RANK_CHECK_OK(rank, tutti_group_end(turn % 3 == 1 ? &all : NULL));
        if (all) RANK_CHECK_OK(rank, tutti_work_wait(all, 0));
        tutti_work_free(all);
        for (uint32_t i = 0; i < 2 * N; i++) {
            if (works[i]) RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
            tutti_work_free(works[i]);
            RANK_CHECK(rank, data[i * BIG] == 10 || data[i * BIG] == 7);
            RANK_CHECK(rank, data[i * BIG + COUNT - 1] == data[i * BIG]);
            if (i % N) RANK_CHECK(rank, data[i * BIG] <= data[(i - 1) * BIG]);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        RANK_CHECK_OK(rank, tutti_barrier(comms[i], NULL, NULL));
        tutti_comm_destroy(comms[i]);
    }
}

/* A rank is stopped in the middle of its calls, and continued when the others have gone on without it: it hears a
 * sentence, and what it had is as it was. */
static void stopped(struct rank *rank)
{
    enum { VICTIM = 3, N_CALLS = 30, N_AT = 10, COUNT = 3000 };
    struct tutti_comm *comm = NULL;
    uint64_t *data = rank_alloc(rank, COUNT * sizeof(*data));
    int32_t ranks[4];
    size_t n = 0;
    RANK_CHECK_OK(rank, make(rank, &comm));
    tutti_comm_set_timeout(comm, 2 * TUTTI_NS_PER_S);
    board->pids[rank->index] = getpid();
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    for (uint32_t call = 0; call < N_CALLS; call++) {
        if (call == N_AT && rank->index == VICTIM) raise(SIGSTOP);
        for (size_t i = 0; i < COUNT; i++) data[i] = value_of(call, rank->index, i);
        const enum tutti_status status =
            tutti_all_reduce(data, data, call % 2 ? 1 : COUNT, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL);
        if (rank->index == VICTIM && call >= N_AT) {
            RANK_CHECK(rank, status < 0 && strstr(tutti_last_error()->text, "join anew"));
            RANK_CHECK_ERROR(rank, status, "join anew", tutti_barrier(comm, NULL, NULL));
            for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, data[i] == value_of(call, rank->index, i));
            break;
        }
        RANK_CHECK_OK(rank, status);
        RANK_CHECK_OK(rank, tutti_work_contributors(NULL, comm, ranks, 4, &n));
        RANK_CHECK(rank, n == (call < N_AT ? 4 : 3));
        uint64_t sum = 0;
        for (size_t k = 0; k < n; k++) sum += value_of(call, ranks[k], 0);
        RANK_CHECK(rank, data[0] == sum);
        if (call == N_AT + 5 && rank->index == 0) kill(board->pids[VICTIM], SIGCONT);
    }
    tutti_comm_destroy(comm);
}

/* A rank comes to a call after its deadline, but before the others go on without it: nobody is lost. Then it comes when
 * they have. */
static void late(struct rank *rank)
{
    enum { LATE = 2, GONE = 5, N_CALLS = 8 };
    struct tutti_comm *comm = NULL;
    uint64_t x[3000];
    size_t n = 0;
    RANK_CHECK_OK(rank, make(rank, &comm));
    tutti_comm_set_timeout(comm, TUTTI_NS_PER_S / 2);
    for (uint32_t call = 0; call < N_CALLS; call++) {
        if (rank->index == 1 && call == LATE) tutti_sleep_ns(TUTTI_NS_PER_S);
        if (rank->index == 1 && call == GONE) /* until the others have gone on */
            while (!board->digests[GONE][0]) tutti_sleep_ns(TUTTI_NS_PER_MS);
        for (size_t i = 0; i < 3000; i++) x[i] = 1;
        const enum tutti_status status = tutti_all_reduce(x, x, 3000, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL);
        if (rank->index == 1 && call == GONE) {
            RANK_CHECK(rank, status == TUTTI_ERR_TIMEOUT && strstr(tutti_last_error()->text, "join anew"));
            break;
        }
        RANK_CHECK_OK(rank, status);
        RANK_CHECK_OK(rank, tutti_work_contributors(NULL, comm, NULL, 0, &n));
        RANK_CHECK(rank, x[2999] == n && n == (call < GONE ? 4 : 3));
        if (call == GONE && rank->index == 0) board->digests[GONE][0] = 1;
    }
    if (rank->index != 1) RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    while (!board->digests[GONE][1] && rank->index != 1) tutti_sleep_ns(TUTTI_NS_PER_MS);
    board->digests[GONE][1] = 1;
    tutti_comm_destroy(comm);
}

/* Another collective than the others', while one dies. */
static void other_call(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    uint64_t dies_ns = 20 * TUTTI_NS_PER_MS, x[1000] = {0};
    enum tutti_status status = TUTTI_OK;
    RANK_CHECK_OK(rank, make(rank, &comm));
    if (rank->index == 2) killer(&dies_ns);
    if (rank->index == 3) {
        status = tutti_broadcast(x, 1000, TUTTI_UINT64, 0, comm, NULL, NULL);
        if (status >= 0) status = tutti_barrier(comm, NULL, NULL);
    } else {
        status = tutti_all_reduce(x, x, 1000, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL);
    }
    RANK_CHECK(rank, status == TUTTI_ERR_MISMATCH && strstr(tutti_last_error()->text, "broadcast") &&
                         strstr(tutti_last_error()->text, "all_reduce"));
    tutti_comm_destroy(comm);
}

/* Sentences of a smaller view call ranks, calls and the communicator as the program does. */
static void names(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    uint64_t x[1000] = {0};
    enum tutti_status status = TUTTI_OK;
    char id[48];
    RANK_CHECK_OK(rank, make(rank, &comm));
    snprintf(id, sizeof(id), "#5 on communicator %llx", (unsigned long long)tutti_comm_id(comm));
    for (uint32_t call = 1; call <= 4 && status >= 0; call++) {
        if (call == 3 && rank->index == 1) raise(SIGKILL);
        status = tutti_all_reduce(x, x, call > 2 ? 1000 : 1, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL);
        /* One that is still in the fourth call may hear of the fifth of others. */
        if (status < 0) RANK_CHECK_ERROR(rank, call == 4 ? TUTTI_ERR_MISMATCH : TUTTI_OK, "", status);
    }
    if (status >= 0 && rank->index == 3)
        status = tutti_broadcast(x, 1000, TUTTI_UINT64, 2, comm, NULL, NULL);
    else if (status >= 0)
        status = tutti_all_reduce(x, x, 1000, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL);
    const struct tutti_error *error = tutti_last_error();
    const bool said = status == TUTTI_ERR_MISMATCH && strstr(error->text, id) && error->seq >= 4 &&
                      strstr(error->text, "rank 3 called broadcast(uint64, 1000 elements, root 2)");
    if (!said) rank_fail(rank, __FILE__, __LINE__, "%s: %s", id, error->text);
    tutti_comm_destroy(comm);
}

/* Rank 1 dies in a call, and rank 2 gets no memory at its seed-th allocation from there on: it ends with a sentence or
 * goes on; the others go on alike, or end with the same. Nobody waits for ever. */
static void out_of_memory(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    uint64_t x[1000];
    size_t n = 0;
    enum tutti_status status = TUTTI_OK;
    RANK_CHECK_OK(rank, make(rank, &comm));
    for (uint32_t call = 0; call < 6 && status >= 0; call++) {
        if (rank->index == 1 && call == 3) raise(SIGKILL);
        if (rank->index == 2 && call == 3) tutti_alloc_fail_at(board->seed);
        for (size_t i = 0; i < 1000; i++) x[i] = 1;
        status = tutti_all_reduce(x, x, 1000, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL);
        if (status < 0) break;
        RANK_CHECK_OK(rank, tutti_work_contributors(NULL, comm, NULL, 0, &n));
        RANK_CHECK(rank, x[0] == n && x[999] == n);
    }
    if (rank->index == 2) board->digests[0][2] = tutti_alloc_fail_at(0);
    if (status < 0) RANK_CHECK_ERROR(rank, TUTTI_ERR_MEMORY, "", status);
    board->digests[1][rank->index] = status < 0 ? 1 : 2 + n;
    if (status >= 0) RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    tutti_comm_destroy(comm);
}

/* Makes calls until it is alone, or dies before one. dies_at: the call before which each rank dies, or ALONE. */
#define ALONE UINT32_MAX
static void until_alone(struct rank *rank, const uint32_t dies_at[4])
{
    struct tutti_comm *comm = NULL;
    uint64_t x[1000];
    size_t n = 0;
    RANK_CHECK_OK(rank, make(rank, &comm));
    for (uint32_t call = 0; n != 1; call++) {
        size_t living = 0;
        for (uint32_t r = 0; r < 4; r++) living += call < dies_at[r];
        if (call == dies_at[rank->index]) raise(SIGKILL);
        for (size_t i = 0; i < 1000; i++) x[i] = 1;
        RANK_CHECK_OK(rank, tutti_all_reduce(x, x, 1000, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_work_contributors(NULL, comm, NULL, 0, &n));
        RANK_CHECK(rank, x[999] == n && n == living);
    }
    tutti_comm_destroy(comm);
}

/* All but one, of which two at once. */
static void last_one(struct rank *rank)
{
    until_alone(rank, (const uint32_t[]){ALONE, 5, 8, 8});
}

/* All but the last one at once, to which over a network nobody but the first was linked. */
static void all_but_one(struct rank *rank)
{
    until_alone(rank, (const uint32_t[]){8, 8, 8, ALONE});
}

/* An abort while the others agree on who is left: one is dead, and one has not come yet. It is told at once, and the
 * one that comes later hears it, too. */
static void aborted_meanwhile(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    struct tutti_work *work = NULL;
    uint64_t x[1000] = {0};
    RANK_CHECK_OK(rank, make(rank, &comm));
    board->pids[rank->index] = getpid();
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    if (rank->index == 2) raise(SIGKILL);
    if (rank->index == 3) raise(SIGSTOP);
    RANK_CHECK_OK(rank, tutti_all_reduce(x, x, 1000, TUTTI_UINT64, TUTTI_SUM, comm, NULL, &work));
    if (rank->index == 0) {
        tutti_sleep_ns(2 * TUTTI_NS_PER_S); /* it has seen the death by then, and agrees */
        tutti_comm_abort(comm, "enough");
    }
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough", tutti_work_wait(work, 0));
    if (rank->index == 1) kill(board->pids[3], SIGCONT);
    tutti_work_free(work);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough", tutti_barrier(comm, NULL, NULL));
    tutti_comm_destroy(comm);
}

/* Rank 1 comes to the call when rank 0 has seen that flush waits for it. */
static void flushed(struct rank *rank, struct tutti_comm *comm)
{
    struct tutti_work *work = NULL;
    uint64_t x[4] = {0};
    if (rank->index == 1) RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(x, x, 4, TUTTI_UINT64, TUTTI_SUM, comm, NULL, &work));
    if (rank->index == 0) {
        RANK_CHECK(rank, tutti_comm_flush(comm, TUTTI_NS_PER_MS) == TUTTI_PENDING);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    }
    RANK_CHECK_OK(rank, tutti_comm_flush(comm, 0));
    RANK_CHECK_OK(rank, tutti_work_test(work));
    tutti_work_free(work);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* else an abort may come before */
}

static void refused(struct rank *rank)
{
    struct tutti_comm *comm = NULL, *none = NULL;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    uint64_t x[4] = {0}, y[4];
    size_t n = 0;
    config.rank = 0, config.n_ranks = 1, config.survive = 1, config.nonblocking = true;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "nonblocking", tutti_comm_create(rank->context, &config, &none));
    RANK_CHECK_OK(rank, make(rank, &comm));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "survives carries out",
                     tutti_all_to_all(x, y, 1, TUTTI_UINT64, comm, NULL, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "survives carries out",
                     tutti_send(x, 1, TUTTI_UINT64, 1 - rank->index, 0, comm, NULL, NULL));
    struct tutti_persistent *persistent = NULL;
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "recordings", tutti_barrier(comm, NULL, NULL));
    RANK_CHECK(rank, tutti_persistent_end(&persistent) < 0);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "create another one", tutti_comm_dup(comm, &none));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "create another one", tutti_comm_shrink(comm, NULL, 0, &none));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "create another one", tutti_comm_set_device(comm, 0));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "not one of the last", tutti_work_contributors(NULL, comm, NULL, 0, &n));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "config.survive", tutti_comm_admit(rank->comm, NULL, 0, NULL));
    RANK_CHECK_OK(rank, tutti_comm_admit(comm, NULL, 0, &n));
    RANK_CHECK(rank, n == 0 && tutti_comm_sequence(comm) == 1);
    RANK_CHECK_OK(rank, tutti_comm_state(comm, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    flushed(rank, comm);
    if (rank->index == 0) tutti_comm_abort(comm, "enough");
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough",
                     tutti_all_reduce(x, y, 4, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough", tutti_barrier(comm, NULL, NULL));
    tutti_comm_destroy(comm);
}

/* Processes, of which those of the set may die. */
static void four_ranks(void (*main)(struct rank *), uint64_t may_die)
{
    struct ranks_config config = {.n = 4, .forked = true, .no_comm = true, .may_die = may_die};
    assert_int_equal(ranks_run(&config, main), 0);
}

struct scene {
    void (*mains[2])(struct rank *);
    uint64_t may_die[2];
};
static void scene_play(void **state)
{
    const struct scene *scene = *state;
    for (int k = 0; k < 2 && scene->mains[k]; k++) four_ranks(scene->mains[k], scene->may_die[k]);
}

static void stop(void **state)
{
    (void)state;
    const struct tutti_option options[] = {{"host_timeout", "2s"}};
    struct ranks_config config = {.n = 4, .forked = true, .no_comm = true, .options = options, .n_options = 1};
    assert_int_equal(ranks_run(&config, stopped), 0);
    memset(board, 0, sizeof(*board));
    assert_int_equal(ranks_run(&config, late), 0);
}

static void no_memory(void **state)
{
    const uint64_t step = getenv("SURVIVE_SEEDS") ? 1 : 3; /* a sample of the allocations */
    uint64_t at = 1 - step, n_ended = 0;
    (void)state;
    do {
        memset(board, 0, sizeof(*board));
        board->seed = at += step;
        four_ranks(out_of_memory, 1 << 1);
        const uint64_t *ends = board->digests[1];
        const bool apart = ends[0] > 1 && ends[3] > 1 && ends[0] != ends[3]; /* else one ended, too */
        if (apart || (ends[2] > 1 && (ends[2] != ends[0] || ends[2] != ends[3])))
            fail_msg("allocation %llu: %llu, %llu and %llu", (unsigned long long)at, (unsigned long long)ends[0],
                     (unsigned long long)ends[2], (unsigned long long)ends[3]);
        n_ended += ends[2] == 1;
    } while (board->digests[0][2] >= at);
    assert_true(n_ended > 0);
}

static void refusals(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, refused, NULL), 0);
}

int main(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return 1;
    static struct scene in_flight = {{many_in_flight}, {1 << 2}}, grouped = {{groups}, {1 << 2}},
                        mismatch = {{other_call, names}, {1 << 2, 1 << 1}}, last = {{last_one, all_but_one}, {14, 7}},
                        aborted = {{aborted_meanwhile}, {1 << 2}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_deaths),
                                       {"in_flight", scene_play, NULL, NULL, &in_flight},
                                       {"grouped", scene_play, NULL, NULL, &grouped},
                                       cmocka_unit_test(stop),
                                       {"mismatch", scene_play, NULL, NULL, &mismatch},
                                       {"last", scene_play, NULL, NULL, &last},
                                       cmocka_unit_test(no_memory),
                                       {"abort_in_agreement", scene_play, NULL, NULL, &aborted},
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
