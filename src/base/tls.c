/* SPDX-License-Identifier: BSD-3-Clause */

/* What a process proves itself by, of its options; and an end without TLS that meets one with it. */

#include "base/tls.h"

#include <string.h>
#include <sys/socket.h>

static enum tutti_status read_options(const struct tutti_config *config, struct tutti_certificate **out)
{
    static const enum tutti_option_id needed[] = {TUTTI_OPT_tls_ca, TUTTI_OPT_tls_cert, TUTTI_OPT_tls_key};
    const char *missing = NULL, *given = NULL;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(needed); i++) {
        const char *name = tutti_option_info(needed[i])->name;
        if (config->text[needed[i]][0])
            given = name;
        else if (!missing)
            missing = name;
    }
    *out = NULL;
    if (!given && !config->text[TUTTI_OPT_tls_name][0]) return TUTTI_OK;
    if (missing)
        return tutti_fail(TUTTI_ERR_CONFIG,
                          "option %s is set, but %s is not: a certificate needs tls_ca, tls_cert and tls_key",
                          given ? given : "tls_name", missing);
    if (config->text[TUTTI_OPT_secret][0])
        return tutti_fail(TUTTI_ERR_CONFIG,
                          "a secret is set, and certificates are, too (tls_ca): the processes of a job "
                          "prove themselves by one of them");
    return tutti_certificate_find(config->text[TUTTI_OPT_tls_ca], config->text[TUTTI_OPT_tls_cert],
                                  config->text[TUTTI_OPT_tls_key], config->text[TUTTI_OPT_tls_name], out);
}

enum tutti_status tutti_certificate_of(const struct tutti_config *config, struct tutti_certificate **out)
{
    struct tutti_config own;
    if (config) return read_options(config, out);
    TUTTI_TRY(tutti_config_init(&own, NULL, 0));
    const enum tutti_status status = read_options(&own, out);
    tutti_config_fini(&own);
    return status;
}

enum tutti_status tutti_certificate_beside(const char *secret, struct tutti_certificate **out)
{
    *out = NULL;
    return secret && secret[0] ? TUTTI_OK : tutti_certificate_of(NULL, out);
}

const char *tutti_tls_shows(const uint8_t *bytes, size_t n)
{
    if (n < 2 || (bytes[0] != 0x15 && bytes[0] != 0x16) || bytes[1] != 3) return NULL;
    return bytes[0] == 0x15 ? "it takes certificates alone, and this process has none (TUTTI_TLS_CA)"
                            : "it proves itself by a certificate, and this process has none (TUTTI_TLS_CA)";
}

/* An alert of TLS, handshake_failure (RFC 8446, 6.2). What the peer sent is read before, since a socket that is closed
 * with bytes unread is reset. */
void tutti_tls_refuse(int fd)
{
    static const uint8_t alert[] = {0x15, 3, 3, 0, 2, 2, 40};
    uint8_t hello[4096];
    for (int i = 0; i < 4 && recv(fd, hello, sizeof hello, MSG_DONTWAIT) > 0; i++) continue;
    if (send(fd, alert, sizeof alert, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
    shutdown(fd, SHUT_WR);
}
