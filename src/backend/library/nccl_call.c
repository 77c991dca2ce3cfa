/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls: NCCL's, with events around them, and tied together where they are on different streams, so that all members
 * run them in one order. The first ones wait: for the communicator, and for connections that NCCL makes. */

#include "backend/library/nccl.h"
#include "backend/shared.h"

/* ---- order ---- */

static enum tutti_status order_begin(struct nccl_backend *b, void *stream, uint64_t seq, uint64_t timeout_ns,
                                     uint64_t *capture)
{
    TUTTI_TRY(tutti_device_capturing(b->gpu, stream, capture));
    if (!*capture) TUTTI_TRY(watch_marks_wait(&b->marks, timeout_ns));
    watch_marks_next(&b->marks, seq, timeout_ns);
    if (!*capture) return watch_marks_begin(&b->marks, stream);
    if (!nccl_made(b))
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "the first call by nccl on a communicator can not be captured: make one before");
    const bool chained = *capture == b->capture && !tutti_device_one_stream(b->gpu, stream, b->capture_stream);
    return chained ? b->gpu->ops->capture_after(b->gpu, stream, b->node) : TUTTI_OK;
}

static enum tutti_status order_end(struct nccl_backend *b, void *stream, uint64_t capture)
{
    if (!capture) return watch_marks_end(&b->marks, stream);
    TUTTI_TRY(b->gpu->ops->capture_mark(b->gpu, stream, &b->node));
    b->capture = capture;
    b->capture_stream = stream;
    if (!atomic_exchange(&b->watched.captured, true)) watch_wake(&b->watched);
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
    if (item->call) watch_log_post(&nccl_own(b)->log, item->call, 0, timeout_ns);
    watch_marks_post(&b->marks, item->messages, item->n, timeout_ns);
}

static enum tutti_status item_run(struct nccl_backend *b, const struct item *item, void *stream)
{
    const char *name = "ncclSend and ncclRecv";
    int result = NCCL_OK;
    void *comm = nccl_enter(b);
    if (comm) result = item->call ? nccl_run(b, comm, item->call, stream, &name) : messages_run(b, comm, item, stream);
    return nccl_leave(b, result, name);
}

/* Buffers that NCCL does not take: copies of them stand in, in memory of the stream's order. */
static enum tutti_status call_run(struct nccl_backend *b, const struct item *item, void *stream)
{
    const size_t in_bytes = tutti_aside_input(item->call, b->watched.n, b->watched.me);
    const size_t out_bytes = tutti_aside_output(item->call, b->watched.n, b->watched.me);
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
    TUTTI_TRY(watch_state(&b->watched));
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

enum tutti_status nccl_messages(struct tutti_backend *backend, const struct tutti_backend_message *messages, size_t n,
                                void *stream, uint64_t timeout_ns)
{
    const struct item item = {.messages = messages, .n = n};
    /* NCCL refuses a message to oneself that is not received in the same group, and copies what is sent, however much
     * room there is. */
    TUTTI_TRY(tutti_own_messages(NULL, messages, n, nccl_of(backend)->watched.me, NULL));
    return item_enter(nccl_of(backend), &item, stream, timeout_ns);
}
