/* SPDX-License-Identifier: BSD-3-Clause */
/* Bodies of calls, quorums as they come, the secret. */
#include "ft/rpc/message.h"

#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tutti_rpc_body *tutti_message_body(const ProtobufCMessage *message)
{
    struct tutti_rpc_body *body = tutti_rpc_body_new(protobuf_c_message_get_packed_size(message));

    if (body) protobuf_c_message_pack(message, body->bytes);
    return body;
}

/* ---- quorums: what was unpacked stays behind the quorum, whose members point into it ---- */
struct unpacked {
    Torchft__LighthouseQuorumResponse *response;
    size_t n;
    Torchft__QuorumMember *members[];
};

static void unpacked_free(void *arg)
{
    struct unpacked *unpacked = arg;

    for (size_t i = 0; i < unpacked->n; i++)
        if (unpacked->members[i]) torchft__quorum_member__free_unpacked(unpacked->members[i], NULL);
    torchft__lighthouse_quorum_response__free_unpacked(unpacked->response, NULL);
    tutti_free(unpacked);
}

void tutti_message_replica(const Torchft__QuorumMember *m, struct tutti_replica *out)
{
    *out = (struct tutti_replica){.replica_id = m->replica_id,
                                  .address = m->address,
                                  .store_address = m->store_address,
                                  .data = m->data,
                                  .handles = (const char *const *)m->reconfigure_handles,
                                  .n_handles = (uint32_t)m->n_reconfigure_handles,
                                  .step = m->step,
                                  .commit_failures = m->commit_failures,
                                  .world_size = m->world_size,
                                  .shrink_only = m->shrink_only};
}

static int by_name(const void *a, const void *b)
{
    const struct tutti_replica *const *x = a, *const *y = b;

    return strcmp((*x)->replica_id, (*y)->replica_id);
}

/* The quorum's own: it goes with it, also when this fails. */
static enum tutti_status fill(struct tutti_quorum *quorum, struct unpacked *unpacked)
{
    const Torchft__Quorum *packed = unpacked->response->quorum;

    for (uint32_t i = 0; i < quorum->n; i++) {
        const ProtobufCBinaryData *raw = &packed->participants[i];
        unpacked->members[i] = torchft__quorum_member__unpack(NULL, raw->len, raw->data);
        if (!unpacked->members[i]) return tutti_fail(TUTTI_ERR_PROTOCOL, "a quorum's member %u can not be read", i);
        quorum->members[i] = tutti_alloc(sizeof(*quorum->members[i]));
        if (!quorum->members[i]) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a quorum");
        tutti_message_replica(unpacked->members[i], quorum->members[i]);
    }
    qsort(quorum->members, quorum->n, sizeof(quorum->members[0]), by_name);
    quorum->id = packed->quorum_id;
    if (packed->created)
        quorum->created_ns = packed->created->seconds * (int64_t)TUTTI_NS_PER_S + packed->created->nanos;
    return TUTTI_OK;
}

enum tutti_status tutti_message_quorum(const uint8_t *bytes, size_t n, struct tutti_quorum **out)
{
    Torchft__LighthouseQuorumResponse *response = torchft__lighthouse_quorum_response__unpack(NULL, n, bytes);
    struct unpacked *unpacked = NULL;
    struct tutti_quorum *quorum = NULL;

    if (!response || !response->quorum || response->quorum->n_participants == 0) {
        if (response) torchft__lighthouse_quorum_response__free_unpacked(response, NULL);
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the lighthouse's answer is no quorum");
    }
    const size_t n_members = response->quorum->n_participants;
    unpacked = tutti_alloc(sizeof(*unpacked) + n_members * sizeof(unpacked->members[0]));
    quorum = unpacked ? tutti_quorum_new((uint32_t)n_members) : NULL;
    if (!quorum) {
        tutti_free(unpacked);
        torchft__lighthouse_quorum_response__free_unpacked(response, NULL);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a quorum");
    }
    unpacked->response = response;
    unpacked->n = n_members;
    quorum->encoded = unpacked;
    quorum->discard = unpacked_free;
    const enum tutti_status status = fill(quorum, unpacked);
    if (status < 0)
        tutti_quorum_give(quorum);
    else
        *out = quorum;
    return status;
}

/* ---- the secret ---- */
enum tutti_status tutti_message_secret(const char *given, char out[TUTTI_MESSAGE_SECRET])
{
    struct tutti_config config;

    _Static_assert(TUTTI_MESSAGE_SECRET == TUTTI_SECRET_MAX + 1, "a secret of the configuration fits");
    if (given) {
        if (strlen(given) > TUTTI_SECRET_MAX)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "the secret is longer than %d bytes", TUTTI_SECRET_MAX);
        memcpy(out, given, strlen(given) + 1);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_config_init(&config, NULL, 0));
    memcpy(out, config.text[TUTTI_OPT_secret], strlen(config.text[TUTTI_OPT_secret]) + 1);
    tutti_config_fini(&config);
    return TUTTI_OK;
}
