/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched sim`: how long a call takes, or a program in GOAL text, on a network that a rule describes. */

#include "sched.h"
#include "sim_network.h"
#include "sim_program.h"
#include "sim_report.h"

#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SIZE = 1 << 20, MAX_GOAL = 1 << 30, MAX_COMPARED = 16, ELEMENT_BYTES = 4 };
enum { BYTES = 1 << 20, ACTIVE = 64, CALLS = 1 }; /* where the options say nothing */

struct options {
    const char *kind, *world, *levels, *svg;
    struct tutti_arg_list compare;
    uint32_t size, root, radix, active, calls, rounds;
    uint64_t bytes, slice;
    bool full, json;
};
static struct options options;
static const struct tutti_arg args[] = {
    {"kind", 'k', TUTTI_ARG_TEXT, &options.kind, "KIND", "such as all_reduce (default: the first that ALG offers)"},
    {"world", 'w', TUTTI_ARG_TEXT, &options.world, "W",
     "16 ranks, or 8x16384: 16384 groups of 8 (--size and --levels)"},
    {"size", 'n', TUTTI_ARG_U32, &options.size, "N", "number of ranks (default: the levels', or 8)"},
    {"levels", 'l', TUTTI_ARG_TEXT, &options.levels, "L", "groups of ranks, such as 8x16 or 8,8,7,8;2,2"},
    {"root", 0, TUTTI_ARG_U32, &options.root, "R", "root of rooted kinds (default 0)"},
    {"radix", 0, TUTTI_ARG_U32, &options.radix, "K", "radix of trees, dissemination, Bruck; parts of hierarchical"},
    {"bytes", 'b', TUTTI_ARG_SIZE, &options.bytes, "B", "of the whole buffer, on all ranks together (default 1M)"},
    {"slice", 0, TUTTI_ARG_SIZE, &options.slice, "B", "a chunk goes in slices of at most this (default: in one)"},
    {"calls", 0, TUTTI_ARG_U32, &options.calls, "N", "so many, one after another on each rank (default 1)"},
    {"active", 0, TUTTI_ARG_U32, &options.active, "N", "slices of a rank under way at once (default 64)"},
    SCHED_NETWORK_ARGS,
    {"compare", 'c', TUTTI_ARG_LIST, &options.compare, "ALG",
     "simulate this one, too, and show a table; again for more"},
    {"svg", 0, TUTTI_ARG_TEXT, &options.svg, "FILE", "draw ranks over time, and the critical path"},
    {"rounds", 0, TUTTI_ARG_U32, &options.rounds, "N",
     "simulate only the first N rounds, and estimate the rest from them"},
    {"full", 0, TUTTI_ARG_FLAG, &options.full, NULL, "simulate every rank, however many there are and however alike"},
    {"json", 0, TUTTI_ARG_FLAG, &options.json, NULL, "one JSON object instead of sentences"},
};
static const struct tutti_args spec = {
    .command = "tutti sched sim",
    .usage = "ALG|FILE|FILE.goal [options] [--compare ALG2 ...]",
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

static void show_bar(const char *what, uint32_t n_done, uint32_t n)
{
    static const char full[] = "########################################";
    int width = (int)sizeof(full) - 1, done = (int)((uint64_t)n_done * (uint64_t)width / n);
    fprintf(stderr, "\r%s [%.*s%*s] %3u %%", what, done, full, width - done, "",
            (uint32_t)(UINT64_C(100) * n_done / n));
    if (n_done == n) fprintf(stderr, "\r%70s\r", "");
}

static void show_progress(void *argument, uint32_t n_done, uint32_t n)
{
    (void)argument;
    if (n_done % 1024 == 0 || n_done == n) show_bar("sealing", n_done, n);
}

static void show_run(void *argument, uint32_t n_done, uint32_t n)
{
    (void)argument;
    show_bar("running", n_done, n);
}

/* --world is --size when it is a number, else --levels. */
static bool world_parse(void)
{
    if (!options.world) return true;
    if (options.levels || options.size != UINT32_MAX) {
        tutti_args_fail(&spec, "--world says all that --size and --levels say: give one of them.");
        return false;
    }
    char *end;
    unsigned long n = strtoul(options.world, &end, 10);
    if (*end || end == options.world || *options.world == '-')
        options.levels = options.world;
    else
        options.size = n > UINT32_MAX - 1 ? UINT32_MAX - 1 : (uint32_t)n;
    if (*end || n > 0) return true;
    tutti_args_fail(&spec, "--world %s: give a number of ranks, or groups of ranks such as 8x16384.", options.world);
    return false;
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
    if (shape->size == 0) shape->size = subject->ranks ? subject->ranks : 8;
    if (!options.levels) options.size = shape->size; /* what is compared runs in the same world */
    if (shape->size <= MAX_SIZE) return true;
    tutti_args_fail(&spec, "%u ranks can not be simulated: at most %d.", shape->size, (int)MAX_SIZE);
    return false;
}

/* Bytes of a block that holds whole elements, and of the buffer that has these blocks. */
static bool block_of(struct sim_report *report, uint64_t *block)
{
    uint32_t blocks = tutti_kind_blocks(report->kind, report->n_ranks);
    if (report->kind == TUTTI_BARRIER) options.bytes = 0;
    *block = options.bytes / blocks / ELEMENT_BYTES * ELEMENT_BYTES;
    report->bytes = *block * blocks;
    if (*block > 0 || options.bytes == 0) return true;
    tutti_args_fail(&spec, "--bytes %llu: the blocks of %u ranks would be empty: give at least %llu.",
                    (unsigned long long)options.bytes, report->n_ranks, (unsigned long long)blocks * ELEMENT_BYTES);
    return false;
}

/* The kind and the shape of a call; false, and a sentence, when the options make none. */
static bool call_open(const struct sched_subject *subject, struct sim_report *report, struct tutti_shape *shape,
                      struct tutti_sim_work *work)
{
    while (!options.kind && report->kind < TUTTI_N_KINDS && !subject->algorithm->kinds[report->kind]) report->kind++;
    if (options.kind && !sched_kind_parse(&spec, options.kind, &report->kind)) return false;
    if (report->kind == TUTTI_N_KINDS) {
        tutti_args_fail(&spec, "%s offers no kind of collective.", report->name);
        return false;
    }
    if (!shape_of(subject, shape)) return false;
    report->n_ranks = shape->size;
    *work = (struct tutti_sim_work){.element_bytes = ELEMENT_BYTES,
                                    .slice_bytes = options.slice,
                                    .active = options.active,
                                    .calls = options.calls,
                                    .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
    return block_of(report, &work->block_bytes) && sched_network_costs(&spec, report->bytes, work);
}

static int schedule_open(struct sim_report *report, struct tutti_sim_program *out)
{
    struct sched_subject subject;
    struct tutti_shape shape;
    struct tutti_sim_work work;
    if (!sched_subject_open(&spec, report->name, &subject)) return subject.code;
    if (!call_open(&subject, report, &shape, &work)) return TUTTI_EXIT_USAGE;
    const struct sim_call call = {subject.algorithm, report->kind, &shape, &work, options.full, options.rounds};
    return sim_program_open(&call, report, out) ? TUTTI_EXIT_OK : TUTTI_EXIT_WRONG;
}

/* ---- one program ---- */

static uint64_t cpu_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * TUTTI_NS_PER_S + (uint64_t)now.tv_nsec;
}

static int run(const struct tutti_sim_program *program, struct sim_report *report)
{
    struct tutti_sim_network *network;
    if (!sched_network_open(&spec, program, options.levels, &network)) return TUTTI_EXIT_USAGE;
    const struct tutti_sim_watch watch = {.traced = true, .progress = isatty(STDERR_FILENO) ? show_run : NULL};
    uint64_t begin = tutti_now_ns(), cpu = cpu_ns();
    enum tutti_status status = tutti_sim_run_watched(program, network, &watch, &report->result);
    report->cpu_seconds = (double)(cpu_ns() - cpu) / TUTTI_NS_PER_S;
    report->seconds[1] = (double)(tutti_now_ns() - begin) / TUTTI_NS_PER_S;
    uint32_t copies = program->turn.world > 0 ? program->turn.world / program->turn.classes : 1;
    report->result.n_messages *= copies;
    report->result.n_bytes *= copies;
    if (status >= 0) sim_report_network(report, network);
    if (status >= 0) status = sim_report_moments(report, program, network);
    if (status >= 0 && report->sampled > 0) sim_report_extrapolate(report, program);
    bool drawn = status < 0 || !options.svg || sim_draw(report, program, network, options.svg);
    network->ops->close(network);
    if (status >= 0) return drawn ? TUTTI_EXIT_OK : TUTTI_EXIT_WRONG;
    snprintf(report->refused, sizeof(report->refused), "%s", tutti_last_error()->text);
    return TUTTI_EXIT_WRONG;
}

static int simulate(const char *name, struct sim_report *report)
{
    struct tutti_sim_program program;
    uint64_t begin = tutti_now_ns();
    *report = (struct sim_report){
        .name = name, .network = sched_network.net, .goal = is_goal(name), .levels = options.levels};
    int code = report->goal ? goal_open(name, &program) : schedule_open(report, &program);
    if (code != TUTTI_EXIT_OK) return code;
    report->seconds[0] = (double)(tutti_now_ns() - begin) / TUTTI_NS_PER_S;
    report->n_ranks = program.turn.world > 0 ? program.turn.world : program.n_ranks;
    report->n_ops = program.n_ops;
    report->n_steps = program.n_steps;
    report->n_rounds = program.n_rounds;
    report->n_slices = program.n_slices;
    code = run(&program, report);
    tutti_sim_program_fini(&program);
    return code;
}

/* Where few ranks stood for all but not quite, all of them are simulated if they can be. */
static int simulate_exactly(const char *name, struct sim_report *report)
{
    int code = simulate(name, report);
    bool again = report->refused[0] || report->result.n_unclear > 0 || report->symmetry.rounded;
    if (code == TUTTI_EXIT_USAGE || options.full || report->classes == 0 || !report->all_fit || !again) return code;
    sim_report_fini(report);
    options.full = true;
    code = simulate(name, report);
    options.full = false;
    return code;
}

/* ---- all of them ---- */

/* The names after --compare, by commas or one by one, go behind the first; false: there are too many. */
static bool add_compared(const char **names, size_t *n)
{
    for (size_t i = 0; i < options.compare.n; i++) {
        char *text = (char *)(uintptr_t)options.compare.values[i], *rest; /* a text of argv, which is ours */
        for (char *name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
            if (*n == MAX_COMPARED) return false;
            names[(*n)++] = name;
        }
    }
    return true;
}

/* Only what is alike is compared: the kind of the first is that of all. */
static int simulate_all(const char *const *names, size_t n, struct sim_report *reports, size_t *n_done)
{
    int worst = TUTTI_EXIT_OK;
    for (size_t i = 0; i < n; i++) {
        int code = simulate_exactly(names[i], &reports[i]);
        *n_done = i + 1;
        if (!options.kind && i == 0) options.kind = tutti_kind_name(reports[0].kind);
        if (code != TUTTI_EXIT_OK) worst = code;
        if (code == TUTTI_EXIT_USAGE) break;
        if (reports[i].refused[0] && !options.json && n == 1)
            fprintf(stderr, "%s: %s\n", reports[i].goal ? names[i] : spec.command, reports[i].refused);
    }
    return worst;
}

static int answer(const char *const *names, size_t n)
{
    struct sim_report reports[MAX_COMPARED] = {{0}};
    size_t n_done = 0;
    int code = simulate_all(names, n, reports, &n_done);
    bool told =
        code == TUTTI_EXIT_OK || (code == TUTTI_EXIT_WRONG && (n > 1 || (options.json && reports[0].refused[0])));
    if (told && options.json)
        sim_report_json(reports, n, stdout);
    else if (told && n > 1)
        sim_report_compare(reports, n, stdout);
    else if (told)
        sim_report_show(&reports[0], stdout);
    for (size_t i = 0; i < n_done; i++) sim_report_fini(&reports[i]);
    return code;
}

/* The options that GOAL text leaves no room for, as they were given: "--bytes, --slice"; empty: none. */
static const char *unused_by_goal(char *out, size_t capacity)
{
    const struct {
        bool given;
        const char *name;
    } unused[] = {{options.kind, "--kind"},
                  {options.size != UINT32_MAX || options.world, "--world"},
                  {options.root != UINT32_MAX, "--root"},
                  {options.radix != 0, "--radix"},
                  {options.bytes != BYTES, "--bytes"},
                  {options.slice != 0, "--slice"},
                  {options.calls != CALLS, "--calls"},
                  {options.active != ACTIVE, "--active"},
                  {options.rounds != 0, "--rounds"},
                  {options.full, "--full"},
                  {sched_network.machine, "--machine"},
                  {sched_network.copy, "--copy"},
                  {sched_network.fold, "--fold"}};
    out[0] = '\0';
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(unused); i++)
        if (unused[i].given) tutti_append(out, capacity, "%s%s", out[0] ? ", " : "", unused[i].name);
    return out;
}

int sched_sim(int argc, char **argv)
{
    char unused[256];
    const char *names[MAX_COMPARED];
    size_t n_names = 0;
    int n;
    options =
        (struct options){.size = UINT32_MAX, .root = UINT32_MAX, .active = ACTIVE, .calls = CALLS, .bytes = BYTES};
    sched_network = SCHED_NETWORK_DEFAULT;
    enum tutti_args_result parsed = tutti_args_parse(&spec, argc, argv, &n);
    if (parsed != TUTTI_ARGS_OK) return (int)parsed;
    if (sched_network_help()) return TUTTI_EXIT_OK;
    if (n < 1 || n > MAX_COMPARED || (n > 1 && options.compare.n == 0))
        return tutti_args_fail(&spec, "name one algorithm, or one file of GOAL text; more of them after --compare.");
    for (int i = 0; i < n; i++) names[n_names++] = argv[argc - n + i];
    if (!add_compared(names, &n_names)) return tutti_args_fail(&spec, "at most %d are compared.", (int)MAX_COMPARED);
    for (size_t i = 0; i < n_names; i++)
        if (is_goal(names[i]) && n_names > 1)
            return tutti_args_fail(&spec, "%s: a program in GOAL text is simulated alone.", names[i]);
    if (is_goal(names[0]) && unused_by_goal(unused, sizeof unused)[0])
        return tutti_args_fail(
            &spec, "%s: for algorithms alone, since GOAL text says who does what, and how long it takes.", unused);
    if (n_names > 1 && options.svg) return tutti_args_fail(&spec, "--svg draws one program.");
    if (!world_parse()) return TUTTI_EXIT_USAGE;
    if (!sched_network.net) sched_network.net = is_goal(names[0]) ? "loggops" : "ports";
    return answer(names, n_names);
}
