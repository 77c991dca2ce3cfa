/* SPDX-License-Identifier: BSD-3-Clause */

/* How large the chunks of a step are, for SCRATCH too. Chunks of DATA may differ in size (a count that does not divide,
 * the v forms), so a message that is received into SCRATCH must be as large as the chunk that it stands for on the
 * other side, or sizes would not match. Authors say nothing: a chunk received into SCRATCH is sooner or later combined
 * with, or copied to, a chunk of DATA, and then has always had its size. Each write that replaces a SCRATCH chunk
 * starts a version; versions that meet are joined (union-find); one that meets DATA knows. */

#include "sched/emit.h"

#include <string.h>

static uint32_t find(struct tutti_extents *extents, uint32_t version)
{
    while (extents->parent[version] != version) {
        extents->parent[version] = extents->parent[extents->parent[version]];
        version = extents->parent[version];
    }
    return version;
}

static void join(struct tutti_extents *extents, uint32_t a, uint32_t b)
{
    a = find(extents, a), b = find(extents, b);
    if (a == b) return;
    extents->parent[a] = b;
    if (extents->extent[b] == TUTTI_NO_EXTENT) extents->extent[b] = extents->extent[a];
}

static void know(struct tutti_extents *extents, uint32_t version, uint32_t extent)
{
    version = find(extents, version);
    if (extents->extent[version] == TUTTI_NO_EXTENT) extents->extent[version] = extent;
}

static enum tutti_status grow(uint32_t **array, uint32_t n, uint32_t capacity)
{
    uint32_t *grown = tutti_alloc_array(capacity, sizeof(*grown));

    if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the sizes of %u chunks", capacity);
    if (n > 0) memcpy(grown, *array, n * sizeof(*grown));
    tutti_free(*array);
    *array = grown;
    return TUTTI_OK;
}

/* New versions of n SCRATCH chunks. */
static enum tutti_status renew(struct tutti_extents *extents, uint32_t chunk, uint32_t n)
{
    if (chunk + n > extents->n_current) {
        uint32_t room = chunk + n > 2 * extents->n_current ? chunk + n : 2 * extents->n_current;
        TUTTI_TRY(grow(&extents->current, extents->n_current, room));
        extents->n_current = room;
    }
    if (extents->n_versions + n > extents->capacity) {
        uint32_t capacity = 2 * (extents->n_versions + n);
        TUTTI_TRY(grow(&extents->parent, extents->n_versions, capacity));
        TUTTI_TRY(grow(&extents->extent, extents->n_versions, capacity));
        extents->capacity = capacity;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t version = extents->n_versions++;
        extents->parent[version] = version;
        extents->extent[version] = TUTTI_NO_EXTENT;
        extents->current[chunk + i] = version;
    }
    return TUTTI_OK;
}

/* Makes the versions of chunks that are read together follow one another, as their step names only the first. */
static enum tutti_status align(struct tutti_extents *extents, uint32_t chunk, uint32_t n)
{
    uint32_t aligned = 1;

    while (aligned < n && extents->current[chunk + aligned] == extents->current[chunk] + aligned) aligned++;
    if (aligned == n) return TUTTI_OK;
    uint32_t *before = tutti_alloc_array(n, sizeof(*before));
    if (!before) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the sizes of %u chunks", n);
    memcpy(before, &extents->current[chunk], n * sizeof(*before));
    enum tutti_status status = renew(extents, chunk, n);
    for (uint32_t i = 0; i < n && status == TUTTI_OK; i++) join(extents, extents->current[chunk + i], before[i]);
    tutti_free(before);
    return status;
}

/* Whether the step's size is that of SCRATCH alone; its extent then is the number of a version until resolved. */
static bool scratch_alone(const struct tutti_step *step)
{
    bool src = tutti_step_reads_src(step), dst = tutti_step_writes_dst(step);

    return step->op != TUTTI_STEP_CALL && (!src || step->src_buffer != TUTTI_DATA) &&
           (!dst || step->dst_buffer != TUTTI_DATA) &&
           ((src && step->src_buffer == TUTTI_SCRATCH) || (dst && step->dst_buffer == TUTTI_SCRATCH));
}

enum tutti_status tutti_extents_add(struct tutti_extents *extents, struct tutti_step *step)
{
    bool src = tutti_step_reads_src(step), dst = tutti_step_writes_dst(step);
    bool src_scratch = src && step->src_buffer == TUTTI_SCRATCH, dst_scratch = dst && step->dst_buffer == TUTTI_SCRATCH;

    if (dst_scratch && (step->op == TUTTI_STEP_RECV || step->op == TUTTI_STEP_COPY))
        TUTTI_TRY(renew(extents, step->dst, step->n));
    for (uint32_t i = 0; dst_scratch && extents->like && i < step->n; i++)
        know(extents, extents->current[step->dst + i], extents->like - 1 + i);
    if (scratch_alone(step)) TUTTI_TRY(align(extents, dst_scratch ? step->dst : step->src, step->n));
    if (dst && step->dst_buffer == TUTTI_DATA)
        step->extent = step->dst;
    else if (src && step->src_buffer == TUTTI_DATA)
        step->extent = step->src;
    else if (src && step->src_buffer == TUTTI_IN && !dst_scratch)
        step->extent = step->src;
    else
        step->extent = extents->current[dst_scratch ? step->dst : step->src];
    for (uint32_t i = 0; i < step->n && (src_scratch || dst_scratch); i++) {
        if (src_scratch && dst_scratch) join(extents, extents->current[step->src + i], extents->current[step->dst + i]);
        if (src_scratch && dst && step->dst_buffer == TUTTI_DATA)
            know(extents, extents->current[step->src + i], step->dst + i);
        if (dst_scratch && src && step->src_buffer == TUTTI_DATA)
            know(extents, extents->current[step->dst + i], step->src + i);
    }
    return TUTTI_OK;
}

void tutti_extents_resolve(struct tutti_extents *extents, struct tutti_schedule *schedule)
{
    /* With one chunk there is one size. */
    uint32_t unknown = schedule->n_chunks == 1 ? 0 : TUTTI_NO_EXTENT;

    for (uint32_t s = 0; s < schedule->n_steps; s++) {
        struct tutti_step *step = &schedule->steps[s];
        if (!scratch_alone(step)) continue;
        uint32_t version = step->extent;
        step->extent = extents->extent[find(extents, version)];
        /* The chunks of a step must follow one another, as their sizes do. */
        for (uint32_t i = 1; i < step->n && step->extent != TUTTI_NO_EXTENT; i++)
            if (extents->extent[find(extents, version + i)] != step->extent + i) step->extent = TUTTI_NO_EXTENT;
        if (step->extent == TUTTI_NO_EXTENT) step->extent = unknown;
    }
}

void tutti_extents_fini(struct tutti_extents *extents)
{
    tutti_free(extents->current);
    tutti_free(extents->parent);
    tutti_free(extents->extent);
}
