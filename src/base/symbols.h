/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_SYMBOLS_H
#define TUTTI_BASE_SYMBOLS_H

/* Libraries that are opened at run time (drivers, NCCL, oneCCL, SYCL): their functions as members of a struct. */

#include <stdbool.h>
#include <stddef.h>

struct tutti_symbol {
    const char *name;
    size_t at; /* the member's */
    bool needed;
};
/* Fills members of *out; those that are not there are NULL. The name of the first one that is not there and is needed,
 * where it stopped; NULL: all are. `library` is a handle of dlopen. */
const char *tutti_symbols_find(void *library, const struct tutti_symbol *symbols, size_t n, void *out);

#endif
