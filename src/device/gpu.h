/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_GPU_H
#define TUTTI_DEVICE_GPU_H

/* What a device offers beside struct tutti_device_ops if tutti has kernels for it that wait for one another: all that
 * the back end backend/gpu needs of a maker. Kernels are found by name; their parameters are those of device/exchange.h
 * and device/accesses.h. A kernel that is not there is not used: one that moves by tiles, and one for each type that is
 * to be reduced, are enough to begin with.
 *
 * Threads, blocking, ownership and errors are as in device/device.h. */

#include "device/device.h"

/* What the compiler made of a module of kernels. A maker's driver has a table of them, which the build writes, up to a
 * name of NULL; and says what they were built for and by ("80 90 100", "13.0"; empty where there are none). */
struct tutti_gpu_image {
    const char *name; /* the module's */
    const unsigned char *begin, *end;
};
#define TUTTI_GPU_IMAGES(maker)                                                                                        \
    extern const struct tutti_gpu_image maker##_images[];                                                              \
    extern const size_t maker##_n_images;                                                                              \
    extern const char maker##_images_for[], maker##_images_by[];

struct tutti_gpu_launch {
    void *kernel, *stream;
    uint32_t blocks, threads, shared_bytes;
    uint32_t args_bytes; /* the kernel's parameter, for makers whose driver does not know it */
    bool overlaps; /* the kernel itself waits for all before it in the stream: where the device knows how, its blocks
                      take their places before that is over */
};

/* An allocation, or several that are mapped one behind another, as they were when it was opened. */
struct tutti_gpu_range {
    char *base;
    size_t bytes;
    uint64_t id; /* as block_id has it; 0: see kept */
    void *kept;  /* the maker's */
};

struct tutti_gpu_ops {
    bool doubts_peers;     /* peers' memory is tried with data first, since some boards only seem to reach it */
    uint32_t tile_threads; /* a block's, for kernels by tiles, which are made for so many */
    uint32_t fold_threads, fold_blocks; /* a launch that folds; blocks 0: as many as there is work for */
    /* A kernel by its name in the sources, NULL if there is none; loaded already. Look up once, not per launch. */
    void *(*kernel)(struct tutti_device *gpu, const char *name);
    /* args: the kernel's one parameter, a struct of args_bytes, by value. Between `enter` and `leave` of the device. */
    enum tutti_status (*launch)(struct tutti_device *gpu, const struct tutti_gpu_launch *launch, const void *args);
    /* The identity of the allocation that holds the pointer, which no later one at the same address has; 0: the driver
     * knows no such memory. Between `enter` and
     * `leave`; as fast as the device's `of`. */
    enum tutti_status (*block_id)(const struct tutti_device *gpu, const void *pointer, uint64_t *out);
    /* What holds these bytes, of the device's own memory. UNSUPPORTED: it is nothing that others can map, or nothing
     * that can be told from what may come after it. All four, beside captures, may be NULL. */
    enum tutti_status (*range_open)(struct tutti_device *gpu, const void *pointer, size_t bytes,
                                    struct tutti_gpu_range *out);
    /* Whether it is still what lies there. Some 100 ns, and as much for each allocation of several. */
    bool (*range_is)(struct tutti_device *gpu, const struct tutti_gpu_range *range);
    void (*range_close)(struct tutti_device *gpu, struct tutti_gpu_range *range);
    /* The bytes of the device's memory, and those of them that nobody has, in whatever process. */
    enum tutti_status (*memory_left)(struct tutti_device *gpu, size_t *left, size_t *bytes);
    /* As the device's `reach` for one allocation of another device, where each is told who reaches it. */
    enum tutti_status (*reach_memory)(struct tutti_device *gpu, const void *pointer, size_t bytes);
    /* Whether gpu could reach a device of that uuid; true where this process does not see it, since only trying tells.
     */
    bool (*may_reach)(struct tutti_device *gpu, const unsigned char uuid[16]);
    /* Whether gpu's atomics on memory of the device of that uuid are atomic, as its link may not have them; true where
     * this process does not see it. */
    bool (*has_atomics)(struct tutti_device *gpu, const unsigned char uuid[16]);
    /* Until nothing is left of what this process has enqueued on the device, on whatever stream. Ends captures. */
    enum tutti_status (*sync)(struct tutti_device *gpu);
};

/* Entries of struct tutti_device_ops, by the kernels of these names (jobs.c). */
enum tutti_status tutti_gpu_fold(struct tutti_device *gpu, const struct tutti_fold *fold, void *stream);
enum tutti_status tutti_gpu_counted_row(struct tutti_device *gpu, const struct tutti_counted_row *row, void *stream);
enum tutti_status tutti_gpu_sparse(struct tutti_device *gpu, const struct tutti_sparse *sparse, void *stream);
enum tutti_status tutti_gpu_recode(struct tutti_device *gpu, const struct tutti_recode *job, void *stream);
#define TUTTI_GPU_JOBS                                                                                                 \
    .fold = tutti_gpu_fold, .counted_row = tutti_gpu_counted_row, .sparse = tutti_gpu_sparse, .recode = tutti_gpu_recode

#endif
