/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FUZZ_H
#define TUTTI_TESTS_FUZZ_H

/* What every fuzz target includes. A target is one function over bytes that nobody vouches for. Built by libFuzzer
 * (clang, TUTTI_FUZZ) it is driven by coverage; else replay.c feeds it the corpus and mutations of it. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* A property that must hold whatever the input. */
#define FUZZ_CHECK(claim)                                                                                              \
    do {                                                                                                               \
        if (!(claim)) {                                                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim);                                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
