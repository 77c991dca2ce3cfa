/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames travel between processes in virtual time. A process takes one frame after another, in the order in which they
 * arrive, and is busy for what taking, working and sending cost. A relay takes no frames of others before it is proved
 * (door.h), and nobody reads from the store what is not there yet: such frames are parked. */

#include "startup.h"

#include "control/meet/machine.h"

#include <stdlib.h>
#include <string.h>

enum {
    FAN_OUT = 32,
    GATHERED = 32 << 10,
    CARD_BYTES = 496,
    OPEN_BYTES = 26,
    HEAD_BYTES = 9,
    STORE_BYTES = 120,
    HOST_BYTES = 73,
    ROW_BYTES = 6
};

enum what { OPEN, SAY, GRANT, PROVED, STORE };
/* The operations of a rank on the store, in their order: a host's first rank publishes, the others read its place. */
enum store_op { ADD_CLAIM, ADD_HOSTS, SET_PLACE, SET_GATE, CHECK_ROUND, GET_GATE, GET_PLACE, STORE_OVER, BEGIN };

struct frame {
    uint64_t at_ns, order;
    uint32_t member; /* the one whose link it belongs to */
    uint32_t to;     /* the process that takes it next */
    uint8_t what, up, op;
    bool heard; /* by the store, where it was parked */
    uint32_t n;
    struct frame *next; /* parked */
    uint8_t bytes[];
};

struct process {
    uint64_t free_ns;
    uint64_t burst; /* since when it was not idle: what goes one way meanwhile goes together */
    uint64_t burst_up;
    struct startup_load load;
    struct tutti_meeting_member member;
    bool met; /* has its verdict */
};

struct host {
    uint32_t number;   /* in the order of the store */
    uint32_t children; /* relays below it */
    uint64_t burst_down;
    bool placed, gated, proved, has_table;
    struct frame *for_place, *for_gate, *for_proof;
};

struct startup {
    const struct startup_world *world;
    struct startup_result *result;
    uint32_t n, n_numbered;
    struct process *processes; /* by rank; the last one is the store */
    struct host *hosts;
    uint32_t *by_number; /* hosts */
    struct tutti_meeting_leader leader;
    uint32_t leads; /* the rank */
    struct frame **heap;
    size_t n_heap, capacity;
    uint64_t order, seed, n_bursts;
    uint64_t cursor;  /* until when the process at hand is busy */
    uint32_t at_hand; /* the process */
    uint32_t n_met;
    uint8_t card[CARD_BYTES];
    enum tutti_status status;
};

/* ---- the queue ---- */

static bool earlier(const struct frame *a, const struct frame *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

static void push(struct startup *s, struct frame *frame, uint64_t at_ns)
{
    if (s->n_heap == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4096;
        struct frame **grown = realloc(s->heap, capacity * sizeof(*grown));
        if (!grown) {
            s->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu messages under way", capacity);
            free(frame);
            return;
        }
        s->heap = grown;
        s->capacity = capacity;
    }
    frame->at_ns = at_ns;
    frame->order = s->order++;
    size_t at = s->n_heap++;
    for (; at > 0 && earlier(frame, s->heap[(at - 1) / 2]); at = (at - 1) / 2) s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = frame;
}

static struct frame *pop(struct startup *s)
{
    struct frame *first = s->heap[0], *last = s->heap[--s->n_heap];
    size_t at = 0;
    for (size_t child = 1; child < s->n_heap; child = 2 * at + 1) {
        if (child + 1 < s->n_heap && earlier(s->heap[child + 1], s->heap[child])) child++;
        if (!earlier(s->heap[child], last)) break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    if (s->n_heap > 0) s->heap[at] = last;
    return first;
}

static struct frame *frame_new(struct startup *s, enum what what, uint32_t member, bool up, const uint8_t *bytes,
                               size_t n)
{
    struct frame *frame = malloc(sizeof(*frame) + (bytes ? n : 0));
    if (!frame) {
        s->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a message of %zu bytes", n);
        return NULL;
    }
    *frame = (struct frame){.what = (uint8_t)what, .member = member, .up = up, .n = (uint32_t)n};
    if (bytes) memcpy(frame->bytes, bytes, n);
    return frame;
}

static void park(struct frame **list, struct frame *frame)
{
    while (*list) list = &(*list)->next;
    frame->next = NULL;
    *list = frame;
}

static void unpark(struct startup *s, struct frame **list)
{
    struct frame *frame = *list;
    *list = NULL;
    while (frame) {
        struct frame *next = frame->next;
        push(s, frame, s->cursor);
        frame = next;
    }
}

/* ---- who is where ---- */

static uint32_t host_of(const struct startup *s, uint32_t rank)
{
    return rank / s->world->per_host;
}

static uint32_t relay_of(const struct startup *s, uint32_t host)
{
    return host * s->world->per_host;
}

static uint32_t parent_of(const struct startup *s, uint32_t host)
{
    return s->by_number[(s->hosts[host].number - 1) / FAN_OUT];
}

static bool is_root(const struct startup *s, uint32_t host)
{
    return s->hosts[host].number == 0;
}

/* The next process on a frame's way; *network: it is on another host. */
static uint32_t next_hop(const struct startup *s, const struct frame *frame, uint32_t from, bool *network)
{
    uint32_t host = host_of(s, from), target = host_of(s, frame->member);
    *network = false;
    if (frame->up && from != relay_of(s, host)) return relay_of(s, host);
    *network = true;
    if (frame->up) return relay_of(s, parent_of(s, host));
    if (host == target) {
        *network = false;
        return frame->member;
    }
    while (parent_of(s, target) != host) target = parent_of(s, target);
    return relay_of(s, target);
}

/* ---- sending: the process at hand is busy for it ---- */

static void count(struct startup_load *load, uint64_t bytes)
{
    load->messages++;
    load->bytes += bytes;
}

static uint64_t cost_of(const struct startup *s, bool network, uint64_t bytes)
{
    const struct startup_costs *c = &s->world->costs;
    return (network ? c->network : c->local) + bytes * c->byte_ps / 1000;
}

/* A message between relays, that goes or comes alone, or with others. */
static uint64_t cost_between(const struct startup *s, bool alone, uint64_t bytes)
{
    const struct startup_costs *c = &s->world->costs;
    return c->frame + (alone ? c->network : c->network * bytes / GATHERED) + bytes * c->byte_ps / 1000;
}

/* The table goes once through each connection, before the first verdict. */
static void table_go_along(struct startup *s, const struct frame *frame, uint32_t to)
{
    struct host *host = &s->hosts[host_of(s, to)];
    if (frame->what != GRANT || host->has_table) return;
    host->has_table = true;
    uint64_t bytes = s->result->table_bytes;
    s->cursor += cost_of(s, true, bytes);
    count(&s->processes[s->at_hand].load, bytes);
    count(&s->processes[to].load, bytes);
    s->processes[to].free_ns += cost_of(s, true, bytes);
}

static void send_on(struct startup *s, struct frame *frame)
{
    bool network;
    if (!frame) return;
    frame->to = next_hop(s, frame, s->at_hand, &network);
    uint64_t bytes = frame->n + HEAD_BYTES;
    if (network) {
        struct process *p = &s->processes[s->at_hand];
        uint64_t *burst = frame->up ? &p->burst_up : &s->hosts[host_of(s, frame->to)].burst_down;
        table_go_along(s, frame, frame->to);
        s->cursor += cost_between(s, *burst != p->burst, bytes);
        *burst = p->burst;
    } else {
        s->cursor += cost_of(s, false, bytes);
    }
    count(&s->processes[s->at_hand].load, bytes);
    push(s, frame, s->cursor + (network ? s->world->costs.latency : 0));
}

/* ---- the machines' edge ---- */

static void leader_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    struct startup *s = arg;
    if (s->world->secret) s->cursor += s->world->costs.hmac;
    send_on(s, frame_new(s, memory ? GRANT : SAY, link, false, bytes, n));
}

static void leader_drop(void *arg, uint32_t link)
{
    (void)arg, (void)link;
}

static bool leader_ended(void *arg, uint32_t link)
{
    (void)arg, (void)link;
    return false;
}

static void member_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    struct startup *s = arg;
    (void)link, (void)memory;
    if (s->world->secret) s->cursor += s->world->costs.hmac;
    send_on(s, frame_new(s, SAY, s->at_hand, true, bytes, n));
}

static enum tutti_status random_bytes(void *arg, void *out, size_t n)
{
    struct startup *s = arg;
    for (size_t i = 0; i < n; i++) ((uint8_t *)out)[i] = (uint8_t)(tutti_random64(&s->seed) >> 32);
    return TUTTI_OK;
}

static uint64_t started(void *arg, int32_t pid)
{
    (void)arg;
    return (uint64_t)pid + 1;
}

static bool alive(void *arg, int32_t pid, uint64_t start)
{
    (void)arg, (void)pid, (void)start;
    return true;
}

static struct tutti_meeting_self self_of(struct startup *s, uint32_t rank)
{
    return (struct tutti_meeting_self){.rank = (int32_t)rank,
                                       .n_ranks = (int32_t)s->n,
                                       .pid = (int32_t)rank + 1,
                                       .secret = s->world->secret ? "a secret of thirty-two characters" : NULL,
                                       .version = "startup",
                                       .build = 1,
                                       .host = 1 + host_of(s, rank),
                                       .reaches_hosts = true,
                                       .card = s->card,
                                       .n_card = CARD_BYTES,
                                       .deadline_ns = TUTTI_NEVER};
}

/* ---- the meeting ---- */

static void lead(struct startup *s, uint32_t rank)
{
    const struct tutti_meeting_out out = {s, leader_send, leader_drop, leader_ended, random_bytes, started, alive};
    const struct tutti_meeting_self self = self_of(s, rank);
    s->leads = rank;
    s->hosts[host_of(s, rank)].proved = s->hosts[host_of(s, rank)].has_table = true;
    s->status = tutti_leader_init(&s->leader, &self, &out, s->n, s->cursor);
    s->n_met = 1;
    s->processes[rank].met = true;
    unpark(s, &s->hosts[host_of(s, rank)].for_proof);
}

/* A rank that knows where to go says who it is. */
static void greet(struct startup *s, uint32_t rank)
{
    const struct tutti_meeting_out out = {.arg = s, .send = member_send, .random = random_bytes};
    const struct tutti_meeting_self self = self_of(s, rank);
    struct process *p = &s->processes[rank];
    p->load.connections++;
    if (rank == relay_of(s, host_of(s, rank))) send_on(s, frame_new(s, OPEN, rank, true, NULL, OPEN_BYTES));
    tutti_member_begin(&p->member, &self, &out);
}

static void verdict(struct startup *s)
{
    const struct tutti_meeting_grant grant = {.shared = true, .world = 1, .n_table = (uint32_t)s->result->table_bytes};
    s->result->seated_ns = s->cursor;
    s->cursor += s->n * s->world->costs.row;
    tutti_leader_tell(&s->leader, &grant);
}

static void leader_take(struct startup *s, const struct frame *frame)
{
    struct tutti_meeting_leader *leader = &s->leader;
    bool far = host_of(s, frame->member) != host_of(s, s->leads);
    const struct tutti_meeting_link *link = &leader->links[frame->member];
    if (frame->what == OPEN || (!far && link->state == TUTTI_LINK_FREE))
        tutti_leader_opened(leader, frame->member, far ? 0 : (int32_t)frame->member + 1, s->cursor);
    if (frame->what == OPEN) {
        tutti_leader_from(leader, frame->member, "10.0.0.1");
        return;
    }
    bool before = link->state >= TUTTI_LINK_SEATED;
    if (s->world->secret && link->state >= TUTTI_LINK_CHALLENGED) s->cursor += s->world->costs.hmac;
    tutti_leader_received(leader, frame->member, frame->bytes, frame->n, s->cursor);
    if (far && !before && link->state >= TUTTI_LINK_SEATED)
        send_on(s, frame_new(s, PROVED, frame->member, false, NULL, 0));
    if (leader->phase == TUTTI_LEADER_DECIDED) verdict(s);
    if (leader->phase == TUTTI_LEADER_OVER && s->result->over_ns == 0) s->result->over_ns = s->cursor;
}

static void member_take(struct startup *s, uint32_t rank, const struct frame *frame)
{
    struct process *p = &s->processes[rank];
    struct tutti_meeting_member *member = &p->member;
    if (s->world->secret) s->cursor += s->world->costs.hmac;
    tutti_member_received(member, frame->bytes, frame->n);
    if (member->phase == TUTTI_MEMBER_GRANTED) {
        if (rank == relay_of(s, host_of(s, rank))) s->cursor += s->n * s->world->costs.row;
        tutti_member_mapped(member, TUTTI_OK);
    }
    if (member->phase != TUTTI_MEMBER_OVER || p->met) return;
    if (member->error.status < 0) s->status = tutti_fail(TUTTI_ERR_INTERNAL, "%s", member->error.text);
    p->met = true;
    if (s->cursor > s->result->granted_ns) s->result->granted_ns = s->cursor;
    if (++s->n_met % 1024 == 0 && s->world->progress) s->world->progress(s->n_met, s->n);
}

/* ---- the store: it answers one operation after another ---- */

static void store_ask(struct startup *s, uint32_t rank, enum store_op op)
{
    struct frame *frame = frame_new(s, STORE, rank, true, NULL, STORE_BYTES);
    if (!frame) return;
    frame->op = (uint8_t)op;
    frame->to = s->n;
    s->cursor += cost_of(s, true, STORE_BYTES);
    count(&s->processes[rank].load, STORE_BYTES);
    push(s, frame, s->cursor + s->world->costs.latency);
}

static void store_take(struct startup *s, struct frame *frame)
{
    struct host *host = &s->hosts[host_of(s, frame->member)];
    frame->heard = true;
    if (frame->op == GET_PLACE && !host->placed) {
        park(&host->for_place, frame);
        return;
    }
    if (frame->op == GET_GATE && !s->hosts[parent_of(s, host_of(s, frame->member))].gated) {
        park(&s->hosts[parent_of(s, host_of(s, frame->member))].for_gate, frame);
        return;
    }
    s->cursor += s->world->costs.store + cost_of(s, true, frame->n);
    count(&s->processes[s->n].load, frame->n);
    if (frame->op == ADD_HOSTS) {
        host->number = s->n_numbered++;
        s->by_number[host->number] = host_of(s, frame->member);
        if (host->number > 0) s->hosts[parent_of(s, host_of(s, frame->member))].children++;
    }
    host->placed = host->placed || frame->op == SET_PLACE;
    host->gated = host->gated || frame->op == SET_GATE;
    if (frame->op == SET_GATE) s->result->published_ns = s->cursor;
    if (frame->op == SET_PLACE) unpark(s, &host->for_place);
    if (frame->op == SET_GATE) unpark(s, &host->for_gate);
    frame->up = frame->heard = false;
    frame->to = frame->member;
    push(s, frame, s->cursor + s->world->costs.latency);
}

static enum store_op op_after(enum store_op op, bool first, bool root)
{
    if (op == ADD_CLAIM && !first) return GET_PLACE;
    return op == GET_GATE || (op == CHECK_ROUND && root) ? STORE_OVER : op + 1;
}

/* The answer came: the next operation, or the meeting. */
static void store_answer(struct startup *s, uint32_t rank, enum store_op op)
{
    bool first = rank == relay_of(s, host_of(s, rank)), root = first && is_root(s, host_of(s, rank));
    enum store_op next = op == BEGIN ? ADD_CLAIM : op_after(op, first, root);
    if (op == BEGIN && !s->world->store) next = STORE_OVER;
    if (next != STORE_OVER)
        store_ask(s, rank, next);
    else if (root)
        lead(s, rank);
    else
        greet(s, rank);
}

/* ---- the run ---- */

static void relay_take(struct startup *s, struct frame *frame)
{
    struct host *host = &s->hosts[host_of(s, frame->to)];
    if (frame->what == PROVED && frame->member == frame->to) {
        host->proved = true;
        unpark(s, &host->for_proof);
        free(frame);
        return;
    }
    if (frame->what == PROVED && frame->member != relay_of(s, host_of(s, frame->member)) &&
        host_of(s, frame->member) == host_of(s, frame->to)) {
        free(frame); /* a member of this host waits for its verdict alone */
        return;
    }
    send_on(s, frame);
}

/* A relay tells the leader of a member of its host before it passes on what that says. */
static void announce(struct startup *s, const struct frame *frame)
{
    bool from_here = host_of(s, frame->member) == host_of(s, frame->to) && frame->member != frame->to;
    const struct tutti_meeting_member *member = &s->processes[frame->member].member;
    if (from_here && frame->up && frame->what == SAY && member->phase == TUTTI_MEMBER_GREETS)
        send_on(s, frame_new(s, OPEN, frame->member, true, NULL, OPEN_BYTES));
}

static bool came_by_network(const struct startup *s, const struct frame *frame)
{
    if (!frame->up) return frame->to == relay_of(s, host_of(s, frame->to));
    return host_of(s, frame->member) != host_of(s, frame->to);
}

static void dispatch(struct startup *s, struct frame *frame)
{
    uint32_t to = frame->to;
    if (frame->what == STORE && frame->up) {
        store_take(s, frame);
        return;
    }
    if (frame->what == STORE) {
        store_answer(s, to, (enum store_op)frame->op);
    } else if (to == s->leads && s->leader.seats && frame->up) {
        leader_take(s, frame);
    } else if (frame->up || frame->member != to || frame->what == PROVED) {
        announce(s, frame);
        relay_take(s, frame);
        return;
    } else {
        member_take(s, to, frame);
    }
    free(frame);
}

static void step(struct startup *s, struct frame *frame)
{
    uint32_t to = frame->to;
    struct process *p = &s->processes[to];
    s->result->n_events++;
    /* A relay that is not proved serves nobody but itself. */
    if (to < s->n && frame->what != STORE && frame->up && to != frame->member && !s->hosts[host_of(s, to)].proved) {
        park(&s->hosts[host_of(s, to)].for_proof, frame);
        return;
    }
    bool idle = frame->at_ns > p->free_ns;
    uint64_t start = idle ? frame->at_ns : p->free_ns;
    if (idle) p->burst = ++s->n_bursts;
    s->cursor = start;
    s->at_hand = to;
    if (!frame->heard && (frame->what != STORE || frame->op != BEGIN)) {
        s->cursor += frame->what != STORE && came_by_network(s, frame) ? cost_between(s, idle, frame->n)
                                                                       : cost_of(s, frame->what == STORE, frame->n);
        count(&p->load, frame->n);
    }
    dispatch(s, frame);
    p->free_ns = s->cursor;
    p->load.busy_ns += s->cursor - start;
}

/* Every process begins, within the spread. */
static void begin_all(struct startup *s)
{
    for (uint32_t rank = 0; rank < s->n && s->status >= 0; rank++) {
        struct frame *frame = frame_new(s, STORE, rank, false, NULL, 0);
        if (!frame) return;
        frame->op = BEGIN;
        frame->to = rank;
        push(s, frame, s->world->spread_ns ? tutti_random64(&s->seed) % s->world->spread_ns : 0);
    }
}

static void most(struct startup_load *most, const struct startup_load *load)
{
    if (load->messages > most->messages) most->messages = load->messages;
    if (load->bytes > most->bytes) most->bytes = load->bytes;
    if (load->busy_ns > most->busy_ns) most->busy_ns = load->busy_ns;
    if (load->connections > most->connections) most->connections = load->connections;
}

static void loads(struct startup *s)
{
    struct startup_result *r = s->result;
    r->store = s->processes[s->n].load;
    r->store.connections = s->n;
    for (uint32_t rank = 0; rank < s->n; rank++) {
        const struct host *host = &s->hosts[host_of(s, rank)];
        struct startup_load *load = &s->processes[rank].load;
        bool first = rank == relay_of(s, host_of(s, rank));
        load->connections += 1; /* the store */
        if (first) load->connections += host->children + s->world->per_host - 1;
        most(rank == s->leads ? &r->leader : first ? &r->relay : &r->rank, load);
    }
}

enum tutti_status startup_run(const struct startup_world *world, struct startup_result *out)
{
    const uint64_t n = (uint64_t)world->hosts * world->per_host;
    struct startup s = {.world = world, .result = out, .seed = world->seed, .n = (uint32_t)n};
    if (n == 0 || n > UINT32_C(1) << 24)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%llu ranks can not start: at most %u", (unsigned long long)n, 1u << 24);
    *out = (struct startup_result){0};
    if (world->hosts > 1) out->table_bytes = HOST_BYTES * (uint64_t)world->hosts + ROW_BYTES * n;
    s.leads = s.n;
    s.processes = tutti_alloc_array(n + 1, sizeof(*s.processes));
    s.hosts = tutti_alloc_array(world->hosts, sizeof(*s.hosts));
    s.by_number = tutti_alloc_array(world->hosts, sizeof(*s.by_number));
    s.status = s.processes && s.hosts && s.by_number
                   ? TUTTI_OK
                   : tutti_fail(TUTTI_ERR_MEMORY, "no memory for the start of %u ranks", s.n);
    if (s.status >= 0) begin_all(&s);
    while (s.status >= 0 && s.n_heap > 0) step(&s, pop(&s));
    if (s.status >= 0 && (s.n_met != s.n || s.leader.verdict.status < 0))
        s.status = tutti_fail(TUTTI_ERR_INTERNAL, "%u of %u ranks met: %s", s.n_met, s.n,
                              s.leader.verdict.status < 0 ? s.leader.verdict.text : "the others wait for ever");
    if (s.status >= 0) loads(&s);
    while (s.n_heap > 0) free(pop(&s));
    free(s.heap);
    if (s.leader.seats) tutti_leader_fini(&s.leader);
    tutti_free(s.processes);
    tutti_free(s.hosts);
    tutti_free(s.by_number);
    return s.status;
}
