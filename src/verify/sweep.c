/* SPDX-License-Identifier: BSD-3-Clause */
/* Which shapes an algorithm is proved on. A proof holds for one shape; so small sizes are tried with every root and
 * radix, middling ones with every root, some radices with some roots, and each radix at least once, and levels in the
 * forms that clusters have: even groups, a short one among them (8,8,7,8), one group, groups of one, groups of groups,
 * and some by chance. Large sizes take turns: each is tried on the plain shape and a few of the others, so that a range
 * of sizes tries them all. */

#include "verify/sweep.h"

#include <stdlib.h>

enum {
    SMALL = 12, /* sizes up to this one: all roots and radices */
    LARGE = 65, /* sizes from this one on take turns */
    TURNS = 2,  /* shapes of a large size besides the plain one */
    MAX_VALUES = 24,
    MAX_LEVELLED = 16
};

struct values {
    uint32_t n, of[MAX_VALUES];
};

static void values_add(struct values *values, uint32_t value)
{
    for (uint32_t i = 0; i < values->n; i++) {
        if (values->of[i] == value) return;
    }
    if (values->n < MAX_VALUES) values->of[values->n++] = value;
}

static struct values roots_of(enum tutti_kind kind, uint32_t size)
{
    struct values roots = {0};
    values_add(&roots, 0);
    if (!tutti_kind_info(kind)->rooted) return roots;
    for (uint32_t root = 1; root < size && size <= SMALL; root++) values_add(&roots, root);
    values_add(&roots, size > 1 ? 1 : 0);
    values_add(&roots, size / 2);
    values_add(&roots, size - 1);
    values_add(&roots, (uint32_t)(tutti_mix64(size) % size)); /* any */
    return roots;
}

static struct values radices_of(const struct tutti_schedule_ops *ops, uint32_t size)
{
    struct values radices = {0};
    values_add(&radices, 0); /* the algorithm's own */
    if (ops->needs & TUTTI_TAKES_RADIX)
        for (uint32_t radix = 1; radix <= (size <= SMALL ? 3 : 1); radix++) values_add(&radices, radix);
    if (!ops->default_radix) return radices;
    for (uint32_t radix = 2; radix <= size && size <= SMALL; radix++) values_add(&radices, radix);
    for (uint32_t radix = 2; radix <= 5; radix++) values_add(&radices, radix);
    values_add(&radices, 8);
    values_add(&radices, size > 1 ? size : 2);
    values_add(&radices, 2 + (uint32_t)(tutti_mix64(size) % size)); /* any */
    return radices;
}

/* ---- levels ---- */

static bool level_add(struct tutti_level *level, uint32_t size)
{
    struct tutti_run *last = level->n_runs ? &level->runs[level->n_runs - 1] : NULL;
    if (last && last->size == size) {
        last->repeat++;
        return true;
    }
    if (level->n_runs == TUTTI_MAX_RUNS) return false;
    level->runs[level->n_runs++] = (struct tutti_run){.size = size, .repeat = 1};
    return true;
}

/* Groups of `width` units with the short one at group number `at` (or last). */
static bool level_even(struct tutti_level *level, uint32_t units, uint32_t width, uint32_t at)
{
    *level = (struct tutti_level){0};
    const uint32_t groups = (units + width - 1) / width, rest = units - (groups - 1) * width;
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t shorter = at < groups ? at : groups - 1;
        if (!level_add(level, g == shorter ? rest : width)) return false;
    }
    return true;
}

/* Groups of sizes by chance, in at most seven runs and a rest. */
static bool level_random(struct tutti_level *level, uint32_t units, uint64_t *state)
{
    *level = (struct tutti_level){0};
    while (units > 0 && level->n_runs < TUTTI_MAX_RUNS - 1) {
        const uint32_t most = units < 9 ? units : 9, size = 1 + (uint32_t)(tutti_random64(state) % most);
        const uint32_t repeat = 1 + (uint32_t)(tutti_random64(state) % 3);
        for (uint32_t i = 0; i < repeat && units >= size; i++, units -= size) level_add(level, size);
    }
    return units == 0 || level_add(level, units);
}

static uint32_t root_of(uint32_t x) /* ceil of the square root */
{
    uint32_t r = 1;
    while (r * r < x) r++;
    return r;
}

/* Groups of level 0, then groups of these, as far as n_levels says. */
static bool levels_even(struct tutti_shape *shape, uint32_t n_levels, uint32_t width, uint32_t at)
{
    uint32_t units = shape->size;
    for (uint32_t l = 0; l < n_levels; l++) {
        if (!level_even(&shape->levels[l], units, width, at)) return false;
        units = tutti_level_groups(&shape->levels[l]);
    }
    shape->n_levels = n_levels;
    return true;
}

/* Fills out with copies of the flat shape that have levels. */
static size_t levelled(const struct tutti_shape *flat, struct tutti_shape *out, size_t capacity)
{
    const struct {
        uint32_t n_levels, width, at;
    } forms[] = {
        {1, 8, UINT32_MAX}, {1, root_of(flat->size), 2}, {1, flat->size, 0},
        {1, 1, 0},          {1, flat->size / 2 + 1, 0},  {2, 2, 1},
        {2, 3, 0},          {3, 2, UINT32_MAX},
    };
    enum { BY_CHANCE = 3 };
    uint64_t state = flat->size;
    size_t n = 0;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(forms) && n < capacity; i++) {
        out[n] = *flat;
        if (levels_even(&out[n], forms[i].n_levels, forms[i].width, forms[i].at)) n++;
    }
    for (uint32_t i = 0; i < BY_CHANCE && n < capacity; i++) {
        out[n] = *flat;
        bool fits = level_random(&out[n].levels[0], flat->size, &state);
        out[n].n_levels = 1;
        if (fits && i > 0) {
            fits = level_random(&out[n].levels[1], tutti_level_groups(&out[n].levels[0]), &state);
            out[n].n_levels = 2;
        }
        if (fits) n++;
    }
    return n;
}

/* Keeps the first shape and some others, which depend on the size. */
static size_t take_turns(struct tutti_shape *shapes, size_t n, uint32_t size)
{
    uint64_t state = size;
    if (size < LARGE || n <= 1 + TURNS) return n;
    for (size_t i = 1; i <= TURNS; i++) {
        const size_t j = i + (size_t)(tutti_random64(&state) % (n - i));
        const struct tutti_shape swapped = shapes[i];
        shapes[i] = shapes[j], shapes[j] = swapped;
    }
    return 1 + TURNS;
}

/* Sizes between small and large: every root, and where roots are, every radix with one of them; each flat, and a
 * quarter on one form of levels, by turns, as who does not need levels may look at them all the same. */
static size_t every_root(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t size,
                         struct tutti_shape *out, size_t capacity)
{
    const uint32_t n_roots = tutti_kind_info(kind)->rooted ? size : 1;
    const bool needs_levels = algorithm->kinds[kind]->needs & TUTTI_NEEDS_LEVELS;
    const bool radices = n_roots > 1 && algorithm->kinds[kind]->default_radix != 0;
    size_t n = 0;
    for (uint32_t i = 0; i < (radices ? 2 : 1) * n_roots; i++) {
        struct tutti_shape shapes[1 + MAX_LEVELLED];
        const uint32_t root = i % n_roots;
        shapes[0] = (struct tutti_shape){
            .size = size, .root = root, .radix = i < n_roots ? 0 : 2 + (root + size / 3) % (size - 1)};
        const size_t n_levelled = levelled(&shapes[0], &shapes[1], MAX_LEVELLED);
        const struct tutti_shape *tried[] = {&shapes[0], &shapes[1 + (root + size) % n_levelled]};
        const size_t n_tried = needs_levels || n_roots == 1 || (root + size) % 4 == 0 ? 2 : 1;
        for (size_t k = 0; k < n_tried && n < capacity; k++) {
            if (tutti_algorithm_fits(algorithm, kind, tried[k], NULL, 0)) out[n++] = *tried[k];
        }
    }
    return n;
}

size_t tutti_sweep_shapes(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t size,
                          struct tutti_shape *out, size_t capacity)
{
    const struct tutti_schedule_ops *ops = algorithm->kinds[kind];
    if (!ops || size == 0) return 0;
    const struct values roots = roots_of(kind, size), radices = radices_of(ops, size);
    /* An algorithm that needs no levels rarely looks at them: small shapes with all forms, others with one by turns. */
    const bool levels = (ops->needs & TUTTI_NEEDS_LEVELS) || size <= SMALL / 2;
    size_t n = 0;
    for (uint32_t i = 0; i < roots.n * radices.n; i++) {
        struct tutti_shape shapes[1 + MAX_LEVELLED];
        shapes[0] =
            (struct tutti_shape){.size = size, .root = roots.of[i / radices.n], .radix = radices.of[i % radices.n]};
        const size_t n_shapes = 1 + (levels ? levelled(&shapes[0], &shapes[1], MAX_LEVELLED) : 0);
        for (size_t k = 0; k < n_shapes && n < capacity; k++) {
            if (tutti_algorithm_fits(algorithm, kind, &shapes[k], NULL, 0)) out[n++] = shapes[k];
        }
    }
    if (size > SMALL / 2 && size < LARGE) n += every_root(algorithm, kind, size, out + n, capacity - n);
    return take_turns(out, n, size);
}

/* ---- the sweep ---- */

/* Whether the size has its turn to be proved in full. */
static bool has_turn(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t size,
                     const struct tutti_sweep_depth *depth)
{
    uint64_t turn = tutti_mix64((uint64_t)kind + 1);
    for (const char *c = algorithm->name; *c; c++) turn = tutti_mix64(turn + (uint8_t)*c);
    if (size <= depth->full_size) return true;
    if (depth->full_every == 0) return false;
    for (uint32_t near = size - 1; near <= size + 1; near++)
        if ((near & (near - 1)) == 0) return true;
    return size % depth->full_every == turn % depth->full_every;
}

enum tutti_status tutti_sweep_check(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                    const struct tutti_shape *shape, const struct tutti_sweep_depth *depth,
                                    struct tutti_sweep *sweep)
{
    struct tutti_verdict verdict;
    uint64_t n_steps = 0;
    bool too_wide = false;
    sweep->shape = *shape;
    sweep->n_tried++;
    if (depth->full_steps < UINT64_MAX) TUTTI_TRY(tutti_verify_estimate(algorithm, kind, shape, &n_steps, &too_wide));
    bool sampled = too_wide || (n_steps > depth->full_steps && !has_turn(algorithm, kind, shape->size, depth));
    if (sampled) {
        const enum tutti_status status =
            tutti_verify_sample(algorithm, kind, shape, &depth->sampling, &verdict, &sweep->coverage);
        sampled = status != TUTTI_ERR_UNSUPPORTED || too_wide || n_steps > TUTTI_SWEEP_LONG; /* else in full */
        if (sampled) TUTTI_TRY(status);
    }
    if (!sampled) TUTTI_TRY(tutti_verify(algorithm, kind, shape, &verdict));
    sweep->n_shapes++;
    sweep->n_sampled += sampled;
    sweep->n_schedules += shape->size;
    sweep->n_steps += verdict.n_steps, sweep->n_messages += verdict.n_messages;
    if (verdict.ok) return TUTTI_OK;
    if (sweep->first.ok) sweep->first = verdict, sweep->refused = *shape;
    sweep->n_refused++;
    return TUTTI_OK;
}

enum tutti_status tutti_verify_sweep(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t first,
                                     uint32_t last, const struct tutti_sweep_depth *depth, struct tutti_sweep *out)
{
    enum tutti_status status = TUTTI_OK;
    struct tutti_shape *shapes = tutti_alloc_array(TUTTI_SWEEP_SHAPES, sizeof *shapes);
    if (!shapes) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the shapes to check");
    *out = (struct tutti_sweep){.first.ok = true};
    for (uint32_t size = first; size <= last; size++) {
        const size_t n = tutti_sweep_shapes(algorithm, kind, size, shapes, TUTTI_SWEEP_SHAPES);
        for (size_t i = 0; i < n && (depth->all || out->first.ok); i++)
            TUTTI_TRY_GOTO(status, tutti_sweep_check(algorithm, kind, &shapes[i], depth, out), err_shapes);
    }
err_shapes:
    tutti_free(shapes);
    return status;
}

/* ---- the smallest counterexample ---- */

/* Which of two shapes of one size is simpler: as a number. */
static uint64_t complexity(const struct tutti_shape *shape)
{
    uint64_t runs = 0;
    for (uint32_t l = 0; l < shape->n_levels; l++) runs += shape->levels[l].n_runs;
    return (uint64_t)shape->n_levels << 60 | runs << 54 | (uint64_t)(shape->radix & 0x7ffffff) << 27 |
           (shape->root & 0x7ffffff);
}

/* Shapes of a size that are like the refused one: its root, radix and width of groups as far as they fit. */
static size_t alike(const struct tutti_algorithm *algorithm, enum tutti_kind kind, const struct tutti_shape *refused,
                    uint32_t size, struct tutti_shape *out)
{
    const uint32_t roots[] = {0, size > 1, refused->root % size, size - 1};
    const uint32_t radices[] = {0, refused->radix};
    const uint32_t width = refused->n_levels ? refused->levels[0].runs[0].size : 0;
    size_t n = 0;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(roots) * TUTTI_ARRAY_LEN(radices) * 2; i++) {
        struct tutti_shape shape = {.size = size, .root = roots[i / 4], .radix = radices[i / 2 % 2]};
        if (i % 2 && (!width || !levels_even(&shape, refused->n_levels, width, UINT32_MAX))) continue;
        if (size == refused->size && complexity(&shape) >= complexity(refused)) continue;
        if (tutti_algorithm_fits(algorithm, kind, &shape, NULL, 0)) out[n++] = shape;
    }
    return n;
}

static int by_complexity(const void *a, const void *b)
{
    const uint64_t x = complexity(a), y = complexity(b);
    return x < y ? -1 : x > y;
}

enum tutti_status tutti_sweep_shrink(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t proved,
                                     struct tutti_sweep *sweep)
{
    enum { ALL_SHAPES = 64 }; /* sizes up to this one are tried in all shapes of the sweep */
    const struct tutti_shape refused = sweep->refused;
    const uint64_t most_steps = UINT64_C(100) << 20;
    struct tutti_shape *shapes = tutti_alloc_array(TUTTI_SWEEP_SHAPES + 16, sizeof *shapes);
    enum tutti_status status = TUTTI_OK;
    uint64_t n_steps = 0;
    bool found = false;
    if (!shapes) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the shapes to check");
    for (uint32_t size = 1; size <= refused.size && !found && n_steps < most_steps; size++) {
        if (size >= proved && size < refused.size) continue;
        size_t n = size <= ALL_SHAPES ? tutti_sweep_shapes(algorithm, kind, size, shapes, TUTTI_SWEEP_SHAPES) : 0;
        n += alike(algorithm, kind, &refused, size, shapes + n);
        qsort(shapes, n, sizeof *shapes, by_complexity);
        for (size_t i = 0; i < n && !found && n_steps < most_steps; i++) {
            struct tutti_verdict verdict;
            if (size == refused.size && complexity(&shapes[i]) >= complexity(&refused)) break;
            sweep->n_tried++;
            sweep->shape = shapes[i];
            TUTTI_TRY_GOTO(status, tutti_verify(algorithm, kind, &shapes[i], &verdict), err_shapes);
            n_steps += verdict.n_steps + size;
            found = !verdict.ok && verdict.finding == sweep->first.finding;
            if (found) sweep->first = verdict, sweep->refused = shapes[i];
        }
    }
err_shapes:
    tutti_free(shapes);
    return status;
}
