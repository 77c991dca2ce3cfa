/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_NETWORK_H
#define TUTTI_SIM_NETWORK_H

/* What a network charges for the operations of a program: the contract between run.c and the rules.
 *
 *   loggops   the rule of LogGOPSim, to the nanosecond: overhead o and O of the CPU, gap g and G of the NIC, latency L,
 *             messages longer than S meet their receive first
 *   ports     latency and bandwidth (alpha, beta): each rank has one port that sends and one that receives
 *   flows     links of a topology, shared max-min fairly by the messages on them
 *
 * The run asks when an operation can begin (`ready`), begins it then, and hears when it is done and when its message
 * arrives. At the arrival it asks again, and the message is received. Where messages share links, nobody knows at the
 * begin when one is done: the network says when the next one is (`next`, `over`), given all that is under way. All
 * functions are called in the order of time. */

#include "sim/sim.h"

struct tutti_sim_begun {
    uint64_t done_ps;    /* when what waits for its end may go on; TUTTI_NEVER: when its message meets a receive */
    uint64_t arrives_ps; /* sends: when the message reaches the peer; TUTTI_NEVER: `over` will say this, and the end */
};

/* What a link carried in a run. */
struct tutti_sim_link {
    double bytes;
    double bandwidth; /* bytes a second */
    uint64_t busy_ps; /* that its bytes take when nothing holds them up elsewhere */
};

struct tutti_sim_network_ops {
    const char *name, *help;
    bool alike; /* what a rank is charged follows from what it does itself and what reaches it, on all ranks alike */
    /* The earliest time from now on at which the operation can begin. */
    uint64_t (*ready)(const struct tutti_sim_network *network, const struct tutti_sim_op *op, uint64_t now_ps);
    /* Begins it, at a time at which it is ready. */
    struct tutti_sim_begun (*begin)(struct tutti_sim_network *network, const struct tutti_sim_op *op, uint64_t now_ps);
    /* The earliest time from now on at which the peer can take in the message of this send; then takes it in, and
     * returns when what waits for the receive may go on. */
    uint64_t (*ready_in)(const struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now_ps);
    uint64_t (*take_in)(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now_ps);
    /* The message of a send whose done_ps was TUTTI_NEVER has met its receive. */
    void (*meet)(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now_ps);
    /* When the next messages have left their ranks for good, if nothing else begins; TUTTI_NEVER: none is under way. It
     * is asked when all that begins until now_ps has begun. At that time `over` tells them one by one, with the time at
     * which each arrives; false: no more at this time. Both NULL where `begin` says all. */
    uint64_t (*next)(struct tutti_sim_network *network, uint64_t now_ps);
    bool (*over)(struct tutti_sim_network *network, uint64_t now_ps, uint32_t *send, uint64_t *arrives_ps);
    /* What link i carried, from 0 on; false: there are no more. name: NULL, or gets what the link is called. NULL: the
     * network has no links. */
    bool (*link)(const struct tutti_sim_network *network, uint32_t i, struct tutti_sim_link *out, char *name,
                 size_t capacity);
    /* All that waits at one gate becomes ready at the same time, if nothing else begins; numbers are less than the
     * network's n_gates. Receives do not wait, but may look at what holds a gate. TUTTI_SIM_NONE: at none that can be
     * told apart. NULL: there are no gates. */
    uint32_t (*gate)(const struct tutti_sim_network *network, const struct tutti_sim_op *op, bool arrives);
    /* Fetches what the operation (arrives: the message of this send) will touch in memory. NULL: nothing. */
    void (*fetch)(const struct tutti_sim_network *network, const struct tutti_sim_op *op, bool arrives);
    /* What held the CPU or port for which the operation (arrives: the message of this send) had to wait until now: its
     * number, or TUTTI_SIM_BY_MESSAGE and that of a send. TUTTI_SIM_NONE: nothing that ends now. NULL: it is not known.
     */
    uint32_t (*holder)(const struct tutti_sim_network *network, const struct tutti_sim_op *op, bool arrives,
                       uint64_t now_ps);
    /* When the rank is idle for good. */
    uint64_t (*end)(const struct tutti_sim_network *network, uint32_t rank);
    void (*close)(struct tutti_sim_network *network);
};

struct tutti_sim_network {
    const struct tutti_sim_network_ops *ops;
    const struct tutti_sim_program *program;
    struct tutti_sim_limits limits;
    enum tutti_status status;         /* below 0: a function failed, its sentence is recorded, and the run ends */
    uint32_t n_gates, gates_together; /* as many that follow one another need the same CPU or port */
};

/* ---- loggops (rules.c) ---- */
struct tutti_sim_loggops {
    uint64_t L, o, g, G, O; /* picoseconds; G and O a byte */
    uint64_t S;             /* bytes of the longest message that does not wait for its receive */
};
#define TUTTI_SIM_LOGGOPS_DEFAULT                                                                                      \
    ((struct tutti_sim_loggops){.L = 2500000, .o = 1500000, .g = 1000000, .G = 6000, .O = 0, .S = 65535})
enum tutti_status tutti_sim_loggops_open(const struct tutti_sim_loggops *rule, const struct tutti_sim_program *program,
                                         struct tutti_sim_network **out);

/* ---- ports (rules.c) ---- */
struct tutti_sim_ports {
    uint64_t alpha_ps; /* from the first byte's departure to its arrival */
    uint64_t beta_fs;  /* femtoseconds a byte of a port */
};
enum tutti_status tutti_sim_ports_open(const struct tutti_sim_ports *rule, const struct tutti_sim_program *program,
                                       struct tutti_sim_network **out);

/* ---- flows (flows.c): messages under way share the links of a topology max-min fairly, as a fluid ---- */
struct tutti_sim_topology;
/* The topology becomes the network's, which closes it, but on an error. MEMORY. */
enum tutti_status tutti_sim_flows_open(const struct tutti_sim_topology *topology,
                                       const struct tutti_sim_program *program, struct tutti_sim_network **out);

#endif
