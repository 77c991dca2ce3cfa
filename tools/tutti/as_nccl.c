/* SPDX-License-Identifier: BSD-3-Clause */

/* Where tutti's libnccl.so.2 is, and how programs come to load it before any other of that name. */

#include "cmd.h"

#include "base/base.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "tutti/nccl/libnccl.so.2"

bool tutti_nccl_file(char *out, size_t room)
{
    static const char *const folders[] = {TUTTI_LIBDIR, "lib", "lib64"};
    char self[PATH_MAX], path[PATH_MAX + 64];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = '\0';
    for (int up = 0; up < 2; up++) { /* the folder of the command, and the one that holds it */
        char *slash = strrchr(self, '/');
        if (!slash) return false;
        *slash = '\0';
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(folders); i++) {
        snprintf(path, sizeof path, "%s%s%s/" FOLDER, folders[i][0] == '/' ? "" : self, folders[i][0] == '/' ? "" : "/",
                 folders[i]);
        if (access(path, R_OK) != 0 || strlen(path) >= room) continue;
        memcpy(out, path, strlen(path) + 1);
        return true;
    }
    return false;
}

char *tutti_nccl_preload(void)
{
    char path[PATH_MAX], *text;
    const char *before = getenv("LD_PRELOAD");
    if (!tutti_nccl_file(path, sizeof path) || strpbrk(path, " :")) return NULL;
    const bool others = before && *before;
    return asprintf(&text, "LD_PRELOAD=%s%s%s", path, others ? ":" : "", others ? before : "") < 0 ? NULL : text;
}
