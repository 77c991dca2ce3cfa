/* SPDX-License-Identifier: BSD-3-Clause */

/* Sizes, times and names as people write them. */

#include "base/config.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    uint64_t value;
};

/* Reads digits, advancing *text; false on none or overflow. */
static bool digits_read(const char **text, uint64_t *out)
{
    const char *p = *text;
    uint64_t value = 0;
    if (!isdigit((unsigned char)*p)) return false;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    *text = p;
    *out = value;
    return true;
}

static const struct unit *unit_find(const struct unit *units, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(units[i].name, name) == 0) return &units[i];
    return NULL;
}

bool tutti_parse_size(const char *text, uint64_t *out)
{
    static const struct unit units[] = {
        {"", 1},
        {"B", 1},
        {"K", UINT64_C(1) << 10},
        {"KiB", UINT64_C(1) << 10},
        {"M", UINT64_C(1) << 20},
        {"MiB", UINT64_C(1) << 20},
        {"G", UINT64_C(1) << 30},
        {"GiB", UINT64_C(1) << 30},
        {"T", UINT64_C(1) << 40},
        {"TiB", UINT64_C(1) << 40},
    };
    uint64_t number, value;
    if (!digits_read(&text, &number)) return false;
    const struct unit *unit = unit_find(units, TUTTI_ARRAY_LEN(units), text);
    if (!unit || __builtin_mul_overflow(number, unit->value, &value)) return false;
    *out = value;
    return true;
}

bool tutti_parse_time(const char *text, uint64_t *out_ns)
{
    static const struct unit units[] = {
        {"", TUTTI_NS_PER_S}, /* a number alone is seconds, as in timeout(1) */
        {"ns", 1},
        {"us", 1000},
        {"ms", TUTTI_NS_PER_MS},
        {"s", TUTTI_NS_PER_S},
        {"m", 60 * TUTTI_NS_PER_S},
        {"min", 60 * TUTTI_NS_PER_S},
        {"h", 3600 * TUTTI_NS_PER_S},
    };
    uint64_t whole, part = 0, scale = 1, value;
    if (!digits_read(&text, &whole)) return false;
    if (*text == '.') {
        const char *from = ++text;
        if (!digits_read(&text, &part) || text - from > 9) return false;
        for (; from < text; from++) scale *= 10;
    }
    const struct unit *unit = unit_find(units, TUTTI_ARRAY_LEN(units), text);
    if (!unit) return false;
    value = tutti_ns(whole, unit->value);
    const unsigned __int128 fraction = (unsigned __int128)part * unit->value / scale;
    if (__builtin_add_overflow(value, (uint64_t)fraction, &value)) value = TUTTI_NEVER;
    *out_ns = value;
    return true;
}

bool tutti_parse_decimal(const char *text, double *out)
{
    double value = 0, place = 0;
    size_t digits = 0;
    for (; *text; text++) {
        if (*text == '.' && place == 0) {
            place = 1;
            continue;
        }
        if (*text < '0' || *text > '9' || ++digits > 15) return false;
        value = value * 10 + (*text - '0');
        place *= 10;
    }
    *out = place > 0 ? value / place : value;
    return digits > 0;
}

#define NEAREST_MAX 48 /* longer words are compared by their front */

/* Edit distance with swaps of neighbours, without case. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strnlen(a, NEAREST_MAX), m = strnlen(b, NEAREST_MAX);
    size_t rows[3][NEAREST_MAX + 1] = {{0}};
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            size_t best = above[j - 1] + (x != y);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && tolower((unsigned char)a[i - 2]) == y &&
                two_above[j - 2] + 1 < best)
                best = two_above[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *tutti_nearest(const char *text, const char *const *names, size_t n)
{
    const char *nearest = NULL;
    size_t limit = strlen(text) / 3 + 1, least = limit + 1;
    for (size_t i = 0; i < n; i++) {
        size_t distance = edit_distance(text, names[i]);
        /* At least one letter must be right, else "ab" is near to everything short. */
        if (distance < least && distance < strlen(names[i])) least = distance, nearest = names[i];
    }
    return nearest;
}
