/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_OFI_OFI_H
#define TUTTI_TRANSPORT_OFI_OFI_H

/* The transport over libfabric: packets between hosts over whatever network its providers know. libfabric is opened at
 * run time, so a build that knows its header also runs without it. This room uses src/base and the contract of
 * src/transport alone. Begin with state.h.
 *
 * A peer is met as by transport tcp: the dialer (control/net) hands in a socket whose other end is proved. Over this
 * socket both ends tell the addresses of their endpoints and a secret number; from then on all packets travel through
 * libfabric, and each one bears the number that its receiver chose for its sender: so the source of a packet is proved
 * as well as the socket is. The socket stays: over it a member that leaves says how many packets it sent, and waits
 * until they are there; and it tells when a process ends.
 *
 *     tutti_ofi_open(&config, &t);
 *     t->ops->send(t, 3, ...)                            queued, and dialer->dial(dialer, 3), if it was not met yet
 *     tutti_ofi_connected(t, 3, fd, NULL)                from the dialer's thread
 *     tutti_ofi_failed(t, 3, status)                     ... or it can not be reached: sends fail with the status
 *
 * Packets of at most t->copied bytes are copied, and go into buffers that the receiver posted ahead, as many as it gave
 * credits for. Of a larger one the head goes first. When the receiver has said where the payload belongs (place), it
 * tells the sender how to get there without a copy: either the tag of a receive that it posted right there, or address
 * and key of the memory, into which the sender writes (RMA). With several rails the payloads take turns on them. */

#include "base/stream.h"
#include "transport/network.h"
#include "transport/transport.h"

#define TUTTI_OFI_RAILS 4u /* at most */

struct tutti_ofi_config {
    uint32_t n, me;              /* members of the world, this member */
    struct tutti_dialer *dialer; /* lives longer than the transport */
    const char *provider;        /* as fi_info names it ("tcp;ofi_rxm", "efa", ...); "auto": the first that can */
    const char *domain;          /* the provider's ("mlx5_0", "eth0", ...); several are rails; "": its first one */
    const char *address;         /* IP address of this host that others reach; "": as the provider finds it */
    uint64_t ports;              /* option port_range, where addresses have ports; 0: any */
    int writes;                  /* large payloads by RMA writes: 1 yes, 0 no, -1 where memory is registered anyway */
    bool devices;                /* reaches memory of devices, where the provider can */
    bool registers;              /* registers all memory, also where the provider does not ask for it: for tests */
};
/* ARGUMENT: there is no such member. UNSUPPORTED: no libfabric, in this build or on this machine, or no provider that
 * can; the sentence says how to get it, or which there are. MEMORY, SYSTEM. */
enum tutti_status tutti_ofi_open(const struct tutti_ofi_config *config, struct tutti_transport **out);

/* From the dialer, any thread. The socket belongs to the transport from then on; its stream is NULL, since ofi encrypts
 * nothing. A second socket of one peer, and one of a peer that is gone, is closed. */
void tutti_ofi_connected(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream);
/* Sends to it fail with `status` until it connects by itself. */
void tutti_ofi_failed(struct tutti_transport *t, uint32_t peer, enum tutti_status status);

/* What is missing: "header" (this build), "library" (this machine), or NULL. */
const char *tutti_ofi_lacks(void);
/* The providers that could carry this transport, and their domains, as a list of words: how many. */
size_t tutti_ofi_providers(char *out, size_t bytes);

#endif
