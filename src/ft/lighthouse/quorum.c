/* SPDX-License-Identifier: BSD-3-Clause */
/* Quorums and their members as data. */
#include "ft/lighthouse/state.h"

#include <string.h>

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
