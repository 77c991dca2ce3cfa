/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures: up to the root, which lets one of each communicator and epoch pass; from there to all. */

#include "control/tree/machine.h"

#define NOBODY UINT32_MAX

/* Two failures that end the same thing. */
static bool is_same(const struct tutti_failure *a, const struct tutti_failure *b)
{
    return a->comm == b->comm && a->epoch == b->epoch && (a->comm != 0 || a->culprit == b->culprit);
}

static uint32_t told_count(const struct tutti_tree_machine *t)
{
    return t->n_told < TUTTI_TREE_TOLD ? t->n_told : TUTTI_TREE_TOLD;
}

static bool is_told(const struct tutti_tree_machine *t, const struct tutti_failure *failure)
{
    for (uint32_t i = 0; i < told_count(t); i++)
        if (is_same(&t->told[i], failure)) return true;
    return false;
}

void tutti_tree_told(struct tutti_tree_machine *t, const struct tutti_failure *failure, uint32_t from)
{
    const struct tutti_tree_message tell = {.type = TUTTI_TREE_TELL, .failure = *failure};
    for (uint32_t i = 0; i < t->n_raised; i++)
        if (is_same(&t->raised[i], failure)) t->raised[i--] = t->raised[--t->n_raised];
    if (is_told(t, failure)) return;
    t->told[t->n_told++ % TUTTI_TREE_TOLD] = *failure;
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (t->linked[i] != from) tutti_tree_send(t, t->linked[i], &tell);
    t->out.failure(t->out.arg, failure);
}

void tutti_tree_tell_all(struct tutti_tree_machine *t, uint32_t member)
{
    for (uint32_t i = 0; i < told_count(t); i++) {
        const struct tutti_tree_message tell = {.type = TUTTI_TREE_TELL, .failure = t->told[i]};
        tutti_tree_send(t, member, &tell);
    }
}

static void raised_keep(struct tutti_tree_machine *t, const struct tutti_failure *failure)
{
    for (uint32_t i = 0; i < t->n_raised; i++)
        if (is_same(&t->raised[i], failure)) return;
    if (t->n_raised < TUTTI_TREE_RAISED)
        t->raised[t->n_raised++] = *failure;
    else
        tutti_tree_told(t, failure, NOBODY); /* it ends here at least */
}

void tutti_tree_raise_up(struct tutti_tree_machine *t, const struct tutti_failure *failure)
{
    const struct tutti_tree_message raise = {.type = TUTTI_TREE_RAISE, .failure = *failure};
    if (is_told(t, failure)) return;
    if (t->parent == NOBODY && t->settled_ns == 0)
        tutti_tree_told(t, failure, NOBODY);
    else if (t->parent != NOBODY && t->links[t->parent].open)
        tutti_tree_send(t, t->parent, &raise);
    else
        raised_keep(t, failure); /* until there is a root, or a way to it */
}

void tutti_tree_raise_again(struct tutti_tree_machine *t)
{
    struct tutti_failure raised[TUTTI_TREE_RAISED];
    const uint32_t n = t->n_raised;
    for (uint32_t i = 0; i < n; i++) raised[i] = t->raised[i];
    for (uint32_t i = 0; i < n; i++) tutti_tree_raise_up(t, &raised[i]);
}

void tutti_tree_raise(struct tutti_tree_machine *t, const struct tutti_failure *failure, uint64_t now)
{
    t->now = now;
    if (is_told(t, failure)) return;
    if (t->lost) { /* nobody else will hear it */
        t->out.failure(t->out.arg, failure);
        return;
    }
    raised_keep(t, failure);
    tutti_tree_raise_up(t, failure);
}
