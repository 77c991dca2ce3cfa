/* SPDX-License-Identifier: BSD-3-Clause */
/* What calls on ordinary memory rest on (backend/gpu/gpu_maps.c). Of allocations of two processes: one that was freed,
 * or mapped anew, is told from what has its address afterwards; who has mapped it still has what was there; and what
 * comes after it is mapped beside it. Then, beside a kernel that waits: how long mapping and unmapping take, and a
 * launch meanwhile. They are printed: a driver may wait there, and the library is ready for that. */

#include "test.h"

#include "cuda/support/rig.h"
#include "cuda/support/segment.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 2 << 20, DEADLINE_S = 60 };

/* In a child: says what is wrong, and ends it. */
#define CHECK(claim)                                                                                                   \
    do {                                                                                                               \
        if (!(claim)) {                                                                                                \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #claim, tutti_last_error()->text);                 \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define CHECK_OK(call) CHECK((call) == TUTTI_OK)

struct side {
    int socket;
    struct tutti_device *gpu;
};
struct offer {
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
    uint64_t offset;
    bool there;
};

static bool in_segment; /* which memory */

static void meet(const struct side *side)
{
    char byte = 1;
    CHECK(write(side->socket, &byte, 1) == 1 && recv(side->socket, &byte, 1, MSG_WAITALL) == 1);
}

/* ---- the owner ---- */

struct memory {
    char *at;
    struct segment segment;
    struct tutti_gpu_range range;
    struct offer offer;
};

static void make(struct side *side, struct memory *m)
{
    if (in_segment) {
        CHECK(segment_open(&m->segment, side->gpu, 3, true));
        m->at = m->segment.base + m->segment.piece - 4096; /* in two of them */
    } else {
        CHECK_OK(tutti_cuda_alloc(side->gpu, BYTES, (void **)&m->at));
    }
}

static void make_anew(struct side *side, struct memory *m)
{
    const char *before = m->at;
    if (in_segment) {
        CHECK(segment_renew(&m->segment, 1));
        return;
    }
    tutti_cuda_free(side->gpu, m->at);
    CHECK(!tutti_cuda_range_is(side->gpu, &m->range)); /* while nothing is there */
    CHECK_OK(tutti_cuda_alloc(side->gpu, BYTES, (void **)&m->at));
    printf("memory that was freed and made again has %s address\n", m->at == before ? "the same" : "another");
    fflush(stdout);
}

static void show(struct side *side, struct memory *m, uint32_t word)
{
    CHECK_OK(tutti_cuda_copy_now(side->gpu, m->at + 4096, &word, sizeof word));
    CHECK_OK(tutti_cuda_range_open(side->gpu, m->at, 8192, &m->range));
    CHECK(m->range.base <= m->at && m->at + 8192 <= m->range.base + m->range.bytes);
    CHECK(tutti_cuda_range_is(side->gpu, &m->range));
    m->offer.there = true;
    CHECK_OK(tutti_cuda_export_memory(side->gpu, m->at, 8192, m->offer.handle, &m->offer.offset));
    const struct offer offer = m->offer;
    CHECK(write(side->socket, &offer, sizeof offer) == sizeof offer);
}

static void owner(struct side *side)
{
    struct memory m = {.at = NULL};
    make(side, &m);
    show(side, &m, 1);
    meet(side); /* it is mapped */
    struct memory before = m;
    make_anew(side, &m);
    CHECK(!tutti_cuda_range_is(side->gpu, &before.range));
    show(side, &m, 2);
    CHECK(!tutti_cuda_range_is(side->gpu, &before.range));
    meet(side);
    tutti_cuda_unexport_memory(before.offer.handle);
    tutti_cuda_range_close(side->gpu, &before.range);
    CHECK(tutti_cuda_range_is(side->gpu, &m.range));
    meet(side);
    tutti_cuda_unexport_memory(m.offer.handle);
    tutti_cuda_range_close(side->gpu, &m.range);
}

/* ---- the other one ---- */

static char *map(struct side *side, void **memory)
{
    struct offer offer;
    CHECK(recv(side->socket, &offer, sizeof offer, MSG_WAITALL) == sizeof offer && offer.there);
    CHECK_OK(tutti_cuda_import_memory(side->gpu, offer.handle, memory));
    return (char *)*memory + offer.offset;
}

static void expect(struct side *side, const char *at, uint32_t word)
{
    uint32_t found = 0;
    CHECK_OK(tutti_cuda_copy_now(side->gpu, &found, at + 4096, sizeof found));
    CHECK(found == word);
}

static void other(struct side *side)
{
    void *first, *second;
    char *before = map(side, &first);
    expect(side, before, 1);
    meet(side);
    char *after = map(side, &second); /* and the first one is still mapped */
    expect(side, before, 1);
    expect(side, after, 2);
    meet(side);
    tutti_cuda_unimport_memory(side->gpu, first);
    expect(side, after, 2);
    meet(side);
    tutti_cuda_unimport_memory(side->gpu, second);
}

/* ---- beside a kernel that waits for another rank ---- */

static double ms_since(uint64_t then)
{
    return (double)(tutti_now_ns() - then) / 1e6;
}

struct mapper {
    struct side *side;
    double map_ms, unmap_ms;
    pthread_t thread;
};

static void *map_and_unmap(void *arg)
{
    struct mapper *m = arg;
    void *memory;
    uint64_t began = tutti_now_ns();
    map(m->side, &memory);
    m->map_ms = ms_since(began);
    began = tutti_now_ns();
    tutti_cuda_unimport_memory(m->side->gpu, memory);
    m->unmap_ms = ms_since(began);
    return NULL;
}

static void launch_meeting(const struct rig *rig, uint32_t r)
{
    struct gpu_meeting x = {.call = rig_call(rig, r)};
    x.call.timeout_ns = 2 * TUTTI_NS_PER_S;
    rig_launch(rig, r, tutti_cuda_kernel(rig->gpus[r], "meet"), 1, 32, &x);
}

static void beside(struct side *side)
{
    const struct rig_shape shape = {.n = 2,
                                    .n_blocks = 1,
                                    .line_bytes = 1024,
                                    .sentinel_bytes = 2048,
                                    .tile_bytes = GPU_LEAST_TILE,
                                    .n_tiles = 2,
                                    .n_devices = 1};
    struct rig rig;
    struct mapper m = {.side = side};
    rig_open(&rig, &shape);
    char *words = rig_alloc(&rig, 1, 64);
    CHECK_OK(tutti_cuda_copy(side->gpu, words, words + 32, 16, rig.streams[1]));
    CHECK_OK(tutti_cuda_stream_sync(side->gpu, rig.streams[1]));
    launch_meeting(&rig, 0);
    CHECK(pthread_create(&m.thread, NULL, map_and_unmap, &m) == 0);
    tutti_sleep_ns(300 * TUTTI_NS_PER_MS);
    const uint64_t began = tutti_now_ns();
    launch_meeting(&rig, 1);
    const double launch_ms = ms_since(began);
    CHECK(pthread_join(m.thread, NULL) == 0);
    rig_await(&rig);
    printf("%s beside a kernel that waits 300 ms: mapped in %.2f ms, unmapped in %.2f ms, a launch then in %.2f ms%s\n",
           in_segment ? "mappings" : "an allocation", m.map_ms, m.unmap_ms, launch_ms,
           rig.control->stop ? ", and the kernel ran out of time" : "");
    fflush(stdout);
    meet(side);
}

static void owner_beside(struct side *side)
{
    struct memory m = {.at = NULL};
    make(side, &m);
    show(side, &m, 1);
    meet(side);
    tutti_cuda_unexport_memory(m.offer.handle);
    tutti_cuda_range_close(side->gpu, &m.range);
}

/* ---- two processes, which have not used the driver before ---- */

static pid_t start(void (*function)(struct side *side), const int ends[2], int which)
{
    struct side side = {.socket = ends[which]};
    const pid_t pid = fork();
    if (pid != 0) return pid;
    close(ends[1 - which]);
    alarm(DEADLINE_S);
    if (tutti_cuda_count() == 0) _exit(77);
    CHECK_OK(tutti_cuda_open(0, &side.gpu));
    function(&side);
    _exit(0);
}

static void run_pair(void (*a)(struct side *side), void (*b)(struct side *side))
{
    int ends[2], status[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const pid_t pids[2] = {start(a, ends, 0), start(b, ends, 1)};
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < 2; i++) assert_int_equal(waitpid(pids[i], &status[i], 0), pids[i]);
    if (WIFEXITED(status[0]) && WEXITSTATUS(status[0]) == 77) {
        puts("skipped: no CUDA device");
        exit(77);
    }
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

static void both(void (*a)(struct side *side), void (*b)(struct side *side))
{
    for (int k = 0; k < 2; k++) {
        in_segment = k > 0;
        run_pair(a, b);
    }
}

static void what_is_freed_is_told_from_what_follows(void **state)
{
    (void)state;
    both(owner, other);
}

static void mapping_beside_a_kernel(void **state)
{
    (void)state;
    both(owner_beside, beside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_freed_is_told_from_what_follows),
                                       cmocka_unit_test(mapping_beside_a_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
