/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_CLIENT_H
#define TUTTI_FT_RPC_CLIENT_H

/* The connection and the requests of a channel. Private to this folder. client.c dials, request.c asks. */

#include "ft/rpc/link.h"
#include "ft/rpc/lookup.h"
#include "ft/rpc/rpc.h"
#include "ft/rpc/wire.h"

struct tutti_rpc_request {
    struct tutti_rpc_request *next;
    struct tutti_rpc_channel *channel;
    struct tutti_rpc_ask ask;
    int32_t stream; /* 0: it waits for a connection */
    size_t sent;    /* bytes of prefix and body */
    struct tutti_loop_timer timer;
    uint64_t sent_ns; /* when it was sent last; 0: never */
    uint64_t lost_ns; /* since when no server can be reached; 0: one could, as far as is known */
    /* what came */
    struct rpc_bytes answer; /* n counts also what is discarded */
    const char *wrong;       /* NULL, or why it can not be an answer ... */
    enum tutti_rpc_status as;
    int status; /* -1: no grpc-status yet */
    char message[RPC_SENTENCE];
};

/* A server of the list. */
struct rpc_target {
    struct tutti_rpc_channel *channel;
    char host[RPC_HOST], port[RPC_PORT], authority[RPC_JOB + RPC_HOST + 9];
    struct rpc_lookup *lookup;   /* NULL: none is under way */
    struct addrinfo *addresses;  /* the host's; NULL: they are looked up before the next dial */
    const struct addrinfo *next; /* the one that is dialled, or the next that is */
};

enum rpc_channel_state {
    RPC_IDLE,
    RPC_LOOKS,  /* the host's addresses are looked up */
    RPC_DIALS,  /* until both ends speak */
    RPC_FAILS,  /* it could not be dialled: the loop sees it in its next turn, as a request may be on the stack */
    RPC_PAUSES, /* until the next dial */
    RPC_OPEN,
    RPC_ENDS /* the socket is shut down: the loop sees it in its next turn */
};
struct tutti_rpc_channel {
    struct rpc_link link; /* first */
    struct tutti_rpc_channel_config config;
    struct rpc_target *targets;
    uint32_t n, now;   /* now: which one is asked */
    uint32_t n_failed; /* servers that were given up since one answered ... */
    uint32_t n_denied; /* ... of this round those that have another secret */
    enum rpc_channel_state state;
    bool greeted;                  /* the server has spoken HTTP/2 */
    struct tutti_loop_timer timer; /* the end of a pause, or of a dial */
    uint64_t pause_ns;             /* the last one */
    struct rpc_proof proof;
    char cause[RPC_SENTENCE]; /* for RPC_FAILS and RPC_ENDS */
    char why[RPC_SENTENCE];   /* why there is no connection: "host:port: Connection refused" */
    nghttp2_session_callbacks *callbacks;
    struct tutti_rpc_request *requests;
};

/* ---- request.c ---- */
/* Sends it on the connection that there is. False: it takes no more, and is lost soon. */
bool rpc_request_submit(struct tutti_rpc_request *request);
/* Takes it off the channel and tells done, if there is one. */
void rpc_request_end(struct tutti_rpc_request *request, enum tutti_rpc_status status, const char *message);
/* Whether it may go to the next server; then it waits for it. */
bool rpc_request_retry(struct tutti_rpc_request *request, uint64_t now);
enum tutti_status rpc_client_callbacks(nghttp2_session_callbacks **out);

/* ---- client.c ---- */
/* Dials, unless there is a connection, or one is being made. */
void rpc_dial(struct tutti_rpc_channel *channel);
/* Shuts the socket down: the server is given up in the loop's next turn. */
void rpc_give_up(struct tutti_rpc_channel *channel, const char *why);

#endif
