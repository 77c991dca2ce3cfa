/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_TEAM_REPORT_H
#define TUTTI_ENGINE_TEAM_REPORT_H

/* Failures that this rank finds, as sentences: who called what, who waits for whom, and where the chain of waiting
 * ranks ends. All of it is in report.c, also failures of
 * calls that were made past the engine. */

#include "engine/team/team.h"

/* ---- a call in words ---- */
#define TUTTI_CALL_TEXT 256
/* "all_reduce #17 (float32, 1024 elements, sum, label 'grad') on communicator 4f2a"; team and label may be NULL. */
void tutti_say_call(const struct tutti_team *team, const struct tutti_board *board, const char *label, char *out,
                    size_t capacity);
/* "all_reduce(float32, 1024 elements, sum)"; team may be NULL. */
void tutti_say_board(const struct tutti_team *team, const struct tutti_board *board, char *out, size_t capacity);
void tutti_say_flight(const struct tutti_flight *flight, char *out, size_t capacity);
void tutti_say_message(const struct tutti_p2p_message *msg, char *out, size_t capacity);
/* "connection closed by peer: rank 2 died while rank 0 waited for it in CALL". */
void tutti_say_lost(const struct tutti_team *team, uint32_t peer, enum tutti_life life, const char *call, char *out,
                    size_t capacity);
static inline enum tutti_status tutti_lost_status(enum tutti_life life)
{
    return life == TUTTI_LIFE_DEAD ? TUTTI_ERR_PEER_DEAD : TUTTI_ERR_PEER_LEFT;
}
/* "all_reduce #3 on communicator 4f2a: rank 1 called ..., rank 0 called ..."; other: how theirs differs if it reads
 * alike. */
void tutti_say_mismatch(const struct tutti_team *team, uint32_t peer, const struct tutti_board *mine,
                        const struct tutti_board *theirs, const char *other, char *out, size_t capacity);
/* "rank 3 on host a"; "rank 3" where all are on one host. */
void tutti_say_rank(const struct tutti_team *team, uint32_t slot, char *out, size_t capacity);

/* ---- report.c: owner only; each breaks the team with a sentence ---- */
/* count, call: of the peer's packet. */
void tutti_report_mismatch(struct tutti_team *team, const struct tutti_flight *flight, uint32_t peer, uint64_t count,
                           uint64_t call);
void tutti_report_sizes(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step, uint64_t sent,
                        uint64_t expected);
/* The peer has completed the call, and what this step waits for never came. */
void tutti_report_in_vain(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step);
void tutti_report_timeout(struct tutti_team *team, const struct tutti_flight *flight);
void tutti_report_message_timeout(struct tutti_team *team, const struct tutti_p2p_message *msg);
/* A peer that the call waits for is dead or has left. */
void tutti_report_flight_lost(struct tutti_team *team, const struct tutti_flight *flight, uint32_t peer,
                              enum tutti_life life, uint32_t step);
void tutti_report_message_lost(struct tutti_team *team, const struct tutti_p2p_message *msg, uint32_t peer,
                               enum tutti_life life);
/* What the peer sent can not be; what: "a part of a message that ...". flight may be NULL. */
void tutti_report_protocol(struct tutti_team *team, uint32_t peer, const struct tutti_flight *flight, const char *what);
/* A runner of the flight found that `peer`, a slot of the team, called something else. */
void tutti_report_called(struct tutti_team *team, const struct tutti_flight *flight, const struct tutti_runner *runner,
                         uint32_t peer);
/* What the step sends to the peer, or wants from it, can not arrive. */
void tutti_report_undelivered(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step, uint32_t peer,
                              enum tutti_status status);
/* FAILED, for the reason in the thread's record. */
void tutti_report_failed(struct tutti_team *team, const struct tutti_flight *flight);

#endif
