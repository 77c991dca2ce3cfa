/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_ASK_ASKER_H
#define TUTTI_FT_ASK_ASKER_H

/* Calls that block, over a loop's thread of their own: what clients are made of. Of this room alone.
 *
 * Thread: any; calls of one asker run side by side. */

#include "ft/ask/servers.h"

#include <tutti/ft.h>

struct waiting;
struct asker {
    struct tutti_loop *loop;
    struct tutti_servers *servers;
    struct waiting *waiting; /* the loop's thread's, as closes is */
    bool closes;
    pthread_mutex_t mutex;
    pthread_cond_t none;
    uint32_t n_calls; /* callers that are inside */
};
/* Blocks until one of the servers answers `hello`, which any answer is; it is not implemented: *is_ours is false. Fails
 * or not, asker_close ends it; the asker is all 0 before. */
enum tutti_status asker_open(struct asker *asker, const char *addresses, const char *what, const char *hello,
                             uint64_t connect_timeout_ns, bool *is_ours);
void asker_close(struct asker *asker); /* calls under way end with CANCELLED */

struct asker_call {
    const char *what; /* "quorum of rank 3": how a sentence about it begins */
    const char *path;
    struct tutti_rpc_body *body; /* NULL: out of memory; taken over */
    uint64_t timeout_ns;
    bool persists;     /* it is sent again when its server is lost */
    bool gone_is_done; /* a server that goes without an answer has done it */
    /* What the answer says, on the loop's thread; the bytes are borrowed. NULL: nothing. */
    enum tutti_status (*read)(void *out, const uint8_t *bytes, size_t n);
    void *out;
};
enum tutti_status asker_call(struct asker *asker, const struct asker_call *call);

#endif
