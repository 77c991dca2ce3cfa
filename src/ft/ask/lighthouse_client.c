/* SPDX-License-Identifier: BSD-3-Clause */
/* Public calls: a group that asks lighthouses itself. */
#include "ft/ask/told.h"

#include "ft/message/message.h"

#include <stdio.h>
#include <string.h>

enum tutti_status tutti_ft_lighthouse_client_open(const char *addresses, uint64_t connect_timeout_ns,
                                                  struct tutti_ft_lighthouse_client **out)
{
    bool is_ours;

    if (!addresses || !out)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_lighthouse_client_open: %s is NULL", addresses ? "out" : "addresses");
    struct tutti_ft_lighthouse_client *client = tutti_alloc(sizeof(*client));
    if (!client) return tutti_fail(TUTTI_ERR_MEMORY, "ft_lighthouse_client_open: out of memory");
    const enum tutti_status status = asker_open(&client->asker, addresses, "connecting to the lighthouse",
                                                "/tutti.LighthouseService/Hello", connect_timeout_ns, &is_ours);
    if (status >= 0)
        *out = client;
    else
        tutti_ft_lighthouse_client_close(client);
    return status;
}

void tutti_ft_lighthouse_client_close(struct tutti_ft_lighthouse_client *client)
{
    if (!client) return;
    const struct tutti_error why = *tutti_last_error();
    asker_close(&client->asker);
    tutti_free(client);
    if (why.status < 0) tutti_fail_record(&why);
}

/* ---- quorums ---- */
/* What a caller gets: the members, and behind them what they point into. */
struct given {
    struct tutti_ft_quorum quorum; /* first */
    struct tutti_quorum *read;
    struct tutti_ft_member members[];
};

void tutti_ft_quorum_free(struct tutti_ft_quorum *quorum)
{
    struct given *given = (struct given *)quorum;

    if (!given) return;
    tutti_quorum_give(given->read);
    tutti_free(given);
}

static enum tutti_status read_quorum(void *out, const uint8_t *bytes, size_t n)
{
    struct tutti_quorum *read;

    TUTTI_TRY(tutti_message_quorum(bytes, n, &read));
    struct given *given = tutti_alloc(sizeof(*given) + read->n * sizeof(given->members[0]));
    if (!given) {
        tutti_quorum_give(read);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a quorum");
    }
    given->read = read;
    given->quorum = (struct tutti_ft_quorum){
        .id = read->id, .created_ns = read->created_ns, .n_members = read->n, .members = given->members};
    for (uint32_t i = 0; i < read->n; i++) {
        const struct tutti_replica *r = read->members[i];
        given->members[i] = (struct tutti_ft_member){.replica_id = r->replica_id,
                                                     .address = r->address,
                                                     .store_address = r->store_address,
                                                     .data = r->data,
                                                     .step = r->step,
                                                     .commit_failures = r->commit_failures,
                                                     .world_size = r->world_size,
                                                     .shrink_only = r->shrink_only,
                                                     .n_handles = r->n_handles,
                                                     .handles = r->handles};
    }
    *(struct tutti_ft_quorum **)out = &given->quorum;
    return TUTTI_OK;
}

static char *text_of(const char *text)
{
    return (char *)(uintptr_t)(text ? text : ""); /* what is packed is not changed */
}

enum tutti_status tutti_ft_lighthouse_client_quorum(struct tutti_ft_lighthouse_client *client,
                                                    const struct tutti_ft_member *member, uint64_t timeout_ns,
                                                    struct tutti_ft_quorum **out)
{
    Torchft__QuorumMember packed = TORCHFT__QUORUM_MEMBER__INIT;
    Torchft__LighthouseQuorumRequest request = TORCHFT__LIGHTHOUSE_QUORUM_REQUEST__INIT;
    char what[200];

    if (!client || !member || !out || !member->replica_id)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "ft_lighthouse_client_quorum: client, member, its replica_id or out is NULL");
    packed.replica_id = text_of(member->replica_id);
    packed.address = text_of(member->address);
    packed.store_address = text_of(member->store_address);
    packed.data = text_of(member->data);
    packed.step = member->step;
    packed.commit_failures = member->commit_failures;
    packed.world_size = member->world_size;
    packed.shrink_only = member->shrink_only;
    packed.n_reconfigure_handles = member->n_handles;
    packed.reconfigure_handles = (char **)(uintptr_t)member->handles;
    request.requester = &packed;
    snprintf(what, sizeof what, "quorum of %.100s", member->replica_id);
    const struct asker_call call = {.what = what,
                                    .path = "/torchft.LighthouseService/Quorum",
                                    .body = tutti_message_body(&request.base),
                                    .timeout_ns = timeout_ns,
                                    .persists = true,
                                    .read = read_quorum,
                                    .out = out};
    return asker_call(&client->asker, &call);
}

enum tutti_status tutti_ft_lighthouse_client_heartbeat(struct tutti_ft_lighthouse_client *client,
                                                       const char *replica_id, uint64_t timeout_ns)
{
    Torchft__LighthouseHeartbeatRequest request = TORCHFT__LIGHTHOUSE_HEARTBEAT_REQUEST__INIT;
    char what[200];

    if (!client || !replica_id)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_lighthouse_client_heartbeat: client or replica_id is NULL");
    request.replica_id = text_of(replica_id);
    snprintf(what, sizeof what, "heartbeat of %.100s", replica_id);
    const struct asker_call call = {.what = what,
                                    .path = "/torchft.LighthouseService/Heartbeat",
                                    .body = tutti_message_body(&request.base),
                                    .timeout_ns = timeout_ns,
                                    .persists = true};
    return asker_call(&client->asker, &call);
}
