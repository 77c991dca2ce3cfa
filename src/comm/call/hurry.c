/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of the communicator's back ends: on the caller's thread for as long as that is worth while, then by the engine.
 */
#include "comm/call/call.h"

static enum tutti_status hand_over(struct tutti_comm *comm, struct tutti_backend_op *op, bool helper,
                                   struct tutti_work **work)
{
    return tutti_engine_run(comm->team, &op->runner, TUTTI_RUNNER_BYTES, &op->call.info, helper, work);
}

enum tutti_status tutti_backend_start(const struct tutti_backend_way *way, struct tutti_backend_op *op,
                                      struct tutti_work **work)
{
    struct tutti_comm *comm = way->comm;
    const struct tutti_backend_ops *ops = way->backend->ops;
    enum tutti_advance got = TUTTI_RUN_BLOCKED;

    op->call.seq = tutti_team_next(comm->team);
    TUTTI_TRY(ops->begin(way->backend, op));
    if (way->hurry && ops->run_inline && tutti_team_quiet(comm->team) && !tutti_team_failed(comm->team))
        got = ops->run_inline(op, comm->team);
    *work = NULL;
    if (got == TUTTI_RUN_DONE)
        tutti_team_count(comm->team);
    else
        TUTTI_TRY(hand_over(comm, op, way->helper, work));
    atomic_store_explicit(&comm->sequence, op->call.seq, memory_order_relaxed);
    return TUTTI_OK;
}

enum tutti_status tutti_backend_resume(struct tutti_comm *comm, struct tutti_backend_op *op, struct tutti_work **work)
{
    op->call.seq = tutti_team_next(comm->team);
    comm->backend->ops->resume(comm->backend, op);
    TUTTI_TRY(hand_over(comm, op, false, work));
    atomic_store_explicit(&comm->sequence, op->call.seq, memory_order_relaxed);
    return TUTTI_OK;
}
