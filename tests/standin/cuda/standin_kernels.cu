/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels that the stand-in's own test launches; no library has them. */

#include "device/cuda/kernels/intrinsics.cuh"

struct standin_words {
    uint32_t *word;
    uint32_t value, n;
};

/* Each thread's word becomes what its warp and block make of it; wrong in the first word otherwise. */
CUDA_KERNEL(standin_together, standin_words, x, 256, 1)
{
    CUDA_SHARED(uint32_t[8], firsts);
    const uint32_t thread = cuda_thread(), lane = cuda_lane();
    uint32_t sum = thread;
    for (uint32_t by = 16; by > 0; by /= 2) sum += cuda_shuffle_xor(sum, by);
    if (lane == 0) firsts[cuda_warp()] = sum;
    cuda_sync_block();
    uint32_t of_block = 0;
    for (uint32_t w = 0; w < cuda_threads() / CUDA_WARP; w++) of_block += firsts[w];
    const uint32_t third = cuda_shuffle(thread, 3);
    const uint32_t odd = cuda_ballot(lane % 2 != 0);
    uint32_t wrong = third != thread - lane + 3;
    wrong += odd != 0xaaaaaaaa;
    wrong += cuda_all(lane < 31) || !cuda_all(lane < 32) || cuda_any(lane > 31) || !cuda_any(lane == 31);
    wrong += cuda_sync_block_any(thread == cuda_threads()) || !cuda_sync_block_any(thread == 0);
    x.word[cuda_block() * cuda_threads() + thread] = of_block + (wrong ? 1000000 * wrong : 0);
}

/* Half of the warps produce, the other half consume what they find; lanes of a warp return one by one meanwhile. */
CUDA_KERNEL(standin_apart, standin_words, x, 128, 1)
{
    CUDA_SHARED(uint32_t[64], box);
    const uint32_t thread = cuda_thread();
    for (uint32_t turn = 0; turn < x.n; turn++) {
        if (thread < 64) box[thread] = x.value + turn + thread;
        cuda_sync_block();
        if (thread >= 64) x.word[turn * 64 + thread - 64] = box[127 - thread];
        cuda_sync_block();
    }
    for (uint32_t i = 0; i < cuda_lane(); i++) cuda_sync_warp();
}

/* word[0] and word[1] go up in turns, `value` begins: each of two launches waits for the other. */
CUDA_KERNEL(standin_ping, standin_words, x, 64, 1)
{
    for (uint32_t i = 1; i <= x.n; i++) {
        if (cuda_thread() == 0) {
            if (x.value) cuda_release_u32(x.word, i);
            while (cuda_acquire_u32(x.word + x.value) < i) cuda_spin();
            if (!x.value) cuda_release_u32(x.word + 1, i);
        }
        cuda_sync_block();
    }
}

/* word[thread of the grid] = word * value + n */
CUDA_KERNEL(standin_step, standin_words, x, 128, 1)
{
    uint32_t *word = x.word + cuda_block() * cuda_threads() + cuda_thread();
    *word = *word * x.value + x.n;
}
