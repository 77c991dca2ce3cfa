/* SPDX-License-Identifier: BSD-3-Clause */

/* The functions that algorithms call. Each checks its step against the (sub-)collective that is being emitted, maps it
 * to slots and chunks of the whole, and hands it to the sealer. After the first defect they do nothing. A call runs its
 * reference algorithm in a frame of its own, so that sub-collectives nest without knowing of one another. */

#include "sched/emit.h"

#include <stdatomic.h>

static _Atomic(tutti_reference_function) reference_function;

void tutti_schedule_set_reference(tutti_reference_function function)
{
    atomic_store(&reference_function, function);
}

static const struct tutti_algorithm *reference_of(enum tutti_kind kind, const struct tutti_shape *sub)
{
    tutti_reference_function function = atomic_load(&reference_function);

    return function ? function(kind, sub) : NULL;
}

static const char *const buffer_names[] = {"DATA", "SCRATCH", "IN"};

/* Chunks that a buffer has in this frame. */
static uint32_t buffer_chunks(const struct tutti_frame *frame, enum tutti_buffer buffer)
{
    if (buffer == TUTTI_DATA) return frame->n_chunks;
    if (buffer == TUTTI_SCRATCH) return frame->n_scratch;
    return tutti_kind_info(frame->kind)->separate_in ? frame->n_chunks : 0;
}

/* Maps n chunks to the whole; false after a defect. */
static bool map_chunks(struct tutti_emit *emit, const char *verb, enum tutti_buffer buffer, uint32_t chunk, uint32_t n,
                       uint32_t *out)
{
    const struct tutti_frame *frame = &emit->frame;

    if ((uint32_t)buffer > TUTTI_IN) {
        tutti_sealer_defect(emit, "%s a buffer that does not exist (%u)", verb, (uint32_t)buffer);
        return false;
    }
    uint32_t limit = buffer_chunks(frame, buffer);
    if (n == 0) {
        tutti_sealer_defect(emit, "%s 0 chunks of %s at chunk %u", verb, buffer_names[buffer], chunk);
        return false;
    }
    if (chunk >= limit || n > limit - chunk) {
        tutti_sealer_defect(emit, "%s chunk %u of %s, which has %u here", verb, chunk >= limit ? chunk : limit,
                            buffer_names[buffer], limit);
        return false;
    }
    *out = (buffer == TUTTI_SCRATCH ? frame->scratch : frame->chunk) + chunk * frame->width;
    return true;
}

static bool map_dst(struct tutti_emit *emit, enum tutti_buffer buffer, uint32_t chunk, uint32_t n,
                    struct tutti_step *step)
{
    if (buffer == TUTTI_IN) {
        tutti_sealer_defect(emit, "writes chunk %u of IN, which is read-only", chunk);
        return false;
    }
    if (!map_chunks(emit, "writes", buffer, chunk, n, &step->dst)) return false;
    step->dst_buffer = (uint8_t)buffer;
    return true;
}

static bool map_src(struct tutti_emit *emit, enum tutti_buffer buffer, uint32_t chunk, uint32_t n,
                    struct tutti_step *step)
{
    if (!map_chunks(emit, "reads", buffer, chunk, n, &step->src)) return false;
    step->src_buffer = (uint8_t)buffer;
    return true;
}

static bool map_peer(struct tutti_emit *emit, uint32_t peer, struct tutti_step *step)
{
    const struct tutti_frame *frame = &emit->frame;

    if (peer >= frame->size || peer == frame->slot) {
        tutti_sealer_defect(emit, "exchanges with %s %u of %u", peer == frame->slot ? "itself, rank" : "rank", peer,
                            frame->size);
        return false;
    }
    step->peer = frame->base + peer * frame->stride;
    return true;
}

/* A kind without an operation can not combine. */
static bool check_reduces(struct tutti_emit *emit)
{
    if (tutti_kind_info(emit->frame.kind)->reduces) return true;
    tutti_sealer_defect(emit, "combines chunks, but %s has no operation", tutti_kind_name(emit->frame.kind));
    return false;
}

static struct tutti_step step_of(const struct tutti_emit *emit, enum tutti_step_op op, uint32_t n)
{
    return (struct tutti_step){.op = (uint8_t)op, .n = n * emit->frame.width};
}

void tutti_emit_send(struct tutti_emit *emit, uint32_t peer, enum tutti_buffer buffer, uint32_t chunk, uint32_t n)
{
    struct tutti_step step = step_of(emit, TUTTI_STEP_SEND, n);

    if (tutti_sealer_stopped(emit)) return;
    if (map_peer(emit, peer, &step) && map_src(emit, buffer, chunk, n, &step)) tutti_sealer_add(emit, step);
}

void tutti_emit_recv(struct tutti_emit *emit, uint32_t peer, enum tutti_buffer buffer, uint32_t chunk, uint32_t n)
{
    struct tutti_step step = step_of(emit, TUTTI_STEP_RECV, n);

    if (tutti_sealer_stopped(emit)) return;
    if (map_peer(emit, peer, &step) && map_dst(emit, buffer, chunk, n, &step)) tutti_sealer_add(emit, step);
}

void tutti_emit_recv_reduce(struct tutti_emit *emit, uint32_t peer, enum tutti_buffer buffer, uint32_t chunk,
                            uint32_t n, enum tutti_side side)
{
    struct tutti_step step = step_of(emit, TUTTI_STEP_RECV_REDUCE, n);

    if (tutti_sealer_stopped(emit)) return;
    step.flags = side == TUTTI_LEFT ? TUTTI_STEP_LEFT : 0;
    if (check_reduces(emit) && map_peer(emit, peer, &step) && map_dst(emit, buffer, chunk, n, &step))
        tutti_sealer_add(emit, step);
}

/* Operands of a local step must be apart: no back end could say what overlapping ones mean. */
static void add_local(struct tutti_emit *emit, const struct tutti_step *step)
{
    uint32_t distance = step->src < step->dst ? step->dst - step->src : step->src - step->dst;

    if (step->src_buffer == step->dst_buffer && distance < step->n)
        tutti_sealer_defect(emit, "combines or copies chunks %u and %u of %s, which overlap", step->src, step->dst,
                            buffer_names[step->src_buffer]);
    else
        tutti_sealer_add(emit, *step);
}

void tutti_emit_copy(struct tutti_emit *emit, enum tutti_buffer dst_buffer, uint32_t dst, enum tutti_buffer src_buffer,
                     uint32_t src, uint32_t n)
{
    struct tutti_step step = step_of(emit, TUTTI_STEP_COPY, n);

    if (tutti_sealer_stopped(emit)) return;
    if (map_dst(emit, dst_buffer, dst, n, &step) && map_src(emit, src_buffer, src, n, &step)) add_local(emit, &step);
}

void tutti_emit_reduce(struct tutti_emit *emit, enum tutti_buffer dst_buffer, uint32_t dst,
                       enum tutti_buffer src_buffer, uint32_t src, uint32_t n, enum tutti_side side)
{
    struct tutti_step step = step_of(emit, TUTTI_STEP_REDUCE, n);

    if (tutti_sealer_stopped(emit)) return;
    step.flags = side == TUTTI_LEFT ? TUTTI_STEP_LEFT : 0;
    if (check_reduces(emit) && map_dst(emit, dst_buffer, dst, n, &step) && map_src(emit, src_buffer, src, n, &step))
        add_local(emit, &step);
}

/* ---- calls ---- */

static bool check_view(struct tutti_emit *emit, enum tutti_kind kind, const struct tutti_view *view)
{
    const struct tutti_frame *frame = &emit->frame;
    const char *name = tutti_kind_name(kind);

    if ((uint32_t)kind >= TUTTI_N_KINDS || tutti_kind_info(kind)->separate_in) {
        tutti_sealer_defect(emit, "calls %s, which has no place in DATA alone", name);
    } else if (tutti_kind_info(kind)->reduces && !check_reduces(emit)) {
        return false;
    } else if (view->size == 0 || view->stride == 0 ||
               view->base + (uint64_t)(view->size - 1) * view->stride >= frame->size) {
        tutti_sealer_defect(emit, "calls %s on ranks %u + i * %u for i < %u, but there are %u ranks", name, view->base,
                            view->stride, view->size, frame->size);
    } else if (frame->slot < view->base || (frame->slot - view->base) % view->stride != 0 ||
               (frame->slot - view->base) / view->stride >= view->size) {
        tutti_sealer_defect(emit, "calls %s on ranks %u + i * %u for i < %u, to which rank %u does not belong", name,
                            view->base, view->stride, view->size, frame->slot);
    } else if (view->n_chunks == 0 || view->width == 0 ||
               view->chunk + (uint64_t)view->n_chunks * view->width > frame->n_chunks) {
        tutti_sealer_defect(emit, "calls %s on %u times %u chunks from chunk %u, but there are %u chunks", name,
                            view->n_chunks, view->width, view->chunk, frame->n_chunks);
    } else if (view->root >= view->size) {
        tutti_sealer_defect(emit, "calls %s with root %u of %u", name, view->root, view->size);
    } else if (frame->depth == TUTTI_MAX_DEPTH) {
        tutti_sealer_defect(emit, "calls %s more than %d levels deep", name, TUTTI_MAX_DEPTH);
    } else {
        return true;
    }
    return false;
}

/* The view in slots and chunks of the whole. */
static struct tutti_view map_view(const struct tutti_frame *frame, const struct tutti_view *view)
{
    return (struct tutti_view){.base = frame->base + view->base * frame->stride,
                               .stride = frame->stride * view->stride,
                               .size = view->size,
                               .chunk = frame->chunk + view->chunk * frame->width,
                               .n_chunks = view->n_chunks,
                               .width = frame->width * view->width,
                               .root = view->root};
}

/* Runs the reference in the frame of the (mapped) view. Its SCRATCH lies behind the caller's; calls after one another
 * share it, since their steps mean what they mean in program order. */
static void expand_call(struct tutti_emit *emit, enum tutti_kind kind, const struct tutti_view *view,
                        const struct tutti_schedule_ops *ops, const struct tutti_shape *sub)
{
    struct tutti_frame caller = emit->frame;
    uint32_t chunks = ops->chunks ? ops->chunks(sub) : tutti_kind_blocks(kind, sub->size);

    if (chunks == 0 || view->n_chunks % chunks != 0) {
        tutti_sealer_defect(emit, "calls %s on %u chunks, which its reference schedule can not cut into %u",
                            tutti_kind_name(kind), view->n_chunks, chunks);
        return;
    }
    emit->frame = (struct tutti_frame){.kind = kind,
                                       .size = sub->size,
                                       .slot = sub->slot,
                                       .base = view->base,
                                       .stride = view->stride,
                                       .chunk = view->chunk,
                                       .n_chunks = chunks,
                                       .width = view->width * (view->n_chunks / chunks),
                                       .scratch = caller.scratch + caller.n_scratch * caller.width,
                                       .n_scratch = ops->scratch ? ops->scratch(sub) : 0,
                                       .depth = caller.depth + 1};
    tutti_sealer_grow_scratch(emit, emit->frame.scratch + (uint64_t)emit->frame.n_scratch * emit->frame.width);
    uint32_t rounds = ops->rounds(sub);
    for (uint32_t r = 0; r < rounds && !tutti_sealer_stopped(emit); r++) ops->round(sub, r, emit);
    emit->frame = caller;
}

void tutti_emit_call(struct tutti_emit *emit, enum tutti_kind kind, const struct tutti_view *view)
{
    if (tutti_sealer_stopped(emit) || !check_view(emit, kind, view)) return;
    struct tutti_view mapped = map_view(&emit->frame, view);
    struct tutti_shape sub = {.slot = (emit->frame.slot - view->base) / view->stride,
                              .size = view->size,
                              .root = tutti_kind_info(kind)->rooted ? view->root : 0};

    if (view->n_chunks % tutti_kind_blocks(kind, view->size) != 0) {
        tutti_sealer_defect(emit, "calls %s of %u ranks on %u chunks, which are not a multiple of its blocks",
                            tutti_kind_name(kind), view->size, view->n_chunks);
        return;
    }
    uint32_t lane = tutti_sealer_lane(emit, kind, &mapped);
    if (!emit->expand || lane != TUTTI_NO_LANE) {
        tutti_sealer_add_call(emit, kind, &mapped, lane, &sub);
        return;
    }
    const struct tutti_algorithm *reference = reference_of(kind, &sub);
    if (!reference || !tutti_algorithm_fits(reference, kind, &sub, NULL, 0)) {
        tutti_sealer_defect(emit, "calls %s, which has no reference schedule", tutti_kind_name(kind));
        return;
    }
    if (sub.radix == 0) sub.radix = reference->kinds[kind]->default_radix;
    expand_call(emit, kind, &mapped, reference->kinds[kind], &sub);
}
