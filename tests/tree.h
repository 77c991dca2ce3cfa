/* SPDX-License-Identifier: BSD-3-Clause */

/* A tree of files that a test makes up, such as a host's /sys: made before a test, removed after it. */

#ifndef TUTTI_TESTS_TREE_H
#define TUTTI_TESTS_TREE_H

#include "test.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64]; /* the tree's folder */

static int tree_make(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/tutti-tree-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int entry_remove(const char *path, const struct stat *s, int type, struct FTW *walk)
{
    (void)s, (void)type, (void)walk;
    return remove(path);
}

static int tree_remove(void **state)
{
    (void)state;
    return nftw(root, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* The file of this name below root, and the folders it is in; it ends with a new line, as the kernel's do. */
static void file_write(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void file_write(const char *text, const char *format, ...)
{
    const size_t length = strlen(text);
    char relative[256], path[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(relative, sizeof relative, format, ap);
    va_end(ap);
    snprintf(path, sizeof path, "%s/%s", root, relative);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) fail_msg("cannot make %s", path);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    if (!f) fail_msg("cannot write %s", path);
    fprintf(f, "%s%s", text, length > 0 && text[length - 1] == '\n' ? "" : "\n");
    fclose(f);
}

#endif
