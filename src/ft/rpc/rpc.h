/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_RPC_H
#define TUTTI_FT_RPC_RPC_H

/* gRPC over HTTP/2 with prior knowledge, as torchft's managers and lighthouses speak it; HTTP/2 by nghttp2. In
 * clear text, as they do, or where both ends have the job's secret inside TLS 1.3 with a key made of it. A server
 * answers calls on a loop's thread, at once or later; connections that speak HTTP/1.1 are handed on. Sources: "gRPC
 * over HTTP2" of the gRPC project, RFC 9113.
 *
 *     static void on_ask(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
 *     {
 *         if (!decode(message, n)) tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "no requester");
 *         else remember(arg, call);                // and later: tutti_rpc_reply(call, body)
 *     }
 *
 * Each call ends in exactly one of: reply, fail, `cancelled`; before fail there may be answers pushed. A call whose
 * grpc-timeout passes fails with CANCELLED and "Timeout expired", as torchft's servers do, and is then cancelled like
 * one whose peer closes the stream or goes.
 *
 * Bounds: connections, a quarter of them for strangers (who have not shown the secret, or not said yet what they
 * speak), calls of a connection, bytes of a message and of headers, what one address may ask for in a second, and the
 * time until a connection has said what it speaks. So strangers can not take more than so much: the oldest of them
 * makes room for the next, and of who asks for more than may be nothing is read for a while.
 *
 * Thread: the loop's, all; open and close any other. Ownership: what a handler gets is borrowed until it returns. */

#include "control/net/loop.h"

#include <sys/socket.h>

/* The statuses of gRPC that are used here. */
enum tutti_rpc_status {
    TUTTI_RPC_OK = 0,
    TUTTI_RPC_CANCELLED = 1,
    TUTTI_RPC_UNKNOWN = 2,
    TUTTI_RPC_INVALID_ARGUMENT = 3,
    TUTTI_RPC_DEADLINE_EXCEEDED = 4,
    TUTTI_RPC_NOT_FOUND = 5,
    TUTTI_RPC_PERMISSION_DENIED = 7,
    TUTTI_RPC_RESOURCE_EXHAUSTED = 8,
    TUTTI_RPC_ABORTED = 10,
    TUTTI_RPC_UNIMPLEMENTED = 12,
    TUTTI_RPC_INTERNAL = 13,
    TUTTI_RPC_UNAVAILABLE = 14,
    TUTTI_RPC_UNAUTHENTICATED = 16,
};

/* Bytes that several calls may send: counted. */
struct tutti_rpc_body {
    uint32_t refs;
    size_t n;
    uint8_t bytes[];
};
struct tutti_rpc_body *tutti_rpc_body_new(size_t n); /* NULL: out of memory */
void tutti_rpc_body_give(struct tutti_rpc_body *body);

/* "127.0.0.1:29510", "localhost:29510", "[::1]:29510": no other host gets there. */
bool tutti_rpc_is_here(const char *address);

struct tutti_rpc_call;
struct tutti_rpc_method {
    const char *path; /* "/torchft.LighthouseService/Quorum" */
    void (*called)(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n);
};
struct tutti_rpc_server_config {
    struct tutti_loop *loop;
    const char *bind; /* "host:port", "[::]:29510"; port 0: any */
    const struct tutti_rpc_method *methods;
    size_t n_methods;
    void *arg; /* for the methods and `http` */
    /* The peer has not answered the call and never will: nobody may use it any more. Not after reply and fail. */
    void (*cancelled)(void *arg, struct tutti_rpc_call *call);
    /* A connection on which something was kept (tutti_rpc_kept) has ended, by whatever. NULL: nothing is kept. */
    void (*gone)(void *arg, void *kept);
    /* A connection whose first bytes, which are still unread, are not HTTP/2: it belongs to who is called. NULL: it is
     * closed. */
    void (*http)(void *arg, int fd);
    uint32_t max_connections, max_calls; /* max_calls: of a connection, at once */
    size_t max_message;
    /* The job's secret: who has not shown that he knows it gets UNAUTHENTICATED. NULL: all are believed. */
    const char *secret;
    uint32_t
        rate; /* units that an address may ask for in a second: a call and a read are one, a connection 20; 0: any */
};
struct tutti_rpc_server;
/* SYSTEM: the sentence names the address. ARGUMENT: bind is no address. */
enum tutti_status tutti_rpc_server_open(const struct tutti_rpc_server_config *config, struct tutti_rpc_server **out);
void tutti_rpc_server_close(struct tutti_rpc_server *server); /* its calls are cancelled */
uint16_t tutti_rpc_server_port(const struct tutti_rpc_server *server);
/* Counts other work of the server for this address; false: it has had its share for now. */
bool tutti_rpc_server_allows(struct tutti_rpc_server *server, const struct sockaddr *from, uint32_t units);

/* The peer's address, "10.0.0.1:41002". */
const char *tutti_rpc_peer(const struct tutti_rpc_call *call);
uint64_t tutti_rpc_deadline(const struct tutti_rpc_call *call); /* TUTTI_NEVER: it has none */
/* Where the handler keeps what it likes of the call's connection; NULL at first. */
void **tutti_rpc_kept(struct tutti_rpc_call *call);
/* A number of the handler's own, 0 at first. */
void tutti_rpc_set_note(struct tutti_rpc_call *call, int64_t note);
int64_t tutti_rpc_note(const struct tutti_rpc_call *call);
const char *tutti_rpc_path(const struct tutti_rpc_call *call);
/* Another server has passed the call on, for a client of this job. */
void tutti_rpc_passed_on(struct tutti_rpc_call *call, const char *job);
bool tutti_rpc_is_passed_on(const struct tutti_rpc_call *call);
/* The job that the client's address names, "http://JOB@host:port"; "": none. */
const char *tutti_rpc_job(const struct tutti_rpc_call *call);
/* Takes the caller's count of the body over. */
void tutti_rpc_reply(struct tutti_rpc_call *call, struct tutti_rpc_body *body);
void tutti_rpc_fail(struct tutti_rpc_call *call, enum tutti_rpc_status status, const char *message);
/* One of many answers to a call, which stays until it fails (OK: that was all) or is cancelled; NULL: the client is
 * told that they will come. Takes the caller's count over. False: the client does not read, and has so many waiting
 * that this one is dropped. */
bool tutti_rpc_push(struct tutti_rpc_call *call, struct tutti_rpc_body *body);

/* ---- clients ---- */
/* One connection to a server, made when it is first needed and made anew when it is lost. A host's name is looked up
 * on a thread of its own. */
struct tutti_rpc_channel_config {
    struct tutti_loop *loop;
    const char *address; /* "http://host:port", "host:port", "http://JOB@host:port"; copied */
    size_t max_message;
    const char *secret; /* the job's, borrowed while it opens; NULL: in the clear */
    uint64_t dial_ns;   /* so long one address of the host may take, or its name; 0: as long as the system tries */
    uint32_t window;    /* what a server may send before it hears that it was read; 0: 256 KiB */
    /* A request does not wait for a connection that could not be made: it ends with UNAVAILABLE, and the next one tries
     * the host's next address. */
    bool gives_up;
};
struct tutti_rpc_channel;
enum tutti_status tutti_rpc_channel_open(const struct tutti_rpc_channel_config *config, struct tutti_rpc_channel **out);
/* "host:port" */
const char *tutti_rpc_channel_authority(const struct tutti_rpc_channel *channel);
/* The server is held for lost: requests that were sent end with UNAVAILABLE, in the loop's next turn. */
void tutti_rpc_channel_drop(struct tutti_rpc_channel *channel);
/* Its requests are withdrawn. */
void tutti_rpc_channel_close(struct tutti_rpc_channel *channel);

struct tutti_rpc_request;
/* The answer: message is "" or the server's sentence; the bytes are borrowed. */
typedef void (*tutti_rpc_done)(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes,
                               size_t n);
/* Takes the caller's count of the body over; path is static. done is called once, later, at the deadline at the latest
 * (CLOCK_MONOTONIC): while there is no connection the request waits for one; one that was sent on a connection that is
 * lost ends with UNAVAILABLE. done does not send on the same channel. NULL: out of memory. */
struct tutti_rpc_request *tutti_rpc_send(struct tutti_rpc_channel *channel, const char *path,
                                         struct tutti_rpc_body *body, uint64_t deadline_ns, tutti_rpc_done done,
                                         void *arg);
/* Right after it was sent: of many answers each is told when it comes, done only of the end. `each` does not withdraw.
 */
void tutti_rpc_set_each(struct tutti_rpc_request *request, void (*each)(void *arg, const uint8_t *bytes, size_t n));
/* Right after it was sent: the answer is counted, but not kept: done gets NULL and its length, not looked at. */
void tutti_rpc_discard(struct tutti_rpc_request *request);
/* done is not called any more. */
void tutti_rpc_withdraw(struct tutti_rpc_request *request);

#endif
