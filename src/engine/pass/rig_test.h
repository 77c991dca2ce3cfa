/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_PASS_RIG_TEST_H
#define TUTTI_ENGINE_PASS_RIG_TEST_H

/* What the engine's tests share: ranks as threads, each with an engine over a `self` transport, and the simplest
 * algorithm of every kind. A rank reports the first thing that is wrong as text; the main thread asserts. */

#include "control/host.h"
#include "control/late_test.h"
#include "engine/engine.h"
#include "transport/host/segment.h"
#include "transport/late_test.h"
#include "transport/open.h"
#include "transport/pairs_test.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "test.h"
#include "virtual_time.h"

#define RIG_TEAM 0x4f2aULL

struct rig;
struct rig_rank {
    struct rig *rig;
    uint32_t me, n;
    struct tutti_engine *engine;
    struct tutti_transport *transport;
    struct tutti_control *control;
    struct tutti_team *team;
    uint64_t random;
    pthread_t thread;
    char wrong[1000];
};
/* How control answers: as that of one host does; late; late, and boards never. For all rigs from now on. */
enum rig_control { RIG_AT_ONCE, RIG_LATE, RIG_MUTE };
static enum rig_control rig_control;
/* The time of all ranks where control answers at once, in programs that set rig_virtual; else NULL, the system's. */
static bool rig_virtual;
static struct virtual_time *rig_time;
#define RIG_LATE_NS (20 * TUTTI_NS_PER_MS)
#define RIG_WIRE_PAYLOAD 16384 /* of late wires: a message has several packets */

struct rig {
    uint32_t n;
    struct late_hub *hub;
    uint64_t late_ns; /* that control takes; 0: RIG_LATE_NS */
    uint64_t wire_ns; /* the wire completes late, and a packet takes so long; 0: over `self` */
    struct late_net *net;
    bool tcp;        /* over tcp */
    const char *ofi; /* over this provider of libfabric */
    struct pairs *pairs;
    const char *decorators, *fault;
    size_t slice_bytes, eager_bytes, zero_copy_bytes, staging_bytes;
    uint64_t spin_ns, timeout_ns, compare_after_ns;
    void (*main)(struct rig_rank *rank);
    void *arg;
    bool no_team;
    pthread_barrier_t barrier;
    struct tutti_segment *segment;
    struct rig_rank *ranks;
};

#define RIG_CHECK(rank, claim, ...)                                                                                    \
    do {                                                                                                               \
        if (!(claim) && !(rank)->wrong[0]) {                                                                           \
            int at_ = snprintf((rank)->wrong, sizeof((rank)->wrong), "rank %u, line %d: %s: ", (rank)->me, __LINE__,   \
                               #claim);                                                                                \
            snprintf((rank)->wrong + at_, sizeof((rank)->wrong) - (size_t)at_, __VA_ARGS__);                           \
        }                                                                                                              \
    } while (0)
#define RIG_OK(rank, call) RIG_CHECK(rank, (call) == TUTTI_OK, "%.300s", tutti_last_error()->text)

static inline uint64_t rig_now(void)
{
    return tutti_clock_now(rig_time ? &rig_time->clock : NULL);
}
static inline void rig_sleep(uint64_t ns)
{
    tutti_clock_sleep(rig_time ? &rig_time->clock : NULL, ns);
}
/* All ranks come. */
static inline void rig_meet(struct rig_rank *rank);

static inline struct tutti_team *rig_team(struct rig_rank *rank, uint64_t id, uint32_t epoch)
{
    struct tutti_team *team = NULL;
    uint32_t *members = malloc(rank->n * sizeof(*members));
    for (uint32_t i = 0; i < rank->n; i++) members[i] = i;
    struct tutti_team_config config = {.transport = rank->transport,
                                       .id = id,
                                       .epoch = epoch,
                                       .size = rank->n,
                                       .slot = rank->me,
                                       .members = members,
                                       .timeout_ns = rank->rig->timeout_ns};
    RIG_OK(rank, tutti_team_create(rank->engine, &config, &team));
    free(members);
    return team;
}

static inline void rig_meet(struct rig_rank *rank)
{
    if (rig_time) virtual_leave(rig_time);
    pthread_barrier_wait(&rank->rig->barrier);
    if (!rig_time) return;
    virtual_join(rig_time);
    pthread_barrier_wait(&rank->rig->barrier); /* time passes when all take part again */
}

static inline void *rig_thread(void *arg)
{
    struct rig_rank *rank = arg;
    struct rig *rig = rank->rig;
    struct tutti_engine_config config = {.slice_bytes = rig->slice_bytes,
                                         .eager_bytes = rig->eager_bytes,
                                         .zero_copy_bytes = rig->zero_copy_bytes,
                                         .spin_ns = rig->spin_ns,
                                         .compare_after_ns = rig->compare_after_ns,
                                         .simd = "auto",
                                         .clock = rig_time ? &rig_time->clock : NULL,
                                         .poller = rig_time ? &rig_time->poller : NULL};
    struct tutti_decorator_options options = {.fault = rig->fault, .delay_ns = TUTTI_NS_PER_MS};
    struct tutti_segment *segment = NULL, *again = NULL;

    if (rig->hub) {
        rank->control = late_open(rig->hub, rank->me);
    } else {
        RIG_OK(rank, tutti_segment_share(rig->segment, &again));
        RIG_OK(rank, tutti_host_control_open(again, rank->me, &rank->control));
    }
    if (rig->net) {
        rank->transport = late_wire_open(rig->net, rank->me);
        rank->transport->max_payload = RIG_WIRE_PAYLOAD;
    } else if (rig->pairs) {
        RIG_OK(rank, pairs_open(rig->pairs, rank->me, &rank->transport));
    } else {
        RIG_OK(rank, tutti_segment_share(rig->segment, &segment));
        RIG_OK(rank, tutti_transport_open("self", segment, rank->me, &rank->transport));
    }
    if (rig->decorators)
        RIG_OK(rank, tutti_transport_decorate(rank->transport, rig->decorators, &options, &rank->transport));
    RIG_OK(rank, tutti_engine_create(&config, &rank->engine));
    RIG_OK(rank, tutti_engine_attach(rank->engine, rank->transport, rank->control));
    rig_meet(rank);
    if (!rank->wrong[0]) {
        if (!rig->no_team) rank->team = rig_team(rank, RIG_TEAM, 0);
        rig->main(rank);
        if (rank->team) tutti_team_destroy(rank->team);
    }
    rig_meet(rank);
    tutti_engine_detach(rank->engine, rank->transport);
    rank->control->ops->close(rank->control);
    if (rig->pairs) pairs_leave(rig->pairs, rank->me);
    rank->transport->ops->close(rank->transport);
    tutti_engine_destroy(rank->engine);
    return NULL;
}

/* Runs main on n ranks; fails the test with the first thing that was wrong. Zero fields get defaults. */
static inline void rig_run(struct rig *rig)
{
    struct tutti_segment_config config = {rig->n, rig->staging_bytes ? rig->staging_bytes : 1 << 20, 1 << 24,
                                          tutti_host_control_bytes(rig->n)};
    pthread_attr_t attributes;

    if (!rig->slice_bytes) rig->slice_bytes = 1 << 17;
    if (!rig->eager_bytes) rig->eager_bytes = 2048;
    if (!rig->zero_copy_bytes) rig->zero_copy_bytes = SIZE_MAX;
    if (!rig->timeout_ns) rig->timeout_ns = 60 * TUTTI_NS_PER_S;
    if (!rig->compare_after_ns) rig->compare_after_ns = 5 * TUTTI_NS_PER_S;
    rig_time = rig_virtual && rig_control == RIG_AT_ONCE ? virtual_time_create() : NULL;
    rig->ranks = calloc(rig->n, sizeof(*rig->ranks));
    assert_int_equal(tutti_segment_create(&config, false, &rig->segment), TUTTI_OK);
    pthread_barrier_init(&rig->barrier, NULL, rig->n);
    rig->hub = rig_control == RIG_AT_ONCE
                   ? NULL
                   : late_hub_make(rig->n, rig->late_ns ? rig->late_ns : RIG_LATE_NS, rig_control == RIG_LATE);
    rig->pairs = rig->tcp || rig->ofi ? pairs_new(rig->n, AF_INET) : NULL;
    if (rig->pairs) rig->pairs->provider = rig->ofi;
    rig->net = rig->wire_ns ? late_net_make(rig->n, rig_time ? &rig_time->clock : NULL, rig->wire_ns) : NULL;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    for (uint32_t i = 0; i < rig->n; i++) {
        struct rig_rank *rank = &rig->ranks[i];
        rank->rig = rig, rank->me = i, rank->n = rig->n;
        rank->random = test_seed() + i;
        assert_int_equal(pthread_create(&rank->thread, &attributes, rig_thread, rank), 0);
    }
    for (uint32_t i = 0; i < rig->n; i++) pthread_join(rig->ranks[i].thread, NULL);
    pthread_attr_destroy(&attributes);
    pthread_barrier_destroy(&rig->barrier);
    if (rig->hub) late_hub_free(rig->hub);
    if (rig->net) late_net_free(rig->net);
    if (rig->pairs) pairs_free(rig->pairs);
    if (rig_time) virtual_time_destroy(rig_time);
    rig_time = NULL;
    tutti_segment_release(rig->segment);
    for (uint32_t i = 0; i < rig->n; i++)
        if (rig->ranks[i].wrong[0]) fail_msg("%s (seed %" PRIu64 ")", rig->ranks[i].wrong, test_seed());
    free(rig->ranks);
    rig->ranks = NULL;
}

/* ---- the simplest algorithms ---- */

static inline uint32_t linear_rounds(const struct tutti_shape *shape)
{
    (void)shape;
    return 1;
}
static inline uint32_t three_chunks(const struct tutti_shape *shape)
{
    (void)shape;
    return 3;
}
static inline uint32_t two_scratch(const struct tutti_shape *shape)
{
    (void)shape;
    return 2 * 3;
}
static inline uint32_t two_a_block(const struct tutti_shape *shape)
{
    return 2 * shape->size;
}

/* Folds chunks [chunk, +n) of all slots into `to`, in the order of the slots. */
static inline void linear_fold(const struct tutti_shape *s, struct tutti_emit *e, uint32_t to, uint32_t chunk,
                               uint32_t n)
{
    if (s->slot != to) {
        tutti_emit_send(e, to, TUTTI_DATA, chunk, n);
        return;
    }
    for (uint32_t i = to; i-- > 0;) tutti_emit_recv_reduce(e, i, TUTTI_DATA, chunk, n, TUTTI_LEFT);
    for (uint32_t i = to + 1; i < s->size; i++) tutti_emit_recv_reduce(e, i, TUTTI_DATA, chunk, n, TUTTI_RIGHT);
}
static inline void linear_spread(const struct tutti_shape *s, struct tutti_emit *e, uint32_t from, uint32_t chunk,
                                 uint32_t n)
{
    if (s->slot != from) {
        tutti_emit_recv(e, from, TUTTI_DATA, chunk, n);
        return;
    }
    for (uint32_t i = 0; i < s->size; i++)
        if (i != from) tutti_emit_send(e, i, TUTTI_DATA, chunk, n);
}
static inline void linear_reduce(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    linear_fold(s, e, s->root, 0, 3);
}
static inline void linear_broadcast(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    for (uint32_t c = 0; c < 3; c++) linear_spread(s, e, s->root, c, 1);
}
static inline void linear_all_reduce(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    linear_fold(s, e, 0, 0, 2);
    linear_fold(s, e, 0, 2, 1);
    linear_spread(s, e, 0, 0, 3);
}
static inline void linear_all_gather(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    for (uint32_t i = 1; i < s->size; i++) {
        uint32_t to = (s->slot + i) % s->size, from = (s->slot + s->size - i) % s->size;
        tutti_emit_send(e, to, TUTTI_DATA, 2 * s->slot, 2);
        tutti_emit_recv(e, from, TUTTI_DATA, 2 * from, 2);
    }
}
/* Every block passes through the slot after its owner: private memory of a slot that is not the root. */
static inline void linear_gather(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    for (uint32_t b = 0; b < s->size; b++) {
        uint32_t via = (b + 1) % s->size;
        if (b == s->root) continue;
        if (s->slot == b) tutti_emit_send(e, via, TUTTI_DATA, b, 1);
        if (s->slot == via) tutti_emit_recv(e, b, TUTTI_DATA, b, 1);
        if (s->slot == via && via != s->root) tutti_emit_send(e, s->root, TUTTI_DATA, b, 1);
        if (s->slot == s->root && via != s->root) tutti_emit_recv(e, via, TUTTI_DATA, b, 1);
    }
}
static inline void linear_scatter(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    for (uint32_t b = 0; b < s->size; b++) {
        uint32_t via = (b + 1) % s->size;
        if (b == s->root) continue;
        if (s->slot == s->root && via != s->root) tutti_emit_send(e, via, TUTTI_DATA, b, 1);
        if (s->slot == via && via != s->root) tutti_emit_recv(e, s->root, TUTTI_DATA, b, 1);
        if (s->slot == via) tutti_emit_send(e, b, TUTTI_DATA, b, 1);
        if (s->slot == b) tutti_emit_recv(e, via, TUTTI_DATA, b, 1);
    }
}
static inline void linear_reduce_scatter(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    for (uint32_t b = 0; b < s->size; b++) linear_fold(s, e, b, 2 * b, 2);
}
static inline void linear_all_to_all(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    tutti_emit_copy(e, TUTTI_DATA, 2 * s->slot, TUTTI_IN, 2 * s->slot, 2);
    for (uint32_t i = 1; i < s->size; i++) {
        uint32_t to = (s->slot + i) % s->size, from = (s->slot + s->size - i) % s->size;
        tutti_emit_send(e, to, TUTTI_IN, 2 * to, 2);
        tutti_emit_recv(e, from, TUTTI_DATA, 2 * from, 2);
    }
}
static inline void linear_barrier(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    for (uint32_t i = 1; i < s->size; i++) {
        if (s->slot == i) tutti_emit_send(e, 0, TUTTI_DATA, 0, 1);
        if (s->slot == 0) tutti_emit_recv(e, i, TUTTI_DATA, 0, 1);
    }
    linear_spread(s, e, 0, 0, 1);
}
static inline void linear_scan(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    if (s->slot > 0) tutti_emit_recv_reduce(e, s->slot - 1, TUTTI_DATA, 0, 3, TUTTI_LEFT);
    if (s->slot + 1 < s->size) tutti_emit_send(e, s->slot + 1, TUTTI_DATA, 0, 3);
}
static inline void linear_exscan(const struct tutti_shape *s, uint32_t round, struct tutti_emit *e)
{
    (void)round;
    if (s->slot == 0) {
        if (s->size > 1) tutti_emit_send(e, 1, TUTTI_DATA, 0, 3);
        return;
    }
    tutti_emit_recv(e, s->slot - 1, TUTTI_SCRATCH, 0, 3);
    tutti_emit_copy(e, TUTTI_SCRATCH, 3, TUTTI_DATA, 0, 3);
    tutti_emit_reduce(e, TUTTI_SCRATCH, 3, TUTTI_SCRATCH, 0, 3, TUTTI_LEFT);
    if (s->slot + 1 < s->size) tutti_emit_send(e, s->slot + 1, TUTTI_SCRATCH, 3, 3);
    tutti_emit_copy(e, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 3);
}

#define RIG_KIND(name, chunks_, scratch_)                                                                              \
    static const struct tutti_schedule_ops rig_##name = {                                                              \
        .chunks = (chunks_), .scratch = (scratch_), .rounds = linear_rounds, .round = linear_##name}
RIG_KIND(all_reduce, three_chunks, NULL);
RIG_KIND(reduce, three_chunks, NULL);
RIG_KIND(broadcast, three_chunks, NULL);
RIG_KIND(all_gather, two_a_block, NULL);
RIG_KIND(gather, NULL, NULL);
RIG_KIND(scatter, NULL, NULL);
RIG_KIND(reduce_scatter, two_a_block, NULL);
RIG_KIND(all_to_all, two_a_block, NULL);
RIG_KIND(barrier, NULL, NULL);
RIG_KIND(scan, three_chunks, NULL);
RIG_KIND(exscan, three_chunks, two_scratch);

static const struct tutti_algorithm rig_linear = {
    .name = "linear",
    .kinds = {&rig_all_reduce, &rig_reduce, &rig_broadcast, &rig_all_gather, &rig_gather, &rig_scatter,
              &rig_reduce_scatter, &rig_all_to_all, &rig_barrier, &rig_scan, &rig_exscan},
};

/* ---- calls ---- */
struct rig_call {
    enum tutti_kind kind;
    enum tutti_dtype dtype;
    int op; /* -1: none */
    uint32_t root;
    size_t count;
    const void *input;
    void *output;
    const size_t *counts, *displs, *in_counts, *in_displs;
    tutti_op_function user;
    const void *factor;
    struct tutti_gate *gate;
    uint64_t timeout_ns, salt;
    const char *label;
    const struct tutti_algorithm *algorithm; /* NULL: linear */
    struct tutti_cache *cache;               /* NULL: sealed for this call, and leaked to *schedule */
    struct tutti_schedule *schedule;
};

static inline enum tutti_status rig_start(struct rig_rank *rank, struct tutti_team *team, struct rig_call *call,
                                          bool helper, struct tutti_work **work)
{
    const struct tutti_algorithm *algorithm = call->algorithm ? call->algorithm : &rig_linear;
    struct tutti_shape shape = {.slot = rank->me, .size = rank->n, .root = call->root};
    const struct tutti_schedule *schedule;

    if (call->cache) {
        TUTTI_TRY(tutti_cache_get(call->cache, algorithm, call->kind, &shape, NULL, &schedule));
    } else {
        TUTTI_TRY(tutti_schedule_seal(algorithm, call->kind, &shape, true, &call->schedule));
        schedule = call->schedule;
    }
    bool v = call->counts || call->in_counts;
    bool reduces = tutti_kind_info(call->kind)->reduces;
    struct tutti_bind bind = {.schedule = schedule,
                              .cache = call->cache,
                              .input = call->input,
                              .output = call->output,
                              .v = v,
                              .count = call->count,
                              .counts = call->counts,
                              .displs = call->displs,
                              .in_counts = call->in_counts,
                              .in_displs = call->in_displs,
                              .dtype = call->dtype,
                              .user = call->user,
                              .gate = call->gate};
    uint32_t divisor = call->kind == TUTTI_SCAN     ? rank->me + 1
                       : call->kind == TUTTI_EXSCAN ? (rank->me ? rank->me : 1)
                                                    : rank->n;
    if (reduces && !call->user) bind.reduce = tutti_reduce_find(call->dtype, (enum tutti_op)call->op, "auto");
    if (call->op == TUTTI_AVG) bind.divide = tutti_divide_find(call->dtype), bind.divisor = divisor;
    if (call->op == TUTTI_PREMUL_SUM) bind.scale = tutti_scale_find(call->dtype), bind.factor = call->factor;
    struct tutti_call_info info = {.kind = call->kind,
                                   .dtype = call->dtype,
                                   .op = reduces ? call->op : -1,
                                   .root = tutti_kind_info(call->kind)->rooted ? (int32_t)call->root : -1,
                                   .count = call->count,
                                   .timeout_ns = call->timeout_ns,
                                   .label = call->label};
    uint64_t fields[] = {info.kind,          info.dtype,     (uint64_t)info.op, (uint64_t)info.root,
                         v ? 0 : info.count, schedule->hash, call->salt};
    info.signature = tutti_hash64(fields, sizeof(fields), 7);
    return tutti_engine_start(team, &bind, &info, helper, work);
}

static inline enum tutti_status rig_call(struct rig_rank *rank, struct tutti_team *team, struct rig_call *call)
{
    struct tutti_work *work;
    enum tutti_status status = rig_start(rank, team, call, false, &work);

    if (status == TUTTI_OK) status = tutti_work_finish(work);
    if (!call->cache) tutti_schedule_destroy(call->schedule);
    call->schedule = NULL;
    return status;
}

/* The all_reduce of int32 that most tests make. */
static inline struct rig_call rig_sum(int32_t *data, size_t count, struct tutti_cache *cache)
{
    return (struct rig_call){.kind = TUTTI_ALL_REDUCE,
                             .dtype = TUTTI_INT32,
                             .op = TUTTI_SUM,
                             .count = count,
                             .input = data,
                             .output = data,
                             .cache = cache};
}

/* ... of n ranks that each bring their number, from 1. */
static inline int32_t rig_total(uint32_t n)
{
    return (int32_t)(n * (n + 1) / 2);
}

#endif
