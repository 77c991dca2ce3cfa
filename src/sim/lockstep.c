/* SPDX-License-Identifier: BSD-3-Clause */
/* A collective round by round. The rounds of one slot come from the algorithm on demand; a round becomes a program in
 * which each rank of each group has its messages, and nothing waits for anything else. */

#include "sim/lockstep.h"

#include <string.h>

#define MOST_MESSAGES (UINT64_C(1) << 22) /* in all rounds that are run */
enum { MOST_ROUNDS = 128, PROBED = 3 };

struct message {
    uint32_t from, to; /* slots of a group */
    uint32_t n;        /* chunks */
};

struct round {
    struct message *messages;
    uint32_t n, capacity;
    uint32_t n_chunks, n_rounds; /* the whole schedule's */
};

static enum tutti_status add_message(struct round *round, struct message message)
{
    if (round->n == round->capacity) {
        uint32_t capacity = round->capacity ? 2 * round->capacity : 256;
        struct message *grown = tutti_alloc_array(capacity, sizeof(*grown));
        if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a round of %u messages", capacity);
        if (round->n) memcpy(grown, round->messages, round->n * sizeof(*grown));
        tutti_free(round->messages);
        round->messages = grown;
        round->capacity = capacity;
    }
    round->messages[round->n++] = message;
    return TUTTI_OK;
}

/* What the slots of a group send in a round, slot by slot. */
static enum tutti_status round_find(const struct tutti_sim_groups *groups, uint32_t number, struct round *round)
{
    struct tutti_rounds steps = {0};
    enum tutti_status status = TUTTI_OK;
    round->n = 0;
    for (uint32_t slot = 0; slot < groups->size && status >= 0; slot++) {
        const struct tutti_shape shape = {.slot = slot, .size = groups->size};
        status = tutti_schedule_rounds(groups->algorithm, groups->kind, &shape, number, 1, &steps);
        if (status >= 0 && steps.defect[0]) status = tutti_fail(TUTTI_ERR_ARGUMENT, "%s", steps.defect);
        for (uint32_t i = 0; i < steps.n && status >= 0; i++)
            if (tutti_step_sends(&steps.steps[i]))
                status = add_message(round, (struct message){slot, steps.steps[i].peer, steps.steps[i].n});
        round->n_chunks = steps.n_chunks;
        round->n_rounds = steps.n_rounds;
        if (slot == 0 && (uint64_t)round->n * groups->size > MOST_MESSAGES)
            status = tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s has too many messages in a round", groups->algorithm->name);
    }
    tutti_rounds_fini(&steps);
    return status;
}

static bool alike(const struct round *a, const struct round *b)
{
    return a->n == b->n && memcmp(a->messages, b->messages, a->n * sizeof(*a->messages)) == 0;
}

/* ---- a round as a program ---- */

static uint32_t rank_of(const struct tutti_sim_groups *groups, uint32_t group, uint32_t slot)
{
    return group / groups->stride * groups->stride * groups->size + group % groups->stride + slot * groups->stride;
}

/* By slot: where its first message stands in a list that is sorted by one end; one more is the end. */
static void index_by(const struct round *round, uint32_t size, bool by_to, uint32_t *first, uint32_t *order)
{
    memset(first, 0, (size + 1) * sizeof(*first));
    for (uint32_t i = 0; i < round->n; i++) first[(by_to ? round->messages[i].to : round->messages[i].from) + 1]++;
    for (uint32_t s = 0; s < size; s++) first[s + 1] += first[s];
    for (uint32_t i = 0; i < round->n; i++) order[first[by_to ? round->messages[i].to : round->messages[i].from]++] = i;
    memmove(first + 1, first, size * sizeof(*first));
    first[0] = 0;
}

struct indexes {
    uint32_t *first[2], *order[2]; /* by sender, by receiver */
};

static enum tutti_status add_ends(const struct tutti_sim_groups *groups, const struct round *round,
                                  const struct indexes *by, double chunk, uint32_t rank,
                                  struct tutti_sim_program *program)
{
    uint32_t block = groups->size * groups->stride, within = rank % block, slot = within / groups->stride, op;
    uint32_t group = rank / block * groups->stride + within % groups->stride;
    tutti_sim_program_rank(program, rank);
    for (uint32_t end = 0; end < 2; end++) {
        for (uint32_t i = by->first[end][slot]; i < by->first[end][slot + 1]; i++) {
            const struct message *message = &round->messages[by->order[end][i]];
            uint64_t size = (uint64_t)(chunk * message->n + 0.5);
            const struct tutti_sim_op one = {.type = end == 0 ? TUTTI_SIM_SEND : TUTTI_SIM_RECV,
                                             .size = size > 0 ? size : 1,
                                             .peer = rank_of(groups, group, end == 0 ? message->to : message->from),
                                             .tag = by->order[end][i]};
            TUTTI_TRY(tutti_sim_program_add(program, &one, &op));
        }
    }
    return TUTTI_OK;
}

static enum tutti_status round_program(const struct tutti_sim_groups *groups, const struct round *round, uint64_t bytes,
                                       struct tutti_sim_program *out)
{
    struct indexes by = {{0}, {0}};
    uint32_t size = groups->size, n = round->n ? round->n : 1;
    bool full = true;
    TUTTI_TRY(tutti_sim_program_init(out, groups->n_ranks));
    for (uint32_t end = 0; end < 2; end++) {
        by.first[end] = tutti_alloc_array((size_t)size + 1, sizeof(uint32_t));
        by.order[end] = tutti_alloc_array(n, sizeof(uint32_t));
        full = full && by.first[end] && by.order[end];
        if (full) index_by(round, size, end == 1, by.first[end], by.order[end]);
    }
    enum tutti_status status = full ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a round of %u", n);
    for (uint32_t rank = 0; rank < groups->n_ranks && status >= 0; rank++)
        status = add_ends(groups, round, &by, (double)bytes / round->n_chunks, rank, out);
    if (status >= 0) status = tutti_sim_program_seal(out);
    if (status < 0) tutti_sim_program_fini(out);
    for (uint32_t end = 0; end < 2; end++) {
        tutti_free(by.first[end]);
        tutti_free(by.order[end]);
    }
    return status;
}

static enum tutti_status round_seconds(const struct tutti_sim_groups *groups, const struct round *round, uint64_t bytes,
                                       const struct tutti_sim_opener *opener, double *seconds)
{
    struct tutti_sim_program program;
    struct tutti_sim_network *network;
    struct tutti_sim_result result;
    if (round->n == 0) return TUTTI_OK;
    TUTTI_TRY(round_program(groups, round, bytes, &program));
    enum tutti_status status = opener->open(opener->argument, &program, &network);
    if (status >= 0) {
        status = tutti_sim_run(&program, network, &result);
        network->ops->close(network);
    }
    if (status >= 0) {
        *seconds += (double)result.end_ps / 1e12;
        tutti_sim_result_fini(&result);
    }
    tutti_sim_program_fini(&program);
    return status;
}

/* ---- all rounds ---- */

/* Many rounds are run only if they are alike, as those of a ring are; some are looked at. */
static enum tutti_status many_rounds(const struct tutti_sim_groups *groups, uint64_t bytes, const struct round *first,
                                     const struct tutti_sim_opener *opener, double *seconds)
{
    struct round other = {0};
    const uint32_t last = first->n_rounds - 1, probes[PROBED] = {1, last / 2, last};
    enum tutti_status status = TUTTI_OK;
    for (uint32_t i = 0; i < PROBED && status >= 0; i++) {
        status = round_find(groups, probes[i], &other);
        if (status >= 0 && !alike(first, &other))
            status = tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s has %u rounds, which are not alike", groups->algorithm->name,
                                first->n_rounds);
    }
    tutti_free(other.messages);
    if (status >= 0) status = round_seconds(groups, first, bytes, opener, seconds);
    *seconds *= first->n_rounds;
    return status;
}

enum tutti_status tutti_sim_lockstep(const struct tutti_sim_groups *groups, uint64_t bytes,
                                     const struct tutti_sim_opener *opener, double *seconds)
{
    struct round round = {0};
    const struct tutti_shape shape = {.size = groups->size};
    char reason[256];
    uint64_t n_messages = 0;
    double sum = 0;
    if (!tutti_algorithm_fits(groups->algorithm, groups->kind, &shape, reason, sizeof(reason)))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", reason);
    enum tutti_status status = round_find(groups, 0, &round);
    if (status >= 0 && round.n_rounds > MOST_ROUNDS) {
        status = many_rounds(groups, bytes, &round, opener, &sum);
    } else {
        for (uint32_t k = 0; k < round.n_rounds && status >= 0; k++) {
            if (k > 0) status = round_find(groups, k, &round);
            n_messages += (uint64_t)round.n * (groups->n_ranks / groups->size);
            if (status >= 0 && n_messages > MOST_MESSAGES)
                status = tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s has more than %llu messages", groups->algorithm->name,
                                    (unsigned long long)MOST_MESSAGES);
            if (status >= 0) status = round_seconds(groups, &round, bytes, opener, &sum);
        }
    }
    tutti_free(round.messages);
    if (status >= 0) *seconds = sum;
    return status;
}
