/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's part of a call: buffers, the call, and the comparison. Inputs are functions of the plan's seed, of who
 * sends and of who is meant, so that every rank knows all of them. */
#include "root.h"

#include "reference.h"

#include <stdlib.h>
#include <string.h>

enum { SEND, RECV };

/* ---- what is sent ---- */

static bool reduces(const struct root_plan *p)
{
    return p->kind == ROOT_REDUCE || p->kind == ROOT_SCAN || p->kind == ROOT_EXSCAN || p->kind == ROOT_ALL_REDUCE;
}

static bool has_blocks(const struct root_plan *p)
{
    return p->kind == ROOT_GATHER || p->kind == ROOT_SCATTER;
}

/* What rank r contributes, or, of blocks, what its block holds. */
static void fill(const struct root_plan *p, uint32_t n, uint32_t r, unsigned char *out)
{
    uint64_t seed = p->seed + r * UINT64_C(0x100000001b3);
    if (!reduces(p) || p->op < 0)
        ref_fill(p->dtype, REF_BITS, seed, out, has_blocks(p) ? p->counts[r] : p->count);
    else if (p->any_order)
        ref_fill_exact(p->dtype, (enum tutti_op)p->op, p->seed, r, n, out, p->count);
    else
        ref_fill(p->dtype, REF_FINITE, seed, out, p->count);
}

static void write_factor(const struct root_plan *p, unsigned char *factor)
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

/* The inputs of the first `n_inputs` of n ranks, folded in their order. */
static bool fold(const struct root_plan *p, uint32_t n, uint32_t n_inputs, unsigned char *out)
{
    size_t bytes = p->count * ref_bytes(p->dtype);
    unsigned char *inputs = malloc(n_inputs * bytes + 1), factor[16];
    const void *list[PEER_MAX_RANKS];
    if (!inputs) return false;
    for (uint32_t r = 0; r < n_inputs; r++) {
        fill(p, n, r, inputs + r * bytes);
        list[r] = inputs + r * bytes;
    }
    write_factor(p, factor);
    if (p->op >= 0) {
        ref_reduce(p->dtype, (enum tutti_op)p->op, list, n_inputs, p->count, factor, out);
    } else {
        memcpy(out, inputs, bytes);
        for (uint32_t r = 1; r < n_inputs; r++) peer_compose(out, list[r], out, p->count, p->dtype, NULL);
    }
    free(inputs);
    return true;
}

/* ---- where it is ---- */

static bool is_so(const struct root_plan *p, enum peer_which which, uint32_t me, int salt)
{
    return which == PEER_YES || (which == PEER_SOME && (p->seed >> (me % 16 + (uint32_t)salt) & 1));
}

/* Places of all blocks, some with gaps between, some backwards. */
static void lay_out(const struct root_plan *p, uint32_t n, size_t *displs)
{
    size_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = p->v && (p->seed & 2) ? n - 1 - i : i;
        displs[r] = end;
        end += p->counts[r] + (p->v && (p->seed & 4) ? r % 3 : 0);
    }
}

/* Bytes of an arena that a call may touch, and as many that it must not. */
static size_t extent(const struct root_plan *p, uint32_t n)
{
    size_t blocks = 0;
    for (uint32_t r = 0; r < n; r++) blocks += p->counts[r] + 2;
    size_t bytes = (has_blocks(p) ? blocks : p->count) * ref_bytes(p->dtype) + 3 * PEER_GUARD;
    return 2 * bytes < PEER_ARENA ? 2 * bytes : PEER_ARENA;
}

static bool is_packed(const struct root_plan *p)
{
    return !(p->seed & 6);
}

static void place(const struct root_plan *p, uint32_t me, struct peer_slot *slot)
{
    size_t esize = ref_bytes(p->dtype), shift = p->seed >> (8 + me % 8) & 15;
    bool in_place = p->kind == ROOT_BROADCAST || (is_so(p, p->in_place, me, 3) && (!has_blocks(p) || me == p->root));
    size_t mine = slot->recv_displs[me] * esize; /* displacements are in blocks */
    slot->send_arena = slot->arenas[SEND + (is_so(p, p->send_mapped, me, 17) ? 2 : 0)];
    slot->recv_arena = slot->arenas[RECV + (is_so(p, p->recv_mapped, me, 31) ? 2 : 0)];
    slot->send = slot->send_arena + PEER_GUARD + shift;
    slot->recv = slot->recv_arena + PEER_GUARD + (shift * 5 & 15);
    if (!in_place) return;
    slot->send_arena = slot->recv_arena;
    slot->send = slot->recv;
    if (p->kind == ROOT_GATHER) slot->send += mine;
    if (p->kind == ROOT_SCATTER) slot->recv += mine;
}

static void fill_send(const struct root_plan *p, uint32_t n, uint32_t me, struct peer_slot *slot)
{
    size_t esize = ref_bytes(p->dtype);
    if (p->kind == ROOT_BARRIER || (p->kind == ROOT_BROADCAST && me != p->root)) return;
    if (p->kind != ROOT_SCATTER) fill(p, n, me, slot->send);
    if (p->kind != ROOT_SCATTER || me != p->root) return;
    for (uint32_t r = 0; r < n; r++) fill(p, n, r, slot->send + slot->recv_displs[r] * esize);
}

/* What the call writes, into the image. */
static bool fill_recv(const struct root_plan *p, uint32_t n, uint32_t me, const struct peer_slot *slot,
                      unsigned char *image)
{
    size_t esize = ref_bytes(p->dtype);
    unsigned char *at = image + (slot->recv - slot->recv_arena);
    bool root = me == p->root;
    switch (p->kind) {
    case ROOT_BROADCAST:
        fill(p, n, p->root, at);
        return true;
    case ROOT_SCATTER:
        fill(p, n, me, at);
        return true;
    case ROOT_GATHER:
        for (uint32_t r = 0; root && r < n; r++) fill(p, n, r, at + slot->recv_displs[r] * esize);
        return true;
    case ROOT_REDUCE:
        return !root || fold(p, n, n, at);
    case ROOT_SCAN:
        return fold(p, n, me + 1, at);
    case ROOT_EXSCAN:
        return me == 0 || fold(p, n, me, at);
    case ROOT_ALL_REDUCE:
        return fold(p, n, n, at);
    default:
        return true;
    }
}

void root_prepare(const struct rank *rank, const struct root_plan *p, struct peer_slot *slot)
{
    uint32_t n = (uint32_t)rank->n, me = (uint32_t)rank->index;
    lay_out(p, n, slot->recv_displs);
    place(p, me, slot);
    size_t bytes = extent(p, n);
    memset(slot->send_arena, 0x5a, bytes);
    memset(slot->recv_arena, 0x5a, bytes);
    fill_send(p, n, me, slot);
    memcpy(slot->image[SEND], slot->send_arena, bytes);
    memcpy(slot->image[RECV], slot->recv_arena, bytes);
    unsigned char *image = slot->image[slot->send_arena == slot->recv_arena ? SEND : RECV];
    if (!fill_recv(p, n, me, slot, image)) image[0] ^= 1; /* no memory: a failure */
}

/* ---- the call: what is not significant on a rank is NULL now and then ---- */

static enum tutti_status start_blocks(struct rank *rank, const struct root_plan *p, struct peer_slot *slot,
                                      const struct tutti_call_options *o, struct tutti_work **work)
{
    uint32_t me = (uint32_t)rank->index;
    bool root = me == p->root;
    const size_t *counts = root ? p->counts : NULL, *displs = root && !is_packed(p) ? slot->recv_displs : NULL;
    struct tutti_comm *comm = rank->comm;
    int32_t r = (int32_t)p->root;
    if (p->kind == ROOT_GATHER && p->v)
        return tutti_gather_v(slot->send, p->counts[me], root ? slot->recv : NULL, counts, displs, p->dtype, r, comm, o,
                              work);
    if (p->kind == ROOT_GATHER)
        return tutti_gather(slot->send, root ? slot->recv : NULL, p->count, p->dtype, r, comm, o, work);
    if (p->v)
        return tutti_scatter_v(root ? slot->send : NULL, counts, displs, slot->recv, p->counts[me], p->dtype, r, comm,
                               o, work);
    return tutti_scatter(root ? slot->send : NULL, slot->recv, p->count, p->dtype, r, comm, o, work);
}

enum tutti_status root_start(struct rank *rank, const struct root_plan *p, enum tutti_op user, struct peer_slot *slot)
{
    struct tutti_call_options o = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work **work = p->async ? &slot->work : NULL;
    enum tutti_op op = p->op < 0 ? user : (enum tutti_op)p->op;
    struct tutti_comm *comm = rank->comm;
    bool root = (uint32_t)rank->index == p->root;
    o.premul_value = 2;
    o.algorithm = p->method;
    /* Without options there is a short way. */
    const struct tutti_call_options *options = p->method || p->op == TUTTI_PREMUL_SUM ? &o : NULL;
    slot->work = NULL;
    switch (p->kind) {
    case ROOT_BROADCAST:
        return tutti_broadcast(slot->recv, p->count, p->dtype, (int32_t)p->root, comm, options, work);
    case ROOT_REDUCE:
        return tutti_reduce(slot->send, root ? slot->recv : NULL, p->count, p->dtype, op, (int32_t)p->root, comm,
                            options, work);
    case ROOT_SCAN:
        return tutti_scan(slot->send, slot->recv, p->count, p->dtype, op, comm, options, work);
    case ROOT_EXSCAN:
        return tutti_exscan(slot->send, slot->recv, p->count, p->dtype, op, comm, options, work);
    case ROOT_ALL_REDUCE:
        return tutti_all_reduce(slot->send, slot->recv, p->count, p->dtype, op, comm, options, work);
    case ROOT_BARRIER:
        return tutti_barrier(comm, options, work);
    default:
        return start_blocks(rank, p, slot, options, work);
    }
}

/* ---- comparing ---- */

const char *root_compare(const struct rank *rank, const struct root_plan *p, const struct peer_slot *slot)
{
    size_t bytes = extent(p, (uint32_t)rank->n);
    bool one = slot->send_arena == slot->recv_arena;
    if (!one && memcmp(slot->send_arena, slot->image[SEND], bytes) != 0) return "its input was written to";
    if (memcmp(slot->recv_arena, slot->image[one ? SEND : RECV], bytes) != 0)
        return reduces(p) ? "a wrong result, or written beside it" : "a wrong byte, or written beside";
    return NULL;
}
