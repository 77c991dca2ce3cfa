/* SPDX-License-Identifier: BSD-3-Clause */
/* A replica group: its ranks, their requests and votes. */
#include "ft/rules/manager.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NO_REQUEST UINT64_MAX
#define MANAGER_TEXT 400

struct rank {
    uint64_t asks, votes; /* the numbers of its requests, NO_REQUEST: none */
    struct tutti_manager_ask ask;
    char *metadata, *handle; /* the last ones */
    int64_t vote_step;
    bool vote, said, dead; /* said: its step is known */
    int64_t step;
    uint64_t collective;
};
enum phase { GATHERS, ASKS, PAUSES };
struct tutti_manager {
    struct tutti_manager_options options;
    struct tutti_manager_out out;
    char *replica_id, *address, *store_address;
    struct rank *ranks;
    const char **handles; /* the question's */
    uint32_t n_asking, n_voting, n_dead;
    enum phase phase;
    uint32_t n_failed; /* questions of this round that got no answer */
    uint64_t again_ns, beat_ns;
    char dead[MANAGER_TEXT]; /* the rank that died, and how */
};

/* ---- which request is taken, and how far each rank is ---- */
static bool admits(struct tutti_manager *m, uint32_t rank, uint64_t request)
{
    char text[MANAGER_TEXT];

    if (rank >= m->options.world_size) {
        snprintf(text, sizeof text, "group_rank is %" PRIu32 ", but %s has %" PRIu32 " ranks", rank, m->replica_id,
                 m->options.world_size);
        m->out.refused(m->out.arg, request, TUTTI_MANAGER_ARGUMENT, text);
        return false;
    }
    if (m->ranks[rank].dead) m->ranks[rank].dead = false, m->n_dead--;
    if (m->n_dead == 0) return true;
    m->out.refused(m->out.arg, request, TUTTI_MANAGER_DEAD, m->dead);
    return false;
}

static void note_progress(struct rank *rank, int64_t step, uint64_t collective)
{
    rank->said = true;
    rank->step = step;
    rank->collective = collective;
}

bool tutti_manager_progress(struct tutti_manager *m, uint32_t group_rank, int64_t step, uint64_t collective)
{
    if (group_rank >= m->options.world_size) return false;
    note_progress(&m->ranks[group_rank], step, collective);
    return true;
}

/* ---- from the requests of ranks to one question, and from its answer to theirs ---- */
#define PAUSE_NS (100 * TUTTI_NS_PER_MS) /* between questions, at least */

static void gather(struct tutti_manager *m)
{
    if (m->phase == ASKS) m->out.withdraw(m->out.arg);
    m->phase = GATHERS;
    m->n_failed = 0;
}

static void unask(struct tutti_manager *m, uint32_t rank)
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

static void refuse_asking(struct tutti_manager *m, enum tutti_manager_why why, const char *text)
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

static void send_question(struct tutti_manager *m)
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
    if (!admits(m, group_rank, request)) return;
    struct rank *rank = &m->ranks[group_rank];
    const uint64_t older = rank->asks;
    if (!keep(rank, ask)) {
        m->out.refused(m->out.arg, request, TUTTI_MANAGER_MEMORY, "the manager is out of memory");
        return;
    }
    unask(m, group_rank);
    if (older != NO_REQUEST) {
        char text[MANAGER_TEXT];
        snprintf(text, sizeof text, "rank %" PRIu32 " of %s asked again for a quorum", group_rank, m->replica_id);
        m->out.refused(m->out.arg, older, TUTTI_MANAGER_REPLACED, text);
    }
    rank->asks = request;
    note_progress(rank, ask->step, rank->collective);
    if (++m->n_asking == m->options.world_size) send_question(m);
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
            const bool no_member = tutti_last_error()->status == TUTTI_ERR_ARGUMENT;
            m->out.refused(m->out.arg, request, no_member ? TUTTI_MANAGER_NO_MEMBER : TUTTI_MANAGER_MEMORY,
                           tutti_last_error()->text);
            continue;
        }
        m->out.placed(m->out.arg, request, i, quorum, &place);
        tutti_place_fini(&place);
    }
}

void tutti_manager_unanswered(struct tutti_manager *m, enum tutti_manager_why why, const char *text, uint64_t now)
{
    const uint64_t deadline = last_deadline(m), left = deadline > now ? deadline - now : 0;

    if (m->phase != ASKS) return;
    m->phase = GATHERS;
    if (m->n_failed >= m->options.quorum_retries || why == TUTTI_MANAGER_LATE) {
        refuse_asking(m, why, text);
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

/* ---- votes on a step ---- */
static void unvote(struct tutti_manager *m, uint32_t rank)
{
    if (m->ranks[rank].votes == NO_REQUEST) return;
    m->ranks[rank].votes = NO_REQUEST;
    m->n_voting--;
}

static void refuse_voting(struct tutti_manager *m, enum tutti_manager_why why, const char *text)
{
    for (uint32_t i = 0; i < m->options.world_size; i++) {
        const uint64_t request = m->ranks[i].votes;
        unvote(m, i);
        if (request != NO_REQUEST) m->out.refused(m->out.arg, request, why, text);
    }
}

static void decide(struct tutti_manager *m)
{
    bool commit = true;

    for (uint32_t i = 0; i < m->options.world_size; i++) commit &= m->ranks[i].vote;
    for (uint32_t i = 0; i < m->options.world_size; i++) {
        const uint64_t request = m->ranks[i].votes;
        unvote(m, i);
        m->out.decided(m->out.arg, request, commit);
    }
}

/* A rank that voted for another step than this one; world_size: there is none. */
static uint32_t find_other(const struct tutti_manager *m, int64_t step)
{
    uint32_t i = 0;

    while (i < m->options.world_size && (m->ranks[i].votes == NO_REQUEST || m->ranks[i].vote_step == step)) i++;
    return i;
}

void tutti_manager_vote(struct tutti_manager *m, uint32_t group_rank, int64_t step, bool vote, uint64_t request)
{
    char text[MANAGER_TEXT];

    if (!admits(m, group_rank, request)) return;
    struct rank *rank = &m->ranks[group_rank];
    const uint64_t older = rank->votes;
    unvote(m, group_rank);
    if (older != NO_REQUEST) {
        snprintf(text, sizeof text, "rank %" PRIu32 " of %s voted again", group_rank, m->replica_id);
        m->out.refused(m->out.arg, older, TUTTI_MANAGER_REPLACED, text);
    }
    rank->votes = request;
    rank->vote = vote;
    rank->vote_step = step;
    note_progress(rank, step, rank->collective);
    m->n_voting++;
    const uint32_t other = find_other(m, step);
    if (other < m->options.world_size) {
        snprintf(text, sizeof text,
                 "ranks of %s vote for different steps: rank %" PRIu32 " for %" PRId64 ", rank %" PRIu32
                 " for %" PRId64,
                 m->replica_id, other, m->ranks[other].vote_step, group_rank, step);
        refuse_voting(m, TUTTI_MANAGER_ARGUMENT, text);
    } else if (m->n_voting == m->options.world_size) {
        decide(m);
    }
}

/* ---- the life of the machine, its ranks, and the times at which it acts ---- */
static enum tutti_status build(struct tutti_manager *m, const struct tutti_manager_options *options)
{
    m->options = *options;
    m->replica_id = tutti_text_copy(options->replica_id);
    m->address = tutti_text_copy(options->address);
    m->store_address = tutti_text_copy(options->store_address);
    m->ranks = tutti_alloc_array(options->world_size, sizeof(m->ranks[0]));
    m->handles = tutti_alloc_array(options->world_size, sizeof(m->handles[0]));
    if (!m->replica_id || !m->address || !m->store_address || !m->ranks || !m->handles)
        return tutti_fail(TUTTI_ERR_MEMORY, "the manager is out of memory");
    for (uint32_t i = 0; i < options->world_size; i++) m->ranks[i].asks = m->ranks[i].votes = NO_REQUEST;
    return TUTTI_OK;
}

enum tutti_status tutti_manager_create(const struct tutti_manager_options *options, const struct tutti_manager_out *out,
                                       uint64_t now, struct tutti_manager **made)
{
    if (!options->replica_id[0]) return tutti_fail(TUTTI_ERR_ARGUMENT, "replica_id is empty");
    if (options->world_size == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "world_size of %s is 0", options->replica_id);
    struct tutti_manager *m = tutti_alloc(sizeof(*m));
    if (!m) return tutti_fail(TUTTI_ERR_MEMORY, "the manager is out of memory");
    m->out = *out;
    m->again_ns = TUTTI_NEVER;
    m->beat_ns = options->heartbeat_ns ? now : TUTTI_NEVER;
    const enum tutti_status status = build(m, options);
    if (status < 0)
        tutti_manager_destroy(m);
    else
        *made = m;
    return status;
}

void tutti_manager_destroy(struct tutti_manager *m)
{
    if (!m) return;
    for (uint32_t i = 0; m->ranks && i < m->options.world_size; i++) {
        tutti_free(m->ranks[i].metadata);
        tutti_free(m->ranks[i].handle);
    }
    tutti_free(m->ranks);
    tutti_free(m->handles);
    tutti_free(m->replica_id);
    tutti_free(m->address);
    tutti_free(m->store_address);
    tutti_free(m);
}

/* ---- ranks ---- */
void tutti_manager_cancel(struct tutti_manager *m, uint64_t request)
{
    for (uint32_t i = 0; i < m->options.world_size; i++) {
        if (m->ranks[i].asks == request) unask(m, i);
        if (m->ranks[i].votes == request) unvote(m, i);
    }
}

void tutti_manager_dead(struct tutti_manager *m, uint32_t group_rank, const char *why)
{
    if (group_rank >= m->options.world_size || m->ranks[group_rank].dead) return;
    m->ranks[group_rank].dead = true;
    m->n_dead++;
    snprintf(m->dead, sizeof m->dead, "rank %" PRIu32 " of %s is gone: %s", group_rank, m->replica_id, why);
    refuse_asking(m, TUTTI_MANAGER_DEAD, m->dead);
    refuse_voting(m, TUTTI_MANAGER_DEAD, m->dead);
    m->out.leave(m->out.arg, m->dead);
}

void tutti_manager_waits(const struct tutti_manager *m, uint64_t request, char *out, size_t n)
{
    const uint32_t size = m->options.world_size;
    bool asks = false, votes = false;

    for (uint32_t i = 0; i < size; i++) asks |= m->ranks[i].asks == request, votes |= m->ranks[i].votes == request;
    if (asks && m->n_asking < size)
        snprintf(out, n, "%" PRIu32 " of %" PRIu32 " ranks of %.100s have asked for a quorum", m->n_asking, size,
                 m->replica_id);
    else if (asks)
        snprintf(out, n, "the lighthouse has not answered %.100s", m->replica_id);
    else if (votes)
        snprintf(out, n, "%" PRIu32 " of %" PRIu32 " ranks of %.100s have voted", m->n_voting, size, m->replica_id);
}

const char *tutti_manager_metadata(const struct tutti_manager *m, uint32_t group_rank)
{
    return group_rank < m->options.world_size ? m->ranks[group_rank].metadata : NULL;
}

/* ---- times ---- */
static struct tutti_manager_progress slowest(const struct tutti_manager *m)
{
    struct tutti_manager_progress least = {0};

    for (uint32_t i = 0; i < m->options.world_size; i++) {
        const struct rank *rank = &m->ranks[i];
        if (!rank->said) continue;
        if (least.n_ranks == 0 || rank->step < least.step ||
            (rank->step == least.step && rank->collective < least.collective))
            least.rank = i, least.step = rank->step, least.collective = rank->collective;
        least.n_ranks++;
    }
    return least;
}

void tutti_manager_tick(struct tutti_manager *m, uint64_t now)
{
    if (m->phase == PAUSES && now >= m->again_ns) send_question(m);
    if (now < m->beat_ns) return;
    m->beat_ns = now + m->options.heartbeat_ns;
    const struct tutti_manager_progress least = slowest(m);
    if (m->n_dead == 0) m->out.beat(m->out.arg, &least);
}

void tutti_manager_beat_every(struct tutti_manager *m, uint64_t heartbeat_ns, uint64_t now)
{
    m->options.heartbeat_ns = heartbeat_ns;
    if (m->beat_ns > now + heartbeat_ns) m->beat_ns = now + heartbeat_ns;
}

uint64_t tutti_manager_due(const struct tutti_manager *m)
{
    return m->phase == PAUSES && m->again_ns < m->beat_ns ? m->again_ns : m->beat_ns;
}
