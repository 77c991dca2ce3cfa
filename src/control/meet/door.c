/* SPDX-License-Identifier: BSD-3-Clause */

/* X */

#include "control/meet/door.h"

#include "control/meet/card.h"
#include "transport/host/segment.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- ends of links ---- */

struct end *door_end_take(struct door *door)
{
    if (door->n_vacant == 0 && door->n_used == door->n_ends) return NULL;
    const uint32_t link = door->n_vacant > 0 ? door->vacant[--door->n_vacant] : door->n_used++;
    door->ends[link] = (struct end){.door = door, .link = link, .fd = -1};
    return &door->ends[link];
}

void door_end_free(struct end *end)
{
    struct door *door = end->door;
    const bool here = end->fd >= 0 || end->ticket;
    if (!here && !end->gate) return;
    if (end->gate) gate_number_forget(end->gate, end->number);
    if (end->fd >= 0) close(end->fd);
    for (uint32_t i = 0; here && i < door->n_here; i++)
        if (door->here[i] == end->link) door->here[i] = door->here[--door->n_here];
    *end = (struct end){.door = door, .link = end->link, .fd = -1};
    door->vacant[door->n_vacant++] = end->link;
}

/* ---- the door ---- */
/* The ends of a meeting's links: Unix sockets, tickets of this process, and relays. */

enum { WAITS = 4 }; /* before those of ends and gates */

static bool is_full(const struct door *door)
{
    return door->n_vacant == 0 && door->n_used == door->n_ends;
}

void door_say(struct door *door, uint32_t link, const uint8_t *bytes, size_t n, bool grant)
{
    struct end *end = &door->ends[link];
    int fds[2] = {door->table_fd, door->rows_fd};
    if (end->ticket) {
        tutti_member_received(&end->ticket->member, bytes, n);
    } else if (end->gate) {
        if (grant) gate_table_send(end->gate, door->result.table, door->result.n_table);
        gate_send(end->gate, grant ? GATE_GRANT : GATE_SAY, end->number, bytes, n);
    } else if (end->fd >= 0) {
        if (grant && door->result.segment) tutti_segment_fds(door->result.segment, &fds[0], &fds[1]);
        tutti_meeting_send(end->fd, bytes, n, grant ? fds : NULL); /* recv reports a peer that is gone */
    }
}

void door_drop(struct door *door, uint32_t link)
{
    struct end *end = &door->ends[link];
    if (end->ticket) {
        tutti_member_closed(&end->ticket->member); /* its owner is told soon */
        return;
    }
    if (end->gate) gate_send(end->gate, GATE_DROP, end->number, NULL, 0);
    door_end_free(end);
}

bool door_ended(const struct door *door, uint32_t link)
{
    const struct end *end = &door->ends[link];
    char byte;
    if (end->ticket) return tutti_ticket_withdrawn(end->ticket);
    if (end->gate) return false;
    const ssize_t n = recv(end->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return !(n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
}

/* The rows are for convenience: who gets them compares them with the table. */
static enum tutti_status rows_make(struct door *door)
{
    const struct tutti_meeting_result *result = &door->result;
    const uint32_t n = (uint32_t)door->meeting->request->n_ranks;
    struct tutti_world_facts facts;
    struct tutti_hosts hosts;
    uint8_t *packed;
    uint32_t bytes;
    TUTTI_TRY(tutti_table_read(result->table, result->n_table, n, &facts, &hosts));
    enum tutti_status status = tutti_hosts_pack(&hosts, &packed, &bytes);
    tutti_hosts_fini(&hosts);
    if (status < 0) return status;
    status = tutti_handout_make(packed, bytes, &door->rows_fd);
    tutti_free(packed);
    return status;
}

enum tutti_status door_table_set(struct door *door, int fd)
{
    const enum tutti_status status = tutti_handout_map(fd, &door->result.table, &door->result.n_table);
    if (status < 0) {
        close(fd);
        return status;
    }
    door->table_fd = fd;
    return rows_make(door);
}

enum tutti_status door_table_map(const struct door *door, const struct tutti_meeting_member *member,
                                 struct tutti_meeting_result *out)
{
    TUTTI_TRY(tutti_handout_map(door->table_fd, &out->table, &out->n_table));
    TUTTI_TRY(tutti_handout_map(door->rows_fd, &out->rows, &out->n_rows));
    return tutti_member_table_check(member, out->table, out->n_table);
}

/* ---- tickets ---- */

static void ticket_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    struct end *end = arg;
    (void)link, (void)memory;
    end->door->ops->received(end->door->arg, end, bytes, n);
}

static void ticket_begin(struct door *door, struct tutti_ticket *ticket)
{
    const struct tutti_error again = {.status = TUTTI_AGAIN, .peer = -1, .step = TUTTI_NO_STEP, .collective = ""};
    struct end *end = door->open ? door_end_take(door) : NULL;
    if (!end) {
        tutti_ticket_done(ticket, &again, NULL); /* it comes to the next meeting */
        return;
    }
    const struct tutti_meeting_out out = {.arg = end, .send = ticket_send, .random = tutti_meeting_random};
    end->ticket = ticket;
    door->here[door->n_here++] = end->link;
    door->ops->opened(door->arg, end, door->meeting->pid);
    tutti_member_begin(&ticket->member, &ticket->self, &out);
}

/* What goes along with the verdict, for a rank of this process. */
static enum tutti_status share(const struct door *door, const struct tutti_meeting_member *member,
                               struct tutti_meeting_result *out)
{
    *out = (struct tutti_meeting_result){.nonce = member->world, .shared = member->shared};
    if (member->n_table == 0) return tutti_segment_share(door->result.segment, &out->segment);
    return door_table_map(door, member, out);
}

/* What the ticket's machine has come to. */
static void ticket_settle(struct door *door, struct end *end)
{
    struct tutti_ticket *ticket = end->ticket;
    struct tutti_meeting_member *member = &ticket->member;
    struct tutti_meeting_result result = {.segment = NULL};
    struct tutti_error withdrew;
    const bool granted = member->phase == TUTTI_MEMBER_GRANTED;
    const uint32_t rank = (uint32_t)ticket->self.rank;
    if (granted) tutti_member_mapped(member, share(door, member, &result));
    const bool over = member->phase == TUTTI_MEMBER_OVER;
    if (!over && !tutti_ticket_withdrawn(ticket)) return;
    if (!granted) door->ops->closed(door->arg, end, false);
    if (end->ticket) door_end_free(end);
    if (tutti_ticket_done(ticket, over ? &ticket->member.error : &door->verdict, &result) || !granted) return;
    tutti_handout_unmap(result.table, result.n_table);
    tutti_handout_unmap(result.rows, result.n_rows);
    if (!result.segment) return;
    tutti_error_set(&withdrew, TUTTI_ERR_CANCELLED, "it withdrew while the ranks were meeting");
    tutti_card_fail(result.segment, rank, &withdrew);
    tutti_segment_release(result.segment);
}

void door_tickets_serve(struct door *door)
{
    for (struct tutti_ticket *ticket = tutti_meeting_tickets_take(door->meeting), *next; ticket; ticket = next) {
        next = ticket->next;
        ticket_begin(door, ticket);
    }
    for (uint32_t i = door->n_here; i-- > 0;) { /* from the end: who goes is replaced by the last */
        struct end *end = &door->ends[door->here[i]];
        if (!end->ticket) continue;
        tutti_member_tick(&end->ticket->member, tutti_now_ns());
        ticket_settle(door, end);
    }
}

/* ---- sockets ---- */

static void end_serve(struct door *door, struct end *end)
{
    uint8_t bytes[TUTTI_MEETING_FRAME_MAX + 1];
    size_t n;
    const enum tutti_status status = tutti_meeting_recv(end->fd, bytes, &n, NULL);
    if (status == TUTTI_PENDING) return;
    if (status == TUTTI_OK) {
        door->ops->received(door->arg, end, bytes, n);
        return;
    }
    door->ops->closed(door->arg, end, false);
    door_end_free(end);
}

static void peer_accept(struct door *door)
{
    int32_t pid;
    const int fd = accept4(door->meeting->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        door->ops->full(door->arg);
        return;
    }
    if (fd < 0) return; /* the peer is gone already */
    if (tutti_meeting_peer(fd, &pid) < 0) {
        tutti_log(TUTTI_LOG_WARN, "refused a peer at the meeting of the ranks: %s", tutti_last_error()->text);
        close(fd);
        return;
    }
    struct end *end = door_end_take(door);
    if (!end) {
        close(fd);
        return;
    }
    end->fd = fd;
    door->here[door->n_here++] = end->link;
    door->ops->opened(door->arg, end, pid);
}

static void gates_expire(struct door *door)
{
    const uint64_t now = tutti_now_ns();
    for (uint32_t i = door->n_gates; i-- > 0;)
        if (!door->gates[i]->proved && now >= door->gates[i]->until_ns)
            gate_refuse(door, door->gates[i], "it did not say who it is within 10 s");
}

/* Ends from WAITS on, then gates; returns where these begin. */
static uint32_t polls_fill(struct door *door)
{
    const struct tutti_meeting *meeting = door->meeting;
    const bool open = door->open && !is_full(door);
    uint32_t n = WAITS;
    door->polls[0] = (struct pollfd){.fd = open ? meeting->listen_fd : -1, .events = POLLIN};
    door->polls[1] = (struct pollfd){.fd = meeting->wake_fd, .events = POLLIN};
    door->polls[2] =
        (struct pollfd){.fd = open && meeting->listener ? tutti_listener_fd(meeting->listener) : -1, .events = POLLIN};
    for (uint32_t i = 0; i < door->n_here; i++) {
        if (door->ends[door->here[i]].fd < 0) continue;
        door->polled[n] = door->here[i];
        door->polls[n++] = (struct pollfd){.fd = door->ends[door->here[i]].fd, .events = POLLIN};
    }
    for (uint32_t i = 0; i < door->n_gates; i++)
        door->polls[n + i] = (struct pollfd){.fd = door->gates[i]->fd, .events = POLLIN};
    return n;
}

/* What came from whom is served before newcomers, so that who left has left before it comes again. Only a gate itself
 * ends in its turn, so those before it keep their places. */
static void polls_serve(struct door *door, uint32_t n_ends, uint32_t n)
{
    for (uint32_t i = WAITS; i < n_ends; i++) {
        struct end *end = &door->ends[door->polled[i]];
        if (door->polls[i].revents && end->fd == door->polls[i].fd) end_serve(door, end);
    }
    for (uint32_t i = n; i-- > n_ends;)
        if (door->polls[i].revents) gate_serve(door, door->gates[i - n_ends]);
}

void door_step(struct door *door, uint64_t rest_ns, struct pollfd *extra)
{
    for (uint32_t i = 0; i < door->n_gates; i++) gate_flush(door->gates[i]);
    const uint32_t n_ends = polls_fill(door), n = n_ends + door->n_gates;
    door->polls[3] = extra ? *extra : (struct pollfd){.fd = -1};
    if (poll(door->polls, n, (int)((rest_ns + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS)) < 0) return;
    if (extra) *extra = door->polls[3];
    polls_serve(door, n_ends, n);
    door_tickets_serve(door);
    for (uint32_t i = 0; i < 32 && !is_full(door); i++) {
        if (i % 2 == 0 && door->polls[0].revents) peer_accept(door);
        if (i % 2 == 1 && door->polls[2].revents) gate_accept(door);
    }
    gates_expire(door);
}

/* ---- open and close ---- */

enum tutti_status door_open(struct door *door, struct tutti_meeting *meeting, const struct door_ops *ops, void *arg)
{
    const uint32_t n = (uint32_t)meeting->request->n_ranks + DOOR_UNPROVED;
    *door = (struct door){
        .meeting = meeting, .ops = ops, .arg = arg, .open = true, .n_ends = n, .table_fd = -1, .rows_fd = -1};
    door->ends = tutti_alloc_array(n, sizeof *door->ends);
    door->vacant = tutti_alloc_array(n, sizeof *door->vacant);
    door->here = tutti_alloc_array(n, sizeof *door->here);
    door->polls = tutti_alloc_array(WAITS + n + DOOR_GATES, sizeof *door->polls);
    door->polled = tutti_alloc_array(WAITS + n, sizeof *door->polled);
    if (door->ends && door->vacant && door->here && door->polls && door->polled) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a meeting of %d ranks", (int)meeting->request->n_ranks);
}

void door_close(struct door *door)
{
    door->open = false;
    while (door->n_here > 0) {
        struct end *end = &door->ends[door->here[door->n_here - 1]];
        if (end->ticket) {
            tutti_member_closed(&end->ticket->member);
            ticket_settle(door, end);
        }
        door_end_free(end);
    }
    for (uint32_t i = 0; i < door->n_gates; i++) {
        gate_close(door->gates[i]);
        tutti_free(door->gates[i]);
    }
    if (door->table_fd >= 0) close(door->table_fd);
    if (door->rows_fd >= 0) close(door->rows_fd);
    tutti_free(door->polled);
    tutti_free(door->polls);
    tutti_free(door->here);
    tutti_free(door->vacant);
    tutti_free(door->ends);
}
