/* SPDX-License-Identifier: BSD-3-Clause */
/* The short way of a plain blocking collective: no options, or none but a stream, no work, no group, a built-in
 * operation, arguments that are right. It checks no more than that they are, takes the turn if it is free, and lets the
 * back end carry the call out on this thread: nothing is allocated, looked up or timed. Whatever is unusual goes the
 * long way, which also makes the sentences. */
#include "comm/device/device.h"

enum extent { NONE, ONE, ALL };
/* What each kind reads and writes, and where a rank's own block lies in the larger side when it works in place. */
static const struct form {
    enum extent send, recv;
    bool reduces, rooted, send_inside, recv_inside;
} forms[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {.send = ONE, .recv = ONE, .reduces = true},
    [TUTTI_REDUCE] = {.send = ONE, .recv = ONE, .reduces = true, .rooted = true},
    [TUTTI_BROADCAST] = {.send = ONE, .recv = ONE, .rooted = true},
    [TUTTI_ALL_GATHER] = {.send = ONE, .recv = ALL, .send_inside = true},
    [TUTTI_GATHER] = {.send = ONE, .recv = ALL, .rooted = true, .send_inside = true},
    [TUTTI_SCATTER] = {.send = ALL, .recv = ONE, .rooted = true, .recv_inside = true},
    [TUTTI_REDUCE_SCATTER] = {.send = ALL, .recv = ONE, .reduces = true, .recv_inside = true},
    [TUTTI_ALL_TO_ALL] = {.send = ALL, .recv = ALL},
    [TUTTI_BARRIER] = {.send = NONE, .recv = NONE},
    [TUTTI_SCAN] = {.send = ONE, .recv = ONE, .reduces = true},
    [TUTTI_EXSCAN] = {.send = ONE, .recv = ONE, .reduces = true},
};

static const uint8_t log_bytes[TUTTI_N_DTYPES] = {
    [TUTTI_INT8] = 0,       [TUTTI_UINT8] = 0,         [TUTTI_INT16] = 1,       [TUTTI_UINT16] = 1,
    [TUTTI_INT32] = 2,      [TUTTI_UINT32] = 2,        [TUTTI_INT64] = 3,       [TUTTI_UINT64] = 3,
    [TUTTI_BOOL] = 0,       [TUTTI_FLOAT8_E4M3FN] = 0, [TUTTI_FLOAT8_E5M2] = 0, [TUTTI_FLOAT16] = 1,
    [TUTTI_BFLOAT16] = 1,   [TUTTI_FLOAT32] = 2,       [TUTTI_FLOAT64] = 3,     [TUTTI_COMPLEX64] = 3,
    [TUTTI_COMPLEX128] = 4,
};

/* The sides of this rank: what is not significant at it is left out. */
static bool sides_of(const struct form *form, const struct tutti_comm *comm, struct tutti_plain *plain)
{
    size_t n = (size_t)comm->size, bytes = plain->count << log_bytes[plain->dtype];
    bool here = plain->root == comm->rank;

    if (bytes > SIZE_MAX / 1024) return false; /* a back end serves less ranks */
    if (form->rooted && (uint32_t)plain->root >= (uint32_t)n) return false;
    plain->bytes = bytes;
    plain->in.at = (uintptr_t)plain->send, plain->out.at = (uintptr_t)plain->recv;
    plain->in.bytes = form->send == ONE ? bytes : form->send == ALL ? bytes * n : 0;
    plain->out.bytes = form->recv == ONE ? bytes : form->recv == ALL ? bytes * n : 0;
    if (plain->kind == TUTTI_SCATTER && !here) plain->in.bytes = 0;
    if ((plain->kind == TUTTI_REDUCE || plain->kind == TUTTI_GATHER) && !here) plain->out.bytes = 0;
    if (plain->kind == TUTTI_EXSCAN && comm->rank == 0) plain->out.bytes = 0;
    if (plain->in.at > UINTPTR_MAX - plain->in.bytes || plain->out.at > UINTPTR_MAX - plain->out.bytes) return false;
    return (plain->in.bytes == 0 || plain->send) && (plain->out.bytes == 0 || plain->recv);
}

/* Apart, or in place in the one way that the kind allows. */
static bool lie_well(const struct form *form, int32_t rank, const struct tutti_plain *plain)
{
    const struct tutti_range *in = &plain->in, *out = &plain->out;
    size_t own = plain->bytes * (size_t)rank;
    if (in->at + in->bytes <= out->at || out->at + out->bytes <= in->at) return true;
    if (in->bytes == 0 || out->bytes == 0) return true;
    if (form->send_inside) return in->at == out->at + own;
    if (form->recv_inside) return out->at == in->at + own;
    return in->at == out->at;
}

/* How many ranks contribute to this rank's result, for avg. */
static uint32_t contributors(const struct tutti_comm *comm, enum tutti_kind kind)
{
    if (kind == TUTTI_SCAN) return (uint32_t)comm->rank + 1;
    if (kind == TUTTI_EXSCAN) return comm->rank ? (uint32_t)comm->rank : 1;
    return (uint32_t)comm->size;
}

static void fill(const struct tutti_comm *comm, const struct form *form, enum tutti_kind kind, size_t count,
                 enum tutti_dtype dtype, enum tutti_op op, int32_t root, struct tutti_backend_call *call)
{
    bool divides = form->reduces && op == TUTTI_AVG;
    call->bind = (struct tutti_bind){.count = count, .dtype = dtype, .divisor = 1};
    call->commutative = true;
    call->method = NULL;
    call->stride = 0;
    call->within = false;
    if (form->reduces) call->bind.reduce = comm->context->kernels->reduce[dtype][op];
    if (divides) call->bind.divide = tutti_divide_find(dtype), call->bind.divisor = contributors(comm, kind);
    call->info = (struct tutti_call_info){.kind = kind,
                                          .dtype = dtype,
                                          .op = form->reduces ? (int32_t)op : -1,
                                          .root = form->rooted ? root : -1,
                                          .count = count,
                                          .timeout_ns = atomic_load_explicit(&comm->timeout_ns, memory_order_relaxed)};
    call->info.signature = tutti_sign(&call->info, false, false, 0, 0);
}

/* What is not significant is NULL, as for the engine. */
static void place(enum tutti_kind kind, const struct tutti_range *in, const struct tutti_range *out, bool here,
                  struct tutti_bind *bind)
{
    bind->input = in->bytes || kind != TUTTI_SCATTER ? (const void *)in->at : NULL;
    bind->output = out->bytes ? (void *)out->at : NULL;
    if (kind == TUTTI_BROADCAST && !here) bind->input = NULL;
}

static enum tutti_status run_plain(struct tutti_comm *comm, const struct tutti_plain *plain, bool begun,
                                   struct tutti_work **work)
{
    union tutti_backend_room room;
    struct tutti_backend_call *call = &room.op.call;
    fill(comm, &forms[plain->kind], plain->kind, plain->count, plain->dtype, plain->op, plain->root, call);
    place(plain->kind, &plain->in, &plain->out, plain->root == comm->rank, &call->bind);
    return begun ? tutti_backend_resume(comm, &room.op, work) : tutti_backend_start(comm, &room.op, true, false, work);
}

/* All that a tiny call is but its number. */
static void tiny_fill(const struct tutti_comm *comm, const struct tutti_plain *plain, struct tutti_tiny *tiny)
{
    const struct form *form = &forms[plain->kind];
    int32_t op = form->reduces ? (int32_t)plain->op : -1;
    int32_t root = form->rooted ? plain->root : -1;
    struct tutti_call_info info = {.kind = plain->kind, .dtype = plain->dtype, .op = op, .root = root};

    info.count = plain->count;
    *tiny = (struct tutti_tiny){
        .kind = plain->kind,
        .log_element = log_bytes[plain->dtype],
        .divisor = contributors(comm, plain->kind),
        .root = (uint32_t)plain->root,
        .send = (const unsigned char *)plain->in.at,
        .recv = (unsigned char *)plain->out.at,
        .send_bytes = plain->in.bytes,
        .bytes = plain->bytes,
        .reduce = form->reduces ? comm->context->kernels->reduce[plain->dtype][plain->op] : NULL,
        .divide = form->reduces && plain->op == TUTTI_AVG ? tutti_divide_find(plain->dtype) : NULL,
        .signature = tutti_sign(&info, false, false, 0, 0),
        .call = tutti_call_word((uint32_t)info.kind, (uint32_t)info.dtype, (uint32_t)op, root),
        .count = plain->count,
    };
}

/* repeat.tiny is this call. */
static enum tutti_status run_tiny(struct tutti_comm *comm, struct tutti_work **work)
{
    struct tutti_tiny *tiny = &comm->repeat.tiny;
    enum tutti_advance got = TUTTI_RUN_MOVED;

    if (tutti_team_quiet(comm->team) && !tutti_team_failed(comm->team)) {
        tiny->seq = tutti_team_next(comm->team);
        got = comm->backend->ops->tiny(comm->backend, tiny);
    }
    if (got != TUTTI_RUN_DONE) return run_plain(comm, &comm->repeat.plain, got == TUTTI_RUN_BLOCKED, work);
    tutti_team_count(comm->team);
    atomic_store_explicit(&comm->sequence, tiny->seq, memory_order_relaxed);
    return TUTTI_OK;
}

/* What tables may be asked for. */
static bool is_known(const struct tutti_plain *plain)
{
    return (unsigned)plain->dtype < TUTTI_N_DTYPES && plain->count <= SIZE_MAX >> 8;
}

/* Whether the call's arguments are right, as far as they are told apart here. */
static bool is_right(const struct tutti_comm *comm, struct tutti_plain *plain)
{
    const struct form *form = &forms[plain->kind];

    if (form->reduces && ((unsigned)plain->op >= TUTTI_N_OPS || plain->op == TUTTI_PREMUL_SUM)) return false;
    if (form->reduces && !comm->context->kernels->reduce[plain->dtype][plain->op]) return false;
    return sides_of(form, comm, plain) && lie_well(form, comm->rank, plain);
}

/* Whether all that the call touches here is memory of that device; -1: of the host. */
static bool lies_on(const struct tutti_plain *plain, int32_t device)
{
    if (plain->in.bytes && tutti_gpu_of((const void *)plain->in.at) != device) return false;
    return !plain->out.bytes || plain->out.at == plain->in.at || tutti_gpu_of((const void *)plain->out.at) == device;
}

/* Not the call that was remembered: checks it; a tiny one is remembered instead. */
static enum tutti_status run_quick(struct tutti_comm *comm, struct tutti_plain *plain, struct tutti_work **work)
{
    if (!comm->quick[plain->kind] || !is_right(comm, plain)) return TUTTI_AGAIN;
    if (comm->guarded && !lies_on(plain, -1)) return TUTTI_AGAIN;
    if (plain->bytes >= comm->tiny[plain->kind]) return run_plain(comm, plain, false, work);
    comm->repeat.plain = *plain;
    tiny_fill(comm, plain, &comm->repeat.tiny);
    return run_tiny(comm, work);
}

/* On device memory, all of it: enqueues the call. Host memory may have to wait for what is enqueued, and goes the long
 * way. */
static enum tutti_status run_device(struct tutti_comm *comm, struct tutti_plain *plain,
                                    const struct tutti_call_options *options)
{
    struct tutti_backend_call call;
    const struct tutti_comm_device *device = comm->device;

    bool overrides = comm->facts.overrides && comm->facts.overrides[0];
    if (device->n == 0 || overrides || !is_right(comm, plain) || plain->in.bytes + plain->out.bytes == 0 ||
        !lies_on(plain, device->ordinal))
        return TUTTI_AGAIN;
    fill(comm, &forms[plain->kind], plain->kind, plain->count, plain->dtype, plain->op, plain->root, &call);
    place(plain->kind, &plain->in, &plain->out, plain->root == comm->rank, &call.bind);
    if (options && options->timeout_ns) call.info.timeout_ns = options->timeout_ns;
    struct tutti_device_backend *backend = tutti_device_choose(comm, &call);
    return backend ? tutti_device_enqueue(comm, backend, &call, options ? options->stream : NULL) : TUTTI_AGAIN;
}

/* On host memory waits and sentences need the rest. */
static bool is_bare(const struct tutti_call_options *options)
{
    return !options || (!options->timeout_ns && !options->tag);
}

/* Programs repeat their calls: what was found right once needs no second look. */
static bool is_repeat(const struct tutti_plain *last, const struct tutti_plain *plain)
{
    return last->send == plain->send && last->recv == plain->recv && last->count == plain->count &&
           last->kind == plain->kind && last->dtype == plain->dtype && last->op == plain->op &&
           last->root == plain->root;
}

enum tutti_status tutti_quick(enum tutti_kind kind, const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                              enum tutti_op op, int32_t root, struct tutti_comm *comm,
                              const struct tutti_call_options *options, struct tutti_work **out)
{
    struct tutti_plain plain;
    uint64_t start_ns = out ? tutti_now_ns() : 0;
    struct tutti_work *work = NULL;
    enum tutti_status status = TUTTI_AGAIN;

    if (!comm || atomic_load_explicit(&tutti_collecting, memory_order_relaxed) || (count == 0 && kind != TUTTI_BARRIER))
        return TUTTI_AGAIN;
    if (!comm->device && !is_bare(options)) return TUTTI_AGAIN;
    if (!tutti_comm_turn_try(comm)) return TUTTI_AGAIN;
    plain.kind = kind, plain.dtype = dtype, plain.op = op, plain.root = root, plain.count = count;
    plain.send = send, plain.recv = recv;
    if (atomic_load(&comm->phase) == TUTTI_COMM_READY) {
        if (comm->device)
            status = out || !is_known(&plain) ? TUTTI_AGAIN : run_device(comm, &plain, options);
        else if (is_repeat(&comm->repeat.plain, &plain))
            status = run_tiny(comm, &work);
        else if (is_known(&plain))
            status = run_quick(comm, &plain, &work);
    }
    uint64_t seq = out ? atomic_load_explicit(&comm->sequence, memory_order_relaxed) : 0;
    tutti_comm_turn_give(comm);
    if (status != TUTTI_OK) return status;
    if (!out) return work ? tutti_work_finish(work) : TUTTI_OK;
    if (!work) TUTTI_TRY(tutti_work_past(comm->team, seq, start_ns, &work));
    *out = work;
    return TUTTI_OK;
}
