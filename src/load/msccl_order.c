/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs all thread blocks of a plan until each has ended, or none can go on. Connections have one sender, one receiver
 * and a queue, and blocks wait without a choice, so whether all end does not depend on the order in which they go: one
 * run decides it.
 *
 * The order that the run takes becomes the program of each rank. So blocks take turns, as they would on a GPU; and
 * since 64 steps of a rank are under way at once, a rank that has many messages under way holds back those that nobody
 * waits for. Ours has one sequence of messages for each two ranks, MSCCL one a channel: a message that was sent before
 * the one that is wanted is stored in SCRATCH first, and taken from there when its own step comes. */

#include "load/msccl.h"

#include <stdio.h>
#include <string.h>

struct state {
    uint32_t at; /* the step to come, from 0 */
    uint32_t depth;
    uint32_t flag, flag_depth; /* one more than the last step that has signalled */
    uint32_t waiters;          /* the first block that waits for a signal, and the next one after this; NONE */
    uint32_t next_waiter;
    uint32_t next_held; /* the next block of the GPU that is held back; NONE */
    bool waits, queued, first, alone, urgent, held;
};
/* A message that is under way. */
struct message {
    uint32_t depth;
    uint32_t spill;          /* where it was stored; NONE */
    uint32_t next;           /* the one that was sent after it between the two GPUs, number_of(); NONE */
    uint32_t place;          /* how many steps its GPU had done */
    uint32_t older, younger; /* among those of its GPU that are under way; NONE */
};
struct gpu {
    uint32_t n_steps;                 /* as we would count them, about */
    uint32_t n_out, oldest, youngest; /* its messages that are under way */
    uint32_t first_held, last_held;   /* blocks that are held back; NONE */
};
struct queue {
    uint32_t *blocks, first, n, capacity;
};
struct run {
    const struct tutti_msccl *plan;
    const struct limits *limits;
    struct tutti_msccl_order *order;
    struct state *states;
    uint32_t *sent, *received; /* by connection */
    struct message *messages;  /* by connection, as many as there can be */
    uint32_t *head, *tail;     /* by pair: messages that were not received yet */
    struct gpu *gpus;
    uint32_t n_late; /* steps that are more than the window behind a message that is under way */
    struct queue first, ready, urgent,
        alone; /* blocks that may go on; that are held back, with and without a message */
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

/* What a GPU holds back until its oldest message is received, or nothing else can go on: sends where so many are under
 * way, and all but receives where it is so many steps later. The first row that keeps all steps within the window of a
 * message that is under way is taken: then the order can be followed even if each message waits for its receive. */
static const struct limits {
    uint32_t most_out, most_later;
} limits[] = {{16, 40}, {16, 32}, {8, 32}, {4, 24}, {0, 1 << 22}};

/* A message waits for the block. */
static bool is_urgent(const struct run *run, uint32_t block)
{
    const uint32_t in = run->plan->blocks[block].in;
    return in != TUTTI_MSCCL_NONE && under_way(run, in) > 0;
}

enum why { GOES_ON, NO_SIGNAL, NO_MESSAGE, NO_ROOM, HELD_BACK };

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
    const bool sends = step->does & TUTTI_MSCCL_SENDS;
    if (sends) *other = run->plan->connections[b->out].receiver;
    if (sends && under_way(run, b->out) == run->plan->n_slots) return NO_ROOM;
    const struct gpu *gpu = &run->gpus[b->gpu];
    if (receives || !step->does || even_alone) return GOES_ON;
    const uint32_t urgent = is_urgent(run, block) ? 2 : 1;
    if (gpu->n_out > 0 && gpu->n_steps - run->messages[gpu->oldest].place >= urgent * run->limits->most_later)
        return HELD_BACK;
    if (!sends || gpu->n_out < urgent * run->limits->most_out) return GOES_ON;
    return under_way(run, b->out) == 0 && stands_at_receive(run, *other) ? GOES_ON : HELD_BACK;
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

/* The k-th message of the connection, in messages[]. */
static uint32_t number_of(uint32_t connection, uint32_t k)
{
    return TUTTI_MSCCL_MOST_SLOTS * connection + k % TUTTI_MSCCL_MOST_SLOTS;
}

/* The step that receives the oldest message of the connection that was not received, or a later one. */
static uint32_t receiving_step(const struct run *run, uint32_t connection, uint32_t later)
{
    const uint32_t block = run->plan->connections[connection].receiver;
    uint32_t step = run->plan->blocks[block].first + run->states[block].at;
    for (uint32_t skip = later;; step++) {
        if (!(run->plan->steps[step].does & TUTTI_MSCCL_RECEIVES)) continue;
        if (skip-- == 0) return step;
    }
}

/* The first block of the GPU that is held back looks again. */
static void release(struct run *run, struct gpu *gpu)
{
    const uint32_t block = gpu->first_held;
    if (block == TUTTI_MSCCL_NONE) return;
    gpu->first_held = run->states[block].next_held;
    run->states[block].held = false;
    wake(run, block);
}

/* The message is no longer under way. */
static void received(struct run *run, uint32_t number)
{
    struct gpu *gpu = &run->gpus[run->plan->connections[number / TUTTI_MSCCL_MOST_SLOTS].from];
    const struct message *message = &run->messages[number];
    if (message->older == TUTTI_MSCCL_NONE)
        gpu->oldest = message->younger;
    else
        run->messages[message->older].younger = message->younger;
    if (message->younger == TUTTI_MSCCL_NONE)
        gpu->youngest = message->older;
    else
        run->messages[message->younger].older = message->older;
    gpu->n_out--;
    release(run, gpu);
}

static void hold_back(struct run *run, uint32_t block)
{
    struct state *state = &run->states[block];
    struct gpu *gpu = &run->gpus[run->plan->blocks[block].gpu];
    push(&run->alone, block, &state->alone);
    if (is_urgent(run, block)) push(&run->urgent, block, &state->urgent);
    if (state->held) return;
    state->held = true;
    state->next_held = TUTTI_MSCCL_NONE;
    if (gpu->first_held == TUTTI_MSCCL_NONE)
        gpu->first_held = block;
    else
        run->states[gpu->last_held].next_held = block;
    gpu->last_held = block;
}

/* Stores the message that is the first between its two GPUs. */
static enum tutti_status store(struct run *run, uint32_t number, uint32_t depth)
{
    const uint32_t connection = number / TUTTI_MSCCL_MOST_SLOTS, gpu = run->plan->connections[connection].to;
    struct message *message = &run->messages[number];
    const uint32_t later = (number - run->received[connection]) % TUTTI_MSCCL_MOST_SLOTS;
    const uint32_t step = receiving_step(run, connection, later);
    message->spill = run->order->spilled[gpu];
    received(run, number);
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
    const uint32_t number = number_of(connection, run->received[connection]++);
    struct message *message = &run->messages[number];
    if (message->depth > event->depth) event->depth = message->depth;
    wake(run, run->plan->connections[connection].sender);
    if (message->spill != TUTTI_MSCCL_NONE) {
        event->act = TUTTI_MSCCL_TAKE;
        event->spill = message->spill;
        return TUTTI_OK;
    }
    for (; run->head[pair] != number; run->head[pair] = run->messages[run->head[pair]].next) {
        TUTTI_TRY(store(run, run->head[pair], event->depth)); /* another connection's */
    }
    run->head[pair] = message->next;
    received(run, number);
    return TUTTI_OK;
}

static void put(struct run *run, uint32_t connection, uint32_t depth)
{
    const uint32_t pair = run->plan->connections[connection].pair;
    const uint32_t number = number_of(connection, run->sent[connection]++);
    struct gpu *gpu = &run->gpus[run->plan->connections[connection].from];
    run->messages[number] = (struct message){.depth = depth,
                                             .spill = TUTTI_MSCCL_NONE,
                                             .next = TUTTI_MSCCL_NONE,
                                             .place = gpu->n_steps,
                                             .older = gpu->youngest,
                                             .younger = TUTTI_MSCCL_NONE};
    if (gpu->n_out++ == 0)
        gpu->oldest = number;
    else
        run->messages[gpu->youngest].younger = number;
    gpu->youngest = number;
    if (run->head[pair] == TUTTI_MSCCL_NONE)
        run->head[pair] = number;
    else
        run->messages[run->tail[pair]].next = number;
    run->tail[pair] = number;
    const uint32_t receiver = run->plan->connections[connection].receiver;
    struct state *state = &run->states[receiver];
    if (stands_at_receive(run, receiver) &&
        (run->limits->most_out == 0 || !(step_of(run, receiver)->does & TUTTI_MSCCL_SENDS)))
        push(&run->first, receiver, &state->first);
    else
        wake(run, receiver);
}

static void give_signal(struct run *run, uint32_t block)
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

/* Counts steps of ours, at least as many as there will be. */
static void steps_add(struct run *run, uint32_t gpu, uint32_t n)
{
    struct gpu *g = &run->gpus[gpu];
    g->n_steps += n;
    if (g->n_out > 0 && g->n_steps - run->messages[g->oldest].place > TUTTI_WINDOW) run->n_late++;
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
    const bool receives = step->does & TUTTI_MSCCL_RECEIVES;
    steps_add(run, b->gpu, !receives ? step->does != 0 : step->does & TUTTI_MSCCL_SENDS ? 3 : 1);
    if (receives)
        TUTTI_TRY(take(run, b->in, &event));
    else
        release(run, &run->gpus[b->gpu]);
    if (step->does & TUTTI_MSCCL_SENDS) put(run, b->out, event.depth);
    if (step->does) TUTTI_TRY(add(run, &event));
    state->depth = event.depth;
    if (step->signals) give_signal(run, block);
    state->at++;
    wake(run, block);
    return TUTTI_OK;
}

/* Lets the block do a step, if it can; else whoever ends its waiting wakes it. */
static enum tutti_status advance(struct run *run, uint32_t block, bool even_alone)
{
    uint32_t other;
    if (ended(run, block)) return TUTTI_OK;
    struct state *state = &run->states[block];
    const enum why why = look(run, block, even_alone, &other);
    if (why == GOES_ON) return go(run, block);
    if (why == NO_SIGNAL && !state->waits) {
        state->waits = true;
        state->next_waiter = run->states[other].waiters;
        run->states[other].waiters = block;
    }
    if (why == NO_MESSAGE && stands_at_send(run, other)) wake(run, other);
    if (why == HELD_BACK) hold_back(run, block);
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
    run->urgent.blocks = tutti_alloc_array(n, sizeof *run->urgent.blocks);
    run->first.blocks = tutti_alloc_array(n, sizeof *run->first.blocks);
    run->alone.blocks = tutti_alloc_array(n, sizeof *run->alone.blocks);
    run->sent = tutti_alloc_array(2 * (size_t)c, sizeof *run->sent);
    run->messages = tutti_alloc_array(TUTTI_MSCCL_MOST_SLOTS * (size_t)c, sizeof *run->messages);
    run->head = tutti_alloc_array(2 * (size_t)p, sizeof *run->head);
    run->gpus = tutti_alloc_array(plan->n_gpus, sizeof *run->gpus);
    run->order->spilled = tutti_alloc_array(plan->n_gpus, sizeof *run->order->spilled);
    if (!run->states || !run->ready.blocks || !run->urgent.blocks || !run->first.blocks || !run->alone.blocks ||
        !run->sent || !run->messages || !run->head || !run->gpus || !run->order->spilled)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to run a plan of %u thread blocks", plan->n_blocks);
    run->first.capacity = run->ready.capacity = run->urgent.capacity = run->alone.capacity = n;
    run->received = run->sent + c;
    run->tail = run->head + p;
    for (uint32_t g = 0; g < plan->n_gpus; g++)
        run->gpus[g].first_held = run->gpus[g].oldest = run->gpus[g].youngest = TUTTI_MSCCL_NONE;
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
    tutti_free(run->urgent.blocks);
    tutti_free(run->first.blocks);
    tutti_free(run->alone.blocks);
    tutti_free(run->sent);
    tutti_free(run->messages);
    tutti_free(run->head);
    tutti_free(run->gpus);
}

static enum tutti_status run_all(struct run *run)
{
    while (run->first.n > 0 || run->ready.n > 0 || run->alone.n > 0) {
        struct queue *queue = run->first.n > 0    ? &run->first
                              : run->ready.n > 0  ? &run->ready
                              : run->urgent.n > 0 ? &run->urgent
                                                  : &run->alone;
        const uint32_t block = pop(queue);
        struct state *state = &run->states[block];
        *(queue == &run->first    ? &state->first
          : queue == &run->ready  ? &state->queued
          : queue == &run->urgent ? &state->urgent
                                  : &state->alone) = false;
        TUTTI_TRY(advance(run, block, queue == &run->alone || queue == &run->urgent));
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
    enum tutti_status status = TUTTI_OK;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(limits) && status >= 0; i++) {
        struct run run = {.plan = plan, .order = out, .limits = &limits[i]};
        *out = (struct tutti_msccl_order){0};
        status = run_init(&run);
        if (status >= 0) status = run_all(&run);
        run_fini(&run);
        if (status >= 0 && run.n_late == 0) return TUTTI_OK;
        if (status < 0 || i + 1 < TUTTI_ARRAY_LEN(limits)) tutti_msccl_order_fini(out);
    }
    return status;
}
