/* SPDX-License-Identifier: BSD-3-Clause */
/* Pinned memory by the kernel: buffers that are registered with an io_uring are long-term pins of their pages, as those
 * of a network card are. Copies go through a file in memory, by reads and writes of the ring. */
#include "fabric_standin.h"

#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define N_PINS 4096

static struct {
    bool tried, real;
    int ring, file;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    unsigned char *staging;
    bool used[N_PINS];
} pins = {.ring = -1, .file = -1};

static bool map_ring(const struct io_uring_params *p)
{
    const size_t sq_bytes = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    const size_t cq_bytes = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    const size_t bytes = sq_bytes > cq_bytes ? sq_bytes : cq_bytes;
    unsigned char *rings = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, pins.ring, 0);
    if (rings == MAP_FAILED || !(p->features & IORING_FEAT_SINGLE_MMAP)) return false;
    pins.sq_tail = (unsigned *)(void *)(rings + p->sq_off.tail);
    pins.sq_mask = (unsigned *)(void *)(rings + p->sq_off.ring_mask);
    pins.sq_array = (unsigned *)(void *)(rings + p->sq_off.array);
    pins.cq_head = (unsigned *)(void *)(rings + p->cq_off.head);
    pins.cq_tail = (unsigned *)(void *)(rings + p->cq_off.tail);
    pins.cq_mask = (unsigned *)(void *)(rings + p->cq_off.ring_mask);
    pins.cqes = (struct io_uring_cqe *)(void *)(rings + p->cq_off.cqes);
    pins.sqes = mmap(NULL, p->sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_POPULATE, pins.ring, IORING_OFF_SQES);
    return pins.sqes != MAP_FAILED;
}

static bool ring_open(void)
{
    struct io_uring_params params = {.flags = 0};
    struct io_uring_rsrc_register table = {.nr = N_PINS, .flags = IORING_RSRC_REGISTER_SPARSE};
    pins.ring = (int)syscall(SYS_io_uring_setup, 4, &params);
    if (pins.ring < 0 || !map_ring(&params)) return false;
    return syscall(SYS_io_uring_register, pins.ring, IORING_REGISTER_BUFFERS2, &table, sizeof(table)) == 0;
}

static void open_once(void)
{
    if (pins.tried) return;
    pins.tried = true;
    pins.file = memfd_create("fabric_standin", MFD_CLOEXEC);
    if (pins.file < 0 || ftruncate(pins.file, PINS_STAGING) < 0) abort();
    pins.staging = mmap(NULL, PINS_STAGING, PROT_READ | PROT_WRITE, MAP_SHARED, pins.file, 0);
    if (pins.staging == MAP_FAILED) abort();
    pins.real = ring_open();
}

bool pins_are_real(void)
{
    open_once();
    return pins.real;
}

static bool update(int pin, void *base, size_t bytes)
{
    const struct iovec buffer = {base, bytes};
    const struct io_uring_rsrc_update2 what = {.offset = (unsigned)pin, .data = (uintptr_t)&buffer, .nr = 1};
    return syscall(SYS_io_uring_register, pins.ring, IORING_REGISTER_BUFFERS_UPDATE, &what, sizeof(what)) == 1;
}

int pins_add(void *base, size_t bytes)
{
    int pin = 0;
    open_once();
    while (pin < N_PINS && pins.used[pin]) pin++;
    if (pin == N_PINS || (pins.real && !update(pin, base, bytes))) return PINS_NONE;
    pins.used[pin] = true;
    return pin;
}

void pins_remove(int pin)
{
    pins.used[pin] = false;
    if (pins.real) update(pin, NULL, 0);
}

/* One read or write between pinned memory and the file, to its end. */
static bool transfer(uint8_t op, int pin, uintptr_t address, size_t bytes, size_t at)
{
    const unsigned slot = *pins.sq_tail & *pins.sq_mask;
    pins.sqes[slot] = (struct io_uring_sqe){
        .opcode = op, .fd = pins.file, .off = at, .addr = address, .len = (unsigned)bytes, .buf_index = (uint16_t)pin};
    pins.sq_array[slot] = slot;
    atomic_store_explicit((_Atomic unsigned *)(void *)pins.sq_tail, *pins.sq_tail + 1, memory_order_release);
    if (syscall(SYS_io_uring_enter, pins.ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1) return false;
    const unsigned head = *pins.cq_head;
    if (head == atomic_load_explicit((_Atomic unsigned *)(void *)pins.cq_tail, memory_order_acquire)) return false;
    const int done = pins.cqes[head & *pins.cq_mask].res;
    atomic_store_explicit((_Atomic unsigned *)(void *)pins.cq_head, head + 1, memory_order_release);
    return done == (int)bytes;
}

bool pins_out(int pin, const void *address, size_t bytes, size_t at)
{
    if (at + bytes > PINS_STAGING) return false;
    if (pins.real) return bytes == 0 || transfer(IORING_OP_WRITE_FIXED, pin, (uintptr_t)address, bytes, at);
    memcpy(pins.staging + at, address, bytes);
    return true;
}

bool pins_in(int pin, void *address, size_t bytes, size_t at)
{
    if (at + bytes > PINS_STAGING) return false;
    if (pins.real) return bytes == 0 || transfer(IORING_OP_READ_FIXED, pin, (uintptr_t)address, bytes, at);
    memcpy(address, pins.staging + at, bytes);
    return true;
}
