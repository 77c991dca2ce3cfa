/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_FLIGHT_ONESIDED_H
#define TUTTI_ENGINE_FLIGHT_ONESIDED_H

/* One-sided calls over the wire: put, get, signals and atomics on the part of a peer that this process can not map.
 * The owner's engine serves them, while it makes progress for whatever reason: so an engine that has an exposed part
 * keeps a helper that sleeps in the poller, until its team ends. Parts in memory of devices it does not touch itself:
 * see moves. The room uses team, report and work. Begin here, then access.h.
 *
 * Protocol. An access is one or more packets TUTTI_PACKET_ONE, numbered by the pair of ranks within a communicator,
 * whatever the window. At most TUTTI_ONE_OPEN of a pair may not have taken effect: that is the flow control, and the
 * receiver recognises what comes twice by its number. Payloads go straight into the part (place), so the receiver needs
 * no memory for them. Packets that have an order (signals, atomics, flush) take effect when all packets before them
 * have; until then the receiver keeps them, without payload. After a fence the sender keeps data back until all before
 * it has taken effect. Every packet takes along how many of the other side have taken effect; only gets, atomics and
 * refusals have an answer of their own. What a peer sends is checked against the part before it is believed: an access
 * that may not be is refused, which is the caller's ARGUMENT; one that can not be ends the communicator with PROTOCOL.
 *
 * Where the wire has puts and gets of its own, an owner registers its part when it is first asked to, and the bytes go
 * without it (onesided_direct.c); what has an order leaves when they are there.
 *
 * A put or signal is complete when its source is free. If it is refused later, the next flush of the peer returns that;
 * and once a peer is known to have destroyed a window, accesses to it there are refused here. */

#include "base/bell.h"
#include "engine/team/team.h"

#include <tutti/window.h>

#define TUTTI_ONE_OPEN 64

/* An access to a part of a window that the engine can not make itself: bytes moved between the part and memory of the
 * host, or a word of the part changed. The owner of the memory carries it out and calls tutti_move_over. */
enum tutti_move_kind { TUTTI_MOVE_WRITE, TUTTI_MOVE_READ, TUTTI_MOVE_ADD, TUTTI_MOVE_SWAP };
struct tutti_move {
    struct tutti_move *next; /* for whoever has it */
    enum tutti_move_kind kind;
    uint64_t offset; /* in the part */
    size_t bytes;
    void *memory;                     /* the host's, for WRITE and READ */
    uint64_t value, expected, before; /* for ADD and SWAP, as in calls */
    struct tutti_error error;         /* its status: OK, or why it was not carried out */
    /* the engine's: */
    struct tutti_team *team;
    struct tutti_part *part;
    struct tutti_move *made; /* all of the team */
    uint32_t peer;
    uint64_t number;
};
void tutti_move_over(struct tutti_move *move); /* any thread, not from within `move` below */

/* What this rank exposes: memory that stays, and words of the host for signals, until tutti_exposed_remove. */
struct tutti_exposed {
    void *base;
    size_t bytes;
    _Atomic uint64_t *signals;
    uint32_t n_signals, signal_step; /* step: words from one signal to the next */
    /* A signal has changed, or a word by an atomic access. The owner's thread; may be NULL. */
    void (*changed)(void *arg);
    /* NULL: the engine copies, and changes words, itself. Else it begins a move and returns at once; those of a part
     * take effect in their order. The owner's thread. */
    void (*move)(void *arg, struct tutti_move *move);
    void *arg;
    enum tutti_maker maker; /* the driver whose memory it is; where HOST has a move, the wire can not reach it */
    int32_t device;         /* as its driver counts */
};

/* `window`: its number in the communicator, the same on all members, never used twice. Before any peer may access it,
 * and on each member that accesses parts of others. Any thread. MEMORY. */
enum tutti_status tutti_exposed_add(struct tutti_team *team, uint32_t window, const struct tutti_exposed *part);
/* Later accesses are refused. Returns when the owner's engine touches the part no more, and all its moves are over. Any
 * thread. */
void tutti_exposed_remove(struct tutti_team *team, uint32_t window);

enum tutti_one_kind {
    TUTTI_ONE_PUT, /* with has_signal: put_signal; with no bytes: signal */
    TUTTI_ONE_GET,
    TUTTI_ONE_ADD,     /* fetch_add: value */
    TUTTI_ONE_SWAP,    /* compare_swap: expected, value */
    TUTTI_ONE_FLUSH,   /* all windows of the pair; peer TUTTI_NO_SLOT: all peers that something was sent to */
    TUTTI_ONE_REFUSED, /* only as an answer */
    TUTTI_ONE_KEY,     /* only as a packet: of registered memory, see onesided_direct.c */
};
struct tutti_one_info {
    enum tutti_one_kind kind;
    uint32_t window;
    uint32_t peer; /* slot */
    uint64_t offset;
    const void *source; /* PUT; borrowed until the work is complete */
    void *dest;         /* GET */
    size_t bytes;
    bool has_signal, signal_add;
    uint32_t signal;
    uint64_t expected, value; /* value: of the signal, too */
    uint64_t *before;         /* ADD, SWAP */
    enum tutti_maker maker; /* the driver whose memory source or dest is; not HOST: tutti_engine_one_reaches said so */
    int32_t device;
    uint64_t timeout_ns; /* 0: the team's */
    const char *name;    /* static, for sentences: "put_signal" */
    const char *label;
    /* It is complete; error NULL: well. May be NULL. The owner's thread, before who waits for the work is woken. */
    void (*end)(void *arg, const struct tutti_error *error);
    void *arg;
};
/* Starts it: complete as window.h says. Any thread; calls of one thread for one peer leave in their order. helper as
 * for tutti_engine_start. On failure `end` is not called. */
enum tutti_status tutti_engine_one(struct tutti_team *team, const struct tutti_one_info *info, bool helper,
                                   struct tutti_work **work);
/* From now on somebody owns the engine until the team ends, as with a part that is exposed: for calls that come from
 * threads which neither wait nor may own. Any thread. MEMORY, SYSTEM. */
enum tutti_status tutti_engine_serve(struct tutti_team *team);
/* Puts and gets for each peer that come later take effect after those before. */
void tutti_engine_one_fence(struct tutti_team *team);
/* Whether the wire moves these bytes of a peer's part by itself, from or into memory of a device, as accesses that went
 * there before have found. Any thread. */
bool tutti_engine_one_reaches(struct tutti_team *team, const struct tutti_one_info *info);

/* ---- waits for a word of the own memory (onesided_wait.c): not a message, but watched like one ---- */
struct tutti_one_wait {
    const _Atomic uint64_t *word; /* stays until `end` */
    enum tutti_compare compare;
    uint64_t value;
    int32_t from;            /* slot that is to change it, -1: any */
    uint32_t signal;         /* its number, for sentences: "wait_signal for signal 3 (>= 1)" */
    uint64_t timeout_ns;     /* 0: the team's */
    struct tutti_bell *bell; /* rung by a thread that changes the word in place. NULL: nobody does */
    const char *label;
    /* The word is looked at no more; otherwise as above. */
    void (*end)(void *arg, const struct tutti_error *error);
    void *arg;
};
/* The work is complete when the word compares so. A caller that waits for it spins on the word as on a collective.
 * helper as for tutti_engine_start. On failure `end` is not called. */
enum tutti_status tutti_engine_wait_word(struct tutti_team *team, const struct tutti_one_wait *wait, bool helper,
                                         struct tutti_work **work);
static inline bool tutti_compare_holds(uint64_t now, enum tutti_compare compare, uint64_t value)
{
    enum { LESS = 1, EQUAL = 2, MORE = 4 };
    static const uint8_t holds[] = {
        [TUTTI_COMPARE_EQ] = EQUAL,        [TUTTI_COMPARE_NE] = LESS | MORE, [TUTTI_COMPARE_LT] = LESS,
        [TUTTI_COMPARE_LE] = LESS | EQUAL, [TUTTI_COMPARE_GT] = MORE,        [TUTTI_COMPARE_GE] = MORE | EQUAL,
    };
    return holds[compare] & (now < value ? LESS : now == value ? EQUAL : MORE);
}

/* A peer died whose memory this rank used in place: ends the team. Returns its failure, recorded. Any thread. */
enum tutti_status tutti_report_one_lost(struct tutti_team *team, uint32_t peer, const char *name);

/* ---- the owner's: waits in progress ---- */
struct tutti_word_wait {
    struct tutti_work work; /* first */
    struct tutti_word_wait *next;
    struct tutti_one_wait what;
};
void tutti_waits_begin(struct tutti_team *team, struct tutti_word_wait *wait);
/* Ends those whose word compares so; whether there were any. */
bool tutti_waits_run(struct tutti_team *team);
void tutti_waits_fail(struct tutti_team *team, const struct tutti_error *error);
/* Whether the word of one of them compares so. */
bool tutti_waits_any(const struct tutti_team *team);
/* The owner is about to sleep. Whether the bell, if there is one, is in the wakes; puts it there: whether a fence of
 * all is to follow. */
bool tutti_wait_listens(const struct tutti_word_wait *wait, const struct tutti_wake_set *wakes);
bool tutti_wait_listen(const struct tutti_word_wait *wait, struct tutti_wake_set *wakes);
void tutti_report_wait_timeout(struct tutti_team *team, const struct tutti_word_wait *wait);
void tutti_report_wait_lost(struct tutti_team *team, const struct tutti_word_wait *wait, uint32_t peer,
                            enum tutti_life life);

#endif
