/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched`: list, draw and prove the algorithms of the library, or one of your own from a file. */

#include "sched.h"

#include "algo/algo.h"
#include "load/load.h"

#include <stdio.h>
#include <string.h>

struct words {
    int argc;
    char **argv;
};

static int sim_act(void *argument)
{
    const struct words *words = argument;
    return sched_sim(words->argc, words->argv);
}

/* A file's code may crash: then the simulation does so in a process of its own, which has all the time it wants. */
static int sim(int argc, char **argv)
{
    enum { LONG = 60000 };
    struct words words = {argc, argv};
    const struct sched_apart task = {.act = sim_act, .argument = &words, .size = LONG};
    char how[96];
    int code = TUTTI_EXIT_OK;
    bool any = false;
    for (int i = 1; i < argc; i++) any = any || (argv[i][0] != '-' && tutti_load_is_path(argv[i]));
    if (!any) return sched_sim(argc, argv);
    if (sched_apart(&task, &code, how, sizeof how) < 0)
        snprintf(how, sizeof how, "can not be run: %.70s", tutti_last_error()->text);
    if (!how[0]) return code;
    fprintf(stderr, "tutti sched sim: the file %s\n", how);
    return TUTTI_EXIT_WRONG;
}

int tutti_cmd_sched(int argc, char **argv)
{
    static const struct tutti_command verbs[] = {
        {"list", "               ", "the algorithms: kinds, needs, radix, source", sched_list},
        {"show", "ALG --size N   ", "draw a schedule in the terminal, or as SVG", sched_show},
        {"check", "[ALG|FILE]     ", "prove algorithms for every rank at once", sched_check},
        {"mutants", "[ALG|FILE]     ", "how well the checker refuses: faults by rules", sched_mutants},
        {"new", "NAME [--python]", "write a file to begin an algorithm with", sched_new},
        {"sim", "ALG|FILE.goal  ", "how long a call takes on a network, by discrete events", sim},
        {"search", "[options]      ", "proved schedules that are faster than the choice of the library", sched_search},
        {"job", "FILE           ", "the efficiency of a training job by number of nodes", sched_job},
        {"export", "ALG|FILE       ", "write a schedule for other programs: GOAL text, MSCCL's XML", sched_export},
        {"startup", "               ", "how long ranks take until all of them can send", sched_startup},
    };
    static const struct tutti_commands commands = {
        "tutti sched", verbs, TUTTI_ARRAY_LEN(verbs),
        "ALG is a name of the list, with a radix where it has one (tree:4), or the path of a file: one function in\n"
        "C or Python (see docs/write_a_collective.md), a plan of MSCCL (FILE.xml, FILE.json: docs/formats.md), or a "
        "shared\n"
        "object that exports `tutti_algorithm`:\n"
        "  tutti sched check ./mine.c\n"
        "\n'tutti sched VERB --help' tells the options of a verb.\n"};
    tutti_algorithms_init();
    return tutti_commands_run(&commands, argc, argv);
}

/* `tutti sched list`: a row for all kinds of an algorithm that need the same. */

static const struct {
    uint32_t bit;
    const char *word;
} needs[] = {
    {TUTTI_NEEDS_COMMUTATIVE, "commutative"},
    {TUTTI_NEEDS_POWER_OF_TWO, "power-of-two"},
    {TUTTI_NEEDS_LEVELS, "levels"},
    {TUTTI_NEEDS_EQUAL_BLOCKS, "equal-blocks"},
    {TUTTI_NEEDS_EQUAL_GROUPS, "equal-groups"},
    {TUTTI_KEEPS_RANK_ORDER, "rank-order"},
    {TUTTI_OWN_COUNTS_ONLY, "own-counts"},
};

static void needs_text(uint32_t bits, char *out, size_t capacity)
{
    out[0] = '\0';
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(needs); i++)
        if (bits & needs[i].bit) tutti_append(out, capacity, "%s%s", out[0] ? "," : "", needs[i].word);
    if (!out[0]) snprintf(out, capacity, "-");
}

static bool alike(const struct tutti_schedule_ops *a, const struct tutti_schedule_ops *b)
{
    return a && b && a->needs == b->needs && a->default_radix == b->default_radix;
}

static void print_row(const struct tutti_algorithm *algorithm, uint32_t first, bool *named)
{
    const struct tutti_schedule_ops *ops = algorithm->kinds[first];
    char kinds[160] = "", bits[96], radix[16] = "-";
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        if (!alike(algorithm->kinds[kind], ops)) continue;
        if (kind < first) return; /* printed with that one */
        tutti_append(kinds, sizeof kinds, "%s%s", kinds[0] ? " " : "", tutti_kind_name((enum tutti_kind)kind));
    }
    needs_text(ops->needs, bits, sizeof bits);
    if (ops->needs & TUTTI_TAKES_RADIX) snprintf(radix, sizeof radix, "any");
    if (ops->default_radix) snprintf(radix, sizeof radix, "%u", ops->default_radix);
    printf("%-17s %-5s %-23s %s\n", *named ? "" : algorithm->name, radix, bits, kinds);
    *named = true;
}

static void print_rows(const struct tutti_algorithm *algorithm)
{
    bool named = false;
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++)
        if (algorithm->kinds[kind]) print_row(algorithm, kind, &named);
}

static void print_source(const struct tutti_algorithm *algorithm, const char *source)
{
    printf("%-17s %s\n%-17s %s\n", algorithm->name, algorithm->help ? algorithm->help : "", "", source ? source : "");
}

/* Loads those of the option algorithms; the exit status. */
static int own_load(void)
{
    const struct tutti_algorithm *only[TUTTI_N_KINDS];
    struct tutti_config config;
    enum tutti_status status = tutti_config_init(&config, NULL, 0);
    if (status >= 0) {
        status = tutti_load_list(&config, only);
        tutti_config_fini(&config);
    }
    if (status < 0) fprintf(stderr, "tutti sched list: %s\n", tutti_last_error()->text);
    return status < 0 ? TUTTI_EXIT_WRONG : TUTTI_EXIT_OK;
}

int sched_list(int argc, char **argv)
{
    static const struct tutti_args spec = {
        .command = "tutti sched list",
        .usage = "",
        .no_positional = true,
        .about = "Needs: commutative: does not keep the operands' order; levels: a shape with hosts of several ranks;\n"
                 "equal-groups: as many on each; equal-blocks: not for v forms. Promises: rank-order: folds 0, 1, 2, "
                 "... from left to right;\n"
                 "own-counts: v forms know only the own row and column. Radix: the default; any: one may be given; -: "
                 "none."};
    int n;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n);
    if (result != TUTTI_ARGS_OK) return (int)result;
    const int code = own_load();
    printf("%-17s %-5s %-23s %s\n", "ALGORITHM", "RADIX", "NEEDS AND PROMISES", "KINDS");
    for (size_t i = 0; i < tutti_n_algorithms; i++) print_rows(tutti_algorithms[i]);
    for (const struct tutti_loaded *own = tutti_loaded_newest(); own; own = own->older) print_rows(own->algorithm);
    printf("\nWHAT THEY DO, AND WHERE THEY COME FROM\n");
    for (size_t i = 0; i < tutti_n_algorithms; i++) print_source(tutti_algorithms[i], tutti_algorithms[i]->source);
    for (const struct tutti_loaded *own = tutti_loaded_newest(); own; own = own->older)
        print_source(own->algorithm, own->path);
    return code;
}
