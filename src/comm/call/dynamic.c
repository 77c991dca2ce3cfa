/* SPDX-License-Identifier: BSD-3-Clause */
/* all_to_all_v_dynamic: the ranks tell one another what they send, then an all_to_all_v follows. Where counts can be
 * read on the device nothing waits; elsewhere the host reads them, and the call blocks for that, but not for the data.
 */
#include "comm/call/device.h"

#include <inttypes.h>
#include <string.h>

#define NAME "all_to_all_v_dynamic"
#define REFUSE(...) tutti_call_fail(call, TUTTI_ERR_ARGUMENT, __VA_ARGS__)

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "counts of users are sizes");

/* ---- by the host ---- */

/* Tables of this rank: what it sends and receives, and where, n words each; then the rows of all. */
struct tables {
    uint64_t *counts, *send_displs, *recv_counts, *recv_displs, *rows;
};

static enum tutti_status tables_open(const struct tutti_call *call, uint32_t n, struct tables *out)
{
    uint64_t *words = tutti_alloc_array((size_t)n * (4 + counted_words(n)), sizeof(*words));
    if (!words) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for the tables of the call");
    *out = (struct tables){words, words + n, words + 2 * (size_t)n, words + 3 * (size_t)n, words + 4 * (size_t)n};
    return TUTTI_OK;
}

/* From the device, behind what is on the stream. */
static enum tutti_status fetch(const struct tutti_call *call, void *to, const void *from, size_t bytes)
{
    struct tutti_device *dev = call->comm->device->device;
    uint64_t capture = 0;
    TUTTI_TRY(tutti_device_capturing(dev, call->options.stream, &capture));
    if (capture) return REFUSE("the host has to read the counts here, so the call can not be captured in a graph");
    TUTTI_TRY(dev->ops->stream_sync(dev, call->options.stream));
    return dev->ops->copy_now(dev, to, from, bytes);
}

static enum tutti_status read_words(const struct tutti_call *call, bool on_device, uint64_t *to, const uint64_t *from,
                                    uint32_t n)
{
    if (on_device) return fetch(call, to, from, n * sizeof(*to));
    memcpy(to, from, n * sizeof(*to));
    return TUTTI_OK;
}

static enum tutti_status write_out(const struct tutti_call *call, bool on_device, void *to, const void *from,
                                   size_t bytes)
{
    struct tutti_device *dev = on_device ? call->comm->device->device : NULL;
    if (dev) return dev->ops->copy_now(dev, to, from, bytes);
    memcpy(to, from, bytes);
    return TUTTI_OK;
}

/* The own row, gathered with all others'. */
static enum tutti_status tell(const struct tutti_call *call, const struct tutti_all_to_all_v_dynamic *given,
                              bool on_device, struct tables *t)
{
    struct tutti_call_options options = call->options;
    const uint32_t n = (uint32_t)call->comm->size, words = counted_words(n);
    struct tutti_counted_row row = {.counts = t->counts,
                                    .send_displs = given->send_displs ? t->send_displs : NULL,
                                    .recv_displs = given->recv_displs ? t->recv_displs : NULL,
                                    .send_capacity = given->send_capacity,
                                    .recv_capacity = given->recv_capacity,
                                    .n = n};
    TUTTI_TRY(read_words(call, on_device, t->counts, given->send_counts, n));
    if (row.send_displs) TUTTI_TRY(read_words(call, on_device, t->send_displs, given->send_displs, n));
    if (row.recv_displs) TUTTI_TRY(read_words(call, on_device, t->recv_displs, given->recv_displs, n));
    row.row = t->rows + (size_t)call->comm->rank * words;
    for (uint32_t k = 0; k < words; k++) row.row[k] = counted_word(&row, k);
    options.algorithm = NULL;
    return tutti_all_gather(row.row, t->rows, words, TUTTI_UINT64, call->comm, &options, NULL);
}

/* The first rank that sends what it does not have, else that receives what does not fit; n: there is none. */
static uint32_t first_misfit(const uint64_t *rows, uint32_t n)
{
    uint32_t r = 0, wrong = 0;
    while (wrong < n && !rows[(size_t)wrong * counted_words(n) + 2 * n + COUNTED_WRONG]) wrong++;
    while (r < n && counted_fits(rows, n, r)) r++;
    return wrong < n ? wrong : r;
}

static enum tutti_status refuse_misfit(const struct tutti_call *call, const uint64_t *rows, uint32_t n, uint32_t r)
{
    const uint64_t *rest = rows + (size_t)r * counted_words(n) + 2 * n;
    uint64_t sum = 0;
    for (uint32_t q = 0; q < n; q++) sum += counted_count(rows, n, q, r);
    if (rest[COUNTED_WRONG])
        return tutti_call_fail(call, TUTTI_ERR_TRUNCATED, "what rank %u sends is not all within its send", r);
    return tutti_call_fail(call, TUTTI_ERR_TRUNCATED,
                           "rank %u would receive %" PRIu64 " elements, which do not fit: its recv has %" PRIu64, r,
                           sum, rest[COUNTED_CAPACITY]);
}

static enum tutti_status move(const struct tutti_call *call, const struct tutti_all_to_all_v_dynamic *given,
                              const struct tables *t, struct tutti_work **work)
{
    return tutti_all_to_all_v(
        given->send, (const size_t *)t->counts, given->send_displs ? (const size_t *)t->send_displs : NULL, given->recv,
        (const size_t *)t->recv_counts, given->recv_displs ? (const size_t *)t->recv_displs : NULL, given->dtype,
        call->comm, &call->options, work);
}

static enum tutti_status run_tables(const struct tutti_call *call, const struct tutti_all_to_all_v_dynamic *given,
                                    bool on_device, struct tables *t, struct tutti_work **work)
{
    const uint32_t n = (uint32_t)call->comm->size, me = (uint32_t)call->comm->rank;
    TUTTI_TRY(tell(call, given, on_device, t));
    const uint32_t misfit = first_misfit(t->rows, n);
    const int32_t status = misfit < n ? TUTTI_ERR_TRUNCATED : TUTTI_OK;
    for (uint32_t q = 0; q < n; q++) t->recv_counts[q] = counted_count(t->rows, n, q, me);
    TUTTI_TRY(write_out(call, on_device, given->recv_counts, t->recv_counts, n * sizeof(uint64_t)));
    if (given->status) TUTTI_TRY(write_out(call, on_device, given->status, &status, sizeof(status)));
    return misfit < n ? refuse_misfit(call, t->rows, n, misfit) : move(call, given, t, work);
}

static enum tutti_status run_by_host(const struct tutti_call *call, const struct tutti_all_to_all_v_dynamic *given,
                                     bool on_device, struct tutti_work **work)
{
    struct tables t = {0};
    TUTTI_TRY(tables_open(call, (uint32_t)call->comm->size, &t));
    const enum tutti_status status = run_tables(call, given, on_device, &t, work);
    tutti_free(t.counts);
    return status;
}

/* ---- on the device ---- */

static enum tutti_status run_on_device(const struct tutti_call *call, const struct tutti_all_to_all_v_dynamic *given,
                                       struct tutti_work **work)
{
    const struct tutti_counted_call counted = {
        .comm = call->comm,
        .send = given->send,
        .recv = given->recv,
        .row = {.counts = given->send_counts,
                .send_displs = given->send_displs,
                .recv_displs = given->recv_displs,
                .send_capacity = given->send_capacity,
                .recv_capacity = given->recv_capacity},
        .recv_counts = given->recv_counts,
        .status = given->status,
        .dtype = given->dtype,
        .options = call->options,
    };
    if (work) TUTTI_TRY(tutti_device_may_follow(call));
    TUTTI_TRY(tutti_counted_enqueue(&counted));
    return work ? tutti_device_follow(call->comm, call->options.stream, call->options.label, work) : TUTTI_OK;
}

/* ---- checks ---- */

static enum tutti_status check_buffer(const struct tutti_call *call, const char *name, const void *pointer,
                                      size_t capacity, size_t element)
{
    size_t bytes;
    if (__builtin_mul_overflow(capacity, element, &bytes) || bytes > (size_t)PTRDIFF_MAX)
        return REFUSE("%s_capacity is %zu: that many elements of %zu bytes overflow", name, capacity, element);
    if (!pointer && capacity) return REFUSE("%s is NULL but %s_capacity is %zu", name, name, capacity);
    return TUTTI_OK;
}

static enum tutti_status check(const struct tutti_call *call, const struct tutti_all_to_all_v_dynamic *given)
{
    const size_t element = tutti_dtype_bytes(given->dtype);
    if (!element) return REFUSE("dtype %d is no type", (int)given->dtype);
    if (!given->send_counts) return REFUSE("send_counts is NULL");
    if (!given->recv_counts) return REFUSE("recv_counts is NULL");
    if (call->options.wire) return REFUSE("wire is %s: it can not be quantised", tutti_wire_name(call->options.wire));
    TUTTI_TRY(check_buffer(call, "send", given->send, given->send_capacity, element));
    TUTTI_TRY(check_buffer(call, "recv", given->recv, given->recv_capacity, element));
    const uintptr_t from = (uintptr_t)given->send, to = (uintptr_t)given->recv;
    if (from < to + given->recv_capacity * element && to < from + given->send_capacity * element)
        return REFUSE("send and recv overlap, which is not defined here");
    return TUTTI_OK;
}

/* All of it on the device, or all on the host. */
static enum tutti_status place(const struct tutti_call *call, const struct tutti_all_to_all_v_dynamic *given,
                               bool *on_device)
{
    const struct tutti_comm_device *device = call->comm->device;
    const struct {
        const char *name;
        const void *pointer;
    } all[] = {{"send_counts", given->send_counts},
               {"send_displs", given->send_displs},
               {"recv_counts", given->recv_counts},
               {"recv_displs", given->recv_displs},
               {"status", given->status},
               {"send", given->send_capacity ? given->send : NULL},
               {"recv", given->recv_capacity ? given->recv : NULL}};
    const int32_t first = tutti_device_of(given->send_counts);
    *on_device = first >= 0;
    if (first >= 0 && (!device || !device->device || device->ordinal != first))
        return REFUSE("send_counts is memory of device %d, which is not the communicator's", (int)first);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(all); i++)
        if (all[i].pointer && tutti_device_of(all[i].pointer) != first)
            return REFUSE("%s and send_counts are not in memory of one kind", all[i].name);
    return TUTTI_OK;
}

static enum tutti_status run(struct tutti_call *call, const struct tutti_all_to_all_v_dynamic *given,
                             const struct tutti_call_options *options, struct tutti_work **work)
{
    bool on_device = false;
    TUTTI_TRY(tutti_call_options(call, options));
    TUTTI_TRY(check(call, given));
    TUTTI_TRY(place(call, given, &on_device));
    if (on_device && tutti_counted_on_device(call->comm)) return run_on_device(call, given, work);
    return run_by_host(call, given, on_device, work);
}

enum tutti_status tutti_all_to_all_v_dynamic(const struct tutti_all_to_all_v_dynamic *given, struct tutti_comm *comm,
                                             const struct tutti_call_options *options, struct tutti_work **work)
{
    struct tutti_all_to_all_v_dynamic known = {.size = 0};
    struct tutti_call call = {.name = NAME, .comm = comm};
    if (!given || given->size < sizeof(known))
        return tutti_fail(TUTTI_ERR_ARGUMENT, NAME ": call is NULL, or its size is not set");
    TUTTI_TRY(tutti_call_alone(NAME));
    if (comm) TUTTI_TRY(tutti_survive_refuse(comm, NAME));
    TUTTI_TRY(tutti_comm_enter(comm, NAME));
    known = *given;
    const enum tutti_status status = run(&call, &known, options, work);
    tutti_comm_leave(comm);
    return status;
}
