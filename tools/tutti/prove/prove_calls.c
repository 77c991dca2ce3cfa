/* SPDX-License-Identifier: BSD-3-Clause */
/* Points of two ranks: what becomes of a call on device memory whose peer dies, or does not come. */
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
