/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments: the memory that the members of one host share, made by a leader and passed on as two sealed memfds (control
 * and heap), or, for threads of one process, plain memory of the same layout. */

#include "transport/host/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

_Static_assert(sizeof(struct tutti_segment_header) <= TUTTI_SEGMENT_HEADER_BYTES, "the header is one page");
_Static_assert(TUTTI_CARD_BYTES % TUTTI_CACHE_LINE == 0, "cards do not share lines");

static uint64_t align_up(uint64_t x, uint64_t alignment)
{
    return (x + alignment - 1) / alignment * alignment;
}

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

struct tutti_segment_layout tutti_segment_layout(uint32_t n, uint32_t ring_bytes, uint64_t control_bytes)
{
    const uint64_t ready_words = (n + 63) / 64;
    struct tutti_segment_layout l;
    l.doorbell_stride = align_up(offsetof(struct tutti_doorbell, ready) + ready_words * 8, TUTTI_CACHE_LINE);
    l.ring_stride = tutti_ring_memory(ring_bytes);
    l.cards = TUTTI_SEGMENT_HEADER_BYTES;
    l.members = l.cards + (uint64_t)n * TUTTI_CARD_BYTES;
    l.doorbells = l.members + n * sizeof(struct tutti_member);
    l.control = align_up(l.doorbells + n * l.doorbell_stride, TUTTI_SEGMENT_HEADER_BYTES);
    l.rings = align_up(l.control + control_bytes, TUTTI_SEGMENT_HEADER_BYTES);
    l.total = align_up(l.rings + (uint64_t)n * n * l.ring_stride, UINT64_C(65536)); /* whole pages of any machine */
    return l;
}

static uint64_t power_of_two_at_most(uint64_t x)
{
    return UINT64_C(1) << (63 - __builtin_clzll(x | 1));
}

uint32_t tutti_segment_ring_bytes(uint32_t n, size_t staging_bytes)
{
    const uint64_t ring = power_of_two_at_most(staging_bytes / n);
    return ring < TUTTI_RING_MIN_BYTES   ? TUTTI_RING_MIN_BYTES
           : ring > TUTTI_RING_MAX_BYTES ? TUTTI_RING_MAX_BYTES
                                         : (uint32_t)ring;
}

/* The header of a segment of this configuration. */
static enum tutti_status header_make(const struct tutti_segment_config *config, struct tutti_segment_header *out)
{
    if (config->n == 0 || config->n > TUTTI_HOST_MAX_MEMBERS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a host has 1 to %d ranks, not %u", TUTTI_HOST_MAX_MEMBERS, config->n);
    if (config->heap_bytes > TUTTI_HEAP_MAX_BYTES)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a heap of %llu bytes is more than 1T",
                          (unsigned long long)config->heap_bytes);
    const uint32_t ring = tutti_segment_ring_bytes(config->n, config->staging_bytes);
    uint64_t heap = power_of_two_at_most(config->heap_bytes);
    if (heap < config->heap_bytes) heap *= 2;
    if (heap < page_bytes()) heap = page_bytes();
    *out = (struct tutti_segment_header){
        .magic = TUTTI_SEGMENT_MAGIC,
        .version = TUTTI_SEGMENT_VERSION,
        .packet_bytes = sizeof(struct tutti_packet),
        .n = config->n,
        .ring_bytes = ring,
        .control_bytes = config->control_bytes,
        .heap_bytes = heap,
        .total_bytes = tutti_segment_layout(config->n, ring, config->control_bytes).total,
    };
    return TUTTI_OK;
}

static enum tutti_status memfd_make(const char *name, uint64_t bytes, int *out)
{
    TUTTI_TRY(tutti_memfd(name, bytes, out));
    if (fcntl(*out, F_ADD_SEALS, SEGMENT_SEALS) == 0) return TUTTI_OK;
    tutti_fail_errno(TUTTI_ERR_SYSTEM, "the memfd %s can not be sealed", name);
    close(*out);
    return TUTTI_ERR_SYSTEM;
}

/* Maps control_fd (or plain memory) as the header says. The handle owns nothing on failure. */
static enum tutti_status segment_map(const struct tutti_segment_header *header, int control_fd, int heap_fd,
                                     struct tutti_segment **out)
{
    struct tutti_segment *s = tutti_alloc(sizeof(*s));
    if (!s) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a segment's handle");
    s->layout = tutti_segment_layout(header->n, header->ring_bytes, header->control_bytes);
    if (control_fd >= 0) {
        void *base = mmap(NULL, s->layout.total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, control_fd, 0);
        s->base = base == MAP_FAILED ? NULL : base;
    } else {
        s->base = tutti_map_lazy(s->layout.total);
    }
    if (!s->base) {
        enum tutti_status status =
            tutti_fail_errno(TUTTI_ERR_MEMORY,
                             "%llu bytes of address space for a segment of %u members are not to be "
                             "had (ulimit -v?)",
                             (unsigned long long)s->layout.total, header->n);
        tutti_free(s);
        return status;
    }
    s->handles = 1;
    s->n = header->n;
    s->ring_bytes = header->ring_bytes;
    s->control_bytes = header->control_bytes;
    s->heap_bytes = header->heap_bytes;
    s->control_fd = control_fd;
    s->heap_fd = heap_fd;
    *out = s;
    return TUTTI_OK;
}

enum tutti_status tutti_segment_create(const struct tutti_segment_config *config, bool shared,
                                       struct tutti_segment **out)
{
    struct tutti_segment_header header;
    TUTTI_TRY(header_make(config, &header));
    int control_fd = -1, heap_fd = -1;
    enum tutti_status status;
    if (shared) {
        TUTTI_TRY(memfd_make("tutti-control", header.total_bytes, &control_fd));
        TUTTI_TRY_GOTO(status, memfd_make("tutti-heap", header.n * header.heap_bytes, &heap_fd), err_close_control);
    }
    struct tutti_segment *s;
    TUTTI_TRY_GOTO(status, segment_map(&header, control_fd, heap_fd, &s), err_close_heap);
    *tutti_segment_header(s) = header;
    *out = s;
    return TUTTI_OK;

err_close_heap:
    if (heap_fd >= 0) close(heap_fd);
err_close_control:
    if (control_fd >= 0) close(control_fd);
    return status;
}

void tutti_segment_fds(const struct tutti_segment *segment, int *control_fd, int *heap_fd)
{
    *control_fd = segment->control_fd;
    *heap_fd = segment->heap_fd;
}

/* Size of a descriptor that nobody can shrink under us (a shrunk file is a SIGBUS); 0 and a record otherwise. */
static uint64_t sealed_bytes(int fd, const char *what)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        tutti_fail_errno(TUTTI_ERR_PROTOCOL, "the %s descriptor can not be used", what);
        return 0;
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEGMENT_SEALS) != SEGMENT_SEALS) {
        tutti_fail(TUTTI_ERR_PROTOCOL, "the %s descriptor is not a sealed memfd", what);
        return 0;
    }
    if (st.st_size <= 0) tutti_fail(TUTTI_ERR_PROTOCOL, "the %s descriptor is empty", what);
    return st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

static bool power_of_two_within(uint64_t x, uint64_t low, uint64_t high)
{
    return x >= low && x <= high && (x & (x - 1)) == 0;
}

static enum tutti_status header_check(const struct tutti_segment_header *h, uint64_t control_bytes, uint64_t heap_total)
{
    if (h->magic != TUTTI_SEGMENT_MAGIC)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the control descriptor is not a segment of tutti");
    if (h->version != TUTTI_SEGMENT_VERSION)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the segment has layout version %u, this build understands %d",
                          h->version, TUTTI_SEGMENT_VERSION);
    if (h->packet_bytes != sizeof(struct tutti_packet))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the segment's packets have %u bytes, this build's %zu", h->packet_bytes,
                          sizeof(struct tutti_packet));
    if (h->n == 0 || h->n > TUTTI_HOST_MAX_MEMBERS ||
        !power_of_two_within(h->ring_bytes, TUTTI_RING_MIN_BYTES, TUTTI_RING_MAX_BYTES) ||
        h->control_bytes > TUTTI_HEAP_MAX_BYTES ||
        !power_of_two_within(h->heap_bytes, page_bytes(), TUTTI_HEAP_MAX_BYTES))
        return tutti_fail(TUTTI_ERR_PROTOCOL,
                          "the segment's layout can not be: %u members, rings of %u bytes, heaps of "
                          "%llu",
                          h->n, h->ring_bytes, (unsigned long long)h->heap_bytes);
    const uint64_t total = tutti_segment_layout(h->n, h->ring_bytes, h->control_bytes).total;
    if (h->total_bytes != total || control_bytes != total || heap_total != h->n * h->heap_bytes)
        return tutti_fail(TUTTI_ERR_PROTOCOL,
                          "the segment of %u members should have %llu bytes and heaps of %llu, but "
                          "has %llu and %llu",
                          h->n, (unsigned long long)total, (unsigned long long)(h->n * h->heap_bytes),
                          (unsigned long long)control_bytes, (unsigned long long)heap_total);
    return TUTTI_OK;
}

enum tutti_status tutti_segment_attach(int control_fd, int heap_fd, struct tutti_segment **out)
{
    const uint64_t control_bytes = sealed_bytes(control_fd, "control");
    const uint64_t heap_total = control_bytes ? sealed_bytes(heap_fd, "heap") : 0;
    if (control_bytes == 0 || heap_total == 0) return TUTTI_ERR_PROTOCOL;
    struct tutti_segment_header header; /* a copy: what was checked can not change any more */
    if (pread(control_fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the control descriptor is too short for a header");
    TUTTI_TRY(header_check(&header, control_bytes, heap_total));
    return segment_map(&header, control_fd, heap_fd, out);
}

enum tutti_status tutti_segment_look(int control_fd, struct tutti_segment **out)
{
    const uint64_t control_bytes = sealed_bytes(control_fd, "control");
    struct tutti_segment_header header;
    if (control_bytes == 0) return TUTTI_ERR_PROTOCOL;
    if (pread(control_fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the control descriptor is too short for a header");
    TUTTI_TRY(header_check(&header, control_bytes, header.n * header.heap_bytes));
    return segment_map(&header, control_fd, -1, out);
}

enum tutti_status tutti_segment_share(struct tutti_segment *segment, struct tutti_segment **out)
{
    atomic_fetch_add_explicit(&segment->handles, 1, memory_order_relaxed);
    *out = segment;
    return TUTTI_OK;
}

/* Descriptors that were passed on share their locks: each process opens the file anew. */
static int lives_open(struct tutti_segment *segment)
{
    char path[32];
    int known = atomic_load(&segment->lives_fd);
    if (known > 0 || segment->control_fd < 0) return known - 1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", segment->control_fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    if (atomic_compare_exchange_strong(&segment->lives_fd, &known, fd + 1)) return fd;
    close(fd); /* another thread has opened it meanwhile */
    return known - 1;
}

bool tutti_segment_hold(struct tutti_segment *segment, uint32_t member)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = member, .l_len = 1};
    const int fd = lives_open(segment);
    return fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool tutti_segment_held(const struct tutti_segment *segment, uint32_t member)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = member, .l_len = 1};
    return segment->control_fd < 0 || fcntl(segment->control_fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

void tutti_segment_release(struct tutti_segment *segment)
{
    if (!segment || atomic_fetch_sub_explicit(&segment->handles, 1, memory_order_acq_rel) > 1) return;
    tutti_unmap(segment->base, segment->layout.total);
    if (segment->control_fd >= 0) close(segment->control_fd);
    if (segment->heap_fd >= 0) close(segment->heap_fd);
    if (atomic_load(&segment->lives_fd) > 0) close(atomic_load(&segment->lives_fd) - 1);
    tutti_free(segment);
}

void *tutti_segment_control(struct tutti_segment *segment, uint64_t *bytes)
{
    *bytes = segment->control_bytes;
    return segment->base + segment->layout.control;
}

/* ---- cards and arrival ---- */

void *tutti_segment_card(struct tutti_segment *segment, uint32_t member)
{
    if (member >= segment->n) return NULL;
    return segment->base + segment->layout.cards + (uint64_t)member * TUTTI_CARD_BYTES;
}

void tutti_segment_arrive(struct tutti_segment *segment, uint32_t member)
{
    if (member >= segment->n) return;
    if (atomic_exchange_explicit(&tutti_segment_member(segment, member)->arrived, 1, memory_order_acq_rel) != 0) return;
    struct tutti_segment_header *header = tutti_segment_header(segment);
    uint32_t before = atomic_fetch_add_explicit(&header->n_arrived, 1, memory_order_acq_rel);
    if (before + 1 >= segment->n) tutti_futex_wake(&header->n_arrived, INT_MAX);
}

bool tutti_segment_arrived(struct tutti_segment *segment, uint32_t member)
{
    return member < segment->n &&
           atomic_load_explicit(&tutti_segment_member(segment, member)->arrived, memory_order_acquire) != 0;
}

enum tutti_status tutti_segment_wait_all(struct tutti_segment *segment, uint64_t deadline_ns)
{
    _Atomic uint32_t *n_arrived = &tutti_segment_header(segment)->n_arrived;
    for (;;) {
        uint32_t n = atomic_load_explicit(n_arrived, memory_order_acquire);
        if (n >= segment->n) return TUTTI_OK;
        if (tutti_now_ns() >= deadline_ns)
            return tutti_fail(TUTTI_ERR_TIMEOUT, "%u of %u members of this host arrived before the deadline", n,
                              segment->n);
        tutti_futex_wait(n_arrived, n, deadline_ns);
    }
}
