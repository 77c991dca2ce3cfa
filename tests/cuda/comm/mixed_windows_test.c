/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows to which some ranks bring memory of a device and some memory of the host, and windows of devices that do not
 * reach one another: put, get, signals and atomics between all of them, ranks without a part, what is refused. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"

#include <stdlib.h>
#include <string.h>

enum { PART = 200 * 1024, WORDS = 8 };
#define WORDS_AT ((size_t)PART - WORDS * sizeof(uint64_t))

struct side {
    struct mixed m;
    struct rank *rank;
    struct tutti_window *window;
    unsigned char *part, *buffer; /* in the rank's kind of memory */
};

static bool side_open(struct rank *rank, struct side *s, size_t part_bytes)
{
    memset(s, 0, sizeof *s);
    s->rank = rank;
    if (!mixed_open(rank, &s->m)) return false;
    s->part = mixed_put(&s->m, NULL, PART), s->buffer = mixed_put(&s->m, NULL, PART);
    if (!s->part || !s->buffer) return false;
    if (tutti_window_create(rank->comm, part_bytes ? s->part : NULL, part_bytes, NULL, &s->window) == TUTTI_OK)
        return true;
    rank_fail(rank, __FILE__, __LINE__, "no window: %s", tutti_last_error()->text);
    return false;
}

static bool meet(struct side *s)
{
    if (!mixed_sync(&s->m)) return false;
    if (tutti_barrier(s->m.beside, NULL, NULL) == TUTTI_OK) return true;
    rank_fail(s->rank, __FILE__, __LINE__, "barrier: %s", tutti_last_error()->text);
    return false;
}

static void side_close(struct side *s)
{
    if (!meet(s)) return;
    tutti_window_destroy(s->window);
    mixed_free(&s->m, s->part), mixed_free(&s->m, s->buffer);
    mixed_close(&s->m);
}

static int32_t after(const struct rank *rank, int32_t by)
{
    return (rank->index + by + rank->n) % rank->n;
}

static void fill(unsigned char *out, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        if (i % 8 == 0) seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        out[i] = (unsigned char)(seed >> 8 * (i % 8));
    }
}

/* Not by freeing and allocating: the driver waits for the device in both, which may wait for a peer that does, too. */
static bool set(struct side *s, const void *from, size_t bytes)
{
    if (!s->m.gpu) memcpy(s->buffer, from, bytes);
    if (!s->m.gpu || tutti_cuda_copy_now(s->m.gpu, s->buffer, from, bytes) == TUTTI_OK) return true;
    rank_fail(s->rank, __FILE__, __LINE__, "copy: %s", tutti_last_error()->text);
    return false;
}

/* ---- bytes ---- */

static size_t some_bytes(uint32_t i, struct rank *shared)
{
    static const size_t first[] = {1, 8, 4096, 16384, 16385, 131072};
    return i < TUTTI_ARRAY_LEN(first) ? first[i] : rank_random(shared) % 140000;
}

/* To every rank in turn, itself included; who has seen the signal finds the bytes in its part, on its stream. Then all
 * is read back, and nothing beside was written. */
static void bytes(struct rank *rank)
{
    struct side s;
    unsigned char *want = rank_alloc(rank, PART), *got = rank_alloc(rank, PART);
    const uint32_t times = gpu_ranks_stand_in() ? 12 : 60;
    if (!side_open(rank, &s, PART)) return;
    for (uint32_t i = 0; i < times; i++) {
        struct rank shared = {.random = 1000 * test_seed() + i}; /* what neighbours know */
        const size_t n = some_bytes(i, &shared), at = rank_random(&shared) % (WORDS_AT - n);
        const int32_t to = after(rank, (int32_t)(i % (uint32_t)rank->n)),
                      from = after(rank, -(int32_t)(i % (uint32_t)rank->n));
        const struct tutti_signal_info full = {2, TUTTI_SIGNAL_ADD, 1};
        fill(want, n, shared.random + (uint64_t)rank->index);
        RANK_CHECK(rank, mixed_sync(&s.m) && set(&s, want, n) && meet(&s));
        if (i % 2) {
            RANK_CHECK_OK(rank, tutti_put_signal(s.buffer, n, to, at, &full, s.window, &s.m.on[0], NULL));
        } else {
            RANK_CHECK_OK(rank, tutti_put(s.buffer, n, to, at, s.window, &s.m.on[0], NULL));
            RANK_CHECK_OK(rank, tutti_signal(&full, to, s.window, &s.m.on[0], NULL));
        }
        RANK_CHECK_OK(rank, tutti_wait_signal(2, TUTTI_COMPARE_EQ, i + 1, from, s.window, &s.m.on[1], NULL));
        RANK_CHECK(rank, mixed_get(&s.m, got, s.part, PART));
        fill(want, n, shared.random + (uint64_t)from);
        RANK_CHECK(rank, memcmp(got + at, want, n) == 0);
        RANK_CHECK(rank, (at == 0 || got[at - 1] == 0) && got[at + n] == 0);
        RANK_CHECK_OK(rank, tutti_get(s.buffer, n, to, at, s.window, &s.m.on[1], NULL));
        RANK_CHECK(rank, mixed_get(&s.m, got, s.buffer, n));
        fill(want, n, shared.random + (uint64_t)rank->index);
        RANK_CHECK(rank, memcmp(got, want, n) == 0);
        memset(want, 0, n);
        RANK_CHECK(rank, set(&s, want, n) && meet(&s));
        RANK_CHECK_OK(rank, tutti_put(s.buffer, n, to, at, s.window, &s.m.on[0], NULL));
        RANK_CHECK_OK(rank, tutti_flush(i % 3 ? to : TUTTI_ALL_PEERS, s.window, &s.m.on[0], NULL));
    }
    side_close(&s);
}

/* Memory of the host on a stream: it is free, or filled, when the stream has come past the call. A barrier on the host
 * waits for what is enqueued, so for flushes, too. */
static void lent(struct rank *rank)
{
    struct side s;
    unsigned char *want = rank_alloc(rank, 100000), *got = rank_alloc(rank, 100000);
    const int32_t right = after(rank, 1), left = after(rank, -1);
    if (!side_open(rank, &s, PART)) return;
    fill(want, 100000, (uint64_t)rank->index);
    RANK_CHECK_OK(rank, tutti_put(want, 100000, right, 0, s.window, &s.m.on[0], NULL));
    RANK_CHECK(rank, mixed_sync(&s.m));
    memset(want, 0xff, 100000);
    RANK_CHECK_OK(rank, tutti_flush(right, s.window, &s.m.on[0], NULL));
    RANK_CHECK_OK(rank, tutti_get(got, 100000, right, 0, s.window, &s.m.on[0], NULL));
    RANK_CHECK(rank, mixed_sync(&s.m));
    fill(want, 100000, (uint64_t)rank->index);
    RANK_CHECK(rank, memcmp(got, want, 100000) == 0);
    RANK_CHECK(rank, meet(&s));
    RANK_CHECK_OK(rank, tutti_put(s.part, 50000, right, 100000, s.window, &s.m.on[1], NULL));
    RANK_CHECK_OK(rank, tutti_flush(right, s.window, &s.m.on[1], NULL));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    fill(want, 100000, (uint64_t)left);
    RANK_CHECK(rank, mixed_get(&s.m, got, s.part, 100000));
    RANK_CHECK(rank, memcmp(got, want, 100000) == 0);
    fill(want, 50000, (uint64_t)after(rank, -2));
    RANK_CHECK(rank, mixed_get(&s.m, got, s.part + 100000, 50000));
    RANK_CHECK(rank, memcmp(got, want, 50000) == 0);
    side_close(&s);
}

/* ---- words: of every rank, by every rank at once; its owner, too ---- */

static void words(struct rank *rank)
{
    enum { TIMES = 12 };
    struct side s;
    uint64_t found[3] = {0}, before[TIMES], *mine = NULL;
    struct tutti_work *works[TIMES];
    if (!side_open(rank, &s, PART)) return;
    RANK_CHECK(rank, (mine = mixed_put(&s.m, NULL, sizeof *mine)) != NULL);
    for (int32_t peer = 0; peer < rank->n; peer++) {
        for (uint64_t i = 0; i < TIMES; i++)
            RANK_CHECK_OK(rank,
                          tutti_fetch_add(i + 1, &before[i], peer, WORDS_AT, s.window, &s.m.on[i % 2], &works[i]));
        RANK_CHECK_OK(rank, tutti_fetch_add(1000, mine, peer, WORDS_AT, s.window, &s.m.on[0], NULL));
        for (uint64_t i = 0; i < TIMES; i++) {
            RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
            tutti_work_free(works[i]);
            RANK_CHECK(rank, i < 2 || before[i] > before[i - 2]);
        }
        RANK_CHECK(rank, mixed_get(&s.m, &found[0], mine, sizeof *mine));
        RANK_CHECK(rank, found[0] > before[TIMES - 2]);
        RANK_CHECK_OK(rank, tutti_compare_swap(0, (uint64_t)rank->index + 1, &found[1], peer, WORDS_AT + 8, s.window,
                                               &s.m.on[0], NULL));
        RANK_CHECK(rank, meet(&s));
        RANK_CHECK_OK(rank, tutti_compare_swap(7, 9, &found[2], peer, WORDS_AT + 8, s.window, &s.m.on[0], NULL));
        for (size_t i = 0; i < 2; i++) /* others may change them: a word is got as one */
            RANK_CHECK_OK(rank, tutti_get(s.buffer + 8 * i, 8, peer, WORDS_AT + 8 * i, s.window, &s.m.on[0], NULL));
        RANK_CHECK(rank, mixed_get(&s.m, before, s.buffer, 16));
        RANK_CHECK(rank, before[0] == (uint64_t)rank->n * (TIMES * (TIMES + 1) / 2 + 1000));
        RANK_CHECK(rank, before[1] == found[2] && found[2] >= 1 && found[2] <= (uint64_t)rank->n);
        RANK_CHECK(rank, (found[1] == 0) == (found[2] == (uint64_t)rank->index + 1));
    }
    RANK_CHECK(rank, meet(&s));
    mixed_free(&s.m, mine);
    side_close(&s);
}

/* ---- the last rank brings nothing ---- */

static void partless(struct rank *rank)
{
    struct side s;
    const int32_t last = rank->n - 1;
    const struct tutti_signal_info one = {0, TUTTI_SIGNAL_ADD, 1};
    uint64_t value = 0, got = 0;
    if (!side_open(rank, &s, rank->index == last ? 0 : PART)) return;
    RANK_CHECK(rank, tutti_window_peer(s.window, last, NULL) == NULL);
    if (rank->index == last) {
        const uint64_t sent = 0x1122334455667788;
        RANK_CHECK(rank, set(&s, &sent, sizeof sent));
        for (int32_t r = 0; r < last; r++)
            RANK_CHECK_OK(rank, tutti_put_signal(s.buffer, 8, r, 64, &one, s.window, &s.m.on[0], NULL));
        RANK_CHECK_OK(
            rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, (uint64_t)last, TUTTI_ANY_SOURCE, s.window, &s.m.on[0], NULL));
        RANK_CHECK_OK(rank, tutti_signal_read(0, &value, s.window, &s.m.on[0]));
        RANK_CHECK(rank, value == (uint64_t)last);
    } else {
        RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, 1, last, s.window, &s.m.on[0], NULL));
        RANK_CHECK(rank, mixed_get(&s.m, &got, s.part + 64, sizeof got) && got == 0x1122334455667788);
        RANK_CHECK_OK(rank, tutti_signal(&one, last, s.window, &s.m.on[0], NULL));
        RANK_CHECK_OK(rank, tutti_signal_write(0, 5, s.window, &s.m.on[0]));
        RANK_CHECK_OK(rank, tutti_signal_read(0, &value, s.window, &s.m.on[0]));
        RANK_CHECK(rank, value == 5);
    }
    side_close(&s);
}

/* ---- what is refused ---- */

static void refused(struct rank *rank)
{
    struct side s;
    uint64_t value;
    if (!side_open(rank, &s, PART)) return;
    const struct tutti_call_options *on = &s.m.on[0];
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "reach past", tutti_put(s.buffer, 2, 0, PART - 1, s.window, on, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "aligned", tutti_fetch_add(1, &value, 0, 4, s.window, on, NULL));
    if (s.m.gpu) {
        void *graph = NULL;
        RANK_CHECK_OK(rank, tutti_cuda_graph_begin(s.m.gpu, s.m.streams[0]));
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "goes through the host, which can not be captured",
                         tutti_put(s.buffer, 8, 0, 0, s.window, on, NULL));
        RANK_CHECK_OK(rank, tutti_cuda_graph_end(s.m.gpu, s.m.streams[0], &graph));
        tutti_cuda_graph_destroy(s.m.gpu, graph);
    }
    RANK_CHECK(rank, tutti_comm_state(rank->comm, NULL) == TUTTI_OK);
    /* Rank 1 destroys the window: who knows it is told at once; a call that is refused there ends the communicator. */
    RANK_CHECK(rank, meet(&s));
    if (rank->index == 1) tutti_window_destroy(s.window), s.window = NULL;
    RANK_CHECK(rank, meet(&s));
    if (rank->index == 0) {
        struct tutti_error error = {0};
        enum tutti_status status = tutti_put(s.buffer, 8, 1, 0, s.window, on, NULL);
        if (status == TUTTI_OK) status = tutti_flush(1, s.window, on, NULL);
        error = *tutti_last_error();
        for (int i = 0; i < 3000 && status == TUTTI_OK; i++) {
            tutti_sleep_ns(10 * TUTTI_NS_PER_MS);
            status = tutti_comm_state(rank->comm, &error);
        }
        RANK_CHECK(rank, status == TUTTI_ERR_ARGUMENT && strstr(error.text, "destroyed the window") != NULL);
    }
    side_close(&s);
}

/* All ranks have a device, and rank 0 brings memory of the host: its calls are those of the host. */
static void host_part(struct rank *rank)
{
    struct mixed m;
    const bool host = rank->index == 0;
    unsigned char *own = rank_alloc(rank, 4096), got[256], *device = NULL;
    const struct tutti_signal_info one = {0, TUTTI_SIGNAL_ADD, 1};
    struct tutti_window *window = NULL;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK(rank, (device = mixed_put(&m, NULL, 4096)) != NULL);
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, host ? own : device, 4096, NULL, &window));
    RANK_CHECK(rank, tutti_window_peer(window, rank->index, NULL) == (host ? own : device));
    RANK_CHECK(rank, host || tutti_window_peer(window, 1, NULL) == (rank->index == 1 ? device : NULL));
    if (host) {
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "of the host here", tutti_put(device, 8, 1, 0, window, NULL, NULL));
        memset(own, 5, 256);
        for (int32_t r = 1; r < rank->n; r++)
            RANK_CHECK_OK(rank, tutti_put_signal(own, 256, r, 0, &one, window, NULL, NULL));
        RANK_CHECK_OK(
            rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, (uint64_t)rank->n - 1, TUTTI_ANY_SOURCE, window, NULL, NULL));
        RANK_CHECK(rank, own[1024] == 5);
    } else {
        RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, 1, 0, window, &m.on[0], NULL));
        RANK_CHECK_OK(rank, tutti_put_signal(device, 256, 0, 1024, &one, window, &m.on[0], NULL));
        RANK_CHECK(rank, mixed_get(&m, got, device, sizeof got) && got[0] == 5 && got[255] == 5);
    }
    RANK_CHECK_OK(rank, tutti_barrier(m.beside, NULL, NULL));
    tutti_window_destroy(window);
    mixed_free(&m, device);
    mixed_close(&m);
}

/* ---- in which worlds ---- */

static const struct mixed_world worlds[] = {
    {.n = 2, .devices = 0x1},
    {.n = 2, .devices = 0x3, .host = true},
    {.n = 3, .devices = 0x2},
    {.n = 4, .devices = 0xb},
};

static void run(bool forked)
{
    static const rank_function functions[] = {bytes, lent, words, partless, refused}, all_devices = host_part;
    struct mixed_world world = {.n = 3, .devices = 0x7, .forked = forked};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct mixed_world one = worlds[w];
        one.forked = forked;
        if (forked || one.n < 4) assert_int_equal(mixed_run(&one, functions, TUTTI_ARRAY_LEN(functions)), 0);
    }
    assert_int_equal(mixed_run(&world, &all_devices, 1), 0);
}

static void processes(void **state)
{
    (void)state, run(true);
}

static void threads(void **state)
{
    (void)state, run(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes), cmocka_unit_test(threads)};
    gpu_ranks_need_device();
    setenv("TUTTI_GPU_PIECE", "16384", 1); /* large calls are many pieces */
    return cmocka_run_group_tests_name("windows of devices and hosts", tests, NULL, NULL);
}
