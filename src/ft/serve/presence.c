/* SPDX-License-Identifier: BSD-3-Clause */
/* The death of a process is known by its connections, which the kernel closes: a group whose last words came over one
 * that has ended is gone, unless it is heard again within a grace, as one that only dials anew. */
#include "ft/serve/jobs.h"

#include <string.h>

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
static void on_due(struct tutti_loop_timer *timer)
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
        if (job) serve_settle(job);
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
    serve->absence.due = on_due;
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
