/* SPDX-License-Identifier: BSD-3-Clause */
/* libfabric, opened at run time, once. It stays: its providers have threads of their own. */

#include "base/symbols.h"
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
#define ROW(member)                                                                                                    \
    {                                                                                                                  \
        "fi_" #member, offsetof(struct tutti_ofi_library, member), true                                                \
    }
    static const struct tutti_symbol calls[] = {ROW(getinfo), ROW(freeinfo), ROW(dupinfo),
                                                ROW(fabric),  ROW(strerror), ROW(version)};
#undef ROW
    if (!handle) {
        tutti_append(why, sizeof(why), "%s (apt-get install libfabric1)", dlerror());
        return;
    }
    const char *missing = tutti_symbols_find(handle, calls, TUTTI_ARRAY_LEN(calls), &library);
    if (missing) {
        tutti_append(why, sizeof(why), "libfabric has no %s", missing);
        return;
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
