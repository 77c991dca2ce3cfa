/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver layer on a device, beyond the contract of devices (src/device/contract_test.c): facts, pointers, memory of
 * another process, captures, and that a child of a process that uses the driver is told so. */

#include "test.h"

#include "device/cuda/cuda_device.h"
#include "device/cuda/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, BYTES = 3 << 20 };
#define OK(call) assert_int_equal(call, TUTTI_OK)

static struct tutti_device *gpu;
static int exporter = -1; /* the socket of a process that was forked before the driver was opened */

static void fill(unsigned char *bytes, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)tutti_random64(&seed);
}

/* ---- facts ---- */

/* A context has 1 KiB of local memory a thread from the start. The driver gets more when a kernel wants it, for which
 * it may wait until the device is idle, where another kernel may wait for what is launched next. */
static void test_kernels_want_little_local_memory(void **state)
{
    (void)state;
    const struct cuda_gpu *own = cuda_gpu_of(gpu);
    struct tutti_device_scope scope;
    if (own->n_kernels == 0) skip(); /* drivers before 12.4 do not list them */
    OK(tutti_cuda_enter(gpu, &scope));
    for (size_t i = 0; i < own->n_kernels; i++) {
        int bytes = -1;
        assert_int_equal(own->driver->function_attribute(&bytes, CUDA_FUNCTION_LOCAL_BYTES, own->kernels[i].function),
                         CUDA_RESULT_OK);
        if (bytes < 0 || bytes > 512) fail_msg("%s takes %d bytes of local memory", own->kernels[i].name, bytes);
    }
    tutti_cuda_leave(&scope);
}

static void test_a_device_is_opened_once(void **state)
{
    (void)state;
    static const unsigned char nothing[16];
    struct tutti_device *again, *none;
    OK(tutti_cuda_open(0, &again));
    assert_ptr_equal(again, gpu);
    tutti_cuda_close(again);
    assert_int_equal(gpu->ordinal, 0);
    assert_true(gpu->n_sms > 0 && gpu->capability >= 50 && strlen(gpu->name) > 0);
    assert_memory_not_equal(gpu->uuid, nothing, sizeof nothing);
    assert_null(tutti_cuda_absence());
    assert_int_equal(tutti_cuda_open((int32_t)tutti_cuda_count(), &none), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error()->text, "there is no CUDA device"));
    assert_int_equal(tutti_cuda_open(-1, &none), TUTTI_ERR_UNSUPPORTED);
    assert_null(tutti_cuda_kernel(gpu, "no_such_kernel"));
    assert_non_null(tutti_cuda_kernel(gpu, "meet"));
}

static void test_devices_reach_themselves(void **state)
{
    (void)state;
    static const unsigned char unseen[16] = "not of this host";
    OK(tutti_cuda_reach(gpu, gpu));
    assert_true(tutti_cuda_may_reach(gpu, gpu->uuid));
    assert_true(tutti_cuda_may_reach(gpu, unseen));
    for (uint32_t i = 1; i < tutti_cuda_count(); i++) {
        struct tutti_device *other;
        OK(tutti_cuda_open((int32_t)i, &other));
        assert_memory_not_equal(other->uuid, gpu->uuid, sizeof gpu->uuid);
        const bool may = tutti_cuda_may_reach(gpu, other->uuid);
        for (int twice = 0; twice < 2; twice++) /* what is enabled already is no failure */
            assert_int_equal(tutti_cuda_reach(gpu, other), may ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED);
        tutti_cuda_close(other);
    }
}

static void *without_a_context(void *arg)
{
    struct tutti_device_scope outer, inner;
    int32_t *seen = arg;
    seen[0] = tutti_cuda_current();
    if (tutti_cuda_enter(gpu, &outer) < 0) return NULL;
    seen[1] = tutti_cuda_current();
    if (tutti_cuda_enter(gpu, &inner) == TUTTI_OK) tutti_cuda_leave(&inner);
    seen[2] = tutti_cuda_current();
    tutti_cuda_leave(&outer);
    seen[3] = tutti_cuda_current();
    return NULL;
}

static void test_scopes_put_back_what_was_current(void **state)
{
    (void)state;
    int32_t seen[4] = {-9, -9, -9, -9};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, without_a_context, seen), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen[0], -1);
    assert_int_equal(seen[1], 0);
    assert_int_equal(seen[2], 0);
    assert_int_equal(seen[3], -1);
}

/* ---- pointers and memory ---- */

static void test_pointers_are_told_apart(void **state)
{
    (void)state;
    char *device, *second, on_stack = 0;
    void *pinned, *own = malloc(100);
    struct tutti_cuda_block block, inner;
    OK(tutti_cuda_alloc(gpu, BYTES, (void **)&device));
    OK(tutti_cuda_alloc_host(gpu, 4096, &pinned));
    assert_int_equal(tutti_cuda_of(device), 0);
    assert_int_equal(tutti_cuda_of(device + BYTES - 1), 0);
    assert_int_equal(tutti_cuda_of(pinned), TUTTI_DEVICE_PINNED);
    assert_int_equal(tutti_cuda_of(own), -1);
    assert_int_equal(tutti_cuda_of(&on_stack), -1);
    assert_int_equal(tutti_cuda_of(NULL), -1);
    OK(tutti_cuda_block(device, &block));
    OK(tutti_cuda_block(device + BYTES / 2, &inner));
    assert_ptr_equal(block.base, device);
    assert_ptr_equal(inner.base, device);
    assert_true(block.bytes >= BYTES);
    assert_int_equal(block.id, inner.id);
    assert_int_equal(tutti_cuda_block(own, &block), TUTTI_ERR_ARGUMENT);
    tutti_cuda_free(gpu, device);
    OK(tutti_cuda_alloc(gpu, BYTES, (void **)&second));
    OK(tutti_cuda_block(second, &block));
    assert_int_not_equal(block.id, inner.id);
    tutti_cuda_free(gpu, second);
    tutti_cuda_free_host(gpu, pinned);
    free(own);
}

static void test_too_much_memory_is_a_sentence(void **state)
{
    (void)state;
    void *never;
    assert_int_equal(tutti_cuda_alloc(gpu, (size_t)1 << 60, &never), TUTTI_ERR_MEMORY);
    assert_non_null(strstr(tutti_last_error()->text, "cuMemAlloc of 1152921504606846976 bytes on CUDA device 0"));
}

/* ---- captures ---- */

static void test_captures_are_seen_and_replayed(void **state)
{
    (void)state;
    void *stream, *graph, *event, *made, *from, *to;
    unsigned char *device, *host, got[64];
    uint64_t id = 99;
    OK(tutti_cuda_stream_create(gpu, &stream));
    OK(tutti_cuda_event_create(gpu, false, &event));
    OK(tutti_cuda_event_record(gpu, event, stream));
    OK(tutti_cuda_stream_sync(gpu, stream));
    OK(tutti_cuda_alloc(gpu, sizeof got, (void **)&device));
    OK(tutti_cuda_alloc_host(gpu, sizeof got, (void **)&host));
    OK(tutti_cuda_capturing(gpu, stream, &id));
    assert_int_equal(id, 0);
    OK(tutti_cuda_graph_begin(gpu, stream));
    OK(tutti_cuda_capturing(gpu, stream, &id));
    assert_int_not_equal(id, 0);
    OK(tutti_cuda_event_query(gpu, event)); /* what a capture would forbid steps aside of it */
    OK(tutti_cuda_alloc(gpu, 100, &made));
    tutti_cuda_free(gpu, made);
    OK(tutti_cuda_copy(gpu, device, host, sizeof got, stream));
    OK(tutti_cuda_graph_end(gpu, stream, &graph));
    OK(tutti_cuda_event_create(gpu, true, &from));
    OK(tutti_cuda_event_create(gpu, true, &to));
    OK(tutti_cuda_event_record(gpu, from, stream));
    for (uint64_t round = 0; round < 5; round++) {
        fill(host, sizeof got, test_seed() + round);
        OK(tutti_cuda_graph_launch(gpu, graph, stream));
        OK(tutti_cuda_stream_sync(gpu, stream));
        OK(tutti_cuda_copy_now(gpu, got, device, sizeof got));
        assert_memory_equal(got, host, sizeof got);
    }
    OK(tutti_cuda_event_record(gpu, to, stream));
    OK(tutti_cuda_stream_sync(gpu, stream));
    double us = -1;
    OK(tutti_cuda_elapsed(gpu, from, to, &us));
    assert_true(us >= 0);
    tutti_cuda_graph_destroy(gpu, graph);
    tutti_cuda_event_destroy(gpu, event);
    tutti_cuda_event_destroy(gpu, from);
    tutti_cuda_event_destroy(gpu, to);
    tutti_cuda_free(gpu, device);
    tutti_cuda_free_host(gpu, host);
    tutti_cuda_stream_destroy(gpu, stream);
}

/* Two streams of one capture; what the second captures is put behind what the first has: first sets, second reads. */
/* After so many comes what is captured next on the stream. */
static size_t n_before_next(void *stream)
{
    const struct cuda_driver *driver = cuda_gpu_of(gpu)->driver;
    struct tutti_device_scope scope;
    void *graph, *const *nodes;
    const void *edges;
    uint64_t id;
    size_t n = 0;
    int status;
    OK(tutti_cuda_enter(gpu, &scope));
    if (driver->capture_info_edges)
        (void)driver->capture_info_edges(stream, &status, &id, &graph, &nodes, &edges, &n);
    else
        (void)driver->capture_info(stream, &status, &id, &graph, &nodes, &n);
    tutti_cuda_leave(&scope);
    return n;
}

static void test_captured_streams_are_chained(void **state)
{
    (void)state;
    void *a, *b, *fork_event, *join_event, *node = NULL, *graph;
    unsigned char *device, *host;
    uint64_t ids[2] = {0, 0};
    OK(tutti_cuda_stream_create(gpu, &a));
    OK(tutti_cuda_stream_create(gpu, &b));
    OK(tutti_cuda_event_create(gpu, false, &fork_event));
    OK(tutti_cuda_event_create(gpu, false, &join_event));
    OK(tutti_cuda_alloc(gpu, BYTES, (void **)&device));
    OK(tutti_cuda_alloc_host(gpu, 2 * (size_t)BYTES, (void **)&host));
    OK(tutti_cuda_graph_begin(gpu, a));
    OK(tutti_cuda_event_record(gpu, fork_event, a));
    OK(tutti_cuda_stream_wait(gpu, b, fork_event));
    OK(tutti_cuda_capture_mark(gpu, a, &node));
    assert_null(node); /* nothing is captured yet */
    OK(tutti_cuda_capture_after(gpu, b, node));
    OK(tutti_cuda_copy(gpu, device, host, BYTES, a));
    OK(tutti_cuda_capture_mark(gpu, a, &node));
    assert_non_null(node);
    OK(tutti_cuda_capturing(gpu, a, &ids[0]));
    OK(tutti_cuda_capturing(gpu, b, &ids[1]));
    assert_int_equal(ids[0], ids[1]);
    for (int twice = 0; twice < 2; twice++) OK(tutti_cuda_capture_after(gpu, b, node));
    OK(tutti_cuda_copy(gpu, host + BYTES, device, BYTES, b));
    OK(tutti_cuda_event_record(gpu, join_event, b));
    OK(tutti_cuda_stream_wait(gpu, a, join_event));
    assert_int_equal(n_before_next(a), 2);
    OK(tutti_cuda_capture_mark(gpu, a, &node)); /* which stands for both */
    assert_non_null(node);
    assert_int_equal(n_before_next(a), 1);
    OK(tutti_cuda_graph_end(gpu, a, &graph));
    for (uint64_t round = 0; round < 5; round++) {
        fill(host, BYTES, test_seed() + round);
        memset(host + BYTES, 0, BYTES);
        OK(tutti_cuda_graph_launch(gpu, graph, a));
        OK(tutti_cuda_stream_sync(gpu, a));
        assert_memory_equal(host + BYTES, host, BYTES);
    }
    tutti_cuda_graph_destroy(gpu, graph);
    tutti_cuda_event_destroy(gpu, fork_event);
    tutti_cuda_event_destroy(gpu, join_event);
    tutti_cuda_free(gpu, device);
    tutti_cuda_free_host(gpu, host);
    tutti_cuda_stream_destroy(gpu, a);
    tutti_cuda_stream_destroy(gpu, b);
}

/* ---- another process ---- */

/* What the exporter tells; it then waits for a byte, and answers with the first byte of its memory. */
struct offer {
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
    uint64_t offset;
    uint64_t seed;
    bool failed;
};

static void export_to(int socket)
{
    struct offer offer = {.seed = test_seed() ^ 7, .failed = true};
    unsigned char *bytes = malloc(BYTES), *there = NULL, first = 0;
    char go;
    struct tutti_device *mine;
    if (read(socket, &go, 1) != 1) return; /* the parent goes on */
    fill(bytes, BYTES, offer.seed);
    if (tutti_cuda_open(0, &mine) == TUTTI_OK && tutti_cuda_alloc(mine, BYTES, (void **)&there) == TUTTI_OK)
        offer.failed = tutti_cuda_copy_now(mine, there, bytes, BYTES) < 0 ||
                       tutti_cuda_export_memory(mine, there, BYTES, offer.handle, &offer.offset) < 0 ||
                       offer.offset != 0;
    if (write(socket, &offer, sizeof offer) != sizeof offer || offer.failed || read(socket, &go, 1) != 1) return;
    if (tutti_cuda_copy_now(mine, &first, there, 1) == TUTTI_OK && write(socket, &first, 1) == 1)
        tutti_cuda_free(mine, there);
    tutti_cuda_close(mine);
    free(bytes);
}

static void test_memory_of_another_process(void **state)
{
    (void)state;
    struct offer offer;
    unsigned char *mapped, *again, *bytes = malloc(BYTES), *got = malloc(BYTES), first;
    assert_int_equal(write(exporter, "", 1), 1);
    assert_int_equal(read(exporter, &offer, sizeof offer), sizeof offer);
    assert_false(offer.failed);
    OK(tutti_cuda_import_memory(gpu, offer.handle, (void **)&mapped));
    OK(tutti_cuda_import_memory(gpu, offer.handle, (void **)&again));
    assert_ptr_equal(mapped, again);
    tutti_cuda_unimport_memory(gpu, again); /* one use is left */
    fill(bytes, BYTES, offer.seed);
    OK(tutti_cuda_copy_now(gpu, got, mapped, BYTES));
    assert_memory_equal(got, bytes, BYTES);
    first = (unsigned char)~bytes[0];
    OK(tutti_cuda_copy_now(gpu, mapped, &first, 1));
    tutti_cuda_unimport_memory(gpu, mapped);
    assert_int_equal(write(exporter, "", 1), 1);
    assert_int_equal(read(exporter, &got[0], 1), 1);
    assert_int_equal(got[0], first);
    memset(offer.handle, 0xee, sizeof offer.handle);
    assert_true(tutti_cuda_import_memory(gpu, offer.handle, (void **)&mapped) < 0);
    free(bytes);
    free(got);
}

/* What a child finds, as its exit status: the first step that went otherwise, 0 if none. */
static int child_of_a_user(void)
{
    void *pointer;
    struct tutti_device *other;
    if (!tutti_cuda_absence() || !strstr(tutti_cuda_absence(), "there is no CUDA after fork")) return 1;
    if (tutti_cuda_open(0, &other) != TUTTI_ERR_UNSUPPORTED) return 2;
    if (tutti_cuda_alloc(gpu, 1, &pointer) != TUTTI_ERR_UNSUPPORTED) return 3;
    if (!strstr(tutti_last_error()->text, "there is no CUDA after fork")) return 4;
    if (tutti_cuda_current() != -1 || tutti_cuda_of(&pointer) != -1 || tutti_cuda_count() != 0) return 5;
    tutti_cuda_close(gpu);
    return 0;
}

static void test_there_is_no_cuda_after_fork(void **state)
{
    (void)state;
    int status = -1;
    const pid_t child = fork();
    if (child == 0) _exit(child_of_a_user());
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_null(tutti_cuda_absence());
}

/* Before this process touches the driver. */
static pid_t exporter_start(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return -1;
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        export_to(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    exporter = ends[0];
    return child;
}

int main(void)
{
    const pid_t child = exporter_start();
    if (child < 0) return 1;
    if (tutti_cuda_absence()) {
        printf("skipped: no CUDA device (%s)\n", tutti_cuda_absence());
        return SKIPPED;
    }
    if (tutti_cuda_open(0, &gpu) < 0) {
        printf("%s\n", tutti_last_error()->text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_device_is_opened_once),        cmocka_unit_test(test_kernels_want_little_local_memory),
        cmocka_unit_test(test_devices_reach_themselves),       cmocka_unit_test(test_scopes_put_back_what_was_current),
        cmocka_unit_test(test_pointers_are_told_apart),        cmocka_unit_test(test_too_much_memory_is_a_sentence),
        cmocka_unit_test(test_captures_are_seen_and_replayed), cmocka_unit_test(test_captured_streams_are_chained),
        cmocka_unit_test(test_memory_of_another_process),      cmocka_unit_test(test_there_is_no_cuda_after_fork),
    };
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_cuda_close(gpu);
    close(exporter);
    waitpid(child, NULL, 0);
    return n_failed;
}
