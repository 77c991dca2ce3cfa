/* SPDX-License-Identifier: BSD-3-Clause */
/* The back ends of a communicator: opened by all members together when it is made. Those of all its ranks, of tutti's
 * own and a library, are asked for each call, and, for calls that block, driven on the caller's thread past the engine
 * until they would have to wait for long (call/run.c); those of groups carry out the calls of hierarchical
 * schedules. */
#include "backend/open.h"
#include "comm/comm.h"

#include <math.h>
#include <string.h>

#define APART_ID UINT64_C(0x6261636b656e6473) /* for the team that the cards travel on */
#define BACKEND_RANKS 256                     /* more are not served: they are spared the gathering of cards */

/* ---- opening ---- */

/* Calls of a group that may be under way at once: measured, more gain nothing, and fewer wait for one another. */
#define LANES_A_LEVEL 4
_Static_assert(LANES_A_LEVEL *TUTTI_MAX_LEVELS <= TUTTI_MAX_LANES, "schedules know all lanes");
#define LANE_LEAST ((size_t)80 << 10) /* bytes of staging that a lane is worth */

/* The library, then one of all ranks, then, once for each lane, of the group at a level. */
#define MAX_OPENINGS (2 + TUTTI_MAX_LANES)

/* Decorators see packets alone: a call that sends none would pass them by. */
static enum tutti_status wanted_of(const struct tutti_comm *comm, struct tutti_backends_wanted *out)
{
    bool served = comm->size <= BACKEND_RANKS || comm->facts.shape.n_levels > 0;
    TUTTI_TRY(tutti_backends_for_host(&comm->context->config, out));
    if (!served || comm->family->world.decorated) *out = (struct tutti_backends_wanted){.own = NULL};
    return TUTTI_OK;
}

static size_t staging_left(const struct tutti_comm *comm)
{
    const struct tutti_config *options = &comm->context->config;
    size_t budget = (size_t)options->number[TUTTI_OPT_staging] - tutti_rings_staging(options);
    size_t used = atomic_load(&comm->family->staging_used);
    return used < budget ? budget - used : 0;
}

/* The fewest: what crosses between packages is dearest. */
static struct tutti_domains domains_of(const struct tutti_comm *comm, const uint32_t *members, uint32_t n)
{
    struct tutti_domains fewest = {.n = 0};
    for (enum tutti_topo_level level = 0; level < TUTTI_TOPO_N_LEVELS; level++) {
        struct tutti_domains domains = tutti_topo_domains(comm->family->world.places, members, n, level);
        if (domains.n > 1 && (fewest.n == 0 || domains.n < fewest.n)) fewest = domains;
    }
    return fewest;
}

static size_t open_one(const struct tutti_comm *comm, struct tutti_opening *opening, size_t staging)
{
    const struct tutti_lane *slots = &opening->slots;
    const struct tutti_config *options = &comm->context->config;
    uint32_t *members = tutti_alloc_array(slots->size, sizeof(*members)), size = (uint32_t)comm->size;
    if (!members) {
        tutti_fail(TUTTI_ERR_MEMORY, "no memory for a group of %u ranks", slots->size);
        tutti_opening_skip(opening);
        return 0;
    }
    for (uint32_t i = 0; i < slots->size; i++) members[i] = comm->members[slots->base + i * slots->stride];
    struct tutti_backend_config config = {
        .host = &comm->family->backends,
        .transport = comm->family->world.transport,
        .control = comm->family->world.control,
        .members = members,
        .options = options,
        .n = slots->size,
        .me = ((uint32_t)comm->rank - slots->base) / slots->stride,
        .crowded = comm->facts.crowded,
        .n_cpus = (comm->facts.n_cpus * slots->size + size - 1) / size, /* the group's CPUs, if all are busy */
        .domains = domains_of(comm, members, slots->size),
        .reproducible = comm->facts.reproducible,
        .staging_bytes = staging,
        .machine = &comm->facts.machine,
        .team = comm->team,
    };
    tutti_opening_try(opening, &config);
    tutti_free(members);
    return opening->backend ? opening->ops->memory_used(opening->backend) : 0;
}

/* What can be opened here: all share one budget, the lanes evenly, since they take turns. Returns the number of groups,
 * the same on all ranks. */
static uint32_t open_groups(const struct tutti_comm *comm, const struct tutti_backend_ops *ops,
                            struct tutti_opening *openings)
{
    const struct tutti_shape *shape = &comm->facts.shape;
    uint32_t n = shape->n_levels * LANES_A_LEVEL;
    size_t left = staging_left(comm);
    for (uint32_t g = 0; g <= n; g++) openings[g] = (struct tutti_opening){.ops = ops, .needed = true};
    openings[0].slots = (struct tutti_lane){.stride = 1, .size = (uint32_t)comm->size};
    size_t used = open_one(comm, &openings[0], left), share = n > 0 && used < left ? (left - used) / n : 0;
    for (uint32_t g = 1; g <= n; g++) {
        struct tutti_lane slots;
        bool within = tutti_shape_lane(shape, (uint32_t)comm->rank, (g - 1) / LANES_A_LEVEL, &slots);
        if (within) openings[g].slots = slots;
        if (within && share >= LANE_LEAST) {
            open_one(comm, &openings[g], share);
        } else {
            tutti_fail(TUTTI_ERR_UNSUPPORTED, within ? "there is too little staging memory" : "the rank is alone");
            tutti_opening_skip(&openings[g]);
        }
    }
    return 1 + n;
}

static uint32_t open_library(const struct tutti_comm *comm, const struct tutti_backend_ops *ops,
                             struct tutti_opening *opening)
{
    *opening = (struct tutti_opening){.ops = ops, .slots = {.stride = 1, .size = (uint32_t)comm->size}};
    open_one(comm, opening, 0);
    return 1;
}

static void overlay(void *arg, uint32_t peer, struct tutti_board *board)
{
    const struct tutti_comm *comm = arg;
    struct tutti_backend *backends[2] = {comm->backend, comm->library};
    for (int i = 0; i < 2; i++)
        if (backends[i] && backends[i]->ops->overlay) backends[i]->ops->overlay(backends[i], peer, board);
}

static bool takes_of(const struct tutti_backend *backend, enum tutti_kind kind, bool v, size_t count)
{
    struct tutti_backend_call call = {.bind = {.count = count, .dtype = TUTTI_UINT8, .v = v},
                                      .info = {.kind = kind, .dtype = TUTTI_UINT8},
                                      .commutative = true};
    return backend->ops->score(backend, &call) < HUGE_VAL;
}

/* Calls of the kind, whatever their size. */
static bool takes(const struct tutti_backend *backend, enum tutti_kind kind, bool v)
{
    return takes_of(backend, kind, v, 1) && takes_of(backend, kind, v, SIZE_MAX / 4);
}

static void use_for_all(struct tutti_comm *comm, struct tutti_backend *backend)
{
    comm->backend = backend;
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
        enum tutti_kind kind = (enum tutti_kind)k;
        bool overridden = comm->facts.overrides && tutti_overridden(&comm->facts, kind);
        bool asked = comm->library && comm->library_first && takes_of(comm->library, kind, false, 1);
        comm->quick[kind] = !overridden && !asked && takes(backend, kind, false);
        if (comm->quick[kind] && backend->ops->tiny_below) comm->tiny[kind] = backend->ops->tiny_below(backend, kind);
    }
}

static void use_for_calls(struct tutti_comm *comm, struct tutti_backend *backend, const struct tutti_lane *slots)
{
    struct tutti_lane *lane = &comm->lanes.lanes[comm->lanes.n];
    *lane = *slots;
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
        enum tutti_kind kind = (enum tutti_kind)k;
        bool may_be_apart = kind == TUTTI_GATHER || kind == TUTTI_SCATTER;
        if ((TUTTI_CALL_KINDS >> k & 1) && takes(backend, kind, false) && (!may_be_apart || takes(backend, kind, true)))
            lane->kinds |= UINT32_C(1) << k;
    }
    comm->lane_backends[comm->lanes.n++] = backend;
}

static void use(struct tutti_comm *comm, const struct tutti_opening *opening, bool for_all)
{
    struct tutti_backend *backend = opening->backend;
    if (!backend) {
        if (opening->slots.size)
            tutti_log(TUTTI_LOG_INFO, "communicator %016llx goes without back end for %u of its ranks: %s",
                      (unsigned long long)comm->id, opening->slots.size, opening->why.text);
        return;
    }
    atomic_fetch_add(&comm->family->staging_used, backend->ops->memory_used(backend));
    if (opening->ops->is_library)
        comm->library = backend;
    else if (for_all)
        use_for_all(comm, backend);
    else
        use_for_calls(comm, backend, &opening->slots);
}

static enum tutti_status begin_call(void *arg, uint32_t lane, const struct tutti_call_step *step, void *room)
{
    const struct tutti_comm *comm = arg;
    struct tutti_backend *backend = comm->lane_backends[lane];
    struct tutti_backend_op *op = room;
    op->call = (struct tutti_backend_call){.bind = step->bind,
                                           .info = step->info,
                                           .commutative = !step->bind.user, /* for all that is known */
                                           .seq = step->seq,
                                           .stride = step->stride,
                                           .within = true,
                                           .outer_call = step->call,
                                           .outer_count = step->count};
    return backend->ops->begin(backend, op);
}

/* Whether a rank could not take its lanes is compared, too, where there may be some. */
static enum tutti_status set_lanes(struct tutti_comm *comm, struct tutti_gathering *gathering)
{
    return tutti_gathering_verdict(
        gathering, comm->lanes.n ? tutti_team_set_lanes(comm->team, &comm->lanes, begin_call, comm) : TUTTI_OK);
}

/* What one member of a group can not open, none of the group uses. */
enum tutti_status tutti_comm_open_backend(struct tutti_comm *comm)
{
    struct tutti_gathering gathering = {comm, "comm_create", APART_ID};
    const struct tutti_openers openers = {(uint32_t)comm->size, (uint32_t)comm->rank, gathering.call,
                                          tutti_gathering_gather, &gathering};
    struct tutti_backends_wanted wanted;
    TUTTI_TRY(wanted_of(comm, &wanted));
    if (!wanted.own && !wanted.library) return TUTTI_OK;
    struct tutti_opening *openings = tutti_alloc_array(MAX_OPENINGS, sizeof(*openings));
    if (!openings) return tutti_fail(TUTTI_ERR_MEMORY, "comm_create on rank %d: out of memory", (int)comm->rank);
    comm->library_first = wanted.library_first;
    uint32_t n = wanted.library ? open_library(comm, wanted.library, openings) : 0;
    if (wanted.own) n += open_groups(comm, wanted.own, openings + n);
    enum tutti_status status = tutti_opening_finish(openings, n, &openers);
    for (uint32_t g = 0; g < n && status >= 0; g++) use(comm, &openings[g], g == (wanted.library ? 1 : 0));
    tutti_free(openings);
    if (status >= 0) tutti_team_set_overlay(comm->team, overlay, comm);
    if (status < 0 || comm->facts.shape.n_levels == 0) return status;
    return set_lanes(comm, &gathering);
}

static void close_one(struct tutti_comm *comm, struct tutti_backend **backend, uint64_t deadline_ns)
{
    if (!*backend) return;
    atomic_fetch_sub(&comm->family->staging_used, (*backend)->ops->memory_used(*backend));
    (*backend)->ops->close(*backend, deadline_ns);
    *backend = NULL;
}

void tutti_comm_close_backend(struct tutti_comm *comm, uint64_t deadline_ns)
{
    close_one(comm, &comm->library, deadline_ns);
    close_one(comm, &comm->backend, deadline_ns);
    while (comm->lanes.n > 0) close_one(comm, &comm->lane_backends[--comm->lanes.n], deadline_ns);
}
