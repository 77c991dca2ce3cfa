/* SPDX-License-Identifier: BSD-3-Clause */
/* The rule of the closed forms: a message of s bytes takes alpha + s beta. Each rank has a port that sends and a port
 * that receives, both at once; a port carries one message at a time. The send is done when its last byte has left, the
 * receive when its last byte has come; computing takes the CPU, which messages do not. */

#include "sim/network.h"

struct ports {
    struct tutti_sim_network network;
    struct tutti_sim_ports rule;
    uint64_t *cpu, *out, *in; /* from when on they are free, by rank */
};

static struct ports *ports_of(const struct tutti_sim_network *network)
{
    return (struct ports *)(uintptr_t)network;
}

static uint64_t carry(const struct ports *net, uint64_t bytes)
{
    return (uint64_t)((double)net->rule.beta_fs * (double)bytes / 1000 + 0.5);
}

static uint64_t ready(const struct tutti_sim_network *network, const struct tutti_sim_op *op)
{
    const struct ports *net = ports_of(network);
    return op->type == TUTTI_SIM_SEND ? net->out[op->rank] : op->type == TUTTI_SIM_CALC ? net->cpu[op->rank] : 0;
}

static struct tutti_sim_begun begin(struct tutti_sim_network *network, const struct tutti_sim_op *op, uint64_t now)
{
    struct ports *net = ports_of(network);
    uint64_t *busy = op->type == TUTTI_SIM_SEND ? &net->out[op->rank] : &net->cpu[op->rank];
    *busy = now + (op->type == TUTTI_SIM_SEND ? carry(net, op->size) : op->size);
    return (struct tutti_sim_begun){.done_ps = *busy, .arrives_ps = now + net->rule.alpha_ps};
}

static uint64_t ready_in(const struct tutti_sim_network *network, const struct tutti_sim_op *send)
{
    return ports_of(network)->in[send->peer];
}

static uint64_t take_in(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    struct ports *net = ports_of(network);
    return net->in[send->peer] = now + carry(net, send->size);
}

static void meet(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    (void)network, (void)send, (void)now; /* no send waits for its receive */
}

static uint64_t end(const struct tutti_sim_network *network, uint32_t rank)
{
    const struct ports *net = ports_of(network);
    uint64_t last = net->cpu[rank] > net->out[rank] ? net->cpu[rank] : net->out[rank];
    return last > net->in[rank] ? last : net->in[rank];
}

static void ports_close(struct tutti_sim_network *network)
{
    struct ports *net = ports_of(network);
    tutti_free(net->cpu);
    tutti_free(net->out);
    tutti_free(net->in);
    tutti_free(net);
}

static const struct tutti_sim_network_ops ports_ops = {
    .name = "ports",
    .help = "alpha + beta bytes, one port out and one port in a rank",
    .ready = ready,
    .begin = begin,
    .ready_in = ready_in,
    .take_in = take_in,
    .meet = meet,
    .end = end,
    .close = ports_close,
};

enum tutti_status tutti_sim_ports_open(const struct tutti_sim_ports *rule, const struct tutti_sim_program *program,
                                       struct tutti_sim_network **out)
{
    struct ports *net = tutti_alloc(sizeof(*net));
    if (net) {
        *net = (struct ports){{&ports_ops, program}, *rule, NULL, NULL, NULL};
        net->cpu = tutti_alloc_array(program->n_ranks, sizeof(*net->cpu));
        net->out = tutti_alloc_array(program->n_ranks, sizeof(*net->out));
        net->in = tutti_alloc_array(program->n_ranks, sizeof(*net->in));
        if (net->cpu && net->out && net->in) {
            *out = &net->network;
            return TUTTI_OK;
        }
        ports_close(&net->network);
    }
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a network of %u ranks", program->n_ranks);
}
