/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: a thread's calls between start and end, collected as calls. The outermost end prepares all of them, then
 * starts all of them without waiting in between, so that no order inside the group can deadlock. */
#include "comm/call/device.h"

#include <string.h>

static _Thread_local struct group {
    uint32_t depth;
    struct tutti_error error; /* the first failure's */
    struct tutti_call *calls;
    size_t n, capacity;
} group;

void tutti_group_spoil(void)
{
    if (group.error.status == TUTTI_OK) group.error = *tutti_last_error();
}

static enum tutti_status group_grow(const struct tutti_call *call)
{
    size_t capacity = group.capacity ? 2 * group.capacity : 16;
    struct tutti_call *calls = tutti_alloc_array(capacity, sizeof(*calls));
    if (!calls) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for a group of %zu", capacity);
    if (group.n) memcpy(calls, group.calls, group.n * sizeof(*calls));
    tutti_free(group.calls);
    group.calls = calls;
    group.capacity = capacity;
    return TUTTI_OK;
}

enum tutti_status tutti_group_add(const struct tutti_call *call)
{
    if (group.n == group.capacity) TUTTI_TRY(group_grow(call));
    struct tutti_call *copy = &group.calls[group.n];
    *copy = *call;
    copy->tables = NULL;
    TUTTI_TRY(tutti_call_own(copy));
    group.n++;
    return TUTTI_OK;
}

enum tutti_status tutti_group_start(void)
{
    if (tutti_collects() == TUTTI_COLLECTS_RECORD)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "group_start can not be called while a persistent collective is recorded");
    if (group.depth++ == 0) tutti_collect(TUTTI_COLLECTS_GROUP);
    return TUTTI_OK;
}

/* ---- the end ---- */

/* followed: its end will be told by a work. before: the one that was prepared before it, or NULL. */
static enum tutti_status prepare(struct tutti_call *call, bool followed, const struct tutti_call *before)
{
    if (call->comm->survive) return TUTTI_OK; /* its communicator chooses, and may have to do so again */
    TUTTI_TRY(tutti_call_prepare(call));
    if (!tutti_call_enqueues(call)) return TUTTI_OK;
    if (followed) TUTTI_TRY(tutti_device_may_follow(call));
    return before && !before->comm->survive ? tutti_device_may_join(before, call) : TUTTI_OK;
}

/* Enters every communicator and prepares every call, or none. */
static enum tutti_status prepare_all(struct group *ended, bool followed)
{
    for (size_t i = 0; i < ended->n; i++) {
        struct tutti_call *call = &ended->calls[i];
        enum tutti_status status = tutti_comm_enter(call->comm, call->name);
        if (status >= 0) {
            status = prepare(call, followed || call->work, i > 0 ? call - 1 : NULL);
            if (status < 0) tutti_comm_leave(call->comm);
        }
        if (status >= 0) continue;
        while (i-- > 0) {
            tutti_call_release(&ended->calls[i]);
            tutti_comm_leave(ended->calls[i].comm);
        }
        return status;
    }
    return TUTTI_OK;
}

static void leave_all(struct group *ended)
{
    for (size_t i = 0; i < ended->n; i++) tutti_comm_leave(ended->calls[i].comm);
}

static bool one_context(const struct group *ended)
{
    for (size_t i = 1; i < ended->n; i++)
        if (ended->calls[i].comm->context != ended->calls[0].comm->context) return false;
    return true;
}

static bool all_attended(const struct group *ended)
{
    for (size_t i = 0; i < ended->n; i++)
        if (!ended->calls[i].options.attended) return false;
    return true;
}

/* Waits for works[0..n) and keeps the first error. NULL ones are skipped. */
static enum tutti_status finish_all(struct tutti_work **works, size_t n)
{
    struct tutti_error first = {.status = TUTTI_OK};
    for (size_t i = 0; i < n; i++)
        if (works[i] && tutti_work_finish(works[i]) < 0 && first.status == TUTTI_OK) first = *tutti_last_error();
    return first.status == TUTTI_OK ? TUTTI_OK : tutti_fail_record(&first);
}

/* The others would wait for what was not started: every communicator of the group fails. */
static enum tutti_status give_up_all(struct group *ended, struct tutti_work **works, size_t n_started)
{
    struct tutti_error why = *tutti_last_error();
    for (size_t i = 0; i < ended->n; i++) {
        struct tutti_call *call = &ended->calls[i];
        if (!call->comm->survive) tutti_comm_fail_in_part(call->comm, "a group");
        if (i >= n_started) tutti_call_release(call);
    }
    finish_all(works, n_started);
    return tutti_fail_record(&why);
}

/* The calls from the i-th on that go to devices, or through the host to them. */
static enum tutti_status enqueue_run(struct group *ended, size_t *i, bool waits, struct tutti_work **works)
{
    size_t end = *i, n_started = 0;
    while (end < ended->n && tutti_call_enqueues(&ended->calls[end])) end++;
    enum tutti_status status = tutti_device_start(&ended->calls[*i], end - *i, !waits, &works[*i], &n_started);
    *i += n_started;
    return status;
}

/* A call that survives goes in its communicator's order, on a thread of that. One on a device is waited for only where
 * a work is wanted. */
static enum tutti_status start_surviving(struct tutti_call *call, bool waits, struct tutti_work **out)
{
    struct tutti_work **own = call->work;
    const bool on_device = tutti_device_in_use() &&
                           (tutti_device_of(call->job.bind.input) >= 0 || tutti_device_of(call->job.bind.output) >= 0);
    call->collected = false;
    call->work = on_device && waits && !own ? NULL : out;
    enum tutti_status status = call->comm->survive_call(call);
    call->work = own;
    return status;
}

static enum tutti_status start_all(struct group *ended, bool waits, struct tutti_work **works)
{
    /* The waiting caller drives one context's engine; what nobody waits for is driven by the helper. */
    bool helpers = !(waits || all_attended(ended)) || !one_context(ended);
    for (size_t i = 0; i < ended->n;) {
        struct tutti_call *call = &ended->calls[i];
        bool helper = helpers || (call->work && !call->options.attended);
        if (tutti_call_enqueues(call)) {
            if (enqueue_run(ended, &i, waits, works) < 0) return give_up_all(ended, works, i);
            continue;
        }
        enum tutti_status status = TUTTI_OK;
        if (call->comm->survive)
            status = start_surviving(call, waits, &works[i]);
        else if ((status = tutti_device_before(call)) >= 0)
            status = tutti_call_start(call, helper ? TUTTI_START_HELPER : TUTTI_START, &works[i]);
        if (status < 0) return give_up_all(ended, works, i);
        i++;
    }
    for (size_t i = 0; i < ended->n; i++) {
        if (!ended->calls[i].work) continue;
        *ended->calls[i].work = works[i];
        works[i] = NULL;
    }
    return TUTTI_OK;
}

static enum tutti_status join_all(struct group *ended, struct tutti_work **works, struct tutti_work **out)
{
    size_t n = 0;
    for (size_t i = 0; i < ended->n; i++)
        if (works[i]) works[n++] = works[i];
    enum tutti_status status = tutti_work_join(ended->calls[0].comm->context->engine, works, n, out);
    if (status < 0) {
        struct tutti_error why = *tutti_last_error();
        finish_all(works, n);
        return tutti_fail_record(&why);
    }
    return status;
}

static enum tutti_status run_all(struct group *ended, struct tutti_work **work)
{
    struct tutti_work **works = tutti_alloc_array(ended->n, sizeof(struct tutti_work *));
    if (!works) return tutti_fail(TUTTI_ERR_MEMORY, "group_end: out of memory for %zu works", ended->n);
    tutti_device_order(ended->calls, ended->n);
    enum tutti_status status = prepare_all(ended, work != NULL);
    if (status >= 0) {
        status = start_all(ended, !work, works);
        if (status >= 0) status = work ? join_all(ended, works, work) : finish_all(works, ended->n);
        leave_all(ended);
    }
    tutti_free(works);
    return status;
}

enum tutti_status tutti_group_end(struct tutti_work **work)
{
    if (group.depth == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "group_end without group_start");
    if (group.depth > 1) {
        group.depth--;
        if (!work) return TUTTI_OK;
        enum tutti_status inner = tutti_fail(TUTTI_ERR_ARGUMENT, "group_end: only the outermost one gives a work");
        tutti_group_spoil();
        return inner;
    }
    struct group ended = group;
    group = (struct group){.depth = 0};
    tutti_collect(TUTTI_COLLECTS_NOTHING);
    enum tutti_status status = TUTTI_OK;
    if (ended.error.status < 0)
        status = tutti_fail_record(&ended.error);
    else if (ended.n)
        status = run_all(&ended, work);
    else if (work)
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "group_end: an empty group has no work");
    for (size_t i = 0; i < ended.n; i++) tutti_call_disown(&ended.calls[i]);
    tutti_free(ended.calls);
    return status;
}

/* The recording of a persistent collective: one call of this thread is kept instead of started. */

static _Thread_local struct recording {
    uint32_t n;
    struct tutti_error error; /* the first failure's */
    struct tutti_call call;
} recording;

void tutti_record_spoil(void)
{
    if (recording.error.status == TUTTI_OK) recording.error = *tutti_last_error();
}

enum tutti_status tutti_record_add(const struct tutti_call *call)
{
    if (call->type != TUTTI_CALL_COLLECTIVE)
        return tutti_call_fail(call, TUTTI_ERR_ARGUMENT, "only a collective can be persistent");
    if (call->work)
        return tutti_call_fail(call, TUTTI_ERR_ARGUMENT, "work must be NULL while a persistent collective is recorded");
    if (recording.n++) return tutti_call_fail(call, TUTTI_ERR_ARGUMENT, "a persistent collective was recorded already");
    recording.call = *call;
    recording.call.tables = NULL;
    return tutti_call_own(&recording.call);
}

enum tutti_status tutti_persistent_record(void)
{
    if (tutti_collects() == TUTTI_COLLECTS_RECORD)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_record: a recording is open on this thread already");
    if (tutti_collects() == TUTTI_COLLECTS_GROUP)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_record can not be called inside a group");
    recording = (struct recording){.n = 0};
    tutti_collect(TUTTI_COLLECTS_RECORD);
    return TUTTI_OK;
}

/* Ends the recording: what was recorded, which is the caller's to disown; or why there is nothing. */
static enum tutti_status record_take(struct tutti_call *out)
{
    if (tutti_collects() != TUTTI_COLLECTS_RECORD)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end without persistent_record");
    tutti_collect(TUTTI_COLLECTS_NOTHING);
    *out = recording.call;
    out->collected = false;
    if (recording.error.status < 0) return tutti_fail_record(&recording.error);
    if (recording.n > 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end: no collective was called since persistent_record");
}

/* Persistent collectives: a request that was checked and whose schedule was sealed once; each start binds and runs it.
 */

struct tutti_persistent {
    struct tutti_attached attached; /* first: see gone() */
    struct tutti_call call;
    const struct tutti_schedule *kept; /* so that starts find it in the cache */
    struct tutti_cache *cache;
};

/* The communicator goes, and its context's cache may follow. */
static void gone(struct tutti_attached *attached)
{
    struct tutti_persistent *persistent = (struct tutti_persistent *)(void *)attached;
    if (persistent->kept) tutti_cache_release(persistent->cache, persistent->kept);
    persistent->kept = NULL;
}

static enum tutti_status persistent_make(struct tutti_call *call, struct tutti_persistent **out)
{
    struct tutti_persistent *persistent = tutti_alloc(sizeof(*persistent));
    if (!persistent) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for a persistent collective");
    enum tutti_status status = tutti_comm_enter(call->comm, call->name);
    if (status < 0) goto err_free;
    TUTTI_TRY_GOTO(status, tutti_call_prepare(call), err_leave);
    persistent->cache = call->comm->context->cache;
    persistent->kept = call->job.bind.schedule;
    call->job.bind.schedule = NULL;
    tutti_call_release(call); /* what is not kept, each start takes anew */
    persistent->call = *call;
    persistent->attached.gone = gone;
    tutti_comm_attach(call->comm, &persistent->attached);
    tutti_comm_leave(call->comm);
    *out = persistent;
    return TUTTI_OK;
err_leave:
    tutti_comm_leave(call->comm);
err_free:
    tutti_free(persistent);
    return status;
}

enum tutti_status tutti_persistent_end(struct tutti_persistent **out)
{
    struct tutti_call recorded = {.tables = NULL};
    enum tutti_status status = record_take(&recorded);
    if (status >= 0 && !out) status = tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end: out is NULL");
    if (status >= 0) status = persistent_make(&recorded, out);
    if (status < 0) tutti_call_disown(&recorded);
    return status;
}

enum tutti_status tutti_persistent_start(struct tutti_persistent *persistent, struct tutti_work **work)
{
    if (!persistent) return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_start: persistent is NULL");
    struct tutti_comm *comm;
    enum tutti_status status = tutti_comm_enter_attached(&persistent->attached, "persistent_start", &comm);
    if (status >= 0) {
        struct tutti_call call = persistent->call;
        call.work = work;
        call.tables = NULL; /* the recording's */
        call.collected = tutti_collects() != TUTTI_COLLECTS_NOTHING;
        status = tutti_call_dispatch(&call); /* its route may be another one now: devices are changed */
        tutti_comm_leave(comm);
    }
    if (status < 0 && tutti_collects() == TUTTI_COLLECTS_GROUP) tutti_group_spoil();
    return status;
}

void tutti_persistent_destroy(struct tutti_persistent *persistent)
{
    if (!persistent || persistent->attached.n_forks != tutti_n_forks) return;
    tutti_comm_detach(&persistent->attached);
    tutti_call_disown(&persistent->call);
    tutti_free(persistent);
}
