/* SPDX-License-Identifier: BSD-3-Clause */
/* Work: the handle of a call, from its submission to its end. A joined work only holds its children: it is complete
 * when they are. */
#include "engine/work.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum tutti_status tutti_work_submit(struct tutti_work *work, _Atomic uint64_t *number, bool helper)
{
    struct tutti_works *works = work->works;
    struct tutti_owner *owner = &works->owner;
    uint64_t timeout = work->timeout_ns;

    work->home = work->team;
    if (helper) TUTTI_TRY(tutti_helper_start(owner));
    if (helper) atomic_store_explicit(&owner->helper.caller, (int32_t)syscall(SYS_gettid), memory_order_relaxed);
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
        /* A thread that waits for one works's calls makes no progress on another's. */
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

enum tutti_status tutti_works_promise(struct tutti_works *works, const void *home, uint64_t seq, const char *label,
                                      struct tutti_work **out)
{
    struct tutti_work *work = tutti_work_new(works, TUTTI_WORK_PROMISED);

    if (!work) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the handle of a call");
    atomic_fetch_add(&work->refs, 1); /* the maker's */
    work->home = home;
    work->seq = seq;
    work->label = label;
    *out = work;
    return TUTTI_OK;
}

void tutti_work_fulfil(struct tutti_work *work, const struct tutti_error *error)
{
    struct tutti_owner *owner = &work->works->owner;

    if (error) work->error = *error;
    work->end_ns = tutti_owner_now(owner);
    atomic_store(&work->done, 1);
    tutti_owner_wake(owner, work);
    tutti_owner_kick(owner); /* its owner may sleep, and wait for this */
    if (atomic_load(&work->hooks)) tutti_work_due(work);
    tutti_work_drop(work);
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

enum tutti_status tutti_work_check(const struct tutti_work *work, const char *call)
{
    if (!work) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: work is NULL", call);
    if (work->works->n_forks == tutti_n_forks) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: this process was forked off by the one whose call it is", call);
}

enum tutti_status tutti_work_test(struct tutti_work *work)
{
    TUTTI_TRY(tutti_work_check(work, "work_test"));
    if (is_done(work)) return result_of(work);
    tutti_inside++;
    struct tutti_owner *owner = &work->works->owner;
    /* The thread that owns works already. */
    if (tutti_owner_try(owner)) {
        tutti_owner_pass(owner);
        tutti_owner_leave(owner);
    }
    tutti_inside--;
    return is_done(work) ? result_of(work) : TUTTI_PENDING;
}

enum tutti_status tutti_work_wait(struct tutti_work *work, uint64_t timeout_ns)
{
    TUTTI_TRY(tutti_work_check(work, "work_wait"));
    if (is_done(work)) return result_of(work);
    tutti_inside++;
    struct tutti_owner *owner = &work->works->owner;
    tutti_helper_learn(owner, start_of(work));
    bool complete = wait_until(work, timeout_ns == 0 ? TUTTI_NEVER : tutti_owner_deadline(owner, timeout_ns));
    tutti_helper_waited(owner, complete ? end_of(work) : tutti_owner_now(owner));
    tutti_inside--;
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
    if (!work || work->works->n_forks != tutti_n_forks) return;
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

/* ---- Works in memory: the pool that they come from and go back to, and what a joined work holds. ---- */

struct tutti_works *tutti_works_create(const size_t bytes[TUTTI_N_WORK_TYPES], uint64_t spin_ns)
{
    struct tutti_works *works = tutti_alloc(sizeof(*works));

    if (!works) return NULL;
    memcpy(works->bytes, bytes, sizeof(works->bytes));
    works->n_forks = tutti_n_forks;
    works->bytes[TUTTI_WORK_JOIN] = sizeof(struct tutti_join);
    works->bytes[TUTTI_WORK_PROMISED] = sizeof(struct tutti_work);
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

/* ---- Notices that are due. A notice hangs on every part of its work (a joined work has several) and is queued for the
 * completion thread with the last one, by whoever completes that; it holds the work until its function returned. ----
 */

static _Thread_local bool in_function;

bool tutti_notice_runs(void)
{
    return in_function;
}

void tutti_notice_run(struct tutti_notice *notice)
{
    struct tutti_work *work = notice->work;
    bool outer = in_function;

    in_function = true;
    notice->function(notice->arg);
    in_function = outer;
    tutti_free(notice);
    tutti_work_drop(work);
}

static void append(struct tutti_notifier *notifier, struct tutti_notice *notice, const void *home)
{
    notice->next = NULL;
    notice->home = home;
    notice->number = ++notifier->n_queued;
    *notifier->end = notice;
    notifier->end = &notice->next;
}

static struct tutti_notice *detach(struct tutti_notifier *notifier)
{
    struct tutti_notice *first = notifier->first;

    notifier->first = NULL;
    notifier->end = &notifier->first;
    return first;
}

void tutti_notifier_wake(struct tutti_notifier *notifier)
{
    atomic_fetch_add(&notifier->word, 1);
    if (atomic_exchange(&notifier->sleeping, 0)) tutti_futex_wake(&notifier->word, 1);
}

/* The hooks of a part in the order of the requests. */
static struct tutti_hook *hooks_take(struct tutti_work *part)
{
    struct tutti_hook *hook = atomic_exchange(&part->hooks, NULL), *first = NULL;

    while (hook) {
        struct tutti_hook *next = hook->next;
        hook->next = first;
        first = hook;
        hook = next;
    }
    return first;
}

void tutti_work_due(struct tutti_work *part)
{
    struct tutti_notifier *notifier = &part->works->notifier;
    struct tutti_notice *here = NULL;
    bool any = false;

    /* Taken and queued under one lock, so that who finds no hooks queues its own after these. */
    pthread_mutex_lock(&notifier->lock);
    for (struct tutti_hook *hook = hooks_take(part), *next; hook; hook = next) {
        next = hook->next; /* the notice may be gone once it is counted down */
        tutti_helper_watch(&part->works->owner, -1);
        if (atomic_fetch_sub(&hook->notice->left, 1) != 1) continue;
        append(notifier, hook->notice, part->home);
        any = true;
    }
    if (notifier->ended) here = detach(notifier);
    pthread_mutex_unlock(&notifier->lock);
    if (here) {
        while (here) {
            struct tutti_notice *next = here->next;
            tutti_notice_run(here);
            here = next;
        }
    } else if (any) {
        tutti_notifier_wake(notifier);
    }
}
