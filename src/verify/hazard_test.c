/* SPDX-License-Identifier: BSD-3-Clause */
/* The hazard check against a definition: every pair of steps of a rank that touch one chunk, one of them writing, must
 * be joined by a path of waits, or lie out of the window. Every bit of every mask of real schedules is cleared in turn;
 * the check must refuse exactly those bundles that the definition refuses. */

#include "algo/algo.h"
#include "verify/bundle.h"

#include "verify/planted_test.h"

enum { MAX_STEPS = 256 };

struct touched {
    bool any;
    uint8_t buffer;
    uint32_t first, last;
};

static struct touched read_by(const struct tutti_step *step)
{
    const bool any = step->op == TUTTI_STEP_SEND || step->op == TUTTI_STEP_COPY || step->op == TUTTI_STEP_REDUCE;
    return (struct touched){any && step->src_buffer != TUTTI_IN, step->src_buffer, step->src, step->src + step->n - 1};
}

static struct touched written_by(const struct tutti_step *step)
{
    return (struct touched){step->op != TUTTI_STEP_SEND, step->dst_buffer, step->dst, step->dst + step->n - 1};
}

static bool meet(struct touched a, struct touched b)
{
    return a.any && b.any && a.buffer == b.buffer && a.first <= b.last && b.first <= a.last;
}

static bool conflict(const struct tutti_step *a, const struct tutti_step *b)
{
    return meet(written_by(a), written_by(b)) || meet(written_by(a), read_by(b)) || meet(read_by(a), written_by(b));
}

/* Whether every hazard of the schedule is covered; paths by closing the relation step by step. */
static bool covered(const struct tutti_schedule *schedule)
{
    static bool after[MAX_STEPS][MAX_STEPS];
    assert_true(schedule->n_steps <= MAX_STEPS);
    memset(after, 0, sizeof after);
    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (i - j < TUTTI_WINDOW && !(schedule->steps[i].wait >> (i - j - 1) & 1)) continue;
            after[i][j] = true;
            for (uint32_t k = 0; k < j; k++) after[i][k] = after[i][k] || after[j][k];
        }
        for (uint32_t j = 0; j < i; j++) {
            if (!after[i][j] && conflict(&schedule->steps[i], &schedule->steps[j])) return false;
        }
    }
    return true;
}

static bool accepted(const struct planted_bundle *planted, struct tutti_verdict *verdict)
{
    struct tutti_bundle bundle;
    *verdict = (struct tutti_verdict){.ok = true};
    assert_int_equal(
        tutti_bundle_init(&bundle, (const struct tutti_schedule *const *)planted->slots, planted->n, verdict),
        TUTTI_OK);
    assert_int_equal(tutti_bundle_check_hazards(&bundle), TUTTI_OK);
    tutti_bundle_fini(&bundle);
    return verdict->ok;
}

/* Returns how many of the altered bundles were refused. */
static uint32_t clear_each_bit(struct planted_bundle *bundle, uint32_t *n_altered)
{
    uint32_t refused = 0;
    struct tutti_verdict verdict;
    for (uint32_t s = 0; s < bundle->n; s++) {
        struct tutti_schedule *schedule = bundle->slots[s];
        for (uint32_t i = 0; i < schedule->n_steps; i++) {
            struct tutti_step *step = &schedule->steps[i];
            for (uint64_t rest = step->wait; rest; rest &= rest - 1) {
                const uint64_t bit = rest & -rest;
                step->wait ^= bit;
                const bool good = covered(schedule);
                if (accepted(bundle, &verdict) != good) {
                    fail_msg("rank %u, step %u, bit %#llx: %s", s, i, (unsigned long long)bit,
                             good ? verdict.text : "accepted");
                }
                refused += !good;
                ++*n_altered;
                step->wait ^= bit;
            }
        }
    }
    return refused;
}

static void test_each_bit(void **unused)
{
    static const char *const names[] = {"ring", "tree", "tree:4", "direct", "bruck", "halving_doubling", "double_tree"};
    static const uint32_t sizes[] = {2, 5, 12};
    uint32_t n_altered = 0, n_refused = 0;
    (void)unused;
    for (size_t a = 0; a < TUTTI_ARRAY_LEN(names); a++) {
        uint32_t radix;
        const struct tutti_algorithm *algorithm = tutti_algorithm_find(names[a], &radix);
        assert_non_null(algorithm);
        for (uint32_t i = 0; i < TUTTI_N_KINDS * TUTTI_ARRAY_LEN(sizes); i++) {
            const enum tutti_kind kind = (enum tutti_kind)(i % TUTTI_N_KINDS);
            const struct tutti_shape shape = {.size = sizes[i / TUTTI_N_KINDS], .radix = radix};
            struct planted_bundle bundle;
            struct tutti_verdict verdict;
            if (!tutti_algorithm_fits(algorithm, kind, &shape, NULL, 0)) continue;
            planted_bundle_seal(&bundle, algorithm, kind, &shape);
            if (!accepted(&bundle, &verdict)) fail_msg("%s", verdict.text);
            n_refused += clear_each_bit(&bundle, &n_altered);
            planted_bundle_destroy(&bundle);
        }
    }
    print_message("%u bits cleared, %u of them mattered\n", n_altered, n_refused);
    assert_true(n_refused > 1000 && n_altered > n_refused);
}

/* Masks and steps by chance: any chunks, any order. */
static void test_random(void **unused)
{
    enum { BUNDLES = 20000, STEPS = 100, CHUNKS = 6 };
    static const struct tutti_schedule_ops ops = {.needs = 0};
    static const struct tutti_algorithm any = {.name = "any", .kinds = {[TUTTI_ALL_REDUCE] = &ops}};
    uint64_t state = test_seed();
    uint32_t n_good = 0;
    (void)unused;
    for (uint32_t w = 0; w < BUNDLES; w++) {
        struct tutti_step steps[STEPS] = {0};
        const uint32_t n_steps = w % 10 ? 2 + w % 6 : STEPS;
        struct tutti_schedule schedule = {
            .shape = {.size = 1}, .algorithm = &any, .n_chunks = CHUNKS, .n_scratch = CHUNKS, .steps = steps};
        schedule.n_steps = n_steps;
        for (uint32_t i = 0; i < n_steps; i++) {
            uint64_t dense = 0;
            for (int k = 0; k < 3; k++) dense |= tutti_random64(&state);
            steps[i].op = (uint8_t)(tutti_random64(&state) % TUTTI_STEP_CALL);
            steps[i].src_buffer = tutti_random64(&state) % 2 ? TUTTI_DATA : TUTTI_SCRATCH;
            steps[i].dst_buffer = tutti_random64(&state) % 2 ? TUTTI_DATA : TUTTI_SCRATCH;
            steps[i].n = 1 + (uint32_t)(tutti_random64(&state) % 2);
            steps[i].src = (uint32_t)(tutti_random64(&state) % (CHUNKS - 1));
            steps[i].dst = (uint32_t)(tutti_random64(&state) % (CHUNKS - 1));
            steps[i].wait = (n_steps == STEPS ? ~(UINT64_C(1) << tutti_random64(&state) % 2000 % 64) : dense) &
                            (i < TUTTI_WINDOW ? (UINT64_C(1) << i) - 1 : UINT64_MAX);
        }
        const struct planted_bundle bundle = {.n = 1, .slots = {&schedule}};
        struct tutti_verdict verdict;
        const bool good = covered(&schedule);
        if (accepted(&bundle, &verdict) != good) fail_msg("bundle %u: %s", w, good ? verdict.text : "accepted");
        n_good += good;
    }
    print_message("%u of %d by chance were good\n", n_good, (int)BUNDLES);
    assert_in_range(n_good, BUNDLES / 10, BUNDLES - BUNDLES / 10);
}

int main(void)
{
    tutti_algorithms_init();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_bit), cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
