/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MACHINE_FACTS_H
#define TUTTI_CONTROL_MACHINE_FACTS_H

/* What follows from the cards of all members: whether they can work together, and what they all go by. Pure. */

#include "control/machine/card.h"

struct tutti_world_facts {
    uint32_t min_cpus, n_cpus;    /* least CPUs of a member; of all together */
    uint32_t n_host;              /* members of the host that has the most */
    bool crowded;                 /* on some host they outnumber the CPUs that they may use */
    bool decorated;               /* some member's transport is */
    bool devices;                 /* some member has a device */
    struct tutti_machine machine; /* member 0's */
};

/* One member's card; false: it is none. */
typedef bool tutti_card_reader(const void *arg, uint32_t member, struct tutti_card_record *out);

/* Compares each card with `mine` and adds all up. places (may be NULL): where each member is on its host.
 * CONFIG: another build, configuration, or user of the same host; names member and option. PROTOCOL: no card. MEMORY.
 */
enum tutti_status tutti_world_facts_read(const struct tutti_card_record *mine, uint32_t n, tutti_card_reader *card,
                                         const void *arg, struct tutti_cpu_place *places,
                                         struct tutti_world_facts *out);

#endif
