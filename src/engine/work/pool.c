/* SPDX-License-Identifier: BSD-3-Clause */

/* Works in memory: the pool that they come from and go back to, and what a joined work holds. */

#include "engine/work/work.h"

#include <string.h>

struct tutti_works *tutti_works_create(const size_t bytes[TUTTI_N_WORK_TYPES], uint64_t spin_ns)
{
    struct tutti_works *works = tutti_alloc(sizeof(*works));

    if (!works) return NULL;
    memcpy(works->bytes, bytes, sizeof(works->bytes));
    works->bytes[TUTTI_WORK_JOIN] = sizeof(struct tutti_join);
    atomic_init(&works->refs, 1);
    tutti_owner_init(&works->owner, spin_ns);
    works->submitted_end = &works->submitted;
    pthread_mutex_init(&works->notifier.lock, NULL);
    works->notifier.end = &works->notifier.first;
    return works;
}

void tutti_works_unref(struct tutti_works *works)
{
    if (atomic_fetch_sub(&works->refs, 1) != 1) return;
    for (uint32_t i = 0; i < TUTTI_N_WORK_TYPES; i++) {
        while (works->pool[i]) {
            struct tutti_work *work = works->pool[i];
            works->pool[i] = work->next;
            tutti_free(work);
        }
    }
    pthread_mutex_destroy(&works->notifier.lock);
    tutti_owner_fini(&works->owner);
    tutti_free(works);
}

void *tutti_work_new(struct tutti_works *works, enum tutti_work_type type)
{
    tutti_works_lock(works);
    struct tutti_work *work = works->pool[type];
    if (work) works->pool[type] = work->next;
    tutti_works_unlock(works);
    if (!work && !(work = tutti_alloc(works->bytes[type]))) return NULL;
    work->works = works;
    work->team = NULL;
    work->next = NULL;
    work->type = type;
    work->start_ns = tutti_owner_now(&works->owner);
    work->end_ns = work->seq = 0;
    work->label = NULL;
    work->home = NULL;
    atomic_store_explicit(&work->hooks, NULL, memory_order_relaxed);
    work->error.status = TUTTI_OK;
    atomic_store_explicit(&work->done, 0, memory_order_relaxed);
    atomic_store_explicit(&work->refs, 1, memory_order_relaxed);
    atomic_fetch_add(&works->refs, 1);
    return work;
}

static void join_release(struct tutti_join *join)
{
    for (size_t i = 0; i < join->n; i++) tutti_work_drop(join->children[i]);
    tutti_free(join->children);
    join->children = NULL, join->n = 0;
}

void tutti_work_drop(struct tutti_work *work)
{
    struct tutti_works *works = work->works;

    if (atomic_fetch_sub(&work->refs, 1) != 1) return;
    if (work->type == TUTTI_WORK_JOIN) join_release((struct tutti_join *)work);
    tutti_works_lock(works);
    work->next = works->pool[work->type];
    works->pool[work->type] = work;
    tutti_works_unlock(works);
    tutti_works_unref(works);
}

enum tutti_status tutti_work_parts(struct tutti_work *work,
                                   enum tutti_status (*visit)(struct tutti_work *part, void *arg), void *arg)
{
    struct tutti_join *join = (struct tutti_join *)work;

    if (work->type != TUTTI_WORK_JOIN || join->n == 0) return visit(work, arg);
    for (size_t i = 0; i < join->n; i++) TUTTI_TRY(tutti_work_parts(join->children[i], visit, arg));
    return TUTTI_OK;
}
