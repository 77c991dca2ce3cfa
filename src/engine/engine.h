/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_ENGINE_H
#define TUTTI_ENGINE_ENGINE_H

/* The engine runs sealed schedules over transports. A context has one engine. One thread at a time owns its progress: a
 * caller that waits, else a helper thread, which the first call starts that nobody waits for. Nothing is allocated on
 * the progress path. It may use base, sched, device, transport and control. Begin here, then flight/flight.c. Threads
 * sleep in owner.c; pass/watch.c notices a dead peer.
 *
 * The wire protocol (S5, S8). A message is (communicator, epoch, seq, slice, fifo).
 * - Short, at most `eager` bytes: it is sent at once while the channel (communicator, peer, direction) has credits. A
 *   message takes one for each TUTTI_CREDITS-th of four longest ones that it fills or begins, so that 64 small ones may
 *   be ahead of their receiver, or four of the longest. What one of the longest takes is kept for the oldest call in
 *   flight, and messages of one slice leave a channel in program order. If the receiver is not ready, it holds the
 *   message in memory that the communicator reserved, mapped as it is used; it gives the credits back, many at once,
 *   when it has consumed the messages.
 * - Long: it is sent only when the receiver has granted it. The receiver grants when it is ready (its hazards are
 *   clear), so it consumes the message on arrival, and nothing that is in flight can block anything else.
 * - Offered: a granted message in memory that the receiver can map is not sent; the receiver reads it in place.
 * - Duplicates are recognised by identity and dropped. */

#include "base/clock.h"
#include "base/poller.h"
#include "control/control.h"
#include "device/cpu/reduce.h"
#include "sched/sched.h"
#include "transport/transport.h"

#include <tutti/coll.h>

#define TUTTI_CREDITS 64      /* that a channel has */
#define TUTTI_CREDITS_LONG 16 /* most that one message takes */
#define TUTTI_GRANTS 8        /* long messages of a channel that are granted at once */
#define TUTTI_P2P_CREDITS 4   /* envelopes with payload */

struct tutti_engine;
struct tutti_team; /* what the engine knows of a communicator */

struct tutti_engine_config {
    size_t slice_bytes, eager_bytes, zero_copy_bytes;
    uint64_t spin_ns, compare_after_ns;
    const char *simd;
    const struct tutti_clock *clock; /* NULL: the system's. All times of the engine's calls are of this clock */
    struct tutti_poller *poller;     /* NULL: the system's. What threads of the engine sleep in */
};
enum tutti_status tutti_engine_create(const struct tutti_engine_config *config, struct tutti_engine **out);
/* Spinning is decided once the world is known: 0 when its ranks outnumber their CPUs. Any thread. */
void tutti_engine_set_spin(struct tutti_engine *engine, uint64_t spin_ns);
/* Before it is attached: somebody goes on when peers die, so their deaths are to be seen soon. */
void tutti_engine_set_attentive(struct tutti_engine *engine);
void tutti_engine_destroy(struct tutti_engine *engine); /* no team and no transport left; joins the helper */
/* The engine polls the transport and its members' control from now on; detach first removes both (no team uses them any
 * more), then the caller closes them. Any thread. */
enum tutti_status tutti_engine_attach(struct tutti_engine *engine, struct tutti_transport *transport,
                                      struct tutti_control *control);
void tutti_engine_detach(struct tutti_engine *engine, struct tutti_transport *transport);

struct tutti_team_config {
    struct tutti_transport *transport;
    uint64_t id; /* equal on all members, unique among live teams of the world */
    uint32_t epoch;
    uint32_t size, slot;     /* the communicator's */
    const uint32_t *members; /* slot -> member index of the transport; copied */
    uint64_t timeout_ns;
    size_t slice_bytes; /* 0: the engine's */
};
enum tutti_status tutti_team_create(struct tutti_engine *engine, const struct tutti_team_config *config,
                                    struct tutti_team **out);
/* What sentences call this team, its slots and its calls, where they stand for those of another communicator; the owner
 * of the team keeps it until the team is destroyed. */
enum { TUTTI_NAMED_CALLS = 64 };
struct tutti_names {
    uint64_t comm;
    _Atomic uint64_t calls[TUTTI_NAMED_CALLS]; /* by number of the call here, modulo; 0: none */
    uint32_t ranks[];                          /* by slot */
};
void tutti_team_set_names(struct tutti_team *team, const struct tutti_names *names);
/* What a sentence calls a slot, a call, the team. */
uint32_t tutti_said_rank(const struct tutti_team *team, uint32_t slot);
uint64_t tutti_said_call(const struct tutti_team *team, uint64_t seq);
uint64_t tutti_said_comm(const struct tutti_team *team);
/* Waits until no call is in flight here: true. False: until_ns came first. */
bool tutti_team_wait(struct tutti_team *team, uint64_t until_ns);
/* Waits for the calls in flight until their deadlines and for the functions that tutti_work_notify queued for them,
 * publishes "left", frees. */
void tutti_team_destroy(struct tutti_team *team);
/* Ends all calls in flight here with this record. tell: raises it to the other members, too. The first failure wins,
 * and later calls return it. Any thread; returns when no call of the team touches users' buffers any more. */
void tutti_team_fail(struct tutti_team *team, const struct tutti_error *error, bool tell);
/* The part of this in the own process; called by the engine's owner, also from `stop` of a followed work when another
 * team fails. */
void tutti_team_apply(struct tutti_team *team, const struct tutti_error *error);
/* Where this member is, for the sentence of whoever ends the team: "in all_reduce #4 (...) on communicator ...", or
 * what it called last. Returns the sequence number, 0 if none. */
uint64_t tutti_team_where(struct tutti_team *team, char *out, size_t capacity);
/* OK, or the failure that ended the team. */
enum tutti_status tutti_team_state(struct tutti_team *team, struct tutti_error *error);

/* ---- a call whose input comes, and whose output goes, while it is under way (flight.c): slices begin, in their order,
 * when their input is there ---- */
struct tutti_gate {
    _Atomic uint32_t n_open;               /* slices whose input is there: see tutti_gate_open */
    void (*passed)(void *arg, uint32_t n); /* the first n slices are over, and their output is final. Owner only */
    void (*over)(void *arg); /* the call that was started has ended, well or not: nothing looks at the gate or touches
                                buffers any more. Owner only. May be NULL */
    void *arg;
};
/* The input of the first n slices is there. Any thread; before the call, or in it. */
void tutti_gate_open(struct tutti_team *team, struct tutti_gate *gate, uint32_t n);
/* What slices are cut by: tutti_layout_init takes it. */
size_t tutti_team_slice_bytes(const struct tutti_team *team);

/* ---- binding (bind.c): a sealed schedule, and where its chunks are ---- */
struct tutti_bind {
    const struct tutti_schedule *schedule; /* released to `cache` when the call ends */
    struct tutti_cache *cache;
    const void *input;                   /* NULL when this slot contributes nothing */
    void *output;                        /* NULL when this slot needs no result */
    bool v;                              /* a v form, also on slots that know only their own block (counts NULL) */
    size_t count;                        /* elements of a block (v with counts NULL: of the own one); barrier: 0 */
    const size_t *counts, *displs;       /* v forms: of the blocks of the larger side (see below); copied */
    const size_t *in_counts, *in_displs; /* all_to_all_v: of IN; copied */
    enum tutti_dtype dtype;
    tutti_reduce_kernel reduce; /* NULL: kind does not reduce, or a user's operation */
    tutti_op_function user;     /* user-defined operation */
    void *user_arg;
    tutti_divide_kernel divide; /* avg: applied to the result with `divisor`; else NULL */
    uint32_t divisor;
    tutti_scale_kernel scale; /* premul_sum: applied to the input into a private copy; else NULL */
    const void *factor;       /* one element, copied */
    struct tutti_gate *gate;  /* NULL: all input is there. It stays until the call is over */
};
/* Where blocks live, by kind (what the user passes):
 *   all_reduce, reduce, scan, exscan: input and output are the one block (reduce: output at root).
 *   broadcast: the buffer is both input (root) and output (others).
 *   all_gather, gather: input is block `slot`, output all blocks (gather: at root).
 *   scatter: input is all blocks (at root), output block `slot`.  reduce_scatter: input all blocks, output block
 * `slot`. all_to_all: IN is all blocks of input by destination, DATA all blocks of output by source. DATA chunks that
 * the user's output does not hold live in private memory of the call (mapped lazily). */

/* What a call is, for signatures, sentences and traces. */
#define TUTTI_COUNT_UNEQUAL (UINT64_C(1) << 63) /* which no count has: sentences say "unequal blocks" */
struct tutti_call_info {
    enum tutti_kind kind;
    enum tutti_dtype dtype;
    int32_t op;          /* enum tutti_op, -1 if none */
    int32_t root;        /* -1 if none */
    uint64_t count;      /* elements per block; v forms: a hash of the table (of runners, with TUTTI_COUNT_UNEQUAL) */
    uint64_t signature;  /* hash of all that must be equal on all ranks, the schedule's hash included */
    uint64_t timeout_ns; /* 0: the team's */
    const char *label;
    uint64_t reduced; /* elements of the all_reduce that this reduce_scatter begins, which boards show; 0: none */
};
/* What boards and packets show: of the call itself, or of the one that it begins. */
static inline enum tutti_kind tutti_shown_kind(const struct tutti_call_info *info)
{
    return info->reduced ? TUTTI_ALL_REDUCE : info->kind;
}

/* ---- starting (any thread; order within a team is that of the calls) ---- */
/* Starts a bound collective. *work as for public calls; a blocking caller waits on it at once. On failure nothing was
 * started and the schedule was given back. helper: nobody may wait for it, so make sure that it progresses. */
enum tutti_status tutti_engine_start(struct tutti_team *team, const struct tutti_bind *bind,
                                     const struct tutti_call_info *info, bool helper, struct tutti_work **work);

/* ---- the short way (pass/short.c): a call that is made again and again, on the caller's thread while nothing else is
 * in flight. Peers can not tell by which way a call came. One thread at a time, as for starts ---- */
struct tutti_flight;
/* A bound collective that is ready to be carried out any number of times; its buffers are the caller's. NULL: not this
 * one (its messages are long, it has several slices or steps that are calls), or no memory. Takes the schedule. */
struct tutti_flight *tutti_short_keep(struct tutti_team *team, const struct tutti_bind *bind,
                                      const struct tutti_call_info *info);
/* OK: it was carried out, and counted. AGAIN: nothing was begun; start it as any other. PENDING: it takes longer, or
 * has failed: the flight is not kept any more, and *work is its handle, as of tutti_engine_start. timeout_ns 0: the
 * team's. Blocks for the time that ranks spin, or give up turns where they outnumber CPUs: 0.2 ms at most. */
enum tutti_status tutti_short_run(struct tutti_flight *flight, uint64_t timeout_ns, const char *label,
                                  struct tutti_work **work);
/* Before its team goes; NULL is ignored. */
void tutti_flight_drop(struct tutti_flight *flight);

/* A message to send or to receive. */
struct tutti_p2p_message_info {
    const void *send; /* a send's */
    void *recv;       /* a receive's */
    size_t bytes;
    int32_t peer, tag;             /* slot; a receive's may be TUTTI_ANY_* */
    uint64_t timeout_ns;           /* 0: the team's */
    struct tutti_message *message; /* what a receive got; may be NULL */
};
enum tutti_status tutti_engine_send(struct tutti_team *team, const struct tutti_p2p_message_info *info, bool helper,
                                    struct tutti_work **work);
enum tutti_status tutti_engine_recv(struct tutti_team *team, const struct tutti_p2p_message_info *info, bool helper,
                                    struct tutti_work **work);
enum tutti_status tutti_engine_probe(struct tutti_team *team, int32_t source, int32_t tag, struct tutti_message *out);

/* ---- runners (flight.c): a collective that a back end carries out whole, in the engine's order and under its watch:
 * deadlines, deaths, comparisons, sentences, sleep and failure are the engine's as for schedules. ---- */
enum tutti_advance {
    TUTTI_RUN_DONE,
    TUTTI_RUN_MOVED,    /* it got on: the owner calls again, now or after others had their turn */
    TUTTI_RUN_BLOCKED,  /* it waits for the peer `awaits`, and got nowhere. A runner that gets on now and then does not
                         * let its owner sleep */
    TUTTI_RUN_MISMATCH, /* the peer `awaits` called something else: see `called` */
    TUTTI_RUN_FAILED,   /* the thread's error record says why */
};
struct tutti_runner {
    const struct tutti_runner_ops *ops;
};
struct tutti_runner_ops {
    /* Goes on until it would have to wait. Owner only. Of one back end's runners of a team only the oldest is advanced,
     * so that all ranks run them in the order of the calls. */
    enum tutti_advance (*advance)(struct tutti_runner *runner);
    /* After BLOCKED or MISMATCH: the slot of a peer that it waits for. */
    uint32_t (*awaits)(const struct tutti_runner *runner);
    /* After MISMATCH: what that peer called, as packets carry it (tutti_call_pack) and its count. */
    void (*called)(const struct tutti_runner *runner, uint64_t *call, uint64_t *count);
    /* The owner is about to sleep. True if it still has to wait: then *word changes from *expected, with a futex wake,
     * when that may have changed. sleep_end follows in both cases. */
    bool (*sleep_begin)(struct tutti_runner *runner, _Atomic uint32_t **word, uint32_t *expected);
    void (*sleep_end)(struct tutti_runner *runner);
    /* The call ends with a failure, begun or not; the team has failed. Owner only. Returns when no living peer touches
     * its buffers any more (bounded). */
    void (*cancel)(struct tutti_runner *runner);
};
#define TUTTI_RUNNER_BYTES 768
/* Hands over a runner, which may have been advanced already: `bytes` (at most TUTTI_RUNNER_BYTES) are copied from it,
 * so it holds no pointer into itself. Its number must be tutti_team_next; *work as for tutti_engine_start. A runner has
 * its place in an order that all ranks share: if it can not be handed over, it was cancelled and the team has failed.
 */
enum tutti_status tutti_engine_run(struct tutti_team *team, struct tutti_runner *runner, size_t bytes,
                                   const struct tutti_call_info *info, bool helper, struct tutti_work **work);
/* The number that the team's next collective gets. Callers that start collectives of a team take turns. */
uint64_t tutti_team_next(const struct tutti_team *team);
/* No call of the team is in flight, and no member has raised a failure that was not heard here yet: a caller may carry
 * out a collective itself, past the engine; it then counts it. */
bool tutti_team_quiet(const struct tutti_team *team);
void tutti_team_count(struct tutti_team *team);
/* It has not failed, and no member has raised a failure that was not heard here yet; else tutti_team_state tells. Two
 * loads, for who does not wait at all. */
bool tutti_team_well(const struct tutti_team *team);
/* Whether the team has failed: one load, for who waits past the engine. */
bool tutti_team_failed(const struct tutti_team *team);
/* What members do past the engine is not on their boards. This function completes the board that peek found of `peer`
 * (a slot, also the own one) with what the back end knows better. If it raises seq, it fills in all of that call but
 * the signature. It is called by the owner, and by any thread that asks where this rank is (which owns then). set waits
 * for a call of it that is in progress. */
typedef void (*tutti_overlay)(void *arg, uint32_t peer, struct tutti_board *board);
void tutti_team_set_overlay(struct tutti_team *team, tutti_overlay overlay, void *arg);
/* Kind, dtype, op and root in one word, as packets and boards carry them; and back, with the count. */
uint64_t tutti_call_pack(const struct tutti_board *board);
static inline uint64_t tutti_call_word(uint32_t kind, uint32_t dtype, uint32_t op, int32_t root)
{
    return kind | dtype << 8 | (op & 0xff) << 16 | (uint64_t)(uint32_t)root << 32;
}
void tutti_call_unpack(uint64_t call, uint64_t count, struct tutti_board *board);

/* ---- failures of calls that were made past the engine (report.c): they end the team on all members with the engine's
 * sentences. A board says which call it is. Its seq is 0 for messages; then kind is one of these, and `count` are the
 * bytes of one message with `peer`. */
enum {
    TUTTI_REPORT_SEND = TUTTI_N_KINDS + 1,
    TUTTI_REPORT_RECV,
    TUTTI_REPORT_WAIT_SIGNAL, /* `count` is the signal's index, peer who is to change it, -1: any */
    TUTTI_REPORT_ONE_SIDED    /* other one-sided calls */
};
/* Any thread. ---- */
uint64_t tutti_team_timeout(const struct tutti_team *team);
/* theirs: the last call of `peer`, NULL: none. */
void tutti_team_report_timeout(struct tutti_team *team, const struct tutti_board *call, uint64_t timeout_ns,
                               uint32_t peer, const struct tutti_board *theirs);
void tutti_team_report_mismatch(struct tutti_team *team, const struct tutti_board *call, uint32_t peer,
                                const struct tutti_board *theirs);
/* Messages between this rank and a peer of which the two think differently. */
void tutti_team_report_messages(struct tutti_team *team, uint32_t peer, uint64_t n);
/* This rank made the call on the device; the peer has come as far (tutti_team_reached) and did not. */
void tutti_team_report_elsewhere(struct tutti_team *team, const struct tutti_board *call, uint32_t peer);
/* The number of the last collective that the peer's board shows, which may lag behind; 0: none. */
uint64_t tutti_team_reached(const struct tutti_team *team, uint32_t peer);
/* A wait on the device for a signal of this rank (or, by kernels of users, a barrier) has run out of time. */
struct tutti_reported_signal {
    uint32_t index, compare; /* enum tutti_compare, or TUTTI_DEVICE_BARRIER */
    uint64_t value, seen, timeout_ns;
    int32_t from; /* slot, -1: any */
};
void tutti_team_report_signal(struct tutti_team *team, const struct tutti_reported_signal *signal);
/* A peer is dead or has left, and the call waits for it. */
void tutti_team_report_lost(struct tutti_team *team, const struct tutti_board *call, uint32_t peer,
                            enum tutti_life life);

/* ---- calls (call.c): steps that are whole collectives of a group of slots. A lane, which a back end opened for the
 * group, carries them out as runners, one after another; schedules are sealed for the lanes that their team has. ----
 */
/* Kinds that steps can be, as bits. */
#define TUTTI_CALL_KINDS                                                                                               \
    (1u << TUTTI_ALL_REDUCE | 1u << TUTTI_REDUCE | 1u << TUTTI_BROADCAST | 1u << TUTTI_GATHER | 1u << TUTTI_SCATTER |  \
     1u << TUTTI_BARRIER | TUTTI_CALL_KINDS_EQUAL)
/* Those whose blocks are those of several ranks at all of them, and must be equal. */
#define TUTTI_CALL_KINDS_EQUAL (1u << TUTTI_ALL_GATHER | 1u << TUTTI_REDUCE_SCATTER)
/* A slice of a call, as a call of the group alone: slots and root are those of the group. */
struct tutti_call_step {
    struct tutti_bind bind; /* without schedule, tables and scale */
    struct tutti_call_info info;
    size_t stride;             /* bytes from one block to the next; 0: they are packed. Else bind.v is set if rooted */
    uint64_t seq, call, count; /* the whole call, as packets and posts say */
};
/* Makes a runner of at most TUTTI_RUNNER_BYTES at `room`. Owner only. A failure ends the team. */
typedef enum tutti_status (*tutti_lane_begin)(void *arg, uint32_t lane, const struct tutti_call_step *step, void *room);
/* Before the team's first call, on all slots of a lane or on none. MEMORY. */
enum tutti_status tutti_team_set_lanes(struct tutti_team *team, const struct tutti_lanes *lanes, tutti_lane_begin begin,
                                       void *arg);

/* ---- followed works (flight.c): what goes on elsewhere, on a device. No place in the order, no deadline; the failure
 * of the team ends them. ---- */
struct tutti_followed_ops {
    enum tutti_status (*look)(void *arg); /* OK: it is over. PENDING. Else the team fails with it. Owner only */
    void (*stop)(void *arg);              /* ends all that are followed, soon: before and when the team fails. Owner */
    void (*end)(void *arg);               /* takes arg back; nothing follows */
};
/* seq: what tutti_work_sequence tells. On failure nothing is followed, and arg is the caller's. */
enum tutti_status tutti_engine_follow(struct tutti_team *team, const struct tutti_followed_ops *ops, void *arg,
                                      uint64_t seq, const char *label, struct tutti_work **work);

/* ---- work (work.c): also the public tutti_work_* calls. A work may have children: it completes when all have, with
 * the first error (groups, sendrecv). ---- */
/* Takes over the children's handles. */
enum tutti_status tutti_work_join(struct tutti_engine *engine, struct tutti_work **children, size_t n,
                                  struct tutti_work **out);
/* The handle of a call that was carried out past the engine and is complete. MEMORY. */
enum tutti_status tutti_work_past(struct tutti_team *team, uint64_t seq, uint64_t start_ns, struct tutti_work **out);
/* The handle of a call that its maker carries out on a thread of its own: complete when that thread fulfils it, once,
 * with a record or NULL. MEMORY. */
enum tutti_status tutti_work_promise(struct tutti_team *team, uint64_t seq, const char *label, struct tutti_work **out);
void tutti_work_fulfil(struct tutti_work *work, const struct tutti_error *error);
/* Waits until the call's own deadline, frees, and leaves the error record on this thread: what blocking calls do. */
enum tutti_status tutti_work_finish(struct tutti_work *work);

/* ---- numbers for `tutti info` and the tests ---- */
struct tutti_engine_stats {
    uint64_t calls_started, calls_completed, packets_sent, packets_received, bytes_sent, held, duplicates_dropped,
        zero_copy_messages, sleeps, call_steps;
};
void tutti_engine_stats(struct tutti_engine *engine, struct tutti_engine_stats *out);

#endif
