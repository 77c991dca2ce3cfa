/* SPDX-License-Identifier: BSD-3-Clause */
/* The command `tutti`: a table of subcommands, and what to say when none of them was meant. */

#include "cmd.h"

#include "base/config.h"

#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name, *help;
    int (*function)(int argc, char **argv);
} commands[] = {
    {"run", "start N copies of a program on this host as the ranks of one job", tutti_cmd_run},
    {"bench", "measure collectives, and check their results", tutti_cmd_bench},
    {"info", "version, features, topology, options and what is missing", tutti_cmd_info},
    {"tune", "measure this host, so that the fastest algorithms are chosen", tutti_cmd_tune},
    {"sched", "list, draw and prove the algorithms", tutti_cmd_sched},
};

static void help(FILE *out)
{
    fprintf(out, "usage: tutti COMMAND [options]\n\ncommands:\n");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(commands); i++) {
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    }
    fprintf(out, "\n'tutti COMMAND --help' tells the options of a command; 'tutti --version' the version.\n");
}

static int unknown(const char *text)
{
    const char *names[TUTTI_ARRAY_LEN(commands)];
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(commands); i++) names[i] = commands[i].name;
    const char *near = tutti_nearest(text, names, TUTTI_ARRAY_LEN(commands));
    fprintf(stderr, "tutti: there is no command '%s'", text);
    if (near) fprintf(stderr, "; did you mean 'tutti %s'?\n", near);
    if (!near) fprintf(stderr, "; 'tutti --help' lists them.\n");
    return TUTTI_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return TUTTI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        help(stdout);
        return TUTTI_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tutti %s\n", TUTTI_VERSION_TEXT);
        return TUTTI_EXIT_OK;
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].function(argc - 1, argv + 1);
    }
    return unknown(argv[1]);
}
