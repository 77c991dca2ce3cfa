/* SPDX-License-Identifier: BSD-3-Clause */
/* Creation of a family's first communicator: who am I, where do we meet, then the world, then the team. The same steps
 * run on the caller's thread or, non-blocking, on one of their own. */
#include "comm/call/device.h"
#include "comm/life/life.h"
#include "load/load.h"
#include "store/open.h"
#include "transport/open.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* What a creation needs after the call has returned. */
struct creation {
    struct tutti_comm *comm;
    struct tutti_store store;
    bool has_store;
    char name[TUTTI_STORE_KEY_MAX + 1];
    char secret[TUTTI_SECRET_MAX + 1];
    bool has_secret;
    struct tutti_certificate *certificate; /* in place of a secret; NULL: none */
    char job[128];
    uint64_t deadline_ns;
};

static enum tutti_status creation_secret(struct creation *creation, const struct tutti_config *config,
                                         const char *given)
{
    const char *secret = given ? given : config->text[TUTTI_OPT_secret];
    if (strlen(secret) > TUTTI_SECRET_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: the secret is longer than %d bytes", TUTTI_SECRET_MAX);
    memcpy(creation->secret, secret, strlen(secret) + 1);
    creation->has_secret = secret[0] != '\0';
    return given ? TUTTI_OK : tutti_certificate_of(config, &creation->certificate);
}

/* Rank, size and job: what the caller gives, else what the launcher says. */
static enum tutti_status creation_identity(struct creation *creation, const struct tutti_config *config,
                                           struct tutti_comm_config *given)
{
    struct tutti_launch launch = {.rank = -1};
    bool told = given->rank >= 0 && given->n_ranks >= 0;
    enum tutti_status status = tutti_launch_read(config, &launch);
    if (status < 0 && !told) return status;
    if (status >= 0) memcpy(creation->job, launch.job, sizeof(creation->job));
    if (!told && (given->rank >= 0 || given->n_ranks >= 0))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: rank is %d but n_ranks is %d: give both or neither",
                          (int)given->rank, (int)given->n_ranks);
    if (!told) given->rank = launch.rank, given->n_ranks = launch.n_ranks;
    if (given->n_ranks < 1 || given->rank < 0 || given->rank >= given->n_ranks)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: rank %d is not one of %d ranks", (int)given->rank,
                          (int)given->n_ranks);
    const char *job = config->text[TUTTI_OPT_job];
    if (job && job[0]) snprintf(creation->job, sizeof(creation->job), "%s", job);
    return TUTTI_OK;
}

static enum tutti_status creation_fill(struct creation *creation, const struct tutti_config *config,
                                       struct tutti_comm_config *given)
{
    const char *name = given->name ? given->name : "world";
    if (!name[0] || strlen(name) > TUTTI_STORE_KEY_MAX / 2)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: name has %zu characters, not 1 to %d", strlen(name),
                          TUTTI_STORE_KEY_MAX / 2);
    memcpy(creation->name, name, strlen(name) + 1);
    if (given->store && !given->store->ops)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: store has no table of functions");
    if (given->store) creation->store = *given->store, creation->has_store = true;
    TUTTI_TRY(creation_identity(creation, config, given));
    return creation_secret(creation, config, given->secret);
}

/* Meets the others and opens the family; a store of the environment lives only as long as that. */
static enum tutti_status creation_meet(struct creation *creation)
{
    struct tutti_comm *comm = creation->comm;
    const struct tutti_config *config = &comm->context->config;
    const char *secret = creation->has_secret ? creation->secret : NULL;
    const char *address = config->text[TUTTI_OPT_store];
    struct tutti_machine machine = comm->context->machine;
    struct tutti_launch_store told;
    bool opened = false;
    if (comm->rank == 0 && comm->size > 1) tutti_machine_probe(config, &machine); /* its constants are all ranks' */
    if (!creation->has_store && comm->size > 1 && (!address || !address[0])) {
        TUTTI_TRY(tutti_launch_store_find(config, comm->rank, comm->size, secret, creation->certificate,
                                          creation->deadline_ns, &told));
        address = told.address;
        if (told.secret_made) secret = told.secret;
    }
    if (!creation->has_store && comm->size > 1 && address && address[0]) {
        TUTTI_TRY(
            tutti_store_open_by(address, secret, creation->certificate, true, creation->deadline_ns, &creation->store));
        opened = true;
    }
    struct tutti_bootstrap bootstrap = {
        .rank = comm->rank,
        .n_ranks = comm->size,
        .name = creation->name,
        .store = creation->has_store || opened ? &creation->store : NULL,
        .job = creation->job,
        .secret = secret,
        .certificate = creation->certificate,
        .deadline_ns = creation->deadline_ns,
        .config = config,
        .machine = &machine,
        .crowded = comm->context->crowded,
        .device = comm->wanted_device != TUTTI_DEVICE_NONE,
        .in_use = tutti_device_in_use(),
        .cancel = &comm->cancel,
    };
    enum tutti_status status = tutti_family_open(comm->context, &bootstrap, &comm->family);
    if (opened) tutti_store_close(&creation->store);
    return status;
}

static enum tutti_status creation_run(struct creation *creation)
{
    struct tutti_comm *comm = creation->comm;
    const struct tutti_config *config = &comm->context->config;
    tutti_log_set_rank(comm->rank);
    TUTTI_TRY(creation_meet(creation));
    const struct tutti_world *world = &comm->family->world;
    if (world->n != (uint32_t)comm->size || world->me != (uint32_t)comm->rank)
        return tutti_fail(TUTTI_ERR_INTERNAL, "comm_create: the meeting made rank %u of %u out of rank %d of %d",
                          world->me, world->n, (int)comm->rank, (int)comm->size);
    for (uint32_t i = 0; i < world->n; i++) comm->members[i] = i;
    comm->id = tutti_hash64("world", 5, world->nonce) | 1; /* 0 means every communicator */
    comm->facts.shape.size = world->n;
    comm->facts.min_cpus = world->min_cpus;
    comm->facts.n_cpus = world->n_cpus;
    comm->facts.n_host = world->n_host;
    comm->facts.crowded = world->crowded;
    comm->facts.machine = world->machine;
    const char *levels = config->text[TUTTI_OPT_levels];
    if (levels && levels[0])
        TUTTI_TRY(tutti_shape_parse_levels(&comm->facts.shape, levels));
    else if (world->hosts)
        tutti_levels_of_hosts(world->hosts, &comm->facts.shape);
    comm->facts.link = world->hosts ? TUTTI_LINK_NET : TUTTI_LINK_HOST;
    TUTTI_TRY(tutti_comm_open_team(comm));
    TUTTI_TRY(tutti_comm_open_backend(comm));
    if (world->devices) TUTTI_TRY(tutti_comm_open_device(comm, "comm_create", comm->wanted_device, comm->named_device));
    tutti_comm_ready(comm);
    tutti_log(TUTTI_LOG_INFO, "communicator %016" PRIx64 " \"%s\": rank %d of %d over %s%s, %u on a host, %u cpus%s",
              comm->id, creation->name, (int)comm->rank, (int)comm->size, world->transport->name,
              world->authenticated ? "" : ", unauthenticated", world->n_host, world->min_cpus,
              world->crowded ? ", crowded" : "");
    pthread_mutex_lock(&comm->lock);
    struct tutti_error error = comm->error;
    pthread_mutex_unlock(&comm->lock);
    /* An abort that came before the team did; one that comes later finds it. */
    if (atomic_load(&comm->cancel) && error.status < 0) tutti_team_fail(comm->team, &error, true);
    return TUTTI_OK;
}

static void creation_failed(struct tutti_comm *comm)
{
    struct tutti_error error = *tutti_last_error();
    if (error.status >= 0) tutti_error_set(&error, TUTTI_ERR_INTERNAL, "comm_create failed without saying why");
    pthread_mutex_lock(&comm->lock);
    if (comm->error.status == TUTTI_OK) comm->error = error; /* an abort came first */
    pthread_mutex_unlock(&comm->lock);
    atomic_store(&comm->phase, TUTTI_COMM_FAILED);
}

static void *creation_thread(void *arg)
{
    struct creation *creation = arg;
    struct tutti_comm *comm = creation->comm;
    if (creation_run(creation) < 0) creation_failed(comm);
    explicit_bzero(creation->secret, sizeof(creation->secret));
    tutti_free(creation);
    return NULL;
}

static enum tutti_status creation_spawn(struct creation *creation)
{
    struct tutti_comm *comm = creation->comm; /* the thread frees its creation */
    errno = tutti_thread_start(&comm->thread, 0, creation_thread, creation);
    if (errno) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "comm_create: no thread for a non-blocking creation");
    comm->has_thread = true;
    return TUTTI_OK;
}

/* Takes over `creation` on success. */
static enum tutti_status creation_start(struct creation *creation, bool nonblocking)
{
    if (nonblocking) return creation_spawn(creation);
    TUTTI_TRY(creation_run(creation));
    explicit_bzero(creation->secret, sizeof(creation->secret));
    tutti_free(creation);
    return TUTTI_OK;
}

static enum tutti_status create_in(struct tutti_context *context, struct tutti_comm_config *given,
                                   struct tutti_comm **out)
{
    if (given->joins) return tutti_survive_join(context, given, out);
    struct creation *creation = tutti_alloc(sizeof(*creation));
    if (!creation) return tutti_fail(TUTTI_ERR_MEMORY, "comm_create: out of memory");
    enum tutti_status status;
    TUTTI_TRY_GOTO(status, creation_fill(creation, &context->config, given), err_free);
    struct tutti_comm *comm = NULL;
    TUTTI_TRY_GOTO(status, tutti_comm_new(context, given->rank, given->n_ranks, &comm), err_free);
    const uint64_t *number = context->config.number;
    creation->comm = comm;
    comm->named_device = given->device != TUTTI_DEVICE_AUTO;
    const int32_t device = tutti_device_resolve(&context->config, given->device); /* in this thread's context */
    comm->wanted_device = given->survive ? TUTTI_DEVICE_NONE : device; /* its views are of host memory: held.c */
    comm->create_timeout_ns = given->timeout_ns ? given->timeout_ns : number[TUTTI_OPT_timeout_create];
    atomic_store(&comm->timeout_ns, given->timeout_ns ? given->timeout_ns : number[TUTTI_OPT_timeout]);
    creation->deadline_ns = tutti_deadline_ns(comm->create_timeout_ns);
    if (given->survive) {
        context->config.number[TUTTI_OPT_survives] = 1; /* no rank writes to a peer's buffer */
        tutti_engine_set_attentive(context->engine);
    }
    TUTTI_TRY_GOTO(status, creation_start(creation, given->nonblocking), err_comm);
    if (given->survive) {
        comm->wanted_device = device; /* else a creation that does not block may be reading it */
        status = tutti_survive_open(comm, given);
    }
    if (status < 0) {
        tutti_comm_discard(comm);
        return status;
    }
    *out = comm;
    return TUTTI_OK;
err_comm:
    tutti_comm_discard(comm);
err_free:
    explicit_bzero(creation->secret, sizeof(creation->secret));
    tutti_free(creation);
    return status;
}

enum tutti_status tutti_comm_create(struct tutti_context *context, const struct tutti_comm_config *config,
                                    struct tutti_comm **out)
{
    struct tutti_comm_config given = TUTTI_COMM_CONFIG_INIT;
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: out is NULL");
    if (config && config->size < offsetof(struct tutti_comm_config, nonblocking) + sizeof(bool))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: config.size is %zu: begin with TUTTI_COMM_CONFIG_INIT",
                          config->size);
    if (config) memcpy(&given, config, config->size < sizeof(given) ? config->size : sizeof(given));
    if (given.device < TUTTI_DEVICE_NONE || given.device > INT32_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "comm_create: device is %lld: a device from 0 on, TUTTI_DEVICE_AUTO or TUTTI_DEVICE_NONE",
                          (long long)given.device);
    if (given.survive && given.nonblocking)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: a communicator that survives is not made nonblocking");
    if (given.joins && !given.survive)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: joins needs survive: others have no place for newcomers");
    TUTTI_TRY(tutti_call_alone("comm_create"));
    if (context) TUTTI_TRY(tutti_context_check(context, "comm_create"));
    if (context && !context->engine) return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: the context was destroyed");
    struct tutti_context *own = NULL;
    if (!context) {
        TUTTI_TRY(tutti_context_create(NULL, 0, &own));
        context = own;
    }
    enum tutti_status status = create_in(context, &given, out);
    if (own) tutti_context_release(own); /* from now on it goes with its last communicator */
    return status;
}

/* How a context begins, from its options, and how it ends, with all its communicators. */

#define SCHEDULES_CACHED 256

static enum tutti_status engine_open(struct tutti_context *context)
{
    const uint64_t *number = context->config.number;
    struct tutti_engine_config config = {
        .slice_bytes = (size_t)number[TUTTI_OPT_slice],
        .eager_bytes = (size_t)number[TUTTI_OPT_eager],
        .zero_copy_bytes = (size_t)number[TUTTI_OPT_zero_copy],
        .spin_ns = number[TUTTI_OPT_spin],
        .compare_after_ns = number[TUTTI_OPT_compare_after],
        .simd = context->config.text[TUTTI_OPT_simd],
    };
    return tutti_engine_create(&config, &context->engine);
}

/* Row 0 does not know the transports; a wrong name is refused here all the same, before any rank waits for it. */
static enum tutti_status transport_check(const char *name)
{
    const char *known;
    bool spans;
    return tutti_transport_choose(name, false, 1, &known, &spans);
}

static enum tutti_status devices_choose(const char *kind)
{
    const struct tutti_device_ops *ops;
    return strcmp(kind, "auto") == 0 ? TUTTI_OK : tutti_device_use(kind, &ops);
}

/* Algorithms that a search left in the tuning file, and the files that they name. Their hash joins the option
 * algorithms, which all ranks must have alike. */
static enum tutti_status found_read(struct tutti_context *context)
{
    char path[PATH_MAX], agreed[1024];
    struct tutti_found_list *list = &context->found;
    uint64_t hash = 0;
    if (!tutti_machine_file(&context->config, path, sizeof path)) return TUTTI_OK;
    TUTTI_TRY(tutti_found_read(path, list));
    for (uint32_t i = 0; i < list->n; i++) {
        const struct tutti_algorithm *algorithm;
        uint32_t radix;
        TUTTI_TRY(tutti_load_find(&context->config, list->list[i].name, &radix, &algorithm));
        if (!algorithm)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: \"%s\" is no algorithm: see `tutti sched list`", path,
                              list->list[i].name);
        const uint64_t identity = algorithm->identity;
        const char *name = identity ? algorithm->name : list->list[i].name;
        hash = tutti_hash64(name, strlen(name), tutti_mix64(hash ^ identity ^ list->list[i].to));
    }
    if (list->n == 0) return TUTTI_OK;
    char **option = &context->config.text[TUTTI_OPT_algorithms];
    snprintf(agreed, sizeof agreed, "%s%sfound#%016llx", *option, (*option)[0] ? "," : "", (unsigned long long)hash);
    char *copy = tutti_alloc(strlen(agreed) + 1);
    if (!copy) return tutti_fail(TUTTI_ERR_MEMORY, "context_create: out of memory");
    memcpy(copy, agreed, strlen(agreed) + 1);
    tutti_free(*option);
    *option = copy;
    return TUTTI_OK;
}

/* As for the constants: the file of this host counts as far as it is right, one that is named must be. */
static enum tutti_status found_load(struct tutti_context *context)
{
    const enum tutti_status status = found_read(context);
    if (status >= 0 || strcmp(context->config.text[TUTTI_OPT_tuning], "auto") != 0) return status;
    tutti_log(TUTTI_LOG_WARN, "%s; going on without", tutti_last_error()->text);
    context->found.n = 0;
    return TUTTI_OK;
}

enum tutti_status tutti_context_create(const struct tutti_option *options, size_t n, struct tutti_context **out)
{
    tutti_forks_count();
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "context_create: out is NULL");
    if (n && !options) return tutti_fail(TUTTI_ERR_ARGUMENT, "context_create: options is NULL but n is %zu", n);
    struct tutti_context *context = tutti_alloc(sizeof(*context));
    if (!context) return tutti_fail(TUTTI_ERR_MEMORY, "context_create: out of memory");
    enum tutti_status status;
    tutti_algorithms_init();
    TUTTI_TRY_GOTO(status, tutti_config_init(&context->config, options, n), err_free);
    TUTTI_TRY_GOTO(status, transport_check(context->config.text[TUTTI_OPT_transport]), err_config);
    TUTTI_TRY_GOTO(status, tutti_backends_check(&context->config), err_config);
    TUTTI_TRY_GOTO(status, tutti_device_option_check(&context->config), err_config);
    TUTTI_TRY_GOTO(status, devices_choose(context->config.text[TUTTI_OPT_devices]), err_config);
    TUTTI_TRY_GOTO(status, tutti_load_list(&context->config, context->own), err_config);
    TUTTI_TRY_GOTO(status, tutti_load_overrides(&context->config), err_config);
    TUTTI_TRY_GOTO(status, tutti_overrides_check(context->config.text[TUTTI_OPT_algorithm]), err_config);
    TUTTI_TRY_GOTO(status, tutti_machine_load(&context->config, &context->machine), err_config);
    TUTTI_TRY_GOTO(status, found_load(context), err_config);
    TUTTI_TRY_GOTO(status, tutti_cache_create(SCHEDULES_CACHED, &context->cache), err_config);
    TUTTI_TRY_GOTO(status, engine_open(context), err_cache);
    context->kernels = tutti_kernels_find(context->config.text[TUTTI_OPT_simd]);
    pthread_mutex_init(&context->lock, NULL);
    context->n_forks = tutti_n_forks;
    context->refs = 1;
    context->held = true;
    *out = context;
    return TUTTI_OK;
err_cache:
    tutti_cache_destroy(context->cache);
err_config:
    tutti_config_fini(&context->config);
err_free:
    tutti_free(context);
    return status;
}

void tutti_context_destroy(struct tutti_context *context)
{
    if (!context || context->n_forks != tutti_n_forks) return; /* its memory goes with this process */
    struct tutti_error error;
    tutti_error_set(&error, TUTTI_ERR_ABORTED, "the context of this communicator was destroyed");
    for (struct tutti_comm *comm = context->comms; comm; comm = comm->next) {
        tutti_comm_end_calls(comm, "its context was destroyed");
        tutti_comm_shut(comm, &error);
    }
    tutti_context_close(context);
    if (context->held) tutti_context_release(context); /* a private one is its communicators' */
}
