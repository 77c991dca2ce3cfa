/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_SERVE_STORE_H
#define TUTTI_FT_SERVE_STORE_H

/* What a lighthouse keeps in a folder, so that it is there when the power comes back: one small file for the ballot,
 * one for each job's record. A file is written beside the old one and takes its place when it is on the disk. One
 * process at a time may have the folder. Of this room alone. */

#include "ft/rules/council.h"

struct serve_store;
/* Makes the folder, if need be, and gives what is in it to the council. SYSTEM; PROTOCOL: a file is not what was
 * written, with its name; CONFIG: another lighthouse has the folder. */
enum tutti_status serve_store_open(const char *folder, struct tutti_council *council, struct serve_store **out);
void serve_store_close(struct serve_store *store); /* NULL is allowed */
/* As tutti_council_out.keep. */
bool serve_store_keep(struct serve_store *store, uint64_t promised, const struct tutti_record *record);

#endif
