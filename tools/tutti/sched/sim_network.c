/* SPDX-License-Identifier: BSD-3-Clause */
/* The options that describe a network. */

#include "sim_network.h"

#include "sim/topology.h"

#include <stdlib.h>
#include <string.h>

struct sched_network sched_network;

/* A positive number of at most nine digits before and six after the point, times `scale`; false: it is none. */
static bool number_parse(const char *text, double scale, double *out)
{
    char *end;
    *out = strtod(text, &end) * scale;
    return end != text && !*end && *out >= 0 && *out < 1e18;
}

static bool flows_open(const struct tutti_args *spec, const struct tutti_sim_program *program, const char *levels,
                       struct tutti_sim_network **out)
{
    struct tutti_shape shape = {.size = program->n_ranks};
    struct tutti_sim_topology topology;
    if ((levels && tutti_shape_parse_levels(&shape, levels) < 0) ||
        tutti_sim_topology_open(sched_network.net, &shape, &topology) < 0) {
        tutti_args_fail(spec, "--net %s.", tutti_last_error()->text);
        return false;
    }
    if (tutti_sim_flows_open(&topology, program, out) >= 0) return true;
    tutti_sim_topology_close(&topology);
    tutti_args_fail(spec, "%s.", tutti_last_error()->text);
    return false;
}

bool sched_network_open(const struct tutti_args *spec, const struct tutti_sim_program *program, const char *levels,
                        struct tutti_sim_network **out)
{
    if (tutti_sim_topology_named(sched_network.net)) return flows_open(spec, program, levels, out);
    double per_byte = 0, overhead = 0;
    if (sched_network.bandwidth && (!number_parse(sched_network.bandwidth, 1, &per_byte) || per_byte <= 0)) {
        tutti_args_fail(spec, "--bandwidth %s: give GB/s of a port, such as 25.", sched_network.bandwidth);
        return false;
    }
    if (sched_network.byte_overhead && !number_parse(sched_network.byte_overhead, TUTTI_SIM_PS_PER_NS, &overhead)) {
        tutti_args_fail(spec, "--byte-overhead %s: give nanoseconds a byte.", sched_network.byte_overhead);
        return false;
    }
    if (strcmp(sched_network.net, "loggops") == 0) {
        struct tutti_sim_loggops rule = TUTTI_SIM_LOGGOPS_DEFAULT;
        if (sched_network.latency_ns != TUTTI_NEVER) rule.L = sched_network.latency_ns * TUTTI_SIM_PS_PER_NS;
        if (sched_network.overhead_ns != TUTTI_NEVER) rule.o = sched_network.overhead_ns * TUTTI_SIM_PS_PER_NS;
        if (sched_network.gap_ns != TUTTI_NEVER) rule.g = sched_network.gap_ns * TUTTI_SIM_PS_PER_NS;
        if (sched_network.bandwidth) rule.G = (uint64_t)(1000 / per_byte + 0.5);
        if (sched_network.eager != UINT64_MAX) rule.S = sched_network.eager;
        rule.O = (uint64_t)overhead;
        return tutti_sim_loggops_open(&rule, program, out) >= 0;
    }
    if (strcmp(sched_network.net, "ports") == 0) {
        struct tutti_sim_ports rule = {.alpha_ps = 2000000, .beta_fs = 40000};
        if (sched_network.latency_ns != TUTTI_NEVER) rule.alpha_ps = sched_network.latency_ns * TUTTI_SIM_PS_PER_NS;
        if (sched_network.bandwidth) rule.beta_fs = (uint64_t)(1e6 / per_byte + 0.5);
        return tutti_sim_ports_open(&rule, program, out) >= 0;
    }
    tutti_args_fail(spec, "--net %s: there are ports, loggops, fat_tree, dragonfly, torus and rails; see --net help.",
                    sched_network.net);
    return false;
}

bool sched_network_alike(void)
{
    return strcmp(sched_network.net, "ports") == 0 || strcmp(sched_network.net, "loggops") == 0;
}
