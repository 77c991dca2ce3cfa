/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast: memory of all members' devices at one range of addresses, where what one sends to all is stored once. It
 * is part of what the communicator may take, and is used where the option asks for it, all devices offer it, none
 * serves two members, and a trial on every slot and block comes to what it should on every member. */
#include "backend/cuda/cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHARE_OF_SCRATCH 8           /* one part of so many, */
#define SHARE_UNIT ((size_t)2 << 20) /* in whole units of what drivers bind */
/* A call of the trial waits so long, at most, and a quarter of others' patience; after that it takes so long to leave,
 * at most. */
#define TRIAL_NS (30 * TUTTI_NS_PER_S)
#define LEAVE_NS (10 * TUTTI_NS_PER_S)
#define NAP_NS (UINT64_C(50) * 1000)

/* ---- calls ---- */

/* Calls in which each rank sends the same to all others, or nothing. */
static bool multicast_fits(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    const enum tutti_kind kind = call->info.kind;
    return place->cast_bytes > 0 && (kind == TUTTI_ALL_REDUCE || kind == TUTTI_ALL_GATHER || kind == TUTTI_BROADCAST) &&
           cuda_slot_fits(place, call, CUDA_MULTICAST, place->cast_bytes);
}

/* Lines, which a rank stores once: it still gets those of all others, but for a broadcast. */
static double multicast_cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    bool known;
    const uint32_t parts = call->info.kind == TUTTI_BROADCAST ? 1 : place->n - 1;
    return place->speed->multicast_ns +
           2.0 * parts * (double)cuda_block_bytes(place, call, &known) / place->speed->store_gbs;
}

static bool multicast_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                           struct cuda_step *out)
{
    return i == 0 && cuda_slot_step(place, call, CUDA_MULTICAST, place->cast_bytes, out);
}

const struct cuda_method cuda_multicast = {"multicast", false, multicast_fits, multicast_cost, multicast_step};

/* ---- opening ---- */

/* A gain is lost, and nothing else. */
static void go_without(const struct cuda_backend *b, const char *why)
{
    tutti_log(TUTTI_LOG_INFO, "rank %" PRIu32 ": no multicast: %s", b->me, why);
}

static enum tutti_status make_object(struct cuda_backend *b, size_t bytes)
{
    if (!tutti_gpu_has_multicast(b->gpu) || !b->place.has[CUDA_MULTICAST][CUDA_MOVE])
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "CUDA device %d (%s), its driver or the toolkit that built tutti has none, or "
                          "NCCL_NVLS_ENABLE is 0",
                          b->gpu->ordinal, b->gpu->name);
    if (bytes == 0)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "gpu_scratch is less than %zu bytes", SHARE_OF_SCRATCH * SHARE_UNIT);
    return b->me > 0 ? TUTTI_OK : tutti_gpu_multicast_make(b->gpu, b->n, bytes, b->object_offer, &b->object);
}

enum tutti_status cuda_multicast_open(struct cuda_backend *b, const struct tutti_device_config *config)
{
    const size_t bytes = b->scratch_bytes / SHARE_OF_SCRATCH / SHARE_UNIT * SHARE_UNIT;
    void *control;
    if (!config->multicast || b->n == 1) return TUTTI_OK;
    if (make_object(b, bytes) < 0) {
        go_without(b, tutti_last_error()->text);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_gpu_alloc_host(b->gpu, sizeof(*b->trial), &control)); /* later it could wait for a kernel */
    b->trial = control;
    b->trial_ns = config->timeout_ns && config->timeout_ns / 4 < TRIAL_NS ? config->timeout_ns / 4 : TRIAL_NS;
    b->object_bytes = bytes;
    b->scratch_bytes -= bytes;
    b->casts = true;
    return TUTTI_OK;
}

static enum tutti_status join(struct cuda_backend *b)
{
    if (b->me > 0) TUTTI_TRY(tutti_gpu_multicast_join(b->gpu, b->object_offer, &b->object));
    return tutti_gpu_multicast_add(b->object);
}

/* What all calls by multicast have in common. */
static enum tutti_status bind(struct cuda_backend *b)
{
    struct cuda_call *call = &b->multicast.x.call;
    void *own, *all;
    TUTTI_TRY(tutti_gpu_multicast_bind(b->object, &own, &all));
    *call = b->step.exchange.call;
    if (!cuda_layout_cast(b->n, b->object_bytes, b->place.layout.n_blocks, &call->layout))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%zu bytes are too few for %u ranks", b->object_bytes, b->n);
    for (uint32_t q = 0; q < b->n; q++) call->base[q] = own;
    b->multicast.all = all;
    return TUTTI_OK;
}

/* ---- the trial ----
 * Many calls in a row, without a pause, in the bounce memory: each rank has numbers of its own and the result so far.
 * A call adds up the numbers of all but one rank, who puts the result so far in; every third one is a broadcast of the
 * result, by the ranks in turn. So whatever comes late, twice or changed shows in the end. */

#define TRIAL_CALLS 24

struct trial {
    size_t bytes; /* of the numbers, and of the result */
    uint64_t *numbers, *result;
};

static bool is_broadcast(uint32_t i)
{
    return i % 3 == 2;
}

static void trial_numbers(const struct trial *trial, uint32_t rank, uint64_t *out)
{
    uint64_t seed = tutti_mix64(rank);
    for (size_t k = 0; k < trial->bytes / sizeof(*out); k++) out[k] = tutti_random64(&seed);
}

/* What becomes of it where all is well. */
static void trial_expect(const struct cuda_backend *b, const struct trial *trial)
{
    const size_t n = trial->bytes / sizeof(uint64_t);
    memset(trial->result, 0, trial->bytes);
    for (uint32_t q = 0; q < b->n; q++) {
        uint64_t times = 0;
        for (uint32_t i = 0; i < TRIAL_CALLS; i++) times += !is_broadcast(i) && i % b->n != q;
        trial_numbers(trial, q, trial->numbers);
        for (size_t k = 0; k < n; k++) trial->result[k] += times * trial->numbers[k];
    }
}

static enum tutti_status trial_launch(struct cuda_backend *b, const struct trial *trial, uint32_t i)
{
    struct cuda_multicast m = b->multicast;
    char *result = b->place.bounce + trial->bytes;
    const bool broadcast = is_broadcast(i), mine = i % b->n == b->me;
    const uint32_t threads = m.x.call.layout.line_bytes / 16;
    m.x.in = mine ? result : b->place.bounce;
    m.x.out = result;
    m.x.units = 1;
    m.x.result_bytes = broadcast ? 0 : trial->bytes;
    m.x.call.control = b->trial;
    m.x.call.timeout_ns = b->trial_ns;
    m.x.call.op = TUTTI_SUM;
    for (uint32_t q = 0; q < b->n; q++) {
        m.x.send[q].bytes = !broadcast || (mine && q != b->me) ? trial->bytes : 0;
        m.x.recv[q].bytes = !broadcast || (!mine && q == i % b->n) ? trial->bytes : 0;
    }
    const struct tutti_gpu_launch how = {.kernel = b->kernels[CUDA_MULTICAST][broadcast ? CUDA_MOVE : TUTTI_UINT64].any,
                                         .stream = b->lanes[0],
                                         .blocks = (uint32_t)((trial->bytes / 16 + threads - 1) / threads),
                                         .threads = threads,
                                         .overlaps = i % 2 == 1};
    return tutti_gpu_launch(b->gpu, &how, &m);
}

static bool all_are_alive(const struct cuda_backend *b)
{
    for (uint32_t q = 0; q < b->n; q++)
        if (q != b->me && b->transport->ops->life(b->transport, b->members[q]) != TUTTI_LIFE_ALIVE) return false;
    return true;
}

/* Until the stream has come to its end: in good time, or after it was stopped. */
static enum tutti_status trial_await(struct cuda_backend *b)
{
    const uint64_t until = tutti_deadline_ns(b->trial_ns + LEAVE_NS);
    enum tutti_status status;
    while ((status = tutti_gpu_stream_query(b->gpu, b->lanes[0])) == TUTTI_PENDING) {
        const uint64_t now = tutti_now_ns();
        if (now > until + LEAVE_NS) {
            b->stuck = true;
            cuda_stop(&b->base);
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the calls of the trial do not end");
        }
        if (now > until || !all_are_alive(b)) __atomic_store_n(&b->trial->stop, CUDA_STOPPED, __ATOMIC_SEQ_CST);
        tutti_sleep_ns(NAP_NS);
    }
    TUTTI_TRY(status);
    const uint64_t report = __atomic_load_n(&b->trial->report, __ATOMIC_ACQUIRE);
    if (report) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "what rank %u stored has not come", CUDA_REPORT_PEER(report));
    return __atomic_load_n(&b->trial->stop, __ATOMIC_ACQUIRE)
               ? tutti_fail(TUTTI_ERR_UNSUPPORTED, "the trial was not over in time")
               : TUTTI_OK;
}

static enum tutti_status trial_run(struct cuda_backend *b, const struct trial *trial)
{
    struct tutti_gpu_scope scope;
    enum tutti_status status = TUTTI_OK;
    trial_numbers(trial, b->me, trial->numbers);
    TUTTI_TRY(tutti_gpu_copy_now(b->gpu, b->place.bounce, trial->numbers, trial->bytes));
    TUTTI_TRY(tutti_gpu_set(b->gpu, b->place.bounce + trial->bytes, 0, trial->bytes));
    TUTTI_TRY(tutti_gpu_enter(b->gpu, &scope));
    for (uint32_t i = 0; i < TRIAL_CALLS && status >= 0; i++) status = trial_launch(b, trial, i);
    tutti_gpu_leave(&scope);
    if (status < 0) { /* what was enqueued must not outlast it */
        struct tutti_error why = *tutti_last_error();
        __atomic_store_n(&b->trial->stop, CUDA_STOPPED, __ATOMIC_SEQ_CST);
        (void)trial_await(b);
        return tutti_fail_record(&why);
    }
    TUTTI_TRY(trial_await(b));
    trial_expect(b, trial);
    TUTTI_TRY(tutti_gpu_copy_now(b->gpu, trial->numbers, b->place.bounce + trial->bytes, trial->bytes));
    return memcmp(trial->numbers, trial->result, trial->bytes) == 0
               ? TUTTI_OK
               : tutti_fail(TUTTI_ERR_UNSUPPORTED, "what was stored by it has come changed or late");
}

static enum tutti_status try_out(struct cuda_backend *b)
{
    const struct cuda_layout *layout = &b->multicast.x.call.layout;
    const size_t most = (size_t)layout->n_blocks * layout->line_bytes, room = b->place.bounce_bytes / 2 / 16 * 16;
    const struct trial trial = {room < most ? room : most, tutti_alloc(most), tutti_alloc(most)};
    const enum tutti_status status = trial.numbers && trial.result
                                         ? trial_run(b, &trial)
                                         : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a trial of multicast");
    tutti_free(trial.result);
    tutti_free(trial.numbers);
    if (status >= 0) b->place.cast_bytes = layout->line_bytes;
    return status;
}

/* ---- steps ---- */

bool cuda_multicast_extend(struct tutti_device_backend *backend, uint32_t step, enum tutti_status *outcome)
{
    static enum tutti_status (*const steps[])(struct cuda_backend *) = {join, bind, try_out};
    struct cuda_backend *b = (struct cuda_backend *)backend;
    if (!b->casts && b->object_bytes > 0) go_without(b, "some rank has none, or shares its device");
    if (!b->casts || step >= TUTTI_ARRAY_LEN(steps)) return false;
    *outcome = steps[step](b);
    if (*outcome < 0) go_without(b, tutti_last_error()->text);
    return true;
}

void cuda_multicast_retract(struct tutti_device_backend *backend, uint32_t member)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    if (member != b->me) {
        char why[32];
        snprintf(why, sizeof(why), "rank %" PRIu32 " can not", member);
        go_without(b, why);
    }
    b->place.cast_bytes = 0;
    b->casts = false;
}
