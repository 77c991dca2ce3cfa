/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STORE_STORE_TABLE_H
#define TUTTI_STORE_STORE_TABLE_H

/* What a store server remembers: values by key, and who waits for keys that are not there yet. */

#include "store/store_codec.h"

struct tutti_store_waiter {          /* part of whatever waits */
    struct tutti_store_entry *entry; /* NULL: does not wait */
    struct tutti_store_waiter *next, *previous;
};
struct tutti_store_entry {
    struct tutti_store_waiter *waiters;
    uint8_t *value;
    uint32_t value_bytes, key_bytes;
    bool present;    /* else only waited for */
    const char *key; /* key_room */
    char key_room[];
};
struct tutti_store_table { /* zeroed: empty */
    void *tree;
    size_t bytes;
};
void tutti_store_table_fini(struct tutti_store_table *table); /* nobody waits any more */
/* NULL when there is none. */
struct tutti_store_entry *tutti_store_table_find(struct tutti_store_table *table, const uint8_t *key, size_t bytes);
/* Finds or makes. MEMORY, also when the table is full. */
enum tutti_status tutti_store_table_get(struct tutti_store_table *table, const uint8_t *key, size_t bytes,
                                        struct tutti_store_entry **out);
enum tutti_status tutti_store_table_set(struct tutti_store_table *table, struct tutti_store_entry *entry,
                                        const void *value, size_t bytes);
void tutti_store_table_remove(struct tutti_store_table *table, struct tutti_store_entry *entry);
void tutti_store_waiter_add(struct tutti_store_entry *entry, struct tutti_store_waiter *waiter);
/* Frees an entry that was only waited for. */
void tutti_store_waiter_remove(struct tutti_store_table *table, struct tutti_store_waiter *waiter);

/* ---- refusals (refusals.c): an operator's log, whose disk no flood fills ---- */
#define TUTTI_REFUSALS_HOSTS 16 /* addresses that are counted apart */
#define TUTTI_REFUSALS_FIRST 3  /* lines of each; then one a minute counts the others */
struct tutti_refusals {
    struct tutti_refusals_row {
        char host[64], last[256];
        uint32_t n_told, n_more;      /* n_told 0: free */
    } rows[TUTTI_REFUSALS_HOSTS + 1]; /* the last: all other addresses */
};
/* Logs a refusal, or counts it. */
void tutti_refusals_note(struct tutti_refusals *refusals, const char *host, const char *port, const char *why);
/* Once a minute, and at the end: logs what was counted, forgets addresses that were quiet. False: none is left. */
bool tutti_refusals_tell(struct tutti_refusals *refusals);

#endif
