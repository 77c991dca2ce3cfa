/* SPDX-License-Identifier: BSD-3-Clause */

/* HMAC-SHA256 by OpenSSL. hmac_none.c is built in its place where OpenSSL is missing (folder.cmake). */

#include "base/base.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

bool tutti_hmac_available(void)
{
    return true;
}

enum tutti_status tutti_hmac(const void *key, size_t key_bytes, const void *message, size_t bytes,
                             uint8_t out[TUTTI_HMAC_BYTES])
{
    unsigned n = TUTTI_HMAC_BYTES;
    if (key_bytes > INT_MAX) return tutti_fail(TUTTI_ERR_ARGUMENT, "a secret of %zu bytes is too long", key_bytes);
    /* OpenSSL takes a null key to mean "the one before". */
    if (!HMAC(EVP_sha256(), key_bytes ? key : "", (int)key_bytes, message, bytes, out, &n) || n != TUTTI_HMAC_BYTES)
        return tutti_fail(TUTTI_ERR_INTERNAL, "OpenSSL could not compute an HMAC-SHA256");
    return TUTTI_OK;
}

bool tutti_hmac_equal(const uint8_t *a, const uint8_t *b)
{
    return CRYPTO_memcmp(a, b, TUTTI_HMAC_BYTES) == 0;
}
