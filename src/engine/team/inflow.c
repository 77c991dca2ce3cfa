/* SPDX-License-Identifier: BSD-3-Clause */

/* Which bytes of a message are here. Transports keep order and duplicate nothing, so one number says it. A transport
 * that does not (the fault decorator, on purpose) leaves gaps: each takes an interval, and there are a few at most. */

#include "engine/team/letter.h"

/* Takes the intervals that now touch the front. */
static void absorb(struct tutti_inflow *f)
{
    for (uint32_t i = 0; i < f->n_ahead;) {
        if (f->ahead[i].first > f->received) {
            i++;
            continue;
        }
        if (f->ahead[i].end > f->received) f->received = f->ahead[i].end;
        f->ahead[i] = f->ahead[--f->n_ahead];
        i = 0;
    }
}

bool tutti_inflow_add(struct tutti_inflow *f, uint64_t total, uint64_t offset, uint64_t bytes, bool *broken)
{
    uint64_t end = offset + bytes;

    *broken = bytes == 0 || end < offset || end > total;
    if (*broken || end <= f->received) return false;
    if (offset == f->received) {
        f->received = end;
        absorb(f);
        return true;
    }
    for (uint32_t i = 0; i < f->n_ahead; i++)
        if (offset >= f->ahead[i].first && end <= f->ahead[i].end) return false;
    for (uint32_t i = 0; i < f->n_ahead; i++) {
        if (offset == f->ahead[i].end) {
            f->ahead[i].end = end;
            return true;
        }
    }
    *broken = offset < f->received || f->n_ahead == TUTTI_INFLOW_GAPS;
    if (*broken) return false;
    f->ahead[f->n_ahead].first = offset;
    f->ahead[f->n_ahead++].end = end;
    return true;
}
