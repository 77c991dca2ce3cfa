/* SPDX-License-Identifier: BSD-3-Clause */

/* The control of one host: lives of its members, opening and closing. */

#include "control/host.h"

#include "control/asks.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- lives ----
 * A member writes its process and when that began when it opens, and that it left when it closes. A peer's process is
 * watched through a pidfd, which never speaks of another process with the same number; where there is none (old
 * kernels, sandboxes, no descriptors left), /proc tells. The lock of the segment tells of a process that executes
 * another program, and of one whose number means nothing here. */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* What an observer needs to know of itself, too. */
static void life_observe(struct tutti_host_control *host)
{
    host->pid = (int32_t)getpid();
    host->pid_namespace = tutti_process_namespace();
}

static enum tutti_status life_init(struct tutti_host_control *host)
{
    struct tutti_host_life *member = &host->lives[host->base.me];
    struct tutti_process process = {.start = 0}; /* 0: no /proc, nobody compares */
    life_observe(host);
    tutti_process_read(host->pid, &process);
    if (atomic_load_explicit(&member->state, memory_order_acquire) != TUTTI_MEMBER_ABSENT)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u is open already, or has left", host->base.me);
    atomic_store_explicit(&member->held, tutti_segment_hold(host->segment, host->base.me), memory_order_relaxed);
    atomic_store_explicit(&member->pid, host->pid, memory_order_relaxed);
    atomic_store_explicit(&member->start, process.start, memory_order_relaxed);
    atomic_store_explicit(&member->pid_namespace, host->pid_namespace, memory_order_relaxed);
    atomic_store_explicit(&member->state, TUTTI_MEMBER_OPEN, memory_order_release);
    return TUTTI_OK;
}

/* its end */
static void life_forget(struct tutti_host_control *host)
{
    for (uint32_t i = 0; i < host->base.n && host->n_pidfds > 0; i++)
        if (host->known[i].pidfd_plus_one > 0) close(host->known[i].pidfd_plus_one - 1);
}

static void life_fini(struct tutti_host_control *host)
{
    struct tutti_host_life *member = &host->lives[host->base.me];
    atomic_store_explicit(&member->state, TUTTI_MEMBER_LEFT, memory_order_release);
    life_forget(host);
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

static enum tutti_life host_life(struct tutti_control *c, uint32_t peer)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    if (peer >= c->n) return TUTTI_LIFE_DEAD;
    struct tutti_host_known *p = &host->known[peer];
    struct tutti_host_life *member = &host->lives[peer];
    uint32_t state = atomic_load_explicit(&member->state, memory_order_acquire);
    if (state == TUTTI_MEMBER_LEFT) return TUTTI_LIFE_LEFT;
    if (atomic_load_explicit(&p->dead, memory_order_relaxed)) return TUTTI_LIFE_DEAD;
    if (state == TUTTI_MEMBER_ABSENT) return TUTTI_LIFE_ALIVE; /* not there yet: whoever waits has a deadline */
    const int32_t pid = atomic_load_explicit(&member->pid, memory_order_relaxed);
    /* A number from another namespace means nothing here. */
    const bool numbered =
        atomic_load_explicit(&member->pid_namespace, memory_order_relaxed) == host->pid_namespace && pid > 0;
    if (numbered && pid == host->pid) return TUTTI_LIFE_ALIVE;
    if ((!numbered || process_alive(host, p, pid, atomic_load_explicit(&member->start, memory_order_relaxed))) &&
        (!atomic_load_explicit(&member->held, memory_order_relaxed) || tutti_segment_held(host->segment, peer)))
        return TUTTI_LIFE_ALIVE;
    /* It may have left between our two looks: a clean goodbye counts. */
    if (atomic_load_explicit(&member->state, memory_order_acquire) == TUTTI_MEMBER_LEFT) return TUTTI_LIFE_LEFT;
    atomic_store_explicit(&p->dead, true, memory_order_relaxed);
    return TUTTI_LIFE_DEAD;
}

/* ---- opening and closing ---- */

static uint64_t lives_bytes(uint32_t n)
{
    return n * sizeof(struct tutti_host_life);
}

static uint64_t boards_bytes(uint32_t n)
{
    return (uint64_t)n * TUTTI_BOARD_ALL * sizeof(struct tutti_board_row);
}

static uint64_t failures_bytes(uint32_t n)
{
    return n * sizeof(struct tutti_failure_row);
}

static uint64_t asks_bytes(uint32_t n)
{
    return n * sizeof(struct tutti_asks);
}

uint64_t tutti_host_control_bytes(uint32_t n)
{
    return lives_bytes(n) + boards_bytes(n) + failures_bytes(n) + asks_bytes(n) + sizeof(struct tutti_claims);
}

static void host_close(struct tutti_control *c)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    life_fini(host);
    tutti_unmap(host->known, c->n * sizeof(*host->known));
    tutti_segment_release(host->segment);
    tutti_free(host);
}

static const struct tutti_control_ops host_ops = {
    .size = sizeof(host_ops),
    .close = host_close,
    .life = host_life,
    .publish = tutti_host_publish,
    .peek = tutti_host_peek,
    .raise = tutti_host_raise,
    .failure = tutti_host_failure,
    .counter = tutti_host_counter,
    .serve = tutti_asks_serve,
};

static void parts_find(struct tutti_host_control *host, char *base, uint32_t n)
{
    host->lives = (struct tutti_host_life *)(void *)base;
    host->boards = (struct tutti_board_row *)(void *)(base += lives_bytes(n));
    host->failures = (struct tutti_failure_row *)(void *)(base += boards_bytes(n));
    host->asks = (struct tutti_asks *)(void *)(base += failures_bytes(n));
    host->claims = (struct tutti_claims *)(void *)(base + asks_bytes(n));
}

static enum tutti_status control_make(struct tutti_segment *segment, uint32_t me, const struct tutti_control_ops *ops,
                                      struct tutti_host_control **out)
{
    uint64_t bytes;
    char *base = tutti_segment_control(segment, &bytes);
    if (bytes != tutti_host_control_bytes(segment->n))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the segment has %llu bytes for control, this build expects %llu",
                          (unsigned long long)bytes, (unsigned long long)tutti_host_control_bytes(segment->n));
    struct tutti_host_control *host = tutti_alloc(sizeof(*host));
    if (!host) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for control");
    parts_find(host, base, segment->n);
    host->segment = segment;
    host->base = (struct tutti_control){
        .ops = ops, .name = "host", .n = segment->n, .me = me, .answers_at_once = true, .alarm = &host->claims->hint};
    host->known = tutti_map_lazy(segment->n * sizeof(*host->known));
    if (!host->known) {
        tutti_free(host);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for what control knows of %u peers", segment->n);
    }
    *out = host;
    return TUTTI_OK;
}

enum tutti_status tutti_host_control_open(struct tutti_segment *segment, uint32_t me, struct tutti_control **out)
{
    struct tutti_host_control *host = NULL;
    if (me >= segment->n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u does not exist: the segment has %u", me, segment->n);
    TUTTI_TRY(control_make(segment, me, &host_ops, &host));
    const enum tutti_status status = life_init(host);
    if (status < 0) {
        tutti_unmap(host->known, segment->n * sizeof(*host->known));
        tutti_free(host);
        return status;
    }
    *out = &host->base;
    return TUTTI_OK;
}

/* ---- for who is no member ---- */

static void observer_close(struct tutti_control *c)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    life_forget(host);
    tutti_unmap(host->known, c->n * sizeof(*host->known));
    tutti_segment_release(host->segment);
    tutti_free(host);
}

static void observer_publish(struct tutti_control *c, uint32_t slot, const struct tutti_board *board)
{
    (void)c, (void)slot, (void)board;
}

static void observer_raise(struct tutti_control *c, const struct tutti_failure *failure)
{
    (void)c, (void)failure;
}

static enum tutti_status observer_failure(struct tutti_control *c, struct tutti_failure *out)
{
    (void)c, (void)out;
    return TUTTI_AGAIN;
}

static const struct tutti_control_ops observer_ops = {
    .size = sizeof(observer_ops),
    .close = observer_close,
    .life = host_life,
    .publish = observer_publish,
    .peek = tutti_host_peek,
    .raise = observer_raise,
    .failure = observer_failure,
};

enum tutti_status tutti_host_control_observe(struct tutti_segment *segment, struct tutti_host_control **out)
{
    TUTTI_TRY(control_make(segment, UINT32_MAX, &observer_ops, out));
    life_observe(*out);
    return TUTTI_OK;
}
