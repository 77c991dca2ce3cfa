/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters by text, and back. */

#include "sim/parameters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tutti_sim_routings[TUTTI_SIM_ROUTINGS] = {"minimal", "valiant", "adaptive"};

static const struct {
    const char *suffix;
    double seconds;
} times[] = {{"ps", 1e-12}, {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

static void *place(const struct tutti_sim_parameter *row, void *values)
{
    return (char *)values + row->offset;
}

void tutti_sim_parameters_default(const struct tutti_sim_table *table, void *values)
{
    for (size_t i = 0; i < table->n; i++) {
        double fallback = table->rows[i].fallback[table->column];
        if (table->rows[i].unit == TUTTI_SIM_DIMS)
            *(struct tutti_sim_dims *)place(&table->rows[i], values) = (struct tutti_sim_dims){0};
        else
            *(double *)place(&table->rows[i], values) = isnan(fallback) ? 0 : fallback;
    }
}

/* ---- from text ---- */

static bool dims_parse(const char *text, struct tutti_sim_dims *out)
{
    char *end;
    for (out->n = 0;; text = end + 1) {
        unsigned long n = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || n > 1000000) return false;
        if (n == 0) return out->n == 0 && !*end;
        if (out->n == TUTTI_SIM_MOST_DIMS) return false;
        out->size[out->n++] = (uint32_t)n;
        if (*end != 'x') return !*end;
    }
}

/* A number with its unit; NAN: it is none. */
static double value_parse(const char *text, enum tutti_sim_unit unit)
{
    char *end;
    if (unit == TUTTI_SIM_ROUTING) {
        for (size_t r = 0; r < TUTTI_SIM_ROUTINGS; r++)
            if (strcmp(text, tutti_sim_routings[r]) == 0) return (double)r;
        return NAN;
    }
    double value = strtod(text, &end);
    if (end == text) return NAN;
    if (unit == TUTTI_SIM_COUNT && !(value >= 0 && value < 1e15 && value == (double)(uint64_t)value)) return NAN;
    if (unit != TUTTI_SIM_TIME || (*end == '\0' && value == 0)) return *end == '\0' ? value : NAN;
    for (size_t t = 0; t < TUTTI_ARRAY_LEN(times); t++)
        if (strcmp(end, times[t].suffix) == 0) return value * times[t].seconds;
    return NAN;
}

static enum tutti_status refuse_value(const char *what, const struct tutti_sim_parameter *row, const char *text)
{
    static const char *const wants[] = {"a whole number",
                                        "a number of GB/s",
                                        "a number",
                                        "a time such as 200ns or 1.5us",
                                        "minimal, valiant or adaptive",
                                        "numbers of nodes such as 8x8x16, in at most 6 dimensions"};
    char range[64] = "", least[24], most[24];
    tutti_sim_parameter_text(row, row->least, least, sizeof(least));
    tutti_sim_parameter_text(row, row->most, most, sizeof(most));
    if (row->unit < TUTTI_SIM_ROUTING) snprintf(range, sizeof(range), ", from %s to %s", least, most);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: %s=%s: it takes %s%s", what, row->name, text, wants[row->unit], range);
}

static enum tutti_status set_one(const struct tutti_sim_table *table, const char *item, size_t n, void *values,
                                 uint64_t *set)
{
    char text[64];
    const char *equal = memchr(item, '=', n);
    size_t n_name = equal ? (size_t)(equal - item) : n, n_text = equal ? n - n_name - 1 : 0;
    for (size_t i = 0; i < table->n; i++) {
        const struct tutti_sim_parameter *row = &table->rows[i];
        if (isnan(row->fallback[table->column]) || strlen(row->name) != n_name || memcmp(row->name, item, n_name) != 0)
            continue;
        snprintf(text, sizeof(text), "%.*s", (int)(n_text < 40 ? n_text : 40), equal ? equal + 1 : "");
        if (n_text == 0 || n_text > 40) return refuse_value(table->what, row, text);
        *set |= UINT64_C(1) << i;
        if (row->unit == TUTTI_SIM_DIMS)
            return dims_parse(text, place(row, values)) ? TUTTI_OK : refuse_value(table->what, row, text);
        double value = value_parse(text, row->unit);
        if (!(value >= row->least && value <= row->most)) return refuse_value(table->what, row, text);
        *(double *)place(row, values) = value;
        return TUTTI_OK;
    }
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s has no parameter '%.*s'", table->what, (int)(n_name < 40 ? n_name : 40),
                      item);
}

enum tutti_status tutti_sim_parameters_set(const struct tutti_sim_table *table, const char *text, void *values,
                                           uint64_t *set)
{
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        TUTTI_TRY(set_one(table, at, n, values, set));
        at += n;
        if (*at == ',') at++;
    }
    return TUTTI_OK;
}

/* ---- to text ---- */

void tutti_sim_parameter_text(const struct tutti_sim_parameter *row, double value, char *out, size_t capacity)
{
    size_t t = 1;
    if (row->unit == TUTTI_SIM_ROUTING) {
        snprintf(out, capacity, "%s", tutti_sim_routings[(size_t)value]);
    } else if (row->unit == TUTTI_SIM_TIME && value > 0) {
        while (t + 1 < TUTTI_ARRAY_LEN(times) && value >= times[t + 1].seconds * (1 - 1e-9)) t++;
        snprintf(out, capacity, "%g%s", value / times[t].seconds, times[t].suffix);
    } else {
        snprintf(out, capacity, "%g", value);
    }
}
