/* SPDX-License-Identifier: BSD-3-Clause */

/* Hashes, random numbers, and signed frames. */

#include "base/base.h"

#include "base/session.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define PRIME_1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME_3 UINT64_C(0x165667B19E3779F9)
#define PRIME_4 UINT64_C(0x85EBCA77C2B2AE63)
#define PRIME_5 UINT64_C(0x27D4EB2F165667C5)

static inline uint64_t rotate_left(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline uint64_t read_le(const uint8_t *p, unsigned n)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < n; i++) x |= (uint64_t)p[i] << (8 * i);
    return x;
}

static inline uint64_t hash_round(uint64_t lane, uint64_t input)
{
    return rotate_left(lane + input * PRIME_2, 31) * PRIME_1;
}

static inline uint64_t hash_merge(uint64_t hash, uint64_t lane)
{
    return (hash ^ hash_round(0, lane)) * PRIME_1 + PRIME_4;
}

/* Four lanes of eight bytes over the 32-byte stripes; *p is advanced past them. */
static uint64_t hash_stripes(const uint8_t **p, const uint8_t *end, uint64_t seed)
{
    uint64_t lane[4] = {seed + PRIME_1 + PRIME_2, seed + PRIME_2, seed, seed - PRIME_1};
    for (; end - *p >= 32; *p += 32)
        for (unsigned i = 0; i < 4; i++) lane[i] = hash_round(lane[i], read_le(*p + (size_t)8 * i, 8));
    uint64_t hash =
        rotate_left(lane[0], 1) + rotate_left(lane[1], 7) + rotate_left(lane[2], 12) + rotate_left(lane[3], 18);
    for (unsigned i = 0; i < 4; i++) hash = hash_merge(hash, lane[i]);
    return hash;
}

uint64_t tutti_hash64(const void *bytes, size_t n, uint64_t seed)
{
    const uint8_t *p = bytes, *end = n ? p + n : p;
    uint64_t hash = n >= 32 ? hash_stripes(&p, end, seed) : seed + PRIME_5;
    hash += (uint64_t)n;
    for (; end - p >= 8; p += 8) hash = rotate_left(hash ^ hash_round(0, read_le(p, 8)), 27) * PRIME_1 + PRIME_4;
    if (end - p >= 4) {
        hash = rotate_left(hash ^ read_le(p, 4) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        p += 4;
    }
    for (; p < end; p++) hash = rotate_left(hash ^ *p * PRIME_5, 11) * PRIME_1;
    hash = (hash ^ hash >> 33) * PRIME_2;
    hash = (hash ^ hash >> 29) * PRIME_3;
    return hash ^ hash >> 32;
}

enum tutti_status tutti_random_bytes(void *out, size_t n)
{
    uint8_t *p = out;
    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no random bytes from the kernel");
        p += got;
        n -= (size_t)got;
    }
    return TUTTI_OK;
}

/* ---- signed frames ---- */

/* sent: the frame that this side sends next; else the one that it receives next. */
static enum tutti_status frame_mac(const struct tutti_session *session, const char *protocol, bool sent,
                                   const uint8_t *bytes, size_t n, uint8_t out[TUTTI_HMAC_BYTES])
{
    uint8_t place[16 + 2 * TUTTI_NONCE_BYTES + 8] = {0}, key[TUTTI_HMAC_BYTES];
    memcpy(place, protocol, strnlen(protocol, 15));
    place[15] = sent != session->server; /* whether it goes to the server */
    memcpy(place + 16, session->nonces, sizeof session->nonces);
    tutti_le_store(place + 16 + sizeof session->nonces, 8, sent ? session->n_sent : session->n_received);
    TUTTI_TRY(tutti_hmac(session->secret, strlen(session->secret), place, sizeof place, key));
    enum tutti_status status = tutti_hmac(key, sizeof key, bytes, n, out);
    explicit_bzero(key, sizeof key);
    return status;
}

enum tutti_status tutti_session_sign(struct tutti_session *session, const char *protocol, const uint8_t *bytes,
                                     size_t n, uint8_t mac[TUTTI_HMAC_BYTES])
{
    TUTTI_TRY(frame_mac(session, protocol, true, bytes, n, mac));
    session->n_sent++;
    return TUTTI_OK;
}

enum tutti_status tutti_session_check(struct tutti_session *session, bool due, const char *protocol,
                                      const uint8_t *bytes, size_t n, const uint8_t *mac)
{
    uint8_t expected[TUTTI_HMAC_BYTES];
    if (due != (mac != NULL))
        return tutti_fail(TUTTI_ERR_AUTH, "the other side has %s secret, this side has %s", due ? "no" : "a",
                          due ? "one" : "none");
    if (!due) return TUTTI_OK;
    TUTTI_TRY(frame_mac(session, protocol, false, bytes, n, expected));
    if (!tutti_hmac_equal(expected, mac))
        return tutti_fail(TUTTI_ERR_AUTH, "a frame does not verify: the two sides have different secrets");
    session->n_received++;
    return TUTTI_OK;
}
