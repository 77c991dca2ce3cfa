/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_HOST_SEGMENT_H
#define TUTTI_TRANSPORT_HOST_SEGMENT_H

/* The transports of one host: self (threads of a process) and shm (processes). Begin here: a segment is the memory that
 * the members of one host share, made by one of them and handed to the others. What is in it is in layout.h; the
 * packets go through rings (ring.h), one for each pair; host.c makes a transport of that, heap.c the memory of peers.
 * This room may use src/base and the contracts of src/transport. */

#include "base/base.h"

struct tutti_segment; /* this member's handle on it */
struct tutti_segment_config {
    uint32_t n;             /* members */
    size_t staging_bytes;   /* one member's: rings are staging / n, within 16 KiB .. 1 MiB */
    uint64_t heap_bytes;    /* address space of one member's heap */
    uint64_t control_bytes; /* room for what control/host keeps there, zero at first; 0: none */
};
/* By the leader. shared: a sealed memfd for other processes (shm); else plain memory for threads (self). */
enum tutti_status tutti_segment_create(const struct tutti_segment_config *config, bool shared,
                                       struct tutti_segment **out);
/* Bytes of one ring of such a segment. */
uint32_t tutti_segment_ring_bytes(uint32_t n, size_t staging_bytes);
/* The two file descriptors to pass on (shm): control and heap. Owned by the segment. */
void tutti_segment_fds(const struct tutti_segment *segment, int *control_fd, int *heap_fd);
/* From passed descriptors (owned by the segment on success): magic, version, layout and size are checked. PROTOCOL. */
enum tutti_status tutti_segment_attach(int control_fd, int heap_fd, struct tutti_segment **out);
/* By who is no member: without the heap, and rings that nobody touches. Owns control_fd on success. PROTOCOL. */
enum tutti_status tutti_segment_look(int control_fd, struct tutti_segment **out);
/* Locks the member's byte of the segment's file. The kernel lets go when the process ends or executes another program,
 * so peers see both, from other namespaces of processes, too. (A child that was forked off and lives on keeps the
 * lock.) False: not here. */
bool tutti_segment_hold(struct tutti_segment *segment, uint32_t member);
/* Whether the lock of a member that has it (of another handle) is still there. */
bool tutti_segment_held(const struct tutti_segment *segment, uint32_t member);
/* Another handle on it in this process (self, and tests with shm inside one process). */
enum tutti_status tutti_segment_share(struct tutti_segment *segment, struct tutti_segment **out);
void tutti_segment_release(struct tutti_segment *segment); /* last handle unmaps */

/* The room for control/host, on a page of its own. */
void *tutti_segment_control(struct tutti_segment *segment, uint64_t *bytes);

/* The table of fixed bytes a rank (bootstrap): each member writes its card once, then reads any. */
#define TUTTI_CARD_BYTES 640
void *tutti_segment_card(struct tutti_segment *segment, uint32_t member);
/* Counts this member as arrived; wait returns OK when all n are, TIMEOUT at the deadline (arrived[member] tells who).
 */
void tutti_segment_arrive(struct tutti_segment *segment, uint32_t member);
enum tutti_status tutti_segment_wait_all(struct tutti_segment *segment, uint64_t deadline_ns);
bool tutti_segment_arrived(struct tutti_segment *segment, uint32_t member);

#endif
