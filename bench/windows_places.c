/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls between two ranks, from buffers of the host and of a device to parts of the host and of a device:
 * medians of blocks in which a call is made again and again, with one flush at the end of each.
 *
 *     cc -O2 bench/windows_places.c -Iinclude -Lbuild/lib -ltutti -Wl,-rpath,$PWD/build/lib -o windows_places
 *     tutti run -n 2 -- ./windows_places cuda          # as two hosts: with TUTTI_HOST of its own for each rank
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/accelerator.h>
#include <tutti/tutti.h>

enum { MOST = 16 << 20, BLOCKS = 9, CALLS = 16 };

struct side {
    struct tutti_accelerator *device;
    struct tutti_comm *comm;
    struct tutti_window *window;
    struct tutti_call_options on; /* the stream */
    int32_t me;
};

static void check(enum tutti_status status, const char *what)
{
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", what, tutti_last_error()->text);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void *memory(const struct side *s, int on_device)
{
    void *at = NULL;
    if (on_device)
        check(tutti_accelerator_alloc(s->device, MOST, &at), "memory");
    else if ((at = aligned_alloc(4096, MOST)))
        memset(at, s->me + 1, MOST);
    return at;
}

static int by_size(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Until all that was called has taken effect there. */
static void settle(const struct side *s)
{
    check(tutti_flush(1, s->window, &s->on, NULL), "flush");
    check(tutti_accelerator_stream_sync(s->device, s->on.stream), "stream");
}

/* Microseconds of a call of rank 0. */
static double time_of(const struct side *s, int gets, void *buffer, size_t bytes)
{
    double times[BLOCKS];
    for (int block = -1; block < BLOCKS; block++) {
        const double begin = now_us();
        for (int i = 0; i < CALLS; i++)
            check(gets ? tutti_get(buffer, bytes, 1, 0, s->window, &s->on, NULL)
                       : tutti_put(buffer, bytes, 1, 0, s->window, &s->on, NULL),
                  gets ? "get" : "put");
        settle(s);
        if (block >= 0) times[block] = (now_us() - begin) / CALLS;
    }
    qsort(times, BLOCKS, sizeof *times, by_size);
    return times[BLOCKS / 2];
}

/* Microseconds there and back, by put_signal and wait_signal on a stream of each. */
static double round_trip(const struct side *s, void *buffer, size_t bytes)
{
    const struct tutti_signal_info come = {0, TUTTI_SIGNAL_ADD, 1};
    uint64_t before = 0;
    check(tutti_signal_read(0, &before, s->window, &s->on), "signal_read");
    check(tutti_barrier(s->comm, NULL, NULL), "barrier");
    const double begin = now_us();
    for (uint64_t i = 1; i <= CALLS; i++) {
        if (s->me == 0) check(tutti_put_signal(buffer, bytes, 1, 0, &come, s->window, &s->on, NULL), "put_signal");
        check(tutti_wait_signal(0, TUTTI_COMPARE_GE, before + i, 1 - s->me, s->window, &s->on, NULL), "wait_signal");
        if (s->me == 1) check(tutti_put_signal(buffer, bytes, 0, 0, &come, s->window, &s->on, NULL), "put_signal");
    }
    check(tutti_accelerator_stream_sync(s->device, s->on.stream), "stream");
    return (now_us() - begin) / CALLS;
}

static void measure(struct side *s, int from_device, int to_device)
{
    static const size_t sizes[] = {8, 4096, 65536, 1 << 20, MOST};
    void *part = memory(s, s->me == 1 ? to_device : from_device), *buffer = memory(s, from_device);
    check(tutti_window_create(s->comm, part, MOST, NULL, &s->window), "window_create");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const double both = round_trip(s, buffer, sizes[i]);
        double put = 0, get = 0;
        if (s->me == 0) put = time_of(s, 0, buffer, sizes[i]), get = time_of(s, 1, buffer, sizes[i]);
        check(tutti_barrier(s->comm, NULL, NULL), "barrier");
        if (s->me == 0)
            printf("%-6s to %-6s %9zu B  put %9.1f us %6.2f GB/s  get %9.1f us %6.2f GB/s  there and back %9.1f us\n",
                   from_device ? "device" : "host", to_device ? "device" : "host", sizes[i], put,
                   (double)sizes[i] / put * 1e-3, get, (double)sizes[i] / get * 1e-3, both);
    }
    tutti_window_destroy(s->window);
    check(tutti_barrier(s->comm, NULL, NULL), "barrier");
    if (from_device) tutti_accelerator_free(s->device, buffer);
}

int main(int argc, char **argv)
{
    static const struct tutti_call_options init = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct side s = {.on = init};
    check(tutti_accelerator_open(argc > 1 ? argv[1] : NULL, 0, &s.device), "device");
    config.device = tutti_accelerator_device(s.device);
    check(tutti_comm_create(NULL, &config, &s.comm), "comm_create");
    check(tutti_accelerator_stream_create(s.device, &s.on.stream), "stream");
    s.me = tutti_comm_rank(s.comm);
    if (s.me == 0)
        printf("%s: window_reach of rank 1 is %u\n", tutti_accelerator_name(s.device), tutti_window_reach(s.comm, 1));
    for (int kinds = 0; kinds < 4; kinds++) measure(&s, kinds & 1, kinds >> 1);
    tutti_accelerator_stream_destroy(s.device, s.on.stream);
    tutti_comm_destroy(s.comm);
    tutti_accelerator_close(s.device);
    return 0;
}
