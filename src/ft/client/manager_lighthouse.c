/* SPDX-License-Identifier: BSD-3-Clause */
/* What the manager says to the lighthouse: for a quorum, that it lives and how far its ranks are, that it leaves. */
#include "ft/client/client.h"
#include "ft/client/manager_server.h"

#include <tutti.pb-c.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A lighthouse that does not answer a heartbeat for so long is lost: where there are others, one of them has taken over
 * by then; a single one may only be busy. */
#define BEAT_NS (2 * TUTTI_LEASE_NS)
#define BEAT_ALONE_NS (5 * TUTTI_LEASE_NS)
#define PLAIN_NS (10 * TUTTI_NS_PER_S) /* so long one that does not know Step is not asked by it */
#define BEATS 4                        /* at least, until a lighthouse takes a group for dead */
#define LEAVE_NS (300 * TUTTI_NS_PER_MS)

/* ---- quorums: by Step; at a lighthouse that does not know it, as torchft's does not, by Quorum ---- */
static void ask_again(struct tutti_ft_manager *manager)
{
    tutti_manager_repeat(manager->machine, tutti_now_ns());
    manager_schedule(manager);
}

/* The lighthouse gave no quorum: the ranks hear why, before their own time is over. */
static void unanswered(struct tutti_ft_manager *manager, enum tutti_rpc_status status, const char *message)
{
    static const char expired[] = "Timeout expired: ";
    const bool late = status == TUTTI_RPC_CANCELLED || status == TUTTI_RPC_DEADLINE_EXCEEDED;
    char text[600];

    if (status == TUTTI_RPC_OK) message = tutti_last_error()->text;
    if (strncmp(message, expired, sizeof expired - 1) == 0) message += sizeof expired - 1;
    if (status == TUTTI_RPC_UNAVAILABLE)
        snprintf(text, sizeof text, "the lighthouse can not be reached: %.400s", message);
    else
        snprintf(text, sizeof text, "the lighthouse at %s %s: %.400s",
                 tutti_rpc_channel_authority(manager->lighthouses), late ? "gave no quorum in time" : "gives no quorum",
                 message);
    tutti_log(TUTTI_LOG_WARN, "%s: %s", manager->replica_id, text);
    tutti_manager_unanswered(manager->machine, late ? TUTTI_MANAGER_LATE : TUTTI_MANAGER_NO_ANSWER, text,
                             tutti_now_ns());
    manager_schedule(manager);
}

static void on_quorum(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_manager *manager = arg;
    struct tutti_quorum *quorum;

    manager->quorum = NULL;
    if (status != TUTTI_RPC_OK || tutti_message_quorum(bytes, n, &quorum) < 0) {
        unanswered(manager, status, message);
        return;
    }
    tutti_manager_answered(manager->machine, quorum);
    tutti_quorum_give(quorum);
    manager_schedule(manager);
}

/* A request that fails with what is cached is made once more without it. */
static void on_step(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_manager *manager = arg;
    const bool cached = manager->cache.epoch != 0;

    manager->quorum = NULL;
    if (status == TUTTI_RPC_OK && tutti_quorum_cache_update(&manager->cache, bytes, n) >= 0) {
        tutti_manager_answered(manager->machine, &manager->cache.quorum);
        manager_schedule(manager);
        return;
    }
    tutti_quorum_cache_clear(&manager->cache);
    if (status == TUTTI_RPC_UNIMPLEMENTED) manager->plain_until_ns = tutti_deadline_ns(PLAIN_NS);
    if (status == TUTTI_RPC_UNIMPLEMENTED || (cached && (status == TUTTI_RPC_NOT_FOUND || status == TUTTI_RPC_OK)))
        ask_again(manager);
    else
        unanswered(manager, status, message);
}

static struct tutti_rpc_body *pack_quorum(Torchft__QuorumMember *member, const struct tutti_replica *group)
{
    Torchft__LighthouseQuorumRequest request = TORCHFT__LIGHTHOUSE_QUORUM_REQUEST__INIT;

    member->step = group->step;
    member->commit_failures = group->commit_failures;
    member->shrink_only = group->shrink_only;
    request.requester = member;
    return tutti_message_body(&request.base);
}

/* Where the quorum that is known has the group as it is, it need not be said again. */
static struct tutti_rpc_body *pack_step(struct tutti_ft_manager *manager, const Torchft__QuorumMember *member,
                                        const struct tutti_replica *group)
{
    struct tutti_rpc_body *is = tutti_message_body(&member->base), *body = NULL;
    Tutti__StepRequest request = TUTTI__STEP_REQUEST__INIT;

    if (!is) return NULL;
    request.replica_id = member->replica_id;
    request.step = group->step;
    request.commit_failures = group->commit_failures;
    request.shrink_only = group->shrink_only;
    request.known_epoch = manager->cache.epoch;
    if (!tutti_quorum_cache_has(&manager->cache, group->replica_id, is))
        request.member = (ProtobufCBinaryData){is->n, is->bytes};
    body = tutti_message_body(&request.base);
    tutti_rpc_body_give(is);
    return body;
}

void manager_ask(void *arg, const struct tutti_replica *group, uint64_t deadline_ns)
{
    struct tutti_ft_manager *manager = arg;
    const bool plain = tutti_now_ns() < manager->plain_until_ns;
    Torchft__QuorumMember member = TORCHFT__QUORUM_MEMBER__INIT;

    member.replica_id = client_text(group->replica_id);
    member.address = client_text(group->address);
    member.store_address = client_text(group->store_address);
    member.data = client_text(group->data);
    member.world_size = group->world_size;
    member.n_reconfigure_handles = group->n_handles;
    member.reconfigure_handles = (char **)(uintptr_t)group->handles;
    const struct tutti_rpc_ask ask = {.path =
                                          plain ? "/torchft.LighthouseService/Quorum" : "/tutti.LighthouseService/Step",
                                      .body = plain ? pack_quorum(&member, group) : pack_step(manager, &member, group),
                                      .deadline_ns = tutti_rpc_sooner(deadline_ns),
                                      .reach_ns = manager->connect_ns,
                                      .done = plain ? on_quorum : on_step,
                                      .arg = manager};
    manager->quorum = tutti_rpc_send(manager->lighthouses, &ask); /* NULL: the ranks' deadlines end it */
}

void manager_withdraw(void *arg)
{
    struct tutti_ft_manager *manager = arg;

    if (manager->quorum) tutti_rpc_withdraw(manager->quorum);
    manager->quorum = NULL;
}

/* ---- what the lighthouse tells: when it takes a group for dead ---- */
static void take_timeout(struct tutti_ft_manager *manager, const char *ms)
{
    const uint64_t most = tutti_ns(strtoull(ms, NULL, 10), TUTTI_NS_PER_MS) / BEATS;

    if (most == 0 || manager->heartbeat_ns <= most) return;
    tutti_log(TUTTI_LOG_WARN,
              "%s: the lighthouse takes a group for dead after %.20s ms: a heartbeat each %llu ms, not %llu ms",
              manager->replica_id, ms, tutti_says_ms(most), tutti_says_ms(manager->heartbeat_ns));
    tutti_manager_beat_every(manager->machine, most, tutti_now_ns());
    manager_schedule(manager);
}

static void on_settings(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_manager *manager = arg;
    Tutti__ConfigResponse *response = status == TUTTI_RPC_OK ? tutti__config_response__unpack(NULL, n, bytes) : NULL;

    (void)message; /* torchft's does not know it */
    for (size_t i = 0; response && i < response->n_config_data; i++)
        if (strcmp(response->config_data[i]->key, "heartbeat_timeout_ms") == 0)
            take_timeout(manager, response->config_data[i]->value);
    if (response) tutti__config_response__free_unpacked(response, NULL);
}

static void learn(struct tutti_ft_manager *manager)
{
    manager->learns = true;
    const struct tutti_rpc_ask ask = {.path = "/torchft.LighthouseService/GetConfig",
                                      .body = tutti_rpc_body_new(0),
                                      .deadline_ns = TUTTI_NEVER,
                                      .reach_ns = TUTTI_NEVER,
                                      .done = on_settings,
                                      .arg = manager};
    tutti_rpc_send(manager->lighthouses, &ask);
}

/* ---- heartbeats: one at a time ---- */
static void on_beat(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    (void)status, (void)message, (void)bytes, (void)n; /* the next one is due soon */
    ((struct tutti_ft_manager *)arg)->beat = NULL;
}

void manager_beat(void *arg, const struct tutti_manager_progress *progress)
{
    struct tutti_ft_manager *manager = arg;
    const uint64_t within = tutti_rpc_channel_n(manager->lighthouses) > 1 ? BEAT_NS : BEAT_ALONE_NS;
    Torchft__Progress packed = TORCHFT__PROGRESS__INIT;
    Torchft__LighthouseHeartbeatRequest request = TORCHFT__LIGHTHOUSE_HEARTBEAT_REQUEST__INIT;

    if (!manager->learns) learn(manager);
    if (manager->beat) return;
    packed.step = progress->step;
    packed.collective = progress->collective;
    packed.rank = progress->rank;
    packed.n_ranks = progress->n_ranks;
    request.replica_id = manager->replica_id;
    request.progress = progress->n_ranks > 0 ? &packed : NULL;
    const struct tutti_rpc_ask ask = {.path = "/torchft.LighthouseService/Heartbeat",
                                      .body = tutti_message_body(&request.base),
                                      .deadline_ns = tutti_deadline_ns(within),
                                      .reach_ns = within,
                                      .probe = true,
                                      .done = on_beat,
                                      .arg = manager};
    manager->beat = tutti_rpc_send(manager->lighthouses, &ask);
}

/* ---- the end ---- */
static void on_left(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_manager *manager = arg;

    (void)status, (void)message, (void)bytes, (void)n; /* torchft's does not know it */
    manager->leave = NULL;
    atomic_store(&manager->left, 1);
    tutti_futex_wake(&manager->left, 1);
}

void manager_leave(void *arg, const char *why)
{
    struct tutti_ft_manager *manager = arg;
    Torchft__LeaveRequest request = TORCHFT__LEAVE_REQUEST__INIT;

    if (manager->beat) tutti_rpc_withdraw(manager->beat); /* it would say that the group lives */
    manager->beat = NULL;
    if (manager->leave) return;
    request.replica_id = manager->replica_id;
    request.why = client_text(why);
    const struct tutti_rpc_ask ask = {.path = "/tutti.LighthouseService/Leave",
                                      .body = tutti_message_body(&request.base),
                                      .deadline_ns = tutti_deadline_ns(LEAVE_NS),
                                      .done = on_left,
                                      .arg = manager};
    manager->leave = tutti_rpc_send(manager->lighthouses, &ask);
    if (!manager->leave) on_left(manager, TUTTI_RPC_RESOURCE_EXHAUSTED, "", NULL, 0);
}
