/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_LIFE_AGREEMENT_H
#define TUTTI_COMM_LIFE_AGREEMENT_H

/* Agreement on the survivors of a communicator, through boards that stay readable after their writers died. Each member
 * publishes the hash of the set that it proposes, and takes members out of its set as they die. The lowest rank of its
 * own set decides once all in the set propose the same. Its decision stands on its board even if it dies then. So
 * whoever comes after it either finds the decision or knows that there is none. This is so short because control makes
 * no mistakes about who lives: a dead process writes no more. */

#include "comm/life/life.h"

struct tutti_survivors {
    struct tutti_comm *comm;
    struct tutti_comm *larger; /* tutti_comm_next; the last slot of a set, behind the ranks: all go on in it */
    uint64_t id;               /* this agreement's */
    uint32_t board;            /* where this rank speaks of it: one of TUTTI_BOARD_AGREE */
    uint64_t deadline_ns, look_ns;
    uint32_t n_versions;  /* a rank only takes members out of its proposal; version v is the proposal after v losses */
    uint32_t *removed_at; /* slot -> first version without it, UINT32_MAX: still in */
    uint64_t *hashes;     /* each version's */
    /* tutti_comm_next alone: who says nothing is taken out, too, and a majority must be left. */
    uint64_t patience_ns, late_ns;   /* 0: there is no end of patience; when it is */
    uint64_t stopped_ns, settled_ns; /* a stopped process is late then, too; the set is not new */
    const bool *elders;              /* by slot; NULL: all are */
    uint32_t *accused, n_accused; /* slots that were taken out for their silence; all are told of them, one at a look */
    uint32_t n_looks;
    bool *ended;     /* by slot: it says that it has no memory to go on */
    int32_t accuser; /* the rank that took this one out, -1 */
    const struct tutti_comm *handle;
    bool quorum; /* one side of a cut alone goes on */
    const struct tutti_arbiter *arbiter;
    bool was_asked; /* it lets this side go on */
};

enum tutti_status tutti_survivors_init(struct tutti_survivors *survivors, struct tutti_comm *comm,
                                       const int32_t *exclude, size_t n_exclude, const struct tutti_next *next);
void tutti_survivors_fini(struct tutti_survivors *survivors);
/* The version of the set on which all agree. */
enum tutti_status tutti_survivors_agree(struct tutti_survivors *survivors, uint32_t *version);
/* Tells what became of this rank's part of the new communicator, and waits for what became of the others'. */
enum tutti_status tutti_survivors_confirm(struct tutti_survivors *survivors, uint32_t version, enum tutti_status made);

static inline bool tutti_survivors_has(const struct tutti_survivors *survivors, uint32_t version, uint32_t slot)
{
    return survivors->removed_at[slot] > version;
}

static inline bool tutti_survivors_is_larger(const struct tutti_survivors *survivors, uint32_t version)
{
    return tutti_survivors_has(survivors, version, (uint32_t)survivors->comm->size);
}

#endif
