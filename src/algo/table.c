/* SPDX-License-Identifier: BSD-3-Clause */

/* The table of algorithms, look-up by name, and which of them is the meaning of a call. */

#include "algo/parts.h"

#include "sched/sched.h"

#include <stdatomic.h>
#include <string.h>

#define TUTTI_ALGORITHM_ROW(name) &tutti_algorithm_##name,
const struct tutti_algorithm *const tutti_algorithms[] = {TUTTI_ALGORITHMS(TUTTI_ALGORITHM_ROW)};
#undef TUTTI_ALGORITHM_ROW
const size_t tutti_n_algorithms = TUTTI_ARRAY_LEN(tutti_algorithms);

/* all_gather and reduce_scatter as one call for each block, from its owner or to it: where nobody carries out the
 * whole, somebody may carry out these. */
static void call_for_block(enum tutti_kind kind, const struct tutti_shape *shape, uint32_t block,
                           struct tutti_emit *emit)
{
    const struct tutti_view view = {
        .stride = 1, .size = shape->size, .chunk = block, .n_chunks = 1, .width = 1, .root = block};

    tutti_emit_call(emit, kind, &view);
}

static void gather_block(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    call_for_block(TUTTI_BROADCAST, shape, round, emit);
}

static void scatter_block(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    call_for_block(TUTTI_REDUCE, shape, round, emit);
}

static const struct tutti_algorithm block_by_block = {
    .name = "block_by_block",
    .kinds = {[TUTTI_ALL_GATHER] = TUTTI_OPS(.rounds = tutti_one_a_slot, .round = gather_block),
              [TUTTI_REDUCE_SCATTER] = TUTTI_OPS(.rounds = tutti_one_a_slot, .round = scatter_block)}};

/* What a call step means by itself. One chunk or one chunk a block, so that any view can be cut; all of them
 * keep the operands' order, so a caller may, too. */
static const struct tutti_algorithm *const references[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = &tutti_algorithm_recursive_doubling,
    [TUTTI_REDUCE] = &tutti_algorithm_tree,
    [TUTTI_BROADCAST] = &tutti_algorithm_tree,
    [TUTTI_ALL_GATHER] = &block_by_block,
    [TUTTI_GATHER] = &tutti_algorithm_tree,
    [TUTTI_SCATTER] = &tutti_algorithm_tree,
    [TUTTI_REDUCE_SCATTER] = &block_by_block,
    [TUTTI_ALL_TO_ALL] = &tutti_algorithm_direct,
    [TUTTI_BARRIER] = &tutti_algorithm_tree,
    [TUTTI_SCAN] = &tutti_algorithm_direct,
    [TUTTI_EXSCAN] = &tutti_algorithm_direct,
};

static const struct tutti_algorithm *reference(enum tutti_kind kind, const struct tutti_shape *sub)
{
    (void)sub; /* one for all sizes */
    return references[kind];
}

__attribute__((constructor)) void tutti_algorithms_init(void)
{
    tutti_schedule_set_reference(reference);
}

/* The digits of a radix, 1 to 2^16; 0 when it is none of them. */
static uint32_t parse_radix(const char *text)
{
    uint32_t radix = 0;

    if (*text == '\0') return 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || radix > 65536) return 0;
        radix = radix * 10 + (uint32_t)(*text - '0');
    }
    return radix <= 65536 ? radix : 0;
}

static _Atomic(const struct tutti_loaded *) newest;

void tutti_loaded_add(struct tutti_loaded *loaded)
{
    loaded->older = atomic_load(&newest);
    atomic_store(&newest, loaded);
}

const struct tutti_loaded *tutti_loaded_newest(void)
{
    return atomic_load(&newest);
}

static bool is(const char *known, const char *name, size_t length)
{
    return known[0] == name[0] && strlen(known) == length && memcmp(known, name, length) == 0;
}

static const struct tutti_algorithm *find(const char *name, size_t length)
{
    for (size_t i = 0; i < tutti_n_algorithms; i++)
        if (is(tutti_algorithms[i]->name, name, length)) return tutti_algorithms[i];
    for (const struct tutti_loaded *loaded = tutti_loaded_newest(); loaded; loaded = loaded->older)
        if (is(loaded->path, name, length) || is(loaded->algorithm->name, name, length)) return loaded->algorithm;
    return NULL;
}

const struct tutti_algorithm *tutti_algorithm_find(const char *name, uint32_t *radix)
{
    const char *colon = strrchr(name, ':');
    const uint32_t parsed = colon ? parse_radix(colon + 1) : 0;
    const struct tutti_algorithm *found = find(name, parsed ? (size_t)(colon - name) : strlen(name));
    if (found && radix) *radix = parsed;
    return found;
}
