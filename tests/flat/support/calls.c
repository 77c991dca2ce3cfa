/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's calls of fingerprints, and events inside them. */
#include "calls.h"

#include "backend/flat/flat.h"
#include "comm/comm.h"
#include "steps.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static _Thread_local struct {
    void (*happen)(void *arg);
    void *arg;
    uint64_t at, steps;
} event;

bool calls_open(struct rank *rank, size_t words, struct mark_sheet *sheet)
{
    unsigned char *arenas[4];
    size_t bytes = mark_arena_bytes(words);
    memset(sheet, 0, sizeof *sheet);
    for (int i = 0; i < 2; i++) {
        void *mapped = NULL;
        arenas[i] = rank_alloc(rank, bytes);
        if (tutti_mem_alloc(rank->comm, bytes, &mapped) != TUTTI_OK) return false;
        arenas[2 + i] = mapped;
    }
    return mark_sheet_open(sheet, bytes, arenas);
}

void calls_close(struct rank *rank, struct mark_sheet *sheet)
{
    for (int i = 0; i < 2; i++)
        if (sheet->arena[2 + i]) (void)tutti_mem_free(rank->comm, sheet->arena[2 + i]);
    mark_sheet_close(sheet);
}

static const struct flat_instance *lane_of(const struct rank *rank)
{
    return (const struct flat_instance *)(const void *)rank->comm->backend;
}

size_t calls_chunk(const struct rank *rank)
{
    return rank->comm->backend ? lane_of(rank)->chunk : 0;
}

size_t calls_count(const struct rank *rank, const char *method)
{
    if (strcmp(method, "line") == 0) return FLAT_LINE_LEAST / 8 / (size_t)rank->n;
    return 5 * calls_chunk(rank) / 8 + 13;
}

void calls_make(struct rank *rank, const struct mark_plan *plan, struct mark_sheet *sheet)
{
    char why[512];
    mark_prepare(plan, (uint32_t)rank->index, sheet);
    enum tutti_status status = mark_start(plan, sheet, rank->comm, NULL);
    mark_print(plan, why, sizeof why);
    if (status != TUTTI_OK)
        rank_fail(rank, __FILE__, __LINE__, "%s: %s", tutti_last_error()->text, why);
    else if (!mark_check(plan, (uint32_t)rank->index, sheet, why, sizeof why))
        rank_fail(rank, __FILE__, __LINE__, "%s", why);
}

void calls_check_left_alone(struct rank *rank, const struct mark_plan *plan, struct mark_sheet *sheet)
{
    char text[256];
    mark_scribble(sheet);
    for (int i = 0; i < 10; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        if (!mark_touched(sheet)) continue;
        mark_print(plan, text, sizeof text);
        rank_fail(rank, __FILE__, __LINE__, "a buffer was touched after its call had failed: %s", text);
        return;
    }
}

static void between(void)
{
    if (++event.steps == event.at) event.happen(event.arg);
}

void calls_watch(void (*happen)(void *arg), void *arg, uint64_t at)
{
    event.happen = happen;
    event.arg = arg;
    event.at = at;
    event.steps = 0;
    atomic_store(&steps_between, between);
}

uint64_t calls_steps(void)
{
    return event.steps;
}

/* How many ranks are through; in memory that processes share. No call can tell: who is late in it would be hit. */
static _Atomic uint64_t *gate;
static _Thread_local uint64_t n_gates;

void calls_gate_reset(void)
{
    if (!gate) gate = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (gate == MAP_FAILED) abort();
    atomic_store(gate, 0);
}

static void gate_pass(const struct rank *rank, bool waits)
{
    uint64_t all = ++n_gates * (uint64_t)rank->n;
    atomic_fetch_add(gate, 1);
    while (waits && atomic_load(gate) < all) nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

void calls_expect(struct rank *rank, int32_t who, const struct mark_plan *plan, struct mark_sheet *sheet,
                  void (*happen)(void *arg), void *arg)
{
    uint64_t random = plan->seed + (uint64_t)rank->index;
    calls_watch(NULL, NULL, 0);
    calls_make(rank, plan, sheet);
    uint64_t steps = calls_steps();
    if (rank->failure[0]) return;
    gate_pass(rank, rank->index == who);
    if (rank->index != who) return;
    calls_watch(happen, arg, steps ? 1 + mark_random(&random) % steps : 0);
    if (steps == 0) happen(arg);
}

bool calls_is_due(void)
{
    return event.happen && event.steps < event.at;
}

uint64_t calls_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
