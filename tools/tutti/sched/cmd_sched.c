/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched`: list, draw and prove the algorithms of the library, or one of your own from a plug-in. */

#include "sched.h"

#include "algo/algo.h"
#include "base/config.h"

#include <stdio.h>
#include <string.h>

static const struct verb {
    const char *name, *usage, *help;
    int (*function)(int argc, char **argv);
} verbs[] = {
    {"list", "", "the algorithms: kinds, needs, radix, source", sched_list},
    {"show", "ALG --size N", "draw a schedule in the terminal, or as SVG", sched_show},
    {"check", "[ALG|FILE.so]", "prove algorithms for every rank at once", sched_check},
};

static void help(FILE *out)
{
    fprintf(out, "usage: tutti sched VERB [options]\n\nverbs:\n");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(verbs); i++) {
        fprintf(out, "  %-6s %-14s %s\n", verbs[i].name, verbs[i].usage, verbs[i].help);
    }
    fprintf(out, "\nALG is a name of the list, with a radix where it has one (tree:4), or the path of a plug-in that\n"
                 "exports `const struct tutti_algorithm tutti_algorithm` (see docs/schedules.md):\n"
                 "  cc -shared -fPIC -Iinclude mine.c -o mine.so && tutti sched check ./mine.so\n"
                 "\n'tutti sched VERB --help' tells the options of a verb.\n");
}

int tutti_cmd_sched(int argc, char **argv)
{
    const char *names[TUTTI_ARRAY_LEN(verbs)];
    tutti_algorithms_init();
    if (argc < 2) {
        help(stderr);
        return TUTTI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help(stdout);
        return TUTTI_EXIT_OK;
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(verbs); i++) {
        names[i] = verbs[i].name;
        if (strcmp(argv[1], verbs[i].name) == 0) return verbs[i].function(argc - 1, argv + 1);
    }
    const char *near = tutti_nearest(argv[1], names, TUTTI_ARRAY_LEN(verbs));
    fprintf(stderr, "tutti sched: there is no verb '%s'; ", argv[1]);
    if (near) fprintf(stderr, "did you mean 'tutti sched %s'?\n", near);
    if (!near) fprintf(stderr, "type 'tutti sched list', 'show' or 'check'.\n");
    return TUTTI_EXIT_USAGE;
}
