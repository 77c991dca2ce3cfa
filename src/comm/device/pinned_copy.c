/* SPDX-License-Identifier: BSD-3-Clause */
/* Which bytes of a call's buffers are copied, and where to. A side of the call is a row of blocks of the user's; the
 * pinned copy holds the sides one after the other. */
#include "comm/device/pinned_copy.h"

#define APART 256 /* sides begin at multiples of this */

/* One side of a call: blocks of the user's buffer. */
struct row {
    char *device;
    const size_t *counts, *displs; /* NULL: equal blocks, packed */
    size_t n_blocks, block_bytes, element;
    bool in, out; /* what travels */
};
struct rows {
    struct row send, recv;
};

static struct row row_of_side(const struct tutti_call_side *side, size_t count)
{
    return (struct row){
        .device = (char *)(uintptr_t)side->base,
        .counts = side->counts,
        .displs = side->displs,
        .n_blocks = side->n_blocks,
        .block_bytes = count * side->element,
        .element = side->element,
    };
}

/* A message is one block. */
static struct row row_of_message(const void *buffer, size_t count, enum tutti_dtype dtype)
{
    size_t element = tutti_dtype_bytes(dtype);
    return (struct row){
        .device = (char *)(uintptr_t)buffer, .n_blocks = 1, .block_bytes = count * element, .element = element};
}

static struct rows rows_of_collective(const struct tutti_request *request)
{
    struct tutti_call_side send = tutti_request_side(request, true), recv = tutti_request_side(request, false);
    struct rows rows = {.send = row_of_side(&send, request->count), .recv = row_of_side(&recv, request->count)};
    bool one = tutti_kind_info(request->kind)->in_place == TUTTI_ONE_BUFFER;
    bool sends = one && send.n_blocks > 0;

    if (one) rows.send.n_blocks = 0; /* it is recv's, which is what the root sends */
    rows.send.in = true;
    rows.recv.in = sends;
    rows.recv.out = !sends;
    return rows;
}

static struct rows rows_of(const struct tutti_request *request)
{
    struct rows rows = {.send = {.n_blocks = 0}};

    if (request->type == TUTTI_REQUEST_COLLECTIVE) return rows_of_collective(request);
    if (request->type != TUTTI_REQUEST_RECV) {
        rows.send = row_of_message(request->send, request->count, request->dtype);
        rows.send.in = true;
    }
    if (request->type != TUTTI_REQUEST_SEND) {
        rows.recv = row_of_message(request->recv, request->recv_count, request->dtype);
        rows.recv.in = rows.recv.out = true; /* a shorter message leaves the rest as it is */
    }
    return rows;
}

static size_t add(size_t a, size_t b)
{
    size_t sum;
    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static size_t block_bytes(const struct row *row, size_t b)
{
    size_t bytes;
    if (!row->counts) return row->block_bytes;
    return __builtin_mul_overflow(row->counts[b], row->element, &bytes) ? SIZE_MAX : bytes;
}

/* Blocks that are sent may overlap: their sum may be more than there is memory. */
static size_t row_bytes(const struct row *row)
{
    size_t bytes = 0;
    for (size_t b = 0; b < row->n_blocks; b++) bytes = add(bytes, block_bytes(row, b));
    return bytes;
}

static size_t round_up(size_t bytes)
{
    return bytes > SIZE_MAX - APART ? SIZE_MAX : (bytes + APART - 1) & ~(size_t)(APART - 1);
}

static size_t recv_begin(const struct rows *rows)
{
    return round_up(row_bytes(&rows->send));
}

size_t tutti_pinned_bytes(const struct tutti_request *request)
{
    struct rows rows = rows_of(request);
    return round_up(add(recv_begin(&rows), row_bytes(&rows.recv)));
}

/* Blocks that follow one another are one run. */
static enum tutti_status row_each(const struct row *row, size_t begin, tutti_pinned_visit visit, void *arg)
{
    size_t packed = 0, run_at = 0, run_from = 0, run = 0;
    for (size_t b = 0; b < row->n_blocks; b++) {
        size_t bytes = block_bytes(row, b);
        size_t at = row->displs ? row->displs[b] * row->element : packed;
        if (bytes == 0) continue;
        if (run > 0 && at != run_at + run) {
            TUTTI_TRY(visit(arg, row->device + run_at, begin + run_from, run));
            run = 0;
        }
        if (run == 0) run_at = at, run_from = packed;
        run += bytes;
        packed += bytes;
    }
    return run > 0 ? visit(arg, row->device + run_at, begin + run_from, run) : TUTTI_OK;
}

enum tutti_status tutti_pinned_each(const struct tutti_request *request, enum tutti_pinned_way way,
                                    tutti_pinned_visit visit, void *arg)
{
    struct rows rows = rows_of(request);
    bool in = way == TUTTI_PINNED_IN;
    if (in ? rows.send.in : rows.send.out) TUTTI_TRY(row_each(&rows.send, 0, visit, arg));
    if (in ? rows.recv.in : rows.recv.out) TUTTI_TRY(row_each(&rows.recv, recv_begin(&rows), visit, arg));
    return TUTTI_OK;
}

void tutti_pinned_put(struct tutti_request *request, char *pinned)
{
    struct rows rows = rows_of(request);
    request->send = row_bytes(&rows.send) > 0 ? pinned : NULL;
    request->recv = row_bytes(&rows.recv) > 0 ? pinned + recv_begin(&rows) : NULL;
    if (request->type == TUTTI_REQUEST_COLLECTIVE && tutti_kind_info(request->kind)->in_place == TUTTI_ONE_BUFFER)
        request->send = request->recv;
    request->displs = request->in_displs = NULL;
}
