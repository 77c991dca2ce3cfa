/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RULES_LEDGER_H
#define TUTTI_FT_RULES_LEDGER_H

/* What lighthouses agree about of a job: the number of its last quorum and the names of its members. A number is
 * decided by the council before any group hears of it, with just these members; so no other lighthouse publishes it
 * with other members, and the next leader goes on above it.
 *
 * Thread: one at a time. */

#include "ft/rules/council.h"
#include "ft/rules/lighthouse.h"

struct tutti_ledger {
    const char *job;
    struct tutti_council *council;
    uint8_t *asked; /* the last record that was proposed; NULL: none */
    size_t n_asked;
    bool decided; /* it is */
    bool inside;  /* it is being proposed */
};
/* Job and council are borrowed. The machine that leads goes on from what the council has of the job. */
enum tutti_status tutti_ledger_begin(struct tutti_ledger *ledger, const char *job, struct tutti_council *council,
                                     struct tutti_lighthouse *machine, uint64_t now);
void tutti_ledger_end(struct tutti_ledger *ledger);
/* As tutti_lighthouse_out.commit: false until it is decided; then the machine is to be ticked. */
bool tutti_ledger_commit(struct tutti_ledger *ledger, const struct tutti_quorum *quorum, uint64_t now);
/* The council has decided a record. True: it is what the ledger asked for last, and the machine is to be ticked. */
bool tutti_ledger_decided(struct tutti_ledger *ledger, const struct tutti_record *record);

#endif
