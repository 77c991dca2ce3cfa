/* SPDX-License-Identifier: BSD-3-Clause */

/* Without OpenSSL nothing is encrypted, nothing is proved by certificates, and hosts do not talk at all. */

#include "base/tls.h"

bool tutti_tls_available(void)
{
    return false;
}

enum tutti_status tutti_certificate_find(const char *ca, const char *cert, const char *key, const char *name,
                                         struct tutti_certificate **out)
{
    (void)ca, (void)cert, (void)key, (void)name, (void)out;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "certificates (tls_ca) need OpenSSL: build with libssl-dev");
}

enum tutti_status tutti_tls_open(int fd, bool client, const struct tutti_tls_proof *proof, struct tutti_tls **out)
{
    (void)fd, (void)client, (void)proof, (void)out;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "encrypted connections need OpenSSL: build with libssl-dev");
}

enum tutti_status tutti_tls_agree(struct tutti_tls *tls)
{
    (void)tls;
    return TUTTI_ERR_UNSUPPORTED;
}

enum tutti_status tutti_tls_agree_by(struct tutti_tls *tls, int fd, uint64_t deadline_ns, const _Atomic bool *cancel)
{
    (void)tls, (void)fd, (void)deadline_ns, (void)cancel;
    return TUTTI_ERR_UNSUPPORTED;
}

enum tutti_status tutti_tls_session(struct tutti_tls *tls, char out[TUTTI_TLS_SESSION_TEXT])
{
    (void)tls, (void)out;
    return TUTTI_ERR_UNSUPPORTED;
}

enum tutti_status tutti_tls_secrets(struct tutti_tls *tls, uint8_t in[TUTTI_HMAC_BYTES], uint8_t out[TUTTI_HMAC_BYTES])
{
    (void)tls, (void)in, (void)out;
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
