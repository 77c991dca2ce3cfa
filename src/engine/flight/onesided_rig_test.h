/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_FLIGHT_ONESIDED_RIG_TEST_H
#define TUTTI_ENGINE_FLIGHT_ONESIDED_RIG_TEST_H

/* What the tests of this room share: a part for each rank, by itself or by a thread that carries out its moves, and
 * calls in one line. */

#include "engine/flight/onesided.h"
#include "engine/pass/rig_test.h"

enum { WINDOW = 3, N_SIGNALS = 16 };

struct part {
    unsigned char *base;
    size_t bytes;
    _Atomic uint64_t signals[8 * N_SIGNALS];
    _Atomic uint32_t n_changed;
    pthread_t mover; /* carries out moves, now and then late */
    pthread_mutex_t lock;
    struct tutti_move *first, **end;
    _Atomic uint32_t moved; /* rung for each */
    _Atomic bool over;
    bool moves;
};

static bool every_second_moves; /* parts of ranks 1, 3, ... are not touched by the engine */

static inline void changed(void *arg)
{
    atomic_fetch_add(&((struct part *)arg)->n_changed, 1);
}

/* ---- a part that the engine does not touch ---- */

static inline void begin_move(void *arg, struct tutti_move *move)
{
    struct part *part = arg;

    pthread_mutex_lock(&part->lock);
    move->next = NULL;
    *part->end = move;
    part->end = &move->next;
    pthread_mutex_unlock(&part->lock);
    atomic_fetch_add(&part->moved, 1);
    tutti_futex_wake(&part->moved, 1);
}

static inline struct tutti_move *next_move(struct part *part)
{
    pthread_mutex_lock(&part->lock);
    struct tutti_move *move = part->first;
    if (move) part->first = move->next;
    if (!part->first) part->end = &part->first;
    pthread_mutex_unlock(&part->lock);
    return move;
}

static inline void carry_out_move(struct part *part, struct tutti_move *move)
{
    unsigned char *at = part->base + move->offset;
    uint64_t word;

    if (move->kind == TUTTI_MOVE_WRITE) memcpy(at, move->memory, move->bytes);
    if (move->kind == TUTTI_MOVE_READ) memcpy(move->memory, at, move->bytes);
    if (move->kind < TUTTI_MOVE_ADD) return;
    memcpy(&move->before, at, sizeof(word));
    word = move->kind == TUTTI_MOVE_ADD     ? move->before + move->value
           : move->before == move->expected ? move->value
                                            : move->before;
    memcpy(at, &word, sizeof(word));
}

static inline void *run_moves(void *arg)
{
    struct part *part = arg;

    for (uint32_t n = 0; !atomic_load(&part->over);) {
        const uint32_t moved = atomic_load(&part->moved);
        struct tutti_move *move = next_move(part);
        if (move) {
            if (++n % 16 == 0) tutti_sleep_ns(50000);
            carry_out_move(part, move);
            tutti_move_over(move);
        } else {
            tutti_futex_wait(&part->moved, moved, tutti_deadline_ns(10 * TUTTI_NS_PER_MS));
        }
    }
    return NULL;
}

static inline void expose_as(struct rig_rank *rank, struct part *part, size_t bytes, uint32_t window)
{
    part->base = aligned_alloc(64, (bytes + 127) / 64 * 64);
    part->bytes = bytes;
    memset(part->base, 0, bytes);
    part->moves = every_second_moves && rank->me % 2 == 1;
    if (part->moves) {
        part->end = &part->first;
        pthread_mutex_init(&part->lock, NULL);
        RIG_CHECK(rank, pthread_create(&part->mover, NULL, run_moves, part) == 0, "no thread");
    }
    const struct tutti_exposed exposed = {.base = part->base,
                                          .bytes = bytes,
                                          .signals = part->signals,
                                          .n_signals = N_SIGNALS,
                                          .signal_step = 8,
                                          .changed = changed,
                                          .move = part->moves ? begin_move : NULL,
                                          .arg = part};
    RIG_OK(rank, tutti_exposed_add(rank->team, window, &exposed));
    rig_meet(rank);
}

static inline void expose(struct rig_rank *rank, struct part *part, size_t bytes)
{
    expose_as(rank, part, bytes, WINDOW);
}

static inline void hide(struct rig_rank *rank, struct part *part, uint32_t window)
{
    tutti_exposed_remove(rank->team, window);
    if (part->moves) {
        atomic_store(&part->over, true);
        pthread_join(part->mover, NULL);
        pthread_mutex_destroy(&part->lock);
    }
    free(part->base);
}

static inline void withdraw(struct rig_rank *rank, struct part *part)
{
    rig_meet(rank);
    hide(rank, part, WINDOW);
}

static inline struct tutti_work *start(struct rig_rank *rank, struct tutti_one_info info, bool helper)
{
    static const char *const names[] = {"put", "get", "fetch_add", "compare_swap", "flush"};
    struct tutti_work *work = NULL;

    info.window = WINDOW;
    info.name = info.has_signal ? "put_signal" : names[info.kind];
    RIG_OK(rank, tutti_engine_one(rank->team, &info, helper, &work));
    return work;
}

static inline enum tutti_status now(struct rig_rank *rank, struct tutti_one_info info)
{
    struct tutti_work *work = start(rank, info, false);
    return work ? tutti_work_finish(work) : TUTTI_ERR_INTERNAL;
}

static inline struct tutti_one_info put_of(uint32_t peer, uint64_t offset, const void *source, size_t bytes)
{
    return (struct tutti_one_info){
        .kind = TUTTI_ONE_PUT, .peer = peer, .offset = offset, .source = source, .bytes = bytes};
}

static inline struct tutti_one_info get_of(uint32_t peer, uint64_t offset, void *dest, size_t bytes)
{
    return (struct tutti_one_info){.kind = TUTTI_ONE_GET, .peer = peer, .offset = offset, .dest = dest, .bytes = bytes};
}

static inline struct tutti_one_info signalled(struct tutti_one_info info, uint32_t signal, bool add, uint64_t value)
{
    info.has_signal = true, info.signal = signal, info.signal_add = add, info.value = value;
    return info;
}

static inline struct tutti_one_info add_of(uint32_t peer, uint64_t offset, uint64_t value, uint64_t *before)
{
    return (struct tutti_one_info){
        .kind = TUTTI_ONE_ADD, .peer = peer, .offset = offset, .value = value, .before = before};
}

static inline struct tutti_one_info flush_of(uint32_t peer)
{
    return (struct tutti_one_info){.kind = TUTTI_ONE_FLUSH, .peer = peer};
}

/* The owner calls nothing meanwhile: its helper serves. */
static inline bool comes(const _Atomic uint64_t *word, uint64_t least)
{
    const uint64_t until = tutti_deadline_ns(30 * TUTTI_NS_PER_S);
    while (atomic_load(word) < least && tutti_now_ns() < until) tutti_sleep_ns(20000);
    return atomic_load(word) >= least;
}

static inline bool comes_32(const _Atomic uint32_t *n, uint32_t least)
{
    const uint64_t until = tutti_deadline_ns(30 * TUTTI_NS_PER_S);
    while (atomic_load(n) < least && tutti_now_ns() < until) tutti_sleep_ns(20000);
    return atomic_load(n) >= least;
}

#endif
