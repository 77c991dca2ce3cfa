/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_TCP_PEER_H
#define TUTTI_TRANSPORT_TCP_PEER_H

/* What the files of this room share. A member of the world costs a row of a table (lazily mapped: a million members
 * that nobody talks to cost nothing); a peer, which is a member with a socket, costs one mapping with its queue and its
 * reading buffer, of which it touches what it uses.
 *
 * out.c: the socket, and what could not be written yet. in.c: from bytes to events. peer.c: sockets come and end.
 * path.c: more sockets of a peer, and what they carry; share.c: how much each of them takes. tcp.c: send, open, close,
 * poll and sleep. All is the owner's but what the lock guards, and the atomics. */

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
#define TUTTI_TCP_TOLD 254    /* type of a head: its payload is what the dialer needs for more sockets */
#define TUTTI_TCP_STRIPED 128 /* added to the type of a packet: its payload comes by the paths */
#define TUTTI_TCP_TOLD_MOST 1024

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
    TUTTI_TCP_HEAD,     /* the next head, and its payload if it fits into the window */
    TUTTI_TCP_WHOLE,    /* ... or if it does not */
    TUTTI_TCP_GIVEN,    /* an event was given out, and awaits release or place */
    TUTTI_TCP_PLACED,   /* the rest of a payload, into targets */
    TUTTI_TCP_SKIPPED,  /* the rest of a payload that nobody wants any more */
    TUTTI_TCP_GATHERED, /* nothing: the payload that stands first comes by the paths, into the transport's memory */
};
struct tutti_tcp_in {
    enum tutti_tcp_reading reading;
    size_t begin, end;          /* the part of the buffer that was read and is not used */
    size_t next;                /* GIVEN: what of the buffer is used then */
    bool large;                 /* the last payload did not fit: heads are read alone */
    bool striped;               /* GIVEN: the payload of this packet comes by the paths */
    bool full;                  /* HEAD: the next packet has to wait until the paths have brought another */
    struct tutti_packet packet; /* GIVEN, PLACED, SKIPPED */
    size_t left;                /* PLACED, SKIPPED: bytes to come */
    uint64_t token;
    uint32_t target, n_targets;
    struct tutti_target targets[TUTTI_SPANS_MAX];
    uint8_t *buffer; /* window and the largest payload */
};

/* ---- paths: more sockets of a peer, which carry nothing but payloads of large packets ----
 *
 * The head of such a packet goes by the first socket, in its order; its payload goes in pieces over the paths, a piece
 * by whichever takes one next. The n-th striped head of a connection is packet n. On a path each piece has a head: the
 * number of its packet (8 bytes), where it begins in the payload (4), its bytes (4), little-endian. Packets do not go
 * back on a path: so what waits for a packet's place never waits behind a later one. */
#define TUTTI_TCP_PATHS 32u   /* to one peer */
#define TUTTI_TCP_LEAVING 16u /* packets that leave at once */
#define TUTTI_TCP_COMING 32u  /* ... that come */
#define TUTTI_TCP_PIECE_HEAD 16
#define TUTTI_TCP_SCRAP ((size_t)64 << 10)

struct tutti_tcp_piece_left { /* a piece under way; left 0 and n_head 0: there is none */
    uint8_t head[TUTTI_TCP_PIECE_HEAD];
    size_t n_head; /* in: bytes of the head that are here; out: that are to be written */
    uint64_t packet;
    size_t at, left;
};
struct tutti_tcp_path {
    int fd; /* -1: over */
    struct tutti_stream *stream;
    bool readable, writable, ending; /* ending: its end was seen, read until it comes */
    int error;                       /* a write's; 0: none */
    struct tutti_tcp_piece_left in, out;
    uint64_t n_in, n_out;           /* bytes so far */
    uint64_t acked, acked_ns;       /* confirmed bytes, and when, since when it has had something to do; */
    uint64_t written, burst;        /* bytes up to here waited when it was asked last; up to here are not counted */
    uint64_t busy_acked, busy_us;   /* the same as the kernel counts it */
    bool idle;                      /* when it was asked last, all was confirmed */
    uint64_t progress, progress_ns; /* bytes that were confirmed then, and since when there are no more */
    double rate;                    /* bytes a second that it takes, as far as is known */
    double trip_s;                  /* its shortest way there and back */
    size_t queued;                  /* bytes that the kernel has, and the peer has not confirmed, when it was asked */
};
struct tutti_tcp_leaving {
    uint64_t token;
    size_t bytes, given, written; /* given: to paths */
    bool told;                    /* or nobody wants to know */
    uint32_t n_spans;
    struct tutti_target spans[TUTTI_SPANS_MAX]; /* read alone */
    struct tutti_tcp_copy *copy;                /* NULL: the memory is the sender's */
};
struct tutti_tcp_coming {
    bool open, skipped, gathers;
    uint64_t token;
    size_t bytes, left, unclaimed; /* unclaimed: that no piece has announced */
    uint32_t n_targets;
    struct tutti_target targets[TUTTI_SPANS_MAX];
};
struct tutti_tcp_stripes {
    uint32_t n_paths, n_live;
    struct tutti_tcp_path paths[TUTTI_TCP_PATHS];
    uint64_t begin, next, end; /* packets [begin, end) leave; from `next` on there are bytes that no path has */
    size_t waiting, unwritten; /* these bytes; and with those that paths have taken and not written */
    uint32_t n_over;           /* tokens to be told: of packets that left, and once it has ended of those that came */
    uint64_t measured_ns;
    uint64_t silence_ns; /* a path that confirms nothing for so long is broken; 0: never */
    uint32_t turn;       /* the path that is read first */
    bool ended;
    bool held; /* a path could be written, but its queue is long enough */
    struct tutti_tcp_leaving leaving[TUTTI_TCP_LEAVING];
    uint64_t n_placed; /* packets that have come so far, by their heads */
    uint32_t n_coming; /* ... and are not whole */
    struct tutti_tcp_coming coming[TUTTI_TCP_COMING];
    uint8_t scrap[TUTTI_TCP_SCRAP];
    uint8_t gathered[]; /* the largest payload */
};

struct tutti_tcp_peer {
    _Alignas(TUTTI_CACHE_LINE) struct tutti_tcp_peer *next; /* in the list of all */
    struct tutti_tcp_peer *next_ready, *next_over;          /* in other lists */
    bool ready, over;                                       /* is in the list */
    bool readable, writable;                                /* as far as is known */
    bool more;                                              /* the reading buffer may hold another event */
    bool ending;                                            /* its end was seen: read until it comes */
    bool failed;     /* nothing more is awaited: over when nothing is left to read */
    bool broke;      /* a path did, though the peer may live */
    bool wants_room; /* a send found no room */
    bool lost;       /* the placement with in.token is to be told as lost */
    bool owes;       /* something waits to be written */
    bool told;       /* what it needs for more sockets was sent */
    uint32_t member;
    int fd, out_fd;              /* one and the same, but of oneself; -1: over, as the status says */
    struct tutti_stream *stream; /* that encrypts; NULL: in the clear */
    int error;                   /* errno that ended it; 0: the peer closed it */
    enum tutti_status status;
    struct tutti_tcp_stripes *stripes; /* NULL: one socket is all */
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
    uint64_t vanish_ns, silence_ns;
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
    uint32_t n_held;                           /* ... with paths that are held back */
    uint32_t n_striped;                        /* packets that come by paths */
    uint64_t held_ns;                          /* when they were looked at last */
    uint32_t n_wide;                           /* peers with paths */
    uint64_t checked_ns;                       /* when it was looked whether these live */
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
void tutti_tcp_in_place(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, const struct tutti_target *targets,
                        uint32_t n, uint64_t token);
/* Whether the first socket is not to be read before the paths have brought something. */
static inline bool tutti_tcp_in_waits(const struct tutti_tcp_in *in)
{
    return in->full || in->reading == TUTTI_TCP_GATHERED;
}
/* ... which they will not. */
static inline bool tutti_tcp_in_vain(const struct tutti_tcp_peer *peer)
{
    return peer->failed || (peer->ending && (!peer->stripes || peer->stripes->n_live == 0));
}

/* ---- peer.c ---- */
void tutti_tcp_peer_ready(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
void tutti_tcp_peer_over(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
struct tutti_tcp_peer *tutti_tcp_list_take(struct tutti_tcp_list *list, bool over);
/* The socket and the stream belong to the peer, or are closed. */
enum tutti_status tutti_tcp_peer_open(struct tutti_tcp *tcp, uint32_t member, int fd, int out_fd,
                                      struct tutti_stream *stream);
/* Its socket is closed, and what was lent comes back with the status. */
void tutti_tcp_peer_end(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, enum tutti_status status);
void tutti_tcp_peer_room(struct tutti_tcp *tcp,
                         struct tutti_tcp_peer *peer); /* tells who found none, if there is some */
void tutti_tcp_peer_write(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
void tutti_tcp_peer_free(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
void tutti_tcp_peer_owes(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer); /* counts it, or no more */
void tutti_tcp_news(struct tutti_tcp *tcp);                                   /* takes what other threads told */

/* ---- path.c ---- */
/* The peer has one socket more; it belongs to the peer, or is closed. */
enum tutti_status tutti_tcp_path_open(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, int fd,
                                      struct tutti_stream *stream);
/* What epoll told of the path of an event, if it is one. */
struct tutti_tcp_peer *tutti_tcp_path_event(uint64_t data, uint32_t events);
static inline bool tutti_tcp_is_striped(const struct tutti_tcp_peer *peer)
{
    return peer->stripes && peer->stripes->n_live > 0;
}
static inline bool tutti_tcp_stripes_wait(const struct tutti_tcp_peer *peer) /* to be written */
{
    return peer->stripes && peer->stripes->unwritten > 0;
}
bool tutti_tcp_stripes_have_work(const struct tutti_tcp_peer *peer); /* a path may be read or written */
bool tutti_tcp_stripes_have_room(const struct tutti_tcp_peer *peer);
/* The payload of a striped packet. PENDING: the spans are borrowed. */
enum tutti_status tutti_tcp_stripes_add(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer,
                                        const struct tutti_span *spans, uint32_t n_spans, size_t bytes, uint64_t token);
void tutti_tcp_stripes_write(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
/* Writes and reads what can be. OK: *out is an event. */
enum tutti_status tutti_tcp_stripes_turn(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_event *out);
/* Whether there is a place for one packet more. MEMORY: there never is. */
enum tutti_status tutti_tcp_stripes_expect(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, bool *out);
/* Where the next packet's payload goes; n 0: into the transport's memory. */
void tutti_tcp_stripes_place(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, const struct tutti_target *targets,
                             uint32_t n, uint64_t token);
/* The next token that is over, or lost. */
bool tutti_tcp_stripes_tell(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, uint64_t *token);
bool tutti_tcp_stripes_cancel(struct tutti_tcp_peer *peer, uint64_t token, bool *lost);
bool tutti_tcp_stripes_hold(const struct tutti_tcp_peer *peer); /* bytes that came and were not read */
void tutti_tcp_stripes_check(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer); /* whether its paths live */
void tutti_tcp_stripes_drain(struct tutti_tcp_peer *peer); /* reads what is there, into nowhere */
struct pollfd;
uint32_t tutti_tcp_stripes_watch(struct tutti_tcp_peer *peer, struct pollfd *fds); /* for poll: returns how many */
void tutti_tcp_stripes_finish(struct tutti_tcp_peer *peer);                        /* says that no more comes */
void tutti_tcp_stripes_end(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
void tutti_tcp_stripes_free(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);

/* ---- share.c ---- */
#define TUTTI_TCP_RATE_FIRST 125e6 /* bytes a second, until it is known better: all paths count alike */
#define TUTTI_TCP_IDLE 16384       /* a path with no more than so many bytes on the way has nothing to do */
void tutti_tcp_path_confirm(const struct tutti_tcp_path *path); /* what was read, at once */
void tutti_tcp_paths_measure(struct tutti_tcp_stripes *s);      /* asks the kernel, at times */
bool tutti_tcp_paths_busy(const struct tutti_tcp_stripes *s);
/* Bytes of what waits that this path takes next; 0: none now, since others have done with it sooner. */
size_t tutti_tcp_path_share(const struct tutti_tcp_stripes *s, const struct tutti_tcp_path *path);

/* ---- tcp.c ---- */
/* A large packet goes or comes: the first time, the member that is to dial is told what it needs for more sockets. */
void tutti_tcp_tell(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer);
enum tutti_status tutti_tcp_poll(struct tutti_transport *t, struct tutti_event *out);
bool tutti_tcp_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources);
void tutti_tcp_sleep_end(struct tutti_transport *t);

#endif
