/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_SIM_PROGRAM_H
#define TUTTI_TOOLS_SIM_PROGRAM_H

/* From a call to the program that is simulated: of all ranks, or of few that stand for all. */

#include "sim_report.h"

struct sim_call {
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    const struct tutti_shape *shape;
    const struct tutti_sim_work *work;
    bool full;       /* all ranks, whatever it takes */
    uint32_t rounds; /* only the first ones; 0: as many as there are, or as fit */
};
/* Makes the program, and tells the report how; false: report->refused says why not. */
bool sim_program_open(const struct sim_call *call, struct sim_report *report, struct tutti_sim_program *out);

#endif
