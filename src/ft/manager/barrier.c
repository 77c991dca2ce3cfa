/* SPDX-License-Identifier: BSD-3-Clause */
/* From the ranks' requests to one question, and from its answer to theirs. */
#include "ft/manager/ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAUSE_NS (100 * TUTTI_NS_PER_MS) /* between questions, at least */

static void gather(struct tutti_manager *m)
{
    if (m->phase == ASKS) m->out.withdraw(m->out.arg);
    m->phase = GATHERS;
    m->n_failed = 0;
}

void manager_unask(struct tutti_manager *m, uint32_t rank)
{
    if (m->ranks[rank].asks == NO_REQUEST) return;
    m->ranks[rank].asks = NO_REQUEST;
    m->n_asking--;
    gather(m);
}

/* The request of a rank that asked, which is over. */
static uint64_t take(struct tutti_manager *m, uint32_t rank)
{
    const uint64_t request = m->ranks[rank].asks;

    m->ranks[rank].asks = NO_REQUEST;
    if (request != NO_REQUEST) m->n_asking--;
    return request;
}

void manager_refuse_asking(struct tutti_manager *m, enum tutti_manager_why why, const char *text)
{
    gather(m);
    for (uint32_t i = 0; i < m->options.world_size; i++) {
        const uint64_t request = take(m, i);
        if (request != NO_REQUEST) m->out.refused(m->out.arg, request, why, text);
    }
}

/* ---- the question ---- */
static uint64_t last_deadline(const struct tutti_manager *m)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < m->options.world_size; i++)
        if (m->ranks[i].ask.deadline_ns > last) last = m->ranks[i].ask.deadline_ns;
    return last;
}

void manager_send(struct tutti_manager *m)
{
    struct tutti_replica group = {.replica_id = m->replica_id,
                                  .address = m->address,
                                  .store_address = m->store_address,
                                  .data = "",
                                  .step = INT64_MAX,
                                  .world_size = m->options.world_size,
                                  .handles = m->handles};
    uint32_t n_handles = 0;

    for (uint32_t i = 0; i < m->options.world_size; i++) {
        const struct rank *rank = &m->ranks[i];
        if (rank->ask.step < group.step) group.step = rank->ask.step;
        if (rank->ask.commit_failures > group.commit_failures) group.commit_failures = rank->ask.commit_failures;
        group.shrink_only |= rank->ask.shrink_only;
        m->handles[i] = rank->handle;
        n_handles += rank->handle[0] != '\0';
    }
    group.n_handles = n_handles ? m->options.world_size : 0;
    m->phase = ASKS;
    m->out.ask(m->out.arg, &group, last_deadline(m));
}

/* ---- events ---- */
/* False: out of memory, nothing has changed. */
static bool keep(struct rank *rank, const struct tutti_manager_ask *ask)
{
    char *metadata = tutti_text_copy(ask->checkpoint_metadata), *handle = tutti_text_copy(ask->handle);

    if (!metadata || !handle) {
        tutti_free(metadata), tutti_free(handle);
        return false;
    }
    tutti_free(rank->metadata), tutti_free(rank->handle);
    rank->metadata = metadata, rank->handle = handle;
    rank->ask = *ask;
    rank->ask.checkpoint_metadata = metadata, rank->ask.handle = handle;
    return true;
}

void tutti_manager_ask(struct tutti_manager *m, uint32_t group_rank, const struct tutti_manager_ask *ask,
                       uint64_t request)
{
    if (!manager_admits(m, group_rank, request)) return;
    struct rank *rank = &m->ranks[group_rank];
    const uint64_t older = rank->asks;
    if (!keep(rank, ask)) {
        m->out.refused(m->out.arg, request, TUTTI_MANAGER_MEMORY, "the manager is out of memory");
        return;
    }
    manager_unask(m, group_rank);
    if (older != NO_REQUEST) {
        char text[MANAGER_TEXT];
        snprintf(text, sizeof text, "rank %" PRIu32 " of %s asked again for a quorum", group_rank, m->replica_id);
        m->out.refused(m->out.arg, older, TUTTI_MANAGER_REPLACED, text);
    }
    rank->asks = request;
    manager_note(rank, ask->step, rank->collective);
    if (++m->n_asking == m->options.world_size) manager_send(m);
}

void tutti_manager_answered(struct tutti_manager *m, const struct tutti_quorum *quorum)
{
    bool init_sync = false;

    if (m->phase != ASKS) return;
    m->phase = GATHERS;
    m->n_failed = 0;
    for (uint32_t i = 0; i < m->options.world_size; i++) init_sync |= m->ranks[i].ask.init_sync;
    for (uint32_t i = 0; i < m->options.world_size; i++) {
        const uint64_t request = take(m, i);
        struct tutti_place place;
        if (tutti_place_find(quorum, m->replica_id, i, init_sync, &place) < 0) {
            const bool stranger = tutti_last_error()->status == TUTTI_ERR_ARGUMENT;
            m->out.refused(m->out.arg, request, stranger ? TUTTI_MANAGER_STRANGER : TUTTI_MANAGER_MEMORY,
                           tutti_last_error()->text);
            continue;
        }
        m->out.placed(m->out.arg, request, i, quorum, &place);
        tutti_place_fini(&place);
    }
}

void tutti_manager_unanswered(struct tutti_manager *m, const char *why, uint64_t now)
{
    const uint64_t deadline = last_deadline(m), left = deadline > now ? deadline - now : 0;

    if (m->phase != ASKS) return;
    m->phase = GATHERS;
    if (m->n_failed >= m->options.quorum_retries) {
        manager_refuse_asking(m, TUTTI_MANAGER_NO_ANSWER, why);
        return;
    }
    const uint64_t share = left / (m->options.quorum_retries - m->n_failed + 1);
    m->n_failed++;
    m->phase = PAUSES;
    m->again_ns = now + (share > PAUSE_NS ? share : PAUSE_NS);
}

void tutti_manager_repeat(struct tutti_manager *m, uint64_t now)
{
    if (m->phase != ASKS) return;
    m->phase = PAUSES;
    m->again_ns = now;
}
