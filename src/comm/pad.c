/* SPDX-License-Identifier: BSD-3-Clause */
/* Pads: memory of one rank that others write in place, and that is given back when the last of them is through. */
#include "comm/pad.h"

static bool is_one(const struct tutti_family *family)
{
    return tutti_memory_is_one(family->world.transport->memory);
}

static void pad_free(struct tutti_family *family, struct tutti_own_pad *own)
{
    struct tutti_memory *m = family->world.transport->memory;
    if (m && !is_one(family))
        m->ops->free(m, own->pad);
    else
        tutti_unmap(own->pad, own->bytes);
    tutti_free(own);
}

/* Whether nobody else touches it any more. */
static bool is_over(const struct tutti_family *family, const struct tutti_own_pad *own)
{
    struct tutti_control *control = family->world.control;
    for (uint32_t r = 0; r < own->n; r++)
        if (!atomic_load(&own->pad->let_go[r]) && !tutti_life_gone(control->ops->life(control, own->members[r])))
            return false;
    return true;
}

/* Takes those that are over off the list; all: the family ends. */
static void sweep(struct tutti_family *family, bool all)
{
    struct tutti_own_pad *over = NULL;
    pthread_mutex_lock(&family->lock);
    for (struct tutti_own_pad **at = &family->pads; *at;) {
        struct tutti_own_pad *own = *at;
        if (!all && !is_over(family, own)) {
            at = &own->next;
            continue;
        }
        *at = own->next;
        own->next = over;
        over = own;
    }
    pthread_mutex_unlock(&family->lock);
    while (over) {
        struct tutti_own_pad *own = over;
        over = own->next;
        pad_free(family, own);
    }
}

void tutti_pads_end(struct tutti_family *family)
{
    sweep(family, true);
}

static enum tutti_status pad_alloc(struct tutti_memory *m, size_t bytes, struct tutti_pad **out)
{
    if (m && !m->addresses) {
        void *pointer = NULL;
        TUTTI_TRY(m->ops->alloc(m, bytes, &pointer));
        *out = pointer;
        return TUTTI_OK;
    }
    *out = tutti_map_lazy(bytes);
    return *out ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "out of memory for %zu bytes of signals", bytes);
}

enum tutti_status tutti_pad_take(struct tutti_comm *comm, size_t bytes, struct tutti_own_pad **out)
{
    struct tutti_memory *m = comm->family->world.transport->memory;
    uint32_t n = (uint32_t)comm->size;
    struct tutti_own_pad *own = tutti_alloc(sizeof(*own) + n * sizeof(*own->members));

    sweep(comm->family, false);
    if (!own) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for signals");
    own->family = comm->family;
    own->n = n, own->me = (uint32_t)comm->rank;
    atomic_init(&own->holds, 1);
    own->bytes = tutti_pad_head(n) + bytes;
    enum tutti_status status = pad_alloc(m, own->bytes, &own->pad);
    if (status < 0) {
        tutti_free(own);
        return status;
    }
    own->pad->bytes = own->bytes;
    for (uint32_t r = 0; r < n; r++) {
        bool reached = r == (uint32_t)comm->rank || tutti_memory_reaches(m, comm->members[r]);
        own->members[r] = comm->members[r];
        atomic_store(&own->pad->let_go[r], !reached);
        if (reached) atomic_fetch_add(&own->pad->n_users, 1);
    }
    *out = own;
    return TUTTI_OK;
}

static void let_go(const struct tutti_family *family, struct tutti_pad *pad, uint32_t rank)
{
    if (!is_one(family))
        atomic_store(&pad->let_go[rank], 1);
    else if (atomic_fetch_sub(&pad->n_users, 1) == 1)
        tutti_unmap(pad, (size_t)pad->bytes);
}

void tutti_pad_let_go(const struct tutti_comm *comm, struct tutti_pad *pad)
{
    let_go(comm->family, pad, (uint32_t)comm->rank);
}

void tutti_pad_drop(struct tutti_own_pad *own)
{
    struct tutti_family *family = own->family;

    if (atomic_fetch_sub(&own->holds, 1) != 1) return;
    atomic_store(&own->pad->gone, 1);
    if (own->unseen) {
        pad_free(family, own);
        return;
    }
    if (is_one(family)) {
        let_go(family, own->pad, own->me);
        tutti_free(own);
        return;
    }
    atomic_store(&own->pad->let_go[own->me], 1);
    pthread_mutex_lock(&family->lock);
    own->next = family->pads;
    family->pads = own;
    pthread_mutex_unlock(&family->lock);
    sweep(family, false);
}
