/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MACHINE_TABLE_H
#define TUTTI_CONTROL_MACHINE_TABLE_H

/* What the leader of a meeting tells all members when they are on several hosts: the facts, the hosts and who is where,
 * as bytes. Integers are little-endian.
 *
 *   version u8, flags u8 (crowded, decorated, devices), zero u16
 *   hosts u32, members u32, min_cpus u32, n_cpus u32, n_host u32, the machine's constants (f32 each)
 *   for each host: id u64, name (48 bytes), address (family u8, 16 bytes)
 *   for each member: host u32, port u16
 *
 * Pure, over bytes that nobody vouches for. */

#include "control/hosts.h"
#include "control/machine/facts.h"

/* members[n]: what each of them is and where it listens, addresses[n]: where it was seen. MEMORY. */
enum tutti_status tutti_table_make(uint32_t n, tutti_card_reader *card, const void *arg,
                                   const struct tutti_net_address *addresses, const struct tutti_world_facts *facts,
                                   uint8_t **out, uint32_t *bytes);
/* The table of a world of n members; *hosts is the caller's (tutti_hosts_fini). PROTOCOL, MEMORY. */
enum tutti_status tutti_table_read(const uint8_t *bytes, uint32_t n_bytes, uint32_t n, struct tutti_world_facts *facts,
                                   struct tutti_hosts *hosts);

#endif
