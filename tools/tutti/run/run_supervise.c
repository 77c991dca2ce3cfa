/* SPDX-License-Identifier: BSD-3-Clause */

/* The parent of the ranks: starts them, passes signals and output on, and when one fails, or the time is up, or the
 * guard dies, ends the others: SIGTERM, a grace, SIGKILL. It stays until no descendant is left, also of those that
 * ranks started and left behind. */

#include "run_supervise.h"

#include <tutti/store.h>

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- ending ---- */
void run_ranks_end(struct supervisor *s)
{
    if (s->ending) return;
    s->ending = true;
    s->kill_at_ns = tutti_deadline_ns(s->options->grace_ns);
    s->side->signal(s, SIGTERM);
    s->side->signal(s, SIGCONT); /* a stopped process takes no SIGTERM */
}

static void ranks_kill(struct supervisor *s)
{
    s->kill_at_ns = TUTTI_NEVER;
    s->side->signal(s, SIGKILL);
}

void run_fail(struct supervisor *s, int exit_status)
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
    const char *host = run_host_of(&s->options->hosts, rank), *on = host ? " on " : "";
    const char *then = s->n_live == 0 ? "" : s->options->keep_going ? "; the others go on" : "; ending the others";
    if (WIFSIGNALED(status)) {
        const char *name = run_signal_name(WTERMSIG(status));
        run_say("rank %u (pid %d%s%s) was killed by signal %d (%s%s%s)%s", rank, (int)pid, on, host ? host : "",
                WTERMSIG(status), name ? "SIG" : "real-time", name ? name : "",
                WCOREDUMP(status) ? ", core dumped" : "", then);
    } else {
        run_say("rank %u (pid %d%s%s) ended with exit status %d%s", rank, (int)pid, on, host ? host : "",
                WEXITSTATUS(status), then);
    }
}

/* A rank that was killed is rather the cause than one that ended at the same time because it noticed and gave up. */
static uint32_t cause_find(const struct supervisor *s)
{
    uint32_t cause = UINT32_MAX;
    for (uint32_t i = 0; i < s->options->n_ranks; i++) {
        const struct supervised *rank = &s->ranks[i];
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

void run_rank_ended(struct supervisor *s, uint32_t rank, int status)
{
    s->ranks[rank].status = status;
    s->ranks[rank].just_ended = true;
    s->n_live--;
    if (s->side->ended) s->side->ended(s, rank);
}

void run_ranks_reap(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->options->n_ranks; i++) s->ranks[i].just_ended = false;
    s->side->reap(s);
    const uint32_t cause = cause_find(s);
    if (cause != UINT32_MAX) {
        if (!s->ending && !s->options->agent) { /* an agent's launcher says it */
            output_pass(s);                     /* its last words first */
            output_pass(s);
            failure_say(s, cause, s->ranks[cause].pid);
        }
        run_fail(s, code_of(s->ranks[cause].status));
    }
    for (uint32_t i = 0; i < s->options->n_ranks; i++)
        if (s->ranks[i].just_ended) s->ranks[i].pid = 0;
    if (cause != UINT32_MAX && !s->options->keep_going && s->n_live > 0) run_ranks_end(s);
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
        if (signal == SIGTERM && s->kill_at_ns == TUTTI_NEVER) s->kill_at_ns = tutti_deadline_ns(s->options->grace_ns);
        if (end && s->n_live == 0) s->impatient = true;
        s->side->signal(s, signal);
    }
}

static void times_check(struct supervisor *s, uint64_t now)
{
    if (now >= s->timeout_at_ns && !s->ending && s->n_live > 0) {
        run_say("%u of %u ranks did not end within %.4g s (--timeout); ending them", s->n_live, s->options->n_ranks,
                (double)s->options->timeout_ns / 1e9);
        run_fail(s, RUN_EXIT_TIMEOUT);
        run_ranks_end(s);
    }
    if (now >= s->kill_at_ns) {
        if (s->n_live > 0)
            run_say("%u rank%s did not end within %.4g s of SIGTERM; killing", s->n_live, s->n_live == 1 ? "" : "s",
                    (double)s->options->grace_ns / 1e9);
        ranks_kill(s);
    }
    if (now >= s->look_at_ns) s->side->look(s);
    s->settle_at_ns = run_output_settle(s->output, now);
}

static int poll_timeout(const struct supervisor *s, uint64_t now)
{
    uint64_t next = s->settle_at_ns;
    if (!s->ending && s->timeout_at_ns < next) next = s->timeout_at_ns;
    if (s->kill_at_ns < next) next = s->kill_at_ns;
    if (s->look_at_ns < next) next = s->look_at_ns;
    if (next == TUTTI_NEVER) return -1;
    const uint64_t ms = next <= now ? 0 : (next - now) / TUTTI_NS_PER_MS + 1;
    return ms > 60000 ? 60000 : (int)ms;
}

bool run_step(struct supervisor *s, int max_ms)
{
    int timeout_ms = poll_timeout(s, tutti_now_ns());
    if (max_ms >= 0 && (timeout_ms < 0 || timeout_ms > max_ms)) timeout_ms = max_ms;
    size_t n = run_output_poll(s->output, s->fds);
    s->fds[n] = (struct pollfd){.fd = s->signals, .events = POLLIN};
    s->fds[n + 1] = (struct pollfd){.fd = s->alive, .events = POLLIN};
    const size_t n_side = s->side->poll ? s->side->poll(s, s->fds + n + 2) : 0;
    if (poll(s->fds, n + 2 + n_side, timeout_ms) > 0) {
        if (s->fds[n + 1].revents) return false;
        run_output_move(s->output, s->fds, n);
        if (n_side && !s->side->move(s, s->fds + n + 2)) return false;
    }
    signals_read(s);
    run_ranks_reap(s);
    times_check(s, tutti_now_ns());
    return true;
}

static int supervise(struct supervisor *s, int stdin_fd)
{
    bool guarded = true;
    s->timeout_at_ns = s->options->timeout_ns ? tutti_deadline_ns(s->options->timeout_ns) : TUTTI_NEVER;
    s->side->start(s, stdin_fd);
    while (guarded && s->n_live > 0) guarded = run_step(s, -1);
    if (guarded) guarded = s->side->finish(s);
    if (!guarded) {
        ranks_kill(s);
        if (s->side->leave) s->side->leave(s);
        run_wipe(NULL, 0);
        return RUN_EXIT_SIGNAL + SIGKILL;
    }
    do run_output_finish(s->output);
    while (!run_output_is_done(s->output) && !s->impatient && run_step(s, -1));
    return s->exit_status;
}

int run_supervise(const struct run_options *options, int alive_fd, int stdin_fd)
{
    struct supervisor s = {
        .options = options,
        .side = options->side,
        .alive = alive_fd,
        .kill_at_ns = TUTTI_NEVER,
        .settle_at_ns = TUTTI_NEVER,
        .look_at_ns = TUTTI_NEVER,
    };
    int exit_status = TUTTI_EXIT_WRONG;
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask); /* the guard blocked what we read */
    s.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    prctl(PR_SET_NAME, "rank-supervisor"); /* killall of the command's name leaves it to clean up */
    run_adopt();
    s.output = run_output_create(options);
    s.ranks = tutti_alloc_array(options->n_ranks, sizeof *s.ranks);
    s.fds = tutti_alloc_array(2 * (size_t)options->n_ranks + 8 + 3 * options->hosts.n, sizeof *s.fds);
    if (s.signals < 0 || !s.output || !s.ranks || !s.fds)
        run_say("cannot start %u ranks: %s", options->n_ranks, s.signals < 0 ? strerror(errno) : "out of memory");
    else if (s.side->open(&s))
        exit_status = supervise(&s, stdin_fd);
    if (s.side->close) s.side->close(&s);
    tutti_store_server_close(s.store);
    tutti_free(s.fds);
    tutti_free(s.ranks);
    run_output_destroy(s.output);
    return exit_status;
}
