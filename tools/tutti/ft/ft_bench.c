/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti ft bench`: what a step costs a lighthouse: a process of its own, whose CPU time is read, and groups that have
 * a connection each, as managers do. */
#include "ft.h"

#include "base/base.h"
#include "base/loop.h"
#include "ft/rpc/message.h"

#include <tutti.pb-c.h>

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS (200 * TUTTI_NS_PER_S)
#define NAME 64
#define WINDOW 65536 /* of thousands of connections, which the kernel holds */

struct bench {
    struct tutti_loop *loop;
    struct group *groups;
    uint32_t n;
    bool plain; /* torchft's protocol */
    uint32_t changes;
    int64_t step;
    _Atomic uint32_t n_done, n_wrong;
    uint64_t bytes;
    pid_t lighthouse;
    char address[128];
};
struct group {
    struct bench *bench;
    struct tutti_rpc_channel *channel;
    struct tutti_rpc_request *request; /* NULL: it is over */
    uint32_t number, life;
    int64_t epoch; /* 0: it is to say what it is */
};

/* ---- the lighthouse ---- */
static bool start_lighthouse(struct bench *bench)
{
    int fds[2];
    char said[256] = "";

    if (pipe(fds) < 0) return false;
    bench->lighthouse = fork();
    if (bench->lighthouse == 0) {
        dup2(fds[1], 1);
        close(fds[0]), close(fds[1]);
        execl("/proc/self/exe", "tutti", "lighthouse", "--bind", "127.0.0.1:0", "--min-replicas", "1", "--rate", "0",
              "--join-timeout-ms", "600000", "--heartbeat-timeout-ms", "600000", (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    FILE *in = fdopen(fds[0], "r");
    const char *port = in && fgets(said, sizeof said, in) ? strrchr(said, ':') : NULL;
    if (in) fclose(in);
    if (port) snprintf(bench->address, sizeof bench->address, "127.0.0.1:%d", atoi(port + 1));
    return port != NULL;
}

static uint64_t cpu_ns(const struct bench *bench)
{
    clockid_t clock;
    struct timespec spent = {0};

    if (clock_getcpuclockid(bench->lighthouse, &clock) == 0) clock_gettime(clock, &spent);
    return (uint64_t)spent.tv_sec * TUTTI_NS_PER_S + (uint64_t)spent.tv_nsec;
}

static void stop_lighthouse(const struct bench *bench)
{
    if (bench->lighthouse <= 0) return;
    kill(bench->lighthouse, SIGTERM);
    waitpid(bench->lighthouse, NULL, 0);
}

/* ---- a step ---- */
/* With a name, addresses and a text as long as those of jobs. */
static void describe(const struct group *group, Torchft__QuorumMember *member, char texts[3][NAME])
{
    torchft__quorum_member__init(member);
    snprintf(texts[0], NAME, "train_%05u:5f0c1a2b-77aa-4c6d-9a50-0123456789ab", group->number);
    snprintf(texts[1], NAME, "http://worker-%05u.cluster:%u", group->number, 20000 + group->life);
    snprintf(texts[2], NAME, "worker-%05u.cluster:29500", group->number);
    member->replica_id = texts[0], member->address = texts[1], member->store_address = texts[2];
    member->world_size = 8;
    member->step = group->bench->step;
}

static struct tutti_rpc_body *pack_quorum(Torchft__QuorumMember *member)
{
    Torchft__LighthouseQuorumRequest request = TORCHFT__LIGHTHOUSE_QUORUM_REQUEST__INIT;

    request.requester = member;
    return tutti_message_body(&request.base);
}

static struct tutti_rpc_body *pack_step(const struct group *group, Torchft__QuorumMember *member)
{
    Tutti__StepRequest request = TUTTI__STEP_REQUEST__INIT;
    uint8_t raw[4 * NAME];

    request.replica_id = member->replica_id;
    request.step = member->step;
    request.known_epoch = group->epoch;
    if (group->epoch == 0) request.member.len = torchft__quorum_member__pack(member, raw), request.member.data = raw;
    return tutti_message_body(&request.base);
}

static void on_done(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct group *group = arg;
    struct bench *bench = group->bench;

    group->request = NULL;
    bench->bytes += n;
    if (status != TUTTI_RPC_OK) {
        if (atomic_fetch_add(&bench->n_wrong, 1) == 0) fprintf(stderr, "tutti ft bench: %s\n", message);
    } else if (!bench->plain) {
        Tutti__StepResponse *response = tutti__step_response__unpack(NULL, n, bytes);
        if (!response || response->n_members != bench->n) atomic_fetch_add(&bench->n_wrong, 1);
        if (response) group->epoch = response->epoch;
        if (response) tutti__step_response__free_unpacked(response, NULL);
    }
    atomic_fetch_add(&bench->n_done, 1);
}

static void send_all(void *arg)
{
    struct bench *bench = arg;

    for (uint32_t i = 0; i < bench->n; i++) {
        struct group *group = &bench->groups[i];
        Torchft__QuorumMember member;
        char texts[3][NAME];
        if (bench->step > 1 && i < bench->changes) group->life++, group->epoch = 0; /* it moved */
        describe(group, &member, texts);
        const struct tutti_rpc_ask ask = {.path = bench->plain ? "/torchft.LighthouseService/Quorum"
                                                               : "/tutti.LighthouseService/Step",
                                          .body = bench->plain ? pack_quorum(&member) : pack_step(group, &member),
                                          .deadline_ns = tutti_now_ns() + PATIENCE_NS,
                                          .discard = bench->plain, /* all of them have no room */
                                          .done = on_done,
                                          .arg = group};
        group->request = tutti_rpc_send(group->channel, &ask);
    }
}

/* ---- */
static bool dial_all(struct bench *bench)
{
    const struct tutti_rpc_channel_config config = {
        .loop = bench->loop, .addresses = bench->address, .max_message = (size_t)64 << 20, .window = WINDOW};

    for (uint32_t i = 0; i < bench->n; i++) {
        bench->groups[i] = (struct group){.bench = bench, .number = i};
        if (tutti_rpc_channel_open(&config, &bench->groups[i].channel) < 0) return false;
    }
    return true;
}

/* The first step forms the quorum: it waits for all, as all beat before. */
static void beat_all(void *arg)
{
    struct bench *bench = arg;

    for (uint32_t i = 0; i < bench->n; i++) {
        Torchft__QuorumMember member;
        Torchft__LighthouseHeartbeatRequest request = TORCHFT__LIGHTHOUSE_HEARTBEAT_REQUEST__INIT;
        char texts[3][NAME];
        describe(&bench->groups[i], &member, texts);
        request.replica_id = member.replica_id;
        const struct tutti_rpc_ask ask = {.path = "/torchft.LighthouseService/Heartbeat",
                                          .body = tutti_message_body(&request.base),
                                          .deadline_ns = tutti_now_ns() + PATIENCE_NS,
                                          .reach_ns = PATIENCE_NS,
                                          .done = on_done,
                                          .arg = &bench->groups[i]};
        tutti_rpc_send(bench->groups[i].channel, &ask);
    }
}

static bool is_done(struct bench *bench, const _Atomic uint32_t *count, uint32_t n)
{
    const uint64_t until = tutti_now_ns() + PATIENCE_NS;

    while (atomic_load(count) < n && tutti_now_ns() < until) tutti_sleep_ns(TUTTI_NS_PER_MS / 5);
    return atomic_load(count) >= n && atomic_load(&bench->n_wrong) == 0;
}

/* Those that have no answer yet hear of the view from the one that has. */
static void share_view(void *arg)
{
    struct bench *bench = arg;
    int64_t epoch = 0;

    for (uint32_t i = 0; i < bench->n; i++)
        if (bench->groups[i].epoch > epoch) epoch = bench->groups[i].epoch;
    for (uint32_t i = 0; i < bench->n; i++) {
        struct group *group = &bench->groups[i];
        group->epoch = epoch;
        if (group->request) tutti_rpc_withdraw(group->request);
        group->request = NULL;
    }
}

/* All beat, then all ask; once it is formed, nobody waits until all have read all members: that is as many times as
 * much as there are groups, and comes once. */
static bool first_step(struct bench *bench)
{
    const bool plain = bench->plain;

    bench->plain = true; /* answers of heartbeats are empty */
    tutti_loop_run(bench->loop, beat_all, bench);
    const bool beat = is_done(bench, &bench->n_done, bench->n);
    bench->plain = plain;
    atomic_store(&bench->n_done, 0);
    bench->step++;
    if (!beat) return false;
    tutti_loop_run(bench->loop, send_all, bench);
    if (!is_done(bench, &bench->n_done, 1)) return false;
    tutti_loop_run(bench->loop, share_view, bench);
    return true;
}

static bool step(struct bench *bench)
{
    atomic_store(&bench->n_done, 0);
    bench->step++;
    tutti_loop_run(bench->loop, send_all, bench);
    return is_done(bench, &bench->n_done, bench->n);
}

static bool measure(struct bench *bench, uint32_t steps)
{
    if (!first_step(bench)) return false;
    const uint64_t cpu = cpu_ns(bench), began = tutti_now_ns();
    bench->bytes = 0;
    for (uint32_t i = 0; i < steps; i++)
        if (!step(bench)) return false;
    const double calls = (double)steps * bench->n;
    printf("%" PRIu32 " groups, %s, %" PRIu32
           " of them other than before: a step costs the lighthouse %.1f us of CPU and %.0f bytes "
           "a group, %.1f ms in all\n",
           bench->n, bench->plain ? "torchft's protocol" : "what has changed", bench->changes,
           (double)(cpu_ns(bench) - cpu) / 1e3 / calls, (double)bench->bytes / calls,
           (double)(tutti_now_ns() - began) / 1e6 / steps);
    return true;
}

static int run(struct bench *bench, uint32_t steps)
{
    const struct rlimit files = {2 * (rlim_t)bench->n + 100, 2 * (rlim_t)bench->n + 100};
    struct rlimit have;

    if (getrlimit(RLIMIT_NOFILE, &have) == 0 && have.rlim_cur < bench->n + 100u) {
        have.rlim_cur = have.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &have) < 0 || have.rlim_cur < bench->n + 100u) setrlimit(RLIMIT_NOFILE, &files);
    }
    bench->groups = calloc(bench->n, sizeof *bench->groups);
    bool good = bench->groups && start_lighthouse(bench) && tutti_loop_open("bench", &bench->loop) >= 0 &&
                tutti_loop_start(bench->loop) >= 0 && dial_all(bench) && measure(bench, steps);
    for (uint32_t i = 0; bench->groups && i < bench->n; i++) tutti_rpc_channel_close(bench->groups[i].channel);
    if (bench->loop) tutti_loop_close(bench->loop);
    stop_lighthouse(bench);
    free(bench->groups);
    if (!good) fprintf(stderr, "tutti ft bench: it did not come to an end\n");
    return good ? TUTTI_EXIT_OK : TUTTI_EXIT_WRONG;
}

int ft_cmd_bench(int argc, char **argv)
{
    struct bench bench = {.n = 1000};
    uint32_t steps = 10;
    const struct tutti_arg args[] = {
        {"groups", 'n', TUTTI_ARG_U32, &bench.n, "N", "how many (1000)"},
        {"steps", 0, TUTTI_ARG_U32, &steps, "N", "measured, after the one that forms the quorum (10)"},
        {"changes", 0, TUTTI_ARG_U32, &bench.changes, "N", "so many groups have another address in each step (0)"},
        {"plain", 0, TUTTI_ARG_FLAG, &bench.plain, NULL, "torchft's protocol: all members to all groups in each step"},
    };
    const struct tutti_args spec = {
        .command = "tutti ft bench",
        .usage = "[options]",
        .about = "Measures what a step costs a lighthouse that it starts on this host.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
        .no_positional = true,
    };
    int n_positional;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);

    if (result != TUTTI_ARGS_OK) return (int)result;
    if (bench.n == 0 || steps == 0 || bench.changes > bench.n)
        return tutti_args_fail(&spec, "--groups and --steps are at least 1, --changes at most --groups");
    return run(&bench, steps);
}
