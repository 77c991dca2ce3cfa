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

#endif
