/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments: what is refused on attach, what is left behind (nothing), the meeting table, and what a reader makes of a
 * ring that a broken member wrote into. */

#include "transport/world_test.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const struct backend shm_backend = {"shm, own mappings", "shm", "", true, 0, NULL};

static struct tutti_segment *segment_make(uint32_t n, bool shared)
{
    const struct tutti_segment_config config = {n, 1 << 20, UINT64_C(1) << 26, 0};
    struct tutti_segment *segment = NULL;
    assert_int_equal(tutti_segment_create(&config, shared, &segment), TUTTI_OK);
    return segment;
}

/* ---- layout ---- */

static void layouts_do_not_overlap(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 63, 64, 65, 511, 1000, TUTTI_HOST_MAX_MEMBERS};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
        const uint32_t n = sizes[i];
        for (uint32_t ring = TUTTI_RING_MIN_BYTES; ring <= TUTTI_RING_MAX_BYTES; ring *= 2) {
            const struct tutti_segment_layout l = tutti_segment_layout(n, ring, 77);
            const uint64_t starts[] = {
                TUTTI_SEGMENT_HEADER_BYTES, l.cards, l.members, l.doorbells, l.control, l.rings, l.total};
            const uint64_t needs[] = {0,
                                      (uint64_t)n * TUTTI_CARD_BYTES,
                                      n * sizeof(struct tutti_member),
                                      n * (offsetof(struct tutti_doorbell, ready) + (n + 63) / 64 * 8),
                                      77,
                                      (uint64_t)n * n * (sizeof(struct tutti_ring_shared) + ring)};
            for (size_t k = 0; k + 1 < TUTTI_ARRAY_LEN(starts); k++) {
                assert_true(starts[k] + needs[k] <= starts[k + 1]);
                assert_int_equal(starts[k] % TUTTI_CACHE_LINE, 0);
            }
        }
    }
}

static void rings_share_the_staging(void **state)
{
    (void)state;
    static const struct {
        uint32_t n;
        size_t staging, payload;
    } rows[] = {{1, 4 << 20, 256 << 10}, {2, 4 << 20, 256 << 10},  {8, 4 << 20, 128 << 10}, {9, 4 << 20, 64 << 10},
                {64, 4 << 20, 16 << 10}, {1000, 4 << 20, 4 << 10}, {2, 0, 4 << 10},         {3, 1 << 30, 256 << 10}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        struct world world = test_world_make(&shm_backend, rows[i].n, rows[i].staging, true);
        test_member_open(&world, 0);
        assert_int_equal(world.members[0]->max_payload, rows[i].payload);
        test_world_free(&world);
    }
    struct tutti_segment *segment;
    const struct tutti_segment_config none = {0, 0, 4096, 0}, many = {TUTTI_HOST_MAX_MEMBERS + 1, 0, 4096, 0},
                                      huge = {2, 0, UINT64_MAX, 0};
    assert_int_equal(tutti_segment_create(&none, true, &segment), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_segment_create(&many, true, &segment), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_segment_create(&huge, true, &segment), TUTTI_ERR_ARGUMENT);
}

static void transports_need_their_segment(void **state)
{
    (void)state;
    struct tutti_segment *plain = segment_make(2, false), *shared = segment_make(2, true);
    struct tutti_transport *t;
    assert_int_equal(tutti_transport_open("self", shared, 0, &t), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_transport_open("shm", plain, 0, &t), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_transport_open("tcp", plain, 0, &t), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "tcp"));
    tutti_segment_release(plain);
    tutti_segment_release(shared);
}

/* ---- attach ---- */

/* A copy of the segment's descriptors in which one thing is wrong. */
struct forgery {
    const char *what;
    uint64_t offset; /* in the header */
    uint32_t value;
    int64_t grow_control, grow_heap;
    int seals;
};

static int forge(int from, size_t header_bytes, const struct forgery *f, int64_t grow, bool control)
{
    const int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, lseek(from, 0, SEEK_END) + grow), 0);
    char header[sizeof(struct tutti_segment_header)];
    assert_int_equal(pread(from, header, header_bytes, 0), header_bytes);
    if (control && f->offset > 0) memcpy(header + f->offset - 1, &f->value, 4);
    if (control) assert_int_equal(pwrite(fd, header, header_bytes, 0), header_bytes);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, f->seals), 0);
    return fd;
}

static void attach_refuses_what_it_does_not_understand(void **state)
{
    (void)state;
    enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
#define FIELD(name) (1 + offsetof(struct tutti_segment_header, name))
    static const struct forgery forgeries[] = {
        {"magic", FIELD(magic), 12345, 0, 0, SEALS},
        {"version", FIELD(version), TUTTI_SEGMENT_VERSION + 1, 0, 0, SEALS},
        {"packet", FIELD(packet_bytes), 88, 0, 0, SEALS},
        {"room for control", FIELD(control_bytes), 65536, 0, 0, SEALS},
        {"no members", FIELD(n), 0, 0, 0, SEALS},
        {"more members", FIELD(n), 4, 0, 0, SEALS},
        {"too many members", FIELD(n), 100000, 0, 0, SEALS},
        {"ring not a power of two", FIELD(ring_bytes), 20000, 0, 0, SEALS},
        {"ring too large", FIELD(ring_bytes), 1 << 30, 0, 0, SEALS},
        {"another ring", FIELD(ring_bytes), 1 << 19, 0, 0, SEALS},
        {"heap not a power of two", FIELD(heap_bytes), 4097, 0, 0, SEALS},
        {"another heap", FIELD(heap_bytes), 1 << 20, 0, 0, SEALS},
        {"total", FIELD(total_bytes), 4096, 0, 0, SEALS},
        {"control too small", 0, 0, -65536, 0, SEALS},
        {"control too large", 0, 0, 65536, 0, SEALS},
        {"heap too small", 0, 0, 0, -4096, SEALS},
        {"heap too large", 0, 0, 0, 4096, SEALS},
        {"can shrink", 0, 0, 0, 0, F_SEAL_GROW},
    };
#undef FIELD
    struct tutti_segment *segment = segment_make(3, true), *attached;
    int control, heap;
    tutti_segment_fds(segment, &control, &heap);
    const int n_fds = test_n_fds();
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(forgeries); i++) {
        const struct forgery *f = &forgeries[i];
        int fds[2] = {forge(control, sizeof(struct tutti_segment_header), f, f->grow_control, true),
                      forge(heap, 0, f, f->grow_heap, false)};
        if (tutti_segment_attach(fds[0], fds[1], &attached) != TUTTI_ERR_PROTOCOL) fail_msg("%s: accepted", f->what);
        assert_true(strlen(tutti_last_error()->text) > 20);
        close(fds[0]), close(fds[1]); /* still the caller's */
    }
    const struct forgery none = {.seals = SEALS}; /* the forger's hand is not what is refused */
    assert_int_equal(tutti_segment_attach(forge(control, sizeof(struct tutti_segment_header), &none, 0, true),
                                          forge(heap, 0, &none, 0, false), &attached),
                     TUTTI_OK);
    tutti_segment_release(attached);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(tutti_segment_attach(pipes[0], heap, &attached), TUTTI_ERR_PROTOCOL);
    assert_int_equal(tutti_segment_attach(-1, heap, &attached), TUTTI_ERR_PROTOCOL);
    assert_int_equal(tutti_segment_attach(control, -1, &attached), TUTTI_ERR_PROTOCOL);
    close(pipes[0]), close(pipes[1]);
    assert_int_equal(test_n_fds(), n_fds);
    tutti_segment_release(segment);
}

static void descriptors_are_sealed_and_private(void **state)
{
    (void)state;
    struct tutti_segment *segment = segment_make(2, true);
    int fds[2];
    tutti_segment_fds(segment, &fds[0], &fds[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ftruncate(fds[i], 4096), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(ftruncate(fds[i], INT64_C(1) << 40), -1);
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
    }
    tutti_segment_release(segment);
}

/* ---- nothing is left ---- */

static int names_in_dev_shm(void)
{
    int n = 0;
    DIR *directory = opendir("/dev/shm");
    if (!directory) return 0;
    for (struct dirent *e; (e = readdir(directory));) n += strstr(e->d_name, "tutti") != NULL;
    closedir(directory);
    return n;
}

/* ... and no signal ends the process. */
static void a_limit_of_files_is_a_sentence(void **state)
{
    const struct tutti_segment_config config = {2, 1 << 20, UINT64_C(1) << 26, 0};
    const struct rlimit little = {1 << 20, 1 << 20};
    struct tutti_segment *segment;
    int status;
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (setrlimit(RLIMIT_FSIZE, &little) != 0) _exit(2);
        const bool refused = tutti_segment_create(&config, true, &segment) == TUTTI_ERR_SYSTEM;
        _exit(!refused || !strstr(tutti_last_error()->text, "`ulimit -f unlimited`"));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void nothing_is_left(void **state)
{
    (void)state;
    const int n_fds = test_n_fds(), n_names = names_in_dev_shm();
    for (int killed = 0; killed < 2; killed++) {
        struct world world = test_world_make(&shm_backend, 2, 1 << 20, true);
        test_member_open(&world, 0);
        int ready[2];
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            struct world own = world;
            test_member_open(&own, 1);
            void *p;
            bool right = own.members[1]->memory->ops->alloc(own.members[1]->memory, 100000, &p) == TUTTI_OK &&
                         test_send(own.members[1], 0, 8, 0) == TUTTI_OK && write(ready[1], "x", 1) == 1;
            if (right && killed) pause();
            test_member_close(&own, 1);
            _exit(right ? 0 : 1);
        }
        char byte;
        assert_int_equal(read(ready[0], &byte, 1), 1);
        if (killed) { /* looked at before, through a descriptor that must be closed */
            kill(child, SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (!killed) assert_int_equal(test_send(world.members[0], 1, 8, 0), TUTTI_ERR_PEER_LEFT);
        close(ready[0]), close(ready[1]);
        test_world_free(&world);
        assert_int_equal(test_n_fds(), n_fds);
        assert_int_equal(names_in_dev_shm(), n_names);
    }
}

static void creation_survives_any_failed_allocation(void **state)
{
    (void)state;
    const int n_fds = test_n_fds();
    const struct tutti_segment_config config = {2, 1 << 20, 1 << 20, 0};
    const struct tutti_decorator_options options = {.trace_events = 8};
    for (int shared = 0; shared < 2; shared++) {
        enum tutti_status status = TUTTI_ERR_MEMORY;
        for (uint64_t at = 1; status != TUTTI_OK; at++) {
            struct tutti_segment *segment = NULL;
            struct tutti_transport *bare = NULL, *t = NULL;
            assert_true(at < 50);
            tutti_alloc_fail_at(at);
            status = tutti_segment_create(&config, shared, &segment);
            if (status == TUTTI_OK) status = tutti_transport_open(shared ? "shm" : "self", segment, 0, &bare);
            if (status == TUTTI_OK) status = tutti_transport_decorate(bare, "trace,fault,delay", &options, &t);
            tutti_alloc_fail_at(0);
            assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
            if (t)
                t->ops->close(t);
            else if (bare)
                bare->ops->close(bare);
            else if (segment)
                tutti_segment_release(segment);
            assert_int_equal(test_n_fds(), n_fds);
        }
    }
}

/* ---- the meeting ---- */

static void *arrive_later(void *arg)
{
    tutti_sleep_ns(20 * TUTTI_NS_PER_MS);
    struct tutti_segment *segment = arg;
    *(int *)tutti_segment_card(segment, 2) = 222;
    tutti_segment_arrive(segment, 2);
    return NULL;
}

static void members_meet(void **state)
{
    (void)state;
    struct tutti_segment *segment = segment_make(3, true);
    assert_null(tutti_segment_card(segment, 3));
    *(int *)tutti_segment_card(segment, 0) = 7;
    tutti_segment_arrive(segment, 0);
    tutti_segment_arrive(segment, 1);
    tutti_segment_arrive(segment, 1); /* counts once */
    tutti_segment_arrive(segment, 9); /* is nobody */
    assert_true(tutti_segment_arrived(segment, 1));
    assert_false(tutti_segment_arrived(segment, 2));
    assert_false(tutti_segment_arrived(segment, 9));
    assert_int_equal(tutti_segment_wait_all(segment, tutti_deadline_ns(10 * TUTTI_NS_PER_MS)), TUTTI_ERR_TIMEOUT);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, arrive_later, segment), 0);
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    assert_int_equal(tutti_segment_wait_all(segment, deadline), TUTTI_OK);
    assert_true(tutti_now_ns() < deadline); /* woken */
    assert_int_equal(*(int *)tutti_segment_card(segment, 2), 222);
    pthread_join(thread, NULL);
    tutti_segment_release(segment);
}

/* ---- broken members ---- */

static void garbage_in_a_ring_is_a_sentence(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int round = 0; round < 300; round++) {
        struct world world = test_world_make(&shm_backend, 3, 0, false);
        struct tutti_transport *t = world.members[0];
        struct tutti_ring_shared *ring = tutti_segment_ring(world.segment, 0, 2);
        if (round % 3 == 0) { /* a record that is fine but for a packet that can not be */
            assert_int_equal(test_send(world.members[2], 0, 40, 1), TUTTI_OK);
            ring->data[16 + round % 2] = (char)200; /* version, type */
        } else {
            test_payload((unsigned char *)ring->data, TUTTI_RING_MIN_BYTES, tutti_random64(&random));
            atomic_store(&ring->tail, round % 3 == 1 ? tutti_random64(&random) : 512);
        }
        /* Its bit, and bits of members that do not exist. */
        atomic_store(&tutti_segment_doorbell(world.segment, 0)->ready[0], UINT64_MAX & ~UINT64_C(2));
        assert_int_equal(test_send(world.members[1], 0, 50, 3), TUTTI_OK);
        struct tutti_event arrival;
        enum tutti_status status;
        bool refused = false, came = false;
        while ((status = t->ops->poll(t, &arrival)) != TUTTI_AGAIN) {
            if (status == TUTTI_OK) {
                assert_true(test_arrival_is(&arrival, 1, 50, 3));
                came = true;
                t->ops->release(t);
            } else {
                assert_int_equal(status, TUTTI_ERR_PROTOCOL);
                assert_non_null(strstr(tutti_last_error()->text, "member 2"));
                assert_false(refused); /* said once, not for ever */
                refused = true;
            }
        }
        assert_true(came && refused);
        assert_int_equal(test_send(t, 2, 8, 0), TUTTI_ERR_PROTOCOL);
        test_world_free(&world);
    }
}

static void a_false_name_is_not_believed(void **state)
{
    (void)state;
    struct world world = test_world_make(&shm_backend, 3, 0, false);
    struct tutti_transport *t = world.members[0];
    assert_int_equal(test_send(world.members[2], 0, 40, 1), TUTTI_OK);
    const uint32_t name = 1;
    memcpy(tutti_segment_ring(world.segment, 0, 2)->data + 16 + offsetof(struct tutti_packet, source), &name, 4);
    struct tutti_event arrival;
    assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
    assert_true(test_arrival_is(&arrival, 2, 40, 1));
    t->ops->release(t);
    test_world_free(&world);
}

static void garbage_in_a_head_is_a_sentence(void **state)
{
    (void)state;
    struct world world = test_world_make(&shm_backend, 2, 0, false);
    struct tutti_transport *t = world.members[0];
    atomic_store(&tutti_segment_ring(world.segment, 1, 0)->head, 4242);
    enum tutti_status status;
    while ((status = test_send(t, 1, 4000, 0)) == TUTTI_OK) continue;
    assert_int_equal(status, TUTTI_ERR_PROTOCOL);
    assert_non_null(strstr(tutti_last_error()->text, "member 1"));
    test_world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_do_not_overlap),
        cmocka_unit_test(rings_share_the_staging),
        cmocka_unit_test(transports_need_their_segment),
        cmocka_unit_test(attach_refuses_what_it_does_not_understand),
        cmocka_unit_test(descriptors_are_sealed_and_private),
        cmocka_unit_test(a_limit_of_files_is_a_sentence),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(creation_survives_any_failed_allocation),
        cmocka_unit_test(members_meet),
        cmocka_unit_test(garbage_in_a_ring_is_a_sentence),
        cmocka_unit_test(a_false_name_is_not_believed),
        cmocka_unit_test(garbage_in_a_head_is_a_sentence),
    };
    return cmocka_run_group_tests_name("transport.segment", tests, NULL, NULL);
}
