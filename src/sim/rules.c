/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules that only know when a CPU, or one side of a NIC, is free again.
 *
 * loggops, the rule of LogGOPSim. Each rank has CPUs, and NICs with a side that sends and one that receives:
 *
 *   send      starts when CPU and NIC are free; takes o + (s-1)O of the CPU and g + (s-1)G of the NIC; its first byte
 *             arrives o + L later. Up to S bytes it is done at once, else when it meets its receive
 *   arrival   when CPU and NIC of the receiver are free; takes o + max((s-1)O, (s-1)G) and g + (s-1)G of them
 *   receive   costs nothing
 *   calc      takes the CPU for its time
 *
 * Dependants start when the CPU (and for sends the NIC) is free, so nothing else is waited for. As there, s - 1 of an
 * empty message wraps: it is cheaper than one of a byte.
 *
 * ports, the rule of the closed forms: a message of s bytes takes alpha + s beta. Each rank has one port that sends and
 * one that receives, both at once; a port carries one message at a time. The send is done when its last byte has left,
 * the receive when its last byte has come; computing takes the CPU, which messages do not. */

#include "sim/network.h"

/* Numbers of gates a rank: three are used, and lie in one line of memory. */
enum { GATES = 4 };

struct rules {
    struct tutti_sim_network network;
    union {
        struct tutti_sim_loggops loggops;
        struct tutti_sim_ports ports;
    } rule;
    uint32_t n_cpus, n_nics; /* a rank's */
    uint32_t stride;         /* from one rank to the next, in `busy`: the usual three lie in one line of memory */
    struct busy {
        uint64_t until; /* it is free from then on */
        uint32_t by;    /* the operation that took it last; with TUTTI_SIM_BY_MESSAGE, the message of that send */
    } * busy;           /* a rank has its CPUs, the sides of its NICs that send, and those that receive */
    uint64_t *carried;  /* ports: bytes that each rank sent, and that it took in */
};

static struct rules *rules_of(const struct tutti_sim_network *network)
{
    return (struct rules *)(uintptr_t)network;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct busy *busy_of(const struct rules *net, uint32_t rank)
{
    return &net->busy[(size_t)rank * net->stride];
}

static struct busy *cpu_of(const struct rules *net, uint32_t rank, const struct tutti_sim_op *op)
{
    return busy_of(net, rank) + op->cpu;
}

static struct busy *out_of(const struct rules *net, uint32_t rank, const struct tutti_sim_op *op)
{
    return busy_of(net, rank) + net->n_cpus + op->nic;
}

static struct busy *in_of(const struct rules *net, uint32_t rank, const struct tutti_sim_op *op)
{
    return busy_of(net, rank) + net->n_cpus + net->n_nics + op->nic;
}

static uint32_t number_of(const struct rules *net, const struct tutti_sim_op *op)
{
    return (uint32_t)(op - net->network.program->ops);
}

static void rules_close(struct tutti_sim_network *network)
{
    struct rules *net = rules_of(network);
    tutti_free(net->busy);
    tutti_free(net->carried);
    tutti_free(net);
}

static struct rules *rules_open(const struct tutti_sim_network_ops *ops, const struct tutti_sim_program *program,
                                uint32_t n_cpus, uint32_t n_nics)
{
    struct rules *net = tutti_alloc(sizeof(*net));
    if (net) {
        *net = (struct rules){.network = {.ops = ops, .program = program}, .n_cpus = n_cpus, .n_nics = n_nics};
        net->stride = (n_cpus + 2 * n_nics + 3) / 4 * 4;
        size_t n = (size_t)program->n_ranks * net->stride;
        net->busy = tutti_sim_alloc(n, sizeof(*net->busy));
        for (size_t i = 0; net->busy && i < n; i++) net->busy[i] = (struct busy){.by = TUTTI_SIM_NONE};
        if (n_cpus == 1 && n_nics == 1) net->network.n_gates = GATES * program->n_ranks;
        if (net->busy) return net;
        rules_close(&net->network);
    }
    tutti_fail(TUTTI_ERR_MEMORY, "no memory for a network of %u ranks", program->n_ranks);
    return NULL;
}

/* A gate of a rank is its CPU, or that with a side of its NIC; of several CPUs or NICs none are told apart. */
static uint32_t loggops_gate(const struct tutti_sim_network *network, const struct tutti_sim_op *op, bool arrives)
{
    if (network->n_gates == 0) return TUTTI_SIM_NONE;
    return arrives ? GATES * op->peer + 2 : GATES * op->rank + (op->type == TUTTI_SIM_SEND);
}

static uint32_t ports_gate(const struct tutti_sim_network *network, const struct tutti_sim_op *op, bool arrives)
{
    return op->type == TUTTI_SIM_RECV ? TUTTI_SIM_NONE : loggops_gate(network, op, arrives);
}

static void rules_fetch(const struct tutti_sim_network *network, const struct tutti_sim_op *op, bool arrives)
{
    const struct busy *busy = busy_of(rules_of(network), arrives ? op->peer : op->rank);
    __builtin_prefetch(busy, 1);
}

/* ---- loggops ---- */

static uint64_t loggops_ready(const struct tutti_sim_network *network, const struct tutti_sim_op *op, uint64_t now)
{
    const struct rules *net = rules_of(network);
    uint64_t cpu = later(now, cpu_of(net, op->rank, op)->until);
    return op->type == TUTTI_SIM_SEND ? later(cpu, out_of(net, op->rank, op)->until) : cpu;
}

static struct tutti_sim_begun loggops_begin(struct tutti_sim_network *network, const struct tutti_sim_op *op,
                                            uint64_t now)
{
    struct rules *net = rules_of(network);
    const struct tutti_sim_loggops *r = &net->rule.loggops;
    if (op->type == TUTTI_SIM_CALC) {
        *cpu_of(net, op->rank, op) = (struct busy){now + op->size, number_of(net, op)};
        return (struct tutti_sim_begun){.done_ps = now};
    }
    *cpu_of(net, op->rank, op) = (struct busy){now + r->o + (op->size - 1) * r->O, number_of(net, op)};
    *out_of(net, op->rank, op) = (struct busy){now + r->g + (op->size - 1) * r->G, number_of(net, op)};
    return (struct tutti_sim_begun){.done_ps = op->size <= r->S ? now : TUTTI_NEVER, .arrives_ps = now + r->o + r->L};
}

static uint64_t loggops_ready_in(const struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    const struct rules *net = rules_of(network);
    return later(now, later(cpu_of(net, send->peer, send)->until, in_of(net, send->peer, send)->until));
}

static uint64_t loggops_take_in(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    struct rules *net = rules_of(network);
    const struct tutti_sim_loggops *r = &net->rule.loggops;
    uint64_t more = send->size - 1;
    uint32_t by = number_of(net, send) | TUTTI_SIM_BY_MESSAGE;
    *cpu_of(net, send->peer, send) = (struct busy){now + r->o + later(more * r->O, more * r->G), by};
    *in_of(net, send->peer, send) = (struct busy){now + r->g + more * r->G, by};
    return now;
}

static void loggops_meet(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    const struct rules *net = rules_of(network);
    struct busy *cpu = cpu_of(net, send->rank, send), *out = out_of(net, send->rank, send);
    cpu->until = later(cpu->until, now);
    out->until = later(out->until, now);
}

/* What held the first of these until now. */
static uint32_t holder_of(const struct busy *busy, const struct busy *other, uint64_t now)
{
    return busy->until == now ? busy->by : other && other->until == now ? other->by : TUTTI_SIM_NONE;
}

static uint32_t loggops_holder(const struct tutti_sim_network *network, const struct tutti_sim_op *op, bool arrives,
                               uint64_t now)
{
    const struct rules *net = rules_of(network);
    uint32_t rank = arrives ? op->peer : op->rank;
    bool calc = op->type == TUTTI_SIM_CALC;
    return holder_of(cpu_of(net, rank, op), calc ? NULL : arrives ? in_of(net, rank, op) : out_of(net, rank, op), now);
}

static uint64_t loggops_end(const struct tutti_sim_network *network, uint32_t rank)
{
    const struct rules *net = rules_of(network);
    uint64_t last = 0;
    for (uint32_t c = 0; c < net->n_cpus; c++) last = later(last, busy_of(net, rank)[c].until);
    return last;
}

static const struct tutti_sim_network_ops loggops_ops = {
    .name = "loggops",
    .alike = true,
    .help = "LogGOPSim's rule: o, O a CPU, g, G a NIC, latency L, rendezvous above S",
    .ready = loggops_ready,
    .begin = loggops_begin,
    .ready_in = loggops_ready_in,
    .take_in = loggops_take_in,
    .meet = loggops_meet,
    .gate = loggops_gate,
    .fetch = rules_fetch,
    .holder = loggops_holder,
    .end = loggops_end,
    .close = rules_close,
};

enum tutti_status tutti_sim_loggops_open(const struct tutti_sim_loggops *rule, const struct tutti_sim_program *program,
                                         struct tutti_sim_network **out)
{
    struct rules *net = rules_open(&loggops_ops, program, program->n_cpus, program->n_nics);
    if (!net) return TUTTI_ERR_MEMORY;
    net->rule.loggops = *rule;
    net->network.gates_together = GATES; /* messages need the CPU, too */
    /* A message of s bytes takes at least sG of the CPU or of the NIC where o or g is as long as G; the one less of the
     * last is in the latency. */
    uint64_t least = 2 * rule->o + rule->L;
    net->network.limits.overhead_ps = rule->o;
    net->network.limits.latency_ps = least > rule->G ? least - rule->G : 0;
    if (later(rule->o, rule->g) >= rule->G)
        net->network.limits.parts[net->network.limits.n_parts++] = (struct tutti_sim_part){1, (double)rule->G * 1000};
    *out = &net->network;
    return TUTTI_OK;
}

/* ---- ports ---- */

/* Rounded up, lest many small messages beat the port. */
static uint64_t carry(const struct rules *net, uint64_t bytes)
{
    double exact = (double)net->rule.ports.beta_fs * (double)bytes / 1000;
    uint64_t whole = (uint64_t)exact;
    return whole + ((double)whole < exact);
}

/* What a rank has, in `busy`: a CPU, and a port's two sides. */
enum { PORT_OUT = 1, PORT_IN = 2 };

static struct busy *ports_of(const struct rules *net, const struct tutti_sim_op *op)
{
    return busy_of(net, op->rank) + (op->type == TUTTI_SIM_SEND ? PORT_OUT : 0);
}

static uint64_t ports_ready(const struct tutti_sim_network *network, const struct tutti_sim_op *op, uint64_t now)
{
    const struct rules *net = rules_of(network);
    return op->type == TUTTI_SIM_RECV ? now : later(now, ports_of(net, op)->until);
}

static struct tutti_sim_begun ports_begin(struct tutti_sim_network *network, const struct tutti_sim_op *op,
                                          uint64_t now)
{
    struct rules *net = rules_of(network);
    bool sends = op->type == TUTTI_SIM_SEND;
    uint64_t until = now + (sends ? carry(net, op->size) : op->size);
    *ports_of(net, op) = (struct busy){until, number_of(net, op)};
    return (struct tutti_sim_begun){.done_ps = until, .arrives_ps = now + net->rule.ports.alpha_ps};
}

static uint64_t ports_ready_in(const struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    return later(now, busy_of(rules_of(network), send->peer)[PORT_IN].until);
}

static uint64_t ports_take_in(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    struct rules *net = rules_of(network);
    uint64_t until = now + carry(net, send->size);
    busy_of(net, send->peer)[PORT_IN] = (struct busy){until, number_of(net, send) | TUTTI_SIM_BY_MESSAGE};
    return until;
}

static void ports_meet(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    (void)network, (void)send, (void)now; /* no send waits for its receive */
}

static uint32_t ports_holder(const struct tutti_sim_network *network, const struct tutti_sim_op *op, bool arrives,
                             uint64_t now)
{
    const struct rules *net = rules_of(network);
    return holder_of(arrives ? &busy_of(net, op->peer)[PORT_IN] : ports_of(net, op), NULL, now);
}

static uint64_t ports_end(const struct tutti_sim_network *network, uint32_t rank)
{
    const struct rules *net = rules_of(network);
    const struct busy *busy = busy_of(net, rank);
    return later(later(busy[0].until, busy[PORT_OUT].until), busy[PORT_IN].until);
}

/* What each port carried: all messages of a run that has ended. False: no memory. */
static bool add_up(struct rules *net)
{
    const struct tutti_sim_program *program = net->network.program;
    net->carried = tutti_alloc_array(2 * (size_t)program->n_ranks, sizeof(*net->carried));
    for (uint32_t i = 0; net->carried && i < program->n_ops; i++) {
        const struct tutti_sim_op *op = &program->ops[i];
        if (op->type != TUTTI_SIM_SEND) continue;
        net->carried[2 * op->rank] += op->size;
        net->carried[2 * op->peer + 1] += op->size;
    }
    return net->carried;
}

static bool ports_link(const struct tutti_sim_network *network, uint32_t i, struct tutti_sim_link *out, char *name,
                       size_t capacity)
{
    struct rules *net = rules_of(network);
    if (i >= 2 * network->program->n_ranks || (!net->carried && !add_up(net))) return false;
    if (name) snprintf(name, capacity, "port of rank %u, %s", i / 2, i % 2 ? "in" : "out");
    *out = (struct tutti_sim_link){.bytes = (double)net->carried[i],
                                   .bandwidth = 1e15 / (double)net->rule.ports.beta_fs,
                                   .busy_ps = carry(net, net->carried[i])};
    return true;
}

static const struct tutti_sim_network_ops ports_ops = {
    .name = "ports",
    .alike = true,
    .help = "alpha + beta bytes, one port out and one port in a rank",
    .ready = ports_ready,
    .begin = ports_begin,
    .ready_in = ports_ready_in,
    .take_in = ports_take_in,
    .meet = ports_meet,
    .gate = ports_gate,
    .fetch = rules_fetch,
    .holder = ports_holder,
    .link = ports_link,
    .end = ports_end,
    .close = rules_close,
};

enum tutti_status tutti_sim_ports_open(const struct tutti_sim_ports *rule, const struct tutti_sim_program *program,
                                       struct tutti_sim_network **out)
{
    struct rules *net = rules_open(&ports_ops, program, 1, 1);
    if (!net) return TUTTI_ERR_MEMORY;
    net->rule.ports = *rule;
    net->network.gates_together = 1;
    net->network.limits =
        (struct tutti_sim_limits){.latency_ps = rule->alpha_ps, .n_parts = 1, .parts = {{1, (double)rule->beta_fs}}};
    *out = &net->network;
    return TUTTI_OK;
}
