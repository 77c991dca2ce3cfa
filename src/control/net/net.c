/* SPDX-License-Identifier: BSD-3-Clause */

/* The net: its life, its door for other threads, and the connections that come to its port. */

#include "control/net/conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a connection on its way to its proof ---- */

enum tutti_status tutti_net_conn_begin(struct tutti_net_conn *conn, bool client)
{
    const struct tutti_tls_proof proof = {.certificate = conn->net->config.certificate};
    return proof.certificate ? tutti_tls_open(conn->watch.fd, client, &proof, &conn->tls) : TUTTI_OK;
}

enum tutti_status tutti_net_conn_agree(struct tutti_net_conn *conn)
{
    char agreed[TUTTI_TLS_SESSION_TEXT];
    if (!conn->tls) return TUTTI_OK;
    enum tutti_status status = tutti_tls_agree(conn->tls);
    if (status == TUTTI_PENDING)
        tutti_loop_change(conn->net->loop, &conn->watch, EPOLLIN | (tutti_tls_wants_room(conn->tls) ? EPOLLOUT : 0));
    if (status != TUTTI_OK) return status;
    status = tutti_tls_session(conn->tls, agreed);
    if (status == TUTTI_OK) status = tutti_proof_bind(&conn->proof, agreed);
    explicit_bzero(agreed, sizeof agreed);
    tutti_tls_close(conn->tls);
    conn->tls = NULL;
    tutti_loop_change(conn->net->loop, &conn->watch, EPOLLIN);
    return status;
}

enum tutti_status tutti_net_conn_read(struct tutti_net_conn *conn)
{
    const size_t due = tutti_proof_due(&conn->proof);
    while (conn->n_bytes < due) {
        const ssize_t n = recv(conn->watch.fd, conn->bytes + conn->n_bytes, due - conn->n_bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return TUTTI_PENDING;
        if (n < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the connection broke before it was proved");
        if (n == 0) return tutti_fail(TUTTI_ERR_SYSTEM, "it closed the connection before it was proved");
        conn->n_bytes += (size_t)n;
        const char *shows = conn->n_bytes == (size_t)n ? tutti_tls_shows(conn->bytes, conn->n_bytes) : NULL;
        if (shows) tutti_tls_refuse(conn->watch.fd);
        if (shows) return tutti_fail(TUTTI_ERR_AUTH, "%s", shows);
        if (!tutti_proof_may_be(conn->bytes, conn->n_bytes))
            return tutti_fail(TUTTI_ERR_PROTOCOL, "it does not speak the protocol of tutti");
    }
    conn->n_bytes = 0;
    return TUTTI_OK;
}

enum tutti_status tutti_net_conn_send(struct tutti_net_conn *conn, const struct tutti_proof_out *out)
{
    if (out->n == 0) return TUTTI_OK;
    const ssize_t n = send(conn->watch.fd, out->bytes, out->n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)out->n) return TUTTI_OK;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the connection broke before it was proved");
}

int tutti_net_conn_take(struct tutti_net_conn *conn)
{
    const int fd = conn->watch.fd;
    tutti_loop_forget(conn->net->loop, &conn->watch);
    tutti_loop_stop(conn->net->loop, &conn->timer);
    conn->watch.fd = -1;
    tutti_tls_close(conn->tls);
    conn->tls = NULL;
    return fd;
}

void tutti_net_conn_end(struct tutti_net_conn *conn)
{
    if (conn->watch.fd >= 0) close(tutti_net_conn_take(conn));
}

/* ---- connections that come ----
 * An unauthenticated connection costs this process one row of a table of fixed size, for 5 s at most. When all rows are
 * taken a new one gets that of the oldest which has said nothing that a member would say, else that of the oldest: a
 * flood pushes out itself, and a member that was pushed out dials again. */

#define PROVE_NS (5 * TUTTI_NS_PER_S)
#define PAUSE_NS (100 * TUTTI_NS_PER_MS) /* without a descriptor for a new connection */
#define BATCH 32                         /* connections at once, before those that are here have their turn */
#define TELL_NS TUTTI_NS_PER_S

/* Closes a connection, and says so in the log with its address, once a second
 * at most. */
static void row_refuse(struct tutti_net_conn *row, const char *why)
{
    struct tutti_net *net = row->net;
    const uint64_t now = tutti_now_ns();
    struct tutti_net_address address = {.family = 0};
    char text[46], more[64] = "";
    if (now < net->told_ns + TELL_NS) {
        net->n_untold++;
    } else {
        tutti_net_address_of(row->watch.fd, true, &address);
        if (net->n_untold > 0) snprintf(more, sizeof more, " (and %u others before it)", net->n_untold);
        tutti_log(TUTTI_LOG_WARN, "refused a connection from %s: %s%s",
                  tutti_net_address_text(&address, text, sizeof text), why, more);
        net->told_ns = now, net->n_untold = 0;
    }
    tutti_net_conn_end(row);
}

static void row_late(struct tutti_loop_timer *timer)
{
    row_refuse((struct tutti_net_conn *)((char *)timer - offsetof(struct tutti_net_conn, timer)),
               "it did not prove in 5 s who it is");
}

/* What a proved dialer is told. */
static enum tutti_status answer_of(const struct tutti_net_peer *peer, const struct tutti_proof *proof)
{
    const struct tutti_net_config *config = &peer->net->config;
    if (config->is_dead(config->arg, peer->member)) return TUTTI_ERR_PEER_DEAD;
    /* It sent its proof before it accepted a connection that this end has
     * already: both dialed at once. */
    if (proof->accepted < peer->n_dialed) return TUTTI_AGAIN;
    if (!tutti_net_peer_committed(peer)) return TUTTI_OK;
    /* Both are proving: that of the smaller stays. But if it has accepted that of
     * this end, and only READY is still on its way, this end must not let go of
     * it: the two would keep one each, and each of them closed by the other. */
    if (config->me < peer->member || proof->accepted > peer->n_dialed) return TUTTI_AGAIN;
    return TUTTI_OK;
}

static void row_proved(struct tutti_net_conn *row)
{
    struct tutti_net *net = row->net;
    struct tutti_proof_out out;
    struct tutti_net_peer *peer = tutti_net_peer_of(net, row->proof.role, row->proof.peer);
    const enum tutti_status answer = peer ? answer_of(peer, &row->proof) : TUTTI_ERR_MEMORY;
    if (!peer || tutti_proof_answer(&row->proof, answer, &out) < 0 || tutti_net_conn_send(row, &out) < 0 ||
        answer != TUTTI_OK) {
        tutti_net_conn_end(row);
        return;
    }
    const int fd = tutti_net_conn_take(row);
    peer->n_accepted++;
    if (tutti_net_peer_proved(peer, &row->proof, fd) < 0) /* as if it had broken at once */
        tutti_log(TUTTI_LOG_WARN, "%s", tutti_last_error()->text);
}

static void row_read(struct tutti_net_conn *row)
{
    for (;;) {
        struct tutti_proof_out out = {.n = 0};
        enum tutti_status status = tutti_net_conn_agree(row);
        if (status == TUTTI_ERR_PEER_LEFT) status = TUTTI_ERR_SYSTEM;
        if (status == TUTTI_OK) status = tutti_net_conn_read(row);
        if (status == TUTTI_PENDING) return;
        if (status == TUTTI_OK) status = tutti_proof_received(&row->proof, row->bytes, 0, &out);
        const enum tutti_status refused = status;
        char why[200];
        if (refused < 0) snprintf(why, sizeof why, "%.199s", tutti_last_error()->text);
        const bool over = tutti_net_conn_send(row, &out) < 0 && refused >= 0;
        if (over ||
            refused == TUTTI_ERR_SYSTEM) { /* a member that needs it no more, or a scan: nothing wrong was said */
            tutti_net_conn_end(row);
            return;
        }
        if (refused < 0) {
            row_refuse(row, why);
            return;
        }
        if (row->proof.proved) {
            row_proved(row);
            return;
        }
    }
}

static void row_ready(struct tutti_loop_fd *w, uint32_t events)
{
    (void)events;
    row_read((struct tutti_net_conn *)w);
}

/* A free row, or NULL. */
static struct tutti_net_conn *row_free(struct tutti_net *net)
{
    for (uint32_t i = 0; i < TUTTI_NET_ROWS; i++)
        if (net->rows[i].watch.fd < 0) return &net->rows[i];
    return NULL;
}

/* Ends the connection that is worth least; false: there is none. */
static bool row_push_out(struct tutti_net *net)
{
    struct tutti_net_conn *least = NULL;
    for (uint32_t i = 0; i < TUTTI_NET_ROWS; i++) {
        struct tutti_net_conn *row = &net->rows[i];
        if (row->watch.fd < 0) continue;
        const bool silent = row->proof.due == TUTTI_PROOF_HELLO;
        const bool least_silent = least && least->proof.due == TUTTI_PROOF_HELLO;
        if (!least || (silent != least_silent ? silent : row->since_ns < least->since_ns)) least = row;
    }
    if (least) row_refuse(least, "too many connections wait to prove who they are");
    return least != NULL;
}

static void row_begin(struct tutti_net *net, int fd)
{
    uint8_t nonce[TUTTI_NONCE_BYTES];
    struct tutti_net_conn *row = row_free(net);
    if (!row && row_push_out(net)) row = row_free(net);
    *row = (struct tutti_net_conn){.net = net, .watch = {.fd = fd, .ready = row_ready}, .timer = {.due = row_late}};
    if (tutti_random_bytes(nonce, sizeof nonce) < 0 || tutti_net_conn_begin(row, false) < 0 ||
        tutti_loop_watch(net->loop, &row->watch, EPOLLIN) < 0) {
        tutti_tls_close(row->tls);
        close(fd);
        row->tls = NULL, row->watch.fd = -1;
        return;
    }
    row->since_ns = tutti_now_ns();
    tutti_proof_accept(&row->proof, &net->key, net->config.me, net->config.hosts->n_members, nonce);
    tutti_loop_at(net->loop, &row->timer, row->since_ns + PROVE_NS);
    row_read(row); /* HELLO comes with the connection, mostly */
}

static void accept_resume(struct tutti_loop_timer *timer)
{
    struct tutti_net *net = (struct tutti_net *)((char *)timer - offsetof(struct tutti_net, accepts_again));
    tutti_loop_change(net->loop, &net->accepts, EPOLLIN);
}

static void accept_ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_net *net = (struct tutti_net *)((char *)w - offsetof(struct tutti_net, accepts));
    (void)events;
    for (int i = 0; i < BATCH; i++) {
        const int fd = tutti_listener_accept(net->config.listener);
        if (fd >= 0) {
            row_begin(net, fd);
        } else if (errno == EAGAIN) {
            return;
        } else if (!row_push_out(net)) { /* no descriptor is left, and no row has
                                            one to give */
            tutti_log(TUTTI_LOG_WARN, "can not accept connections now: no "
                                      "descriptors are left (`ulimit -n`)");
            tutti_loop_change(net->loop, &net->accepts, 0);
            tutti_loop_at(net->loop, &net->accepts_again, tutti_now_ns() + PAUSE_NS);
            return;
        }
    }
}

static enum tutti_status accepts_begin(struct tutti_net *net)
{
    for (uint32_t i = 0; i < TUTTI_NET_ROWS; i++) net->rows[i] = (struct tutti_net_conn){.net = net, .watch.fd = -1};
    net->accepts = (struct tutti_loop_fd){.fd = tutti_listener_fd(net->config.listener), .ready = accept_ready};
    net->accepts_again.due = accept_resume;
    return tutti_loop_watch(net->loop, &net->accepts, EPOLLIN);
}

static void accepts_end(struct tutti_net *net)
{
    tutti_loop_forget(net->loop, &net->accepts);
    tutti_loop_stop(net->loop, &net->accepts_again);
    for (uint32_t i = 0; i < TUTTI_NET_ROWS; i++) tutti_net_conn_end(&net->rows[i]);
}

/* ---- the net ---- */
/* The net: its life, and its door for other threads. */

enum tutti_status tutti_net_open(const struct tutti_net_config *config, struct tutti_net **out)
{
    enum tutti_status status;
    struct tutti_net *net = tutti_alloc(sizeof *net);
    if (!net) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the network of rank %u", config->me);
    net->config = *config;
    net->config.secret = NULL;
    snprintf(net->interface, sizeof net->interface, "%s", config->interface);
    net->config.interface = net->interface;
    snprintf(net->congestion, sizeof net->congestion, "%s", config->congestion ? config->congestion : "");
    net->config.congestion = net->congestion;
    pthread_mutex_init(&net->mutex, NULL);
    tutti_net_dials_begin(net);
    if ((config->encrypt || config->certificate) && !tutti_tls_available())
        TUTTI_TRY_GOTO(status, tutti_fail(TUTTI_ERR_UNSUPPORTED, "encrypted connections need OpenSSL"), free_net);
    TUTTI_TRY_GOTO(status, tutti_proof_key_init(&net->key, config->secret, config->world), free_net);
    net->key.has_secret = net->key.has_secret || config->certificate;
    TUTTI_TRY_GOTO(status, tutti_loop_open("tutti-net", &net->loop), free_net);
    TUTTI_TRY_GOTO(status, accepts_begin(net), close_loop);
    *out = net;
    return TUTTI_OK;
close_loop:
    tutti_loop_close(net->loop);
free_net:
    pthread_mutex_destroy(&net->mutex);
    tutti_proof_key_fini(&net->key);
    tutti_free(net);
    return status;
}

enum tutti_status tutti_net_start(struct tutti_net *net)
{
    return tutti_loop_start(net->loop);
}

struct tutti_loop *tutti_net_loop(struct tutti_net *net)
{
    return net->loop;
}

enum tutti_status tutti_net_dial(struct tutti_net *net, enum tutti_net_role role, uint32_t peer)
{
    if (peer >= net->config.hosts->n_members || peer == net->config.me)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u can not dial rank %u of %u", net->config.me, peer,
                          net->config.hosts->n_members);
    struct tutti_net_peer *p = tutti_net_peer_of(net, role, peer);
    if (!p) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for connections to rank %u", peer);
    tutti_net_peer_queue(p);
    return TUTTI_OK;
}

enum tutti_status tutti_net_dial_path(struct tutti_net *net, uint32_t peer, uint32_t number,
                                      const struct tutti_net_way *way)
{
    const enum tutti_net_role role = (enum tutti_net_role)(TUTTI_NET_PATH + number);
    if (number >= TUTTI_NET_PATHS || peer >= net->config.hosts->n_members || peer == net->config.me)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u can not dial path %u to rank %u of %u", net->config.me, number,
                          peer, net->config.hosts->n_members);
    struct tutti_net_peer *p = tutti_net_peer_of(net, role, peer);
    if (!p) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for connections to rank %u", peer);
    pthread_mutex_lock(&net->mutex);
    p->way = *way;
    pthread_mutex_unlock(&net->mutex);
    tutti_net_peer_queue(p);
    return TUTTI_OK;
}

static void close_call(void *arg)
{
    struct tutti_net *net = arg;
    net->closing = true;
    accepts_end(net);
    tutti_net_dials_end(net);
}

void tutti_net_close(struct tutti_net *net)
{
    tutti_loop_run(net->loop, close_call, net);
    tutti_loop_close(net->loop);
    tutti_listener_close(net->config.listener);
    pthread_mutex_destroy(&net->mutex);
    tutti_proof_key_fini(&net->key);
    explicit_bzero(net->rows, sizeof net->rows); /* keys of connections */
    tutti_free(net);
}
