/* SPDX-License-Identifier: BSD-3-Clause */
/* libfabric, opened at run time, once. It stays: its providers have threads of their own. */

#include "transport/ofi/state.h"

#include <dlfcn.h>

static struct tutti_ofi_library library;
static bool there;
static char why[200];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) handle = dlopen("libfabric.so.2", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *function;
    } calls[] = {
        {"fi_getinfo", &library.getinfo}, {"fi_freeinfo", &library.freeinfo}, {"fi_dupinfo", &library.dupinfo},
        {"fi_fabric", &library.fabric},   {"fi_strerror", &library.strerror}, {"fi_version", &library.version},
    };
    if (!handle) {
        tutti_append(why, sizeof(why), "%s (apt-get install libfabric1)", dlerror());
        return;
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(calls); i++) {
        void *symbol = dlsym(handle, calls[i].name);
        if (!symbol) {
            tutti_append(why, sizeof(why), "libfabric has no %s", calls[i].name);
            return;
        }
        *(void **)calls[i].function = symbol;
    }
    there = true;
}

const struct tutti_ofi_library *tutti_ofi_library(void)
{
    pthread_once(&once, load);
    if (there) return &library;
    tutti_fail(TUTTI_ERR_UNSUPPORTED, "transport ofi: %s", why);
    return NULL;
}

const char *tutti_ofi_says(ssize_t error)
{
    return library.strerror((int)(error < 0 ? -error : error));
}

const char *tutti_ofi_lacks(void)
{
    return tutti_ofi_library() ? NULL : "library";
}
