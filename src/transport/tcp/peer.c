/* SPDX-License-Identifier: BSD-3-Clause */
/* How sockets come and end. What other threads tell (a socket, a failure, a death) is kept in the row of the member
 * until the owner takes it. */

#include "transport/tcp/peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- lists ---- */

static struct tutti_tcp_peer **link_of(struct tutti_tcp_peer *peer, bool over)
{
    return over ? &peer->next_over : &peer->next_ready;
}

static void list_add(struct tutti_tcp_list *list, struct tutti_tcp_peer *peer, bool over)
{
    *link_of(peer, over) = NULL;
    *(list->first ? link_of(list->end, over) : &list->first) = peer;
    list->end = peer;
}

struct tutti_tcp_peer *tutti_tcp_list_take(struct tutti_tcp_list *list, bool over)
{
    struct tutti_tcp_peer *peer = list->first;
    if (!peer) return NULL;
    list->first = *link_of(peer, over);
    *(over ? &peer->over : &peer->ready) = false;
    return peer;
}

void tutti_tcp_peer_ready(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    if (peer->ready || peer->fd < 0) return;
    peer->ready = true;
    list_add(&tcp->ready, peer, false);
}

void tutti_tcp_peer_over(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    if (peer->over || (peer->out.n_over == 0 && !peer->lost && !(peer->stripes && peer->stripes->n_over > 0))) return;
    peer->over = true;
    list_add(&tcp->over, peer, true);
}

void tutti_tcp_peer_owes(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    const bool owes = tutti_tcp_out_waits(&peer->out) || tutti_tcp_stripes_wait(peer);
    if (owes != peer->owes) tcp->n_owing += owes ? 1 : -1u;
    peer->owes = owes;
}

/* ---- a socket comes ---- */

static void tune(struct tutti_tcp *tcp, int fd)
{
    const int one = 1, unsent = TUTTI_TCP_UNSENT;
    const unsigned vanish_ms = (unsigned)(tcp->vanish_ns / TUTTI_NS_PER_MS);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    if (vanish_ms > 0) setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &vanish_ms, sizeof(vanish_ms));
}

static enum tutti_status watch(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = peer};
    if (epoll_ctl(tcp->notices.epoll, EPOLL_CTL_ADD, fd, &event) == 0) return TUTTI_OK;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "epoll does not take the socket of member %u", peer->member);
}

static enum tutti_status peer_make(struct tutti_tcp *tcp, uint32_t member, int fd, int out_fd,
                                   struct tutti_stream *stream)
{
    struct tutti_tcp_peer *peer = tutti_map_lazy(sizeof(*peer) + TUTTI_TCP_WINDOW + tcp->base.max_payload);
    if (!peer) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the socket of member %u", member);
    peer->member = member, peer->fd = fd, peer->out_fd = out_fd;
    peer->writable = true; /* whether it is readable is told by epoll */
    peer->in.buffer = (uint8_t *)(peer + 1);
    enum tutti_status status = watch(tcp, peer, fd);
    if (status == TUTTI_OK && out_fd != fd) status = watch(tcp, peer, out_fd);
    if (status < 0) {
        tutti_tcp_peer_free(tcp, peer);
        return status;
    }
    peer->next = tcp->peers, tcp->peers = peer;
    tcp->members[member].peer = peer;
    tcp->n_open++;
    peer->stream = stream;
    if (stream) { /* it may hold something, which epoll does not tell */
        peer->readable = true;
        tutti_tcp_peer_ready(tcp, peer);
    }
    return TUTTI_OK;
}

enum tutti_status tutti_tcp_peer_open(struct tutti_tcp *tcp, uint32_t member, int fd, int out_fd,
                                      struct tutti_stream *stream)
{
    struct tutti_tcp_member *m = &tcp->members[member];
    const bool gone = m->peer || tutti_notices_is_cut(&tcp->notices, member);
    enum tutti_status status = TUTTI_OK;
    if (!gone) {
        if (fd == out_fd) tune(tcp, fd);
        status = peer_make(tcp, member, fd, out_fd, stream);
    }
    if (status == TUTTI_OK && !gone) return TUTTI_OK;
    tutti_stream_close(stream);
    close(fd);
    if (out_fd != fd) close(out_fd);
    return status;
}

/* ---- it ends ---- */

void tutti_tcp_peer_end(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, enum tutti_status status)
{
    if (peer->fd < 0) return;
    tutti_stream_close(peer->stream);
    peer->stream = NULL;
    close(peer->fd); /* and epoll forgets it */
    if (peer->out_fd != peer->fd) close(peer->out_fd);
    peer->fd = peer->out_fd = -1;
    peer->status = status;
    tcp->n_open--;
    peer->lost = peer->in.reading == TUTTI_TCP_PLACED;
    tutti_tcp_out_end(&peer->out);
    if (peer->stripes) tutti_tcp_stripes_end(tcp, peer);
    tutti_tcp_peer_owes(tcp, peer);
    tutti_tcp_peer_over(tcp, peer);
    if (peer->wants_room) tcp->room = true;
    for (uint32_t i = 0; i < TUTTI_TCP_HOT; i++)
        if (tcp->hot[i] == peer) tcp->hot[i] = NULL;
    tutti_log(TUTTI_LOG_DEBUG, "transport tcp: the socket of member %u ended: %s", peer->member,
              status == TUTTI_ERR_PEER_LEFT ? "it has left"
              : peer->error                 ? strerror(peer->error)
                                            : "closed by peer");
}

void tutti_tcp_peer_free(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    tutti_tcp_out_fini(&peer->out);
    tutti_tcp_stripes_free(tcp, peer);
    tutti_unmap(peer, sizeof(*peer) + TUTTI_TCP_WINDOW + tcp->base.max_payload);
}

void tutti_tcp_peer_room(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    if (!peer->wants_room || !tutti_tcp_out_is_low(&peer->out) || !tutti_tcp_stripes_have_room(peer)) return;
    peer->wants_room = false, tcp->room = true;
}

void tutti_tcp_peer_write(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    const int taken = tutti_tcp_out_write(peer);
    tutti_tcp_peer_owes(tcp, peer);
    tutti_tcp_peer_over(tcp, peer);
    peer->writable = taken > 0;
    if (taken < 0) { /* what it sent before may still be there: read on, until the end */
        peer->error = -taken, peer->failed = true;
        tutti_tcp_peer_ready(tcp, peer);
    }
    tutti_tcp_peer_room(tcp, peer);
}

/* ---- what other threads tell ---- */

/* A socket more, of a peer that is there: else it is closed. */
static void path_take(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, const struct tutti_network_notice *notice)
{
    if (!peer || peer->fd < 0 || tutti_notices_is_cut(&tcp->notices, peer->member)) {
        tutti_stream_close(notice->stream);
        close(notice->fd);
        return;
    }
    tune(tcp, notice->fd);
    if (tutti_tcp_path_open(tcp, peer, notice->fd, notice->stream) < 0)
        tutti_log(TUTTI_LOG_WARN, "%s", tutti_last_error()->text);
}

static void take_notice(void *arg, uint32_t member, const struct tutti_network_notice *notice)
{
    struct tutti_tcp *tcp = arg;
    struct tutti_tcp_member *m = &tcp->members[member];
    if (notice->status < 0) m->status = notice->status;
    if (notice->more)
        path_take(tcp, m->peer, notice);
    else if (notice->fd >= 0 && tutti_tcp_peer_open(tcp, member, notice->fd, notice->fd, notice->stream) < 0)
        m->status = TUTTI_ERR_SYSTEM;
    if (m->waited) m->waited = false, tcp->room = true;
    if (m->peer && m->peer->fd >= 0 && tutti_notices_is_cut(&tcp->notices, member)) {
        m->peer->failed = true;
        tutti_tcp_peer_ready(tcp, m->peer);
    }
}

void tutti_tcp_news(struct tutti_tcp *tcp)
{
    tutti_notices_take(&tcp->notices, take_notice, tcp);
}
