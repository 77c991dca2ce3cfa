/* SPDX-License-Identifier: BSD-3-Clause */

/* What each kind of collective is in NCCL's words. Reductions need a type and an operation that mean there what they
 * mean here; what only moves travels as bytes. Kinds that NCCL lacks, and unequal blocks, are groups of its calls. */

#include "backend/library/nccl.h"
#include "model/costs.h"

#include <math.h>
#include <string.h>

/* ---- types and operations ---- */

/* Its min and max of floats drop NaN, its avg of integers is another one, and its 8-bit floats saturate. */
#define FLOATS (LIBRARY_OP(TUTTI_SUM) | LIBRARY_OP(TUTTI_PROD) | LIBRARY_OP(TUTTI_AVG) | LIBRARY_OP(TUTTI_PREMUL_SUM))
#define COMPLEX (LIBRARY_OP(TUTTI_SUM) | LIBRARY_OP(TUTTI_AVG))

/* What it reduces, and rightly. */
static const uint32_t reduced[TUTTI_N_DTYPES] = {
    [TUTTI_INT8] = LIBRARY_ORDERED,   [TUTTI_UINT8] = LIBRARY_ORDERED, [TUTTI_INT32] = LIBRARY_ORDERED,
    [TUTTI_UINT32] = LIBRARY_ORDERED, [TUTTI_INT64] = LIBRARY_ORDERED, [TUTTI_UINT64] = LIBRARY_ORDERED,
    [TUTTI_FLOAT16] = FLOATS,         [TUTTI_BFLOAT16] = FLOATS,       [TUTTI_FLOAT32] = FLOATS,
    [TUTTI_FLOAT64] = FLOATS,         [TUTTI_COMPLEX64] = COMPLEX,     [TUTTI_COMPLEX128] = COMPLEX,
};
/* premul_sum's is made for each call. */
static const int ops[TUTTI_N_OPS] = {
    [TUTTI_SUM] = NCCL_SUM, [TUTTI_PROD] = NCCL_PROD, [TUTTI_MIN] = NCCL_MIN,
    [TUTTI_MAX] = NCCL_MAX, [TUTTI_AVG] = NCCL_AVG,
};

/* ---- where blocks are ---- */

struct work {
    const struct nccl_backend *b;
    const struct nccl_library *nccl;
    const struct tutti_bind *bind;
    void *comm, *stream;
    uint32_t n, me, root;
    size_t element;
    const char *in;
    char *out;
    int type, op; /* for reductions */
    size_t scale; /* elements of `type` in one of ours */
    size_t bytes; /* bytes of a block of equal ones */
};
struct block {
    size_t at, bytes; /* from the buffer */
};

/* For a side with blocks by rank. Tables without displacements are packed. */
static struct block block_of(const struct work *w, const size_t *counts, const size_t *displs, uint32_t r)
{
    if (!counts) return (struct block){r * w->bytes, w->bytes};
    size_t at = displs ? displs[r] : 0;
    for (uint32_t q = 0; !displs && q < r; q++) at += counts[q];
    return (struct block){at * w->element, counts[r] * w->element};
}

static struct block block_in_data(const struct work *w, uint32_t r)
{
    return block_of(w, w->bind->counts, w->bind->displs, r);
}

/* ---- messages within a group ---- */

static int send_to(const struct work *w, const char *from, size_t bytes, uint32_t peer)
{
    return bytes ? w->nccl->send(from, bytes, LIBRARY_INT8, (int)peer, w->comm, w->stream) : NCCL_OK;
}

static int recv_from(const struct work *w, char *to, size_t bytes, uint32_t peer)
{
    return bytes ? w->nccl->recv(to, bytes, LIBRARY_INT8, (int)peer, w->comm, w->stream) : NCCL_OK;
}

/* What a rank has for itself. -1: the record says why not. */
static int copy_own(const struct work *w, char *to, const char *from, size_t bytes)
{
    if (to == from || bytes == 0) return NCCL_OK;
    return w->b->l.gpu->ops->copy(w->b->l.gpu, to, from, bytes, w->stream) < 0 ? -1 : NCCL_OK;
}

/* ---- kinds ---- */

static int all_reduce(const struct work *w)
{
    return w->nccl->all_reduce(w->in, w->out, w->bind->count * w->scale, w->type, w->op, w->comm, w->stream);
}

static int reduce(const struct work *w)
{
    return w->nccl->reduce(w->in, w->out, w->bind->count * w->scale, w->type, w->op, (int)w->root, w->comm, w->stream);
}

static int broadcast(const struct work *w)
{
    char *buffer = w->out ? w->out : (char *)(uintptr_t)w->in;
    const char *from = w->me == w->root ? w->in : buffer;
    return w->nccl->broadcast(from, buffer, w->bytes, LIBRARY_INT8, (int)w->root, w->comm, w->stream);
}

/* Unequal blocks: a broadcast of each. */
static int all_gather(const struct work *w)
{
    if (!w->bind->counts) return w->nccl->all_gather(w->in, w->out, w->bytes, LIBRARY_INT8, w->comm, w->stream);
    int result = NCCL_OK;
    for (uint32_t r = 0; r < w->n && result == NCCL_OK; r++) {
        const struct block block = block_in_data(w, r);
        char *to = w->out + block.at;
        if (block.bytes == 0) continue;
        result = w->nccl->broadcast(r == w->me ? w->in : to, to, block.bytes, LIBRARY_INT8, (int)r, w->comm, w->stream);
    }
    return result;
}

/* Unequal blocks: a reduction of each to its rank. */
static int reduce_scatter(const struct work *w)
{
    const size_t *counts = w->bind->counts;
    if (!counts)
        return w->nccl->reduce_scatter(w->in, w->out, w->bind->count * w->scale, w->type, w->op, w->comm, w->stream);
    int result = NCCL_OK;
    size_t at = 0;
    for (uint32_t r = 0; r < w->n && result == NCCL_OK; at += counts[r++]) {
        if (counts[r] == 0) continue;
        result = w->nccl->reduce(w->in + at * w->element, w->out, counts[r] * w->scale, w->type, w->op, (int)r, w->comm,
                                 w->stream);
    }
    return result;
}

static int gather(const struct work *w)
{
    if (w->me != w->root) return send_to(w, w->in, w->bytes, w->root);
    int result = NCCL_OK;
    for (uint32_t r = 0; r < w->n && result == NCCL_OK; r++) {
        const struct block block = block_in_data(w, r);
        result = r == w->me ? copy_own(w, w->out + block.at, w->in, block.bytes)
                            : recv_from(w, w->out + block.at, block.bytes, r);
    }
    return result;
}

static int scatter(const struct work *w)
{
    if (w->me != w->root) return recv_from(w, w->out, w->bytes, w->root);
    int result = NCCL_OK;
    for (uint32_t r = 0; r < w->n && result == NCCL_OK; r++) {
        const struct block block = block_in_data(w, r);
        result = r == w->me ? copy_own(w, w->out, w->in + block.at, block.bytes)
                            : send_to(w, w->in + block.at, block.bytes, r);
    }
    return result;
}

static int all_to_all(const struct work *w)
{
    int result = NCCL_OK;
    for (uint32_t r = 0; r < w->n && result == NCCL_OK; r++) {
        const struct block there = block_of(w, w->bind->in_counts, w->bind->in_displs, r), here = block_in_data(w, r);
        if (r == w->me) {
            result = copy_own(w, w->out + here.at, w->in + there.at, here.bytes);
            continue;
        }
        result = send_to(w, w->in + there.at, there.bytes, r);
        if (result == NCCL_OK) result = recv_from(w, w->out + here.at, here.bytes, r);
    }
    return result;
}

static const struct {
    int (*run)(const struct work *w);
    const char *name;
} kinds[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {all_reduce, "ncclAllReduce"},
    [TUTTI_REDUCE] = {reduce, "ncclReduce"},
    [TUTTI_BROADCAST] = {broadcast, "ncclBroadcast"},
    [TUTTI_ALL_GATHER] = {all_gather, "ncclAllGather"},
    [TUTTI_REDUCE_SCATTER] = {reduce_scatter, "ncclReduceScatter"},
    [TUTTI_GATHER] = {gather, "ncclSend and ncclRecv of gather"},
    [TUTTI_SCATTER] = {scatter, "ncclSend and ncclRecv of scatter"},
    [TUTTI_ALL_TO_ALL] = {all_to_all, "ncclSend and ncclRecv of all_to_all"},
};

/* ---- what is asked ---- */

/* Alone its kernel for what is scaled leaves out the last elements of some counts (onerank.cu, up to 2.28 at least). */
bool nccl_can(const struct tutti_backend_call *call, uint32_t n)
{
    const struct tutti_call_info *info = &call->info;
    if ((uint32_t)info->kind >= TUTTI_N_KINDS || !kinds[info->kind].run || call->method || call->bind.user)
        return false;
    const bool scales = tutti_kind_info(info->kind)->reduces && info->op == TUTTI_PREMUL_SUM;
    return (n > 1 || !scales) && library_reduces(info, reduced[info->dtype]);
}

double nccl_cost_ns(const struct tutti_backend_call *call, uint32_t n)
{
    const struct tutti_call_info *info = &call->info;
    if (call->bind.v) return COST_NCCL_UNEQUAL_NS;
    /* So much passes one link: a block for each other rank; of all_reduce a shard for each, twice. */
    const double others = n - 1., blocks = tutti_kinds[info->kind].block_a_slot ? others
                                           : info->kind == TUTTI_ALL_REDUCE     ? 2 * others / n
                                                                                : 1;
    return library_cost_ns(info, blocks, COST_NCCL_LATENCY_NS, COST_NCCL_BYTES_A_NS);
}

/* ---- running ---- */

/* In a group, so that what is unequal is one thing to wait for; ended even where a call was refused. */
static int run_in_group(const struct work *w, enum tutti_kind kind)
{
    int result = w->nccl->group_start();
    if (result != NCCL_OK) return result;
    result = kinds[kind].run(w);
    const int ended = w->nccl->group_end();
    return result == NCCL_OK ? ended : result;
}

static int run_with_factor(struct work *w, enum tutti_kind kind)
{
    unsigned char factor[16];
    memcpy(factor, w->bind->factor, w->element);
    int result = w->nccl->factor_create(&w->op, factor, w->type, NCCL_SCALAR_IN_HOST, w->comm);
    if (result != NCCL_OK) return result;
    result = run_in_group(w, kind);
    /* Nothing is left of a communicator that was aborted meanwhile, and one that fails goes. */
    if (result != NCCL_OK || !__atomic_load_n(&w->b->comm, __ATOMIC_ACQUIRE)) return result;
    return w->nccl->factor_destroy(w->op, w->comm);
}

/* Enqueues it on comm, all_to_all not in place. A result of NCCL's, *name is its call; -1: the thread's record says
 * what failed. */
static int collective_run(struct nccl_backend *b, void *comm, const struct tutti_backend_call *call, void *stream,
                          const char **name)
{
    const struct tutti_call_info *info = &call->info;
    const size_t element = tutti_dtype_bytes(info->dtype);
    const bool reduces = tutti_kind_info(info->kind)->reduces;
    struct work w = {
        .b = b,
        .nccl = b->library,
        .bind = &call->bind,
        .comm = comm,
        .stream = stream,
        .n = b->l.watched.n,
        .me = b->l.watched.me,
        .root = info->root < 0 ? 0 : (uint32_t)info->root,
        .element = element,
        .in = call->bind.input,
        .out = call->bind.output,
        .type = (int)library_dtypes[info->dtype].type,
        /* Alone all are the same; see nccl_can. */
        .op = !reduces ? 0 : ops[b->l.watched.n == 1 ? TUTTI_SUM : info->op],
        .scale = library_dtypes[info->dtype].elements,
        .bytes = call->bind.count * element,
    };
    *name = kinds[info->kind].name;
    if (reduces && info->op == TUTTI_PREMUL_SUM) return run_with_factor(&w, info->kind);
    return run_in_group(&w, info->kind);
}

static int message_run(const struct nccl_backend *b, void *comm, const struct tutti_backend_message *m, void *stream)
{
    if (m->bytes == 0) return NCCL_OK;
    return m->send ? b->library->send(m->buffer, m->bytes, LIBRARY_INT8, (int)m->peer, comm, stream)
                   : b->library->recv(m->buffer, m->bytes, LIBRARY_INT8, (int)m->peer, comm, stream);
}

/* One group: messages to oneself, too, which NCCL copies. */
static int messages_run(const struct nccl_backend *b, void *comm, const struct library_item *item, void *stream)
{
    int result = b->library->group_start();
    if (result != NCCL_OK) return result;
    for (size_t i = 0; i < item->n && result == NCCL_OK; i++) result = message_run(b, comm, &item->messages[i], stream);
    const int ended = b->library->group_end();
    return result == NCCL_OK ? ended : result;
}

/* ---- what is enqueued ---- */

static enum tutti_status item_run(struct nccl_backend *b, const struct library_item *item, void *stream)
{
    const char *name = "ncclSend and ncclRecv";
    int result = NCCL_OK;
    void *comm = nccl_enter(b);
    if (comm)
        result = item->call ? collective_run(b, comm, item->call, stream, &name) : messages_run(b, comm, item, stream);
    return nccl_leave(b, result, name);
}

/* Buffers that NCCL does not take: copies of them stand in, in memory of the stream's order. */
static enum tutti_status call_run(struct nccl_backend *b, const struct library_item *item, void *stream)
{
    const size_t in_bytes = tutti_aside_input(item->call, b->l.watched.n, b->l.watched.me);
    const size_t out_bytes = tutti_aside_output(item->call, b->l.watched.n, b->l.watched.me);
    if (in_bytes == 0 && out_bytes == 0) return item_run(b, item, stream);
    struct tutti_backend_call call = *item->call;
    const struct library_item aside = {.call = &call};
    void *in = NULL, *out = NULL, *theirs = call.bind.output;
    enum tutti_status status = TUTTI_OK, freed = TUTTI_OK;
    if (in_bytes) status = b->l.gpu->ops->alloc_ordered(b->l.gpu, in_bytes, stream, &in);
    if (status == TUTTI_OK && in) status = b->l.gpu->ops->copy(b->l.gpu, in, call.bind.input, in_bytes, stream);
    if (status == TUTTI_OK && out_bytes) status = b->l.gpu->ops->alloc_ordered(b->l.gpu, out_bytes, stream, &out);
    if (in) call.bind.input = in;
    if (out) call.bind.output = out;
    if (status == TUTTI_OK) status = item_run(b, &aside, stream);
    if (status == TUTTI_OK && out) status = b->l.gpu->ops->copy(b->l.gpu, theirs, out, out_bytes, stream);
    if (in) freed = b->l.gpu->ops->free_ordered(b->l.gpu, in, stream);
    if (out && freed == TUTTI_OK) freed = b->l.gpu->ops->free_ordered(b->l.gpu, out, stream);
    return status < 0 ? status : freed;
}

enum tutti_status nccl_run(struct library *l, const struct library_item *item, void *stream, uint64_t timeout_ns)
{
    (void)timeout_ns; /* the watch keeps it */
    return (item->call ? call_run : item_run)(nccl_of(l), item, stream);
}
