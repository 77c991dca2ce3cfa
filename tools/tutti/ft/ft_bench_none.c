/* SPDX-License-Identifier: BSD-3-Clause */
/* A build that has no lighthouse measures none. */
#include "ft.h"

#include "ft/serve/serve.h"

#include <stdio.h>

int ft_cmd_bench(int argc, char **argv)
{
    (void)argc, (void)argv;
    fprintf(stderr, "tutti ft bench: %s\n", tutti_serve_missing());
    return TUTTI_EXIT_WRONG;
}
