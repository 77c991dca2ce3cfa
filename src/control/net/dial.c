/* SPDX-License-Identifier: BSD-3-Clause */

/* Dialing: tries of a peer until one is proved, until it is clear that none will be, or until the deadline; and the
 * keys of connections that are encrypted. */

#include "base/tls.h"

#include "control/net/cipher.h"
#include "control/net/conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- keys ---- */

/* A proved connection on its way to its keys. */
struct tutti_net_agreement {
    struct tutti_loop_fd watch; /* first */
    struct tutti_net_peer *peer;
    struct tutti_tls *tls;
};

/* Gives the socket back. */
static int agreement_free(struct tutti_net_agreement *a)
{
    const int fd = a->watch.fd;
    a->peer->agreement = NULL;
    tutti_loop_forget(a->peer->net->loop, &a->watch);
    tutti_tls_close(a->tls);
    tutti_free(a);
    return fd;
}

/* closes it, if there is one */
static void agreement_end(struct tutti_net_peer *peer)
{
    if (peer->agreement) close(agreement_free(peer->agreement));
}

static enum tutti_status stream_make(struct tutti_net_agreement *a, struct tutti_stream **stream)
{
    struct tutti_cipher_config config = {.fd = a->watch.fd};
    enum tutti_status status = tutti_tls_secrets(a->tls, config.in, config.out);
    if (status == TUTTI_OK) status = tutti_cipher_open(&config, stream);
    explicit_bzero(&config, sizeof config);
    return status;
}

static void agreed(struct tutti_net_peer *peer, int fd, struct tutti_stream *stream);

static void step(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_net_agreement *a = (struct tutti_net_agreement *)(void *)w;
    struct tutti_net_peer *peer = a->peer;
    struct tutti_stream *stream;
    enum tutti_status status = tutti_tls_agree(a->tls);
    (void)events;
    if (status == TUTTI_PENDING) {
        tutti_loop_change(peer->net->loop, w, EPOLLIN | (tutti_tls_wants_room(a->tls) ? EPOLLOUT : 0));
        return;
    }
    if (status == TUTTI_OK) status = stream_make(a, &stream);
    const int fd = agreement_free(a);
    if (status == TUTTI_OK) {
        agreed(peer, fd, stream);
        return;
    }
    tutti_log(TUTTI_LOG_INFO, "%s", tutti_last_error()->text);
    close(fd);
    agreed(peer, -1, NULL);
}

/* Takes the socket over on success; `agreed` follows, maybe at once: with the socket and its stream, or with -1 when
 * the connection broke before both ends had keys. */
static enum tutti_status agreement_begin(struct tutti_net_peer *peer, const struct tutti_proof *proof, int fd)
{
    uint8_t key[TUTTI_HMAC_BYTES];
    struct tutti_net_agreement *a = tutti_alloc(sizeof *a);
    if (!a) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an encrypted connection");
    *a = (struct tutti_net_agreement){.watch = {.fd = fd, .ready = step}, .peer = peer};
    enum tutti_status status = tutti_proof_channel_key(proof, key);
    const struct tutti_tls_proof by = {.key = key};
    if (status == TUTTI_OK) status = tutti_tls_open(fd, !proof->session.server, &by, &a->tls);
    explicit_bzero(key, sizeof key);
    if (status == TUTTI_OK && (status = tutti_loop_watch(peer->net->loop, &a->watch, EPOLLIN)) < 0)
        tutti_tls_close(a->tls);
    if (status < 0) {
        tutti_free(a);
        return status;
    }
    agreement_end(peer); /* an earlier connection's */
    peer->agreement = a;
    step(&a->watch, 0);
    return TUTTI_OK;
}

/* ---- dialing ---- */
/* Dialing: tries of a peer until one is proved, until it is clear that none will be, or until the deadline. A try whose
 * PROOF is sent may have been accepted at any time: this end does not let go of it before the answer, not even when the
 * deadline passes. Else the other end would be told of a connection that is none. */

#define FIRST_RETRY_NS (10 * TUTTI_NS_PER_MS) /* doubles each time */
#define LAST_RETRY_NS (640 * TUTTI_NS_PER_MS)
#define REFUSED_NS (50 * TUTTI_NS_PER_MS) /* then it is asked again whether really nobody listens */
#define REFUSED_MOST 2                    /* and believed: a death is told within 0.5 s */
#define TICK_NS (200 * TUTTI_NS_PER_MS)   /* looks at whether the peer was told dead */

/* ---- the table ---- */

struct tutti_net_peer *tutti_net_peer_of(struct tutti_net *net, enum tutti_net_role role, uint32_t member)
{
    struct tutti_net_peer **bucket = &net->buckets[(2 * member + (uint32_t)role) % TUTTI_NET_BUCKETS], *peer;
    pthread_mutex_lock(&net->mutex);
    for (peer = *bucket; peer && (peer->member != member || peer->role != role);) peer = peer->next;
    if (!peer && (peer = tutti_alloc(sizeof *peer))) {
        peer->net = net, peer->role = role, peer->member = member;
        peer->next = *bucket;
        *bucket = peer;
    }
    pthread_mutex_unlock(&net->mutex);
    return peer;
}

/* any thread */
void tutti_net_peer_queue(struct tutti_net_peer *peer)
{
    struct tutti_net *net = peer->net;
    pthread_mutex_lock(&net->mutex);
    if (!peer->queued) {
        peer->queued = true;
        peer->next_queued = NULL;
        *net->queue_end = peer;
        net->queue_end = &peer->next_queued;
    }
    pthread_mutex_unlock(&net->mutex);
    tutti_loop_post(net->loop, &net->dials);
}

/* The first of the queue, or this one of it, or NULL. */
static struct tutti_net_peer *queue_take(struct tutti_net *net, const struct tutti_net_peer *which)
{
    pthread_mutex_lock(&net->mutex);
    struct tutti_net_peer **at = &net->queue, *peer;
    while (*at && which && *at != which) at = &(*at)->next_queued;
    if ((peer = *at)) {
        *at = peer->next_queued;
        if (!*at) net->queue_end = at;
        peer->queued = false;
    }
    pthread_mutex_unlock(&net->mutex);
    return peer;
}

/* ---- answers ---- */

static void try_end(struct tutti_net_peer *peer)
{
    if (!peer->conn) return;
    tutti_net_conn_end(peer->conn);
    explicit_bzero(&peer->conn->proof, sizeof peer->conn->proof);
    tutti_free(peer->conn);
    peer->conn = NULL;
}

static void peer_answered(struct tutti_net_peer *peer)
{
    peer->wanted = false;
    tutti_loop_stop(peer->net->loop, &peer->timer);
}

bool tutti_net_peer_committed(const struct tutti_net_peer *peer)
{
    return peer->conn && peer->conn->connected && peer->conn->proof.due == TUTTI_PROOF_READY;
}

/* stream: NULL, or what encrypts. */
static void peer_opened(struct tutti_net_peer *peer, int fd, struct tutti_stream *stream)
{
    struct tutti_net *net = peer->net;
    peer_answered(peer);
    try_end(peer);
    net->config.opened(net->config.arg, peer->role, peer->member, fd, stream);
    queue_take(net, peer); /* the peer that dialed until now did not know */
}

/* The interface and address by which it is dialed. */
static struct tutti_net_way peer_way(const struct tutti_net_peer *peer)
{
    struct tutti_net *net = peer->net;
    const struct tutti_hosts *hosts = net->config.hosts;
    pthread_mutex_lock(&net->mutex);
    struct tutti_net_way way = peer->way;
    pthread_mutex_unlock(&net->mutex);
    if (peer->role < TUTTI_NET_PATH) memcpy(way.from, net->interface, sizeof way.from);
    if (way.to.family == 0) way.to = hosts->hosts[hosts->members[peer->member].host].address;
    return way;
}

/* "rank 3 on host b (10.0.0.2 port 4711)" */
static const char *peer_say(const struct tutti_net_peer *peer, char *out, size_t capacity)
{
    const struct tutti_hosts *hosts = peer->net->config.hosts;
    const struct tutti_member_row *row = &hosts->members[peer->member];
    char member[TUTTI_HOST_NAME + 32], address[46];
    const struct tutti_net_way way = peer_way(peer);
    snprintf(out, capacity, "%s%s (%s port %u)", peer->role < TUTTI_NET_PATH ? "" : "one more socket to ",
             tutti_hosts_say(hosts, peer->member, member, sizeof member),
             tutti_net_address_text(&way.to, address, sizeof address), row->port);
    return out;
}

/* Tells the failure of the thread's record. */
static void peer_failed(struct tutti_net_peer *peer)
{
    struct tutti_net *net = peer->net;
    struct tutti_error error = *tutti_last_error();
    error.peer = (int32_t)peer->member;
    peer_answered(peer);
    if (!tutti_net_peer_committed(peer)) try_end(peer);
    agreement_end(peer);
    net->config.failed(net->config.arg, peer->role, peer->member, &error);
}

static void peer_fail(struct tutti_net_peer *peer, enum tutti_status status, const char *why)
{
    char name[TUTTI_HOST_NAME + 96];
    tutti_fail(status, "%s: %s", peer_say(peer, name, sizeof name), why);
    peer_failed(peer);
}

static void peer_fail_late(struct tutti_net_peer *peer)
{
    char name[TUTTI_HOST_NAME + 96];
    const char *why = peer->agreement || (peer->conn && peer->conn->connected) ? "it does not answer"
                      : peer->conn || !peer->why                               ? "no connection comes to be"
                                                                               : peer->why;
    const unsigned long long ms = tutti_says_ms(peer->net->config.dial_ns);
    peer_say(peer, name, sizeof name);
    errno = peer->why_errno;
    if (!peer->conn && peer->why_errno)
        tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be reached (" TUTTI_SAYS_TIMED_OUT "): %s", name, ms, why);
    else
        tutti_fail(TUTTI_ERR_TIMEOUT, "%s can not be reached: " TUTTI_SAYS_TIMED_OUT ": %s", name, ms, why);
    peer_failed(peer);
}

/* ---- tries ---- */

static void peer_wait(struct tutti_net_peer *peer)
{
    uint64_t due = peer->conn || peer->agreement ? tutti_now_ns() + TICK_NS : peer->retry_ns;
    tutti_loop_at(peer->net->loop, &peer->timer, due < peer->deadline_ns ? due : peer->deadline_ns);
}

/* Errors of the system that another try would meet again. */
static bool is_final(int os_errno)
{
    static const int finals[] = {ECONNREFUSED, EMFILE, ENFILE, ENOMEM, EACCES, EPERM};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(finals); i++)
        if (finals[i] == os_errno) return true;
    return false;
}

/* The try under way, or its beginning, failed with the thread's record. */
static void try_failed(struct tutti_net_peer *peer, const char *why, int os_errno)
{
    char name[TUTTI_HOST_NAME + 96];
    const uint32_t shift = peer->n_tries < 8 ? peer->n_tries : 8;
    const uint64_t rest = FIRST_RETRY_NS << shift;
    try_end(peer);
    if (!peer->wanted) return;
    peer->why = why, peer->why_errno = os_errno;
    if (os_errno == ECONNREFUSED && ++peer->n_refused < REFUSED_MOST) {
        peer->retry_ns = tutti_now_ns() + REFUSED_NS;
        peer_wait(peer);
        return;
    }
    if (os_errno == ECONNREFUSED) {
        peer_fail(peer, TUTTI_ERR_PEER_DEAD, "nobody listens there: its process has ended, or a firewall refuses");
        return;
    }
    if (is_final(os_errno)) {
        errno = os_errno;
        tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be reached", peer_say(peer, name, sizeof name));
        peer_failed(peer);
        return;
    }
    peer->n_tries++;
    peer->retry_ns = tutti_now_ns() + (rest < LAST_RETRY_NS ? rest : LAST_RETRY_NS);
    peer_wait(peer);
}

static void agreed(struct tutti_net_peer *peer, int fd, struct tutti_stream *stream)
{
    if (fd >= 0)
        peer_opened(peer, fd, stream);
    else
        try_failed(peer, "it ends the connection before it is encrypted", 0);
}

enum tutti_status tutti_net_peer_proved(struct tutti_net_peer *peer, const struct tutti_proof *proof, int fd)
{
    struct tutti_net *net = peer->net;
    try_end(peer);
    const enum tutti_net_role role = peer->role >= TUTTI_NET_PATH ? TUTTI_NET_DATA : peer->role;
    if (!(net->config.encrypt >> role & 1)) {
        peer_opened(peer, fd, NULL);
        return TUTTI_OK;
    }
    const enum tutti_status status = agreement_begin(peer, proof, fd);
    if (status < 0) close(fd);
    return status;
}

/* READY has come. */
static void try_ready(struct tutti_net_peer *peer)
{
    const enum tutti_status status = peer->conn->proof.status;
    if (status == TUTTI_OK) {
        struct tutti_proof proof = peer->conn->proof;
        const int fd = tutti_net_conn_take(peer->conn);
        peer->n_dialed++;
        if (tutti_net_peer_proved(peer, &proof, fd) < 0) peer_failed(peer);
        explicit_bzero(&proof, sizeof proof);
    } else if (status == TUTTI_AGAIN) {
        try_failed(peer, "it dials this rank itself", 0);
    } else {
        try_end(peer);
        if (!peer->wanted) return;
        peer_fail(peer, status == TUTTI_ERR_PEER_DEAD ? status : TUTTI_ERR_PROTOCOL,
                  status == TUTTI_ERR_PEER_DEAD ? "it refuses this rank, which it was told is dead" : "it refuses");
    }
}

static void try_read(struct tutti_net_conn *conn)
{
    struct tutti_net_peer *peer = conn->peer;
    struct tutti_proof_out out = {.n = 0};
    enum tutti_status status = tutti_net_conn_agree(conn);
    if (status == TUTTI_OK && conn->hello.n > 0) {
        status = tutti_net_conn_send(conn, &conn->hello);
        conn->hello.n = 0;
    }
    if (status == TUTTI_OK) status = tutti_net_conn_read(conn);
    if (status == TUTTI_PENDING) return;
    if (status == TUTTI_OK) status = tutti_proof_received(&conn->proof, conn->bytes, peer->n_accepted, &out);
    if (status == TUTTI_OK) status = tutti_net_conn_send(conn, &out);
    if (status == TUTTI_ERR_SYSTEM || (status < 0 && conn->tls && status != TUTTI_ERR_AUTH)) {
        try_failed(peer, "it ends the connection before it is proved", 0);
    } else if (status < 0) {
        char why[200];
        snprintf(why, sizeof why, "%.199s", tutti_last_error()->text);
        try_end(peer);
        if (peer->wanted) peer_fail(peer, status, why);
    } else if (conn->proof.proved) {
        try_ready(peer);
    }
}

static void try_connected(struct tutti_net_conn *conn)
{
    struct tutti_net_peer *peer = conn->peer;
    const struct tutti_net *net = peer->net;
    uint8_t nonce[TUTTI_NONCE_BYTES];
    int failed = 0;
    socklen_t n = sizeof failed;
    getsockopt(conn->watch.fd, SOL_SOCKET, SO_ERROR, &failed, &n);
    if (failed) {
        try_failed(peer, "no connection comes to be", failed == ETIMEDOUT ? 0 : failed);
        return;
    }
    conn->connected = true;
    if (tutti_random_bytes(nonce, sizeof nonce) < 0 || tutti_net_conn_begin(conn, true) < 0) {
        peer_failed(peer);
        return;
    }
    tutti_proof_dial(&conn->proof, &net->key, peer->role, net->config.me, peer->member, nonce, &conn->hello);
    tutti_loop_change(net->loop, &conn->watch, EPOLLIN);
    try_read(conn);
}

static void try_step(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_net_conn *conn = (struct tutti_net_conn *)w;
    (void)events;
    if (conn->connected)
        try_read(conn);
    else
        try_connected(conn);
}

static void try_begin(struct tutti_net_peer *peer)
{
    struct tutti_net *net = peer->net;
    const struct tutti_member_row *row = &net->config.hosts->members[peer->member];
    struct tutti_net_conn *conn = tutti_alloc(sizeof *conn);
    if (!conn) {
        peer_fail(peer, TUTTI_ERR_MEMORY, "no memory for a connection");
        return;
    }
    conn->net = net, conn->peer = peer;
    conn->watch = (struct tutti_loop_fd){.fd = -1, .ready = try_step};
    peer->conn = conn;
    const struct tutti_net_way way = peer_way(peer);
    enum tutti_status status = tutti_net_connect(&way.to, row->port, way.from, net->congestion, &conn->watch.fd);
    if (status == TUTTI_OK) status = tutti_loop_watch(net->loop, &conn->watch, EPOLLOUT);
    if (status == TUTTI_OK)
        peer_wait(peer);
    else
        try_failed(peer, "no connection comes to be", tutti_last_error()->os_errno);
}

static void peer_step(struct tutti_net_peer *peer)
{
    struct tutti_net *net = peer->net;
    const uint64_t now = tutti_now_ns();
    if (net->config.is_dead(net->config.arg, peer->member))
        peer_fail(peer, TUTTI_ERR_PEER_DEAD, "it was told dead");
    else if (now >= peer->deadline_ns)
        peer_fail_late(peer);
    else if (!peer->conn && !peer->agreement && now >= peer->retry_ns)
        try_begin(peer);
    else
        peer_wait(peer);
}

static void peer_due(struct tutti_loop_timer *timer)
{
    peer_step((struct tutti_net_peer *)((char *)timer - offsetof(struct tutti_net_peer, timer)));
}

/* ---- all of them ---- */

/* One a turn: who dials again whenever it fails does not keep the thread. */
static void dials_call(struct tutti_loop_post *post)
{
    struct tutti_net *net = (struct tutti_net *)((char *)post - offsetof(struct tutti_net, dials));
    struct tutti_net_peer *peer = net->closing ? NULL : queue_take(net, NULL);
    if (!peer) return;
    tutti_loop_post(net->loop, post);
    if (peer->wanted) return;
    peer->wanted = true;
    peer->timer.due = peer_due;
    peer->n_tries = peer->n_refused = 0, peer->retry_ns = 0, peer->why = NULL, peer->why_errno = 0;
    peer->deadline_ns = tutti_deadline_ns(net->config.dial_ns);
    peer_step(peer);
}

void tutti_net_dials_begin(struct tutti_net *net)
{
    net->queue_end = &net->queue;
    net->dials.call = dials_call;
}

void tutti_net_dials_end(struct tutti_net *net)
{
    for (size_t i = 0; i < TUTTI_NET_BUCKETS; i++)
        for (struct tutti_net_peer *peer = net->buckets[i], *next; peer; peer = next) {
            next = peer->next;
            tutti_loop_stop(net->loop, &peer->timer);
            try_end(peer);
            agreement_end(peer);
            tutti_free(peer);
        }
    memset(net->buckets, 0, sizeof net->buckets);
}
