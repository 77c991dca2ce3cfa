/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_ONESIDED_PART_TEST_H
#define TUTTI_ENGINE_ONESIDED_PART_TEST_H

/* What the tests of this room share: a part for each rank, and calls in one line. */

#include "engine/onesided/onesided.h"
#include "engine/pass/rig_test.h"

enum { WINDOW = 3, N_SIGNALS = 16 };

struct part {
    unsigned char *base;
    size_t bytes;
    _Atomic uint64_t signals[8 * N_SIGNALS];
    _Atomic uint32_t n_changed;
};

static inline void changed(void *arg)
{
    atomic_fetch_add(&((struct part *)arg)->n_changed, 1);
}

static inline void expose_as(struct rig_rank *rank, struct part *part, size_t bytes, uint32_t window)
{
    part->base = aligned_alloc(64, (bytes + 127) / 64 * 64);
    part->bytes = bytes;
    memset(part->base, 0, bytes);
    const struct tutti_exposed exposed = {.base = part->base,
                                          .bytes = bytes,
                                          .signals = part->signals,
                                          .n_signals = N_SIGNALS,
                                          .signal_step = 8,
                                          .changed = changed,
                                          .arg = part};
    RIG_OK(rank, tutti_exposed_add(rank->team, window, &exposed));
    rig_meet(rank);
}

static inline void expose(struct rig_rank *rank, struct part *part, size_t bytes)
{
    expose_as(rank, part, bytes, WINDOW);
}

static inline void withdraw(struct rig_rank *rank, struct part *part)
{
    rig_meet(rank);
    tutti_exposed_remove(rank->team, WINDOW);
    free(part->base);
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

#endif
