/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_PAIRS_TEST_H
#define TUTTI_TRANSPORT_PAIRS_TEST_H

/* A dialer for tests of networks: members of one process that are wanted by one another get the two ends of a
 * connection over the loopback, at once. A member that is not open yet finds its end when it opens. */

#include "transport/ofi/ofi.h"
#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

struct pairs;
struct pairs_end {
    struct tutti_dialer dialer; /* first */
    struct pairs *pairs;
    uint32_t me, n_dials;
};
struct pairs {
    uint32_t n;
    int family;           /* AF_INET, AF_INET6 */
    bool mute;            /* nobody is connected when it is wanted */
    uint32_t paths;       /* transport tcp: each connection has so many more sockets */
    const char *provider; /* for transport ofi; NULL: transport tcp */
    const char *domain;   /* ... over these rails */
    bool registers;       /* ... registers all memory */
    bool writes;          /* ... writes large payloads */
    pthread_mutex_t lock;
    struct pairs_end *ends;
    struct tutti_transport **open;
    bool *left;
    int *fds; /* me * n + peer: the end of `me`, plus one; -1: it was handed over; 0: there is none */
};

/* A connection over the loopback. */
static inline void pairs_connect(int family, int fds[2])
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr *address = family == AF_INET6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t bytes = family == AF_INET6 ? sizeof(v6) : sizeof(v4);
    int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, address, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, address, &bytes), 0);
    fds[0] = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], address, bytes), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fds[1] >= 0);
    close(listener);
}

/* With the lock. */
static inline void pairs_hand_over(struct pairs *pairs, uint32_t me, uint32_t peer)
{
    int *fd = &pairs->fds[me * pairs->n + peer];
    if (*fd <= 0) return;
    if (pairs->open[me])
        (pairs->provider ? tutti_ofi_connected : tutti_tcp_connected)(pairs->open[me], peer, *fd - 1, NULL);
    else if (pairs->left[me])
        close(*fd - 1);
    else
        return;
    *fd = -1;
}

/* One more socket between two that are open. */
static inline void pairs_path(struct pairs *pairs, uint32_t a, uint32_t b)
{
    int fds[2];
    pairs_connect(pairs->family, fds);
    tutti_tcp_path_connected(pairs->open[a], b, fds[0], NULL);
    tutti_tcp_path_connected(pairs->open[b], a, fds[1], NULL);
}

static inline void pairs_make(struct pairs *pairs, uint32_t a, uint32_t b)
{
    int fds[2];
    pthread_mutex_lock(&pairs->lock);
    if (pairs->fds[a * pairs->n + b] == 0) {
        pairs_connect(pairs->family, fds);
        pairs->fds[a * pairs->n + b] = fds[0] + 1, pairs->fds[b * pairs->n + a] = fds[1] + 1;
        pairs_hand_over(pairs, a, b);
        pairs_hand_over(pairs, b, a);
        for (uint32_t i = 0; i < pairs->paths && pairs->open[a] && pairs->open[b]; i++) pairs_path(pairs, a, b);
    }
    pthread_mutex_unlock(&pairs->lock);
}

static inline void pairs_dial(struct tutti_dialer *dialer, uint32_t peer)
{
    struct pairs_end *end = (struct pairs_end *)(void *)dialer;
    end->n_dials++;
    if (!end->pairs->mute) pairs_make(end->pairs, end->me, peer);
}

static inline struct pairs *pairs_new(uint32_t n, int family)
{
    struct pairs *pairs = calloc(1, sizeof(*pairs));
    pairs->n = n, pairs->family = family;
    pairs->ends = calloc(n, sizeof(*pairs->ends)), pairs->open = calloc(n, sizeof(*pairs->open));
    pairs->left = calloc(n, 1), pairs->fds = calloc((size_t)n * n, sizeof(int));
    pthread_mutex_init(&pairs->lock, NULL);
    return pairs;
}

static inline enum tutti_status pairs_open(struct pairs *pairs, uint32_t me, struct tutti_transport **out)
{
    struct tutti_tcp_config config = {.n = pairs->n, .me = me};
    if (me < pairs->n) {
        pairs->ends[me] = (struct pairs_end){.dialer = {.dial = pairs_dial}, .pairs = pairs, .me = me};
        config.dialer = &pairs->ends[me].dialer;
    }
    const struct tutti_ofi_config ofi = {.n = pairs->n,
                                         .me = me,
                                         .dialer = config.dialer,
                                         .provider = pairs->provider,
                                         .domain = pairs->domain ? pairs->domain : "",
                                         .address = "",
                                         .writes = pairs->writes,
                                         .registers = pairs->registers};
    TUTTI_TRY(pairs->provider ? tutti_ofi_open(&ofi, out) : tutti_tcp_open(&config, out));
    pthread_mutex_lock(&pairs->lock);
    pairs->open[me] = *out;
    for (uint32_t peer = 0; peer < pairs->n; peer++) pairs_hand_over(pairs, me, peer);
    pthread_mutex_unlock(&pairs->lock);
    return TUTTI_OK;
}

/* To be called before the member closes. */
static inline void pairs_leave(struct pairs *pairs, uint32_t me)
{
    pthread_mutex_lock(&pairs->lock);
    pairs->open[me] = NULL, pairs->left[me] = true;
    pthread_mutex_unlock(&pairs->lock);
}

static inline void pairs_free(struct pairs *pairs)
{
    for (uint32_t i = 0; i < pairs->n * pairs->n; i++)
        if (pairs->fds[i] > 0) close(pairs->fds[i] - 1);
    pthread_mutex_destroy(&pairs->lock);
    free(pairs->ends), free(pairs->open), free(pairs->left), free(pairs->fds);
    free(pairs);
}

#endif
