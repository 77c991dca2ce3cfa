/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MACHINE_CARD_H
#define TUTTI_CONTROL_MACHINE_CARD_H

/* The card: what a rank tells all others of itself when they have met, as bytes. First the version u8, then the fields
 * in the order of the struct, integers little-endian. Two builds never share a world, so a record is either whole or
 * nonsense. */

#include "base/base.h"
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

#endif
