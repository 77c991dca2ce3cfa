/* SPDX-License-Identifier: BSD-3-Clause */

/* The meetings that threads of this process lead. Ranks that are threads of one process find their leader here and hand
 * in a ticket; only the first one of a process needs a socket. One lock guards the list and the tickets: all of it is
 * start-up, none of it is on the path of a collective. */

#include "control/meet/meeting.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define GRACE_NS (2 * TUTTI_NS_PER_S) /* that the leader may take to answer after our deadline */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tutti_meeting *registry;

static void leader_wake(const struct tutti_meeting *meeting)
{
    eventfd_write(meeting->wake_fd, 1); /* fails only when the counter is full: then it is awake */
}

/* Meetings of a parent that forked while it met are not ours. */
static struct tutti_meeting *registry_find(const char *place)
{
    struct tutti_meeting *meeting = registry;
    while (meeting && (meeting->pid != (int32_t)getpid() || strcmp(meeting->place, place) != 0))
        meeting = meeting->next;
    return meeting;
}

/* The machine that the leader runs for this rank refers to nothing of the owner's, who may withdraw. A secret stands
 * for itself: it is the leader's own, or another. */
static struct tutti_ticket *ticket_make(const struct tutti_meeting_request *request)
{
    struct tutti_ticket *ticket = tutti_alloc(sizeof *ticket);
    if (!ticket) return NULL;
    ticket->self = tutti_meeting_self(request, ticket->card);
    snprintf(ticket->version, sizeof ticket->version, "%s", request->version);
    ticket->self.version = ticket->version;
    return ticket;
}

static void ticket_hand_in(struct tutti_ticket *ticket, struct tutti_meeting *meeting)
{
    const char *mine = ticket->self.secret, *leaders = meeting->request->secret;
    if (mine)
        ticket->self.secret = leaders && strcmp(mine, leaders) == 0 ? leaders : "another secret than the leader's";
    ticket->next = meeting->tickets;
    meeting->tickets = ticket;
    leader_wake(meeting);
}

/* Sleeps until the ticket is done; CANCELLED or TIMEOUT (no record) when it is not. */
static enum tutti_status ticket_wait(struct tutti_ticket *ticket, const struct tutti_meeting_request *request)
{
    const uint64_t deadline =
        request->deadline_ns > TUTTI_NEVER - GRACE_NS ? TUTTI_NEVER : request->deadline_ns + GRACE_NS;
    while (!atomic_load(&ticket->done)) {
        uint64_t now = tutti_now_ns(), until = request->cancel ? now + TUTTI_MEETING_SLICE_NS : deadline;
        if (tutti_meeting_cancelled(request)) return TUTTI_ERR_CANCELLED;
        if (now >= deadline) return TUTTI_ERR_TIMEOUT;
        tutti_futex_wait(&ticket->done, 0, until < deadline ? until : deadline);
    }
    return TUTTI_OK;
}

/* Waits for the verdict over a ticket that the leader has, and gives it back. */
static enum tutti_status ticket_redeem(struct tutti_ticket *ticket, const char *place,
                                       const struct tutti_meeting_request *request, struct tutti_meeting_result *out)
{
    enum tutti_status waited = ticket_wait(ticket, request);
    pthread_mutex_lock(&registry_lock); /* a rank that is done is done, even when we gave up just now */
    bool done = atomic_load(&ticket->done) != 0;
    if (!done) {
        struct tutti_meeting *meeting = registry_find(place);
        ticket->withdrawn = true;
        if (meeting) leader_wake(meeting);
    }
    pthread_mutex_unlock(&registry_lock);
    if (!done && waited == TUTTI_ERR_CANCELLED)
        return tutti_fail(waited, "rank %d withdrew while the ranks were meeting", (int)request->rank);
    if (!done)
        return tutti_fail(waited, "the rank that leads the meeting does not answer rank %d: " TUTTI_SAYS_TIMED_OUT,
                          (int)request->rank, tutti_meeting_patience(request));
    enum tutti_status status = ticket->error.status;
    if (status == TUTTI_OK) *out = ticket->result;
    if (status < 0) tutti_fail_record(&ticket->error);
    tutti_free(ticket);
    return status;
}

static enum tutti_status meeting_make(const char *place, const struct tutti_meeting_request *request,
                                      struct tutti_meeting **out)
{
    struct tutti_meeting *m = tutti_alloc(sizeof *m);
    if (!m) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a meeting of %d ranks", (int)request->n_ranks);
    m->listen_fd = -1;
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->wake_fd < 0) {
        tutti_free(m);
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no eventfd for the meeting of the ranks");
    }
    m->request = request;
    m->pid = (int32_t)getpid();
    snprintf(m->place, sizeof m->place, "%s", place);
    *out = m;
    return TUTTI_OK;
}

static void meeting_free(struct tutti_meeting *m)
{
    close(m->wake_fd);
    tutti_free(m);
}

/* Under the lock. OK: *lead is registered, or *elsewhere is set. */
static enum tutti_status leader_try(const char *place, const struct tutti_meeting_request *request,
                                    struct tutti_meeting **lead, bool *elsewhere)
{
    struct tutti_meeting *meeting = NULL;
    TUTTI_TRY(meeting_make(place, request, &meeting));
    enum tutti_status status = tutti_meeting_listen(place, &meeting->listen_fd);
    if (status == TUTTI_OK) {
        meeting->next = registry;
        *lead = registry = meeting;
        return TUTTI_OK;
    }
    meeting_free(meeting);
    *elsewhere = status == TUTTI_AGAIN;
    return status < 0 ? status : TUTTI_OK;
}

enum tutti_status tutti_meeting_enter(const char *place, const struct tutti_meeting_request *request,
                                      struct tutti_meeting **lead, bool *elsewhere, struct tutti_meeting_result *out)
{
    enum tutti_status status = TUTTI_OK;
    struct tutti_ticket *ticket = ticket_make(request);
    if (!ticket) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a ticket of a meeting");
    *lead = NULL;
    *elsewhere = false;
    pthread_mutex_lock(&registry_lock);
    struct tutti_meeting *meeting = registry_find(place);
    if (meeting) {
        ticket_hand_in(ticket, meeting);
    } else {
        status = leader_try(place, request, lead, elsewhere);
    }
    pthread_mutex_unlock(&registry_lock);
    if (meeting) return ticket_redeem(ticket, place, request, out);
    tutti_free(ticket);
    return status;
}

/* ---- the leader's side ---- */

struct tutti_ticket *tutti_meeting_tickets_take(struct tutti_meeting *meeting)
{
    eventfd_t ignored;
    eventfd_read(meeting->wake_fd, &ignored);
    pthread_mutex_lock(&registry_lock);
    struct tutti_ticket *list = meeting->tickets;
    meeting->tickets = NULL;
    pthread_mutex_unlock(&registry_lock);
    return list;
}

/* Under the lock. The wake-up too: after it the owner takes the lock before it frees. */
static bool ticket_done_locked(struct tutti_ticket *ticket, const struct tutti_error *error,
                               const struct tutti_meeting_result *result)
{
    if (ticket->withdrawn) {
        tutti_free(ticket);
        return false;
    }
    ticket->error = *error;
    if (result) ticket->result = *result;
    atomic_store(&ticket->done, 1);
    tutti_futex_wake(&ticket->done, 1);
    return true;
}

bool tutti_ticket_done(struct tutti_ticket *ticket, const struct tutti_error *error,
                       const struct tutti_meeting_result *result)
{
    pthread_mutex_lock(&registry_lock);
    bool delivered = ticket_done_locked(ticket, error, result);
    pthread_mutex_unlock(&registry_lock);
    return delivered;
}

bool tutti_ticket_withdrawn(struct tutti_ticket *ticket)
{
    pthread_mutex_lock(&registry_lock);
    bool withdrawn = ticket->withdrawn;
    pthread_mutex_unlock(&registry_lock);
    return withdrawn;
}

void tutti_meeting_leave(struct tutti_meeting *meeting)
{
    struct tutti_error again = {.status = TUTTI_AGAIN, .peer = -1, .step = TUTTI_NO_STEP, .collective = ""};
    pthread_mutex_lock(&registry_lock);
    struct tutti_meeting **link = &registry;
    while (*link && *link != meeting) link = &(*link)->next;
    if (*link) *link = meeting->next;
    while (meeting->tickets) {
        struct tutti_ticket *ticket = meeting->tickets;
        meeting->tickets = ticket->next;
        ticket_done_locked(ticket, &again, NULL);
    }
    /* shutdown, for a child of this process may hold a copy of the descriptor: nobody shall wait at it. In the lock, so
     * that the next meeting's leader in this process finds the name free. */
    if (meeting->listen_fd >= 0) {
        shutdown(meeting->listen_fd, SHUT_RDWR);
        close(meeting->listen_fd);
        meeting->listen_fd = -1;
    }
    pthread_mutex_unlock(&registry_lock);
}

void tutti_meeting_destroy(struct tutti_meeting *meeting)
{
    tutti_meeting_leave(meeting);
    if (meeting->listener) tutti_listener_close(meeting->listener);
    meeting_free(meeting);
}
