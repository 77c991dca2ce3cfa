/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions for boards, and their answers, on their way through the tree. What can not go on is dropped: who asked asks
 * again. */

#include "control/tree/machine.h"

#define NOBODY UINT32_MAX
#define HOPS_MOST 64

static void answer(struct tutti_tree_machine *t, const struct tutti_tree_question *question)
{
    struct tutti_tree_message message = {.type = TUTTI_TREE_ANSWER, .question = *question};
    message.question.hops = 0;
    message.known = t->out.board(t->out.arg, question->target, question->slot, &message.board);
    tutti_tree_route(t, &message);
}

void tutti_tree_route(struct tutti_tree_machine *t, struct tutti_tree_message *message)
{
    struct tutti_tree_question *q = &message->question;
    const bool asks = message->type == TUTTI_TREE_ASK;
    const uint32_t end = asks ? q->target : q->origin;
    if (asks && t->hosts->members[end].host == t->hosts->members[t->me].host) {
        answer(t, q); /* for others of this host, too: they may be stopped */
        return;
    }
    if (end == t->me) {
        t->out.answer(t->out.arg, q, message->known ? &message->board : NULL);
        return;
    }
    const uint32_t next = tutti_tree_next(t, end);
    if (next != NOBODY && q->hops++ < HOPS_MOST) tutti_tree_send(t, next, message);
}

void tutti_tree_ask(struct tutti_tree_machine *t, uint32_t member, uint32_t slot, uint64_t now)
{
    struct tutti_tree_message message = {.type = TUTTI_TREE_ASK,
                                         .question = {.origin = t->me, .target = member, .slot = slot}};
    t->now = now;
    tutti_tree_route(t, &message);
}
