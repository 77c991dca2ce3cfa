/* SPDX-License-Identifier: BSD-3-Clause */
/* The device of a communicator: what each member has is told to all, who can reach one another opens back ends
 * together, and all compare what came of it, so that calls go the same way everywhere. */
#include "comm/device/device.h"

#include <string.h>

#define APART_ID UINT64_C(0x64657669636573) /* of the team that the cards travel on */
#define GIVE_UP_NS TUTTI_NS_PER_S           /* for closing what was never used, or has failed */

#define TUTTI_DEVICE_OPS(name) &tutti_device_##name,
const struct tutti_device_backend_ops *tutti_device_backends[] = {TUTTI_DEVICE_BACKENDS(TUTTI_DEVICE_OPS)};
#undef TUTTI_DEVICE_OPS

/* ---- the option gpu ---- */

static const struct way {
    const char *name;
    bool devices;     /* communicators may have some, */
    bool own;         /* and back ends of devices may carry out their calls: */
    const char *only; /* this one alone; NULL: any */
} ways[] = {
    {"auto", true, true, NULL},  {"cuda", true, true, "cuda"}, {"nccl", true, true, "nccl"},
    {"host", true, false, NULL}, {"off", false, false, NULL},
};

static const struct way *way_of(const struct tutti_config *config)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(ways); i++)
        if (strcmp(config->text[TUTTI_OPT_gpu], ways[i].name) == 0) return &ways[i];
    return NULL;
}

enum tutti_status tutti_device_option_check(const struct tutti_config *config)
{
    enum tutti_gpu_share share;
    if (!tutti_gpu_share_named(config->text[TUTTI_OPT_gpu_share], &share))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "option gpu_share is \"%s\" but can be auto, ipc or fd",
                          config->text[TUTTI_OPT_gpu_share]);
    if (!way_of(config))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "option gpu is \"%s\" but can be auto, cuda, nccl, host or off",
                          config->text[TUTTI_OPT_gpu]);
    TUTTI_TRY(tutti_device_method_check(config->text[TUTTI_OPT_cuda]));
    return tutti_device_tuning_check(config->text[TUTTI_OPT_gpu_tuning]);
}

enum tutti_gpu_share tutti_device_share(const struct tutti_config *config)
{
    enum tutti_gpu_share share = TUTTI_GPU_SHARE_AUTO;
    (void)tutti_gpu_share_named(config->text[TUTTI_OPT_gpu_share], &share);
    return share;
}

int32_t tutti_device_resolve(const struct tutti_config *config, int64_t wanted)
{
    if (!way_of(config)->devices || wanted == TUTTI_DEVICE_NONE) return TUTTI_DEVICE_NONE;
    if (wanted != TUTTI_DEVICE_AUTO) return (int32_t)wanted;
    int32_t current = tutti_gpu_current();
    return current < 0 ? TUTTI_DEVICE_NONE : current;
}

/* ---- opening ---- */

struct card {
    int64_t status;
    unsigned char bytes[TUTTI_DEVICE_CARD_BYTES];
};
struct record { /* of one member */
    int64_t status, has;
    struct card cards[TUTTI_MAX_DEVICE_BACKENDS];
};

struct opening {
    struct tutti_comm *comm;
    const char *name; /* of the call, for sentences */
    const struct way *way;
    uint64_t n_agreed;
    struct tutti_comm_device *device;
    struct tutti_device_backend *backends[TUTTI_MAX_DEVICE_BACKENDS];
    struct record mine, *all;
    struct tutti_error failure;                        /* of mine.status */
    struct tutti_error why[TUTTI_MAX_DEVICE_BACKENDS]; /* the back end is not used; equal on all but for the sentence */
};

/* On the communicator itself once it is in use, before that apart. */
static enum tutti_status gather(struct opening *opening, const void *mine, size_t bytes, void *all)
{
    struct tutti_comm *comm = opening->comm;
    struct tutti_apart apart;
    if (atomic_load(&comm->phase) == TUTTI_COMM_READY)
        return tutti_agree_gather(comm, opening->name, mine, bytes, all, NULL);
    TUTTI_TRY(tutti_apart_begin(comm, APART_ID + opening->n_agreed++, &apart));
    enum tutti_status status = tutti_agree_gather(comm, opening->name, mine, bytes, all, NULL);
    tutti_apart_end(comm, &apart);
    return status;
}

/* One that is merely current was asked for by nobody: where it can not be used, there is none. */
static enum tutti_status open_gpu(struct opening *opening, int32_t wanted, bool named)
{
    struct tutti_comm *comm = opening->comm;
    opening->device->ordinal = TUTTI_DEVICE_NONE;
    if (wanted == TUTTI_DEVICE_NONE) return TUTTI_OK;
    if (wanted < 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "%s on rank %d: device is %d: a device from 0 on, TUTTI_DEVICE_AUTO or TUTTI_DEVICE_NONE",
                          opening->name, (int)comm->rank, (int)wanted);
    if (tutti_gpu_open(wanted, &opening->device->gpu) < 0) {
        struct tutti_error why = *tutti_last_error();
        if (!named) {
            tutti_log(TUTTI_LOG_INFO, "device %d is current, but is not used: %s", (int)wanted, why.text);
            return TUTTI_OK;
        }
        return tutti_fail(why.status, "%s on rank %d: device %d can not be used: %s", opening->name, (int)comm->rank,
                          (int)wanted, why.text);
    }
    opening->device->ordinal = wanted;
    return TUTTI_OK;
}

static enum tutti_status open_backend(struct opening *opening, uint32_t b)
{
    struct tutti_comm *comm = opening->comm;
    const struct tutti_device_backend_ops *ops = tutti_device_backends[b];
    const struct tutti_config *options = &comm->context->config;
    if (!opening->device->gpu) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no device");
    if (!opening->way->own || (opening->way->only && strcmp(opening->way->only, ops->name) != 0))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "option gpu is %s", opening->way->name);
    struct tutti_device_config config = {
        .host = &comm->family->backends,
        .gpu = opening->device->gpu,
        .transport = comm->family->world.transport,
        .control = comm->family->world.control,
        .team = comm->team,
        .members = comm->members,
        .n = (uint32_t)comm->size,
        .me = (uint32_t)comm->rank,
        .id = comm->id,
        .scratch_bytes = (size_t)options->number[TUTTI_OPT_gpu_scratch],
        .blocks = (uint32_t)options->number[TUTTI_OPT_gpu_blocks],
        .share = tutti_device_share(options),
        .timeout_ns =
            atomic_load(&comm->phase) == TUTTI_COMM_READY ? atomic_load(&comm->timeout_ns) : comm->create_timeout_ns,
        .tuning = options->text[TUTTI_OPT_gpu_tuning],
        .library = options->text[TUTTI_OPT_nccl_library],
        .method = b == 0 ? options->text[TUTTI_OPT_cuda] : "",
        .nonce = comm->family->world.nonce + tutti_mix64(comm->n_devices), /* one of before may still be closing */
    };
    return ops->open(&config, opening->mine.cards[b].bytes, &opening->backends[b]);
}

/* What this member has; no failure here keeps it from telling the others. */
static void open_mine(struct opening *opening, int32_t wanted, bool named)
{
    opening->mine.status = open_gpu(opening, wanted, named);
    if (opening->mine.status < 0) opening->failure = *tutti_last_error();
    opening->mine.has = opening->device->gpu != NULL;
    for (uint32_t b = 0; b < TUTTI_MAX_DEVICE_BACKENDS; b++) {
        struct card *card = &opening->mine.cards[b];
        card->status = open_backend(opening, b);
        if (card->status < 0) opening->why[b] = *tutti_last_error();
    }
}

static void close_backend(struct opening *opening, uint32_t b)
{
    struct tutti_device_backend *backend = opening->backends[b];
    opening->backends[b] = NULL;
    if (backend) backend->ops->close(backend, tutti_deadline_ns(GIVE_UP_NS));
}

/* The first member whose status is a failure, -1: none. `at`: of its status in the record. */
static int32_t first_failed(const struct tutti_comm *comm, const void *first, size_t stride)
{
    for (int32_t r = 0; r < comm->size; r++)
        if (*(const int64_t *)(const void *)((const char *)first + (size_t)r * stride) < 0) return r;
    return -1;
}

/* All know that nobody goes on with it. */
static void close_unwanted(struct opening *opening, uint32_t b)
{
    struct tutti_device_backend *backend = opening->backends[b];
    if (backend && backend->ops->connected) backend->ops->connected(backend);
    close_backend(opening, b);
}

/* A back end that some member has not is nobody's. True if all have it. The others' reasons are known by their status
 * alone, so where this rank has one, it is told. */
static bool keep(struct opening *opening, uint32_t b, const int64_t *first, size_t stride)
{
    const struct tutti_comm *comm = opening->comm;
    int32_t r = first_failed(comm, first, stride);
    if (r < 0) return true;
    struct tutti_error own = opening->why[b];
    enum tutti_status status =
        (enum tutti_status) * (const int64_t *)(const void *)((const char *)first + (size_t)r * stride);
    if (own.status < 0)
        tutti_error_set(&opening->why[b], own.status, "rank %d: %s", (int)comm->rank, own.text);
    else
        tutti_error_set(&opening->why[b], status, "rank %d: %s", (int)r, tutti_status_text(status));
    close_unwanted(opening, b);
    return false;
}

/* Connects what all have opened, and keeps what all have connected. */
static enum tutti_status connect_all(struct opening *opening)
{
    int64_t outcomes[TUTTI_MAX_DEVICE_BACKENDS] = {0};
    uint32_t n = TUTTI_MAX_DEVICE_BACKENDS;
    for (uint32_t b = 0; b < n; b++) {
        if (!keep(opening, b, &opening->all->cards[b].status, sizeof(*opening->all))) continue;
        struct tutti_device_backend *backend = opening->backends[b];
        outcomes[b] = backend->ops->connect(backend, opening->all->cards[b].bytes, sizeof(*opening->all));
        if (outcomes[b] >= 0) continue;
        opening->why[b] = *tutti_last_error();
        opening->backends[b] = NULL; /* closed itself */
    }
    int64_t *all = tutti_alloc_array((size_t)opening->comm->size, sizeof(outcomes));
    enum tutti_status status = gather(opening, outcomes, sizeof(outcomes), all);
    for (uint32_t b = 0; b < n && status >= 0; b++) {
        if (opening->why[b].status < 0 && outcomes[b] >= 0) continue; /* not opened by all */
        if (!keep(opening, b, &all[b], sizeof(outcomes))) continue;
        struct tutti_device_backend *backend = opening->backends[b];
        opening->device->backends[opening->device->n++] = backend;
    }
    for (uint32_t i = 0; i < opening->device->n && status >= 0; i++) {
        struct tutti_device_backend *backend = opening->device->backends[i];
        if (backend->ops->connected) backend->ops->connected(backend);
    }
    tutti_free(all);
    return status;
}

/* A way that was named and can not be gone is a failure; where some members have no device there is but one way. */
static enum tutti_status settle(struct opening *opening)
{
    const struct tutti_comm *comm = opening->comm;
    for (uint32_t b = 0; b < TUTTI_MAX_DEVICE_BACKENDS && opening->way->own; b++) {
        const char *name = tutti_device_backends[b]->name, *only = opening->way->only;
        if (opening->why[b].status == TUTTI_OK || (only && strcmp(only, name) != 0)) continue;
        if (only)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s on rank %d: option gpu is %s, which can not be used here: %s",
                              opening->name, (int)comm->rank, only, opening->why[b].text);
        enum tutti_log_level level = opening->device->n == 0 && b == 0 ? TUTTI_LOG_WARN : TUTTI_LOG_INFO;
        tutti_log(level, "communicator %016llx: no %s%s: %s", (unsigned long long)comm->id, name,
                  level == TUTTI_LOG_WARN ? ", so that calls on device memory go through the host" : "",
                  opening->why[b].text);
    }
    return TUTTI_OK;
}

/* Own error, or that of the first rank that has one. */
static enum tutti_status refused(const struct opening *opening)
{
    const struct tutti_comm *comm = opening->comm;
    if (opening->mine.status < 0) return tutti_fail_record(&opening->failure);
    int32_t r = first_failed(comm, &opening->all->status, sizeof(*opening->all));
    if (r < 0) return TUTTI_OK;
    enum tutti_status status = (enum tutti_status)opening->all[r].status;
    return tutti_fail(status, "%s on rank %d: rank %d can not use its device: %s", opening->name, (int)comm->rank,
                      (int)r, tutti_status_text(status));
}

/* What became of it, for who wonders where memory has gone and which way calls go. */
static void tell(const struct tutti_comm *comm)
{
    const struct tutti_comm_device *device = comm->device;
    const unsigned long long id = (unsigned long long)comm->id;
    if (device->n == 0)
        tutti_log(TUTTI_LOG_INFO, "communicator %016llx, device %d, %d ranks: device memory goes through the host", id,
                  (int)device->ordinal, (int)comm->size);
    for (uint32_t b = 0; b < device->n; b++) {
        const struct tutti_device_backend_ops *ops = device->backends[b]->ops;
        char text[128] = "";
        if (ops->describe) ops->describe(device->backends[b], text, sizeof(text));
        tutti_log(TUTTI_LOG_INFO, "communicator %016llx, device %d, %d ranks: %s, %.1f MiB of scratch memory%s%s", id,
                  (int)device->ordinal, (int)comm->size, ops->name,
                  (double)ops->scratch_used(device->backends[b]) / (1 << 20), text[0] ? ", " : "", text);
    }
}

static uint32_t count_devices(const struct opening *opening)
{
    uint32_t n = 0;
    for (int32_t r = 0; r < opening->comm->size; r++) n += opening->all[r].has != 0;
    return n;
}

/* Who aborts or asks for the state looks at it meanwhile. */
static void install(struct tutti_comm *comm, struct tutti_comm_device *device)
{
    pthread_mutex_lock(&comm->lock);
    comm->device = device;
    pthread_mutex_unlock(&comm->lock);
}

/* The last step, whose outcome all compare. */
static enum tutti_status open_through(struct opening *opening)
{
    struct tutti_comm *comm = opening->comm;
    struct tutti_comm_device *device = opening->device;
    install(comm, device); /* from here on closed as a whole */
    int64_t mine = tutti_through_open(comm, &device->through);
    struct tutti_error why = *tutti_last_error();
    int64_t *all = tutti_alloc_array((size_t)comm->size, sizeof(*all));
    install(comm, NULL);
    enum tutti_status status = gather(opening, &mine, sizeof(mine), all);
    install(comm, device);
    int32_t r = status < 0 ? -1 : first_failed(comm, all, sizeof(*all));
    if (mine < 0)
        status = tutti_fail_record(&why);
    else if (r >= 0)
        status = tutti_fail((enum tutti_status)all[r], "%s on rank %d: rank %d can not use its device: %s",
                            opening->name, (int)comm->rank, (int)r, tutti_status_text((enum tutti_status)all[r]));
    tutti_free(all);
    return status;
}

/* Agrees, and leaves comm->device set where there is something to close. */
static enum tutti_status open_agreed(struct opening *opening)
{
    const struct tutti_comm *comm = opening->comm;
    TUTTI_TRY(gather(opening, &opening->mine, sizeof(opening->mine), opening->all));
    TUTTI_TRY(refused(opening));
    uint32_t n = count_devices(opening);
    if (n == 0) return TUTTI_OK;
    if (n == (uint32_t)comm->size) {
        TUTTI_TRY(connect_all(opening));
        TUTTI_TRY(settle(opening));
    } else { /* some opened what nobody will use */
        for (uint32_t b = 0; b < TUTTI_MAX_DEVICE_BACKENDS; b++) close_unwanted(opening, b);
    }
    TUTTI_TRY(open_through(opening));
    tell(comm);
    return TUTTI_OK;
}

/* Of a communicator that stays. */
static void drop(struct tutti_comm *comm)
{
    pthread_mutex_lock(&comm->lock); /* as in install */
    tutti_comm_close_device(comm, tutti_deadline_ns(GIVE_UP_NS));
    tutti_comm_free_device(comm);
    pthread_mutex_unlock(&comm->lock);
}

static void undo(struct opening *opening)
{
    struct tutti_comm *comm = opening->comm;
    struct tutti_error why = *tutti_last_error();
    if (comm->device) {
        drop(comm);
    } else {
        for (uint32_t b = 0; b < TUTTI_MAX_DEVICE_BACKENDS; b++) close_backend(opening, b);
        tutti_device_free(opening->device);
    }
    if (why.status < 0) tutti_fail_record(&why);
}

enum tutti_status tutti_comm_open_device(struct tutti_comm *comm, const char *name, int32_t wanted, bool named)
{
    struct opening opening = {.comm = comm, .name = name, .way = way_of(&comm->context->config)};
    opening.device = tutti_alloc(sizeof(*opening.device));
    if (!opening.device) return tutti_fail(TUTTI_ERR_MEMORY, "%s on rank %d: out of memory", name, (int)comm->rank);
    pthread_mutex_init(&opening.device->lock, NULL);
    opening.all = tutti_alloc_array((size_t)comm->size, sizeof(*opening.all));
    comm->n_devices++;
    open_mine(&opening, wanted, named);
    enum tutti_status status = open_agreed(&opening);
    if (status < 0 || !comm->device) undo(&opening);
    tutti_free(opening.all);
    return status;
}

/* ---- public ---- */

static enum tutti_status set_device(struct tutti_comm *comm, int32_t wanted)
{
    if (!tutti_comm_wait_device(comm, tutti_deadline_ns(atomic_load(&comm->timeout_ns))))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_set_device on rank %d: calls are in flight", (int)comm->rank);
    struct tutti_error failure;
    if (tutti_team_state(comm->team, &failure) < 0) return tutti_fail_record(&failure);
    tutti_team_wait(comm->team, TUTTI_NEVER); /* works of what is over */
    drop(comm);
    enum tutti_status status = tutti_comm_open_device(
        comm, "comm_set_device", tutti_device_resolve(&comm->context->config, wanted), wanted != TUTTI_DEVICE_AUTO);
    comm->guarded = !comm->device && tutti_gpu_in_use();
    return status;
}

enum tutti_status tutti_comm_set_device(struct tutti_comm *comm, int32_t device)
{
    TUTTI_TRY(tutti_call_alone("comm_set_device"));
    TUTTI_TRY(tutti_comm_enter(comm, "comm_set_device"));
    enum tutti_status status = set_device(comm, device);
    tutti_comm_leave(comm);
    return status;
}

int32_t tutti_comm_device(const struct tutti_comm *comm)
{
    return comm && comm->device ? comm->device->ordinal : TUTTI_DEVICE_NONE;
}
