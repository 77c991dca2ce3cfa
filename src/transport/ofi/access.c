/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets: writes to and reads from memory that a peer registered, without its help (RMA). A put is over when its
 * bytes are there: the provider tells that (FI_DELIVERY_COMPLETE), or a byte is read from there, where reads do not
 * overtake writes (FI_ORDER_RAW); then puts go by the first rail alone. What this member lends is registered for the
 * one access. A key: rails u8, zero, then from byte 8 on the key of each, u64 little endian. */

#include "transport/ofi/state.h"

#include "base/session.h"

#include <string.h>

#define KEYS_AT 8u

struct registration {
    struct tutti_ofi_memory memory[TUTTI_OFI_RAILS];
    uint32_t n;
};

bool tutti_ofi_direct(struct tutti_transport *t, uint32_t member)
{
    return t->max_direct > 0 && member < t->n && member != t->me;
}

void tutti_ofi_unreg(struct tutti_transport *t, void *registration)
{
    struct registration *registered = registration;
    (void)t;
    for (uint32_t i = 0; i < registered->n; i++) tutti_ofi_unregister(&registered->memory[i]);
    tutti_free(registered);
}

enum tutti_status tutti_ofi_reg(struct tutti_transport *t, const struct tutti_range *memory, struct tutti_key *key,
                                void **registration)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    struct tutti_key made = {.bytes = memory->bytes};
    enum tutti_status status = TUTTI_OK;
    if (!ofi->open || t->max_direct == 0 || (memory->maker != TUTTI_MAKER_HOST && !t->devices))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "transport ofi: its provider reaches no such memory");
    struct registration *registered = tutti_alloc(sizeof(*registered));
    if (!registered) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to register %zu bytes", memory->bytes);
    for (uint32_t i = 0; i < ofi->n_rails && status == TUTTI_OK; i++) {
        uint64_t word = 0;
        status = tutti_ofi_expose(&ofi->rails[i], memory, true, &registered->memory[i], &made.address, &word);
        tutti_le_store(made.key + KEYS_AT + 8 * i, 8, word);
        registered->n += status == TUTTI_OK;
    }
    if (status != TUTTI_OK) {
        tutti_ofi_unreg(t, registered);
        return status < 0 ? status : tutti_fail(TUTTI_ERR_SYSTEM, "transport ofi: no room to register memory");
    }
    made.key[0] = (uint8_t)registered->n;
    *key = made, *registration = registered;
    return TUTTI_OK;
}

/* What the peer said is checked before it is believed. */
static enum tutti_status check(const struct tutti_ofi *ofi, uint32_t member, const struct tutti_key *key,
                               uint64_t offset, size_t bytes)
{
    const struct tutti_ofi_peer *peer = member < ofi->base.n ? ofi->members[member].peer : NULL;
    if (!peer || peer == ofi->self || !peer->met || key->key[0] < 1 || key->key[0] > TUTTI_OFI_RAILS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u has registered no such memory for member %u", member,
                          ofi->base.me);
    if (bytes == 0 || bytes > ofi->base.max_direct || offset > key->bytes || bytes > key->bytes - offset)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%zu bytes at %llu of %llu registered bytes of member %u", bytes,
                          (unsigned long long)offset, (unsigned long long)key->bytes, member);
    return TUTTI_OK;
}

static enum tutti_status start(struct tutti_transport *t, uint32_t member, const struct tutti_key *key, uint64_t offset,
                               const struct tutti_range *memory, uint64_t token, enum tutti_ofi_kind kind)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    TUTTI_TRY(check(ofi, member, key, offset, memory->bytes));
    struct tutti_ofi_peer *peer = ofi->members[member].peer;
    if (tutti_notices_is_cut(&ofi->notices, member)) return tutti_send_gone(member, TUTTI_ERR_PEER_DEAD, 0);
    if (peer->ended || !ofi->open) return tutti_send_gone(member, peer->status, 0);
    struct tutti_ofi_large *access = tutti_ofi_large_free(peer->accesses, TUTTI_OFI_ACCESSES);
    if (!access || peer->ending) {
        peer->wants_room = true;
        return TUTTI_AGAIN;
    }
    const uint32_t there = key->key[0], n_rails = there < peer->n_rails ? there : peer->n_rails;
    access->op.kind = kind;
    access->rail = ofi->delivers && n_rails > 1 ? (uint8_t)(ofi->next_rail++ % n_rails) : 0;
    access->status = TUTTI_OK, access->silent = access->slab = access->whole = access->again = access->confirms = false;
    access->parts[0] = (struct iovec){memory->base, memory->bytes}, access->n = 1;
    access->maker = memory->maker, access->device = memory->device;
    access->bytes = memory->bytes, access->token = token;
    access->address = key->address + offset;
    access->key = tutti_le_load(key->key + KEYS_AT + 8 * access->rail, 8);
    access->number++; /* another use of the slot */
    tutti_ofi_large_start(ofi, access);
    return TUTTI_PENDING;
}

enum tutti_status tutti_ofi_put(struct tutti_transport *t, uint32_t member, const struct tutti_key *key,
                                uint64_t offset, const struct tutti_range *from, uint64_t token)
{
    return start(t, member, key, offset, from, token, TUTTI_OFI_PUT);
}

enum tutti_status tutti_ofi_get(struct tutti_transport *t, uint32_t member, const struct tutti_key *key,
                                uint64_t offset, const struct tutti_range *to, uint64_t token)
{
    return start(t, member, key, offset, to, token, TUTTI_OFI_GET);
}
