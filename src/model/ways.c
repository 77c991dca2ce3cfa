/* SPDX-License-Identifier: BSD-3-Clause */
/* The lines `way` of a file of constants. */
#include "model/ways.h"

#include "base/config.h"

#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES 256
#define TIMES_LEAST 0.01 /* what a file may say */
#define TIMES_MOST 100.0

const char *const tutti_way_memories[] = {"4k", "huge", "mapped"};

/* ---- reading ---- */

static bool memory_parse(const char *text, enum tutti_way_memory *out)
{
    for (int m = 0; m < TUTTI_WAY_MEMORIES; m++) {
        if (strcmp(text, tutti_way_memories[m]) != 0) continue;
        *out = (enum tutti_way_memory)m;
        return true;
    }
    return false;
}

static bool times_parse(char **rest, float times[TUTTI_WAY_SIZES])
{
    for (int i = 0; i < TUTTI_WAY_SIZES; i++) {
        const char *word = strtok_r(NULL, " \t\r\n", rest);
        double number = 0;
        if (!word) return false;
        if (strcmp(word, "-") != 0 &&
            (!tutti_parse_decimal(word, &number) || !(number >= TIMES_LEAST && number <= TIMES_MOST)))
            return false;
        times[i] = (float)number;
    }
    return !strtok_r(NULL, " \t\r\n", rest);
}

/* A line after its first word. */
static bool way_parse(char **rest, struct tutti_way_times *out)
{
    const char *ranks = strtok_r(NULL, " \t\r\n", rest), *memory = strtok_r(NULL, " \t\r\n", rest);
    const char *kind = strtok_r(NULL, " \t\r\n", rest), *name = strtok_r(NULL, " \t\r\n", rest);
    double n;
    if (!name || strlen(name) >= sizeof out->name) return false;
    if (!tutti_parse_decimal(ranks, &n) || !(n >= 1 && n <= UINT16_MAX)) return false;
    if (!memory_parse(memory, &out->memory) || !tutti_kind_parse(kind, &out->kind)) return false;
    out->ranks = (uint32_t)n;
    snprintf(out->name, sizeof out->name, "%s", name);
    return times_parse(rest, out->times);
}

static enum tutti_status lines_read(FILE *file, const char *path,
                                    void (*take)(void *to, const struct tutti_way_times *way), void *to)
{
    char text[LINE_MAX_BYTES];
    for (unsigned line = 1; fgets(text, sizeof text, file); line++) {
        struct tutti_way_times way;
        char *rest = NULL;
        const char *first = strtok_r(text, " \t\r\n", &rest);
        if (!first || strcmp(first, "way") != 0) continue;
        if (!way_parse(&rest, &way))
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "%s:%u: not of the form `way RANKS MEMORY KIND NAME TIMES...` (4k, huge or mapped; %d "
                              "numbers from %g to %g, or -)",
                              path, line, TUTTI_WAY_SIZES, TIMES_LEAST, TIMES_MOST);
        if (take) take(to, &way);
    }
    if (ferror(file)) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be read", path);
    return TUTTI_OK;
}

enum tutti_status tutti_ways_read(const char *path, void (*take)(void *to, const struct tutti_way_times *way), void *to)
{
    FILE *file = fopen(path, "re");
    if (!file) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the tuning file %s can not be read", path);
    enum tutti_status status = lines_read(file, path, take, to);
    fclose(file);
    return status;
}

/* ---- writing ---- */

static void way_write(FILE *file, const struct tutti_way_times *way)
{
    fprintf(file, "way %u %s %s %s", way->ranks, tutti_way_memories[way->memory], tutti_kind_info(way->kind)->name,
            way->name);
    for (int i = 0; i < TUTTI_WAY_SIZES; i++) {
        const double times = (double)way->times[i];
        const unsigned hundredths = (unsigned)(100 * (times < TIMES_LEAST  ? TIMES_LEAST
                                                      : times > TIMES_MOST ? TIMES_MOST
                                                                           : times) +
                                               0.5);
        if (times > 0)
            fprintf(file, " %u.%02u", hundredths / 100, hundredths % 100);
        else
            fprintf(file, " -");
    }
    fputc('\n', file);
}

enum tutti_status tutti_ways_append(const char *path, const struct tutti_way_times *ways, size_t n)
{
    FILE *file = fopen(path, "ae");
    if (!file) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", path);
    for (size_t i = 0; i < n; i++) way_write(file, &ways[i]);
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    return failed ? tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", path) : TUTTI_OK;
}

/* ---- between sizes ---- */

/* Octaves above the least size; within one as the bytes grow, so that no logarithm is needed. */
static double octaves_of(uint64_t bytes)
{
    double octaves = 0;
    uint64_t reach = TUTTI_WAY_LEAST;
    while (reach <= bytes / 2 && octaves < TUTTI_WAY_OCTAVES * (TUTTI_WAY_SIZES - 1)) reach *= 2, octaves++;
    return bytes > reach ? octaves + (double)(bytes - reach) / (double)reach : octaves;
}

double tutti_way_at(const float times[TUTTI_WAY_SIZES], uint64_t bytes)
{
    const double at = octaves_of(bytes) / TUTTI_WAY_OCTAVES;
    int below = -1, above = -1;
    for (int i = 0; i < TUTTI_WAY_SIZES; i++) {
        if (!(times[i] > 0)) continue;
        if (i <= at) below = i;
        if (i >= at && above < 0) above = i;
    }
    if (below < 0 && above < 0) return 1;
    if (below < 0 || above < 0 || below == above) return (double)times[below < 0 ? above : below];
    return (double)times[below] + ((double)times[above] - (double)times[below]) * (at - below) / (above - below);
}
