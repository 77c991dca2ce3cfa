/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched`: list, draw and prove the algorithms of the library, or one of your own from a plug-in. */

#include "sched.h"

#include "algo/algo.h"

int tutti_cmd_sched(int argc, char **argv)
{
    static const struct tutti_command verbs[] = {
        {"list", "               ", "the algorithms: kinds, needs, radix, source", sched_list},
        {"show", "ALG --size N   ", "draw a schedule in the terminal, or as SVG", sched_show},
        {"check", "[ALG|FILE.so]  ", "prove algorithms for every rank at once", sched_check},
    };
    static const struct tutti_commands commands = {
        "tutti sched", verbs, TUTTI_ARRAY_LEN(verbs),
        "ALG is a name of the list, with a radix where it has one (tree:4), or the path of a plug-in that\n"
        "exports `const struct tutti_algorithm tutti_algorithm` (see docs/schedules.md):\n"
        "  cc -shared -fPIC -Iinclude mine.c -o mine.so && tutti sched check ./mine.so\n"
        "\n'tutti sched VERB --help' tells the options of a verb.\n"};
    tutti_algorithms_init();
    return tutti_commands_run(&commands, argc, argv);
}
