/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_BELL_H
#define TUTTI_BASE_BELL_H

/* A bell wakes who sleeps for words of shared memory. Who changes a word rings: that is a load of one line, and a
 * system call only when somebody sleeps. Who goes to sleep makes sure that it is seen: it counts itself, fences all
 * processes (membarrier), looks at its words once more, and then sleeps on `event`; so who rings needs no fence. Where
 * that is not to be had, or where all sleep all the time, `fences` is set and who rings fences.
 *
 *     atomic_store_explicit(&word, 1, memory_order_release);             // the thread that changes it
 *     tutti_bell_ring(&bell);
 *
 *     uint32_t event = tutti_bell_listen(&bell);                         // the thread that waits
 *     if (!bell.fences) tutti_fence_all();
 *     if (atomic_load(&word) != 1) tutti_futex_wait(&bell.event, event, deadline_ns);
 *     tutti_bell_leave(&bell);
 *
 * Any thread of any process that maps it. */

#include "base/base.h"

#include <stdatomic.h>

struct tutti_bell {
    _Atomic uint32_t event; /* changes, with a futex wake, when it rings and somebody sleeps */
    _Atomic uint32_t sleepers;
    uint32_t fences; /* set before others map it */
};

/* Whether tutti_fence_all works; from then on this process takes part in those of others. */
bool tutti_fence_all_available(void);
/* A full fence on all threads of all processes that asked whether it is available. */
void tutti_fence_all(void);

void tutti_bell_wake(struct tutti_bell *bell);
static inline void tutti_bell_ring(struct tutti_bell *bell)
{
    if (bell->fences)
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&bell->sleepers, memory_order_relaxed)) tutti_bell_wake(bell);
}
/* What `event` is while nothing has rung. */
uint32_t tutti_bell_listen(struct tutti_bell *bell);
void tutti_bell_leave(struct tutti_bell *bell);

#endif
