/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's part of a call: buffers, the call, and the comparison. Inputs are functions of the plan's seed, of who
 * sends and of who is meant, so that every rank knows all of them. */
#include "peer.h"

#include "reference.h"

#include <stdlib.h>
#include <string.h>

enum { SEND, RECV };

bool peer_slot_open(struct rank *rank, struct peer_slot *slot)
{
    memset(slot, 0, sizeof *slot);
    for (int i = 0; i < 2; i++) {
        slot->arenas[i] = malloc(PEER_ARENA);
        slot->image[i] = malloc(PEER_ARENA);
        void *mapped = NULL;
        if (tutti_mem_alloc(rank->comm, PEER_ARENA, &mapped) != TUTTI_OK) return false;
        slot->arenas[2 + i] = mapped;
        if (!slot->arenas[i] || !slot->image[i]) return false;
    }
    return true;
}

void peer_slot_close(struct rank *rank, struct peer_slot *slot)
{
    for (int i = 0; i < 2; i++) {
        free(slot->arenas[i]);
        free(slot->image[i]);
        if (slot->arenas[2 + i]) (void)tutti_mem_free(rank->comm, slot->arenas[2 + i]);
    }
}

void peer_compose(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    (void)dtype, (void)arg;
    for (size_t i = 0; i < count; i++) {
        uint32_t l[2], r[2];
        memcpy(l, (const char *)left + 8 * i, 8);
        memcpy(r, (const char *)right + 8 * i, 8);
        const uint32_t both[2] = {l[0] * r[0], l[0] * r[1] + l[1]};
        memcpy((char *)out + 8 * i, both, 8);
    }
}

/* ---- what is sent ---- */

static bool reduces(const struct peer_plan *p)
{
    return p->kind == PEER_REDUCE_SCATTER || p->kind == PEER_ALL_REDUCE;
}

static void fill(const struct peer_plan *p, uint32_t from, uint32_t to, unsigned char *out)
{
    uint64_t seed = p->seed + from * UINT64_C(0x100000001b3) + to * UINT64_C(0x1b873593);
    ref_fill(p->dtype, reduces(p) && p->op >= 0 ? REF_FINITE : REF_BITS, seed, out, p->counts[from][to]);
}

static void write_factor(const struct peer_plan *p, unsigned char *factor)
{
    memset(factor, 0, 16);
    if (p->dtype <= TUTTI_BOOL)
        factor[0] = 2; /* little endian */
    else if (p->dtype == TUTTI_COMPLEX64)
        memcpy(factor, &(float){2}, sizeof(float));
    else if (p->dtype == TUTTI_COMPLEX128)
        memcpy(factor, &(double){2}, sizeof(double));
    else
        ref_encode(p->dtype, 2, factor);
}

/* Block `to` of all inputs, folded in the order of the ranks. */
static bool fold(const struct peer_plan *p, uint32_t n, uint32_t to, unsigned char *out)
{
    size_t count = p->counts[0][to], bytes = count * ref_bytes(p->dtype);
    unsigned char *inputs = malloc(n * bytes + 1), factor[16];
    const void *list[PEER_MAX_RANKS];
    if (!inputs) return false;
    for (uint32_t r = 0; r < n; r++) {
        fill(p, r, to, inputs + r * bytes);
        list[r] = inputs + r * bytes;
    }
    write_factor(p, factor);
    if (p->op >= 0) {
        ref_reduce(p->dtype, (enum tutti_op)p->op, list, n, count, factor, out);
    } else {
        memcpy(out, inputs, bytes);
        for (uint32_t r = 1; r < n; r++) peer_compose(out, list[r], out, count, p->dtype, NULL);
    }
    free(inputs);
    return true;
}

/* ---- where it is ---- */

static bool is_so(const struct peer_plan *p, enum peer_which which, uint32_t me, int salt)
{
    return which == PEER_YES || (which == PEER_SOME && (p->seed >> (me % 16 + (uint32_t)salt) & 1));
}

/* One block or n of them, some with gaps between; elements in all. */
static size_t lay_out(const struct peer_plan *p, uint32_t n, bool gaps, const size_t *counts, size_t stride,
                      size_t *displs)
{
    size_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = gaps && (p->seed & 2) ? n - 1 - i : i; /* backwards, too */
        displs[r] = end;
        end += counts[r * stride] + (gaps && (p->seed & 4) ? r % 3 : 0);
    }
    return end;
}

struct sides {
    bool in_place, send_all, recv_all; /* all: one block for each rank */
    size_t send_elements, recv_elements;
};

static struct sides lay_sides(const struct peer_plan *p, uint32_t n, uint32_t me, struct peer_slot *slot)
{
    struct sides s = {.in_place = is_so(p, p->in_place, me, 3)};
    bool is_root = p->root == (int32_t)me;
    if (p->kind == PEER_GATHER && !is_root) s.in_place = false; /* nothing to receive */
    s.send_all = p->kind == PEER_REDUCE_SCATTER || p->kind == PEER_ALL_TO_ALL;
    s.recv_all = p->kind == PEER_ALL_GATHER || p->kind == PEER_ALL_TO_ALL || (p->kind == PEER_GATHER && is_root);
    s.send_elements = s.send_all
                          ? lay_out(p, n, p->v && p->kind == PEER_ALL_TO_ALL, p->counts[me], 1, slot->send_displs)
                          : p->counts[me][me];
    s.recv_elements =
        s.recv_all ? lay_out(p, n, p->v, &p->counts[0][me], PEER_MAX_RANKS, slot->recv_displs) : p->counts[me][me];
    if (p->kind == PEER_BARRIER) s.send_elements = s.recv_elements = 0;
    return s;
}

static void place(const struct peer_plan *p, uint32_t me, const struct sides *s, struct peer_slot *slot)
{
    size_t esize = ref_bytes(p->dtype), shift = p->seed >> (8 + me % 8) & 15;
    slot->send_arena = slot->arenas[SEND + (is_so(p, p->send_mapped, me, 17) ? 2 : 0)];
    slot->recv_arena = slot->arenas[RECV + (is_so(p, p->recv_mapped, me, 31) ? 2 : 0)];
    slot->send = slot->send_arena + PEER_GUARD + shift;
    slot->recv = slot->recv_arena + PEER_GUARD + (shift * 5 & 15);
    slot->send_bytes = 2 * PEER_GUARD + 16 + s->send_elements * esize;
    slot->recv_bytes = 2 * PEER_GUARD + 16 + s->recv_elements * esize;
    if (!s->in_place) return;
    unsigned char **larger = s->recv_all ? &slot->recv : &slot->send;
    slot->send_arena = slot->recv_arena = s->recv_all ? slot->recv_arena : slot->send_arena;
    slot->send_bytes = slot->recv_bytes = s->recv_all ? slot->recv_bytes : slot->send_bytes;
    slot->send = slot->recv = *larger;
    if (s->recv_all && !s->send_all) slot->send += slot->recv_displs[me] * esize;
    if (s->send_all && !s->recv_all) slot->recv += slot->send_displs[me] * esize;
}

static void fill_send(const struct peer_plan *p, uint32_t n, uint32_t me, const struct sides *s, struct peer_slot *slot)
{
    size_t esize = ref_bytes(p->dtype);
    if (p->kind == PEER_BARRIER) return;
    for (uint32_t to = 0; s->send_all && to < n; to++) fill(p, me, to, slot->send + slot->send_displs[to] * esize);
    if (p->kind == PEER_BROADCAST && p->root != (int32_t)me) return;
    if (!s->send_all) fill(p, me, 0, slot->send); /* to all the same */
}

/* What the call writes, into the image. */
static void fill_recv(const struct peer_plan *p, uint32_t n, uint32_t me, const struct sides *s,
                      const struct peer_slot *slot, unsigned char *image)
{
    size_t esize = ref_bytes(p->dtype);
    unsigned char *at = image + (slot->recv - slot->recv_arena);
    if (p->kind == PEER_BARRIER || (p->kind == PEER_GATHER && p->root != (int32_t)me)) return;
    for (uint32_t from = 0; s->recv_all && from < n; from++)
        fill(p, from, s->send_all ? me : 0, at + slot->recv_displs[from] * esize);
    if (p->kind == PEER_BROADCAST)
        fill(p, (uint32_t)p->root, 0, at);
    else if (!s->recv_all && !fold(p, n, s->send_all ? me : 0, at))
        image[0] ^= 1; /* no memory: a failure */
}

void peer_prepare(const struct rank *rank, const struct peer_plan *p, struct peer_slot *slot)
{
    uint32_t n = (uint32_t)rank->n, me = (uint32_t)rank->index;
    struct sides s = lay_sides(p, n, me, slot);
    place(p, me, &s, slot);
    memset(slot->send_arena, 0x5a, slot->send_bytes);
    memset(slot->recv_arena, 0x5a, slot->recv_bytes);
    fill_send(p, n, me, &s, slot);
    memcpy(slot->image[SEND], slot->send_arena, slot->send_bytes);
    memcpy(slot->image[RECV], slot->recv_arena, slot->recv_bytes);
    fill_recv(p, n, me, &s, slot, slot->image[slot->send_arena == slot->recv_arena ? SEND : RECV]);
}

/* ---- the call ---- */

static enum tutti_status start_v(struct rank *rank, const struct peer_plan *p, enum tutti_op op, struct peer_slot *slot,
                                 const struct tutti_call_options *o, struct tutti_work **work)
{
    uint32_t me = (uint32_t)rank->index;
    size_t column[PEER_MAX_RANKS];
    bool packed = !(p->seed & 6);
    for (uint32_t r = 0; r < (uint32_t)rank->n; r++) column[r] = p->counts[r][me];
    const size_t *send_displs = packed ? NULL : slot->send_displs, *recv_displs = packed ? NULL : slot->recv_displs;
    if (p->kind == PEER_ALL_GATHER)
        return tutti_all_gather_v(slot->send, slot->recv, column, recv_displs, p->dtype, rank->comm, o, work);
    if (p->kind == PEER_REDUCE_SCATTER)
        return tutti_reduce_scatter_v(slot->send, slot->recv, p->counts[me], p->dtype, op, rank->comm, o, work);
    return tutti_all_to_all_v(slot->send, p->counts[me], send_displs, slot->recv, column, recv_displs, p->dtype,
                              rank->comm, o, work);
}

enum tutti_status peer_start(struct rank *rank, const struct peer_plan *p, enum tutti_op user, struct peer_slot *slot)
{
    struct tutti_call_options o = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work **work = p->async ? &slot->work : NULL;
    enum tutti_op op = p->op < 0 ? user : (enum tutti_op)p->op;
    o.premul_value = 2;
    o.algorithm = p->method;
    slot->work = NULL;
    if (p->v) return start_v(rank, p, op, slot, &o, work);
    switch (p->kind) {
    case PEER_ALL_GATHER:
        return tutti_all_gather(slot->send, slot->recv, p->count, p->dtype, rank->comm, &o, work);
    case PEER_REDUCE_SCATTER:
        return tutti_reduce_scatter(slot->send, slot->recv, p->count, p->dtype, op, rank->comm, &o, work);
    case PEER_ALL_TO_ALL:
        return tutti_all_to_all(slot->send, slot->recv, p->count, p->dtype, rank->comm, &o, work);
    case PEER_ALL_REDUCE:
        return tutti_all_reduce(slot->send, slot->recv, p->count, p->dtype, op, rank->comm, &o, work);
    case PEER_BROADCAST:
        return tutti_broadcast(slot->recv, p->count, p->dtype, p->root, rank->comm, &o, work);
    case PEER_GATHER:
        return tutti_gather(slot->send, slot->recv, p->count, p->dtype, p->root, rank->comm, &o, work);
    default:
        return tutti_barrier(rank->comm, &o, work);
    }
}

/* ---- comparing ---- */

const char *peer_compare(const struct rank *rank, const struct peer_plan *p, const struct peer_slot *slot)
{
    bool one = slot->send_arena == slot->recv_arena;
    (void)rank;
    if (!one && memcmp(slot->send_arena, slot->image[SEND], slot->send_bytes) != 0) return "its input was written to";
    if (memcmp(slot->recv_arena, slot->image[one ? SEND : RECV], slot->recv_bytes) != 0)
        return reduces(p) ? "a wrong result, or written beside it" : "a wrong byte, or written beside";
    return NULL;
}
