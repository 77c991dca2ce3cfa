/* SPDX-License-Identifier: BSD-3-Clause */
/* "fault": loses, repeats and delays packets on arrival, and kills its process, as the option says. The fate of the
 * k-th packet from one member to another is a pure function of the seed and of these three numbers, whatever the timing
 * of the others. "delay" is the fault that delays all packets by one time, and keeps their order: a link with that
 * latency. */

#include "transport/decorate/decorate.h"
#include "transport/open.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"

#define DEFAULT_DELAY_NS TUTTI_NS_PER_MS

struct fault_plan {
    uint64_t seed;
    double drop, duplicate, delay; /* probabilities */
    uint64_t delay_ns;
    uint64_t kill; /* the packet sent or received, counted from 1, with which the process kills itself; 0: none */
    bool in_order; /* all are delayed: when the queue is full the rest waits in the inner transport */
};

enum fate { FATE_PASS, FATE_DROP, FATE_DUPLICATE, FATE_DUPLICATE_LATER, FATE_DELAY };
enum origin { FROM_NONE, FROM_INNER, FROM_QUEUE };

struct fault {
    struct tutti_decorator decorator;
    struct fault_plan plan;
    struct tutti_delay_queue queue;
    uint64_t *n_arrived; /* by source */
    uint64_t n_operations;
    struct tutti_event arrival; /* the inner transport's, to be given out once more */
    bool repeat;
    enum origin origin; /* the unreleased arrival's */
    uint32_t source;
};

static struct fault *fault_of(struct tutti_transport *t)
{
    return (struct fault *)(void *)t;
}

/* ---- the option ---- */

static bool probability_parse(const char *text, double *out)
{
    return tutti_parse_decimal(text, out) && *out <= 1;
}

static bool number_parse(const char *text, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    *out = strtoull(text, &end, 0);
    return *end == '\0';
}

static bool delay_parse(char *text, struct fault_plan *plan)
{
    char *colon = strchr(text, ':');
    if (colon) {
        *colon = '\0';
        if (!tutti_parse_time(colon + 1, &plan->delay_ns)) return false;
    }
    return probability_parse(text, &plan->delay);
}

/* One "key=value"; false when it is not of the form. */
static bool item_parse(char *item, struct fault_plan *plan)
{
    char *value = strchr(item, '=');
    if (!value) return false;
    *value++ = '\0';
    if (strcmp(item, "seed") == 0) return number_parse(value, &plan->seed);
    if (strcmp(item, "drop") == 0) return probability_parse(value, &plan->drop);
    if (strcmp(item, "duplicate") == 0) return probability_parse(value, &plan->duplicate);
    if (strcmp(item, "delay") == 0) return delay_parse(value, plan);
    if (strcmp(item, "kill") == 0) return number_parse(value, &plan->kill);
    return false;
}

static enum tutti_status plan_parse(const char *text, struct fault_plan *out)
{
    struct fault_plan plan = {.seed = 1, .delay_ns = DEFAULT_DELAY_NS};
    for (const char *at = text; *at;) {
        char item[64], copy[64];
        const size_t length = strcspn(at, ",");
        if (length >= sizeof(item))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "option fault: '%.20s...' is too long for a fault", at);
        memcpy(item, at, length);
        item[length] = '\0';
        memcpy(copy, item, length + 1);
        if (!item_parse(item, &plan))
            return tutti_fail(
                TUTTI_ERR_ARGUMENT,
                "option fault: '%s' is not understood; write seed=N, drop=P, duplicate=P, delay=P:TIME or kill=N "
                "(P from 0 to 1), separated by commas",
                copy);
        at += length;
        if (*at == ',') at++;
    }
    if (plan.drop + plan.duplicate + plan.delay > 1)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "option fault: drop, duplicate and delay add up to %.3f, more than 1",
                          plan.drop + plan.duplicate + plan.delay);
    *out = plan;
    return TUTTI_OK;
}

/* ---- packets ---- */

static void count_operation(struct fault *fault)
{
    if (++fault->n_operations == fault->plan.kill) raise(SIGKILL);
}

static enum fate fate_of_next(struct fault *fault, uint32_t source)
{
    const struct fault_plan *plan = &fault->plan;
    uint64_t state = plan->seed;
    state = tutti_mix64(state ^ tutti_random64(&(uint64_t){(uint64_t)source << 32 | fault->decorator.base.me}));
    state += fault->n_arrived[source]++;
    double u = (double)(tutti_random64(&state) >> 11) * 0x1p-53;
    if (u < plan->drop) return FATE_DROP;
    u -= plan->drop;
    /* Half of the repetitions come at once, half when what they belong to may be over. */
    if (u < plan->duplicate) return u < plan->duplicate / 2 ? FATE_DUPLICATE : FATE_DUPLICATE_LATER;
    return u - plan->duplicate < plan->delay ? FATE_DELAY : FATE_PASS;
}

/* What poll returns; release must know where it came from. */
static enum tutti_status give(struct fault *fault, enum origin origin, const struct tutti_event *out)
{
    fault->origin = origin;
    fault->source = out->packet.source;
    return TUTTI_OK;
}

/* Decides about an arrival of the inner transport; true when it is to be given out now. */
static bool judge(struct fault *fault, struct tutti_event *arrival)
{
    struct tutti_transport *inner = fault->decorator.inner;
    const uint64_t due = tutti_deadline_ns(fault->plan.delay_ns);
    switch (fate_of_next(fault, arrival->packet.source)) {
    case FATE_DROP:
        inner->ops->release(inner);
        return false;
    case FATE_DUPLICATE:
        fault->repeat = true;
        fault->arrival = *arrival;
        return true;
    case FATE_DUPLICATE_LATER:
        tutti_delay_queue_put(&fault->queue, arrival, due); /* full: not repeated */
        return true;
    case FATE_DELAY:
        if (!tutti_delay_queue_put(&fault->queue, arrival, due)) return true; /* full: not delayed */
        inner->ops->release(inner);
        return false;
    case FATE_PASS:
        break;
    }
    return true;
}

static bool is_due(struct fault *fault)
{
    const uint64_t due = tutti_delay_queue_due(&fault->queue);
    return due != TUTTI_NEVER && due <= tutti_now_ns();
}

static enum tutti_status fault_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct fault *fault = fault_of(t);
    struct tutti_transport *inner = fault->decorator.inner;
    if (fault->repeat) {
        fault->repeat = false;
        *out = fault->arrival;
        return give(fault, FROM_INNER, out);
    }
    if (is_due(fault)) {
        tutti_delay_queue_peek(&fault->queue, out);
        return give(fault, FROM_QUEUE, out);
    }
    while (!fault->plan.in_order || tutti_delay_queue_has_room(&fault->queue)) {
        enum tutti_status status = tutti_decorator_poll_whole(inner, out);
        if (status != TUTTI_OK || out->type == TUTTI_EVENT_DONE) return status;
        count_operation(fault);
        if (judge(fault, out)) return give(fault, FROM_INNER, out);
    }
    return TUTTI_AGAIN;
}

static void fault_release(struct tutti_transport *t)
{
    struct fault *fault = fault_of(t);
    if (fault->origin == FROM_QUEUE) tutti_delay_queue_pop(&fault->queue, fault->source);
    if (fault->origin == FROM_INNER && !fault->repeat) fault->decorator.inner->ops->release(fault->decorator.inner);
    fault->origin = FROM_NONE;
}

static enum tutti_status fault_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                    const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    enum tutti_status status = inner->ops->send(inner, peer, packet, spans, n_spans, token);
    if (status == TUTTI_OK || status == TUTTI_PENDING) count_operation(fault_of(t));
    return status;
}

static bool fault_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    tutti_sources_until(sources, tutti_delay_queue_due(&fault_of(t)->queue));
    return inner->ops->sleep_begin(inner, sources) && !fault_of(t)->repeat && !is_due(fault_of(t));
}

static bool fault_holds(struct tutti_transport *t, uint32_t peer)
{
    return tutti_delay_queue_holds(&fault_of(t)->queue, peer) || tutti_decorator_holds(t, peer);
}

/* ---- open and close ---- */

static void fault_close(struct tutti_transport *t)
{
    struct fault *fault = fault_of(t);
    if (fault->repeat && fault->decorator.inner) fault->decorator.inner->ops->release(fault->decorator.inner);
    tutti_unmap(fault->n_arrived, t->n * sizeof(*fault->n_arrived));
    tutti_delay_queue_fini(&fault->queue);
    tutti_decorator_close_inner(&fault->decorator);
    tutti_free(fault);
}

static enum tutti_status open_with(struct tutti_transport *inner, const char *name, const struct fault_plan *plan,
                                   struct tutti_transport **out)
{
    static const struct tutti_transport_ops changes = {
        .close = fault_close,
        .send = fault_send,
        .poll = fault_poll,
        .release = fault_release,
        .sleep_begin = fault_sleep_begin,
        .holds = fault_holds,
    };
    struct fault *fault = tutti_alloc(sizeof(*fault));
    if (!fault) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a decorator");
    enum tutti_status status;
    fault->plan = *plan;
    TUTTI_TRY_GOTO(status, tutti_delay_queue_init(&fault->queue, inner->n, inner->max_payload), err_free);
    fault->n_arrived = tutti_map_lazy(inner->n * sizeof(*fault->n_arrived));
    if (!fault->n_arrived) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for the counters of %u peers", inner->n);
        goto err_fini_queue;
    }
    tutti_decorator_init(&fault->decorator, name, &changes, inner);
    *out = &fault->decorator.base;
    return TUTTI_OK;

err_fini_queue:
    tutti_delay_queue_fini(&fault->queue);
err_free:
    tutti_free(fault);
    return status;
}

enum tutti_status tutti_fault_open(struct tutti_transport *inner, const struct tutti_decorator_options *options,
                                   struct tutti_transport **out)
{
    struct fault_plan plan;
    TUTTI_TRY(plan_parse(options && options->fault ? options->fault : "", &plan));
    if (plan.drop + plan.duplicate + plan.delay <= 0 && plan.kill == 0)
        tutti_log(TUTTI_LOG_WARN, "decorator fault does nothing: set option fault, such as seed=1,drop=0.01");
    return open_with(inner, "fault", &plan, out);
}

enum tutti_status tutti_delay_open(struct tutti_transport *inner, const struct tutti_decorator_options *options,
                                   struct tutti_transport **out)
{
    const struct fault_plan plan = {.delay = 1, .delay_ns = options ? options->delay_ns : 0, .in_order = true};
    if (plan.delay_ns == 0)
        tutti_log(TUTTI_LOG_WARN, "decorator delay does nothing: set option delay to a time such as 1ms");
    return open_with(inner, "delay", &plan, out);
}
