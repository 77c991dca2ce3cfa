/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that members share: see shared.h. */
#include "backend/shared.h"

#include <string.h>

enum tutti_status tutti_shared_open(struct tutti_transport *t, bool addresses, size_t bytes, const char *what,
                                    void **out, uint64_t *where)
{
    void *memory = NULL;
    if (addresses) {
        memory = tutti_map_lazy(bytes);
        if (!memory) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes of %s", bytes, what);
        *where = (uint64_t)(uintptr_t)memory;
    } else {
        TUTTI_TRY(t->ops->heap_alloc(t, bytes, &memory));
        if (!t->ops->locate(t, memory, bytes, where)) {
            (void)t->ops->heap_free(t, memory);
            return tutti_fail(TUTTI_ERR_INTERNAL, "lost in the heap");
        }
    }
    memset(memory, 0, bytes);
    *out = memory;
    return TUTTI_OK;
}

void *tutti_shared_map(struct tutti_transport *t, bool addresses, uint32_t member, uint64_t where, size_t bytes)
{
    return addresses ? (void *)(uintptr_t)where : t->ops->map(t, member, where, bytes);
}

void tutti_shared_free(struct tutti_transport *t, bool addresses, void *memory, size_t bytes)
{
    if (addresses)
        tutti_unmap(memory, bytes);
    else
        (void)t->ops->heap_free(t, memory);
}
