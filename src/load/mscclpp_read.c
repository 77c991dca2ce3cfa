/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of a plan of MSCCL++: a table says what each operation reads and writes as packets; everything is bounded,
 * and the first mistake is told with its line. */

#include "load/json.h"
#include "load/mscclpp.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_GPUS = 1024, MOST_NUMBER = 1 << 20, MOST_OPS = 1 << 18, MOST_GROUP = 64, MOST_LIST = 1024 };

/* What the operation reads and writes is packets. */
enum packets { SRC_0 = 1, SRC_REST = 2, DST_0 = 4, DST_REST = 8, DST_PEER = 16, FOLDS = 32 };
static const struct name {
    const char *name;
    uint8_t packets;
} names[] = {
    {"copy", 0},
    {"put", 0},
    {"get", 0},
    {"re", FOLDS},
    {"res", FOLDS},
    {"rre", FOLDS},
    {"rres", FOLDS},
    {"cpkt", DST_0},
    {"upkt", SRC_0},
    {"ppkt", DST_PEER},
    {"rppkt", SRC_0 | DST_PEER},
    {"repkt", FOLDS | SRC_REST},
    {"respkt", FOLDS | SRC_REST | DST_PEER},
    {"recpkt", FOLDS | SRC_REST | DST_REST},
    {"recspkt", FOLDS | SRC_REST | DST_REST | DST_PEER},
};

typedef const struct tutti_json_value value;
struct reader {
    struct tutti_json json;
    struct tutti_pp *plan;
    value *gpu, *block; /* at hand */
    uint32_t slot;
    uint32_t *ends; /* by GPU: its first end of a channel */
};

#define REFUSE(at, ...) tutti_fail_at(reader->plan->file, (at)->line, __VA_ARGS__)

void tutti_pp_fini(struct tutti_pp *plan)
{
    tutti_free(plan->n_scratch);
    tutti_free(plan->blocks);
    tutti_free(plan->ops);
    tutti_free(plan->accesses);
    tutti_free(plan->ends);
    *plan = (struct tutti_pp){0};
}

/* ---- members ---- */

static enum tutti_status member(const struct reader *reader, value *of, const char *name, enum tutti_json_type type,
                                value **out)
{
    *out = tutti_json_member(&reader->json, of, name);
    if (!*out) return REFUSE(of, "\"%s\" is missing", name);
    const bool boolean = type == TUTTI_JSON_TRUE && (*out)->type == TUTTI_JSON_FALSE;
    if ((*out)->type == TUTTI_JSON_LIST && (*out)->n > MOST_LIST && strcmp(name, "ops") != 0)
        return REFUSE(*out, "\"%s\" has more than %d members", name, (int)MOST_LIST);
    return (*out)->type == type || boolean ? TUTTI_OK : REFUSE(*out, "\"%s\" is of another type", name);
}

static enum tutti_status number_of(const struct reader *reader, value *at, uint32_t most, uint32_t *out)
{
    char *end;
    const long long number = at->type == TUTTI_JSON_NUMBER && strlen(at->text) < 12 ? strtoll(at->text, &end, 10) : -1;
    if (number < 0 || *end || number > most)
        return REFUSE(at, "%.20s is out of range: 0 to %u", at->type == TUTTI_JSON_NUMBER ? at->text : "a value", most);
    *out = (uint32_t)number;
    return TUTTI_OK;
}

static enum tutti_status number(const struct reader *reader, value *of, const char *name, uint32_t most, uint32_t *out)
{
    value *at;
    TUTTI_TRY(member(reader, of, name, TUTTI_JSON_NUMBER, &at));
    return number_of(reader, at, most, out);
}

/* Member `index` of a list; NULL: it has not so many. */
static value *at_index(const struct reader *reader, value *list, uint32_t index)
{
    value *at = tutti_json_next(&reader->json, list, NULL);
    for (; at && index > 0; index--) at = tutti_json_next(&reader->json, list, at);
    return at;
}

/* The member of the list whose "channel_type" is memory; NULL: there is none. */
static value *of_memory(const struct reader *reader, value *list, const char *type)
{
    for (value *at = NULL; (at = tutti_json_next(&reader->json, list, at));) {
        value *is = tutti_json_member(&reader->json, at, type);
        if (is && is->type == TUTTI_JSON_TEXT && strcmp(is->text, "memory") == 0) return at;
    }
    return NULL;
}

/* ---- operations ---- */

static enum tutti_status read_letter(const struct reader *reader, value *type, uint8_t *buffer)
{
    static const char letters[] = "ios";
    const char *text = type->type == TUTTI_JSON_TEXT ? type->text : "";
    const char *at = text[0] && !text[1] ? strchr(letters, text[0]) : NULL;
    if (!at) return REFUSE(type, "buffer \"%.20s\" is none of i, o and s", text);
    *buffer = (uint8_t)(at - letters);
    return TUTTI_OK;
}

/* A peer's buffer, by way of the block's and the GPU's lists. */
static enum tutti_status read_peer_buffer(const struct reader *reader, value *at, struct tutti_pp_access *out)
{
    value *refs, *ids, *id, *buffers, *buffer, *type;
    uint32_t index = 0;
    TUTTI_TRY(number(reader, at, "buffer_id", MOST_NUMBER, &index));
    TUTTI_TRY(member(reader, reader->block, "remote_buffer_refs", TUTTI_JSON_LIST, &refs));
    value *ref = of_memory(reader, refs, "access_channel_type");
    if (!ref) return REFUSE(at, "the block has no peers' buffers by memory channels");
    TUTTI_TRY(member(reader, ref, "remote_buffer_ids", TUTTI_JSON_LIST, &ids));
    if (!(id = at_index(reader, ids, index))) return REFUSE(at, "buffer_id %u: the block has %u", index, ids->n);
    TUTTI_TRY(number_of(reader, id, MOST_NUMBER, &index));
    TUTTI_TRY(member(reader, reader->gpu, "remote_buffers", TUTTI_JSON_LIST, &buffers));
    if (!(buffer = at_index(reader, buffers, index)))
        return REFUSE(id, "remote buffer %u: gpu %u has %u", index, reader->slot, buffers->n);
    TUTTI_TRY(number(reader, buffer, "rank", reader->plan->n_gpus - 1, &out->gpu));
    TUTTI_TRY(member(reader, buffer, "type", TUTTI_JSON_TEXT, &type));
    TUTTI_TRY(read_letter(reader, type, &out->buffer));
    return out->gpu == reader->slot ? REFUSE(buffer, "gpu %u has a remote buffer of itself", reader->slot) : TUTTI_OK;
}

static enum tutti_status read_access(const struct reader *reader, value *at, struct tutti_pp_access *out, uint32_t *n)
{
    const struct tutti_pp *plan = reader->plan;
    value *type = tutti_json_member(&reader->json, at, "type");
    uint32_t index = 0;
    out->gpu = reader->slot;
    TUTTI_TRY(number(reader, at, "index", MOST_NUMBER, &index));
    TUTTI_TRY(number(reader, at, "size", MOST_NUMBER, n));
    if (type) {
        TUTTI_TRY(read_letter(reader, type, &out->buffer));
    } else {
        TUTTI_TRY(read_peer_buffer(reader, at, out));
    }
    const uint64_t room = out->buffer == TUTTI_MSCCL_INPUT    ? plan->n_in
                          : out->buffer == TUTTI_MSCCL_OUTPUT ? plan->n_out
                                                              : plan->n_scratch[out->gpu];
    if (*n == 0 || ((uint64_t)index + *n) * plan->scale > room)
        return REFUSE(at, "%c%u with size %u is out of range: gpu %u has %llu chunks of it", "ios"[out->buffer], index,
                      *n, out -> gpu, (unsigned long long)room / plan -> scale);
    out->chunk = index * plan->scale;
    *n *= plan->scale;
    return TUTTI_OK;
}

/* The part of the block in its group: a group's blocks share an operation. */
static enum tutti_status read_share(const struct reader *reader, value *op, uint32_t *part, uint32_t *parts)
{
    value *group = tutti_json_member(&reader->json, op, "tbg_info");
    *part = 0, *parts = 1;
    if (!group) return TUTTI_OK;
    TUTTI_TRY(number(reader, group, "tbg_size", MOST_GROUP, parts));
    if (*parts == 0) return REFUSE(group, "tbg_size is 0");
    return number(reader, group, "tb_id", *parts - 1, part);
}

static enum tutti_status add_op(struct tutti_pp *plan, struct tutti_pp_op op)
{
    TUTTI_TRY(tutti_msccl_grow((void **)&plan->ops, plan->n_ops, &plan->op_capacity, sizeof *plan->ops));
    plan->ops[plan->n_ops++] = op;
    plan->blocks[plan->n_blocks - 1].n++;
    return TUTTI_OK;
}

static enum tutti_status read_accesses(struct reader *reader, value *op, bool src, uint8_t packets,
                                       struct tutti_pp_op *out)
{
    struct tutti_pp *plan = reader->plan;
    value *list;
    uint32_t n = 0, part, parts, k = 0;
    TUTTI_TRY(read_share(reader, op, &part, &parts));
    TUTTI_TRY(member(reader, op, src ? "src_buff" : "dst_buff", TUTTI_JSON_LIST, &list));
    if (list->n == 0) return REFUSE(list, "an operation on no buffer");
    for (value *at = NULL; (at = tutti_json_next(&reader->json, list, at)); k++) {
        struct tutti_pp_access access = {0};
        TUTTI_TRY(read_access(reader, at, &access, &n));
        access.chunk += part * (n / parts);
        n /= parts;
        if (out->n > 0 && out->n != n) return REFUSE(at, "sizes of one operation differ");
        out->n = n;
        const bool peers = access.gpu != reader->slot;
        access.packet = packets & (src ? (k == 0 ? SRC_0 : SRC_REST) : peers ? DST_PEER : k == 0 ? DST_0 : DST_REST);
        if (access.packet && access.buffer != TUTTI_MSCCL_SCRATCH) return REFUSE(at, "packets stand in scratch alone");
        TUTTI_TRY(tutti_msccl_grow((void **)&plan->accesses, plan->n_accesses, &plan->access_capacity,
                                   sizeof *plan->accesses));
        plan->accesses[plan->n_accesses++] = access;
    }
    *(src ? &out->n_src : &out->n_dst) = k;
    return TUTTI_OK;
}

/* An operation that is no sum takes its sources one by one, each to the destination beside it. */
static enum tutti_status add_moves(struct reader *reader, value *at, struct tutti_pp_op op, bool folds)
{
    struct tutti_pp *plan = reader->plan;
    if (folds || op.n_src == 1) return add_op(plan, op);
    if (op.n_src != op.n_dst) return REFUSE(at, "%u sources and %u destinations", op.n_src, op.n_dst);
    const uint32_t first = op.first, n = op.n_src;
    for (uint32_t k = 0; k < n; k++) {
        struct tutti_pp_op one = op;
        one.n_src = one.n_dst = 1;
        one.first = plan->n_accesses;
        for (uint32_t side = 0; side < 2; side++) {
            TUTTI_TRY(tutti_msccl_grow((void **)&plan->accesses, plan->n_accesses, &plan->access_capacity,
                                       sizeof *plan->accesses));
            plan->accesses[plan->n_accesses] = plan->accesses[first + side * n + k];
            plan->n_accesses++;
        }
        TUTTI_TRY(add_op(plan, one));
    }
    return TUTTI_OK;
}

static enum tutti_status read_move(struct reader *reader, value *op, const char *name)
{
    value *reduce = tutti_json_member(&reader->json, op, "reduce_op");
    struct tutti_pp_op out = {.line = op->line, .what = TUTTI_PP_MOVE, .first = reader->plan->n_accesses};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(names); i++) {
        if (strcmp(names[i].name, name) != 0) continue;
        if (reduce && (reduce->type != TUTTI_JSON_TEXT || strcmp(reduce->text, "sum") != 0))
            return REFUSE(reduce, "reduce_op is not sum");
        TUTTI_TRY(read_accesses(reader, op, true, names[i].packets, &out));
        TUTTI_TRY(read_accesses(reader, op, false, names[i].packets, &out));
        return add_moves(reader, op, out, names[i].packets & FOLDS);
    }
    return REFUSE(op, "operation \"%.40s\" is not read: see docs/formats.md", name);
}

static enum tutti_status read_semaphore(struct reader *reader, value *op, bool signals, bool relaxed)
{
    struct tutti_pp *plan = reader->plan;
    const uint32_t block = plan->n_blocks - 1;
    value *ids, *list, *own;
    TUTTI_TRY(member(reader, op, "channel_ids", TUTTI_JSON_LIST, &ids));
    TUTTI_TRY(member(reader, reader->block, "channels", TUTTI_JSON_LIST, &list));
    value *channels = of_memory(reader, list, "channel_type");
    if (!channels) return REFUSE(op, "the block has no memory channel");
    TUTTI_TRY(member(reader, channels, "channel_ids", TUTTI_JSON_LIST, &own));
    for (value *at = NULL; (at = tutti_json_next(&reader->json, ids, at));) {
        uint32_t index = 0, channel = 0;
        TUTTI_TRY(number_of(reader, at, MOST_NUMBER, &index));
        value *which = at_index(reader, own, index);
        if (!which) return REFUSE(at, "channel %u: the block has %u", index, own->n);
        TUTTI_TRY(number_of(reader, which, MOST_NUMBER, &channel));
        const uint32_t end = reader->ends[reader->slot] + channel;
        if (end >= reader->ends[reader->slot + 1])
            return REFUSE(which, "channel %u: gpu %u has %u", channel, reader->slot,
                          reader->ends[reader->slot + 1] - reader->ends[reader->slot]);
        uint32_t *user = signals ? &plan->ends[end].signaller : &plan->ends[end].waiter;
        if (*user != TUTTI_MSCCL_NONE && *user != block)
            return REFUSE(at, "two thread blocks of gpu %u %s on its channel %u: their order is not known",
                          reader->slot, signals ? "signal" : "wait", channel);
        *user = block;
        const enum tutti_pp_what what = signals ? TUTTI_PP_SIGNAL : TUTTI_PP_WAIT;
        TUTTI_TRY(add_op(
            plan, (struct tutti_pp_op){.line = op->line, .what = (uint8_t)what, .relaxed = relaxed, .end = end}));
    }
    return TUTTI_OK;
}

static enum tutti_status read_op(struct reader *reader, value *op)
{
    value *name, *type = tutti_json_member(&reader->json, op, "channel_type");
    if (reader->plan->n_ops >= MOST_OPS) return REFUSE(op, "more than %d operations", (int)MOST_OPS);
    TUTTI_TRY(member(reader, op, "name", TUTTI_JSON_TEXT, &name));
    if (type && (type->type != TUTTI_JSON_TEXT || strcmp(type->text, "memory") != 0))
        return REFUSE(type, "channels of type %.20s are not read: see docs/formats.md", type->text);
    const bool relaxed = strncmp(name->text, "rlx", 3) == 0;
    const char *word = name->text + (relaxed ? 3 : 0);
    if (strcmp(word, "signal") == 0) return read_semaphore(reader, op, true, relaxed);
    if (strcmp(word, "wait") == 0) return read_semaphore(reader, op, false, relaxed);
    if (strcmp(word, "nop") == 0) return TUTTI_OK; /* threads of a block meet */
    return read_move(reader, op, name->text);
}

/* ---- the whole ---- */

static enum tutti_status read_block(struct reader *reader, value *block, uint32_t place)
{
    struct tutti_pp *plan = reader->plan;
    value *ops;
    uint32_t id = 0;
    TUTTI_TRY(number(reader, block, "id", MOST_NUMBER, &id));
    if (id != place) return REFUSE(block, "thread block %u of gpu %u, where %u is expected", id, reader->slot, place);
    TUTTI_TRY(tutti_msccl_grow((void **)&plan->blocks, plan->n_blocks, &plan->block_capacity, sizeof *plan->blocks));
    plan->blocks[plan->n_blocks++] = (struct tutti_pp_block){reader->slot, id, plan->n_ops, 0};
    reader->block = block;
    TUTTI_TRY(member(reader, block, "ops", TUTTI_JSON_LIST, &ops));
    for (value *op = NULL; (op = tutti_json_next(&reader->json, ops, op));) TUTTI_TRY(read_op(reader, op));
    return TUTTI_OK;
}

static enum tutti_status read_ends(struct reader *reader, value *gpu)
{
    struct tutti_pp *plan = reader->plan;
    value *list, *peers;
    TUTTI_TRY(member(reader, gpu, "channels", TUTTI_JSON_LIST, &list));
    value *channels = of_memory(reader, list, "channel_type");
    if (!channels) return TUTTI_OK;
    TUTTI_TRY(member(reader, channels, "connected_to", TUTTI_JSON_LIST, &peers));
    for (value *at = NULL; (at = tutti_json_next(&reader->json, peers, at));) {
        struct tutti_pp_end end = {
            .gpu = reader->slot, .other = TUTTI_MSCCL_NONE, .signaller = TUTTI_MSCCL_NONE, .waiter = TUTTI_MSCCL_NONE};
        TUTTI_TRY(number_of(reader, at, plan->n_gpus - 1, &end.peer));
        TUTTI_TRY(tutti_msccl_grow((void **)&plan->ends, plan->n_ends, &plan->end_capacity, sizeof *plan->ends));
        plan->ends[plan->n_ends++] = end;
    }
    return TUTTI_OK;
}

/* The k-th channel of a GPU to a peer is the k-th of the peer to it. */
static enum tutti_status ends_join(struct reader *reader, value *gpus)
{
    struct tutti_pp *plan = reader->plan;
    for (uint32_t e = 0; e < plan->n_ends; e++) {
        struct tutti_pp_end *end = &plan->ends[e];
        uint32_t k = 0, other = reader->ends[end->peer];
        for (uint32_t i = reader->ends[end->gpu]; i < e; i++) k += plan->ends[i].peer == end->peer;
        for (; other < reader->ends[end->peer + 1]; other++)
            if (plan->ends[other].peer == end->gpu && k-- == 0) break;
        if (other == reader->ends[end->peer + 1])
            return REFUSE(gpus, "gpu %u has more channels to gpu %u than that has to it", end->gpu, end->peer);
        end->other = other;
    }
    return TUTTI_OK;
}

/* The common multiple of all groups' sizes, so that each part of a chunk is whole chunks of ours. */
static enum tutti_status find_scale(struct reader *reader)
{
    reader->plan->scale = 1;
    for (uint32_t i = 0; i < reader->json.n; i++) {
        value *at = &reader->json.values[i];
        if (!at->name || strcmp(at->name, "tbg_size") != 0) continue;
        uint32_t size = 0;
        TUTTI_TRY(number_of(reader, at, MOST_GROUP, &size));
        uint32_t scale = reader->plan->scale;
        while (size > 0 && scale % size != 0) scale += reader->plan->scale;
        if (scale > MOST_GROUP) return REFUSE(at, "groups of blocks of too many sizes");
        reader->plan->scale = scale;
    }
    return TUTTI_OK;
}

/* Chunks of a GPU, which must be those that the kind makes of the first GPU's. */
static enum tutti_status read_chunks(struct reader *reader, value *gpu, uint32_t slot)
{
    struct tutti_pp *plan = reader->plan;
    const struct tutti_kind_info *info = tutti_kind_info(plan->kind);
    uint32_t id = 0, n_in = 0, n_out = 0, n_scratch = 0;
    TUTTI_TRY(number(reader, gpu, "id", MOST_GPUS, &id));
    if (id != slot) return REFUSE(gpu, "gpu %u where gpu %u is expected: each stands once, in order", id, slot);
    TUTTI_TRY(number(reader, gpu, "input_chunks", MOST_NUMBER / MOST_GROUP, &n_in));
    TUTTI_TRY(number(reader, gpu, "output_chunks", MOST_NUMBER / MOST_GROUP, &n_out));
    TUTTI_TRY(number(reader, gpu, "scratch_chunks", MOST_NUMBER / MOST_GROUP, &n_scratch));
    const uint32_t blocks = tutti_kind_blocks(plan->kind, plan->n_gpus);
    if (slot == 0) {
        plan->n_chunks = (n_in > n_out ? n_in : n_out) * plan->scale;
        plan->n_in = info->send.blocks == TUTTI_ONE_BLOCK ? plan->n_chunks / blocks : plan->n_chunks;
        plan->n_out = info->recv.blocks == TUTTI_ONE_BLOCK ? plan->n_chunks / blocks : plan->n_chunks;
    }
    if (plan->n_chunks == 0 || plan->n_chunks % blocks || (n_in && n_in * plan->scale != plan->n_in) ||
        (n_out && n_out * plan->scale != plan->n_out))
        return REFUSE(gpu, "gpu %u has %u input chunks and %u output chunks: %s of %u gpus has others", slot, n_in,
                      n_out, tutti_kind_name(plan->kind), plan->n_gpus);
    plan->n_scratch[slot] = n_scratch * plan->scale;
    return (uint64_t)plan->n_gpus * (plan->n_chunks + plan->n_scratch[slot]) > TUTTI_MSCCL_MOST_CHUNKS
               ? REFUSE(gpu, "more than %d chunks in all", (int)TUTTI_MSCCL_MOST_CHUNKS)
               : TUTTI_OK;
}

static enum tutti_status read_whole(struct reader *reader)
{
    struct tutti_pp *plan = reader->plan;
    value *root = &reader->json.values[0], *gpus, *name, *coll, *in_place;
    if (root->type != TUTTI_JSON_OBJECT) return REFUSE(root, "this is no plan: an object is expected");
    TUTTI_TRY(member(reader, root, "name", TUTTI_JSON_TEXT, &name));
    TUTTI_TRY(member(reader, root, "collective", TUTTI_JSON_TEXT, &coll));
    TUTTI_TRY(member(reader, root, "inplace", TUTTI_JSON_TRUE, &in_place));
    TUTTI_TRY(member(reader, root, "gpus", TUTTI_JSON_LIST, &gpus));
    if (!tutti_msccl_kind(coll->text, &plan->kind))
        return REFUSE(coll, "collective \"%.40s\" does not say what the result is to be", coll->text);
    if (gpus->n == 0 || gpus->n > MOST_GPUS) return REFUSE(gpus, "%u gpus: 1 to %d", gpus->n, (int)MOST_GPUS);
    tutti_msccl_name(name->text, plan->name);
    plan->in_place = in_place->type == TUTTI_JSON_TRUE;
    plan->n_gpus = gpus->n;
    TUTTI_TRY(find_scale(reader));
    plan->n_scratch = tutti_alloc_array(plan->n_gpus, sizeof *plan->n_scratch);
    reader->ends = tutti_alloc_array((size_t)plan->n_gpus + 1, sizeof *reader->ends);
    if (!plan->n_scratch || !reader->ends) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to read %s", plan->file);
    reader->slot = 0;
    for (value *gpu = NULL; (gpu = tutti_json_next(&reader->json, gpus, gpu)); reader->slot++) {
        TUTTI_TRY(read_chunks(reader, gpu, reader->slot));
        TUTTI_TRY(read_ends(reader, gpu));
        reader->ends[reader->slot + 1] = plan->n_ends;
    }
    TUTTI_TRY(ends_join(reader, gpus));
    reader->slot = 0;
    for (value *gpu = NULL; (gpu = tutti_json_next(&reader->json, gpus, gpu)); reader->slot++) {
        value *blocks;
        uint32_t place = 0;
        reader->gpu = gpu;
        TUTTI_TRY(member(reader, gpu, "threadblocks", TUTTI_JSON_LIST, &blocks));
        for (value *b = NULL; (b = tutti_json_next(&reader->json, blocks, b));)
            TUTTI_TRY(read_block(reader, b, place++));
    }
    return TUTTI_OK;
}

enum tutti_status tutti_pp_read(const char *file, char *text, size_t bytes, struct tutti_pp *out)
{
    struct reader reader = {.plan = out};
    *out = (struct tutti_pp){.file = file};
    TUTTI_TRY(tutti_json_read(file, text, bytes, &reader.json));
    const enum tutti_status status = read_whole(&reader);
    tutti_json_fini(&reader.json);
    tutti_free(reader.ends);
    if (status < 0) tutti_pp_fini(out);
    return status;
}
