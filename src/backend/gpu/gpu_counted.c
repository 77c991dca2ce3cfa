/* SPDX-License-Identifier: BSD-3-Clause */
/* An all_to_all_v whose counts are on the device: one launch, whose kernel reads them there. Its grid is what the most
 * bytes that may come or go would ask for; blocks that have nothing to do end at once. */
#include "backend/gpu/gpu_backend.h"

static uint32_t blocks_of(const struct gpu_backend *b, const struct tutti_backend_counted *counted)
{
    const struct gpu_layout *layout = &b->site.layout;
    const uint32_t blocks = gpu_tile_blocks(counted->most_bytes, layout->tile_bytes, layout->n_blocks);
    return blocks > 0 ? blocks : 1; /* which writes what came */
}

static enum tutti_status launch(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    const struct tutti_backend_counted *counted = call->counted;
    struct gpu_counted *x = &b->counted;
    const struct tutti_gpu_launch how = {.kernel = b->counted_tiles,
                                         .stream = stream,
                                         .blocks = blocks_of(b, counted),
                                         .threads = b->site.tile_threads,
                                         .args_bytes = sizeof(*x)};
    x->exchange.in = call->bind.input, x->exchange.out = call->bind.output;
    x->exchange.call.seq = call->seq;
    x->exchange.call.timeout_ns = gpu_timeout_ns(b);
    x->rows = counted->rows;
    x->send_displs = counted->send_displs;
    x->recv_counts = counted->recv_counts;
    x->status = counted->status;
    x->truncated = TUTTI_ERR_TRUNCATED;
    x->element = (uint32_t)tutti_dtype_bytes(call->info.dtype);
    return b->gpu->ops->gpu->launch(b->gpu, &how, x);
}

static enum tutti_status enqueue(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    uint64_t capture;
    TUTTI_TRY(gpu_order_begin(b, stream, &capture));
    TUTTI_TRY(launch(b, call, stream));
    watch_log_post(gpu_log(b), call, 0, b->timeout_ns);
    b->posted_seq = call->seq;
    const enum tutti_status status = gpu_order_end(b, stream, capture);
    return status < 0 ? gpu_give_up(b, "all_to_all_v_dynamic", call->seq) : TUTTI_OK;
}

enum tutti_status gpu_counted_enqueue(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    struct tutti_device_scope scope;
    if (!b->counted_tiles) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel tiles_counted_16");
    b->timeout_ns = call->info.timeout_ns ? call->info.timeout_ns : tutti_team_timeout(b->watched.team);
    TUTTI_TRY(tutti_device_enter(b->gpu, &scope));
    const enum tutti_status status = enqueue(b, call, stream);
    tutti_device_leave(b->gpu, &scope);
    return status;
}
