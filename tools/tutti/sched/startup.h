/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_SCHED_STARTUP_H
#define TUTTI_TOOLS_SCHED_STARTUP_H

/* The start of a world in virtual time: the store, then the meeting. The leader and all members are the machines of
 * control/meet, unchanged; what carries their messages (Unix sockets to the host's relay, a tree of relays of fan-out
 * 32, one process that does one thing at a time) is modelled with costs a message. Deterministic by seed. */

#include "base/base.h"

struct startup_costs { /* nanoseconds; of a message: at each end */
    uint64_t latency;  /* the network's, one way */
    uint64_t local;    /* a message through a Unix socket */
    uint64_t network;  /* a system call on TCP; it carries what waits for it, up to 32 KiB */
    uint64_t frame;    /* a message between relays beside that: its bytes moved, its link found */
    uint64_t hmac;     /* a signature, made or checked */
    uint64_t store;    /* an operation, at the store, beside its messages */
    uint64_t row;      /* a member's row in the table of hosts, where it is made or read */
    uint64_t byte_ps;  /* picoseconds a byte, of long messages */
};
/* Measured on a 2-CPU virtual machine (Linux 6, OpenSSL 3.0): docs/startup.md. */
#define STARTUP_COSTS                                                                                                  \
    ((struct startup_costs){.latency = 2000,                                                                           \
                            .local = 1900,                                                                             \
                            .network = 4300,                                                                           \
                            .frame = 400,                                                                              \
                            .hmac = 1500,                                                                              \
                            .store = 1000,                                                                             \
                            .row = 150,                                                                                \
                            .byte_ps = 100})

struct startup_world {
    uint32_t hosts, per_host;
    bool store;         /* several hosts meet by a store; false: one host, by a name that all derive */
    bool secret;        /* messages are signed */
    uint64_t spread_ns; /* processes begin within this, by the seed */
    uint64_t seed;
    struct startup_costs costs;
    void (*progress)(uint32_t n_done, uint32_t n); /* may be NULL */
};

/* What a process did: messages in and out, and their bytes. */
struct startup_load {
    uint64_t messages, bytes, busy_ns;
    uint32_t connections; /* at once */
};

struct startup_result {
    uint64_t published_ns; /* the last host is in the store */
    uint64_t seated_ns;    /* the leader knows all members */
    uint64_t granted_ns;   /* the last member has the table, or the memory of its host */
    uint64_t over_ns;      /* the leader has heard from all */
    uint64_t table_bytes, n_events;
    struct startup_load store, leader, relay, rank; /* relay: the busiest; rank: the busiest that is neither */
};
/* ARGUMENT: more ranks than can be; MEMORY. INTERNAL: the meeting failed, which is a defect. */
enum tutti_status startup_run(const struct startup_world *world, struct startup_result *out);

#endif
