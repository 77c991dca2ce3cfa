/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of a plan: elements and attributes by a table, everything bounded, the first mistake told with its line. */

#include "load/msccl.h"
#include "load/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_GPUS = 1 << 16,
    MOST_BLOCKS = 1 << 18,
    MOST_STEPS = 1 << 20,
    MOST_CHUNKS = 1 << 20, /* a buffer's */
    MOST_CHANNEL = 1 << 16
};

struct reader {
    struct tutti_xml xml;
    struct tutti_msccl *plan;
    uint32_t gpu, block; /* the ones that are open; NONE */
};

#define REFUSE(line, ...) tutti_fail_at(reader->plan->file, line, __VA_ARGS__)

void tutti_msccl_fini(struct tutti_msccl *plan)
{
    tutti_free(plan->gpus);
    tutti_free(plan->blocks);
    tutti_free(plan->steps);
    tutti_free(plan->connections);
    *plan = (struct tutti_msccl){0};
}

/* ---- attributes ---- */

static enum tutti_status word(const struct reader *reader, const char *name, const char **out)
{
    *out = tutti_xml_attribute(&reader->xml, name);
    return *out ? TUTTI_OK : REFUSE(reader->xml.element_line, "<%s> lacks the attribute %s", reader->xml.element, name);
}

/* A number from `least` (-1 or more) to `most`; -1 becomes NONE. */
static enum tutti_status number(const struct reader *reader, const char *name, int64_t least, int64_t most,
                                uint32_t *out)
{
    const char *text;
    char *end;
    TUTTI_TRY(word(reader, name, &text));
    const size_t n = strlen(text);
    const long long value = n > 0 && n < 12 ? strtoll(text, &end, 10) : 0;
    if (n == 0 || (n < 12 && (*end || (text[0] != '-' && (text[0] < '0' || text[0] > '9')))))
        return REFUSE(reader->xml.element_line, "%s=\"%.40s\" of <%s> is no number", name, text, reader->xml.element);
    if (n >= 12 || value < least || value > most)
        return REFUSE(reader->xml.element_line, "%s=\"%.40s\" of <%s> is out of range: %lld to %lld", name, text,
                      reader->xml.element, (long long)least, (long long)most);
    *out = value < 0 ? TUTTI_MSCCL_NONE : (uint32_t)value;
    return TUTTI_OK;
}

/* 0 or 1; `missing` where it is not given. */
static enum tutti_status flag(const struct reader *reader, const char *name, bool missing, bool *out)
{
    uint32_t value = missing;
    if (tutti_xml_attribute(&reader->xml, name)) TUTTI_TRY(number(reader, name, 0, 1, &value));
    *out = value != 0;
    return TUTTI_OK;
}

/* ---- elements ---- */

/* The first word of a kind is the one that is written. */
static const struct {
    const char *word;
    enum tutti_kind kind;
} kinds[] = {
    {"allreduce", TUTTI_ALL_REDUCE},         {"allgather", TUTTI_ALL_GATHER}, {"reduce", TUTTI_REDUCE},
    {"broadcast", TUTTI_BROADCAST},          {"alltoall", TUTTI_ALL_TO_ALL},  {"reduce_scatter", TUTTI_REDUCE_SCATTER},
    {"reducescatter", TUTTI_REDUCE_SCATTER}, {"gather", TUTTI_GATHER},        {"scatter", TUTTI_SCATTER}};

const char *tutti_msccl_coll(enum tutti_kind kind)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(kinds); i++)
        if (kinds[i].kind == kind) return kinds[i].word;
    return NULL;
}

bool tutti_msccl_kind(const char *coll, enum tutti_kind *out)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(kinds); i++) {
        *out = kinds[i].kind;
        if (strcmp(kinds[i].word, coll) == 0) return true;
    }
    return false;
}

static enum tutti_status read_kind(const struct reader *reader, enum tutti_kind *out)
{
    const char *coll;
    TUTTI_TRY(word(reader, "coll", &coll));
    if (tutti_msccl_kind(coll, out)) return TUTTI_OK;
    return REFUSE(reader->xml.element_line,
                  "coll=\"%.40s\" does not say what the result is to be: proved are allreduce, allgather, reduce, "
                  "broadcast, alltoall, reduce_scatter, gather and scatter",
                  coll);
}

void tutti_msccl_name(const char *from, char *out)
{
    size_t n = 0;
    for (; *from && n < 60; from++) {
        const bool plain = (*from >= 'a' && *from <= 'z') || (*from >= 'A' && *from <= 'Z') ||
                           (*from >= '0' && *from <= '9') || *from == '-' || *from == '_' || *from == '.';
        out[n++] = plain ? *from : '_';
    }
    snprintf(out + n, 64 - n, "%s", n == 0 ? "msccl" : "");
}

static enum tutti_status open_algo(struct reader *reader)
{
    struct tutti_msccl *plan = reader->plan;
    const uint32_t line = reader->xml.element_line;
    const char *name, *protocol;
    bool outside;
    if (plan->gpus) return REFUSE(line, "a second <algo>");
    TUTTI_TRY(word(reader, "name", &name));
    TUTTI_TRY(word(reader, "proto", &protocol));
    TUTTI_TRY(read_kind(reader, &plan->kind));
    TUTTI_TRY(number(reader, "ngpus", 1, MOST_GPUS, &plan->n_gpus));
    TUTTI_TRY(number(reader, "nchunksperloop", 1, MOST_CHUNKS, &plan->n_chunks));
    TUTTI_TRY(flag(reader, "inplace", false, &plan->in_place));
    TUTTI_TRY(flag(reader, "outofplace", !plan->in_place, &outside));
    if (!plan->in_place && !outside) return REFUSE(line, "inplace and outofplace are both 0: it is never to be run");
    plan->n_slots = strcmp(protocol, "Simple") == 0 ? 2 : TUTTI_MSCCL_MOST_SLOTS;
    if (strcmp(protocol, "Simple") != 0 && strcmp(protocol, "LL") != 0 && strcmp(protocol, "LL128") != 0)
        return REFUSE(line, "proto=\"%.40s\" is none of Simple, LL and LL128", protocol);
    tutti_msccl_name(name, plan->name);
    const struct tutti_kind_info *info = tutti_kind_info(plan->kind);
    const uint32_t per_block = plan->n_chunks / tutti_kind_blocks(plan->kind, plan->n_gpus);
    if (per_block * tutti_kind_blocks(plan->kind, plan->n_gpus) != plan->n_chunks)
        return REFUSE(line, "nchunksperloop=\"%u\" does not give each of %u gpus as many chunks", plan->n_chunks,
                      plan->n_gpus);
    if ((uint64_t)plan->n_gpus * plan->n_chunks > TUTTI_MSCCL_MOST_CHUNKS)
        return REFUSE(line, "%u gpus of %u chunks are more than %d in all", plan->n_gpus, plan->n_chunks,
                      (int)TUTTI_MSCCL_MOST_CHUNKS);
    plan->n_in = info->send.blocks == TUTTI_ONE_BLOCK ? per_block : plan->n_chunks;
    plan->n_out = info->recv.blocks == TUTTI_ONE_BLOCK ? per_block : plan->n_chunks;
    plan->gpus = tutti_alloc_array(plan->n_gpus, sizeof *plan->gpus);
    return plan->gpus ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan of %u gpus", plan->n_gpus);
}

/* Counts of input and output come from use, so that one in place may have 0 for either. */
static enum tutti_status open_gpu(struct reader *reader)
{
    struct tutti_msccl *plan = reader->plan;
    const uint32_t line = reader->xml.element_line;
    uint32_t id = 0, n_in, n_out;
    TUTTI_TRY(number(reader, "id", 0, plan->n_gpus - 1, &id));
    struct tutti_msccl_gpu *gpu = &plan->gpus[id];
    if (gpu->line) return REFUSE(line, "gpu %u is given twice, first in line %u", id, gpu->line);
    *gpu = (struct tutti_msccl_gpu){.line = line, .first = plan->n_blocks};
    TUTTI_TRY(number(reader, "i_chunks", 0, MOST_CHUNKS, &n_in));
    TUTTI_TRY(number(reader, "o_chunks", 0, MOST_CHUNKS, &n_out));
    TUTTI_TRY(number(reader, "s_chunks", 0, MOST_CHUNKS, &gpu->n_scratch));
    if (n_in > 0 && n_in != plan->n_in)
        return REFUSE(line, "gpu %u has i_chunks=\"%u\", where nchunksperloop makes them %u", id, n_in, plan->n_in);
    if (n_out > 0 && n_out != plan->n_out)
        return REFUSE(line, "gpu %u has o_chunks=\"%u\", where nchunksperloop makes them %u", id, n_out, plan->n_out);
    reader->gpu = id;
    return TUTTI_OK;
}

enum tutti_status tutti_msccl_grow(void **array, uint32_t n, uint32_t *capacity, size_t bytes)
{
    if (n < *capacity) return TUTTI_OK;
    const uint32_t more = *capacity ? 2 * *capacity : 64;
    void *grown = tutti_alloc_array(more, bytes);
    if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan");
    if (n > 0) memcpy(grown, *array, n * bytes);
    tutti_free(*array);
    *array = grown;
    *capacity = more;
    return TUTTI_OK;
}

static enum tutti_status read_peer(const struct reader *reader, const char *name, uint32_t *out)
{
    const uint32_t n = reader->plan->n_gpus;
    TUTTI_TRY(number(reader, name, -1, INT32_MAX, out));
    if (*out != TUTTI_MSCCL_NONE && *out >= n)
        return REFUSE(reader->xml.element_line, "peer %s=\"%u\" of gpu %u is out of range: there are gpus 0 to %u",
                      name, *out, reader->gpu, n - 1);
    return *out == reader->gpu ? REFUSE(reader->xml.element_line, "gpu %u has itself as peer %s", reader->gpu, name)
                               : TUTTI_OK;
}

static enum tutti_status open_block(struct reader *reader)
{
    struct tutti_msccl *plan = reader->plan;
    struct tutti_msccl_block block = {.line = reader->xml.element_line,
                                      .gpu = reader->gpu,
                                      .first = plan->n_steps,
                                      .out = TUTTI_MSCCL_NONE,
                                      .in = TUTTI_MSCCL_NONE};
    if (plan->n_blocks == MOST_BLOCKS) return REFUSE(block.line, "more than %d thread blocks", (int)MOST_BLOCKS);
    TUTTI_TRY(number(reader, "id", 0, MOST_BLOCKS, &block.id));
    TUTTI_TRY(read_peer(reader, "send", &block.send));
    TUTTI_TRY(read_peer(reader, "recv", &block.recv));
    TUTTI_TRY(number(reader, "chan", -1, MOST_CHANNEL, &block.channel));
    if (block.channel == TUTTI_MSCCL_NONE && (block.send != TUTTI_MSCCL_NONE || block.recv != TUTTI_MSCCL_NONE))
        return REFUSE(block.line, "gpu %u tb %u has a peer, but chan=\"-1\"", block.gpu, block.id);
    TUTTI_TRY(tutti_msccl_grow((void **)&plan->blocks, plan->n_blocks, &plan->block_capacity, sizeof *plan->blocks));
    reader->block = plan->n_blocks++;
    plan->blocks[reader->block] = block;
    return TUTTI_OK;
}

/* Blocks of a GPU are numbered without a gap, and may stand in any order. */
static enum tutti_status close_gpu(struct reader *reader)
{
    struct tutti_msccl *plan = reader->plan;
    struct tutti_msccl_gpu *gpu = &plan->gpus[reader->gpu];
    struct tutti_msccl_block *blocks = plan->blocks + gpu->first;
    gpu->n = plan->n_blocks - gpu->first;
    for (uint32_t i = 0; i < gpu->n; i++) {
        while (blocks[i].id != i) {
            const uint32_t id = blocks[i].id;
            if (id >= gpu->n)
                return REFUSE(blocks[i].line,
                              "gpu %u has a tb %u, but only %u of them: ids are 0, 1, ... without a gap", reader->gpu,
                              id, gpu->n);
            const struct tutti_msccl_block moved = blocks[id];
            if (moved.id == id)
                return REFUSE(blocks[i].line, "gpu %u has two tbs of id %u, the other in line %u", reader->gpu, id,
                              moved.line);
            blocks[id] = blocks[i];
            blocks[i] = moved;
        }
    }
    reader->gpu = TUTTI_MSCCL_NONE;
    return TUTTI_OK;
}

static const struct type {
    const char *word;
    uint8_t does;
} types[] = {
    {"s", TUTTI_MSCCL_SENDS | TUTTI_MSCCL_READS},
    {"r", TUTTI_MSCCL_RECEIVES | TUTTI_MSCCL_WRITES},
    {"rcs", TUTTI_MSCCL_RECEIVES | TUTTI_MSCCL_WRITES | TUTTI_MSCCL_SENDS},
    {"rrc", TUTTI_MSCCL_RECEIVES | TUTTI_MSCCL_READS | TUTTI_MSCCL_WRITES},
    {"rrs", TUTTI_MSCCL_RECEIVES | TUTTI_MSCCL_READS | TUTTI_MSCCL_SENDS},
    {"rrcs", TUTTI_MSCCL_RECEIVES | TUTTI_MSCCL_READS | TUTTI_MSCCL_WRITES | TUTTI_MSCCL_SENDS},
    {"cpy", TUTTI_MSCCL_READS | TUTTI_MSCCL_WRITES},
    {"re", TUTTI_MSCCL_READS | TUTTI_MSCCL_WRITES | TUTTI_MSCCL_ADDS_DST},
    {"nop", 0},
};

static enum tutti_status read_type(const struct reader *reader, uint8_t *does)
{
    const char *type;
    TUTTI_TRY(word(reader, "type", &type));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(types); i++) {
        *does = types[i].does;
        if (strcmp(types[i].word, type) == 0) return TUTTI_OK;
    }
    return REFUSE(reader->xml.element_line,
                  "type=\"%.40s\" is no type of a step (s, r, rcs, rrc, rrs, rrcs, cpy, re, nop)", type);
}

/* A buffer and the chunks from an offset on, which must all be in it. */
static enum tutti_status read_chunks(const struct reader *reader, bool is_src, uint32_t n, uint8_t *buffer,
                                     uint32_t *chunk)
{
    static const char letters[] = "ios";
    const struct tutti_msccl *plan = reader->plan;
    const uint32_t room[] = {plan->n_in, plan->n_out, plan->gpus[reader->gpu].n_scratch};
    const char *text;
    TUTTI_TRY(word(reader, is_src ? "srcbuf" : "dstbuf", &text));
    const char *at = text[0] && !text[1] ? strchr(letters, text[0]) : NULL;
    if (!at) return REFUSE(reader->xml.element_line, "buffer \"%.40s\" is none of i, o and s", text);
    *buffer = (uint8_t)(at - letters);
    TUTTI_TRY(number(reader, is_src ? "srcoff" : "dstoff", 0, MOST_CHUNKS, chunk));
    if (*chunk + n > room[*buffer])
        return REFUSE(reader->xml.element_line, "%s %s%u with cnt %u is out of range: gpu %u has %u chunks of %s",
                      is_src ? "source" : "destination", text, *chunk, n, reader->gpu, room[*buffer], text);
    return TUTTI_OK;
}

static bool overlap(const struct tutti_msccl_step *step)
{
    return step->src_buffer == step->dst_buffer && step->src != step->dst && step->src < step->dst + step->n &&
           step->dst < step->src + step->n;
}

static enum tutti_status open_step(struct reader *reader)
{
    struct tutti_msccl *plan = reader->plan;
    const struct tutti_msccl_block *block = &plan->blocks[reader->block];
    struct tutti_msccl_step step = {.line = reader->xml.element_line};
    uint32_t s;
    if (plan->n_steps == MOST_STEPS) return REFUSE(step.line, "more than %d steps", (int)MOST_STEPS);
    TUTTI_TRY(number(reader, "s", 0, MOST_STEPS, &s));
    if (s != plan->n_steps - block->first)
        return REFUSE(step.line, "step %u of gpu %u tb %u, where step %u is expected: each stands once, in order", s,
                      block->gpu, block->id, plan->n_steps - block->first);
    TUTTI_TRY(read_type(reader, &step.does));
    TUTTI_TRY(number(reader, "cnt", 0, MOST_CHUNKS, &step.n));
    TUTTI_TRY(number(reader, "depid", -1, MOST_BLOCKS, &step.wait_block));
    TUTTI_TRY(number(reader, "deps", -1, MOST_STEPS, &step.wait));
    TUTTI_TRY(flag(reader, "hasdep", false, &step.signals));
    if (step.n == 0 && step.does) return REFUSE(step.line, "cnt=\"0\" of a step that is no nop");
    if (step.does & TUTTI_MSCCL_READS) TUTTI_TRY(read_chunks(reader, true, step.n, &step.src_buffer, &step.src));
    if (step.does & TUTTI_MSCCL_WRITES) TUTTI_TRY(read_chunks(reader, false, step.n, &step.dst_buffer, &step.dst));
    if ((step.does & TUTTI_MSCCL_READS) && (step.does & TUTTI_MSCCL_WRITES) && overlap(&step))
        return REFUSE(step.line, "source and destination overlap");
    if ((step.does & TUTTI_MSCCL_ADDS_DST) && step.src_buffer == step.dst_buffer && step.src == step.dst)
        return REFUSE(step.line, "re of chunks with themselves");
    if ((step.does & TUTTI_MSCCL_SENDS) && block->send == TUTTI_MSCCL_NONE)
        return REFUSE(step.line, "gpu %u tb %u sends, but it has send=\"-1\"", block->gpu, block->id);
    if ((step.does & TUTTI_MSCCL_RECEIVES) && block->recv == TUTTI_MSCCL_NONE)
        return REFUSE(step.line, "gpu %u tb %u receives, but it has recv=\"-1\"", block->gpu, block->id);
    if (!step.does) step.signals = false; /* the runtime carries out no nop */
    TUTTI_TRY(tutti_msccl_grow((void **)&plan->steps, plan->n_steps, &plan->step_capacity, sizeof *plan->steps));
    plan->steps[plan->n_steps++] = step;
    plan->blocks[reader->block].n++;
    return TUTTI_OK;
}

static enum tutti_status read_elements(struct reader *reader)
{
    static const struct {
        const char *name;
        enum tutti_status (*open)(struct reader *reader);
    } levels[] = {{"algo", open_algo}, {"gpu", open_gpu}, {"tb", open_block}, {"step", open_step}};
    for (;;) {
        enum tutti_xml_event event;
        TUTTI_TRY(tutti_xml_next(&reader->xml, &event));
        if (event == TUTTI_XML_END) return TUTTI_OK;
        const uint32_t depth = reader->xml.depth;
        if (event == TUTTI_XML_CLOSE) {
            if (depth == 1) TUTTI_TRY(close_gpu(reader));
            continue;
        }
        if (depth > TUTTI_ARRAY_LEN(levels) || strcmp(reader->xml.element, levels[depth - 1].name) != 0)
            return REFUSE(reader->xml.element_line, "<%s> where <%s> is expected", reader->xml.element,
                          depth > TUTTI_ARRAY_LEN(levels) ? "nothing" : levels[depth - 1].name);
        TUTTI_TRY(levels[depth - 1].open(reader));
    }
}

enum tutti_status tutti_msccl_read(const char *file, char *text, size_t bytes, struct tutti_msccl *out)
{
    struct reader reader = {.plan = out, .gpu = TUTTI_MSCCL_NONE, .block = TUTTI_MSCCL_NONE};
    *out = (struct tutti_msccl){.file = file};
    tutti_xml_init(&reader.xml, file, text, bytes);
    enum tutti_status status = read_elements(&reader);
    if (status >= 0) status = tutti_msccl_check(out, reader.xml.line);
    if (status < 0) tutti_msccl_fini(out);
    return status;
}
