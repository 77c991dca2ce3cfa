/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_SERVE_STORE_H
#define TUTTI_FT_SERVE_STORE_H

/* What a lighthouse keeps in a folder, so that it is there when the power comes back: one small file for the ballot,
 * one for each job's record. A file is written beside the old one and takes its place when it is on the disk. A thread
 * waits for the disk, so the loop does not. One process at a time may have the folder. Private to this folder. */

#include "base/loop.h"
#include "ft/rules/council.h"

struct serve_store;
struct serve_store_config {
    const char *folder;
    struct tutti_loop *loop;
    /* The first n of the writes that are open are over, as for tutti_council_kept. On the loop's thread. */
    void (*kept)(void *arg, uint64_t n, bool good);
    void *arg;
};
/* Makes the folder, if need be, and gives what is in it to the council. SYSTEM; PROTOCOL: a file is not what was
 * written, with its name; CONFIG: another lighthouse has the folder. */
enum tutti_status serve_store_open(const struct serve_store_config *config, struct tutti_council *council,
                                   struct serve_store **out);
/* Waits for what is being written; `kept` is not called any more. NULL is allowed. Not on the loop's thread. */
void serve_store_close(struct serve_store *store);
/* Begins a write; record NULL: of the ballot. False: out of memory. */
bool serve_store_keep(struct serve_store *store, uint64_t promised, const struct tutti_record *record);

#endif
