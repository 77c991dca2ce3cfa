/* SPDX-License-Identifier: BSD-3-Clause */

/* The supervisor's side of ranks that are processes of this host. */

#include "run_supervise.h"

#include "base/tls.h"

#include <tutti/store.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEFTOVER_GRACE_NS TUTTI_NS_PER_S
#define LEFTOVER_STEP_MS 10
#define MAX_LEFTOVERS 256

/* 0: it is not free. */
static uint16_t port_try(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    port = 0;
    if (fd < 0) return 0;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    close(fd);
    return port;
}

/* A port that is free now, for MASTER_PORT: rank 0 will bind it. Of a range the last, which ranks try last. */
uint16_t run_port_find(void)
{
    char text[32];
    uint64_t range = 0;
    uint16_t port = 0;
    if (tutti_option_get("port_range", text, sizeof text, &range) < 0 || range == 0) return port_try(0);
    for (uint32_t i = tutti_ports_n(range); i-- > 0 && !port;) port = port_try((uint16_t)((range >> 16) + i));
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

/* The user's, of TUTTI_SECRET or TUTTI_SECRET_FILE; else one of these bytes, for this job alone; none where
 * certificates prove the ranks. */
static enum tutti_status make_secret(struct run_meeting *meeting, const uint8_t *random, size_t n)
{
    struct tutti_config config;
    struct tutti_certificate *certificate;
    TUTTI_TRY(tutti_config_init(&config, NULL, 0));
    snprintf(meeting->secret, sizeof meeting->secret, "%s", config.text[TUTTI_OPT_secret]);
    const enum tutti_status status = tutti_certificate_of(&config, &certificate);
    tutti_config_fini(&config);
    if (status < 0 || certificate || meeting->secret[0] || !tutti_hmac_available()) return status;
    for (size_t i = 0; i < n; i++) sprintf(meeting->secret + 2 * i, "%02x", random[i]);
    return TUTTI_OK;
}

bool run_meeting_make(struct supervisor *s, const char *host)
{
    uint8_t random[40];
    struct run_meeting *meeting = &s->meeting;
    if (tutti_random_bytes(random, sizeof random) < 0 || make_secret(meeting, random + 8, sizeof random - 8) < 0) {
        run_say("%s", tutti_last_error()->text);
        return false;
    }
    snprintf(meeting->job, sizeof meeting->job, "run-%d-", (int)getpid());
    for (size_t i = 0; i < 8; i++) sprintf(meeting->job + strlen(meeting->job), "%02x", random[i]);
    /* The store speaks with the secret that the ranks get, ours or the user's. */
    const char *secret = given_variable(s->options, "TUTTI_SECRET");
    if (!secret) secret = meeting->secret;
    if (tutti_store_server_open(host, 0, secret[0] ? secret : NULL, &s->store) >= 0) return true;
    run_say("the store where the ranks meet can not be served: %s", tutti_last_error()->text);
    return false;
}

static bool here_open(struct supervisor *s)
{
    struct run_meeting *meeting = &s->meeting;
    if (!run_meeting_make(s, "127.0.0.1")) return false;
    snprintf(meeting->store, sizeof meeting->store, "tcp://127.0.0.1:%u", tutti_store_server_port(s->store));
    snprintf(meeting->master, sizeof meeting->master, "127.0.0.1");
    meeting->master_port = run_port_find();
    return true;
}

void run_here_signal(struct supervisor *s, int signal)
{
    for (uint32_t i = 0; i < s->options->n_ranks; i++)
        if (s->ranks[i].pid > 0) kill(-s->ranks[i].pid, signal);
}

void run_here_reap(struct supervisor *s)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) /* or one that a rank left behind */
        for (uint32_t i = 0; i < s->options->n_ranks; i++)
            if (s->ranks[i].pid == pid) run_rank_ended(s, i, status);
}

/* ---- starting ---- */
static void start_failed(struct supervisor *s, uint32_t rank, int error)
{
    run_say("rank %u can not be started: %s%s", s->options->first + rank, strerror(error),
            error == EAGAIN ? " (the limit of processes, ulimit -u, or of the cgroup)" : "");
    run_fail(s, error == ENOENT ? RUN_EXIT_NOT_FOUND : RUN_EXIT_NOT_EXECUTABLE);
    run_ranks_end(s);
}

/* The job's rank 0 reads our input, the others nothing. */
static bool rank_start(struct supervisor *s, uint32_t rank, int stdin_fd)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, error = 0;
    const int in = rank == 0 && stdin_fd >= 0 ? stdin_fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
        error = errno;
    } else {
        const int fds[3] = {in, out[1], err[1]};
        s->ranks[rank].pid = run_spawn(s->options, &s->meeting, rank, fds, &error);
    }
    if (in != stdin_fd && in >= 0) close(in);
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

void run_here_start(struct supervisor *s, int stdin_fd)
{
    for (uint32_t rank = 0; rank < s->options->n_ranks; rank++)
        if (!rank_start(s, rank, stdin_fd)) break;
    if (stdin_fd >= 0) close(stdin_fd);
}

/* What the ranks started and left behind ends with them: SIGTERM, what remains of the grace, SIGKILL. False: the guard
 * is dead. */
bool run_here_finish(struct supervisor *s)
{
    pid_t pids[MAX_LEFTOVERS];
    const uint64_t soon = tutti_deadline_ns(LEFTOVER_GRACE_NS);
    const uint64_t deadline = s->ending && s->kill_at_ns != TUTTI_NEVER && s->kill_at_ns > soon ? s->kill_at_ns : soon;
    run_ranks_reap(s);
    size_t n = run_children(pids, MAX_LEFTOVERS);
    if (n > 0 && !s->ending)
        run_say("the ranks left %zu process%s behind; ending %s", n, n == 1 ? "" : "es", n == 1 ? "it" : "them");
    for (size_t i = 0; i < n && i < MAX_LEFTOVERS; i++) {
        kill(pids[i], SIGTERM);
        kill(pids[i], SIGCONT);
    }
    while (n > 0 && tutti_now_ns() < deadline && !s->impatient) {
        if (!run_step(s, LEFTOVER_STEP_MS)) return false;
        n = run_children(pids, MAX_LEFTOVERS);
    }
    run_wipe(NULL, 0);
    return true;
}

const struct run_side run_side_here = {
    .open = here_open,
    .start = run_here_start,
    .signal = run_here_signal,
    .reap = run_here_reap,
    .finish = run_here_finish,
};
