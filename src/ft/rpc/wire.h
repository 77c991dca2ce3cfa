/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_WIRE_H
#define TUTTI_FT_RPC_WIRE_H

/* What gRPC puts around messages, without sockets. */

#include "base/base.h"

#define RPC_SENTENCE 512

/* A message: one byte, 0 (not compressed), four of length, big endian. */
#define RPC_PREFIX 5
void rpc_prefix_write(uint8_t out[RPC_PREFIX], size_t n);
/* The next bytes of a message with these n bytes, of which *sent, the prefix included, went before; how many there are,
 * at most the capacity. */
size_t rpc_message_give(const uint8_t *bytes, size_t n, size_t *sent, uint8_t *out, size_t capacity);
/* The one message of a unary call in [bytes, bytes + n): false when it is not exactly that, uncompressed. */
bool rpc_message(const uint8_t *bytes, size_t n, const uint8_t **message, size_t *n_message);

/* The length of the message that begins here; false: it is not whole yet. */
bool rpc_message_length(const uint8_t *bytes, size_t n, size_t *n_message);

/* "host:port" or "[address]:port", of which `n` bytes are read; host: without brackets, may be empty. False: it is not.
 */
#define RPC_JOB 64 /* bytes of the name before "@", which is no part of it */
#define RPC_HOST 256
#define RPC_PORT 6
bool rpc_address_split(const char *text, size_t n, char host[RPC_HOST], char port[RPC_PORT]);

/* Bytes that come in pieces. */
struct rpc_bytes {
    uint8_t *at;
    size_t n, capacity;
};
/* NULL, or why they can not be added: there would be more than `most`, or no memory. */
const char *rpc_bytes_add(struct rpc_bytes *bytes, const uint8_t *more, size_t n, size_t most);
void rpc_bytes_free(struct rpc_bytes *bytes);

/* grpc-timeout: at most 8 digits and a unit of H, M, S, m, u, n. False: it is none. */
bool rpc_timeout_read(const char *text, size_t n, uint64_t *ns);
#define RPC_TIMEOUT_TEXT 16
void rpc_timeout_write(uint64_t ns, char out[RPC_TIMEOUT_TEXT]); /* rounded up, so that nobody gives up too early */

/* grpc-message: printable ASCII but for %, all else as %XX. Cut at the capacity. */
void rpc_percent_encode(const char *text, char *out, size_t capacity);

#endif
