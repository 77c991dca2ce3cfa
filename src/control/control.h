/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_CONTROL_H
#define TUTTI_CONTROL_CONTROL_H

/* Control tells one member of a world what it can not learn from packets: who lives, what each rank is doing (boards),
 * and the failures that end a communicator on all ranks. This header is the contract. control/host reads all of it from
 * the memory that the ranks of a host share, at once. A control over a network answers by messages: later, or never for
 * a host that is gone. So no caller may rely on an answer at once: what is not known now is asked for again.
 *
 *     struct tutti_board board;
 *     if (tutti_life_gone(control->ops->life(control, peer))) ...                  the peer sends no more
 *     switch (control->ops->peek(control, peer, slot, &board)) {
 *     case TUTTI_OK: ...                                                           its last known board
 *     case TUTTI_PENDING: ...                                                      asked for: look again later
 *     default: ...                                                                 nobody will ever know
 *     }
 *     control->ops->raise(control, &failure);                                      ends the communicator on all ranks
 *     while (control->ops->failure(control, &failure) == TUTTI_OK) ...             also those of others, also later
 *
 * Thread: failure is for the progress owner alone; all other calls but close may be made by any thread. Blocking: no
 * call blocks, and none allocates after open. Ownership: arguments are copied. Errors: none of the calls fails loudly;
 * what can not be done is not known. Rooms of control may use base, topo, store, transport and model; begin with
 * host/host.h. */

#include "base/base.h"

#include <stdatomic.h>

/* What a rank is doing on a communicator: for the sentences of mismatches and hangs. Times are of the reader's clock.
 */
struct tutti_board {
    uint64_t comm;
    uint64_t seq;       /* last call started */
    uint64_t completed; /* this call and all before it are complete */
    uint64_t counted;   /* last call over that went past the engine; control keeps it beside the board */
    uint64_t signature;
    uint64_t count;
    uint64_t called_ns;        /* when the last call started */
    uint64_t since_ns;         /* since when it is at this step and waits for this peer, or has been complete */
    uint64_t message_since_ns; /* when the oldest send or recv started that waits for long */
    uint32_t step, n_steps;    /* oldest incomplete step of the oldest call in flight */
    int32_t peer;              /* rank it waits for, -1 */
    int32_t root;
    int32_t message_peer, message_tag; /* the peer and tag of that send or recv; peer -1: any */
    uint32_t epoch, rank, size;        /* the communicator's */
    int32_t pid;                       /* its process's; in answers to TUTTI_BOARD_NTH alone, as is `process` */
    uint8_t kind, dtype, op, state;    /* enum tutti_board_state */
    uint8_t message;                   /* enum tutti_board_message */
    uint8_t process;                   /* the kernel's message for the process: R, S, D, T (stopped), t; 0: not known */
    uint8_t failed;                    /* the communicator has failed: nothing goes on */
    uint8_t unused;
};
enum tutti_board_state { TUTTI_BOARD_EMPTY, TUTTI_BOARD_IN_USE, TUTTI_BOARD_LEFT };
/* WAIT: for a signal, its number is message_tag. */
enum tutti_board_message { TUTTI_BOARD_NO_MESSAGE, TUTTI_BOARD_SEND, TUTTI_BOARD_RECV, TUTTI_BOARD_WAIT };
#define TUTTI_BOARD_SLOTS 64 /* a communicator uses slot id % 64; a slot may be taken over by another communicator */
#define TUTTI_BOARD_AGREE 8  /* further slots (64..71): agreement on the survivors, apart from what engines publish */
#define TUTTI_BOARD_ALL (TUTTI_BOARD_SLOTS + TUTTI_BOARD_AGREE)
/* For who knows no communicator (`tutti doctor`): slot NTH + k asks for the k-th board of a member that is in use, with
 * its process; an EMPTY one: there are no more. A host answers for its members that are stopped. */
#define TUTTI_BOARD_NTH 128
#define TUTTI_BOARD_ASKED (TUTTI_BOARD_NTH + TUTTI_BOARD_SLOTS) /* slots from here on can not be */

/* A failure that one member tells to all. */
struct tutti_failure {
    uint64_t comm; /* 0: every communicator of this world that contains the culprit */
    uint32_t epoch;
    uint32_t culprit;         /* member index, UINT32_MAX if none */
    struct tutti_error error; /* `collective` is not carried: NULL on arrival; the text says it */
};

enum tutti_life {
    TUTTI_LIFE_ALIVE,
    TUTTI_LIFE_LEFT, /* it closed its control in order */
    TUTTI_LIFE_DEAD,
    TUTTI_LIFE_UNKNOWN, /* nothing was heard of it for long; this alone ends nothing */
    TUTTI_LIFE_SILENT,  /* between trees alone: told dead without a proof; `life` says DEAD */
};
static inline bool tutti_life_gone(enum tutti_life life)
{
    return life == TUTTI_LIFE_LEFT || life == TUTTI_LIFE_DEAD || life == TUTTI_LIFE_SILENT;
}

/* The word of `counter`: a slot may be another communicator's by now, so it names the communicator, too. */
static inline uint64_t tutti_board_count(uint64_t comm, uint64_t n)
{
    return (tutti_mix64(comm) << 48) | (n & ((UINT64_C(1) << 48) - 1));
}

struct tutti_control;
struct tutti_control_ops {
    size_t size; /* sizeof(struct tutti_control_ops): calls are added at the end, optional ones last */
    /* Says goodbye and frees. No other call is in progress. */
    void (*close)(struct tutti_control *c);
    /* What was known last, at once. A peer that has not come yet counts as ALIVE: whoever waits for it has a deadline.
     * LEFT and DEAD are final and true: such a member writes no more. The death of a process of this host is told
     * within 0.5 s. Cheap enough to call for each awaited peer ten times a second. */
    enum tutti_life (*life)(struct tutti_control *c, uint32_t peer);
    /* Shows a board in a slot of this member, until the next one; slots from TUTTI_BOARD_ALL on are ignored. */
    void (*publish)(struct tutti_control *c, uint32_t slot, const struct tutti_board *board);
    /* OK: what the peer showed last, all zero if nothing. It may lag behind by some 100 ms, but never goes back; of a
     * peer that `life` told gone it is the last that it ever showed. PENDING: it was asked for, look again later.
     * UNSUPPORTED: it will never be known. One's own boards are always known. */
    enum tutti_status (*peek)(struct tutti_control *c, uint32_t peer, uint32_t slot, struct tutti_board *out);
    /* Tells every member, this one too; fire and forget. Of the failures that members raise for one communicator and
     * epoch, `failure` gives the same one to all. */
    void (*raise)(struct tutti_control *c, const struct tutti_failure *failure);
    /* OK and the next failure that this member has not read, AGAIN when there is none. What this member raised comes
     * back here, or what another raised before: at once (answers_at_once) or later. */
    enum tutti_status (*failure)(struct tutti_control *c, struct tutti_failure *out);
    /* A member that polls for failures gives a function here; control calls it from its own thread when there is a
     * failure to read. wake NULL: no more. The entry is NULL where a failure ends the sleeps of members by itself. */
    void (*listen)(struct tutti_control *c, void (*wake)(void *arg), void *arg);
    /* Optional: the name of the peer's host, for sentences. Where all members are on one host there is no entry. */
    void (*host)(const struct tutti_control *c, uint32_t peer, char *out, size_t capacity);
    /* Optional: where the peer listens, its address and port ("10.0.0.2 4711"); "": not known. */
    void (*address)(const struct tutti_control *c, uint32_t peer, char *out, size_t capacity);
    /* Optional: where this member keeps the number of its calls on the communicator of this slot for others to read, as
     * tutti_board_count makes it; the caller alone writes it. NULL: no such slot. */
    _Atomic uint64_t *(*counter)(struct tutti_control *c, uint32_t slot);
    /* Optional: answers what others than members ask by the memory of this host (asks.h), with what `world` knows;
     * called again and again by the control that this one is a part of. */
    void (*serve)(struct tutti_control *c, struct tutti_control *world);
    /* Optional: whether a member that is gone left, or its process is known to have ended; else its host was silent, or
     * took this one for dead, and it may live on behind a cut. Where there is no entry all deaths are known. */
    bool (*proved)(const struct tutti_control *c, uint32_t peer);
    /* Optional: as `peek`, but of a peer that lives only what it showed since then (PENDING until that is here), with
     * times as if it were looked at now: how long it waits is told as it was. Where there is no entry `peek` is so. */
    enum tutti_status (*peek_since)(struct tutti_control *c, uint32_t peer, uint32_t slot, uint64_t since_ns,
                                    struct tutti_board *out);
};

/* First member of every control. */
struct tutti_control {
    const struct tutti_control_ops *ops;
    const char *name;
    uint32_t n, me;       /* members of the world, this member */
    bool answers_at_once; /* what raise told, failure gives back at once */
    /* Changes with every failure that any member raises; `heard` is its value when all failures were read. A thread
     * that is about to sleep compares the two after it has announced its sleep, and does not sleep if they differ. Any
     * thread may compare. */
    const _Atomic uint32_t *alarm;
    _Atomic uint32_t heard;
};

/* Whether there may be failures to read: one load when nothing happened. */
static inline bool tutti_control_alarmed(const struct tutti_control *c)
{
    return atomic_load_explicit(c->alarm, memory_order_seq_cst) !=
           atomic_load_explicit(&c->heard, memory_order_relaxed);
}

#endif
