/* SPDX-License-Identifier: BSD-3-Clause */
/* The deadlock check against a plain simulator of the engine's rules that shares no code with it: on bundles by chance
 * (any masks, any messages), on every assignment of messages to short and long, and on two copies in flight. */

#include "verify/bundle.h"

#include "test.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 4, MAX_STEPS = 160, MAX_MESSAGES = 7 };

/* ---- bundles made by hand: steps on chunk 0 that mean nothing, with the masks that the test wants ---- */
static const struct tutti_schedule_ops any_ops = {.needs = 0};
static const struct tutti_algorithm any = {.name = "made", .kinds = {[TUTTI_ALL_REDUCE] = &any_ops}};

struct made {
    uint32_t n;
    struct tutti_schedule schedules[MAX_RANKS];
    const struct tutti_schedule *slots[MAX_RANKS];
    struct tutti_step steps[MAX_RANKS][MAX_STEPS];
};

static void made_init(struct made *made, uint32_t n)
{
    memset(made, 0, sizeof *made);
    made->n = n;
    for (uint32_t s = 0; s < n; s++) {
        made->schedules[s] = (struct tutti_schedule){.shape = {.slot = s, .size = n},
                                                     .kind = TUTTI_ALL_REDUCE,
                                                     .algorithm = &any,
                                                     .n_chunks = 1,
                                                     .steps = made->steps[s]};
        made->slots[s] = &made->schedules[s];
    }
}

/* Returns the number of the step at its rank. */
static uint32_t add(struct made *made, uint32_t slot, enum tutti_step_op op, uint32_t peer, uint64_t wait)
{
    struct tutti_schedule *schedule = &made->schedules[slot];
    uint32_t fifo = 0;
    assert_true(schedule->n_steps < MAX_STEPS);
    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        fifo += made->steps[slot][i].op == op && made->steps[slot][i].peer == peer;
    }
    made->steps[slot][schedule->n_steps] =
        (struct tutti_step){.op = (uint8_t)op, .peer = peer, .n = 1, .fifo = fifo, .wait = wait};
    return schedule->n_steps++;
}

static uint32_t send(struct made *made, uint32_t slot, uint32_t peer, uint64_t wait)
{
    return add(made, slot, TUTTI_STEP_SEND, peer, wait);
}

static uint32_t recv(struct made *made, uint32_t slot, uint32_t peer, uint64_t wait)
{
    return add(made, slot, TUTTI_STEP_RECV, peer, wait);
}

static uint32_t copy(struct made *made, uint32_t slot, uint64_t wait)
{
    return add(made, slot, TUTTI_STEP_COPY, 0, wait);
}

/* The mask bit of an earlier step. */
static uint64_t on(uint32_t step, uint32_t earlier)
{
    return UINT64_C(1) << (step - 1 - earlier);
}

static bool completes(const struct made *made, enum tutti_channel_mode mode)
{
    struct tutti_bundle bundle;
    struct tutti_verdict verdict = {.ok = true};
    bool done = false;
    assert_int_equal(tutti_bundle_init(&bundle, made->slots, made->n, &verdict), TUTTI_OK);
    assert_int_equal(tutti_bundle_match(&bundle), TUTTI_OK);
    if (!verdict.ok) fail_msg("%s", verdict.text);
    assert_int_equal(tutti_bundle_run(&bundle, mode, true, &done), TUTTI_OK);
    assert_int_equal(done, verdict.ok); /* a sentence if and only if it stops */
    tutti_bundle_fini(&bundle);
    return done;
}

/* ---- the plain simulator: `copies` of the bundle in flight at once; rules by the word ---- */
struct plain {
    const struct made *made;
    uint32_t copies;
    uint64_t is_short; /* bit: the message with this number (see message_of), the same in all copies */
    bool shared;       /* one credit a channel for all copies, taken by chance; without it a message goes by grant */
    bool started[2][MAX_RANKS][MAX_STEPS], complete[2][MAX_RANKS][MAX_STEPS];
    bool by_credit[2][MAX_RANKS][MAX_STEPS]; /* sends */
};

static const struct tutti_step *step_of(const struct plain *p, uint32_t s, uint32_t i)
{
    return &p->made->steps[s][i];
}

static uint32_t find(const struct plain *p, uint32_t s, enum tutti_step_op op, uint32_t peer, uint32_t fifo)
{
    for (uint32_t i = 0; i < p->made->schedules[s].n_steps; i++) {
        const struct tutti_step *step = step_of(p, s, i);
        if (step->op == op && step->peer == peer && step->fifo == fifo) return i;
    }
    fail_msg("%s", "no such message");
    return 0;
}

/* Sends are numbered over the bundle. */
static uint32_t message_of(const struct plain *p, uint32_t slot, uint32_t index)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s <= slot; s++) {
        for (uint32_t i = 0; i < (s == slot ? index : p->made->schedules[s].n_steps); i++) {
            n += step_of(p, s, i)->op == TUTTI_STEP_SEND;
        }
    }
    return n;
}

/* Whether the channel's one credit is held by a message of one of the copies [first, last]. */
static bool credit_taken(const struct plain *p, uint32_t first, uint32_t last, uint32_t s, uint32_t peer)
{
    for (uint32_t c = first; c <= last; c++) {
        for (uint32_t i = 0; i < p->made->schedules[s].n_steps; i++) {
            const struct tutti_step *step = step_of(p, s, i);
            if (step->op != TUTTI_STEP_SEND || step->peer != peer || !p->by_credit[c][s][i]) continue;
            if (!p->started[c][peer][find(p, peer, TUTTI_STEP_RECV, s, step->fifo)]) return true;
        }
    }
    return false;
}

static bool may_start(const struct plain *p, uint32_t c, uint32_t s, uint32_t i)
{
    const struct tutti_step *step = step_of(p, s, i);
    for (uint32_t j = 0; j < i; j++) {
        const uint32_t distance = i - j;
        const bool awaited = distance >= TUTTI_WINDOW || (step->wait >> (distance - 1) & 1);
        if (awaited && !p->complete[c][s][j]) return false;
        const struct tutti_step *before = step_of(p, s, j);
        const bool same = before->op == TUTTI_STEP_SEND && step->op == TUTTI_STEP_SEND && before->peer == step->peer;
        if (same && !p->started[c][s][j]) return false;
    }
    if (step->op != TUTTI_STEP_SEND || p->shared) return true;
    return !(p->is_short >> message_of(p, s, i) & 1) || !credit_taken(p, c, c, s, step->peer);
}

static void start(struct plain *p, uint32_t c, uint32_t s, uint32_t i, uint64_t *state)
{
    const struct tutti_step *step = step_of(p, s, i);
    if (step->op == TUTTI_STEP_SEND && !p->shared) p->by_credit[c][s][i] = p->is_short >> message_of(p, s, i) & 1;
    if (step->op == TUTTI_STEP_SEND && p->shared && tutti_random64(state) % 2) {
        p->by_credit[c][s][i] = !credit_taken(p, 0, p->copies - 1, s, step->peer);
    }
    p->started[c][s][i] = true;
}

/* True when the step became complete now. */
static bool may_complete(const struct plain *p, uint32_t c, uint32_t s, uint32_t i)
{
    const struct tutti_step *step = step_of(p, s, i);
    if (!p->started[c][s][i] || p->complete[c][s][i]) return false;
    if (step->op == TUTTI_STEP_COPY || p->by_credit[c][s][i]) return true;
    const bool sends = step->op == TUTTI_STEP_SEND;
    return p->started[c][step->peer][find(p, step->peer, sends ? TUTTI_STEP_RECV : TUTTI_STEP_SEND, s, step->fifo)];
}

/* Runs until nothing moves, trying things in an order by chance; true when all copies are complete. Even ranks prefer
 * copy 0, odd ranks copy 1. */
static bool plain_completes(struct plain *p, uint64_t *state)
{
    uint32_t left = 0;
    for (uint32_t s = 0; s < p->made->n; s++) left += p->copies * p->made->schedules[s].n_steps;
    for (bool moved = left > 0; moved;) {
        moved = false;
        const uint32_t offset = (uint32_t)(tutti_random64(state) % p->made->n);
        for (uint32_t k = 0; k < p->made->n * p->copies; k++) {
            const uint32_t s = (k / p->copies + offset) % p->made->n, c = (k + s) % p->copies;
            for (uint32_t i = 0; i < p->made->schedules[s].n_steps; i++) {
                if (!p->started[c][s][i] && may_start(p, c, s, i)) start(p, c, s, i, state), moved = true;
                if (may_complete(p, c, s, i)) p->complete[c][s][i] = moved = true, left--;
            }
        }
    }
    return left == 0;
}

static bool simulate(const struct made *made, uint64_t is_short, uint64_t *state)
{
    struct plain p = {.made = made, .copies = 1, .is_short = is_short};
    return plain_completes(&p, state);
}

static bool simulate_two(const struct made *made, uint64_t *state)
{
    struct plain p = {.made = made, .copies = 2, .shared = true};
    return plain_completes(&p, state);
}

/* ---- bundles by chance ---- */

/* Messages between random pairs; each rank's steps come in an order and with masks by chance. */
static uint32_t made_random(struct made *made, uint64_t *state)
{
    const uint32_t n = 2 + (uint32_t)(tutti_random64(state) % (MAX_RANKS - 1));
    const uint32_t messages = 1 + (uint32_t)(tutti_random64(state) % MAX_MESSAGES);
    struct planned {
        uint32_t slot, peer;
        enum tutti_step_op op;
    } plan[3 * MAX_MESSAGES];
    enum { REACH = 7 };
    uint32_t n_plan = 0;
    made_init(made, n);
    for (uint32_t m = 0; m < messages; m++) {
        const uint32_t from = (uint32_t)(tutti_random64(state) % n);
        const uint32_t to = (from + 1 + (uint32_t)(tutti_random64(state) % (n - 1))) % n;
        plan[n_plan++] = (struct planned){from, to, TUTTI_STEP_SEND};
        plan[n_plan++] = (struct planned){to, from, TUTTI_STEP_RECV};
        if (tutti_random64(state) % 4 == 0) plan[n_plan++] = (struct planned){from, 0, TUTTI_STEP_COPY};
    }
    for (uint32_t i = n_plan - 1; i > 0; i--) { /* not over the whole, so that not all bundles hang */
        const uint32_t reach = i < REACH ? i : REACH, j = i - (uint32_t)(tutti_random64(state) % (reach + 1));
        const struct planned swapped = plan[i];
        plan[i] = plan[j], plan[j] = swapped;
    }
    for (uint32_t i = 0; i < n_plan; i++) {
        const uint32_t before = made->schedules[plan[i].slot].n_steps;
        const uint64_t wait = tutti_random64(state) & ((UINT64_C(1) << before) - 1);
        add(made, plan[i].slot, plan[i].op, plan[i].peer, wait);
    }
    return messages;
}

static void test_against_simulator(void **unused)
{
    enum { BUNDLES = 4000, PAIRS = 4 };
    uint64_t state = test_seed();
    uint32_t n_single = 0, n_mixed = 0, n_credit = 0, n_rendezvous = 0;
    (void)unused;
    for (uint32_t w = 0; w < BUNDLES; w++) {
        struct made made;
        const uint32_t messages = made_random(&made, &state);
        const uint64_t all = (UINT64_C(1) << messages) - 1;
        const bool single = completes(&made, TUTTI_CHANNEL_SINGLE);
        const bool rendezvous = completes(&made, TUTTI_CHANNEL_RENDEZVOUS);
        const bool credit = completes(&made, TUTTI_CHANNEL_CREDIT);
        bool every = true;
        for (uint64_t mask = 0; mask <= all && every; mask++) every = simulate(&made, mask, &state);
        if (single != every) fail_msg("bundle %u: single %d, every assignment %d", w, single, every);
        if (rendezvous != simulate(&made, 0, &state)) fail_msg("bundle %u: rendezvous %d", w, rendezvous);
        if (credit != simulate(&made, all, &state)) fail_msg("bundle %u: credit %d", w, credit);
        for (uint32_t i = 0; i < PAIRS && single; i++) {
            if (!simulate_two(&made, &state)) fail_msg("bundle %u: two copies hang", w);
        }
        n_single += single, n_rendezvous += rendezvous, n_credit += credit;
        n_mixed += rendezvous && credit && !single;
    }
    print_message("of %d bundles complete: single %u, rendezvous %u, credit %u; the last two without the first %u\n",
                  (int)BUNDLES, n_single, n_rendezvous, n_credit, n_mixed);
    assert_in_range(n_single, BUNDLES / 20, BUNDLES - BUNDLES / 20); /* the bundles are neither all good nor all bad */
    assert_true(n_rendezvous > n_single && n_credit > n_single);
}

/* ---- bundles with a name ---- */

/* Free of cycles by hazards alone; the order in the channels makes one: 0: recv m3, recv m4, send m1 (needs m4), send
 * m2; 1: recv m1, recv m2, send m3 (needs m2), send m4. */
static void test_order_in_channels(void **unused)
{
    struct made made;
    (void)unused;
    made_init(&made, 2);
    for (uint32_t s = 0; s < 2; s++) {
        recv(&made, s, 1 - s, 0);
        recv(&made, s, 1 - s, 0);
        send(&made, s, 1 - s, on(2, 1));
        send(&made, s, 1 - s, 0);
    }
    for (uint32_t mode = 0; mode < TUTTI_N_CHANNEL_MODES; mode++) assert_false(completes(&made, mode));
    /* With the free message first, and the other in need of no more than that, it would do. */
    made_init(&made, 2);
    for (uint32_t s = 0; s < 2; s++) {
        recv(&made, s, 1 - s, 0);
        recv(&made, s, 1 - s, 0);
        send(&made, s, 1 - s, 0);
        send(&made, s, 1 - s, on(3, 0));
    }
    for (uint32_t mode = 0; mode < TUTTI_N_CHANNEL_MODES; mode++) assert_true(completes(&made, mode));
}

/* Rank 0 receives `before` messages and then sends the one that rank 1 needs to send any of them. */
static bool window_completes(uint32_t before)
{
    struct made made;
    made_init(&made, 2);
    for (uint32_t i = 0; i < before; i++) recv(&made, 0, 1, 0);
    send(&made, 0, 1, 0);
    recv(&made, 1, 0, 0);
    for (uint32_t i = 0; i < before; i++) send(&made, 1, 0, i < TUTTI_WINDOW ? on(i + 1, 0) : 0);
    return completes(&made, TUTTI_CHANNEL_SINGLE);
}

static void test_window(void **unused)
{
    (void)unused;
    assert_true(window_completes(1));
    assert_true(window_completes(TUTTI_WINDOW - 1));
    assert_false(window_completes(TUTTI_WINDOW));
    assert_false(window_completes(TUTTI_WINDOW + 30));
}

/* Both send and then receive into the same place: each waits for the other's receive, if messages are long. */
static void test_exchange_in_place(void **unused)
{
    struct made made;
    (void)unused;
    made_init(&made, 2);
    for (uint32_t s = 0; s < 2; s++) {
        send(&made, s, 1 - s, 0);
        recv(&made, s, 1 - s, on(1, 0));
    }
    assert_false(completes(&made, TUTTI_CHANNEL_RENDEZVOUS));
    assert_true(completes(&made, TUTTI_CHANNEL_CREDIT));
    assert_false(completes(&made, TUTTI_CHANNEL_SINGLE));
}

/* The first message from 0 to 1 can be received only after one from 2, for which 2 waits for word from 0, which follows
 * the second message from 0 to 1. */
static void test_credit(void **unused)
{
    struct made made;
    (void)unused;
    made_init(&made, 3);
    recv(&made, 1, 2, 0);
    recv(&made, 1, 0, on(1, 0));
    recv(&made, 1, 0, 0);
    send(&made, 0, 1, 0);
    send(&made, 0, 1, 0);
    copy(&made, 0, on(2, 1));
    send(&made, 0, 2, on(3, 2));
    recv(&made, 2, 0, 0);
    send(&made, 2, 1, on(1, 0));
    assert_true(completes(&made, TUTTI_CHANNEL_RENDEZVOUS));
    assert_false(completes(&made, TUTTI_CHANNEL_CREDIT));
    assert_false(completes(&made, TUTTI_CHANNEL_SINGLE));
}

/* Hangs only when the message from 2 to 3 is long and those from 0 to 1 are short. */
static void test_mixture(void **unused)
{
    struct made made;
    uint64_t state = test_seed();
    (void)unused;
    made_init(&made, 4);
    send(&made, 0, 1, 0); /* message 0 */
    send(&made, 0, 1, 0); /* message 1 */
    recv(&made, 1, 2, 0);
    recv(&made, 1, 0, on(1, 0));
    recv(&made, 1, 0, 0);
    send(&made, 1, 3, on(3, 2)); /* message 2 */
    send(&made, 2, 3, 0);        /* message 3 */
    copy(&made, 2, on(1, 0));
    send(&made, 2, 1, on(2, 1)); /* message 4 */
    recv(&made, 3, 1, 0);
    recv(&made, 3, 2, on(1, 0));
    assert_true(completes(&made, TUTTI_CHANNEL_RENDEZVOUS));
    assert_true(completes(&made, TUTTI_CHANNEL_CREDIT));
    assert_false(completes(&made, TUTTI_CHANNEL_SINGLE));
    for (uint64_t mask = 0; mask < 32; mask++) {
        const bool hangs = (mask & 3) == 3 && !(mask & 8);
        assert_int_equal(simulate(&made, mask, &state), !hangs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_simulator),
        cmocka_unit_test(test_order_in_channels),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_exchange_in_place),
        cmocka_unit_test(test_credit),
        cmocka_unit_test(test_mixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
