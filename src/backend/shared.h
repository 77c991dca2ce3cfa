/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_SHARED_H
#define TUTTI_BACKEND_SHARED_H

/* Memory of the host that one member gives and all map: of the transport's heap, or, where `addresses` says that all
 * members share an address space, plain pages. */

#include "transport/transport.h"

/* Zeroed, and touched; *where tells the others of it. MEMORY, with `what` it is for, and what the heap fails with. */
enum tutti_status tutti_shared_open(struct tutti_transport *t, bool addresses, size_t bytes, const char *what,
                                    void **out, uint64_t *where);
/* Of another member; NULL: it can not be mapped. */
void *tutti_shared_map(struct tutti_transport *t, bool addresses, uint32_t member, uint64_t where, size_t bytes);
/* By who may: of the heap that is the giver alone. */
void tutti_shared_free(struct tutti_transport *t, bool addresses, void *memory, size_t bytes);

#endif
