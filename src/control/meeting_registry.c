/* SPDX-License-Identifier: BSD-3-Clause */

/* The meetings that threads of this process lead. Ranks that are threads of one process find their leader here and hand
 * in a ticket; only the first one of a process needs a socket. One lock guards the list and the tickets: all of it is
 * start-up, none of it is on the path of a collective. */

#include "control/meeting.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define GRACE_NS (2 * TUTTI_NS_PER_S) /* that an answer to ASK may take */
#define SLICE_NS (50 * TUTTI_NS_PER_MS)

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

static void ticket_fill(struct tutti_meeting_ticket *ticket, const struct tutti_meeting_request *request,
                        const struct tutti_meeting *meeting)
{
    const char *mine = request->secret, *leaders = meeting->request->secret;
    ticket->rank = request->rank;
    ticket->n_ranks = request->n_ranks;
    ticket->build = request->build;
    ticket->host = request->host;
    strncpy(ticket->version, request->version, sizeof ticket->version - 1);
    if (request->lost) ticket->lost = *request->lost;
    ticket->same_secret = mine && leaders ? strcmp(mine, leaders) == 0 : mine == leaders;
}

/* Asks the leader for a sentence about who is missing. */
static void ticket_ask(const char *place, const struct tutti_meeting_request *request)
{
    pthread_mutex_lock(&registry_lock);
    struct tutti_meeting *meeting = registry_find(place);
    if (meeting && meeting->asked_s <= 0) {
        meeting->asked_s = tutti_meeting_patience_s(request);
        leader_wake(meeting);
    }
    pthread_mutex_unlock(&registry_lock);
}

/* Sleeps until the ticket is done; CANCELLED or TIMEOUT (no record) when it is not. */
static enum tutti_status ticket_wait(struct tutti_meeting_ticket *ticket, const char *place,
                                     const struct tutti_meeting_request *request)
{
    uint64_t deadline = request->deadline_ns;
    bool asked = false;
    while (!atomic_load(&ticket->done)) {
        uint64_t now = tutti_now_ns(), until = request->cancel ? now + SLICE_NS : deadline;
        if (request->cancel && *request->cancel) return TUTTI_ERR_CANCELLED;
        if (now >= deadline) {
            if (asked) return TUTTI_ERR_TIMEOUT;
            ticket_ask(place, request);
            asked = true;
            deadline = now + GRACE_NS;
        }
        tutti_futex_wait(&ticket->done, 0, until < deadline ? until : deadline);
    }
    return TUTTI_OK;
}

/* Waits for the verdict over a ticket that the leader has, and gives it back. */
static enum tutti_status ticket_redeem(struct tutti_meeting_ticket *ticket, const char *place,
                                       const struct tutti_meeting_request *request, struct tutti_meeting_result *out)
{
    enum tutti_status waited = ticket_wait(ticket, place, request);
    pthread_mutex_lock(&registry_lock); /* who is done is done, even when we gave up just now */
    bool done = atomic_load(&ticket->done) != 0;
    if (!done) {
        struct tutti_meeting *meeting = registry_find(place);
        ticket->withdrawn = true;
        if (meeting) {
            meeting->withdrawn = true;
            leader_wake(meeting);
        }
    }
    pthread_mutex_unlock(&registry_lock);
    if (!done && waited == TUTTI_ERR_CANCELLED)
        return tutti_fail(waited, "rank %d withdrew while the ranks were meeting", (int)request->rank);
    if (!done) return tutti_fail(waited, "the rank that leads the meeting does not answer rank %d", (int)request->rank);
    enum tutti_status status = ticket->error.status;
    if (status == TUTTI_OK) *out = ticket->result;
    if (status < 0) tutti_fail_record(&ticket->error);
    tutti_free(ticket);
    return status;
}

/* Under the lock. OK: *lead is registered, or *elsewhere is set. */
static enum tutti_status leader_try(const char *place, const struct tutti_meeting_request *request,
                                    struct tutti_meeting **lead, bool *elsewhere)
{
    int listen_fd;
    enum tutti_status status = tutti_meeting_listen(place, &listen_fd);
    *elsewhere = status == TUTTI_AGAIN;
    if (status != TUTTI_OK) return status < 0 ? status : TUTTI_OK;
    struct tutti_meeting *meeting;
    status = tutti_meeting_create(place, request, listen_fd, &meeting);
    if (status < 0) {
        close(listen_fd);
        return status;
    }
    meeting->next = registry;
    registry = meeting;
    *lead = meeting;
    return TUTTI_OK;
}

enum tutti_status tutti_meeting_enter(const char *place, const struct tutti_meeting_request *request,
                                      struct tutti_meeting **lead, bool *elsewhere, struct tutti_meeting_result *out)
{
    enum tutti_status status = TUTTI_OK;
    struct tutti_meeting_ticket *ticket = tutti_alloc(sizeof *ticket);
    if (!ticket) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a ticket of a meeting");
    *lead = NULL;
    *elsewhere = false;
    pthread_mutex_lock(&registry_lock);
    struct tutti_meeting *meeting = registry_find(place);
    if (meeting) {
        ticket_fill(ticket, request, meeting);
        ticket->next = meeting->tickets;
        meeting->tickets = ticket;
        leader_wake(meeting);
    } else {
        status = leader_try(place, request, lead, elsewhere);
    }
    pthread_mutex_unlock(&registry_lock);
    if (meeting) return ticket_redeem(ticket, place, request, out);
    tutti_free(ticket);
    return status;
}

/* ---- the leader's side ---- */

struct tutti_meeting_ticket *tutti_meeting_tickets_take(struct tutti_meeting *meeting, double *asked_s, bool *withdrawn)
{
    pthread_mutex_lock(&registry_lock);
    struct tutti_meeting_ticket *list = meeting->tickets;
    *asked_s = meeting->asked_s;
    *withdrawn = meeting->withdrawn;
    meeting->tickets = NULL;
    meeting->asked_s = 0;
    meeting->withdrawn = false;
    pthread_mutex_unlock(&registry_lock);
    return list;
}

/* Under the lock. The wake-up too: after it the owner takes the lock before it frees. */
static bool ticket_done_locked(struct tutti_meeting_ticket *ticket, const struct tutti_error *error,
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

bool tutti_meeting_ticket_done(struct tutti_meeting_ticket *ticket, const struct tutti_error *error,
                               const struct tutti_meeting_result *result)
{
    pthread_mutex_lock(&registry_lock);
    bool delivered = ticket_done_locked(ticket, error, result);
    pthread_mutex_unlock(&registry_lock);
    return delivered;
}

bool tutti_meeting_ticket_gone(struct tutti_meeting_ticket *ticket)
{
    pthread_mutex_lock(&registry_lock);
    bool gone = ticket->withdrawn;
    if (gone) tutti_free(ticket);
    pthread_mutex_unlock(&registry_lock);
    return gone;
}

void tutti_meeting_registry_remove(struct tutti_meeting *meeting)
{
    struct tutti_error again = {.status = TUTTI_AGAIN, .peer = -1, .step = TUTTI_NO_STEP, .collective = ""};
    pthread_mutex_lock(&registry_lock);
    struct tutti_meeting **link = &registry;
    while (*link && *link != meeting) link = &(*link)->next;
    if (*link) *link = meeting->next;
    while (meeting->tickets) {
        struct tutti_meeting_ticket *ticket = meeting->tickets;
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
