/* SPDX-License-Identifier: BSD-3-Clause */
/* A device back end that only writes down: see fake_backend.h. */
#include "cuda/support/fake_backend.h"

#include "comm/call/device.h"

#include <math.h>
#include <string.h>

struct fake_switches fake_switches;
static struct tutti_backend_ops fake_ops;

static enum tutti_status fake_open(const struct tutti_backend_config *config, void *card, struct tutti_backend **out)
{
    if (fake_switches.refuse_open == 1 + (int)config->me)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "rank %u has a bad day", config->me);
    struct fake *fake = tutti_alloc(sizeof(*fake));
    if (!fake) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a fake");
    fake->base.ops = &fake_ops;
    fake->config = *config;
    memcpy(card, &config->me, sizeof(config->me));
    enum tutti_status status = config->device->ops->event_create(config->device, false, &fake->event);
    if (status >= 0)
        *out = &fake->base;
    else
        tutti_free(fake);
    return status;
}

static void fake_close(struct tutti_backend *backend, uint64_t deadline_ns)
{
    struct fake *fake = (struct fake *)backend;
    (void)deadline_ns;
    if (atomic_load(&fake->n_within)) atomic_fetch_add(&fake_switches.n_closed_within, 1);
    fake->config.device->ops->event_destroy(fake->config.device, fake->event);
    tutti_free(fake);
}

/* Cards come in the order of the slots. */
static enum tutti_status fake_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct fake *fake = (struct fake *)backend;
    bool right = fake_switches.refuse_connect != 1 + (int)fake->config.me;
    for (uint32_t i = 0; i < fake->config.n; i++) {
        uint32_t me;
        memcpy(&me, (const char *)cards + i * stride, sizeof(me));
        right = right && me == i;
    }
    if (right) return TUTTI_OK;
    tutti_fail(TUTTI_ERR_UNSUPPORTED, "rank %u reaches nobody", fake->config.me);
    fake_close(backend, 0);
    return TUTTI_ERR_UNSUPPORTED;
}

static double fake_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    (void)backend;
    if (call->method && strcmp(call->method, "known") != 0) return HUGE_VAL;
    return fake_switches.refuse_kind == 1 + (int)call->info.kind ? HUGE_VAL : 1000;
}

static struct fake_entry *entry_add(struct fake *fake, enum fake_type type, void *stream)
{
    struct fake_entry *entry = &fake->entries[fake->n++ % FAKE_CALLS];
    *entry = (struct fake_entry){.type = type, .stream = stream, .n = 1};
    return entry;
}

static enum tutti_status ended(struct fake *fake, void *stream)
{
    fake->recorded = true;
    return fake->config.device->ops->event_record(fake->config.device, fake->event, stream);
}

static void write_down(struct fake *fake, enum fake_type type, const struct tutti_backend_call *call, size_t n,
                       void *stream)
{
    struct fake_entry *entry = entry_add(fake, type, stream);
    entry->kind = call->info.kind, entry->seq = call->seq, entry->count = call->info.count, entry->n = n;
    entry->known = call->method && strcmp(call->method, "known") == 0;
    entry->input = call->bind.input, entry->output = call->bind.output;
}

static enum tutti_status fake_enqueue(struct tutti_backend *backend, const struct tutti_backend_call *call,
                                      void *stream)
{
    struct fake *fake = (struct fake *)backend;
    if (fake_switches.fail_enqueue) return tutti_fail(TUTTI_ERR_MEMORY, "the fake has no memory");
    write_down(fake, FAKE_CALL, call, 1, stream);
    return ended(fake, stream);
}

static enum tutti_status fake_messages(struct tutti_backend *backend, const struct tutti_backend_message *messages,
                                       size_t n, void *stream, uint64_t timeout_ns)
{
    struct fake *fake = (struct fake *)backend;
    struct fake_entry *entry = entry_add(fake, FAKE_MESSAGES, stream);
    entry->n = n, entry->count = timeout_ns;
    for (size_t i = 0; i < n && i < TUTTI_ARRAY_LEN(entry->messages); i++) entry->messages[i] = messages[i];
    return ended(fake, stream);
}

static enum tutti_status fake_batch(struct tutti_backend *backend, const struct tutti_backend_call *calls, size_t n,
                                    void *stream)
{
    struct fake *fake = (struct fake *)backend;
    for (size_t i = 0; i < n; i++) write_down(fake, FAKE_BATCH, &calls[i], n - i, stream);
    return ended(fake, stream);
}

static void linger(struct fake *fake)
{
    if (!fake_switches.lingers) return;
    atomic_fetch_add(&fake->n_within, 1);
    atomic_fetch_add(&fake->n_entered, 1);
    tutti_sleep_ns(50 * TUTTI_NS_PER_MS);
    atomic_fetch_sub(&fake->n_within, 1);
}

static void fake_stop(struct tutti_backend *backend)
{
    struct fake *fake = (struct fake *)backend;
    fake->n_stops++;
    linger(fake);
}

static void *fake_last_event(struct tutti_backend *backend)
{
    struct fake *fake = (struct fake *)backend;
    return fake->recorded ? fake->event : NULL;
}

static bool fake_failed(struct tutti_backend *backend)
{
    linger((struct fake *)backend);
    return fake_switches.reports_failure;
}

static size_t fake_scratch_used(const struct tutti_backend *backend)
{
    (void)backend;
    return 0;
}

static struct tutti_backend_ops fake_ops = {.name = "cuda",
                                            .help = "writes down what it is given",
                                            .card_bytes = sizeof(uint32_t),
                                            .open = fake_open,
                                            .connect = fake_connect,
                                            .close = fake_close,
                                            .score = fake_score,
                                            .enqueue = fake_enqueue,
                                            .messages = fake_messages,
                                            .stop = fake_stop,
                                            .last_event = fake_last_event,
                                            .memory_used = fake_scratch_used,
                                            .failed = fake_failed};

static const struct tutti_backend_ops *real;

void fake_install(void)
{
    real = tutti_backends[TUTTI_BACKEND_cuda];
    fake_ops.batch = fake_switches.batches ? fake_batch : NULL;
    tutti_backends[TUTTI_BACKEND_cuda] = &fake_ops;
}

void fake_remove(void)
{
    tutti_backends[TUTTI_BACKEND_cuda] = real;
    memset(&fake_switches, 0, sizeof(fake_switches));
}

struct fake *fake_of(const struct tutti_comm *comm)
{
    return comm->device && comm->device->n > 0 ? (struct fake *)comm->device->backends[0] : NULL;
}
