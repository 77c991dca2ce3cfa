/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways in which a call could go: those of the back end and the engine's algorithms, with the times that are
 * predicted, and which of them is chosen. */
#include "comm/explain.h"

#include <stdio.h>
#include <string.h>

static size_t backend_ways(const struct tutti_request *request, struct tutti_way *out, size_t capacity)
{
    struct tutti_backend_candidate found[TUTTI_MAX_WAYS];
    struct tutti_backend *backend = request->comm->backend;
    struct tutti_backend_call call;
    if (!backend) return 0;
    tutti_request_call(request, &call);
    size_t n = backend->ops->candidates(backend, &call, found, capacity < TUTTI_MAX_WAYS ? capacity : TUTTI_MAX_WAYS);
    for (size_t i = 0; i < n; i++) {
        snprintf(out[i].name, sizeof out[i].name, "%s:%s", backend->ops->name, found[i].method);
        out[i].ns = found[i].ns;
        out[i].chosen = request->on_backend && found[i].chosen;
    }
    return n;
}

static size_t engine_ways(const struct tutti_request *request, struct tutti_way *out, size_t capacity)
{
    struct tutti_candidate found[TUTTI_MAX_CANDIDATES];
    struct tutti_question question;
    tutti_request_question(request, &question);
    size_t n = tutti_candidates(&request->comm->facts, &question, found,
                                capacity < TUTTI_MAX_CANDIDATES ? capacity : TUTTI_MAX_CANDIDATES);
    for (size_t i = 0; i < n; i++) {
        const char *name = found[i].algorithm->name;
        const uint32_t radix = found[i].shape.radix;
        snprintf(out[i].name, sizeof out[i].name, radix ? "%s:%u" : "%s", name, radix);
        out[i].ns = found[i].ns;
        out[i].chosen =
            !request->on_backend && request->algorithm == found[i].algorithm && request->shape.radix == radix;
    }
    return n;
}

enum tutti_status tutti_explain(const struct tutti_request *request, struct tutti_way *out, size_t capacity, size_t *n)
{
    struct tutti_request asked = *request;
    TUTTI_TRY(tutti_request_options(&asked, NULL));
    TUTTI_TRY(tutti_request_check(&asked));
    TUTTI_TRY(tutti_request_choose(&asked));
    *n = backend_ways(&asked, out, capacity);
    *n += engine_ways(&asked, out + *n, capacity - *n);
    return TUTTI_OK;
}
