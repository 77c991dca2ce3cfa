/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_TEST_H
#define TUTTI_TESTS_TEST_H

/* What every test program includes: cmocka (or the stand-in in tests/standin) with what it needs before it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The seed of random tests: TUTTI_TEST_SEED, else fixed; print it when a test fails. */
static inline uint64_t test_seed(void)
{
    const char *text = getenv("TUTTI_TEST_SEED");
    return text ? strtoull(text, NULL, 0) : UINT64_C(20261121);
}

/* Whether a sample of large products will do, as in ./dev test; ./dev check --long takes them whole. */
static inline bool test_is_sampled(void)
{
    return getenv("TUTTI_TEST_SAMPLE") != NULL;
}

#endif
