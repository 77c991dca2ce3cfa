/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs by their names, and what each has to remember of itself. */
#include "ft/serve/jobs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AGAIN_NS (20 * TUTTI_NS_PER_MS)
#define AWAY_SHARE 50 /* of the heartbeat timeout: a tick that is later by that much means that this thread was away */

struct tutti_lighthouse_time serve_now(void)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    return (struct tutti_lighthouse_time){tutti_now_ns(),
                                          (int64_t)wall.tv_sec * (int64_t)TUTTI_NS_PER_S + wall.tv_nsec};
}

struct tutti_lighthouse_time serve_job_now(struct serve_job *job)
{
    const struct tutti_lighthouse_time t = serve_now();
    const uint64_t most = job->serve->config.options.heartbeat_timeout_ns / AWAY_SHARE;

    if (job->due_ns < t.now && t.now - job->due_ns > most) tutti_lighthouse_away(job->machine, t.now);
    return t;
}

/* ---- what happened ---- */
void serve_note(struct serve_job *job, const char *format, ...)
{
    struct serve_event *event = &job->events[job->n_events++ % JOB_EVENTS];
    va_list args;

    event->wall_ns = serve_now().wall;
    va_start(args, format);
    vsnprintf(event->text, sizeof event->text, format, args);
    va_end(args);
    tutti_log(TUTTI_LOG_INFO, "job %s: %s", job->name, event->text);
}

static void on_lost(void *arg, const char *replica_id)
{
    struct serve_job *job = arg;
    const size_t n = strlen(replica_id) + 1;
    struct serve_lost *lost = job->subscribers ? tutti_alloc(sizeof(*lost) + n) : NULL, **end = &job->lost;

    job->n_lost++;
    if (lost) {
        memcpy(lost->replica_id, replica_id, n);
        while (*end) end = &(*end)->next;
        *end = lost;
    }
    serve_note(job, "%.64s is not heard any more", replica_id);
}

/* Names of one quorum that the other lacks: how many, and the first. */
static uint32_t count_new(const struct tutti_quorum *quorum, const struct tutti_quorum *other, const char **first)
{
    uint32_t n = 0;

    for (uint32_t i = 0; quorum && i < quorum->n; i++) {
        if (other && tutti_quorum_find(other, quorum->members[i]->replica_id)) continue;
        if (n++ == 0) *first = quorum->members[i]->replica_id;
    }
    return n;
}

static void note_quorum(struct serve_job *job, const struct tutti_quorum *quorum)
{
    const char *in = "", *out = "";
    const uint32_t n_in = count_new(quorum, job->noted, &in), n_out = count_new(job->noted, quorum, &out);
    char text[EVENT_TEXT] = "";

    if (n_in > 0) tutti_append(text, sizeof text, ", %u new: %.60s%s", n_in, in, n_in > 1 ? " ..." : "");
    if (n_out > 0) tutti_append(text, sizeof text, ", %u gone: %.60s%s", n_out, out, n_out > 1 ? " ..." : "");
    if (n_in + n_out == 0) tutti_append(text, sizeof text, ", the same members: a step was not committed");
    serve_note(job, "quorum %" PRId64 ": %" PRIu32 " groups%s", quorum->id, quorum->n, text);
}

static bool is_default(const struct serve_job *job)
{
    return strcmp(job->name, SERVE_DEFAULT) == 0;
}

/* When it is to be forgotten, as it is now. */
static uint64_t idle_due(const struct serve_job *job)
{
    return is_default(job) || job->subscribers ? UINT64_MAX : tutti_lighthouse_idle(job->machine);
}

void serve_schedule(struct serve_job *job)
{
    /* The machine's count is the job's, too: it is given back when another is told. */
    struct tutti_quorum *last = (struct tutti_quorum *)(uintptr_t)tutti_lighthouse_last(job->machine);
    uint64_t due = job->due_ns = tutti_lighthouse_due(job->machine);

    if (last && (!job->noted || last->id != job->noted->id)) {
        note_quorum(job, last);
        tutti_quorum_give(job->noted);
        job->noted = last;
        last->refs++;
        job->n_quorums++;
    }
    if (job->lost) serve_notify_lost(job);
    if (idle_due(job) < due) due = idle_due(job);
    if (due == UINT64_MAX)
        tutti_loop_stop(job->serve->loop, &job->timer);
    else
        tutti_loop_at(job->serve->loop, &job->timer, due);
}

void serve_job_tick(struct serve_job *job)
{
    tutti_lighthouse_tick(job->machine, serve_job_now(job));
    serve_schedule(job);
}

/* ---- life ---- */
struct serve_job *serve_job_find(struct tutti_serve *serve, const char *name)
{
    struct serve_job **link = &serve->jobs, *job;

    while ((job = *link) && strcmp(job->name, name) != 0) link = &job->next;
    if (!job) return NULL;
    *link = job->next; /* it comes first: it is asked for again soon */
    job->next = serve->jobs;
    serve->jobs = job;
    return job;
}

static void refuse(void *arg, uint64_t request)
{
    (void)arg;
    tutti_rpc_fail((struct tutti_rpc_call *)(uintptr_t)request, TUTTI_RPC_UNAVAILABLE, "another lighthouse leads now");
}

static void end(struct serve_job *job)
{
    struct serve_job **link = &job->serve->jobs;

    tutti_lighthouse_requests(job->machine, refuse, NULL);
    while (job->subscribers) {
        struct serve_subscriber *subscriber = job->subscribers;
        job->subscribers = subscriber->next;
        if (subscriber->call) refuse(NULL, (uintptr_t)subscriber->call);
        tutti_free(subscriber);
    }
    while (job->lost) {
        struct serve_lost *lost = job->lost;
        job->lost = lost->next;
        tutti_free(lost);
    }

    while (*link != job) link = &(*link)->next;
    *link = job->next;
    job->serve->n_jobs--;
    tutti_loop_stop(job->serve->loop, &job->timer);
    tutti_lighthouse_destroy(job->machine);
    tutti_quorum_give(job->noted);
    serve_view_fini(&job->view);
    tutti_ledger_end(&job->ledger);
    for (int kind = 0; kind < N_SHOWS; kind++) free(job->shown[kind].text);
    tutti_free(job);
}

/* Its number is in the council's table, or below the floor. */
static void forget(struct serve_job *job)
{
    const struct tutti_quorum *last = tutti_lighthouse_last(job->machine);

    tutti_log(TUTTI_LOG_INFO, "job %s: nobody was heard for long, it is forgotten", job->name);
    if (last && last->id > job->serve->floor) job->serve->floor = last->id;
    end(job);
}

/* A lighthouse that leads no more does nothing: the council says so soon, and then it has no jobs, or it leads again.
 */
static void on_due(struct tutti_loop_timer *timer)
{
    struct serve_job *job = (struct serve_job *)((char *)timer - offsetof(struct serve_job, timer));

    if (!serve_leads(job->serve))
        tutti_loop_at(job->serve->loop, timer, tutti_now_ns() + AGAIN_NS);
    else if (idle_due(job) <= tutti_now_ns())
        forget(job);
    else
        serve_job_tick(job);
}

/* Drops the job without a quorum that was not asked for longest: anybody can invent names. */
static bool make_room(struct tutti_serve *serve)
{
    struct serve_job *last = NULL;

    if (serve->n_jobs < JOB_MOST) return true;
    for (struct serve_job *job = serve->jobs; job; job = job->next)
        if (!tutti_lighthouse_last(job->machine) && !is_default(job)) last = job;
    if (last) end(last);
    return last != NULL;
}

static struct serve_job *make(struct tutti_serve *serve, const char *name)
{
    struct serve_job *job = tutti_alloc(sizeof(*job));
    const struct tutti_lighthouse_out out = {
        .arg = job, .answer = serve_answer, .commit = serve_commit, .lost = on_lost};

    if (!job) {
        tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a job");
        return NULL;
    }
    if (tutti_lighthouse_create(&serve->config.options, &out, &job->machine) < 0) {
        tutti_free(job);
        return NULL;
    }
    job->serve = serve;
    serve_view_init(&job->view, serve_now().wall);
    job->due_ns = UINT64_MAX;
    job->timer.due = on_due;
    memcpy(job->name, name, strlen(name));
    job->next = serve->jobs;
    serve->jobs = job;
    serve->n_jobs++;
    if (serve_ledger_begin(job) >= 0) return job;
    end(job);
    return NULL;
}

bool serve_is_job_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n = strlen(name);

    return n > 0 && n <= JOB_NAME && strspn(name, allowed) == n;
}

struct serve_job *serve_job(struct tutti_serve *serve, const char *name)
{
    struct serve_job *job = serve_job_find(serve, name);

    if (job) return job;
    if (!serve_is_job_name(name))
        tutti_fail(TUTTI_ERR_ARGUMENT, "a job's name has 1 to %d of the characters a-z A-Z 0-9 . _ -", JOB_NAME);
    else if (!make_room(serve))
        tutti_fail(TUTTI_ERR_MEMORY, "this lighthouse has %d jobs already", JOB_MOST);
    else
        job = make(serve, name);
    return job;
}

void serve_jobs_end(struct tutti_serve *serve)
{
    while (serve->jobs) end(serve->jobs);
}

/* ---- the death of a process is known by its connections, which the kernel closes: a group whose last words came
 * over one that has ended is gone, unless it is heard again within a grace, as one that only dials anew ---- */
#define GRACE_NS (200 * TUTTI_NS_PER_MS)
#define PRESENT_MOST 64 /* groups that one connection speaks for; of others the heartbeats tell */

/* A group that speaks on a connection, then on the list of those that may be gone. */
struct serve_present {
    struct serve_present *next;
    uint64_t heard_ns, due_ns;
    char job[JOB_NAME + 1];
    char replica_id[];
};

void serve_present(const char *job, struct tutti_rpc_call *call, const char *replica_id, uint64_t now)
{
    struct serve_present **link = (struct serve_present **)tutti_rpc_kept(call), *present;
    const size_t n = strlen(replica_id) + 1;
    uint32_t count = 0;

    if (tutti_rpc_is_passed_on(call)) return; /* the connection is another lighthouse's */

    for (; (present = *link); link = &present->next, count++)
        if (strcmp(present->replica_id, replica_id) == 0 && strcmp(present->job, job) == 0) break;
    if (!present && count < PRESENT_MOST && (present = *link = tutti_alloc(sizeof(*present) + n))) {
        snprintf(present->job, sizeof present->job, "%s", job);
        memcpy(present->replica_id, replica_id, n);
    }
    if (present) present->heard_ns = now;
}

void serve_present_there(struct tutti_rpc_call *call, uint64_t now)
{
    for (struct serve_present *present = *tutti_rpc_kept(call); present; present = present->next)
        present->heard_ns = now;
}

/* All have the same grace: the first on the list is the first that is due. */
static void on_absence_due(struct tutti_loop_timer *timer)
{
    struct tutti_serve *serve = (struct tutti_serve *)((char *)timer - offsetof(struct tutti_serve, absence));
    struct serve_present *present;

    while ((present = serve->absent) && present->due_ns <= tutti_now_ns()) {
        struct serve_job *job = serve_job_find(serve, present->job);
        serve->absent = present->next;
        if (!serve_leads(serve))
            serve_forward_leave(serve, present->job, present->replica_id,
                                (tutti_now_ns() - present->heard_ns) / TUTTI_NS_PER_MS);
        else if (job)
            tutti_lighthouse_leave_unless(job->machine, present->replica_id, present->heard_ns, serve_job_now(job));
        if (job) serve_schedule(job);
        tutti_free(present);
    }
    if (present) tutti_loop_at(serve->loop, timer, present->due_ns);
}

void serve_gone(void *arg, void *kept)
{
    struct tutti_serve *serve = arg;
    const uint64_t due = tutti_now_ns() + GRACE_NS;

    *(serve->absent ? &serve->last_absent->next : &serve->absent) = kept;
    for (struct serve_present *present = kept; present; present = present->next)
        present->due_ns = due, serve->last_absent = present;
    serve->absence.due = on_absence_due;
    tutti_loop_at(serve->loop, &serve->absence, serve->absent->due_ns);
}

void serve_absent_end(struct tutti_serve *serve)
{
    tutti_loop_stop(serve->loop, &serve->absence);
    while (serve->absent) {
        struct serve_present *present = serve->absent;
        serve->absent = present->next;
        tutti_free(present);
    }
}
