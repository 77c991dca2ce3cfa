/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that several calls may send. */
#include "ft/rpc/rpc.h"

struct tutti_rpc_body *tutti_rpc_body_new(size_t n)
{
    struct tutti_rpc_body *body = tutti_alloc(sizeof(*body) + n);

    if (body) body->refs = 1, body->n = n;
    return body;
}

void tutti_rpc_body_give(struct tutti_rpc_body *body)
{
    if (body && --body->refs == 0) tutti_free(body);
}
