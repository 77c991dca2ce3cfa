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

#define SCHED_NETWORK_ARGS                                                                                              \
    {                                                                                                                   \
        "net",                                                                                                          \
        0,                                                                                                              \
        TUTTI_ARG_TEXT,                                                                                                 \
        &sched_network.net,                                                                                             \
        "NET",                                                                                                          \
        "ports (default), loggops (GOAL's), or links: dragonfly, fat_tree:taper=2; --net help tells all"},              \
        {"latency", 'L', TUTTI_ARG_TIME, &sched_network.latency_ns, "T", "ports: alpha (2us); loggops: L (2500ns)"},    \
        {"bandwidth", 0, TUTTI_ARG_TEXT, &sched_network.bandwidth, "GB/s", "of a port (25); loggops: 1/G (1/6)"},       \
        {"overhead", 'o', TUTTI_ARG_TIME, &sched_network.overhead_ns, "T", "loggops: o (1500ns)"},                      \
        {"byte-overhead",                                                                                               \
         'O',                                                                                                           \
         TUTTI_ARG_TEXT,                                                                                                \
         &sched_network.byte_overhead,                                                                                  \
         "NS",                                                                                                          \
         "loggops: O, nanoseconds a byte (0)"},                                                                         \
        {"gap", 'g', TUTTI_ARG_TIME, &sched_network.gap_ns, "T", "loggops: g (1000ns)"},                                \
        {"eager",                                                                                                       \
         'S',                                                                                                           \
         TUTTI_ARG_SIZE,                                                                                                \
         &sched_network.eager,                                                                                          \
         "B",                                                                                                           \
         "loggops: S, longer messages wait for their receive (65535)"},                                                 \
        {"noise", 0, TUTTI_ARG_TEXT, &sched_network.noise, "TEXT", "ranks held now and then: every=1ms,length=25us"},   \
        {"straggler",    0,                                                                                             \
         TUTTI_ARG_LIST, &sched_network.stragglers,                                                                     \
         "TEXT",         "ranks (7, 8-15, 1%) that are late or slow: 1%:late=1ms,slow=1.5"},                            \
        {"slow-link",    0,                                                                                             \
         TUTTI_ARG_LIST, &sched_network.slow_links,                                                                     \
         "TEXT",         "links (a name, 1%, nic:1%) and their part of the rate: nic:1%=0.5"},                          \
        {"fail-link",    0,                                                                                             \
         TUTTI_ARG_LIST, &sched_network.failed_links,                                                                   \
         "TEXT",         "links that carry nothing: a name such as nic:3.0.out, 1%, global:1%"},                        \
        {"seed", 0, TUTTI_ARG_U32, &sched_network.seed, "N", "chance of noise, shares of ranks and links (default 1)"}, \
        {"machine",      0,                                                                                             \
         TUTTI_ARG_TEXT, &sched_network.machine,                                                                        \
         "FILE",         "rates of copies and folds: none (default), auto, a file of tutti tune"},                      \
        {"copy", 0, TUTTI_ARG_TEXT, &sched_network.copy, "GB/s", "rate of a rank's copies, instead of the machine's"},  \
    {                                                                                                                   \
        "fold", 0, TUTTI_ARG_TEXT, &sched_network.fold, "GB/s", "rate of a rank's folds, likewise"                      \
    }

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
