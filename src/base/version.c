/* SPDX-License-Identifier: BSD-3-Clause */
/* The version of the library, from the build. */
#include <tutti/comm.h>

#define TEXT(x) #x
#define DOTTED(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

uint32_t tutti_version(void)
{
    return (uint32_t)TUTTI_VERSION_MAJOR << 16 | (uint32_t)TUTTI_VERSION_MINOR << 8 | (uint32_t)TUTTI_VERSION_PATCH;
}

const char *tutti_version_text(void)
{
    return DOTTED(TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
}
