/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_TEAM_PORT_H
#define TUTTI_ENGINE_TEAM_PORT_H

/* A port is a transport that the engine polls, with the teams over it and the memory that it borrowed from them. */

#include "engine/work/work.h"

#define TUTTI_TICK_NS (UINT64_C(100) * TUTTI_NS_PER_MS) /* of small worlds, see attach in pass/engine.c */

#define TUTTI_TEAM_BUCKETS 64
/* A packet of a team that this rank has not created yet (a peer was faster). */
struct tutti_stray {
    struct tutti_packet packet;
    uint64_t used; /* 0: free, else when it came (a counter) */
    _Alignas(16) unsigned char payload[];
};
/* A piece of a message whose memory the wire has borrowed (loan.c). */
#define TUTTI_LOANS 256
struct tutti_loan {
    struct tutti_team *team; /* NULL: free */
    void *of;                /* the slice whose step it belongs to, the letter, access or part */
    uint32_t step, peer;     /* TUTTI_NO_STEP: of a letter; or one of the next two */
    uint32_t generation;     /* how often it was given back: a part of the token */
    uint64_t number;         /* TUTTI_LOAN_PART: of the peer's packet */
};
#define TUTTI_LOAN_ACCESS (TUTTI_NO_STEP - 1) /* of memory of an access to a peer */
#define TUTTI_LOAN_PART (TUTTI_NO_STEP - 2)   /* of memory that peers access */
struct tutti_port {
    struct tutti_transport *transport;
    struct tutti_control *control; /* of the same members */
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
    struct tutti_owner *owner;          /* of the works */
    struct tutti_port *ports;           /* changed by the owner with the lock of the works held */
    struct tutti_team *busy;            /* teams with work, and such that had some until this pass */
    bool failing;                       /* a team has failed, and its works are to end in this pass */
    bool owes;                          /* a wire has something to write: that counts as a work */
    uint64_t pass, next_watch_ns, tick; /* number of this pass; when the next tick is due; its number */
    _Atomic uint64_t tick_ns;           /* how often a waiting rank looks around */
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
