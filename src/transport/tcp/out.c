/* SPDX-License-Identifier: BSD-3-Clause */
/* What waits to be written to a peer: pieces of memory, in the order of the stream. A piece is in the arena, a ring of
 * bytes for heads and small payloads, or in memory that the sender lent. */

#include "transport/tcp/peer.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define WRITE_PIECES 64
#define WRITE_BYTES ((size_t)1 << 20) /* offered at once: so that reading has its turn */

static struct tutti_tcp_piece *piece_at(struct tutti_tcp_out *out, uint64_t i)
{
    return &out->pieces[i % TUTTI_TCP_PIECES];
}

/* Whether less is lent, and waits, than a queue may have. */
static bool may_lend(const struct tutti_tcp_out *out)
{
    size_t bytes = 0;
    for (uint64_t i = out->sent; i < out->end && bytes < TUTTI_TCP_LENT; i++) {
        const struct tutti_tcp_piece *piece = &out->pieces[i % TUTTI_TCP_PIECES];
        if (piece->borrowed) bytes += piece->bytes;
    }
    return bytes < TUTTI_TCP_LENT;
}

bool tutti_tcp_out_is_low(const struct tutti_tcp_out *out)
{
    return out->end - out->begin < TUTTI_TCP_PIECES / 2 && out->filled - out->freed < TUTTI_TCP_ARENA / 2 &&
           may_lend(out);
}

bool tutti_tcp_out_has_room(const struct tutti_tcp_out *out, size_t bytes, uint32_t n_spans)
{
    const bool borrows = bytes > TUTTI_TCP_COPIED;
    const size_t copied = TUTTI_PACKET_WIRE_BYTES + (borrows ? 0 : bytes);
    const uint64_t pieces = 2 + (borrows ? n_spans : 0); /* what is copied may be on both ends of the ring */
    return copied <= TUTTI_TCP_ARENA - (out->filled - out->freed) &&
           pieces <= TUTTI_TCP_PIECES - (out->end - out->begin) && (!borrows || may_lend(out));
}

static void add_copy(struct tutti_tcp_out *out, const uint8_t *from, size_t bytes)
{
    if (out->filled == out->freed) out->filled = out->freed = 0; /* memory that is in the cache */
    while (bytes > 0) {
        const size_t at = out->filled % TUTTI_TCP_ARENA, end = TUTTI_TCP_ARENA - at;
        const size_t run = bytes < end ? bytes : end;
        struct tutti_tcp_piece *last = tutti_tcp_out_waits(out) ? piece_at(out, out->end - 1) : NULL;
        memcpy(out->arena + at, from, run);
        if (last && last->base + last->bytes == out->arena + at)
            last->bytes += run;
        else
            *piece_at(out, out->end++) = (struct tutti_tcp_piece){.base = out->arena + at, .bytes = run};
        out->filled += run, from += run, bytes -= run;
    }
}

enum tutti_status tutti_tcp_out_add(struct tutti_tcp_out *out, const uint8_t *head, const struct tutti_span *spans,
                                    uint32_t n_spans, size_t bytes, size_t skip, uint64_t token)
{
    const bool borrows = bytes > TUTTI_TCP_COPIED;
    if (skip < TUTTI_PACKET_WIRE_BYTES) add_copy(out, head + skip, TUTTI_PACKET_WIRE_BYTES - skip);
    skip = skip < TUTTI_PACKET_WIRE_BYTES ? 0 : skip - TUTTI_PACKET_WIRE_BYTES;
    for (uint32_t i = 0; i < n_spans; i++) {
        const size_t gone = skip < spans[i].bytes ? skip : spans[i].bytes;
        const uint8_t *from = (const uint8_t *)spans[i].base + gone;
        skip -= gone;
        if (gone == spans[i].bytes) continue;
        if (borrows)
            *piece_at(out, out->end++) = (struct tutti_tcp_piece){
                .base = from, .bytes = spans[i].bytes - gone, .token = token, .borrowed = true};
        else
            add_copy(out, from, spans[i].bytes - gone);
    }
    if (borrows) piece_at(out, out->end - 1)->last = true;
    return borrows ? TUTTI_PENDING : TUTTI_OK;
}

/* So many bytes of what waits are gone. */
static void advance(struct tutti_tcp_out *out, size_t bytes)
{
    while (bytes > 0) {
        struct tutti_tcp_piece *piece = piece_at(out, out->sent);
        const size_t gone = bytes < piece->bytes ? bytes : piece->bytes;
        if (!piece->borrowed) out->freed += gone;
        piece->base += gone, piece->bytes -= gone, bytes -= gone;
        if (piece->bytes > 0) return;
        if (piece->last) out->n_over++;
        out->sent++;
    }
    if (out->n_over == 0) out->begin = out->sent;
    if (out->sent < out->end) return;
    tutti_tcp_out_fini(out);
}

int tutti_tcp_out_write(struct tutti_tcp_peer *peer)
{
    struct tutti_tcp_out *out = &peer->out;
    struct iovec iov[WRITE_PIECES];
    size_t offered = 0, n_iov = 0;
    for (uint64_t i = out->sent; i < out->end && n_iov < WRITE_PIECES && offered < WRITE_BYTES; i++) {
        const struct tutti_tcp_piece *piece = piece_at(out, i);
        iov[n_iov++] = (struct iovec){(void *)(uintptr_t)piece->base, piece->bytes};
        offered += piece->bytes;
    }
    const ssize_t n = tutti_stream_send(peer->stream, peer->out_fd, iov, n_iov);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    advance(out, (size_t)n);
    return (size_t)n == offered;
}

void tutti_tcp_out_end(struct tutti_tcp_out *out)
{
    for (; out->sent < out->end; out->sent++) out->n_over += piece_at(out, out->sent)->last;
    if (out->n_over == 0) out->begin = out->sent;
    out->freed = out->filled;
    tutti_tcp_out_fini(out);
}

bool tutti_tcp_out_tell(struct tutti_tcp_out *out, uint64_t *token)
{
    for (; out->n_over > 0; out->begin++) {
        const struct tutti_tcp_piece *piece = piece_at(out, out->begin);
        if (!piece->last) continue;
        *token = piece->token;
        out->begin = --out->n_over > 0 ? out->begin + 1 : out->sent;
        return true;
    }
    return false;
}

/* The rest of the pieces from i to `last` is copied, and their memory given back. */
static bool own(struct tutti_tcp_out *out, uint64_t i, uint64_t last)
{
    size_t bytes = 0;
    for (uint64_t k = i; k <= last; k++) bytes += piece_at(out, k)->bytes;
    struct tutti_tcp_copy *copy = tutti_alloc(sizeof(*copy) + bytes);
    if (!copy) return false;
    copy->next = out->copies, out->copies = copy;
    for (size_t at = 0; i <= last; i++) {
        struct tutti_tcp_piece *piece = piece_at(out, i);
        memcpy(copy->bytes + at, piece->base, piece->bytes);
        piece->base = copy->bytes + at, piece->last = false; /* borrowed from then on of the copy */
        at += piece->bytes;
    }
    return true;
}

bool tutti_tcp_out_cancel(struct tutti_tcp_out *out, uint64_t token, bool *lost)
{
    uint64_t first = UINT64_MAX;
    for (uint64_t i = out->begin; i < out->end; i++) {
        struct tutti_tcp_piece *piece = piece_at(out, i);
        if (!piece->borrowed || piece->token != token) continue;
        if (i >= out->sent && first == UINT64_MAX) first = i;
        if (!piece->last) continue;
        if (i >= out->sent) {
            *lost = !own(out, first, i);
            return true;
        }
        piece->last = false; /* it is over, and not to be told any more */
        if (--out->n_over == 0) out->begin = out->sent;
        return true;
    }
    return false;
}

void tutti_tcp_out_fini(struct tutti_tcp_out *out)
{
    while (out->copies) {
        struct tutti_tcp_copy *copy = out->copies;
        out->copies = copy->next;
        tutti_free(copy);
    }
}
