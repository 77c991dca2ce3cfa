/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEET_BOOTSTRAP_H
#define TUTTI_CONTROL_MEET_BOOTSTRAP_H

/* From a launcher's words to a world: how ranks that know only (rank, size, where to meet) become a set of members with
 * one transport and one control. This room may use the rest of control, and base, topo, store, transport and model.
 * Begin with bootstrap.c; launch.c reads the variables that launchers set. */

#include "base/config.h"
#include "base/tls.h"
#include "control/control.h"
#include "control/hosts.h"
#include "model/machine.h"
#include "topo/topo.h"
#include "transport/host/segment.h"
#include "transport/open.h"
#include "transport/transport.h"

#include <tutti/store.h>

/* ---- who am I (launch.c): from tutti run, torchrun, Open MPI, MPICH (PMI), Slurm, without linking any of them ---- */
enum tutti_launch_way { /* by which rank 0 can tell all others where it is */
                        TUTTI_WAY_NONE,
                        TUTTI_WAY_PMI,   /* the launcher's PMIx or PMI */
                        TUTTI_WAY_TORCH, /* the store that torchrun serves at MASTER_ADDR, MASTER_PORT */
                        TUTTI_WAY_MASTER /* rank 0 serves a store there */
};
struct tutti_launch {
    int32_t rank, n_ranks, local_rank, local_size; /* -1: unknown */
    const char *launcher;                          /* "tutti run", "torchrun", ...; static */
    char job[128];                                 /* what tells this job from the user's others on this host */
    enum tutti_launch_way way;
    char master[256], port[6]; /* MASTER_ADDR, MASTER_PORT */
    bool may_span;             /* nobody says how many ranks are here, and that address is of a network */
};
/* ARGUMENT with a sentence when the variables contradict one another or are not numbers. With none: rank 0 of 1. */
enum tutti_status tutti_launch_read(const struct tutti_config *config, struct tutti_launch *out);

/* The launcher speaks of these ranks, and started some of them on other hosts. */
bool tutti_launch_spans(const struct tutti_launch *launch, int32_t rank, int32_t n_ranks);

/* ---- the store that a launcher tells of (launch_store.c), for ranks on several hosts to which none is named ---- */
struct tutti_launch_store {
    char address[280]; /* "": none is needed, or the launcher has no way to tell */
    char secret[256];  /* "": none */
    bool secret_made;  /* it was made for this job */
};
/* Collective over the launcher's ranks the first time. secret, certificate: the user's, may be NULL. */
enum tutti_status tutti_launch_store_find(const struct tutti_config *config, int32_t rank, int32_t n_ranks,
                                          const char *secret, struct tutti_certificate *certificate,
                                          uint64_t deadline_ns, struct tutti_launch_store *out);

/* ---- the meeting (bootstrap.c) ---- */
struct tutti_bootstrap {
    int32_t rank, n_ranks;
    const char *name;                      /* the communicator's */
    const struct tutti_store *store;       /* NULL: one host, an abstract Unix socket derived from uid, job and name */
    const char *job, *secret;              /* secret may be NULL: */
    struct tutti_certificate *certificate; /* then this proves the process; NULL: unauthenticated */
    uint64_t deadline_ns;
    const struct tutti_config *config;
    const struct tutti_machine *machine; /* NULL: the built-in constants */
    bool crowded;                        /* this rank is already in a crowded world, whose ranks may run beside these */
    bool device;                         /* this rank has a device */
    bool in_use;                         /* ... or its process uses some */
    const _Atomic bool *cancel;          /* may be NULL; set from another thread, the meeting ends with CANCELLED */
};
/* Rings get a quarter of the option `staging`, back ends the rest. */
static inline size_t tutti_rings_staging(const struct tutti_config *config)
{
    return (size_t)config->number[TUTTI_OPT_staging] / 4;
}
/* The members of one bootstrap; communicators that split from one another share it. */
struct tutti_world {
    struct tutti_transport *transport;
    struct tutti_control *control;
    uint32_t n, me;
    uint64_t nonce; /* equal on all members, random: source of communicator ids */
    bool authenticated;
    uint32_t n_cpus;           /* that the members may use together */
    uint32_t min_cpus, n_host; /* agreed facts: least CPUs allowed to a member, members of the most crowded host, */
    bool crowded;              /* and whether they outnumber the CPUs that they may use */
    bool decorated;            /* some member's transport is */
    bool devices;              /* some member has a device */
    struct tutti_cpu_place *places;  /* where each member is on its host, -1: another host; owned */
    const struct tutti_hosts *hosts; /* NULL: all are of one host */
    struct tutti_far *far;           /* NULL: likewise; owned */
    struct tutti_machine machine;    /* rank 0's, agreed */
    char host[64];
};
/* Blocks until all members met, compared versions and agreed configuration, and the transport is open. The transport is
 * not yet attached to an engine. Errors: BOOTSTRAP, TIMEOUT (names the missing ranks), PEER_DEAD (names a rank that
 * died after it had come), CONFIG (names rank and option), AUTH, SYSTEM, MEMORY, CANCELLED. Close: detach, then
 * tutti_world_close. */
enum tutti_status tutti_world_open(const struct tutti_bootstrap *bootstrap, struct tutti_world *out);
void tutti_world_close(struct tutti_world *world);

#endif
