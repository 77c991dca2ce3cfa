/* SPDX-License-Identifier: BSD-3-Clause */
/* The user's folder of what was made from algorithms' files: compiled objects, traces, proofs. A name contains the hash
 * of all that the contents were made from, so files are never out of date and never change; they are written beside and
 * renamed, so that another process sees all of one or none. */

#include "load/load.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Makes the folder and those above it; false: it is not there, or not this user's alone to write. */
static bool folder_make(const char *path)
{
    char part[PATH_MAX];
    struct stat found;
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(part, 0700); /* those that are there are */
        *slash = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
    return lstat(path, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
           !(found.st_mode & (S_IWGRP | S_IWOTH)) && access(path, R_OK | W_OK | X_OK) == 0;
}

static bool folder_find(char *out, size_t capacity)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/' && snprintf(out, capacity, "%s/tutti/algorithms", cache) < (int)capacity)
        return folder_make(out);
    if (home && home[0] == '/' && snprintf(out, capacity, "%s/.cache/tutti/algorithms", home) < (int)capacity &&
        folder_make(out))
        return true;
    snprintf(out, capacity, "/tmp/tutti-%u", (unsigned)geteuid());
    return folder_make(out);
}

enum tutti_status tutti_kept_path(const char *name, char *out)
{
    char folder[PATH_MAX - TUTTI_KEPT_NAME - 32];
    if (!folder_find(folder, sizeof folder))
        return tutti_fail(TUTTI_ERR_SYSTEM,
                          "%s can not be used to keep compiled algorithms: it must be a folder of this user that "
                          "nobody else may write to (XDG_CACHE_HOME names another one)",
                          folder);
    snprintf(out, PATH_MAX, "%s/%s", folder, name);
    return TUTTI_OK;
}

enum tutti_status tutti_kept_folder(const char *name)
{
    char path[PATH_MAX];
    TUTTI_TRY(tutti_kept_path(name, path));
    *strrchr(path, '/') = '\0';
    return folder_make(path) ? TUTTI_OK : tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be made", path);
}

enum tutti_status tutti_text_read(const char *path, uint64_t most_bytes, char **text, size_t *bytes)
{
    struct stat found;
    size_t n = 0;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
    if (file < 0) return tutti_fail_errno(TUTTI_ERR_ARGUMENT, "%s can not be read", path);
    char *out = NULL;
    enum tutti_status status = TUTTI_OK;
    if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode))
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "%s is no file", path);
    else if ((uint64_t)found.st_size > most_bytes)
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "%s has %lld bytes, more than %llu", path, (long long)found.st_size,
                            (unsigned long long)most_bytes);
    else if (!(out = tutti_alloc((size_t)found.st_size + 1)))
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to read %s", path);
    while (status >= 0 && n < (size_t)found.st_size) {
        const ssize_t got = read(file, out + n, (size_t)found.st_size - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = tutti_fail_errno(TUTTI_ERR_ARGUMENT, "%s can not be read", path);
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(file);
    if (status < 0) {
        tutti_free(out);
        return status;
    }
    *text = out, *bytes = n;
    return TUTTI_OK;
}

bool tutti_kept_read(const char *name, uint64_t youngest_s, char **text, size_t *bytes)
{
    char path[PATH_MAX];
    struct stat found;
    if (tutti_kept_path(name, path) < 0 || stat(path, &found) != 0) return false;
    if (youngest_s && (uint64_t)(time(NULL) - found.st_mtime) > youngest_s) return false;
    return tutti_text_read(path, TUTTI_LOAD_MOST_BYTES, text, bytes) >= 0;
}

enum tutti_status tutti_kept_write(const char *name, const void *text, size_t bytes)
{
    char path[PATH_MAX], beside[PATH_MAX];
    TUTTI_TRY(tutti_kept_path(name, path));
    TUTTI_TRY(tutti_kept_path("new-XXXXXX", beside));
    const int file = mkostemp(beside, O_CLOEXEC);
    if (file < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", path);
    size_t done = 0;
    while (done < bytes) {
        const ssize_t n = write(file, (const char *)text + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        done += (size_t)n;
    }
    const bool closed = close(file) == 0;
    if (done == bytes && closed && rename(beside, path) == 0) return TUTTI_OK;
    const int error = errno;
    unlink(beside);
    errno = error;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", path);
}

int tutti_kept_lock(const char *name)
{
    enum { PATIENCE_S = 120 };
    char path[PATH_MAX], lock[TUTTI_KEPT_NAME + 8];
    snprintf(lock, sizeof lock, "%s.lock", name);
    if (tutti_kept_path(lock, path) < 0) return -1;
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const uint64_t deadline_ns = tutti_deadline_ns(PATIENCE_S * TUTTI_NS_PER_S);
    while (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0) {
        if (tutti_now_ns() >= deadline_ns || (errno != EWOULDBLOCK && errno != EINTR)) {
            close(file);
            return -1;
        }
        tutti_sleep_ns(2 * TUTTI_NS_PER_MS);
    }
    return file;
}

void tutti_kept_unlock(int lock)
{
    if (lock >= 0) close(lock); /* the file stays: others may wait for it */
}
