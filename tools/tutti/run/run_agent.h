/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_RUN_AGENT_H
#define TUTTI_TOOLS_RUN_AGENT_H

/* `tutti run --agent`, as a launcher's remote shell starts it; not for people. */

#define RUN_INPUT_BYTES 4096 /* of rank 0's input in one record */

int run_agent_main(void); /* the exit status */

#endif
