/* SPDX-License-Identifier: BSD-3-Clause */

/* The relay of a host: passes on what the members of its host, and of the hosts below, say to the leader, and back. It
 * is a member itself, whose machine runs here. When the connection upwards ends, all of them come again elsewhere. */

#include "base/session.h"
#include "control/meet/door.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define LINGER_NS (5 * TUTTI_NS_PER_S) /* that the leader may take to close, once this rank is told */

struct relay {
    struct tutti_meeting *meeting;
    struct door door;
    struct gate above;
    struct tutti_meeting_member member; /* this rank's own; number 0 */
    uint32_t n_numbers;
    bool proved, over;        /* over: the connection upwards ended */
    enum tutti_status status; /* < 0: this rank can not go on */
    uint8_t *table;           /* what came of it */
    uint32_t n_table, n_read;
    struct tutti_meeting_result result; /* this rank's */
    uint8_t card[TUTTI_CARD_RECORD_BYTES];
};

static void up_send(struct relay *relay, enum gate_what what, uint32_t number, const void *bytes, size_t n)
{
    gate_send(&relay->above, what, number, bytes, n);
}

static void own_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    (void)link, (void)memory;
    up_send(arg, GATE_SAY, 0, bytes, n);
}

/* ---- what comes to the door goes up ---- */

static void opened(void *arg, struct end *end, int32_t pid)
{
    struct relay *relay = arg;
    uint8_t address[GATE_ADDRESS] = {end->address.family};
    (void)pid;
    memcpy(address + 1, end->address.bytes, sizeof end->address.bytes);
    end->up = ++relay->n_numbers;
    if (gate_number_set(&relay->above, end->up, end->link))
        up_send(relay, GATE_OPEN, end->up, address, sizeof address);
    else
        door_drop(&relay->door, end->link);
}

static void received(void *arg, struct end *end, const uint8_t *bytes, size_t n)
{
    if (n <= TUTTI_MEETING_FRAME_MAX) up_send(arg, GATE_SAY, end->up, bytes, n);
}

static void closed(void *arg, struct end *end, bool astray)
{
    struct relay *relay = arg;
    const uint8_t how = astray;
    gate_number_forget(&relay->above, end->up);
    up_send(relay, GATE_CLOSED, end->up, &how, sizeof how);
}

static void full(void *arg)
{
    struct relay *relay = arg;
    relay->status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "rank %d can not let in more ranks; raise `ulimit -n`",
                                     (int)relay->member.self.rank);
}

static const struct door_ops relay_ops = {.opened = opened, .received = received, .closed = closed, .full = full};

/* ---- what comes from above goes down ---- */

/* False: it can not be. The last part makes the table that goes along with verdicts. */
static bool table_take(struct relay *relay, const struct gate_frame *frame)
{
    if (!relay->table) {
        if (frame->number == 0 || frame->number > TUTTI_MEETING_TABLE_MAX || relay->door.result.table) return false;
        relay->table = tutti_alloc(frame->number);
        relay->n_table = frame->number, relay->n_read = 0;
    }
    if (!relay->table || frame->number != relay->n_table || frame->n == 0 || frame->n > relay->n_table - relay->n_read)
        return false;
    memcpy(relay->table + relay->n_read, frame->bytes, frame->n);
    relay->n_read += (uint32_t)frame->n;
    if (relay->n_read < relay->n_table) return true;
    int fd;
    enum tutti_status status = tutti_handout_make(relay->table, relay->n_table, &fd);
    if (status >= 0) status = door_table_set(&relay->door, fd);
    if (status < 0) relay->status = status;
    tutti_free(relay->table);
    relay->table = NULL;
    return true;
}

/* This rank's own verdict is taken as by any member. */
static void own_take(struct relay *relay, const struct gate_frame *frame)
{
    struct tutti_meeting_member *member = &relay->member;
    if (frame->what == GATE_DROP) {
        tutti_member_closed(member);
        return;
    }
    tutti_member_received(member, frame->bytes, frame->n);
    if (member->phase != TUTTI_MEMBER_GRANTED) return;
    struct tutti_meeting_result *result = &relay->result;
    result->nonce = member->world, result->shared = member->shared;
    tutti_member_mapped(member, member->n_table > 0
                                    ? door_table_map(&relay->door, member, result)
                                    : tutti_fail(TUTTI_ERR_PROTOCOL, "a verdict from another host without a table"));
}

static bool down_take(struct relay *relay, const struct gate_frame *frame)
{
    const bool says = frame->what == GATE_SAY || frame->what == GATE_GRANT;
    if (frame->what == GATE_TABLE) return table_take(relay, frame);
    if ((!says && frame->what != GATE_DROP && frame->what != GATE_PROVED) ||
        (frame->what == GATE_GRANT && relay->door.table_fd < 0))
        return false;
    if (frame->number == 0 && frame->what == GATE_PROVED)
        relay->proved = true;
    else if (frame->number == 0)
        own_take(relay, frame);
    if (frame->number == 0) return true;
    const uint32_t link = gate_number_find(&relay->above, frame->number);
    if (link == UINT32_MAX) return true; /* it went meanwhile */
    struct end *end = &relay->door.ends[link];
    if (frame->what == GATE_PROVED && end->gate) {
        if (end->number == 0) end->gate->proved = true;
        gate_send(end->gate, GATE_PROVED, end->number, NULL, 0);
    } else if (frame->what == GATE_PROVED) {
        return true; /* a member of this host waits for its verdict alone */
    } else if (frame->what == GATE_DROP) {
        gate_number_forget(&relay->above, frame->number);
        door_drop(&relay->door, link);
    } else {
        door_say(&relay->door, link, frame->bytes, frame->n, frame->what == GATE_GRANT);
    }
    return true;
}

static void above_serve(struct relay *relay)
{
    for (;;) {
        struct gate_frame frame;
        const enum tutti_status status = gate_recv(&relay->above, &frame);
        if (status == TUTTI_PENDING) return;
        if (status == TUTTI_OK && down_take(relay, &frame)) continue;
        const char *shows =
            relay->proved || relay->above.tls ? NULL : tutti_tls_shows(relay->above.in, relay->above.n_in);
        if (shows)
            relay->status = tutti_fail(TUTTI_ERR_AUTH, "rank %d does not get into the meeting of the ranks: %s",
                                       (int)relay->member.self.rank, shows);
        relay->over = true;
        return;
    }
}

/* ---- the run ---- */

static void step(struct relay *relay, uint64_t until_ns)
{
    const uint64_t now = tutti_now_ns();
    struct pollfd above = {.fd = relay->above.fd, .events = POLLIN};
    uint64_t rest = now < until_ns ? until_ns - now : 0;
    if (rest > TUTTI_MEETING_SLICE_NS) rest = TUTTI_MEETING_SLICE_NS;
    gate_flush(&relay->above);
    if (relay->proved)
        door_step(&relay->door, rest, &above);
    else if (poll(&above, 1, (int)((rest + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS)) < 0)
        return;
    if (above.revents) above_serve(relay);
    door_tickets_serve(&relay->door);
    tutti_member_tick(&relay->member, tutti_now_ns());
}

/* Until the leader closes. After this rank's own verdict newcomers belong to the next meeting. */
static void run(struct relay *relay)
{
    const struct tutti_meeting_request *request = relay->meeting->request;
    uint64_t until_ns = TUTTI_NEVER;
    while (!relay->over && relay->status >= 0 && tutti_now_ns() < until_ns) {
        if (relay->member.phase == TUTTI_MEMBER_OVER && until_ns == TUTTI_NEVER) {
            tutti_meeting_leave(relay->meeting);
            relay->door.open = false;
            relay->door.verdict = relay->member.error;
            until_ns = tutti_deadline_ns(LINGER_NS);
            if (relay->member.error.status == TUTTI_OK && until_ns < request->deadline_ns)
                until_ns = request->deadline_ns;
        }
        if (relay->member.phase != TUTTI_MEMBER_OVER && tutti_meeting_cancelled(request))
            relay->status =
                tutti_fail(TUTTI_ERR_CANCELLED, "rank %d withdrew while the ranks were meeting", (int)request->rank);
        else
            step(relay, relay->member.until_ns < until_ns ? relay->member.until_ns : until_ns);
    }
    if (relay->over) tutti_member_closed(&relay->member);
}

static enum tutti_status relay_open(struct relay *relay, int fd, struct tutti_tls *tls)
{
    const struct tutti_meeting_out out = {.arg = relay, .send = own_send, .random = tutti_meeting_random};
    const struct tutti_meeting_self self = tutti_meeting_self(relay->meeting->request, relay->card);
    const uint8_t here[GATE_ADDRESS] = {0};
    TUTTI_TRY(gate_open(&relay->above, fd, tls, 8 * ((uint32_t)self.n_ranks + DOOR_UNPROVED)));
    TUTTI_TRY(door_open(&relay->door, relay->meeting, &relay_ops, relay));
    up_send(relay, GATE_OPEN, 0, here, sizeof here);
    tutti_member_begin(&relay->member, &self, &out);
    return TUTTI_OK;
}

static void result_unmap(const struct tutti_meeting_result *result)
{
    tutti_handout_unmap(result->table, result->n_table);
    tutti_handout_unmap(result->rows, result->n_rows);
}

enum tutti_status tutti_meeting_relay(struct tutti_meeting *meeting, int fd, struct tutti_tls *tls,
                                      struct tutti_meeting_result *out)
{
    struct relay *relay = tutti_alloc(sizeof *relay);
    struct tutti_meeting_loss *lost = meeting->request->lost;
    if (!relay) {
        tutti_tls_close(tls);
        close(fd);
        tutti_meeting_destroy(meeting);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the relay of a host");
    }
    relay->meeting = meeting;
    relay->door.table_fd = relay->door.rows_fd = -1;
    enum tutti_status status = relay_open(relay, fd, tls);
    if (status >= 0) {
        run(relay);
        status = relay->status < 0 ? relay->status : relay->member.error.status;
        if (relay->status >= 0 && status < 0) tutti_fail_record(&relay->member.error);
        if (status == TUTTI_AGAIN && lost && relay->member.leader.pid > 0)
            *lost = tutti_meeting_loss_now(relay->member.leader.rank, relay->member.leader.pid);
    }
    const struct tutti_error error = *tutti_last_error();
    if (status == TUTTI_OK)
        *out = relay->result;
    else
        result_unmap(&relay->result);
    door_close(&relay->door);
    tutti_handout_unmap(relay->door.result.table, relay->door.result.n_table);
    gate_close(&relay->above);
    tutti_free(relay->table);
    tutti_free(relay);
    tutti_meeting_destroy(meeting);
    return status < 0 ? tutti_fail_record(&error) : status;
}
