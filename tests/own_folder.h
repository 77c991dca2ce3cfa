/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_OWN_FOLDER_H
#define TUTTI_TESTS_OWN_FOLDER_H

/* A folder of a test program's own, for files and for what is kept of algorithms: own_folder_begin and own_folder_end
 * are the fixture of its group of tests. */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static char own_folder[] = "/tmp/tutti-test-XXXXXX";

/* Writes a file; its path, until this thread asks again. */
static inline const char *own_file(const char *name, const char *text)
{
    static _Thread_local char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", own_folder, name);
    FILE *out = fopen(path, "w");
    if (!out || fputs(text, out) < 0 || fclose(out) != 0) abort();
    return path;
}

static inline int own_folder_begin(void **state)
{
    (void)state;
    char cache[PATH_MAX];
    if (!mkdtemp(own_folder)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", own_folder);
    return setenv("XDG_CACHE_HOME", cache, 1);
}

static inline int own_folder_end(void **state)
{
    (void)state;
    char command[PATH_MAX + 16];
    snprintf(command, sizeof command, "rm -rf %s", own_folder);
    return system(command);
}

#endif
