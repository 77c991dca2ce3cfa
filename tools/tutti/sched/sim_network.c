/* SPDX-License-Identifier: BSD-3-Clause */
/* The options that describe a network. */

#include "sim_network.h"

#include "base/config.h"
#include "model/machine.h"
#include "sim/noise.h"
#include "sim/topology.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sched_network sched_network;

/* ---- help ---- */

static void print_table(const struct tutti_sim_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct tutti_sim_parameter *row = &table->rows[i];
        char value[24], least[24], most[24], range[56] = "";
        if (isnan(row->fallback[table->column])) continue;
        tutti_sim_parameter_text(row, row->fallback[table->column], value, sizeof(value));
        tutti_sim_parameter_text(row, row->least, least, sizeof(least));
        tutti_sim_parameter_text(row, row->most, most, sizeof(most));
        if (row->unit < TUTTI_SIM_ROUTING) snprintf(range, sizeof(range), "%s to %s", least, most);
        printf("    %-14s %-9s %-14s %s%s\n", row->name, value, range, row->unit == TUTTI_SIM_RATE ? "GB/s " : "",
               row->help);
    }
}

bool sched_network_help(void)
{
    if (!sched_network.net || strcmp(sched_network.net, "help") != 0) return false;
    printf("Networks for --net. What each charges: docs/prediction.md.\n\n"
           "  ports      a port out and one in a rank, alpha + beta bytes a message: --latency, --bandwidth\n"
           "  loggops    LogGOPSim's rule: --latency, --overhead, --gap, --bandwidth, --byte-overhead, --eager\n\n"
           "Links that messages share, by parameters: NAME, NAME:PRESET or NAME:[PRESET,]PARAMETER=VALUE,...; such as\n"
           "dragonfly:aurora,seed=3 or fat_tree:hosts=32,taper=2,latency=1us. Default, range and meaning:\n");
    for (size_t f = 0; f < TUTTI_SIM_FABRICS; f++) {
        const struct tutti_sim_table table = {tutti_sim_fabrics[f].name, tutti_sim_parameters, tutti_sim_n_parameters,
                                              f};
        printf("\n  %-10s %s\n", tutti_sim_fabrics[f].name, tutti_sim_fabrics[f].help);
        print_table(&table);
        for (size_t i = 0; i < tutti_sim_n_presets; i++)
            if (strcmp(tutti_sim_presets[i].fabric, table.what) == 0)
                printf("    :%-13s %s\n                   (%s)\n", tutti_sim_presets[i].name, tutti_sim_presets[i].help,
                       tutti_sim_presets[i].text);
    }
    printf("\n  --noise, on any network\n");
    print_table(&tutti_sim_noise_table);
    printf("\n  --straggler RANK|FIRST-LAST|SHARE%%:..., on any network\n");
    print_table(&tutti_sim_straggler_table);
    return true;
}

/* ---- links that are shared ---- */

static bool damage(const struct tutti_args *spec, struct tutti_sim_topology *topology)
{
    const struct tutti_arg_list *slow = &sched_network.slow_links, *failed = &sched_network.failed_links;
    for (size_t i = 0; i < slow->n; i++) {
        const char *equal = strchr(slow->values[i], '=');
        char which[80], *end = NULL;
        double factor = equal ? strtod(equal + 1, &end) : 0;
        snprintf(which, sizeof(which), "%.*s", equal ? (int)(equal - slow->values[i]) : 0, slow->values[i]);
        if (!equal || end == equal + 1 || *end || !(factor > 1e-6 && factor < 1)) {
            tutti_args_fail(spec, "--slow-link %s: give links and their part of the rate, such as nic:1%%=0.5.",
                            slow->values[i]);
            return false;
        }
        if (tutti_sim_topology_damage(topology, which, factor, sched_network.seed + i) >= 0) continue;
        tutti_args_fail(spec, "--slow-link %s: %s.", slow->values[i], tutti_last_error()->text);
        return false;
    }
    for (size_t i = 0; i < failed->n; i++) {
        if (tutti_sim_topology_damage(topology, failed->values[i], 0, sched_network.seed + 1000 + i) >= 0) continue;
        tutti_args_fail(spec, "--fail-link %s: %s.", failed->values[i], tutti_last_error()->text);
        return false;
    }
    return true;
}

static bool flows_open(const struct tutti_args *spec, const struct tutti_sim_program *program, const char *levels,
                       struct tutti_sim_network **out)
{
    struct tutti_shape shape = {.size = program->n_ranks};
    struct tutti_sim_topology topology;
    if ((levels && tutti_shape_parse_levels(&shape, levels) < 0) ||
        tutti_sim_topology_open(sched_network.net, &shape, &topology) < 0) {
        tutti_args_fail(spec, "--net %s.", tutti_last_error()->text);
        return false;
    }
    if (damage(spec, &topology)) {
        if (tutti_sim_flows_open(&topology, program, out) >= 0) return true;
        tutti_args_fail(spec, "%s.", tutti_last_error()->text);
    }
    tutti_sim_topology_close(&topology);
    return false;
}

/* ---- rules ---- */

/* A positive number of at most nine digits before and six after the point, times `scale`; false: it is none. */
static bool number_parse(const char *text, double scale, double *out)
{
    char *end;
    *out = strtod(text, &end) * scale;
    return end != text && !*end && *out >= 0 && *out < 1e18;
}

static bool loggops_open(const struct tutti_args *spec, const struct tutti_sim_program *program, double gbs,
                         struct tutti_sim_network **out)
{
    struct tutti_sim_loggops rule = TUTTI_SIM_LOGGOPS_DEFAULT;
    double overhead = 0;
    if (sched_network.byte_overhead && !number_parse(sched_network.byte_overhead, TUTTI_SIM_PS_PER_NS, &overhead)) {
        tutti_args_fail(spec, "--byte-overhead %s: give nanoseconds a byte.", sched_network.byte_overhead);
        return false;
    }
    if (sched_network.latency_ns != TUTTI_NEVER) rule.L = sched_network.latency_ns * TUTTI_SIM_PS_PER_NS;
    if (sched_network.overhead_ns != TUTTI_NEVER) rule.o = sched_network.overhead_ns * TUTTI_SIM_PS_PER_NS;
    if (sched_network.gap_ns != TUTTI_NEVER) rule.g = sched_network.gap_ns * TUTTI_SIM_PS_PER_NS;
    if (gbs > 0) rule.G = (uint64_t)(1000 / gbs + 0.5);
    if (sched_network.eager != UINT64_MAX) rule.S = sched_network.eager;
    rule.O = (uint64_t)overhead;
    return tutti_sim_loggops_open(&rule, program, out) >= 0;
}

static bool ports_open(const struct tutti_sim_program *program, double gbs, struct tutti_sim_network **out)
{
    struct tutti_sim_ports rule = {.alpha_ps = 2000000, .beta_fs = 40000};
    if (sched_network.latency_ns != TUTTI_NEVER) rule.alpha_ps = sched_network.latency_ns * TUTTI_SIM_PS_PER_NS;
    if (gbs > 0) rule.beta_fs = (uint64_t)(1e6 / gbs + 0.5);
    return tutti_sim_ports_open(&rule, program, out) >= 0;
}

/* ---- copies and folds ---- */

static enum tutti_status machine_load(struct tutti_machine *out)
{
    const struct tutti_option tuning = {"tuning", sched_network.machine};
    struct tutti_config config;
    TUTTI_TRY(tutti_config_init(&config, &tuning, 1));
    enum tutti_status status = tutti_machine_load(&config, out);
    tutti_config_fini(&config);
    return status;
}

/* Femtoseconds a byte. */
static bool rate_parse(const struct tutti_args *spec, const char *name, const char *text, uint64_t *out)
{
    double gbs;
    if (!text) return true;
    if (!number_parse(text, 1, &gbs) || gbs < 1e-3) {
        tutti_args_fail(spec, "--%s %s: give GB/s, such as 50.", name, text);
        return false;
    }
    *out = (uint64_t)(1e6 / gbs + 0.5);
    return true;
}

bool sched_network_costs(const struct tutti_args *spec, uint64_t bytes, struct tutti_sim_work *work)
{
    struct tutti_machine machine;
    if (sched_network.machine && strcmp(sched_network.machine, "none") != 0) {
        if (machine_load(&machine) < 0) {
            tutti_args_fail(spec, "--machine %s: %s.", sched_network.machine, tutti_last_error()->text);
            return false;
        }
        double kib = (double)bytes / 1024, copy = (double)machine.memory_gbs, fold = (double)machine.fold_gbs;
        if (kib <= (double)machine.cache_kib) copy = (double)machine.mid_gbs;
        if (kib <= (double)machine.own_kib) copy = (double)machine.copy_gbs;
        work->copy_fs = (uint64_t)(1e6 / copy + 0.5);
        work->fold_fs = (uint64_t)(1e6 / (fold < copy ? fold : copy) + 0.5);
    }
    return rate_parse(spec, "copy", sched_network.copy, &work->copy_fs) &&
           rate_parse(spec, "fold", sched_network.fold, &work->fold_fs);
}

/* ---- all together ---- */

enum { PORTS = 1, LOGGOPS = 2, LINKS = 4 };

/* An option that the network would not look at is refused. */
static bool options_fit(const struct tutti_args *spec, int network)
{
    const struct sched_network *is = &sched_network;
    const struct {
        const char *name;
        bool given;
        int networks;
        const char *instead;
    } rows[] = {
        {"latency", is->latency_ns != TUTTI_NEVER, PORTS | LOGGOPS, "; here it is a parameter: latency=1us"},
        {"bandwidth", is->bandwidth != NULL, PORTS | LOGGOPS, "; here it is a parameter: bandwidth=25"},
        {"overhead", is->overhead_ns != TUTTI_NEVER, LOGGOPS, ""},
        {"byte-overhead", is->byte_overhead != NULL, LOGGOPS, ""},
        {"gap", is->gap_ns != TUTTI_NEVER, LOGGOPS, ""},
        {"eager", is->eager != UINT64_MAX, LOGGOPS, ""},
        {"slow-link", is->slow_links.n > 0, LINKS, ""},
        {"fail-link", is->failed_links.n > 0, LINKS, ""},
    };
    static const char *const names[] = {"", "ports", "loggops", "ports and loggops", "networks of links"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        if (!rows[i].given || rows[i].networks & network) continue;
        tutti_args_fail(spec, "--%s is for %s, not for --net %s%s.", rows[i].name, names[rows[i].networks], is->net,
                        network == LINKS ? rows[i].instead : "");
        return false;
    }
    return true;
}

static bool rule_open(const struct tutti_args *spec, const struct tutti_sim_program *program, const char *levels,
                      struct tutti_sim_network **out)
{
    const char *net = sched_network.net;
    bool links = tutti_sim_topology_named(net), loggops = strcmp(net, "loggops") == 0;
    double gbs = 0;
    if (!links && !loggops && strcmp(net, "ports") != 0) {
        tutti_args_fail(
            spec, "--net %s: there are ports, loggops, fat_tree, dragonfly, torus and rails; see --net help.", net);
        return false;
    }
    if (!options_fit(spec, links ? LINKS : loggops ? LOGGOPS : PORTS)) return false;
    if (sched_network.bandwidth && (!number_parse(sched_network.bandwidth, 1, &gbs) || gbs <= 0)) {
        tutti_args_fail(spec, "--bandwidth %s: give GB/s of a port, such as 25.", sched_network.bandwidth);
        return false;
    }
    if (links) return flows_open(spec, program, levels, out);
    return loggops ? loggops_open(spec, program, gbs, out) : ports_open(program, gbs, out);
}

/* Reads what disturbs the ranks. */
static bool noise_read(const struct tutti_args *spec, struct tutti_sim_noise *noise)
{
    const struct tutti_arg_list *some = &sched_network.stragglers;
    *noise = (struct tutti_sim_noise){.seed = sched_network.seed};
    if (sched_network.noise && tutti_sim_noise_set(noise, sched_network.noise) < 0) {
        tutti_args_fail(spec, "--noise %s: %s.", sched_network.noise, tutti_last_error()->text);
        return false;
    }
    for (size_t i = 0; i < some->n; i++) {
        if (tutti_sim_straggler_add(noise, some->values[i]) >= 0) continue;
        tutti_args_fail(spec, "--straggler %s: %s.", some->values[i], tutti_last_error()->text);
        return false;
    }
    return true;
}

bool sched_network_open(const struct tutti_args *spec, const struct tutti_sim_program *program, const char *levels,
                        struct tutti_sim_network **out)
{
    struct tutti_sim_noise noise;
    struct tutti_sim_network *inner;
    if (!noise_read(spec, &noise) || !rule_open(spec, program, levels, &inner)) return false;
    *out = inner;
    if (!tutti_sim_noise_any(&noise) || tutti_sim_noise_open(&noise, inner, out) >= 0) return true;
    tutti_args_fail(spec, "%s.", tutti_last_error()->text);
    inner->ops->close(inner);
    return false;
}

bool sched_network_alike(void)
{
    bool undisturbed = !sched_network.noise && sched_network.stragglers.n == 0;
    return undisturbed && (strcmp(sched_network.net, "ports") == 0 || strcmp(sched_network.net, "loggops") == 0);
}
