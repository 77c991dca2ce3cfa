/* SPDX-License-Identifier: BSD-3-Clause */
/* A lookup belongs to its thread and to its caller: the last of them frees it. */
#include "ft/rpc/lookup.h"

#include "ft/rpc/wire.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct rpc_lookup {
    struct tutti_loop_fd watch; /* first; of an eventfd, which the thread sets when it is done */
    struct tutti_loop *loop;
    void (*ready)(void *arg);
    void *arg;
    _Atomic uint32_t refs;
    char host[RPC_HOST], port[RPC_PORT];
    int wrong;
    struct addrinfo *found;
};

static void give(struct rpc_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->refs, 1) > 1) return;
    if (lookup->found) freeaddrinfo(lookup->found);
    close(lookup->watch.fd);
    tutti_free(lookup);
}

static void *look(void *arg)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct rpc_lookup *lookup = arg;

    lookup->wrong = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->found);
    if (lookup->wrong != 0) lookup->found = NULL;
    eventfd_write(lookup->watch.fd, 1);
    give(lookup);
    return NULL;
}

static void on_ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct rpc_lookup *lookup = (struct rpc_lookup *)w;

    (void)events;
    lookup->ready(lookup->arg);
}

static enum tutti_status start(struct rpc_lookup *lookup)
{
    pthread_attr_t attributes;
    pthread_t thread;

    lookup->watch.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lookup->watch.fd < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not look for %s", lookup->host);
    TUTTI_TRY(tutti_loop_watch(lookup->loop, &lookup->watch, EPOLLIN));
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    atomic_store(&lookup->refs, 2);
    const int wrong = pthread_create(&thread, &attributes, look, lookup);
    pthread_attr_destroy(&attributes);
    if (wrong == 0) return TUTTI_OK;
    atomic_store(&lookup->refs, 1);
    tutti_loop_forget(lookup->loop, &lookup->watch);
    errno = wrong;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not look for %s", lookup->host);
}

enum tutti_status rpc_lookup_start(struct tutti_loop *loop, const char *host, const char *port,
                                   void (*ready)(void *arg), void *arg, struct rpc_lookup **out)
{
    struct rpc_lookup *lookup = tutti_alloc(sizeof(*lookup));

    if (!lookup) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a host's address");
    lookup->watch.ready = on_ready;
    lookup->loop = loop;
    lookup->ready = ready;
    lookup->arg = arg;
    lookup->refs = 1;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    snprintf(lookup->port, sizeof lookup->port, "%s", port);
    const enum tutti_status status = start(lookup);
    if (status >= 0)
        *out = lookup;
    else
        give(lookup);
    return status;
}

struct addrinfo *rpc_lookup_take(struct rpc_lookup *lookup, const char **why)
{
    struct addrinfo *found = lookup->found;

    *why = found ? "" : gai_strerror(lookup->wrong); /* a text of the C library, for ever */
    lookup->found = NULL;
    rpc_lookup_drop(lookup);
    return found;
}

void rpc_lookup_drop(struct rpc_lookup *lookup)
{
    if (!lookup) return;
    tutti_loop_forget(lookup->loop, &lookup->watch);
    give(lookup);
}

struct addrinfo *rpc_lookup_numeric(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found;

    return getaddrinfo(host, port, &hints, &found) == 0 ? found : NULL;
}
