/* SPDX-License-Identifier: BSD-3-Clause */

/* What networks share: what other threads tell the owner of one, and checks of what is sent. */

#include "transport/network.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- notices ---- */

static enum tutti_status open_epoll(struct tutti_notices *notices)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    notices->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (notices->epoll < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "transport %s: no epoll", notices->name);
    notices->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (notices->event >= 0 && epoll_ctl(notices->epoll, EPOLL_CTL_ADD, notices->event, &event) == 0) return TUTTI_OK;
    tutti_fail_errno(TUTTI_ERR_SYSTEM, "transport %s: no eventfd", notices->name);
    if (notices->event >= 0) close(notices->event);
    close(notices->epoll);
    return TUTTI_ERR_SYSTEM;
}

enum tutti_status tutti_notices_open(struct tutti_notices *notices, const char *name, uint32_t n, uint32_t me)
{
    *notices = (struct tutti_notices){.name = name, .n = n, .me = me, .first = TUTTI_NOTICES_NOBODY};
    notices->rows = tutti_map_lazy(n * sizeof(*notices->rows));
    if (!notices->rows) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a table of %u members", n);
    const enum tutti_status status = open_epoll(notices);
    if (status < 0) {
        tutti_unmap(notices->rows, n * sizeof(*notices->rows));
        return status;
    }
    notices->more_end = &notices->more;
    pthread_mutex_init(&notices->lock, NULL);
    return TUTTI_OK;
}

void tutti_notices_close(struct tutti_notices *notices)
{
    pthread_mutex_destroy(&notices->lock);
    close(notices->event);
    close(notices->epoll);
    tutti_unmap(notices->rows, notices->n * sizeof(*notices->rows));
}

static void ring(struct tutti_notices *notices)
{
    const uint64_t one = 1;
    if (atomic_load(&notices->sleeping) && write(notices->event, &one, sizeof(one)) < 0)
        tutti_log(TUTTI_LOG_WARN, "transport %s: member %u can not be woken", notices->name, notices->me);
}

void tutti_notices_wake(struct tutti_notices *notices)
{
    atomic_store(&notices->woken, true);
    ring(notices);
}

/* The lock is held on entry, and given back. */
static void tell(struct tutti_notices *notices, uint32_t member)
{
    struct tutti_notices_row *row = &notices->rows[member];
    if (!row->listed) {
        row->listed = true;
        row->next = notices->first, notices->first = member;
    }
    atomic_store(&notices->any, true);
    pthread_mutex_unlock(&notices->lock);
    ring(notices);
}

void tutti_notices_connected(struct tutti_notices *notices, uint32_t peer, int fd, struct tutti_stream *stream)
{
    struct tutti_notices_row *row = peer < notices->n ? &notices->rows[peer] : NULL;
    pthread_mutex_lock(&notices->lock);
    if (!row || row->fd) {
        pthread_mutex_unlock(&notices->lock);
        tutti_stream_close(stream);
        close(fd);
        return;
    }
    row->fd = fd + 1, row->stream = stream;
    tell(notices, peer);
}

void tutti_notices_more(struct tutti_notices *notices, uint32_t peer, int fd, struct tutti_stream *stream)
{
    struct tutti_notices_more *more = peer < notices->n ? tutti_alloc(sizeof(*more)) : NULL;
    if (!more) {
        tutti_stream_close(stream);
        close(fd);
        return;
    }
    *more = (struct tutti_notices_more){.member = peer, .fd = fd, .stream = stream};
    pthread_mutex_lock(&notices->lock);
    *notices->more_end = more, notices->more_end = &more->next;
    tell(notices, peer);
}

void tutti_notices_failed(struct tutti_notices *notices, uint32_t peer, enum tutti_status status)
{
    if (peer >= notices->n) return;
    pthread_mutex_lock(&notices->lock);
    notices->rows[peer].status = status;
    tell(notices, peer);
}

void tutti_notices_cut(struct tutti_notices *notices, uint32_t peer)
{
    if (peer >= notices->n) return;
    atomic_store(&notices->rows[peer].cut, true);
    pthread_mutex_lock(&notices->lock);
    tell(notices, peer);
}

void tutti_notices_take(struct tutti_notices *notices,
                        void (*take)(void *arg, uint32_t member, const struct tutti_network_notice *notice), void *arg)
{
    pthread_mutex_lock(&notices->lock);
    atomic_store(&notices->any, false);
    while (notices->first != TUTTI_NOTICES_NOBODY) {
        const uint32_t member = notices->first;
        struct tutti_notices_row *row = &notices->rows[member];
        const struct tutti_network_notice notice = {row->fd - 1, row->stream, row->status, false};
        notices->first = row->next;
        row->listed = false, row->fd = 0, row->stream = NULL, row->status = TUTTI_OK;
        take(arg, member, &notice);
    }
    while (notices->more) { /* after the first socket of their member */
        struct tutti_notices_more *more = notices->more;
        const struct tutti_network_notice notice = {more->fd, more->stream, TUTTI_OK, true};
        notices->more = more->next;
        take(arg, more->member, &notice);
        tutti_free(more);
    }
    notices->more_end = &notices->more;
    pthread_mutex_unlock(&notices->lock);
}

/* ---- checks of what is sent ---- */

enum tutti_status tutti_send_gone(uint32_t peer, enum tutti_status status, int error)
{
    if (status == TUTTI_ERR_PEER_LEFT) return tutti_fail(status, TUTTI_SAYS_CLOSED ": member %u has left", peer);
    if (status == TUTTI_ERR_PROTOCOL) return tutti_fail(status, "member %u broke the protocol before", peer);
    if (status != TUTTI_ERR_PEER_DEAD) return tutti_fail(status, "member %u can not be reached", peer);
    return tutti_fail(status, TUTTI_SAYS_CLOSED ": the socket of member %u ended%s%s", peer, error ? ": " : "",
                      error ? strerror(error) : "");
}

enum tutti_status tutti_send_check(const struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                   const struct tutti_span *spans, uint32_t n_spans)
{
    size_t bytes = 0;
    if (peer >= t->n) return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet to member %u of %u", peer, t->n);
    for (uint32_t i = 0; i < n_spans; i++) bytes += spans[i].bytes;
    if (bytes != packet->bytes || bytes > t->max_payload || n_spans > TUTTI_SPANS_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "a packet of %u bytes (at most %zu) with %zu bytes of payload in %u spans", packet->bytes,
                          t->max_payload, bytes, n_spans);
    return TUTTI_OK;
}
