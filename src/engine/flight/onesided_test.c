/* SPDX-License-Identifier: BSD-3-Clause */

/* One-sided accesses by messages, over transports that differ: random ones against a model, the order of signals and
 * data, atomics of all ranks at once, owners that call nothing, refusals, windows that go while they are accessed. */

#include "engine/flight/onesided_rig_test.h"

/* ---- random accesses against a model: of each part a rank has a stripe to itself ---- */

enum { STRIPE = 70000, FLIGHT = 200, ROUNDS = 600 };

struct flying {
    struct tutti_work *work;
    unsigned char *memory, *expected; /* expected: of a get */
    size_t bytes;
};

struct range {
    uint32_t peer;
    uint64_t first, end;
};

struct model {
    unsigned char *stripes;  /* what this rank's stripe holds, by peer */
    struct range ranges[64]; /* accessed since the last fence */
    uint32_t n_ranges;
    struct flying flying[FLIGHT];
};

static void land(struct rig_rank *rank, struct flying *f)
{
    if (!f->work) return;
    RIG_OK(rank, tutti_work_finish(f->work));
    if (f->expected)
        RIG_CHECK(rank, memcmp(f->memory, f->expected, f->bytes) == 0, "a get of %zu bytes is wrong", f->bytes);
    free(f->memory), free(f->expected);
    f->work = NULL;
}

/* A fence where the access overlaps one since the last fence. */
static void order(struct rig_rank *rank, struct model *model, struct range range)
{
    bool overlaps = model->n_ranges == TUTTI_ARRAY_LEN(model->ranges);
    for (uint32_t i = 0; i < model->n_ranges; i++) {
        const struct range *r = &model->ranges[i];
        overlaps |= r->peer == range.peer && r->first < range.end && range.first < r->end;
    }
    if (overlaps) tutti_engine_one_fence(rank->team), model->n_ranges = 0;
    model->ranges[model->n_ranges++] = range;
}

static void random_access(struct rig_rank *rank, struct model *model, struct flying *f)
{
    const uint32_t peer = (uint32_t)(tutti_random64(&rank->random) % rank->n);
    const uint64_t most = tutti_random64(&rank->random) % 4 ? 300 : STRIPE;
    const size_t bytes = (size_t)(tutti_random64(&rank->random) % (most + 1));
    const uint64_t at = tutti_random64(&rank->random) % (STRIPE - bytes + 1), offset = rank->me * STRIPE + at;
    unsigned char *held = model->stripes + (size_t)peer * STRIPE + at;
    const bool put = tutti_random64(&rank->random) % 2, helper = tutti_random64(&rank->random) % 2;

    order(rank, model, (struct range){peer, at, at + bytes});
    f->memory = malloc(bytes + 1), f->expected = NULL, f->bytes = bytes;
    if (put) {
        for (size_t i = 0; i < bytes; i++) f->memory[i] = (unsigned char)tutti_random64(&rank->random);
        memcpy(held, f->memory, bytes);
        f->work = start(rank, put_of(peer, offset, f->memory, bytes), helper);
    } else {
        f->expected = malloc(bytes + 1);
        memcpy(f->expected, held, bytes);
        f->work = start(rank, get_of(peer, offset, f->memory, bytes), helper);
    }
    if (!helper && f->work) land(rank, f);
}

static void random_ones(struct rig_rank *rank)
{
    struct part *part = calloc(1, sizeof(*part));
    struct model *model = calloc(1, sizeof(*model));

    model->stripes = calloc(rank->n, STRIPE);
    expose(rank, part, (size_t)rank->n * STRIPE);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct flying *f = &model->flying[tutti_random64(&rank->random) % FLIGHT];
        land(rank, f);
        random_access(rank, model, f);
        if (i % 100 == 50) RIG_OK(rank, now(rank, flush_of(i % 200 == 50 ? UINT32_MAX : i % rank->n)));
    }
    for (uint32_t i = 0; i < FLIGHT; i++) land(rank, &model->flying[i]);
    for (uint32_t peer = 0; peer < rank->n; peer++) {
        unsigned char *back = malloc(STRIPE);
        tutti_engine_one_fence(rank->team);
        RIG_OK(rank, now(rank, get_of(peer, rank->me * STRIPE, back, STRIPE)));
        RIG_CHECK(rank, memcmp(back, model->stripes + (size_t)peer * STRIPE, STRIPE) == 0, "the stripe at %u", peer);
        free(back);
    }
    withdraw(rank, part);
    free(model->stripes), free(model), free(part);
}

/* ---- who sees a signal sees what was put before it ---- */

enum { LITMUS = 300, SLOTS = 8, SLOT = 3000 };

static void litmus(struct rig_rank *rank)
{
    struct part *part = calloc(1, sizeof(*part));
    const uint32_t to = (rank->me + 1) % rank->n, from = (rank->me + rank->n - 1) % rank->n;
    unsigned char data[SLOT];

    expose(rank, part, SLOTS * SLOT);
    for (uint32_t k = 1; k <= LITMUS; k++) {
        const size_t bytes = k % 3 ? 8 + k % 100 : SLOT, half = bytes / 2;
        const uint64_t offset = k % SLOTS * SLOT;
        memset(data, (int)(uint8_t)k, bytes);
        /* The slot is free again when the receiver says so, in a signal of this rank. */
        if (k > SLOTS) RIG_CHECK(rank, comes(&part->signals[8], k - SLOTS), "no room for %u", k);
        RIG_OK(rank, now(rank, put_of(to, offset, data, half)));
        RIG_OK(rank, now(rank, signalled(put_of(to, offset + half, data + half, bytes - half), 0, true, 1)));
        RIG_CHECK(rank, comes(&part->signals[0], k), "signal %u did not come", k);
        for (size_t i = 0; i < bytes; i++)
            RIG_CHECK(rank, part->base[offset + i] == (uint8_t)k, "byte %zu of %u", i, k);
        RIG_OK(rank, now(rank, signalled(put_of(from, 0, NULL, 0), 1, false, k)));
        if (rank->wrong[0]) break;
    }
    RIG_CHECK(rank, atomic_load(&part->n_changed) >= LITMUS, "changed %u times", part->n_changed);
    RIG_OK(rank, now(rank, flush_of(UINT32_MAX)));
    withdraw(rank, part);
    free(part);
}

/* ---- all ranks change words of all at once ---- */

enum { ADDS = 400 };

static void atomics(struct rig_rank *rank)
{
    struct part *part = calloc(1, sizeof(*part));
    uint64_t before[ADDS], sum = 0, swapped = 0;
    struct tutti_work *works[ADDS];

    expose(rank, part, 64);
    for (uint32_t i = 0; i < ADDS; i++) works[i] = start(rank, add_of(i % rank->n, 8, 1 + i % 5, &before[i]), true);
    for (uint32_t i = 0; i < ADDS; i++) {
        sum += 1 + i % 5;
        if (works[i]) RIG_OK(rank, tutti_work_finish(works[i]));
        RIG_CHECK(rank, i < rank->n || before[i] > before[i - rank->n], "word of %u went from %" PRIu64 " to %" PRIu64,
                  i % rank->n, before[i - rank->n], before[i]);
    }
    /* A lock on rank 0 by compare_swap, and a plain word that it guards. */
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t was = 1, guarded = 0;
        struct tutti_one_info lock = {
            .kind = TUTTI_ONE_SWAP, .offset = 16, .expected = 0, .value = rank->me + 1, .before = &was};
        while (was != 0 && !rank->wrong[0]) {
            RIG_OK(rank, now(rank, lock));
            swapped++;
        }
        RIG_OK(rank, now(rank, get_of(0, 24, &guarded, 8)));
        guarded++;
        RIG_OK(rank, now(rank, put_of(0, 24, &guarded, 8)));
        lock.expected = rank->me + 1, lock.value = 0;
        RIG_OK(rank, now(rank, lock));
        RIG_CHECK(rank, was == rank->me + 1, "the lock is of %" PRIu64, was);
    }
    rig_meet(rank);
    uint64_t words[4], total = 0;
    for (uint32_t peer = 0; peer < rank->n; peer++) {
        RIG_OK(rank, now(rank, get_of(peer, 0, words, sizeof(words))));
        total += words[1];
        if (peer == 0) RIG_CHECK(rank, words[3] == 20 * rank->n && words[2] == 0, "guarded is %" PRIu64, words[3]);
    }
    RIG_CHECK(rank, total == sum * rank->n, "%" PRIu64 " instead of %" PRIu64, total, sum * rank->n);
    withdraw(rank, part);
    free(part);
}

/* ---- what is refused, is refused alone ---- */

static void refused(struct rig_rank *rank)
{
    struct part *part = calloc(1, sizeof(*part));
    const uint32_t peer = (rank->me + 1) % rank->n;
    uint64_t word = 7;

    expose(rank, part, 100);
    RIG_CHECK(rank, now(rank, get_of(peer, 96, &word, 8)) == TUTTI_ERR_ARGUMENT, "past the end");
    RIG_CHECK(rank, strstr(tutti_last_error()->text, "offset 96") && strstr(tutti_last_error()->text, "get on rank"),
              "%s", tutti_last_error()->text);
    RIG_CHECK(rank, now(rank, add_of(peer, 4, 1, &word)) == TUTTI_ERR_ARGUMENT, "not aligned");
    RIG_CHECK(rank, strstr(tutti_last_error()->text, "aligned"), "%s", tutti_last_error()->text);
    RIG_OK(rank, now(rank, put_of(peer, UINT64_MAX - 3, &word, 8))); /* its source is free, and it is refused later */
    RIG_CHECK(rank, now(rank, flush_of(peer)) == TUTTI_ERR_ARGUMENT, "a put past the end");
    RIG_CHECK(rank, strstr(tutti_last_error()->text, "put on rank"), "%s", tutti_last_error()->text);
    RIG_OK(rank, now(rank, flush_of(UINT32_MAX)));
    RIG_OK(rank, now(rank, signalled(put_of(peer, 0, &word, 8), N_SIGNALS, false, 1)));
    RIG_CHECK(rank, now(rank, flush_of(UINT32_MAX)) == TUTTI_ERR_ARGUMENT, "a signal out of range");
    RIG_CHECK(rank, word == 7 && part->base[0] == 0, "something was done");
    rig_meet(rank);
    tutti_exposed_remove(rank->team, WINDOW);
    rig_meet(rank);
    RIG_OK(rank, now(rank, put_of(peer, 0, &word, 8)));
    RIG_CHECK(rank, now(rank, flush_of(peer)) == TUTTI_ERR_ARGUMENT, "of a window that is gone");
    RIG_CHECK(rank, strstr(tutti_last_error()->text, "destroyed the window"), "%s", tutti_last_error()->text);
    RIG_CHECK(rank, now(rank, put_of(peer, 0, &word, 8)) == TUTTI_ERR_ARGUMENT, "the next one");
    RIG_OK(rank, now(rank, flush_of(UINT32_MAX)));
    RIG_CHECK(rank, tutti_team_state(rank->team, NULL) == TUTTI_OK, "the communicator failed");
    rig_meet(rank);
    free(part->base), free(part);
}

/* ---- many threads of one rank ---- */

enum { THREADS = 4, EACH = 150 };

struct worker {
    struct rig_rank *rank;
    uint32_t index;
    pthread_t thread;
};

static void *work_on(void *arg)
{
    const struct worker *me = arg;
    struct rig_rank *rank = me->rank;
    const uint32_t peer = (rank->me + 1) % rank->n;
    uint64_t in = 0, before;

    for (uint64_t i = 1; i <= EACH; i++) {
        const uint64_t offset = 64 * me->index;
        RIG_OK(rank, now(rank, put_of(peer, offset, &i, 8)));
        tutti_engine_one_fence(rank->team);
        RIG_OK(rank, now(rank, get_of(peer, offset, &in, 8)));
        RIG_CHECK(rank, in == i, "%" PRIu64 " instead of %" PRIu64, in, i);
        RIG_OK(rank, now(rank, add_of(peer, 64 * THREADS, 1, &before)));
    }
    return NULL;
}

static void threads(struct rig_rank *rank)
{
    struct part *part = calloc(1, sizeof(*part));
    struct worker workers[THREADS];
    uint64_t sum = 0;

    expose(rank, part, 64 * (THREADS + 1));
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.rank = rank, .index = i};
        RIG_CHECK(rank, pthread_create(&workers[i].thread, NULL, work_on, &workers[i]) == 0, "no thread");
    }
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
    RIG_OK(rank, now(rank, get_of((rank->me + 1) % rank->n, 64 * THREADS, &sum, 8)));
    RIG_CHECK(rank, sum == THREADS * EACH, "%" PRIu64, sum);
    withdraw(rank, part);
    free(part);
}

/* ---- over all transports ---- */

static void run_all(void (*main)(struct rig_rank *rank), uint32_t n)
{
    struct rig rigs[] = {
        {.n = n, .main = main, .staging_bytes = 1 << 17},
        {.n = 1, .main = main},
        {.n = n, .main = main, .spin_ns = 20000},
        {.n = n, .main = main, .wire_ns = 20000},
        {.n = n, .main = main, .tcp = true},
        {.n = n, .main = main, .decorators = "fault", .fault = "seed=3,duplicate=0.2,delay=0.05:1ms"},
        {.n = n, .main = main, .decorators = "delay"},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rigs); i++) rig_run(&rigs[i]);
}

static void test_random(void **state)
{
    (void)state;
    run_all(random_ones, 3);
}
static void test_litmus(void **state)
{
    (void)state;
    run_all(litmus, 3);
}
static void test_atomics(void **state)
{
    (void)state;
    run_all(atomics, 3);
}
static void test_refused(void **state)
{
    (void)state;
    run_all(refused, 2);
}
static void test_threads(void **state)
{
    (void)state;
    run_all(threads, 2);
}

/* The same where the engine touches every second part by moves alone. */
static void test_moves(void **state)
{
    static void (*const mains[])(struct rig_rank *rank) = {random_ones, litmus, atomics, threads};

    (void)state;
    every_second_moves = true;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(mains); i++) {
        struct rig rigs[] = {
            {.n = 3, .main = mains[i], .tcp = true},
            {.n = 2, .main = mains[i], .decorators = "fault", .fault = "seed=5,duplicate=0.2,delay=0.05:1ms"},
        };
        for (size_t r = 0; r < TUTTI_ARRAY_LEN(rigs); r++) rig_run(&rigs[r]);
    }
    every_second_moves = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),  cmocka_unit_test(test_litmus),  cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_threads), cmocka_unit_test(test_moves),
    };
    return cmocka_run_group_tests_name("engine.onesided", tests, NULL, NULL);
}
