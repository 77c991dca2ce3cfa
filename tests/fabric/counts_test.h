/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FABRIC_COUNTS_TEST_H
#define TUTTI_TESTS_FABRIC_COUNTS_TEST_H

/* What the stand-in for libfabric has counted so far in this process; before a world is opened, too. */

#include "standin/fabric/fabric_standin.h"
#include "test.h"

#include <dlfcn.h>
#include <string.h>

static inline struct fabric_standin_counts counts_now(void)
{
    struct fabric_standin_counts counts;
    fabric_standin_counts_function *ask = NULL;
    void *library = dlopen("libfabric.so.1", RTLD_NOW), *found;
    assert_non_null(library);
    found = dlsym(library, "fabric_standin_counts");
    assert_non_null(found); /* another libfabric than the stand-in: LD_LIBRARY_PATH names its folder */
    memcpy(&ask, &found, sizeof(ask));
    ask(&counts);
    return counts;
}

#endif
