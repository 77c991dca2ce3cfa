/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantised calls on host memory. The caller packs what it sends and starts both steps; the engine's owner sums, packs
 * and unpacks between them, slice by slice as these pass. */
#include "comm/request/packed.h"
#include "device/cpu/cpu.h"
#include "engine/bind.h"

#include <string.h>

#define N_STEPS 2
#define KEPT_BYTES ((size_t)256 << 20) /* a larger region is not kept for the next call */

struct tutti_packed_call {
    struct tutti_comm *comm;
    struct tutti_packed_shape shape;
    struct tutti_request steps[N_STEPS];
    uint32_t n_steps;
    struct tutti_gate gates[N_STEPS];
    struct tutti_layout layouts[N_STEPS];
    struct tutti_recode sum, result;
    size_t summed, unpacked; /* elements of each part. The owner's */
    _Atomic uint32_t n_left; /* holders: steps that are not over, and who starts them */
    const char *simd;
    char *region; /* after the tables */
    size_t *tables;
    size_t bytes; /* of tables and region together */
};

/* ---- memory: a communicator keeps what its last call needed ---- */

static char *memory_take(struct tutti_comm *comm, size_t bytes, size_t *got)
{
    pthread_mutex_lock(&comm->lock);
    char *kept = comm->spare_bytes >= bytes ? comm->spare : NULL;
    *got = kept ? comm->spare_bytes : bytes;
    if (kept) comm->spare = NULL, comm->spare_bytes = 0;
    pthread_mutex_unlock(&comm->lock);
    return kept ? kept : tutti_map_lazy(bytes);
}

static void memory_give(struct tutti_comm *comm, char *memory, size_t bytes)
{
    pthread_mutex_lock(&comm->lock);
    if (bytes > comm->spare_bytes && bytes <= KEPT_BYTES) {
        char *smaller = comm->spare;
        size_t smaller_bytes = comm->spare_bytes;
        comm->spare = memory, comm->spare_bytes = bytes;
        memory = smaller, bytes = smaller_bytes;
    }
    pthread_mutex_unlock(&comm->lock);
    tutti_unmap(memory, bytes);
}

static void call_free(struct tutti_packed_call *call)
{
    if (call->tables) memory_give(call->comm, (char *)(void *)call->tables, call->bytes);
    tutti_free(call);
}

static void let_go(struct tutti_packed_call *call, uint32_t n)
{
    if (atomic_fetch_sub(&call->n_left, n) == n) call_free(call);
}

/* ---- by the engine's owner ---- */

/* Bytes of each block that are there when the first n slices have passed. Slices of several chunks a block leave holes.
 */
static size_t bytes_passed(const struct tutti_layout *layout, uint32_t n)
{
    size_t first;
    if (n >= layout->n_slices) return layout->count;
    if (n == 0 || layout->per_block > 1) return 0;
    const size_t last = tutti_layout_part(layout, 0, 0, n - 1, &first);
    return first + last;
}

/* The same in elements that can be used. */
static size_t elements_passed(const struct tutti_packed_call *call, enum tutti_packed_step step, uint32_t n)
{
    const struct tutti_layout *layout = &call->layouts[step];
    if (n >= layout->n_slices) return call->shape.part;
    return tutti_packed_elements(&call->shape.packing, bytes_passed(layout, n));
}

/* Lets those slices of the second step begin that are packed whole. */
static void open_spread(struct tutti_packed_call *call)
{
    const struct tutti_layout *layout = &call->layouts[TUTTI_PACKED_SPREAD];
    struct tutti_gate *gate = &call->gates[TUTTI_PACKED_SPREAD];
    uint32_t n = atomic_load(&gate->n_open);
    if (call->summed >= call->shape.part) {
        n = layout->n_slices;
    } else {
        const size_t packed = call->summed / call->shape.packing.group * tutti_packed_group_bytes(&call->shape.packing);
        while (n + 1 < layout->n_slices && bytes_passed(layout, n + 1) > 0 && bytes_passed(layout, n + 1) <= packed)
            n++;
    }
    atomic_store(&gate->n_open, n); /* the owner looks at it by itself */
}

static void on_collected(void *arg, uint32_t n)
{
    struct tutti_packed_call *call = arg;
    struct tutti_recode part = call->sum;
    part.begin = call->summed;
    part.end = elements_passed(call, TUTTI_PACKED_COLLECT, n);
    if (part.end > part.begin) {
        tutti_recode_on_cpu(&part, call->simd);
        call->summed = part.end;
    }
    if (call->n_steps > 1 && (part.end > part.begin || n >= call->layouts[TUTTI_PACKED_COLLECT].n_slices))
        open_spread(call);
}

static void on_spread(void *arg, uint32_t n)
{
    struct tutti_packed_call *call = arg;
    struct tutti_recode part = call->result;
    part.begin = call->unpacked;
    part.end = elements_passed(call, TUTTI_PACKED_SPREAD, n);
    if (part.end <= part.begin) return;
    tutti_recode_on_cpu(&part, call->simd);
    call->unpacked = part.end;
}

static void on_over(void *arg)
{
    let_go(arg, 1);
}

/* ---- preparing ---- */

static enum tutti_status step_prepare(struct tutti_packed_call *call, const struct tutti_request *request, uint32_t s)
{
    static void (*const passed[N_STEPS])(void *arg, uint32_t n) = {on_collected, on_spread};
    struct tutti_request *step = &call->steps[s];
    struct tutti_need need = {0};

    tutti_packed_step(request, &call->shape, (enum tutti_packed_step)s, call->region, call->tables, step);
    call->gates[s] = (struct tutti_gate){.passed = passed[s], .over = on_over, .arg = call};
    atomic_store(&call->gates[s].n_open, s == TUTTI_PACKED_COLLECT ? UINT32_MAX : 0);
    step->gate = &call->gates[s];
    TUTTI_TRY(tutti_route_host(step, &step->route));
    TUTTI_TRY(tutti_request_seal(step));
    struct tutti_bind bind = {.schedule = step->schedule, .dtype = step->dtype, .divisor = 1};
    tutti_request_bind(step, &bind);
    return tutti_layout_init(&call->layouts[s], &bind, tutti_team_slice_bytes(step->comm->team), &need);
}

static enum tutti_status call_fill(struct tutti_packed_call *call, const struct tutti_request *request)
{
    struct tutti_comm *comm = request->comm;
    const size_t tables = ((request->v ? 2 * (size_t)comm->size * sizeof(size_t) : 0) + 63) & ~(size_t)63;
    TUTTI_TRY(tutti_packed_shape(request, &call->shape));
    call->comm = comm;
    call->simd = comm->context->config.text[TUTTI_OPT_simd];
    char *memory = memory_take(comm, tables + call->shape.bytes, &call->bytes);
    if (!memory)
        return tutti_request_fail(request, TUTTI_ERR_MEMORY, "out of memory for %zu packed bytes", call->shape.bytes);
    call->tables = (size_t *)(void *)memory;
    call->region = memory + tables;
    call->n_steps = call->shape.all ? 2 : 1;
    tutti_packed_sum(request, &call->shape, call->region, &call->sum);
    if (call->shape.all) tutti_packed_result(request, &call->shape, call->region, &call->result);
    for (uint32_t s = 0; s < call->n_steps; s++) TUTTI_TRY(step_prepare(call, request, s));
    return TUTTI_OK;
}

enum tutti_status tutti_packed_prepare(struct tutti_request *request)
{
    struct tutti_packed_call *call = tutti_alloc(sizeof(*call));
    if (!call) return tutti_request_fail(request, TUTTI_ERR_MEMORY, "out of memory for a quantised call");
    enum tutti_status status = call_fill(call, request);
    if (status >= 0)
        request->packed = call;
    else
        tutti_packed_drop(call);
    return status;
}

void tutti_packed_drop(struct tutti_packed_call *call)
{
    for (uint32_t s = 0; s < call->n_steps; s++) tutti_request_unseal(&call->steps[s]);
    call_free(call);
}

/* ---- starting ---- */

static void pack(const struct tutti_packed_call *call, const struct tutti_request *request)
{
    struct tutti_recode job;
    for (uint32_t i = 0; i < tutti_packed_inputs(request); i++) {
        tutti_packed_input(request, &call->shape, i, call->region, &job);
        tutti_recode_on_cpu(&job, call->simd);
    }
}

/* The first step is on its way and will never be followed: the communicator fails. */
static enum tutti_status give_up(struct tutti_request *request, struct tutti_packed_call *call,
                                 struct tutti_work **started, uint32_t n)
{
    if (n > 0) tutti_request_give_up(request, started, n);
    for (uint32_t s = n; s < call->n_steps; s++) tutti_request_unseal(&call->steps[s]);
    const enum tutti_status status = tutti_last_error()->status;
    let_go(call, call->n_steps - n + 1);
    return status;
}

enum tutti_status tutti_packed_start(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    struct tutti_packed_call *call = request->packed;
    struct tutti_work *works[N_STEPS];

    request->packed = NULL; /* its steps' from here on */
    atomic_store(&call->n_left, call->n_steps + 1);
    pack(call, request);
    for (uint32_t s = 0; s < call->n_steps; s++)
        if (tutti_request_start_one(&call->steps[s], helper, &works[s]) < 0) return give_up(request, call, works, s);
    enum tutti_status status = TUTTI_OK;
    if (call->n_steps == 1)
        *work = works[0];
    else
        status = tutti_work_join(request->comm->context->engine, works, call->n_steps, work);
    if (status < 0) return give_up(request, call, works, call->n_steps);
    let_go(call, 1);
    return TUTTI_OK;
}
