/* SPDX-License-Identifier: BSD-3-Clause */
/* A sealed schedule as a plan of MSCCL. Each rank has a thread block for each peer it sends to and each it receives
 * from; local steps stand in the block of the last step that they wait for. What a step has to wait for is found from
 * the chunks that it touches: the schedule's own hazards say nothing about steps that are more than the window behind.
 *
 * The plan is right in place and out of place. Chunks of DATA that this rank has written are the output where that has
 * them all, else they are in SCRATCH, and the rank's own block is copied at the end. */

#include "load/msccl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (INT64_C(1) << 40) /* a call's; runtimes take 128 MiB where nothing is said */

struct block { /* a thread block of the rank at hand */
    uint32_t send, recv, channel;
    uint32_t n;    /* steps, nops included */
    uint32_t last; /* the last of them */
};
struct step { /* one of the file */
    const char *type;
    char src_buffer, dst_buffer;
    uint32_t src, dst, n;
    uint32_t block, number; /* its place there */
    uint32_t wait;          /* another; NONE */
    bool signals;
};
struct touch { /* a read of a chunk since it was written */
    uint32_t step, older;
};
struct writing {
    FILE *file;
    uint32_t per_channel; /* messages of two ranks before the next channel begins */
    uint32_t n_groups;    /* peers by their distance, where a rank has more than a channel takes */
    const struct tutti_schedule *schedule;
    uint32_t n_in, n_out;
    bool whole;     /* the output has all of DATA */
    uint32_t extra; /* else: SCRATCH chunks from here on are DATA */
    struct block *blocks;
    uint32_t n_blocks, block_capacity;
    struct step *steps;
    uint32_t n_steps, step_capacity;
    uint32_t *written, *read; /* by chunk of DATA, then SCRATCH: the last write, the last of `touches`; NONE */
    struct touch *touches;
    uint32_t n_touches, touch_capacity;
    uint32_t *needs; /* by block: one more than the last step of it that the step at hand waits for */
    uint32_t *known; /* by step, then block: how many steps of it are over when this one is; `width` each */
    uint32_t width;
    size_t known_capacity;
    uint32_t most_steps, most_waited, most_channels; /* any rank's */
};

static enum tutti_status room(void **array, size_t n, uint32_t *capacity, size_t bytes)
{
    if (n < *capacity) return TUTTI_OK;
    const uint32_t more = (uint32_t)(2 * n + 64);
    void *grown = tutti_alloc_array(more, bytes);
    if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to write a plan");
    if (n > 0) memcpy(grown, *array, n * bytes);
    tutti_free(*array);
    *array = grown;
    *capacity = more;
    return TUTTI_OK;
}

/* ---- thread blocks ---- */

static enum tutti_status block_find(struct writing *w, uint32_t send, uint32_t recv, uint32_t channel, uint32_t *out)
{
    const bool local = send == TUTTI_MSCCL_NONE && recv == TUTTI_MSCCL_NONE;
    for (*out = 0; *out < w->n_blocks; ++*out) {
        const struct block *b = &w->blocks[*out];
        const bool full = local && b->n + 8 > TUTTI_MSCCL_MOST_STEPS;
        if (b->send == send && b->recv == recv && b->channel == channel && !full) return TUTTI_OK;
    }
    if (w->n_blocks == w->width)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a rank needs more than %u thread blocks", w->width);
    TUTTI_TRY(room((void **)&w->blocks, w->n_blocks, &w->block_capacity, sizeof *w->blocks));
    w->blocks[w->n_blocks++] = (struct block){send, recv, channel, 0, 0};
    return TUTTI_OK;
}

/* ---- what a step waits for ---- */

static uint32_t *known_of(const struct writing *w, uint32_t step)
{
    return w->known + (size_t)step * w->width;
}

static void need(struct writing *w, uint32_t step)
{
    if (step == TUTTI_MSCCL_NONE) return;
    uint32_t *needs = &w->needs[w->steps[step].block];
    if (step + 1 > *needs) *needs = step + 1;
}

static uint32_t cell_of(const struct writing *w, uint8_t buffer, uint32_t chunk)
{
    return buffer == TUTTI_SCRATCH ? w->schedule->n_chunks + chunk : chunk;
}

static void need_for_reads(struct writing *w, uint8_t buffer, uint32_t chunk, uint32_t n)
{
    for (uint32_t c = chunk; c < chunk + n && buffer != TUTTI_IN; c++) need(w, w->written[cell_of(w, buffer, c)]);
}

static void need_for_writes(struct writing *w, uint8_t buffer, uint32_t chunk, uint32_t n)
{
    need_for_reads(w, buffer, chunk, n);
    for (uint32_t c = chunk; c < chunk + n; c++)
        for (uint32_t t = w->read[cell_of(w, buffer, c)]; t != TUTTI_MSCCL_NONE; t = w->touches[t].older)
            need(w, w->touches[t].step);
}

static enum tutti_status note_reads(struct writing *w, uint8_t buffer, uint32_t chunk, uint32_t n, uint32_t step)
{
    for (uint32_t c = chunk; c < chunk + n && buffer != TUTTI_IN; c++) {
        TUTTI_TRY(room((void **)&w->touches, w->n_touches, &w->touch_capacity, sizeof *w->touches));
        w->touches[w->n_touches] = (struct touch){step, w->read[cell_of(w, buffer, c)]};
        w->read[cell_of(w, buffer, c)] = w->n_touches++;
    }
    return TUTTI_OK;
}

static void note_writes(struct writing *w, uint8_t buffer, uint32_t chunk, uint32_t n, uint32_t step)
{
    for (uint32_t c = chunk; c < chunk + n; c++) {
        w->written[cell_of(w, buffer, c)] = step;
        w->read[cell_of(w, buffer, c)] = TUTTI_MSCCL_NONE;
    }
}

static enum tutti_status append(struct writing *w, struct step step, uint32_t *out)
{
    TUTTI_TRY(room((void **)&w->steps, w->n_steps, &w->step_capacity, sizeof *w->steps));
    if ((size_t)(w->n_steps + 1) * w->width > w->known_capacity) {
        const size_t capacity = 2 * (size_t)(w->n_steps + 64) * w->width;
        uint32_t *grown = tutti_alloc_array(capacity, sizeof *grown);
        if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to write a plan");
        if (w->n_steps > 0) memcpy(grown, w->known, (size_t)w->n_steps * w->width * sizeof *grown);
        tutti_free(w->known);
        w->known = grown;
        w->known_capacity = capacity;
    }
    struct block *block = &w->blocks[step.block];
    uint32_t *known = known_of(w, w->n_steps);
    if (block->n == 0)
        memset(known, 0, w->width * sizeof *known);
    else
        memcpy(known, known_of(w, block->last), w->width * sizeof *known);
    step.number = block->n++;
    block->last = w->n_steps;
    known[step.block] = step.number + 1;
    for (uint32_t b = 0; step.wait != TUTTI_MSCCL_NONE && b < w->width; b++)
        if (known_of(w, step.wait)[b] > known[b]) known[b] = known_of(w, step.wait)[b];
    if (step.wait != TUTTI_MSCCL_NONE) w->steps[step.wait].signals = true;
    *out = w->n_steps;
    w->steps[w->n_steps++] = step;
    return TUTTI_OK;
}

/* Appends a step, and before it a nop for each wait but one. Waits that others include are left out. */
static enum tutti_status append_waiting(struct writing *w, struct step step, uint32_t *out)
{
    const struct block *own = &w->blocks[step.block];
    uint32_t waits[TUTTI_MSCCL_MOST_BLOCKS], n = 0;
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        const uint32_t wait = w->needs[b];
        w->needs[b] = 0;
        if (wait == 0 || b == step.block) continue;
        if (own->n == 0 || known_of(w, own->last)[b] <= w->steps[wait - 1].number) waits[n++] = wait - 1;
    }
    step.wait = TUTTI_MSCCL_NONE;
    for (uint32_t i = 0; i < n; i++) {
        bool included = false;
        for (uint32_t k = 0; k < n && !included; k++)
            included = k != i && known_of(w, waits[k])[w->steps[waits[i]].block] > w->steps[waits[i]].number;
        if (included) continue;
        if (step.wait != TUTTI_MSCCL_NONE) {
            const struct step nop = {
                .type = "nop", .src_buffer = 'i', .dst_buffer = 'o', .block = step.block, .wait = step.wait};
            TUTTI_TRY(append(w, nop, out));
        }
        step.wait = waits[i];
    }
    return append(w, step, out);
}

/* The block of a local step: of the last of those that it waits for. */
static enum tutti_status local_block(struct writing *w, uint32_t *out)
{
    uint32_t last = 0;
    for (uint32_t b = 0; b < w->n_blocks; b++)
        if (w->needs[b] > last && w->blocks[b].n + 8 <= TUTTI_MSCCL_MOST_STEPS) last = w->needs[b];
    if (last == 0) return block_find(w, TUTTI_MSCCL_NONE, TUTTI_MSCCL_NONE, 0, out);
    *out = w->steps[last - 1].block;
    return TUTTI_OK;
}

/* ---- a step of ours ---- */

/* Where the chunk is; input: as the user passed it. */
static void place(const struct writing *w, uint8_t buffer, uint32_t chunk, bool input, char *letter, uint32_t *at)
{
    const uint32_t slot = w->schedule->shape.slot;
    const uint32_t own = w->n_in < w->schedule->n_chunks ? slot * w->n_in : 0;
    *letter = buffer == TUTTI_IN || input ? 'i' : buffer == TUTTI_DATA && w->whole ? 'o' : 's';
    *at = buffer == TUTTI_IN                       ? chunk
          : input                                  ? chunk - own
          : *letter == 's' && buffer == TUTTI_DATA ? w->extra + chunk
                                                   : chunk;
}

/* The channel of a message, by its number among those of the two ranks, which both count alike. */
static uint32_t channel_of(const struct writing *w, const struct tutti_step *s, uint32_t message)
{
    const uint32_t n = w->schedule->shape.size, own = w->schedule->shape.slot;
    const uint32_t from = tutti_step_sends(s) ? own : s->peer, to = tutti_step_sends(s) ? s->peer : own;
    const uint32_t group = ((to + n - from) % n - 1) / TUTTI_MSCCL_MOST_PEERS;
    return message / w->per_channel * w->n_groups + (w->n_groups > 1 ? group : 0);
}

/* A part of a step, of so many chunks from the first on. */
static enum tutti_status write_part(struct writing *w, const struct tutti_step *s, uint32_t first, uint32_t n,
                                    uint32_t message)
{
    const bool reads = tutti_step_reads_src(s), writes = tutti_step_writes_dst(s), folds = tutti_step_reduces(s);
    const bool dst_input = s->flags & TUTTI_STEP_DST_INPUT;
    struct step step = {.n = n, .wait = TUTTI_MSCCL_NONE};
    uint32_t number = 0;
    if (reads) need_for_reads(w, s->src_buffer, s->src + first, n);
    if (folds) need_for_reads(w, s->dst_buffer, s->dst + first, n);
    if (writes) need_for_writes(w, s->dst_buffer, s->dst + first, n);
    if (reads) place(w, s->src_buffer, s->src + first, s->flags & TUTTI_STEP_SRC_INPUT, &step.src_buffer, &step.src);
    if (writes) place(w, s->dst_buffer, s->dst + first, false, &step.dst_buffer, &step.dst);
    if (tutti_step_is_message(s))
        TUTTI_TRY(block_find(w, tutti_step_sends(s) ? s->peer : TUTTI_MSCCL_NONE,
                             tutti_step_sends(s) ? TUTTI_MSCCL_NONE : s->peer, channel_of(w, s, message), &step.block));
    else
        TUTTI_TRY(local_block(w, &step.block));
    if (s->op == TUTTI_STEP_RECV_REDUCE)
        place(w, s->dst_buffer, s->dst + first, dst_input, &step.src_buffer, &step.src);
    if (!writes || s->op == TUTTI_STEP_RECV) { /* the other side is not read */
        if (writes) step.src_buffer = step.dst_buffer, step.src = step.dst;
        if (!writes) step.dst_buffer = step.src_buffer, step.dst = step.src;
    }
    if (s->op == TUTTI_STEP_REDUCE && dst_input) { /* dst = input + src takes two */
        struct step copy = step;
        copy.type = "cpy";
        place(w, s->dst_buffer, s->dst + first, true, &copy.src_buffer, &copy.src);
        TUTTI_TRY(append_waiting(w, copy, &number));
    }
    static const char *const types[] = {[TUTTI_STEP_SEND] = "s",
                                        [TUTTI_STEP_RECV] = "r",
                                        [TUTTI_STEP_RECV_REDUCE] = "rrc",
                                        [TUTTI_STEP_COPY] = "cpy",
                                        [TUTTI_STEP_REDUCE] = "re"};
    step.type = types[s->op];
    TUTTI_TRY(append_waiting(w, step, &number));
    if (reads) TUTTI_TRY(note_reads(w, s->src_buffer, s->src + first, n, number));
    if (writes) note_writes(w, s->dst_buffer, s->dst + first, n, number);
    return TUTTI_OK;
}

/* Where DATA is in SCRATCH, the rank's own block goes to the output, when nobody reads the input any more. */
static enum tutti_status write_result(struct writing *w)
{
    const struct tutti_schedule *s = w->schedule;
    const uint32_t own = w->n_out < s->n_chunks ? s->shape.slot * w->n_out : 0;
    if (w->whole || !tutti_side_is_at(tutti_kind_info(s->kind)->recv, s->shape.slot, 0)) return TUTTI_OK;
    for (uint32_t first = 0; first < w->n_out; first += TUTTI_MSCCL_MOST_COUNT) {
        const uint32_t left = w->n_out - first;
        struct step step = {.type = "cpy",
                            .src_buffer = 's',
                            .dst_buffer = 'o',
                            .src = w->extra + own + first,
                            .dst = first,
                            .n = left < TUTTI_MSCCL_MOST_COUNT ? left : TUTTI_MSCCL_MOST_COUNT};
        uint32_t number;
        need_for_writes(w, TUTTI_DATA, own + first, step.n);
        TUTTI_TRY(local_block(w, &step.block));
        TUTTI_TRY(append_waiting(w, step, &number));
    }
    return TUTTI_OK;
}

/* ---- the text ---- */

static void write_step(const struct writing *w, const struct step *s)
{
    const struct step *wait = s->wait == TUTTI_MSCCL_NONE ? NULL : &w->steps[s->wait];
    const bool nop = s->n == 0;
    fprintf(w->file,
            "      <step s=\"%u\" type=\"%s\" srcbuf=\"%c\" srcoff=\"%d\" dstbuf=\"%c\" dstoff=\"%d\" cnt=\"%u\" ",
            s->number, s->type, s->src_buffer, nop ? -1 : (int)s->src, s->dst_buffer, nop ? -1 : (int)s->dst, s->n);
    fprintf(w->file, "depid=\"%d\" deps=\"%d\" hasdep=\"%d\"/>\n", wait ? (int)wait->block : -1,
            wait ? (int)wait->number : -1, s->signals);
}

static void write_rank(struct writing *w)
{
    const struct tutti_schedule *s = w->schedule;
    fprintf(w->file, "  <gpu id=\"%u\" i_chunks=\"%u\" o_chunks=\"%u\" s_chunks=\"%u\">\n", s->shape.slot, w->n_in,
            w->n_out, s->n_scratch + (w->whole ? 0 : s->n_chunks));
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        fprintf(w->file, "    <tb id=\"%u\" send=\"%d\" recv=\"%d\" chan=\"%u\">\n", b, (int)w->blocks[b].send,
                (int)w->blocks[b].recv, w->blocks[b].channel);
        for (uint32_t i = 0; i < w->n_steps; i++)
            if (w->steps[i].block == b) write_step(w, &w->steps[i]);
        fprintf(w->file, "    </tb>\n");
        if (w->blocks[b].n > w->most_steps) w->most_steps = w->blocks[b].n;
        if (w->blocks[b].channel >= w->most_channels) w->most_channels = w->blocks[b].channel + 1;
    }
    for (uint32_t i = 0; i < w->n_steps; i++)
        if (w->steps[i].wait != TUTTI_MSCCL_NONE && w->steps[w->steps[i].wait].block >= w->most_waited)
            w->most_waited = w->steps[w->steps[i].wait].block + 1;
    fprintf(w->file, "  </gpu>\n");
}

static enum tutti_status do_rank(struct writing *w, const struct tutti_schedule *schedule, uint32_t *messages)
{
    const struct tutti_kind_info *info = tutti_kind_info(schedule->kind);
    const uint32_t n_cells = schedule->n_chunks + schedule->n_scratch;
    w->schedule = schedule;
    w->n_blocks = w->n_steps = w->n_touches = 0;
    w->whole = w->n_out == schedule->n_chunks && tutti_side_is_at(info->recv, schedule->shape.slot, 0);
    w->extra = schedule->n_scratch;
    tutti_free(w->written);
    w->written = tutti_alloc_array((size_t)n_cells, 2 * sizeof *w->written);
    if (!w->written) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to write a plan");
    w->read = w->written + n_cells;
    for (uint32_t c = 0; c < 2 * n_cells; c++) w->written[c] = TUTTI_MSCCL_NONE;
    memset(messages, 0, 2 * (size_t)schedule->shape.size * sizeof *messages);
    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        const struct tutti_step *s = &schedule->steps[i];
        for (uint32_t first = 0; first < s->n; first += TUTTI_MSCCL_MOST_COUNT) {
            const uint32_t left = s->n - first;
            uint32_t none = 0, *message = &none;
            if (tutti_step_is_message(s)) message = &messages[2 * s->peer + tutti_step_sends(s)];
            TUTTI_TRY(write_part(w, s, first, left < TUTTI_MSCCL_MOST_COUNT ? left : TUTTI_MSCCL_MOST_COUNT, *message));
            ++*message;
        }
    }
    TUTTI_TRY(write_result(w));
    write_rank(w);
    return TUTTI_OK;
}

/* Whether some rank sends to, or receives from, more others than a channel takes. */
static bool is_busy(const struct tutti_schedule *const *schedules, uint32_t n, uint32_t *counts)
{
    for (uint32_t s = 0; s < n; s++) {
        uint32_t peers[2] = {0, 0};
        memset(counts, 0, 2 * (size_t)n * sizeof *counts);
        for (uint32_t i = 0; i < schedules[s]->n_steps; i++) {
            const struct tutti_step *step = &schedules[s]->steps[i];
            const bool sends = tutti_step_sends(step);
            if (tutti_step_is_message(step)) peers[sends] += counts[2 * step->peer + sends]++ == 0;
        }
        if (peers[0] > TUTTI_MSCCL_MOST_PEERS || peers[1] > TUTTI_MSCCL_MOST_PEERS) return true;
    }
    return false;
}

static enum tutti_status do_ranks(struct writing *w, const struct tutti_schedule *const *schedules, uint32_t n)
{
    uint32_t *messages = tutti_alloc_array(n, 2 * sizeof *messages);
    w->width = TUTTI_MSCCL_MOST_BLOCKS;
    w->needs = tutti_alloc_array(w->width, sizeof *w->needs);
    enum tutti_status status =
        messages && w->needs ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory to write a plan of %u ranks", n);
    w->n_groups = status >= 0 && is_busy(schedules, n, messages) ? (n - 2) / TUTTI_MSCCL_MOST_PEERS + 1 : 1;
    for (uint32_t s = 0; s < n && status >= 0; s++) status = do_rank(w, schedules[s], messages);
    tutti_free(messages);
    tutti_free(w->needs);
    tutti_free(w->blocks);
    tutti_free(w->steps);
    tutti_free(w->written);
    tutti_free(w->touches);
    tutti_free(w->known);
    return status;
}

static enum tutti_status check(const struct tutti_schedule *const *schedules, uint32_t n)
{
    const struct tutti_schedule *first = schedules[0];
    const char *name = first->algorithm->name, *kind = tutti_kind_name(first->kind);
    if (!tutti_msccl_coll(first->kind)) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "MSCCL has no %s", kind);
    if (first->shape.root != 0)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the root of a plan of MSCCL is 0, not %u", first->shape.root);
    for (uint32_t s = 0; s < n; s++) {
        if (schedules[s]->defect) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s", schedules[s]->defect);
        if (schedules[s]->n_calls > 0)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s %s has calls that are not expanded", name, kind);
    }
    return TUTTI_OK;
}

/* The bodies of all ranks, with at most so many messages of two ranks on a channel. */
static enum tutti_status body(const struct tutti_schedule *const *schedules, uint32_t n, uint32_t per_channel,
                              struct writing *w, char **text, size_t *bytes)
{
    const struct tutti_kind_info *info = tutti_kind_info(schedules[0]->kind);
    const uint32_t n_chunks = schedules[0]->n_chunks, blocks = tutti_kind_blocks(schedules[0]->kind, n);
    *w = (struct writing){.per_channel = per_channel, .most_channels = 1};
    w->n_in = info->send.blocks == TUTTI_ONE_BLOCK ? n_chunks / blocks : n_chunks;
    w->n_out = info->recv.blocks == TUTTI_ONE_BLOCK ? n_chunks / blocks : n_chunks;
    w->file = open_memstream(text, bytes);
    if (!w->file) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to write a plan of %u ranks", n);
    enum tutti_status status = do_ranks(w, schedules, n);
    if (fclose(w->file) != 0 && status >= 0) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to write a plan");
    return status;
}

static void write_name(const char *name, FILE *file)
{
    const char *slash = strrchr(name, '/');
    for (name = slash ? slash + 1 : name; *name; name++)
        fputc(strchr("<>&\"'", *name) || (unsigned char)*name < ' ' ? '_' : *name, file);
}

enum tutti_status tutti_msccl_write(const struct tutti_schedule *const *schedules, uint32_t n, FILE *file)
{
    static const uint32_t per_channel[] = {TUTTI_MSCCL_MOST_STEPS, 128, 64, 32, 16, 8};
    struct writing w = {0};
    char *text = NULL;
    size_t bytes = 0;
    TUTTI_TRY(check(schedules, n));
    enum tutti_status status = TUTTI_OK;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(per_channel) && status >= 0; i++) {
        free(text);
        text = NULL;
        status = body(schedules, n, per_channel[i], &w, &text, &bytes);
        if (w.most_steps <= TUTTI_MSCCL_MOST_STEPS) break;
    }
    const bool separate = tutti_kind_info(schedules[0]->kind)->separate_in;
    const uint32_t n_chunks = 2 * schedules[0]->n_chunks + schedules[0]->n_scratch;
    if (status >= 0 && (w.most_waited > INT8_MAX + 1 || n_chunks > INT16_MAX))
        status = tutti_fail(TUTTI_ERR_UNSUPPORTED,
                            "%s %s of %u ranks has steps that wait for thread block %u, or %u chunks: MSCCL's runtime "
                            "keeps these numbers in 8 and 16 bits",
                            schedules[0]->algorithm->name, tutti_kind_name(schedules[0]->kind), n,
                            w.most_waited ? w.most_waited - 1 : 0, n_chunks);
    if (status >= 0 && (w.most_steps > TUTTI_MSCCL_MOST_STEPS || w.most_channels > TUTTI_MSCCL_MOST_CHANNELS))
        status = tutti_fail(TUTTI_ERR_UNSUPPORTED,
                            "%s %s of %u ranks needs %u steps of a thread block and %u channels: MSCCL takes at most "
                            "%d and %d",
                            schedules[0]->algorithm->name, tutti_kind_name(schedules[0]->kind), n, w.most_steps,
                            w.most_channels, (int)TUTTI_MSCCL_MOST_STEPS, (int)TUTTI_MSCCL_MOST_CHANNELS);
    if (status >= 0) {
        fprintf(file, "<algo name=\"");
        write_name(schedules[0]->algorithm->name, file);
        fprintf(file, "\" proto=\"Simple\" nchannels=\"%u\" nchunksperloop=\"%u\" ngpus=\"%u\" coll=\"%s\" ",
                w.most_channels, schedules[0]->n_chunks, n, tutti_msccl_coll(schedules[0]->kind));
        fprintf(file, "inplace=\"%d\" outofplace=\"1\" minBytes=\"0\" maxBytes=\"%" PRId64 "\">\n", !separate,
                MOST_BYTES);
        fwrite(text, 1, bytes, file);
        fprintf(file, "</algo>\n");
        if (ferror(file)) status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "the plan can not be written");
    }
    free(text);
    return status;
}
