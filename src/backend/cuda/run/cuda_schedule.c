/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls whose schedule is named: one launch of plan_R, whatever the schedule. */
#include "backend/cuda/run/cuda_backend.h"

#include <math.h>

static bool folds(const struct tutti_backend_call *call)
{
    return tutti_kind_info(call->info.kind)->reduces;
}

static enum tutti_status refuse(const struct cuda_backend *b, const struct tutti_backend_call *call)
{
    if (call->bind.user || call->within)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "schedules with operations of the user's run on the host");
    if (!cuda_has(&b->site, call, CUDA_PLAN))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "cuda has no kernel for schedules of %s",
                          tutti_dtype_name(call->info.dtype));
    return TUTTI_OK;
}

/* Everything of the parameter but its call. */
static enum tutti_status bind(struct cuda_backend *b, const struct tutti_backend_call *call, struct cuda_plan *out,
                              uint32_t *blocks)
{
    const struct cuda_site *site = &b->site;
    const struct cuda_program_place where = {site->layout, site->bounce, site->bounce_bytes, b->site.n, b->site.me};
    struct cuda_program_facts facts;
    TUTTI_TRY(refuse(b, call));
    pthread_mutex_lock(&b->lock);
    enum tutti_status status = cuda_programs_find(&b->programs, call->bind.schedule, &facts);
    pthread_mutex_unlock(&b->lock);
    return status < 0 ? status : cuda_program_bind(&facts, &where, &call->bind, out, blocks);
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
    struct cuda_step *step = &b->step;
    cuda_step_begin(step, CUDA_PLAN, NULL, NULL);
    if (folds(call)) cuda_step_fold(call, step);
    step->threads = CUDA_PLAN_THREADS;
    TUTTI_TRY(bind(b, call, &b->plan, &step->blocks));
    return cuda_step_run(b, call, stream);
}
