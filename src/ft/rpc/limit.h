/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_LIMIT_H
#define TUTTI_FT_RPC_LIMIT_H

/* How much work each peer address may ask for: so many units a second, and those of two seconds at once. A network of
 * IPv6 (/64) is one address. The memory is bounded: of more addresses than it holds, those that asked for the least
 * are forgotten. Pure: the time is an argument. Private to this folder. */

#include "base/base.h"

#include <sys/socket.h>

enum { RPC_LIMIT_WAYS = 4, RPC_LIMIT_SETS = 1024 };

struct rpc_limit {
    uint32_t rate; /* units a second; 0: no limit */
    struct rpc_limit_row {
        uint8_t address[16];
        uint64_t paid_ns; /* until then its work is paid for */
    } rows[RPC_LIMIT_SETS][RPC_LIMIT_WAYS];
    uint64_t seed; /* so that an address can not choose its set */
};
void rpc_limit_address(const struct sockaddr *from, uint8_t out[16]);
/* How long the address has to wait until it may ask for more. 0: it need not, and the work is counted. */
uint64_t rpc_limit_take(struct rpc_limit *limit, const uint8_t address[16], uint32_t units, uint64_t now);
/* Counts work that is done already: the next one waits for it. */
void rpc_limit_charge(struct rpc_limit *limit, const uint8_t address[16], uint32_t units, uint64_t now);

#endif
