/* SPDX-License-Identifier: BSD-3-Clause */
/* One number for each address: the time until which its work is paid for. */
#include "ft/rpc/limit.h"

#include <netinet/in.h>
#include <string.h>

#define AT_ONCE_NS (2 * TUTTI_NS_PER_S)

void rpc_limit_address(const struct sockaddr *from, uint8_t out[16])
{
    memset(out, 0, 16);
    if (from->sa_family == AF_INET) {
        out[10] = out[11] = 0xff;
        memcpy(out + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        const struct in6_addr *address = &((const struct sockaddr_in6 *)from)->sin6_addr;
        memcpy(out, address, IN6_IS_ADDR_V4MAPPED(address) ? 16 : 8);
    }
}

/* The row of the address, or the row of its set that asked for the least, as a new one. */
static struct rpc_limit_row *row_of(struct rpc_limit *limit, const uint8_t address[16])
{
    struct rpc_limit_row *rows = limit->rows[tutti_hash64(address, 16, limit->seed) % RPC_LIMIT_SETS], *least = rows;

    for (int i = 0; i < RPC_LIMIT_WAYS; i++) {
        if (memcmp(rows[i].address, address, 16) == 0) return &rows[i];
        if (rows[i].paid_ns < least->paid_ns) least = &rows[i];
    }
    memcpy(least->address, address, 16);
    least->paid_ns = 0;
    return least;
}

void rpc_limit_charge(struct rpc_limit *limit, const uint8_t address[16], uint32_t units, uint64_t now)
{
    if (limit->rate == 0) return;
    struct rpc_limit_row *row = row_of(limit, address);
    row->paid_ns = (row->paid_ns > now ? row->paid_ns : now) + units * TUTTI_NS_PER_S / limit->rate;
}

uint64_t rpc_limit_take(struct rpc_limit *limit, const uint8_t address[16], uint32_t units, uint64_t now)
{
    const uint64_t paid = limit->rate > 0 ? row_of(limit, address)->paid_ns : 0;

    if (paid > now + AT_ONCE_NS) return paid - now - AT_ONCE_NS;
    rpc_limit_charge(limit, address, units, now);
    return 0;
}
