/* SPDX-License-Identifier: BSD-3-Clause */
/* Point-to-point: the k-th message to a peer meets the k-th that it receives from here, whatever else is in the batch,
 * so batches are cut in rounds of at most one message a direction and peer. A round is one exchange, in which no part
 * waits for another; what one sends to oneself is a copy. */
#include "backend/cuda.h"

/* The next message of a kind to or from a peer, from *at on; NULL: there is none. */
static const struct tutti_device_message *next_of(const struct tutti_device_message *messages, size_t n, uint32_t peer,
                                                  bool send, size_t *at)
{
    while (*at < n) {
        const struct tutti_device_message *m = &messages[(*at)++];
        if (m->peer == peer && m->send == send) return m;
    }
    return NULL;
}

static enum tutti_status copy_own(struct cuda_backend *b, const struct tutti_device_message *messages, size_t n,
                                  void *stream)
{
    for (size_t from = 0, to = 0;;) {
        const struct tutti_device_message *s = next_of(messages, n, b->me, true, &from);
        const struct tutti_device_message *r = next_of(messages, n, b->me, false, &to);
        if (!s && !r) return TUTTI_OK;
        if (!s || !r || s->bytes != r->bytes)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u sends itself %zu bytes and receives %zu", b->me,
                              s ? s->bytes : 0, r ? r->bytes : 0);
        if (s->buffer != r->buffer) TUTTI_TRY(tutti_gpu_copy(b->gpu, r->buffer, s->buffer, s->bytes, stream));
    }
}

/* Parts are told by address: the exchange's buffers begin at 0. */
static struct cuda_part part_of(struct cuda_backend *b, uint64_t launch, const struct tutti_device_message *m)
{
    if (!m) return (struct cuda_part){0, 0};
    cuda_log_message(b->logs[b->me], launch, m->peer, m->send, m->bytes, b->timeout_ns);
    return (struct cuda_part){(uint64_t)(uintptr_t)m->buffer, m->bytes};
}

/* False: there was nothing left. */
static bool fill_round(struct cuda_backend *b, const struct tutti_device_message *messages, size_t n,
                       size_t (*at)[CUDA_MAX_RANKS], uint64_t *launch)
{
    struct cuda_exchange *x = &b->step.exchange;
    bool any = false;
    *launch = cuda_log_round(b->logs[b->me]);
    cuda_step_begin(&b->step, CUDA_TILES, NULL, NULL);
    for (uint32_t q = 0; q < b->n; q++) {
        if (q == b->me) continue;
        const struct tutti_device_message *s = next_of(messages, n, q, true, &at[0][q]);
        const struct tutti_device_message *r = next_of(messages, n, q, false, &at[1][q]);
        x->recv[q] = part_of(b, *launch, r);
        x->send[q] = part_of(b, *launch, s);
        any |= s || r;
    }
    cuda_step_tiles(&b->place, &b->step);
    return any;
}

static enum tutti_status enqueue_all(struct cuda_backend *b, const struct tutti_device_message *messages, size_t n,
                                     void *stream)
{
    struct tutti_backend_call call = {.info = {.op = -1, .root = -1}}; /* not a collective: its seq is the round's */
    size_t at[2][CUDA_MAX_RANKS] = {{0}};
    uint64_t capture;
    TUTTI_TRY(cuda_order_begin(b, stream, &capture));
    TUTTI_TRY(copy_own(b, messages, n, stream));
    while (fill_round(b, messages, n, at, &call.seq)) /* of which peers may know by now */
        if (cuda_step_run(b, &call, stream) < 0) return cuda_give_up_half(b, "messages", 0, stream, capture);
    enum tutti_status status = cuda_order_end(b, stream, capture);
    return status < 0 ? cuda_give_up(b, "messages", 0) : TUTTI_OK;
}

enum tutti_status cuda_messages(struct tutti_device_backend *backend, const struct tutti_device_message *messages,
                                size_t n, void *stream, uint64_t timeout_ns)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    struct tutti_gpu_scope scope;
    TUTTI_TRY(cuda_state(b));
    if (b->n > 1 && !b->place.has[CUDA_TILES][CUDA_MOVE])
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "cuda was built without kernels that move");
    b->timeout_ns = timeout_ns ? timeout_ns : tutti_team_timeout(b->team);
    TUTTI_TRY(tutti_gpu_enter(b->gpu, &scope));
    enum tutti_status status = enqueue_all(b, messages, n, stream);
    tutti_gpu_leave(&scope);
    return status;
}
