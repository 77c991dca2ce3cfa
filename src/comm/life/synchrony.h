/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_LIFE_SYNCHRONY_H
#define TUTTI_COMM_LIFE_SYNCHRONY_H

/* What survivors do when a member dies in the middle of their calls, as a pure machine: events in, one thing to do out.
 * Every call ends with one result, of one set of contributors, on all who survive (virtual synchrony: K. Birman, T.
 * Joseph, "Exploiting Virtual Synchrony in Distributed Systems", SOSP 1987).
 *
 * A view is a set of members that work as one communicator of its own, with an epoch. A call is carried out among the
 * members of the view, from an input that stays intact. A member may return from it
 *   - at once, if its result is kept here, and is the result of all (small all_reduce, broadcast, ...): a survivor that
 *     lacks it gets it from one that has it;
 *   - else when all members of the view hold theirs, which a barrier of the view says (commit): then no survivor lacks
 *     anything.
 * When a collective of the view is lost, the survivors agree on the next view, exchange how far each of them is, and
 * all draw the same conclusion: results that some returned and others lack are handed on; the call behind them is over
 * if all hold it, of one view; else it is done again, without the dead, from the inputs. Any of this may be lost, too,
 * and begins anew: it only depends on what members have and hold.
 *
 *     call --> DATA --ok--> (kept: over) COMMIT --ok--> over
 *                |                         |
 *                +------lost------+--------+      +-- all hold it --> over
 *                                 v               |
 *              AGREE --view--> GATHER --states--> HAND_ON --ok--> DATA again
 *
 * Thread: one at a time. Begin with the diagram, then tutti_synchrony_call. */

#include "base/base.h"

/* What the owner does next. */
enum tutti_synchrony_do {
    TUTTI_SYNCHRONY_DATA,    /* the call among the members of the view */
    TUTTI_SYNCHRONY_COMMIT,  /* a barrier of the view */
    TUTTI_SYNCHRONY_RETURN,  /* the call is over */
    TUTTI_SYNCHRONY_TAKE,    /* the call is over, with a result that was handed on: it is kept here */
    TUTTI_SYNCHRONY_AGREE,   /* the members that are left of this view */
    TUTTI_SYNCHRONY_GATHER,  /* each member's state to all of the new view */
    TUTTI_SYNCHRONY_HAND_ON, /* the result of call `handed` from member `from` of the view to all, who keep it */
    TUTTI_SYNCHRONY_END,     /* a result that some returned is lost for others: its only holders died */
};

/* What a member says of itself. Calls are counted from 1. */
struct tutti_synchrony_state {
    uint64_t have; /* the results of calls 1..have are decided here */
    uint64_t kept; /* those of calls kept..have are kept; have + 1: none is */
    uint64_t
        held_epoch; /* the call behind them is done here, in the view of this epoch, and not decided; 0: it is not */
};

struct tutti_synchrony {
    struct tutti_synchrony_state state;
    uint64_t epoch; /* from 1 */
    uint64_t called;
    uint64_t handed, last; /* HAND_ON: this call now, and the last one */
    uint32_t from;
    bool keeps, syncs; /* the call at hand's */
    bool commits;      /* after what is handed on, the call behind is over */
    bool owns;         /* the call at hand is over with the own result */
    enum tutti_synchrony_do doing;
    struct tutti_synchrony_state *states; /* the members', while results are handed on; owned */
    uint32_t n;
};

void tutti_synchrony_init(struct tutti_synchrony *view);
void tutti_synchrony_fini(struct tutti_synchrony *view);

/* The next call. keeps: the owner keeps its result when it is done, until state.kept has passed it. syncs: it can not
 * be done here before all members have begun it. All members say the same of a call. */
enum tutti_synchrony_do tutti_synchrony_call(struct tutti_synchrony *view, bool keeps, bool syncs);
/* DATA, COMMIT or HAND_ON is done, or a member was lost meanwhile. */
enum tutti_synchrony_do tutti_synchrony_ended(struct tutti_synchrony *view, bool lost);
/* After AGREE: this member is of the view of that epoch. */
enum tutti_synchrony_do tutti_synchrony_installed(struct tutti_synchrony *view, uint64_t epoch);
/* The call at hand, which all members had, is over here, and this member goes on in a larger view, of that epoch. */
enum tutti_synchrony_do tutti_synchrony_admitted(struct tutti_synchrony *view, uint64_t epoch);
/* A newcomer's, instead of init: calls 1..have are over, and it has none of their results. RETURN: it is in. */
enum tutti_synchrony_do tutti_synchrony_join(struct tutti_synchrony *view, uint64_t have, uint64_t epoch);
/* After GATHER: states of all n members of the view, in its order, which are copied; NULL: a member was lost. END, with
 * a record, also without memory. */
enum tutti_synchrony_do tutti_synchrony_gathered(struct tutti_synchrony *view,
                                                 const struct tutti_synchrony_state *states, uint32_t n);

/* Whether those who are left of a view may go on, where others are missing and may live: the majority does, of two
 * halves the one that has the lowest member. Who is known to have ended counts for neither side. So at most one side
 * goes on. */
static inline bool tutti_synchrony_may_go_on(uint32_t n_here, uint32_t n_missing, bool has_lowest)
{
    return n_here > n_missing || (n_here == n_missing && has_lowest);
}

#endif
