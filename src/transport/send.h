/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_SEND_H
#define TUTTI_TRANSPORT_SEND_H

/* What networks check, and say, alike when a packet is sent. */

#include "transport/transport.h"

/* ARGUMENT: there is no such member, or the payload is not what the packet says, or too much. */
enum tutti_status tutti_send_check(const struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                   const struct tutti_span *spans, uint32_t n_spans);
/* Records why nothing can be sent to the peer any more; error: errno of its socket, 0 if none. Returns the status. */
enum tutti_status tutti_send_gone(uint32_t peer, enum tutti_status status, int error);

#endif
