/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_MODEL_MACHINE_H
#define TUTTI_MODEL_MACHINE_H

/* The few measured constants of a host from which costs are predicted. `tutti tune` measures them and writes a file of
 * lines `name value`; without one the built-in constants stand. Rank 0's are used by all, so they travel in cards.
 * Plain data, no pointers. */

#include "base/config.h"
#include "model/constants.h"

/* X(name, default, minimum, maximum, help). Times in ns; rates in bytes a ns, which is GB/s, of bytes copied or folded,
 * each counted once. A rate is that of one rank where few are busy; the one called all is of all ranks together, at
 * most. */
#define TUTTI_MACHINE(X)                                                                                               \
    X(wake_ns, 5000, 10, 1e7, "a word handed to a sleeper on the same CPU")                                            \
    X(yield_ns, 1500, 10, 1e7, "a turn given up to another rank on the same CPU")                                      \
    X(call_ns, 500, 1, 1e7, "a call through the engine, apart from its messages")                                      \
    X(pull_gbs, 30, 0.01, 1e4, "copying what a peer wrote just now and holds in its cache")                            \
    X(pull_all_gbs, 400, 0.01, 1e6, "the same, all ranks")                                                             \
    X(far_gbs, 12, 0.01, 1e4, "the same from another socket or cache, where ranks are in several")                     \
    X(give_gbs, 20, 0.01, 1e4, "writing what a peer has read since it was written last")                               \
    X(copy_gbs, 50, 0.01, 1e4, "copying in the own cache")                                                             \
    X(mid_gbs, 14, 0.01, 1e4, "copying what is in the last cache, not in the own")                                     \
    X(fold_gbs, 35, 0.01, 1e4, "adding float32 to float32 in the own cache")                                           \
    X(walk_ns, 150, 0, 1e5, "each page of 4 KiB that is read or written, where they are many")                         \
    X(memory_gbs, 14, 0.01, 1e4, "copying from memory to memory, past the caches")                                     \
    X(memory_all_gbs, 60, 0.01, 1e6, "the same, all ranks")                                                            \
    X(attach_ns, 600, 1, 1e7, "a cross-memory copy, apart from its bytes")                                             \
    X(attach_page_ns, 50, 0, 1e6, "each page of 4 KiB of it, where there are no huge ones")                            \
    X(attach_gbs, 45, 0.01, 1e4, "its bytes, in huge pages, in the own cache")                                         \
    X(own_kib, 1024, 16, 1e7, "the cache that a CPU has for itself, in KiB")                                           \
    X(cache_kib, 32768, 64, 1e8, "last cache of the ranks that share one, in KiB")

/* What a message costs on the way between two ranks: its latency, what both ends have to do for it, and the rate of its
 * bytes. One row for each level of links that a message may cross: L(level, prefix of its constants' names, help; the
 * defaults of the three). */
#define TUTTI_LINKS(L)                                                                                                 \
    L(HOST, "", "in shared memory", 90, 400, 6)                                                                        \
    L(NET, "net_", "between hosts", 2000, 2000, 4)
enum tutti_link_level {
#define TUTTI_LINK_LEVEL(level, ...) TUTTI_LINK_##level,
    TUTTI_LINKS(TUTTI_LINK_LEVEL)
#undef TUTTI_LINK_LEVEL
        TUTTI_N_LINKS
};
struct tutti_link {
    float line_ns, message_ns, ring_gbs;
};

struct tutti_machine {
    struct tutti_link links[TUTTI_N_LINKS];
#define TUTTI_MACHINE_FIELD(name, fallback, minimum, maximum, help) float name;
    TUTTI_MACHINE(TUTTI_MACHINE_FIELD)
#undef TUTTI_MACHINE_FIELD
};
_Static_assert(sizeof(struct tutti_machine) <= 96, "it travels in cards");
extern const struct tutti_machine tutti_machine_default;

/* The rate that each of n ranks gets when all of them are busy. */
static inline double tutti_machine_share(float one, float all, double n)
{
    double share = (double)all / n;
    return share < (double)one ? share : (double)one;
}
static inline double tutti_machine_pull(const struct tutti_machine *machine, double n)
{
    return tutti_machine_share(machine->pull_gbs, machine->pull_all_gbs, n);
}
static inline double tutti_machine_memory(const struct tutti_machine *machine, double n)
{
    return tutti_machine_share(machine->memory_gbs, machine->memory_all_gbs, n);
}

/* ---- one constant by its place in the list above ---- */
size_t tutti_machine_n(void);
const struct tutti_constant *tutti_machine_info(size_t i);
float *tutti_machine_at(struct tutti_machine *machine, size_t i);

/* ---- files ---- */
/* As tutti_constants_write. */
enum tutti_status tutti_machine_write(const char *path, const struct tutti_machine *machine, const char *about);
/* Where `tutti tune` puts the file of this host: as tutti_constants_path, by the model and number of its CPUs. */
bool tutti_machine_path(char *out, size_t capacity);
/* The constants that option tuning asks for: "auto" the file of this host if there is one (one that can not be used is
 * told in the log), "off" none, else the file of that name, which must be right. Without a file the built-in constants,
 * with the size of the cache that the kernel tells. */
enum tutti_status tutti_machine_load(const struct tutti_config *config, struct tutti_machine *machine);
bool tutti_machine_has_file(void); /* this host's */
/* The path of that file; false: there is none to read. */
bool tutti_machine_file(const struct tutti_config *config, char *out, size_t capacity);
/* Measures copies for some 0.4 ms (probe.c) and puts what it found into *machine; only where the option tuning is
 * "auto" and this host has no file. */
void tutti_machine_probe(const struct tutti_config *config, struct tutti_machine *machine);

#endif
