/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_TEST_H
#define TUTTI_CONTROL_NET_TEST_H

/* Members of a world for tests of the net: each has a listener and a net, and writes down what it is told. They may be
 * of one process or of many: each process has the table of all. */

#include "control/net/net.h"

#include <stdatomic.h>

#define WORLD_MAX 8

struct world_told { /* of one peer in one role */
    int fd;         /* the newest; -1: none */
    uint32_t n_opened, n_failed;
    struct tutti_error error; /* the last failure */
};
struct world_member {
    struct world *world;
    uint32_t me;
    struct tutti_listener *listener;
    struct tutti_net *net;
    pthread_mutex_t mutex; /* of what was told */
    struct world_told told[3][WORLD_MAX];
    _Atomic uint32_t dead; /* bits of members that it refuses */
};
struct world {
    uint32_t n;
    uint64_t number, dial_ns;
    const char *secret[WORLD_MAX];
    struct tutti_hosts hosts; /* a host each */
    struct tutti_host_row host_rows[WORLD_MAX];
    struct tutti_member_row member_rows[WORLD_MAX];
    struct world_member members[WORLD_MAX];
};

void world_init(struct world *world, uint32_t n, const char *address); /* listeners are open, no net yet */
void world_open(struct world *world, uint32_t member);
void world_open_all(struct world *world);
void world_close(struct world *world, uint32_t member); /* its net or listener, and all that it was given */
void world_fini(struct world *world);

void world_dial(struct world *world, uint32_t from, enum tutti_net_role role, uint32_t to);
/* Waits until a member was told: opened or failed so many times. False: not in 30 s. */
bool world_wait_opened(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer, uint32_t n);
bool world_wait_failed(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer, uint32_t n);
struct world_told world_told(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer);
/* Whether bytes go both ways between the sockets that the two were told of. */
bool world_talks(struct world *world, uint32_t a, enum tutti_net_role role, uint32_t b);
int world_call(struct world *world, uint32_t member); /* a stranger's socket at the member's port, blocking */
uint32_t world_descriptors(void);                     /* open in this process */

#endif
