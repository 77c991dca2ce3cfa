/* SPDX-License-Identifier: BSD-3-Clause */
/* Argument checks of every call, driven by the table of kinds. Nothing is started before all of them pass; each
 * sentence names the argument, the rank and the collective. */
#include "comm/call/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number that the call would have had; 0 when that is not known. */
static uint64_t number_due(const struct tutti_call *call)
{
    if (!call->comm || call->type != TUTTI_CALL_COLLECTIVE || call->collected) return 0;
    return tutti_comm_sequence(call->comm) + 1;
}

enum tutti_status tutti_call_fail(const struct tutti_call *call, enum tutti_status status, const char *format, ...)
{
    char text[TUTTI_ERROR_TEXT - 64];
    va_list args;
    if (call->quiet) return status;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const char *label = call->options.label;
    char number[24] = "";
    struct tutti_error error;
    uint64_t seq = number_due(call);
    const struct tutti_team *team = call->comm ? call->comm->team : NULL; /* NULL: an end of it */
    int32_t rank = tutti_comm_rank(call->comm);
    if (seq && team) seq = tutti_said_call(team, seq);
    if (team) rank = (int32_t)tutti_said_rank(team, (uint32_t)rank);
    if (seq) snprintf(number, sizeof(number), " #%" PRIu64, seq);
    tutti_error_set(&error, status, "%s%s%s%.24s%s on rank %d: %s", call->name, number, label ? " [" : "",
                    label ? label : "", label ? "]" : "", (int)rank, text);
    error.collective = call->name;
    error.seq = seq;
    return tutti_fail_record(&error);
}

#define REFUSE(...) tutti_call_fail(call, TUTTI_ERR_ARGUMENT, __VA_ARGS__)

static size_t block_bytes(const struct tutti_call_side *side, size_t b)
{
    return side->counts ? side->counts[b] * side->element : side->block_bytes;
}

/* Checked before: neither can overflow. A packed table is walked by its users, who pass the running sum. */
static size_t block_start(const struct tutti_call_side *side, size_t b, size_t packed)
{
    return !side->counts ? b * side->block_bytes : side->displs ? side->displs[b] * side->element : packed;
}

static enum tutti_status check_table(const struct tutti_call *call, struct tutti_call_side *side)
{
    size_t packed = 0;
    for (size_t b = 0; b < side->n_blocks; b++) {
        size_t start = side->displs ? side->displs[b] : packed, end, bytes;
        if (__builtin_add_overflow(packed, side->counts[b], &packed))
            return REFUSE("the sum of %s overflows at block %zu", side->counts_name, b);
        if (side->counts[b] == 0) continue;
        if (__builtin_add_overflow(start, side->counts[b], &end) || __builtin_mul_overflow(end, side->element, &bytes))
            return side->displs ? REFUSE("%s[%zu] is %zu and %s[%zu] is %zu: the end overflows", side->displs_name, b,
                                         start, side->counts_name, b, side->counts[b])
                                : REFUSE("the sum of %s overflows at block %zu: %zu elements of %zu bytes",
                                         side->counts_name, b, end, side->element);
        if (bytes > side->bytes) side->bytes = bytes;
    }
    side->total = packed;
    return TUTTI_OK;
}

/* Extent and pointer of one side. */
static enum tutti_status check_side(const struct tutti_call *call, struct tutti_call_side *side)
{
    if (side->n_blocks == 0) return TUTTI_OK;
    if (side->counts) {
        TUTTI_TRY(check_table(call, side));
    } else {
        side->total = call->job.bind.count * side->n_blocks; /* wraps only where the bytes overflow, too */
        if (__builtin_mul_overflow(call->job.bind.count, side->element, &side->block_bytes) ||
            __builtin_mul_overflow(side->block_bytes, side->n_blocks, &side->bytes))
            return REFUSE("count is %zu: %zu times that many elements of %zu bytes overflow", call->job.bind.count,
                          side->n_blocks, side->element);
    }
    if (side->bytes == 0) return TUTTI_OK;
    if (!side->base && side->counts)
        return REFUSE("%s is NULL but %s add up to %zu", side->name, side->counts_name, side->total);
    if (!side->base) return REFUSE("%s is NULL but count is %zu", side->name, call->job.bind.count);
    if (side->bytes > (size_t)PTRDIFF_MAX || (uintptr_t)side->base > UINTPTR_MAX - side->bytes)
        return REFUSE("%s and its %zu bytes reach past the end of the address space", side->name, side->bytes);
    return TUTTI_OK;
}

struct span {
    size_t start, end, block;
};

static int span_compare(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Blocks of a received table must not overlap one another. */
static enum tutti_status check_disjoint(const struct tutti_call *call, const struct tutti_call_side *side)
{
    if (!side->counts || !side->displs) return TUTTI_OK;
    struct span *spans = NULL;
    bool sorted = true;
    for (size_t b = 0, end = 0; b < side->n_blocks && sorted; b++) {
        if (side->counts[b] == 0) continue;
        sorted = side->displs[b] >= end;
        end = side->displs[b] + side->counts[b];
    }
    if (sorted) return TUTTI_OK;
    spans = tutti_alloc_array(side->n_blocks, sizeof(*spans));
    if (!spans) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for checking %s", side->displs_name);
    size_t n = 0;
    for (size_t b = 0; b < side->n_blocks; b++)
        if (side->counts[b]) spans[n++] = (struct span){side->displs[b], side->displs[b] + side->counts[b], b};
    qsort(spans, n, sizeof(*spans), span_compare);
    enum tutti_status status = TUTTI_OK;
    for (size_t i = 1; i < n && status == TUTTI_OK; i++)
        if (spans[i].start < spans[i - 1].end)
            status = REFUSE("blocks %zu and %zu of %s overlap: see %s", spans[i - 1].block, spans[i].block, side->name,
                            side->displs_name);
    tutti_free(spans);
    return status;
}

static bool apart(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return !a_bytes || !b_bytes || (uintptr_t)a + a_bytes <= (uintptr_t)b || (uintptr_t)b + b_bytes <= (uintptr_t)a;
}

/* Whether a range touches a block of the side. */
static bool side_touched(const struct tutti_call_side *side, const char *from, size_t bytes)
{
    if (!side->counts) return !apart(side->base, side->bytes, from, bytes);
    size_t packed = 0;
    for (size_t b = 0; b < side->n_blocks; b++) {
        size_t n = block_bytes(side, b);
        if (!apart(side->base + block_start(side, b, packed), n, from, bytes)) return true;
        packed += n;
    }
    return false;
}

static size_t own_start(const struct tutti_call_side *side, size_t slot)
{
    size_t packed = 0;
    if (side->counts && !side->displs)
        for (size_t b = 0; b < slot; b++) packed += block_bytes(side, b);
    return block_start(side, slot, packed);
}

static enum tutti_status check_overlap(const struct tutti_call *call, const struct tutti_call_side *send,
                                       const struct tutti_call_side *recv)
{
    static const char *const ways[] = {
        [TUTTI_NEVER_IN_PLACE] = ", which is not defined here",
        [TUTTI_SAME_BUFFER] = " (send == recv)",
        [TUTTI_ONE_BUFFER] = "",
        [TUTTI_SEND_IN_RECV] = " (send == the own block of recv)",
        [TUTTI_RECV_IN_SEND] = " (recv == the own block of send)",
    };
    enum tutti_in_place rule = tutti_kind_info(call->job.info.kind)->in_place;
    if (call->job.bind.v && rule == TUTTI_SAME_BUFFER) rule = TUTTI_NEVER_IN_PLACE;
    if (apart(send->base, send->bytes, recv->base, recv->bytes)) return TUTTI_OK;
    size_t slot = (size_t)call->comm->rank;
    if ((rule == TUTTI_SAME_BUFFER || rule == TUTTI_ONE_BUFFER) && send->base == recv->base) return TUTTI_OK;
    if (rule == TUTTI_SEND_IN_RECV && send->base == recv->base + own_start(recv, slot)) return TUTTI_OK;
    if (rule == TUTTI_RECV_IN_SEND && recv->base == send->base + own_start(send, slot)) return TUTTI_OK;
    bool touched = false;
    size_t packed = 0;
    for (size_t b = 0; b < send->n_blocks && !touched; b++) {
        size_t n = block_bytes(send, b);
        touched = side_touched(recv, send->base + block_start(send, b, packed), n);
        packed += n;
    }
    if (!touched) return TUTTI_OK;
    return REFUSE("send and recv overlap, and are not in place%s", ways[rule]);
}

/* The tables that the v form needs here, and the one block that two of its arguments describe. */
static enum tutti_status check_tables(struct tutti_call *call)
{
    enum tutti_tables tables = tutti_kind_info(call->job.info.kind)->tables;
    bool both = tables == TUTTI_TABLE_EACH_SIDE;
    size_t slot = (size_t)call->comm->rank;
    if (!call->job.bind.v || (tables == TUTTI_TABLE_AT_ROOT && call->job.info.root != call->comm->rank))
        return TUTTI_OK;
    if (!call->job.bind.counts) return REFUSE("%s is NULL", both ? "recv_counts" : "counts");
    if (both && !call->job.bind.in_counts) return REFUSE("send_counts is NULL");
    size_t own = call->job.bind.counts[slot];
    if (both && call->job.bind.in_counts[slot] != own)
        return REFUSE("send_counts[%zu] is %zu but recv_counts[%zu], of the same block, is %zu", slot,
                      call->job.bind.in_counts[slot], slot, own);
    if (tables == TUTTI_TABLE_AT_ROOT && call->job.bind.count != own)
        return REFUSE("count is %zu but counts[%zu], of the same block, is %zu", call->job.bind.count, slot, own);
    if (tables == TUTTI_SHARED_TABLE) call->job.bind.count = own; /* the table counts it */
    return TUTTI_OK;
}

static struct tutti_call_side side_of_message(const struct tutti_call *call, bool sending)
{
    enum tutti_call_type other = sending ? TUTTI_CALL_RECV : TUTTI_CALL_SEND;
    size_t element = tutti_dtype_bytes(call->job.info.dtype);
    return (struct tutti_call_side){
        .name = call->type != TUTTI_CALL_SENDRECV ? "buffer"
                : sending                         ? "send"
                                                  : "recv",
        .base = sending ? call->job.bind.input : call->job.bind.output,
        .n_blocks = call->type != other,
        .element = element,
        .block_bytes = (sending ? call->job.bind.count : call->recv_count) * element,
    };
}

struct tutti_call_side tutti_call_side(const struct tutti_call *call, bool sending)
{
    if (call->type != TUTTI_CALL_COLLECTIVE) return side_of_message(call, sending);
    const struct tutti_kind_info *kind = tutti_kind_info(call->job.info.kind);
    const struct tutti_kind_side what = sending ? kind->send : kind->recv;
    uint32_t rank = (uint32_t)call->comm->rank, size = (uint32_t)call->comm->size;
    struct tutti_call_side side = {
        .name = kind->in_place == TUTTI_ONE_BUFFER ? "buffer"
                : sending                          ? "send"
                                                   : "recv",
        .base = sending ? call->job.bind.input : call->job.bind.output,
        .n_blocks = tutti_side_blocks(what, rank, (uint32_t)call->job.info.root, size),
        .element = tutti_dtype_bytes(call->job.info.dtype),
        .block_bytes = call->job.bind.count * tutti_dtype_bytes(call->job.info.dtype),
        .counts_name = "counts",
        .displs_name = "displs",
    };
    if (!call->job.bind.v || what.blocks != TUTTI_ALL_BLOCKS || side.n_blocks == 0) return side;
    bool both = kind->tables == TUTTI_TABLE_EACH_SIDE;
    side.counts = both && sending ? call->job.bind.in_counts : call->job.bind.counts;
    side.displs = both && sending ? call->job.bind.in_displs : call->job.bind.displs;
    if (both) side.counts_name = sending ? "send_counts" : "recv_counts";
    if (both) side.displs_name = sending ? "send_displs" : "recv_displs";
    return side;
}

static enum tutti_status check_collective(struct tutti_call *call)
{
    TUTTI_TRY(check_tables(call));
    struct tutti_call_side send = tutti_call_side(call, true), recv = tutti_call_side(call, false);
    TUTTI_TRY(check_side(call, &send));
    TUTTI_TRY(check_side(call, &recv));
    TUTTI_TRY(check_disjoint(call, &recv));
    return check_overlap(call, &send, &recv);
}

static enum tutti_status check_op(struct tutti_call *call)
{
    struct tutti_bind *bind = &call->job.bind;
    const int op = call->job.info.op;
    struct tutti_user_op user;
    if (op >= (int)TUTTI_N_OPS) {
        if (!tutti_context_find_op(call->comm->context, (enum tutti_op)op, &user))
            return REFUSE("op %d is no operation: neither built in nor made by tutti_op_create in this context", op);
        bind->user = user.function, bind->user_arg = user.arg;
        call->job.commutative = user.commutes;
        return TUTTI_OK;
    }
    if (op < 0) return REFUSE("op %d is no operation", op);
    const char *refusal = tutti_reduce_refusal(call->job.info.dtype, (enum tutti_op)op);
    if (refusal) return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED, "%s", refusal);
    if (op != TUTTI_PREMUL_SUM) return TUTTI_OK;
    const struct tutti_comm_device *device = call->comm->device;
    if (call->options.premul && call->options.ordered && device && device->device &&
        (tutti_device_of(call->options.premul) >= 0 || tutti_device_pins(call->options.premul))) {
        if (bind->v) return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED, "a factor on the device serves no v form");
        tutti_factor_encode(call->job.info.dtype, 1, call->job.factor); /* what is given is multiplied before */
        return TUTTI_OK;
    }
    if (call->options.premul)
        memcpy(call->job.factor, call->options.premul, tutti_dtype_bytes(call->job.info.dtype));
    else
        tutti_factor_encode(call->job.info.dtype, call->options.premul_value, call->job.factor);
    call->options.premul = NULL; /* read at the call */
    return TUTTI_OK;
}

/* One rank, and no data, need no wire. */
static enum tutti_status check_wire(struct tutti_call *call)
{
    struct tutti_call_options *options = &call->options;
    const bool serves = call->job.info.kind == TUTTI_ALL_REDUCE || call->job.info.kind == TUTTI_REDUCE_SCATTER;
    const bool sums = call->job.info.op == (int)TUTTI_SUM || call->job.info.op == (int)TUTTI_AVG;
    if ((unsigned)options->wire >= TUTTI_N_WIRES) return REFUSE("wire %d is none", (int)options->wire);
    if (!serves)
        return REFUSE("wire is %s: all_reduce and reduce_scatter can be quantised", tutti_wire_name(options->wire));
    if (!sums)
        return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED, "op is %s: only sum and avg can be quantised",
                               tutti_op_name((enum tutti_op)call->job.info.op));
    if (!tutti_recode_takes(call->job.info.dtype))
        return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED,
                               "%s can not be quantised: float16, bfloat16, float32 "
                               "and float64 can",
                               tutti_dtype_name(call->job.info.dtype));
    if (options->wire_block == 0) options->wire_block = TUTTI_RECODE_GROUP;
    if (options->wire_block % TUTTI_RECODE_GROUP_UNIT || options->wire_block > TUTTI_RECODE_GROUP_MOST)
        return REFUSE("wire_block is %u: it must be a multiple of %d up to %d", options->wire_block,
                      TUTTI_RECODE_GROUP_UNIT, TUTTI_RECODE_GROUP_MOST);
    if (options->algorithm) return REFUSE("algorithm is \"%s\" but a quantised call has its own", options->algorithm);
    if (call->comm->size == 1 || (!call->job.bind.v && call->job.bind.count == 0)) options->wire = TUTTI_WIRE_NONE;
    return TUTTI_OK;
}

static enum tutti_status check_rank(const struct tutti_call *call, const char *name, int32_t rank, bool any)
{
    if ((any && rank == TUTTI_ANY_SOURCE) || (rank >= 0 && rank < call->comm->size)) return TUTTI_OK;
    return REFUSE("%s is %d but the ranks are 0 to %d", name, (int)rank, (int)call->comm->size - 1);
}

static enum tutti_status check_tag(const struct tutti_call *call, const char *name, int32_t tag, bool any)
{
    if (tag >= 0 || (any && tag == TUTTI_ANY_TAG)) return TUTTI_OK;
    return REFUSE("%s is %d but tags are at least 0", name, (int)tag);
}

/* One side of a message or of a sendrecv, if the call has it. */
static enum tutti_status check_message(const struct tutti_call *call, bool sending)
{
    const struct tutti_call_side side = tutti_call_side(call, sending);
    const bool both = call->type == TUTTI_CALL_SENDRECV;
    const char *count_name = !both ? "count" : sending ? "send_count" : "recv_count";
    const char *tag_name = !both ? "tag" : sending ? "send_tag" : "recv_tag";
    size_t bytes, count = sending ? call->job.bind.count : call->recv_count;
    if (side.n_blocks == 0) return TUTTI_OK;
    TUTTI_TRY(check_rank(call, sending ? "dest" : "source", sending ? call->dest : call->source, !sending));
    TUTTI_TRY(check_tag(call, tag_name, sending ? call->send_tag : call->recv_tag, !sending));
    if (__builtin_mul_overflow(count, side.element, &bytes) || bytes > (size_t)PTRDIFF_MAX)
        return REFUSE("%s is %zu: that many elements of %zu bytes overflow", count_name, count, side.element);
    if (!side.base && count) return REFUSE("%s is NULL but %s is %zu", side.name, count_name, count);
    if (bytes && (uintptr_t)side.base > UINTPTR_MAX - bytes)
        return REFUSE("%s and its %zu bytes reach past the end of the address space", side.name, bytes);
    return TUTTI_OK;
}

static enum tutti_status check_p2p(const struct tutti_call *call)
{
    size_t element = tutti_dtype_bytes(call->job.info.dtype);
    TUTTI_TRY(check_message(call, true));
    TUTTI_TRY(check_message(call, false));
    if (call->type == TUTTI_CALL_SENDRECV &&
        !apart(call->job.bind.input, call->job.bind.count * element, call->job.bind.output, call->recv_count * element))
        return REFUSE("send and recv overlap");
    return TUTTI_OK;
}

enum tutti_status tutti_call_check(struct tutti_call *call)
{
    if (!tutti_dtype_is(call->job.info.dtype)) return REFUSE("dtype %d is no type", (int)call->job.info.dtype);
    if (call->type != TUTTI_CALL_COLLECTIVE) return check_p2p(call);
    const struct tutti_kind_info *info = tutti_kind_info(call->job.info.kind);
    if (info->rooted) TUTTI_TRY(check_rank(call, "root", call->job.info.root, false));
    if (info->reduces) TUTTI_TRY(check_op(call));
    if (call->options.wire) TUTTI_TRY(check_wire(call));
    return check_collective(call);
}

enum tutti_status tutti_call_options(struct tutti_call *call, const struct tutti_call_options *options)
{
    struct tutti_call_options standard = TUTTI_CALL_OPTIONS_INIT;
    call->options = standard;
    if (!options) return TUTTI_OK;
    if (options->size < offsetof(struct tutti_call_options, attended))
        return REFUSE("options.size is %zu: begin with TUTTI_CALL_OPTIONS_INIT", options->size);
    memcpy(&call->options, options, options->size < sizeof(standard) ? options->size : sizeof(standard));
    return TUTTI_OK;
}
