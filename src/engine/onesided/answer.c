/* SPDX-License-Identifier: BSD-3-Clause */

/* What peers answer to the accesses of this rank. Nothing is believed that does not fit what was asked. */

#include "engine/onesided/access.h"
#include "engine/report/report.h"

#include <string.h>

/* All accesses of this rank up to this number have taken effect, says the peer. */
static bool count_take(struct tutti_team *team, struct tutti_one_pair *pair, uint64_t count)
{
    if (count > pair->sent) {
        tutti_report_protocol(team, pair->slot, NULL, "an answer to more accesses than it has made");
        return false;
    }
    if (count <= pair->answered) return true;
    pair->answered = count;
    team->ones->flushed = true;
    tutti_pair_ready(team->ones, pair);
    return true;
}

struct tutti_one_pair *tutti_one_source(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet)
{
    if (!team->ones) {
        tutti_report_protocol(team, source, NULL, "an access before there was a window");
        return NULL;
    }
    struct tutti_one_pair *pair = tutti_one_pair(team, source);
    return count_take(team, pair, packet->count) ? pair : NULL;
}

/* The packet of this rank that an answer is for. *wrong: there can be no such answer. NULL otherwise: it came before.
 */
static struct tutti_one_open *open_find(struct tutti_one_pair *pair, const struct tutti_packet *packet, bool *wrong)
{
    const uint8_t kind = packet->flags & TUTTI_ONE_KIND;
    struct tutti_one_open *open = tutti_one_open(pair, packet->seq);

    *wrong = packet->seq > pair->sent || packet->flags != kind || (packet->bytes > 0 && kind != TUTTI_ONE_GET) ||
             (kind == TUTTI_ONE_REFUSED && (packet->call == TUTTI_ONE_FINE || packet->call >= TUTTI_N_ONE_REASONS));
    if (*wrong || open->number != packet->seq || open->answered) return NULL;
    const struct tutti_one_access *access = open->access;
    *wrong = kind != TUTTI_ONE_REFUSED && (!access || access->info.kind != (enum tutti_one_kind)kind ||
                                           (kind == TUTTI_ONE_GET && packet->bytes != open->bytes));
    return *wrong ? NULL : open;
}

/* The answer is here, or on the way into its place. */
static struct tutti_one_access *open_end(struct tutti_ones *ones, struct tutti_one_pair *pair,
                                         struct tutti_one_open *open)
{
    struct tutti_one_access *access = open->access;

    open->answered = true;
    open->access = NULL;
    if (access) access->n_open--;
    tutti_pair_ready(ones, pair); /* its number may be used again */
    return access;
}

/* The peer has ended the communicator: who waits for it waits in vain. */
static void leave_take(struct tutti_team *team, const struct tutti_one_pair *pair)
{
    for (const struct tutti_one_access *access = team->ones->first; access; access = access->next) {
        if (tutti_access_awaits(access) != (int32_t)pair->slot) continue;
        tutti_access_lost(team, access, pair->slot, TUTTI_LIFE_LEFT);
        return;
    }
}

static void refusal_take(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_open *open,
                         enum tutti_one_reason why)
{
    const struct tutti_one_refusal refusal = {open->name, open->offset, open->bytes, open->window, why};
    struct tutti_one_access *access = open_end(team->ones, pair, open);

    if (why == TUTTI_ONE_GONE) tutti_one_lose(team->ones, pair->slot, open->window);
    if (access) {
        if (access->why == TUTTI_ONE_FINE) access->why = why;
        tutti_access_settle(team, access);
    } else if (!pair->refusal.name) {
        pair->refusal = refusal;
    }
}

bool tutti_answer_place(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                        struct tutti_target *target, struct tutti_loan *what)
{
    bool wrong;

    if (packet->seq == 0 || packet->flags != TUTTI_ONE_GET) return false;
    struct tutti_one_open *open = open_find(pair, packet, &wrong);
    if (!open) return false;
    const uint64_t at = open->at;
    struct tutti_one_access *access = open_end(team->ones, pair, open);
    *target = (struct tutti_target){(unsigned char *)access->info.dest + at, packet->bytes};
    what->of = access;
    what->step = TUTTI_LOAN_ACCESS;
    access->n_lent++;
    return true;
}

void tutti_answer_take(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                       const void *payload)
{
    bool wrong;

    if (packet->seq == 0 && packet->bytes == 0) return;
    struct tutti_one_open *open = open_find(pair, packet, &wrong);
    if (wrong) tutti_report_protocol(team, pair->slot, NULL, "an answer to an access that it did not make");
    if (!open && !wrong) team->engine->stats.duplicates_dropped++;
    if (!open) return;
    if (packet->flags == TUTTI_ONE_REFUSED && packet->call == TUTTI_ONE_LEFT) {
        leave_take(team, pair);
        return;
    }
    if (packet->flags == TUTTI_ONE_REFUSED) {
        refusal_take(team, pair, open, (enum tutti_one_reason)packet->call);
        return;
    }
    const uint64_t at = open->at;
    struct tutti_one_access *access = open_end(team->ones, pair, open);
    if (packet->bytes > 0) memcpy((unsigned char *)access->info.dest + at, payload, packet->bytes);
    if (access->info.kind != TUTTI_ONE_GET) *access->info.before = packet->call;
    tutti_access_settle(team, access);
}
