/* SPDX-License-Identifier: BSD-3-Clause */

/* The table of hosts, once for all processes of a host: in memory that nobody can change any more. */

#include "control/unix/meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL };

enum tutti_status tutti_handout_make(const uint8_t *bytes, uint32_t n, int *out)
{
    int fd = memfd_create("tutti-table", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create("tutti-table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no memory to share the table of hosts");
    for (uint32_t at = 0; at < n;) {
        const ssize_t written = write(fd, bytes + at, n - at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;
        at += (uint32_t)written;
    }
    if (lseek(fd, 0, SEEK_END) == (off_t)n && fcntl(fd, F_ADD_SEALS, SEALS) == 0) {
        *out = fd;
        return TUTTI_OK;
    }
    tutti_fail_errno(TUTTI_ERR_SYSTEM, "the table of hosts can not be shared");
    close(fd);
    return TUTTI_ERR_SYSTEM;
}

enum tutti_status tutti_handout_map(int fd, const uint8_t **out, uint32_t *n)
{
    struct stat st;
    const int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) != 0 || st.st_size <= 0 || st.st_size > UINT32_MAX)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "what came with the verdict is no table of hosts");
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) return tutti_fail_errno(TUTTI_ERR_MEMORY, "the table of hosts can not be mapped");
    *out = bytes, *n = (uint32_t)st.st_size;
    return TUTTI_OK;
}

void tutti_handout_unmap(const uint8_t *bytes, uint32_t n)
{
    if (bytes) munmap((void *)(uintptr_t)bytes, n);
}
