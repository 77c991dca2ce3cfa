/* SPDX-License-Identifier: BSD-3-Clause */
/* What the manager says to the lighthouse: for a quorum, that it lives and how far its ranks are, that it leaves. */
#include "ft/lead/lead.h"

#include <tutti.pb-c.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A lighthouse that does not answer a heartbeat for so long is lost: where there are others, one of them has taken over
 * by then; who is alone may only be busy. */
#define BEAT_NS (2 * TUTTI_LEASE_NS)
#define BEAT_ALONE_NS (5 * TUTTI_LEASE_NS)
#define PLAIN_NS (10 * TUTTI_NS_PER_S) /* so long one that does not know Step is not asked by it */
#define BEATS 4                        /* at least, until a lighthouse takes a group for dead */
#define LEAVE_NS (300 * TUTTI_NS_PER_MS)

static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text; /* what is packed is not changed */
}

/* ---- quorums: by Step; at a lighthouse that does not know it, as torchft's does not, by Quorum ---- */
static void ask_again(struct tutti_ft_manager *lead)
{
    tutti_manager_repeat(lead->machine, tutti_now_ns());
    lead_settle(lead);
}

static void unanswered(struct tutti_ft_manager *lead, enum tutti_rpc_status status, const char *message)
{
    char text[500];

    snprintf(text, sizeof text, "the lighthouse at %s %s: %.300s", tutti_servers_authority(lead->lighthouses),
             status == TUTTI_RPC_UNAVAILABLE ? "can not be reached" : "gives no quorum",
             status == TUTTI_RPC_OK ? tutti_last_error()->text : message);
    tutti_log(TUTTI_LOG_WARN, "%s: %s", lead->replica_id, text);
    tutti_manager_unanswered(lead->machine, text, tutti_now_ns());
    lead_settle(lead);
}

static void on_quorum(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_manager *lead = arg;
    struct tutti_quorum *quorum;

    if (status != TUTTI_RPC_OK || tutti_message_quorum(bytes, n, &quorum) < 0) {
        unanswered(lead, status, message);
        return;
    }
    tutti_manager_answered(lead->machine, quorum);
    tutti_quorum_give(quorum);
    lead_settle(lead);
}

/* What went wrong with what was known goes right without. */
static void on_step(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_manager *lead = arg;
    const bool knew = lead->known.epoch != 0;

    if (status == TUTTI_RPC_OK && tutti_known_take(&lead->known, bytes, n) >= 0) {
        tutti_manager_answered(lead->machine, &lead->known.quorum);
        lead_settle(lead);
        return;
    }
    tutti_known_forget(&lead->known);
    if (status == TUTTI_RPC_UNIMPLEMENTED) lead->plain_until_ns = tutti_deadline_ns(PLAIN_NS);
    if (status == TUTTI_RPC_UNIMPLEMENTED || (knew && (status == TUTTI_RPC_NOT_FOUND || status == TUTTI_RPC_OK)))
        ask_again(lead);
    else
        unanswered(lead, status, message);
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
static struct tutti_rpc_body *pack_step(struct tutti_ft_manager *lead, const Torchft__QuorumMember *member,
                                        const struct tutti_replica *group)
{
    struct tutti_rpc_body *is = tutti_message_body(&member->base), *body = NULL;
    Tutti__StepRequest request = TUTTI__STEP_REQUEST__INIT;

    if (!is) return NULL;
    request.replica_id = member->replica_id;
    request.step = group->step;
    request.commit_failures = group->commit_failures;
    request.shrink_only = group->shrink_only;
    request.known_epoch = lead->known.epoch;
    if (!tutti_known_has(&lead->known, group->replica_id, is)) request.member = (ProtobufCBinaryData){is->n, is->bytes};
    body = tutti_message_body(&request.base);
    tutti_rpc_body_give(is);
    return body;
}

void lead_ask(void *arg, const struct tutti_replica *group, uint64_t deadline_ns)
{
    struct tutti_ft_manager *lead = arg;
    const bool plain = tutti_now_ns() < lead->plain_until_ns;
    Torchft__QuorumMember member = TORCHFT__QUORUM_MEMBER__INIT;

    member.replica_id = text_of(group->replica_id);
    member.address = text_of(group->address);
    member.store_address = text_of(group->store_address);
    member.data = text_of(group->data);
    member.world_size = group->world_size;
    member.n_reconfigure_handles = group->n_handles;
    member.reconfigure_handles = (char **)(uintptr_t)group->handles;
    lead->quorum =
        (struct tutti_asked){.path = plain ? "/torchft.LighthouseService/Quorum" : "/tutti.LighthouseService/Step",
                             .body = plain ? pack_quorum(&member, group) : pack_step(lead, &member, group),
                             .deadline_ns = deadline_ns,
                             .reach_ns = lead->connect_ns,
                             .done = plain ? on_quorum : on_step,
                             .arg = lead};
    if (lead->quorum.body) tutti_servers_ask(lead->lighthouses, &lead->quorum); /* else the ranks' deadlines end it */
}

void lead_withdraw(void *arg)
{
    struct tutti_ft_manager *lead = arg;

    if (tutti_asked_open(&lead->quorum)) tutti_servers_withdraw(&lead->quorum);
}

/* ---- what the lighthouse tells: when it takes a group for dead ---- */
static void take_timeout(struct tutti_ft_manager *lead, const char *ms)
{
    const uint64_t most = strtoull(ms, NULL, 10) * TUTTI_NS_PER_MS / BEATS;

    if (most == 0 || lead->heartbeat_ns <= most) return;
    tutti_log(TUTTI_LOG_WARN,
              "%s: the lighthouse takes a group for dead after %.20s ms: a heartbeat each %llu ms, not %llu ms",
              lead->replica_id, ms, tutti_says_ms(most), tutti_says_ms(lead->heartbeat_ns));
    tutti_manager_beat_every(lead->machine, most, tutti_now_ns());
    lead_settle(lead);
}

static void on_settings(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_manager *lead = arg;
    Tutti__ConfigResponse *response = status == TUTTI_RPC_OK ? tutti__config_response__unpack(NULL, n, bytes) : NULL;

    (void)message; /* torchft's does not know it */
    for (size_t i = 0; response && i < response->n_config_data; i++)
        if (strcmp(response->config_data[i]->key, "heartbeat_timeout_ms") == 0)
            take_timeout(lead, response->config_data[i]->value);
    if (response) tutti__config_response__free_unpacked(response, NULL);
}

static void learn(struct tutti_ft_manager *lead)
{
    lead->learns = true;
    lead->settings = (struct tutti_asked){.path = "/torchft.LighthouseService/GetConfig",
                                          .body = tutti_rpc_body_new(0),
                                          .deadline_ns = TUTTI_NEVER,
                                          .reach_ns = TUTTI_NEVER,
                                          .done = on_settings,
                                          .arg = lead};
    if (lead->settings.body) tutti_servers_ask(lead->lighthouses, &lead->settings);
}

/* ---- heartbeats: one at a time ---- */
static void on_beat(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    (void)arg, (void)status, (void)message, (void)bytes, (void)n; /* the next one is due soon */
}

void lead_beat(void *arg, const struct tutti_manager_progress *progress)
{
    struct tutti_ft_manager *lead = arg;
    const uint64_t within = tutti_servers_n(lead->lighthouses) > 1 ? BEAT_NS : BEAT_ALONE_NS;
    Torchft__Progress packed = TORCHFT__PROGRESS__INIT;
    Torchft__LighthouseHeartbeatRequest request = TORCHFT__LIGHTHOUSE_HEARTBEAT_REQUEST__INIT;

    if (!lead->learns) learn(lead);
    if (tutti_asked_open(&lead->beat)) return;
    packed.step = progress->step;
    packed.collective = progress->collective;
    packed.rank = progress->rank;
    packed.n_ranks = progress->n_ranks;
    request.replica_id = lead->replica_id;
    request.progress = progress->n_ranks > 0 ? &packed : NULL;
    lead->beat = (struct tutti_asked){.path = "/torchft.LighthouseService/Heartbeat",
                                      .body = tutti_message_body(&request.base),
                                      .deadline_ns = tutti_deadline_ns(within),
                                      .reach_ns = within,
                                      .probe = true,
                                      .done = on_beat,
                                      .arg = lead};
    if (lead->beat.body) tutti_servers_ask(lead->lighthouses, &lead->beat);
}

/* ---- the end ---- */
static void on_left(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_manager *lead = arg;

    (void)status, (void)message, (void)bytes, (void)n; /* torchft's does not know it */
    atomic_store(&lead->left, 1);
    tutti_futex_wake(&lead->left, 1);
}

void lead_leave(void *arg, const char *why)
{
    struct tutti_ft_manager *lead = arg;
    Torchft__LeaveRequest request = TORCHFT__LEAVE_REQUEST__INIT;

    if (tutti_asked_open(&lead->beat)) tutti_servers_withdraw(&lead->beat); /* it would say that the group lives */
    if (tutti_asked_open(&lead->leave)) return;
    request.replica_id = lead->replica_id;
    request.why = text_of(why);
    lead->leave = (struct tutti_asked){.path = "/tutti.LighthouseService/Leave",
                                       .body = tutti_message_body(&request.base),
                                       .deadline_ns = tutti_deadline_ns(LEAVE_NS),
                                       .done = on_left,
                                       .arg = lead};
    if (lead->leave.body)
        tutti_servers_ask(lead->lighthouses, &lead->leave);
    else
        on_left(lead, TUTTI_RPC_RESOURCE_EXHAUSTED, "", NULL, 0);
}
