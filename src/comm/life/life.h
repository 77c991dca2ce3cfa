/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_LIFE_LIFE_H
#define TUTTI_COMM_LIFE_LIFE_H

/* How communicators and contexts are made and how they end: created (create.c), split and duplicated (split.c), made of
 * survivors (shrink.c), aborted, flushed and destroyed (end.c). This room is above all others of comm but the calls,
 * which it does not need: it may use objects, devices and memory. Begin with create.c. */

#include "comm/comm.h"

/* Ends team, world and attachments; the handle stays. error: what later calls are told. */
void tutti_comm_shut(struct tutti_comm *comm, const struct tutti_error *error);
/* tutti_comm_abort, of callers that hold nothing of it. */
void tutti_comm_end_calls(struct tutti_comm *comm, const char *reason);
/* Gives back one that was never handed out. */
void tutti_comm_discard(struct tutti_comm *comm);

/* Makes a communicator, which is ready, one that survives; collective over its ranks. Gives that back (survive.c). */
enum tutti_status tutti_survive_open(struct tutti_comm *comm);
void tutti_survive_close(struct tutti_comm *comm);
/* Ends the calls of its view, too. */
void tutti_survive_abort(struct tutti_comm *comm, const char *reason);

#endif
