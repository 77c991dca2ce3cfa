/* SPDX-License-Identifier: BSD-3-Clause */
/* How `tutti bench` measures: rounds of back-to-back calls, each round's time the slowest rank's, the median over
 * rounds; before and after each point the latency of a cache line between two ranks, since a shared machine changes
 * under the benchmark. */

#include "bench.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROBE_BATCH 64
#define PROBE_HOPS (32 * PROBE_BATCH)
#define PROBE_LIMIT_NS 30000000u

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Ranks 0 and 1 pass a number to and fro in rank 0's line; the best batch counts, since a busy machine takes one of
 * them off its core now and then. Gives up after a while: with more ranks than cores they may never run at once. */
static double pass_line(_Atomic uint64_t *line, uint64_t rank)
{
    uint64_t start = now_ns(), batch_start = start, best = UINT64_MAX;
    for (uint64_t hop = 0; hop < PROBE_HOPS; hop++) {
        if ((hop & 1) == rank) {
            atomic_store_explicit(line, hop + 1, memory_order_release);
        } else {
            uint32_t spins = 0;
            while (atomic_load_explicit(line, memory_order_acquire) < hop + 1)
                if ((++spins & 1023) == 0) {
                    if (now_ns() - start > PROBE_LIMIT_NS) goto done;
                    sched_yield(); /* they may share a core; then that is what is measured */
                }
        }
        if ((hop + 1) % PROBE_BATCH) continue;
        uint64_t now = now_ns();
        if (now - batch_start < best) best = now - batch_start;
        batch_start = now;
    }
done:
    return best == UINT64_MAX ? 0 : (double)best / PROBE_BATCH;
}

double bench_probe_ns(struct bench_run *run)
{
    int32_t rank = tutti_comm_rank(run->comm);
    double result = 0;
    if (!run->window) return 0;
    _Atomic uint64_t *line = tutti_window_peer(run->window, 0, NULL);
    if (line && rank == 0) atomic_store(line, 0);
    if (tutti_barrier(run->comm, NULL, NULL) < 0) return 0;
    if (line && rank < 2) result = pass_line(line, (uint64_t)rank);
    return tutti_barrier(run->comm, NULL, NULL) < 0 ? 0 : result;
}

enum tutti_status bench_buffers_open(struct bench_run *run, const struct bench_case *c, struct bench_buffers *b)
{
    size_t esize = tutti_dtype_bytes(c->dtype), n_send = c->op->send_elements(c), n_recv = c->op->recv_elements(c);
    size_t larger = n_send > n_recv ? n_send : n_recv;
    size_t bytes[2] = {(c->in_place ? larger : n_send) * esize, c->in_place ? 0 : n_recv * esize};
    memset(b, 0, sizeof *b);
    for (int i = 0; i < 2; i++) {
        size_t rounded = (bytes[i] + 4096) & ~(size_t)4095;
        if (run->settings->mapped) {
            enum tutti_status status = tutti_mem_alloc(run->comm, rounded, &b->base[i]);
            if (status < 0) return status;
        } else if (!(b->base[i] = aligned_alloc(4096, rounded))) {
            return TUTTI_ERR_MEMORY;
        }
        memset(b->base[i], 0, rounded);
    }
    bench_buffers_place(c, b);
    return TUTTI_OK;
}

void bench_buffers_close(struct bench_run *run, struct bench_buffers *b)
{
    for (int i = 0; i < 2; i++) {
        if (run->settings->mapped && b->base[i])
            (void)tutti_mem_free(run->comm, b->base[i]);
        else
            free(b->base[i]);
    }
}

/* What this rank contributes; in an in place gather it is one block inside the receive buffer. */
static void fill_input(const struct bench_case *c, const struct bench_buffers *b, uint32_t round)
{
    bench_fill(c, b->send, c->op->send_elements(c), c->rank, round);
}

static enum tutti_status check(struct bench_run *run, const struct bench_case *c, const struct bench_buffers *b,
                               const struct tutti_call_options *options, uint32_t round, size_t *wrong)
{
    size_t recv_bytes = c->op->recv_elements(c) * tutti_dtype_bytes(c->dtype);
    if (!c->in_place) memset(b->recv, 0xa5, recv_bytes);
    fill_input(c, b, round);
    enum tutti_status status = c->op->call(c, b->send, b->recv, run->comm, options);
    if (status < 0) return status;
    uint64_t mine = bench_wrong(c, b->recv, round), all = 0;
    status = tutti_all_reduce(&mine, &all, 1, TUTTI_UINT64, TUTTI_SUM, run->comm, NULL, NULL);
    *wrong = all;
    return status;
}

enum tutti_status bench_round(struct bench_run *run, const struct bench_case *c, const struct bench_buffers *b,
                              const struct tutti_call_options *options, uint32_t iterations, double *us)
{
    uint64_t spent = 0, start = 0;
    enum tutti_status status = tutti_barrier(run->comm, NULL, NULL);
    start = now_ns();
    for (uint32_t i = 0; i < iterations && status >= 0; i++) {
        if (run->settings->fresh) {
            fill_input(c, b, i);
            status = tutti_barrier(run->comm, NULL, NULL);
            start = now_ns();
        }
        if (status >= 0) status = c->op->call(c, b->send, b->recv, run->comm, options);
        if (run->settings->fresh) spent += now_ns() - start;
    }
    if (!run->settings->fresh) spent = now_ns() - start;
    if (status < 0) return status;
    double mine = (double)spent / 1e3 / iterations;
    return tutti_all_reduce(&mine, us, 1, TUTTI_FLOAT64, TUTTI_MAX, run->comm, NULL, NULL);
}

static enum tutti_status measure_one(struct bench_run *run, const struct bench_case *c, struct bench_time *out)
{
    const struct bench_settings *s = run->settings;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.algorithm = s->algorithm;
    options.premul_value = BENCH_FACTOR;
    struct bench_buffers b;
    double *us = calloc(s->rounds, sizeof *us);
    enum tutti_status status = bench_buffers_open(run, c, &b);
    if (!us) status = TUTTI_ERR_MEMORY;
    out->wrong = SIZE_MAX;
    if (status >= 0 && s->check) status = check(run, c, &b, &options, 1, &out->wrong);
    if (status >= 0) fill_input(c, &b, 0);
    uint32_t calls = bench_calls(s, c->bytes);
    double ignored;
    if (status >= 0 && s->warmup)
        status = bench_round(run, c, &b, &options, s->warmup < calls ? s->warmup : calls, &ignored);
    for (uint32_t r = 0; r < s->rounds && status >= 0; r++) status = bench_round(run, c, &b, &options, calls, &us[r]);
    if (status >= 0) bench_summarise(c, us, s->rounds, out);
    bench_buffers_close(run, &b);
    free(us);
    return status;
}

enum tutti_status bench_host_measure(struct bench_run *run, const struct bench_case *c, struct bench_point *out)
{
    struct bench_case form = *c;
    memset(out, 0, sizeof *out);
    out->c = *c;
    out->probe_before_ns = bench_probe_ns(run);
    for (int in_place = 0; in_place < 2; in_place++) {
        form.in_place = in_place;
        if (in_place && (c->op->in_place_at(c) == SIZE_MAX || run->settings->out_of_place_only)) continue;
        if (!in_place && run->settings->in_place_only) continue;
        enum tutti_status status = measure_one(run, &form, &out->time[in_place]);
        if (status < 0) return status;
        out->has[in_place] = true;
    }
    out->probe_after_ns = bench_probe_ns(run);
    return TUTTI_OK;
}
