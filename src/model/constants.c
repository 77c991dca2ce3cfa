/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of measured constants. Numbers are read and written by hand, since those of the C library follow the locale of
 * the program that loads the library. */

#include "model/constants.h"

#include "base/config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 256
#define ROWS_MOST 32  /* a bit each */
#define WAY "way"     /* lines of model/ways.h */
#define FOUND "found" /* lines of model/found.h */
#define FRACTION 1000 /* values are written in thousandths */

struct position { /* for sentences */
    const char *path;
    unsigned line;
};

float *tutti_constant_at(const struct tutti_constants *table, void *values, size_t i)
{
    return (float *)(void *)((unsigned char *)values + table->rows[i].offset);
}

/* ---- reading ---- */

static size_t row_find(const struct tutti_constants *table, const char *name)
{
    size_t i = 0;
    while (i < table->n && strcmp(table->rows[i].name, name) != 0) i++;
    return i;
}

static enum tutti_status name_fail(const struct tutti_constants *table, const struct position *position,
                                   const char *name)
{
    const char *names[ROWS_MOST];
    for (size_t i = 0; i < table->n; i++) names[i] = table->rows[i].name;
    const char *near = tutti_nearest(name, names, table->n);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: \"%.40s\" is no constant of %s%s%s%s", position->path, position->line,
                      name, table->what, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* seen: bit i for the i-th constant. */
static enum tutti_status line_read(const struct tutti_constants *table, const struct position *position, char *text,
                                   uint32_t *seen, void *values)
{
    char *rest = NULL, *name = strtok_r(text, " \t\r\n", &rest), *value = strtok_r(NULL, " \t\r\n", &rest);
    double number;
    if (!name || name[0] == '#' || strcmp(name, WAY) == 0 || strcmp(name, FOUND) == 0) return TUTTI_OK;
    size_t i = row_find(table, name);
    if (i == table->n) return name_fail(table, position, name);
    const struct tutti_constant *row = &table->rows[i];
    if (*seen & UINT32_C(1) << i)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s is given twice", position->path, position->line, name);
    if (!value || strtok_r(NULL, " \t\r\n", &rest))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: not of the form `name value`", position->path, position->line);
    if (!tutti_parse_decimal(value, &number) || (float)number < row->minimum || (float)number > row->maximum)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s is \"%.40s\": write a number from %g to %g", position->path,
                          position->line, name, value, (double)row->minimum, (double)row->maximum);
    *seen |= UINT32_C(1) << i;
    *tutti_constant_at(table, values, i) = (float)number;
    return TUTTI_OK;
}

static enum tutti_status lines_read(const struct tutti_constants *table, FILE *file, const char *path, void *values)
{
    char text[LINE_MAX_BYTES];
    uint32_t seen = 0;
    for (struct position position = {path, 1}; fgets(text, sizeof text, file); position.line++) {
        if (strlen(text) == sizeof text - 1)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: the line is longer than %d bytes", path, position.line,
                              LINE_MAX_BYTES - 2);
        TUTTI_TRY(line_read(table, &position, text, &seen, values));
    }
    if (ferror(file)) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be read", path);
    return TUTTI_OK;
}

enum tutti_status tutti_constants_read(const struct tutti_constants *table, const char *path, void *values)
{
    _Alignas(float) unsigned char read[TUTTI_CONSTANTS_MOST_BYTES];
    FILE *file = fopen(path, "re");
    if (!file) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the tuning file %s can not be read", path);
    memcpy(read, values, table->bytes);
    enum tutti_status status = lines_read(table, file, path, read);
    fclose(file);
    if (status >= 0) memcpy(values, read, table->bytes);
    return status;
}

/* ---- writing ---- */

/* The directories of a path; one that can not be made is told by who opens the file. */
static void parents_make(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(part, 0755);
        *slash = '/';
    }
}

static void text_write(const struct tutti_constants *table, FILE *file, const void *values, const char *about)
{
    _Alignas(float) unsigned char copy[TUTTI_CONSTANTS_MOST_BYTES];
    memcpy(copy, values, table->bytes);
    fprintf(file, "# %s\n", about);
    for (size_t i = 0; i < table->n; i++) {
        uint64_t thousandths = (uint64_t)((double)*tutti_constant_at(table, copy, i) * FRACTION + 0.5);
        fprintf(file, "%-15s %llu.%03llu\n", table->rows[i].name, (unsigned long long)(thousandths / FRACTION),
                (unsigned long long)(thousandths % FRACTION));
    }
}

enum tutti_status tutti_constants_write(const struct tutti_constants *table, const char *path, const void *values,
                                        const char *about)
{
    char draft[PATH_MAX];
    if (snprintf(draft, sizeof draft, "%s.%d", path, (int)getpid()) >= (int)sizeof draft)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the path of the tuning file is longer than %d bytes", PATH_MAX - 1);
    parents_make(path);
    FILE *file = fopen(draft, "we");
    if (!file) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", draft);
    text_write(table, file, values, about);
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    if (!failed && rename(draft, path) == 0) return TUTTI_OK;
    int saved = errno;
    unlink(draft);
    errno = saved;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", path);
}

/* ---- which file ---- */

static void slug(const char *name, char *out, size_t capacity)
{
    size_t n = 0;
    for (; *name && *name != '\n' && n + 1 < capacity; name++) {
        char c = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
        bool keep = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (keep || (n > 0 && out[n - 1] != '-')) out[n++] = keep ? c : '-';
    }
    if (n > 0 && out[n - 1] == '-') n--;
    out[n] = '\0';
}

bool tutti_constants_path(const char *name, uint32_t n, char *out, size_t capacity)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool has_cache = cache && cache[0] == '/'; /* the specification has relative ones ignored */
    char model[100];
    if (!has_cache && (!home || home[0] != '/')) return false;
    slug(name, model, sizeof model);
    int length = snprintf(out, capacity, "%s%s/tutti/%s-%u.tune", has_cache ? cache : home, has_cache ? "" : "/.cache",
                          model[0] ? model : "unknown", n);
    return length > 0 && (size_t)length < capacity;
}
