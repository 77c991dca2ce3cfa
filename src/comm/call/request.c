/* SPDX-License-Identifier: BSD-3-Clause */
/* From a checked request to a running call: choose the algorithm, take its schedule from the cache, bind it to the
 * user's buffers, start it in the order of the calls. */
#include "comm/device/device.h"

#include <inttypes.h>
#include <string.h>

#define OP_USER (int)TUTTI_N_OPS /* of signatures: handles differ from rank to rank */

/* v forms whose tables all ranks have. */
static bool table_shared(const struct tutti_request *request)
{
    return request->v && (request->kind == TUTTI_ALL_GATHER || request->kind == TUTTI_REDUCE_SCATTER);
}

/* Bytes of a block, as far as all ranks know them. */
static uint64_t shared_bytes(const struct tutti_request *request)
{
    size_t count = request->v ? 0 : request->count;
    if (table_shared(request))
        for (int32_t r = 0; r < request->comm->size; r++)
            if (request->counts[r] > count) count = request->counts[r];
    return count * tutti_dtype_bytes(request->dtype);
}

void tutti_request_question(const struct tutti_request *request, struct tutti_question *out)
{
    *out = (struct tutti_question){
        .kind = request->kind,
        .bytes = shared_bytes(request),
        .commutative = request->user.function ? request->user.commutes : true,
        .v = request->v,
        .counts_shared = table_shared(request),
        .algorithm = request->options.algorithm,
    };
}

enum tutti_status tutti_request_choose(struct tutti_request *request)
{
    if (request->route != TUTTI_ROUTE_HOST) return tutti_request_choose_device(request);
    if (request->type != TUTTI_REQUEST_COLLECTIVE || request->algorithm || request->on_backend) return TUTTI_OK;
    TUTTI_TRY(tutti_request_choose_backend(request));
    if (request->on_backend) return TUTTI_OK;
    const struct tutti_comm *comm = request->comm;
    struct tutti_question question;
    struct tutti_shape shape = {.size = 0};
    const struct tutti_algorithm *algorithm = NULL;
    const struct tutti_facts *facts = &comm->facts;
    struct tutti_facts plain;
    if (request->internal) {
        plain = comm->facts;
        plain.overrides = NULL;
        plain.reproducible = false;
        facts = &plain;
    }
    tutti_request_question(request, &question);
    if (tutti_choose(facts, &question, &algorithm, &shape) < 0) {
        struct tutti_error why = *tutti_last_error();
        return tutti_request_fail(request, why.status, "%s", why.text);
    }
    shape.slot = (uint32_t)comm->rank;
    shape.root = tutti_kind_info(request->kind)->rooted ? (uint32_t)request->root : 0;
    request->shape = shape;
    request->algorithm = algorithm;
    return TUTTI_OK;
}

enum tutti_status tutti_request_prepare(struct tutti_request *request)
{
    TUTTI_TRY(tutti_request_choose(request));
    if (request->type != TUTTI_REQUEST_COLLECTIVE || request->on_backend || request->route != TUTTI_ROUTE_HOST)
        return TUTTI_OK;
    return tutti_request_seal(request);
}

/* Lanes carry out calls on host memory. */
enum tutti_status tutti_request_seal(struct tutti_request *request)
{
    struct tutti_cache *cache = request->comm->context->cache;
    bool lanes_serve = request->shape.n_levels > 0 && request->route == TUTTI_ROUTE_HOST;
    const struct tutti_lanes *lanes = lanes_serve ? &request->comm->lanes : NULL;
    TUTTI_TRY(tutti_cache_get(cache, request->algorithm, request->kind, &request->shape, lanes, &request->schedule));
    if (!request->schedule->defect) return TUTTI_OK;
    enum tutti_status status = tutti_request_fail(request, TUTTI_ERR_INTERNAL, "%s", request->schedule->defect);
    tutti_request_release(request);
    return status;
}

void tutti_request_release(struct tutti_request *request)
{
    if (request->schedule) tutti_cache_release(request->comm->context->cache, request->schedule);
    request->schedule = NULL;
}

/* ---- binding ---- */

static void bind_buffers(const struct tutti_request *request, struct tutti_bind *bind)
{
    static char
        nothing; /* for NULL, which passes the checks only where no byte is touched: here it means another thing */
    int32_t rank = request->comm->rank;
    bool here = request->root == rank;
    bind->input = request->send ? request->send : &nothing;
    bind->output = request->recv ? request->recv : &nothing;
    switch (request->kind) {
    case TUTTI_BROADCAST:
        bind->input = here ? bind->output : NULL;
        break;
    case TUTTI_BARRIER:
        bind->input = bind->output = NULL;
        break;
    case TUTTI_REDUCE:
    case TUTTI_GATHER:
        if (!here) bind->output = NULL;
        break;
    case TUTTI_SCATTER:
        if (!here) bind->input = NULL;
        break;
    case TUTTI_EXSCAN:
        if (rank == 0) bind->output = NULL;
        break;
    default:
        break;
    }
}

/* How many ranks contribute to this rank's result, for avg. */
static uint32_t contributors(const struct tutti_request *request)
{
    uint32_t rank = (uint32_t)request->comm->rank;
    if (request->kind == TUTTI_SCAN) return rank + 1;
    if (request->kind == TUTTI_EXSCAN) return rank ? rank : 1; /* rank 0 has no result */
    return (uint32_t)request->comm->size;
}

static void bind_op(const struct tutti_request *request, struct tutti_bind *bind)
{
    if (!tutti_kind_info(request->kind)->reduces) return;
    if (request->user.function) {
        bind->user = request->user.function;
        bind->user_arg = request->user.arg;
        return;
    }
    enum tutti_op op = (enum tutti_op)request->op;
    bind->reduce = tutti_reduce_find(request->dtype, op, request->comm->context->config.text[TUTTI_OPT_simd]);
    if (op == TUTTI_AVG) {
        bind->divide = tutti_divide_find(request->dtype);
        bind->divisor = contributors(request);
    }
    if (op == TUTTI_PREMUL_SUM) {
        bind->scale = tutti_scale_find(request->dtype);
        bind->factor = request->factor;
    }
}

static void bind_tables(const struct tutti_request *request, struct tutti_bind *bind)
{
    bind->v = request->v;
    bind->count = request->count;
    bind->counts = request->counts;
    bind->displs = request->displs;
    bind->in_counts = request->in_counts;
    bind->in_displs = request->in_displs;
}

/* Of the whole shared table: counts, not displacements, which may differ. */
static uint64_t table_hash(const struct tutti_request *request)
{
    return tutti_hash64(request->counts, (size_t)request->comm->size * sizeof(size_t), 0);
}

void tutti_request_bind(const struct tutti_request *request, struct tutti_bind *bind)
{
    bind_buffers(request, bind);
    bind_op(request, bind);
    bind_tables(request, bind);
}

void tutti_request_info(const struct tutti_request *request, struct tutti_call_info *out)
{
    const struct tutti_kind_info *kind = tutti_kind_info(request->kind);
    int op = !kind->reduces ? -1 : request->user.function ? OP_USER : request->op;
    struct tutti_call_info info = {
        .kind = request->kind,
        .dtype = request->dtype,
        .op = op,
        .root = kind->rooted ? request->root : -1,
        .count = table_shared(request) ? table_hash(request) | TUTTI_COUNT_UNEQUAL
                 : request->v          ? TUTTI_COUNT_UNEQUAL
                                       : request->count,
        .timeout_ns = request->options.timeout_ns ? request->options.timeout_ns : request->comm->timeout_ns,
        .tag = request->options.tag ? request->options.tag
               : request->internal  ? request->name
                                    : NULL,
    };
    /* A split does not match a dup, nor a user's own call of the same kind. */
    uint64_t purpose = request->internal ? tutti_hash64(request->name, strlen(request->name), 0) : 0;
    uint64_t schedule = request->schedule ? request->schedule->hash : 0;
    bool ordered = request->user.function && !request->user.commutes;
    info.signature = tutti_sign(&info, request->v, ordered, schedule, purpose);
    *out = info;
}

/* ---- starting ---- */

static enum tutti_status start_collective(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    struct tutti_comm *comm = request->comm;
    struct tutti_bind bind = {
        .schedule = request->schedule, .cache = comm->context->cache, .dtype = request->dtype, .divisor = 1};
    struct tutti_call_info info;
    if (request->on_backend) return tutti_request_start_backend(request, false, helper, work);
    tutti_request_bind(request, &bind);
    tutti_request_info(request, &info);
    request->schedule = NULL; /* the engine's from here on */
    tutti_comm_turn_take(comm);
    enum tutti_status status = tutti_engine_start(comm->team, &bind, &info, helper, work);
    if (status >= 0) atomic_fetch_add(&comm->sequence, 1);
    tutti_comm_turn_give(comm);
    if (status >= 0)
        tutti_log(TUTTI_LOG_TRACE, "%s%s%s #%" PRIu64 " on communicator %016" PRIx64 ": %s, %zu x %s", request->name,
                  info.tag ? " " : "", info.tag ? info.tag : "", tutti_work_sequence(*work), comm->id,
                  request->algorithm->name, request->count, tutti_dtype_name(request->dtype));
    return status;
}

static enum tutti_status start_send(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    size_t bytes = request->count * tutti_dtype_bytes(request->dtype);
    return tutti_engine_send(request->comm->team, request->send, bytes, (uint32_t)request->dest, request->send_tag,
                             request->options.timeout_ns ? request->options.timeout_ns : request->comm->timeout_ns,
                             helper, work);
}

static enum tutti_status start_recv(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    size_t bytes = request->recv_count * tutti_dtype_bytes(request->dtype);
    return tutti_engine_recv(request->comm->team, request->recv, bytes, request->source, request->recv_tag,
                             request->options.timeout_ns ? request->options.timeout_ns : request->comm->timeout_ns,
                             request->message, helper, work);
}

void tutti_request_give_up(const struct tutti_request *request, struct tutti_work **started, size_t n)
{
    struct tutti_error error = *tutti_last_error();
    struct tutti_error told;
    tutti_error_set(&told, error.status, "%s on rank %d was started in part only: %.300s", request->name,
                    (int)request->comm->rank, error.text);
    tutti_team_fail(request->comm->team, &told, true);
    for (size_t i = 0; i < n; i++) tutti_work_finish(started[i]);
    tutti_fail_record(&error);
}

static enum tutti_status start_sendrecv(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    struct tutti_work *parts[2];
    TUTTI_TRY(start_recv(request, helper, &parts[0]));
    size_t n = 1;
    enum tutti_status status = start_send(request, helper, &parts[1]);
    if (status >= 0) {
        n = 2;
        status = tutti_work_join(request->comm->context->engine, parts, 2, work);
    }
    if (status < 0) tutti_request_give_up(request, parts, n);
    return status;
}

enum tutti_status tutti_request_start(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    static enum tutti_status (*const starts[])(struct tutti_request *, bool, struct tutti_work **) = {
        [TUTTI_REQUEST_COLLECTIVE] = start_collective,
        [TUTTI_REQUEST_SEND] = start_send,
        [TUTTI_REQUEST_RECV] = start_recv,
        [TUTTI_REQUEST_SENDRECV] = start_sendrecv,
    };
    TUTTI_TRY(tutti_device_before(request));
    return starts[request->type](request, helper, work);
}

/* ---- requests that outlive their call ---- */

enum tutti_status tutti_request_own(struct tutti_request *request)
{
    const size_t **tables[] = {&request->counts, &request->displs, &request->in_counts, &request->in_displs};
    size_t n = (size_t)request->comm->size, used = 0;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(tables); i++) used += *tables[i] != NULL;
    if (used == 0) return TUTTI_OK;
    size_t *copy = tutti_alloc_array(used * n, sizeof(*copy));
    if (!copy) return tutti_request_fail(request, TUTTI_ERR_MEMORY, "out of memory for the tables of the call");
    request->tables = copy;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(tables); i++) {
        if (!*tables[i]) continue;
        memcpy(copy, *tables[i], n * sizeof(*copy));
        *tables[i] = copy;
        copy += n;
    }
    return TUTTI_OK;
}

void tutti_request_disown(struct tutti_request *request)
{
    tutti_free(request->tables);
    request->tables = NULL;
}
