/* SPDX-License-Identifier: BSD-3-Clause */

/* TLS 1.3 by OpenSSL, for peers that have a key of their own, and for those that have certificates. tls_none.c is built
 * in its place where OpenSSL is missing (folder.cmake). */

#include "base/tls.h"

#include "base/certificate.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct tutti_tls {
    SSL *ssl;
    int fd;
    bool certificates; /* are the proof, else the key */
    bool agreed;       /* the handshake is over */
    bool wants_room;
    uint8_t key[TUTTI_HMAC_BYTES];
    char why[200]; /* the peer's certificate is not good */
};

bool tutti_tls_available(void)
{
    return true;
}

/* ---- the socket ---- */
/* As OpenSSL's own, but without a signal where the peer is gone. */

static int socket_write(BIO *bio, const char *bytes, int n)
{
    const struct tutti_tls *tls = BIO_get_data(bio);
    const ssize_t sent = send(tls->fd, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
    return (int)sent;
}

static int socket_read(BIO *bio, char *bytes, int n)
{
    const struct tutti_tls *tls = BIO_get_data(bio);
    const ssize_t got = recv(tls->fd, bytes, (size_t)n, MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    return (int)got;
}

static long socket_control(BIO *bio, int what, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *socket_calls; /* NULL: OpenSSL can not */

static void socket_make(void)
{
    BIO_METHOD *calls = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti");
    if (calls && BIO_meth_set_write(calls, socket_write) && BIO_meth_set_read(calls, socket_read) &&
        BIO_meth_set_ctrl(calls, socket_control))
        socket_calls = calls;
}

static bool socket_set(struct tutti_tls *tls)
{
    BIO *bio = socket_calls ? BIO_new(socket_calls) : NULL;
    if (!bio) return false;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    return true;
}

/* ---- by a key ---- */

static const unsigned char suite[2] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
static const unsigned char identity[] = "tutti";

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

/* The same for all connections that a key proves: only keys differ. NULL: OpenSSL can not. */
static SSL_CTX *keyed;

static void once_make(void)
{
    SSL_CTX *c = tutti_tls_context_make();
    socket_make();
    if (!c) return;
    SSL_CTX_set_psk_use_session_callback(c, key_for_client);
    SSL_CTX_set_psk_find_session_callback(c, key_for_server);
    keyed = c;
}

/* ---- by certificates ---- */

/* Keeps why a certificate of the peer is not good: OpenSSL tells it here alone. */
static int certificate_look(int good, X509_STORE_CTX *looked)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(looked, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tutti_tls *tls = SSL_get_app_data(ssl);
    X509 *one = X509_STORE_CTX_get_current_cert(looked);
    char name[96] = "it";
    if (good) return good;
    if (one) X509_NAME_oneline(X509_get_subject_name(one), name, sizeof name);
    snprintf(tls->why, sizeof tls->why, "its certificate (%s) is not good here: %s", name,
             X509_verify_cert_error_string(X509_STORE_CTX_get_error(looked)));
    for (char *c = tls->why; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    return 0;
}

/* What the peer says of this end's certificate, by the number of its alert (RFC 8446, 6). */
static const char *alert_text(int alert)
{
    static const struct {
        int alert;
        const char *text;
    } rows[] = {{SSL_AD_UNKNOWN_CA, "it knows another CA (tls_ca)"},
                {SSL_AD_CERTIFICATE_EXPIRED, "it has expired"},
                {SSL_AD_CERTIFICATE_REVOKED, "it was revoked"},
                {SSL_AD_CERTIFICATE_REQUIRED, "there is none"},
                {SSL_AD_HANDSHAKE_FAILURE, "it has none itself, or can not use it"}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++)
        if (rows[i].alert == alert) return rows[i].text;
    return "it is not good there";
}

/* AUTH, where a handshake has failed because of certificates; else OK. */
static enum tutti_status certificates_say(const struct tutti_tls *tls)
{
    const int reason = ERR_GET_REASON(ERR_peek_error());
    if (tls->why[0]) return tutti_fail(TUTTI_ERR_AUTH, "%s", tls->why);
    if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return tutti_fail(TUTTI_ERR_AUTH, "it shows no certificate");
    if (reason >= SSL_AD_REASON_OFFSET)
        return tutti_fail(TUTTI_ERR_AUTH, "it does not accept this process's certificate: %s",
                          alert_text(reason - SSL_AD_REASON_OFFSET));
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST) {
        if (SSL_is_server(tls->ssl)) tutti_tls_refuse(tls->fd);
        return tutti_fail(TUTTI_ERR_AUTH,
                          "it shows no certificate: it does not speak TLS (is TUTTI_TLS_CA set there?)");
    }
    return TUTTI_OK;
}

/* ---- the life of a connection ---- */

enum tutti_status tutti_tls_open(int fd, bool client, const struct tutti_tls_proof *proof, struct tutti_tls **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tutti_tls *tls = tutti_alloc(sizeof *tls);
    SSL_CTX *context = NULL;
    if (!tls) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an encrypted connection");
    pthread_once(&once, once_make);
    tls->fd = fd;
    tls->certificates = !proof->key;
    if (proof->key) memcpy(tls->key, proof->key, sizeof tls->key);
    if (tls->certificates)
        context = tutti_certificate_context(proof->certificate);
    else if ((context = keyed))
        SSL_CTX_up_ref(context);
    tls->ssl = context ? SSL_new(context) : NULL;
    SSL_CTX_free(context); /* the connection has its own reference */
    if (!tls->ssl || !socket_set(tls)) {
        tutti_tls_close(tls);
        ERR_clear_error();
        return tutti_fail(TUTTI_ERR_MEMORY, "OpenSSL can not make an encrypted connection");
    }
    SSL_set_app_data(tls->ssl, tls);
    if (tls->certificates)
        SSL_set_verify(tls->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, certificate_look);
    else if (client)
        SSL_set_verify(tls->ssl, SSL_VERIFY_PEER, NULL); /* no certificate is good: a server has none */
    if (client)
        SSL_set_connect_state(tls->ssl);
    else
        SSL_set_accept_state(tls->ssl);
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

/* A client has done when it has sent its certificate, and does not know yet what the server makes of it: so the server
 * says a byte. */
static enum tutti_status certificates_confirm(struct tutti_tls *tls)
{
    char byte = 1;
    size_t n;
    const int result =
        SSL_is_server(tls->ssl) ? SSL_write_ex(tls->ssl, &byte, 1, &n) : SSL_read_ex(tls->ssl, &byte, 1, &n);
    if (result == 1) return TUTTI_OK;
    TUTTI_TRY(certificates_say(tls));
    return meaning(tls, result);
}

static enum tutti_status agree(struct tutti_tls *tls)
{
    ERR_clear_error();
    tls->wants_room = false;
    const int result = tls->agreed ? 1 : SSL_do_handshake(tls->ssl);
    if (result != 1 && tls->certificates) TUTTI_TRY(certificates_say(tls));
    if (result != 1 && ERR_GET_REASON(ERR_peek_error()) >= SSL_AD_REASON_OFFSET)
        return tutti_fail(TUTTI_ERR_AUTH, "the other end has another key, or none");
    if (result != 1) return meaning(tls, result);
    tls->agreed = true;
    ERR_clear_error();
    return tls->certificates ? certificates_confirm(tls) : TUTTI_OK;
}

enum tutti_status tutti_tls_agree(struct tutti_tls *tls)
{
    const enum tutti_status status = agree(tls);
    const unsigned long code = ERR_peek_error();
    const bool ended = code == 0 || ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (status != TUTTI_ERR_PEER_LEFT && (status != TUTTI_ERR_PROTOCOL || !ended)) return status;
    return tutti_fail(TUTTI_ERR_PEER_LEFT, "it was closed before both ends agreed");
}

enum tutti_status tutti_tls_agree_by(struct tutti_tls *tls, int fd, uint64_t deadline_ns, const _Atomic bool *cancel)
{
    enum tutti_status status;
    while ((status = tutti_tls_agree(tls)) == TUTTI_PENDING) {
        struct pollfd event = {.fd = fd, .events = tls->wants_room ? POLLOUT : POLLIN};
        if (tutti_now_ns() >= deadline_ns || (cancel && *cancel)) return TUTTI_ERR_TIMEOUT;
        poll(&event, 1, 20);
    }
    return status;
}

/* Keys of this connection for one purpose (RFC 8446, 7.5). */
static enum tutti_status export(struct tutti_tls *tls, const char *label, uint8_t *out, size_t n) {
    if (SSL_export_keying_material(tls->ssl, out, n, label, strlen(label), NULL, 0, 0) == 1) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_MEMORY, "OpenSSL gives no keys for an encrypted connection");
}

enum tutti_status tutti_tls_secrets(struct tutti_tls *tls, uint8_t in[TUTTI_HMAC_BYTES], uint8_t out[TUTTI_HMAC_BYTES])
{
    uint8_t both[2][TUTTI_HMAC_BYTES]; /* from the client, from the server */
    const int server = SSL_is_server(tls->ssl) == 1;
    TUTTI_TRY(export(tls, "EXPORTER-tutti-data", both[0], sizeof both));
    memcpy(in, both[!server], TUTTI_HMAC_BYTES);
    memcpy(out, both[server], TUTTI_HMAC_BYTES);
    explicit_bzero(both, sizeof both);
    return TUTTI_OK;
}

enum tutti_status tutti_tls_session(struct tutti_tls *tls, char out[TUTTI_TLS_SESSION_TEXT])
{
    uint8_t bytes[TUTTI_HMAC_BYTES];
    TUTTI_TRY(export(tls, "EXPORTER-tutti-session", bytes, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    return TUTTI_OK;
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
    if (!tls) return;
    SSL_free(tls->ssl);
    explicit_bzero(tls->key, sizeof tls->key);
    tutti_free(tls);
}
