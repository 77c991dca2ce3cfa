/* SPDX-License-Identifier: BSD-3-Clause */
/* The rule of LogGOPSim. Each rank has a time for each of its CPUs, and for each NIC one for what it sends and one for
 * what it receives, from which on they are free:
 *
 *   send      starts when CPU and NIC are free; takes o + (s-1)O of the CPU and g + (s-1)G of the NIC; its first byte
 *             arrives o + L later. Up to S bytes it is done at once, else when it meets its receive
 *   arrival   when CPU and NIC of the receiver are free; takes o + max((s-1)O, (s-1)G) and g + (s-1)G of them
 *   receive   costs nothing
 *   calc      takes the CPU for its time
 *
 * Dependants start when the CPU (and for sends the NIC) is free, so nothing else is waited for. As there, s - 1 of an
 * empty message wraps: it is cheaper than one of a byte. */

#include "sim/network.h"

struct loggops {
    struct tutti_sim_network network;
    struct tutti_sim_loggops rule;
    uint64_t *cpu, *out, *in; /* by rank and CPU or NIC */
    uint32_t n_cpus, n_nics;
};

static struct loggops *loggops_of(const struct tutti_sim_network *network)
{
    return (struct loggops *)(uintptr_t)network;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t *cpu_of(const struct loggops *net, uint32_t rank, const struct tutti_sim_op *op)
{
    return &net->cpu[(size_t)rank * net->n_cpus + op->cpu];
}

static size_t nic_of(const struct loggops *net, uint32_t rank, const struct tutti_sim_op *op)
{
    return (size_t)rank * net->n_nics + op->nic;
}

static uint64_t ready(const struct tutti_sim_network *network, const struct tutti_sim_op *op)
{
    const struct loggops *net = loggops_of(network);
    uint64_t cpu = *cpu_of(net, op->rank, op);
    return op->type == TUTTI_SIM_SEND ? later(cpu, net->out[nic_of(net, op->rank, op)]) : cpu;
}

static struct tutti_sim_begun begin(struct tutti_sim_network *network, const struct tutti_sim_op *op, uint64_t now)
{
    struct loggops *net = loggops_of(network);
    const struct tutti_sim_loggops *r = &net->rule;
    if (op->type == TUTTI_SIM_CALC) {
        *cpu_of(net, op->rank, op) = now + op->size;
        return (struct tutti_sim_begun){.done_ps = now};
    }
    *cpu_of(net, op->rank, op) = now + r->o + (op->size - 1) * r->O;
    net->out[nic_of(net, op->rank, op)] = now + r->g + (op->size - 1) * r->G;
    return (struct tutti_sim_begun){.done_ps = op->size <= r->S ? now : TUTTI_NEVER, .arrives_ps = now + r->o + r->L};
}

static uint64_t ready_in(const struct tutti_sim_network *network, const struct tutti_sim_op *send)
{
    const struct loggops *net = loggops_of(network);
    return later(*cpu_of(net, send->peer, send), net->in[nic_of(net, send->peer, send)]);
}

static uint64_t take_in(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    struct loggops *net = loggops_of(network);
    const struct tutti_sim_loggops *r = &net->rule;
    *cpu_of(net, send->peer, send) = now + r->o + later((send->size - 1) * r->O, (send->size - 1) * r->G);
    net->in[nic_of(net, send->peer, send)] = now + r->g + (send->size - 1) * r->G;
    return now;
}

static void meet(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    struct loggops *net = loggops_of(network);
    uint64_t *cpu = cpu_of(net, send->rank, send), *out = &net->out[nic_of(net, send->rank, send)];
    *cpu = later(*cpu, now);
    *out = later(*out, now);
}

static uint64_t end(const struct tutti_sim_network *network, uint32_t rank)
{
    const struct loggops *net = loggops_of(network);
    uint64_t last = 0;
    for (uint32_t c = 0; c < net->n_cpus; c++) last = later(last, net->cpu[(size_t)rank * net->n_cpus + c]);
    return last;
}

static void loggops_close(struct tutti_sim_network *network)
{
    struct loggops *net = loggops_of(network);
    tutti_free(net->cpu);
    tutti_free(net->out);
    tutti_free(net->in);
    tutti_free(net);
}

static const struct tutti_sim_network_ops loggops_ops = {
    .name = "loggops",
    .help = "LogGOPSim's rule: o, O a CPU, g, G a NIC, latency L, rendezvous above S",
    .ready = ready,
    .begin = begin,
    .ready_in = ready_in,
    .take_in = take_in,
    .meet = meet,
    .end = end,
    .close = loggops_close,
};

enum tutti_status tutti_sim_loggops_open(const struct tutti_sim_loggops *rule, const struct tutti_sim_program *program,
                                         struct tutti_sim_network **out)
{
    struct loggops *net = tutti_alloc(sizeof(*net));
    if (net) {
        *net = (struct loggops){{&loggops_ops, program}, *rule, .n_cpus = program->n_cpus, .n_nics = program->n_nics};
        net->cpu = tutti_alloc_array((size_t)program->n_ranks * net->n_cpus, sizeof(*net->cpu));
        net->out = tutti_alloc_array((size_t)program->n_ranks * net->n_nics, sizeof(*net->out));
        net->in = tutti_alloc_array((size_t)program->n_ranks * net->n_nics, sizeof(*net->in));
        if (net->cpu && net->out && net->in) {
            *out = &net->network;
            return TUTTI_OK;
        }
        loggops_close(&net->network);
    }
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a network of %u ranks", program->n_ranks);
}
