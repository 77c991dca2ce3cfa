/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_RUN_TEST_H
#define TUTTI_TESTS_RUN_TEST_H

/* What tests of `tutti run` ask of the texts that it printed. */

#include "launched.h"
#include "test.h"

#include <string.h>

static inline size_t count_of(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

#define expect_in(text, what)                                                                                          \
    do {                                                                                                               \
        if (!strstr(text, what)) fail_msg("\"%s\" is not in: %s", what, text);                                         \
    } while (0)

#endif
