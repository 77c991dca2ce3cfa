/* SPDX-License-Identifier: BSD-3-Clause */

/* tutti run: starts N copies of a program on this host as the ranks of one job. */

#include "run.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 4096

static bool env_check(const struct tutti_args *spec, const struct tutti_arg_list *env)
{
    for (size_t i = 0; i < env->n; i++) {
        if (env->values[i][0] != '=' && strchr(env->values[i], '=')) continue;
        tutti_args_fail(spec, "--env %s: write NAME=VALUE.", env->values[i]);
        return false;
    }
    return true;
}

int tutti_cmd_run(int argc, char **argv)
{
    struct run_options options = {.cores = "none", .grace_ns = 5 * TUTTI_NS_PER_S};
    const struct tutti_arg args[] = {
        {"ranks", 'n', TUTTI_ARG_U32, &options.n_ranks, "N", "how many ranks to start"},
        {"cores", 0, TUTTI_ARG_TEXT, &options.cores, "WHICH",
         "bind ranks to CPUs: none (default), spread, or a list such as 0-3,8"},
        {"timeout", 0, TUTTI_ARG_TIME, &options.timeout_ns, "TIME",
         "end the job when it takes longer (exit status 124)"},
        {"grace", 0, TUTTI_ARG_TIME, &options.grace_ns, "TIME", "from SIGTERM to SIGKILL when ending ranks (5s)"},
        {"tag-output", 0, TUTTI_ARG_FLAG, &options.tag_output, NULL, "write \"[rank] \" before every line"},
        {"keep-going", 0, TUTTI_ARG_FLAG, &options.keep_going, NULL, "do not end the others when a rank fails"},
        {"env", 0, TUTTI_ARG_LIST, &options.env, "NAME=VALUE", "set a variable for the ranks; may be repeated"},
    };
    const struct tutti_args spec = {
        .command = "tutti run",
        .usage = "-n N [options] [--] PROGRAM [arguments]",
        .about = "Starts N copies of PROGRAM on this host as the ranks of one job, with the variables that torchrun\n"
                 "sets (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...) and tutti's own. Passes output,\n"
                 "signals and, to rank 0, input on. When a rank fails, the others are ended; the exit status is that\n"
                 "of the first failure, 128 + N after signal N. No process of the job outlives this command.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
        .stop_at_first = true,
    };
    int n_positional, status = TUTTI_EXIT_WRONG;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (n_positional == 0) return tutti_args_fail(&spec, "which program? Type tutti run -n 4 PROGRAM.");
    options.argv = argv + argc - n_positional;
    if (options.n_ranks == 0) return tutti_args_fail(&spec, "how many ranks? Type tutti run -n 4 %s.", options.argv[0]);
    if (options.n_ranks > MAX_RANKS)
        return tutti_args_fail(&spec, "-n %u: one host takes at most %d ranks.", options.n_ranks, MAX_RANKS);
    if (!env_check(&spec, &options.env)) return TUTTI_EXIT_USAGE;
    if (!run_cores_read(&options)) {
        status = TUTTI_EXIT_USAGE;
        goto out;
    }
    char *path = run_program_find(options.argv[0], &status);
    options.path = path;
    if (path) status = run_guard(&options);
    free(path);
out:
    tutti_free(options.cpus);
    return status;
}
