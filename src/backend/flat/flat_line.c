/* SPDX-License-Identifier: BSD-3-Clause */
/* Small calls, in lines: what a rank gives others is a few lines of its area, which they read. Among all ranks that is
 * a butterfly over the factors of n, so that a slot has few readers and a rank few slots to read. Kinds whose inputs
 * have a block for each rank put them whole, in one level that all read. With a root, or along the order of ranks,
 * there are two levels where ranks are many: level 0 is what ranks give, level 1 what groups give. Operands keep the
 * order of ranks everywhere. */
#include "backend/flat/flat.h"

/* The own input; a reduction may have to scale it. */
static void put_input(struct flat_op *op, size_t bytes)
{
    if (op->n_put > 0) return; /* by flat_tiny */
    _Alignas(TUTTI_CACHE_LINE) unsigned char scaled[FLAT_LINE_STORAGE];
    if (op->call.bind.scale) flat_take(op, scaled, op->send, bytes);
    flat_lines_put(op, 0, op->call.bind.scale ? scaled : op->send, bytes);
}

/* ---- among all ---- */

static bool is_whole(enum tutti_kind kind)
{
    return kind == TUTTI_REDUCE_SCATTER || kind == TUTTI_ALL_TO_ALL;
}

static uint32_t n_levels(const struct flat_op *op)
{
    return is_whole(op->call.info.kind) ? 1 : op->inst->n_factors;
}

static uint32_t readers(const struct flat_op *op)
{
    return is_whole(op->call.info.kind) ? op->inst->n : flat_radix(op->inst, op->level);
}

/* The d-th of the ranks that read one another at this level. */
static uint32_t reader(const struct flat_op *op, uint32_t d)
{
    return is_whole(op->call.info.kind) ? d : flat_digit_peer(op->inst, op->level, op->stride, d);
}

/* In an all_gather, what a rank has so far: the blocks of its group of `stride` neighbours. Blocks of different sizes
 * have one level. */
static size_t gathered(const struct flat_op *op, uint32_t r, unsigned char **data)
{
    size_t at, bytes = flat_block(op, r / op->stride * op->stride, &at);
    *data = op->recv + at;
    return bytes * op->stride;
}

static void put_level(struct flat_op *op)
{
    unsigned char *data = op->recv;
    size_t bytes = op->bytes;
    if (op->call.info.kind == TUTTI_ALL_GATHER) {
        bytes = gathered(op, op->inst->me, &data);
        if (op->level == 0 && data != op->send && bytes > 0) memcpy(data, op->send, bytes);
    }
    if (op->level == 0)
        put_input(op, is_whole(op->call.info.kind) ? flat_send_bytes(op) : bytes);
    else
        flat_lines_put(op, op->level, data, bytes);
}

static void take(struct flat_op *op, uint32_t peer)
{
    unsigned char *data;
    size_t bytes;
    if (op->call.info.kind == TUTTI_ALL_TO_ALL) {
        flat_lines_part(op, peer, 0, op->inst->me * op->bytes, op->bytes, op->recv + peer * op->bytes);
    } else if (op->call.info.kind == TUTTI_ALL_GATHER && peer != op->inst->me) {
        bytes = gathered(op, peer, &data);
        flat_lines_part(op, peer, op->level, 0, bytes, data);
    }
}

/* What one level's readers gave, folded in rank order. */
static void fold_level(struct flat_op *op)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_STORAGE], next[FLAT_LINE_STORAGE];
    size_t at = 0, bytes = op->bytes;
    if (op->call.info.kind == TUTTI_REDUCE_SCATTER) bytes = flat_block(op, op->inst->me, &at);
    if (bytes == 0) return;
    for (uint32_t d = 0; d < readers(op); d++) {
        flat_lines_part(op, reader(op, d), op->level, at, bytes, d == 0 ? sum : next);
        if (d > 0) flat_fold(op, sum, sum, next, bytes);
    }
    if (op->level + 1 == n_levels(op)) flat_divide(op, sum, bytes);
    memcpy(op->recv, sum, bytes);
}

enum line_state { LINE_PUT, LINE_TAKE };

enum tutti_advance flat_line(struct flat_op *op)
{
    for (; op->level < n_levels(op); op->level++, op->at = LINE_PUT) {
        const uint32_t n = readers(op);
        if (op->at == LINE_PUT) {
            put_level(op);
            for (uint32_t d = 0; op->inst->n > 2 && d < n; d++) flat_line_ahead(op, reader(op, d), op->level);
            op->peer = 0;
            op->at = LINE_TAKE;
        }
        for (; op->peer < n; op->peer++) {
            const uint32_t peer = reader(op, op->peer);
            if (!flat_lines_there(op, peer, op->level)) return TUTTI_RUN_BLOCKED;
            take(op, peer);
        }
        if (tutti_kind_info(op->call.info.kind)->reduces) fold_level(op);
        op->stride *= n;
    }
    return TUTTI_RUN_DONE;
}

/* ---- reduce and scans: groups of neighbours ---- */

static bool is_reduce(const struct flat_op *op)
{
    return op->call.info.kind == TUTTI_REDUCE;
}

static bool leads(const struct flat_op *op)
{
    return flat_leader(op, op->inst->me) == op->inst->me;
}

/* The ranks whose lines this rank folds at a level. */
struct span {
    uint32_t from, end, step;
};

static struct span span_of(const struct flat_op *op, uint32_t level)
{
    uint32_t me = op->inst->me, n = op->inst->n, group = flat_group(op->inst), first = me - me % group;
    uint32_t end = first + group < n ? first + group : n;
    if (level == 0) return (struct span){first, !is_reduce(op) ? me + 1 : leads(op) ? end : first, 1};
    if (is_reduce(op)) return (struct span){0, flat_is_root(op) ? n : 0, group};
    return (struct span){group - 1, first, group}; /* the last of each group below */
}

static uint32_t giver_of(const struct flat_op *op, uint32_t level, uint32_t r)
{
    return level == 1 && is_reduce(op) ? flat_leader(op, r) : r;
}

static void given(const struct flat_op *op, uint32_t level, uint32_t r, unsigned char *out)
{
    r = giver_of(op, level, r);
    if (r != op->inst->me)
        flat_lines_part(op, r, level, 0, op->bytes, out);
    else if (level == 0)
        flat_take(op, out, op->send, op->bytes);
    else
        memcpy(out, op->recv, op->bytes);
}

static void fold_span(const struct flat_op *op, uint32_t level, struct span span, unsigned char *sum)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char next[FLAT_LINE_STORAGE];
    given(op, level, span.from, sum);
    for (uint32_t r = span.from + span.step; r < span.end; r += span.step) {
        given(op, level, r, next);
        flat_fold(op, sum, sum, next, op->bytes);
    }
}

/* The own group's: to the output of the root or of a scan, which holds the partial result for now, and to the lines
 * that tell others of the whole group. */
static void fold_group(struct flat_op *op)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_STORAGE];
    struct span span = span_of(op, 0);
    uint32_t me = op->inst->me, n = op->inst->n;
    bool ends = (me + 1) % flat_group(op->inst) == 0 && me + 1 < n;
    if (is_reduce(op) ? !flat_is_root(op) : ends) {
        fold_span(op, 0, span, sum);
        flat_lines_put(op, 1, sum, op->bytes);
        if (is_reduce(op)) return;
    }
    if (op->call.info.kind == TUTTI_EXSCAN) span.end--;
    if (span.end == span.from) return;
    fold_span(op, 0, span, sum);
    memcpy(op->recv, sum, op->bytes);
}

/* The root's result; of a scan the groups below before the prefix inside the own. */
static void fold_groups(struct flat_op *op)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_STORAGE];
    const struct span span = span_of(op, 1);
    if (span.from < span.end) {
        fold_span(op, 1, span, sum);
        if (!is_reduce(op) && op->inst->me + flat_takes_own(op) > span_of(op, 0).from)
            flat_fold(op, sum, sum, op->recv, op->bytes);
        memcpy(op->recv, sum, op->bytes);
    }
    flat_divide(op, op->recv, op->bytes);
}

static bool is_given(struct flat_op *op, uint32_t level)
{
    uint32_t r = giver_of(op, level, op->peer);
    return r == op->inst->me || flat_lines_there(op, r, level);
}

/* The lines of the level from op->peer on are there. */
static bool are_given(struct flat_op *op, uint32_t level)
{
    const struct span span = span_of(op, level);
    for (; op->peer < span.end; op->peer += span.step)
        if (!is_given(op, level)) return false;
    return true;
}

enum groups_state { GROUPS_PUT, GROUPS_OWN, GROUPS_OTHERS };

enum tutti_advance flat_line_groups(struct flat_op *op)
{
    switch ((enum groups_state)op->at) {
    case GROUPS_PUT:
        if (!is_reduce(op) || !leads(op)) put_input(op, op->bytes);
        op->peer = span_of(op, 0).from;
        op->at = GROUPS_OWN;
        __attribute__((fallthrough));
    case GROUPS_OWN:
        if (!are_given(op, 0)) return TUTTI_RUN_BLOCKED;
        if (!is_reduce(op) || leads(op)) fold_group(op);
        op->peer = span_of(op, 1).from;
        op->at = GROUPS_OTHERS;
        __attribute__((fallthrough));
    case GROUPS_OTHERS:
        if (!are_given(op, 1)) return TUTTI_RUN_BLOCKED;
    }
    if (is_reduce(op) ? flat_is_root(op) : op->recv != NULL) fold_groups(op);
    return TUTTI_RUN_DONE;
}

/* ---- broadcast: from the root, or the leaders of groups ---- */

enum tutti_advance flat_line_broadcast(struct flat_op *op)
{
    const uint32_t from = flat_giver(op, op->inst->me);
    if (!flat_is_root(op)) {
        if (!flat_lines_there(op, from, 0)) return TUTTI_RUN_BLOCKED;
        flat_lines_part(op, from, 0, 0, op->bytes, op->recv);
    }
    if (flat_gives(op) && op->n_put == 0) flat_lines_put(op, 0, op->recv, op->bytes);
    return TUTTI_RUN_DONE;
}

/* ---- gather ---- */

enum tutti_advance flat_line_gather(struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    unsigned char *own = op->recv + inst->me * op->bytes;
    if (!flat_is_root(op)) {
        put_input(op, op->bytes);
        return TUTTI_RUN_DONE;
    }
    if (op->peer == 0) {
        if (op->bytes > 0 && own != op->send) memcpy(own, op->send, op->bytes);
        for (uint32_t i = 1; inst->n > 2 && i < inst->n; i++) flat_line_ahead(op, flat_after(inst, i), 0);
        op->peer = 1;
    }
    for (; op->peer < inst->n; op->peer++) {
        const uint32_t peer = flat_after(inst, op->peer);
        if (!flat_lines_there(op, peer, 0)) return TUTTI_RUN_BLOCKED;
        flat_lines_part(op, peer, 0, 0, op->bytes, op->recv + peer * op->bytes);
    }
    return TUTTI_RUN_DONE;
}

/* ---- scatter: whole blocks in each level, the root's own left out ---- */

static uint32_t per_level(const struct flat_instance *inst, size_t bytes)
{
    return bytes > 0 ? (uint32_t)(flat_line_max(inst) / bytes) : FLAT_MAX_RANKS;
}

static void put_blocks(struct flat_op *op, uint32_t level)
{
    unsigned char blocks[FLAT_LINE_MOST];
    uint32_t per = per_level(op->inst, op->bytes), n = op->inst->n - 1, filled = 0;
    for (uint32_t i = level * per; i < n && filled < per; i++, filled++)
        memcpy(blocks + filled * op->bytes, op->send + (i + (i >= flat_root(op))) * op->bytes, op->bytes);
    flat_lines_put(op, level, blocks, filled * op->bytes);
}

enum tutti_advance flat_line_scatter(struct flat_op *op)
{
    uint32_t me = op->inst->me, per = per_level(op->inst, op->bytes), i = me - (me > flat_root(op));
    const unsigned char *own = op->send + me * op->bytes;
    if (flat_is_root(op)) {
        for (uint32_t level = 0; level * per < op->inst->n - 1; level++) put_blocks(op, level);
        if (op->bytes > 0 && op->recv != own) memcpy(op->recv, own, op->bytes);
        return TUTTI_RUN_DONE;
    }
    if (!flat_lines_there(op, flat_root(op), i / per)) return TUTTI_RUN_BLOCKED;
    flat_lines_part(op, flat_root(op), i / per, i % per * op->bytes, op->bytes, op->recv);
    return TUTTI_RUN_DONE;
}

/* ---- where they fit ---- */

static size_t total_bytes(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const struct tutti_bind *bind = &call->bind;
    size_t count = bind->v ? 0 : bind->count * inst->n;
    for (uint32_t r = 0; bind->v && r < inst->n; r++) count += bind->counts[r];
    return count * tutti_dtype_bytes(call->info.dtype);
}

/* The lines of a rank at a level are limited, and folds by groups do not go from left to right. */
bool flat_line_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    size_t bytes = flat_block_bytes(inst, call), most = flat_line_max(inst);
    bool in_order = true;
    if (inst->n == 1) return false;
    switch (call->info.kind) {
    case TUTTI_BARRIER:
        return true; /* whatever its count says */
    case TUTTI_ALL_REDUCE:
        in_order = inst->n_factors == 1;
        most = FLAT_LINE_LEAST; /* what is folded is copied first */
        break;
    case TUTTI_ALL_GATHER:
        most /= inst->n / flat_radix(inst, inst->n_factors - 1);
        if ((call->bind.v || call->stride) && inst->n_factors > 1) return false;
        break;
    case TUTTI_REDUCE_SCATTER:
        if (call->stride) return false;
        bytes = total_bytes(inst, call);
        most = FLAT_LINE_LEAST;
        break;
    case TUTTI_ALL_TO_ALL:
        most /= inst->n;
        break;
    case TUTTI_SCATTER:
        if (bytes <= most && inst->n - 1 > per_level(inst, bytes) * FLAT_LEVELS) return false;
        break;
    case TUTTI_REDUCE:
    case TUTTI_SCAN:
    case TUTTI_EXSCAN:
        in_order = flat_group(inst) == inst->n;
        break;
    default:
        break;
    }
    return bytes <= most && (in_order || !inst->reproducible);
}
