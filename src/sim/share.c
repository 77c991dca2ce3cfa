/* SPDX-License-Identifier: BSD-3-Clause */
/* Max-min fair rates. A solve asks for the rates of flows that are new or whose limiting link lost a flow, and fills
 * the links with them, leaving to all others what they have. Then it looks on the touched links whether those others
 * still have a link that is full and on which nobody is faster; the ones that have not are asked for, too, until all
 * have. As the rates that fulfil this are unique, they are those of a solve from scratch.
 *
 * Filling takes the least level over links first. Where many links have the same least level, as in symmetric
 * collectives, they are found by passes over all links, else by a heap. */

#include "sim/share.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define SAME 1e-10 /* levels that differ by less are one */
#define LOOSE                                                                                                          \
    1e-7            /* a link is full when less than this part of it is left; a flow is faster by more than this part  \
                     */
#define WIDENINGS 8 /* after so many, all flows on the touched links are asked for */

/* ---- arrays that grow ---- */

static enum tutti_status no_memory(const struct tutti_sim_share *share)
{
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u messages under way", share->n_flows);
}

static bool grow(void *array, uint64_t n, uint64_t capacity, size_t bytes)
{
    void **place = array, *grown = tutti_alloc_array(capacity, bytes);
    if (!grown) return false;
    if (n > 0) memcpy(grown, *place, n * bytes);
    tutti_free(*place);
    *place = grown;
    return true;
}

enum tutti_status tutti_sim_share_open(uint32_t n_links, uint32_t most_hops, struct tutti_sim_share *out)
{
    struct tutti_sim_share share = {.n_links = n_links, .most_hops = most_hops};
    share.links = tutti_alloc_array(n_links, sizeof(*share.links));
    share.touched = tutti_alloc_array(n_links, sizeof(*share.touched));
    share.freed = tutti_alloc_array(n_links, sizeof(*share.freed));
    share.heap = tutti_alloc_array(n_links, sizeof(*share.heap));
    share.free_nodes = tutti_alloc_array((size_t)most_hops + 1, sizeof(*share.free_nodes));
    if (!share.links || !share.touched || !share.freed || !share.heap || !share.free_nodes) {
        tutti_sim_share_close(&share);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u links", n_links);
    }
    for (uint32_t i = 0; i < n_links; i++) share.links[i].first = NONE;
    memset(share.free_nodes, 0xff, ((size_t)most_hops + 1) * sizeof(*share.free_nodes));
    *out = share;
    return TUTTI_OK;
}

void tutti_sim_share_close(struct tutti_sim_share *share)
{
    tutti_free(share->links);
    tutti_free(share->flows);
    tutti_free(share->nodes);
    tutti_free(share->free_flows);
    tutti_free(share->free_nodes);
    tutti_free(share->asked);
    tutti_free(share->members);
    tutti_free(share->touched);
    tutti_free(share->freed);
    tutti_free(share->heap);
}

static bool take_flow(struct tutti_sim_share *share, uint32_t *flow)
{
    if (share->n_free_flows > 0) {
        *flow = share->free_flows[--share->n_free_flows];
        return true;
    }
    if (share->n_flows == share->flow_capacity) {
        uint64_t n = share->n_flows, capacity = n ? 2 * n : 256;
        if (capacity > UINT32_MAX || !grow(&share->flows, n, capacity, sizeof(*share->flows)) ||
            !grow(&share->asked, share->n_asked, capacity, sizeof(*share->asked)) ||
            !grow(&share->free_flows, 0, capacity, sizeof(*share->free_flows)))
            return false;
        share->flow_capacity = (uint32_t)capacity;
    }
    *flow = share->n_flows++;
    return true;
}

static bool take_nodes(struct tutti_sim_share *share, uint32_t n, uint32_t *first)
{
    *first = share->free_nodes[n];
    if (*first != NONE) {
        share->free_nodes[n] = share->nodes[*first].next;
        return true;
    }
    if (n > share->node_capacity - share->n_nodes) {
        uint64_t capacity = 2 * ((uint64_t)share->node_capacity + 512);
        if (capacity > UINT32_MAX || !grow(&share->nodes, share->n_nodes, capacity, sizeof(*share->nodes)) ||
            !grow(&share->members, 0, capacity, sizeof(*share->members)))
            return false;
        share->node_capacity = (uint32_t)capacity;
    }
    *first = share->n_nodes;
    share->n_nodes += n;
    return true;
}

/* ---- flows ---- */

/* Takes the rate of a flow from its links, or adds it to them. */
static void use(struct tutti_sim_share *share, const struct tutti_sim_share_flow *flow, double rate)
{
    for (uint32_t node = flow->node; node < flow->node + flow->n; node++)
        share->links[share->nodes[node].link].used += rate;
}

/* Asks for the rate of a flow. */
static void ask(struct tutti_sim_share *share, uint32_t flow)
{
    struct tutti_sim_share_flow *f = &share->flows[flow];
    f->asked = true;
    share->asked[share->n_asked++] = flow;
    if (f->limit == NONE) return; /* it is new */
    use(share, f, -f->rate);
    share->links[f->limit].n_held--;
    f->limit = NONE;
}

/* The flows that the last solve asked for are known by now. */
static void forget_asked(struct tutti_sim_share *share)
{
    if (share->n_asked == 0 || share->flows[share->asked[0]].asked) return;
    share->n_asked = 0;
}

enum tutti_status tutti_sim_share_start(struct tutti_sim_share *share, const uint32_t *links, uint32_t n,
                                        uint32_t *flow)
{
    uint32_t first;
    forget_asked(share);
    if (!take_flow(share, flow) || !take_nodes(share, n, &first)) return no_memory(share);
    share->flows[*flow] = (struct tutti_sim_share_flow){.node = first, .n = n, .limit = NONE, .used = true};
    for (uint32_t i = 0; i < n; i++) {
        struct tutti_sim_share_link *link = &share->links[links[i]];
        share->nodes[first + i] = (struct tutti_sim_share_node){links[i], *flow, link->first, NONE};
        if (link->first != NONE) share->nodes[link->first].prior = first + i;
        link->first = first + i;
        link->n++;
    }
    ask(share, *flow);
    return TUTTI_OK;
}

void tutti_sim_share_end(struct tutti_sim_share *share, uint32_t flow)
{
    struct tutti_sim_share_flow *f = &share->flows[flow];
    forget_asked(share);
    for (uint32_t i = f->node; i < f->node + f->n; i++) {
        struct tutti_sim_share_node *node = &share->nodes[i];
        struct tutti_sim_share_link *link = &share->links[node->link];
        if (node->prior != NONE)
            share->nodes[node->prior].next = node->next;
        else
            link->first = node->next;
        if (node->next != NONE) share->nodes[node->next].prior = node->prior;
        link->n--;
        link->used = link->n > 0 ? link->used - f->rate : 0;
    }
    if (f->limit != NONE) share->links[f->limit].n_held--;
    for (uint32_t i = f->node; i < f->node + f->n; i++) {
        uint32_t at = share->nodes[i].link;
        struct tutti_sim_share_link *link = &share->links[at];
        if (link->n_held == 0 || link->n_open > 0) continue; /* above 0: it is in `freed` already */
        link->n_open = 1;
        share->freed[share->n_freed++] = at;
    }
    share->nodes[f->node].next = share->free_nodes[f->n];
    share->free_nodes[f->n] = f->node;
    f->used = false;
    share->free_flows[share->n_free_flows++] = flow;
}

bool tutti_sim_share_stale(const struct tutti_sim_share *share)
{
    return share->n_freed > 0 || (share->n_asked > 0 && share->flows[share->asked[0]].asked);
}

/* ---- filling ---- */

/* Prepares the links of the flows that are asked for: what others leave of them, and which flows these are. */
static void touch(struct tutti_sim_share *share)
{
    uint32_t n = 0;
    share->round++;
    share->n_touched = 0;
    for (uint32_t i = 0; i < share->n_asked; i++) {
        const struct tutti_sim_share_flow *f = &share->flows[share->asked[i]];
        for (uint32_t node = f->node; node < f->node + f->n; node++) {
            struct tutti_sim_share_link *link = &share->links[share->nodes[node].link];
            if (link->round != share->round) {
                link->round = share->round;
                link->n_asked = 0;
                share->touched[share->n_touched++] = share->nodes[node].link;
            }
            link->n_asked++;
        }
    }
    for (uint32_t i = 0; i < share->n_touched; i++) {
        struct tutti_sim_share_link *link = &share->links[share->touched[i]];
        link->rest = link->n_asked == link->n ? link->capacity : link->capacity - link->used;
        link->n_open = link->n_asked;
        link->fastest = 0;
        link->n_limited = 0;
        link->members = n;
        n += link->n_asked;
        link->n_asked = 0;
    }
    for (uint32_t i = 0; i < share->n_asked; i++) {
        const struct tutti_sim_share_flow *f = &share->flows[share->asked[i]];
        for (uint32_t node = f->node; node < f->node + f->n; node++) {
            struct tutti_sim_share_link *link = &share->links[share->nodes[node].link];
            share->members[link->members + link->n_asked++] = share->asked[i];
        }
    }
}

/* Levels may be below 0 for a while: where others have more than there is. */
static bool above(double a, double b)
{
    return a > b + (b < 0 ? -b : b) * SAME;
}

static double level_of(const struct tutti_sim_share_link *link)
{
    return link->rest / link->n_open;
}

/* Link `at` is full: its flows without a rate get this one. Returns how many. Rates only rise in a solve. */
static uint32_t hold(struct tutti_sim_share *share, uint32_t at, double rate)
{
    struct tutti_sim_share_link *link = &share->links[at];
    uint32_t n = link->n_open;
    if (rate < 0) rate = 0; /* others have more than it has: they will be asked for */
    link->n_limited += n;
    link->n_held += n;
    for (uint32_t i = link->members; link->n_open > 0; i++) {
        struct tutti_sim_share_flow *f = &share->flows[share->members[i]];
        if (f->limit != NONE) continue;
        f->rate = rate;
        f->limit = at;
        for (uint32_t own = f->node; own < f->node + f->n; own++) {
            struct tutti_sim_share_link *crossed = &share->links[share->nodes[own].link];
            crossed->rest -= rate;
            crossed->fastest = rate;
            crossed->n_open--;
        }
    }
    return n;
}

static void sift_down(struct tutti_sim_share_level *heap, uint32_t n, uint32_t at)
{
    struct tutti_sim_share_level moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1].level < heap[child].level) child++;
        if (heap[child].level >= moved.level) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* The n links of the heap, whose levels only rise: one that has risen goes back. */
static void fill_by_heap(struct tutti_sim_share *share, uint32_t n, uint32_t n_left)
{
    struct tutti_sim_share_level *heap = share->heap;
    double least = 0;
    for (uint32_t at = n / 2; at-- > 0;) sift_down(heap, n, at);
    while (n_left > 0) {
        const struct tutti_sim_share_link *link = &share->links[heap[0].link];
        double level = link->n_open > 0 ? level_of(link) : 0;
        if (link->n_open > 0 && above(level, heap[0].level)) {
            heap[0].level = level;
        } else {
            if (above(level, least)) least = level;
            if (link->n_open > 0) n_left -= hold(share, heap[0].link, level < 0 ? level : least);
            heap[0] = heap[--n];
        }
        sift_down(heap, n, 0);
    }
}

/* The links that may limit a flow: all that several of the flows cross, and of those that one alone crosses the one
 * with the least. Returns how many. */
static uint32_t list_links(struct tutti_sim_share *share)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < share->n_touched; i++)
        if (share->links[share->touched[i]].n_asked > 1) share->heap[n++].link = share->touched[i];
    for (uint32_t i = 0; i < share->n_asked; i++) {
        const struct tutti_sim_share_flow *f = &share->flows[share->asked[i]];
        uint32_t least = NONE;
        for (uint32_t node = f->node; node < f->node + f->n; node++) {
            uint32_t at = share->nodes[node].link;
            if (share->links[at].n_asked > 1) continue;
            if (least == NONE || share->links[at].rest < share->links[least].rest) least = at;
        }
        if (least != NONE) share->heap[n++].link = least;
    }
    return n;
}

/* Each pass holds all links of the least level; passes end when they hold little. */
static void fill(struct tutti_sim_share *share)
{
    struct tutti_sim_share_level *list = share->heap;
    uint32_t n_left = share->n_asked, n_held = n_left;
    touch(share);
    uint32_t n = list_links(share);
    while (n_left > 0) {
        double least = 0;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n; i++) {
            const struct tutti_sim_share_link *link = &share->links[list[i].link];
            if (link->n_open == 0) continue;
            double level = level_of(link);
            if (kept == 0 || level < least) least = level;
            list[kept++] = (struct tutti_sim_share_level){level, list[i].link};
        }
        n = kept;
        if (n_held < n_left / 16) {
            fill_by_heap(share, n, n_left);
            return;
        }
        n_held = 0;
        for (uint32_t i = 0; i < n; i++)
            if (!above(list[i].level, least)) n_held += hold(share, list[i].link, least);
        n_left -= n_held;
    }
}

/* ---- others that would change, too ---- */

/* The flows on a touched link that were not asked for, and whose rate is no longer right. The fastest of them are those
 * that the link limits, where it limits any. */
static void widen_on(struct tutti_sim_share *share, uint32_t at, bool all)
{
    const struct tutti_sim_share_link *link = &share->links[at];
    bool full = link->rest <= LOOSE * link->capacity, holds = link->n_held > link->n_limited;
    bool freed = holds && (!full || link->fastest > link->level * (1 + LOOSE));
    bool pressed = link->n_limited > 0 && (!holds || link->level > link->fastest * (1 + LOOSE));
    if (!freed && !pressed && !all) return;
    for (uint32_t node = link->first; node != NONE; node = share->nodes[node].next) {
        const struct tutti_sim_share_flow *f = &share->flows[share->nodes[node].flow];
        if (f->asked) continue;
        if (all || (freed && f->limit == at) || (pressed && f->rate > link->fastest * (1 + LOOSE)))
            ask(share, share->nodes[node].flow);
    }
}

static bool widen(struct tutti_sim_share *share, bool all)
{
    uint32_t before = share->n_asked;
    for (uint32_t i = 0; i < share->n_touched; i++) {
        const struct tutti_sim_share_link *link = &share->links[share->touched[i]];
        if (link->n_asked < link->n) widen_on(share, share->touched[i], all);
    }
    if (share->n_asked == before) return false;
    for (uint32_t i = 0; i < before; i++) {
        struct tutti_sim_share_flow *f = &share->flows[share->asked[i]];
        if (f->limit != NONE) share->links[f->limit].n_held--;
        f->limit = NONE;
    }
    return true;
}

/* Asks for the flows that this link limits. */
static void ask_held(struct tutti_sim_share *share, uint32_t at)
{
    for (uint32_t node = share->links[at].first; share->links[at].n_held > 0; node = share->nodes[node].next)
        if (share->flows[share->nodes[node].flow].limit == at) ask(share, share->nodes[node].flow);
}

/* The flows whose rate changes for certain: beside the new ones, those that a link limits where a flow ended or began.
 */
static void ask_first(struct tutti_sim_share *share)
{
    uint32_t n_new = share->n_asked;
    for (uint32_t i = 0; i < share->n_freed; i++) {
        ask_held(share, share->freed[i]);
        share->links[share->freed[i]].n_open = 0;
    }
    share->n_freed = 0;
    for (uint32_t i = 0; i < n_new; i++) {
        const struct tutti_sim_share_flow *f = &share->flows[share->asked[i]];
        for (uint32_t node = f->node; node < f->node + f->n; node++) ask_held(share, share->nodes[node].link);
    }
}

void tutti_sim_share_solve(struct tutti_sim_share *share)
{
    uint32_t n_widened = 0;
    forget_asked(share);
    ask_first(share);
    if (share->n_asked == 0) return;
    do {
        fill(share);
        share->n_solved += share->n_asked;
    } while (widen(share, n_widened++ >= WIDENINGS));
    for (uint32_t i = 0; i < share->n_asked; i++) {
        struct tutti_sim_share_flow *f = &share->flows[share->asked[i]];
        f->asked = false;
        use(share, f, f->rate);
        share->links[f->limit].level = f->rate;
    }
}
