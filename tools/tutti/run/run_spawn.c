/* SPDX-License-Identifier: BSD-3-Clause */

/* Starts one rank: its variables, its binding, its files; in a process group of its own, and tied to the supervisor's
 * life. Between fork and exec only calls are made that a thread's fork allows. */

#include "run.h"

#include "base/config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_VARIABLES 32
#define VARIABLE_BYTES (TUTTI_SECRET_MAX + 32)

extern char **environ;

static bool is_program(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

static char *path_search(const char *program)
{
    const char *path = getenv("PATH");
    if (!path || !path[0]) path = "/usr/local/bin:/usr/bin:/bin";
    for (const char *at = path;; at++) {
        const size_t length = strcspn(at, ":");
        char *full;
        if (asprintf(&full, "%.*s%s%s", (int)length, at, length ? "/" : "", program) < 0) return NULL;
        if (is_program(full)) return full;
        free(full);
        at += length;
        if (*at == '\0') return NULL;
    }
}

char *run_program_find(const char *program, int *status)
{
    char *full;
    if (!strchr(program, '/')) {
        full = path_search(program);
        if (full) return full;
        *status = RUN_EXIT_NOT_FOUND;
        if (is_program(program))
            run_say("there is no program '%s' in PATH; did you mean './%s'?", program, program);
        else
            run_say("there is no program '%s' in PATH", program);
        return NULL;
    }
    full = strdup(program);
    if (full && is_program(full)) return full;
    free(full);
    *status = access(program, F_OK) == 0 ? RUN_EXIT_NOT_EXECUTABLE : RUN_EXIT_NOT_FOUND;
    if (*status == RUN_EXIT_NOT_FOUND)
        run_say("there is no file '%s'", program);
    else
        run_say("'%s' can not be executed: it is no regular file with execute permission", program);
    return NULL;
}

/* ---- the environment ---- */
struct variables {
    char text[MAX_VARIABLES][VARIABLE_BYTES];
    size_t n;
};

static void variable_set(struct variables *v, const char *format, ...) TUTTI_PRINTF(2, 3);
static void variable_set(struct variables *v, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(v->text[v->n++], VARIABLE_BYTES, format, ap);
    va_end(ap);
}

/* As torchrun sets them, except that no store of an agent is announced: rank 0's own store binds MASTER_PORT. A name
 * without "=" is taken out of what the ranks inherit. */
static void variables_make(struct variables *v, const struct run_options *o, const struct run_meeting *meeting,
                           uint32_t local)
{
    static const char *const ranks[] = {"RANK", "ROLE_RANK", "TUTTI_RANK"};
    static const char *const locals[] = {"LOCAL_RANK", "TUTTI_LOCAL_RANK"};
    static const char *const sizes[] = {"WORLD_SIZE", "ROLE_WORLD_SIZE", "TUTTI_WORLD_SIZE"};
    static const char *const local_sizes[] = {"LOCAL_WORLD_SIZE", "TUTTI_LOCAL_WORLD_SIZE"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(ranks); i++) variable_set(v, "%s=%u", ranks[i], o->first + local);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(locals); i++) variable_set(v, "%s=%u", locals[i], local);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) variable_set(v, "%s=%u", sizes[i], o->total);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(local_sizes); i++) variable_set(v, "%s=%u", local_sizes[i], o->n_ranks);
    variable_set(v, "GROUP_RANK=%u", o->host);
    variable_set(v, "GROUP_WORLD_SIZE=%u", o->n_hosts);
    variable_set(v, "ROLE_NAME=default");
    variable_set(v, "MASTER_ADDR=%s", meeting->master);
    variable_set(v, "MASTER_PORT=%u", meeting->master_port);
    variable_set(v, "TORCHELASTIC_RESTART_COUNT=0");
    variable_set(v, "TORCHELASTIC_MAX_RESTARTS=0");
    variable_set(v, "TORCHELASTIC_RUN_ID=%s", meeting->job);
    variable_set(v, "TORCHELASTIC_USE_AGENT_STORE");
    variable_set(v, "TUTTI_JOB=%s", meeting->job);
    variable_set(v, "TUTTI_STORE=%s", meeting->store);
    if (meeting->secret[0]) {
        variable_set(v, "TUTTI_SECRET_FILE");
        variable_set(v, "TUTTI_SECRET=%s", meeting->secret);
    }
    /* The ranks write to pipes: a program that draws a progress bar wants to know where it ends. */
    variable_set(v, o->terminal ? "TUTTI_RUN_TERMINAL=1" : "TUTTI_RUN_TERMINAL");
}

static bool same_name(const char *a, const char *b)
{
    const size_t n = strcspn(a, "=");
    return n == strcspn(b, "=") && memcmp(a, b, n) == 0;
}

static bool is_listed(const char *entry, char *const *entries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (same_name(entry, entries[i])) return true;
    return false;
}

/* Each name once: --env comes before the launcher's own, and that before what is inherited; of two --env the last one
 * counts. The strings stay where they are. */
static char **environment_make(const struct run_options *o, struct variables *v)
{
    size_t n_inherited = 0, n = 0;
    while (environ[n_inherited]) n_inherited++;
    char **out = tutti_alloc_array(n_inherited + v->n + o->env.n + 1, sizeof *out);
    char *taken[MAX_VARIABLES];
    if (!out) return NULL;
    for (size_t i = o->env.n; i-- > 0;)
        if (!is_listed(o->env.values[i], out, n)) out[n++] = (char *)(uintptr_t)o->env.values[i];
    for (size_t i = 0; i < v->n; i++) {
        taken[i] = v->text[i];
        if (strchr(v->text[i], '=') && !is_listed(v->text[i], out, n)) out[n++] = v->text[i];
    }
    for (size_t i = 0; i < n_inherited; i++)
        if (!is_listed(environ[i], out, n) && !is_listed(environ[i], taken, v->n)) out[n++] = environ[i];
    return out;
}

/* ---- the process ---- */
struct plan { /* all that the child needs, made before the fork */
    const struct run_options *options;
    const cpu_set_t *cpus;
    const char *path;
    char **argv, **environment, **shell; /* shell: for scripts that do not say what runs them */
    const int *fds;
    pid_t supervisor;
    int death; /* the signal when the supervisor dies */
};

/* Returns errno if the program can not be started. */
static int child_run(const struct plan *plan)
{
    const struct run_options *o = plan->options;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, plan->death);
    if (getppid() != plan->supervisor) _exit(RUN_EXIT_SIGNAL + SIGKILL); /* it died before the line above */
    for (int i = 0; i < 3; i++)
        if (dup2(plan->fds[i], i) < 0) return errno;
    if (plan->cpus && sched_setaffinity(0, sizeof *plan->cpus, plan->cpus) != 0) return errno;
    setrlimit(RLIMIT_NOFILE, &o->old_files);
    sigaction(SIGPIPE, &o->old_pipe, NULL);
    sigprocmask(SIG_SETMASK, &o->old_mask, NULL);
    execve(plan->path, plan->argv, plan->environment);
    if (errno == ENOEXEC && plan->shell) execve("/bin/sh", plan->shell, plan->environment);
    return errno;
}

/* The fork itself. The pipe closes when the program starts; what comes through it instead is errno. */
static pid_t child_fork(const struct plan *plan, int *error)
{
    int ends[2];
    *error = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        *error = errno;
        return 0;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        const int failure = child_run(plan);
        if (write(ends[1], &failure, sizeof failure) < 0) _exit(RUN_EXIT_NOT_EXECUTABLE);
        _exit(RUN_EXIT_NOT_EXECUTABLE);
    }
    if (pid < 0) *error = errno;
    close(ends[1]);
    if (pid > 0) {
        setpgid(pid, pid); /* parent and child both do this: signals may be sent from now on */
        int failure;
        ssize_t n;
        do n = read(ends[0], &failure, sizeof failure);
        while (n < 0 && errno == EINTR);
        if (n == (ssize_t)sizeof failure) {
            *error = failure;
            waitpid(pid, NULL, 0);
        }
    }
    close(ends[0]);
    return *error ? 0 : pid;
}

pid_t run_spawn(const struct run_options *options, const struct run_meeting *meeting, uint32_t local, const int fds[3],
                int *error)
{
    size_t n_args = 0;
    pid_t pid = 0;
    while (options->argv[n_args]) n_args++;
    struct variables *variables = tutti_alloc(sizeof *variables);
    char **shell = tutti_alloc_array(n_args + 2, sizeof *shell);
    char **environment = NULL;
    *error = ENOMEM;
    if (!variables || !shell) goto out;
    variables_make(variables, options, meeting, local);
    environment = environment_make(options, variables);
    if (!environment) goto out;
    shell[0] = options->argv[0];
    shell[1] = (char *)(uintptr_t)options->path;
    memcpy(shell + 2, options->argv + 1, n_args * sizeof *shell); /* with the NULL */
    const struct plan plan = {.options = options,
                              .cpus = options->cpus ? &options->cpus[local] : NULL,
                              .path = options->path,
                              .argv = options->argv,
                              .environment = environment,
                              .shell = shell,
                              .fds = fds,
                              .supervisor = getpid(),
                              .death = SIGKILL};
    pid = child_fork(&plan, error);
out:
    tutti_free(environment);
    tutti_free(shell);
    tutti_free(variables);
    return pid;
}

/* A remote shell that is asked to end ends its agent, too. */
pid_t run_spawn_other(const struct run_options *options, const char *path, char **argv, const int fds[3], int *error)
{
    const struct plan plan = {.options = options,
                              .path = path,
                              .argv = argv,
                              .environment = environ,
                              .fds = fds,
                              .supervisor = getpid(),
                              .death = SIGTERM};
    return child_fork(&plan, error);
}
