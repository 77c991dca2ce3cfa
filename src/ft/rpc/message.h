/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_MESSAGE_H
#define TUTTI_FT_RPC_MESSAGE_H

/* torchft's messages (torchft.proto), by protobuf-c: to bytes of calls and back, for all that speak them.
 *
 * Thread: any. */

#include "ft/rpc/rpc.h"
#include "ft/rules/lighthouse.h"

#include <torchft.pb-c.h>

#define TUTTI_MESSAGE_BYTES ((size_t)4 << 20)      /* the largest that torchft reads, and so do we */
#define TUTTI_MESSAGE_DIAL_NS (2 * TUTTI_NS_PER_S) /* to one address of a server, until the next one is tried */
#define TUTTI_MESSAGE_TEXT 4096                    /* of a name or an address */
#define TUTTI_LEASE_NS TUTTI_NS_PER_S /* so long one of several lighthouses leads without hearing of the others */

struct tutti_rpc_body *tutti_message_body(const ProtobufCMessage *message); /* NULL: out of memory */

/* What a message says of a group, whose strings are the message's. */
void tutti_message_replica(const Torchft__QuorumMember *m, struct tutti_replica *out);
/* A LighthouseQuorumResponse: members sorted by their names, each with its handles. PROTOCOL, MEMORY. */
enum tutti_status tutti_message_quorum(const uint8_t *bytes, size_t n, struct tutti_quorum **out);

/* The job's secret: the given one, else that of TUTTI_SECRET or the file TUTTI_SECRET_FILE; "": there is none.
 * ARGUMENT: it is too long, or the file can not be read. */
#define TUTTI_MESSAGE_SECRET 4097
enum tutti_status tutti_message_secret(const char *given, char out[TUTTI_MESSAGE_SECRET]);
#endif
