/* SPDX-License-Identifier: BSD-3-Clause */
/* The back ends of a communicator: opened by all members together when it is made. The one of all its ranks is asked
 * for each call, and, for calls that block, driven on the caller's thread past the engine until it would have to wait
 * for long (request/hurry.c); those of groups carry out the calls of hierarchical schedules. */
#include "comm/object/comm.h"

#include <math.h>
#include <string.h>

#define APART_ID UINT64_C(0x6261636b656e6473) /* of the team that the cards travel on */
#define FLAT_NAME "flat"
#define BACKEND_RANKS 256 /* more are not served: they are spared the gathering of cards */

/* ---- opening ---- */

/* Calls of a group that may be under way at once: measured, more gain nothing, and fewer wait for one another. */
#define LANES_A_LEVEL 4
_Static_assert(LANES_A_LEVEL *TUTTI_MAX_LEVELS <= TUTTI_MAX_LANES, "schedules know all lanes");
#define LANE_LEAST ((size_t)80 << 10) /* bytes of staging that a lane is worth */

/* Ranks that one back end may serve: first all, then, once for each lane, this rank's group at each level. */
struct group {
    struct tutti_lane slots;
    struct tutti_backend *backend; /* NULL: not opened here */
};
#define MAX_GROUPS (1 + TUTTI_MAX_LANES)

struct record { /* of one group */
    int64_t status;
    unsigned char card[TUTTI_BACKEND_CARD_MOST];
};

static enum tutti_status gather_apart(struct tutti_comm *comm, const struct record *mine, uint32_t n,
                                      struct record *all)
{
    struct tutti_apart apart;
    TUTTI_TRY(tutti_apart_begin(comm, APART_ID, &apart));
    enum tutti_status status = tutti_agree_gather(comm, "comm_create", mine, n * sizeof(*mine), all, NULL);
    tutti_apart_end(comm, &apart);
    return status;
}

/* Decorators see packets alone: a call that sends none would pass them by. */
static bool is_wanted(const struct tutti_comm *comm)
{
    const char *wanted = comm->context->config.text[TUTTI_OPT_backends];
    bool served = comm->size <= BACKEND_RANKS || comm->facts.shape.n_levels > 0;
    return strcmp(wanted, "off") != 0 && served && !comm->family->world.decorated;
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

static enum tutti_status open_group(const struct tutti_comm *comm, const struct tutti_lane *slots, size_t staging,
                                    struct record *mine, struct tutti_backend **out)
{
    const struct tutti_config *options = &comm->context->config;
    uint32_t *members = tutti_alloc_array(slots->size, sizeof(*members)), size = (uint32_t)comm->size;
    if (!members) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a group of %u ranks", slots->size);
    for (uint32_t i = 0; i < slots->size; i++) members[i] = comm->members[slots->base + i * slots->stride];
    struct tutti_backend_config config = {
        .host = &comm->family->backends,
        .transport = comm->family->world.transport,
        .control = comm->family->world.control,
        .members = members,
        .n = slots->size,
        .me = ((uint32_t)comm->rank - slots->base) / slots->stride,
        .crowded = comm->facts.crowded,
        .n_cpus = (comm->facts.n_cpus * slots->size + size - 1) / size, /* of the group, if all are busy */
        .domains = domains_of(comm, members, slots->size),
        .reproducible = comm->facts.reproducible,
        .staging_bytes = staging,
        .method = options->text[TUTTI_OPT_flat],
        .machine = &comm->facts.machine,
    };
    enum tutti_status status = tutti_backends[0]->open(&config, mine->card, out);
    tutti_free(members);
    return status;
}

static size_t open_one(const struct tutti_comm *comm, struct group *group, size_t staging, struct record *mine)
{
    struct tutti_backend *opened = NULL;
    mine->status = open_group(comm, &group->slots, staging, mine, &opened);
    group->backend = opened;
    if (opened) return opened->ops->memory_used(opened);
    tutti_log(TUTTI_LOG_DEBUG, "no back end: %s", tutti_last_error()->text);
    return 0;
}

/* What can be opened here: all share one budget, the lanes evenly, since they take turns. Returns the number of groups,
 * the same on all ranks. */
static uint32_t open_groups(const struct tutti_comm *comm, struct group *groups, struct record *mine)
{
    const struct tutti_shape *shape = &comm->facts.shape;
    uint32_t n = shape->n_levels * LANES_A_LEVEL;
    size_t left = staging_left(comm);
    groups[0].slots = (struct tutti_lane){.stride = 1, .size = (uint32_t)comm->size};
    size_t used = open_one(comm, &groups[0], left, &mine[0]), share = n > 0 && used < left ? (left - used) / n : 0;
    for (uint32_t g = 1; g <= n; g++) {
        if (!tutti_shape_lane(shape, (uint32_t)comm->rank, (g - 1) / LANES_A_LEVEL, &groups[g].slots)) continue;
        mine[g].status = TUTTI_ERR_UNSUPPORTED;
        if (share >= LANE_LEAST) open_one(comm, &groups[g], share, &mine[g]);
    }
    return 1 + n;
}

static void overlay(void *arg, uint32_t peer, struct tutti_board *board)
{
    struct tutti_backend *backend = arg;
    backend->ops->overlay(backend, peer, board);
}

/* Where the records of a group's members are: the first, and how many records on the next one. */
static const struct record *records_of(const struct record *all, uint32_t g, uint32_t n, const struct tutti_lane *slots,
                                       size_t *apart)
{
    *apart = (size_t)slots->stride * n;
    return all + (size_t)slots->base * n + g;
}

static bool all_opened(const struct tutti_comm *comm, const struct tutti_lane *slots, const struct record *records,
                       size_t apart)
{
    for (uint32_t i = 0; i < slots->size; i++) {
        int64_t status = records[i * apart].status;
        if (status >= 0) continue;
        tutti_log(TUTTI_LOG_INFO, "communicator %016llx goes without back end for %u of its ranks: rank %u: %s",
                  (unsigned long long)comm->id, slots->size, slots->base + i * slots->stride,
                  tutti_status_name((enum tutti_status)status));
        return false;
    }
    return true;
}

/* Calls of the kind, whatever their size. */
static bool takes(const struct tutti_backend *backend, enum tutti_kind kind, bool v)
{
    struct tutti_backend_call call = {.bind = {.count = 1, .dtype = TUTTI_UINT8, .v = v},
                                      .info = {.kind = kind, .dtype = TUTTI_UINT8},
                                      .commutative = true};
    bool small = backend->ops->score(backend, &call) < HUGE_VAL;
    call.bind.count = SIZE_MAX / 4;
    return small && backend->ops->score(backend, &call) < HUGE_VAL;
}

static void use_for_all(struct tutti_comm *comm, struct tutti_backend *backend)
{
    comm->backend = backend;
    tutti_team_set_overlay(comm->team, overlay, backend);
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
        enum tutti_kind kind = (enum tutti_kind)k;
        bool overridden = comm->facts.overrides && tutti_overridden(&comm->facts, kind);
        comm->quick[kind] = !overridden && takes(backend, kind, false);
        if (comm->quick[kind]) comm->tiny[kind] = backend->ops->tiny_below(backend, kind);
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

static enum tutti_status connect_group(struct tutti_comm *comm, const struct group *group, bool for_all,
                                       const struct record *records, size_t apart)
{
    struct tutti_backend *backend = group->backend;
    TUTTI_TRY(backend->ops->connect(backend, records->card, apart * sizeof(*records)));
    atomic_fetch_add(&comm->family->staging_used, backend->ops->memory_used(backend));
    if (for_all)
        use_for_all(comm, backend);
    else
        use_for_calls(comm, backend, &group->slots);
    return TUTTI_OK;
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

/* What one member of a group can not open, none of the group uses. */
enum tutti_status tutti_comm_open_backend(struct tutti_comm *comm)
{
    struct group groups[MAX_GROUPS] = {0};
    struct record mine[MAX_GROUPS] = {0};
    if (!is_wanted(comm)) return TUTTI_OK;
    uint32_t n = open_groups(comm, groups, mine);
    struct record *all = tutti_alloc_array((size_t)comm->size * n, sizeof(*all));
    enum tutti_status status = gather_apart(comm, mine, n, all);
    for (uint32_t g = 0; g < n; g++) {
        size_t apart;
        if (!groups[g].backend) continue;
        const struct record *records = records_of(all, g, n, &groups[g].slots, &apart);
        if (status >= 0 && all_opened(comm, &groups[g].slots, records, apart))
            status = connect_group(comm, &groups[g], g == 0, records, apart);
        else
            groups[g].backend->ops->close(groups[g].backend, 0);
    }
    tutti_free(all);
    if (status < 0 || comm->lanes.n == 0) return status;
    return tutti_team_set_lanes(comm->team, &comm->lanes, begin_call, comm);
}

static void close_one(struct tutti_comm *comm, struct tutti_backend **backend)
{
    if (!*backend) return;
    atomic_fetch_sub(&comm->family->staging_used, (*backend)->ops->memory_used(*backend));
    (*backend)->ops->close(*backend, 0);
    *backend = NULL;
}

void tutti_comm_close_backend(struct tutti_comm *comm)
{
    close_one(comm, &comm->backend);
    while (comm->lanes.n > 0) close_one(comm, &comm->lane_backends[--comm->lanes.n]);
}
