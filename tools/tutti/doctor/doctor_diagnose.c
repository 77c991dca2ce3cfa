/* SPDX-License-Identifier: BSD-3-Clause */
/* From looks to a verdict: who is to blame. Each check is one function that looks for one kind of trouble, and the
 * worst is told: a death explains a rank that has not called, a rank that has not called explains those that wait.
 *
 * Who waits is followed from rank to rank, as from hand to hand, until there is one that waits for nobody: that one is
 * to blame. Where the hands go round in a circle, or end at one that has done its part, what is missing is a message on
 * its way: then it is the link. */

#include "doctor.h"

#include <string.h>

#define LATE_NS (20 * TUTTI_NS_PER_MS) /* in calls that go on: shorter waits are nobody's fault */
#define LOOKS_LEAST 4
#define BLAME_PERCENT 50
#define HOPS_MOST 64

static const struct tutti_board *doctor_board(const struct doctor_rank *ranks, uint32_t rank, uint64_t comm)
{
    for (uint32_t b = 0; b < ranks[rank].n_boards; b++)
        if (ranks[rank].boards[b].comm == comm) return &ranks[rank].boards[b];
    return NULL;
}

static int32_t doctor_rank_of(const struct doctor_rank *ranks, uint32_t n, uint64_t comm, int32_t peer)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct tutti_board *b = doctor_board(ranks, i, comm);
        if (b && b->rank == (uint32_t)peer) return (int32_t)i;
    }
    return -1;
}

static const struct doctor_rank *last_look(const struct doctor_world *world)
{
    return world->looks[world->n_looks - 1];
}

static bool is_waiting(const struct tutti_board *b)
{
    if (b->failed) return false;
    return doctor_is_in_call(b) || b->message != TUTTI_BOARD_NO_MESSAGE;
}

static uint64_t wait_age(const struct tutti_board *b)
{
    return doctor_is_in_call(b) ? b->called_ns : b->message_since_ns;
}

/* The board that a rank waits in for longest; NULL: it waits for nobody. */
static const struct tutti_board *waits_in(const struct doctor_rank *rank)
{
    const struct tutti_board *oldest = NULL;
    for (uint32_t b = 0; b < rank->n_boards; b++)
        if (is_waiting(&rank->boards[b]) && (!oldest || wait_age(&rank->boards[b]) > wait_age(oldest)))
            oldest = &rank->boards[b];
    return oldest;
}

/* The rank of a look that has waited for longest; -1: none. */
static int32_t first_waiting(const struct doctor_rank *ranks, uint32_t n)
{
    int32_t first = -1;
    uint64_t age = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct tutti_board *b = ranks[i].life == TUTTI_LIFE_DEAD ? NULL : waits_in(&ranks[i]);
        if (b && (first < 0 || wait_age(b) > age)) first = (int32_t)i, age = wait_age(b);
    }
    return first;
}

/* ---- what a verdict tells of the call ---- */

static void call_fill(const struct doctor_rank *ranks, uint32_t n, const struct tutti_board *call,
                      struct doctor_verdict *v)
{
    v->call = *call;
    for (uint32_t i = 0; i < n; i++) {
        const struct tutti_board *b = doctor_board(ranks, i, call->comm);
        if (!b || !is_waiting(b) || (doctor_is_in_call(call) && b->seq != call->seq)) continue;
        if ((int32_t)i == v->rank && v->kind >= DOCTOR_STOPPED) continue; /* in the call, but it waits for nobody */
        v->n_waiting++;
        if (wait_age(b) > v->age_ns) v->age_ns = wait_age(b);
    }
    const struct tutti_board *mine = v->rank >= 0 ? doctor_board(ranks, (uint32_t)v->rank, call->comm) : NULL;
    if (mine) v->last = *mine;
}

/* What others wait for while this rank is dead, stopped or not heard of. */
static void blame(const struct doctor_world *world, enum doctor_kind kind, uint32_t rank, struct doctor_verdict *v)
{
    const struct doctor_rank *ranks = last_look(world);
    const int32_t waiting = first_waiting(ranks, world->n);
    v->kind = kind, v->rank = (int32_t)rank;
    if (waiting >= 0) call_fill(ranks, world->n, waits_in(&ranks[waiting]), v);
    if (waiting >= 0 && waiting != v->rank) v->other = waiting;
}

/* ---- the checks: true when that is it ---- */

static bool is_dead(const struct doctor_world *world, struct doctor_verdict *v)
{
    const struct doctor_rank *ranks = last_look(world);
    for (uint32_t i = 0; i < world->n; i++) {
        if (ranks[i].life != TUTTI_LIFE_DEAD) continue;
        if (v->n_guilty++ == 0) blame(world, DOCTOR_DEAD, i, v);
    }
    return v->n_guilty > 0;
}

static bool was_stopped(const struct doctor_rank *rank)
{
    return rank->known && (rank->process == 'T' || rank->process == 't');
}

static bool is_stopped(const struct doctor_world *world, struct doctor_verdict *v)
{
    for (uint32_t i = 0; i < world->n; i++) {
        bool stopped = true;
        for (uint32_t k = 0; k < world->n_looks && stopped; k++) stopped = was_stopped(&world->looks[k][i]);
        if (stopped && v->n_guilty++ == 0) blame(world, DOCTOR_STOPPED, i, v);
    }
    return v->n_guilty > 0;
}

/* How many ranks show this signature of this call. */
static uint32_t count_alike(const struct doctor_world *world, const struct tutti_board *call)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < world->n; i++) {
        const struct tutti_board *b = doctor_board(last_look(world), i, call->comm);
        n += b && b->seq == call->seq && b->signature == call->signature;
    }
    return n;
}

/* Whether two ranks in one call called different things; the fewer are to blame. */
static bool differs_from(const struct doctor_world *world, uint32_t i, const struct tutti_board *mine,
                         struct doctor_verdict *v)
{
    for (uint32_t k = i + 1; k < world->n; k++) {
        const struct tutti_board *theirs = doctor_board(last_look(world), k, mine->comm);
        if (!theirs || theirs->seq != mine->seq || !theirs->signature || theirs->signature == mine->signature) continue;
        const bool first = count_alike(world, mine) < count_alike(world, theirs);
        v->kind = DOCTOR_MISMATCH;
        v->rank = (int32_t)(first ? i : k), v->other = (int32_t)(first ? k : i);
        v->n_guilty = count_alike(world, first ? mine : theirs);
        call_fill(last_look(world), world->n, first ? theirs : mine, v);
        return true;
    }
    return false;
}

static bool is_mismatch(const struct doctor_world *world, struct doctor_verdict *v)
{
    for (uint32_t i = 0; i < world->n; i++)
        for (uint32_t b = 0; b < last_look(world)[i].n_boards; b++) {
            const struct tutti_board *mine = &last_look(world)[i].boards[b];
            if (doctor_is_in_call(mine) && mine->signature && differs_from(world, i, mine, v)) return true;
        }
    return false;
}

/* ---- who does not move ---- */

static bool same_place(const struct tutti_board *a, const struct tutti_board *b)
{
    return a->seq == b->seq && a->completed == b->completed && a->counted == b->counted && a->step == b->step &&
           a->message == b->message && a->message_peer == b->message_peer && a->message_tag == b->message_tag;
}

/* Whether no rank of the communicator moved between the first and the last look. */
static bool stands_still(const struct doctor_world *world, uint64_t comm)
{
    for (uint32_t i = 0; i < world->n; i++) {
        const struct tutti_board *now = doctor_board(last_look(world), i, comm);
        const struct tutti_board *before = doctor_board(world->looks[0], i, comm);
        if (now && (!before || !same_place(before, now))) return false;
    }
    return true;
}

/* A rank of the communicator that has not called what b is in; -1: all have, as far as is known. *n: how many. Where
 * the communicator is that of the job, a rank that shows nothing of it has left. */
static int32_t missing_of(const struct doctor_rank *ranks, uint32_t n_ranks, const struct tutti_board *b, uint32_t *n)
{
    int32_t first = -1;
    *n = 0;
    for (uint32_t i = 0; i < n_ranks; i++) {
        const struct tutti_board *theirs = doctor_board(ranks, i, b->comm);
        const bool missing = theirs ? doctor_called(theirs) < b->seq : b->size == n_ranks && ranks[i].known;
        if (missing && (*n)++ == 0) first = (int32_t)i;
    }
    return first;
}

/* The rank that a rank waits for by its board; -1: none that is known. */
static int32_t awaited(const struct doctor_world *world, const struct doctor_rank *ranks, const struct tutti_board *b)
{
    uint32_t n;
    if (!doctor_is_in_call(b))
        return b->message_peer < 0 ? -1 : doctor_rank_of(ranks, world->n, b->comm, b->message_peer);
    const int32_t missing = missing_of(ranks, world->n, b, &n);
    if (missing >= 0) return missing;
    return b->peer < 0 ? -1 : doctor_rank_of(ranks, world->n, b->comm, b->peer);
}

/* What a rank that waits for nobody is to be blamed for by the one that waits for it. */
static void blame_end(const struct doctor_world *world, int32_t from, const struct tutti_board *b, int32_t to,
                      struct doctor_verdict *v)
{
    const struct doctor_rank *ranks = last_look(world);
    const bool missing = doctor_is_in_call(b) && missing_of(ranks, world->n, b, &v->n_guilty) >= 0;
    const struct tutti_board *theirs = doctor_board(ranks, (uint32_t)to, b->comm);
    v->rank = to, v->other = from;
    v->kind = !ranks[to].known        ? DOCTOR_UNHEARD
              : missing && !theirs    ? DOCTOR_LEFT
              : missing               ? DOCTOR_MISSING
              : !doctor_is_in_call(b) ? DOCTOR_LETTER
                                      : DOCTOR_LINK;
    call_fill(ranks, world->n, b, v);
}

/* In a circle within one call a message is on its way; else the ranks wait for one another in different calls. */
static void blame_circle(const struct doctor_world *world, const int32_t *path, uint32_t first, uint32_t end,
                         struct doctor_verdict *v)
{
    const struct doctor_rank *ranks = last_look(world);
    const struct tutti_board *call = waits_in(&ranks[path[first]]);
    uint32_t at = first;
    bool one_call = true;
    for (uint32_t k = first; k < end; k++) {
        const struct tutti_board *b = waits_in(&ranks[path[k]]);
        const int32_t to = path[k + 1 < end ? k + 1 : first];
        one_call &= b->comm == call->comm && b->seq == call->seq && doctor_is_in_call(b);
        if (strcmp(ranks[path[k]].host, ranks[to].host) != 0) at = k;
    }
    v->kind = one_call ? DOCTOR_LINK : DOCTOR_CIRCLE;
    v->other = path[at], v->rank = path[at + 1 < end ? at + 1 : first];
    v->n_guilty = 1;
    call_fill(ranks, world->n, waits_in(&ranks[v->other]), v);
}

static bool is_stuck(const struct doctor_world *world, struct doctor_verdict *v)
{
    const struct doctor_rank *ranks = last_look(world);
    int32_t path[HOPS_MOST], at = first_waiting(ranks, world->n);
    uint32_t n = 0;
    if (at < 0 || !stands_still(world, waits_in(&ranks[at])->comm)) return false;
    while (n < HOPS_MOST) {
        const struct tutti_board *b = waits_in(&ranks[at]);
        for (uint32_t k = 0; k < n; k++)
            if (path[k] == at) {
                blame_circle(world, path, k, n, v);
                return true;
            }
        path[n++] = at;
        const int32_t to = awaited(world, ranks, b);
        if (to < 0) return false;
        const struct tutti_board *theirs = doctor_board(ranks, (uint32_t)to, b->comm);
        const bool done = theirs && doctor_is_in_call(b) && doctor_called(theirs) >= b->seq &&
                          !(doctor_is_in_call(theirs) && theirs->seq == b->seq);
        if (done || !waits_in(&ranks[to])) {
            blame_end(world, at, b, to, v);
            return true;
        }
        at = to;
    }
    return false;
}

/* Ranks of which nothing is known, and nothing better explains it. The first of a host speaks for it: if the host takes
 * connections, that one is stopped. */
static bool is_unheard(const struct doctor_world *world, struct doctor_verdict *v)
{
    const struct doctor_rank *ranks = last_look(world);
    for (uint32_t i = 0; i < world->n; i++) {
        bool unknown = !tutti_life_gone(ranks[i].life);
        for (uint32_t k = 0; k < world->n_looks && unknown; k++) unknown = !world->looks[k][i].known;
        if (unknown && v->n_guilty++ == 0) blame(world, DOCTOR_UNHEARD, i, v);
    }
    if (v->n_guilty > 0 && ranks[v->rank].reach == DOCTOR_CONNECTS) v->kind = DOCTOR_STOPPED, v->n_guilty = 1;
    return v->n_guilty > 0;
}

/* ---- who is slow ----
 * Looks at ranks of two hosts are not of one moment, and calls go on meanwhile. So a slow rank is not looked for in one
 * look, but in all: it is in no call in most of those in which the others of a communicator wait. */

/* How often a rank was found to wait for somebody, among the looks that know it. */
struct share {
    uint32_t n_known, n_idle;
    uint64_t age_ns; /* the sum of how long it had waited in the communicator, */
    uint32_t n_aged; /* over so many looks */
};

static struct share share_of(const struct doctor_world *world, uint32_t rank, uint64_t comm)
{
    struct share share = {.n_known = 0};
    for (uint32_t k = 0; k < world->n_looks; k++) {
        const struct doctor_rank *at = &world->looks[k][rank];
        const struct tutti_board *b = doctor_board(world->looks[k], rank, comm);
        if (!at->known) continue;
        share.n_known++;
        share.n_idle += !waits_in(at);
        if (b && is_waiting(b)) share.n_aged++, share.age_ns += wait_age(b);
    }
    return share;
}

static double idle_percent(const struct share *share)
{
    return share->n_known ? 100.0 * share->n_idle / share->n_known : 0;
}

/* The look in which another had waited for longest in the communicator while this rank was in no call. */
static void slow_fill(const struct doctor_world *world, uint32_t rank, uint64_t comm, struct doctor_verdict *v)
{
    const struct tutti_board *longest = NULL;
    uint32_t look = 0;
    v->kind = DOCTOR_SLOW_RANK, v->rank = (int32_t)rank, v->n_guilty = 1;
    for (uint32_t k = 0; k < world->n_looks; k++) {
        bool waited = false;
        if (!world->looks[k][rank].known || waits_in(&world->looks[k][rank])) continue;
        for (uint32_t i = 0; i < world->n; i++) {
            const struct tutti_board *b = i == rank ? NULL : doctor_board(world->looks[k], i, comm);
            if (!b || !is_waiting(b)) continue;
            waited = true;
            if (!longest || wait_age(b) > wait_age(longest)) longest = b, look = k, v->other = (int32_t)i;
        }
        v->n_blamed += waited;
    }
    v->n_of = world->n_looks;
    if (longest) call_fill(world->looks[look], world->n, longest, v);
}

/* Among the members of a communicator: the one that is most often in no call, if the others wait meanwhile. */
static bool is_slow_in(const struct doctor_world *world, uint64_t comm, struct doctor_verdict *v)
{
    struct share share, slow = {.n_known = 0}, rest = {.n_known = 0};
    uint32_t rank = 0;
    for (uint32_t i = 0; i < world->n; i++) {
        if (!doctor_board(last_look(world), i, comm)) continue;
        share = share_of(world, i, comm);
        const bool slower = idle_percent(&share) > idle_percent(&slow);
        const struct share *other = slower ? &slow : &share;
        rest.n_known += other->n_known, rest.n_idle += other->n_idle;
        rest.n_aged += other->n_aged, rest.age_ns += other->age_ns;
        if (slower) slow = share, rank = i;
    }
    if (slow.n_idle < LOOKS_LEAST || rest.n_aged == 0 || rest.age_ns / rest.n_aged < LATE_NS / 2 ||
        idle_percent(&slow) - idle_percent(&rest) < BLAME_PERCENT)
        return false;
    slow_fill(world, rank, comm, v);
    return v->n_blamed > 0;
}

static bool is_slow_rank(const struct doctor_world *world, struct doctor_verdict *v)
{
    for (uint32_t i = 0; i < world->n; i++)
        for (uint32_t b = 0; b < last_look(world)[i].n_boards; b++) {
            const uint64_t comm = last_look(world)[i].boards[b].comm;
            bool seen = false;
            for (uint32_t k = 0; k < i && !seen; k++) seen = doctor_board(last_look(world), k, comm) != NULL;
            if (!seen && is_slow_in(world, comm, v)) return true;
        }
    return false;
}

/* The link that one look blames. */
struct late {
    int32_t rank, other; /* -1: nobody; other: who waits for it */
    uint64_t age_ns;
    const char *from, *to; /* hosts */
};

/* In a call that all have called, the rank that is furthest behind and waits for another host; -1: none. */
static int32_t behind(const struct doctor_world *world, const struct doctor_rank *ranks, const struct tutti_board *call)
{
    int32_t found = -1;
    uint32_t step = UINT32_MAX;
    for (uint32_t i = 0; i < world->n; i++) {
        const struct tutti_board *b = doctor_board(ranks, i, call->comm);
        if (!b || b->seq != call->seq || !doctor_is_in_call(b) || b->step >= step) continue;
        const int32_t to = awaited(world, ranks, b);
        if (to >= 0 && strcmp(ranks[to].host, ranks[i].host) != 0) found = (int32_t)i, step = b->step;
    }
    return found;
}

static struct late late_at(const struct doctor_world *world, uint32_t look)
{
    const struct doctor_rank *ranks = world->looks[look];
    const struct late nobody = {.rank = -1, .other = -1};
    const int32_t first = first_waiting(ranks, world->n);
    const struct tutti_board *b = first < 0 ? NULL : waits_in(&ranks[first]);
    uint32_t n;
    if (!b || wait_age(b) < LATE_NS || !doctor_is_in_call(b) || missing_of(ranks, world->n, b, &n) >= 0) return nobody;
    const int32_t at = behind(world, ranks, b);
    const int32_t to = at < 0 ? -1 : awaited(world, ranks, waits_in(&ranks[at]));
    if (to < 0 || !ranks[to].known) return nobody;
    return (struct late){to, at, wait_age(b), ranks[at].host, ranks[to].host};
}

static bool blames_alike(const struct late *a, const struct late *b)
{
    if (a->rank < 0 || b->rank < 0) return false;
    return (strcmp(a->from, b->from) == 0 && strcmp(a->to, b->to) == 0) ||
           (strcmp(a->from, b->to) == 0 && strcmp(a->to, b->from) == 0);
}

static bool is_slow_link(const struct doctor_world *world, struct doctor_verdict *v)
{
    struct late late[DOCTOR_LOOKS];
    uint32_t best = 0, best_look = 0;
    for (uint32_t k = 0; k < world->n_looks; k++) late[k] = late_at(world, k);
    for (uint32_t k = 0; k < world->n_looks; k++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < world->n_looks; i++) n += blames_alike(&late[k], &late[i]);
        if (n > best || (n == best && n > 0 && late[k].age_ns > late[best_look].age_ns)) best = n, best_look = k;
    }
    if (best < LOOKS_LEAST || 100 * best < BLAME_PERCENT * world->n_looks) return false;
    const struct doctor_rank *look = world->looks[best_look];
    v->kind = DOCTOR_SLOW_LINK;
    v->rank = late[best_look].rank, v->other = late[best_look].other;
    v->n_blamed = best, v->n_of = world->n_looks, v->n_guilty = 1;
    call_fill(look, world->n, waits_in(&look[v->other]), v);
    return true;
}

/* ---- fine ---- */

/* The call that moved most, if any. */
static bool is_fine(const struct doctor_world *world, struct doctor_verdict *v)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < world->n; i++)
        for (uint32_t b = 0; b < last_look(world)[i].n_boards; b++) {
            const struct tutti_board *now = &last_look(world)[i].boards[b];
            const struct tutti_board *before = doctor_board(world->looks[0], i, now->comm);
            if (!before || doctor_called(now) - doctor_called(before) <= most) continue;
            most = doctor_called(now) - doctor_called(before);
            v->call = *now, v->last = *before;
        }
    v->kind = DOCTOR_FINE;
    return true;
}

void doctor_diagnose(const struct doctor_world *world, struct doctor_verdict *out)
{
    static bool (*const checks[])(const struct doctor_world *, struct doctor_verdict *) = {
        is_dead, is_stopped, is_mismatch, is_stuck, is_unheard, is_slow_rank, is_slow_link, is_fine};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(checks); i++) {
        *out = (struct doctor_verdict){.rank = -1, .other = -1};
        if (checks[i](world, out)) break;
    }
    doctor_say(world, out);
}
