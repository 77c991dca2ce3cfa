/* SPDX-License-Identifier: BSD-3-Clause */

/* Multicast of the stand-in: what is stored comes to the memory of all devices, of one process and of several; who is
 * not there is waited for, and who has gone is not. */

#include "driver_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { PIECE = 2 << 20, PIECE_WORDS = PIECE / 4 }; /* what is bound */

static int n_descriptors(void)
{
    int n = 0;
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all)) n++;
    closedir(all);
    return n;
}

static uint64_t memory_on(int device, size_t bytes)
{
    const struct properties what = {.type = 1, .handle_types = 1, .location_type = 1, .location = device};
    uint64_t made;
    assert_int_equal(cuMemCreate(&made, bytes, &what, 0), SUCCESS);
    return made;
}

static uint32_t *map_for(int device, uint64_t handle, size_t bytes)
{
    const struct permission everything = {.location_type = 1, .location = device, .flags = 3};
    uint64_t at;
    assert_int_equal(cuMemAddressReserve(&at, bytes, 0, 0, 0), SUCCESS);
    assert_int_equal(cuMemMap(at, bytes, 0, handle, 0), SUCCESS);
    assert_int_equal(cuMemSetAccess(at, bytes, &everything, 1), SUCCESS);
    return (uint32_t *)(uintptr_t)at;
}

static void unmap(uint32_t *at, size_t bytes)
{
    assert_int_equal(cuMemUnmap((uintptr_t)at, bytes), SUCCESS);
    assert_int_equal(cuMemAddressFree((uintptr_t)at, bytes), SUCCESS);
}

static void cast(uint32_t *all, uint32_t n, uint32_t value)
{
    launch("standin_cast", (n + 127) / 128, 128, NULL, (struct words){all, value, n});
    assert_int_equal(cuStreamSynchronize(NULL), SUCCESS);
}

static void expect(const uint32_t *word, uint32_t n, uint32_t value)
{
    for (uint32_t i = 0; i < n; i++) assert_int_equal(word[i], value + i);
}

/* Both store; of a faulty machine device 1 gets nothing; or its process ends instead of storing. */
static enum { WELL, FAULTY, ENDS } scene;

static pid_t meet(const int pipes[2])
{
    pid_t own = getpid(), other;
    assert_int_equal(write(pipes[1], &own, sizeof own), sizeof own);
    assert_int_equal(read(pipes[0], &other, sizeof other), sizeof other);
    return other;
}

static uint64_t object_between(int device, const int pipes[2])
{
    const struct multicast_properties what = {.n_devices = 2, .bytes = PIECE, .handle_types = 1};
    uint64_t object;
    char path[64];
    int fd = -1;
    if (device == 0) {
        assert_int_equal(cuMulticastCreate(&object, &what), SUCCESS);
        assert_int_equal(cuMemExportToShareableHandle(&fd, object, 1, 0), SUCCESS);
        assert_int_equal(write(pipes[1], &fd, sizeof fd), sizeof fd);
        meet(pipes);
    } else {
        assert_int_equal(read(pipes[0], &fd, sizeof fd), sizeof fd);
        snprintf(path, sizeof path, "/proc/%d/fd/%d", meet(pipes), fd);
        fd = open(path, O_RDWR);
        assert_int_equal(cuMemImportFromShareableHandle(&object, (void *)(intptr_t)fd, 1), SUCCESS);
    }
    meet(pipes);
    assert_int_equal(close(fd), 0);
    return object;
}

/* Each sees one device, as its first. */
static void cast_from(int device, const int pipes[2])
{
    enum { N = 1024 };
    setenv("CUDA_VISIBLE_DEVICES", device ? "1" : "0", 1);
    if (scene == FAULTY) setenv("TUTTI_STANDIN_MULTICAST", "2", 1);
    enter(0);
    const int n_before = n_descriptors();
    const uint64_t object = object_between(device, pipes), memory = memory_on(0, PIECE);
    assert_int_equal(cuMulticastAddDevice(object, 0), SUCCESS);
    assert_int_equal(cuMulticastBindMem(object, 0, memory, 0, PIECE, 0), SUCCESS);
    uint32_t *own = map_for(0, memory, PIECE), *all = map_for(0, object, PIECE);
    memset(own, 0, 8 * N);
    const pid_t other = meet(pipes);
    if (scene == ENDS && device == 1) _exit(0);
    if (scene == ENDS) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/2", other);
        while (access(path, F_OK) == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cast(all + device * N, N, 1000);
    if (scene != ENDS) meet(pipes);
    for (int from = 0; from < (scene == ENDS ? 1 : 2); from++) {
        if (scene != FAULTY || device == 0) expect(own + from * N, N, 1000);
    }
    if (scene == FAULTY && device == 1) assert_true(own[0] == 0 && own[N] == 0);
    if (device == 0) assert_int_equal(cuMulticastUnbind(object, 0, 0, PIECE), SUCCESS);
    assert_int_equal(cuMemRelease(memory), SUCCESS);
    assert_int_equal(cuMemRelease(object), SUCCESS);
    unmap(all, PIECE);
    unmap(own, PIECE);
    assert_int_equal(n_descriptors(), n_before);
}

static void cast_here(const int pipes[2])
{
    cast_from(0, pipes);
}
static void cast_there(const int pipes[2])
{
    cast_from(1, pipes);
}

static void across_processes(void **state)
{
    (void)state;
    for (scene = WELL; scene <= ENDS; scene++) in_two_processes((void (*const[])(const int[2])){cast_here, cast_there});
}

/* Stores where there is no multicast, or not on all devices: the process ends, with a word about it. */
static void cast_wrongly(void **state)
{
    (void)state;
    for (int place = 0; place < 2; place++) {
        int said[2], status;
        char text[256] = "";
        assert_int_equal(pipe(said), 0);
        const pid_t child = fork();
        if (child == 0) {
            const struct multicast_properties what = {.n_devices = 1, .bytes = PIECE};
            uint64_t object;
            dup2(said[1], 2);
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
            enter(0);
            assert_int_equal(cuMulticastCreate(&object, &what), SUCCESS);
            assert_int_equal(cuMulticastAddDevice(object, 0), SUCCESS);
            cast(place ? map_for(0, object, PIECE) : words(8), 8, 1);
            _exit(0);
        }
        close(said[1]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(read(said[0], text, sizeof text - 1) > 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        assert_non_null(strstr(text, place ? "no memory of device 0 is bound" : "is no multicast address"));
        close(said[0]);
    }
}

/* What waits for all devices: binding, or mapping where there is an address. */
struct waiting {
    uint64_t object, memory, at;
    void *context;
    pthread_t thread;
    _Atomic int status;
};
static void *wait_elsewhere(void *arg)
{
    struct waiting *x = arg;
    cuCtxSetCurrent(x->context);
    atomic_store(&x->status, x->at ? cuMemMap(x->at, PIECE, 0, x->object, 0)
                                   : cuMulticastBindMem(x->object, 0, x->memory, 0, 2 * PIECE, 0));
    return NULL;
}
static void begin(struct waiting *x)
{
    x->status = -1;
    assert_int_equal(cuDevicePrimaryCtxRetain(&x->context, 0), SUCCESS);
    assert_int_equal(pthread_create(&x->thread, NULL, wait_elsewhere, x), 0);
}
static void end(struct waiting *x)
{
    assert_int_equal(pthread_join(x->thread, NULL), 0);
    assert_int_equal(atomic_load(&x->status), SUCCESS);
}

/* An object of both devices, with all of device 0's memory: binding and mapping wait until both are there. */
static uint64_t object_of_two(uint64_t memory)
{
    const struct multicast_properties what = {.n_devices = 2, .bytes = 2 * PIECE, .handle_types = 1};
    uint64_t object, at;
    assert_int_equal(cuMulticastCreate(&object, &what), SUCCESS);
    assert_int_equal(cuMulticastAddDevice(object, 0), SUCCESS);
    assert_int_equal(cuMulticastAddDevice(object, 0), INVALID_VALUE);
    assert_int_equal(cuMemAddressReserve(&at, PIECE, 0, 0, 0), SUCCESS);
    struct waiting binds = {.object = object, .memory = memory}, maps = {.object = object, .at = at};
    begin(&binds);
    begin(&maps);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    assert_true(atomic_load(&binds.status) == -1 && atomic_load(&maps.status) == -1);
    assert_int_equal(cuMulticastAddDevice(object, 1), SUCCESS);
    end(&binds);
    end(&maps);
    unmap((uint32_t *)(uintptr_t)at, PIECE);
    return object;
}

static void multicast_refused(uint64_t object, const uint64_t memory[2])
{
    struct multicast_properties what = {.n_devices = 1, .bytes = PIECE + 4096};
    uint64_t alone;
    assert_int_equal(cuMulticastCreate(&alone, &what), INVALID_VALUE);
    what.bytes = PIECE;
    assert_int_equal(cuMulticastCreate(&alone, &what), SUCCESS);
    assert_int_equal(cuMulticastAddDevice(alone, 0), SUCCESS);
    assert_int_equal(cuMulticastAddDevice(alone, 1), INVALID_VALUE);
    assert_int_equal(cuMulticastBindMem(alone, 0, memory[1], 0, PIECE, 0), INVALID_DEVICE);
    assert_int_equal(cuMulticastBindMem(alone, 0, memory[0], 0, 2 * PIECE, 0), INVALID_VALUE); /* larger than it is */
    assert_int_equal(cuMemRelease(alone), SUCCESS);
    const size_t wrong[][3] = {{4096, 0, PIECE}, {0, 4096, PIECE}, {0, 0, 4096}, {0, 0, 0}, {0, 2 * PIECE, PIECE}};
    for (int i = 0; i < 5; i++)
        assert_int_equal(cuMulticastBindMem(object, wrong[i][0], memory[1], wrong[i][1], wrong[i][2], 0),
                         INVALID_VALUE);
    assert_int_equal(cuMulticastBindMem(object, PIECE, memory[0], 0, PIECE, 0), INVALID_VALUE); /* something is there */
    assert_int_equal(cuMulticastBindMem(memory[0], 0, memory[1], 0, PIECE, 0), INVALID_VALUE);
    assert_int_equal(cuMulticastUnbind(object, 0, 0, PIECE), INVALID_VALUE); /* a part */
    assert_int_equal(cuMulticastUnbind(object, 1, 0, PIECE), INVALID_VALUE);
}

static void supported(void **state)
{
    (void)state;
    const struct multicast_properties what = {.n_devices = 2, .bytes = PIECE};
    int is = 0;
    size_t bytes = 0;
    uint64_t object;
    enter(0);
    for (int option = 0; option < 2; option++) {
        assert_int_equal(cuMulticastGetGranularity(&bytes, &what, option), SUCCESS);
        assert_int_equal(bytes, PIECE);
    }
    assert_int_equal(cuDeviceGetAttribute(&is, 132, 1), SUCCESS);
    assert_int_equal(is, 1);
    setenv("TUTTI_STANDIN_MULTICAST", "0", 1);
    assert_int_equal(cuDeviceGetAttribute(&is, 132, 1), SUCCESS);
    assert_int_equal(is, 0);
    assert_int_equal(cuMulticastCreate(&object, &what), NOT_SUPPORTED);
    unsetenv("TUTTI_STANDIN_MULTICAST");
}

/* Device 1's pieces are bound the other way round at first. */
static void multicast(void **state)
{
    (void)state;
    enum { N = 128, LAST = PIECE_WORDS - N / 2 };
    int fd = -1, pipes[2];
    size_t free_before, free_after, bytes;
    const int n_before = n_descriptors();
    assert_int_equal(cuMemGetInfo_v2(&free_before, &bytes), SUCCESS);
    const uint64_t memory[2] = {memory_on(0, 2 * PIECE), memory_on(1, 2 * PIECE)}, object = object_of_two(memory[0]);
    uint64_t again;
    multicast_refused(object, memory);
    assert_int_equal(cuMulticastBindMem(object, 0, memory[1], PIECE, PIECE, 0), SUCCESS);
    assert_int_equal(cuMulticastBindMem(object, PIECE, memory[1], 0, PIECE, 0), SUCCESS);
    uint32_t *all = map_for(1, object, 2 * PIECE), *first = map_for(0, memory[0], 2 * PIECE);
    cast(all + LAST, N, 7); /* some before device 1's memory is mapped */
    uint32_t *second = map_for(1, memory[1], 2 * PIECE);
    cast(all + LAST, N, 7);
    expect(first + LAST, N, 7);
    expect(second + PIECE_WORDS + LAST, N / 2, 7);
    expect(second, N / 2, 7 + N / 2);
    assert_int_equal(pipe(pipes), 0);
    assert_true(write(pipes[1], all, 4) == -1 && errno == EFAULT); /* no address for other loads */
    assert_int_equal(close(pipes[0]) | close(pipes[1]), 0);

    assert_int_equal(cuMemExportToShareableHandle(&fd, object, 1, 0), SUCCESS);
    assert_int_equal(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1), SUCCESS);
    assert_int_equal(close(fd), 0);
    assert_int_equal(cuMulticastUnbind(again, 1, 0, PIECE), SUCCESS);
    assert_int_equal(cuMulticastUnbind(again, 1, 0, PIECE), INVALID_VALUE);
    assert_int_equal(cuMulticastBindMem(again, 0, memory[1], 0, PIECE, 0), SUCCESS);
    cast(all, N, 9);
    expect(first, N, 9);
    expect(second, N, 9);
    for (int i = 0; i < 2; i++) assert_int_equal(cuMemRelease(memory[i]), SUCCESS);
    unmap(second, 2 * PIECE);
    cast(all, N, 11); /* it is bound, still */
    expect(first, N, 11);
    assert_int_equal(cuMulticastUnbind(again, 0, 0, 2 * PIECE), SUCCESS);
    unmap(first, 2 * PIECE);
    assert_int_equal(n_descriptors(), n_before + 2); /* the object, what is bound */
    assert_int_equal(cuMemRelease(object), SUCCESS);
    assert_int_equal(cuMemRelease(again), SUCCESS);
    unmap(all, 2 * PIECE);
    assert_int_equal(n_descriptors(), n_before);
    assert_int_equal(cuMemGetInfo_v2(&free_after, &bytes), SUCCESS);
    assert_int_equal(free_after, free_before);
}

/* Kernels at once, while what they do not use comes and goes. */
static void in_turns(void **state)
{
    (void)state;
    enum { N = 500 };
    const uint64_t memory[2] = {memory_on(0, 2 * PIECE), memory_on(1, 2 * PIECE)}, object = object_of_two(memory[0]);
    struct {
        uint32_t *all, *own, *note, me, n;
    } x[2];
    uint32_t *note = words(1);
    void *on[2];
    assert_int_equal(cuMulticastBindMem(object, 0, memory[1], 0, PIECE, 0), SUCCESS);
    for (uint32_t me = 0; me < 2; me++) {
        uint32_t *own = map_for((int)me, memory[me], 2 * PIECE);
        own[0] = own[1] = 0;
        x[me].all = map_for((int)me, object, 2 * PIECE);
        x[me].own = own;
        x[me].note = note;
        x[me].me = me;
        x[me].n = N;
        on[me] = stream();
    }
    for (int me = 0; me < 2; me++) launch_with("standin_turns", 1, 64, on[me], &x[me]);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(cuMulticastBindMem(object, PIECE, memory[1], PIECE, PIECE, 0), SUCCESS);
        unmap(map_for(0, memory[0], PIECE), PIECE);
        assert_int_equal(cuMulticastUnbind(object, 1, PIECE, PIECE), SUCCESS);
    }
    for (int me = 0; me < 2; me++) assert_int_equal(cuStreamSynchronize(on[me]), SUCCESS);
    for (int me = 0; me < 2; me++) assert_true(x[me].own[0] == 2 * N - 1 && x[me].own[1] == 2 * N);
    assert_int_equal(note[0], 2 * N);
    assert_int_equal(cuMemRelease(object), SUCCESS); /* unbinds at last */
    for (int me = 0; me < 2; me++) {
        unmap(x[me].own, 2 * PIECE);
        unmap(x[me].all, 2 * PIECE);
        assert_int_equal(cuMemRelease(memory[me]), SUCCESS);
        assert_int_equal(cuStreamDestroy_v2(on[me]), SUCCESS);
    }
    assert_int_equal(cuMemFree_v2(note), SUCCESS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(across_processes), /* the first ones in processes that have not used the driver before */
        cmocka_unit_test(cast_wrongly),     cmocka_unit_test(supported),
        cmocka_unit_test(multicast),        cmocka_unit_test(in_turns),
    };
    return take_arguments(argc, argv) ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
}
