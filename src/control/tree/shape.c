/* SPDX-License-Identifier: BSD-3-Clause */

/* The shape of the tree: who hangs on whom, a pure function of the table of hosts and of who is gone, so that members
 * that know the same agree. `feared`: the shape that there would be if all who are feared for were gone, too. */

#include "control/tree/machine.h"

#define NOBODY UINT32_MAX
#define STEPS_MOST 64 /* from any member to the root */

static bool is_out(const struct tutti_tree_machine *t, uint32_t member, bool feared)
{
    return tutti_tree_is_gone(t, member) || (feared && t->links[member].feared);
}

uint32_t tutti_tree_speaker(const struct tutti_tree_machine *t, uint32_t host, bool feared)
{
    const bool here = host == t->hosts->members[t->me].host;
    uint32_t voices = 0, i = t->hosts->hosts[host].leader;
    for (; i != NOBODY && is_out(t, i, feared); i = tutti_hosts_after(t->hosts, i))
        if (!here && !tutti_tree_is_gone(t, i) && ++voices == TUTTI_TREE_VOICES) return NOBODY;
    return i;
}

/* The number of a host among those that live. */
static uint32_t index_of(const struct tutti_tree_machine *t, uint32_t host, bool feared)
{
    uint32_t index = 0;
    for (uint32_t h = 0; h < host; h++) index += tutti_tree_speaker(t, h, feared) != NOBODY;
    return index;
}

/* The member that speaks for the living host of this number. */
static uint32_t speaker_at(const struct tutti_tree_machine *t, uint32_t index, bool feared)
{
    for (uint32_t h = 0; h < t->hosts->n_hosts; h++) {
        const uint32_t speaker = tutti_tree_speaker(t, h, feared);
        if (speaker != NOBODY && index-- == 0) return speaker;
    }
    return NOBODY;
}

uint32_t tutti_tree_parent_of(const struct tutti_tree_machine *t, uint32_t member, bool feared)
{
    const uint32_t host = t->hosts->members[member].host, speaker = tutti_tree_speaker(t, host, feared);
    if (speaker != member) return speaker;
    const uint32_t index = index_of(t, host, feared);
    return index == 0 ? NOBODY : speaker_at(t, (index - 1) / TUTTI_TREE_FANOUT, feared);
}

uint32_t tutti_tree_children(const struct tutti_tree_machine *t, uint32_t out[TUTTI_TREE_ASKED], bool feared)
{
    const uint32_t host = t->hosts->members[t->me].host;
    if (tutti_tree_speaker(t, host, feared) != t->me) return 0;
    const uint32_t me = index_of(t, host, feared);
    const bool all = feared && me == 0;
    const uint32_t first = me * TUTTI_TREE_FANOUT + 1, most = all ? TUTTI_TREE_ASKED : TUTTI_TREE_FANOUT;
    uint32_t n = 0;
    for (uint32_t h = 0, index = 0; h < t->hosts->n_hosts && n < most; h++) {
        const uint32_t speaker = tutti_tree_speaker(t, h, feared);
        if (speaker == NOBODY) continue;
        if (index++ >= first) out[n++] = speaker;
    }
    return n;
}

bool tutti_tree_is_whole(const struct tutti_tree_machine *t)
{
    uint32_t children[TUTTI_TREE_ASKED];
    const uint32_t host = t->hosts->members[t->me].host, n = tutti_tree_children(t, children, false);
    if (t->parent != NOBODY && !t->links[t->parent].open) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!t->links[children[i]].open) return false;
    if (tutti_tree_speaker(t, host, false) != t->me) return true;
    for (uint32_t i = t->hosts->hosts[host].leader; i != NOBODY; i = tutti_hosts_after(t->hosts, i))
        if (i != t->me && !tutti_tree_is_gone(t, i) && !t->links[i].open) return false;
    return true;
}

uint32_t tutti_tree_next_link(const struct tutti_tree_machine *t, uint32_t target)
{
    if (t->links[target].open) return target;
    for (uint32_t at = target, steps = 0; at != NOBODY && steps < STEPS_MOST; steps++) {
        const uint32_t above = tutti_tree_parent_of(t, at, false);
        if (above == t->me) return t->links[at].open ? at : NOBODY;
        at = above;
    }
    return t->parent != NOBODY && t->links[t->parent].open ? t->parent : NOBODY;
}
