/* SPDX-License-Identifier: BSD-3-Clause */
/* GOAL text from anybody: it is refused with a line, or it is a program, which runs to its end or is refused. */
#include "fuzz.h"

#include "sim/network.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const struct tutti_sim_loggops rule = TUTTI_SIM_LOGGOPS_DEFAULT;
    struct tutti_sim_program program;
    struct tutti_sim_network *network;
    struct tutti_sim_result result;
    if (n > 1 << 16 || tutti_sim_goal_read("fuzz", (const char *)bytes, n, &program) < 0) return 0;
    if (tutti_sim_loggops_open(&rule, &program, &network) >= 0) {
        if (tutti_sim_run(&program, network, &result) >= 0) tutti_free(result.rank_end_ps);
        network->ops->close(network);
    }
    tutti_sim_program_fini(&program);
    return 0;
}
