/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched export`: a schedule as a file for other programs. */

#include "sched.h"

#include "load/msccl.h"
#include "sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZE = 1 << 17, MAX_MSCCL = 1024, ELEMENT_BYTES = 4 };

static struct {
    const char *kind, *world, *format, *output;
    uint32_t root, radix;
    uint64_t bytes, slice;
} options;
static const struct tutti_arg args[] = {
    {"format", 'f', TUTTI_ARG_TEXT, &options.format, "F", "goal: LogGOPSim's text; msccl: MSCCL's XML (default msccl)"},
    {"kind", 'k', TUTTI_ARG_TEXT, &options.kind, "KIND", "such as all_reduce (default: the first that ALG offers)"},
    {"world", 'w', TUTTI_ARG_TEXT, &options.world, "W", "16 ranks, or groups such as 8x4 (default 8, or the plan's)"},
    {"root", 0, TUTTI_ARG_U32, &options.root, "R", "root of rooted kinds (default 0; MSCCL has no other)"},
    {"radix", 0, TUTTI_ARG_U32, &options.radix, "K", "radix of trees, dissemination, Bruck; parts of hierarchical"},
    {"bytes", 'b', TUTTI_ARG_SIZE, &options.bytes, "B", "goal: of the whole buffer (default 1M)"},
    {"slice", 0, TUTTI_ARG_SIZE, &options.slice, "B", "goal: a chunk goes in slices of at most this (default: in one)"},
    {"output", 'o', TUTTI_ARG_TEXT, &options.output, "FILE", "where it is written (default: to the terminal)"},
};
static const struct tutti_args spec = {
    .command = "tutti sched export",
    .usage = "ALG|FILE [options]",
    .about = "Writes what all ranks do in a call as a file for other programs. `tutti sched sim FILE.goal` and\n"
             "`tutti sched check FILE.xml` read them again. What each format can hold: docs/formats.md.",
    .args = args,
    .n_args = sizeof args / sizeof args[0],
};

/* What is to be written. */
struct subject {
    struct sched_subject of;
    enum tutti_kind kind;
    struct tutti_shape shape;
};

static bool world_parse(const struct sched_subject *subject, struct tutti_shape *shape)
{
    char *end = NULL;
    const unsigned long n = options.world ? strtoul(options.world, &end, 10) : subject->ranks ? subject->ranks : 8;
    shape->size = n > MAX_SIZE ? MAX_SIZE + 1 : (uint32_t)n;
    if (options.world && (*end || end == options.world)) {
        shape->size = 0;
        if (tutti_shape_parse_levels(shape, options.world) < 0) {
            tutti_args_fail(&spec, "--world: %s.", tutti_last_error()->text);
            return false;
        }
    }
    if (shape->size >= 1 && shape->size <= MAX_SIZE && (!options.world || *options.world != '-')) return true;
    tutti_args_fail(&spec, "--world %s: give a number of ranks, 1 to %d, or groups such as 8x4.", options.world,
                    (int)MAX_SIZE);
    return false;
}

/* The exit status: OK, or a sentence was written. */
static int subject_open(const char *name, struct subject *out)
{
    char reason[640];
    *out = (struct subject){.shape.root = options.root == UINT32_MAX ? 0 : options.root};
    if (!sched_subject_open(&spec, name, &out->of)) return out->of.code;
    const struct tutti_algorithm *algorithm = out->of.algorithm;
    while ((uint32_t)out->kind < TUTTI_N_KINDS && !algorithm->kinds[out->kind]) out->kind++;
    if (options.kind && !sched_kind_parse(&spec, options.kind, &out->kind)) return TUTTI_EXIT_USAGE;
    if (!sched_radix_choose(&spec, &out->of, options.radix, &out->shape.radix)) return TUTTI_EXIT_USAGE;
    if (!world_parse(&out->of, &out->shape)) return TUTTI_EXIT_USAGE;
    if (!tutti_algorithm_fits(algorithm, out->kind, &out->shape, reason, sizeof reason)) {
        tutti_args_fail(&spec, "%s.", reason);
        return TUTTI_EXIT_USAGE;
    }
    return TUTTI_EXIT_OK;
}

static enum tutti_status goal_write(const struct subject *subject, FILE *file)
{
    const uint32_t blocks = tutti_kind_blocks(subject->kind, subject->shape.size);
    const struct tutti_sim_work work = {.block_bytes = options.bytes / blocks / ELEMENT_BYTES * ELEMENT_BYTES,
                                        .element_bytes = ELEMENT_BYTES,
                                        .slice_bytes = options.slice,
                                        .active = 64};
    struct tutti_sim_program program;
    TUTTI_TRY(tutti_sim_program_make(subject->of.algorithm, subject->kind, &subject->shape, &work, &program));
    const bool written = tutti_sim_goal_write(&program, file);
    tutti_sim_program_fini(&program);
    return written ? TUTTI_OK : tutti_fail_errno(TUTTI_ERR_SYSTEM, "the program can not be written");
}

/* What is written is read again before it goes out. */
static enum tutti_status msccl_write(const struct subject *subject, FILE *file)
{
    struct sched_bundle bundle;
    struct tutti_plan plan;
    char *text = NULL, *copy = NULL, name[64];
    size_t bytes = 0;
    if (subject->shape.size > MAX_MSCCL)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "a plan of MSCCL has at most %d ranks here", (int)MAX_MSCCL);
    TUTTI_TRY(sched_bundle_seal(subject->of.algorithm, subject->kind, &subject->shape, true, &bundle));
    FILE *memory = open_memstream(&text, &bytes);
    enum tutti_status status = memory ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory to write a plan");
    if (memory) status = tutti_msccl_write((const struct tutti_schedule *const *)bundle.slots, bundle.n, memory);
    if (memory) fclose(memory);
    sched_bundle_free(&bundle);
    if (status >= 0 && !(copy = malloc(bytes + 1))) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan");
    if (status >= 0) {
        memcpy(copy, text, bytes + 1);
        status = tutti_msccl_load("the plan that was made", copy, bytes, &plan, name);
    }
    if (status >= 0) {
        tutti_plan_fini(&plan);
        if (fwrite(text, 1, bytes, file) != bytes)
            status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "the plan can not be written");
    }
    free(copy);
    free(text);
    return status;
}

static const struct format {
    const char *name;
    enum tutti_status (*write)(const struct subject *subject, FILE *file);
} formats[] = {{"goal", goal_write}, {"msccl", msccl_write}};

static int write_as(const struct format *format, const struct subject *subject)
{
    FILE *file = options.output ? fopen(options.output, "w") : stdout;
    if (!file) {
        fprintf(stderr, "tutti sched export: cannot write %s: %s\n", options.output, strerror(errno));
        return TUTTI_EXIT_WRONG;
    }
    enum tutti_status status = format->write(subject, file);
    if ((options.output ? fclose(file) : fflush(file)) != 0 && status >= 0)
        status =
            tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", options.output ? options.output : "stdout");
    if (status >= 0) return TUTTI_EXIT_OK;
    fprintf(stderr, "tutti sched export: %s\n", tutti_last_error()->text);
    if (options.output) remove(options.output);
    return TUTTI_EXIT_WRONG;
}

int sched_export(int argc, char **argv)
{
    struct subject subject;
    int n;
    memset(&options, 0, sizeof options);
    options.root = UINT32_MAX;
    options.bytes = 1 << 20;
    options.format = "msccl";
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (n != 1) return tutti_args_fail(&spec, "name one algorithm, for example: tutti sched export ring --world 4");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(formats); i++) {
        if (strcmp(formats[i].name, options.format) != 0) continue;
        const int code = subject_open(argv[argc - 1], &subject);
        return code == TUTTI_EXIT_OK ? write_as(&formats[i], &subject) : code;
    }
    return tutti_args_fail(&spec, "there is no format '%s'; there are goal and msccl.", options.format);
}
