/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's life, its ranks, and the times at which it acts. */
#include "ft/manager/ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
        if (m->ranks[i].asks == request) manager_unask(m, i);
        if (m->ranks[i].votes == request) manager_unvote(m, i);
    }
}

void tutti_manager_dead(struct tutti_manager *m, uint32_t group_rank, const char *why)
{
    if (group_rank >= m->options.world_size || m->ranks[group_rank].dead) return;
    m->ranks[group_rank].dead = true;
    m->n_dead++;
    snprintf(m->dead, sizeof m->dead, "rank %" PRIu32 " of %s is gone: %s", group_rank, m->replica_id, why);
    manager_refuse_asking(m, TUTTI_MANAGER_DEAD, m->dead);
    manager_refuse_voting(m, TUTTI_MANAGER_DEAD, m->dead);
    m->out.leave(m->out.arg, m->dead);
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
    if (m->phase == PAUSES && now >= m->again_ns) manager_send(m);
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
