/* SPDX-License-Identifier: BSD-3-Clause */

/* Transport tcp: send, open, close, poll and sleep. */

#include "transport/tcp/peer.h"

#include "base/session.h"
#include "transport/network.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- poll, and sleep ---- */

#define EVENTS 128
/* Between two questions to epoll: turns that moved nothing; one that moved something counts for several, and one that
 * moved much for many, so that queues are written while much is read. */
#define TURNS 64
#define TURNS_SMALL 8
#define TURNS_LARGE 32

/* The line is filled with whom epoll knows of. */
static void ask_epoll(struct tutti_tcp *tcp)
{
    struct epoll_event events[EVENTS];
    const int n = epoll_wait(tcp->notices.epoll, events, EVENTS, 0);
    tcp->n_turns = 0;
    for (int i = 0; i < n; i++) {
        struct tutti_tcp_peer *peer = tutti_tcp_path_event(events[i].data.u64, events[i].events);
        if (peer) {
            tutti_tcp_peer_ready(tcp, peer);
            continue;
        }
        peer = events[i].data.ptr;
        if (!peer) continue; /* the event of wake: its edge is taken */
        if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) peer->readable = true;
        if (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) peer->ending = true;
        if (events[i].events & EPOLLOUT) peer->writable = true;
        if (peer->readable || tutti_tcp_out_waits(&peer->out)) tutti_tcp_peer_ready(tcp, peer);
    }
}

/* Paths that are held back have a queue of some milliseconds. */
#define HELD_NS (TUTTI_NS_PER_MS / 5)

static void look_at_held(struct tutti_tcp *tcp)
{
    const uint64_t now = tutti_now_ns();
    if (now < tcp->held_ns + HELD_NS) return;
    tcp->held_ns = now;
    for (struct tutti_tcp_peer *peer = tcp->peers; peer; peer = peer->next)
        if (peer->stripes && peer->stripes->held) tutti_tcp_peer_ready(tcp, peer);
}

#define CHECK_NS (TUTTI_NS_PER_S / 2)
#define BUSY_NS (TUTTI_NS_PER_MS / 2)

static bool paths_busy(const struct tutti_tcp *tcp)
{
    for (const struct tutti_tcp_peer *peer = tcp->peers; peer; peer = peer->next)
        if (peer->stripes && tutti_tcp_paths_busy(peer->stripes)) return true;
    return false;
}

/* Looks whether paths live, and how quick those are that have something to do. */
static void check_paths(struct tutti_tcp *tcp)
{
    const uint64_t now = tutti_now_ns();
    if (now < tcp->checked_ns + BUSY_NS) return;
    if (now < tcp->checked_ns + CHECK_NS && !paths_busy(tcp)) return;
    tcp->checked_ns = now;
    for (struct tutti_tcp_peer *peer = tcp->peers; peer; peer = peer->next)
        if (peer->stripes) tutti_tcp_stripes_check(tcp, peer);
}

static void look(struct tutti_tcp *tcp)
{
    if (tcp->n_wide > 0) check_paths(tcp);
    if (tcp->n_held > 0) look_at_held(tcp);
    if (tcp->n_striped > 0) ask_epoll(tcp); /* one question for all paths */
    if (tcp->expected && tcp->expected->fd >= 0) {
        tutti_tcp_peer_ready(tcp, tcp->expected);
        return;
    }
    if (!tcp->hot[0] || tcp->n_open > TUTTI_TCP_HOT) {
        ask_epoll(tcp);
        return;
    }
    for (uint32_t i = 0; i < TUTTI_TCP_HOT; i++)
        if (tcp->hot[i]) tutti_tcp_peer_ready(tcp, tcp->hot[i]);
}

static void warm(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    if (tcp->hot[0] == peer) return;
    for (uint32_t i = TUTTI_TCP_HOT - 1; i > 0; i--) tcp->hot[i] = tcp->hot[i - 1];
    tcp->hot[0] = peer;
}

/* Whether it may be read or written. */
static bool has_work(const struct tutti_tcp_peer *peer)
{
    if (peer->writable && tutti_tcp_out_waits(&peer->out)) return true;
    if (peer->stripes && tutti_tcp_stripes_have_work(peer)) return true;
    return (peer->readable || peer->more) && (tutti_tcp_in_vain(peer) || !tutti_tcp_in_waits(&peer->in));
}

/* One turn of a peer. OK: *out is an event. */
static enum tutti_status turn(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_event *out)
{
    if (peer->fd < 0) return TUTTI_AGAIN;
    if (peer->writable && tutti_tcp_out_waits(&peer->out)) tutti_tcp_peer_write(tcp, peer);
    enum tutti_status status = peer->stripes ? tutti_tcp_stripes_turn(tcp, peer, out) : TUTTI_AGAIN;
    const bool striped = status == TUTTI_OK;
    if (status == TUTTI_AGAIN) status = tutti_tcp_in_turn(tcp, peer, out);
    if (status < 0) {
        tutti_tcp_peer_end(tcp, peer, status);
        return status == TUTTI_ERR_PROTOCOL || peer->broke ? status : TUTTI_AGAIN;
    }
    if (status == TUTTI_OK) warm(tcp, peer);
    if (status == TUTTI_OK && out->type != TUTTI_EVENT_DONE) tcp->given = peer;
    const size_t used = peer->in.reading == TUTTI_TCP_GIVEN ? peer->in.next : 0;
    peer->more = status == TUTTI_OK && peer->in.end >= used + TUTTI_PACKET_WIRE_BYTES;
    if (has_work(peer)) tutti_tcp_peer_ready(tcp, peer);
    if (peer == tcp->expected)
        tcp->n_turns += status == TUTTI_OK; /* the one that expects it does not wait for long */
    else
        tcp->n_turns += peer->in.large || striped ? TURNS_LARGE : status == TUTTI_OK ? TURNS_SMALL : 1;
    return status;
}

static bool tell_over(struct tutti_tcp *tcp, struct tutti_event *out)
{
    struct tutti_tcp_peer *peer;
    while ((peer = tutti_tcp_list_take(&tcp->over, true))) {
        *out = (struct tutti_event){.type = TUTTI_EVENT_DONE, .status = peer->status, .token = peer->in.token};
        const bool told =
            peer->lost || tutti_tcp_out_tell(&peer->out, &out->token) || tutti_tcp_stripes_tell(tcp, peer, &out->token);
        peer->lost = false;
        tutti_tcp_peer_over(tcp, peer);
        if (told) return true;
    }
    return false;
}

static enum tutti_status next_event(struct tutti_tcp *tcp, struct tutti_event *out)
{
    for (bool looked = false;; looked = true) {
        uint32_t n_turns = 0;
        do {
            if (tcp->over.first && tell_over(tcp, out)) return TUTTI_OK;
            struct tutti_tcp_peer *peer = tutti_tcp_list_take(&tcp->ready, false);
            if (!peer) break;
            enum tutti_status status = turn(tcp, peer, out);
            if (status != TUTTI_AGAIN) return status;
        } while (++n_turns < EVENTS);
        if (looked) return TUTTI_AGAIN;
        look(tcp);
    }
}

enum tutti_status tutti_tcp_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    if (tcp->given) return tutti_fail(TUTTI_ERR_INTERNAL, "poll before the last event was released or answered");
    if (tutti_notices_any(&tcp->notices)) tutti_tcp_news(tcp);
    if (tcp->n_turns >= TURNS) ask_epoll(tcp);
    enum tutti_status status = next_event(tcp, out);
    tcp->expected = NULL;
    return status;
}

/* ---- sleep ---- */

/* Writes what can be written; those that may be read stay in the line. */
static void write_all(struct tutti_tcp *tcp)
{
    struct tutti_tcp_list line = tcp->ready;
    struct tutti_tcp_peer *peer;
    tcp->ready.first = NULL;
    while ((peer = tutti_tcp_list_take(&line, false))) {
        if (peer->fd < 0) continue;
        if (peer->writable && tutti_tcp_out_waits(&peer->out)) tutti_tcp_peer_write(tcp, peer);
        if (tutti_tcp_stripes_wait(peer)) tutti_tcp_stripes_write(tcp, peer);
        if (has_work(peer)) tutti_tcp_peer_ready(tcp, peer);
    }
}

bool tutti_tcp_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    tutti_sources_add_fd(sources, tcp->notices.epoll);
    tutti_notices_sleep(&tcp->notices);
    if (tutti_notices_any(&tcp->notices)) tutti_tcp_news(tcp);
    ask_epoll(tcp);
    write_all(tcp);
    if (tcp->n_held > 0) tutti_sources_until(sources, tutti_now_ns() + HELD_NS);
    if (tcp->n_wide > 0 && paths_busy(tcp)) tutti_sources_until(sources, tutti_now_ns() + BUSY_NS);
    bool quiet = !tcp->ready.first && !tcp->over.first && !tcp->room;
    tcp->room = false;
    /* What others tell from now on is an edge of the event. */
    return tutti_notices_quiet(&tcp->notices) && quiet;
}

void tutti_tcp_sleep_end(struct tutti_transport *t)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    tutti_notices_awake(&tcp->notices);
    tcp->n_turns = TURNS; /* epoll knows what ended the sleep */
}

/* ---- send, open, close ---- */

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
    if (tutti_notices_any(&tcp->notices)) tutti_tcp_news(tcp);
    if (!m->peer && m->status == TUTTI_OK && !m->dialed) {
        m->dialed = true;
        tcp->dialer->dial(tcp->dialer, peer);
        if (tutti_notices_any(&tcp->notices)) tutti_tcp_news(tcp);
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

/* A packet, or the head of one, in the order of the first socket. AGAIN: the socket is broken. */
static enum tutti_status send_by_one(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, uint8_t *head,
                                     const struct tutti_span *spans, uint32_t n_spans, size_t bytes, uint64_t token)
{
    ssize_t n = 0;
    if (!tutti_tcp_out_waits(&peer->out) && peer->writable) {
        n = write_packet(peer, head, spans, n_spans, bytes);
        if (n == (ssize_t)(HEAD + bytes)) return TUTTI_OK;
        if (n < 0 && n != -EAGAIN && n != -EINTR) {
            peer->error = (int)-n, peer->failed = true;
            tutti_tcp_peer_ready(tcp, peer);
            return TUTTI_AGAIN;
        }
        peer->writable = false;
    }
    enum tutti_status status = tutti_tcp_out_add(&peer->out, head, spans, n_spans, bytes, n > 0 ? (size_t)n : 0, token);
    tutti_tcp_peer_owes(tcp, peer);
    return status;
}

static enum tutti_status tcp_send(struct tutti_transport *t, uint32_t member, const struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    uint8_t head[HEAD + GATHERED];
    TUTTI_TRY(tutti_send_check(t, member, packet, spans, n_spans));
    if (tutti_notices_is_cut(&tcp->notices, member))
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
    if (packet->bytes <= TUTTI_TCP_COPIED) return send_by_one(tcp, peer, head, spans, n_spans, packet->bytes, token);
    if (!tutti_tcp_is_striped(peer)) {
        tutti_tcp_tell(tcp, peer);
        return send_by_one(tcp, peer, head, spans, n_spans, packet->bytes, token);
    }
    if (!tutti_tcp_stripes_have_room(peer)) {
        peer->wants_room = true;
        return TUTTI_AGAIN;
    }
    head[1] |= TUTTI_TCP_STRIPED;
    TUTTI_TRY(send_by_one(tcp, peer, head, NULL, 0, 0, 0));
    return peer->failed ? TUTTI_AGAIN : tutti_tcp_stripes_add(tcp, peer, spans, n_spans, packet->bytes, token);
}

void tutti_tcp_tell(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    uint8_t packet[HEAD + GATHERED] = {TUTTI_WIRE_VERSION, TUTTI_TCP_TOLD};
    if (peer->told || !tcp->dialer->tell || peer->member >= tcp->base.me) return;
    if (tutti_tcp_out_waits(&peer->out) && !tutti_tcp_out_has_room(&peer->out, TUTTI_TCP_TOLD_MOST, 1)) return;
    peer->told = true;
    const size_t bytes = tcp->dialer->tell(tcp->dialer, peer->member, packet + HEAD, TUTTI_TCP_TOLD_MOST);
    tutti_le_store(packet + offsetof(struct tutti_packet, bytes), 4, bytes);
    const struct tutti_span span = {packet + HEAD, bytes};
    if (bytes > 0) send_by_one(tcp, peer, packet, &span, 1, bytes, 0);
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
    if (tcp->given) tutti_tcp_in_place(tcp, tcp->given, targets, n, token);
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
        const bool found = tutti_tcp_out_cancel(&peer->out, token, &lost) ||
                           (peer->stripes && tutti_tcp_stripes_cancel(peer, token, &lost));
        if (found && lost)
            tutti_tcp_peer_end(tcp, peer, TUTTI_ERR_PEER_DEAD); /* half a packet, and no memory for the rest */
    }
}

static bool tcp_holds(struct tutti_transport *t, uint32_t peer)
{
    const struct tutti_tcp *tcp = tutti_tcp_of(t);
    const struct tutti_tcp_peer *p = peer < t->n ? tcp->members[peer].peer : NULL;
    int bytes = 0;
    if (!p || p->fd < 0) return false;
    return p->ready || tutti_stream_holds(p->stream) || (ioctl(p->fd, FIONREAD, &bytes) == 0 && bytes > 0) ||
           tutti_tcp_stripes_hold(p);
}

static void tcp_expect(struct tutti_transport *t, uint32_t peer)
{
    tutti_tcp_of(t)->expected = peer < t->n ? tutti_tcp_of(t)->members[peer].peer : NULL;
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
    if (peer->stripes) tutti_tcp_stripes_drain(peer);
}

/* Gives the peer a moment to take what waits for it. It may wait for us in the same way, so what it sends is read. */
static void flush(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, uint64_t until_ns)
{
    while (peer->owes && !peer->failed && tutti_now_ns() < until_ns) {
        struct pollfd fds[1 + TUTTI_TCP_PATHS];
        const bool waits = tutti_tcp_out_waits(&peer->out);
        nfds_t n = tutti_tcp_stripes_watch(peer, fds + 1);
        fds[0] = (struct pollfd){.fd = peer->out_fd, .events = POLLIN | (waits ? POLLOUT : 0)};
        poll(fds, 1 + n, 1);
        drain(peer);
        if (waits) tutti_tcp_peer_write(tcp, peer);
        if (tutti_tcp_stripes_wait(peer)) tutti_tcp_stripes_write(tcp, peer);
    }
}

static void say_goodbye(struct tutti_tcp_peer *peer)
{
    uint8_t goodbye[HEAD] = {TUTTI_WIRE_VERSION, TUTTI_TCP_GOODBYE};
    struct iovec iov = {goodbye, sizeof(goodbye)};
    if (!peer->owes && tutti_stream_send(peer->stream, peer->out_fd, &iov, 1) == (ssize_t)sizeof(goodbye)) {
        if (peer->stream) peer->stream->ops->finish(peer->stream);
        shutdown(peer->out_fd, SHUT_WR);
        if (peer->stripes) tutti_tcp_stripes_finish(peer);
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
            flush(tcp, peer, until_ns);
            say_goodbye(peer);
        }
        tutti_tcp_peer_end(tcp, peer, TUTTI_ERR_PEER_LEFT);
        tutti_tcp_peer_free(tcp, peer);
    }
    tutti_unmap(tcp->members, t->n * sizeof(*tcp->members));
    tutti_notices_close(&tcp->notices);
    tutti_free(tcp);
}

/* ---- what other threads tell ---- */

void tutti_tcp_path_connected(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream)
{
    tutti_notices_more(&tutti_tcp_of(t)->notices, peer, fd, stream);
}

void tutti_tcp_connected(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream)
{
    tutti_notices_connected(&tutti_tcp_of(t)->notices, peer, fd, stream);
}

void tutti_tcp_failed(struct tutti_transport *t, uint32_t peer, enum tutti_status status)
{
    tutti_notices_failed(&tutti_tcp_of(t)->notices, peer, status);
}

static void tcp_cut(struct tutti_transport *t, uint32_t peer)
{
    tutti_notices_cut(&tutti_tcp_of(t)->notices, peer);
}

static void tcp_wake(struct tutti_transport *t)
{
    tutti_notices_wake(&tutti_tcp_of(t)->notices);
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
    .expect = tcp_expect,
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
    tcp->vanish_ns = config->vanish_ns, tcp->silence_ns = config->silence_ns;
    tcp->members = tutti_map_lazy(config->n * sizeof(*tcp->members));
    if (!tcp->members) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a table of %u members", config->n);
        goto err_free;
    }
    TUTTI_TRY_GOTO(status, tutti_notices_open(&tcp->notices, "tcp", config->n, config->me), err_unmap);
    *out = &tcp->base;
    return TUTTI_OK;

err_unmap:
    tutti_unmap(tcp->members, config->n * sizeof(*tcp->members));
err_free:
    tutti_free(tcp);
    return status;
}
