/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_CLIENT_CLIENT_H
#define TUTTI_FT_CLIENT_CLIENT_H

/* Calls that block, over a loop's thread of their own: what clients are made of. Private to this folder.
 *
 * Thread: any; calls of one client run side by side. */

#include "ft/rpc/message.h"

#include <tutti/ft.h>

struct waiting;
struct client {
    struct tutti_loop *loop;
    struct tutti_rpc_channel *channel;
    struct waiting *waiting; /* the loop's thread's, as closes is */
    bool closes;
    pthread_mutex_t mutex;
    pthread_cond_t none;
    uint32_t n_calls; /* callers that are inside */
};
/* Blocks until one of the servers answers `hello`; any answer is one, and where it is not implemented *is_ours is
 * false. Whether it fails or not, client_close ends it; the client is all 0 before. */
enum tutti_status client_open(struct client *client, const char *addresses, const char *what, const char *hello,
                              uint64_t connect_timeout_ns, bool *is_ours);
void client_close(struct client *client); /* calls under way end with CANCELLED */

/* Calls under way and later ones end with CANCELLED, but it is there until it is closed. */
void client_withdraw(struct client *client);
void client_cancel(struct tutti_ft_client *client); /* the same (manager_client.c) */

struct client_call {
    const char *what; /* "quorum of rank 3": how a sentence about it begins */
    const char *path;
    struct tutti_rpc_body *body; /* NULL: out of memory; taken over */
    uint64_t timeout_ns;
    bool persists;     /* it is sent again when its server is lost */
    bool gone_is_done; /* a server that goes without an answer has done it */
    /* Takes the answer, on the loop's thread; the bytes are borrowed. NULL: it says nothing. */
    enum tutti_status (*read)(void *out, const uint8_t *bytes, size_t n);
    void *out;
};
enum tutti_status client_call(struct client *client, const struct client_call *call);

/* Texts for messages that are packed, which does not change them; NULL: "". */
static inline char *client_text(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

#endif
