/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's life, and what people see of it. */
#include "ft/lighthouse/state.h"

#include <string.h>

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
