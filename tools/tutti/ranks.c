/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands that need ranks and were started without: they start themselves again, as the ranks of `tutti run`. */

#include "cmd.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tutti_inside_a_job(void)
{
    static const char *const names[] = {"RANK", "TUTTI_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(names); i++)
        if (getenv(names[i])) return true;
    return false;
}

/* `tutti run -n N --cores WHICH -- tutti COMMAND ...` in this process. */
int tutti_start_ranks(uint32_t n, const char *cores, int argc, char **argv)
{
    char self[4096], count[16], which[16];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) {
        fprintf(stderr, "tutti %s: /proc/self/exe can not be read; start it with tutti run -n %u -- tutti %s\n",
                argv[0], n, argv[0]);
        return TUTTI_EXIT_WRONG;
    }
    self[length] = '\0';
    snprintf(count, sizeof count, "%u", n);
    snprintf(which, sizeof which, "%s", cores);
    static char run_name[] = "run", dash_n[] = "-n", dash_cores[] = "--cores", dashes[] = "--";
    char *head[] = {run_name, dash_n, count, dash_cores, which, dashes, self};
    int n_head = (int)TUTTI_ARRAY_LEN(head);
    char **run_argv = calloc((size_t)(n_head + argc) + 1, sizeof *run_argv);
    if (!run_argv) return TUTTI_EXIT_WRONG;
    memcpy(run_argv, head, sizeof head);
    memcpy(run_argv + n_head, argv, (size_t)argc * sizeof *run_argv);
    int status = tutti_cmd_run(n_head + argc, run_argv);
    free(run_argv);
    return status;
}
