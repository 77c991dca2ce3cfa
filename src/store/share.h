/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STORE_SHARE_H
#define TUTTI_STORE_SHARE_H

/* One text from rank 0 to all ranks, by what their launcher brings: PMIx (Open MPI, Slurm), opened at run time, or
 * PMI-1 by its wire (MPICH, Slurm's pmi2). These can not count, and a key is seen only after a fence of all ranks, so
 * they are no store; but one text is enough to find one. The store that torchrun serves could be one; what is asked of
 * it is kept as small. */

#include "base/base.h"

#define TUTTI_SHARE_MAX 900 /* bytes of the text, without blanks; PMI-1 takes 1,024 */

/* Collective over all ranks of the job. text: rank 0's on input, everybody's on output. UNSUPPORTED: the launcher
 * brings none of these; TIMEOUT, PROTOCOL, SYSTEM. */
enum tutti_status tutti_share_text(int32_t rank, uint64_t deadline_ns, char text[TUTTI_SHARE_MAX + 1]);

bool tutti_share_present(void); /* the launcher brings one of them */

/* ---- the two of them: UNSUPPORTED when they are not there ---- */
enum tutti_status tutti_share_pmi(int32_t rank, uint64_t deadline_ns, char text[TUTTI_SHARE_MAX + 1]);
enum tutti_status tutti_share_pmix(int32_t rank, uint64_t deadline_ns, char text[TUTTI_SHARE_MAX + 1]);
#define TUTTI_SHARE_KEY "tutti-place"

/* The same through the TCPStore that torchrun serves at host:port; not collective: what rank 0 said last is what the
 * others get, under a key of this job. TIMEOUT, PROTOCOL, SYSTEM. */
enum tutti_status tutti_share_torch(const char *host, const char *port, const char *key, int32_t rank,
                                    uint64_t deadline_ns, char text[TUTTI_SHARE_MAX + 1]);

#endif
