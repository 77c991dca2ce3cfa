/* SPDX-License-Identifier: BSD-3-Clause */

/* tutti run: starts N copies of a program, on this host or on several, as the ranks of one job. */

#include "run.h"
#include "run_supervise.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RANKS 4096
#define NOT_GIVEN UINT32_MAX

static bool env_check(const struct tutti_args *spec, const struct tutti_arg_list *env)
{
    for (size_t i = 0; i < env->n; i++) {
        if (env->values[i][0] != '=' && strchr(env->values[i], '=')) continue;
        tutti_args_fail(spec, "--env %s: write NAME=VALUE.", env->values[i]);
        return false;
    }
    return true;
}

/* Runs a job of this host alone. Its CPUs and the program are checked before anything is started. */
static int run_here(struct run_options *options)
{
    int status = TUTTI_EXIT_USAGE;
    options->total = options->n_ranks, options->n_hosts = 1;
    options->side = &run_side_here;
    if (!run_cores_read(options)) return status;
    char *path = run_program_find(options->argv[0], &status);
    options->path = path;
    if (path) status = run_guard(options);
    free(path);
    return status;
}

/* The option of the library, for this command's store and, by their environment, for the ranks. */
static bool ports_set(const char *ports)
{
    char text[32];
    uint64_t range;
    if (ports) setenv("TUTTI_PORT_RANGE", ports, 1);
    if (tutti_option_get("port_range", text, sizeof text, &range) == TUTTI_OK) return true;
    run_say("%s", tutti_last_error()->text);
    return false;
}

/* ---- in place of NCCL ---- */

/* 0 or 1; -1: the variable says neither. */
static int nccl_wanted(void)
{
    const char *text = getenv("TUTTI_NCCL");
    if (!text || !*text || strcmp(text, "0") == 0) return 0;
    return strcmp(text, "1") == 0 ? 1 : -1;
}

/* The ranks load the library before any other of its name. */
static bool preload(struct run_options *options)
{
    static char *text; /* stays, as the environment that it goes into */
    free(text);
    text = tutti_nccl_preload();
    if (text && options->env.n < TUTTI_ARRAY_LEN(options->env.values)) {
        options->env.values[options->env.n++] = text;
        return true;
    }
    run_say(
        text ? "--env was given too often"
             : "there is no lib/tutti/nccl/libnccl.so.2 beside this command, or its path has a space or colon, which "
               "LD_PRELOAD can not carry");
    return false;
}

/* A program that starts its ranks itself, or has all of them, gets nothing but the library. */
static int run_as_it_is(const struct run_options *options)
{
    int status = RUN_EXIT_NOT_FOUND;
    for (size_t i = 0; i < options->env.n; i++) putenv((char *)(uintptr_t)options->env.values[i]);
    char *path = run_program_find(options->argv[0], &status);
    if (!path) return status;
    execv(path, options->argv);
    run_say("'%s' can not be executed: %s", path, strerror(errno));
    free(path);
    return RUN_EXIT_NOT_EXECUTABLE;
}

/* Makes 0 of a number of ranks that was not given. */
static bool values_check(const struct tutti_args *spec, int wanted, uint32_t *n_ranks)
{
    const bool none = *n_ranks == 0;
    if (wanted < 0) tutti_args_fail(spec, "TUTTI_NCCL is '%s', and should be 1 or 0.", getenv("TUTTI_NCCL"));
    if (wanted >= 0 && none) tutti_args_fail(spec, "-n 0: a job has a rank at least.");
    if (*n_ranks == NOT_GIVEN) *n_ranks = 0;
    return wanted >= 0 && !none;
}

int tutti_cmd_run(int argc, char **argv)
{
    struct run_options options = {
        .cores = "none", .grace_ns = 5 * TUTTI_NS_PER_S, .interface = "", .terminal = isatty(STDOUT_FILENO)};
    options.n_ranks = NOT_GIVEN;
    struct run_hosts_given given = {.list = NULL};
    const char *ports = NULL;
    const int wanted = nccl_wanted();
    bool as_nccl = wanted == 1;
    if (argc == 2 && strcmp(argv[1], "--agent") == 0) return run_agent_main();
    const struct tutti_arg args[] = {
        {"ranks", 'n', TUTTI_ARG_U32, &options.n_ranks, "N", "how many ranks to start"},
        {"hosts", 0, TUTTI_ARG_TEXT, &given.list, "a:4,b:4", "start ranks on these hosts, so many on each"},
        {"hostfile", 0, TUTTI_ARG_TEXT, &given.file, "FILE", "likewise: a line for each host, a:4 or a slots=4"},
        {"remote-shell", 0, TUTTI_ARG_TEXT, &given.shell, "COMMAND",
         "reaches a host: COMMAND HOST WORDS... (ssh; in a Slurm allocation srun)"},
        {"remote-tutti", 0, TUTTI_ARG_TEXT, &options.agent_path, "PATH", "of this command on the hosts (as here)"},
        {"interface", 0, TUTTI_ARG_TEXT, &options.interface, "NAME",
         "network interface, or address, at which the hosts find this one"},
        {"port-range", 0, TUTTI_ARG_TEXT, &ports, "A-B",
         "listen at these ports only, here and on the hosts (TUTTI_PORT_RANGE)"},
        {"cores", 0, TUTTI_ARG_TEXT, &options.cores, "WHICH",
         "bind ranks to CPUs: none (default), spread, or a list such as 0-3,8"},
        {"timeout", 0, TUTTI_ARG_TIME, &options.timeout_ns, "TIME",
         "end the job when it takes longer (exit status 124)"},
        {"grace", 0, TUTTI_ARG_TIME, &options.grace_ns, "TIME",
         "from SIGTERM to SIGKILL, of ranks that are ended (5s)"},
        {"tag-output", 0, TUTTI_ARG_FLAG, &options.tag_output, NULL, "write \"[rank] \" before every line"},
        {"keep-going", 0, TUTTI_ARG_FLAG, &options.keep_going, NULL, "do not end the others when a rank fails"},
        {"as-nccl", 0, TUTTI_ARG_FLAG, &as_nccl, NULL,
         "load tutti in place of NCCL; without -n the program is started once, as it is"},
        {"env", 0, TUTTI_ARG_LIST, &options.env, "NAME=VALUE", "set a variable for the ranks; may be repeated"},
    };
    const struct tutti_args spec = {
        .command = "tutti run",
        .usage = "-n N | --hosts a:4,b:4 [options] [--] PROGRAM [arguments]",
        .about = "Starts N copies of PROGRAM as the ranks of one job, on this host or, with --hosts or --hostfile or\n"
                 "inside a Slurm allocation, on others, with the variables that torchrun\n"
                 "sets (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...) and tutti's own. Passes output,\n"
                 "signals and, to rank 0, input on. When a rank fails, the others are ended; the exit status is that\n"
                 "of the first failure, 128 + N after signal N. No process of the job outlives this command.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
        .stop_at_first = true,
    };
    int n_positional, status;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (n_positional == 0) return tutti_args_fail(&spec, "which program? Type tutti run -n 4 PROGRAM.");
    if (!values_check(&spec, wanted, &options.n_ranks) || !ports_set(ports)) return TUTTI_EXIT_USAGE;
    options.argv = argv + argc - n_positional;
    if (as_nccl && !preload(&options)) return TUTTI_EXIT_USAGE;
    if (as_nccl && options.n_ranks == 0 && !given.list && !given.file) return run_as_it_is(&options);
    if (given.list && given.file) return tutti_args_fail(&spec, "give --hosts or --hostfile, not both.");
    if (!env_check(&spec, &options.env) || !run_hosts_choose(&options, &given)) return TUTTI_EXIT_USAGE;
    if (options.n_ranks == 0) return tutti_args_fail(&spec, "how many ranks? Type tutti run -n 4 %s.", options.argv[0]);
    if (options.hosts.n == 0 && options.n_ranks > MAX_RANKS)
        return tutti_args_fail(&spec, "-n %u: one host takes at most %d ranks.", options.n_ranks, MAX_RANKS);
    options.side = &run_side_remote;
    status = options.hosts.n ? run_guard(&options) : run_here(&options);
    run_hosts_fini(&options.hosts);
    tutti_free(options.cpus);
    return status;
}
