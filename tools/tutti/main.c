/* SPDX-License-Identifier: BSD-3-Clause */
/* The command `tutti`: a table of subcommands. */

#include "cmd.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const struct tutti_command list[] = {
        {"run", NULL, "start N copies of a program as the ranks of one job, here or on several hosts", tutti_cmd_run},
        {"bench", NULL, "measure collectives, and check their results", tutti_cmd_bench},
        {"info", NULL, "version, features, topology, options and what is missing", tutti_cmd_info},
        {"doctor", NULL, "say why a running job hangs or is slow, and which rank is to blame", tutti_cmd_doctor},
        {"lighthouse", NULL, "say which replica groups take part in the next step (torchft's lighthouse)",
         tutti_cmd_lighthouse},
        {"ft", NULL, "what people ask of lighthouses", tutti_cmd_ft},
        {"chaos", NULL, "kill, stop and cut the groups of a fault-tolerant job, and tell what it cost",
         tutti_cmd_chaos},
        {"prove", NULL, "try on this machine's GPUs what can not be proved without them", tutti_cmd_prove},
        {"tune", NULL, "measure this host, so that the fastest algorithms are chosen", tutti_cmd_tune},
        {"sched", NULL, "list, draw and prove the algorithms", tutti_cmd_sched},
    };
    static const struct tutti_commands commands = {
        "tutti", list, TUTTI_ARRAY_LEN(list),
        "'tutti COMMAND --help' tells the options of a command; 'tutti --version' the version.\n"};
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("tutti %s\n", TUTTI_VERSION_TEXT);
        return TUTTI_EXIT_OK;
    }
    return tutti_commands_run(&commands, argc, argv);
}
