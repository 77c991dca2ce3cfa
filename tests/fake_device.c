/* SPDX-License-Identifier: BSD-3-Clause */
/* One lock guards the streams' queues and the events; one condition tells of every change. */
#include "fake_device.h"
#include "fake_memory.h"

#include "device/cpu/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATE_NS UINT64_C(30000)
#define WORD_NS UINT64_C(20000)

_Thread_local int32_t fake_device_current = -1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* held while a device is opened or closed */

/* ---- streams: a thread each, which takes jobs from a queue ---- */

struct event {
    uint64_t recorded, over; /* generations: how often it was recorded; the last one that came to pass */
    uint64_t ns;
    uint32_t users; /* holders, and jobs that name it */
};

struct job {
    struct job *next;
    void (*run)(struct job *job);
    void *dst;
    const void *src;
    size_t size;
    struct tutti_fold fold;
    unsigned char factor[16];
    void (*function)(void *arg);
    struct event *event;
    uint64_t generation;
    const uint32_t *word;
    uint32_t value;
};

struct stream {
    struct stream *next; /* in the device's list */
    struct job *first, **end;
    uint64_t enqueued, over;
    bool ends;
    pthread_t thread;
};

struct fake {
    struct tutti_device base;
    uint32_t n_opens;
    struct stream *streams; /* the default one is the last */
};
static struct fake devices[FAKE_DEVICES];

static void *serve(void *arg)
{
    struct stream *stream = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!stream->first && !stream->ends) pthread_cond_wait(&changed, &lock);
        struct job *job = stream->first;
        if (!job) break;
        stream->first = job->next;
        if (!stream->first) stream->end = &stream->first;
        pthread_mutex_unlock(&lock);
        tutti_sleep_ns(LATE_NS);
        job->run(job);
        free(job);
        pthread_mutex_lock(&lock);
        stream->over++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static struct stream *stream_open(struct fake *fake)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    if (!stream) return NULL;
    stream->end = &stream->first;
    if (pthread_create(&stream->thread, NULL, serve, stream) != 0) {
        free(stream);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    stream->next = fake->streams, fake->streams = stream;
    pthread_mutex_unlock(&lock);
    return stream;
}

/* Under the lock. What is enqueued comes to pass. */
static void stream_close(struct fake *fake, struct stream *stream)
{
    struct stream **at = &fake->streams;
    while (*at && *at != stream) at = &(*at)->next;
    if (*at) *at = stream->next;
    stream->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    pthread_mutex_lock(&lock);
}

/* Under the lock. */
static struct stream *stream_of(struct tutti_device *device, void *handle)
{
    struct stream *last = ((struct fake *)device)->streams;
    if (handle) return handle;
    while (last->next) last = last->next;
    return last;
}

static enum tutti_status enqueue(struct tutti_device *device, void *handle, const struct job *what)
{
    struct job *job = malloc(sizeof(*job));
    if (!job) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a job of fake device %d", (int)device->ordinal);
    *job = *what;
    pthread_mutex_lock(&lock);
    struct stream *stream = stream_of(device, handle);
    if (job->event) job->event->users++;
    *stream->end = job, stream->end = &job->next;
    stream->enqueued++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return TUTTI_OK;
}

/* Under the lock: until all that is enqueued on the stream by now is over. */
static void drain(const struct stream *stream)
{
    uint64_t until = stream->enqueued;
    while (stream->over < until) pthread_cond_wait(&changed, &lock);
}

static enum tutti_status fake_stream_create(struct tutti_device *device, void **out)
{
    struct stream *stream = stream_open((struct fake *)device);
    if (!stream) return tutti_fail(TUTTI_ERR_SYSTEM, "no thread for a stream of fake device %d", (int)device->ordinal);
    *out = stream;
    return TUTTI_OK;
}

static void fake_stream_destroy(struct tutti_device *device, void *stream)
{
    if (!stream) return;
    pthread_mutex_lock(&lock);
    stream_close((struct fake *)device, stream);
    pthread_mutex_unlock(&lock);
}

static enum tutti_status fake_stream_sync(struct tutti_device *device, void *stream)
{
    pthread_mutex_lock(&lock);
    drain(stream_of(device, stream));
    pthread_mutex_unlock(&lock);
    return TUTTI_OK;
}

/* Under the lock. */
static bool is_busy(const struct fake *fake)
{
    for (const struct stream *s = fake->streams; s; s = s->next)
        if (s->over < s->enqueued) return true;
    return false;
}

/* Waits for all that runs on the device, as the contract lets it. */
static void fake_free(struct tutti_device *device, void *pointer)
{
    if (!pointer) return;
    pthread_mutex_lock(&lock);
    while (is_busy((struct fake *)device)) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    fake_give_back(device, pointer);
}

/* ---- what streams do ---- */

static void run_copy(struct job *job)
{
    if (job->size) memmove(fake_bytes(job->dst, job->size), fake_bytes(job->src, job->size), job->size);
}

static enum tutti_status fake_copy(struct tutti_device *device, void *dst, const void *src, size_t size, void *stream)
{
    return enqueue(device, stream, &(struct job){.run = run_copy, .dst = dst, .src = src, .size = size});
}

static void run_call(struct job *job)
{
    job->function(job->dst);
}

static enum tutti_status fake_host_call(struct tutti_device *device, void *stream, void (*function)(void *arg),
                                        void *arg)
{
    return enqueue(device, stream, &(struct job){.run = run_call, .function = function, .dst = arg});
}

static void run_fold(struct job *job)
{
    const struct tutti_fold *f = &job->fold;
    const size_t size = f->n * tutti_dtype_bytes(f->dtype);
    struct tutti_fold fold = *f;
    fold.dst = fake_bytes(f->dst, size), fold.left = fake_bytes(f->left, size);
    if (f->right) fold.right = fake_bytes(f->right, size);
    if (f->factor) fold.factor = job->factor;
    (void)tutti_fold_on_cpu(&fold);
}

static enum tutti_status fake_fold(struct tutti_device *device, const struct tutti_fold *fold, void *stream)
{
    const char *refusal = tutti_reduce_refusal(fold->dtype, fold->op);
    if (refusal) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", refusal);
    struct job job = {.run = run_fold, .fold = *fold};
    if (fold->factor) memcpy(job.factor, fold->factor, tutti_dtype_bytes(fold->dtype));
    return enqueue(device, stream, &job);
}

static void run_word(struct job *job)
{
    const _Atomic uint32_t *at = (const _Atomic uint32_t *)(const void *)job->word;
    while ((int32_t)(atomic_load(at) - job->value) < 0) tutti_sleep_ns(WORD_NS);
}

static enum tutti_status fake_wait_word(struct tutti_device *device, void *stream, const uint32_t *word, uint32_t value)
{
    return enqueue(device, stream, &(struct job){.run = run_word, .word = word, .value = value});
}

/* ---- events: a record is a generation, which is over when its stream has come to it ---- */

/* Under the lock. */
static void event_drop(struct event *event)
{
    if (--event->users == 0) free(event);
}

static void run_record(struct job *job)
{
    pthread_mutex_lock(&lock);
    struct event *event = job->event;
    if (job->generation > event->over) event->over = job->generation;
    event->ns = tutti_now_ns();
    event_drop(event);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void run_wait(struct job *job)
{
    pthread_mutex_lock(&lock);
    while (job->event->over < job->generation) pthread_cond_wait(&changed, &lock);
    event_drop(job->event);
    pthread_mutex_unlock(&lock);
}

static enum tutti_status fake_event_create(struct tutti_device *device, bool timed, void **out)
{
    struct event *event = calloc(1, sizeof(*event));
    (void)timed;
    if (!event) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an event of fake device %d", (int)device->ordinal);
    event->users = 1;
    *out = event;
    return TUTTI_OK;
}

static void fake_event_destroy(struct tutti_device *device, void *event)
{
    (void)device;
    if (!event) return;
    pthread_mutex_lock(&lock);
    event_drop(event);
    pthread_mutex_unlock(&lock);
}

static enum tutti_status fake_event_record(struct tutti_device *device, void *handle, void *stream)
{
    struct event *event = handle;
    pthread_mutex_lock(&lock);
    uint64_t generation = ++event->recorded;
    pthread_mutex_unlock(&lock);
    return enqueue(device, stream, &(struct job){.run = run_record, .event = event, .generation = generation});
}

static enum tutti_status fake_stream_wait(struct tutti_device *device, void *stream, void *handle)
{
    struct event *event = handle;
    pthread_mutex_lock(&lock);
    uint64_t generation = event->recorded;
    pthread_mutex_unlock(&lock);
    return enqueue(device, stream, &(struct job){.run = run_wait, .event = event, .generation = generation});
}

static enum tutti_status fake_event_query(struct tutti_device *device, void *handle)
{
    const struct event *event = handle;
    (void)device;
    pthread_mutex_lock(&lock);
    bool over = event->over == event->recorded;
    pthread_mutex_unlock(&lock);
    return over ? TUTTI_OK : TUTTI_PENDING;
}

static enum tutti_status fake_elapsed(struct tutti_device *device, void *from, void *to, double *us)
{
    (void)device;
    pthread_mutex_lock(&lock);
    *us = (double)(((struct event *)to)->ns - ((struct event *)from)->ns) / 1e3;
    pthread_mutex_unlock(&lock);
    return TUTTI_OK;
}

/* ---- which devices there are ---- */

static const char *fake_absence(void)
{
    return NULL;
}

static uint32_t fake_count(void)
{
    return FAKE_DEVICES;
}

static int fake_driver_version(void)
{
    return 1;
}

static const char *fake_built_for(void)
{
    return "";
}

static enum tutti_status fake_facts(int32_t ordinal, struct tutti_device_facts *out)
{
    if (ordinal < 0 || ordinal >= FAKE_DEVICES)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no fake device %d: there are %d", (int)ordinal,
                          FAKE_DEVICES);
    *out =
        (struct tutti_device_facts){.uuid = {0xfa, 0x4e, (unsigned char)ordinal}, .n_sms = 1, .memory_bytes = 1 << 30};
    snprintf(out->name, sizeof(out->name), "fake %d", (int)ordinal);
    return TUTTI_OK;
}

static bool fake_reaches(int32_t ordinal, int32_t other)
{
    return ordinal == other;
}

static enum tutti_status fake_open(int32_t ordinal, struct tutti_device **out)
{
    struct tutti_device_facts facts;
    TUTTI_TRY(fake_facts(ordinal, &facts));
    struct fake *fake = &devices[ordinal];
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    bool first = fake->n_opens++ == 0;
    if (first) {
        fake->base = (struct tutti_device){.ops = &fake_device, .ordinal = ordinal, .n_sms = facts.n_sms};
        memcpy(fake->base.name, facts.name, sizeof(facts.name));
        memcpy(fake->base.uuid, facts.uuid, sizeof(facts.uuid));
    }
    pthread_mutex_unlock(&lock);
    if (first && !stream_open(fake)) abort();
    pthread_mutex_unlock(&opening);
    *out = &fake->base;
    return TUTTI_OK;
}

/* The last one ends the default stream: others were destroyed before. */
static void fake_close(struct tutti_device *device)
{
    struct fake *fake = (struct fake *)device;
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    if (--fake->n_opens == 0)
        while (fake->streams) stream_close(fake, fake->streams);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&opening);
}

static int32_t fake_current(void)
{
    return fake_device_current;
}

static bool fake_in_use(void)
{
    bool used = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FAKE_DEVICES; i++) used |= devices[i].n_opens > 0;
    pthread_mutex_unlock(&lock);
    return used;
}

const struct tutti_device_ops fake_device = {
    .name = "fake",
    .absence = fake_absence,
    .count = fake_count,
    .driver_version = fake_driver_version,
    .built_for = fake_built_for,
    .facts = fake_facts,
    .reaches = fake_reaches,
    .open = fake_open,
    .close = fake_close,
    .current = fake_current,
    .in_use = fake_in_use,
    .of = fake_of,
    .alloc = fake_alloc,
    .alloc_shared = fake_alloc_shared,
    .free = fake_free,
    .alloc_host = fake_alloc_host,
    .free_host = fake_free_host,
    .set = fake_set,
    .copy_now = fake_copy_now,
    .holds = fake_holds,
    .stream_create = fake_stream_create,
    .stream_destroy = fake_stream_destroy,
    .stream_sync = fake_stream_sync,
    .stream_wait = fake_stream_wait,
    .stream_wait_word = fake_wait_word,
    .copy = fake_copy,
    .host_call = fake_host_call,
    .fold = fake_fold,
    .event_create = fake_event_create,
    .event_destroy = fake_event_destroy,
    .event_record = fake_event_record,
    .event_query = fake_event_query,
    .elapsed = fake_elapsed,
};
