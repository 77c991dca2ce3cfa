/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_PASS_PASS_H
#define TUTTI_ENGINE_PASS_PASS_H

/* The top of the engine, which uses all of its other rooms: its life, and one pass over all that there is to do, which
 * brings the other rooms together. Begin with pass.c; watch.c notices deadlines and peers that are gone. All functions
 * are the owner's, where nothing else is said. */

#include "engine/team/team.h"

/* ---- pass.c ---- */
extern const struct tutti_owner_ops tutti_pass_ops;

/* Sends the credits of a team that are due. */
void tutti_team_flush(struct tutti_team *team);
/* Counts what the wires have still to write as a work, so that somebody owns. */
void tutti_engine_count_owing(struct tutti_engine *engine);

/* ---- events of the wire to those they are for ---- */
/* Takes the next one of a port. AGAIN: there is none. Below 0: a peer wrote nonsense, and the port's teams end. */
enum tutti_status tutti_port_event(struct tutti_engine *engine, struct tutti_port *port);
void tutti_port_deliver(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_event *arrival);
/* A payload is still outside: answers where it goes. */
void tutti_port_place(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_packet *packet);
/* The wire gave borrowed memory back. */
void tutti_port_back(struct tutti_port *port, uint64_t token, enum tutti_status status);
void tutti_team_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                        const void *payload);

/* ---- packets for teams that do not exist here yet ---- */
enum tutti_status tutti_strays_create(struct tutti_engine *engine, struct tutti_port *port);
void tutti_strays_destroy(struct tutti_port *port);
void tutti_stray_keep(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_packet *packet,
                      const void *payload);
/* The next one that came for the team, in the order in which they came; NULL: none. It is valid until the next call of
 * tutti_stray_keep. */
const struct tutti_stray *tutti_stray_take(struct tutti_team *team);

/* ---- watch.c ---- */
void tutti_engine_watch(struct tutti_engine *engine, uint64_t now_ns);

#endif
