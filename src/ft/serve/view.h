/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_SERVE_VIEW_H
#define TUTTI_FT_SERVE_VIEW_H

/* Quorums as they go to clients: whole, in torchft's protocol, or as what has changed (tutti.proto), each encoded once
 * for all callers. Private to this folder. */

#include "ft/rpc/rpc.h"
#include "ft/rules/lighthouse.h"

#define VIEW_DELTAS 64

/* The members of the last quorum, and how they became what they are. */
struct serve_view {
    int64_t epoch;
    struct tutti_quorum *of; /* counted; NULL: there was none */
    struct serve_delta {
        uint8_t *bytes; /* the changes that led to epoch, encoded as fields of a StepResponse; NULL: none */
        size_t n;
    } deltas[VIEW_DELTAS]; /* by epoch, modulo */
    int64_t first;         /* the first epoch whose changes are there */
    size_t n_whole;        /* bytes of all members as changes */
};
void serve_view_init(struct serve_view *view, int64_t wall_ns);
void serve_view_fini(struct serve_view *view);
/* Before answers of this quorum are given. False: out of memory. */
bool serve_view_follow(struct serve_view *view, struct tutti_quorum *quorum);
/* The answer; counted. NULL: out of memory. */
struct tutti_rpc_body *serve_view_whole(struct tutti_quorum *quorum);
struct tutti_rpc_body *serve_view_since(struct serve_view *view, struct tutti_quorum *quorum, int64_t known_epoch);

#endif
