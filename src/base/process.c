/* SPDX-License-Identifier: BSD-3-Clause */

/* What /proc says of a process: whether it still runs, and when it started, which tells it from a later one that got
 * the same number. */

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool tutti_process_read(int32_t pid, struct tutti_process *out)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = '\0';
    /* Fields 3, 4, 20 and 22; the name before them may hold anything, ')' too. Of a process whose main thread has left
     * (pthread_exit) while others run the state is Z, too, but it has threads. */
    char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || at[2] == '\0') return false;
    at += 2;
    const char state = *at;
    long threads = 0;
    out->state = state;
    out->parent = (int32_t)strtol(at + 1, NULL, 10);
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (!at) return false;
        at++;
        if (field + 1 == 20) threads = strtol(at, NULL, 10);
    }
    out->running = state != 'X' && (state != 'Z' || threads > 1);
    out->start = strtoull(at, NULL, 10);
    return true;
}

bool tutti_process_alive(int32_t pid, uint64_t start)
{
    struct tutti_process process;
    if (pid <= 0) return false;
    if (!tutti_process_read(pid, &process)) return kill(pid, 0) == 0 || errno != ESRCH;
    return process.running && (start == 0 || process.start == start);
}

uint64_t tutti_process_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}
