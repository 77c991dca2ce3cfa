/* SPDX-License-Identifier: BSD-3-Clause */

/* Descriptors of memory between processes of one user. The importer takes a copy from the exporter by pidfd_getfd,
 * which asks nobody there, but takes the permission to trace it. Where the system refuses that (Yama, seccomp), it asks
 * the exporter: a thread there listens at an abstract socket whose name has the process's number, and gives a copy of
 * what is offered, by the number of its file, to processes of the same user. */

#include "device/level_zero/driver.h"

#include <errno.h>
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
#define BACKLOG 128
#define PATIENCE_S 2 /* with who has connected */
#define ANSWER_S 10  /* of a process that may be busy */

struct offered {
    struct offered *next;
    int descriptor;
    uint64_t file;
    size_t n_offers;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct offered *all;
static bool listens;

/* ---- sockets ---- */

static socklen_t name_of(int32_t pid, struct sockaddr_un *out)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    const int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "tutti.xpu.%d", (int)pid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int socket_open(time_t patience_s)
{
    const int opened = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const struct timeval patience = {.tv_sec = patience_s};
    if (opened >= 0) {
        setsockopt(opened, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(opened, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    }
    return opened;
}

static bool is_same_user(int peer)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
};

/* ---- the exporter ---- */

/* Under the lock. */
static struct offered **find(uint64_t file)
{
    struct offered **at = &all;
    while (*at && (*at)->file != file) at = &(*at)->next;
    return at;
}

/* A byte, with the descriptor if it is offered. */
static void answer(int peer)
{
    uint64_t file = 0;
    char known = 0;
    union control control = {
        .head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec byte = {&known, 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1};
    if (!is_same_user(peer) || recv(peer, &file, sizeof file, 0) != (ssize_t)sizeof file) return;
    pthread_mutex_lock(&lock);
    const struct offered *offered = *find(file);
    struct stat what; /* its number may have come to mean something else, when memory is freed that is offered */
    if (offered && fstat(offered->descriptor, &what) == 0 && (uint64_t)what.st_ino == file) {
        known = 1;
        memcpy(CMSG_DATA(&control.head), &offered->descriptor, sizeof(int));
        message.msg_control = &control, message.msg_controllen = sizeof control.room;
    }
    (void)sendmsg(peer, &message, MSG_NOSIGNAL); /* the kernel copies it before anybody withdraws it */
    pthread_mutex_unlock(&lock);
}

static void *serve(void *arg)
{
    const int door = (int)(intptr_t)arg;
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    for (;;) {
        const int peer = accept4(door, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0) {
            tutti_sleep_ns(TUTTI_NS_PER_MS); /* no descriptor is left, or nobody was there after all */
            continue;
        }
        setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        answer(peer);
        close(peer);
    }
    return NULL;
}

/* Under the lock. Without it there is still the other way. */
static void listen_once(void)
{
    struct sockaddr_un name;
    pthread_t thread;
    if (listens) return;
    const int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const socklen_t n = name_of(getpid(), &name);
    listens = door >= 0 && bind(door, (struct sockaddr *)&name, n) == 0 && listen(door, BACKLOG) == 0 &&
              tutti_thread_start(&thread, STACK_BYTES, serve, (void *)(intptr_t)door) == 0;
    if (listens)
        pthread_detach(thread);
    else if (door >= 0)
        close(door);
}

bool xpu_descriptor_offer(int descriptor, uint64_t *file)
{
    struct stat what;
    if (fstat(descriptor, &what) < 0) return false;
    *file = (uint64_t)what.st_ino;
    pthread_mutex_lock(&lock);
    struct offered **at = find(*file);
    if (!*at && (*at = tutti_alloc(sizeof **at))) **at = (struct offered){.descriptor = descriptor, .file = *file};
    if (*at) (*at)->n_offers++;
    listen_once();
    pthread_mutex_unlock(&lock);
    return true;
}

bool xpu_descriptor_withdraw(uint64_t file)
{
    pthread_mutex_lock(&lock);
    struct offered **at = find(file), *gone = *at;
    const bool last = gone && --gone->n_offers == 0;
    if (last) {
        *at = gone->next;
        tutti_free(gone);
    }
    pthread_mutex_unlock(&lock);
    return last;
}

/* ---- the importer ---- */

/* -1, with errno. */
static int by_trace(int32_t pid, int descriptor)
{
    const int process = pid > 0 ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : (errno = ESRCH, -1);
    if (process < 0) return -1;
    const int taken = (int)syscall(SYS_pidfd_getfd, process, descriptor, 0), why = errno;
    close(process);
    errno = why;
    return taken;
}

static int receive(int peer)
{
    char known = 0;
    int taken = -1;
    union control control;
    struct iovec byte = {&known, 1};
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    errno = ECONNRESET; /* unless it says more */
    if (recvmsg(peer, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (known && head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&taken, CMSG_DATA(head), sizeof taken);
    errno = EBADF; /* it is not offered there */
    return taken;
}

static int by_asking(int32_t pid, uint64_t file)
{
    struct sockaddr_un name;
    const socklen_t n = name_of(pid, &name);
    const int peer = socket_open(ANSWER_S);
    int taken = -1;
    if (peer < 0) return -1;
    if (connect(peer, (struct sockaddr *)&name, n) == 0 && is_same_user(peer) &&
        send(peer, &file, sizeof file, MSG_NOSIGNAL) == (ssize_t)sizeof file)
        taken = receive(peer);
    const int why = errno;
    close(peer);
    errno = why;
    return taken;
}

static enum tutti_status fail(int32_t pid, int why, int why_not_asked)
{
    if (why == EBADF || why == ESRCH)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "device memory of process %d can not be had: it is not there (any more), or the process is "
                          "another one here",
                          (int)pid);
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "device memory of process %d can not be had: pidfd_getfd: %s (it takes the permission to trace: "
                      "kernel.yama.ptrace_scope, and what a container may), and the process does not give it: %s",
                      (int)pid, strerror(why), strerror(why_not_asked));
}

enum tutti_status xpu_descriptor_take(int32_t pid, int descriptor, uint64_t file, int *out)
{
    struct stat what;
    int taken = by_trace(pid, descriptor);
    const int why = errno;
    if (taken < 0 && why != EBADF && why != ESRCH) {
        taken = by_asking(pid, file);
        if (taken < 0) return fail(pid, errno == EBADF ? EBADF : why, errno);
    }
    if (taken < 0) return fail(pid, why, 0);
    if (fstat(taken, &what) < 0 || (uint64_t)what.st_ino != file) {
        close(taken);
        return fail(pid, EBADF, 0);
    }
    *out = taken;
    return TUTTI_OK;
}
