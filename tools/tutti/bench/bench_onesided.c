/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls from rank 0 to rank 1 on memory of tutti_mem_alloc: put and get beside a memcpy of as many bytes,
 * put_signal as a round trip beside that of two words, each in the memory of who waits for it, by bare loads and
 * stores; fetch_add alone. The others wait in barriers. */

#include "bench.h"
#include "tools/tutti/measure.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BESIDE_BYTES ((size_t)256 << 20) /* per round, at most */

struct scene {
    struct bench_run *run;
    struct tutti_window *window;
    unsigned char *memory, *source, *beside; /* the part; what is put, or got into; what memcpy writes */
    size_t bytes;
    uint32_t calls;
    uint64_t number; /* signals so far */
    int32_t rank;
};

static const char *const names[] = {"put", "get", "put_signal", "fetch_add", NULL};
enum which { PUT, GET, PUT_SIGNAL, FETCH_ADD };

const char *bench_onesided_at(size_t i)
{
    return i < TUTTI_ARRAY_LEN(names) ? names[i] : NULL;
}

/* ---- the calls of a round, at rank 0; put_signal also at rank 1 ---- */

static enum tutti_status puts_make(struct scene *s)
{
    for (uint32_t i = 0; i < s->calls; i++) TUTTI_TRY(tutti_put(s->source, s->bytes, 1, 0, s->window, NULL, NULL));
    return tutti_flush(1, s->window, NULL, NULL);
}

static enum tutti_status gets_make(struct scene *s)
{
    for (uint32_t i = 0; i < s->calls; i++) TUTTI_TRY(tutti_get(s->source, s->bytes, 1, 0, s->window, NULL, NULL));
    return TUTTI_OK;
}

static enum tutti_status adds_make(struct scene *s)
{
    uint64_t before;
    for (uint32_t i = 0; i < s->calls; i++) TUTTI_TRY(tutti_fetch_add(1, &before, 1, 0, s->window, NULL, NULL));
    return TUTTI_OK;
}

static enum tutti_status round_trips_make(struct scene *s)
{
    const int32_t other = 1 - s->rank;
    struct tutti_signal_info signal = {0, TUTTI_SIGNAL_SET, 0};
    for (uint32_t i = 0; i < s->calls; i++) {
        signal.value = ++s->number;
        if (s->rank == 0) TUTTI_TRY(tutti_put_signal(s->source, s->bytes, 1, 0, &signal, s->window, NULL, NULL));
        TUTTI_TRY(tutti_wait_signal(0, TUTTI_COMPARE_GE, signal.value, other, s->window, NULL, NULL));
        if (s->rank == 1) TUTTI_TRY(tutti_put_signal(s->source, s->bytes, 0, 0, &signal, s->window, NULL, NULL));
    }
    return TUTTI_OK;
}

static enum tutti_status (*const makers[])(struct scene *s) = {
    [PUT] = puts_make, [GET] = gets_make, [PUT_SIGNAL] = round_trips_make, [FETCH_ADD] = adds_make};

/* ---- what put_signal is compared with ---- */

#define BATCHES 64
#define HOPS 64
#define LIMIT_NS (500 * TUTTI_NS_PER_MS) /* two ranks may never run at once */

static bool word_await(const _Atomic uint64_t *word, uint64_t value, uint64_t deadline)
{
    for (uint32_t tries = 1; atomic_load_explicit(word, memory_order_acquire) < value; tries++)
        if (tries % 1024 == 0 && tutti_now_ns() > deadline) return false;
    return true;
}

/* The best batch; 0: the words can not be mapped, or no batch came to its end. */
static double words_ns(struct scene *s)
{
    if (tutti_barrier(s->run->comm, NULL, NULL) < 0) return 0;
    _Atomic uint64_t *mine = (_Atomic uint64_t *)(void *)s->memory,
                     *theirs = s->rank < 2 ? tutti_window_peer(s->window, 1 - s->rank, NULL) : NULL;
    atomic_store(mine, 0);
    if (tutti_barrier(s->run->comm, NULL, NULL) < 0) return 0;
    const uint64_t deadline = tutti_deadline_ns(LIMIT_NS);
    double best = 0;
    bool there = theirs != NULL;
    for (uint64_t turn = 1; there && turn <= BATCHES * HOPS; turn += HOPS) {
        const uint64_t start = tutti_now_ns();
        for (uint64_t t = turn; there && t < turn + HOPS; t++) {
            if (s->rank == 0) atomic_store_explicit(theirs, t, memory_order_release);
            there = word_await(mine, t, deadline);
            if (s->rank == 1 && there) atomic_store_explicit(theirs, t, memory_order_release);
        }
        const double ns = (double)(tutti_now_ns() - start) / HOPS;
        if (there && (best == 0 || ns < best)) best = ns;
    }
    return tutti_barrier(s->run->comm, NULL, NULL) < 0 ? 0 : best;
}

/* ---- one point ---- */

struct point {
    double *us, *beside_us; /* a call's time, by round */
    double words_ns;
};

static enum tutti_status round_make(struct scene *s, enum which which, double *us, double *beside_us)
{
    const bool calls = s->rank == 0 || (s->rank == 1 && which == PUT_SIGNAL);
    if (which != PUT_SIGNAL) TUTTI_TRY(tutti_barrier(s->run->comm, NULL, NULL)); /* a rank that is woken is late */
    const uint64_t start = tutti_now_ns();
    if (calls) TUTTI_TRY(makers[which](s));
    *us = (double)(tutti_now_ns() - start) / 1e3 / s->calls;
    if (which != PUT_SIGNAL) TUTTI_TRY(tutti_barrier(s->run->comm, NULL, NULL));
    if (s->rank > 0 || which > GET) return TUTTI_OK;
    const uint64_t copied = tutti_now_ns();
    for (uint32_t i = 0; i < s->calls; i++) {
        memcpy(which == PUT ? s->beside : s->source, which == PUT ? s->source : s->beside, s->bytes);
        __asm__ volatile("" ::: "memory");
    }
    *beside_us = (double)(tutti_now_ns() - copied) / 1e3 / s->calls;
    return TUTTI_OK;
}

/* What the last put or get moved is there. */
static enum tutti_status check(struct scene *s, enum which which, size_t *wrong)
{
    uint64_t mine = 0, all = 0;
    memset(s->memory, 3 + s->rank, s->bytes);
    memset(s->source, 7, s->bytes);
    TUTTI_TRY(tutti_barrier(s->run->comm, NULL, NULL));
    s->calls = 1;
    if (s->rank == 0 || (s->rank == 1 && which == PUT_SIGNAL)) TUTTI_TRY(makers[which](s));
    TUTTI_TRY(tutti_barrier(s->run->comm, NULL, NULL));
    const unsigned char *to = which == GET ? s->source : s->memory;
    const bool looks = which == GET ? s->rank == 0 : s->rank == 1;
    for (size_t i = 0; looks && which != FETCH_ADD && i < s->bytes; i++) mine += to[i] != (which == GET ? 4 : 7);
    TUTTI_TRY(tutti_all_reduce(&mine, &all, 1, TUTTI_UINT64, TUTTI_SUM, s->run->comm, NULL, NULL));
    *wrong += all;
    return TUTTI_OK;
}

static void show(const struct scene *s, enum which which, struct point *p, bool first)
{
    const struct bench_settings *settings = s->run->settings;
    const double us = tutti_median(p->us, settings->rounds), best = p->us[0], gb = (double)s->bytes / us / 1e3;
    const double beside = which <= GET          ? tutti_median(p->beside_us, settings->rounds)
                          : which == PUT_SIGNAL ? p->words_ns / 1e3
                                                : 0;
    const double own = which == PUT_SIGNAL ? best : us; /* that of the words is the best of its batches, too */
    if (settings->json) {
        printf("%s\n{\"op\":\"%s\",\"bytes\":%zu,\"time_us\":%.4f,\"min_us\":%.4f,\"%s_us\":%.4f}", first ? "" : ",",
               names[which], s->bytes, us, best, which == PUT_SIGNAL ? "words" : "memcpy", beside);
        return;
    }
    printf("  %-10s %11zu %11.3f %11.3f %8.2f", names[which], s->bytes, us, best, gb);
    if (beside > 0)
        printf(" %11.3f %6.2f\n", beside, own / beside);
    else
        printf(" %11s %6s\n", "-", "-");
    fflush(stdout);
}

static enum tutti_status point_measure(struct scene *s, enum which which, size_t bytes, bool first, size_t *wrong)
{
    const struct bench_settings *settings = s->run->settings;
    struct point p = {.us = calloc(settings->rounds, sizeof(double)),
                      .beside_us = calloc(settings->rounds, sizeof(double))};
    double ignored;
    s->bytes = bytes;
    s->calls = settings->iterations;
    while (s->calls > 1 && s->calls * bytes > BESIDE_BYTES) s->calls /= 2;
    const uint32_t calls = s->calls;
    enum tutti_status status =
        p.us && p.beside_us ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u rounds", settings->rounds);
    if (status >= 0 && settings->check) status = check(s, which, wrong);
    s->calls = calls;
    if (status >= 0) status = round_make(s, which, &ignored, &ignored); /* pages are touched, caches warm */
    if (which == PUT_SIGNAL) p.words_ns = words_ns(s);
    for (uint32_t r = 0; r < settings->rounds && status >= 0; r++)
        status = round_make(s, which, &p.us[r], &p.beside_us[r]);
    const double again = which == PUT_SIGNAL ? words_ns(s) : 0;
    if (again > 0 && (again < p.words_ns || p.words_ns == 0)) p.words_ns = again;
    if (status >= 0 && s->rank == 0) show(s, which, &p, first);
    free(p.us), free(p.beside_us);
    return status;
}

/* ---- all of them ---- */

static enum tutti_status scene_open(struct scene *s, size_t most)
{
    void *memory[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        TUTTI_TRY(tutti_mem_alloc(s->run->comm, most, &memory[i]));
        memset(memory[i], i + 1, most);
    }
    s->memory = memory[0], s->source = memory[1], s->beside = memory[2];
    return tutti_window_create(s->run->comm, s->memory, most, NULL, &s->window);
}

static void header(const struct bench_settings *settings, int32_t n_ranks)
{
    if (settings->json) {
        printf("{\"version\":\"%s\",\"ranks\":%d,\"calls\":%u,\"rounds\":%u,\"onesided\":[", tutti_version_text(),
               n_ranks, settings->iterations, settings->rounds);
        return;
    }
    printf("# tutti %s, rank 0 of %d to rank 1, median and best of %u rounds of up to %u calls\n", tutti_version_text(),
           n_ranks, settings->rounds, settings->iterations);
    printf("# time: us of a call, put_signal: there and back; beside: a memcpy of as many bytes, put_signal: the best "
           "round trip of two words, to which the best is compared\n");
    printf("#\n# %-10s %11s %11s %11s %8s %11s %6s\n", "op", "bytes", "time", "best", "GB/s", "beside", "ratio");
}

static enum tutti_status measure_all(struct scene *s, const size_t *ops, size_t n_ops, size_t *wrong)
{
    const struct bench_settings *settings = s->run->settings;
    bool first = true;
    for (size_t i = 0; i < n_ops; i++) {
        const enum which which = (enum which)ops[i];
        for (double bytes = (double)settings->min_bytes; bytes <= (double)settings->max_bytes;
             bytes *= settings->factor) {
            const size_t size = which == FETCH_ADD ? sizeof(uint64_t) : (size_t)bytes;
            TUTTI_TRY(point_measure(s, which, size, first, wrong));
            first = false;
            if (which == FETCH_ADD) break;
        }
    }
    return TUTTI_OK;
}

enum tutti_status bench_onesided(struct bench_run *run, const size_t *ops, size_t n_ops, size_t *wrong)
{
    const struct bench_settings *settings = run->settings;
    struct scene s = {.run = run, .rank = tutti_comm_rank(run->comm)};
    if (tutti_comm_size(run->comm) < 2)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "one-sided calls are measured between two ranks: give -n 2");
    if (settings->min_bytes == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "-b is 0; give at least 1 byte");
    TUTTI_TRY(scene_open(&s, settings->max_bytes < 8 ? 8 : (size_t)settings->max_bytes));
    if (s.rank == 0) header(settings, tutti_comm_size(run->comm));
    enum tutti_status status = measure_all(&s, ops, n_ops, wrong);
    if (status >= 0 && s.rank == 0) {
        if (settings->json)
            printf("\n],\"wrong\":%zu}\n", *wrong);
        else
            printf("# wrong values: %zu%s\n", *wrong, settings->check ? "" : " (not checked: --check)");
        fflush(stdout);
    }
    if (status >= 0) status = tutti_barrier(run->comm, NULL, NULL);
    tutti_window_destroy(s.window);
    return status;
}
