/* SPDX-License-Identifier: BSD-3-Clause */
/* By what a call goes, decided once: first by where its buffers are, then by what takes it there. And what follows from
 * its arguments, for whoever carries it out. */
#include "algo/algo.h"
#include "comm/call/device.h"
#include "load/load.h"

#include <math.h>
#include <stdio.h>

#define REFUSE(...) tutti_call_fail(call, TUTTI_ERR_ARGUMENT, __VA_ARGS__)

/* ---- what follows from the arguments ---- */

#define OP_USER (int)TUTTI_N_OPS /* in signatures: handles differ from rank to rank */

/* Stands in for a NULL buffer of zero bytes, as NULL in a bind means "no buffer here". */
static char nothing;

static bool is_table_shared(const struct tutti_call *call)
{
    return call->job.bind.v && tutti_kind_info(call->job.info.kind)->tables == TUTTI_SHARED_TABLE;
}

/* The kernels of a built-in operation. avg of small floats with a narrow range scales its inputs by a power of two
 * first, so that their sum is in the range, and divides by the rest. */
static void ready_op(struct tutti_call *call)
{
    struct tutti_bind *bind = &call->job.bind;
    const struct tutti_call_info *info = &call->job.info;
    const struct tutti_comm *comm = call->comm;
    const struct tutti_cpu_kernels *kernels = comm->context->kernels;
    bind->reduce = kernels->reduce[info->dtype][info->op];
    if (info->op == TUTTI_PREMUL_SUM) bind->scale = kernels->scale[info->dtype];
    if (info->op != TUTTI_AVG) return;
    const uint32_t shift = tutti_average_shift(info->dtype, (uint32_t)comm->size);
    bind->divide = kernels->divide[info->dtype];
    bind->divisor =
        tutti_divisor(tutti_kind_contributors(info->kind, (uint32_t)comm->rank, (uint32_t)comm->size), shift);
    if (shift == 0) return;
    bind->scale = kernels->scale[info->dtype];
    tutti_factor_encode(info->dtype, ldexp(1, -(int)shift), call->job.factor);
}

/* In a shared table the counts, not the displacements, which may differ. */
static uint64_t signed_count(const struct tutti_call *call)
{
    const struct tutti_bind *bind = &call->job.bind;
    if (!bind->v) return bind->count;
    if (!is_table_shared(call)) return TUTTI_COUNT_UNEQUAL;
    return tutti_hash64(bind->counts, (size_t)call->comm->size * sizeof(size_t), 0) | TUTTI_COUNT_UNEQUAL;
}

#define BY_LIBRARY UINT64_C(0x6c696272617279) /* a member that goes another way calls something else */

void tutti_call_sign(struct tutti_call *call)
{
    const struct tutti_schedule *schedule = call->job.bind.schedule;
    const struct tutti_backend *backend = call->backend;
    const uint64_t way = schedule ? schedule->hash : backend && backend->ops->is_library ? BY_LIBRARY : 0;
    call->job.info.signature =
        tutti_sign(&call->job.info, call->job.bind.v, !call->job.commutative, way, call->purpose);
}

void tutti_call_ready(struct tutti_call *call)
{
    struct tutti_call_info *info = &call->job.info;
    struct tutti_bind *bind = &call->job.bind;
    const struct tutti_comm *comm = call->comm;
    info->timeout_ns = call->options.timeout_ns ? call->options.timeout_ns
                                                : atomic_load_explicit(&comm->timeout_ns, memory_order_relaxed);
    info->label = call->options.label;
    call->job.overlaps = call->options.overlap;
    bind->dtype = info->dtype;
    bind->divisor = 1;
    if (call->type != TUTTI_CALL_COLLECTIVE) return;
    const struct tutti_kind_info *kind = tutti_kind_info(info->kind);
    const uint32_t rank = (uint32_t)comm->rank, root = (uint32_t)info->root;
    if (!tutti_side_blocks(kind->send, rank, root, 1))
        bind->input = NULL;
    else if (!bind->input)
        bind->input = &nothing;
    if (!tutti_side_blocks(kind->recv, rank, root, 1))
        bind->output = NULL;
    else if (!bind->output)
        bind->output = &nothing;
    if (!kind->rooted) info->root = -1;
    if (!kind->reduces)
        info->op = -1;
    else if (bind->user)
        info->op = OP_USER;
    else
        ready_op(call);
    info->count = signed_count(call);
    tutti_call_sign(call);
}

/* ---- where the buffers are ---- */

struct buffer {
    const char *name;
    const void *pointer;
    bool empty;
    int32_t device; /* -1: host memory */
};

static bool side_is_empty(const struct tutti_call_side *side)
{
    if (!side->counts) return side->block_bytes == 0;
    for (size_t b = 0; b < side->n_blocks; b++)
        if (side->counts[b]) return false;
    return true;
}

/* What the call reads and writes here. */
static uint32_t buffers_of(const struct tutti_call *call, struct buffer out[2])
{
    uint32_t n = 0;
    for (int sending = 1; sending >= 0; sending--) {
        struct tutti_call_side side = tutti_call_side(call, sending != 0);
        const void *base = side.base == &nothing ? NULL : side.base;
        if (side.n_blocks) out[n++] = (struct buffer){side.name, base, side_is_empty(&side), -1};
    }
    return n;
}

static enum tutti_status refuse_foreign(const struct tutti_call *call, const struct buffer *buffer)
{
    const struct tutti_comm_device *device = call->comm->device;
    struct tutti_error failure; /* on the way to a device, too */
    if (!device && tutti_team_state(call->comm->team, &failure) < 0) return tutti_fail_record(&failure);
    if (!device || !device->device)
        return REFUSE("%s is memory of device %d, but the communicator has no device at this rank: give it one by "
                      "tutti_comm_config.device or tutti_comm_set_device",
                      buffer->name, (int)buffer->device);
    return REFUSE("%s is memory of device %d, but the communicator's device at this rank is %d: copy it there, or use "
                  "tutti_comm_set_device",
                  buffer->name, (int)buffer->device, (int)device->ordinal);
}

static enum tutti_status refuse_unreached(const struct tutti_call *call, const struct buffer *buffer)
{
    return REFUSE("%s is memory of the host that device %d does not reach: pin it, or copy it to the device",
                  buffer->name, (int)call->comm->device->ordinal);
}

static enum tutti_status refuse_mixed(const struct tutti_call *call, const struct buffer *a, const struct buffer *b)
{
    const struct buffer *there = a->device >= 0 ? a : b, *here = a->device >= 0 ? b : a;
    return REFUSE("%s is memory of device %d, but %s is host memory: copy one of them, so that both are of one kind",
                  there->name, (int)there->device, here->name);
}

/* What device memory of the communicator's means: its back ends' calls, if there are some, else staging. */
static enum tutti_via via_device(const struct tutti_comm_device *device)
{
    return device->n > 0 ? TUTTI_VIA_DEVICE : TUTTI_VIA_STAGING;
}

/* A call without a byte of this rank. Where all ranks have the same counts it is so on all, and goes where no buffer is
 * needed to tell; else where its pointers are, if it has any. */
static enum tutti_via via_of_empty(const struct tutti_call *call, const struct buffer *buffers, uint32_t n)
{
    const struct tutti_comm_device *device = call->comm->device;
    bool given = false, here = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!buffers[i].pointer) continue;
        given = true;
        here |= device && device->device && device->device->ops->of(buffers[i].pointer) == device->ordinal;
    }
    if (!device || !device->device || n == 0) return TUTTI_VIA_ENGINE;
    bool uneven = call->job.bind.v || call->type != TUTTI_CALL_COLLECTIVE;
    if (device->n > 0 && (!uneven || !given)) return TUTTI_VIA_DEVICE;
    return here ? via_device(device) : TUTTI_VIA_ENGINE;
}

/* ENGINE, DEVICE or STAGING, for what is on the host's memory, on the device's, and on it where no back end serves. */
static enum tutti_status via_of_memory(const struct tutti_call *call, enum tutti_via *out)
{
    const struct tutti_comm_device *device = call->comm->device;
    struct buffer buffers[2] = {{NULL, NULL, true, -1}, {NULL, NULL, true, -1}};
    const struct buffer *first = NULL;
    *out = TUTTI_VIA_ENGINE;
    if (!device && !call->comm->guarded) return TUTTI_OK;
    uint32_t n = buffers_of(call, buffers);
    for (uint32_t i = 0; i < n; i++) {
        struct buffer *buffer = &buffers[i];
        if (buffer->empty) continue;
        buffer->device = tutti_device_of(buffer->pointer);
        if (call->options.ordered && device && device->device && buffer->device < 0) {
            if (!tutti_device_pins(buffer->pointer)) return refuse_unreached(call, buffer);
            buffer->device = device->ordinal;
        }
        if (first && (first->device < 0) != (buffer->device < 0)) return refuse_mixed(call, first, buffer);
        first = buffer;
    }
    for (uint32_t i = 0; i < n; i++)
        if (buffers[i].device >= 0 && (!device || buffers[i].device != device->ordinal))
            return refuse_foreign(call, &buffers[i]);
    if (!first)
        *out = via_of_empty(call, buffers, n);
    else if (first->device >= 0)
        *out = via_device(device);
    return TUTTI_OK;
}

/* ---- which algorithm ---- */

/* Bytes of a block, as far as all ranks know them. */
static uint64_t shared_bytes(const struct tutti_call *call)
{
    const struct tutti_bind *bind = &call->job.bind;
    size_t count = bind->v ? 0 : bind->count;
    if (is_table_shared(call))
        for (int32_t r = 0; r < call->comm->size; r++)
            if (bind->counts[r] > count) count = bind->counts[r];
    return count * tutti_dtype_bytes(call->job.info.dtype);
}

static void question_of(const struct tutti_call *call, struct tutti_question *out)
{
    *out = (struct tutti_question){
        .kind = call->job.info.kind,
        .bytes = shared_bytes(call),
        .commutative = call->job.commutative,
        .v = call->job.bind.v,
        .counts_shared = is_table_shared(call),
        .algorithm = call->options.algorithm,
    };
}

static enum tutti_status choose_algorithm(struct tutti_call *call)
{
    struct tutti_question question;
    question_of(call, &question);
    if (tutti_choose(&call->comm->facts, &question, &call->algorithm, &call->shape) < 0) {
        struct tutti_error why = *tutti_last_error();
        return tutti_call_fail(call, why.status, "%s", why.text);
    }
    call->shape.slot = (uint32_t)call->comm->rank;
    call->shape.root = tutti_kind_info(call->job.info.kind)->rooted ? (uint32_t)call->job.info.root : 0;
    return TUTTI_OK;
}

/* ---- which back end ---- */

struct tutti_backend *tutti_backend_choose(struct tutti_comm *comm, const struct tutti_backend_call *job,
                                           bool on_device)
{
    struct tutti_comm_device *device = comm->device;
    struct tutti_backend *best = NULL;
    double least = HUGE_VAL;
    if (!on_device) {
        if (comm->library_first && comm->library && comm->library->ops->score(comm->library, job) < HUGE_VAL)
            return comm->library;
        return comm->backend && comm->backend->ops->score(comm->backend, job) < HUGE_VAL ? comm->backend : NULL;
    }
    struct tutti_device_choice *choice = &device->choices[job->info.signature % TUTTI_DEVICE_CHOICES];
    if (choice->signature == job->info.signature && choice->backend) return choice->backend;
    for (uint32_t b = 0; b < device->n; b++) {
        double ns = device->backends[b]->ops->score(device->backends[b], job);
        if (ns < least) best = device->backends[b], least = ns;
    }
    *choice = (struct tutti_device_choice){job->info.signature, best};
    return best;
}

/* An algorithm that the call names by its file is loaded, where it was not yet. */
static enum tutti_status load_named(const struct tutti_call *call)
{
    const struct tutti_algorithm *algorithm;
    if (!tutti_load_is_path(call->options.algorithm)) return TUTTI_OK;
    const enum tutti_status status =
        tutti_load_find(&call->comm->context->config, call->options.algorithm, NULL, &algorithm);
    return status < 0 ? tutti_call_fail(call, status, "%s", tutti_last_error()->text) : TUTTI_OK;
}

/* Whether an algorithm that a file gave (option algorithms) carries out the call. */
static bool is_own(const struct tutti_call *call)
{
    const struct tutti_facts *facts = &call->comm->facts;
    return call->type == TUTTI_CALL_COLLECTIVE && facts->own[call->job.info.kind] &&
           tutti_overridden(facts, call->job.info.kind);
}

/* The back end that the call names, which must take it; NULL: it names an algorithm. */
static enum tutti_status choose_named(struct tutti_call *call, bool on_device)
{
    const struct tutti_comm *comm = call->comm;
    const bool collective = call->type == TUTTI_CALL_COLLECTIVE;
    const char *wanted = call->options.algorithm;
    const struct tutti_backend_ops *host = tutti_backend_find(wanted, false);
    struct tutti_backend *found = NULL;
    TUTTI_TRY(load_named(call));
    for (uint32_t b = 0; on_device && b < comm->device->n && !found; b++)
        if (tutti_backend_is_named(comm->device->backends[b]->ops, wanted, &call->job.method))
            found = comm->device->backends[b];
    if (!on_device && host) {
        found = host->is_library ? comm->library : comm->backend;
        if (!found || found->ops != host) return REFUSE("algorithm \"%s\" is not available here", wanted);
        (void)tutti_backend_is_named(host, wanted, &call->job.method);
    }
    if (!found && (!on_device || (collective && tutti_algorithm_find(wanted, NULL)))) return TUTTI_OK;
    if (!found)
        return REFUSE(
            "algorithm \"%s\" is none for device memory here: NAME or NAME:METHOD of a back end (%s) that is open, "
            "or, for a collective, one of `tutti sched list`",
            wanted, tutti_backend_names(true));
    if (collective && found->ops->score(found, &call->job) == HUGE_VAL)
        return REFUSE("algorithm \"%s\" can not run this call", wanted);
    call->backend = found;
    return TUTTI_OK;
}

/* What the device has no kernels for goes through the host. */
static enum tutti_status choose_scheduled(struct tutti_call *call)
{
    TUTTI_TRY(choose_algorithm(call)); /* refuses, for the host too */
    if (!tutti_scheduled_takes(call)) {
        call->algorithm = NULL;
        return TUTTI_OK;
    }
    if (tutti_load_prove(&call->comm->context->config, call->algorithm, call->job.info.kind, &call->shape) >= 0)
        return TUTTI_OK;
    return tutti_call_fail(call, tutti_last_error()->status, "%s", tutti_last_error()->text);
}

/* Messages have no score: the first back end of devices carries them out, or the one that is named. */
static enum tutti_status choose_device(struct tutti_call *call)
{
    struct tutti_comm *comm = call->comm;
    const bool collective = call->type == TUTTI_CALL_COLLECTIVE;
    if (!collective && call->type != TUTTI_CALL_SEND && call->source == TUTTI_ANY_SOURCE)
        return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED,
                               "source is TUTTI_ANY_SOURCE: on device memory it must be a rank");
    if (call->job.bind.user || call->options.wire) return TUTTI_OK;
    if (call->options.algorithm) TUTTI_TRY(choose_named(call, true));
    if (!call->backend && (call->options.algorithm || is_own(call))) return choose_scheduled(call);
    if (call->backend) return TUTTI_OK;
    if (!collective) {
        call->backend = comm->device->backends[0];
        return TUTTI_OK;
    }
    tutti_comm_turn_take(comm); /* the choices are its */
    call->backend = tutti_backend_choose(comm, &call->job, true);
    tutti_comm_turn_give(comm);
    return TUTTI_OK;
}

/* ---- the whole choice ---- */

static enum tutti_status choose_host(struct tutti_call *call)
{
    struct tutti_comm *comm = call->comm;
    const bool overrides = comm->facts.own[call->job.info.kind] || (comm->facts.overrides && comm->facts.overrides[0]);
    call->via = TUTTI_VIA_ENGINE;
    if (call->type != TUTTI_CALL_COLLECTIVE) return TUTTI_OK;
    if (call->options.wire) {
        call->via = TUTTI_VIA_PACKED;
        return TUTTI_OK;
    }
    if (call->purpose) return choose_algorithm(call); /* steps have gates */
    if (call->options.algorithm)
        TUTTI_TRY(choose_named(call, false));
    else if (!overrides || !tutti_overridden(&comm->facts, call->job.info.kind))
        call->backend = tutti_backend_choose(comm, &call->job, false);
    if (!call->backend) return choose_algorithm(call);
    call->via = TUTTI_VIA_BACKEND;
    if (call->backend->ops->is_library) tutti_call_sign(call);
    return TUTTI_OK;
}

enum tutti_status tutti_call_choose_host(struct tutti_call *call)
{
    call->backend = NULL, call->algorithm = NULL, call->job.method = NULL;
    tutti_call_ready(call);
    return choose_host(call);
}

enum tutti_status tutti_call_choose(struct tutti_call *call)
{
    call->backend = NULL, call->algorithm = NULL, call->job.method = NULL;
    TUTTI_TRY(via_of_memory(call, &call->via));
    tutti_call_ready(call);
    if (call->via == TUTTI_VIA_ENGINE) return choose_host(call);
    if (call->options.wire) TUTTI_TRY(tutti_packed_refusal(call));
    if (call->via == TUTTI_VIA_STAGING) return TUTTI_OK;
    TUTTI_TRY(choose_device(call));
    if (!call->backend && !call->algorithm && !call->options.wire) call->via = TUTTI_VIA_STAGING;
    return TUTTI_OK;
}

/* ---- what else could carry it out ---- */

/* Those of a back end; one that has but one way has no list of them. */
static size_t backend_ways(const struct tutti_call *call, struct tutti_backend *backend, struct tutti_way *out,
                           size_t capacity)
{
    struct tutti_backend_candidate found[TUTTI_MAX_WAYS];
    const struct tutti_backend_ops *ops = backend->ops;
    const bool on_device = call->via == TUTTI_VIA_DEVICE;
    const bool is_chosen = backend == call->backend;
    found[0] = (struct tutti_backend_candidate){NULL, ops->score(backend, &call->job), true, 0};
    if (capacity == 0 || found[0].ns == HUGE_VAL) return 0;
    size_t n = ops->candidates
                   ? ops->candidates(backend, &call->job, found, capacity < TUTTI_MAX_WAYS ? capacity : TUTTI_MAX_WAYS)
                   : 1;
    for (size_t i = 0; i < n; i++) {
        const char *method = found[i].method;
        snprintf(out[i].name, sizeof out[i].name, "%s%s%s", ops->name, method ? ":" : "", method ? method : "");
        out[i].ns = found[i].ns;
        out[i].chosen = is_chosen && found[i].chosen;
        out[i].n_sms = on_device && !ops->candidates ? -1 : (int32_t)found[i].n_sms;
    }
    return n;
}

static size_t device_ways(const struct tutti_call *call, struct tutti_way *out, size_t capacity)
{
    const struct tutti_comm_device *device = call->comm->device;
    size_t n = 0;
    for (uint32_t b = 0; b < device->n; b++) n += backend_ways(call, device->backends[b], out + n, capacity - n);
    return n;
}

static struct tutti_way way_of(const struct tutti_algorithm *algorithm, uint32_t radix, double ns, bool chosen)
{
    struct tutti_way way = {.ns = ns, .chosen = chosen};
    snprintf(way.name, sizeof way.name, radix ? "%s:%u" : "%s", algorithm->name, radix);
    return way;
}

/* Those of the table, and the chosen one where it is none of them: what a search found, or a file's. */
static size_t engine_ways(const struct tutti_call *call, struct tutti_way *out, size_t capacity)
{
    bool starred = false;
    struct tutti_candidate found[TUTTI_MAX_CANDIDATES];
    struct tutti_question question;
    question_of(call, &question);
    size_t n = tutti_candidates(&call->comm->facts, &question, found,
                                capacity < TUTTI_MAX_CANDIDATES ? capacity : TUTTI_MAX_CANDIDATES);
    for (size_t i = 0; i < n; i++) {
        const uint32_t radix = found[i].shape.radix;
        const bool chosen = call->algorithm == found[i].algorithm && call->shape.radix == radix;
        out[i] = way_of(found[i].algorithm, radix, found[i].ns, chosen);
        starred |= chosen;
    }
    if (call->algorithm && !starred && n < capacity)
        out[n++] = way_of(call->algorithm, call->shape.radix, HUGE_VAL, true);
    return n;
}

enum tutti_status tutti_explain(const struct tutti_call *call, struct tutti_way *out, size_t capacity, size_t *n)
{
    struct tutti_call asked = *call;
    TUTTI_TRY(tutti_call_options(&asked, NULL));
    TUTTI_TRY(tutti_call_check(&asked));
    TUTTI_TRY(tutti_call_choose(&asked));
    if (asked.options.wire)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s is quantised: there is nothing to choose", asked.name);
    if (asked.via == TUTTI_VIA_STAGING)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s goes through the host: there is nothing to choose", asked.name);
    if (asked.via == TUTTI_VIA_DEVICE) {
        *n = device_ways(&asked, out, capacity);
        return TUTTI_OK;
    }
    *n = asked.comm->backend ? backend_ways(&asked, asked.comm->backend, out, capacity) : 0;
    if (asked.comm->library) *n += backend_ways(&asked, asked.comm->library, out + *n, capacity - *n);
    *n += engine_ways(&asked, out + *n, capacity - *n);
    return TUTTI_OK;
}
