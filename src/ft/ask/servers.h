/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_ASK_SERVERS_H
#define TUTTI_FT_ASK_SERVERS_H

/* Servers of which each can answer, in a list: "http://a:29510,http://b:29510". Requests go to one of them; when it is
 * lost, or says that it is not available, the next one is dialled, and requests that persist are sent there again.
 * After a round of all without success there is a pause, which grows from 50 ms to 1 s.
 *
 * Thread: the loop's; open and close any. Memory of a request is its owner's until it is done or withdrawn. */

#include "ft/rpc/rpc.h"

struct tutti_servers;
struct tutti_asked {
    /* set by who sends it */
    const char *path;
    struct tutti_rpc_body *body; /* the caller's count is taken over */
    uint64_t deadline_ns;
    uint64_t reach_ns; /* so long it persists while nobody can be reached; 0: it ends when its server is lost */
    bool probe;        /* it is answered at once: a server that does not within the deadline is lost */
    tutti_rpc_done done;
    void (*each)(void *arg, const uint8_t *bytes, size_t n); /* called for each of many answers; NULL: there is one */
    void *arg;
    /* its own */
    struct tutti_asked *next;
    struct tutti_servers *servers;
    struct tutti_rpc_request *request; /* NULL: it waits for the next server */
    uint32_t turn;                     /* the turn in which it was sent */
    uint64_t sent_ns;
    uint64_t lost_ns; /* since when nobody can be reached; 0: somebody can */
};

/* ARGUMENT: the list has no address, or one that can not be; `what` names it in the sentence. secret: as that of a
 * channel. */
enum tutti_status tutti_servers_open(struct tutti_loop *loop, const char *addresses, const char *what,
                                     const char *secret, struct tutti_servers **out);
void tutti_servers_close(struct tutti_servers *servers); /* its requests are withdrawn */
/* done is called later, as for tutti_rpc_send; out of memory: with RESOURCE_EXHAUSTED. */
void tutti_servers_ask(struct tutti_servers *servers, struct tutti_asked *asked);
/* done is not called any more. */
void tutti_servers_withdraw(struct tutti_asked *asked);
bool tutti_asked_open(const struct tutti_asked *asked);
uint32_t tutti_servers_n(const struct tutti_servers *servers);
/* "host:port" of the one that is asked now. */
const char *tutti_servers_authority(const struct tutti_servers *servers);

#endif
