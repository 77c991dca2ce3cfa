/* SPDX-License-Identifier: BSD-3-Clause */
/* Poll and sleep. Peers that may be read or written stand in a line, and each has one turn: one write, one read. Who
 * spoke last is read without asking epoll, which costs a call of the system; the others are asked about every few
 * turns. epoll tells each change once (edge-triggered), so a peer stays in the line until its socket is empty or full.
 */

#include "transport/tcp/peer.h"

#include <sys/epoll.h>

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
    const int n = epoll_wait(tcp->news.epoll, events, EVENTS, 0);
    tcp->n_turns = 0;
    for (int i = 0; i < n; i++) {
        struct tutti_tcp_peer *peer = events[i].data.ptr;
        if (!peer) continue; /* the event of wake: its edge is taken */
        if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) peer->readable = true;
        if (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) peer->ending = true;
        if (events[i].events & EPOLLOUT) peer->writable = true;
        if (peer->readable || tutti_tcp_out_waits(&peer->out)) tutti_tcp_peer_ready(tcp, peer);
    }
}

static void look(struct tutti_tcp *tcp)
{
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
    return peer->readable || peer->more || (peer->writable && tutti_tcp_out_waits(&peer->out));
}

/* One turn of a peer. OK: *out is an event. */
static enum tutti_status turn(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_event *out)
{
    if (peer->fd < 0) return TUTTI_AGAIN;
    if (peer->writable && tutti_tcp_out_waits(&peer->out)) tutti_tcp_peer_write(tcp, peer);
    enum tutti_status status = tutti_tcp_in_turn(tcp, peer, out);
    if (status < 0) {
        tutti_tcp_peer_end(tcp, peer, status);
        return status == TUTTI_ERR_PROTOCOL ? status : TUTTI_AGAIN;
    }
    if (status == TUTTI_OK) warm(tcp, peer);
    if (status == TUTTI_OK && out->type != TUTTI_EVENT_DONE) tcp->given = peer;
    const size_t used = peer->in.reading == TUTTI_TCP_GIVEN ? peer->in.next : 0;
    peer->more = status == TUTTI_OK && peer->in.end >= used + TUTTI_PACKET_WIRE_BYTES;
    if (has_work(peer)) tutti_tcp_peer_ready(tcp, peer);
    tcp->n_turns += peer->in.large ? TURNS_LARGE : status == TUTTI_OK ? TURNS_SMALL : 1;
    return status;
}

static bool tell_over(struct tutti_tcp *tcp, struct tutti_event *out)
{
    struct tutti_tcp_peer *peer;
    while ((peer = tutti_tcp_list_take(&tcp->over, true))) {
        *out = (struct tutti_event){.type = TUTTI_EVENT_DONE, .status = peer->status, .token = peer->in.token};
        const bool told = peer->lost || tutti_tcp_out_tell(&peer->out, &out->token);
        peer->lost = false;
        tutti_tcp_peer_over(tcp, peer);
        if (told) return true;
    }
    return false;
}

enum tutti_status tutti_tcp_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    if (tcp->given) return tutti_fail(TUTTI_ERR_INTERNAL, "poll before the last event was released or answered");
    if (tutti_news_any(&tcp->news)) tutti_tcp_news(tcp);
    if (tcp->n_turns >= TURNS) ask_epoll(tcp);
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
        if (has_work(peer)) tutti_tcp_peer_ready(tcp, peer);
    }
}

bool tutti_tcp_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    tutti_sources_add_fd(sources, tcp->news.epoll);
    tutti_news_sleep(&tcp->news);
    if (tutti_news_any(&tcp->news)) tutti_tcp_news(tcp);
    ask_epoll(tcp);
    write_all(tcp);
    bool quiet = !tcp->ready.first && !tcp->over.first && !tcp->room;
    tcp->room = false;
    /* What others tell from now on is an edge of the event. */
    return tutti_news_quiet(&tcp->news) && quiet;
}

void tutti_tcp_sleep_end(struct tutti_transport *t)
{
    struct tutti_tcp *tcp = tutti_tcp_of(t);
    tutti_news_awake(&tcp->news);
    tcp->n_turns = TURNS; /* epoll knows what ended the sleep */
}
