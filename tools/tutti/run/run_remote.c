/* SPDX-License-Identifier: BSD-3-Clause */

/* The supervisor's side of ranks on other hosts: a remote shell for each host starts an agent there, which gets its
 * task by its input and says by its output what becomes of its ranks. The ranks start when all agents have said
 * hello. */

#include "run_record.h"
#include "run_supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_NS (60 * TUTTI_NS_PER_S)  /* for all agents to say hello */
#define FINISH_NS (10 * TUTTI_NS_PER_S) /* from the last rank's end to that of the agents */
#define LEAVE_NS (2 * TUTTI_NS_PER_S)
#define WORDS_BYTES 2048
#define WORDS_TOLD 400 /* bytes of a remote shell's last words */

struct host {
    const struct run_host *is;
    pid_t pid;        /* the remote shell's; 0: reaped */
    int in, out, err; /* its ends; -1: closed */
    int status;       /* once it is reaped */
    bool hello, lost;
    uint16_t port;
    char address[64];
    struct run_queue queue;
    struct run_inbox inbox;
    size_t n_words;
    char words[WORDS_BYTES]; /* that came by its stderr: a line that is not whole; before hello, all */
};
enum rank_state { RANK_LIVE, RANK_ENDED, RANK_OVER };
struct run_remote {
    size_t n, n_hello;
    struct host *hosts;
    uint8_t *states; /* ranks': enum rank_state */
    bool started, shut[2];
    int input; /* for rank 0; -1: at its end */
    bool input_sent;
};

static void fd_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* ---- a host that is gone ---- */

static void words_tell(struct host *host, bool all)
{
    size_t n = host->n_words;
    while (!all && n > 0 && host->words[n - 1] != '\n') n--;
    if (n == 0 && host->n_words == sizeof host->words) n = host->n_words;
    if (n > 0 && write(STDERR_FILENO, host->words, n) < 0) return; /* nobody to tell */
    memmove(host->words, host->words + n, host->n_words - n);
    host->n_words -= n;
}

/* The last words as a part of a sentence. */
static const char *words_last(const struct host *host, char out[WORDS_TOLD + 16])
{
    size_t end = host->n_words, n;
    while (end > 0 && (host->words[end - 1] == '\n' || host->words[end - 1] == '\r')) end--;
    n = end < WORDS_TOLD ? end : WORDS_TOLD;
    if (n == 0) return "";
    snprintf(out, WORDS_TOLD + 16, "; it said: %.*s", (int)n, host->words + end - n);
    for (char *at = out; *at; at++)
        if (*at == '\n' || *at == '\r') *at = ' ';
    return out;
}

/* The command as it was started, up to the host: "ssh -p 22 a". */
static const char *shell_say(const struct run_options *o, const struct host *host, char *out, size_t capacity)
{
    out[0] = '\0';
    if (host->is->here) return "none is needed: this machine";
    for (size_t i = 0; o->shell[i]; i++) tutti_append(out, capacity, "%s ", o->shell[i]);
    tutti_append(out, capacity, "%s", host->is->name);
    return out;
}

/* Its ranks have ended, whatever became of them. `how` is the end of a sentence. */
static void host_lost(struct supervisor *s, struct host *host, const char *how, int exit_status)
{
    struct run_remote *remote = s->remote;
    char words[WORDS_TOLD + 16], shell[400];
    uint32_t n_ranks = 0;
    if (host->lost) return;
    host->lost = true;
    fd_close(&host->in), fd_close(&host->out), fd_close(&host->err);
    for (uint32_t i = host->is->first; i < host->is->first + host->is->n; i++) {
        n_ranks += remote->states[i] == RANK_LIVE;
        if (remote->states[i] == RANK_LIVE) remote->states[i] = RANK_OVER;
    }
    if (n_ranks == 0) {
        words_tell(host, true);
        return;
    }
    s->n_live -= n_ranks;
    if (!s->ending) {
        const char *then = s->n_live == 0                              ? ""
                           : s->options->keep_going && remote->started ? "; the others go on"
                                                                       : "; ending the others";
        run_say("host %s %s: the remote shell (%s) %s%s%s", host->is->name,
                host->hello ? "is lost" : "can not be reached", shell_say(s->options, host, shell, sizeof shell), how,
                words_last(host, words), then);
    }
    run_fail(s, exit_status ? exit_status : TUTTI_EXIT_WRONG);
    if ((!s->options->keep_going || !remote->started) && s->n_live > 0) run_ranks_end(s);
}

/* The agent says itself why, on stderr. */
static void host_refused(struct supervisor *s, struct host *host, int exit_status)
{
    words_tell(host, true);
    run_fail(s, exit_status);
    const bool ending = s->ending;
    s->ending = true; /* no sentence more */
    host_lost(s, host, "", exit_status);
    s->ending = ending;
    if (s->n_live > 0) run_ranks_end(s);
}

/* ---- what agents say ---- */

static void start_all(struct supervisor *s)
{
    struct run_remote *remote = s->remote;
    for (size_t i = 0; i < remote->n; i++)
        run_queue_text(&remote->hosts[i].queue, "start", remote->hosts[0].port, remote->hosts[0].address);
    remote->started = true;
    s->look_at_ns = TUTTI_NEVER;
}

static bool rank_record(struct supervisor *s, const struct host *host, const struct run_record *r)
{
    struct run_remote *remote = s->remote;
    const uint32_t rank = r->number;
    int pid, status;
    if (rank < host->is->first || rank - host->is->first >= host->is->n) return false;
    if (strcmp(r->name, "ended") != 0) {
        run_output_feed(s->output, rank, r->name[0] == 'o' ? 1 : 2, r->bytes, r->n);
        return true;
    }
    if (sscanf(r->bytes, "%d %d", &pid, &status) != 2 || remote->states[rank] != RANK_LIVE) return false;
    remote->states[rank] = RANK_ENDED;
    s->ranks[rank].pid = pid;
    s->ranks[rank].status = status;
    return true;
}

static bool record_follow(struct supervisor *s, struct host *host, const struct run_record *r)
{
    struct run_remote *remote = s->remote;
    if (strcmp(r->name, "refused") == 0) {
        host_refused(s, host, (int)r->number);
    } else if (strcmp(r->name, "hello") == 0) {
        if (host->hello) return false;
        host->hello = true;
        host->port = (uint16_t)r->number;
        snprintf(host->address, sizeof host->address, "%s", r->bytes);
        words_tell(host, true);
        if (++remote->n_hello == remote->n) start_all(s);
    } else if (!host->hello) {
        return false;
    } else if (strcmp(r->name, "more") == 0) {
        remote->input_sent = false;
    } else if (strcmp(r->name, "out") == 0 || strcmp(r->name, "err") == 0 || strcmp(r->name, "ended") == 0) {
        return rank_record(s, host, r);
    } else {
        return false;
    }
    return true;
}

/* What a shell prints at its start is no record. */
static void noise_skip(struct run_inbox *inbox)
{
    const char *newline = memchr(inbox->bytes + inbox->begin, '\n', inbox->used - inbox->begin);
    inbox->begin = newline ? (size_t)(newline - inbox->bytes) + 1 : inbox->used;
}

static void records_follow(struct supervisor *s, struct host *host)
{
    struct run_record r;
    int got = 1;
    while (!host->lost && got != 0) {
        got = run_inbox_next(&host->inbox, &r);
        const bool fine = got == 0 || (got > 0 && record_follow(s, host, &r));
        if (fine) continue;
        if (host->hello)
            host_lost(s, host, "passed on what no agent says", TUTTI_EXIT_WRONG);
        else if (got < 0)
            noise_skip(&host->inbox);
    }
}

/* False: nothing now, or the end. */
static bool out_read(struct supervisor *s, struct host *host)
{
    const ssize_t n = run_inbox_fill(&host->inbox, host->out);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0)
        fd_close(&host->out);
    else
        records_follow(s, host);
    return n > 0 && !host->lost;
}

static bool err_read(struct host *host)
{
    if (host->n_words == sizeof host->words) { /* the last ones are kept */
        memmove(host->words, host->words + WORDS_BYTES / 2, WORDS_BYTES / 2);
        host->n_words = WORDS_BYTES / 2;
    }
    const ssize_t n = read(host->err, host->words + host->n_words, sizeof host->words - host->n_words);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        fd_close(&host->err);
        return false;
    }
    host->n_words += (size_t)n;
    if (host->hello) words_tell(host, false);
    return true;
}

/* The remote shell has ended: what it left in its pipes, then its end. */
static void host_ended(struct supervisor *s, struct host *host)
{
    char how[64];
    while (host->err >= 0 && err_read(host)) continue;
    while (host->out >= 0 && out_read(s, host)) continue;
    const int status = host->status;
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "ended with exit status %d", WEXITSTATUS(status));
    host_lost(s, host, how, WIFSIGNALED(status) ? RUN_EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status));
}

/* ---- the side ---- */

static bool remote_open(struct supervisor *s)
{
    const struct run_options *o = s->options;
    char addresses[1024], bind[64];
    struct run_remote *remote = tutti_alloc(sizeof *remote);
    if (!remote) return false;
    s->remote = remote;
    *remote = (struct run_remote){.n = o->hosts.n, .input = -1};
    remote->hosts = tutti_alloc_array(remote->n, sizeof *remote->hosts);
    remote->states = tutti_alloc_array(o->n_ranks, 1);
    if (!remote->hosts || !remote->states) {
        run_say("out of memory");
        return false;
    }
    memset(remote->states, RANK_LIVE, o->n_ranks);
    for (size_t i = 0; i < remote->n; i++)
        remote->hosts[i] = (struct host){.is = &o->hosts.hosts[i], .in = -1, .out = -1, .err = -1};
    if (!run_addresses_find(o, addresses, sizeof addresses, bind, sizeof bind)) return false;
    const char *everywhere = strchr(addresses, ':') ? "::" : "0.0.0.0";
    if (!run_meeting_make(s, o->interface[0] ? bind : everywhere)) return false;
    for (size_t i = 0; i < remote->n; i++)
        if (!run_task_make(s, &remote->hosts[i].queue, (uint32_t)i, addresses)) return false;
    return true;
}

/* COMMAND... HOST TUTTI run --agent; on this machine without the first two. */
static bool shell_start(struct supervisor *s, struct host *host, const char *path)
{
    const struct run_options *o = s->options;
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, error = ENOMEM;
    size_t n = 0;
    while (o->shell[n]) n++;
    char **argv = tutti_alloc_array(n + 5, sizeof *argv);
    if (argv && pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0) {
        const char *const rest[] = {host->is->name, o->agent_path, "run", "--agent", NULL};
        const size_t skip = host->is->here ? 1 : 0;
        if (skip) n = 0, path = o->agent_path;
        memcpy(argv, o->shell, n * sizeof *argv);
        for (size_t i = skip; i < TUTTI_ARRAY_LEN(rest); i++) argv[n + i - skip] = (char *)(uintptr_t)rest[i];
        const int fds[3] = {in[0], out[1], err[1]};
        host->pid = run_spawn_other(o, path, argv, fds, &error);
    }
    tutti_free(argv);
    fd_close(&in[0]), fd_close(&out[1]), fd_close(&err[1]);
    host->in = in[1], host->out = out[0], host->err = err[0];
    for (int i = 0; i < 3; i++) {
        const int fd = i == 0 ? host->in : i == 1 ? host->out : host->err;
        if (fd >= 0) fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    if (host->pid > 0) return true;
    host->pid = 0;
    run_say("%s%s can not be started: %s", host->is->here ? "" : "the remote shell ", path, strerror(error));
    return false;
}

static void remote_start(struct supervisor *s, int stdin_fd)
{
    struct run_remote *remote = s->remote;
    int status;
    bool all_here = true;
    for (size_t i = 0; i < remote->n; i++) all_here = all_here && remote->hosts[i].is->here;
    char *path = run_program_find(all_here ? s->options->agent_path : s->options->shell[0], &status);
    remote->input = stdin_fd;
    s->look_at_ns = tutti_deadline_ns(START_NS);
    s->n_live = s->options->n_ranks;
    for (size_t i = 0; i < remote->n; i++) {
        if (path && shell_start(s, &remote->hosts[i], path)) continue;
        host_refused(s, &remote->hosts[i], path ? RUN_EXIT_NOT_EXECUTABLE : status);
        s->n_live = 0; /* those that were started see the end of their input */
        break;
    }
    free(path);
}

static void shells_kill(struct run_remote *remote, int signal)
{
    for (size_t i = 0; i < remote->n; i++)
        if (remote->hosts[i].pid > 0) kill(-remote->hosts[i].pid, signal);
}

static void inputs_close(struct run_remote *remote)
{
    for (size_t i = 0; i < remote->n; i++) fd_close(&remote->hosts[i].in);
}

static void queue_flush(struct host *host)
{
    if (host->in >= 0 && !run_queue_send(&host->queue, host->in)) fd_close(&host->in); /* its end comes by its output */
}

static void remote_signal(struct supervisor *s, int signal)
{
    struct run_remote *remote = s->remote;
    const bool end =
        signal == SIGINT || signal == SIGTERM || signal == SIGQUIT || signal == SIGHUP || signal == SIGKILL;
    if (!remote->started) { /* there are no ranks yet */
        if (!end) return;
        run_fail(s, RUN_EXIT_SIGNAL + signal);
        if (!s->ending) s->kill_at_ns = tutti_deadline_ns(s->options->grace_ns);
        s->ending = true;
        inputs_close(remote);
        if (signal == SIGKILL) shells_kill(remote, SIGKILL);
        return;
    }
    for (size_t i = 0; i < remote->n; i++) {
        run_queue_text(&remote->hosts[i].queue, "signal", (uint32_t)signal, "");
        queue_flush(&remote->hosts[i]);
    }
    if (signal == SIGKILL) s->look_at_ns = tutti_deadline_ns(s->options->grace_ns); /* or the hosts do not hear it */
}

/* Agents that did not say hello in time, or hosts that do not answer. */
static void remote_look(struct supervisor *s)
{
    struct run_remote *remote = s->remote;
    s->look_at_ns = TUTTI_NEVER;
    for (size_t i = 0; i < remote->n; i++) {
        struct host *host = &remote->hosts[i];
        if (host->lost || host->pid <= 0 || (host->hello && !remote->started)) continue;
        kill(-host->pid, SIGKILL);
        if (!remote->started) host_lost(s, host, "did not answer in 60 s", RUN_EXIT_TIMEOUT);
    }
}

static void remote_reap(struct supervisor *s)
{
    struct run_remote *remote = s->remote;
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (size_t i = 0; i < remote->n; i++)
            if (remote->hosts[i].pid == pid) {
                remote->hosts[i].pid = 0;
                remote->hosts[i].status = status;
                host_ended(s, &remote->hosts[i]);
            }
    for (uint32_t rank = 0; rank < s->options->n_ranks; rank++)
        if (remote->states[rank] == RANK_ENDED) {
            remote->states[rank] = RANK_OVER;
            run_rank_ended(s, rank, s->ranks[rank].status);
        }
}

static size_t remote_poll(struct supervisor *s, struct pollfd *fds)
{
    struct run_remote *remote = s->remote;
    const bool full = run_output_is_full(s->output) && !(s->ending && s->kill_at_ns == TUTTI_NEVER);
    size_t n = 0;
    for (size_t i = 0; i < remote->n; i++) {
        const struct host *host = &remote->hosts[i];
        fds[n++] = (struct pollfd){.fd = host->queue.used ? host->in : -1, .events = POLLOUT};
        fds[n++] = (struct pollfd){.fd = full ? -1 : host->out, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = host->err, .events = POLLIN};
    }
    const bool wanted = remote->started && !remote->input_sent && remote->hosts[0].in >= 0;
    fds[n++] = (struct pollfd){.fd = wanted ? remote->input : -1, .events = POLLIN};
    return n;
}

static void input_read(struct run_remote *remote)
{
    char bytes[RUN_INPUT_BYTES];
    const ssize_t n = read(remote->input, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    run_queue_add(&remote->hosts[0].queue, "input", 0, bytes, n > 0 ? (size_t)n : 0);
    remote->input_sent = true;
    if (n <= 0) fd_close(&remote->input);
}

static bool remote_move(struct supervisor *s, const struct pollfd *fds)
{
    struct run_remote *remote = s->remote;
    for (size_t i = 0; i < remote->n; i++) {
        struct host *host = &remote->hosts[i];
        if (host->err >= 0 && fds[3 * i + 2].revents) err_read(host);
        if (host->out >= 0 && fds[3 * i + 1].fd == host->out && fds[3 * i + 1].revents) out_read(s, host);
    }
    if (remote->input >= 0 && fds[3 * remote->n].fd >= 0 && fds[3 * remote->n].revents) input_read(remote);
    for (int which = 1; which <= 2; which++) {
        if (remote->shut[which - 1] || !run_output_is_broken(s->output, which)) continue;
        remote->shut[which - 1] = true;
        for (size_t i = 0; i < remote->n; i++) run_queue_text(&remote->hosts[i].queue, "close", (uint32_t)which, "");
    }
    for (size_t i = 0; i < remote->n; i++) queue_flush(&remote->hosts[i]);
    return true;
}

static bool shells_left(const struct run_remote *remote)
{
    for (size_t i = 0; i < remote->n; i++)
        if (remote->hosts[i].pid > 0) return true;
    return false;
}

/* Agents end what their ranks left behind, then themselves. */
static bool remote_finish(struct supervisor *s)
{
    struct run_remote *remote = s->remote;
    const uint64_t deadline = tutti_deadline_ns(FINISH_NS + s->options->grace_ns);
    if (!remote->started) inputs_close(remote);
    while (shells_left(remote) && tutti_now_ns() < deadline && !s->impatient)
        if (!run_step(s, 100)) return false;
    inputs_close(remote);
    const uint64_t last = tutti_deadline_ns(LEAVE_NS);
    while (shells_left(remote) && tutti_now_ns() < last)
        if (!run_step(s, 100)) return false;
    run_wipe(NULL, 0);
    return true;
}

static void remote_leave(struct supervisor *s)
{
    struct run_remote *remote = s->remote;
    const uint64_t deadline = tutti_deadline_ns(LEAVE_NS);
    inputs_close(remote);
    while (shells_left(remote) && tutti_now_ns() < deadline) {
        tutti_sleep_ns(10 * TUTTI_NS_PER_MS);
        remote_reap(s);
    }
}

static void remote_close(struct supervisor *s)
{
    struct run_remote *remote = s->remote;
    for (size_t i = 0; remote && remote->hosts && i < remote->n; i++) {
        struct host *host = &remote->hosts[i];
        run_queue_fini(&host->queue);
        run_inbox_fini(&host->inbox);
        fd_close(&host->in), fd_close(&host->out), fd_close(&host->err);
    }
    if (remote) {
        tutti_free(remote->hosts);
        tutti_free(remote->states);
    }
    tutti_free(remote);
}

const struct run_side run_side_remote = {
    .open = remote_open,
    .start = remote_start,
    .signal = remote_signal,
    .reap = remote_reap,
    .finish = remote_finish,
    .poll = remote_poll,
    .move = remote_move,
    .look = remote_look,
    .leave = remote_leave,
    .close = remote_close,
};
