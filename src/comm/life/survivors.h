/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_LIFE_SURVIVORS_H
#define TUTTI_COMM_LIFE_SURVIVORS_H

/* Agreement on who survived, through boards that stay readable after their writers died. */

#include "comm/object/comm.h"

struct tutti_survivors {
    struct tutti_comm *comm;
    uint64_t id;    /* of this agreement */
    uint32_t board; /* where this rank speaks of it: one of TUTTI_BOARD_AGREE */
    uint64_t deadline_ns, look_ns;
    uint32_t n_versions;  /* a rank only takes members out of its proposal; version v is the proposal after v losses */
    uint32_t *removed_at; /* slot -> first version without it, UINT32_MAX: still in */
    uint64_t *hashes;     /* of each version */
};
enum tutti_status tutti_survivors_init(struct tutti_survivors *survivors, struct tutti_comm *comm,
                                       const int32_t *exclude, size_t n_exclude, uint64_t attempt);
void tutti_survivors_fini(struct tutti_survivors *survivors);
/* Blocks until all survivors hold the same set; its version here. TIMEOUT names who is missing. */
enum tutti_status tutti_survivors_agree(struct tutti_survivors *survivors, uint32_t *version);
bool tutti_survivors_has(const struct tutti_survivors *survivors, uint32_t version, uint32_t slot);
/* Tells that this rank's part is made (or is not), and waits for the others' word. */
enum tutti_status tutti_survivors_confirm(struct tutti_survivors *survivors, uint32_t version, enum tutti_status made);

#endif
