/* SPDX-License-Identifier: BSD-3-Clause */
/* Times of collectives, by rounds that are simulated at two sizes. Between and beyond these the time is a straight
 * line, since each round's is one. */

#include "job_times.h"
#include "sim_network.h"

#include "algo/algo.h"
#include "base/config.h"
#include "sim/lockstep.h"
#include "sim/topology.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREE "three_level:"
enum { SMALL = 1 << 12, LARGE = 1 << 26, MOST_FLAT = 64 };

/* What one algorithm takes for one kind of call in groups of one form. */
struct line {
    char net[3 * TUTTI_JOB_TEXT]; /* and which links are slow, and have failed */
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    uint32_t size, stride, ranks_per_node;
    bool fits;
    double small_s, large_s;
};

struct job_times {
    const struct tutti_args *spec;
    const struct tutti_job *job;
    struct line *lines;
    uint32_t n, capacity, runs;
    uint32_t ranks_per_node; /* the call's at hand */
};

/* ---- the network ---- */

/* "ports:latency=2us,bandwidth=25": what the options of that name are elsewhere. */
static enum tutti_status ports_parse(char *text)
{
    for (char *rest, *item = strtok_r(text, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(item, '=');
        if (value) *value++ = '\0';
        if (value && strcmp(item, "bandwidth") == 0)
            sched_network.bandwidth = value;
        else if (!value || strcmp(item, "latency") != 0 || !tutti_parse_time(value, &sched_network.latency_ns))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "net = ports: '%.40s': it takes latency=2us and bandwidth=25 (GB/s)",
                              item);
    }
    return TUTTI_OK;
}

static enum tutti_status network_open(void *argument, const struct tutti_sim_program *program,
                                      struct tutti_sim_network **out)
{
    struct job_times *times = argument;
    static char net[TUTTI_JOB_TEXT + 16]; /* sched_network points into it */
    char levels[32];
    uint32_t per = times->ranks_per_node;
    sched_network = SCHED_NETWORK_DEFAULT;
    snprintf(net, sizeof(net), "%s", times->job->net);
    sched_network.net = net;
    if (times->job->slow_links[0])
        sched_network.slow_links = (struct tutti_arg_list){.values = {times->job->slow_links}, .n = 1};
    if (times->job->failed_links[0])
        sched_network.failed_links = (struct tutti_arg_list){.values = {times->job->failed_links}, .n = 1};
    if (strncmp(net, "ports:", 6) == 0) {
        net[5] = '\0';
        TUTTI_TRY(ports_parse(net + 6));
    }
    snprintf(levels, sizeof(levels), "%ux%u", per, program->n_ranks / per);
    if (tutti_sim_topology_named(net)) /* a preset may have other nodes */
        tutti_append(net, sizeof(net), "%cranks=%u", strchr(net, ':') ? ',' : ':', per);
    return sched_network_open(times->spec, program, levels, out)
               ? TUTTI_OK
               : tutti_fail(TUTTI_ERR_ARGUMENT, "there is no network '%.60s'", times->job->net);
}

/* ---- lines ---- */

static struct line *line_find(struct job_times *times, const struct line *want)
{
    for (uint32_t i = 0; i < times->n; i++) {
        struct line *line = &times->lines[i];
        if (line->algorithm == want->algorithm && line->kind == want->kind && line->size == want->size &&
            line->stride == want->stride && line->ranks_per_node == want->ranks_per_node &&
            strcmp(line->net, want->net) == 0)
            return line;
    }
    return NULL;
}

static enum tutti_status line_run(struct job_times *times, struct line *line)
{
    const struct tutti_sim_opener opener = {network_open, times};
    uint32_t block = line->size * line->stride, per = line->ranks_per_node;
    struct tutti_sim_groups groups = {line->algorithm, line->kind, line->size, line->stride, 0};
    /* Whole nodes, and whole groups. */
    groups.n_ranks = block;
    while (groups.n_ranks % per != 0) groups.n_ranks += block;
    times->ranks_per_node = per;
    times->runs++;
    enum tutti_status status = tutti_sim_lockstep(&groups, SMALL, &opener, &line->small_s);
    if (status == TUTTI_ERR_UNSUPPORTED) return TUTTI_OK; /* it does not fit */
    if (status >= 0) status = tutti_sim_lockstep(&groups, LARGE, &opener, &line->large_s);
    line->fits = status >= 0;
    return status;
}

/* INFINITY: the algorithm does not fit. */
static enum tutti_status line_seconds(struct job_times *times, const struct tutti_algorithm *algorithm,
                                      const struct tutti_job_call *call, double *out)
{
    struct line want = {.algorithm = algorithm,
                        .kind = call->kind,
                        .size = call->size,
                        .stride = call->stride,
                        .ranks_per_node = call->ranks_per_node};
    snprintf(want.net, sizeof(want.net), "%s;%s;%s", times->job->net, times->job->slow_links, times->job->failed_links);
    const struct line *line = line_find(times, &want);
    if (!line) {
        TUTTI_TRY(line_run(times, &want));
        if (times->n == times->capacity) {
            uint32_t capacity = times->capacity ? 2 * times->capacity : 64;
            struct line *grown = realloc(times->lines, capacity * sizeof(*grown));
            if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for times");
            times->lines = grown;
            times->capacity = capacity;
        }
        times->lines[times->n] = want;
        line = &times->lines[times->n++];
    }
    double slope = (line->large_s - line->small_s) / (LARGE - SMALL), base = line->small_s - slope * SMALL;
    *out = line->fits ? (base > 0 ? base : 0) + slope * (double)call->bytes : INFINITY;
    return TUTTI_OK;
}

/* ---- calls ---- */

static enum tutti_status fastest_seconds(struct job_times *times, const struct tutti_job_call *call, double *out)
{
    static const char *const names[] = {"halving_doubling", "ring", "direct", "tree"};
    double best = INFINITY;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(names); i++) {
        double seconds = INFINITY;
        uint32_t radix;
        if (strcmp(names[i], "direct") == 0 && call->size > MOST_FLAT) continue;
        /* With a kind of its own for each: a tree is for what the others do not offer. */
        if (strcmp(names[i], "tree") == 0 && best < INFINITY) continue;
        TUTTI_TRY(line_seconds(times, tutti_algorithm_find(names[i], &radix), call, &seconds));
        if (seconds < best) best = seconds;
    }
    if (best == INFINITY)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no algorithm for %s in groups of %u", tutti_kind_name(call->kind),
                          call->size);
    *out = best;
    return TUTTI_OK;
}

/* Within nodes, then among ranks of equal place in `group` nodes (0: in all), then among those of equal place in all
 * groups, each with its part of the bytes; and back. */
static enum tutti_status levels_seconds(struct job_times *times, const struct tutti_job_call *call, uint32_t group,
                                        double *out)
{
    const uint32_t per = call->ranks_per_node, nodes = call->size / per;
    const uint32_t sizes[] = {per, group ? group : nodes, group ? nodes / group : 1};
    double seconds = 0, one = 0;
    struct tutti_job_call level = *call;
    for (size_t l = 0; l < TUTTI_ARRAY_LEN(sizes); level.stride *= sizes[l], l++) {
        bool last = l + 1 == TUTTI_ARRAY_LEN(sizes) || sizes[l + 1] == 1;
        level.size = sizes[l];
        if (level.size < 2) continue;
        for (int way = 0; way < (last ? 1 : 2); way++) {
            enum tutti_kind kind = way == 0 ? TUTTI_REDUCE_SCATTER : TUTTI_ALL_GATHER;
            level.kind = last ? call->kind : kind;
            if (!last && call->kind != TUTTI_ALL_REDUCE && call->kind != kind) continue;
            TUTTI_TRY(fastest_seconds(times, &level, &one));
            seconds += one;
        }
        level.bytes = (level.bytes + sizes[l] - 1) / sizes[l];
    }
    *out = seconds;
    return TUTTI_OK;
}

/* Nodes of a level between nodes and world: as the job says by three_level:N, else the best of some. */
static enum tutti_status best_levels(struct job_times *times, const struct tutti_job_call *call, double *out)
{
    static const uint32_t groups[] = {0, 16, 64};
    const char *name = times->job->algorithm;
    const uint32_t nodes = call->size / call->ranks_per_node;
    double best = INFINITY;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(groups); i++) {
        uint32_t group =
            strncmp(name, THREE, strlen(THREE)) == 0 ? (uint32_t)strtoul(name + strlen(THREE), NULL, 10) : groups[i];
        double seconds;
        if (group > 0 && (nodes % group != 0 || nodes / group < 2 || group < 2)) group = 0;
        if (group > 0 && strcmp(name, "two_level") == 0) continue;
        TUTTI_TRY(levels_seconds(times, call, group, &seconds));
        if (seconds < best) best = seconds;
    }
    *out = best;
    return TUTTI_OK;
}

static enum tutti_status call_seconds(void *argument, const struct tutti_job_call *call, double *out)
{
    struct job_times *times = argument;
    const char *name = times->job->algorithm;
    uint32_t per = call->ranks_per_node, radix;
    bool automatic = strcmp(name, "auto") == 0;
    bool levels = strcmp(name, "two_level") == 0 || strncmp(name, THREE, strlen(THREE)) == 0;
    bool many = call->kind == TUTTI_ALL_REDUCE || call->kind == TUTTI_ALL_GATHER || call->kind == TUTTI_REDUCE_SCATTER;
    if ((automatic || levels) && many && per > 1 && call->stride == 1 && call->size > per && call->size % per == 0)
        return best_levels(times, call, out);
    if (automatic || levels || !many) return fastest_seconds(times, call, out);
    const struct tutti_algorithm *algorithm = tutti_algorithm_find(name, &radix);
    if (!algorithm)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "algorithm = %.60s: 'tutti sched list' has the names, and there are "
                          "auto, two_level, three_level:NODES",
                          name);
    TUTTI_TRY(line_seconds(times, algorithm, call, out));
    if (*out == INFINITY)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "algorithm = %s: it can not do %s in groups of %u, or not round by "
                          "round",
                          name, tutti_kind_name(call->kind), call->size);
    return TUTTI_OK;
}

struct job_times *job_times_open(const struct tutti_args *spec)
{
    struct job_times *times = tutti_alloc(sizeof(*times));
    if (times) times->spec = spec;
    return times;
}

void job_times_close(struct job_times *times)
{
    if (times) free(times->lines);
    tutti_free(times);
}

void job_times_use(struct job_times *times, const struct tutti_job *job, struct tutti_job_times *out)
{
    times->job = job;
    *out = (struct tutti_job_times){call_seconds, times};
}

uint32_t job_times_runs(const struct job_times *times)
{
    return times->runs;
}
