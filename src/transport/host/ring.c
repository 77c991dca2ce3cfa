/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring of packets between two members. The producer writes a record and releases `tail`; the consumer acquires it,
 * checks the record, and releases `head` when it is done with it. The only sequentially consistent pair is
 * `stalled`/`head`: either the producer sees the room or the consumer sees that it is awaited. */

#include "transport/host/ring.h"

#include <stdatomic.h>
#include <string.h>

enum { RING_ALIGN = TUTTI_CACHE_LINE, PACKET_WORDS = sizeof(struct tutti_packet) / 8 };

/* The first word of a record: kind in the upper half, length in the lower. */
#define RING_RECORD (UINT64_C(0x7265636f) << 32)
#define RING_PAD (UINT64_C(0x70616421) << 32)
#define RING_KIND(word) ((word) & ~UINT64_C(0xffffffff))
#define RING_LENGTH(word) ((word)&UINT64_C(0xffffffff))

_Static_assert(sizeof(struct tutti_packet) == TUTTI_PACKET_WIRE_BYTES, "no padding: packets are copied word by word");
_Static_assert(TUTTI_RING_HEAD_BYTES == 16 + sizeof(struct tutti_packet), "length and kind, stamp, packet");

static uint64_t record_length(uint64_t payload_bytes)
{
    return (TUTTI_RING_HEAD_BYTES + payload_bytes + RING_ALIGN - 1) & ~(uint64_t)(RING_ALIGN - 1);
}

/* A position that the other side can have written: not behind what it said before, not beyond the limit. */
static bool position_valid(uint64_t position, uint64_t before, uint64_t limit)
{
    return position - before <= limit - before && position % RING_ALIGN == 0;
}

/* Refreshes out->head until `need` bytes are free. */
static enum tutti_status ring_make_room(struct tutti_ring_shared *ring, size_t ring_bytes, struct tutti_ring_out *out,
                                        uint64_t need)
{
    for (int armed = 0; armed < 2; armed++) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_seq_cst);
        if (!position_valid(head, out->head, out->tail)) return TUTTI_ERR_PROTOCOL;
        out->head = head;
        if (ring_bytes - (out->tail - head) >= need) return TUTTI_OK;
        if (armed == 0 && atomic_load_explicit(&ring->stalled, memory_order_relaxed) == 0)
            atomic_store_explicit(&ring->stalled, 1, memory_order_seq_cst);
    }
    return TUTTI_AGAIN;
}

static void record_write(char *at, uint64_t length, const struct tutti_ring_record *record)
{
    const uint64_t words[2] = {RING_RECORD | length, record->stamp};
    memcpy(at, words, sizeof(words));
    memcpy(at + sizeof(words), record->packet, sizeof(*record->packet));
    at += TUTTI_RING_HEAD_BYTES;
    for (uint32_t i = 0; i < record->n_spans; i++) {
        const struct tutti_span span = record->spans[i];
        if (span.bytes == 0) continue;
        memcpy(at, span.base, span.bytes);
        at += span.bytes;
    }
}

enum tutti_status tutti_ring_put(struct tutti_ring_shared *ring, size_t ring_bytes, struct tutti_ring_out *out,
                                 const struct tutti_ring_record *record)
{
    const uint64_t length = record_length(record->packet->bytes);
    const uint64_t at = out->tail & (ring_bytes - 1), to_end = ring_bytes - at;
    const uint64_t pad = to_end < length ? to_end : 0;
    if (ring_bytes - (out->tail - out->head) < pad + length) {
        enum tutti_status status = ring_make_room(ring, ring_bytes, out, pad + length);
        if (status != TUTTI_OK) return status;
    }
    if (pad > 0) {
        const uint64_t word = RING_PAD | pad;
        memcpy(ring->data + at, &word, sizeof(word));
    }
    record_write(pad > 0 ? ring->data : ring->data + at, length, record);
    out->tail += pad + length;
    atomic_store_explicit(&ring->tail, out->tail, memory_order_release);
    return TUTTI_OK;
}

/* Reads word i of a record once: the producer may be hostile and write while we look. */
static uint64_t record_word(char *at, size_t i)
{
    return atomic_load_explicit((_Atomic uint64_t *)(void *)at + i, memory_order_relaxed);
}

enum tutti_status tutti_ring_peek(struct tutti_ring_shared *ring, size_t ring_bytes, struct tutti_ring_in *in,
                                  struct tutti_ring_view *out)
{
    if (in->head == in->tail) {
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (tail == in->tail) return TUTTI_AGAIN;
        if (!position_valid(tail, in->tail, in->head + ring_bytes)) return TUTTI_ERR_PROTOCOL;
        in->tail = tail;
    }
    uint64_t head = in->head, at = head & (ring_bytes - 1);
    uint64_t word = record_word(ring->data + at, 0);
    if (RING_KIND(word) == RING_PAD) {
        if (RING_LENGTH(word) != ring_bytes - at || RING_LENGTH(word) >= in->tail - head) return TUTTI_ERR_PROTOCOL;
        head += RING_LENGTH(word);
        at = 0;
        word = record_word(ring->data, 0);
    }
    const uint64_t length = RING_LENGTH(word);
    if (RING_KIND(word) != RING_RECORD || length < TUTTI_RING_HEAD_BYTES || length > in->tail - head ||
        length > ring_bytes - at)
        return TUTTI_ERR_PROTOCOL;
    uint64_t copy[PACKET_WORDS];
    for (size_t i = 0; i < PACKET_WORDS; i++) copy[i] = record_word(ring->data + at, 2 + i);
    memcpy(&out->packet, copy, sizeof(out->packet));
    if (out->packet.bytes > tutti_ring_max_payload(ring_bytes) || record_length(out->packet.bytes) != length)
        return TUTTI_ERR_PROTOCOL;
    out->stamp = record_word(ring->data + at, 1);
    out->payload = ring->data + at + TUTTI_RING_HEAD_BYTES;
    out->next = head + length;
    return TUTTI_OK;
}

bool tutti_ring_pop(struct tutti_ring_shared *ring, struct tutti_ring_in *in, uint64_t next)
{
    in->head = next;
    atomic_store_explicit(&ring->head, next, memory_order_seq_cst);
    if (atomic_load_explicit(&ring->stalled, memory_order_seq_cst) == 0) return false;
    return atomic_exchange_explicit(&ring->stalled, 0, memory_order_seq_cst) != 0;
}
