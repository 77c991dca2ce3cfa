/* SPDX-License-Identifier: BSD-3-Clause */
/* One run of `tutti bench`: opened on the host or on devices, whose points are measured by bench_measure.c and
 * bench_explain.c, or by bench_gpu.c. */

#include "bench.h"

#include <stdlib.h>

enum tutti_status bench_run_open(struct tutti_comm *comm, const struct bench_settings *settings, struct bench_run **out)
{
    struct bench_run *run = calloc(1, sizeof *run);
    if (!run) return TUTTI_ERR_MEMORY;
    run->comm = comm;
    run->settings = settings;
    enum tutti_status status = TUTTI_OK;
    if (settings->cuda) {
        status = bench_gpu_open(comm, settings, &run->gpu);
    } else if (tutti_comm_size(comm) > 1) {
        status = tutti_mem_alloc(comm, 4096, &run->line);
        if (status == TUTTI_OK) status = tutti_window_create(comm, run->line, 4096, &run->window);
    }
    if (status < 0) {
        bench_run_close(run);
        return status;
    }
    *out = run;
    return TUTTI_OK;
}

void bench_run_close(struct bench_run *run)
{
    bench_gpu_close(run->gpu);
    tutti_window_destroy(run->window);
    if (run->line) (void)tutti_mem_free(run->comm, run->line);
    free(run);
}

enum tutti_status bench_measure(struct bench_run *run, const struct bench_case *c, struct bench_point *out)
{
    return run->gpu ? bench_gpu_measure(run->gpu, run->settings, c, out) : bench_host_measure(run, c, out);
}

enum tutti_status bench_explain(struct bench_run *run, const struct bench_case *c, struct bench_cell *out)
{
    return run->gpu ? bench_gpu_explain(run->gpu, run->settings, c, out) : bench_host_explain(run, c, out);
}
