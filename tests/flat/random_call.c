/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's part of a call: buffers, the call, and the comparison. Inputs are functions of the plan's seed, of the
 * sender and of the receiver, so that every rank knows all of them. */
#include "random.h"

#include "reference.h"

#include <stdlib.h>
#include <string.h>

enum { SEND, RECV };

bool random_slot_open(struct rank *rank, struct random_slot *slot)
{
    memset(slot, 0, sizeof *slot);
    for (int i = 0; i < 2; i++) {
        slot->arenas[i] = malloc(RANDOM_ARENA);
        slot->image[i] = malloc(RANDOM_ARENA);
        void *mapped = NULL;
        if (tutti_mem_alloc(rank->comm, RANDOM_ARENA, &mapped) != TUTTI_OK) return false;
        slot->arenas[2 + i] = mapped;
        if (!slot->arenas[i] || !slot->image[i]) return false;
    }
    return true;
}

void random_slot_close(struct rank *rank, struct random_slot *slot)
{
    for (int i = 0; i < 2; i++) {
        free(slot->arenas[i]);
        free(slot->image[i]);
        if (slot->arenas[2 + i]) (void)tutti_mem_free(rank->comm, slot->arenas[2 + i]);
    }
}

void random_compose(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
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

static const struct tutti_kind_info *kind_of(const struct random_plan *p)
{
    return tutti_kind_info(p->kind);
}

/* The block that `from` has for `to`; a rank that has one block has the same for all. */
static void fill(const struct random_plan *p, uint32_t n, uint32_t from, uint32_t to, unsigned char *out)
{
    const bool reduces = kind_of(p)->reduces && p->op >= 0;
    if (kind_of(p)->send.blocks == TUTTI_ONE_BLOCK) to = 0;
    const uint64_t seed = p->seed + to * UINT64_C(0x1b873593), own = seed + from * UINT64_C(0x100000001b3);
    if (reduces && p->any_order)
        ref_fill_exact(p->dtype, (enum tutti_op)p->op, seed, from, n, out, p->counts[from][to]);
    else
        ref_fill(p->dtype, reduces ? REF_FINITE : REF_BITS, own, out, p->counts[from][to]);
}

static void write_factor(const struct random_plan *p, unsigned char *factor)
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

/* The block for `to` of the first n_inputs of n ranks, folded in their order. */
static bool fold(const struct random_plan *p, uint32_t n, uint32_t n_inputs, uint32_t to, unsigned char *out)
{
    size_t count = p->counts[0][to], bytes = count * ref_bytes(p->dtype);
    unsigned char *inputs = malloc(n_inputs * bytes + 1), factor[16];
    const void *list[RANDOM_MAX_RANKS];
    if (!inputs) return false;
    for (uint32_t r = 0; r < n_inputs; r++) {
        fill(p, n, r, to, inputs + r * bytes);
        list[r] = inputs + r * bytes;
    }
    write_factor(p, factor);
    if (p->op >= 0) {
        ref_reduce(p->dtype, (enum tutti_op)p->op, list, n_inputs, count, factor, out);
    } else {
        memcpy(out, inputs, bytes);
        for (uint32_t r = 1; r < n_inputs; r++) random_compose(out, list[r], out, count, p->dtype, NULL);
    }
    free(inputs);
    return true;
}

/* ---- where it is ---- */

static bool is_so(const struct random_plan *p, enum random_which which, uint32_t me, int salt)
{
    return which == RANDOM_YES || (which == RANDOM_SOME && (p->seed >> (me % 16 + (uint32_t)salt) & 1));
}

static bool is_packed(const struct random_plan *p)
{
    return !(p->seed & 6);
}

/* Places of all blocks, some with gaps between, some backwards. Returns the elements in all. */
static size_t lay_out(const struct random_plan *p, uint32_t n, bool gaps, const size_t *counts, size_t stride,
                      size_t *displs)
{
    size_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = gaps && (p->seed & 2) ? n - 1 - i : i;
        displs[r] = end;
        end += counts[r * stride] + (gaps && (p->seed & 4) ? r % 3 : 0);
    }
    return end;
}

/* A shared table has displacements on the receiving side alone, and a reduction has none. */
static void lay_sides(const struct random_plan *p, uint32_t n, uint32_t me, struct random_slot *slot)
{
    const struct tutti_kind_info *kind = kind_of(p);
    const bool send_gaps = p->v && !kind->reduces && kind->send.blocks == TUTTI_ALL_BLOCKS;
    size_t sent = lay_out(p, n, send_gaps, p->counts[me], 1, slot->send_displs);
    size_t got = lay_out(p, n, p->v && kind->recv.blocks == TUTTI_ALL_BLOCKS, &p->counts[0][me], RANDOM_MAX_RANKS,
                         slot->recv_displs);
    if (!kind->block_a_slot) sent = got = p->count;
    const size_t most = 2 * ((sent > got ? sent : got) * ref_bytes(p->dtype) + 2 * RANDOM_GUARD);
    slot->bytes = most < RANDOM_ARENA ? most : RANDOM_ARENA;
}

static void place(const struct random_plan *p, uint32_t me, struct random_slot *slot)
{
    const struct tutti_kind_info *kind = kind_of(p);
    const uint32_t root = (uint32_t)p->root;
    const bool sends = tutti_side_is_at(kind->send, me, root), gets = tutti_side_is_at(kind->recv, me, root);
    const bool one = kind->in_place == TUTTI_ONE_BUFFER;
    const bool in_place = one || (is_so(p, p->in_place, me, 3) && sends && (gets || p->kind == TUTTI_EXSCAN));
    size_t esize = ref_bytes(p->dtype), shift = p->seed >> (8 + me % 8) & 15;
    slot->send_arena = slot->arenas[SEND + (is_so(p, p->send_mapped, me, 17) ? 2 : 0)];
    slot->recv_arena = slot->arenas[RECV + (is_so(p, p->recv_mapped, me, 31) ? 2 : 0)];
    slot->send = slot->send_arena + RANDOM_GUARD + shift;
    slot->recv = slot->recv_arena + RANDOM_GUARD + (shift * 5 & 15);
    if (!in_place) return;
    slot->send_arena = slot->recv_arena;
    slot->send = slot->recv;
    if (kind->in_place == TUTTI_SEND_IN_RECV) slot->send += slot->recv_displs[me] * esize;
    if (kind->in_place == TUTTI_RECV_IN_SEND) slot->recv += slot->send_displs[me] * esize;
}

static void fill_send(const struct random_plan *p, uint32_t n, uint32_t me, struct random_slot *slot)
{
    const struct tutti_kind_info *kind = kind_of(p);
    const uint32_t blocks = tutti_side_blocks(kind->send, me, (uint32_t)p->root, n);
    for (uint32_t b = 0; b < blocks; b++)
        fill(p, n, me, b, slot->send + (blocks > 1 ? slot->send_displs[b] * ref_bytes(p->dtype) : 0));
}

/* What the call writes, into the image. */
static bool fill_recv(const struct random_plan *p, uint32_t n, uint32_t me, const struct random_slot *slot,
                      unsigned char *image)
{
    const struct tutti_kind_info *kind = kind_of(p);
    const uint32_t root = (uint32_t)p->root, blocks = tutti_side_blocks(kind->recv, me, root, n);
    const uint32_t for_me = kind->send.blocks == TUTTI_ALL_BLOCKS ? me : 0;
    unsigned char *at = image + (slot->recv - slot->recv_arena);
    if (blocks == 0) return true;
    if (kind->result == TUTTI_GETS_ALL) return fold(p, n, n, for_me, at);
    if (kind->result != TUTTI_GETS_ORIGIN) return fold(p, n, me + (kind->result == TUTTI_GETS_PREFIX), 0, at);
    if (kind->recv.blocks == TUTTI_ONE_BLOCK) fill(p, n, root, for_me, at);
    for (uint32_t from = 0; kind->recv.blocks == TUTTI_ALL_BLOCKS && from < n; from++)
        fill(p, n, from, for_me, at + slot->recv_displs[from] * ref_bytes(p->dtype));
    return true;
}

void random_prepare(const struct rank *rank, const struct random_plan *p, struct random_slot *slot)
{
    uint32_t n = (uint32_t)rank->n, me = (uint32_t)rank->index;
    lay_sides(p, n, me, slot);
    place(p, me, slot);
    memset(slot->send_arena, 0x5a, slot->bytes);
    memset(slot->recv_arena, 0x5a, slot->bytes);
    fill_send(p, n, me, slot);
    memcpy(slot->image[SEND], slot->send_arena, slot->bytes);
    memcpy(slot->image[RECV], slot->recv_arena, slot->bytes);
    unsigned char *image = slot->image[slot->send_arena == slot->recv_arena ? SEND : RECV];
    if (!fill_recv(p, n, me, slot, image)) image[0] ^= 1; /* no memory: a failure */
}

/* ---- the call: what is not significant on a rank is NULL ---- */

static enum tutti_status start_v(struct rank *rank, const struct random_plan *p, enum tutti_op op,
                                 struct random_slot *s, const struct tutti_call_options *o, struct tutti_work **work)
{
    struct tutti_comm *comm = rank->comm;
    const uint32_t me = (uint32_t)rank->index;
    const bool root = rank->index == p->root;
    const size_t *send_displs = is_packed(p) ? NULL : s->send_displs,
                 *recv_displs = is_packed(p) ? NULL : s->recv_displs;
    const size_t *row = p->counts[me];
    size_t column[RANDOM_MAX_RANKS];
    for (uint32_t r = 0; r < (uint32_t)rank->n; r++) column[r] = p->counts[r][me];
    switch (p->kind) {
    case TUTTI_ALL_GATHER:
        return tutti_all_gather_v(s->send, s->recv, column, recv_displs, p->dtype, comm, o, work);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter_v(s->send, s->recv, row, p->dtype, op, comm, o, work);
    case TUTTI_GATHER:
        return tutti_gather_v(s->send, row[me], root ? s->recv : NULL, root ? column : NULL, root ? recv_displs : NULL,
                              p->dtype, p->root, comm, o, work);
    case TUTTI_SCATTER:
        return tutti_scatter_v(root ? s->send : NULL, root ? row : NULL, root ? send_displs : NULL, s->recv, column[me],
                               p->dtype, p->root, comm, o, work);
    default:
        return tutti_all_to_all_v(s->send, row, send_displs, s->recv, column, recv_displs, p->dtype, comm, o, work);
    }
}

static enum tutti_status start(struct rank *rank, const struct random_plan *p, enum tutti_op op, struct random_slot *s,
                               const struct tutti_call_options *o, struct tutti_work **work)
{
    struct tutti_comm *comm = rank->comm;
    const bool root = rank->index == p->root;
    switch (p->kind) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(s->send, s->recv, p->count, p->dtype, op, comm, o, work);
    case TUTTI_REDUCE:
        return tutti_reduce(s->send, root ? s->recv : NULL, p->count, p->dtype, op, p->root, comm, o, work);
    case TUTTI_BROADCAST:
        return tutti_broadcast(s->recv, p->count, p->dtype, p->root, comm, o, work);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(s->send, s->recv, p->count, p->dtype, comm, o, work);
    case TUTTI_GATHER:
        return tutti_gather(s->send, root ? s->recv : NULL, p->count, p->dtype, p->root, comm, o, work);
    case TUTTI_SCATTER:
        return tutti_scatter(root ? s->send : NULL, s->recv, p->count, p->dtype, p->root, comm, o, work);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(s->send, s->recv, p->count, p->dtype, op, comm, o, work);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(s->send, s->recv, p->count, p->dtype, comm, o, work);
    case TUTTI_SCAN:
        return tutti_scan(s->send, s->recv, p->count, p->dtype, op, comm, o, work);
    case TUTTI_EXSCAN:
        return tutti_exscan(s->send, s->recv, p->count, p->dtype, op, comm, o, work);
    default:
        return tutti_barrier(comm, o, work);
    }
}

enum tutti_status random_start(struct rank *rank, const struct random_plan *p, enum tutti_op user,
                               struct random_slot *slot)
{
    struct tutti_call_options o = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work **work = p->async ? &slot->work : NULL;
    const enum tutti_op op = p->op < 0 ? user : (enum tutti_op)p->op;
    o.premul_value = 2;
    o.algorithm = p->method;
    /* Calls without options take the short way. */
    const struct tutti_call_options *options = p->method || p->op == TUTTI_PREMUL_SUM ? &o : NULL;
    slot->work = NULL;
    return (p->v ? start_v : start)(rank, p, op, slot, options, work);
}

/* ---- comparing ---- */

const char *random_compare(const struct random_plan *p, const struct random_slot *slot)
{
    bool one = slot->send_arena == slot->recv_arena;
    if (!one && memcmp(slot->send_arena, slot->image[SEND], slot->bytes) != 0) return "its input was written to";
    if (memcmp(slot->recv_arena, slot->image[one ? SEND : RECV], slot->bytes) != 0)
        return kind_of(p)->reduces ? "a wrong result, or written beside it" : "a wrong byte, or written beside";
    return NULL;
}
