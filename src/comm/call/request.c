/* SPDX-License-Identifier: BSD-3-Clause */
/* What a checked request is for those who carry it out: the question which algorithm, where its memory is, what all
 * ranks must agree on. */
#include "backend/backend.h"
#include "comm/call/call.h"

#include <string.h>

#define OP_USER (int)TUTTI_N_OPS /* in signatures: handles differ from rank to rank */

static bool table_shared(const struct tutti_request *request)
{
    return request->v && tutti_kind_info(request->kind)->tables == TUTTI_SHARED_TABLE;
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

uint64_t tutti_request_timeout(const struct tutti_request *request)
{
    return request->options.timeout_ns ? request->options.timeout_ns : atomic_load(&request->comm->timeout_ns);
}

/* Stands in for a NULL buffer of zero bytes, as NULL in a bind means "no buffer here". */
static char nothing;

static void bind_op(const struct tutti_request *request, struct tutti_bind *bind)
{
    if (request->user.function) {
        bind->user = request->user.function;
        bind->user_arg = request->user.arg;
        return;
    }
    enum tutti_op op = (enum tutti_op)request->op;
    bind->reduce = tutti_reduce_find(request->dtype, op, request->comm->context->config.text[TUTTI_OPT_simd]);
    if (op == TUTTI_AVG) {
        bind->divide = tutti_divide_find(request->dtype);
        bind->divisor =
            tutti_kind_contributors(request->kind, (uint32_t)request->comm->rank, (uint32_t)request->comm->size);
    }
    if (op == TUTTI_PREMUL_SUM) {
        bind->scale = tutti_scale_find(request->dtype);
        bind->factor = request->factor;
    }
}

void tutti_request_bind(const struct tutti_request *request, struct tutti_bind *bind)
{
    const struct tutti_kind_info *kind = tutti_kind_info(request->kind);
    uint32_t rank = (uint32_t)request->comm->rank, root = (uint32_t)request->root;
    if (tutti_side_blocks(kind->send, rank, root, 1)) bind->input = request->send ? request->send : &nothing;
    if (tutti_side_blocks(kind->recv, rank, root, 1)) bind->output = request->recv ? request->recv : &nothing;
    if (kind->reduces) bind_op(request, bind);
    bind->v = request->v;
    bind->count = request->count;
    bind->counts = request->counts;
    bind->displs = request->displs;
    bind->in_counts = request->in_counts;
    bind->in_displs = request->in_displs;
    bind->gate = request->gate;
}

/* Takes from a shared table the counts, not the displacements, which may differ. */
static uint64_t signed_count(const struct tutti_request *request)
{
    if (!request->v) return request->count;
    if (!table_shared(request)) return TUTTI_COUNT_UNEQUAL;
    return tutti_hash64(request->counts, (size_t)request->comm->size * sizeof(size_t), 0) | TUTTI_COUNT_UNEQUAL;
}

#define BY_LIBRARY UINT64_C(0x6c696272617279) /* a rank that goes another way calls something else */

void tutti_request_info(const struct tutti_request *request, struct tutti_call_info *out)
{
    const struct tutti_kind_info *kind = tutti_kind_info(request->kind);
    *out = (struct tutti_call_info){
        .kind = request->kind,
        .dtype = request->dtype,
        .op = !kind->reduces           ? -1
              : request->user.function ? OP_USER
                                       : request->op,
        .root = kind->rooted ? request->root : -1,
        .count = signed_count(request),
        .timeout_ns = tutti_request_timeout(request),
        .label = request->options.label,
    };
    bool ordered = request->user.function && !request->user.commutes;
    const struct tutti_backend *backend = request->route.backend;
    const uint64_t way = request->schedule                     ? request->schedule->hash
                         : backend && backend->ops->is_library ? BY_LIBRARY
                                                               : 0;
    out->signature = tutti_sign(out, request->v, ordered, way, request->purpose);
}

void tutti_request_call(const struct tutti_request *request, struct tutti_backend_call *call)
{
    const struct tutti_backend *backend = request->route.backend ? request->route.backend : request->comm->backend;
    call->bind = (struct tutti_bind){.dtype = request->dtype, .divisor = 1};
    call->commutative = !request->user.function || request->user.commutes;
    call->method = NULL;
    call->seq = 0;
    call->stride = 0;
    call->within = false;
    call->counted = NULL;
    if (backend) tutti_backend_is_named(backend->ops, request->options.algorithm, &call->method);
    memcpy(call->factor, request->factor, sizeof(call->factor));
    tutti_request_bind(request, &call->bind);
    tutti_request_info(request, &call->info);
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
