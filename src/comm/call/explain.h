/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_CALL_EXPLAIN_H
#define TUTTI_COMM_CALL_EXPLAIN_H

/* How a call could be carried out, for `tutti bench --explain`. */

#include "comm/request/request.h"

#define TUTTI_MAX_WAYS 24
struct tutti_way {
    char name[40]; /* as in tutti_call_options.algorithm */
    double ns;     /* predicted; HUGE_VAL: nobody knows */
    bool chosen;   /* where the call does not say */
    int32_t n_sms; /* of a device, the most that one launch takes; -1: nobody knows */
};
/* The ways of a collective that is filled as by the public calls; its options are ignored. Errors as the call's. */
enum tutti_status tutti_explain(const struct tutti_request *request, struct tutti_way *out, size_t capacity, size_t *n);

#endif
