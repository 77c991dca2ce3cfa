/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways in which a call could go: those of the back end and the engine's algorithms, with the times that are
 * predicted, and which of them is chosen. */
#include "comm/call/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Those of a back end; one that has but one way has no list of them. */
static size_t backend_ways(const struct tutti_request *request, struct tutti_backend *backend, struct tutti_way *out,
                           size_t capacity)
{
    struct tutti_backend_candidate found[TUTTI_MAX_WAYS];
    struct tutti_backend_call call;
    const struct tutti_backend_ops *ops = backend->ops;
    const bool on_device = request->route.via == TUTTI_VIA_DEVICE;
    const bool is_chosen = backend == request->route.backend;
    tutti_request_call(request, &call);
    found[0] = (struct tutti_backend_candidate){NULL, ops->score(backend, &call), true, 0};
    if (capacity == 0 || found[0].ns == HUGE_VAL) return 0;
    size_t n = ops->candidates
                   ? ops->candidates(backend, &call, found, capacity < TUTTI_MAX_WAYS ? capacity : TUTTI_MAX_WAYS)
                   : 1;
    for (size_t i = 0; i < n; i++) {
        const char *method = found[i].method;
        snprintf(out[i].name, sizeof out[i].name, "%s%s%s", ops->name, method ? ":" : "", method ? method : "");
        out[i].ns = found[i].ns;
        out[i].chosen = is_chosen && found[i].chosen;
        out[i].n_sms = on_device && !ops->candidates ? -1 : (int32_t)found[i].n_sms;
    }
    return n;
}

static size_t device_ways(const struct tutti_request *request, struct tutti_way *out, size_t capacity)
{
    const struct tutti_comm_device *device = request->comm->device;
    size_t n = 0;
    for (uint32_t b = 0; b < device->n; b++) n += backend_ways(request, device->backends[b], out + n, capacity - n);
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
        out[i].chosen = request->route.algorithm == found[i].algorithm && request->route.shape.radix == radix;
        out[i].n_sms = 0;
    }
    return n;
}

enum tutti_status tutti_explain(const struct tutti_request *request, struct tutti_way *out, size_t capacity, size_t *n)
{
    struct tutti_request asked = *request;
    TUTTI_TRY(tutti_request_options(&asked, NULL));
    TUTTI_TRY(tutti_request_check(&asked));
    TUTTI_TRY(tutti_route(&asked, &asked.route));
    if (asked.options.wire)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s is quantised: there is nothing to choose", asked.name);
    if (asked.route.via == TUTTI_VIA_STAGING)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s goes through the host: there is nothing to choose", asked.name);
    if (asked.route.via == TUTTI_VIA_DEVICE) {
        *n = device_ways(&asked, out, capacity);
        return TUTTI_OK;
    }
    *n = asked.comm->backend ? backend_ways(&asked, asked.comm->backend, out, capacity) : 0;
    if (asked.comm->library) *n += backend_ways(&asked, asked.comm->library, out + *n, capacity - *n);
    *n += engine_ways(&asked, out + *n, capacity - *n);
    return TUTTI_OK;
}
