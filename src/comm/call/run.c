/* SPDX-License-Identifier: BSD-3-Clause */
/* How calls are carried out. Most collectives go the short way: on anything unusual it gives up before anything was
 * done, and the call goes the long way, which reports errors. It takes the turn if it is free, and lets the back end
 * carry the call out on this thread: nothing is allocated, looked up or timed. The long way enters the communicator,
 * checks, chooses, and starts the call, or keeps it for the group or recording of this thread. */
#include "comm/call/device.h"
#include "comm/call/packed.h"
#include "load/load.h"

#include <inttypes.h>

void tutti_call_begin(struct tutti_call *call, struct tutti_comm *comm, struct tutti_work **work)
{
    const struct tutti_call_info info = call->job.info;
    const size_t count = call->job.bind.count;
    const void *input = call->job.bind.input;
    void *output = call->job.bind.output;
    memset(call, 0, offsetof(struct tutti_call, shape));
    tutti_call_set(call, info.kind, info.dtype, info.op, info.root, count, input, output);
    call->job.commutative = true;
    call->name = tutti_kind_name(info.kind);
    call->comm = comm;
    call->work = work;
}

/* ---- by the communicator's back end. The turn is held ---- */

static enum tutti_status hand_over(struct tutti_comm *comm, struct tutti_backend_op *op, bool helper,
                                   struct tutti_work **work)
{
    TUTTI_TRY(tutti_engine_run(comm->team, &op->runner, TUTTI_RUNNER_BYTES, &op->call.info, helper, work));
    atomic_store_explicit(&comm->sequence, op->call.seq, memory_order_relaxed);
    return TUTTI_OK;
}

/* Carries the call out inline if that is soon done; the engine does the rest. */
static enum tutti_status backend_start(struct tutti_comm *comm, struct tutti_backend *backend,
                                       const struct tutti_backend_call *job, enum tutti_start how,
                                       struct tutti_work **work)
{
    union tutti_backend_storage storage;
    const struct tutti_backend_ops *ops = backend->ops;
    storage.op.call = *job;
    storage.op.call.seq = tutti_team_next(comm->team);
    *work = NULL;
    TUTTI_TRY(ops->begin(backend, &storage.op));
    if (how != TUTTI_START_INLINE || !ops->run_inline || !tutti_team_quiet(comm->team) ||
        tutti_team_failed(comm->team) || ops->run_inline(&storage.op, comm->team) != TUTTI_RUN_DONE)
        return hand_over(comm, &storage.op, how == TUTTI_START_HELPER, work);
    tutti_team_count(comm->team);
    atomic_store_explicit(&comm->sequence, storage.op.call.seq, memory_order_relaxed);
    return TUTTI_OK;
}

/* Goes on with a tiny call that was begun: the engine drives the rest. */
static enum tutti_status backend_resume(struct tutti_call *call, struct tutti_work **work)
{
    union tutti_backend_storage storage;
    struct tutti_comm *comm = call->comm;
    storage.op.call = *tutti_call_job(call);
    storage.op.call.seq = tutti_team_next(comm->team);
    comm->backend->ops->resume(comm->backend, &storage.op);
    return hand_over(comm, &storage.op, false, work);
}

/* ---- the short way ---- */

/* Whether a collective may go the short way, by its arguments alone: the caller waits, now or at once; its options ask
 * for nothing but a timeout and a label; there is data, and this thread collects no calls (group, recording). */
static inline bool is_short(const struct tutti_call *call, const struct tutti_comm *comm,
                            const struct tutti_call_options *options, struct tutti_work *const *work)
{
    if (!comm || comm->survive || (call->job.bind.count == 0 && call->job.info.kind != TUTTI_BARRIER)) return false;
    if (work && !(options && options->size == sizeof(*options) && options->attended)) return false;
    if (options && (options->size != sizeof(*options) || options->algorithm || options->wire)) return false;
    return atomic_load_explicit(&tutti_n_collecting, memory_order_relaxed) == 0;
}

/* Programs repeat their calls: what was found right once needs no second look. */
static inline bool is_repeat(const struct tutti_tiny *last, const struct tutti_call *call)
{
    const struct tutti_call_info *info = &call->job.info;
    const struct tutti_bind *bind = &call->job.bind;
    return last->send == bind->input && last->recv == bind->output && last->count == bind->count &&
           last->kind == info->kind && last->dtype == info->dtype && last->op == info->op &&
           (int32_t)last->root == info->root;
}

static inline bool is_made(const struct tutti_made *a, const struct tutti_made *b)
{
    return a->send == b->send && a->recv == b->recv && a->count == b->count && a->kind == b->kind &&
           a->dtype == b->dtype && a->op == b->op && a->root == b->root;
}

/* Fills and checks the call, as the long way does, but silently. */
static bool is_right(struct tutti_call *call, struct tutti_comm *comm, const struct tutti_call_options *options)
{
    tutti_call_begin(call, comm, NULL);
    call->quiet = true;
    if (options) call->options = *options;
    if (tutti_call_check(call) < 0 || call->job.bind.user || call->job.info.op == TUTTI_PREMUL_SUM) return false;
    tutti_call_ready(call);
    return true;
}

/* Whether all that the call touches here is memory of that device; -1: of the host. */
static bool lies_on(const struct tutti_call *call, int32_t device)
{
    const void *input = call->job.bind.input, *output = call->job.bind.output;
    if (input && tutti_device_of(input) != device) return false;
    return !output || output == input || tutti_device_of(output) == device;
}

/* The sequence number is missing. send and recv are the user's, whether they are significant or not. */
static void tiny_fill(const struct tutti_call *call, int32_t op, uint32_t root, const void *send, void *recv,
                      struct tutti_tiny *tiny)
{
    const struct tutti_comm *comm = call->comm;
    const struct tutti_call_info *info = &call->job.info;
    const size_t bytes = call->job.bind.count * tutti_dtype_bytes(info->dtype);
    const struct tutti_kind_side side = tutti_kind_info(info->kind)->send;
    *tiny = (struct tutti_tiny){
        .kind = info->kind,
        .dtype = info->dtype,
        .op = op,
        .root = root,
        .log_element = (uint32_t)__builtin_ctzl(tutti_dtype_bytes(info->dtype)),
        .send = send,
        .recv = recv,
        .send_bytes = bytes * tutti_side_blocks(side, (uint32_t)comm->rank, root, (uint32_t)comm->size),
        .bytes = bytes,
        .reduce = call->job.bind.reduce,
        .divide = call->job.bind.divide,
        .divisor = call->job.bind.divisor,
        .signature = info->signature,
        .call = tutti_call_word((uint32_t)info->kind, (uint32_t)info->dtype, (uint32_t)info->op, info->root),
        .count = call->job.bind.count,
    };
}

/* comm->last_call is this call, but for its number, and it is tiny. filled: the call is filled, too. */
static enum tutti_status run_tiny(struct tutti_call *call, struct tutti_comm *comm,
                                  const struct tutti_call_options *options, bool filled, struct tutti_work **work)
{
    struct tutti_tiny *tiny = &comm->last_call;
    enum tutti_advance got = TUTTI_RUN_MOVED;

    if (tutti_team_quiet(comm->team) && !tutti_team_failed(comm->team)) {
        tiny->seq = tutti_team_next(comm->team);
        got = comm->backend->ops->tiny(comm->backend, tiny);
    }
    if (got == TUTTI_RUN_DONE) {
        tutti_team_count(comm->team);
        atomic_store_explicit(&comm->sequence, tiny->seq, memory_order_relaxed);
        return TUTTI_OK;
    }
    if (!filled) (void)is_right(call, comm, options); /* it was */
    return got == TUTTI_RUN_BLOCKED
               ? backend_resume(call, work)
               : backend_start(comm, comm->backend, tutti_call_job(call), TUTTI_START_INLINE, work);
}

/* comm->last_job is this call, but for its number, deadline and label. */
static enum tutti_status run_again(struct tutti_comm *comm, const struct tutti_call_options *options,
                                   struct tutti_work **work)
{
    struct tutti_call_info *info = &comm->last_job.info;
    info->timeout_ns = options && options->timeout_ns ? options->timeout_ns
                                                      : atomic_load_explicit(&comm->timeout_ns, memory_order_relaxed);
    info->label = options ? options->label : NULL;
    return backend_start(comm, comm->backend, &comm->last_job, TUTTI_START_INLINE, work);
}

/* Not the call that was remembered: checks it, and remembers it instead. */
static enum tutti_status run_new(struct tutti_call *call, struct tutti_comm *comm,
                                 const struct tutti_call_options *options, struct tutti_work **work)
{
    const void *send = call->job.bind.input;
    void *recv = call->job.bind.output;
    const int32_t op = call->job.info.op, root = call->job.info.root;
    const enum tutti_kind kind = call->job.info.kind;
    if (!comm->quick[kind]) return TUTTI_AGAIN;
    if (!is_right(call, comm, options) || (comm->guarded && !lies_on(call, -1))) return TUTTI_AGAIN;
    tiny_fill(call, op, (uint32_t)root, send, recv, &comm->last_call);
    comm->last_is_tiny = !call->job.bind.scale && comm->last_call.bytes < comm->tiny[kind];
    if (comm->last_is_tiny) return run_tiny(call, comm, options, true, work);
    comm->last_job = *tutti_call_job(call);
    comm->last_job.bind.factor = comm->last_job.factor;
    return run_again(comm, options, work);
}

/* On device memory, all of it: enqueues the call. Host memory may have to wait for what is enqueued, and goes the long
 * way. */
static enum tutti_status run_device(struct tutti_call *call, struct tutti_comm *comm,
                                    const struct tutti_call_options *options)
{
    const struct tutti_comm_device *device = comm->device;
    bool overrides = comm->facts.own[call->job.info.kind] || (comm->facts.overrides && comm->facts.overrides[0]);
    if (device->n == 0 || overrides || !is_right(call, comm, options) ||
        (!call->job.bind.input && !call->job.bind.output) || !lies_on(call, device->ordinal))
        return TUTTI_AGAIN;
    struct tutti_backend *backend = tutti_backend_choose(comm, tutti_call_job(call), true);
    return backend ? tutti_device_enqueue(comm, backend, &call->job, options ? options->stream : NULL) : TUTTI_AGAIN;
}

/* Over a network, where the engine carries all out: keeps the call, ready to be made. NULL: it is none of those. */
static struct tutti_flight *keep(struct tutti_call *call, struct tutti_comm *comm,
                                 const struct tutti_call_options *options)
{
    const size_t bytes = call->job.bind.count * tutti_dtype_bytes(call->job.info.dtype);
    if (bytes > comm->facts.eager_bytes || TUTTI_LOG_TRACE <= tutti_log_threshold) return NULL;
    if (!is_right(call, comm, options) || (comm->guarded && !lies_on(call, -1))) return NULL;
    if (tutti_call_choose(call) < 0 || call->via != TUTTI_VIA_ENGINE || tutti_call_prepare(call) < 0) return NULL;
    const struct tutti_backend_call *job = tutti_call_job(call);
    struct tutti_flight *flight = tutti_short_keep(comm->team, &job->bind, &job->info);
    call->job.bind.schedule = NULL; /* the engine's */
    return flight;
}

static inline struct tutti_kept *kept_at(struct tutti_comm *comm, const struct tutti_made *made)
{
    const uint64_t where = (uintptr_t)made->recv + (uintptr_t)made->send * 3 + made->count * 5 + (uint64_t)made->kind;
    return &comm->kept[(where * UINT64_C(0x9e3779b97f4a7c15)) >> 60 & (TUTTI_COMM_KEPT - 1)];
}

static enum tutti_status run_flight(struct tutti_call *call, struct tutti_comm *comm,
                                    const struct tutti_call_options *options, struct tutti_work **work)
{
    const struct tutti_call_info *info = &call->job.info;
    const struct tutti_bind *bind = &call->job.bind;
    const struct tutti_made made = {info->kind,  info->dtype,  info->op,   info->root,
                                    bind->input, bind->output, bind->count};
    struct tutti_kept *kept = kept_at(comm, &made);
    if (!kept->flight || !is_made(&kept->call, &made)) {
        struct tutti_flight *flight = keep(call, comm, options);
        if (!flight) return TUTTI_AGAIN;
        tutti_flight_drop(kept->flight);
        *kept = (struct tutti_kept){made, flight};
    }
    const uint64_t timeout_ns = options && options->timeout_ns
                                    ? options->timeout_ns
                                    : atomic_load_explicit(&comm->timeout_ns, memory_order_relaxed);
    const uint64_t seq = tutti_team_next(comm->team);
    enum tutti_status status = tutti_short_run(kept->flight, timeout_ns, options ? options->label : NULL, work);
    if (status == TUTTI_AGAIN) return status;
    if (status == TUTTI_PENDING) kept->flight = NULL;
    atomic_store_explicit(&comm->sequence, seq, memory_order_relaxed);
    return TUTTI_OK;
}

/* AGAIN: nothing was done. out: NULL to block, else the work of an attended call, which may be complete already. */
static enum tutti_status run_short(struct tutti_call *call, struct tutti_comm *comm,
                                   const struct tutti_call_options *options, struct tutti_work **out)
{
    uint64_t start_ns = out ? tutti_now_ns() : 0;
    struct tutti_work *work = NULL;
    enum tutti_status status = TUTTI_AGAIN;

    if (!tutti_comm_turn_try(comm)) return TUTTI_AGAIN;
    if (atomic_load(&comm->phase) == TUTTI_COMM_READY && !tutti_comm_is_inherited(comm)) {
        if (comm->device)
            status = out ? TUTTI_AGAIN : run_device(call, comm, options);
        else if (is_repeat(&comm->last_call, call))
            status = comm->last_is_tiny ? run_tiny(call, comm, options, false, &work) : run_again(comm, options, &work);
        else if (comm->backend || comm->library)
            status = run_new(call, comm, options, &work);
        else
            status = run_flight(call, comm, options, &work);
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

enum tutti_status tutti_call_collective(struct tutti_call *call, struct tutti_comm *comm,
                                        const struct tutti_call_options *options, struct tutti_work **work)
{
    enum tutti_status status = TUTTI_AGAIN;
    if (is_short(call, comm, options, work)) status = run_short(call, comm, options, work);
    if (status != TUTTI_AGAIN) return status;
    tutti_call_begin(call, comm, work);
    return tutti_call_submit(call, options);
}

/* ---- the long way ---- */

/* Nothing waits, whether the caller wants a work or not. */
static enum tutti_status enqueue(struct tutti_call *call)
{
    struct tutti_work *work = NULL;
    size_t n_started;
    if (call->work) TUTTI_TRY(tutti_device_may_follow(call));
    TUTTI_TRY(tutti_device_start(call, 1, false, &work, &n_started));
    if (call->work) *call->work = work;
    return TUTTI_OK;
}

static enum tutti_status carry_out(struct tutti_call *call)
{
    struct tutti_work *work = NULL;
    if (tutti_call_enqueues(call)) return enqueue(call);
    TUTTI_TRY(tutti_device_before(call));
    TUTTI_TRY(tutti_call_prepare(call));
    TUTTI_TRY(tutti_call_start(call,
                               !call->work              ? TUTTI_START_INLINE
                               : call->options.attended ? TUTTI_START
                                                        : TUTTI_START_HELPER,
                               &work));
    if (!call->work) return work ? tutti_work_finish(work) : TUTTI_OK;
    *call->work = work;
    return TUTTI_OK;
}

enum tutti_status tutti_call_dispatch(struct tutti_call *call)
{
    enum tutti_status chosen = tutti_call_choose(call);
    if (call->options.algorithm) chosen = tutti_file_agree(call, chosen);
    if (chosen < 0) return chosen;
    switch (tutti_collects()) {
    case TUTTI_COLLECTS_RECORD:
        return tutti_record_add(call);
    case TUTTI_COLLECTS_GROUP:
        return tutti_group_add(call);
    case TUTTI_COLLECTS_NOTHING:
        break;
    }
    return carry_out(call);
}

enum tutti_status tutti_call_submit(struct tutti_call *call, const struct tutti_call_options *options)
{
    enum tutti_status status = tutti_comm_enter(call->comm, call->name);
    if (status >= 0) {
        call->collected = tutti_collects() != TUTTI_COLLECTS_NOTHING;
        status = tutti_call_options(call, options);
        if (status >= 0) status = tutti_call_check(call);
        if (status >= 0) status = call->comm->survive ? call->comm->survive_call(call) : tutti_call_dispatch(call);
        tutti_comm_leave(call->comm);
    }
    if (status >= 0) return status;
    if (tutti_collects() == TUTTI_COLLECTS_RECORD) tutti_record_spoil();
    if (tutti_collects() == TUTTI_COLLECTS_GROUP) tutti_group_spoil();
    return status;
}

/* ---- on host memory: preparing and starting ---- */

/* Lanes carry out calls on host memory. A schedule that is there already stays. */
static enum tutti_status seal(struct tutti_call *call)
{
    struct tutti_cache *cache = call->comm->context->cache;
    bool lanes_serve = call->shape.n_levels > 0 && call->via == TUTTI_VIA_ENGINE;
    struct tutti_lanes lanes = {.n = 0};
    if (lanes_serve) lanes = call->comm->lanes;
    for (uint32_t l = 0; call->job.bind.v && l < lanes.n; l++) lanes.lanes[l].kinds &= ~TUTTI_CALL_KINDS_EQUAL;
    struct tutti_bind *bind = &call->job.bind;
    if (tutti_load_prove(&call->comm->context->config, call->algorithm, call->job.info.kind, &call->shape) < 0)
        return tutti_call_fail(call, tutti_last_error()->status, "%s", tutti_last_error()->text);
    TUTTI_TRY(tutti_cache_get(cache, call->algorithm, call->job.info.kind, &call->shape, &lanes, &bind->schedule));
    bind->cache = cache;
    tutti_call_sign(call);
    if (!bind->schedule->defect) return TUTTI_OK;
    enum tutti_status status = tutti_call_fail(call, TUTTI_ERR_INTERNAL, "%s", bind->schedule->defect);
    tutti_call_release(call);
    return status;
}

enum tutti_status tutti_call_prepare(struct tutti_call *call)
{
    if (call->via == TUTTI_VIA_PACKED) return tutti_packed_prepare(call);
    return call->type == TUTTI_CALL_COLLECTIVE && call->via == TUTTI_VIA_ENGINE ? seal(call) : TUTTI_OK;
}

void tutti_call_release(struct tutti_call *call)
{
    if (call->job.bind.schedule) tutti_cache_release(call->comm->context->cache, call->job.bind.schedule);
    call->job.bind.schedule = NULL;
    if (call->packed) tutti_packed_drop(call->packed);
    call->packed = NULL;
}

static enum tutti_status start_collective(struct tutti_call *call, enum tutti_start how, struct tutti_work **work)
{
    struct tutti_comm *comm = call->comm;
    const struct tutti_call_info *info = &call->job.info;
    enum tutti_status status;
    tutti_comm_turn_take(comm);
    if (call->via == TUTTI_VIA_BACKEND) {
        status = backend_start(comm, call->backend, tutti_call_job(call), how, work);
    } else {
        const struct tutti_backend_call *job = tutti_call_job(call);
        status = tutti_engine_start(comm->team, &job->bind, &job->info, how == TUTTI_START_HELPER, work);
        call->job.bind.schedule = NULL; /* the engine's */
        if (status >= 0) atomic_fetch_add(&comm->sequence, 1);
    }
    tutti_comm_turn_give(comm);
    if (status >= 0 && call->algorithm)
        tutti_log(TUTTI_LOG_TRACE, "%s%s%s #%" PRIu64 " on communicator %016" PRIx64 ": %s, %zu x %s", call->name,
                  info->label ? " " : "", info->label ? info->label : "", tutti_work_sequence(*work), comm->id,
                  call->algorithm->name, call->job.bind.count, tutti_dtype_name(info->dtype));
    return status;
}

static enum tutti_status start_send(struct tutti_call *call, enum tutti_start how, struct tutti_work **work)
{
    const struct tutti_call_info *info = &call->job.info;
    const struct tutti_p2p_message_info message = {.send = call->job.bind.input,
                                                   .bytes = call->job.bind.count * tutti_dtype_bytes(info->dtype),
                                                   .peer = call->dest,
                                                   .tag = call->send_tag,
                                                   .timeout_ns = info->timeout_ns};
    return tutti_engine_send(call->comm->team, &message, how == TUTTI_START_HELPER, work);
}

static enum tutti_status start_recv(struct tutti_call *call, enum tutti_start how, struct tutti_work **work)
{
    const struct tutti_call_info *info = &call->job.info;
    const struct tutti_p2p_message_info message = {.recv = call->job.bind.output,
                                                   .bytes = call->recv_count * tutti_dtype_bytes(info->dtype),
                                                   .peer = call->source,
                                                   .tag = call->recv_tag,
                                                   .timeout_ns = info->timeout_ns,
                                                   .message = call->message};
    return tutti_engine_recv(call->comm->team, &message, how == TUTTI_START_HELPER, work);
}

void tutti_call_give_up(const struct tutti_call *call, struct tutti_work **started, size_t n)
{
    struct tutti_error error = *tutti_last_error();
    tutti_comm_fail_in_part(call->comm, call->name);
    for (size_t i = 0; i < n; i++) tutti_work_finish(started[i]);
    tutti_fail_record(&error);
}

static enum tutti_status start_sendrecv(struct tutti_call *call, enum tutti_start how, struct tutti_work **work)
{
    struct tutti_work *parts[2];
    TUTTI_TRY(start_recv(call, how, &parts[0]));
    size_t n = 1;
    enum tutti_status status = start_send(call, how, &parts[1]);
    if (status >= 0) {
        n = 2;
        status = tutti_work_join(call->comm->context->engine, parts, 2, work);
    }
    if (status < 0) tutti_call_give_up(call, parts, n);
    return status;
}

enum tutti_status tutti_call_start(struct tutti_call *call, enum tutti_start how, struct tutti_work **work)
{
    static enum tutti_status (*const starts[])(struct tutti_call *, enum tutti_start, struct tutti_work **) = {
        [TUTTI_CALL_COLLECTIVE] = start_collective,
        [TUTTI_CALL_SEND] = start_send,
        [TUTTI_CALL_RECV] = start_recv,
        [TUTTI_CALL_SENDRECV] = start_sendrecv,
    };
    if (call->via == TUTTI_VIA_PACKED) return tutti_packed_start(call, how, work);
    return starts[call->type](call, how, work);
}

/* ---- calls that are kept longer than they last ---- */

enum tutti_status tutti_call_own(struct tutti_call *call)
{
    struct tutti_bind *bind = &call->job.bind;
    const size_t **tables[] = {&bind->counts, &bind->displs, &bind->in_counts, &bind->in_displs};
    size_t n = (size_t)call->comm->size, used = 0;
    call->tables = NULL;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(tables); i++) used += *tables[i] != NULL;
    if (used == 0) return TUTTI_OK;
    size_t *copy = tutti_alloc_array(used * n, sizeof(*copy));
    if (!copy) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for the tables of the call");
    call->tables = copy;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(tables); i++) {
        if (!*tables[i]) continue;
        memcpy(copy, *tables[i], n * sizeof(*copy));
        *tables[i] = copy;
        copy += n;
    }
    return TUTTI_OK;
}

void tutti_call_disown(struct tutti_call *call)
{
    tutti_free(call->tables);
    call->tables = NULL;
}
