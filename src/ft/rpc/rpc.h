/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_RPC_H
#define TUTTI_FT_RPC_RPC_H

/* gRPC over HTTP/2 with prior knowledge, as torchft's managers and lighthouses speak it; HTTP/2 by nghttp2. In
 * clear text, as they do, or where both ends have the job's secret, or certificates of its CA, inside TLS 1.3. A server
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
 * Bounds: connections; a quarter of them for unauthenticated peers (those that have not proved the secret, or not said
 * what they speak); calls of a connection; bytes of a message and of headers; the rate of requests from one address;
 * and the time until a peer is authenticated. When there are too many unauthenticated peers the oldest is closed. An
 * address that exceeds its rate is not read for a while.
 *
 * Thread: the loop's, all; open and close any other. Ownership: what a handler gets is borrowed until it returns. */

#include "base/loop.h"

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
    /* Called when the call has ended without reply or fail: it is freed when this returns. */
    void (*cancelled)(void *arg, struct tutti_rpc_call *call);
    /* The call's time is over: writes why nothing was answered, which is told with "Timeout expired". NULL: nothing is.
     */
    void (*expired)(void *arg, const struct tutti_rpc_call *call, char *why, size_t n);
    /* Called when a connection has ended on which something was kept (tutti_rpc_kept). NULL: nothing is kept. */
    void (*gone)(void *arg, void *kept);
    /* Takes a connection whose first bytes, which are still unread, are not HTTP/2. NULL: it is closed. */
    void (*http)(void *arg, int fd);
    uint32_t max_connections, max_calls; /* max_calls: of a connection, at once */
    size_t max_message;
    /* The job's secret: calls of peers that have not proved it fail with UNAUTHENTICATED. NULL: */
    const char *secret;
    struct tutti_certificate *certificate; /* ... that have shown no certificate of its CA; NULL: all are believed */
    /* Units that an address may use in a second: a call and a read are one, a connection 20; 0: any. */
    uint32_t rate;
};
struct tutti_rpc_server;
/* SYSTEM: the sentence names the address. ARGUMENT: bind is no address. */
enum tutti_status tutti_rpc_server_open(const struct tutti_rpc_server_config *config, struct tutti_rpc_server **out);
void tutti_rpc_server_close(struct tutti_rpc_server *server); /* its calls are cancelled */
uint16_t tutti_rpc_server_port(const struct tutti_rpc_server *server);
/* Charges other work to this address; false: its rate is exceeded for now. */
bool tutti_rpc_server_allows(struct tutti_rpc_server *server, const struct sockaddr *from, uint32_t units);

/* The peer's address, "10.0.0.1:41002". */
const char *tutti_rpc_peer(const struct tutti_rpc_call *call);
uint64_t tutti_rpc_deadline(const struct tutti_rpc_call *call); /* TUTTI_NEVER: it has none */
/* A pointer of the handler's own on the call's connection; NULL at first. */
void **tutti_rpc_kept(struct tutti_rpc_call *call);
/* A number of the handler's own on the call; 0 at first. */
void tutti_rpc_set_note(struct tutti_rpc_call *call, int64_t note);
int64_t tutti_rpc_note(const struct tutti_rpc_call *call);
const char *tutti_rpc_path(const struct tutti_rpc_call *call);
/* Marks the call as passed on by another server: a call of this method, for a client of this job. */
void tutti_rpc_passed_on(struct tutti_rpc_call *call, const struct tutti_rpc_method *method, const char *job);
bool tutti_rpc_is_passed_on(const struct tutti_rpc_call *call);
/* The job that the client's address names, "http://JOB@host:port"; "": none. */
const char *tutti_rpc_job(const struct tutti_rpc_call *call);
/* Takes the caller's count of the body over. */
void tutti_rpc_reply(struct tutti_rpc_call *call, struct tutti_rpc_body *body);
void tutti_rpc_fail(struct tutti_rpc_call *call, enum tutti_rpc_status status, const char *message);
/* Sends one of many answers to a call, which stays open until it fails (with OK: that was all) or is cancelled. NULL:
 * only the headers are sent. Takes the caller's count over. False: the answer is dropped, as too many wait for the
 * client to read. */
bool tutti_rpc_push(struct tutti_rpc_call *call, struct tutti_rpc_body *body);

/* ---- clients ---- */
/* A channel has a list of servers of which each can answer, and a connection to one of them: made when it is first
 * needed, and made anew, to the next of the list, when it is lost or can not be made. After a round of all of them
 * without an answer there is a pause, which grows from 50 ms to 1 s. A host's name is looked up on a thread of its own.
 */
struct tutti_rpc_channel_config {
    struct tutti_loop *loop;
    const char *addresses; /* "http://host:port", "host:port", "http://JOB@host:port"; several with commas between */
    const char *what;      /* what a sentence about a wrong address calls them; NULL: "the server" */
    size_t max_message;
    const char *secret;                    /* the job's, borrowed while it opens; NULL: */
    struct tutti_certificate *certificate; /* this process shows it; NULL: in the clear */
    uint64_t dial_ns; /* so long one address of a host may take, or its name; 0: as long as the system tries */
    uint32_t window;  /* what a server may send before it hears that it was read; 0: 256 KiB */
};
struct tutti_rpc_channel;
/* ARGUMENT: there is no address, or one that can not be. */
enum tutti_status tutti_rpc_channel_open(const struct tutti_rpc_channel_config *config, struct tutti_rpc_channel **out);
/* "host:port" of the server that is asked now. */
const char *tutti_rpc_channel_authority(const struct tutti_rpc_channel *channel);
uint32_t tutti_rpc_channel_n(const struct tutti_rpc_channel *channel); /* how many servers it has */
/* Gives the server up as one that is lost, in the loop's next turn. */
void tutti_rpc_channel_drop(struct tutti_rpc_channel *channel);
/* Its requests are withdrawn. */
void tutti_rpc_channel_close(struct tutti_rpc_channel *channel);

/* The answer: message is "" or the server's sentence; the bytes are borrowed. */
typedef void (*tutti_rpc_done)(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes,
                               size_t n);
struct tutti_rpc_ask {
    const char *path;            /* static */
    struct tutti_rpc_body *body; /* the caller's count is taken over */
    uint64_t deadline_ns; /* on CLOCK_MONOTONIC. The server is told a little less, so that its reason comes in time */
    /* So long it goes on while no server can be reached, and is sent to the next one when its own is lost or says that
     * it is unavailable. 0: it waits for one round of the list, and ends with the connection on which it was sent. */
    uint64_t reach_ns;
    bool probe;          /* it is answered at once: a server that does not answer in time is lost */
    bool discard;        /* the answer is counted, but not kept: done gets NULL and its length */
    tutti_rpc_done done; /* NULL: nobody is told */
    void (*each)(void *arg, const uint8_t *bytes,
                 size_t n); /* for many answers; does not withdraw. NULL: there is one */
    void *arg;
};
struct tutti_rpc_request;
/* The message of a request that was on a connection which is lost: the server may have done it. */
extern const char tutti_rpc_connection_lost[];
/* done is called once, later, at the deadline at the latest: UNAVAILABLE when no server can be reached or its own was
 * lost, UNAUTHENTICATED when all of them have another secret. done does not send on the same channel. NULL: out of
 * memory. */
struct tutti_rpc_request *tutti_rpc_send(struct tutti_rpc_channel *channel, const struct tutti_rpc_ask *ask);
/* done is not called any more. */
void tutti_rpc_withdraw(struct tutti_rpc_request *request);
/* An earlier deadline, by a tenth of the time that is left, at most 500 ms: for a part of what has this one, so that
 * its reason is known before the whole gives up. */
uint64_t tutti_rpc_sooner(uint64_t deadline_ns);

#endif
