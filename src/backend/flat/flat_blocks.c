/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the blocks of a call are. Equal blocks follow from their size; the tables of v forms are copied when the
 * operation begins, as bytes: four rows of n, sizes and places in the buffer that holds all blocks, and the same of an
 * all_to_all's send buffer. */
#include "backend/flat/flat.h"

#define ELEMENT_MOST 16 /* bytes; a slot of a page holds one of each of FLAT_MAX_RANKS blocks */

/* Blocks of the two buffers, by kind: one, all, or none. */
enum extent { NONE, ONE, ALL };
static const struct {
    enum extent send, recv;
} extents[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {ONE, ONE},     [TUTTI_REDUCE] = {ONE, ONE},     [TUTTI_BROADCAST] = {ONE, ONE},
    [TUTTI_ALL_GATHER] = {ONE, ALL},     [TUTTI_GATHER] = {ONE, ALL},     [TUTTI_SCATTER] = {ALL, ONE},
    [TUTTI_REDUCE_SCATTER] = {ALL, ONE}, [TUTTI_ALL_TO_ALL] = {ALL, ALL}, [TUTTI_BARRIER] = {NONE, NONE},
    [TUTTI_SCAN] = {ONE, ONE},           [TUTTI_EXSCAN] = {ONE, ONE},
};

static size_t block(const struct flat_op *op, const size_t *rows, uint32_t r, size_t *at)
{
    if (!op->tables) {
        *at = r * (op->call.stride ? op->call.stride : op->bytes);
        return op->bytes;
    }
    *at = rows[op->lane->n + r];
    return rows[r];
}

size_t flat_block(const struct flat_op *op, uint32_t r, size_t *at)
{
    return block(op, op->tables, r, at);
}

size_t flat_block_sent(const struct flat_op *op, uint32_t r, size_t *at)
{
    return block(op, op->tables ? op->tables + 2 * (size_t)op->lane->n : NULL, r, at);
}

/* From the first byte of a buffer to the end of its last block. */
static size_t extent_bytes(const struct flat_op *op, enum extent extent, bool send)
{
    size_t at, end = 0;
    if (extent == NONE) return 0;
    if (extent == ONE) return flat_block(op, op->lane->me, &at);
    for (uint32_t r = 0; r < op->lane->n; r++) {
        size_t bytes =
            send && op->call.info.kind == TUTTI_ALL_TO_ALL ? flat_block_sent(op, r, &at) : flat_block(op, r, &at);
        if (bytes > 0 && at + bytes > end) end = at + bytes;
    }
    return end;
}

size_t flat_send_bytes(const struct flat_op *op)
{
    return op->send ? extent_bytes(op, extents[op->call.info.kind].send, true) : 0;
}

size_t flat_recv_bytes(const struct flat_op *op)
{
    return op->recv ? extent_bytes(op, extents[op->call.info.kind].recv, false) : 0;
}

static size_t largest(const size_t *counts, uint32_t n)
{
    size_t most = 0;
    for (uint32_t r = 0; r < n; r++)
        if (counts[r] > most) most = counts[r];
    return most;
}

size_t flat_block_bytes(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    const struct tutti_bind *bind = &call->bind;
    size_t element = tutti_dtype_bytes(call->info.dtype);
    if (!bind->v) return bind->count * element;
    if (call->info.kind != TUTTI_ALL_GATHER && call->info.kind != TUTTI_REDUCE_SCATTER) return SIZE_MAX;
    return largest(bind->counts, lane->n) * element;
}

/* Sizes and places in bytes; without displacements the blocks are packed. */
static void rows_fill(size_t *rows, uint32_t n, const size_t *counts, const size_t *displs, size_t element)
{
    size_t packed = 0;
    for (uint32_t r = 0; r < n; r++) {
        rows[r] = counts[r] * element;
        rows[n + r] = counts[r] == 0 ? 0 : displs ? displs[r] * element : packed;
        packed += rows[r];
    }
}

/* Methods are compared once more after the posts, so the call keeps its counts, behind the rows; no more of the tables
 * is looked at. */
enum tutti_status flat_blocks_copy(struct flat_op *op)
{
    struct tutti_bind *bind = &op->call.bind;
    size_t n = op->lane->n, n_rows = bind->in_counts ? 4 : 2;
    if (!bind->v || !bind->counts) return TUTTI_OK;
    op->tables = tutti_alloc_array((n_rows + 1) * n, sizeof(*op->tables));
    if (!op->tables) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the tables of a call of %zu ranks", n);
    rows_fill(op->tables, op->lane->n, bind->counts, bind->displs, op->element);
    op->bytes = largest(bind->counts, op->lane->n) * op->element;
    if (bind->in_counts) {
        rows_fill(op->tables + 2 * n, op->lane->n, bind->in_counts, bind->in_displs, op->element);
        op->bytes = largest(bind->in_counts, op->lane->n) * op->element;
    }
    memcpy(op->tables + n_rows * n, bind->counts, n * sizeof(*bind->counts));
    bind->counts = op->tables + n_rows * n;
    bind->displs = bind->in_counts = bind->in_displs = NULL;
    return TUTTI_OK;
}

/* Pieces are whole lines, and where slots are too short for that, whole elements of any type. */
static size_t unit_of(size_t piece)
{
    return piece < TUTTI_CACHE_LINE ? ELEMENT_MOST : TUTTI_CACHE_LINE;
}

#define PIECE_SMALL ((size_t)32 << 10)

static void cut(struct flat_op *op, size_t block, size_t piece)
{
    op->piece = piece - piece % unit_of(piece);
    op->n_rounds = (block + op->piece - 1) / op->piece;
}

void flat_cut(struct flat_op *op, size_t block, uint32_t n)
{
    size_t slot = op->lane->chunk, least = 2 * FLAT_BLOCK_BYTES;
    while (slot > least && block < 4 * slot / n) slot /= 2;
    cut(op, block, slot / n);
}

void flat_cut_small(struct flat_op *op, size_t block)
{
    size_t piece = op->lane->chunk < PIECE_SMALL ? op->lane->chunk : PIECE_SMALL;
    while (piece > 2 * FLAT_BLOCK_BYTES && block < 4 * piece) piece /= 2;
    cut(op, block, piece);
}

void flat_cut_evenly(struct flat_op *op, size_t block, uint32_t n)
{
    size_t most = op->lane->chunk / n, unit = unit_of(most);
    cut(op, block, most);
    if (op->n_rounds < 2) return;
    size_t even = (block + op->n_rounds - 1) / op->n_rounds;
    cut(op, block, (even + unit - 1) / unit * unit);
}

/* ---- blocks that leaves do not know: in lines, which such calls need for nothing else ---- */

#define TOLD_BYTES (2 * sizeof(uint64_t))
#define TOLD_LEVEL (FLAT_LINE_MAX / TOLD_BYTES) /* ranks in one level */

void flat_blocks_tell(struct flat_op *op)
{
    uint64_t rows[2 * TOLD_LEVEL];
    if (op->lane->n > FLAT_TOLD_RANKS) return; /* then nobody asks */
    for (uint32_t first = 0, level = 0; first < op->lane->n; first += TOLD_LEVEL, level++) {
        uint32_t left = op->lane->n - first, n = left < TOLD_LEVEL ? left : (uint32_t)TOLD_LEVEL;
        for (uint32_t i = 0; i < n; i++) {
            size_t at;
            rows[2 * i] = flat_block(op, first + i, &at);
            rows[2 * i + 1] = at;
        }
        flat_lines_put(op, level, (const unsigned char *)rows, n * TOLD_BYTES);
    }
}

size_t flat_block_told(const struct flat_op *op, size_t *at)
{
    uint64_t row[2];
    flat_lines_part(op, flat_root(op), (uint32_t)(op->lane->me / TOLD_LEVEL), op->lane->me % TOLD_LEVEL * TOLD_BYTES,
                    TOLD_BYTES, (unsigned char *)row);
    *at = row[1];
    return row[0];
}
