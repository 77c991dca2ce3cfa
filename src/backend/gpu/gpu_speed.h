/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_GPU_GPU_SPEED_H
#define TUTTI_BACKEND_GPU_GPU_SPEED_H

/* What was measured of GPUs, from which the methods of the back end cuda predict what they cost: by the device's name
 * and the number of ranks, in a table of what is known (gpu_speed.c) or in a file of lines `name value`. Those of the
 * first rank stand for all, so they travel in its card. */

#include "base/config.h"
#include "model/constants.h"

/* X(name, minimum, maximum, help). Times in ns, of a call in a graph whose bytes do not matter, from one launch's start
 * to its end; rates in bytes a ns, which is GB/s. */
#define GPU_SPEED(X)                                                                                                   \
    X(lines_ns, 1, 1e7, "a call by lines")                                                                             \
    X(sentinel_ns, 1, 1e7, "a call by sentinels")                                                                      \
    X(exceptions_ns, 0, 1e7, "and what data of any bits adds to it")                                                   \
    X(sentinel2_ns, 1, 1e7, "a call by sentinels in two shots")                                                        \
    X(tiles_ns, 1, 1e7, "a call by tiles")                                                                             \
    X(store_gbs, 0.1, 1e5, "bytes that a GPU stores to its peers, by lines (two a byte of data) and sentinels")        \
    X(tile_gbs, 0.1, 1e5, "bytes that a GPU stores to its peers by tiles")                                             \
    X(direct_ns, 1, 1e7, "a call that stores straight to peers' windows, and what spreading results there adds")       \
    X(direct_gbs, 0.1, 1e5, "bytes that a GPU stores straight to its peers")                                           \
    X(hop_ns, 0, 1e7, "what it adds that a rank sends on what is stored to it")                                        \
    X(chain_gbs, 0.1, 1e5, "bytes that a GPU stores straight to one peer, if all store to one")                        \
    X(copy_gbs, 0.1, 1e5, "bytes copied within a GPU")                                                                 \
    X(engine_ns, 1, 1e7, "a copy by a copy engine")                                                                    \
    X(engine_gbs, 0.1, 1e5, "its bytes")                                                                               \
    X(meet_ns, 1, 1e7, "a meeting before or after copies")                                                             \
    X(blocks, 4, 128, "blocks of a launch, at most")

struct gpu_speed {
#define GPU_SPEED_FIELD(name, minimum, maximum, help) float name;
    GPU_SPEED(GPU_SPEED_FIELD)
#undef GPU_SPEED_FIELD
};

extern const struct tutti_constants gpu_speed_constants;
/* What the table has of the device: the row of its name for the number of ranks that is nearest; of a device that it
 * does not know, the row of H200. */
const struct gpu_speed *gpu_speed_known(const char *device, uint32_t n);
/* With what the option gpu_tuning asks for: "auto" the file of this device and number of ranks if there is one (one
 * that can not be used is told in the log), "off" none, else the file of that name, which must be right. */
enum tutti_status gpu_speed_load(const char *tuning, const char *device, uint32_t n, struct gpu_speed *out);
/* Whether the text is one of those. ARGUMENT, SYSTEM. */
enum tutti_status gpu_tuning_check(const char *tuning);

#endif
