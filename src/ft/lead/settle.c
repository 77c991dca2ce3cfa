/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's next time. */
#include "ft/lead/lead.h"

void lead_settle(struct tutti_ft_manager *lead)
{
    const uint64_t due = tutti_manager_due(lead->machine);

    if (lead->closes) return;
    if (due == TUTTI_NEVER)
        tutti_loop_stop(lead->loop, &lead->timer);
    else if (lead->timer.due_ns != due)
        tutti_loop_at(lead->loop, &lead->timer, due);
}

void lead_due(struct tutti_loop_timer *timer)
{
    struct tutti_ft_manager *lead =
        (struct tutti_ft_manager *)((char *)timer - offsetof(struct tutti_ft_manager, timer));

    tutti_manager_tick(lead->machine, tutti_now_ns());
    lead_settle(lead);
}
