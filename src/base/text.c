/* SPDX-License-Identifier: BSD-3-Clause */

/* Sentences that are put together piece by piece. */

#include "base/base.h"

#include <stdio.h>
#include <string.h>

void tutti_append(char *out, size_t capacity, const char *format, ...)
{
    const size_t used = strnlen(out, capacity);
    va_list args;
    if (used + 1 >= capacity) return;
    va_start(args, format);
    vsnprintf(out + used, capacity - used, format, args);
    va_end(args);
}

char *tutti_text_copy(const char *text)
{
    const size_t n = strlen(text) + 1;
    char *copy = tutti_alloc(n);

    return copy ? memcpy(copy, text, n) : NULL;
}
