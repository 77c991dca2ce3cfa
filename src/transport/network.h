/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_NETWORK_H
#define TUTTI_TRANSPORT_NETWORK_H

/* What the networks (tcp, ofi) share: the dialer that hands in sockets, notices of other threads, and checks of what is
 * sent. */

#include "base/base.h"
#include "base/stream.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- the dialer ---- */
/* The dialer makes the first connection to a peer for a network, and proves who is at the other end (control/net). */
struct tutti_dialer {
    /* Wants a socket to `peer`: one call of the network's _connected or _failed follows, from any thread, now or later.
     * Called by the owner of the transport; does not block. Not called again for a peer. */
    void (*dial)(struct tutti_dialer *dialer, uint32_t peer);
    /* Optional, both or none: more sockets to a peer that is connected. Of two members the one of the greater number
     * tells the other, over the network, what `tell` has written (returns its bytes, at most `capacity`; 0: nothing is
     * to be told); there `widen` dials, and the network's _path_connected may follow, on both ends. The owner calls;
     * neither blocks. */
    size_t (*tell)(struct tutti_dialer *dialer, uint32_t peer, uint8_t *out, size_t capacity);
    void (*widen)(struct tutti_dialer *dialer, uint32_t peer, const uint8_t *told, size_t bytes);
};

/* ---- notices ---- */
/* What other threads tell the owner of a network: a peer's socket, or why there is none (the dialer), that a peer is
 * cut, and that it is to wake. With it goes the descriptor that the owner sleeps on. */

#define TUTTI_NOTICES_NOBODY UINT32_MAX

struct tutti_notices_row {
    _Atomic bool cut;
    /* with the lock */
    bool listed;
    enum tutti_status status; /* OK: nothing */
    int fd;                   /* plus one; 0: none */
    struct tutti_stream *stream;
    uint32_t next;
};
struct tutti_notices_more { /* one more socket of a member */
    struct tutti_notices_more *next;
    uint32_t member;
    int fd;
    struct tutti_stream *stream;
};
struct tutti_notices {
    const char *name; /* the network's */
    uint32_t n, me;
    int epoll, event; /* event: its edge ends a sleep on epoll, whose data.ptr is NULL then */
    struct tutti_notices_row *rows;
    pthread_mutex_t lock;
    uint32_t first;
    struct tutti_notices_more *more, **more_end; /* in the order in which they came */
    _Atomic bool any, woken, sleeping;
};

/* For n members. MEMORY, SYSTEM; then nothing is open. */
enum tutti_status tutti_notices_open(struct tutti_notices *notices, const char *name, uint32_t n, uint32_t me);
void tutti_notices_close(struct tutti_notices *notices); /* all was taken, nobody tells any more */

/* ---- any thread ---- */
/* Takes over socket and stream (NULL: none); a second one is closed. */
void tutti_notices_connected(struct tutti_notices *notices, uint32_t peer, int fd, struct tutti_stream *stream);
/* Takes over one more socket of a peer that is connected, or was. */
void tutti_notices_more(struct tutti_notices *notices, uint32_t peer, int fd, struct tutti_stream *stream);
void tutti_notices_failed(struct tutti_notices *notices, uint32_t peer, enum tutti_status status);
void tutti_notices_cut(struct tutti_notices *notices, uint32_t peer);
void tutti_notices_wake(struct tutti_notices *notices);
static inline bool tutti_notices_is_cut(const struct tutti_notices *notices, uint32_t peer)
{
    return atomic_load_explicit(&notices->rows[peer].cut, memory_order_relaxed);
}

/* ---- the owner ---- */
static inline bool tutti_notices_any(const struct tutti_notices *notices)
{
    return atomic_load_explicit(&notices->any, memory_order_relaxed);
}
struct tutti_network_notice { /* what was told of a member */
    int fd;                   /* -1: no socket */
    struct tutti_stream *stream;
    enum tutti_status status; /* OK: no failure */
    bool more;                /* the socket is one more */
};
/* Calls take for each member of whom something was told, the lock held. */
void tutti_notices_take(struct tutti_notices *notices,
                        void (*take)(void *arg, uint32_t member, const struct tutti_network_notice *notice), void *arg);
/* From then on who tells something ends the sleep. What was told before is to be taken after this call. */
static inline void tutti_notices_sleep(struct tutti_notices *notices)
{
    atomic_store(&notices->sleeping, true);
}
/* Whether nothing was told since; takes a wake. */
static inline bool tutti_notices_quiet(struct tutti_notices *notices)
{
    return !atomic_exchange(&notices->woken, false) && !atomic_load(&notices->any);
}
static inline void tutti_notices_awake(struct tutti_notices *notices)
{
    atomic_store_explicit(&notices->sleeping, false, memory_order_relaxed);
}

/* ---- checks ---- */
/* ARGUMENT: there is no such member, or the payload is not what the packet says, or too much. */
enum tutti_status tutti_send_check(const struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                   const struct tutti_span *spans, uint32_t n_spans);
/* Records why nothing can be sent to the peer any more; error: errno of its socket, 0 if none. Returns the status. */
enum tutti_status tutti_send_gone(uint32_t peer, enum tutti_status status, int error);

#endif
