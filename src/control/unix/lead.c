/* SPDX-License-Identifier: BSD-3-Clause */

/* The leader's thread: gives its machine what comes from sockets and tickets, runs the member machines of the tickets,
 * makes the segment and passes it on. A member that can not take it ends the meeting for the others, who have it
 * already, through the cards in it. */

#include "control/host/host.h"
#include "control/unix/meeting.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STRANGERS 64 /* connections beyond one a rank */

struct lead;
struct end { /* of a link of the machine's */
    struct lead *lead;
    uint32_t link;
    int fd;                      /* -1: none */
    struct tutti_ticket *ticket; /* NULL: none */
};
struct lead {
    struct tutti_meeting *meeting;
    struct tutti_meeting_leader machine;
    struct end *ends; /* n_ends */
    struct pollfd *polls;
    uint32_t *polled; /* the ends of polls */
    uint32_t n_ends;
    struct tutti_meeting_result result;
};

static bool is_free(const struct end *end)
{
    return end->fd < 0 && !end->ticket;
}

static struct end *end_free(struct lead *lead)
{
    for (uint32_t i = 0; i < lead->n_ends; i++)
        if (is_free(&lead->ends[i])) return &lead->ends[i];
    return NULL;
}

/* ---- what the machine asks for ---- */

static void link_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    struct lead *lead = arg;
    struct end *end = &lead->ends[link];
    int fds[2] = {-1, -1};
    if (end->ticket) {
        tutti_member_received(&end->ticket->member, bytes, n);
        return;
    }
    if (memory) tutti_segment_fds(lead->result.segment, &fds[0], &fds[1]);
    tutti_meeting_send(end->fd, bytes, n, memory ? fds : NULL); /* who is gone is told by recv */
}

static void link_drop(void *arg, uint32_t link)
{
    struct end *end = &((struct lead *)arg)->ends[link];
    if (end->fd >= 0) close(end->fd);
    end->fd = -1;
    if (end->ticket) tutti_member_closed(&end->ticket->member); /* its owner is told soon */
}

static bool link_ended(void *arg, uint32_t link)
{
    const struct end *end = &((struct lead *)arg)->ends[link];
    char byte;
    if (end->ticket) return tutti_ticket_withdrawn(end->ticket);
    ssize_t n = recv(end->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return !(n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
}

/* ---- tickets ---- */

static void ticket_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    const struct end *end = arg;
    (void)link, (void)memory;
    tutti_leader_received(&end->lead->machine, end->link, bytes, n, tutti_now_ns());
}

static void ticket_begin(struct lead *lead, struct tutti_ticket *ticket)
{
    struct end *end = end_free(lead);
    const struct tutti_error again = {.status = TUTTI_AGAIN, .peer = -1, .step = TUTTI_NO_STEP, .collective = ""};
    if (!end || lead->machine.phase != TUTTI_LEADER_GATHERS) {
        tutti_ticket_done(ticket, &again, NULL); /* it comes to the next meeting */
        return;
    }
    const struct tutti_meeting_out out = {.arg = end, .send = ticket_send, .random = tutti_meeting_random};
    end->ticket = ticket;
    tutti_leader_opened(&lead->machine, end->link, lead->meeting->pid, tutti_now_ns());
    tutti_member_begin(&ticket->member, &ticket->self, &out);
}

/* What the ticket's machine has come to. */
static void ticket_settle(struct lead *lead, struct end *end)
{
    struct tutti_ticket *ticket = end->ticket;
    struct tutti_meeting_member *member = &ticket->member;
    struct tutti_meeting_result result = {
        .segment = lead->result.segment, .nonce = lead->result.nonce, .shared = lead->result.shared};
    struct tutti_error withdrew;
    const bool granted = member->phase == TUTTI_MEMBER_GRANTED;
    const uint32_t rank = (uint32_t)ticket->self.rank;
    if (granted) tutti_member_mapped(member, tutti_segment_share(lead->result.segment, &result.segment));
    const bool over = member->phase == TUTTI_MEMBER_OVER;
    if (!over && !tutti_ticket_withdrawn(ticket)) return;
    end->ticket = NULL;
    if (!granted) tutti_leader_closed(&lead->machine, end->link, tutti_now_ns());
    if (tutti_ticket_done(ticket, over ? &ticket->member.error : &lead->machine.verdict, &result) || !granted) return;
    tutti_error_set(&withdrew, TUTTI_ERR_CANCELLED, "it withdrew while the ranks were meeting");
    tutti_card_fail(result.segment, rank, &withdrew);
    tutti_segment_release(result.segment);
}

static void tickets_serve(struct lead *lead, uint64_t now)
{
    for (struct tutti_ticket *ticket = tutti_meeting_tickets_take(lead->meeting), *next; ticket; ticket = next) {
        next = ticket->next;
        ticket_begin(lead, ticket);
    }
    for (uint32_t i = 0; i < lead->n_ends; i++) {
        struct end *end = &lead->ends[i];
        if (!end->ticket) continue;
        tutti_member_tick(&end->ticket->member, now);
        ticket_settle(lead, end);
    }
}

/* ---- sockets ---- */

static void end_serve(struct lead *lead, struct end *end)
{
    uint8_t bytes[TUTTI_MEETING_FRAME_MAX + 1];
    size_t n;
    enum tutti_status status = tutti_meeting_recv(end->fd, bytes, &n, NULL);
    if (status == TUTTI_PENDING) return;
    if (status == TUTTI_OK) {
        tutti_leader_received(&lead->machine, end->link, bytes, n, tutti_now_ns());
        return;
    }
    close(end->fd);
    end->fd = -1;
    tutti_leader_closed(&lead->machine, end->link, tutti_now_ns());
}

static void peer_accept(struct lead *lead)
{
    const struct tutti_meeting_request *mine = lead->meeting->request;
    struct end *end = end_free(lead);
    int fd = accept4(lead->meeting->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int32_t pid;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        tutti_fail_errno(TUTTI_ERR_SYSTEM,
                         "%u of %d ranks have come, and rank %d can not let in more; raise `ulimit -n`",
                         lead->machine.n_seated, (int)mine->n_ranks, (int)mine->rank);
        tutti_leader_fail(&lead->machine, true);
    }
    if (fd < 0) return; /* else: the peer is gone already */
    if (tutti_meeting_peer(fd, &pid) < 0) {
        tutti_log(TUTTI_LOG_WARN, "refused a peer at the meeting of the ranks: %s", tutti_last_error()->text);
        close(fd);
        return;
    }
    end->fd = fd;
    tutti_leader_opened(&lead->machine, end->link, pid, tutti_now_ns());
}

/* Waits for whatever comes, a little. What came from whom is served before newcomers, so that who left has left before
 * it comes again. */
static void step(struct lead *lead, uint64_t now)
{
    const struct tutti_meeting *meeting = lead->meeting;
    const bool gathers = lead->machine.phase == TUTTI_LEADER_GATHERS;
    uint64_t rest = meeting->request->deadline_ns - now;
    uint32_t n = 2;
    if (rest > TUTTI_MEETING_SLICE_NS) rest = TUTTI_MEETING_SLICE_NS;
    if (!gathers) rest = 5 * TUTTI_NS_PER_MS; /* whose connection ended may be dead at any time */
    lead->polls[0] = (struct pollfd){.fd = gathers && end_free(lead) ? meeting->listen_fd : -1, .events = POLLIN};
    lead->polls[1] = (struct pollfd){.fd = meeting->wake_fd, .events = POLLIN};
    for (uint32_t i = 0; i < lead->n_ends; i++) {
        if (lead->ends[i].fd < 0 || (!gathers && lead->machine.links[i].state != TUTTI_LINK_TOLD)) continue;
        lead->polled[n] = i;
        lead->polls[n++] = (struct pollfd){.fd = lead->ends[i].fd, .events = POLLIN};
    }
    if (poll(lead->polls, n, (int)((rest + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS)) < 0) return;
    for (uint32_t i = 2; i < n; i++)
        if (lead->polls[i].revents && lead->ends[lead->polled[i]].fd >= 0)
            end_serve(lead, &lead->ends[lead->polled[i]]);
    tickets_serve(lead, tutti_now_ns());
    for (uint32_t i = 0; lead->polls[0].revents && i < 16 && end_free(lead); i++) peer_accept(lead);
}

/* Until the machine leaves the phase. */
static void run(struct lead *lead, enum tutti_leader_phase phase)
{
    const struct tutti_meeting_request *mine = lead->meeting->request;
    while (lead->machine.phase == phase) {
        const uint64_t now = tutti_now_ns();
        if (tutti_meeting_cancelled(mine)) {
            tutti_fail(TUTTI_ERR_CANCELLED, "rank %d withdrew while the ranks were meeting", (int)mine->rank);
            tutti_leader_fail(&lead->machine, false);
            return;
        }
        if (now < mine->deadline_ns) step(lead, now);
        /* After it: whoever waits at the door has come, however late this rank looks. */
        tutti_leader_tick(&lead->machine, tutti_now_ns());
    }
}

/* ---- the verdict ---- */

/* Makes the segment: plain memory when all ranks are threads of this process, else what processes can map. */
static enum tutti_status segment_make(struct lead *lead)
{
    const struct tutti_meeting_request *mine = lead->meeting->request;
    const struct tutti_meeting_seat *seats = lead->machine.seats;
    struct tutti_meeting_result *result = &lead->result;
    const int32_t other = tutti_leader_elsewhere(&lead->machine);
    const char *name;
    enum tutti_status status =
        tutti_transport_choose(mine->transport, other >= 0, (uint32_t)mine->n_ranks, &name, &result->shared);
    if (status == TUTTI_ERR_CONFIG)
        return tutti_fail(status,
                          "transport=%s needs all ranks in one process, but rank %d is process %d and rank %d process "
                          "%d: write transport=auto",
                          mine->transport, (int)mine->rank, (int)lead->meeting->pid, (int)other, (int)seats[other].pid);
    if (status < 0) return status;
    TUTTI_TRY(tutti_random_bytes(&result->nonce, sizeof result->nonce));
    const struct tutti_segment_config config = {.n = (uint32_t)mine->n_ranks,
                                                .staging_bytes = mine->staging_bytes,
                                                .heap_bytes = mine->heap_bytes,
                                                .control_bytes = tutti_host_control_bytes((uint32_t)mine->n_ranks)};
    TUTTI_TRY(tutti_segment_create(&config, result->shared, &result->segment));
    for (uint32_t rank = 0; rank < config.n; rank++) tutti_card_expect(result->segment, rank, seats[rank].pid);
    return TUTTI_OK;
}

static enum tutti_status lead_open(struct lead *lead, struct tutti_meeting *meeting)
{
    const struct tutti_meeting_self self = tutti_meeting_self(meeting->request);
    const struct tutti_meeting_out out = {.arg = lead,
                                          .send = link_send,
                                          .drop = link_drop,
                                          .ended = link_ended,
                                          .random = tutti_meeting_random,
                                          .started = tutti_meeting_started,
                                          .alive = tutti_meeting_alive};
    const uint32_t n = (uint32_t)self.n_ranks + STRANGERS;
    *lead = (struct lead){.meeting = meeting, .n_ends = n};
    TUTTI_TRY(tutti_leader_init(&lead->machine, &self, &out, n, tutti_now_ns()));
    lead->ends = tutti_alloc_array(n, sizeof *lead->ends);
    for (uint32_t i = 0; lead->ends && i < n; i++) lead->ends[i] = (struct end){.lead = lead, .link = i, .fd = -1};
    lead->polls = tutti_alloc_array(n + 2, sizeof *lead->polls);
    lead->polled = tutti_alloc_array(n + 2, sizeof *lead->polled);
    if (!lead->ends || !lead->polls || !lead->polled)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a meeting of %d ranks", (int)self.n_ranks);
    return TUTTI_OK;
}

/* Whoever is still there finds his connection ended. */
static void lead_close(struct lead *lead)
{
    for (uint32_t i = 0; lead->ends && i < lead->n_ends; i++) {
        if (lead->ends[i].fd >= 0) close(lead->ends[i].fd);
        if (!lead->ends[i].ticket) continue;
        tutti_member_closed(&lead->ends[i].ticket->member);
        ticket_settle(lead, &lead->ends[i]);
    }
    tutti_leader_fini(&lead->machine);
    tutti_free(lead->polled);
    tutti_free(lead->polls);
    tutti_free(lead->ends);
}

static enum tutti_status lead_run(struct lead *lead, void (*before_verdict)(void *arg), void *arg,
                                  struct tutti_meeting_result *out)
{
    struct tutti_meeting_leader *machine = &lead->machine;
    run(lead, TUTTI_LEADER_GATHERS);
    if (machine->verdict.status == TUTTI_OK && segment_make(lead) < 0) tutti_leader_fail(machine, true);
    if (before_verdict) before_verdict(arg);
    tutti_meeting_leave(lead->meeting);
    tutti_leader_tell(machine, lead->result.shared, lead->result.nonce);
    tickets_serve(lead, tutti_now_ns());
    run(lead, TUTTI_LEADER_TELLS);
    if (machine->verdict.status == TUTTI_OK) {
        *out = lead->result;
        return TUTTI_OK;
    }
    if (lead->result.segment) {
        tutti_card_fail(lead->result.segment, (uint32_t)machine->culprit, &machine->verdict);
        tutti_segment_release(lead->result.segment);
    }
    return tutti_fail_record(&machine->verdict);
}

enum tutti_status tutti_meeting_lead(struct tutti_meeting *meeting, void (*before_verdict)(void *arg), void *arg,
                                     struct tutti_meeting_result *out)
{
    struct lead lead;
    enum tutti_status status = lead_open(&lead, meeting);
    if (status == TUTTI_OK)
        status = lead_run(&lead, before_verdict, arg, out);
    else if (before_verdict)
        before_verdict(arg);
    const struct tutti_error error = *tutti_last_error();
    lead_close(&lead);
    tutti_meeting_destroy(meeting);
    return status < 0 ? tutti_fail_record(&error) : status;
}
