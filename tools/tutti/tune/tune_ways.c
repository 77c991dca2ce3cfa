/* SPDX-License-Identifier: BSD-3-Clause */
/* How long the ways of back end flat take beside their predictions (model/ways.h): each collective, in each sort of
 * memory, at each size, as `tutti bench --explain` measures them. Sizes grow, and what the time does not suffice for
 * is left out: it is taken for like the largest one measured. */

#include "tune.h"

#include "base/config.h"
#include "model/ways.h"
#include "tools/tutti/bench/bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKEND "flat:"
#define ROWS_MOST 512
#define SIZE_OF_PAGES 2 /* from this size on pages matter */

struct rows {
    struct tutti_way_times rows[ROWS_MOST];
    size_t n;
};

static struct tutti_way_times *row_of(struct rows *rows, const struct tutti_way_times *like)
{
    for (size_t i = 0; i < rows->n; i++) {
        struct tutti_way_times *row = &rows->rows[i];
        if (row->memory == like->memory && row->kind == like->kind && strcmp(row->name, like->name) == 0) return row;
    }
    if (rows->n == ROWS_MOST) return NULL;
    rows->rows[rows->n] = *like;
    return &rows->rows[rows->n++];
}

static void cell_take(struct rows *rows, const struct bench_cell *cell, enum tutti_way_memory memory, size_t size)
{
    struct tutti_way_times like = {.ranks = (uint32_t)cell->c.n_ranks, .memory = memory};
    if (!tutti_kind_parse(cell->c.op->info->name, &like.kind)) return;
    for (size_t i = 0; i < cell->n_ways; i++) {
        const struct bench_way *way = &cell->ways[i];
        /* The smallest calls are so short that to name a way takes as long as the way. */
        if (size == 0 && !way->chosen) continue;
        snprintf(like.name, sizeof like.name, "%s", way->name + strlen(BACKEND));
        struct tutti_way_times *row = row_of(rows, &like);
        if (row && way->predicted_us > 0) row->times[size] = (float)(way->measured_us / way->predicted_us);
    }
}

/* One collective at one size. Rank 0's clock says for all whether there is time for it; the smallest size is measured
 * in any case, so that each file has all collectives, however busy the machine is. */
static enum tutti_status cell_measure(struct bench_run *run, const struct bench_op *op, enum tutti_way_memory memory,
                                      size_t size, uint64_t until, struct rows *rows)
{
    struct bench_case c = {.op = op, .rank = tutti_comm_rank(run->comm), .n_ranks = tutti_comm_size(run->comm)};
    struct bench_cell cell;
    uint8_t goes_on = size == 0 || tutti_now_ns() < until;
    TUTTI_TRY(tutti_broadcast(&goes_on, 1, TUTTI_UINT8, 0, run->comm, NULL, NULL));
    c.dtype = TUTTI_FLOAT32, c.reduction = TUTTI_SUM;
    bench_case_size(&c, (size_t)TUTTI_WAY_LEAST << (TUTTI_WAY_OCTAVES * size));
    const bool sized = bench_count(op, 1, 1) > 0; /* but a barrier */
    if (!goes_on || (sized ? c.count == 0 : size > 0)) return TUTTI_OK;
    const enum tutti_status status = bench_explain(run, &c, &cell);
    if (status >= 0) cell_take(rows, &cell, memory, size);
    return status == TUTTI_ERR_UNSUPPORTED ? TUTTI_OK : status;
}

/* Where buffers are smaller than a few pages it does not matter how large pages are. */
static void small_copy(struct rows *rows)
{
    for (size_t i = 0, n = rows->n; i < n; i++) {
        struct tutti_way_times like = rows->rows[i];
        like.memory = TUTTI_WAY_HUGE;
        memset(like.times + SIZE_OF_PAGES, 0, sizeof like.times - SIZE_OF_PAGES * sizeof *like.times);
        (void)row_of(rows, &like);
    }
}

static enum tutti_status memory_measure(struct tutti_comm *comm, enum tutti_way_memory memory, uint64_t until,
                                        struct rows *rows)
{
    const bool mapped = memory == TUTTI_WAY_MAPPED;
    const struct bench_settings settings = {.iterations = 1,
                                            .rounds = 1,
                                            .group = 1,
                                            .explain = true,
                                            .mapped = mapped,
                                            .pages = mapped ? NULL : tutti_way_memories[memory],
                                            .only = BACKEND,
                                            .brief = true};
    struct bench_run *run = NULL;
    enum tutti_status status = bench_run_open(comm, &settings, &run);
    if (memory == TUTTI_WAY_HUGE) small_copy(rows);
    for (size_t size = memory == TUTTI_WAY_HUGE ? SIZE_OF_PAGES : 0; size < TUTTI_WAY_SIZES && status >= 0; size++)
        for (size_t op = 0; op < bench_n_ops && status >= 0; op++)
            status = cell_measure(run, &bench_ops[op], memory, size, until, rows);
    struct tutti_error why = *tutti_last_error();
    if (run) bench_run_close(run);
    return status < 0 ? tutti_fail_record(&why) : TUTTI_OK;
}

static enum tutti_status all_measure(struct tutti_comm *comm, const char *path, uint64_t limit_ns, struct rows *rows)
{
    const uint64_t start = tutti_now_ns();
    for (int m = 0; m < TUTTI_WAY_MEMORIES; m++)
        TUTTI_TRY(memory_measure(comm, (enum tutti_way_memory)m,
                                 start + limit_ns * (uint64_t)(m + 1) / TUTTI_WAY_MEMORIES, rows));
    if (tutti_comm_rank(comm) != 0) return TUTTI_OK;
    printf("# %zu ways of %d ranks, in %.1f s\n", rows->n, tutti_comm_size(comm),
           (double)(tutti_now_ns() - start) / TUTTI_NS_PER_S);
    return tutti_ways_append(path, rows->rows, rows->n);
}

/* The constants of the file without its ways: predictions are to be those of the constants alone, also where other
 * worlds have added theirs. The copy is this rank's own. */
static enum tutti_status constants_copy(const char *path, char *copy)
{
    const struct tutti_option tuning = {"tuning", path};
    struct tutti_machine machine;
    struct tutti_config config;
    TUTTI_TRY(tutti_config_init(&config, &tuning, 1));
    const enum tutti_status status = tutti_machine_load(&config, &machine);
    tutti_config_fini(&config);
    if (status < 0) return status;
    const int fd = mkstemp(copy);
    if (fd < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be made", copy);
    close(fd);
    return tutti_machine_write(copy, &machine, "a copy of tutti tune");
}

static enum tutti_status measure_by(const char *constants, const char *path, uint64_t limit_ns, struct rows *rows)
{
    const struct tutti_option tuning = {"tuning", constants};
    struct tutti_context *context = NULL;
    struct tutti_comm *comm = NULL;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.device = TUTTI_DEVICE_NONE;
    enum tutti_status status = tutti_context_create(&tuning, 1, &context);
    if (status >= 0) status = tutti_comm_create(context, &config, &comm);
    if (status >= 0) status = all_measure(comm, path, limit_ns, rows);
    struct tutti_error why = *tutti_last_error();
    tutti_comm_destroy(comm);
    tutti_context_destroy(context);
    return status < 0 ? tutti_fail_record(&why) : TUTTI_OK;
}

enum tutti_status tune_ways(const char *path, uint64_t limit_ns)
{
    char copy[] = "/tmp/tutti-ways-XXXXXX";
    struct rows *rows = calloc(1, sizeof *rows);
    enum tutti_status status = rows ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "out of memory");
    if (status >= 0) status = constants_copy(path, copy);
    if (status >= 0) status = measure_by(copy, path, limit_ns, rows);
    (void)unlink(copy); /* which there may not be */
    free(rows);
    return status;
}
