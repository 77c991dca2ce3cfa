/* SPDX-License-Identifier: BSD-3-Clause */
/* What members agree on before a communicator is used travels on a team of its own, so that the communicator's calls
 * count from 1. */
#include "comm/object/comm.h"

enum tutti_status tutti_apart_begin(struct tutti_comm *comm, uint64_t salt, struct tutti_apart *out)
{
    struct tutti_team_config config = {.transport = comm->family->world.transport,
                                       .id = comm->id ^ salt,
                                       .epoch = comm->epoch,
                                       .size = (uint32_t)comm->size,
                                       .slot = (uint32_t)comm->rank,
                                       .members = comm->members,
                                       .timeout_ns = comm->create_timeout_ns};
    *out = (struct tutti_apart){.team = comm->team, .timeout_ns = comm->timeout_ns, .backend = comm->backend};
    TUTTI_TRY(tutti_team_create(comm->context->engine, &config, &comm->team));
    comm->backend = NULL; /* which keeps numbers of calls, and shows them as the communicator's */
    if (comm->create_timeout_ns) atomic_store(&comm->timeout_ns, comm->create_timeout_ns);
    return TUTTI_OK;
}

void tutti_apart_end(struct tutti_comm *comm, const struct tutti_apart *apart)
{
    struct tutti_error why = *tutti_last_error();
    tutti_team_destroy(comm->team);
    comm->team = apart->team;
    comm->backend = apart->backend;
    atomic_store(&comm->timeout_ns, apart->timeout_ns);
    atomic_store(&comm->sequence, 0);
    if (why.status < 0) tutti_fail_record(&why);
}
