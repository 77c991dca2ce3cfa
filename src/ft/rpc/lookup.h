/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_LOOKUP_H
#define TUTTI_FT_RPC_LOOKUP_H

/* Names of hosts become addresses on a thread of their own, since the system's resolver blocks without a bound. Private
 * to this folder, on the loop's thread. */

#include "base/loop.h"

#include <netdb.h>

struct rpc_lookup;
/* `ready` is called once, later, unless it is dropped before; it takes the result. SYSTEM, MEMORY. */
enum tutti_status rpc_lookup_start(struct tutti_loop *loop, const char *host, const char *port,
                                   void (*ready)(void *arg), void *arg, struct rpc_lookup **out);
/* Ends it: the addresses, the caller's to free; NULL: *why says why there are none. */
struct addrinfo *rpc_lookup_take(struct rpc_lookup *lookup, const char **why);
void rpc_lookup_drop(struct rpc_lookup *lookup); /* NULL is allowed */
/* What is an address already, at once; NULL: it is a name. */
struct addrinfo *rpc_lookup_numeric(const char *host, const char *port);

#endif
