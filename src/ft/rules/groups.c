/* SPDX-License-Identifier: BSD-3-Clause */
/* What the lighthouse knows: quorums, open requests and groups. */
#include "ft/rules/state.h"

#include <string.h>

/* ---- quorums and their members as data ---- */
static const char *put(char **at, const char *text)
{
    const size_t n = strlen(text) + 1;
    const char *put_at = memcpy(*at, text, n);

    *at += n;
    return put_at;
}

/* One piece of memory: the strings lie behind the struct. */
struct tutti_replica *tutti_replica_copy(const struct tutti_replica *replica)
{
    const size_t texts = strlen(replica->replica_id) + strlen(replica->address) + strlen(replica->store_address) +
                         strlen(replica->data) + 4;
    struct tutti_replica *copy = tutti_alloc(sizeof(*copy) + texts + replica->n_raw);

    if (!copy) return NULL;
    char *at = (char *)(copy + 1);
    *copy = *replica;
    copy->replica_id = put(&at, replica->replica_id);
    copy->address = put(&at, replica->address);
    copy->store_address = put(&at, replica->store_address);
    copy->data = put(&at, replica->data);
    if (copy->n_raw > 0) copy->raw = memcpy(at, replica->raw, copy->n_raw);
    return copy;
}

struct tutti_quorum *tutti_quorum_new(uint32_t n)
{
    struct tutti_quorum *quorum = tutti_alloc(sizeof(*quorum) + n * sizeof(quorum->members[0]));

    if (!quorum) return NULL;
    *quorum = (struct tutti_quorum){.refs = 1, .n = n, .members = (struct tutti_replica **)(quorum + 1)};
    for (uint32_t i = 0; i < n; i++) quorum->members[i] = NULL;
    return quorum;
}

void tutti_quorum_give(struct tutti_quorum *quorum)
{
    if (!quorum || --quorum->refs > 0) return;
    for (uint32_t i = 0; i < quorum->n; i++) tutti_free(quorum->members[i]);
    if (quorum->discard) quorum->discard(quorum->encoded);
    tutti_free(quorum);
}

const struct tutti_replica *tutti_quorum_find(const struct tutti_quorum *quorum, const char *replica_id)
{
    uint32_t low = 0, high = quorum->n;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(quorum->members[middle]->replica_id, replica_id);
        if (order == 0) return quorum->members[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- open requests, by number ---- */
static uint32_t request_place(const struct tutti_lighthouse *l, uint64_t number)
{
    uint32_t low = 0, high = l->n_requests;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (l->requests[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct request *lighthouse_request(const struct tutti_lighthouse *l, uint64_t number)
{
    const uint32_t at = request_place(l, number);

    return at < l->n_requests && l->requests[at]->number == number ? l->requests[at] : NULL;
}

/* An array of pointers with room for one more than n: the same, or a larger one in its place. NULL: out of memory, and
 * the array is as it was. */
static void *with_room(void *list, uint32_t n, uint32_t *capacity)
{
    if (n < *capacity) return list;
    const uint32_t more = *capacity ? 2 * *capacity : 16;
    void **larger = tutti_alloc_array(more, sizeof(void *));
    if (!larger) return NULL;
    if (n > 0) memcpy(larger, list, n * sizeof(void *));
    tutti_free(list);
    *capacity = more;
    return larger;
}

enum tutti_status lighthouse_request_add(struct tutti_lighthouse *l, struct group *group, uint64_t number)
{
    struct request **requests = with_room(l->requests, l->n_requests, &l->request_capacity);
    struct request *request = requests ? tutti_alloc(sizeof(*request)) : NULL;

    if (requests) l->requests = requests;
    if (!request) return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
    const uint32_t at = request_place(l, number);
    *request = (struct request){.next = group->requests, .group = group, .number = number};
    group->requests = request;
    memmove(l->requests + at + 1, l->requests + at, (l->n_requests - at) * sizeof(struct request *));
    l->requests[at] = request;
    l->n_requests++;
    return TUTTI_OK;
}

void lighthouse_request_end(struct tutti_lighthouse *l, struct request *request)
{
    const uint32_t at = request_place(l, request->number);
    struct request **link = &request->group->requests;

    while (*link != request) link = &(*link)->next;
    *link = request->next;
    l->n_requests--;
    memmove(l->requests + at, l->requests + at + 1, (l->n_requests - at) * sizeof(struct request *));
    tutti_free(request);
}

/* ---- groups, in the order of their names and in two queues by time. Every change of a group is made between taking
 * away and adding what it counts ---- */
#define ADDED 1u
#define TAKEN UINT32_MAX /* minus one */

static bool is_ready(const struct group *group)
{
    return group->heard && group->replica;
}

static void count(struct tutti_lighthouse *l, const struct group *group, uint32_t by)
{
    if (group->heard) l->n_heard += by;
    if (group->replica) l->n_asking += by;
    if (is_ready(group)) l->n_ready += by;
    if (is_ready(group) && group->replica->shrink_only) l->n_shrink += by;
    if (group->member) l->n_members += by;
    if (group->member && !is_ready(group)) l->n_missing += by;
}

/* ---- queues ---- */
static void queue_add(struct tutti_lighthouse *l, struct group *group, int which)
{
    struct queue *queue = &l->queues[which];

    group->links[which] = (struct link){queue->last, NULL};
    *(queue->last ? &queue->last->links[which].after : &queue->first) = group;
    queue->last = group;
}

static void queue_take(struct tutti_lighthouse *l, struct group *group, int which)
{
    struct queue *queue = &l->queues[which];
    const struct link link = group->links[which];

    *(link.before ? &link.before->links[which].after : &queue->first) = link.after;
    *(link.after ? &link.after->links[which].before : &queue->last) = link.before;
}

/* ---- names ---- */
/* Where the name is, or would be. */
static uint32_t place_of(const struct tutti_lighthouse *l, const char *name, bool *found)
{
    uint32_t low = 0, high = l->n;

    *found = false;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(l->groups[middle]->name, name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct group *lighthouse_find(const struct tutti_lighthouse *l, const char *name)
{
    bool found;
    const uint32_t at = place_of(l, name, &found);

    return found ? l->groups[at] : NULL;
}

struct group *lighthouse_know(struct tutti_lighthouse *l, const char *name, uint64_t now)
{
    bool found;
    const uint32_t at = place_of(l, name, &found);

    if (found) return l->groups[at];
    const size_t n = strlen(name) + 1;
    struct group **groups = with_room(l->groups, l->n, &l->capacity);
    if (!groups) return NULL;
    l->groups = groups;
    struct group *group = tutti_alloc(sizeof(*group) + n);
    if (!group) return NULL;
    *group = (struct group){.name = (char *)(group + 1), .beat_ns = now};
    memcpy(group->name, name, n);
    memmove(l->groups + at + 1, l->groups + at, (l->n - at) * sizeof(struct group *));
    l->groups[at] = group;
    l->n++;
    queue_add(l, group, BY_BEAT);
    return group;
}

/* ---- time ---- */
/* The queue by beat is: not heard any more ..., oldest_heard, ... the last one heard. */
static void beat_take(struct tutti_lighthouse *l, struct group *group)
{
    if (l->oldest_heard == group) l->oldest_heard = group->links[BY_BEAT].after;
    queue_take(l, group, BY_BEAT);
}

void lighthouse_hear(struct tutti_lighthouse *l, struct group *group, uint64_t now)
{
    beat_take(l, group);
    queue_add(l, group, BY_BEAT);
    if (!l->oldest_heard) l->oldest_heard = group;
    group->beat_ns = now;
    if (group->heard) return;
    count(l, group, TAKEN);
    group->heard = true;
    count(l, group, ADDED);
}

/* Its place is now before all that are heard. */
void lighthouse_silence(struct tutti_lighthouse *l, struct group *group)
{
    if (!group->heard) return;
    if (l->oldest_heard == group) {
        l->oldest_heard = group->links[BY_BEAT].after;
    } else {
        queue_take(l, group, BY_BEAT);
        struct group *const next = l->oldest_heard, *const before = next->links[BY_BEAT].before;
        group->links[BY_BEAT] = (struct link){before, next};
        next->links[BY_BEAT].before = group;
        *(before ? &before->links[BY_BEAT].after : &l->queues[BY_BEAT].first) = group;
    }
    count(l, group, TAKEN);
    group->heard = false;
    count(l, group, ADDED);
    if (l->out.lost) l->out.lost(l->out.arg, group->name);
}

static bool may_forget(const struct group *group)
{
    return !group->heard && !group->member && !group->replica;
}

/* NULL: nobody may be forgotten. */
static struct group *first_forgotten(const struct tutti_lighthouse *l)
{
    struct group *group = l->queues[BY_BEAT].first;

    while (group && !group->heard && !may_forget(group)) group = group->links[BY_BEAT].after;
    return group && may_forget(group) ? group : NULL;
}

uint64_t lighthouse_forget_due(const struct tutti_lighthouse *l)
{
    const struct group *group = first_forgotten(l);

    return group ? group->beat_ns + l->options.forget_ns : UINT64_MAX;
}

bool lighthouse_is_full(struct tutti_lighthouse *l)
{
    if (l->options.max_groups == 0 || l->n < l->options.max_groups) return false;
    struct group *group = first_forgotten(l);
    if (!group) return true;
    lighthouse_drop_group(l, group);
    return false;
}

uint64_t tutti_lighthouse_idle(const struct tutti_lighthouse *l)
{
    const struct group *last = l->queues[BY_BEAT].last;

    if (l->n_heard > 0 || l->n_requests > 0) return UINT64_MAX;
    return last ? last->beat_ns + l->options.forget_ns : 0;
}

uint64_t lighthouse_late_due(const struct tutti_lighthouse *l)
{
    const uint64_t timeout = l->options.heartbeat_timeout_ns, spared = l->away_ns > 0 ? l->away_ns + timeout / 4 : 0;
    const uint64_t late = l->oldest_heard ? l->oldest_heard->beat_ns + timeout : UINT64_MAX;

    return late > spared ? late : spared;
}

void lighthouse_expire(struct tutti_lighthouse *l, uint64_t now)
{
    while (lighthouse_late_due(l) <= now) lighthouse_silence(l, l->oldest_heard);
    while (lighthouse_forget_due(l) <= now) lighthouse_drop_group(l, first_forgotten(l));
}

/* ---- asking ---- */
struct tutti_replica *lighthouse_unjoin(struct tutti_lighthouse *l, struct group *group)
{
    struct tutti_replica *replica = group->replica;

    if (!replica) return NULL;
    count(l, group, TAKEN);
    queue_take(l, group, BY_JOIN);
    group->replica = NULL;
    count(l, group, ADDED);
    return replica;
}

void lighthouse_join(struct tutti_lighthouse *l, struct group *group, struct tutti_replica *replica, uint64_t now)
{
    count(l, group, TAKEN);
    group->replica = replica;
    group->joined_ns = now;
    queue_add(l, group, BY_JOIN);
    count(l, group, ADDED);
}

void lighthouse_be_member(struct tutti_lighthouse *l, struct group *group, bool member)
{
    count(l, group, TAKEN);
    group->member = member;
    count(l, group, ADDED);
}

void lighthouse_drop_group(struct tutti_lighthouse *l, struct group *group)
{
    bool found;
    const uint32_t at = place_of(l, group->name, &found);

    while (group->requests) lighthouse_request_end(l, group->requests);
    tutti_free(lighthouse_unjoin(l, group));
    count(l, group, TAKEN);
    beat_take(l, group);
    l->n--;
    memmove(l->groups + at, l->groups + at + 1, (l->n - at) * sizeof(struct group *));
    tutti_free(group);
}
