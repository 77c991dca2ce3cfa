/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults by chance. Schedules of the library's algorithms are altered at random; what the checker still accepts is run
 * by a plain engine with real operands, at random speeds, with messages short or long by chance, in place and out of
 * place: it must end, and with the right result. The engine below shares no code with the checker. */

#include "algo/algo.h"

#include "verify/planted_test.h"

enum { MAX_RANKS = 7, MAX_CHUNKS = 64, MAX_STEPS = 512, ALTERED = 6000, RUNS = 3 };

/* How often each rank's operand of one chunk is in it; chunk is meaningless when nothing was ever put there. */
struct operand {
    bool valid;
    uint32_t chunk;
    uint8_t count[MAX_RANKS];
};

struct engine {
    const struct planted_bundle *bundle;
    enum tutti_kind kind;
    uint32_t n, n_chunks, per_block;
    bool in_place;
    uint64_t is_short; /* by message number within its pair */
    struct operand input[MAX_RANKS][MAX_CHUNKS], data[MAX_RANKS][MAX_CHUNKS], scratch[MAX_RANKS][MAX_CHUNKS];
    struct operand in_flight[MAX_RANKS][MAX_STEPS][MAX_CHUNKS]; /* a send's, once it has left */
    enum { IDLE, STARTED, COMPLETE } state[MAX_RANKS][MAX_STEPS];
    bool left[MAX_RANKS][MAX_STEPS]; /* a send's data are out of the user's buffer */
};
static struct engine engine;

static struct operand own(uint32_t rank, uint32_t chunk)
{
    struct operand operand = {.valid = true, .chunk = chunk};
    operand.count[rank] = 1;
    return operand;
}

/* ---- the kinds, by the words of their definition ---- */

static void give_input(struct engine *e, uint32_t root)
{
    for (uint32_t r = 0; r < e->n; r++) {
        for (uint32_t c = 0; c < e->n_chunks; c++) {
            const uint32_t block = c / e->per_block;
            bool has = true;
            if (e->kind == TUTTI_BROADCAST || e->kind == TUTTI_SCATTER) has = r == root;
            if (e->kind == TUTTI_ALL_GATHER || e->kind == TUTTI_GATHER) has = r == block;
            e->input[r][c] = has ? own(r, c) : (struct operand){0};
            const bool shared = e->in_place && e->kind != TUTTI_ALL_TO_ALL;
            e->data[r][c] = shared ? e->input[r][c] : (struct operand){0};
            e->scratch[r][c] = (struct operand){0};
        }
    }
}

/* Whether rank r needs chunk c, and what it must be. */
static bool wanted(const struct engine *e, uint32_t root, uint32_t r, uint32_t c, struct operand *out)
{
    const uint32_t block = c / e->per_block;
    uint32_t first = 0, last = e->n - 1; /* among the ranks whose operands are in it */
    *out = (struct operand){.valid = true, .chunk = c};
    switch (e->kind) {
    case TUTTI_ALL_REDUCE:
        break;
    case TUTTI_REDUCE:
        if (r != root) return false;
        break;
    case TUTTI_REDUCE_SCATTER:
        if (r != block) return false;
        break;
    case TUTTI_SCAN:
        last = r;
        break;
    case TUTTI_EXSCAN:
        if (r == 0) return false;
        last = r - 1;
        break;
    case TUTTI_BROADCAST:
        first = last = root;
        break;
    case TUTTI_SCATTER:
        if (r != block) return false;
        first = last = root;
        break;
    case TUTTI_ALL_GATHER:
        first = last = block;
        break;
    case TUTTI_GATHER:
        if (r != root) return false;
        first = last = block;
        break;
    case TUTTI_ALL_TO_ALL:
        first = last = block;
        out->chunk = r * e->per_block + c % e->per_block;
        break;
    default:
        return false;
    }
    for (uint32_t i = first; i <= last && i < MAX_RANKS; i++) out->count[i] = 1;
    return true;
}

static bool right(const struct engine *e, uint32_t root)
{
    for (uint32_t r = 0; r < e->n; r++) {
        for (uint32_t c = 0; c < e->n_chunks; c++) {
            struct operand want;
            const struct operand *got = &e->data[r][c];
            if (!wanted(e, root, r, c, &want)) continue;
            if (!got->valid || got->chunk != want.chunk) return false;
            if (memcmp(got->count, want.count, sizeof want.count) != 0) return false;
        }
    }
    return true;
}

/* ---- steps ---- */

static struct operand *place(struct engine *e, uint32_t r, uint8_t buffer, uint32_t chunk)
{
    if (buffer == TUTTI_IN) return &e->input[r][chunk];
    return buffer == TUTTI_DATA ? &e->data[r][chunk] : &e->scratch[r][chunk];
}

/* In place the input is where DATA is. */
static struct operand fetch(struct engine *e, uint32_t r, uint8_t buffer, uint32_t chunk, bool from_input)
{
    if (from_input && !e->in_place) return e->input[r][chunk];
    return *place(e, r, buffer, chunk);
}

static void store(struct engine *e, uint32_t r, const struct tutti_step *step, uint32_t i, struct operand in)
{
    struct operand *dst = place(e, r, step->dst_buffer, step->dst + i);
    if (step->op == TUTTI_STEP_RECV_REDUCE || step->op == TUTTI_STEP_REDUCE) {
        const struct operand old = fetch(e, r, step->dst_buffer, step->dst + i, step->flags & TUTTI_STEP_DST_INPUT);
        in.valid = in.valid && old.valid && in.chunk == old.chunk;
        for (uint32_t k = 0; k < MAX_RANKS; k++) in.count[k] = (uint8_t)(in.count[k] + old.count[k]);
    }
    *dst = in;
}

static const struct tutti_step *step_at(const struct engine *e, uint32_t r, uint32_t i)
{
    return &e->bundle->slots[r]->steps[i];
}

static bool is_recv(const struct tutti_step *step)
{
    return step->op == TUTTI_STEP_RECV || step->op == TUTTI_STEP_RECV_REDUCE;
}

static uint32_t partner(const struct engine *e, uint32_t r, const struct tutti_step *step)
{
    for (uint32_t i = 0; i < e->bundle->slots[step->peer]->n_steps; i++) {
        const struct tutti_step *other = step_at(e, step->peer, i);
        const bool opposite = step->op == TUTTI_STEP_SEND ? is_recv(other) : other->op == TUTTI_STEP_SEND;
        if (opposite && other->peer == r && other->fifo == step->fifo) return i;
    }
    fail_msg("%s", "accepted with a message that has no other side");
    return 0;
}

static bool may_start(const struct engine *e, uint32_t r, uint32_t i)
{
    const struct tutti_step *step = step_at(e, r, i);
    const bool is_short = e->is_short >> (step->fifo % 64) & 1;
    for (uint32_t j = 0; j < i; j++) {
        const bool waits = i - j >= TUTTI_WINDOW || (step->wait >> (i - j - 1) & 1);
        const struct tutti_step *before = step_at(e, r, j);
        if (waits && e->state[r][j] != COMPLETE) return false;
        if (step->op != TUTTI_STEP_SEND || before->op != TUTTI_STEP_SEND || before->peer != step->peer) continue;
        if (e->state[r][j] == IDLE) return false;
        const bool held = e->is_short >> (before->fifo % 64) & 1;
        if (held && is_short && e->state[step->peer][partner(e, r, before)] == IDLE) return false; /* no credit */
    }
    return true;
}

static void leave(struct engine *e, uint32_t r, uint32_t i)
{
    const struct tutti_step *send = step_at(e, r, i);
    for (uint32_t c = 0; c < send->n; c++) {
        e->in_flight[r][i][c] = fetch(e, r, send->src_buffer, send->src + c, send->flags & TUTTI_STEP_SRC_INPUT);
    }
    e->left[r][i] = true;
}

/* Tries to bring a started step to its end; data move as late as they may. */
static bool finish(struct engine *e, uint32_t r, uint32_t i)
{
    const struct tutti_step *step = step_at(e, r, i);
    if (step->op == TUTTI_STEP_SEND) {
        const bool is_short = e->is_short >> (step->fifo % 64) & 1;
        if (!is_short && e->state[step->peer][partner(e, r, step)] == IDLE) return false;
        if (!e->left[r][i]) leave(e, r, i);
    } else if (is_recv(step)) {
        const uint32_t send = partner(e, r, step);
        if (e->state[step->peer][send] == IDLE) return false;
        if (!e->left[step->peer][send]) leave(e, step->peer, send);
        for (uint32_t c = 0; c < step->n; c++) store(e, r, step, c, e->in_flight[step->peer][send][c]);
    } else {
        for (uint32_t c = 0; c < step->n; c++) {
            store(e, r, step, c, fetch(e, r, step->src_buffer, step->src + c, step->flags & TUTTI_STEP_SRC_INPUT));
        }
    }
    e->state[r][i] = COMPLETE;
    return true;
}

/* Until nothing moves; true when all steps are complete. */
static bool run(struct engine *e, uint64_t *random)
{
    uint32_t idle_rounds = 0, left = 0;
    for (uint32_t r = 0; r < e->n; r++) left += e->bundle->slots[r]->n_steps;
    while (left > 0 && idle_rounds < 64) {
        bool moved = false;
        for (uint32_t k = 0; k < e->n; k++) {
            const uint32_t r = (uint32_t)(tutti_random64(random) % e->n), n = e->bundle->slots[r]->n_steps;
            for (uint32_t m = 0; m < n; m++) {
                const uint32_t i = n - 1 - m; /* the youngest first: overtake wherever it is allowed */
                if (e->state[r][i] == IDLE && tutti_random64(random) % 4 && may_start(e, r, i)) {
                    e->state[r][i] = STARTED;
                    moved = true;
                } else if (e->state[r][i] == STARTED && tutti_random64(random) % 3 == 0 && finish(e, r, i)) {
                    moved = true;
                    left--;
                }
            }
        }
        idle_rounds = moved ? 0 : idle_rounds + 1;
    }
    return left == 0;
}

/* ---- alterations ---- */

/* Changes one thing of one step; what it was is forgotten. */
static void alter(struct planted_bundle *bundle, uint64_t *random)
{
    struct tutti_schedule *schedule = bundle->slots[tutti_random64(random) % bundle->n];
    if (schedule->n_steps == 0) return;
    const uint32_t i = (uint32_t)(tutti_random64(random) % schedule->n_steps);
    const uint32_t by = (uint32_t)(tutti_random64(random) % schedule->n_chunks);
    struct tutti_step *step = &schedule->steps[i];
    switch (tutti_random64(random) % 12) {
    case 0:
    case 1:
    case 2:
        step->wait &= tutti_random64(random);
        break;
    case 3:
        step->wait = i < TUTTI_WINDOW ? (UINT64_C(1) << i) - 1 : UINT64_MAX;
        break;
    case 4:
        step->src = (step->src + by) % schedule->n_chunks;
        break;
    case 5:
        step->dst = (step->dst + by) % schedule->n_chunks;
        break;
    case 6:
        step->extent = (step->extent + by) % schedule->n_chunks;
        break;
    case 7:
        step->flags ^= (uint8_t)(1u << tutti_random64(random) % 3);
        break;
    case 8:
        step->op = (uint8_t)(tutti_random64(random) % TUTTI_STEP_CALL);
        break;
    case 9:
        step->src_buffer = step->src_buffer == TUTTI_DATA ? TUTTI_SCRATCH : TUTTI_DATA;
        break;
    case 10:
        schedule->n_steps--;
        break;
    default:
        if (i == 0) break;
        const struct tutti_step swapped = schedule->steps[i - 1]; /* order in the program */
        schedule->steps[i - 1] = *step;
        *step = swapped;
    }
}

static bool small_enough(const struct planted_bundle *bundle)
{
    for (uint32_t s = 0; s < bundle->n; s++) {
        const struct tutti_schedule *schedule = bundle->slots[s];
        if (schedule->n_chunks > MAX_CHUNKS || schedule->n_scratch > MAX_CHUNKS || schedule->n_steps > MAX_STEPS) {
            return false;
        }
    }
    return true;
}

static void run_accepted(const struct planted_bundle *bundle, uint64_t *random)
{
    const struct tutti_schedule *first = bundle->slots[0];
    for (uint32_t i = 0; i < RUNS; i++) {
        memset(&engine, 0, sizeof engine);
        engine.bundle = bundle;
        engine.kind = first->kind;
        engine.n = bundle->n;
        engine.n_chunks = first->n_chunks;
        engine.per_block = first->n_chunks / tutti_kind_blocks(first->kind, bundle->n);
        engine.in_place = i % 2;
        engine.is_short = tutti_random64(random) | (i == 2 ? UINT64_MAX : 0);
        give_input(&engine, first->shape.root);
        if (!run(&engine, random))
            fail_msg("accepted, but it hangs: %s %s", first->algorithm->name, tutti_kind_name(first->kind));
        if (first->kind != TUTTI_BARRIER && !right(&engine, first->shape.root)) {
            fail_msg("accepted, but wrong: %s %s of %u ranks", first->algorithm->name, tutti_kind_name(first->kind),
                     bundle->n);
        }
    }
}

static bool shape_random(uint64_t *random, const struct tutti_algorithm **algorithm, enum tutti_kind *kind,
                         struct tutti_shape *shape)
{
    *algorithm = tutti_algorithms[tutti_random64(random) % tutti_n_algorithms];
    *kind = (enum tutti_kind)(tutti_random64(random) % TUTTI_N_KINDS);
    *shape = (struct tutti_shape){.size = 1 + (uint32_t)(tutti_random64(random) % MAX_RANKS)};
    if (tutti_kind_info(*kind)->rooted) shape->root = (uint32_t)(tutti_random64(random) % shape->size);
    if (shape->size > 3) {
        shape->n_levels = 1;
        shape->levels[0] = (struct tutti_level){.n_runs = 2, .runs = {{3, 1}, {shape->size - 3, 1}}};
    }
    return tutti_algorithm_fits(*algorithm, *kind, shape, NULL, 0);
}

static void test_altered(void **unused)
{
    uint64_t random = test_seed();
    uint32_t n_accepted = 0, n_refused = 0, n_whole = 0;
    (void)unused;
    while (n_accepted + n_refused < ALTERED) {
        const struct tutti_algorithm *algorithm;
        enum tutti_kind kind;
        struct tutti_shape shape;
        struct planted_bundle bundle;
        if (!shape_random(&random, &algorithm, &kind, &shape)) continue;
        planted_bundle_seal(&bundle, algorithm, kind, &shape);
        if (small_enough(&bundle)) {
            const uint32_t n_faults = (uint32_t)(tutti_random64(&random) % 3);
            for (uint32_t i = 0; i < n_faults; i++) alter(&bundle, &random);
            const struct tutti_verdict verdict = planted_bundle_verify(&bundle);
            if (n_faults == 0 && !verdict.ok) fail_msg("refused without a fault: %s", verdict.text);
            if (verdict.ok) run_accepted(&bundle, &random);
            n_whole += n_faults == 0;
            n_accepted += verdict.ok;
            n_refused += !verdict.ok;
        }
        planted_bundle_destroy(&bundle);
    }
    print_message("%u unaltered, %u altered and harmless, %u refused\n", n_whole, n_accepted - n_whole, n_refused);
    assert_true(n_accepted - n_whole > ALTERED / 50 && n_refused > ALTERED / 4);
}

/* The engine of this test can tell: without the checker it meets wrong results and hangs. */
static void test_engine_can_fail(void **unused)
{
    uint64_t random = test_seed() + 1;
    uint32_t n_bad = 0, n_tried = 0;
    const struct tutti_shape shape = {.size = 5};
    (void)unused;
    for (uint32_t i = 0; i < 400; i++) {
        struct planted_bundle bundle;
        planted_bundle_seal(&bundle, tutti_algorithm_find("ring", &(uint32_t){0}), TUTTI_ALL_REDUCE, &shape);
        struct tutti_step *step = &bundle.slots[i % 5]->steps[2 + i % 13];
        step->wait = 0;
        if (!planted_bundle_verify(&bundle).ok) {
            memset(&engine, 0, sizeof engine);
            engine.bundle = &bundle, engine.kind = TUTTI_ALL_REDUCE, engine.n = 5, engine.n_chunks = 5;
            engine.per_block = 5, engine.in_place = true, engine.is_short = tutti_random64(&random);
            give_input(&engine, 0);
            n_bad += !run(&engine, &random) || !right(&engine, 0);
            n_tried++;
        }
        planted_bundle_destroy(&bundle);
    }
    print_message("of %u refused bundles %u went wrong when they were run\n", n_tried, n_bad);
    assert_true(n_bad > n_tried / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_altered), cmocka_unit_test(test_engine_can_fail)};
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
