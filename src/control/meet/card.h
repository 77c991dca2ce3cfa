/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEET_CARD_H
#define TUTTI_CONTROL_MEET_CARD_H

/* The card: what a rank tells all others of itself when they have met, as bytes. First the version u8, then the fields
 * in the order of the struct, integers little-endian. Two builds never share a world, so a record is either whole or
 * nonsense. */

#include "base/base.h"
#include "control/hosts.h"
#include "model/machine.h"
#include "topo/topo.h"

#define TUTTI_CARD_RECORD_BYTES 496

struct tutti_card_record {
    int32_t pid;
    uint32_t uid, cpus;
    uint64_t start;                          /* when the process began: tells a reused pid */
    uint64_t build, host, boot, config_hash; /* boot: of the machine, which may be several hosts */
    char version[16];
    char agreed[108];                                /* options that are not default, cut */
    uint8_t crowded, decorated, device;              /* it is in another crowded world, too; its transport is decorated;
                                                      * it has a device */
    int16_t group[TUTTI_TOPO_N_LEVELS];              /* where it is, see topo.h */
    uint64_t payer;                                  /* id of the group whose quota it uses */
    uint32_t quota;                                  /* whole CPUs */
    uint64_t cpu_words[TUTTI_CPU_SET_BITS / 64];     /* where it may run */
    float machine[sizeof(struct tutti_machine) / 4]; /* what it would have all use */
    uint16_t port;                                   /* where it listens; 0: nowhere */
    char host_name[48];                              /* its host's, for sentences */
};

void tutti_card_encode(const struct tutti_card_record *record, uint8_t out[TUTTI_CARD_RECORD_BYTES]);
/* False: another version, or no record. Texts end in any case. */
bool tutti_card_decode(const uint8_t bytes[TUTTI_CARD_RECORD_BYTES], struct tutti_card_record *out);

/* ---- what follows from the cards of all ---- */
/* What follows from the cards of all members: whether they can work together, and what they all go by. Pure. */

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

/* ---- the table of hosts ---- */
/* What the leader of a meeting tells all members when they are on several hosts: the facts, the hosts and who is where,
 * as bytes. Integers are little-endian.
 *
 *   version u8, flags u8 (crowded, decorated, devices), zero u16
 *   hosts u32, members u32, min_cpus u32, n_cpus u32, n_host u32, the machine's constants (f32 each)
 *   for each host: id u64, name (48 bytes), address (family u8, 16 bytes)
 *   for each member: host u32, port u16
 *
 * Pure, over bytes that nobody vouches for. */

/* members[n]: what each of them is and where it listens, addresses[n]: where it was seen. MEMORY. */
enum tutti_status tutti_table_make(uint32_t n, tutti_card_reader *card, const void *arg,
                                   const struct tutti_net_address *addresses, const struct tutti_world_facts *facts,
                                   uint8_t **out, uint32_t *bytes);
/* The table of a world of n members; *hosts is the caller's (tutti_hosts_fini). PROTOCOL, MEMORY. */
enum tutti_status tutti_table_read(const uint8_t *bytes, uint32_t n_bytes, uint32_t n, struct tutti_world_facts *facts,
                                   struct tutti_hosts *hosts);

#endif
