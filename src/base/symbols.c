/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of libraries that are opened at run time, by their names. */
#include "base/symbols.h"

#include <dlfcn.h>
#include <string.h>

const char *tutti_symbols_find(void *library, const struct tutti_symbol *symbols, size_t n, void *out)
{
    for (size_t i = 0; i < n; i++) {
        void *function = dlsym(library, symbols[i].name);
        memcpy((char *)out + symbols[i].at, &function, sizeof function);
        if (!function && symbols[i].needed) return symbols[i].name;
    }
    return NULL;
}
