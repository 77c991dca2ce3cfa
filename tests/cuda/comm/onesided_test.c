/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls on windows of device memory, as threads and as processes, of devices that reach one another and of
 * such that do not, and of ranks of which some bring memory of the host: all of them against what their arguments say,
 * with random data, sizes and offsets; put before signal with delays; graphs; many under way on several streams; ranks
 * without a part; what is refused. */
#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"

#include <stdlib.h>
#include <string.h>

enum { PART = 300 * 1024, WORDS = 64 }; /* words: at the end of a part */
#define WORDS_AT ((size_t)PART - WORDS * sizeof(uint64_t))

struct side {
    struct mixed m;
    struct rank *rank;
    struct tutti_window *window;
    unsigned char *part, *buffer; /* PART bytes in the rank's kind of memory */
};

static bool side_open_part(struct rank *rank, struct side *s, size_t part_bytes)
{
    void *part = NULL;
    memset(s, 0, sizeof *s);
    s->rank = rank;
    if (!mixed_open(rank, &s->m) || !(s->buffer = mixed_put(&s->m, NULL, PART))) return false;
    if (tutti_mem_alloc(rank->comm, PART, &part) == TUTTI_OK &&
        tutti_window_create(rank->comm, part_bytes ? part : NULL, part_bytes, NULL, &s->window) == TUTTI_OK) {
        s->part = part;
        return true;
    }
    rank_fail(rank, __FILE__, __LINE__, "no window: %s", tutti_last_error()->text);
    return false;
}

static bool side_open(struct rank *rank, struct side *s)
{
    return side_open_part(rank, s, PART);
}

/* All have come, and what they enqueued is over. */
static bool meet(struct side *s)
{
    if (!mixed_sync(&s->m)) return false;
    if (tutti_barrier(s->m.beside, NULL, NULL) == TUTTI_OK) return true;
    rank_fail(s->rank, __FILE__, __LINE__, "barrier: %s", tutti_last_error()->text);
    return false;
}

static void side_close(struct side *s)
{
    (void)meet(s);
    tutti_window_destroy(s->window);
    mixed_free(&s->m, s->buffer);
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

/* Into memory of the rank's kind: not by freeing and allocating, since the driver waits for the device in both, which
 * may wait for a peer that does, too. */
static bool set(struct side *s, unsigned char *to, const void *from, size_t bytes)
{
    if (!s->m.gpu) memcpy(to, from, bytes);
    if (!s->m.gpu || tutti_cuda_copy_now(s->m.gpu, to, from, bytes) == TUTTI_OK) return true;
    rank_fail(s->rank, __FILE__, __LINE__, "copy: %s", tutti_last_error()->text);
    return false;
}

/* Behind what the second stream has. */
static enum tutti_status copy(struct side *s, unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (s->m.gpu) return tutti_cuda_copy(s->m.gpu, to, from, bytes, s->m.streams[1]);
    memcpy(to, from, bytes);
    return TUTTI_OK;
}

/* ---- put, get ---- */

static size_t some_bytes(struct rank *rank, uint32_t i)
{
    static const size_t first[] = {0, 1, 3, 8, 15, 16, 17, 4096, 32768, 32769, 131072};
    return i < TUTTI_ARRAY_LEN(first) ? first[i] : rank_random(rank) % 140000;
}

/* To the right, of random offsets; then the right one's part is read, and every byte of one's own is looked at. */
static void moves(struct rank *rank)
{
    struct side s;
    unsigned char *want = rank_alloc(rank, PART), *got = rank_alloc(rank, PART);
    const int32_t right = after(rank, 1), left = after(rank, -1);
    if (!side_open(rank, &s)) return;
    const uint32_t times = gpu_ranks_stand_in() ? 24 : 100;
    for (uint32_t i = 0; i < times; i++) {
        /* What a rank does follows from these alone, so that its neighbours know it. */
        struct rank shared = {.random = 1000 * test_seed() + i};
        const size_t bytes = some_bytes(&shared, i), at = rank_random(&shared) % (WORDS_AT - bytes),
                     from = rank_random(&shared) % 17;
        const uint64_t of_left = shared.random + (uint64_t)left, mine = shared.random + (uint64_t)rank->index;
        memset(got, 0xee, PART);
        fill(want, bytes, mine);
        RANK_CHECK(rank, set(&s, s.part, got, PART) && set(&s, s.buffer + from, want, bytes) && meet(&s));
        RANK_CHECK_OK(rank, tutti_put(s.buffer + from, bytes, right, at, s.window, &s.m.on[0], NULL));
        RANK_CHECK_OK(rank, tutti_flush(right, s.window, &s.m.on[0], NULL));
        RANK_CHECK(rank, meet(&s));
        memset(want, 0xee, PART);
        fill(want + at, bytes, of_left);
        RANK_CHECK(rank, mixed_get(&s.m, got, s.part, PART));
        RANK_CHECK(rank, memcmp(got, want, PART) == 0);
        RANK_CHECK_OK(rank, tutti_get(s.buffer, bytes, right, at, s.window, &s.m.on[1], NULL));
        RANK_CHECK(rank, mixed_get(&s.m, got, s.buffer, bytes));
        fill(want, bytes, mine);
        RANK_CHECK(rank, memcmp(got, want, bytes) == 0);
        RANK_CHECK(rank, meet(&s));
    }
    side_close(&s);
}

/* ---- signals ---- */

static void signals(struct rank *rank)
{
    static const struct {
        enum tutti_compare compare;
        uint64_t value;
    } holds[] = {{TUTTI_COMPARE_EQ, 7}, {TUTTI_COMPARE_NE, 0}, {TUTTI_COMPARE_LT, 8},
                 {TUTTI_COMPARE_LE, 7}, {TUTTI_COMPARE_GT, 6}, {TUTTI_COMPARE_GE, 7}};
    struct side s;
    const int32_t right = after(rank, 1), left = after(rank, -1);
    const struct tutti_signal_info set = {3, TUTTI_SIGNAL_SET, 5}, add = {3, TUTTI_SIGNAL_ADD, 2};
    uint64_t value = 1;
    if (!side_open(rank, &s)) return;
    RANK_CHECK(rank, tutti_window_n_signals(s.window) >= 64);
    for (uint32_t i = 0; i < tutti_window_n_signals(s.window); i++) {
        RANK_CHECK_OK(rank, tutti_signal_read(i, &value, s.window, &s.m.on[0]));
        RANK_CHECK(rank, value == 0);
    }
    RANK_CHECK(rank, meet(&s));
    RANK_CHECK_OK(rank, tutti_signal(&set, right, s.window, &s.m.on[0], NULL));
    RANK_CHECK_OK(rank, tutti_signal(&add, right, s.window, &s.m.on[0], NULL));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(holds); i++)
        RANK_CHECK_OK(rank, tutti_wait_signal(3, holds[i].compare, holds[i].value, i % 2 ? left : TUTTI_ANY_SOURCE,
                                              s.window, &s.m.on[1], NULL));
    RANK_CHECK_OK(rank, tutti_signal_read(3, &value, s.window, &s.m.on[1]));
    RANK_CHECK(rank, value == 7);
    RANK_CHECK(rank, meet(&s));
    RANK_CHECK_OK(rank, tutti_signal_write(3, UINT64_MAX, s.window, &s.m.on[0]));
    RANK_CHECK_OK(rank, tutti_signal_read(3, &value, s.window, &s.m.on[0]));
    RANK_CHECK(rank, value == UINT64_MAX);
    RANK_CHECK_OK(rank, tutti_signal_read(2, &value, s.window, &s.m.on[0]));
    RANK_CHECK(rank, value == 0);
    side_close(&s);
}

/* Put before signal: whoever sees the signal sees the data. By one call and by two, small and large; each side delays
 * as it likes. */
static void litmus(struct rank *rank)
{
    struct side s;
    unsigned char *want = rank_alloc(rank, PART), *got = rank_alloc(rank, PART);
    const int32_t right = after(rank, 1), left = after(rank, -1);
    uint64_t delays = rank_random(rank);
    if (!side_open(rank, &s)) return;
    unsigned char *came = s.buffer + PART / 2;
    const uint32_t times = gpu_ranks_times((uint32_t)rank->n, 400, 60, 40);
    for (uint32_t i = 1; i <= times; i++) {
        struct rank shared = {.random = 77 * test_seed() + i};
        const size_t bytes = i % 3 ? rank_random(&shared) % 3000 : rank_random(&shared) % 100000;
        const size_t at = rank_random(&shared) % (WORDS_AT - bytes);
        const struct tutti_signal_info full = {0, TUTTI_SIGNAL_ADD, 1}, empty = {1, TUTTI_SIGNAL_SET, i};
        fill(want, bytes, shared.random + (uint64_t)rank->index);
        RANK_CHECK(rank, set(&s, s.buffer, want, bytes));
        delays = delays * 1664525 + 1013904223;
        if (delays % 4 == 0) tutti_sleep_ns(delays % 300000);
        if (i % 2) {
            RANK_CHECK_OK(rank, tutti_put_signal(s.buffer, bytes, right, at, &full, s.window, &s.m.on[0], NULL));
        } else {
            RANK_CHECK_OK(rank, tutti_put(s.buffer, bytes, right, at, s.window, &s.m.on[0], NULL));
            RANK_CHECK_OK(rank, tutti_signal(&full, right, s.window, &s.m.on[0], NULL));
        }
        if (delays % 5 == 0) tutti_sleep_ns(delays % 200000);
        RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_GE, i, left, s.window, &s.m.on[1], NULL));
        RANK_CHECK_OK(rank, copy(&s, came, s.part + at, bytes));
        RANK_CHECK_OK(rank, tutti_signal(&empty, left, s.window, &s.m.on[1], NULL));
        RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_EQ, i, right, s.window, &s.m.on[0], NULL));
        fill(want, bytes, shared.random + (uint64_t)left);
        RANK_CHECK(rank, mixed_get(&s.m, got, came, bytes));
        RANK_CHECK(rank, memcmp(got, want, bytes) == 0);
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
    if (!side_open(rank, &s)) return;
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
    if (!side_open(rank, &s)) return;
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

/* ---- many under way: works, several streams, a wait that comes first and must not hold up the others ---- */

static void many(struct rank *rank)
{
    enum { ROUNDS = 40, ROW = 512 };
    struct side s;
    unsigned char *got = rank_alloc(rank, PART), *want = rank_alloc(rank, PART);
    struct tutti_work *works[2 * ROUNDS] = {NULL}, *last = NULL, *all = NULL;
    const struct tutti_signal_info one = {9, TUTTI_SIGNAL_ADD, 1};
    if (!side_open(rank, &s)) return;
    RANK_CHECK_OK(rank, tutti_wait_signal(9, TUTTI_COMPARE_EQ, (uint64_t)rank->n * ROUNDS, TUTTI_ANY_SOURCE, s.window,
                                          &s.m.on[1], &last));
    RANK_CHECK(rank, tutti_work_test(last) == TUTTI_PENDING);
    fill(want, ROUNDS * ROW, (uint64_t)rank->index);
    RANK_CHECK(rank, set(&s, s.buffer, want, ROUNDS * ROW));
    for (int32_t i = 0; i < ROUNDS; i++) {
        for (int32_t q = 0; q < rank->n; q++) {
            const size_t at = (size_t)(rank->index * ROUNDS + i) * ROW;
            RANK_CHECK_OK(rank, tutti_put_signal(s.buffer + i * ROW, ROW - (size_t)(i % 7), q, at, &one, s.window,
                                                 &s.m.on[0], q == 0 ? &works[i] : NULL));
        }
    }
    RANK_CHECK_OK(rank, tutti_flush(TUTTI_ALL_PEERS, s.window, &s.m.on[0], &all));
    RANK_CHECK_OK(rank, tutti_work_wait(all, 0));
    RANK_CHECK_OK(rank, tutti_work_wait(last, 0));
    for (int i = 0; i < ROUNDS; i++) {
        RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
        tutti_work_free(works[i]);
    }
    tutti_work_free(all), tutti_work_free(last);
    RANK_CHECK(rank, mixed_get(&s.m, got, s.part, (size_t)rank->n * ROUNDS * ROW));
    for (int32_t q = 0; q < rank->n; q++) {
        fill(want, ROUNDS * ROW, (uint64_t)q);
        for (int32_t i = 0; i < ROUNDS; i++)
            RANK_CHECK(rank, memcmp(got + (size_t)(q * ROUNDS + i) * ROW, want + i * ROW, ROW - (size_t)(i % 7)) == 0);
    }
    side_close(&s);
}

/* Goes on when the watch, which may be late, has found streams whose calls are over. */
#define WHEN_FREE(rank, call)                                                                                          \
    do {                                                                                                               \
        enum tutti_status found_;                                                                                      \
        while ((found_ = (call)) == TUTTI_ERR_MEMORY) tutti_sleep_ns(TUTTI_NS_PER_MS);                                 \
        RANK_CHECK_OK(rank, found_);                                                                                   \
    } while (0)

/* More streams than tracks, one after another. */
static void streams(struct rank *rank)
{
    enum { STREAMS = 80 };
    struct side s;
    void *own[STREAMS] = {NULL};
    const struct tutti_signal_info one = {4, TUTTI_SIGNAL_ADD, 1};
    uint64_t value = 0;
    if (!side_open(rank, &s)) return;
    for (int i = 0; i < STREAMS; i++) {
        struct tutti_call_options options = s.m.on[0];
        RANK_CHECK_OK(rank, tutti_cuda_stream_create(s.m.gpu, &own[i]));
        options.stream = own[i];
        WHEN_FREE(rank, tutti_signal(&one, after(rank, 1), s.window, &options, NULL));
        WHEN_FREE(rank, tutti_flush(after(rank, 1), s.window, &options, NULL));
        RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s.m.gpu, own[i]));
    }
    RANK_CHECK(rank, meet(&s));
    WHEN_FREE(rank, tutti_signal_read(4, &value, s.window, &s.m.on[0]));
    RANK_CHECK(rank, value == STREAMS);
    for (int i = 0; i < STREAMS; i++) tutti_cuda_stream_destroy(s.m.gpu, own[i]);
    side_close(&s);
}

/* ---- graphs ---- */

/* A step of a ring, captured once: put what is in the buffer to the right, wait for the left one's, count a word of
 * rank 0, hand the buffer on; replayed, it takes the data around. */
static void graphs(struct rank *rank)
{
    enum { BYTES = 40000, REPLAYS = 12 };
    struct side s;
    unsigned char *want = rank_alloc(rank, BYTES), *got = rank_alloc(rank, BYTES);
    const int32_t right = after(rank, 1), left = after(rank, -1);
    const struct tutti_signal_info full = {0, TUTTI_SIGNAL_SET, 1}, taken = {1, TUTTI_SIGNAL_SET, 1};
    uint64_t *before = NULL, counts[1], in_graph = 0;
    void *graph = NULL;
    struct tutti_work *work = NULL;
    if (!side_open(rank, &s)) return;
    const struct tutti_call_options *on = &s.m.on[0];
    void *stream = s.m.streams[0];
    fill(want, BYTES, (uint64_t)rank->index);
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(s.m.gpu, s.buffer, want, BYTES));
    RANK_CHECK(rank, (before = mixed_put(&s.m, NULL, sizeof *before)) != NULL);
    RANK_CHECK(rank, meet(&s));
    RANK_CHECK_OK(rank, tutti_cuda_graph_begin(s.m.gpu, stream));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "captured", tutti_put(s.buffer, 1, right, 0, s.window, on, &work));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "captured", tutti_signal_read(0, counts, s.window, on));
    RANK_CHECK_OK(rank, tutti_put_signal(s.buffer, BYTES, right, 0, &full, s.window, on, NULL));
    RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, 1, left, s.window, on, NULL));
    RANK_CHECK_OK(rank, tutti_signal_write(0, 0, s.window, on));
    RANK_CHECK_OK(rank, tutti_cuda_copy(s.m.gpu, s.buffer, s.part, BYTES, stream));
    RANK_CHECK_OK(rank, tutti_fetch_add(1, before, 0, WORDS_AT, s.window, on, NULL));
    RANK_CHECK_OK(rank, tutti_fetch_add(0, &in_graph, 0, WORDS_AT, s.window, on, NULL)); /* to the host */
    RANK_CHECK_OK(rank, tutti_signal(&taken, left, s.window, on, NULL));
    RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_EQ, 1, right, s.window, on, NULL));
    RANK_CHECK_OK(rank, tutti_signal_write(1, 0, s.window, on));
    RANK_CHECK_OK(rank, tutti_cuda_graph_end(s.m.gpu, stream, &graph));
    for (int32_t i = 1; i <= REPLAYS; i++) {
        RANK_CHECK_OK(rank, tutti_cuda_graph_launch(s.m.gpu, graph, stream));
        if (i % 3 == 1) tutti_sleep_ns(rank_random(rank) % 500000);
        if (i % 4) continue;
        RANK_CHECK(rank, mixed_get(&s.m, got, s.buffer, BYTES));
        fill(want, BYTES, (uint64_t)after(rank, -(i % rank->n)));
        RANK_CHECK(rank, memcmp(got, want, BYTES) == 0);
    }
    RANK_CHECK(rank, mixed_sync(&s.m));
    RANK_CHECK(rank, in_graph > 0 && in_graph <= (uint64_t)rank->n * REPLAYS);
    RANK_CHECK(rank, meet(&s));
    RANK_CHECK_OK(rank, tutti_get(s.buffer, 8, 0, WORDS_AT, s.window, on, NULL));
    RANK_CHECK(rank, mixed_get(&s.m, counts, s.buffer, 8));
    RANK_CHECK(rank, counts[0] == (uint64_t)rank->n * REPLAYS);
    tutti_cuda_graph_destroy(s.m.gpu, graph);
    mixed_free(&s.m, before);
    side_close(&s);
}

/* ---- windows that come after one another share words; several at once do not ---- */

static void again(struct rank *rank)
{
    struct side s;
    struct tutti_window *second = NULL;
    struct tutti_window_config config = TUTTI_WINDOW_CONFIG_INIT;
    const struct tutti_signal_info set = {5, TUTTI_SIGNAL_SET, 55};
    void *memory = NULL;
    uint64_t value = 1;
    if (!side_open(rank, &s)) return;
    config.n_signals = 20000;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, 4096, &memory));
    for (int i = 0; i < 3; i++) {
        const size_t bytes = i == 1 && rank->index == 0 ? 0 : 4096; /* signals alone */
        RANK_CHECK_OK(rank, tutti_window_create(rank->comm, bytes ? memory : NULL, bytes, &config, &second));
        RANK_CHECK(rank, tutti_window_n_signals(second) == config.n_signals);
        RANK_CHECK_OK(rank, tutti_signal_read(5, &value, second, &s.m.on[0]));
        RANK_CHECK(rank, value == 0);
        RANK_CHECK(rank, meet(&s));
        RANK_CHECK_OK(rank, tutti_signal(&set, after(rank, 1), second, &s.m.on[0], NULL));
        RANK_CHECK_OK(rank, tutti_wait_signal(5, TUTTI_COMPARE_EQ, 55, after(rank, -1), second, &s.m.on[0], NULL));
        RANK_CHECK_OK(rank, tutti_signal_read(5, &value, s.window, &s.m.on[0]));
        RANK_CHECK(rank, value == 0);
        RANK_CHECK(rank, meet(&s));
        tutti_window_destroy(second);
    }
    side_close(&s);
}

/* ---- what is refused ---- */

static void wrong(struct rank *rank)
{
    struct side s;
    struct tutti_signal_info none = {1 << 20, TUTTI_SIGNAL_SET, 0}, one = {0, TUTTI_SIGNAL_SET, 0};
    uint64_t value;
    if (!side_open(rank, &s)) return;
    const struct tutti_call_options *on = &s.m.on[0];
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "put on rank", tutti_put(s.buffer, 2, 0, PART - 1, s.window, on, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "peer", tutti_put(s.buffer, 1, rank->n, 0, s.window, on, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "NULL", tutti_get(NULL, 1, 0, 0, s.window, on, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "signal", tutti_signal(&none, 0, s.window, on, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "aligned", tutti_fetch_add(1, &value, 0, 4, s.window, on, NULL));
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, tutti_comm_device(rank->comm)));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "another device", tutti_signal(&one, 0, s.window, on, NULL));
    RANK_CHECK(rank, tutti_comm_state(rank->comm, NULL) == TUTTI_OK);
    side_close(&s);
}

static void refused(struct rank *rank)
{
    struct side s;
    if (!side_open(rank, &s)) return;
    const struct tutti_call_options *on = &s.m.on[0];
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

/* Two devices whose link has no atomics: what is set goes in place, what is added, and atomics, by messages. */
static void plain_link(struct rank *rank)
{
    struct side s;
    const int32_t other = after(rank, 1);
    const struct tutti_signal_info set = {3, TUTTI_SIGNAL_SET, 5}, add = {3, TUTTI_SIGNAL_ADD, 2};
    void *graph = NULL;
    uint64_t value;
    if (!side_open(rank, &s)) return;
    const struct tutti_call_options *on = &s.m.on[0];
    RANK_CHECK(rank, tutti_window_peer(s.window, other, NULL) != NULL);
    RANK_CHECK_OK(rank, tutti_signal(&set, other, s.window, on, NULL));
    RANK_CHECK_OK(rank, tutti_signal(&add, other, s.window, on, NULL));
    RANK_CHECK_OK(rank, tutti_signal(&add, rank->index, s.window, on, NULL));
    RANK_CHECK(rank, meet(&s));
    RANK_CHECK_OK(rank, tutti_signal_read(3, &value, s.window, on));
    RANK_CHECK(rank, value == 7 || value == 9); /* the own one may have come before what the other one set */
    RANK_CHECK(rank, meet(&s));
    RANK_CHECK_OK(rank, tutti_cuda_graph_begin(s.m.gpu, s.m.streams[0]));
    RANK_CHECK_OK(rank, tutti_signal(&set, other, s.window, on, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "can not be captured", tutti_signal(&add, other, s.window, on, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_graph_end(s.m.gpu, s.m.streams[0], &graph));
    tutti_cuda_graph_destroy(s.m.gpu, graph);
    side_close(&s);
}

/* ---- the last rank brings nothing ---- */

static void partless(struct rank *rank)
{
    struct side s;
    const int32_t last = rank->n - 1;
    const struct tutti_signal_info one = {0, TUTTI_SIGNAL_ADD, 1};
    uint64_t value = 0, got = 0;
    if (!side_open_part(rank, &s, rank->index == last ? 0 : PART)) return;
    RANK_CHECK(rank, tutti_window_peer(s.window, last, NULL) == NULL);
    if (rank->index == last) {
        const uint64_t sent = 0x1122334455667788;
        RANK_CHECK(rank, set(&s, s.buffer, &sent, sizeof sent));
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

/* All ranks have a device, and rank 0 brings memory of the host: its calls with such memory are those of the host. */
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

/* For ranks that all have devices: last what a call that goes through the host can not do. */
static const rank_function functions[] = {moves, signals, litmus, words, many, streams, again, wrong, graphs};
enum { N_FUNCTIONS = TUTTI_ARRAY_LEN(functions), N_APART = N_FUNCTIONS - 1 };

static void run(bool forked)
{
    for (uint32_t n = 1; n <= 3; n++) {
        struct mixed_world world = {.n = n, .devices = 0x7, .forked = forked};
        assert_int_equal(mixed_run(&world, functions, gpu_ranks_across(n) ? N_APART : N_FUNCTIONS), 0);
    }
}

/* Devices that do not reach one another, and hosts among them: all goes by messages, large calls in many pieces. */
static void run_mixed(bool forked)
{
    static const rank_function of_all[] = {moves, signals, litmus, words, many, again, lent, partless, refused},
                               all_devices = host_part;
    static const struct mixed_world worlds[] = {{.n = 2, .devices = 0x1},
                                                {.n = 2, .devices = 0x3, .host = true},
                                                {.n = 3, .devices = 0x7, .host = true},
                                                {.n = 3, .devices = 0x2},
                                                {.n = 4, .devices = 0xb}};
    struct mixed_world world = {.n = 3, .devices = 0x7, .forked = forked};
    setenv("TUTTI_GPU_PIECE", "16384", 1);
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct mixed_world one = worlds[w];
        one.forked = forked;
        if (forked || one.n < 4) assert_int_equal(mixed_run(&one, of_all, TUTTI_ARRAY_LEN(of_all)), 0);
    }
    assert_int_equal(mixed_run(&world, &all_devices, 1), 0);
    unsetenv("TUTTI_GPU_PIECE");
}

static void processes(void **state)
{
    (void)state, run(true);
}

static void mixed_processes(void **state)
{
    (void)state, run_mixed(true);
}

static void without_atomics(void **state)
{
    static const rank_function functions_there[] = {plain_link, moves, signals, litmus, words, many, again};
    struct mixed_world world = {.n = 2, .devices = 0x3, .forked = true};
    (void)state;
    if (!gpu_ranks_stand_in() || gpu_ranks_across(2)) skip();
    setenv("TUTTI_STANDIN_ATOMICS", "0", 1);
    const unsigned failed = mixed_run(&world, functions_there, TUTTI_ARRAY_LEN(functions_there));
    unsetenv("TUTTI_STANDIN_ATOMICS");
    assert_int_equal(failed, 0);
}

static void threads(void **state)
{
    (void)state, run(false);
}

static void mixed_threads(void **state)
{
    (void)state, run_mixed(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes), cmocka_unit_test(without_atomics),
                                       cmocka_unit_test(mixed_processes), cmocka_unit_test(threads),
                                       cmocka_unit_test(mixed_threads)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests_name("one-sided calls on devices", tests, NULL, NULL);
}
