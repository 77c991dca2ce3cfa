/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the bundle on abstract contents, in an order in which the engine may complete the steps. The hazards are proved
 * by now, so that every other order gives the same contents.
 *
 * DATA and the user's input are one memory in the model, where a chunk knows whether it has been written: a step that
 * reads the input must come before the first write (in place it would be gone), and one that does not must come after
 * it (out of place there would be nothing). So both layouts are proved at once. */

#include "verify/cell.h"

#include <string.h>

struct execution {
    struct tutti_bundle *bundle;
    struct tutti_cells cells;
};

static enum tutti_status execution_init(struct execution *run, struct tutti_bundle *bundle)
{
    size_t total = 0;
    *run = (struct execution){.bundle = bundle};
    run->cells.data = tutti_alloc_array(bundle->n, 2 * sizeof *run->cells.data);
    if (!run->cells.data) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %u ranks", bundle->n);
    run->cells.scratch = run->cells.data + bundle->n;
    for (uint32_t s = 0; s < bundle->n; s++) {
        run->cells.data[s] = total;
        run->cells.scratch[s] = total + bundle->n_chunks;
        total += (size_t)bundle->n_chunks + bundle->schedules[s]->n_scratch;
    }
    if (total > TUTTI_MOST_CELLS) {
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%u ranks with %zu chunks are too many to check: at most %llu chunks",
                          bundle->n, total, (unsigned long long)TUTTI_MOST_CELLS);
    }
    run->cells.cells = tutti_alloc_array(total, sizeof *run->cells.cells);
    if (!run->cells.cells) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %zu chunks", total);
    return TUTTI_OK;
}

static void execution_fini(struct execution *run)
{
    tutti_free(run->cells.cells);
    tutti_free(run->cells.data);
}

/* Puts the input where the kind says that a slot has one. */
static void fill_input(struct execution *run, uint32_t slot)
{
    const struct tutti_bundle *bundle = run->bundle;
    for (uint32_t c = 0; c < bundle->n_chunks; c++) {
        struct tutti_cell *cell = tutti_cell_at(&run->cells, slot, TUTTI_DATA, c);
        const enum tutti_content before =
            tutti_kind_before(bundle->kind, &bundle->schedules[slot]->shape, c / bundle->per_block);
        if (before == TUTTI_HOLDS_OWN) *cell = tutti_cell_leaf(slot, c);
        if (before == TUTTI_HOLDS_ORIGIN) *cell = tutti_cell_origin(bundle, slot, c);
        cell->state = before == TUTTI_HOLDS_NOTHING ? TUTTI_CELL_EMPTY : TUTTI_CELL_INPUT;
        cell->length = tutti_length_of_data(bundle, slot, c);
    }
}

/* The cell of DATA or SCRATCH that a step reads; NULL and a refusal when it has nothing that may be read. */
static const struct tutti_cell *readable(struct execution *run, uint32_t slot, uint32_t index, uint8_t buffer,
                                         uint32_t chunk, bool from_input)
{
    const struct tutti_cell *cell = tutti_cell_at(&run->cells, slot, buffer, chunk);
    const enum tutti_cell_state expected = from_input ? TUTTI_CELL_INPUT : TUTTI_CELL_WRITTEN;
    if (cell->state == expected) return cell;
    char text[48];
    tutti_chunks_text(buffer, chunk, 1, text, sizeof text);
    if (buffer == TUTTI_SCRATCH) {
        tutti_bundle_refuse(run->bundle, slot, index, "reads %s, which was never written", text);
    } else if (cell->state == TUTTI_CELL_EMPTY) {
        tutti_bundle_refuse(run->bundle, slot, index,
                            "reads %s, of which this rank has no input and has received nothing", text);
    } else if (from_input) {
        tutti_bundle_refuse(run->bundle, slot, index, "reads %s from the user's input, which in place is overwritten",
                            text);
    } else {
        tutti_bundle_refuse(run->bundle, slot, index,
                            "reads %s as if it had been written, but only the user's input has it", text);
    }
    return NULL;
}

/* The i-th chunk that a step sends, copies or reduces. */
static bool read_source(struct execution *run, uint32_t slot, uint32_t index, uint32_t i, struct tutti_cell *out)
{
    const struct tutti_bundle *bundle = run->bundle;
    const struct tutti_step *step = tutti_bundle_step(bundle, slot, index);
    const uint64_t length = tutti_length_of_step(bundle, slot, step, i);
    char text[48];
    if (step->src_buffer == TUTTI_IN) {
        *out = tutti_cell_leaf(slot, step->src + i);
        out->length = tutti_length_of_in(bundle, slot, step->src + i);
    } else {
        const struct tutti_cell *cell =
            readable(run, slot, index, step->src_buffer, step->src + i, step->flags & TUTTI_STEP_SRC_INPUT);
        if (!cell) return false;
        *out = *cell;
    }
    if (out->length == length) return true;
    tutti_chunks_text(step->src_buffer, step->src + i, 1, text, sizeof text);
    tutti_bundle_refuse(bundle, slot, index,
                        "reads %s in another size than it has when a count does not divide, or blocks differ", text);
    return false;
}

/* Stores a chunk, or combines it with what is there. */
static bool write_destination(struct execution *run, uint32_t slot, uint32_t index, uint32_t i,
                              const struct tutti_cell *in)
{
    const struct tutti_step *step = tutti_bundle_step(run->bundle, slot, index);
    struct tutti_cell *dst = tutti_cell_at(&run->cells, slot, step->dst_buffer, step->dst + i);
    struct tutti_cell result = *in;
    if (tutti_step_reduces(step)) {
        const struct tutti_cell *old =
            readable(run, slot, index, step->dst_buffer, step->dst + i, step->flags & TUTTI_STEP_DST_INPUT);
        if (!old) return false;
        result = step->flags & TUTTI_STEP_LEFT ? tutti_cell_combine(in, old) : tutti_cell_combine(old, in);
    }
    /* SCRATCH takes the size of what is stored there. */
    if ((step->dst_buffer == TUTTI_DATA || tutti_step_reduces(step)) && dst->length != in->length) {
        char text[48];
        tutti_chunks_text(step->dst_buffer, step->dst + i, 1, text, sizeof text);
        tutti_bundle_refuse(run->bundle, slot, index,
                            "writes to %s what has another size when a count does not divide, or blocks differ", text);
        return false;
    }
    result.state = TUTTI_CELL_WRITTEN;
    result.writer = index;
    result.length = in->length;
    *dst = result;
    return true;
}

/* Rooted v forms: only the root knows the counts of others. */
static bool knows_counts(const struct tutti_bundle *bundle, uint32_t slot, const struct tutti_step *step, uint32_t i)
{
    if (!(bundle->needs & TUTTI_OWN_COUNTS_ONLY) || !bundle->info->rooted || !bundle->info->block_a_slot) return true;
    if (slot == bundle->shape->root || step->extent == TUTTI_NO_EXTENT) return true;
    return (step->extent + i) / bundle->per_block == slot;
}

static bool check_counts(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index, uint32_t i)
{
    const struct tutti_step *step = tutti_bundle_step(bundle, slot, index);
    if (knows_counts(bundle, slot, step, i)) return true;
    char text[128];
    tutti_step_text(step, text, sizeof text);
    tutti_bundle_refuse(bundle, slot, index,
                        "%s, but it cannot know the size of block %u: the algorithm claims to need own counts only",
                        text, (step->extent + i) / bundle->per_block);
    return false;
}

/* The i-th chunks of a receive and of its send have one length only for some counts. */
static void refuse_sizes(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index, uint32_t i)
{
    const struct tutti_step *recv = tutti_bundle_step(bundle, slot, index);
    const uint32_t send_index = bundle->match[bundle->base[slot] + index] - bundle->base[recv->peer];
    const struct tutti_step *send = tutti_bundle_step(bundle, recv->peer, send_index);
    char to[48], from[48];
    tutti_chunks_text(recv->dst_buffer, recv->dst + i, 1, to, sizeof to);
    tutti_chunks_text(send->src_buffer, send->src + i, 1, from, sizeof from);
    const bool untied = tutti_length_of_step(bundle, slot, recv, i) == TUTTI_LENGTH_LARGEST;
    tutti_bundle_refuse(bundle, slot, index,
                        "receives %s from rank %u, whose step %u sends %s, of another size when a count does not "
                        "divide, or blocks differ%s",
                        to, recv->peer, send_index, from,
                        untied ? ": nothing ties the size of that scratch chunk to a chunk of DATA" : "");
}

static bool transfer(struct execution *run, uint32_t slot, uint32_t index)
{
    const struct tutti_bundle *bundle = run->bundle;
    const struct tutti_step *recv = tutti_bundle_step(bundle, slot, index);
    const uint32_t send_index = bundle->match[bundle->base[slot] + index] - bundle->base[recv->peer];
    for (uint32_t i = 0; i < recv->n; i++) {
        struct tutti_cell in;
        if (!check_counts(bundle, recv->peer, send_index, i) || !check_counts(bundle, slot, index, i)) return false;
        if (!read_source(run, recv->peer, send_index, i, &in)) return false;
        if (in.length != tutti_length_of_step(bundle, slot, recv, i)) {
            refuse_sizes(bundle, slot, index, i);
            return false;
        }
        if (!write_destination(run, slot, index, i, &in)) return false;
    }
    return true;
}

static bool local(struct execution *run, uint32_t slot, uint32_t index)
{
    const struct tutti_step *step = tutti_bundle_step(run->bundle, slot, index);
    for (uint32_t i = 0; i < step->n; i++) {
        struct tutti_cell in;
        if (!check_counts(run->bundle, slot, index, i) || !read_source(run, slot, index, i, &in)) return false;
        if (!write_destination(run, slot, index, i, &in)) return false;
    }
    return true;
}

enum tutti_status tutti_bundle_check_values(struct tutti_bundle *bundle)
{
    struct execution run;
    enum tutti_status status;
    bool going = true;
    if (bundle->sampled) return TUTTI_OK;
    TUTTI_TRY_GOTO(status, execution_init(&run, bundle), err_run);
    for (uint32_t s = 0; s < bundle->n; s++) fill_input(&run, s);
    for (uint32_t i = 0; i < bundle->n_order && going; i++) {
        const uint32_t slot = bundle->order_slot[i], index = bundle->order[i] - bundle->base[slot];
        going = tutti_step_receives(tutti_bundle_step(bundle, slot, index)) ? transfer(&run, slot, index)
                                                                            : local(&run, slot, index);
    }
    if (going && bundle->kind != TUTTI_BARRIER) status = tutti_bundle_check_result(bundle, &run.cells);
err_run:
    execution_fini(&run);
    return status;
}
