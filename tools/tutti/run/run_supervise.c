/* SPDX-License-Identifier: BSD-3-Clause */

/* The parent of the ranks: starts them, passes signals and output on, and when one fails, or the time is up, or the
 * guard dies, ends the others: SIGTERM, a grace, SIGKILL. It stays until no descendant is left, also of those that
 * ranks started and left behind. */

#include "run.h"

#include <tutti/store.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEFTOVER_GRACE_NS TUTTI_NS_PER_S
#define LEFTOVER_STEP_MS 10
#define MAX_LEFTOVERS 256

struct rank {
    pid_t pid; /* 0: not started, or reaped */
    int status;
    bool just_ended;
};

struct supervisor {
    const struct run_options *options;
    struct run_meeting meeting;
    struct tutti_store_server *store;
    struct run_output *output;
    struct rank *ranks;
    struct pollfd *fds;
    uint32_t n_live;
    int signals, alive;
    int exit_status;     /* of the first failure */
    bool failed, ending; /* ending: the ranks got SIGTERM */
    bool impatient;      /* asked to end when no rank was left */
    uint64_t timeout_at_ns, kill_at_ns, settle_at_ns;
};

/* ---- where the ranks meet ---- */
/* A port that is free now, for MASTER_PORT: rank 0 will bind it. */
static uint16_t port_find(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint16_t port = 0;
    if (fd < 0) return 0;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    close(fd);
    return port;
}

static const char *given_variable(const struct run_options *options, const char *name)
{
    const size_t length = strlen(name);
    const char *found = NULL;
    for (size_t i = 0; i < options->env.n; i++)
        if (strncmp(options->env.values[i], name, length) == 0 && options->env.values[i][length] == '=')
            found = options->env.values[i] + length + 1;
    return found;
}

static bool place_open(struct supervisor *s)
{
    uint8_t random[40];
    struct run_meeting *meeting = &s->meeting;
    if (tutti_random_bytes(random, sizeof random) < 0) {
        run_say("%s", tutti_last_error()->text);
        return false;
    }
    snprintf(meeting->job, sizeof meeting->job, "run-%d-", (int)getpid());
    for (size_t i = 0; i < 8; i++) sprintf(meeting->job + strlen(meeting->job), "%02x", random[i]);
    for (size_t i = 8; i < sizeof random && tutti_hmac_available(); i++)
        sprintf(meeting->secret + 2 * (i - 8), "%02x", random[i]);
    meeting->master_port = port_find();
    /* The store speaks with the secret that the ranks get, ours or the user's. */
    const char *secret = given_variable(s->options, "TUTTI_SECRET");
    if (!secret) secret = meeting->secret;
    if (tutti_store_server_open("127.0.0.1", 0, secret[0] ? secret : NULL, &s->store) < 0) {
        run_say("the store where the ranks meet can not be served: %s", tutti_last_error()->text);
        return false;
    }
    snprintf(meeting->store, sizeof meeting->store, "tcp://127.0.0.1:%u", tutti_store_server_port(s->store));
    return true;
}

/* ---- ending ---- */
static void ranks_signal(struct supervisor *s, int signal)
{
    for (uint32_t i = 0; i < s->options->n_ranks; i++)
        if (s->ranks[i].pid > 0) kill(-s->ranks[i].pid, signal);
}

static void ranks_end(struct supervisor *s)
{
    if (s->ending) return;
    s->ending = true;
    s->kill_at_ns = tutti_deadline_ns(s->options->grace_ns);
    ranks_signal(s, SIGTERM);
    ranks_signal(s, SIGCONT); /* a stopped process takes no SIGTERM */
}

static void ranks_kill(struct supervisor *s)
{
    s->kill_at_ns = TUTTI_NEVER;
    ranks_signal(s, SIGKILL);
}

static void fail(struct supervisor *s, int exit_status)
{
    if (!s->failed) s->exit_status = exit_status;
    s->failed = true;
}

/* ---- ranks that ended ---- */
static int code_of(int status)
{
    return WIFSIGNALED(status) ? RUN_EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static void failure_say(const struct supervisor *s, uint32_t rank, pid_t pid)
{
    const int status = s->ranks[rank].status;
    const char *then = s->n_live == 0 ? "" : s->options->keep_going ? "; the others go on" : "; ending the others";
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        run_say("rank %u (pid %d) was killed by signal %d (%s%s%s)%s", rank, (int)pid, WTERMSIG(status),
                name ? "SIG" : "real-time", name ? name : "", WCOREDUMP(status) ? ", core dumped" : "", then);
    } else {
        run_say("rank %u (pid %d) ended with exit status %d%s", rank, (int)pid, WEXITSTATUS(status), then);
    }
}

/* Of ranks that ended at once, one that was killed is rather the cause than one that noticed and gave up. */
static uint32_t cause_find(const struct supervisor *s)
{
    uint32_t cause = UINT32_MAX;
    for (uint32_t i = 0; i < s->options->n_ranks; i++) {
        const struct rank *rank = &s->ranks[i];
        if (!rank->just_ended || code_of(rank->status) == 0) continue;
        if (cause == UINT32_MAX || (WIFSIGNALED(rank->status) && !WIFSIGNALED(s->ranks[cause].status))) cause = i;
    }
    return cause;
}

static void output_pass(struct supervisor *s)
{
    const size_t n = run_output_poll(s->output, s->fds);
    if (poll(s->fds, n, 0) > 0) run_output_move(s->output, s->fds, n);
}

static void ranks_reap(struct supervisor *s)
{
    pid_t pid;
    int status;
    for (uint32_t i = 0; i < s->options->n_ranks; i++) s->ranks[i].just_ended = false;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) { /* or one that a rank left behind */
        for (uint32_t i = 0; i < s->options->n_ranks; i++) {
            if (s->ranks[i].pid != pid) continue;
            s->ranks[i].status = status;
            s->ranks[i].just_ended = true;
            s->n_live--;
        }
    }
    const uint32_t cause = cause_find(s);
    if (cause != UINT32_MAX) {
        if (!s->ending) {
            output_pass(s); /* its last words first */
            output_pass(s);
            failure_say(s, cause, s->ranks[cause].pid);
        }
        fail(s, code_of(s->ranks[cause].status));
    }
    for (uint32_t i = 0; i < s->options->n_ranks; i++)
        if (s->ranks[i].just_ended) s->ranks[i].pid = 0;
    if (cause != UINT32_MAX && !s->options->keep_going && s->n_live > 0) ranks_end(s);
}

/* ---- starting ---- */
static void start_failed(struct supervisor *s, uint32_t rank, int error)
{
    run_say("rank %u can not be started: %s%s", rank, strerror(error),
            error == EAGAIN ? " (the limit of processes, ulimit -u, or of the cgroup)" : "");
    fail(s, error == ENOENT ? RUN_EXIT_NOT_FOUND : RUN_EXIT_NOT_EXECUTABLE);
    ranks_end(s);
}

/* Rank 0 reads our input, the others nothing. */
static bool rank_start(struct supervisor *s, uint32_t rank, int stdin_fd)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, error = 0;
    const int in = rank == 0 ? stdin_fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
        error = errno;
    } else {
        const int fds[3] = {in, out[1], err[1]};
        s->ranks[rank].pid = run_spawn(s->options, &s->meeting, rank, fds, &error);
    }
    if (rank != 0 && in >= 0) close(in);
    if (out[1] >= 0) close(out[1]);
    if (err[1] >= 0) close(err[1]);
    if (out[0] >= 0) run_output_add(s->output, rank, 1, out[0]);
    if (err[0] >= 0) run_output_add(s->output, rank, 2, err[0]);
    if (s->ranks[rank].pid == 0) {
        start_failed(s, rank, error);
        return false;
    }
    s->n_live++;
    return true;
}

/* ---- the loop ---- */
static void signals_read(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        const int signal = (int)info.ssi_signo;
        if (signal == SIGCHLD) continue;
        /* Asked to end while they are ending: no more grace; and nobody reads what they printed. */
        const bool end = signal == SIGINT || signal == SIGTERM || signal == SIGQUIT || signal == SIGHUP;
        if (end && s->ending) s->kill_at_ns = 0;
        if (end && s->n_live == 0) s->impatient = true;
        ranks_signal(s, signal);
    }
}

static void times_check(struct supervisor *s, uint64_t now)
{
    if (now >= s->timeout_at_ns && !s->ending && s->n_live > 0) {
        run_say("%u of %u ranks did not end within %.4g s (--timeout); ending them", s->n_live, s->options->n_ranks,
                (double)s->options->timeout_ns / 1e9);
        fail(s, RUN_EXIT_TIMEOUT);
        ranks_end(s);
    }
    if (s->ending && now >= s->kill_at_ns) {
        if (s->n_live > 0)
            run_say("%u rank%s did not end within %.4g s of SIGTERM; killing", s->n_live, s->n_live == 1 ? "" : "s",
                    (double)s->options->grace_ns / 1e9);
        ranks_kill(s);
    }
    s->settle_at_ns = run_output_settle(s->output, now);
}

static int poll_timeout(const struct supervisor *s, uint64_t now)
{
    uint64_t next = s->settle_at_ns;
    if (!s->ending && s->timeout_at_ns < next) next = s->timeout_at_ns;
    if (s->ending && s->kill_at_ns < next) next = s->kill_at_ns;
    if (next == TUTTI_NEVER) return -1;
    const uint64_t ms = next <= now ? 0 : (next - now) / TUTTI_NS_PER_MS + 1;
    return ms > 60000 ? 60000 : (int)ms;
}

/* One wait for anything, at most max_ms (-1: as long as it takes). False: the guard is dead. */
static bool step(struct supervisor *s, int max_ms)
{
    int timeout_ms = poll_timeout(s, tutti_now_ns());
    if (max_ms >= 0 && (timeout_ms < 0 || timeout_ms > max_ms)) timeout_ms = max_ms;
    size_t n = run_output_poll(s->output, s->fds);
    s->fds[n] = (struct pollfd){.fd = s->signals, .events = POLLIN};
    s->fds[n + 1] = (struct pollfd){.fd = s->alive, .events = POLLIN};
    if (poll(s->fds, n + 2, timeout_ms) > 0) {
        if (s->fds[n + 1].revents) return false;
        run_output_move(s->output, s->fds, n);
    }
    signals_read(s);
    ranks_reap(s);
    times_check(s, tutti_now_ns());
    return true;
}

/* What the ranks started and left behind ends with them: SIGTERM, what remains of the grace, SIGKILL. False: the guard
 * is dead. */
static bool leftovers_end(struct supervisor *s)
{
    pid_t pids[MAX_LEFTOVERS];
    const uint64_t soon = tutti_deadline_ns(LEFTOVER_GRACE_NS);
    const uint64_t deadline = s->ending && s->kill_at_ns != TUTTI_NEVER && s->kill_at_ns > soon ? s->kill_at_ns : soon;
    ranks_reap(s);
    size_t n = run_children(pids, MAX_LEFTOVERS);
    if (n > 0 && !s->ending)
        run_say("the ranks left %zu process%s behind; ending %s", n, n == 1 ? "" : "es", n == 1 ? "it" : "them");
    for (size_t i = 0; i < n && i < MAX_LEFTOVERS; i++) {
        kill(pids[i], SIGTERM);
        kill(pids[i], SIGCONT);
    }
    while (n > 0 && tutti_now_ns() < deadline && !s->impatient) {
        if (!step(s, LEFTOVER_STEP_MS)) return false;
        n = run_children(pids, MAX_LEFTOVERS);
    }
    run_wipe(NULL, 0);
    return true;
}

static int supervise(struct supervisor *s, int stdin_fd)
{
    bool guarded = true;
    s->timeout_at_ns = s->options->timeout_ns ? tutti_deadline_ns(s->options->timeout_ns) : TUTTI_NEVER;
    for (uint32_t rank = 0; rank < s->options->n_ranks; rank++)
        if (!rank_start(s, rank, stdin_fd)) break;
    close(stdin_fd);
    while (guarded && s->n_live > 0) guarded = step(s, -1);
    if (guarded) guarded = leftovers_end(s);
    if (!guarded) {
        ranks_kill(s);
        run_wipe(NULL, 0);
        return RUN_EXIT_SIGNAL + SIGKILL;
    }
    do run_output_finish(s->output);
    while (!run_output_is_done(s->output) && !s->impatient && step(s, -1));
    return s->exit_status;
}

int run_supervise(const struct run_options *options, int alive_fd, int stdin_fd)
{
    struct supervisor s = {
        .options = options, .alive = alive_fd, .kill_at_ns = TUTTI_NEVER, .settle_at_ns = TUTTI_NEVER};
    int exit_status = TUTTI_EXIT_WRONG;
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask); /* the guard blocked what we read */
    s.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    prctl(PR_SET_NAME, "rank-supervisor"); /* killall of the command's name leaves it to clean up */
    run_adopt();
    s.output = run_output_create(options->n_ranks, options->tag_output);
    s.ranks = tutti_alloc_array(options->n_ranks, sizeof *s.ranks);
    s.fds = tutti_alloc_array(2 * (size_t)options->n_ranks + 4, sizeof *s.fds);
    if (s.signals < 0 || !s.output || !s.ranks || !s.fds)
        run_say("cannot start %u ranks: %s", options->n_ranks, s.signals < 0 ? strerror(errno) : "out of memory");
    else if (place_open(&s))
        exit_status = supervise(&s, stdin_fd);
    tutti_store_server_close(s.store);
    tutti_free(s.fds);
    tutti_free(s.ranks);
    run_output_destroy(s.output);
    return exit_status;
}
