/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on memory of devices that reach one another, of communicators that survive. A communicator of the view that has
 * the devices enqueues the call as any other, and a gate behind it (device/gate.h). While all live nobody waits on the
 * host: whoever passes a gate knows that all have the result, and the thread of the calls (turns.c) only follows. Where
 * a member dies the streams stand at their gates; the thread makes call after call good, through pinned memory and
 * among those who are left, and opens the gates one by one.
 *
 * Which calls go so is the same on all members: it follows from the call, and from its number. After a change of the
 * view calls go through the host, up to the last one that any member had made then (tutti_gated_change); behind it the
 * members make the next communicator, when no gate is closed, since drivers may wait for what stands there. */

#include "comm/call/device.h"
#include "comm/call/pinned.h"
#include "comm/life/survive.h"
#include "device/gate.h"

#include <math.h>
#include <string.h>

#define NAP_FIRST_NS UINT64_C(2000)
#define NAP_LONGEST_NS (200 * UINT64_C(1000))
#define SAVE_UNIT ((size_t)2 << 20)

/* Device memory for what a call overwrites of its own input. */
struct tutti_gated_save {
    struct tutti_gated_save *next;
    char *at;
    size_t bytes;
};

/* ---- which calls ---- */

#define KINDS                                                                                                          \
    (1u << TUTTI_ALL_REDUCE | 1u << TUTTI_REDUCE | 1u << TUTTI_BROADCAST | 1u << TUTTI_ALL_GATHER |                    \
     1u << TUTTI_GATHER | 1u << TUTTI_REDUCE_SCATTER)

bool tutti_gated_takes(const struct tutti_survive *s, const struct tutti_call *call)
{
    const struct tutti_call_info *info = &call->job.info;
    const char *wanted = call->options.algorithm;
    return s->gates.all && KINDS >> info->kind & 1 && !call->job.bind.v && call->job.bind.count > 0 &&
           !call->options.wire && !call->job.bind.user && info->op != TUTTI_PREMUL_SUM &&
           (!wanted || tutti_backend_find(wanted, true));
}

static int32_t rank_in(const struct tutti_gates *g, int32_t rank)
{
    for (int32_t i = 0; i < g->comm->size; i++)
        if (g->ranks[i] == (uint32_t)rank) return i;
    return -1;
}

/* As the device carries it out, into *out; false: it does not. Equal on all members. */
static bool fill(struct tutti_survive *s, const struct tutti_call *call, struct tutti_call *out)
{
    struct tutti_gates *g = &s->gates;
    const struct tutti_call_info *info = &call->job.info;
    const struct tutti_kind_info *kind = tutti_kind_info(info->kind);
    const int32_t root = kind->rooted ? rank_in(g, info->root) : 0;
    if (root < 0 || (kind->block_a_slot && g->comm->size < s->comm->size)) return false;
    tutti_call_set(out, info->kind, info->dtype, info->op, root, call->job.bind.count, call->job.bind.input,
                   call->job.bind.output);
    tutti_call_begin(out, g->comm, NULL);
    out->options = call->options;
    atomic_store_explicit(&g->comm->timeout_ns, atomic_load_explicit(&s->comm->timeout_ns, memory_order_relaxed),
                          memory_order_relaxed);
    tutti_call_ready(out);
    if (call->options.algorithm && !tutti_backend_is_named(g->backend->ops, call->options.algorithm, &out->job.method))
        return false;
    const struct tutti_backend_gate gate = {g->words, 0};
    out->job.gate = &gate;
    if (g->known != out->job.info.signature || out->job.method) {
        if (!(g->backend->ops->score(g->backend, &out->job) < HUGE_VAL)) return false;
        g->known = out->job.info.signature;
    }
    out->job.gate = NULL;
    return true;
}

bool tutti_gated_await_turn(struct tutti_survive *s, const struct tutti_call *call)
{
    struct tutti_gates *g = &s->gates;
    if (!tutti_gated_takes(s, call)) return false;
    if (g->state == TUTTI_GATES_WANTED) {
        g->state = TUTTI_GATES_CHANGE;
        g->after = tutti_comm_sequence(s->comm) + 1;
        g->is_known = true;
    }
    while (g->state == TUTTI_GATES_CHANGE && !(g->is_known && tutti_comm_sequence(s->comm) < g->after) && !s->has_ended)
        pthread_cond_wait(&s->changed, &s->lock);
    return g->state == TUTTI_GATES_OPEN && !s->has_ended;
}

/* ---- a call ---- */

static struct tutti_device *device_of(const struct tutti_survive *s)
{
    return s->pinned->device;
}

static enum tutti_status save_for(struct tutti_survive *s, const struct tutti_call *call, size_t bytes,
                                  struct tutti_gated_save **out)
{
    struct tutti_gates *g = &s->gates;
    if (!g->saves || g->saves->bytes < bytes) {
        struct tutti_gated_save *next = tutti_alloc(sizeof(*next));
        void *at = NULL;
        const size_t rounded = (bytes + SAVE_UNIT - 1) / SAVE_UNIT * SAVE_UNIT;
        if (!next || device_of(s)->ops->alloc(device_of(s), rounded, &at) < 0) {
            tutti_free(next);
            return tutti_call_fail(call, TUTTI_ERR_MEMORY, "no memory of the device to save %zu bytes of the input",
                                   bytes);
        }
        *next = (struct tutti_gated_save){g->saves, at, rounded};
        g->saves = next;
    }
    *out = g->saves;
    return TUTTI_OK;
}

static void saves_free(struct tutti_survive *s)
{
    while (s->gates.saves) {
        struct tutti_gated_save *save = s->gates.saves;
        s->gates.saves = save->next;
        device_of(s)->ops->free(device_of(s), save->at);
        tutti_free(save);
    }
}

/* What the stream does: comes behind the call before, which another stream may have had, and saves; the call; the
 * gate. */
static enum tutti_status enqueue_on(struct tutti_survive *s, struct tutti_call *inner, struct tutti_gated *gated)
{
    struct tutti_gates *g = &s->gates;
    struct tutti_device *dev = device_of(s);
    void *stream = inner->options.stream, *last = g->backend->ops->last_event(g->backend);
    if (gated->saved > 0) {
        if (last && stream != g->stream) TUTTI_TRY(dev->ops->stream_wait(dev, stream, last));
        TUTTI_TRY(dev->ops->copy(dev, gated->save->at, inner->job.bind.output, gated->saved, stream));
    }
    const struct tutti_backend_gate gate = {g->words, gated->number};
    inner->job.gate = &gate;
    tutti_comm_turn_take(g->comm);
    const enum tutti_status status = tutti_device_enqueue(g->comm, g->backend, tutti_call_job(inner), stream);
    tutti_comm_turn_give(g->comm);
    inner->job.gate = NULL;
    g->stream = stream;
    return status;
}

enum tutti_status tutti_gated_enqueue(struct tutti_survive *s, const struct tutti_call *call, uint64_t number,
                                      struct tutti_gated *gated)
{
    struct tutti_device_scope scope;
    struct tutti_call inner;
    if (!fill(s, call, &inner)) return TUTTI_AGAIN;
    TUTTI_TRY(tutti_held_may(s, call));
    gated->saved = tutti_survive_overwritten(call);
    gated->output = call->job.bind.output;
    TUTTI_TRY(tutti_device_enter(device_of(s), &scope));
    enum tutti_status status = TUTTI_OK;
    if (s->n_by_host > s->n_over) /* one that is not over goes through the host */
        status = device_of(s)->ops->stream_wait_word(
            device_of(s), inner.options.stream, (const uint32_t *)(const void *)s->word_at->at, (uint32_t)s->n_by_host);
    if (status >= 0 && gated->saved > 0) status = save_for(s, call, gated->saved, &gated->save);
    if (status < 0) {
        tutti_device_leave(device_of(s), &scope);
        return status;
    }
    gated->number = number;
    status = enqueue_on(s, &inner, gated);
    tutti_device_leave(device_of(s), &scope);
    if (status >= 0) return TUTTI_OK;
    gated->is_lost = true; /* the members find out why together; the stream is held as for any call */
    gated->why = *tutti_last_error();
    return TUTTI_AGAIN;
}

/* ---- following ---- */

/* The device's words, since the driver may keep who asks it waiting; a device that failed writes none. */
static bool has_failed(const struct tutti_survive *s)
{
    const struct tutti_gates *g = &s->gates;
    struct tutti_device_scope scope;
    void *event = g->backend->ops->last_event(g->backend);
    if (tutti_device_enter(device_of(s), &scope) < 0) return true;
    const bool failed = event && device_of(s)->ops->event_query(device_of(s), event) < 0;
    tutti_device_leave(device_of(s), &scope);
    return failed;
}

uint64_t tutti_gated_passed(const struct tutti_survive *s)
{
    return s->gates.words ? __atomic_load_n(&s->gates.words->passed, __ATOMIC_ACQUIRE) : 0;
}

/* Why the communicator of the devices ended: its watch tells soon. */
static void hear_why(struct tutti_survive *s, struct tutti_gated *gated)
{
    tutti_comm_hear_device(s->gates.comm);
    if (tutti_team_state(s->gates.comm->team, &gated->why) >= 0)
        tutti_error_set(&gated->why, TUTTI_ERR_INTERNAL, "a gate is closed, and nobody knows why");
}

/* ---- making good ---- */

struct copies {
    struct tutti_survive *s;
    char *pinned;
    bool in;
};

static enum tutti_status copy(void *arg, char *device, size_t at, size_t bytes)
{
    const struct copies *c = arg;
    struct tutti_device *dev = device_of(c->s);
    char *here = c->pinned + at;
    return dev->ops->copy(dev, c->in ? here : device, c->in ? device : here, bytes, c->s->gates.own);
}

static enum tutti_status copy_all(struct tutti_survive *s, const struct tutti_gated *gated, bool in)
{
    struct copies copies = {s, gated->pinned->at, in};
    TUTTI_TRY(tutti_pinned_each(gated->device, in ? TUTTI_PINNED_IN : TUTTI_PINNED_OUT, NULL, copy, &copies));
    return device_of(s)->ops->stream_sync(device_of(s), s->gates.own);
}

/* What the call has overwritten of its own input is there again. The stream stands at the gate. */
static enum tutti_status restore(struct tutti_survive *s, const struct tutti_gated *gated)
{
    struct tutti_device *dev = device_of(s);
    if (gated->saved == 0) return TUTTI_OK;
    TUTTI_TRY(dev->ops->copy(dev, gated->output, gated->save->at, gated->saved, s->gates.own));
    return dev->ops->stream_sync(dev, s->gates.own);
}

/* The call's buffers are pinned copies from now on. Where this rank has the result it stays as it is: either all have
 * it, or it is made again, from the input that was saved. */
static enum tutti_status stage(struct tutti_survive *s, struct tutti_gated *gated, struct tutti_call *call)
{
    const size_t bytes = tutti_pinned_bytes(call), from = gated->saved;
    struct tutti_device_scope scope;
    gated->device = tutti_alloc(sizeof(*call));
    if (!gated->device) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "no memory to make the call good");
    *gated->device = *call;
    TUTTI_TRY(tutti_pinned_take(s->pinned, bytes, &gated->pinned));
    TUTTI_TRY(tutti_device_enter(device_of(s), &scope));
    enum tutti_status status = copy_all(s, gated, true);
    tutti_pinned_put(call, gated->pinned->at);
    call->staged = true;
    if (status >= 0 && from > 0) {
        const char *out = gated->device->job.bind.output, *in = gated->device->job.bind.input;
        char *to = (char *)(uintptr_t)call->job.bind.input + (out - in);
        status = device_of(s)->ops->copy(device_of(s), to, gated->save->at, gated->saved, s->gates.own);
        if (status >= 0) status = device_of(s)->ops->stream_sync(device_of(s), s->gates.own);
    }
    tutti_device_leave(device_of(s), &scope);
    return status;
}

enum tutti_status tutti_gated_follow(struct tutti_survive *s, struct tutti_gated *gated, struct tutti_call *call)
{
    const struct tutti_gate_words *words = s->gates.words;
    uint64_t held = 0;
    gated->is_void = s->gates.is_frozen;
    if (gated->is_lost) return TUTTI_OK; /* it was not enqueued */
    for (uint64_t nap = NAP_FIRST_NS; tutti_gated_passed(s) < gated->number;) {
        held = __atomic_load_n(&words->held, __ATOMIC_ACQUIRE);
        if (held >> 1 == gated->number) break;
        if (nap >= NAP_LONGEST_NS && has_failed(s)) return tutti_last_error()->status;
        tutti_sleep_ns(nap);
        if (nap < NAP_LONGEST_NS) nap *= 2;
    }
    gated->is_lost = gated->is_closed = held >> 1 == gated->number;
    gated->has_result = gated->is_closed && held & 1;
    if (!gated->is_closed) return TUTTI_OK;
    hear_why(s, gated);
    return stage(s, gated, call);
}

enum tutti_status tutti_gated_result(struct tutti_gated *gated, bool all)
{
    gated->is_tried = true;
    if (!gated->is_lost || (!all && gated->has_result)) return TUTTI_OK;
    return tutti_fail_record(&gated->why);
}

void tutti_gated_set(const struct tutti_survive *s, unsigned char *set)
{
    memset(set, 0, s->set_bytes);
    for (int32_t i = 0; i < s->gates.comm->size; i++) set_add(set, s->gates.ranks[i]);
}

enum tutti_status tutti_gated_open(struct tutti_survive *s, struct tutti_gated *gated, enum tutti_status status)
{
    struct tutti_error why = *tutti_last_error();
    struct tutti_device_scope scope;
    if (!gated->is_closed) return status;
    enum tutti_status put = tutti_device_enter(device_of(s), &scope);
    if (put >= 0) {
        if (status < 0)
            put = restore(s, gated);
        else if (gated->is_redone)
            put = copy_all(s, gated, false);
        tutti_device_leave(device_of(s), &scope);
    }
    if (put < 0 && status >= 0) why = *tutti_last_error(), status = put;
    __atomic_store_n(&s->gates.words->open, gated->number, __ATOMIC_RELEASE);
    tutti_pinned_give(s->pinned, gated->pinned);
    tutti_free(gated->device);
    gated->device = NULL;
    if (status < 0) tutti_fail_record(&why);
    return status;
}

/* ---- changes of the view ---- */

/* What is enqueued and has not begun will do nothing: else a call could end among the members of before, when the one
 * before it is made good among those who are left. */
static void freeze(struct tutti_survive *s)
{
    struct tutti_device_scope scope;
    if (!s->gates.comm || tutti_device_enter(device_of(s), &scope) < 0) return;
    s->gates.backend->ops->freeze(s->gates.backend);
    tutti_device_leave(device_of(s), &scope);
}

void tutti_gated_change(struct tutti_survive *s, struct tutti_says *mine)
{
    struct tutti_gates *g = &s->gates;
    freeze(s);
    g->is_frozen = true;
    pthread_mutex_lock(&s->lock);
    mine->used = g->state != TUTTI_GATES_WANTED;
    mine->last = tutti_comm_sequence(s->comm);
    mine->all = g->all;
    g->is_known = false;
    g->state = TUTTI_GATES_CHANGE;
    pthread_mutex_unlock(&s->lock);
}

void tutti_gated_changed(struct tutti_survive *s, const struct tutti_says *all)
{
    struct tutti_gates *g = &s->gates;
    bool used = false;
    pthread_mutex_lock(&s->lock);
    g->after = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (all[i].last > g->after) g->after = all[i].last;
        used = used || all[i].used;
        g->all = g->all && all[i].all;
    }
    g->is_known = true;
    if (!g->all) g->state = TUTTI_GATES_NONE;
    if (g->all && !used) g->state = TUTTI_GATES_WANTED;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static enum tutti_status words_make(struct tutti_survive *s)
{
    struct tutti_gates *g = &s->gates;
    struct tutti_device_scope scope;
    if (g->words_at) return TUTTI_OK;
    TUTTI_TRY(tutti_device_enter(device_of(s), &scope));
    enum tutti_status status = g->own ? TUTTI_OK : device_of(s)->ops->stream_create(device_of(s), &g->own);
    tutti_device_leave(device_of(s), &scope);
    if (status >= 0) status = tutti_pinned_take(s->pinned, sizeof(*g->words), &g->words_at);
    if (status < 0) return status;
    g->words = (struct tutti_gate_words *)(void *)g->words_at->at;
    memset(g->words, 0, sizeof(*g->words));
    return TUTTI_OK;
}

/* The same answer on all members. */
static bool all_say(struct tutti_survive *s, bool yes)
{
    int32_t mine = yes, all = 0;
    return tutti_all_reduce(&mine, &all, 1, TUTTI_INT32, TUTTI_MIN, s->inner, NULL, NULL) >= 0 && all;
}

/* The communicator of the view that has the devices. NULL: they do not reach one another, or a member was lost, which
 * the next call finds out. */
static struct tutti_comm *make(struct tutti_survive *s, struct tutti_backend **backend)
{
    struct tutti_comm *comm = NULL;
    const bool ready = tutti_held_open(s, s->comm->wanted_device) >= 0 && words_make(s) >= 0;
    *backend = NULL;
    if (!all_say(s, ready) || tutti_comm_dup(s->inner, &comm) < 0) return NULL;
    const bool opened = tutti_comm_open_device(comm, "comm_create", s->comm->wanted_device, false) >= 0 && comm->device;
    for (uint32_t b = 0; opened && b < comm->device->n && !*backend; b++)
        if (comm->device->backends[b]->ops->gates) *backend = comm->device->backends[b];
    if (all_say(s, *backend != NULL)) return comm;
    tutti_comm_destroy(comm);
    *backend = NULL;
    return NULL;
}

static void publish(struct tutti_survive *s, struct tutti_comm *comm, struct tutti_backend *backend)
{
    struct tutti_gates *g = &s->gates;
    pthread_mutex_lock(&s->comm->lock); /* an abort may ask for it */
    struct tutti_comm *before = g->comm;
    g->comm = comm;
    pthread_mutex_unlock(&s->comm->lock);
    g->backend = backend;
    g->known = 0;
    g->is_frozen = false;
    g->stream = NULL;
    if (comm) memcpy(g->ranks, s->ranks, s->n * sizeof(*g->ranks));
    if (before) tutti_comm_destroy(before);
}

void tutti_gated_renew(struct tutti_survive *s)
{
    struct tutti_gates *g = &s->gates;
    struct tutti_backend *backend = NULL;
    pthread_mutex_lock(&s->lock);
    const bool due = g->state == TUTTI_GATES_CHANGE && (s->has_ended || (g->is_known && s->n_over >= g->after));
    pthread_mutex_unlock(&s->lock);
    if (s->has_ended && g->comm) tutti_comm_end_calls(g->comm, s->error.text); /* what stands at gates hears of it */
    if (!due) return;
    if (!s->has_ended) {
        publish(s, NULL, NULL);
        saves_free(s);
        struct tutti_comm *comm = make(s, &backend);
        publish(s, comm, backend);
    }
    tutti_log(TUTTI_LOG_INFO, "calls on devices after #%llu: %s", (unsigned long long)g->after,
              backend ? "by kernels, with gates" : "through the host");
    pthread_mutex_lock(&s->lock);
    g->state = backend ? TUTTI_GATES_OPEN : TUTTI_GATES_NONE;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void tutti_gated_close(struct tutti_survive *s)
{
    struct tutti_gates *g = &s->gates;
    publish(s, NULL, NULL);
    if (s->pinned) {
        saves_free(s);
        if (g->own) device_of(s)->ops->stream_destroy(device_of(s), g->own);
        if (g->words_at) tutti_pinned_give(s->pinned, g->words_at);
    }
    tutti_free(g->ranks);
}
