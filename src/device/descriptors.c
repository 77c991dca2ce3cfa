/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors between processes of one user. The importer takes a copy from the exporter by pidfd_getfd, which asks
 * nobody there, but takes the permission to trace it. Where the system refuses that (Yama, seccomp), it asks the
 * exporter, where a thread answers at a socket of datagrams: a question is the offer's key, an answer the descriptor.
 *
 * Other users can neither have a descriptor nor keep one from its owner. The socket's name has a random number, which
 * travels in the offer, so nobody can take it first; the kernel says of each datagram which user sent it; and there is
 * no connection that could be held open. */

#include "device/share.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define STACK_BYTES ((size_t)64 << 10)
#define ANSWER_S 10 /* of a process that may be busy */

struct offered {
    struct offered *next;
    struct stat first; /* the first one's: it may be closed, and mean something else, while it is offered */
    uint64_t key;      /* the first one's */
    size_t n, n_offers;
    int descriptors[];
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct offered *all;
static uint64_t door; /* 0: nobody listens */
static int32_t door_pid;

/* ---- sockets ---- */
static socklen_t name_of(int32_t pid, uint64_t number, struct sockaddr_un *out)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    const int n =
        snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "tutti.%d.%016llx", (int)pid, (unsigned long long)number);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* A socket with a name of its own, of which each datagram says who sent it. -1, with errno. */
static int socket_open(const struct sockaddr_un *name, socklen_t bytes)
{
    const int on = 1, opened = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (opened < 0) return -1;
    if (setsockopt(opened, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
        bind(opened, (const struct sockaddr *)name, bytes) == 0)
        return opened;
    const int why = errno;
    close(opened);
    errno = why;
    return -1;
}

union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

/* The datagram's length; -1, with errno, also of one that another user sent. *descriptor: what came with it, or -1. */
static ssize_t receive(int from, struct msghdr *message, int *descriptor)
{
    bool own = false;
    *descriptor = -1;
    const ssize_t n = recvmsg(from, message, MSG_CMSG_CLOEXEC);
    for (struct cmsghdr *head = n < 0 ? NULL : CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        struct ucred sender;
        if (head->cmsg_level != SOL_SOCKET) continue;
        if (head->cmsg_type == SCM_CREDENTIALS && head->cmsg_len == CMSG_LEN(sizeof sender)) {
            memcpy(&sender, CMSG_DATA(head), sizeof sender);
            own = sender.uid == geteuid();
        } else if (head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof *descriptor)) {
            memcpy(descriptor, CMSG_DATA(head), sizeof *descriptor);
        }
    }
    if (n >= 0 && own) return n;
    if (n >= 0) errno = EPERM;
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
    return -1;
}

/* ---- the exporter ---- */
/* Under the lock. */
static struct offered **find(uint64_t key)
{
    struct offered **at = &all;
    while (*at && key - (*at)->key >= (*at)->n) at = &(*at)->next;
    return at;
}

/* Under the lock. -1: it is not offered. */
static int descriptor_of(uint64_t key)
{
    const struct offered *offered = *find(key);
    struct stat now;
    if (!offered) return -1;
    if (key != offered->key) return offered->descriptors[key - offered->key];
    const bool same = fstat(offered->descriptors[0], &now) == 0 && now.st_ino == offered->first.st_ino &&
                      now.st_dev == offered->first.st_dev;
    return same ? offered->descriptors[0] : -1;
}

/* A byte, with the descriptor if it is offered; key NULL: another user asks. Never waits: an importer that does not
 * read gets nothing. */
static void answer(int by, struct sockaddr_un *importer, socklen_t importer_bytes, const uint64_t *key)
{
    char known = 0;
    union control control = {
        .head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec byte = {&known, 1};
    struct msghdr message = {.msg_name = importer, .msg_namelen = importer_bytes, .msg_iov = &byte, .msg_iovlen = 1};
    pthread_mutex_lock(&lock);
    const int descriptor = key ? descriptor_of(*key) : -1;
    if (descriptor >= 0) {
        known = 1;
        memcpy(CMSG_DATA(&control.head), &descriptor, sizeof descriptor);
        message.msg_control = &control, message.msg_controllen = CMSG_SPACE(sizeof(int));
    }
    (void)sendmsg(by, &message, MSG_NOSIGNAL | MSG_DONTWAIT); /* copied before anybody can withdraw it */
    pthread_mutex_unlock(&lock);
}

static void *serve(void *arg)
{
    const int by = (int)(intptr_t)arg;
    for (;;) {
        uint64_t key;
        int unwanted;
        union control control;
        struct sockaddr_un importer;
        struct iovec question = {&key, sizeof key};
        struct msghdr message = {.msg_name = &importer,
                                 .msg_namelen = sizeof importer,
                                 .msg_iov = &question,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof control};
        const ssize_t n = receive(by, &message, &unwanted);
        if (unwanted >= 0) close(unwanted);
        if (n == (ssize_t)sizeof key)
            answer(by, &importer, message.msg_namelen, &key);
        else if (n < 0 && errno == EPERM)
            answer(by, &importer, message.msg_namelen, NULL);
        else if (n < 0)
            tutti_sleep_ns(TUTTI_NS_PER_MS); /* memory is short, say */
    }
    return NULL;
}

/* Under the lock. Without a door there is still the other way. */
static void door_open(void)
{
    struct sockaddr_un name;
    pthread_t thread;
    uint64_t number = 0;
    if (door && door_pid == getpid()) return;
    door = 0;
    if (tutti_random_bytes(&number, sizeof number) < 0 || number == 0) return;
    const socklen_t n = name_of(getpid(), number, &name);
    const int by = socket_open(&name, n);
    if (by >= 0 && tutti_thread_start(&thread, STACK_BYTES, serve, (void *)(intptr_t)by) == 0) {
        pthread_detach(thread);
        door = number, door_pid = getpid();
    } else if (by >= 0) {
        close(by);
    }
}

bool tutti_descriptor_offer(const int *descriptors, size_t n, uint64_t key, struct tutti_descriptor *out)
{
    struct stat first;
    if (n == 0 || fstat(descriptors[0], &first) < 0) return false;
    pthread_mutex_lock(&lock);
    struct offered *offered = *find(key);
    if (!offered && (offered = tutti_alloc(sizeof *offered + n * sizeof *descriptors))) {
        offered->next = all, offered->first = first, offered->key = key, offered->n = n;
        memcpy(offered->descriptors, descriptors, n * sizeof *descriptors);
        all = offered;
    }
    if (offered) offered->n_offers++;
    door_open();
    *out = (struct tutti_descriptor){.pid = getpid(), .descriptor = descriptors[0], .door = door, .key = key};
    pthread_mutex_unlock(&lock);
    return offered != NULL;
}

bool tutti_descriptor_withdraw(uint64_t key)
{
    pthread_mutex_lock(&lock);
    struct offered **at = find(key), *gone = *at;
    const bool last = gone && --gone->n_offers == 0;
    if (last) {
        *at = gone->next;
        tutti_free(gone);
    }
    pthread_mutex_unlock(&lock);
    return last;
}

/* ---- the importer; -1, with errno ---- */
static int by_trace(const struct tutti_descriptor *offer)
{
    const int process = offer->pid > 0 ? (int)syscall(SYS_pidfd_open, (pid_t)offer->pid, 0) : (errno = ESRCH, -1);
    if (process < 0) return -1;
    const int taken = (int)syscall(SYS_pidfd_getfd, process, offer->descriptor, 0), why = errno;
    close(process);
    errno = why;
    return taken;
}

/* A socket that is connected takes datagrams of its peer alone. */
static int by_asking(const struct tutti_descriptor *offer)
{
    struct sockaddr_un there, own = {.sun_family = AF_UNIX}; /* no name: the kernel finds one */
    const struct timeval patience = {.tv_sec = ANSWER_S};
    const socklen_t n = name_of(offer->pid, offer->door, &there);
    char known = 0;
    int taken = -1;
    union control control;
    struct iovec byte = {&known, 1};
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    const int by = offer->door ? socket_open(&own, sizeof own.sun_family) : (errno = ECONNREFUSED, -1);
    if (by < 0) return -1;
    setsockopt(by, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(by, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(by, (struct sockaddr *)&there, n) == 0 &&
        send(by, &offer->key, sizeof offer->key, MSG_NOSIGNAL) == (ssize_t)sizeof offer->key &&
        receive(by, &message, &taken) == 1 && taken < 0)
        errno = EBADF; /* it is not offered there */
    const int why = errno;
    close(by);
    errno = why;
    return taken;
}

enum tutti_status tutti_descriptor_gone(const struct tutti_descriptor *offer)
{
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "device memory of process %d can not be had by descriptor: it is not there (any more), or the "
                      "process is another one here",
                      (int)offer->pid);
}

enum tutti_status tutti_descriptor_take(const struct tutti_descriptor *offer, int *out)
{
    *out = by_trace(offer);
    if (*out >= 0) return TUTTI_OK;
    const int why = errno;
    if (why == EBADF || why == ESRCH) return tutti_descriptor_gone(offer);
    *out = by_asking(offer);
    if (*out >= 0) return TUTTI_OK;
    if (errno == EBADF) return tutti_descriptor_gone(offer);
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "device memory of process %d can not be had by descriptor: pidfd_getfd: %s (it takes the "
                      "permission to trace: kernel.yama.ptrace_scope, and what a container may), and the process does "
                      "not give it: %s",
                      (int)offer->pid, strerror(why), strerror(errno));
}
