/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_SHARED_H
#define TUTTI_BACKEND_SHARED_H

/* What several back ends need: memory of the host that one member gives and all map (of the transport's heap, or, where
 * `addresses` says that all members share an address space, plain pages), and the messages of a batch in their order.
 */

#include "backend/backend.h"

/* Zeroed, and touched; *where tells the others of it. MEMORY, with `what` it is for, and what the heap fails with. */
enum tutti_status tutti_shared_open(struct tutti_transport *t, bool addresses, size_t bytes, const char *what,
                                    void **out, uint64_t *where);
/* Of another member; NULL: it can not be mapped. */
void *tutti_shared_map(struct tutti_transport *t, bool addresses, uint32_t member, uint64_t where, size_t bytes);
/* By who may: of the heap that is the giver alone. */
void tutti_shared_free(struct tutti_transport *t, bool addresses, void *memory, size_t bytes);

/* The next message to a peer (send), or from it, from *at on; NULL: there is none. */
const struct tutti_backend_message *tutti_message_next(const struct tutti_backend_message *messages, size_t n,
                                                       uint32_t peer, bool send, size_t *at);
/* What a rank sends to itself: the next pair of a batch, its k-th that is sent and its k-th that is received (at: where
 * it goes on, zeros at first). AGAIN: there is none left; ARGUMENT: they are no pair. */
struct tutti_own {
    size_t at[2];
    const struct tutti_backend_message *sent, *received;
};
enum tutti_status tutti_own_next(const struct tutti_backend_message *messages, size_t n, uint32_t me,
                                 struct tutti_own *own);

#endif
