/* SPDX-License-Identifier: BSD-3-Clause */

/* The agent of a launcher on another host: `tutti run --agent` reads its task from its standard input, so that nothing
 * of it, least of all the secret, is on a command line; finds the way to the launcher's store; and supervises the ranks
 * of its host by the launcher's records. When its input ends the launcher is gone, and so are the ranks. */

#include "control/net/net.h"
#include "run_record.h"
#include "run_supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRY_MS 2000 /* that an address of the launcher may take to answer */

struct run_agent {
    struct run_inbox inbox;
    struct run_meeting meeting;
    uint16_t store_port;
    char addresses[1024], mine[64]; /* to try; ours towards the launcher */
    size_t n_args;
    bool started, complete;
    /* For rank 0. */
    int rank_fd, input_fd; /* its end and ours; -1: none */
    size_t used, sent;
    char input[RUN_INPUT_BYTES];
};

/* ---- the task ---- */

static void refuse(int status, const char *why)
{
    struct run_queue queue = {.used = 0};
    if (run_queue_text(&queue, "refused", (uint32_t)status, why)) run_queue_send(&queue, STDOUT_FILENO);
    run_queue_fini(&queue);
}

static void copy(char *out, size_t capacity, const char *text)
{
    snprintf(out, capacity, "%s", text);
}

/* Strings that stay as long as the process does. */
static bool task_list(struct run_options *o, struct run_agent *agent, const struct run_record *r)
{
    char *text = strdup(r->bytes);
    if (!text) return false;
    if (strcmp(r->name, "env") == 0) return putenv(text) == 0;
    if (strcmp(r->name, "set") == 0) {
        if (o->env.n == TUTTI_ARRAY_LEN(o->env.values)) return false;
        o->env.values[o->env.n++] = text;
        return true;
    }
    char **argv = realloc(o->argv, (agent->n_args + 2) * sizeof *argv);
    if (!argv) return false;
    o->argv = argv;
    argv[agent->n_args++] = text;
    argv[agent->n_args] = NULL;
    return true;
}

/* False: no memory, or it is not known. */
static bool task_record(struct run_options *o, struct run_agent *agent, const struct run_record *r)
{
    struct run_meeting *meeting = &agent->meeting;
    const struct {
        const char *name;
        uint32_t *number;
        char *text;
        size_t capacity;
    } table[] = {
        {"hosts", &o->n_hosts, NULL, 0},
        {"ranks", &o->n_ranks, NULL, 0},
        {"first", &o->first, NULL, 0},
        {"total", &o->total, NULL, 0},
        {"job", NULL, meeting->job, sizeof meeting->job},
        {"secret", NULL, meeting->secret, sizeof meeting->secret},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(table); i++) {
        if (strcmp(r->name, table[i].name) != 0) continue;
        if (table[i].number) *table[i].number = r->number;
        if (table[i].text) copy(table[i].text, table[i].capacity, r->bytes);
        return true;
    }
    if (strcmp(r->name, "host") == 0) {
        o->host = r->number;
        o->host_name = strdup(r->bytes);
        run_say_host(r->bytes);
    } else if (strcmp(r->name, "store") == 0) {
        agent->store_port = (uint16_t)r->number;
        copy(agent->addresses, sizeof agent->addresses, r->bytes);
    } else if (strcmp(r->name, "cores") == 0) {
        o->cores = strdup(r->bytes);
    } else if (strcmp(r->name, "dir") == 0) {
        if (chdir(r->bytes) == 0) return true;
        run_say("the working directory %s can not be entered: %s", r->bytes, strerror(errno));
        return false;
    } else if (strcmp(r->name, "terminal") == 0) {
        o->terminal = r->number != 0;
    } else if (strcmp(r->name, "env") == 0 || strcmp(r->name, "set") == 0 || strcmp(r->name, "arg") == 0) {
        return task_list(o, agent, r);
    } else if (strcmp(r->name, "end") == 0) {
        agent->complete = o->n_ranks > 0 && o->argv && o->cores && o->host_name;
        return agent->complete;
    } else {
        return false;
    }
    return true;
}

/* The first record says which tutti speaks. */
static bool task_read(struct run_options *o, struct run_agent *agent)
{
    struct run_record r;
    bool greeted = false;
    while (!agent->complete) {
        const int got = run_inbox_next(&agent->inbox, &r);
        if (got == 0) {
            if (run_inbox_fill(&agent->inbox, STDIN_FILENO) <= 0) return false;
        } else if (got > 0 && !greeted) {
            greeted = strcmp(r.name, "task") == 0;
            if (!greeted) return false;
            if (strcmp(r.bytes, TUTTI_VERSION_TEXT) == 0) continue;
            run_say("this is tutti %s, the launcher is %s", TUTTI_VERSION_TEXT, r.bytes);
            return false;
        } else if (got < 0 || !task_record(o, agent, &r)) {
            if (got > 0) run_say("the launcher's record '%s' can not be followed", r.name);
            return false;
        }
    }
    return true;
}

/* ---- the way to the launcher ---- */

static bool address_try(const struct tutti_net_address *address, struct run_agent *agent)
{
    int fd, error = 0;
    socklen_t n = sizeof error;
    struct tutti_net_address mine;
    if (tutti_net_connect(address, agent->store_port, "", NULL, &fd) < 0) return false;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    const bool there = poll(&room, 1, TRY_MS) > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 &&
                       error == 0 && tutti_net_address_of(fd, false, &mine);
    if (there) tutti_net_address_text(&mine, agent->mine, sizeof agent->mine);
    close(fd);
    return there;
}

static bool store_find(struct run_agent *agent)
{
    char list[sizeof agent->addresses], *rest = list;
    copy(list, sizeof list, agent->addresses);
    for (const char *one; (one = strsep(&rest, ","));) {
        struct tutti_net_address address;
        if (!tutti_net_address_parse(one, &address) || !address_try(&address, agent)) continue;
        const bool six = strchr(one, ':') != NULL;
        snprintf(agent->meeting.store, sizeof agent->meeting.store, "tcp://%s%.64s%s:%u", six ? "[" : "", one,
                 six ? "]" : "", agent->store_port);
        return true;
    }
    run_say("the launcher answers at none of its addresses (%s, port %u): choose another one by --interface",
            agent->addresses, agent->store_port);
    return false;
}

int run_agent_main(void)
{
    static struct run_agent agent = {.rank_fd = -1, .input_fd = -1};
    struct run_options options = {
        .grace_ns = 5 * TUTTI_NS_PER_S, .keep_going = true, .side = &run_side_agent, .agent = &agent};
    int status = TUTTI_EXIT_WRONG;
    char *path = NULL;
    if (!task_read(&options, &agent) || !store_find(&agent) || !run_cores_read(&options)) {
        refuse(status, "");
        return status;
    }
    path = run_program_find(options.argv[0], &status);
    options.path = path;
    if (path)
        status = run_guard(&options);
    else
        refuse(status, "");
    free(path);
    tutti_free(options.cpus);
    return status;
}

/* ---- supervising ---- */

static void agent_ended(struct supervisor *s, uint32_t rank)
{
    char text[64];
    for (int i = 0; i < 2; i++) { /* its last words first */
        const size_t n = run_output_poll(s->output, s->fds);
        if (poll(s->fds, n, 0) > 0) run_output_move(s->output, s->fds, n);
    }
    snprintf(text, sizeof text, "%d %d", (int)s->ranks[rank].pid, s->ranks[rank].status);
    run_output_record(s->output, "ended", s->options->first + rank, text);
}

static bool agent_open(struct supervisor *s)
{
    struct run_agent *agent = s->options->agent;
    int ends[2];
    s->meeting = agent->meeting;
    if (s->options->first == 0 && pipe2(ends, O_CLOEXEC) == 0) { /* input may come right behind the start */
        agent->rank_fd = ends[0], agent->input_fd = ends[1];
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
    }
    return true;
}

static void input_write(struct supervisor *s)
{
    struct run_agent *agent = s->options->agent;
    const ssize_t n = write(agent->input_fd, agent->input + agent->sent, agent->used - agent->sent);
    if (n > 0) agent->sent += (size_t)n;
    if (n < 0 && errno != EAGAIN && errno != EINTR) { /* rank 0 reads no more */
        close(agent->input_fd);
        agent->input_fd = -1;
        return;
    }
    if (agent->sent < agent->used) return;
    agent->sent = agent->used = 0;
    run_output_record(s->output, "more", 0, "");
}

static bool record_follow(struct supervisor *s, const struct run_record *r)
{
    struct run_agent *agent = s->options->agent;
    if (strcmp(r->name, "start") == 0) {
        copy(s->meeting.master, sizeof s->meeting.master, r->bytes);
        s->meeting.master_port = (uint16_t)r->number;
        agent->started = true;
    } else if (strcmp(r->name, "signal") == 0) {
        run_here_signal(s, (int)r->number);
    } else if (strcmp(r->name, "close") == 0 && (r->number == 1 || r->number == 2)) {
        run_output_shut(s->output, (int)r->number);
    } else if (strcmp(r->name, "input") == 0 && r->n <= sizeof agent->input) {
        if (agent->input_fd < 0) return true;
        memcpy(agent->input, r->bytes, r->n);
        agent->used = r->n, agent->sent = 0;
        if (r->n > 0) {
            input_write(s);
        } else {
            close(agent->input_fd);
            agent->input_fd = -1;
        }
    } else {
        return false;
    }
    return true;
}

static size_t agent_poll(struct supervisor *s, struct pollfd *fds)
{
    const struct run_agent *agent = s->options->agent;
    fds[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = agent->sent < agent->used ? agent->input_fd : -1, .events = POLLOUT};
    return 2;
}

static bool agent_move(struct supervisor *s, const struct pollfd *fds)
{
    struct run_agent *agent = s->options->agent;
    struct run_record r;
    int got;
    if (fds[1].fd >= 0 && fds[1].revents) input_write(s);
    if (!fds[0].revents) return true;
    const ssize_t n = run_inbox_fill(&agent->inbox, STDIN_FILENO);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return false;
    while ((got = run_inbox_next(&agent->inbox, &r)) > 0)
        if (!record_follow(s, &r)) return false;
    return got == 0;
}

/* The ranks start when the agents of all hosts are there. */
static void agent_start(struct supervisor *s, int stdin_fd)
{
    struct run_agent *agent = s->options->agent;
    if (stdin_fd != STDIN_FILENO) close(stdin_fd); /* a terminal's; never by a remote shell */
    run_output_record(s->output, "hello", run_port_find(), agent->mine);
    while (!agent->started && !s->impatient)
        if (!run_step(s, -1)) return;
    if (!agent->started) return;
    run_here_start(s, agent->rank_fd);
    for (uint32_t i = 0; i < s->options->n_ranks; i++)
        if (s->ranks[i].pid == 0) {
            s->ranks[i].status = s->exit_status << 8; /* as waitpid has it */
            agent_ended(s, i);
        }
}

const struct run_side run_side_agent = {
    .open = agent_open,
    .start = agent_start,
    .signal = run_here_signal,
    .reap = run_here_reap,
    .finish = run_here_finish,
    .ended = agent_ended,
    .poll = agent_poll,
    .move = agent_move,
};
