/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of another maker's library on streams: their marks, their order, their failures. */
#include "backend/watch_library.h"

#include <inttypes.h>
#include <stdio.h>

#define NAP_NS UINT64_C(50000)
#define FULL_NAP_NS (UINT64_C(100) * 1000)

static struct watch_mark *mark_of(struct watch_marks *m, uint64_t i)
{
    return &m->of[i % WATCH_MARKS];
}

/* ---- a call ---- */

enum tutti_status watch_state(const struct watched *w)
{
    struct tutti_error error;
    return tutti_team_state(w->team, &error) < 0 ? tutti_fail_record(&error) : TUTTI_OK;
}

static bool is_full(const struct watch_marks *m)
{
    return atomic_load(&m->watched->n_enqueued) - atomic_load(&m->watched->n_over) >= WATCH_MARKS - 1;
}

/* Time counts while the first one has its turn. */
enum tutti_status watch_marks_wait(struct watch_marks *m, uint64_t timeout_ns)
{
    uint64_t before = 0, until = 0;
    while (is_full(m)) {
        const uint64_t over = atomic_load(&m->watched->n_over);
        const bool waits = until == 0 || over != before || !atomic_load(&m->turn_ns);
        if (waits) before = over, until = tutti_deadline_ns(timeout_ns);
        TUTTI_TRY(watch_state(m->watched));
        if (tutti_now_ns() >= until)
            return tutti_fail(TUTTI_ERR_TIMEOUT, TUTTI_SAYS_TIMED_OUT ", in which none of %d calls in flight ended",
                              tutti_says_ms(timeout_ns), WATCH_MARKS - 1);
        watch_hurry(m->watched); /* it asks at once */
        tutti_sleep_ns(FULL_NAP_NS);
    }
    return TUTTI_OK;
}

void watch_marks_next(struct watch_marks *m, uint64_t launch, uint64_t timeout_ns)
{
    struct watch_mark *mark = mark_of(m, atomic_load(&m->watched->n_enqueued));
    atomic_store(&mark->launch, launch ? launch : watch_log_round(watch_own_log(m->watched)));
    atomic_store(&mark->timeout_ns, timeout_ns);
}

static enum tutti_status mark_open(const struct watch_marks *m, struct watch_mark *mark)
{
    if (!mark->begun) TUTTI_TRY(m->gpu->ops->event_create(m->gpu, false, &mark->begun));
    return mark->over ? TUTTI_OK : m->gpu->ops->event_create(m->gpu, false, &mark->over);
}

enum tutti_status watch_marks_begin(struct watch_marks *m, void *stream)
{
    const uint64_t i = atomic_load(&m->watched->n_enqueued);
    struct watch_mark *mark = mark_of(m, i);
    TUTTI_TRY(mark_open(m, mark));
    if (i > 0 && !tutti_device_one_stream(m->gpu, stream, m->stream))
        TUTTI_TRY(m->gpu->ops->stream_wait(m->gpu, stream, mark_of(m, i - 1)->over));
    return m->gpu->ops->event_record(m->gpu, mark->begun, stream);
}

enum tutti_status watch_marks_end(struct watch_marks *m, void *stream)
{
    struct watch_mark *mark = mark_of(m, atomic_load(&m->watched->n_enqueued));
    atomic_store(&mark->items, atomic_load(&watch_own_log(m->watched)->n_items));
    TUTTI_TRY(m->gpu->ops->event_record(m->gpu, mark->over, stream));
    m->stream = stream;
    atomic_fetch_add(&m->watched->n_enqueued, 1);
    watch_wake(m->watched);
    return TUTTI_OK;
}

void watch_marks_post(const struct watch_marks *m, const struct tutti_backend_message *messages, size_t n,
                      uint64_t timeout_ns)
{
    struct watch_log *log = watch_own_log(m->watched);
    const uint64_t launch = watch_log_round(log);
    for (size_t i = 0; i < n; i++)
        watch_log_message(log, launch, messages[i].peer, messages[i].send, messages[i].bytes, timeout_ns);
}

/* ---- waiting for peers, and failing ---- */

enum tutti_status watch_go_on(const struct watched *w, uint64_t timeout_ns, uint64_t deadline_ns, const char *what)
{
    struct tutti_board call;
    TUTTI_TRY(watch_state(w));
    for (uint32_t r = 0; r < w->n; r++) {
        const enum tutti_life life = r == w->me ? TUTTI_LIFE_ALIVE : watch_life(w, r, &call);
        if (!tutti_life_gone(life)) continue;
        return tutti_fail(life == TUTTI_LIFE_DEAD ? TUTTI_ERR_PEER_DEAD : TUTTI_ERR_PEER_LEFT,
                          TUTTI_SAYS_CLOSED ": rank %u %s while rank %u was waiting for %s", r,
                          life == TUTTI_LIFE_DEAD ? "died" : "left", w->me, what);
    }
    if (tutti_now_ns() >= deadline_ns)
        return tutti_fail(TUTTI_ERR_TIMEOUT, "rank %u " TUTTI_SAYS_TIMED_OUT " while it was waiting for %s", w->me,
                          tutti_says_ms(timeout_ns), what);
    tutti_sleep_ns(NAP_NS);
    return TUTTI_OK;
}

/* The library notices a dead peer first, but can not name it. Waits for the watch, which can. */
void watch_echo_wait(const struct watched *w)
{
    const uint64_t until = tutti_deadline_ns(WATCH_ECHO_NS);
    while (!tutti_team_failed(w->team) && tutti_now_ns() < until) tutti_sleep_ns(NAP_NS);
}

enum tutti_status watch_fail(struct watched *w, const char *what, uint64_t seq)
{
    const struct tutti_error error = *tutti_last_error();
    struct tutti_error told;
    TUTTI_TRY(watch_state(w)); /* the failure that this may be the echo of */
    char number[24] = "";
    if (seq) snprintf(number, sizeof number, " #%" PRIu64, seq); /* messages have none */
    tutti_error_set(&told, error.status, "%s%s failed on rank %u: %.300s", what, number, w->me, error.text);
    told.peer = -1;
    told.step = TUTTI_NO_STEP;
    told.seq = seq;
    w->ops->stop(w);
    tutti_team_fail(w->team, &told, true);
    return tutti_fail_record(&told);
}

/* ---- what is known of calls ---- */

/* The rank that a launch waits for: one that has not made its part; else one that has yet to make anything that this
 * rank has made. */
static uint32_t absent(const struct watched *w, uint64_t launch)
{
    uint32_t behind = w->me == 0 && w->n > 1 ? 1 : 0;
    for (uint32_t q = 0; q < w->n; q++) {
        const struct watch_pair pair = watch_pair_of(w, q);
        if (q == w->me) continue;
        if (!watch_log_made(&pair, launch)) return q;
        if (watch_log_behind(&pair)) behind = q;
    }
    return behind;
}

static bool tell_late(struct watch_marks *m, const struct watch_mark *mark)
{
    const uint64_t launch = atomic_load(&mark->launch);
    watch_tell_late(m->watched, launch, absent(m->watched, launch), atomic_load(&mark->timeout_ns));
    return true;
}

static bool is_late(const struct watch_mark *mark, uint64_t since_ns, uint64_t now)
{
    return since_ns && now >= since_ns && now - since_ns >= atomic_load(&mark->timeout_ns);
}

/* The turn is read twice. */
bool watch_marks_late(struct watch_marks *m, uint64_t now)
{
    const struct watch_mark *stuck = mark_of(m, atomic_load(&m->watched->n_enqueued));
    if (is_late(stuck, atomic_load(&m->within_ns), now)) return tell_late(m, stuck);
    const uint64_t i = atomic_load(&m->watched->n_over);
    const struct watch_mark *first = mark_of(m, i);
    if (!is_late(first, atomic_load(&m->turn_ns), now) || atomic_load(&m->watched->n_over) != i) return false;
    return tell_late(m, first);
}

enum tutti_life watch_library_life(const struct watched *w, uint32_t peer, struct tutti_board *call)
{
    const struct watch_pair pair = watch_pair_of(w, peer);
    const enum tutti_life known = w->control->ops->life(w->control, w->members[peer]);
    const bool left = atomic_load(&pair.theirs->closed) && !atomic_load(&pair.theirs->made);
    if (known == TUTTI_LIFE_DEAD || !left) return watch_log_life(&pair, known, call);
    if (!watch_log_awaits(&pair, false, call)) (void)watch_log_last(pair.mine, call);
    return TUTTI_LIFE_LEFT;
}

/* ---- what the driver says ---- */

static void mark_over(struct watch_marks *m, const struct watch_mark *mark)
{
    struct watched *w = m->watched;
    struct watch_log *log = watch_own_log(w);
    const uint64_t seq = watch_launch_seq(atomic_load(&mark->launch));
    if (seq) atomic_store(&log->over, seq);
    if (!atomic_load(&w->captured)) atomic_store(&log->items_over, atomic_load(&mark->items));
    atomic_store(&m->turn_ns, 0);
    atomic_fetch_add(&w->n_over, 1);
}

/* Counts what is over; times what is not, from when its turn came. */
void watch_marks_ask(struct watch_marks *m)
{
    while (watch_is_in_flight(m->watched)) {
        const struct watch_mark *mark = mark_of(m, atomic_load(&m->watched->n_over));
        const enum tutti_status status = m->gpu->ops->event_query(m->gpu, mark->over);
        /* and nothing is over that was not */
        if (atomic_load(&m->stopped) || tutti_team_failed(m->watched->team)) return;
        if (status < 0) {
            char what[64];
            snprintf(what, sizeof what, "a call by %s", m->name);
            watch_fail(m->watched, what, watch_launch_seq(atomic_load(&mark->launch)));
            return;
        }
        if (status == TUTTI_OK) {
            mark_over(m, mark);
            continue;
        }
        if (!atomic_load(&m->turn_ns) && m->gpu->ops->event_query(m->gpu, mark->begun) == TUTTI_OK)
            atomic_store(&m->turn_ns, tutti_now_ns());
        return;
    }
}

/* ---- the end ---- */

void *watch_marks_last(const struct watch_marks *m)
{
    const uint64_t n = atomic_load(&m->watched->n_enqueued);
    return n ? m->of[(n - 1) % WATCH_MARKS].over : NULL;
}

bool watch_marks_over(struct watch_marks *m, uint64_t deadline_ns)
{
    void *event = watch_marks_last(m);
    while (event && !tutti_team_failed(m->watched->team)) {
        const enum tutti_status status = m->gpu->ops->event_query(m->gpu, event);
        if (status != TUTTI_PENDING) return status == TUTTI_OK;
        if (tutti_now_ns() >= deadline_ns) return false;
        tutti_sleep_ns(NAP_NS);
    }
    return !tutti_team_failed(m->watched->team);
}

bool watch_peers_done(const struct watched *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        const struct watch_pair pair = watch_pair_of(w, r);
        if (r == w->me || atomic_load(&pair.theirs->closed)) continue;
        if (tutti_life_gone(w->control->ops->life(w->control, w->members[r]))) continue;
        if (atomic_load(&w->captured) || !watch_log_done(&pair)) return false;
    }
    return true;
}

void watch_marks_free(struct watch_marks *m)
{
    for (uint32_t i = 0; i < WATCH_MARKS; i++) {
        m->gpu->ops->event_destroy(m->gpu, m->of[i].begun);
        m->gpu->ops->event_destroy(m->gpu, m->of[i].over);
    }
}
