/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls on devices: the caller marks the queue, logs the call, and waits for the carrier to have enqueued it. Peers are
 * waited for where oneCCL does so: when the communicator is made, and when it connects. */

#include "backend/library/oneccl_device.h"
#include "device/level_zero/xpu.h"

#include <string.h>

#define SPINS 2000             /* for the carrier, as long as enqueueing takes; */
#define NAP_NS TUTTI_NS_PER_MS /* then it is looked whether the team has failed */
#define ASIDE_LEAST ((size_t)1 << 20)

/* A collective's buffers, or what stands in for them. */
struct sides {
    char *in, *out;
};

/* ---- within oneCCL ---- */

/* Slot 0 makes the id and shows it to the others. */
static enum tutti_status id_agree(struct oneccl_device *d, uint64_t timeout_ns)
{
    struct oneccl_log *first = oneccl_log_of(d, 0);
    const uint64_t deadline_ns = tutti_deadline_ns(timeout_ns);
    if (d->l.watched.me == 0) {
        TUTTI_TRY(oneccl_id_make(d->library, &d->like.id));
        memcpy(first->id, d->like.id.bytes, sizeof first->id);
        atomic_store_explicit(&first->ready, 1, memory_order_release);
    }
    while (!atomic_load_explicit(&first->ready, memory_order_acquire))
        TUTTI_TRY(watch_go_on(&d->l.watched, timeout_ns, deadline_ns, "rank 0's first call of oneCCL"));
    memcpy(d->like.id.bytes, first->id, sizeof first->id);
    return TUTTI_OK;
}

static enum tutti_status carrier_ready(struct oneccl_device *d, uint64_t timeout_ns)
{
    if (oneccl_is_lost()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, ONECCL_IS_LOST);
    if (d->carrier) return TUTTI_OK;
    TUTTI_TRY(id_agree(d, timeout_ns));
    return oneccl_carrier_start(&d->carrier, &d->like);
}

/* Whether the carrier has come back; else the team has failed. */
static bool comes_back(const struct oneccl_device *d)
{
    struct oneccl_carrier *c = d->carrier;
    for (uint32_t i = 0; i < SPINS && atomic_load(&c->state) == ONECCL_ASKED; i++) tutti_cpu_relax();
    atomic_store(&c->caller_sleeps, 1);
    while (atomic_load(&c->state) == ONECCL_ASKED && !tutti_team_failed(d->l.watched.team))
        tutti_futex_wait(&c->state, ONECCL_ASKED, tutti_deadline_ns(NAP_NS));
    atomic_store(&c->caller_sleeps, 0);
    return atomic_load(&c->state) != ONECCL_ASKED;
}

/* oneCCL notices a dead peer first, but can not name it: the watch can. */
static enum tutti_status carry(struct oneccl_device *d)
{
    struct oneccl_carrier *c = d->carrier;
    atomic_store(&d->l.marks.within_ns, tutti_now_ns());
    watch_wake(&d->l.watched);
    oneccl_carrier_ask(c);
    const bool back = comes_back(d);
    if (back && c->result != ONECCL_OK) watch_echo_wait(&d->l.watched);
    atomic_store(&d->l.marks.within_ns, 0);
    if (!back) {
        d->carrier = NULL;
        oneccl_lose();
        tutti_xpu_leave(d->l.gpu); /* the library may have enqueued */
        oneccl_carrier_end(c, false, 0);
    }
    TUTTI_TRY(watch_state(&d->l.watched));
    if (c->result != ONECCL_OK) return oneccl_carrier_refused(c);
    atomic_store(&watch_own_log(&d->l.watched)->made, 1);
    return TUTTI_OK;
}

/* ---- messages ---- */

static bool is_carried(const struct oneccl_device *d, const struct tutti_backend_message *m, bool send)
{
    return m->send == send && m->bytes > 0 && m->peer != d->l.watched.me;
}

/* In a group what is sent comes first: two ranks that both receive first would wait for each other. */
static enum tutti_status messages_run(struct oneccl_device *d, const struct library_item *item, void *stream,
                                      uint64_t timeout_ns)
{
    size_t n = 0;
    TUTTI_TRY(tutti_own_messages(d->l.gpu, item->messages, item->n, d->l.watched.me, stream));
    for (size_t i = 0; i < item->n; i++) n += is_carried(d, &item->messages[i], item->messages[i].send);
    if (n == 0) return TUTTI_OK;
    TUTTI_TRY(carrier_ready(d, timeout_ns));
    struct oneccl_carrier *c = d->carrier;
    TUTTI_TRY(oneccl_carrier_room(c, n * sizeof *item->messages));
    struct tutti_backend_message *out = (struct tutti_backend_message *)(void *)c->memory;
    for (int send = 1; send >= 0; send--)
        for (size_t i = 0; i < item->n; i++)
            if (is_carried(d, &item->messages[i], send)) *out++ = item->messages[i];
    oneccl_job_of_messages(&c->job, n);
    c->job.in = c->memory;
    c->job.stream = stream;
    return carry(d);
}

/* ---- collectives ---- */

/* The first `bytes` of it are for the input. */
static enum tutti_status aside_room(struct oneccl_device *d, size_t bytes, char **out)
{
    size_t room = d->aside ? d->aside->bytes : ASIDE_LEAST;
    while (room < bytes) room *= 2;
    if (!d->aside || room > d->aside->bytes) {
        struct oneccl_aside *more = tutti_alloc(sizeof *more);
        void *memory = NULL;
        if (!more) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for copies of buffers");
        const enum tutti_status status = d->l.gpu->ops->alloc(d->l.gpu, room, &memory);
        if (status < 0) {
            tutti_free(more);
            return status;
        }
        *more = (struct oneccl_aside){d->aside, memory, room};
        d->aside = more;
    }
    *out = d->aside->memory;
    return TUTTI_OK;
}

static enum tutti_status call_run(struct oneccl_device *d, const struct library_item *item, struct sides sides,
                                  void *stream)
{
    struct oneccl_job *job = &d->carrier->job;
    oneccl_job_of(item->call, job);
    job->in = sides.in, job->out = sides.out;
    job->stream = stream;
    return carry(d);
}

/* oneCCL wants a place for what a reduction gives, at ranks that do not take it, too; and a broadcast's input and
 * output are one where a rank has only one. */
static enum tutti_status collective_run(struct oneccl_device *d, const struct library_item *item, void *stream,
                                        uint64_t timeout_ns)
{
    const struct tutti_backend_call *call = item->call;
    const uint32_t n = d->l.watched.n, me = d->l.watched.me;
    const size_t in_bytes = tutti_aside_input(call, n, me), taken = tutti_aside_output(call, n, me);
    const size_t block = call->bind.count * tutti_dtype_bytes(call->info.dtype);
    const bool off_root = call->info.kind == TUTTI_REDUCE && call->info.root != (int32_t)me;
    const size_t out_bytes = off_root ? block : taken;
    const size_t out_at = (in_bytes + TUTTI_CACHE_LINE - 1) / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE;
    struct sides it;
    char *room = NULL, *theirs = call->bind.output;
    it.in = (char *)(uintptr_t)call->bind.input, it.out = theirs;
    if (call->info.kind == TUTTI_BROADCAST) {
        if (!it.out) it.out = it.in;
        if (call->info.root != (int32_t)me) it.in = it.out;
    }
    TUTTI_TRY(carrier_ready(d, timeout_ns));
    if (in_bytes || out_bytes) TUTTI_TRY(aside_room(d, out_at + out_bytes, &room));
    if (in_bytes) {
        TUTTI_TRY(d->l.gpu->ops->copy(d->l.gpu, room, it.in, in_bytes, stream));
        it.in = room;
    }
    if (out_bytes) it.out = room + out_at;
    TUTTI_TRY(call_run(d, item, it, stream));
    return taken && !off_root ? d->l.gpu->ops->copy(d->l.gpu, theirs, it.out, taken, stream) : TUTTI_OK;
}

/* ---- what is enqueued ---- */

enum tutti_status oneccl_accepts(struct library *l, void *stream)
{
    const enum tutti_status is_sycl = tutti_xpu_stream_is_sycl(l->gpu, stream);
    if (is_sycl == TUTTI_OK) return TUTTI_OK;
    const struct tutti_error why = *tutti_last_error();
    return tutti_fail(is_sycl,
                      "oneCCL takes streams that are SYCL queues, and %.300s: use one, or option gpu = xpu or host",
                      why.text);
}

enum tutti_status oneccl_run(struct library *l, const struct library_item *item, void *stream, uint64_t timeout_ns)
{
    return (item->call ? collective_run : messages_run)(oneccl_device_of(l), item, stream, timeout_ns);
}
