/* SPDX-License-Identifier: BSD-3-Clause */
/* The short way: most calls. On anything unusual it returns AGAIN; the caller then takes the long way, which reports
 * errors. It checks that the arguments are right, takes the turn if it is free, and lets the back end carry the call
 * out on this thread: nothing is allocated, looked up or timed. What is right is read from the table of kinds, as by
 * the other checks (check.c). */
#include "comm/call/device.h"

/* ---- whether the arguments are right ---- */

/* What this rank passes; false where it is unusual, or reaches past the end of memory. */
static bool sides_of(const struct tutti_kind_info *kind, const struct tutti_comm *comm, struct tutti_plain *plain)
{
    const struct tutti_args *args = &plain->args;
    uint32_t n = (uint32_t)comm->size, rank = (uint32_t)comm->rank, root = (uint32_t)args->root;
    size_t bytes = args->count * tutti_dtype_bytes(args->dtype);

    if (bytes > SIZE_MAX / 1024) return false; /* a back end serves less ranks */
    if (kind->rooted && root >= n) return false;
    plain->bytes = bytes;
    plain->in = (struct tutti_range){(uintptr_t)args->send, bytes * tutti_side_blocks(kind->send, rank, root, n)};
    plain->out = (struct tutti_range){(uintptr_t)args->recv, bytes * tutti_side_blocks(kind->recv, rank, root, n)};
    if (plain->in.at > UINTPTR_MAX - plain->in.bytes || plain->out.at > UINTPTR_MAX - plain->out.bytes) return false;
    return (plain->in.bytes == 0 || args->send) && (plain->out.bytes == 0 || args->recv);
}

/* Apart, or in place in the one way that the kind allows. */
static bool lie_well(const struct tutti_kind_info *kind, int32_t rank, const struct tutti_plain *plain)
{
    const struct tutti_range *in = &plain->in, *out = &plain->out;
    size_t own = plain->bytes * (size_t)rank;
    if (in->at + in->bytes <= out->at || out->at + out->bytes <= in->at) return true;
    if (in->bytes == 0 || out->bytes == 0) return true;
    if (kind->in_place == TUTTI_SEND_IN_RECV) return in->at == out->at + own;
    if (kind->in_place == TUTTI_RECV_IN_SEND) return out->at == in->at + own;
    return in->at == out->at;
}

static bool is_right(const struct tutti_comm *comm, struct tutti_plain *plain)
{
    const struct tutti_args *args = &plain->args;
    const struct tutti_kind_info *kind = tutti_kind_info(args->kind);

    if (!tutti_dtype_is(args->dtype) || args->count > SIZE_MAX >> 8) return false;
    if (kind->reduces && ((unsigned)args->op >= TUTTI_N_OPS || args->op == TUTTI_PREMUL_SUM)) return false;
    if (kind->reduces && !comm->context->kernels->reduce[args->dtype][args->op]) return false;
    return sides_of(kind, comm, plain) && lie_well(kind, comm->rank, plain);
}

/* Whether all that the call touches here is memory of that device; -1: of the host. */
static bool lies_on(const struct tutti_plain *plain, int32_t device)
{
    if (plain->in.bytes && tutti_device_of((const void *)plain->in.at) != device) return false;
    return !plain->out.bytes || plain->out.at == plain->in.at || tutti_device_of((const void *)plain->out.at) == device;
}

/* ---- by the back end ---- */

static uint32_t divisor_of(const struct tutti_comm *comm, const struct tutti_args *args)
{
    return tutti_kind_contributors(args->kind, (uint32_t)comm->rank, (uint32_t)comm->size);
}

/* What is not significant is NULL, as for the engine. */
static void fill(const struct tutti_comm *comm, const struct tutti_plain *plain,
                 const struct tutti_call_options *options, struct tutti_backend_call *call)
{
    const struct tutti_args *args = &plain->args;
    const struct tutti_kind_info *kind = tutti_kind_info(args->kind);
    call->bind = (struct tutti_bind){.input = plain->in.bytes ? (const void *)plain->in.at : NULL,
                                     .output = plain->out.bytes ? (void *)plain->out.at : NULL,
                                     .count = args->count,
                                     .dtype = args->dtype,
                                     .divisor = 1};
    call->commutative = true;
    call->method = NULL;
    call->stride = 0;
    call->within = false;
    call->counted = NULL;
    if (kind->reduces) call->bind.reduce = comm->context->kernels->reduce[args->dtype][args->op];
    if (kind->reduces && args->op == TUTTI_AVG)
        call->bind.divide = tutti_divide_find(args->dtype), call->bind.divisor = divisor_of(comm, args);
    call->info = (struct tutti_call_info){.kind = args->kind,
                                          .dtype = args->dtype,
                                          .op = kind->reduces ? (int32_t)args->op : -1,
                                          .root = kind->rooted ? args->root : -1,
                                          .count = args->count,
                                          .timeout_ns = atomic_load_explicit(&comm->timeout_ns, memory_order_relaxed)};
    if (options && options->timeout_ns) call->info.timeout_ns = options->timeout_ns;
    if (options) call->info.label = options->label;
    call->info.signature = tutti_sign(&call->info, false, false, 0, 0);
}

static enum tutti_status run_plain(struct tutti_comm *comm, const struct tutti_plain *plain,
                                   const struct tutti_call_options *options, bool begun, struct tutti_work **work)
{
    union tutti_backend_storage room;
    fill(comm, plain, options, &room.op.call);
    const struct tutti_backend_way way = {comm, comm->backend, true, false};
    return begun ? tutti_backend_resume(comm, &room.op, work) : tutti_backend_start(&way, &room.op, work);
}

/* All that a tiny call is but its number. */
static void tiny_fill(const struct tutti_comm *comm, const struct tutti_plain *plain, struct tutti_tiny *tiny)
{
    const struct tutti_args *args = &plain->args;
    const struct tutti_kind_info *kind = tutti_kind_info(args->kind);
    struct tutti_call_info info = {.kind = args->kind,
                                   .dtype = args->dtype,
                                   .op = kind->reduces ? (int32_t)args->op : -1,
                                   .root = kind->rooted ? args->root : -1,
                                   .count = args->count};
    *tiny = (struct tutti_tiny){
        .kind = args->kind,
        .log_element = (uint32_t)__builtin_ctzl(tutti_dtype_bytes(args->dtype)),
        .divisor = divisor_of(comm, args),
        .root = (uint32_t)args->root,
        .send = (const unsigned char *)plain->in.at,
        .recv = (unsigned char *)plain->out.at,
        .send_bytes = plain->in.bytes,
        .bytes = plain->bytes,
        .reduce = kind->reduces ? comm->context->kernels->reduce[args->dtype][args->op] : NULL,
        .divide = kind->reduces && args->op == TUTTI_AVG ? tutti_divide_find(args->dtype) : NULL,
        .signature = tutti_sign(&info, false, false, 0, 0),
        .call = tutti_call_word((uint32_t)info.kind, (uint32_t)info.dtype, (uint32_t)info.op, info.root),
        .count = args->count,
    };
}

/* repeat.tiny is this call. */
static enum tutti_status run_tiny(struct tutti_comm *comm, const struct tutti_call_options *options,
                                  struct tutti_work **work)
{
    struct tutti_tiny *tiny = &comm->repeat.tiny;
    enum tutti_advance got = TUTTI_RUN_MOVED;

    if (tutti_team_quiet(comm->team) && !tutti_team_failed(comm->team)) {
        tiny->seq = tutti_team_next(comm->team);
        got = comm->backend->ops->tiny(comm->backend, tiny);
    }
    if (got != TUTTI_RUN_DONE) return run_plain(comm, &comm->repeat.plain, options, got == TUTTI_RUN_BLOCKED, work);
    tutti_team_count(comm->team);
    atomic_store_explicit(&comm->sequence, tiny->seq, memory_order_relaxed);
    return TUTTI_OK;
}

/* Not the call that was remembered: checks it; a tiny one is remembered instead. */
static enum tutti_status run_new(struct tutti_comm *comm, const struct tutti_args *args,
                                 const struct tutti_call_options *options, struct tutti_work **work)
{
    struct tutti_plain plain;
    if (!comm->quick[args->kind]) return TUTTI_AGAIN;
    plain.args = *args;
    if (!is_right(comm, &plain) || (comm->guarded && !lies_on(&plain, -1))) return TUTTI_AGAIN;
    if (plain.bytes >= comm->tiny[args->kind]) return run_plain(comm, &plain, options, false, work);
    comm->repeat.plain = plain;
    tiny_fill(comm, &plain, &comm->repeat.tiny);
    return run_tiny(comm, options, work);
}

/* ---- on devices ---- */

/* On device memory, all of it: enqueues the call. Host memory may have to wait for what is enqueued, and goes the long
 * way. */
static enum tutti_status run_device(struct tutti_comm *comm, const struct tutti_args *args,
                                    const struct tutti_call_options *options)
{
    struct tutti_backend_call call;
    struct tutti_plain plain;
    const struct tutti_comm_device *device = comm->device;

    plain.args = *args;
    bool overrides = comm->facts.overrides && comm->facts.overrides[0];
    if (device->n == 0 || overrides || !is_right(comm, &plain) || plain.in.bytes + plain.out.bytes == 0 ||
        !lies_on(&plain, device->ordinal))
        return TUTTI_AGAIN;
    fill(comm, &plain, options, &call);
    struct tutti_backend *backend = tutti_device_choose(comm, &call);
    return backend ? tutti_device_enqueue(comm, backend, &call, options ? options->stream : NULL) : TUTTI_AGAIN;
}

/* Programs repeat their calls: what was found right once needs no second look. */
static bool is_repeat(const struct tutti_args *last, const struct tutti_args *args)
{
    return last->send == args->send && last->recv == args->recv && last->count == args->count &&
           last->kind == args->kind && last->dtype == args->dtype && last->op == args->op && last->root == args->root;
}

enum tutti_status tutti_short(struct tutti_comm *comm, const struct tutti_args *args,
                              const struct tutti_call_options *options, struct tutti_work **out)
{
    uint64_t start_ns = out ? tutti_now_ns() : 0;
    struct tutti_work *work = NULL;
    enum tutti_status status = TUTTI_AGAIN;

    if (!tutti_comm_turn_try(comm)) return TUTTI_AGAIN;
    if (atomic_load(&comm->phase) == TUTTI_COMM_READY && !tutti_comm_is_inherited(comm)) {
        if (comm->device)
            status = out ? TUTTI_AGAIN : run_device(comm, args, options);
        else if (is_repeat(&comm->repeat.plain.args, args))
            status = run_tiny(comm, options, &work);
        else
            status = run_new(comm, args, options, &work);
    }
    /* A thread that destroys the communicator waits for the turn, and for users. */
    if (status == TUTTI_OK && out && !work)
        status =
            tutti_work_past(comm->team, atomic_load_explicit(&comm->sequence, memory_order_relaxed), start_ns, &work);
    bool waits = work && !out;
    if (waits) tutti_comm_hold(comm);
    tutti_comm_turn_give(comm);
    if (waits) {
        status = tutti_work_finish(work);
        tutti_comm_leave(comm);
    } else if (status == TUTTI_OK && out) {
        *out = work;
    }
    return status;
}
