/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_TEAM_STATE_H
#define TUTTI_ENGINE_TEAM_STATE_H

/* What the owner of an engine keeps of calls in progress: messages between two ranks, slices of collectives, channels
 * to peers, and ports. All of it is the owner's. team.h has the team, which holds these, and the functions. */

#include "engine/bind.h"
#include "engine/work.h"

/* ---- Messages between two ranks: a message is one that this rank sends or wants, an envelope is one that came
 * unasked, and an inflow says which bytes of a message are here (send.c). All of it is the owner's. ---- */

enum tutti_p2p_message_state {
    TUTTI_P2P_QUEUED,   /* send: no room for the envelope yet. recv: posted */
    TUTTI_P2P_WAITING,  /* send: for the grant. recv: the grant is to be sent */
    TUTTI_P2P_MOVING,   /* payload on its way */
    TUTTI_P2P_READ_OWED /* recv: an offer was read, which is to be told */
};
/* Progress of a message of several packets: all before `received`, and what came out of order after it. */
#define TUTTI_INFLOW_GAPS 6
struct tutti_inflow {
    uint64_t received;
    uint32_t n_ahead;
    struct {
        uint64_t first, end;
    } ahead[TUTTI_INFLOW_GAPS];
};
struct tutti_p2p_message {
    struct tutti_work work; /* first */
    struct tutti_p2p_message *next;
    enum tutti_p2p_message_state state;
    unsigned char *buffer;
    size_t bytes, total; /* the buffer's; the message's */
    size_t offset;       /* send: what left */
    int32_t peer, tag;   /* slot; recv: maybe ANY until matched */
    uint64_t number;     /* the message's number, from 1 */
    bool offered;
    struct tutti_inflow inflow;
    struct tutti_message *message;
};

/* An envelope that nobody asked for yet. Index 0 is none. */
struct tutti_envelope {
    uint32_t next, source; /* slot */
    int32_t tag;
    uint32_t payload; /* 1 + payload slot, 0: none */
    uint64_t number, total;
};

/* Whether the piece is new (duplicates are not). *broken: it can not be, or too much is out of order. */
bool tutti_inflow_add(struct tutti_inflow *inflow, uint64_t total, uint64_t offset, uint64_t bytes, bool *broken);

/* ---- What is in progress. A flight is a collective. A slice is one of its slices that is active. A lane carries out
 * call steps of schedules. A followed work goes on elsewhere, on a device. All of it is the owner's. ---- */

#define TUTTI_ACTIVE 64 /* slices of a team that are worked on at once, the oldest ones */

struct tutti_region { /* private memory of a call */
    unsigned char *base;
    size_t bytes;
};

struct tutti_flight {
    struct tutti_work work; /* first */
    struct tutti_flight *next;
    struct tutti_call_info info;
    struct tutti_runner *runner; /* in `room`: then there is neither schedule nor region, and one slice */
    bool blocked;                /* runner: it waits for the peer that it awaits */
    struct tutti_bind bind;
    struct tutti_layout layout;
    struct tutti_region region;
    struct tutti_need need;   /* what of the region is where */
    unsigned char factor[16]; /* the bind's, where the flight is kept */
    uint32_t next_slice, n_finished;
    uint64_t compare_ns;                /* when the boards are compared next */
    uint32_t n_compared;                /* boards so far */
    bool past_cache;                    /* results are too much for the caches, and not read again */
    bool reported_missing, in_vain;     /* in_vain: at the last look a peer had completed what it waits for */
    uint64_t packed_call, packed_count; /* what packets say of the call */
    _Alignas(16) unsigned char room[];  /* for runners: TUTTI_RUNNER_BYTES */
};

/* Masks are relative to base: bit 63 - k is step base + k. */
struct tutti_slice {
    struct tutti_flight *flight; /* NULL: free */
    uint32_t index, base;
    uint64_t done, busy;              /* busy: posted, granted or offered; waits for an arrival */
    uint64_t ack;                     /* counts in busy: an offer was read, and the sender must be notified */
    bool dirty, stalled;              /* something became possible; a send found no room or credit */
    uint32_t called[TUTTI_MAX_LANES]; /* by lane: so many of the schedule's first calls are over, or of other lanes */
};
static inline uint64_t tutti_slice_bit(uint32_t k)
{
    return UINT64_C(1) << (63 - k);
}
static inline bool tutti_slice_over(const struct tutti_slice *slice)
{
    const struct tutti_schedule *schedule = slice->flight->bind.schedule;
    return schedule && slice->base >= schedule->n_steps;
}
static inline void tutti_slice_complete(struct tutti_slice *slice, uint32_t step)
{
    uint64_t bit = tutti_slice_bit(step - slice->base);

    slice->done |= bit;
    slice->busy &= ~bit;
    slice->ack &= ~bit;
    slice->dirty = true;
}
/* Whether the hazards of step base + k are clear. */
static inline bool tutti_step_ready(const struct tutti_slice *slice, uint32_t k)
{
    if (k == 0) return true;
    uint64_t wait = slice->flight->bind.schedule->steps[slice->base + k].wait;
    return (wait & ~(slice->done >> (64 - k) | ~UINT64_C(0) << k)) == 0;
}
/* A lane, and the call that it carries out. */
struct tutti_calling {
    struct tutti_lane group;
    struct tutti_slice *slice; /* the slice whose call it is; NULL: none */
    uint32_t call;             /* in its schedule's calls */
    bool blocked;              /* it waits for the peer that it awaits */
    _Alignas(16) unsigned char room[TUTTI_RUNNER_BYTES];
};
static inline struct tutti_runner *tutti_calling_runner(struct tutti_calling *calling)
{
    return (struct tutti_runner *)(void *)calling->room;
}

struct tutti_followed {
    struct tutti_work work; /* first */
    struct tutti_followed *next;
    const struct tutti_followed_ops *ops;
    void *arg;
};

/* ---- A channel is all that a team knows of one peer. It begins as zeros, and its memory is mapped lazily, so only
 * active peers cost memory. All of it is the owner's. ---- */

struct tutti_grant {
    uint64_t seq, signature, total;
    uint32_t slice, fifo;
    uint64_t count, call; /* what the peer called, for sentences */
};
struct tutti_incoming {        /* a message that this rank granted */
    struct tutti_slice *slice; /* NULL: free */
    uint32_t step;
    struct tutti_inflow inflow;
};
/* An eager message that came before its receive. */
struct tutti_held {
    struct tutti_packet packet;
    uint64_t blocks; /* bits: where its payload is, in the order of the bits; a block holds what one credit is for */
};
struct tutti_channel {
    /* collectives, outgoing */
    uint8_t sent, returned; /* credits, modulo 256 */
    uint8_t n_grants;
    struct tutti_grant grants[TUTTI_GRANTS];
    struct tutti_slice *out_slice; /* a message of several packets that is being sent */
    uint32_t out_step;
    size_t out_offset;
    /* collectives, incoming */
    uint8_t consumed, credited; /* credits, modulo 256 */
    uint8_t n_incoming, n_held; /* n_held: credits of messages that are held */
    bool listed;                /* in the team's list of channels that hold something or owe credits */
    uint32_t next_listed;
    struct tutti_incoming incoming[TUTTI_GRANTS];
    uint64_t held, blocks; /* bits: messages that are held; blocks in use */
    bool has_left;         /* watch: its board has said so */
    /* point-to-point */
    uint64_t p2p_sent, p2p_taken; /* envelopes: sent there; of theirs, in order */
    uint64_t p2p_freed,
        p2p_credited;      /* their envelopes that are gone from the table, and those that were acknowledged */
    uint64_t p2p_returned; /* our envelopes that came back, as told */
    uint32_t p2p_paid, p2p_paid_returned, p2p_paid_freed, p2p_paid_credited; /* the same for those with payload */
    uint32_t p2p_used;                                                       /* bits: payload slots in use */
    uint64_t p2p_pass;  /* pass over the messages in which it was found blocked */
    uint64_t gone_ns;   /* watch: when the peer was first found gone, */
    uint64_t gone_pass; /* and in which pass */
    uint64_t seen_tick; /* watch: the tick in which it was looked at */
};

/* ---- A port is a transport that the engine polls, with the teams over it and the memory that it borrowed from them.
 * ---- */

#define TUTTI_TICK_NS (UINT64_C(100) * TUTTI_NS_PER_MS) /* for small worlds, see attach in pass/engine.c */

#define TUTTI_TEAM_BUCKETS 64
/* A packet of a team that this rank has not created yet (a peer was faster). */
struct tutti_stray {
    struct tutti_packet packet;
    uint64_t used; /* 0: free, else when it came (a counter) */
    _Alignas(16) unsigned char payload[];
};
/* A piece of a message whose memory the wire has borrowed (send.c). */
#define TUTTI_LOANS 256
struct tutti_loan {
    struct tutti_team *team; /* NULL: free */
    void *of;                /* the slice whose step it belongs to, the message, access or part */
    uint32_t step, peer;     /* TUTTI_NO_STEP: of a message; or one of the next three */
    uint32_t generation;     /* how often it was given back: a part of the token */
    uint64_t number;         /* TUTTI_LOAN_PART: of the peer's packet; TUTTI_LOAN_DIRECT: of the piece */
};
#define TUTTI_LOAN_ACCESS (TUTTI_NO_STEP - 1) /* a loan of memory of an access to a peer */
#define TUTTI_LOAN_PART (TUTTI_NO_STEP - 2)   /* of memory that peers access */
#define TUTTI_LOAN_DIRECT (TUTTI_NO_STEP - 3) /* of an access, by a put or get of the wire */
struct tutti_port {
    struct tutti_transport *transport;
    struct tutti_control *control; /* for the same members */
    struct tutti_port *next;
    struct tutti_team *buckets[TUTTI_TEAM_BUCKETS];
    uint32_t n_busy;  /* teams */
    uint64_t drained; /* the last pass that left nothing behind */
    unsigned char *strays;
    size_t stray_stride, stray_bytes;
    uint32_t stray_room, n_strays, stray_top; /* top: none is kept, or was, from here on */
    uint64_t stray_clock;
    uint32_t n_loans, next_loan; /* in use; where the search for a free one begins */
    struct tutti_loan loans[TUTTI_LOANS];
};

struct tutti_engine {
    struct tutti_engine_config config;
    struct tutti_works *works;
    struct tutti_owner *owner;          /* the owner of the works */
    struct tutti_port *ports;           /* changed by the owner with the lock of the works held */
    struct tutti_team *busy;            /* teams with work, and such that had some until this pass */
    bool failing;                       /* a team has failed, and its works are to end in this pass */
    bool owes;                          /* a wire has something to write: that counts as a work */
    uint64_t pass, next_watch_ns, tick; /* number of this pass; when the next tick is due; its number */
    _Atomic uint64_t tick_ns;           /* how often a waiting rank looks around */
    atomic_bool attentive;              /* a tenth of that, and deaths are believed sooner */
    unsigned char *stage;               /* eager messages of many pieces are gathered here */
    uint64_t gone[256]; /* ids of the last teams destroyed, mixed with the epoch: their late packets are dropped */
    uint32_t n_gone;
    struct tutti_engine_stats stats;
};
/* Makes the owner look around by then. */
static inline void tutti_engine_watch_by(struct tutti_engine *engine, uint64_t when_ns)
{
    if (when_ns < engine->next_watch_ns) engine->next_watch_ns = when_ns;
}

#endif
