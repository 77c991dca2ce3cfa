/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_BENCH_H
#define TUTTI_TOOLS_BENCH_H

/* `tutti bench` measures collectives. It may use public headers, the device's contract and comm/call/call.h. Begin
 * with cmd_bench.c. The parts: what is measured (bench_ops.c), with which data (bench_data.c), by whom (bench_run.c),
 * how (bench_measure.c, bench_point.c; one-sided calls: bench_onesided.c), how the choice is explained
 * (bench_explain.c), and how all is shown (bench_show.c, bench_plot.c). */

#include "device/device.h"
#include "sched/kind.h"

#include <tutti/tutti.h>

#include <stdio.h>

/* One collective with its arguments for one point. */
struct bench_case {
    const struct bench_op *op;
    enum tutti_dtype dtype;
    enum tutti_op reduction;
    size_t bytes; /* as nccl-tests counts: of the larger side of one rank */
    size_t count; /* elements of the call's `count` argument */
    int32_t root, rank, n_ranks;
    bool in_place;
};

struct bench_op {
    const struct tutti_kind_info *info;
    enum tutti_status (*call)(const struct bench_case *c, const void *send, void *recv, struct tutti_comm *comm,
                              const struct tutti_call_options *options);
};
extern const struct bench_op bench_ops[];
extern const size_t bench_n_ops;
/* The call's count for a size in elements, and elements of the send and receive buffers. */
size_t bench_count(const struct bench_op *op, size_t elements, size_t n_ranks);
/* Sets count and bytes of a case whose other fields stand: as many as fit in `bytes`; none where it has no size. */
void bench_case_size(struct bench_case *c, size_t bytes);
size_t bench_send_elements(const struct bench_case *c);
size_t bench_recv_elements(const struct bench_case *c);
/* In place: where the smaller buffer begins in the larger one, in elements; SIZE_MAX: no such form. */
size_t bench_in_place_at(const struct bench_case *c);
/* Which input makes output element i: rank and index of the input, from < 0: the reduction over n_from ranks from 0 on;
 * n_from == 0: not checked. */
struct bench_origin {
    int32_t from;
    size_t index, n_from;
};
struct bench_origin bench_origin(const struct bench_case *c, size_t i);

/* ---- data: small values that are exact in every type, by rank, index and round ---- */
void bench_fill(const struct bench_case *c, void *buffer, size_t n, int32_t rank, uint32_t round);
/* Number of elements of recv that are not what the operation gives. */
size_t bench_wrong(const struct bench_case *c, const void *recv, uint32_t round);
/* Factor of premul_sum. */
#define BENCH_FACTOR 2.0

/* ---- measuring ---- */
struct bench_settings {
    uint64_t min_bytes, max_bytes;
    double factor;
    uint32_t iterations, warmup, rounds; /* calls a round, rounds: the median and spread are over rounds */
    bool check, fresh, json, mapped, explain, in_place_only, out_of_place_only;
    const char *pages; /* private memory on hosts: "4k" or "huge"; NULL: as malloc gives it */
    const char *plot, *algorithm;
    const char *only;      /* explained: ways whose names begin so; NULL: all */
    bool brief;            /* explained: in fewer and shorter rounds */
    const char *wire_name; /* quantised calls; NULL: they are not */
    enum tutti_wire wire;
    uint32_t seed;      /* for their rounding, 0: to nearest */
    const char *device; /* kind of the device whose memory it is; NULL: of the host */
    bool eager;         /* there: calls made one by one, else replayed from a graph, where the device has graphs */
    const char *peer;   /* another library to measure beside, NULL: none */
    bool survive;       /* measured is a communicator with config.survive, beside it the same without */
    uint32_t group;     /* so many calls, on buffers of their own, are made as one group; 1: none are */
};
struct bench_time {
    double median_us, min_us, max_us, algbw, busbw;
    double peer_us; /* the peer's median, 0: there is none */
    double cost_us; /* over the peer, of the rounds: the median difference, */
    double ratio;   /* the median ratio; both 0: there is no peer */
    size_t wrong;   /* SIZE_MAX: not checked */
};
struct bench_point {
    struct bench_case c;
    bool has[2];
    struct bench_time time[2];              /* out of place, in place */
    double probe_before_ns, probe_after_ns; /* one-way latency of a cache line between ranks 0 and 1; 0: not measured */
};
struct bench_side {
    struct tutti_context *context; /* NULL: the default one */
    struct tutti_comm *comm;
};
struct bench_run {
    struct tutti_comm *comm; /* all ranks, on host memory */
    const struct bench_settings *settings;
    struct tutti_window *window; /* one cache line each, for the probe; NULL: one rank, or devices */
    void *line;
    struct tutti_device *device;
    void *stream, *from, *to;   /* from, to: timed events; all NULL on hosts */
    struct bench_side sides[2]; /* what is measured, the peer */
    uint32_t n_sides;
};
struct bench_buffers {
    void *send, *recv;                  /* as passed */
    void *base[2];                      /* as allocated */
    size_t strides[2];                  /* from the buffers of a group's call to those of the next */
    struct tutti_window *windows[2][2]; /* side, buffer */
};
/* *out is closed by the caller when it is not NULL, opened or not. */
enum tutti_status bench_run_open(struct tutti_comm *comm, const struct bench_settings *settings,
                                 struct bench_run **out);
void bench_run_close(struct bench_run *run);
enum tutti_status bench_measure(struct bench_run *run, const struct bench_case *c, struct bench_point *out);
bool bench_one_place(const struct bench_run *run, const struct bench_case *c);
/* The parts of a measurement. */
enum tutti_status bench_buffers_open(struct bench_run *run, const struct bench_case *c, struct bench_buffers *b);
void bench_buffers_close(struct bench_run *run, struct bench_buffers *b);
/* send and recv within what is allocated: in place both in the larger buffer, which is base[0]. */
void bench_buffers_place(const struct bench_case *c, struct bench_buffers *b);
/* Calls in a round: fewer for large buffers, so that a point takes about as long at every size. */
uint32_t bench_calls(const struct bench_settings *settings, size_t bytes);
/* What the n rounds' times, which it sorts, come to. */
void bench_summarise(const struct bench_case *c, double *us, uint32_t n, struct bench_time *out);
/* Our n rounds beside the peer's, each with its neighbour in time; room: for n more. */
void bench_compare(const double *us, const double *peer, double *room, uint32_t n, struct bench_time *out);
/* Calls that are made alike, round after round. */
struct bench_series {
    struct bench_run *run;
    const struct bench_case *c;
    const struct bench_buffers *buffers;
    struct tutti_call_options options;
    uint32_t side, calls; /* calls: of a round */
    void *graph;          /* NULL: they are made one by one */
};
struct bench_series bench_series(struct bench_run *run, const struct bench_case *c, const struct bench_buffers *b,
                                 uint32_t side, const char *algorithm);
enum tutti_status bench_series_begin(struct bench_series *series, uint32_t calls); /* captures them, if so asked */
void bench_series_end(struct bench_series *series);                                /* begun or not */
/* Mean microseconds of a call at the slowest rank: all calls back to back, or, fresh, each alone after its inputs were
 * rewritten. */
enum tutti_status bench_series_round(const struct bench_series *series, double *us);
double bench_probe_ns(struct bench_run *run); /* one way of a cache line between ranks 0 and 1; 0: not measured */

/* ---- predicted against measured (bench_explain.c) ---- */
struct bench_way {
    char name[40];
    bool chosen;
    int32_t n_sms; /* on devices; -1: not known */
    double predicted_us, measured_us;
    double behind; /* the chosen one's time over this one's */
};
struct bench_cell {
    struct bench_case c;
    size_t n_ways;
    struct bench_way ways[24];
    double worst; /* the greatest `behind`: how far the chosen one is from the best */
    double probe_before_ns, probe_after_ns;
};
/* All ways of one cell, in turns. UNSUPPORTED where nothing is to be chosen. */
enum tutti_status bench_explain(struct bench_run *run, const struct bench_case *c, struct bench_cell *out);
/* Its parts: the ways of a call of this rank, as predicted; and how the chosen one compares once all are measured. */
enum tutti_status bench_ways_list(struct tutti_comm *comm, const struct bench_case *c, const struct bench_buffers *b,
                                  struct bench_cell *cell);
void bench_ways_compare(struct bench_cell *cell);
#define BENCH_NEAR 1.1 /* the chosen way is as good as the best if it takes at most so many times as long */
void bench_explain_show(FILE *out, const struct bench_settings *settings, const struct bench_cell *cell, bool first);
void bench_explain_footer(FILE *out, const struct bench_settings *settings, size_t n_near, size_t n_cells);

/* ---- one-sided calls (bench_onesided.c) ---- */
const char *bench_onesided_at(size_t i); /* their names; NULL behind the last */
/* ops: numbers of names. Adds to *wrong. */
enum tutti_status bench_onesided(struct bench_run *run, const size_t *ops, size_t n_ops, size_t *wrong);

/* ---- showing ---- */
void bench_show_header(FILE *out, const struct bench_settings *settings, int32_t n_ranks);
void bench_show_point(FILE *out, const struct bench_settings *settings, const struct bench_point *point, bool first);
void bench_show_footer(FILE *out, const struct bench_settings *settings, const struct bench_point *points, size_t n);
/* Time and bus bandwidth against size, as SVG. */
int bench_plot(const char *path, const struct bench_point *points, size_t n);

#endif
