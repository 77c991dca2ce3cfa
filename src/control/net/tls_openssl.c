/* SPDX-License-Identifier: BSD-3-Clause */

/* TLS 1.3 and the records of AES-GCM that follow it, by OpenSSL. tls_none.c is built in its place where OpenSSL is
 * missing (folder.cmake). */

#include "control/net/tls.h"

#include "base/session.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

/* ---- the handshake, and TLS for those who stay with it ---- */

static const unsigned char suite[2] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
static const unsigned char identity[] = "tutti";

struct tutti_tls {
    SSL *ssl;
    bool wants_room;
    uint8_t key[TUTTI_HMAC_BYTES];
};

bool tutti_tls_available(void)
{
    return true;
}

/* The key as a session that both ends "resume". */
static SSL_SESSION *session_make(SSL *ssl)
{
    const struct tutti_tls *tls = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session && cipher && SSL_SESSION_set1_master_key(session, tls->key, sizeof tls->key) &&
        SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int key_for_client(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes, SSL_SESSION **out)
{
    (void)md;
    *id = identity, *id_bytes = sizeof identity - 1;
    return (*out = session_make(ssl)) != NULL;
}

static int key_for_server(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **out)
{
    const bool known = id_bytes == sizeof identity - 1 && memcmp(id, identity, id_bytes) == 0;
    *out = known ? session_make(ssl) : NULL;
    return 1;
}

/* The same for all connections of the process: only keys differ. NULL: OpenSSL can not. */
static SSL_CTX *context;

static void context_make(void)
{
    SSL_CTX *c = SSL_CTX_new(TLS_method());
    if (!c || !SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") || !SSL_CTX_set_num_tickets(c, 0)) {
        SSL_CTX_free(c);
        return;
    }
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_psk_use_session_callback(c, key_for_client);
    SSL_CTX_set_psk_find_session_callback(c, key_for_server);
    context = c;
}

enum tutti_status tutti_tls_open(int fd, bool client, const uint8_t key[TUTTI_HMAC_BYTES], struct tutti_tls **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tutti_tls *tls = tutti_alloc(sizeof *tls);
    if (!tls) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an encrypted connection");
    memcpy(tls->key, key, sizeof tls->key);
    pthread_once(&once, context_make);
    if (!context || !(tls->ssl = SSL_new(context)) || !SSL_set_fd(tls->ssl, fd)) {
        tutti_tls_close(tls);
        ERR_clear_error();
        return tutti_fail(TUTTI_ERR_MEMORY, "OpenSSL can not make an encrypted connection");
    }
    SSL_set_app_data(tls->ssl, tls);
    if (client) {
        SSL_set_verify(tls->ssl, SSL_VERIFY_PEER, NULL); /* no certificate is good: a server has none */
        SSL_set_connect_state(tls->ssl);
    } else {
        SSL_set_accept_state(tls->ssl);
    }
    *out = tls;
    return TUTTI_OK;
}

/* What an operation that did not succeed means. */
static enum tutti_status meaning(struct tutti_tls *tls, int result)
{
    const int why = SSL_get_error(tls->ssl, result);
    tls->wants_room = why == SSL_ERROR_WANT_WRITE;
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return TUTTI_PENDING;
    if (why == SSL_ERROR_ZERO_RETURN) return TUTTI_ERR_PEER_LEFT;
    const unsigned long code = ERR_peek_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    return tutti_fail(TUTTI_ERR_PROTOCOL, "an encrypted connection broke: %s", text ? text : "it was closed");
}

enum tutti_status tutti_tls_agree(struct tutti_tls *tls)
{
    ERR_clear_error();
    tls->wants_room = false;
    const int result = SSL_do_handshake(tls->ssl);
    if (result != 1 && ERR_GET_REASON(ERR_peek_error()) >= SSL_AD_REASON_OFFSET)
        return tutti_fail(TUTTI_ERR_AUTH, "the other end has another key, or none");
    return result == 1 ? TUTTI_OK : meaning(tls, result);
}

enum tutti_status tutti_tls_secrets(struct tutti_tls *tls, uint8_t in[TUTTI_HMAC_BYTES], uint8_t out[TUTTI_HMAC_BYTES])
{
    static const char label[] = "EXPORTER-tutti-data";
    uint8_t both[2][TUTTI_HMAC_BYTES]; /* from the client, from the server */
    const int server = SSL_is_server(tls->ssl) == 1;
    const bool done =
        SSL_export_keying_material(tls->ssl, both[0], sizeof both, label, sizeof label - 1, NULL, 0, 0) == 1;
    memcpy(in, both[!server], TUTTI_HMAC_BYTES);
    memcpy(out, both[server], TUTTI_HMAC_BYTES);
    explicit_bzero(both, sizeof both);
    return done ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "OpenSSL gives no keys for an encrypted connection");
}

enum tutti_status tutti_tls_read(struct tutti_tls *tls, void *out, size_t capacity, size_t *n)
{
    ERR_clear_error();
    tls->wants_room = false;
    const int result = SSL_read_ex(tls->ssl, out, capacity, n);
    return result == 1 ? TUTTI_OK : meaning(tls, result);
}

enum tutti_status tutti_tls_write(struct tutti_tls *tls, const void *bytes, size_t n_bytes, size_t *n)
{
    ERR_clear_error();
    tls->wants_room = false;
    const int result = SSL_write_ex(tls->ssl, bytes, n_bytes, n);
    return result == 1 ? TUTTI_OK : meaning(tls, result);
}

bool tutti_tls_wants_room(const struct tutti_tls *tls)
{
    return tls->wants_room;
}

void tutti_tls_finish(struct tutti_tls *tls)
{
    ERR_clear_error();
    SSL_shutdown(tls->ssl);
}

void tutti_tls_close(struct tutti_tls *tls)
{
    SSL_free(tls->ssl);
    explicit_bzero(tls->key, sizeof tls->key);
    tutti_free(tls);
}
