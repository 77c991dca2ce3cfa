/* SPDX-License-Identifier: BSD-3-Clause */

/* One-sided calls beside messages, over the same network and in turns: puts and gets beside sends of as many bytes, and
 * put_signal and wait_signal beside send and recv, there and back. Prints the median and the best of all blocks. With
 * "cuda" on memory of device 0, which both ranks use.
 *
 *     RANKS_A_HOST=1 build/bin/onesided [blocks [cuda]] */

#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRIPS = 200, PIECES = 32, MOST_BLOCKS = 1000 };

struct plan {
    int blocks;
    bool on_device; /* calls are enqueued, and a barrier waits for them */
};

struct scene {
    struct rank *rank;
    struct tutti_window *window;
    unsigned char *memory, *source;
    uint64_t n_signals;
    size_t bytes;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void by_messages(struct scene *s)
{
    struct rank *rank = s->rank;
    const int32_t other = 1 - rank->index;
    for (int i = 0; i < TRIPS; i++) {
        if (rank->index == 0)
            RANK_CHECK_OK(rank, tutti_send(s->source, s->bytes, TUTTI_UINT8, other, 0, rank->comm, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_recv(s->memory, s->bytes, TUTTI_UINT8, other, 0, rank->comm, NULL, NULL, NULL));
        if (rank->index == 1)
            RANK_CHECK_OK(rank, tutti_send(s->source, s->bytes, TUTTI_UINT8, other, 0, rank->comm, NULL, NULL));
    }
}

static void by_signals(struct scene *s)
{
    struct rank *rank = s->rank;
    const int32_t other = 1 - rank->index;
    const struct tutti_signal_info one = {0, TUTTI_SIGNAL_ADD, 1};
    for (int i = 0; i < TRIPS; i++) {
        const uint64_t n = ++s->n_signals;
        if (rank->index == 0)
            RANK_CHECK_OK(rank, tutti_put_signal(s->source, s->bytes, other, 0, &one, s->window, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_GE, n, other, s->window, NULL, NULL));
        if (rank->index == 1)
            RANK_CHECK_OK(rank, tutti_put_signal(s->source, s->bytes, other, 0, &one, s->window, NULL, NULL));
    }
}

/* All pieces are under way at once. */
static void finish(struct rank *rank, struct tutti_work **works)
{
    for (int i = 0; i < PIECES; i++) {
        if (!works[i]) continue;
        RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
        tutti_work_free(works[i]);
    }
}

static void sends(struct scene *s)
{
    struct rank *rank = s->rank;
    struct tutti_work *works[PIECES] = {NULL};
    for (int i = 0; i < PIECES; i++) {
        enum tutti_status status = rank->index == 0
                                       ? tutti_send(s->source, s->bytes, TUTTI_UINT8, 1, i, rank->comm, NULL, &works[i])
                                       : tutti_recv(s->memory + (size_t)i * s->bytes, s->bytes, TUTTI_UINT8, 0, i,
                                                    rank->comm, NULL, NULL, &works[i]);
        RANK_CHECK_OK(rank, status);
    }
    finish(rank, works);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void puts_all(struct scene *s)
{
    struct rank *rank = s->rank;
    struct tutti_work *works[PIECES] = {NULL};
    for (int i = 0; i < PIECES && rank->index == 0; i++)
        RANK_CHECK_OK(rank, tutti_put(s->source, s->bytes, 1, (size_t)i * s->bytes, s->window, NULL, &works[i]));
    finish(rank, works);
    if (rank->index == 0) RANK_CHECK_OK(rank, tutti_flush(1, s->window, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void gets_all(struct scene *s)
{
    struct rank *rank = s->rank;
    struct tutti_work *works[PIECES] = {NULL};
    for (int i = 0; i < PIECES && rank->index == 0; i++)
        RANK_CHECK_OK(rank, tutti_get(s->source, s->bytes, 1, (size_t)i * s->bytes, s->window, NULL, &works[i]));
    finish(rank, works);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static const struct way {
    const char *name;
    void (*run)(struct scene *s);
    size_t bytes;
    int calls;
} ways[] = {
    {"send, recv", by_messages, 8, TRIPS},    {"put_signal, wait_signal", by_signals, 8, TRIPS},
    {"send, recv", by_messages, 4096, TRIPS}, {"put_signal, wait_signal", by_signals, 4096, TRIPS},
    {"sends", sends, 1 << 16, PIECES},        {"puts", puts_all, 1 << 16, PIECES},
    {"gets", gets_all, 1 << 16, PIECES},      {"sends", sends, 1 << 20, PIECES},
    {"puts", puts_all, 1 << 20, PIECES},      {"gets", gets_all, 1 << 20, PIECES},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static bool memory_take(struct scene *s, bool on_device)
{
    struct rank *rank = s->rank;
    void *memory = NULL, *source = NULL;
    if (!on_device) {
        s->memory = rank_alloc(rank, (size_t)PIECES << 20), s->source = rank_alloc(rank, 1 << 20);
        memset(s->source, rank->index + 1, 1 << 20);
        return true;
    }
    if (tutti_comm_set_device(rank->comm, 0) < 0 || tutti_mem_alloc(rank->comm, (size_t)PIECES << 20, &memory) < 0 ||
        tutti_mem_alloc(rank->comm, 1 << 20, &source) < 0) {
        rank_fail(rank, __FILE__, __LINE__, "no device: %s", tutti_last_error()->text);
        return false;
    }
    s->memory = memory, s->source = source;
    return true;
}

static void measure(struct rank *rank)
{
    const struct plan *plan = rank->arg;
    const int blocks = plan->blocks;
    static double times[WAYS][MOST_BLOCKS];
    struct scene s = {.rank = rank};
    if (!memory_take(&s, plan->on_device)) return;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, s.memory, (size_t)PIECES << 20, NULL, &s.window));
    for (int block = -1; block < blocks; block++) {
        for (int w = 0; w < WAYS; w++) {
            s.bytes = ways[w].bytes;
            RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
            const double start = now_us();
            ways[w].run(&s);
            if (plan->on_device && !rank->failure[0]) RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
            if (rank->failure[0]) return;
            if (block >= 0) times[w][block] = (now_us() - start) / ways[w].calls;
        }
    }
    for (int w = 0; w < WAYS && rank->index == 0; w++) {
        qsort(times[w], (size_t)blocks, sizeof(double), by_size);
        const double median = times[w][blocks / 2], best = times[w][0];
        printf("%-24s %8zu bytes  median %9.2f us  best %9.2f us  %7.3f GB/s\n", ways[w].name, ways[w].bytes, median,
               best, (double)ways[w].bytes / median / 1e3);
    }
    tutti_window_destroy(s.window);
}

int main(int argc, char **argv)
{
    struct plan plan = {argc > 1 ? atoi(argv[1]) : 21, argc > 2 && strcmp(argv[2], "cuda") == 0};
    if (plan.blocks < 1 || plan.blocks > MOST_BLOCKS) return 2;
    const struct ranks_config config = {.n = 2, .forked = true, .arg = &plan, .deadline_s = 600};
    return (int)ranks_run(&config, measure);
}
