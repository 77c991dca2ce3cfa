/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_RUN_TASK_H
#define TUTTI_TOOLS_RUN_TASK_H

/* The launcher's addresses, and the task of a host's agent. False: a sentence was printed. */

#include "run_record.h"
#include "run_supervise.h"

/* text: all that agents shall try, by commas; bind: the first. */
bool run_addresses_find(const struct run_options *o, char *text, size_t capacity, char *bind, size_t bind_capacity);
/* Puts the task of host `index` into the queue. */
bool run_task_make(const struct supervisor *s, struct run_queue *queue, uint32_t index, const char *addresses);

#endif
