/* SPDX-License-Identifier: BSD-3-Clause */

/* The stand-in for CUDA's driver does what the driver does: warps and blocks act together, streams are in order and
 * apart, kernels wait for one another, captures are replayed, memory goes from process to process, and what the driver
 * refuses is refused. */

#include "driver_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static void refused_before(void **state)
{
    (void)state;
    void *out;
    assert_int_equal(cuMemAlloc_v2(&out, 4), NOT_INITIALIZED);
    assert_int_equal(cuInit(0), SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&out, 4), INVALID_CONTEXT);
    assert_int_equal(cuStreamCreate(&out, 0), INVALID_CONTEXT);
    enter(0);
}

static void together(void **state)
{
    (void)state;
    enum { BLOCKS = 9, THREADS = 256 };
    uint32_t *word = words(BLOCKS * THREADS);
    void *on = stream();
    for (int i = 0; i < 3; i++) {
        launch("standin_together", BLOCKS, THREADS, on, (struct words){word, 0, 0});
        assert_int_equal(cuStreamSynchronize(on), SUCCESS);
        for (uint32_t t = 0; t < BLOCKS * THREADS; t++) assert_int_equal(word[t], THREADS * (THREADS - 1) / 2);
        memset(word, 0, BLOCKS * THREADS * 4);
    }
    launch("standin_apart", 1, 128, on, (struct words){word, 1000, 20});
    assert_int_equal(cuStreamSynchronize(on), SUCCESS);
    for (uint32_t turn = 0; turn < 20; turn++)
        for (uint32_t t = 0; t < 64; t++) assert_int_equal(word[turn * 64 + t], 1000 + turn + 63 - t);
    assert_int_equal(cuStreamDestroy_v2(on), SUCCESS);
    assert_int_equal(cuMemFree_v2(word), SUCCESS);
}

static void ping_pong(void **state)
{
    (void)state;
    uint32_t *word = words(2);
    void *a = stream(), *b = stream();
    launch("standin_ping", 1, 64, a, (struct words){word, 0, 1000});
    assert_int_equal(cuStreamQuery(a), NOT_READY);
    launch("standin_ping", 1, 64, b, (struct words){word, 1, 1000});
    assert_int_equal(cuStreamSynchronize(a), SUCCESS);
    assert_int_equal(cuStreamSynchronize(b), SUCCESS);
    assert_int_equal(cuStreamQuery(a), SUCCESS);
    assert_int_equal(word[0], 1000);
    assert_int_equal(word[1], 1000);
    assert_int_equal(cuMemFree_v2(word), SUCCESS);
}

static void *observed;
static int refusal;
static void look(void *arg)
{
    refusal = cuMemAlloc_v2(&observed, 4);
    *(uint32_t *)arg += 5;
}

/* An order of streams that only events and the legacy stream make: (((0 * 1 + 7) * 3 + 1) + 5) * 2. */
static void in_order(void **state)
{
    (void)state;
    uint32_t *word = words(64), *gate = words(1), got = 1;
    void *a = stream(), *b = stream(), *blocking, *event;
    assert_int_equal(cuStreamCreate(&blocking, 0), SUCCESS);
    assert_int_equal(cuEventCreate(&event, 2), SUCCESS);
    assert_int_equal(cuEventQuery(event), SUCCESS);
    assert_int_equal(cuStreamWaitValue32_v2(a, (uintptr_t)gate, 9, 1), SUCCESS);
    launch("standin_step", 1, 64, a, (struct words){word, 1, 7});
    assert_int_equal(cuEventRecord(event, a), SUCCESS);
    assert_int_equal(cuStreamWaitEvent(blocking, event, 0), SUCCESS);
    launch("standin_step", 1, 64, blocking, (struct words){word, 3, 1});
    assert_int_equal(cuLaunchHostFunc(NULL, look, word), SUCCESS);
    launch("standin_step", 1, 1, blocking, (struct words){word, 2, 0});
    assert_int_equal(cuEventQuery(event), NOT_READY);
    assert_int_equal(cuStreamQuery(blocking), NOT_READY);
    assert_int_equal(cuStreamWriteValue32_v2(b, (uintptr_t)gate, 9, 0), SUCCESS);
    assert_int_equal(cuMemcpyAsync(&got, word, 4, blocking), SUCCESS); /* waits: the host's memory is not pinned */
    assert_int_equal(got, 54);
    assert_int_equal(cuEventQuery(event), SUCCESS);
    assert_int_equal(refusal, NOT_PERMITTED);
    assert_int_equal(word[63], 22);
    assert_int_equal(cuStreamDestroy_v2(blocking), SUCCESS);
    assert_int_equal(cuMemFree_v2(word), SUCCESS);
    assert_int_equal(cuMemFree_v2(gate), SUCCESS);
}

static void let_go(void *held)
{
    atomic_store((_Atomic int *)held, 0);
}

/* Two branches that wait for each other, and what comes after both, again and again. */
static void replayed(void **state)
{
    (void)state;
    uint32_t *word = words(2), *sum = words(1);
    void *a = stream(), *b = stream(), *fork, *join, *graph, *ready, *object, *const * tail;
    uint64_t id = 0;
    size_t n = 0;
    int capturing;
    _Atomic int held = 1;
    assert_int_equal(cuEventCreate(&fork, 2), SUCCESS);
    assert_int_equal(cuEventCreate(&join, 2), SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(a, 1), SUCCESS);
    assert_int_equal(cuMemsetD8Async(word, 0, 8, a), SUCCESS);
    assert_int_equal(cuEventRecord(fork, a), SUCCESS);
    assert_int_equal(cuStreamWaitEvent(b, fork, 0), SUCCESS);
    launch("standin_ping", 1, 64, a, (struct words){word, 0, 50});
    launch("standin_ping", 1, 64, b, (struct words){word, 1, 50});
    assert_int_equal(cuStreamGetCaptureInfo_v2(b, &capturing, &id, &graph, &tail, &n), SUCCESS);
    assert_int_equal(capturing, 1);
    assert_true(id != 0 && n == 1);
    assert_int_equal(cuUserObjectCreate(&object, &held, let_go, 1, 1), SUCCESS);
    assert_int_equal(cuGraphRetainUserObject(graph, object, 1, 1), SUCCESS);
    assert_int_equal(cuEventRecord(join, b), SUCCESS);
    assert_int_equal(cuStreamWaitEvent(a, join, 0), SUCCESS);
    launch("standin_step", 1, 1, a, (struct words){sum, 1, 3});
    assert_int_equal(cuStreamEndCapture(a, &graph), SUCCESS);
    assert_int_equal(cuGraphGetNodes(graph, NULL, &n), SUCCESS);
    assert_int_equal(n, 4);
    assert_int_equal(sum[0], 0);
    assert_int_equal(cuGraphInstantiateWithFlags(&ready, graph, 0), SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), SUCCESS);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(cuGraphLaunch(ready, i % 2 ? a : b), SUCCESS);
        if (i == 10) launch("standin_step", 1, 1, b, (struct words){sum, 1, 0});
    }
    assert_int_equal(atomic_load(&held), 1);
    assert_int_equal(cuGraphExecDestroy(ready), SUCCESS);
    assert_int_equal(cuStreamSynchronize(a), SUCCESS);
    assert_int_equal(cuStreamSynchronize(b), SUCCESS);
    for (int i = 0; i < 5000 && atomic_load(&held); i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(atomic_load(&held), 0); /* some time after the last launch */
    assert_int_equal(sum[0], 60);
    assert_int_equal(word[1], 50);
    assert_int_equal(cuMemFree_v2(word), SUCCESS);
    assert_int_equal(cuMemFree_v2(sum), SUCCESS);
}

/* Memory that a graph takes and gives back is at one place in every replay, and goes with the graph. */
static void captured_memory(void **state)
{
    (void)state;
    uint32_t *word = words(1);
    void *a = stream(), *pool, *other, *graph, *ready;
    int device;
    assert_int_equal(cuStreamBeginCapture_v2(a, 1), SUCCESS);
    assert_int_equal(cuMemAllocAsync(&pool, 4, a), SUCCESS);
    assert_int_equal(cuMemsetD8Async(pool, 7, 4, a), SUCCESS);
    assert_int_equal(cuMemcpyAsync(word, pool, 4, a), SUCCESS);
    assert_int_equal(cuMemFreeAsync(pool, a), SUCCESS);
    assert_int_equal(cuStreamEndCapture(a, &graph), SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&ready, graph, 0), SUCCESS);
    for (int i = 0; i < 3; i++, *word = 0) {
        assert_int_equal(cuGraphLaunch(ready, a), SUCCESS);
        assert_int_equal(cuStreamSynchronize(a), SUCCESS);
        assert_int_equal(*word, 0x07070707);
    }
    assert_int_equal(cuGraphDestroy(graph), SUCCESS);
    assert_int_equal(cuPointerGetAttribute(&device, 9, (uintptr_t)pool), SUCCESS);
    assert_int_equal(cuGraphExecDestroy(ready), SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(a), SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&other, 1 << 20), SUCCESS); /* what has gone is given back by then */
    assert_int_equal(cuPointerGetAttribute(&device, 9, (uintptr_t)pool), INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(other), SUCCESS);
    assert_int_equal(cuMemFree_v2(word), SUCCESS);
}

static void *allocate_elsewhere(void *context)
{
    void *out;
    cuCtxSetCurrent(context);
    return (void *)(intptr_t)cuMemAlloc_v2(&out, 4);
}

/* What the driver refuses while something is captured, and what that does to the capture. */
static void refused_in_captures(void **state)
{
    (void)state;
    void *a = stream(), *b = stream(), *event, *graph, *context, *out;
    assert_int_equal(cuEventCreate(&event, 2), SUCCESS);
    assert_int_equal(cuEventRecord(event, b), SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(a, 1), SUCCESS);
    assert_int_equal(cuStreamWaitEvent(a, event, 0), ISOLATION);
    assert_int_equal(cuStreamEndCapture(a, &graph), INVALIDATED);

    assert_int_equal(cuStreamBeginCapture_v2(a, 1), SUCCESS);
    assert_int_equal(cuEventRecord(event, a), SUCCESS);
    assert_int_equal(cuStreamWaitEvent(b, event, 0), SUCCESS);
    launch("standin_step", 1, 1, b, (struct words){NULL, 1, 3});
    assert_int_equal(cuStreamEndCapture(a, &graph), UNJOINED);

    assert_int_equal(cuStreamBeginCapture_v2(a, 1), SUCCESS);
    assert_int_equal(cuStreamQuery(a), UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(a, &graph), INVALIDATED);

    void *blocking;
    assert_int_equal(cuStreamCreate(&blocking, 0), SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(blocking, 2), SUCCESS);
    assert_int_equal(cuLaunchHostFunc(NULL, look, NULL), IMPLICIT);
    assert_int_equal(cuStreamEndCapture(blocking, &graph), INVALIDATED);

    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), SUCCESS);
    const int modes[] = {0, 1, 2}, elsewhere[] = {UNSUPPORTED, SUCCESS, SUCCESS};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *status;
        assert_int_equal(cuStreamBeginCapture_v2(a, modes[i]), SUCCESS);
        assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, context), 0);
        assert_int_equal(pthread_join(thread, &status), 0);
        assert_int_equal((intptr_t)status, elsewhere[i]);
        int mode = 2;
        assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), SUCCESS);
        assert_int_equal(cuMemAlloc_v2(&out, 4), SUCCESS);
        assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), SUCCESS);
        assert_int_equal(cuStreamEndCapture(a, &graph), elsewhere[i] ? INVALIDATED : SUCCESS);
    }
}

static void pointers(void **state)
{
    (void)state;
    uint32_t *word = words(100), local = 0;
    void *pool, *start;
    uint64_t first, second;
    int device = -1;
    bool exportable = false;
    struct ipc_handle handle;
    assert_int_equal(cuPointerGetAttribute(&device, 9, (uintptr_t)&local), INVALID_VALUE);
    assert_int_equal(cuPointerGetAttribute(&device, 9, (uintptr_t)(word + 99)), SUCCESS);
    assert_int_equal(device, 0);
    assert_int_equal(cuPointerGetAttribute(&device, 9, (uintptr_t)(word + 100)), INVALID_VALUE);
    assert_int_equal(cuPointerGetAttribute(&start, 11, (uintptr_t)(word + 7)), SUCCESS);
    assert_ptr_equal(start, word);
    assert_int_equal(cuPointerGetAttribute(&first, 7, (uintptr_t)word), SUCCESS);
    assert_int_equal(cuMemFree_v2(word), SUCCESS);
    word = words(100);
    assert_int_equal(cuPointerGetAttribute(&second, 7, (uintptr_t)word), SUCCESS);
    assert_true(first != second);
    assert_int_equal(cuMemAllocAsync(&pool, 100, NULL), SUCCESS);
    assert_int_equal(cuPointerGetAttribute(&exportable, 10, (uintptr_t)pool), SUCCESS);
    assert_false(exportable);
    assert_int_equal(cuIpcGetMemHandle(&handle, pool), INVALID_VALUE);
    assert_int_equal(cuMemFreeAsync(pool, NULL), SUCCESS);
    assert_int_equal(cuStreamSynchronize(NULL), SUCCESS);
    assert_int_equal(cuPointerGetAttribute(&exportable, 10, (uintptr_t)pool), INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(word), SUCCESS);
}

/* Two allocations behind one another; what is mapped wrongly, touched too early or too late, or given back twice, is
 * refused. */
static void mapped(void **state)
{
    (void)state;
    const struct properties what = {.type = 1, .handle_types = 1, .location_type = 1, .location = 0};
    const struct permission everything = {.location_type = 1, .location = 0, .flags = 3};
    size_t unit = 0, free_before, free_after, bytes;
    uint64_t first, second, at, retained, value = 0;
    struct properties found;
    assert_int_equal(cuMemGetInfo_v2(&free_before, &bytes), SUCCESS);
    assert_int_equal(cuMemGetAllocationGranularity(&unit, &what, 0), SUCCESS);
    assert_true(unit >= 4096);
    assert_int_equal(cuMemCreate(&first, unit + 4096, &what, 0), INVALID_VALUE);
    assert_int_equal(cuMemCreate(&first, unit, &what, 0), SUCCESS);
    assert_int_equal(cuMemCreate(&second, 2 * unit, &what, 0), SUCCESS);
    assert_int_equal(cuMemAddressReserve(&at, 4 * unit, 0, 0, 0), SUCCESS);
    assert_int_equal(cuMemMap(at, 2 * unit, 0, first, 0), INVALID_VALUE); /* larger than it is */
    assert_int_equal(cuMemMap(at + 4096, unit, 0, first, 0), INVALID_VALUE);
    assert_int_equal(cuMemMap(at, unit, 0, first, 0), SUCCESS);
    assert_int_equal(cuMemMap(at, 2 * unit, 0, second, 0), INVALID_VALUE); /* something is there */
    assert_int_equal(cuMemMap(at + 3 * unit, 2 * unit, 0, second, 0), INVALID_VALUE);
    assert_int_equal(cuMemMap(at + unit, 2 * unit, 0, second, 0), SUCCESS);
    assert_int_equal(cuMemsetD8Async((void *)at, 1, 8, NULL), INVALID_VALUE); /* no access yet */
    assert_int_equal(cuMemSetAccess(at, 2 * unit, &everything, 1), INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(at, 4 * unit, &everything, 1), INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(at, 3 * unit, &everything, 1), SUCCESS);
    assert_int_equal(cuMemsetD8Async((void *)(at + unit - 4), 0x5a, 8, NULL), SUCCESS); /* across both */
    assert_int_equal(cuMemsetD8Async((void *)(at + 3 * unit - 4), 0x5a, 8, NULL), INVALID_VALUE);
    assert_int_equal(cuMemcpyAsync(&value, (void *)(at + unit - 4), 8, NULL), SUCCESS);
    assert_int_equal(cuStreamSynchronize(NULL), SUCCESS);
    assert_true(value == UINT64_C(0x5a5a5a5a5a5a5a5a));
    assert_int_equal(cuMemRetainAllocationHandle(&retained, (void *)(at + 3 * unit - 1)), SUCCESS);
    assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&found, retained), SUCCESS);
    assert_int_equal(found.handle_types, 1);
    assert_int_equal(cuMemRelease(retained), SUCCESS);
    assert_int_equal(cuMemRelease(first), SUCCESS);
    assert_int_equal(cuMemRelease(first), INVALID_VALUE);
    assert_int_equal(cuMemRelease(second), SUCCESS);
    assert_int_equal(cuMemFree_v2((void *)at), INVALID_VALUE);
    assert_int_equal(cuMemUnmap(at, 2 * unit), INVALID_VALUE); /* a part of the second */
    assert_int_equal(cuMemAddressFree(at, 4 * unit), INVALID_VALUE);
    assert_int_equal(cuMemUnmap(at, unit), SUCCESS);
    assert_int_equal(cuMemsetD8Async((void *)at, 1, 8, NULL), INVALID_VALUE);
    assert_int_equal(cuMemRetainAllocationHandle(&retained, (void *)at), INVALID_VALUE);
    assert_int_equal(cuMemUnmap(at + unit, 2 * unit), SUCCESS);
    assert_int_equal(cuMemAddressFree(at, 3 * unit), INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(at, 4 * unit), SUCCESS);
    assert_int_equal(cuMemGetInfo_v2(&free_after, &bytes), SUCCESS);
    assert_int_equal(free_after, free_before);
}

/* What a descriptor stands for is there as long as the descriptor is; without the type there is none. */
static void descriptors(void **state)
{
    (void)state;
    struct properties what = {.type = 1, .handle_types = 1, .location_type = 1, .location = 1};
    const struct permission own = {.location_type = 1, .location = 0, .flags = 3},
                            other = {.location_type = 1, .location = 1, .flags = 3};
    size_t unit;
    uint64_t handle, at, word = 0, handles[2];
    unsigned long long access = 1;
    int fd = -1;
    assert_int_equal(cuMemGetAllocationGranularity(&unit, &what, 1), SUCCESS);
    assert_int_equal(cuMemCreate(&handle, unit, &what, 0), SUCCESS);
    assert_int_equal(cuMemExportToShareableHandle(&fd, handle, 1, 0), SUCCESS);
    assert_int_equal(cuMemRelease(handle), SUCCESS);
    assert_int_equal(cuMemImportFromShareableHandle(&handles[0], (void *)(intptr_t)fd, 1), SUCCESS);
    assert_int_equal(cuMemImportFromShareableHandle(&handles[1], (void *)(intptr_t)fd, 1), SUCCESS);
    assert_int_equal(close(fd), 0);
    assert_int_equal(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1), INVALID_VALUE);
    assert_int_equal(cuMemAddressReserve(&at, 2 * unit, unit, 0, 0), SUCCESS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuMemMap(at + (uint64_t)i * unit, unit, 0, handles[i], 0), SUCCESS);
        assert_int_equal(cuMemRelease(handles[i]), SUCCESS);
    }
    assert_int_equal(cuMemSetAccess(at, 2 * unit, &other, 1), SUCCESS);
    assert_int_equal(cuMemsetD8Async((void *)at, 3, 8, NULL), INVALID_VALUE); /* this is not that device */
    assert_int_equal(cuMemGetAccess(&access, &own, at + unit), SUCCESS);      /* begins with the location */
    assert_int_equal(access, 0);
    assert_int_equal(cuMemSetAccess(at, 2 * unit, &own, 1), SUCCESS);
    assert_int_equal(cuMemGetAccess(&access, &own, at + unit), SUCCESS);
    assert_int_equal(access, 3);
    assert_int_equal(cuMemSetAccess(at, unit, &own, 1), ALREADY_MAPPED);
    assert_int_equal(cuMemsetD8Async((void *)at, 3, 8, NULL), SUCCESS);
    assert_int_equal(cuMemcpyAsync(&word, (void *)(at + unit), 8, NULL), SUCCESS); /* the same memory */
    assert_int_equal(cuStreamSynchronize(NULL), SUCCESS);
    assert_true(word == UINT64_C(0x0303030303030303));
    assert_int_equal(cuMemUnmap(at, 2 * unit), SUCCESS);
    assert_int_equal(cuMemAddressFree(at, 2 * unit), SUCCESS);
    what.handle_types = 0;
    assert_int_equal(cuMemCreate(&handle, unit, &what, 0), SUCCESS);
    assert_int_equal(cuMemExportToShareableHandle(&fd, handle, 1, 0), NOT_PERMITTED);
    assert_int_equal(cuMemRelease(handle), SUCCESS);
}

/* Kernels of two processes wait for each other in memory that one of them exported. `pipes`: here, there. */
static void be_there(const int pipes[2])
{
    struct ipc_handle handle;
    void *word;
    enter(1);
    assert_int_equal(read(pipes[0], &handle, sizeof handle), sizeof handle);
    assert_int_equal(cuIpcOpenMemHandle_v2(&word, handle, 1), SUCCESS);
    void *on = stream();
    launch("standin_ping", 1, 64, on, (struct words){word, 1, 200});
    assert_int_equal(cuStreamSynchronize(on), SUCCESS);
    assert_int_equal(cuIpcCloseMemHandle(word), SUCCESS);
    assert_int_equal(cuIpcOpenMemHandle_v2(&word, handle, 1), SUCCESS);
    assert_int_equal(write(pipes[1], "1", 1), 1);
    char byte;
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_int_equal(cuIpcCloseMemHandle(word), SUCCESS);
    assert_true(cuIpcOpenMemHandle_v2(&word, handle, 1) != SUCCESS); /* freed meanwhile */
}

static void be_here(const int pipes[2])
{
    struct ipc_handle handle;
    void *out;
    char byte;
    enter(0);
    uint32_t *word = words(1000);
    assert_int_equal(cuIpcGetMemHandle(&handle, word), SUCCESS);
    assert_int_equal(cuIpcOpenMemHandle_v2(&out, handle, 1), INVALID_CONTEXT);
    assert_int_equal(write(pipes[1], &handle, sizeof handle), sizeof handle);
    void *on = stream();
    launch("standin_ping", 1, 64, on, (struct words){word, 0, 200});
    assert_int_equal(cuStreamSynchronize(on), SUCCESS);
    assert_int_equal(word[1], 200);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_int_equal(cuMemFree_v2(word), SUCCESS);
    assert_int_equal(write(pipes[1], "1", 1), 1);
}

static void across_processes(void **state)
{
    (void)state;
    in_two_processes((void (*const[])(const int[2])){be_here, be_there});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(across_processes), cmocka_unit_test(refused_before),
        cmocka_unit_test(together),         cmocka_unit_test(ping_pong),
        cmocka_unit_test(in_order),         cmocka_unit_test(replayed),
        cmocka_unit_test(captured_memory),  cmocka_unit_test(refused_in_captures),
        cmocka_unit_test(pointers),         cmocka_unit_test(mapped),
        cmocka_unit_test(descriptors),
    };
    return take_arguments(argc, argv) ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
}
