/* SPDX-License-Identifier: BSD-3-Clause */
/* What one-sided calls on windows of device memory take: host time of a call, bandwidth beside cudaMemcpyAsync, latency
 * of a put with a signal, from the host and from kernels. Two ranks, threads of this process, with a GPU each or one.
 *
 *     nvcc -std=c++17 -O3 -arch=native bench/gpu_windows.cu -o gpu_windows -ltutti && ./gpu_windows */

#include <tutti/device.cuh>
#include <tutti/tutti.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

constexpr size_t PART = (size_t)256 << 20;
constexpr int RANKS = 2;

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        const cudaError_t e_ = (call);                                                                                 \
        if (e_ != cudaSuccess) fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)), exit(1);                    \
    } while (0)
#define TUTTI(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) < 0) fprintf(stderr, "%s: %s\n", #call, tutti_last_error()->text), exit(1);                         \
    } while (0)

struct side {
    int rank;
    tutti_comm *comm;
    tutti_window *window;
    cudaStream_t stream;
    tutti_call_options on;
    char *source, *peer;
    tutti::device_window w{TUTTI_DEVICE_WINDOW_INIT};
};

static double now_us()
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
static double median(std::vector<double> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}
static void meet(side &s)
{
    CUDA(cudaStreamSynchronize(s.stream));
    TUTTI(tutti_barrier(s.comm, nullptr, nullptr));
}

/* Host time of a call, by what it calls; so few under way that the queue is never full. */
template <class F> static double host_us(side &s, F call)
{
    std::vector<double> took;
    for (int i = 0; i < 40; i++) {
        const double from = now_us();
        for (int k = 0; k < 50; k++) call();
        took.push_back((now_us() - from) / 50);
        CUDA(cudaStreamSynchronize(s.stream));
    }
    return median(took);
}

template <class F> static double device_us(side &s, int times, F call)
{
    std::vector<double> took;
    cudaEvent_t from, to;
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    for (int i = 0; i < 9; i++) {
        float ms = 0;
        CUDA(cudaEventRecord(from, s.stream));
        for (int k = 0; k < times; k++) call();
        CUDA(cudaEventRecord(to, s.stream));
        CUDA(cudaEventSynchronize(to));
        CUDA(cudaEventElapsedTime(&ms, from, to));
        took.push_back((double)ms * 1000 / times);
    }
    CUDA(cudaEventDestroy(from));
    CUDA(cudaEventDestroy(to));
    return median(took);
}

static void calls(side &s)
{
    const tutti_signal_info one = {5, TUTTI_SIGNAL_ADD, 1};
    printf("host time of a call, us\n%10s %16s %8s %8s %12s\n", "bytes", "cudaMemcpyAsync", "put", "get", "put_signal");
    for (const size_t bytes : {(size_t)8, (size_t)4096, (size_t)1 << 20}) {
        const double copy =
            host_us(s, [&] { CUDA(cudaMemcpyAsync(s.peer, s.source, bytes, cudaMemcpyDeviceToDevice, s.stream)); });
        const double put = host_us(s, [&] { TUTTI(tutti_put(s.source, bytes, 1, 0, s.window, &s.on, nullptr)); });
        const double get = host_us(s, [&] { TUTTI(tutti_get(s.source, bytes, 1, 0, s.window, &s.on, nullptr)); });
        const double both =
            host_us(s, [&] { TUTTI(tutti_put_signal(s.source, bytes, 1, 0, &one, s.window, &s.on, nullptr)); });
        printf("%10zu %16.2f %8.2f %8.2f %12.2f\n", bytes, copy, put, get, both);
    }
}

static void bandwidth(side &s)
{
    printf("time of a transfer, us, and GB/s\n%10s %24s %24s %10s\n", "bytes", "cudaMemcpyAsync", "put", "ratio");
    for (size_t bytes = (size_t)1 << 20; bytes <= PART; bytes *= 4) {
        const int times = bytes > (size_t)16 << 20 ? 10 : 40;
        const double copy = device_us(
            s, times, [&] { CUDA(cudaMemcpyAsync(s.peer, s.source, bytes, cudaMemcpyDeviceToDevice, s.stream)); });
        const double put =
            device_us(s, times, [&] { TUTTI(tutti_put(s.source, bytes, 1, 0, s.window, &s.on, nullptr)); });
        printf("%10zu %14.1f %9.1f %14.1f %9.1f %10.3f\n", bytes, copy, (double)bytes / copy / 1000, put,
               (double)bytes / put / 1000, put / copy);
    }
}

/* There and back; both sides enqueue ahead. Half of it, in us. */
static double ping(side &s, size_t bytes, int rounds, uint64_t begun)
{
    const int peer = 1 - s.rank;
    const tutti_signal_info one = {0, TUTTI_SIGNAL_ADD, 1};
    cudaEvent_t from, to;
    float ms = 0;
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    meet(s);
    for (int i = 0; i <= rounds; i++) { /* the first one brings them together */
        if (i == 1) CUDA(cudaEventRecord(from, s.stream));
        if (s.rank == 0) TUTTI(tutti_put_signal(s.source, bytes, peer, 0, &one, s.window, &s.on, nullptr));
        TUTTI(tutti_wait_signal(0, TUTTI_COMPARE_GE, begun + (uint64_t)i + 1, peer, s.window, &s.on, nullptr));
        if (s.rank == 1) TUTTI(tutti_put_signal(s.source, bytes, peer, 0, &one, s.window, &s.on, nullptr));
    }
    CUDA(cudaEventRecord(to, s.stream));
    CUDA(cudaEventSynchronize(to));
    CUDA(cudaEventElapsedTime(&ms, from, to));
    CUDA(cudaEventDestroy(from));
    CUDA(cudaEventDestroy(to));
    return (double)ms * 1000 / rounds / 2;
}

__global__ void ping_kernel(const __grid_constant__ tutti::device_window w, const char *source, size_t bytes,
                            int rounds, uint64_t begun)
{
    const int peer = 1 - w.rank();
    for (int i = 0; i < rounds; i++) {
        if (w.rank() == 0) w.put_signal(0, source, peer, bytes, 1, TUTTI_SIGNAL_ADD, 1, tutti::scope::block);
        if (w.wait_signal(1, TUTTI_COMPARE_GE, begun + i + 1, tutti::scope::block)) return;
        if (w.rank() == 1) w.put_signal(0, source, peer, bytes, 1, TUTTI_SIGNAL_ADD, 1, tutti::scope::block);
    }
}

static double ping_kernels(side &s, size_t bytes, int rounds, uint64_t begun)
{
    meet(s);
    const int threads = bytes >= 8192 ? 512 : bytes >= 512 ? (int)bytes / 16 : 32;
    cudaEvent_t from, to;
    float ms = 0;
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    ping_kernel<<<1, threads, 0, s.stream>>>(s.w, s.source, bytes, 1, begun);
    CUDA(cudaEventRecord(from, s.stream));
    ping_kernel<<<1, threads, 0, s.stream>>>(s.w, s.source, bytes, rounds, begun + 1);
    CUDA(cudaEventRecord(to, s.stream));
    CUDA(cudaEventSynchronize(to));
    CUDA(cudaEventElapsedTime(&ms, from, to));
    CUDA(cudaEventDestroy(from));
    CUDA(cudaEventDestroy(to));
    return (double)ms * 1000 / rounds / 2;
}

static void latency(side &s)
{
    const int rounds = 100, many = 2000;
    uint64_t begun = 0, by_kernels = 0;
    if (s.rank == 0) printf("put_signal until the peer has it, us\n%10s %10s %12s\n", "bytes", "by host", "by kernels");
    for (const size_t bytes : {(size_t)8, (size_t)1024, (size_t)32768, (size_t)1 << 20}) {
        std::vector<double> host, kernels;
        for (int i = 0; i < 5; i++) {
            host.push_back(ping(s, bytes, rounds, begun));
            kernels.push_back(ping_kernels(s, bytes, many, by_kernels));
            begun += rounds + 1, by_kernels += many + 1;
        }
        if (s.rank == 0) printf("%10zu %10.2f %12.2f\n", bytes, median(host), median(kernels));
    }
}

static void run(int rank, const std::string *name)
{
    int n_devices = 1;
    side s{};
    s.rank = rank;
    s.on = TUTTI_CALL_OPTIONS_INIT;
    tutti_context *context = nullptr;
    tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    const tutti_option transport = {"transport", "self"};
    CUDA(cudaGetDeviceCount(&n_devices));
    CUDA(cudaSetDevice(rank % n_devices));
    CUDA(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
    s.on.stream = s.stream;
    TUTTI(tutti_context_create(&transport, 1, &context));
    config.rank = rank, config.n_ranks = RANKS, config.name = name->c_str(), config.device = rank % n_devices;
    TUTTI(tutti_comm_create(context, &config, &s.comm));
    void *part = nullptr;
    TUTTI(tutti_mem_alloc(s.comm, PART, &part));
    TUTTI(tutti_window_create(s.comm, part, PART, nullptr, &s.window));
    TUTTI(tutti_window_device(s.window, &s.w));
    s.peer = static_cast<char *>(tutti_window_peer(s.window, 1 - rank, nullptr));
    CUDA(cudaMalloc(&s.source, PART));
    meet(s);
    if (rank == 0) calls(s), bandwidth(s);
    meet(s);
    latency(s);
    meet(s);
    TUTTI(tutti_comm_state(s.comm, nullptr));
    tutti_window_destroy(s.window);
    tutti_comm_destroy(s.comm);
}

int main()
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 0); /* what is loaded later could wait for a kernel that waits */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    const std::string name = "gpu_windows-" + std::to_string((long)(now_us() * 1000));
    std::vector<std::thread> threads;
    for (int r = 0; r < RANKS; r++) threads.emplace_back(run, r, &name);
    for (auto &thread : threads) thread.join();
    return 0;
}
