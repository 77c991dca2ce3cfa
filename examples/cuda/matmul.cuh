/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EXAMPLES_CUDA_MATMUL_CUH
#define EXAMPLES_CUDA_MATMUL_CUH

/* A product of bfloat16 matrices by tensor cores, tile by tile: what both programs of the example compute with. A block
 * of MATMUL_THREADS makes a tile of 128 x 128 at a time, of row-major A (rows x depth) and B (depth x columns), and
 * leaves it in shared memory as float32. Sizes are multiples of the tile's. */

#include <cuda_bf16.h>
#include <mma.h>

#include <cstdint>

constexpr int TILE = 128, STEP = 32, STAGES = 3, MATMUL_THREADS = 256;
constexpr int PAD = 8;
constexpr int A_ROW = STEP + PAD, B_ROW = TILE + PAD, C_ROW = TILE + 4;
constexpr int A_STAGE = TILE * A_ROW, B_STAGE = STEP * B_ROW;
constexpr size_t OPERAND_BYTES = (size_t)STAGES * (A_STAGE + B_STAGE) * sizeof(__nv_bfloat16);
constexpr size_t RESULT_BYTES = (size_t)TILE * C_ROW * sizeof(float);
constexpr size_t MATMUL_SHARED = OPERAND_BYTES > RESULT_BYTES ? OPERAND_BYTES : RESULT_BYTES;

struct product {
    const __nv_bfloat16 *a, *b;
    int rows, columns, depth;
};
__host__ __device__ inline int tiles_of(const product &p)
{
    return p.rows / TILE * (p.columns / TILE);
}
__device__ __forceinline__ int tile_row(const product &p, int tile)
{
    return tile / (p.columns / TILE) * TILE;
}
__device__ __forceinline__ int tile_column(const product &p, int tile)
{
    return tile % (p.columns / TILE) * TILE;
}

/* 16 bytes from global to shared memory, later. */
__device__ __forceinline__ void fetch(void *shared, const void *global)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(global));
}
__device__ __forceinline__ void fetch_end(void)
{
    asm volatile("cp.async.commit_group;");
}
__device__ __forceinline__ void fetched_step(void) /* the oldest that is under way */
{
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
}

/* What a thread brings of each step: 16 bytes of two rows of A and of B each. */
struct feed {
    const __nv_bfloat16 *a, *b;
    uint32_t depth, columns; /* from one row to the next */
    uint32_t at_a, at_b;     /* in a stage, in numbers */
};
__device__ __forceinline__ feed feed_of(const product &p, int row, int column)
{
    const uint32_t t = threadIdx.x, ra = t / (STEP / 8), ca = t % (STEP / 8) * 8, rb = t / (TILE / 8),
                   cb = t % (TILE / 8) * 8;
    return {p.a + (size_t)(row + ra) * p.depth + ca,
            p.b + (size_t)rb * p.columns + column + cb,
            (uint32_t)p.depth,
            (uint32_t)p.columns,
            ra * A_ROW + ca,
            STAGES * A_STAGE + rb * B_ROW + cb};
}
__device__ __forceinline__ void fetch_step(feed &f, int stage, __nv_bfloat16 *shared)
{
    constexpr uint32_t half_a = TILE / 2, half_b = STEP / 2;
    __nv_bfloat16 *a = shared + stage * A_STAGE + f.at_a, *b = shared + stage * B_STAGE + f.at_b;
    fetch(a, f.a);
    fetch(a + half_a * A_ROW, f.a + (size_t)half_a * f.depth);
    fetch(b, f.b);
    fetch(b + half_b * B_ROW, f.b + (size_t)half_b * f.columns);
    f.a += STEP, f.b += (size_t)STEP * f.columns;
}

/* The tile as float32, rows of C_ROW, in shared memory, when it returns. Nobody in the block reads the one before. */
__device__ __forceinline__ void multiply_tile(const product &p, int tile, unsigned char *memory)
{
    using namespace nvcuda::wmma;
    __nv_bfloat16 *shared = reinterpret_cast<__nv_bfloat16 *>(memory);
    feed f = feed_of(p, tile_row(p, tile), tile_column(p, tile));
    const int warp = threadIdx.x / 32, down = warp / 4 * 64, across = warp % 4 * 32; /* the warp's part: 64 x 32 */
    fragment<accumulator, 16, 16, 16, float> sums[4][2];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) fill_fragment(sums[i][j], 0.0f);
    const int steps = p.depth / STEP;
    for (int k = 0; k < STAGES - 1; k++) {
        if (k < steps) fetch_step(f, k, shared);
        fetch_end();
    }
    int stage = 0;
    for (int k = 0; k < steps; k++) {
        fetched_step();
        __syncthreads();
        if (k + STAGES - 1 < steps) fetch_step(f, stage == 0 ? STAGES - 1 : stage - 1, shared);
        fetch_end();
        const __nv_bfloat16 *a = shared + stage * A_STAGE + down * A_ROW,
                            *b = shared + STAGES * A_STAGE + stage * B_STAGE + across;
#pragma unroll
        for (int inner = 0; inner < STEP; inner += 16) {
            fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major> right[2];
            for (int j = 0; j < 2; j++) load_matrix_sync(right[j], b + inner * B_ROW + j * 16, B_ROW);
            for (int i = 0; i < 4; i++) {
                fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> left;
                load_matrix_sync(left, a + i * 16 * A_ROW + inner, A_ROW);
                for (int j = 0; j < 2; j++) mma_sync(sums[i][j], left, right[j], sums[i][j]);
            }
        }
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    float *out = reinterpret_cast<float *>(memory);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            store_matrix_sync(out + (down + i * 16) * C_ROW + across + j * 16, sums[i][j], C_ROW, mem_row_major);
    __syncthreads();
}

/* Eight numbers as 16 bytes. */
__device__ __forceinline__ uint4 rounded(const float *from)
{
    uint4 words;
    __nv_bfloat162 *pairs = reinterpret_cast<__nv_bfloat162 *>(&words);
    for (int i = 0; i < 4; i++) pairs[i] = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
    return words;
}
__device__ __forceinline__ void add_to(float *sums, uint4 words)
{
    const __nv_bfloat162 *pairs = reinterpret_cast<const __nv_bfloat162 *>(&words);
    for (int i = 0; i < 4; i++) {
        const float2 pair = __bfloat1622float2(pairs[i]);
        sums[2 * i] += pair.x, sums[2 * i + 1] += pair.y;
    }
}
constexpr int EIGHTS = TILE * TILE / 8; /* in a tile; eight e is in row e / 16, from column e % 16 * 8 on */

/* The tile in shared memory, rounded, to rows that are `stride` numbers apart. */
__device__ __forceinline__ void store_tile(const unsigned char *memory, __nv_bfloat16 *to, size_t stride)
{
    const float *from = reinterpret_cast<const float *>(memory);
    for (int e = threadIdx.x; e < EIGHTS; e += MATMUL_THREADS) {
        const int r = e / (TILE / 8), c = e % (TILE / 8) * 8;
        *reinterpret_cast<uint4 *>(to + (size_t)r * stride + c) = rounded(from + r * C_ROW + c);
    }
}

#endif
