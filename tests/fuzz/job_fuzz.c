/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptions of training jobs from anybody: they are refused with a sentence, or a step of them takes a time that is
 * none below zero. */
#include "fuzz.h"

#include "sim/job.h"

#include <math.h>
#include <stdlib.h>

static enum tutti_status seconds(void *argument, const struct tutti_job_call *call, double *out)
{
    (void)argument;
    *out = 1e-6 + 1e-10 * (double)call->bytes;
    return TUTTI_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const struct tutti_job_times times = {seconds, NULL};
    struct tutti_job job;
    struct tutti_job_point point;
    tutti_job_init(&job);
    if (n < 1 << 16 && tutti_job_read("fuzz", (const char *)bytes, n, &job) >= 0 && tutti_job_check(&job) >= 0) {
        if (job.steps > 2) job.steps = 2;
        if (job.accumulate > 16) job.accumulate = 16;
        for (int strong = 0; strong < 2; strong++)
            if ((uint64_t)job.stages * job.microbatches < 10000 && job.ranks_per_node < 100 &&
                tutti_job_step(&job, job.nodes[0] % 100 + 1, strong == 1, &times, &point) >= 0 && point.possible &&
                !(point.step_s >= 0 && isfinite(point.step_s) && point.efficiency >= 0))
                abort();
    }
    tutti_job_fini(&job);
    return 0;
}
