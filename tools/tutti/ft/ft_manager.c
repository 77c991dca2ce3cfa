/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti ft manager`: the manager of a replica group as a process of its own, beside ranks that do not run one. */
#include "ft.h"

#include "base/base.h"

#include <tutti/ft.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct options {
    const char *replica_id, *lighthouse, *hostname, *bind, *store;
    uint32_t world_size, retries;
    uint64_t heartbeat_ns, connect_ns;
};

/* Serves until SIGINT or SIGTERM, which were blocked before any thread was started. */
static int serve(const struct options *options, const sigset_t *signals)
{
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    struct tutti_ft_manager *manager;
    int got;

    config.replica_id = options->replica_id;
    config.lighthouse = options->lighthouse;
    config.hostname = options->hostname;
    config.bind = options->bind;
    config.store_address = options->store;
    config.world_size = options->world_size;
    config.heartbeat_interval_ns = options->heartbeat_ns;
    config.connect_timeout_ns = options->connect_ns;
    config.quorum_retries = options->retries;
    if (tutti_ft_manager_open(&config, &manager) < 0) {
        fprintf(stderr, "tutti ft manager: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    printf("manager at %s\n", tutti_ft_manager_address(manager));
    fflush(stdout);
    while (sigwait(signals, &got) != 0) continue;
    tutti_ft_manager_close(manager);
    return TUTTI_EXIT_OK;
}

int ft_cmd_manager(int argc, char **argv)
{
    struct options options = {.lighthouse = getenv("TORCHFT_LIGHTHOUSE"),
                              .store = "",
                              .world_size = 1,
                              .heartbeat_ns = 100 * TUTTI_NS_PER_MS,
                              .connect_ns = 60 * TUTTI_NS_PER_S};
    const struct tutti_arg args[] = {
        {"replica-id", 0, TUTTI_ARG_TEXT, &options.replica_id, "NAME", "of the group, unlike any other's; required"},
        {"lighthouse", 0, TUTTI_ARG_TEXT, &options.lighthouse, "LIST",
         "addresses of the lighthouses (TORCHFT_LIGHTHOUSE)"},
        {"world-size", 0, TUTTI_ARG_U32, &options.world_size, "N", "ranks of the group (1)"},
        {"bind", 0, TUTTI_ARG_TEXT, &options.bind, "ADDRESS", "host:port to listen at (any port)"},
        {"hostname", 0, TUTTI_ARG_TEXT, &options.hostname, "NAME", "by which other groups reach it (this host's name)"},
        {"store", 0, TUTTI_ARG_TEXT, &options.store, "ADDRESS",
         "host:port of the group's store, where others may meet"},
        {"heartbeat-interval", 0, TUTTI_ARG_TIME, &options.heartbeat_ns, "T",
         "how often the lighthouse hears of it (100ms)"},
        {"connect-timeout", 0, TUTTI_ARG_TIME, &options.connect_ns, "T", "so long the lighthouse is dialled (60s)"},
        {"quorum-retries", 0, TUTTI_ARG_U32, &options.retries, "N", "how often it is asked anew when it fails (0)"},
    };
    const struct tutti_args spec = {
        .command = "tutti ft manager",
        .usage = "--replica-id NAME --lighthouse ADDRESS [options]",
        .about =
            "Speaks for a replica group: gathers the requests of its ranks, asks the lighthouse, counts votes. Ranks\n"
            "are clients of the address that it prints (ManagerClient, tutti_ft_client_open).",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
        .no_positional = true,
    };
    int n_positional;
    sigset_t signals;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);

    if (result != TUTTI_ARGS_OK) return (int)result;
    if (!options.replica_id) return tutti_args_fail(&spec, "--replica-id is missing");
    if (!options.lighthouse)
        return tutti_args_fail(&spec, "--lighthouse is missing, and TORCHFT_LIGHTHOUSE is not set");
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT), sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    return serve(&options, &signals);
}
