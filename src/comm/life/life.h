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

/* A store that lets one side of a cut go on: a communicator's door, its id, and the epoch of the view. */
struct tutti_door;
struct tutti_arbiter {
    struct tutti_door *door;
    const struct tutti_config *config; /* names the store of a door that may not be open yet; NULL: it is */
    uint64_t comm, epoch;
    bool asks_before; /* some may not have come into this view, and may ask for the one before */
};

/* What the members of a view agree on: who is left, and whether all of them go on in a larger one. */
struct tutti_next {
    struct tutti_comm *larger; /* that this member has; NULL: it has none. Then *out is what tutti_comm_shrink makes */
    uint64_t patience_ns;      /* a member that says nothing for so long is left out, as one of a silent host is */
    const struct tutti_comm *handle;     /* an abort of it ends the agreement, too; NULL: there is none */
    bool quorum;                         /* one side of a cut alone may go on; with patience it is so in any case */
    bool is_late;                        /* a deadline has passed: who is stopped is waited for no longer */
    const struct tutti_arbiter *arbiter; /* NULL: the majority goes on */
    bool *was_asked;                     /* out: the view was left by the arbiter's word; NULL where there is none */
    const bool *elders;                  /* by slot: who was in the view before; NULL: all have come into this one */
};
/* Where some may live that are left out, the majority alone goes on, also of the elders, and of two halves that of the
 * lowest rank. TIMEOUT: this rank is not of it, or was left out. A larger one that is not *out stays the caller's. */
enum tutti_status tutti_comm_next(struct tutti_comm *comm, const struct tutti_next *next, struct tutti_comm **out);

/* Makes a communicator, which is ready, one that survives; collective over its ranks. Gives that back (survive.c). */
enum tutti_status tutti_survive_open(struct tutti_comm *comm, const struct tutti_comm_config *given);
/* A communicator that survives, of a rank that comes later (admit.c). */
enum tutti_status tutti_survive_join(struct tutti_context *context, const struct tutti_comm_config *given,
                                     struct tutti_comm **out);
void tutti_survive_close(struct tutti_comm *comm);
/* False: it does not survive. Else why nothing goes on, if it has ended; the handle's own team tells nothing. */
bool tutti_survive_state(const struct tutti_comm *comm, struct tutti_error *error);
/* Waits until its calls are over, or until then; false: some are not. True where it does not survive. */
bool tutti_survive_idle(struct tutti_comm *comm, uint64_t until_ns);
/* Ends the calls of its view, too. */
void tutti_survive_abort(struct tutti_comm *comm, const char *reason);

#endif
