/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_CALL_ROUTE_H
#define TUTTI_COMM_CALL_ROUTE_H

/* Which way a call goes, decided here and nowhere else. Most collectives are short: that is seen before there is a
 * request, from the arguments alone, and costs nearly nothing. All others get a request and, once it is checked, a
 * route, which one switch carries out (submit.c). */

#include "comm/device/device.h"
#include "comm/request/request.h"

/* Whether a collective of equal blocks may go the short way (short.c). The caller waits, now or at once. Its options
 * ask for nothing but a timeout and a label. There is data, and this thread collects no calls (group, recording). */
static inline bool tutti_route_is_short(const struct tutti_comm *comm, const struct tutti_args *args,
                                        const struct tutti_call_options *options, struct tutti_work *const *work)
{
    if (!comm || (args->count == 0 && args->kind != TUTTI_BARRIER)) return false;
    if (work && !(options && options->size == sizeof(*options) && options->attended)) return false;
    if (options && (options->size != sizeof(*options) || options->algorithm || options->wire)) return false;
    return atomic_load_explicit(&tutti_n_collecting, memory_order_relaxed) == 0;
}

/* The route of a checked request: by where its buffers are, what the communicator has, and what back ends can do. All
 * of that but the buffers is equal on all members, so all members go one way together. ARGUMENT: buffers of several
 * kinds, or of another device, or the call asks for what can not be. UNSUPPORTED. */
enum tutti_status tutti_route(const struct tutti_request *request, struct tutti_route *out);

/* The short way. AGAIN: nothing was done, because the arguments are unusual or the turn is taken; the call goes on as a
 * request, which also makes the sentences. out: NULL to block, else the work of an attended call, which may be complete
 * already. */
enum tutti_status tutti_short(struct tutti_comm *comm, const struct tutti_args *args,
                              const struct tutti_call_options *options, struct tutti_work **out);

#endif
