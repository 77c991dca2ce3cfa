/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti tune: measures the constants from which the library predicts what is fastest on this host, and keeps them where
 * the library looks. It starts as many ranks as there are CPUs, and measures each constant in several rounds, in turns,
 * so that a disturbance touches few values of each. Constants of GPUs: tune_gpu.c. */

#include "tools/tutti/cmd.h"
#include "tune.h"
#include "tune_gpu.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_LEAST 3
#define ROUNDS_MOST 9
#define NAP_NS (300 * TUTTI_NS_PER_MS) /* between rounds: what disturbs one is over */
#define ENOUGH_NS (3 * TUTTI_NS_PER_S) /* no further round, where a machine is so slow or so busy */
#define WAYS_NS (6 * TUTTI_NS_PER_S)   /* of all worlds together */
#define MAX_RANKS 256

struct request {
    const char *output, *ways; /* ways: the file whose ways alone are measured, NULL: constants */
    const char *device;
    uint32_t n_ranks, seconds; /* on devices; n_ranks 0: as many as there are */
    bool dry_run;
};

/* values[round] of one constant; spread: how far all but the least and the greatest of them are apart. */
struct found {
    double values[ROUNDS_MOST], median, spread;
};

static void found_sum_up(struct found *found, size_t rounds)
{
    found->median = tutti_median(found->values, rounds);
    found->spread = found->median > 0 ? (found->values[rounds - 2] - found->values[1]) / found->median : 0;
}

static float *constant(struct tutti_machine *machine, const char *name, const struct tutti_constant **info)
{
    size_t i = 0;
    while (strcmp(tutti_machine_info(i)->name, name) != 0) i++;
    *info = tutti_machine_info(i);
    return tutti_machine_at(machine, i);
}

/* Into the machine, within the range of the constant; what could not be measured keeps its value. */
static void machine_set(struct tutti_machine *machine, const char *name, double value)
{
    const struct tutti_constant *info;
    float *at = constant(machine, name, &info);
    if (value > 0) *at = fminf(fmaxf((float)value, info->minimum), info->maximum);
}

/* Rows need one another, in the order of the table, so each round uses the values that it found itself. */
static enum tutti_status round_measure(struct tune *tune, bool crowded, size_t round,
                                       const struct tutti_machine *machine, struct found *found)
{
    struct tutti_machine known = *machine;
    for (size_t i = 0; i < tune_n_rows; i++) {
        double *value = &found[i].values[round];
        if (crowded && tune_rows[i].spins) continue;
        TUTTI_TRY(tune_measure(tune, &tune_rows[i], &known, value));
        machine_set(&known, tune_rows[i].name, *value);
    }
    return TUTTI_OK;
}

/* Rank 0's clock decides for all. */
static enum tutti_status another_round(struct tune *tune, uint64_t until, uint8_t *out)
{
    *out = tutti_now_ns() < until;
    return tutti_broadcast(out, 1, TUTTI_UINT8, 0, tune->comm, NULL, NULL);
}

static enum tutti_status measure(struct tune *tune, struct tutti_machine *machine, struct found *found, size_t *rounds)
{
    const uint64_t until = tutti_deadline_ns(ENOUGH_NS);
    const bool crowded = tune_is_crowded(tune);
    size_t n = 0;
    for (uint8_t more = true; n < ROUNDS_MOST && more; n++) {
        if (n > 0) tutti_sleep_ns(NAP_NS);
        TUTTI_TRY(round_measure(tune, crowded, n, machine, found));
        if (n + 1 >= ROUNDS_LEAST) TUTTI_TRY(another_round(tune, until, &more));
    }
    for (size_t i = 0; i < tune_n_rows; i++) {
        found_sum_up(&found[i], n);
        machine_set(machine, tune_rows[i].name, found[i].median);
    }
    *rounds = n;
    return TUTTI_OK;
}

static void show(const struct tutti_machine *machine, const struct found *found, size_t rounds, uint32_t n)
{
    struct tutti_machine copy = *machine;
    printf("# %u rank%s, median of %zu round%s; spread: of all but the highest and the lowest round\n", n,
           tutti_plural(n), rounds, tutti_plural(rounds));
    printf("# %-15s %12s %7s  %s\n", "constant", "value", "spread", "what it is");
    for (size_t i = 0; i < tutti_machine_n(); i++) {
        const struct tutti_constant *info = tutti_machine_info(i);
        char spread[16] = "-", note[32] = "";
        for (size_t row = 0; row < tune_n_rows; row++) {
            if (strcmp(tune_rows[row].name, info->name) != 0) continue;
            if (found[row].median > 0) snprintf(spread, sizeof spread, "%.0f%%", 100 * found[row].spread);
            if (!(found[row].median > 0)) snprintf(note, sizeof note, " (not measured)");
        }
        printf("  %-15s %12.2f %7s  %s%s\n", info->name, (double)*tutti_machine_at(&copy, i), spread, info->help, note);
    }
}

/* Where the constants go; NULL: nowhere. */
static const char *output_path(const struct request *request, char *own, size_t capacity)
{
    if (request->output) return request->output;
    return tutti_machine_path(own, capacity) ? own : NULL;
}

static enum tutti_status keep(const struct request *request, const struct tutti_machine *machine, uint32_t n)
{
    char own[PATH_MAX], about[128], date[32] = "";
    time_t now = time(NULL);
    struct tm local;
    const char *path = output_path(request, own, sizeof own);
    if (request->dry_run) return TUTTI_OK;
    if (!path)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "neither XDG_CACHE_HOME nor HOME names a directory: say --output FILE");
    if (localtime_r(&now, &local)) strftime(date, sizeof date, "%F %R", &local);
    snprintf(about, sizeof about, "tutti %s, %s, %u rank%s; TUTTI_TUNING=FILE uses it", TUTTI_VERSION_TEXT, date, n,
             tutti_plural(n));
    TUTTI_TRY(tutti_machine_write(path, machine, about));
    printf("# written to %s%s\n", path, path == own ? ", which is used from now on" : "");
    return TUTTI_OK;
}

/* Whatever file there is now must not matter, right or wrong. */
static const struct tutti_option untuned = {"tuning", "off"};

/* What nobody measures: the cache, as the kernel tells it. */
static enum tutti_status machine_begin(struct tutti_machine *machine)
{
    struct tutti_config config;
    TUTTI_TRY(tutti_config_init(&config, &untuned, 1));
    enum tutti_status status = tutti_machine_load(&config, machine);
    tutti_config_fini(&config);
    return status;
}

static enum tutti_status measure_and_keep(const struct request *request, struct tutti_comm *comm, struct found *found)
{
    struct tutti_machine machine;
    struct tune tune;
    size_t rounds;
    TUTTI_TRY(machine_begin(&machine));
    TUTTI_TRY(tune_open(comm, machine.cache_kib, &tune));
    enum tutti_status status = measure(&tune, &machine, found, &rounds);
    if (status >= 0 && tune.rank == 0) {
        show(&machine, found, rounds, tune.n);
        status = keep(request, &machine, tune.n);
    }
    tune_close(&tune);
    return status;
}

static enum tutti_status be_a_rank(const struct request *request)
{
    struct tutti_context *context = NULL;
    struct tutti_comm *comm = NULL;
    struct found *found = calloc(tune_n_rows, sizeof *found);
    enum tutti_status status = found ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "out of memory");
    if (status >= 0) status = tutti_context_create(&untuned, 1, &context);
    if (status >= 0) status = tutti_comm_create(context, NULL, &comm);
    if (status >= 0) status = measure_and_keep(request, comm, found);
    tutti_comm_destroy(comm);
    tutti_context_destroy(context);
    free(found);
    return status;
}

/* Worlds whose ways are measured: two ranks, one a CPU, and two a CPU, where ranks take turns. */
#define N_WORLDS 3
static uint32_t worlds_of(uint32_t n_cpus, uint32_t worlds[N_WORLDS])
{
    uint32_t n = 0;
    worlds[n++] = 2;
    if (n_cpus > 2 && n_cpus <= MAX_RANKS) worlds[n++] = n_cpus;
    if (n_cpus * 2 > 2 && n_cpus * 2 <= MAX_RANKS) worlds[n++] = n_cpus * 2;
    return n;
}

static int worlds_run(const char *path, uint32_t n_cpus)
{
    char tune[] = "tune", option[] = "--ways", file[PATH_MAX];
    char *argv[] = {tune, option, file};
    uint32_t worlds[N_WORLDS];
    const uint32_t n = worlds_of(n_cpus, worlds);
    int status = TUTTI_EXIT_OK;
    snprintf(file, sizeof file, "%s", path);
    for (uint32_t w = 0; w < n && status == TUTTI_EXIT_OK; w++)
        status = tutti_start_ranks(worlds[w], "spread", (int)TUTTI_ARRAY_LEN(argv), argv);
    return status;
}

/* Constants of ranks that share a GPU say nothing of others. */
static int gpus_start(const struct request *request, int argc, char **argv)
{
    const struct tutti_device_ops *kind;
    if (strcmp(request->device, "cuda") != 0) {
        fprintf(stderr, "tutti tune: --device is \"%s\" but can be cpu, cuda\n", request->device);
        return TUTTI_EXIT_USAGE;
    }
    if (tutti_device_use(request->device, &kind) < 0) {
        fprintf(stderr, "tutti tune: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    const uint32_t n = request->n_ranks ? request->n_ranks : (uint32_t)kind->count();
    if (n >= 2) return tutti_start_ranks(n, "none", argc, argv);
    fprintf(stderr, "tutti tune: one GPU has no peers to be measured (--ranks 2 tries it with ranks that share it)\n");
    return TUTTI_EXIT_WRONG;
}

static int rank_run(const struct request *request)
{
    uint32_t worlds[N_WORLDS];
    if (strcmp(request->device, "cpu") != 0) {
        const uint64_t limit_ns = request->seconds * TUTTI_NS_PER_S;
        if (tune_gpu(request->device, request->output, limit_ns, request->dry_run) >= 0) return TUTTI_EXIT_OK;
        fprintf(stderr, "tutti tune: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    const uint64_t limit_ns = WAYS_NS / worlds_of((uint32_t)sysconf(_SC_NPROCESSORS_ONLN), worlds);
    const enum tutti_status status = request->ways ? tune_ways(request->ways, limit_ns) : be_a_rank(request);
    if (status >= 0) return TUTTI_EXIT_OK;
    fprintf(stderr, "tutti tune: %s\n", tutti_last_error()->text);
    return TUTTI_EXIT_WRONG;
}

int tutti_cmd_tune(int argc, char **argv)
{
    struct request request = {.output = NULL, .device = "cpu", .seconds = 12};
    const struct tutti_arg args[] = {
        {"output", 'o', TUTTI_ARG_TEXT, &request.output, "FILE", "where to write (default: where the library looks)"},
        {"dry-run", 0, TUTTI_ARG_FLAG, &request.dry_run, NULL, "measure and print the constants, write nothing"},
        {"device", 0, TUTTI_ARG_TEXT, &request.device, "WHICH", "cpu, or cuda: the GPUs of this host (default cpu)"},
        {"ranks", 'n', TUTTI_ARG_U32, &request.n_ranks, "N", "on GPUs: ranks (default: one for each)"},
        {"seconds", 0, TUTTI_ARG_U32, &request.seconds, "S", "on GPUs: until when larger sizes are begun (default 12)"},
        {"ways", 0, TUTTI_ARG_TEXT, &request.ways, "FILE", "measure the ways alone, beside the constants in FILE"},
    };
    const struct tutti_args spec = {
        .command = "tutti tune",
        .usage = "[options]",
        .no_positional = true,
        .about =
            "Measures this host, in less than ten seconds: latencies, bandwidths, what a call and a wake-up cost;\n"
            "then how long each way of each collective takes beside what these constants predict, for two ranks,\n"
            "one and two a CPU. The library chooses by that for each call. Best on a machine that does nothing\n"
            "else meanwhile. --device cuda, in less than twenty seconds: what the methods of GPUs take, for as\n"
            "many ranks as there are GPUs, or as --ranks says.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
    };
    int n_positional;
    const enum tutti_args_result parsed = tutti_args_parse(&spec, argc, argv, &n_positional);
    const uint32_t n_cpus = tutti_cpus_allowed(), n = n_cpus < 2 ? 2 : n_cpus > MAX_RANKS ? MAX_RANKS : n_cpus;
    if (parsed != TUTTI_ARGS_OK) return (int)parsed;
    if (tutti_inside_a_job()) return rank_run(&request);
    if (strcmp(request.device, "cpu") != 0) return gpus_start(&request, argc, argv);
    const int status = request.ways ? TUTTI_EXIT_OK : tutti_start_ranks(n, "spread", argc, argv);
    char own[PATH_MAX];
    const char *path = request.ways ? request.ways : output_path(&request, own, sizeof own);
    return status != TUTTI_EXIT_OK || request.dry_run || !path ? status : worlds_run(path, n_cpus);
}
