/* SPDX-License-Identifier: BSD-3-Clause */
/* The links of a member: one socket each, frames in and out, never blocking. */

#include "control/tree/edge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct tutti_loop *loop_of(const struct tree *tree)
{
    return tutti_net_loop(tree->net);
}

void tree_socket_close(struct tree *tree, uint32_t peer)
{
    struct tree_socket *s = tree->sockets[peer];
    if (!s) return;
    tree->sockets[peer] = NULL;
    tutti_loop_forget(loop_of(tree), &s->watch);
    tutti_stream_close(s->stream);
    close(s->watch.fd);
    tutti_free(s->out);
    tutti_free(s);
}

/* How the peer's end is known: the kernel of a process that ends closes its sockets; all else is the network. */
static void socket_over(struct tree *tree, uint32_t peer, int error)
{
    const uint64_t now = tutti_now_ns();
    tree_socket_close(tree, peer);
    if (error == 0 || error == ECONNRESET || error == EPIPE)
        tutti_tree_broken(&tree->machine, peer, now);
    else
        tutti_tree_ended(&tree->machine, peer, now);
}

/* Gives the machine each whole frame. What the machine does may end this link. */
static void frames_give(struct tree *tree, struct tree_socket *s)
{
    const uint32_t peer = s->peer;
    size_t at = 0, n;
    while ((n = tutti_tree_frame_bytes(s->in + at, s->n_in - at)) > 0 && n <= s->n_in - at) {
        uint8_t frame[TUTTI_TREE_FRAME_MAX];
        if (n > sizeof frame) break;
        memcpy(frame, s->in + at, n);
        at += n;
        tutti_tree_received(&tree->machine, peer, frame, n, tutti_now_ns());
        if (tree->sockets[peer] != s) return;
    }
    if (n > TUTTI_TREE_FRAME_MAX) { /* it can not be understood any more */
        tutti_tree_received(&tree->machine, peer, s->in + at, 0, tutti_now_ns());
        return;
    }
    memmove(s->in, s->in + at, s->n_in - at);
    s->n_in -= (uint32_t)at;
}

/* Reads once, and then what the stream holds, of which the loop does not tell. */
static void in_read(struct tree *tree, struct tree_socket *s)
{
    const uint32_t peer = s->peer;
    do {
        struct iovec iov = {s->in + s->n_in, sizeof s->in - s->n_in};
        const ssize_t n = tutti_stream_recv(s->stream, s->watch.fd, &iov, 1);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            socket_over(tree, peer, n == 0 ? 0 : errno);
            return;
        }
        s->n_in += (uint32_t)n;
        frames_give(tree, s);
    } while (tree->sockets[peer] == s && tutti_stream_holds(s->stream));
}

static void out_write(struct tree *tree, struct tree_socket *s)
{
    struct iovec iov = {s->out, s->n_out};
    const ssize_t n = tutti_stream_send(s->stream, s->watch.fd, &iov, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return; /* recv tells why */
    memmove(s->out, s->out + n, s->n_out - (uint32_t)n);
    s->n_out -= (uint32_t)n;
    if (s->n_out == 0) tutti_loop_change(loop_of(tree), &s->watch, EPOLLIN);
}

static void ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct tree_socket *s = (struct tree_socket *)(void *)w;
    struct tree *tree = s->tree;
    const uint32_t peer = s->peer;
    if (events & EPOLLOUT && s->n_out > 0) out_write(tree, s);
    if (tree->sockets[peer] == s && events & ~(uint32_t)EPOLLOUT) in_read(tree, s);
}

void tree_socket_open(struct tree *tree, uint32_t peer, int fd, struct tutti_stream *stream)
{
    struct tree_socket *s = tutti_alloc(sizeof *s);
    tree_socket_close(tree, peer); /* a newer one takes its place */
    if (s) {
        *s = (struct tree_socket){.watch = {.fd = fd, .ready = ready}, .stream = stream, .tree = tree, .peer = peer};
        s->out = tutti_alloc(TREE_OUT);
    }
    if (!s || !s->out || tutti_loop_watch(loop_of(tree), &s->watch, EPOLLIN) < 0) {
        if (s) tutti_free(s->out);
        tutti_free(s);
        tutti_stream_close(stream);
        close(fd);
        tutti_tree_unreachable(&tree->machine, peer, false, tutti_now_ns());
        return;
    }
    tree->sockets[peer] = s;
    tutti_tree_linked(&tree->machine, peer, tutti_now_ns());
    if (tree->sockets[peer] == s && stream) in_read(tree, s); /* the stream may hold something already */
}

/* A member whose send buffer is full counts as silent: we send nothing until it drains. */
void tree_socket_send(struct tree *tree, uint32_t peer, const uint8_t *bytes, size_t n)
{
    struct tree_socket *s = tree->sockets[peer];
    ssize_t sent = 0;
    if (!s) return;
    struct iovec iov = {(void *)(uintptr_t)bytes, n};
    if (s->n_out == 0) sent = tutti_stream_send(s->stream, s->watch.fd, &iov, 1);
    if (sent < 0) sent = 0;
    if ((size_t)sent == n || n - (size_t)sent > TREE_OUT - s->n_out) return;
    if (s->n_out == 0) tutti_loop_change(loop_of(tree), &s->watch, EPOLLIN | EPOLLOUT);
    memcpy(s->out + s->n_out, bytes + sent, n - (size_t)sent);
    s->n_out += (uint32_t)(n - (size_t)sent);
}
