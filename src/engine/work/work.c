/* SPDX-License-Identifier: BSD-3-Clause */

/* Work: the handle of a call, from its submission to its end. A joined work only holds its children: it is complete
 * when they are. */

#include "engine/work/work.h"

#include <unistd.h>

enum tutti_status tutti_work_submit(struct tutti_work *work, _Atomic uint64_t *number, bool helper)
{
    struct tutti_works *works = work->works;
    struct tutti_owner *owner = &works->owner;
    uint64_t timeout = work->timeout_ns;

    work->home = work->team;
    if (helper) TUTTI_TRY(tutti_helper_start(owner));
    if (helper) atomic_store_explicit(&owner->helper.caller, (int32_t)gettid(), memory_order_relaxed);
    work->deadline_ns = work->start_ns + timeout < timeout ? TUTTI_NEVER : work->start_ns + timeout;
    atomic_fetch_add(&work->refs, 1);
    atomic_fetch_add(&owner->n_inflight, 1);
    tutti_works_lock(works);
    if (number) {
        work->seq = atomic_load_explicit(number, memory_order_relaxed) + 1;
        atomic_store_explicit(number, work->seq, memory_order_relaxed);
    }
    *works->submitted_end = work;
    works->submitted_end = &work->next;
    atomic_store(&works->has_submitted, true);
    tutti_works_unlock(works);
    tutti_owner_kick(owner);
    /* A caller that does not wait at once still gets its first messages out. */
    if (helper && tutti_owner_try(owner)) {
        tutti_owner_pass(owner);
        tutti_owner_leave(owner);
    }
    return TUTTI_OK;
}

struct tutti_work *tutti_works_take(struct tutti_works *works)
{
    if (!atomic_load(&works->has_submitted)) return NULL;
    tutti_works_lock(works);
    struct tutti_work *first = works->submitted;
    works->submitted = NULL;
    works->submitted_end = &works->submitted;
    atomic_store(&works->has_submitted, false);
    tutti_works_unlock(works);
    return first;
}

void tutti_work_complete(struct tutti_work *work, const struct tutti_error *error)
{
    struct tutti_owner *owner = &work->works->owner;

    if (error) work->error = *error;
    work->end_ns = tutti_owner_now(owner);
    work->team = NULL;
    atomic_store(&work->done, 1);
    tutti_owner_wake(owner, work);
    if (atomic_load(&work->hooks)) tutti_work_due(work);
    tutti_work_drop(work);
    atomic_fetch_sub(&owner->n_inflight, 1);
}

/* ---- joined works ---- */

/* Nobody may wait for the part. Where no thread can be had, it goes on with the next wait. */
static enum tutti_status leave_to_helper(struct tutti_work *part, void *arg)
{
    (void)arg;
    if (atomic_load(&part->done)) return TUTTI_OK;
    if (tutti_helper_start(&part->works->owner) == TUTTI_OK) tutti_owner_hand_over(&part->works->owner);
    return TUTTI_OK;
}

enum tutti_status tutti_works_join(struct tutti_works *works, struct tutti_work **children, size_t n,
                                   struct tutti_work **out)
{
    struct tutti_join *join = tutti_work_new(works, TUTTI_WORK_JOIN);

    if (!join) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory to join %zu calls", n);
    join->n = 0;
    join->children = tutti_alloc_array(n, sizeof(struct tutti_work *));
    if (!join->children) {
        tutti_work_drop(&join->work);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory to join %zu calls", n);
    }
    for (size_t i = 0; i < n; i++) {
        /* Who waits for one works's calls makes no progress on another's. */
        if (children[i]->works != works) leave_to_helper(children[i], NULL);
        join->children[i] = children[i];
    }
    join->n = n;
    join->work.seq = n > 0 ? children[0]->seq : 0;
    if (n == 0) atomic_store(&join->work.done, 1);
    *out = &join->work;
    return TUTTI_OK;
}

enum tutti_status tutti_works_past(struct tutti_works *works, const void *home, uint64_t seq, uint64_t start_ns,
                                   struct tutti_work **out)
{
    struct tutti_join *join = tutti_work_new(works, TUTTI_WORK_JOIN);

    if (!join) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the handle of a complete call");
    join->children = NULL, join->n = 0;
    join->work.seq = seq;
    join->work.home = home;
    join->work.end_ns = join->work.start_ns;
    join->work.start_ns = start_ns;
    atomic_store(&join->work.done, 1);
    *out = &join->work;
    return TUTTI_OK;
}

static bool is_done(const struct tutti_work *work)
{
    if (work->type != TUTTI_WORK_JOIN) return atomic_load(&work->done) != 0;
    const struct tutti_join *join = (const struct tutti_join *)work;
    for (size_t i = 0; i < join->n; i++)
        if (!is_done(join->children[i])) return false;
    return true;
}

/* The record of a complete work: of a joined one, the first that failed. */
static const struct tutti_error *error_of(const struct tutti_work *work)
{
    if (work->type != TUTTI_WORK_JOIN) return &work->error;
    const struct tutti_join *join = (const struct tutti_join *)work;
    for (size_t i = 0; i < join->n; i++) {
        const struct tutti_error *error = error_of(join->children[i]);
        if (error->status < 0) return error;
    }
    return &work->error;
}

static enum tutti_status result_of(const struct tutti_work *work)
{
    const struct tutti_error *error = error_of(work);
    return error->status < 0 ? tutti_fail_record(error) : TUTTI_OK;
}

static bool ready(const void *work)
{
    return atomic_load(&((const struct tutti_work *)work)->done) != 0;
}

static bool wait_until(struct tutti_work *work, uint64_t until_ns)
{
    if (work->type == TUTTI_WORK_JOIN) {
        struct tutti_join *join = (struct tutti_join *)work;
        for (size_t i = 0; i < join->n; i++)
            if (!wait_until(join->children[i], until_ns)) return false;
        return true;
    }
    if (!ready(work)) tutti_owner_wait(&work->works->owner, ready, work, work, until_ns);
    return ready(work);
}

/* When the first of its calls started, */
static uint64_t start_of(const struct tutti_work *work)
{
    const struct tutti_join *join = (const struct tutti_join *)work;
    uint64_t first = TUTTI_NEVER;

    if (work->type != TUTTI_WORK_JOIN || join->n == 0) return work->start_ns;
    for (size_t i = 0; i < join->n; i++) {
        const uint64_t start = start_of(join->children[i]);
        if (start < first) first = start;
    }
    return first;
}

/* and the last one ended. It is complete. */
static uint64_t end_of(const struct tutti_work *work)
{
    const struct tutti_join *join = (const struct tutti_join *)work;
    uint64_t last = 0;

    if (work->type != TUTTI_WORK_JOIN || join->n == 0)
        return work->end_ns > work->start_ns ? work->end_ns : work->start_ns;
    for (size_t i = 0; i < join->n; i++) {
        const uint64_t end = end_of(join->children[i]);
        if (end > last) last = end;
    }
    return last;
}

/* ---- public ---- */

enum tutti_status tutti_work_test(struct tutti_work *work)
{
    if (!work) return tutti_fail(TUTTI_ERR_ARGUMENT, "work_test: work is NULL");
    if (is_done(work)) return result_of(work);
    struct tutti_owner *owner = &work->works->owner;
    /* Whoever owns works already. */
    if (tutti_owner_try(owner)) {
        tutti_owner_pass(owner);
        tutti_owner_leave(owner);
    }
    return is_done(work) ? result_of(work) : TUTTI_PENDING;
}

enum tutti_status tutti_work_wait(struct tutti_work *work, uint64_t timeout_ns)
{
    if (!work) return tutti_fail(TUTTI_ERR_ARGUMENT, "work_wait: work is NULL");
    if (is_done(work)) return result_of(work);
    struct tutti_owner *owner = &work->works->owner;
    tutti_helper_learn(owner, start_of(work));
    bool complete = wait_until(work, timeout_ns == 0 ? TUTTI_NEVER : tutti_owner_deadline(owner, timeout_ns));
    tutti_helper_waited(owner, complete ? end_of(work) : tutti_owner_now(owner));
    return complete ? result_of(work) : TUTTI_PENDING;
}

void tutti_work_error(struct tutti_work *work, struct tutti_error *out)
{
    *out = (struct tutti_error){.status = TUTTI_OK, .peer = -1, .step = TUTTI_NO_STEP, .collective = ""};
    if (!work || !is_done(work)) return;
    const struct tutti_error *error = error_of(work);
    if (error->status < 0) *out = *error;
}

uint64_t tutti_work_duration_ns(const struct tutti_work *work)
{
    if (!work || !is_done(work)) return 0;
    const uint64_t ns = end_of(work) - start_of(work);
    return ns > 0 ? ns : 1; /* 0 means pending */
}

uint64_t tutti_work_sequence(const struct tutti_work *work)
{
    return work ? work->seq : 0;
}

void tutti_work_free(struct tutti_work *work)
{
    if (!work) return;
    /* Nobody waits for it any more. */
    if (!is_done(work)) (void)tutti_work_parts(work, leave_to_helper, NULL);
    tutti_work_drop(work);
}

enum tutti_status tutti_work_finish(struct tutti_work *work)
{
    wait_until(work, TUTTI_NEVER);
    enum tutti_status status = result_of(work);
    tutti_work_drop(work);
    return status;
}
