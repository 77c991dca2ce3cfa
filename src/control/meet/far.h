/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEET_FAR_H
#define TUTTI_CONTROL_MEET_FAR_H

/* What a world on several hosts has beyond that of its own host: the network's thread, sockets and the tree. */

#include "control/meet/bootstrap.h"
#include "control/meet/card.h"

/* Transport and control of this host, over the met segment of its members. */
struct tutti_near {
    struct tutti_transport *transport;
    struct tutti_control *control;
    struct tutti_cpu_place *places; /* the places of this host's members */
    struct tutti_world_facts facts;
};
void tutti_near_close(struct tutti_near *near);

struct tutti_far_config {
    const struct tutti_bootstrap *bootstrap;
    uint64_t world;
    struct tutti_listener *listener; /* taken over, also when it fails */
    struct tutti_hosts hosts;        /* taken over, also when it fails */
    struct tutti_near near;          /* taken over, also when it fails */
};
struct tutti_far;
/* *transport and *control reach all members; close control, then transport, between begin_close and end_close. */
enum tutti_status tutti_far_open(const struct tutti_far_config *config, struct tutti_far **out,
                                 struct tutti_transport **transport, struct tutti_control **control);
const struct tutti_hosts *tutti_far_hosts(const struct tutti_far *far);
void tutti_far_begin_close(struct tutti_far *far); /* says goodbye, ends the network's thread */
void tutti_far_end_close(struct tutti_far *far);

#endif
