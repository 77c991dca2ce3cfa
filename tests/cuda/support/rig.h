/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_RIG_H
#define TUTTI_TESTS_CUDA_RIG_H

/* Kernels without what is above them: the ranks of a rig are streams of this process, on one device or several in turn,
 * with scratch memory of a shape that the test chooses (rings smaller than the messages, say). Everything asserts. */

#include "test.h"

#include "device/cuda/cuda_device.h"
#include "device/exchange.h"
#include "device/gpu.h"

#include <pthread.h>
#include <stdatomic.h>

struct rig_shape {
    uint32_t n, n_blocks, line_bytes, sentinel_bytes, tile_bytes, n_tiles, n_devices;
};

struct rig {
    uint32_t n;
    struct gpu_layout layout;
    struct gpu_control *control; /* all ranks' */
    struct tutti_device *gpus[GPU_MAX_RANKS];
    void *streams[GPU_MAX_RANKS];
    char *scratch[GPU_MAX_RANKS];
    uint64_t seq;
    pthread_t clock;
    _Atomic bool over;
};

/* The program's seed, which it prints. Says "skipped: no cuda device" and ends the program with 77 where there is none.
 * RIG_DEVICE=xpu in the environment: of the device xpu. */
uint64_t rig_begin(void);
/* The most devices that a shape may ask for: at most 2, which reach each other. */
uint32_t rig_devices(void);
bool rig_is_instrumented(void); /* by compute-sanitizer, as TUTTI_TEST_SLOW says */
/* Kernels run on CPUs, or instrumented: in slow motion. */
bool rig_is_slow(void);
/* How often something is tried: on a device, in slow motion, and where a sample will do. */
uint32_t rig_times(uint32_t on_device, uint32_t slow, uint32_t sampled);

void rig_lay_out(const struct rig_shape *shape, struct gpu_layout *out);
void rig_open(struct rig *rig, const struct rig_shape *shape);
void rig_close(struct rig *rig);
void rig_close_clean(struct rig *rig); /* sentinels are as they were before the first call */
/* For the next launch of a rank, without an operation. */
struct gpu_call rig_call(const struct rig *rig, uint32_t me);
/* "tiles", "move", n: the kernel for the fewest ranks that are enough, of those there are. */
void *rig_kernel(const struct rig *rig, uint32_t me, const char *protocol, const char *reducer);
void rig_launch_as(const struct rig *rig, uint32_t me, struct tutti_gpu_launch launch, const void *args);
/* args: a pointer to the parameter, of its type. */
#define rig_launch(rig, me, a_kernel, n_blocks, n_threads, args)                                                       \
    rig_launch_as(                                                                                                     \
        rig, me,                                                                                                       \
        (struct tutti_gpu_launch){                                                                                     \
            .kernel = (a_kernel), .blocks = (n_blocks), .threads = (n_threads), .args_bytes = sizeof *(args)},         \
        args)
/* Until all streams have come to their ends, whatever came of it. */
void rig_await(const struct rig *rig);
/* `tiles` with as many blocks as the longest part asks for; none: nothing is launched. */
void rig_launch_tiles(const struct rig *rig, const struct gpu_exchange *x, const char *reducer);
/* Waits for all ranks, and that nobody has reported anything. */
void rig_sync(struct rig *rig);

void *rig_alloc(const struct rig *rig, uint32_t me, size_t bytes);
void rig_free(const struct rig *rig, uint32_t me, void *pointer);
void rig_copy(const struct rig *rig, uint32_t me, void *dst, const void *src, size_t bytes);

/* As if each block had made so many calls by lines or sentinels, in the last of which nobody was heard of. */
void rig_set_counts(const struct rig *rig, uint32_t count);
/* Lines of an earlier age whose flags are those of the next calls; they are gone before those begin. */
void rig_plant_lines(const struct rig *rig, uint32_t slot, uint32_t flag, uint64_t *seed);

#endif
