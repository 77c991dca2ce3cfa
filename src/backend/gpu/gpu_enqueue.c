/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls: the chosen method's steps, enqueued one by one. Nothing is allocated, nothing waits. */
#include "backend/gpu/gpu_backend.h"

#include <string.h>

/* *half: it failed, and not at its first step. */
static enum tutti_status run_steps(struct gpu_backend *b, const struct gpu_method *method, const struct gpu_site *site,
                                   const struct tutti_backend_call *call, void *stream, bool *half)
{
    for (uint32_t i = 0; method->step(site, call, i, &b->step); i++) {
        *half = i > 0;
        TUTTI_TRY(gpu_step_run(b, call, stream));
    }
    return TUTTI_OK;
}

/* What ranks have to agree on beyond the call: a method for windows, which of them, where in it. */
static uint64_t where_by(const struct gpu_method *method, const struct gpu_site *site)
{
    return method->in_windows ? tutti_hash64(method->name, strlen(method->name), site->where) : 0;
}

static enum tutti_status enqueue_in(struct gpu_backend *b, const struct gpu_method *method, const struct gpu_site *site,
                                    const struct tutti_backend_call *call, void *stream)
{
    uint64_t capture;
    bool half = false;
    TUTTI_TRY(gpu_order_begin(b, stream, &capture));
    enum tutti_status status = run_steps(b, method, site, call, stream, &half);
    if (status < 0)
        return half ? gpu_give_up_half(b, tutti_kind_name(call->info.kind), call->seq, stream, capture) : status;
    watch_log_post(gpu_log(b), call, where_by(method, site), b->timeout_ns);
    b->posted_seq = call->seq;
    status = gpu_order_end(b, stream, capture);
    return status < 0 ? gpu_give_up(b, tutti_kind_name(call->info.kind), call->seq) : TUTTI_OK;
}

/* The key by which a method is chosen: the signature, and what windows add to it. Of a place only its offset within 16
 * bytes counts. */
static uint64_t choice_of(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    uintptr_t places = 0, apart = 0;
    if (!site->own) return call->info.signature;
    for (uint32_t q = 0; q < site->n; q++) {
        places |= (uintptr_t)gpu_site_there(site, call, q, 0);
        apart |= (uintptr_t)site->peers[q] ^ (uintptr_t)site->own;
    }
    const uint64_t in_place = gpu_call_in_place(site, call);
    return tutti_mix64(call->info.signature ^ (1 | in_place << 1 | (places & 15) << 2 | (apart & 15) << 6));
}

/* Once for each of those; but v forms hide more. */
static const struct gpu_method *choose(struct gpu_backend *b, const struct gpu_site *site,
                                       const struct tutti_backend_call *call)
{
    if (call->method || call->bind.v) return gpu_choose(site, call, call->method ? call->method : b->forced, NULL);
    const uint64_t by = choice_of(site, call);
    struct gpu_choice *known = &b->choices[by % GPU_CHOICES];
    if (!known->method || known->by != by) *known = (struct gpu_choice){by, gpu_choose(site, call, b->forced, NULL)};
    return known->method;
}

enum tutti_status gpu_enqueue(struct tutti_backend *backend, const struct tutti_backend_call *call, void *stream)
{
    struct gpu_backend *b = gpu_of(backend);
    struct gpu_site site = b->site;
    struct tutti_device_scope scope;
    TUTTI_TRY(gpu_state(b));
    if (call->counted) return gpu_counted_enqueue(b, call, stream);
    gpu_window_site(b, call, &site);
    const struct gpu_method *method = choose(b, &site, call);
    if (!method)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s can not run %s of %s", b->base.ops->name,
                          tutti_kind_name(call->info.kind), tutti_dtype_name(call->info.dtype));
    b->timeout_ns = call->info.timeout_ns ? call->info.timeout_ns : tutti_team_timeout(b->watched.team);
    TUTTI_TRY(tutti_device_enter(b->gpu, &scope));
    const bool stale = method->in_windows && gpu_window_check(b, &site) < 0;
    const enum tutti_status status = stale ? gpu_give_up(b, tutti_kind_name(call->info.kind), call->seq)
                                           : enqueue_in(b, method, &site, call, stream);
    tutti_device_leave(b->gpu, &scope);
    return status;
}
