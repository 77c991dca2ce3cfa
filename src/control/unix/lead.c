/* SPDX-License-Identifier: BSD-3-Clause */

/* The leader's thread: gives its machine what comes from sockets and tickets, runs the member machines of the tickets,
 * makes the segment, or the table of hosts, and passes it on. A member that can not take it ends the meeting for the
 * others, who have it already, through the cards in it. */

#include "control/host/host.h"
#include "control/machine/table.h"
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
    struct tutti_meeting_line line; /* fd -1: none */
    struct tutti_ticket *ticket;    /* NULL: none */
};
struct lead {
    struct tutti_meeting *meeting;
    struct tutti_meeting_leader machine;
    struct end *ends; /* n_ends */
    struct pollfd *polls;
    uint32_t *polled; /* the ends of polls */
    uint32_t n_ends;
    struct tutti_meeting_result result;
    uint8_t card[TUTTI_CARD_RECORD_BYTES]; /* this rank's */
};

static bool is_free(const struct end *end)
{
    return end->line.fd < 0 && !end->ticket;
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
    tutti_line_send(&end->line, bytes, n, memory ? fds : NULL); /* who is gone is told by recv */
}

static void link_drop(void *arg, uint32_t link)
{
    struct end *end = &((struct lead *)arg)->ends[link];
    tutti_line_close(&end->line);
    if (end->ticket) tutti_member_closed(&end->ticket->member); /* its owner is told soon */
}

static bool link_ended(void *arg, uint32_t link)
{
    const struct end *end = &((struct lead *)arg)->ends[link];
    char byte;
    if (end->ticket) return tutti_ticket_withdrawn(end->ticket);
    ssize_t n = recv(end->line.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
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
    if (granted && member->table) result.table = member->table, result.n_table = member->n_table, member->table = NULL;
    if (granted)
        tutti_member_mapped(member,
                            result.table ? TUTTI_OK : tutti_segment_share(lead->result.segment, &result.segment));
    const bool over = member->phase == TUTTI_MEMBER_OVER;
    if (!over && !tutti_ticket_withdrawn(ticket)) return;
    end->ticket = NULL;
    tutti_member_fini(member);
    if (!granted) tutti_leader_closed(&lead->machine, end->link, tutti_now_ns());
    if (tutti_ticket_done(ticket, over ? &ticket->member.error : &lead->machine.verdict, &result) || !granted) return;
    tutti_free(result.table);
    if (!result.segment) return;
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
    enum tutti_status status = tutti_line_recv(&end->line, bytes, &n, NULL);
    if (status == TUTTI_PENDING) return;
    if (status == TUTTI_OK) {
        tutti_leader_received(&lead->machine, end->link, bytes, n, tutti_now_ns());
        return;
    }
    tutti_line_close(&end->line);
    tutti_leader_closed(&lead->machine, end->link, tutti_now_ns());
}

/* far: from the network; what its process is only the peer itself can say. */
static void peer_accept(struct lead *lead, bool far)
{
    const struct tutti_meeting_request *mine = lead->meeting->request;
    struct end *end = end_free(lead);
    int fd = far ? tutti_listener_accept(mine->listener)
                 : accept4(lead->meeting->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int32_t pid = 0;
    struct tutti_net_address address;
    char text[48];
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        tutti_fail_errno(TUTTI_ERR_SYSTEM,
                         "%u of %d ranks have come, and rank %d can not let in more; raise `ulimit -n`",
                         lead->machine.n_seated, (int)mine->n_ranks, (int)mine->rank);
        tutti_leader_fail(&lead->machine, true);
    }
    if (fd < 0) return; /* else: the peer is gone already */
    if (!far && tutti_meeting_peer(fd, &pid) < 0) {
        tutti_log(TUTTI_LOG_WARN, "refused a peer at the meeting of the ranks: %s", tutti_last_error()->text);
        close(fd);
        return;
    }
    if (tutti_line_open(&end->line, fd, far) < 0) {
        tutti_line_close(&end->line);
        return;
    }
    tutti_leader_opened(&lead->machine, end->link, pid, tutti_now_ns());
    if (!far || !tutti_net_address_of(fd, true, &address)) return;
    tutti_leader_from(&lead->machine, end->link, tutti_net_address_text(&address, text, sizeof text));
}

/* Waits for whatever comes, a little. What came from whom is served before newcomers, so that who left has left before
 * it comes again. */
static void step(struct lead *lead, uint64_t now)
{
    const struct tutti_meeting *meeting = lead->meeting;
    const bool gathers = lead->machine.phase == TUTTI_LEADER_GATHERS;
    uint64_t rest = meeting->request->deadline_ns - now;
    const bool open = gathers && end_free(lead);
    uint32_t n = 3;
    if (rest > TUTTI_MEETING_SLICE_NS) rest = TUTTI_MEETING_SLICE_NS;
    if (!gathers) rest = 5 * TUTTI_NS_PER_MS; /* whose connection ended may be dead at any time */
    lead->polls[0] = (struct pollfd){.fd = open ? meeting->listen_fd : -1, .events = POLLIN};
    lead->polls[1] = (struct pollfd){.fd = meeting->wake_fd, .events = POLLIN};
    lead->polls[2] =
        (struct pollfd){.fd = open && meeting->request->listener ? tutti_listener_fd(meeting->request->listener) : -1,
                        .events = POLLIN};
    for (uint32_t i = 0; i < lead->n_ends; i++) {
        if (lead->ends[i].line.fd < 0 || (!gathers && lead->machine.links[i].state != TUTTI_LINK_TOLD)) continue;
        lead->polled[n] = i;
        lead->polls[n++] = (struct pollfd){.fd = lead->ends[i].line.fd, .events = POLLIN};
    }
    if (poll(lead->polls, n, (int)((rest + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS)) < 0) return;
    for (uint32_t i = 3; i < n; i++)
        if (lead->polls[i].revents && lead->ends[lead->polled[i]].line.fd >= 0)
            end_serve(lead, &lead->ends[lead->polled[i]]);
    tickets_serve(lead, tutti_now_ns());
    for (uint32_t i = 0; i < 32 && end_free(lead); i++)
        if (lead->polls[i % 2 ? 2 : 0].revents) peer_accept(lead, i % 2);
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

/* Where the ranks were seen: those of other hosts by this one, those of this host by the others. */
static struct tutti_net_address *addresses_make(const struct lead *lead)
{
    const struct tutti_meeting_leader *machine = &lead->machine;
    const uint32_t n = (uint32_t)machine->self.n_ranks;
    struct tutti_net_address *addresses = tutti_alloc_array(n, sizeof *addresses), here = {.family = 0};
    for (uint32_t rank = 0; addresses && rank < n; rank++) {
        const int32_t link = machine->seats[rank].link;
        if (link < 0 || !lead->ends[link].line.in) continue;
        tutti_net_address_of(lead->ends[link].line.fd, true, &addresses[rank]);
        tutti_net_address_of(lead->ends[link].line.fd, false, &here);
    }
    if (here.family == 0) tutti_net_address_parse("127.0.0.1", &here); /* all came by Unix sockets */
    for (uint32_t rank = 0; addresses && rank < n; rank++)
        if (addresses[rank].family == 0) addresses[rank] = here;
    return addresses;
}

static bool card_read(const void *arg, uint32_t rank, struct tutti_card_record *out)
{
    const struct tutti_meeting_seat *seat = &((const struct lead *)arg)->machine.seats[rank];
    return seat->n_card == TUTTI_CARD_RECORD_BYTES && tutti_card_decode(seat->card, out) && out->host == seat->host;
}

/* The ranks are of several hosts. */
static enum tutti_status table_make(struct lead *lead)
{
    struct tutti_meeting_result *result = &lead->result;
    const uint32_t n = (uint32_t)lead->machine.self.n_ranks;
    struct tutti_world_facts facts;
    TUTTI_TRY(tutti_world_facts_read(lead->meeting->request->card, n, card_read, lead, NULL, &facts));
    struct tutti_net_address *addresses = addresses_make(lead);
    enum tutti_status status =
        addresses ? tutti_table_make(n, card_read, lead, addresses, &facts, &result->table, &result->n_table)
                  : tutti_fail(TUTTI_ERR_MEMORY, "no memory for the addresses of %u ranks", n);
    tutti_free(addresses);
    return status;
}

static bool is_far(const struct lead *lead)
{
    const struct tutti_meeting_leader *machine = &lead->machine;
    for (int32_t rank = 0; rank < machine->self.n_ranks; rank++)
        if (machine->seats[rank].host != machine->self.host) return true;
    return false;
}

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
    const struct tutti_segment_config config = {.n = (uint32_t)mine->n_ranks,
                                                .staging_bytes = mine->staging_bytes,
                                                .heap_bytes = mine->heap_bytes,
                                                .control_bytes = tutti_host_control_bytes((uint32_t)mine->n_ranks)};
    TUTTI_TRY(tutti_segment_create(&config, result->shared, &result->segment));
    for (uint32_t rank = 0; rank < config.n; rank++) tutti_card_expect(result->segment, rank, seats[rank].pid);
    return TUTTI_OK;
}

static enum tutti_status grant_make(struct lead *lead)
{
    TUTTI_TRY(tutti_random_bytes(&lead->result.nonce, sizeof lead->result.nonce));
    return is_far(lead) ? table_make(lead) : segment_make(lead);
}

static enum tutti_status lead_open(struct lead *lead, struct tutti_meeting *meeting)
{
    struct tutti_meeting_self self = tutti_meeting_self(meeting->request, lead->card);
    self.reaches_hosts = meeting->request->listener != NULL;
    const struct tutti_meeting_out out = {.arg = lead,
                                          .send = link_send,
                                          .drop = link_drop,
                                          .ended = link_ended,
                                          .random = tutti_meeting_random,
                                          .started = tutti_meeting_started,
                                          .alive = tutti_meeting_alive};
    const uint32_t n = lead->n_ends;
    TUTTI_TRY(tutti_leader_init(&lead->machine, &self, &out, n, tutti_now_ns()));
    lead->ends = tutti_alloc_array(n, sizeof *lead->ends);
    for (uint32_t i = 0; lead->ends && i < n; i++) lead->ends[i] = (struct end){.lead = lead, .link = i, .line.fd = -1};
    lead->polls = tutti_alloc_array(n + 3, sizeof *lead->polls);
    lead->polled = tutti_alloc_array(n + 3, sizeof *lead->polled);
    if (!lead->ends || !lead->polls || !lead->polled)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a meeting of %d ranks", (int)self.n_ranks);
    return TUTTI_OK;
}

/* Whoever is still there finds his connection ended. */
static void lead_close(struct lead *lead)
{
    for (uint32_t i = 0; lead->ends && i < lead->n_ends; i++) {
        tutti_line_close(&lead->ends[i].line);
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
    if (machine->verdict.status == TUTTI_OK && grant_make(lead) < 0) tutti_leader_fail(machine, true);
    if (before_verdict) before_verdict(arg);
    tutti_meeting_leave(lead->meeting);
    const struct tutti_meeting_grant grant = {.shared = lead->result.shared,
                                              .world = lead->result.nonce,
                                              .table = lead->result.table,
                                              .n_table = lead->result.n_table};
    tutti_leader_tell(machine, &grant);
    tickets_serve(lead, tutti_now_ns());
    run(lead, TUTTI_LEADER_TELLS);
    if (machine->verdict.status == TUTTI_OK) {
        *out = lead->result;
        return TUTTI_OK;
    }
    tutti_free(lead->result.table);
    if (lead->result.segment) {
        tutti_card_fail(lead->result.segment, (uint32_t)machine->culprit, &machine->verdict);
        tutti_segment_release(lead->result.segment);
    }
    return tutti_fail_record(&machine->verdict);
}

enum tutti_status tutti_meeting_lead(struct tutti_meeting *meeting, void (*before_verdict)(void *arg), void *arg,
                                     struct tutti_meeting_result *out)
{
    struct lead lead = {.meeting = meeting, .n_ends = (uint32_t)meeting->request->n_ranks + STRANGERS};
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
