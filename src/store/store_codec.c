/* SPDX-License-Identifier: BSD-3-Clause */

/* Frames of the TCP store: decoding is a pure function over untrusted bytes; signing binds a frame to its connection,
 * its direction and its place in the sequence. */

#include "store/store_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROTOCOL "tutti store 1"

static const uint8_t magic[4] = {'T', 'U', 'S', 'T'};

enum tutti_status tutti_store_frame_decode(const uint8_t *bytes, size_t n, struct tutti_store_frame *out)
{
    struct tutti_store_frame frame = {.type = 0};
    size_t front = n < sizeof magic ? n : sizeof magic;
    if (n > 0 && memcmp(bytes, magic, front) != 0)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "bytes that are no frame of a tutti store");
    if (n >= 5 && bytes[4] != TUTTI_STORE_VERSION)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a store frame of version %u, this build speaks %d", bytes[4],
                          TUTTI_STORE_VERSION);
    if (n < TUTTI_STORE_HEAD_BYTES) return TUTTI_AGAIN;
    frame.type = bytes[5];
    frame.flags = bytes[6];
    frame.number = (int64_t)tutti_le_load(bytes + 8, 8);
    frame.key_bytes = (uint32_t)tutti_le_load(bytes + 16, 4);
    frame.value_bytes = (uint32_t)tutti_le_load(bytes + 20, 4);
    if (frame.type == 0 || frame.type >= TUTTI_STORE_N_TYPES || frame.flags > TUTTI_STORE_SIGNED || bytes[7] != 0)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a store frame of type %u with flags %u can not be", frame.type,
                          frame.flags);
    if (frame.key_bytes > TUTTI_STORE_KEY_MAX || frame.value_bytes > TUTTI_STORE_VALUE_MAX)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a store frame with a key of %u and a value of %u bytes is too long",
                          frame.key_bytes, frame.value_bytes);
    bool is_signed = (frame.flags & TUTTI_STORE_SIGNED) != 0;
    frame.signed_bytes = TUTTI_STORE_HEAD_BYTES + (size_t)frame.key_bytes + frame.value_bytes;
    frame.frame_bytes = frame.signed_bytes + (is_signed ? TUTTI_HMAC_BYTES : 0);
    if (n < frame.frame_bytes) return TUTTI_AGAIN;
    frame.key = bytes + TUTTI_STORE_HEAD_BYTES;
    frame.value = frame.key + frame.key_bytes;
    frame.mac = is_signed ? bytes + frame.signed_bytes : NULL;
    if (memchr(frame.key, 0, frame.key_bytes)) return tutti_fail(TUTTI_ERR_PROTOCOL, "a store key with a zero byte");
    *out = frame;
    return TUTTI_OK;
}

enum tutti_status tutti_store_frame_encode(struct tutti_session *session, const struct tutti_store_frame *frame,
                                           uint8_t *out, size_t *bytes)
{
    bool sign = session->secret && frame->type != TUTTI_STORE_HELLO;
    size_t n = TUTTI_STORE_HEAD_BYTES;
    memcpy(out, magic, sizeof magic);
    out[4] = TUTTI_STORE_VERSION;
    out[5] = frame->type;
    out[6] = sign ? TUTTI_STORE_SIGNED : 0;
    out[7] = 0;
    tutti_le_store(out + 8, 8, (uint64_t)frame->number);
    tutti_le_store(out + 16, 4, frame->key_bytes);
    tutti_le_store(out + 20, 4, frame->value_bytes);
    if (frame->key_bytes) memcpy(out + n, frame->key, frame->key_bytes);
    n += frame->key_bytes;
    if (frame->value_bytes) memcpy(out + n, frame->value, frame->value_bytes);
    n += frame->value_bytes;
    if (sign) {
        TUTTI_TRY(tutti_session_sign(session, PROTOCOL, out, n, out + n));
        n += TUTTI_HMAC_BYTES;
    }
    *bytes = n;
    return TUTTI_OK;
}

enum tutti_status tutti_store_frame_verify(struct tutti_session *session, const uint8_t *bytes,
                                           const struct tutti_store_frame *frame)
{
    return tutti_session_check(session, session->secret != NULL, PROTOCOL, bytes, frame->signed_bytes, frame->mac);
}

enum tutti_status tutti_store_key_check(const char *key)
{
    if (!key || !key[0]) return tutti_fail(TUTTI_ERR_ARGUMENT, "a store's key is empty");
    size_t n = strnlen(key, TUTTI_STORE_KEY_MAX + 1);
    if (n > TUTTI_STORE_KEY_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a store's key is longer than %d bytes: \"%.40s...\"",
                          TUTTI_STORE_KEY_MAX, key);
    return TUTTI_OK;
}

enum tutti_status tutti_store_value_check(size_t bytes)
{
    if (bytes <= TUTTI_STORE_VALUE_MAX) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "a store's value of %zu bytes is longer than %d", bytes,
                      TUTTI_STORE_VALUE_MAX);
}

enum tutti_status tutti_store_value_give(const char *key, const void *from, size_t n, void *value, size_t capacity,
                                         size_t *bytes)
{
    if (n > 0 && capacity > 0) memcpy(value, from, n < capacity ? n : capacity);
    if (bytes) *bytes = n;
    if (n <= capacity) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_TRUNCATED, "the value of key %.100s has %zu bytes, the buffer %zu", key, n, capacity);
}

bool tutti_store_counter_parse(const void *value, size_t bytes, int64_t *out)
{
    char text[24], *end;
    if (bytes == 0 || bytes >= sizeof text) return false;
    memcpy(text, value, bytes);
    text[bytes] = '\0';
    long long parsed = strtoll(text, &end, 10);
    char again[24];
    snprintf(again, sizeof again, "%lld", parsed);
    if (*end != '\0' || strcmp(again, text) != 0) return false; /* one form alone: no blanks, no +1, no overflow */
    *out = parsed;
    return true;
}

/* ---- the secret ---- */

enum tutti_status tutti_store_secret_copy(const char *secret, char **out)
{
    uint8_t probe[TUTTI_HMAC_BYTES];
    if (!secret || !secret[0]) return TUTTI_OK;
    TUTTI_TRY(tutti_hmac(secret, strlen(secret), "", 0, probe)); /* built without OpenSSL: say it now */
    *out = tutti_alloc(strlen(secret) + 1);
    if (!*out) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a store's secret");
    memcpy(*out, secret, strlen(secret));
    return TUTTI_OK;
}

void tutti_store_secret_free(char *secret)
{
    if (secret) explicit_bzero(secret, strlen(secret));
    tutti_free(secret);
}
