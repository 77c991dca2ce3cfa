/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_CORE_H
#define TUTTI_ENGINE_CORE_H

/* What the files of the engine share. "Owner" is the thread that holds the progress ownership (progress.c): all state
 * below belongs to it, but for what is marked. Names: a flight is a collective in progress, a slice one of its slices
 * that is active, a letter a point-to-point operation, a channel all that a team knows of one peer, a port a transport.
 */

#include "engine/bind/bind.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define TUTTI_ACTIVE 64 /* slices of a team that are worked on at once, the oldest ones */
#define TUTTI_TICK_NS (UINT64_C(100) * TUTTI_NS_PER_MS) /* of small worlds, see engine.c */
#define TUTTI_NO_SLOT UINT32_MAX

/* ---- work ---- */
enum tutti_work_type {
    TUTTI_WORK_FLIGHT,
    TUTTI_WORK_RUNNER, /* a flight, too */
    TUTTI_WORK_SEND,
    TUTTI_WORK_RECV,
    TUTTI_WORK_FOLLOWED,
    TUTTI_WORK_JOIN,
    TUTTI_N_WORK_TYPES
};
static inline bool tutti_work_flies(enum tutti_work_type type)
{
    return type == TUTTI_WORK_FLIGHT || type == TUTTI_WORK_RUNNER;
}

struct tutti_work {
    struct tutti_engine *engine;
    struct tutti_team *team; /* while pending */
    struct tutti_work *next; /* pool, submissions, lists of the team */
    enum tutti_work_type type;
    _Atomic uint32_t done;    /* then the fields below are final */
    _Atomic uint32_t refs;    /* the handle, and the engine while it is in progress */
    _Atomic uint32_t waiting; /* threads that sleep until it is done */
    uint64_t start_ns, end_ns, timeout_ns, deadline_ns;
    uint64_t seq;
    const char *tag;
    const void *home;                   /* the team as a name, complete or not: it may be gone */
    _Atomic(struct tutti_hook *) hooks; /* notices to be queued when it is done (notify.c) */
    struct tutti_error error;
};

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
    uint32_t next_slice, n_finished;
    uint64_t compare_ns;                /* when the boards are compared next */
    uint32_t n_compared;                /* boards so far */
    bool past_cache;                    /* results are too much for the caches, and not read again */
    bool told_missing, in_vain;         /* in_vain: at the last look a peer had completed what it waits for */
    uint64_t packed_call, packed_count; /* what packets say of the call */
    _Alignas(16) unsigned char room[];  /* of runners: TUTTI_RUNNER_BYTES */
};

enum tutti_letter_state {
    TUTTI_LETTER_QUEUED,   /* send: no room for the envelope yet. recv: posted */
    TUTTI_LETTER_WAITING,  /* send: for the grant. recv: the grant is to be sent */
    TUTTI_LETTER_MOVING,   /* payload on its way */
    TUTTI_LETTER_READ_OWED /* recv: an offer was read, which is to be told */
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
struct tutti_letter {
    struct tutti_work work; /* first */
    struct tutti_letter *next;
    enum tutti_letter_state state;
    unsigned char *buffer;
    size_t bytes, total; /* of the buffer; of the message */
    size_t offset;       /* send: what left */
    int32_t peer, tag;   /* slot; recv: maybe ANY until matched */
    uint64_t number;     /* of the message between this pair, from 1 */
    bool offered;
    struct tutti_inflow inflow;
    struct tutti_message *message;
};

/* ---- slices ---- */
/* Masks are relative to base: bit 63 - k is step base + k. */
struct tutti_slice {
    struct tutti_flight *flight; /* NULL: free */
    uint32_t index, base;
    uint64_t done, busy;              /* busy: posted, granted or offered; waits for an arrival */
    uint64_t ack;                     /* of busy: an offer was read, which is to be told */
    bool dirty, stalled;              /* something became possible; a send found no room or credit */
    uint32_t called[TUTTI_MAX_LANES]; /* by lane: the schedule's calls before it are over, or of other lanes */
};
static inline uint64_t tutti_slice_bit(uint32_t k)
{
    return UINT64_C(1) << (63 - k);
}

/* ---- channels: zero is the initial state; mapped lazily, so that only active peers cost memory ---- */
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
struct tutti_channel {
    /* collectives, outgoing */
    uint8_t sent, returned; /* eager messages, modulo 256 */
    uint8_t n_grants;
    struct tutti_grant grants[TUTTI_CREDITS];
    struct tutti_slice *out_slice; /* a message of several packets that is being sent */
    uint32_t out_step;
    size_t out_offset;
    /* collectives, incoming */
    uint8_t consumed, told; /* eager messages, modulo 256 */
    uint8_t n_incoming, n_held;
    bool listed; /* in the team's list of channels that hold something or owe credits */
    uint32_t next_listed;
    struct tutti_incoming incoming[TUTTI_CREDITS];
    struct tutti_packet held[TUTTI_CREDITS];
    bool used[TUTTI_CREDITS];
    /* point-to-point */
    uint64_t p2p_sent, p2p_taken; /* envelopes: sent there; of theirs, in order */
    uint64_t p2p_freed, p2p_told; /* of their envelopes: gone from the table; and told so */
    uint64_t p2p_returned;        /* of ours, as told */
    uint32_t p2p_paid, p2p_paid_returned, p2p_paid_freed, p2p_paid_told; /* the same for those with payload */
    uint32_t p2p_used;                                                   /* bits: payload slots in use */
    uint64_t p2p_pass;  /* pass over the letters in which it was found blocked */
    uint64_t gone_ns;   /* watch: when the peer was first found gone, */
    uint64_t gone_pass; /* and in which pass */
    uint64_t seen_tick; /* watch: the tick in which it was looked at */
};

/* An envelope that nobody asked for yet. Index 0 is none. */
struct tutti_envelope {
    uint32_t next, source; /* slot */
    int32_t tag;
    uint32_t payload; /* 1 + payload slot, 0: none */
    uint64_t number, total;
};

struct tutti_team {
    struct tutti_engine *engine;
    struct tutti_port *port;
    struct tutti_team *hash_next, *next, *previous; /* next: of the teams with work */
    uint64_t id;
    uint32_t epoch, size, slot;
    uint32_t *members, *slots; /* slot -> member, and back (n of the world) */
    uint64_t timeout_ns;
    _Atomic uint64_t seq; /* last number given (who starts a call: engine->lock, or the turn of the caller) */
    _Atomic bool failed;  /* then error is final */
    struct tutti_error error;

    uint64_t started; /* last collective that came to the owner */
    struct tutti_board board;
    struct tutti_flight *pending, **pending_end; /* not all slices active yet, in order */
    struct tutti_slice *order[TUTTI_ACTIVE];     /* oldest first */
    uint32_t n_active, n_runners;                /* n_runners: of the active ones */
    struct tutti_slice slices[TUTTI_ACTIVE];
    uint32_t n_work;         /* works in progress */
    _Atomic uint32_t n_open; /* the same, and submitted ones */
    bool retry;              /* credits came, or ownership of the oldest slice changed: stalled slices may go on */
    bool again;              /* the transport had no room */
    bool owing;              /* credits may be due */
    uint32_t listed;         /* 1 + slot of the first channel that holds something or owes credits */

    struct tutti_letter *sends, *recvs; /* not complete, in order */
    struct tutti_letter **sends_end, **recvs_end;
    bool letters_dirty;
    uint64_t letter_pass;
    uint32_t envelope_first, envelope_last; /* in order: nobody asked for them yet */
    uint32_t envelope_early;                /* numbers before them are missing */
    uint32_t envelope_free, envelope_used;
    uint32_t envelope_share; /* of each peer */

    struct tutti_followed *followed, **followed_end; /* not over, in order */
    uint64_t look_ns;                                /* when the oldest is looked at again */

    size_t eager, hold_stride;
    unsigned char *map; /* channels, hold buffers, envelopes */
    size_t map_bytes;
    struct tutti_channel *channels;
    unsigned char *hold, *p2p_hold;
    struct tutti_envelope *envelopes;
    struct tutti_region spare[4]; /* private memory of finished calls (engine->lock) */
    tutti_overlay overlay;        /* NULL: boards say all */
    void *overlay_arg;
    struct tutti_calling *lanes; /* that carry out calls of schedules */
    uint32_t n_lanes;
    tutti_call_begin call_begin;
    void *call_arg;
};
/* Gives the next number. */
static inline uint64_t tutti_team_number(struct tutti_team *team)
{
    uint64_t seq = atomic_load_explicit(&team->seq, memory_order_relaxed) + 1;
    atomic_store_explicit(&team->seq, seq, memory_order_relaxed);
    return seq;
}

/* ---- ports ---- */
#define TUTTI_TEAM_BUCKETS 64
/* A packet of a team that this rank has not created yet (a peer was faster). */
struct tutti_stray {
    struct tutti_packet packet;
    uint64_t used; /* 0: free, else when it came (a counter) */
    _Alignas(16) unsigned char payload[];
};
struct tutti_port {
    struct tutti_transport *transport;
    struct tutti_control *control; /* of the same members */
    struct tutti_port *next;
    struct tutti_team *buckets[TUTTI_TEAM_BUCKETS];
    uint32_t n_work;
    uint64_t drained; /* the last pass that left nothing behind */
    unsigned char *strays;
    size_t stray_stride, stray_bytes;
    uint32_t stray_room, n_strays;
    uint64_t stray_clock;
};

/* ---- engine ---- */
struct tutti_waiter { /* on the stack of a sleeping thread (engine->lock) */
    _Atomic uint32_t word;
    struct tutti_work *work;
    struct tutti_waiter *next, *previous;
};

struct tutti_helper { /* any thread */
    _Atomic bool runs, owns, stop;
    _Atomic bool prompt; /* callers wait at once for what they start */
    _Atomic bool naps;   /* it will look by itself; else it is to be woken */
    _Atomic uint32_t word, sleeps;
    _Atomic uint32_t n_relied;  /* how often work was left behind, for it will look */
    _Atomic uint32_t n_watched; /* calls in flight that somebody wants to be told of */
    _Atomic uint32_t score;     /* of prompt waits */
    _Atomic uint64_t waited_ns; /* until when a caller waited last */
    uint64_t nap_ns;
    pthread_t thread;
};

struct tutti_hook;
struct tutti_notice;
struct tutti_notifier { /* of the completion thread */
    _Atomic bool runs;
    _Atomic uint32_t word, sleeping;
    _Atomic uint32_t n_run, n_drains; /* functions that returned; threads that wait for that */
    pthread_t thread;
    pthread_mutex_t lock; /* the next lines */
    struct tutti_notice *first, **end;
    uint32_t n_queued, running_number;
    const void *running_home;
    bool stop, ended; /* ended: there is no such thread any more */
};

struct tutti_engine {
    struct tutti_engine_config config;
    _Atomic uint64_t spin_ns;
    _Atomic uint32_t refs; /* the creator's, and one a work */

    /* ownership (progress.c) */
    _Atomic uint32_t owned, want, sleeping, n_waiters, n_inflight;

    pthread_mutex_t lock; /* the next lines */
    struct tutti_work *submitted, **submitted_end;
    struct tutti_work *pool[TUTTI_N_WORK_TYPES];
    struct tutti_waiter *waiters;
    struct tutti_port *ports; /* changed by the owner with the lock held */
    _Atomic bool has_submitted;

    struct tutti_team *busy; /* teams with work */
    uint64_t pass, next_watch_ns, tick;
    _Atomic uint64_t tick_ns; /* how often a waiting rank looks around */
    unsigned char *stage;     /* eager messages of many pieces are gathered here */
    uint64_t gone[256]; /* ids of the last teams destroyed, mixed with the epoch: their late packets are dropped */
    uint32_t n_gone;
    struct tutti_engine_stats stats;
    struct tutti_helper helper;
    struct tutti_notifier notifier;
};

/* ---- progress.c ---- */
bool tutti_owner_try(struct tutti_engine *engine);
void tutti_owner_enter(struct tutti_engine *engine); /* at once: whoever owns gives way */
void tutti_owner_leave(struct tutti_engine *engine);
void tutti_owner_kick(struct tutti_engine *engine); /* ends the owner's sleep; any thread */
/* Somebody must own while there is work: a waiting caller, else the helper. Any thread. */
void tutti_owner_hand_over(struct tutti_engine *engine);
/* Owner: until ready, somebody else wants to own, or the time is over. */
void tutti_engine_own(struct tutti_engine *engine, bool (*ready)(const void *), const void *arg, uint64_t until_ns);
/* Makes progress, or sleeps while others do, until ready(arg) or `until`. work: what to be woken for; may be NULL. */
void tutti_engine_wait(struct tutti_engine *engine, bool (*ready)(const void *), const void *arg,
                       struct tutti_work *work, uint64_t until_ns);
bool tutti_engine_progress(struct tutti_engine *engine); /* owner: one pass; whether anything happened */

/* ---- helper.c: any thread ---- */
enum tutti_status tutti_helper_start(struct tutti_engine *engine);
void tutti_helper_stop(struct tutti_engine *engine);
/* Work is left behind that nobody waits for. */
void tutti_helper_call(struct tutti_engine *engine);
/* n more calls in flight, or fewer, of which somebody wants to be told: they are not left alone. */
void tutti_helper_watch(struct tutti_engine *engine, int32_t n);
/* A caller begins to wait for a call of that start, which is not complete; one has waited until then. */
void tutti_helper_learn(struct tutti_engine *engine, uint64_t start_ns);
void tutti_helper_waited(struct tutti_engine *engine, uint64_t until_ns);

/* ---- work.c ---- */
void *tutti_work_new(struct tutti_engine *engine, enum tutti_work_type type); /* any thread; NULL: no memory */
void tutti_work_drop(struct tutti_work *work);                                /* one reference; any thread */
/* Owner: publishes the result (NULL: success), wakes, drops the engine's reference. */
void tutti_work_complete(struct tutti_work *work, const struct tutti_error *error);
/* Numbers and queues; any thread. The engine holds a reference from now on. */
enum tutti_status tutti_work_submit(struct tutti_work *work, bool helper);
/* Visits the work, or what a joined one consists of; stops at an error. An empty joined work is its own part. */
enum tutti_status tutti_work_parts(struct tutti_work *work,
                                   enum tutti_status (*visit)(struct tutti_work *part, void *arg), void *arg);
void tutti_engine_unref(struct tutti_engine *engine);

/* ---- notify.c: any thread ---- */
void tutti_notifier_init(struct tutti_notifier *notifier);
void tutti_notifier_fini(struct tutti_notifier *notifier);
/* Runs what is queued and ends the thread; from within a function the thread does so later. */
void tutti_notifier_stop(struct tutti_engine *engine);
/* Until the functions queued for works of this home have returned; not from within one. */
void tutti_notifier_drain(struct tutti_engine *engine, const void *home);
/* The part is done and may have hooks: queues what is due. */
void tutti_work_due(struct tutti_work *part);

/* ---- team.c, flight.c ---- */
struct tutti_team *tutti_team_find(struct tutti_port *port, uint64_t id, uint32_t epoch);
struct tutti_flight *tutti_flight_new(struct tutti_team *team, enum tutti_work_type type,
                                      const struct tutti_call_info *info); /* any thread; NULL: no memory */
void tutti_team_absorb(struct tutti_team *team, struct tutti_work *work);  /* owner: a submission arrives */
bool tutti_team_run(struct tutti_team *team);                              /* owner: whether anything happened */
bool tutti_team_run_runners(struct tutti_team *team);                      /* the same, of its runners alone */
bool tutti_team_flush(struct tutti_team *team);                            /* credits that are due */
void tutti_team_work_begin(struct tutti_team *team);
void tutti_team_work_end(struct tutti_team *team);
void tutti_team_list(struct tutti_team *team, uint32_t slot); /* the channel holds or owes something */
void tutti_team_publish(struct tutti_team *team);
void tutti_stray_keep(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_packet *packet,
                      const void *payload);

/* ---- runner.c: owner only ---- */
/* The place in team->order of the oldest active runner, n_active: none. */
uint32_t tutti_runner_oldest(const struct tutti_team *team);
/* Advances it until it has to wait, true: or is done. The team may be broken afterwards. */
bool tutti_runner_advance(struct tutti_team *team, struct tutti_flight *flight, bool *moved);
/* The peer that a flight with a runner waits for, -1: none yet. */
int32_t tutti_runner_awaits(const struct tutti_flight *flight);
/* Some turns in a row, as long as it moves. */
enum tutti_advance tutti_runner_turns(struct tutti_runner *runner, bool *moved);
/* FAILED, for the reason in the thread's record. */
void tutti_report_failed(struct tutti_team *team, const struct tutti_flight *flight);

/* ---- fail.c: owner only ---- */
/* Decides a failure here: tells all, ends every call. `flight` may be NULL; peer and step may be -1, TUTTI_NO_STEP. The
 * sentence is in `text`. All pointers to slices, flights and letters of the team are dead afterwards. */
void tutti_team_break(struct tutti_team *team, enum tutti_status status, int32_t peer,
                      const struct tutti_flight *flight, uint32_t step, const char *text);
/* A flight in progress, NULL: not started, or complete. */
struct tutti_flight *tutti_flight_find(const struct tutti_team *team, uint64_t seq);
/* "all_reduce", static; "" if no such call is in flight. */
const char *tutti_flight_name(const struct tutti_team *team, uint64_t seq);
bool tutti_port_failures(struct tutti_port *port);

/* ---- issue.c ---- */
bool tutti_slice_issue(struct tutti_team *team, struct tutti_slice *slice); /* whether anything happened */
void tutti_slice_complete(struct tutti_slice *slice, uint32_t step);
/* Tells the sender of an awaited eager message how long it should be, in the form of a grant: who has a longer one
 * waits to be asked for it, and would never learn. */
void tutti_recv_ask(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step);
void tutti_slice_finish(struct tutti_slice *slice); /* final copies, division */
/* Whether the hazards of step base + k are clear. */
bool tutti_step_ready(const struct tutti_slice *slice, uint32_t k);
static inline bool tutti_slice_over(const struct tutti_slice *slice)
{
    const struct tutti_schedule *schedule = slice->flight->bind.schedule;
    return schedule && slice->base >= schedule->n_steps;
}
/* Sends a packet of the team; fills comm, epoch, credits. */
enum tutti_status tutti_team_send(struct tutti_team *team, uint32_t peer, struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans);

/* ---- apply.c: bytes into place ---- */
void tutti_step_local(const struct tutti_slice *slice, const struct tutti_step *step);
/* `bytes` bytes of the message of a RECV or RECV_REDUCE, from `offset` on. */
void tutti_step_apply(const struct tutti_slice *slice, const struct tutti_step *step, size_t offset, size_t bytes,
                      const unsigned char *payload);

/* ---- deliver.c ---- */
void tutti_port_deliver(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_arrival *arrival);
void tutti_team_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                        const void *payload);
/* Takes a held packet for this receive, if there is one; sets *failed when it broke the team. */
bool tutti_held_take(struct tutti_team *team, struct tutti_slice *slice, uint32_t step, bool *failed);
/* A flight begins: packets that wait for it must carry its signature. False when the team broke. */
bool tutti_held_check(struct tutti_team *team, const struct tutti_flight *flight);
/* Whether the piece is new (duplicates are not). *broken: it can not be, or too much is out of order. */
bool tutti_inflow_add(struct tutti_inflow *inflow, uint64_t total, uint64_t offset, uint64_t bytes, bool *broken);
struct tutti_slice *tutti_slice_find(struct tutti_team *team, uint64_t seq, uint32_t index);

/* ---- offer.c ---- */
/* Whether the contiguous bytes are worth an offer, and where they are for the peer. */
bool tutti_offer_locate(struct tutti_team *team, const void *pointer, size_t bytes, uint64_t *offset);
const void *tutti_offer_map(struct tutti_team *team, uint32_t peer, uint64_t offset, size_t bytes);

/* ---- envelope.c: messages that nobody asked for yet ---- */
/* early: not the next of its sender. False: the sender had no right to send it. */
bool tutti_envelope_keep(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                         const void *payload, bool early);
struct tutti_envelope *tutti_envelope_find(struct tutti_team *team, int32_t source, int32_t tag);
struct tutti_envelope *tutti_envelope_find_early(struct tutti_team *team, uint32_t source, uint64_t number);
void tutti_envelope_promote(struct tutti_team *team, struct tutti_envelope *envelope);
void tutti_envelope_drop(struct tutti_team *team, struct tutti_envelope *envelope);
/* NULL: it is still with the sender. */
const unsigned char *tutti_envelope_payload(const struct tutti_team *team, const struct tutti_envelope *envelope);

/* ---- p2p.c ---- */
void tutti_letter_begin(struct tutti_team *team, struct tutti_letter *letter);
bool tutti_letters_run(struct tutti_team *team, bool retry);
void tutti_letters_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                           const void *payload);
void tutti_letters_credit(struct tutti_channel *channel, const struct tutti_packet *packet);
void tutti_letters_fail(struct tutti_team *team, const struct tutti_error *error);
/* Whether credits for envelopes are due. */
bool tutti_letters_owe(const struct tutti_team *team, const struct tutti_channel *channel);

/* ---- watch.c ---- */
void tutti_engine_watch(struct tutti_engine *engine, uint64_t now_ns);
void tutti_engine_watch_by(struct tutti_engine *engine, uint64_t when_ns);

/* ---- sentence.c: what a call is, as text ---- */
#define TUTTI_CALL_TEXT 256
/* "all_reduce(float32, 1024 elements, sum)" */
void tutti_say_board(const struct tutti_board *board, char *out, size_t capacity);
/* "all_reduce #17 (float32, 1024 elements, sum, tag 'grad') on communicator 4f2a"; team and tag may be NULL. */
void tutti_say_call(const struct tutti_team *team, const struct tutti_board *board, const char *tag, char *out,
                    size_t capacity);
void tutti_say_flight(const struct tutti_flight *flight, char *out, size_t capacity);
void tutti_say_letter(const struct tutti_letter *letter, char *out, size_t capacity);
void tutti_board_fill(struct tutti_board *board, const struct tutti_flight *flight);
/* ", sum" and the like at the end of a text; cut where the room ends. */
void tutti_say(char *out, size_t capacity, const char *format, ...) TUTTI_PRINTF(3, 4);
void tutti_say_duration(char *out, size_t capacity, uint64_t ns);
/* Of a peer that is waited for; board: what it shows, NULL: nothing. */
void tutti_say_state(const struct tutti_board *board, enum tutti_life life, uint64_t seq, uint32_t peer, char *out,
                     size_t capacity);

/* ---- report.c: failures that are found here; each breaks the team with a sentence ---- */
/* What the peer published of this team, and did past the engine; false if it did not publish anything, or something
 * else took its place. The signature is 0 where it is not known. */
bool tutti_team_peek(struct tutti_team *team, uint32_t peer, struct tutti_board *out);
/* What control knows of a peer; nothing is sent any more to one that is dead. Any thread. */
enum tutti_life tutti_team_life(struct tutti_team *team, uint32_t peer);
/* count, call: of the peer's packet. */
void tutti_report_mismatch(struct tutti_team *team, const struct tutti_flight *flight, uint32_t peer, uint64_t count,
                           uint64_t call);
void tutti_report_sizes(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step, uint64_t sent,
                        uint64_t expected);
/* The peer has completed the call, and what this step waits for never came. */
void tutti_report_in_vain(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step);
void tutti_report_timeout(struct tutti_team *team, const struct tutti_flight *flight);
void tutti_report_letter_timeout(struct tutti_team *team, const struct tutti_letter *letter);
/* where: the call, as text. */
void tutti_report_lost(struct tutti_team *team, uint32_t peer, enum tutti_life life, const char *where,
                       const struct tutti_flight *flight, uint32_t step);
/* The peer that the oldest step of a slice, or its runner, waits for; -1: none. */
int32_t tutti_slice_awaits(const struct tutti_slice *slice);
/* The oldest active slice of a flight, NULL: it is behind others. */
const struct tutti_slice *tutti_flight_oldest(const struct tutti_team *team, const struct tutti_flight *flight);

#endif
