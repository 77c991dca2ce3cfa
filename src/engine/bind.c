/* SPDX-License-Identifier: BSD-3-Clause */

/* Chunks to bytes. The table of kinds says which blocks the user's input and output hold; all else lives in private
 * memory. Cutting evenly without multiplication keeps 64-bit counts exact. */

#include "engine/bind.h"

#include <string.h>

#define N_TABLES 5 /* entries in copy_tables */

static size_t align64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* The i-th of `parts` even parts of n: its size, and where it starts. */
static size_t cut(size_t n, uint32_t parts, uint32_t i, size_t *first)
{
    *first = 0;
    if (parts == 1) return n;
    size_t q = n / parts, r = n % parts;
    *first = q * i + (i < r ? i : r);
    return q + (i < r);
}

static size_t block_count(const struct tutti_layout *l, uint32_t block)
{
    return l->counts ? l->counts[block] : l->count;
}

static size_t displacement(const size_t *table, const struct tutti_layout *l, uint32_t block)
{
    return table ? table[block] : block * l->count;
}

/* Whether the user's buffer on this side holds the own block alone. */
static bool holds_own_alone(const struct tutti_layout *l, struct tutti_kind_side side)
{
    return side.blocks == TUTTI_ONE_BLOCK && tutti_kinds[l->kind].block_a_slot;
}

bool tutti_layout_visible(const struct tutti_layout *l, uint32_t block)
{
    const struct tutti_kind_side side = tutti_kinds[l->kind].recv;
    if (!l->output || side.blocks == TUTTI_NO_BLOCK || !tutti_side_is_at(side, l->slot, l->root)) return false;
    return !holds_own_alone(l, side) || block == l->slot;
}

size_t tutti_layout_part(const struct tutti_layout *l, uint32_t block, uint32_t part, uint32_t slice, size_t *first)
{
    size_t in_block, in_chunk;
    size_t n = cut(block_count(l, block), l->per_block, part, &in_block);
    n = cut(n, l->n_slices, slice, &in_chunk);
    *first = in_block + in_chunk;
    return n;
}

static unsigned char *data_block(const struct tutti_layout *l, uint32_t block)
{
    if (!tutti_layout_visible(l, block)) return l->private_data + displacement(l->packed, l, block) * l->element;
    if (holds_own_alone(l, tutti_kinds[l->kind].recv)) return l->output;
    return l->output + displacement(l->out_displs, l, block) * l->element;
}

static const unsigned char *input_block(const struct tutti_layout *l, uint32_t block)
{
    const struct tutti_kind_side side = tutti_kinds[l->kind].send;
    if (side.blocks == TUTTI_NO_BLOCK) return data_block(l, block);
    if (holds_own_alone(l, side)) return l->input;
    return l->input + displacement(l->in_displs, l, block) * l->element;
}

/* Elements and address of one slice of the i-th chunk of a place. */
static size_t piece(const struct tutti_layout *l, const struct tutti_operand *p, uint32_t i, uint32_t slice,
                    unsigned char **out)
{
    uint32_t chunk = p->chunk + i;
    size_t first, n;

    if (p->buffer == TUTTI_SCRATCH) {
        size_t whole = l->largest, ignored;
        if (p->extent != TUTTI_NO_EXTENT && !l->uniform)
            whole = cut(block_count(l, (p->extent + i) / l->per_block), l->per_block, (p->extent + i) % l->per_block,
                        &ignored);
        n = cut(whole, l->n_slices, slice, &first);
        *out = l->scratch + chunk * l->scratch_stride + first * l->element;
        return n;
    }
    uint32_t block = chunk / l->per_block, part = chunk % l->per_block;
    if (p->buffer == TUTTI_IN) {
        size_t in_block, in_chunk, whole = l->in_counts ? l->in_counts[block] : l->count;
        n = cut(cut(whole, l->per_block, part, &in_block), l->n_slices, slice, &in_chunk);
        /* Users' buffers are const; only reads come here. */
        *out = (unsigned char *)(uintptr_t)l->input +
               (displacement(l->in_displs, l, block) + in_block + in_chunk) * l->element;
        return n;
    }
    n = tutti_layout_part(l, block, part, slice, &first);
    *out = (p->input ? (unsigned char *)(uintptr_t)input_block(l, block) : data_block(l, block)) + first * l->element;
    return n;
}

size_t tutti_layout_bytes(const struct tutti_layout *l, const struct tutti_operand *p, uint32_t slice)
{
    unsigned char *unused;
    size_t n = 0;

    if (l->uniform) return piece(l, p, 0, slice, &unused) * p->n * l->element;
    for (uint32_t i = 0; i < p->n; i++) n += piece(l, p, i, slice, &unused);
    return n * l->element;
}

size_t tutti_layout_run(const struct tutti_layout *l, const struct tutti_operand *p, uint32_t slice, size_t offset,
                        size_t limit, unsigned char **out)
{
    unsigned char *at;
    uint32_t i = 0;
    size_t bytes = piece(l, p, 0, slice, &at) * l->element;

    if (l->uniform && bytes > 0 && offset >= bytes) {
        i = (uint32_t)(offset / bytes);
        offset %= bytes;
        if (i >= p->n) return 0;
        bytes = piece(l, p, i, slice, &at) * l->element;
    }
    while (offset >= bytes) {
        offset -= bytes;
        if (++i >= p->n) return 0;
        bytes = piece(l, p, i, slice, &at) * l->element;
    }
    *out = at + offset;
    size_t run = bytes - offset;
    while (run < limit && ++i < p->n) {
        bytes = piece(l, p, i, slice, &at) * l->element;
        if (bytes > 0 && at != *out + run) break;
        run += bytes;
    }
    return run < limit ? run : limit;
}

unsigned char *tutti_layout_blocks(const struct tutti_layout *l, const struct tutti_operand *p, uint32_t slice,
                                   size_t *stride)
{
    unsigned char *at;
    size_t first;

    *stride = l->count * l->element;
    piece(l, p, 0, slice, &at);
    if (p->input || !holds_own_alone(l, tutti_kinds[l->kind].recv)) return at;
    /* The own block lies apart, in the user's output, and leaves its place among the others empty. */
    tutti_layout_part(l, p->chunk, 0, slice, &first);
    return l->private_data + (displacement(l->packed, l, p->chunk) + first) * l->element;
}

/* Elements of all blocks; false on overflow of their bytes. */
static bool total_count(const size_t *counts, size_t count, uint32_t n, size_t element, size_t *out)
{
    size_t sum = 0, bytes;
    if (!counts) {
        if (__builtin_mul_overflow(count, n, out)) return false;
        return !__builtin_mul_overflow(*out, element, &bytes) && bytes <= SIZE_MAX / 4;
    }
    for (uint32_t i = 0; i < n; i++)
        if (__builtin_add_overflow(sum, counts[i], &sum)) return false;
    *out = sum;
    return !__builtin_mul_overflow(sum, element, &bytes) && bytes <= SIZE_MAX / 4;
}

/* Slices must be as many on all ranks: from the largest chunk where all ranks know it, else one. */
static uint32_t slice_number(const struct tutti_layout *l, const struct tutti_bind *b, size_t slice_bytes)
{
    bool tables = b->v || b->counts || b->in_counts;
    bool shared = !tables || tutti_kinds[l->kind].tables == TUTTI_SHARED_TABLE;
    size_t n = 1;

    if (shared && slice_bytes > 0) n = (l->largest * l->element + slice_bytes - 1) / slice_bytes;
    if (n > l->largest) n = l->largest;
    if (n > UINT32_C(1) << 30) n = UINT32_C(1) << 30;
    return n > 0 ? (uint32_t)n : 1;
}

static bool all_visible(const struct tutti_layout *l)
{
    for (uint32_t b = 0; b < l->n_blocks; b++)
        if (!tutti_layout_visible(l, b)) return false;
    return true;
}

static bool wants_copy(const struct tutti_bind *b)
{
    return b->input && (b->scale || (tutti_kinds[b->schedule->kind].separate_in && b->input == b->output));
}

static enum tutti_status measure(struct tutti_layout *l, const struct tutti_bind *b, struct tutti_need *need)
{
    const struct tutti_schedule *s = b->schedule;
    size_t total, in_total, at = 0;

    if (!total_count(l->counts, l->count, l->n_blocks, l->element, &total) ||
        !total_count(l->in_counts, l->count, l->n_blocks, l->element, &in_total))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: %u blocks of %zu elements are more than memory can hold",
                          tutti_kind_name(l->kind), l->n_blocks, l->count);
    bool tables = b->counts || b->displs || b->in_counts || b->in_displs;
    need->n_tables = tables ? N_TABLES : 0;
    need->tables = at, at = align64(at + need->n_tables * (size_t)l->n_blocks * sizeof(size_t));
    need->copy_bytes = wants_copy(b) ? (l->kind == TUTTI_ALL_TO_ALL ? in_total : total) * l->element : 0;
    need->copy = at, at = align64(at + need->copy_bytes);
    need->data_bytes = all_visible(l) ? 0 : total * l->element;
    need->data = at, at = align64(at + need->data_bytes);
    need->scratch = at;
    l->scratch_stride = align64(l->largest * l->element);
    size_t scratch;
    if (__builtin_mul_overflow(l->scratch_stride, s->n_scratch, &scratch) || scratch > SIZE_MAX / 4)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: scratch of %u chunks is more than memory can hold",
                          tutti_kind_name(l->kind), s->n_scratch);
    need->bytes = at + scratch;
    return TUTTI_OK;
}

enum tutti_status tutti_layout_init(struct tutti_layout *l, const struct tutti_bind *b, size_t slice_bytes,
                                    struct tutti_need *need)
{
    const struct tutti_schedule *s = b->schedule;

    *l = (struct tutti_layout){.kind = s->kind, .slot = s->shape.slot, .root = s->shape.root};
    l->n_blocks = tutti_kind_blocks(s->kind, s->shape.size);
    if (s->defect) return tutti_fail(TUTTI_ERR_INTERNAL, "%s can not run: %s", tutti_kind_name(s->kind), s->defect);
    if ((s->n_calls > 0 && s->lanes.n == 0) || s->n_chunks == 0 || s->n_chunks % l->n_blocks != 0)
        return tutti_fail(TUTTI_ERR_INTERNAL,
                          "%s can not run: its schedule is not expanded, or its %u chunks are not "
                          "those of %u blocks",
                          tutti_kind_name(s->kind), s->n_chunks, l->n_blocks);
    l->per_block = s->n_chunks / l->n_blocks;
    l->element = s->kind == TUTTI_BARRIER ? 1 : tutti_dtype_bytes(b->dtype);
    l->count = s->kind == TUTTI_BARRIER ? l->per_block : b->count; /* a token a chunk */
    l->counts = b->counts, l->in_counts = b->in_counts;
    l->input = b->input, l->output = b->output;
    size_t most = l->counts ? 0 : l->count;
    l->uniform = !b->v && !l->counts && !l->in_counts && l->count % l->per_block == 0;
    for (uint32_t i = 0; l->counts && i < l->n_blocks; i++)
        if (l->counts[i] > most) most = l->counts[i];
    for (uint32_t i = 0; l->in_counts && i < l->n_blocks; i++)
        if (l->in_counts[i] > most) most = l->in_counts[i];
    l->largest = most / l->per_block + (most % l->per_block != 0);
    l->n_slices = slice_number(l, b, slice_bytes);
    return measure(l, b, need);
}

/* Copies a table of counts or displacements; without one, packs. */
static const size_t *table_fill(size_t *to, const size_t *from, const size_t *counts, size_t count, uint32_t n)
{
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        to[i] = from ? from[i] : at;
        at += counts ? counts[i] : count;
    }
    return to;
}

static void copy_tables(struct tutti_layout *l, const struct tutti_bind *b, size_t *table)
{
    uint32_t n = l->n_blocks;
    const size_t *displs;

    if (b->counts) memcpy(table, b->counts, n * sizeof(*table)), l->counts = table;
    table += n;
    displs = table_fill(table, b->displs, b->counts, l->count, n), table += n;
    l->packed = table_fill(table, NULL, b->counts, l->count, n), table += n;
    if (b->in_counts) memcpy(table, b->in_counts, n * sizeof(*table)), l->in_counts = table;
    table += n;
    if (l->kind == TUTTI_ALL_TO_ALL) /* a copy of the input has its blocks one behind the other */
        l->in_displs = table_fill(table, wants_copy(b) ? NULL : b->in_displs, b->in_counts, l->count, n),
        l->out_displs = displs;
    else if (!holds_own_alone(l, tutti_kinds[l->kind].send))
        l->in_displs = wants_copy(b) ? l->packed : displs;
    else
        l->out_displs = displs;
}

/* The blocks of the input, one behind the other. */
static enum tutti_status copy_fill(struct tutti_layout *l, const struct tutti_bind *b, tutti_layout_copy copy_block,
                                   void *arg, unsigned char *copy)
{
    const size_t *counts = l->kind == TUTTI_ALL_TO_ALL ? b->in_counts : b->counts;
    const size_t *displs = l->kind == TUTTI_ALL_TO_ALL ? b->in_displs : b->displs;
    size_t at = 0;

    for (uint32_t i = 0; i < l->n_blocks; i++) {
        size_t n = counts ? counts[i] : l->count;
        const unsigned char *from = l->input + (displs ? displs[i] : at) * l->element;
        if (n > 0) TUTTI_TRY(copy_block(arg, b, copy + at * l->element, from, n));
        at += n;
    }
    l->input = copy;
    return TUTTI_OK;
}

enum tutti_status tutti_layout_place(struct tutti_layout *l, const struct tutti_bind *b, const struct tutti_need *need,
                                     const struct tutti_layout_room *place)
{
    if (need->n_tables > 0) copy_tables(l, b, place->tables);
    if (need->copy_bytes > 0) TUTTI_TRY(copy_fill(l, b, place->copy, place->arg, place->region + need->copy));
    l->private_data = place->region + need->data;
    l->scratch = place->region + need->scratch;
    return TUTTI_OK;
}

static enum tutti_status copy_here(void *arg, const struct tutti_bind *b, void *to, const void *from, size_t n)
{
    (void)arg;
    if (b->scale)
        b->scale(to, from, n, b->factor);
    else
        memcpy(to, from, n * tutti_dtype_bytes(b->dtype));
    return TUTTI_OK;
}

void tutti_layout_fill(struct tutti_layout *l, const struct tutti_bind *b, const struct tutti_need *need,
                       unsigned char *region)
{
    static unsigned char nothing; /* even an offset of 0 must not be added to NULL */
    if (!region) region = &nothing;
    const struct tutti_layout_room place = {(size_t *)(void *)(region + need->tables), region, copy_here, NULL};
    (void)tutti_layout_place(l, b, need, &place);
}
