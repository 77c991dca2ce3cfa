/* SPDX-License-Identifier: BSD-3-Clause */

/* The connections of witness.h; all but open and close is on the network's thread. */

#include "control/tree/witness.h"

#include "control/net/net.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

struct witness {
    struct tutti_loop_fd watch; /* first; fd -1: there is none */
    struct tutti_witnesses *all;
};
struct tutti_witnesses {
    uint32_t me, n;
    const struct tutti_hosts *hosts;
    struct tutti_control *tree;
    struct tutti_net *net;
    bool over;              /* this member has said goodbye */
    struct witness peers[]; /* n */
};

static void goodbye(int fd)
{
    const char byte = 'L';
    (void)send(fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void witness_end(struct witness *witness)
{
    if (witness->watch.fd < 0) return;
    tutti_loop_forget(tutti_net_loop(witness->all->net), &witness->watch);
    goodbye(witness->watch.fd);
    witness->watch.fd = -1;
}

static void ready(struct tutti_loop_fd *watch, uint32_t events)
{
    struct witness *witness = (struct witness *)(void *)watch;
    struct tutti_witnesses *w = witness->all;
    char byte;
    (void)events;
    const ssize_t n = recv(watch->fd, &byte, 1, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    witness_end(witness);
    if (n == 0) tutti_tree_closed(w->tree, (uint32_t)(witness - w->peers));
}

void tutti_witnesses_opened(struct tutti_witnesses *w, uint32_t peer, int fd)
{
    struct witness *witness = &w->peers[peer];
    witness_end(witness); /* a newer one takes its place */
    witness->watch.fd = fd;
    if (!w->over && tutti_loop_watch(tutti_net_loop(w->net), &witness->watch, EPOLLIN) == TUTTI_OK) return;
    witness->watch.fd = -1;
    goodbye(fd);
}

static void begin(void *arg)
{
    struct tutti_witnesses *w = arg;
    for (uint32_t i = 0; i < w->me; i++) /* the higher one dials */
        if (w->hosts->members[i].host != w->hosts->members[w->me].host)
            (void)tutti_net_dial(w->net, TUTTI_NET_WITNESS, i);
}

static void end(void *arg)
{
    struct tutti_witnesses *w = arg;
    w->over = true;
    for (uint32_t i = 0; i < w->n; i++) witness_end(&w->peers[i]);
}

void tutti_witnesses_attach(struct tutti_witnesses *w, struct tutti_net *net)
{
    w->net = net;
    tutti_loop_run(tutti_net_loop(net), begin, w);
}

void tutti_witnesses_detach(struct tutti_witnesses *w)
{
    tutti_loop_run(tutti_net_loop(w->net), end, w);
}

enum tutti_status tutti_witnesses_open(uint32_t me, const struct tutti_hosts *hosts, struct tutti_control *tree,
                                       struct tutti_witnesses **out)
{
    const uint32_t n = hosts->n_members;
    struct tutti_witnesses *w = tutti_alloc(sizeof *w + n * sizeof w->peers[0]);
    if (!w) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for connections to %u members", n);
    *w = (struct tutti_witnesses){.me = me, .n = n, .hosts = hosts, .tree = tree};
    for (uint32_t i = 0; i < n; i++) w->peers[i] = (struct witness){.watch = {.fd = -1, .ready = ready}, .all = w};
    *out = w;
    return TUTTI_OK;
}

void tutti_witnesses_close(struct tutti_witnesses *w)
{
    tutti_free(w);
}
