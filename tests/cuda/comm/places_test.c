/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls between memory of all kinds: parts of the host that peers map or do not, parts on devices, and none,
 * mixed in one window; buffers of the host and of devices; called on the host, on a stream, with works. What arrives,
 * what is read back and what words count follows from random numbers that both sides draw, not from the window. */
#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"

#include <stdlib.h>
#include <string.h>

enum { STRIPE = 100000, RANKS = 4, WORDS = 64, PART = STRIPE * RANKS + WORDS * 8, ROUNDS = 8 };
enum place { MAPPED, HOST, DEVICE, NONE, N_PLACES };

struct scene {
    struct mixed m;
    struct rank *rank;
    struct tutti_window *window;
    enum place places[RANKS];
    bool apart;          /* some part is on a device: a rank with a device enqueues, unless it brings host memory */
    unsigned char *part; /* PART bytes */
    unsigned char *host, *device; /* buffers, the second one where there is a device */
    unsigned char *want, *got;
};

/* How a call is made. */
struct way {
    unsigned char *buffer;
    const struct tutti_call_options *options;
    bool async, streamed;
};

static void fill(unsigned char *out, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        if (i % 8 == 0) seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        out[i] = (unsigned char)(seed >> 8 * (i % 8));
    }
}

static bool set(struct scene *s, unsigned char *to, const void *from, size_t bytes)
{
    if (bytes == 0) return true;
    if (tutti_device_of(to) == -1) memcpy(to, from, bytes);
    if (tutti_device_of(to) == -1 || tutti_cuda_copy_now(s->m.gpu, to, from, bytes) == TUTTI_OK) return true;
    rank_fail(s->rank, __FILE__, __LINE__, "copy: %s", tutti_last_error()->text);
    return false;
}

/* Until all streams are over, and the one that has no name. */
static bool settle(struct scene *s)
{
    return mixed_sync(&s->m) && (!s->m.gpu || tutti_cuda_stream_sync(s->m.gpu, NULL) == TUTTI_OK);
}

static bool holds(struct scene *s, const unsigned char *memory, size_t bytes, uint64_t seed)
{
    if (!settle(s)) return false;
    fill(s->want, bytes, seed);
    if (bytes == 0) return true;
    if (tutti_device_of(memory) == -1) return memcmp(memory, s->want, bytes) == 0;
    return tutti_cuda_copy_now(s->m.gpu, s->got, memory, bytes) == TUTTI_OK && memcmp(s->got, s->want, bytes) == 0;
}

static struct way some_way(struct scene *s)
{
    struct rank *rank = s->rank;
    struct way way = {.buffer = s->host, .async = rank_random(rank) % 3 == 0};
    const enum place mine = s->places[rank->index];
    if (!s->m.gpu) return way;
    if (rank_random(rank) % 2) way.buffer = s->device;
    /* Threads that share a device share the stream without a name, where one's wait would keep the other's calls. */
    if (!s->m.world->forked || rank_random(rank) % 2) way.options = &s->m.on[rank_random(rank) % MIXED_STREAMS];
    if (mine < DEVICE && rank_random(rank) % 4 == 0) way.buffer = s->host, way.options = NULL;
    way.streamed = mine == DEVICE || (mine == NONE && s->apart) || way.options || way.buffer == s->device;
    return way;
}

static void finish(struct scene *s, enum tutti_status status, struct tutti_work *work)
{
    if (status >= 0 && work) status = tutti_work_wait(work, 0);
    if (status >= 0 && work) tutti_work_free(work);
    if (status < 0) rank_fail(s->rank, __FILE__, __LINE__, "a call: %s", tutti_last_error()->text);
}
#define CALL(s, way, call_with_work)                                                                                   \
    do {                                                                                                               \
        struct tutti_work *started = NULL, **work = (way).async ? &started : NULL;                                     \
        enum tutti_status called = (call_with_work);                                                                   \
        finish(s, called, started);                                                                                    \
        if ((s)->rank->failure[0]) return;                                                                             \
    } while (0)

/* What rank `from` sends to rank `to` in a round. */
struct parcel {
    size_t at, bytes;
    uint64_t seed;
};
static struct parcel parcel_of(uint32_t round, int32_t from, int32_t to)
{
    static const size_t some[] = {8, 0, 1, 4097};
    struct rank shared = {.random = 4096 * test_seed() + 64 * round + 8 * (uint64_t)from + (uint64_t)to + 1};
    struct parcel p = {.bytes = round < 4 ? some[round] : rank_random(&shared) % STRIPE};
    p.at = STRIPE * (size_t)from + (p.bytes == 8 ? 0 : rank_random(&shared) % (STRIPE - p.bytes));
    p.seed = rank_random(&shared);
    return p;
}

/* By one call, or, where both are made in one place, by two. */
static void send(struct scene *s, uint32_t round, int32_t to)
{
    struct rank *rank = s->rank;
    const struct parcel p = parcel_of(round, rank->index, to);
    const struct tutti_signal_info come = {(uint32_t)rank->index, TUTTI_SIGNAL_ADD, 1};
    const struct way way = some_way(s);
    const size_t bytes = s->places[to] == NONE ? 0 : p.bytes, at = bytes ? p.at : 0;
    fill(s->want, bytes, p.seed);
    RANK_CHECK(rank, settle(s) && set(s, way.buffer, s->want, bytes));
    if (way.streamed && !way.options) {
        CALL(s, way, tutti_put_signal(way.buffer, bytes, to, at, &come, s->window, NULL, work));
        return;
    }
    CALL(s, way, tutti_put(way.buffer, bytes, to, at, s->window, way.options, work));
    CALL(s, way, tutti_signal(&come, to, s->window, way.options, work));
}

static void receive(struct scene *s, uint32_t round, int32_t from)
{
    struct rank *rank = s->rank;
    const struct parcel p = parcel_of(round, from, rank->index);
    const struct way way = some_way(s);
    uint64_t value = 0;
    CALL(s, way, tutti_wait_signal((uint32_t)from, TUTTI_COMPARE_GE, round + 1, from, s->window, way.options, work));
    RANK_CHECK(rank, s->places[rank->index] == NONE || holds(s, s->part + p.at, p.bytes, p.seed));
    RANK_CHECK_OK(rank, tutti_signal_read((uint32_t)from, &value, s->window, way.options));
    RANK_CHECK(rank, value > round || s->places[rank->index] == NONE);
}

/* What was sent is read back, and a word of the peer is counted up. */
static void look(struct scene *s, uint32_t round, int32_t to)
{
    struct rank *rank = s->rank;
    const struct parcel p = parcel_of(round, rank->index, to);
    const struct way way = some_way(s);
    const size_t word = PART - 8 * (size_t)(rank->index + 1);
    uint64_t before = UINT64_MAX, *to_word = way.buffer == s->device ? (uint64_t *)(void *)s->device : &before;
    if (s->places[to] == NONE) return;
    CALL(s, way, tutti_flush(to, s->window, way.options, work));
    RANK_CHECK(rank, settle(s));
    CALL(s, way, tutti_get(way.buffer, p.bytes, to, p.at, s->window, way.options, work));
    RANK_CHECK(rank, holds(s, way.buffer, p.bytes, p.seed));
    CALL(s, way, tutti_fetch_add(round + 1, to_word, to, word, s->window, way.options, work));
    RANK_CHECK(rank, settle(s));
    if (to_word != &before) RANK_CHECK_OK(rank, tutti_cuda_copy_now(s->m.gpu, &before, to_word, sizeof before));
    RANK_CHECK(rank, before == (uint64_t)round * (round + 1) / 2);
    if (round + 1 < ROUNDS) return;
    const uint64_t sum = (uint64_t)ROUNDS * (ROUNDS + 1) / 2;
    RANK_CHECK_OK(rank, tutti_compare_swap(sum, 7, &before, to, word, s->window, way.options, NULL));
    RANK_CHECK(rank, settle(s) && before == sum);
    RANK_CHECK_OK(rank, tutti_compare_swap(sum, 8, &before, to, word, s->window, way.options, NULL));
    RANK_CHECK(rank, settle(s) && before == 7);
}

static void rounds(struct scene *s)
{
    struct rank *rank = s->rank;
    const int32_t n = rank->n, me = rank->index;
    for (uint32_t round = 0; round < ROUNDS && !rank->failure[0]; round++) {
        for (int32_t k = 0; k < n && !rank->failure[0]; k++) send(s, round, (me + k) % n);
        for (int32_t k = 0; k < n && !rank->failure[0]; k++) receive(s, round, (me + n - k) % n);
        for (int32_t k = 0; k < n && !rank->failure[0]; k++) look(s, round, (me + k) % n);
        const struct way way = some_way(s);
        CALL(s, way, tutti_flush(round % 2 ? TUTTI_ALL_PEERS : me, s->window, way.options, work));
        RANK_CHECK_OK(rank, tutti_fence(s->window, way.options));
        RANK_CHECK(rank, settle(s));
        RANK_CHECK_OK(rank, tutti_barrier(s->m.beside, NULL, NULL));
    }
}

/* ---- windows: whose part is where ---- */

static unsigned char *part_of(struct scene *s, enum place place)
{
    void *memory = NULL;
    enum tutti_status status = TUTTI_OK;
    if (place == MAPPED) status = tutti_mem_alloc(s->m.beside, PART, &memory);
    if (place == HOST && posix_memalign(&memory, 64, PART)) memory = NULL;
    if (place == DEVICE) status = tutti_mem_alloc(s->rank->comm, PART, &memory);
    if (status < 0 || (!memory && place != NONE))
        rank_fail(s->rank, __FILE__, __LINE__, "no memory: %s", tutti_last_error()->text);
    return memory;
}

static void part_free(struct scene *s)
{
    const enum place place = s->places[s->rank->index];
    if (place == HOST) free(s->part);
    if (place == MAPPED) RANK_CHECK_OK(s->rank, tutti_mem_free(s->m.beside, s->part));
    if (place == DEVICE) RANK_CHECK_OK(s->rank, tutti_mem_free(s->rank->comm, s->part));
}

/* Scenario by scenario: all parts of one kind, then of random ones. */
static void places_draw(struct scene *s, uint32_t scenario)
{
    struct rank shared = {.random = 31 * test_seed() + scenario + 1};
    s->apart = false;
    for (int32_t r = 0; r < s->rank->n; r++) {
        const bool device = s->m.world->devices >> r & 1;
        enum place place = scenario < NONE ? (enum place)scenario : (enum place)(rank_random(&shared) % N_PLACES);
        if (place == DEVICE && !device) place = scenario % 2 ? MAPPED : HOST;
        s->places[r] = place;
        s->apart |= place == DEVICE;
    }
}

/* What was told before the window was made is how it is. */
static void reach(struct scene *s)
{
    struct rank *rank = s->rank;
    bool devices = s->apart;
    for (int32_t r = 0; r < rank->n; r++) devices &= s->places[r] == DEVICE || s->places[r] == NONE;
    for (int32_t r = 0; r < rank->n; r++) {
        const uint32_t how = tutti_window_reach(rank->comm, r);
        const bool mapped = tutti_window_peer(s->window, r, NULL) != NULL;
        if (s->places[r] == MAPPED) RANK_CHECK(rank, mapped == ((how & TUTTI_REACH_HOST) != 0));
        if (s->places[r] == DEVICE && r != rank->index)
            RANK_CHECK(rank, mapped == (devices && (how & TUTTI_REACH_DEVICE) != 0));
    }
    RANK_CHECK(rank, tutti_window_reach(rank->comm, rank->n) == 0);
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "window_reach: rank") != NULL);
}

static void windows(struct rank *rank)
{
    enum { SCENARIOS = 6 };
    struct scene s = {.rank = rank};
    if (!mixed_open(rank, &s.m)) return;
    s.want = rank_alloc(rank, PART), s.got = rank_alloc(rank, PART), s.host = rank_alloc(rank, STRIPE);
    if (s.m.gpu) RANK_CHECK(rank, (s.device = mixed_put(&s.m, NULL, STRIPE)) != NULL);
    for (uint32_t i = 0; i < SCENARIOS; i++) {
        places_draw(&s, i);
        s.part = part_of(&s, s.places[rank->index]);
        if (rank->failure[0]) return;
        memset(s.want, 0, PART);
        RANK_CHECK(rank, !s.part || set(&s, s.part, s.want, PART));
        RANK_CHECK_OK(rank, tutti_window_create(rank->comm, s.part, s.part ? PART : 0, NULL, &s.window));
        reach(&s);
        if (!rank->failure[0]) rounds(&s);
        if (rank->failure[0]) return;
        tutti_window_destroy(s.window);
        RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
        part_free(&s);
    }
    if (s.device) mixed_free(&s.m, s.device);
    mixed_close(&s.m);
}

/* A wait that is enqueued before its signal, in a process of which no thread waits for a call: somebody looks at the
 * signal. */
static void unattended(struct rank *rank)
{
    struct scene s = {.rank = rank};
    const struct tutti_signal_info one = {2, TUTTI_SIGNAL_ADD, 1};
    if (!mixed_open(rank, &s.m)) return;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, NULL, 0, NULL, &s.window));
    RANK_CHECK_OK(rank, tutti_wait_signal(2, TUTTI_COMPARE_EQ, 1, TUTTI_ANY_SOURCE, s.window, &s.m.on[0], NULL));
    tutti_sleep_ns(20 * TUTTI_NS_PER_MS);
    RANK_CHECK_OK(rank, tutti_signal(&one, (rank->index + 1) % rank->n, s.window, &s.m.on[1], NULL));
    RANK_CHECK(rank, settle(&s));
    RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
    tutti_window_destroy(s.window);
    mixed_close(&s.m);
}

/* What no device is there to enqueue. */
static void refused(struct rank *rank)
{
    struct scene s = {.rank = rank};
    uint64_t *word = NULL;
    if (!mixed_open(rank, &s.m)) return;
    RANK_CHECK(rank, (word = mixed_put(&s.m, NULL, sizeof *word)) != NULL);
    s.host = rank_alloc(rank, 64);
    RANK_CHECK_OK(rank, tutti_window_create(s.m.beside, s.host, 64, NULL, &s.window));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "source is memory of a device, and the communicator has none on this",
                     tutti_put(word, 8, 0, 0, s.window, NULL, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "before is memory of a device, and the communicator has none on this",
                     tutti_fetch_add(1, word, 0, 0, s.window, NULL, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "signal_read on rank", tutti_signal_read(0, word, s.window, NULL));
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "value is memory of a device") != NULL);
    RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
    tutti_window_destroy(s.window);
    mixed_free(&s.m, word);
    mixed_close(&s.m);
}

/* ---- in which worlds ---- */

static void run(bool forked)
{
    static const struct mixed_world worlds[] = {{.n = 1, .devices = 0x1},
                                                {.n = 2, .devices = 0x3},
                                                {.n = 2, .devices = 0x2},
                                                {.n = 3, .devices = 0x7, .host = true},
                                                {.n = 4, .devices = 0xb}};
    static const rank_function functions[] = {unattended, refused, windows};
    setenv("TUTTI_GPU_PIECE", "32768", 1);
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct mixed_world world = worlds[w];
        world.forked = forked;
        const bool all = world.devices == (UINT64_C(1) << world.n) - 1;
        assert_int_equal(mixed_run(&world, all ? functions : functions + 2, all ? 3 : 1), 0);
    }
    unsetenv("TUTTI_GPU_PIECE");
}

static void processes(void **state)
{
    (void)state, run(true);
}

static void threads(void **state)
{
    (void)state, run(false);
}

/* Devices that reach one another, over links without atomics. */
static void without_atomics(void **state)
{
    static const struct mixed_world world = {.n = 3, .devices = 0x7, .forked = true};
    static const rank_function function = windows;
    (void)state;
    if (!gpu_ranks_stand_in()) skip();
    setenv("TUTTI_STANDIN_ATOMICS", "0", 1);
    const unsigned failed = mixed_run(&world, &function, 1);
    unsetenv("TUTTI_STANDIN_ATOMICS");
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes), cmocka_unit_test(without_atomics),
                                       cmocka_unit_test(threads)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests_name("one-sided calls between memory of all kinds", tests, NULL, NULL);
}
