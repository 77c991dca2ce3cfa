/* SPDX-License-Identifier: BSD-3-Clause */
/* What collective creations (communicators, devices, windows) share: one record of each rank gathered to all, and at
 * the end one verdict, so that they succeed on all ranks or fail on all with the sentence of the one that could not. */
#include "comm/comm.h"

#include <string.h>

/* One collective of the library itself. */
struct agreeing {
    struct tutti_comm *comm;
    const char *name; /* the user's call, for sentences */
    struct tutti_bind bind;
    struct tutti_call_info info;
};

void tutti_comm_fail_in_part(struct tutti_comm *comm, const char *name)
{
    struct tutti_error why = *tutti_last_error(), told;
    tutti_error_set(&told, why.status, "%s on rank %d was started in part only: %.300s", name, (int)comm->rank,
                    why.text);
    tutti_team_fail(comm->team, &told, true);
    tutti_fail_record(&why);
}

/* The user's choice of algorithms does not apply. */
static enum tutti_status seal(const struct agreeing *a, const struct tutti_schedule **out)
{
    const struct tutti_comm *comm = a->comm;
    const struct tutti_algorithm *algorithm = NULL;
    struct tutti_shape shape = {.size = 0};
    struct tutti_facts facts = comm->facts;
    struct tutti_question question = {
        .kind = a->info.kind, .bytes = a->info.count * tutti_dtype_bytes(a->info.dtype), .commutative = true};
    facts.overrides = NULL, facts.own = NULL, facts.found = NULL;
    facts.reproducible = false;
    TUTTI_TRY(tutti_choose(&facts, &question, &algorithm, &shape));
    shape.slot = (uint32_t)comm->rank;
    return tutti_cache_get(comm->context->cache, algorithm, a->info.kind, &shape, NULL, out);
}

static enum tutti_status run(struct agreeing *a, uint64_t *sequence)
{
    struct tutti_comm *comm = a->comm;
    struct tutti_work *work = NULL;
    TUTTI_TRY(seal(a, &a->bind.schedule));
    a->bind.cache = comm->context->cache; /* the engine gives it back */
    a->bind.count = a->info.count, a->bind.dtype = a->info.dtype, a->bind.divisor = 1;
    a->info.root = -1;
    a->info.label = a->name;
    a->info.timeout_ns = atomic_load(&comm->timeout_ns);
    /* A split does not match a dup, nor a user's own call of the same kind. */
    a->info.signature =
        tutti_sign(&a->info, false, false, a->bind.schedule->hash, tutti_hash64(a->name, strlen(a->name), 0));
    tutti_comm_turn_take(comm);
    enum tutti_status status = tutti_engine_start(comm->team, &a->bind, &a->info, false, &work);
    if (status >= 0) atomic_fetch_add(&comm->sequence, 1);
    tutti_comm_turn_give(comm);
    if (status < 0) return status;
    if (sequence) *sequence = tutti_work_sequence(work);
    return tutti_work_finish(work);
}

enum tutti_status tutti_agree_gather(struct tutti_comm *comm, const char *name, const void *mine, size_t bytes,
                                     void *all, uint64_t *sequence)
{
    struct agreeing a = {.comm = comm,
                         .name = name,
                         .bind = {.input = mine, .output = all},
                         .info = {.kind = TUTTI_ALL_GATHER, .dtype = TUTTI_UINT8, .op = -1, .count = bytes}};
    enum tutti_status status = all ? run(&a, sequence)
                                   : tutti_fail(TUTTI_ERR_MEMORY, "%s on rank %d: out of memory for %d records", name,
                                                (int)comm->rank, (int)comm->size);
    if (status < 0) tutti_comm_fail_in_part(comm, name);
    return status;
}

enum tutti_status tutti_agree_verdict(struct tutti_comm *comm, const char *name, enum tutti_status mine)
{
    struct tutti_error own = *tutti_last_error();
    /* The worst status wins, of equal ones the lowest rank's. */
    int64_t verdict = (int64_t)(mine < 0 ? mine : 0) * ((int64_t)1 << 32) + (mine < 0 ? comm->rank : 0);
    struct agreeing a = {.comm = comm,
                         .name = name,
                         .bind = {.input = &verdict,
                                  .output = &verdict,
                                  .reduce = comm->context->kernels->reduce[TUTTI_INT64][TUTTI_MIN]},
                         .info = {.kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT64, .op = TUTTI_MIN, .count = 1}};
    enum tutti_status status = run(&a, NULL);
    if (status < 0) tutti_comm_fail_in_part(comm, name);
    if (mine < 0) return tutti_fail_record(&own);
    if (status < 0 || verdict >= 0) return status;
    int32_t rank = (int32_t)(uint32_t)(uint64_t)verdict;
    enum tutti_status theirs = (enum tutti_status)((verdict - rank) / ((int64_t)1 << 32));
    return tutti_fail(theirs, "%s on rank %d: rank %d failed: %s", name, (int)comm->rank, (int)rank,
                      tutti_status_text(theirs));
}

/* ---- before a communicator is used ---- */

/* What the communicator had before. */
struct apart {
    struct tutti_team *team;
    uint64_t timeout_ns;
};

static enum tutti_status apart_begin(struct tutti_gathering *gathering, struct apart *out)
{
    struct tutti_comm *comm = gathering->comm;
    *out = (struct apart){.team = NULL};
    if (atomic_load(&comm->phase) == TUTTI_COMM_READY) return TUTTI_OK;
    struct tutti_team_config config = {.transport = comm->family->world.transport,
                                       .id = comm->id ^ gathering->salt++,
                                       .epoch = comm->epoch,
                                       .size = (uint32_t)comm->size,
                                       .slot = (uint32_t)comm->rank,
                                       .members = comm->members,
                                       .timeout_ns = comm->create_timeout_ns};
    struct tutti_team *team = comm->team;
    TUTTI_TRY(tutti_team_create(comm->context->engine, &config, &comm->team));
    *out = (struct apart){.team = team, .timeout_ns = comm->timeout_ns};
    if (comm->create_timeout_ns) atomic_store(&comm->timeout_ns, comm->create_timeout_ns);
    return TUTTI_OK;
}

static void apart_end(struct tutti_comm *comm, const struct apart *apart)
{
    struct tutti_error why = *tutti_last_error();
    if (!apart->team) return;
    tutti_team_destroy(comm->team);
    comm->team = apart->team;
    atomic_store(&comm->timeout_ns, apart->timeout_ns);
    atomic_store(&comm->sequence, 0);
    if (why.status < 0) tutti_fail_record(&why);
}

enum tutti_status tutti_gathering_gather(void *arg, const void *mine, size_t bytes, void *all)
{
    struct tutti_gathering *gathering = arg;
    struct apart apart;
    TUTTI_TRY(apart_begin(gathering, &apart));
    enum tutti_status status = tutti_agree_gather(gathering->comm, gathering->call, mine, bytes, all, NULL);
    apart_end(gathering->comm, &apart);
    return status;
}

enum tutti_status tutti_gathering_verdict(struct tutti_gathering *gathering, enum tutti_status mine)
{
    struct tutti_error why = *tutti_last_error();
    struct apart apart;
    TUTTI_TRY(apart_begin(gathering, &apart));
    if (mine < 0) tutti_fail_record(&why);
    enum tutti_status status = tutti_agree_verdict(gathering->comm, gathering->call, mine);
    apart_end(gathering->comm, &apart);
    return status;
}
