/* SPDX-License-Identifier: BSD-3-Clause */

/* Parts: where they are found, and what is done to their memory. */

#include "engine/onesided/access.h"

#include <string.h>

/* ---- what a team has ---- */

static struct tutti_ones *ones_create(const struct tutti_team *team)
{
    struct tutti_ones *ones = tutti_alloc(sizeof(*ones));

    if (!ones) return NULL;
    ones->map_bytes = team->size * sizeof(*ones->pairs);
    ones->pairs = tutti_map_lazy(ones->map_bytes);
    ones->known_end = &ones->known;
    ones->flushes_end = &ones->flushes;
    if (ones->pairs) return ones;
    tutti_free(ones);
    return NULL;
}

void tutti_ones_free(struct tutti_ones *ones)
{
    for (uint32_t b = 0; b < TUTTI_PART_BUCKETS; b++) {
        while (ones->parts[b]) {
            struct tutti_part *part = ones->parts[b];
            ones->parts[b] = part->next;
            tutti_free(part);
        }
    }
    while (ones->made) {
        struct tutti_move *move = ones->made;
        ones->made = move->made;
        tutti_free(move);
    }
    tutti_unmap(ones->pairs, ones->map_bytes);
    tutti_free(ones);
}

enum tutti_status tutti_ones_need(struct tutti_team *team)
{
    if (atomic_load(&team->ones)) return TUTTI_OK;
    struct tutti_ones *ones = ones_create(team), *none = NULL;
    if (!ones) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for accesses to %u ranks", team->size);
    if (!atomic_compare_exchange_strong(&team->ones, &none, ones)) tutti_ones_free(ones);
    return TUTTI_OK;
}

/* ---- parts ---- */

struct tutti_part *tutti_part_find(const struct tutti_ones *ones, uint32_t window)
{
    struct tutti_part *part = ones->parts[window % TUTTI_PART_BUCKETS];

    while (part && part->window != window) part = part->next;
    return part;
}

/* Words are put and got as one, as in place: who races for them sees the old one or the new one. */
bool tutti_part_is_word(const struct tutti_part *part, uint64_t offset, uint64_t bytes)
{
    const uintptr_t at = (uintptr_t)part->exposed.base + offset;
    return bytes == sizeof(uint64_t) && at % sizeof(uint64_t) == 0;
}

/* ---- what is done to one ---- */

void tutti_part_write(const struct tutti_part *part, uint64_t offset, const void *from, size_t bytes)
{
    unsigned char *to = (unsigned char *)part->exposed.base + offset;
    uint64_t word;

    if (!tutti_part_is_word(part, offset, bytes)) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(&word, from, sizeof(word));
    atomic_store_explicit((_Atomic uint64_t *)(void *)to, word, memory_order_relaxed);
}

void tutti_part_change(const struct tutti_part *part, const struct tutti_packet *packet, uint64_t *before)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)((unsigned char *)part->exposed.base + packet->offset);
    const uint64_t value = packet->call, expected = packet->signature;

    if ((packet->flags & TUTTI_ONE_KIND) != TUTTI_ONE_SWAP) {
        *before = atomic_fetch_add(word, value);
    } else {
        *before = expected;
        atomic_compare_exchange_strong(word, before, value);
    }
}

void tutti_part_signal(const struct tutti_part *part, const struct tutti_packet *packet)
{
    _Atomic uint64_t *word = part->exposed.signals + (size_t)packet->fifo * part->exposed.signal_step;

    if (packet->flags & TUTTI_ONE_SIGNAL_ADD)
        atomic_fetch_add(word, packet->call);
    else
        atomic_store(word, packet->call);
}
