/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_WINDOW_WINDOW_H
#define TUTTI_COMM_WINDOW_WINDOW_H

/* Windows and one-sided calls (<tutti/window.h>): made and ended (window.c), each call as data (access.c), its checks
 * (check.c), and the two ways of it on memory of the host: in place (direct.c), or by the engine (far.c). Windows of
 * memory of devices that reach one another: window_device.c, and calls on them, device_access.c. Where parts are on
 * devices and some rank does not reach some, all goes by the engine, from streams (stream.h) to parts (mover.h); from
 * streams go also calls of ranks that bring memory of the host, with buffers on a device. This room may use object,
 * request and device of comm, and all below comm. Begin with struct tutti_window, then access.c.
 *
 * Threads: any, all calls. A call in place holds the window by its `users`; one that may wait holds the communicator.
 */

#include "comm/call/device.h"
#include "comm/pad.h"
#include "engine/flight/onesided.h"

#include <tutti/window.h>

enum tutti_window_memory { TUTTI_WINDOW_NONE, TUTTI_WINDOW_HOST, TUTTI_WINDOW_DEVICE };

/* What a rank brings. */
struct tutti_window_part {
    uint64_t offset, bytes; /* offset: of host memory, in what its transport offers */
    uint64_t pad;           /* where its pad is, likewise */
    int64_t status;
    uint8_t memory; /* enum tutti_window_memory */
    uint8_t align;  /* its address modulo 8 */
    bool located, pad_located, fences;
    bool apart;       /* memory of a device that others can not map */
    bool plain_links; /* the device has no atomics in memory of some peer */
    uint32_t n_signals;
    struct tutti_window_card card, words; /* device memory: its part and its words, which it also has without one */
};

struct tutti_window_peer {
    unsigned char *address; /* NULL: it can not be mapped here, or is empty */
    size_t bytes;
    struct tutti_pad *pad;     /* NULL: it is not mapped */
    _Atomic uint64_t *signals; /* the signals of a peer that is reached in place, part and pad; else NULL */
    uint64_t *words;           /* signals in memory of devices */
    uint8_t align;
    _Atomic uint32_t n_calls; /* in place: now and then one looks whether the peer lives */
};

enum tutti_access_kind {
    TUTTI_ACCESS_PUT,
    TUTTI_ACCESS_PUT_SIGNAL,
    TUTTI_ACCESS_GET,
    TUTTI_ACCESS_SIGNAL,
    TUTTI_ACCESS_WAIT,
    TUTTI_ACCESS_READ,
    TUTTI_ACCESS_WRITE,
    TUTTI_ACCESS_ADD,
    TUTTI_ACCESS_SWAP,
    TUTTI_ACCESS_FLUSH,
    TUTTI_ACCESS_FENCE,
    TUTTI_N_ACCESSES
};
/* One call; what its kind has not is 0. */
struct tutti_access {
    enum tutti_access_kind kind;
    int32_t peer; /* also of WAIT: who is to change the signal; of FLUSH: TUTTI_ALL_PEERS */
    size_t offset, bytes;
    const void *source;
    void *dest;
    const struct tutti_signal_info *signal; /* for WAIT, READ, WRITE: this rank's; value is what is compared or written
                                             */
    enum tutti_compare compare;
    uint64_t value, expected; /* for ADD and SWAP */
    uint64_t *before;         /* also of READ: where to */
    const struct tutti_call_options *options;
    struct tutti_work **work;
};

struct tutti_streams; /* stream.h */
struct tutti_mover;   /* mover.h */
struct tutti_window;
struct tutti_window_ops {
    /* Carries out a checked access. quick: without waiting for a peer, with the window held; AGAIN: it can not. May be
     * NULL. run: with the communicator held. */
    enum tutti_status (*quick)(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access);
    enum tutti_status (*run)(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access);
};
extern const struct tutti_window_ops tutti_window_host_ops, tutti_window_device_ops, tutti_window_stream_ops;

struct tutti_window {
    struct tutti_attached attached; /* first */
    const struct tutti_window_ops *ops;
    _Atomic(struct tutti_comm *) comm; /* NULL once it was destroyed */
    _Atomic uint32_t users;            /* calls that hold the window alone: comm stays */
    uint32_t n, me, n_signals, number; /* number: in the communicator, the same on all */
    bool far;                          /* some rank is not reached in place, by this one or by others */
    bool exposed;                      /* ... and the engine has the own part */
    struct tutti_window_peer *peers;
    struct tutti_own_pad *pad; /* NULL: given back, or none */
    bool on_device;
    struct tutti_backend *backend;           /* for devices: carries out one-sided calls; NULL: none does */
    void *own;                               /* the pointer by which back ends of devices know the window */
    void *words;                             /* the back end's, of this rank */
    uint32_t n_devices;                      /* the communicator's count of them when it was made */
    _Atomic(struct tutti_streams *) streams; /* for calls that are enqueued, and do not go by a back end; NULL: there
                                              * was none. Read with the communicator held */
    struct tutti_mover *mover; /* the own part is on a device, and is accessed by messages; NULL: it is not */
};

/* ---- signals ---- */
/* Signals have a line of their own, as long as they do not take much memory for that. */
static inline size_t tutti_signal_step(uint32_t n_signals)
{
    return n_signals <= 1024 ? TUTTI_CACHE_LINE / sizeof(uint64_t) : 1;
}
static inline _Atomic uint64_t *tutti_signal_of(const struct tutti_window *window, uint32_t rank, uint32_t index)
{
    return window->peers[rank].signals + index * tutti_signal_step(window->n_signals);
}

/* ---- check.c ---- */
const char *tutti_access_name(enum tutti_access_kind kind);
/* All arguments of a call on this window. ARGUMENT. */
enum tutti_status tutti_access_check(const struct tutti_window *window, const struct tutti_comm *comm,
                                     const struct tutti_access *access);
static inline uint64_t tutti_access_timeout(const struct tutti_comm *comm, const struct tutti_access *access)
{
    const struct tutti_call_options *options = access->options;
    return options && options->timeout_ns ? options->timeout_ns : atomic_load(&comm->timeout_ns);
}
static inline const char *tutti_access_label(const struct tutti_access *access)
{
    return access->options ? access->options->label : NULL;
}

/* ---- direct.c: in place ---- */
/* Whether the peer's part and signals are memory of the host that this process maps. */
static inline bool tutti_window_in_place(const struct tutti_window *window, uint32_t peer)
{
    return window->peers[peer].signals && !(peer == window->me && window->mover);
}
/* A checked put, put_signal, get, signal, atomic or flush for such a peer, whoever lives. Any thread. */
void tutti_window_direct(struct tutti_window *window, const struct tutti_access *access);

/* ---- stream_calls.c: from a stream ---- */
/* Whether a call on a window of host memory at this rank is enqueued: it has a buffer on a device, or names a stream.
 */
bool tutti_access_is_streamed(const struct tutti_comm *comm, const struct tutti_access *access);

/* Where a part in memory of a device has its words for signals, in messages: behind it, aligned. */
static inline uint64_t tutti_window_words_at(const struct tutti_window_peer *peer)
{
    return (peer->bytes + peer->align + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t) - peer->align;
}

/* ---- far.c: by the engine ---- */
struct tutti_one_info tutti_window_one_info(const struct tutti_window *window, const struct tutti_comm *comm,
                                            const struct tutti_access *access);
/* The maker of the device of this rank, as transports name it. */
enum tutti_maker tutti_device_maker(const struct tutti_comm *comm);
enum tutti_status tutti_window_far(struct tutti_window *window, struct tutti_comm *comm,
                                   const struct tutti_access *access);
enum tutti_status tutti_window_expose(struct tutti_window *window, struct tutti_comm *comm, void *base, size_t bytes);
void tutti_window_hide(struct tutti_window *window, struct tutti_comm *comm);

/* ---- window_device.c ---- */
/* Whether it is memory of the communicator's device at this rank. */
bool tutti_window_on_device(const struct tutti_comm *comm, const void *base);
/* The own part; status and the thread's error record say what is wrong with it, but for what is `apart`. */
void tutti_window_device_part(const struct tutti_comm *comm, void *base, size_t bytes, struct tutti_window_part *out);
/* Takes words for a part whose n_signals is set, where the communicator's devices may need some. */
enum tutti_status tutti_window_device_words(const struct tutti_comm *comm, struct tutti_window_part *part);
/* Withdraws the offers that the own part holds, if it holds some; kept: a window has the words. */
void tutti_window_device_withdraw(const struct tutti_comm *comm, const struct tutti_window_part *part, bool kept);
/* Whether devices of the communicator reach one another, and a back end of them serves windows. Equal on all ranks. */
bool tutti_window_device_reach(const struct tutti_comm *comm);
/* Maps the peers' parts. */
enum tutti_status tutti_window_device_map(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                                          struct tutti_window *window);
/* Whether the device of this rank has no atomics in memory of some peer's; then, on all ranks, what needs them goes by
 * messages from now on. */
bool tutti_window_plain_links(const struct tutti_comm *comm);
enum tutti_status tutti_window_device_words_far(struct tutti_comm *comm, void *base, struct tutti_window *window);
/* Takes the mappings back, if there are some: another rank has none. The words are the own part's again. */
void tutti_window_device_forget(struct tutti_comm *comm, struct tutti_window *window);
/* Whether its mappings are still the communicator's. */
bool tutti_window_device_lives(const struct tutti_comm *comm, const struct tutti_window *window);
/* Waits until nothing that is enqueued uses the window, and takes the mappings back. */
void tutti_window_device_unmap(struct tutti_comm *comm, const struct tutti_window *window);

#endif
