/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_RUN_H
#define TUTTI_TOOLS_RUN_H

/* `tutti run` starts the ranks of a job. It may use base, topo and the addresses of control/net. Begin with cmd_run.c.
 * Two processes watch each other, so that no rank is ever left behind: the one that was started (run_guard.c) owns
 * terminal and signals and does almost nothing; its child (run_supervise.c) owns the ranks (run_here.c, run_spawn.c),
 * their output (run_output.c) and their binding (run_cores.c). If one of the two dies, the other ends all descendants.
 *
 * On several hosts (run_hosts.c says which) the launcher's supervisor owns remote shells instead of ranks
 * (run_remote.c). Each of them starts an agent on its host: `tutti run --agent`, again a guard and a
 * supervisor, which owns the ranks of that host (run_agent.c). Launcher and agents talk by records (run_record.h) over
 * the remote shell's input and output. Only the launcher decides when ranks are ended, and an agent whose input ends
 * ends its ranks. */

#include "run_hosts.h"
#include "tools/tutti/cmd.h"

#include "base/base.h"
#include "base/config.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Exit statuses of the launcher itself, as timeout(1) and the shell have them. */
#define RUN_EXIT_TIMEOUT 124
#define RUN_EXIT_NOT_EXECUTABLE 126
#define RUN_EXIT_NOT_FOUND 127
#define RUN_EXIT_SIGNAL 128

struct run_agent;
struct run_side;
struct run_options {
    uint32_t n_ranks;              /* that this process looks after: of this host; of the launcher: all */
    const char *cores;             /* "none", "spread" or a list of CPUs */
    uint64_t timeout_ns, grace_ns; /* 0: no timeout; from SIGTERM to SIGKILL */
    bool tag_output, keep_going;
    struct tutti_arg_list env;
    /* The host's part of the job. */
    uint32_t first, total;       /* first rank here, ranks of the job */
    uint32_t host, n_hosts;      /* index of this host, and how many there are */
    const char *host_name;       /* NULL: the only one */
    bool terminal;               /* what ranks print ends at a terminal */
    const struct run_side *side; /* here, agent or remote: run_supervise.h */
    struct run_agent *agent;     /* this process is an agent; else NULL */
    /* For the launcher of several hosts. */
    struct run_hosts hosts; /* n 0: this host alone */
    char **shell;           /* the remote shell's words, NULL at the end */
    const char *interface;  /* the store's; "": any */
    const char *agent_path; /* where tutti is on the hosts */
    char **argv;            /* the program's, NULL at the end */
    const char *path;       /* the program's, found in PATH */
    cpu_set_t *cpus;        /* n_ranks; NULL: not bound */
    /* What the launcher changes of itself and the ranks get back. */
    sigset_t old_mask;
    struct sigaction old_pipe;
    struct rlimit old_files;
};

/* Prints "tutti run: ..." as one write to stderr (run_guard.c). */
void run_say(const char *format, ...) TUTTI_PRINTF(1, 2);
void run_say_host(const char *host); /* from now on with the host's name */

/* Forks the supervisor and waits for it; returns the exit status. */
int run_guard(struct run_options *options);
/* "KILL"; NULL: it has none. */
const char *run_signal_name(int number);
/* Starts the ranks and stays until the last descendant is gone. alive_fd: end of file when the guard is dead; stdin_fd:
 * for rank 0. Returns the exit status. */
int run_supervise(const struct run_options *options, int alive_fd, int stdin_fd);
/* The signals that are passed on to the ranks. */
extern const int run_signals[];
extern const size_t run_n_signals;

/* ---- ranks (run_spawn.c) ---- */
struct run_meeting { /* where the ranks meet: the same for all */
    char job[64], store[128];
    char secret[TUTTI_SECRET_MAX + 1]; /* the user's, else the job's own; "": none */
    char master[64];                   /* rank 0's host */
    uint16_t master_port;
};
/* Full path of program, NULL if there is none (*status says why, a sentence was printed). Freed by the caller. */
char *run_program_find(const char *program, int *status);
/* Starts a rank of this host, 0 the first, in a process group of its own. Returns its pid; 0 if it could not be
 * started: *error is errno. */
pid_t run_spawn(const struct run_options *options, const struct run_meeting *meeting, uint32_t local, const int fds[3],
                int *error);
/* Likewise another program, with our environment. */
pid_t run_spawn_other(const struct run_options *options, const char *path, char **argv, const int fds[3], int *error);

/* ---- hosts (run_choose.c) ---- */
struct run_hosts_given {
    const char *list, *file, *shell; /* options; NULL: not given */
};
/* Fills options->hosts, n_ranks and what goes with them; leaves them when the job is of this host alone. False: a
 * sentence was printed. */
bool run_hosts_choose(struct run_options *options, const struct run_hosts_given *given);

/* ---- binding (run_cores.c) ---- */
/* Fills options->cpus from options->cores; false: a sentence was printed. */
bool run_cores_read(struct run_options *options);
/* Splits n things among n_ranks: rank gets [*first, *first + *count). Neighbours stay together; with more ranks than
 * things several ranks share one. */
void run_cores_split(size_t n, uint32_t n_ranks, uint32_t rank, size_t *first, size_t *count);

/* ---- output (run_output.c) ---- */
struct run_output;
struct pollfd;
struct run_queue;
struct run_output *run_output_create(const struct run_options *options); /* NULL: out of memory */
void run_output_destroy(struct run_output *output);
/* The read ends of a rank's stdout (1) and stderr (2); owned from then on. */
void run_output_add(struct run_output *output, uint32_t rank, int which, int fd);
/* Fills fds (room for 2 n_ranks + 2); returns how many. */
size_t run_output_poll(const struct run_output *output, struct pollfd *fds);
/* Reads and writes what the same fds, polled, allow. */
void run_output_move(struct run_output *output, const struct pollfd *fds, size_t n);
/* What a rank of another host printed; no bytes: the end. */
void run_output_feed(struct run_output *output, uint32_t rank, int which, const char *bytes, size_t n);
bool run_output_is_full(const struct run_output *output);              /* rather read no more for a while */
bool run_output_is_broken(const struct run_output *output, int which); /* nobody reads it any more */
void run_output_shut(struct run_output *output, int which); /* ranks that print there shall see that nobody reads */
/* An agent's record behind what the ranks printed before. */
void run_output_record(struct run_output *output, const char *name, uint32_t number, const char *text);
/* Shows lines that were begun and not ended for a while, such as prompts; when to call again, TUTTI_NEVER: no need. */
uint64_t run_output_settle(struct run_output *output, uint64_t now_ns);
/* Reads all that is there now and closes the read ends: nobody is left who could write. */
void run_output_finish(struct run_output *output);
bool run_output_is_done(const struct run_output *output); /* all read and written */

/* ---- descendants (run_guard.c) ---- */
/* Children of this process, at most capacity pids; returns how many there are. */
size_t run_children(pid_t *pids, size_t capacity);
/* Makes orphans of descendants children of this process. */
void run_adopt(void);
/* Kills children, and theirs as they come, but those in keep, until none is left or a few seconds have passed. */
void run_wipe(const pid_t *keep, size_t n_keep);

#endif
