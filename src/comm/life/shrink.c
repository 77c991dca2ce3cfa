/* SPDX-License-Identifier: BSD-3-Clause */
/* Shrink: the survivors of a communicator agree on who they are and make a new one over the same world, one epoch on.
 * The old one stays as it is; its late messages carry another identity. */
#include "comm/call/device.h"
#include "comm/life/agreement.h"
#include "comm/life/survive.h"

/* ---- the new communicator ---- */

static enum tutti_status check_list(const struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude)
{
    if (n_exclude && !exclude)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_shrink on rank %d: exclude is NULL but n_exclude is %zu",
                          (int)comm->rank, n_exclude);
    for (size_t i = 0; i < n_exclude; i++) {
        if (exclude[i] < 0 || exclude[i] >= comm->size)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "comm_shrink on rank %d: exclude[%zu] is %d but the ranks are 0 to %d", (int)comm->rank,
                              i, (int)exclude[i], (int)comm->size - 1);
        if (exclude[i] == comm->rank)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_shrink on rank %d: exclude[%zu] is the caller itself",
                              (int)comm->rank, i);
    }
    return TUTTI_OK;
}

static enum tutti_status make(struct tutti_survivors *survivors, uint32_t version, struct tutti_comm **out)
{
    struct tutti_comm *comm = survivors->comm;
    if (tutti_survivors_is_larger(survivors, version)) {
        *out = survivors->larger;
        return TUTTI_OK;
    }
    uint32_t *slots = tutti_alloc_array((size_t)comm->size, sizeof(*slots));
    if (!slots) return tutti_fail(TUTTI_ERR_MEMORY, "comm_shrink on rank %d: out of memory", (int)comm->rank);
    uint32_t n = 0, me = 0;
    for (uint32_t s = 0; s < (uint32_t)comm->size; s++) {
        if (!tutti_survivors_has(survivors, version, s)) continue;
        if (s == (uint32_t)comm->rank) me = n;
        slots[n++] = s;
    }
    uint64_t facts[] = {survivors->id, survivors->hashes[version]};
    struct tutti_child child = {
        .slots = slots, .n = n, .me = me, .id = tutti_hash64(facts, sizeof(facts), 0) | 1, .epoch = comm->epoch + 1};
    enum tutti_status status = tutti_comm_new_child(comm, &child, out);
    tutti_free(slots);
    return status;
}

/* A survivor that dies now is one of the new communicator, which others may have already: all have it, and it fails. */
static enum tutti_status open_all(const struct tutti_comm *comm, struct tutti_comm *child)
{
    enum tutti_status status = tutti_comm_open_backend(child);
    if (status >= 0 && comm->device) status = tutti_comm_open_device(child, "comm_shrink", comm->device->ordinal, true);
    if (!tutti_status_is_gone(status)) return status; /* left: it saw a death */
    struct tutti_error why = *tutti_last_error();
    tutti_team_fail(child->team, &why, true);
    return TUTTI_OK;
}

static enum tutti_status shrink(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                const struct tutti_next *next, struct tutti_comm **out)
{
    struct tutti_survivors survivors;
    struct tutti_comm *child = NULL, *larger = next->larger;
    uint32_t version = 0;
    TUTTI_TRY(tutti_survivors_init(&survivors, comm, exclude, n_exclude, next));
    enum tutti_status status = tutti_survivors_agree(&survivors, &version);
    if (status >= 0) {
        enum tutti_status made = make(&survivors, version, &child);
        status = tutti_survivors_confirm(&survivors, version, made);
        if (made < 0) status = made;
    }
    if (next->was_asked) *next->was_asked = survivors.was_asked;
    tutti_survivors_fini(&survivors);
    if (status >= 0 && child != larger) status = open_all(comm, child);
    if (status < 0) {
        struct tutti_error why = *tutti_last_error();
        if (child && child != larger) tutti_comm_discard(child);
        return tutti_fail_record(&why);
    }
    *out = child;
    if (child == larger) return TUTTI_OK;
    tutti_log(TUTTI_LOG_INFO, "comm_shrink on rank %d: %d of %d ranks go on", (int)comm->rank, (int)child->size,
              (int)comm->size);
    tutti_comm_ready(child);
    return TUTTI_OK;
}

static enum tutti_status enter_and_shrink(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                          const struct tutti_next *next, struct tutti_comm **out)
{
    TUTTI_TRY(tutti_comm_enter(comm, "comm_shrink"));
    enum tutti_status status = check_list(comm, exclude, n_exclude);
    if (status >= 0) status = shrink(comm, exclude, n_exclude, next, out);
    tutti_comm_leave(comm);
    return status;
}

enum tutti_status tutti_comm_next(struct tutti_comm *comm, const struct tutti_next *next, struct tutti_comm **out)
{
    return enter_and_shrink(comm, NULL, 0, next, out);
}

/* With option quorum one side of a cut goes on; whom the arbiter let go on once need not ask again. */
static enum tutti_status shrink_one_side(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                         struct tutti_comm **out)
{
    const struct tutti_config *config = &comm->context->config;
    struct tutti_door door = {.name = "shrink"};
    const struct tutti_arbiter arbiter = {.door = &door, .config = config, .comm = comm->id, .epoch = comm->epoch + 1};
    struct tutti_next next = {.quorum = config->number[TUTTI_OPT_quorum] && !comm->was_let};
    bool was_asked = false;
    if (next.quorum && config->number[TUTTI_OPT_arbiter]) next.arbiter = &arbiter, next.was_asked = &was_asked;
    if (next.arbiter && (!config->text[TUTTI_OPT_store] || !config->text[TUTTI_OPT_store][0]))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_shrink: option arbiter needs a store: set TUTTI_STORE");
    const enum tutti_status status = enter_and_shrink(comm, exclude, n_exclude, &next, out);
    comm->was_let = comm->was_let || was_asked;
    tutti_door_close(&door);
    return status;
}

enum tutti_status tutti_comm_shrink(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                    struct tutti_comm **out)
{
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_shrink: out is NULL");
    TUTTI_TRY(tutti_call_alone("comm_shrink"));
    if (comm) TUTTI_TRY(tutti_survive_refuse(comm, "comm_shrink"));
    if (!comm) return enter_and_shrink(comm, exclude, n_exclude, &(struct tutti_next){.larger = NULL}, out);
    return shrink_one_side(comm, exclude, n_exclude, out);
}
