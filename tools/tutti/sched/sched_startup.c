/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched startup`: how long it takes until all ranks of a world can send, and what that costs whom. */

#include "sched.h"

#include "algo/algo.h"
#include "sim/network.h"
#include "startup.h"

#include <stdio.h>
#include <unistd.h>

/* What members tell one another when a communicator is made (docs/startup.md), and a TLS handshake at each end. */
enum { CARD_BYTES = 280, OUTCOME_BYTES = 40, TLS_NS = 700000, CONTROL_FAN_OUT = 32, MOST_A_HOST = 65535 };

static struct options {
    const char *world;
    uint64_t latency, local, network, hmac, store, spread, seed;
    bool open, json;
} options;
static const struct tutti_arg args[] = {
    {"world", 0, TUTTI_ARG_TEXT, &options.world, "RxH", "ranks a host x hosts (default 8x16384: 131,072 ranks)"},
    {"latency", 'L', TUTTI_ARG_TIME, &options.latency, "T", "of the network, one way (default 2us)"},
    {"network", 0, TUTTI_ARG_TIME, &options.network, "T", "a system call on TCP (default 4300ns)"},
    {"local", 0, TUTTI_ARG_TIME, &options.local, "T", "a message through a Unix socket, at each end (default 1900ns)"},
    {"hmac", 0, TUTTI_ARG_TIME, &options.hmac, "T", "a signature, made or checked (default 1500ns)"},
    {"store", 0, TUTTI_ARG_TIME, &options.store, "T", "an operation of the store, beside its messages (default 1us)"},
    {"spread", 0, TUTTI_ARG_TIME, &options.spread, "T", "processes begin within this (default 0: all at once)"},
    {"seed", 0, TUTTI_ARG_SIZE, &options.seed, "N", "of nonces and of the spread (default 1)"},
    {"open", 0, TUTTI_ARG_FLAG, &options.open, NULL, "without a secret: nothing is signed"},
    {"json", 0, TUTTI_ARG_FLAG, &options.json, NULL, "one JSON object instead of text"},
};
static const struct tutti_args spec = {
    .command = "tutti sched startup",
    .usage = "[options]",
    .about =
        "Runs the machines by which ranks meet, all of them, in virtual time: the store, the leader, the members,\n"
        "through a tree of relays; then the meeting of each host, the connections of control, and the three\n"
        "collectives that make the first communicator, by the simulator of schedules.",
    .args = args,
    .n_args = TUTTI_ARRAY_LEN(args),
    .no_positional = true,
};

struct phases {
    struct startup_result meeting;
    uint64_t segment_ns, control_ns, creation_ns, total_ns;
    uint64_t creation_bytes; /* that each rank holds */
};

static void show_progress(uint32_t n_done, uint32_t n)
{
    fprintf(stderr, "\rmeeting: %u of %u ranks", n_done, n);
    if (n_done == n) fprintf(stderr, "\r%40s\r", "");
}

/* An all_reduce of the world, in nanoseconds. */
static enum tutti_status all_reduce(const struct startup_world *world, uint64_t bytes, uint64_t *out)
{
    const struct tutti_algorithm *algorithm = tutti_algorithm_find(world->hosts > 1 ? "hierarchical" : "tree", NULL);
    const struct startup_costs *c = &world->costs;
    const struct tutti_sim_ports rule = {.alpha_ps = 1000 * (c->latency + 2 * c->network),
                                         .beta_fs = 1000 * c->byte_ps};
    const struct tutti_sim_work work = {.block_bytes = bytes, .element_bytes = 1};
    struct tutti_shape shape = {.size = world->hosts * world->per_host, .radix = world->hosts > 1 ? 1 : 2};
    struct tutti_sim_program program;
    struct tutti_sim_network *network;
    struct tutti_sim_result result;
    char levels[32];
    if (world->hosts > 1) {
        snprintf(levels, sizeof(levels), "%ux%u", world->per_host, world->hosts);
        TUTTI_TRY(tutti_shape_parse_levels(&shape, levels));
    }
    TUTTI_TRY(tutti_sim_program_make(algorithm, TUTTI_ALL_REDUCE, &shape, &work, &program));
    enum tutti_status status = tutti_sim_ports_open(&rule, &program, &network);
    if (status >= 0) status = tutti_sim_run(&program, network, &result);
    if (status >= 0) {
        *out = result.end_ps / TUTTI_SIM_PS_PER_NS;
        tutti_free(result.rank_end_ps);
        network->ops->close(network);
    }
    tutti_sim_program_fini(&program);
    return status;
}

static enum tutti_status run(const struct startup_world *world, struct phases *out)
{
    struct startup_world one = *world;
    struct startup_result host;
    uint64_t cards, outcomes, agreement;
    TUTTI_TRY(startup_run(world, &out->meeting));
    out->total_ns = out->meeting.over_ns > out->meeting.granted_ns ? out->meeting.over_ns : out->meeting.granted_ns;
    if (world->hosts > 1) { /* the meeting of one host has its memory already */
        one.hosts = 1, one.store = false, one.progress = NULL;
        TUTTI_TRY(startup_run(&one, &host));
        out->segment_ns = host.over_ns > host.granted_ns ? host.over_ns : host.granted_ns;
        out->control_ns = (1 + CONTROL_FAN_OUT) * (uint64_t)(options.open ? 0 : TLS_NS) + 4 * world->costs.latency;
    }
    /* An all_gather moves no more than an all_reduce of all blocks, which is sealed in less time. */
    TUTTI_TRY(all_reduce(world, (uint64_t)world->hosts * world->per_host * CARD_BYTES, &cards));
    TUTTI_TRY(all_reduce(world, (uint64_t)world->hosts * world->per_host * OUTCOME_BYTES, &outcomes));
    TUTTI_TRY(all_reduce(world, OUTCOME_BYTES, &agreement));
    out->creation_ns = cards + outcomes + agreement;
    out->creation_bytes = (uint64_t)world->hosts * world->per_host * (CARD_BYTES + OUTCOME_BYTES);
    out->total_ns += out->segment_ns + out->control_ns + out->creation_ns;
    return TUTTI_OK;
}

static double seconds(uint64_t ns)
{
    return (double)ns / TUTTI_NS_PER_S;
}

static void show_load(const char *name, const struct startup_load *load)
{
    printf(options.json ? ",\"%s\":{\"messages\":%llu,\"bytes\":%llu,\"busy_s\":%.6f,\"connections\":%u}"
                        : "  %-20s %9llu %12llu %10.3f %12u\n",
           name, (unsigned long long)load->messages, (unsigned long long)load->bytes, seconds(load->busy_ns),
           load->connections);
}

static void show(const struct startup_world *world, const struct phases *p, double wall_s)
{
    const struct startup_result *m = &p->meeting;
    const struct {
        const char *name, *text;
        uint64_t ns;
    } rows[] = {
        {"store_s", "all hosts are in the store", m->published_ns},
        {"seated_s", "the leader knows all ranks", m->seated_ns},
        {"granted_s", "all ranks have the table", m->granted_ns},
        {"over_s", "the leader has heard from all", m->over_ns},
        {"segment_s", "+ each host's memory", p->segment_ns},
        {"control_s", "+ connections of control", p->control_ns},
        {"creation_s", "+ the communicator", p->creation_ns},
        {"total_s", "every rank can send", p->total_ns},
    };
    const uint32_t n = world->hosts * world->per_host;
    if (options.json)
        printf("{\"ranks\":%u,\"hosts\":%u", n, world->hosts);
    else
        printf("%u rank%s on %u host%s: every rank can send after %.3f s\n", n, tutti_plural(n), world->hosts,
               tutti_plural(world->hosts), seconds(p->total_ns));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        if (options.json) printf(",\"%s\":%.6f", rows[i].name, seconds(rows[i].ns));
        if (!options.json) printf("  %-32s %8.3f s\n", rows[i].text, seconds(rows[i].ns));
    }
    if (!options.json) printf("  %-20s %9s %12s %10s %12s\n", "", "messages", "bytes", "busy s", "connections");
    show_load("store", &m->store);
    show_load("leader", &m->leader);
    if (world->hosts > 1) show_load(options.json ? "relay" : "busiest relay", &m->relay);
    show_load(options.json ? "rank" : "busiest other rank", &m->rank);
    if (options.json)
        printf(",\"table_bytes\":%llu,\"creation_bytes\":%llu,\"events\":%llu,\"seconds\":%.3f}\n",
               (unsigned long long)m->table_bytes, (unsigned long long)p->creation_bytes,
               (unsigned long long)m->n_events, wall_s);
    else
        printf("  table of hosts: %.1f MB; cards of the communicator: %.1f MB a rank while it is made\n"
               "  %llu events in %.1f s\n",
               (double)m->table_bytes / 1e6, (double)p->creation_bytes / 1e6, (unsigned long long)m->n_events, wall_s);
}

int sched_startup(int argc, char **argv)
{
    struct startup_world world = {.store = true, .costs = STARTUP_COSTS};
    struct phases phases = {0};
    int n;
    char rest;
    options = (struct options){.world = "8x16384",
                               .latency = world.costs.latency,
                               .local = world.costs.local,
                               .network = world.costs.network,
                               .hmac = world.costs.hmac,
                               .store = world.costs.store,
                               .seed = 1};
    enum tutti_args_result parsed = tutti_args_parse(&spec, argc, argv, &n);
    if (parsed != TUTTI_ARGS_OK) return (int)parsed;
    int fields = sscanf(options.world, "%ux%u%c", &world.per_host, &world.hosts, &rest);
    if (fields == 1) world.hosts = 1;
    if (fields < 1 || fields > 2 || world.hosts == 0 || world.per_host == 0 || world.per_host > MOST_A_HOST ||
        (uint64_t)world.hosts * world.per_host > 1u << 20)
        return tutti_args_fail(
            &spec, "--world %s: give ranks a host x hosts, such as 8x16384; at most %u ranks, %d of a host.",
            options.world, 1u << 20, (int)MOST_A_HOST);
    world.costs.latency = options.latency, world.costs.local = options.local, world.costs.network = options.network;
    world.costs.hmac = options.hmac, world.costs.store = options.store;
    world.secret = !options.open, world.spread_ns = options.spread, world.seed = options.seed;
    if (isatty(STDERR_FILENO)) world.progress = show_progress;
    const uint64_t begin = tutti_now_ns();
    if (run(&world, &phases) < 0) {
        fprintf(stderr, "tutti sched startup: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    show(&world, &phases, seconds(tutti_now_ns() - begin));
    return TUTTI_EXIT_OK;
}
