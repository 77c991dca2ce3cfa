/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_FLAT_FLAT_INSTANCE_H
#define TUTTI_BACKEND_FLAT_FLAT_INSTANCE_H

/* What flat keeps: the area that each rank shares, the instance that a rank makes of all areas, a method, an operation.
 * What may be done with them, and when, is in flat.h. */

#include "backend/backend.h"
#include "device/cpu/copy.h"

#include <stdatomic.h>
#include <string.h>

#define FLAT_MAX_RANKS 256
#define FLAT_DEPTH 32
#define FLAT_LINES 17 /* of a slot: the operation's word, then data */
#define FLAT_LINE_BYTES 64
#define FLAT_LINE_MAX (FLAT_LINES * FLAT_LINE_BYTES - 8)
#define FLAT_LEVELS 4       /* of a butterfly over lines or flags */
#define FLAT_SLOTS 4        /* of staging, */
#define FLAT_PARTS 8        /* of which small rounds take a part */
#define FLAT_GROUP_ALONE 16 /* more ranks form groups */
#define FLAT_SIZE_CLASSES 160
#define FLAT_OTHERS 7
/* What a rank writes of results is written past the caches from here on: measured on two and four ranks. */
#define FLAT_PAST_CACHE_BYTES ((size_t)4 << 20)
#define FLAT_BLOCK_BYTES ((size_t)4096) /* reductions work on blocks that stay in the first cache */
#define FLAT_FLAG_STRIDE 128            /* the prefetcher brings lines in pairs */

/* What a rank calls, written for every operation: read by those who wait for it and by who tells a mismatch. */
struct flat_post {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t in; /* rounds of this operation that are staged */
    _Atomic uint64_t seq, call, count;              /* number in the communicator; what it is (tutti_call_pack) */
    _Atomic uint64_t send, recv;                    /* where the buffers are: offset in the heap, or address */
    _Atomic uint64_t facts; /* enum flat_fact, from FLAT_NUMBER_SHIFT on a number: told_of in flat_op.c */
    _Atomic uint64_t word;  /* half the signature, half the operation's number; written last */
};
enum flat_fact {
    FLAT_SEND_MAPPED = 1, /* peers can reach the buffer that this rank reads from; also: it has none */
    FLAT_RECV_MAPPED = 2, /* the same of the buffer that it writes to */
    FLAT_ATTACHABLE = 4,  /* what others touch of them is mapped, or in reach of cross-memory copies, */
    FLAT_HUGE = 32,       /* and that in huge pages */
    FLAT_APART = 8,       /* send and recv are two buffers, */
    FLAT_SAME = 16,       /* or one */
    FLAT_NUMBER_SHIFT = 8
};

struct flat_flag {
    _Alignas(FLAT_FLAG_STRIDE) _Atomic uint64_t n;
};
enum flat_flag_name {
    FLAT_FOLDED, /* parts whose slice this rank has reduced; they count through the instance, like all below */
    FLAT_READ,   /* parts of which this rank has read all it wants */
    FLAT_MET,    /* barriers: one flag a level */
    FLAT_N_FLAGS = FLAT_MET + FLAT_LEVELS
};

/* Data of the smallest calls. The first bytes share the word's line, so that they cost one line's way. */
struct flat_slot {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t word; /* written last */
    unsigned char data[FLAT_LINE_MAX];
};

/* Whether this rank may copy between its memory and that of all others; see flat_attach.c. */
enum flat_verdict { FLAT_UNTRIED, FLAT_FORBIDDEN, FLAT_ALLOWED };
struct flat_attach {
    uint64_t token;
    _Atomic uint64_t tried; /* written by the others */
    _Atomic uint32_t verdict;
};

/* What a rank asks of a peer whose memory the kernel does not let it reach any more; see flat_ask.c. */
#define FLAT_ASK_BYTES ((size_t)8 << 10) /* of one */
#define FLAT_ASK_PEER 65536              /* its word: so many times its number, and the peer */
#define FLAT_ASK_REFUSED (UINT64_C(1) << 63)
struct flat_ask {
    _Atomic uint64_t operation, at, bytes;
    _Atomic uint32_t writes; /* bytes are in this rank's staging memory, for the peer; else it wants some */
    _Atomic uint64_t taken;  /* the word of the last ask whose answer it has taken */
    _Atomic uint64_t word;   /* written last */
};

struct flat_area {
    _Alignas(FLAT_FLAG_STRIDE) _Atomic uint64_t done; /* operations that this rank has completed, */
    _Atomic uint64_t done_seq;                        /* and the last one's number in the communicator */
    _Atomic uint32_t gone;                            /* it has left the instance: it touches nothing any more */
    /* Who waits for this rank sleeps here: the word moves when something was published and somebody sleeps. */
    _Alignas(FLAT_FLAG_STRIDE) _Atomic uint32_t event;
    _Atomic uint32_t sleepers;
    struct flat_flag flags[FLAT_N_FLAGS];
    struct flat_post posts[FLAT_DEPTH];
    _Atomic uint64_t signatures[FLAT_DEPTH]; /* of the calls posted: whole, for comparisons of boards */
    struct flat_slot slots[FLAT_LEVELS][FLAT_DEPTH];
    struct flat_attach attach;
    struct flat_ask ask;
    _Atomic uint64_t answered[FLAT_MAX_RANKS]; /* the word of each rank's last ask that this one has answered */
    /* At inst->staging: FLAT_SLOTS chunks of input, as many of results, each inst->chunk bytes, and what an ask gives
     * and what an answer gives, FLAT_ASK_BYTES each. */
};

/* What one rank gives to an instance. Threads of one process share it until the last of them has closed the instance;
 * between processes it is a block of the heap, which lasts as long as anybody maps it. */
struct flat_memory {
    _Alignas(4096) _Atomic uint32_t refs;
    size_t bytes;          /* in all */
    struct flat_area area; /* staging follows at the next whole page */
};

/* What was found of a buffer. */
#define FLAT_PAGES 8
struct flat_pages {
    uintptr_t at;
    size_t bytes;
    uint32_t uses; /* that are left */
    bool huge;
};

/* The last choice by facts of a kind. */
struct flat_choice {
    const struct flat_method *plain, *method;
    size_t bytes;
    uint64_t facts;
    bool settled; /* `plain`, whatever the others' facts are */
};

struct flat_instance {
    struct tutti_backend base; /* first */
    struct tutti_backend_host *host;
    struct tutti_transport *transport;
    struct tutti_control *control;
    uint32_t *members;
    uint32_t n, me;
    struct flat_memory **memories; /* by slot: */
    struct flat_area **areas;      /* areas[me] is own, NULL where this rank is alone, */
    unsigned char **staging;       /* and what is behind it */
    size_t own_bytes;
    size_t chunk; /* bytes of a round of staging, a multiple of FLAT_BLOCK_BYTES; 0: this instance has no staging */
    uint32_t n_cpus;
    bool crowded, reproducible;
    bool fences;                  /* publishers fence, since sleepers can not (membarrier) */
    bool attach;                  /* cross-memory copies are allowed, as far as is known, */
    bool attach_all;              /* and between all ranks */
    bool addresses;               /* one address space */
    bool asks;                    /* an ask is open, */
    size_t asked;                 /* of a copy of which so many bytes are done */
    uint32_t served;              /* 1 + the rank whose ask was answered last */
    char forced[16];              /* name of a method, "": chosen */
    struct tutti_machine machine; /* pull_gbs: of peers as far away as they are on average */
    struct flat_found *found;     /* NULL: nothing */
    int32_t *pids;                /* by slot, for cross-memory copies */
    int pagemap;                  /* of this process; below 0: none */
    struct flat_pages pages[FLAT_PAGES];
    size_t n_pages; /* entries that were filled: the oldest one goes first */

    uint32_t n_factors; /* butterflies: the factors of n */
    uint32_t factors[FLAT_LEVELS];

    uint32_t spins, turns; /* of a wait past the engine, as far as they pay */
    /* What flat_choose says of plain calls, by kind and flat_size_class. */
    const struct flat_method *plain[TUTTI_N_KINDS][FLAT_SIZE_CLASSES];
    const struct flat_method *others[TUTTI_N_KINDS][FLAT_OTHERS + 1]; /* those that need something, then NULL */

    struct flat_choice chosen[TUTTI_N_KINDS][2]; /* by own posts, by those that were heard */

    uint64_t number;      /* operations begun */
    uint64_t history;     /* of those in which somebody waits for nobody, and may have been mistaken: see flat_word */
    uint64_t synced;      /* all ranks have completed the operations up to this one */
    uint64_t parts;       /* of staging, that all operations before the running one have taken */
    uint64_t read_by_all; /* parts that all ranks are known to have read */
    uint64_t barriers;
};

/* Whose posts tell how the operation goes on: those of all ranks, the root's, or those of all to a rank whose own
 * buffers leave more than one way; who has but one does not wait, since all others find that one, too. */
enum flat_who { FLAT_NOBODY, FLAT_ALL, FLAT_ROOT, FLAT_UNSETTLED };

struct flat_op;
/* A way to carry out one kind. */
struct flat_method {
    const char *name; /* "line", "stage", "direct", "mapped", "attach", "alone", ... */
    enum tutti_kind kind;
    /* What the posts of `who` must say, enum flat_fact, for this method: 0 for one that needs nothing. A method that
     * needs something is taken instead of the chosen one when all of them say so and it costs less. */
    uint32_t needs;
    /* Who is asked, by the methods that need nothing: FLAT_NOBODY if it never goes on in another way. */
    enum flat_who who;
    /* Over what is equal on all ranks: whether it can carry out the call on this instance, and what it would cost. */
    bool (*fits)(const struct flat_instance *inst, const struct tutti_backend_call *call);
    double (*cost_ns)(const struct flat_instance *inst, const struct tutti_backend_call *call);
    /* After the posts; op->at is 0 at first. FAILED with a record, or as runners. */
    enum tutti_advance (*advance)(struct flat_op *op);
    /* Sizes and rounds; before all else, needs no other rank. May be NULL. */
    void (*start)(struct flat_op *op);
    /* Stages the first round, so that the post can say so; not called where another way is likely, and with FLAT_ROOT
     * on the root alone. May be NULL. */
    void (*first)(struct flat_op *op);
};

struct flat_op {
    struct tutti_runner runner; /* these two as in struct tutti_backend_op */
    struct tutti_backend_call call;
    struct flat_instance *inst;
    size_t *tables; /* v forms: own copy of the call's tables */
    uint64_t number, word;
    const struct flat_method *method;
    bool symmetric; /* who completes knows that all ranks have begun */
    bool begun, mismatch;
    bool forced;       /* the method was asked for by name: nothing else is taken instead */
    bool past;         /* results are written past the caches */
    enum flat_who who; /* whose posts it waits for */
    uint32_t n_put;    /* levels whose lines are written already */
    /* What it waits for: op->awaited's word, which is to be (equal: exactly) at least `until`. */
    uint32_t awaited, spins; /* spins: looks at it before it is BLOCKED */
    const _Atomic uint64_t *until_word;
    uint64_t until;
    bool until_equal, asleep;
    uint32_t slept_on; /* the event, before it was slept on */
    /* Buffers and sizes in bytes, as methods see them. */
    const unsigned char *send;
    unsigned char *recv;
    size_t bytes;      /* of a block; v forms: of the largest one */
    size_t element;    /* of the type */
    size_t piece;      /* methods': bytes of a round */
    uint64_t n_rounds; /* of staging, */
    uint32_t width;    /* each of so many parts, */
    uint64_t base;     /* from this part of the instance on */
    uint64_t staged;   /* rounds that the post told as staged */
    uint64_t facts;    /* that all who were asked share */
    uint64_t told;     /* the greatest number that a post of who was asked told: see told_of in flat_op.c */
    /* Resuming: lines of the prologue, the method and the barrier inside it, and what they count. */
    uint32_t begin_at, at, meet_at;
    uint32_t peer, level, stride, meet_level, meet_stride, meet_digit;
    uint64_t round;
    size_t offset, moved; /* moved: bytes since others had their turn */
};
_Static_assert(offsetof(struct flat_op, call) == offsetof(struct tutti_backend_op, call), "an operation is an op");
_Static_assert(sizeof(struct flat_op) <= TUTTI_RUNNER_BYTES, "an operation fits into a runner's room");

#endif
