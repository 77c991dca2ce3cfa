/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives and messages. A call is checked, then kept for its group or started; NCCL looks at no pointer. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

/* ---- types and operations ---- */

static const enum tutti_dtype types[] = {
    TUTTI_INT8,    TUTTI_UINT8,   TUTTI_INT32,   TUTTI_UINT32,   TUTTI_INT64,         TUTTI_UINT64,
    TUTTI_FLOAT16, TUTTI_FLOAT32, TUTTI_FLOAT64, TUTTI_BFLOAT16, TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2,
};
static const enum tutti_op ops[NCCL_N_OPS] = {
    [NCCL_SUM] = TUTTI_SUM, [NCCL_PROD] = TUTTI_PROD, [NCCL_MAX] = TUTTI_MAX,
    [NCCL_MIN] = TUTTI_MIN, [NCCL_AVG] = TUTTI_AVG,
};

int nccl_type_check(const char *call, int type, enum tutti_dtype *out)
{
    if ((unsigned)type >= NCCL_COUNT(types))
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: datatype %d is no type", call, type);
    *out = types[type];
    return NCCL_SUCCESS;
}

/* A handle's factor goes into the call, so that the handle may be destroyed before the group ends. */
static int op_check(const char *name, struct nccl_call *call, int type, int op)
{
    struct ncclComm *comm = call->comm;
    if (op >= 0 && op < NCCL_N_OPS) {
        call->op = ops[op];
        return NCCL_SUCCESS;
    }
    call->op = TUTTI_PREMUL_SUM;
    call->factor.alive = false;
    pthread_mutex_lock(&comm->lock);
    if (op >= NCCL_N_OPS && op - NCCL_N_OPS < comm->n_factors) call->factor = comm->factors[op - NCCL_N_OPS];
    pthread_mutex_unlock(&comm->lock);
    if (!call->factor.alive)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: op %d is no operation", name, comm->rank, op);
    if (call->factor.type != type)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: op %d is of datatype %d and not of %d", name,
                         comm->rank, op, call->factor.type, type);
    return NCCL_SUCCESS;
}

NCCL_TWIN(RedOpCreatePreMulSum);
int pncclRedOpCreatePreMulSum(int *op, void *factor, int type, int residence, struct ncclComm *comm)
{
    static const char name[] = "ncclRedOpCreatePreMulSum";
    enum tutti_dtype dtype = TUTTI_INT8;
    NCCL_TRY(nccl_comm_ready(name, comm));
    NCCL_TRY(nccl_type_check(name, type, &dtype));
    if (!op || !factor || residence < NCCL_SCALAR_DEVICE || residence > NCCL_SCALAR_HOST)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: %s", name,
                         !op       ? "op is NULL"
                         : !factor ? "scalar is NULL"
                                   : "there is no such residence");
    struct nccl_factor made = {.alive = true, .type = type};
    if (residence == NCCL_SCALAR_DEVICE && comm->family->accelerator)
        made.at = factor;
    else
        memcpy(made.value, factor, tutti_dtype_bytes(dtype));
    int result = NCCL_SUCCESS, i = 0;
    pthread_mutex_lock(&comm->lock);
    while (i < comm->n_factors && comm->factors[i].alive) i++;
    if (i == comm->n_factors) {
        struct nccl_factor *more = realloc(comm->factors, (size_t)(i + 1) * sizeof *more);
        if (more) comm->factors = more, comm->n_factors++;
        if (!more) result = nccl_fail(NCCL_SYSTEM_ERROR, "%s: out of memory", name);
    }
    if (result == NCCL_SUCCESS) comm->factors[i] = made, *op = NCCL_N_OPS + i;
    pthread_mutex_unlock(&comm->lock);
    return result;
}

NCCL_TWIN(RedOpDestroy);
int pncclRedOpDestroy(int op, struct ncclComm *comm)
{
    NCCL_TRY(nccl_comm_check("ncclRedOpDestroy", comm));
    const int i = op - NCCL_N_OPS;
    pthread_mutex_lock(&comm->lock);
    const bool alive = op >= NCCL_N_OPS && i < comm->n_factors && comm->factors[i].alive;
    if (alive) comm->factors[i].alive = false;
    pthread_mutex_unlock(&comm->lock);
    if (alive) return NCCL_SUCCESS;
    return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclRedOpDestroy on rank %d: op %d is %s", comm->rank, op,
                     op >= 0 && op < NCCL_N_OPS ? "built in" : "no operation");
}

/* ---- starting: one function a kind. None waits on a device ---- */

static enum tutti_status start_all_reduce(const struct nccl_call *c, const struct tutti_call_options *options)
{
    return tutti_all_reduce(c->send, c->recv, c->count, c->type, c->op, nccl_tutti(c->comm), options, NULL);
}

static enum tutti_status start_reduce(const struct nccl_call *c, const struct tutti_call_options *options)
{
    return tutti_reduce(c->send, c->recv, c->count, c->type, c->op, c->peer, nccl_tutti(c->comm), options, NULL);
}

/* ---- tutti's broadcast has one buffer: a root with two copies from one to the other, beside the call if that takes
 * long, since both only read what is sent. In windows the call has to be where the others have theirs ---- */

#define BESIDE_BYTES ((size_t)8 << 20)

static bool has_window(const struct nccl_call *c)
{
    bool found = false;
    pthread_mutex_lock(&c->comm->lock);
    for (const struct ncclWindow *w = c->comm->windows; w && !found; w = w->next)
        found =
            (uintptr_t)c->recv - (uintptr_t)w->base < w->bytes || (uintptr_t)c->send - (uintptr_t)w->base < w->bytes;
    pthread_mutex_unlock(&c->comm->lock);
    return found;
}

/* The stream of a communicator beside the caller's, and what ties the two. */
static enum tutti_status beside_open(struct ncclComm *comm)
{
    struct tutti_accelerator *accelerator = comm->family->accelerator;
    struct nccl_beside *beside = &comm->beside;
    enum tutti_status status = TUTTI_OK;
    pthread_mutex_lock(&comm->lock);
    if (!beside->begin) status = tutti_accelerator_event_create(accelerator, &beside->begin);
    if (status >= 0 && !beside->end) status = tutti_accelerator_event_create(accelerator, &beside->end);
    if (status >= 0 && !beside->stream) status = tutti_accelerator_stream_create(accelerator, &beside->stream);
    pthread_mutex_unlock(&comm->lock);
    return status;
}

static enum tutti_status beside_begin(const struct nccl_call *c)
{
    const enum tutti_status status = beside_open(c->comm);
    if (status < 0) return status;
    return tutti_accelerator_event_record(c->comm->family->accelerator, c->comm->beside.begin, c->stream);
}

/* After the call was enqueued: its few blocks have their place before the copy takes what is left of the device. */
static enum tutti_status copy_beside(const struct nccl_call *c, size_t bytes)
{
    struct tutti_accelerator *accelerator = c->comm->family->accelerator;
    const struct nccl_beside *beside = &c->comm->beside;
    enum tutti_status status = tutti_accelerator_stream_wait(accelerator, beside->stream, beside->begin);
    if (status >= 0) status = tutti_accelerator_copy(accelerator, c->recv, c->send, bytes, beside->stream);
    if (status >= 0) status = tutti_accelerator_event_record(accelerator, beside->end, beside->stream);
    return status < 0 ? status : tutti_accelerator_stream_wait(accelerator, c->stream, beside->end);
}

static enum tutti_status start_broadcast(const struct nccl_call *c, const struct tutti_call_options *options)
{
    struct tutti_accelerator *accelerator = c->comm->family->accelerator;
    const size_t bytes = c->count * tutti_dtype_bytes(c->type);
    const bool copies = c->peer == c->comm->rank && c->send != c->recv, here = !copies || has_window(c);
    const bool beside = accelerator && !here && bytes >= BESIDE_BYTES;
    enum tutti_status status = TUTTI_OK;
    if (copies && !accelerator)
        memmove(c->recv, c->send, bytes);
    else if (copies && !beside)
        status = tutti_accelerator_copy(accelerator, c->recv, c->send, bytes, c->stream);
    else if (beside)
        status = beside_begin(c);
    if (status < 0) return status;
    void *buffer = here ? c->recv : (void *)(uintptr_t)c->send;
    status = tutti_broadcast(buffer, c->count, c->type, c->peer, nccl_tutti(c->comm), options, NULL);
    return status < 0 || !beside ? status : copy_beside(c, bytes);
}

static enum tutti_status start_all_gather(const struct nccl_call *c, const struct tutti_call_options *options)
{
    return tutti_all_gather(c->send, c->recv, c->count, c->type, nccl_tutti(c->comm), options, NULL);
}

static enum tutti_status start_reduce_scatter(const struct nccl_call *c, const struct tutti_call_options *options)
{
    return tutti_reduce_scatter(c->send, c->recv, c->count, c->type, c->op, nccl_tutti(c->comm), options, NULL);
}

static enum tutti_status start_all_to_all(const struct nccl_call *c, const struct tutti_call_options *options)
{
    return tutti_all_to_all(c->send, c->recv, c->count, c->type, nccl_tutti(c->comm), options, NULL);
}

static enum tutti_status start_gather(const struct nccl_call *c, const struct tutti_call_options *options)
{
    return tutti_gather(c->send, c->recv, c->count, c->type, c->peer, nccl_tutti(c->comm), options, NULL);
}

static enum tutti_status start_scatter(const struct nccl_call *c, const struct tutti_call_options *options)
{
    return tutti_scatter(c->send, c->recv, c->count, c->type, c->peer, nccl_tutti(c->comm), options, NULL);
}

static enum tutti_status start_send(const struct nccl_call *c, const struct tutti_call_options *options)
{
    return tutti_send(c->send, c->count, c->type, c->peer, 0, nccl_tutti(c->comm), options, NULL);
}

static enum tutti_status start_recv(const struct nccl_call *c, const struct tutti_call_options *options)
{
    return tutti_recv(c->recv, c->count, c->type, c->peer, 0, nccl_tutti(c->comm), options, NULL, NULL);
}

enum { SINGLE_MOST = 16 };

static enum tutti_status start(const struct nccl_call *c)
{
    struct tutti_call_options options = {.size = sizeof options,
                                         .premul_value = 1,
                                         .stream = c->stream,
                                         .ordered = c->comm->family->accelerator,
                                         .overlap = c->comm->settings.efficient};
    if (c->op == TUTTI_PREMUL_SUM) options.premul = c->factor.at ? c->factor.at : c->factor.value;
    return c->start(c, &options);
}

static int group_start(const struct nccl_call *calls, size_t n)
{
    enum tutti_status status = tutti_group_start();
    for (size_t i = 0; i < n && status >= 0; i++) status = start(&calls[i]);
    /* The record of a call that was refused before it came into the group is lost by the end. */
    const int result = status < 0 ? nccl_told(status) : NCCL_SUCCESS;
    status = tutti_group_end(NULL);
    return result != NCCL_SUCCESS ? result : nccl_told(status);
}

/* One collective for each of a few communicators on devices, as by a thread that has several ranks: each is a launch of
 * its own, which nothing waits for, so a group would gain nothing. By their ids, in which all ranks agree. */
static bool order_single(const struct nccl_call *calls, size_t n, const struct nccl_call *out[SINGLE_MOST])
{
    if (n > SINGLE_MOST) return false;
    for (size_t i = 0; i < n; i++) {
        const struct nccl_call *call = &calls[i];
        const uint64_t id = tutti_comm_id(nccl_tutti(call->comm));
        size_t at = i;
        if (!call->comm->family->accelerator || call->start == start_send || call->start == start_recv) return false;
        for (size_t k = 0; k < i; k++)
            if (out[k]->comm == call->comm) return false;
        for (; at > 0 && tutti_comm_id(nccl_tutti(out[at - 1]->comm)) > id; at--) out[at] = out[at - 1];
        out[at] = call;
    }
    return true;
}

int nccl_calls_start(const struct nccl_call *calls, size_t n)
{
    const struct nccl_call *single[SINGLE_MOST];
    if (n == 1) return nccl_told(start(calls));
    if (!order_single(calls, n, single)) return group_start(calls, n);
    enum tutti_status status = TUTTI_OK;
    for (size_t i = 0; i < n && status >= 0; i++) status = start(single[i]);
    return nccl_told(status);
}

/* A rough figure: microseconds of latency, and bytes at the speed of a link. */
float nccl_calls_estimate(const struct nccl_call *calls, size_t n)
{
    const float latency = 8, bytes_a_us = 200e3F;
    float us = 0;
    for (size_t i = 0; i < n; i++)
        us += latency + (float)calls[i].count * (float)tutti_dtype_bytes(calls[i].type) / bytes_a_us;
    return us;
}

/* ---- the calls ---- */

/* What all have: result is not SUCCESS where the call ends here. */
static int check(const char *name, struct nccl_call *call, int type)
{
    NCCL_TRY(nccl_comm_ready(name, call->comm));
    if (call->comm->suspended)
        return nccl_fail(NCCL_INVALID_USAGE, "%s on rank %d: the communicator is suspended", name, call->comm->rank);
    return nccl_type_check(name, type, &call->type);
}

static int check_peer(const char *name, const char *what, const struct nccl_call *call)
{
    if (call->peer >= 0 && call->peer < call->comm->n_ranks) return NCCL_SUCCESS;
    return nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: %s is %d but the ranks are 0 to %d", name, call->comm->rank,
                     what, call->peer, call->comm->n_ranks - 1);
}

/* checked: what its checks found. */
static int submit(const struct nccl_call *call, int checked)
{
    int result;
    if (checked != NCCL_SUCCESS) return nccl_group_note(checked);
    if (call->count == 0) return NCCL_SUCCESS; /* on all ranks alike, and on no stream */
    if (nccl_group_takes(call, &result)) return result;
    return nccl_calls_start(call, 1);
}

static int moves(const char *name, struct nccl_call *call, int type)
{
    return submit(call, check(name, call, type));
}

static int reduces(const char *name, struct nccl_call *call, int type, int op)
{
    const int result = check(name, call, type);
    return submit(call, result == NCCL_SUCCESS ? op_check(name, call, type, op) : result);
}

static int goes_to(const char *name, const char *what, struct nccl_call *call, int type)
{
    const int result = check(name, call, type);
    return submit(call, result == NCCL_SUCCESS ? check_peer(name, what, call) : result);
}

#define CALL(function, ...)                                                                                            \
    struct nccl_call call = {.start = function, .comm = comm, .count = count, .stream = stream, __VA_ARGS__}

NCCL_TWIN(AllReduce);
int pncclAllReduce(const void *send, void *recv, size_t count, int type, int op, struct ncclComm *comm, void *stream)
{
    CALL(start_all_reduce, .send = send, .recv = recv);
    return reduces("ncclAllReduce", &call, type, op);
}

NCCL_TWIN(Reduce);
int pncclReduce(const void *send, void *recv, size_t count, int type, int op, int root, struct ncclComm *comm,
                void *stream)
{
    CALL(start_reduce, .send = send, .recv = recv, .peer = root);
    int result = check("ncclReduce", &call, type);
    if (result == NCCL_SUCCESS) result = check_peer("ncclReduce", "root", &call);
    return submit(&call, result == NCCL_SUCCESS ? op_check("ncclReduce", &call, type, op) : result);
}

NCCL_TWIN(Broadcast);
int pncclBroadcast(const void *send, void *recv, size_t count, int type, int root, struct ncclComm *comm, void *stream)
{
    CALL(start_broadcast, .send = send, .recv = recv, .peer = root);
    return goes_to("ncclBroadcast", "root", &call, type);
}

NCCL_TWIN(Bcast);
int pncclBcast(void *buffer, size_t count, int type, int root, struct ncclComm *comm, void *stream)
{
    CALL(start_broadcast, .send = buffer, .recv = buffer, .peer = root);
    return goes_to("ncclBcast", "root", &call, type);
}

NCCL_TWIN(AllGather);
int pncclAllGather(const void *send, void *recv, size_t count, int type, struct ncclComm *comm, void *stream)
{
    CALL(start_all_gather, .send = send, .recv = recv);
    return moves("ncclAllGather", &call, type);
}

NCCL_TWIN(ReduceScatter);
int pncclReduceScatter(const void *send, void *recv, size_t count, int type, int op, struct ncclComm *comm,
                       void *stream)
{
    CALL(start_reduce_scatter, .send = send, .recv = recv);
    return reduces("ncclReduceScatter", &call, type, op);
}

NCCL_TWIN(AlltoAll);
int pncclAlltoAll(const void *send, void *recv, size_t count, int type, struct ncclComm *comm, void *stream)
{
    CALL(start_all_to_all, .send = send, .recv = recv);
    return moves("ncclAlltoAll", &call, type);
}

NCCL_TWIN(Gather);
int pncclGather(const void *send, void *recv, size_t count, int type, int root, struct ncclComm *comm, void *stream)
{
    CALL(start_gather, .send = send, .recv = recv, .peer = root);
    return goes_to("ncclGather", "root", &call, type);
}

NCCL_TWIN(Scatter);
int pncclScatter(const void *send, void *recv, size_t count, int type, int root, struct ncclComm *comm, void *stream)
{
    CALL(start_scatter, .send = send, .recv = recv, .peer = root);
    return goes_to("ncclScatter", "root", &call, type);
}

NCCL_TWIN(Send);
int pncclSend(const void *buffer, size_t count, int type, int peer, struct ncclComm *comm, void *stream)
{
    CALL(start_send, .send = buffer, .peer = peer);
    return goes_to("ncclSend", "peer", &call, type);
}

NCCL_TWIN(Recv);
int pncclRecv(void *buffer, size_t count, int type, int peer, struct ncclComm *comm, void *stream)
{
    CALL(start_recv, .recv = buffer, .peer = peer);
    return goes_to("ncclRecv", "peer", &call, type);
}
