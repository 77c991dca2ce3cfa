/* SPDX-License-Identifier: BSD-3-Clause */

/* The TCP store's server, on one loop. A request is answered when it comes, or its connection is parked at the key that
 * it waits for. What a client sends before it has proved that it knows the secret is bounded to a few hundred bytes and
 * a few seconds; what does not verify is refused and logged, and nobody else notices. */

#include "base/loop.h"
#include "store/open.h"
#include "store/store_table.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum client_state { CLIENT_FRESH, CLIENT_GREETED, CLIENT_TRUSTED };

struct client {
    struct tutti_store_waiter waiter; /* first member: a waiter is its client */
    struct tutti_loop_fd watch;
    struct tutti_loop_timer timer; /* until it must have proved the secret, or its wait ends */
    struct tutti_store_server *server;
    enum client_state state;
    uint32_t events;   /* that are watched */
    uint64_t wait_ns;  /* how long it waits */
    uint8_t wait_type; /* GET or WAIT */
    bool doomed;       /* closed by the next post */
    struct tutti_session session;
    struct tutti_tls *tls;             /* until both ends have proved themselves by it */
    char text[TUTTI_TLS_SESSION_TEXT]; /* then: the session's secret */
    uint8_t *in, *out;
    size_t n_in, max_in, n_out, sent;
    struct client *next, *previous;
};

#define TELL_NS (60 * TUTTI_NS_PER_S)

struct tutti_store_server {
    struct tutti_loop *loop;
    struct tutti_loop_fd listener;
    struct tutti_loop_timer accept_again;
    struct tutti_loop_post reap; /* closes the doomed */
    uint16_t port;
    char *secret;
    struct tutti_certificate *certificate;
    struct tutti_store_table table;
    struct client *clients; /* the newest first */
    uint32_t n_unproved;    /* those that have proved nothing yet */
    struct tutti_refusals refusals;
    struct tutti_loop_timer tell; /* when refusals that were counted are told */
    bool telling;
    uint8_t frame[TUTTI_STORE_FRAME_MAX]; /* the answer that is being made */
};

static void client_frames(struct client *c);

static void client_doom(struct client *c)
{
    c->doomed = true;
    tutti_loop_post(c->server->loop, &c->server->reap);
}

static void client_until(struct client *c, uint64_t due_ns)
{
    if (due_ns == TUTTI_NEVER)
        tutti_loop_stop(c->server->loop, &c->timer);
    else
        tutti_loop_at(c->server->loop, &c->timer, due_ns);
}

/* ---- buffers of a connection, and the answers that it still gets ---- */

static void client_close(struct client *c)
{
    struct tutti_store_server *s = c->server;
    tutti_store_waiter_remove(&s->table, &c->waiter);
    if (c->state != CLIENT_TRUSTED) s->n_unproved--;
    if (c->previous)
        c->previous->next = c->next;
    else
        s->clients = c->next;
    if (c->next) c->next->previous = c->previous;
    client_until(c, TUTTI_NEVER);
    tutti_loop_forget(s->loop, &c->watch); /* a forked child may keep the descriptor alive */
    close(c->watch.fd);
    tutti_tls_close(c->tls);
    explicit_bzero(c->text, sizeof c->text);
    tutti_free(c->in);
    tutti_free(c->out);
    tutti_free(c);
}

/* Watches for what the client's state needs: its end if it is parked, room if an answer is not sent yet, else requests.
 */
static void client_watch(struct client *c)
{
    const bool room = c->n_out || (c->tls && tutti_tls_wants_room(c->tls));
    const uint32_t events = room ? EPOLLOUT : c->waiter.entry ? EPOLLRDHUP : EPOLLIN;
    if (c->doomed || events == c->events) return;
    tutti_loop_change(c->server->loop, &c->watch, events);
    c->events = events;
}

static bool client_room(struct client *c)
{
    if (c->n_in < c->max_in) return true;
    uint8_t *wider =
        c->state == CLIENT_TRUSTED && c->max_in < TUTTI_STORE_FRAME_MAX ? tutti_alloc(TUTTI_STORE_FRAME_MAX) : NULL;
    if (!wider) return false;
    memcpy(wider, c->in, c->n_in);
    tutti_free(c->in);
    c->in = wider;
    c->max_in = TUTTI_STORE_FRAME_MAX;
    return true;
}

static void client_send(struct client *c, const struct tutti_store_frame *answer)
{
    struct tutti_store_server *s = c->server;
    size_t n, sent = 0;
    if (c->doomed) return;
    if (tutti_store_frame_encode(&c->session, answer, s->frame, &n) < 0) {
        client_doom(c);
        return;
    }
    ssize_t k = send(c->watch.fd, s->frame, n, MSG_NOSIGNAL);
    if (k >= 0)
        sent = (size_t)k;
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        client_doom(c);
    if (c->doomed || sent == n) return;
    c->out = tutti_alloc(n - sent);
    if (!c->out) {
        client_doom(c);
        return;
    }
    memcpy(c->out, s->frame + sent, n - sent);
    c->n_out = n - sent;
    c->sent = 0;
}

static void client_error(struct client *c)
{
    const struct tutti_error *error = tutti_last_error();
    client_send(c, &(struct tutti_store_frame){.type = TUTTI_STORE_ERROR,
                                               .number = error->status,
                                               .value = (const uint8_t *)error->text,
                                               .value_bytes = (uint32_t)strlen(error->text)});
}

static void client_flush(struct client *c)
{
    ssize_t k = send(c->watch.fd, c->out + c->sent, c->n_out - c->sent, MSG_NOSIGNAL);
    if (k >= 0)
        c->sent += (size_t)k;
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        client_doom(c);
    if (c->sent < c->n_out) return;
    tutti_free(c->out);
    c->out = NULL;
    c->n_out = c->sent = 0;
}

/* Once a minute, while there are any. */
static void refusals_due(struct tutti_loop_timer *timer)
{
    struct tutti_store_server *s =
        (struct tutti_store_server *)(void *)((char *)timer - offsetof(struct tutti_store_server, tell));
    s->telling = tutti_refusals_tell(&s->refusals);
    if (s->telling) tutti_loop_at(s->loop, timer, tutti_deadline_ns(TELL_NS));
}

static void client_refuse(struct client *c)
{
    struct tutti_store_server *s = c->server;
    char host[64] = "?", port[16] = "?";
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    if (getpeername(c->watch.fd, (struct sockaddr *)&address, &n) == 0)
        getnameinfo((struct sockaddr *)&address, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    tutti_refusals_note(&s->refusals, host, port, tutti_last_error()->text);
    if (!s->telling) tutti_loop_at(s->loop, &s->tell, tutti_deadline_ns(TELL_NS));
    s->telling = true;
    if (!c->tls) client_error(c);
    client_doom(c);
}

/* ---- answers ---- */

static void answer_number(struct client *c, int64_t number)
{
    client_send(c, &(struct tutti_store_frame){.type = TUTTI_STORE_ANSWER, .number = number});
}

static void answer_entry(struct client *c, uint8_t type, const struct tutti_store_entry *entry)
{
    struct tutti_store_frame answer = {.type = TUTTI_STORE_ANSWER};
    if (type == TUTTI_STORE_GET) answer.value = entry->value, answer.value_bytes = entry->value_bytes;
    client_send(c, &answer);
}

/* ---- requests, as one table ---- */

static void waiters_answer(struct tutti_store_server *s, struct tutti_store_entry *entry)
{
    while (entry->waiters) {
        struct client *c = (struct client *)(void *)entry->waiters;
        tutti_store_waiter_remove(&s->table, &c->waiter); /* the entry stays: it is present */
        client_until(c, TUTTI_NEVER);
        answer_entry(c, c->wait_type, entry);
        client_watch(c);
    }
}

static enum tutti_status serve_set(struct client *c, const struct tutti_store_frame *f)
{
    struct tutti_store_entry *entry;
    TUTTI_TRY(tutti_store_table_get(&c->server->table, f->key, f->key_bytes, &entry));
    TUTTI_TRY(tutti_store_table_set(&c->server->table, entry, f->value, f->value_bytes));
    answer_number(c, 0);
    waiters_answer(c->server, entry);
    return TUTTI_OK;
}

static enum tutti_status serve_wait(struct client *c, const struct tutti_store_frame *f)
{
    struct tutti_store_entry *entry = tutti_store_table_find(&c->server->table, f->key, f->key_bytes);
    if (entry && entry->present) {
        answer_entry(c, f->type, entry);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_store_table_get(&c->server->table, f->key, f->key_bytes, &entry));
    tutti_store_waiter_add(entry, &c->waiter);
    c->wait_type = f->type;
    c->wait_ns = (uint64_t)f->number;
    client_until(c, tutti_deadline_ns((uint64_t)f->number));
    return TUTTI_OK;
}

static enum tutti_status serve_add(struct client *c, const struct tutti_store_frame *f)
{
    struct tutti_store_entry *entry = tutti_store_table_find(&c->server->table, f->key, f->key_bytes);
    int64_t counter = 0;
    char text[24];
    if (entry && entry->present && !tutti_store_counter_parse(entry->value, entry->value_bytes, &counter))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "key %.*s does not hold a counter",
                          (int)(f->key_bytes < 100 ? f->key_bytes : 100), (const char *)f->key);
    if (__builtin_add_overflow(counter, f->number, &counter))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the counter of key %.*s overflows",
                          (int)(f->key_bytes < 100 ? f->key_bytes : 100), (const char *)f->key);
    TUTTI_TRY(tutti_store_table_get(&c->server->table, f->key, f->key_bytes, &entry));
    int n = snprintf(text, sizeof text, "%" PRId64, counter);
    TUTTI_TRY(tutti_store_table_set(&c->server->table, entry, text, (size_t)n));
    answer_number(c, counter);
    waiters_answer(c->server, entry);
    return TUTTI_OK;
}

static enum tutti_status serve_remove(struct client *c, const struct tutti_store_frame *f)
{
    struct tutti_store_entry *entry = tutti_store_table_find(&c->server->table, f->key, f->key_bytes);
    bool existed = entry && entry->present;
    if (existed) tutti_store_table_remove(&c->server->table, entry);
    answer_number(c, existed);
    return TUTTI_OK;
}

static enum tutti_status serve_ping(struct client *c, const struct tutti_store_frame *f)
{
    (void)f;
    answer_number(c, 0);
    return TUTTI_OK;
}

static const struct {
    enum tutti_status (*serve)(struct client *c, const struct tutti_store_frame *f);
    bool keyed;
} request_table[TUTTI_STORE_N_TYPES] = {
    [TUTTI_STORE_SET] = {serve_set, true},       [TUTTI_STORE_GET] = {serve_wait, true},
    [TUTTI_STORE_WAIT] = {serve_wait, true},     [TUTTI_STORE_ADD] = {serve_add, true},
    [TUTTI_STORE_REMOVE] = {serve_remove, true}, [TUTTI_STORE_PING] = {serve_ping, false},
};

/* The first frame: nonces change hands. */
static enum tutti_status serve_hello(struct client *c, const struct tutti_store_frame *f)
{
    uint8_t *nonce = c->session.nonces[1];
    if (f->type != TUTTI_STORE_HELLO || f->value_bytes != TUTTI_NONCE_BYTES || f->mac)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a connection that does not begin with HELLO");
    memcpy(c->session.nonces[0], f->value, TUTTI_NONCE_BYTES);
    TUTTI_TRY(tutti_random_bytes(nonce, TUTTI_NONCE_BYTES));
    c->state = CLIENT_GREETED;
    client_send(
        c, &(struct tutti_store_frame){.type = TUTTI_STORE_HELLO, .value = nonce, .value_bytes = TUTTI_NONCE_BYTES});
    return TUTTI_OK;
}

/* PROTOCOL and AUTH end the connection; other errors are answers. */
static enum tutti_status frame_serve(struct client *c, const struct tutti_store_frame *f)
{
    if (c->state == CLIENT_FRESH) return serve_hello(c, f);
    TUTTI_TRY(tutti_store_frame_verify(&c->session, c->in, f));
    if (c->state != CLIENT_TRUSTED) {
        c->state = CLIENT_TRUSTED;
        client_until(c, TUTTI_NEVER);
        c->server->n_unproved--;
    }
    if (!request_table[f->type].serve || request_table[f->type].keyed != (f->key_bytes > 0))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a store frame of type %u is no request", f->type);
    enum tutti_status status = request_table[f->type].serve(c, f);
    if (status < 0) client_error(c);
    return TUTTI_OK;
}

/* Whole frames in c->in, until one must wait. */
static void client_frames(struct client *c)
{
    while (!c->doomed && !c->n_out && !c->waiter.entry) {
        struct tutti_store_frame f;
        enum tutti_status status = tutti_store_frame_decode(c->in, c->n_in, &f);
        if (status == TUTTI_AGAIN) return;
        if (status == TUTTI_OK) status = frame_serve(c, &f);
        if (status < 0) {
            client_refuse(c);
            return;
        }
        c->n_in -= f.frame_bytes;
        memmove(c->in, c->in + f.frame_bytes, c->n_in);
    }
}

#define OPENING_NS (10 * TUTTI_NS_PER_S)      /* that a connection may take to prove itself */
#define ACCEPT_PAUSE_NS (TUTTI_NS_PER_S / 10) /* when there are no descriptors left */
#define OPENING_BYTES 512
#define UNPROVED 2048 /* connections that have proved nothing; then the oldest of them makes room */

/* ---- clients ---- */

/* Whether one was told to go: it goes at the end of this round. */
static bool oldest_refuse(struct tutti_store_server *s)
{
    struct client *oldest = NULL;
    for (struct client *c = s->clients; c; c = c->next)
        if (c->state != CLIENT_TRUSTED && !c->doomed) oldest = c;
    if (!oldest) return false;
    tutti_fail(TUTTI_ERR_PROTOCOL, "too many connections wait to prove themselves");
    client_refuse(oldest);
    return true;
}

static void client_ready(struct tutti_loop_fd *w, uint32_t events);
static void client_due(struct tutti_loop_timer *timer);

static void client_begin(struct tutti_store_server *s, int fd)
{
    const int on = 1;
    const struct tutti_tls_proof proof = {.certificate = s->certificate};
    struct client *c = tutti_alloc(sizeof *c);
    if (c) {
        *c = (struct client){.server = s, .events = EPOLLIN, .max_in = OPENING_BYTES, .in = tutti_alloc(OPENING_BYTES)};
        c->watch = (struct tutti_loop_fd){.fd = fd, .ready = client_ready};
        c->timer.due = client_due;
        c->session.server = true, c->session.secret = s->secret;
    }
    if (!c || !c->in || (s->certificate && tutti_tls_open(fd, false, &proof, &c->tls) < 0) ||
        tutti_loop_watch(s->loop, &c->watch, EPOLLIN) < 0) {
        if (c) tutti_tls_close(c->tls), tutti_free(c->in);
        tutti_free(c);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->next = s->clients;
    if (c->next) c->next->previous = c;
    s->clients = c;
    client_until(c, tutti_deadline_ns(OPENING_NS));
    if (++s->n_unproved > UNPROVED) oldest_refuse(s);
}

static void accept_resume(struct tutti_loop_timer *timer)
{
    struct tutti_store_server *s =
        (struct tutti_store_server *)(void *)((char *)timer - offsetof(struct tutti_store_server, accept_again));
    tutti_loop_change(s->loop, &s->listener, EPOLLIN);
}

static void accept_ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_store_server *s =
        (struct tutti_store_server *)(void *)((char *)w - offsetof(struct tutti_store_server, listener));
    const int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    (void)events;
    if (fd >= 0) {
        client_begin(s, fd);
        return;
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return;
    if (oldest_refuse(s)) return;
    tutti_log(TUTTI_LOG_WARN, "the store's server has no descriptors left; raise `ulimit -n`");
    tutti_loop_change(s->loop, w, 0);
    tutti_loop_at(s->loop, &s->accept_again, tutti_deadline_ns(ACCEPT_PAUSE_NS));
}

static void client_read(struct client *c)
{
    if (!client_room(c)) {
        tutti_fail(TUTTI_ERR_PROTOCOL, "a frame that is too long for a connection that has not proved itself");
        client_refuse(c);
        return;
    }
    ssize_t k = recv(c->watch.fd, c->in + c->n_in, c->max_in - c->n_in, 0);
    const char *shows = k > 0 && c->state == CLIENT_FRESH ? tutti_tls_shows(c->in, (size_t)k) : NULL;
    if (shows) {
        tutti_fail(TUTTI_ERR_AUTH, "%s", shows);
        tutti_tls_refuse(c->watch.fd);
        client_refuse(c);
    } else if (k > 0) {
        c->n_in += (size_t)k;
        client_frames(c);
    } else if (k == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        client_doom(c);
    }
}

/* Both ends prove themselves by certificates, and what they agree on signs all that follows. */
static void client_certify(struct client *c)
{
    enum tutti_status status = tutti_tls_agree(c->tls);
    if (status == TUTTI_PENDING) return;
    if (status == TUTTI_OK) status = tutti_tls_session(c->tls, c->text);
    if (status == TUTTI_ERR_PEER_LEFT) /* nothing wrong was shown */
        client_doom(c);
    else if (status < 0)
        client_refuse(c);
    if (status < 0) return;
    tutti_tls_close(c->tls);
    c->tls = NULL;
    c->session.secret = c->text;
}

static void client_ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct client *c = (struct client *)(void *)((char *)w - offsetof(struct client, watch));
    if (c->doomed) return;
    if (c->tls) {
        client_certify(c);
    } else if (c->n_out && (events & EPOLLOUT)) {
        client_flush(c);
        if (!c->n_out) client_frames(c);
    } else if (c->waiter.entry && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
        client_doom(c); /* a client that is gone does not wait any more */
    } else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        client_read(c);
    }
    client_watch(c);
}

/* Its wait is over, or it did not prove itself in time. */
static void client_due(struct tutti_loop_timer *timer)
{
    struct client *c = (struct client *)(void *)((char *)timer - offsetof(struct client, timer));
    if (!c->waiter.entry) {
        client_doom(c);
        return;
    }
    tutti_fail(TUTTI_ERR_TIMEOUT, "key %.*s did not appear: " TUTTI_SAYS_TIMED_OUT, (int)c->waiter.entry->key_bytes,
               c->waiter.entry->key, tutti_says_ms(c->wait_ns));
    tutti_store_waiter_remove(&c->server->table, &c->waiter);
    client_error(c);
    client_frames(c);
    client_watch(c);
}

static void doomed_close(struct tutti_loop_post *post)
{
    struct tutti_store_server *s =
        (struct tutti_store_server *)(void *)((char *)post - offsetof(struct tutti_store_server, reap));
    for (struct client *c = s->clients, *next; c; c = next) {
        next = c->next;
        if (c->doomed) client_close(c);
    }
}

/* ---- open and close ---- */

static enum tutti_status server_start(struct tutti_store_server *s)
{
    s->listener.ready = accept_ready;
    s->accept_again.due = accept_resume;
    s->reap.call = doomed_close;
    s->tell.due = refusals_due;
    TUTTI_TRY(tutti_loop_open("tutti-store", &s->loop));
    TUTTI_TRY(tutti_loop_watch(s->loop, &s->listener, EPOLLIN));
    return tutti_loop_start(s->loop);
}

static void clients_close(void *arg)
{
    struct tutti_store_server *s = arg;
    tutti_loop_forget(s->loop, &s->listener); /* nobody comes any more */
    tutti_loop_stop(s->loop, &s->accept_again);
    tutti_loop_stop(s->loop, &s->tell);
    tutti_refusals_tell(&s->refusals);
    while (s->clients) client_close(s->clients);
}

/* Whatever of it is there. */
static void server_free(struct tutti_store_server *s)
{
    if (s->loop) {
        tutti_loop_run(s->loop, clients_close, s);
        tutti_loop_close(s->loop);
    }
    tutti_store_table_fini(&s->table);
    if (s->listener.fd >= 0) close(s->listener.fd);
    tutti_store_secret_free(s->secret);
    tutti_free(s);
}

enum tutti_status tutti_store_server_open_by(const char *host, uint16_t port, const char *secret,
                                             struct tutti_certificate *certificate, struct tutti_store_server **out)
{
    enum tutti_status status;
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "store_server_open: out is NULL");
    struct tutti_store_server *s = tutti_alloc(sizeof *s);
    if (!s) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a store's server");
    s->listener.fd = -1;
    s->certificate = certificate;
    TUTTI_TRY_GOTO(status, tutti_store_secret_copy(secret, &s->secret), err_free);
    TUTTI_TRY_GOTO(status, tutti_store_listen(host, port, &s->listener.fd, &s->port), err_free);
    TUTTI_TRY_GOTO(status, server_start(s), err_free);
    *out = s;
    return TUTTI_OK;
err_free:
    server_free(s);
    return status;
}

enum tutti_status tutti_store_server_open(const char *host, uint16_t port, const char *secret,
                                          struct tutti_store_server **out)
{
    struct tutti_certificate *certificate;
    TUTTI_TRY(tutti_certificate_beside(secret, &certificate));
    return tutti_store_server_open_by(host, port, secret, certificate, out);
}

uint16_t tutti_store_server_port(const struct tutti_store_server *server)
{
    return server ? server->port : 0;
}

void tutti_store_server_close(struct tutti_store_server *server)
{
    if (!server) return;
    server_free(server);
}
