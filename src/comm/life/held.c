/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on memory of devices, of communicators that survive. The stream copies the input to pinned memory and stops; a
 * thread of the communicator carries the call out there, as on host memory, however often; when it is decided the
 * stream goes on, and copies the result to where it belongs. So what is behind the call on the stream sees a decided
 * result, and an input is intact as long as the call may have to be done again. */

#include "comm/life/survive.h"

#include "comm/call/pinned.h"

#include <string.h>

#define NAP_FIRST_NS UINT64_C(5000)
#define NAP_LONGEST_NS (200 * UINT64_C(1000))

struct tutti_held {
    struct tutti_pinned *pinned;
    void *arrived, *over; /* events: the input is here, the result is there */
    uint32_t number;      /* the word's, when the stream may go on */
    void *restored;       /* in place: where the result goes, and the input that is there again if there is none */
    const void *input;
    size_t bytes;
};

struct copies {
    struct tutti_device *device;
    void *stream;
    char *pinned;
    bool in;
};

static enum tutti_status copy(void *arg, char *device, size_t at, size_t bytes)
{
    const struct copies *c = arg;
    char *here = c->pinned + at;
    return c->device->ops->copy(c->device, c->in ? here : device, c->in ? device : here, bytes, c->stream);
}

static enum tutti_status device_check(const struct tutti_survive *s, const struct tutti_call *call, int32_t device)
{
    const void *buffers[] = {call->job.bind.input, call->job.bind.output};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(buffers); i++)
        if (buffers[i] && tutti_device_of(buffers[i]) != device)
            return tutti_call_fail(call, TUTTI_ERR_ARGUMENT, "one buffer is memory of device %d, the other is not",
                                   (int)device);
    if (s->comm->wanted_device == TUTTI_DEVICE_NONE)
        return tutti_call_fail(call, TUTTI_ERR_ARGUMENT,
                               "the buffer is memory of device %d, but the communicator has no device", (int)device);
    return TUTTI_OK;
}

enum tutti_status tutti_held_open(struct tutti_survive *s, int32_t device)
{
    const struct tutti_device like = {.ops = tutti_device_kind(), .ordinal = device};
    if (s->pinned && s->pinned->device->ordinal != device)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "calls were on device %d before", (int)s->pinned->device->ordinal);
    if (s->pinned) return TUTTI_OK;
    TUTTI_TRY(tutti_pinned_create(&like, &s->pinned));
    const enum tutti_status status = tutti_pinned_take(s->pinned, sizeof(*s->word), &s->word_at);
    if (status < 0) {
        tutti_pinned_drop(s->pinned);
        s->pinned = NULL;
        return status;
    }
    s->word = (_Atomic uint32_t *)(void *)s->word_at->at;
    atomic_store(s->word, 0);
    return TUTTI_OK;
}

void tutti_held_close(struct tutti_survive *s)
{
    if (!s->pinned) return;
    atomic_store(s->word, (uint32_t)tutti_comm_sequence(s->comm) + 1); /* one may have failed half way */
    tutti_pinned_give(s->pinned, s->word_at);
    tutti_pinned_drop(s->pinned);
    s->pinned = NULL;
}

static void held_free(struct tutti_survive *s, struct tutti_held *held)
{
    struct tutti_device *dev = s->pinned->device;
    if (held->arrived) dev->ops->event_destroy(dev, held->arrived);
    if (held->over) dev->ops->event_destroy(dev, held->over);
    tutti_pinned_give(s->pinned, held->pinned);
    tutti_free(held);
}

/* From the first copy on the stream may be using the memory; when something fails then, it is left to it. */
static enum tutti_status enqueue(struct tutti_survive *s, const struct tutti_call *call, struct tutti_held *held)
{
    struct tutti_device *dev = s->pinned->device;
    void *stream = call->options.stream;
    struct copies copies = {.device = dev, .stream = stream, .pinned = held->pinned->at, .in = true};
    TUTTI_TRY(tutti_pinned_each(call, TUTTI_PINNED_IN, NULL, copy, &copies));
    TUTTI_TRY(dev->ops->event_record(dev, held->arrived, stream));
    TUTTI_TRY(dev->ops->stream_wait_word(dev, stream, (const uint32_t *)(const void *)s->word_at->at, held->number));
    copies.in = false;
    TUTTI_TRY(tutti_pinned_each(call, TUTTI_PINNED_OUT, NULL, copy, &copies));
    return dev->ops->event_record(dev, held->over, stream);
}

/* Its number from the first copy on. */
static enum tutti_status hold(struct tutti_survive *s, struct tutti_call *call, uint64_t number,
                              struct tutti_held *held)
{
    struct tutti_device *dev = s->pinned->device;
    const size_t bytes = tutti_pinned_bytes(call);
    if (bytes == SIZE_MAX) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "its blocks are more than there is memory");
    TUTTI_TRY(tutti_pinned_take(s->pinned, bytes, &held->pinned));
    TUTTI_TRY(dev->ops->event_create(dev, false, &held->arrived));
    TUTTI_TRY(dev->ops->event_create(dev, false, &held->over));
    held->number = (uint32_t)number;
    return enqueue(s, call, held);
}

enum tutti_status tutti_held_may(struct tutti_survive *s, const struct tutti_call *call)
{
    const void *any = call->job.bind.input ? call->job.bind.input : call->job.bind.output;
    const int32_t device = tutti_device_of(any);
    uint64_t capture = 0;
    TUTTI_TRY(device_check(s, call, device));
    if (s->pinned && s->pinned->device->ordinal != device)
        return tutti_call_fail(call, TUTTI_ERR_ARGUMENT,
                               "the buffer is memory of device %d, but the calls before were "
                               "on device %d",
                               (int)device, (int)s->pinned->device->ordinal);
    TUTTI_TRY(tutti_held_open(s, device));
    TUTTI_TRY(tutti_device_capturing(s->pinned->device, call->options.stream, &capture));
    if (!capture) return TUTTI_OK;
    return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED,
                           "a communicator that survives can not be captured in a graph: it holds the stream until "
                           "the call is decided");
}

enum tutti_status tutti_held_begin(struct tutti_survive *s, struct tutti_call *call, uint64_t number,
                                   struct tutti_held **out)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_held_may(s, call));
    struct tutti_held *held = tutti_alloc(sizeof(*held));
    if (!held) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for a call on a device");
    enum tutti_status status = tutti_device_enter(s->pinned->device, &scope);
    if (status >= 0) {
        status = hold(s, call, number, held);
        tutti_device_leave(s->pinned->device, &scope);
    }
    if (status < 0) {
        struct tutti_error why = *tutti_last_error();
        if (!held->number) held_free(s, held); /* else the stream may be using it */
        return tutti_fail_record(&why);
    }
    held->bytes = tutti_survive_overwritten(call);
    const size_t from =
        held->bytes ? (size_t)((const char *)call->job.bind.output - (const char *)call->job.bind.input) : 0;
    tutti_pinned_put(call, held->pinned->at);
    call->staged = true;
    held->restored = call->job.bind.output;
    held->input = (const char *)call->job.bind.input + from;
    *out = held;
    return TUTTI_OK;
}

/* Until the stream has come to the event. */
static enum tutti_status event_wait(const struct tutti_survive *s, void *event)
{
    struct tutti_device *dev = s->pinned->device;
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_device_enter(dev, &scope));
    enum tutti_status status;
    for (uint64_t nap = NAP_FIRST_NS; (status = dev->ops->event_query(dev, event)) == TUTTI_PENDING;
         nap = nap < NAP_LONGEST_NS ? 2 * nap : nap) {
        if (atomic_load(&s->is_aborted)) break;
        tutti_sleep_ns(nap);
    }
    tutti_device_leave(dev, &scope);
    return status;
}

enum tutti_status tutti_held_await(const struct tutti_survive *s, const struct tutti_held *held)
{
    return event_wait(s, held->arrived);
}

void tutti_held_release(struct tutti_survive *s, struct tutti_held *held, bool failed)
{
    if (failed && held->bytes > 0) memcpy(held->restored, held->input, held->bytes);
    atomic_store_explicit(s->word, held->number, memory_order_release);
}

void tutti_held_end(struct tutti_survive *s, struct tutti_held *held)
{
    struct tutti_error before = *tutti_last_error();
    const enum tutti_status status = event_wait(s, held->over);
    if (status == TUTTI_OK) held_free(s, held); /* else the stream may use it still */
    if (before.status < 0) tutti_fail_record(&before);
}
