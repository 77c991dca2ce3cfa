/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti bench --device cuda`: calls on device memory, replayed from a graph or made one by one, by tutti and, with
 * --peer, by another library on a communicator of its own, in turns. A graph is launched twice in a row and the second
 * launch is timed on the device: the first one brings the ranks into step. */

#include "bench.h"

#include "base/base.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#define BESIDE 512 /* buffers begin at multiples of it, as allocators place them */
#define BLANK 0x3c /* inputs that nobody checks: small numbers in every type */

struct side {
    struct tutti_context *context;
    struct tutti_comm *comm;
};
struct bench_gpu {
    struct tutti_device *gpu;
    void *stream, *from, *to; /* timed events */
    struct side sides[2];     /* tutti, the peer */
    uint32_t group;
    bool eager, has_peer;
};
struct buffers {
    struct bench_buffers at;
    size_t bytes[2], strides[2];        /* strides: from the buffers of a group's call to those of the next */
    struct tutti_window *windows[2][2]; /* side, buffer */
};

static uint32_t n_sides(const struct bench_gpu *g)
{
    return g->has_peer ? 2 : 1;
}

/* ---- opening ---- */

/* way NULL: as the options say. */
static enum tutti_status side_open(struct bench_gpu *g, struct side *side, const char *way, int32_t rank, int32_t n)
{
    struct tutti_option option = {"gpu", way};
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    char name[32];
    snprintf(name, sizeof name, "bench-%s", way ? way : "tutti");
    config.name = name;
    config.rank = rank, config.n_ranks = n;
    config.device = g->gpu->ordinal;
    TUTTI_TRY(tutti_context_create(&option, way ? 1 : 0, &side->context));
    TUTTI_TRY(tutti_comm_create(side->context, &config, &side->comm));
    if (tutti_comm_device(side->comm) >= 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the option gpu is off: there is no device to measure");
}

enum tutti_status bench_gpu_open(struct tutti_comm *comm, const struct bench_settings *settings, struct bench_gpu **out)
{
    struct bench_gpu *g = calloc(1, sizeof *g);
    int32_t rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    const struct tutti_device_ops *kind = tutti_device_kind();
    if (!g) return tutti_fail(TUTTI_ERR_MEMORY, "no memory");
    *out = g;
    if (kind->absence()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", kind->absence());
    TUTTI_TRY(kind->open(rank % (int32_t)kind->count(), &g->gpu));
    TUTTI_TRY(g->gpu->ops->stream_create(g->gpu, &g->stream));
    TUTTI_TRY(g->gpu->ops->event_create(g->gpu, true, &g->from));
    TUTTI_TRY(g->gpu->ops->event_create(g->gpu, true, &g->to));
    const char *ways[2] = {NULL, settings->peer};
    g->has_peer = settings->peer;
    g->eager = settings->eager;
    g->group = settings->group;
    for (uint32_t i = 0; i < n_sides(g); i++) TUTTI_TRY(side_open(g, &g->sides[i], ways[i], rank, n));
    return TUTTI_OK;
}

void bench_gpu_close(struct bench_gpu *g)
{
    if (!g) return;
    for (uint32_t i = 0; i < n_sides(g); i++) {
        tutti_comm_destroy(g->sides[i].comm);
        tutti_context_destroy(g->sides[i].context);
    }
    if (g->from) g->gpu->ops->event_destroy(g->gpu, g->from);
    if (g->to) g->gpu->ops->event_destroy(g->gpu, g->to);
    if (g->stream) g->gpu->ops->stream_destroy(g->gpu, g->stream);
    if (g->gpu) g->gpu->ops->close(g->gpu);
    free(g);
}

/* ---- buffers ---- */

/* Ordinary device memory, or a window of each side over the same allocation. */
static enum tutti_status buffer_open(struct bench_gpu *g, const struct bench_settings *settings, struct buffers *b,
                                     int i)
{
    void *base = NULL;
    if (b->bytes[i] == 0) return TUTTI_OK;
    TUTTI_TRY(g->gpu->ops->alloc(g->gpu, b->bytes[i], &base));
    b->at.base[i] = base;
    TUTTI_TRY(g->gpu->ops->set(g->gpu, base, BLANK, b->bytes[i]));
    for (uint32_t s = 0; settings->mapped && s < n_sides(g); s++) {
        const enum tutti_status status = tutti_window_create(g->sides[s].comm, base, b->bytes[i], &b->windows[s][i]);
        if (status < 0 && !(s > 0 && status == TUTTI_ERR_UNSUPPORTED)) return status; /* a peer may have none */
    }
    return TUTTI_OK;
}

/* Windows are made by all ranks, also by those at which a rooted kind needs nothing: as the root needs. */
static size_t elements(const struct bench_settings *settings, const struct bench_case *c,
                       size_t (*of)(const struct bench_case *c))
{
    struct bench_case root = *c;
    root.rank = c->root;
    return settings->mapped && of(&root) > of(c) ? of(&root) : of(c);
}

static enum tutti_status buffers_open(struct bench_gpu *g, const struct bench_settings *settings,
                                      const struct bench_case *c, struct buffers *b)
{
    size_t esize = tutti_dtype_bytes(c->dtype);
    size_t send = elements(settings, c, c->op->send_elements), recv = elements(settings, c, c->op->recv_elements);
    memset(b, 0, sizeof *b);
    b->bytes[0] = (c->in_place && recv > send ? recv : send) * esize;
    b->bytes[1] = c->in_place ? 0 : recv * esize;
    for (int i = 0; i < 2; i++) {
        if (g->group > 1) b->strides[i] = (b->bytes[i] + BESIDE - 1) / BESIDE * BESIDE;
        b->bytes[i] += b->strides[i] * (g->group - 1);
        TUTTI_TRY(buffer_open(g, settings, b, i));
    }
    bench_buffers_place(c, &b->at);
    return TUTTI_OK;
}

static void buffers_close(struct bench_gpu *g, struct buffers *b)
{
    (void)g->gpu->ops->stream_sync(g->gpu, g->stream);
    for (int i = 0; i < 2; i++) {
        for (uint32_t s = 0; s < n_sides(g); s++) tutti_window_destroy(b->windows[s][i]);
        if (b->at.base[i]) g->gpu->ops->free(g->gpu, b->at.base[i]);
    }
}

/* In windows a broadcast's one buffer is at the same place on all ranks, and both forms are one. */
static bool one_place(const struct bench_settings *settings, const struct bench_case *c)
{
    return settings->mapped && strcmp(c->op->name, "broadcast") == 0;
}

/* ---- calls ---- */

/* NULL where a rooted kind needs nothing. */
static void *beside(void *buffer, size_t bytes)
{
    return buffer ? (char *)buffer + bytes : NULL;
}

static enum tutti_status calls_make(struct bench_gpu *g, uint32_t s, const struct bench_case *c,
                                    const struct buffers *b, const struct tutti_call_options *options, uint32_t calls)
{
    for (uint32_t i = 0; i < calls; i += g->group) {
        enum tutti_status status = TUTTI_OK;
        if (g->group > 1) TUTTI_TRY(tutti_group_start());
        for (uint32_t k = 0; k < g->group && i + k < calls && status >= 0; k++) {
            const void *send = beside(b->at.send, k * b->strides[0]);
            void *recv = beside(b->at.recv, k * b->strides[c->in_place ? 0 : 1]);
            status = c->op->call(c, send, recv, g->sides[s].comm, options);
        }
        if (g->group > 1) status = tutti_group_end(NULL); /* which fails when a call did */
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

static enum tutti_status capture(struct bench_gpu *g, uint32_t s, const struct bench_case *c, const struct buffers *b,
                                 const struct tutti_call_options *options, uint32_t calls, void **graph)
{
    TUTTI_TRY(calls_make(g, s, c, b, options, 1)); /* whatever is made at the first call is not made in a capture */
    TUTTI_TRY(g->gpu->ops->stream_sync(g->gpu, g->stream));
    TUTTI_TRY(g->gpu->ops->graph_begin(g->gpu, g->stream));
    enum tutti_status status = calls_make(g, s, c, b, options, calls);
    struct tutti_error why = *tutti_last_error();
    enum tutti_status ended = g->gpu->ops->graph_end(g->gpu, g->stream, graph);
    return status < 0 ? tutti_fail_record(&why) : ended;
}

/* ---- checking: of what is measured, all calls of a group, in graph mode a replay ---- */

static enum tutti_status inputs_put(struct bench_gpu *g, const struct bench_case *c, const struct buffers *b,
                                    unsigned char *host)
{
    size_t esize = tutti_dtype_bytes(c->dtype), n_send = c->op->send_elements(c), n_recv = c->op->recv_elements(c);
    for (uint32_t k = 0; k < g->group; k++) {
        void *send = beside(b->at.send, k * b->strides[0]), *recv = beside(b->at.recv, k * b->strides[1]);
        if (!c->in_place && n_recv) TUTTI_TRY(g->gpu->ops->set(g->gpu, recv, 0xa5, n_recv * esize));
        bench_fill(c, host, n_send, c->rank, k + 1);
        if (n_send) TUTTI_TRY(g->gpu->ops->copy_now(g->gpu, send, host, n_send * esize));
    }
    return TUTTI_OK;
}

static enum tutti_status outputs_compare(struct bench_gpu *g, const struct bench_case *c, const struct buffers *b,
                                         unsigned char *host, size_t *wrong)
{
    size_t n_recv = c->op->recv_elements(c);
    uint64_t mine = 0, all = 0;
    for (uint32_t k = 0; k < g->group; k++) {
        const void *recv = beside(b->at.recv, k * b->strides[c->in_place ? 0 : 1]);
        if (n_recv) TUTTI_TRY(g->gpu->ops->copy_now(g->gpu, host, recv, n_recv * tutti_dtype_bytes(c->dtype)));
        mine += bench_wrong(c, host, k + 1);
    }
    TUTTI_TRY(tutti_all_reduce(&mine, &all, 1, TUTTI_UINT64, TUTTI_SUM, g->sides[0].comm, NULL, NULL));
    *wrong = all;
    return TUTTI_OK;
}

static enum tutti_status check_with(struct bench_gpu *g, const struct bench_case *c, const struct buffers *b,
                                    const struct tutti_call_options *options, unsigned char *host, size_t *wrong)
{
    void *graph = NULL;
    enum tutti_status status = g->eager ? TUTTI_OK : capture(g, 0, c, b, options, g->group, &graph);
    if (status >= 0) status = inputs_put(g, c, b, host);
    if (status >= 0)
        status =
            graph ? g->gpu->ops->graph_launch(g->gpu, graph, g->stream) : calls_make(g, 0, c, b, options, g->group);
    if (status >= 0) status = g->gpu->ops->stream_sync(g->gpu, g->stream);
    if (status >= 0) status = tutti_comm_state(g->sides[0].comm, NULL);
    if (status >= 0) status = outputs_compare(g, c, b, host, wrong);
    if (graph) g->gpu->ops->graph_destroy(g->gpu, graph);
    return status;
}

static enum tutti_status check(struct bench_gpu *g, const struct bench_case *c, const struct buffers *b,
                               const struct tutti_call_options *options, size_t *wrong)
{
    size_t n_send = c->op->send_elements(c), n_recv = c->op->recv_elements(c);
    unsigned char *host = malloc((n_send > n_recv ? n_send : n_recv) * tutti_dtype_bytes(c->dtype) + 1);
    if (!host) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %zu bytes", c->bytes);
    enum tutti_status status = check_with(g, c, b, options, host, wrong);
    free(host);
    return status;
}

/* ---- timing ---- */

static enum tutti_status replay(struct bench_gpu *g, void *graph, double *us)
{
    TUTTI_TRY(g->gpu->ops->graph_launch(g->gpu, graph, g->stream));
    TUTTI_TRY(g->gpu->ops->event_record(g->gpu, g->from, g->stream));
    TUTTI_TRY(g->gpu->ops->graph_launch(g->gpu, graph, g->stream));
    TUTTI_TRY(g->gpu->ops->event_record(g->gpu, g->to, g->stream));
    TUTTI_TRY(g->gpu->ops->stream_sync(g->gpu, g->stream));
    return g->gpu->ops->elapsed(g->gpu, g->from, g->to, us);
}

/* One round: mean microseconds of a call at the slowest rank. */
static enum tutti_status timed(struct bench_gpu *g, uint32_t s, const struct bench_case *c, const struct buffers *b,
                               const struct tutti_call_options *options, void *graph, uint32_t calls, double *us)
{
    struct tutti_comm *comm = g->sides[s].comm;
    double mine = 0;
    TUTTI_TRY(tutti_barrier(comm, NULL, NULL));
    if (graph) {
        TUTTI_TRY(replay(g, graph, &mine));
    } else {
        uint64_t start = tutti_now_ns();
        TUTTI_TRY(calls_make(g, s, c, b, options, calls));
        TUTTI_TRY(g->gpu->ops->stream_sync(g->gpu, g->stream));
        mine = (double)(tutti_now_ns() - start) / 1e3;
    }
    mine /= calls;
    return tutti_all_reduce(&mine, us, 1, TUTTI_FLOAT64, TUTTI_MAX, comm, NULL, NULL);
}

/* --algorithm is tutti's; the peer's calls go by the peer, or not at all. */
static enum tutti_status rounds(struct bench_gpu *g, const struct bench_settings *settings, const struct bench_case *c,
                                const struct buffers *b, const struct tutti_call_options *options, double *us[2])
{
    struct tutti_call_options of[2] = {*options, *options};
    void *graphs[2] = {NULL, NULL};
    uint32_t calls = (bench_calls(settings, c->bytes) + g->group - 1) / g->group * g->group, n = n_sides(g);
    enum tutti_status status = TUTTI_OK;
    of[1].algorithm = settings->peer;
    for (uint32_t s = 0; s < n_sides(g) && status >= 0; s++) {
        double ignored;
        if (!g->eager) status = capture(g, s, c, b, &of[s], calls, &graphs[s]);
        if (status >= 0) status = timed(g, s, c, b, &of[s], graphs[s], calls, &ignored);
        if (s > 0 && status == TUTTI_ERR_ARGUMENT) n = 1, status = TUTTI_OK; /* it lacks what tutti has done */
    }
    for (uint32_t r = 0; r < settings->rounds && status >= 0; r++)
        for (uint32_t s = 0; s < n && status >= 0; s++) status = timed(g, s, c, b, &of[s], graphs[s], calls, &us[s][r]);
    for (uint32_t s = 0; s < n_sides(g); s++)
        if (graphs[s]) g->gpu->ops->graph_destroy(g->gpu, graphs[s]);
    return status;
}

static enum tutti_status measure_one(struct bench_gpu *g, const struct bench_settings *settings,
                                     const struct bench_case *c, struct bench_time *out)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct buffers b;
    double *us[2] = {calloc(settings->rounds, sizeof(double)), calloc(settings->rounds, sizeof(double))};
    options.algorithm = settings->algorithm;
    options.premul_value = BENCH_FACTOR;
    options.stream = g->stream;
    out->wrong = SIZE_MAX;
    enum tutti_status status = buffers_open(g, settings, c, &b);
    if (status >= 0 && !(us[0] && us[1])) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory");
    if (status >= 0 && settings->check) status = check(g, c, &b, &options, &out->wrong);
    if (status >= 0) status = rounds(g, settings, c, &b, &options, us);
    if (status >= 0) bench_summarise(c, us[0], settings->rounds, out);
    if (status >= 0 && g->has_peer) out->peer_us = bench_median(us[1], settings->rounds);
    struct tutti_error why = *tutti_last_error();
    buffers_close(g, &b);
    free(us[0]), free(us[1]);
    return status < 0 ? tutti_fail_record(&why) : status;
}

enum tutti_status bench_gpu_measure(struct bench_gpu *g, const struct bench_settings *settings,
                                    const struct bench_case *c, struct bench_point *out)
{
    struct bench_case form = *c;
    memset(out, 0, sizeof *out);
    out->c = *c;
    for (int in_place = 0; in_place < 2; in_place++) {
        form.in_place = in_place || one_place(settings, c);
        if (in_place && (c->op->in_place_at(c) == SIZE_MAX || settings->out_of_place_only)) continue;
        if (!in_place && settings->in_place_only) continue;
        TUTTI_TRY(measure_one(g, settings, &form, &out->time[in_place]));
        out->has[in_place] = true;
    }
    return TUTTI_OK;
}

/* ---- explaining ---- */

/* The best round of each counts, as on CPUs. */
static enum tutti_status ways_time(struct bench_gpu *g, const struct bench_settings *settings, const struct buffers *b,
                                   struct bench_cell *cell, void **graphs)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    uint32_t calls = bench_calls(settings, cell->c.bytes);
    double us;
    options.premul_value = BENCH_FACTOR;
    options.stream = g->stream;
    for (uint32_t r = 0; r <= settings->rounds; r++) /* the first one warms up */
        for (size_t i = 0; i < cell->n_ways; i++) {
            struct bench_way *way = &cell->ways[i];
            options.algorithm = way->name;
            if (r == 0 && !g->eager) TUTTI_TRY(capture(g, 0, &cell->c, b, &options, calls, &graphs[i]));
            TUTTI_TRY(timed(g, 0, &cell->c, b, &options, graphs[i], calls, &us));
            if (r < 2 || us < way->measured_us) way->measured_us = us;
        }
    bench_ways_compare(cell);
    return TUTTI_OK;
}

enum tutti_status bench_gpu_explain(struct bench_gpu *g, const struct bench_settings *settings,
                                    const struct bench_case *c, struct bench_cell *out)
{
    struct buffers b;
    void *graphs[TUTTI_ARRAY_LEN(out->ways)] = {NULL};
    memset(out, 0, sizeof *out);
    out->c = *c;
    out->c.in_place |= one_place(settings, c);
    if (c->bytes == 0)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s moves nothing: there is nothing to choose", c->op->name);
    enum tutti_status status = buffers_open(g, settings, &out->c, &b);
    if (status >= 0) status = bench_ways_list(g->sides[0].comm, &out->c, &b.at, out);
    if (status >= 0) status = ways_time(g, settings, &b, out, graphs);
    struct tutti_error why = *tutti_last_error();
    for (size_t i = 0; i < out->n_ways; i++)
        if (graphs[i]) g->gpu->ops->graph_destroy(g->gpu, graphs[i]);
    buffers_close(g, &b);
    return status < 0 ? tutti_fail_record(&why) : status;
}
