/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_TCP_PEER_H
#define TUTTI_TRANSPORT_TCP_PEER_H

/* What the files of this room share. A member of the world costs a row of a table (lazily mapped: a million members
 * that nobody talks to cost nothing); a peer, which is a member with a socket, costs one mapping with its queue and its
 * reading buffer, of which it touches what it uses.
 *
 * out.c: the socket, and what could not be written yet. in.c: from bytes to events. peer.c: sockets come and end.
 * tcp.c: send, open, close, poll and sleep. All is the owner's but what the lock guards, and the atomics. */

#include "transport/network.h"
#include "transport/tcp/tcp.h"

#include <stdatomic.h>

#define TUTTI_TCP_COPIED ((size_t)64 << 10)
/* Read at once. A payload that fits is not asked about: whoever copies what it sends does not expect a place there. */
#define TUTTI_TCP_WINDOW (TUTTI_TCP_COPIED + 4096)
#define TUTTI_TCP_ARENA (4 * TUTTI_TCP_COPIED)
#define TUTTI_TCP_PIECES 256u
/* What waits goes out before what is sent later, a request for more among it: on a slow link a long queue would let the
 * link run dry until the request has come through. So no lent payload is added to so many bytes that wait here, and the
 * socket takes so many beyond what is on the wire. */
#define TUTTI_TCP_LENT ((size_t)512 << 10)
#define TUTTI_TCP_UNSENT (256 << 10)
#define TUTTI_TCP_HOT 2u      /* peers that are read while spinning, without asking epoll */
#define TUTTI_TCP_GOODBYE 255 /* type of a head without payload: the sender closes its end in order */

struct tutti_tcp_peer;

/* ---- what waits to be written: pieces of memory in the order of the stream ---- */
struct tutti_tcp_piece {
    const uint8_t *base;
    size_t bytes;
    uint64_t token;
    bool borrowed, last; /* in the sender's memory, else in the arena; last: with it the token comes back */
};
struct tutti_tcp_copy { /* a copy of memory that was taken back */
    struct tutti_tcp_copy *next;
    uint8_t bytes[];
};
struct tutti_tcp_out {
    uint64_t begin, sent, end; /* pieces [begin, sent) are over and some are to be told, [sent, end) wait */
    uint64_t n_over;           /* tokens to be told */
    uint64_t freed, filled;    /* bytes of the arena */
    struct tutti_tcp_copy *copies;
    struct tutti_tcp_piece pieces[TUTTI_TCP_PIECES];
    uint8_t arena[TUTTI_TCP_ARENA];
};

/* ---- what was read ---- */
enum tutti_tcp_reading {
    TUTTI_TCP_HEAD,    /* the next head, and its payload if it fits into the window */
    TUTTI_TCP_WHOLE,   /* ... or if it does not */
    TUTTI_TCP_GIVEN,   /* an event was given out, and awaits release or place */
    TUTTI_TCP_PLACED,  /* the rest of a payload, into targets */
    TUTTI_TCP_SKIPPED, /* the rest of a payload that nobody wants any more */
};
struct tutti_tcp_in {
    enum tutti_tcp_reading reading;
    size_t begin, end;          /* the part of the buffer that was read and is not used */
    size_t next;                /* GIVEN: what of the buffer is used then */
    bool large;                 /* the last payload did not fit: heads are read alone */
    struct tutti_packet packet; /* GIVEN, PLACED, SKIPPED */
    size_t left;                /* PLACED, SKIPPED: bytes to come */
    uint64_t token;
    uint32_t target, n_targets;
    struct tutti_target targets[TUTTI_SPANS_MAX];
    uint8_t *buffer; /* window and the largest payload */
};

struct tutti_tcp_peer {
    _Alignas(TUTTI_CACHE_LINE) struct tutti_tcp_peer *next; /* in the list of all */
    struct tutti_tcp_peer *next_ready, *next_over;          /* in other lists */
    bool ready, over;                                       /* is in the list */
    bool readable, writable;                                /* as far as is known */
    bool more;                                              /* the reading buffer may hold another event */
    bool ending;                                            /* its end was seen: read until it comes */
    bool failed;     /* nothing more is awaited: over when nothing is left to read */
    bool wants_room; /* a send found no room */
    bool lost;       /* the placement with in.token is to be told as lost */
    uint32_t member;
    int fd, out_fd;              /* one and the same, but of oneself; -1: over, as the status says */
    struct tutti_stream *stream; /* that encrypts; NULL: in the clear */
    int error;                   /* errno that ended it; 0: the peer closed it */
    enum tutti_status status;
    struct tutti_tcp_in in;
    struct tutti_tcp_out out;
};

struct tutti_tcp_member {
    struct tutti_tcp_peer *peer; /* NULL: no socket yet */
    bool dialed, waited;         /* waited: a send wants the socket */
    enum tutti_status status;    /* why it can not be reached */
};

struct tutti_tcp_list { /* first in, first out */
    struct tutti_tcp_peer *first, *end;
};
struct tutti_tcp {
    struct tutti_transport base; /* first */
    struct tutti_dialer *dialer;
    uint64_t vanish_ns;
    struct tutti_notices notices;
    struct tutti_tcp_member *members;
    struct tutti_tcp_peer *peers;
    struct tutti_tcp_list ready;               /* may be read or written */
    struct tutti_tcp_list over;                /* have tokens to tell */
    struct tutti_tcp_peer *hot[TUTTI_TCP_HOT]; /* spoke last, the last one first */
    struct tutti_tcp_peer *expected;           /* the next look is at this one alone; NULL: at all */
    struct tutti_tcp_peer *given;              /* the peer whose event is unanswered */
    uint32_t n_turns;                          /* since epoll was asked */
    uint32_t n_owing;                          /* peers whose queue waits */
    uint32_t n_open;                           /* peers with a socket */
    bool room;                                 /* there is some where a send found none */
};
static inline struct tutti_tcp *tutti_tcp_of(struct tutti_transport *t)
{
    return (struct tutti_tcp *)(void *)t;
}

/* ---- out.c ---- */
static inline bool tutti_tcp_out_waits(const struct tutti_tcp_out *out)
{
    return out->sent < out->end;
}
/* Whether a packet with such a payload can be queued. */
bool tutti_tcp_out_has_room(const struct tutti_tcp_out *out, size_t bytes, uint32_t n_spans);
bool tutti_tcp_out_is_low(const struct tutti_tcp_out *out); /* so low that a sender without room is told */
/* Queues a packet but its first `skip` bytes, which are gone. PENDING: the spans are borrowed. */
enum tutti_status tutti_tcp_out_add(struct tutti_tcp_out *out, const uint8_t *head, const struct tutti_span *spans,
                                    uint32_t n_spans, size_t bytes, size_t skip, uint64_t token);
/* Writes once. Below 0: errno, negative, of a socket that is broken; 1: it took all that was offered, 0: it is full. */
int tutti_tcp_out_write(struct tutti_tcp_peer *peer);
void tutti_tcp_out_end(struct tutti_tcp_out *out);                   /* nothing waits any more: all is over */
bool tutti_tcp_out_tell(struct tutti_tcp_out *out, uint64_t *token); /* the next token that is over */
/* Takes a token back. False: it is not here. MEMORY is told by *lost: the stream can not go on. */
bool tutti_tcp_out_cancel(struct tutti_tcp_out *out, uint64_t token, bool *lost);
void tutti_tcp_out_fini(struct tutti_tcp_out *out);

/* ---- in.c ---- */
/* Reads once, at most. OK: *out is an event; AGAIN: none yet. PROTOCOL. PEER_LEFT, PEER_DEAD: it ended. */
enum tutti_status tutti_tcp_in_turn(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_event *out);
void tutti_tcp_in_release(struct tutti_tcp_in *in);
void tutti_tcp_in_place(struct tutti_tcp_in *in, const struct tutti_target *targets, uint32_t n, uint64_t token);

/* ---- peer.c ---- */
void tutti_tcp_peer_ready(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
void tutti_tcp_peer_over(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
struct tutti_tcp_peer *tutti_tcp_list_take(struct tutti_tcp_list *list, bool over);
/* The socket and the stream belong to the peer, or are closed. */
enum tutti_status tutti_tcp_peer_open(struct tutti_tcp *tcp, uint32_t member, int fd, int out_fd,
                                      struct tutti_stream *stream);
/* Its socket is closed, and what was lent comes back with the status. */
void tutti_tcp_peer_end(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, enum tutti_status status);
void tutti_tcp_peer_write(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
void tutti_tcp_peer_free(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
void tutti_tcp_news(struct tutti_tcp *tcp); /* takes what other threads told */

/* ---- tcp.c ---- */
enum tutti_status tutti_tcp_poll(struct tutti_transport *t, struct tutti_event *out);
bool tutti_tcp_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources);
void tutti_tcp_sleep_end(struct tutti_transport *t);

#endif
