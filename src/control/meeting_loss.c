/* SPDX-License-Identifier: BSD-3-Clause */

/* Ranks that had come to a meeting and whose connection ended before it was over. Their seats stay open for a moment,
 * for who restarts a rank that crashed; then, when the process is gone, the meeting fails with its name. A leader that
 * went is remembered by its members, who tell the next one. */

#include "control/meeting.h"

#define GRACE_NS (600 * TUTTI_NS_PER_MS)  /* for a rank to come again; a death is told within 1 s */
#define ENDING_NS (200 * TUTTI_NS_PER_MS) /* from the end of its connections to the end of a process */

enum tutti_status tutti_meeting_fail_dead(int32_t rank, int32_t pid)
{
    struct tutti_error error;
    tutti_error_set(&error, TUTTI_ERR_PEER_DEAD, "rank %d (process %d) died while the ranks were meeting", (int)rank,
                    (int)pid);
    error.peer = rank;
    return tutti_fail_record(&error);
}

bool tutti_meeting_process_ended(int32_t pid)
{
    uint64_t deadline = tutti_deadline_ns(ENDING_NS);
    while (tutti_process_alive(pid, 0)) {
        if (tutti_now_ns() >= deadline) return false;
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    return true;
}

struct tutti_meeting_loss tutti_meeting_loss_now(int32_t rank, int32_t pid)
{
    struct tutti_meeting_loss loss = {.rank = rank, .pid = pid, .until_ns = tutti_deadline_ns(GRACE_NS)};
    struct tutti_process process;
    if (tutti_process_read(pid, &process)) loss.start = process.start;
    return loss;
}

void tutti_meeting_loss_note(struct tutti_meeting *m, const struct tutti_meeting_loss *loss)
{
    if (loss->pid <= 0 || loss->rank < 0 || loss->rank >= m->request->n_ranks) return;
    struct tutti_meeting_seat *seat = &m->seats[loss->rank];
    if (seat->taken || seat->lost.pid > 0) return; /* it has come again, or is known */
    uint64_t latest = tutti_deadline_ns(GRACE_NS);
    seat->lost = *loss;
    if (seat->lost.until_ns > latest) seat->lost.until_ns = latest;
    m->n_lost++;
}

void tutti_meeting_loss_forget(struct tutti_meeting *m, struct tutti_meeting_seat *seat)
{
    if (seat->lost.pid <= 0) return;
    seat->lost.pid = 0;
    m->n_lost--;
}

enum tutti_status tutti_meeting_losses_check(struct tutti_meeting *m, uint64_t now)
{
    for (int32_t rank = 0; m->n_lost > 0 && rank < m->request->n_ranks; rank++) {
        struct tutti_meeting_seat *seat = &m->seats[rank];
        const struct tutti_meeting_loss *lost = &seat->lost;
        if (lost->pid <= 0 || now < lost->until_ns) continue;
        if (!tutti_process_alive(lost->pid, lost->start)) return tutti_meeting_fail_dead(rank, lost->pid);
        tutti_meeting_loss_forget(m, seat); /* it lives, and withdrew: it is awaited like any other */
    }
    return TUTTI_OK;
}
