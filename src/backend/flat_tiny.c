/* SPDX-License-Identifier: BSD-3-Clause */
/* The shortest path: calls of a few lines, on lanes of one group of readers. What flat_line.c does for an operation is
 * here straight-line code without one: post, write the own lines, wait for the others' a little, combine. If the wait
 * takes long, an operation takes over where this stopped (flat_resume). */
#include "backend/flat.h"

#define SPINS_MOST 1024

static void words_copy(unsigned char *restrict dst, const unsigned char *restrict src, size_t bytes)
{
    if (bytes % 8 || bytes > FLAT_LINE_BYTES) {
        memcpy(dst, src, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += 8) memcpy(dst + i, src + i, 8); /* no call: it is short */
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

static void lines_write(struct flat_line *line, const unsigned char *data, size_t bytes, uint64_t word)
{
    while (bytes > FLAT_LINE_BYTES) {
        memcpy(line->data, data, FLAT_LINE_BYTES);
        atomic_store_explicit(&line->word, word, memory_order_release);
        bytes -= FLAT_LINE_BYTES, data += FLAT_LINE_BYTES, line++;
    }
    if (bytes < FLAT_LINE_BYTES) memset(line->data, 0, FLAT_LINE_BYTES);
    words_copy(line->data, data, bytes);
    atomic_store_explicit(&line->word, word, memory_order_release);
}

/* Whether all n lines have come before patience ends. */
static bool lines_wait(const struct flat_line *line, uint32_t n, uint64_t word, uint32_t spins)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t tries = 0; atomic_load_explicit(&line[i].word, memory_order_acquire) != word; tries++) {
            if (tries == spins) return false;
            tutti_cpu_relax();
        }
    return true;
}

static void lines_read(const struct flat_line *line, uint32_t n, unsigned char *out)
{
    for (uint32_t i = 0; i < n; i++) memcpy(out + (size_t)i * FLAT_LINE_BYTES, line[i].data, FLAT_LINE_BYTES);
    memset(out + (size_t)n * FLAT_LINE_BYTES, 0, TUTTI_CACHE_LINE);
}

/* `bytes` bytes from `at` on of a rank's lines. */
static void lines_part(const struct flat_line *line, size_t at, unsigned char *out, size_t bytes)
{
    line += at / FLAT_LINE_BYTES;
    at %= FLAT_LINE_BYTES;
    while (bytes > 0) {
        size_t some = FLAT_LINE_BYTES - at < bytes ? FLAT_LINE_BYTES - at : bytes;
        words_copy(out, line->data + at, some);
        out += some, bytes -= some, line++, at = 0;
    }
}

/* ---- what a kind does with all ranks' lines ---- */

static const struct flat_line *lines_of(const struct flat_lane *lane, uint32_t r)
{
    return lane->areas[r]->lines[0][lane->number % FLAT_DEPTH];
}

static void combine(const struct flat_lane *lane, const struct tutti_tiny *t, size_t at, uint32_t n_lines)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_ROOM], next[FLAT_LINE_ROOM];
    size_t whole = ((size_t)n_lines * FLAT_LINE_BYTES + 63) / 64 * 64 >> t->log_element;
    lines_read(lines_of(lane, 0), n_lines, sum);
    for (uint32_t r = 1; r < lane->n; r++) {
        lines_read(lines_of(lane, r), n_lines, next);
        t->reduce(sum, sum, next, whole);
    }
    if (t->divide) t->divide(sum, sum, whole, t->divisor);
    words_copy(t->recv, sum + at, t->bytes);
}

static void all_reduce(const struct flat_lane *lane, const struct tutti_tiny *t, uint32_t n_lines)
{
    combine(lane, t, 0, n_lines);
}

static void reduce_scatter(const struct flat_lane *lane, const struct tutti_tiny *t, uint32_t n_lines)
{
    combine(lane, t, lane->me * t->bytes, n_lines);
}

static void all_gather(const struct flat_lane *lane, const struct tutti_tiny *t, uint32_t n_lines)
{
    (void)n_lines;
    for (uint32_t r = 0; r < lane->n; r++) lines_part(lines_of(lane, r), 0, t->recv + r * t->bytes, t->bytes);
}

static void all_to_all(const struct flat_lane *lane, const struct tutti_tiny *t, uint32_t n_lines)
{
    (void)n_lines;
    for (uint32_t r = 0; r < lane->n; r++)
        lines_part(lines_of(lane, r), lane->me * t->bytes, t->recv + r * t->bytes, t->bytes);
}

static void barrier(const struct flat_lane *lane, const struct tutti_tiny *t, uint32_t n_lines)
{
    (void)lane, (void)t, (void)n_lines;
}

typedef void (*ending)(const struct flat_lane *lane, const struct tutti_tiny *t, uint32_t n_lines);
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

/* Where operations take lines, too, for the two meet on one lane. */
size_t flat_tiny_below(const struct flat_lane *lane, enum tutti_kind kind)
{
    size_t most = 0, over = FLAT_LINE_MAX + 1;
    if (lane->n_factors != 1 || lane->crowded || !endings[kind] || !is_line(lane, kind, kind != TUTTI_BARRIER))
        return 0;
    while (over - most > 1) {
        size_t middle = most + (over - most) / 2;
        *(is_line(lane, kind, middle) ? &most : &over) = middle;
    }
    return most + 1;
}

enum tutti_advance flat_tiny(struct tutti_backend *backend, const struct tutti_tiny *t)
{
    struct flat_lane *lane = (struct flat_lane *)backend;
    if (lane->synced + FLAT_DEPTH <= lane->number) return TUTTI_RUN_MOVED;
    uint64_t number = ++lane->number, word = t->signature << 32 | (uint32_t)number;
    struct flat_area *own = lane->areas[lane->me];
    uint32_t n_lines = t->send_bytes > FLAT_LINE_BYTES ? flat_lines_of(t->send_bytes) : 1;

    post_write(lane, t, word);
    lines_write(own->lines[0][number % FLAT_DEPTH], t->send, t->send_bytes, word);
    flat_told(lane);
    for (uint32_t r = 0; r < lane->n; r++)
        if (r != lane->me && !lines_wait(lines_of(lane, r), n_lines, word, lane->spins)) return TUTTI_RUN_BLOCKED;
    endings[t->kind](lane, t, n_lines);
    if (lane->synced < number - 1) lane->synced = number - 1;
    atomic_store_explicit(&own->done_seq, t->seq, memory_order_relaxed);
    atomic_store_explicit(&own->done, number, memory_order_release);
    flat_told(lane);
    if (lane->spins < SPINS_MOST) lane->spins++;
    return TUTTI_RUN_DONE;
}
