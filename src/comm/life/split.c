/* SPDX-License-Identifier: BSD-3-Clause */
/* Split and duplicate: one all_gather of {colour, key}, a local sort, one verdict. All groups of a call are made at
 * once, at O(log n) messages a rank. */
#include "comm/call/device.h"
#include "comm/life/life.h"

#include <inttypes.h>
#include <stdlib.h>

struct entry {
    int32_t colour, key;
    int32_t status; /* the status of a rank that can not take part in what follows */
};

static int compare_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The parent's slots of one colour, by key and then by old rank; me: where this rank comes. */
static enum tutti_status group_members(const struct tutti_comm *comm, const struct entry *entries, int32_t colour,
                                       uint32_t **out, uint32_t *n_out, uint32_t *me)
{
    uint32_t n = 0;
    for (int32_t r = 0; r < comm->size; r++) n += entries[r].colour == colour;
    uint64_t *order = tutti_alloc_array(n, sizeof(*order));
    uint32_t *slots = tutti_alloc_array(n, sizeof(*slots));
    if (!order || !slots) {
        tutti_free(order);
        tutti_free(slots);
        return tutti_fail(TUTTI_ERR_MEMORY, "comm_split on rank %d: out of memory for a group of %u ranks",
                          (int)comm->rank, n);
    }
    n = 0;
    for (int32_t r = 0; r < comm->size; r++)
        if (entries[r].colour == colour)
            order[n++] = (uint64_t)((uint32_t)entries[r].key ^ UINT32_C(0x80000000)) << 32 | (uint32_t)r;
    qsort(order, n, sizeof(*order), compare_order);
    for (uint32_t i = 0; i < n; i++) {
        slots[i] = (uint32_t)order[i];
        if (slots[i] == (uint32_t)comm->rank) *me = i;
    }
    tutti_free(order);
    *out = slots;
    *n_out = n;
    return TUTTI_OK;
}

/* Equal on the group's members, different from every other communicator's: the parent, its call, the colour. */
static uint64_t child_id(const struct tutti_comm *parent, uint64_t sequence, int32_t colour)
{
    uint64_t facts[] = {parent->id, parent->epoch, sequence, (uint64_t)colour};
    return tutti_hash64(facts, sizeof(facts), 0) | 1;
}

static enum tutti_status make_child(struct tutti_comm *comm, const struct entry *entries, int32_t colour,
                                    uint64_t sequence, struct tutti_comm **out)
{
    uint32_t *slots = NULL;
    struct tutti_child child = {.id = child_id(comm, sequence, colour), .epoch = comm->epoch};
    TUTTI_TRY(group_members(comm, entries, colour, &slots, &child.n, &child.me));
    child.slots = slots;
    enum tutti_status status = tutti_comm_new_child(comm, &child, out);
    tutti_free(slots);
    return status;
}

static bool is_colour(int32_t colour)
{
    return colour >= 0 || colour == TUTTI_UNDEFINED;
}

static enum tutti_status refused_by(const struct tutti_comm *comm, const char *name, const struct entry *entries)
{
    for (int32_t r = 0; r < comm->size; r++) {
        if (entries[r].status >= 0) continue;
        if (is_colour(entries[r].colour))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s on rank %d: out is NULL on rank %d", name, (int)comm->rank,
                              (int)r);
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s on rank %d: rank %d called it with wrong arguments (colour %d)", name,
                          (int)comm->rank, (int)r, (int)entries[r].colour);
    }
    return TUTTI_OK;
}

static enum tutti_status split(struct tutti_comm *comm, const char *name, int32_t colour, int32_t key,
                               struct tutti_comm **out)
{
    struct entry mine = {.colour = colour, .key = key, .status = TUTTI_OK};
    if (!out || !is_colour(colour)) mine.status = TUTTI_ERR_ARGUMENT;
    struct entry *entries = tutti_alloc_array((size_t)comm->size, sizeof(*entries));
    uint64_t sequence = 0;
    struct tutti_comm *child = NULL;
    enum tutti_status status = tutti_agree_gather(comm, name, &mine, sizeof(mine), entries, &sequence);
    if (status >= 0) status = refused_by(comm, name, entries);
    if (status >= 0) {
        enum tutti_status made = TUTTI_OK;
        if (colour != TUTTI_UNDEFINED) made = make_child(comm, entries, colour, sequence, &child);
        status = tutti_agree_verdict(comm, name, made);
    }
    tutti_free(entries);
    if (status >= 0 && child) status = tutti_comm_open_backend(child);
    if (status >= 0 && child && comm->device) status = tutti_comm_open_device(child, name, comm->device->ordinal, true);
    if (status >= 0) {
        if (child) tutti_comm_ready(child);
        if (child)
            tutti_log(TUTTI_LOG_DEBUG, "%s: communicator %016" PRIx64 ": rank %d of %d", name, child->id,
                      (int)child->rank, (int)child->size);
        *out = child; /* refused_by refused a missing out. NOLINT(clang-analyzer-core.NullDereference) */
    } else if (child) {
        struct tutti_error why = *tutti_last_error();
        tutti_comm_discard(child);
        tutti_fail_record(&why);
    }
    return status;
}

static enum tutti_status split_call(struct tutti_comm *comm, const char *name, int32_t colour, int32_t key,
                                    struct tutti_comm **out)
{
    TUTTI_TRY(tutti_call_alone(name));
    TUTTI_TRY(tutti_comm_enter(comm, name));
    enum tutti_status status = tutti_survive_refuse(comm, name);
    if (status >= 0) status = tutti_staging_settle(comm);
    if (status >= 0) status = split(comm, name, colour, key, out);
    tutti_comm_leave(comm);
    return status;
}

enum tutti_status tutti_comm_split(struct tutti_comm *comm, int32_t colour, int32_t key, struct tutti_comm **out)
{
    return split_call(comm, "comm_split", colour, key, out);
}

enum tutti_status tutti_comm_dup(struct tutti_comm *comm, struct tutti_comm **out)
{
    return split_call(comm, "comm_dup", 0, 0, out);
}
