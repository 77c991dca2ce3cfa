/* SPDX-License-Identifier: BSD-3-Clause */
/* The run of a program: a queue of events by time and, within one time, by the order in which they came to be. An event
 * is an operation that became free, or a message that reaches its peer; one that finds its CPU, NIC or port busy goes
 * back with the time at which that is free, and keeps its place among equals. What an event sets free is put into the
 * queue when it is over: ranks in ascending order, on each the sends, the receives, the computing. */

#include "sim/network.h"

#include <stdlib.h>
#include <string.h>

enum kind { BEGIN, ARRIVE, FINISH };

struct event {
    uint64_t time;
    uint64_t order; /* among events of one time */
    uint32_t op;
    uint32_t kind; /* enum kind */
};

/* How an operation stands: how many it still waits for, then one of these. */
#define HELD (UINT32_MAX - 2) /* a send that is done when it meets its receive */
#define BEGUN (UINT32_MAX - 1)
#define DONE UINT32_MAX

/* Where messages meet receives: of those that wait, first and last; operations are linked by `next`. */
struct list {
    uint32_t posted, last_posted;         /* receives */
    uint32_t unexpected, last_unexpected; /* messages */
};

struct run {
    const struct tutti_sim_program *program;
    struct tutti_sim_network *network;
    const struct tutti_sim_network_ops *ops;
    struct event *heap;
    size_t n, capacity;
    uint64_t order, now;
    uint32_t *left, *next; /* by operation */
    struct list *lists;
    uint32_t *freed; /* by the event at hand */
    size_t n_freed, freed_capacity;
    uint64_t n_done;
    enum tutti_status status;
    struct tutti_sim_result *result;
};

/* ---- the queue: a heap of four children a node ---- */

static bool before(const struct event *a, const struct event *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void sift_down(struct run *run, struct event event)
{
    struct event *heap = run->heap;
    size_t at = 0;
    for (;;) {
        size_t first = 4 * at + 1, least = first;
        if (first >= run->n) break;
        size_t end = first + 4 < run->n ? first + 4 : run->n;
        for (size_t child = first + 1; child < end; child++)
            if (before(&heap[child], &heap[least])) least = child;
        if (!before(&heap[least], &event)) break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = event;
}

static void push(struct run *run, uint64_t time, uint32_t op, enum kind kind)
{
    if (run->n == run->capacity) {
        size_t capacity = run->capacity ? 2 * run->capacity : 1024;
        struct event *grown = realloc(run->heap, capacity * sizeof(*grown));
        if (!grown) {
            run->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu events", capacity);
            return;
        }
        run->heap = grown;
        run->capacity = capacity;
    }
    struct event event = {time, run->order++, op, kind};
    size_t at = run->n++;
    while (at > 0 && before(&event, &run->heap[(at - 1) / 4])) {
        run->heap[at] = run->heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    run->heap[at] = event;
}

static void pop(struct run *run)
{
    struct event last = run->heap[--run->n];
    if (run->n > 0) sift_down(run, last);
}

/* The event at hand comes again, then. */
static void postpone(struct run *run, uint64_t time)
{
    struct event event = run->heap[0];
    event.time = time;
    sift_down(run, event);
}

/* ---- what waits for what ---- */

static void release(struct run *run, uint32_t op, uint32_t on_start)
{
    const struct tutti_sim_program *program = run->program;
    for (uint32_t e = program->ops[op].after; e < program->ops[op + 1].after; e++) {
        uint32_t to = program->edges[e];
        if ((to & TUTTI_SIM_ON_START) != on_start) continue;
        to &= ~TUTTI_SIM_ON_START;
        if (--run->left[to] > 0) continue;
        if (run->n_freed == run->freed_capacity) {
            size_t capacity = run->freed_capacity ? 2 * run->freed_capacity : 64;
            uint32_t *grown = realloc(run->freed, capacity * sizeof(*grown));
            if (!grown) {
                run->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu free operations", capacity);
                return;
            }
            run->freed = grown;
            run->freed_capacity = capacity;
        }
        run->freed[run->n_freed++] = to;
    }
}

static void finish(struct run *run, uint32_t op)
{
    run->left[op] = DONE;
    run->n_done++;
    release(run, op, 0);
}

/* Done now, later, or when its message meets a receive. */
static void finish_at(struct run *run, uint32_t op, uint64_t time)
{
    if (time <= run->now)
        finish(run, op);
    else if (time != TUTTI_NEVER)
        push(run, time, op, FINISH);
}

/* Stable, by rank and type. There are few, and often but one. */
static void sort_freed(struct run *run)
{
    const struct tutti_sim_op *ops = run->program->ops;
    for (size_t i = 1; i < run->n_freed; i++) {
        uint32_t op = run->freed[i];
        uint64_t key = (uint64_t)ops[op].rank << 2 | ops[op].type;
        size_t at = i;
        for (; at > 0; at--) {
            uint32_t other = run->freed[at - 1];
            if (((uint64_t)ops[other].rank << 2 | ops[other].type) <= key) break;
            run->freed[at] = other;
        }
        run->freed[at] = op;
    }
}

static void push_freed(struct run *run)
{
    sort_freed(run);
    for (size_t i = 0; i < run->n_freed; i++) {
        uint32_t op = run->freed[i];
        push(run, run->ops->ready(run->network, &run->program->ops[op], run->now), op, BEGIN);
    }
    run->n_freed = 0;
}

/* ---- messages and receives ---- */

static bool meets(const struct tutti_sim_op *recv, const struct tutti_sim_op *send)
{
    return (recv->peer == TUTTI_SIM_ANY || recv->peer == send->rank) &&
           (recv->tag == TUTTI_SIM_ANY || recv->tag == send->tag);
}

static void append(struct run *run, uint32_t *head, uint32_t *last, uint32_t op)
{
    run->next[op] = TUTTI_SIM_NONE;
    if (*head == TUTTI_SIM_NONE)
        *head = op;
    else
        run->next[*last] = op;
    *last = op;
}

/* Takes the first of a list that meets this operation out of it. */
static uint32_t take(struct run *run, uint32_t *head, uint32_t *last, const struct tutti_sim_op *op)
{
    const struct tutti_sim_op *ops = run->program->ops;
    uint32_t prior = TUTTI_SIM_NONE;
    for (uint32_t at = *head; at != TUTTI_SIM_NONE; prior = at, at = run->next[at]) {
        bool met = op->type == TUTTI_SIM_RECV ? meets(op, &ops[at]) : meets(&ops[at], op);
        if (!met) continue;
        if (prior == TUTTI_SIM_NONE)
            *head = run->next[at];
        else
            run->next[prior] = run->next[at];
        if (*last == at) *last = prior;
        return at;
    }
    return TUTTI_SIM_NONE;
}

static const char *where(const struct run *run, uint32_t op, char out[32])
{
    out[0] = '\0';
    if (run->program->lines) tutti_append(out, 32, ", line %u", run->program->lines[op]);
    return out;
}

/* The message of `send` is in the hands of `recv`, whose dependants go on at `time`. */
static void match(struct run *run, uint32_t recv, uint32_t send, uint64_t time)
{
    const struct tutti_sim_op *r = &run->program->ops[recv], *s = &run->program->ops[send];
    char at[2][32];
    if (s->size > r->size)
        run->status =
            tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u%s sends %llu bytes to rank %u, whose receive%s takes %llu", s->rank,
                       where(run, send, at[0]), (unsigned long long)s->size, r->rank, where(run, recv, at[1]),
                       (unsigned long long)r->size);
    if (run->left[send] == HELD) {
        run->ops->meet(run->network, s, run->now);
        finish(run, send);
    }
    finish_at(run, recv, time);
}

static void begin(struct run *run, uint32_t op)
{
    const struct tutti_sim_op *o = &run->program->ops[op];
    struct list *list = &run->lists[o->type == TUTTI_SIM_CALC ? 0 : o->list];
    run->left[op] = BEGUN;
    release(run, op, TUTTI_SIM_ON_START);
    run->result->n_events++;
    if (o->type == TUTTI_SIM_RECV) {
        uint32_t send = take(run, &list->unexpected, &list->last_unexpected, o);
        if (send == TUTTI_SIM_NONE)
            append(run, &list->posted, &list->last_posted, op);
        else
            match(run, op, send, run->now);
        return;
    }
    struct tutti_sim_begun begun = run->ops->begin(run->network, o, run->now);
    if (o->type == TUTTI_SIM_SEND) {
        run->result->n_messages++;
        run->result->n_bytes += o->size;
        if (begun.arrives_ps == TUTTI_NEVER) return; /* over says when */
        push(run, begun.arrives_ps, op, ARRIVE);
        if (begun.done_ps == TUTTI_NEVER) run->left[op] = HELD;
    }
    finish_at(run, op, begun.done_ps);
}

static void arrive(struct run *run, uint32_t op)
{
    const struct tutti_sim_op *send = &run->program->ops[op];
    struct list *list = &run->lists[send->list];
    uint64_t time = run->ops->take_in(run->network, send, run->now);
    uint32_t recv = take(run, &list->posted, &list->last_posted, send);
    run->result->n_events++;
    if (recv == TUTTI_SIM_NONE)
        append(run, &list->unexpected, &list->last_unexpected, op);
    else
        match(run, recv, op, time);
}

/* ---- what is left at the end ---- */

static enum tutti_status refuse_rest(const struct run *run)
{
    static const char *const verbs[] = {"send", "receive", "calc"};
    const struct tutti_sim_program *program = run->program;
    uint32_t blocked = TUTTI_SIM_NONE, most = program->n_ops;
    char at[32];
    for (uint32_t i = 0; i < program->n_lists; i++) {
        uint32_t op = run->lists[i].unexpected;
        if (op == TUTTI_SIM_NONE) continue;
        return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u%s sends %llu bytes to rank %u, tag %u, that nobody receives",
                          program->ops[op].rank, where(run, op, at), (unsigned long long)program->ops[op].size,
                          program->ops[op].peer, program->ops[op].tag);
    }
    if (run->n_done == most) return TUTTI_OK;
    for (uint32_t i = 0; i < most && blocked == TUTTI_SIM_NONE; i++)
        if (run->left[i] == BEGUN || run->left[i] == HELD) blocked = i;
    for (uint32_t i = 0; i < most && blocked == TUTTI_SIM_NONE; i++)
        if (run->left[i] != DONE) blocked = i;
    const struct tutti_sim_op *op = &program->ops[blocked];
    unsigned long long rest = most - run->n_done;
    if (run->left[blocked] < HELD)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "deadlock: rank %u%s: this %s waits for operations that wait for it; %llu of %u never end",
                          op->rank, where(run, blocked, at), verbs[op->type], rest, most);
    char peer[24] = "any rank";
    if (op->peer != TUTTI_SIM_ANY) snprintf(peer, sizeof(peer), "rank %u", op->peer);
    return tutti_fail(
        TUTTI_ERR_ARGUMENT,
        "deadlock: rank %u%s: this %s of %llu bytes %s %s waits for ever; %llu of %u operations never end", op->rank,
        where(run, blocked, at), verbs[op->type], (unsigned long long)op->size,
        op->type == TUTTI_SIM_SEND ? "to" : "from", peer, rest, most);
}

/* ---- the run ---- */

static enum tutti_status open_run(struct run *run)
{
    const struct tutti_sim_program *program = run->program;
    size_t n = program->n_ops ? program->n_ops : 1, n_lists = program->n_lists ? program->n_lists : 1;
    run->left = tutti_alloc_array(n, sizeof(*run->left));
    run->next = tutti_alloc_array(n, sizeof(*run->next));
    run->lists = tutti_alloc_array(n_lists, sizeof(*run->lists));
    run->result->rank_end_ps = tutti_alloc_array(program->n_ranks, sizeof(*run->result->rank_end_ps));
    if (!run->left || !run->next || !run->lists || !run->result->rank_end_ps)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a run of %u operations", program->n_ops);
    memset(run->lists, 0xff, n_lists * sizeof(*run->lists));
    for (uint32_t i = 0; i < program->n_ops; i++) run->left[i] = program->ops[i].before;
    for (uint32_t r = 0; r < program->n_ranks; r++)
        for (uint8_t type = TUTTI_SIM_SEND; type <= TUTTI_SIM_CALC; type++)
            for (uint32_t i = program->first[r]; i < program->first[r + 1]; i++)
                if (program->ops[i].before == 0 && program->ops[i].type == type) push(run, 0, i, BEGIN);
    return run->status;
}

static void turn(struct run *run)
{
    struct event event = run->heap[0];
    const struct tutti_sim_op *op = &run->program->ops[event.op];
    run->now = event.time;
    if (event.kind != FINISH) {
        uint64_t ready = event.kind == ARRIVE ? run->ops->ready_in(run->network, op, run->now)
                                              : run->ops->ready(run->network, op, run->now);
        if (ready > event.time && !(event.kind == BEGIN && op->type == TUTTI_SIM_RECV)) {
            postpone(run, ready);
            return;
        }
    }
    pop(run);
    if (event.kind == FINISH)
        finish(run, event.op);
    else if (event.kind == ARRIVE)
        arrive(run, event.op);
    else
        begin(run, event.op);
}

/* The messages that the network ends by itself before anything else happens; false: there are none. It is asked when
 * all events of one time are over, so that what begins together is shared out once. */
static bool end_messages(struct run *run)
{
    uint64_t top = run->n > 0 ? run->heap[0].time : TUTTI_NEVER, arrives;
    uint32_t send;
    if (!run->ops->next || top == run->now) return false;
    uint64_t next = run->ops->next(run->network, run->now);
    if (next > top || next == TUTTI_NEVER) return false;
    run->now = next;
    while (run->status >= 0 && run->ops->over(run->network, next, &send, &arrives)) {
        push(run, arrives, send, ARRIVE);
        finish(run, send);
        push_freed(run);
    }
    return true;
}

enum tutti_status tutti_sim_run(const struct tutti_sim_program *program, struct tutti_sim_network *network,
                                struct tutti_sim_result *out)
{
    struct run run = {.program = program, .network = network, .ops = network->ops, .result = out};
    *out = (struct tutti_sim_result){0};
    enum tutti_status status = open_run(&run);
    if (status < 0) goto free_run;
    while (run.status >= 0 && network->status >= 0) {
        if (end_messages(&run)) continue;
        if (run.n == 0) break;
        turn(&run);
        if (run.n_freed > 0) push_freed(&run);
    }
    status = run.status < 0 ? run.status : network->status;
    if (status >= 0) status = refuse_rest(&run);
    for (uint32_t r = 0; status >= 0 && r < program->n_ranks; r++) {
        out->rank_end_ps[r] = run.ops->end(network, r);
        if (out->rank_end_ps[r] > out->end_ps) out->end_ps = out->rank_end_ps[r];
    }
free_run:
    free(run.heap);
    free(run.freed);
    tutti_free(run.left);
    tutti_free(run.next);
    tutti_free(run.lists);
    if (status < 0) {
        tutti_free(out->rank_end_ps);
        *out = (struct tutti_sim_result){0};
    }
    return status;
}
