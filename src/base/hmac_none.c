/* SPDX-License-Identifier: BSD-3-Clause */

/* Built without OpenSSL: authentication is refused with a sentence, never silently left out. */

#include "base/base.h"

bool tutti_hmac_available(void)
{
    return false;
}

enum tutti_status tutti_hmac(const void *key, size_t key_bytes, const void *message, size_t bytes,
                             uint8_t out[TUTTI_HMAC_BYTES])
{
    (void)key, (void)key_bytes, (void)message, (void)bytes, (void)out;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "a secret is given, but this tutti was built without OpenSSL: install "
                                             "libssl-dev and build again, or unset TUTTI_SECRET and TUTTI_SECRET_FILE");
}

bool tutti_hmac_equal(const uint8_t *a, const uint8_t *b)
{
    uint8_t difference = 0;
    for (size_t i = 0; i < TUTTI_HMAC_BYTES; i++) difference |= a[i] ^ b[i];
    return difference == 0;
}
