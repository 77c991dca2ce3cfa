/* SPDX-License-Identifier: BSD-3-Clause */

/* The process that was started as `tutti run`: it hands signals and a terminal's input to the supervisor and its ranks,
 * stops when the job is stopped, and outlives everything below it. The supervisor is in a process group of its own:
 * what the terminal, or a kill of the whole group, sends comes here once and is passed on once. */

#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_KEPT 1024
#define FOREGROUND_MS 250 /* how often to look whether the terminal is ours again */

struct guard {
    pid_t supervisor;
    int signals;
    int terminal; /* write end of rank 0's stdin, -1: no terminal, or at its end */
    size_t used, sent;
    char typed[PIPE_BUF];
};

/* Descriptors 0 to 2 must not be taken by our own pipes. */
static void standard_files_fill(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

static bool signals_take(struct run_options *options, int *fd)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    for (size_t i = 0; i < run_n_signals; i++) sigaddset(&mask, run_signals[i]);
    sigset_t blocked = mask; /* and what stops a group in the background that uses the terminal */
    sigaddset(&blocked, SIGTTIN);
    sigaddset(&blocked, SIGTTOU);
    sigprocmask(SIG_BLOCK, &blocked, &options->old_mask);
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, &options->old_pipe);
    *fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return *fd >= 0;
}

static void files_raise(struct run_options *options)
{
    getrlimit(RLIMIT_NOFILE, &options->old_files);
    struct rlimit files = options->old_files;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

/* Passes one signal on. */
static void signal_pass(struct guard *guard, int signal)
{
    kill(guard->supervisor, signal);
    if (signal != SIGTSTP) return;
    kill(getpid(), SIGSTOP); /* for the shell to see; SIGCONT comes through signalfd afterwards */
}

/* False once the supervisor has ended. */
static bool signals_read(struct guard *guard, int *status)
{
    struct signalfd_siginfo info;
    while (read(guard->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) signal_pass(guard, (int)info.ssi_signo);
    return waitpid(guard->supervisor, status, WNOHANG) != guard->supervisor;
}

/* A terminal's input goes to rank 0 by way of a pipe: the rank's process group is never in the foreground. */
static void typed_move(struct guard *guard, short can_read, short can_write)
{
    if (guard->sent < guard->used) {
        const ssize_t n = can_write ? write(guard->terminal, guard->typed + guard->sent, guard->used - guard->sent) : 0;
        if (n > 0) guard->sent += (size_t)n;
        if (n >= 0 || errno == EAGAIN || errno == EINTR) return;
    } else if (can_read) {
        const ssize_t n = read(STDIN_FILENO, guard->typed, sizeof guard->typed);
        guard->sent = 0;
        guard->used = n > 0 ? (size_t)n : 0;
        if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EIO))) return;
    } else {
        return;
    }
    close(guard->terminal); /* end of input, or rank 0 reads no more */
    guard->terminal = -1;
}

static int guard_wait(struct guard *guard)
{
    int status = 0;
    while (signals_read(guard, &status)) {
        const bool open = guard->terminal >= 0, full = guard->sent < guard->used;
        const bool ours = open && tcgetpgrp(STDIN_FILENO) == getpgrp();
        struct pollfd fds[] = {
            {.fd = guard->signals, .events = POLLIN},
            {.fd = open && ours && !full ? STDIN_FILENO : -1, .events = POLLIN},
            {.fd = open && full ? guard->terminal : -1, .events = POLLOUT},
        };
        const int n = poll(fds, TUTTI_ARRAY_LEN(fds), open && !ours ? FOREGROUND_MS : -1);
        if (n > 0 && open) typed_move(guard, fds[1].revents, fds[2].revents);
    }
    return status;
}

const char *run_signal_name(int number)
{
    /* As glibc's sigabbrev_np, which is from 2.32 on. */
    static const char *const names[] = {
        [SIGHUP] = "HUP",   [SIGINT] = "INT",   [SIGQUIT] = "QUIT",     [SIGILL] = "ILL",   [SIGTRAP] = "TRAP",
        [SIGABRT] = "ABRT", [SIGBUS] = "BUS",   [SIGFPE] = "FPE",       [SIGKILL] = "KILL", [SIGUSR1] = "USR1",
        [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2", [SIGPIPE] = "PIPE",     [SIGALRM] = "ALRM", [SIGTERM] = "TERM",
        [SIGXCPU] = "XCPU", [SIGXFSZ] = "XFSZ", [SIGVTALRM] = "VTALRM", [SIGPROF] = "PROF", [SIGSYS] = "SYS",
        [SIGIO] = "POLL",   [SIGPWR] = "PWR",   [SIGSTKFLT] = "STKFLT"};
    return number >= 0 && (size_t)number < TUTTI_ARRAY_LEN(names) ? names[number] : NULL;
}

static int exit_status(int status)
{
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    run_say("its supervisor was killed by signal %d (SIG%s); ended all ranks", WTERMSIG(status),
            run_signal_name(WTERMSIG(status)));
    return RUN_EXIT_SIGNAL + WTERMSIG(status);
}

int run_guard(struct run_options *options)
{
    struct guard guard = {.terminal = -1};
    pid_t kept[MAX_KEPT]; /* children of whoever became us by exec */
    int alive[2], typed[2] = {-1, -1};
    standard_files_fill();
    size_t n_kept = run_children(kept, MAX_KEPT);
    if (n_kept > MAX_KEPT) n_kept = MAX_KEPT;
    files_raise(options);
    run_adopt();
    if (!signals_take(options, &guard.signals) || pipe2(alive, O_CLOEXEC) != 0 ||
        (isatty(STDIN_FILENO) && pipe2(typed, O_CLOEXEC) != 0)) {
        run_say("cannot start: %s", strerror(errno));
        return TUTTI_EXIT_WRONG;
    }
    guard.supervisor = fork();
    if (guard.supervisor < 0) {
        run_say("cannot start a process: %s", strerror(errno));
        return TUTTI_EXIT_WRONG;
    }
    if (guard.supervisor == 0) {
        setpgid(0, 0);
        close(guard.signals);
        close(alive[1]);
        if (typed[1] >= 0) close(typed[1]);
        _exit(run_supervise(options, alive[0], typed[0] >= 0 ? typed[0] : STDIN_FILENO));
    }
    setpgid(guard.supervisor, guard.supervisor);
    close(alive[0]);
    if (typed[0] >= 0) {
        close(typed[0]);
        guard.terminal = typed[1];
        fcntl(guard.terminal, F_SETFL, O_NONBLOCK);
    }
    const int status = guard_wait(&guard);
    run_wipe(kept, n_kept);
    return exit_status(status);
}

/* What guard and supervisor share: sentences, and the signals that are passed on. */

const int run_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};
const size_t run_n_signals = TUTTI_ARRAY_LEN(run_signals);

static char said_by[300] = "tutti run: ";

void run_say_host(const char *host)
{
    snprintf(said_by, sizeof said_by, "tutti run on %.250s: ", host);
}

void run_say(const char *format, ...)
{
    char text[1536];
    const size_t prefix = strlen(said_by);
    memcpy(text, said_by, prefix);
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(text + prefix, sizeof text - prefix - 1, format, ap);
    va_end(ap);
    size_t length = prefix + (n < 0 ? 0 : (size_t)n);
    if (length > sizeof text - 2) length = sizeof text - 2;
    text[length] = '\n';
    if (write(STDERR_FILENO, text, length + 1) < 0) return; /* nobody to tell */
}

/* Ends every descendant of this process. As the subreaper of all below it, it becomes the parent of each process whose
 * own parent dies: killing children over and over reaches them all, whatever groups and sessions they made. */

/* A process in uninterruptible sleep may take longer: the kernel holds it. */
#define WIPE_NS (10 * TUTTI_NS_PER_S)
#define WIPE_MAX 256

void run_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

size_t run_children(pid_t *pids, size_t capacity)
{
    const pid_t self = getpid();
    size_t n = 0;
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        struct tutti_process process;
        if (pid <= 0 || !tutti_process_read(pid, &process) || process.parent != self) continue;
        if (n < capacity) pids[n] = pid;
        n++;
    }
    if (proc) closedir(proc);
    return n;
}

static bool is_in(pid_t pid, const pid_t *pids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pids[i] == pid) return true;
    return false;
}

void run_wipe(const pid_t *keep, size_t n_keep)
{
    const uint64_t deadline = tutti_deadline_ns(WIPE_NS);
    do {
        pid_t pids[WIPE_MAX];
        const size_t n = run_children(pids, WIPE_MAX);
        size_t n_killed = 0;
        for (size_t i = 0; i < n && i < WIPE_MAX; i++) {
            if (is_in(pids[i], keep, n_keep)) continue;
            kill(pids[i], SIGKILL);
            while (waitpid(pids[i], NULL, WNOHANG) == 0 && tutti_now_ns() < deadline) tutti_sleep_ns(TUTTI_NS_PER_MS);
            n_killed++;
        }
        if (n_killed == 0) return;
    } while (tutti_now_ns() < deadline);
    run_say("some processes do not end after SIGKILL; the kernel still holds them");
}
