/* SPDX-License-Identifier: BSD-3-Clause */
/* Open requests, by number. */
#include "ft/lighthouse/state.h"

#include <string.h>

static uint32_t place_of(const struct tutti_lighthouse *l, uint64_t number)
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
    const uint32_t at = place_of(l, number);

    return at < l->n_requests && l->requests[at]->number == number ? l->requests[at] : NULL;
}

static bool make_room(struct tutti_lighthouse *l)
{
    if (l->n_requests < l->request_room) return true;
    const uint32_t room = l->request_room ? 2 * l->request_room : 16;
    struct request **requests = tutti_alloc_array(room, sizeof(struct request *));
    if (!requests) return false;
    if (l->n_requests > 0) memcpy(requests, l->requests, l->n_requests * sizeof(struct request *));
    tutti_free(l->requests);
    l->requests = requests;
    l->request_room = room;
    return true;
}

enum tutti_status lighthouse_request_add(struct tutti_lighthouse *l, struct group *group, uint64_t number)
{
    struct request *request = make_room(l) ? tutti_alloc(sizeof(*request)) : NULL;

    if (!request) return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
    const uint32_t at = place_of(l, number);
    *request = (struct request){.next = group->requests, .group = group, .number = number};
    group->requests = request;
    memmove(l->requests + at + 1, l->requests + at, (l->n_requests - at) * sizeof(struct request *));
    l->requests[at] = request;
    l->n_requests++;
    return TUTTI_OK;
}

void lighthouse_request_end(struct tutti_lighthouse *l, struct request *request)
{
    const uint32_t at = place_of(l, request->number);
    struct request **link = &request->group->requests;

    while (*link != request) link = &(*link)->next;
    *link = request->next;
    l->n_requests--;
    memmove(l->requests + at, l->requests + at + 1, (l->n_requests - at) * sizeof(struct request *));
    tutti_free(request);
}
