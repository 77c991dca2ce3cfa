/* SPDX-License-Identifier: BSD-3-Clause */
/* The place of a group in a quorum. */
#include "ft/rules/place.h"

#include <inttypes.h>
#include <string.h>

/* What all members think alike. */
struct view {
    const struct tutti_quorum *quorum;
    int64_t max_step;
    uint32_t n_max, primary; /* up to date, and which of them all start from */
    bool from_primary;       /* all but the primary recover */
};

static bool is_max(const struct view *view, uint32_t i)
{
    return view->quorum->members[i]->step == view->max_step;
}

static bool recovers(const struct view *view, uint32_t i)
{
    return !is_max(view, i) || (view->from_primary && i != view->primary);
}

static struct view view_of(const struct tutti_quorum *quorum, uint32_t group_rank, bool init_sync)
{
    struct view view = {.quorum = quorum, .max_step = INT64_MIN};

    for (uint32_t i = 0; i < quorum->n; i++)
        if (quorum->members[i]->step > view.max_step) view.max_step = quorum->members[i]->step;
    for (uint32_t i = 0; i < quorum->n; i++) view.n_max += is_max(&view, i);
    uint32_t left = group_rank % view.n_max;
    for (uint32_t i = 0; i < quorum->n; i++) {
        if (!is_max(&view, i) || left-- > 0) continue;
        view.primary = i;
        break;
    }
    view.from_primary = init_sync && view.max_step == 0;
    return view;
}

/* The sources of one member that recovers, of n that are up to date: the first and the next. */
static void give_sources(const uint32_t *up, uint32_t n, uint64_t first, uint32_t member, struct tutti_place *out)
{
    for (uint32_t j = 0; j < n && j < TUTTI_SOURCES; j++) {
        const uint32_t source = up[(first + j) % n];
        if (member == out->rank) out->sources[out->n_sources++] = source;
        if (source != out->rank) continue;
        out->offers = true;
        if (j == 0) out->targets[out->n_targets++] = member;
    }
}

/* The groups that recover, in order, get the sources in order, shifted by group_rank. */
static enum tutti_status pair(const struct view *view, uint32_t group_rank, struct tutti_place *out)
{
    const uint32_t n = view->quorum->n;
    uint32_t *up = tutti_alloc_array(n, sizeof(up[0]));
    uint32_t n_up = 0, k = 0;

    out->targets = tutti_alloc_array(n, sizeof(out->targets[0]));
    if (!up || !out->targets) {
        tutti_free(up);
        tutti_place_fini(out);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a quorum's place");
    }
    for (uint32_t i = 0; i < n; i++)
        if (!recovers(view, i)) up[n_up++] = i;
    for (uint32_t i = 0; i < n; i++)
        if (recovers(view, i)) give_sources(up, n_up, (uint64_t)k++ + group_rank, i, out);
    tutti_free(up);
    if (out->n_sources > 0) out->source = out->sources[0];
    return TUTTI_OK;
}

static uint32_t rank_of(const struct tutti_quorum *quorum, const char *replica_id)
{
    for (uint32_t i = 0; i < quorum->n; i++)
        if (strcmp(quorum->members[i]->replica_id, replica_id) == 0) return i;
    return TUTTI_NOBODY;
}

enum tutti_status tutti_place_find(const struct tutti_quorum *quorum, const char *replica_id, uint32_t group_rank,
                                   bool init_sync, struct tutti_place *out)
{
    const uint32_t rank = rank_of(quorum, replica_id);
    struct tutti_place place = {.rank = rank, .size = quorum->n, .max_rank = TUTTI_NOBODY, .source = TUTTI_NOBODY};

    if (rank == TUTTI_NOBODY)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "replica %.100s is not among the %" PRIu32 " of quorum %" PRId64,
                          replica_id, quorum->n, quorum->id);
    const struct view view = view_of(quorum, group_rank, init_sync);
    place.max_step = view.max_step;
    place.max_size = view.n_max;
    place.store_address = quorum->members[view.primary]->store_address;
    if (is_max(&view, rank)) {
        place.max_rank = 0;
        for (uint32_t i = 0; i < rank; i++) place.max_rank += is_max(&view, i);
    }
    for (uint32_t i = 0; i < quorum->n; i++)
        if (quorum->members[i]->commit_failures > place.commit_failures)
            place.commit_failures = quorum->members[i]->commit_failures;
    TUTTI_TRY(pair(&view, group_rank, &place));
    place.heals = place.source != TUTTI_NOBODY;
    place.source_address = place.heals ? quorum->members[place.source]->address : "";
    *out = place;
    return TUTTI_OK;
}

void tutti_place_fini(struct tutti_place *place)
{
    tutti_free(place->targets);
    place->targets = NULL;
}
