/* SPDX-License-Identifier: BSD-3-Clause */
/* The median of some times, and how long a number takes from one rank to another. */

#include "measure.h"

#include <sched.h>
#include <stdlib.h>

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tutti_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_double);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* Until it is `turn` or more; false after a while. */
static bool turn_await(struct tutti_baton *baton, uint32_t turn, enum tutti_waiting how, uint64_t deadline)
{
    for (uint32_t tries = 1;; tries++) {
        uint32_t now = how == TUTTI_SLEEP ? atomic_load(&baton->futex)
                                          : (uint32_t)atomic_load_explicit(&baton->turn, memory_order_acquire);
        if (now >= turn) return true;
        if (how == TUTTI_SPIN && tries % 1024) continue;
        if (tutti_now_ns() > deadline) return false;
        if (how == TUTTI_SLEEP)
            tutti_futex_wait(&baton->futex, now, deadline);
        else
            sched_yield(); /* spinning ranks may share a core, too; then that is what is measured */
    }
}

static void turn_give(struct tutti_baton *baton, uint32_t turn, enum tutti_waiting how)
{
    if (how != TUTTI_SLEEP) {
        atomic_store_explicit(&baton->turn, turn, memory_order_release);
        return;
    }
    atomic_store(&baton->futex, turn);
    tutti_futex_wake(&baton->futex, 1);
}

double tutti_relay_ns(struct tutti_baton *baton, uint32_t rank, const struct tutti_relay *relay)
{
    const uint64_t deadline = tutti_deadline_ns(relay->limit_ns);
    double best = 0;
    uint32_t turn = 0;
    for (uint32_t batch = 0; batch < relay->batches; batch++) {
        const uint64_t start = tutti_now_ns();
        for (uint32_t end = turn + relay->hops; turn < end; turn++)
            if (turn % 2 == rank)
                turn_give(baton, turn + 1, relay->how);
            else if (!turn_await(baton, turn + 1, relay->how, deadline))
                return best;
        const double ns = (double)(tutti_now_ns() - start) / relay->hops;
        if (batch == 0 || ns < best) best = ns;
    }
    return best;
}
