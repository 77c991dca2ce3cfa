/* SPDX-License-Identifier: BSD-3-Clause */

/* Native binaries of the kernels' modules: compiling takes seconds, so each is kept in a file of the user's,
 * $XDG_CACHE_HOME or ~/.cache, folder tutti/level_zero. A file is the user's own, nobody else can write it, and its
 * head says of which image, device and driver it is; it is written aside and renamed, so that none is half there. */

#include "device/level_zero/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NATIVE_MOST ((uint64_t)256 << 20)

struct head {
    char magic[8];
    uint64_t key, bytes, hash; /* hash: of the binary */
};
static const char magic[8] = "tuttiXP1";

/* Names all that the binary depends on: devices of one model share it. A driver refuses a binary that is not for its
 * device. */
static uint64_t key_of(const struct xpu *xpu, const struct tutti_gpu_image *image)
{
    const uint32_t numbers[] = {xpu->driver->maker_version, xpu->seen.capability, xpu->seen.n_sms};
    uint64_t key = tutti_hash64(image->begin, (size_t)(image->end - image->begin), TUTTI_VERSION_MAJOR);
    key = tutti_hash64(image->name, strlen(image->name), key);
    key = tutti_hash64(XPU_MODULE_FLAGS, strlen(XPU_MODULE_FLAGS), key);
    key = tutti_hash64(xpu->seen.name, strlen(xpu->seen.name), key);
    return tutti_hash64(numbers, sizeof numbers, key);
}

/* false: there is no folder for it. */
static bool path_of(uint64_t key, bool make, char path[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    static const char *const folders[] = {"", "/tutti", "/level_zero"};
    const bool own = cache && cache[0] == '/';
    if (!own && (!home || home[0] != '/')) return false;
    int n = snprintf(path, PATH_MAX, "%s%s", own ? cache : home, own ? "" : "/.cache");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(folders); i++) {
        if (n < 0 || n >= PATH_MAX - 64) return false;
        n += snprintf(path + n, (size_t)(PATH_MAX - n), "%s", folders[i]);
        if (make && mkdir(path, 0700) < 0 && errno != EEXIST) return false;
    }
    snprintf(path + n, (size_t)(PATH_MAX - n), "/%016llx.bin", (unsigned long long)key);
    return true;
}

static bool read_all(int file, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = read(file, (char *)to + done, bytes - done);
        if (got <= 0 && errno != EINTR) return false;
        if (got > 0) done += (size_t)got;
        if (got == 0) return false;
    }
    return true;
}

static bool write_all(int file, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t put = write(file, (const char *)from + done, bytes - done);
        if (put < 0 && errno != EINTR) return false;
        if (put > 0) done += (size_t)put;
    }
    return true;
}

/* What it says of itself, and whose it is. */
static bool is_believed(int file, uint64_t key, struct head *head)
{
    struct stat is;
    return fstat(file, &is) == 0 && S_ISREG(is.st_mode) && is.st_uid == geteuid() && !(is.st_mode & 022) &&
           read_all(file, head, sizeof *head) && memcmp(head->magic, magic, sizeof magic) == 0 && head->key == key &&
           head->bytes > 0 && head->bytes <= NATIVE_MOST && (uint64_t)is.st_size == sizeof *head + head->bytes;
}

bool xpu_cache_read(const struct xpu *xpu, const struct tutti_gpu_image *image, void **out, size_t *bytes)
{
    char path[PATH_MAX];
    struct head head;
    const uint64_t key = key_of(xpu, image);
    if (!path_of(key, false, path)) return false;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return false;
    void *native = is_believed(file, key, &head) ? tutti_alloc((size_t)head.bytes) : NULL;
    const bool good = native && read_all(file, native, (size_t)head.bytes) &&
                      tutti_hash64(native, (size_t)head.bytes, key) == head.hash;
    close(file);
    if (good)
        *out = native, *bytes = (size_t)head.bytes;
    else
        tutti_free(native);
    return good;
}

void xpu_cache_write(const struct xpu *xpu, const struct tutti_gpu_image *image, const void *native, size_t bytes)
{
    char path[PATH_MAX], aside[PATH_MAX + 32];
    const uint64_t key = key_of(xpu, image);
    struct head head = {.key = key, .bytes = bytes, .hash = tutti_hash64(native, bytes, key)};
    memcpy(head.magic, magic, sizeof magic);
    if (bytes > NATIVE_MOST || !path_of(key, true, path)) return;
    snprintf(aside, sizeof aside, "%s.XXXXXX", path);
    const int file = mkostemp(aside, O_CLOEXEC); /* 0600 */
    if (file < 0) return;
    const bool done = write_all(file, &head, sizeof head) && write_all(file, native, bytes);
    if (close(file) < 0 || !done || rename(aside, path) < 0) unlink(aside);
}
