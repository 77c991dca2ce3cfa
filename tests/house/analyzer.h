/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_HOUSE_ANALYZER_H
#define TUTTI_TESTS_HOUSE_ANALYZER_H

/* Included before every file of src/ and tools/ that clang-tidy reads: the analyzer looks at one file at a time and can
 * not know that tutti_fail returns its first argument, so it would follow paths on which a failure is a success. */

#include "base/base.h"

#define tutti_fail(status, ...) ((void)tutti_fail((status), __VA_ARGS__), (status))
#define tutti_fail_errno(status, ...) ((void)tutti_fail_errno((status), __VA_ARGS__), (status))

#endif
