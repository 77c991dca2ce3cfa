/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of simulated runs: as sentences, as a table that compares, as JSON. */

#include "sim_report.h"

#include "tools/tutti/json.h"

#include <string.h>

void sim_report_network(struct sim_report *report, const struct tutti_sim_network *network)
{
    struct tutti_sim_link link;
    uint32_t best = UINT32_MAX;
    if (!report->goal)
        report->bounds = tutti_sim_bounds_of(report->kind, report->n_ranks, report->bytes, &network->limits);
    for (uint32_t i = 0; network->ops->link && network->ops->link(network, i, &link, NULL, 0); i++) {
        if (best != UINT32_MAX && link.busy_ps <= report->link.busy_ps) continue;
        best = i;
        report->link = link;
    }
    if (best != UINT32_MAX)
        network->ops->link(network, best, &report->link, report->link_name, sizeof(report->link_name));
}

void sim_report_extrapolate(struct sim_report *report, const struct tutti_sim_program *program)
{
    struct tutti_sim_result *result = &report->result;
    uint32_t half = report->sampled / 2;
    uint64_t first = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        uint32_t part = report->by_slices ? program->ops[i].tag % program->n_slices : program->ops[i].place;
        if (part < half && result->moments[i].end_ps > first) first = result->moments[i].end_ps;
    }
    double more = (double)(report->sampled_of - report->sampled), second = (double)(result->end_ps - first);
    double factor = (double)report->sampled_of / report->sampled;
    result->end_ps += (uint64_t)(second / (report->sampled - half) * more);
    result->n_messages = (uint64_t)((double)result->n_messages * factor);
    result->n_bytes = (uint64_t)((double)result->n_bytes * factor);
    if (report->by_slices)
        report->n_slices = report->sampled_of;
    else
        report->n_steps = (uint32_t)(report->n_steps * factor);
    report->link.busy_ps = (uint64_t)((double)report->link.busy_ps * factor);
    report->link.bytes *= factor;
    if (result->end_ps < report->bounds.most_ps) result->end_ps = report->bounds.most_ps;
    if (result->end_ps < report->link.busy_ps) result->end_ps = report->link.busy_ps;
}

static const char *parts_of(const struct sim_report *report)
{
    return report->by_slices ? "slices" : "rounds";
}

/* The first and the last hops of the path, for the program is gone when they are shown. */
static void keep_hops(struct sim_report *report, const struct tutti_sim_program *program,
                      const struct tutti_sim_network *network)
{
    const struct tutti_sim_critical *critical = &report->critical;
    uint32_t most = TUTTI_ARRAY_LEN(report->hops), n = critical->n < most ? critical->n : most;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i < n / 2 ? i : critical->n - n + i, op = critical->ops[at];
        struct tutti_sim_span span = tutti_sim_span_of(program, network, &report->result, op);
        struct sim_hop *hop = &report->hops[report->n_hops++];
        *hop = (struct sim_hop){program->ops[op], span.begin_ps, span.end_ps};
        hop->op.rank = critical->ranks[at];
        if (program->peers) hop->op.peer = tutti_sim_turned(&program->turn, program->peers[op], hop->op.rank);
    }
}

enum tutti_status sim_report_moments(struct sim_report *report, const struct tutti_sim_program *program,
                                     const struct tutti_sim_network *network)
{
    TUTTI_TRY(tutti_sim_idle(program, network, &report->result, &report->idle));
    TUTTI_TRY(tutti_sim_critical_find(program, network, &report->result, &report->critical));
    keep_hops(report, program, network);
    return TUTTI_OK;
}

void sim_report_fini(struct sim_report *report)
{
    tutti_sim_critical_fini(&report->critical);
    tutti_sim_result_fini(&report->result);
}

/* ---- numbers ---- */

static double us_of(uint64_t ps)
{
    return (double)ps / 1e6;
}

/* A time in the unit that suits it. */
static const char *time_text(uint64_t ps, char out[32])
{
    static const struct {
        double ps;
        const char *name;
    } units[] = {{1e12, "s"}, {1e9, "ms"}, {1e6, "us"}, {1e3, "ns"}};
    size_t i = 0;
    while (i + 1 < TUTTI_ARRAY_LEN(units) && (double)ps < units[i].ps) i++;
    snprintf(out, 32, "%.3f %s", (double)ps / units[i].ps, units[i].name);
    return out;
}

static const char *bytes_text(double bytes, char out[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t i = 0;
    for (; bytes >= 1024 && i + 1 < TUTTI_ARRAY_LEN(units); i++) bytes /= 1024;
    snprintf(out, 32, i == 0 || bytes == (double)(uint64_t)bytes ? "%.0f %s" : "%.2f %s", bytes, units[i]);
    return out;
}

/* GB/s of the buffer; 0 where nothing took time. */
static double algorithm_bandwidth(const struct sim_report *report)
{
    return report->result.end_ps > 0 ? (double)report->bytes * 1e3 / (double)report->result.end_ps : 0;
}

static double bus_bandwidth(const struct sim_report *report)
{
    return algorithm_bandwidth(report) * tutti_kind_bus_factor(tutti_kind_info(report->kind), report->n_ranks);
}

static double share_of(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

static bool is_estimate(const struct sim_report *report)
{
    return report->sampled > 0 || (report->classes > 0 && (report->symmetry.rounded || report->result.n_unclear > 0));
}

/* ---- sentences ---- */

static void show_bound(const struct sim_report *report, FILE *out)
{
    const struct tutti_sim_bounds *bounds = &report->bounds;
    char text[32], from[64] = "latency";
    if (bounds->most_ps == 0) return;
    if (bounds->ranks == 1) snprintf(from, sizeof(from), "latency and the port of a rank");
    if (bounds->ranks > 1) snprintf(from, sizeof(from), "latency and what %u ranks share", bounds->ranks);
    fprintf(out, "  lower bound     %s, by %s; the run takes %.2f times that\n", time_text(bounds->most_ps, text), from,
            (double)report->result.end_ps / (double)bounds->most_ps);
}

static void show_head(const struct sim_report *report, FILE *out)
{
    char text[32];
    if (report->goal)
        fprintf(out, "%s: %u rank%s", report->name, report->n_ranks, tutti_plural(report->n_ranks));
    else
        fprintf(out, "%s %s of %s on %u rank%s", report->name, tutti_kind_name(report->kind),
                bytes_text((double)report->bytes, text), report->n_ranks, tutti_plural(report->n_ranks));
    if (report->levels) fprintf(out, " (%s)", report->levels);
    fprintf(out, ", network %s\n", report->network);
}

/* "rank 3 sends 64 KiB to rank 4" */
static void show_hop(const struct sim_report *report, const struct sim_hop *hop, FILE *out)
{
    char text[32];
    fprintf(out, "    %14.3f %14.3f  rank %u", us_of(hop->begin_ps), us_of(hop->end_ps), hop->op.rank);
    if (hop->op.type == TUTTI_SIM_CALC)
        fprintf(out, " computes");
    else
        fprintf(out, " %s %s %s rank %u", hop->op.type == TUTTI_SIM_SEND ? "sends" : "receives",
                bytes_text((double)hop->op.size, text), hop->op.type == TUTTI_SIM_SEND ? "to" : "from", hop->op.peer);
    fprintf(out, ", %s %u\n", report->goal ? "line" : "round", hop->op.place);
}

static void show_critical(const struct sim_report *report, FILE *out)
{
    const struct tutti_sim_critical *critical = &report->critical;
    uint64_t whole = critical->latency_ps + critical->bandwidth_ps + critical->computing_ps; /* a sample's own time */
    if (critical->n == 0) return;
    fprintf(out,
            "  critical path   %.1f %% latency, %.1f %% bandwidth, %.1f %% computing: %u messages, over %u rank%s\n",
            100 * share_of(critical->latency_ps, whole), 100 * share_of(critical->bandwidth_ps, whole),
            100 * share_of(critical->computing_ps, whole), critical->n_messages, critical->n_ranks,
            critical->n_ranks == 1 ? "" : "s");
    fprintf(out, "    %14s %14s\n", "from us", "to us");
    for (uint32_t i = 0; i < report->n_hops; i++) {
        if (i == report->n_hops / 2 && critical->n > report->n_hops)
            fprintf(out, "    %14s %14s  %u more operations\n", "...", "...", critical->n - report->n_hops);
        show_hop(report, &report->hops[i], out);
    }
}

static void show_symmetry(const struct sim_report *report, FILE *out)
{
    const struct tutti_sim_symmetry *symmetry = &report->symmetry;
    if (report->sampled > 0)
        fprintf(
            out,
            "  estimate        the first %u of %u %s of all ranks were simulated; the rest is taken to go on as the\n"
            "                  second half of them%s%s\n",
            report->sampled, report->sampled_of, parts_of(report), report->all[0] ? ". " : "", report->all);
    if (report->classes == 0) return;
    fprintf(out,
            "  symmetry        %u rank%s for all %u, whose steps are the same but for the peers: ", report->classes,
            report->classes == 1 ? " stands" : "s stand", report->n_ranks);
    if (symmetry->n_compared >= report->n_ranks)
        fprintf(out, "exact, for all were compared\n");
    else
        fprintf(out, "%u of them, drawn by chance, were compared; exact if the others are as they are\n",
                symmetry->n_compared);
    if (symmetry->rounded)
        fprintf(
            out,
            "                  an estimate: blocks are counted as %llu bytes, so that their chunks are equally large\n",
            (unsigned long long)symmetry->block_bytes);
    if (report->result.n_unclear > 0)
        fprintf(out,
                "                  an estimate: %llu pairs of events meet at one time, in an order that may differ by "
                "rank\n",
                (unsigned long long)report->result.n_unclear);
}

void sim_report_show(const struct sim_report *report, FILE *out)
{
    const struct tutti_sim_result *result = &report->result;
    char text[32];
    show_head(report, out);
    fprintf(out, "  time            %s%.3f us", is_estimate(report) ? "about " : "", us_of(result->end_ps));
    fprintf(out, result->end_ps >= 1000000000 ? " (%s)\n" : "\n", time_text(result->end_ps, text));
    if (!report->goal && report->bytes > 0)
        fprintf(out, "  bandwidth       bus %.3f GB/s, algorithm %.3f GB/s\n", bus_bandwidth(report),
                algorithm_bandwidth(report));
    show_bound(report, out);
    if (!report->goal)
        fprintf(out, "  steps           %u of a rank, in %u rounds; each in %u slice%s\n", report->n_steps,
                report->n_rounds, report->n_slices, report->n_slices == 1 ? "" : "s");
    fprintf(out, "  messages        %llu, %s together\n", (unsigned long long)result->n_messages,
            bytes_text((double)result->n_bytes, text));
    if (report->link_name[0])
        fprintf(out, "  busiest link    %s: %.1f %% of the time, %s\n", report->link_name,
                100 * share_of(report->link.busy_ps, result->end_ps), bytes_text(report->link.bytes, text));
    if (report->idle >= 0) fprintf(out, "  idle            %.1f %% of a rank's time\n", 100 * report->idle);
    show_critical(report, out);
    for (uint32_t r = 0; report->goal && r < report->n_ranks && report->n_ranks <= 16; r++)
        fprintf(out, "  rank %-10u ends at %.3f us\n", r, us_of(result->rank_end_ps[r]));
    show_symmetry(report, out);
    fprintf(out,
            "  simulated       %llu events in %.3f s, %.3f of a core: %.1f million a second; %u operations made in "
            "%.3f s\n",
            (unsigned long long)result->n_events, report->seconds[1], report->cpu_seconds,
            report->cpu_seconds > 0 ? (double)result->n_events / report->cpu_seconds / 1e6 : 0, report->n_ops,
            report->seconds[0]);
}

/* ---- the table ---- */

void sim_report_compare(const struct sim_report *reports, size_t n, FILE *out)
{
    char text[32], name[64];
    uint64_t first = reports[0].refused[0] ? 0 : reports[0].result.end_ps;
    fprintf(out, "%s of %s on %u rank%s", tutti_kind_name(reports[0].kind), bytes_text((double)reports[0].bytes, text),
            reports[0].n_ranks, tutti_plural(reports[0].n_ranks));
    if (reports[0].levels) fprintf(out, " (%s)", reports[0].levels);
    fprintf(out, ", network %s", reports[0].network);
    if (reports[0].bounds.most_ps > 0) fprintf(out, "; lower bound %s", time_text(reports[0].bounds.most_ps, text));
    fprintf(out, "\n\n  %-22s %14s %8s %8s %10s %9s %12s %10s\n", "algorithm", "time", "ratio", "bound", "bus GB/s",
            "steps", "messages", "busiest");
    for (size_t i = 0; i < n; i++) {
        const struct sim_report *report = &reports[i];
        if (report->refused[0]) {
            fprintf(out, "  %-22s %14s  %s\n", report->name, "-", report->refused);
            continue;
        }
        snprintf(name, sizeof(name), "%.40s%s", report->name, is_estimate(report) ? " (estimate)" : "");
        fprintf(out, "  %-22s %14s %8.3f %8.2f %10.3f %9u %12llu %9.1f%%\n", name,
                time_text(report->result.end_ps, text), share_of(report->result.end_ps, first),
                share_of(report->result.end_ps, report->bounds.most_ps), bus_bandwidth(report), report->n_steps,
                (unsigned long long)report->result.n_messages,
                100 * share_of(report->link.busy_ps, report->result.end_ps));
    }
    fprintf(out, "\n  ratio: to the first; bound: time over the lower bound; busiest: the link that is busy most\n");
}

/* ---- JSON ---- */

static void json_bounds(const struct sim_report *report, FILE *out)
{
    fprintf(out, ",\"bound_us\":%.6f,\"bound_latency_us\":%.6f,\"bound_ranks\":%u", us_of(report->bounds.most_ps),
            us_of(report->bounds.latency_ps), report->bounds.ranks);
}

static void json_critical(const struct sim_report *report, FILE *out)
{
    const struct tutti_sim_critical *critical = &report->critical;
    if (report->idle >= 0) fprintf(out, ",\"idle\":%.6f", report->idle);
    if (critical->n == 0) return;
    fprintf(out,
            ",\"critical_path\":{\"latency_us\":%.6f,\"bandwidth_us\":%.6f,\"computing_us\":%.6f,\"messages\":%u,"
            "\"ranks\":%u,\"operations\":%u,\"hops\":[",
            us_of(critical->latency_ps), us_of(critical->bandwidth_ps), us_of(critical->computing_ps),
            critical->n_messages, critical->n_ranks, critical->n);
    for (uint32_t i = 0; i < report->n_hops; i++) {
        static const char *const verbs[] = {"send", "recv", "calc"};
        const struct sim_hop *hop = &report->hops[i];
        fprintf(out, "%s{\"op\":\"%s\",\"rank\":%u,\"%s\":%u,\"begin_us\":%.6f,\"end_us\":%.6f", i ? "," : "",
                verbs[hop->op.type], hop->op.rank, report->goal ? "line" : "round", hop->op.place, us_of(hop->begin_ps),
                us_of(hop->end_ps));
        if (hop->op.type != TUTTI_SIM_CALC)
            fprintf(out, ",\"peer\":%u,\"bytes\":%llu", hop->op.peer, (unsigned long long)hop->op.size);
        fprintf(out, "}");
    }
    fprintf(out, "]}");
}

static void json_one(const struct sim_report *report, FILE *out)
{
    const struct tutti_sim_result *result = &report->result;
    fprintf(out, "{\"program\":");
    tutti_json_string(out, report->name);
    if (report->refused[0]) {
        fprintf(out, ",\"refused\":");
        tutti_json_string(out, report->refused);
        fprintf(out, "}");
        return;
    }
    fprintf(out, ",\"network\":\"%s\",\"ranks\":%u", report->network, report->n_ranks);
    if (report->levels) fprintf(out, ",\"levels\":"), tutti_json_string(out, report->levels);
    fprintf(out, ",\"time_us\":%.6f", us_of(result->end_ps));
    if (!report->goal) {
        fprintf(out, ",\"kind\":\"%s\",\"buffer_bytes\":%llu,\"busbw\":%.6f,\"algbw\":%.6f",
                tutti_kind_name(report->kind), (unsigned long long)report->bytes, bus_bandwidth(report),
                algorithm_bandwidth(report));
        fprintf(out, ",\"steps\":%u,\"rounds\":%u,\"slices\":%u", report->n_steps, report->n_rounds, report->n_slices);
        json_bounds(report, out);
    }
    fprintf(out, ",\"operations\":%u,\"messages\":%llu,\"bytes\":%llu", report->n_ops,
            (unsigned long long)result->n_messages, (unsigned long long)result->n_bytes);
    if (report->link_name[0]) {
        fprintf(out, ",\"busiest_link\":{\"name\":");
        tutti_json_string(out, report->link_name);
        fprintf(out, ",\"busy\":%.6f,\"bytes\":%.0f,\"bandwidth\":%.0f}",
                share_of(report->link.busy_ps, result->end_ps), report->link.bytes, report->link.bandwidth);
    }
    json_critical(report, out);
    if (report->sampled > 0) fprintf(out, ",\"sampled_%s\":%u", parts_of(report), report->sampled);
    if (report->classes > 0)
        fprintf(out, ",\"symmetry\":{\"classes\":%u,\"compared\":%u,\"rounded\":%s,\"unclear\":%llu}", report->classes,
                report->symmetry.n_compared, report->symmetry.rounded ? "true" : "false",
                (unsigned long long)result->n_unclear);
    fprintf(out, ",\"estimate\":%s", is_estimate(report) ? "true" : "false");
    fprintf(out, ",\"events\":%llu,\"seconds\":%.3f,\"cpu_seconds\":%.3f,\"seconds_to_make\":%.3f}",
            (unsigned long long)result->n_events, report->seconds[1], report->cpu_seconds, report->seconds[0]);
}

void sim_report_json(const struct sim_report *reports, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        fputs(n == 1 ? "" : i == 0 ? "[" : ",\n", out);
        json_one(&reports[i], out);
    }
    fputs(n == 1 ? "\n" : "]\n", out);
}
