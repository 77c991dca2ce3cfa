/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_WINDOW_H
#define TUTTI_WINDOW_H

/* One-sided communication. A window is memory that each rank of a communicator shows to the others: its part. A rank
 * writes into, reads from and changes the parts of others without a call of theirs, and tells them by signals.
 *
 *     tutti_window_create(comm, base, bytes, NULL, &window);
 *     struct tutti_signal_info full = {0, TUTTI_SIGNAL_ADD, 1};           // rank 0: into the part of rank 1
 *     tutti_put_signal(row, row_bytes, 1, offset, &full, window, NULL, NULL);
 *     tutti_wait_signal(0, TUTTI_COMPARE_GE, 1, 0, window, NULL, NULL);   // rank 1: from rank 0; then reads its part
 *
 * Ways. Ranks of one host whose parts come from tutti_mem_alloc, and threads of one process, reach them directly. All
 * others (another host, other memory) are reached by messages that the owner's library serves without a call of its
 * user. Windows of memory of devices that reach one another: by peer mappings and copy engines, in the order of a
 * stream. Of devices that do not (other hosts), and where some ranks bring memory of a device and some of the host: by
 * messages, through pinned memory, in the order of a stream. All ways mean the same.
 *
 * Calls. Every call takes `options` and `work` as collectives do (coll.h): with work NULL it blocks until it is
 * complete, else *work is tested or waited for, and freed. Calls of a rank that brings memory of a device are enqueued
 * on options->stream, which waits until they are complete; so are those of a rank with a device that brings nothing,
 * where others bring some. Of a rank with a device that brings memory of the host, those are enqueued whose buffer is
 * memory of a device, or that name a stream; the others are made at once, and have no order with what is enqueued. Any
 * number of calls may be under way, from any thread; no rank has to call anything in one order. Offsets and sizes are
 * bytes. `peer` may be the own rank. Calls are no part of a group or a recording (ARGUMENT).
 *
 * Complete means: put, put_signal: the source may be used again; get, fetch_add, compare_swap: the result is there;
 * signal: it is on its way; wait_signal: the signal has come; flush: see there.
 *
 * Order. What one rank calls for one peer on one window: signals, fetch_add, compare_swap and flush take effect after
 * everything that was called before them. Puts and gets have no order among themselves, but for a fence between them.
 * Nothing is promised between different peers or windows. On devices "before" is before on the same stream, and streams
 * are tied by their owner's events: where devices reach one another, flush and fence have nothing left to do. A rank
 * that has seen a signal sees in its part what was put there before it. On hosts, and by messages, 8 aligned bytes are
 * put and got as one. Plain accesses to a part while a peer accesses the same bytes are races; fetch_add and
 * compare_swap are atomic for all ranks, whatever way they take, also beside tutti_fetch_add of the owner on itself.
 *
 * Errors. ARGUMENT, naming the call, the rank and the argument: no such peer, out of the peer's part, not aligned; the
 * peer destroyed its window. Nothing was done then. (Of a part that is reached over a network this may be known only
 * when a put or signal is complete: then the next flush of the peer says so, and calls after it at once. Of calls on a
 * stream it ends the communicator.) A wait on a
 * peer that dies, and a deadline that passes, end the communicator with PEER_DEAD, PEER_LEFT or TIMEOUT, as for
 * collectives; so does every other wait that is under way. */

#include <tutti/coll.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tutti_window;

struct tutti_window_config {
    size_t size;        /* sizeof(struct tutti_window_config) */
    uint32_t n_signals; /* words for signals of each rank, equal on all; 0: as many as ranks, 64 at least */
};
#define TUTTI_WINDOW_CONFIG_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(struct tutti_window_config), 0                                                                          \
    }

/* Collective over all ranks of comm. The part of this rank is [base, base + bytes): memory of tutti_mem_alloc, or any
 * other memory of this process, or of the communicator's device. Sizes may differ by rank, bytes may be 0. All signals
 * are 0. Some parts may be of the host and some of devices. The memory stays until all ranks have destroyed the window.
 * In a window of device memory that all ranks map (docs/gpu.md says which can be), the buffers of a collective that lie
 * in it on one rank lie in it on all, at the same offset; collectives on them are zero-copy. Such windows of one
 * communicator do not overlap (ARGUMENT); a call on device memory that was freed under its window fails on all ranks.
 */
TUTTI_API enum tutti_status tutti_window_create(struct tutti_comm *comm, void *base, size_t bytes,
                                                const struct tutti_window_config *config,
                                                struct tutti_window **out) TUTTI_MUST_USE;
/* Not collective; the memory stays. Calls of this rank on the window are over before; a later call of a peer for this
 * rank fails there. On device memory: between the same calls on all ranks. */
TUTTI_API void tutti_window_destroy(struct tutti_window *window);
/* Address in this process of rank's part, NULL if it can not be mapped here; its size in *bytes (may be NULL). */
TUTTI_API void *tutti_window_peer(struct tutti_window *window, int32_t rank, size_t *bytes);
TUTTI_API uint32_t tutti_window_n_signals(const struct tutti_window *window);

/* What one-sided calls of this rank reach in place, as bits; what they do not goes by messages. */
enum tutti_window_reach {
    TUTTI_REACH_HOST = 1,   /* memory of the host that tutti_mem_alloc gave the rank */
    TUTTI_REACH_DEVICE = 2, /* memory of its device that can be mapped, where all parts of a window are such: by copy
                             * engines, and by kernels of users (tutti/device.h) */
};
/* The same for all windows of the communicator, and known before one is made. 0: nothing, or there is no such rank
 * (then the record says so). Waits for nobody. */
TUTTI_API uint32_t tutti_window_reach(struct tutti_comm *comm, int32_t rank);

/* ---- data ---- */
TUTTI_API enum tutti_status tutti_put(const void *source, size_t bytes, int32_t peer, size_t offset,
                                      struct tutti_window *window, const struct tutti_call_options *options,
                                      struct tutti_work **work);
TUTTI_API enum tutti_status tutti_get(void *dest, size_t bytes, int32_t peer, size_t offset,
                                      struct tutti_window *window, const struct tutti_call_options *options,
                                      struct tutti_work **work);

/* ---- signals: 64-bit words beside the part, numbered from 0 ---- */
enum tutti_signal_op { TUTTI_SIGNAL_SET, TUTTI_SIGNAL_ADD };
enum tutti_compare {
    TUTTI_COMPARE_EQ,
    TUTTI_COMPARE_NE,
    TUTTI_COMPARE_LT,
    TUTTI_COMPARE_LE,
    TUTTI_COMPARE_GT,
    TUTTI_COMPARE_GE
}; /* unsigned */
struct tutti_signal_info {
    uint32_t index;
    enum tutti_signal_op op;
    uint64_t value;
};
/* Changes a signal of the peer. */
TUTTI_API enum tutti_status tutti_signal(const struct tutti_signal_info *signal, int32_t peer,
                                         struct tutti_window *window, const struct tutti_call_options *options,
                                         struct tutti_work **work);
/* put, then signal, in one message where there is room. */
TUTTI_API enum tutti_status tutti_put_signal(const void *source, size_t bytes, int32_t peer, size_t offset,
                                             const struct tutti_signal_info *signal, struct tutti_window *window,
                                             const struct tutti_call_options *options, struct tutti_work **work);
/* Waits until signal `index` of this rank compares so with value: signal GE value. The signal stays as it is. from: the
 * rank that is to change it, for the sentence when it does not come; TUTTI_ANY_SOURCE: whichever. The deadline is
 * options->timeout_ns, else the communicator's. */
TUTTI_API enum tutti_status tutti_wait_signal(uint32_t index, enum tutti_compare compare, uint64_t value, int32_t from,
                                              struct tutti_window *window, const struct tutti_call_options *options,
                                              struct tutti_work **work);
/* A signal of this rank, now: reads it into *value; writes it (no peer may change it at that time). Of device memory:
 * in the order of options->stream, read waits for it. */
TUTTI_API enum tutti_status tutti_signal_read(uint32_t index, uint64_t *value, struct tutti_window *window,
                                              const struct tutti_call_options *options);
TUTTI_API enum tutti_status tutti_signal_write(uint32_t index, uint64_t value, struct tutti_window *window,
                                               const struct tutti_call_options *options);

/* ---- atomic: 64-bit words inside the part, aligned to 8 bytes; *before: what was there. It is memory of the host, or
 * for parts on devices also of the device ---- */
TUTTI_API enum tutti_status tutti_fetch_add(uint64_t value, uint64_t *before, int32_t peer, size_t offset,
                                            struct tutti_window *window, const struct tutti_call_options *options,
                                            struct tutti_work **work);
/* Writes `desired` if `expected` is there: it was written if *before == expected. */
TUTTI_API enum tutti_status tutti_compare_swap(uint64_t expected, uint64_t desired, uint64_t *before, int32_t peer,
                                               size_t offset, struct tutti_window *window,
                                               const struct tutti_call_options *options, struct tutti_work **work);

/* ---- order ---- */
#define TUTTI_ALL_PEERS (-1)
/* Complete when all that this rank called before for the peer (or TUTTI_ALL_PEERS) has taken effect in its part. */
TUTTI_API enum tutti_status tutti_flush(int32_t peer, struct tutti_window *window,
                                        const struct tutti_call_options *options, struct tutti_work **work);
/* Puts and gets before it, for each peer, take effect before those after it. Waits for nobody. */
TUTTI_API enum tutti_status tutti_fence(struct tutti_window *window, const struct tutti_call_options *options);

#ifdef __cplusplus
}
#endif

#endif
