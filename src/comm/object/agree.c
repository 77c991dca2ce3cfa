/* SPDX-License-Identifier: BSD-3-Clause */
/* What collective creations (split, window) share: one record of each rank gathered to all, and at the end one verdict,
 * so that they succeed on all ranks or fail on all with the sentence of the one that could not. */
#include "comm/object/comm.h"

#include <stdio.h>

/* A rank that can not take part would keep the others waiting: they are told instead. */
static enum tutti_status run_or_tell(struct tutti_comm *comm, struct tutti_request *request, uint64_t *sequence)
{
    request->comm = comm;
    request->internal = true;
    enum tutti_status status = tutti_request_run(request, sequence);
    if (status < 0) tutti_request_give_up(request, NULL, 0);
    return status;
}

enum tutti_status tutti_agree_gather(struct tutti_comm *comm, const char *name, const void *mine, size_t bytes,
                                     void *all, uint64_t *sequence)
{
    struct tutti_request request = {.name = name,
                                    .kind = TUTTI_ALL_GATHER,
                                    .send = mine,
                                    .recv = all,
                                    .count = bytes,
                                    .dtype = TUTTI_UINT8,
                                    .comm = comm};
    if (all) return run_or_tell(comm, &request, sequence);
    tutti_request_fail(&request, TUTTI_ERR_MEMORY, "out of memory for %d records", (int)comm->size);
    tutti_request_give_up(&request, NULL, 0);
    return TUTTI_ERR_MEMORY;
}

enum tutti_status tutti_agree_verdict(struct tutti_comm *comm, const char *name, enum tutti_status mine)
{
    struct tutti_error own = *tutti_last_error();
    /* The worst status wins, of equal ones the lowest rank's. */
    int64_t verdict = (int64_t)(mine < 0 ? mine : 0) * ((int64_t)1 << 32) + (mine < 0 ? comm->rank : 0);
    struct tutti_request request = {.name = name,
                                    .kind = TUTTI_ALL_REDUCE,
                                    .send = &verdict,
                                    .recv = &verdict,
                                    .count = 1,
                                    .dtype = TUTTI_INT64,
                                    .op = TUTTI_MIN,
                                    .comm = comm};
    enum tutti_status status = run_or_tell(comm, &request, NULL);
    if (mine < 0) return tutti_fail_record(&own);
    if (status < 0 || verdict >= 0) return status;
    int32_t rank = (int32_t)(uint32_t)(uint64_t)verdict;
    enum tutti_status theirs = (enum tutti_status)((verdict - rank) / ((int64_t)1 << 32));
    return tutti_request_fail(&request, theirs, "rank %d failed: %s", (int)rank, tutti_status_text(theirs));
}
