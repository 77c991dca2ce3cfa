/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_PROCESS_H
#define TUTTI_TESTS_PROCESS_H

/* The threads of this process, for tests of what is made and what is left behind. */

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Whether a thread listed in /proc/self/task is there to stay. pthread_join returns when the kernel clears the thread's
 * id, which is before it unlists the thread, and after it sets PF_EXITING. */
static inline bool process_thread_runs(const char *id)
{
    const unsigned exiting = 0x4; /* PF_EXITING, in the flags that proc(5) lists */
    char path[64], stat[1024];
    unsigned flags;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", id);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t n = fread(stat, 1, sizeof stat - 1, file); /* fails where it ended meanwhile */
    fclose(file);
    stat[n] = '\0';
    const char *rest = strrchr(stat, ')'); /* the name may hold anything */
    return rest && sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && !(flags & exiting);
}

/* Those that were not joined, exactly. */
static inline size_t process_threads(void)
{
    size_t n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && (entry = readdir(tasks));)
        n += entry->d_name[0] != '.' && process_thread_runs(entry->d_name);
    if (tasks) closedir(tasks);
    return n;
}

#endif
