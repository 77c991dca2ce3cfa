/* SPDX-License-Identifier: BSD-3-Clause */
/* What holds for a plan as a whole: each GPU is there, each wait ends some time, each connection has its two ends, and
 * each message is received. */

#include "load/msccl.h"

#include <stdlib.h>

#define REFUSE(line, ...) tutti_fail_at(plan->file, line, __VA_ARGS__)

const char *tutti_msccl_where(const struct tutti_msccl *plan, uint32_t block, uint32_t step, char *out)
{
    const struct tutti_msccl_block *b = &plan->blocks[block];
    snprintf(out, TUTTI_MSCCL_WHERE, "gpu %u tb %u step %u (line %u)", b->gpu, b->id, step - b->first,
             plan->steps[step].line);
    return out;
}

/* A nop adds a wait to the next step that is none, which must wait itself. Others wait for a step that some signal
 * releases: its own, or that of a later one. */
static enum tutti_status check_waits(const struct tutti_msccl *plan, const struct tutti_msccl_block *block)
{
    const struct tutti_msccl_gpu *gpu = &plan->gpus[block->gpu];
    bool waits = false;
    for (uint32_t i = 0; i < block->n; i++) {
        const struct tutti_msccl_step *step = &plan->steps[block->first + i];
        if (!step->does && (step->wait_block == TUTTI_MSCCL_NONE || i + 1 == block->n))
            return REFUSE(step->line, "gpu %u tb %u: a nop that %s", block->gpu, block->id,
                          i + 1 == block->n ? "no step follows" : "waits for nothing");
        if (step->does && waits && step->wait_block == TUTTI_MSCCL_NONE)
            return REFUSE(step->line,
                          "gpu %u tb %u step %u follows a nop, and waits for nothing itself (depid=\"-1\"): the "
                          "runtime refuses that",
                          block->gpu, block->id, i);
        waits = !step->does;
        if (step->wait_block == TUTTI_MSCCL_NONE) continue;
        if (step->wait_block >= gpu->n)
            return REFUSE(step->line, "depid=\"%u\": gpu %u has %u tbs", step->wait_block, block->gpu, gpu->n);
        const struct tutti_msccl_block *other = &plan->blocks[gpu->first + step->wait_block];
        if (step->wait >= other->n)
            return REFUSE(step->line, "deps=\"%d\": gpu %u tb %u has %u steps", (int)step->wait, block->gpu, other->id,
                          other->n);
        if (plan->steps[other->first + step->wait].signal == TUTTI_MSCCL_NONE)
            return REFUSE(step->line,
                          "gpu %u tb %u step %u waits for ever: no step of tb %u from step %u on has hasdep=\"1\"",
                          block->gpu, block->id, i, other->id, step->wait);
    }
    return TUTTI_OK;
}

static void signals_find(struct tutti_msccl *plan)
{
    for (uint32_t b = 0; b < plan->n_blocks; b++) {
        uint32_t signal = TUTTI_MSCCL_NONE;
        for (uint32_t i = plan->blocks[b].first + plan->blocks[b].n; i-- > plan->blocks[b].first;) {
            if (plan->steps[i].signals) signal = i;
            plan->steps[i].signal = signal;
        }
    }
}

static int compare(const void *a, const void *b)
{
    const struct tutti_msccl_connection *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->channel != y->channel) return x->channel < y->channel ? -1 : 1;
    if (x->sender != y->sender) return x->sender < y->sender ? -1 : 1; /* NONE, of receivers, is last */
    return x->receiver < y->receiver ? -1 : x->receiver > y->receiver;
}

/* The ends of connections that steps use, sorted: the sender's before the receiver's. */
static enum tutti_status ends_find(struct tutti_msccl *plan)
{
    plan->connections = tutti_alloc_array(2 * (size_t)plan->n_blocks + 1, sizeof *plan->connections);
    if (!plan->connections) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the connections of a plan");
    for (uint32_t b = 0; b < plan->n_blocks; b++) {
        const struct tutti_msccl_block *block = &plan->blocks[b];
        uint8_t does = 0;
        for (uint32_t i = 0; i < block->n; i++) does |= plan->steps[block->first + i].does;
        if (does & TUTTI_MSCCL_SENDS)
            plan->connections[plan->n_connections++] =
                (struct tutti_msccl_connection){block->gpu, block->send, block->channel, b, TUTTI_MSCCL_NONE, 0};
        if (does & TUTTI_MSCCL_RECEIVES)
            plan->connections[plan->n_connections++] =
                (struct tutti_msccl_connection){block->recv, block->gpu, block->channel, TUTTI_MSCCL_NONE, b, 0};
    }
    qsort(plan->connections, plan->n_connections, sizeof *plan->connections, compare);
    return TUTTI_OK;
}

static enum tutti_status end_alone(const struct tutti_msccl *plan, const struct tutti_msccl_connection *end)
{
    const bool sends = end->receiver == TUTTI_MSCCL_NONE;
    const struct tutti_msccl_block *block = &plan->blocks[sends ? end->sender : end->receiver];
    if (sends)
        return REFUSE(block->line, "gpu %u tb %u sends to gpu %u on channel %u, where no tb receives from it",
                      block->gpu, block->id, end->to, end->channel);
    return REFUSE(block->line, "gpu %u tb %u receives from gpu %u on channel %u, where no tb sends to it", block->gpu,
                  block->id, end->from, end->channel);
}

static enum tutti_status end_twice(const struct tutti_msccl *plan, uint32_t first, uint32_t second, const char *what,
                                   const struct tutti_msccl_connection *end)
{
    const struct tutti_msccl_block *a = &plan->blocks[first], *b = &plan->blocks[second];
    return REFUSE(b->line, "tb %u and tb %u of gpu %u both %s on the connection from gpu %u to gpu %u of channel %u",
                  a->id, b->id, b->gpu, what, end->from, end->to, end->channel);
}

/* Two ends make a connection. */
static enum tutti_status connections_make(struct tutti_msccl *plan)
{
    struct tutti_msccl_connection *ends = plan->connections;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_connections; n++) {
        struct tutti_msccl_connection made = ends[i];
        uint32_t k = i + 1;
        for (; k < plan->n_connections && ends[k].from == made.from && ends[k].to == made.to &&
               ends[k].channel == made.channel;
             k++) {
            if (ends[k].sender != TUTTI_MSCCL_NONE) return end_twice(plan, made.sender, ends[k].sender, "send", &made);
            if (made.receiver != TUTTI_MSCCL_NONE)
                return end_twice(plan, made.receiver, ends[k].receiver, "receive", &made);
            made.receiver = ends[k].receiver;
        }
        if (k == i + 1) return end_alone(plan, &made);
        i = k;
        const bool same = n > 0 && ends[n - 1].from == made.from && ends[n - 1].to == made.to;
        made.pair = n == 0 ? 0 : ends[n - 1].pair + !same;
        ends[n] = made;
        plan->blocks[made.sender].out = n;
        plan->blocks[made.receiver].in = n;
        plan->n_pairs = made.pair + 1;
    }
    plan->n_connections = n;
    return TUTTI_OK;
}

/* The next step of the block that does this, from its step *at on; false: there is none. */
static bool next_of(const struct tutti_msccl *plan, const struct tutti_msccl_block *block, uint8_t does, uint32_t *at)
{
    while (*at < block->n && !(plan->steps[block->first + *at].does & does)) (*at)++;
    return *at < block->n;
}

/* The k-th send meets the k-th receive, with as many chunks. */
static enum tutti_status check_messages(const struct tutti_msccl *plan, const struct tutti_msccl_connection *c)
{
    const struct tutti_msccl_block *from = &plan->blocks[c->sender], *to = &plan->blocks[c->receiver];
    char sends[TUTTI_MSCCL_WHERE], receives[TUTTI_MSCCL_WHERE];
    for (uint32_t s = 0, r = 0, k = 0;; s++, r++, k++) {
        const bool sent = next_of(plan, from, TUTTI_MSCCL_SENDS, &s);
        const bool received = next_of(plan, to, TUTTI_MSCCL_RECEIVES, &r);
        if (!sent && !received) return TUTTI_OK;
        const struct tutti_msccl_step *send = &plan->steps[from->first + s], *recv = &plan->steps[to->first + r];
        if (sent && !received)
            return REFUSE(send->line,
                          "%s sends message %u to gpu %u on channel %u, which nobody receives: tb %u there "
                          "receives %u",
                          tutti_msccl_where(plan, c->sender, from->first + s, sends), k, c->to, c->channel, to->id, k);
        if (received && !sent)
            return REFUSE(recv->line,
                          "%s waits for message %u of gpu %u on channel %u, which is never sent: tb %u "
                          "there sends %u",
                          tutti_msccl_where(plan, c->receiver, to->first + r, receives), k, c->from, c->channel,
                          from->id, k);
        if (send->n != recv->n)
            return REFUSE(recv->line, "%s receives %u chunks, but %s, which sends them, sends %u",
                          tutti_msccl_where(plan, c->receiver, to->first + r, receives), recv->n,
                          tutti_msccl_where(plan, c->sender, from->first + s, sends), send->n);
    }
}

/* What runtimes of the format would not take. */
static void note_limits(const struct tutti_msccl *plan)
{
    uint32_t steps = 0, blocks = 0, channels = 0, count = 0;
    for (uint32_t b = 0; b < plan->n_blocks; b++) {
        if (plan->blocks[b].n > steps) steps = plan->blocks[b].n;
        if (plan->blocks[b].id >= blocks) blocks = plan->blocks[b].id + 1;
        if (plan->blocks[b].channel != TUTTI_MSCCL_NONE && plan->blocks[b].channel >= channels)
            channels = plan->blocks[b].channel + 1;
    }
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].n > count) count = plan->steps[i].n;
    const struct {
        const char *what;
        uint32_t has, most;
    } limits[] = {{"steps of a thread block", steps, TUTTI_MSCCL_MOST_STEPS},
                  {"thread blocks of a gpu", blocks, TUTTI_MSCCL_MOST_BLOCKS},
                  {"channels", channels, TUTTI_MSCCL_MOST_CHANNELS},
                  {"chunks of a step (cnt)", count, TUTTI_MSCCL_MOST_COUNT}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(limits); i++)
        if (limits[i].has > limits[i].most)
            tutti_log(TUTTI_LOG_WARN, "%s: %u %s; MSCCL's own runtime takes at most %u", plan->file, limits[i].has,
                      limits[i].what, limits[i].most);
}

enum tutti_status tutti_msccl_check(struct tutti_msccl *plan, uint32_t last_line)
{
    for (uint32_t g = 0; g < plan->n_gpus; g++)
        if (!plan->gpus[g].line) return REFUSE(last_line, "gpu %u is missing: there are to be %u", g, plan->n_gpus);
    uint64_t chunks = 0, scratch = 0;
    for (uint32_t g = 0; g < plan->n_gpus; g++) scratch += plan->gpus[g].n_scratch;
    if (scratch > TUTTI_MSCCL_MOST_CHUNKS)
        return REFUSE(plan->gpus[0].line, "s_chunks are %llu in all: more than %d are not read",
                      (unsigned long long)scratch, (int)TUTTI_MSCCL_MOST_CHUNKS);
    for (uint32_t i = 0; i < plan->n_steps; i++) chunks += plan->steps[i].n;
    if (chunks > TUTTI_MSCCL_MOST_CHUNKS)
        return REFUSE(plan->steps[0].line, "the steps move %llu chunks in all: more than %d are not read",
                      (unsigned long long)chunks, (int)TUTTI_MSCCL_MOST_CHUNKS);
    signals_find(plan);
    for (uint32_t b = 0; b < plan->n_blocks; b++) TUTTI_TRY(check_waits(plan, &plan->blocks[b]));
    TUTTI_TRY(ends_find(plan));
    TUTTI_TRY(connections_make(plan));
    for (uint32_t c = 0; c < plan->n_connections; c++) TUTTI_TRY(check_messages(plan, &plan->connections[c]));
    note_limits(plan);
    return TUTTI_OK;
}

uint32_t tutti_msccl_base(const struct tutti_msccl *plan, uint32_t gpu, enum tutti_msccl_buffer buffer)
{
    const uint32_t n = buffer == TUTTI_MSCCL_INPUT ? plan->n_in : plan->n_out;
    return n < plan->n_chunks ? gpu * n : 0;
}
