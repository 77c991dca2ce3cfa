/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched mutants`: how well the checker refuses, as a table of rules. */

#include "sched.h"

#include "algo/algo.h"
#include "verify/mutants.h"

#include <stdio.h>

static struct options {
    uint32_t sites;
    uint64_t seed;
    bool verbose;
} options;
static const struct tutti_arg args[] = {
    {"sites", 0, TUTTI_ARG_U32, &options.sites, "N", "mutants of each rule in each algorithm and kind (default 3)"},
    {"seed", 0, TUTTI_ARG_SIZE, &options.seed, "S", "places are taken by it (default 1)"},
    {"verbose", 'v', TUTTI_ARG_FLAG, &options.verbose, NULL, "a sentence of the checker for each rule, too"},
};
static const struct tutti_args spec = {
    .command = "tutti sched mutants",
    .usage = "[ALG|FILE] [options]",
    .about =
        "Plants faults by rules in right schedules of 5 or 8 ranks, of every algorithm and kind, and has them "
        "checked.\n"
        "What the checker accepts is run by a plain engine on integers, which shares no code with it: SAME are the\n"
        "mutants that came to the right result in all runs, as they change nothing; MISSED are the others. Exit "
        "status\n"
        "1 when one was missed.",
    .args = args,
    .n_args = sizeof args / sizeof args[0],
};

static int report(const struct tutti_mutants *mutants, uint64_t began_ns)
{
    uint32_t n = 0, n_caught = 0, n_same = 0, n_missed = 0;
    printf("%-26s %-6s %7s %7s %6s %6s  %s\n", "RULE", "BY", "COUNT", "CAUGHT", "SAME", "MISSED", "FAULT");
    for (uint32_t i = 0; i < TUTTI_MUTANT_RULES; i++) {
        const struct tutti_mutant_rule *rule = tutti_mutant_rule(i);
        printf("%-26s %-6s %7u %7u %6u %6u  %s\n", rule->name, rule->sealed ? "sealer" : "author", mutants->rules[i].n,
               mutants->rules[i].n_caught, mutants->rules[i].n_same, mutants->rules[i].n_missed, rule->what);
        if (options.verbose && mutants->rules[i].n_caught) printf("    %s\n", mutants->rules[i].caught);
        if (mutants->rules[i].n_missed) printf("    MISSED: %s\n", mutants->rules[i].missed);
        n += mutants->rules[i].n, n_caught += mutants->rules[i].n_caught;
        n_same += mutants->rules[i].n_same, n_missed += mutants->rules[i].n_missed;
    }
    printf("%u of %u mutants caught by %d rules in %u algorithms and kinds, %.1f s; %u change nothing, %u missed\n",
           n_caught, n, TUTTI_MUTANT_RULES, mutants->n_pairs, (double)(tutti_now_ns() - began_ns) / 1e9, n_same,
           n_missed);
    return n_missed ? TUTTI_EXIT_WRONG : TUTTI_EXIT_OK;
}

/* A file's algorithm, in a process of its own. */
struct task {
    const struct tutti_algorithm *const *algorithms;
    size_t n;
    uint64_t began_ns;
};

static int run(void *argument)
{
    const struct task *task = argument;
    struct tutti_mutants mutants;
    if (tutti_mutants_run(task->algorithms, task->n, options.sites, options.seed, &mutants) < 0) {
        fprintf(stderr, "%s: %s\n", spec.command, tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    return report(&mutants, task->began_ns);
}

int sched_mutants(int argc, char **argv)
{
    struct sched_subject subject = {0};
    struct task task = {tutti_algorithms, tutti_n_algorithms, tutti_now_ns()};
    char how[96];
    int n, code = TUTTI_EXIT_OK;
    options = (struct options){.sites = 3, .seed = 1};
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (n > 1) return tutti_args_fail(&spec, "one algorithm at a time, or none for all.");
    if (options.sites == 0 || options.sites > 1000)
        return tutti_args_fail(&spec, "--sites %u: give 1 to 1000.", options.sites);
    if (n == 1) {
        if (!sched_subject_open(&spec, argv[argc - 1], &subject)) return subject.code;
        task.algorithms = &subject.algorithm, task.n = 1;
    }
    if (!subject.is_file) return run(&task);
    const struct sched_apart apart = {.act = run, .argument = &task, .size = 8};
    if (sched_apart(&apart, &code, how, sizeof how) < 0 || how[0]) {
        fprintf(stderr, "%s: %s %s\n", spec.command, subject.algorithm->name, how[0] ? how : tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    return code;
}
