/* SPDX-License-Identifier: BSD-3-Clause */
/* What the moments of a run tell: which operations the end waited for, and how much of the time ranks do nothing.
 *
 * The critical path is followed backwards. At each point there is a time, and the operation that went on until then; it
 * gets the time back to where it began, and what let it begin is next. A receive that its message kept waiting leads to
 * the sender, at the begin of the send; a message that another one kept from the port leads to that one's receive. So
 * the times of a path follow one another without gap or overlap, and its shares add up to the whole. */

#include "sim/network.h"

#include <stdlib.h>

/* ---- the critical path ---- */

struct walk {
    const struct tutti_sim_program *program;
    const struct tutti_sim_limits *limits;
    const struct tutti_sim_moment *moments;
    struct tutti_sim_critical *out;
    uint32_t capacity;
    uint64_t time; /* all after it is accounted for */
    uint32_t op;   /* the one that went on until then */
    bool at_begin; /* it is a send that counts for its message: only its begin */
};

static enum tutti_status note(struct walk *walk)
{
    struct tutti_sim_critical *out = walk->out;
    if (out->n == walk->capacity) {
        uint32_t capacity = walk->capacity ? 2 * walk->capacity : 256;
        uint32_t *grown = realloc(out->ops, capacity * sizeof(*grown));
        if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a path of %u operations", capacity);
        out->ops = grown;
        walk->capacity = capacity;
    }
    out->ops[out->n++] = walk->op;
    return TUTTI_OK;
}

/* Accounts for the time back to `until`: a message's first latency_ps are latency, the rest is bandwidth. */
static void account(struct walk *walk, uint64_t until, uint64_t latency_ps, bool computes)
{
    uint64_t span = walk->time > until ? walk->time - until : 0;
    uint64_t latency = span < latency_ps ? span : latency_ps;
    walk->time -= span;
    if (computes) {
        walk->out->computing_ps += span;
    } else {
        walk->out->latency_ps += latency;
        walk->out->bandwidth_ps += span - latency;
    }
}

static void go(struct walk *walk, uint32_t op, bool at_begin)
{
    walk->op = op;
    walk->at_begin = at_begin;
}

/* Back along the message of this send, to its begin. */
static void go_to_sender(struct walk *walk, uint32_t send)
{
    account(walk, walk->moments[send].begin_ps, walk->limits->latency_ps, false);
    walk->out->n_messages++;
    go(walk, send, true);
}

/* To what held the CPU or port: the message of a send, as its receive tells of it where that waited for it. */
static void go_to_message(struct walk *walk, uint32_t send)
{
    uint32_t recv = walk->moments[send].mate;
    const struct tutti_sim_moment *moment = &walk->moments[recv];
    if (recv != TUTTI_SIM_NONE && moment->cause != TUTTI_SIM_NONE && (moment->cause & TUTTI_SIM_BY_MESSAGE) &&
        moment->end_ps <= walk->time)
        go(walk, recv, false);
    else
        go_to_sender(walk, send);
}

/* One step back; false: that was the start. */
static bool step_back(struct walk *walk)
{
    const struct tutti_sim_op *op = &walk->program->ops[walk->op];
    const struct tutti_sim_moment *moment = &walk->moments[walk->op];
    uint32_t cause = moment->cause;
    bool by_message = cause != TUTTI_SIM_NONE && (cause & TUTTI_SIM_BY_MESSAGE);
    if (by_message) cause &= ~TUTTI_SIM_BY_MESSAGE;
    if (op->type == TUTTI_SIM_RECV && by_message && cause == moment->mate) {
        go_to_sender(walk, cause);
        return true;
    }
    if (op->type == TUTTI_SIM_RECV && by_message)
        account(walk, walk->moments[walk->moments[cause].mate].end_ps, walk->limits->overhead_ps, false);
    else if (!walk->at_begin)
        account(walk, moment->begin_ps, walk->limits->overhead_ps, op->type == TUTTI_SIM_CALC);
    if (cause == TUTTI_SIM_NONE) return false;
    if (by_message)
        go_to_message(walk, cause);
    else
        go(walk, cause, false);
    return true;
}

static uint32_t last_of(const struct tutti_sim_program *program, const struct tutti_sim_result *result)
{
    uint64_t best = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        uint64_t end = result->moments[i].end_ps, most = result->rank_end_ps[program->ops[i].rank];
        if (end > most) end = most; /* a NIC that is still busy when its rank has ended */
        if (end < best || (end == best && i > 0)) continue;
        best = end;
        last = i;
    }
    return last;
}

/* Tells which ranks the path passes. Where ranks stand for others it is followed from the last operation, of the first
 * group, back over the messages, whose senders are other groups'. */
static enum tutti_status name_ranks(const struct tutti_sim_program *program, const struct tutti_sim_moment *moments,
                                    struct tutti_sim_critical *out)
{
    uint32_t world = program->turn.world > 0 ? program->turn.world : program->n_ranks, at = 0;
    uint8_t *seen = tutti_alloc(world);
    out->ranks = tutti_alloc_array(out->n, sizeof(*out->ranks));
    if (!seen || !out->ranks) {
        tutti_free(seen);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u ranks", world);
    }
    for (uint32_t i = out->n; i-- > 0;) {
        const struct tutti_sim_op *op = &program->ops[out->ops[i]];
        uint32_t rank = program->turn.world > 0 ? tutti_sim_turned(&program->turn, op->rank, at) : op->rank;
        out->ranks[i] = rank;
        out->n_ranks += !seen[rank];
        seen[rank] = 1;
        bool over_message = op->type == TUTTI_SIM_RECV && i > 0 && out->ops[i - 1] == moments[out->ops[i]].mate;
        if (over_message && program->turn.world > 0)
            at = tutti_sim_turned(&program->turn, program->peers[out->ops[i]], at);
    }
    tutti_free(seen);
    return TUTTI_OK;
}

enum tutti_status tutti_sim_critical_find(const struct tutti_sim_program *program,
                                          const struct tutti_sim_network *network,
                                          const struct tutti_sim_result *result, struct tutti_sim_critical *out)
{
    struct walk walk = {.program = program, .limits = &network->limits, .moments = result->moments, .out = out};
    *out = (struct tutti_sim_critical){0};
    if (program->n_ops == 0) return TUTTI_OK;
    walk.time = result->end_ps;
    walk.op = last_of(program, result);
    enum tutti_status status = TUTTI_OK;
    bool more = true;
    for (uint64_t n = 0; status >= 0 && more && n < 4 * (uint64_t)program->n_ops; n++) {
        status = note(&walk);
        if (status >= 0) more = step_back(&walk);
    }
    account(&walk, 0, 0, false);
    for (uint32_t i = 0; i < out->n / 2; i++) {
        uint32_t op = out->ops[i];
        out->ops[i] = out->ops[out->n - 1 - i];
        out->ops[out->n - 1 - i] = op;
    }
    if (status >= 0) status = name_ranks(program, result->moments, out);
    if (status < 0) tutti_sim_critical_fini(out);
    return status;
}

void tutti_sim_critical_fini(struct tutti_sim_critical *critical)
{
    free(critical->ops);
    tutti_free(critical->ranks);
    *critical = (struct tutti_sim_critical){0};
}

/* ---- what ranks do ---- */

struct tutti_sim_span tutti_sim_span_of(const struct tutti_sim_program *program,
                                        const struct tutti_sim_network *network, const struct tutti_sim_result *result,
                                        uint32_t op)
{
    const struct tutti_sim_moment *moment = &result->moments[op];
    struct tutti_sim_span span = {moment->begin_ps, moment->end_ps};
    if (program->ops[op].type == TUTTI_SIM_RECV && moment->mate != TUTTI_SIM_NONE) {
        uint64_t first = result->moments[moment->mate].begin_ps + network->limits.latency_ps;
        first -= network->limits.overhead_ps < first ? network->limits.overhead_ps : first;
        if (first > span.begin_ps) span.begin_ps = first;
    }
    if (span.end_ps < span.begin_ps) span.end_ps = span.begin_ps;
    return span;
}

static int span_compare(const void *a, const void *b)
{
    uint64_t x = ((const struct tutti_sim_span *)a)->begin_ps, y = ((const struct tutti_sim_span *)b)->begin_ps;
    return x < y ? -1 : x > y;
}

/* Picoseconds that at least one of the spans covers; sorts them. */
static uint64_t covered(struct tutti_sim_span *spans, uint32_t n)
{
    uint64_t sum = 0, until = 0;
    qsort(spans, n, sizeof(*spans), span_compare);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t begin = spans[i].begin_ps > until ? spans[i].begin_ps : until;
        if (spans[i].end_ps <= begin) continue;
        sum += spans[i].end_ps - begin;
        until = spans[i].end_ps;
    }
    return sum;
}

enum { MOST_ASKED = 1024 };

enum tutti_status tutti_sim_idle(const struct tutti_sim_program *program, const struct tutti_sim_network *network,
                                 const struct tutti_sim_result *result, double *out)
{
    uint32_t n_asked = program->n_ranks < MOST_ASKED ? program->n_ranks : MOST_ASKED, most = 1;
    for (uint32_t r = 0; r < program->n_ranks; r++)
        if (program->first[r + 1] - program->first[r] > most) most = program->first[r + 1] - program->first[r];
    struct tutti_sim_span *spans = tutti_alloc_array(most, sizeof(*spans));
    if (!spans) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u operations", most);
    double busy = 0;
    for (uint32_t i = 0; i < n_asked; i++) {
        uint32_t rank = (uint32_t)((uint64_t)i * program->n_ranks / n_asked), first = program->first[rank];
        uint32_t n = program->first[rank + 1] - first;
        for (uint32_t op = 0; op < n; op++) spans[op] = tutti_sim_span_of(program, network, result, first + op);
        busy += (double)covered(spans, n);
    }
    tutti_free(spans);
    double whole = (double)n_asked * (double)result->end_ps;
    *out = whole > busy ? 1 - busy / whole : 0;
    return TUTTI_OK;
}
