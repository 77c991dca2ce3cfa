/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: a thread's calls between start and end, collected as requests. The outermost end prepares all of them, then
 * starts all of them without waiting in between, so that no order inside the group can deadlock. */
#include "comm/call/device.h"

#include <string.h>

static _Thread_local struct group {
    uint32_t depth;
    struct tutti_error error; /* the first failure's */
    struct tutti_request *requests;
    size_t n, capacity;
} group;

void tutti_group_spoil(void)
{
    if (group.error.status == TUTTI_OK) group.error = *tutti_last_error();
}

static enum tutti_status group_grow(const struct tutti_request *request)
{
    size_t capacity = group.capacity ? 2 * group.capacity : 16;
    struct tutti_request *requests = tutti_alloc_array(capacity, sizeof(*requests));
    if (!requests) return tutti_request_fail(request, TUTTI_ERR_MEMORY, "out of memory for a group of %zu", capacity);
    if (group.n) memcpy(requests, group.requests, group.n * sizeof(*requests));
    tutti_free(group.requests);
    group.requests = requests;
    group.capacity = capacity;
    return TUTTI_OK;
}

enum tutti_status tutti_group_add(const struct tutti_request *request)
{
    if (group.n == group.capacity) TUTTI_TRY(group_grow(request));
    struct tutti_request *copy = &group.requests[group.n];
    *copy = *request;
    copy->tables = NULL;
    TUTTI_TRY(tutti_request_own(copy));
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
static enum tutti_status prepare(struct tutti_request *request, bool followed, const struct tutti_request *before)
{
    TUTTI_TRY(tutti_request_prepare(request));
    if (!tutti_request_enqueues(request)) return TUTTI_OK;
    if (followed) TUTTI_TRY(tutti_device_may_follow(request));
    return before ? tutti_device_may_join(before, request) : TUTTI_OK;
}

/* Enters every communicator and prepares every request, or none. */
static enum tutti_status prepare_all(struct group *ended, bool followed)
{
    for (size_t i = 0; i < ended->n; i++) {
        struct tutti_request *request = &ended->requests[i];
        enum tutti_status status = tutti_comm_enter(request->comm, request->name);
        if (status >= 0) {
            status = prepare(request, followed || request->work, i > 0 ? request - 1 : NULL);
            if (status < 0) tutti_comm_leave(request->comm);
        }
        if (status >= 0) continue;
        while (i-- > 0) {
            tutti_request_release(&ended->requests[i]);
            tutti_comm_leave(ended->requests[i].comm);
        }
        return status;
    }
    return TUTTI_OK;
}

static void leave_all(struct group *ended)
{
    for (size_t i = 0; i < ended->n; i++) tutti_comm_leave(ended->requests[i].comm);
}

static bool one_context(const struct group *ended)
{
    for (size_t i = 1; i < ended->n; i++)
        if (ended->requests[i].comm->context != ended->requests[0].comm->context) return false;
    return true;
}

static bool all_attended(const struct group *ended)
{
    for (size_t i = 0; i < ended->n; i++)
        if (!ended->requests[i].options.attended) return false;
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
        struct tutti_request *request = &ended->requests[i];
        tutti_comm_fail_in_part(request->comm, "a group");
        if (i >= n_started) tutti_request_release(request);
    }
    finish_all(works, n_started);
    return tutti_fail_record(&why);
}

/* The requests from the i-th on that go to devices, or through the host to them. */
static enum tutti_status enqueue_run(struct group *ended, size_t *i, bool waits, struct tutti_work **works)
{
    size_t end = *i, n_started = 0;
    while (end < ended->n && tutti_request_enqueues(&ended->requests[end])) end++;
    enum tutti_status status = tutti_device_start(&ended->requests[*i], end - *i, !waits, &works[*i], &n_started);
    *i += n_started;
    return status;
}

static enum tutti_status start_all(struct group *ended, bool waits, struct tutti_work **works)
{
    /* The waiting caller drives one context's engine; what nobody waits for is driven by the helper. */
    bool helpers = !(waits || all_attended(ended)) || !one_context(ended);
    for (size_t i = 0; i < ended->n;) {
        struct tutti_request *request = &ended->requests[i];
        bool helper = helpers || (request->work && !request->options.attended);
        if (tutti_request_enqueues(request)) {
            if (enqueue_run(ended, &i, waits, works) < 0) return give_up_all(ended, works, i);
            continue;
        }
        enum tutti_status status = tutti_device_before(request);
        if (status >= 0) status = tutti_request_start(request, helper, &works[i]);
        if (status < 0) return give_up_all(ended, works, i);
        i++;
    }
    for (size_t i = 0; i < ended->n; i++) {
        if (!ended->requests[i].work) continue;
        *ended->requests[i].work = works[i];
        works[i] = NULL;
    }
    return TUTTI_OK;
}

static enum tutti_status join_all(struct group *ended, struct tutti_work **works, struct tutti_work **out)
{
    size_t n = 0;
    for (size_t i = 0; i < ended->n; i++)
        if (works[i]) works[n++] = works[i];
    enum tutti_status status = tutti_work_join(ended->requests[0].comm->context->engine, works, n, out);
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
    tutti_device_order(ended->requests, ended->n);
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
    for (size_t i = 0; i < ended.n; i++) tutti_request_disown(&ended.requests[i]);
    tutti_free(ended.requests);
    return status;
}

/* The recording of a persistent collective: one call of this thread is kept instead of started. */

static _Thread_local struct recording {
    uint32_t n;
    struct tutti_error error; /* the first failure's */
    struct tutti_request request;
} recording;

void tutti_record_spoil(void)
{
    if (recording.error.status == TUTTI_OK) recording.error = *tutti_last_error();
}

enum tutti_status tutti_record_add(const struct tutti_request *request)
{
    if (request->type != TUTTI_REQUEST_COLLECTIVE)
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT, "only a collective can be persistent");
    if (request->work)
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT,
                                  "work must be NULL while a persistent collective is recorded");
    if (recording.n++)
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT, "a persistent collective was recorded already");
    recording.request = *request;
    recording.request.tables = NULL;
    return tutti_request_own(&recording.request);
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
static enum tutti_status tutti_record_take(struct tutti_request *out)
{
    if (tutti_collects() != TUTTI_COLLECTS_RECORD)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end without persistent_record");
    tutti_collect(TUTTI_COLLECTS_NOTHING);
    *out = recording.request;
    out->collected = false;
    if (recording.error.status < 0) return tutti_fail_record(&recording.error);
    if (recording.n > 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end: no collective was called since persistent_record");
}

/* Persistent collectives: a request that was checked and whose schedule was sealed once; each start binds and runs it.
 */

struct tutti_persistent {
    struct tutti_attached attached; /* first: see gone() */
    struct tutti_request request;
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

static enum tutti_status persistent_make(struct tutti_request *request, struct tutti_persistent **out)
{
    struct tutti_persistent *persistent = tutti_alloc(sizeof(*persistent));
    if (!persistent) return tutti_request_fail(request, TUTTI_ERR_MEMORY, "out of memory for a persistent collective");
    enum tutti_status status = tutti_comm_enter(request->comm, request->name);
    if (status < 0) goto err_free;
    TUTTI_TRY_GOTO(status, tutti_request_prepare(request), err_leave);
    persistent->cache = request->comm->context->cache;
    persistent->kept = request->schedule;
    request->schedule = NULL;
    tutti_request_release(request); /* what is not kept, each start takes anew */
    persistent->request = *request;
    persistent->attached.gone = gone;
    tutti_comm_attach(request->comm, &persistent->attached);
    tutti_comm_leave(request->comm);
    *out = persistent;
    return TUTTI_OK;
err_leave:
    tutti_comm_leave(request->comm);
err_free:
    tutti_free(persistent);
    return status;
}

enum tutti_status tutti_persistent_end(struct tutti_persistent **out)
{
    struct tutti_request recorded = {.tables = NULL};
    enum tutti_status status = tutti_record_take(&recorded);
    if (status >= 0 && !out) status = tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end: out is NULL");
    if (status >= 0) status = persistent_make(&recorded, out);
    if (status < 0) tutti_request_disown(&recorded);
    return status;
}

enum tutti_status tutti_persistent_start(struct tutti_persistent *persistent, struct tutti_work **work)
{
    if (!persistent) return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_start: persistent is NULL");
    struct tutti_comm *comm;
    enum tutti_status status = tutti_comm_enter_attached(&persistent->attached, "persistent_start", &comm);
    if (status >= 0) {
        struct tutti_request request = persistent->request;
        request.work = work;
        request.tables = NULL; /* the recording's */
        request.collected = tutti_collects() != TUTTI_COLLECTS_NOTHING;
        status = tutti_request_dispatch(&request); /* its route may be another one now: devices are changed */
        tutti_comm_leave(comm);
    }
    if (status < 0 && tutti_collects() == TUTTI_COLLECTS_GROUP) tutti_group_spoil();
    return status;
}

void tutti_persistent_destroy(struct tutti_persistent *persistent)
{
    if (!persistent || persistent->attached.n_forks != tutti_n_forks) return;
    tutti_comm_detach(&persistent->attached);
    tutti_request_disown(&persistent->request);
    tutti_free(persistent);
}
