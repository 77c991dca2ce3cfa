/* SPDX-License-Identifier: BSD-3-Clause */
/* all_reduce_sparse_block: each rank's blocks go to their places in recv, which is zero elsewhere; then recv is reduced
 * as ever. On host memory all ranks hear first of an index that is wrong anywhere. */
#include "comm/call/device.h"

#include "device/cpu/cpu.h"

#include <string.h>

#define NAME "all_reduce_sparse_block"
#define REFUSE(...) tutti_call_fail(call, TUTTI_ERR_ARGUMENT, __VA_ARGS__)

/* ---- on host memory ---- */

static bool is_right(const struct tutti_sparse *sparse)
{
    for (uint64_t i = 0; i < sparse->n; i++)
        if ((uint64_t)sparse->indices[i] >= sparse->n_out) return false;
    return true;
}

/* The lowest rank with a wrong index, the same on all; -1: there is none. */
static enum tutti_status first_wrong(const struct tutti_call *call, const struct tutti_sparse *sparse, int32_t *out)
{
    struct tutti_call_options options = call->options;
    const int32_t size = call->comm->size;
    int32_t wrong = is_right(sparse) ? 0 : size - call->comm->rank;
    options.algorithm = NULL, options.wire = TUTTI_WIRE_NONE;
    TUTTI_TRY(tutti_all_reduce(&wrong, &wrong, 1, TUTTI_INT32, TUTTI_MAX, call->comm, &options, NULL));
    *out = wrong ? size - wrong : -1;
    return TUTTI_OK;
}

static void add_blocks(const struct tutti_call *call, const struct tutti_sparse *sparse)
{
    const size_t bytes = sparse->block * tutti_dtype_bytes(sparse->dtype);
    const tutti_reduce_kernel add = call->comm->context->kernels->reduce[sparse->dtype][TUTTI_SUM];
    unsigned char *out = sparse->out;
    memset(out, 0, sparse->n_out * bytes);
    for (uint64_t i = 0; i < sparse->n; i++) {
        unsigned char *to = out + (size_t)sparse->indices[i] * bytes;
        add(to, to, (const unsigned char *)sparse->values + i * bytes, sparse->block);
    }
}

static enum tutti_status fill_on_host(const struct tutti_call *call, const struct tutti_sparse *sparse)
{
    int32_t wrong;
    TUTTI_TRY(first_wrong(call, sparse, &wrong));
    if (sparse->status) *sparse->status = wrong < 0 ? TUTTI_OK : TUTTI_ERR_ARGUMENT;
    if (wrong >= 0)
        return REFUSE("an index of rank %d is none of the %llu blocks of recv", (int)wrong,
                      (unsigned long long)sparse->n_out);
    if (sparse->n_out) add_blocks(call, sparse);
    return TUTTI_OK;
}

/* ---- on the device ---- */

static enum tutti_status fill_on_device(const struct tutti_call *call, const struct tutti_sparse *sparse)
{
    struct tutti_device *dev = call->comm->device->device;
    struct tutti_call_options options = call->options;
    options.algorithm = NULL, options.wire = TUTTI_WIRE_NONE;
    TUTTI_TRY(dev->ops->sparse(dev, sparse, options.stream));
    if (!sparse->status) return TUTTI_OK;
    return tutti_all_reduce(sparse->status, sparse->status, 1, TUTTI_INT32, TUTTI_MIN, call->comm, &options, NULL);
}

/* ---- checks ---- */

static enum tutti_status check(const struct tutti_call *call, const struct tutti_sparse *sparse, size_t count,
                               enum tutti_op op)
{
    size_t total, bytes;
    const size_t element = tutti_dtype_bytes(sparse->dtype);
    if (!element) return REFUSE("dtype %d is no type", (int)sparse->dtype);
    if (op != TUTTI_SUM && op != TUTTI_AVG)
        return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED, "op is %s: only sum and avg are defined",
                               tutti_op_name(op));
    if (sparse->block == 0 || count % sparse->block)
        return REFUSE("count is %zu, which is not a multiple of block, %llu", count, (unsigned long long)sparse->block);
    if (__builtin_mul_overflow(sparse->n, sparse->block, &total) || __builtin_mul_overflow(total, element, &bytes) ||
        bytes > (size_t)PTRDIFF_MAX)
        return REFUSE("n_blocks is %llu: that many blocks overflow", (unsigned long long)sparse->n);
    if (sparse->n && !sparse->values)
        return REFUSE("values is NULL but n_blocks is %llu", (unsigned long long)sparse->n);
    if (sparse->n && !sparse->indices)
        return REFUSE("indices is NULL but n_blocks is %llu", (unsigned long long)sparse->n);
    if (count && !sparse->out) return REFUSE("recv is NULL but count is %zu", count);
    const uintptr_t from = (uintptr_t)sparse->values, to = (uintptr_t)sparse->out;
    if (bytes && from < to + count * element && to < from + bytes)
        return REFUSE("values and recv overlap, which is not defined here");
    return TUTTI_OK;
}

/* All of it on the device, or all on the host; by recv, which all have. */
static enum tutti_status place(const struct tutti_call *call, const struct tutti_sparse *sparse, bool *on_device)
{
    const struct tutti_comm_device *device = call->comm->device;
    const struct {
        const char *name;
        const void *pointer;
    } all[] = {{"values", sparse->n ? sparse->values : NULL},
               {"indices", sparse->n ? sparse->indices : NULL},
               {"status", sparse->status}};
    const int32_t ordinal = sparse->out ? tutti_device_of(sparse->out) : -1;
    *on_device = ordinal >= 0;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(all); i++)
        if (all[i].pointer && tutti_device_of(all[i].pointer) != ordinal)
            return REFUSE("%s and recv are not in memory of one kind", all[i].name);
    if (ordinal < 0) return TUTTI_OK;
    if (!device || !device->device || device->ordinal != ordinal)
        return REFUSE("recv is memory of device %d, which is not the communicator's", (int)ordinal);
    if (!device->device->ops->sparse)
        return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED, "the device has no kernels for it");
    return TUTTI_OK;
}

static enum tutti_status fill(struct tutti_call *call, const struct tutti_sparse *sparse, size_t count,
                              enum tutti_op op, const struct tutti_call_options *options)
{
    bool on_device = false;
    TUTTI_TRY(tutti_call_options(call, options));
    TUTTI_TRY(check(call, sparse, count, op));
    TUTTI_TRY(place(call, sparse, &on_device));
    return on_device ? fill_on_device(call, sparse) : fill_on_host(call, sparse);
}

enum tutti_status tutti_all_reduce_sparse_block(const void *values, const int64_t *indices, size_t n_blocks,
                                                size_t block, void *recv, size_t count, enum tutti_dtype dtype,
                                                enum tutti_op op, int32_t *status, struct tutti_comm *comm,
                                                const struct tutti_call_options *options, struct tutti_work **work)
{
    struct tutti_call call = {.name = NAME, .comm = comm};
    const struct tutti_sparse sparse = {.dtype = dtype,
                                        .values = values,
                                        .indices = indices,
                                        .n = n_blocks,
                                        .block = block,
                                        .out = recv,
                                        .n_out = block ? count / block : 0,
                                        .status = status};
    TUTTI_TRY(tutti_call_alone(NAME));
    if (comm) TUTTI_TRY(tutti_survive_refuse(comm, NAME));
    TUTTI_TRY(tutti_comm_enter(comm, NAME));
    enum tutti_status result = fill(&call, &sparse, count, op, options);
    if (result >= 0) result = tutti_all_reduce(recv, recv, count, dtype, op, comm, options, work);
    tutti_comm_leave(comm);
    return result;
}
