/* SPDX-License-Identifier: BSD-3-Clause */
/* Random plans: kinds, forms, methods by name, where buffers are, and sizes around those at which methods or rounds
 * change. */
#include "marks.h"

#include "backend/flat/flat.h"

#include <stdio.h>

static size_t below(uint64_t *random, size_t end)
{
    return (size_t)(mark_random(random) % end);
}

static size_t draw_count(uint64_t *random, const struct mark_mix *mix)
{
    const size_t slot = mix->chunk / 8, part = slot / mix->n ? slot / mix->n : 1, line = FLAT_LINE_MOST / 8;
    const size_t small[] = {1, 2, 7, 8, line / mix->n, line, 1 + below(random, line)};
    const size_t large[] = {part, 4 * part, 9 * part, slot, 2 * slot, 4 * slot, 6 * slot, 1 + below(random, 8 * slot)};
    if (below(random, 40) == 0) return 0;
    size_t count = mix->small || below(random, 5) < 3 ? small[below(random, TUTTI_ARRAY_LEN(small))]
                                                      : large[below(random, TUTTI_ARRAY_LEN(large))];
    return count + below(random, 3) - (count > 1 ? 1 : 0);
}

/* None, all, or some of the ranks. */
static uint64_t draw_mask(uint64_t *random)
{
    size_t which = below(random, 5);
    return which < 2 ? 0 : which < 4 ? UINT64_MAX : mark_random(random);
}

static enum tutti_kind draw_kind(uint64_t *random, bool rooted)
{
    enum tutti_kind kind;
    do kind = (enum tutti_kind)below(random, TUTTI_N_KINDS);
    while (rooted && !tutti_kind_info(kind)->rooted);
    return kind;
}

/* What the posts must say, they say. */
static void map_buffers(uint64_t *random, const struct flat_method *m, struct mark_plan *p)
{
    p->send_mapped = m->needs & FLAT_SEND_MAPPED ? UINT64_MAX : 0;
    p->recv_mapped = m->needs & FLAT_RECV_MAPPED ? UINT64_MAX : 0;
    p->in_place = m->needs & FLAT_SAME ? UINT64_MAX : m->needs & FLAT_APART ? 0 : draw_mask(random);
    if (p->send_mapped == p->recv_mapped) return;
    if (!(m->needs & FLAT_SAME)) p->in_place = 0;
    if (p->in_place) p->send_mapped = p->recv_mapped = UINT64_MAX;
}

void mark_suit(uint64_t *random, const struct flat_method *m, uint32_t n, size_t count, struct mark_plan *out)
{
    *out = (struct mark_plan){.kind = m->kind, .n = n, .seed = mark_random(random)};
    out->count = m->kind == TUTTI_BARRIER ? 0 : count;
    out->root = (uint32_t)below(random, n);
    out->in_place = draw_mask(random);
    out->send_mapped = draw_mask(random);
    out->recv_mapped = draw_mask(random);
    snprintf(out->algorithm, sizeof out->algorithm, "flat:%s", m->name);
    if (m->needs) map_buffers(random, m, out);
}

static const struct flat_method *draw_method(uint64_t *random, enum tutti_kind kind)
{
    const struct flat_method *m;
    do m = &flat_methods[below(random, flat_n_methods)];
    while (m->kind != kind);
    return m;
}

void mark_draw(uint64_t *random, const struct mark_mix *mix, struct mark_plan *out)
{
    enum tutti_kind kind = mix->ahead ? TUTTI_BROADCAST : draw_kind(random, mix->rooted);
    const struct flat_method *m = draw_method(random, kind);
    mark_suit(random, m, mix->n, draw_count(random, mix), out);
    if (!mix->named || below(random, 2)) out->algorithm[0] = '\0';
    if (mix->ahead) out->root = 0;
    while (mark_words(kind, mix->n, out->count) > mix->words_most) out->count /= 2;
    out->v = mark_has_v(kind) && below(random, 6) == 0;
    out->scaled = tutti_kind_info(kind)->reduces && below(random, 8) == 0;
    if (below(random, 2)) return; /* else buffers that may suit nothing */
    out->in_place = draw_mask(random);
    out->send_mapped = draw_mask(random);
    out->recv_mapped = draw_mask(random);
}
