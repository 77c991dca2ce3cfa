/* SPDX-License-Identifier: BSD-3-Clause */
/* Points of two ranks: what becomes of a call on device memory whose peer dies, or does not come; and calls by oneCCL.
 */
#include "prove.h"

#include "base/base.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#define N ((size_t)1 << 16)
#define DEADLINE_NS (500 * TUTTI_NS_PER_MS)
#define SOON_NS TUTTI_NS_PER_S

struct side {
    struct tutti_context *context;
    struct tutti_comm *comm;
    struct tutti_accelerator *acc;
    struct tutti_call_options options;
    void *buffer;
};

static void side_close(struct side *side)
{
    tutti_comm_destroy(side->comm);
    tutti_context_destroy(side->context);
    if (side->acc) tutti_accelerator_free(side->acc, side->buffer);
    if (side->acc) tutti_accelerator_stream_destroy(side->acc, side->options.stream);
    tutti_accelerator_close(side->acc);
}

static enum tutti_status side_fill(const struct tutti_device_ops *kind, struct side *side)
{
    TUTTI_TRY(tutti_context_create(NULL, 0, &side->context));
    TUTTI_TRY(tutti_comm_create(side->context, NULL, &side->comm));
    const int32_t ordinal = tutti_comm_rank(side->comm) % (int32_t)kind->count();
    TUTTI_TRY(tutti_accelerator_open(kind->name, ordinal, &side->acc));
    TUTTI_TRY(tutti_comm_set_device(side->comm, ordinal));
    TUTTI_TRY(tutti_accelerator_alloc(side->acc, N * sizeof(float), &side->buffer));
    return tutti_accelerator_stream_create(side->acc, &side->options.stream);
}

static enum tutti_status call(struct side *side)
{
    TUTTI_TRY(
        tutti_all_reduce(side->buffer, side->buffer, N, TUTTI_FLOAT32, TUTTI_SUM, side->comm, &side->options, NULL));
    TUTTI_TRY(tutti_accelerator_stream_sync(side->acc, side->options.stream));
    return tutti_comm_flush(side->comm, 10 * TUTTI_NS_PER_S);
}

/* Calls once together, then alone; how that ends, and after how long. */
static enum tutti_status lonely(const struct tutti_device_ops *kind, bool dies, uint64_t *after_ns)
{
    struct side side = {.options = TUTTI_CALL_OPTIONS_INIT};
    enum tutti_status status = side_fill(kind, &side);
    if (status >= 0) status = call(&side);
    if (status >= 0 && tutti_comm_rank(side.comm) == 1) {
        if (dies) raise(SIGKILL);
        tutti_sleep_ns(2 * DEADLINE_NS + SOON_NS); /* comes too late */
    } else if (status >= 0) {
        const uint64_t began_ns = tutti_now_ns();
        if (!dies) tutti_comm_set_timeout(side.comm, DEADLINE_NS);
        status = call(&side);
        if (status >= 0) status = tutti_comm_state(side.comm, NULL);
        *after_ns = tutti_now_ns() - began_ns;
    }
    const struct tutti_error why = *tutti_last_error();
    side_close(&side);
    return status < 0 ? tutti_fail_record(&why) : status;
}

/* The sentence of rank 0; rank 1 has nothing to say. */
static enum tutti_status judge(enum tutti_status found, enum tutti_status wanted, uint64_t after_ns, uint64_t most_ns,
                               struct prove_finding *out)
{
    if (after_ns == 0) return found;
    if (found >= 0) return tutti_fail(TUTTI_ERR_INTERNAL, "a call that waits for a peer in vain ended well");
    if (found != wanted) return found;
    if (after_ns > most_ns)
        return tutti_fail(TUTTI_ERR_INTERNAL, "it was told after %.2f s alone", (double)after_ns / 1e9);
    snprintf(out->text, sizeof out->text, "told after %.2f s: %.300s", (double)after_ns / 1e9,
             tutti_last_error()->text);
    return TUTTI_OK;
}

enum tutti_status prove_death(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    uint64_t after_ns = 0;
    const enum tutti_status found = lonely(kind, true, &after_ns);
    return judge(found, TUTTI_ERR_PEER_DEAD, after_ns, SOON_NS, out);
}

enum tutti_status prove_absence(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    uint64_t after_ns = 0;
    const enum tutti_status found = lonely(kind, false, &after_ns);
    return judge(found, TUTTI_ERR_TIMEOUT, after_ns, DEADLINE_NS + SOON_NS, out);
}

/* ---- by oneCCL, on a queue of SYCL's ---- */

static enum tutti_status reduce_on(struct side *side)
{
    return tutti_all_reduce(side->buffer, side->buffer, N, TUTTI_INT32, TUTTI_SUM, side->comm, &side->options, NULL);
}
static int32_t reduced(int32_t i)
{
    return 2 * i + 1;
}
static enum tutti_status broadcast_on(struct side *side)
{
    return tutti_broadcast(side->buffer, N, TUTTI_INT32, 1, side->comm, &side->options, NULL);
}
static int32_t broadcasted(int32_t i)
{
    return i + 1;
}
static enum tutti_status gather_on(struct side *side)
{
    return tutti_all_gather((int32_t *)side->buffer + N / 2 * (size_t)tutti_comm_rank(side->comm), side->buffer, N / 2,
                            TUTTI_INT32, side->comm, &side->options, NULL);
}
static int32_t gathered(int32_t i)
{
    return i + (i >= (int32_t)N / 2);
}

static const struct oneccl_call {
    const char *name;
    enum tutti_status (*call)(struct side *side);
    int32_t (*expected)(int32_t i);
} oneccl_calls[] = {
    {"all_reduce", reduce_on, reduced}, {"broadcast", broadcast_on, broadcasted}, {"all_gather", gather_on, gathered}};

/* Rank r has i + r; what SYCL copies before and behind the call has to be in its order. */
static enum tutti_status oneccl_call(struct side *side, struct prove_queue *queue, int32_t *host,
                                     const struct oneccl_call *call)
{
    for (int32_t i = 0; i < (int32_t)N; i++) host[i] = i + tutti_comm_rank(side->comm), host[N + (size_t)i] = -1;
    prove_queue_copy(queue, side->buffer, host, N * sizeof *host);
    TUTTI_TRY(call->call(side));
    prove_queue_copy(queue, host + N, side->buffer, N * sizeof *host);
    prove_queue_wait(queue);
    TUTTI_TRY(tutti_comm_flush(side->comm, 10 * TUTTI_NS_PER_S));
    for (int32_t i = 0; i < (int32_t)N; i++)
        if (host[N + (size_t)i] != call->expected(i))
            return tutti_fail(TUTTI_ERR_INTERNAL, "%s by oneCCL on a queue of SYCL's: element %d is %d, not %d",
                              call->name, (int)i, (int)host[N + (size_t)i], (int)call->expected(i));
    return TUTTI_OK;
}

static enum tutti_status oneccl_all(const struct tutti_device_ops *kind, struct side *side)
{
    struct prove_queue queue;
    struct prove_bed bed;
    TUTTI_TRY(prove_bed_open(kind, tutti_comm_rank(side->comm) % (int32_t)kind->count(), &bed));
    enum tutti_status status = prove_queue_open(bed.device, &queue);
    side->options.stream = &queue, side->options.algorithm = "oneccl";
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(oneccl_calls) && status >= 0; i++)
        status = oneccl_call(side, &queue, (int32_t *)(void *)bed.host, &oneccl_calls[i]);
    if (status >= 0) prove_bed_close(&bed);
    return status;
}

/* Where a call has failed the queue may never come to its end: nothing is given back then. */
enum tutti_status prove_oneccl(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    struct side side = {.options = TUTTI_CALL_OPTIONS_INIT};
    TUTTI_TRY(side_fill(kind, &side));
    tutti_accelerator_stream_destroy(side.acc, side.options.stream);
    tutti_comm_set_timeout(side.comm, 30 * TUTTI_NS_PER_S);
    const enum tutti_status status = oneccl_all(kind, &side);
    if (status < 0)
        return strstr(tutti_last_error()->text, "there is no oneCCL here") ? status : prove_is_wrong("by oneCCL");
    if (tutti_comm_rank(side.comm) == 0)
        snprintf(out->text, sizeof out->text,
                 "all_reduce, broadcast and all_gather on a queue of SYCL's, in its order");
    side.options.stream = NULL;
    side_close(&side);
    return TUTTI_OK;
}
