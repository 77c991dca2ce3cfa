/* SPDX-License-Identifier: BSD-3-Clause */

/* Copies past the caches, byte by byte: every alignment of both sides, lengths around lines, nothing written beside. */

#include "test.h"

#include "device/cpu/copy.h"

#include <stdlib.h>
#include <string.h>

#define ROOM 4096

static void check(const unsigned char *source, size_t to, size_t from, size_t bytes)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char copy[ROOM];

    memset(copy, 0xee, sizeof(copy));
    tutti_copy_past_cache(copy + to, source + from, bytes);
    for (size_t i = 0; i < sizeof(copy); i++) {
        unsigned char expected = i >= to && i < to + bytes ? source[from + i - to] : 0xee;
        if (copy[i] != expected)
            fail_msg("%zu bytes from %zu to %zu: [%zu] is %u, not %u", bytes, from, to, i, copy[i], expected);
    }
}

static void everywhere(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 63, 64, 65, 127, 128, 129, 1000, 3000};
    _Alignas(TUTTI_CACHE_LINE) unsigned char source[ROOM];

    srand(3);
    for (size_t i = 0; i < sizeof(source); i++) source[i] = (unsigned char)rand();
    for (size_t to = 0; to <= 2 * TUTTI_CACHE_LINE; to++)
        for (size_t from = 0; from <= TUTTI_CACHE_LINE; from += from < 20 ? 1 : 11)
            for (size_t i = 0; i < TUTTI_ARRAY_LEN(lengths); i++) check(source, to, from, lengths[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
