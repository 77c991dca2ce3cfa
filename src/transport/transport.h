/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_TRANSPORT_H
#define TUTTI_TRANSPORT_TRANSPORT_H

/* The wire: a transport moves packets between the n members of one world, which may be threads, processes of a host, or
 * far away. It knows nothing of collectives. It may use src/base alone. Begin here; the transports of one host are in
 * host/, those around others in decorate/, one world over several is mixed.h; late_test.h is one for tests, which ends
 * late.
 *
 * How it is used, by the one thread that owns progress:
 *
 *     status = t->ops->send(t, peer, &packet, spans, n_spans, token);
 *     // OK: the spans are free again. PENDING: they are borrowed until the completion with `token`. AGAIN: later.
 *
 *     struct tutti_event e;
 *     while ((status = t->ops->poll(t, &e)) == TUTTI_OK) {
 *         switch (e.type) {
 *         case TUTTI_EVENT_ARRIVAL:                  // header and payload are here
 *             use(&e.packet, e.payload);
 *             t->ops->release(t);
 *             break;
 *         case TUTTI_EVENT_HEADER:                   // the payload is still outside: where should it go?
 *             t->ops->place(t, spans, n_spans, token);   // there; the completion with `token` says when it is there
 *             // or t->ops->place(t, NULL, 0, 0);        // into the transport's memory: it comes as an arrival
 *             break;
 *         case TUTTI_EVENT_DONE:                     // a send or a placement gave its memory back
 *             over(e.token, e.status);
 *             break;
 *         }
 *     }
 *
 *     struct tutti_sources sources;                  // nothing to do: sleep
 *     tutti_sources_init(&sources);
 *     if (t->ops->sleep_begin(t, &sources)) wait_for(&sources);
 *     t->ops->sleep_end(t);
 *
 * Rules for all calls:
 * - Thread: the owner's alone, but for `wake`.
 * - Blocking: no call waits for a peer. A transport has no thread on the data path, and never calls back.
 * - Allocation: none after open on the way of packets.
 * - Order: what one member sends to another arrives in the order of the sends, once. (Decorators break both on purpose:
 *   who receives must survive it.) A HEADER keeps its packet's place in that order; its bytes may be there later than
 *   packets after it. Nothing is promised between different peers.
 * - Errors: `send` tells whether a peer is gone. Whether it lives, what it does and why something failed is told by
 *   control, not here.
 * - Tokens are the caller's numbers: each one that was taken (PENDING, place, put, get) comes back in exactly one
 *   DONE, unless it is cancelled. */

#include "base/source.h"
#include "transport/memory.h"
#include "transport/packet.h"

#define TUTTI_SPANS_MAX 64 /* in one packet; so many targets, too */
struct tutti_span {
    const void *base;
    size_t bytes;
};
/* Where a payload goes. */
struct tutti_target {
    void *base;
    size_t bytes;
};

enum tutti_event_type { TUTTI_EVENT_ARRIVAL, TUTTI_EVENT_HEADER, TUTTI_EVENT_DONE };
struct tutti_event {
    enum tutti_event_type type;
    struct tutti_packet packet; /* ARRIVAL, HEADER: a checked copy, which the peer can not change any more */
    const void *payload;        /* ARRIVAL: packet.bytes bytes, 16-byte aligned, valid until release */
    uint64_t token;             /* DONE */
    enum tutti_status status;   /* DONE: OK; PEER_DEAD, PEER_LEFT, PROTOCOL: the bytes did not get there, or not all */
};

/* Memory of this process, which a network may reach. */
enum tutti_maker { TUTTI_MAKER_HOST, TUTTI_MAKER_CUDA, TUTTI_MAKER_XPU };
struct tutti_range {
    void *base;
    size_t bytes;
    enum tutti_maker maker; /* the driver whose memory it is */
    int32_t device;         /* as its driver counts */
};
/* Registered memory, as a peer names it in put and get. Wire format: a network's key in its own order of bytes. */
#define TUTTI_KEY_BYTES 48
struct tutti_key {
    uint64_t address; /* the registered memory's */
    uint64_t bytes;
    uint8_t key[TUTTI_KEY_BYTES];
};

struct tutti_transport;
struct tutti_transport_ops {
    size_t size; /* sizeof(struct tutti_transport_ops): calls are added at the end, where older code does not look */

    /* Gives everything back and frees `t`. No arrival may be unreleased; tokens that are still out are cancelled. */
    void (*close)(struct tutti_transport *t);

    /* Sends one packet to `peer`, which may be oneself: packet->bytes bytes, at most t->max_payload, gathered from the
     * spans. version and source are filled in.
     * OK: complete, the spans are free. PENDING: taken, the spans are borrowed until the DONE with `token`; never for
     * payloads of at most t->copied bytes. AGAIN: no room now; a sleep ends when there is some.
     * PEER_DEAD, PEER_LEFT: it can not arrive. PROTOCOL: the peer wrote nonsense before. ARGUMENT: no such peer, or the
     * spans do not add up. */
    enum tutti_status (*send)(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                              const struct tutti_span *spans, uint32_t n_spans, uint64_t token);
    /* OK and the next event, fair between peers; AGAIN when there is none; PROTOCOL when a peer wrote nonsense (the
     * text names it); PEER_DEAD when a peer can not be reached any more though it may live (the text names the link).
     * Not while an arrival is unreleased or a header unanswered: INTERNAL. */
    enum tutti_status (*poll)(struct tutti_transport *t, struct tutti_event *out);
    /* After an ARRIVAL: its payload is not needed any more. */
    void (*release)(struct tutti_transport *t);
    /* Answers the HEADER. With targets, which hold packet.bytes together: they are borrowed until the DONE with
     * `token`. Without (n 0): the payload goes into the transport's own memory, and the packet comes again as an
     * ARRIVAL, before any later packet of that peer. NULL where no header comes. */
    void (*place)(struct tutti_transport *t, const struct tutti_target *targets, uint32_t n, uint64_t token);
    /* Takes a token back: no DONE comes, and when this returns nobody touches the memory that was lent with it. The
     * packet may get there or not. It takes some milliseconds at most and needs no help of the peer; a wire that can do
     * no better cuts the peer. A token that is not out is ignored. NULL where none is ever out. */
    void (*cancel)(struct tutti_transport *t, uint64_t token);

    /* This thread is about to sleep. True: there is nothing to poll, no room where a send found none, and no wake came
     * since the last sleep. Then sleep on the sources that were added, until sources->due_ns at the latest, and some
     * 100 ms at most, since a peer may die between publishing a packet and ringing. False: do not sleep. sleep_end
     * follows in both cases. */
    bool (*sleep_begin)(struct tutti_transport *t, struct tutti_sources *sources);
    void (*sleep_end)(struct tutti_transport *t);
    /* Ends a sleep of this member's owner, or the next one. Any thread. */
    void (*wake)(struct tutti_transport *t);

    /* Control says that the peer is dead, so it writes no more. From now on sends to it fail with PEER_DEAD, and its
     * tokens come back with PEER_DEAD. What arrived whole before may still be polled. Any thread. */
    void (*cut)(struct tutti_transport *t, uint32_t peer);
    /* Whether something that this peer sent is here and waits to be polled, so that a death is told after what came
     * before it. NULL: nothing waits where poll found nothing. */
    bool (*holds)(struct tutti_transport *t, uint32_t peer);

    /* ---- optional: NULL where the wire can not ---- */
    /* Whether put and get reach what this peer registered. All five are there, or none. */
    bool (*direct)(struct tutti_transport *t, uint32_t peer);
    /* Registers memory for put and get of peers, which stays until unreg; *key is for them, *registration for unreg.
     * MEMORY, SYSTEM, UNSUPPORTED: not such memory. */
    enum tutti_status (*reg)(struct tutti_transport *t, const struct tutti_range *memory, struct tutti_key *key,
                             void **registration);
    void (*unreg)(struct tutti_transport *t, void *registration); /* what is under way fails, and may cut its peer */
    /* Writes to, or reads from, the memory of `key` from `offset` on, without the peer's help, t->max_direct bytes at
     * most. PENDING: lent until the DONE with `token`; put: the bytes are there then, though the peer is not told.
     * AGAIN, and errors as for send; ARGUMENT: out of the key's range, or no key. */
    enum tutti_status (*put)(struct tutti_transport *t, uint32_t peer, const struct tutti_key *key, uint64_t offset,
                             const struct tutti_range *from, uint64_t token);
    enum tutti_status (*get)(struct tutti_transport *t, uint32_t peer, const struct tutti_key *key, uint64_t offset,
                             const struct tutti_range *to, uint64_t token);
    /* Something failed, as `why` says: writes into the log what it knows of the last packets. */
    void (*failed)(struct tutti_transport *t, const char *why);
    /* Whether a part of what send said OK for is still to be written, which poll does: so somebody must poll. */
    bool (*owes)(struct tutti_transport *t);
    /* Something is awaited from that peer: the next poll that finds nothing at hand looks there alone, and soon again
     * at the others. NULL: it makes no difference. */
    void (*expect)(struct tutti_transport *t, uint32_t peer);
};

/* The first member of every transport's own struct. Constant after open. */
struct tutti_transport {
    const struct tutti_transport_ops *ops;
    const char *name;
    uint32_t n, me;              /* members of the world, this member */
    size_t max_payload;          /* a multiple of 64, at least 4096 */
    size_t copied;               /* payloads up to this are copied by send; at least 4096, at most max_payload */
    size_t max_direct;           /* bytes of a put or get at most; 0: there are none */
    bool devices;                /* ... also of memory of devices */
    struct tutti_memory *memory; /* NULL: peers' memory can not be reached */
};

#endif
