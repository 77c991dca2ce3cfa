/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine of views under a simulator of 2 to 64 members: collectives of a view end at random times, members die at
 * random moments (also while they agree, gather and hand on), and whoever waits for a dead one hears it at random. The
 * network is cut in two, or a member is stopped, for a while or for good: nothing passes, and silence is taken for
 * death, by the rule of the majority, or by an arbiter (a store, which one side reaches). Newcomers are taken in.
 * Whatever happens, all who survive return the same result from every call, made of one set of contributors (so at most
 * one side goes on), all calls end, and where nobody died one side goes on. Planted flaws must be found: no commit, no
 * majority, newcomers who count like elders, an arbiter that lets both sides go on, and one that is not asked for the
 * view before. */
#include "test.h"

#include "comm/life/synchrony.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 64, CALLS = 24, STEPS_MOST = 400000, VIEWS_MOST = 160 };

enum form { ALL_REDUCE, SMALL_BROADCAST, LARGE, LARGE_BROADCAST, ADMIT, N_FORMS };
static bool keeps_of(enum form form)
{
    return form == ALL_REDUCE || form == SMALL_BROADCAST || form == ADMIT;
}
static bool syncs_of(enum form form)
{
    return form == ALL_REDUCE || form == LARGE || form == ADMIT;
}

struct member {
    struct tutti_synchrony view;
    bool alive, left;    /* left: it returned from its last call, and went */
    bool ended;          /* it heard that the others go on without it */
    bool inside, agreed; /* in the operation, in the agreement at hand */
    bool admits;         /* there it would go on with newcomers */
    uint64_t before;     /* calls before it came */
    uint64_t joined;     /* the last view that all have come into, as it knows */
    uint64_t silent;     /* those it holds for dead, as all on its side do: that is final */
    enum tutti_synchrony_do doing;
    uint32_t number; /* operations of this view that it began */
    uint64_t output, returned[CALLS + 1], kept[CALLS + 2];
};
/* The k-th collective of a view. */
struct op {
    enum tutti_synchrony_do what;
    uint64_t call;
    uint32_t from;
    uint64_t began;       /* members by bits */
    uint64_t heard[MOST]; /* those that are known at each member */
    uint64_t value;       /* a broadcast's, or what is handed on */
    struct tutti_synchrony_state states[MOST];
};
struct epoch {
    uint64_t members, adopted; /* adopted: who is in it */
    uint64_t before;           /* the epoch that it follows */
    uint64_t elders;           /* those that were in it, where newcomers are; else all */
    bool claimed;              /* the view before was left by the arbiter's word */
    uint64_t world;            /* a larger view has a world of its own, in which nobody is told dead yet */
    bool failed;
    uint32_t n_ops;
    struct op ops[160];
};
static struct world {
    uint32_t n, n_all, n_epochs, n_calls; /* n_all: with newcomers */
    uint64_t seed;
    uint32_t cuts, n_cuts;  /* that are to come, and ends of them; that came */
    uint64_t cut, unproved; /* members that are cut off from the others; that died so that others can not know */
    bool has_arbiter, store_in_cut, taken[VIEWS_MOST]; /* taken: the view was left by the arbiter's word */
    enum form forms[CALLS + 1];
    uint32_t roots[CALLS + 1];
    struct member members[MOST];
    enum flaw { NONE, NO_COMMIT, NO_MAJORITY, NO_ELDERS, NO_KEY, NO_OLD_KEY, N_FLAWS } flaw;
    const char *wrong;
    struct epoch epochs[VIEWS_MOST]; /* last: large, and each is begun by epoch_begin */
} w;

static uint32_t rnd(uint32_t n)
{
    return (uint32_t)(tutti_random64(&w.seed) >> 20) % n;
}

static uint64_t bit(uint32_t m)
{
    return UINT64_C(1) << m;
}

static uint64_t result_of(uint64_t call, uint64_t contributors)
{
    return tutti_mix64(contributors * 31 + call) | 1;
}

static uint64_t alive_of(uint64_t members)
{
    uint64_t alive = 0;
    for (uint32_t m = 0; m < w.n_all; m++)
        if ((members & bit(m)) && w.members[m].alive) alive |= bit(m);
    return alive;
}

/* Members on i's side. */
static uint64_t side_of(uint32_t i)
{
    return w.cut & bit(i) ? w.cut : ~w.cut;
}

static uint32_t count(uint64_t set)
{
    return (uint32_t)__builtin_popcountll(set);
}

static void wrong(const char *what)
{
    if (!w.wrong) w.wrong = what;
}

/* ---- one operation ---- */

/* The m-th member of the view, as the machine counts them. */
static uint32_t member_at(const struct epoch *epoch, uint32_t place)
{
    for (uint32_t m = 0; m < w.n_all; m++)
        if ((epoch->members & bit(m)) && place-- == 0) return m;
    return MOST;
}

static void begin(uint32_t i)
{
    struct member *m = &w.members[i];
    struct epoch *epoch = &w.epochs[m->view.epoch];
    struct op *op = &epoch->ops[m->number];
    uint64_t call = m->doing == TUTTI_SYNCHRONY_HAND_ON ? m->view.handed : m->view.called;
    if (m->doing == TUTTI_SYNCHRONY_GATHER) call = 0;
    if (m->number == epoch->n_ops) {
        epoch->n_ops++;
        *op = (struct op){.what = m->doing, .call = call, .from = MOST, .value = result_of(call, 0)};
        if (m->doing == TUTTI_SYNCHRONY_HAND_ON) op->from = member_at(epoch, m->view.from);
        if (m->doing == TUTTI_SYNCHRONY_DATA && (w.forms[call] == SMALL_BROADCAST || w.forms[call] == LARGE_BROADCAST))
            op->from = w.roots[call];
    }
    if (op->what != m->doing || op->call != call) wrong("members of a view are in different collectives");
    if (m->doing == TUTTI_SYNCHRONY_GATHER) op->states[i] = m->view.state;
    if (op->from == i) op->value = m->doing == TUTTI_SYNCHRONY_DATA ? result_of(call, bit(i)) : m->kept[call];
    op->began |= bit(i);
    for (uint32_t k = 0; k < w.n_all; k++)
        if (side_of(i) & bit(k)) op->heard[k] |= bit(i);
    m->inside = true;
}

/* Whether the operation can be done at this member: all that it needs of others has been sent. */
static bool is_done(const struct epoch *epoch, const struct op *op, uint32_t i)
{
    const uint64_t heard = op->heard[i] | (op->began & side_of(i)); /* what a cut held up comes when it ends */
    if (op->from == MOST) return heard == epoch->members;
    if (!(epoch->members & bit(op->from))) return true; /* the root is gone: it ends with that error at all */
    return i == op->from || (heard & bit(op->from));
}

static void end(uint32_t i, const struct op *op)
{
    struct member *m = &w.members[i];
    const struct epoch *epoch = &w.epochs[m->view.epoch];
    struct tutti_synchrony_state states[MOST];
    uint32_t n = 0;
    m->inside = false;
    m->number++;
    if (m->doing == TUTTI_SYNCHRONY_GATHER) {
        for (uint32_t k = 0; k < w.n_all; k++)
            if (epoch->members & bit(k)) states[n++] = op->states[k];
        m->doing = tutti_synchrony_gathered(&m->view, states, n);
        m->joined = m->view.epoch;
        return;
    }
    if (m->doing == TUTTI_SYNCHRONY_HAND_ON && op->call > m->view.state.have) m->kept[op->call] = op->value;
    if (m->doing == TUTTI_SYNCHRONY_DATA) {
        m->output = op->from == MOST ? result_of(op->call, epoch->members) : op->value;
        if (m->view.keeps) m->kept[op->call] = m->output;
    }
    m->doing = tutti_synchrony_ended(&m->view, false);
}

static bool share_world(uint32_t i, uint32_t k)
{
    return w.epochs[w.members[i].view.epoch].world == w.epochs[w.members[k].view.epoch].world;
}

/* i's side hears nothing of the other. */
static void hear_silence(uint32_t i)
{
    const uint64_t members = w.epochs[w.members[i].view.epoch].members, other = members & ~side_of(i);
    for (uint32_t k = 0; k < w.n_all; k++)
        if ((side_of(i) & bit(k)) && share_world(i, k)) w.members[k].silent |= other;
}

static void lose(uint32_t i)
{
    struct member *m = &w.members[i];
    hear_silence(i);
    w.epochs[m->view.epoch].failed = true;
    m->inside = false;
    m->doing = m->doing == TUTTI_SYNCHRONY_GATHER ? tutti_synchrony_gathered(&m->view, NULL, 0)
                                                  : tutti_synchrony_ended(&m->view, true);
}

/* ---- members ---- */

static void cut_off(struct member *m)
{
    m->ended = true;
    m->alive = false;
}

/* The next view of epoch e that a member of e is in whom i hears; NULL: none. */
static struct epoch *decided(uint64_t e, uint32_t i)
{
    const uint64_t heard = w.epochs[e].members & side_of(i) & ~w.members[i].silent;
    for (uint64_t next = e + 1; next <= w.n_epochs; next++)
        if (w.epochs[next].before == e && (w.epochs[next].adopted & heard)) return &w.epochs[next];
    return NULL;
}

static void epoch_begin(struct epoch *epoch, uint64_t members, uint64_t before)
{
    epoch->members = members, epoch->before = before;
    epoch->elders = members;
    epoch->claimed = false;
    epoch->world = before ? w.epochs[before].world : 1;
    epoch->adopted = 0, epoch->failed = false, epoch->n_ops = 0;
}

static struct epoch *decide(uint64_t e, uint64_t members)
{
    struct epoch *next = &w.epochs[++w.n_epochs];
    if (w.n_epochs + 1 == VIEWS_MOST) wrong("too many views");
    epoch_begin(next, members, e);
    return next;
}

/* With newcomers, if all members of the view hold the larger one. */
static struct epoch *decide_admission(uint64_t e, uint64_t here)
{
    const uint64_t call = w.members[__builtin_ctzll(here)].view.called;
    uint64_t guests = 0;
    for (uint32_t k = w.n; k < w.n_all; k++)
        if (!w.members[k].alive && !w.members[k].ended && !w.members[k].view.epoch && (side_of(k) & here))
            guests |= bit(k);
    struct epoch *next = decide(e, w.epochs[e].members | guests);
    if (!guests) return next;
    next->elders = w.epochs[e].members;
    next->world = (uint64_t)(next - w.epochs);
    for (uint32_t k = w.n; k < w.n_all; k++) {
        struct member *m = &w.members[k];
        if (!(guests & bit(k))) continue;
        m->alive = true;
        m->before = call;
        m->doing = tutti_synchrony_join(&m->view, call, (uint64_t)(next - w.epochs));
        next->adopted |= bit(k);
    }
    if (w.cuts > 0 && !w.cut && rnd(3) == 0)
        w.cut = guests | (here & -here), w.cuts--, w.n_cuts++, w.store_in_cut = rnd(2); /* before the others know */
    return next;
}

/* A member that went on in another view than e, after the same one, left this one in order: that is no end. */
static uint64_t elsewhere(uint64_t e)
{
    uint64_t others = 0;
    for (uint64_t k = 1; k <= w.n_epochs; k++)
        if (k != e && w.epochs[k].before == w.epochs[e].before) others |= w.epochs[k].adopted;
    return others & ~w.epochs[e].adopted;
}

static bool is_majority(uint64_t here, uint64_t missing)
{
    const uint64_t all = here | missing;
    return tutti_synchrony_may_go_on(count(here), count(missing), (here & -all & all) != 0);
}

/* The arbiter lets the first side go on that asks, once for each view; where some may not have come into the view e,
 * they may ask for the one before, and it must be asked for that, too. */
static bool arbiter_agrees(uint32_t i, uint64_t e)
{
    const struct epoch *epoch = &w.epochs[e];
    if (w.cut && ((w.cut & bit(i)) != 0) != w.store_in_cut) return false;
    if (w.flaw == NO_KEY) return true;
    if (w.flaw != NO_OLD_KEY && epoch->before && w.members[i].joined != e && !epoch->claimed) {
        if (w.taken[epoch->before]) return false;
        w.taken[epoch->before] = true;
    }
    if (w.taken[e]) return false;
    return w.taken[e] = true;
}

static void agree(uint32_t i)
{
    struct member *m = &w.members[i];
    if (w.cut) hear_silence(i);
    const uint64_t e = m->view.epoch, members = w.epochs[e].members;
    const uint64_t gone = members & ~alive_of(members) & ~w.unproved & ~m->silent & ~elsewhere(e); /* known to be */
    const uint64_t here = alive_of(members) & side_of(i) & ~m->silent, missing = members & ~here & ~gone;
    const uint64_t elders = m->joined == e ? members : w.epochs[e].elders;
    struct epoch *next = decided(e, i);
    bool admits = here == members;
    m->agreed = true;
    if (next && !(next->members & bit(i))) {
        cut_off(m);
        return;
    }
    if (!next) {
        for (uint32_t k = 0; k < w.n_all; k++) {
            if ((here & bit(k)) && (w.members[k].view.epoch != e || !w.members[k].agreed)) return;
            admits = admits && (!(here & bit(k)) || w.members[k].admits);
        }
        if (!w.has_arbiter && w.flaw != NO_MAJORITY &&
            !(is_majority(here, missing) && (w.flaw == NO_ELDERS || is_majority(here & elders, missing & elders)))) {
            cut_off(m);
            return;
        }
        if ((here & -here) != bit(i)) return; /* the lowest decides */
        if (w.has_arbiter && missing && !arbiter_agrees(i, e)) {
            cut_off(m);
            return;
        }
        next = admits ? decide_admission(e, here) : decide(e, here);
        next->claimed = w.has_arbiter && missing;
    }
    next->adopted |= bit(i);
    if (next->world != w.epochs[e].world) m->silent = 0;
    m->agreed = false;
    m->number = 0;
    const uint64_t epoch = (uint64_t)(next - w.epochs);
    m->doing = m->admits ? tutti_synchrony_admitted(&m->view, epoch) : tutti_synchrony_installed(&m->view, epoch);
    m->admits = false;
}

static void give_back(uint32_t i)
{
    struct member *m = &w.members[i];
    const uint64_t call = m->view.called;
    const uint64_t result = m->doing == TUTTI_SYNCHRONY_TAKE ? m->kept[call] : m->output;
    /* Where all members have what the lowest one saw, and none was lost: they go on with newcomers. */
    if (w.forms[call] == ADMIT && !m->returned[call] && w.n_all > w.n && call > m->before &&
        result == result_of(call, w.epochs[m->view.epoch].members)) {
        m->returned[call] = result;
        m->admits = true;
        m->doing = TUTTI_SYNCHRONY_AGREE;
        return;
    }
    if (w.forms[call] != ADMIT && m->returned[call]) wrong("a call returns twice");
    if (call > m->before && !m->returned[call]) m->returned[call] = result;
    m->left = call == w.n_calls;
    m->alive = !m->left;
    if (m->left && w.cut) w.unproved |= bit(i);
    if (m->left) return;
    m->doing = tutti_synchrony_call(&m->view, keeps_of(w.forms[call + 1]), syncs_of(w.forms[call + 1]));
}

static bool is_over(const struct member *m)
{
    return !m->alive;
}

static void step(uint32_t i)
{
    struct member *m = &w.members[i];
    struct epoch *epoch = &w.epochs[m->view.epoch];
    const struct op *op = &epoch->ops[m->number];
    switch (m->doing) {
    case TUTTI_SYNCHRONY_RETURN:
    case TUTTI_SYNCHRONY_TAKE:
        give_back(i);
        return;
    case TUTTI_SYNCHRONY_AGREE:
        agree(i);
        return;
    case TUTTI_SYNCHRONY_END:
        wrong("a result is lost");
        return;
    default:
        break;
    }
    const bool dead =
        (alive_of(epoch->members) & side_of(i) & ~m->silent) != epoch->members || decided(m->view.epoch, i);
    if (!m->inside) {
        if (w.flaw == NO_COMMIT && m->doing == TUTTI_SYNCHRONY_COMMIT)
            m->doing = tutti_synchrony_ended(&m->view, false);
        else if ((epoch->failed || dead) && rnd(4) == 0)
            lose(i);
        else
            begin(i);
        return;
    }
    const bool done = is_done(epoch, op, i);
    if ((epoch->failed || dead) && (!done || rnd(3) == 0))
        lose(i);
    else if (done)
        end(i, op);
}

/* ---- runs ---- */

/* A result is that of all members of one view, or of the root alone; or of nobody, where the root was gone. */
static bool is_result(uint64_t call, uint64_t result)
{
    const bool rooted = w.forms[call] == SMALL_BROADCAST || w.forms[call] == LARGE_BROADCAST;
    if (rooted) return result == result_of(call, bit(w.roots[call])) || result == result_of(call, 0);
    for (uint32_t e = 1; e <= w.n_epochs; e++)
        if (result == result_of(call, w.epochs[e].members)) return true;
    return false;
}

static void check(bool died)
{
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < w.n_all; i++) {
        const struct member *m = &w.members[i];
        if (!m->left) continue;
        n_left++;
        for (uint32_t k = 0; k < i; k++)
            for (uint64_t call = 1; w.members[k].left && call <= w.n_calls; call++)
                if (call > m->before && call > w.members[k].before && m->returned[call] != w.members[k].returned[call])
                    wrong("survivors returned different results");
        for (uint64_t call = m->before + 1; call <= w.n_calls; call++)
            if (!is_result(call, m->returned[call])) wrong("a call did not end, or with what no view can make");
    }
    /* With several cuts, or a cut and a death or a newcomer, there may be no majority any more. */
    if (n_left == 0 && (w.n_cuts == 0 || (w.n_cuts == 1 && !died && w.n_all == w.n))) wrong("nobody is left");
}

static void world_open(uint64_t seed, uint32_t n, enum flaw flaw)
{
    memset(&w, 0, offsetof(struct world, epochs));
    w.seed = seed, w.n = n, w.n_epochs = 1, w.n_calls = CALLS, w.flaw = flaw;
    w.has_arbiter = flaw >= NO_KEY || (flaw == NONE && rnd(3) == 0);
    w.n_all = n + (n < MOST ? rnd(n / 2 + 2) : 0);
    if (w.n_all > MOST) w.n_all = MOST;
    epoch_begin(&w.epochs[1], n == MOST ? UINT64_MAX : bit(n) - 1, 0);
    for (uint32_t call = 1; call <= CALLS; call++) w.forms[call] = rnd(N_FORMS), w.roots[call] = rnd(n);
    w.forms[CALLS] = LARGE; /* a member that goes has committed */
    for (uint32_t i = 0; i < n; i++) {
        struct member *m = &w.members[i];
        tutti_synchrony_init(&m->view);
        m->alive = true;
        m->doing = tutti_synchrony_call(&m->view, keeps_of(w.forms[1]), syncs_of(w.forms[1]));
    }
}

static void kill_one(uint32_t victim)
{
    if (w.cut) w.unproved |= bit(victim); /* the other side does not know */
    w.members[victim].alive = false;
}

/* A cut, of a random half or of one member that is stopped; or its end: then whoever was taken for dead hears so. */
static void cut_or_mend(void)
{
    const bool mends = w.cut != 0;
    w.n_cuts += !mends;
    w.store_in_cut = rnd(2);
    w.cut = mends ? 0 : rnd(2) ? bit(rnd(w.n)) : (tutti_random64(&w.seed) & (bit(w.n - 1) * 2 - 1));
    for (uint32_t i = 0; mends && i < w.n_all; i++)
        for (uint32_t k = 0; k < w.n_all; k++)
            if ((w.members[i].silent & bit(k)) && share_world(i, k)) w.members[k].silent |= bit(i);
}

static const char *run(uint64_t seed, enum flaw flaw)
{
    static const uint32_t sizes[] = {2, 3, 3, 4, 5, 8, 16, 64};
    world_open(seed, sizes[seed % TUTTI_ARRAY_LEN(sizes)], flaw);
    const uint32_t n_deaths = rnd(3) ? rnd(w.n) : 0;
    uint32_t deaths = n_deaths, rate = 20 + rnd(400) * (1 + w.n / 8), steps = 0;
    w.cuts = rnd(2) ? rnd(4) : 0;
    for (bool open = true; open && !w.wrong; steps++) {
        const uint32_t i = rnd(w.n_all);
        if (steps > STEPS_MOST) wrong("no progress");
        if (!is_over(&w.members[i])) step(i);
        if (deaths > 0 && rnd(rate) == 0) {
            const uint32_t victim = rnd(w.n_all);
            deaths -= w.members[victim].alive;
            if (w.members[victim].alive) kill_one(victim);
        }
        if (w.cuts > 0 && rnd(rate) == 0) cut_or_mend(), w.cuts--;
        open = false;
        for (uint32_t k = 0; k < w.n_all; k++) open = open || !is_over(&w.members[k]);
    }
    check(n_deaths > 0);
    for (uint32_t i = 0; i < w.n_all; i++) tutti_synchrony_fini(&w.members[i].view);
    return w.wrong;
}

/* Seeds first, first + step, ...: whether all is well. */
static bool runs_are_right(uint64_t first, uint64_t end, uint64_t step)
{
    for (uint64_t seed = first; seed < end; seed += step) {
        const char *wrong_with = run(seed, NONE);
        if (!wrong_with) continue;
        fprintf(stderr, "seed %llu, %u members: %s\n", (unsigned long long)seed, w.n, wrong_with);
        return false;
    }
    return true;
}

/* Many seeds are shared by as many processes as there are CPUs. */
static void test_seeds(void **state)
{
    const char *more = getenv("SYNCHRONY_SEEDS");
    const uint64_t n = more ? strtoull(more, NULL, 10) : 10000, first = test_seed();
    const long n_cpus = more ? sysconf(_SC_NPROCESSORS_ONLN) : 1;
    const uint64_t step = n_cpus > 1 ? (uint64_t)n_cpus : 1;
    bool right = true;
    (void)state;
    for (uint64_t k = 1; k < step; k++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(!runs_are_right(first + k, first + n, step));
    }
    right = runs_are_right(first, first + n, step);
    for (uint64_t k = 1; k < step; k++) {
        int status = 1;
        assert_true(wait(&status) > 0);
        right = right && status == 0;
    }
    assert_true(right);
}

static void test_flaw_is_found(void **state)
{
    (void)state;
    for (enum flaw flaw = NO_COMMIT; flaw < N_FLAWS; flaw++) {
        uint32_t n_found = 0;
        for (uint64_t seed = 0; seed < 20000 && !n_found; seed++) n_found += run(seed, flaw) != NULL;
        assert_true(n_found > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds), cmocka_unit_test(test_flaw_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
