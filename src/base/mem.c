/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory, memory to share, and texts. Allocation is in one place, so that a test can make the n-th one fail and prove
 * that nothing is left behind. The counter is per thread: a failing rank does not disturb the others of its process. */

#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

static _Thread_local uint64_t n_counted, fail_at;

/* Counts one allocation; false when it is the one that must fail. */
static bool alloc_allowed(void)
{
    n_counted++;
    return fail_at == 0 || --fail_at != 0;
}

void *tutti_alloc(size_t bytes)
{
    return alloc_allowed() ? calloc(1, bytes ? bytes : 1) : NULL;
}

void *tutti_alloc_array(size_t n, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(n, bytes, &total)) return NULL;
    return tutti_alloc(total);
}

void tutti_free(void *pointer)
{
    free(pointer);
}

void *tutti_map_lazy(size_t bytes)
{
    if (!alloc_allowed()) return NULL;
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void tutti_unmap(void *pointer, size_t bytes)
{
    if (pointer) munmap(pointer, bytes ? bytes : 1);
}

uint64_t tutti_alloc_fail_at(uint64_t n)
{
    uint64_t counted = n_counted;
    n_counted = 0;
    fail_at = n;
    return counted;
}

enum tutti_status tutti_memfd(const char *name, uint64_t bytes, int *out)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
        return tutti_fail(
            TUTTI_ERR_SYSTEM,
            "shared memory of %llu bytes (%s) is more than the limit of the sizes of files, which is %llu "
            "bytes: say `ulimit -f unlimited`",
            (unsigned long long)bytes, name, (unsigned long long)limit.rlim_cur);
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); /* before Linux 6.3 */
    if (fd < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "memfd_create of %s failed", name);
    if (ftruncate(fd, (off_t)bytes) != 0) {
        tutti_fail_errno(TUTTI_ERR_SYSTEM, "shared memory of %llu bytes (%s) can not be had", (unsigned long long)bytes,
                         name);
        close(fd);
        return TUTTI_ERR_SYSTEM;
    }
    *out = fd;
    return TUTTI_OK;
}

/* ---- texts that are put together piece by piece ---- */

void tutti_append(char *out, size_t capacity, const char *format, ...)
{
    const size_t used = strnlen(out, capacity);
    va_list args;
    if (used + 1 >= capacity) return;
    va_start(args, format);
    vsnprintf(out + used, capacity - used, format, args);
    va_end(args);
}

char *tutti_text_copy(const char *text)
{
    const size_t n = strlen(text) + 1;
    char *copy = tutti_alloc(n);

    return copy ? memcpy(copy, text, n) : NULL;
}
