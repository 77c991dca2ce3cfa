/* SPDX-License-Identifier: BSD-3-Clause */

/* How staged calls end when something fails: what waits on the host or on a device goes on, and the team fails. */

#include "comm/device/device_host.h"

void tutti_through_ring(struct tutti_through *through)
{
    atomic_fetch_add(&through->bell, 1);
    tutti_futex_wake(&through->bell, UINT32_MAX);
}

void tutti_through_stop(struct tutti_through *through, bool owned)
{
    struct tutti_comm *own = through ? atomic_load(&through->own) : NULL;
    struct tutti_error error;

    if (!through) return;
    if (own && tutti_team_state(through->comm->team, &error) < 0 && tutti_comm_enter(own, "comm_abort") >= 0) {
        if (owned)
            tutti_team_apply(own->team, &error); /* the others do, too, as the failure has reached them */
        else
            tutti_team_fail(own->team, &error, true);
        tutti_comm_leave(own);
    }
    tutti_through_ring(through);
}

void tutti_through_fail(struct tutti_through *through)
{
    struct tutti_error error = *tutti_last_error();
    tutti_team_fail(through->comm->team, &error, true);
    tutti_through_stop(through, false);
    tutti_fail_record(&error);
}
