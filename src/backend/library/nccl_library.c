/* SPDX-License-Identifier: BSD-3-Clause */

/* Finds NCCL: the one that the process has loaded already (frameworks bring their own), else the system's. */

#include "backend/library/nccl.h"
#include "base/symbols.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define NAME "libnccl.so.2"

/* The process's one, like the driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_library found; /* version 0: none yet */

static void *library_open(const char *named)
{
    void *loaded = *named ? NULL : dlopen(NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return loaded ? loaded : dlopen(*named ? named : NAME, RTLD_NOW | RTLD_LOCAL);
}

/* The name of the first function that is not there; NULL: all are. */
static const char *calls_find(void *library, struct nccl_library *out)
{
    static const struct tutti_symbol calls[] = {
#define NCCL_ROW(member, symbol, parameters) {#symbol, offsetof(struct nccl_library, member), true},
        NCCL_CALLS(NCCL_ROW)
#undef NCCL_ROW
            {"ncclGetErrorString", offsetof(struct nccl_library, error_text), true},
        {"ncclGetLastError", offsetof(struct nccl_library, last_error), true},
    };
    return tutti_symbols_find(library, calls, TUTTI_ARRAY_LEN(calls), out);
}

/* Under the lock. */
static enum tutti_status library_find(const char *named)
{
    struct nccl_library library = {0};
    void *handle = library_open(named);
    if (!handle) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no NCCL here: %s", dlerror());
    const char *missing = calls_find(handle, &library);
    int version = 0;
    if (!missing && library.version_get(&version) == NCCL_OK && version >= NCCL_NEEDED) {
        library.version = version;
        found = library;
        return TUTTI_OK; /* and stays open */
    }
    dlclose(handle);
    if (missing)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s is no NCCL of 2.18 or later: it has no %s", *named ? named : NAME,
                          missing);
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "NCCL %d.%d.%d is here, and 2.18 or later is needed", version / 10000,
                      version / 100 % 100, version % 100);
}

const struct nccl_library *nccl_library(const char *named)
{
    pthread_mutex_lock(&lock);
    const enum tutti_status status = found.version ? TUTTI_OK : library_find(named ? named : "");
    pthread_mutex_unlock(&lock);
    return status == TUTTI_OK ? &found : NULL;
}

bool nccl_shares(const struct nccl_library *library)
{
    const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return library->version >= 23000 && allowed && strcmp(allowed, "1") == 0;
}
