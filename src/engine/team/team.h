/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_TEAM_TEAM_H
#define TUTTI_ENGINE_TEAM_TEAM_H

/* A team is what the engine knows of a communicator: its calls, its messages, a channel a peer. This room holds that
 * state, and what all rooms that work on it (flight, p2p, report, pass) need: works of a team, its board, its packets,
 * its failure, and what its calls wait for. Begin with this header (state.h holds the parts), then
 * team.c.
 *
 * How a team fails: the function that decides a failure marks the team (tutti_team_break) and returns; nothing is
 * freed. Every function that works on a team looks at `failed` and stops. At the end of the pass the works of failed
 * teams are ended (pass.c). */

#include "engine/team/state.h"

#include <inttypes.h>
#include <stdio.h>

#define TUTTI_NO_SLOT UINT32_MAX
#define TUTTI_BOARD_NO_OP 255 /* on boards, for op */
#define TUTTI_BOARD_USER_OP 254

struct tutti_ones;
struct tutti_team {
    struct tutti_engine *engine;
    struct tutti_port *port;
    struct tutti_team *hash_next, *next, *previous; /* next: of the busy teams */
    bool busy;
    uint64_t id;
    uint32_t epoch, size, slot;
    uint32_t *members, *slots; /* slot -> member, and back (n of the world) */
    uint64_t timeout_ns;
    _Atomic uint64_t seq; /* last number given (who starts a call: engine->lock, or the turn of the caller) */
    _Atomic uint64_t *shown, unseen; /* the same, where others read it; that place where there is none */
    uint64_t shown_tag;
    _Atomic(const struct tutti_names *) names; /* NULL: sentences call all as it is here */
    _Atomic bool failed;                       /* then error is final */
    bool halted;         /* failed, or about to: nothing goes on; `error` is set when control has said whose failure
                          * counts */
    uint64_t verdict_ns; /* until then */
    struct tutti_error error;

    uint64_t started; /* last collective that came to the owner */
    struct tutti_board board;
    struct tutti_flight *pending, **pending_end; /* not all slices active yet, in order */
    struct tutti_slice *order[TUTTI_ACTIVE];     /* oldest first */
    uint32_t n_active, n_runners;                /* n_runners: of the active ones */
    struct tutti_slice slices[TUTTI_ACTIVE];
    uint32_t n_work;         /* works in progress */
    _Atomic uint32_t n_open; /* the same, and submitted ones */
    bool retry;              /* credits came, or ownership of the oldest slice changed: stalled slices may go on */
    bool again;              /* the transport had no room */
    bool owing;              /* credits may be due */
    uint32_t listed;         /* 1 + slot of the first channel that holds something or owes credits */

    struct tutti_p2p_message *sends, *recvs; /* not complete, in order */
    struct tutti_p2p_message **sends_end, **recvs_end;
    bool messages_dirty;
    uint64_t message_pass;
    uint32_t envelope_first, envelope_last; /* in order; no receive has asked for them yet */
    uint32_t envelope_early;                /* numbers before them are missing */
    uint32_t envelope_free, envelope_used;
    uint32_t envelope_share; /* for each peer */

    struct tutti_word_wait *waits, **waits_end;      /* for words, in order */
    struct tutti_followed *followed, **followed_end; /* not over, in order */
    uint64_t look_ns;                                /* when the oldest is looked at again */

    size_t slice_bytes, eager;
    size_t credit_bytes, hold_stride, p2p_stride; /* a block; what is held for a peer; an envelope's payload */
    unsigned char *map;                           /* channels, hold buffers, envelopes */
    size_t map_bytes;
    struct tutti_channel *channels;
    unsigned char *hold, *p2p_hold;
    struct tutti_envelope *envelopes;
    struct tutti_region spare[4]; /* private memory of finished calls (engine->lock) */
    tutti_overlay overlay;        /* NULL: boards say all */
    void *overlay_arg;
    _Atomic(struct tutti_ones *) ones; /* one-sided accesses (flight/onesided.h); NULL: none so far */
    struct tutti_calling *lanes;       /* that carry out calls of schedules */
    uint32_t n_lanes;
    tutti_lane_begin call_begin;
    void *call_arg;
};

/* ---- team.c ---- */
/* Any thread: numbers and queues a work of the team. */
enum tutti_status tutti_team_submit(struct tutti_work *work, bool helper);
/* The rest is the owner's. A work of the team is in progress; it is over. */
void tutti_team_begin_work(struct tutti_team *team);
void tutti_team_complete(struct tutti_work *work, const struct tutti_error *error);
/* Takes it out of the list of busy teams, if it is there. */
void tutti_team_rest(struct tutti_team *team);
struct tutti_team *tutti_team_find(struct tutti_port *port, uint64_t id, uint32_t epoch);
struct tutti_team **tutti_team_bucket(struct tutti_port *port, uint64_t id, uint32_t epoch);
void tutti_team_list(struct tutti_team *team, uint32_t slot); /* the channel holds or owes something */

/* ---- team.c ---- */
void tutti_team_publish(struct tutti_team *team);
_Atomic uint64_t *tutti_team_counter(struct tutti_team *team); /* see control.h; NULL: there is none */
/* OK: what the peer published of this team, and did past the engine; the signature is 0 where it is not known. AGAIN:
 * it did not publish anything, or something else took its place. PENDING, UNSUPPORTED: not known, see control.h. */
enum tutti_status tutti_team_peek(struct tutti_team *team, uint32_t peer, struct tutti_board *out);
/* Completes a board of the peer with what is known of its calls past the engine. */
void tutti_team_complete_board(struct tutti_team *team, uint32_t peer, struct tutti_board *board);
enum tutti_life tutti_team_life(struct tutti_team *team, uint32_t peer);
void tutti_board_fill(struct tutti_board *board, const struct tutti_flight *flight);

/* Credits that an eager message takes. */
static inline uint8_t tutti_credits_of(const struct tutti_team *team, size_t bytes)
{
    return bytes > 0 ? (uint8_t)((bytes + team->credit_bytes - 1) / team->credit_bytes) : 1;
}

/* ---- send.c: owner only ---- */
/* Sends a packet of the team; fills comm, epoch, credits. */
enum tutti_status tutti_team_send(struct tutti_team *team, uint32_t peer, struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans);
/* The same for a piece of a step's or message's payload, with generation 0. PENDING: the wire keeps the spans, and
 * `what` has a loan until it gives them back. AGAIN: also when there are no loans left. */
enum tutti_status tutti_team_lend(struct tutti_team *team, uint32_t peer, struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, const struct tutti_loan *what);
/* Whether the contiguous bytes are worth an offer, and where they are for the peer. */
bool tutti_offer_locate(struct tutti_team *team, uint32_t peer, const void *pointer, size_t bytes, uint64_t *offset);
const void *tutti_offer_map(struct tutti_team *team, uint32_t peer, uint64_t offset, size_t bytes);

/* ---- send.c: owner only ---- */
bool tutti_loan_take(struct tutti_port *port, const struct tutti_loan *what, uint64_t *token); /* false: none left */
/* The wire gave the memory back, or did not take it. False: no such loan is out. */
bool tutti_loan_end(struct tutti_port *port, uint64_t token, struct tutti_loan *out);
bool tutti_loan_find(const struct tutti_port *port, const void *of, uint32_t step);
uint64_t tutti_loan_token(const struct tutti_port *port, const struct tutti_loan *loan);
/* Whether the wire has borrowed memory of a step or message. */
static inline bool tutti_is_lent(const struct tutti_port *port, const void *of, uint32_t step)
{
    return port->n_loans > 0 && tutti_loan_find(port, of, step);
}
/* Takes all that is lent of a team back: when it returns, nobody touches the memory of its works. */
void tutti_loans_cancel(struct tutti_team *team);

/* ---- team.c: owner only: what is in progress, and what it waits for ---- */
/* A flight in progress, NULL: not started, or complete. */
struct tutti_flight *tutti_flight_find(const struct tutti_team *team, uint64_t seq);
/* The oldest active slice of a flight, NULL: it is behind others. */
const struct tutti_slice *tutti_flight_oldest(const struct tutti_team *team, const struct tutti_flight *flight);
/* The place in team->order of the oldest active runner, n_active: none. */
uint32_t tutti_runner_oldest(const struct tutti_team *team);
/* The peer (a slot of the team) that a flight with a runner, a lane, the oldest step of a slice waits for; -1: none. */
int32_t tutti_runner_awaits(const struct tutti_flight *flight);
int32_t tutti_calling_awaits(const struct tutti_calling *calling);
int32_t tutti_slice_awaits(const struct tutti_slice *slice);
bool tutti_team_is_calling(const struct tutti_team *team);

/* ---- team.c: owner only ---- */
/* Decides a failure here: tells all and marks the team. `flight` may be NULL; peer and step may be -1, TUTTI_NO_STEP.
 * The sentence is in `text`. */
void tutti_team_break(struct tutti_team *team, enum tutti_status status, int32_t peer,
                      const struct tutti_flight *flight, uint32_t step, const char *text);
/* Failures that members have raised; whether there were any. */
bool tutti_port_failures(struct tutti_port *port);

#endif
