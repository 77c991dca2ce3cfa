/* SPDX-License-Identifier: BSD-3-Clause */

/* tutti info: what this tutti is, where it runs, what is missing and how to get it, and every option with its value and
 * where that came from. */

#include "info.h"
#include "tools/tutti/cmd.h"

#include <stdlib.h>

static void all_write(const struct info *info, bool json, bool config_only)
{
    if (json)
        info_json_write(stdout, info, config_only);
    else if (config_only)
        info_options_write(stdout, info);
    else
        info_page_write(stdout, info);
}

int tutti_cmd_info(int argc, char **argv)
{
    bool config_only = false, options = false, json = false, job = false, met = true, speaks = true;
    const struct tutti_arg args[] = {
        {"config", 0, TUTTI_ARG_FLAG, &config_only, NULL, "only the options, with what each is for"},
        {"options", 0, TUTTI_ARG_FLAG, &options, NULL, "the list of options as docs/options.md has it"},
        {"job", 0, TUTTI_ARG_FLAG, &job, NULL,
         "also of the job that this is started in: all its ranks meet, rank 0 speaks"},
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
        info_facts_gather(info);
        if (job && info->config) met = info_job_gather(info, &speaks);
        info_probes_gather(info);
    }
    if (speaks) all_write(info, json, config_only);
    const int status = info->config && met ? TUTTI_EXIT_OK : TUTTI_EXIT_WRONG;
    if (info->config) tutti_config_fini(&config);
    tutti_free(info);
    return status;
}
