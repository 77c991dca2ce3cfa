/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_PACKET_H
#define TUTTI_TRANSPORT_PACKET_H

/* Which packets can be: asked of everything that comes from another process. */

#include "transport/transport.h"

bool tutti_packet_valid(const struct tutti_packet *packet, size_t max_payload);
const char *tutti_packet_type_name(uint8_t type); /* "data"; "?" if unknown */

#endif
