/* SPDX-License-Identifier: BSD-3-Clause */
/* The device of a communicator: what each member has is told to all, who can reach one another opens back ends
 * together, and all compare what came of it, so that calls go the same way everywhere. */
#include "comm/call/device.h"
#include "backend/open.h"
#include "comm/call/pinned.h"

#include <string.h>

#define APART_ID UINT64_C(0x64657669636573) /* for the team that the cards travel on */
#define GIVE_UP_NS TUTTI_NS_PER_S           /* for closing what has failed */

/* ---- options ---- */

enum tutti_status tutti_device_option_check(const struct tutti_config *config)
{
    enum tutti_device_share share;
    if (tutti_device_share_named(config->text[TUTTI_OPT_gpu_share], &share)) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "option gpu_share is \"%s\" but can be auto, ipc or fd",
                      config->text[TUTTI_OPT_gpu_share]);
}

enum tutti_device_share tutti_device_share_option(const struct tutti_config *config)
{
    enum tutti_device_share share = TUTTI_DEVICE_SHARE_AUTO;
    (void)tutti_device_share_named(config->text[TUTTI_OPT_gpu_share], &share);
    return share;
}

int32_t tutti_device_resolve(const struct tutti_config *config, int64_t wanted)
{
    bool off = strcmp(config->text[TUTTI_OPT_gpu], "off") == 0;
    if (off || wanted == TUTTI_DEVICE_NONE) return TUTTI_DEVICE_NONE;
    if (wanted != TUTTI_DEVICE_AUTO) return (int32_t)wanted;
    int32_t current = tutti_device_current();
    return current < 0 ? TUTTI_DEVICE_NONE : current;
}

/* ---- opening ---- */

struct opening {
    struct tutti_comm *comm;
    const char *call;                     /* for sentences */
    const struct tutti_backend_ops *only; /* the one that the option gpu names, NULL: any */
    struct tutti_gathering gathering;
    struct tutti_comm_device *device;
};

/* A device that is merely current was not requested: if it can not be used, behave as if there were none. */
static enum tutti_status open_here(const struct opening *opening, int32_t wanted, bool named)
{
    const struct tutti_comm *comm = opening->comm;
    if (wanted == TUTTI_DEVICE_NONE) return TUTTI_OK;
    if (wanted < 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "%s on rank %d: device is %d: a device from 0 on, TUTTI_DEVICE_AUTO or TUTTI_DEVICE_NONE",
                          opening->call, (int)comm->rank, (int)wanted);
    if (tutti_device_kind()->open(wanted, &opening->device->device) < 0) {
        struct tutti_error why = *tutti_last_error();
        if (named)
            return tutti_fail(why.status, "%s on rank %d: device %d can not be used: %s", opening->call,
                              (int)comm->rank, (int)wanted, why.text);
        tutti_log(TUTTI_LOG_INFO, "device %d is current, but is not used: %s", (int)wanted, why.text);
        return TUTTI_OK;
    }
    opening->device->ordinal = wanted;
    TUTTI_TRY(tutti_pinned_create(opening->device->device, &opening->device->pinned));
    return tutti_staging_open(opening->comm, opening->device);
}

/* How many members have a device. Fails on all when one of them can not use the device that it named. */
static enum tutti_status count_devices(struct opening *opening, enum tutti_status mine, uint32_t *out)
{
    struct record { /* one member's */
        int64_t status, has;
    } own = {mine, opening->device->device != NULL};
    const struct tutti_comm *comm = opening->comm;
    struct tutti_error why = *tutti_last_error();
    uint32_t size = (uint32_t)comm->size, n = 0;
    struct record *all = tutti_alloc_array(size, sizeof(*all));
    enum tutti_status status = tutti_gathering_gather(&opening->gathering, &own, sizeof(own), all);
    int32_t r = status < 0 ? -1 : tutti_first_failed(all, sizeof(*all), size);
    if (status >= 0 && mine < 0)
        status = tutti_fail_record(&why);
    else if (r >= 0)
        status =
            tutti_fail((enum tutti_status)all[r].status, "%s on rank %d: rank %d can not use its device: %s",
                       opening->call, (int)comm->rank, (int)r, tutti_status_text((enum tutti_status)all[r].status));
    for (uint32_t i = 0; i < size && status >= 0; i++) n += all[i].has != 0;
    tutti_free(all);
    *out = n;
    return status;
}

/* Whether the option gpu lets it carry out calls. */
static bool is_allowed(const struct opening *opening, const struct tutti_backend_ops *ops)
{
    const char *wanted = opening->comm->context->config.text[TUTTI_OPT_gpu];
    return opening->only ? opening->only == ops : strcmp(wanted, "auto") == 0;
}

static bool is_for(const struct tutti_backend_ops *ops, const struct tutti_device *device)
{
    return !ops->device || ops->device == device->ops;
}

static void open_backend(const struct opening *opening, struct tutti_opening *out)
{
    struct tutti_comm *comm = opening->comm;
    const struct tutti_config *options = &comm->context->config;
    const struct tutti_device *device = opening->device->device;
    bool allowed = is_allowed(opening, out->ops);
    if (!allowed || !is_for(out->ops, device)) {
        if (allowed)
            tutti_fail(TUTTI_ERR_UNSUPPORTED, "device %d is a %s", (int)device->ordinal, device->ops->name);
        else
            tutti_fail(TUTTI_ERR_UNSUPPORTED, "option gpu is %s", options->text[TUTTI_OPT_gpu]);
        tutti_opening_skip(out);
        return;
    }
    bool ready = atomic_load(&comm->phase) == TUTTI_COMM_READY;
    struct tutti_backend_config config = {
        .host = &comm->family->backends,
        .transport = comm->family->world.transport,
        .control = comm->family->world.control,
        .members = comm->members,
        .n = (uint32_t)comm->size,
        .me = (uint32_t)comm->rank,
        .options = options,
        .device = opening->device->device,
        .team = comm->team,
        .id = comm->id,
        .nonce = comm->family->world.nonce + tutti_mix64(comm->n_devices), /* one of before may still be closing */
        .scratch_bytes = (size_t)options->number[TUTTI_OPT_gpu_scratch],
        .blocks = (uint32_t)options->number[TUTTI_OPT_gpu_blocks],
        .share = tutti_device_share_option(options),
        .timeout_ns = ready ? atomic_load(&comm->timeout_ns) : comm->create_timeout_ns,
    };
    tutti_opening_try(out, &config);
}

/* If the user named a back end that can not be used, fail, unless it is this process that has lost it. The others are
 * told in the log. */
static enum tutti_status settle(const struct opening *opening, const struct tutti_opening *b, bool first)
{
    const struct tutti_comm *comm = opening->comm;
    if (b->backend || !is_allowed(opening, b->ops)) return TUTTI_OK;
    const bool lost = b->why.status == TUTTI_ERR_ABORTED;
    if (opening->only && !lost)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s on rank %d: option gpu is %s, which can not be used here: %s",
                          opening->call, (int)comm->rank, b->ops->name, b->why.text);
    bool alone = opening->device->n == 0 && (first || opening->only) && is_for(b->ops, opening->device->device);
    tutti_log(alone ? TUTTI_LOG_WARN : TUTTI_LOG_INFO, "communicator %016llx: no %s%s: %s",
              (unsigned long long)comm->id, b->ops->name,
              alone ? ", so that calls on device memory go through the host" : "", b->why.text);
    return TUTTI_OK;
}

/* All members have devices. */
static enum tutti_status open_backends(struct opening *opening)
{
    struct tutti_opening openings[TUTTI_N_BACKENDS];
    const struct tutti_comm *comm = opening->comm;
    const struct tutti_openers openers = {(uint32_t)comm->size, (uint32_t)comm->rank, opening->call,
                                          tutti_gathering_gather, &opening->gathering};
    struct tutti_comm_device *device = opening->device;
    uint32_t n = 0;
    for (uint32_t b = 0; b < TUTTI_N_BACKENDS; b++) {
        struct tutti_opening *next = &openings[n];
        if (!tutti_backends[b]->enqueue) continue;
        *next = (struct tutti_opening){.ops = tutti_backends[b], .slots = {.stride = 1, .size = openers.n}};
        open_backend(opening, next);
        n++;
    }
    TUTTI_TRY(tutti_opening_finish(openings, n, &openers));
    for (uint32_t i = 0; i < n; i++)
        if (openings[i].backend) device->backends[device->n++] = openings[i].backend;
    for (uint32_t i = 0; i < n; i++) TUTTI_TRY(settle(opening, &openings[i], i == 0));
    return TUTTI_OK;
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
        const struct tutti_backend_ops *ops = device->backends[b]->ops;
        char text[128] = "";
        if (ops->describe) ops->describe(device->backends[b], text, sizeof(text));
        tutti_log(TUTTI_LOG_INFO, "communicator %016llx, device %d, %d ranks: %s, %.1f MiB of scratch memory%s%s", id,
                  (int)device->ordinal, (int)comm->size, ops->name,
                  (double)ops->memory_used(device->backends[b]) / (1 << 20), text[0] ? ", " : "", text);
    }
}

/* The device goes, the communicator stays. */
static void drop(struct tutti_comm *comm)
{
    pthread_mutex_lock(&comm->lock); /* a thread that aborts or asks for the state looks at it meanwhile */
    tutti_comm_close_device(comm, tutti_deadline_ns(GIVE_UP_NS));
    tutti_comm_free_device(comm);
    pthread_mutex_unlock(&comm->lock);
}

enum tutti_status tutti_comm_open_device(struct tutti_comm *comm, const char *call, int32_t wanted, bool named)
{
    struct tutti_comm_device *device = tutti_alloc(sizeof(*device));
    struct opening opening = {.comm = comm, .call = call, .gathering = {comm, call, APART_ID}, .device = device};
    opening.only = tutti_backend_find(comm->context->config.text[TUTTI_OPT_gpu], true);
    uint32_t n = 0;
    if (!device) return tutti_fail(TUTTI_ERR_MEMORY, "%s on rank %d: out of memory", call, (int)comm->rank);
    pthread_mutex_init(&device->lock, NULL);
    device->ordinal = TUTTI_DEVICE_NONE;
    comm->n_devices++;
    enum tutti_status status = count_devices(&opening, open_here(&opening, wanted, named), &n);
    if (status >= 0 && n == (uint32_t)comm->size) status = open_backends(&opening);
    struct tutti_error why = *tutti_last_error();
    pthread_mutex_lock(&comm->lock); /* as in drop */
    comm->device = device;
    pthread_mutex_unlock(&comm->lock);
    if (status >= 0 && n > 0) {
        tell(comm);
        return TUTTI_OK;
    }
    drop(comm);
    return status < 0 ? tutti_fail_record(&why) : TUTTI_OK;
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
    comm->guarded = !comm->device && tutti_device_in_use();
    return status;
}

enum tutti_status tutti_comm_set_device(struct tutti_comm *comm, int32_t device)
{
    TUTTI_TRY(tutti_call_alone("comm_set_device"));
    if (comm) TUTTI_TRY(tutti_survive_refuse(comm, "comm_set_device"));
    TUTTI_TRY(tutti_comm_enter(comm, "comm_set_device"));
    enum tutti_status status = set_device(comm, device);
    tutti_comm_leave(comm);
    return status;
}

int32_t tutti_comm_device(const struct tutti_comm *comm)
{
    if (comm && comm->survive) return comm->wanted_device; /* it is opened at the first call on its memory */
    return comm && comm->device ? comm->device->ordinal : TUTTI_DEVICE_NONE;
}

/* The end of a communicator's device: what is under way is waited for or stopped, then its back ends are closed. */

#define GIVE_UP_NS TUTTI_NS_PER_S /* for a failure to be told */
#define NAP_FIRST_NS UINT64_C(5000)
#define NAP_LONGEST_NS (500 * UINT64_C(1000))

/* Its back ends are closed, or were never opened. */
static void device_free(struct tutti_comm_device *device)
{
    tutti_device_free_events(device);
    tutti_scheduled_free(device);
    tutti_device_space_free(device);
    tutti_pinned_drop(device->pinned);
    if (device->device) device->device->ops->close(device->device);
    pthread_mutex_destroy(&device->lock);
    tutti_free(device);
}

void tutti_comm_close_device(struct tutti_comm *comm, uint64_t deadline_ns)
{
    struct tutti_comm_device *device = comm->device;
    if (!device) return;
    if (tutti_comm_wait_device(comm, deadline_ns))
        tutti_comm_hear_device(comm); /* works that are held say how it ended */
    else
        tutti_comm_stop_device(comm, false);
    pthread_mutex_lock(&device->lock); /* works that are not over are looked at, and stopped, by other threads */
    struct tutti_staging *staging = device->staging;
    uint32_t n = device->n;
    device->staging = NULL, device->n = 0;
    pthread_mutex_unlock(&device->lock);
    tutti_staging_close(staging);
    while (n > 0) {
        struct tutti_backend *backend = device->backends[--n];
        backend->ops->close(backend, deadline_ns);
    }
}

void tutti_comm_free_device(struct tutti_comm *comm)
{
    if (comm->device) device_free(comm->device);
    comm->device = NULL;
}

void tutti_comm_stop_device(struct tutti_comm *comm, bool owned)
{
    struct tutti_comm_device *device = comm->device;
    for (uint32_t b = 0; device && b < device->n; b++) device->backends[b]->ops->stop(device->backends[b]);
    if (device && device->staging) tutti_staging_stop(device->staging, owned);
}

/* Whether nothing is under way any more. What the device failed with is over, too. */
static bool is_idle(const struct tutti_comm_device *device)
{
    for (uint32_t b = 0; b < device->n; b++) {
        void *event = device->backends[b]->ops->last_event(device->backends[b]);
        if (event && device->device->ops->event_query(device->device, event) == TUTTI_PENDING) return false;
        if (device->backends[b]->ops->busy && device->backends[b]->ops->busy(device->backends[b])) return false;
    }
    void *event = tutti_device_space_event(device);
    if (event && device->device->ops->event_query(device->device, event) == TUTTI_PENDING) return false;
    if (device->pinned && atomic_load(&device->pinned->n_pending) > 0) return false;
    return !device->staging || tutti_staging_idle(device->staging);
}

bool tutti_comm_wait_device(struct tutti_comm *comm, uint64_t until_ns)
{
    for (uint64_t nap = NAP_FIRST_NS; comm->device && !is_idle(comm->device);) {
        uint64_t now = tutti_now_ns();
        if (now >= until_ns || tutti_team_failed(comm->team)) return is_idle(comm->device);
        tutti_sleep_ns(nap < until_ns - now ? nap : until_ns - now);
        if (nap < NAP_LONGEST_NS) nap *= 2;
    }
    return true;
}

bool tutti_device_has_failed(const struct tutti_comm_device *device)
{
    for (uint32_t b = 0; b < device->n; b++) {
        const struct tutti_backend_ops *ops = device->backends[b]->ops;
        if (ops->failed && ops->failed(device->backends[b])) return true;
    }
    return false;
}

void tutti_comm_hear_device(struct tutti_comm *comm)
{
    uint64_t deadline = tutti_deadline_ns(GIVE_UP_NS); /* back ends look every few milliseconds */
    while (comm->device && tutti_device_has_failed(comm->device) && !tutti_team_failed(comm->team) &&
           tutti_now_ns() < deadline)
        tutti_sleep_ns(NAP_LONGEST_NS);
}
