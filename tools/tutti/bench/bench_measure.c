/* SPDX-License-Identifier: BSD-3-Clause */
/* How `tutti bench` measures: rounds of back-to-back calls, each round's time the slowest rank's, the median over
 * rounds. On devices the calls are replayed from a graph or made one by one, and those of a peer take turns with
 * tutti's. A graph is launched twice in a row and the second launch is timed on the device: the first one brings the
 * ranks into step. */

#include "bench.h"
#include "tools/tutti/measure.h"

#include <stdlib.h>
#include <string.h>

/* ---- a series of calls ---- */

/* NULL where a rooted kind needs nothing. */
static void *beside(void *buffer, size_t bytes)
{
    return buffer ? (char *)buffer + bytes : NULL;
}

static enum tutti_status calls_make(const struct bench_series *s, uint32_t n)
{
    const struct bench_buffers *b = s->buffers;
    const uint32_t group = s->run->settings->group;
    for (uint32_t i = 0; i < n; i += group) {
        enum tutti_status status = TUTTI_OK;
        if (group > 1) TUTTI_TRY(tutti_group_start());
        for (uint32_t k = 0; k < group && i + k < n && status >= 0; k++) {
            const void *send = beside(b->send, k * b->strides[0]);
            void *recv = beside(b->recv, k * b->strides[s->c->in_place ? 0 : 1]);
            status = s->c->op->call(s->c, send, recv, s->run->sides[s->side].comm, &s->options);
        }
        if (group > 1) status = tutti_group_end(NULL); /* which fails when a call did */
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

struct bench_series bench_series(struct bench_run *run, const struct bench_case *c, const struct bench_buffers *b,
                                 uint32_t side, const char *algorithm)
{
    struct bench_series s = {.run = run, .c = c, .buffers = b, .options = TUTTI_CALL_OPTIONS_INIT, .side = side};
    s.options.algorithm = algorithm;
    s.options.premul_value = BENCH_FACTOR;
    s.options.wire = side == 0 ? run->settings->wire : TUTTI_WIRE_NONE;
    s.options.wire_seed = run->settings->seed;
    s.options.stream = run->stream;
    return s;
}

enum tutti_status bench_series_begin(struct bench_series *s, uint32_t calls)
{
    struct tutti_device *device = s->run->device;
    const struct tutti_device_ops *ops = device->ops;
    s->calls = calls;
    if (!s->run->settings->device || s->run->settings->eager) return TUTTI_OK;
    TUTTI_TRY(calls_make(s, 1)); /* whatever is made at the first call is not made in a capture */
    TUTTI_TRY(ops->stream_sync(device, s->run->stream));
    TUTTI_TRY(ops->graph_begin(device, s->run->stream));
    enum tutti_status status = calls_make(s, calls);
    struct tutti_error why = *tutti_last_error();
    enum tutti_status ended = ops->graph_end(device, s->run->stream, &s->graph);
    return status < 0 ? tutti_fail_record(&why) : ended;
}

void bench_series_end(struct bench_series *s)
{
    if (s->graph) s->run->device->ops->graph_destroy(s->run->device, s->graph);
    s->graph = NULL;
}

/* ---- timing ---- */

/* What this rank contributes; in an in place gather it is one block inside the receive buffer. */
static void fill_input(const struct bench_series *s, uint32_t round)
{
    bench_fill(s->c, s->buffers->send, bench_send_elements(s->c), s->c->rank, round);
}

static enum tutti_status replay(const struct bench_series *s, double *us)
{
    struct bench_run *run = s->run;
    const struct tutti_device_ops *ops = run->device->ops;
    TUTTI_TRY(ops->graph_launch(run->device, s->graph, run->stream));
    TUTTI_TRY(ops->event_record(run->device, run->from, run->stream));
    TUTTI_TRY(ops->graph_launch(run->device, s->graph, run->stream));
    TUTTI_TRY(ops->event_record(run->device, run->to, run->stream));
    TUTTI_TRY(ops->stream_sync(run->device, run->stream));
    return ops->elapsed(run->device, run->from, run->to, us);
}

/* Each call alone, after its inputs were rewritten. */
static enum tutti_status fresh_calls(const struct bench_series *s, double *us)
{
    for (uint32_t i = 0; i < s->calls; i++) {
        fill_input(s, i);
        TUTTI_TRY(tutti_barrier(s->run->comm, NULL, NULL));
        const uint64_t start = tutti_now_ns();
        TUTTI_TRY(calls_make(s, 1));
        *us += (double)(tutti_now_ns() - start) / 1e3;
    }
    return TUTTI_OK;
}

enum tutti_status bench_series_round(const struct bench_series *s, double *us)
{
    struct tutti_comm *comm = s->run->sides[s->side].comm;
    double mine = 0;
    TUTTI_TRY(tutti_barrier(comm, NULL, NULL));
    if (s->graph) {
        TUTTI_TRY(replay(s, &mine));
    } else if (s->run->settings->fresh) {
        TUTTI_TRY(fresh_calls(s, &mine));
    } else {
        const uint64_t start = tutti_now_ns();
        TUTTI_TRY(calls_make(s, s->calls));
        TUTTI_TRY(s->run->device->ops->stream_sync(s->run->device, s->run->stream));
        mine = (double)(tutti_now_ns() - start) / 1e3;
    }
    mine /= s->calls;
    return tutti_all_reduce(&mine, us, 1, TUTTI_FLOAT64, TUTTI_MAX, comm, NULL, NULL);
}

/* ---- checking: of what is measured, all calls of a group, in graph mode a replay ---- */

static enum tutti_status inputs_put(const struct bench_series *s, unsigned char *host)
{
    const struct bench_case *c = s->c;
    const struct bench_buffers *b = s->buffers;
    struct tutti_device *device = s->run->device;
    size_t esize = tutti_dtype_bytes(c->dtype), n_send = bench_send_elements(c), n_recv = bench_recv_elements(c);
    for (uint32_t k = 0; k < s->run->settings->group; k++) {
        void *send = beside(b->send, k * b->strides[0]), *recv = beside(b->recv, k * b->strides[1]);
        if (!c->in_place && n_recv) TUTTI_TRY(device->ops->set(device, recv, 0xa5, n_recv * esize));
        bench_fill(c, host, n_send, c->rank, k + 1);
        if (n_send) TUTTI_TRY(device->ops->copy_now(device, send, host, n_send * esize));
    }
    return TUTTI_OK;
}

static enum tutti_status outputs_compare(const struct bench_series *s, unsigned char *host, size_t *wrong)
{
    const struct bench_case *c = s->c;
    const struct bench_buffers *b = s->buffers;
    struct tutti_device *device = s->run->device;
    size_t n_recv = bench_recv_elements(c);
    uint64_t mine = 0, all = 0;
    for (uint32_t k = 0; k < s->run->settings->group; k++) {
        const void *recv = beside(b->recv, k * b->strides[c->in_place ? 0 : 1]);
        if (n_recv) TUTTI_TRY(device->ops->copy_now(device, host, recv, n_recv * tutti_dtype_bytes(c->dtype)));
        mine += bench_wrong(c, host, k + 1);
    }
    TUTTI_TRY(tutti_all_reduce(&mine, &all, 1, TUTTI_UINT64, TUTTI_SUM, s->run->sides[s->side].comm, NULL, NULL));
    *wrong = all;
    return TUTTI_OK;
}

static enum tutti_status check_with(struct bench_series *s, unsigned char *host, size_t *wrong)
{
    struct bench_run *run = s->run;
    const struct tutti_device_ops *ops = run->device->ops;
    enum tutti_status status = bench_series_begin(s, run->settings->group);
    if (status >= 0) status = inputs_put(s, host);
    if (status >= 0)
        status = s->graph ? ops->graph_launch(run->device, s->graph, run->stream) : calls_make(s, s->calls);
    if (status >= 0) status = ops->stream_sync(run->device, run->stream);
    if (status >= 0) status = tutti_comm_state(run->sides[s->side].comm, NULL);
    if (status >= 0) status = outputs_compare(s, host, wrong);
    bench_series_end(s);
    return status;
}

static enum tutti_status check(struct bench_series *s, size_t *wrong)
{
    size_t n_send = bench_send_elements(s->c), n_recv = bench_recv_elements(s->c);
    unsigned char *host = malloc((n_send > n_recv ? n_send : n_recv) * tutti_dtype_bytes(s->c->dtype) + 1);
    if (!host) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %zu bytes", s->c->bytes);
    enum tutti_status status = check_with(s, host, wrong);
    free(host);
    return status;
}

/* ---- points ---- */

static enum tutti_status warm_up(struct bench_series *s, uint32_t calls)
{
    const struct bench_settings *settings = s->run->settings;
    struct bench_series few = *s;
    double ignored;
    if (!settings->device) {
        fill_input(s, 0);
        few.calls = settings->warmup < calls ? settings->warmup : calls;
    }
    return few.calls ? bench_series_round(&few, &ignored) : TUTTI_OK;
}

static enum tutti_status rounds(struct bench_run *run, struct bench_series series[2], double *us[2])
{
    const uint32_t group = run->settings->group;
    const uint32_t calls = (bench_calls(run->settings, series[0].c->bytes) + group - 1) / group * group;
    uint32_t n = run->n_sides;
    enum tutti_status status = TUTTI_OK;
    for (uint32_t s = 0; s < run->n_sides && status >= 0; s++) {
        status = bench_series_begin(&series[s], calls);
        if (status >= 0) status = warm_up(&series[s], calls);
        if (s > 0 && status == TUTTI_ERR_ARGUMENT) n = 1, status = TUTTI_OK; /* it lacks what tutti has done */
    }
    for (uint32_t r = 0; r < run->settings->rounds && status >= 0; r++) {
        for (uint32_t i = 0; i < n && status >= 0; i++) {
            const uint32_t s = (i + r) % n; /* each is the first as often */
            status = bench_series_round(&series[s], &us[s][r]);
        }
    }
    for (uint32_t s = 0; s < run->n_sides; s++) bench_series_end(&series[s]);
    return status;
}

/* --algorithm is tutti's; the peer's calls go by the peer, or not at all. */
static enum tutti_status measure_one(struct bench_run *run, const struct bench_case *c, struct bench_time *out)
{
    const struct bench_settings *settings = run->settings;
    struct bench_buffers b = {0};
    struct bench_series series[2] = {bench_series(run, c, &b, 0, settings->algorithm),
                                     bench_series(run, c, &b, 1, settings->peer)};
    const uint32_t n = settings->rounds;
    double *room = calloc(3 * (size_t)n, sizeof(double)), *us[2] = {room, room ? room + n : NULL};
    out->wrong = SIZE_MAX;
    enum tutti_status status = bench_buffers_open(run, c, &b);
    if (status >= 0 && !room) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory");
    if (status >= 0 && settings->check) status = check(&series[0], &out->wrong);
    if (status >= 0) status = rounds(run, series, us);
    if (status >= 0 && run->n_sides > 1) bench_compare(us[0], us[1], room + 2 * (size_t)n, n, out);
    if (status >= 0) bench_summarise(c, us[0], n, out); /* which sorts them */
    struct tutti_error why = *tutti_last_error();
    bench_buffers_close(run, &b);
    free(room);
    return status < 0 ? tutti_fail_record(&why) : status;
}

/* In windows a broadcast's one buffer is at the same place on all ranks, and both forms are one. */
bool bench_one_place(const struct bench_run *run, const struct bench_case *c)
{
    return run->settings->device && run->settings->mapped && strcmp(c->op->info->name, "broadcast") == 0;
}

enum tutti_status bench_measure(struct bench_run *run, const struct bench_case *c, struct bench_point *out)
{
    struct bench_case form = *c;
    memset(out, 0, sizeof *out);
    out->c = *c;
    out->probe_before_ns = bench_probe_ns(run);
    for (int in_place = 0; in_place < 2; in_place++) {
        form.in_place = in_place || bench_one_place(run, c);
        if (in_place && (bench_in_place_at(c) == SIZE_MAX || run->settings->out_of_place_only)) continue;
        if (!in_place && run->settings->in_place_only) continue;
        TUTTI_TRY(measure_one(run, &form, &out->time[in_place]));
        out->has[in_place] = true;
    }
    out->probe_after_ns = bench_probe_ns(run);
    return TUTTI_OK;
}
