/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of the manager. */
#include "ft/client/manager_server.h"

#include "base/tls.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the machine's next time ---- */
void manager_schedule(struct tutti_ft_manager *manager)
{
    const uint64_t due = tutti_manager_due(manager->machine);

    if (manager->closes) return;
    if (due == TUTTI_NEVER)
        tutti_loop_stop(manager->loop, &manager->timer);
    else if (manager->timer.due_ns != due)
        tutti_loop_at(manager->loop, &manager->timer, due);
}

static void on_due(struct tutti_loop_timer *timer)
{
    struct tutti_ft_manager *manager =
        (struct tutti_ft_manager *)((char *)timer - offsetof(struct tutti_ft_manager, timer));

    tutti_manager_tick(manager->machine, tutti_now_ns());
    manager_schedule(manager);
}

/* This process was told to end, and has had its time. */
static void end_process(struct tutti_loop_timer *timer)
{
    (void)timer;
    kill(getpid(), SIGKILL);
}

#define MAX_CALLS 4096 /* a connection's */
#define MORE_CONNECTIONS 1024
#define RATE 10000u /* calls and reads a second of one address, for each rank and once more */
#define CLOSE_NS (500 * TUTTI_NS_PER_MS)

static enum tutti_status check(const struct tutti_ft_manager_config *config)
{
    const struct {
        const char *name, *text;
    } texts[] = {{"replica_id", config->replica_id},
                 {"lighthouse", config->lighthouse},
                 {"bind", config->bind ? config->bind : ""},
                 {"store_address", config->store_address}};

    if (config->size != sizeof(*config))
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "ft_manager_open: config.size is %zu, not %zu: begin with "
                          "TUTTI_FT_MANAGER_CONFIG_INIT",
                          config->size, sizeof(*config));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) {
        if (!texts[i].text) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_manager_open: config.%s is NULL", texts[i].name);
        if (strlen(texts[i].text) >= TUTTI_MESSAGE_TEXT)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_manager_open: config.%s is longer than %d bytes", texts[i].name,
                              TUTTI_MESSAGE_TEXT);
    }
    if (!config->replica_id[0]) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_manager_open: config.replica_id is empty");
    if (config->world_size == 0 || config->world_size > INT32_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_manager_open: config.world_size is %u", config->world_size);
    if (config->heartbeat_interval_ns == 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_manager_open: config.heartbeat_interval_ns is 0");
    return TUTTI_OK;
}

static enum tutti_status open_machine(struct tutti_ft_manager *manager, const struct tutti_ft_manager_config *config)
{
    const struct tutti_manager_options options = {.replica_id = config->replica_id,
                                                  .address = manager->address,
                                                  .store_address = config->store_address,
                                                  .world_size = config->world_size,
                                                  .quorum_retries = config->quorum_retries,
                                                  .heartbeat_ns = config->heartbeat_interval_ns};
    const struct tutti_manager_out out = {.arg = manager,
                                          .ask = manager_ask,
                                          .withdraw = manager_withdraw,
                                          .placed = manager_placed,
                                          .decided = manager_decided,
                                          .refused = manager_refused,
                                          .beat = manager_beat,
                                          .leave = manager_leave};

    return tutti_manager_create(&options, &out, tutti_now_ns(), &manager->machine);
}

static uint32_t rate_of(uint32_t world_size)
{
    return world_size < UINT32_MAX / RATE ? RATE * (world_size + 1) : UINT32_MAX;
}

/* What talks: to the lighthouses, and with the ranks. */
static enum tutti_status open_ends(struct tutti_ft_manager *manager, const struct tutti_ft_manager_config *config,
                                   const char *bind, const char *secret, struct tutti_certificate *certificate)
{
    const struct tutti_rpc_server_config rpc = {.loop = manager->loop,
                                                .bind = bind,
                                                .methods = manager_methods,
                                                .n_methods = manager_n_methods,
                                                .arg = manager,
                                                .cancelled = manager_cancelled,
                                                .expired = manager_expired,
                                                .max_connections = config->world_size + MORE_CONNECTIONS,
                                                .max_calls = MAX_CALLS,
                                                .max_message = TUTTI_MESSAGE_BYTES,
                                                .secret = secret,
                                                .certificate = certificate,
                                                .rate = rate_of(config->world_size)};

    manager->has_secret = secret || certificate;
    const struct tutti_rpc_channel_config lighthouses = {.loop = manager->loop,
                                                         .addresses = config->lighthouse,
                                                         .what = "lighthouse",
                                                         .max_message = TUTTI_MESSAGE_BYTES,
                                                         .secret = secret,
                                                         .certificate = certificate,
                                                         .dial_ns = TUTTI_MESSAGE_DIAL_NS};
    TUTTI_TRY(tutti_rpc_channel_open(&lighthouses, &manager->lighthouses));
    return tutti_rpc_server_open(&rpc, &manager->rpc);
}

/* A manager that listens on this host alone is reached by that name. Without a secret that is what it does, unless a
 * name for other hosts was given. */
static enum tutti_status listen_at(struct tutti_ft_manager *manager, const struct tutti_ft_manager_config *config,
                                   const char *secret, struct tutti_certificate *certificate)
{
    const char *name = config->hostname, *bind = config->bind;
    char host[256] = "localhost";

    if (!bind) bind = secret || certificate || name ? "[::]:0" : "localhost:0";
    TUTTI_TRY(open_ends(manager, config, bind, secret, certificate));
    const bool here = tutti_rpc_is_here(bind);
    if (!here) gethostname(host, sizeof host - 1);
    snprintf(manager->address, sizeof manager->address, "http://%s:%u", name ? name : host,
             (unsigned)tutti_rpc_server_port(manager->rpc));
    if (!secret && !certificate)
        tutti_log(here ? TUTTI_LOG_INFO : TUTTI_LOG_WARN,
                  "the manager at %s is unauthenticated: it believes all callers", manager->address);
    return TUTTI_OK;
}

/* The loop runs last: until then nobody is inside anything. The socket listens before, since its port is a part of what
 * the machine says. */
static enum tutti_status open_parts(struct tutti_ft_manager *manager, const struct tutti_ft_manager_config *config)
{
    char secret[TUTTI_MESSAGE_SECRET];
    struct tutti_certificate *certificate = NULL;

    manager->replica_id = tutti_text_copy(config->replica_id);
    manager->ranks = tutti_alloc_array(config->world_size, sizeof(manager->ranks[0]));
    if (!manager->replica_id || !manager->ranks) return tutti_fail(TUTTI_ERR_MEMORY, "ft_manager_open: out of memory");
    for (uint32_t i = 0; i < config->world_size; i++)
        manager->ranks[i].watch.fd = -1, manager->ranks[i].manager = manager;
    manager->world_size = config->world_size;
    TUTTI_TRY(tutti_loop_open("tutti-manager", &manager->loop));
    TUTTI_TRY(tutti_message_secret(config->secret, secret));
    enum tutti_status status = config->secret ? TUTTI_OK : tutti_certificate_of(NULL, &certificate);
    if (status >= 0) status = listen_at(manager, config, secret[0] ? secret : NULL, certificate);
    explicit_bzero(secret, sizeof secret);
    if (status < 0) return status;
    TUTTI_TRY(open_machine(manager, config));
    manager_schedule(manager);
    return tutti_loop_start(manager->loop);
}

enum tutti_status tutti_ft_manager_open(const struct tutti_ft_manager_config *config, struct tutti_ft_manager **out)
{
    if (!config || !out)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_manager_open: %s is NULL", config ? "out" : "config");
    TUTTI_TRY(check(config));
    struct tutti_ft_manager *manager = tutti_alloc(sizeof(*manager));
    if (!manager) return tutti_fail(TUTTI_ERR_MEMORY, "ft_manager_open: out of memory");
    manager->timer.due = on_due;
    manager->end.due = end_process;
    manager->connect_ns = config->connect_timeout_ns;
    manager->anyone_may_kill = config->anyone_may_kill;
    manager->heartbeat_ns = config->heartbeat_interval_ns;
    const enum tutti_status status = open_parts(manager, config);
    if (status >= 0)
        *out = manager;
    else
        tutti_ft_manager_close(manager);
    return status;
}

const char *tutti_ft_manager_address(const struct tutti_ft_manager *manager)
{
    return manager->address;
}

static void leave_now(void *arg)
{
    struct tutti_ft_manager *manager = arg;

    manager->closes = true;
    atomic_store(&manager->left, 0);
    tutti_loop_stop(manager->loop, &manager->timer);
    manager_leave(manager, "its manager was closed");
}

static void rest(void *arg)
{
    struct tutti_ft_manager *manager = arg;

    tutti_loop_stop(manager->loop, &manager->end);
    manager_unwatch_all(manager);
}

void tutti_ft_manager_close(struct tutti_ft_manager *manager)
{
    const uint64_t until = tutti_deadline_ns(CLOSE_NS);

    if (!manager) return;
    const struct tutti_error why = *tutti_last_error();
    if (manager->machine) {
        tutti_loop_run(manager->loop, leave_now, manager);
        while (!atomic_load(&manager->left) && tutti_now_ns() < until) tutti_futex_wait(&manager->left, 0, until);
        tutti_loop_run(manager->loop, rest, manager);
    }
    tutti_rpc_server_close(manager->rpc);
    tutti_rpc_channel_close(manager->lighthouses);
    if (manager->loop) tutti_loop_close(manager->loop);
    tutti_manager_destroy(manager->machine);
    tutti_quorum_cache_clear(&manager->cache);
    tutti_free(manager->replica_id);
    tutti_free(manager->ranks);
    tutti_free(manager);
    if (why.status < 0) tutti_fail_record(&why);
}
