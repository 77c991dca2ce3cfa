/* SPDX-License-Identifier: BSD-3-Clause */

/* Without OpenSSL nothing is encrypted, and hosts do not talk at all. */

#include "control/net/cipher.h"
#include "control/net/tls.h"

bool tutti_tls_available(void)
{
    return false;
}

enum tutti_status tutti_tls_open(int fd, bool client, const uint8_t key[TUTTI_HMAC_BYTES], struct tutti_tls **out)
{
    (void)fd, (void)client, (void)key, (void)out;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "encrypted connections need OpenSSL: build with libssl-dev");
}

enum tutti_status tutti_tls_agree(struct tutti_tls *tls)
{
    (void)tls;
    return TUTTI_ERR_UNSUPPORTED;
}

enum tutti_status tutti_tls_secrets(struct tutti_tls *tls, uint8_t in[TUTTI_HMAC_BYTES], uint8_t out[TUTTI_HMAC_BYTES])
{
    (void)tls, (void)in, (void)out;
    return TUTTI_ERR_UNSUPPORTED;
}

const char *tutti_cipher_library(const char **why)
{
    *why = NULL;
    return "nothing: built without OpenSSL";
}

enum tutti_status tutti_cipher_open(const struct tutti_cipher_config *config, struct tutti_stream **out)
{
    (void)config, (void)out;
    return TUTTI_ERR_UNSUPPORTED;
}

enum tutti_status tutti_tls_read(struct tutti_tls *tls, void *out, size_t capacity, size_t *n)
{
    (void)tls, (void)out, (void)capacity, (void)n;
    return TUTTI_ERR_UNSUPPORTED;
}

enum tutti_status tutti_tls_write(struct tutti_tls *tls, const void *bytes, size_t n_bytes, size_t *n)
{
    (void)tls, (void)bytes, (void)n_bytes, (void)n;
    return TUTTI_ERR_UNSUPPORTED;
}

bool tutti_tls_wants_room(const struct tutti_tls *tls)
{
    (void)tls;
    return false;
}

void tutti_tls_finish(struct tutti_tls *tls)
{
    (void)tls;
}

void tutti_tls_close(struct tutti_tls *tls)
{
    (void)tls;
}
