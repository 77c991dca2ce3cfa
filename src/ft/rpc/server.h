/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_SERVER_H
#define TUTTI_FT_RPC_SERVER_H

/* A server's connections and calls. Private to this folder. */

#include "ft/rpc/limit.h"
#include "ft/rpc/link.h"
#include "ft/rpc/rpc.h"
#include "ft/rpc/wire.h"

#define RPC_ADDRESS_TEXT 64

/* Answers of a call that has many. */
#define RPC_PUSHED 1024
struct rpc_pushed {
    struct rpc_pushed *next;
    struct tutti_rpc_body *body;
    size_t sent; /* bytes of prefix and body */
};
struct rpc_stream {
    struct rpc_pushed *first, *last;
    uint32_t n;
    bool over; /* all is said when these are sent */
    char status[8], message[RPC_SENTENCE];
};

struct rpc_conn;
/* A stream: from its headers until it is closed. */
struct tutti_rpc_call {
    struct tutti_rpc_call *next; /* in the connection */
    struct rpc_conn *conn;
    int32_t stream;
    const struct tutti_rpc_method *method; /* NULL: there is none of this path */
    uint64_t deadline_ns;
    struct tutti_loop_timer timer;
    bool called;              /* the handler has it, and has not ended it */
    bool ended;               /* replied or failed */
    bool malformed;           /* its headers or bytes can not be */
    const char *why;          /* ... the sentence */
    struct rpc_bytes request; /* so far */
    char job[RPC_JOB + 1];
    int64_t note;
    bool passed_on;
    /* the answer */
    struct tutti_rpc_body *body;
    size_t sent;               /* bytes of prefix and body */
    struct rpc_stream *pushed; /* NULL: one answer */
};

struct rpc_conn {
    struct rpc_link link;          /* first */
    struct tutti_loop_timer timer; /* until it is authenticated; then while it is paused */
    struct rpc_conn *next, **from; /* the server's list; from: what points here */
    struct tutti_rpc_server *server;
    struct tutti_rpc_call *calls;
    uint32_t n_calls;
    void *kept;                       /* the handlers' */
    bool awaits;                      /* the rest of its preface */
    bool unproven;                    /* has not proved the secret, or, where there is none, not said what it speaks */
    struct rpc_conn *older, *younger; /* unauthenticated ones */
    uint8_t address[16];              /* as limit.h has it */
    char peer[RPC_ADDRESS_TEXT];
};

struct tutti_rpc_server {
    struct tutti_rpc_server_config config;
    struct tutti_loop_fd listener;
    struct tutti_loop_timer timer; /* until it accepts again */
    uint16_t port;
    nghttp2_session_callbacks *callbacks;
    struct rpc_conn *conns;
    struct rpc_conn *oldest_unproven, *youngest_unproven;
    uint32_t n_conns, n_unproven, n_untold; /* untold: refused since the last line in the log */
    uint64_t told_ns;
    struct rpc_proof proof;
    struct rpc_limit limit;
};

/* ---- server.c ---- */
enum tutti_status rpc_callbacks_new(nghttp2_session_callbacks **out);
/* Takes the descriptor over. */
void rpc_conn_open(struct tutti_rpc_server *server, int fd, const char *peer, const uint8_t address[16]);
/* Its calls are cancelled. */
void rpc_conn_close(struct rpc_conn *conn);

/* ---- call.c ---- */
struct tutti_rpc_call *rpc_call_new(struct rpc_conn *conn, int32_t stream);
/* The stream is closed: `cancelled` is called if the handler still has the call. */
void rpc_call_free(struct tutti_rpc_call *call);
void rpc_call_header(struct tutti_rpc_call *call, const char *name, const char *value, size_t n);
void rpc_call_data(struct tutti_rpc_call *call, const uint8_t *bytes, size_t n);
void rpc_call_run(struct tutti_rpc_call *call); /* the request is here */

#endif
