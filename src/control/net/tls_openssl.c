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

/* ---- records ---- */
/* Records of AES-GCM by OpenSSL. What came is decrypted into the memory that was asked for, as far as it reaches, and
 * the rest of a record in its place. What is sent is encrypted into a buffer, some records at once. */

#define FRAME (TUTTI_CIPHER_HEAD + TUTTI_CIPHER_RECORD + TUTTI_CIPHER_TAG)
#define BUFFER (4 * FRAME)
#define RENEWED ((uint64_t)1 << 20)
#define IV 12

struct way {
    EVP_CIPHER_CTX *gcm;
    uint8_t secret[TUTTI_HMAC_BYTES], iv[IV];
    uint64_t n_records;
};
struct cipher {
    struct tutti_stream stream; /* first */
    int fd, error;              /* errno that broke it */
    bool over;                  /* the other end said that no more comes */
    uint64_t renewed;
    struct way in, out;
    size_t in_begin, in_end;     /* the part of in_bytes that was read, and still encrypted */
    size_t rest_begin, rest_end; /* decrypted, and not given yet */
    size_t out_begin, out_end;   /* the part of out_bytes that is to be sent */
    size_t ahead;                /* bytes that are encrypted, and were not told as sent */
    uint8_t in_bytes[BUFFER], out_bytes[BUFFER];
};
/* Where in a caller's pieces of memory a call is. */
struct place {
    const struct iovec *iov;
    size_t n, at, left; /* at: in the first; left: bytes in all */
};

static struct cipher *cipher_of(struct tutti_stream *stream)
{
    return (struct cipher *)(void *)stream;
}

static struct place place_of(const struct iovec *iov, size_t n_iov)
{
    struct place place = {.iov = iov, .n = n_iov};
    for (size_t i = 0; i < n_iov; i++) place.left += iov[i].iov_len;
    return place;
}

/* The next run of memory, of at most so many bytes, which is behind the place then. */
static uint8_t *place_next(struct place *place, size_t most, size_t *n)
{
    while (place->n > 0 && place->at == place->iov->iov_len) place->iov++, place->n--, place->at = 0;
    if (place->n == 0) {
        *n = 0;
        return NULL;
    }
    uint8_t *run = (uint8_t *)place->iov->iov_base + place->at;
    const size_t here = place->iov->iov_len - place->at;
    *n = here < most ? here : most;
    place->at += *n, place->left -= *n;
    return run;
}

/* ---- keys ---- */

/* The key and the fixed part of the nonces, of the way's secret. */
static enum tutti_status key_set(struct way *way)
{
    uint8_t bytes[TUTTI_HMAC_BYTES];
    TUTTI_TRY(tutti_hmac(way->secret, sizeof way->secret, "key", 3, bytes));
    memcpy(way->iv, bytes + 16, IV);
    const bool set = EVP_CipherInit_ex(way->gcm, NULL, NULL, bytes, NULL, -1) == 1;
    explicit_bzero(bytes, sizeof bytes);
    return set ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "OpenSSL takes no key");
}

static enum tutti_status way_open(struct way *way, const uint8_t secret[TUTTI_HMAC_BYTES], bool encrypts)
{
    memcpy(way->secret, secret, sizeof way->secret);
    way->gcm = EVP_CIPHER_CTX_new();
    if (!way->gcm || EVP_CipherInit_ex(way->gcm, EVP_aes_128_gcm(), NULL, NULL, NULL, encrypts) != 1)
        return tutti_fail(TUTTI_ERR_MEMORY, "OpenSSL has no AES-GCM");
    return key_set(way);
}

/* Begins the next record. False: there is no new key. */
static bool record_begin(struct cipher *c, struct way *way, const uint8_t head[TUTTI_CIPHER_HEAD])
{
    uint8_t nonce[IV], number[8];
    int n;
    if (way->n_records == c->renewed) {
        uint8_t next[TUTTI_HMAC_BYTES];
        if (tutti_hmac(way->secret, sizeof way->secret, "next", 4, next) < 0) return false;
        memcpy(way->secret, next, sizeof next);
        explicit_bzero(next, sizeof next);
        if (key_set(way) < 0) return false;
        way->n_records = 0;
    }
    memcpy(nonce, way->iv, sizeof nonce);
    tutti_le_store(number, 8, way->n_records++);
    for (size_t i = 0; i < sizeof number; i++) nonce[IV - 8 + i] ^= number[i];
    return EVP_CipherInit_ex(way->gcm, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(way->gcm, NULL, &n, head, TUTTI_CIPHER_HEAD) == 1;
}

/* ---- in ---- */

/* Decrypted before: moves what there is room for. */
static void rest_give(struct cipher *c, struct place *to)
{
    size_t n;
    while (c->rest_begin < c->rest_end && to->left > 0) {
        uint8_t *run = place_next(to, c->rest_end - c->rest_begin, &n);
        memcpy(run, c->in_bytes + c->rest_begin, n);
        c->rest_begin += n;
    }
}

static bool nonsense(struct cipher *c)
{
    c->error = EPROTO;
    tutti_log(TUTTI_LOG_WARN, "what came by an encrypted connection was changed on its way");
    return false;
}

/* The first record, whose bytes are all here. */
static bool record_open(struct cipher *c, size_t bytes, struct place *to)
{
    uint8_t *from = c->in_bytes + c->in_begin, *at = from + TUTTI_CIPHER_HEAD, *tag = at + bytes;
    size_t n;
    int moved;
    if (!record_begin(c, &c->in, from)) return nonsense(c);
    while (at < tag && to->left > 0) {
        uint8_t *run = place_next(to, (size_t)(tag - at), &n);
        if (EVP_CipherUpdate(c->in.gcm, run, &moved, at, (int)n) != 1) return nonsense(c);
        at += n;
    }
    c->rest_begin = (size_t)(at - c->in_bytes), c->rest_end = (size_t)(tag - c->in_bytes);
    if (at < tag && EVP_CipherUpdate(c->in.gcm, at, &moved, at, (int)(tag - at)) != 1) return nonsense(c);
    if (EVP_CIPHER_CTX_ctrl(c->in.gcm, EVP_CTRL_AEAD_SET_TAG, TUTTI_CIPHER_TAG, tag) != 1 ||
        EVP_CipherFinal_ex(c->in.gcm, tag, &moved) != 1) {
        c->rest_end = c->rest_begin;
        return nonsense(c);
    }
    c->over = bytes == 0;
    c->in_begin += TUTTI_CIPHER_HEAD + bytes + TUTTI_CIPHER_TAG;
    return true;
}

/* Bytes of the first record; SIZE_MAX: it is not here yet, or can not be. */
static size_t record_here(struct cipher *c)
{
    const size_t here = c->in_end - c->in_begin;
    const uint64_t bytes = here < TUTTI_CIPHER_HEAD ? 0 : tutti_le_load(c->in_bytes + c->in_begin, TUTTI_CIPHER_HEAD);
    if (bytes > TUTTI_CIPHER_RECORD) nonsense(c);
    return c->error || here < TUTTI_CIPHER_HEAD + bytes + TUTTI_CIPHER_TAG ? SIZE_MAX : (size_t)bytes;
}

/* Reads once. False: nothing more is there now, or ever. */
static bool in_fill(struct cipher *c)
{
    if (c->in_begin > 0) { /* nothing is decrypted, and less than a record is left */
        memmove(c->in_bytes, c->in_bytes + c->in_begin, c->in_end - c->in_begin);
        c->in_end -= c->in_begin, c->in_begin = 0;
    }
    const size_t room = BUFFER - c->in_end;
    const ssize_t n = recv(c->fd, c->in_bytes + c->in_end, room, MSG_DONTWAIT);
    if (n > 0) c->in_end += (size_t)n;
    if (n == 0) c->error = ECONNRESET; /* its end was not said */
    if (n < 0 && errno != EAGAIN && errno != EINTR) c->error = errno;
    return n == (ssize_t)room;
}

static ssize_t outcome(const struct cipher *c, size_t done)
{
    if (done > 0) return (ssize_t)done;
    errno = c->error ? c->error : EAGAIN;
    return -1;
}

static ssize_t cipher_recv(struct tutti_stream *stream, const struct iovec *iov, size_t n_iov)
{
    struct cipher *c = cipher_of(stream);
    struct place to = place_of(iov, n_iov);
    const size_t asked = to.left;
    size_t given;
    bool more = true;
    rest_give(c, &to);
    given = asked - to.left;
    while (to.left > 0 && !c->over && !c->error) {
        const size_t bytes = record_here(c);
        if (bytes != SIZE_MAX && record_open(c, bytes, &to))
            given = asked - to.left; /* what did not verify is not given */
        else if (more && !c->error)
            more = in_fill(c);
        else
            break;
    }
    return c->over && given == 0 ? 0 : outcome(c, given);
}

static bool cipher_holds(const struct tutti_stream *stream)
{
    const struct cipher *c = (const struct cipher *)(const void *)stream;
    return c->rest_begin < c->rest_end || c->in_begin < c->in_end;
}

/* ---- out ---- */

/* Whether all that is encrypted has gone. */
static bool flush(struct cipher *c)
{
    while (c->out_begin < c->out_end && !c->error) {
        const size_t n_bytes = c->out_end - c->out_begin;
        const ssize_t n = send(c->fd, c->out_bytes + c->out_begin, n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) c->out_begin += (size_t)n;
        if (n < 0 && errno == EAGAIN) return false;
        if (n < 0 && errno != EINTR) c->error = errno;
    }
    if (c->error) return false;
    c->out_begin = c->out_end = 0;
    return true;
}

/* Encrypts one record behind the others; returns its bytes. */
static size_t record_add(struct cipher *c, struct place *from)
{
    const size_t bytes = from->left < TUTTI_CIPHER_RECORD ? from->left : TUTTI_CIPHER_RECORD;
    uint8_t *head = c->out_bytes + c->out_end, *at = head + TUTTI_CIPHER_HEAD, *tag = at + bytes;
    size_t n;
    int moved;
    tutti_le_store(head, TUTTI_CIPHER_HEAD, bytes);
    bool good = record_begin(c, &c->out, head);
    for (; good && at < tag; at += n) {
        const uint8_t *run = place_next(from, (size_t)(tag - at), &n);
        good = EVP_CipherUpdate(c->out.gcm, at, &moved, run, (int)n) == 1;
    }
    good = good && EVP_CipherFinal_ex(c->out.gcm, tag, &moved) == 1 &&
           EVP_CIPHER_CTX_ctrl(c->out.gcm, EVP_CTRL_AEAD_GET_TAG, TUTTI_CIPHER_TAG, tag) == 1;
    if (!good) c->error = EPROTO;
    c->out_end = (size_t)(tag - c->out_bytes) + TUTTI_CIPHER_TAG;
    return bytes;
}

static ssize_t cipher_send(struct tutti_stream *stream, const struct iovec *iov, size_t n_iov)
{
    struct cipher *c = cipher_of(stream);
    struct place from = place_of(iov, n_iov);
    size_t done = 0, n;
    while (done < c->ahead && place_next(&from, c->ahead - done, &n)) done += n;
    if (!flush(c)) return outcome(c, 0);
    c->ahead -= done;
    while (from.left > 0 && !c->error) {
        size_t added = 0;
        while (from.left > 0 && BUFFER - c->out_end >= FRAME && !c->error) added += record_add(c, &from);
        if (!flush(c)) {
            c->ahead = added;
            break;
        }
        done += added;
    }
    return outcome(c, done);
}

/* ---- the life ---- */

static void cipher_finish(struct tutti_stream *stream)
{
    struct cipher *c = cipher_of(stream);
    struct place nothing = {.n = 0};
    if (!flush(c)) return;
    record_add(c, &nothing);
    flush(c);
}

static void cipher_close(struct tutti_stream *stream)
{
    struct cipher *c = cipher_of(stream);
    EVP_CIPHER_CTX_free(c->in.gcm);
    EVP_CIPHER_CTX_free(c->out.gcm);
    explicit_bzero(c->in.secret, sizeof c->in.secret);
    explicit_bzero(c->out.secret, sizeof c->out.secret);
    tutti_free(c);
}

static const struct tutti_stream_ops ops = {
    .recv = cipher_recv, .send = cipher_send, .holds = cipher_holds, .finish = cipher_finish, .close = cipher_close};

enum tutti_status tutti_cipher_open(const struct tutti_cipher_config *config, struct tutti_stream **out)
{
    struct cipher *c = tutti_alloc(sizeof *c);
    if (!c) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an encrypted connection");
    c->stream.ops = &ops;
    c->fd = config->fd;
    c->renewed = config->renewed ? config->renewed : RENEWED;
    enum tutti_status status = way_open(&c->in, config->in, false);
    if (status == TUTTI_OK) status = way_open(&c->out, config->out, true);
    if (status < 0)
        cipher_close(&c->stream);
    else
        *out = &c->stream;
    return status;
}
