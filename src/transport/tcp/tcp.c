/* SPDX-License-Identifier: BSD-3-Clause */
/* Open, send, and close. A packet goes to the kernel at once, head and payload in one call; what the kernel does not
 * take waits in the queue of the peer. */

#include "transport/send.h"
#include "transport/tcp/peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define HEAD TUTTI_PACKET_WIRE_BYTES
#define GATHERED 4096 /* a payload up to this is copied behind its head: one run of memory is the quicker call */
#define FLUSH_NS (100 * TUTTI_NS_PER_MS) /* that close gives a peer to take what was sent to it */

/* ---- send ---- */

/* A socket for oneself: both its ends are here. */
static enum tutti_status open_self(struct tutti_tcp *tcp)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no socket for what member %u sends to itself", tcp->base.me);
    return tutti_tcp_peer_open(tcp, tcp->base.me, ends[0], ends[1], NULL);
}

/* There is no socket to it yet. OK: there is now. */
static enum tutti_status reach(struct tutti_tcp *tcp, uint32_t peer)
{
    struct tutti_tcp_member *m = &tcp->members[peer];
    if (peer == tcp->base.me) return open_self(tcp);
    if (tutti_news_any(&tcp->news)) tutti_tcp_news(tcp);
    if (!m->peer && m->status == TUTTI_OK && !m->dialed) {
        m->dialed = true;
        tcp->dialer->dial(tcp->dialer, peer);
        if (tutti_news_any(&tcp->news)) tutti_tcp_news(tcp);
    }
    if (m->peer) return TUTTI_OK;
    if (m->status < 0) return tutti_send_gone(peer, m->status, 0);
    m->waited = true;
    return TUTTI_AGAIN;
}

/* What the kernel takes of a packet: bytes, or -errno. */
static ssize_t write_packet(struct tutti_tcp_peer *peer, uint8_t *head, const struct tutti_span *spans,
                            uint32_t n_spans, size_t bytes)
{
    struct iovec iov[TUTTI_SPANS_MAX + 1];
    size_t n_iov = 1;
    iov[0] = (struct iovec){head, HEAD};
    if (bytes <= GATHERED) {
        for (uint32_t i = 0; i < n_spans; iov[0].iov_len += spans[i++].bytes)
            if (spans[i].bytes > 0) memcpy(head + iov[0].iov_len, spans[i].base, spans[i].bytes);
    } else {
        for (; n_iov <= n_spans; n_iov++)
            iov[n_iov] = (struct iovec){(void *)(uintptr_t)spans[n_iov - 1].base, spans[n_iov - 1].bytes};
    }
    const ssize_t n = tutti_stream_send(peer->stream, peer->out_fd, iov, n_iov);
    return n >= 0 ? n : -errno;
}

static enum tutti_status tcp_send(struct tutti_transport *t, uint32_t member, const struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    uint8_t head[HEAD + GATHERED];
    ssize_t n = 0;
    TUTTI_TRY(tutti_send_check(t, member, packet, spans, n_spans));
    if (tutti_news_is_cut(&tcp->news, member))
        return tutti_fail(TUTTI_ERR_PEER_DEAD, TUTTI_SAYS_CLOSED ": the process of member %u died", member);
    struct tutti_tcp_peer *peer = tcp->members[member].peer;
    if (!peer) {
        enum tutti_status status = reach(tcp, member);
        if (status != TUTTI_OK) return status;
        peer = tcp->members[member].peer;
    }
    if (peer->fd < 0) return tutti_send_gone(member, peer->status, peer->error);
    if (peer->failed) return TUTTI_AGAIN; /* why is known when it is read to its end */
    if (tutti_tcp_out_waits(&peer->out) && !tutti_tcp_out_has_room(&peer->out, packet->bytes, n_spans)) {
        peer->wants_room = true;
        return TUTTI_AGAIN;
    }
    struct tutti_packet stamped = *packet;
    stamped.version = TUTTI_WIRE_VERSION, stamped.source = t->me;
    tutti_packet_encode(&stamped, head);
    if (!tutti_tcp_out_waits(&peer->out) && peer->writable) {
        n = write_packet(peer, head, spans, n_spans, packet->bytes);
        if (n == (ssize_t)(HEAD + packet->bytes)) return TUTTI_OK;
        if (n < 0 && n != -EAGAIN && n != -EINTR) {
            peer->error = (int)-n, peer->failed = true;
            tutti_tcp_peer_ready(tcp, peer);
            return TUTTI_AGAIN;
        }
        peer->writable = false;
    }
    if (!tutti_tcp_out_waits(&peer->out)) tcp->n_owing++;
    return tutti_tcp_out_add(&peer->out, head, spans, n_spans, packet->bytes, n > 0 ? (size_t)n : 0, token);
}

/* ---- events ---- */

static void tcp_release(struct tutti_transport *t)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    if (tcp->given) tutti_tcp_in_release(&tcp->given->in);
    tcp->given = NULL;
}

static void tcp_place(struct tutti_transport *t, const struct tutti_target *targets, uint32_t n, uint64_t token)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    if (tcp->given) tutti_tcp_in_place(&tcp->given->in, targets, n, token);
    tcp->given = NULL;
}

static void tcp_cancel(struct tutti_transport *t, uint64_t token)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    for (struct tutti_tcp_peer *peer = tcp->peers; peer; peer = peer->next) {
        bool lost = false;
        if (peer->in.reading == TUTTI_TCP_PLACED && peer->in.token == token) {
            peer->in.reading = TUTTI_TCP_SKIPPED;
            peer->lost = false;
        }
        if (tutti_tcp_out_cancel(&peer->out, token, &lost) && lost)
            tutti_tcp_peer_end(tcp, peer, TUTTI_ERR_PEER_DEAD); /* half a packet, and no memory for the rest */
    }
}

static bool tcp_holds(struct tutti_transport *t, uint32_t peer)
{
    const struct tutti_tcp *tcp = tutti_tcp_of(t);
    const struct tutti_tcp_peer *p = peer < t->n ? tcp->members[peer].peer : NULL;
    int bytes = 0;
    if (!p || p->fd < 0) return false;
    return p->ready || tutti_stream_holds(p->stream) || (ioctl(p->fd, FIONREAD, &bytes) == 0 && bytes > 0);
}

static bool tcp_owes(struct tutti_transport *t)
{
    return tutti_tcp_of(t)->n_owing > 0;
}

/* ---- close ---- */

static void drain(struct tutti_tcp_peer *peer)
{
    struct iovec iov = {peer->in.buffer, TUTTI_TCP_WINDOW};
    while (tutti_stream_recv(peer->stream, peer->fd, &iov, 1) > 0) continue;
}

/* Gives the peer a moment to take what waits for it. It may wait for us in the same way, so what it sends is read. */
static void flush(struct tutti_tcp_peer *peer, uint64_t until_ns)
{
    for (uint64_t now; tutti_tcp_out_waits(&peer->out) && (now = tutti_now_ns()) < until_ns;) {
        struct pollfd fd = {.fd = peer->out_fd, .events = POLLIN | POLLOUT};
        poll(&fd, 1, (int)((until_ns - now) / TUTTI_NS_PER_MS));
        drain(peer);
        if (tutti_tcp_out_write(peer) < 0) return;
    }
}

static void say_goodbye(struct tutti_tcp_peer *peer)
{
    uint8_t goodbye[HEAD] = {TUTTI_WIRE_VERSION, TUTTI_TCP_GOODBYE};
    struct iovec iov = {goodbye, sizeof(goodbye)};
    if (!tutti_tcp_out_waits(&peer->out) &&
        tutti_stream_send(peer->stream, peer->out_fd, &iov, 1) == (ssize_t)sizeof(goodbye)) {
        if (peer->stream) peer->stream->ops->finish(peer->stream);
        shutdown(peer->out_fd, SHUT_WR);
    }
    drain(peer); /* a socket that is closed with something to read is reset, and what we sent may be lost */
}

static void tcp_close(struct tutti_transport *t)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    const uint64_t until_ns = tutti_deadline_ns(FLUSH_NS);
    tutti_tcp_news(tcp);
    while (tcp->peers) {
        struct tutti_tcp_peer *peer = tcp->peers;
        tcp->peers = peer->next;
        if (peer->fd >= 0 && !peer->failed && peer->member != t->me) {
            flush(peer, until_ns);
            say_goodbye(peer);
        }
        tutti_tcp_peer_end(tcp, peer, TUTTI_ERR_PEER_LEFT);
        tutti_tcp_peer_free(tcp, peer);
    }
    tutti_unmap(tcp->members, t->n * sizeof(*tcp->members));
    tutti_news_close(&tcp->news);
    tutti_free(tcp);
}

/* ---- what other threads tell ---- */

void tutti_tcp_connected(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream)
{
    tutti_news_connected(&tutti_tcp_of(t)->news, peer, fd, stream);
}

void tutti_tcp_failed(struct tutti_transport *t, uint32_t peer, enum tutti_status status)
{
    tutti_news_failed(&tutti_tcp_of(t)->news, peer, status);
}

static void tcp_cut(struct tutti_transport *t, uint32_t peer)
{
    tutti_news_cut(&tutti_tcp_of(t)->news, peer);
}

static void tcp_wake(struct tutti_transport *t)
{
    tutti_news_wake(&tutti_tcp_of(t)->news);
}

/* ---- open ---- */

static const struct tutti_transport_ops tcp_ops = {
    .size = sizeof(tcp_ops),
    .close = tcp_close,
    .send = tcp_send,
    .poll = tutti_tcp_poll,
    .release = tcp_release,
    .place = tcp_place,
    .cancel = tcp_cancel,
    .sleep_begin = tutti_tcp_sleep_begin,
    .sleep_end = tutti_tcp_sleep_end,
    .wake = tcp_wake,
    .cut = tcp_cut,
    .holds = tcp_holds,
    .owes = tcp_owes,
};

enum tutti_status tutti_tcp_open(const struct tutti_tcp_config *config, struct tutti_transport **out)
{
    if (config->me >= config->n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u does not exist: the world has %u", config->me, config->n);
    struct tutti_tcp *tcp = tutti_alloc(sizeof(*tcp));
    if (!tcp) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a transport");
    enum tutti_status status;
    tcp->base = (struct tutti_transport){.ops = &tcp_ops,
                                         .name = "tcp",
                                         .n = config->n,
                                         .me = config->me,
                                         .max_payload = TUTTI_TCP_PAYLOAD,
                                         .copied = TUTTI_TCP_COPIED};
    tcp->dialer = config->dialer;
    tcp->vanish_ns = config->vanish_ns;
    tcp->members = tutti_map_lazy(config->n * sizeof(*tcp->members));
    if (!tcp->members) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a table of %u members", config->n);
        goto err_free;
    }
    TUTTI_TRY_GOTO(status, tutti_news_open(&tcp->news, "tcp", config->n, config->me), err_unmap);
    *out = &tcp->base;
    return TUTTI_OK;

err_unmap:
    tutti_unmap(tcp->members, config->n * sizeof(*tcp->members));
err_free:
    tutti_free(tcp);
    return status;
}
