/* SPDX-License-Identifier: BSD-3-Clause */

/* Work: the handle of a call. It comes from a pool, is shared by the handle's owner and the engine, and goes back when
 * both let go. A joined work only holds its children: it is complete when they are. */

#include "engine/core.h"
#include "engine/work/follow.h"

#include <string.h>

struct join {
    struct tutti_work work; /* first */
    struct tutti_work **children;
    size_t n;
};
static const size_t work_bytes[TUTTI_N_WORK_TYPES] = {
    [TUTTI_WORK_FLIGHT] = sizeof(struct tutti_flight),
    [TUTTI_WORK_RUNNER] = sizeof(struct tutti_flight) + TUTTI_RUNNER_BYTES,
    [TUTTI_WORK_SEND] = sizeof(struct tutti_letter),
    [TUTTI_WORK_RECV] = sizeof(struct tutti_letter),
    [TUTTI_WORK_FOLLOWED] = sizeof(struct tutti_followed),
    [TUTTI_WORK_JOIN] = sizeof(struct join),
};

void *tutti_work_new(struct tutti_engine *engine, enum tutti_work_type type)
{
    pthread_mutex_lock(&engine->lock);
    struct tutti_work *work = engine->pool[type];
    if (work) engine->pool[type] = work->next;
    pthread_mutex_unlock(&engine->lock);
    if (!work && !(work = tutti_alloc(work_bytes[type]))) return NULL;
    work->engine = engine;
    work->team = NULL;
    work->next = NULL;
    work->type = type;
    work->start_ns = tutti_now_ns();
    work->end_ns = work->seq = 0;
    work->tag = NULL;
    work->home = NULL;
    atomic_store_explicit(&work->hooks, NULL, memory_order_relaxed);
    work->error.status = TUTTI_OK;
    atomic_store_explicit(&work->done, 0, memory_order_relaxed);
    atomic_store_explicit(&work->waiting, 0, memory_order_relaxed);
    atomic_store_explicit(&work->refs, 1, memory_order_relaxed);
    atomic_fetch_add(&engine->refs, 1);
    return work;
}

static void join_release(struct join *join)
{
    for (size_t i = 0; i < join->n; i++) tutti_work_drop(join->children[i]);
    tutti_free(join->children);
    join->children = NULL, join->n = 0;
}

void tutti_work_drop(struct tutti_work *work)
{
    struct tutti_engine *engine = work->engine;

    if (atomic_fetch_sub(&work->refs, 1) != 1) return;
    if (work->type == TUTTI_WORK_JOIN) join_release((struct join *)work);
    pthread_mutex_lock(&engine->lock);
    work->next = engine->pool[work->type];
    engine->pool[work->type] = work;
    pthread_mutex_unlock(&engine->lock);
    tutti_engine_unref(engine);
}

enum tutti_status tutti_work_submit(struct tutti_work *work, bool helper)
{
    struct tutti_engine *engine = work->engine;
    struct tutti_team *team = work->team;

    if (team->failed) return tutti_fail_record(&team->error);
    work->home = team;
    if (helper) TUTTI_TRY(tutti_helper_start(engine));
    uint64_t timeout = work->timeout_ns;
    work->deadline_ns = work->start_ns + timeout < timeout ? TUTTI_NEVER : work->start_ns + timeout;
    atomic_fetch_add(&work->refs, 1);
    atomic_fetch_add(&engine->n_inflight, 1);
    atomic_fetch_add(&team->n_open, 1);
    pthread_mutex_lock(&engine->lock);
    if (tutti_work_flies(work->type)) work->seq = tutti_team_number(team);
    *engine->submitted_end = work;
    engine->submitted_end = &work->next;
    atomic_store(&engine->has_submitted, true);
    pthread_mutex_unlock(&engine->lock);
    tutti_owner_kick(engine);
    /* A caller that does not wait at once still gets its first messages out. */
    if (helper && tutti_owner_try(engine)) {
        tutti_engine_progress(engine);
        tutti_owner_leave(engine);
    }
    return TUTTI_OK;
}

static void wake_waiters(struct tutti_work *work)
{
    struct tutti_engine *engine = work->engine;

    if (atomic_load(&work->waiting) == 0) return;
    pthread_mutex_lock(&engine->lock);
    for (struct tutti_waiter *w = engine->waiters; w; w = w->next) {
        if (w->work != work) continue;
        atomic_store(&w->word, 1);
        tutti_futex_wake(&w->word, 1);
    }
    pthread_mutex_unlock(&engine->lock);
}

void tutti_work_complete(struct tutti_work *work, const struct tutti_error *error)
{
    struct tutti_engine *engine = work->engine;
    struct tutti_team *team = work->team;

    if (error) work->error = *error;
    work->end_ns = tutti_now_ns();
    work->team = NULL;
    tutti_team_work_end(team);
    engine->stats.calls_completed++;
    atomic_store(&work->done, 1);
    wake_waiters(work);
    if (atomic_load(&work->hooks)) tutti_work_due(work);
    tutti_work_drop(work);
    atomic_fetch_sub(&engine->n_inflight, 1);
    atomic_fetch_sub(&team->n_open, 1);
}

/* ---- joined works ---- */

/* Nobody may wait for the part. Where no thread can be had, it goes on with the next wait. */
static enum tutti_status leave_to_helper(struct tutti_work *part, void *arg)
{
    (void)arg;
    if (atomic_load(&part->done)) return TUTTI_OK;
    if (tutti_helper_start(part->engine) == TUTTI_OK) tutti_owner_hand_over(part->engine);
    return TUTTI_OK;
}

enum tutti_status tutti_work_join(struct tutti_engine *engine, struct tutti_work **children, size_t n,
                                  struct tutti_work **out)
{
    struct join *join = tutti_work_new(engine, TUTTI_WORK_JOIN);

    if (!join) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory to join %zu calls", n);
    join->n = 0;
    join->children = tutti_alloc_array(n, sizeof(struct tutti_work *));
    if (!join->children) {
        tutti_work_drop(&join->work);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory to join %zu calls", n);
    }
    for (size_t i = 0; i < n; i++) {
        /* Who waits for one engine's calls makes no progress on another's. */
        if (children[i]->engine != engine) leave_to_helper(children[i], NULL);
        join->children[i] = children[i];
    }
    join->n = n;
    if (n == 0) atomic_store(&join->work.done, 1);
    *out = &join->work;
    return TUTTI_OK;
}

enum tutti_status tutti_work_past(struct tutti_team *team, uint64_t seq, uint64_t start_ns, struct tutti_work **out)
{
    struct join *join = tutti_work_new(team->engine, TUTTI_WORK_JOIN);

    if (!join) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the handle of a complete call");
    join->children = NULL, join->n = 0;
    join->work.seq = seq;
    join->work.home = team;
    join->work.end_ns = join->work.start_ns;
    join->work.start_ns = start_ns;
    atomic_store(&join->work.done, 1);
    *out = &join->work;
    return TUTTI_OK;
}

enum tutti_status tutti_work_parts(struct tutti_work *work,
                                   enum tutti_status (*visit)(struct tutti_work *part, void *arg), void *arg)
{
    struct join *join = (struct join *)work;

    if (work->type != TUTTI_WORK_JOIN || join->n == 0) return visit(work, arg);
    for (size_t i = 0; i < join->n; i++) TUTTI_TRY(tutti_work_parts(join->children[i], visit, arg));
    return TUTTI_OK;
}

static bool is_done(const struct tutti_work *work)
{
    if (work->type != TUTTI_WORK_JOIN) return atomic_load(&work->done) != 0;
    const struct join *join = (const struct join *)work;
    for (size_t i = 0; i < join->n; i++)
        if (!is_done(join->children[i])) return false;
    return true;
}

/* The record of a complete work: of a joined one, the first that failed. */
static const struct tutti_error *error_of(const struct tutti_work *work)
{
    if (work->type != TUTTI_WORK_JOIN) return &work->error;
    const struct join *join = (const struct join *)work;
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
        struct join *join = (struct join *)work;
        for (size_t i = 0; i < join->n; i++)
            if (!wait_until(join->children[i], until_ns)) return false;
        return true;
    }
    if (!ready(work)) tutti_engine_wait(work->engine, ready, work, work, until_ns);
    return ready(work);
}

static uint64_t first_start(const struct tutti_work *work)
{
    uint64_t first = TUTTI_NEVER;
    if (work->type != TUTTI_WORK_JOIN) return work->start_ns;
    const struct join *join = (const struct join *)work;
    for (size_t i = 0; i < join->n; i++) {
        uint64_t start = first_start(join->children[i]);
        if (start < first) first = start;
    }
    return join->n > 0 ? first : work->start_ns;
}

static uint64_t last_end(const struct tutti_work *work)
{
    uint64_t last = 0;
    if (work->type != TUTTI_WORK_JOIN) return work->end_ns;
    const struct join *join = (const struct join *)work;
    for (size_t i = 0; i < join->n; i++) {
        uint64_t end = last_end(join->children[i]);
        if (end > last) last = end;
    }
    return join->n > 0 ? last : work->end_ns > work->start_ns ? work->end_ns : work->start_ns;
}

/* ---- public ---- */

enum tutti_status tutti_work_test(struct tutti_work *work)
{
    struct tutti_engine *engine;

    if (!work) return tutti_fail(TUTTI_ERR_ARGUMENT, "work_test: work is NULL");
    if (is_done(work)) return result_of(work);
    engine = work->engine;
    /* Whoever owns works already. */
    if (tutti_owner_try(engine)) {
        tutti_engine_progress(engine);
        tutti_owner_leave(engine);
    }
    return is_done(work) ? result_of(work) : TUTTI_PENDING;
}

enum tutti_status tutti_work_wait(struct tutti_work *work, uint64_t timeout_ns)
{
    if (!work) return tutti_fail(TUTTI_ERR_ARGUMENT, "work_wait: work is NULL");
    if (is_done(work)) return result_of(work);
    tutti_helper_learn(work->engine, first_start(work));
    bool complete = wait_until(work, timeout_ns == 0 ? TUTTI_NEVER : tutti_deadline_ns(timeout_ns));
    tutti_helper_waited(work->engine, complete ? last_end(work) : tutti_now_ns());
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
    uint64_t ns = last_end(work) - first_start(work);
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
