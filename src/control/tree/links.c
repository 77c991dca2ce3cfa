/* SPDX-License-Identifier: BSD-3-Clause */
/* The open links, and what goes out on them. */

#include "control/tree/machine.h"

void tutti_tree_send(struct tutti_tree_machine *t, uint32_t member, const struct tutti_tree_message *message)
{
    uint8_t bytes[TUTTI_TREE_FRAME_MAX];
    const size_t n = tutti_tree_encode(message, bytes);
    t->links[member].sent_ns = t->now;
    t->out.send(t->out.arg, member, bytes, n);
}

void tutti_tree_link_close(struct tutti_tree_machine *t, uint32_t member)
{
    if (!t->links[member].open) return;
    t->links[member].open = false;
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (t->linked[i] == member) t->linked[i] = t->linked[--t->n_linked];
    t->out.drop(t->out.arg, member);
}

void tutti_tree_send_others(struct tutti_tree_machine *t, uint32_t but, const struct tutti_tree_message *message)
{
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (t->linked[i] != but) tutti_tree_send(t, t->linked[i], message);
}
