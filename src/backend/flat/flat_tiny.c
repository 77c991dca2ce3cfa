/* SPDX-License-Identifier: BSD-3-Clause */
/* The shortest path: calls of a few lines, on instances of one group of readers. What flat_line.c does for an operation
 * is here straight-line code without one: post, write the own slot, wait for the others' a little, combine. If the wait
 * takes long, an operation takes over where this stopped (flat_resume). */
#include "backend/flat/flat.h"

#define SPINS_MOST 1024

/* Short ones without a call. */
static inline void bytes_copy(unsigned char *restrict dst, const unsigned char *restrict src, size_t bytes)
{
    if (bytes == 8)
        memcpy(dst, src, 8);
    else if (bytes == 4)
        memcpy(dst, src, 4);
    else if (bytes > 0) /* a barrier has no buffers */
        memcpy(dst, src, bytes);
}

static void post_write(struct flat_instance *inst, const struct tutti_tiny *t, uint64_t word)
{
    struct flat_area *own = inst->areas[inst->me];
    uint32_t k = flat_turn(inst, inst->number);
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

static const unsigned char *data_of(const struct flat_instance *inst, uint32_t r)
{
    return flat_line_slot(inst, r, 0, inst->number)->data;
}

/* A block of the first n ranks' data. Few bytes are padded to a whole vector: kernels are slower on parts of one. */
static void combine(const struct flat_instance *inst, const struct tutti_tiny *t, uint32_t n_ranks, size_t at)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_STORAGE], next[TUTTI_CACHE_LINE];
    bool padded = t->bytes < TUTTI_CACHE_LINE;
    size_t n = (padded ? TUTTI_CACHE_LINE : t->bytes) >> t->log_element;
    if (padded) memset(sum, 0, TUTTI_CACHE_LINE), memset(next, 0, sizeof(next));
    bytes_copy(sum, data_of(inst, 0) + at, t->bytes);
    for (uint32_t r = 1; r < n_ranks; r++) {
        const unsigned char *theirs = data_of(inst, r) + at;
        if (padded) bytes_copy(next, theirs, t->bytes), theirs = next;
        t->reduce(sum, sum, theirs, n);
    }
    if (t->divide) t->divide(sum, sum, n, t->divisor);
    bytes_copy(t->recv, sum, t->bytes);
}

static void all_reduce(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    combine(inst, t, inst->n, 0);
}

static void reduce_scatter(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    combine(inst, t, inst->n, inst->me * t->bytes);
}

static void all_gather(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    for (uint32_t r = 0; r < inst->n; r++) bytes_copy(t->recv + r * t->bytes, data_of(inst, r), t->bytes);
}

static void all_to_all(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    size_t at = inst->me * t->bytes;
    for (uint32_t r = 0; r < inst->n; r++) bytes_copy(t->recv + r * t->bytes, data_of(inst, r) + at, t->bytes);
}

static void barrier(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    (void)inst, (void)t;
}

static void reduce(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    if (inst->me == t->root) combine(inst, t, inst->n, 0);
}

static void scan(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    combine(inst, t, inst->me + 1, 0);
}

static void exscan(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    if (inst->me > 0) combine(inst, t, inst->me, 0);
}

static void broadcast(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    if (inst->me != t->root) bytes_copy(t->recv, data_of(inst, t->root), t->bytes);
}

static void gather(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    if (inst->me == t->root) all_gather(inst, t);
}

/* The root's data leave its own block out. */
static void scatter(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    uint32_t i = inst->me - (inst->me > t->root);
    if (inst->me != t->root)
        bytes_copy(t->recv, data_of(inst, t->root) + i * t->bytes, t->bytes);
    else if (t->recv != t->send + t->root * t->bytes)
        bytes_copy(t->recv, t->send + t->root * t->bytes, t->bytes);
}

/* The ranks whose data one waits for, and whether others wait for its own. */
enum pattern { AMONG_ALL, FROM_ROOT, TO_ROOT, FROM_BELOW };
static const struct {
    void (*end)(const struct flat_instance *inst, const struct tutti_tiny *t);
    enum pattern pattern;
} rows[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {all_reduce, AMONG_ALL}, [TUTTI_REDUCE_SCATTER] = {reduce_scatter, AMONG_ALL},
    [TUTTI_ALL_GATHER] = {all_gather, AMONG_ALL}, [TUTTI_ALL_TO_ALL] = {all_to_all, AMONG_ALL},
    [TUTTI_BARRIER] = {barrier, AMONG_ALL},       [TUTTI_BROADCAST] = {broadcast, FROM_ROOT},
    [TUTTI_SCATTER] = {scatter, FROM_ROOT},       [TUTTI_REDUCE] = {reduce, TO_ROOT},
    [TUTTI_GATHER] = {gather, TO_ROOT},           [TUTTI_SCAN] = {scan, FROM_BELOW},
    [TUTTI_EXSCAN] = {exscan, FROM_BELOW},
};

struct wait {
    uint32_t from, end; /* these ranks, but for the own one */
};
static inline struct wait wait_of(const struct flat_instance *inst, const struct tutti_tiny *t)
{
    bool here = inst->me == t->root;
    switch (rows[t->kind].pattern) {
    case FROM_ROOT:
        return (struct wait){t->root, t->root + !here};
    case TO_ROOT:
        return (struct wait){0, here ? inst->n : 0};
    case FROM_BELOW:
        return (struct wait){0, inst->me};
    default:
        return (struct wait){0, inst->n};
    }
}

/* What others read of this rank. */
static inline void put(const struct flat_instance *inst, const struct tutti_tiny *t, struct flat_slot *slot)
{
    size_t before = t->root * t->bytes;
    if (rows[t->kind].pattern != FROM_ROOT) {
        bytes_copy(slot->data, t->send, t->send_bytes);
    } else if (inst->me != t->root) {
        return;
    } else if (t->kind == TUTTI_BROADCAST) {
        bytes_copy(slot->data, t->send, t->bytes);
    } else {
        memcpy(slot->data, t->send, before);
        memcpy(slot->data + before, t->send + before + t->bytes, t->send_bytes - before - t->bytes);
    }
}

/* Only where operations take lines, too, for tiny calls and operations meet on one instance. */
size_t flat_tiny_below(const struct flat_instance *inst, enum tutti_kind kind)
{
    size_t most = flat_line_max(inst);
    if (rows[kind].pattern != AMONG_ALL && flat_group(inst) < inst->n) return 0; /* operations have two levels, */
    if (kind == TUTTI_SCATTER) most /= inst->n > 1 ? inst->n - 1 : 1;            /* or blocks in several */
    if (inst->n_factors != 1 || !rows[kind].end) return 0;
    return inst->line_below[kind] <= most ? inst->line_below[kind] : most + 1;
}

/* As flat_room, for a little while. */
static bool has_room(struct flat_instance *inst, uint32_t spins)
{
    uint64_t number = inst->number + 1, least = UINT64_MAX;
    if (inst->synced + inst->depth >= number) return true;
    for (uint32_t r = 0; r < inst->n; r++) {
        if (r == inst->me) continue;
        uint64_t done = atomic_load_explicit(&inst->areas[r]->done, memory_order_acquire);
        for (uint32_t tries = 0; done + inst->depth / 2 < number && tries < spins; tries++) {
            tutti_cpu_relax();
            done = atomic_load_explicit(&inst->areas[r]->done, memory_order_acquire);
        }
        if (done < least) least = done;
    }
    if (least > inst->synced) inst->synced = least;
    return inst->synced + inst->depth >= number;
}

/* Whether all have written what this rank reads. */
static bool is_there(const struct flat_instance *inst, struct wait wait, uint64_t number, uint64_t word, uint32_t spins)
{
    for (uint32_t r = wait.from; r < wait.end; r++)
        if (r != inst->me && !slot_wait(flat_line_slot(inst, r, 0, number), word, spins)) return false;
    return true;
}

/* Where ranks share CPUs, a rank takes this path only if it need not wait: on the long way it would give up its turn.
 */
enum tutti_advance flat_tiny(struct tutti_backend *backend, const struct tutti_tiny *t)
{
    struct flat_instance *inst = (struct flat_instance *)backend;
    uint64_t number = inst->number + 1, word = flat_word(inst, t->signature, number);
    struct flat_area *own = inst->areas[inst->me];
    struct flat_slot *slot = flat_line_slot(inst, inst->me, 0, number);
    struct wait wait = wait_of(inst, t);
    bool waits = wait.from < wait.end && !inst->crowded;

    if (!has_room(inst, inst->spins)) return TUTTI_RUN_MOVED;
    if (inst->crowded && !is_there(inst, wait, number, word, 0)) return TUTTI_RUN_MOVED;
    inst->number = number;
    post_write(inst, t, word);
    put(inst, t, slot);
    atomic_store_explicit(&slot->word, word, memory_order_release);
    if (waits) {
        flat_notify(inst);
        for (uint32_t r = wait.from; inst->n > 2 && r < wait.end; r++)
            __builtin_prefetch(flat_line_slot(inst, r, 0, number));
        if (!is_there(inst, wait, number, word, inst->spins)) return TUTTI_RUN_BLOCKED;
    }
    rows[t->kind].end(inst, t);
    if (rows[t->kind].pattern != AMONG_ALL)
        flat_remember(inst, t->signature);
    else if (inst->synced < number - 1)
        inst->synced = number - 1;
    atomic_store_explicit(&own->done_seq, t->seq, memory_order_relaxed);
    atomic_store_explicit(&own->done, number, memory_order_release);
    flat_notify(inst);
    if (inst->spins < SPINS_MOST && !inst->crowded) inst->spins++;
    return TUTTI_RUN_DONE;
}
