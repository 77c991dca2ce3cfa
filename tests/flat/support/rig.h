/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FLAT_RIG_H
#define TUTTI_TESTS_FLAT_RIG_H

/* A lane of n ranks in one thread: a random scheduler takes their steps, so that every order of them may come up, and
 * the same one again by its seed. Ranks go to sleep where they wait, as the engine has them do, and are not looked at
 * before they are woken; when nobody can go on any more, that is a deadlock or a wake-up that was lost. Between the
 * steps of one rank others may take theirs (steps.h). */

#include "marks.h"

struct rig;
struct rig_config {
    uint32_t n;
    bool
        addresses; /* one address space, as threads; else only memory of the heap can be mapped, as between processes */
    bool crowded, reproducible, survives;
    bool sleepy;        /* those that wait always go to sleep */
    size_t chunk;       /* bytes of a slot of staging */
    const char *method; /* option flat */
    uint64_t seed;
};
struct rig *rig_open(const struct rig_config *config);
void rig_close(struct rig *rig);
size_t rig_chunk(const struct rig *rig);

/* Runs the calls on all ranks, each as far ahead of the others as it can get, some in flight at once. False: something
 * was wrong; rig_why says what. */
bool rig_run(struct rig *rig, const struct mark_plan *plans, size_t n);
const char *rig_why(const struct rig *rig);
/* How many ranks ended the last of the plans by this method; NULL: as a tiny call. */
struct flat_method;
uint32_t rig_ran(const struct rig *rig, const struct flat_method *method);
/* Whether the method can carry out the call here, as far as its arguments tell. */
bool rig_fits(struct rig *rig, const struct flat_method *method, const struct mark_plan *plan);
/* Whether flat carries out calls of the kind here whatever their size, so that they may take the short way. */
bool rig_serves(const struct rig *rig, enum tutti_kind kind);
/* Words of the larger side that a call of this rig may have at most. */
size_t rig_words_most(const struct rig *rig);

#endif
