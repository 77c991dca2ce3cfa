/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and events of the stand-in: a stream is a queue and a thread that works it off; the legacy default stream of
 * a context waits for its blocking streams, and they for it. */

#include "driver.h"

#include <chrono>

namespace standin
{
void mark::finish()
{
    guard held(lock);
    done = true;
    ns = (uint64_t)std::chrono::steady_clock::now().time_since_epoch().count();
    changed.notify_all();
}

void mark::wait()
{
    guard held(lock);
    changed.wait(held, [this] { return done; });
}

bool mark::over()
{
    guard held(lock);
    return done;
}

void wait_for(const std::vector<mark_pointer> &marks)
{
    for (const mark_pointer &one : marks) one->wait();
}

void wait_for_frees()
{
    while (all().n_freeing > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

struct queue {
    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::pair<work, mark_pointer>> items;
    bool closed = false, started = false;
};

static void work_off(std::shared_ptr<queue> queued)
{
    for (;;) {
        guard held(queued->lock);
        queued->changed.wait(held, [&] { return queued->closed || !queued->items.empty(); });
        if (queued->items.empty()) return;
        auto next = std::move(queued->items.front());
        queued->items.pop_front();
        held.unlock();
        if (next.first) next.first();
        next.first = nullptr; /* what it holds goes before anybody hears that it is over */
        next.second->finish();
    }
}

static stream *make_stream(context *owner, bool blocking, bool legacy)
{
    stream *made = new stream{owner, blocking, legacy, std::make_shared<queue>(), nullptr, nullptr, {}};
    owner->streams.insert(made);
    all().streams.insert(made);
    return made;
}

/* The default stream of this thread in the context. */
static stream *stream_of_thread()
{
    static thread_local std::map<context *, stream *> made;
    stream *&own = made[current];
    if (!own) own = make_stream(current, true, false);
    return own;
}

stream *stream_of(void *handle)
{
    if ((uintptr_t)handle == 2) return stream_of_thread();
    if ((uintptr_t)handle <= 1) { /* NULL, the legacy stream: one */
        if (!current->legacy) current->legacy = make_stream(current, true, true);
        return current->legacy;
    }
    const auto found = all().streams.find(static_cast<stream *>(handle));
    return found == all().streams.end() ? nullptr : *found;
}

static void append(stream *to, work run)
{
    queue *queued = to->queued.get();
    mark_pointer made = std::make_shared<mark>();
    const bool idle = !to->last || to->last->over();
    to->last = made;
    if (!run && idle) {
        made->finish();
        return;
    }
    guard held(queued->lock);
    if (!queued->started) {
        queued->started = true;
        std::thread(work_off, to->queued).detach();
    }
    queued->items.emplace_back(std::move(run), made);
    queued->changed.notify_one();
}

mark_pointer push(stream *to, work run)
{
    std::vector<mark_pointer> before;
    for (const stream *other : to->owner->streams) {
        const bool ordered = to->blocking && other->blocking && to->legacy != other->legacy;
        if (ordered && other->last && !other->last->over()) before.push_back(other->last);
    }
    if (before.empty()) {
        append(to, std::move(run));
    } else {
        append(to, [before, run = std::move(run)] {
            wait_for(before);
            if (run) run();
        });
    }
    return to->last;
}

std::vector<mark_pointer> pending(context *of)
{
    std::vector<mark_pointer> marks;
    for (const stream *one : of->streams) {
        if (one->last) marks.push_back(one->last);
    }
    return marks;
}

int submit(stream *to, work run)
{
    if (to->captured) {
        if (to->captured->invalid) return capture_invalidated;
        add_node(to, std::move(run));
        return success;
    }
    if (to->legacy) {
        for (const stream *other : to->owner->streams) {
            if (!other->captured || !other->blocking) continue;
            invalidate(other->captured.get());
            return capture_implicit;
        }
    }
    push(to, std::move(run));
    return success;
}
} // namespace standin
using namespace standin;

STANDIN_API int cuStreamCreate(void **out, unsigned flags)
{
    const int status = usable_in_context();
    if (status) return status;
    if (flags > 1) return invalid_value;
    guard held(all().lock);
    *out = make_stream(current, flags == 0, false);
    return success;
}

STANDIN_API int cuStreamCreateWithPriority(void **out, unsigned flags, int)
{
    return cuStreamCreate(out, flags);
}

STANDIN_API int cuStreamDestroy_v2(void *handle)
{
    if ((uintptr_t)handle <= 2) return invalid_handle;
    return with_stream(handle, [](stream *of) {
        if (of->captured) {
            invalidate(of->captured.get());
            of->captured->streams.erase(of);
        }
        queue *queued = of->queued.get();
        guard held(queued->lock);
        queued->closed = true;
        queued->changed.notify_one();
        of->owner->streams.erase(of);
        all().streams.erase(of);
        held.unlock();
        delete of;
        return (int)success;
    });
}

STANDIN_API int cuStreamQuery(void *handle)
{
    return with_stream(handle, [](stream *of) {
        if (of->captured) {
            invalidate(of->captured.get());
            return (int)capture_unsupported;
        }
        const int forbidden = safe_call();
        if (forbidden) return forbidden;
        return (int)(!of->last || of->last->over() ? success : not_ready);
    });
}

STANDIN_API int cuStreamSynchronize(void *handle)
{
    mark_pointer last;
    const int status = with_stream(handle, [&last](stream *of) {
        if (of->captured) {
            invalidate(of->captured.get());
            return (int)capture_unsupported;
        }
        const int forbidden = safe_call();
        if (!forbidden) last = of->legacy ? push(of, nullptr) : of->last;
        return forbidden;
    });
    if (last) last->wait();
    return status;
}

STANDIN_API int cuLaunchHostFunc(void *handle, void (*function)(void *arg), void *arg)
{
    return with_stream(handle, [function, arg](stream *of) {
        return submit(of, [function, arg] {
            in_host_function = true;
            function(arg);
            in_host_function = false;
        });
    });
}

STANDIN_API int cuStreamWriteValue32_v2(void *handle, uint64_t word, uint32_t value, unsigned flags)
{
    if (word % 4 || flags) return invalid_value;
    return with_stream(handle, [word, value](stream *of) {
        return submit(of, [word, value] { __atomic_store_n((uint32_t *)word, value, __ATOMIC_RELEASE); });
    });
}

static bool holds(uint32_t found, uint32_t value, unsigned condition)
{
    switch (condition) {
    case 0:
        return (int32_t)(found - value) >= 0;
    case 1:
        return found == value;
    case 2:
        return (found & value) != 0;
    default:
        return ~(found | value) != 0;
    }
}

STANDIN_API int cuStreamWaitValue32_v2(void *handle, uint64_t word, uint32_t value, unsigned flags)
{
    if (word % 4 || flags > 3) return invalid_value;
    return with_stream(handle, [word, value, flags](stream *of) {
        return submit(of, [word, value, flags] {
            size_t n = 0;
            while (!holds(__atomic_load_n((uint32_t *)word, __ATOMIC_ACQUIRE), value, flags)) cuda_standin_idle(++n);
        });
    });
}

/* ---- events ---- */
template <class F> static int with_event(void *handle, F act)
{
    const int status = usable();
    if (status) return status;
    guard held(all().lock);
    const auto found = all().events.find(static_cast<event *>(handle));
    return found == all().events.end() ? invalid_handle : act(*found);
}

STANDIN_API int cuEventCreate(void **out, unsigned flags)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    event *made = new event{current, (flags & 2) == 0, nullptr, nullptr, {}};
    all().events.insert(made);
    *out = made;
    return success;
}

STANDIN_API int cuEventDestroy_v2(void *handle)
{
    return with_event(handle, [](event *of) {
        all().events.erase(of);
        delete of;
        return (int)success;
    });
}

STANDIN_API int cuEventRecord(void *handle, void *stream_handle)
{
    if (usable() == success && !current) return invalid_context;
    return with_event(handle, [stream_handle](event *of) {
        stream *on = stream_of(stream_handle);
        if (!on || on->owner != of->owner) return (int)invalid_handle;
        if (on->captured) {
            if (on->captured->invalid) return (int)capture_invalidated;
            of->captured = on->captured;
            of->tail = on->tail;
            return (int)success;
        }
        const int status = submit(on, nullptr);
        if (status) return status;
        of->captured = nullptr;
        of->tail.clear();
        of->recorded = on->last;
        return (int)success;
    });
}

/* A driver may keep who asks waiting while it frees memory. */
STANDIN_API int cuEventQuery(void *handle)
{
    wait_for_frees();
    return with_event(handle, [](event *of) {
        if (of->captured) return (int)captured_event;
        const int forbidden = safe_call();
        if (forbidden) return forbidden;
        return (int)(!of->recorded || of->recorded->over() ? success : not_ready);
    });
}

STANDIN_API int cuEventSynchronize(void *handle)
{
    mark_pointer recorded;
    const int status = with_event(handle, [&recorded](event *of) {
        if (of->captured) return (int)captured_event;
        recorded = of->recorded;
        return safe_call();
    });
    if (!status && recorded) recorded->wait();
    return status;
}

STANDIN_API int cuEventElapsedTime(float *ms, void *from, void *to)
{
    mark_pointer marks[2];
    void *handles[2] = {from, to};
    for (int i = 0; i < 2; i++) {
        const int status = with_event(handles[i], [&marks, i](event *of) {
            if (!of->timed || !of->recorded) return (int)invalid_handle;
            marks[i] = of->recorded;
            return (int)(of->recorded->over() ? success : not_ready);
        });
        if (status) return status;
    }
    *ms = (float)((double)(int64_t)(marks[1]->ns - marks[0]->ns) * 1e-6);
    return success;
}

STANDIN_API int cuStreamWaitEvent(void *handle, void *event_handle, unsigned flags)
{
    if (flags) return not_supported; /* external events of graphs */
    return with_stream(handle, [event_handle](stream *of) {
        const auto found = all().events.find(static_cast<event *>(event_handle));
        if (found == all().events.end()) return (int)invalid_handle;
        event *before = *found;
        if (of->captured && of->captured->invalid) return (int)capture_invalidated;
        if (before->captured && all().captures.count(before->captured.get())) {
            if (of->captured && of->captured != before->captured) {
                invalidate(of->captured.get());
                invalidate(before->captured.get());
                return (int)capture_merge;
            }
            of->captured = before->captured;
            of->captured->streams.insert(of);
            of->tail.insert(of->tail.end(), before->tail.begin(), before->tail.end());
            return (int)success;
        }
        if (before->captured) return (int)captured_event;
        if (of->captured) {
            invalidate(of->captured.get());
            return (int)capture_isolation;
        }
        const mark_pointer recorded = before->recorded;
        if (recorded && !recorded->over()) return submit(of, [recorded] { recorded->wait(); });
        return (int)success;
    });
}
