/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_FT_H
#define TUTTI_TOOLS_FT_H

/* `tutti ft`: what people ask of lighthouses, and a manager as a process. Begin with cmd_ft.c, the table. Private to
 * this folder. */

#include "tools/tutti/cmd.h"

int ft_cmd_bench(int argc, char **argv);   /* ft_bench.c; ft_bench_none.c in a build that has no lighthouse */
int ft_cmd_manager(int argc, char **argv); /* ft_manager.c */
int ft_cmd_status(int argc, char **argv);  /* ft_status.c */

#endif
