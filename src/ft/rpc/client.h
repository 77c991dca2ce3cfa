/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_CLIENT_H
#define TUTTI_FT_RPC_CLIENT_H

/* A client's connection and requests; of this room alone. */

#include "ft/rpc/link.h"
#include "ft/rpc/lookup.h"
#include "ft/rpc/rpc.h"
#include "ft/rpc/wire.h"

#define RPC_SENTENCE 512

struct tutti_rpc_request {
    struct tutti_rpc_request *next;
    struct tutti_rpc_channel *channel;
    int32_t stream; /* 0: it waits for a connection */
    const char *path;
    struct tutti_rpc_body *body;
    size_t sent; /* bytes of prefix and body */
    uint64_t deadline_ns;
    struct tutti_loop_timer timer;
    tutti_rpc_done done;
    void (*each)(void *arg, const uint8_t *bytes, size_t n); /* NULL: there is one answer */
    void *arg;
    /* what came */
    struct rpc_bytes answer; /* n counts also what is discarded */
    bool discards;
    const char *wrong; /* NULL, or why it can not be an answer ... */
    enum tutti_rpc_status as;
    int status; /* -1: no grpc-status yet */
    char message[RPC_SENTENCE];
};

enum rpc_channel_state { RPC_IDLE, RPC_LOOKS, RPC_DIALS, RPC_PAUSES, RPC_OPEN };
struct tutti_rpc_channel {
    struct rpc_link link; /* first */
    struct tutti_rpc_channel_config config;
    char host[RPC_HOST], port[RPC_PORT], authority[RPC_JOB + RPC_HOST + 9];
    enum rpc_channel_state state;
    struct tutti_loop_timer timer; /* until it dials again, or has dialled for too long */
    uint64_t pause_ns;             /* the last one */
    struct rpc_lookup *lookup;     /* NULL: none is under way */
    struct addrinfo *addresses;    /* the host's; NULL: they are looked for before the next dial */
    uint32_t n_dialed;             /* which of them is next ... */
    uint32_t n_addresses, n_tried; /* ... of how many, and how many were tried since they were looked for */
    bool has_key;
    uint8_t key[TUTTI_HMAC_BYTES];
    char why[RPC_SENTENCE]; /* why there is no connection */
    nghttp2_session_callbacks *callbacks;
    struct tutti_rpc_request *requests;
};

/* ---- request.c ---- */
/* On the connection that there is. False: it takes no more, and is lost soon. */
bool rpc_request_submit(struct tutti_rpc_request *request);
/* Ends it; done is told, if it still wants to hear. */
void rpc_request_end(struct tutti_rpc_request *request, enum tutti_rpc_status status, const char *message);
enum tutti_status rpc_client_callbacks(nghttp2_session_callbacks **out);

/* ---- dial.c ---- */
/* Dials, unless there is a connection, or one is being made. */
void rpc_dial(struct tutti_rpc_channel *channel);
void rpc_hang_up(struct tutti_rpc_channel *channel);
void rpc_forget_addresses(struct tutti_rpc_channel *channel); /* they are looked for anew */
void rpc_on_time(struct tutti_loop_timer *timer);             /* the channel's */
/* What was sent is lost; what was not waits for the next connection. */
void rpc_lost(struct tutti_rpc_channel *channel, const char *why);

#endif
