/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of ranks become events of the machine, its answers replies. A request's number is the address of its call,
 * which stays until it is answered or cancelled. */
#include "ft/client/client.h"
#include "ft/client/manager_server.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define TIDY_NS (5 * TUTTI_NS_PER_S)

static struct tutti_rpc_call *call_of(uint64_t request)
{
    return (struct tutti_rpc_call *)(uintptr_t)request;
}

static void reply(struct tutti_rpc_call *call, const ProtobufCMessage *message)
{
    struct tutti_rpc_body *body = tutti_message_body(message);

    if (body)
        tutti_rpc_reply(call, body);
    else
        tutti_rpc_fail(call, TUTTI_RPC_RESOURCE_EXHAUSTED, "the manager is out of memory");
}

/* ---- answers ---- */
/* The lists of an answer. */
struct lists {
    int64_t *targets;
    char **ids, **handles;
    char *sources[TUTTI_SOURCES];
};

static bool lists_make(struct lists *lists, uint32_t group_rank, const struct tutti_quorum *quorum,
                       const struct tutti_place *place)
{
    *lists = (struct lists){.targets = tutti_alloc_array(quorum->n, sizeof(lists->targets[0])),
                            .ids = tutti_alloc_array(quorum->n, sizeof(lists->ids[0])),
                            .handles = tutti_alloc_array(quorum->n, sizeof(lists->handles[0]))};
    if (!lists->targets || !lists->ids || !lists->handles) return false;
    for (uint32_t i = 0; i < place->n_targets; i++) lists->targets[i] = place->targets[i];
    for (uint32_t i = 0; i < place->n_sources; i++)
        lists->sources[i] = client_text(quorum->members[place->sources[i]]->address);
    for (uint32_t i = 0; i < quorum->n; i++) {
        const struct tutti_replica *member = quorum->members[i];
        lists->ids[i] = client_text(member->replica_id);
        lists->handles[i] = client_text(group_rank < member->n_handles ? member->handles[group_rank] : "");
    }
    return true;
}

static void lists_free(struct lists *lists)
{
    tutti_free(lists->targets);
    tutti_free(lists->ids);
    tutti_free(lists->handles);
}

static bool have_handles(const struct tutti_quorum *quorum, uint32_t group_rank)
{
    for (uint32_t i = 0; i < quorum->n; i++)
        if (group_rank >= quorum->members[i]->n_handles) return false;
    return true;
}

void manager_placed(void *arg, uint64_t request, uint32_t group_rank, const struct tutti_quorum *quorum,
                    const struct tutti_place *place)
{
    Torchft__ManagerQuorumResponse r = TORCHFT__MANAGER_QUORUM_RESPONSE__INIT;
    struct lists lists;

    (void)arg;
    if (!lists_make(&lists, group_rank, quorum, place)) {
        lists_free(&lists);
        tutti_rpc_fail(call_of(request), TUTTI_RPC_RESOURCE_EXHAUSTED, "the manager is out of memory");
        return;
    }
    r.quorum_id = quorum->id;
    r.replica_rank = place->rank, r.replica_world_size = place->size;
    r.max_step = place->max_step, r.max_world_size = place->max_size;
    if (place->max_rank != TUTTI_NOBODY) {
        r.max_case = TORCHFT__MANAGER_QUORUM_RESPONSE__MAX_MAX_REPLICA_RANK;
        r.max_replica_rank = place->max_rank;
    }
    r.heal = place->heals;
    if (place->source != TUTTI_NOBODY) {
        r.source_case = TORCHFT__MANAGER_QUORUM_RESPONSE__SOURCE_RECOVER_SRC_REPLICA_RANK;
        r.recover_src_replica_rank = place->source;
    }
    r.recover_src_manager_address = client_text(place->source_address);
    r.store_address = client_text(place->store_address);
    r.commit_failures = place->commit_failures;
    r.n_recover_dst_replica_ranks = place->n_targets, r.recover_dst_replica_ranks = lists.targets;
    r.n_source_addresses = place->n_sources, r.source_addresses = lists.sources;
    r.offers = place->offers;
    r.n_replica_ids = quorum->n, r.replica_ids = lists.ids;
    r.n_reconfigure_handles = have_handles(quorum, group_rank) ? quorum->n : 0;
    r.reconfigure_handles = lists.handles;
    reply(call_of(request), &r.base);
    lists_free(&lists);
}

void manager_decided(void *arg, uint64_t request, bool commit)
{
    Torchft__ShouldCommitResponse response = TORCHFT__SHOULD_COMMIT_RESPONSE__INIT;

    (void)arg;
    response.should_commit = commit;
    reply(call_of(request), &response.base);
}

void manager_refused(void *arg, uint64_t request, enum tutti_manager_why why, const char *text)
{
    static const enum tutti_rpc_status statuses[] = {[TUTTI_MANAGER_ARGUMENT] = TUTTI_RPC_INVALID_ARGUMENT,
                                                     [TUTTI_MANAGER_NO_MEMBER] = TUTTI_RPC_NOT_FOUND,
                                                     [TUTTI_MANAGER_REPLACED] = TUTTI_RPC_ABORTED,
                                                     [TUTTI_MANAGER_NO_ANSWER] = TUTTI_RPC_UNAVAILABLE,
                                                     [TUTTI_MANAGER_LATE] = TUTTI_RPC_CANCELLED,
                                                     [TUTTI_MANAGER_DEAD] = TUTTI_RPC_UNAVAILABLE,
                                                     [TUTTI_MANAGER_MEMORY] = TUTTI_RPC_RESOURCE_EXHAUSTED};

    (void)arg;
    tutti_rpc_fail(call_of(request), statuses[why], text);
}

/* ---- calls ---- */
/* A number that can be no rank stays none. */
static uint32_t rank_of(int64_t group_rank)
{
    return group_rank >= 0 && group_rank < UINT32_MAX ? (uint32_t)group_rank : UINT32_MAX;
}

static void on_quorum(struct tutti_ft_manager *manager, struct tutti_rpc_call *call, const void *message)
{
    const Torchft__ManagerQuorumRequest *request = message;
    const struct tutti_manager_ask ask = {.step = request->step,
                                          .commit_failures = request->commit_failures,
                                          .checkpoint_metadata = request->checkpoint_metadata,
                                          .handle = request->reconfigure_handle,
                                          .shrink_only = request->shrink_only,
                                          .init_sync = request->init_sync,
                                          .deadline_ns = tutti_rpc_deadline(call)};
    const uint32_t rank = rank_of(request->group_rank);

    if (ask.deadline_ns == TUTTI_NEVER) {
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "missing timeout");
        return;
    }
    manager_watch(manager, rank, request->pid, call);
    tutti_manager_ask(manager->machine, rank, &ask, (uintptr_t)call);
}

static void on_should_commit(struct tutti_ft_manager *manager, struct tutti_rpc_call *call, const void *message)
{
    const Torchft__ShouldCommitRequest *request = message;

    tutti_manager_vote(manager->machine, rank_of(request->group_rank), request->step, request->should_commit,
                       (uintptr_t)call);
}

static void on_metadata(struct tutti_ft_manager *manager, struct tutti_rpc_call *call, const void *message)
{
    const Torchft__CheckpointMetadataRequest *request = message;
    const char *metadata = tutti_manager_metadata(manager->machine, rank_of(request->rank));
    Torchft__CheckpointMetadataResponse response = TORCHFT__CHECKPOINT_METADATA_RESPONSE__INIT;

    response.checkpoint_metadata = client_text(metadata);
    if (metadata)
        reply(call, &response.base);
    else
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "rank not found"); /* as torchft's says it */
}

static void on_hello(struct tutti_ft_manager *manager, struct tutti_rpc_call *call, const void *message)
{
    Torchft__HelloResponse response = TORCHFT__HELLO_RESPONSE__INIT;

    (void)message; /* it says nothing yet */
    response.replica_id = manager->replica_id;
    response.world_size = manager->world_size;
    reply(call, &response.base);
}

static void on_progress(struct tutti_ft_manager *manager, struct tutti_rpc_call *call, const void *message)
{
    const Torchft__ProgressRequest *request = message;
    const Torchft__LighthouseHeartbeatResponse response = TORCHFT__LIGHTHOUSE_HEARTBEAT_RESPONSE__INIT;

    if (tutti_manager_progress(manager->machine, rank_of(request->group_rank), request->step, request->collective))
        reply(call, &response.base);
    else
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "the group has no such rank");
}

/* Ends this process, if the caller is permitted to: SIGTERM first, so that its handler can tidy up. */
static void on_kill(struct tutti_ft_manager *manager, struct tutti_rpc_call *call, const void *message)
{
    const Torchft__KillRequest *request = message;
    const Torchft__KillResponse response = TORCHFT__KILL_RESPONSE__INIT;

    if (!manager->anyone_may_kill && !manager->has_secret) {
        tutti_log(TUTTI_LOG_WARN, "%s: %s wants to kill this process", manager->replica_id, tutti_rpc_peer(call));
        tutti_rpc_fail(call, TUTTI_RPC_PERMISSION_DENIED,
                       "this manager has no secret (TUTTI_SECRET), so nobody may kill it");
        return;
    }
    tutti_log(TUTTI_LOG_WARN, "%s: this process is killed by %s: %.200s", manager->replica_id, tutti_rpc_peer(call),
              request->msg);
    reply(call, &response.base);
    tutti_loop_at(manager->loop, &manager->end, tutti_deadline_ns(TIDY_NS));
    kill(getpid(), SIGTERM);
}

static const struct {
    const char *path;
    const ProtobufCMessageDescriptor *type;
    void (*handle)(struct tutti_ft_manager *manager, struct tutti_rpc_call *call, const void *message);
} rows[] = {
    {"/torchft.ManagerService/Quorum", &torchft__manager_quorum_request__descriptor, on_quorum},
    {"/torchft.ManagerService/ShouldCommit", &torchft__should_commit_request__descriptor, on_should_commit},
    {"/torchft.ManagerService/CheckpointMetadata", &torchft__checkpoint_metadata_request__descriptor, on_metadata},
    {"/torchft.ManagerService/Kill", &torchft__kill_request__descriptor, on_kill},
    {"/tutti.ManagerService/Hello", &torchft__hello_request__descriptor, on_hello},
    {"/tutti.ManagerService/Progress", &torchft__progress_request__descriptor, on_progress},
};

static void on_call(void *arg, struct tutti_rpc_call *call, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_manager *manager = arg;
    size_t row = 0;

    while (strcmp(rows[row].path, tutti_rpc_path(call)) != 0) row++;
    ProtobufCMessage *message = protobuf_c_message_unpack(rows[row].type, NULL, n, bytes);
    if (!message) {
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request can not be read");
        return;
    }
    rows[row].handle(manager, call, message);
    protobuf_c_message_free_unpacked(message, NULL);
    manager_schedule(manager);
}

void manager_cancelled(void *arg, struct tutti_rpc_call *call)
{
    struct tutti_ft_manager *manager = arg;

    tutti_manager_cancel(manager->machine, (uintptr_t)call);
    manager_schedule(manager);
}

void manager_expired(void *arg, const struct tutti_rpc_call *call, char *why, size_t n)
{
    const struct tutti_ft_manager *manager = arg;

    tutti_manager_waits(manager->machine, (uintptr_t)call, why, n);
}

const struct tutti_rpc_method manager_methods[] = {{"/torchft.ManagerService/Quorum", on_call},
                                                   {"/torchft.ManagerService/ShouldCommit", on_call},
                                                   {"/torchft.ManagerService/CheckpointMetadata", on_call},
                                                   {"/torchft.ManagerService/Kill", on_call},
                                                   {"/tutti.ManagerService/Hello", on_call},
                                                   {"/tutti.ManagerService/Progress", on_call}};
const size_t manager_n_methods = TUTTI_ARRAY_LEN(manager_methods);
