/* SPDX-License-Identifier: BSD-3-Clause */
/* tiles_move_16: whatever the number of ranks, since what comes from one peer has nothing to do with another's. */
#include "tiles.clh"

XPU_KERNEL(tiles_move_16, struct gpu_exchange, parameter, GPU_TILE_THREADS)
{
    XPU_LOCAL(struct gpu_exchange, x);
    XPU_LOCAL(struct tiles_board, board);
    XPU_SHARE(x, parameter);
    tiles_move(&x, &board);
}
