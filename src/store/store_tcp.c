/* SPDX-License-Identifier: BSD-3-Clause */

/* The client of the TCP store. A call takes an idle connection or opens one, so that a call that waits never stands in
 * the way of the one that it waits for. A connection on which anything went wrong is closed, never used again. */

#include "store/store_codec.h"

#include "base/tls.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_NS (30 * TUTTI_NS_PER_S) /* that a server may take to answer beyond the request's own timeout */
#define RETRY_NS (50 * TUTTI_NS_PER_MS) /* between attempts to reach a server that is not there yet */
#define TELL_NS (3 * TUTTI_NS_PER_S)    /* after which the log says that there is none */

struct connection {
    int fd;
    struct tutti_session session;
    char text[TUTTI_TLS_SESSION_TEXT]; /* the session's secret, where certificates prove */
    struct connection *next;
    size_t n_in;
    uint8_t in[TUTTI_STORE_FRAME_MAX], out[TUTTI_STORE_FRAME_MAX];
};
struct tcp_store {
    pthread_mutex_t lock;
    struct connection *idle; /* under the lock */
    char host[256], port[8];
    char *secret;                          /* NULL: none */
    struct tutti_certificate *certificate; /* NULL: none */
};

/* ---- bytes ---- */

enum tutti_status tutti_store_fd_wait(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd event = {.fd = fd, .events = events};
    for (;;) {
        uint64_t now = tutti_now_ns(), rest = now < deadline_ns ? deadline_ns - now : 0;
        if (rest > TUTTI_NS_PER_S) rest = TUTTI_NS_PER_S;
        int n = poll(&event, 1, (int)((rest + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS));
        if (n > 0) return TUTTI_OK;
        if (n < 0 && errno != EINTR) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "poll failed on a store's connection");
        if (tutti_now_ns() >= deadline_ns) return TUTTI_ERR_TIMEOUT;
    }
}

static enum tutti_status bytes_send(const struct tcp_store *store, struct connection *c, size_t n, uint64_t deadline_ns)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t k = send(c->fd, c->out + sent, n - sent, MSG_NOSIGNAL);
        if (k >= 0)
            sent += (size_t)k;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            TUTTI_TRY(tutti_store_fd_wait(c->fd, POLLOUT, deadline_ns));
        else if (errno != EINTR)
            return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the store at %s:%s can not be written to", store->host,
                                    store->port);
    }
    return TUTTI_OK;
}

/* Receives one frame; it lies in c->in until the next one. */
static enum tutti_status frame_receive(const struct tcp_store *store, struct connection *c, uint64_t deadline_ns,
                                       struct tutti_store_frame *frame)
{
    c->n_in = 0; /* one request at a time: nothing is left over */
    for (;;) {
        enum tutti_status status = tutti_store_frame_decode(c->in, c->n_in, frame);
        if (status != TUTTI_AGAIN) return status;
        ssize_t k = recv(c->fd, c->in + c->n_in, sizeof c->in - c->n_in, 0);
        if (k > 0)
            c->n_in += (size_t)k;
        else if (k == 0)
            return tutti_fail(TUTTI_ERR_SYSTEM, "the store at %s:%s: " TUTTI_SAYS_CLOSED, store->host, store->port);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            TUTTI_TRY(tutti_store_fd_wait(c->fd, POLLIN, deadline_ns));
        else if (errno != EINTR)
            return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the store at %s:%s can not be read from", store->host,
                                    store->port);
    }
}

/* ---- requests ---- */

/* An error of the server becomes this thread's record. */
static enum tutti_status error_of(const struct tcp_store *store, const struct tutti_store_frame *frame)
{
    enum tutti_status status = frame->number < 0 && frame->number >= TUTTI_ERR_INTERNAL
                                   ? (enum tutti_status)frame->number
                                   : TUTTI_ERR_PROTOCOL;
    return tutti_fail(status, "store at %s:%s: %.*s", store->host, store->port, (int)frame->value_bytes,
                      (const char *)frame->value);
}

/* The thread's record, of the store. */
static enum tutti_status store_says(const struct tcp_store *store, enum tutti_status status)
{
    const struct tutti_error error = *tutti_last_error();
    return tutti_fail(status, "the store at %s:%s: %.400s", store->host, store->port, error.text);
}

/* One request and its answer, whose bytes lie in c->in. */
static enum tutti_status exchange(const struct tcp_store *store, struct connection *c,
                                  const struct tutti_store_frame *request, uint64_t deadline_ns,
                                  struct tutti_store_frame *answer)
{
    const uint64_t start_ns = tutti_now_ns();
    size_t n;
    TUTTI_TRY(tutti_store_frame_encode(&c->session, request, c->out, &n));
    enum tutti_status status = bytes_send(store, c, n, deadline_ns);
    if (status == TUTTI_OK) status = frame_receive(store, c, deadline_ns, answer);
    if (status == TUTTI_ERR_TIMEOUT)
        return tutti_fail(status, "the store at %s:%s does not answer: " TUTTI_SAYS_TIMED_OUT, store->host, store->port,
                          tutti_says_ms(tutti_now_ns() - start_ns));
    return status;
}

/* Both ends prove themselves by certificates; what they agree on signs all that follows. */
static enum tutti_status certify(const struct tcp_store *store, struct connection *c, uint64_t deadline_ns)
{
    const struct tutti_tls_proof proof = {.certificate = store->certificate};
    const uint64_t start_ns = tutti_now_ns();
    struct tutti_tls *tls;
    TUTTI_TRY(tutti_tls_open(c->fd, true, &proof, &tls));
    enum tutti_status status = tutti_tls_agree_by(tls, c->fd, deadline_ns, NULL);
    if (status == TUTTI_ERR_TIMEOUT)
        tutti_fail(status, "the store at %s:%s does not answer: " TUTTI_SAYS_TIMED_OUT, store->host, store->port,
                   tutti_says_ms(tutti_now_ns() - start_ns));
    else if (status < 0)
        status = store_says(store, status);
    if (status == TUTTI_OK) status = tutti_tls_session(tls, c->text);
    c->session.secret = c->text;
    tutti_tls_close(tls);
    return status;
}

/* HELLO both ways, then a signed PING: a wrong secret is known at once, on both sides. */
static enum tutti_status introduce(const struct tcp_store *store, struct connection *c, uint64_t deadline_ns)
{
    struct tutti_store_frame hello = {
        .type = TUTTI_STORE_HELLO, .value = c->session.nonces[0], .value_bytes = TUTTI_NONCE_BYTES};
    struct tutti_store_frame ping = {.type = TUTTI_STORE_PING}, answer = {.type = 0};
    if (store->certificate) TUTTI_TRY(certify(store, c, deadline_ns));
    TUTTI_TRY(tutti_random_bytes(c->session.nonces[0], TUTTI_NONCE_BYTES));
    enum tutti_status status = exchange(store, c, &hello, deadline_ns, &answer);
    const char *shows = status == TUTTI_ERR_PROTOCOL ? tutti_tls_shows(c->in, c->n_in) : NULL;
    if (shows) return tutti_fail(TUTTI_ERR_AUTH, "the store at %s:%s: %s", store->host, store->port, shows);
    if (status < 0) return status;
    if (answer.type != TUTTI_STORE_HELLO || answer.value_bytes != TUTTI_NONCE_BYTES)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the store at %s:%s answers HELLO with a frame of type %u", store->host,
                          store->port, answer.type);
    memcpy(c->session.nonces[1], answer.value, TUTTI_NONCE_BYTES);
    TUTTI_TRY(exchange(store, c, &ping, deadline_ns, &answer));
    if (answer.type == TUTTI_STORE_ERROR && answer.number == TUTTI_ERR_AUTH) return error_of(store, &answer);
    TUTTI_TRY(tutti_store_frame_verify(&c->session, c->in, &answer));
    return answer.type == TUTTI_STORE_ANSWER ? TUTTI_OK : error_of(store, &answer);
}

/* ---- connections ---- */

static void connection_close(struct connection *c)
{
    if (c->fd >= 0) close(c->fd);
    explicit_bzero(c->text, sizeof c->text);
    tutti_free(c);
}

const char *tutti_store_why(int why)
{
    return why == TUTTI_STORE_NO_NAME ? "the name of the host is not known" : strerror(why);
}

enum tutti_status tutti_store_connect(const char *host, const char *port, uint64_t deadline_ns, int *out, int *why)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc == EAI_AGAIN || rc == EAI_NONAME || rc == EAI_NODATA) { /* a pod has a name from when it runs */
        *why = TUTTI_STORE_NO_NAME;
        return TUTTI_AGAIN;
    }
    if (rc != 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the store's host \"%s\" is not known: %s", host, gai_strerror(rc));
    enum tutti_status status = TUTTI_AGAIN;
    for (struct addrinfo *a = list; a && status != TUTTI_OK; a = a->ai_next) {
        int on = 1, error = 0;
        socklen_t n = sizeof error;
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        *why = errno;
        if (fd < 0) continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            status = TUTTI_OK;
        else if (errno != EINPROGRESS)
            *why = errno;
        else if (tutti_store_fd_wait(fd, POLLOUT, deadline_ns) != TUTTI_OK)
            *why = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error != 0)
            *why = error;
        else
            status = TUTTI_OK;
        if (status != TUTTI_OK) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        *out = fd;
    }
    freeaddrinfo(list);
    return status;
}

static enum tutti_status connection_open(const struct tcp_store *store, uint64_t deadline_ns, struct connection **out)
{
    const uint64_t start_ns = tutti_now_ns();
    struct connection *c = tutti_alloc(sizeof *c);
    enum tutti_status status;
    bool told = false;
    int why = 0;
    if (!c) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a store's connection");
    c->fd = -1;
    c->session.secret = store->secret;
    while ((status = tutti_store_connect(store->host, store->port, deadline_ns, &c->fd, &why)) == TUTTI_AGAIN) {
        if (tutti_now_ns() >= deadline_ns) {
            status =
                tutti_fail(TUTTI_ERR_TIMEOUT, "no store answers at %s:%s: " TUTTI_SAYS_TIMED_OUT ": %s", store->host,
                           store->port, tutti_says_ms(tutti_now_ns() - start_ns), tutti_store_why(why));
            break;
        }
        if (!told && tutti_now_ns() - start_ns >= TELL_NS) {
            tutti_log(TUTTI_LOG_WARN, "no store answers at %s:%s for %llu ms (%s); trying on", store->host, store->port,
                      tutti_says_ms(tutti_now_ns() - start_ns), tutti_store_why(why));
            told = true;
        }
        tutti_sleep_ns(RETRY_NS);
    }
    if (status == TUTTI_OK) status = introduce(store, c, deadline_ns);
    if (status < 0) {
        connection_close(c);
        return status;
    }
    *out = c;
    return TUTTI_OK;
}

static enum tutti_status connection_take(struct tcp_store *store, uint64_t deadline_ns, struct connection **out)
{
    pthread_mutex_lock(&store->lock);
    struct connection *c = store->idle;
    if (c) store->idle = c->next;
    pthread_mutex_unlock(&store->lock);
    if (!c) return connection_open(store, deadline_ns, out);
    *out = c;
    return TUTTI_OK;
}

static void connection_give(struct tcp_store *store, struct connection *c)
{
    pthread_mutex_lock(&store->lock);
    c->next = store->idle;
    store->idle = c;
    pthread_mutex_unlock(&store->lock);
}

/* ---- the calls ---- */

/* What a caller gets of an answer. */
struct gift {
    void *value;
    size_t capacity, *bytes;
    int64_t number;
};

/* The request's key is a string. */
static enum tutti_status request(struct tcp_store *store, struct tutti_store_frame frame, uint64_t deadline_ns,
                                 struct gift *gift)
{
    struct connection *c = NULL;
    struct tutti_store_frame answer = {.type = 0};
    const char *key = (const char *)frame.key;
    TUTTI_TRY(tutti_store_key_check(key));
    frame.key_bytes = (uint32_t)strlen(key);
    uint64_t patience = deadline_ns > TUTTI_NEVER - ANSWER_NS ? TUTTI_NEVER : deadline_ns + ANSWER_NS;
    TUTTI_TRY(connection_take(store, patience, &c));
    enum tutti_status status = exchange(store, c, &frame, patience, &answer);
    if (status == TUTTI_OK) status = tutti_store_frame_verify(&c->session, c->in, &answer);
    if (status < 0) {
        connection_close(c);
        return status;
    }
    if (answer.type == TUTTI_STORE_ERROR)
        status = error_of(store, &answer);
    else if (answer.type != TUTTI_STORE_ANSWER)
        status = tutti_fail(TUTTI_ERR_PROTOCOL, "the store at %s:%s answers with a frame of type %u", store->host,
                            store->port, answer.type);
    else
        status =
            tutti_store_value_give(key, answer.value, answer.value_bytes, gift->value, gift->capacity, gift->bytes);
    gift->number = answer.number;
    if (status == TUTTI_ERR_PROTOCOL)
        connection_close(c);
    else
        connection_give(store, c);
    return status;
}

static int64_t timeout_of(uint64_t deadline_ns)
{
    uint64_t now = tutti_now_ns();
    return (int64_t)(deadline_ns == TUTTI_NEVER ? TUTTI_NEVER : deadline_ns > now ? deadline_ns - now : 0);
}

#define FRAME(name, ...)                                                                                               \
    (struct tutti_store_frame)                                                                                         \
    {                                                                                                                  \
        .type = TUTTI_STORE_##name, .key = (const uint8_t *)key, __VA_ARGS__                                           \
    }

static enum tutti_status tcp_set(void *self, const char *key, const void *value, size_t bytes)
{
    struct gift none = {.value = NULL};
    TUTTI_TRY(tutti_store_value_check(bytes));
    return request(self, FRAME(SET, .value = value, .value_bytes = (uint32_t)bytes), tutti_now_ns(), &none);
}

static enum tutti_status tcp_get(void *self, const char *key, void *value, size_t capacity, size_t *bytes,
                                 uint64_t deadline_ns)
{
    struct gift gift = {value, capacity, bytes, 0};
    return request(self, FRAME(GET, .number = timeout_of(deadline_ns)), deadline_ns, &gift);
}

static enum tutti_status tcp_wait(void *self, const char *key, uint64_t deadline_ns)
{
    struct gift none = {.value = NULL};
    return request(self, FRAME(WAIT, .number = timeout_of(deadline_ns)), deadline_ns, &none);
}

static enum tutti_status tcp_add(void *self, const char *key, int64_t delta, int64_t *value)
{
    struct gift gift = {.value = NULL};
    TUTTI_TRY(request(self, FRAME(ADD, .number = delta), tutti_now_ns(), &gift));
    if (value) *value = gift.number;
    return TUTTI_OK;
}

static enum tutti_status tcp_remove(void *self, const char *key, bool *existed)
{
    struct gift gift = {.value = NULL};
    TUTTI_TRY(request(self, FRAME(REMOVE, .number = 0), tutti_now_ns(), &gift));
    if (existed) *existed = gift.number != 0;
    return TUTTI_OK;
}

static void tcp_close(void *self)
{
    struct tcp_store *store = self;
    while (store->idle) {
        struct connection *c = store->idle;
        store->idle = c->next;
        connection_close(c);
    }
    tutti_store_secret_free(store->secret);
    pthread_mutex_destroy(&store->lock);
    tutti_free(store);
}

static const struct tutti_store_ops tcp_ops = {
    .size = sizeof(struct tutti_store_ops),
    .set = tcp_set,
    .get = tcp_get,
    .wait = tcp_wait,
    .add = tcp_add,
    .remove = tcp_remove,
    .close = tcp_close,
};

enum tutti_status tutti_store_tcp_open(const char *host, const char *port, const char *secret,
                                       struct tutti_certificate *certificate, uint64_t deadline_ns,
                                       struct tutti_store *out)
{
    struct connection *c = NULL;
    enum tutti_status status;
    struct tcp_store *store = tutti_alloc(sizeof *store);
    if (!store) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a store");
    pthread_mutex_init(&store->lock, NULL);
    snprintf(store->host, sizeof store->host, "%s", host);
    snprintf(store->port, sizeof store->port, "%s", port);
    store->certificate = certificate;
    TUTTI_TRY_GOTO(status, tutti_store_secret_copy(secret, &store->secret), err_close);
    TUTTI_TRY_GOTO(status, connection_open(store, deadline_ns, &c), err_close);
    if (c) connection_give(store, c);
    *out = (struct tutti_store){&tcp_ops, store};
    return TUTTI_OK;
err_close:
    tcp_close(store);
    return status;
}
