/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures and graphs of the stand-in. A graph's nodes run in the order that they depend on one another, those that do
 * not at the same time: branches may wait for one another through memory. */

#include "driver.h"

#include <algorithm>

namespace standin
{
enum { mode_global = 0, mode_thread_local = 1, mode_relaxed = 2 };
static thread_local int thread_mode = mode_global;

void invalidate(capture *broken)
{
    broken->invalid = true;
}

void add_node(stream *to, work run)
{
    graph *made = to->captured->made.get();
    made->nodes.push_back({to->tail, std::move(run)});
    to->tail = {&made->nodes.back()};
}

int safe_call()
{
    int status = success;
    for (capture *one : all().captures) {
        const bool own = one->thread == std::this_thread::get_id();
        const bool forbids = (own && one->mode != mode_relaxed && thread_mode != mode_relaxed) ||
                             (!own && one->mode == mode_global && thread_mode == mode_global);
        if (!forbids) continue;
        invalidate(one);
        status = capture_unsupported;
    }
    return status;
}

/* Whether all nodes come before those of the tail: nothing that was captured has been forgotten. */
static bool joined(const graph &made, const std::vector<node *> &tail)
{
    std::set<const node *> before;
    std::vector<const node *> left(tail.begin(), tail.end());
    while (!left.empty()) {
        const node *next = left.back();
        left.pop_back();
        if (before.insert(next).second) left.insert(left.end(), next->after.begin(), next->after.end());
    }
    return before.size() == made.nodes.size();
}

namespace
{
/* One run of a graph. */
struct graph_run {
    const graph &made;
    std::mutex lock;
    std::condition_variable changed;
    std::map<const node *, size_t> n_waits;
    std::map<const node *, std::vector<const node *>> next;
    std::vector<std::thread> helpers;
    size_t n_left;

    explicit graph_run(const graph &of) : made(of), n_left(of.nodes.size())
    {
        for (const node &one : of.nodes) {
            const std::set<node *> after(one.after.begin(), one.after.end());
            n_waits[&one] = after.size();
            for (const node *before : after) next[before].push_back(&one);
        }
    }

    /* Runs the node and what only waited for it; others that may begin then get threads of their own. */
    void follow(const node *from)
    {
        while (from) {
            if (from->run) from->run();
            const node *then = nullptr;
            guard held(lock);
            for (const node *one : next[from]) {
                if (--n_waits[one] > 0) continue;
                if (!then) {
                    then = one;
                } else {
                    helpers.emplace_back([this, one] { follow(one); });
                }
            }
            if (--n_left == 0) changed.notify_all();
            from = then;
        }
    }

    void run()
    {
        std::vector<const node *> roots;
        for (const node &one : made.nodes) {
            if (one.after.empty()) roots.push_back(&one);
        }
        guard held(lock);
        for (size_t i = 1; i < roots.size(); i++) {
            helpers.emplace_back([this, root = roots[i]] { follow(root); });
        }
        held.unlock();
        if (!roots.empty()) follow(roots[0]);
        held.lock();
        changed.wait(held, [this] { return n_left == 0; });
        held.unlock();
        for (std::thread &helper : helpers) helper.join(); /* nobody adds any more */
    }
};
} // namespace

void run_graph(const graph &made)
{
    graph_run(made).run();
}
} // namespace standin
using namespace standin;

STANDIN_API int cuThreadExchangeStreamCaptureMode(int *mode)
{
    const int status = usable();
    if (status) return status;
    if (*mode < mode_global || *mode > mode_relaxed) return invalid_value;
    std::swap(*mode, thread_mode);
    return success;
}

STANDIN_API int cuStreamBeginCapture_v2(void *handle, int mode)
{
    return with_stream(handle, [mode](stream *of) {
        if (of->legacy) return (int)capture_unsupported;
        if (of->captured || mode < mode_global || mode > mode_relaxed) return (int)invalid_value;
        const auto made = std::make_shared<capture>();
        made->id = ++all().n_ids;
        made->mode = mode;
        made->thread = std::this_thread::get_id();
        made->origin = of;
        made->streams.insert(of);
        all().captures.insert(made.get());
        of->captured = made;
        of->tail.clear();
        return (int)success;
    });
}

STANDIN_API int cuStreamEndCapture(void *handle, void **out)
{
    return with_stream(handle, [out](stream *of) {
        *out = nullptr;
        const capture_pointer ended = of->captured;
        if (!ended) return (int)invalid_value;
        if (ended->origin != of) {
            invalidate(ended.get());
            return (int)capture_unmatched;
        }
        if (ended->mode != mode_relaxed && ended->thread != std::this_thread::get_id()) {
            return (int)capture_wrong_thread;
        }
        const bool whole = joined(*ended->made, of->tail);
        for (stream *one : ended->streams) {
            one->captured = nullptr;
            one->tail.clear();
        }
        all().captures.erase(ended.get());
        const std::shared_ptr<graph> made = std::move(ended->made); /* events that were recorded hold the capture */
        if (ended->invalid) return (int)capture_invalidated;
        if (!whole) return (int)capture_unjoined;
        all().graphs[made.get()] = made;
        *out = made.get();
        return (int)success;
    });
}

STANDIN_API int cuStreamIsCapturing(void *handle, int *state)
{
    return with_stream(handle, [state](stream *of) {
        *state = !of->captured ? 0 : of->captured->invalid ? 2 : 1;
        return (int)success;
    });
}

static int info_of(stream *of, int *state, uint64_t *id, void **made, void *const **nodes, size_t *n)
{
    static thread_local std::vector<void *> found;
    *state = !of->captured ? 0 : of->captured->invalid ? 2 : 1;
    if (*state != 1) return success;
    if (id) *id = of->captured->id;
    if (made) *made = of->captured->made.get();
    found.assign(of->tail.begin(), of->tail.end());
    if (nodes) *nodes = found.data();
    if (n) *n = found.size();
    return success;
}

STANDIN_API int cuStreamGetCaptureInfo_v2(void *handle, int *state, uint64_t *id, void **made, void *const **nodes,
                                          size_t *n)
{
    return with_stream(handle, [=](stream *of) { return info_of(of, state, id, made, nodes, n); });
}

STANDIN_API int cuStreamGetCaptureInfo_v3(void *handle, int *state, uint64_t *id, void **made, void *const **nodes,
                                          const void **edges, size_t *n)
{
    if (edges) *edges = nullptr;
    return cuStreamGetCaptureInfo_v2(handle, state, id, made, nodes, n);
}

STANDIN_API int cuStreamUpdateCaptureDependencies(void *handle, void **nodes, size_t n, unsigned flags)
{
    if (flags > 1) return invalid_value;
    return with_stream(handle, [=](stream *of) {
        if (!of->captured) return (int)invalid_value;
        if (of->captured->invalid) return (int)capture_invalidated;
        std::vector<node *> tail = flags == 0 ? of->tail : std::vector<node *>();
        for (size_t i = 0; i < n; i++) {
            const auto same = [nodes, i](const node &one) { return &one == nodes[i]; };
            auto &known = of->captured->made->nodes;
            const auto found = std::find_if(known.begin(), known.end(), same);
            if (found == known.end()) return (int)invalid_value;
            if (std::find(tail.begin(), tail.end(), &*found) == tail.end()) tail.push_back(&*found);
        }
        of->tail = tail;
        return (int)success;
    });
}

STANDIN_API int cuStreamUpdateCaptureDependencies_v2(void *handle, void **nodes, const void *edges, size_t n,
                                                     unsigned flags)
{
    return edges ? not_supported : cuStreamUpdateCaptureDependencies(handle, nodes, n, flags);
}

/* ---- graphs ---- */
/* A graph of the application's, or one that is being captured. */
static std::shared_ptr<graph> graph_of(void *handle)
{
    const auto found = all().graphs.find(static_cast<graph *>(handle));
    if (found != all().graphs.end()) return found->second;
    for (capture *one : all().captures) {
        if (one->made.get() == handle) return one->made;
    }
    return nullptr;
}

STANDIN_API int cuGraphAddEmptyNode(void **out, void *handle, void *const *after, size_t n)
{
    const int status = usable();
    if (status) return status;
    guard held(all().lock);
    const std::shared_ptr<graph> made = graph_of(handle);
    if (!made) return invalid_value;
    node added;
    for (size_t i = 0; i < n; i++) added.after.push_back(static_cast<node *>(after[i]));
    made->nodes.push_back(added);
    *out = &made->nodes.back();
    return success;
}

STANDIN_API int cuGraphGetNodes(void *handle, void **nodes, size_t *n)
{
    const int status = usable();
    if (status) return status;
    guard held(all().lock);
    const std::shared_ptr<graph> made = graph_of(handle);
    if (!made) return invalid_value;
    for (size_t i = 0; nodes && i < *n && i < made->nodes.size(); i++) nodes[i] = &made->nodes[i];
    *n = made->nodes.size();
    return success;
}

STANDIN_API int cuGraphInstantiateWithFlags(void **out, void *handle, unsigned long long)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    const std::shared_ptr<graph> made = graph_of(handle);
    if (!made) return invalid_value;
    executable *ready = new executable{made, nullptr};
    all().executables.insert(ready);
    *out = ready;
    return success;
}

STANDIN_API int cuGraphLaunch(void *handle, void *stream_handle)
{
    if (has_few_queues()) wait_for_frees();
    return with_stream(stream_handle, [handle](stream *of) {
        const auto found = all().executables.find(static_cast<executable *>(handle));
        if (found == all().executables.end()) return (int)invalid_value;
        executable *ready = *found;
        const mark_pointer before = ready->last;
        const int status = submit(of, [made = ready->made, before] {
            if (before) before->wait();
            run_graph(*made);
        });
        if (!status && !of->captured) ready->last = of->last;
        return status;
    });
}

STANDIN_API int cuGraphExecDestroy(void *handle)
{
    const int status = usable();
    if (status) return status;
    guard held(all().lock);
    executable *ready = static_cast<executable *>(handle);
    if (all().executables.erase(ready) == 0) return invalid_value;
    delete ready;
    return success;
}

STANDIN_API int cuGraphDestroy(void *handle)
{
    const int status = usable();
    if (status) return status;
    guard held(all().lock);
    return all().graphs.erase(static_cast<graph *>(handle)) ? success : invalid_value;
}

/* ---- objects that graphs hold ---- */

STANDIN_API int cuUserObjectCreate(void **out, void *object, void (*destroy)(void *), unsigned n, unsigned flags)
{
    if (n != 1 || flags != 1) return invalid_value;
    *out = new std::shared_ptr<void>(object, destroy);
    return success;
}

/* The reference of who has made it. */
STANDIN_API int cuGraphRetainUserObject(void *handle, void *object, unsigned n, unsigned flags)
{
    const int status = usable();
    if (status) return status;
    guard held(all().lock);
    const std::shared_ptr<graph> made = graph_of(handle);
    if (!made || n != 1 || flags != 1) return invalid_value;
    const std::unique_ptr<std::shared_ptr<void>> moved(static_cast<std::shared_ptr<void> *>(object));
    made->objects.push_back(*moved);
    return success;
}
