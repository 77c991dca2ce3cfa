/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti chaos`: its options. */
#include "chaos.h"

#include <stdlib.h>
#include <string.h>

/* "kill,stop": each name once. */
static bool read_kinds(const char *list, struct chaos_options *o)
{
    char copy[128], *rest = copy;

    if (strlen(list) >= sizeof copy) return false;
    memcpy(copy, list, strlen(list) + 1);
    for (char *name; (name = strsep(&rest, ",")) != NULL;) {
        enum chaos_kind kind = 0;
        while (kind < CHAOS_KINDS && strcmp(name, chaos_rows[kind].name) != 0) kind++;
        for (uint32_t i = 0; i < o->n_kinds; i++)
            if (o->kinds[i] == kind) kind = CHAOS_KINDS;
        if (kind == CHAOS_KINDS) return false;
        o->kinds[o->n_kinds++] = kind;
    }
    return true;
}

static int check(const struct tutti_args *spec, struct chaos_options *o, const char *kinds)
{
    if (!o->argv[0]) return tutti_args_fail(spec, "no program given");
    if (!read_kinds(kinds, o))
        return tutti_args_fail(
            spec,
            "--kinds: \"%s\" is no list of kill, stop, cut, rank, rank-stop, lighthouse, lighthouse-stop, "
            "lighthouse-cut, each once",
            kinds);
    if (o->n_groups == 0 || o->n_ranks == 0) return tutti_args_fail(spec, "--groups and --ranks are at least 1");
    if (o->lighthouse) o->n_lighthouses = 0;
    if (!o->lighthouse && o->n_lighthouses == 0) return tutti_args_fail(spec, "--lighthouses is at least 1");
    if (o->n_groups > CHAOS_MEMBERS || o->n_lighthouses > CHAOS_MEMBERS - o->n_groups)
        return tutti_args_fail(spec, "more than %d groups and lighthouses", CHAOS_MEMBERS);
    for (uint32_t i = 0; i < o->n_kinds; i++)
        if (o->lighthouse && (chaos_rows[o->kinds[i]].whom == A_LIGHTHOUSE || chaos_rows[o->kinds[i]].how == BY_CUT))
            return tutti_args_fail(spec, "--kinds: lighthouses that --lighthouse names can not be struck or cut off");
    if (o->program && (o->lighthouse || o->n_lighthouses > 1))
        return tutti_args_fail(spec, "--lighthouse-program goes with one lighthouse, and without --lighthouse");
    if (o->every_ns == 0) return tutti_args_fail(spec, "--every is more than 0");
    return -1;
}

int tutti_cmd_chaos(int argc, char **argv)
{
    const char *kinds = "kill";
    struct chaos_options o = {.n_groups = 2,
                              .n_lighthouses = 1,
                              .n_ranks = 1,
                              .seed = 1,
                              .calm_ns = 30 * TUTTI_NS_PER_S,
                              .chaos_ns = 120 * TUTTI_NS_PER_S,
                              .every_ns = 15 * TUTTI_NS_PER_S,
                              .hold_ns = 10 * TUTTI_NS_PER_S,
                              .pause_ns = TUTTI_NS_PER_S,
                              .min_replicas = "1"};
    const struct tutti_arg args[] = {
        {"groups", 'g', TUTTI_ARG_U32, &o.n_groups, "N", "replica groups: so many copies of the program (2)"},
        {"ranks", 'n', TUTTI_ARG_U32, &o.n_ranks, "N", "ranks of a group, started as by tutti run (1)"},
        {"lighthouses", 0, TUTTI_ARG_U32, &o.n_lighthouses, "N", "so many lighthouses are started (1)"},
        {"lighthouse", 0, TUTTI_ARG_TEXT, &o.lighthouse, "ADDRESSES", "use these, which run already"},
        {"lighthouse-program", 0, TUTTI_ARG_TEXT, &o.program, "PATH",
         "the lighthouses' program, which takes --bind and --min-replicas (tutti lighthouse)"},
        {"lighthouse-option", 0, TUTTI_ARG_LIST, &o.lighthouse_options, "WORD",
         "one more word for it; may be given again and again"},
        {"min-replicas", 0, TUTTI_ARG_TEXT, &o.min_replicas, "N", "of the lighthouses (1)"},
        {"kinds", 'k', TUTTI_ARG_TEXT, &kinds, "LIST",
         "blows: kill (SIGKILL), stop (SIGSTOP), cut (its network) of a group; rank, rank-stop of one of its ranks;\n"
         "lighthouse, lighthouse-stop, lighthouse-cut (kill)"},
        {"every", 0, TUTTI_ARG_TIME, &o.every_ns, "TIME", "from blow to blow, a quarter more or less (15s)"},
        {"for", 0, TUTTI_ARG_TIME, &o.chaos_ns, "TIME", "how long blows fall (120s)"},
        {"calm", 0, TUTTI_ARG_TIME, &o.calm_ns, "TIME", "how long the undisturbed rate is measured before (30s)"},
        {"hold", 0, TUTTI_ARG_TIME, &o.hold_ns, "TIME", "how long a stop or a cut lasts (10s)"},
        {"pause", 0, TUTTI_ARG_TIME, &o.pause_ns, "TIME", "until what was killed is started again (1s)"},
        {"seed", 0, TUTTI_ARG_SIZE, &o.seed, "N", "the same seed gives the same blows (1)"},
        {"json", 0, TUTTI_ARG_TEXT, &o.json, "FILE", "the report for programs; - : to stdout"},
        {"csv", 0, TUTTI_ARG_TEXT, &o.csv, "FILE", "each step and each blow, by time; - : to stdout"},
        {"svg", 0, TUTTI_ARG_TEXT, &o.svg, "FILE", "draw steps over time, with the blows; - : to stdout"},
    };
    const struct tutti_args spec = {
        .command = "tutti chaos",
        .usage = "[options] -- PROGRAM [ARGUMENT...]",
        .about =
            "Trains with replica groups that are killed, stopped and cut off, and tells what it cost: committed steps\n"
            "and samples beside the undisturbed rate, and how long all stood still after a blow. Each group's ranks\n"
            "find REPLICA_GROUP_ID, NUM_REPLICA_GROUPS, TORCHFT_LIGHTHOUSE and CHAOS_STEPS in their environment: the\n"
            "lighthouse shows how far they are, or they append \"TIME STEP SAMPLES GROUPS\" to that file for each "
            "step.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
        .stop_at_first = true,
    };
    int n_positional, status;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);

    if (result != TUTTI_ARGS_OK) return (int)result;
    o.argv = argv + argc - n_positional;
    status = check(&spec, &o, kinds);
    return status >= 0 ? status : chaos_run(&o);
}
