/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_GPU_GPU_STEPS_TEST_H
#define TUTTI_BACKEND_GPU_GPU_STEPS_TEST_H

/* Steps of the back end `cuda` carried out in plain C: those of all ranks on ordinary memory, as the kernels' contract
 * says, with what it forbids refused. */

#include "test.h"

#include "backend/gpu/gpu_plan.h"
#include "reference.h"

#include <string.h>

#define N GPU_MAX_RANKS
#define ROOM ((size_t)16 << 10) /* of a buffer */
#define BOUNCE ((size_t)256)

static uint64_t seed;
static inline uint64_t below(uint64_t n)
{
    return tutti_random64(&seed) % n;
}

/* ---- ranks ---- */

struct rank {
    struct gpu_site site;
    struct tutti_backend_call call;
    struct gpu_step step;
    bool more;
    uint32_t next;
    struct gpu_step later[8]; /* folds on the own stream that nobody has waited for */
    uint32_t n_later;
    size_t in_at, out_at; /* where the buffers begin */
    size_t counts[N], displs[N], in_counts[N], in_displs[N];
    unsigned char in[ROOM], out[ROOM], want[ROOM], was[ROOM], bounce[BOUNCE];
};
static struct rank ranks[N];

struct trial {
    uint32_t n, root;
    enum tutti_kind kind;
    enum tutti_dtype dtype;
    enum tutti_op op;
    bool in_place, v, windows, late;
    size_t count;
    unsigned char factor[16];
};

static const char *method_name;
static inline void complain(const struct trial *t, const char *what, uint32_t rank)
{
    fail_msg("%s of %u ranks by %s (%s, count %zu%s%s, root %u): rank %u: %s", tutti_kind_name(t->kind), t->n,
             method_name, tutti_dtype_name(t->dtype), t->count, t->v ? ", v" : "", t->in_place ? ", in place" : "",
             t->root, rank, what);
}

/* ---- carrying out steps ---- */

static inline bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}

/* What may lie on what is sent: the same bytes, which the kernel sends before it stores there, or after, if it relays
 * them. */
static inline void check_overlap(const struct trial *t, uint32_t me)
{
    const struct gpu_exchange *x = &ranks[me].step.exchange;
    bool folds = ranks[me].step.folds;
    for (uint32_t q = 0; q < t->n; q++) {
        const char *to = x->out + x->recv[folds ? me : q].at;
        size_t bytes = folds ? x->result_bytes : x->recv[q].bytes;
        for (uint32_t p = 0; p < t->n; p++) {
            const char *from = x->in + x->send[p].at;
            if (p == me && (!folds || x->recv[me].bytes)) continue; /* the own part is nobody else's */
            if (!overlap(to, bytes, from, x->send[p].bytes)) continue;
            bool exact = to == from && bytes == x->send[p].bytes && (folds || p == q || x->relays == q + 1);
            if (!exact) complain(t, "it overwrites what it sends", me);
        }
    }
}

static inline void check_grid(const struct trial *t, uint32_t me)
{
    const struct gpu_step *s = &ranks[me].step, *first = &ranks[0].step;
    const struct gpu_layout *l = &ranks[me].site.layout;
    const struct gpu_exchange *x = &s->exchange;
    size_t longest = s->protocol == GPU_SENTINEL2 ? x->send[0].bytes : 0;
    if (s->blocks > l->n_blocks) complain(t, "more blocks than rings are for", me);
    for (uint32_t q = 0; q < t->n && s->protocol != GPU_SENTINEL2; q++) {
        if ((s->protocol == GPU_TILES || s->protocol == GPU_MAPPED) && q == me)
            continue; /* for as many blocks as there are */
        if (x->send[q].bytes > longest) longest = x->send[q].bytes;
        if (x->recv[q].bytes > longest) longest = x->recv[q].bytes;
    }
    if (s->protocol == GPU_TILES || s->protocol == GPU_MAPPED) {
        if (s->blocks < gpu_tile_blocks(longest, l->tile_bytes, l->n_blocks)) complain(t, "too few blocks", me);
        return;
    }
    size_t each = (size_t)s->threads * x->units * 16;
    const size_t slots[] = {[GPU_LINES] = l->line_bytes,
                            [GPU_SENTINEL] = l->sentinel_bytes,
                            [GPU_SENTINEL2] = gpu_phase_bytes(l),
                            [GPU_SENTINEL_RELAY] = l->sentinel_bytes};
    size_t most = slots[s->protocol];
    if (s->blocks != first->blocks || s->threads != first->threads || x->units != first->exchange.units)
        complain(t, "grids differ", me);
    if (s->blocks * each < longest) complain(t, "a part does not fit in the grid", me);
    if (s->blocks && each > most) complain(t, "a block has no room for its part", me);
}

/* What is relayed comes, and goes on as it came. */
static inline void check_relay(const struct trial *t, uint32_t me)
{
    const struct gpu_step *s = &ranks[me].step;
    const struct gpu_exchange *x = &s->exchange;
    if (x->relays == 0) return;
    const bool can = s->protocol == GPU_TILES || s->protocol == GPU_MAPPED || s->protocol == GPU_SENTINEL_RELAY;
    if (!can || s->folds || x->relays > t->n) complain(t, "it can not relay", me);
    const struct gpu_part *from = &x->recv[x->relays - 1];
    for (uint32_t q = 0; q < t->n; q++) {
        const struct gpu_part *to = &x->send[q];
        if (to->bytes == 0) continue;
        if (q == me || to->bytes != from->bytes || x->in + to->at != x->out + from->at)
            complain(t, "it relays something else", me);
    }
}

/* What rank q sends to `me`, where it lies before the exchange: there, or with who first sends what q relays. */
static inline const char *sent_from(const struct trial *t, uint32_t q, uint32_t me)
{
    for (uint32_t hops = 0; hops < t->n; hops++) {
        const struct gpu_exchange *x = &ranks[q].step.exchange;
        if (x->relays == 0) return x->in + x->send[me].at;
        me = q, q = x->relays - 1;
    }
    complain(t, "ranks relay in a circle", q);
    return NULL;
}

/* What arrives from each rank, taken before anything is stored; scaled as its sender scales. */
static unsigned char arrived[N][ROOM];

static inline void take(const struct trial *t, uint32_t me)
{
    size_t element = ref_bytes(t->dtype);
    for (uint32_t q = 0; q < t->n; q++) {
        const struct gpu_exchange *x = &ranks[q].step.exchange;
        const struct gpu_part *sent = &x->send[me];
        if (q != me && sent->bytes != ranks[me].step.exchange.recv[q].bytes) complain(t, "sizes differ", me);
        if (sent->bytes == 0) continue;
        if (sent->bytes > ROOM) complain(t, "too much", me);
        memcpy(arrived[q], sent_from(t, q, me), sent->bytes);
        if (ranks[q].step.scales) ref_scale(t->dtype, arrived[q], sent->bytes / element, t->factor);
    }
}

static inline void fold(const struct trial *t, const unsigned char *const *parts, uint32_t n, unsigned char *out,
                        size_t bytes, uint32_t divisor)
{
    static unsigned char total[ROOM];
    size_t count = bytes / ref_bytes(t->dtype);
    if (n == 0 || bytes == 0) return;
    memcpy(total, parts[0], bytes);
    for (uint32_t i = 1; i < n; i++) ref_hop(t->dtype, t->op, total, total, parts[i], count);
    if (divisor) ref_divide(t->dtype, total, count, divisor);
    memcpy(out, total, bytes);
}

static inline void receive(const struct trial *t, uint32_t me)
{
    struct gpu_step *s = &ranks[me].step;
    struct gpu_exchange *x = &s->exchange;
    const unsigned char *parts[N];
    uint32_t n = 0;
    for (uint32_t q = 0; q < t->n; q++) {
        if (x->recv[q].bytes == 0) continue;
        if (s->folds && x->recv[q].bytes != x->result_bytes) complain(t, "contributions differ in length", me);
        if (!s->folds) memcpy(x->out + x->recv[q].at, arrived[q], x->recv[q].bytes);
        parts[n++] = arrived[q];
    }
    if (s->folds && (n > 0) != (x->result_bytes > 0)) complain(t, "a result of nothing", me);
    if (s->folds) fold(t, parts, n, (unsigned char *)x->out + x->recv[me].at, x->result_bytes, s->divisor);
}

/* What is folded goes to the others when all have sent: where only the same part of their input may lie. */
static inline void spread(const struct trial *t, uint32_t me)
{
    const struct gpu_exchange *x = &ranks[me].step.exchange;
    const char *result = x->out + x->recv[me].at;
    if (!ranks[me].step.folds) complain(t, "it spreads what it does not fold", me);
    for (uint32_t q = 0; q < t->n; q++) {
        const struct gpu_exchange *there = &ranks[q].step.exchange;
        if (!there->spreads || there->recv[me].bytes != there->result_bytes) complain(t, "not all spread all", me);
        if (q == me) continue;
        for (uint32_t p = 0; p < t->n; p++) {
            const char *from = there->in + there->send[p].at;
            if (overlap(x->spread[q], x->result_bytes, from, there->send[p].bytes) && (p != me || from != x->spread[q]))
                complain(t, "it is spread to what is not yet sent", me);
        }
        memcpy(x->spread[q], result, x->result_bytes);
    }
}

/* Everything is taken from all inputs first: kernels of different ranks run at different speeds. */
static inline void exchange(const struct trial *t)
{
    static struct {
        char *out;
        unsigned char bytes[ROOM];
    } after[N];
    for (uint32_t me = 0; me < t->n; me++) {
        check_grid(t, me);
        check_overlap(t, me);
        check_relay(t, me);
    }
    /* Results are put aside until all ranks have sent. */
    for (uint32_t me = 0; me < t->n; me++) {
        struct gpu_exchange *x = &ranks[me].step.exchange;
        after[me].out = x->out;
        take(t, me);
        if (!x->out) continue;
        unsigned char *base = x->out == (char *)ranks[me].bounce ? ranks[me].bounce : ranks[me].out;
        size_t bytes = base == ranks[me].bounce ? BOUNCE : ROOM, at = (size_t)(x->out - (char *)base);
        unsigned char *now = memcpy(after[me].bytes, base, bytes);
        x->out = (char *)now + at;
        receive(t, me);
        after[me].out = (char *)base;
    }
    for (uint32_t me = 0; me < t->n; me++)
        if (after[me].out)
            memcpy(after[me].out, after[me].bytes, after[me].out == (char *)ranks[me].bounce ? BOUNCE : ROOM);
    for (uint32_t me = 0; me < t->n; me++)
        if (ranks[me].step.exchange.spreads) spread(t, me);
}

/* Parts that were relayed by who had them from a rank that relays nothing, and from others. */
static uint64_t n_relayed[2];

/* Where what rank p sends q lies before the call: there, or, if it relays, with who first sends it. */
static inline const char *sent_straight(const struct trial *t, uint32_t p, uint32_t q)
{
    for (uint32_t hops = 0; hops < t->n; hops++) {
        const struct gpu_direct *d = &ranks[p].step.direct;
        const struct gpu_part part = d->send[q];
        if (!d->relays) return d->in + part.at;
        const uint32_t source = d->relays - 1;
        const struct gpu_direct *before = &ranks[source].step.direct;
        if (source == p || source >= t->n || !before->relayed || !before->to[p] || before->send[p].bytes != part.bytes)
            complain(t, "it relays what nobody tells it of", p);
        if (before->to[p] != d->in + part.at) complain(t, "it relays something else", p);
        n_relayed[before->relays > 0]++;
        q = p, p = source;
    }
    complain(t, "ranks relay in a circle", p);
    return NULL;
}

static inline void check_direct_grid(const struct trial *t, uint32_t p)
{
    const struct gpu_step *s = &ranks[p].step, *first = &ranks[0].step;
    if (s->blocks != first->blocks || s->threads != GPU_DIRECT_THREADS || s->blocks > ranks[p].site.layout.n_blocks)
        complain(t, "grids differ", p);
    if (s->direct.piece_bytes != first->direct.piece_bytes) complain(t, "pieces differ", p);
    if (s->direct.piece_bytes % 512 || s->direct.piece_bytes > GPU_PIECE) complain(t, "no such pieces", p);
}

/* Parts that go straight to where they are to be: in any order, so nothing may lie on what another part is read from,
 * but from whom it is relayed. */
static inline void direct(const struct trial *t)
{
    static unsigned char sent[N][N][ROOM];
    for (uint32_t p = 0; p < t->n; p++) {
        const struct gpu_step *s = &ranks[p].step;
        check_direct_grid(t, p);
        for (uint32_t q = 0; q < t->n; q++) {
            const struct gpu_part part = s->direct.send[q];
            if (!s->direct.to[q] || part.bytes == 0) continue;
            if (s->blocks == 0) complain(t, "nobody sends it", p);
            memcpy(sent[p][q], sent_straight(t, p, q), part.bytes);
            for (uint32_t r = 0; r < t->n; r++) {
                const struct gpu_direct *other = &ranks[r].step.direct;
                if (r + 1 == s->direct.relays || !other->to[p]) continue;
                if (overlap(other->to[p], other->send[p].bytes, s->direct.in + part.at, part.bytes))
                    complain(t, "it is stored to what is not yet sent", p);
            }
        }
    }
    for (uint32_t p = 0; p < t->n; p++)
        for (uint32_t q = 0; q < t->n; q++)
            if (ranks[p].step.direct.to[q])
                memcpy(ranks[p].step.direct.to[q], sent[p][q], ranks[p].step.direct.send[q].bytes);
}

/* ---- mapped: by tiles, or straight ---- */

static inline char *output_of(uint32_t r)
{
    return ranks[r].call.bind.output;
}

/* Shards that were folded, to all others: the second exchange by tiles, and what goes straight to all outputs. */
static inline void spread_shards(const struct trial *t)
{
    for (uint32_t me = 0; me < t->n; me++) {
        const struct gpu_exchange *x = &ranks[me].step.exchange;
        const size_t at = x->send[me].at;
        for (uint32_t q = 0; q < t->n && ranks[me].step.spreads; q++) {
            const struct gpu_part there = ranks[q].step.exchange.send[me];
            if (x->recv[me].at || at != there.at || x->result_bytes != there.bytes)
                complain(t, "its shard is another one elsewhere", me);
            if (q != me) memcpy(output_of(q) + at, output_of(me) + at, x->result_bytes);
        }
    }
}

static inline void move_straight(const struct trial *t)
{
    for (uint32_t me = 0; me < t->n; me++) {
        struct gpu_step *s = &ranks[me].step;
        for (uint32_t q = 0; q < t->n; q++)
            if (q != me && s->direct.to[q])
                s->direct.to[q] = output_of(q) + ((uintptr_t)s->direct.to[q] - GPU_APART - (uintptr_t)output_of(me));
        if (s->straight > s->blocks) complain(t, "more blocks go straight than there are", me);
        s->blocks = s->straight, s->threads = GPU_DIRECT_THREADS;
    }
    direct(t);
}

/* What lies in place is read and written by the rank whose shard it is. */
static inline void reduce_straight(const struct trial *t)
{
    static unsigned char results[N][ROOM];
    for (uint32_t me = 0; me < t->n; me++) {
        const struct gpu_step *s = &ranks[me].step;
        const unsigned char *parts[N];
        for (uint32_t q = 0; q < t->n; q++)
            parts[q] = (const unsigned char *)ranks[q].step.exchange.in + s->exchange.send[me].at;
        for (uint32_t q = 0; q < t->n; q++)
            if (q != me && overlap(s->exchange.out + s->exchange.recv[me].at, s->exchange.result_bytes,
                                   s->exchange.in + s->exchange.send[q].at, s->exchange.send[q].bytes))
                complain(t, "its result lies where another rank loads", me);
        fold(t, parts, t->n, results[me], s->exchange.result_bytes, s->divisor);
    }
    for (uint32_t me = 0; me < t->n; me++) {
        const struct gpu_exchange *x = &ranks[me].step.exchange;
        memcpy(x->out + x->recv[me].at, results[me], x->result_bytes);
    }
    spread_shards(t);
}

static inline void mapped(const struct trial *t)
{
    const struct gpu_step *s = &ranks[0].step;
    bool by_tiles = below(2);
    for (uint32_t r = 0; r < t->n; r++) by_tiles |= ranks[r].step.in_the_way;
    for (uint32_t r = 0; r < t->n; r++)
        if (ranks[r].step.needs != s->needs || ranks[r].step.straight != s->straight) complain(t, "needs differ", r);
    if (by_tiles) {
        exchange(t);
        spread_shards(t);
    } else if (s->folds) {
        reduce_straight(t);
    } else {
        move_straight(t);
    }
}

/* sentinel2: the reduction of everybody's whole input. */
static inline void two_shot(const struct trial *t)
{
    static unsigned char inputs[N][ROOM];
    const unsigned char *parts[N];
    for (uint32_t q = 0; q < t->n; q++) {
        const struct gpu_exchange *x = &ranks[q].step.exchange;
        check_grid(t, q);
        if (x->send[0].bytes % 16 || x->send[0].bytes * t->n < x->result_bytes) complain(t, "shards", q);
        memcpy(inputs[q], x->in, x->result_bytes);
        if (ranks[q].step.scales) ref_scale(t->dtype, inputs[q], x->result_bytes / ref_bytes(t->dtype), t->factor);
        parts[q] = inputs[q];
    }
    for (uint32_t q = 0; q < t->n; q++) {
        const struct gpu_step *s = &ranks[q].step;
        fold(t, parts, t->n, (unsigned char *)s->exchange.out, s->exchange.result_bytes, s->divisor);
    }
}

static inline void fold_now(const struct trial *t, const struct gpu_step *s)
{
    const unsigned char *parts[N];
    for (uint32_t q = 0; q < t->n; q++) parts[q] = (const unsigned char *)s->from[q];
    fold(t, parts, t->n, (unsigned char *)s->exchange.out, s->exchange.result_bytes, s->divisor);
}

static inline void fold_later(const struct trial *t, struct rank *r)
{
    for (uint32_t i = 0; i < r->n_later; i++) fold_now(t, &r->later[i]);
    r->n_later = 0;
}

/* What a rank does by itself, up to where it meets the others. */
static inline bool by_itself(const struct trial *t, struct rank *r)
{
    struct gpu_step *s = &r->step;
    switch (s->act) {
    case GPU_COPY:
        if (s->bytes) memmove(s->dst, s->src, s->bytes);
        return true;
    case GPU_FORK:
    case GPU_ARRIVE:
        return true;
    case GPU_JOIN:
        fold_later(t, r);
        return true;
    case GPU_MEET:
        if (s->stream == GPU_OWN) fold_later(t, r); /* it comes after them */
        return false;
    case GPU_LAUNCH:
        if (s->protocol != GPU_FOLD) return false;
        if (s->stream == GPU_OWN && t->late && r->n_later < TUTTI_ARRAY_LEN(r->later))
            r->later[r->n_later++] = *s;
        else
            fold_now(t, s);
        return true;
    }
    return false;
}

static inline void run(const struct trial *t, const struct gpu_method *method)
{
    for (uint32_t r = 0; r < t->n; r++) ranks[r].next = ranks[r].n_later = 0;
    for (;;) {
        uint32_t first = (uint32_t)below(t->n), n_more = 0;
        for (uint32_t k = 0; k < t->n; k++) {
            struct rank *r = &ranks[(first + k) % t->n];
            do {
                r->more = method->step(&r->site, &r->call, r->next++, &r->step);
            } while (r->more && by_itself(t, r));
            n_more += r->more;
        }
        if (n_more == 0) break;
        if (n_more < t->n) complain(t, "numbers of steps differ", 0);
        for (uint32_t r = 1; r < t->n; r++)
            if (ranks[r].step.act != ranks[0].step.act || ranks[r].step.protocol != ranks[0].step.protocol)
                complain(t, "steps differ", r);
        if (ranks[0].step.act == GPU_LAUNCH && ranks[0].step.protocol == GPU_SENTINEL2)
            two_shot(t);
        else if (ranks[0].step.act == GPU_LAUNCH && ranks[0].step.protocol == GPU_DIRECT)
            direct(t);
        else if (ranks[0].step.act == GPU_LAUNCH && ranks[0].step.protocol == GPU_MAPPED)
            mapped(t);
        else if (ranks[0].step.act == GPU_LAUNCH)
            exchange(t);
    }
    for (uint32_t r = 0; r < t->n; r++)
        if (ranks[r].n_later) complain(t, "nobody waits for its folds", r);
}

#endif
