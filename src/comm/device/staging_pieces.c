/* SPDX-License-Identifier: BSD-3-Clause */
/* Large staged calls in pieces: the engine begins a call when the first piece has come, its slices as they come, and
 * the stream copies out what is over. Slices of all ranks are the same, so a rank that cuts its copies meets ranks that
 * do not. On the stream all pieces are copied in first, then out one by one: a network is slower than either. */
#include "comm/device/staging.h"

#define COPIES_MOST 512 /* each way: a copy costs its caller some microseconds, and each chunk of a piece is one */

/* Whether the engine carries out one call of equal blocks on what was copied, slice by slice. */
static bool can_cut(const struct tutti_staged *staged)
{
    const struct tutti_request *request = staged->requests;
    return staged->n == 1 && request->type == TUTTI_REQUEST_COLLECTIVE && !request->v && request->schedule &&
           !atomic_load(&staged->staging->own);
}

/* Bytes of the larger side, into so many pieces as the option says. */
static size_t pieces_of(const struct tutti_staged *staged)
{
    const struct tutti_layout *l = &staged->layout;
    size_t bytes = l->count * l->element * l->n_blocks, copies = (size_t)l->n_blocks * l->per_block;
    size_t n = bytes / staged->staging->comm->context->config.number[TUTTI_OPT_gpu_piece];
    if (n > COPIES_MOST / copies) n = COPIES_MOST / copies;
    if (n > l->n_slices) n = l->n_slices;
    return n < TUTTI_PIECES ? n : TUTTI_PIECES;
}

/* By the engine's owner. The last piece is the thread's, which looks at what became of the call. */
static void on_passed(void *arg, uint32_t n)
{
    struct tutti_staged *staged = arg;
    uint32_t p = staged->n_passed;
    while (p + 1 < staged->n_pieces && staged->pieces[p].until <= n) p++;
    if (p == staged->n_passed) return;
    staged->n_passed = p;
    atomic_store_explicit(staged->staging->go, staged->go + p, memory_order_release);
}

void tutti_staging_cut(struct tutti_staged *staged)
{
    struct tutti_request *request = staged->requests;
    struct tutti_bind bind = {.schedule = request->schedule, .dtype = request->dtype, .divisor = 1};
    struct tutti_need need = {0};
    staged->n_pieces = 1;
    if (!can_cut(staged)) return;
    tutti_request_bind(request, &bind);
    size_t slice_bytes = tutti_team_slice_bytes(request->comm->team);
    /* What can not be, the start says; a private copy of the input is taken at once. */
    if (tutti_layout_init(&staged->layout, &bind, slice_bytes, &need) < 0 || need.copy_bytes > 0) return;
    size_t n = pieces_of(staged);
    if (n < 2) return;
    staged->n_pieces = (uint32_t)n;
    for (size_t p = 0; p < n; p++)
        staged->pieces[p] = (struct tutti_piece){staged, (uint32_t)((uint64_t)staged->layout.n_slices * (p + 1) / n)};
    staged->gate.passed = on_passed, staged->gate.arg = staged;
    request->gate = &staged->gate;
}

const struct tutti_pinned_part *tutti_staging_part(const struct tutti_staged *staged, uint32_t p,
                                                   struct tutti_pinned_part *out)
{
    if (staged->n_pieces == 1) return NULL;
    *out =
        (struct tutti_pinned_part){&staged->layout, p > 0 ? staged->pieces[p - 1].until : 0, staged->pieces[p].until};
    return out;
}

void tutti_staging_arrived(void *arg)
{
    const struct tutti_piece *piece = arg;
    struct tutti_staged *staged = piece->staged;
    struct tutti_staging *staging = staged->staging;
    bool first = piece == staged->pieces;
    if (staged->n_pieces > 1) {
        pthread_mutex_lock(&staging->lock); /* as long as it is not closed there is a team */
        if (!atomic_load(&staging->closing)) tutti_gate_open(staging->comm->team, &staged->gate, piece->until);
        pthread_mutex_unlock(&staging->lock);
    }
    if (!first) return;
    atomic_store(&staged->arrived, true);
    tutti_staging_ring(staging);
}
