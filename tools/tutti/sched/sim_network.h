/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_SIM_NETWORK_H
#define TUTTI_TOOLS_SIM_NETWORK_H

/* Options that describe a network, for commands that simulate: rows for their table of options, and the network that
 * they ask for. */

#include "tools/tutti/cmd.h"

#include "sim/network.h"

struct sched_network {
    const char *net, *bandwidth, *byte_overhead;
    uint64_t latency_ns, overhead_ns, gap_ns, eager;
};
/* What the options said; set it to the default before they are read. */
extern struct sched_network sched_network;
#define SCHED_NETWORK_DEFAULT                                                                                          \
    ((struct sched_network){                                                                                           \
        .latency_ns = TUTTI_NEVER, .overhead_ns = TUTTI_NEVER, .gap_ns = TUTTI_NEVER, .eager = UINT64_MAX})

#define SCHED_NETWORK_ARGS                                                                                             \
    {"net",          0,                                                                                                \
     TUTTI_ARG_TEXT, &sched_network.net,                                                                               \
     "NAME",         "rule of the network: ports or loggops (default ports; GOAL: loggops)"},                          \
        {"latency", 'L', TUTTI_ARG_TIME, &sched_network.latency_ns, "T", "ports: alpha (2us); loggops: L (2500ns)"},   \
        {"bandwidth", 0, TUTTI_ARG_TEXT, &sched_network.bandwidth, "GB/s", "of a port (25); loggops: 1/G (1/6)"},      \
        {"overhead", 'o', TUTTI_ARG_TIME, &sched_network.overhead_ns, "T", "loggops: o (1500ns)"},                     \
        {"byte-overhead",                                                                                              \
         'O',                                                                                                          \
         TUTTI_ARG_TEXT,                                                                                               \
         &sched_network.byte_overhead,                                                                                 \
         "NS",                                                                                                         \
         "loggops: O, nanoseconds a byte (0)"},                                                                        \
        {"gap", 'g', TUTTI_ARG_TIME, &sched_network.gap_ns, "T", "loggops: g (1000ns)"},                               \
    {                                                                                                                  \
        "eager", 'S', TUTTI_ARG_SIZE, &sched_network.eager, "B",                                                       \
            "loggops: S, longer messages wait for their receive (65535)"                                               \
    }

/* levels: groups of ranks as the option of that name has them, the lowest being nodes; NULL: none are given. Close the
 * network by its ops. False, and a sentence on stderr, when the options make none. */
bool sched_network_open(const struct tutti_args *spec, const struct tutti_sim_program *program, const char *levels,
                        struct tutti_sim_network **out);

/* Whether the network that the options describe charges all ranks alike, so that one may stand for others. */
bool sched_network_alike(void);

#endif
