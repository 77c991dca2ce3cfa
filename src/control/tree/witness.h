/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_TREE_WITNESS_H
#define TUTTI_CONTROL_TREE_WITNESS_H

/* Witnesses: one idle connection between each two members on different hosts, whose end proves that a process has
 * ended. The tree alone links few members, and where several die at once, a port that refuses is all that is left of
 * most of them, which may be a firewall. Worlds whose calls survive need to know: who is proved dead counts for no side
 * of a cut.
 *
 * The proof. A member sends one byte, its goodbye, before it closes a witness in order, and nothing else. So an end of
 * file without that byte was made by the kernel of a process that ended. A reset or a timeout says nothing: a network
 * may do that. A witness is never closed because its peer was silent. */

#include "control/tree/tree.h"

#define TUTTI_WITNESSES_MOST 256 /* larger worlds have none: each member would need so many descriptors */

struct tutti_witnesses;
/* hosts and tree live longer. MEMORY. */
enum tutti_status tutti_witnesses_open(uint32_t me, const struct tutti_hosts *hosts, struct tutti_control *tree,
                                       struct tutti_witnesses **out);
/* The net's callbacks for role WITNESS come here (those that fail do not); dials. Before the net starts. */
void tutti_witnesses_attach(struct tutti_witnesses *w, struct tutti_net *net);
void tutti_witnesses_opened(struct tutti_witnesses *w, uint32_t peer, int fd);
/* Before the net closes: says goodbye on all. */
void tutti_witnesses_detach(struct tutti_witnesses *w);
void tutti_witnesses_close(struct tutti_witnesses *w); /* NULL is ignored */

#endif
