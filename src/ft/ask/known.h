/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_ASK_KNOWN_H
#define TUTTI_FT_ASK_KNOWN_H

/* The view that a client has of the quorum: answers to Step (tutti.proto) say what has changed since the last one, so
 * they are short, and only what has changed is read.
 *
 * Thread: one at a time. What is all 0 knows nothing. */

#include "ft/lighthouse/lighthouse.h"
#include "ft/rpc/rpc.h"

struct tutti_known {
    int64_t epoch;              /* 0: nothing is known */
    struct tutti_quorum quorum; /* as the last answer left it; it is changed in place, and nobody counts it */
    uint32_t room;
};
/* An answer to a Step with this epoch. MEMORY; PROTOCOL: it can not be one. Then nothing is known any more. */
enum tutti_status tutti_known_take(struct tutti_known *known, const uint8_t *bytes, size_t n);
/* The quorum has the group, as just these bytes of a QuorumMember say it. */
bool tutti_known_has(const struct tutti_known *known, const char *replica_id, const struct tutti_rpc_body *member);
void tutti_known_forget(struct tutti_known *known);

#endif
