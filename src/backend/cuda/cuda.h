/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_CUDA_CUDA_H
#define TUTTI_BACKEND_CUDA_CUDA_H

/* The back end `cuda`: collectives of NVIDIA GPUs of one host as few launches of few kernels
 * (device/cuda/kernels/exchange.h). What a call becomes is a pure function of the call and of what all members agree
 * on: a method, chosen from a table, gives the call's steps one by one; a step is a kernel's exchange, a copy or a
 * meeting. Everything else is bookkeeping: scratch memory that peers map, order on streams, a log of calls and a watch.
 *
 * cuda_layout.c: scratch. cuda_plan.c: steps. cuda_direct.c, cuda_engines.c: steps in windows. cuda_speed.c: what they
 * rest on. cuda_methods.c: the table, the choice. cuda_open.c: opening. cuda_enqueue.c: calls. cuda_batch.c: groups of
 * them. cuda_messages.c: point-to-point. cuda_windows.c: windows. cuda_program.c, cuda_schedule.c: schedules that calls
 * name. cuda_log.c: what ranks called. cuda_watch.c: failures. cuda_close.c: closing, and memory that outlives it. */

#include "backend/cuda/cuda_program.h"
#include "backend/cuda/cuda_speed.h"
#include "backend/device.h"
#include "device/cuda/kernels/exchange.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- scratch (cuda_layout.c) ---- */
#define CUDA_SCRATCH_DEFAULT ((size_t)64 << 20)
#define CUDA_LEAST_BLOCKS 4 /* of a launch */
/* The largest layout of at most `budget` bytes; `bounce` bytes of private memory come after layout.bytes. False: the
 * budget does not suffice. Pure, so that all members have one layout. */
bool cuda_layout(uint32_t n, size_t budget, uint32_t n_blocks, struct cuda_layout *out, size_t *bounce);
/* How many blocks a launch of a rank may have: kernels of a collective wait for one another, so those of all ranks on a
 * GPU have to be there at once. */
uint32_t cuda_blocks_for(uint32_t n_sms, uint32_t ranks_on_gpu);

/* ---- steps ---- */
enum cuda_protocol {
    CUDA_LINES,
    CUDA_SENTINEL,
    CUDA_SENTINEL2,
    CUDA_BATCH_LINES,
    CUDA_BATCH_SENTINEL, /* up to here kernels wait by themselves for what is ahead of them */
    CUDA_TILES,
    CUDA_DIRECT,
    CUDA_FOLD,
    CUDA_PLAN,
    CUDA_N_PROTOCOLS
};
enum cuda_act { CUDA_LAUNCH, CUDA_COPY, CUDA_MEET, CUDA_FORK, CUDA_JOIN };

/* What a step does. Exchanges are filled but for `call`; so is `direct` in its steps, and the exchange is not;
 * sentinel2 has in, out, result_bytes (of the whole) and send[0].bytes (of a shard); folds have `from` and out and
 * result_bytes; batches are in the instance's struct cuda_batch, but for `call` and units. */
struct cuda_step {
    enum cuda_act act;
    enum cuda_protocol protocol;
    bool folds;       /* else it moves */
    bool scales;      /* the factor of premul_sum is applied here */
    uint32_t divisor; /* 0: none */
    uint32_t blocks;  /* 0: nothing to be done by this rank */
    uint32_t threads;
    uint32_t lane; /* 0: the caller's stream, 1: the own one, which FORK and JOIN tie to it */
    char *dst;     /* copies */
    const char *src;
    size_t bytes;
    const char *from[CUDA_MAX_RANKS];
    struct cuda_exchange exchange;
    struct cuda_direct direct;
};

/* Where a plan is made: all but what is of this rank's memory is equal on all members. */
struct cuda_place {
    uint32_t n, me;
    const struct cuda_speed *speed;
    struct cuda_layout layout;
    bool has[CUDA_N_PROTOCOLS][TUTTI_N_DTYPES + 1]; /* kernels that fold the dtype; last: that move */
    size_t bounce_bytes;
    char *bounce;
    char *own;                   /* windows: the base of the own one that holds the call's output, NULL: none does */
    uint64_t block;              /* and the identity of its memory when it was made */
    uint64_t where;              /* which one, and at which offset: equal on all members, or they differ */
    char *peers[CUDA_MAX_RANKS]; /* and where the others' are mapped */
};

struct cuda_method {
    const char *name;
    bool in_windows; /* fits only what is in a window on all ranks */
    bool (*fits)(const struct cuda_place *place, const struct tutti_backend_call *call);
    double (*cost_ns)(const struct cuda_place *place, const struct tutti_backend_call *call);
    /* The i-th step; false: there are no more. */
    bool (*step)(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                 struct cuda_step *out);
};
extern const struct cuda_method cuda_alone, cuda_lines, cuda_sentinel, cuda_sentinel2, cuda_sentinels, cuda_tiles,
    cuda_tiles2, cuda_relay, cuda_direct, cuda_engines;

/* ---- what calls are (cuda_plan.c) ---- */
/* Bytes of as many elements as the call counts. */
size_t cuda_call_bytes(const struct tutti_backend_call *call);
/* Whether it adds up, to divide or scale besides: some types have faster kernels for that. */
bool cuda_sums(const struct tutti_backend_call *call);
/* Bytes of a block, the largest of the blocks of v forms that all members know; 0 where they do not (gather_v,
 * scatter_v, all_to_all_v: *known is false). */
size_t cuda_block_bytes(const struct cuda_place *place, const struct tutti_backend_call *call, bool *known);
/* The k-th of n parts of so many bytes, all but the last ones equal, multiples of CUDA_SHARD_UNIT. */
#define CUDA_SHARD_UNIT 128
struct cuda_part cuda_shard(size_t bytes, uint32_t n, uint32_t k);
/* Begins a step: an exchange between these buffers, of no parts. */
void cuda_step_begin(struct cuda_step *step, enum cuda_protocol protocol, const void *in, void *out);
/* Whether there is a kernel for the call's type, or to move. */
bool cuda_has(const struct cuda_place *place, const struct tutti_backend_call *call, enum cuda_protocol protocol);
/* Who sends to whom, and whether each has a block of its own. */
void cuda_batch_form(const struct cuda_place *place, const struct tutti_backend_call *call, struct cuda_batch *out);
/* The call as one exchange whose parts fit into slots of so many bytes a block; and that as a step. */
bool cuda_slot_fits(const struct cuda_place *place, const struct tutti_backend_call *call, enum cuda_protocol protocol,
                    uint32_t slot_bytes);
bool cuda_slot_step(const struct cuda_place *place, const struct tutti_backend_call *call, enum cuda_protocol protocol,
                    uint32_t slot_bytes, struct cuda_step *out);
/* Ends a step: blocks and threads that its parts ask for. */
void cuda_step_tiles(const struct cuda_place *place, struct cuda_step *step);
/* A step in which each rank folds, by tiles, its own shard of [at, +bytes), which goes to `to` on this rank. */
void cuda_step_fold_shards(const struct cuda_place *place, const struct tutti_backend_call *call, size_t at,
                           size_t bytes, char *to, struct cuda_step *out);
/* Where a peer has the byte of the call's output that is `at` in mine. The call is in a window. */
char *cuda_place_there(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t peer, size_t at);

/* ---- the choice (cuda_methods.c) ---- */
extern const struct cuda_method *const cuda_methods[];
extern const size_t cuda_n_methods;
/* All that can do it, and which of them would be chosen. wanted: as below. */
size_t cuda_candidates(const struct cuda_place *place, const struct tutti_backend_call *call, const char *wanted,
                       struct tutti_backend_candidate *out, size_t capacity);
/* NULL: it can not be done here. wanted: "" or the name of the one to be used where it can. */
const struct cuda_method *cuda_choose(const struct cuda_place *place, const struct tutti_backend_call *call,
                                      const char *wanted, double *ns);

/* ---- batches (cuda_batch.c) ---- */
/* The first calls of several as one exchange. */
struct cuda_run {
    size_t n;                         /* calls; 1: the first one alone */
    const struct cuda_method *method; /* by which all are one call */
    enum cuda_protocol protocol;
    struct tutti_backend_call whole; /* that call; its buffers are the first one's */
};
/* How many of the first of n calls to fuse: as long as that is predicted to take no longer than one by one (wanted
 * "batch": as long as it can be done). Pure over what is equal on all members. */
void cuda_run_plan(const struct cuda_place *place, const struct tutti_backend_call *calls, size_t n, const char *wanted,
                   struct cuda_run *out);
/* The segments of n calls that were planned as one run, in their order. */
void cuda_run_fill(const struct cuda_place *place, const struct tutti_backend_call *calls, size_t n,
                   struct cuda_batch *out);
/* How many of the first of n planned calls may run at once on this rank: none but the first uses a result of another,
 * or writes what another one uses, and all have one factor. */
size_t cuda_run_independent(const struct cuda_place *place, const struct tutti_backend_call *calls, size_t n);

/* ---- the log (cuda_log.c): what each rank called, in memory of the host that all of them map ---- */
#define CUDA_LOG_ENTRIES 256
struct cuda_entry {
    _Atomic uint64_t seq, signature, call, count; /* call: tutti_call_word */
    _Atomic uint64_t hash;                        /* of all signatures up to this one */
};
struct cuda_letters { /* messages with one peer: how many, and a hash of the sizes of the first n at n % 2 */
    _Atomic uint64_t n, hash[2];
};
/* Collectives and messages in the order in which the rank enqueued them. */
#define CUDA_LOG_ITEMS 256
#define CUDA_MESSAGES (UINT64_C(1) << 55)
static inline uint64_t cuda_launch_seq(uint64_t launch) /* the collective's; 0: messages */
{
    return launch & CUDA_MESSAGES ? 0 : launch;
}
struct cuda_item {
    _Atomic uint64_t launch; /* as kernels report it: a collective's number, or of messages CUDA_MESSAGES | another */
    _Atomic uint64_t with;   /* messages: 2 * peer, + 1 if it is sent */
    _Atomic uint64_t nth;    /* ... between the two in that direction, from 1 */
    _Atomic uint64_t bytes, timeout_ns;
};
struct cuda_log {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t n; /* entries posted */
    _Atomic uint64_t over;                         /* the last call that is known to be over, and all before it */
    _Atomic uint64_t n_items, items_over;          /* posted; known to be over, since no graph holds any */
    _Atomic uint32_t closed;                       /* the rank has closed its side */
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t dropped[CUDA_MAX_RANKS]; /* members that touch its scratch no more */
    struct cuda_letters sent[CUDA_MAX_RANKS], received[CUDA_MAX_RANKS];
    struct cuda_entry entries[CUDA_LOG_ENTRIES];
    struct cuda_item items[CUDA_LOG_ITEMS];
};
/* where: of the place, by a method that is for windows, so that who calls in another one, or in none, is found out; 0:
 * by another. timeout_ns: of the launch. */
void cuda_log_post(struct cuda_log *log, const struct tutti_backend_call *call, uint64_t where, uint64_t timeout_ns);
/* launch: cuda_log_round, before the first of those that go together. */
void cuda_log_message(struct cuda_log *log, uint64_t launch, uint32_t peer, bool sends, size_t bytes,
                      uint64_t timeout_ns);
uint64_t cuda_log_round(const struct cuda_log *log);
/* The last entry as a board; false: it has called nothing. */
bool cuda_log_last(const struct cuda_log *log, struct tutti_board *out);
/* The entry of call `seq`; false: it is not there, or not any more. */
bool cuda_log_find(const struct cuda_log *log, uint64_t seq, struct tutti_board *out);
/* The deadline of a launch, or `otherwise` where it is forgotten. */
uint64_t cuda_log_timeout(const struct cuda_log *log, uint64_t launch, uint64_t otherwise);
/* Whether two ranks called different things, as far as both have come and remember: then what each called. */
bool cuda_log_differ(const struct cuda_log *mine, const struct cuda_log *theirs, struct tutti_board *my_call,
                     struct tutti_board *their_call);

/* The first of my calls that they have not made; false: there is none, or it is forgotten. */
bool cuda_log_ahead(const struct cuda_log *mine, const struct cuda_log *theirs, struct tutti_board *out);

/* Two ranks' logs: this one's, a peer's. */
struct cuda_log_pair {
    const struct cuda_log *mine, *theirs;
    uint32_t me, peer;
};
/* Whether messages between the two have other sizes for one than for the other, found where both have come equally far:
 * after the first *n. */
bool cuda_log_letters(const struct cuda_log_pair *pair, uint64_t *n);

/* What watches make of logs, here and in nccl. The last call of a rank, and what has become of it, as engines' boards
 * say it; kind TUTTI_N_KINDS: it has called nothing. */
void cuda_log_board(const struct cuda_log *log, struct tutti_board *out);
/* The call of that number, or, where it is forgotten, its number alone. */
void cuda_log_call(const struct cuda_log *log, uint64_t seq, struct tutti_board *out);
/* The call of a launch that waits for the peer, or the message, of several rather one that the peer has not made. */
void cuda_log_launched(const struct cuda_log_pair *pair, uint64_t launch, struct tutti_board *out);
/* Whether the peer has not made all calls and messages that this rank has made. */
bool cuda_log_behind(const struct cuda_log_pair *pair);
/* Whether the peer has made its parts of a launch; whether it knows all that this rank made with it to be over. */
bool cuda_log_made(const struct cuda_log_pair *pair, uint64_t launch);
bool cuda_log_done(const struct cuda_log_pair *pair);
/* The first call or message, of those not known to be over, that waits for what the peer has not made; if it `died`,
 * rather one that it has made, but is not known to have done. Of what is forgotten, the first collective, or its number
 * alone. False: there is none. */
bool cuda_log_awaits(const struct cuda_log_pair *pair, bool died, struct tutti_board *out);
/* The peer's life as the transport knows it, for those who wait: who has left has closed its side when all it called
 * was over, and counts as alive where nothing waits for more. *out: what waits for who is gone. */
enum tutti_life cuda_log_life(const struct cuda_log_pair *pair, enum tutti_life life, struct tutti_board *out);
/* Two ranks called different things, one of them something on host memory, or one sent what the other does not receive.
 */
struct cuda_mismatch {
    enum { CUDA_CALLS_DIFFER, CUDA_CALLED_ELSEWHERE, CUDA_SIZES_DIFFER } what;
    struct tutti_board mine, theirs; /* calls, those of which there are */
    uint64_t n;                      /* of messages */
};
/* Whether there is one, and what; the team then fails with its sentence. */
bool cuda_log_mismatch(struct tutti_team *team, const struct cuda_log_pair *pair, struct cuda_mismatch *out);
void cuda_log_tell(struct tutti_team *team, const struct cuda_log_pair *pair, const struct cuda_mismatch *found);
/* Whether a peer has been gone long enough, since it may have done its part before; *since_ns is kept from look to
 * look, 0 at first. */
bool cuda_log_gone(uint64_t *since_ns, enum tutti_life life, uint64_t now);

/* ---- an instance ---- */
enum { CUDA_REDUCERS = TUTTI_N_DTYPES + 1, CUDA_MOVE = TUTTI_N_DTYPES };
struct cuda_window {
    char *base;
    uint64_t id;        /* of what all brought: equal on all ranks */
    uint64_t block;     /* identity of the own memory */
    size_t part, bytes; /* of this rank; that all ranks have */
    char *peers[CUDA_MAX_RANKS];
    void *imports[CUDA_MAX_RANKS]; /* NULL: own process's */
};
#define CUDA_WINDOWS 64
struct cuda_choice { /* what was chosen */
    uint64_t by;
    const struct cuda_method *method;
};
#define CUDA_CHOICES 64

struct cuda_backend {
    struct tutti_device_backend base;
    struct tutti_gpu *gpu; /* a reference of its own: scratch may outlive the communicator */
    struct tutti_transport *transport;
    struct tutti_control *lives; /* who does */
    struct tutti_team *team;
    uint32_t members[CUDA_MAX_RANKS]; /* of the transport */
    uint32_t n, me;
    char forced[16];
    uint64_t gone_ns[CUDA_MAX_RANKS]; /* the watch's: when a peer was first found gone */

    char *scratch;
    size_t scratch_bytes;
    unsigned char offer[TUTTI_GPU_HANDLE_BYTES]; /* of the scratch, until all have connected */
    struct cuda_control *control;
    char *bases[CUDA_MAX_RANKS];
    void *imports[CUDA_MAX_RANKS]; /* of other processes, to be given back */
    struct cuda_place place;
    struct cuda_speed speed; /* the first member's */
    bool alone;              /* no GPU serves two members */
    struct {                 /* the fast one, else the general one */
        void *any, *sum;
    } kernels[CUDA_N_PROTOCOLS][CUDA_REDUCERS];
    void *meet, *messages; /* messages_16 */

    struct cuda_log *logs[CUDA_MAX_RANKS];
    bool addresses;          /* logs are addresses of this process */
    bool cards_seen, agreed; /* by this member; all members know how opening has ended */
    bool watched;

    /* calls; all under the communicator's turn */
    struct cuda_choice choices[CUDA_CHOICES];
    struct cuda_step step;
    struct cuda_two_shot two_shot;
    struct cuda_batch batch;
    struct cuda_fold fold;
    struct cuda_meeting meeting;
    struct cuda_lists lists;
    struct cuda_plan plan;
    void *event, *stream; /* event: after the last eager call, on stream */
    uint64_t posted_seq;
    uint64_t capture; /* the last call was captured in it, at node */
    void *capture_stream, *node;
    void *lanes[2];               /* own streams: of calls made at once, of those that are captured */
    void *lane, *forked, *joined; /* the call's, and events that tie it to the caller's */
    pthread_mutex_t lock;         /* of what follows: the watch reads it */
    struct cuda_window windows[CUDA_WINDOWS];
    uint32_t n_windows;
    struct cuda_programs programs;

    /* the watch */
    struct cuda_backend *next;
    _Atomic uint64_t timeout_ns; /* of the last call */
    _Atomic uint64_t n_enqueued; /* eager calls, */
    _Atomic uint64_t last_seq;   /* the number of the last, */
    _Atomic uint64_t last_items; /* how many items the log had then, */
    _Atomic uint64_t n_over;     /* and those that are seen to be over */
    _Atomic bool captured;       /* graphs hold calls: any may be in flight at any time */
    _Atomic uint64_t stop_ns;    /* closing: when what graphs replay is stopped; 0: not */
    _Atomic bool told;           /* the team has failed, and the device is stopped */
};

/* cuda_watch.c: begins and ends to look after an instance. */
enum tutti_status cuda_watch_add(struct cuda_backend *backend);
void cuda_watch_remove(struct cuda_backend *backend);
void cuda_watch_wake(void);                        /* something was enqueued */
void cuda_watch_now(struct cuda_backend *backend); /* looks, on this thread */

/* cuda_enqueue.c */
enum tutti_status cuda_enqueue(struct tutti_device_backend *backend, const struct tutti_backend_call *call,
                               void *stream);
enum tutti_status cuda_messages(struct tutti_device_backend *backend, const struct tutti_device_message *messages,
                                size_t n, void *stream, uint64_t timeout_ns);
/* What a rank sends to itself: the next pair of a batch, its k-th that is sent and its k-th that is received (at: where
 * it goes on, zeros at first). AGAIN: there is none left; ARGUMENT: they are no pair. */
struct cuda_own {
    size_t at[2];
    const struct tutti_device_message *sent, *received;
};
enum tutti_status cuda_own_next(const struct tutti_device_message *messages, size_t n, uint32_t me,
                                struct cuda_own *own);
/* Whether two handles are one stream: the default stream of a thread (2) is another one in each thread. */
static inline bool cuda_one_stream(const void *a, const void *b)
{
    return a == b && (uintptr_t)a != 2;
}
/* Between them: the order of streams, whatever is enqueued. */
enum tutti_status cuda_order_begin(struct cuda_backend *b, void *stream, uint64_t *capture);
enum tutti_status cuda_order_end(struct cuda_backend *b, void *stream, uint64_t capture);
enum tutti_status cuda_step_run(struct cuda_backend *b, const struct tutti_backend_call *call, void *stream);
/* Part of a call could not be enqueued, for the reason in the thread's record, and the others wait for the rest. */
enum tutti_status cuda_give_up(struct cuda_backend *b, const char *what, uint64_t seq);
/* The same, where something may have been enqueued since cuda_order_begin: closing waits for that, too. */
enum tutti_status cuda_give_up_half(struct cuda_backend *b, const char *what, uint64_t seq, void *stream,
                                    uint64_t capture);
/* OK, or why nothing can be enqueued any more. */
enum tutti_status cuda_state(struct cuda_backend *b);

/* cuda_batch.c */
enum tutti_status cuda_batch(struct tutti_device_backend *backend, const struct tutti_backend_call *calls, size_t n,
                             void *stream);

/* cuda_schedule.c: calls whose schedule is named (bind.schedule) */
double cuda_schedule_score(struct cuda_backend *b, const struct tutti_backend_call *call); /* HUGE_VAL: it can not */
enum tutti_status cuda_schedule_run(struct cuda_backend *b, const struct tutti_backend_call *call, void *stream);

/* cuda_windows.c */
enum tutti_status cuda_window_add(struct tutti_device_backend *backend, const struct tutti_device_window_card *cards,
                                  size_t stride, void *own, size_t bytes, void **peers);
void cuda_window_remove(struct tutti_device_backend *backend, void *own);
/* Whether it is in place, of a reduction of blocks wherever in the input the output lies: equal on all members, as
 * windows have it. */
bool cuda_call_in_place(const struct cuda_place *place, const struct tutti_backend_call *call);
/* ARGUMENT: the memory of the window in which the call's output lies was freed under it. */
enum tutti_status cuda_window_check(const struct cuda_backend *b, const struct cuda_place *place);
/* Says in which window the call's output lies. */
void cuda_window_place(const struct cuda_backend *b, const struct tutti_backend_call *call, struct cuda_place *place);
void cuda_windows_close(struct cuda_backend *b);

/* cuda_close.c */
void cuda_connected(struct tutti_device_backend *backend);
void cuda_close(struct tutti_device_backend *backend, uint64_t deadline_ns);
void cuda_stop(struct tutti_device_backend *backend);
void cuda_discard(struct cuda_backend *b); /* which nobody else knows of yet */
/* Gives back what is retired and no peer can touch any more; all: also what is in the transport's memory. */
void cuda_sweep(struct tutti_transport *transport, bool all);

#endif
