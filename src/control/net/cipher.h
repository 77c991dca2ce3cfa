/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_CIPHER_H
#define TUTTI_CONTROL_NET_CIPHER_H

/* Data between hosts, encrypted on the thread that sends and receives it: AES-128-GCM from the sender's memory into
 * what goes to the socket, and from what came into the receiver's memory. The secrets are those that TLS has made
 * (tls.h).
 *
 * On the socket are records: the length (4 bytes, little-endian, at most TUTTI_CIPHER_RECORD), so many bytes, and a tag
 * of 16, which covers both. The nonce of a record is its number, each way by itself, combined with a part of the key as
 * in TLS 1.3; so none can be left out, repeated or given another place. A record of length 0 says that no more comes.
 * After every so many records a way has a new secret, made of the one before: a key protects no more than it may
 * (RFC 8446, 5.5: 2^24.5 records of 16 KiB, as many bytes as 2^22.5 of these). */

#include "base/base.h"
#include "base/stream.h"

#define TUTTI_CIPHER_RECORD 65536
#define TUTTI_CIPHER_HEAD 4
#define TUTTI_CIPHER_TAG 16

struct tutti_cipher_config {
    int fd; /* non-blocking, stays the caller's */
    uint8_t in[TUTTI_HMAC_BYTES], out[TUTTI_HMAC_BYTES];
    uint64_t renewed; /* records by one secret; 0: 2^20 */
};
/* What encrypts, as words for a person: a library and its version. *why: NULL, or why nothing quicker does. Any thread. */
const char *tutti_cipher_library(const char **why);

/* MEMORY. */
enum tutti_status tutti_cipher_open(const struct tutti_cipher_config *config, struct tutti_stream **out);

#endif
