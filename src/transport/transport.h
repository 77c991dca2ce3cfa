/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_TRANSPORT_H
#define TUTTI_TRANSPORT_TRANSPORT_H

/* A transport moves packets between the n members of one world (one bootstrap). It never blocks but in wait, never
 * calls back, never allocates after open, and knows nothing of collectives, nor of who lives (control/control.h).
 *
 * Thread: everything but wake and cut is for the progress owner alone; those may be called by any thread. Order:
 * packets from one member to another arrive in the order of the sends, once (decorators may break both on purpose: the
 * engine must survive it). Ownership: payloads are copied by send; an arrival's payload is the transport's until
 * release. */

#include "base/base.h"

#define TUTTI_WIRE_VERSION 1

enum tutti_packet_type {
    TUTTI_PACKET_DATA = 1, /* a part of a message of a schedule; payload, or an offer (flags) */
    TUTTI_PACKET_GRANT,    /* the receiver is ready for the message (seq, slice, fifo) */
    TUTTI_PACKET_CREDIT,   /* eager credits given back (credits) */
    TUTTI_PACKET_READ,     /* an offered message has been read: the sender may go on */
    TUTTI_PACKET_P2P,      /* point-to-point: envelope, with payload when small */
    TUTTI_PACKET_P2P_GRANT,
    TUTTI_PACKET_P2P_DATA,
    TUTTI_PACKET_P2P_READ,
};
enum tutti_packet_flag { TUTTI_PACKET_OFFER = 1, TUTTI_PACKET_EAGER = 2, TUTTI_PACKET_LAST = 4 };

/* The computed identity and signature of every message (S5). 80 bytes, host byte order within a host; networks encode
 * it field by field (packet.c: tutti_packet_encode/decode, bounds-checked, fuzzed). */
struct tutti_packet {
    uint8_t version, type, flags, credits;
    uint32_t source; /* member index of the sender; set by the transport */
    uint64_t comm;   /* communicator id */
    uint32_t epoch;
    uint32_t bytes;     /* payload of this packet */
    uint64_t seq;       /* of the collective in its communicator; p2p: number of the message between this pair */
    uint32_t slice;     /* p2p: the tag */
    uint32_t fifo;      /* number of the message between this pair in this collective */
    uint64_t signature; /* of the call: kind, dtype, op, root, count, algorithm */
    uint64_t total;     /* bytes of the whole message */
    uint64_t offset;    /* of this packet's payload in the message; offers: offset in the sender's heap (or address) */
    uint64_t count;     /* what a mismatch is told with: the call's count, */
    uint64_t call;      /* and its kind, dtype, op and root, packed by the engine */
};
#define TUTTI_PACKET_WIRE_BYTES 80
void tutti_packet_encode(const struct tutti_packet *packet, uint8_t out[TUTTI_PACKET_WIRE_BYTES]);
/* PROTOCOL when version, type or sizes can not be. */
enum tutti_status tutti_packet_decode(const uint8_t *bytes, size_t n, struct tutti_packet *out);

struct tutti_arrival {
    struct tutti_packet packet; /* a copy: the peer can not change it any more */
    const void *payload;        /* packet.bytes bytes, 16-byte aligned, valid until release */
};
struct tutti_span {
    const void *base;
    size_t bytes;
};

enum tutti_transport_caps {
    TUTTI_CAP_ADDRESSES = 1, /* one address space: an offer's offset is an address (self) */
    TUTTI_CAP_HEAP = 2,      /* members can map one another's heap (shm) */
};

struct tutti_transport;
struct tutti_transport_ops {
    size_t size; /* sizeof(struct tutti_transport_ops): calls are added at the end, optional ones last */
    /* Marks this member as having left, unmaps, frees. No arrival may be unreleased. Frees `t`. */
    void (*close)(struct tutti_transport *t);
    /* Sends one packet: packet->bytes bytes gathered from n_spans spans. OK: copied, peer told. AGAIN: no room now; a
     * sleep ends when there is. PEER_DEAD, PEER_LEFT: it can not arrive. PROTOCOL: the peer wrote nonsense into the
     * ring. At most t->max_payload bytes. Peer may be oneself. version and source are filled in. */
    enum tutti_status (*send)(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                              const struct tutti_span *spans, uint32_t n_spans);
    /* OK and the next arrival of any peer (fair between peers), AGAIN when there is none, PROTOCOL when a peer wrote
     * nonsense (the text names it). Exactly one arrival may be unreleased. */
    enum tutti_status (*poll)(struct tutti_transport *t, struct tutti_arrival *out);
    void (*release)(struct tutti_transport *t);
    /* Announces that this thread is about to sleep, returns true if there is still nothing to poll, no
     * room where a send found none, and no wake since the last sleep: then sleep on *t->doorbell while it equals
     * *expected. Else do not sleep. Call sleep_end in both cases. Sleep at most some 100 ms at a time: a peer may die
     * between publishing a packet and ringing. */
    bool (*sleep_begin)(struct tutti_transport *t, uint32_t *expected);
    void (*sleep_end)(struct tutti_transport *t);
    /* Ends a sleep of this member's owner, from any thread of this process. */
    void (*wake)(struct tutti_transport *t);
    /* The peer is dead: sends to it fail with PEER_DEAD from now on. Whoever hears of a death (control/control.h) says
     * so here. Any thread. */
    void (*cut)(struct tutti_transport *t, uint32_t peer);
    /* ---- optional: NULL without the capability ---- */
    enum tutti_status (*heap_alloc)(struct tutti_transport *t, size_t bytes, void **out); /* any thread */
    enum tutti_status (*heap_free)(struct tutti_transport *t, void *pointer);             /* any thread */
    /* True and the offset to offer if [pointer, +bytes) can be read by the members of this host. Any thread. */
    bool (*locate)(struct tutti_transport *t, const void *pointer, size_t bytes, uint64_t *offset);
    /* Address here of a peer's offer, NULL when out of range; stays valid until close. Any thread. */
    void *(*map)(struct tutti_transport *t, uint32_t peer, uint64_t offset, size_t bytes);
    /* May be NULL. When the next packet that waits for time alone (delay, fault) is due, TUTTI_NEVER if none: after
     * sleep_begin, and before sleeping, ask and sleep no longer than that. Owner only. */
    uint64_t (*next_event_ns)(struct tutti_transport *t);
    /* May be NULL. Whether packets of a peer that sends no more are still on their way here. Owner only. */
    bool (*holds)(struct tutti_transport *t, uint32_t peer);
    /* May be NULL. Something failed, as `why` says: writes into the log what it knows of the last packets. Owner only.
     */
    void (*failed)(struct tutti_transport *t, const char *why);
};

/* First member of every transport. */
struct tutti_transport {
    const struct tutti_transport_ops *ops;
    const char *name;
    uint32_t caps;
    uint32_t n, me;     /* members of the world, this member */
    size_t max_payload; /* a multiple of 64, at least 4096 */
    _Atomic uint32_t *doorbell;
};

/* ---- segments (segment.c): the memory that members of one host share; the same layout for self and shm ---- */
struct tutti_segment; /* this member's handle on it */
struct tutti_segment_config {
    uint32_t n;             /* members */
    size_t staging_bytes;   /* of one member over all its peers: rings are staging / n, within 16 KiB .. 1 MiB */
    uint64_t heap_bytes;    /* address space of one member's heap */
    uint64_t control_bytes; /* room for what control/host keeps there, zero at first; 0: none */
};
/* By the leader. shared: a sealed memfd for other processes (shm); else plain memory for threads (self). */
enum tutti_status tutti_segment_create(const struct tutti_segment_config *config, bool shared,
                                       struct tutti_segment **out);
/* Bytes of one ring of such a segment. */
uint32_t tutti_segment_ring_bytes(uint32_t n, size_t staging_bytes);
/* The two file descriptors to pass on (shm): control and heap. Owned by the segment. */
void tutti_segment_fds(const struct tutti_segment *segment, int *control_fd, int *heap_fd);
/* From passed descriptors (owned by the segment on success): magic, version, layout and size are checked. PROTOCOL. */
enum tutti_status tutti_segment_attach(int control_fd, int heap_fd, struct tutti_segment **out);
/* Another handle on it in this process (self, and tests with shm inside one process). */
enum tutti_status tutti_segment_share(struct tutti_segment *segment, struct tutti_segment **out);
void tutti_segment_release(struct tutti_segment *segment); /* last handle unmaps */

/* The room for control/host, on a page of its own. */
void *tutti_segment_control(struct tutti_segment *segment, uint64_t *bytes);

/* The table of fixed bytes a rank (bootstrap): each member writes its card once, then reads any. */
#define TUTTI_CARD_BYTES 512
void *tutti_segment_card(struct tutti_segment *segment, uint32_t member);
/* Counts this member as arrived; wait returns OK when all n are, TIMEOUT at the deadline (arrived[member] tells who).
 */
void tutti_segment_arrive(struct tutti_segment *segment, uint32_t member);
enum tutti_status tutti_segment_wait_all(struct tutti_segment *segment, uint64_t deadline_ns);
bool tutti_segment_arrived(struct tutti_segment *segment, uint32_t member);

/* ---- the one list of transports (open.c): X(name, spans, help). A transport is one file, which defines
 * `enum tutti_status tutti_NAME_open(segment, me, out)`, and one line here; the first that fits is what "auto" means.
 * spans: members may be in several processes. ---- */
#define TUTTI_TRANSPORTS(X)                                                                                            \
    X(self, false, "threads of one process")                                                                           \
    X(shm, true, "processes of one host")
#define TUTTI_TRANSPORT_DECLARE(name, spans, help)                                                                     \
    enum tutti_status tutti_##name##_open(struct tutti_segment *segment, uint32_t me, struct tutti_transport **out);
TUTTI_TRANSPORTS(TUTTI_TRANSPORT_DECLARE)
#undef TUTTI_TRANSPORT_DECLARE

/* The transport for `wanted` ("auto" or a name), where members are in several processes or not; *name is static, *spans
 * tells what it needs of the segment. ARGUMENT: there is none of that name. CONFIG: it does not span processes. */
enum tutti_status tutti_transport_choose(const char *wanted, bool several_processes, const char **name, bool *spans);
/* Opens it for member `me` (takes over the caller's handle on success). */
enum tutti_status tutti_transport_open(const char *name, struct tutti_segment *segment, uint32_t me,
                                       struct tutti_transport **out);

/* ---- the one list of decorators (decorate.c): X(name, help). A decorator is one file, which defines
 * `enum tutti_status tutti_NAME_open(inner, options, out)`, and one line here. It wraps `inner`, which it owns from
 * then on, but not when it fails. ---- */
#define TUTTI_DECORATORS(X)                                                                                            \
    X(trace, "keeps the last packets for the log")                                                                     \
    X(fault, "injects what option fault says")                                                                         \
    X(delay, "adds the latency of option delay")
struct tutti_decorator_options {
    const char *fault; /* "seed=1,drop=0.01,duplicate=0.01,delay=0.01:2ms,kill=100" */
    uint64_t delay_ns;
    uint32_t trace_events; /* trace: the last n packets are kept; dumped to the log at close and on failure */
};
#define TUTTI_DECORATOR_DECLARE(name, help)                                                                            \
    enum tutti_status tutti_##name##_open(                                                                             \
        struct tutti_transport *inner, const struct tutti_decorator_options *options, struct tutti_transport **out);
TUTTI_DECORATORS(TUTTI_DECORATOR_DECLARE)
#undef TUTTI_DECORATOR_DECLARE
/* list: "trace,fault", outermost first; empty: inner itself. ARGUMENT with a sentence. */
enum tutti_status tutti_transport_decorate(struct tutti_transport *inner, const char *list,
                                           const struct tutti_decorator_options *options, struct tutti_transport **out);

#endif
