/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules: whether there is a quorum now, and its publication; the life of the machine and what people see of it. */
#include "ft/rules/state.h"

#include <inttypes.h>
#include <string.h>

enum verdict { NOBODY, TOO_FEW, NO_MAJORITY, STRAGGLERS, FAST, FULL, N_VERDICTS };

/* When the oldest request of a ready group came. */
static uint64_t first_joined(const struct tutti_lighthouse *l)
{
    const struct group *group = l->queues[BY_JOIN].first;

    while (group && !group->heard) group = group->links[BY_JOIN].after;
    return group ? group->joined_ns : UINT64_MAX;
}

static bool only_members(const struct tutti_lighthouse *l)
{
    return l->last && l->n_shrink > 0;
}

static uint32_t n_candidates(const struct tutti_lighthouse *l)
{
    return only_members(l) ? l->n_members - l->n_missing : l->n_ready;
}

static enum verdict judge(const struct tutti_lighthouse *l, uint64_t now)
{
    if (n_candidates(l) == 0) return NOBODY;
    if (l->n_members > 0 && l->n_missing == 0) return FAST;
    if (l->n_ready < l->options.min_replicas) return TOO_FEW;
    if (l->n_ready <= l->n_heard / 2) return NO_MAJORITY;
    if (l->n_heard > l->n_ready && now - first_joined(l) < l->options.join_timeout_ns) return STRAGGLERS;
    return FULL;
}

/* ---- publication ---- */
static bool is_candidate(const struct tutti_lighthouse *l, const struct group *group)
{
    return group->heard && group->replica && (group->member || !only_members(l));
}

/* The members still belong to their groups. */
static struct tutti_quorum *propose(const struct tutti_lighthouse *l, int64_t wall)
{
    struct tutti_quorum *quorum = tutti_quorum_new(n_candidates(l));
    bool changed = quorum && quorum->n != l->n_members;
    uint32_t n = 0;

    for (uint32_t i = 0; quorum && i < l->n; i++) {
        const struct group *group = l->groups[i];
        if (!is_candidate(l, group)) continue;
        quorum->members[n++] = group->replica;
        changed = changed || !group->member || group->replica->commit_failures > 0;
    }
    if (!quorum) return NULL;
    quorum->created_ns = wall;
    quorum->id = l->id + (changed ? 1 : 0);
    return quorum;
}

static void withdraw(struct tutti_quorum *quorum)
{
    if (quorum) quorum->n = 0;
    tutti_quorum_give(quorum);
}

static void answer_all(struct tutti_lighthouse *l, struct group *group)
{
    while (group->requests) {
        const uint64_t number = group->requests->number;
        lighthouse_request_end(l, group->requests);
        l->last->refs++;
        l->out.answer(l->out.arg, number, l->last);
    }
}

/* A group that asked and is no member goes on asking. */
static void conclude(struct tutti_lighthouse *l, struct tutti_quorum *quorum, uint64_t now)
{
    uint32_t n = 0;

    tutti_quorum_give(l->last);
    l->last = quorum;
    l->id = quorum->id;
    for (uint32_t i = 0; i < l->n; i++) {
        struct group *group = l->groups[i];
        const bool member = n < quorum->n && group->replica == quorum->members[n];
        if (member) lighthouse_unjoin(l, group), n++;
        lighthouse_be_member(l, group, member);
        if (!group->replica) continue;
        lighthouse_join(l, group, lighthouse_unjoin(l, group), now);
        l->again_ns = now + l->options.tick_ns;
    }
    for (uint32_t i = 0; i < l->n; i++)
        if (l->groups[i]->member) answer_all(l, l->groups[i]);
}

static void decide(struct tutti_lighthouse *l, struct tutti_lighthouse_time t)
{
    lighthouse_expire(l, t.now);
    if (l->again_ns <= t.now) l->again_ns = UINT64_MAX;
    if (judge(l, t.now) < FAST) return;
    struct tutti_quorum *quorum = propose(l, t.wall);
    if (quorum && (quorum->id == l->id || !l->out.commit || l->out.commit(l->out.arg, quorum))) {
        conclude(l, quorum, t.now);
        return;
    }
    withdraw(quorum);
    l->again_ns = t.now + l->options.tick_ns;
}

/* ---- events ---- */
static enum tutti_status no_memory(void)
{
    return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
}

/* NULL: the record says why. */
static struct group *hear(struct tutti_lighthouse *l, const char *name, uint64_t now)
{
    struct group *group = lighthouse_find(l, name);

    if (!name[0])
        tutti_fail(TUTTI_ERR_ARGUMENT, "replica_id is empty");
    else if (!group && lighthouse_is_full(l))
        tutti_fail(TUTTI_ERR_MEMORY, "the job has %" PRIu32 " groups already", l->n);
    else if (!group && !(group = lighthouse_know(l, name, now)))
        no_memory();
    if (group) lighthouse_hear(l, group, now);
    return group;
}

enum tutti_status tutti_lighthouse_beat(struct tutti_lighthouse *l, const char *replica_id,
                                        struct tutti_lighthouse_time t)
{
    if (!hear(l, replica_id, t.now)) return tutti_last_error()->status;
    decide(l, t);
    return TUTTI_OK;
}

enum tutti_status tutti_lighthouse_ask(struct tutti_lighthouse *l, const struct tutti_replica *replica,
                                       uint64_t request, struct tutti_lighthouse_time t)
{
    struct group *group = hear(l, replica->replica_id, t.now);

    if (!group) return tutti_last_error()->status;
    struct tutti_replica *copy = tutti_replica_copy(replica);
    if (!copy) return no_memory();
    enum tutti_status status = lighthouse_request_add(l, group, request);
    if (status < 0) {
        tutti_free(copy);
        return status;
    }
    tutti_free(lighthouse_unjoin(l, group));
    lighthouse_join(l, group, copy, t.now);
    decide(l, t);
    return TUTTI_OK;
}

void tutti_lighthouse_cancel(struct tutti_lighthouse *l, uint64_t number, struct tutti_lighthouse_time t)
{
    struct request *request = lighthouse_request(l, number);

    if (!request) return;
    struct group *group = request->group;
    lighthouse_request_end(l, request);
    if (!group->requests) tutti_free(lighthouse_unjoin(l, group));
    decide(l, t);
}

void tutti_lighthouse_leave_unless(struct tutti_lighthouse *l, const char *replica_id, uint64_t since,
                                   struct tutti_lighthouse_time t)
{
    struct group *group = lighthouse_find(l, replica_id);

    if (group && group->beat_ns <= since) lighthouse_silence(l, group);
    decide(l, t);
}

void tutti_lighthouse_leave(struct tutti_lighthouse *l, const char *replica_id, struct tutti_lighthouse_time t)
{
    tutti_lighthouse_leave_unless(l, replica_id, UINT64_MAX, t);
}

void tutti_lighthouse_away(struct tutti_lighthouse *l, uint64_t now)
{
    l->away_ns = now;
}

void tutti_lighthouse_tick(struct tutti_lighthouse *l, struct tutti_lighthouse_time t)
{
    decide(l, t);
}

uint64_t tutti_lighthouse_due(const struct tutti_lighthouse *l)
{
    uint64_t due = l->again_ns;

    if (lighthouse_late_due(l) < due) due = lighthouse_late_due(l);
    const uint64_t joined = first_joined(l);
    if (joined != UINT64_MAX && judge(l, joined) == STRAGGLERS && joined + l->options.join_timeout_ns < due)
        due = joined + l->options.join_timeout_ns;
    const uint64_t forgotten = lighthouse_forget_due(l);
    return forgotten < due ? forgotten : due;
}

/* ---- what people see ---- */
bool tutti_lighthouse_reason(const struct tutti_lighthouse *l, uint64_t now, char *out, size_t capacity)
{
    const enum verdict verdict = judge(l, now);

    out[0] = '\0';
    switch (verdict) {
    case FAST:
        tutti_append(out, capacity, "Fast quorum found!");
        break;
    case FULL:
        tutti_append(out, capacity, "Valid quorum found");
        break;
    case TOO_FEW:
        tutti_append(out, capacity,
                     "New quorum not ready, only have %" PRIu32 " participants, need min_replicas %" PRIu64, l->n_ready,
                     l->options.min_replicas);
        break;
    case NO_MAJORITY:
        tutti_append(out, capacity,
                     "New quorum not ready, only have %" PRIu32 " participants, need at least half of %" PRIu32
                     " healthy workers",
                     l->n_ready, l->n_heard);
        break;
    case STRAGGLERS:
        tutti_append(out, capacity,
                     "Valid quorum with %" PRIu32 " participants, waiting for %" PRIu32
                     " healthy but not participating stragglers due to join timeout",
                     l->n_ready, l->n_heard - l->n_ready);
        break;
    default:
        tutti_append(out, capacity, "New quorum not ready, nobody can be a member");
        break;
    }
    tutti_append(out, capacity,
                 " [%" PRIu32 "/%" PRIu32 " participants healthy][%" PRIu32 " heartbeating][shrink_only=%s]",
                 l->n_ready, l->n_asking, l->n_heard, l->n_shrink > 0 ? "true" : "false");
    return verdict >= FAST;
}

/* ---- its life ---- */
static enum tutti_status check(const struct tutti_lighthouse_options *options)
{
    if (options->min_replicas == 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "min_replicas is 0: at least one must take part");
    if (options->heartbeat_timeout_ns == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "heartbeat_timeout is 0");
    if (options->tick_ns == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "quorum_tick is 0");
    if (options->forget_ns < options->heartbeat_timeout_ns)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "groups are forgotten before they are late: forget is below heartbeat_timeout");
    return TUTTI_OK;
}

enum tutti_status tutti_lighthouse_create(const struct tutti_lighthouse_options *options,
                                          const struct tutti_lighthouse_out *out, struct tutti_lighthouse **made)
{
    TUTTI_TRY(check(options));
    struct tutti_lighthouse *l = tutti_alloc(sizeof(*l));
    if (!l) return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
    l->options = *options;
    l->out = *out;
    l->again_ns = UINT64_MAX;
    *made = l;
    return TUTTI_OK;
}

void tutti_lighthouse_destroy(struct tutti_lighthouse *l)
{
    if (!l) return;
    while (l->n > 0) lighthouse_drop_group(l, l->groups[l->n - 1]);
    tutti_quorum_give(l->last);
    tutti_free(l->groups);
    tutti_free(l->requests);
    tutti_free(l);
}

enum tutti_status tutti_lighthouse_restore(struct tutti_lighthouse *l, int64_t id, const char *const *names, uint32_t n,
                                           uint64_t now)
{
    struct tutti_quorum *quorum = n > 0 ? tutti_quorum_new(n) : NULL;
    bool whole = quorum != NULL;

    l->id = id;
    if (n == 0) return TUTTI_OK;
    for (uint32_t i = 0; whole && i < n; i++) {
        struct group *group = lighthouse_know(l, names[i], now);
        quorum->members[i] = tutti_replica_copy(
            &(struct tutti_replica){.replica_id = names[i], .address = "", .store_address = "", .data = ""});
        whole = group && quorum->members[i];
        if (!group) break;
        lighthouse_hear(l, group, now);
        lighthouse_be_member(l, group, true);
    }
    if (!whole) {
        tutti_quorum_give(quorum);
        return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
    }
    quorum->id = id;
    l->last = quorum;
    return TUTTI_OK;
}

const struct tutti_quorum *tutti_lighthouse_last(const struct tutti_lighthouse *l)
{
    return l->last;
}

void tutti_lighthouse_counts(const struct tutti_lighthouse *l, struct tutti_lighthouse_counts *out)
{
    *out = (struct tutti_lighthouse_counts){.n_known = l->n,
                                            .n_heard = l->n_heard,
                                            .n_asking = l->n_asking,
                                            .n_ready = l->n_ready,
                                            .n_missing = l->n_missing,
                                            .shrink_only = l->n_shrink > 0};
}

void tutti_lighthouse_progress(struct tutti_lighthouse *l, const char *replica_id,
                               const struct tutti_progress *progress, uint64_t now)
{
    struct group *group = lighthouse_find(l, replica_id);

    if (!group) return;
    const struct tutti_progress was = group->progress;
    group->progress = *progress;
    const bool same = was.n_ranks > 0 && was.step == progress->step && was.collective == progress->collective;
    group->progress.changed_ns = same ? was.changed_ns : now;
}

void tutti_lighthouse_requests(const struct tutti_lighthouse *l, void (*see)(void *arg, uint64_t request), void *arg)
{
    for (uint32_t i = 0; i < l->n_requests; i++) see(arg, l->requests[i]->number);
}

void tutti_lighthouse_each(const struct tutti_lighthouse *l,
                           void (*see)(void *arg, const struct tutti_lighthouse_seen *seen), void *arg)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const struct group *group = l->groups[i];
        const struct tutti_lighthouse_seen seen = {
            .replica_id = group->name,
            .heard = group->heard,
            .asks = group->replica != NULL,
            .member = group->member,
            .beat_ns = group->beat_ns,
            .progress = group->progress,
            .replica = group->replica  ? group->replica
                       : group->member ? tutti_quorum_find(l->last, group->name)
                                       : NULL,
        };
        see(arg, &seen);
    }
}
