/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_TREE_EDGE_H
#define TUTTI_CONTROL_TREE_EDGE_H

/* The machine's edge. tree.c is the control that others see, whose calls come from any thread; socket.c the links, on
 * the thread of the network. What passes between the two is under one lock: failures that were told, failures and
 * questions that wait for the network's thread, boards that came. */

#include "control/net/net.h"
#include "control/tree/machine.h"
#include "control/tree/tree.h"

#include <pthread.h>

enum {
    TREE_FAILURES = 512,
    TREE_RAISES = 64,
    TREE_QUESTIONS = 64,
    TREE_BOARDS = 1024,
    TREE_PROBES = 16,
    TREE_OUT = 1 << 18
};

struct tree_socket {
    struct tutti_loop_fd watch;  /* first */
    struct tutti_stream *stream; /* that encrypts; NULL: in the clear */
    struct tree *tree;
    uint32_t peer;
    uint32_t n_in, n_out;
    uint8_t in[2 * TUTTI_TREE_FRAME_MAX];
    uint8_t *out; /* TREE_OUT bytes: what the socket has not taken yet */
};

/* A board that was asked for. */
struct tree_board {
    uint32_t peer, slot;
    bool used, here;
    uint64_t asked_ns, looked_ns;
    struct tutti_board board;
};

struct tree {
    struct tutti_control base; /* first */
    struct tutti_control *inner;
    const struct tutti_hosts *hosts;
    uint32_t host; /* this member's */
    struct tutti_net *net;
    struct tutti_tree_machine machine;
    struct tree_socket **sockets; /* n; NULL: no link */
    uint8_t *left_ticks;          /* looks since each member of this host left */
    struct tutti_loop_timer timer;
    struct tutti_loop_post post;
    bool may_leave;         /* the network's thread, while `detach` waits for it */
    bool over;              /* this member has left; the network's thread */
    _Atomic uint32_t alarm; /* failures told so far */

    pthread_mutex_t lock; /* guards all below */
    struct tutti_failure failures[TREE_FAILURES], raises[TREE_RAISES];
    uint32_t n_failures, failures_read, n_raises, n_questions;
    struct tree_board boards[TREE_BOARDS];
    struct tutti_tree_question questions[TREE_QUESTIONS];
    void (*wake)(void *arg);
    void *wake_arg;
};
static inline struct tree *tree_of(struct tutti_control *c)
{
    return (struct tree *)(void *)c;
}

/* socket.c, on the network's thread */
void tree_socket_open(struct tree *tree, uint32_t peer, int fd, struct tutti_stream *stream);
void tree_socket_send(struct tree *tree, uint32_t peer, const uint8_t *bytes, size_t n);
void tree_socket_close(struct tree *tree, uint32_t peer);

#endif
