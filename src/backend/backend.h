/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_BACKEND_H
#define TUTTI_BACKEND_BACKEND_H

/* A back end carries out whole collectives its own way: the engine is general, a back end knows one kind of machine.
 * One instance serves one group of slots of a communicator. Opening is a collective in two steps: each member opens its
 * side and gets a card, the cards are gathered by who opens it, then each connects with all of them. A back end that
 * one member can not open, no member uses.
 *
 * All members start the calls of one instance in the same order. What is chosen inside may depend on the call's agreed
 * arguments, on what the cards said and on what members tell one another in the call, never on local facts alone. */

#include "engine/engine.h"
#include "model/machine.h"
#include "topo/topo.h"

#include <pthread.h>

struct tutti_backend {
    const struct tutti_backend_ops *ops;
};

/* What the back ends of one world share on this rank; the world's owner initialises the lock, zeroes the rest, and
 * calls tutti_backend_sweep when the last of them is closed. */
struct tutti_backend_host {
    pthread_mutex_t lock;
    struct flat_retired *retired; /* memory that peers may still read */
    struct watch *watch;          /* of back ends of devices (watch/watch.h), NULL: there were none */
    int pagemap;                  /* 1 + descriptor of this process's page map, 0: not open */
};
/* Gives back what no peer can read any more; all: forgets the rest, which goes with the world's memory. */
void tutti_backend_sweep(struct tutti_backend_host *host, bool all);

#define TUTTI_BACKEND_CARD_BYTES 128
struct tutti_backend_config {
    struct tutti_backend_host *host;
    struct tutti_transport *transport;
    struct tutti_control *control; /* of the same members */
    const uint32_t *members;       /* slot -> member of the transport; borrowed */
    uint32_t n, me;                /* slots, the own one */
    bool crowded;                  /* ranks of this host outnumber its CPUs; equal on all */
    uint32_t n_cpus;               /* that they may use together; equal on all */
    struct tutti_domains domains;  /* that the slots form; n 0: one; equal on all */
    bool reproducible;             /* reductions fold in rank order, from left to right */
    size_t staging_bytes;          /* at most so much memory of this rank for staging */
    const char *method; /* "": chosen; else the one method to use where it can (tests, tuning); equal on all */
    const struct tutti_machine *machine; /* measured constants, equal on all; copied */
};

/* A call: where things are (bind, without schedule and cache; the factor of premul_sum in `factor`) and what it is. */
struct tutti_backend_call {
    struct tutti_bind bind;
    struct tutti_call_info info;
    bool commutative;
    const char *method; /* the one to use, NULL: chosen; equal on all */
    uint64_t seq;       /* its number in the communicator: tutti_team_next */
    size_t stride;      /* v forms without tables, of gather and scatter: bytes from one block to the next; all equal */
    bool within;        /* it is a step of another call, of which posts tell instead: */
    uint64_t outer_call, outer_count;
    unsigned char factor[16];
};

/* What every runner of a back end begins with; TUTTI_RUNNER_BYTES in all, aligned to a cache line. Who starts a call
 * fills `call`, in place, since it is not small. */
struct tutti_backend_op {
    struct tutti_runner runner;
    struct tutti_backend_call call;
};
union tutti_backend_room {
    struct tutti_backend_op op;
    _Alignas(TUTTI_CACHE_LINE) unsigned char bytes[TUTTI_RUNNER_BYTES];
};

/* The smallest calls, without all that the others need: see tutti_backend_ops.tiny. */
struct tutti_tiny {
    enum tutti_kind kind;
    uint32_t log_element, divisor;
    uint32_t root; /* rooted kinds' */
    const unsigned char *send;
    unsigned char *recv;
    size_t send_bytes, bytes; /* of the whole send buffer, of a block */
    tutti_reduce_kernel reduce;
    tutti_divide_kernel divide;           /* NULL: it does not divide */
    uint64_t seq, signature, call, count; /* number in the communicator, as infos and posts say */
};

struct tutti_backend_candidate {
    const char *method; /* static: as in calls */
    double ns;          /* predicted */
    bool chosen;        /* where the call does not say */
    uint32_t n_sms;     /* of devices: the most SMs that one of its launches takes */
};

struct tutti_backend_ops {
    const char *name, *help;
    /* OK and the card, UNSUPPORTED when it can not serve these members (the record says why), MEMORY, SYSTEM. */
    enum tutti_status (*open)(const struct tutti_backend_config *config, void *card, struct tutti_backend **out);
    /* The cards of all n members, `stride` bytes from one to the next. Closes itself when it fails. */
    enum tutti_status (*connect)(struct tutti_backend *backend, const void *cards, size_t stride);
    /* No call is in flight here. Connected or not: peers may have connected, and still be reading what this member
     * left, which stays until they have closed, too. */
    void (*close)(struct tutti_backend *backend);
    /* Predicted nanoseconds of the call here, by the method that would be chosen; HUGE_VAL: it can not. Pure over what
     * is equal on all members. */
    double (*score)(const struct tutti_backend *backend, const struct tutti_backend_call *call);
    /* Makes the runner of op->call, which score accepted, and takes its place in the order. The tables of v forms are
     * copied. MEMORY: nothing was begun. */
    enum tutti_status (*begin)(struct tutti_backend *backend, struct tutti_backend_op *op);
    /* Advances a runner that was begun just now, on the caller's thread, past the engine, for as long as is worth while
     * without a clock (about 1,024 spins; where ranks outnumber CPUs some turns given up). Ends early when `failed`. As
     * tutti_runner_ops.advance; after BLOCKED the runner goes to tutti_engine_run as it is. */
    enum tutti_advance (*hurry)(struct tutti_backend_op *op, const struct tutti_team *team);
    /* Plain calls with blocks of less bytes than that may be tiny ones; 0: none of the kind. */
    size_t (*tiny_below)(const struct tutti_backend *backend, enum tutti_kind kind);
    /* Carries out a tiny call. MOVED: nothing was begun, take the long way. BLOCKED: it was begun, and goes on by
     * `resume` of an op with the same call. */
    enum tutti_advance (*tiny)(struct tutti_backend *backend, const struct tutti_tiny *tiny);
    void (*resume)(struct tutti_backend *backend, struct tutti_backend_op *op);
    /* See tutti_overlay. */
    void (*overlay)(struct tutti_backend *backend, uint32_t peer, struct tutti_board *board);
    /* The ways in which the call could be carried out, as far as this member can tell of its own buffers; at most
     * `capacity`, their number. For `tutti bench --explain`. */
    size_t (*candidates)(const struct tutti_backend *backend, const struct tutti_backend_call *call,
                         struct tutti_backend_candidate *out, size_t capacity);
    size_t (*staging_used)(const struct tutti_backend *backend); /* bytes of this rank */
};

/* Whether an option of this text names a method of the back end flat, of whatever kind; empty: none. ARGUMENT. */
enum tutti_status tutti_backend_method_check(const char *method);

/* The one list of back ends: X(name). A back end defines `const struct tutti_backend_ops tutti_backend_NAME`. */
#define TUTTI_BACKENDS(X) X(flat)
#define TUTTI_BACKEND_DECLARE(name) extern const struct tutti_backend_ops tutti_backend_##name;
TUTTI_BACKENDS(TUTTI_BACKEND_DECLARE)
#undef TUTTI_BACKEND_DECLARE

#endif
