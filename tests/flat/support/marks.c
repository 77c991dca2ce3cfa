/* SPDX-License-Identifier: BSD-3-Clause */
/* Fingerprints: which words a call has to bring where, written down once by kind, and the comparison. It shares no code
 * with the library but the names of the kinds. */
#include "marks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD sizeof(uint64_t)
#define FACTOR 3
enum { EMPTY = 0x5a, SCRIBBLE = 0xa5, ALIGN = 16 };

/* ---- what the kinds mean ---- */

enum extent { NONE, ONE, ALL, ROOT_ONE, ROOT_ALL };
enum whose { FROM_ALL, FROM_BELOW, FROM_BELOW_AND_OWN, FROM_ROOT, FROM_BLOCK };
static const struct meaning {
    enum extent in, out;
    enum whose whose;
    bool to_me; /* what arrives is the block that was meant for this rank, else the only one */
    bool v;
} meanings[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {ONE, ONE, FROM_ALL, false, false},
    [TUTTI_REDUCE] = {ONE, ROOT_ONE, FROM_ALL, false, false},
    [TUTTI_BROADCAST] = {ROOT_ONE, ONE, FROM_ROOT, false, false},
    [TUTTI_ALL_GATHER] = {ONE, ALL, FROM_BLOCK, false, true},
    [TUTTI_GATHER] = {ONE, ROOT_ALL, FROM_BLOCK, false, true},
    [TUTTI_SCATTER] = {ROOT_ALL, ONE, FROM_ROOT, true, true},
    [TUTTI_REDUCE_SCATTER] = {ALL, ONE, FROM_ALL, true, true},
    [TUTTI_ALL_TO_ALL] = {ALL, ALL, FROM_BLOCK, true, true},
    [TUTTI_BARRIER] = {NONE, NONE, FROM_ALL, false, false},
    [TUTTI_SCAN] = {ONE, ONE, FROM_BELOW_AND_OWN, false, false},
    [TUTTI_EXSCAN] = {ONE, ONE, FROM_BELOW, false, false},
};

struct origin {
    uint32_t first, end, block; /* ranks that contribute, and which of their blocks */
};

static struct origin origin_of(const struct mark_plan *p, uint32_t me, uint32_t b)
{
    const struct meaning *m = &meanings[p->kind];
    uint32_t block = m->to_me ? me : 0;
    const struct origin origins[] = {
        [FROM_ALL] = {0, p->n, block},
        [FROM_BELOW] = {0, me, block},
        [FROM_BELOW_AND_OWN] = {0, me + 1, block},
        [FROM_ROOT] = {p->root, p->root + 1, block},
        [FROM_BLOCK] = {b, b + 1, block},
    };
    return origins[m->whose];
}

/* ---- numbers ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t mark_random(uint64_t *state)
{
    return mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

static uint64_t base_of(const struct mark_plan *p, uint32_t rank, uint32_t block)
{
    return mix(p->seed ^ mix(((uint64_t)rank << 32) + block + 1));
}

static uint64_t mark_at(uint64_t base, size_t i)
{
    return mix(base + i * UINT64_C(0x9e3779b97f4a7c15));
}

static uint64_t load(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, WORD);
    return word;
}

static void store(unsigned char *at, uint64_t word)
{
    memcpy(at, &word, WORD);
}

/* ---- sides ---- */

bool mark_has_v(enum tutti_kind kind)
{
    return meanings[kind].v;
}

size_t mark_words(enum tutti_kind kind, uint32_t n, size_t count)
{
    const struct meaning *m = &meanings[kind];
    bool all = m->in == ALL || m->in == ROOT_ALL || m->out == ALL || m->out == ROOT_ALL;
    return all ? n * (count + 2) : count;
}

/* Words that one rank has for another: of v forms nothing, all, or something between. */
static size_t count_of(const struct mark_plan *p, uint32_t from, uint32_t to)
{
    uint64_t draw = mix(p->seed + 17 * from + ((uint64_t)to << 20));
    bool varies = p->v && p->kind != TUTTI_BARRIER;
    return !varies || draw % 4 == 0 ? p->count : draw % 4 == 1 ? 0 : (draw >> 8) % (p->count + 1);
}

/* The count of a block on one side, by who sends and who gets it; tables of one row depend on one of them. */
static size_t block_count(const struct mark_plan *p, uint32_t from, uint32_t to)
{
    enum tutti_kind kind = p->kind;
    if (kind == TUTTI_ALL_GATHER || kind == TUTTI_GATHER) to = 0;
    if (kind == TUTTI_REDUCE_SCATTER || kind == TUTTI_SCATTER) from = 0;
    return count_of(p, from, to);
}

static void side_lay(const struct mark_plan *p, enum extent extent, bool sends, uint32_t me, struct mark_side *side)
{
    bool here = extent < ROOT_ONE || me == p->root, all = extent == ALL || extent == ROOT_ALL;
    bool gaps = p->v && all && p->kind != TUTTI_REDUCE_SCATTER; /* which has no displacements */
    side->n = extent == NONE || !here ? 0 : all ? p->n : 1;
    side->words = 0;
    for (uint32_t b = 0; b < side->n; b++) {
        uint32_t other = all ? b : 0;
        side->count[b] = sends ? block_count(p, me, other) : block_count(p, other, me);
        side->at[b] = side->words;
        side->words += side->count[b] + (gaps ? (p->seed + b) % 3 : 0);
    }
}

/* ---- sheets ---- */

size_t mark_arena_bytes(size_t words)
{
    return words * WORD + 2 * MARK_GUARD + ALIGN;
}

bool mark_sheet_open(struct mark_sheet *sheet, size_t capacity, unsigned char *const arenas[4])
{
    sheet->capacity = capacity;
    for (int i = 0; i < 4; i++) sheet->arena[i] = arenas[i] ? arenas[i] : arenas[i % 2];
    sheet->image = malloc(capacity);
    sheet->scribbled = false;
    return sheet->image != NULL;
}

void mark_sheet_close(struct mark_sheet *sheet)
{
    free(sheet->image);
    sheet->image = NULL;
}

static bool bit_of(uint64_t mask, uint32_t rank)
{
    return mask >> rank % 64 & 1;
}

static size_t shift_of(const struct mark_plan *p, uint32_t me, int side)
{
    uint64_t draw = mix(p->seed * 3 + 2 * me + (uint64_t)side);
    return draw % 4 ? 0 : draw >> 8 & (ALIGN - 1); /* most are aligned */
}

/* Where the sides are: apart, or the smaller one inside the larger. */
static void place(const struct mark_plan *p, uint32_t me, struct mark_sheet *s)
{
    bool one = p->kind == TUTTI_BROADCAST || (bit_of(p->in_place, me) && !(p->v && p->kind == TUTTI_ALL_TO_ALL));
    const struct mark_side *in = &s->in, *out = &s->out;
    bool is_send = in->n > out->n || (p->kind == TUTTI_BROADCAST && in->n > 0);
    int larger = is_send ? 0 : 1;
    s->used[0] = s->arena[bit_of(p->send_mapped, me) ? 2 : 0];
    s->used[1] = s->arena[bit_of(p->recv_mapped, me) ? 3 : 1];
    s->used_bytes[0] = mark_arena_bytes(in->words), s->used_bytes[1] = mark_arena_bytes(out->words);
    if (one) s->used[!larger] = s->used[larger], s->used_bytes[!larger] = s->used_bytes[larger];
    s->send = s->used[0] + MARK_GUARD + shift_of(p, me, one ? larger : 0);
    s->recv = s->used[1] + MARK_GUARD + shift_of(p, me, one ? larger : 1);
    if (one && out->n > in->n && in->n == 1) s->send += out->at[me] * WORD;
    if (one && in->n > out->n && out->n == 1) s->recv += in->at[me] * WORD;
    if (in->n == 0) s->send = NULL;
    if (out->n == 0) s->recv = NULL;
}

static void fill(const struct mark_plan *p, uint32_t me, const struct mark_sheet *s, unsigned char *send)
{
    for (uint32_t b = 0; b < s->in.n; b++) {
        uint64_t base = base_of(p, me, b);
        for (size_t i = 0; i < s->in.count[b]; i++) store(send + (s->in.at[b] + i) * WORD, mark_at(base, i));
    }
}

void mark_prepare(const struct mark_plan *p, uint32_t me, struct mark_sheet *s)
{
    const struct meaning *m = &meanings[p->kind];
    side_lay(p, m->in, true, me, &s->in);
    side_lay(p, m->out, false, me, &s->out);
    place(p, me, s);
    for (int i = 0; i < 2; i++) memset(s->used[i], EMPTY, s->used_bytes[i]);
    fill(p, me, s, s->send);
    s->scribbled = false;
}

/* ---- calling ---- */

enum tutti_status mark_start(const struct mark_plan *p, struct mark_sheet *s, struct tutti_comm *comm,
                             struct tutti_work **work)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    const struct tutti_call_options *o = p->algorithm[0] || p->scaled ? &options : NULL;
    enum tutti_dtype dtype = TUTTI_UINT64;
    enum tutti_op op = p->scaled ? TUTTI_PREMUL_SUM : TUTTI_SUM;
    int32_t root = (int32_t)p->root;
    options.premul_value = FACTOR;
    options.algorithm = p->algorithm[0] ? p->algorithm : NULL;
    switch (p->kind) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(s->send, s->recv, p->count, dtype, op, comm, o, work);
    case TUTTI_REDUCE:
        return tutti_reduce(s->send, s->recv, p->count, dtype, op, root, comm, o, work);
    case TUTTI_BROADCAST:
        return tutti_broadcast(s->recv, p->count, dtype, root, comm, o, work);
    case TUTTI_ALL_GATHER:
        if (p->v) return tutti_all_gather_v(s->send, s->recv, s->out.count, s->out.at, dtype, comm, o, work);
        return tutti_all_gather(s->send, s->recv, p->count, dtype, comm, o, work);
    case TUTTI_GATHER:
        if (p->v)
            return tutti_gather_v(s->send, s->in.count[0], s->recv, s->out.count, s->out.at, dtype, root, comm, o,
                                  work);
        return tutti_gather(s->send, s->recv, p->count, dtype, root, comm, o, work);
    case TUTTI_SCATTER:
        if (p->v)
            return tutti_scatter_v(s->send, s->in.count, s->in.at, s->recv, s->out.count[0], dtype, root, comm, o,
                                   work);
        return tutti_scatter(s->send, s->recv, p->count, dtype, root, comm, o, work);
    case TUTTI_REDUCE_SCATTER:
        if (p->v) return tutti_reduce_scatter_v(s->send, s->recv, s->in.count, dtype, op, comm, o, work);
        return tutti_reduce_scatter(s->send, s->recv, p->count, dtype, op, comm, o, work);
    case TUTTI_ALL_TO_ALL:
        if (p->v)
            return tutti_all_to_all_v(s->send, s->in.count, s->in.at, s->recv, s->out.count, s->out.at, dtype, comm, o,
                                      work);
        return tutti_all_to_all(s->send, s->recv, p->count, dtype, comm, o, work);
    case TUTTI_SCAN:
        return tutti_scan(s->send, s->recv, p->count, dtype, op, comm, o, work);
    case TUTTI_EXSCAN:
        return tutti_exscan(s->send, s->recv, p->count, dtype, op, comm, o, work);
    default:
        return tutti_barrier(comm, o, work);
    }
}

/* ---- comparing ---- */

static bool is_scaled(const struct mark_plan *p)
{
    return p->scaled && meanings[p->kind].whose <= FROM_BELOW_AND_OWN;
}

/* Words of one output block. */
static void expect(const struct mark_plan *p, const struct origin *o, size_t count, unsigned char *out)
{
    uint64_t bases[MARK_MAX_RANKS], factor = is_scaled(p) ? FACTOR : 1;
    if (o->first == o->end) return; /* it stays as it was */
    for (uint32_t r = o->first; r < o->end; r++) bases[r] = base_of(p, r, o->block);
    for (size_t i = 0; i < count; i++) {
        uint64_t sum = 0;
        for (uint32_t r = o->first; r < o->end; r++) sum += mark_at(bases[r], i);
        store(out + i * WORD, sum * factor);
    }
}

/* What arena i holds after the call. */
static void image_make(const struct mark_plan *p, uint32_t me, const struct mark_sheet *s, int i)
{
    memset(s->image, EMPTY, s->used_bytes[i]);
    if (s->send && s->used[i] == s->used[0]) fill(p, me, s, s->image + (s->send - s->used[i]));
    for (uint32_t b = 0; s->recv && s->used[i] == s->used[1] && b < s->out.n; b++) {
        struct origin o = origin_of(p, me, b);
        expect(p, &o, s->out.count[b], s->image + (s->recv - s->used[i]) + s->out.at[b] * WORD);
    }
}

/* What is wrong with a word: which contribution it lacks or has beside the right ones, as far as one explains it. */
static void explain(const struct mark_plan *p, const struct origin *o, uint64_t got, uint64_t want, size_t k, char *why,
                    size_t capacity)
{
    for (uint32_t r = 0; r < p->n; r++) {
        uint64_t one = mark_at(base_of(p, r, o->block), k) * (is_scaled(p) ? FACTOR : 1);
        const char *has = got == want - one   ? "lacks the mark of"
                          : got == want + one ? "has, too, the mark of"
                          : got == one        ? "has only the mark of"
                                              : NULL;
        if (!has) continue;
        snprintf(why, capacity, "%s rank %u", has, r);
        return;
    }
    snprintf(why, capacity, "is %#llx instead of %#llx", (unsigned long long)got, (unsigned long long)want);
}

static void tell(const struct mark_plan *p, uint32_t me, const struct mark_sheet *s, int i, char *why, size_t capacity)
{
    char plan[256], what[96];
    mark_print(p, plan, sizeof plan);
    for (uint32_t b = 0; s->recv && s->used[i] == s->used[1] && b < s->out.n; b++)
        for (size_t k = 0; k < s->out.count[b]; k++) {
            size_t at = (size_t)(s->recv - s->used[i]) + (s->out.at[b] + k) * WORD;
            struct origin o = origin_of(p, me, b);
            uint64_t got = load(s->used[i] + at), want = load(s->image + at);
            if (got == want) continue;
            explain(p, &o, got, want, k, what, sizeof what);
            snprintf(why, capacity, "rank %u, block %u, word %zu of %zu %s: %s", me, b, k, s->out.count[b], what, plan);
            return;
        }
    size_t at = 0;
    while (s->used[i][at] == s->image[at]) at++;
    snprintf(why, capacity, "rank %u: byte %zu of %zu was written beside the output: %s", me, at, s->used_bytes[i],
             plan);
}

bool mark_check(const struct mark_plan *p, uint32_t me, struct mark_sheet *s, char *why, size_t capacity)
{
    for (int i = 0; i < 2; i++) {
        if (i == 1 && s->used[0] == s->used[1]) break;
        image_make(p, me, s, i);
        if (memcmp(s->used[i], s->image, s->used_bytes[i]) == 0) continue;
        tell(p, me, s, i, why, capacity);
        return false;
    }
    mark_scribble(s);
    return true;
}

void mark_scribble(struct mark_sheet *s)
{
    for (int i = 0; i < 2; i++) memset(s->used[i], SCRIBBLE, s->used_bytes[i]);
    s->scribbled = true;
}

bool mark_touched(const struct mark_sheet *s)
{
    for (int i = 0; s->scribbled && i < 2; i++)
        if (s->used[i][0] != SCRIBBLE || memcmp(s->used[i], s->used[i] + 1, s->used_bytes[i] - 1) != 0) return true;
    return false;
}

/* "all", "none", or which of the first ranks. */
static const char *ranks_text(uint64_t mask, uint32_t n, char *out, size_t capacity)
{
    uint64_t all = n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX;
    if ((mask & all) == 0 || (mask & all) == all) return (mask & all) ? "all" : "none";
    snprintf(out, capacity, "%#llx", (unsigned long long)(mask & all));
    return out;
}

void mark_print(const struct mark_plan *p, char *out, size_t capacity)
{
    char a[24], b[24], c[24];
    snprintf(out, capacity,
             "%s%s%s by %s, %u ranks, root %u, %zu words, in place %s, mapped send %s recv %s, seed %#llx",
             tutti_kind_name(p->kind), p->v ? "_v" : "", p->scaled ? " scaled" : "",
             p->algorithm[0] ? p->algorithm : "choice", p->n, p->root, p->count,
             ranks_text(p->in_place, p->n, a, sizeof a), ranks_text(p->send_mapped, p->n, b, sizeof b),
             ranks_text(p->recv_mapped, p->n, c, sizeof c), (unsigned long long)p->seed);
}
