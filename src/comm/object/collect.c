/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/object/comm.h"

static _Thread_local enum tutti_collecting collecting;
_Atomic uint32_t tutti_n_collecting;

enum tutti_collecting tutti_collects(void)
{
    return collecting;
}

void tutti_collect(enum tutti_collecting what)
{
    if (!collecting && what) tutti_n_collecting++;
    if (collecting && !what) tutti_n_collecting--;
    collecting = what;
}

enum tutti_status tutti_call_alone(const char *call)
{
    if (collecting == TUTTI_COLLECTS_NOTHING) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s can not be called between %s", call,
                      collecting == TUTTI_COLLECTS_GROUP ? "group_start and group_end"
                                                         : "persistent_record and persistent_end");
}
