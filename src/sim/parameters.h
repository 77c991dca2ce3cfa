/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_PARAMETERS_H
#define TUTTI_SIM_PARAMETERS_H

/* Parameters by text: "hosts=32,taper=2,latency=1us" into a structure that a table describes. */

#include "base/base.h"

enum tutti_sim_unit {
    TUTTI_SIM_COUNT,   /* a whole number */
    TUTTI_SIM_RATE,    /* GB/s */
    TUTTI_SIM_RATIO,   /* a number */
    TUTTI_SIM_TIME,    /* 1us, 200ns; kept in seconds */
    TUTTI_SIM_ROUTING, /* a word of tutti_sim_routings */
    TUTTI_SIM_DIMS,    /* numbers between x: struct tutti_sim_dims; all others are doubles */
};
enum tutti_sim_routing { TUTTI_SIM_MINIMAL, TUTTI_SIM_VALIANT, TUTTI_SIM_ADAPTIVE, TUTTI_SIM_ROUTINGS };
extern const char *const tutti_sim_routings[TUTTI_SIM_ROUTINGS];

#define TUTTI_SIM_MOST_DIMS 6
struct tutti_sim_dims {
    uint32_t n, size[TUTTI_SIM_MOST_DIMS];
};

#define TUTTI_SIM_COLUMNS 4
struct tutti_sim_parameter {
    const char *name, *help;
    double fallback[TUTTI_SIM_COLUMNS]; /* by column, that is what is described; NAN: not a parameter of it */
    double least, most;
    enum tutti_sim_unit unit;
    size_t offset; /* in the structure that takes the values */
};
struct tutti_sim_table {
    const char *what; /* for sentences: "fat_tree" */
    const struct tutti_sim_parameter *rows;
    size_t n, column; /* n: at most 64 */
};

void tutti_sim_parameters_default(const struct tutti_sim_table *table, void *values);
/* Items name=value between commas, into values; *set: bit i when row i was among them. ARGUMENT with a sentence. */
enum tutti_status tutti_sim_parameters_set(const struct tutti_sim_table *table, const char *text, void *values,
                                           uint64_t *set);
/* A row's default, and its range, as they are typed. */
void tutti_sim_parameter_text(const struct tutti_sim_parameter *row, double value, char *out, size_t capacity);

#endif
