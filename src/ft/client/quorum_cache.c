/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes of a view: each member is unpacked once, and stays until it goes or changes. */
#include "ft/client/quorum_cache.h"

#include "ft/rpc/message.h"

#include <tutti.pb-c.h>

#include <inttypes.h>
#include <string.h>

#define FIRST_CAPACITY 16u

struct member {
    struct tutti_replica replica; /* first: the quorum points here */
    Torchft__QuorumMember *packed;
};

static void discard(struct tutti_replica *replica)
{
    torchft__quorum_member__free_unpacked(((struct member *)replica)->packed, NULL);
    tutti_free(replica);
}

static void clear(struct tutti_quorum_cache *cache)
{
    for (uint32_t i = 0; i < cache->quorum.n; i++) discard(cache->quorum.members[i]);
    cache->quorum.n = 0;
    cache->epoch = 0;
}

void tutti_quorum_cache_clear(struct tutti_quorum_cache *cache)
{
    clear(cache);
    tutti_free(cache->quorum.members);
    *cache = (struct tutti_quorum_cache){0};
}

/* Where the name is, or is to be. */
static uint32_t place(const struct tutti_quorum *quorum, const char *name, bool *found)
{
    uint32_t low = 0, high = quorum->n;

    *found = false;
    if (high > 0 && strcmp(quorum->members[high - 1]->replica_id, name) < 0) return high; /* all of a whole one */
    while (low < high && !*found) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(quorum->members[middle]->replica_id, name);
        *found = order == 0;
        if (order >= 0)
            high = middle;
        else
            low = middle + 1;
    }
    return high;
}

static enum tutti_status grow(struct tutti_quorum_cache *cache)
{
    if (cache->quorum.n < cache->capacity) return TUTTI_OK;
    const uint32_t capacity = cache->capacity ? 2 * cache->capacity : FIRST_CAPACITY;
    struct tutti_replica **members = tutti_alloc_array(capacity, sizeof(members[0]));
    if (!members) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a quorum");
    if (cache->quorum.n > 0) memcpy(members, cache->quorum.members, cache->quorum.n * sizeof(members[0]));
    tutti_free(cache->quorum.members);
    cache->quorum.members = members;
    cache->capacity = capacity;
    return TUTTI_OK;
}

static enum tutti_status remove_one(struct tutti_quorum *quorum, const char *name)
{
    bool found;
    const uint32_t at = place(quorum, name, &found);

    if (!found)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the lighthouse says that %.100s is gone, which was not there", name);
    discard(quorum->members[at]);
    quorum->n--;
    memmove(quorum->members + at, quorum->members + at + 1, (quorum->n - at) * sizeof(quorum->members[0]));
    return TUTTI_OK;
}

/* In a whole view each name is behind the last one. */
static enum tutti_status put_one(struct tutti_quorum_cache *cache, Torchft__QuorumMember *packed, bool whole)
{
    struct tutti_quorum *quorum = &cache->quorum;
    bool found;
    const uint32_t at = place(quorum, packed->replica_id, &found);

    if (whole && (found || at < quorum->n))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a quorum's members are not in the order of their names");
    TUTTI_TRY(grow(cache));
    struct member *member = tutti_alloc(sizeof(*member));
    if (!member) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a quorum");
    tutti_message_replica(packed, &member->replica);
    member->packed = packed;
    if (found)
        discard(quorum->members[at]);
    else
        memmove(quorum->members + at + 1, quorum->members + at, (quorum->n++ - at) * sizeof(quorum->members[0]));
    quorum->members[at] = &member->replica;
    return TUTTI_OK;
}

static enum tutti_status change(struct tutti_quorum_cache *cache, const Tutti__Change *change, bool whole)
{
    if (change->member.len == 0) return remove_one(&cache->quorum, change->gone);
    Torchft__QuorumMember *packed = torchft__quorum_member__unpack(NULL, change->member.len, change->member.data);
    if (!packed) return tutti_fail(TUTTI_ERR_PROTOCOL, "a quorum's member can not be read");
    const enum tutti_status status = put_one(cache, packed, whole);
    if (status < 0) torchft__quorum_member__free_unpacked(packed, NULL);
    return status;
}

/* What goes with each answer. */
static enum tutti_status set_steps(struct tutti_quorum *quorum, const Tutti__StepResponse *response)
{
    for (uint32_t i = 0; i < quorum->n; i++) {
        quorum->members[i]->step = response->max_step;
        quorum->members[i]->commit_failures = response->commit_failures; /* the most counts */
    }
    for (size_t i = 0; i < response->n_behind; i++) {
        if (response->behind[i]->index >= quorum->n)
            return tutti_fail(TUTTI_ERR_PROTOCOL, "member %" PRIu32 " of %" PRIu32 " is behind",
                              response->behind[i]->index, quorum->n);
        quorum->members[response->behind[i]->index]->step = response->behind[i]->step;
    }
    quorum->id = response->quorum_id;
    quorum->created_ns = response->created_ns;
    return TUTTI_OK;
}

static enum tutti_status take(struct tutti_quorum_cache *cache, const Tutti__StepResponse *response)
{
    if (response->epoch <= 0) return tutti_fail(TUTTI_ERR_PROTOCOL, "the lighthouse's answer has no epoch");
    if (!response->whole && cache->epoch == 0)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the lighthouse says what has changed, but nothing is known");
    if (response->whole) clear(cache);
    for (size_t i = 0; i < response->n_changes; i++) TUTTI_TRY(change(cache, response->changes[i], response->whole));
    if (cache->quorum.n == 0 || cache->quorum.n != response->n_members)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a quorum has %" PRIu32 " members, but %" PRIu32 " are known",
                          response->n_members, cache->quorum.n);
    TUTTI_TRY(set_steps(&cache->quorum, response));
    cache->epoch = response->epoch;
    return TUTTI_OK;
}

enum tutti_status tutti_quorum_cache_update(struct tutti_quorum_cache *cache, const uint8_t *bytes, size_t n)
{
    Tutti__StepResponse *response = tutti__step_response__unpack(NULL, n, bytes);
    enum tutti_status status = TUTTI_OK;

    if (response)
        status = take(cache, response);
    else
        status = tutti_fail(TUTTI_ERR_PROTOCOL, "the lighthouse's answer can not be read");
    if (response) tutti__step_response__free_unpacked(response, NULL);
    if (status < 0) tutti_quorum_cache_clear(cache);
    return status;
}

bool tutti_quorum_cache_has(const struct tutti_quorum_cache *cache, const char *replica_id,
                            const struct tutti_rpc_body *member)
{
    bool found;
    const uint32_t at = place(&cache->quorum, replica_id, &found);
    struct tutti_rpc_body *has =
        found ? tutti_message_body(&((struct member *)cache->quorum.members[at])->packed->base) : NULL;
    const bool same = has && has->n == member->n && memcmp(has->bytes, member->bytes, has->n) == 0;

    tutti_rpc_body_give(has);
    return same;
}
