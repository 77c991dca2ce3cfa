/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_GPU_GPU_BACKEND_H
#define TUTTI_BACKEND_GPU_GPU_BACKEND_H

/* The back ends `cuda` and `xpu`: collectives of GPUs of one host, as few launches of few kernels. What a call becomes
 * is decided without a device (gpu_plan.h); here it is enqueued, and this is the bookkeeping for that: scratch memory
 * that peers map, order on streams, windows, and what the watch (backend/watch.h) has to know.
 *
 * It may use the engine and all below it. Begin with gpu_enqueue.c: a call, the order of calls on
 * streams, calls that fail half way, and groups. gpu_launch.c: steps. gpu_maps.c: ordinary memory that peers map.
 * gpu_messages.c: point-to-point. gpu_windows.c: windows. gpu_onesided.c: one-sided calls on them. gpu_tracks.c:
 * their streams. gpu_open.c, gpu_close.c: from the card to memory that outlives the instance. gpu_watch.c:
 * what this back end tells the watch. */

#include "backend/gpu/gpu_plan.h"
#include "backend/watch.h"
#include "device/gate.h"
#include "device/gpu.h"

#include <pthread.h>
#include <stdatomic.h>

enum { GPU_REDUCERS = TUTTI_N_DTYPES + 1, GPU_MOVE = TUTTI_N_DTYPES };
struct gpu_window {
    char *base;
    uint64_t id;        /* the identity of what all brought: equal on all ranks */
    uint64_t block;     /* identity of the own memory */
    size_t part, bytes; /* this rank's; what all ranks have */
    char *peers[GPU_MAX_RANKS];
    void *imports[GPU_MAX_RANKS]; /* NULL: own process's */
    void *word_imports[GPU_MAX_RANKS];
};
#define GPU_WINDOWS 64
struct gpu_words { /* a window's, on this device, on this device */
    struct gpu_words *next;
    void *at;
    size_t bytes;
    bool in_use;
};
/* A stream on which one-sided calls were enqueued, and an event behind the last one. */
struct gpu_track {
    void *stream, *event;
    uint32_t n_users;                /* threads that are enqueuing */
    uint64_t n_ended;                /* enqueued, event recorded */
    uint64_t n_over;                 /* launches that are known to be over */
    struct tutti_backend_await wait; /* the last one, */
    uint64_t waits;                  /* and which of the track's calls it is, from 1; 0: there was none */
};
#define GPU_TRACKS 64
/* What the device found in a word, on its way to memory of the host: pinned. */
struct gpu_cell {
    uint64_t value;
    uint32_t there;
    bool kept; /* true in a graph, which may be replayed */
    uint64_t *to;
    struct gpu_cell *next;
    struct gpu_backend *backend;
};
struct gpu_onesided {
    pthread_mutex_t lock; /* guards all below; not held across calls of the driver */
    struct gpu_track tracks[GPU_TRACKS];
    uint32_t n_tracks;
    struct gpu_cell *idle;
    struct gpu_cell_page *pages;
    void *access, *await;    /* kernels */
    _Atomic bool by_kernels; /* users' kernels may wait at any time */
};
/* Ordinary memory that peers map (gpu_maps.c): rows of this rank's allocations, which it offers to peers in the log
 * that they map; and where it has mapped theirs. A row is written again when no peer has what was in it. */
#define GPU_MAPS 256
struct gpu_offer {
    _Atomic uint64_t number; /* written last; 0: none */
    uint64_t address, bytes, offset;
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
};
struct gpu_taken {
    _Atomic uint64_t number; /* the offer that was taken, written last */
    _Atomic uint64_t there;  /* where its memory is mapped; 0: it can not be */
};
struct gpu_log { /* a member's */
    struct watch_log log;
    _Atomic uint32_t n_rows; /* that it has used so far */
    struct gpu_offer offers[GPU_MAPS];
    struct gpu_taken taken[GPU_MAX_RANKS][GPU_MAPS];
};
/* A row goes from each to the next, and back to NONE at the end. */
enum gpu_map { GPU_MAP_NONE, GPU_MAP_NEW, GPU_MAP_OFFERED, GPU_MAP_KNOWN, GPU_MAP_REFUSED, GPU_MAP_LEAVING };
struct gpu_own {
    struct tutti_gpu_range range;
    uint64_t number;
    enum gpu_map state;
    bool replayed; /* graphs have calls that look it up */
};
struct gpu_maps {
    pthread_mutex_t lock; /* guards `own`: calls add rows, the asking thread alone changes them */
    struct gpu_own own[GPU_MAPS];
    struct gpu_known *known;                /* pinned */
    uint64_t n_seen;                        /* allocations, */
    uint64_t n_looks;                       /* and looks of the asking thread, which alone counts them, */
    uint64_t asked, ask_ns;                 /* the one that asked for free memory last; when to ask again */
    _Atomic bool scarce;                    /* there is so little that nothing is offered */
    _Atomic bool placing;                   /* a call has addresses, and is not counted as enqueued yet */
    void *imports[GPU_MAX_RANKS][GPU_MAPS]; /* NULL: own process's, or nothing */
};
struct gpu_choice { /* what was chosen */
    uint64_t by;
    const struct gpu_method *method;
};
#define GPU_CHOICES 64

struct gpu_backend {
    struct tutti_backend base;
    struct watched watched;
    struct tutti_device *gpu; /* a reference of its own: scratch may outlive the communicator */
    char forced[16];

    uint64_t nonce; /* the world's */
    char *scratch;
    size_t scratch_bytes;
    unsigned char offer[TUTTI_DEVICE_HANDLE_BYTES]; /* for the scratch, until all have connected */
    struct gpu_control *control;
    char *bases[GPU_MAX_RANKS];
    void *imports[GPU_MAX_RANKS]; /* memory of other processes, to be given back */
    struct gpu_site site;
    struct gpu_speed speed; /* the first member's */
    bool alone;             /* no GPU serves two members */
    uint32_t no_atomics;    /* bit q: at member q's GPU atomics of this one are none */
    struct {                /* the fast one, else the general one */
        void *any, *sum;
    } kernels[GPU_N_PROTOCOLS][GPU_REDUCERS];
    void *meet, *gate, *messages; /* messages_16 */
    void *arrive;                 /* mapped_arrive_16 */
    uint32_t overlap_blocks;      /* the most of a call that overlaps computation */
    void *counted_tiles;          /* tiles_counted_16 */

    /* calls; all under the communicator's turn. Parameters of kernels, whose calls are filled as far as all calls have
     * them in common. */
    struct gpu_choice choices[GPU_CHOICES];
    struct gpu_step step;
    struct gpu_two_shot two_shot;
    struct gpu_batch batch;
    struct gpu_fold fold;
    struct gpu_meeting meeting;
    struct gpu_gate gate_of; /* a call */
    struct gpu_lists lists;
    struct gpu_counted counted;
    struct gpu_mapped mapped;
    bool captures;        /* the call at hand is captured */
    void *event, *stream; /* event: after the last eager call, on stream */
    uint64_t posted_seq;
    uint64_t capture; /* the last call was captured in it, at node */
    void *capture_stream, *node;
    void *own_streams[2];               /* for calls made at once, for those that are captured */
    void *own_stream, *forked, *joined; /* the call's, and events that tie it to the caller's */
    pthread_mutex_t lock;               /* guards windows: calls are scored on any thread */
    struct gpu_window windows[GPU_WINDOWS];
    uint32_t n_windows;
    struct gpu_words *words; /* under lock; the scratch is the last of them */
    enum tutti_device_share share;
    struct gpu_onesided one;
    struct gpu_maps maps;

    /* for the watch */
    _Atomic uint64_t timeout_ns; /* the last call's */
    _Atomic uint64_t last_seq;   /* the number of the last eager call, */
    _Atomic uint64_t last_items; /* and how many items the log had then */
    _Atomic uint64_t stop_ns;    /* closing: when what graphs replay is stopped; 0: not */
};
static inline struct gpu_backend *gpu_of(const struct tutti_backend *backend)
{
    return (struct gpu_backend *)(uintptr_t)backend; /* its first member */
}
static inline struct watch_log *gpu_log(const struct gpu_backend *b)
{
    return watch_own_log(&b->watched);
}
/* As kernels have it. */
static inline uint64_t gpu_timeout_ns(const struct gpu_backend *b)
{
    return b->timeout_ns == TUTTI_NEVER ? 0 : b->timeout_ns;
}

/* ---- gpu_open.c ---- */
#define GPU_PROBE_BYTES 4096 /* at the end of the scratch */
enum tutti_status gpu_probe_begin(struct gpu_backend *b);
/* UNSUPPORTED: the peer's memory, which is mapped, is not what it seems. Its scratch has so many bytes. */
enum tutti_status gpu_probe_peer(struct gpu_backend *b, uint32_t r, size_t scratch_bytes);

/* ---- gpu_enqueue.c ---- */
enum tutti_status gpu_counted_enqueue(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream);

/* ---- gpu_enqueue.c ---- */
/* Between them: the order of streams, whatever is enqueued. */
enum tutti_status gpu_order_begin(struct gpu_backend *b, void *stream, uint64_t *capture);
enum tutti_status gpu_order_end(struct gpu_backend *b, void *stream, uint64_t capture);
/* One stream goes on when the other has come here. */
enum tutti_status gpu_tie(struct gpu_backend *b, void *before, void *after, void *event);
/* Stops all that waits on the device. Any thread. */
void gpu_stop(struct gpu_backend *b);
/* ... and keeps what comes later from beginning. */
void gpu_freeze(struct tutti_backend *backend);
/* Part of a call could not be enqueued, for the reason in the thread's record, and the others wait for the rest. */
enum tutti_status gpu_give_up(struct gpu_backend *b, const char *what, uint64_t seq);
/* The same, where something may have been enqueued since gpu_order_begin: closing waits for that, too. */
enum tutti_status gpu_give_up_half(struct gpu_backend *b, const char *what, uint64_t seq, void *stream,
                                   uint64_t capture);
/* OK, or why nothing can be enqueued any more. */
enum tutti_status gpu_state(struct gpu_backend *b);

/* ---- gpu_launch.c ---- */
/* Enqueues b->step of the call. */
enum tutti_status gpu_step_run(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream);
/* Enqueues the call's gate. */
enum tutti_status gpu_gate_run(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream);

/* ---- gpu_enqueue.c, gpu_messages.c ---- */
enum tutti_status gpu_enqueue(struct tutti_backend *backend, const struct tutti_backend_call *call, void *stream);
enum tutti_status gpu_messages(struct tutti_backend *backend, const struct tutti_backend_message *messages, size_t n,
                               void *stream, uint64_t timeout_ns);
enum tutti_status gpu_batch(struct tutti_backend *backend, const struct tutti_backend_call *calls, size_t n,
                            void *stream);

/* ---- gpu_windows.c ---- */
enum tutti_status gpu_window_add(struct tutti_backend *backend, const struct tutti_window_cards *cards,
                                 const struct tutti_window_places *out);
void gpu_window_remove(struct tutti_backend *backend, void *own);
enum tutti_status gpu_words_take(struct tutti_backend *backend, size_t bytes, void **out);
void gpu_words_give(struct tutti_backend *backend, void *words);
/* ARGUMENT: the memory of the window in which the call's output lies was freed under it. */
enum tutti_status gpu_window_check(const struct gpu_backend *b, const struct gpu_site *site);
/* Says in which window the call's output lies. */
void gpu_window_site(const struct gpu_backend *b, const struct tutti_backend_call *call, struct gpu_site *site);
void gpu_windows_close(struct gpu_backend *b);

/* ---- gpu_maps.c ---- */
enum tutti_status gpu_maps_open(struct gpu_backend *b);
void gpu_maps_close(struct gpu_backend *b); /* nothing is under way, and nobody tends them */
void gpu_maps_tend(struct gpu_backend *b);  /* beside calls; waits for the driver */
/* import_memory, by a thread of the user: waits until ordinary memory is unmapped that lay there before. */
enum tutti_status gpu_import(struct gpu_backend *b, const unsigned char *handle, void **out);
/* Where peers have the buffer, for a call that is enqueued, or captured. Zeros: not all have it. */
void gpu_maps_place(struct gpu_backend *b, const void *pointer, size_t bytes, bool captured, struct gpu_place *out);

/* ---- gpu_onesided.c: calls on windows, gpu_tracks.c: their streams and results, under no turn ---- */
enum tutti_status gpu_access(struct tutti_backend *backend, const struct tutti_backend_access *access, void *stream);
enum tutti_status gpu_await(struct tutti_backend *backend, const struct tutti_backend_await *await, void *stream);
enum tutti_status gpu_read_word(struct tutti_backend *backend, uint64_t *word, void *stream, uint64_t deadline_ns,
                                uint64_t *out);
void gpu_alarm(struct tutti_backend *backend, struct tutti_device_alarm *out);
/* A track for a call on the stream, until it is ended. *track is NULL in a capture. MEMORY. */
enum tutti_status gpu_track_begin(struct gpu_backend *b, void *stream, struct gpu_track **track);
/* The call was enqueued; await: it is this one; NULL: it does not wait. */
enum tutti_status gpu_track_end(struct gpu_backend *b, struct gpu_track *track,
                                const struct tutti_backend_await *await);
void gpu_track_drop(struct gpu_backend *b, struct gpu_track *track); /* it was not */
/* Asks the driver; whether all that was enqueued before is over. Below zero: the device has failed. */
enum tutti_status gpu_tracks_ask(struct gpu_backend *b);
/* What waits for the peer, as a board; false: nothing does. any: also what waits for nobody in particular, or for
 * nothing. */
bool gpu_tracks_await(struct gpu_backend *b, uint32_t peer, bool any, struct tutti_board *out);
struct gpu_cell *gpu_cell_take(struct gpu_backend *b); /* NULL: the record says why */
void gpu_cell_give(struct gpu_cell *cell);
void gpu_tracks_close(struct gpu_backend *b); /* nothing of it is under way */

/* ---- gpu_close.c ---- */
void gpu_connected(struct tutti_backend *backend);
void gpu_close(struct tutti_backend *backend, uint64_t deadline_ns);
void gpu_discard(struct gpu_backend *b); /* which nobody else knows of yet */

/* ---- gpu_watch.c ---- */
extern const struct watch_ops gpu_watch_ops;

#endif
