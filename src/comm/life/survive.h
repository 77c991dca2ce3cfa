/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_LIFE_SURVIVE_H
#define TUTTI_COMM_LIFE_SURVIVE_H

/* A communicator that survives, as its calls (survive.c) and its door (admit.c) see it. Begin with survive.c. */

#include "comm/call/call.h"
#include "comm/life/life.h"
#include "comm/life/synchrony.h"

#include <stdatomic.h>
#include <tutti/store.h>

/* Results up to so many bytes are kept, which costs less than a barrier behind the call: of small ones this many, more
 * than the machine may need; of large ones the last, for it is of a call that no rank ends before all have begun it.
 * As many calls' contributors are known. */
enum { KEEP_SMALL = 4096, N_KEPT = 64, KEEP_MOST = 1 << 20, SET_WORD = 64, LEFT_MOST = 4, LATE_MOST = 2 };

/* A result as it is kept, and as it travels: a set of contributors (bits of ranks) follows, then the result. */
struct kept {
    uint64_t call;
    int32_t status, lost; /* the call's end on all ranks; the rank that it died of, -1 */
    uint64_t bytes;
};

/* The store, as the place where newcomers wait (admit.c). */
struct tutti_door {
    struct tutti_store store; /* ops NULL: there is none, or it is not open yet */
    bool is_own;
    bool is_deaf; /* it could not be asked */
    uint64_t looked_ns;
    int64_t n_seen; /* tickets */
    struct knock *waiting;
    size_t n_waiting, capacity;
    char name[TUTTI_STORE_KEY_MAX + 1]; /* the communicator's */
    char *secret;                       /* NULL: the option's, or none */
};

/* Calls on devices that reach one another (gated.c). */
enum tutti_gates_state {
    TUTTI_GATES_WANTED, /* the first call that may go so goes through the host, and they are made behind it */
    TUTTI_GATES_CHANGE, /* calls up to `after` go through the host; who makes a later one waits */
    TUTTI_GATES_OPEN,
    TUTTI_GATES_NONE, /* in this view */
};
struct tutti_gates {
    enum tutti_gates_state state; /* the lock's, with the next three */
    uint64_t after;
    bool is_known;           /* `after` is */
    bool all;                /* all members have devices */
    struct tutti_comm *comm; /* the view's, with the devices; NULL: none. Changed as `inner` is */
    struct tutti_backend *backend;
    bool is_frozen;  /* the view has changed since: no gate is passed any more */
    uint32_t *ranks; /* as those of the view, when it was made */
    struct tutti_pinned *words_at;
    struct tutti_gate_words *words;
    struct tutti_gated_save *saves;
    void *own, *stream; /* for copies while others stand; the last call's */
    uint64_t known;     /* the signature of a call that the back end takes */
};

/* A call that a device carries out. */
struct tutti_gated_save;
struct tutti_gated {
    uint64_t number; /* 0: it does not */
    size_t saved;    /* so many bytes of its own input are overwritten: they are in `save` */
    struct tutti_gated_save *save;
    void *output;
    bool is_lost;    /* not all have the result, or it was not even enqueued, for `why`; */
    bool is_closed;  /* the stream stands at its gate; */
    bool has_result; /* this rank has it */
    bool is_void;    /* what the device did of it does not count: the view had changed before its turn */
    bool is_tried;   /* the device's part is known; */
    bool is_redone;  /* it was made good, in the pinned copies */
    struct tutti_error why;
    struct tutti_call *device; /* then: as it was called */
    struct tutti_pinned *pinned;
};

struct waiting;
struct tutti_survive {
    struct tutti_comm *comm; /* the handle */
    /* Calls go one after another, in their order: on the caller's thread if none is before it and it blocks, else on a
     * thread of this communicator. Under the lock: */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct waiting *first, **tail;
    bool is_running, has_thread, stops;
    pthread_t thread;
    /* The running call's, and between calls the lock's: */
    struct tutti_comm *inner;
    uint32_t *ranks, n; /* the view: rank of the handle by rank of inner, ascending */
    struct tutti_synchrony synchrony;
    size_t set_bytes, kept_bytes; /* a set's; those of one kept result in all */
    unsigned char *kept;          /* N_KEPT of them */
    unsigned char *kept_large;    /* two of KEEP_MOST bytes: the last large one's result, and the next one's */
    bool last_large;              /* the last one's is the second */
    unsigned char *set;           /* contributors of the last call */
    unsigned char *saved;
    size_t saved_bytes;
    bool has_saved;              /* what the call at hand overwrites; */
    bool is_shared;              /* or it goes by shares: */
    struct tutti_shares *shares; /* shares.c; NULL: none yet */
    unsigned char *sets;         /* those of the last N_KEPT calls */
    uint64_t n_before;           /* calls before this rank came */
    uint64_t n_over;             /* those that have ended; the lock's */
    bool *elders;                /* by slot of the view: who was in the one before, */
    bool is_joint;               /* while it is not known that all have come into this one */
    struct kept end;             /* how the call at hand ends */
    bool has_ended;
    struct tutti_error error; /* then: why nothing goes on */
    struct tutti_error loss;  /* what the view ended by */
    /* Worlds of views that some left though they may live: such a rank finds the others there, who are more. */
    struct tutti_family *left[LEFT_MOST];
    uint32_t n_left;
    bool has_missing;
    bool is_gathered; /* all have come into this view, */
    bool was_asked;   /* or the arbiter was asked for the one before */
    uint32_t n_late;  /* times that all members came to an agreement, late but alive, */
    uint64_t late_at; /* since this call */
    struct tutti_door door;
    /* Calls on devices (held.c), opened at the first one. */
    struct tutti_pinned_pool *pinned;
    struct tutti_pinned *word_at;
    _Atomic uint32_t *word; /* in pinned memory: calls through the host up to this one are over */
    uint64_t n_by_host;     /* the last one that waits and goes through the host; the lock's */
    struct tutti_gates gates;
    struct tutti_gated *gated; /* the running call, if a device carries it out */
    _Atomic bool is_aborted;
    char reason[128]; /* why it was aborted; written before is_aborted */
};

static inline bool set_has(const unsigned char *set, uint32_t rank)
{
    return set[rank / 8] >> rank % 8 & 1;
}
static inline void set_add(unsigned char *set, uint32_t rank)
{
    set[rank / 8] |= (unsigned char)(1u << rank % 8);
}
static inline unsigned char *set_at(const struct tutti_survive *s, uint64_t call)
{
    return s->sets + call % N_KEPT * s->set_bytes;
}
void tutti_survive_set_to_view(const struct tutti_survive *s, unsigned char *set);

/* Allocates what comm, a handle of its rank and size, needs to survive; there is no view yet. MEMORY. */
enum tutti_status tutti_survive_new(struct tutti_comm *comm, const struct tutti_comm_config *given);
/* The ranks of the view are those of the set; elders: a set of them (NULL: all). */
void tutti_survive_set_view(struct tutti_survive *s, struct tutti_comm *inner, const unsigned char *set,
                            const unsigned char *elders);
/* The same for a child of the view. */
void tutti_survive_follow(struct tutti_survive *s, struct tutti_comm *next);
/* What sentences of the view say of ranks and calls, of the next ones the call at hand. */
void tutti_survive_name_view(const struct tutti_survive *s, struct tutti_comm *view);
void tutti_survive_name_call(const struct tutti_survive *s);
/* Waits until no call is left, and keeps others out until finish. */
void tutti_survive_begin(struct tutti_survive *s);
void tutti_survive_finish(struct tutti_survive *s);
/* How long a member may be silent where the others agree on the next view. */
uint64_t tutti_survive_patience(const struct tutti_survive *s);
/* tutti_comm_next of the view, with its arbiter. */
enum tutti_status tutti_survive_next(struct tutti_survive *s, struct tutti_next *how, struct tutti_comm **out);
/* Does what the machine asks for until the call (NULL: none) is over. */
enum tutti_status tutti_survive_drive(struct tutti_survive *s, const struct tutti_call *call,
                                      enum tutti_synchrony_do next);
/* Why nothing goes on, from the thread's record. */
enum tutti_synchrony_do tutti_survive_stop(struct tutti_survive *s);

/* A call with nobody else in one; a checked call of the handle (turns.c). */
enum tutti_status tutti_survive_run(struct tutti_survive *s, const struct tutti_call *call);
enum tutti_status tutti_survive_call(struct tutti_call *call);
/* What the call overwrites of its own input: bytes of its output. */
size_t tutti_survive_overwritten(const struct tutti_call *call);

/* A large all_reduce in two phases (shares.c), whose input is intact until the second one. ready: OK, or AGAIN where it
 * does not go so, the same on all members; collective. reduce: the first phase. whole: all members have ended it. take:
 * the second one; false: this rank is so late that the others have used the memory again. */
enum tutti_status tutti_shares_ready(struct tutti_survive *s, const struct tutti_call *call);
enum tutti_status tutti_shares_reduce(struct tutti_survive *s, const struct tutti_call *call,
                                      const struct tutti_call_options *options);
bool tutti_shares_whole(const struct tutti_survive *s);
bool tutti_shares_take(const struct tutti_survive *s, const struct tutti_call *call);
void tutti_shares_close(struct tutti_survive *s);

/* A call on device memory: enqueues it on its stream; the call is then one on pinned copies. The lock is held. await:
 * the input is in them. release: the stream goes on; failed: with the input. end: frees, when the stream has passed. */
struct tutti_held;
/* Whether its buffers are of the one device, and the stream is not captured; opens the pool. */
enum tutti_status tutti_held_may(struct tutti_survive *s, const struct tutti_call *call);
enum tutti_status tutti_held_open(struct tutti_survive *s, int32_t device);
enum tutti_status tutti_held_begin(struct tutti_survive *s, struct tutti_call *call, uint64_t number,
                                   struct tutti_held **out);
enum tutti_status tutti_held_await(const struct tutti_survive *s, const struct tutti_held *held);
void tutti_held_release(struct tutti_survive *s, struct tutti_held *held, bool failed);
void tutti_held_end(struct tutti_survive *s, struct tutti_held *held);
void tutti_held_close(struct tutti_survive *s);

/* A call that devices carry out (gated.c). takes: such a call may be one, wherever its buffers are. await_turn: whether
 * it goes so, by its number, which is the next; the lock is held, and may be given away meanwhile. enqueue: AGAIN: it
 * goes through the host. follow: until it is known what became of it; where it is lost the call is one on pinned copies
 * then. result: OK, or what this rank (all: some rank) lacks it for. open: lets the stream go on, after what was made
 * good was copied; status: how the call has ended, which is returned. set: whose contributions it has. */
bool tutti_gated_takes(const struct tutti_survive *s, const struct tutti_call *call);
bool tutti_gated_await_turn(struct tutti_survive *s, const struct tutti_call *call);
enum tutti_status tutti_gated_enqueue(struct tutti_survive *s, const struct tutti_call *call, uint64_t number,
                                      struct tutti_gated *gated);
enum tutti_status tutti_gated_follow(struct tutti_survive *s, struct tutti_gated *gated, struct tutti_call *call);
enum tutti_status tutti_gated_result(struct tutti_gated *gated, bool all);
void tutti_gated_set(const struct tutti_survive *s, unsigned char *set);
enum tutti_status tutti_gated_open(struct tutti_survive *s, struct tutti_gated *gated, enum tutti_status status);
/* The last call whose gate was passed. */
uint64_t tutti_gated_passed(const struct tutti_survive *s);
/* What a member says in a new view. */
struct tutti_says {
    struct tutti_synchrony_state state;
    uint64_t last, used, all; /* the last call here; whether gates were ever asked for; all have devices */
};
/* The view changes: no gate is passed any more, and calls are kept waiting until all members have said theirs. */
void tutti_gated_change(struct tutti_survive *s, struct tutti_says *mine);
void tutti_gated_changed(struct tutti_survive *s, const struct tutti_says *all);
/* Behind each call: makes the communicator of the devices, if it is time for it. Collective then. */
void tutti_gated_renew(struct tutti_survive *s);
void tutti_gated_close(struct tutti_survive *s);

enum tutti_status tutti_door_init(struct tutti_door *door, const struct tutti_comm_config *given);
void tutti_door_close(struct tutti_door *door);
/* AGAIN: nothing names a store. */
enum tutti_status tutti_door_open(struct tutti_door *door, const struct tutti_config *config, uint64_t deadline_ns);
/* The key is what/ticket/number; 0: not in it. Errors as the store's. */
enum tutti_status tutti_door_set(const struct tutti_door *door, const char *what, int64_t ticket, int64_t number,
                                 const void *value, size_t bytes);
enum tutti_status tutti_door_get(const struct tutti_door *door, const char *what, int64_t ticket, int64_t number,
                                 void *value, size_t capacity, size_t *bytes, uint64_t deadline_ns);
/* Opens it if it is to be the arbiter. ARGUMENT: nothing names a store. */
enum tutti_status tutti_door_need(struct tutti_door *door, const struct tutti_comm *comm);
/* Whether nobody has asked for this view of the communicator before. */
enum tutti_status tutti_door_win(const struct tutti_door *door, uint64_t comm, uint64_t epoch, bool *won);
enum tutti_status tutti_door_add(const struct tutti_door *door, const char *what, int64_t ticket, int64_t delta,
                                 int64_t *value);
/* The next message to a newcomer, and its number. */
enum tutti_status tutti_door_send(const struct tutti_door *door, int64_t ticket, const void *value, size_t bytes,
                                  int64_t *number);

#endif
