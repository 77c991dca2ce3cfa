/* SPDX-License-Identifier: BSD-3-Clause */
/* cuGetProcAddress of the stand-in: names without a version give the newest that there is. */

#include "driver.h"

#include <dlfcn.h>

STANDIN_API int cuGetProcAddress_v2(const char *symbol, void **out, int, uint64_t, int *found)
{
    static const char *const versions[] = {"_v3", "_v2", ""};
    Dl_info own;
    *out = nullptr;
    if (found) *found = 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    if (!dladdr((void *)cuGetProcAddress_v2, &own)) return standin::not_found;
    void *self = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    for (const char *version : versions) {
        if (self && !*out) *out = dlsym(self, (std::string(symbol) + version).c_str());
    }
    if (self) dlclose(self);
    if (!*out) return standin::not_found;
    if (found) *found = 0;
    return standin::success;
}
