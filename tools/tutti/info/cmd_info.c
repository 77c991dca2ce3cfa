/* SPDX-License-Identifier: BSD-3-Clause */

/* tutti info: what this tutti is, where it runs, what is missing and how to get it, and every option with its value and
 * where that came from. */

#include "info.h"
#include "info_cluster.h"
#include "tools/tutti/cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void all_write(const struct info *info, bool json, bool config_only)
{
    if (json)
        info_json_write(stdout, info, config_only);
    else if (config_only)
        info_options_write(stdout, info);
    else
        info_page_write(stdout, info);
}

static bool svg_save(const char *name, const struct cluster *cluster)
{
    FILE *out = fopen(name, "we");
    if (out) cluster_svg_write(out, cluster);
    const bool ok = out && fclose(out) == 0;
    if (!ok) fprintf(stderr, "tutti info: %s: %s\n", name, strerror(errno));
    return ok;
}

/* Hosts, ranks and links of the job; the exit status. */
static int cluster_tell(bool json, const char *svg)
{
    struct cluster cluster;
    bool speaks = false, ok = cluster_gather(&cluster, &speaks);
    if (ok && speaks) {
        if (json)
            cluster_json_write(stdout, &cluster);
        else
            cluster_page_write(stdout, &cluster);
        if (svg) ok = svg_save(svg, &cluster);
    }
    cluster_fini(&cluster);
    return ok ? TUTTI_EXIT_OK : TUTTI_EXIT_WRONG;
}

int tutti_cmd_info(int argc, char **argv)
{
    bool config_only = false, verbose = false, options = false, json = false, job = false, cluster = false, met = true,
         speaks = true;
    const char *svg = NULL;
    const struct tutti_arg args[] = {
        {"config", 0, TUTTI_ARG_FLAG, &config_only, NULL, "only the options, with what each is for"},
        {"verbose", 'v', TUTTI_ARG_FLAG, &verbose, NULL, "also what is not proved of Intel GPUs, point by point"},
        {"options", 0, TUTTI_ARG_FLAG, &options, NULL, "the list of options as docs/options.md has it"},
        {"job", 0, TUTTI_ARG_FLAG, &job, NULL,
         "also of the job that this is started in: all its ranks meet, rank 0 speaks"},
        {"cluster", 0, TUTTI_ARG_FLAG, &cluster, NULL,
         "of the job that this is started in: hosts, ranks, devices, and its links, measured"},
        {"svg", 0, TUTTI_ARG_TEXT, &svg, "FILE", "with --cluster: also draw the links as a heat map"},
        {"json", 0, TUTTI_ARG_FLAG, &json, NULL, "one JSON object instead of the page"},
    };
    const struct tutti_args spec = {
        .command = "tutti info",
        .usage = "[options]",
        .no_positional = true,
        .about =
            "Says what this tutti is and can do, what the host looks like, what is missing and how to get it, and\n"
            "every option with its value and origin. Exit status 1 if the configuration is\n"
            "wrong, or the ranks do not meet.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
    };
    int n_positional;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (options) {
        info_options_document(stdout);
        return TUTTI_EXIT_OK;
    }
    if (svg && !cluster) return tutti_args_fail(&spec, "--svg goes with --cluster");
    if (cluster) return cluster_tell(json, svg);
    struct tutti_config config;
    struct info *info = tutti_alloc(sizeof *info);
    if (!info) {
        fprintf(stderr, "tutti info: out of memory\n");
        return TUTTI_EXIT_WRONG;
    }
    if (tutti_config_init(&config, NULL, 0) == TUTTI_OK)
        info->config = &config;
    else
        snprintf(info->config_error, sizeof info->config_error, "%s", tutti_last_error()->text);
    if (!config_only) {
        info_facts_gather(info, verbose);
        if (job && info->config) met = info_job_gather(info, &speaks);
        info_probes_gather(info);
    }
    if (speaks) all_write(info, json, config_only);
    const int status = info->config && met ? TUTTI_EXIT_OK : TUTTI_EXIT_WRONG;
    if (info->config) tutti_config_fini(&config);
    tutti_free(info);
    return status;
}
