/* SPDX-License-Identifier: BSD-3-Clause */

/* Lists of CPUs in the kernel's notation, "0-3,8". */

#include "topo/topo.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CPU ids beyond this are nonsense; it also keeps the loops below short. */
#define MAX_ID 65535

static bool id_parse(const char **text, uint32_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**text)) return false;
    const unsigned long value = strtoul(*text, &end, 10);
    if (value > MAX_ID) return false;
    *text = end;
    *out = (uint32_t)value;
    return true;
}

size_t tutti_topo_list_parse(const char *text, uint32_t *ids, size_t capacity)
{
    size_t n = 0;
    while (isspace((unsigned char)*text)) text++;
    if (*text == '\0') return 0;
    for (;;) {
        uint32_t first, last;
        if (!id_parse(&text, &first)) return SIZE_MAX;
        last = first;
        if (*text == '-') {
            text++;
            if (!id_parse(&text, &last) || last < first) return SIZE_MAX;
        }
        if (last - first >= capacity - n) return SIZE_MAX;
        for (uint32_t id = first; id <= last; id++) ids[n++] = id;
        while (isspace((unsigned char)*text)) text++;
        if (*text == '\0') return n;
        if (*text++ != ',') return SIZE_MAX;
        while (isspace((unsigned char)*text)) text++;
    }
}

char *tutti_topo_list_format(const uint32_t *ids, size_t n, char *out, size_t capacity)
{
    if (capacity > 0) out[0] = '\0';
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && ids[next] == ids[next - 1] + 1;) next++;
        tutti_append(out, capacity, "%s%u", i ? "," : "", ids[i]);
        if (next - i > 1) tutti_append(out, capacity, "-%u", ids[next - 1]);
    }
    return out;
}
