/* SPDX-License-Identifier: BSD-3-Clause */
/* The one procedure that opens back ends; open.h has its steps. */
#include "backend/open.h"

#include <string.h>

#define GIVE_UP_NS TUTTI_NS_PER_S /* for closing what was never used */

void tutti_opening_skip(struct tutti_opening *opening)
{
    opening->backend = NULL;
    opening->why = *tutti_last_error();
}

void tutti_opening_try(struct tutti_opening *opening, const struct tutti_backend_config *config)
{
    memset(opening->card, 0, sizeof(opening->card));
    if (opening->ops->open(config, opening->card, &opening->backend) < 0) tutti_opening_skip(opening);
}

/* agreed: no member goes on with it, and all know. */
static void drop(struct tutti_opening *opening, bool agreed)
{
    struct tutti_backend *backend = opening->backend;
    opening->backend = NULL;
    if (!backend) return;
    if (agreed && opening->ops->connected) opening->ops->connected(backend);
    opening->ops->close(backend, tutti_deadline_ns(GIVE_UP_NS));
}

/* ---- records: of one member, the status and the card of each opening ---- */

static size_t record_bytes(const struct tutti_opening *opening)
{
    return sizeof(int64_t) + ((opening->ops->card_bytes + 7) & ~(size_t)7);
}

static void record_fill(char *record, const struct tutti_opening *openings, uint32_t n)
{
    for (uint32_t i = 0; i < n; record += record_bytes(&openings[i++])) {
        const int64_t status = openings[i].backend ? TUTTI_OK : openings[i].why.status;
        memcpy(record, &status, sizeof(status));
        memcpy(record + sizeof(status), openings[i].card, openings[i].ops->card_bytes);
    }
}

static int64_t status_at(const char *first, size_t stride, uint32_t i)
{
    int64_t status;
    memcpy(&status, first + i * stride, sizeof(status));
    return status;
}

int32_t tutti_first_failed(const void *first, size_t stride, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (status_at(first, stride, i) < 0) return (int32_t)i;
    return -1;
}

/* ---- the steps ---- */

/* What members tell each other. Of one member, `bytes` of records and one outcome an opening. */
struct tables {
    char *mine, *all;
    size_t bytes;
    int64_t *outcomes; /* the own ones first */
};

/* Whether all of the group have it, by their statuses at `at`, `stride` bytes from one member of the communicator to
 * the next; else it is dropped. The others' reasons are known by their statuses alone, so the own one is told first. */
static bool keep(struct tutti_opening *opening, const struct tutti_openers *openers, const char *at, size_t stride)
{
    const struct tutti_lane *slots = &opening->slots;
    const char *first = at + slots->base * stride;
    int32_t i = tutti_first_failed(first, slots->stride * stride, slots->size);
    if (i < 0) return slots->size > 0;
    struct tutti_error own = opening->why;
    enum tutti_status theirs = (enum tutti_status)status_at(first, slots->stride * stride, (uint32_t)i);
    if (own.status < 0)
        tutti_error_set(&opening->why, own.status, "rank %u: %s", openers->me, own.text);
    else
        tutti_error_set(&opening->why, theirs, "rank %u: %s", slots->base + (uint32_t)i * slots->stride,
                        tutti_status_text(theirs));
    drop(opening, true);
    return false;
}

static void connect_one(struct tutti_opening *opening, const char *card, size_t stride)
{
    const struct tutti_lane *slots = &opening->slots;
    if (opening->ops->connect(opening->backend, card + slots->base * stride, slots->stride * stride) < 0)
        tutti_opening_skip(opening); /* it has closed itself */
}

/* Connects what all have opened. Whether somebody has opened any, which is equal on all members. */
static bool connect_all(struct tutti_opening *openings, uint32_t n, const struct tutti_openers *openers,
                        const struct tables *tables)
{
    const char *at = tables->all;
    bool any = false;
    for (uint32_t i = 0; i < n; at += record_bytes(&openings[i++])) {
        for (uint32_t r = 0; r < openers->n; r++) any |= status_at(at, tables->bytes, r) >= 0;
        tables->outcomes[i] = TUTTI_OK;
        if (!keep(&openings[i], openers, at, tables->bytes)) continue;
        connect_one(&openings[i], at + sizeof(int64_t), tables->bytes);
        if (!openings[i].backend) tables->outcomes[i] = openings[i].why.status;
    }
    return any;
}

/* A back end that is needed, and that some member could not connect: all give up. */
static enum tutti_status refuse_broken(const struct tutti_opening *opening, const struct tutti_openers *openers,
                                       const int64_t *outcomes, size_t stride, int64_t mine)
{
    for (uint32_t r = 0; opening->needed && r < openers->n; r++) {
        enum tutti_status status = (enum tutti_status)status_at((const char *)outcomes, stride, r);
        if (status >= 0 || status == TUTTI_ERR_UNSUPPORTED) continue;
        if (mine < 0)
            return tutti_fail(opening->why.status, "%s on rank %u: back end %s: %s", openers->call, openers->me,
                              opening->ops->name, opening->why.text);
        return tutti_fail(status, "%s on rank %u: rank %u can not connect back end %s: %s", openers->call, openers->me,
                          r, opening->ops->name, tutti_status_text(status));
    }
    return TUTTI_OK;
}

static enum tutti_status compare_outcomes(struct tutti_opening *openings, uint32_t n,
                                          const struct tutti_openers *openers, const int64_t *mine, int64_t *all)
{
    const size_t stride = n * sizeof(*mine);
    TUTTI_TRY(openers->gather(openers->arg, mine, stride, all));
    for (uint32_t i = 0; i < n; i++) {
        TUTTI_TRY(refuse_broken(&openings[i], openers, &all[i], stride, mine[i]));
        if (openings[i].backend || mine[i] < 0) keep(&openings[i], openers, (const char *)&all[i], stride);
    }
    return TUTTI_OK;
}

static enum tutti_status finish(struct tutti_opening *openings, uint32_t n, const struct tutti_openers *openers,
                                const struct tables *tables)
{
    bool room = tables->mine && tables->all && tables->outcomes;
    if (room) record_fill(tables->mine, openings, n);
    TUTTI_TRY(openers->gather(openers->arg, tables->mine, tables->bytes, room ? tables->all : NULL));
    if (!connect_all(openings, n, openers, tables)) return TUTTI_OK;
    TUTTI_TRY(compare_outcomes(openings, n, openers, tables->outcomes, tables->outcomes + n));
    for (uint32_t i = 0; i < n; i++)
        if (openings[i].backend && openings[i].ops->connected) openings[i].ops->connected(openings[i].backend);
    return TUTTI_OK;
}

enum tutti_status tutti_opening_finish(struct tutti_opening *openings, uint32_t n, const struct tutti_openers *openers)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) bytes += record_bytes(&openings[i]);
    const struct tables tables = {.mine = tutti_alloc(bytes),
                                  .all = tutti_alloc_array(openers->n, bytes),
                                  .bytes = bytes,
                                  .outcomes = tutti_alloc_array(1 + openers->n, n * sizeof(int64_t))};
    enum tutti_status status = finish(openings, n, openers, &tables);
    tutti_free(tables.mine);
    tutti_free(tables.all);
    tutti_free(tables.outcomes);
    if (status >= 0) return status;
    struct tutti_error why = *tutti_last_error();
    for (uint32_t i = 0; i < n; i++) drop(&openings[i], false);
    return tutti_fail_record(&why);
}
