/* SPDX-License-Identifier: BSD-3-Clause */
/* How a communicator ends: its state, abort, flush, destruction, and the shutting down that a context's end does to it.
 */
#include "comm/call/device.h"
#include "comm/life/life.h"

#include <stdio.h>

#define NAP_FIRST_NS (20 * UINT64_C(1000))
#define WHERE_MAX 256

enum tutti_status tutti_comm_state(struct tutti_comm *comm, struct tutti_error *error)
{
    if (!comm) {
        enum tutti_status status = tutti_fail(TUTTI_ERR_ARGUMENT, "comm_state: comm is NULL");
        if (error) *error = *tutti_last_error();
        return status;
    }
    if (tutti_comm_is_inherited(comm)) {
        enum tutti_status status = tutti_context_check(comm->context, "comm_state");
        if (error) *error = *tutti_last_error();
        return status;
    }
    struct tutti_error found = {.status = TUTTI_OK, .peer = -1, .step = TUTTI_NO_STEP, .collective = ""};
    tutti_comm_hold(comm);
    int phase = atomic_load(&comm->phase);
    if (phase == TUTTI_COMM_CREATING) {
        found.status = TUTTI_PENDING;
    } else if (phase == TUTTI_COMM_READY) {
        if (pthread_mutex_trylock(&comm->lock) == 0) { /* else the device may be changed */
            tutti_comm_hear_device(comm);
            pthread_mutex_unlock(&comm->lock);
        }
        if (!tutti_survive_state(comm, &found)) tutti_team_state(comm->team, &found);
    } else {
        pthread_mutex_lock(&comm->lock);
        found = comm->error;
        pthread_mutex_unlock(&comm->lock);
    }
    tutti_comm_leave(comm);
    if (error) *error = found;
    return found.status < 0 ? tutti_fail_record(&found) : found.status;
}

static void record(struct tutti_comm *comm, const struct tutti_error *error)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->error.status == TUTTI_OK) comm->error = *error;
    pthread_mutex_unlock(&comm->lock);
}

/* where: " in all_reduce #4 ...", or nothing. */
static void abort_error(const struct tutti_comm *comm, const char *where, const char *reason, struct tutti_error *out)
{
    bool said = reason && reason[0];
    tutti_error_set(out, TUTTI_ERR_ABORTED, "rank %d aborted the communicator%s%s%s",
                    (int)(comm->team ? tutti_said_rank(comm->team, (uint32_t)comm->rank) : (uint32_t)comm->rank), where,
                    said ? ": " : "", said ? reason : "");
    out->peer = comm->rank;
}

/* A call that is carried out past the engine touches its buffers until it sees the failure. */
static void wait_for_turn(struct tutti_comm *comm)
{
    uint64_t deadline = tutti_deadline_ns(TUTTI_NS_PER_S);
    while (atomic_load(&comm->turn) && tutti_now_ns() < deadline) tutti_sleep_ns(NAP_FIRST_NS);
}

/* A signal handler that runs while its thread is in a call would wait for what the thread holds. */
static bool is_interrupting(const struct tutti_comm *comm)
{
    return tutti_inside > 0 || atomic_load(&comm->turn) == (uintptr_t)&tutti_inside;
}

void tutti_comm_abort(struct tutti_comm *comm, const char *reason)
{
    if (!comm || tutti_comm_is_inherited(comm)) return;
    if (is_interrupting(comm))
        (void)tutti_fail(TUTTI_ERR_ARGUMENT,
                         "comm_abort on rank %d: this thread is inside a call, so this is a signal handler or the "
                         "function of an operation: abort from another thread",
                         (int)comm->rank);
    else
        tutti_comm_end_calls(comm, reason);
}

void tutti_comm_end_calls(struct tutti_comm *comm, const char *reason)
{
    struct tutti_error error;
    abort_error(comm, "", reason, &error);
    tutti_survive_abort(comm, reason);
    tutti_comm_hold(comm);
    if (atomic_load(&comm->phase) == TUTTI_COMM_CREATING) {
        record(comm, &error);
        atomic_store(&comm->cancel, true);
    }
    /* Read again: the creation may have ended before it saw the flag. */
    if (atomic_load(&comm->phase) == TUTTI_COMM_READY) {
        char where[WHERE_MAX] = " ";
        uint64_t seq = tutti_team_where(comm->team, where + 1, sizeof where - 1);
        abort_error(comm, where, reason, &error);
        error.seq = seq;
        struct tutti_error ended = {.status = TUTTI_OK}; /* those who go on without this rank do not hear it */
        tutti_survive_state(comm, &ended);
        tutti_team_fail(comm->team, &error, ended.status >= 0);
        pthread_mutex_lock(&comm->lock); /* the device may be changed */
        tutti_comm_stop_device(comm, false);
        pthread_mutex_unlock(&comm->lock);
        wait_for_turn(comm);
    }
    tutti_comm_leave(comm);
}

enum tutti_status tutti_comm_flush(struct tutti_comm *comm, uint64_t timeout_ns)
{
    if (!comm) return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_flush: comm is NULL");
    TUTTI_TRY(tutti_context_check(comm->context, "comm_flush"));
    bool idle = true; /* as one is that was never made, or is shut */
    tutti_comm_hold(comm);
    if (atomic_load(&comm->phase) == TUTTI_COMM_READY) {
        uint64_t until_ns = timeout_ns > 0 ? tutti_deadline_ns(timeout_ns) : TUTTI_NEVER;
        idle = tutti_survive_idle(comm, until_ns) && tutti_comm_wait_device(comm, until_ns) &&
               tutti_team_wait(comm->team, until_ns);
    }
    tutti_comm_leave(comm);
    return idle ? TUTTI_OK : TUTTI_PENDING;
}

/* Device and back ends go with the team: works say how they ended, then nothing is called any more. */
static void close_all(struct tutti_comm *comm, uint64_t deadline_ns)
{
    if (comm->team) tutti_comm_close_device(comm, deadline_ns);
    tutti_comm_forget(comm);
    if (comm->team) tutti_team_destroy(comm->team);
    comm->team = NULL;
    tutti_comm_free_device(comm);
    tutti_comm_close_backend(comm, deadline_ns);
}

void tutti_comm_shut(struct tutti_comm *comm, const struct tutti_error *error)
{
    if (comm->has_thread) {
        atomic_store(&comm->cancel, true);
        pthread_join(comm->thread, NULL);
        comm->has_thread = false;
    }
    record(comm, error);
    if (!tutti_comm_empty(comm)) return;
    close_all(comm, tutti_deadline_ns(atomic_load(&comm->timeout_ns)));
    if (comm->family) tutti_family_drop(comm->family);
    comm->family = NULL;
}

void tutti_comm_discard(struct tutti_comm *comm)
{
    close_all(comm, tutti_now_ns()); /* it was never used */
    tutti_comm_free(comm);
}

void tutti_comm_destroy(struct tutti_comm *comm)
{
    if (!comm || tutti_comm_is_inherited(comm)) return; /* its memory goes with this process */
    struct tutti_error error;
    tutti_error_set(&error, TUTTI_ERR_ARGUMENT, "the communicator was destroyed");
    tutti_inside++;
    tutti_comm_shut(comm, &error);
    tutti_survive_close(comm);
    tutti_comm_free(comm);
    tutti_inside--;
}
