/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping on words and descriptors at once: only io_uring can (Linux 6.7: FUTEX_WAITV). Each thread that sleeps so has
 * a ring of its own, made at its first sleep. By raw system calls and with the kernel's numbers, since headers are
 * often older than the kernel. */

#include "base/poller.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES 32u /* more than there are sources, and one to cancel them */
#define SETUP_SINGLE_ISSUER (1u << 12)
#define SETUP_DEFER_TASKRUN (1u << 13)
#define SETUP_NO_SQARRAY (1u << 16)
#define OP_FUTEX_WAITV 53
#define CANCEL_ALL_OF_ANY ((1u << 0) | (1u << 2))
#define FUTEX_SIZE_U32 2
#define TRIES 1000 /* of a millisecond, to see cancelled waits end */

struct waitv { /* the kernel's struct futex_waitv */
    uint64_t value, address;
    uint32_t flags, reserved;
};
struct ring {
    int fd;
    pid_t pid; /* a child has none of its parent's */
    unsigned char *memory;
    struct io_uring_sqe *entries;
    size_t memory_bytes, entry_bytes;
    struct io_uring_params p;
    struct waitv waits[TUTTI_SOURCES_MAX]; /* read while the kernel waits */
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool refused; /* this kernel has no such waits, or forbids them */

static void ring_close(void *arg)
{
    struct ring *ring = arg;
    if (ring->entries) munmap(ring->entries, ring->entry_bytes);
    if (ring->memory) munmap(ring->memory, ring->memory_bytes);
    if (ring->pid == getpid()) close(ring->fd);
    tutti_free(ring);
}

static void key_make(void)
{
    if (pthread_key_create(&key, ring_close) != 0) atomic_store(&refused, true);
}

static void *map(struct ring *ring, size_t bytes, off_t what)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, what);
    return at == MAP_FAILED ? NULL : at;
}

static struct ring *ring_open(void)
{
    struct ring *ring = tutti_alloc(sizeof(*ring));
    if (!ring) return NULL;
    ring->p.flags = SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN | SETUP_NO_SQARRAY;
    ring->pid = getpid();
    ring->fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &ring->p);
    if (ring->fd < 0) {
        tutti_free(ring);
        return NULL;
    }
    ring->memory_bytes = ring->p.cq_off.cqes + ring->p.cq_entries * sizeof(struct io_uring_cqe);
    ring->entry_bytes = ring->p.sq_entries * sizeof(struct io_uring_sqe);
    ring->memory = map(ring, ring->memory_bytes, IORING_OFF_SQ_RING); /* both rings */
    ring->entries = map(ring, ring->entry_bytes, IORING_OFF_SQES);
    if (ring->memory && ring->entries && pthread_setspecific(key, ring) == 0) return ring;
    ring_close(ring);
    return NULL;
}

/* This thread's. NULL: there can be none. */
static struct ring *ring_get(void)
{
    pthread_once(&once, key_make);
    if (atomic_load_explicit(&refused, memory_order_relaxed)) return NULL;
    struct ring *ring = pthread_getspecific(key);
    if (ring && ring->pid != getpid()) {
        ring_close(ring);
        pthread_setspecific(key, NULL);
        ring = NULL;
    }
    if (!ring) ring = ring_open();
    if (!ring) atomic_store(&refused, true);
    return ring;
}

static _Atomic uint32_t *word_at(struct ring *ring, uint32_t offset)
{
    return (_Atomic uint32_t *)(void *)(ring->memory + offset);
}

static struct io_uring_sqe *add(struct ring *ring, uint8_t op)
{
    _Atomic uint32_t *tail = word_at(ring, ring->p.sq_off.tail);
    const uint32_t at = atomic_load_explicit(tail, memory_order_relaxed);
    struct io_uring_sqe *entry = &ring->entries[at % ring->p.sq_entries];
    memset(entry, 0, sizeof(*entry));
    entry->opcode = op, entry->fd = -1;
    atomic_store_explicit(tail, at + 1, memory_order_release);
    return entry;
}

/* Completions that are here are taken; returns their number. *unknown: the kernel does not know an operation. */
static uint32_t take(struct ring *ring, bool *unknown)
{
    const struct io_uring_cqe *all = (const void *)(ring->memory + ring->p.cq_off.cqes);
    _Atomic uint32_t *head = word_at(ring, ring->p.cq_off.head);
    const uint32_t first = atomic_load_explicit(head, memory_order_relaxed),
                   end = atomic_load_explicit(word_at(ring, ring->p.cq_off.tail), memory_order_acquire);
    for (uint32_t i = first; i != end; i++) *unknown |= all[i % ring->p.cq_entries].res == -EINVAL;
    atomic_store_explicit(head, end, memory_order_release);
    return end - first;
}

/* Submits n, and waits until one is complete, or for ns. */
static void enter(struct ring *ring, uint32_t n, uint64_t ns)
{
    const int64_t time[2] = {(int64_t)(ns / TUTTI_NS_PER_S), (int64_t)(ns % TUTTI_NS_PER_S)};
    const struct io_uring_getevents_arg arg = {.ts = (uint64_t)(uintptr_t)time};
    syscall(SYS_io_uring_enter, ring->fd, n, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof(arg));
}

/* Cancels the n waits that are left. False: they do not end. */
static bool take_back(struct ring *ring, uint32_t n)
{
    bool ignored;
    add(ring, IORING_OP_ASYNC_CANCEL)->cancel_flags = CANCEL_ALL_OF_ANY;
    n++;
    for (uint32_t tries = 0; n > 0 && tries < TRIES; tries++) {
        enter(ring, tries == 0, TUTTI_NS_PER_MS);
        n -= take(ring, &ignored);
    }
    return n == 0;
}

bool tutti_uring_wait(const struct tutti_sources *sources, uint64_t due_ns)
{
    struct ring *ring = ring_get();
    uint32_t n_words = 0, n = 0;
    bool unknown = false;
    if (!ring) return false;
    for (uint32_t i = 0; i < sources->n; i++) {
        const struct tutti_source *source = &sources->at[i];
        if (source->word) {
            ring->waits[n_words++] = (struct waitv){
                .value = source->expected, .address = (uint64_t)(uintptr_t)source->word, .flags = FUTEX_SIZE_U32};
            continue;
        }
        struct io_uring_sqe *entry = add(ring, IORING_OP_POLL_ADD);
        entry->fd = source->fd, entry->poll32_events = POLLIN;
        n++;
    }
    if (n_words > 0) {
        struct io_uring_sqe *entry = add(ring, OP_FUTEX_WAITV);
        entry->fd = 0, entry->addr = (uint64_t)(uintptr_t)ring->waits, entry->len = n_words;
        n++;
    }
    const uint64_t now = tutti_now_ns();
    const uint64_t left = now < due_ns ? due_ns - now : 0;
    enter(ring, n, left < TUTTI_NS_PER_S ? left : TUTTI_NS_PER_S);
    n -= take(ring, &unknown);
    if (n > 0 && !take_back(ring, n)) { /* a ring that is closed waits for nothing */
        pthread_setspecific(key, NULL);
        ring_close(ring);
        unknown = true;
    }
    if (unknown) atomic_store(&refused, true);
    return !unknown;
}
