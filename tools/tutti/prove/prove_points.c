/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of points. */
#include "prove.h"

#include <string.h>

#define CHECKED "--check", "--calls", "2", "--rounds", "2", "--warmup", "1"
#define OWN .has_ranks = true, .way = "" /* two ranks, by tutti's own kernels */
const struct prove_point prove_points[] = {
    {"driver", "the driver opens and tells its devices", .function = prove_driver},
    {"memory", "memory of the device, of the host, and what a pointer is", .function = prove_memory},
    {"order", "streams and events keep their order, of copies and of kernels", .function = prove_order},
    {"words", "streams and the host wait for one another", .function = prove_words},
    {"kernels", "kernels reduce as CPUs do", .function = prove_folds},
    {"resident", "all groups of a launch run at once", .function = prove_resident},
    {"queue", "calls on a queue of SYCL's are in its order", "xpu", .function = prove_queue_order, .has_sycl = true},
    {"peers", "copies and kernels reach other devices of a process", .function = prove_peers},
    {"handles", "copies and kernels reach memory of another process by its handle", .function = prove_handles,
     .has_ranks = true},
    {"host", "collectives between two processes through the host", .has_ranks = true, .way = "host",
     .bench = {"all", "-b", "4", "-e", "64K", "-f", "16", "--mode", "eager", CHECKED}},
    {"sharing", "collectives by tutti's own kernels, in memory of two processes", OWN,
     .bench = {"all_reduce,all_gather", "-b", "4", "-e", "64K", "-f", "16", CHECKED}},
    {"kinds", "all collectives by tutti's own kernels", OWN,
     .bench = {"all", "-b", "1", "-e", "300K", "-f", "67", CHECKED}},
    {"types", "all types and operations by tutti's own kernels", OWN,
     .bench = {"all_reduce", "--types", "all", "--ops", "all", "-b", "1000", "-e", "1000", CHECKED}},
    {"large", "64 MiB by tutti's own kernels", OWN,
     .bench = {"all_reduce,all_to_all", "-b", "64M", "-e", "64M", CHECKED}},
    {"windows", "collectives in windows, straight to where data is to be", OWN,
     .bench = {"all_gather,broadcast,all_reduce", "--mapped", "-b", "64K", "-e", "4M", "-f", "64", CHECKED}},
    {"engines", "collectives in windows by copy engines, beside kernels", OWN, .method = "engines",
     .bench = {"all_reduce,all_gather", "--mapped", "-b", "256K", "-e", "4M", "-f", "16", "--check", "--calls", "1",
               "--rounds", "1", "--warmup", "1"}},
    {"oneccl", "calls by oneCCL on device memory, on a queue of SYCL's", "xpu", .function = prove_oneccl,
     .has_ranks = true, .has_sycl = true, .way = "oneccl"},
    {"death", "who waits for a peer that dies is told within a second", .function = prove_death, .has_ranks = true},
    {"absence", "who waits for a peer that does not come is told at the deadline", .function = prove_absence,
     .has_ranks = true},
    {"latency", "time of a small call", OWN, .bench = {"all_reduce", "-b", "8", "-e", "8"}},
    {"bandwidth", "time of a large call", OWN, .bench = {"all_reduce", "-b", "256M", "-e", "256M", "--place", "out"}},
};
const size_t prove_n_points = TUTTI_ARRAY_LEN(prove_points);

bool prove_point_is_of(const struct prove_point *point, const char *kind)
{
    return !point->kind || strcmp(point->kind, kind) == 0;
}

const struct prove_point *prove_point_named(const char *name)
{
    for (size_t i = 0; i < prove_n_points; i++)
        if (strcmp(prove_points[i].name, name) == 0) return &prove_points[i];
    return NULL;
}
