/* SPDX-License-Identifier: BSD-3-Clause */
/* The shortest path: calls of a few lines, on lanes of one group of readers. What flat_line.c does for an operation is
 * here straight-line code without one: post, write the own slot, wait for the others' a little, combine. If the wait
 * takes long, an operation takes over where this stopped (flat_resume). */
#include "backend/flat.h"

#define SPINS_MOST 1024

/* Short ones without a call. */
static inline void bytes_copy(unsigned char *restrict dst, const unsigned char *restrict src, size_t bytes)
{
    if (bytes == 8)
        memcpy(dst, src, 8);
    else if (bytes == 4)
        memcpy(dst, src, 4);
    else
        memcpy(dst, src, bytes);
}

static void post_write(struct flat_lane *lane, const struct tutti_tiny *t, uint64_t word)
{
    struct flat_area *own = lane->areas[lane->me];
    uint32_t k = lane->number % FLAT_DEPTH;
    struct flat_post *post = &own->posts[k];
    atomic_store_explicit(&own->signatures[k], t->signature, memory_order_relaxed);
    atomic_store_explicit(&post->seq, t->seq, memory_order_relaxed);
    atomic_store_explicit(&post->call, t->call, memory_order_relaxed);
    atomic_store_explicit(&post->count, t->count, memory_order_relaxed);
    atomic_store_explicit(&post->word, word, memory_order_release);
}

/* Whether it came before patience ends. */
static bool slot_wait(const struct flat_slot *slot, uint64_t word, uint32_t spins)
{
    for (uint32_t tries = 0; atomic_load_explicit(&slot->word, memory_order_acquire) != word; tries++) {
        if (tries == spins) return false;
        tutti_cpu_relax();
    }
    return true;
}

/* ---- what a kind does with all ranks' data ---- */

static const unsigned char *data_of(const struct flat_lane *lane, uint32_t r)
{
    return lane->areas[r]->slots[0][lane->number % FLAT_DEPTH].data;
}

/* Block `block` of all ranks' data. Few bytes are padded to a whole vector: kernels are slower on parts of one. */
static void combine(const struct flat_lane *lane, const struct tutti_tiny *t, size_t at)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_ROOM], next[TUTTI_CACHE_LINE];
    bool padded = t->bytes < TUTTI_CACHE_LINE;
    size_t n = (padded ? TUTTI_CACHE_LINE : t->bytes) >> t->log_element;
    if (padded) memset(sum, 0, TUTTI_CACHE_LINE), memset(next, 0, sizeof(next));
    bytes_copy(sum, data_of(lane, 0) + at, t->bytes);
    for (uint32_t r = 1; r < lane->n; r++) {
        const unsigned char *theirs = data_of(lane, r) + at;
        if (padded) bytes_copy(next, theirs, t->bytes), theirs = next;
        t->reduce(sum, sum, theirs, n);
    }
    if (t->divide) t->divide(sum, sum, n, t->divisor);
    bytes_copy(t->recv, sum, t->bytes);
}

static void all_reduce(const struct flat_lane *lane, const struct tutti_tiny *t)
{
    combine(lane, t, 0);
}

static void reduce_scatter(const struct flat_lane *lane, const struct tutti_tiny *t)
{
    combine(lane, t, lane->me * t->bytes);
}

static void all_gather(const struct flat_lane *lane, const struct tutti_tiny *t)
{
    for (uint32_t r = 0; r < lane->n; r++) bytes_copy(t->recv + r * t->bytes, data_of(lane, r), t->bytes);
}

static void all_to_all(const struct flat_lane *lane, const struct tutti_tiny *t)
{
    size_t at = lane->me * t->bytes;
    for (uint32_t r = 0; r < lane->n; r++) bytes_copy(t->recv + r * t->bytes, data_of(lane, r) + at, t->bytes);
}

static void barrier(const struct flat_lane *lane, const struct tutti_tiny *t)
{
    (void)lane, (void)t;
}

typedef void (*ending)(const struct flat_lane *lane, const struct tutti_tiny *t);
static const ending endings[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = all_reduce, [TUTTI_REDUCE_SCATTER] = reduce_scatter,
    [TUTTI_ALL_GATHER] = all_gather, [TUTTI_ALL_TO_ALL] = all_to_all,
    [TUTTI_BARRIER] = barrier,
};

static bool is_line(const struct flat_lane *lane, enum tutti_kind kind, size_t bytes)
{
    struct tutti_backend_call call = {.bind = {.count = bytes, .dtype = TUTTI_UINT8},
                                      .info = {.kind = kind, .dtype = TUTTI_UINT8},
                                      .commutative = true};
    const struct flat_method *m = flat_method_of(lane, &call, bytes);
    return m && strcmp(m->name, "line") == 0;
}

/* Where operations take lines, too, for the two meet on one lane: up to the first size at which they do not, since
 * predictions may cross more than once. */
size_t flat_tiny_below(const struct flat_lane *lane, enum tutti_kind kind)
{
    size_t bytes = kind != TUTTI_BARRIER;
    if (lane->n_factors != 1 || lane->crowded || !endings[kind] || !is_line(lane, kind, bytes)) return 0;
    while (bytes <= FLAT_LINE_MAX && is_line(lane, kind, bytes)) bytes++;
    return bytes;
}

enum tutti_advance flat_tiny(struct tutti_backend *backend, const struct tutti_tiny *t)
{
    struct flat_lane *lane = (struct flat_lane *)backend;
    if (lane->synced + FLAT_DEPTH <= lane->number) return TUTTI_RUN_MOVED;
    uint64_t number = ++lane->number, word = t->signature << 32 | (uint32_t)number;
    struct flat_area *own = lane->areas[lane->me];
    struct flat_slot *slot = &own->slots[0][number % FLAT_DEPTH];

    post_write(lane, t, word);
    bytes_copy(slot->data, t->send, t->send_bytes);
    atomic_store_explicit(&slot->word, word, memory_order_release);
    flat_told(lane);
    for (uint32_t r = 0; lane->n > 2 && r < lane->n; r++)
        __builtin_prefetch(&lane->areas[r]->slots[0][number % FLAT_DEPTH]);
    for (uint32_t r = 0; r < lane->n; r++) {
        if (r == lane->me) continue;
        if (!slot_wait(&lane->areas[r]->slots[0][number % FLAT_DEPTH], word, lane->spins)) return TUTTI_RUN_BLOCKED;
    }
    endings[t->kind](lane, t);
    if (lane->synced < number - 1) lane->synced = number - 1;
    atomic_store_explicit(&own->done_seq, t->seq, memory_order_relaxed);
    atomic_store_explicit(&own->done, number, memory_order_release);
    flat_told(lane);
    if (lane->spins < SPINS_MOST) lane->spins++;
    return TUTTI_RUN_DONE;
}
