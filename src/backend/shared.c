/* SPDX-License-Identifier: BSD-3-Clause */
/* Where members' back ends find one another's memory: by address among threads of a process, else in the heap
 * (shared.h). */
#include "backend/shared.h"

#include <string.h>

enum tutti_status tutti_shared_open(struct tutti_transport *t, bool addresses, size_t bytes, const char *what,
                                    void **out, uint64_t *where)
{
    struct tutti_memory *m = t->memory;
    void *memory = NULL;
    if (addresses) {
        memory = tutti_map_lazy(bytes); /* all 0, and no page of it is touched yet */
        if (!memory) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes of %s", bytes, what);
        *where = (uint64_t)(uintptr_t)memory;
    } else {
        TUTTI_TRY(m->ops->alloc(m, bytes, &memory));
        if (!m->ops->locate(m, memory, bytes, where)) {
            (void)m->ops->free(m, memory);
            return tutti_fail(TUTTI_ERR_INTERNAL, "lost in the heap");
        }
        memset(memory, 0, bytes);
    }
    *out = memory;
    return TUTTI_OK;
}

void *tutti_shared_map(struct tutti_transport *t, bool addresses, uint32_t member, uint64_t where, size_t bytes)
{
    return addresses ? (void *)(uintptr_t)where : t->memory->ops->map(t->memory, member, where, bytes);
}

void tutti_shared_free(struct tutti_transport *t, bool addresses, void *memory, size_t bytes)
{
    if (addresses)
        tutti_unmap(memory, bytes);
    else
        (void)t->memory->ops->free(t->memory, memory);
}

/* ---- messages ---- */

const struct tutti_backend_message *tutti_message_next(const struct tutti_backend_message *messages, size_t n,
                                                       uint32_t peer, bool send, size_t *at)
{
    while (*at < n) {
        const struct tutti_backend_message *m = &messages[(*at)++];
        if (m->peer == peer && m->send == send) return m;
    }
    return NULL;
}

enum tutti_status tutti_own_next(const struct tutti_backend_message *messages, size_t n, uint32_t me,
                                 struct tutti_own *own)
{
    const struct tutti_backend_message *s = own->sent = tutti_message_next(messages, n, me, true, &own->at[0]);
    const struct tutti_backend_message *r = own->received = tutti_message_next(messages, n, me, false, &own->at[1]);
    if (!s && !r) return TUTTI_AGAIN;
    if (s && r && s->bytes == r->bytes) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u sends itself %zu bytes and receives %zu", me, s ? s->bytes : 0,
                      r ? r->bytes : 0);
}
