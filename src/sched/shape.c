/* SPDX-License-Identifier: BSD-3-Clause */

/* Shapes: the levels of a world as text ("8,8,7,8;2,2", runs also as "8x2,7,8") and back, and which group a unit is in.
 * Levels are runs, so all of this costs what the number of runs is, never the number of slots. */

#include "sched/emit.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Digits to *out; false when there are none or they pass 2^32 - 1. */
static bool parse_number(const char **at, uint32_t *out)
{
    uint64_t value = 0;
    const char *start = *at;

    while (isdigit((unsigned char)**at)) {
        value = value * 10 + (uint64_t)(**at - '0');
        if (value > UINT32_MAX) return false;
        ++*at;
    }
    *out = (uint32_t)value;
    return *at != start;
}

static enum tutti_status parse_run(const char **at, struct tutti_level *level, const char *text)
{
    struct tutti_run run = {0, 1};

    if (!parse_number(at, &run.size) || run.size == 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "levels \"%.80s\": expected a group size at \"%.20s\"", text, *at);
    if (**at == 'x') {
        ++*at;
        if (!parse_number(at, &run.repeat) || run.repeat == 0)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "levels \"%.80s\": expected a repeat count at \"%.20s\"", text, *at);
    }
    struct tutti_run *last = level->n_runs > 0 ? &level->runs[level->n_runs - 1] : NULL;
    if (last && last->size == run.size) {
        if (last->repeat > UINT32_MAX - run.repeat)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "levels \"%.80s\": too many groups", text);
        last->repeat += run.repeat;
        return TUTTI_OK;
    }
    if (level->n_runs == TUTTI_MAX_RUNS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "levels \"%.80s\": the group size changes more than %d times", text,
                          TUTTI_MAX_RUNS - 1);
    level->runs[level->n_runs++] = run;
    return TUTTI_OK;
}

static uint64_t level_units(const struct tutti_level *level)
{
    uint64_t units = 0;

    for (uint32_t r = 0; r < level->n_runs; r++) units += (uint64_t)level->runs[r].size * level->runs[r].repeat;
    return units;
}

bool tutti_shape_levels_valid(const struct tutti_shape *shape)
{
    uint64_t units = shape->size;

    if (shape->n_levels > TUTTI_MAX_LEVELS) return false;
    for (uint32_t l = 0; l < shape->n_levels; l++) {
        const struct tutti_level *level = &shape->levels[l];
        if (level->n_runs == 0 || level->n_runs > TUTTI_MAX_RUNS || level_units(level) != units) return false;
        units = tutti_level_groups(level);
    }
    return true;
}

enum tutti_status tutti_shape_parse_levels(struct tutti_shape *shape, const char *text)
{
    struct tutti_shape parsed = *shape;
    uint64_t units = shape->size;
    const char *at = text;

    memset(parsed.levels, 0, sizeof(parsed.levels));
    parsed.n_levels = 0;
    while (*at) {
        if (parsed.n_levels == TUTTI_MAX_LEVELS)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "levels \"%.80s\": more than %d levels", text, TUTTI_MAX_LEVELS);
        struct tutti_level *level = &parsed.levels[parsed.n_levels];
        for (;;) {
            TUTTI_TRY(parse_run(&at, level, text));
            if (*at != ',') break;
            at++;
        }
        if (units == 0 && level_units(level) <= UINT32_MAX) parsed.size = (uint32_t)(units = level_units(level));
        if (level_units(level) != units)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "levels \"%.80s\": the groups of level %u hold %llu, but there are %llu %s", text,
                              parsed.n_levels, (unsigned long long)level_units(level), (unsigned long long)units,
                              parsed.n_levels == 0 ? "ranks" : "groups below");
        units = tutti_level_groups(level);
        parsed.n_levels++;
        if (*at == ';' && at[1] != '\0') {
            at++;
        } else if (*at != '\0') {
            return tutti_fail(TUTTI_ERR_ARGUMENT, "levels \"%.80s\": unexpected \"%.20s\"", text, at);
        }
    }
    *shape = parsed;
    return TUTTI_OK;
}

void tutti_shape_levels_text(const struct tutti_shape *shape, char *out, size_t capacity)
{
    if (capacity == 0) return;
    out[0] = '\0';
    for (uint32_t l = 0; l < shape->n_levels; l++) {
        const struct tutti_level *level = &shape->levels[l];
        for (uint32_t r = 0; r < level->n_runs; r++) {
            const struct tutti_run *run = &level->runs[r];
            tutti_append(out, capacity, "%s%u", r > 0 ? "," : l > 0 ? ";" : "", run->size);
            if (run->repeat > 1) tutti_append(out, capacity, "x%u", run->repeat);
        }
    }
}

uint32_t tutti_level_groups(const struct tutti_level *level)
{
    uint32_t groups = 0;

    for (uint32_t r = 0; r < level->n_runs; r++) groups += level->runs[r].repeat;
    return groups;
}

void tutti_level_find(const struct tutti_level *level, uint32_t index, uint32_t *group, uint32_t *first, uint32_t *size)
{
    uint32_t groups = 0, units = 0;

    for (uint32_t r = 0; r < level->n_runs; r++) {
        const struct tutti_run *run = &level->runs[r];
        uint64_t end = units + (uint64_t)run->size * run->repeat;
        if (index < end || r + 1 == level->n_runs) {
            uint32_t within = (index - units) / run->size;
            *group = groups + within;
            *first = units + within * run->size;
            *size = run->size;
            return;
        }
        groups += run->repeat;
        units = (uint32_t)end;
    }
    *group = *first = *size = 0; /* no runs: no groups */
}

/* The first unit of a group; of the one behind the last: the number of units. */
static uint32_t group_first(const struct tutti_level *level, uint32_t group)
{
    uint32_t first = 0;

    for (uint32_t r = 0; r < level->n_runs; r++) {
        const struct tutti_run *run = &level->runs[r];
        if (group < run->repeat) return first + group * run->size;
        group -= run->repeat;
        first += run->size * run->repeat;
    }
    return first;
}

/* The first slot of a unit of a level. */
static uint32_t unit_first(const struct tutti_shape *shape, uint32_t level, uint32_t unit)
{
    while (level > 0) unit = group_first(&shape->levels[--level], unit);
    return unit;
}

static uint32_t unit_slots(const struct tutti_shape *shape, uint32_t level, uint32_t unit)
{
    return unit_first(shape, level, unit + 1) - unit_first(shape, level, unit);
}

bool tutti_shape_lane(const struct tutti_shape *shape, uint32_t slot, uint32_t level, struct tutti_lane *out)
{
    uint32_t unit = slot, group, first, n;

    for (uint32_t l = 0; l < level; l++) tutti_level_find(&shape->levels[l], unit, &unit, &first, &n);
    tutti_level_find(&shape->levels[level], unit, &group, &first, &n);
    uint32_t width = unit_slots(shape, level, first), place = slot - unit_first(shape, level, unit);
    for (uint32_t i = 1; i < n; i++)
        if (unit_slots(shape, level, first + i) != width) return false;
    *out = (struct tutti_lane){.base = unit_first(shape, level, first) + place, .stride = width, .size = n};
    return n > 1;
}

static bool level_same(const struct tutti_level *a, const struct tutti_level *b)
{
    if (a->n_runs != b->n_runs) return false;
    for (uint32_t r = 0; r < a->n_runs; r++)
        if (a->runs[r].size != b->runs[r].size || a->runs[r].repeat != b->runs[r].repeat) return false;
    return true;
}

bool tutti_shape_same_world(const struct tutti_shape *a, const struct tutti_shape *b)
{
    if (a->size != b->size || a->root != b->root || a->radix != b->radix || a->n_levels != b->n_levels) return false;
    for (uint32_t l = 0; l < a->n_levels; l++)
        if (!level_same(&a->levels[l], &b->levels[l])) return false;
    return true;
}
