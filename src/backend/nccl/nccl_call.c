/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls: NCCL's, with events around them, and tied together where they are on different streams, so that all members
 * run them in one order. The first ones wait: for the communicator, and for connections that NCCL makes. */

#include "backend/nccl/nccl.h"
#include "backend/shared.h"

#define NAP_NS (UINT64_C(100) * 1000)

/* ---- order ---- */

static struct nccl_mark *mark_of(struct nccl_backend *b, uint64_t i)
{
    return &b->marks[i % NCCL_MARKS];
}

static enum tutti_status state_check(const struct nccl_backend *b)
{
    struct tutti_error error;
    return tutti_team_state(b->watched.team, &error) < 0 ? tutti_fail_record(&error) : TUTTI_OK;
}

static bool is_full(const struct nccl_backend *b)
{
    return atomic_load(&b->watched.n_enqueued) - atomic_load(&b->watched.n_over) >= NCCL_MARKS - 1;
}

/* Until one more can be in flight. Time counts while the first one has its turn. */
static enum tutti_status mark_wait(struct nccl_backend *b, uint64_t timeout_ns)
{
    uint64_t before = 0, until = 0;
    while (is_full(b)) {
        const uint64_t over = atomic_load(&b->watched.n_over);
        const bool waits = until == 0 || over != before || !atomic_load(&b->turn_ns);
        if (waits) before = over, until = tutti_deadline_ns(timeout_ns);
        TUTTI_TRY(state_check(b));
        if (tutti_now_ns() >= until)
            return tutti_fail(TUTTI_ERR_TIMEOUT, TUTTI_SAYS_TIMED_OUT ", in which none of %d calls in flight ended",
                              tutti_says_ms(timeout_ns), NCCL_MARKS - 1);
        watch_hurry(&b->watched); /* it asks at once */
        tutti_sleep_ns(NAP_NS);
    }
    return TUTTI_OK;
}

static enum tutti_status mark_open(struct nccl_backend *b, struct nccl_mark *mark)
{
    if (!mark->begun) TUTTI_TRY(b->gpu->ops->event_create(b->gpu, false, &mark->begun));
    return mark->over ? TUTTI_OK : b->gpu->ops->event_create(b->gpu, false, &mark->over);
}

static enum tutti_status order_begin(struct nccl_backend *b, void *stream, uint64_t seq, uint64_t timeout_ns,
                                     uint64_t *capture)
{
    const uint64_t i = atomic_load(&b->watched.n_enqueued);
    struct nccl_mark *mark = mark_of(b, i);
    TUTTI_TRY(tutti_device_capturing(b->gpu, stream, capture));
    if (!*capture) TUTTI_TRY(mark_wait(b, timeout_ns));
    atomic_store(&mark->launch, seq ? seq : watch_log_round(&nccl_own(b)->log));
    atomic_store(&mark->timeout_ns, timeout_ns);
    if (*capture) {
        if (!nccl_made(b))
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "the first call by nccl on a communicator can not be captured: make one before");
        const bool chained = *capture == b->capture && !tutti_device_one_stream(stream, b->capture_stream);
        return chained ? b->gpu->ops->capture_after(b->gpu, stream, b->node) : TUTTI_OK;
    }
    TUTTI_TRY(mark_open(b, mark));
    if (i > 0 && !tutti_device_one_stream(stream, b->stream))
        TUTTI_TRY(b->gpu->ops->stream_wait(b->gpu, stream, mark_of(b, i - 1)->over));
    return b->gpu->ops->event_record(b->gpu, mark->begun, stream);
}

static enum tutti_status order_end(struct nccl_backend *b, void *stream, uint64_t capture)
{
    if (capture) {
        TUTTI_TRY(b->gpu->ops->capture_mark(b->gpu, stream, &b->node));
        b->capture = capture;
        b->capture_stream = stream;
        if (!atomic_exchange(&b->watched.captured, true)) watch_wake(&b->watched);
        return TUTTI_OK;
    }
    struct nccl_mark *mark = mark_of(b, atomic_load(&b->watched.n_enqueued));
    atomic_store(&mark->items, atomic_load(&nccl_own(b)->log.n_items));
    TUTTI_TRY(b->gpu->ops->event_record(b->gpu, mark->over, stream));
    b->stream = stream;
    atomic_fetch_add(&b->watched.n_enqueued, 1);
    watch_wake(&b->watched);
    return TUTTI_OK;
}

/* ---- what is enqueued: a collective, or messages ---- */

struct item {
    const struct tutti_backend_call *call; /* NULL: messages */
    const struct tutti_backend_message *messages;
    size_t n;
};

static int message_run(const struct nccl_backend *b, void *comm, const struct tutti_backend_message *m, void *stream)
{
    if (m->bytes == 0) return NCCL_OK;
    return m->send ? b->library->send(m->buffer, m->bytes, NCCL_INT8, (int)m->peer, comm, stream)
                   : b->library->recv(m->buffer, m->bytes, NCCL_INT8, (int)m->peer, comm, stream);
}

/* One group: messages to oneself, too, which NCCL copies. */
static int messages_run(const struct nccl_backend *b, void *comm, const struct item *item, void *stream)
{
    int result = b->library->group_start();
    if (result != NCCL_OK) return result;
    for (size_t i = 0; i < item->n && result == NCCL_OK; i++) result = message_run(b, comm, &item->messages[i], stream);
    const int ended = b->library->group_end();
    return result == NCCL_OK ? ended : result;
}

static void item_log(struct nccl_backend *b, const struct item *item, uint64_t timeout_ns)
{
    struct watch_log *log = &nccl_own(b)->log;
    const uint64_t launch = watch_log_round(log);
    if (item->call) watch_log_post(log, item->call, 0, timeout_ns);
    for (size_t i = 0; i < item->n; i++) {
        const struct tutti_backend_message *m = &item->messages[i];
        watch_log_message(log, launch, m->peer, m->send, m->bytes, timeout_ns);
    }
}

static enum tutti_status item_run(struct nccl_backend *b, const struct item *item, void *stream)
{
    const char *name = "ncclSend and ncclRecv";
    int result = NCCL_OK;
    void *comm = nccl_enter(b);
    if (comm) result = item->call ? nccl_run(b, comm, item->call, stream, &name) : messages_run(b, comm, item, stream);
    return nccl_leave(b, result, name);
}

/* ---- buffers that NCCL does not take: copies of them stand in, in memory of the stream's order ---- */

/* Of reductions; moves are of bytes. */
static bool is_crooked(const struct tutti_backend_call *call, const void *buffer)
{
    const size_t element = tutti_dtype_bytes(call->info.dtype);
    return tutti_kind_info(call->info.kind)->reduces && (uintptr_t)buffer % (element > 8 ? 8 : element) != 0;
}

static size_t blocks_bytes(const struct nccl_backend *b, const struct tutti_backend_call *call, bool all)
{
    const struct tutti_bind *bind = &call->bind;
    size_t elements = 0;
    for (uint32_t q = 0; q < b->watched.n; q++)
        if (all || q == b->watched.me) elements += bind->counts ? bind->counts[q] : bind->count;
    return elements * tutti_dtype_bytes(call->info.dtype);
}

/* 0: it is taken as it is. In place, all_to_all would overwrite what it has not sent yet. */
static size_t input_aside(const struct nccl_backend *b, const struct tutti_backend_call *call)
{
    const struct tutti_bind *bind = &call->bind;
    const bool swaps = call->info.kind == TUTTI_ALL_TO_ALL && !bind->v && bind->input == bind->output;
    const bool all = call->info.kind == TUTTI_ALL_TO_ALL || call->info.kind == TUTTI_REDUCE_SCATTER;
    return swaps || is_crooked(call, bind->input) ? blocks_bytes(b, call, all) : 0;
}

static size_t output_aside(const struct nccl_backend *b, const struct tutti_backend_call *call)
{
    return call->bind.output && is_crooked(call, call->bind.output) ? blocks_bytes(b, call, false) : 0;
}

static enum tutti_status call_run(struct nccl_backend *b, const struct item *item, void *stream)
{
    const size_t in_bytes = input_aside(b, item->call), out_bytes = output_aside(b, item->call);
    if (in_bytes == 0 && out_bytes == 0) return item_run(b, item, stream);
    struct tutti_backend_call call = *item->call;
    const struct item aside = {.call = &call};
    void *in = NULL, *out = NULL, *theirs = call.bind.output;
    enum tutti_status status = TUTTI_OK, freed = TUTTI_OK;
    if (in_bytes) status = b->gpu->ops->alloc_ordered(b->gpu, in_bytes, stream, &in);
    if (status == TUTTI_OK && in) status = b->gpu->ops->copy(b->gpu, in, call.bind.input, in_bytes, stream);
    if (status == TUTTI_OK && out_bytes) status = b->gpu->ops->alloc_ordered(b->gpu, out_bytes, stream, &out);
    if (in) call.bind.input = in;
    if (out) call.bind.output = out;
    if (status == TUTTI_OK) status = item_run(b, &aside, stream);
    if (status == TUTTI_OK && out) status = b->gpu->ops->copy(b->gpu, theirs, out, out_bytes, stream);
    if (in) freed = b->gpu->ops->free_ordered(b->gpu, in, stream);
    if (out && freed == TUTTI_OK) freed = b->gpu->ops->free_ordered(b->gpu, out, stream);
    return status < 0 ? status : freed;
}

/* Posted first, so that peers which wait for this rank see where it is while NCCL connects. */
static enum tutti_status item_enqueue(struct nccl_backend *b, const struct item *item, void *stream,
                                      uint64_t timeout_ns)
{
    const uint64_t seq = item->call ? item->call->seq : 0;
    const char *what = item->call ? tutti_kind_name(item->call->info.kind) : "messages";
    uint64_t capture;
    enum tutti_status status = order_begin(b, stream, seq, timeout_ns, &capture);
    if (status == TUTTI_ERR_TIMEOUT) return nccl_give_up(b, what, seq); /* peers may have made it */
    if (status < 0) return status;
    item_log(b, item, timeout_ns);
    TUTTI_TRY(nccl_make(b, timeout_ns));
    status = (item->call ? call_run : item_run)(b, item, stream);
    if (status == TUTTI_OK) status = order_end(b, stream, capture);
    return status < 0 ? nccl_give_up(b, what, seq) : TUTTI_OK;
}

static enum tutti_status item_enter(struct nccl_backend *b, const struct item *item, void *stream, uint64_t timeout_ns)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(state_check(b));
    TUTTI_TRY(tutti_device_enter(b->gpu, &scope));
    const enum tutti_status status =
        item_enqueue(b, item, stream, timeout_ns ? timeout_ns : tutti_team_timeout(b->watched.team));
    tutti_device_leave(b->gpu, &scope);
    return status;
}

enum tutti_status nccl_enqueue(struct tutti_backend *backend, const struct tutti_backend_call *call, void *stream)
{
    const struct item item = {.call = call};
    return item_enter(nccl_of(backend), &item, stream, call->info.timeout_ns);
}

/* NCCL refuses a message to oneself that is not received in the same group, and copies what is sent, however much room
 * there is. */
static enum tutti_status own_check(const struct nccl_backend *b, const struct item *item)
{
    struct tutti_own own = {.at = {0}};
    enum tutti_status status;
    while ((status = tutti_own_next(item->messages, item->n, b->watched.me, &own)) == TUTTI_OK) {
    }
    return status == TUTTI_AGAIN ? TUTTI_OK : status;
}

enum tutti_status nccl_messages(struct tutti_backend *backend, const struct tutti_backend_message *messages, size_t n,
                                void *stream, uint64_t timeout_ns)
{
    const struct item item = {.messages = messages, .n = n};
    TUTTI_TRY(own_check(nccl_of(backend), &item));
    return item_enter(nccl_of(backend), &item, stream, timeout_ns);
}
