/* SPDX-License-Identifier: BSD-3-Clause */
/* A matrix product whose all_reduce is in the same kernel: C = sum over ranks of A_r B_r, as a layer that is split by
 * rows (tensor parallelism) has it. Beside it, for comparison, the product and then tutti_all_reduce, one after the
 * other.
 *
 *     nvcc -std=c++17 -O3 -arch=native fused_matmul.cu -o fused_matmul -ltutti
 *     ./fused_matmul [ranks [rows columns depth [times [reducers]]]]
 *
 * Ranks are threads of this process, each with a GPU, or several with one. Most blocks compute tiles, and store each,
 * rounded to bfloat16, into the window of the rank that owns it, with a signal: no waiting. A few blocks go through the
 * tiles that their rank owns, as the contributions come: they add them up in the order of ranks, and store the sum to C
 * of all ranks. So links and memory are busy while the tensor cores are, and when the last tile is computed, there is
 * little left to add up, in which all blocks take part. A kernel is over when all tiles have come to its rank. */

#include "matmul.cuh"

#include <tutti/device.cuh>
#include <tutti/tutti.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

/* Where things are in a window: C, then a place for each contribution to each tile that the rank owns. Signals: one for
 * each of these tiles, and one that counts tiles of C that have come. */
struct fused {
    tutti::device_window w{TUTTI_DEVICE_WINDOW_INIT};
    product p;
    uint64_t turn;            /* this kernel's number, from 1 */
    unsigned long long *next; /* tiles that blocks of this rank have taken to add up, in all turns */
    int reducers;             /* blocks that do nothing else */
};
__host__ __device__ inline size_t result_bytes(const product &p)
{
    return (size_t)p.rows * p.columns * sizeof(__nv_bfloat16);
}
__host__ __device__ inline int owned_tiles(const product &p, int n)
{
    return (tiles_of(p) + n - 1) / n;
}
__device__ __forceinline__ size_t place_of(const product &p, int n, int tile, int source)
{
    return result_bytes(p) + ((size_t)(tile / n) * n + source) * TILE * TILE * sizeof(__nv_bfloat16);
}

/* A tile of this rank, of which all contributions have come, is added up, and the sum goes to all. */
__device__ __noinline__ void reduce_tile(const fused &f, int tile)
{
    constexpr int EACH = EIGHTS / MATMUL_THREADS; /* a thread's: all loads of a contribution are in flight at once */
    const int n = f.w.num_ranks();
    float sums[EACH][8] = {};
    for (int q = 0; q < n; q++) {
        const uint4 *from = reinterpret_cast<const uint4 *>(f.w.base() + place_of(f.p, n, tile, q)) + threadIdx.x;
        uint4 words[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) words[i] = __ldcg(from + i * MATMUL_THREADS);
#pragma unroll
        for (int i = 0; i < EACH; i++) add_to(sums[i], words[i]);
    }
    const size_t corner = (size_t)tile_row(f.p, tile) * f.p.columns + tile_column(f.p, tile);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int e = threadIdx.x + i * MATMUL_THREADS;
        const size_t at = corner + (size_t)(e / (TILE / 8)) * f.p.columns + e % (TILE / 8) * 8;
        const uint4 words = rounded(sums[i]);
        for (int q = 0; q < n; q++)
            *reinterpret_cast<uint4 *>(reinterpret_cast<__nv_bfloat16 *>(f.w.peer(q)) + at) = words;
    }
}

/* Adds up tiles of this rank that nobody has taken yet, until there are none. How many; -1: leave. */
__device__ __forceinline__ int reduce_tiles(const fused &f)
{
    __shared__ unsigned long long taken;
    const int n = f.w.num_ranks(), own = (tiles_of(f.p) - f.w.rank() + n - 1) / n;
    /* In each turn every block takes once too often. */
    const unsigned long long first = (f.turn - 1) * (own + gridDim.x);
    for (int count = 0;; count++) {
        if (threadIdx.x == 0) taken = atomicAdd(f.next, 1ull) - first;
        __syncthreads();
        const int mine = (int)taken;
        if (mine >= own) return count;
        if (f.w.wait_signal((uint32_t)mine, TUTTI_COMPARE_GE, f.turn * n, tutti::scope::block)) return -1;
        reduce_tile(f, mine * n + f.w.rank());
    }
}

__global__ void __launch_bounds__(MATMUL_THREADS, 2) matmul_all_reduce(const __grid_constant__ fused f)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const int n = f.w.num_ranks(), tiles = tiles_of(f.p), workers = gridDim.x - f.reducers;
    const uint32_t came = (uint32_t)owned_tiles(f.p, n);
    for (int tile = (int)blockIdx.x - f.reducers; tile >= 0 && tile < tiles; tile += workers) {
        const int owner = tile % n;
        multiply_tile(f.p, tile, memory);
        store_tile(memory, reinterpret_cast<__nv_bfloat16 *>(f.w.peer(owner) + place_of(f.p, n, tile, f.w.rank())),
                   TILE);
        f.w.signal(owner, (uint32_t)(tile / n), TUTTI_SIGNAL_ADD, 1, tutti::scope::block);
    }
    const int reduced = reduce_tiles(f);
    if (reduced < 0) return;
    for (int q = 0; q < n && reduced > 0; q++)
        f.w.signal(q, came, TUTTI_SIGNAL_ADD, (uint64_t)reduced, tutti::scope::block);
    if (blockIdx.x == 0) f.w.wait_signal(came, TUTTI_COMPARE_GE, f.turn * tiles, tutti::scope::block);
}

__global__ void __launch_bounds__(MATMUL_THREADS, 2) matmul(const product p, __nv_bfloat16 *c)
{
    extern __shared__ __align__(128) unsigned char memory[];
    for (int tile = blockIdx.x; tile < tiles_of(p); tile += gridDim.x) {
        multiply_tile(p, tile, memory);
        store_tile(memory, c + (size_t)tile_row(p, tile) * p.columns + tile_column(p, tile), (size_t)p.columns);
        __syncthreads();
    }
}

/* Numbers from -1 to 1 that host and device make alike. */
__host__ __device__ inline float number_at(uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    return (float)((int)(x & 255) - 128) / 128;
}
__global__ void fill(__nv_bfloat16 *out, size_t count, uint64_t salt)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = __float2bfloat16(number_at(i + salt));
}
static uint64_t salt_of(int rank, bool b)
{
    return ((uint64_t)rank * 2 + b + 1) << 40;
}

/* ---- the host ---- */
#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        const cudaError_t e_ = (call);                                                                                 \
        if (e_ != cudaSuccess) fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)), exit(1);                    \
    } while (0)
#define TUTTI(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) < 0) fprintf(stderr, "%s: %s\n", #call, tutti_last_error()->text), exit(1);                         \
    } while (0)

enum { PRODUCT, APART, FUSED, WAYS };

struct settings {
    int n, times, reducers;
    product p;
    std::string name;
};
struct worker {
    const settings *s;
    int rank, device, sharing; /* ranks on this device */
    tutti_comm *comm;
    tutti_window *window;
    cudaStream_t stream;
    fused f;
    __nv_bfloat16 *c; /* in the window */
    int blocks;
    double us[WAYS];
    int wrong[WAYS];
};

/* Blocks that the product can do without: with so many fewer it takes no more rounds. At most as many as add up what
 * the others compute meanwhile. */
static int spare_blocks(const product &p, int blocks)
{
    const int rounds = (tiles_of(p) + blocks - 1) / blocks, needed = (tiles_of(p) + rounds - 1) / rounds;
    return std::max(1, std::min(blocks - needed, blocks * 40 / p.depth));
}

static void open_worker(worker &w)
{
    const settings &s = *w.s;
    const product &p = s.p;
    int n_devices = 1, n_sms = 0;
    tutti_context *context = nullptr;
    tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    tutti_window_config signals = TUTTI_WINDOW_CONFIG_INIT;
    const tutti_option transport = {"transport", "self"};
    CUDA(cudaGetDeviceCount(&n_devices));
    w.device = w.rank % n_devices;
    w.sharing = (s.n - w.device + n_devices - 1) / n_devices;
    CUDA(cudaSetDevice(w.device));
    CUDA(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, w.device));
    CUDA(cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking));
    w.blocks = n_sms * 2 / w.sharing; /* all that wait for one another are there at once */
    TUTTI(tutti_context_create(&transport, 1, &context));
    config.rank = w.rank, config.n_ranks = s.n, config.name = s.name.c_str(), config.device = w.device;
    TUTTI(tutti_comm_create(context, &config, &w.comm));
    const size_t bytes = result_bytes(p) + (size_t)owned_tiles(p, s.n) * s.n * TILE * TILE * sizeof(__nv_bfloat16);
    signals.n_signals = (uint32_t)owned_tiles(p, s.n) + 1;
    void *memory = nullptr;
    TUTTI(tutti_mem_alloc(w.comm, bytes, &memory));
    TUTTI(tutti_window_create(w.comm, memory, bytes, &signals, &w.window));
    TUTTI(tutti_window_device(w.window, &w.f.w));
    w.c = static_cast<__nv_bfloat16 *>(memory);
    __nv_bfloat16 *a = nullptr, *b = nullptr;
    CUDA(cudaMalloc(&a, (size_t)p.rows * p.depth * sizeof *a));
    CUDA(cudaMalloc(&b, (size_t)p.depth * p.columns * sizeof *b));
    fill<<<256, 256, 0, w.stream>>>(a, (size_t)p.rows * p.depth, salt_of(w.rank, false));
    fill<<<256, 256, 0, w.stream>>>(b, (size_t)p.depth * p.columns, salt_of(w.rank, true));
    CUDA(cudaGetLastError());
    w.f.p = p, w.f.p.a = a, w.f.p.b = b;
    CUDA(cudaMalloc(&w.f.next, sizeof *w.f.next));
    CUDA(cudaMemsetAsync(w.f.next, 0, sizeof *w.f.next, w.stream));
    w.f.reducers = s.reducers ? std::min(s.reducers, w.blocks - 1) : spare_blocks(p, w.blocks);
    CUDA(cudaFuncSetAttribute(matmul, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)MATMUL_SHARED));
    CUDA(cudaFuncSetAttribute(matmul_all_reduce, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)MATMUL_SHARED));
    CUDA(cudaStreamSynchronize(w.stream));
}

static void run_fused(worker &w)
{
    w.f.turn++;
    matmul_all_reduce<<<w.blocks, MATMUL_THREADS, MATMUL_SHARED, w.stream>>>(w.f);
    CUDA(cudaGetLastError());
}

static void run_product(worker &w)
{
    matmul<<<w.blocks, MATMUL_THREADS, MATMUL_SHARED, w.stream>>>(w.f.p, w.c);
    CUDA(cudaGetLastError());
}

static void run_apart(worker &w)
{
    tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = w.stream;
    run_product(w);
    TUTTI(tutti_all_reduce(w.c, w.c, (size_t)w.f.p.rows * w.f.p.columns, TUTTI_BFLOAT16, TUTTI_SUM, w.comm, &options,
                           nullptr));
}

/* Some numbers of C against float64. Contributions are rounded, and their sum is; sums of float32 err by a little. */
static int check(const worker &w, int samples)
{
    const product &p = w.f.p;
    std::vector<__nv_bfloat16> c((size_t)p.rows * p.columns);
    int wrong = 0;
    CUDA(cudaMemcpyAsync(c.data(), w.c, result_bytes(p), cudaMemcpyDeviceToHost, w.stream));
    CUDA(cudaStreamSynchronize(w.stream));
    for (int k = 0; k < samples; k++) {
        const size_t i = (size_t)k * 2654435761u % c.size(), row = i / p.columns, column = i % p.columns;
        double sum = 0, bound = 0;
        for (int q = 0; q < w.s->n; q++) {
            double part = 0, size = 0;
            for (int d = 0; d < p.depth; d++) {
                const double x = (double)number_at(row * p.depth + d + salt_of(q, false)) *
                                 number_at((size_t)d * p.columns + column + salt_of(q, true));
                part += x, size += std::fabs(x);
            }
            sum += part;
            bound += std::fabs(part) / 256 + size * p.depth / (1 << 24);
        }
        bound += std::fabs(sum) / 256 + 1e-6;
        wrong += !(std::fabs((double)__bfloat162float(c[i]) - sum) <= bound);
    }
    return wrong;
}

/* Microseconds a time, of this rank. */
static double measure(worker &w, void (*run)(worker &), int times)
{
    cudaEvent_t from, to;
    float ms = 0;
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    TUTTI(tutti_barrier(w.comm, nullptr, nullptr));
    CUDA(cudaEventRecord(from, w.stream));
    for (int i = 0; i < times; i++) run(w);
    CUDA(cudaEventRecord(to, w.stream));
    CUDA(cudaEventSynchronize(to));
    CUDA(cudaEventElapsedTime(&ms, from, to));
    CUDA(cudaEventDestroy(from));
    CUDA(cudaEventDestroy(to));
    return (double)ms * 1000 / times;
}

static void work(worker *out)
{
    static void (*const ways[WAYS])(worker &) = {run_product, run_apart, run_fused};
    worker &w = *out;
    open_worker(w);
    for (int way = APART; way < WAYS; way++) {
        CUDA(cudaMemsetAsync(w.c, 0xff, result_bytes(w.f.p), w.stream));
        CUDA(cudaStreamSynchronize(w.stream));
        TUTTI(tutti_barrier(w.comm, nullptr, nullptr));
        ways[way](w);
        w.wrong[way] = check(w, 4000);
    }
    for (int round = 0; round < 5; round++) /* in turns, and the best of each */
        for (int way = 0; way < WAYS; way++) {
            const double us = measure(w, ways[way], w.s->times);
            w.us[way] = round == 0 ? us : std::min(us, w.us[way]);
        }
    TUTTI(tutti_comm_state(w.comm, nullptr));
    TUTTI(tutti_barrier(w.comm, nullptr, nullptr));
    tutti_window_destroy(w.window);
    tutti_comm_destroy(w.comm);
}

int main(int argc, char **argv)
{
    const auto number = [&](int i, int otherwise) { return argc > i ? atoi(argv[i]) : otherwise; };
    /* A kernel that is loaded later may wait for another one that waits for it; each stream has a queue. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    settings s{number(1, 2),
               number(5, 20),
               number(6, 0),
               {nullptr, nullptr, number(2, 4096), number(3, 4096), number(4, 1024)},
               {}};
    if (s.n < 1 || s.n > TUTTI_DEVICE_RANKS || s.p.rows % TILE || s.p.columns % TILE || s.p.depth % STEP ||
        tiles_of(s.p) < 1 || s.p.depth < 1 || s.times < 1)
        return fprintf(
                   stderr,
                   "usage: fused_matmul [ranks [rows columns depth [times [reducers]]]]: multiples of 128, 128, 32\n"),
               2;
    int n_devices = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) return puts("skipped: no CUDA device"), 77;
    s.name = "fused_matmul-" + std::to_string((long)time(nullptr)) + "-" + std::to_string((long)rand());
    std::vector<worker> workers(s.n);
    std::vector<std::thread> threads;
    for (int r = 0; r < s.n; r++) {
        workers[r] = worker{};
        workers[r].s = &s, workers[r].rank = r;
        threads.emplace_back(work, &workers[r]);
    }
    for (auto &thread : threads) thread.join();
    double us[WAYS] = {};
    int wrong = 0;
    for (const worker &w : workers)
        for (int way = 0; way < WAYS; way++) us[way] = std::max(us[way], w.us[way]), wrong += w.wrong[way];
    printf("%d ranks, %d x %d x %d: %d wrong; product %.1f us, then all_reduce %.1f us; fused %.1f us, %.2f times as "
           "fast\n",
           s.n, s.p.rows, s.p.columns, s.p.depth, wrong, us[PRODUCT], us[APART], us[FUSED], us[APART] / us[FUSED]);
    return wrong ? 1 : 0;
}
