/* SPDX-License-Identifier: BSD-3-Clause */
/* Point-to-point: the k-th message to a peer meets the k-th that it receives from here, whatever else is in the batch.
 * The k-th messages to and from all peers are round k. A launch has as many rounds as its parameter holds and as have
 * nothing to do with one another in memory; in it no message waits for one of another peer or direction. A round alone
 * is an exchange, which also serves what is received where it is sent from. What one sends to oneself is a copy.
 *
 * Rounds are never torn: of ranks that have their messages in one group each, those of the first round that is not over
 * are under way on both ends, wherever either has cut. */
#include "backend/gpu/gpu_backend.h"

#include "backend/shared.h"

#include <string.h>

/* What of a batch is not in a launch yet. */
struct rest {
    const struct tutti_backend_message *messages;
    size_t n;
    size_t at[2][GPU_MAX_RANKS]; /* where received and sent bytes are, and sent */
};

struct round {
    const struct tutti_backend_message *messages[2 * GPU_MAX_RANKS];
    uint32_t n;
};

/* A launch: the messages that have bytes, as the parts of b->lists. */
struct launch {
    const struct tutti_backend_message *messages[GPU_LISTED];
    uint32_t n, blocks;
    uint64_t seq;
    unsigned char last[2 * GPU_MAX_RANKS]; /* the last entries of a list */
};

/* ---- rounds ---- */

/* False: there was nothing left. */
static bool take_round(const struct gpu_backend *b, struct rest *rest, struct round *out)
{
    out->n = 0;
    for (uint32_t i = 0; i < 2 * b->site.n; i++) {
        const uint32_t q = i / 2;
        const bool sends = i % 2;
        if (q == b->site.me) continue;
        const struct tutti_backend_message *m =
            tutti_message_next(rest->messages, rest->n, q, sends, &rest->at[sends][q]);
        if (m) out->messages[out->n++] = m;
    }
    return out->n > 0;
}

/* Whether one is received where the other one is received or sent from. */
static bool meet(const struct tutti_backend_message *a, const struct tutti_backend_message *b)
{
    const uintptr_t at = (uintptr_t)a->buffer, other = (uintptr_t)b->buffer;
    if (a->bytes == 0 || b->bytes == 0 || (a->send && b->send)) return false;
    return at < other + b->bytes && other < at + a->bytes;
}

/* Whether the round goes along with those of the launch. */
static bool goes_along(const struct launch *launch, const struct round *round)
{
    if (launch->n + round->n >= GPU_LISTED) return false; /* there is no part 0 */
    for (uint32_t i = 0; i < round->n; i++) {
        for (uint32_t k = 0; k < i; k++)
            if (meet(round->messages[k], round->messages[i])) return false;
        for (uint32_t k = 1; k <= launch->n; k++)
            if (meet(launch->messages[k], round->messages[i])) return false;
    }
    return true;
}

static void add_round(struct gpu_backend *b, struct launch *launch, const struct round *round)
{
    struct gpu_lists *lists = &b->lists;
    const struct gpu_layout *layout = &b->site.layout;
    for (uint32_t i = 0; i < round->n; i++) {
        const struct tutti_backend_message *m = round->messages[i];
        const uint32_t list = m->send ? m->peer : GPU_MAX_RANKS + m->peer;
        watch_log_message(gpu_log(b), launch->seq, m->peer, m->send, m->bytes, b->timeout_ns);
        if (m->bytes == 0) continue;
        const uint32_t part = ++launch->n, blocks = gpu_tile_blocks(m->bytes, layout->tile_bytes, layout->n_blocks);
        if (blocks > launch->blocks) launch->blocks = blocks;
        launch->messages[part] = m;
        lists->parts[part] = (struct gpu_part){(uint64_t)(uintptr_t)m->buffer, m->bytes};
        lists->next[part] = 0;
        *(launch->last[list] ? &lists->next[launch->last[list]] : &lists->first[list]) = (uint8_t)part;
        launch->last[list] = (uint8_t)part;
    }
}

/* ---- launches ---- */

/* Parts are told by address: the exchange's buffers begin at 0. */
static enum tutti_status run_round(struct gpu_backend *b, const struct launch *launch, void *stream)
{
    const struct tutti_backend_call call = {.info = {.op = -1, .root = -1}, .seq = launch->seq};
    struct gpu_exchange *x = &b->step.exchange;
    gpu_step_begin(&b->step, GPU_TILES, NULL, NULL);
    for (uint32_t i = 1; i <= launch->n; i++) {
        const struct tutti_backend_message *m = launch->messages[i];
        (m->send ? x->send : x->recv)[m->peer] = b->lists.parts[i];
    }
    gpu_step_tiles(&b->site, &b->step);
    return gpu_step_run(b, &call, stream);
}

static enum tutti_status run_rounds(struct gpu_backend *b, const struct launch *launch, void *stream)
{
    const struct tutti_gpu_launch how = {.kernel = b->messages,
                                         .stream = stream,
                                         .blocks = launch->blocks,
                                         .threads = b->site.tile_threads,
                                         .args_bytes = sizeof(b->lists)};
    if (launch->blocks == 0) return TUTTI_OK;
    b->lists.call.seq = launch->seq;
    b->lists.call.timeout_ns = gpu_timeout_ns(b);
    return b->gpu->ops->gpu->launch(b->gpu, &how, &b->lists);
}

/* The messages are not collectives: their launch's number is the log's. */
static enum tutti_status enqueue_all(struct gpu_backend *b, struct rest *rest, void *stream)
{
    struct round round;
    uint64_t capture;
    TUTTI_TRY(gpu_order_begin(b, stream, &capture));
    TUTTI_TRY(tutti_own_messages(b->gpu, rest->messages, rest->n, b->site.me, stream));
    for (bool more = take_round(b, rest, &round); more;) {
        struct launch launch = {.seq = watch_log_round(gpu_log(b))};
        const bool along = b->messages && goes_along(&launch, &round); /* without that kernel a launch each */
        bool several = false;
        memset(b->lists.first, 0, sizeof(b->lists.first));
        add_round(b, &launch, &round); /* peers may know of it from here on */
        while ((more = take_round(b, rest, &round)) && along && goes_along(&launch, &round)) {
            add_round(b, &launch, &round);
            several = true;
        }
        if ((several ? run_rounds : run_round)(b, &launch, stream) < 0)
            return gpu_give_up_half(b, "messages", 0, stream, capture);
    }
    enum tutti_status status = gpu_order_end(b, stream, capture);
    return status < 0 ? gpu_give_up(b, "messages", 0) : TUTTI_OK;
}

enum tutti_status gpu_messages(struct tutti_backend *backend, const struct tutti_backend_message *messages, size_t n,
                               void *stream, uint64_t timeout_ns)
{
    struct gpu_backend *b = gpu_of(backend);
    struct rest rest = {.messages = messages, .n = n};
    struct tutti_device_scope scope;
    TUTTI_TRY(gpu_state(b));
    if (b->site.n > 1 && !b->site.has[GPU_TILES][GPU_MOVE])
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s has no kernels that move", b->base.ops->name);
    b->timeout_ns = timeout_ns ? timeout_ns : tutti_team_timeout(b->watched.team);
    TUTTI_TRY(tutti_device_enter(b->gpu, &scope));
    enum tutti_status status = enqueue_all(b, &rest, stream);
    tutti_device_leave(b->gpu, &scope);
    return status;
}
