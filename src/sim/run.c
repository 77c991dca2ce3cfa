/* SPDX-License-Identifier: BSD-3-Clause */
/* The run of a program: a queue of events by time and, within one time, by the order in which they came to be. An event
 * is an operation that became free, or a message that reaches its peer; one that finds its CPU, NIC or port busy goes
 * back with the time at which that is free, and keeps its place among equals. What an event sets free is put into the
 * queue when it is over: ranks in ascending order, on each the sends, the receives, the computing.
 *
 * What waits for a CPU or a port does so at a gate, of which only the first is in the queue: the others would be asked
 * again and again. What a run holds is in run.h. */

#include "sim/ahead.h"

static void push_event(struct run *run, struct tutti_sim_event event)
{
    if (!tutti_sim_queue_push(&run->queue, event)) run->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for events");
}

static void push(struct run *run, uint64_t time, uint32_t op, enum kind kind)
{
    push_event(run, (struct tutti_sim_event){time, run->order++, op << KIND_BITS | (uint32_t)kind});
}

/* Where the birth of an event is told. */
static size_t birth_of(uint32_t op, enum kind kind)
{
    return 2 * (size_t)op + (kind == ARRIVE || kind == TAKEN);
}

/* ---- gates ---- */

static void park(struct run *run, struct sim_gate *gate, uint32_t op, uint32_t order)
{
    uint32_t prior = gate->last;
    run->moments[op].order = order;
    if (gate->first != TUTTI_SIM_NONE && order < run->moments[prior].order) { /* seldom */
        prior = TUTTI_SIM_NONE;
        for (uint32_t at = gate->first; run->moments[at].order < order; at = run->moments[at].mate) prior = at;
    } else {
        gate->last = op;
    }
    uint32_t *link =
        gate->first == TUTTI_SIM_NONE || prior == TUTTI_SIM_NONE ? &gate->first : &run->moments[prior].mate;
    run->moments[op].mate = gate->last == op ? TUTTI_SIM_NONE : *link;
    *link = op;
}

/* The event has to wait until `ready`: in the queue, unless one of lower order waits there for the same. */
static void wait(struct run *run, struct tutti_sim_event event, uint64_t ready)
{
    uint32_t op = event.what >> KIND_BITS;
    enum kind kind = kind_of(event);
    uint32_t number = TUTTI_SIM_NONE;
    if (run->gates) number = run->ops->gate(run->network, &run->program->ops[op], kind == ARRIVE);
    if (number != TUTTI_SIM_NONE) {
        if (run->births)
            tutti_sim_birth_held_up(run->births, birth_of(op, kind), number / run->network->gates_together);
        struct sim_gate *gate = &run->gates[number];
        if (gate->front < event.order) {
            park(run, gate, op, event.order);
            return;
        }
        gate->front = event.order;
    }
    event.time = ready;
    push_event(run, event);
}

/* The event has passed its gate: the next one takes its place in the queue. */
static void pass(struct run *run, struct tutti_sim_event event)
{
    enum kind kind = kind_of(event);
    const struct tutti_sim_op *op = &run->program->ops[event.what >> KIND_BITS];
    uint32_t number = run->ops->gate(run->network, op, kind == ARRIVE);
    if (number == TUTTI_SIM_NONE || (kind == BEGIN && op->type == TUTTI_SIM_RECV)) return;
    if (run->births) tutti_sim_birth_pass(run->births, number / run->network->gates_together);
    if (run->gates[number].front != event.order) return;
    struct sim_gate *gate = &run->gates[number];
    uint32_t next = gate->first;
    gate->front = TUTTI_SIM_NONE;
    if (next == TUTTI_SIM_NONE) return;
    gate->first = run->moments[next].mate;
    gate->front = run->moments[next].order;
    if (gate->first != TUTTI_SIM_NONE) { /* the one after it */
        __builtin_prefetch(&run->program->ops[gate->first]);
        __builtin_prefetch(&run->moments[gate->first], 1);
    }
    if (run->births) tutti_sim_birth_meet(run->births, run->births->now, run->births->events[birth_of(next, kind)]);
    op = &run->program->ops[next];
    event.time =
        kind == ARRIVE ? run->ops->ready_in(run->network, op, run->now) : run->ops->ready(run->network, op, run->now);
    event.order = gate->front;
    event.what = next << KIND_BITS | (uint32_t)kind;
    if (!tutti_sim_queue_put_back(&run->queue, event))
        run->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for events");
}

/* ---- what waits for what ---- */

static void release(struct run *run, uint32_t op, uint32_t on_start)
{
    const struct tutti_sim_program *program = run->program;
    for (uint32_t e = program->ops[op].after; e < program->ops[op + 1].after; e++) {
        uint32_t to = program->edges[e];
        if ((to & TUTTI_SIM_ON_START) != on_start) continue;
        to &= ~TUTTI_SIM_ON_START;
        if (run->births) tutti_sim_birth_freed(run->births, birth_of(to, BEGIN));
        if (--run->moments[to].left > 0) continue;
        if (run->traced) tutti_sim_moment_freed(&run->moments[to], op, run->now);
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
    run->moments[op].left = DONE;
    run->n_done++;
    if (run->traced && run->moments[op].end_ps < run->now) run->moments[op].end_ps = run->now;
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

/* A receive begins when the CPU is free, as that is seen now: whatever takes the CPU now, too, meets what frees it. */
static void look_at_cpu(struct run *run, const struct tutti_sim_op *recv)
{
    uint32_t number = run->ops->gate(run->network, recv, false);
    if (number != TUTTI_SIM_NONE) tutti_sim_birth_pass(run->births, number / run->network->gates_together);
}

static void push_freed(struct run *run)
{
    sort_freed(run);
    for (size_t i = 0; i < run->n_freed; i++) {
        uint32_t op = run->freed[i];
        uint64_t ready = run->ops->ready(run->network, &run->program->ops[op], run->now);
        struct tutti_sim_event event = {ready, run->order++, op << KIND_BITS | BEGIN};
        if (run->births && run->program->ops[op].type == TUTTI_SIM_RECV) look_at_cpu(run, &run->program->ops[op]);
        if (ready > run->now && run->program->ops[op].type != TUTTI_SIM_RECV)
            wait(run, event, ready);
        else
            push_event(run, event);
    }
    run->n_freed = 0;
}

/* ---- messages and receives ---- */

static bool meets(const struct tutti_sim_op *recv, const struct tutti_sim_op *send)
{
    return (recv->peer == TUTTI_SIM_ANY || recv->peer == send->rank) &&
           (recv->tag == TUTTI_SIM_ANY || recv->tag == send->tag);
}

static void append(struct run *run, struct list *list, uint32_t op)
{
    run->moments[op].mate = TUTTI_SIM_NONE;
    if (list->first == TUTTI_SIM_NONE)
        list->first = op;
    else
        run->moments[list->last].mate = op;
    list->last = op;
}

/* Takes the first of a list that meets this operation out of it. */
static uint32_t take(struct run *run, struct list *list, const struct tutti_sim_op *op)
{
    const struct tutti_sim_op *ops = run->program->ops;
    uint32_t prior = TUTTI_SIM_NONE;
    if (list->first != TUTTI_SIM_NONE && ops[list->first].type == op->type) return TUTTI_SIM_NONE;
    for (uint32_t at = list->first; at != TUTTI_SIM_NONE; prior = at, at = run->moments[at].mate) {
        bool met = op->type == TUTTI_SIM_RECV ? meets(op, &ops[at]) : meets(&ops[at], op);
        if (!met) continue;
        if (prior == TUTTI_SIM_NONE)
            list->first = run->moments[at].mate;
        else
            run->moments[prior].mate = run->moments[at].mate;
        if (list->last == at) list->last = prior;
        return at;
    }
    return TUTTI_SIM_NONE;
}

static const char *where(const struct run *run, uint32_t op, char out[32])
{
    out[0] = '\0';
    if (run->program->text) tutti_append(out, 32, ", line %u", run->program->ops[op].place);
    return out;
}

/* A receive and its message that come at one time: what they free is made by either. */
static void tell_births(struct run *run, uint32_t recv, uint32_t send, bool late)
{
    struct tutti_sim_births *births = run->births;
    const struct tutti_sim_birth *other = &births->events[late ? birth_of(recv, BEGIN) : birth_of(send, TAKEN)];
    births->n_unclear += other->born == births->time && other->before == births->now.born;
    births->n_unclear += run->moments[send].left == HELD;
}

/* The message of `send` is in the hands of `recv`. */
static void match(struct run *run, uint32_t recv, uint32_t send)
{
    const struct tutti_sim_op *r = &run->program->ops[recv], *s = &run->program->ops[send];
    char at[2][32];
    if (s->size > r->size)
        run->status =
            tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u%s sends %llu bytes to rank %u, whose receive%s takes %llu", s->rank,
                       where(run, send, at[0]), (unsigned long long)s->size, r->rank, where(run, recv, at[1]),
                       (unsigned long long)r->size);
    if (run->moments[send].left == HELD) {
        run->ops->meet(run->network, s, run->now);
        finish(run, send);
    }
    finish(run, recv);
}

/* late: the message was the last to come, not its receive. */
static void meet(struct run *run, uint32_t recv, uint32_t send, bool late)
{
    if (run->traced) tutti_sim_moments_meet(run->moments, recv, send, late);
    if (run->births) tell_births(run, recv, send, late);
    match(run, recv, send);
}

static void begin(struct run *run, uint32_t op)
{
    const struct tutti_sim_op *o = &run->program->ops[op];
    run->moments[op].left = BEGUN;
    if (run->traced) tutti_sim_moment_begins(&run->moments[op], run->network, op, run->now);
    if (run->births) run->births->events[birth_of(op, FINISH)] = tutti_sim_birth_made(run->births);
    release(run, op, TUTTI_SIM_ON_START);
    run->result->n_events++;
    if (o->type == TUTTI_SIM_RECV) {
        uint32_t send = take(run, list_of(run, o->list, TUTTI_SIM_SEND), o);
        if (send == TUTTI_SIM_NONE)
            append(run, list_of(run, o->list, TUTTI_SIM_RECV), op);
        else
            meet(run, op, send, false);
        return;
    }
    struct tutti_sim_begun begun = run->ops->begin(run->network, o, run->now);
    if (run->traced) run->moments[op].end_ps = run->ops->ready(run->network, o, run->now);
    if (o->type == TUTTI_SIM_SEND) {
        run->result->n_messages++;
        run->result->n_bytes += o->size;
        if (begun.arrives_ps == TUTTI_NEVER) return; /* over says when */
        push(run, begun.arrives_ps, op, ARRIVE);
        if (run->births) {
            run->births->events[birth_of(op, ARRIVE)] = tutti_sim_birth_made(run->births);
            run->births->events[birth_of(op, ARRIVE)].maker |= TUTTI_SIM_MADE_ELSEWHERE;
        }
        if (begun.done_ps == TUTTI_NEVER) run->moments[op].left = HELD;
    }
    finish_at(run, op, begun.done_ps);
}

/* All of the message is there; it occupies the receiver until `busy`. */
static void taken(struct run *run, uint32_t op, uint64_t busy)
{
    const struct tutti_sim_op *send = &run->program->ops[op];
    uint32_t recv = take(run, list_of(run, send->list, TUTTI_SIM_RECV), send);
    if (recv != TUTTI_SIM_NONE) {
        if (run->traced) run->moments[recv].end_ps = busy;
        meet(run, recv, op, true);
        return;
    }
    append(run, list_of(run, send->list, TUTTI_SIM_SEND), op);
    if (run->births) run->births->events[birth_of(op, TAKEN)] = tutti_sim_birth_made(run->births);
}

static void arrive(struct run *run, uint32_t op)
{
    const struct tutti_sim_op *send = &run->program->ops[op];
    if (run->traced) tutti_sim_moment_arrives(&run->moments[op], run->network, op, run->now);
    uint64_t time = run->ops->take_in(run->network, send, run->now);
    run->result->n_events++;
    if (run->births) run->births->events[birth_of(op, TAKEN)] = tutti_sim_birth_made(run->births);
    if (time > run->now)
        push(run, time, op, TAKEN);
    else
        taken(run, op, run->traced ? run->ops->ready_in(run->network, send, run->now) : time);
}

/* ---- what is left at the end ---- */

/* Whether its peer has a receive for the message, which it does not come to. */
static bool is_awaited(const struct run *run, uint32_t send)
{
    const struct tutti_sim_op *s = &run->program->ops[send];
    for (uint32_t i = run->program->first[s->peer]; i < run->program->first[s->peer + 1]; i++) {
        const struct tutti_sim_op *op = &run->program->ops[i];
        if (op->type == TUTTI_SIM_RECV && run->moments[i].left < HELD &&
            (op->peer == s->rank || op->peer == TUTTI_SIM_ANY) && (op->tag == s->tag || op->tag == TUTTI_SIM_ANY))
            return true;
    }
    return false;
}

static enum tutti_status refuse_rest(const struct run *run)
{
    static const char *const verbs[] = {"send", "receive", "calc"};
    const struct tutti_sim_program *program = run->program;
    uint32_t blocked = TUTTI_SIM_NONE, most = program->n_ops;
    char at[32];
    for (uint32_t i = 0; i < program->n_lists; i++) {
        uint32_t op = list_of(run, i, TUTTI_SIM_SEND)->first;
        if (op == TUTTI_SIM_NONE || program->ops[op].type == TUTTI_SIM_RECV || is_awaited(run, op)) continue;
        return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u%s sends %llu bytes to rank %u, tag %u, that nobody receives",
                          program->ops[op].rank, where(run, op, at), (unsigned long long)program->ops[op].size,
                          program->ops[op].peer, program->ops[op].tag);
    }
    if (run->n_done == most) return TUTTI_OK;
    for (uint32_t i = 0; i < most && blocked == TUTTI_SIM_NONE; i++)
        if (run->moments[i].left == BEGUN || run->moments[i].left == HELD) blocked = i;
    for (uint32_t i = 0; i < most && blocked == TUTTI_SIM_NONE; i++)
        if (run->moments[i].left != DONE) blocked = i;
    const struct tutti_sim_op *op = &program->ops[blocked];
    uint32_t rest = most - run->n_done;
    if (run->moments[blocked].left < HELD)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "deadlock: rank %u%s: this %s waits for operations that wait for it; %u of %u never end",
                          op->rank, where(run, blocked, at), verbs[op->type], rest, most);
    char peer[24] = "any rank";
    if (op->peer != TUTTI_SIM_ANY) snprintf(peer, sizeof(peer), "rank %u", op->peer);
    return tutti_fail(TUTTI_ERR_ARGUMENT,
                      "deadlock: rank %u%s: this %s of %llu bytes %s %s waits for ever; %u of %u operations never end",
                      op->rank, where(run, blocked, at), verbs[op->type], (unsigned long long)op->size,
                      op->type == TUTTI_SIM_SEND ? "to" : "from", peer, rest, most);
}

/* ---- the run ---- */

static enum tutti_status open_run(struct run *run)
{
    const struct tutti_sim_program *program = run->program;
    size_t n = program->n_ops ? program->n_ops : 1, n_lists = (size_t)program->n_lists * (program->wild ? 2 : 1) + 1;
    run->moments = tutti_sim_alloc(n, sizeof(*run->moments));
    run->lists = tutti_sim_alloc(n_lists, sizeof(*run->lists));
    run->result->rank_end_ps = tutti_alloc_array(program->n_ranks, sizeof(*run->result->rank_end_ps));
    size_t n_gates = run->ops->gate ? run->network->n_gates : 0;
    if (n_gates > 0) run->gates = tutti_sim_alloc(n_gates, sizeof(*run->gates));
    if (!run->moments || !run->lists || !run->result->rank_end_ps || (n_gates > 0 && !run->gates))
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a run of %u operations", program->n_ops);
    memset(run->lists, 0xff, n_lists * sizeof(*run->lists));
    if (n_gates > 0) memset(run->gates, 0xff, n_gates * sizeof(*run->gates));
    for (uint32_t i = 0; i < program->n_ops; i++) {
        run->moments[i] = TUTTI_SIM_MOMENT_NONE;
        run->moments[i].left = program->ops[i].before;
    }
    for (uint32_t r = 0; r < program->n_ranks; r++)
        for (uint8_t type = TUTTI_SIM_SEND; type <= TUTTI_SIM_CALC; type++)
            for (uint32_t i = program->first[r]; i < program->first[r + 1]; i++)
                if (program->ops[i].before == 0 && program->ops[i].type == type) push(run, 0, i, BEGIN);
    return run->status;
}

/* Where ranks stand for others: what begins at the start is made by one maker. */
static enum tutti_status open_births(struct run *run, struct tutti_sim_births *births)
{
    size_t n = 2 * ((size_t)run->program->n_ops + 1), n_ports = run->network->n_gates;
    births->n_makers = 1;
    births->events = tutti_alloc_array(n, sizeof(*births->events));
    births->passed = tutti_alloc_array(n_ports, sizeof(*births->passed));
    if (!births->events || !births->passed) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a run");
    for (size_t i = 0; i < n; i++) births->events[i].born = TUTTI_NEVER;
    for (size_t i = 0; i < n_ports; i++) births->passed[i].time = TUTTI_NEVER;
    for (uint32_t i = 0; i < run->program->n_ops; i++)
        if (run->program->ops[i].before == 0) births->events[birth_of(i, BEGIN)] = (struct tutti_sim_birth){0, 0, 1};
    run->births = births;
    return TUTTI_OK;
}

static void turn(struct run *run)
{
    look_ahead(run);
    struct tutti_sim_event event = run->queue.now.events[run->queue.at++];
    enum kind kind = kind_of(event);
    uint32_t number = event.what >> KIND_BITS;
    const struct tutti_sim_op *op = &run->program->ops[number];
    run->now = event.time;
    if (run->births) tutti_sim_birth_enter(run->births, birth_of(number, kind), event.time);
    if (kind == TAKEN) {
        taken(run, number, run->now);
    } else if (kind == FINISH) {
        finish(run, number);
    } else {
        uint64_t ready = kind == ARRIVE ? run->ops->ready_in(run->network, op, run->now)
                                        : run->ops->ready(run->network, op, run->now);
        if (ready > event.time && !(kind == BEGIN && op->type == TUTTI_SIM_RECV)) {
            wait(run, event, ready);
            return;
        }
        if (kind == ARRIVE)
            arrive(run, number);
        else
            begin(run, number);
        if (run->gates) pass(run, event);
    }
}

/* The messages that the network ends by itself before anything else happens; false: there are none. It is asked when
 * all events of one time are over, so that what begins together is shared out once. */
static bool end_messages(struct run *run)
{
    uint64_t top = tutti_sim_queue_top(&run->queue), arrives;
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

/* All events, from the first to the last. */
static void turn_all(struct run *run, const struct tutti_sim_watch *watch)
{
    uint64_t told = 0;
    while (run->status >= 0 && run->network->status >= 0) {
        if (end_messages(run)) continue;
        if (run->queue.at == run->queue.now.n) {
            if (!tutti_sim_queue_advance(&run->queue))
                run->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for events");
            if (run->queue.now.n == 0) break;
            if (watch && watch->progress && run->result->n_events - told > (1 << 18)) {
                told = run->result->n_events;
                watch->progress(watch->argument, run->n_done, run->program->n_ops);
            }
        }
        turn(run);
        if (run->n_freed > 0) push_freed(run);
    }
    if (watch && watch->progress && told > 0)
        watch->progress(watch->argument, run->program->n_ops, run->program->n_ops);
}

void tutti_sim_result_fini(struct tutti_sim_result *result)
{
    tutti_free(result->rank_end_ps);
    tutti_free(result->moments);
    *result = (struct tutti_sim_result){0};
}

enum tutti_status tutti_sim_run_watched(const struct tutti_sim_program *program, struct tutti_sim_network *network,
                                        const struct tutti_sim_watch *watch, struct tutti_sim_result *out)
{
    struct run run = {.program = program, .network = network, .ops = network->ops, .result = out};
    run.traced = watch && watch->traced;
    *out = (struct tutti_sim_result){0};
    struct tutti_sim_births births = {0};
    if (program->turn.world > 0 && !network->ops->alike)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "on network %s no rank stands for others", network->ops->name);
    enum tutti_status status = open_run(&run);
    if (status >= 0 && program->turn.world > 0) status = open_births(&run, &births);
    if (status < 0) goto free_run;
    turn_all(&run, watch);
    status = run.status < 0 ? run.status : network->status;
    if (status >= 0) status = refuse_rest(&run);
    out->n_unclear = births.n_unclear;
    for (uint32_t r = 0; status >= 0 && r < program->n_ranks; r++) {
        out->rank_end_ps[r] = run.ops->end(network, r);
        if (out->rank_end_ps[r] > out->end_ps) out->end_ps = out->rank_end_ps[r];
    }
free_run:
    tutti_sim_queue_fini(&run.queue);
    free(run.freed);
    if (run.traced && status >= 0)
        out->moments = run.moments;
    else
        tutti_free(run.moments);
    tutti_free(run.lists);
    tutti_free(run.gates);
    tutti_free(births.events);
    tutti_free(births.passed);
    if (status < 0) tutti_sim_result_fini(out);
    return status;
}

enum tutti_status tutti_sim_run(const struct tutti_sim_program *program, struct tutti_sim_network *network,
                                struct tutti_sim_result *out)
{
    return tutti_sim_run_watched(program, network, NULL, out);
}
