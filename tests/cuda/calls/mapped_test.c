/* SPDX-License-Identifier: BSD-3-Clause */
/* Large calls between ordinary buffers, whose ranks map one another's memory beside calls: straight when all have
 * mapped it, by tiles before that and where one can not, the same to the last bit; in one allocation that is cut into
 * buffers; in memory that is freed and made again at the same place, or mapped anew; in graphs that are replayed later;
 * on a device that has little memory left, whose users' memory peers unmap. The device counts which way calls went.
 * Some calls of some ranks say that computation runs beside them. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/segment.h"
#include "reference.h"

#include "backend/gpu/gpu_backend.h"
#include "comm/call/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 3 * 1024, SPACE = 64, SETTLE_S = 20 }; /* elements a block; bytes between buffers */

struct scene {
    struct gpu_rank g;
    struct tutti_call_options options;
    const struct gpu_backend *backend;
    char *in, *out; /* n blocks each */
    unsigned char *got, *by_tiles, *data;
    size_t bytes;             /* n blocks */
    uint64_t straight, tiles; /* calls so far */
    uint32_t n_started;
};

static void scene_close(struct scene *s)
{
    struct rank *rank = s->g.rank;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&s->g);
}

static bool scene_open(struct rank *rank, struct scene *s)
{
    static const struct tutti_call_options init = TUTTI_CALL_OPTIONS_INIT;
    *s = (struct scene){.options = init, .bytes = COUNT * sizeof(float) * (size_t)rank->n};
    if (!gpu_rank_open(rank, &s->g)) return false;
    const struct tutti_comm_device *device = rank->comm->device;
    if (!device || device->n == 0 || device->backends[0]->ops != &tutti_backend_cuda) {
        rank_fail(rank, __FILE__, __LINE__, "there is no back end cuda");
        return false;
    }
    s->backend = (const struct gpu_backend *)(const void *)device->backends[0];
    s->options.stream = s->g.stream;
    s->got = rank_alloc(rank, s->bytes), s->by_tiles = rank_alloc(rank, s->bytes);
    s->data = rank_alloc(rank, s->bytes);
    return true;
}

static void *device_memory(struct scene *s, size_t bytes)
{
    void *memory = NULL;
    if (tutti_cuda_alloc(s->g.gpu, bytes, &memory) < 0)
        rank_fail(s->g.rank, __FILE__, __LINE__, "no memory: %s", tutti_last_error()->text);
    return memory;
}

/* ---- calls ---- */

struct kind {
    const char *name, *tiles; /* by which the same call goes for comparison, among more than two */
    size_t in_blocks, out_blocks;
    bool reduces, in_place;
};
enum { REDUCE, GATHER, EXCHANGE, CAST, SCATTER, N_KINDS };
/* In blocks; 0: all n of them. */
static const struct kind kinds[N_KINDS] = {[REDUCE] = {"all_reduce", "cuda:tiles", 0, 0, true, true},
                                           [GATHER] = {"all_gather", "cuda:tiles", 1, 0, false, false},
                                           [EXCHANGE] = {"all_to_all", "cuda:tiles", 0, 0, false, false},
                                           [CAST] = {"broadcast", "cuda:tiles", 0, 0, false, true},
                                           [SCATTER] = {"reduce_scatter", "cuda:tiles", 0, 1, true, false}};

struct call {
    int kind;
    enum tutti_dtype dtype;
    enum tutti_op op;
    bool in_place;
    int32_t root;
};

static size_t blocks(const struct scene *s, size_t n)
{
    return n ? n : (size_t)s->g.rank->n;
}

static enum tutti_status start(struct scene *s, const struct call *c, const char *algorithm)
{
    struct tutti_comm *comm = s->g.rank->comm;
    const size_t block = COUNT * sizeof(float) / tutti_dtype_bytes(c->dtype), all = block * (size_t)s->g.rank->n;
    const char *in = c->in_place ? s->out : s->in;
    s->options.algorithm = algorithm;
    s->options.overlap = (s->n_started++ + (uint32_t)s->g.rank->index) % 3 > 0;
    switch (c->kind) {
    case REDUCE:
        return tutti_all_reduce(in, s->out, all, c->dtype, c->op, comm, &s->options, NULL);
    case GATHER:
        if (c->in_place) in += (size_t)s->g.rank->index * COUNT * sizeof(float);
        return tutti_all_gather(in, s->out, block, c->dtype, comm, &s->options, NULL);
    case EXCHANGE:
        return tutti_all_to_all(in, s->out, block, c->dtype, comm, &s->options, NULL);
    case CAST:
        return tutti_broadcast(s->out, all, c->dtype, c->root, comm, &s->options, NULL);
    default:
        return tutti_reduce_scatter(s->in, s->out, block, c->dtype, c->op, comm, &s->options, NULL);
    }
}

/* New data, equal both times. */
static void give(struct scene *s, const struct call *c)
{
    const bool there = c->in_place || c->kind == CAST;
    if (c->kind == GATHER && c->in_place) {
        const size_t mine = (size_t)s->g.rank->index * COUNT * sizeof(float);
        GPU_CHECK_OK(&s->g, tutti_cuda_set(s->g.gpu, s->out, 0xa5, s->bytes));
        GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, s->out + mine, s->data, COUNT * sizeof(float)));
        return;
    }
    if (!there) GPU_CHECK_OK(&s->g, tutti_cuda_set(s->g.gpu, s->out, 0xa5, s->bytes));
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, there ? s->out : s->in, s->data, s->bytes));
}

static void result(struct scene *s, unsigned char *to)
{
    GPU_CHECK_OK(&s->g, tutti_cuda_stream_sync(s->g.gpu, s->g.stream));
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, to, s->out, s->bytes));
}

static void count(struct scene *s)
{
    s->straight = s->backend->control->straight, s->tiles = s->backend->control->by_tiles;
}

static void fill(struct scene *s, const struct call *c, uint64_t data)
{
    const size_t n = s->bytes / tutti_dtype_bytes(c->dtype);
    ref_fill(c->dtype, REF_FINITE, data * 31 + (uint64_t)s->g.rank->index, s->data, n);
}

enum way { BY_TILES, STRAIGHT, EITHER };

static void check_way(struct scene *s, const struct call *c, enum way way)
{
    struct rank *rank = s->g.rank;
    const uint64_t straight = s->straight, tiles = s->tiles;
    count(s);
    const uint64_t went[] = {s->tiles - tiles, s->straight - straight};
    if (went[0] + went[1] == 1 && (way == EITHER || went[way] == 1)) return;
    rank_fail(rank, __FILE__, __LINE__, "%s%s: %u went straight and %u by tiles, not one %s", kinds[c->kind].name,
              c->in_place ? " in place" : "", (unsigned)went[1], (unsigned)went[0],
              way == STRAIGHT ? "straight" : "by tiles");
}

/* The call by tiles alone, then as `mapped`: the same bits, by the way that is expected. `graph`: is launched in place
 * of the second one. */
static void compare(struct scene *s, const struct call *c, enum way way, void *graph)
{
    struct rank *rank = s->g.rank;
    fill(s, c, rank_random(rank) % 1000);
    give(s, c);
    RANK_CHECK_OK(rank,
                  tutti_barrier(rank->comm, NULL, NULL)); /* what the driver does for one may wait for another's */
    RANK_CHECK_OK(rank, start(s, c, kinds[c->kind].tiles));
    result(s, s->by_tiles);
    give(s, c);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (graph)
        RANK_CHECK_OK(rank, tutti_cuda_graph_launch(s->g.gpu, graph, s->g.stream));
    else
        RANK_CHECK_OK(rank, start(s, c, "cuda:mapped"));
    result(s, s->got);
    if (rank->failure[0]) return;
    const size_t bytes = blocks(s, kinds[c->kind].out_blocks) * COUNT * sizeof(float);
    for (size_t i = 0; i < bytes; i++)
        if (s->got[i] != s->by_tiles[i]) {
            rank_fail(rank, __FILE__, __LINE__, "%s%s of %s: byte %zu is %u, by tiles %u", kinds[c->kind].name,
                      c->in_place ? " in place" : "", tutti_dtype_name(c->dtype), i, s->got[i], s->by_tiles[i]);
            return;
        }
    check_way(s, c, way);
}

#define STATE(state) (1u << (state))
#define SETTLED (STATE(GPU_MAP_NONE) | STATE(GPU_MAP_KNOWN) | STATE(GPU_MAP_REFUSED))

/* Until each row of this rank is in one of the states. */
static void wait_rows(struct scene *s, uint32_t states)
{
    const uint64_t until = tutti_deadline_ns(SETTLE_S * TUTTI_NS_PER_S);
    struct gpu_maps *maps = (struct gpu_maps *)(uintptr_t)&s->backend->maps;
    for (uint32_t row = 0; row < GPU_MAPS && tutti_now_ns() < until;) {
        pthread_mutex_lock(&maps->lock);
        const uint32_t state = STATE(maps->own[row].state);
        pthread_mutex_unlock(&maps->lock);
        if (state & states)
            row++;
        else
            tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    RANK_CHECK(s->g.rank, tutti_now_ns() < until);
}

/* Until all that this rank has shown is known to all, or can not be; then the others. */
static void settle(struct scene *s)
{
    wait_rows(s, SETTLED);
    RANK_CHECK_OK(s->g.rank, tutti_barrier(s->g.rank->comm, NULL, NULL));
}

/* The first call shows the buffers to the peers. */
static void show(struct scene *s)
{
    const struct call c = {.kind = REDUCE, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM};
    if (s->g.rank->failure[0]) return;
    compare(s, &c, EITHER, NULL);
    if (!s->g.rank->failure[0]) settle(s);
}

static const struct call a_sum = {.kind = REDUCE, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM};

/* ---- every kind, type, place ---- */

static void every_kind(struct scene *s, enum way way)
{
    static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT32, TUTTI_BFLOAT16, TUTTI_FLOAT16};
    struct rank *rank = s->g.rank;
    for (int k = 0; k < 2 * N_KINDS && !rank->failure[0]; k++) {
        struct call c = {.kind = k / 2, .op = k % 2 ? TUTTI_AVG : TUTTI_SUM, .in_place = k % 2, .root = k % rank->n};
        c.dtype = dtypes[(uint32_t)k % TUTTI_ARRAY_LEN(dtypes)];
        if (c.kind == SCATTER) c.in_place = false;
        const bool not_straight = c.kind == EXCHANGE && c.in_place;
        if (!not_straight) compare(s, &c, way, NULL);
    }
}

/* What lies in a window is mapped as well, by itself: windows have no other way to fold straight from inputs. */
static void in_a_window(struct scene *s, char *memory, size_t bytes)
{
    struct rank *rank = s->g.rank;
    struct tutti_window *window;
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, memory, bytes, NULL, &window));
    every_kind(s, STRAIGHT);
    tutti_window_destroy(window);
}

/* Both buffers in one allocation; then cut otherwise, and at places that no unit begins at. */
static void one_allocation(struct rank *rank)
{
    struct scene s;
    if (!scene_open(rank, &s)) return;
    char *memory = device_memory(&s, 2 * s.bytes + 4 * SPACE);
    if (!memory) return;
    s.in = memory, s.out = memory + s.bytes + SPACE;
    every_kind(&s, EITHER); /* as they come */
    if (!rank->failure[0]) settle(&s);
    every_kind(&s, STRAIGHT);
    in_a_window(&s, memory, 2 * s.bytes + 4 * SPACE);
    s.in = memory + 2 * SPACE, s.out = memory + s.bytes + 3 * SPACE;
    if (!rank->failure[0]) compare(&s, &a_sum, STRAIGHT, NULL);
    s.in += rank->index == 1 ? 4 : 0; /* one rank's alone */
    if (!rank->failure[0]) compare(&s, &a_sum, BY_TILES, NULL);
    if (rank->failure[0]) return;
    const struct call exchange = {.kind = EXCHANGE, .dtype = TUTTI_FLOAT32};
    s.in = memory + 2 * SPACE;
    compare(&s, &exchange, STRAIGHT, NULL);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    scene_close(&s);
}

/* ---- memory that is freed, and made again ---- */

static void renewed(struct rank *rank)
{
    struct scene s;
    if (!scene_open(rank, &s)) return;
    s.in = device_memory(&s, s.bytes), s.out = device_memory(&s, s.bytes);
    if (!s.in || !s.out) return;
    show(&s);
    for (int round = 0; round < 4 && !rank->failure[0]; round++) {
        compare(&s, &a_sum, STRAIGHT, NULL);
        if (rank->failure[0]) return;
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        char **which = round % 2 ? &s.out : &s.in;
        if (round < 2 || rank->index == 1) { /* all, then one */
            tutti_cuda_free(s.g.gpu, *which);
            *which = device_memory(&s, s.bytes); /* where it was, as a rule */
        }
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        compare(&s, &a_sum, EITHER, NULL);
        if (!rank->failure[0]) settle(&s);
    }
    if (!rank->failure[0]) compare(&s, &a_sum, STRAIGHT, NULL);
    if (!rank->failure[0]) scene_close(&s);
}

/* ---- memory that is freed, and becomes a window's at the same place ---- */

/* Peers still have what was there, and some drivers map an address of a process once. Also for another communicator. */
static void becomes_a_window(struct rank *rank)
{
    struct scene s;
    struct tutti_comm *other = NULL;
    struct tutti_window *window = NULL;
    if (!scene_open(rank, &s)) return;
    s.in = device_memory(&s, s.bytes), s.out = device_memory(&s, s.bytes);
    if (!s.in || !s.out) return;
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, 0, rank->index, &other));
    for (int round = 0; round < 2 && !rank->failure[0]; round++) {
        show(&s);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        tutti_cuda_free(s.g.gpu, s.out);
        s.out = device_memory(&s, s.bytes); /* where it was, as a rule */
        struct tutti_comm *comm = round == 0 ? rank->comm : other;
        RANK_CHECK_OK(rank, tutti_window_create(comm, s.out, s.bytes, NULL, &window));
        tutti_window_destroy(window);
    }
    tutti_comm_destroy(other);
    if (!rank->failure[0]) compare(&s, &a_sum, EITHER, NULL);
    if (!rank->failure[0]) scene_close(&s);
}

/* ---- many mappings in a row, of which one is made anew ---- */

static void mapped_anew(struct rank *rank)
{
    struct scene s;
    struct segment segment;
    if (!scene_open(rank, &s)) return;
    RANK_CHECK(rank, segment_open(&segment, s.g.gpu, 3, true));
    s.in = segment.base + segment.piece - 4096, s.out = segment.base + 2 * segment.piece - 8192;
    show(&s);
    for (int round = 0; round < 2 && !rank->failure[0]; round++) {
        compare(&s, &a_sum, STRAIGHT, NULL);
        if (rank->failure[0]) return;
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        if (round == 0 || rank->index == 1) RANK_CHECK(rank, segment_renew(&segment, 1));
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        compare(&s, &a_sum, EITHER, NULL);
        if (!rank->failure[0]) settle(&s);
    }
    if (!rank->failure[0]) compare(&s, &a_sum, STRAIGHT, NULL);
    if (rank->failure[0]) return;
    scene_close(&s);
}

/* ---- a device that has little memory left ---- */

/* Allocations of devices that this process has mapped, its own and peers'. */
static uint32_t n_mapped(struct scene *s)
{
    char line[512];
    uint32_t n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) rank_fail(s->g.rank, __FILE__, __LINE__, "/proc/self/maps can not be read");
    while (maps && fgets(line, sizeof line, maps)) n += strstr(line, "memfd:standin") != NULL;
    if (maps) fclose(maps);
    return n;
}

/* So many; the stand-in unmaps at once what is unmapped. Threads have one process's, and import nothing. */
static void check_mapped(struct scene *s, uint32_t wanted)
{
    const uint32_t n = ranks_can_fork() ? n_mapped(s) : wanted;
    if (n != wanted && !s->g.rank->failure[0])
        rank_fail(s->g.rank, __FILE__, __LINE__, "%u allocations are mapped, not %u", n, wanted);
}

/* All of the device's memory but a part of 32. */
static void *take_the_rest(struct scene *s)
{
    size_t left = 0, bytes = 0;
    const bool known = tutti_cuda_memory_left(s->g.gpu, &left, &bytes) == TUTTI_OK;
    return known && left > bytes / 32 ? device_memory(s, left - bytes / 32)
                                      : NULL; /* one of two ranks on it takes it */
}

/* Until this rank has found that memory is scarce, or no longer; then the others. */
static void wait_scarce(struct scene *s, bool wanted)
{
    const uint64_t until = tutti_deadline_ns(SETTLE_S * TUTTI_NS_PER_S);
    while (atomic_load(&s->backend->maps.scarce) != wanted && tutti_now_ns() < until) tutti_sleep_ns(TUTTI_NS_PER_MS);
    RANK_CHECK(s->g.rank, atomic_load(&s->backend->maps.scarce) == wanted);
    RANK_CHECK_OK(s->g.rank, tutti_barrier(s->g.rank->comm, NULL, NULL));
}

static _Thread_local struct scene *falls; /* this rank's, when its next call has its addresses */
static _Thread_local void *rest;          /* what was taken then */

typedef __typeof__(tutti_cuda_launch) launching;
launching __real_tutti_cuda_launch, __wrap_tutti_cuda_launch;
enum tutti_status __wrap_tutti_cuda_launch(struct tutti_device *gpu, const struct tutti_gpu_launch *launch,
                                           const void *args)
{
    struct scene *s = falls;
    if (s && launch->args_bytes == sizeof(struct gpu_mapped)) {
        const uint64_t until = tutti_deadline_ns(SETTLE_S * TUTTI_NS_PER_S);
        falls = NULL;
        rest = take_the_rest(s);
        while (!atomic_load(&s->backend->maps.scarce) && tutti_now_ns() < until) tutti_sleep_ns(TUTTI_NS_PER_MS);
        tutti_sleep_ns(30 * TUTTI_NS_PER_MS); /* for threads that would withdraw, and unmap, what the call names */
    }
    return __real_tutti_cuda_launch(gpu, launch, args);
}

/* On all devices, then on rank 1's. Calls go on while it is withdrawn. */
static void fall(struct scene *s, int round, uint32_t own)
{
    struct rank *rank = s->g.rank;
    const bool is_short = round == 0 || rank->index == 1;
    falls = is_short ? s : NULL, rest = NULL;
    for (int i = 0; i < 6 && !rank->failure[0]; i++) compare(s, &a_sum, EITHER, NULL);
    if (is_short && !rank->failure[0]) wait_rows(s, STATE(GPU_MAP_NONE));
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    compare(s, &a_sum, BY_TILES, NULL);
    const uint32_t peers = round == 0 ? 0 : (uint32_t)rank->n - (is_short ? 1 : 2); /* that still offer two */
    check_mapped(s, own + 2 * peers + (rest != NULL));
    tutti_cuda_free(s->g.gpu, rest);
    wait_scarce(s, false);
}

static void scarce(struct rank *rank)
{
    struct scene s;
    if (!scene_open(rank, &s)) return;
    s.in = device_memory(&s, s.bytes), s.out = device_memory(&s, s.bytes);
    if (!s.in || !s.out) return;
    const uint32_t own = n_mapped(&s), all = own + 2 * ((uint32_t)rank->n - 1);
    for (int round = 0; round < 3 && !rank->failure[0]; round++) {
        show(&s);
        if (!rank->failure[0]) compare(&s, &a_sum, STRAIGHT, NULL);
        check_mapped(&s, all);
        if (round < 2 && !rank->failure[0]) fall(&s, round, own);
    }
    if (!rank->failure[0]) scene_close(&s);
}

/* ---- graphs ---- */

/* What graphs use stays offered where memory is scarce, other calls go by tiles. */
static void replay_scarce(struct scene *s, void *graph)
{
    rest = take_the_rest(s);
    wait_scarce(s, true);
    for (int round = 0; round < 2 && !s->g.rank->failure[0]; round++) {
        compare(s, &a_sum, STRAIGHT, graph);
        if (!s->g.rank->failure[0]) compare(s, &a_sum, BY_TILES, NULL);
    }
    tutti_cuda_free(s->g.gpu, rest);
}

static void replayed(struct rank *rank)
{
    struct scene s;
    void *graph = NULL;
    if (!scene_open(rank, &s)) return;
    s.in = device_memory(&s, s.bytes), s.out = device_memory(&s, s.bytes);
    if (!s.in || !s.out) return;
    RANK_CHECK_OK(rank, tutti_cuda_graph_begin(s.g.gpu, s.g.stream));
    RANK_CHECK_OK(rank, start(&s, &a_sum, "cuda:mapped"));
    RANK_CHECK_OK(rank, tutti_cuda_graph_end(s.g.gpu, s.g.stream, &graph));
    compare(&s, &a_sum, EITHER, graph);
    if (!rank->failure[0]) settle(&s);
    for (int round = 0; round < 3 && !rank->failure[0]; round++) {
        void *other = device_memory(&s, s.bytes);
        compare(&s, &a_sum, STRAIGHT, graph);
        if (!rank->failure[0]) compare(&s, &a_sum, STRAIGHT, NULL);
        tutti_cuda_free(s.g.gpu, other);
    }
    if (!rank->failure[0] && gpu_ranks_stand_in()) replay_scarce(&s, graph);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_cuda_graph_destroy(s.g.gpu, graph);
    scene_close(&s);
}

/* ---- what one rank can not map, or lets nobody map ---- */

static bool refuses;

enum tutti_status __real_tutti_cuda_import_memory(struct tutti_device *gpu, const unsigned char *handle, void **out);
enum tutti_status __wrap_tutti_cuda_import_memory(struct tutti_device *gpu, const unsigned char *handle, void **out);
enum tutti_status __wrap_tutti_cuda_import_memory(struct tutti_device *gpu, const unsigned char *handle, void **out)
{
    if (refuses) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "it is refused");
    return __real_tutti_cuda_import_memory(gpu, handle, out);
}

static void refused(struct rank *rank)
{
    struct scene s;
    if (!scene_open(rank, &s)) return;
    refuses = rank->index == rank->n - 1;
    s.in = device_memory(&s, s.bytes), s.out = device_memory(&s, s.bytes);
    if (!s.in || !s.out) return;
    show(&s);
    every_kind(&s, BY_TILES);
    if (!rank->failure[0]) scene_close(&s);
}

static void private(struct rank *rank)
{
    struct scene s;
    void *memory = NULL;
    if (!scene_open(rank, &s)) return;
    if (rank->index == 1)
        RANK_CHECK_OK(rank, tutti_cuda_alloc_ordered(s.g.gpu, 2 * s.bytes, s.g.stream, &memory));
    else
        memory = device_memory(&s, 2 * s.bytes);
    s.in = memory, s.out = s.in + s.bytes;
    show(&s);
    every_kind(&s, BY_TILES);
    if (!rank->failure[0]) scene_close(&s);
}

static void by(rank_function function)
{
    for (uint32_t n = 2; n <= (gpu_ranks_stand_in() ? 3 : 4); n++) {
        const struct tutti_option option = {"gpu_overlap_blocks", n == 2 ? "2" : "1"};
        const struct ranks_config config = {
            .n = n, .forked = true, .options = &option, .n_options = 1, .deadline_s = 100};
        assert_int_equal(ranks_run(&config, function), 0);
    }
}

static void test_one_allocation(void **state)
{
    (void)state;
    by(one_allocation);
}

static void test_threads(void **state)
{
    (void)state;
    const struct ranks_config config = {.n = 2, .deadline_s = 100};
    assert_int_equal(ranks_run(&config, one_allocation), 0);
}

static void test_renewed(void **state)
{
    (void)state;
    by(renewed);
}

static void test_becomes_a_window(void **state)
{
    (void)state;
    setenv("TUTTI_STANDIN_ONCE", "1", 1);
    by(becomes_a_window);
    unsetenv("TUTTI_STANDIN_ONCE");
}

static void test_mapped_anew(void **state)
{
    (void)state;
    by(mapped_anew);
}

static void test_scarce(void **state)
{
    (void)state;
    if (gpu_ranks_stand_in()) by(scarce); /* others may need a device's memory */
}

static void test_replayed(void **state)
{
    (void)state;
    by(replayed);
}

static void test_refused(void **state)
{
    (void)state;
    if (ranks_can_fork()) by(refused); /* threads import nothing */
}

static void test_private(void **state)
{
    (void)state;
    by(private);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_allocation), cmocka_unit_test(test_renewed),
        cmocka_unit_test(test_mapped_anew),    cmocka_unit_test(test_scarce),
        cmocka_unit_test(test_replayed),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_private),        cmocka_unit_test(test_becomes_a_window),
        cmocka_unit_test(test_threads), /* last: this process uses the driver */
    };
    gpu_ranks_need_device();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
