/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_MODEL_WAYS_H
#define TUTTI_MODEL_WAYS_H

/* What single ways of a collective took on this host, beside what was predicted of them: formulas over a few constants
 * tell how a way grows, and miss what caches and turns of a machine add. `tutti tune` measures each way at some sizes
 * and appends lines to the file of constants:
 *
 *     way RANKS MEMORY KIND NAME TIMES TIMES ...
 *
 * how many times as long as predicted from the constants above it takes, at 256 B, 2 KiB, ... 8 MiB; "-": not measured.
 * Sizes are those of `tutti bench`: bytes of the larger side of one rank. */

#include "base/base.h"
#include "sched/kind.h"

#define TUTTI_WAY_SIZES 6
#define TUTTI_WAY_LEAST 256 /* bytes; each further size is so many octaves more: */
#define TUTTI_WAY_OCTAVES 3

enum tutti_way_memory { TUTTI_WAY_4K, TUTTI_WAY_HUGE, TUTTI_WAY_MAPPED, TUTTI_WAY_MEMORIES };
extern const char *const tutti_way_memories[TUTTI_WAY_MEMORIES]; /* as `tutti bench --pages` names them, and "mapped" */

struct tutti_way_times {
    uint32_t ranks;
    enum tutti_way_memory memory;
    enum tutti_kind kind;
    char name[24];
    float times[TUTTI_WAY_SIZES]; /* 0: not measured */
};

/* Those of a file of constants, one by one; take may be NULL. ARGUMENT with file and line where a line is wrong, SYSTEM
 * where the file can not be read. */
enum tutti_status tutti_ways_read(const char *path, void (*take)(void *to, const struct tutti_way_times *way),
                                  void *to);
/* Adds n of them to a file of constants. SYSTEM. */
enum tutti_status tutti_ways_append(const char *path, const struct tutti_way_times *ways, size_t n);

/* Between the sizes that were measured, which count in octaves; beyond them the nearest. Equal on all machines. */
double tutti_way_at(const float times[TUTTI_WAY_SIZES], uint64_t bytes);

#endif
