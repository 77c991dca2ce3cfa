/* SPDX-License-Identifier: BSD-3-Clause */

/* Who makes progress. One thread owns the engine at a time. A waiting caller takes the ownership if it is free; others
 * sleep until their call is complete, or until the owner leaves and hands over: to one of them, else to the helper
 * (helper.c). The owner spins a little, then sleeps in the transport's doorbell; who submits work or wants the
 * ownership ends that sleep. */

#include "engine/core.h"
#include "engine/flight/call.h"

#include <sched.h>

#define POLLS_A_PASS 64
#define SLEEP_WORDS 16
#define SPINS_ENTER 64 /* 1 to 3 us */
/* Whom it waits for may be on the same CPU: it spins alone for no longer than an answer takes, then lets others run. */
#define SPIN_ALONE_NS UINT64_C(2000)
/* Turns given up before a sleep where ranks outnumber CPUs: up to some eight, each spares more sleeps than it costs. */
#define YIELDS 8
#define LOOKS 8 /* between two passes of who spins */
/* So much longer it spins while a lane is in a call: all of its group are, too, and whoever sleeps lets all wait. */
#define SPIN_CALLING 8

/* ---- ownership ---- */

bool tutti_owner_try(struct tutti_engine *engine)
{
    uint32_t free_word = 0;
    return atomic_load(&engine->want) == 0 && atomic_compare_exchange_strong(&engine->owned, &free_word, 1);
}

void tutti_owner_kick(struct tutti_engine *engine)
{
    if (atomic_load(&engine->sleeping) == 0) return;
    pthread_mutex_lock(&engine->lock);
    for (struct tutti_port *port = engine->ports; port; port = port->next) port->transport->ops->wake(port->transport);
    pthread_mutex_unlock(&engine->lock);
}

/* Whether the owner gives way while one spins: one that is awake does so after its next pass. */
static bool owner_leaves(struct tutti_engine *engine)
{
    if (atomic_load_explicit(&engine->spin_ns, memory_order_relaxed) == 0) return false;
    for (int i = 0; i < SPINS_ENTER; i++) {
        if (atomic_load_explicit(&engine->owned, memory_order_relaxed) == 0) return true;
        tutti_cpu_relax();
    }
    return false;
}

void tutti_owner_enter(struct tutti_engine *engine)
{
    uint32_t free_word = 0;

    atomic_fetch_add(&engine->want, 1);
    while (!atomic_compare_exchange_strong(&engine->owned, &free_word, 1)) {
        tutti_owner_kick(engine);
        if (!owner_leaves(engine)) tutti_futex_wait(&engine->owned, 1, tutti_deadline_ns(TUTTI_TICK_NS));
        free_word = 0;
    }
    atomic_fetch_sub(&engine->want, 1);
}

/* Somebody must own while there is work: a waiting caller, else the helper. */
void tutti_owner_hand_over(struct tutti_engine *engine)
{
    bool found = false;

    if (atomic_load(&engine->want) > 0 || atomic_load(&engine->owned)) return;
    if (atomic_load(&engine->n_waiters) > 0) {
        pthread_mutex_lock(&engine->lock);
        if (engine->waiters) {
            found = true;
            atomic_store(&engine->waiters->word, 1);
            tutti_futex_wake(&engine->waiters->word, 1);
        }
        pthread_mutex_unlock(&engine->lock);
    }
    if (!found && atomic_load(&engine->n_inflight) > 0) tutti_helper_call(engine);
}

void tutti_owner_leave(struct tutti_engine *engine)
{
    atomic_store(&engine->owned, 0);
    if (atomic_load(&engine->want) > 0) tutti_futex_wake(&engine->owned, UINT32_MAX);
    tutti_owner_hand_over(engine);
}

/* ---- one pass ---- */

static bool absorb(struct tutti_engine *engine)
{
    if (!atomic_load(&engine->has_submitted)) return false;
    pthread_mutex_lock(&engine->lock);
    struct tutti_work *work = engine->submitted;
    engine->submitted = NULL;
    engine->submitted_end = &engine->submitted;
    atomic_store(&engine->has_submitted, false);
    pthread_mutex_unlock(&engine->lock);
    while (work) {
        struct tutti_work *next = work->next;
        work->next = NULL;
        engine->stats.calls_started++;
        tutti_team_absorb(work->team, work);
        work = next;
    }
    return true;
}

/* A peer wrote nonsense: every team of the port ends. */
static void port_broken(struct tutti_port *port)
{
    struct tutti_error error = *tutti_last_error();

    for (uint32_t b = 0; b < TUTTI_TEAM_BUCKETS; b++)
        for (struct tutti_team *team = port->buckets[b]; team; team = team->hash_next)
            if (!team->failed) tutti_team_break(team, error.status, -1, NULL, TUTTI_NO_STEP, error.text);
}

static bool port_poll(struct tutti_engine *engine, struct tutti_port *port)
{
    struct tutti_transport *t = port->transport;
    struct tutti_arrival arrival;
    bool any = tutti_port_failures(port);

    for (uint32_t i = 0; i < POLLS_A_PASS; i++) {
        enum tutti_status status = t->ops->poll(t, &arrival);
        if (status == TUTTI_AGAIN) {
            port->drained = engine->pass;
            break;
        }
        any = true;
        if (status < 0) {
            port_broken(port);
            break;
        }
        tutti_port_deliver(engine, port, &arrival);
        t->ops->release(t);
    }
    return any;
}

bool tutti_engine_progress(struct tutti_engine *engine)
{
    bool any = absorb(engine);

    engine->pass++;
    for (struct tutti_port *port = engine->ports; port; port = port->next) any |= port_poll(engine, port);
    for (struct tutti_team *team = engine->busy, *next; team; team = next) {
        next = team->next;
        any |= tutti_team_run(team);
    }
    if (engine->busy) {
        uint64_t now = tutti_now_ns();
        if (now >= engine->next_watch_ns) tutti_engine_watch(engine, now);
    }
    return any;
}

/* ---- sleeping as owner ---- */

/* What one sleep waits for: words of transports, then of runners. */
struct bed {
    _Atomic uint32_t *words[SLEEP_WORDS];
    uint32_t expected[SLEEP_WORDS];
    struct tutti_transport *transports[SLEEP_WORDS];
    struct tutti_runner *runners[SLEEP_WORDS];
    uint32_t n, n_transports, n_runners;
    uint64_t deadline_ns;
    bool quiet; /* nothing has happened yet */
};

static void sleep_until(struct bed *bed, uint64_t ns)
{
    if (ns < bed->deadline_ns) bed->deadline_ns = ns;
}

/* Whether there is room for another word; else what it stands for is looked at in short turns. */
static bool has_room(struct bed *bed)
{
    if (bed->n < SLEEP_WORDS) return true;
    sleep_until(bed, tutti_deadline_ns(TUTTI_NS_PER_MS));
    return false;
}

static void ports_begin(struct bed *bed, const struct tutti_engine *engine)
{
    for (struct tutti_port *port = engine->ports; port; port = port->next) {
        struct tutti_transport *t = port->transport;
        if (port->n_work == 0 && engine->ports->next) continue;
        if (!has_room(bed)) return;
        bed->quiet &= t->ops->sleep_begin(t, &bed->expected[bed->n]) && !tutti_control_alarmed(port->control);
        bed->words[bed->n++] = t->doorbell;
        bed->transports[bed->n_transports++] = t;
        if (t->ops->size > offsetof(struct tutti_transport_ops, next_event_ns) && t->ops->next_event_ns)
            sleep_until(bed, t->ops->next_event_ns(t));
    }
}

static void runner_begin(struct bed *bed, struct tutti_runner *runner)
{
    if (!bed->quiet || !has_room(bed)) return;
    bed->quiet = runner->ops->sleep_begin(runner, &bed->words[bed->n], &bed->expected[bed->n]);
    bed->runners[bed->n_runners++] = runner;
    bed->n += bed->quiet;
}

static void runners_begin(struct bed *bed, const struct tutti_engine *engine)
{
    for (const struct tutti_team *team = engine->busy; team && bed->quiet; team = team->next) {
        if (team->followed) sleep_until(bed, team->look_ns);
        if (team->n_runners > 0) runner_begin(bed, team->order[tutti_runner_oldest(team)]->flight->runner);
        for (uint32_t l = 0; l < team->n_lanes; l++)
            if (team->lanes[l].slice) runner_begin(bed, tutti_calling_runner(&team->lanes[l]));
    }
}

static void owner_sleep(struct tutti_engine *engine, uint64_t until_ns)
{
    struct bed bed = {.quiet = true, .deadline_ns = tutti_deadline_ns(engine->tick_ns)};

    sleep_until(&bed, until_ns);
    sleep_until(&bed, engine->next_watch_ns);
    atomic_store(&engine->sleeping, 1);
    ports_begin(&bed, engine);
    runners_begin(&bed, engine);
    /* After sleep_begin, so that a kick from now on is seen by the futex. */
    if (bed.quiet && atomic_load(&engine->want) == 0 && !atomic_load(&engine->has_submitted) &&
        !atomic_load(&engine->helper.stop)) {
        engine->stats.sleeps++;
        if (bed.n == 1)
            tutti_futex_wait(bed.words[0], bed.expected[0], bed.deadline_ns);
        else if (bed.n > 1)
            tutti_futex_wait_any(bed.words, bed.expected, bed.n, bed.deadline_ns);
        else
            tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    for (uint32_t i = 0; i < bed.n_runners; i++) bed.runners[i]->ops->sleep_end(bed.runners[i]);
    for (uint32_t i = 0; i < bed.n_transports; i++) bed.transports[i]->ops->sleep_end(bed.transports[i]);
    atomic_store(&engine->sleeping, 0);
}

/* Runners look at words of their peers: sooner than passes do. Whether anything happened. */
static bool linger(struct tutti_engine *engine, bool alone)
{
    for (int i = 0; i < LOOKS; i++) {
        bool any = false;
        for (struct tutti_team *team = engine->busy, *next; team; team = next) {
            next = team->next;
            if (team->n_runners > 0) any = true;
            if (team->n_runners > 0 && tutti_team_run_runners(team)) return true;
            if (team->failed || !tutti_team_is_calling(team)) continue;
            any = true;
            if (tutti_team_call(team)) return true;
        }
        if (alone)
            tutti_cpu_relax();
        else if (!any)
            break;
    }
    return false;
}

static bool is_calling(const struct tutti_engine *engine)
{
    for (const struct tutti_team *team = engine->busy; team; team = team->next)
        if (tutti_team_is_calling(team)) return true;
    return false;
}

void tutti_engine_own(struct tutti_engine *engine, bool (*ready)(const void *), const void *arg, uint64_t until_ns)
{
    uint64_t spin = atomic_load_explicit(&engine->spin_ns, memory_order_relaxed), idle_ns = 0;
    /* The helper works beside the caller's threads: a turn that it gave up would be theirs for as long as the scheduler
     * lets them, while who sleeps is let in when it is woken. */
    bool yields = !atomic_load(&engine->helper.owns);
    bool lingered = false;
    int n_yields = 0;

    for (;;) {
        bool any = lingered || tutti_engine_progress(engine);
        lingered = false;
        if (ready(arg) || atomic_load(&engine->want) > 0) return;
        if (any) {
            idle_ns = 0, n_yields = 0;
            continue;
        }
        uint64_t now = tutti_now_ns();
        if (now >= until_ns) return;
        if (idle_ns == 0) idle_ns = now;
        bool spins = now - idle_ns < (is_calling(engine) ? SPIN_CALLING * spin : spin),
             alone = spins && now - idle_ns < SPIN_ALONE_NS;
        if (spins && (alone || yields)) lingered = linger(engine, alone);
        if (alone || lingered) continue;
        if (yields && (spins || (spin == 0 && n_yields < YIELDS))) {
            sched_yield();
            n_yields++;
        } else {
            owner_sleep(engine, until_ns);
            idle_ns = 0;
        }
    }
}

/* ---- waiting ---- */

static void waiter_sleep(struct tutti_engine *engine, bool (*ready)(const void *), const void *arg,
                         struct tutti_work *work, uint64_t until_ns)
{
    struct tutti_waiter me = {.work = work};
    uint64_t deadline = tutti_deadline_ns(work ? TUTTI_NS_PER_S : 10 * TUTTI_NS_PER_MS);

    if (until_ns < deadline) deadline = until_ns;
    pthread_mutex_lock(&engine->lock);
    me.next = engine->waiters;
    if (me.next) me.next->previous = &me;
    engine->waiters = &me;
    pthread_mutex_unlock(&engine->lock);
    atomic_fetch_add(&engine->n_waiters, 1);
    if (work) atomic_fetch_add(&work->waiting, 1);
    /* Who completes or leaves looks at the counts after doing so. */
    if (!ready(arg) && (atomic_load(&engine->owned) || atomic_load(&engine->want) > 0))
        tutti_futex_wait(&me.word, 0, deadline);
    if (work) atomic_fetch_sub(&work->waiting, 1);
    atomic_fetch_sub(&engine->n_waiters, 1);
    pthread_mutex_lock(&engine->lock);
    if (me.next) me.next->previous = me.previous;
    *(me.previous ? &me.previous->next : &engine->waiters) = me.next;
    pthread_mutex_unlock(&engine->lock);
}

void tutti_engine_wait(struct tutti_engine *engine, bool (*ready)(const void *), const void *arg,
                       struct tutti_work *work, uint64_t until_ns)
{
    bool mine = true;

    while (!ready(arg)) {
        if (until_ns != TUTTI_NEVER && tutti_now_ns() >= until_ns) break;
        mine = tutti_owner_try(engine);
        if (!mine && atomic_load(&engine->helper.owns)) {
            tutti_owner_enter(engine);
            mine = true;
        }
        if (mine) {
            if (!ready(arg)) tutti_engine_own(engine, ready, arg, until_ns);
            tutti_owner_leave(engine);
        } else {
            waiter_sleep(engine, ready, arg, work, until_ns);
        }
    }
    if (!mine)
        tutti_owner_hand_over(engine); /* the ownership may have been meant for this thread, which needs it no more */
}
