/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls become events of a job's machine, its answers replies. A request's number is the address of its call, which
 * stays until it is answered or cancelled. */
#include "ft/serve/jobs.h"

#include "ft/rpc/message.h"

#include <tutti.pb-c.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEARTBEAT "/torchft.LighthouseService/Heartbeat"

static bool is_long(const char *text)
{
    return strlen(text) > TUTTI_MESSAGE_TEXT;
}

static enum tutti_status no_memory(void)
{
    return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
}

static enum tutti_status reply_empty(struct tutti_rpc_call *call)
{
    struct tutti_rpc_body *empty = tutti_rpc_body_new(0);

    if (!empty) return no_memory();
    tutti_rpc_reply(call, empty);
    return TUTTI_OK;
}

/* ---- heartbeats and leaves ---- */
static enum tutti_status on_heartbeat(struct serve_job *job, struct tutti_rpc_call *call, const void *message)
{
    const Torchft__LighthouseHeartbeatRequest *request = message;
    const Torchft__Progress *said = request->progress;
    const struct tutti_lighthouse_time now = serve_job_now(job);

    job->n_beats++;
    if (is_long(request->replica_id))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "replica_id is longer than %d bytes", TUTTI_MESSAGE_TEXT);
    TUTTI_TRY(tutti_lighthouse_beat(job->machine, request->replica_id, now));
    serve_present(job->name, call, request->replica_id, now.now);
    if (said) {
        const struct tutti_progress progress = {
            .step = said->step, .collective = said->collective, .rank = said->rank, .n_ranks = said->n_ranks};
        tutti_lighthouse_progress(job->machine, request->replica_id, &progress, now.now);
    }
    return reply_empty(call);
}

static enum tutti_status on_leave(struct serve_job *job, struct tutti_rpc_call *call, const void *message)
{
    const Torchft__LeaveRequest *request = message;

    TUTTI_TRY(reply_empty(call));
    serve_note(job, "%.64s leaves: %.100s", request->replica_id, request->why);
    const struct tutti_lighthouse_time now = serve_job_now(job);
    const uint64_t age = request->unless_heard_ms * TUTTI_NS_PER_MS;
    const uint64_t since = age > 0 ? now.now - (age < now.now ? age : 0) : UINT64_MAX;
    tutti_lighthouse_leave_unless(job->machine, request->replica_id, since, now);
    return TUTTI_OK;
}

/* ---- answers ---- */
/* A call's note: 0 for one of torchft's protocol, else the epoch that a Step knows, and one. */
void serve_answer(void *arg, uint64_t request, struct tutti_quorum *quorum)
{
    struct tutti_rpc_call *call = (struct tutti_rpc_call *)(uintptr_t)request;
    struct serve_view *view = &((struct serve_job *)arg)->view;
    const int64_t note = tutti_rpc_note(call);
    struct tutti_rpc_body *body = !serve_view_follow(view, quorum) ? NULL
                                  : note > 0                       ? serve_view_since(view, quorum, note - 1)
                                                                   : serve_view_whole(quorum);

    if (body)
        tutti_rpc_reply(call, body);
    else
        tutti_rpc_fail(call, TUTTI_RPC_RESOURCE_EXHAUSTED, "the lighthouse is out of memory");
    tutti_quorum_give(quorum);
}

/* ---- calls ---- */
/* The member, whose step, failures and shrink_only are told apart from what stays. */
static enum tutti_status ask(struct serve_job *job, struct tutti_rpc_call *call, Torchft__QuorumMember *m)
{
    struct tutti_replica replica = {.replica_id = m->replica_id,
                                    .address = m->address,
                                    .store_address = m->store_address,
                                    .data = m->data,
                                    .step = m->step,
                                    .commit_failures = m->commit_failures,
                                    .world_size = m->world_size,
                                    .shrink_only = m->shrink_only};

    if (is_long(m->replica_id) || is_long(m->address) || is_long(m->store_address))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a name or an address is longer than %d bytes", TUTTI_MESSAGE_TEXT);
    m->step = m->commit_failures = 0, m->shrink_only = false;
    replica.n_raw = torchft__quorum_member__get_packed_size(m);
    uint8_t *raw = tutti_alloc(replica.n_raw);
    if (!raw) return no_memory();
    torchft__quorum_member__pack(m, raw);
    replica.raw = raw;
    const struct tutti_lighthouse_time now = serve_job_now(job);
    serve_present(job->name, call, replica.replica_id, now.now);
    const enum tutti_status status = tutti_lighthouse_ask(job->machine, &replica, (uintptr_t)call, now);
    tutti_free(raw);
    job->n_asks++;
    return status;
}

static enum tutti_status on_quorum(struct serve_job *job, struct tutti_rpc_call *call, const void *message)
{
    Torchft__QuorumMember *requester = ((const Torchft__LighthouseQuorumRequest *)message)->requester;

    return requester ? ask(job, call, requester) : tutti_fail(TUTTI_ERR_ARGUMENT, "missing requester");
}

/* ---- Step ---- */
/* It is what it was in the quorum that it knows, but for its step. NULL: nobody knows what it was. */
static const struct tutti_replica *known(const struct serve_job *job, const Tutti__StepRequest *step)
{
    const struct tutti_quorum *last = tutti_lighthouse_last(job->machine);
    const bool knows = last && job->view.of == last && job->view.epoch == step->known_epoch;
    const struct tutti_replica *replica = knows ? tutti_quorum_find(last, step->replica_id) : NULL;

    return replica && replica->n_raw > 0 ? replica : NULL;
}

static enum tutti_status ask_again(struct serve_job *job, struct tutti_rpc_call *call, const Tutti__StepRequest *step,
                                   const struct tutti_replica *was)
{
    struct tutti_replica replica = *was;

    replica.step = step->step, replica.commit_failures = step->commit_failures;
    replica.shrink_only = step->shrink_only;
    const struct tutti_lighthouse_time now = serve_job_now(job);
    serve_present(job->name, call, replica.replica_id, now.now);
    job->n_asks++;
    return tutti_lighthouse_ask(job->machine, &replica, (uintptr_t)call, now);
}

static enum tutti_status ask_anew(struct serve_job *job, struct tutti_rpc_call *call, const Tutti__StepRequest *step)
{
    Torchft__QuorumMember *member = torchft__quorum_member__unpack(NULL, step->member.len, step->member.data);

    if (!member || strcmp(member->replica_id, step->replica_id) != 0) {
        if (member) torchft__quorum_member__free_unpacked(member, NULL);
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the member can not be read, or is not of this replica_id");
    }
    member->step = step->step, member->commit_failures = step->commit_failures;
    member->shrink_only = step->shrink_only;
    const enum tutti_status status = ask(job, call, member);
    torchft__quorum_member__free_unpacked(member, NULL);
    return status;
}

static enum tutti_status on_step(struct serve_job *job, struct tutti_rpc_call *call, const void *message)
{
    const Tutti__StepRequest *step = message;
    const struct tutti_replica *was = step->member.len == 0 ? known(job, step) : NULL;

    tutti_rpc_set_note(call, (step->known_epoch > 0 ? step->known_epoch : 0) % INT64_MAX + 1);
    if (was) return ask_again(job, call, step, was);
    if (step->member.len > 0) return ask_anew(job, call, step);
    tutti_rpc_fail(call, TUTTI_RPC_NOT_FOUND, "this group was not in the quorum of this epoch: say what it is");
    return TUTTI_OK;
}

/* ---- what groups are told ---- */
static void add_entry(Tutti__ConfigEntry *entry, const char *key, const char *value)
{
    tutti__config_entry__init(entry);
    entry->key = (char *)(uintptr_t)key, entry->value = (char *)(uintptr_t)value;
}

/* The rules, in the words of the command's options. */
#define RULES 4
static size_t add_rules(const struct tutti_serve_config *config, Tutti__ConfigEntry entries[RULES],
                        char texts[RULES][24])
{
    const struct {
        const char *name;
        uint64_t value;
    } rules[RULES] = {{"min_replicas", config->options.min_replicas},
                      {"join_timeout_ms", config->options.join_timeout_ns / TUTTI_NS_PER_MS},
                      {"quorum_tick_ms", config->options.tick_ns / TUTTI_NS_PER_MS},
                      {"heartbeat_timeout_ms", config->options.heartbeat_timeout_ns / TUTTI_NS_PER_MS}};
    size_t n = 0;

    for (size_t i = 0; i < RULES; i++) {
        size_t same = 0;
        while (same < config->n_words && strcmp(config->words[same].name, rules[i].name) != 0) same++;
        if (same < config->n_words) continue; /* it is said below */
        snprintf(texts[n], sizeof texts[n], "%" PRIu64, rules[i].value);
        add_entry(&entries[n], rules[i].name, texts[n]);
        n++;
    }
    return n;
}

static void on_config(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    const struct tutti_serve_config *config = &((struct tutti_serve *)arg)->config;
    Tutti__ConfigEntry *entries = tutti_alloc_array(config->n_words + RULES, sizeof(*entries));
    Tutti__ConfigEntry **all = tutti_alloc_array(config->n_words + RULES, sizeof(*all));
    Tutti__ConfigResponse response = TUTTI__CONFIG_RESPONSE__INIT;
    struct tutti_rpc_body *body = NULL;
    char texts[RULES][24];

    (void)message, (void)n;
    const size_t n_rules = entries && all ? add_rules(config, entries, texts) : 0;
    for (size_t i = 0; entries && all && i < n_rules + config->n_words; i++) {
        if (i >= n_rules) add_entry(&entries[i], config->words[i - n_rules].name, config->words[i - n_rules].value);
        all[response.n_config_data++] = &entries[i];
    }
    response.config_data = all;
    if (entries && all) body = tutti_rpc_body_new(tutti__config_response__get_packed_size(&response));
    if (body) {
        tutti__config_response__pack(&response, body->bytes);
        tutti_rpc_reply(call, body);
    } else {
        tutti_rpc_fail(call, TUTTI_RPC_RESOURCE_EXHAUSTED, "the lighthouse is out of memory");
    }
    tutti_free(entries);
    tutti_free(all);
}

static enum tutti_status on_subscribe(struct serve_job *job, struct tutti_rpc_call *call, const void *message)
{
    struct serve_subscriber *subscriber = tutti_alloc(sizeof(*subscriber));

    (void)message; /* it says nothing */
    if (!subscriber || !tutti_rpc_push(call, NULL)) {
        tutti_free(subscriber);
        return no_memory();
    }
    *subscriber = (struct serve_subscriber){.next = job->subscribers, .call = call};
    job->subscribers = subscriber;
    return TUTTI_OK;
}

static void forget_unsubscribed(struct serve_job *job)
{
    for (struct serve_subscriber **link = &job->subscribers, *s; (s = *link);)
        if (s->call)
            link = &s->next;
        else
            *link = s->next, tutti_free(s);
}

static void unsubscribe(struct serve_job *job, const struct tutti_rpc_call *call)
{
    for (struct serve_subscriber *s = job->subscribers; s; s = s->next)
        if (s->call == call) s->call = NULL;
    if (!job->notifying) forget_unsubscribed(job);
}

/* Drops subscribers that do not read. Notifying one may end the call of another. */
static void tell(struct serve_job *job, const struct serve_lost *lost)
{
    Tutti__FailureNotification note = TUTTI__FAILURE_NOTIFICATION__INIT;

    note.replica_id = (char *)(uintptr_t)lost->replica_id;
    struct tutti_rpc_body *body = tutti_rpc_body_new(tutti__failure_notification__get_packed_size(&note));
    if (!body) return;
    tutti__failure_notification__pack(&note, body->bytes);
    job->notifying = true;
    for (struct serve_subscriber *s = job->subscribers; s; s = s->next) {
        if (!s->call) continue;
        body->refs++;
        if (tutti_rpc_push(s->call, body) || !s->call) continue;
        tutti_rpc_fail(s->call, TUTTI_RPC_RESOURCE_EXHAUSTED, "this client does not read what it is told");
        s->call = NULL;
    }
    job->notifying = false;
    forget_unsubscribed(job);
    tutti_rpc_body_give(body);
}

void serve_notify_lost(struct serve_job *job)
{
    while (job->lost) {
        struct serve_lost *lost = job->lost;
        tell(job, lost);
        job->lost = lost->next;
        tutti_free(lost);
    }
}

void serve_cancelled(void *arg, struct tutti_rpc_call *call)
{
    const char *name = tutti_rpc_job(call);

    if (serve_forward_cancelled(call)) return;
    struct serve_job *job = serve_job_find(arg, name[0] ? name : SERVE_DEFAULT);

    if (!job) return;
    if (job->subscribers) unsubscribe(job, call);
    tutti_lighthouse_cancel(job->machine, (uintptr_t)call, serve_job_now(job));
    serve_schedule(job);
}

void serve_expired(void *arg, const struct tutti_rpc_call *call, char *why, size_t n)
{
    const char *name = tutti_rpc_job(call), *path = tutti_rpc_path(call);
    const struct serve_job *job = serve_job_find(arg, name[0] ? name : SERVE_DEFAULT);

    if (!serve_leads(arg))
        snprintf(why, n, "no lighthouse leads");
    else if (job && (strstr(path, "Service/Quorum") || strstr(path, "Service/Step")))
        tutti_lighthouse_reason(job->machine, tutti_now_ns(), why, n);
}

/* ---- the table ---- */
/* A call of a job's group that the leader answers; a handler that fails has not replied. */
static const struct {
    const char *path;
    const ProtobufCMessageDescriptor *type;
    enum tutti_status (*handle)(struct serve_job *job, struct tutti_rpc_call *call, const void *message);
} rows[] = {
    {"/torchft.LighthouseService/Quorum", &torchft__lighthouse_quorum_request__descriptor, on_quorum},
    {HEARTBEAT, &torchft__lighthouse_heartbeat_request__descriptor, on_heartbeat},
    {"/tutti.LighthouseService/Leave", &torchft__leave_request__descriptor, on_leave},
    {"/torchft.LighthouseService/SubscribeFailures", &tutti__subscribe_failures_request__descriptor, on_subscribe},
    {"/tutti.LighthouseService/Step", &tutti__step_request__descriptor, on_step},
};

/* Notes whose heartbeat it is: should its connection end, the leader hears of it from here. */
static void note_presence(struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    const char *job = tutti_rpc_job(call);
    Torchft__LighthouseHeartbeatRequest *request = strcmp(tutti_rpc_path(call), HEARTBEAT) == 0
                                                       ? torchft__lighthouse_heartbeat_request__unpack(NULL, n, message)
                                                       : NULL;

    if (!request) return;
    if (!is_long(request->replica_id))
        serve_present(job[0] ? job : SERVE_DEFAULT, call, request->replica_id, tutti_now_ns());
    torchft__lighthouse_heartbeat_request__free_unpacked(request, NULL);
}

static void refuse(struct tutti_rpc_call *call)
{
    const bool argument = tutti_last_error()->status == TUTTI_ERR_ARGUMENT;

    tutti_rpc_fail(call, argument ? TUTTI_RPC_INVALID_ARGUMENT : TUTTI_RPC_RESOURCE_EXHAUSTED,
                   tutti_last_error()->text);
}

static void on_call(void *arg, struct tutti_rpc_call *call, const uint8_t *bytes, size_t n)
{
    const char *name = tutti_rpc_job(call);
    size_t row = 0;

    if (!serve_leads(arg)) {
        note_presence(call, bytes, n);
        serve_forward(arg, call, bytes, n);
        return;
    }
    struct serve_job *job = serve_job(arg, name[0] ? name : SERVE_DEFAULT);
    if (!job) {
        refuse(call);
        return;
    }
    while (strcmp(rows[row].path, tutti_rpc_path(call)) != 0) row++;
    ProtobufCMessage *message = protobuf_c_message_unpack(rows[row].type, NULL, n, bytes);
    if (!message)
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request can not be read");
    else if (rows[row].handle(job, call, message) < 0)
        refuse(call);
    if (message) protobuf_c_message_free_unpacked(message, NULL);
    serve_schedule(job);
}

const struct tutti_rpc_method serve_methods[] = {
    {"/torchft.LighthouseService/Quorum", on_call}, {HEARTBEAT, on_call},
    {"/tutti.LighthouseService/Leave", on_call},    {"/torchft.LighthouseService/SubscribeFailures", on_call},
    {"/tutti.LighthouseService/Step", on_call},     {"/torchft.LighthouseService/GetConfig", on_config},
    {"/tutti.CouncilService/Tell", serve_on_tell},  {"/tutti.CouncilService/Forward", serve_on_forward}};
const size_t serve_n_methods = TUTTI_ARRAY_LEN(serve_methods);

/* All but what lighthouses say to one another. */
const struct tutti_rpc_method *serve_forwarded(const char *path)
{
    if (strncmp(path, "/tutti.CouncilService/", 22) == 0) return NULL;
    for (size_t i = 0; i < serve_n_methods; i++)
        if (strcmp(serve_methods[i].path, path) == 0) return &serve_methods[i];
    return NULL;
}
