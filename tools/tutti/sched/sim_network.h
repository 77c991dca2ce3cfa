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
    const char *noise, *machine, *copy, *fold;
    struct tutti_arg_list stragglers, slow_links, failed_links;
    uint32_t seed;
};
/* What the options said; set it to the default before they are read. */
extern struct sched_network sched_network;
#define SCHED_NETWORK_DEFAULT                                                                                          \
    ((struct sched_network){                                                                                           \
        .latency_ns = TUTTI_NEVER, .overhead_ns = TUTTI_NEVER, .gap_ns = TUTTI_NEVER, .eager = UINT64_MAX, .seed = 1})

/* clang-format off */
#define SCHED_NETWORK_ARG(name, letter, type, field, value, help) \
    {name, letter, TUTTI_ARG_##type, &sched_network.field, value, help}
#define SCHED_NETWORK_ARGS \
    SCHED_NETWORK_ARG("net", 0, TEXT, net, "NET", \
        "ports (default), loggops (GOAL's), or links such as dragonfly; --net help tells all"), \
    SCHED_NETWORK_ARG("latency", 'L', TIME, latency_ns, "T", "ports: alpha (2us); loggops: L (2500ns)"), \
    SCHED_NETWORK_ARG("bandwidth", 0, TEXT, bandwidth, "GB/s", "of a port (25); loggops: 1/G (1/6)"), \
    SCHED_NETWORK_ARG("overhead", 'o', TIME, overhead_ns, "T", "loggops: o (1500ns)"), \
    SCHED_NETWORK_ARG("byte-overhead", 'O', TEXT, byte_overhead, "NS", "loggops: O, nanoseconds a byte (0)"), \
    SCHED_NETWORK_ARG("gap", 'g', TIME, gap_ns, "T", "loggops: g (1000ns)"), \
    SCHED_NETWORK_ARG("eager", 'S', SIZE, eager, "B", "loggops: S, longer messages wait for their receive (65535)"), \
    SCHED_NETWORK_ARG("noise", 0, TEXT, noise, "TEXT", "ranks held now and then: every=1ms,length=25us"), \
    SCHED_NETWORK_ARG("straggler", 0, LIST, stragglers, "TEXT", \
        "ranks (7, 8-15, 1%) that are late or slow: 1%:late=1ms,slow=1.5"), \
    SCHED_NETWORK_ARG("slow-link", 0, LIST, slow_links, "TEXT", \
        "links (a name, 1%, nic:1%) and their part of the rate: nic:1%=0.5"), \
    SCHED_NETWORK_ARG("fail-link", 0, LIST, failed_links, "TEXT", \
        "links that carry nothing: a name such as nic:3.0.out, 1%, global:1%"), \
    SCHED_NETWORK_ARG("seed", 0, U32, seed, "N", "chance of noise, shares of ranks and links (default 1)"), \
    SCHED_NETWORK_ARG("machine", 0, TEXT, machine, "FILE", \
        "rates of copies and folds: none (default), auto, a file of tutti tune"), \
    SCHED_NETWORK_ARG("copy", 0, TEXT, copy, "GB/s", "rate of a rank's copies, instead of the machine's"), \
    SCHED_NETWORK_ARG("fold", 0, TEXT, fold, "GB/s", "rate of a rank's folds, likewise")
/* clang-format on */

/* Whether the network is "help": then it was told on stdout. */
bool sched_network_help(void);
/* levels: groups of ranks as the option of that name has them, the lowest being nodes; NULL: none are given. Close the
 * network by its ops. False, and a sentence on stderr, when the options make none. */
bool sched_network_open(const struct tutti_args *spec, const struct tutti_sim_program *program, const char *levels,
                        struct tutti_sim_network **out);

/* What copies and folds of a call cost, by the constants of the machine or the options, into work; bytes: those of a
 * rank's buffer. False, and a sentence, when these are none. */
bool sched_network_costs(const struct tutti_args *spec, uint64_t bytes, struct tutti_sim_work *work);
/* Whether the network that the options describe charges all ranks alike, so that one may stand for others. */
bool sched_network_alike(void);

#endif
