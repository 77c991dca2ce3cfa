/* SPDX-License-Identifier: BSD-3-Clause */
/* One run of `tutti bench`: the communicators that it measures and the buffers of their calls. CPUs are a device, too;
 * on others tutti and, with --peer, another library have communicators of their own. With --survive the communicator
 * that survives is measured, and the peer is the same without that. */

#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096
#define HUGE_PAGE ((size_t)2 << 20)
#define BESIDE 512 /* buffers begin at multiples of it, as allocators place them */
#define BLANK 0x3c /* inputs that nobody checks: small numbers in every type */

/* ---- opening ---- */

/* way NULL: as the options say. */
static enum tutti_status side_open(struct bench_run *run, struct bench_side *side, const char *way)
{
    struct tutti_option option = {"gpu", way};
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    char name[32];
    snprintf(name, sizeof name, "bench-%s%d", way ? way : "tutti", (int)(side - run->sides));
    config.name = name;
    config.rank = tutti_comm_rank(run->comm), config.n_ranks = tutti_comm_size(run->comm);
    config.device = run->settings->device ? run->device->ordinal : TUTTI_DEVICE_NONE;
    config.survive = run->settings->survive && side == run->sides;
    TUTTI_TRY(tutti_context_create(&option, way ? 1 : 0, &side->context));
    TUTTI_TRY(tutti_comm_create(side->context, &config, &side->comm));
    if (!run->settings->device || tutti_comm_device(side->comm) >= 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the option gpu is off: there is no device to measure");
}

static enum tutti_status device_open(struct bench_run *run)
{
    const struct tutti_device_ops *kind;
    const char *ways[2] = {NULL, run->settings->peer};
    TUTTI_TRY(tutti_device_use(run->settings->device, &kind));
    TUTTI_TRY(kind->open(tutti_comm_rank(run->comm) % (int32_t)kind->count(), &run->device));
    TUTTI_TRY(kind->stream_create(run->device, &run->stream));
    TUTTI_TRY(kind->event_create(run->device, true, &run->from));
    TUTTI_TRY(kind->event_create(run->device, true, &run->to));
    run->n_sides = ways[1] || run->settings->survive ? 2 : 1;
    for (uint32_t i = 0; i < run->n_sides; i++) TUTTI_TRY(side_open(run, &run->sides[i], ways[i]));
    return TUTTI_OK;
}

static enum tutti_status host_open(struct bench_run *run)
{
    run->n_sides = run->settings->peer || run->settings->survive ? 2 : 1;
    run->sides[0].comm = run->sides[1].comm = run->comm;
    TUTTI_TRY(tutti_device_cpu.open(0, &run->device));
    for (uint32_t i = 0; run->settings->survive && i < 2; i++) TUTTI_TRY(side_open(run, &run->sides[i], NULL));
    if (tutti_comm_size(run->comm) == 1) return TUTTI_OK;
    TUTTI_TRY(tutti_mem_alloc(run->comm, PAGE, &run->line));
    enum tutti_status status = tutti_window_create(run->comm, run->line, PAGE, NULL, &run->window);
    return status == TUTTI_ERR_UNSUPPORTED ? TUTTI_OK : status; /* across hosts: no line to probe */
}

enum tutti_status bench_run_open(struct tutti_comm *comm, const struct bench_settings *settings, struct bench_run **out)
{
    struct bench_run *run = calloc(1, sizeof *run);
    if (!run) return tutti_fail(TUTTI_ERR_MEMORY, "no memory");
    run->comm = comm;
    run->settings = settings;
    *out = run;
    return settings->device ? device_open(run) : host_open(run);
}

void bench_run_close(struct bench_run *run)
{
    const struct tutti_device_ops *ops = run->device ? run->device->ops : NULL;
    for (uint32_t i = 0; i < run->n_sides; i++) {
        if (run->sides[i].comm != run->comm) tutti_comm_destroy(run->sides[i].comm);
        tutti_context_destroy(run->sides[i].context);
    }
    if (run->from) ops->event_destroy(run->device, run->from);
    if (run->to) ops->event_destroy(run->device, run->to);
    if (run->stream) ops->stream_destroy(run->device, run->stream);
    if (run->device) ops->close(run->device);
    tutti_window_destroy(run->window);
    if (run->line) (void)tutti_mem_free(run->comm, run->line);
    free(run);
}

/* ---- buffers ---- */

/* Whole huge pages, so that the advice is for this buffer alone. */
static void *private_open(const char *pages, size_t bytes)
{
    if (!pages) return aligned_alloc(PAGE, bytes);
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, bytes);
    if (memory) (void)madvise(memory, bytes, strcmp(pages, "huge") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return memory;
}

static enum tutti_status memory_open(struct bench_run *run, size_t bytes, void **out)
{
    if (run->settings->device) return run->device->ops->alloc(run->device, bytes, out);
    if (run->settings->mapped) return tutti_mem_alloc(run->comm, bytes, out);
    *out = private_open(run->settings->pages, bytes);
    return *out ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
}

static void memory_close(struct bench_run *run, void *memory)
{
    if (run->settings->device)
        run->device->ops->free(run->device, memory);
    else if (run->settings->mapped && memory)
        (void)tutti_mem_free(run->comm, memory);
    else
        free(memory);
}

/* On a device ordinary memory, or a window of each side over the same allocation. */
static enum tutti_status buffer_open(struct bench_run *run, struct bench_buffers *b, int i, size_t bytes)
{
    if (bytes == 0 && run->settings->device) return TUTTI_OK;
    bytes = (bytes / PAGE + 1) * PAGE;
    TUTTI_TRY(memory_open(run, bytes, &b->base[i]));
    TUTTI_TRY(run->device->ops->set(run->device, b->base[i], BLANK, bytes));
    for (uint32_t s = 0; run->settings->device && run->settings->mapped && s < run->n_sides; s++) {
        const enum tutti_status status =
            tutti_window_create(run->sides[s].comm, b->base[i], bytes, NULL, &b->windows[s][i]);
        if (status < 0 && !(s > 0 && status == TUTTI_ERR_UNSUPPORTED)) return status; /* a peer may have none */
    }
    return TUTTI_OK;
}

/* Windows are made by all ranks, also by those at which a rooted kind needs nothing: as the root needs. */
static size_t elements(const struct bench_run *run, const struct bench_case *c,
                       size_t (*of)(const struct bench_case *c))
{
    struct bench_case root = *c;
    root.rank = c->root;
    return run->settings->device && run->settings->mapped && of(&root) > of(c) ? of(&root) : of(c);
}

enum tutti_status bench_buffers_open(struct bench_run *run, const struct bench_case *c, struct bench_buffers *b)
{
    const size_t esize = tutti_dtype_bytes(c->dtype), group = run->settings->group;
    const size_t send = elements(run, c, bench_send_elements), recv = elements(run, c, bench_recv_elements);
    const size_t bytes[2] = {(c->in_place && recv > send ? recv : send) * esize, c->in_place ? 0 : recv * esize};
    memset(b, 0, sizeof *b);
    for (int i = 0; i < 2; i++) {
        const size_t stride = group > 1 ? (bytes[i] + BESIDE - 1) / BESIDE * BESIDE : 0;
        b->strides[i] = stride;
        TUTTI_TRY(buffer_open(run, b, i, bytes[i] + stride * (group - 1)));
    }
    bench_buffers_place(c, b);
    return TUTTI_OK;
}

void bench_buffers_close(struct bench_run *run, struct bench_buffers *b)
{
    (void)run->device->ops->stream_sync(run->device, run->stream);
    for (int i = 0; i < 2; i++) {
        for (uint32_t s = 0; s < run->n_sides; s++) tutti_window_destroy(b->windows[s][i]);
        memory_close(run, b->base[i]);
    }
}
