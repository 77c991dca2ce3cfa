/* SPDX-License-Identifier: BSD-3-Clause */
/* The rig: lanes over a transport that is nothing but heaps, and the scheduler. */
#include "rig.h"

#include "backend/flat/flat.h"
#include "comm/comm.h"
#include "rig_call.h"
#include "steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { IN_FLIGHT = 3, NESTED_MOST = 5, WHY = 640 };
#define WORDS_MOST ((size_t)192 << 10)

struct port {
    struct tutti_transport t; /* first */
    struct tutti_memory m;
    struct rig *rig;
    unsigned char *heap;
    size_t heap_used;
};

struct flight {
    union tutti_backend_storage room;
    struct mark_sheet sheet;
    size_t plan;
};

struct rig_rank {
    struct port port;
    struct tutti_backend_host host;
    struct tutti_backend *lane;
    unsigned char *arenas; /* private ones */
    struct flight flights[IN_FLIGHT];
    size_t begun, done;
    bool busy, asleep;
    _Atomic uint32_t *word; /* that it sleeps on; NULL: it was woken */
    uint64_t ticket;        /* the one that sleeps longest is woken first */
    uint32_t me;
    uint64_t seq;
    const struct flat_method *last_method; /* NULL: a tiny call */
};

struct rig {
    struct rig_config config;
    struct rig_rank *ranks;
    size_t arena_bytes, heap_bytes;
    const struct mark_plan *plans;
    size_t n_plans;
    uint64_t random, n_moves; /* steps that brought somebody on */
    uint64_t tickets;
    uint32_t nested;
    bool ends_sleep; /* somebody's */
    char why[WHY];
};

static struct rig *running; /* the rig whose steps are hooked */
static void between(void);

static uint64_t draw(struct rig *rig, uint64_t end)
{
    uint64_t drawn = mark_random(&rig->random);
    return end > 0 ? drawn % end : 0;
}

static struct flat_op *op_of(struct flight *flight)
{
    return (struct flat_op *)(void *)&flight->room;
}

static struct flight *oldest(struct rig_rank *rank)
{
    return &rank->flights[rank->done % IN_FLIGHT];
}

/* ---- futexes: who sleeps longest is woken first ---- */

void __real_tutti_futex_wake(_Atomic uint32_t *word, uint32_t n);
void __wrap_tutti_futex_wake(_Atomic uint32_t *word, uint32_t n);
void __wrap_tutti_futex_wake(_Atomic uint32_t *word, uint32_t n)
{
    struct rig *rig = running;
    if (!rig) {
        __real_tutti_futex_wake(word, n);
        return;
    }
    if (rig->ends_sleep && steps_flaw == FLAW_TREE) return;
    for (; n > 0; n--) {
        struct rig_rank *first = NULL;
        for (uint32_t r = 0; r < rig->config.n; r++) {
            struct rig_rank *rank = &rig->ranks[r];
            if (rank->asleep && rank->word == word && (!first || rank->ticket < first->ticket)) first = rank;
        }
        if (!first) return;
        first->word = NULL;
        rig->n_moves++;
    }
}

/* ---- the transport: heaps that the others map ---- */

static struct port *port_of(const struct tutti_memory *m)
{
    return (struct port *)((uintptr_t)m - offsetof(struct port, m));
}

static enum tutti_status heap_alloc(struct tutti_memory *m, size_t bytes, void **out)
{
    struct port *port = port_of(m);
    bytes = (bytes + 4095) & ~(size_t)4095;
    if (port->heap_used + bytes > port->rig->heap_bytes) return tutti_fail(TUTTI_ERR_MEMORY, "the heap is full");
    *out = port->heap + port->heap_used, port->heap_used += bytes;
    return TUTTI_OK;
}

static enum tutti_status heap_free(struct tutti_memory *m, void *pointer)
{
    (void)m, (void)pointer; /* with the rig */
    return TUTTI_OK;
}

static bool locate(struct tutti_memory *m, const void *pointer, size_t bytes, uint64_t *offset)
{
    uintptr_t at = (uintptr_t)pointer, begin = (uintptr_t)port_of(m)->heap, end = begin + port_of(m)->heap_used;
    bool inside = at >= begin && at <= end && bytes <= end - at;
    if (inside) *offset = at - begin;
    return inside;
}

static void *map(struct tutti_memory *m, uint32_t peer, uint64_t offset, size_t bytes)
{
    const struct port *port = &port_of(m)->rig->ranks[peer].port;
    return offset <= port->heap_used && bytes <= port->heap_used - offset ? port->heap + offset : NULL;
}

static bool reaches(const struct tutti_memory *m, uint32_t peer)
{
    return peer < port_of(m)->rig->config.n;
}

static const struct tutti_memory_ops memory_ops = {sizeof(memory_ops), heap_alloc, heap_free, locate, map, reaches};

/* ---- opening ---- */

static void *reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool sheets_open(struct rig *rig, struct rig_rank *rank)
{
    size_t bytes = rig->arena_bytes;
    rank->arenas = reserve(2 * IN_FLIGHT * bytes);
    if (!rank->arenas) return false;
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        unsigned char *arenas[4] = {rank->arenas + 2 * i * bytes, rank->arenas + (2 * i + 1) * bytes};
        for (int k = 2; k < 4; k++) {
            void *mapped = NULL;
            if (heap_alloc(&rank->port.m, bytes, &mapped) < 0) return false;
            arenas[k] = mapped;
        }
        if (!mark_sheet_open(&rank->flights[i].sheet, bytes, arenas)) return false;
    }
    return true;
}

static bool rank_open(struct rig *rig, uint32_t me, const uint32_t *members, unsigned char *card)
{
    struct rig_rank *rank = &rig->ranks[me];
    const struct rig_config *c = &rig->config;
    size_t room = (sizeof(struct flat_memory) + 4095) / 4096 * 4096 + 2 * FLAT_SLOTS * c->chunk;
    char *method = (char *)(uintptr_t)(c->method ? c->method : "");
    struct tutti_config options = {.text = {[TUTTI_OPT_flat] = method, [TUTTI_OPT_tuning] = (char[]){"off"}},
                                   .number = {[TUTTI_OPT_survives] = c->survives}};
    rank->me = me, rank->port.rig = rig, rank->port.heap = reserve(rig->heap_bytes);
    rank->port.m = (struct tutti_memory){.ops = &memory_ops, .addresses = c->addresses};
    rank->port.t = (struct tutti_transport){.name = "rig", .memory = &rank->port.m, .n = c->n, .me = me};
    pthread_mutex_init(&rank->host.lock, NULL);
    if (!rank->port.heap || !sheets_open(rig, rank)) return false;
    struct tutti_backend_config config = {.host = &rank->host,
                                          .transport = &rank->port.t,
                                          .members = members,
                                          .n = c->n,
                                          .me = me,
                                          .crowded = c->crowded,
                                          .n_cpus = c->crowded ? 2 : c->n,
                                          .reproducible = c->reproducible,
                                          .staging_bytes = 2 * room,
                                          .options = &options,
                                          .machine = &tutti_machine_default};
    return tutti_backend_flat.open(&config, card, &rank->lane) == TUTTI_OK;
}

struct rig *rig_open(const struct rig_config *config)
{
    struct rig *rig = calloc(1, sizeof *rig);
    uint32_t n = config->n, members[MARK_MAX_RANKS];
    unsigned char *cards = calloc(n, tutti_backend_flat.card_bytes);
    bool open = rig && cards;
    if (open) {
        rig->config = *config;
        rig->random = config->seed;
        rig->arena_bytes = (mark_arena_bytes(WORDS_MOST) + 4095) & ~(size_t)4095;
        rig->heap_bytes = 2 * IN_FLIGHT * rig->arena_bytes + ((size_t)4 << 20);
        rig->ranks = aligned_alloc(_Alignof(struct rig_rank), n * sizeof *rig->ranks);
        if (rig->ranks) memset(rig->ranks, 0, n * sizeof *rig->ranks);
        open = rig->ranks != NULL;
    }
    for (uint32_t r = 0; r < n; r++) members[r] = r;
    for (uint32_t r = 0; open && r < n; r++)
        open = rank_open(rig, r, members, cards + (size_t)r * tutti_backend_flat.card_bytes);
    for (uint32_t r = 0; open && r < n; r++) {
        open = tutti_backend_flat.connect(rig->ranks[r].lane, cards, tutti_backend_flat.card_bytes) == TUTTI_OK;
        struct flat_instance *lane = (struct flat_instance *)rig->ranks[r].lane;
        lane->spins = 0;
        lane->fences = true; /* in one thread both ways are alike, and this one is cheap */
    }
    free(cards);
    if (!open) fprintf(stderr, "rig: %s\n", tutti_last_error()->text), abort();
    return rig;
}

void rig_close(struct rig *rig)
{
    for (uint32_t r = 0; r < rig->config.n; r++) rig->ranks[r].lane->ops->close(rig->ranks[r].lane, 0);
    for (uint32_t r = 0; r < rig->config.n; r++) {
        struct rig_rank *rank = &rig->ranks[r];
        tutti_backend_sweep(&rank->host, true);
        pthread_mutex_destroy(&rank->host.lock);
        for (; rank->done < rank->begun; rank->done++) tutti_free(op_of(oldest(rank))->tables);
        for (size_t i = 0; i < IN_FLIGHT; i++) mark_sheet_close(&rank->flights[i].sheet);
        munmap(rank->arenas, 2 * IN_FLIGHT * rig->arena_bytes);
        munmap(rank->port.heap, rig->heap_bytes);
    }
    free(rig->ranks);
    free(rig);
}

size_t rig_chunk(const struct rig *rig)
{
    return ((const struct flat_instance *)rig->ranks[0].lane)->chunk;
}

size_t rig_words_most(const struct rig *rig)
{
    (void)rig;
    return WORDS_MOST;
}

const char *rig_why(const struct rig *rig)
{
    return rig->why;
}

uint32_t rig_ran(const struct rig *rig, const struct flat_method *method)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < rig->config.n; r++) n += rig->ranks[r].last_method == method;
    return n;
}

/* ---- calls ---- */

bool rig_fits(struct rig *rig, const struct flat_method *method, const struct mark_plan *plan)
{
    struct tutti_backend_call call;
    struct mark_sheet *sheet = &rig->ranks[0].flights[0].sheet;
    mark_prepare(plan, 0, sheet);
    rig_call_make(plan, 0, sheet, &call);
    return flat_fits((const struct flat_instance *)rig->ranks[0].lane, method, &call);
}

bool rig_serves(const struct rig *rig, enum tutti_kind kind)
{
    const struct tutti_backend *backend = rig->ranks[0].lane;
    struct tutti_backend_call call = {
        .bind = {.count = 1, .dtype = TUTTI_UINT8}, .info = {.kind = kind, .dtype = TUTTI_UINT8}, .commutative = true};
    bool small = backend->ops->score(backend, &call) < HUGE_VAL;
    call.bind.count = SIZE_MAX / 4;
    return small && backend->ops->score(backend, &call) < HUGE_VAL;
}

/* ---- one rank's step ---- */

static void fail(struct rig *rig, const char *why)
{
    if (!rig->why[0])
        snprintf(rig->why, sizeof rig->why, "%.560s; option flat \"%s\", seed %llu", why,
                 rig->config.method ? rig->config.method : "", (unsigned long long)rig->config.seed);
}

static void end(struct rig *rig, struct rig_rank *rank, struct flight *flight)
{
    char why[WHY / 2];
    const struct mark_plan *p = &rig->plans[flight->plan];
    rank->done++;
    rig->n_moves++;
    if (!mark_check(p, rank->me, &flight->sheet, why, sizeof why)) fail(rig, why);
}

/* As run.c fills it. */
static enum tutti_advance begin_tiny(struct rig_rank *rank, const struct mark_plan *p, struct flight *flight)
{
    const struct tutti_backend_call *call = &flight->room.op.call;
    const struct tutti_kind_info *kind = tutti_kind_info(p->kind);
    struct tutti_tiny tiny = {.kind = p->kind,
                              .log_element = 3,
                              .divisor = p->n,
                              .root = p->root,
                              .send = p->kind == TUTTI_BROADCAST ? call->bind.output : call->bind.input,
                              .recv = call->bind.output,
                              .send_bytes = flight->sheet.in.words * 8,
                              .bytes = call->bind.count * 8,
                              .reduce = kind->reduces ? call->bind.reduce : NULL,
                              .seq = call->seq,
                              .signature = call->info.signature,
                              .call = tutti_call_word(p->kind, TUTTI_UINT64, (uint32_t)call->info.op, call->info.root),
                              .count = call->info.count};
    ((struct flat_instance *)rank->lane)->spins = 0;
    return rank->lane->ops->tiny(rank->lane, &tiny);
}

static bool may_be_tiny(const struct rig_rank *rank, const struct mark_plan *p)
{
    bool plain = !p->v && !p->scaled && !p->algorithm[0];
    size_t bytes = p->kind == TUTTI_BARRIER ? 0 : p->count * 8;
    return plain && rank->begun == rank->done && (bytes > 0 || p->kind == TUTTI_BARRIER) &&
           bytes < rank->lane->ops->tiny_below(rank->lane, p->kind);
}

static void begin(struct rig *rig, struct rig_rank *rank)
{
    struct flight *flight = &rank->flights[rank->begun % IN_FLIGHT];
    const struct mark_plan *p = &rig->plans[rank->begun];
    struct tutti_backend_op *op = &flight->room.op;
    enum tutti_advance got = TUTTI_RUN_MOVED;
    if (mark_touched(&flight->sheet)) fail(rig, "a buffer was touched after its call had ended");
    flight->plan = rank->begun;
    mark_prepare(p, rank->me, &flight->sheet);
    rig_call_make(p, rank->me, &flight->sheet, &op->call);
    op->call.seq = ++rank->seq;
    bool tiny = may_be_tiny(rank, p) && draw(rig, 3) > 0;
    rank->begun++;
    rig->n_moves++;
    if (tiny) got = begin_tiny(rank, p, flight);
    if (got == TUTTI_RUN_DONE) {
        rank->last_method = NULL;
        end(rig, rank, flight);
    } else if (got == TUTTI_RUN_BLOCKED) {
        rank->lane->ops->resume(rank->lane, op);
    } else if (rank->lane->ops->begin(rank->lane, op) < 0) {
        fail(rig, tutti_last_error()->text);
    }
    if (got != TUTTI_RUN_DONE) op_of(flight)->spins = 0;
}

/* The planted fault: it is not counted meanwhile. */
static void count_asleep(struct flight *flight, uint32_t change)
{
    const struct flat_op *op = op_of(flight);
    if (steps_flaw == FLAW_ASLEEP) atomic_fetch_add(&op->inst->areas[op->awaited]->sleepers, change);
}

static void wake_up(struct rig *rig, struct rig_rank *rank)
{
    struct tutti_runner *runner = &oldest(rank)->room.op.runner;
    count_asleep(oldest(rank), 1);
    rig->ends_sleep = true;
    runner->ops->sleep_end(runner);
    rig->ends_sleep = false;
    rank->asleep = false;
}

/* As the engine: it does not sleep when the word has moved since. */
static void fall_asleep(struct rig *rig, struct rig_rank *rank, struct flight *flight)
{
    struct tutti_runner *runner = &flight->room.op.runner;
    uint32_t expected;
    bool sleeps = runner->ops->sleep_begin(runner, &rank->word, &expected);
    if (sleeps) between();
    rank->asleep = true;
    rank->ticket = rig->tickets++;
    count_asleep(flight, UINT32_MAX);
    if (!sleeps || atomic_load(rank->word) != expected) wake_up(rig, rank);
}

static void advance(struct rig *rig, struct rig_rank *rank)
{
    struct flight *flight = oldest(rank);
    struct tutti_runner *runner = &flight->room.op.runner;
    enum tutti_advance got = runner->ops->advance(runner);
    char text[WHY / 2], plan[256];
    if (got == TUTTI_RUN_MOVED) rig->n_moves++;
    if (got == TUTTI_RUN_DONE) {
        rank->last_method = op_of(flight)->method;
        end(rig, rank, flight);
    } else if (got == TUTTI_RUN_MISMATCH || got == TUTTI_RUN_FAILED) {
        mark_print(&rig->plans[flight->plan], plan, sizeof plan);
        snprintf(text, sizeof text, "rank %u %s: %s", rank->me, got == TUTTI_RUN_FAILED ? "failed" : "differs", plan);
        fail(rig, text);
    } else if (got == TUTTI_RUN_BLOCKED && (rig->config.sleepy || draw(rig, 3) == 0)) {
        fall_asleep(rig, rank, flight);
    }
}

static bool over(const struct rig *rig, const struct rig_rank *rank)
{
    return rank->done == rig->n_plans;
}

static void step(struct rig *rig, struct rig_rank *rank)
{
    if (rank->busy || over(rig, rank) || rig->why[0]) return;
    rank->busy = true;
    if (rank->asleep && !rank->word) wake_up(rig, rank);
    bool room = rank->begun < rig->n_plans && rank->begun - rank->done < IN_FLIGHT;
    if (!rank->asleep && room && (rank->begun == rank->done || draw(rig, 4) == 0)) begin(rig, rank);
    if (!rank->asleep && rank->begun > rank->done && !rig->why[0]) advance(rig, rank);
    rank->busy = false;
}

/* ---- the scheduler ---- */

/* Between the steps of one rank: now and then another takes some. */
static void between(void)
{
    struct rig *rig = running;
    if (!rig || rig->nested == NESTED_MOST || draw(rig, 6) != 0) return;
    rig->nested++;
    struct rig_rank *rank = &rig->ranks[draw(rig, rig->config.n)];
    for (uint64_t i = draw(rig, 8); i < 8; i++) step(rig, rank);
    rig->nested--;
}

/* What every rank is at, for the report of a deadlock. */
static void tell_stuck(struct rig *rig)
{
    char why[WHY];
    int at = snprintf(why, sizeof why, "nobody goes on:");
    for (uint32_t r = 0; r < rig->config.n && at < WHY - 160; r++) {
        struct rig_rank *rank = &rig->ranks[r];
        struct flight *flight = oldest(rank);
        const struct mark_plan *p = &rig->plans[flight->plan];
        if (over(rig, rank)) continue;
        at += snprintf(why + at, sizeof why - (size_t)at,
                       " rank %u %s for rank %u by %s (call %zu, %s of %zu words, at %u/%u);", r,
                       rank->asleep ? "sleeps" : "waits", op_of(flight)->awaited, op_of(flight)->method->name,
                       flight->plan, tutti_kind_name(p->kind), p->count, op_of(flight)->prologue, op_of(flight)->at);
    }
    fail(rig, why);
}

/* For a while only some ranks are let on: one may be far ahead, or far behind, of all others. */
static void let_some_on(struct rig *rig)
{
    uint32_t n = rig->config.n, first = (uint32_t)draw(rig, n), some = 1 + (uint32_t)draw(rig, n);
    for (uint64_t i = 0, most = draw(rig, 30 + 8 * n); i < most && n > 0 && !rig->why[0]; i++)
        step(rig, &rig->ranks[(first + draw(rig, some)) % n]);
}

/* Everybody has turns until one gets on; none does: it is over, or stuck. */
static bool let_all_on(struct rig *rig)
{
    uint64_t before = rig->n_moves;
    bool all = true;
    for (int turns = 0; turns < 200; turns++) {
        all = true;
        for (uint32_t r = 0; r < rig->config.n && !rig->why[0]; r++) {
            step(rig, &rig->ranks[r]);
            all &= over(rig, &rig->ranks[r]);
        }
        if (all || rig->why[0]) return false;
        if (rig->n_moves != before) return true;
    }
    tell_stuck(rig);
    return false;
}

bool rig_run(struct rig *rig, const struct mark_plan *plans, size_t n)
{
    rig->plans = plans;
    rig->n_plans = n;
    for (uint32_t r = 0; r < rig->config.n; r++) rig->ranks[r].begun = rig->ranks[r].done = 0;
    running = rig;
    steps_between = between;
    do let_some_on(rig);
    while (let_all_on(rig));
    steps_between = NULL;
    running = NULL;
    for (uint32_t r = 0; r < rig->config.n; r++)
        for (size_t i = 0; i < IN_FLIGHT; i++)
            if (mark_touched(&rig->ranks[r].flights[i].sheet)) fail(rig, "a buffer was touched after its call");
    return !rig->why[0];
}
