/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs: arrays of operations and edges that grow while they are filled, and the two sorts that end it. Edges are
 * grouped by the operation that they start from (counting sort, which keeps their order). Each ordered pair of ranks
 * and tag gets a list, in which a message meets its receive without a search; where some receive is wild, each rank has
 * one list, which is searched. */

#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *tutti_sim_alloc(uint64_t n, size_t bytes)
{
    const size_t page = 2 << 20;
    uint64_t total;
    if (__builtin_mul_overflow(n, bytes, &total) || total < page) return tutti_alloc_array(n, bytes);
    void *memory;
    if (posix_memalign(&memory, page, total) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(memory, total / page * page, MADV_HUGEPAGE); /* if it can not be: as it is */
#endif
    return memory;
}

enum tutti_status tutti_sim_program_init(struct tutti_sim_program *program, uint32_t n_ranks)
{
    *program = (struct tutti_sim_program){.n_ranks = n_ranks, .n_cpus = 1, .n_nics = 1, .op_capacity = 1024};
    if (n_ranks == 0 || n_ranks > TUTTI_SIM_MOST_RANKS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%u ranks: a program has 1 to %u", n_ranks, TUTTI_SIM_MOST_RANKS);
    program->first = tutti_alloc_array((size_t)n_ranks + 1, sizeof(*program->first));
    program->ops = tutti_alloc_array(program->op_capacity, sizeof(*program->ops));
    if (program->first && program->ops) return TUTTI_OK;
    tutti_sim_program_fini(program);
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a program of %u ranks", n_ranks);
}

void tutti_sim_program_fini(struct tutti_sim_program *program)
{
    tutti_free(program->first);
    tutti_free(program->ops);
    tutti_free(program->edges);
    tutti_free(program->peers);
    tutti_free(program->raw);
    *program = (struct tutti_sim_program){0};
}

void tutti_sim_program_rank(struct tutti_sim_program *program, uint32_t rank)
{
    program->rank = rank;
    program->first[rank] = program->n_ops;
    program->first[rank + 1] = program->n_ops;
}

/* Moves an array to one of twice the length. */
static bool grow(void *array, uint64_t n, uint64_t capacity, size_t bytes)
{
    void **place = array, *grown = tutti_sim_alloc(capacity, bytes);
    if (!grown) return false;
    if (n > 0) memcpy(grown, *place, n * bytes);
    tutti_free(*place);
    *place = grown;
    return true;
}

static enum tutti_status no_memory(const struct tutti_sim_program *program)
{
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u operations of %u ranks", program->n_ops, program->n_ranks);
}

enum tutti_status tutti_sim_program_add(struct tutti_sim_program *program, const struct tutti_sim_op *op, uint32_t *out)
{
    uint32_t n = program->n_ops;
    if (n + 1 >= TUTTI_SIM_MOST_OPS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a program has at most %u operations", TUTTI_SIM_MOST_OPS - 1);
    if (n + 1 >= program->op_capacity) { /* one more for the end */
        uint64_t capacity = 2 * program->op_capacity;
        if (!grow(&program->ops, n, capacity, sizeof(*program->ops))) return no_memory(program);
        program->op_capacity = capacity;
    }
    struct tutti_sim_op *added = &program->ops[n];
    *added = *op;
    added->rank = program->rank;
    added->before = 0;
    if (op->cpu >= program->n_cpus) program->n_cpus = op->cpu + 1u;
    if (op->nic >= program->n_nics) program->n_nics = op->nic + 1u;
    if (op->type == TUTTI_SIM_RECV && (op->peer == TUTTI_SIM_ANY || op->tag == TUTTI_SIM_ANY)) program->wild = true;
    program->first[program->rank + 1] = ++program->n_ops;
    *out = n;
    return TUTTI_OK;
}

enum tutti_status tutti_sim_program_after(struct tutti_sim_program *program, uint32_t from, uint32_t to, bool on_start)
{
    if (program->n_edges == program->edge_capacity) {
        uint64_t capacity = program->edge_capacity ? 2 * program->edge_capacity : 1024;
        if (program->n_edges >= UINT32_MAX || !grow(&program->raw, program->n_edges, capacity, sizeof(*program->raw)))
            return no_memory(program);
        program->edge_capacity = capacity;
    }
    program->raw[program->n_edges++] = (struct tutti_sim_edge){from, to | (on_start ? TUTTI_SIM_ON_START : 0)};
    program->ops[to].before++;
    return TUTTI_OK;
}

/* ---- the end ---- */

static enum tutti_status sort_edges(struct tutti_sim_program *program)
{
    uint64_t n = program->n_edges;
    program->edges = tutti_sim_alloc(n ? n : 1, sizeof(*program->edges));
    if (!program->edges) return no_memory(program);
    for (uint32_t i = 0; i <= program->n_ops; i++) program->ops[i].after = 0;
    for (uint64_t e = 0; e < n; e++) program->ops[program->raw[e].from + 1].after++;
    for (uint32_t i = 0; i < program->n_ops; i++) program->ops[i + 1].after += program->ops[i].after;
    for (uint64_t e = 0; e < n; e++) program->edges[program->ops[program->raw[e].from].after++] = program->raw[e].to;
    for (uint32_t i = program->n_ops; i > 0; i--) program->ops[i].after = program->ops[i - 1].after;
    program->ops[0].after = 0;
    tutti_free(program->raw);
    program->raw = NULL;
    return TUTTI_OK;
}

/* Sender, receiver and tag of a message: equal for those that meet. Where ranks stand for others, the sender is turned
 * to its class. */
struct meeting {
    uint32_t from, to, tag;
};

static struct meeting meeting_of(const struct tutti_sim_turn *turn, const struct tutti_sim_op *op)
{
    if (op->type == TUTTI_SIM_SEND) return (struct meeting){op->rank, op->peer, op->tag};
    if (turn->world == 0) return (struct meeting){op->peer, op->rank, op->tag};
    uint32_t group = op->peer / turn->classes, groups = turn->world / turn->classes;
    uint32_t back = turn->flips ? group : (groups - group) % groups;
    return (struct meeting){op->peer % turn->classes, back * turn->classes + op->rank, op->tag};
}

/* A table of meetings by hash; each slot has the number of an operation of it, whose list is the meeting's. */
static enum tutti_status give_lists(struct tutti_sim_program *program)
{
    uint64_t capacity = 64;
    while (capacity < 2 * (uint64_t)program->n_ops) capacity *= 2;
    uint32_t *table = tutti_sim_alloc(capacity, sizeof(*table));
    if (!table) return no_memory(program);
    memset(table, 0, capacity * sizeof(*table));
    for (uint32_t i = 0; i < program->n_ops; i++) {
        struct tutti_sim_op *op = &program->ops[i];
        if (op->type == TUTTI_SIM_CALC) continue;
        struct meeting m = meeting_of(&program->turn, op);
        uint64_t pair = m.from | (uint64_t)m.to << 32;
        uint64_t at = tutti_mix64(pair ^ tutti_mix64(m.tag + UINT64_C(1))) & (capacity - 1);
        for (;; at = (at + 1) & (capacity - 1)) {
            if (table[at] == 0) {
                table[at] = i + 1;
                op->list = program->n_lists++;
                break;
            }
            struct meeting other = meeting_of(&program->turn, &program->ops[table[at] - 1]);
            if (other.from == m.from && other.to == m.to && other.tag == m.tag) {
                op->list = program->ops[table[at] - 1].list;
                break;
            }
        }
    }
    tutti_free(table);
    return TUTTI_OK;
}

/* From now on the peer of an operation is a class. */
static enum tutti_status keep_peers(struct tutti_sim_program *program)
{
    program->peers = tutti_alloc_array(program->n_ops ? program->n_ops : 1, sizeof(*program->peers));
    if (!program->peers) return no_memory(program);
    for (uint32_t i = 0; i < program->n_ops; i++) {
        program->peers[i] = program->ops[i].peer;
        program->ops[i].peer %= program->turn.classes;
    }
    return TUTTI_OK;
}

enum tutti_status tutti_sim_program_seal(struct tutti_sim_program *program)
{
    TUTTI_TRY(sort_edges(program));
    if (!program->wild) TUTTI_TRY(give_lists(program));
    if (program->turn.world > 0) TUTTI_TRY(keep_peers(program));
    if (!program->wild) return TUTTI_OK;
    program->n_lists = program->n_ranks;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        struct tutti_sim_op *op = &program->ops[i];
        op->list = op->type == TUTTI_SIM_SEND ? op->peer : op->rank;
    }
    return TUTTI_OK;
}
