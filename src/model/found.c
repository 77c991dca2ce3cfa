/* SPDX-License-Identifier: BSD-3-Clause */
/* The lines `found` of a file of constants. */
#include "model/found.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 256

static const char separators[] = " \t\r\n";

static bool number_parse(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = text ? strtoull(text, &end, 10) : 0;
    return text && text[0] >= '0' && text[0] <= '9' && !*end && !errno;
}

static bool world_parse(const char *text, struct tutti_shape *out)
{
    uint64_t n;
    *out = (struct tutti_shape){.size = 0};
    if (!number_parse(text, &n)) return tutti_shape_parse_levels(out, text) >= 0;
    out->size = (uint32_t)n;
    return n >= 1 && n < UINT32_MAX;
}

/* A line after its first word; what is wrong, or NULL. */
static const char *found_parse(char **rest, struct tutti_found *out)
{
    const char *words[5] = {NULL};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(words); i++)
        if (!(words[i] = strtok_r(NULL, separators, rest))) return "it has too few words";
    if (strtok_r(NULL, separators, rest)) return "it has too many words";
    if (!tutti_kind_parse(words[0], &out->kind)) return "that is no KIND of collective";
    if (!world_parse(words[1], &out->world)) return "WORLD is neither a number of ranks nor levels such as 8x2";
    if (!number_parse(words[2], &out->from) || !number_parse(words[3], &out->to) || out->from > out->to)
        return "FROM and TO are no numbers of bytes, in this order";
    if (strlen(words[4]) >= sizeof out->name) return "ALGORITHM is too long";
    snprintf(out->name, sizeof out->name, "%s", words[4]);
    return NULL;
}

static enum tutti_status lines_read(FILE *file, const char *path, struct tutti_found_list *out)
{
    char text[LINE_MAX_BYTES];
    for (unsigned line = 1; fgets(text, sizeof text, file); line++) {
        char *rest = NULL;
        struct tutti_found found = {.from = 0};
        const char *first = strtok_r(text, separators, &rest);
        if (!first || strcmp(first, "found") != 0) continue;
        const char *wrong = found_parse(&rest, &found);
        if (!wrong && out->n == TUTTI_MOST_FOUND) wrong = "there are too many such lines";
        if (wrong)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: not of the form `found KIND WORLD FROM TO ALGORITHM`: %s",
                              path, line, wrong);
        out->list[out->n++] = found;
    }
    return ferror(file) ? tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be read", path) : TUTTI_OK;
}

enum tutti_status tutti_found_read(const char *path, struct tutti_found_list *out)
{
    FILE *file = fopen(path, "re");
    if (!file) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the tuning file %s can not be read", path);
    const enum tutti_status status = lines_read(file, path, out);
    fclose(file);
    return status;
}

enum tutti_status tutti_found_append(const char *path, const struct tutti_found *found)
{
    char world[160];
    snprintf(world, sizeof world, "%u", found->world.size);
    if (found->world.n_levels) tutti_shape_levels_text(&found->world, world, sizeof world);
    if (!found->name[0] || strpbrk(found->name, separators) || strlen(found->name) + strlen(world) > 200)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "\"%s\" can not be kept in a tuning file: it is too long or has blanks",
                          found->name);
    FILE *file = fopen(path, "ae");
    if (!file) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", path);
    fprintf(file, "found %s %s %llu %llu %s\n", tutti_kind_name(found->kind), world, (unsigned long long)found->from,
            (unsigned long long)found->to, found->name);
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    return failed ? tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", path) : TUTTI_OK;
}

const struct tutti_found *tutti_found_for(const struct tutti_found_list *list, enum tutti_kind kind,
                                          const struct tutti_shape *world, uint64_t bytes)
{
    struct tutti_shape plain = *world;
    plain.slot = plain.root = plain.radix = 0;
    for (uint32_t i = 0; list && i < list->n; i++) {
        const struct tutti_found *found = &list->list[i];
        if (found->kind == kind && bytes >= found->from && bytes <= found->to &&
            tutti_shape_same_world(&found->world, &plain))
            return found;
    }
    return NULL;
}
