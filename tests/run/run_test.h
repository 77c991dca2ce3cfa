/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_RUN_TEST_H
#define TUTTI_TESTS_RUN_TEST_H

/* How tests of `tutti run` begin, and what they ask of the texts that it printed. */

#include "launched.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Takes the path of the command from the program's argument; false: there is none. */
static inline bool launched_begin(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s TUTTI\n", argv[0]);
        return false;
    }
    launched_command = argv[1];
    signal(SIGPIPE, SIG_IGN);
    return true;
}

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
