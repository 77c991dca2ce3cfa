/* SPDX-License-Identifier: BSD-3-Clause */
/* The communicator as an object: allocation, its team, entering and leaving it, attachments, what it tells of itself.
 */
#include "comm/comm.h"

#include <string.h>

#define NAP_FIRST_NS (20 * UINT64_C(1000))
#define NAP_LONGEST_NS TUTTI_NS_PER_MS

enum tutti_status tutti_comm_new(struct tutti_context *context, int32_t rank, int32_t size, struct tutti_comm **out)
{
    struct tutti_comm *comm = tutti_alloc(sizeof(*comm));
    if (!comm) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for a communicator", (int)rank);
    comm->members = tutti_alloc_array((size_t)size, sizeof(*comm->members));
    if (!comm->members) {
        tutti_free(comm);
        return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for a communicator of %d ranks", (int)rank,
                          (int)size);
    }
    comm->context = context;
    comm->n_forks = context->n_forks;
    comm->rank = rank;
    comm->size = size;
    comm->wanted_device = TUTTI_DEVICE_NONE;
    comm->facts.reproducible = context->config.number[TUTTI_OPT_reproducible] != 0;
    comm->facts.own = context->own;
    comm->facts.found = context->found.n ? &context->found : NULL;
    comm->facts.overrides = context->config.text[TUTTI_OPT_algorithm];
    comm->facts.memo = &comm->memo;
    comm->facts.slice_bytes = context->config.number[TUTTI_OPT_slice];
    comm->facts.eager_bytes = context->config.number[TUTTI_OPT_eager];
    comm->attached.next = comm->attached.previous = &comm->attached;
    comm->last_call.kind = TUTTI_N_KINDS; /* none */
    pthread_mutex_init(&comm->lock, NULL);
    atomic_init(&comm->phase, TUTTI_COMM_CREATING);
    tutti_context_enlist(context, comm);
    *out = comm;
    return TUTTI_OK;
}

void tutti_comm_forget(struct tutti_comm *comm)
{
    for (uint32_t i = 0; i < TUTTI_COMM_KEPT; i++) {
        tutti_flight_drop(comm->kept[i].flight);
        comm->kept[i].flight = NULL;
    }
}

void tutti_comm_free(struct tutti_comm *comm)
{
    struct tutti_context *context = comm->context;
    tutti_comm_forget(comm);
    if (comm->team) tutti_team_destroy(comm->team);
    if (comm->family) tutti_family_drop(comm->family);
    pthread_mutex_destroy(&comm->lock);
    tutti_unmap(comm->spare, comm->spare_bytes);
    tutti_free(comm->names);
    tutti_free(comm->members);
    tutti_context_delist(context, comm);
    tutti_free(comm);
}

enum tutti_status tutti_comm_open_team(struct tutti_comm *comm)
{
    for (enum tutti_topo_level level = 0; level < TUTTI_TOPO_N_LEVELS; level++)
        comm->facts.domains[level] =
            tutti_topo_domains(comm->family->world.places, comm->members, (uint32_t)comm->size, level);
    /* A slice costs messages of the system, and its bytes pass through the cache in any case. Where hosts have several
     * ranks they share those, and short slices keep both levels busy. */
    if (comm->facts.link == TUTTI_LINK_NET && comm->facts.shape.n_levels == 0)
        comm->facts.slice_bytes = comm->context->config.number[TUTTI_OPT_net_slice];
    struct tutti_team_config config = {
        .transport = comm->family->world.transport,
        .id = comm->id,
        .epoch = comm->epoch,
        .size = (uint32_t)comm->size,
        .slot = (uint32_t)comm->rank,
        .members = comm->members,
        .timeout_ns = comm->timeout_ns,
        .slice_bytes = (size_t)comm->facts.slice_bytes,
    };
    return tutti_team_create(comm->context->engine, &config, &comm->team);
}

void tutti_comm_ready(struct tutti_comm *comm)
{
    comm->guarded = !comm->device && tutti_device_in_use();
    atomic_store(&comm->phase, TUTTI_COMM_READY);
}

/* Whether its members are of one host. */
static enum tutti_link_level link_of(const struct tutti_comm *comm)
{
    const struct tutti_hosts *hosts = comm->family->world.hosts;
    for (int32_t i = 1; hosts && i < comm->size; i++)
        if (hosts->members[comm->members[i]].host != hosts->members[comm->members[0]].host) return TUTTI_LINK_NET;
    return TUTTI_LINK_HOST;
}

enum tutti_status tutti_comm_new_child(struct tutti_comm *parent, const struct tutti_child *child,
                                       struct tutti_comm **out)
{
    struct tutti_comm *comm = NULL;
    uint32_t n = child->n;
    TUTTI_TRY(tutti_comm_new(parent->context, (int32_t)child->me, (int32_t)n, &comm));
    for (uint32_t i = 0; i < n; i++) comm->members[i] = parent->members[child->slots[i]];
    comm->family = tutti_family_hold(parent->family);
    comm->id = child->id;
    comm->epoch = child->epoch;
    comm->create_timeout_ns = parent->create_timeout_ns;
    atomic_store(&comm->timeout_ns, atomic_load(&parent->timeout_ns));
    comm->facts.min_cpus = parent->facts.min_cpus;
    comm->facts.n_cpus = parent->facts.n_cpus;
    comm->facts.crowded = parent->facts.crowded; /* a rank that is left out may run all the same */
    comm->facts.machine = parent->facts.machine;
    comm->facts.link = link_of(comm);
    /* How many of them share a host is not known: the most that can be, so that all members agree. */
    comm->facts.n_host = parent->facts.n_host < n ? parent->facts.n_host : n;
    enum tutti_status status = tutti_levels_derive(&parent->facts.shape, child->slots, n, &comm->facts.shape);
    if (status >= 0) status = tutti_comm_open_team(comm);
    if (status < 0) {
        tutti_comm_free(comm);
        return status;
    }
    *out = comm;
    return TUTTI_OK;
}

/* ---- entering, leaving, and turns ---- */

static enum tutti_status refuse(struct tutti_comm *comm, const char *call)
{
    TUTTI_TRY(tutti_context_check(comm->context, call));
    int phase = atomic_load(&comm->phase);
    if (phase == TUTTI_COMM_CREATING)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "%s on rank %d: the communicator is still being created: wait until tutti_comm_state is "
                          "TUTTI_OK",
                          call, (int)comm->rank);
    pthread_mutex_lock(&comm->lock);
    struct tutti_error error = comm->error;
    pthread_mutex_unlock(&comm->lock);
    return tutti_fail(error.status < 0 ? error.status : TUTTI_ERR_ARGUMENT, "%s on rank %d: %s", call, (int)comm->rank,
                      error.status < 0 ? error.text : "the communicator was destroyed");
}

enum tutti_status tutti_comm_enter(struct tutti_comm *comm, const char *call)
{
    if (!comm) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: comm is NULL", call);
    tutti_comm_hold(comm); /* before the phase is read: destroy writes that, then reads users */
    if (atomic_load(&comm->phase) == TUTTI_COMM_READY && !tutti_comm_is_inherited(comm)) return TUTTI_OK;
    enum tutti_status status = refuse(comm, call);
    tutti_comm_leave(comm);
    return status;
}

enum tutti_status tutti_survive_refuse(const struct tutti_comm *comm, const char *call)
{
    if (!comm->survive) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "%s on rank %d: a communicator that survives does its collectives alone, since its members "
                      "change: create another one for this",
                      call, (int)comm->rank);
}

void tutti_comm_leave(struct tutti_comm *comm)
{
    atomic_fetch_sub(&comm->users, 1);
    tutti_inside--;
}

void tutti_comm_turn_take(struct tutti_comm *comm)
{
    while (!tutti_comm_turn_try(comm)) tutti_sleep_ns(UINT64_C(1000)); /* held for no longer than a call begins */
}

/* ---- attachments ---- */

void tutti_comm_attach(struct tutti_comm *comm, struct tutti_attached *attached)
{
    pthread_mutex_init(&attached->lock, NULL);
    pthread_mutex_lock(&comm->lock);
    attached->n_forks = comm->n_forks;
    attached->comm = comm;
    attached->next = comm->attached.next;
    attached->previous = &comm->attached;
    attached->next->previous = attached;
    comm->attached.next = attached;
    pthread_mutex_unlock(&comm->lock);
}

/* The communicator, held, or NULL when it is gone. */
static struct tutti_comm *attached_hold(struct tutti_attached *attached)
{
    pthread_mutex_lock(&attached->lock);
    struct tutti_comm *comm = attached->comm;
    if (comm) tutti_comm_hold(comm);
    pthread_mutex_unlock(&attached->lock);
    return comm;
}

void tutti_comm_detach(struct tutti_attached *attached)
{
    struct tutti_comm *comm = attached_hold(attached);
    if (comm) {
        pthread_mutex_lock(&comm->lock);
        attached->next->previous = attached->previous; /* itself, when the communicator let go meanwhile */
        attached->previous->next = attached->next;
        pthread_mutex_unlock(&comm->lock);
        tutti_comm_leave(comm);
    }
    pthread_mutex_destroy(&attached->lock);
}

enum tutti_status tutti_comm_enter_attached(struct tutti_attached *attached, const char *call, struct tutti_comm **out)
{
    if (attached->n_forks != tutti_n_forks) return tutti_comm_enter(attached->comm, call);
    struct tutti_comm *comm = attached_hold(attached);
    if (!comm) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: its communicator was destroyed", call);
    enum tutti_status status = tutti_comm_enter(comm, call);
    tutti_comm_leave(comm);
    if (status < 0) return status;
    *out = comm;
    return TUTTI_OK;
}

static void detach_all(struct tutti_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    struct tutti_attached *attached = comm->attached.next;
    while (attached != &comm->attached) {
        struct tutti_attached *next = attached->next;
        pthread_mutex_lock(&attached->lock);
        if (attached->gone) attached->gone(attached);
        attached->comm = NULL;
        attached->next = attached->previous = attached;
        pthread_mutex_unlock(&attached->lock);
        attached = next;
    }
    comm->attached.next = comm->attached.previous = &comm->attached;
    pthread_mutex_unlock(&comm->lock);
}

bool tutti_comm_empty(struct tutti_comm *comm)
{
    if (atomic_exchange(&comm->phase, TUTTI_COMM_SHUT) == TUTTI_COMM_SHUT) return false;
    detach_all(comm);
    for (uint64_t nap = NAP_FIRST_NS; atomic_load(&comm->users) || atomic_load(&comm->turn);
         nap = nap < NAP_LONGEST_NS ? 2 * nap : nap)
        tutti_sleep_ns(nap);
    return true;
}

/* ---- what it tells ---- */

int32_t tutti_comm_rank(const struct tutti_comm *comm)
{
    return comm ? comm->rank : -1;
}

int32_t tutti_comm_size(const struct tutti_comm *comm)
{
    return comm ? comm->size : -1;
}

uint64_t tutti_comm_id(const struct tutti_comm *comm)
{
    return comm && atomic_load(&comm->phase) != TUTTI_COMM_CREATING ? comm->id : 0;
}

struct tutti_context *tutti_comm_context(const struct tutti_comm *comm)
{
    return comm ? comm->context : NULL;
}

void tutti_comm_set_timeout(struct tutti_comm *comm, uint64_t timeout_ns)
{
    if (!comm) return;
    uint64_t standard = comm->context->config.number[TUTTI_OPT_timeout];
    atomic_store(&comm->timeout_ns, timeout_ns ? timeout_ns : standard);
}

uint64_t tutti_comm_timeout(const struct tutti_comm *comm)
{
    return comm ? atomic_load(&comm->timeout_ns) : 0;
}

uint64_t tutti_comm_sequence(const struct tutti_comm *comm)
{
    return comm ? atomic_load(&comm->sequence) : 0;
}

/* The levels (hosts, racks) of a group of ranks: from the table of hosts, or from those of the communicator it comes
 * from. Pure, and the same on
 * all members. A group whose ranks are not in the levels' order, or whose runs do not fit the table, is flat. */

/* Appends a group of `size` units, as one more of the last run if it can. */
static bool level_append(struct tutti_level *level, uint32_t size)
{
    if (level->n_runs && level->runs[level->n_runs - 1].size == size) {
        level->runs[level->n_runs - 1].repeat++;
        return true;
    }
    if (level->n_runs == TUTTI_MAX_RUNS) return false;
    level->runs[level->n_runs++] = (struct tutti_run){.size = size, .repeat = 1};
    return true;
}

/* unit[i] is the parent's unit that the child's unit i lies in; it becomes the parent's group of each child group,
 * whose number is returned. 0: not regular. */
static uint32_t level_derive(const struct tutti_level *parent, uint32_t *unit, uint32_t n, struct tutti_level *child)
{
    uint32_t n_groups = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t group, first, size, count = 0;
        tutti_level_find(parent, unit[i], &group, &first, &size);
        while (i < n && unit[i] >= first && unit[i] - first < size) i++, count++;
        if (n_groups && unit[n_groups - 1] >= group) return 0; /* the group was there before, or out of order */
        if (!level_append(child, count)) return 0;
        unit[n_groups++] = group;
    }
    return n_groups;
}

enum tutti_status tutti_levels_derive(const struct tutti_shape *parent, const uint32_t *slots, uint32_t n,
                                      struct tutti_shape *child)
{
    memset(child, 0, sizeof(*child));
    child->size = n;
    if (!parent->n_levels || n < 3) return TUTTI_OK; /* a level is two groups, one of them of two */
    uint32_t *unit = tutti_alloc_array(n, sizeof(*unit));
    if (!unit) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the levels of a communicator of %u ranks", n);
    memcpy(unit, slots, n * sizeof(*unit));
    for (uint32_t level = 0, n_units = n; level < parent->n_levels; level++) {
        struct tutti_level derived = {0};
        uint32_t n_groups = level_derive(&parent->levels[level], unit, n_units, &derived);
        if (n_groups < 2) break;                                            /* irregular, or nothing above it */
        if (n_groups < n_units) child->levels[child->n_levels++] = derived; /* else each is alone in its group */
        n_units = n_groups;
    }
    tutti_free(unit);
    return TUTTI_OK;
}

void tutti_levels_of_hosts(const struct tutti_hosts *hosts, struct tutti_shape *shape)
{
    struct tutti_level level = {0};
    if (hosts->n_hosts == hosts->n_members) return;
    for (uint32_t i = 1; i < hosts->n_members; i++)
        if (hosts->members[i].host < hosts->members[i - 1].host) return; /* not neighbours */
    for (uint32_t h = 0; h < hosts->n_hosts; h++)
        if (!level_append(&level, hosts->hosts[h].n)) return;
    shape->levels[shape->n_levels++] = level;
}

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
