/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the blocks of a call are. Equal blocks follow from their size; the tables of v forms are copied when the
 * operation begins, as bytes: four rows of n, sizes and places in the buffer that holds all blocks, and the same of an
 * all_to_all's send buffer. */
#include "backend/flat/flat.h"

#define ELEMENT_MOST 16 /* bytes; a slot of a page holds one of each of FLAT_MAX_RANKS blocks */

static size_t block(const struct flat_op *op, const size_t *rows, uint32_t r, size_t *at)
{
    if (!op->tables) {
        *at = r * (op->call.stride ? op->call.stride : op->bytes);
        return op->bytes;
    }
    *at = rows[op->inst->n + r];
    return rows[r];
}

size_t flat_block(const struct flat_op *op, uint32_t r, size_t *at)
{
    return block(op, op->tables, r, at);
}

size_t flat_block_sent(const struct flat_op *op, uint32_t r, size_t *at)
{
    bool two = op->tables && op->call.info.kind == TUTTI_ALL_TO_ALL; /* tables: of what comes, and of what goes */
    return block(op, two ? op->tables + 2 * (size_t)op->inst->n : op->tables, r, at);
}

/* From the first byte of a buffer to the end of its last block. */
static size_t extent_bytes(const struct flat_op *op, enum tutti_blocks blocks, bool send)
{
    size_t at, end = 0;
    if (blocks == TUTTI_NO_BLOCK) return 0;
    if (blocks == TUTTI_ONE_BLOCK) return flat_block(op, op->inst->me, &at);
    for (uint32_t r = 0; r < op->inst->n; r++) {
        size_t bytes = send ? flat_block_sent(op, r, &at) : flat_block(op, r, &at);
        if (bytes > 0 && at + bytes > end) end = at + bytes;
    }
    return end;
}

size_t flat_send_bytes(const struct flat_op *op)
{
    return op->send ? extent_bytes(op, tutti_kind_info(op->call.info.kind)->send.blocks, true) : 0;
}

size_t flat_recv_bytes(const struct flat_op *op)
{
    return op->recv ? extent_bytes(op, tutti_kind_info(op->call.info.kind)->recv.blocks, false) : 0;
}

static size_t largest(const size_t *counts, uint32_t n)
{
    size_t most = 0;
    for (uint32_t r = 0; r < n; r++)
        if (counts[r] > most) most = counts[r];
    return most;
}

size_t flat_block_bytes(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const struct tutti_bind *bind = &call->bind;
    size_t element = tutti_dtype_bytes(call->info.dtype);
    if (!bind->v) return bind->count * element;
    if (call->info.kind != TUTTI_ALL_GATHER && call->info.kind != TUTTI_REDUCE_SCATTER) return SIZE_MAX;
    return largest(bind->counts, inst->n) * element;
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
    size_t n = op->inst->n, n_rows = bind->in_counts ? 4 : 2;
    if (!bind->v || !bind->counts) return TUTTI_OK;
    op->tables = tutti_alloc_array((n_rows + 1) * n, sizeof(*op->tables));
    if (!op->tables) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the tables of a call of %zu ranks", n);
    rows_fill(op->tables, op->inst->n, bind->counts, bind->displs, op->element);
    op->bytes = largest(bind->counts, op->inst->n) * op->element;
    if (bind->in_counts) {
        rows_fill(op->tables + 2 * n, op->inst->n, bind->in_counts, bind->in_displs, op->element);
        op->bytes = largest(bind->in_counts, op->inst->n) * op->element;
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

void flat_rounds_place(struct flat_op *op, size_t bytes)
{
    const size_t part = op->inst->chunk / FLAT_PARTS;
    uint32_t width = 1;
    while (width < FLAT_PARTS && width * part < bytes) width *= 2;
    op->width = width;
    op->base = (op->inst->parts + width - 1) / width * width;
}

/* n pieces lie in a slot. */
static void cut(struct flat_op *op, size_t block, size_t piece, uint32_t n)
{
    size_t unit = unit_of(piece);
    op->piece = piece - piece % unit;
    if (block < op->piece) op->piece = block > unit ? (block + unit - 1) / unit * unit : unit;
    op->n_rounds = (block + op->piece - 1) / op->piece;
    flat_rounds_place(op, n * op->piece);
}

void flat_cut(struct flat_op *op, size_t block, uint32_t n)
{
    size_t slot = op->inst->chunk, least = 2 * FLAT_BLOCK_BYTES;
    while (slot > least && block < 4 * slot / n) slot /= 2;
    cut(op, block, slot / n, n);
}

void flat_cut_small(struct flat_op *op, size_t block, uint32_t n)
{
    size_t piece = op->inst->chunk < PIECE_SMALL ? op->inst->chunk : PIECE_SMALL;
    size_t least = (op->inst->crowded ? 4 : 2) * FLAT_BLOCK_BYTES;
    while (piece > least && block < n * piece) piece /= 2;
    cut(op, block, piece, 1);
}

void flat_cut_evenly(struct flat_op *op, size_t block, uint32_t n)
{
    size_t most = op->inst->chunk / n, unit = unit_of(most);
    cut(op, block, most, n);
    if (op->n_rounds < 2) return;
    size_t even = (block + op->n_rounds - 1) / op->n_rounds;
    cut(op, block, (even + unit - 1) / unit * unit, n);
}

/* ---- blocks that leaves do not know: in lines, which such calls do not use otherwise ---- */

#define ENTRY_BYTES (2 * sizeof(uint64_t))
#define ENTRIES_OF_LEVEL (FLAT_LINE_LEAST / ENTRY_BYTES) /* ranks in one level */

void flat_blocks_publish(struct flat_op *op)
{
    uint64_t rows[2 * ENTRIES_OF_LEVEL];
    if (op->inst->n > FLAT_PUBLISHED_RANKS) return; /* then nobody reads them */
    for (uint32_t first = 0, level = 0; first < op->inst->n; first += ENTRIES_OF_LEVEL, level++) {
        uint32_t left = op->inst->n - first, n = left < ENTRIES_OF_LEVEL ? left : (uint32_t)ENTRIES_OF_LEVEL;
        for (uint32_t i = 0; i < n; i++) {
            size_t at;
            rows[2 * i] = flat_block(op, first + i, &at);
            rows[2 * i + 1] = at;
        }
        flat_lines_put(op, level, (const unsigned char *)rows, n * ENTRY_BYTES);
    }
}

size_t flat_block_published(const struct flat_op *op, size_t *at)
{
    uint64_t row[2];
    flat_lines_part(op, flat_root(op), (uint32_t)(op->inst->me / ENTRIES_OF_LEVEL),
                    op->inst->me % ENTRIES_OF_LEVEL * ENTRY_BYTES, ENTRY_BYTES, (unsigned char *)row);
    *at = row[1];
    return row[0];
}

/* ---- blocks of an all_to_all_v ---- */

struct entry {
    uint64_t at, bytes;
};

void flat_table_put(struct flat_op *op)
{
    unsigned char *slot = flat_slot_in(op, op->inst->me, 0);
    for (uint32_t r = 0; r < op->inst->n; r++) {
        size_t at, bytes = flat_block_sent(op, r, &at);
        struct entry entry = {at, bytes};
        memcpy(slot + r * sizeof(entry), &entry, sizeof(entry));
    }
}

/* What the peer has for this rank. After its first round is staged. */
static struct entry entry_of(const struct flat_op *op, uint32_t peer)
{
    struct entry entry = {op->inst->me * op->bytes, op->bytes};
    if (op->tables) memcpy(&entry, flat_slot_in(op, peer, 0) + op->inst->me * sizeof(entry), sizeof(entry));
    return entry;
}

size_t flat_table_place(const struct flat_op *op, uint32_t peer)
{
    return entry_of(op, peer).at;
}

bool flat_table_agrees(const struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = flat_block(op, peer, &at), sent = entry_of(op, peer).bytes;
    return !op->tables || sent == bytes || flat_disagree(peer, sent, op->inst->me, bytes);
}

bool flat_disagree(uint32_t from, size_t sends, uint32_t to, size_t expects)
{
    tutti_fail(TUTTI_ERR_MISMATCH, "rank %u sends %zu bytes to rank %u, which expects %zu", from, sends, to, expects);
    return false;
}
