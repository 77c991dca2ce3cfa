/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_TCP_TCP_H
#define TUTTI_TRANSPORT_TCP_TCP_H

/* The transport between hosts: packets over TCP, one socket for each pair of members that talk. Who connects, and how
 * both ends prove who they are, is not its business: a dialer does that (control/net), and hands in sockets that are
 * proved and ready. So this room uses src/base and the contract of src/transport alone.
 *
 *     tutti_tcp_open(&config, &t);                       no socket yet
 *     t->ops->send(t, 3, ...)                            AGAIN, and dialer->dial(dialer, 3), if there is none yet
 *     tutti_tcp_connected(t, 3, fd, NULL)                from the dialer's thread; wakes the owner: the send goes
 *     tutti_tcp_failed(t, 3, status)                     ... or it can not be reached: sends fail with the status
 *
 * Large payloads may go over more sockets than the first one, where the dialer makes them (`widen`); these have a slow
 * one among them without being as slow. The first keeps the order of packets, and what is small.
 *
 * On a socket a packet is its head (packet.h) and then its payload. Heads and payloads are gathered in one call; a
 * payload that is not in the reading buffer with its head goes straight into its destination (HEADER, then place).
 * Spinning is poll: it reads the sockets that spoke last, and asks epoll for the others. Sleeping is one descriptor of
 * epoll. There is no thread here. Begin with peer.h. */

#include "base/stream.h"
#include "transport/network.h"
#include "transport/transport.h"

/* Most of one packet: smaller slices wake more often, larger ones leave the cache. */
#define TUTTI_TCP_PAYLOAD ((size_t)1 << 20)

struct tutti_tcp_config {
    uint32_t n, me;              /* members of the world, this member */
    struct tutti_dialer *dialer; /* lives longer than the transport */
    uint64_t vanish_ns;          /* a peer that confirms nothing for so long is gone; 0: as the system has it */
    uint64_t silence_ns;         /* ... and of a path: whose link is gone for so long; 0: as the system has it */
};
/* ARGUMENT: there is no such member. MEMORY, SYSTEM. */
enum tutti_status tutti_tcp_open(const struct tutti_tcp_config *config, struct tutti_transport **out);

/* From the dialer, any thread. The socket, and the stream that encrypts (NULL: none), belong to the transport from then
 * on. A peer may connect without having been dialed. A second socket of one peer, and one of a peer that is gone, is
 * closed. */
void tutti_tcp_connected(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream);
/* One more socket to a peer that is connected: a path. */
void tutti_tcp_path_connected(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream);
/* Sends to it fail with `status` (PEER_DEAD, PEER_LEFT, AUTH, TIMEOUT, SYSTEM) until it connects by itself. */
void tutti_tcp_failed(struct tutti_transport *t, uint32_t peer, enum tutti_status status);

#endif
