/* SPDX-License-Identifier: BSD-3-Clause */

/* Zero copy. Whether the bytes of a granted message can be read by the receiver in place is a local fact (design 2.3):
 * the sender offers, the header says so, and the receiver reads and answers READ. Until then the step is not complete,
 * so nothing writes the bytes and the buffer is not given back. */

#include "engine/core.h"

bool tutti_offer_locate(struct tutti_team *team, const void *pointer, size_t bytes, uint64_t *offset)
{
    struct tutti_transport *t = team->port->transport;

    if (bytes < team->engine->config.zero_copy_bytes || !(t->caps & (TUTTI_CAP_ADDRESSES | TUTTI_CAP_HEAP)))
        return false;
    return t->ops->locate && t->ops->locate(t, pointer, bytes, offset);
}

const void *tutti_offer_map(struct tutti_team *team, uint32_t peer, uint64_t offset, size_t bytes)
{
    struct tutti_transport *t = team->port->transport;

    return t->ops->map ? t->ops->map(t, team->members[peer], offset, bytes) : NULL;
}
