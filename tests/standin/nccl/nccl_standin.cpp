/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of NCCL that tutti calls, on the stand-in for CUDA's driver: every call becomes messages between the ranks,
 * in a host function of the stream; reductions are the reference's. As NCCL it waits until it is aborted, and ends
 * nothing by itself: not what a peer does not come to, and not what ranks call differently; an abort waits for graphs
 * that hold calls. What NCCL forbids is an error: buffers of reductions that are not aligned, and two calls of a
 * communicator at once.
 *
 * TUTTI_STANDIN_NCCL, looked at by every call, makes it go wrong: "refuses" ends it with an error, "connects" keeps it
 * from coming back before it is aborted, "fails" is an error that comes later. TUTTI_STANDIN_NCCL_VERSION: 22809. */

#include "mail.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

extern "C" {
#include "reference.h"
}

#define STANDIN_API extern "C" __attribute__((visibility("default")))

namespace standin
{
enum result {
    success = 0,
    unhandled_cuda_error = 1,
    system_error = 2,
    internal_error = 3,
    invalid_argument = 4,
    invalid_usage = 5,
    remote_error = 6
};
enum { n_ops = 5, max_factor = 8 }; /* operations without factors; bytes of a factor */

struct factor {
    bool used;
    unsigned char value[max_factor];
};
struct work;
struct communicator {
    mail post;
    unsigned n, me;
    std::atomic<bool> aborted{false}, running{false}, gone{false};
    std::atomic<int> state{success};
    std::vector<factor> factors;
    std::vector<std::unique_ptr<work>> captured; /* which may be replayed at any time, */
    std::atomic<int> n_held{0};                  /* as long as graphs hold them */
};
/* What a group has for a communicator and a stream. */
struct work {
    communicator *of;
    void *stream;
    std::vector<message> messages;
    std::vector<std::function<void()>> then;
};
static thread_local struct {
    int depth, error;
    std::vector<std::unique_ptr<work>> works;
} group;
static thread_local std::string last;

static int fail(int status, const char *why)
{
    last = why;
    group.error = status;
    return status;
}

/* ---- streams ---- */

template <class F> static F *driver(const char *symbol)
{
    const char *name = getenv("TUTTI_CUDA_DRIVER");
    void *library = name ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    return library ? reinterpret_cast<F *>(dlsym(library, symbol)) : nullptr;
}

static void run(void *arg)
{
    const work *one = static_cast<work *>(arg);
    communicator *of = one->of;
    if (of->running.exchange(true)) {
        of->state = invalid_usage;
        while (!of->aborted) nap();
        return;
    }
    if (!of->aborted && of->post.exchange(one->messages, of->aborted)) {
        for (const auto &then : one->then) then();
    }
    of->running = false;
}

static void run_once(void *arg)
{
    run(arg);
    delete static_cast<work *>(arg);
}

static void let_go(void *n_held)
{
    --*static_cast<std::atomic<int> *>(n_held);
}

/* Counts with the communicator as long as the graph that is captured is there. */
static bool hold(work *kept)
{
    static const auto info =
        driver<int(void *, int *, uint64_t *, void **, void *const **, size_t *)>("cuStreamGetCaptureInfo_v2");
    static const auto make = driver<int(void **, void *, void (*)(void *), unsigned, unsigned)>("cuUserObjectCreate");
    static const auto retain = driver<int(void *, void *, unsigned, unsigned)>("cuGraphRetainUserObject");
    void *graph = nullptr, *object = nullptr;
    int state = 0;
    if (!info || !make || !retain || info(kept->stream, &state, nullptr, &graph, nullptr, nullptr)) return false;
    ++kept->of->n_held;
    return make(&object, &kept->of->n_held, let_go, 1, 1) == success && retain(graph, object, 1, 1) == success;
}

/* Messages to oneself come in pairs. */
static bool pairs_own(const work &one)
{
    int left = 0;
    for (const message &m : one.messages) left += m.peer != one.of->me ? 0 : m.sends ? 1 : -1;
    return left == 0;
}

static int launch(std::unique_ptr<work> one)
{
    if (!pairs_own(*one)) return fail(invalid_usage, "Trying to send to self without a matching recv");
    static const auto host = driver<int(void *, void (*)(void *), void *)>("cuLaunchHostFunc");
    static const auto capturing = driver<int(void *, int *)>("cuStreamIsCapturing");
    int captured = 0;
    if (!host || !capturing || capturing(one->stream, &captured)) return fail(unhandled_cuda_error, "no stream");
    if (captured) {
        work *kept = one.get();
        kept->of->captured.push_back(std::move(one));
        return !hold(kept) || host(kept->stream, run, kept) ? fail(unhandled_cuda_error, "the capture is invalid")
                                                            : success;
    }
    if (host(one->stream, run_once, one.get())) return fail(unhandled_cuda_error, "the stream does not take it");
    one.release();
    return success;
}

/* ---- groups ---- */

/* What is to go wrong. */
static int misbehave(communicator *of)
{
    const char *how = getenv("TUTTI_STANDIN_NCCL");
    if (!how) return success;
    if (strcmp(how, "refuses") == 0) return fail(internal_error, "it was told to refuse");
    if (strcmp(how, "connects") == 0) {
        while (!of->aborted) nap();
        for (int i = 0; i < 1000; i++) nap(); /* the end of the communicator is faster */
        return fail(internal_error, "it was aborted");
    }
    of->state = remote_error;
    return success;
}

static int group_end()
{
    if (--group.depth > 0) return success;
    const auto works = std::move(group.works);
    int status = group.error;
    group.works.clear();
    group.error = success;
    for (const auto &one : works) {
        if (!status) status = misbehave(one->of);
        if (!status) status = launch(std::make_unique<work>(*one));
    }
    group.error = success;
    return status;
}

/* add(work), in a group of its own if there is none. */
template <class F> static int enqueue(void *comm, void *stream, F add)
{
    communicator *of = static_cast<communicator *>(comm);
    group.depth++;
    if (!of || of->aborted) {
        fail(invalid_argument, "no communicator");
    } else {
        auto &works = group.works;
        if (works.empty() || works.back()->of != of || works.back()->stream != stream)
            works.push_back(std::make_unique<work>(work{of, stream, {}, {}}));
        add(works.back().get());
    }
    const int status = group.error, ended = group_end();
    return status ? status : ended;
}

static void post(work *one, bool sends, unsigned peer, const void *at, size_t bytes)
{
    if (peer >= one->of->n) fail(invalid_argument, "no such peer");
    char *bytes_at = static_cast<char *>(const_cast<void *>(at));
    one->messages.push_back({sends, peer, bytes_at, bytes});
}

/* ---- reductions ---- */

static const enum tutti_dtype types[] = {TUTTI_INT8,   TUTTI_UINT8,   TUTTI_INT32,   TUTTI_UINT32,  TUTTI_INT64,
                                         TUTTI_UINT64, TUTTI_FLOAT16, TUTTI_FLOAT32, TUTTI_FLOAT64, TUTTI_BFLOAT16};
static const enum tutti_op ops[] = {TUTTI_SUM, TUTTI_PROD, TUTTI_MAX, TUTTI_MIN, TUTTI_AVG, TUTTI_PREMUL_SUM};

struct reduction {
    size_t count;
    int type, op;

    size_t bytes() const { return count * ref_bytes(types[type]); }
    bool takes(const void *buffer) const { return count == 0 || (uintptr_t)buffer % ref_bytes(types[type]) == 0; }
};

/* Elements that are reduced. Alone the library's kernel for what is scaled shares them among its blocks, and leaves out
 * what is over (its onerank.cu). */
static size_t reached(const reduction &as, unsigned n)
{
    const bool scales = as.op >= n_ops || ops[as.op] == TUTTI_AVG;
    if (n > 1 || !scales || as.count == 0) return as.count;
    const size_t pack = 16 / ref_bytes(types[as.type]), blocks = std::min<size_t>(32, (as.bytes() + 16383) / 16384);
    return std::min(as.count, blocks * ((as.count / blocks + pack - 1) / pack * pack));
}

/* What all send to this rank, reduced into out. */
static void receive_reduced(work *one, const reduction &as, void *out)
{
    const unsigned n = one->of->n;
    const auto room = std::make_shared<std::vector<double>>(n * (as.bytes() + 7) / 8 + n); /* aligned for all types */
    std::vector<unsigned char> scale(max_factor);
    std::vector<const void *> inputs;
    for (unsigned q = 0; q < n; q++) {
        void *at = room->data() + q * ((as.bytes() + 7) / 8);
        inputs.push_back(at);
        post(one, false, q, at, as.bytes());
    }
    const bool scales = as.op >= n_ops;
    if (scales) memcpy(scale.data(), one->of->factors[(size_t)as.op - n_ops].value, max_factor);
    const enum tutti_op op = ops[scales ? (int)n_ops : as.op];
    one->then.emplace_back([=] {
        if (as.count) ref_reduce(types[as.type], op, inputs.data(), n, reached(as, n), scale.data(), out);
        (void)room;
    });
}

static bool fits(const work *one, const reduction &as, const void *in, const void *out)
{
    const std::vector<factor> &factors = one->of->factors;
    const size_t scale = (size_t)as.op - n_ops;
    if (as.op >= n_ops && (scale >= factors.size() || !factors[scale].used))
        fail(invalid_argument, "no such operation");
    if (!as.takes(in) || !as.takes(out)) fail(invalid_argument, "a buffer is not aligned");
    return group.error == success;
}
} // namespace standin
using namespace standin;

/* ---- the library ---- */

struct unique_id {
    char bytes[128];
};

STANDIN_API int ncclGetVersion(int *version)
{
    const char *text = getenv("TUTTI_STANDIN_NCCL_VERSION");
    *version = text ? atoi(text) : 22809;
    return success;
}

STANDIN_API const char *ncclGetErrorString(int status)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error"};
    return status >= 0 && status <= remote_error ? texts[status] : "unknown result code";
}

STANDIN_API const char *ncclGetLastError(void *)
{
    return last.c_str();
}

STANDIN_API int ncclGetUniqueId(unique_id *id)
{
    const char *slow = getenv("TUTTI_STANDIN_NCCL_SLOW"); /* milliseconds that it takes to get going */
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(atoi(slow)));
    const std::string name = mail::make();
    memset(id, 0, sizeof *id);
    memcpy(id->bytes, name.data(), name.size());
    return name.empty() ? system_error : success;
}

STANDIN_API int ncclCommInitRankConfig(void **comm, int n, unique_id id, int rank, const void *)
{
    static std::mutex lock;
    static auto *all = new std::vector<std::unique_ptr<communicator>>; /* streams may come to their calls at any time */
    std::unique_lock<std::mutex> held(lock);
    all->push_back(std::make_unique<communicator>());
    communicator *made = all->back().get();
    held.unlock();
    made->n = (unsigned)n, made->me = (unsigned)rank, made->running = true;
    if (!made->post.open(id.bytes, made->n, made->me)) return system_error;
    __atomic_store_n(comm, made, __ATOMIC_RELEASE); /* by which it can be aborted meanwhile */
    const bool met = made->post.meet(made->aborted);
    made->running = false;
    if (met) return success;
    __atomic_store_n(comm, nullptr, __ATOMIC_RELEASE);
    return internal_error;
}

STANDIN_API int ncclCommAbort(void *comm)
{
    communicator *of = static_cast<communicator *>(comm);
    of->aborted = true;
    while (of->running || of->n_held > 0) nap();
    of->post.close();
    of->gone = true;
    return success;
}

/* With one rank, which waits for nobody. */
STANDIN_API int ncclCommDestroy(void *comm)
{
    return ncclCommAbort(comm);
}

STANDIN_API int ncclCommGetAsyncError(void *comm, int *state)
{
    *state = static_cast<communicator *>(comm)->state;
    return success;
}

STANDIN_API int ncclGroupStart()
{
    group.depth++;
    return success;
}

STANDIN_API int ncclGroupEnd()
{
    return group_end();
}

STANDIN_API int ncclRedOpCreatePreMulSum(int *op, void *value, int type, int, void *comm)
{
    communicator *of = static_cast<communicator *>(comm);
    factor made = {true, {}};
    memcpy(made.value, value, ref_bytes(types[type]));
    size_t i = 0;
    while (i < of->factors.size() && of->factors[i].used) i++;
    if (i == of->factors.size()) of->factors.push_back(made);
    of->factors[i] = made;
    *op = n_ops + (int)i;
    return success;
}

STANDIN_API int ncclRedOpDestroy(int op, void *comm)
{
    if (static_cast<communicator *>(comm)->gone) abort(); /* it is no memory any more */
    static_cast<communicator *>(comm)->factors[(size_t)(op - n_ops)].used = false;
    return success;
}

/* ---- calls ---- */

STANDIN_API int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream)
{
    return enqueue(comm, stream, [=](work *one) {
        const reduction as = {count, type, op};
        if (!fits(one, as, in, out)) return;
        for (unsigned q = 0; q < one->of->n; q++) post(one, true, q, in, as.bytes());
        receive_reduced(one, as, out);
    });
}

STANDIN_API int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root, void *comm,
                           void *stream)
{
    return enqueue(comm, stream, [=](work *one) {
        const reduction as = {count, type, op};
        if (!fits(one, as, in, (unsigned)root == one->of->me ? out : in)) return;
        post(one, true, (unsigned)root, in, as.bytes());
        if ((unsigned)root == one->of->me) receive_reduced(one, as, out);
    });
}

STANDIN_API int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream)
{
    return enqueue(comm, stream, [=](work *one) {
        const reduction as = {count, type, op};
        if (!fits(one, as, in, out)) return;
        const char *block = static_cast<const char *>(in);
        for (unsigned q = 0; q < one->of->n; q++, block += as.bytes()) post(one, true, q, block, as.bytes());
        receive_reduced(one, as, out);
    });
}

STANDIN_API int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    return enqueue(comm, stream, [=](work *one) {
        const size_t bytes = count * ref_bytes(types[type]);
        for (unsigned q = 0; (unsigned)root == one->of->me && q < one->of->n; q++) post(one, true, q, in, bytes);
        post(one, false, (unsigned)root, out, bytes);
    });
}

STANDIN_API int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    return enqueue(comm, stream, [=](work *one) {
        const size_t bytes = count * ref_bytes(types[type]);
        for (unsigned q = 0; q < one->of->n; q++) {
            post(one, true, q, in, bytes);
            post(one, false, q, static_cast<char *>(out) + q * bytes, bytes);
        }
    });
}

STANDIN_API int ncclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream)
{
    return enqueue(comm, stream,
                   [=](work *one) { post(one, true, (unsigned)peer, in, count * ref_bytes(types[type])); });
}

STANDIN_API int ncclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream)
{
    return enqueue(comm, stream,
                   [=](work *one) { post(one, false, (unsigned)peer, out, count * ref_bytes(types[type])); });
}
