/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_TEAM_CHANNEL_H
#define TUTTI_ENGINE_TEAM_CHANNEL_H

/* A channel is all that a team knows of one peer. It begins as zeros, and its memory is mapped lazily, so only active
 * peers cost memory. All of it is the owner's. */

#include "engine/team/letter.h"
#include "engine/team/slice.h"

struct tutti_grant {
    uint64_t seq, signature, total;
    uint32_t slice, fifo;
    uint64_t count, call; /* what the peer called, for sentences */
};
struct tutti_incoming {        /* a message that this rank granted */
    struct tutti_slice *slice; /* NULL: free */
    uint32_t step;
    struct tutti_inflow inflow;
};
struct tutti_channel {
    /* collectives, outgoing */
    uint8_t sent, returned; /* eager messages, modulo 256 */
    uint8_t n_grants;
    struct tutti_grant grants[TUTTI_CREDITS];
    struct tutti_slice *out_slice; /* a message of several packets that is being sent */
    uint32_t out_step;
    size_t out_offset;
    /* collectives, incoming */
    uint8_t consumed, told; /* eager messages, modulo 256 */
    uint8_t n_incoming, n_held;
    bool listed; /* in the team's list of channels that hold something or owe credits */
    uint32_t next_listed;
    struct tutti_incoming incoming[TUTTI_CREDITS];
    struct tutti_packet held[TUTTI_CREDITS];
    bool used[TUTTI_CREDITS];
    /* point-to-point */
    uint64_t p2p_sent, p2p_taken; /* envelopes: sent there; of theirs, in order */
    uint64_t p2p_freed, p2p_told; /* of their envelopes: gone from the table; and told so */
    uint64_t p2p_returned;        /* of ours, as told */
    uint32_t p2p_paid, p2p_paid_returned, p2p_paid_freed, p2p_paid_told; /* the same for those with payload */
    uint32_t p2p_used;                                                   /* bits: payload slots in use */
    uint64_t p2p_pass;  /* pass over the letters in which it was found blocked */
    uint64_t gone_ns;   /* watch: when the peer was first found gone, */
    uint64_t gone_pass; /* and in which pass */
    uint64_t seen_tick; /* watch: the tick in which it was looked at */
};

#endif
