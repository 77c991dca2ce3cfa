/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti ft`: what people ask of lighthouses. */
#include "ft.h"

#include "base/config.h"
#include "ft/serve/serve.h"

#include <stdio.h>

static int wrong(void)
{
    fprintf(stderr, "tutti ft: %s\n", tutti_last_error()->text);
    return TUTTI_EXIT_WRONG;
}

static int print_token(const char *secret)
{
    char token[TUTTI_SERVE_TOKEN];

    if (!secret || !secret[0]) {
        fprintf(stderr, "tutti ft token: there is no secret: set TUTTI_SECRET_FILE as the lighthouse has it\n");
        return TUTTI_EXIT_WRONG;
    }
    if (tutti_serve_token(secret, token) < 0) return wrong();
    printf("%s\n", token);
    return TUTTI_EXIT_OK;
}

static int cmd_token(int argc, char **argv)
{
    const struct tutti_args spec = {
        .command = "tutti ft token",
        .usage = "",
        .about =
            "Prints the token that a lighthouse's page asks for before it kills a group, and from other hosts before\n"
            "it shows anything. It is made of the secret (TUTTI_SECRET, TUTTI_SECRET_FILE), and does not tell it.",
        .no_positional = true,
    };
    struct tutti_config config;
    int n_positional;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);

    if (result != TUTTI_ARGS_OK) return (int)result;
    if (tutti_config_init(&config, NULL, 0) < 0) return wrong();
    const int status = print_token(config.text[TUTTI_OPT_secret]);
    tutti_config_fini(&config);
    return status;
}

int tutti_cmd_ft(int argc, char **argv)
{
    static const struct tutti_command list[] = {
        {"status", "ADDRESS", "what a lighthouse knows: groups, steps, the quorum", ft_cmd_status},
        {"manager", "--replica-id NAME", "the manager of a group as a process of its own", ft_cmd_manager},
        {"bench", NULL, "what a step costs a lighthouse", ft_cmd_bench},
        {"token", NULL, "the token that a lighthouse's page asks for", cmd_token},
    };
    static const struct tutti_commands commands = {"tutti ft", list, sizeof list / sizeof list[0], ""};

    return tutti_commands_run(&commands, argc, argv);
}
