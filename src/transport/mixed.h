/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_MIXED_H
#define TUTTI_TRANSPORT_MIXED_H

/* "mixed": one world over several transports, for example the peers of this host by shared memory and all others by a
 * network. Each peer has one inner transport, which carries all packets between it and this member, both ways. The
 * contract is that of transport.h.
 *
 *     struct tutti_transport *inner[] = {shm, network};
 *     const struct tutti_mixed_peer peers[] = {{0, 0}, {0, 1}, {1, 7}};    // member 2 is member 7 of the network
 *     TUTTI_TRY(tutti_mixed_open(inner, 2, peers, 3, me, &t));             // t owns shm and network from then on */

#include "transport/transport.h"

#define TUTTI_MIXED_MAX_INNER 8

/* How a peer is reached. */
struct tutti_mixed_peer {
    uint32_t inner;  /* number of the inner transport */
    uint32_t member; /* number of the peer in the world of that transport */
};

/* peers[n] has a row for each member of the world. The row of `me` says which number this member has itself. The table
 * is copied. Each peer must reach this member by the same inner transport; and max_payload, which is the smallest of
 * the inner ones, must come out the same at all members. *out owns `inner` from then on, but not on failure.
 *
 * Memory in place is that of the first inner transport that has memory, for the peers of that one alone, because a
 * pointer is located once for all peers. So members that share memory name that transport before others that have
 * memory. Inner transports of one address space count as one. put and get are not passed on.
 *
 * ARGUMENT: no inner transport or over TUTTI_MIXED_MAX_INNER; a peer whose inner transport or number does not exist;
 * two peers with one number; `me` is not this member there, or another peer is. MEMORY. */
enum tutti_status tutti_mixed_open(struct tutti_transport *const *inner, uint32_t n_inner,
                                   const struct tutti_mixed_peer *peers, uint32_t n, uint32_t me,
                                   struct tutti_transport **out);

#endif
