/* SPDX-License-Identifier: BSD-3-Clause */
/* A plan of ours from MSCCL's in its order. In place DATA is both input and output. Out of place DATA is the output,
 * and the input, too, where no chunk of it is read after its place in the output was written; else the input is copied
 * to SCRATCH at the start. all_to_all has IN. SCRATCH holds the plan's own, such a copy, messages that were stored
 * early and, for steps that pass on a sum without keeping it (rrs), two places for each thread block in turn. */

#include "load/msccl.h"

#include <stdio.h>
#include <string.h>

struct place {
    uint8_t buffer; /* enum tutti_buffer */
    uint32_t chunk;
};
struct making {
    const struct tutti_msccl *plan;
    const struct tutti_msccl_order *order;
    struct tutti_plan *out;
    uint8_t *input_at;         /* by GPU: the buffer of ours that its input is in */
    uint32_t *spills, *rounds; /* by GPU: where stored messages begin; the round at hand */
    uint32_t *n_copied;        /* by GPU: chunks that are copied to be sent */
    uint32_t *copies;          /* by event: where its message is copied to, among these; NONE: nowhere */
    uint32_t *sender;          /* by event that receives: the one that sends */
    uint32_t *like;   /* by event that sends: one more than the DATA chunk that its message is as large as; 0 */
    uint32_t *likes;  /* by chunk of SCRATCH, the same */
    size_t *scratch;  /* by GPU: where its SCRATCH begins in likes */
    uint32_t *passed; /* by block: where sums that are passed on go */
    uint8_t *turn;    /* by block: which of the two is next */
    uint32_t n_scratch;
    uint32_t incoming; /* what the message that is received now is like */
};

/* ---- places ---- */

static struct place place_of(const struct making *m, uint32_t gpu, uint8_t buffer, uint32_t chunk)
{
    const struct tutti_msccl *plan = m->plan;
    if (buffer == TUTTI_MSCCL_SCRATCH) return (struct place){TUTTI_SCRATCH, chunk};
    if (buffer == TUTTI_MSCCL_INPUT && m->input_at[gpu] == TUTTI_IN) return (struct place){TUTTI_IN, chunk};
    if (buffer == TUTTI_MSCCL_INPUT && m->input_at[gpu] == TUTTI_SCRATCH)
        return (struct place){TUTTI_SCRATCH, plan->gpus[gpu].n_scratch + chunk};
    return (struct place){TUTTI_DATA, tutti_msccl_base(plan, gpu, (enum tutti_msccl_buffer)buffer) + chunk};
}

static bool same(struct place a, struct place b)
{
    return a.buffer == b.buffer && a.chunk == b.chunk;
}

/* Whether input chunk c of the GPU is also chunk c + base of DATA, of which the output is a part. */
static uint32_t data_of(const struct tutti_msccl *plan, uint32_t gpu, uint8_t buffer, uint32_t chunk)
{
    return tutti_msccl_base(plan, gpu, (enum tutti_msccl_buffer)buffer) + chunk;
}

/* Goes through a step of a plan out of place as if input and output were one memory: false where that is another
 * result. `gone` says which chunks of DATA were written. */
static bool is_harmless(const struct tutti_msccl *plan, uint32_t gpu, const struct tutti_msccl_step *step, bool *gone)
{
    const bool reads = (step->does & TUTTI_MSCCL_READS) && step->src_buffer == TUTTI_MSCCL_INPUT;
    const bool writes = (step->does & TUTTI_MSCCL_WRITES) && step->dst_buffer == TUTTI_MSCCL_OUTPUT;
    const uint32_t from = data_of(plan, gpu, TUTTI_MSCCL_INPUT, step->src);
    const uint32_t to = data_of(plan, gpu, TUTTI_MSCCL_OUTPUT, step->dst);
    if ((step->does & TUTTI_MSCCL_WRITES) && step->dst_buffer == TUTTI_MSCCL_INPUT) return false;
    for (uint32_t c = 0; reads && c < step->n; c++)
        if (gone[from + c]) return false;
    if (!writes) return true;
    if (reads && from == to && !(step->does & TUTTI_MSCCL_RECEIVES) && !(step->does & TUTTI_MSCCL_ADDS_DST))
        return true; /* a copy to itself, which is left out */
    for (uint32_t c = 0; c < step->n; c++) gone[to + c] = true;
    return true;
}

static enum tutti_status inputs_find(struct making *m)
{
    const struct tutti_msccl *plan = m->plan;
    const bool apart = tutti_kind_info(plan->kind)->separate_in;
    bool *gone = apart || plan->in_place ? NULL : tutti_alloc_array(plan->n_chunks, plan->n_gpus);
    if (!apart && !plan->in_place && !gone) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan");
    for (uint32_t g = 0; g < plan->n_gpus; g++) m->input_at[g] = apart && !plan->in_place ? TUTTI_IN : TUTTI_DATA;
    for (uint32_t i = 0; i < m->order->n && !plan->in_place; i++) {
        const struct tutti_msccl_event *event = &m->order->events[i];
        const uint32_t gpu = plan->blocks[event->block].gpu;
        const struct tutti_msccl_step *step = &plan->steps[event->step];
        if (event->act == TUTTI_MSCCL_STORE) continue;
        const bool writes = (step->does & TUTTI_MSCCL_WRITES) && step->dst_buffer == TUTTI_MSCCL_INPUT;
        if (apart ? writes : !is_harmless(plan, gpu, step, gone + (size_t)gpu * plan->n_chunks))
            m->input_at[gpu] = TUTTI_SCRATCH;
    }
    tutti_free(gone);
    return TUTTI_OK;
}

/* ---- copies of messages ---- */

/* What is sent from a chunk. */
struct sent {
    uint32_t event, older;
};
struct tracing {
    struct making *m;
    uint32_t *received; /* by event that sends: the event that receives it */
    size_t *base;       /* by GPU: where its chunks begin in */
    uint32_t *last;     /* the last of what is sent from the chunk and may still be under way; NONE */
    struct sent *sent;
    uint32_t n_sent;
    uint32_t *passed; /* by block: the last two events that pass on a sum; NONE */
};

static size_t place_in(uint32_t connection, uint32_t k)
{
    return TUTTI_MSCCL_MOST_SLOTS * (size_t)connection + k % TUTTI_MSCCL_MOST_SLOTS;
}

/* The k-th message of a connection is received by the k-th event that receives or stores one there. */
static void receives_find(struct tracing *t, uint32_t *places)
{
    const struct tutti_msccl *plan = t->m->plan;
    uint32_t *n_sent = places + TUTTI_MSCCL_MOST_SLOTS * (size_t)plan->n_connections,
             *n_received = n_sent + plan->n_connections;
    for (uint32_t i = 0; i < t->m->order->n; i++) {
        const struct tutti_msccl_event *event = &t->m->order->events[i];
        const struct tutti_msccl_block *block = &plan->blocks[event->block];
        const uint8_t does = plan->steps[event->step].does;
        if ((does & TUTTI_MSCCL_RECEIVES) && event->act != TUTTI_MSCCL_TAKE)
            t->received[t->m->sender[i] = places[place_in(block->in, n_received[block->in]++)]] = i;
        if ((does & TUTTI_MSCCL_SENDS) && event->act != TUTTI_MSCCL_STORE)
            places[place_in(block->out, n_sent[block->out]++)] = i;
    }
}

static uint32_t *last_of(const struct tracing *t, uint32_t gpu, struct place place)
{
    return &t->last[t->base[gpu] + (place.buffer == TUTTI_DATA ? 0 : t->m->plan->n_chunks) + place.chunk];
}

/* Event i writes over what the event sends, which is sent from a copy unless it is received before. */
static void copy_for(struct tracing *t, uint32_t event, uint32_t gpu, uint32_t i)
{
    if (t->received[event] <= i || t->m->copies[event] != TUTTI_MSCCL_NONE) return;
    t->m->copies[event] = t->m->n_copied[gpu];
    t->m->n_copied[gpu] += t->m->plan->steps[t->m->order->events[event].step].n;
}

/* Event i passes on a sum, from the place of the last such event of the block but one. */
static void trace_passed(struct tracing *t, uint32_t block, uint32_t i)
{
    uint32_t *turns = &t->passed[2 * (size_t)block];
    if (turns[0] != TUTTI_MSCCL_NONE) copy_for(t, turns[0], t->m->plan->blocks[block].gpu, i);
    turns[0] = turns[1];
    turns[1] = i;
}

/* Event i writes n chunks: what is sent from them and not received by then is sent from a copy. */
static void trace_write(struct tracing *t, uint32_t gpu, struct place place, uint32_t n, uint32_t i)
{
    for (uint32_t c = 0; c < n; c++) {
        uint32_t *last = last_of(t, gpu, (struct place){place.buffer, place.chunk + c});
        for (uint32_t s = *last; s != TUTTI_MSCCL_NONE; s = t->sent[s].older) copy_for(t, t->sent[s].event, gpu, i);
        *last = TUTTI_MSCCL_NONE;
    }
}

static void trace_event(struct tracing *t, uint32_t i)
{
    const struct tutti_msccl_event *event = &t->m->order->events[i];
    const struct tutti_msccl_step *step = &t->m->plan->steps[event->step];
    const uint32_t gpu = t->m->plan->blocks[event->block].gpu;
    const struct place src = place_of(t->m, gpu, step->src_buffer, step->src);
    const struct place dst = place_of(t->m, gpu, step->dst_buffer, step->dst);
    const bool writes = step->does & TUTTI_MSCCL_WRITES;
    if (event->act == TUTTI_MSCCL_STORE) return;
    if (writes) trace_write(t, gpu, dst, step->n, i);
    const struct place from = writes ? dst : src;
    if (!(step->does & TUTTI_MSCCL_SENDS)) return;
    if (!writes && (step->does & TUTTI_MSCCL_RECEIVES)) { /* rrs: from a place of its own */
        trace_passed(t, event->block, i);
        return;
    }
    if (from.buffer == TUTTI_IN) return;
    for (uint32_t c = 0; c < step->n; c++) {
        uint32_t *last = last_of(t, gpu, (struct place){from.buffer, from.chunk + c});
        t->sent[t->n_sent] = (struct sent){i, *last};
        *last = t->n_sent++;
    }
}

static enum tutti_status copies_find(struct making *m)
{
    const struct tutti_msccl *plan = m->plan;
    struct tracing t = {.m = m};
    size_t n_chunks = 0, n_sent = 0;
    enum tutti_status status = TUTTI_OK;
    t.base = tutti_alloc_array(plan->n_gpus, sizeof *t.base);
    for (uint32_t g = 0; g < plan->n_gpus && t.base; g++) {
        t.base[g] = n_chunks;
        n_chunks += (size_t)plan->n_chunks + plan->gpus[g].n_scratch + plan->n_in;
    }
    for (uint32_t i = 0; i < m->order->n; i++) n_sent += plan->steps[m->order->events[i].step].n;
    t.received = tutti_alloc_array((size_t)m->order->n + 1, sizeof *t.received);
    t.last = tutti_alloc_array(n_chunks, sizeof *t.last);
    t.sent = tutti_alloc_array(n_sent + 1, sizeof *t.sent);
    t.passed = tutti_alloc_array((size_t)plan->n_blocks + 1, 2 * sizeof *t.passed);
    uint32_t *places =
        tutti_alloc_array((TUTTI_MSCCL_MOST_SLOTS + 2) * (size_t)plan->n_connections + 1, sizeof *places);
    if (!t.base || !t.received || !t.last || !t.sent || !t.passed || !places) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan of %u gpus", plan->n_gpus);
    } else {
        receives_find(&t, places);
        for (size_t c = 0; c < n_chunks; c++) t.last[c] = TUTTI_MSCCL_NONE;
        for (size_t b = 0; b < 2 * (size_t)plan->n_blocks; b++) t.passed[b] = TUTTI_MSCCL_NONE;
        for (uint32_t i = 0; i < m->order->n; i++) trace_event(&t, i);
    }
    tutti_free(places);
    tutti_free(t.base);
    tutti_free(t.received);
    tutti_free(t.last);
    tutti_free(t.sent);
    tutti_free(t.passed);
    return status;
}

/* SCRATCH: the plan's own, the input's copy, stored messages, copied ones, sums that are passed on. */
static void scratch_share(struct making *m)
{
    const struct tutti_msccl *plan = m->plan;
    for (uint32_t g = 0; g < plan->n_gpus; g++) {
        const struct tutti_msccl_gpu *gpu = &plan->gpus[g];
        uint32_t n = gpu->n_scratch + (m->input_at[g] == TUTTI_SCRATCH ? plan->n_in : 0);
        m->spills[g] = n;
        n += m->order->spilled[g] + m->n_copied[g];
        for (uint32_t b = gpu->first; b < gpu->first + gpu->n; b++) {
            uint32_t most = 0;
            for (uint32_t i = plan->blocks[b].first; i < plan->blocks[b].first + plan->blocks[b].n; i++) {
                const uint8_t does = plan->steps[i].does;
                const bool passes = (does & TUTTI_MSCCL_SENDS) && (does & TUTTI_MSCCL_RECEIVES);
                if (passes && !(does & TUTTI_MSCCL_WRITES) && plan->steps[i].n > most) most = plan->steps[i].n;
            }
            m->passed[2 * b] = n;
            m->passed[2 * b + 1] = n + most;
            n += 2 * most;
        }
        m->scratch[g + 1] = m->scratch[g] + n;
        if (n > m->n_scratch) m->n_scratch = n;
    }
}

/* ---- steps ---- */

/* Chunks may differ by an element: what is in SCRATCH is as large as the chunk of DATA (or IN) that it came from. One
 * more than the first of n that follow one another; 0: they are none. */
static uint32_t like_of(const struct making *m, uint32_t gpu, struct place place, uint32_t n)
{
    if (place.buffer != TUTTI_SCRATCH) return place.chunk + 1;
    const uint32_t *likes = m->likes + m->scratch[gpu] + place.chunk;
    for (uint32_t i = 1; i < n; i++)
        if (likes[i] != likes[0] + i) return 0;
    return likes[0];
}

static enum tutti_status add(struct making *m, uint32_t gpu, enum tutti_step_op op, uint32_t peer, struct place dst,
                             struct place src, uint32_t n, enum tutti_side side)
{
    const bool stores = dst.buffer == TUTTI_SCRATCH && (op == TUTTI_STEP_RECV || op == TUTTI_STEP_COPY);
    const uint32_t like = !stores ? 0 : op == TUTTI_STEP_RECV ? m->incoming : like_of(m, gpu, src, n);
    for (uint32_t i = 0; i < n && stores; i++) m->likes[m->scratch[gpu] + dst.chunk + i] = like ? like + i : 0;
    return tutti_plan_add(m->out, &(struct tutti_plan_step){.op = (uint8_t)op,
                                                            .slot = gpu,
                                                            .round = m->rounds[gpu],
                                                            .peer = peer,
                                                            .dst_buffer = dst.buffer,
                                                            .dst = dst.chunk,
                                                            .src_buffer = src.buffer,
                                                            .src = src.chunk,
                                                            .n = n,
                                                            .like = like,
                                                            .side = (uint8_t)side});
}

static enum tutti_status add_send(struct making *m, uint32_t i, struct place src)
{
    const struct tutti_msccl_event *event = &m->order->events[i];
    const struct tutti_msccl_block *block = &m->plan->blocks[event->block];
    const uint32_t n = m->plan->steps[event->step].n, gpu = block->gpu;
    m->like[i] = like_of(m, gpu, src, n);
    if (m->copies[i] != TUTTI_MSCCL_NONE) {
        const struct place copy = {TUTTI_SCRATCH, m->spills[gpu] + m->order->spilled[gpu] + m->copies[i]};
        TUTTI_TRY(add(m, gpu, TUTTI_STEP_COPY, 0, copy, src, n, TUTTI_RIGHT));
        src = copy;
    }
    return add(m, gpu, TUTTI_STEP_SEND, block->send, src, src, n, TUTTI_RIGHT);
}

/* What comes in goes to dst, or is combined with src, and then goes on if that is asked for. */
static enum tutti_status add_receive(struct making *m, uint32_t i, struct place src, struct place dst)
{
    const struct tutti_msccl_event *event = &m->order->events[i];
    const struct tutti_msccl_block *block = &m->plan->blocks[event->block];
    const struct tutti_msccl_step *step = &m->plan->steps[event->step];
    const uint32_t gpu = block->gpu, n = step->n;
    const bool reads = step->does & TUTTI_MSCCL_READS, writes = step->does & TUTTI_MSCCL_WRITES;
    const bool taken = event->act == TUTTI_MSCCL_TAKE;
    const struct place spill = {TUTTI_SCRATCH, m->spills[gpu] + event->spill};
    if (!writes) { /* rrs: the sum has no place of its own */
        dst = taken ? spill : (struct place){TUTTI_SCRATCH, m->passed[2 * event->block + m->turn[event->block]]};
        m->turn[event->block] ^= 1;
        if (!taken) TUTTI_TRY(add(m, gpu, TUTTI_STEP_RECV, block->recv, dst, dst, n, TUTTI_RIGHT));
        TUTTI_TRY(add(m, gpu, TUTTI_STEP_REDUCE, 0, dst, src, n, TUTTI_LEFT));
    } else {
        if (reads && !same(src, dst)) TUTTI_TRY(add(m, gpu, TUTTI_STEP_COPY, 0, dst, src, n, TUTTI_RIGHT));
        const enum tutti_step_op op =
            taken ? (reads ? TUTTI_STEP_REDUCE : TUTTI_STEP_COPY) : (reads ? TUTTI_STEP_RECV_REDUCE : TUTTI_STEP_RECV);
        TUTTI_TRY(add(m, gpu, op, block->recv, dst, taken ? spill : dst, n, TUTTI_RIGHT));
    }
    return step->does & TUTTI_MSCCL_SENDS ? add_send(m, i, dst) : TUTTI_OK;
}

static enum tutti_status add_event(struct making *m, uint32_t i)
{
    const struct tutti_msccl_event *event = &m->order->events[i];
    const struct tutti_msccl_block *block = &m->plan->blocks[event->block];
    const struct tutti_msccl_step *step = &m->plan->steps[event->step];
    const uint32_t gpu = block->gpu;
    const struct place src = place_of(m, gpu, step->src_buffer, step->src);
    const struct place dst = place_of(m, gpu, step->dst_buffer, step->dst);
    const struct place spill = {TUTTI_SCRATCH, m->spills[gpu] + event->spill};
    if (event->depth > m->rounds[gpu]) m->rounds[gpu] = event->depth;
    if (step->does & TUTTI_MSCCL_RECEIVES) m->incoming = m->like[m->sender[i]];
    if (event->act == TUTTI_MSCCL_STORE)
        return add(m, gpu, TUTTI_STEP_RECV, block->recv, spill, spill, step->n, TUTTI_RIGHT);
    const bool both = (step->does & TUTTI_MSCCL_READS) && (step->does & TUTTI_MSCCL_WRITES);
    if (both && src.buffer == dst.buffer && !same(src, dst) && src.chunk < dst.chunk + step->n &&
        dst.chunk < src.chunk + step->n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: source and destination overlap, as input and output are one",
                          m->plan->file, step->line);
    if (step->does & TUTTI_MSCCL_RECEIVES) return add_receive(m, i, src, dst);
    if (step->does & TUTTI_MSCCL_SENDS) return add_send(m, i, src);
    if (step->does & TUTTI_MSCCL_ADDS_DST) return add(m, gpu, TUTTI_STEP_REDUCE, 0, dst, src, step->n, TUTTI_RIGHT);
    return same(src, dst) ? TUTTI_OK : add(m, gpu, TUTTI_STEP_COPY, 0, dst, src, step->n, TUTTI_RIGHT);
}

/* Inputs that are read elsewhere than where the user passes them. */
static enum tutti_status add_copies(struct making *m)
{
    const struct tutti_msccl *plan = m->plan;
    const struct tutti_kind_info *info = tutti_kind_info(plan->kind);
    for (uint32_t g = 0; g < plan->n_gpus; g++) {
        const struct place users = info->separate_in
                                       ? (struct place){TUTTI_IN, 0}
                                       : (struct place){TUTTI_DATA, tutti_msccl_base(plan, g, TUTTI_MSCCL_INPUT)};
        const struct place own = place_of(m, g, TUTTI_MSCCL_INPUT, 0);
        if (same(users, own) || !tutti_side_is_at(info->send, g, 0)) continue;
        TUTTI_TRY(add(m, g, TUTTI_STEP_COPY, 0, own, users, plan->n_in, TUTTI_RIGHT));
    }
    return TUTTI_OK;
}

enum tutti_status tutti_msccl_plan(const struct tutti_msccl *plan, const struct tutti_msccl_order *order,
                                   struct tutti_plan *out)
{
    struct making m = {.plan = plan, .order = order, .out = out};
    enum tutti_status status = TUTTI_OK;
    *out = (struct tutti_plan){0};
    m.input_at = tutti_alloc(plan->n_gpus);
    m.spills = tutti_alloc_array(plan->n_gpus, 3 * sizeof *m.spills);
    m.copies = tutti_alloc_array((size_t)order->n + 1, 3 * sizeof *m.copies);
    m.scratch = tutti_alloc_array((size_t)plan->n_gpus + 1, sizeof *m.scratch);
    m.passed = tutti_alloc_array((size_t)plan->n_blocks + 1, 2 * sizeof *m.passed);
    m.turn = tutti_alloc((size_t)plan->n_blocks + 1);
    if (!m.input_at || !m.spills || !m.copies || !m.scratch || !m.passed || !m.turn)
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan of %u gpus", plan->n_gpus);
    for (uint32_t i = 0; i < order->n && status >= 0; i++) m.copies[i] = TUTTI_MSCCL_NONE;
    if (status >= 0) {
        m.rounds = m.spills + plan->n_gpus;
        m.n_copied = m.rounds + plan->n_gpus;
        m.sender = m.copies + order->n + 1;
        m.like = m.sender + order->n + 1;
        status = inputs_find(&m);
    }
    if (status >= 0) status = copies_find(&m);
    if (status >= 0) {
        scratch_share(&m);
        m.likes = tutti_alloc_array(m.scratch[plan->n_gpus] + 1, sizeof *m.likes);
        if (!m.likes) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan of %u gpus", plan->n_gpus);
    }
    if (status >= 0) status = tutti_plan_init(out, plan->kind, plan->n_gpus, plan->n_chunks, m.n_scratch);
    if (status >= 0) status = add_copies(&m);
    for (uint32_t i = 0; i < order->n && status >= 0; i++) status = add_event(&m, i);
    if (status >= 0) status = tutti_plan_seal(out);
    if (status < 0) tutti_plan_fini(out);
    tutti_free(m.input_at);
    tutti_free(m.spills);
    tutti_free(m.copies);
    tutti_free(m.scratch);
    tutti_free(m.likes);
    tutti_free(m.passed);
    tutti_free(m.turn);
    return status;
}

enum tutti_status tutti_msccl_load(const char *file, char *text, size_t bytes, struct tutti_plan *out, char *name)
{
    struct tutti_msccl plan;
    struct tutti_msccl_order order;
    TUTTI_TRY(tutti_msccl_read(file, text, bytes, &plan));
    enum tutti_status status = tutti_msccl_order(&plan, &order);
    if (status >= 0) {
        status = tutti_msccl_race(&plan, &order);
        if (status >= 0) status = tutti_msccl_plan(&plan, &order, out);
        tutti_msccl_order_fini(&order);
    }
    if (status >= 0) snprintf(name, sizeof plan.name, "%s", plan.name);
    tutti_msccl_fini(&plan);
    return status;
}
