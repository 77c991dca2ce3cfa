/* SPDX-License-Identifier: BSD-3-Clause */
/* What a quantised call consists of, on whatever memory: sizes, steps and jobs. */
#include "comm/call/packed.h"
#include "device/cpu/cpu.h"
#include "engine/bind.h"

#include <string.h>

#define PART_UNIT 32 /* parts of an all_reduce are a multiple, so that they begin well aligned */

static size_t elements_before(const struct tutti_call *call, uint32_t rank)
{
    size_t before = 0;
    for (uint32_t r = 0; r < rank; r++) before += call->job.bind.counts[r];
    return before;
}

/* Packed bytes of all parts; false: too many. */
static bool all_bytes(const struct tutti_call *call, const struct tutti_packed_shape *shape, size_t *out)
{
    if (!call->job.bind.v) return !__builtin_mul_overflow(shape->part_bytes, shape->n, out);
    *out = 0;
    for (uint32_t r = 0; r < shape->n; r++)
        if (__builtin_add_overflow(*out, tutti_packed_bytes(&shape->packing, call->job.bind.counts[r]), out))
            return false;
    return true;
}

enum tutti_status tutti_packed_shape(const struct tutti_call *call, struct tutti_packed_shape *out)
{
    const uint32_t n = (uint32_t)call->comm->size;
    size_t sent, collected, each = call->job.bind.count / n + (call->job.bind.count % n != 0);
    *out = (struct tutti_packed_shape){.packing = {call->options.wire, call->options.wire_block},
                                       .all = call->job.info.kind == TUTTI_ALL_REDUCE,
                                       .n = n,
                                       .me = (uint32_t)call->comm->rank};
    out->part = out->all ? (each + PART_UNIT - 1) / PART_UNIT * PART_UNIT : call->job.bind.count;
    out->total = out->all ? call->job.bind.count : call->job.bind.v ? call->job.bind.count : call->job.bind.count * n;
    out->part_bytes = tutti_packed_bytes(&out->packing, out->part);
    if (!all_bytes(call, out, &sent) || __builtin_mul_overflow(out->part_bytes, n, &collected) ||
        sent > PTRDIFF_MAX / 4 || collected > PTRDIFF_MAX / 4)
        return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for %zu packed elements", out->total);
    out->collected = out->sent + sent;
    out->spread = out->collected + collected;
    out->bytes = out->spread + (out->all ? collected : 0);
    return TUTTI_OK;
}

/* ---- steps ---- */

/* What all ranks must agree on, and the steps' own signatures do not tell. */
static uint64_t purpose_of(const struct tutti_call *call)
{
    const struct tutti_call_options *options = &call->options;
    const uint64_t words[] = {call->job.info.kind,         (uint64_t)call->job.info.dtype,
                              (uint64_t)call->job.info.op, options->wire,
                              options->wire_block,         options->wire_seed,
                              !options->wire_seeds,        call->job.bind.v ? 0 : call->job.bind.count};
    uint64_t hash = tutti_hash64(words, sizeof words, 1);
    if (call->job.bind.v) hash = tutti_hash64(call->job.bind.counts, (size_t)call->comm->size * sizeof(size_t), hash);
    return hash | 1;
}

static const char *label_of(const struct tutti_call *call)
{
    static const char *const labels[2][TUTTI_N_WIRES] = {
        {[TUTTI_WIRE_BFLOAT16] = "reduce_scatter, bfloat16 on the wire",
         [TUTTI_WIRE_FLOAT8_E4M3] = "reduce_scatter, float8_e4m3 on the wire",
         [TUTTI_WIRE_FLOAT8_E5M2] = "reduce_scatter, float8_e5m2 on the wire",
         [TUTTI_WIRE_INT8] = "reduce_scatter, int8 on the wire"},
        {[TUTTI_WIRE_BFLOAT16] = "all_reduce, bfloat16 on the wire",
         [TUTTI_WIRE_FLOAT8_E4M3] = "all_reduce, float8_e4m3 on the wire",
         [TUTTI_WIRE_FLOAT8_E5M2] = "all_reduce, float8_e5m2 on the wire",
         [TUTTI_WIRE_INT8] = "all_reduce, int8 on the wire"}};
    return call->options.label ? call->options.label
                               : labels[call->job.info.kind == TUTTI_ALL_REDUCE][call->options.wire];
}

/* An all_to_all_v: to each rank its own part, from each the own one. */
static void fill_tables(const struct tutti_call *call, const struct tutti_packed_shape *shape, size_t *tables,
                        struct tutti_call *out)
{
    size_t *const in_counts = tables, *const counts = tables + shape->n;
    for (uint32_t r = 0; r < shape->n; r++) {
        in_counts[r] = tutti_packed_bytes(&shape->packing, call->job.bind.counts[r]);
        counts[r] = shape->part_bytes;
    }
    out->job.bind.v = true;
    out->job.bind.in_counts = in_counts, out->job.bind.counts = counts;
}

void tutti_packed_step(const struct tutti_call *call, const struct tutti_packed_shape *shape,
                       enum tutti_packed_step step, char *region, size_t *tables, struct tutti_call *out)
{
    const bool spreads = step == TUTTI_PACKED_SPREAD;
    *out = (struct tutti_call){
        .job = {.info = {.kind = spreads ? TUTTI_ALL_GATHER : TUTTI_ALL_TO_ALL, .dtype = TUTTI_UINT8},
                .bind = {.input = region + (spreads ? shape->spread + shape->me * shape->part_bytes : shape->sent),
                         .output = region + (spreads ? shape->spread : shape->collected),
                         .count = shape->part_bytes},
                .commutative = true},
        .name = call->name,
        .comm = call->comm,
        .options = call->options,
        .purpose = purpose_of(call),
    };
    out->options.wire = TUTTI_WIRE_NONE;
    out->options.label = label_of(call);
    if (call->job.bind.v) fill_tables(call, shape, tables, out);
}

/* ---- jobs ---- */

/* step: the first rounds what this rank sends, the second one its part of the result. */
static struct tutti_recode job_of(const struct tutti_call *call, const struct tutti_packed_shape *shape,
                                  enum tutti_packed_step step)
{
    const struct tutti_call_options *options = &call->options;
    return (struct tutti_recode){
        .packing = shape->packing,
        .dtype = call->job.info.dtype,
        .n = 1,
        .divisor = 1,
        .n_parts = 1,
        .skip = UINT32_MAX,
        .part_bytes = shape->part_bytes,
        .part = shape->part,
        .total = shape->part,
        .end = SIZE_MAX,
        .stochastic = options->wire_seed != 0 || options->wire_seeds,
        .seed = options->wire_seed,
        .seeds = options->wire_seeds,
        .stream = (uint64_t)shape->me << 1 | (step == TUTTI_PACKED_SPREAD),
    };
}

void tutti_packed_input(const struct tutti_call *call, const struct tutti_packed_shape *shape, uint32_t part,
                        char *region, struct tutti_recode *out)
{
    *out = job_of(call, shape, TUTTI_PACKED_COLLECT);
    out->own = call->job.bind.input;
    out->repacked = region + shape->sent;
    out->skip = shape->me;
    out->n_parts = shape->n;
    out->total = shape->total;
    if (!call->job.bind.v) return;
    size_t bytes = 0;
    for (uint32_t r = 0; r < part; r++) bytes += tutti_packed_bytes(&shape->packing, call->job.bind.counts[r]);
    out->own =
        (const char *)call->job.bind.input + elements_before(call, part) * tutti_dtype_bytes(call->job.info.dtype);
    out->repacked = region + shape->sent + bytes;
    out->skip = part == shape->me ? 0 : UINT32_MAX;
    out->n_parts = 1;
    out->part = out->total = call->job.bind.counts[part];
    out->stream |= (uint64_t)part << 32;
}

void tutti_packed_sum(const struct tutti_call *call, const struct tutti_packed_shape *shape, char *region,
                      struct tutti_recode *out)
{
    const size_t before = call->job.bind.v ? elements_before(call, shape->me) : shape->me * shape->part;
    *out = job_of(call, shape, TUTTI_PACKED_SPREAD);
    out->n = shape->n, out->me = shape->me;
    out->own = (const char *)call->job.bind.input + before * tutti_dtype_bytes(call->job.info.dtype);
    out->packed = region + shape->collected;
    out->source_bytes = shape->part_bytes;
    if (call->job.info.op == (int)TUTTI_AVG) out->divisor = shape->n;
    if (!shape->all) {
        out->elements = call->job.bind.output;
        return;
    }
    out->repacked = region + shape->spread + shape->me * shape->part_bytes;
    out->total = before >= shape->total ? 0 : shape->total - before;
}

void tutti_packed_result(const struct tutti_call *call, const struct tutti_packed_shape *shape, char *region,
                         struct tutti_recode *out)
{
    *out = job_of(call, shape, TUTTI_PACKED_SPREAD);
    out->me = out->n;
    out->packed = region + shape->spread;
    out->elements = call->job.bind.output;
    out->n_parts = shape->n;
    out->total = shape->total;
}

/* Quantised calls on host memory. The caller packs what it sends and starts both steps; the engine's owner sums, packs
 * and unpacks between them, slice by slice as these pass. */

#define N_STEPS 2
#define KEPT_BYTES ((size_t)256 << 20) /* a larger region is not kept for the next call */

struct tutti_packed_call {
    struct tutti_comm *comm;
    struct tutti_packed_shape shape;
    struct tutti_call steps[N_STEPS];
    uint32_t n_steps;
    struct tutti_gate gates[N_STEPS];
    struct tutti_layout layouts[N_STEPS];
    struct tutti_recode sum, result;
    size_t summed, unpacked; /* elements of each part. The owner's */
    _Atomic uint32_t n_left; /* holders: steps that are not over, and who starts them */
    const char *simd;
    char *region; /* after the tables */
    size_t *tables;
    size_t bytes; /* in tables and region together */
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

static void call_free(struct tutti_packed_call *packed)
{
    if (packed->tables) memory_give(packed->comm, (char *)(void *)packed->tables, packed->bytes);
    tutti_free(packed);
}

static void let_go(struct tutti_packed_call *packed, uint32_t n)
{
    if (atomic_fetch_sub(&packed->n_left, n) == n) call_free(packed);
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
static size_t elements_passed(const struct tutti_packed_call *packed, enum tutti_packed_step step, uint32_t n)
{
    const struct tutti_layout *layout = &packed->layouts[step];
    if (n >= layout->n_slices) return packed->shape.part;
    return tutti_packed_elements(&packed->shape.packing, bytes_passed(layout, n));
}

/* Lets those slices of the second step begin that are packed whole. */
static void open_spread(struct tutti_packed_call *packed)
{
    const struct tutti_layout *layout = &packed->layouts[TUTTI_PACKED_SPREAD];
    struct tutti_gate *gate = &packed->gates[TUTTI_PACKED_SPREAD];
    uint32_t n = atomic_load(&gate->n_open);
    if (packed->summed >= packed->shape.part) {
        n = layout->n_slices;
    } else {
        const size_t bytes =
            packed->summed / packed->shape.packing.group * tutti_packed_group_bytes(&packed->shape.packing);
        while (n + 1 < layout->n_slices && bytes_passed(layout, n + 1) > 0 && bytes_passed(layout, n + 1) <= bytes) n++;
    }
    atomic_store(&gate->n_open, n); /* the owner looks at it by itself */
}

static void on_collected(void *arg, uint32_t n)
{
    struct tutti_packed_call *packed = arg;
    struct tutti_recode part = packed->sum;
    part.begin = packed->summed;
    part.end = elements_passed(packed, TUTTI_PACKED_COLLECT, n);
    if (part.end > part.begin) {
        tutti_recode_on_cpu(&part, packed->simd);
        packed->summed = part.end;
    }
    if (packed->n_steps > 1 && (part.end > part.begin || n >= packed->layouts[TUTTI_PACKED_COLLECT].n_slices))
        open_spread(packed);
}

static void on_spread(void *arg, uint32_t n)
{
    struct tutti_packed_call *packed = arg;
    struct tutti_recode part = packed->result;
    part.begin = packed->unpacked;
    part.end = elements_passed(packed, TUTTI_PACKED_SPREAD, n);
    if (part.end <= part.begin) return;
    tutti_recode_on_cpu(&part, packed->simd);
    packed->unpacked = part.end;
}

static void on_over(void *arg)
{
    let_go(arg, 1);
}

/* ---- preparing ---- */

static enum tutti_status step_prepare(struct tutti_packed_call *packed, const struct tutti_call *call, uint32_t s)
{
    static void (*const passed[N_STEPS])(void *arg, uint32_t n) = {on_collected, on_spread};
    struct tutti_call *step = &packed->steps[s];
    struct tutti_need need = {0};

    tutti_packed_step(call, &packed->shape, (enum tutti_packed_step)s, packed->region, packed->tables, step);
    packed->gates[s] = (struct tutti_gate){.passed = passed[s], .over = on_over, .arg = packed};
    atomic_store(&packed->gates[s].n_open, s == TUTTI_PACKED_COLLECT ? UINT32_MAX : 0);
    step->job.bind.gate = &packed->gates[s];
    TUTTI_TRY(tutti_call_choose_host(step));
    TUTTI_TRY(tutti_call_prepare(step));
    return tutti_layout_init(&packed->layouts[s], &step->job.bind, tutti_team_slice_bytes(step->comm->team), &need);
}

static enum tutti_status call_fill(struct tutti_packed_call *packed, const struct tutti_call *call)
{
    struct tutti_comm *comm = call->comm;
    const size_t tables = ((call->job.bind.v ? 2 * (size_t)comm->size * sizeof(size_t) : 0) + 63) & ~(size_t)63;
    TUTTI_TRY(tutti_packed_shape(call, &packed->shape));
    packed->comm = comm;
    packed->simd = comm->context->config.text[TUTTI_OPT_simd];
    char *memory = memory_take(comm, tables + packed->shape.bytes, &packed->bytes);
    if (!memory)
        return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for %zu packed bytes", packed->shape.bytes);
    packed->tables = (size_t *)(void *)memory;
    packed->region = memory + tables;
    packed->n_steps = packed->shape.all ? 2 : 1;
    tutti_packed_sum(call, &packed->shape, packed->region, &packed->sum);
    if (packed->shape.all) tutti_packed_result(call, &packed->shape, packed->region, &packed->result);
    for (uint32_t s = 0; s < packed->n_steps; s++) TUTTI_TRY(step_prepare(packed, call, s));
    return TUTTI_OK;
}

enum tutti_status tutti_packed_prepare(struct tutti_call *call)
{
    struct tutti_packed_call *packed = tutti_alloc(sizeof(*packed));
    if (!packed) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for a quantised call");
    enum tutti_status status = call_fill(packed, call);
    if (status >= 0)
        call->packed = packed;
    else
        tutti_packed_drop(packed);
    return status;
}

void tutti_packed_drop(struct tutti_packed_call *packed)
{
    for (uint32_t s = 0; s < packed->n_steps; s++) tutti_call_release(&packed->steps[s]);
    call_free(packed);
}

/* ---- starting ---- */

static void pack(const struct tutti_packed_call *packed, const struct tutti_call *call)
{
    struct tutti_recode job;
    for (uint32_t i = 0; i < tutti_packed_inputs(call); i++) {
        tutti_packed_input(call, &packed->shape, i, packed->region, &job);
        tutti_recode_on_cpu(&job, packed->simd);
    }
}

/* The first step is on its way and will never be followed: the communicator fails. */
static enum tutti_status give_up(struct tutti_call *call, struct tutti_packed_call *packed, struct tutti_work **started,
                                 uint32_t n)
{
    if (n > 0) tutti_call_give_up(call, started, n);
    for (uint32_t s = n; s < packed->n_steps; s++) tutti_call_release(&packed->steps[s]);
    const enum tutti_status status = tutti_last_error()->status;
    let_go(packed, packed->n_steps - n + 1);
    return status;
}

enum tutti_status tutti_packed_start(struct tutti_call *call, enum tutti_start how, struct tutti_work **work)
{
    struct tutti_packed_call *packed = call->packed;
    struct tutti_work *works[N_STEPS];

    call->packed = NULL; /* its steps' from here on */
    atomic_store(&packed->n_left, packed->n_steps + 1);
    pack(packed, call);
    for (uint32_t s = 0; s < packed->n_steps; s++)
        if (tutti_call_start(&packed->steps[s], how, &works[s]) < 0) return give_up(call, packed, works, s);
    enum tutti_status status = TUTTI_OK;
    if (packed->n_steps == 1)
        *work = works[0];
    else
        status = tutti_work_join(call->comm->context->engine, works, packed->n_steps, work);
    if (status < 0) return give_up(call, packed, works, packed->n_steps);
    let_go(packed, 1);
    return TUTTI_OK;
}
