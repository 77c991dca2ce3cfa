/* SPDX-License-Identifier: BSD-3-Clause */
/* Results of a column, computed backwards: what a rank ends with is what its last write of the chunk put there; that
 * came from a copy or a message, which in turn came from the last write before it; and so on to the inputs. Each step
 * is computed once and kept. A step that needs itself is a circle.
 *
 * For a chunk's last write, the blocks near where the rank before had its own are looked at first; on every 64th or so
 * rank all of them, so that a late write that spoils a result is seen there. What is found wrong is looked for again
 * with a longer reach, and refused only when nothing is left out. */

#include "verify/column.h"

#include <stdio.h>
#include <string.h>

enum {
    NEAR = 1,         /* blocks on both sides of where a write is likely */
    BACK = 4,         /* blocks before a read in which a write of its chunk is sought, before the input is taken */
    WHOLE_RANKS = 64, /* ranks of which all is looked at */
    PILOT = 16        /* ranks after which the work for all is estimated */
};

struct node { /* a step's effect on one chunk */
    uint32_t rank, block, index, offset;
    bool used, done;
    struct tutti_cell cell;
};
struct frame {
    struct tutti_column_place place;
    struct tutti_step step;
    uint32_t offset;
    bool has_in;
    struct tutti_cell in;
};
struct column {
    struct tutti_bundle bundle; /* for kinds and sentences: it has no steps */
    struct tutti_supply *supply;
    struct tutti_coverage *coverage;
    uint32_t chunk;
    uint32_t every; /* all blocks are looked at on each so many-th rank */
    struct node *nodes;
    size_t n_nodes, node_capacity;
    struct frame *frames;
    size_t n_frames, frame_capacity;
    struct tutti_column_step *steps;
    size_t n_steps, step_capacity;
    uint32_t reach; /* a factor of NEAR and BACK; UINT32_MAX: all blocks */
    uint32_t near;  /* block of the last result; UINT32_MAX: none yet */
};

/* ---- growing arrays ---- */

static enum tutti_status grow(void **array, size_t n, size_t *capacity, size_t bytes)
{
    if (n < *capacity) return TUTTI_OK;
    const size_t room = *capacity ? 2 * *capacity : 1024;
    void *grown = tutti_alloc_array(room, bytes);
    if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a column of %zu steps", n);
    if (n > 0) memcpy(grown, *array, n * bytes);
    tutti_free(*array);
    *array = grown, *capacity = room;
    return TUTTI_OK;
}

static struct node *node_find(const struct column *column, const struct tutti_column_place *at, uint32_t offset)
{
    const uint64_t key =
        tutti_mix64(((uint64_t)at->rank << 32 | at->index) ^ tutti_mix64(((uint64_t)at->block << 32 | offset) + 1));
    size_t i = (size_t)key & (column->node_capacity - 1);
    for (struct node *node = &column->nodes[i];; node = &column->nodes[i]) {
        if (!node->used ||
            (node->rank == at->rank && node->block == at->block && node->index == at->index && node->offset == offset))
            return node;
        i = (i + 1) & (column->node_capacity - 1);
    }
}

/* A new node for a step that is being computed. */
static enum tutti_status node_add(struct column *column, const struct tutti_column_place *at, uint32_t offset)
{
    if (2 * (column->n_nodes + 1) > column->node_capacity) {
        struct node *old = column->nodes;
        const size_t n = column->node_capacity;
        column->node_capacity = n ? 2 * n : 4096;
        column->nodes = tutti_alloc_array(column->node_capacity, sizeof *column->nodes);
        if (!column->nodes) {
            column->nodes = old, column->node_capacity = n;
            return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a column of %zu steps", column->n_nodes);
        }
        for (size_t i = 0; i < n; i++) {
            const struct tutti_column_place place = {old[i].rank, old[i].block, old[i].index};
            if (old[i].used) *node_find(column, &place, old[i].offset) = old[i];
        }
        tutti_free(old);
    }
    *node_find(column, at, offset) =
        (struct node){.rank = at->rank, .block = at->block, .index = at->index, .offset = offset, .used = true};
    column->n_nodes++;
    return TUTTI_OK;
}

/* Keeps a step for the check of order, cut down to one chunk. */
static enum tutti_status keep(struct column *column, const struct tutti_column_place *at, const struct tutti_step *step,
                              uint32_t offset)
{
    void *steps = column->steps;
    TUTTI_TRY(grow(&steps, column->n_steps, &column->step_capacity, sizeof *column->steps));
    column->steps = steps;
    struct tutti_column_step *kept = &column->steps[column->n_steps++];
    *kept = (struct tutti_column_step){.place = *at, .step = *step};
    kept->step.n = 1;
    kept->step.src += tutti_step_reads_src(step) ? offset : 0;
    kept->step.dst += tutti_step_writes_dst(step) ? offset : 0;
    return TUTTI_OK;
}

static void refuse(struct column *column, uint32_t rank, const struct tutti_step *step, const char *what)
{
    char text[128];
    tutti_step_text(step, text, sizeof text);
    tutti_bundle_refuse(&column->bundle, rank, TUTTI_NO_INDEX, "round %u: %s, %s", step->round, text, what);
}

/* ---- values ---- */

/* What DATA holds at a rank before anything is written: false when nothing. */
static bool input_of(const struct column *column, uint32_t rank, uint32_t chunk, struct tutti_cell *out)
{
    const struct tutti_bundle *bundle = &column->bundle;
    struct tutti_shape shape = *bundle->shape;
    shape.slot = rank;
    const enum tutti_content before = tutti_kind_before(bundle->kind, &shape, chunk / bundle->per_block);
    *out = before == TUTTI_HOLDS_ORIGIN ? tutti_cell_origin(bundle, rank, chunk) : tutti_cell_leaf(rank, chunk);
    return before != TUTTI_HOLDS_NOTHING;
}

static enum tutti_status push(struct column *column, const struct tutti_write *write, uint32_t offset)
{
    void *frames = column->frames;
    TUTTI_TRY(grow(&frames, column->n_frames, &column->frame_capacity, sizeof *column->frames));
    column->frames = frames;
    column->frames[column->n_frames++] = (struct frame){.place = write->place, .step = write->step, .offset = offset};
    TUTTI_TRY(node_add(column, &write->place, offset));
    return keep(column, &write->place, &write->step, offset);
}

/* What a chunk holds before a place: in *cell, and *known; else the step that wrote it was pushed, to be computed
 * first. reader: the step that reads it, for sentences. */
static enum tutti_status read_chunk(struct column *column, const struct tutti_column_place *before,
                                    const struct tutti_step *reader, uint8_t buffer, uint32_t chunk,
                                    struct tutti_cell *cell, bool *known)
{
    struct tutti_write write;
    *known = true;
    if (buffer == TUTTI_IN) {
        *cell = tutti_cell_leaf(before->rank, chunk);
        return TUTTI_OK;
    }
    const bool has_input = buffer == TUTTI_DATA && input_of(column, before->rank, chunk, cell);
    const bool all = !has_input || before->rank % column->every == 0 || column->reach == UINT32_MAX;
    const uint32_t n_back = all ? UINT32_MAX : BACK * column->reach;
    TUTTI_TRY(tutti_supply_last_write(column->supply, before, buffer, chunk, n_back, &write));
    if (!write.found) {
        column->coverage->n_assumed += !write.looked_at_all;
        if (!has_input) refuse(column, before->rank, reader, "which was never written and holds nothing before");
        return TUTTI_OK;
    }
    const uint32_t offset = chunk - write.step.dst;
    const struct node *node = column->node_capacity ? node_find(column, &write.place, offset) : NULL;
    if (node && node->used && node->done) {
        *cell = node->cell;
    } else if (node && node->used) {
        refuse(column, before->rank, reader, "and by messages waits for itself: a circle");
    } else {
        *known = false;
        return push(column, &write, offset);
    }
    return TUTTI_OK;
}

/* What the step at hand takes in; not known: what makes it was pushed. */
static enum tutti_status take_in(struct column *column, size_t at, bool *known)
{
    const struct frame *frame = &column->frames[at];
    struct tutti_step source = frame->step; /* copies: frames move when they grow */
    struct tutti_column_place place = frame->place;
    const uint32_t offset = frame->offset;
    struct tutti_cell in = {0};
    if (tutti_step_receives(&source)) {
        struct tutti_write send;
        TUTTI_TRY(tutti_supply_send_of(column->supply, &place, &source, &send));
        if (!send.found || send.step.n != source.n) {
            refuse(column, place.rank, &source,
                   send.found ? "but its send has another number of chunks" : "which sends it no such message");
            *known = true;
            return TUTTI_OK;
        }
        place = send.place, source = send.step;
    }
    TUTTI_TRY(read_chunk(column, &place, &source, source.src_buffer, source.src + offset, &in, known));
    if (!*known) return TUTTI_OK;
    column->frames[at].in = in;
    column->frames[at].has_in = true;
    column->coverage->n_messages += tutti_step_sends(&source);
    return tutti_step_sends(&source) ? keep(column, &place, &source, offset) : TUTTI_OK;
}

/* Computes the frames until none is left. */
static enum tutti_status compute(struct column *column)
{
    while (column->n_frames > 0 && column->bundle.verdict->ok) {
        const size_t at = column->n_frames - 1;
        struct tutti_cell old = {0};
        bool known = true;
        if (!column->frames[at].has_in) TUTTI_TRY(take_in(column, at, &known));
        if (!known || !column->bundle.verdict->ok) continue;
        const struct frame frame = column->frames[at];
        if (tutti_step_reduces(&frame.step)) {
            TUTTI_TRY(read_chunk(column, &frame.place, &frame.step, frame.step.dst_buffer,
                                 frame.step.dst + frame.offset, &old, &known));
            if (!known || !column->bundle.verdict->ok) continue;
        }
        struct node *node = node_find(column, &frame.place, frame.offset);
        node->cell = frame.in;
        if (tutti_step_reduces(&frame.step))
            node->cell = frame.step.flags & TUTTI_STEP_LEFT ? tutti_cell_combine(&frame.in, &old)
                                                            : tutti_cell_combine(&old, &frame.in);
        node->done = true;
        column->coverage->n_steps++;
        column->n_frames--;
    }
    return TUTTI_OK;
}

/* ---- results ---- */

/* The last write of the column's chunk at a rank: near where the last rank had it, else anywhere. */
static enum tutti_status final_write(struct column *column, uint32_t rank, struct tutti_write *out)
{
    const uint32_t n_blocks = column->supply->n_blocks;
    if (rank % column->every && column->near != UINT32_MAX && column->reach != UINT32_MAX) {
        const uint32_t reach = NEAR * column->reach;
        const uint32_t last = column->near + reach < n_blocks ? column->near + reach : n_blocks - 1;
        const struct tutti_column_place end = {rank, last, UINT32_MAX};
        TUTTI_TRY(tutti_supply_last_write(column->supply, &end, TUTTI_DATA, column->chunk, 2 * reach + 1, out));
        if (out->found) return TUTTI_OK;
    }
    const struct tutti_column_place end = {rank, n_blocks - 1, UINT32_MAX};
    return tutti_supply_last_write(column->supply, &end, TUTTI_DATA, column->chunk, UINT32_MAX, out);
}

/* What the rank ends with in the column's chunk. */
static enum tutti_status result_of(struct column *column, uint32_t rank, struct tutti_cell *out)
{
    struct tutti_write write;
    column->n_frames = 0;
    TUTTI_TRY(final_write(column, rank, &write));
    if (!write.found) {
        if (!input_of(column, rank, column->chunk, out))
            tutti_bundle_refuse(&column->bundle, rank, TUTTI_NO_INDEX, "never writes chunk %u of its result",
                                column->chunk);
        return TUTTI_OK;
    }
    column->near = write.place.block;
    const uint32_t offset = column->chunk - write.step.dst;
    const struct node *node = column->node_capacity ? node_find(column, &write.place, offset) : NULL;
    if (!node || !node->used) {
        TUTTI_TRY(push(column, &write, offset));
        TUTTI_TRY(compute(column));
        node = node_find(column, &write.place, offset);
    }
    *out = node->cell;
    return TUTTI_OK;
}

struct wanted {
    struct tutti_cell all, before, prefix; /* prefix: of ranks 0..upto */
    uint32_t upto;
    const struct tutti_cell *replica;
    struct tutti_cell replica_cell;
    uint32_t replica_rank;
};

static void wanted_init(const struct column *column, struct wanted *wanted)
{
    *wanted = (struct wanted){.all = tutti_cell_leaf(0, column->chunk), .prefix = tutti_cell_leaf(0, column->chunk)};
    if (column->bundle.info->result != TUTTI_GETS_ALL) return;
    for (uint32_t s = 1; s < column->bundle.n; s++) {
        const struct tutti_cell leaf = tutti_cell_leaf(s, column->chunk);
        wanted->all = tutti_cell_combine(&wanted->all, &leaf);
    }
}

/* The sentence for a content that is not the one wanted. */
static void refuse_content(struct column *column, uint32_t rank, const struct tutti_cell *got,
                           const struct tutti_cell *want)
{
    const struct tutti_bundle *bundle = &column->bundle;
    for (uint32_t s = 0; s < bundle->n && got->sum != want->sum; s++) {
        const uint64_t x = tutti_cell_fingerprint(s, column->chunk);
        if (got->sum != want->sum - x && got->sum != want->sum + x) continue;
        tutti_bundle_refuse(bundle, rank, TUTTI_NO_INDEX, "ends with a wrong chunk %u: it %s of rank %u%s",
                            column->chunk, got->sum == want->sum - x ? "lacks the contribution" : "has a contribution",
                            s, got->sum == want->sum - x ? "" : " too many");
    }
    if (got->sum != want->sum)
        tutti_bundle_refuse(bundle, rank, TUTTI_NO_INDEX,
                            "ends with a wrong chunk %u: it combines %u contributions that are not the %u expected",
                            column->chunk, got->n_leaves, want->n_leaves ? want->n_leaves : 1);
    tutti_bundle_refuse(bundle, rank, TUTTI_NO_INDEX,
                        "ends with chunk %u combined out of the order that the algorithm promises", column->chunk);
}

static void compare(struct column *column, uint32_t rank, const struct tutti_cell *got, enum tutti_content content,
                    struct wanted *wanted)
{
    const struct tutti_bundle *bundle = &column->bundle;
    struct tutti_cell want = tutti_cell_leaf(rank, column->chunk);
    for (; wanted->upto < rank && bundle->info->reduces && content != TUTTI_HOLDS_ALL; wanted->upto++) {
        const struct tutti_cell leaf = tutti_cell_leaf(wanted->upto + 1, column->chunk);
        wanted->before = wanted->prefix;
        wanted->prefix = tutti_cell_combine(&wanted->prefix, &leaf);
    }
    if (content == TUTTI_HOLDS_ORIGIN) want = tutti_cell_origin(bundle, rank, column->chunk);
    if (content == TUTTI_HOLDS_ALL) want = wanted->all;
    if (content == TUTTI_HOLDS_PREFIX) want = wanted->prefix;
    if (content == TUTTI_HOLDS_BEFORE) want = wanted->before;
    const bool ordered = bundle->info->reduces && !(bundle->needs & TUTTI_NEEDS_COMMUTATIVE);
    const bool folded = bundle->info->reduces && (bundle->needs & TUTTI_KEEPS_RANK_ORDER);
    if (got->sum != want.sum || (ordered && got->word != want.word) || (folded && got->fold != want.fold)) {
        refuse_content(column, rank, got, &want);
    } else if (content == TUTTI_HOLDS_ALL && !wanted->replica) {
        wanted->replica_cell = *got, wanted->replica = &wanted->replica_cell, wanted->replica_rank = rank;
    } else if (content == TUTTI_HOLDS_ALL && got->tree != wanted->replica->tree) {
        tutti_bundle_refuse(bundle, rank, TUTTI_NO_INDEX,
                            "ends with chunk %u combined in another tree than rank %u has it: the replicas would "
                            "differ in their last bits",
                            column->chunk, wanted->replica_rank);
    }
}

/* Computes the column's results, of all ranks or, where that is too much, of some. */
static enum tutti_status check_results(struct column *column, uint64_t most_work)
{
    const uint32_t n = column->bundle.n;
    uint64_t began = column->supply->work;
    struct wanted wanted;
    uint32_t stride = 1, n_done = 0;
    column->every = n / WHOLE_RANKS + 1;
    column->near = UINT32_MAX;
    wanted_init(column, &wanted);
    for (uint32_t rank = 0; rank < n && column->bundle.verdict->ok; rank += stride) {
        struct tutti_shape shape = *column->bundle.shape;
        struct tutti_cell got = {0};
        shape.slot = rank;
        const enum tutti_content content =
            tutti_kind_after(column->bundle.kind, &shape, column->chunk / column->bundle.per_block);
        column->coverage->of_results += content != TUTTI_HOLDS_NOTHING ? stride : 0;
        if (content == TUTTI_HOLDS_NOTHING) continue;
        const size_t n_steps = column->n_steps;
        const enum tutti_status status = result_of(column, rank, &got);
        if (status == TUTTI_ERR_UNSUPPORTED && n_done > 0 && !column->supply->defect[0]) { /* enough */
            column->n_steps = n_steps;
            break;
        }
        TUTTI_TRY(status);
        if (column->bundle.verdict->ok) compare(column, rank, &got, content, &wanted);
        column->coverage->n_results++;
        if (++n_done == 1) { /* all of the first was looked at */
            began = column->supply->work;
            column->supply->most_work = began + 4 * most_work; /* an estimate may err */
        }
        if (n_done != PILOT) continue;
        const uint64_t all = (column->supply->work - began) / (PILOT - 1) * n;
        if (all > most_work) stride = (uint32_t)(all / most_work) + 1;
    }
    return column->bundle.verdict->ok ? tutti_column_check_order(&column->bundle, column->steps, column->n_steps)
                                      : TUTTI_OK;
}

/* Forgets what was computed. */
static void column_clear(struct column *column)
{
    tutti_free(column->nodes);
    tutti_free(column->frames);
    tutti_free(column->steps);
    column->nodes = NULL, column->frames = NULL, column->steps = NULL;
    column->n_nodes = column->node_capacity = 0;
    column->n_frames = column->frame_capacity = 0;
    column->n_steps = column->step_capacity = 0;
}

/* With a short reach first: most schedules have what is sought nearby. */
static enum tutti_status check_column(struct column *column, uint64_t most_work)
{
    static const uint32_t reaches[] = {1, 64, UINT32_MAX};
    const struct tutti_coverage before = *column->coverage;
    enum tutti_status status = TUTTI_OK;
    for (uint32_t i = column->supply->reach; i < TUTTI_ARRAY_LEN(reaches) && status >= 0; i++) {
        if (i > 0 && column->supply->n_blocks == 1) break;
        column->supply->reach = i; /* the next column will hardly need less */
        column->reach = reaches[i];
        column->supply->exact = column->reach == UINT32_MAX;
        /* One result may take all steps. */
        column->supply->most_work = column->supply->work + 4 * most_work + column->supply->for_one;
        *column->coverage = before;
        column->bundle.verdict->ok = true;
        column->bundle.verdict->text[0] = '\0';
        status = check_results(column, most_work);
        column_clear(column);
        if (column->bundle.verdict->ok) break;
    }
    return status;
}

/* Messages of some ranks with two of their peers each, in all rounds. */
static enum tutti_status check_channels(struct column *column)
{
    enum { RANKS = 4 };
    struct tutti_supply *supply = column->supply;
    enum tutti_status status = TUTTI_OK;
    for (uint32_t k = 0; k < RANKS && k < column->bundle.n && column->bundle.verdict->ok; k++) {
        const uint32_t rank = (uint32_t)((uint64_t)k * column->bundle.n / RANKS);
        uint32_t n, bad = TUTTI_NO_INDEX, peer = TUTTI_NO_INDEX;
        const struct tutti_step *steps = tutti_supply_steps(supply, rank, 0, &n, &status);
        if (!steps) return status;
        for (uint32_t i = 0; i < n && peer == TUTTI_NO_INDEX; i++)
            if (tutti_step_sends(&steps[i])) peer = steps[i].peer;
        if (peer == TUTTI_NO_INDEX) continue;
        TUTTI_TRY(tutti_supply_compare_channel(supply, rank, peer, &bad));
        if (bad != TUTTI_NO_INDEX)
            tutti_bundle_refuse(&column->bundle, rank, TUTTI_NO_INDEX,
                                "message %u to rank %u is not what that rank expects: it is missing on one side, or "
                                "has another number of chunks",
                                bad, peer);
    }
    return TUTTI_OK;
}

enum tutti_status tutti_verify_columns(struct tutti_supply *supply, uint32_t n_columns, uint64_t most_work,
                                       struct tutti_verdict *verdict, struct tutti_coverage *coverage)
{
    const struct tutti_schedule stand_in = {
        .algorithm = supply->algorithm, .kind = supply->kind, .shape = supply->shape};
    const struct tutti_schedule *const schedules[] = {&stand_in};
    const uint32_t n_chunks = supply->n_chunks, n_blocks = tutti_kind_blocks(supply->kind, supply->shape.size);
    const uint32_t n = n_columns < n_chunks ? n_columns : n_chunks;
    enum tutti_status status = TUTTI_OK;
    coverage->of_columns = n_chunks;
    for (uint32_t k = 0; k < n && verdict->ok && status >= 0; k++) {
        struct column column = {.supply = supply, .coverage = coverage};
        column.bundle = (struct tutti_bundle){.schedules = schedules,
                                              .n = supply->shape.size,
                                              .kind = supply->kind,
                                              .info = tutti_kind_info(supply->kind),
                                              .shape = &supply->shape,
                                              .needs = supply->algorithm->kinds[supply->kind]->needs,
                                              .n_chunks = n_chunks,
                                              .per_block = n_chunks / n_blocks,
                                              .finding = TUTTI_FOUND_CONTENT,
                                              .verdict = verdict};
        /* The first and the last, and others spread evenly, each a little off. */
        const uint64_t spread = n > 1 ? (uint64_t)k * (n_chunks - 1) / (n - 1) : tutti_mix64(n_chunks) % n_chunks;
        column.chunk = k > 0 && k + 1 < n ? (uint32_t)((spread + tutti_mix64(k) % (n_chunks / n + 1)) % n_chunks)
                                          : (uint32_t)spread;
        if (k == 0 && !supply->sealed) status = check_channels(&column);
        if (status >= 0 && verdict->ok) status = check_column(&column, most_work);
        coverage->n_columns++;
    }
    return status;
}
