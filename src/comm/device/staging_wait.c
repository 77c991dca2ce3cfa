/* SPDX-License-Identifier: BSD-3-Clause */
/* How those who take part in staging wait for one another, and how all of them go on after a failure. */
#include "comm/device/staging.h"

#define LOOK_NS (100 * TUTTI_NS_PER_MS) /* how often who waits has the device asked */

void tutti_staging_question(struct tutti_staging *staging, enum tutti_ask question)
{
    atomic_store(&staging->question, question);
    tutti_futex_wake(&staging->question, 1);
}

void tutti_staging_ring(struct tutti_staging *staging)
{
    atomic_fetch_add(&staging->bell, 1);
    tutti_futex_wake(&staging->bell, UINT32_MAX);
}

bool tutti_staging_wait(struct tutti_staging *staging, bool (*holds)(struct tutti_staging *staging, const void *arg),
                        const void *arg, uint64_t until_ns)
{
    for (;;) {
        uint32_t bell = atomic_load(&staging->bell);
        uint64_t look = tutti_deadline_ns(LOOK_NS);
        if (holds(staging, arg)) return true;
        if (tutti_now_ns() >= until_ns) return false;
        tutti_futex_wait(&staging->bell, bell, look < until_ns ? look : until_ns);
        if (tutti_now_ns() >= look) tutti_staging_question(staging, TUTTI_ASK);
    }
}

void *tutti_staging_last_event(const struct tutti_staging *staging)
{
    return staging && atomic_load(&staging->enqueued) > 0 ? staging->end_event : NULL;
}

uint32_t tutti_staging_enqueued(const struct tutti_staging *staging)
{
    return staging ? atomic_load(&staging->enqueued) : 0;
}

bool tutti_staging_is_over(const struct tutti_staging *staging, uint32_t n)
{
    return !staging || (int32_t)(n - atomic_load(&staging->n_over)) <= 0;
}

bool tutti_staging_idle(const struct tutti_staging *staging)
{
    return !staging || atomic_load(&staging->n_over) == atomic_load(&staging->enqueued);
}

/* Up to the number. */
static bool have_started(struct tutti_staging *staging, const void *number)
{
    int32_t missing = (int32_t)(*(const uint32_t *)number - atomic_load(&staging->started));
    return missing <= 0 || tutti_staging_failed(staging);
}

enum tutti_status tutti_staging_settle(const struct tutti_comm *comm)
{
    struct tutti_staging *staging = comm->device ? comm->device->staging : NULL;
    struct tutti_error error;
    if (!staging || comm->device->n > 0) return TUTTI_OK;
    uint32_t number = atomic_load(&staging->enqueued);
    uint64_t timeout = comm->timeout_ns;
    if (!tutti_staging_wait(staging, have_started, &number, tutti_deadline_ns(timeout))) {
        tutti_fail(TUTTI_ERR_TIMEOUT,
                   "rank %d: the stream has not come to a call on device memory, after which another one was made, "
                   "within %g s",
                   (int)comm->rank, (double)timeout / 1e9);
        tutti_staging_fail(staging);
        return TUTTI_ERR_TIMEOUT;
    }
    return tutti_team_state(comm->team, &error) < 0 ? tutti_fail_record(&error) : TUTTI_OK;
}

/* ---- failing: what waits on the host or on the device goes on, and the team fails ---- */

void tutti_staging_stop(struct tutti_staging *staging, bool owned)
{
    struct tutti_comm *own = staging ? atomic_load(&staging->own) : NULL;
    struct tutti_error error;

    if (!staging) return;
    if (own && tutti_team_state(staging->comm->team, &error) < 0 && tutti_comm_enter(own, "comm_abort") >= 0) {
        if (owned)
            tutti_team_apply(own->team, &error); /* the others do, too, as the failure has reached them */
        else
            tutti_team_fail(own->team, &error, true);
        tutti_comm_leave(own);
    }
    tutti_staging_ring(staging);
}

void tutti_staging_fail(struct tutti_staging *staging)
{
    struct tutti_error error = *tutti_last_error();
    tutti_team_fail(staging->comm->team, &error, true);
    tutti_staging_stop(staging, false);
    tutti_fail_record(&error);
}
