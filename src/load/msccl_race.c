/* SPDX-License-Identifier: BSD-3-Clause */
/* Races, by vector clocks: for some GPUs at a time, all steps of the plan are gone through in an order in which they
 * can run; a clock says how many steps of each thread block of those GPUs are over for certain before a step begins: by
 * the block's own sequence, by waits, and by messages, also those that went over other GPUs. Room in a connection
 * orders nothing: it depends on the protocol. */

#include "load/msccl.h"

#include <stdio.h>
#include <string.h>

#define MOST_WORK (UINT64_C(1) << 32)   /* clocks' entries gone through */
#define MOST_CLOCKS (UINT64_C(1) << 25) /* kept at once */
#define MOST_CELLS (UINT64_C(1) << 23)
enum { SOME_BLOCKS = 64 }; /* thread blocks looked at in one pass, if no GPU has more */

/* A read of a chunk since it was written last. */
struct reader {
    uint32_t block, step;
    uint32_t older;
};
struct cell {
    uint32_t block, step; /* the last write; NONE */
    uint32_t readers;     /* the last of them; NONE */
    bool defined;
};
struct race {
    const struct tutti_msccl *plan;
    const struct tutti_msccl_order *order;
    uint32_t first, width; /* the blocks of the GPUs at hand */
    uint32_t *clocks;      /* width each: blocks', then connections' messages, then signals' */
    uint32_t *signals;     /* by step: its number among those that signal */
    uint32_t *waits;       /* by step: the number of the signal that it waits for; NONE */
    uint32_t *sent, *received;
    uint32_t n_signals;
    struct cell *cells; /* a GPU's: input and output, or in place the one memory; then scratch */
    size_t *base;       /* by GPU: where its cells begin */
    struct reader *readers;
    uint32_t n_readers, reader_capacity;
};

/* ---- chunks ---- */

static struct cell *cell_of(const struct race *race, uint32_t gpu, uint8_t buffer, uint32_t chunk)
{
    const struct tutti_msccl *plan = race->plan;
    struct cell *cells = race->cells + race->base[gpu];
    if (buffer == TUTTI_MSCCL_SCRATCH) return cells + 2 * plan->n_chunks + chunk;
    if (plan->in_place) return cells + tutti_msccl_base(plan, gpu, (enum tutti_msccl_buffer)buffer) + chunk;
    return cells + (buffer == TUTTI_MSCCL_INPUT ? 0 : plan->n_chunks) + chunk;
}

static size_t cells_of(const struct tutti_msccl *plan, uint32_t gpu)
{
    return 2 * (size_t)plan->n_chunks + plan->gpus[gpu].n_scratch;
}

/* What the GPU holds before. */
static void cells_fill(struct race *race, uint32_t gpu)
{
    const struct tutti_msccl *plan = race->plan;
    const struct tutti_kind_info *info = tutti_kind_info(plan->kind);
    const struct tutti_shape shape = {.slot = gpu, .size = plan->n_gpus};
    const uint32_t per_block = plan->n_chunks / tutti_kind_blocks(plan->kind, plan->n_gpus);
    const bool has_input = tutti_side_is_at(info->send, gpu, 0);
    struct cell *cells = race->cells + race->base[gpu];
    const size_t n = cells_of(plan, gpu);
    for (size_t c = 0; c < n; c++) cells[c] = (struct cell){.block = TUTTI_MSCCL_NONE, .readers = TUTTI_MSCCL_NONE};
    for (uint32_t c = 0; c < plan->n_chunks; c++)
        cells[c].defined = has_input && (!plan->in_place || info->separate_in ||
                                         tutti_kind_before(plan->kind, &shape, c / per_block) != TUTTI_HOLDS_NOTHING);
}

/* ---- accesses ---- */

static bool is_before(const uint32_t *clock, const struct race *race, uint32_t own, uint32_t block, uint32_t step)
{
    const struct tutti_msccl_block *b = &race->plan->blocks[block];
    return block == own || clock[block - race->first] > step - b->first;
}

static enum tutti_status refuse(const struct race *race, uint32_t block, uint32_t step, const char *does,
                                uint8_t buffer, uint32_t chunk, uint32_t other, uint32_t other_step,
                                const char *other_does)
{
    char here[TUTTI_MSCCL_WHERE], there[TUTTI_MSCCL_WHERE];
    return tutti_fail(TUTTI_ERR_ARGUMENT,
                      "%s:%u: race: %s %s %c%u, %s %s it, and neither waits nor messages order them", race->plan->file,
                      race->plan->steps[step].line, tutti_msccl_where(race->plan, block, step, here), does,
                      "ios"[buffer], chunk, tutti_msccl_where(race->plan, other, other_step, there), other_does);
}

static enum tutti_status reader_add(struct race *race, struct cell *cell, uint32_t block, uint32_t step)
{
    if (cell->readers != TUTTI_MSCCL_NONE && race->readers[cell->readers].block == block) {
        race->readers[cell->readers].step = step;
        return TUTTI_OK;
    }
    if (race->n_readers == race->reader_capacity) {
        const uint32_t capacity = 2 * race->reader_capacity + 256;
        struct reader *grown = tutti_alloc_array(capacity, sizeof *grown);
        if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to look for races");
        if (race->n_readers > 0) memcpy(grown, race->readers, race->n_readers * sizeof *grown);
        tutti_free(race->readers);
        race->readers = grown;
        race->reader_capacity = capacity;
    }
    race->readers[race->n_readers] = (struct reader){block, step, cell->readers};
    cell->readers = race->n_readers++;
    return TUTTI_OK;
}

static enum tutti_status read_chunks(struct race *race, const uint32_t *clock, uint32_t block, uint32_t step,
                                     uint8_t buffer, uint32_t first)
{
    for (uint32_t c = first; c < first + race->plan->steps[step].n; c++) {
        struct cell *cell = cell_of(race, race->plan->blocks[block].gpu, buffer, c);
        char here[TUTTI_MSCCL_WHERE];
        if (cell->block != TUTTI_MSCCL_NONE && !is_before(clock, race, block, cell->block, cell->step))
            return refuse(race, block, step, "reads", buffer, c, cell->block, cell->step, "writes");
        if (!cell->defined)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s reads %c%u, which holds nothing: it was never written",
                              race->plan->file, race->plan->steps[step].line,
                              tutti_msccl_where(race->plan, block, step, here), "ios"[buffer], c);
        TUTTI_TRY(reader_add(race, cell, block, step));
    }
    return TUTTI_OK;
}

static enum tutti_status write_chunks(struct race *race, const uint32_t *clock, uint32_t block, uint32_t step)
{
    const struct tutti_msccl_step *s = &race->plan->steps[step];
    for (uint32_t c = s->dst; c < s->dst + s->n; c++) {
        struct cell *cell = cell_of(race, race->plan->blocks[block].gpu, s->dst_buffer, c);
        if (cell->block != TUTTI_MSCCL_NONE && !is_before(clock, race, block, cell->block, cell->step))
            return refuse(race, block, step, "writes", s->dst_buffer, c, cell->block, cell->step, "writes");
        for (uint32_t r = cell->readers; r != TUTTI_MSCCL_NONE; r = race->readers[r].older) {
            const struct reader *reader = &race->readers[r];
            if (!is_before(clock, race, block, reader->block, reader->step))
                return refuse(race, block, step, "writes", s->dst_buffer, c, reader->block, reader->step, "reads");
        }
        *cell = (struct cell){.block = block, .step = step, .readers = TUTTI_MSCCL_NONE, .defined = true};
    }
    return TUTTI_OK;
}

static enum tutti_status access_all(struct race *race, const uint32_t *clock, uint32_t block, uint32_t step)
{
    const struct tutti_msccl_step *s = &race->plan->steps[step];
    if (s->does & TUTTI_MSCCL_READS) TUTTI_TRY(read_chunks(race, clock, block, step, s->src_buffer, s->src));
    if (s->does & TUTTI_MSCCL_ADDS_DST) TUTTI_TRY(read_chunks(race, clock, block, step, s->dst_buffer, s->dst));
    return s->does & TUTTI_MSCCL_WRITES ? write_chunks(race, clock, block, step) : TUTTI_OK;
}

/* ---- clocks ---- */

static uint32_t *clock_of_block(const struct race *race, uint32_t block)
{
    return race->clocks + (size_t)block * race->width;
}

static uint32_t *clock_of_message(const struct race *race, uint32_t connection, uint32_t number)
{
    return clock_of_block(race, race->plan->n_blocks) +
           (TUTTI_MSCCL_MOST_SLOTS * (size_t)connection + number % TUTTI_MSCCL_MOST_SLOTS) * race->width;
}

static uint32_t *clock_of_signal(const struct race *race, uint32_t signal)
{
    return clock_of_message(race, race->plan->n_connections, 0) + (size_t)signal * race->width;
}

static void merge(uint32_t *clock, const uint32_t *other, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        if (other[i] > clock[i]) clock[i] = other[i];
}

static void merge_signal(const struct race *race, uint32_t *clock, uint32_t step)
{
    if (race->waits[step] != TUTTI_MSCCL_NONE) merge(clock, clock_of_signal(race, race->waits[step]), race->width);
}

static enum tutti_status step_through(struct race *race, const struct tutti_msccl_event *event)
{
    const struct tutti_msccl_block *block = &race->plan->blocks[event->block];
    const struct tutti_msccl_step *step = &race->plan->steps[event->step];
    uint32_t *clock = clock_of_block(race, event->block);
    for (uint32_t k = event->step; k > block->first && !race->plan->steps[k - 1].does; k--)
        merge_signal(race, clock, k - 1);
    merge_signal(race, clock, event->step);
    if (step->does & TUTTI_MSCCL_RECEIVES)
        merge(clock, clock_of_message(race, block->in, race->received[block->in]++), race->width);
    if (event->block >= race->first && event->block < race->first + race->width) {
        TUTTI_TRY(access_all(race, clock, event->block, event->step));
        clock[event->block - race->first] = event->step - block->first + 1;
    }
    if (step->does & TUTTI_MSCCL_SENDS)
        memcpy(clock_of_message(race, block->out, race->sent[block->out]++), clock, race->width * sizeof *clock);
    if (step->signals) memcpy(clock_of_signal(race, race->signals[event->step]), clock, race->width * sizeof *clock);
    return TUTTI_OK;
}

/* ---- the whole ---- */

/* The checker takes a chunk of the result that an out-of-place plan never writes for the input, as if in place, and
 * finds nothing wrong: so it is looked for here. */
static enum tutti_status check_written(const struct race *race, uint32_t gpu)
{
    const struct tutti_msccl *plan = race->plan;
    if (plan->in_place || !tutti_side_is_at(tutti_kind_info(plan->kind)->recv, gpu, 0)) return TUTTI_OK;
    for (uint32_t c = 0; c < plan->n_out; c++)
        if (!cell_of(race, gpu, TUTTI_MSCCL_OUTPUT, c)->defined)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: gpu %u never writes o%u of its result", plan->file,
                              plan->gpus[gpu].line, gpu, c);
    return TUTTI_OK;
}

static size_t clocks_of(const struct race *race)
{
    return race->plan->n_blocks + TUTTI_MSCCL_MOST_SLOTS * (size_t)race->plan->n_connections + race->n_signals;
}

static enum tutti_status check_gpus(struct race *race, const uint32_t *gpus, uint32_t n)
{
    const struct tutti_msccl *plan = race->plan;
    race->n_readers = 0;
    for (uint32_t i = 0; i < n; i++) cells_fill(race, gpus[i]);
    memset(race->clocks, 0, clocks_of(race) * race->width * sizeof *race->clocks);
    memset(race->sent, 0, 2 * ((size_t)plan->n_connections + 1) * sizeof *race->sent);
    for (uint32_t i = 0; i < race->order->n && race->width > 0; i++) {
        const struct tutti_msccl_event *event = &race->order->events[i];
        if (event->act != TUTTI_MSCCL_STORE) TUTTI_TRY(step_through(race, event));
    }
    for (uint32_t i = 0; i < n; i++) TUTTI_TRY(check_written(race, gpus[i]));
    return TUTTI_OK;
}

/* Takes GPUs whose blocks follow one another, as many as there is room for; sorted: all of them, by their blocks. */
static enum tutti_status check_some(struct race *race, const uint32_t *sorted, uint32_t *at)
{
    const struct tutti_msccl *plan = race->plan;
    const uint32_t begin = *at;
    uint64_t cells = 0;
    race->first = plan->gpus[sorted[begin]].first;
    race->width = 0;
    for (; *at < plan->n_gpus; ++*at) {
        const struct tutti_msccl_gpu *gpu = &plan->gpus[sorted[*at]];
        if (*at > begin && (race->width + gpu->n > SOME_BLOCKS || cells + cells_of(plan, sorted[*at]) > MOST_CELLS))
            break;
        race->base[sorted[*at]] = cells;
        race->width += gpu->n;
        cells += cells_of(plan, sorted[*at]);
    }
    if (clocks_of(race) * race->width > MOST_CLOCKS)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "%s: %u steps and %u thread blocks are too many to be proved free of races", plan->file,
                          plan->n_steps, plan->n_blocks);
    tutti_free(race->clocks);
    tutti_free(race->cells);
    race->clocks = tutti_alloc_array(clocks_of(race) * race->width + 1, sizeof *race->clocks);
    race->cells = tutti_alloc_array(cells, sizeof *race->cells);
    if (!race->clocks || !race->cells) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to look for races");
    return check_gpus(race, sorted + begin, *at - begin);
}

/* Numbers the signals, and finds which one ends a wait: the first from the step that is waited for on. */
static void signals_find(struct race *race)
{
    const struct tutti_msccl *plan = race->plan;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].signals) race->signals[i] = race->n_signals++;
    for (uint32_t b = 0; b < plan->n_blocks; b++) {
        const struct tutti_msccl_block *block = &plan->blocks[b];
        for (uint32_t i = block->first; i < block->first + block->n; i++) {
            const struct tutti_msccl_step *step = &plan->steps[i];
            race->waits[i] = TUTTI_MSCCL_NONE;
            if (step->wait_block == TUTTI_MSCCL_NONE) continue;
            const struct tutti_msccl_block *other = &plan->blocks[plan->gpus[block->gpu].first + step->wait_block];
            race->waits[i] = race->signals[plan->steps[other->first + step->wait].signal];
        }
    }
}

static enum tutti_status check_all(struct race *race)
{
    const struct tutti_msccl *plan = race->plan;
    uint32_t *sorted = tutti_alloc_array(plan->n_gpus, sizeof *sorted), n = 0;
    enum tutti_status status = sorted ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory to look for races");
    for (uint32_t g = 0; g < plan->n_gpus && sorted; g++)
        if (plan->gpus[g].n == 0) sorted[n++] = g;
    for (uint32_t b = 0; b < plan->n_blocks && sorted; b += plan->gpus[plan->blocks[b].gpu].n)
        sorted[n++] = plan->blocks[b].gpu;
    for (uint32_t at = 0; at < plan->n_gpus && status >= 0;) status = check_some(race, sorted, &at);
    tutti_free(sorted);
    return status;
}

enum tutti_status tutti_msccl_race(const struct tutti_msccl *plan, const struct tutti_msccl_order *order)
{
    struct race race = {.plan = plan, .order = order};
    const uint64_t work = ((uint64_t)plan->n_steps + plan->n_blocks + 2 * plan->n_connections) * plan->n_blocks;
    enum tutti_status status = TUTTI_OK;
    race.signals = tutti_alloc_array(plan->n_steps + 1, 2 * sizeof *race.signals);
    race.sent = tutti_alloc_array(2 * ((size_t)plan->n_connections + 1), sizeof *race.sent);
    race.base = tutti_alloc_array(plan->n_gpus, sizeof *race.base);
    if (!race.signals || !race.sent || !race.base)
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to look for races");
    else if (work > MOST_WORK)
        status =
            tutti_fail(TUTTI_ERR_ARGUMENT, "%s: %u steps in %u thread blocks are too many to be proved free of races",
                       plan->file, plan->n_steps, plan->n_blocks);
    if (status >= 0) {
        race.waits = race.signals + plan->n_steps + 1;
        race.received = race.sent + plan->n_connections + 1;
        signals_find(&race);
        status = check_all(&race);
    }
    tutti_free(race.signals);
    tutti_free(race.sent);
    tutti_free(race.base);
    tutti_free(race.clocks);
    tutti_free(race.cells);
    tutti_free(race.readers);
    return status;
}
