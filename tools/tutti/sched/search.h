/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_SEARCH_H
#define TUTTI_TOOLS_SEARCH_H

/* The search for a faster schedule, for `tutti sched search`: what is tried, and how plans are altered (search.c); the
 * options, the table and what is stored (sched_search.c). */

#include "sched/plan.h"

/* An algorithm, whole or as a plan. */
struct search_entry {
    char label[96];
    const struct tutti_algorithm *algorithm;
    struct tutti_shape shape;
    uint64_t slice_bytes;
    uint64_t ps;                 /* simulated; TUTTI_NEVER: not yet, or it can not be */
    struct search_plan *planned; /* algorithms that are plans; else NULL */
};
struct search {
    enum tutti_kind kind;
    struct tutti_shape world; /* size and levels */
    uint64_t seed;
    /* Simulated time of one; TUTTI_NEVER where there is none. */
    uint64_t (*time)(void *argument, const struct search_entry *entry);
    void *argument;
    struct search_entry *entries; /* sorted by time, proved */
    size_t n, capacity;
    uint32_t n_tried, n_refused;
};
void search_fini(struct search *search);
/* Algorithms of the table with radices, with and without the levels. */
enum tutti_status search_table(struct search *search, uint64_t slice_bytes);
/* all_reduce in groups: one algorithm inside, one between them, one inside again. */
enum tutti_status search_composed(struct search *search, uint64_t slice_bytes);
/* Alters the fastest as plans until the deadline; worlds of at most 8 ranks. */
enum tutti_status search_local(struct search *search, uint64_t deadline_ns);
void search_sort(struct search *search);
/* The plan of an entry that has one. */
const struct tutti_plan *search_plan_of(const struct search_entry *entry);

#endif
