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
/* Posts and lines rotate over so many operations: the farther ranks may run ahead, the fewer turns of the scheduler it
 * takes where they share CPUs; where each has its own, few slots stay in the first cache, and they are longer. */
#define FLAT_DEPTH_CROWDED 32
#define FLAT_DEPTH_ALONE 8
#define FLAT_LINE_BYTES 64
#define FLAT_LEVEL_BYTES (FLAT_DEPTH_CROWDED * 17 * FLAT_LINE_BYTES) /* all slots of a level */
#define FLAT_LINE_LEAST (FLAT_LEVEL_BYTES / FLAT_DEPTH_CROWDED - 8)  /* data of a slot, behind the operation's word */
#define FLAT_LINE_MOST (FLAT_LEVEL_BYTES / FLAT_DEPTH_ALONE - 8)
#define FLAT_LEVELS 4       /* of a butterfly over lines or flags */
#define FLAT_SLOTS 4        /* of staging, */
#define FLAT_PARTS 8        /* of which small rounds take a part */
#define FLAT_GROUP_ALONE 16 /* more ranks form groups */
#define FLAT_CHOICES 4      /* kept of each kind */
/* A rank's results are written past the caches from here on: measured on two and four ranks. */
#define FLAT_PAST_CACHE_BYTES ((size_t)4 << 20)
#define FLAT_BLOCK_BYTES ((size_t)4096) /* reductions work on blocks that stay in the first cache */
#define FLAT_FLAG_STRIDE 128            /* the prefetcher brings lines in pairs */

/* What a rank calls, written for every operation: read by the ranks that wait for it and by the report of a mismatch.
 */
struct flat_post {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t in; /* rounds of this operation that are staged */
    _Atomic uint64_t seq, call, count;              /* number in the communicator; what it is (tutti_call_pack) */
    _Atomic uint64_t send, recv;                    /* where the buffers are: offset in the heap, or address */
    _Atomic uint64_t facts; /* enum flat_fact, from FLAT_NUMBER_SHIFT on a number: post_number in flat_op.c */
    _Atomic uint64_t word;  /* half the signature, half the operation's number; written last */
};
enum flat_fact {
    FLAT_SEND_MAPPED = 1, /* peers map the send buffer, or there is none */
    FLAT_RECV_MAPPED = 2, /* peers map the receive buffer, or there is none */
    FLAT_ATTACHABLE = 4,  /* peers can reach what they touch of both: it is mapped, or the kernel copies it */
    FLAT_HUGE = 32,       /* ... and lies in huge pages */
    FLAT_APART = 8,       /* send and recv are two buffers */
    FLAT_SAME = 16,       /* send and recv are one buffer */
    FLAT_NUMBER_SHIFT = 8
};

struct flat_flag {
    _Alignas(FLAT_FLAG_STRIDE) _Atomic uint64_t n;
};
enum flat_flag_name {
    FLAT_FOLDED, /* parts whose slice this rank has reduced, counted over all operations of the instance */
    FLAT_READ,   /* parts of which this rank has read all that it needs, counted likewise */
    FLAT_MET,    /* barriers: one flag a level */
    FLAT_N_FLAGS = FLAT_MET + FLAT_LEVELS
};

/* Data of the smallest calls. The first bytes share the word's cache line, so that one transfer of a line brings both.
 * A slot has as many bytes as the instance says: inst->slot_bytes. */
struct flat_slot {
    _Atomic uint64_t word; /* written last */
    unsigned char data[];
};

/* Whether this rank may copy between its memory and that of all others; see flat_attach.c. */
enum flat_verdict { FLAT_UNTRIED, FLAT_FORBIDDEN, FLAT_ALLOWED };
struct flat_attach {
    uint64_t token;
    _Atomic uint64_t tried; /* written by the others */
    _Atomic uint32_t verdict;
};

/* A copy that a rank asks of a peer whose memory the kernel does not let it reach any more; see flat_attach.c. */
#define FLAT_ASK_BYTES ((size_t)8 << 10) /* a copy is asked for in pieces of at most so many */
#define FLAT_ASK_PEER 65536              /* its word: so many times its number, and the peer */
#define FLAT_ASK_REFUSED (UINT64_C(1) << 63)
enum flat_copied { FLAT_READ_INPUT, FLAT_READ_RESULT, FLAT_WRITE_RESULT };
struct flat_ask {
    _Atomic uint64_t operation, at, bytes;
    _Atomic uint32_t copy;  /* enum flat_copied. Bytes to write are in this rank's staging memory */
    _Atomic uint64_t taken; /* the word of the last ask whose answer this rank has read */
    _Atomic uint64_t word;  /* written last */
};

struct flat_area {
    _Alignas(FLAT_FLAG_STRIDE) _Atomic uint64_t done; /* operations that this rank has completed, */
    _Atomic uint64_t done_seq;                        /* and the last one's number in the communicator */
    _Atomic uint32_t gone;                            /* it has left the instance: it touches nothing any more */
    /* Ranks that wait for this one sleep on this word: it changes when something was published and somebody sleeps. */
    _Alignas(FLAT_FLAG_STRIDE) _Atomic uint32_t event;
    _Atomic uint32_t sleepers;
    struct flat_flag flags[FLAT_N_FLAGS];
    struct flat_post posts[FLAT_DEPTH_CROWDED];
    _Atomic uint64_t signatures[FLAT_DEPTH_CROWDED]; /* the posted calls', whole, for comparisons of boards */
    _Alignas(TUTTI_CACHE_LINE) unsigned char slots[FLAT_LEVELS][FLAT_LEVEL_BYTES]; /* each a struct flat_slot */
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

/* A choice of methods for one kind, size and facts. */
struct flat_choice {
    const struct flat_method *plain;  /* the cheapest one that needs nothing of any buffer; NULL: none fits */
    const struct flat_method *method; /* the cheapest one if all posts have these facts */
    double ns;                        /* predicted, of `plain` */
    size_t bytes;
    uint64_t facts;
    bool certain; /* `method` is the cheapest whatever subset of these facts all posts have */
};

/* The last choices for plain calls. */
struct flat_chosen {
    struct flat_choice last[TUTTI_N_KINDS][FLAT_CHOICES];
    uint32_t n[TUTTI_N_KINDS];
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
    bool survives;                /* this process goes on after failures: no rank writes to a peer's buffer */
    bool asks;                    /* an ask is open, */
    size_t asked;                 /* bytes of its copy that are done */
    uint32_t served;              /* 1 + the rank whose ask was answered last */
    char forced[16];              /* name of a method, "": chosen */
    struct tutti_machine machine; /* pull_gbs: of peers as far away as they are on average */
    struct flat_tuned *tuned;     /* NULL: nothing */
    int32_t *pids;                /* by slot, for cross-memory copies */
    int pagemap;                  /* this process's; below 0: none */
    struct flat_pages pages[FLAT_PAGES];
    size_t n_pages; /* entries that were filled: the oldest one goes first */

    uint32_t depth;     /* operations over which posts and lines rotate, a power of two */
    size_t slot_bytes;  /* the word included */
    uint32_t n_factors; /* butterflies: the factors of n */
    uint32_t factors[FLAT_LEVELS];

    uint32_t spins, turns;            /* in a wait on the caller's thread, as far as they pay */
    size_t line_below[TUTTI_N_KINDS]; /* plain calls with smaller blocks go by lines */
    struct flat_chosen by_own;        /* by the own buffers: of the thread that begins operations */
    struct flat_chosen by_posts;      /* by all posts: of the one that goes on with them */

    uint64_t number;      /* operations begun */
    uint64_t history;     /* hash of those in which not every rank waits for all: see flat_word */
    uint64_t synced;      /* all ranks have completed the operations up to this one */
    uint64_t parts;       /* staging's, that all operations before the running one have taken */
    uint64_t read_by_all; /* parts that all ranks are known to have read */
    uint64_t barriers;
};

/* The posts that must be read before the method is known. FLAT_ALL_IF_OPEN: all, but only if this rank's own buffers
 * allow more than one method. */
enum flat_posts { FLAT_NONE, FLAT_ALL, FLAT_ROOT, FLAT_ALL_IF_OPEN };

struct flat_op;
/* How bytes and waits go, for one or several kinds. */
struct flat_walk {
    /* Over what is equal on all ranks: whether it can carry out the call on this instance, and the predicted time. */
    bool (*fits)(const struct flat_instance *inst, const struct tutti_backend_call *call);
    double (*cost_ns)(const struct flat_instance *inst, const struct tutti_backend_call *call);
    /* Called after the posts, again and again until it returns DONE. FAILED with a record, or as runners. */
    enum tutti_advance (*advance)(struct flat_op *op);
    /* Sets sizes and rounds; needs no other rank. May be NULL. */
    void (*start)(struct flat_op *op);
    /* Stages the first round before the post, which then says so. It is called if the method is the likely one, and
     * with FLAT_ROOT on the root alone. May be NULL. */
    void (*first)(struct flat_op *op);
};
/* A method: a walk for one kind, on buffers of which the posts say something. */
struct flat_method {
    const char *name; /* "line", "stage", "direct", "mapped", "attach", ... */
    enum tutti_kind kind;
    /* Facts that all posts read must have; 0: none, else it replaces the method that needs nothing if it costs less. */
    uint32_t needs;
    enum flat_posts reads; /* for the methods that need nothing; FLAT_NONE: no other one ever replaces it */
    bool writes;           /* to buffers of peers */
    const struct flat_walk *walk;
};

struct flat_op {
    struct tutti_runner runner; /* these two as in struct tutti_backend_op */
    struct tutti_backend_call call;
    struct flat_instance *inst;
    size_t *tables; /* v forms: own copy of the call's tables */
    uint64_t number, word;
    const struct flat_method *method;
    const struct flat_method *likely; /* by the own facts, */
    uint64_t chosen_by;               /* which were these */
    bool symmetric;                   /* a rank that completes it knows that all have begun it */
    bool begun, over, mismatch;       /* begun: the posts are read. over: the walk is done */
    bool forced;                      /* the method was asked for by name: no other one replaces it */
    bool past;                        /* results are written past the caches */
    enum flat_posts reads;            /* posts that this rank reads */
    uint32_t n_put;                   /* levels whose lines are written already */
    /* The wait: a word of the peer `awaited` that is to be (equal: exactly) at least `until`. */
    uint32_t awaited, spins; /* spins: loads of it before the operation is BLOCKED */
    const _Atomic uint64_t *until_word;
    uint64_t until;
    bool until_equal, asleep;
    uint32_t slept_on; /* the event, before it was slept on */
    /* Buffers and sizes in bytes, as methods see them. */
    const unsigned char *send;
    unsigned char *recv;
    uint64_t send_at, recv_at; /* for the post: offset in the heap, or address */
    size_t bytes;              /* a block's; v forms: the largest one's */
    size_t element;            /* the type's */
    size_t piece;              /* methods': bytes of a round */
    uint64_t n_rounds;         /* staging's, */
    uint32_t width;            /* each of so many parts, */
    uint64_t base;             /* from this part of the instance on */
    uint64_t staged;           /* rounds that the post says are staged */
    uint64_t facts;            /* that all posts read have in common */
    uint64_t most;             /* the greatest number in the posts read: see post_number in flat_op.c */
    /* Where it goes on: states of the prologue and of the method, and what they count. */
    uint32_t prologue, at;
    uint32_t peer, level, stride, meet_level, meet_stride, meet_digit;
    uint64_t round;
    size_t offset, moved; /* moved: bytes since others had their turn */
    bool meets;           /* it has come to the barrier inside it */
};
_Static_assert(offsetof(struct flat_op, call) == offsetof(struct tutti_backend_op, call), "an operation is an op");
_Static_assert(sizeof(struct flat_op) <= TUTTI_RUNNER_BYTES, "an operation fits into a runner's storage");

#endif
