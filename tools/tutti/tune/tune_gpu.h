/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_TUNE_GPU_H
#define TUTTI_TOOLS_TUNE_GPU_H

/* `tutti tune --device cuda` measures how long the methods of the back end cuda take (tune_gpu.c), and finds the
 * constants from which the library predicts that (tune_fit.c; backend/gpu/gpu_plan.h). */

#include "backend/gpu/gpu_plan.h"

enum tune_method { TUNE_LINES, TUNE_SENTINEL, TUNE_SENTINEL2, TUNE_TILES, TUNE_DIRECT, TUNE_ENGINES, TUNE_N_METHODS };
enum tune_form { TUNE_FOLD, TUNE_MOVE, TUNE_N_FORMS }; /* all_reduce, all_gather */
#define TUNE_POINTS 16                                 /* sizes of both forms */
#define TUNE_N_GRIDS 4
struct tune_points {
    uint32_t n;
    double bytes[TUNE_POINTS], ns[TUNE_POINTS]; /* that a rank pushes to all others, if blocks go as they are */
};
struct tune_times {
    uint32_t n_ranks;
    struct tune_points by[TUNE_N_METHODS][TUNE_N_FORMS];
    uint32_t grids[TUNE_N_GRIDS];               /* numbers of blocks; 0: not measured */
    double grid_ns[TUNE_N_GRIDS][TUNE_N_FORMS]; /* a large call by tiles takes */
};

/* Those of the constants that the times tell, NaN for others: by least squares of relative errors. meet_ns: a
 * meeting's, which can not be told apart from what engines take beyond copies. Pure. */
void tune_fit(const struct tune_times *times, double meet_ns, struct gpu_speed *out);

/* By all ranks of a job, each with its GPU: sizes from small ones on until the limit, at least the first. output NULL:
 * where the library looks. */
enum tutti_status tune_gpu(const char *device, const char *output, uint64_t limit_ns, bool dry_run);

#endif
