/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine of views under a simulator of 2 to 64 members: collectives of a view end at random times, members die at
 * random moments (also while they agree, gather and hand on), and whoever waits for a dead one hears it at random.
 * Whatever happens, all who survive return the same result from every call, made of one set of contributors, and all
 * calls end. One seed in so many has a planted flaw, which the checks must find. */
#include "test.h"

#include "comm/life/synchrony.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, CALLS = 24, STEPS_MOST = 200000 };

enum form { ALL_REDUCE, SMALL_BROADCAST, LARGE, LARGE_BROADCAST, N_FORMS };
static bool keeps_of(enum form form)
{
    return form == ALL_REDUCE || form == SMALL_BROADCAST;
}
static bool syncs_of(enum form form)
{
    return form == ALL_REDUCE || form == LARGE;
}

struct member {
    struct tutti_synchrony view;
    bool alive, left;    /* left: it returned from its last call, and went */
    bool inside, agreed; /* in the operation, in the agreement at hand */
    enum tutti_synchrony_do doing;
    uint32_t number; /* operations of this view that it began */
    uint64_t output, returned[CALLS + 1], kept[CALLS + 2];
};
/* The k-th collective of a view. */
struct op {
    enum tutti_synchrony_do what;
    uint64_t call;
    uint32_t from;
    uint64_t began, ended; /* members by bits */
    uint64_t value;        /* a broadcast's, or what is handed on */
    struct tutti_synchrony_state states[MOST];
};
struct epoch {
    uint64_t members;
    bool failed;
    uint32_t n_ops;
    struct op ops[160];
};
static struct world {
    uint32_t n, n_epochs, n_calls;
    uint64_t seed;
    enum form forms[CALLS + 1];
    uint32_t roots[CALLS + 1];
    struct member members[MOST];
    struct epoch epochs[MOST + 2];
    bool flawed; /* commits without a barrier */
    const char *wrong;
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
    for (uint32_t m = 0; m < w.n; m++)
        if ((members & bit(m)) && w.members[m].alive) alive |= bit(m);
    return alive;
}

static void wrong(const char *what)
{
    if (!w.wrong) w.wrong = what;
}

/* ---- one operation ---- */

/* The m-th member of the view, as the machine counts them. */
static uint32_t member_at(const struct epoch *epoch, uint32_t place)
{
    for (uint32_t m = 0; m < w.n; m++)
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
    m->inside = true;
}

/* Whether the operation can be done at this member: all that it needs of others has been sent. */
static bool is_done(const struct epoch *epoch, const struct op *op, uint32_t i)
{
    if (op->from == MOST) return op->began == epoch->members;
    if (!(epoch->members & bit(op->from))) return true; /* the root is gone: it ends with that error at all */
    return i == op->from || (op->began & bit(op->from));
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
        for (uint32_t k = 0; k < w.n; k++)
            if (epoch->members & bit(k)) states[n++] = op->states[k];
        m->doing = tutti_synchrony_gathered(&m->view, states, n);
        return;
    }
    if (m->doing == TUTTI_SYNCHRONY_HAND_ON && op->call > m->view.state.have) m->kept[op->call] = op->value;
    if (m->doing == TUTTI_SYNCHRONY_DATA) {
        m->output = op->from == MOST ? result_of(op->call, epoch->members) : op->value;
        if (m->view.keeps) m->kept[op->call] = m->output;
    }
    m->doing = tutti_synchrony_ended(&m->view, false);
}

static void lose(uint32_t i)
{
    struct member *m = &w.members[i];
    w.epochs[m->view.epoch].failed = true;
    m->inside = false;
    m->doing = m->doing == TUTTI_SYNCHRONY_GATHER ? tutti_synchrony_gathered(&m->view, NULL, 0)
                                                  : tutti_synchrony_ended(&m->view, true);
}

/* ---- members ---- */

static void agree(uint32_t i)
{
    struct member *m = &w.members[i];
    const uint64_t epoch = m->view.epoch, alive = alive_of(w.epochs[epoch].members);
    struct epoch *next = NULL;
    m->agreed = true;
    for (uint64_t e = epoch + 1; e <= w.n_epochs && !next; e++) /* decided, for those of this one */
        if (w.epochs[e].members & bit(i)) next = &w.epochs[e];
    if (!next) {
        for (uint32_t k = 0; k < w.n; k++)
            if ((alive & bit(k)) && (w.members[k].view.epoch != epoch || !w.members[k].agreed)) return;
        next = &w.epochs[++w.n_epochs];
        *next = (struct epoch){.members = alive};
    }
    m->agreed = false;
    m->number = 0;
    m->doing = tutti_synchrony_installed(&m->view, (uint64_t)(next - w.epochs));
}

static void give_back(uint32_t i)
{
    struct member *m = &w.members[i];
    const uint64_t call = m->view.called;
    const uint64_t result = m->doing == TUTTI_SYNCHRONY_TAKE ? m->kept[call] : m->output;
    if (m->returned[call]) wrong("a call returns twice");
    m->returned[call] = result;
    m->left = call == w.n_calls;
    m->alive = !m->left;
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
    const bool dead = alive_of(epoch->members) != epoch->members;
    if (!m->inside) {
        if (w.flawed && m->doing == TUTTI_SYNCHRONY_COMMIT)
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

static void check(void)
{
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < w.n; i++) {
        const struct member *m = &w.members[i];
        if (!m->left) continue;
        n_left++;
        for (uint32_t k = 0; k < i; k++)
            if (w.members[k].left && memcmp(m->returned, w.members[k].returned, sizeof(m->returned)) != 0)
                wrong("survivors returned different results");
        for (uint64_t call = 1; call <= w.n_calls; call++)
            if (!is_result(call, m->returned[call])) wrong("a call did not end, or with what no view can make");
    }
    if (n_left == 0) wrong("nobody is left");
}

static void world_open(uint64_t seed, uint32_t n, bool flawed)
{
    memset(&w, 0, sizeof(w));
    w.seed = seed, w.n = n, w.n_epochs = 1, w.n_calls = CALLS, w.flawed = flawed;
    w.epochs[1].members = n == MOST ? UINT64_MAX : bit(n) - 1;
    for (uint32_t call = 1; call <= CALLS; call++) w.forms[call] = rnd(N_FORMS), w.roots[call] = rnd(n);
    w.forms[CALLS] = LARGE; /* a member that goes has committed */
    for (uint32_t i = 0; i < n; i++) {
        struct member *m = &w.members[i];
        tutti_synchrony_init(&m->view);
        m->alive = true;
        m->doing = tutti_synchrony_call(&m->view, keeps_of(w.forms[1]), syncs_of(w.forms[1]));
    }
}

static const char *run(uint64_t seed, bool flawed)
{
    static const uint32_t sizes[] = {2, 3, 3, 4, 5, 8, 16, 64};
    world_open(seed, sizes[seed % TUTTI_ARRAY_LEN(sizes)], flawed);
    uint32_t deaths = rnd(w.n), rate = 20 + rnd(400) * (1 + w.n / 8), steps = 0;
    for (bool open = true; open && !w.wrong; steps++) {
        const uint32_t i = rnd(w.n);
        if (steps > STEPS_MOST) wrong("no progress");
        if (!is_over(&w.members[i])) step(i);
        if (deaths > 0 && rnd(rate) == 0) {
            const uint32_t victim = rnd(w.n);
            deaths -= w.members[victim].alive;
            w.members[victim].alive = false;
        }
        open = false;
        for (uint32_t k = 0; k < w.n; k++) open = open || !is_over(&w.members[k]);
    }
    check();
    for (uint32_t i = 0; i < w.n; i++) tutti_synchrony_fini(&w.members[i].view);
    return w.wrong;
}

static void test_seeds(void **state)
{
    const char *more = getenv("SYNCHRONY_SEEDS");
    const uint64_t n = more ? strtoull(more, NULL, 10) : 10000, first = test_seed();
    (void)state;
    for (uint64_t k = 0; k < n; k++) {
        const char *wrong_with = run(first + k, false);
        if (wrong_with) fail_msg("seed %llu, %u members: %s", (unsigned long long)(first + k), w.n, wrong_with);
    }
}

static void test_flaw_is_found(void **state)
{
    uint32_t n_found = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) n_found += run(seed, true) != NULL;
    assert_true(n_found > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds), cmocka_unit_test(test_flaw_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
