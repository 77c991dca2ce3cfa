/* SPDX-License-Identifier: BSD-3-Clause */
/* The two ways of a request on host memory: one call (start.c), or a quantised one, which is several (packed.c).
 */
#include "comm/call/packed.h"

enum tutti_status tutti_request_prepare(struct tutti_request *request)
{
    if (request->route.via == TUTTI_VIA_PACKED) return tutti_packed_prepare(request);
    bool needed = request->type == TUTTI_REQUEST_COLLECTIVE && request->route.via == TUTTI_VIA_ENGINE;
    return needed ? tutti_request_seal(request) : TUTTI_OK;
}

void tutti_request_release(struct tutti_request *request)
{
    tutti_request_unseal(request);
    if (request->packed) tutti_packed_drop(request->packed);
    request->packed = NULL;
}

enum tutti_status tutti_request_start(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    if (request->route.via == TUTTI_VIA_PACKED) return tutti_packed_start(request, helper, work);
    return tutti_request_start_one(request, helper, work);
}
