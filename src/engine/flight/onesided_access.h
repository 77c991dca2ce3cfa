/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_FLIGHT_ONESIDED_ACCESS_H
#define TUTTI_ENGINE_FLIGHT_ONESIDED_ACCESS_H

/* What the files onesided_*.c share. A pair is what a team keeps of one peer: accesses that go there, and accesses that
 * came from there and have not taken effect. All of it is the owner's where nothing else is said.
 *   onesided_access.c  accesses of this rank to parts of peers: they start, leave, are answered and flushed
 *   onesided_part.c    memory that this rank exposes, and moves for a part that is not in the host's memory
 *   onesided_serve.c   accesses of peers: they are checked, carried out and answered
 *   onesided_direct.c  puts and gets of the wire: bytes without the owner's help
 *   onesided_wait.c    waits for words of the own memory, and sentences about accesses */

#include "engine/flight/onesided.h"

/* ---- packets: TUTTI_PACKET_ONE and TUTTI_PACKET_ONE_ANSWER ---- */
/* flags: enum tutti_one_kind, and: */
#define TUTTI_ONE_KIND 7 /* mask */
#define TUTTI_ONE_HAS_SIGNAL 8
#define TUTTI_ONE_SIGNAL_ADD 16
/* An answer with seq 0 has only a count, or a key. One that refuses says why in `call`. */
enum tutti_one_reason {
    TUTTI_ONE_FINE,
    TUTTI_ONE_GONE,
    TUTTI_ONE_RANGE,
    TUTTI_ONE_ALIGNMENT,
    TUTTI_ONE_INDEX,
    TUTTI_ONE_LEFT, /* the whole communicator has ended there */
    TUTTI_N_ONE_REASONS
};

/* ---- of this rank ---- */
struct tutti_one_pair;
struct tutti_one_access {
    struct tutti_work work;                   /* first */
    struct tutti_one_access *next, *previous; /* all in progress, in order */
    struct tutti_one_access *queued; /* the next one that leaves for the same peer; of flushes: the next flush */
    struct tutti_one_info info;
    uint64_t order;            /* its place among all accesses of the team */
    uint64_t fence;            /* fences that were called before it */
    uint64_t sent;             /* bytes whose packets have left */
    uint32_t n_open, n_lent;   /* packets whose answer it waits for; pieces of its memory that the wire has */
    bool left;                 /* all its packets have */
    enum tutti_one_reason why; /* a refusal's */
    struct tutti_one_pair *at; /* flush of all peers: those before it are flushed */
};
/* A packet of this rank that may have an answer to come. */
struct tutti_one_open {
    struct tutti_one_access *access; /* that waits for the answer; NULL: none does */
    uint64_t number, order;
    uint64_t at, bytes, offset; /* in the access; in the part */
    const char *name;
    uint32_t window;
    bool answered;
};
/* A refusal that came after its access was complete. */
struct tutti_one_refusal {
    const char *name; /* NULL: none */
    uint64_t offset, bytes;
    uint32_t window;
    enum tutti_one_reason why;
};

/* ---- of peers ---- */
enum tutti_one_state {
    TUTTI_ONE_FREE,
    TUTTI_ONE_PLACED, /* its payload is on the way into the part, or to its move */
    TUTTI_ONE_MOVING, /* somebody else carries it out */
    TUTTI_ONE_DUE,    /* to be carried out, or to be answered: see `done` */
    TUTTI_ONE_LENT,   /* the wire has its answer */
    TUTTI_ONE_OVER,
};
struct tutti_one_held {
    struct tutti_packet packet;
    enum tutti_one_state state;
    enum tutti_one_reason why;
    bool done;               /* it was carried out, and its answer has found no room yet */
    uint64_t before;         /* from the answer; a word that is got */
    struct tutti_move *move; /* which has its payload; NULL: there is none, or it is over */
};
struct tutti_part {
    struct tutti_part *next;
    struct tutti_exposed exposed;
    uint32_t window, n_lent, n_moving;
    /* registered memory */
    bool closed;        /* no key of it is given out any more, or at all */
    void *registration; /* the wire's; NULL: none */
    struct tutti_key key;
    uint64_t *holders; /* bits by slot: who has the key */
    uint32_t n_holders;
};
/* What this rank knows of registered memory of a peer. */
struct tutti_one_key {
    struct tutti_one_key *next;
    uint32_t window, n_flying;
    uint32_t n_asked; /* accesses since it was asked for */
    bool there;       /* the key is */
    bool refused;     /* there is none */
    bool withdrawn;   /* goes back when nothing flies any more */
    struct tutti_key key;
};
#define TUTTI_ONE_DIRECT 8 /* pieces of accesses to a peer that the wire has, as puts and gets of its own */

struct tutti_one_pair {
    struct tutti_one_pair *next, *next_ready;
    uint32_t slot;
    bool known, ready; /* in the list of pairs; of ready ones */
    bool gone;         /* nothing can be sent there: it needs no answers */
    /* out */
    struct tutti_one_access *first, **end; /* to be sent, in order */
    uint64_t sent, answered;               /* numbers of packets: all up to `answered` have taken effect */
    uint64_t fence, hold; /* fences seen; no put or get leaves before all packets up to `hold` have taken effect */
    uint64_t ask, asked;  /* by order: a flush waits for accesses up to `ask`; up to which an answer was asked for */
    struct tutti_one_refusal refusal;
    struct tutti_one_open open[TUTTI_ONE_OPEN];
    struct tutti_one_key *keys;
    struct tutti_one_piece {
        struct tutti_one_key *key; /* NULL: free */
        uint64_t order;
    } direct[TUTTI_ONE_DIRECT];
    uint32_t n_direct;
    bool direct_holds; /* no put or get leaves before they are there */
    /* in */
    uint64_t applied,
        acknowledged; /* numbers of packets: all up to `applied` have taken effect here; what the peer knows of that */
    uint64_t gets;    /* bits of `held`: gets that are due */
    bool owes;        /* what was applied is to be told at once */
    struct tutti_one_held held[TUTTI_ONE_OPEN];
};

#define TUTTI_PART_BUCKETS 32
#define TUTTI_ONE_GONE_KEPT 32
struct tutti_ones {
    struct tutti_one_pair *pairs; /* by slot, mapped lazily */
    size_t map_bytes;
    enum { TUTTI_DEVICES_UNTRIED, TUTTI_DEVICES_REACHED, TUTTI_DEVICES_UNREACHED } devices; /* by the wire */
    struct tutti_one_pair *known, **known_end; /* with whom there was something, in that order */
    struct tutti_one_pair *ready, *stalled;    /* something is to be done; the wire had no room */
    struct tutti_one_access *first, *last;     /* in progress, in order */
    struct tutti_one_access *flushes, **flushes_end;
    bool flushed;            /* something has taken effect: flushes may be complete */
    bool serves;             /* a part was exposed: somebody owns the engine until the team ends */
    uint64_t order, n_moves; /* the last one given; packets that left */
    _Atomic uint64_t fence;
    struct tutti_part *parts[TUTTI_PART_BUCKETS];
    struct { /* windows that peers have destroyed, as this rank knows; the last ones */
        uint32_t slot, window;
    } lost[TUTTI_ONE_GONE_KEPT];
    uint32_t n_lost;
    struct tutti_move *made, *idle;    /* all moves; unused ones */
    _Atomic(struct tutti_move *) over; /* the last one that came back, before which others did */
};

/* ---- onesided_part.c ---- */
enum tutti_status tutti_ones_need(struct tutti_team *team); /* makes team->ones. Any thread. MEMORY */
struct tutti_part *tutti_part_find(const struct tutti_ones *ones, uint32_t window);
bool tutti_part_is_word(const struct tutti_part *part, uint64_t offset, uint64_t bytes);
void tutti_part_write(const struct tutti_part *part, uint64_t offset, const void *from, size_t bytes);
void tutti_part_change(const struct tutti_part *part, const struct tutti_packet *packet, uint64_t *before);
void tutti_part_signal(const struct tutti_part *part, const struct tutti_packet *packet);

/* ---- onesided_access.c ---- */
static inline struct tutti_one_open *tutti_one_open(struct tutti_one_pair *pair, uint64_t number)
{
    return &pair->open[number % TUTTI_ONE_OPEN];
}
static inline struct tutti_one_held *tutti_one_held(struct tutti_one_pair *pair, uint64_t number)
{
    return &pair->held[number % TUTTI_ONE_OPEN];
}
struct tutti_one_pair *tutti_one_pair(struct tutti_team *team, uint32_t slot);
void tutti_pair_ready(struct tutti_ones *ones, struct tutti_one_pair *pair);
/* Ends it if nothing of it is left. */
void tutti_access_finish(struct tutti_team *team, struct tutti_one_access *access);
void tutti_access_end(struct tutti_team *team, struct tutti_one_access *access, const struct tutti_error *error);
/* Sends a packet of the pair, which takes the count along. */
enum tutti_status tutti_one_send(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_packet *packet,
                                 const struct tutti_span *span, const struct tutti_loan *what);
bool tutti_one_lost(const struct tutti_ones *ones, uint32_t slot, uint32_t window);
void tutti_one_lose(struct tutti_ones *ones, uint32_t slot, uint32_t window);

/* Sends what may leave. False: the wire had no room. */
bool tutti_pair_ask(struct tutti_team *team, struct tutti_one_pair *pair);

/* The lowest order of an access to the peer that may not have taken effect, UINT64_MAX: all have. */
uint64_t tutti_pair_pending(const struct tutti_one_pair *pair);
void tutti_flush_begin(struct tutti_team *team, struct tutti_one_access *access);
void tutti_flushes_check(struct tutti_team *team);

/* The pair that a packet came for, after what the packet says of it was taken; NULL: that can not be. */
struct tutti_one_pair *tutti_one_source(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet);
bool tutti_answer_place(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                        struct tutti_target *target, struct tutti_loan *what);
void tutti_answer_take(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                       const void *payload);

/* ---- onesided_serve.c ---- */
bool tutti_admit_place(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                       struct tutti_target *target, struct tutti_loan *what);
void tutti_admit_take(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                      const void *payload);

/* The wire gave back what it had of a part, or of a move's memory. */
void tutti_part_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status);

/* Carries out what is due, and answers. False: the wire had no room. */
bool tutti_pair_serve(struct tutti_team *team, struct tutti_one_pair *pair);

/* What is left of an access whose payload is in the part: the signal of a put. */
static inline enum tutti_one_state tutti_one_rest(const struct tutti_packet *packet)
{
    const bool put = (packet->flags & TUTTI_ONE_KIND) == TUTTI_ONE_PUT;
    return put && !(packet->flags & TUTTI_ONE_HAS_SIGNAL) ? TUTTI_ONE_OVER : TUTTI_ONE_DUE;
}

/* ---- onesided_part.c: moves ---- */
/* With memory for one payload. NULL: no memory; the record says so. */
struct tutti_move *tutti_move_take(struct tutti_team *team);
void tutti_move_give(struct tutti_ones *ones, struct tutti_one_held *held); /* that of held, if it has one */
/* Begins what held->packet says, by held->move. */
void tutti_move_begin(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_part *part,
                      struct tutti_one_held *held);
void tutti_moves_take(struct tutti_team *team); /* those that are over */
static inline bool tutti_moves_any(const struct tutti_ones *ones)
{
    return ones && atomic_load(&ones->over) != NULL;
}

/* ---- onesided_direct.c ---- */
/* The key by which the next piece goes directly; NULL: by a packet. */
struct tutti_one_key *tutti_direct_takes(struct tutti_team *team, struct tutti_one_pair *pair,
                                         const struct tutti_one_access *access);
/* Starts it, where n_direct says that there is room for it. */
enum tutti_status tutti_direct_send(struct tutti_team *team, struct tutti_one_pair *pair,
                                    struct tutti_one_access *access, struct tutti_one_key *key);
/* Whether it can not go on, since its memory can not go by packets: it ends then as refused. */
bool tutti_direct_refused(struct tutti_one_access *access);
void tutti_direct_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status);
/* What peers say of keys: packets and answers TUTTI_ONE_KEY. */
void tutti_key_take(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet);
void tutti_key_answer_take(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                           const void *payload);
/* The peer has ended the communicator, and holds no keys any more. */
void tutti_keys_left(struct tutti_team *team, const struct tutti_one_pair *pair);
/* This rank needs no keys of the window any more. */
void tutti_keys_drop(struct tutti_team *team, uint32_t window);
/* Nobody has the key any more, or can use it. The owner is entered, and left meanwhile. */
void tutti_part_withdraw(struct tutti_team *team, struct tutti_part *part);
void tutti_direct_free(struct tutti_team *team); /* for a team that ends */

/* ---- onesided_wait.c: sentences ---- */
/* The peer that it waits for, -1: none. */
int32_t tutti_access_awaits(const struct tutti_one_access *access);
void tutti_access_timeout(struct tutti_team *team, const struct tutti_one_access *access);
void tutti_access_lost(struct tutti_team *team, const struct tutti_one_access *access, uint32_t peer,
                       enum tutti_life life);
/* What a send for the pair came to, if it is an error; access may be NULL. */
void tutti_access_unsent(struct tutti_team *team, const struct tutti_one_access *access, uint32_t peer,
                         enum tutti_status status);
void tutti_refusal_error(const struct tutti_team *team, uint32_t peer, const struct tutti_one_refusal *refusal,
                         struct tutti_error *error);

/* ---- what pass calls: pass is the only one ---- */
/* Answers an access to a communicator that has ended here. */
void tutti_one_leave(struct tutti_port *port, const struct tutti_packet *packet);
void tutti_access_begin(struct tutti_team *team, struct tutti_one_access *access);
bool tutti_ones_run(struct tutti_team *team, bool retry); /* whether anything happened */
void tutti_ones_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                        const void *payload);
bool tutti_ones_place(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                      struct tutti_target *target, struct tutti_loan *what);
void tutti_ones_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status);
void tutti_ones_fail(struct tutti_team *team, const struct tutti_error *error);
void tutti_ones_destroy(struct tutti_team *team); /* for a team that ends */

#endif
