/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast: memory of all members' devices at one range of addresses, where what one sends to all is stored once. It
 * is part of what the communicator may take, and is had where the option asks for it, all devices offer it, none
 * serves two members, and a trial with every slot and block brings every byte to every member. */
#include "backend/cuda.h"

#include <inttypes.h>
#include <string.h>

#define SHARE 8                /* of the scratch, one part of so many, */
#define UNIT ((size_t)2 << 20) /* in whole units of what can be bound */
#define TRIAL_NS (10 * TUTTI_NS_PER_S)
#define TRIALS 6 /* every slot by three calls */

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

static enum tutti_status open_object(struct cuda_backend *b)
{
    if (!tutti_gpu_has_multicast(b->gpu) || !b->place.has[CUDA_MULTICAST][CUDA_MOVE])
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "CUDA device %d (%s), its driver or the toolkit that built tutti has none", b->gpu->ordinal,
                          b->gpu->name);
    if (b->scratch_bytes / SHARE < UNIT)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "gpu_scratch is less than %zu bytes", SHARE * UNIT);
    if (b->me > 0) return TUTTI_OK;
    return tutti_gpu_multicast_make(b->gpu, b->n, b->scratch_bytes / SHARE / UNIT * UNIT, b->object_offer, &b->object);
}

void cuda_multicast_open(struct cuda_backend *b, const struct tutti_device_config *config)
{
    if (!config->multicast || b->n == 1) return;
    b->casts = open_object(b) >= 0;
    if (!b->casts) return go_without(b, tutti_last_error()->text);
    b->object_bytes = b->scratch_bytes / SHARE / UNIT * UNIT;
    b->scratch_bytes -= b->object_bytes;
}

static enum tutti_status join(struct cuda_backend *b)
{
    if (b->me > 0) TUTTI_TRY(tutti_gpu_multicast_join(b->gpu, b->object_offer, &b->object));
    return tutti_gpu_multicast_add(b->object);
}

/* From here on calls by multicast could be made; others do not know of the memory yet. */
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

/* ---- the trial ---- */

struct trial {
    struct cuda_control *control; /* its own: what fails here is no failure of the communicator */
    unsigned char *sent, *got;
    size_t bytes; /* of a part; the bounce memory holds one, and one of each rank */
};

/* Bytes of a rank in a call of the trial. */
static void trial_fill(unsigned char *out, size_t bytes, uint32_t rank, uint32_t i)
{
    uint64_t seed = tutti_mix64((uint64_t)rank << 32 | i);
    for (size_t at = 0; at + sizeof(seed) <= bytes; at += sizeof(seed)) {
        const uint64_t word = tutti_random64(&seed);
        memcpy(out + at, &word, sizeof(word));
    }
}

/* All but every third call gather from all; that one is a broadcast, by the ranks in turn. */
static bool sends(const struct cuda_backend *b, uint32_t rank, uint32_t i)
{
    return i % 3 != 1 || rank == i % b->n;
}

static struct cuda_multicast trial_call(const struct cuda_backend *b, const struct trial *trial, uint32_t i)
{
    struct cuda_multicast m = b->multicast;
    m.x.in = b->place.bounce;
    m.x.out = b->place.bounce + trial->bytes;
    m.x.units = 1;
    m.x.call.control = trial->control;
    m.x.call.timeout_ns = TRIAL_NS;
    for (uint32_t q = 0; q < b->n; q++) {
        m.x.send[q] = (struct cuda_part){0, sends(b, b->me, i) ? trial->bytes : 0};
        m.x.recv[q] = (struct cuda_part){q * trial->bytes, sends(b, q, i) ? trial->bytes : 0};
    }
    return m;
}

static enum tutti_status trial_run(struct cuda_backend *b, struct trial *trial, uint32_t i)
{
    const struct cuda_multicast m = trial_call(b, trial, i);
    const uint32_t threads = b->multicast.x.call.layout.line_bytes / 16;
    const struct tutti_gpu_launch how = {.kernel = b->kernels[CUDA_MULTICAST][CUDA_MOVE].any,
                                         .stream = b->lanes[0],
                                         .blocks = (uint32_t)((trial->bytes / 16 + threads - 1) / threads),
                                         .threads = threads};
    struct tutti_gpu_scope scope;
    trial_fill(trial->sent, trial->bytes, b->me, i);
    TUTTI_TRY(tutti_gpu_copy_now(b->gpu, b->place.bounce, trial->sent, trial->bytes));
    TUTTI_TRY(tutti_gpu_set(b->gpu, b->place.bounce + trial->bytes, 0, b->n * trial->bytes));
    TUTTI_TRY(tutti_gpu_enter(b->gpu, &scope));
    const enum tutti_status status = tutti_gpu_launch(b->gpu, &how, &m);
    tutti_gpu_leave(&scope);
    TUTTI_TRY(status);
    TUTTI_TRY(tutti_gpu_stream_sync(b->gpu, b->lanes[0]));
    if (__atomic_load_n(&trial->control->stop, __ATOMIC_ACQUIRE))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "what rank %u stored by it has not come",
                          CUDA_REPORT_PEER(__atomic_load_n(&trial->control->report, __ATOMIC_RELAXED)));
    return TUTTI_OK;
}

static enum tutti_status trial_check(struct cuda_backend *b, struct trial *trial, uint32_t i)
{
    for (uint32_t q = 0; q < b->n; q++) {
        memset(trial->sent, 0, trial->bytes);
        if (sends(b, q, i)) trial_fill(trial->sent, trial->bytes, q, i);
        const void *from = b->place.bounce + (1 + q) * trial->bytes;
        TUTTI_TRY(tutti_gpu_copy_now(b->gpu, trial->got, from, trial->bytes));
        if (memcmp(trial->got, trial->sent, trial->bytes) != 0)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "what rank %u stored by it has come changed", q);
    }
    return TUTTI_OK;
}

static enum tutti_status trial_all(struct cuda_backend *b, struct trial *trial)
{
    for (uint32_t i = 0; i < TRIALS; i++) {
        TUTTI_TRY(trial_run(b, trial, i));
        TUTTI_TRY(trial_check(b, trial, i));
    }
    return TUTTI_OK;
}

static enum tutti_status try_out(struct cuda_backend *b)
{
    const struct cuda_layout *layout = &b->multicast.x.call.layout;
    const size_t room = b->place.bounce_bytes / (b->n + 1), most = (size_t)layout->n_blocks * layout->line_bytes;
    struct trial trial = {.bytes = (room < most ? room : most) / 16 * 16};
    void *control;
    TUTTI_TRY(tutti_gpu_alloc_host(b->gpu, sizeof(*trial.control), &control));
    trial.control = control;
    trial.sent = tutti_alloc(trial.bytes);
    trial.got = tutti_alloc(trial.bytes);
    const enum tutti_status status = trial.sent && trial.got
                                         ? trial_all(b, &trial)
                                         : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a trial of multicast");
    struct tutti_error why = *tutti_last_error();
    tutti_free(trial.got);
    tutti_free(trial.sent);
    tutti_gpu_free_host(b->gpu, control);
    if (status < 0) return tutti_fail_record(&why);
    b->place.cast_bytes = layout->line_bytes;
    return TUTTI_OK;
}

/* ---- steps ---- */

bool cuda_multicast_extend(struct tutti_device_backend *backend, uint32_t step, enum tutti_status *outcome)
{
    static enum tutti_status (*const steps[])(struct cuda_backend *) = {join, bind, try_out};
    struct cuda_backend *b = (struct cuda_backend *)backend;
    if (!b->casts && b->object_bytes > 0) { /* as it seemed before the cards were seen */
        go_without(b, "some rank has none, or shares its device");
        cuda_multicast_retract(backend);
    }
    if (!b->casts || step >= TUTTI_ARRAY_LEN(steps)) return false;
    *outcome = steps[step](b);
    if (*outcome < 0) go_without(b, tutti_last_error()->text);
    return true;
}

void cuda_multicast_retract(struct tutti_device_backend *backend)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    tutti_gpu_multicast_free(b->object);
    b->object = NULL;
    b->object_bytes = b->place.cast_bytes = 0;
    b->casts = false;
}
