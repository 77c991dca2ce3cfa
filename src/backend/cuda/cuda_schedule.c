/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls whose schedule is named: one launch of plan_R, whatever the schedule. */
#include "backend/cuda/cuda.h"

#include <math.h>
#include <string.h>

static bool folds(const struct tutti_backend_call *call)
{
    return tutti_kind_info(call->info.kind)->reduces;
}

static void *kernel_of(const struct cuda_backend *b, const struct tutti_backend_call *call)
{
    return b->kernels[CUDA_PLAN][folds(call) ? (uint32_t)call->info.dtype : (uint32_t)CUDA_MOVE].any;
}

static enum tutti_status refuse(const struct cuda_backend *b, const struct tutti_backend_call *call)
{
    if (call->bind.user || call->within)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "schedules with operations of the user's run on the host");
    if (!kernel_of(b, call))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "cuda has no kernel for schedules of %s",
                          tutti_dtype_name(call->info.dtype));
    return TUTTI_OK;
}

/* Everything of the parameter but what each call has of its own (fill). */
static enum tutti_status bind(struct cuda_backend *b, const struct tutti_backend_call *call, struct cuda_plan *out,
                              uint32_t *blocks)
{
    const struct cuda_place *place = &b->place;
    const struct cuda_program_place where = {place->layout, place->bounce, place->bounce_bytes, b->n, b->me};
    struct cuda_program_facts facts;
    TUTTI_TRY(refuse(b, call));
    pthread_mutex_lock(&b->lock);
    enum tutti_status status = cuda_programs_find(&b->programs, call->bind.schedule, &facts);
    pthread_mutex_unlock(&b->lock);
    return status < 0 ? status : cuda_program_bind(&facts, &where, &call->bind, out, blocks);
}

static void fill(const struct cuda_backend *b, const struct tutti_backend_call *call, struct cuda_call *out)
{
    out->seq = call->seq;
    out->timeout_ns = b->timeout_ns == TUTTI_NEVER ? 0 : b->timeout_ns;
    out->op = folds(call) ? (uint32_t)call->info.op : 0;
    out->divisor = call->bind.divide ? call->bind.divisor : 0;
    out->scales = call->bind.scale != NULL;
    if (out->scales) memcpy(out->factor, call->factor, tutti_dtype_bytes(call->info.dtype));
}

/* It is run because it was named: no time is predicted. */
double cuda_schedule_score(struct cuda_backend *b, const struct tutti_backend_call *call)
{
    struct cuda_plan ignored;
    uint32_t blocks;
    if (bind(b, call, &ignored, &blocks) >= 0) return 0;
    tutti_log(TUTTI_LOG_DEBUG, "a schedule does not run on the device: %s", tutti_last_error()->text);
    return HUGE_VAL;
}

enum tutti_status cuda_schedule_run(struct cuda_backend *b, const struct tutti_backend_call *call, void *stream)
{
    struct tutti_gpu_launch how = {.kernel = kernel_of(b, call), .stream = stream, .threads = CUDA_PLAN_THREADS};
    TUTTI_TRY(bind(b, call, &b->plan, &how.blocks));
    if (how.blocks == 0) return TUTTI_OK;
    fill(b, call, &b->plan.call);
    return tutti_gpu_launch(b->gpu, &how, &b->plan);
}
