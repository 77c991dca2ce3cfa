/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_CUDA_GRID_H
#define TUTTI_STANDIN_CUDA_GRID_H

/* A kernel's grid: its blocks' threads as fibers of the calling thread, in turns, until all have returned. What must
 * not happen on a device ends the process here, with a sentence: a barrier that nobody else comes to, threads of a warp
 * in different operations, misaligned accesses. */

#include <cstddef>
#include <cstdint>

/* A kernel of the .cu files; each makes itself known before main. */
struct cuda_standin_bounds { /* bounds of launches */
    uint32_t max_threads, min_blocks = 1;
};
struct cuda_standin_kernel {
    const char *name;
    void (*run)(const void *parameter); /* one thread */
    size_t parameter_bytes;
    cuda_standin_bounds bounds;
    cuda_standin_kernel *next;

    cuda_standin_kernel(const char *name, void (*run)(const void *), size_t parameter_bytes,
                        cuda_standin_bounds bounds);
};
cuda_standin_kernel *cuda_standin_kernels(); /* all, by `next` */

struct cuda_standin_launch {
    const cuda_standin_kernel *kernel;
    uint32_t blocks, threads, shared_bytes;
    const void *parameter;
    uint32_t room = UINT32_MAX; /* blocks that run at once; the next one begins when one is over */
};
void cuda_standin_run(const cuda_standin_launch &launch);
/* One more round of looking in vain: lets other threads run, soon for longer. */
void cuda_standin_idle(size_t n_rounds);
[[noreturn]] void cuda_standin_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- what a kernel's thread asks for (machine.h) ---- */
struct cuda_standin_thread {
    uint32_t thread, threads, block, blocks;
    uint32_t n_loads; /* since it last let others run */
    bool fenced;      /* has passed a fence, for the thread sanitizer */
    struct cuda_standin_fiber *self;
};
extern thread_local cuda_standin_thread *cuda_standin_current __attribute__((tls_model("initial-exec")));

enum cuda_standin_kind { /* what a warp or block does together */
                         STANDIN_SYNC,
                         STANDIN_VOTE,
                         STANDIN_SHUFFLE,
};
struct cuda_standin_votes {
    uint32_t n, n_true, mask; /* mask: of lanes */
};
void cuda_standin_yield();
void cuda_standin_sync_block();
cuda_standin_votes cuda_standin_vote_block(bool flag);
void cuda_standin_sync_warp();
cuda_standin_votes cuda_standin_vote_warp(bool flag);
uint32_t cuda_standin_shuffle(uint32_t v, uint32_t lane);
/* Memory of the block; the same for the same tag. */
void *cuda_standin_shared(const void *tag, size_t bytes);

#endif
