/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STORE_STORE_CODEC_H
#define TUTTI_STORE_STORE_CODEC_H

/* The meeting store: where ranks of a job leave and find small values (<tutti/store.h>). This room may use base alone.
 * Begin with store.c (stores by address), then store_file.c, or store_tcp.c with its server (store_server.c,
 * store_table.h). Here is the codec, the protocol of the TCP store as bytes. Integers are little-endian.
 *
 *     0  magic "TUST"   4  version u8   5  type u8   6  flags u8   7  reserved, zero
 *     8  number i64: delta and counter, timeout in ns (u64), status of an answer, full length of a value
 *    16  key bytes u32, at most 255    20  value bytes u32, at most 64 KiB
 *    24  key, value; then, with flag SIGNED, an HMAC-SHA256 of 32 bytes
 *
 * Both sides begin with HELLO, unsigned; its value is a nonce of 16 bytes. With a secret all frames after it are signed
 * over (direction, client's nonce, server's nonce, number of the frame in its direction, frame). So nothing can be
 * altered, replayed, reordered or reflected. A connection has one request at a time under way. */

#include "base/session.h"
#include "base/tls.h"

#include <tutti/store.h>

#define TUTTI_STORE_VERSION 1
#define TUTTI_STORE_HEAD_BYTES 24
#define TUTTI_STORE_FRAME_MAX (TUTTI_STORE_HEAD_BYTES + TUTTI_STORE_KEY_MAX + TUTTI_STORE_VALUE_MAX + TUTTI_HMAC_BYTES)

enum tutti_store_type {
    TUTTI_STORE_HELLO = 1,
    TUTTI_STORE_SET,    /* key, value */
    TUTTI_STORE_GET,    /* key, number: timeout */
    TUTTI_STORE_WAIT,   /* key, number: timeout */
    TUTTI_STORE_ADD,    /* key, number: delta; answer's number: the counter */
    TUTTI_STORE_REMOVE, /* key; answer's number: 1 if it was there */
    TUTTI_STORE_PING,
    TUTTI_STORE_ANSWER, /* number; value: of GET */
    TUTTI_STORE_ERROR,  /* number: status; value: sentence */
    TUTTI_STORE_N_TYPES
};
enum { TUTTI_STORE_SIGNED = 1 };

struct tutti_store_frame {
    uint8_t type, flags;
    int64_t number;
    uint32_t key_bytes, value_bytes;
    const uint8_t *key, *value; /* in the bytes that were decoded; the key has no zero byte and no end */
    const uint8_t *mac;         /* NULL when not signed */
    size_t signed_bytes;        /* in the frame, before the MAC */
    size_t frame_bytes;
};
/* Pure. OK; AGAIN when n bytes are not a whole frame yet (the front is checked as far as it is there); PROTOCOL. */
enum tutti_status tutti_store_frame_decode(const uint8_t *bytes, size_t n, struct tutti_store_frame *out);
/* Encodes and, except HELLO, signs. out has room for TUTTI_STORE_FRAME_MAX. Returns through *bytes. */
enum tutti_status tutti_store_frame_encode(struct tutti_session *session, const struct tutti_store_frame *frame,
                                           uint8_t *out, size_t *bytes);
/* AUTH when a frame is not signed as the session asks. Counts the frame. */
enum tutti_status tutti_store_frame_verify(struct tutti_session *session, const uint8_t *bytes,
                                           const struct tutti_store_frame *frame);
/* Checks a key of a caller: 1 to 255 bytes. ARGUMENT. */
enum tutti_status tutti_store_key_check(const char *key);
/* Checks a value of a caller. ARGUMENT. */
enum tutti_status tutti_store_value_check(size_t bytes);
/* Gives a caller the n bytes of a value, as `get` does; value may be NULL with capacity 0. TRUNCATED. */
enum tutti_status tutti_store_value_give(const char *key, const void *from, size_t n, void *value, size_t capacity,
                                         size_t *bytes);
/* A counter's text; false when the bytes are no decimal number. */
bool tutti_store_counter_parse(const void *value, size_t bytes, int64_t *out);

/* A copy of a secret, which stays NULL for NULL and "". MEMORY; UNSUPPORTED when this build can not sign. */
enum tutti_status tutti_store_secret_copy(const char *secret, char **out);
void tutti_store_secret_free(char *secret);

/* ---- sockets of clients (store_tcp.c) ---- */
/* Waits for events; TIMEOUT without a record. */
enum tutti_status tutti_store_fd_wait(int fd, short events, uint64_t deadline_ns);
/* Tries each address of the host once. AGAIN when nobody answers yet, with the errno of the last try, or NO_NAME. */
#define TUTTI_STORE_NO_NAME (-1)
enum tutti_status tutti_store_connect(const char *host, const char *port, uint64_t deadline_ns, int *fd, int *why);
const char *tutti_store_why(int why); /* the same as words */

/* Listens (store_listen.c). Port 0: one of those that the user leaves (option port_range). ARGUMENT, SYSTEM. */
enum tutti_status tutti_store_listen(const char *host, uint16_t port, int *fd, uint16_t *bound_port);

/* The two stores (store_tcp.c, store_file.c). */
enum tutti_status tutti_store_tcp_open(const char *host, const char *port, const char *secret,
                                       struct tutti_certificate *certificate, uint64_t deadline_ns,
                                       struct tutti_store *out);
enum tutti_status tutti_store_file_open(const char *path, const char *secret, bool meets, struct tutti_store *out);

#endif
