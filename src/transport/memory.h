/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_MEMORY_H
#define TUTTI_TRANSPORT_MEMORY_H

/* Memory of peers that this process can read and write in place. It is a capability of a transport, and of some peers:
 * `transport->memory` is NULL where there is none, and `reaches` says for each peer whether it is there. Who can not
 * reach a peer sends bytes instead; nobody depends on this.
 *
 *     uint64_t where;                                              // the owner
 *     if (m->ops->locate(m, pointer, bytes, &where)) tell(peer, where);
 *
 *     if (tutti_memory_reaches(m, peer))                           // the reader
 *         address = m->ops->map(m, peer, where, bytes);
 *
 * Thread: any, all calls. Blocking: none waits for a peer. Ownership: memory belongs to who allocated it until `free`,
 * or until the transport closes; what `map` returns is borrowed, and stays valid until the transport closes. */

#include "base/base.h"

struct tutti_memory;
struct tutti_memory_ops {
    size_t size; /* sizeof(struct tutti_memory_ops): calls are added at the end */
    /* Zeroed memory, whole pages, that peers can reach. ARGUMENT: 0 bytes. MEMORY. */
    enum tutti_status (*alloc)(struct tutti_memory *m, size_t bytes, void **out);
    /* NULL is allowed. ARGUMENT: not the start of memory of `alloc`. No peer may use it any more. */
    enum tutti_status (*free)(struct tutti_memory *m, void *pointer);
    /* True and what to tell a peer (written only then), if the peers that are reached can use [pointer, pointer +
     * bytes). */
    bool (*locate)(struct tutti_memory *m, const void *pointer, size_t bytes, uint64_t *where);
    /* The address here of what a peer located; NULL when it is out of range: `where` came from another process. */
    void *(*map)(struct tutti_memory *m, uint32_t peer, uint64_t where, size_t bytes);
    /* Whether this member can map the memory of that one, and that one of this. Constant. */
    bool (*reaches)(const struct tutti_memory *m, uint32_t peer);
};

/* The first member of every implementation's own struct. */
struct tutti_memory {
    const struct tutti_memory_ops *ops;
    bool addresses; /* one address space: any pointer can be located, and is its own `where` */
};

static inline bool tutti_memory_reaches(const struct tutti_memory *m, uint32_t peer)
{
    return m && m->ops->reaches(m, peer);
}
/* All of a communicator: members[n]. */
static inline bool tutti_memory_reaches_all(const struct tutti_memory *m, const uint32_t *members, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!tutti_memory_reaches(m, members[i])) return false;
    return m != NULL;
}
static inline bool tutti_memory_is_one(const struct tutti_memory *m)
{
    return m && m->addresses;
}

#endif
