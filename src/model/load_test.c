/* SPDX-License-Identifier: BSD-3-Clause */
/* The formulas against the schedules themselves: messages, bytes and the longest chain are counted from the sealed
 * steps of all slots. Where the size is a power of the radix they are equal, elsewhere the formulas are bounds that are
 * not far off. Each kind of each algorithm has its row. */
#include "algo/algo.h"
#include "model/cost.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define BLOCK 65536.0 /* bytes; cut into up to 64 chunks without rest */

struct world {
    uint32_t n;
    struct tutti_schedule **slots;
    double **reached; /* by slot and step: messages of the longest chain that ends with it */
};

struct counted {
    double hops, messages, all_messages, all_bytes, busiest_bytes;
};

static struct world world_seal(const struct tutti_load_row *row, struct tutti_shape shape)
{
    struct world world = {.n = shape.size};
    world.slots = tutti_alloc_array(world.n, sizeof(*world.slots));
    world.reached = tutti_alloc_array(world.n, sizeof(*world.reached));
    for (shape.slot = 0; shape.slot < world.n; shape.slot++) {
        assert_int_equal(tutti_schedule_seal(row->algorithm, row->kind, &shape, true, &world.slots[shape.slot]),
                         TUTTI_OK);
        assert_null(world.slots[shape.slot]->defect);
        world.reached[shape.slot] = tutti_alloc_array(world.slots[shape.slot]->n_steps + 1, sizeof(double));
    }
    return world;
}

static void world_free(struct world *world)
{
    for (uint32_t s = 0; s < world->n; s++) {
        tutti_schedule_destroy(world->slots[s]);
        tutti_free(world->reached[s]);
    }
    tutti_free(world->slots);
    tutti_free(world->reached);
}

/* The step of `peer` that sends the message which step `i` of `slot` receives. */
static uint32_t sender_of(const struct world *world, uint32_t slot, const struct tutti_step *recv)
{
    const struct tutti_schedule *from = world->slots[recv->peer];
    uint32_t i = 0;
    while (i < from->n_steps &&
           !(from->steps[i].op == TUTTI_STEP_SEND && from->steps[i].peer == slot && from->steps[i].fifo == recv->fifo))
        i++;
    assert_true(i < from->n_steps);
    return i;
}

static bool is_recv(const struct tutti_step *step)
{
    return step->op == TUTTI_STEP_RECV || step->op == TUTTI_STEP_RECV_REDUCE;
}

static double step_reached(const struct world *world, uint32_t slot, uint32_t i)
{
    const struct tutti_step *step = &world->slots[slot]->steps[i];
    double before = 0;
    for (uint32_t j = 0; j < TUTTI_WINDOW && j < i; j++)
        if (step->wait >> j & 1 && world->reached[slot][i - 1 - j] > before) before = world->reached[slot][i - 1 - j];
    if (!is_recv(step)) return before;
    double came = world->reached[step->peer][sender_of(world, slot, step)] + 1;
    return came > before ? came : before;
}

/* Until nothing changes any more. */
static double longest_chain(struct world *world)
{
    double longest = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t s = 0; s < world->n; s++)
            for (uint32_t i = 0; i < world->slots[s]->n_steps; i++) {
                double reached = step_reached(world, s, i);
                changed = changed || reached > world->reached[s][i];
                world->reached[s][i] = reached;
                if (reached > longest) longest = reached;
            }
    }
    return longest;
}

static struct counted count(struct world *world, enum tutti_kind kind)
{
    struct counted c = {.hops = longest_chain(world)};
    double chunk = BLOCK * tutti_kind_blocks(kind, world->n) / world->slots[0]->n_chunks;
    for (uint32_t s = 0; s < world->n; s++) {
        double messages = 0, bytes = 0;
        for (uint32_t i = 0; i < world->slots[s]->n_steps; i++) {
            const struct tutti_step *step = &world->slots[s]->steps[i];
            bool send = step->op == TUTTI_STEP_SEND;
            if (!send && !is_recv(step)) continue;
            messages++;
            bytes += step->n * chunk;
            if (send) c.all_messages++, c.all_bytes += step->n * chunk;
        }
        if (messages > c.messages) c.messages = messages;
        if (bytes > c.busiest_bytes) c.busiest_bytes = bytes;
    }
    if (kind == TUTTI_BARRIER) c.all_bytes = c.busiest_bytes = 0;
    return c;
}

static bool power_of(uint32_t n, uint32_t radix)
{
    while (n % radix == 0) n /= radix;
    return n == 1;
}

static void expect(const struct tutti_load_row *row, const struct tutti_shape *shape, const char *what, double formula,
                   double counted, double low, double high)
{
    if (formula >= counted * low && formula <= counted * high) return;
    fail_msg("%s %s of %u ranks, radix %u: %s are %.0f, the formula says %.0f", row->algorithm->name,
             tutti_kind_name(row->kind), shape->size, shape->radix, what, counted, formula);
}

/* How far formulas may be off: bounds where sizes round up, and for hierarchies, which are not counted level by level.
 */
static void row_check(const struct tutti_load_row *row, const struct tutti_shape *shape)
{
    struct world world = world_seal(row, *shape);
    struct counted c = count(&world, row->kind);
    struct tutti_load load = tutti_load_of(row, shape, row->kind == TUTTI_BARRIER ? 0 : (uint64_t)BLOCK);
    uint32_t radix = shape->radix > 1 ? shape->radix : 2;
    bool even = power_of(shape->size, radix) && power_of(shape->size, 2) && !shape->n_levels;
    double low = even ? 0.99 : 0.75, high = even ? 1.01 : 2;
    bool rough = row->algorithm == &tutti_algorithm_double_tree || row->algorithm == &tutti_algorithm_hierarchical;
    if (rough) low = 0.6, high = 1.8;
    expect(row, shape, "hops", load.hops, c.hops, low, even ? high : high + 1); /* short chains have long halves */
    expect(row, shape, "messages", load.all_messages, c.all_messages, low, high);
    expect(row, shape, "bytes", load.all_bytes, c.all_bytes, low, high);
    expect(row, shape, "messages of one rank", load.messages, c.messages, low, high);
    expect(row, shape, "bytes of one rank", load.sent + load.received, c.busiest_bytes, low, high);
    world_free(&world);
}

static void formulas_are_right(void **state)
{
    static const uint32_t sizes[] = {2, 3, 4, 5, 7, 8, 13, 16, 24, 32, 64};
    (void)state;
    for (size_t i = 0; i < tutti_n_load_rows; i++) {
        const struct tutti_load_row *row = &tutti_load_rows[i];
        for (size_t s = 0; s < TUTTI_ARRAY_LEN(sizes); s++)
            for (size_t r = 0; r < TUTTI_ARRAY_LEN(row->radices) && (r == 0 || row->radices[r]); r++) {
                struct tutti_shape shape = {.size = sizes[s], .radix = row->radices[r]};
                char levels[16];
                if (row->radices[r] > sizes[s]) continue;
                if (row->algorithm->kinds[row->kind]->needs & TUTTI_NEEDS_LEVELS) {
                    if (sizes[s] < 4 || sizes[s] % 4) continue;
                    snprintf(levels, sizeof levels, "4x%u", sizes[s] / 4);
                    assert_int_equal(tutti_shape_parse_levels(&shape, levels), TUTTI_OK);
                }
                row_check(row, &shape);
            }
    }
}

static void each_has_a_row(void **state)
{
    (void)state;
    size_t n_offered = 0;
    for (size_t a = 0; a < tutti_n_algorithms; a++)
        for (int kind = 0; kind < TUTTI_N_KINDS; kind++) {
            const struct tutti_schedule_ops *ops = tutti_algorithms[a]->kinds[kind];
            size_t found = 0, wanted = ops && (ops->needs & TUTTI_TAKES_RADIX) ? 2 : 1; /* radix 1 apart */
            if (!ops) continue;
            n_offered += wanted;
            for (size_t i = 0; i < tutti_n_load_rows; i++)
                found += tutti_load_rows[i].algorithm == tutti_algorithms[a] && (int)tutti_load_rows[i].kind == kind;
            if (found != wanted)
                fail_msg("%s %s has %zu rows", tutti_algorithms[a]->name, tutti_kind_name(kind), found);
        }
    assert_int_equal(n_offered, tutti_n_load_rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_a_row),
        cmocka_unit_test(formulas_are_right),
    };
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
