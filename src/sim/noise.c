/* SPDX-License-Identifier: BSD-3-Clause */
/* Noise and stragglers. Time is cut into periods; in each one a rank is held once, from a point and for a time that are
 * hashes of seed, rank and period: so whether a rank is held is known at any time without a history. */

#include "sim/noise.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PS 9e18      /* that a calc takes */
#define MOST_PERIODS 4096 /* those that are looked at for one calc; what is longer is lengthened by the mean */

#define ROW(where, field, value, from, to, unit_name, text)                                                            \
    {.name = #field,                                                                                                   \
     .help = text,                                                                                                     \
     .fallback = {value},                                                                                              \
     .least = from,                                                                                                    \
     .most = to,                                                                                                       \
     .unit = TUTTI_SIM_##unit_name,                                                                                    \
     .offset = offsetof(struct where, is.field) - offsetof(struct where, is)},
#define NOISE_ROW(...) ROW(tutti_sim_noise, __VA_ARGS__)
#define STRAGGLER_ROW(...) ROW(tutti_sim_stragglers, __VA_ARGS__)
static const struct tutti_sim_parameter noise_rows[] = {TUTTI_SIM_NOISE(NOISE_ROW)};
static const struct tutti_sim_parameter straggler_rows[] = {TUTTI_SIM_STRAGGLER(STRAGGLER_ROW)};
const struct tutti_sim_table tutti_sim_noise_table = {"noise", noise_rows, TUTTI_ARRAY_LEN(noise_rows), 0};
const struct tutti_sim_table tutti_sim_straggler_table = {"straggler", straggler_rows, TUTTI_ARRAY_LEN(straggler_rows),
                                                          0};

/* ---- samples ---- */

struct tutti_sim_sample tutti_sim_sample_of(double share, uint64_t n, uint64_t seed)
{
    uint64_t needed = (uint64_t)(share * (double)n + 0.5);
    return (struct tutti_sim_sample){tutti_mix64(seed), needed > 0 || n == 0 ? needed : 1, n};
}

/* D. Knuth: Seminumerical Algorithms, algorithm S of section 3.4.2. */
bool tutti_sim_sample_takes(struct tutti_sim_sample *sample)
{
    bool takes = sample->left > 0 && tutti_random64(&sample->random) % sample->left < sample->needed;
    if (sample->left > 0) sample->left--;
    if (takes) sample->needed--;
    return takes;
}

/* ---- texts ---- */

enum tutti_status tutti_sim_noise_set(struct tutti_sim_noise *noise, const char *text)
{
    uint64_t set = 0;
    tutti_sim_parameters_default(&tutti_sim_noise_table, &noise->is);
    return tutti_sim_parameters_set(&tutti_sim_noise_table, text, &noise->is, &set);
}

static bool which_parse(const char *text, struct tutti_sim_stragglers *out)
{
    char *end, *second;
    if (*text < '0' || *text > '9') return false;
    out->share = strtod(text, &end) / 100;
    if (strncmp(end, "%:", 2) == 0) return out->share > 0 && out->share <= 1;
    unsigned long first = strtoul(text, &end, 10), last = first;
    if (*end == '-' && end[1] >= '0' && end[1] <= '9') {
        last = strtoul(end + 1, &second, 10);
        end = second;
    }
    out->share = 0;
    out->first = (uint32_t)first;
    out->last = (uint32_t)last;
    return *end == ':' && first <= last && last < TUTTI_SIM_MOST_RANKS;
}

enum tutti_status tutti_sim_straggler_add(struct tutti_sim_noise *noise, const char *text)
{
    struct tutti_sim_stragglers added = {0};
    uint64_t set = 0;
    if (noise->n_stragglers == TUTTI_SIM_MOST_STRAGGLERS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "more than %d descriptions of stragglers", TUTTI_SIM_MOST_STRAGGLERS);
    if (!which_parse(text, &added))
        return tutti_fail(
            TUTTI_ERR_ARGUMENT,
            "straggler '%.40s': give a rank (7), ranks (8-15) or a share of all (1%%), then what it is, as "
            "in 1%%:late=1ms,slow=1.5",
            text);
    tutti_sim_parameters_default(&tutti_sim_straggler_table, &added.is);
    TUTTI_TRY(tutti_sim_parameters_set(&tutti_sim_straggler_table, strchr(text, ':') + 1, &added.is, &set));
    noise->stragglers[noise->n_stragglers++] = added;
    return TUTTI_OK;
}

bool tutti_sim_noise_any(const struct tutti_sim_noise *noise)
{
    return noise->is.every > 0 || noise->n_stragglers > 0;
}

/* ---- what happens to a rank ---- */

struct noisy {
    struct tutti_sim_network network;
    struct tutti_sim_network_ops ops; /* with what the inner network has */
    struct tutti_sim_network *inner;
    uint64_t every, length, seed; /* every 0: no noise */
    bool together;
    uint64_t *late, *last; /* by rank: when it begins; when it saw what arrived last */
    float *slow;           /* by rank */
};

static struct noisy *noisy_of(const struct tutti_sim_network *network)
{
    return (struct noisy *)(uintptr_t)network;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A logarithm of a number in (0, 1], good to a few parts in 10^9, equal on all machines. */
static double log_of(double x)
{
    int shift = 0;
    while (x < 0.75) {
        x *= 2;
        shift++;
    }
    double z = (x - 1) / (x + 1), square = z * z, term = z, sum = 0;
    for (int k = 1; k < 24; k += 2, term *= square) sum += term / k;
    return 2 * sum - shift * 0.69314718055994530942;
}

struct hold {
    uint64_t begin, end;
};

static struct hold hold_of(const struct noisy *net, uint32_t rank, uint64_t period)
{
    uint64_t random = tutti_mix64(net->seed ^ tutti_mix64(period + (net->together ? 0 : (uint64_t)rank << 40)));
    double where = (double)(tutti_random64(&random) >> 11) / 9007199254740992.0;
    double size = -log_of((double)((tutti_random64(&random) >> 11) + 1) / 9007199254740992.0) * (double)net->length;
    uint64_t begin = period * net->every, offset = (uint64_t)(where * (double)net->every), most = net->every - offset;
    uint64_t length = size < (double)most ? (uint64_t)size : most;
    return (struct hold){begin + offset, begin + offset + length};
}

/* The first time from `time` on at which the rank is not held. */
static uint64_t free_from(const struct noisy *net, uint32_t rank, uint64_t time)
{
    time = later(time, net->late[rank]);
    if (net->every == 0 || net->length == 0) return time;
    struct hold hold = hold_of(net, rank, time / net->every);
    return hold.begin <= time && time < hold.end ? hold.end : time;
}

/* How long computing takes that begins at `time`, when the rank is free. */
static uint64_t stretched(const struct noisy *net, uint32_t rank, uint64_t time, uint64_t work)
{
    uint64_t begin = time;
    double slowly = (double)work * (double)net->slow[rank];
    work = slowly < MOST_PS ? (uint64_t)slowly : (uint64_t)MOST_PS;
    if (net->every == 0 || net->length == 0) return work;
    for (uint32_t n = 0; n < MOST_PERIODS; n++) {
        uint64_t period = time / net->every, end = (period + 1) * net->every;
        struct hold hold = hold_of(net, rank, period);
        uint64_t held = hold.begin >= time ? hold.end - hold.begin : 0, room = end - time - held;
        uint64_t before = hold.begin >= time ? hold.begin - time : room;
        if (work <= before) return time + work - begin;
        if (work <= room) return time + held + work - begin;
        work -= room;
        time = end;
    }
    double rest = (double)net->every / (double)(net->every - (net->length < net->every ? net->length : net->every - 1));
    return time - begin + (uint64_t)((double)work * rest);
}

/* ---- the network ---- */

static uint64_t noisy_ready(const struct tutti_sim_network *network, const struct tutti_sim_op *op, uint64_t now)
{
    const struct noisy *net = noisy_of(network);
    return free_from(net, op->rank, net->inner->ops->ready(net->inner, op, now));
}

static struct tutti_sim_begun noisy_begin(struct tutti_sim_network *network, const struct tutti_sim_op *op,
                                          uint64_t now)
{
    struct noisy *net = noisy_of(network);
    if (op->type != TUTTI_SIM_CALC) {
        struct tutti_sim_begun begun = net->inner->ops->begin(net->inner, op, now);
        network->status = net->inner->status;
        return begun;
    }
    struct tutti_sim_op longer = *op;
    longer.size = stretched(net, op->rank, now, op->size);
    return net->inner->ops->begin(net->inner, &longer, now);
}

static uint64_t noisy_ready_in(const struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    const struct noisy *net = noisy_of(network);
    return net->inner->ops->ready_in(net->inner, send, now);
}

static uint64_t noisy_take_in(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    struct noisy *net = noisy_of(network);
    uint64_t seen = free_from(net, send->peer, net->inner->ops->take_in(net->inner, send, now));
    net->last[send->peer] = later(net->last[send->peer], seen);
    return seen;
}

static void noisy_meet(struct tutti_sim_network *network, const struct tutti_sim_op *send, uint64_t now)
{
    struct noisy *net = noisy_of(network);
    net->inner->ops->meet(net->inner, send, now);
}

static uint64_t noisy_next(struct tutti_sim_network *network, uint64_t now)
{
    struct noisy *net = noisy_of(network);
    return net->inner->ops->next(net->inner, now);
}

static bool noisy_over(struct tutti_sim_network *network, uint64_t now, uint32_t *send, uint64_t *arrives)
{
    struct noisy *net = noisy_of(network);
    return net->inner->ops->over(net->inner, now, send, arrives);
}

static bool noisy_link(const struct tutti_sim_network *network, uint32_t i, struct tutti_sim_link *out, char *name,
                       size_t capacity)
{
    const struct noisy *net = noisy_of(network);
    return net->inner->ops->link(net->inner, i, out, name, capacity);
}

static uint64_t noisy_end(const struct tutti_sim_network *network, uint32_t rank)
{
    const struct noisy *net = noisy_of(network);
    return later(net->inner->ops->end(net->inner, rank), net->last[rank]);
}

static void noisy_free(struct noisy *net)
{
    tutti_free(net->late);
    tutti_free(net->slow);
    tutti_free(net->last);
    tutti_free(net);
}

static void noisy_close(struct tutti_sim_network *network)
{
    struct noisy *net = noisy_of(network);
    net->inner->ops->close(net->inner);
    noisy_free(net);
}

static enum tutti_status delay(struct noisy *net, const struct tutti_sim_stragglers *some, uint64_t seed)
{
    uint32_t n = net->network.program->n_ranks;
    struct tutti_sim_sample sample = tutti_sim_sample_of(some->share, n, seed);
    if (some->share == 0 && some->last >= n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "straggler %u: there are %u ranks", some->last, n);
    for (uint32_t rank = 0; rank < n; rank++) {
        bool is = some->share > 0 ? tutti_sim_sample_takes(&sample) : rank >= some->first && rank <= some->last;
        if (!is) continue;
        net->late[rank] += (uint64_t)(some->is.late * 1e12 + 0.5);
        net->slow[rank] *= (float)some->is.slow;
    }
    return TUTTI_OK;
}

static const struct tutti_sim_network_ops noisy_ops = {
    .ready = noisy_ready,
    .begin = noisy_begin,
    .ready_in = noisy_ready_in,
    .take_in = noisy_take_in,
    .meet = noisy_meet,
    .next = noisy_next,
    .over = noisy_over,
    .link = noisy_link,
    .end = noisy_end,
    .close = noisy_close,
};

enum tutti_status tutti_sim_noise_open(const struct tutti_sim_noise *noise, struct tutti_sim_network *inner,
                                       struct tutti_sim_network **out)
{
    struct noisy *net = tutti_alloc(sizeof(*net));
    if (!net) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a network");
    uint32_t n = inner->program->n_ranks;
    enum tutti_status status = TUTTI_OK;
    *net = (struct noisy){.network = *inner, .ops = noisy_ops, .inner = inner, .seed = tutti_mix64(noise->seed)};
    net->network.ops = &net->ops;
    net->ops.name = inner->ops->name;
    net->ops.help = inner->ops->help;
    net->network.n_gates = net->network.gates_together = 0; /* what waits at one may be free at different times */
    if (!inner->ops->next) net->ops.next = NULL;
    if (!inner->ops->over) net->ops.over = NULL;
    if (!inner->ops->link) net->ops.link = NULL;
    net->every = (uint64_t)(noise->is.every * 1e12 + 0.5);
    net->length = (uint64_t)(noise->is.length * 1e12 + 0.5);
    net->together = noise->is.together > 0;
    net->late = tutti_alloc_array(n, sizeof(*net->late));
    net->last = tutti_alloc_array(n, sizeof(*net->last));
    net->slow = tutti_alloc_array(n, sizeof(*net->slow));
    if (!net->late || !net->last || !net->slow)
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a network of %u ranks", n);
    for (uint32_t rank = 0; rank < n && status >= 0; rank++) net->slow[rank] = 1;
    for (uint32_t i = 0; i < noise->n_stragglers && status >= 0; i++)
        status = delay(net, &noise->stragglers[i], noise->seed + i);
    if (status < 0)
        noisy_free(net);
    else
        *out = &net->network;
    return status;
}
