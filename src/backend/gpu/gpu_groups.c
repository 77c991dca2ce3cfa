/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of calls: which of them become one exchange, and what in it depends on what. */
#include "backend/gpu/gpu_plan.h"

#include <math.h>
#include <string.h>

/* ---- runs ---- */

/* Units from the first of these calls' segments to the end of the last. */
size_t gpu_run_units(const struct tutti_backend_call *calls, size_t n)
{
    size_t units = 0;
    for (size_t i = 0; i < n; i++)
        units +=
            (gpu_call_bytes(&calls[i]) + 16 * GPU_SEGMENT_UNITS - 1) / (16 * GPU_SEGMENT_UNITS) * GPU_SEGMENT_UNITS;
    return units;
}

static bool is_plain(const struct tutti_backend_call *call)
{
    return !call->bind.v && !call->method && !call->bind.user && !call->within;
}

static bool are_alike(const struct tutti_backend_call *a, const struct tutti_backend_call *b)
{
    return is_plain(a) && is_plain(b) && a->info.kind == b->info.kind && a->info.dtype == b->info.dtype &&
           a->info.op == b->info.op && a->info.root == b->info.root;
}

static double alone_ns(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    double ns = 0;
    if (call->bind.count > 0) gpu_choose(site, call, "", &ns);
    return ns;
}

/* The run as a call of so many units, of which so many bytes are used; HUGE_VAL: it is too long, or there are no
 * kernels. */
static double fused_ns(const struct gpu_site *site, size_t units, size_t bytes, struct gpu_run *run)
{
    static const struct {
        const struct gpu_method *method;
        enum gpu_protocol protocol;
    } wires[] = {{&gpu_lines, GPU_BATCH_LINES}, {&gpu_sentinel, GPU_BATCH_SENTINEL}};
    size_t element = tutti_dtype_bytes(run->whole.info.dtype);
    struct tutti_backend_call used = run->whole;
    double least = HUGE_VAL;
    run->whole.bind.count = units * 16 / element;
    used.bind.count = bytes / element;
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(wires); w++) {
        if (!gpu_has(site, &run->whole, wires[w].protocol) || !wires[w].method->fits(site, &run->whole)) continue;
        double ns = wires[w].method->cost_ns(site, &used);
        if (ns >= least) continue;
        least = ns;
        run->method = wires[w].method;
        run->protocol = wires[w].protocol;
    }
    return least;
}

void gpu_run_plan(const struct gpu_site *site, const struct tutti_backend_call *calls, size_t n, const char *wanted,
                  struct gpu_run *out)
{
    bool forced = strcmp(wanted, "batch") == 0;
    *out = (struct gpu_run){.n = 1, .whole = calls[0]};
    if (calls[0].info.kind == TUTTI_BARRIER || (wanted[0] && !forced)) return;
    double ns = alone_ns(site, &calls[0]);
    size_t units = gpu_run_units(calls, 1), bytes = gpu_call_bytes(calls), segments = bytes > 0;
    struct gpu_run longer = *out;
    for (; out->n < n && are_alike(&calls[0], &calls[out->n]); *out = longer) {
        const struct tutti_backend_call *next = &calls[out->n];
        units += gpu_run_units(next, 1);
        bytes += gpu_call_bytes(next);
        segments += next->bind.count > 0;
        double together = segments <= GPU_SEGMENTS ? fused_ns(site, units, bytes, &longer) : HUGE_VAL;
        if (together == HUGE_VAL || (!forced && together > ns + alone_ns(site, next))) return;
        ns = together;
        longer.n++;
    }
}

void gpu_run_fill(const struct gpu_site *site, const struct tutti_backend_call *calls, size_t n, struct gpu_batch *out)
{
    size_t segments = 0, units = 0;
    gpu_batch_form(site, calls, out);
    for (size_t i = 0; i < n; i++) {
        if (calls[i].bind.count == 0) continue;
        out->first[segments] = (uint32_t)units;
        out->segments[segments++] =
            (struct gpu_segment){calls[i].bind.input, calls[i].bind.output, gpu_call_bytes(&calls[i])};
        units += gpu_run_units(&calls[i], 1);
    }
    while (segments <= GPU_SEGMENTS) out->first[segments++] = (uint32_t)units;
}

/* ---- what depends on what ---- */

struct extent {
    uintptr_t begin, end; /* equal: nothing */
};

static struct extent extent_of(const void *buffer, size_t bytes)
{
    uintptr_t begin = bytes > 0 ? (uintptr_t)buffer : 0;
    return (struct extent){begin, begin + bytes};
}

static bool overlap(struct extent a, struct extent b)
{
    return a.begin < b.end && b.begin < a.end;
}

static struct extent joined(struct extent a, struct extent b)
{
    if (a.begin == a.end) return b;
    if (b.begin == b.end) return a;
    return (struct extent){a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

/* What this rank reads and writes in a call. */
struct use {
    struct extent in, out;
};

static struct use use_of(const struct gpu_site *site, const struct tutti_backend_call *call,
                         const struct gpu_batch *form)
{
    size_t bytes = gpu_call_bytes(call), all = bytes * site->n;
    return (struct use){extent_of(call->bind.input, !form->sends       ? 0
                                                    : form->sends_each ? all
                                                                       : bytes),
                        extent_of(call->bind.output, !form->receives       ? 0
                                                     : form->receives_each ? all
                                                                           : bytes)};
}

static bool depend(struct use earlier, struct use later)
{
    return overlap(later.in, earlier.out) || overlap(later.out, earlier.out) || overlap(later.out, earlier.in);
}

static bool same_factor(const struct tutti_backend_call *a, const struct tutti_backend_call *b)
{
    return a->info.op != TUTTI_PREMUL_SUM || memcmp(a->bind.factor, b->bind.factor, tutti_dtype_bytes(a->info.dtype)) == 0;
}

size_t gpu_run_independent(const struct gpu_site *site, const struct tutti_backend_call *calls, size_t n)
{
    struct gpu_batch form;
    gpu_batch_form(site, calls, &form);
    struct use all = use_of(site, calls, &form); /* as a whole, which most later calls lie beside */
    for (size_t i = 1; i < n; i++) {
        struct use next = use_of(site, &calls[i], &form);
        if (!same_factor(&calls[0], &calls[i])) return i;
        for (size_t k = 0; k < i && depend(all, next); k++)
            if (depend(use_of(site, &calls[k], &form), next)) return i;
        all = (struct use){joined(all.in, next.in), joined(all.out, next.out)};
    }
    return n;
}
