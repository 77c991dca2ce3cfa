/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ranks of tests/hosts do with windows; the words of its output are those of job.c.
 *
 *     ring   rounds of puts of many sizes to all ranks, with signals, gets, and atomics that add up, all checked
 *     fail   for a long time: even ranks wait for a signal of the last rank, the others put at it; then the survivors
 *            shrink, and go on with a new window */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { MOST_S = 280, SLICE = 200000, ROUNDS = 25, RANKS_MOST = 16 };

struct part {
    unsigned char slices[RANKS_MOST][SLICE]; /* one for each rank that puts there */
    _Alignas(64) uint64_t counter;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void wrong(const char *what)
{
    printf("wrong %s: %s\n", what, tutti_last_error()->text);
    exit(1);
}

static void check(enum tutti_status status, const char *what)
{
    if (status < 0) wrong(what);
}

static void fill(unsigned char *data, size_t bytes, int32_t from, int32_t to, int round)
{
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)((size_t)(from * 7 + to * 3 + round) + i);
}

static size_t bytes_in(int round, int32_t from, int32_t to)
{
    static const size_t sizes[] = {1, 8, 100, 5000, 70001, SLICE};
    return sizes[(size_t)(round + from + to) % 6];
}

/* One round: all put at all, and tell them; who was told looks, reads a slice back, and counts at rank 0. */
static void ring_round(struct tutti_window *window, struct part *part, int32_t rank, int32_t n, int round)
{
    static unsigned char data[SLICE], expected[SLICE];
    uint64_t before;
    for (int32_t k = 0; k < n; k++) {
        const int32_t to = (rank + k) % n;
        const struct tutti_signal_info come = {(uint32_t)rank, TUTTI_SIGNAL_ADD, 1};
        const size_t bytes = bytes_in(round, rank, to), at = offsetof(struct part, slices[rank]);
        fill(data, bytes, rank, to, round);
        check(tutti_put_signal(data, bytes, to, at, &come, window, NULL, NULL), "put_signal");
    }
    for (int32_t from = 0; from < n; from++) {
        const size_t bytes = bytes_in(round, from, rank);
        check(tutti_wait_signal((uint32_t)from, TUTTI_COMPARE_GE, (uint64_t)round + 1, from, window, NULL, NULL),
              "wait_signal");
        fill(expected, bytes, from, rank, round);
        if (memcmp(part->slices[from], expected, bytes) != 0) wrong("what came is not what was put");
    }
    const int32_t next = (rank + 1) % n;
    const size_t bytes = bytes_in(round, rank, next);
    check(tutti_get(data, bytes, next, offsetof(struct part, slices[rank]), window, NULL, NULL), "get");
    fill(expected, bytes, rank, next, round);
    if (memcmp(data, expected, bytes) != 0) wrong("what was got is not what was put");
    check(tutti_fetch_add(3, &before, 0, offsetof(struct part, counter), window, NULL, NULL), "fetch_add");
    if (before % 3) wrong("a counter that is not a multiple of 3");
}

static void ring(struct tutti_comm *comm)
{
    const int32_t rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    struct tutti_window *window;
    struct part *part = NULL;
    void *memory = NULL;
    /* Some ranks of a host reach one another in place, and some do not. */
    if (rank % 3 == 2) part = aligned_alloc(64, (sizeof *part + 63) / 64 * 64);
    if (!part) check(tutti_mem_alloc(comm, sizeof *part, &memory), "mem_alloc");
    if (!part) part = memory;
    memset(part, 0, sizeof *part);
    check(tutti_window_create(comm, part, sizeof *part, NULL, &window), "window_create");
    for (int round = 0; round < ROUNDS; round++) {
        ring_round(window, part, rank, n, round);
        check(tutti_barrier(comm, NULL, NULL), "barrier");
    }
    if (rank == 0 && part->counter != (uint64_t)(3 * n * ROUNDS)) wrong("the counter");
    check(tutti_barrier(comm, NULL, NULL), "barrier");
    tutti_window_destroy(window);
    check(tutti_barrier(comm, NULL, NULL), "barrier"); /* all have */
    if (!memory) free(part);
}

static enum tutti_status wait_in_vain(struct tutti_comm *comm, void *memory, size_t bytes, struct tutti_window *window)
{
    const int32_t rank = tutti_comm_rank(comm), last = tutti_comm_size(comm) - 1;
    enum tutti_status status = TUTTI_OK;
    printf("looping %.6f\n", now());
    while (rank == last) sleep(1);
    if (rank % 2 == 0) return tutti_wait_signal(3, TUTTI_COMPARE_EQ, 1, last, window, NULL, NULL);
    while (status == TUTTI_OK) {
        status = tutti_put(memory, bytes, last, 0, window, NULL, NULL);
        if (status == TUTTI_OK) status = tutti_flush(last, window, NULL, NULL);
        usleep(500);
    }
    return status;
}

static void fail(struct tutti_comm *comm)
{
    struct tutti_comm *rest = NULL;
    struct tutti_window *window;
    void *memory;
    check(tutti_mem_alloc(comm, 50000, &memory), "mem_alloc");
    check(tutti_window_create(comm, memory, 50000, NULL, &window), "window_create");
    const enum tutti_status status = wait_in_vain(comm, memory, 50000, window);
    printf("failed %.6f %s %s\n", now(), tutti_status_name(status), tutti_last_error()->text);
    tutti_window_destroy(window);
    if (tutti_comm_shrink(comm, NULL, 0, &rest) < 0) {
        printf("alone %.6f %s\n", now(), tutti_last_error()->text);
        return;
    }
    ring(rest);
    printf("shrunk %.6f %d\n", now(), (int)tutti_comm_size(rest));
    tutti_comm_destroy(rest);
}

int main(int argc, char **argv)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *comm = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(MOST_S);
    config.device = TUTTI_DEVICE_NONE;
    config.timeout_ns = UINT64_C(60000000000);
    check(tutti_comm_create(NULL, &config, &comm), "comm_create");
    if (tutti_comm_size(comm) > RANKS_MOST) wrong("too many ranks");
    printf("ready %.6f\n", now());
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "ring") == 0)
            ring(comm);
        else if (strcmp(argv[i], "fail") == 0)
            fail(comm);
        else
            wrong(argv[i]);
    }
    tutti_comm_destroy(comm);
    printf("done %.6f\n", now());
    return 0;
}
