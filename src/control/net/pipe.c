/* SPDX-License-Identifier: BSD-3-Clause */

/* Encrypted connections. Whoever is told of one gets an end of a pair of
 * sockets of this host, and reads and writes as on any other; a pipe, on the
 * net's thread, carries what passes to the far end by TLS, and back. An end of
 * file, and half of one, pass through, too. */

#include "control/net/conn.h"
#include "control/net/tls.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STEPS 32 /* at once, before others have their turn */
#define LAST_WORDS_NS                                                                                                  \
    (500 * TUTTI_NS_PER_MS) /* for all, when the net closes                                                            \
                             */

struct half { /* what was read on one side, and the other has not taken yet */
    uint8_t bytes[TUTTI_TLS_RECORD];
    size_t at, n;
};
struct tutti_net_pipe {
    struct tutti_loop_fd far; /* first: the socket to the peer */
    struct tutti_loop_fd near;
    uint32_t far_events, near_events; /* that are watched */
    bool far_watched, near_watched;
    struct tutti_net *net;
    struct tutti_net_pipe *next, **link;
    struct tutti_tls *tls;
    struct half in, out;        /* from far to near, from near to far */
    bool far_ended, near_ended; /* nothing more comes from there, or nobody wants it */
    bool in_told, out_told;     /* ... and the other side was told so */
    bool near_gone;             /* its owner has closed it */
};

static bool is_empty(const struct half *half)
{
    return half->at == half->n;
}

/* Nothing can pass any more. */
static void broken(struct tutti_net_pipe *p)
{
    tutti_log(TUTTI_LOG_INFO, "%s", tutti_last_error()->text);
    p->far_ended = p->near_ended = p->out_told = true;
    p->out.at = p->out.n = 0;
}

/* From far to near; whether anything moved. */
static bool in_step(struct tutti_net_pipe *p)
{
    bool moved = false;
    if (is_empty(&p->in) && !p->far_ended) {
        p->in.at = p->in.n = 0;
        const enum tutti_status status = tutti_tls_read(p->tls, p->in.bytes, sizeof p->in.bytes, &p->in.n);
        if (status == TUTTI_ERR_PEER_LEFT)
            p->far_ended = true;
        else if (status < 0)
            broken(p);
        moved = status == TUTTI_OK;
    }
    if (!is_empty(&p->in)) {
        const ssize_t n = send(p->near.fd, p->in.bytes + p->in.at, p->in.n - p->in.at, MSG_NOSIGNAL);
        if (n > 0)
            p->in.at += (size_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            p->in.at = p->in.n, p->far_ended = p->in_told = true; /* nobody reads it */
        moved = moved || n > 0;
    }
    if (p->far_ended && is_empty(&p->in) && !p->in_told) {
        shutdown(p->near.fd, SHUT_WR);
        p->in_told = true;
    }
    return moved;
}

/* From near to far. */
static bool out_step(struct tutti_net_pipe *p)
{
    bool moved = false;
    if (is_empty(&p->out) && !p->near_ended) {
        const ssize_t n = recv(p->near.fd, p->out.bytes, sizeof p->out.bytes, 0);
        p->near_ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
        p->out.at = 0, p->out.n = n > 0 ? (size_t)n : 0;
        moved = n > 0;
    }
    if (!is_empty(&p->out)) {
        size_t n = 0;
        const enum tutti_status status = tutti_tls_write(p->tls, p->out.bytes + p->out.at, p->out.n - p->out.at, &n);
        if (status < 0) broken(p), moved = true; /* once more: the near side is told */
        if (status == TUTTI_OK) p->out.at += n, moved = true;
    }
    if (p->near_ended && is_empty(&p->out) && !p->out_told) {
        tutti_tls_finish(p->tls);
        p->out_told = true;
    }
    return moved;
}

static void pipe_end(struct tutti_net_pipe *p)
{
    struct tutti_loop *loop = p->net->loop;
    if (p->far_watched) tutti_loop_forget(loop, &p->far);
    if (p->near_watched) tutti_loop_forget(loop, &p->near);
    tutti_tls_close(p->tls);
    close(p->far.fd);
    close(p->near.fd);
    *p->link = p->next;
    if (p->next) p->next->link = p->link;
    tutti_free(p);
}

/* Watches for these events; none: not at all, since an end that is gone is
 * always ready. */
static bool watch(struct tutti_net_pipe *p, struct tutti_loop_fd *w, bool *watched, uint32_t *now, uint32_t events)
{
    if (*watched && *now == events) return true;
    if (*watched && events)
        tutti_loop_change(p->net->loop, w, events);
    else if (*watched)
        tutti_loop_forget(p->net->loop, w);
    else if (events && tutti_loop_watch(p->net->loop, w, events) < 0)
        return false;
    *watched = events != 0, *now = events;
    return true;
}

/* Moves what can be moved, and ends with the last end. */
static void pipe_step(struct tutti_net_pipe *p)
{
    bool moved = true;
    for (int i = 0; moved && (i < STEPS || p->near_gone); i++) {
        moved = in_step(p);
        moved = out_step(p) || moved;
    }
    /* EPOLLPRI never comes: with it the watch stays for the end of the near
     * socket. */
    const bool over = p->in_told && p->out_told;
    const uint32_t far = (is_empty(&p->in) && !p->far_ended ? EPOLLIN : 0) |
                         (!is_empty(&p->out) || tutti_tls_wants_room(p->tls) ? EPOLLOUT : 0);
    const uint32_t near = p->near_gone ? 0
                                       : EPOLLPRI | (is_empty(&p->out) && !p->near_ended ? EPOLLIN : 0) |
                                             (is_empty(&p->in) ? 0 : EPOLLOUT);
    if (over || !watch(p, &p->far, &p->far_watched, &p->far_events, far) ||
        !watch(p, &p->near, &p->near_watched, &p->near_events, near))
        pipe_end(p);
}

static void far_ready(struct tutti_loop_fd *w, uint32_t events)
{
    (void)events;
    pipe_step((struct tutti_net_pipe *)w);
}

static void near_ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_net_pipe *p = (struct tutti_net_pipe *)((char *)w - offsetof(struct tutti_net_pipe, near));
    if (events & (EPOLLHUP | EPOLLERR)) p->near_gone = p->far_ended = p->in_told = true;
    pipe_step(p);
}

enum tutti_status tutti_net_pipe_open(struct tutti_net *net, const struct tutti_proof *proof, int far_fd, int *near_fd)
{
    enum tutti_status status;
    uint8_t key[TUTTI_HMAC_BYTES];
    int pair[2];
    struct tutti_net_pipe *p = tutti_alloc(sizeof *p);
    if (!p) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an encrypted connection");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
        tutti_free(p);
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no descriptors for an encrypted connection");
    }
    status = tutti_proof_channel_key(proof, key);
    if (status == TUTTI_OK) status = tutti_tls_open(far_fd, !proof->session.server, key, &p->tls);
    explicit_bzero(key, sizeof key);
    if (status < 0) {
        close(pair[0]), close(pair[1]);
        tutti_free(p);
        return status;
    }
    p->net = net;
    p->far = (struct tutti_loop_fd){.fd = far_fd, .ready = far_ready};
    p->near = (struct tutti_loop_fd){.fd = pair[1], .ready = near_ready};
    p->next = net->pipes, p->link = &net->pipes;
    if (p->next) p->next->link = &p->next;
    net->pipes = p;
    *near_fd = pair[0];
    pipe_step(p);
    return TUTTI_OK;
}

/* What was said last goes out first, even if the ends are still agreeing on
 * keys. */
static void last_words(struct tutti_net_pipe *p, uint64_t due_ns)
{
    for (;;) {
        while (out_step(p)) continue;
        const uint64_t now = tutti_now_ns();
        if (is_empty(&p->out) || now >= due_ns) return;
        struct pollfd far = {.fd = p->far.fd, .events = POLLIN | (tutti_tls_wants_room(p->tls) ? POLLOUT : 0)};
        poll(&far, 1, (int)((due_ns - now) / TUTTI_NS_PER_MS) + 1);
    }
}

void tutti_net_pipes_end(struct tutti_net *net)
{
    const uint64_t due_ns = tutti_deadline_ns(LAST_WORDS_NS);
    while (net->pipes) {
        struct tutti_net_pipe *p = net->pipes;
        last_words(p, due_ns);
        if (!p->out_told) tutti_tls_finish(p->tls);
        pipe_end(p);
    }
}
