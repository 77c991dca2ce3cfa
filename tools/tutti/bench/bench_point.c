/* SPDX-License-Identifier: BSD-3-Clause */
/* What points on hosts and on devices have in common: where buffers lie, how many calls make a round, what the rounds'
 * times come to, and the ways in which a call could go. */

#include "bench.h"

#include "comm/call/call.h"
#include "tools/tutti/measure.h"

#include <stdlib.h>
#include <string.h>

void bench_buffers_place(const struct bench_case *c, struct bench_buffers *b)
{
    size_t n_send = bench_send_elements(c), n_recv = bench_recv_elements(c);
    b->send = b->base[0];
    b->recv = b->base[1];
    if (!c->in_place) return;
    size_t at = bench_in_place_at(c);
    if (at + c->count > (n_send > n_recv ? n_send : n_recv)) at = 0; /* this rank has no larger side */
    char *inner = (char *)b->base[0] + at * tutti_dtype_bytes(c->dtype);
    if (n_send < n_recv) {
        b->send = inner;
        b->recv = b->base[0];
    } else {
        b->recv = n_send > n_recv && n_recv ? inner : b->base[0];
    }
}

uint32_t bench_calls(const struct bench_settings *s, size_t bytes)
{
    size_t calls = s->iterations;
    while (calls > 1 && calls * bytes > (size_t)256 << 20) calls /= 2;
    return (uint32_t)calls;
}

void bench_summarise(const struct bench_case *c, double *us, uint32_t n, struct bench_time *out)
{
    out->median_us = tutti_median(us, n);
    out->min_us = us[0];
    out->max_us = us[n - 1];
    out->algbw = out->median_us > 0 ? (double)c->bytes / out->median_us / 1e3 : 0;
    out->busbw = out->algbw * tutti_kind_bus_factor(c->op->info, (uint32_t)c->n_ranks);
}

void bench_compare(const double *us, const double *peer, double *room, uint32_t n, struct bench_time *out)
{
    for (uint32_t i = 0; i < n; i++) room[i] = us[i] - peer[i];
    out->cost_us = tutti_median(room, n);
    for (uint32_t i = 0; i < n; i++) room[i] = peer[i] > 0 ? us[i] / peer[i] : 0;
    out->ratio = tutti_median(room, n);
    memcpy(room, peer, n * sizeof *room);
    out->peer_us = tutti_median(room, n);
}

enum tutti_status bench_ways_list(struct tutti_comm *comm, const struct bench_case *c, const struct bench_buffers *b,
                                  struct bench_cell *cell)
{
    struct tutti_way ways[TUTTI_ARRAY_LEN(cell->ways)];
    bool broadcast = strcmp(c->op->info->name, "broadcast") == 0; /* it has one buffer */
    void *buffer = c->rank == c->root ? b->send : b->recv;
    enum tutti_kind kind;
    if (!tutti_kind_parse(c->op->info->name, &kind))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s is no collective: there is nothing to choose", c->op->info->name);
    struct tutti_call call;
    tutti_call_set(&call, kind, c->dtype, (int32_t)c->reduction, c->root, c->count, broadcast ? buffer : b->send,
                   broadcast ? buffer : b->recv);
    tutti_call_begin(&call, comm, NULL);
    TUTTI_TRY(tutti_explain(&call, ways, TUTTI_ARRAY_LEN(ways), &cell->n_ways));
    for (size_t i = 0; i < cell->n_ways; i++) {
        struct bench_way *way = &cell->ways[i];
        memcpy(way->name, ways[i].name, sizeof way->name);
        way->chosen = ways[i].chosen;
        way->n_sms = ways[i].n_sms;
        way->predicted_us = ways[i].ns / 1e3;
    }
    return TUTTI_OK;
}

void bench_ways_compare(struct bench_cell *cell)
{
    double chosen_us = 0;
    for (size_t i = 0; i < cell->n_ways; i++)
        if (cell->ways[i].chosen) chosen_us = cell->ways[i].measured_us;
    for (size_t i = 0; i < cell->n_ways; i++) {
        cell->ways[i].behind = chosen_us / cell->ways[i].measured_us;
        if (cell->ways[i].behind > cell->worst) cell->worst = cell->ways[i].behind;
    }
}

/* The latency of a cache line between two ranks, since a shared machine changes under the benchmark. */

double bench_probe_ns(struct bench_run *run)
{
    static const struct tutti_relay relay = {TUTTI_SPIN, .batches = 32, .hops = 64, .limit_ns = 30 * TUTTI_NS_PER_MS};
    int32_t rank = tutti_comm_rank(run->comm);
    double result = 0;
    if (!run->window) return 0;
    struct tutti_baton *baton = tutti_window_peer(run->window, 0, NULL);
    if (baton && rank == 0) atomic_store(&baton->turn, 0);
    if (tutti_barrier(run->comm, NULL, NULL) < 0) return 0;
    if (baton && rank < 2) result = tutti_relay_ns(baton, (uint32_t)rank, &relay);
    return tutti_barrier(run->comm, NULL, NULL) < 0 ? 0 : result;
}
