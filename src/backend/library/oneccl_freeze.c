/* SPDX-License-Identifier: BSD-3-Clause */

/* A thread that is left within oneCCL would spin there for ever, move what others begin, and be surprised by the end of
 * the process. So its stack is given to a userfaultfd that nobody reads: the next thing that it writes there stops it.
 * The process ends as ever; what the thread holds stays held. */

#include "backend/library/oneccl.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1 /* Linux 5.11; absent from older headers */
#endif
#define APART_PAGES 2 /* between what the carrier itself uses of its stack and what oneCCL does */

void oneccl_stack_find(struct oneccl_carrier *c)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    pthread_attr_t attributes;
    void *low = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    if (pthread_attr_getstack(&attributes, &low, &bytes) != 0) low = NULL;
    pthread_attr_destroy(&attributes);
    if (!low) return;
    c->stack[0] = ((uintptr_t)low + page - 1) / page * page;
    c->stack[1] = (uintptr_t)__builtin_frame_address(0) / page * page - APART_PAGES * page;
}

/* Frames of what it calls lie where the thread can be stopped. */
__attribute__((noinline)) void oneccl_stack_below(struct oneccl_carrier *c, void (*function)(struct oneccl_carrier *c))
{
    char gap[(APART_PAGES + 2) * 4096];
    __asm__ volatile("" : : "r"(gap) : "memory");
    function(c);
    __asm__ volatile("" : : "r"(gap) : "memory"); /* it is there until the function has returned */
}

int oneccl_freeze(const struct oneccl_carrier *c)
{
#if defined(SYS_userfaultfd) && defined(UFFDIO_WRITEPROTECT)
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
    struct uffdio_writeprotect protect = {.mode = UFFDIO_WRITEPROTECT_MODE_WP};
    if (!c->stack[0] || c->stack[1] <= c->stack[0]) return -1;
    range.range = protect.range = (struct uffdio_range){.start = c->stack[0], .len = c->stack[1] - c->stack[0]};
    const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd < 0) return -1;
    if (ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0 &&
        ioctl(fd, UFFDIO_WRITEPROTECT, &protect) == 0)
        return fd;
    close(fd);
#else
    (void)c;
#endif
    return -1;
}

void oneccl_thaw(int frozen)
{
    if (frozen >= 0) close(frozen);
}
