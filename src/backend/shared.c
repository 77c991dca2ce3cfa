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

enum tutti_status tutti_own_messages(struct tutti_device *device, const struct tutti_backend_message *messages,
                                     size_t n, uint32_t me, void *stream)
{
    size_t sent_at = 0, received_at = 0;
    for (;;) {
        const struct tutti_backend_message *s = tutti_message_next(messages, n, me, true, &sent_at);
        const struct tutti_backend_message *r = tutti_message_next(messages, n, me, false, &received_at);
        if (!s && !r) return TUTTI_OK;
        if (!s || !r || s->bytes != r->bytes)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u sends itself %zu bytes and receives %zu", me,
                              s ? s->bytes : 0, r ? r->bytes : 0);
        if (device && s->buffer != r->buffer)
            TUTTI_TRY(device->ops->copy(device, r->buffer, s->buffer, s->bytes, stream));
    }
}

/* ---- buffers that libraries do not take ---- */

/* For reductions; moves are of bytes. */
static bool is_crooked(const struct tutti_backend_call *call, const void *buffer)
{
    const size_t element = tutti_dtype_bytes(call->info.dtype);
    return tutti_kind_info(call->info.kind)->reduces && (uintptr_t)buffer % (element > 8 ? 8 : element) != 0;
}

/* The bytes of all blocks, or of the own one. */
static size_t blocks_bytes(const struct tutti_backend_call *call, uint32_t n, uint32_t me, bool all)
{
    const struct tutti_bind *bind = &call->bind;
    size_t elements = 0;
    for (uint32_t q = 0; q < n; q++)
        if (all || q == me) elements += bind->counts ? bind->counts[q] : bind->count;
    return elements * tutti_dtype_bytes(call->info.dtype);
}

size_t tutti_aside_input(const struct tutti_backend_call *call, uint32_t n, uint32_t me)
{
    const struct tutti_bind *bind = &call->bind;
    const bool swaps = call->info.kind == TUTTI_ALL_TO_ALL && !bind->v && bind->input == bind->output;
    const bool all = call->info.kind == TUTTI_ALL_TO_ALL || call->info.kind == TUTTI_REDUCE_SCATTER;
    return swaps || is_crooked(call, bind->input) ? blocks_bytes(call, n, me, all) : 0;
}

size_t tutti_aside_output(const struct tutti_backend_call *call, uint32_t n, uint32_t me)
{
    return call->bind.output && is_crooked(call, call->bind.output) ? blocks_bytes(call, n, me, false) : 0;
}
