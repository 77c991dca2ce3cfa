/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine of synchrony.h. Why no survivor can differ: a member returns from a call only when every other member of
 * the view has the result, holds it, or can get it from this one. */

#include "comm/life/synchrony.h"

#include <string.h>

/* Results kept for members that may be behind, at most: then a barrier lets them go. */
enum { MOST_KEPT = 16 };

void tutti_synchrony_init(struct tutti_synchrony *view)
{
    *view = (struct tutti_synchrony){.state = {.kept = 1}, .epoch = 1, .doing = TUTTI_SYNCHRONY_RETURN};
}

void tutti_synchrony_fini(struct tutti_synchrony *view)
{
    tutti_free(view->states);
    view->states = NULL;
}

static enum tutti_synchrony_do now(struct tutti_synchrony *view, enum tutti_synchrony_do what)
{
    return view->doing = what;
}

/* The call at hand is decided here. */
static enum tutti_synchrony_do over(struct tutti_synchrony *view)
{
    if (view->doing == TUTTI_SYNCHRONY_COMMIT) view->state.kept = view->called;
    view->state.have = view->called;
    view->state.held_epoch = 0;
    if (!view->keeps) view->state.kept = view->called + 1;
    return now(view, TUTTI_SYNCHRONY_RETURN);
}

/* In the view at hand: begins the call, or ends it with what was handed on. */
static enum tutti_synchrony_do go_on(struct tutti_synchrony *view)
{
    return now(view, view->called <= view->state.have ? TUTTI_SYNCHRONY_TAKE : TUTTI_SYNCHRONY_DATA);
}

enum tutti_synchrony_do tutti_synchrony_call(struct tutti_synchrony *view, bool keeps, bool syncs)
{
    view->called++;
    view->keeps = keeps;
    view->syncs = syncs;
    view->owns = false;
    return go_on(view);
}

/* The data of the call are here. A call that syncs says that all have begun it, so they have what was before. Of others
 * every MOST_KEPT-th commits, which says the same. */
static enum tutti_synchrony_do data_done(struct tutti_synchrony *view)
{
    if (view->syncs) view->state.kept = view->called;
    if (view->keeps && (view->syncs || view->called % MOST_KEPT != 0)) return over(view);
    view->state.held_epoch = view->epoch;
    return now(view, TUTTI_SYNCHRONY_COMMIT);
}

/* ---- what follows from the states of all: the same on all members that know them ---- */

static bool lacks(const struct tutti_synchrony_state *state, uint64_t call)
{
    return state->have < call && !(state->have + 1 == call && state->held_epoch > 0);
}

/* This member's own result of the call at hand is the one. */
static void own_it(struct tutti_synchrony *view)
{
    view->state.have++;
    view->state.held_epoch = 0;
    if (!view->keeps) view->state.kept = view->state.have + 1;
    view->owns = true;
}

/* Finds the next call whose result must be handed on, and from whom; at the end, what becomes of the call behind. */
static enum tutti_synchrony_do hand_on(struct tutti_synchrony *view)
{
    for (; view->handed <= view->last; view->handed++) {
        bool wanted = false;
        view->from = UINT32_MAX;
        for (uint32_t m = view->n; m-- > 0;) {
            const struct tutti_synchrony_state *state = &view->states[m];
            wanted = wanted || lacks(state, view->handed);
            if (state->have >= view->handed && state->kept <= view->handed) view->from = m;
        }
        if (wanted && view->from != UINT32_MAX) return now(view, TUTTI_SYNCHRONY_HAND_ON);
        if (wanted) {
            tutti_fail(TUTTI_ERR_INTERNAL, "the result of call %llu is lost", (unsigned long long)view->handed);
            return now(view, TUTTI_SYNCHRONY_END);
        }
        if (view->state.have < view->handed) own_it(view);
    }
    if (view->commits) own_it(view);
    view->state.held_epoch = 0;
    if (view->called > view->state.have) return now(view, TUTTI_SYNCHRONY_DATA);
    return now(view, view->owns ? TUTTI_SYNCHRONY_RETURN : TUTTI_SYNCHRONY_TAKE);
}

enum tutti_synchrony_do tutti_synchrony_gathered(struct tutti_synchrony *view,
                                                 const struct tutti_synchrony_state *states, uint32_t n)
{
    if (!states) return now(view, TUTTI_SYNCHRONY_AGREE);
    tutti_synchrony_fini(view);
    view->states = tutti_alloc_array(n, sizeof(*states));
    if (!view->states) {
        tutti_fail(TUTTI_ERR_MEMORY, "no memory for the states of %u members", n);
        return now(view, TUTTI_SYNCHRONY_END);
    }
    memcpy(view->states, states, n * sizeof(*states));
    view->n = n;
    view->handed = UINT64_MAX;
    view->last = 0;
    for (uint32_t m = 0; m < n; m++) {
        if (states[m].have > view->last) view->last = states[m].have;
        if (states[m].have + 1 < view->handed) view->handed = states[m].have + 1;
    }
    view->commits = true;
    for (uint32_t m = 0; m < n; m++)
        view->commits = view->commits && states[m].have == view->last && states[m].held_epoch > 0 &&
                        states[m].held_epoch == states[0].held_epoch;
    return hand_on(view);
}

enum tutti_synchrony_do tutti_synchrony_installed(struct tutti_synchrony *view, uint64_t epoch)
{
    view->epoch = epoch;
    return now(view, TUTTI_SYNCHRONY_GATHER);
}

enum tutti_synchrony_do tutti_synchrony_admitted(struct tutti_synchrony *view, uint64_t epoch)
{
    view->owns = true;
    return tutti_synchrony_installed(view, epoch);
}

enum tutti_synchrony_do tutti_synchrony_join(struct tutti_synchrony *view, uint64_t have, uint64_t epoch)
{
    *view = (struct tutti_synchrony){.state = {.have = have, .kept = have + 1}, .called = have};
    return tutti_synchrony_admitted(view, epoch);
}

enum tutti_synchrony_do tutti_synchrony_ended(struct tutti_synchrony *view, bool lost)
{
    if (lost) return now(view, TUTTI_SYNCHRONY_AGREE);
    if (view->doing == TUTTI_SYNCHRONY_DATA) return data_done(view);
    if (view->doing == TUTTI_SYNCHRONY_COMMIT) return over(view);
    /* What was handed on is kept, so that it can be handed on again. */
    struct tutti_synchrony_state *state = &view->state;
    if (view->handed > state->have) {
        state->have = view->handed;
        state->held_epoch = 0;
    }
    view->handed++;
    return hand_on(view);
}
