/* SPDX-License-Identifier: BSD-3-Clause */
/* sentinel_move_16 */
#include "oneshot.clh"

XPU_KERNEL(sentinel_move_16, struct gpu_exchange, parameter, GPU_LINE_THREADS)
{
    XPU_LOCAL(struct gpu_exchange, x);
    XPU_LOCAL(struct oneshot_board, board);
    struct oneshot o = {&x, &board, {0}, 0, 0};
    XPU_SHARE(x, parameter);
    oneshot_move(&o, WIRE_ONES);
}
