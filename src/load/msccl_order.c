/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs all thread blocks of a plan until each has ended, or none can go on. Connections have one sender, one receiver
 * and a queue, and blocks wait without a choice, so whether all end does not depend on the order in which they go: one
 * run decides it.
 *
 * The order that the run takes becomes the program of each rank, of which 64 steps are under way at once. So a send is
 * taken in the moment in which its receiver stands at the receive, and only where nothing else can go on, one message
 * is put into a queue. Ours has one sequence of messages for each two ranks, MSCCL one a channel: a message that was
 * sent before the one that is wanted is stored in SCRATCH first, and taken from there when its own step comes. */

#include "load/msccl.h"

#include <stdio.h>
#include <string.h>

struct state {
    uint32_t at; /* the step to come, from 0 */
    uint32_t depth;
    uint32_t flag, flag_depth; /* one more than the last step that has signalled */
    uint32_t waiters;          /* the first block that waits for a signal, and the next one after this; NONE */
    uint32_t next_waiter;
    bool waits, queued, alone;
};
/* One of the (at most two) messages that are under way on a connection. */
struct message {
    uint32_t depth;
    uint32_t spill; /* where it was stored; NONE */
    uint32_t next;  /* the one that was sent after it between the two GPUs, number 2 * connection + place; NONE */
};
struct queue {
    uint32_t *blocks, first, n, capacity;
};
struct run {
    const struct tutti_msccl *plan;
    struct tutti_msccl_order *order;
    struct state *states;
    uint32_t *sent, *received; /* by connection */
    struct message *messages;  /* two a connection */
    uint32_t *head, *tail;     /* by pair: messages that were not received yet */
    struct queue ready, alone; /* blocks that may go on; that could send, but nobody receives yet */
};

static void push(struct queue *queue, uint32_t block, bool *in)
{
    if (*in) return;
    *in = true;
    queue->blocks[(queue->first + queue->n++) % queue->capacity] = block;
}

static uint32_t pop(struct queue *queue)
{
    const uint32_t block = queue->blocks[queue->first];
    queue->first = (queue->first + 1) % queue->capacity;
    queue->n--;
    return block;
}

static void wake(struct run *run, uint32_t block)
{
    push(&run->ready, block, &run->states[block].queued);
}

/* ---- whether a block can go on ---- */

static bool ended(const struct run *run, uint32_t block)
{
    return run->states[block].at == run->plan->blocks[block].n;
}

static const struct tutti_msccl_step *step_of(const struct run *run, uint32_t block)
{
    return &run->plan->steps[run->plan->blocks[block].first + run->states[block].at];
}

/* The block whose signal the block's step waits for; NONE: it waits for none, or has it. */
static uint32_t signaller(const struct run *run, uint32_t block)
{
    const struct tutti_msccl_step *step = step_of(run, block);
    if (step->wait_block == TUTTI_MSCCL_NONE) return TUTTI_MSCCL_NONE;
    const uint32_t other = run->plan->gpus[run->plan->blocks[block].gpu].first + step->wait_block;
    return run->states[other].flag > step->wait ? TUTTI_MSCCL_NONE : other;
}

static uint32_t under_way(const struct run *run, uint32_t connection)
{
    return run->sent[connection] - run->received[connection];
}

static bool stands_at_receive(const struct run *run, uint32_t block)
{
    return !ended(run, block) && (step_of(run, block)->does & TUTTI_MSCCL_RECEIVES) &&
           signaller(run, block) == TUTTI_MSCCL_NONE;
}

/* Not one that receives, too: that may send without a receiver. */
static bool stands_at_send(const struct run *run, uint32_t block)
{
    const uint8_t both = TUTTI_MSCCL_RECEIVES | TUTTI_MSCCL_SENDS;
    return !ended(run, block) && (step_of(run, block)->does & both) == TUTTI_MSCCL_SENDS;
}

enum why { GOES_ON, NO_SIGNAL, NO_MESSAGE, NO_ROOM, NO_RECEIVER };

/* What the block waits for, and which block would end that. */
static enum why look(const struct run *run, uint32_t block, bool even_alone, uint32_t *other)
{
    const struct tutti_msccl_block *b = &run->plan->blocks[block];
    const struct tutti_msccl_step *step = step_of(run, block);
    const bool receives = step->does & TUTTI_MSCCL_RECEIVES;
    *other = signaller(run, block);
    if (*other != TUTTI_MSCCL_NONE) return NO_SIGNAL;
    if (receives) *other = run->plan->connections[b->in].sender;
    if (receives && under_way(run, b->in) == 0) return NO_MESSAGE;
    if (!(step->does & TUTTI_MSCCL_SENDS)) return GOES_ON;
    *other = run->plan->connections[b->out].receiver;
    if (under_way(run, b->out) == TUTTI_MSCCL_SLOTS) return NO_ROOM;
    if (receives || even_alone || (under_way(run, b->out) == 0 && stands_at_receive(run, *other))) return GOES_ON;
    return NO_RECEIVER;
}

/* ---- what it does ---- */

static enum tutti_status add(struct run *run, const struct tutti_msccl_event *event)
{
    struct tutti_msccl_order *order = run->order;
    if (order->n == order->capacity) {
        const uint32_t capacity = 2 * order->capacity + 64;
        struct tutti_msccl_event *grown = tutti_alloc_array(capacity, sizeof *grown);
        if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the order of a plan");
        if (order->n > 0) memcpy(grown, order->events, order->n * sizeof *grown);
        tutti_free(order->events);
        order->events = grown;
        order->capacity = capacity;
    }
    order->events[order->n++] = *event;
    return TUTTI_OK;
}

/* The step that receives the oldest message of the connection, or the one after it. */
static uint32_t receiving_step(const struct run *run, uint32_t connection, bool second)
{
    const uint32_t block = run->plan->connections[connection].receiver;
    uint32_t step = run->plan->blocks[block].first + run->states[block].at;
    for (uint32_t skip = second;; step++) {
        if (!(run->plan->steps[step].does & TUTTI_MSCCL_RECEIVES)) continue;
        if (skip-- == 0) return step;
    }
}

/* Stores the message that is the first between its two GPUs. */
static enum tutti_status store(struct run *run, uint32_t number, uint32_t depth)
{
    const uint32_t connection = number / 2, gpu = run->plan->connections[connection].to;
    struct message *message = &run->messages[number];
    const bool second = (run->received[connection] & 1) != (number & 1);
    const uint32_t step = receiving_step(run, connection, second);
    message->spill = run->order->spilled[gpu];
    run->order->spilled[gpu] += run->plan->steps[step].n;
    return add(run, &(struct tutti_msccl_event){.block = run->plan->connections[connection].receiver,
                                                .step = step,
                                                .depth = depth > message->depth ? depth : message->depth,
                                                .spill = message->spill,
                                                .act = TUTTI_MSCCL_STORE});
}

/* Takes the oldest message of the connection; those that were sent before it between the two GPUs are stored. */
static enum tutti_status take(struct run *run, uint32_t connection, struct tutti_msccl_event *event)
{
    const uint32_t pair = run->plan->connections[connection].pair;
    const uint32_t number = 2 * connection + (run->received[connection]++ & 1);
    struct message *message = &run->messages[number];
    if (message->depth > event->depth) event->depth = message->depth;
    wake(run, run->plan->connections[connection].sender);
    if (message->spill != TUTTI_MSCCL_NONE) {
        event->act = TUTTI_MSCCL_TAKE;
        event->spill = message->spill;
        return TUTTI_OK;
    }
    for (; run->head[pair] != number; run->head[pair] = run->messages[run->head[pair]].next) {
        TUTTI_TRY(store(run, run->head[pair], event->depth)); /* of another connection */
    }
    run->head[pair] = message->next;
    return TUTTI_OK;
}

static void put(struct run *run, uint32_t connection, uint32_t depth)
{
    const uint32_t pair = run->plan->connections[connection].pair;
    const uint32_t number = 2 * connection + (run->sent[connection]++ & 1);
    run->messages[number] = (struct message){depth, TUTTI_MSCCL_NONE, TUTTI_MSCCL_NONE};
    if (run->head[pair] == TUTTI_MSCCL_NONE)
        run->head[pair] = number;
    else
        run->messages[run->tail[pair]].next = number;
    run->tail[pair] = number;
}

static void signal(struct run *run, uint32_t block)
{
    struct state *state = &run->states[block];
    state->flag = state->at + 1;
    state->flag_depth = state->depth;
    for (uint32_t w = state->waiters; w != TUTTI_MSCCL_NONE; w = run->states[w].next_waiter) {
        run->states[w].waits = false;
        wake(run, w);
    }
    state->waiters = TUTTI_MSCCL_NONE;
}

/* Carries out the block's step. */
static enum tutti_status go(struct run *run, uint32_t block)
{
    const struct tutti_msccl_block *b = &run->plan->blocks[block];
    const struct tutti_msccl_step *step = step_of(run, block);
    struct state *state = &run->states[block];
    struct tutti_msccl_event event = {.block = block, .step = b->first + state->at, .depth = state->depth + 1};
    if (step->wait_block != TUTTI_MSCCL_NONE) {
        const struct state *other = &run->states[run->plan->gpus[b->gpu].first + step->wait_block];
        if (other->flag_depth >= event.depth) event.depth = other->flag_depth + 1;
    }
    if (step->does & TUTTI_MSCCL_RECEIVES) TUTTI_TRY(take(run, b->in, &event));
    if (step->does & TUTTI_MSCCL_SENDS) put(run, b->out, event.depth);
    if (step->does) TUTTI_TRY(add(run, &event));
    state->depth = event.depth;
    if (step->signals) signal(run, block);
    state->at++;
    wake(run, block);
    return TUTTI_OK;
}

/* Lets the block do a step, then whoever receives what it sends, and so on. */
static enum tutti_status advance(struct run *run, uint32_t block, bool even_alone)
{
    for (uint32_t other; !ended(run, block); block = other) {
        struct state *state = &run->states[block];
        const enum why why = look(run, block, even_alone, &other);
        if (why == NO_SIGNAL && !state->waits) {
            state->waits = true;
            state->next_waiter = run->states[other].waiters;
            run->states[other].waiters = block;
        }
        if (why == NO_MESSAGE && stands_at_send(run, other)) wake(run, other);
        if (why == NO_RECEIVER) push(&run->alone, block, &state->alone);
        if (why != GOES_ON) return TUTTI_OK;
        const bool sends = step_of(run, block)->does & TUTTI_MSCCL_SENDS;
        TUTTI_TRY(go(run, block));
        if (!sends) return TUTTI_OK;
        even_alone = false;
    }
    return TUTTI_OK;
}

/* ---- the whole ---- */

/* The chain of who waits for whom, from any block that has not ended: it comes back to itself. */
static enum tutti_status deadlock(const struct run *run)
{
    static const char *const words[] = {
        [NO_SIGNAL] = "a signal of", [NO_MESSAGE] = "a message of", [NO_ROOM] = "room in its connection to"};
    enum { SHOWN = 4 };
    char where[TUTTI_MSCCL_WHERE], text[400] = "";
    const struct tutti_msccl *plan = run->plan;
    uint32_t block = 0, other, line = 0, length = 1;
    while (ended(run, block)) block++;
    for (uint32_t i = 0; i < plan->n_blocks; i++, block = other) (void)look(run, block, true, &other);
    const uint32_t first = block;
    for (uint32_t i = 0;; i++, length++, block = other) {
        const uint32_t step = plan->blocks[block].first + run->states[block].at;
        const enum why why = look(run, block, true, &other);
        if (i == 0) line = plan->steps[step].line;
        if (i < SHOWN)
            tutti_append(text, sizeof text, "%s%s waits for %s ", tutti_msccl_where(plan, block, step, where),
                         i ? ", which" : "", words[why]);
        if (other == first) break;
        if (i + 1 == SHOWN) tutti_append(text, sizeof text, "another, and so on to ");
    }
    const uint32_t step = plan->blocks[first].first + run->states[first].at;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: deadlock: %s%s: %u tb%s in a circle", plan->file, line, text,
                      tutti_msccl_where(plan, first, step, where), length, length == 1 ? "" : "s");
}

static enum tutti_status run_init(struct run *run)
{
    const struct tutti_msccl *plan = run->plan;
    const uint32_t n = plan->n_blocks + 1, c = plan->n_connections + 1, p = plan->n_pairs + 1;
    run->states = tutti_alloc_array(n, sizeof *run->states);
    run->ready.blocks = tutti_alloc_array(n, sizeof *run->ready.blocks);
    run->alone.blocks = tutti_alloc_array(n, sizeof *run->alone.blocks);
    run->sent = tutti_alloc_array(2 * (size_t)c, sizeof *run->sent);
    run->messages = tutti_alloc_array(2 * (size_t)c, sizeof *run->messages);
    run->head = tutti_alloc_array(2 * (size_t)p, sizeof *run->head);
    run->order->spilled = tutti_alloc_array(plan->n_gpus, sizeof *run->order->spilled);
    if (!run->states || !run->ready.blocks || !run->alone.blocks || !run->sent || !run->messages || !run->head ||
        !run->order->spilled)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to run a plan of %u thread blocks", plan->n_blocks);
    run->ready.capacity = run->alone.capacity = n;
    run->received = run->sent + c;
    run->tail = run->head + p;
    for (uint32_t i = 0; i < 2 * p; i++) run->head[i] = TUTTI_MSCCL_NONE;
    for (uint32_t b = 0; b < plan->n_blocks; b++) {
        run->states[b].waiters = run->states[b].next_waiter = TUTTI_MSCCL_NONE;
        wake(run, b);
    }
    return TUTTI_OK;
}

static void run_fini(struct run *run)
{
    tutti_free(run->states);
    tutti_free(run->ready.blocks);
    tutti_free(run->alone.blocks);
    tutti_free(run->sent);
    tutti_free(run->messages);
    tutti_free(run->head);
}

static enum tutti_status run_all(struct run *run)
{
    while (run->ready.n > 0 || run->alone.n > 0) {
        const bool even_alone = run->ready.n == 0;
        const uint32_t block = pop(even_alone ? &run->alone : &run->ready);
        if (even_alone)
            run->states[block].alone = false;
        else
            run->states[block].queued = false;
        TUTTI_TRY(advance(run, block, even_alone));
    }
    for (uint32_t b = 0; b < run->plan->n_blocks; b++)
        if (!ended(run, b)) return deadlock(run);
    return TUTTI_OK;
}

void tutti_msccl_order_fini(struct tutti_msccl_order *order)
{
    tutti_free(order->events);
    tutti_free(order->spilled);
    *order = (struct tutti_msccl_order){0};
}

enum tutti_status tutti_msccl_order(const struct tutti_msccl *plan, struct tutti_msccl_order *out)
{
    struct run run = {.plan = plan, .order = out};
    *out = (struct tutti_msccl_order){0};
    enum tutti_status status = run_init(&run);
    if (status >= 0) status = run_all(&run);
    run_fini(&run);
    if (status < 0) tutti_msccl_order_fini(out);
    return status;
}
