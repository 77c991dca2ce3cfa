/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_BACKEND_H
#define TUTTI_BACKEND_BACKEND_H

/* The contract of back ends. The engine is general; a back end carries out whole collectives its own way, on one kind
 * of machine: the ranks of one host, the GPUs of one maker. This room may use the engine and all below it. Begin with
 * struct tutti_backend_ops, then read open.h: how all members open a back end together.
 *
 * To add one: a folder here, with a table `const struct tutti_backend_ops tutti_backend_NAME`; the word X(NAME) in
 * TUTTI_BACKENDS below; a row of the folder in src/rooms.txt. One for devices is then opened wherever it can be, and
 * takes the calls for which its score is the least. Of those for host memory a communicator opens the first of the
 * list, or those that the option `backends` names: at most one of tutti's own and one that `is_library`. The smallest
 * one, for tests, is tests/serial_backend.c.
 *
 * One instance serves one group of slots of a communicator. A back end has one of two faces, or both:
 *  - for host memory: it makes runners, which the engine advances (`begin`), and may carry out small calls at once;
 *  - for memory of a device: it enqueues calls on a stream of the caller and returns (`enqueue`).
 *
 * Order: all members start the calls of one instance in the same order. What is chosen inside may depend on the call's
 * agreed arguments, on what the cards said and on what members tell one another in the call, never on local facts.
 * Threads: one thread at a time calls an instance (it holds the communicator's turn); `failed`, `stop`, `overlay`,
 *   `last_event`, `busy` and one-sided calls may be called by any thread, at any time.
 * Blocking: only `connect` and `close` may wait for other members, each with a deadline.
 * Ownership: the opener owns an instance until `close`; buffers of a call are borrowed until the call is over.
 * Errors: a status below zero leaves the thread's error record. Failures on a device, and peers that die, are seen
 *   when the call has returned long ago: the instance's watch (a thread) fails the team with the sentence, and stops
 *   what waits on the device.
 *
 * Example, for one call on host memory:
 *     if (ops->score(backend, &op->call) < HUGE_VAL) ops->begin(backend, op);
 *     if (!ops->run_inline || ops->run_inline(op, team) != TUTTI_RUN_DONE) tutti_engine_run(team, &op->runner, ...); */

#include "base/config.h"
#include "device/device.h"
#include "engine/engine.h"
#include "model/machine.h"
#include "topo/topo.h"

#include <pthread.h>
#include <tutti/device.h>

struct tutti_backend {
    const struct tutti_backend_ops *ops;
    bool plain_links; /* words of some peer can be set, and not changed otherwise: `access` says UNSUPPORTED */
};

/* What the back ends of one world share on this rank. The world's owner initialises the lock, zeroes the rest,
 * and calls tutti_backend_sweep when the last of them is closed. */
struct tutti_backend_host {
    pthread_mutex_t lock;
    struct flat_retired *retired; /* memory that peers may still read */
    struct watch *watch;          /* for back ends of devices (watch.h), NULL: there were none */
    int pagemap;                  /* 1 + descriptor of this process's page map, 0: not open */
};
/* Gives back what no peer can read any more; all: forgets the rest, which goes with the world's memory. */
void tutti_backend_sweep(struct tutti_backend_host *host, bool all);

struct tutti_backend_config {
    struct tutti_backend_host *host;
    struct tutti_transport *transport;
    struct tutti_control *control;      /* for the same members */
    const uint32_t *members;            /* slot -> member of the transport; borrowed */
    uint32_t n, me;                     /* slots, the own one */
    const struct tutti_config *options; /* the context's; a back end reads those that are its own */

    /* ---- for host memory ---- */
    bool crowded;                        /* ranks of this host outnumber its CPUs; equal on all */
    uint32_t n_cpus;                     /* that they may use together; equal on all */
    struct tutti_domains domains;        /* that the slots form; n 0: one; equal on all */
    bool reproducible;                   /* reductions fold in rank order, from left to right */
    size_t staging_bytes;                /* at most so much memory of this rank for staging */
    const struct tutti_machine *machine; /* measured constants, equal on all; copied */

    /* ---- for memory of devices ---- */
    struct tutti_device *device;   /* the caller's, open for longer than the back end */
    struct tutti_team *team;       /* for host memory, too */
    uint64_t id;                   /* the communicator's */
    uint64_t nonce;                /* the world's; equal on all members, unlike any other's */
    size_t scratch_bytes;          /* device memory that this instance may take */
    uint32_t blocks;               /* per launch, at most; 0: as many as are best; equal on all */
    enum tutti_device_share share; /* how others get at it */
    uint64_t timeout_ns;           /* so long others wait for a step of opening */
};

/* An all_to_all_v whose counts are in the device's memory (comm/call/device.h). */
struct tutti_backend_counted {
    const uint64_t *rows;        /* all ranks' (device/counted.h), */
    const uint64_t *send_displs; /* and as the call has them: may be NULL */
    uint64_t *recv_counts;       /* out */
    int32_t *status;             /* out: 0, or TUTTI_ERR_TRUNCATED; may be NULL */
    size_t most_bytes;           /* that may come or go here */
};

/* Behind a call of a communicator that survives (device/gate.h): words of pinned memory, and a number beyond those of
 * the gates before. */
struct tutti_gate_words;
struct tutti_backend_gate {
    struct tutti_gate_words *words;
    uint64_t number;
};

/* A call: where things are (bind, without schedule and cache; the factor of premul_sum in `factor`) and what it is. */
struct tutti_backend_call {
    struct tutti_bind bind;
    struct tutti_call_info info;
    bool commutative;
    const char *method; /* the one to use, NULL: chosen; equal on all */
    uint64_t seq;       /* its number in the communicator: tutti_team_next */
    size_t stride; /* bytes from one block to the next, of equal blocks that are not packed; 0: they are. all_gather,
                    * reduce_scatter; gather and scatter as v forms without tables */
    bool overlaps; /* computation beside it has a use for SMs; may differ between ranks */
    bool within;   /* it is a step of another call; posts tell of that call: */
    uint64_t outer_call, outer_count;
    const struct tutti_backend_counted *counted; /* NULL: the host knows the counts */
    const struct tutti_backend_gate *gate;       /* for devices: one is behind the call; NULL: none */
    unsigned char factor[16];
};

/* What every runner of a back end begins with; TUTTI_RUNNER_BYTES in all, aligned to a cache line. Who starts a call
 * fills `call`, in place, since it is not small. */
struct tutti_backend_op {
    struct tutti_runner runner;
    struct tutti_backend_call call;
};
union tutti_backend_storage {
    struct tutti_backend_op op;
    _Alignas(TUTTI_CACHE_LINE) unsigned char bytes[TUTTI_RUNNER_BYTES];
};

/* The smallest calls, without all that the others need: see tutti_backend_ops.tiny. */
struct tutti_tiny {
    enum tutti_kind kind;
    enum tutti_dtype dtype;
    int32_t op;    /* as called */
    uint32_t root; /* rooted kinds' */
    uint32_t log_element, divisor;
    const unsigned char *send;
    unsigned char *recv;
    size_t send_bytes, bytes; /* the whole send buffer's; a block's */
    tutti_reduce_kernel reduce;
    tutti_divide_kernel divide;           /* NULL: it does not divide */
    uint64_t seq, signature, call, count; /* number in the communicator, as infos and posts say */
};

struct tutti_backend_candidate {
    const char *method; /* static: as in calls */
    double ns;          /* predicted */
    bool chosen;        /* where the call does not say */
    uint32_t n_sms;     /* for devices: the most SMs that one of its launches takes */
};

/* A window over device memory: a collective registration (tutti_window_create). The same offset into it on all ranks is
 * what kernels and copy engines need: they write where the own host says, without asking a peer. */
struct tutti_window_card {
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
    uint64_t offset, bytes; /* where the window is in the exported allocation; bytes 0: none */
    uint64_t address;       /* where the exporting process has it */
};

/* What a window is made of: the cards of all members, of their parts and of their words (signals, and what barriers of
 * kernels need), `stride` bytes from one member's to the next; and this member's. */
struct tutti_window_cards {
    const struct tutti_window_card *parts, *words;
    size_t stride;
    void *own, *own_words;
    size_t bytes, word_bytes;
};
/* Where they are as mapped here, of each slot. */
struct tutti_window_places {
    void **parts, **words;
};

/* A one-sided call, at addresses as mapped here: stores bytes (0: none) from source to dest, then changes the word. */
enum tutti_word_change { TUTTI_WORD_SET, TUTTI_WORD_ADD, TUTTI_WORD_SWAP };
struct tutti_backend_access {
    void *dest;
    const void *source;
    size_t bytes;
    uint64_t *word; /* NULL: none */
    uint32_t peer;  /* the slot whose word it is */
    enum tutti_word_change change;
    uint64_t value, expected; /* expected: of a swap */
    uint64_t *before;         /* what was there: memory of the device or of the host; NULL: not wanted */
};
/* Until a word of this rank, its signal `index`, compares so (enum tutti_compare). */
struct tutti_backend_await {
    const uint64_t *word;
    uint32_t index, compare;
    uint64_t value;
    int32_t from; /* the slot that is to change it, -1: any */
    uint64_t timeout_ns;
};

/* One message of a batch of point-to-point calls. */
struct tutti_backend_message {
    uint32_t peer;
    bool send;
    void *buffer;
    size_t bytes;
};

#define TUTTI_BACKEND_CARD_MOST 384
struct tutti_backend_ops {
    const char *name, *help;
    /* For back ends of host memory: another library. It has no lanes, and each call is asked for by its score. */
    bool is_library;
    /* Whether its own options, and their values, are right; before anything is opened. ARGUMENT, SYSTEM. NULL: it has
     * none. */
    enum tutti_status (*check)(const struct tutti_config *options);

    /* ---- opening, by all members together (open.h), and the end ---- */
    size_t card_bytes; /* at most TUTTI_BACKEND_CARD_MOST */
    /* OK and the card (zeroed before); UNSUPPORTED with the reason when it can not serve these members; ABORTED: not
     * any more in this process, after a failure, so that even who named it goes another way; MEMORY, SYSTEM. */
    enum tutti_status (*open)(const struct tutti_backend_config *config, void *card, struct tutti_backend **out);
    /* The cards of all n members, `stride` bytes from one to the next. UNSUPPORTED when these members can not reach one
     * another. Closes itself when it fails. */
    enum tutti_status (*connect)(struct tutti_backend *backend, const void *cards, size_t stride);
    /* The opening is over: either all members have connected, or nobody goes on and close follows. What was kept for
     * the opening can go. NULL: nothing was. */
    void (*connected)(struct tutti_backend *backend);
    /* No call is in flight on the host. Waits for what is enqueued on a device, and for what members do together, until
     * `deadline_ns` at most, then stops it. It is called whether this member connected or not. Peers may have
     * connected, and may still read what this member leaves; so that stays. */
    void (*close)(struct tutti_backend *backend, uint64_t deadline_ns);

    /* ---- choosing ---- */
    /* Predicted nanoseconds of the call here, by the method that would be chosen; HUGE_VAL: it can not. Pure over what
     * is equal on all members. */
    double (*score)(const struct tutti_backend *backend, const struct tutti_backend_call *call);
    /* The ways in which the call could be carried out, as far as this member can tell of its own buffers; at most
     * `capacity`, their number. For `tutti bench --explain`. NULL: there is but one. */
    size_t (*candidates)(const struct tutti_backend *backend, const struct tutti_backend_call *call,
                         struct tutti_backend_candidate *out, size_t capacity);
    size_t (*memory_used)(const struct tutti_backend *backend); /* bytes of this rank, of host or device */
    /* What it has opened, in few words, for the log. NULL: there is nothing to tell. */
    void (*describe)(const struct tutti_backend *backend, char *out, size_t capacity);

    /* ---- calls on host memory; begin NULL: it has none of these ---- */
    /* Makes the runner of op->call, which score accepted, and takes its place in the order. The tables of v forms are
     * copied. MEMORY: nothing was begun. */
    enum tutti_status (*begin)(struct tutti_backend *backend, struct tutti_backend_op *op);
    /* Advances a runner that was begun just now, on the caller's thread, past the engine, for as long as is worth while
     * without a clock (about 1,024 spins; where ranks outnumber CPUs some turns given up). Ends early when `failed`. As
     * tutti_runner_ops.advance; after BLOCKED the runner goes to tutti_engine_run as it is. NULL: not worth it. */
    enum tutti_advance (*run_inline)(struct tutti_backend_op *op, const struct tutti_team *team);
    /* Plain calls of the kind may be tiny ones if their blocks have fewer bytes than this; 0: none may. NULL: there are
     * no tiny calls. */
    size_t (*tiny_below)(const struct tutti_backend *backend, enum tutti_kind kind);
    /* Carries out a tiny call. MOVED: nothing was begun, take the long way. BLOCKED: it was begun, and goes on by
     * `resume` of an op with the same call. */
    enum tutti_advance (*tiny)(struct tutti_backend *backend, const struct tutti_tiny *tiny);
    void (*resume)(struct tutti_backend *backend, struct tutti_backend_op *op);
    /* See tutti_overlay. NULL: boards tell all. */
    void (*overlay)(struct tutti_backend *backend, uint32_t peer, struct tutti_board *board);

    /* ---- calls on memory of a device; enqueue NULL: it has none of these ---- */
    const struct tutti_device_ops *device; /* for this kind; NULL: for any, by the functions of config.device->ops */
    /* Enqueues a call that score accepted. bind.input and bind.output are memory of the device; tables of v forms may
     * go when it returns. In a capture the call becomes part of it. On failure nothing was enqueued (ARGUMENT, SYSTEM,
     * MEMORY), or the team has failed. */
    enum tutti_status (*enqueue)(struct tutti_backend *backend, const struct tutti_backend_call *call, void *stream);
    bool counts_on_device; /* it takes calls that are `counted`, */
    bool gates;            /* and such with a gate, if score says so */
    /* Enqueues messages as one: none waits for another of the batch. In order between two ranks. */
    enum tutti_status (*messages)(struct tutti_backend *backend, const struct tutti_backend_message *messages, size_t n,
                                  void *stream, uint64_t timeout_ns);
    /* Several collectives as one (a group): NULL, or as n times enqueue. */
    enum tutti_status (*batch)(struct tutti_backend *backend, const struct tutti_backend_call *calls, size_t n,
                               void *stream);
    /* Collective windows; NULL: there is no use for them. Zeroes the own words. */
    enum tutti_status (*window_add)(struct tutti_backend *backend, const struct tutti_window_cards *cards,
                                    const struct tutti_window_places *out);
    void (*window_remove)(struct tutti_backend *backend, void *own);
    /* Device memory for the words of a window, which others may map: it is given back for the next window, and freed
     * when no peer has it mapped any more. */
    enum tutti_status (*words_take)(struct tutti_backend *backend, size_t bytes, void **out);
    void (*words_give)(struct tutti_backend *backend, void *words);
    /* One-sided calls on what window_add mapped; access NULL: it has none. Enqueued, also in captures, and ordered by
     * their stream alone. Any thread, without the turn. On failure nothing was enqueued, or the team has failed. */
    enum tutti_status (*access)(struct tutti_backend *backend, const struct tutti_backend_access *access, void *stream);
    enum tutti_status (*await)(struct tutti_backend *backend, const struct tutti_backend_await *await, void *stream);
    /* Waits until the stream has come here, and reads a word of this rank. ARGUMENT in a capture; TIMEOUT. */
    enum tutti_status (*read_word)(struct tutti_backend *backend, uint64_t *word, void *stream, uint64_t deadline_ns,
                                   uint64_t *out);
    /* How waits of users' kernels hear of failures and tell theirs. They may be under way at any time from now on. */
    void (*alarm)(struct tutti_backend *backend, struct tutti_device_alarm *out);
    /* Whether something is enqueued besides what last_event covers. NULL: never. */
    bool (*busy)(struct tutti_backend *backend);
    /* Stops all that waits on the device, at once: the team has failed. */
    void (*stop)(struct tutti_backend *backend);
    /* The same, and nothing that is enqueued and has not begun yet will do anything; gates stay closed. Between `enter`
     * and `leave` of the device. NULL: it has no gates. */
    void (*freeze)(struct tutti_backend *backend);
    /* An event that is over when all that was enqueued so far is over; NULL if nothing was enqueued. */
    void *(*last_event)(struct tutti_backend *backend);
    /* Whether the device has reported a failure that the team may not know yet; then what is over on the device may be
     * wrong. Cheap. NULL: the device reports none. */
    bool (*failed)(struct tutti_backend *backend);
};

/* The one list of back ends: X(name). A back end defines `const struct tutti_backend_ops tutti_backend_NAME`. If no
 * back end for devices can be opened, the reason of the first one in the list is told. */
#define TUTTI_BACKENDS(X) X(flat) TUTTI_GPUS(X) X(nccl) X(oneccl) X(oneccl_device)
#define TUTTI_BACKEND_DECLARE(name) extern const struct tutti_backend_ops tutti_backend_##name;
TUTTI_BACKENDS(TUTTI_BACKEND_DECLARE)
#undef TUTTI_BACKEND_DECLARE
#define TUTTI_BACKEND_INDEX(name) TUTTI_BACKEND_##name,
enum { TUTTI_BACKENDS(TUTTI_BACKEND_INDEX) TUTTI_N_BACKENDS };
#undef TUTTI_BACKEND_INDEX
/* The list as a table (list.c). Tests put others in their places. */
extern const struct tutti_backend_ops *tutti_backends[TUTTI_N_BACKENDS];

/* Whether text is NAME, or NAME:METHOD, of which *method is what follows, else NULL. */
bool tutti_backend_is_named(const struct tutti_backend_ops *ops, const char *text, const char **method);
/* The one that text names so, of those for devices or those for host memory; NULL: none. */
const struct tutti_backend_ops *tutti_backend_find(const char *text, bool devices);
/* The names of those, for sentences: "cuda, nccl". Valid until the thread asks again. */
const char *tutti_backend_names(bool devices);
/* Those that communicators open for host memory, by the option `backends`: "auto": the first of the list; "off"; or
 * NAME or NAME,NAME, of which the first is asked first. */
struct tutti_backends_wanted {
    const struct tutti_backend_ops *own, *library; /* NULL: none */
    bool library_first;
};
/* ARGUMENT: the option says something else. */
enum tutti_status tutti_backends_for_host(const struct tutti_config *options, struct tutti_backends_wanted *out);
/* ARGUMENT, SYSTEM: `backends` or `gpu` names no back end, or an option of a back end's own is wrong. */
enum tutti_status tutti_backends_check(const struct tutti_config *options);

/* Call this before the transport closes, when all back ends over it are closed. Peers may still touch memory of this
 * rank's device. Waits for a second at most; what can not be given back then stays taken. */
void tutti_device_sweep(struct tutti_backend_host *host);

#endif
