/* SPDX-License-Identifier: BSD-3-Clause */

/* The table of cards in the segment: each rank writes its record once, and reads those of all. Every rank compares
 * every record with its own, so that either all of them go on or each of them knows which option differs. Beside the
 * record a card says who can not go on; card 0 also holds the gate: how many have opened their transport, and who
 * failed. */

#include "control/machine/card.h"
#include "control/unix/meeting.h"
#include "transport/host/segment.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SLICE_NS (200 * TUTTI_NS_PER_MS) /* between looks at who died */

struct card {
    _Atomic int32_t pid; /* the leader's knowledge, then the rank's own */
    int32_t trouble_status, trouble_peer;
    char trouble[84];             /* why this rank can not go on, with what status, and who caused it */
    _Atomic uint32_t n_open;      /* gate, in card 0 */
    _Atomic uint32_t failed_rank; /* gate, in card 0: rank + 1 of the first that can not go on */
    uint8_t record[TUTTI_CARD_RECORD_BYTES];
};
_Static_assert(sizeof(struct card) <= TUTTI_CARD_BYTES, "a card has a fixed size");

static struct card *card_of(struct tutti_segment *segment, uint32_t member)
{
    return tutti_segment_card(segment, member);
}

void tutti_card_expect(struct tutti_segment *segment, uint32_t member, int32_t pid)
{
    atomic_store(&card_of(segment, member)->pid, pid);
}

void tutti_card_fail(struct tutti_segment *segment, uint32_t member, const struct tutti_error *why)
{
    struct card *gate = card_of(segment, 0), *card = card_of(segment, member);
    uint32_t nobody = 0, claim = UINT32_MAX;
    /* The first one claims, writes, then tells; the others keep quiet. */
    if (!atomic_compare_exchange_strong(&gate->failed_rank, &nobody, claim)) return;
    snprintf(card->trouble, sizeof card->trouble, "%.83s", why->text);
    card->trouble_status = why->status;
    card->trouble_peer = why->peer;
    atomic_store(&gate->failed_rank, member + 1);
    tutti_futex_wake(&gate->n_open, INT_MAX);
}

static enum tutti_status failure_check(struct tutti_segment *segment, uint32_t n)
{
    uint32_t failed = atomic_load(&card_of(segment, 0)->failed_rank);
    if (failed == 0 || failed > n) return TUTTI_OK;
    const struct card *card = card_of(segment, failed - 1);
    int length = (int)sizeof card->trouble - 1;
    struct tutti_error error;
    if (card->trouble_status == TUTTI_ERR_PEER_DEAD)
        tutti_error_set(&error, TUTTI_ERR_PEER_DEAD, "%.*s", length, card->trouble);
    else
        tutti_error_set(&error, TUTTI_ERR_BOOTSTRAP, "rank %u can not go on: %.*s", failed - 1, length, card->trouble);
    error.peer = card->trouble_status == TUTTI_ERR_PEER_DEAD ? card->trouble_peer : (int32_t)(failed - 1);
    return tutti_fail_record(&error);
}

/* ---- arriving ---- */

/* When the process of a rank began, 0 where that is not known: only what a rank has written says so. */
static uint64_t start_of(const struct card *card)
{
    struct tutti_card_record record;
    return tutti_card_decode(card->record, &record) ? record.start : 0;
}

/* A member whose process is gone before it has arrived, or before all have opened. */
static enum tutti_status deaths_check(struct tutti_segment *segment, uint32_t n, bool opening)
{
    const int32_t own = (int32_t)getpid();
    for (uint32_t rank = 0; rank < n; rank++) {
        const struct card *card = card_of(segment, rank);
        const int32_t pid = atomic_load(&card->pid);
        if (pid == own || (!opening && tutti_segment_arrived(segment, rank))) continue;
        if (tutti_process_alive(pid, opening ? start_of(card) : 0)) continue;
        /* A member that has seen all open may be done and gone already; one that could not go on has said why. */
        if (opening && atomic_load(&card_of(segment, 0)->n_open) >= n) return TUTTI_OK;
        TUTTI_TRY(failure_check(segment, n));
        return tutti_meeting_fail_dead((int32_t)rank, pid);
    }
    return TUTTI_OK;
}

static bool is_here(const void *arg, uint32_t rank)
{
    return tutti_segment_arrived((struct tutti_segment *)(uintptr_t)arg, rank);
}

static enum tutti_status missing_fail(struct tutti_segment *segment, uint32_t n,
                                      const struct tutti_meeting_request *request)
{
    char missing[160];
    tutti_meeting_missing_text(n, is_here, segment, missing, sizeof missing);
    return tutti_fail(TUTTI_ERR_TIMEOUT, "%s did not arrive: " TUTTI_SAYS_TIMED_OUT, missing,
                      tutti_meeting_patience(request));
}

static enum tutti_status arrivals_wait(struct tutti_segment *segment, const struct tutti_meeting_request *request)
{
    uint32_t n = (uint32_t)request->n_ranks;
    for (;;) {
        uint64_t slice = tutti_deadline_ns(SLICE_NS);
        bool last = slice >= request->deadline_ns;
        if (tutti_segment_wait_all(segment, last ? request->deadline_ns : slice) == TUTTI_OK) return TUTTI_OK;
        TUTTI_TRY(failure_check(segment, n));
        TUTTI_TRY(deaths_check(segment, n, false));
        if (tutti_meeting_cancelled(request)) return tutti_meeting_time(request, "the other ranks");
        if (last) return missing_fail(segment, n, request);
    }
}

/* ---- comparing ---- */

static bool card_read(const void *arg, uint32_t rank, struct tutti_card_record *out)
{
    return tutti_card_decode(card_of((struct tutti_segment *)(uintptr_t)arg, rank)->record, out);
}

enum tutti_status tutti_card_exchange(struct tutti_segment *segment, const struct tutti_meeting_request *request,
                                      struct tutti_cpu_place *places, struct tutti_world_facts *out)
{
    const uint32_t n = (uint32_t)request->n_ranks;
    struct card *card = card_of(segment, (uint32_t)request->rank);
    tutti_card_encode(request->card, card->record);
    atomic_store(&card->pid, request->card->pid);
    tutti_segment_arrive(segment, (uint32_t)request->rank);
    TUTTI_TRY(arrivals_wait(segment, request));
    return tutti_world_facts_read(request->card, n, card_read, segment, places, out);
}

enum tutti_status tutti_card_wait_open(struct tutti_segment *segment, const struct tutti_meeting_request *request)
{
    struct card *gate = card_of(segment, 0);
    uint32_t n = (uint32_t)request->n_ranks, open = atomic_fetch_add(&gate->n_open, 1) + 1;
    if (open >= n) tutti_futex_wake(&gate->n_open, INT_MAX);
    while ((open = atomic_load(&gate->n_open)) < n) {
        TUTTI_TRY(failure_check(segment, n));
        TUTTI_TRY(deaths_check(segment, n, true));
        TUTTI_TRY(tutti_meeting_time(request, "the other ranks to open their transports"));
        uint64_t slice = tutti_deadline_ns(SLICE_NS);
        tutti_futex_wait(&gate->n_open, open, slice < request->deadline_ns ? slice : request->deadline_ns);
    }
    return TUTTI_OK;
}
