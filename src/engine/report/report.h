/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_REPORT_REPORT_H
#define TUTTI_ENGINE_REPORT_REPORT_H

/* Failures that this rank finds, as sentences: who called what, who waits for whom, and where the chain of waiting
 * ranks ends. The room uses team. Begin with report.c; sentence.c puts a call into words, tell.c tells of calls that
 * were made past the engine. */

#include "engine/team/team.h"

/* ---- sentence.c ---- */
#define TUTTI_CALL_TEXT 256
/* "all_reduce(float32, 1024 elements, sum)" */
void tutti_say_board(const struct tutti_board *board, char *out, size_t capacity);
/* "all_reduce #17 (float32, 1024 elements, sum, label 'grad') on communicator 4f2a"; team and label may be NULL. */
void tutti_say_call(const struct tutti_team *team, const struct tutti_board *board, const char *label, char *out,
                    size_t capacity);
void tutti_say_flight(const struct tutti_flight *flight, char *out, size_t capacity);
void tutti_say_letter(const struct tutti_letter *letter, char *out, size_t capacity);
/* ", sum" and the like at the end of a text; cut where the room ends. */
void tutti_say(char *out, size_t capacity, const char *format, ...) TUTTI_PRINTF(3, 4);
/* The state of a peer that somebody waits for. board: what it shows, NULL: nothing. */
void tutti_say_state(const struct tutti_board *board, enum tutti_life life, uint64_t seq, uint32_t peer, char *out,
                     size_t capacity);

/* ---- report.c: owner only; each breaks the team with a sentence ---- */
/* count, call: of the peer's packet. */
void tutti_report_mismatch(struct tutti_team *team, const struct tutti_flight *flight, uint32_t peer, uint64_t count,
                           uint64_t call);
void tutti_report_sizes(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step, uint64_t sent,
                        uint64_t expected);
/* The peer has completed the call, and what this step waits for never came. */
void tutti_report_in_vain(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step);
void tutti_report_timeout(struct tutti_team *team, const struct tutti_flight *flight);
void tutti_report_letter_timeout(struct tutti_team *team, const struct tutti_letter *letter);
/* where: the call, as text. */
void tutti_report_lost(struct tutti_team *team, uint32_t peer, enum tutti_life life, const char *where,
                       const struct tutti_flight *flight, uint32_t step);
/* What the step sends to the peer, or wants from it, can not arrive. */
void tutti_report_undelivered(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step, uint32_t peer,
                              enum tutti_status status);
/* FAILED, for the reason in the thread's record. */
void tutti_report_failed(struct tutti_team *team, const struct tutti_flight *flight);

#endif
