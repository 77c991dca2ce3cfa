/* SPDX-License-Identifier: BSD-3-Clause */

/* What is missing, tried and not guessed: in the kernel, and in the build. */

#include "info.h"

#include "control/net/cipher.h"
#include "topo/topo.h"
#include "transport/ofi/ofi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static bool has_memfd(void)
{
    int fd;
    if (tutti_memfd("tutti-info", 4096, &fd) < 0) return false;
    const bool sealed = fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
    close(fd);
    return sealed;
}

static bool has_pidfd(void)
{
    const int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Without words to wait on it complains of the arguments, unless it is not there at all. */
static bool has_futex_waitv(void)
{
    return syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) == 0 || (errno != ENOSYS && errno != EPERM);
}

static bool has_proc(void)
{
    struct tutti_process self;
    return tutti_process_read(getpid(), &self);
}

static bool has_program(const char *name)
{
    const char *path = getenv("PATH");
    char file[4096];
    for (const char *at = path ? path : ""; *at;) {
        size_t length = 0;
        while (at[length] && at[length] != ':') length++;
        if (snprintf(file, sizeof file, "%.*s/%s", (int)length, at, name) < (int)sizeof file && access(file, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

static bool has_qemu(void)
{
    return has_program("qemu-aarch64") && has_program("aarch64-linux-gnu-gcc");
}

static bool has_clang(void)
{
    return has_program("clang");
}

static bool has_hwloc(void)
{
    return tutti_topo_hwloc() != NULL;
}

static bool has_libfabric_header(void)
{
    const char *lacks = tutti_ofi_lacks();
    return !lacks || strcmp(lacks, "header") != 0;
}

static bool has_libfabric(void)
{
    return tutti_ofi_lacks() == NULL || !has_libfabric_header();
}

static bool has_quick_cipher(void)
{
    const char *why;
    tutti_cipher_library(&why);
    return !why;
}

static bool has_cmocka(void)
{
#ifdef TUTTI_HAVE_CMOCKA
    return true;
#else
    return false;
#endif
}

static bool has_python(void)
{
#ifdef TUTTI_HAVE_PYTHON
    return true;
#else
    return false;
#endif
}

void info_probes_gather(struct info *info)
{
    static const struct {
        bool (*there)(void);
        const char *what, *effect, *remedy;
    } probes[] = {
        {has_memfd, "memfd", "processes of this host can not share memory: transport shm does not work",
         "Linux 3.17 or later, without a seccomp filter on memfd_create"},
        {has_proc, "/proc", "the death of a rank may go unnoticed until a deadline", "mount -t proc proc /proc"},
        {has_pidfd, "pidfd_open", "the death of a rank is looked up in /proc, which is slower",
         "Linux 5.3 or later, without a seccomp filter on pidfd_open"},
        {has_futex_waitv, "futex_waitv", "a thread that waits on several words naps for 1 ms at a time",
         "Linux 5.16 or later, without a seccomp filter on futex_waitv"},
        {tutti_hmac_available, "OpenSSL", "ranks can not authenticate one another",
         "apt-get install libssl-dev, then build again"},
        {has_hwloc, "hwloc", "what CPUs share is read from /sys, which tells less of some hosts",
         "apt-get install libhwloc-dev, then build again"},
        {has_libfabric_header, "libfabric-dev", "transport ofi (InfiniBand, EFA, Slingshot, ...) is not in this build",
         "apt-get install libfabric-dev, then build again"},
        {has_libfabric, "libfabric", "transport ofi (InfiniBand, EFA, Slingshot, ...) does not work",
         "apt-get install libfabric1, or the cluster's own"},
        {has_quick_cipher, "ipsec-mb",
         "encryption between hosts takes two to four times as long as this CPU needs for it",
         "apt-get install libipsec-mb-dev, then build again; or OpenSSL 3.1 or later"},
        {has_python, "python3-dev", "the Python module (import tutti) is not in this build",
         "apt-get install python3-dev, then build again"},
        {has_cmocka, "cmocka", "the tests run on a small stand-in", "apt-get install libcmocka-dev, then build again"},
        {has_clang, "clang", "./dev check can not build with clang and can not fuzz", "apt-get install clang"},
        {has_qemu, "aarch64", "./dev check can not try the NEON kernels",
         "apt-get install gcc-aarch64-linux-gnu qemu-user"},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(probes); i++)
        if (!probes[i].there()) info_lack(info, probes[i].what, probes[i].effect, probes[i].remedy);
}
