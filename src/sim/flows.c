/* SPDX-License-Identifier: BSD-3-Clause */
/* The network whose links are shared: a message is a flow over the links of its path, all flows have max-min fair rates
 * at every time, worked out anew when flows start and end. The last byte arrives a latency after it left. A rank may
 * have any number of messages under way; it begins one at a time during the message's overhead. Computing takes the
 * CPU, which messages do not.
 *
 * What begins at one time is shared out once, and so is what is left when flows end at one time. A flow keeps what it
 * had left when its rate last changed; so the others cost nothing. The path is chosen when the message begins. */

#include "sim/network.h"
#include "sim/share.h"
#include "sim/topology.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX
#define MOST_PS 9e18
#define FEW 256 /* so many messages under way end each at its own time */

struct flow {
    double left; /* bytes, at `since` */
    double rate; /* bytes a picosecond */
    uint64_t begun, since, end, latency;
    uint32_t send; /* operation */
    uint32_t at;   /* its place in the heap; NOWHERE: its rate is not known yet */
    uint32_t last; /* the last operation that waits for its end, or is it */
};

struct flows {
    struct tutti_sim_network network;
    struct tutti_sim_topology topology;
    struct tutti_sim_share share;
    struct flow *flows; /* by number in the share */
    uint32_t *heap;     /* flows by end, then by number of the operation; four children a node */
    uint32_t n_heap, n_under_way, capacity;
    uint32_t *stack;               /* scratch: places in the heap */
    uint32_t *pairs, n_slots;      /* by hash of sender and receiver: their flow; a power of two, over half is free */
    uint32_t *after;               /* by operation: the one that goes next from its rank to the same peer */
    double *carried;               /* bytes, by link */
    uint64_t *begins, *cpu, *idle; /* by rank: may begin a message, may compute, has ended all */
    uint64_t overhead;
    struct tutti_sim_path paths[2]; /* scratch: the one at hand, the other way */
};

static struct flows *flows_of(const struct tutti_sim_network *network)
{
    return (struct flows *)(uintptr_t)network;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- the heap ---- */

static bool ends_before(const struct flows *net, uint32_t a, uint32_t b)
{
    const struct flow *x = &net->flows[a], *y = &net->flows[b];
    return x->end < y->end || (x->end == y->end && x->send < y->send);
}

static void set(struct flows *net, uint32_t at, uint32_t flow)
{
    net->heap[at] = flow;
    net->flows[flow].at = at;
}

/* Puts a flow where it belongs, from the place `at`, which is free. */
static void settle(struct flows *net, uint32_t at, uint32_t flow)
{
    for (; at > 0 && ends_before(net, flow, net->heap[(at - 1) / 4]); at = (at - 1) / 4)
        set(net, at, net->heap[(at - 1) / 4]);
    for (uint32_t first; (first = 4 * at + 1) < net->n_heap;) {
        uint32_t least = first, end = first + 4 < net->n_heap ? first + 4 : net->n_heap;
        for (uint32_t child = first + 1; child < end; child++)
            if (ends_before(net, net->heap[child], net->heap[least])) least = child;
        if (!ends_before(net, net->heap[least], flow)) break;
        set(net, at, net->heap[least]);
        at = least;
    }
    set(net, at, flow);
}

static void drop_first(struct flows *net)
{
    uint32_t last = net->heap[--net->n_heap];
    if (net->n_heap > 0) settle(net, 0, last);
}

/* The last end that is not after `until`; the first one is not. */
static uint64_t last_end(const struct flows *net, uint64_t until)
{
    uint64_t last = 0;
    uint32_t n = 1;
    net->stack[0] = 0;
    while (n > 0) {
        uint32_t at = net->stack[--n];
        last = later(last, net->flows[net->heap[at]].end);
        for (uint32_t child = 4 * at + 1; child < net->n_heap && child <= 4 * at + 4; child++)
            if (net->flows[net->heap[child]].end <= until) net->stack[n++] = child;
    }
    return last;
}

/* ---- paths ---- */

static double fullest(const struct flows *net, const struct tutti_sim_path *path)
{
    double most = 0;
    for (uint32_t i = 0; i < path->n; i++) {
        const struct tutti_sim_share_link *link = &net->share.links[path->links[i]];
        double load = (link->n + 1) / link->capacity;
        if (load > most) most = load;
    }
    return most;
}

/* Equal links are taken in turn by receiver, so that symmetric calls use them evenly, or by hash. */
static uint64_t choice_of(const struct flows *net, const struct tutti_sim_op *send)
{
    uint64_t seed = (uint64_t)net->topology.is.seed, pair = send->rank | (uint64_t)send->peer << 32;
    return seed == 0 ? send->peer : tutti_mix64(pair ^ tutti_mix64(seed + ((uint64_t)send->tag << 32)));
}

static bool whole(const struct flows *net, const struct tutti_sim_path *path)
{
    for (uint32_t i = 0; i < path->n; i++)
        if (net->topology.health[path->links[i]] == 0) return false;
    return true;
}

/* A way around links that failed: the straight ways in turn, then the detours. NULL, and a sentence: there is none. */
static const struct tutti_sim_path *go_around(struct flows *net, const struct tutti_sim_op *send, uint64_t choice)
{
    const struct tutti_sim_topology *topology = &net->topology;
    struct tutti_sim_path *path = &net->paths[0];
    char name[64] = "";
    for (uint32_t detour = 0; detour < 2; detour++) {
        uint32_t ways = 1;
        for (uint32_t way = 0; way < ways; way++) {
            ways = tutti_sim_topology_route(topology, send->rank, send->peer, detour == 1, choice + way, path);
            if (ways > 0 && whole(net, path)) return path;
            for (uint32_t i = 0; ways > 0 && i < path->n && !name[0]; i++)
                if (topology->health[path->links[i]] == 0)
                    tutti_sim_topology_name(topology, path->links[i], name, sizeof(name));
        }
    }
    net->network.status = tutti_fail(TUTTI_ERR_ARGUMENT,
                                     "rank %u is cut off from rank %u: every way crosses a link that "
                                     "failed, such as %s",
                                     send->rank, send->peer, name);
    return NULL;
}

/* Adaptive: of two straight ways and two detours the one with the fewest flows on its fullest link; a detour uses twice
 * the links, so it has to be less than half as full. */
static struct tutti_sim_path *adapt(struct flows *net, const struct tutti_sim_op *send, uint64_t choice)
{
    int best = 0;
    double load = fullest(net, &net->paths[0]);
    for (uint64_t other = 1; other < 4; other++) {
        bool detour = other > 1;
        struct tutti_sim_path *path = &net->paths[1 - best];
        uint32_t ways = tutti_sim_topology_route(&net->topology, send->rank, send->peer, detour, choice + other, path);
        double its = ways > 0 ? fullest(net, path) * (detour ? 2 : 1) : load;
        if (its >= load) continue;
        load = its;
        best = 1 - best;
    }
    return &net->paths[best];
}

static const struct tutti_sim_path *route(struct flows *net, const struct tutti_sim_op *send)
{
    const struct tutti_sim_topology *topology = &net->topology;
    uint64_t choice = choice_of(net, send);
    int routing = (int)topology->is.routing;
    struct tutti_sim_path *path = &net->paths[0];
    if (routing != TUTTI_SIM_VALIANT ||
        tutti_sim_topology_route(topology, send->rank, send->peer, true, choice, path) == 0)
        tutti_sim_topology_route(topology, send->rank, send->peer, false, choice, path);
    if (routing == TUTTI_SIM_ADAPTIVE && topology->node[send->rank] != topology->node[send->peer])
        path = adapt(net, send, choice);
    return topology->n_failed == 0 || whole(net, path) ? path : go_around(net, send, choice);
}

/* ---- flows ---- */

static uint32_t slot_of(const struct flows *net, const struct tutti_sim_op *send)
{
    return (uint32_t)tutti_mix64(send->rank | (uint64_t)send->peer << 32) & (net->n_slots - 1);
}

/* The slot of the pair, or the free one where it would be. */
static uint32_t find_pair(const struct flows *net, const struct tutti_sim_op *send)
{
    uint32_t slot = slot_of(net, send);
    for (; net->pairs[slot] != NOWHERE; slot = (slot + 1) & (net->n_slots - 1)) {
        const struct tutti_sim_op *other = &net->network.program->ops[net->flows[net->pairs[slot]].send];
        if (other->rank == send->rank && other->peer == send->peer) break;
    }
    return slot;
}

/* Frees a slot, and moves those behind it that would not be found any more. */
static void forget_pair(struct flows *net, uint32_t slot)
{
    uint32_t mask = net->n_slots - 1;
    net->pairs[slot] = NOWHERE;
    for (uint32_t at = (slot + 1) & mask; net->pairs[at] != NOWHERE; at = (at + 1) & mask) {
        uint32_t home = slot_of(net, &net->network.program->ops[net->flows[net->pairs[at]].send]);
        if (((at - home) & mask) < ((at - slot) & mask)) continue;
        net->pairs[slot] = net->pairs[at];
        net->pairs[at] = NOWHERE;
        slot = at;
    }
}

static bool grow_pairs(struct flows *net, uint32_t n)
{
    if (2 * (uint64_t)n <= net->n_slots) return true;
    uint32_t *old = net->pairs, n_old = net->n_slots, n_new = n_old ? n_old : 256;
    while (n_new < 4 * (uint64_t)n) n_new *= 2;
    uint32_t *pairs = tutti_alloc_array(n_new, sizeof(*pairs));
    if (!pairs) return false;
    memset(pairs, 0xff, n_new * sizeof(*pairs));
    net->pairs = pairs;
    net->n_slots = n_new;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i] != NOWHERE) pairs[find_pair(net, &net->network.program->ops[net->flows[old[i]].send])] = old[i];
    tutti_free(old);
    return true;
}

static bool make_room(struct flows *net, uint32_t n)
{
    if (!grow_pairs(net, net->n_under_way + 1)) return false;
    if (n < net->capacity) return true;
    uint32_t capacity = net->share.flow_capacity;
    struct flow *flows = realloc(net->flows, capacity * sizeof(*flows));
    if (flows) net->flows = flows;
    uint32_t *heap = realloc(net->heap, capacity * sizeof(*heap));
    if (heap) net->heap = heap;
    uint32_t *stack = realloc(net->stack, capacity * sizeof(*stack));
    if (stack) net->stack = stack;
    if (flows && heap && stack) net->capacity = capacity;
    return flows && heap && stack;
}

static void start(struct flows *net, uint32_t send, uint32_t last, uint64_t now)
{
    const struct tutti_sim_op *op = &net->network.program->ops[send];
    const struct tutti_sim_path *path = route(net, op);
    uint32_t flow;
    if (!path) return;
    if (tutti_sim_share_start(&net->share, path->links, path->n, &flow) < 0 || !make_room(net, flow)) {
        net->network.status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u messages under way", net->share.n_flows);
        return;
    }
    for (uint32_t i = 0; i < path->n; i++) net->carried[path->links[i]] += (double)op->size;
    net->flows[flow] = (struct flow){.left = (double)op->size,
                                     .begun = now,
                                     .since = now,
                                     .latency = tutti_sim_topology_latency_ps(&net->topology, op->rank, op->peer, path),
                                     .send = send,
                                     .at = NOWHERE,
                                     .last = last};
    net->pairs[find_pair(net, op)] = flow;
    net->n_under_way++;
}

/* Starts the message, or puts it behind the one that is under way to the same rank. */
static void enter(struct flows *net, uint32_t send, uint64_t now)
{
    uint32_t flow = net->n_under_way > 0 ? net->pairs[find_pair(net, &net->network.program->ops[send])] : NOWHERE;
    if (flow == NOWHERE) {
        start(net, send, send, now);
        return;
    }
    net->after[net->flows[flow].last] = send;
    net->flows[flow].last = send;
}

/* The first message of the heap is over: the next one to the same rank starts. */
static void leave(struct flows *net, uint64_t now)
{
    uint32_t number = net->heap[0];
    const struct flow *flow = &net->flows[number];
    uint32_t send = flow->send, last = flow->last;
    drop_first(net);
    forget_pair(net, find_pair(net, &net->network.program->ops[send]));
    net->n_under_way--;
    tutti_sim_share_end(&net->share, number);
    if (send != last) start(net, net->after[send], last, now);
}

/* The rates from now on. */
static void share_out(struct flows *net, uint64_t now)
{
    tutti_sim_share_solve(&net->share);
    for (uint32_t i = 0; i < net->share.n_asked; i++) {
        uint32_t number = net->share.asked[i];
        struct flow *flow = &net->flows[number];
        double rate = net->share.flows[number].rate, change = rate - flow->rate;
        if (flow->at != NOWHERE && flow->end <= now) continue; /* it is over, and waits for others */
        if (flow->at != NOWHERE && (change < 0 ? -change : change) <= 1e-10 * rate) continue;
        flow->left -= flow->rate * (double)(now - flow->since);
        if (flow->left < 0) flow->left = 0;
        flow->since = now;
        flow->rate = rate;
        if (flow->left / rate + (double)now > MOST_PS)
            net->network.status = tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u: a message ends after more than 100 days",
                                             net->network.program->ops[flow->send].rank);
        else
            flow->end = now + (uint64_t)(flow->left / rate + 0.5);
        settle(net, flow->at == NOWHERE ? net->n_heap++ : flow->at, number);
    }
}

/* ---- the network ---- */

static uint64_t flows_ready(const struct tutti_sim_network *network, const struct tutti_sim_op *op, uint64_t now)
{
    const struct flows *net = flows_of(network);
    if (op->type == TUTTI_SIM_RECV) return now;
    return later(now, op->type == TUTTI_SIM_SEND ? net->begins[op->rank] : net->cpu[op->rank]);
}

static struct tutti_sim_begun flows_begin(struct tutti_sim_network *network, const struct tutti_sim_op *op,
                                          uint64_t now)
{
    struct flows *net = flows_of(network);
    if (op->type == TUTTI_SIM_CALC) {
        net->cpu[op->rank] = now + op->size;
        return (struct tutti_sim_begun){.done_ps = now + op->size};
    }
    net->begins[op->rank] = now + net->overhead;
    enter(net, (uint32_t)(op - network->program->ops), now);
    return (struct tutti_sim_begun){.done_ps = TUTTI_NEVER, .arrives_ps = TUTTI_NEVER};
}

static uint64_t flows_ready_in(const struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    (void)network, (void)send;
    return now;
}

static uint64_t flows_take_in(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    struct flows *net = flows_of(network);
    net->idle[send->peer] = later(net->idle[send->peer], now);
    return now;
}

static void flows_meet(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    (void)network, (void)send, (void)now; /* no send waits for its receive */
}

/* Where many messages are under way, those that end within a small part of the time of the first end with the last of
 * them: late, never early, so no bound is beaten. */
static uint64_t flows_next(struct tutti_sim_network *network, uint64_t now)
{
    struct flows *net = flows_of(network);
    if (tutti_sim_share_stale(&net->share)) share_out(net, now);
    if (net->n_heap == 0) return TUTTI_NEVER;
    const struct flow *first = &net->flows[net->heap[0]];
    if (net->n_heap <= FEW) return later(now, first->end);
    double more = net->topology.is.merge * (double)(first->end - first->begun);
    return later(now, last_end(net, first->end + (uint64_t)more));
}

static bool flows_over(struct tutti_sim_network *network, uint64_t now, uint32_t *send, uint64_t *arrives)
{
    struct flows *net = flows_of(network);
    if (net->n_heap == 0 || net->flows[net->heap[0]].end > now) return false;
    const struct flow *flow = &net->flows[net->heap[0]];
    *send = flow->send;
    *arrives = now + flow->latency;
    uint64_t *idle = &net->idle[network->program->ops[flow->send].rank];
    *idle = later(*idle, now);
    leave(net, now);
    return true;
}

static bool flows_link(const struct tutti_sim_network *network, uint32_t i, struct tutti_sim_link *out, char *name,
                       size_t capacity)
{
    const struct flows *net = flows_of(network);
    if (i >= net->topology.n_links) return false;
    if (name) tutti_sim_topology_name(&net->topology, i, name, capacity);
    double bytes = net->carried[i], rate = net->share.links[i].capacity;
    *out = (struct tutti_sim_link){bytes, rate * 1e12, rate > 0 ? (uint64_t)(bytes / rate) : 0};
    return true;
}

static uint64_t flows_end(const struct tutti_sim_network *network, uint32_t rank)
{
    const struct flows *net = flows_of(network);
    return later(net->idle[rank], net->cpu[rank]);
}

static void flows_close(struct tutti_sim_network *network)
{
    struct flows *net = flows_of(network);
    tutti_sim_topology_close(&net->topology);
    tutti_sim_share_close(&net->share);
    free(net->flows);
    free(net->heap);
    free(net->stack);
    tutti_free(net->pairs);
    tutti_free(net->after);
    tutti_free(net->carried);
    tutti_free(net->begins);
    tutti_free(net->cpu);
    tutti_free(net->idle);
    tutti_free(net);
}

static const struct tutti_sim_network_ops flows_ops = {
    .name = "flows",
    .help = "links of a topology, shared max-min fairly",
    .ready = flows_ready,
    .begin = flows_begin,
    .ready_in = flows_ready_in,
    .take_in = flows_take_in,
    .meet = flows_meet,
    .next = flows_next,
    .over = flows_over,
    .link = flows_link,
    .end = flows_end,
    .close = flows_close,
};

enum tutti_status tutti_sim_flows_open(const struct tutti_sim_topology *topology,
                                       const struct tutti_sim_program *program, struct tutti_sim_network **out)
{
    struct flows *net = tutti_alloc(sizeof(*net));
    if (!net) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a network");
    *net = (struct flows){.network = {.ops = &flows_ops, .program = program, .limits = topology->limits}};
    uint32_t n = program->n_ranks;
    enum tutti_status status = tutti_sim_share_open(topology->n_links, TUTTI_SIM_MOST_HOPS, &net->share);
    net->carried = tutti_alloc_array(topology->n_links, sizeof(*net->carried));
    net->after = tutti_alloc_array(program->n_ops ? program->n_ops : 1, sizeof(*net->after));
    net->begins = tutti_alloc_array(n, sizeof(*net->begins));
    net->cpu = tutti_alloc_array(n, sizeof(*net->cpu));
    net->idle = tutti_alloc_array(n, sizeof(*net->idle));
    if (status >= 0 && (!net->carried || !net->after || !net->begins || !net->cpu || !net->idle))
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a network of %u ranks", n);
    if (status < 0) {
        flows_close(&net->network);
        return status;
    }
    net->topology = *topology;
    net->overhead = (uint64_t)(topology->is.overhead * 1e12 + 0.5);
    for (uint32_t i = 0; i < topology->n_links; i++)
        net->share.links[i].capacity = tutti_sim_topology_bandwidth(topology, i) / 1e12;
    *out = &net->network;
    return TUTTI_OK;
}
