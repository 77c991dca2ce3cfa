/* SPDX-License-Identifier: BSD-3-Clause */

/* The leader's thread: gives its machine what comes to its door, makes the segment, or the table of hosts, and passes
 * it on. A member that can not take it ends the meeting for the others, who have it already, through the cards in it.
 */

#include "control/host.h"
#include "control/meet/card.h"
#include "control/meet/door.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

struct lead {
    struct tutti_meeting *meeting;
    struct tutti_meeting_leader machine;
    struct door door;
    uint8_t card[TUTTI_CARD_RECORD_BYTES]; /* this rank's */
};

/* ---- what the machine asks for ---- */

static void link_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    door_say(&((struct lead *)arg)->door, link, bytes, n, memory);
}

static void link_drop(void *arg, uint32_t link)
{
    door_drop(&((struct lead *)arg)->door, link);
}

static bool link_ended(void *arg, uint32_t link)
{
    return door_ended(&((struct lead *)arg)->door, link);
}

/* ---- what comes to the door ---- */

static void opened(void *arg, struct end *end, int32_t pid)
{
    struct tutti_meeting_leader *machine = &((struct lead *)arg)->machine;
    char text[48];
    tutti_leader_opened(machine, end->link, pid, tutti_now_ns());
    if (end->address.family == 0) return;
    tutti_leader_from(machine, end->link, tutti_net_address_text(&end->address, text, sizeof text));
}

/* A rank that has its seat is proved; the relay waits for that. */
static void received(void *arg, struct end *end, const uint8_t *bytes, size_t n)
{
    struct lead *lead = arg;
    struct gate *gate = end->gate;
    const struct tutti_meeting_link *link = &lead->machine.links[end->link];
    const bool before = link->state >= TUTTI_LINK_SEATED;
    tutti_leader_received(&lead->machine, end->link, bytes, n, tutti_now_ns());
    if (before || link->state < TUTTI_LINK_SEATED || !gate || end->gate != gate) return;
    if (end->number == 0) gate->proved = true;
    gate_send(gate, GATE_PROVED, end->number, NULL, 0);
}

static void closed(void *arg, struct end *end, bool astray)
{
    struct tutti_meeting_leader *machine = &((struct lead *)arg)->machine;
    if (astray)
        tutti_leader_astray(machine, end->link, tutti_now_ns());
    else
        tutti_leader_closed(machine, end->link, tutti_now_ns());
}

static void full(void *arg)
{
    struct lead *lead = arg;
    const struct tutti_meeting_self *self = &lead->machine.self;
    tutti_fail_errno(TUTTI_ERR_SYSTEM, "%u of %d ranks have come, and rank %d can not let in more; raise `ulimit -n`",
                     lead->machine.n_seated, (int)self->n_ranks, (int)self->rank);
    tutti_leader_fail(&lead->machine, true);
}

static const struct door_ops lead_ops = {.opened = opened, .received = received, .closed = closed, .full = full};

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
        uint64_t rest = now < mine->deadline_ns ? mine->deadline_ns - now : 0;
        if (rest > TUTTI_MEETING_SLICE_NS) rest = TUTTI_MEETING_SLICE_NS;
        if (phase != TUTTI_LEADER_GATHERS && rest > 5 * TUTTI_NS_PER_MS)
            rest = 5 * TUTTI_NS_PER_MS; /* a rank whose connection ended may be dead at any time */
        if (rest > 0) door_step(&lead->door, rest, NULL);
        lead->door.open = lead->machine.phase == TUTTI_LEADER_GATHERS;
        /* After it: whoever waits at the door has come, however late this rank looks. */
        tutti_leader_tick(&lead->machine, tutti_now_ns());
    }
}

/* ---- the verdict ---- */

/* Where the ranks were seen: those of other hosts by whom they came to, those of this host by the others. */
static struct tutti_net_address *addresses_make(const struct lead *lead)
{
    const struct tutti_meeting_leader *machine = &lead->machine;
    const uint32_t n = (uint32_t)machine->self.n_ranks;
    struct tutti_net_address *addresses = tutti_alloc_array(n, sizeof *addresses), here = lead->door.address;
    if (here.family == 0) tutti_net_address_parse("127.0.0.1", &here); /* all came by Unix sockets */
    for (uint32_t rank = 0; addresses && rank < n; rank++) {
        const int32_t link = machine->seats[rank].link;
        if (link >= 0) addresses[rank] = lead->door.ends[link].address;
        if (addresses[rank].family == 0) addresses[rank] = here;
    }
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
    const uint32_t n = (uint32_t)lead->machine.self.n_ranks;
    struct tutti_world_facts facts;
    uint8_t *table = NULL;
    uint32_t n_table;
    int fd;
    TUTTI_TRY(tutti_world_facts_read(lead->meeting->request->card, n, card_read, lead, NULL, &facts));
    struct tutti_net_address *addresses = addresses_make(lead);
    enum tutti_status status = addresses ? tutti_table_make(n, card_read, lead, addresses, &facts, &table, &n_table)
                                         : tutti_fail(TUTTI_ERR_MEMORY, "no memory for the addresses of %u ranks", n);
    tutti_free(addresses);
    if (status >= 0) status = tutti_handout_make(table, n_table, &fd);
    tutti_free(table);
    return status < 0 ? status : door_table_set(&lead->door, fd);
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
    struct tutti_meeting_result *result = &lead->door.result;
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
    for (uint32_t rank = 0; rank < config.n; rank++)
        tutti_card_expect(result->segment, rank, seats[rank].hidden ? 0 : seats[rank].pid);
    return TUTTI_OK;
}

static enum tutti_status grant_make(struct lead *lead)
{
    TUTTI_TRY(tutti_random_bytes(&lead->door.result.nonce, sizeof lead->door.result.nonce));
    return is_far(lead) ? table_make(lead) : segment_make(lead);
}

static enum tutti_status lead_open(struct lead *lead, struct tutti_meeting *meeting)
{
    struct tutti_meeting_self self = tutti_meeting_self(meeting->request, lead->card);
    self.reaches_hosts = meeting->request->listener != NULL;
    self.alone_because = meeting->request->alone_because;
    const struct tutti_meeting_out out = {.arg = lead,
                                          .send = link_send,
                                          .drop = link_drop,
                                          .ended = link_ended,
                                          .random = tutti_meeting_random,
                                          .started = tutti_meeting_started,
                                          .alive = tutti_meeting_alive};
    TUTTI_TRY(door_open(&lead->door, meeting, &lead_ops, lead));
    return tutti_leader_init(&lead->machine, &self, &out, lead->door.n_ends, tutti_now_ns());
}

static enum tutti_status lead_run(struct lead *lead, void (*before_verdict)(void *arg), void *arg,
                                  struct tutti_meeting_result *out)
{
    struct tutti_meeting_leader *machine = &lead->machine;
    run(lead, TUTTI_LEADER_GATHERS);
    if (machine->verdict.status == TUTTI_OK && grant_make(lead) < 0) tutti_leader_fail(machine, true);
    if (before_verdict) before_verdict(arg);
    tutti_meeting_leave(lead->meeting);
    const struct tutti_meeting_result *result = &lead->door.result;
    struct tutti_meeting_grant grant = {.shared = result->shared, .world = result->nonce, .n_table = result->n_table};
    if (machine->verdict.status == TUTTI_OK && result->table &&
        tutti_meeting_digest(&machine->self, grant.world, result->table, grant.n_table, grant.digest) < 0)
        tutti_leader_fail(machine, true);
    lead->door.open = false;
    lead->door.verdict = machine->verdict;
    tutti_leader_tell(machine, &grant);
    door_tickets_serve(&lead->door);
    run(lead, TUTTI_LEADER_TELLS);
    if (machine->verdict.status == TUTTI_OK) {
        *out = *result;
        return !result->table ? TUTTI_OK : tutti_handout_map(lead->door.rows_fd, &out->rows, &out->n_rows);
    }
    tutti_handout_unmap(result->table, result->n_table);
    if (result->segment) {
        tutti_card_fail(result->segment, (uint32_t)machine->culprit, &machine->verdict);
        tutti_segment_release(result->segment);
    }
    return tutti_fail_record(&machine->verdict);
}

enum tutti_status tutti_meeting_lead(struct tutti_meeting *meeting, void (*before_verdict)(void *arg), void *arg,
                                     struct tutti_meeting_result *out)
{
    struct lead lead = {.meeting = meeting}; /* its machine and door are some 10 KiB */
    enum tutti_status status = lead_open(&lead, meeting);
    if (status == TUTTI_OK)
        status = lead_run(&lead, before_verdict, arg, out);
    else if (before_verdict)
        before_verdict(arg);
    const struct tutti_error error = *tutti_last_error();
    door_close(&lead.door);
    tutti_leader_fini(&lead.machine);
    tutti_meeting_destroy(meeting);
    return status < 0 ? tutti_fail_record(&error) : status;
}
