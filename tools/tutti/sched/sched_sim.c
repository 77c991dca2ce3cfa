/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched sim`: how long a call takes, or a program in GOAL text, on a network that a rule describes. */

#include "sched.h"
#include "sim_network.h"

#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SIZE = 1 << 20, MAX_GOAL = 1 << 30 };

struct options {
    const char *kind, *levels, *export;
    uint32_t size, root, radix, active;
    uint64_t bytes, slice;
    bool json;
};
static struct options options;
static const struct tutti_arg args[] = {
    {"kind", 'k', TUTTI_ARG_TEXT, &options.kind, "KIND", "such as all_reduce (default: the first that ALG offers)"},
    {"size", 'n', TUTTI_ARG_U32, &options.size, "N", "number of ranks (default: the levels', or 8)"},
    {"levels", 'l', TUTTI_ARG_TEXT, &options.levels, "L", "groups of ranks, such as 8x16 or 8,8,7,8;2,2"},
    {"root", 0, TUTTI_ARG_U32, &options.root, "R", "root of rooted kinds (default 0)"},
    {"radix", 0, TUTTI_ARG_U32, &options.radix, "K", "radix of trees, dissemination, Bruck; parts of hierarchical"},
    {"bytes", 'b', TUTTI_ARG_SIZE, &options.bytes, "B", "of the whole buffer, on all ranks together (default 1M)"},
    {"slice", 0, TUTTI_ARG_SIZE, &options.slice, "B", "a chunk goes in slices of at most this (default: in one)"},
    {"active", 0, TUTTI_ARG_U32, &options.active, "N", "slices of a rank under way at once (default 64)"},
    SCHED_NETWORK_ARGS,
    {"export", 0, TUTTI_ARG_TEXT, &options.export, "FILE", "write the program as GOAL text"},
    {"json", 0, TUTTI_ARG_FLAG, &options.json, NULL, "one JSON object instead of sentences"},
};
static const struct tutti_args spec = {
    .command = "tutti sched sim",
    .usage = "ALG|FILE.so|FILE.goal [options]",
    .about =
        "Simulates a call on every rank of a world by discrete events, with the engine's own rule of issue, or runs\n"
        "a program in GOAL text, whose calc counts nanoseconds. What the networks charge: docs/prediction.md.\n"
        "Exit status 1 when the program can not end.",
    .args = args,
    .n_args = sizeof args / sizeof args[0],
};

/* ---- programs ---- */

/* A file as one block, the caller's to free; NULL and a sentence when it can not be read. */
static char *file_read(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long length = -1;
    if (file && fseek(file, 0, SEEK_END) == 0) length = ftell(file);
    if (length > MAX_GOAL) {
        tutti_args_fail(&spec, "%s has %ld bytes: at most %d are read.", path, length, (int)MAX_GOAL);
    } else if (length < 0 || fseek(file, 0, SEEK_SET) != 0 || !(text = malloc((size_t)length + 1)) ||
               fread(text, 1, (size_t)length, file) != (size_t)length) {
        tutti_args_fail(&spec, "cannot read %s.", path);
        free(text);
        text = NULL;
    }
    if (file) fclose(file);
    *n = length < 0 ? 0 : (size_t)length;
    return text;
}

static bool is_goal(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".goal") == 0;
}

static int goal_open(const char *path, struct tutti_sim_program *out)
{
    size_t n;
    char *text = file_read(path, &n);
    if (!text) return TUTTI_EXIT_USAGE;
    enum tutti_status status = tutti_sim_goal_read(path, text, n, out);
    free(text);
    if (status >= 0) return TUTTI_EXIT_OK;
    fprintf(stderr, "%s\n", tutti_last_error()->text);
    return TUTTI_EXIT_WRONG;
}

static void show_progress(void *argument, uint32_t n_done, uint32_t n)
{
    (void)argument;
    if (n_done % 1024 == 0 || n_done == n) fprintf(stderr, "\rsealing: %u of %u ranks", n_done, n);
    if (n_done == n) fprintf(stderr, "\r%40s\r", "");
}

static bool shape_of(const struct sched_subject *subject, struct tutti_shape *shape)
{
    *shape = (struct tutti_shape){.size = options.size == UINT32_MAX ? 0 : options.size,
                                  .root = options.root == UINT32_MAX ? 0 : options.root};
    if (!sched_radix_choose(&spec, subject, options.radix, &shape->radix)) return false;
    if (options.levels && tutti_shape_parse_levels(shape, options.levels) < 0) {
        tutti_args_fail(&spec, "%s.", tutti_last_error()->text);
        return false;
    }
    if (shape->size == 0) shape->size = 8;
    if (shape->size <= MAX_SIZE) return true;
    tutti_args_fail(&spec, "%u ranks can not be simulated: at most %d.", shape->size, (int)MAX_SIZE);
    return false;
}

static int schedule_open(const char *name, struct tutti_sim_program *out)
{
    struct sched_subject subject;
    struct tutti_shape shape;
    enum tutti_kind kind = TUTTI_ALL_REDUCE;
    if (!sched_subject_open(&spec, name, &subject)) return TUTTI_EXIT_USAGE;
    while (!options.kind && kind < TUTTI_N_KINDS && !subject.algorithm->kinds[kind]) kind++;
    bool known = (!options.kind || sched_kind_parse(&spec, options.kind, &kind)) && shape_of(&subject, &shape);
    int code = TUTTI_EXIT_USAGE;
    if (known) {
        const struct tutti_sim_work work = {.block_bytes = options.bytes / tutti_kind_blocks(kind, shape.size),
                                            .element_bytes = 4,
                                            .slice_bytes = options.slice,
                                            .active = options.active,
                                            .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
        code = TUTTI_EXIT_OK;
        if (tutti_sim_program_make(subject.algorithm, kind, &shape, &work, out) < 0) {
            fprintf(stderr, "tutti sched sim: %s\n", tutti_last_error()->text);
            code = TUTTI_EXIT_WRONG;
        }
    }
    sched_subject_close(&subject);
    return code;
}

/* ---- results ---- */

static bool export(const struct tutti_sim_program *program)
{
    FILE *file = fopen(options.export, "w");
    bool ok = file && tutti_sim_goal_write(program, file);
    if (file && fclose(file) != 0) ok = false;
    if (!ok) fprintf(stderr, "tutti sched sim: cannot write %s\n", options.export);
    return ok;
}

static void show(const char *name, const struct tutti_sim_program *program, const struct tutti_sim_result *result,
                 double seconds)
{
    double us = (double)result->end_ps / 1e6;
    if (options.json) {
        printf("{\"program\":\"%s\",\"network\":\"%s\",\"ranks\":%u,\"time_us\":%.6f,\"operations\":%u,"
               "\"messages\":%llu,\"bytes\":%llu,\"events\":%llu,\"seconds\":%.3f}\n",
               name, sched_network.net, program->n_ranks, us, program->n_ops, (unsigned long long)result->n_messages,
               (unsigned long long)result->n_bytes, (unsigned long long)result->n_events, seconds);
        return;
    }
    printf("%s on %u ranks, network %s: %.3f us\n", name, program->n_ranks, sched_network.net, us);
    if (!is_goal(name) && result->end_ps > 0)
        printf("  %.3f GB/s of the buffer of %llu bytes\n", (double)options.bytes / us / 1000,
               (unsigned long long)options.bytes);
    printf("  %u operations, %llu messages of %llu bytes in all\n", program->n_ops,
           (unsigned long long)result->n_messages, (unsigned long long)result->n_bytes);
    for (uint32_t r = 0; is_goal(name) && r < program->n_ranks && program->n_ranks <= 16; r++)
        printf("  rank %u ends at %.3f us\n", r, (double)result->rank_end_ps[r] / 1e6);
    printf("  %llu events in %.3f s, %.1f million a second\n", (unsigned long long)result->n_events, seconds,
           seconds > 0 ? (double)result->n_events / seconds / 1e6 : 0);
}

static int simulate(const char *name, const struct tutti_sim_program *program)
{
    struct tutti_sim_network *network;
    struct tutti_sim_result result;
    if (!sched_network_open(&spec, program, options.levels, &network)) return TUTTI_EXIT_USAGE;
    uint64_t begin = tutti_now_ns();
    enum tutti_status status = tutti_sim_run(program, network, &result);
    network->ops->close(network);
    if (status < 0) {
        fprintf(stderr, "%s%s%s\n", is_goal(name) ? name : "tutti sched sim", ": ", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    show(name, program, &result, (double)(tutti_now_ns() - begin) / TUTTI_NS_PER_S);
    tutti_free(result.rank_end_ps);
    return TUTTI_EXIT_OK;
}

int sched_sim(int argc, char **argv)
{
    struct tutti_sim_program program;
    int n;
    options = (struct options){.size = UINT32_MAX, .root = UINT32_MAX, .active = 64, .bytes = 1 << 20};
    sched_network = SCHED_NETWORK_DEFAULT;
    enum tutti_args_result parsed = tutti_args_parse(&spec, argc, argv, &n);
    if (parsed != TUTTI_ARGS_OK) return (int)parsed;
    if (n != 1) return tutti_args_fail(&spec, "name one algorithm, or one file of GOAL text.");
    const char *name = argv[argc - 1];
    if (!sched_network.net) sched_network.net = is_goal(name) ? "loggops" : "ports";
    int code = is_goal(name) ? goal_open(name, &program) : schedule_open(name, &program);
    if (code != TUTTI_EXIT_OK) return code;
    if (options.export && !export(&program)) code = TUTTI_EXIT_WRONG;
    if (code == TUTTI_EXIT_OK) code = simulate(name, &program);
    tutti_sim_program_fini(&program);
    return code;
}
