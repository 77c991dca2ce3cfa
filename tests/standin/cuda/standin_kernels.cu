/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels that the stand-in's own test launches; no library has them. */

#include "device/kernels/machine.h"

struct standin_words {
    uint32_t *word;
    uint32_t value, n;
};

/* Each thread's word becomes what its warp and block make of it; wrong in the first word otherwise. */
GPU_KERNEL(standin_together, standin_words, x, 256, 1)
{
    GPU_SHARED(uint32_t[8], firsts);
    const uint32_t thread = gpu_thread(), lane = gpu_lane();
    uint32_t sum = thread;
    for (uint32_t by = 16; by > 0; by /= 2) sum += gpu_shuffle_xor(sum, by);
    if (lane == 0) firsts[gpu_warp()] = sum;
    gpu_sync();
    uint32_t of_block = 0;
    for (uint32_t w = 0; w < gpu_threads() / GPU_WARP; w++) of_block += firsts[w];
    const uint32_t third = gpu_shuffle(thread, 3);
    const uint32_t odd = gpu_ballot(lane % 2 != 0);
    uint32_t wrong = third != thread - lane + 3;
    wrong += odd != 0xaaaaaaaa;
    wrong += gpu_all(lane < 31) || !gpu_all(lane < 32) || gpu_any(lane > 31) || !gpu_any(lane == 31);
    wrong += gpu_any_of_block(thread == gpu_threads()) || !gpu_any_of_block(thread == 0);
    x.word[gpu_block() * gpu_threads() + thread] = of_block + (wrong ? 1000000 * wrong : 0);
}

/* Half of the warps produce, the other half consume what they find; lanes of a warp return one by one meanwhile. */
GPU_KERNEL(standin_apart, standin_words, x, 128, 1)
{
    GPU_SHARED(uint32_t[64], box);
    const uint32_t thread = gpu_thread();
    for (uint32_t turn = 0; turn < x.n; turn++) {
        if (thread < 64) box[thread] = x.value + turn + thread;
        gpu_sync();
        if (thread >= 64) x.word[turn * 64 + thread - 64] = box[127 - thread];
        gpu_sync();
    }
    for (uint32_t i = 0; i < gpu_lane(); i++) gpu_sync_warp();
}

/* word[0] and word[1] go up in turns, `value` begins: each of two launches waits for the other. */
GPU_KERNEL(standin_ping, standin_words, x, 64, 1)
{
    for (uint32_t i = 1; i <= x.n; i++) {
        if (gpu_thread() == 0) {
            if (x.value) gpu_release_u32(x.word, i);
            while (gpu_acquire_u32(x.word + x.value) < i) gpu_spin();
            if (!x.value) gpu_release_u32(x.word + 1, i);
        }
        gpu_sync();
    }
}

/* word[thread of the grid] = word * value + n */
GPU_KERNEL(standin_step, standin_words, x, 128, 1)
{
    uint32_t *word = x.word + gpu_block() * gpu_threads() + gpu_thread();
    *word = *word * x.value + x.n;
}
