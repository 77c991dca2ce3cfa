/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of members. A member writes its process and the time that process started when it opens, and that it left
 * when it closes. A peer's process is watched through a pidfd, which never speaks of another process with the same
 * number; where there is none (old kernels, sandboxes, no descriptors left), /proc tells. */

#include "control/host/host.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* 0 when unknown. */
static uint64_t own_pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

void tutti_host_life_look(struct tutti_host_control *host)
{
    host->pid = (int32_t)getpid();
    host->pid_namespace = own_pid_namespace();
}

enum tutti_status tutti_host_life_init(struct tutti_host_control *host)
{
    struct tutti_host_life *member = &host->lives[host->base.me];
    struct tutti_process process = {.start = 0}; /* 0: no /proc, nobody compares */
    tutti_host_life_look(host);
    tutti_process_read(host->pid, &process);
    if (atomic_load_explicit(&member->state, memory_order_acquire) != TUTTI_MEMBER_ABSENT)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u is open already, or has left", host->base.me);
    atomic_store_explicit(&member->pid, host->pid, memory_order_relaxed);
    atomic_store_explicit(&member->start, process.start, memory_order_relaxed);
    atomic_store_explicit(&member->pid_namespace, host->pid_namespace, memory_order_relaxed);
    atomic_store_explicit(&member->state, TUTTI_MEMBER_OPEN, memory_order_release);
    return TUTTI_OK;
}

void tutti_host_life_fini(struct tutti_host_control *host)
{
    struct tutti_host_life *member = &host->lives[host->base.me];
    atomic_store_explicit(&member->state, TUTTI_MEMBER_LEFT, memory_order_release);
    tutti_host_life_forget(host);
}

void tutti_host_life_forget(struct tutti_host_control *host)
{
    for (uint32_t i = 0; i < host->base.n && host->n_pidfds > 0; i++)
        if (host->known[i].pidfd_plus_one > 0) close(host->known[i].pidfd_plus_one - 1);
}

/* The peer's pidfd, opened at the first look; -1 with errno. Of two threads that open it at once, one keeps its own. */
static int pidfd_get(struct tutti_host_control *host, struct tutti_host_known *p, int32_t pid)
{
    int32_t known = atomic_load_explicit(&p->pidfd_plus_one, memory_order_acquire);
    if (known > 0) return known - 1;
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by itself */
    if (fd < 0) return -1;
    if (!atomic_compare_exchange_strong_explicit(&p->pidfd_plus_one, &known, fd + 1, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        close(fd);
        return known - 1;
    }
    atomic_fetch_add_explicit(&host->n_pidfds, 1, memory_order_relaxed);
    return fd;
}

static bool process_alive(struct tutti_host_control *host, struct tutti_host_known *p, int32_t pid, uint64_t start)
{
    const bool first = atomic_load_explicit(&p->pidfd_plus_one, memory_order_acquire) == 0;
    const int fd = pidfd_get(host, p, pid);
    if (fd < 0) return errno != ESRCH && tutti_process_alive(pid, start);
    if (first && !tutti_process_alive(pid, start)) return false; /* the number was reused before we held it */
    struct pollfd event = {.fd = fd, .events = POLLIN};
    return poll(&event, 1, 0) <= 0; /* readable: terminated, reaped or not */
}

enum tutti_life tutti_host_life(struct tutti_control *c, uint32_t peer)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    if (peer >= c->n) return TUTTI_LIFE_DEAD;
    struct tutti_host_known *p = &host->known[peer];
    struct tutti_host_life *member = &host->lives[peer];
    uint32_t state = atomic_load_explicit(&member->state, memory_order_acquire);
    if (state == TUTTI_MEMBER_LEFT) return TUTTI_LIFE_LEFT;
    if (atomic_load_explicit(&p->dead, memory_order_relaxed)) return TUTTI_LIFE_DEAD;
    if (state == TUTTI_MEMBER_ABSENT) return TUTTI_LIFE_ALIVE; /* not there yet: whoever waits has a deadline */
    int32_t pid = atomic_load_explicit(&member->pid, memory_order_relaxed);
    if (pid == host->pid) return TUTTI_LIFE_ALIVE;
    /* A number from another namespace means nothing here. */
    if (atomic_load_explicit(&member->pid_namespace, memory_order_relaxed) != host->pid_namespace)
        return TUTTI_LIFE_ALIVE;
    if (pid > 0 && process_alive(host, p, pid, atomic_load_explicit(&member->start, memory_order_relaxed)))
        return TUTTI_LIFE_ALIVE;
    /* It may have left between our two looks: a clean goodbye counts. */
    if (atomic_load_explicit(&member->state, memory_order_acquire) == TUTTI_MEMBER_LEFT) return TUTTI_LIFE_LEFT;
    atomic_store_explicit(&p->dead, true, memory_order_relaxed);
    return TUTTI_LIFE_DEAD;
}
