/* SPDX-License-Identifier: BSD-3-Clause */
/* The back end of a communicator: opened by all members together when it is made, asked for each call, and, for calls
 * that block, driven on the caller's thread past the engine until it would have to wait for long. */
#include "comm/comm.h"

#include <math.h>
#include <string.h>

#define APART_ID UINT64_C(0x6261636b656e6473) /* of the team that the cards travel on */
#define FLAT_NAME "flat"
#define BACKEND_RANKS 256 /* more are not served: they are spared the gathering of cards */

/* ---- opening ---- */

struct record {
    int64_t status;
    unsigned char card[TUTTI_BACKEND_CARD_BYTES];
};

/* On a team of its own, so that the communicator's calls count from 1. Nobody uses the communicator yet. */
static enum tutti_status gather_apart(struct tutti_comm *comm, const struct record *mine, struct record *all)
{
    struct tutti_team *team = comm->team;
    uint64_t timeout = comm->timeout_ns;
    struct tutti_team_config config = {.transport = comm->family->world.transport,
                                       .id = comm->id ^ APART_ID,
                                       .epoch = comm->epoch,
                                       .size = (uint32_t)comm->size,
                                       .slot = (uint32_t)comm->rank,
                                       .members = comm->members,
                                       .timeout_ns = comm->create_timeout_ns};
    TUTTI_TRY(tutti_team_create(comm->context->engine, &config, &comm->team));
    if (comm->create_timeout_ns) atomic_store(&comm->timeout_ns, comm->create_timeout_ns);
    enum tutti_status status = tutti_agree_gather(comm, "comm_create", mine, sizeof(*mine), all, NULL);
    struct tutti_error why = *tutti_last_error();
    tutti_team_destroy(comm->team);
    comm->team = team;
    atomic_store(&comm->timeout_ns, timeout);
    atomic_store(&comm->sequence, 0);
    return status < 0 ? tutti_fail_record(&why) : status;
}

/* Decorators see packets alone: a call that sends none would pass them by. */
static bool is_wanted(const struct tutti_comm *comm)
{
    const char *wanted = comm->context->config.text[TUTTI_OPT_backends];
    return strcmp(wanted, "off") != 0 && comm->size <= BACKEND_RANKS && !comm->family->world.decorated;
}

static size_t staging_left(const struct tutti_comm *comm)
{
    const struct tutti_config *options = &comm->context->config;
    size_t budget = (size_t)options->number[TUTTI_OPT_staging] - tutti_rings_staging(options);
    size_t used = atomic_load(&comm->family->staging_used);
    return used < budget ? budget - used : 0;
}

/* The fewest: what crosses between packages is dearest. */
static struct tutti_domains domains_of(const struct tutti_comm *comm)
{
    uint32_t size = (uint32_t)comm->size, wanted = (uint32_t)comm->context->config.number[TUTTI_OPT_domains];
    struct tutti_domains none = {.n = 0}, fewest = none;
    if (wanted > 0) /* such groups only as the host might have */
        return wanted == 1 || size % wanted || size == wanted ? none
                                                              : (struct tutti_domains){wanted, size / wanted, false};
    for (uint32_t level = 0; level < TUTTI_TOPO_N_LEVELS; level++) {
        const struct tutti_domains *domains = &comm->facts.domains[level];
        if (domains->n > 1 && (fewest.n == 0 || domains->n < fewest.n)) fewest = *domains;
    }
    return fewest;
}

static enum tutti_status open_own(struct tutti_comm *comm, struct record *mine, struct tutti_backend **out)
{
    const struct tutti_config *options = &comm->context->config;
    struct tutti_backend_config config = {
        .host = &comm->family->backends,
        .transport = comm->family->world.transport,
        .members = comm->members,
        .n = (uint32_t)comm->size,
        .me = (uint32_t)comm->rank,
        .crowded = comm->facts.crowded,
        .n_cpus = comm->facts.n_cpus,
        .domains = domains_of(comm),
        .reproducible = comm->facts.reproducible,
        .staging_bytes = staging_left(comm),
        .method = options->text[TUTTI_OPT_flat],
        .machine = &comm->facts.machine,
    };
    return tutti_backend_flat.open(&config, mine->card, out);
}

static void overlay(void *arg, uint32_t peer, struct tutti_board *board)
{
    struct tutti_backend *backend = arg;
    backend->ops->overlay(backend, peer, board);
}

static bool all_opened(const struct tutti_comm *comm, const struct record *all)
{
    for (int32_t r = 0; r < comm->size; r++) {
        if (all[r].status >= 0) continue;
        tutti_log(TUTTI_LOG_INFO, "communicator %016llx goes without back end: rank %d: %s",
                  (unsigned long long)comm->id, (int)r, tutti_status_name((enum tutti_status)all[r].status));
        return false;
    }
    return true;
}

static bool takes_all(const struct tutti_comm *comm, enum tutti_kind kind)
{
    struct tutti_backend_call call = {
        .bind = {.count = 1, .dtype = TUTTI_UINT8}, .info = {.kind = kind, .dtype = TUTTI_UINT8}, .commutative = true};
    if (comm->facts.overrides && tutti_overridden(&comm->facts, kind)) return false;
    bool small = comm->backend->ops->score(comm->backend, &call) < HUGE_VAL;
    call.bind.count = SIZE_MAX / 4;
    return small && comm->backend->ops->score(comm->backend, &call) < HUGE_VAL;
}

enum tutti_status tutti_comm_open_backend(struct tutti_comm *comm)
{
    struct tutti_backend *backend = NULL;
    struct record mine = {.status = TUTTI_OK};
    if (!is_wanted(comm)) return TUTTI_OK;
    mine.status = open_own(comm, &mine, &backend);
    if (mine.status < 0) tutti_log(TUTTI_LOG_DEBUG, "no back end: %s", tutti_last_error()->text);
    struct record *all = tutti_alloc_array((size_t)comm->size, sizeof(*all));
    enum tutti_status status = gather_apart(comm, &mine, all);
    bool opened = status >= 0 && all_opened(comm, all);
    if (opened)
        status = backend->ops->connect(backend, all[0].card, sizeof(*all));
    else if (backend)
        backend->ops->close(backend);
    tutti_free(all);
    if (!opened || status < 0) return status;
    comm->backend = backend;
    atomic_fetch_add(&comm->family->staging_used, backend->ops->staging_used(backend));
    tutti_team_set_overlay(comm->team, overlay, backend);
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        comm->quick[kind] = takes_all(comm, (enum tutti_kind)kind);
        if (comm->quick[kind]) comm->tiny[kind] = backend->ops->tiny_below(backend, (enum tutti_kind)kind);
    }
    return TUTTI_OK;
}

void tutti_comm_close_backend(struct tutti_comm *comm)
{
    if (!comm->backend) return;
    atomic_fetch_sub(&comm->family->staging_used, comm->backend->ops->staging_used(comm->backend));
    comm->backend->ops->close(comm->backend);
    comm->backend = NULL;
}

/* ---- turns: the order of the calls ---- */

void tutti_comm_turn_take(struct tutti_comm *comm)
{
    while (!tutti_comm_turn_try(comm)) tutti_sleep_ns(UINT64_C(1000)); /* held for no longer than a call begins */
}

/* ---- calls ---- */

/* "flat" or "flat:METHOD" of a call's options; false: something else, or nothing. */
static bool names_backend(const char *algorithm, const char **method)
{
    size_t n = strlen(FLAT_NAME);
    if (!algorithm || strncmp(algorithm, FLAT_NAME, n) != 0 || (algorithm[n] && algorithm[n] != ':')) return false;
    *method = algorithm[n] ? algorithm + n + 1 : NULL;
    return true;
}

void tutti_request_call(const struct tutti_request *request, struct tutti_backend_call *call)
{
    call->bind = (struct tutti_bind){.dtype = request->dtype, .divisor = 1};
    call->commutative = !request->user.function || request->user.commutes;
    call->method = NULL;
    call->seq = 0;
    names_backend(request->options.algorithm, &call->method);
    memcpy(call->factor, request->factor, sizeof(call->factor));
    tutti_request_bind(request, &call->bind);
    tutti_request_info(request, &call->info);
}

enum tutti_status tutti_request_choose_backend(struct tutti_request *request)
{
    struct tutti_comm *comm = request->comm;
    const char *wanted = request->options.algorithm, *method = NULL;
    bool named = names_backend(wanted, &method);
    bool overrides = comm->facts.overrides && comm->facts.overrides[0];

    if (named && !comm->backend)
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT, "algorithm \"%s\" is not available here", wanted);
    if (!comm->backend || (wanted && !named)) return TUTTI_OK;
    if (!wanted && !request->internal && overrides && tutti_overridden(&comm->facts, request->kind)) return TUTTI_OK;
    struct tutti_backend_call call;
    tutti_request_call(request, &call);
    request->on_backend = comm->backend->ops->score(comm->backend, &call) < HUGE_VAL;
    if (named && !request->on_backend)
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT, "algorithm \"%s\" can not run this call", wanted);
    return TUTTI_OK;
}

static enum tutti_status hand_over(struct tutti_comm *comm, struct tutti_backend_op *op, bool helper,
                                   struct tutti_work **work)
{
    return tutti_engine_run(comm->team, &op->runner, TUTTI_RUNNER_BYTES, &op->call.info, helper, work);
}

enum tutti_status tutti_backend_start(struct tutti_comm *comm, struct tutti_backend_op *op, bool hurry, bool helper,
                                      struct tutti_work **work)
{
    enum tutti_advance got = TUTTI_RUN_BLOCKED;

    op->call.seq = tutti_team_next(comm->team);
    TUTTI_TRY(comm->backend->ops->begin(comm->backend, op));
    if (hurry && tutti_team_quiet(comm->team) && !tutti_team_failed(comm->team))
        got = comm->backend->ops->hurry(op, comm->team);
    *work = NULL;
    if (got == TUTTI_RUN_DONE)
        tutti_team_count(comm->team);
    else
        TUTTI_TRY(hand_over(comm, op, helper, work));
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

enum tutti_status tutti_request_start_backend(struct tutti_request *request, bool hurry, bool helper,
                                              struct tutti_work **work)
{
    union tutti_backend_room room;
    struct tutti_comm *comm = request->comm;

    tutti_request_call(request, &room.op.call);
    tutti_comm_turn_take(comm);
    enum tutti_status status = tutti_backend_start(comm, &room.op, hurry, helper, work);
    tutti_comm_turn_give(comm);
    return status;
}
