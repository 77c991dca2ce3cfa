/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_FLIGHT_FLIGHT_H
#define TUTTI_ENGINE_FLIGHT_FLIGHT_H

/* Collectives under way: a sealed schedule, cut into slices, whose steps are begun as their hazards allow; a runner of
 * a back end in the same order; calls of schedules on lanes; and works that are only followed. The room uses team (the
 * state) and report (failures). Begin with flight.c (any thread), then flight.c, issue.c (what leaves) and deliver.c
 * (what arrives). Functions without another word are the owner's. */

#include "engine/team/team.h"

/* ---- flight.c: any thread ---- */
void *tutti_region_take(struct tutti_team *team, size_t bytes, struct tutti_region *out); /* NULL: no memory */
void tutti_region_give(struct tutti_team *team, struct tutti_region region);
static inline void tutti_bind_release(const struct tutti_bind *bind)
{
    if (bind->cache) tutti_cache_release(bind->cache, bind->schedule);
}

/* ---- flight.c: any thread ---- */
/* A call that is ready to start: bound, with all memory that it needs. The schedule goes back on failure, or with it.
 */
enum tutti_status tutti_flight_create(struct tutti_team *team, const struct tutti_bind *bind,
                                      const struct tutti_call_info *info, struct tutti_flight **out);

/* ---- flight.c ---- */
/* What others see of it: it is under way; the calls so far are over. */
void tutti_flight_show_begin(struct tutti_team *team, struct tutti_flight *flight);
void tutti_flight_show_end(struct tutti_team *team);
void tutti_flight_begin(struct tutti_team *team, struct tutti_flight *flight);
void tutti_flight_end(struct tutti_team *team, struct tutti_flight *flight, const struct tutti_error *error);
/* What the flights of a team can do now; whether anything happened. retry: stalled slices may go on. */
bool tutti_flights_run(struct tutti_team *team, bool retry);
bool tutti_team_run_runners(struct tutti_team *team); /* the same, of its runners alone */
/* Whether input has come for slices that have not begun. */
bool tutti_flights_may_begin(const struct tutti_team *team);
void tutti_flights_fail(struct tutti_team *team, const struct tutti_error *error);

/* ---- flight.c ---- */
/* Advances the runner until it has to wait, or is done: true. */
bool tutti_runner_advance(struct tutti_team *team, struct tutti_flight *flight, bool *moved);
/* Some turns in a row, as long as it moves. */
enum tutti_advance tutti_runner_turns(struct tutti_runner *runner, bool *moved);

/* ---- call.c ---- */
bool tutti_team_call(struct tutti_team *team); /* begins and advances calls; whether anything happened */
void tutti_team_cancel_calls(struct tutti_team *team);

/* ---- issue.c ---- */
bool tutti_slice_issue(struct tutti_team *team, struct tutti_slice *slice); /* whether anything happened */
/* Asks for an eager message that is awaited, with a grant that says how long it should be. Without this two ranks could
 * wait for ever: a sender whose message is longer waits for a grant, while the receiver expects an eager message and
 * grants nothing. */
void tutti_recv_ask(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step);
void tutti_slice_finish(struct tutti_slice *slice); /* division */

/* ---- deliver.c: bytes into place ---- */
void tutti_step_local(const struct tutti_slice *slice, const struct tutti_step *step);
/* `bytes` bytes of the message of a RECV or RECV_REDUCE, from `offset` on. */
void tutti_step_apply(const struct tutti_slice *slice, const struct tutti_step *step, size_t offset, size_t bytes,
                      const unsigned char *payload);

/* ---- deliver.c: packets of schedules ---- */
void tutti_flights_data(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload);
void tutti_flights_grant(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet,
                         const void *payload);
void tutti_flights_read(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload);
/* Where the wire may put the payload of a packet that has not arrived. True: the bytes count as here, and they are when
 * the loan comes back. False: there is no place, the payload has to arrive first. */
bool tutti_flights_place(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet,
                         struct tutti_target *target, struct tutti_loan *what);
/* The wire gave back memory of a step. */
void tutti_flights_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status);
/* Takes a held packet for this receive, if there is one; sets *failed when it broke the team. */
bool tutti_held_take(struct tutti_team *team, struct tutti_slice *slice, uint32_t step, bool *failed);
/* A flight begins: packets that wait for it must carry its signature. False when the team broke. */
bool tutti_held_check(struct tutti_team *team, const struct tutti_flight *flight);

/* ---- flight.c ---- */
void tutti_follow_begin(struct tutti_team *team, struct tutti_followed *followed);
bool tutti_follow_run(struct tutti_team *team); /* whether anything happened */
void tutti_follow_fail(struct tutti_team *team, const struct tutti_error *error);

#endif
