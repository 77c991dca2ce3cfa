/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_CLIENT_GROUPS_TEST_H
#define TUTTI_FT_CLIENT_GROUPS_TEST_H

/* Lighthouses, managers and their ranks over real sockets, by the public calls: ranks as threads, or as processes of
 * the same program with other arguments. */

#include "test.h"

#include <tutti/ft.h>

#include "base/base.h"

#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MS TUTTI_NS_PER_MS
#define S TUTTI_NS_PER_S
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) < 0) fail_msg("%s: %s", #call, tutti_last_error()->text);                                           \
    } while (0)

static inline struct tutti_ft_lighthouse *lighthouse_at(const char *bind, uint64_t min_replicas)
{
    struct tutti_ft_lighthouse_config config = TUTTI_FT_LIGHTHOUSE_CONFIG_INIT;
    struct tutti_ft_lighthouse *lighthouse;

    config.bind = bind;
    config.min_replicas = min_replicas;
    config.join_timeout_ns = config.heartbeat_timeout_ns = 60 * S; /* what comes sooner was told */
    OK(tutti_ft_lighthouse_open(&config, &lighthouse));
    return lighthouse;
}

static inline struct tutti_ft_manager *manager_of(const char *name, const char *lighthouse, uint32_t n)
{
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    struct tutti_ft_manager *manager;
    char store[64];

    snprintf(store, sizeof store, "store-of-%s:1", name);
    config.replica_id = name;
    config.lighthouse = lighthouse;
    config.hostname = "localhost";
    config.bind = "127.0.0.1:0";
    config.store_address = store;
    config.world_size = n;
    config.heartbeat_interval_ns = 20 * MS;
    config.connect_timeout_ns = 10 * S;
    OK(tutti_ft_manager_open(&config, &manager));
    return manager;
}

/* ---- ranks as threads ---- */
struct rank {
    pthread_t thread;
    const char *address; /* its manager's */
    uint32_t number;
    int64_t step;
    bool vote;
    uint64_t timeout_ns;
    enum tutti_status status;
    char text[TUTTI_ERROR_TEXT];
    struct tutti_ft_place *place;
    bool commit;
};

static inline void note(struct rank *rank, enum tutti_status status)
{
    rank->status = status;
    if (status < 0) memcpy(rank->text, tutti_last_error()->text, sizeof rank->text);
}

static inline void *one_step(void *arg)
{
    struct rank *rank = arg;
    struct tutti_ft_client *client;
    char metadata[32], handle[32];
    const uint64_t timeout = rank->timeout_ns ? rank->timeout_ns : 30 * S;

    snprintf(metadata, sizeof metadata, "state-%u", rank->number);
    snprintf(handle, sizeof handle, "handle-%u", rank->number);
    note(rank, tutti_ft_client_open(rank->address, 10 * S, &client));
    if (rank->status < 0) return NULL;
    const struct tutti_ft_request request = {.group_rank = rank->number,
                                             .step = rank->step,
                                             .checkpoint_metadata = metadata,
                                             .reconfigure_handle = handle,
                                             .init_sync = true};
    note(rank, tutti_ft_client_quorum(client, &request, timeout, &rank->place));
    if (rank->status >= 0)
        note(rank, tutti_ft_client_should_commit(client, rank->number, rank->step, rank->vote, timeout, &rank->commit));
    tutti_ft_client_close(client);
    return NULL;
}

static inline void start(struct rank *rank)
{
    assert_int_equal(pthread_create(&rank->thread, NULL, one_step, rank), 0);
}

static inline void join(struct rank *rank)
{
    pthread_join(rank->thread, NULL);
}

static inline void step_of_all(struct rank *ranks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) start(&ranks[i]);
    for (uint32_t i = 0; i < n; i++) join(&ranks[i]);
}

/* ---- this program with other arguments ---- */
extern char **environ;

static inline pid_t spawn(const char *role, const char *address, const char *number)
{
    char *const args[] = {(char *)"test", (char *)(uintptr_t)role, (char *)(uintptr_t)address,
                          (char *)(uintptr_t)number, NULL};
    pid_t pid;

    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ), 0);
    return pid;
}

#endif
