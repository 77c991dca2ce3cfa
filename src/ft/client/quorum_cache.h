/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_CLIENT_QUORUM_CACHE_H
#define TUTTI_FT_CLIENT_QUORUM_CACHE_H

/* The view that a client has of the quorum: answers to Step (tutti.proto) say what has changed since the last one, so
 * they are short, and only what has changed is read.
 *
 * Thread: one at a time. What is all 0 knows nothing. */

#include "ft/rpc/rpc.h"
#include "ft/rules/lighthouse.h"

struct tutti_quorum_cache {
    int64_t epoch;              /* 0: it is empty */
    struct tutti_quorum quorum; /* as the last answer left it; it is changed in place, and nobody counts it */
    uint32_t capacity;
};
/* An answer to a Step with this epoch. MEMORY; PROTOCOL: it can not be one. Then nothing is known any more. */
enum tutti_status tutti_quorum_cache_update(struct tutti_quorum_cache *cache, const uint8_t *bytes, size_t n);
/* The quorum has the group, as just these bytes of a QuorumMember say it. */
bool tutti_quorum_cache_has(const struct tutti_quorum_cache *cache, const char *replica_id,
                            const struct tutti_rpc_body *member);
void tutti_quorum_cache_clear(struct tutti_quorum_cache *cache);

#endif
