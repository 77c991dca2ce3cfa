/* SPDX-License-Identifier: BSD-3-Clause */
/* A call is cut into slices that fit the buffer. A slice takes two turns of each rank: in the first, rank after rank
 * adds what it has; in the second, rank after rank takes the result. The word `turn` counts the turns of all calls. */
#include "serial_backend.h"

#include "backend/shared.h"

#include <math.h>
#include <string.h>

#define CHUNK 4096

struct serial_state serial_state;

struct memory { /* given by slot 0 */
    _Atomic uint32_t turn, users;
    _Alignas(TUTTI_CACHE_LINE) unsigned char chunk[CHUNK];
};

struct serial {
    struct tutti_backend base;
    struct tutti_transport *transport;
    struct memory *memory;
    uint32_t n, me, host; /* slots, the own one; the member of slot 0 */
    uint32_t next;        /* the first turn of the next call */
    bool addresses, connected;
};

struct card {
    uint64_t where;
};

struct op {
    struct tutti_backend_op base;
    struct serial *serial;
    uint32_t turn; /* the own next one */
    uint32_t awaits;
    size_t bytes, at, slice; /* the call's; where this slice begins; what a slice holds */
    bool takes;              /* the own next turn takes the result */
};
_Static_assert(sizeof(struct op) <= TUTTI_RUNNER_BYTES, "the engine copies it");

/* ---- opening ---- */

static enum tutti_status serial_open(const struct tutti_backend_config *config, void *card, struct tutti_backend **out)
{
    struct tutti_transport *t = config->transport;
    struct card mine = {0};
    void *memory = NULL;
    if (serial_state.refuses_open == 1 + config->me)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "slot %u does not stand in line", config->me);
    if (!tutti_memory_reaches_all(t->memory, config->members, config->n))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no memory that all ranks map");
    struct serial *serial = tutti_alloc(sizeof(*serial));
    if (!serial) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an instance");
    *serial = (struct serial){.base = {&serial_backend},
                              .transport = t,
                              .n = config->n,
                              .me = config->me,
                              .host = config->members[0],
                              .addresses = config->n == 1 || tutti_memory_is_one(t->memory)};
    if (serial->me == 0 &&
        tutti_shared_open(t, serial->addresses, sizeof(struct memory), "turns", &memory, &mine.where) < 0) {
        tutti_free(serial);
        return tutti_last_error()->status;
    }
    serial->memory = memory;
    if (memory) atomic_store(&serial->memory->users, serial->n);
    memcpy(card, &mine, sizeof(mine));
    *out = &serial->base;
    return TUTTI_OK;
}

/* Memory of the heap that others have mapped stays there until the world closes. */
static void serial_close(struct tutti_backend *backend, uint64_t deadline_ns)
{
    struct serial *serial = (struct serial *)backend;
    bool last = serial->connected && atomic_fetch_sub(&serial->memory->users, 1) == 1;
    bool unheard = !serial->connected && serial->memory;
    (void)deadline_ns;
    if (unheard || (last && serial->addresses))
        tutti_shared_free(serial->transport, serial->addresses, serial->memory, sizeof(struct memory));
    tutti_free(serial);
}

static enum tutti_status serial_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct serial *serial = (struct serial *)backend;
    struct card first;
    (void)stride;
    memcpy(&first, cards, sizeof(first));
    if (serial->me > 0)
        serial->memory =
            tutti_shared_map(serial->transport, serial->addresses, serial->host, first.where, sizeof(struct memory));
    serial->connected = serial->memory != NULL;
    if (serial->connected && serial_state.breaks_connect != 1 + serial->me) return TUTTI_OK;
    serial_close(backend, 0);
    return tutti_fail(TUTTI_ERR_SYSTEM, "the line is not to be seen");
}

/* ---- calls ---- */

static double serial_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    const enum tutti_kind kind = call->info.kind;
    bool served = kind == TUTTI_ALL_REDUCE || kind == TUTTI_BROADCAST || kind == TUTTI_BARRIER;
    (void)backend;
    return served && !call->method && !call->bind.user && !call->bind.scale ? 1000 : HUGE_VAL;
}

static size_t serial_memory_used(const struct tutti_backend *backend)
{
    return ((const struct serial *)(const void *)backend)->me == 0 ? sizeof(struct memory) : 0;
}

static size_t elements(const struct op *op, size_t *bytes)
{
    size_t left = op->bytes - op->at;
    *bytes = left < op->slice ? left : op->slice;
    return *bytes / tutti_dtype_bytes(op->base.call.bind.dtype);
}

static void add(const struct op *op)
{
    const struct tutti_bind *bind = &op->base.call.bind;
    unsigned char *chunk = op->serial->memory->chunk;
    size_t bytes, n = elements(op, &bytes);
    bool root = op->base.call.info.kind == TUTTI_BROADCAST && (uint32_t)op->base.call.info.root == op->serial->me;
    bool reduces = op->base.call.info.kind == TUTTI_ALL_REDUCE;
    if (bytes == 0 || (!root && !reduces)) return;
    const unsigned char *in = (const unsigned char *)bind->input + op->at;
    if (root || op->serial->me == 0)
        memcpy(chunk, in, bytes);
    else
        bind->reduce(chunk, chunk, in, n);
}

static void take(const struct op *op)
{
    const struct tutti_bind *bind = &op->base.call.bind;
    const unsigned char *chunk = op->serial->memory->chunk;
    size_t bytes, n = elements(op, &bytes);
    if (bytes == 0 || !bind->output) return;
    unsigned char *out = (unsigned char *)bind->output + op->at;
    if (bind->divide)
        bind->divide(out, chunk, n, bind->divisor);
    else
        memcpy(out, chunk, bytes);
}

/* The own turn: false when the call is over. */
static bool step(struct op *op)
{
    struct serial *serial = op->serial;
    if (op->takes)
        take(op);
    else
        add(op);
    atomic_store(&serial->memory->turn, op->turn + 1);
    tutti_futex_wake(&serial->memory->turn, UINT32_MAX);
    op->turn += serial->n;
    if (op->takes) op->at += op->slice;
    op->takes = !op->takes;
    return op->takes || op->at < op->bytes;
}

static enum tutti_advance serial_advance(struct tutti_runner *runner)
{
    struct op *op = (struct op *)(void *)runner;
    uint32_t turn = atomic_load(&op->serial->memory->turn);
    op->awaits = turn % op->serial->n;
    if (turn != op->turn) return TUTTI_RUN_BLOCKED;
    return step(op) ? TUTTI_RUN_MOVED : TUTTI_RUN_DONE;
}

static uint32_t serial_awaits(const struct tutti_runner *runner)
{
    return ((const struct op *)(const void *)runner)->awaits;
}

static bool serial_sleep_begin(struct tutti_runner *runner, _Atomic uint32_t **word, uint32_t *expected)
{
    const struct op *op = (const struct op *)(void *)runner;
    *word = &op->serial->memory->turn;
    *expected = atomic_load(*word);
    return *expected != op->turn;
}

static void nothing(struct tutti_runner *runner)
{
    (void)runner;
}

/* No turn of another rank touches this rank's buffers, so cancelling leaves nothing to wait for. It finds no mismatch:
 * `called` is left out. */
static const struct tutti_runner_ops runner_ops = {.advance = serial_advance,
                                                   .awaits = serial_awaits,
                                                   .sleep_begin = serial_sleep_begin,
                                                   .sleep_end = nothing,
                                                   .cancel = nothing};

static enum tutti_status serial_begin(struct tutti_backend *backend, struct tutti_backend_op *base)
{
    struct serial *serial = (struct serial *)backend;
    struct op *op = (struct op *)base;
    size_t element = tutti_dtype_bytes(base->call.bind.dtype);
    base->runner.ops = &runner_ops;
    op->serial = serial;
    op->bytes = base->call.info.kind == TUTTI_BARRIER ? 0 : base->call.bind.count * element;
    op->slice = CHUNK / element * element;
    op->at = 0, op->takes = false;
    op->turn = serial->next + serial->me;
    size_t n_slices = op->bytes ? (op->bytes + op->slice - 1) / op->slice : 1;
    serial->next += (uint32_t)n_slices * 2 * serial->n;
    atomic_fetch_add(&serial_state.n_begun[base->call.info.kind], 1);
    return TUTTI_OK;
}

const struct tutti_backend_ops serial_backend = {
    .name = "serial",
    .help = "one rank after the other",
    .card_bytes = sizeof(struct card),
    .open = serial_open,
    .connect = serial_connect,
    .close = serial_close,
    .score = serial_score,
    .memory_used = serial_memory_used,
    .begin = serial_begin,
};
