/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens, as it happens: one line each to stderr. */
#include "chaos.h"

#include <stdarg.h>

void chaos_say(const char *format, ...)
{
    char line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "tutti chaos: %s\n", line);
}
