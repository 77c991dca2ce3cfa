/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_SHARED_H
#define TUTTI_BACKEND_SHARED_H

/* What several back ends need. Memory of the host that one member gives and all map: plain pages where all members
 * share an address space (`addresses`), else a part of the transport's heap. The messages of a batch in their order.
 * And which buffers of a call libraries of others do not take. */

#include "backend/backend.h"

/* Gives memory, zeroed and touched; the others find it by *where. MEMORY: the sentence has `what` it was for. Also the
 * errors of the heap. */
enum tutti_status tutti_shared_open(struct tutti_transport *t, bool addresses, size_t bytes, const char *what,
                                    void **out, uint64_t *where);
/* Maps another member's memory. NULL: it can not be mapped. */
void *tutti_shared_map(struct tutti_transport *t, bool addresses, uint32_t member, uint64_t where, size_t bytes);
/* Memory of the heap is freed by its giver alone. */
void tutti_shared_free(struct tutti_transport *t, bool addresses, void *memory, size_t bytes);

/* The next message to a peer (send), or from it, from *at on; NULL: there is none. */
const struct tutti_backend_message *tutti_message_next(const struct tutti_backend_message *messages, size_t n,
                                                       uint32_t peer, bool send, size_t *at);
/* What a rank sends to itself in a batch, of which the k-th message that is sent belongs to the k-th that is received:
 * copied on the stream; device NULL: only looks. ARGUMENT: they are no pairs. */
enum tutti_status tutti_own_messages(struct tutti_device *device, const struct tutti_backend_message *messages,
                                     size_t n, uint32_t me, void *stream);

/* Bytes of a copy that stands in for a buffer on a device: of reductions whose buffer is not aligned, and of what an
 * all_to_all in place would overwrite before it is sent. 0: it is taken as it is. */
size_t tutti_aside_input(const struct tutti_backend_call *call, uint32_t n, uint32_t me);
size_t tutti_aside_output(const struct tutti_backend_call *call, uint32_t n, uint32_t me);

#endif
