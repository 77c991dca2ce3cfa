/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_TREE_TREE_H
#define TUTTI_CONTROL_TREE_TREE_H

/* The control of a world on several hosts: who lives, boards and failures, by messages. It may use the contract of
 * control, control/host for the members of its own host, and control/net for connections.
 *
 * Members form a tree that each of them computes from the table of hosts and from who is known to be gone: of each host
 * the first living member speaks for it; the other members of the host hang on that one, the host of index i (among
 * those that live) on the host of index (i - 1) / FANOUT. Whoever speaks for the first living host is the root. When
 * somebody goes, those that hung on it find their new parent by the same computation, and dial it.
 *
 * - A death. The kernel of a process that ends closes its connections: an end or a reset without GOODBYE is a death,
 *   told at once (within 0.5 s). A host that vanishes says nothing: who hears nothing from the other end of a link for
 *   `silence_ns` (option host_timeout, 5 s) although it asks every eighth of that, tells all members of that host dead;
 *   but where others of that host answer, those alone that speak for it and do not. After a quarter of the time all who
 *   would have to be asked then are asked, so both sides of a cut know of it at once (machine.h). What the root tells
 * is final: who is told dead and lives hears it when it comes back, and its own communicators end. A host that is only
 * stopped for less than that (SIGSTOP, a slow link, 50 ms delay, 1 % loss) is not told dead.
 * - A failure goes up to the root, which lets the first of a communicator and epoch pass and tells it to all. Who has
 *   raised one that no root has confirmed raises it again at the next root; a new root asks its children for what they
 *   heard of the last one, so that all members get the same failure.
 * - A board is asked for where it is: the question goes through the tree, the answer comes back and is kept.
 *
 * The machine (machine.c) is pure: events and the time in, messages out. The edge (tree.c) is on the thread of
 * control/net. A simulation in the tests drives hundreds of machines through crashes, cuts and delays. */

#include "control/control.h"
#include "control/hosts.h"

struct tutti_net;
struct tutti_stream;
struct tutti_tree_config {
    uint32_t me;
    const struct tutti_hosts *hosts; /* lives longer */
    struct tutti_control *inner;     /* for the members of this host, by their local numbers; owned from then on */
    uint64_t silence_ns;
};
/* No link yet: `attach` begins. MEMORY, SYSTEM. */
enum tutti_status tutti_tree_open(const struct tutti_tree_config *config, struct tutti_control **out);
/* The net's callbacks for role CONTROL come here; begins to dial. Once, before the net starts. */
void tutti_tree_attach(struct tutti_control *tree, struct tutti_net *net);
void tutti_tree_opened(struct tutti_control *tree, uint32_t peer, int fd, struct tutti_stream *stream);
void tutti_tree_failed(struct tutti_control *tree, uint32_t peer, const struct tutti_error *error);
/* The kernel closed a connection of the peer that nobody closes here: its process has ended. */
void tutti_tree_closed(struct tutti_control *tree, uint32_t peer);
/* Before the net closes: says GOODBYE, ends all links; the control stays usable, knows nothing new. */
void tutti_tree_detach(struct tutti_control *tree);

#endif
