/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_NEWS_H
#define TUTTI_TRANSPORT_NEWS_H

/* What other threads tell the owner of a network: a peer's socket, or why there is none (the dialer), that a peer is
 * cut, and that it is to wake. With it goes the descriptor that the owner sleeps on. */

#include "base/base.h"
#include "base/stream.h"

#include <pthread.h>
#include <stdatomic.h>

#define TUTTI_NEWS_NOBODY UINT32_MAX

struct tutti_news_row {
    _Atomic bool cut;
    /* with the lock */
    bool listed;
    enum tutti_status status; /* OK: nothing */
    int fd;                   /* plus one; 0: none */
    struct tutti_stream *stream;
    uint32_t next;
};
struct tutti_news {
    const char *name; /* the network's */
    uint32_t n, me;
    int epoll, event; /* event: its edge ends a sleep on epoll, whose data.ptr is NULL then */
    struct tutti_news_row *rows;
    pthread_mutex_t lock;
    uint32_t first;
    _Atomic bool any, woken, sleeping;
};

/* For n members. MEMORY, SYSTEM; then nothing is open. */
enum tutti_status tutti_news_open(struct tutti_news *news, const char *name, uint32_t n, uint32_t me);
void tutti_news_close(struct tutti_news *news); /* all was taken, nobody tells any more */

/* ---- any thread ---- */
/* Takes over socket and stream (NULL: none); a second one is closed. */
void tutti_news_connected(struct tutti_news *news, uint32_t peer, int fd, struct tutti_stream *stream);
void tutti_news_failed(struct tutti_news *news, uint32_t peer, enum tutti_status status);
void tutti_news_cut(struct tutti_news *news, uint32_t peer);
void tutti_news_wake(struct tutti_news *news);
static inline bool tutti_news_is_cut(const struct tutti_news *news, uint32_t peer)
{
    return atomic_load_explicit(&news->rows[peer].cut, memory_order_relaxed);
}

/* ---- the owner ---- */
static inline bool tutti_news_any(const struct tutti_news *news)
{
    return atomic_load_explicit(&news->any, memory_order_relaxed);
}
struct tutti_newly { /* what was told of a member */
    int fd;          /* -1: no socket */
    struct tutti_stream *stream;
    enum tutti_status status; /* OK: no failure */
};
/* Calls take for each member of whom something was told, the lock held. */
void tutti_news_take(struct tutti_news *news, void (*take)(void *arg, uint32_t member, const struct tutti_newly *newly),
                     void *arg);
/* From then on who tells something ends the sleep. What was told before is to be taken after this call. */
static inline void tutti_news_sleep(struct tutti_news *news)
{
    atomic_store(&news->sleeping, true);
}
/* Whether nothing was told since; takes a wake. */
static inline bool tutti_news_quiet(struct tutti_news *news)
{
    return !atomic_exchange(&news->woken, false) && !atomic_load(&news->any);
}
static inline void tutti_news_awake(struct tutti_news *news)
{
    atomic_store_explicit(&news->sleeping, false, memory_order_relaxed);
}

#endif
