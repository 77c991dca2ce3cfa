/* SPDX-License-Identifier: BSD-3-Clause */

/* Hierarchical: slots are in groups (hosts), these in groups (racks), as the levels of the shape say; sizes may differ
 * (8,8,7,8). What can stay inside a group does: from each group one slot, its lead, goes on to the next level.
 *
 *     levels 3,3,2      0 1 2 | 3 4 5 | 6 7     stage 0: in each group to or from its lead
 *     root 4              1       4      7      stage 1: among the leads
 *
 * The lead has the place in its group that the root has in its own (or the last one there is). So the root is a lead
 * itself, and as roots change all slots, and all network cards, take turns. Inside a stage, leads that are equally far
 * apart are one `call` step; a ragged group is a few such runs, whose heads send to the lead directly. Groups are
 * consecutive slots and heads combine in order, so a fold keeps the operands' order.
 *
 * Everything is made of two passes, up (reduce, gather) and down (broadcast, scatter), for a root:
 *     reduce_scatter: up with root j and chunk j, for every j.   all_gather: down with root j and chunk j, for every j.
 *     Inside equal groups that is one reduce_scatter or all_gather of the blocks of each group.
 *     all_reduce: cut into parts with roots spread over the slots, up and then down: all slots share the work. The
 * radix is the number of parts: hierarchical:1 has one lead a group, the default, one part a slot, the fewest bytes.
 * With fewer parts than slots, and few equal groups, leads exchange theirs, in half the hops of up and down.
 *     broadcast: inside the root's group first; there each slot is the lead of a part, which goes down to the others.
 * all_gather takes radix 1, too: all blocks go up to slot 0, and down from there as one.
 *
 * Karonis et al.: Exploiting hierarchy in parallel computer networks to optimize collective operation performance
 * (IPDPS 2000); Träff: Efficient allgather for regular SMP clusters (EuroPVM/MPI 2006). */

#include "algo/parts.h"

/* ---- units: at level 0 the slots, at level l the groups of level l - 1; at level n_levels all are one group ---- */

struct group {
    uint32_t index, first, n; /* its number, and its units */
};

static struct group group_of(const struct tutti_shape *shape, uint32_t level, uint32_t unit)
{
    const struct tutti_level *runs = &shape->levels[level];
    uint32_t index = 0, first = 0;

    for (uint32_t r = 0; r < runs->n_runs; r++) {
        uint32_t size = runs->runs[r].size, repeat = runs->runs[r].repeat;
        uint32_t within = (unit - first) / size;
        if (within < repeat) return (struct group){index + within, first + within * size, size};
        index += repeat;
        first += repeat * size;
    }
    return (struct group){index, first, 1}; /* levels that add up do not get here */
}

static struct group group_at(const struct tutti_shape *shape, uint32_t level, uint32_t index)
{
    const struct tutti_level *runs = &shape->levels[level];
    uint32_t before = 0, first = 0;

    for (uint32_t r = 0; r < runs->n_runs; r++) {
        uint32_t size = runs->runs[r].size, repeat = runs->runs[r].repeat;
        if (index - before < repeat) return (struct group){index, first + (index - before) * size, size};
        before += repeat;
        first += repeat * size;
    }
    return (struct group){index, first, 1};
}

static uint32_t n_units(const struct tutti_shape *shape, uint32_t level)
{
    uint32_t n = 0;

    if (level == 0) return shape->size;
    for (uint32_t r = 0; r < shape->levels[level - 1].n_runs; r++) n += shape->levels[level - 1].runs[r].repeat;
    return n;
}

/* The unit of `level` that slot is in. */
static uint32_t unit_of(const struct tutti_shape *shape, uint32_t level, uint32_t slot)
{
    for (uint32_t l = 0; l < level; l++) slot = group_of(shape, l, slot).index;
    return slot;
}

static uint32_t first_slot(const struct tutti_shape *shape, uint32_t level, uint32_t unit)
{
    for (uint32_t l = level; l > 0; l--) unit = group_at(shape, l - 1, unit).first;
    return unit;
}

/* A unit: its lead for this root, and its slots. */
struct member {
    uint32_t lead, first, n;
};

static struct member member_of(const struct tutti_shape *shape, uint32_t root, uint32_t level, uint32_t unit)
{
    struct member member = {.first = first_slot(shape, level, unit)};

    member.n = (unit + 1 < n_units(shape, level) ? first_slot(shape, level, unit + 1) : shape->size) - member.first;
    for (uint32_t l = level; l > 0; l--) {
        uint32_t at = unit_of(shape, l - 1, root);
        struct group group = group_at(shape, l - 1, unit), home = group_of(shape, l - 1, at);
        uint32_t offset = at - home.first;
        unit = group.first + (offset < group.n ? offset : group.n - 1);
    }
    member.lead = unit;
    return member;
}

/* ---- stages ---- */

struct stage {
    const struct tutti_shape *shape;
    uint32_t root, level;
    uint32_t first, n; /* units of the group */
    struct member own; /* the slot's unit */
    uint32_t lead;     /* the group's */
};

/* The stage of the shape's slot; false when it has no part in it. */
static bool stage_find(const struct tutti_shape *shape, uint32_t root, uint32_t level, struct stage *stage)
{
    uint32_t unit = unit_of(shape, level, shape->slot);

    stage->shape = shape, stage->root = root, stage->level = level;
    stage->own = member_of(shape, root, level, unit);
    if (stage->own.lead != shape->slot) return false;
    if (level == shape->n_levels) {
        stage->first = 0, stage->n = n_units(shape, level), stage->lead = root;
    } else {
        struct group group = group_of(shape, level, unit);
        stage->first = group.first, stage->n = group.n;
        stage->lead = member_of(shape, root, level + 1, group.index).lead;
    }
    return true;
}

/* Members of one stage that are equally wide and equally far apart. */
struct run {
    uint32_t unit, n;
    struct member first;
    uint32_t head; /* a lead: the group's if it is in the run */
};

/* Whether all groups below this level are equally large, as most are: then no unit has to be looked at. */
static bool units_are_alike(const struct tutti_shape *shape, uint32_t level)
{
    for (uint32_t l = 0; l < level; l++)
        if (shape->levels[l].n_runs != 1) return false;
    return true;
}

/* The run that starts at `unit`. */
static struct run run_at(const struct stage *stage, uint32_t unit)
{
    struct member first = member_of(stage->shape, stage->root, stage->level, unit);
    uint32_t end = stage->first + stage->n, n = 1;

    if (units_are_alike(stage->shape, stage->level)) n = end - unit;
    for (; unit + n < end; n++) {
        struct member member = member_of(stage->shape, stage->root, stage->level, unit + n);
        if (member.n != first.n || member.lead != first.lead + n * first.n) break;
    }
    /* The lead of the group is one of the run if its slot is. */
    bool has_lead = stage->lead >= first.first && stage->lead < first.first + n * first.n;
    return (struct run){unit, n, first, has_lead ? stage->lead : first.lead};
}

/* ---- what travels ---- */

enum content { PART, BLOCKS, TOKEN }; /* some chunks as one, the chunks of a unit's slots, or a barrier's token */

struct cargo {
    enum content content;
    uint32_t chunk, n; /* PART's */
};

static uint32_t cargo_chunk(const struct cargo *cargo, const struct member *member)
{
    return cargo->content == BLOCKS ? member->first : cargo->chunk;
}

static uint32_t cargo_n(const struct cargo *cargo, uint32_t n_slots)
{
    return cargo->content == BLOCKS ? n_slots : cargo->n;
}

static void call_run(const struct run *run, const struct cargo *cargo, enum tutti_kind kind, struct tutti_emit *emit)
{
    bool blocks = cargo->content == BLOCKS;
    struct tutti_view view = {.base = run->first.lead,
                              .stride = run->first.n,
                              .size = run->n,
                              .chunk = cargo_chunk(cargo, &run->first),
                              .n_chunks = blocks ? run->n : 1,
                              .width = blocks ? run->first.n : cargo->n,
                              /* A group has a member. NOLINTNEXTLINE(clang-analyzer-core.DivideZero) */
                              .root = (run->head - run->first.lead) / run->first.n};

    if (run->n > 1) tutti_emit_call(emit, kind, &view);
}

static const enum tutti_kind up_kinds[] = {[PART] = TUTTI_REDUCE, [BLOCKS] = TUTTI_GATHER, [TOKEN] = TUTTI_BARRIER};
static const enum tutti_kind down_kinds[] = {
    [PART] = TUTTI_BROADCAST, [BLOCKS] = TUTTI_SCATTER, [TOKEN] = TUTTI_BARRIER};

/* What head of a run brings to the lead of the group. */
static void take(const struct run *run, const struct cargo *cargo, enum tutti_side side, struct tutti_emit *emit)
{
    uint32_t chunk = cargo_chunk(cargo, &run->first), n = cargo_n(cargo, run->n * run->first.n);

    if (cargo->content == PART)
        tutti_emit_recv_reduce(emit, run->head, TUTTI_DATA, chunk, n, side);
    else
        tutti_emit_recv(emit, run->head, TUTTI_DATA, chunk, n);
}

/* The lead takes the runs to its right in order, then those to its left from the nearest on. */
static void take_all(const struct stage *stage, const struct cargo *cargo, struct tutti_emit *emit)
{
    uint32_t end = stage->first + stage->n, before = 0;
    bool passed = false;

    for (uint32_t unit = stage->first; unit < end;) {
        struct run run = run_at(stage, unit);
        if (run.head == stage->lead)
            passed = true;
        else if (passed)
            take(&run, cargo, TUTTI_RIGHT, emit);
        else
            before++;
        unit += run.n;
    }
    for (; before > 0; before--) {
        struct run run = run_at(stage, stage->first);
        for (uint32_t i = 1; i < before; i++) run = run_at(stage, run.unit + run.n);
        take(&run, cargo, TUTTI_LEFT, emit);
    }
}

static struct run own_run(const struct stage *stage)
{
    struct run run = run_at(stage, stage->first);

    while (run.first.first + run.n * run.first.n <= stage->shape->slot) run = run_at(stage, run.unit + run.n);
    return run;
}

static void up(const struct tutti_shape *shape, uint32_t root, uint32_t level, const struct cargo *cargo,
               struct tutti_emit *emit)
{
    struct stage stage;

    if (!stage_find(shape, root, level, &stage)) return;
    struct run run = own_run(&stage);
    call_run(&run, cargo, up_kinds[cargo->content], emit);
    if (shape->slot == stage.lead)
        take_all(&stage, cargo, emit);
    else if (shape->slot == run.head)
        tutti_emit_send(emit, stage.lead, TUTTI_DATA, cargo_chunk(cargo, &run.first),
                        cargo_n(cargo, run.n * run.first.n));
}

static void down(const struct tutti_shape *shape, uint32_t root, uint32_t level, const struct cargo *cargo,
                 struct tutti_emit *emit)
{
    struct stage stage;

    if (!stage_find(shape, root, level, &stage)) return;
    struct run run = own_run(&stage);
    uint32_t end = stage.first + stage.n;
    /* The barrier of the uppermost leads has told all of them on the way up. */
    if (cargo->content == TOKEN && level == shape->n_levels && run.n == stage.n) return;
    if (shape->slot == stage.lead) {
        for (uint32_t unit = stage.first; unit < end;) {
            struct run other = run_at(&stage, unit);
            if (other.head != stage.lead)
                tutti_emit_send(emit, other.head, TUTTI_DATA, cargo_chunk(cargo, &other.first),
                                cargo_n(cargo, other.n * other.first.n));
            unit += other.n;
        }
    } else if (shape->slot == run.head) {
        tutti_emit_recv(emit, stage.lead, TUTTI_DATA, cargo_chunk(cargo, &run.first),
                        cargo_n(cargo, run.n * run.first.n));
    }
    call_run(&run, cargo, down_kinds[cargo->content], emit);
}

/* ---- the kinds ---- */

static uint32_t stages(const struct tutti_shape *shape)
{
    return shape->n_levels + 1;
}

static void reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    up(shape, shape->root, round, &(struct cargo){PART, 0, 1}, emit);
}

static void gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    up(shape, shape->root, round, &(struct cargo){BLOCKS, 0, 0}, emit);
}

/* A broadcast in parts: inside the root's group first, where each part has a lead, from which it goes to the others. */
static uint32_t broadcast_parts(const struct tutti_shape *shape)
{
    const uint32_t wide = group_of(shape, 0, shape->root).n;

    return shape->radix > 0 && shape->radix < wide ? shape->radix : wide;
}

static uint32_t broadcast_rounds(const struct tutti_shape *shape)
{
    const uint32_t parts = broadcast_parts(shape);

    return parts > 1 ? (stages(shape) + 1) * parts : stages(shape);
}

static void broadcast_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    const struct group home = group_of(shape, 0, shape->root);
    const uint32_t parts = broadcast_parts(shape), stage = round / parts, part = round % parts;
    const bool at_home = shape->slot - home.first < home.n;
    const struct cargo cargo = {PART, part, 1};

    if (parts == 1)
        down(shape, shape->root, shape->n_levels - round, &cargo, emit);
    else if (stage == 0 && at_home)
        down(shape, shape->root, 0, &cargo, emit);
    else if (stage > 0 && (stage < stages(shape) || !at_home))
        down(shape, home.first + part * (home.n / parts), stages(shape) - stage, &cargo, emit);
}

static void scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    down(shape, shape->root, shape->n_levels - round, &(struct cargo){BLOCKS, 0, 0}, emit);
}

/* Rounds count stages first and parts within a stage, so that the parts of a stage overlap. */
static uint32_t n_parts(const struct tutti_shape *shape)
{
    return shape->radix > 0 && shape->radix < shape->size ? shape->radix : shape->size;
}

/* Whether the uppermost leads exchange what they have, in half the hops of up and down: few parts, equal groups, and
 * not so many of these that the messages matter, of which there are more. */
static bool exchanges(const struct tutti_shape *shape)
{
    return n_parts(shape) < shape->size && units_are_alike(shape, shape->n_levels) &&
           n_units(shape, shape->n_levels) <= TUTTI_EXCHANGING_GROUPS;
}

/* Roots are equally far apart. Where there are fewer of them than groups, they take turns in their places in the group,
 * lest all have the same one, and one slot of each group, with its network card, all the work. Those that exchange
 * are all roots, and places alone count. */
static uint32_t part_root(const struct tutti_shape *shape, uint32_t part)
{
    uint32_t slot = (uint32_t)((uint64_t)part * shape->size / n_parts(shape)), wide = shape->levels[0].runs[0].size;
    if (exchanges(shape)) return n_parts(shape) < wide ? part * (wide / n_parts(shape)) : part % wide;
    if (n_parts(shape) > n_units(shape, 1)) return slot;
    struct group home = group_of(shape, 0, slot);
    return home.first + part % home.n;
}

static uint32_t all_reduce_rounds(const struct tutti_shape *shape)
{
    return 2 * stages(shape) * n_parts(shape);
}

static void exchange(const struct tutti_shape *shape, uint32_t root, const struct cargo *cargo, struct tutti_emit *emit)
{
    struct stage stage;

    if (!stage_find(shape, root, shape->n_levels, &stage)) return;
    const struct run run = own_run(&stage);
    call_run(&run, cargo, TUTTI_ALL_REDUCE, emit);
}

static void all_reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t parts = n_parts(shape), stage = round / parts, part = round % parts;
    struct cargo cargo = {PART, part, 1};
    bool at_top = exchanges(shape) && (stage == shape->n_levels || stage == stages(shape));

    if (at_top && stage == stages(shape)) return; /* all leads have it */
    if (at_top)
        exchange(shape, part_root(shape, part), &cargo, emit);
    else if (stage < stages(shape))
        up(shape, part_root(shape, part), stage, &cargo, emit);
    else
        down(shape, part_root(shape, part), 2 * stages(shape) - 1 - stage, &cargo, emit);
}

/* In equal groups, one call for the blocks of each group: `block` is its first. */
static void call_group(const struct tutti_shape *shape, enum tutti_kind kind, uint32_t block, struct tutti_emit *emit)
{
    const struct group own = group_of(shape, 0, shape->slot);

    if (own.n > 1 && block % own.n == 0)
        tutti_emit_call(
            emit, kind,
            &(struct tutti_view){
                .base = own.first, .stride = 1, .size = own.n, .chunk = block, .n_chunks = own.n, .width = 1});
}

static uint32_t stages_of_all(const struct tutti_shape *shape)
{
    return stages(shape) * shape->size;
}

static void reduce_scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t block = round % shape->size, stage = round / shape->size;

    if (stage == 0 && units_are_alike(shape, 1))
        call_group(shape, TUTTI_REDUCE_SCATTER, block, emit);
    else
        up(shape, block, stage, &(struct cargo){PART, block, 1}, emit);
}

static uint32_t all_gather_rounds(const struct tutti_shape *shape)
{
    return shape->radix == 1 ? 2 * stages(shape) : stages_of_all(shape);
}

static void all_gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t block = round % shape->size;

    if (shape->radix == 1 && round < stages(shape))
        up(shape, 0, round, &(struct cargo){BLOCKS, 0, 0}, emit);
    else if (shape->radix == 1)
        down(shape, 0, 2 * stages(shape) - 1 - round, &(struct cargo){PART, 0, shape->size}, emit);
    else if (round / shape->size == shape->n_levels && units_are_alike(shape, 1))
        call_group(shape, TUTTI_ALL_GATHER, block, emit);
    else
        down(shape, block, shape->n_levels - round / shape->size, &(struct cargo){PART, block, 1}, emit);
}

static uint32_t barrier_rounds(const struct tutti_shape *shape)
{
    return 2 * stages(shape);
}

/* A group's barrier on the way up says that all are there, and on the way down, where the lead comes late, that all
 * others are. */
static void barrier_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    struct cargo token = {TOKEN, 0, 1};

    if (round < stages(shape))
        up(shape, 0, round, &token, emit);
    else
        down(shape, 0, 2 * stages(shape) - 1 - round, &token, emit);
}

const struct tutti_algorithm tutti_algorithm_hierarchical = {
    .name = "hierarchical",
    .help = "inside the groups of each level, then among their leads (hierarchical:1: by one lead a group)",
    .source = "Karonis et al., IPDPS 2000; Träff, EuroPVM/MPI 2006",
    .kinds = {[TUTTI_ALL_REDUCE] = TUTTI_OPS(.needs = TUTTI_NEEDS_LEVELS | TUTTI_TAKES_RADIX, .chunks = n_parts,
                                             .rounds = all_reduce_rounds, .round = all_reduce_round),
              [TUTTI_REDUCE] = TUTTI_OPS(.needs = TUTTI_NEEDS_LEVELS, .rounds = stages, .round = reduce_round),
              [TUTTI_BROADCAST] = TUTTI_OPS(.needs = TUTTI_NEEDS_LEVELS | TUTTI_TAKES_RADIX, .chunks = broadcast_parts,
                                            .rounds = broadcast_rounds, .round = broadcast_round),
              [TUTTI_ALL_GATHER] = TUTTI_OPS(.needs = TUTTI_NEEDS_LEVELS | TUTTI_TAKES_RADIX,
                                             .rounds = all_gather_rounds, .round = all_gather_round),
              [TUTTI_GATHER] = TUTTI_OPS(.needs = TUTTI_NEEDS_LEVELS, .rounds = stages, .round = gather_round),
              [TUTTI_SCATTER] = TUTTI_OPS(.needs = TUTTI_NEEDS_LEVELS, .rounds = stages, .round = scatter_round),
              [TUTTI_REDUCE_SCATTER] =
                  TUTTI_OPS(.needs = TUTTI_NEEDS_LEVELS, .rounds = stages_of_all, .round = reduce_scatter_round),
              [TUTTI_BARRIER] =
                  TUTTI_OPS(.needs = TUTTI_NEEDS_LEVELS, .rounds = barrier_rounds, .round = barrier_round)},
};
