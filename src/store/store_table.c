/* SPDX-License-Identifier: BSD-3-Clause */

/* A hash table with chains. An entry lives while it has a value or somebody who waits for one; the bytes of all entries
 * together are bounded. */

#include "store/store_table.h"

#include <string.h>

#define BUCKETS_MIN 256
#define TABLE_BYTES_MAX ((size_t)256 << 20)

enum tutti_status tutti_store_table_init(struct tutti_store_table *table)
{
    *table = (struct tutti_store_table){.n_buckets = BUCKETS_MIN};
    table->buckets = tutti_alloc_array(BUCKETS_MIN, sizeof(struct tutti_store_entry *));
    return table->buckets ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a store's table");
}

void tutti_store_table_fini(struct tutti_store_table *table)
{
    for (size_t b = 0; b < table->n_buckets && table->buckets; b++)
        while (table->buckets[b]) {
            struct tutti_store_entry *entry = table->buckets[b];
            table->buckets[b] = entry->next;
            tutti_free(entry->value);
            tutti_free(entry);
        }
    tutti_free((void *)table->buckets);
    memset(table, 0, sizeof *table);
}

static struct tutti_store_entry **bucket_of(const struct tutti_store_table *table, const void *key, size_t bytes)
{
    return &table->buckets[tutti_hash64(key, bytes, 0) % table->n_buckets];
}

struct tutti_store_entry *tutti_store_table_find(struct tutti_store_table *table, const uint8_t *key, size_t bytes)
{
    struct tutti_store_entry *entry = *bucket_of(table, key, bytes);
    while (entry && (entry->key_bytes != bytes || memcmp(entry->key, key, bytes) != 0)) entry = entry->next;
    return entry;
}

/* Without memory the chains just grow longer. */
static void table_grow(struct tutti_store_table *table)
{
    struct tutti_store_table wider = *table;
    wider.n_buckets = table->n_buckets * 4;
    wider.buckets = tutti_alloc_array(wider.n_buckets, sizeof(struct tutti_store_entry *));
    if (!wider.buckets) return;
    for (size_t b = 0; b < table->n_buckets; b++)
        while (table->buckets[b]) {
            struct tutti_store_entry *entry = table->buckets[b];
            struct tutti_store_entry **to = bucket_of(&wider, entry->key, entry->key_bytes);
            table->buckets[b] = entry->next;
            entry->next = *to;
            *to = entry;
        }
    tutti_free((void *)table->buckets);
    *table = wider;
}

enum tutti_status tutti_store_table_get(struct tutti_store_table *table, const uint8_t *key, size_t bytes,
                                        struct tutti_store_entry **out)
{
    struct tutti_store_entry *entry = tutti_store_table_find(table, key, bytes);
    if (!entry) {
        if (table->bytes + sizeof *entry + bytes > TABLE_BYTES_MAX)
            return tutti_fail(TUTTI_ERR_MEMORY, "the store is full: it holds %zu bytes", table->bytes);
        entry = tutti_alloc(sizeof *entry + bytes);
        if (!entry) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a key of the store");
        memcpy(entry->key, key, bytes);
        entry->key_bytes = (uint32_t)bytes;
        if (table->n_entries >= 2 * table->n_buckets) table_grow(table);
        struct tutti_store_entry **bucket = bucket_of(table, key, bytes);
        entry->next = *bucket;
        *bucket = entry;
        table->n_entries++;
        table->bytes += sizeof *entry + bytes;
    }
    *out = entry;
    return TUTTI_OK;
}

/* Frees what has neither value nor waiter. */
static void entry_settle(struct tutti_store_table *table, struct tutti_store_entry *entry)
{
    if (entry->present || entry->waiters) return;
    struct tutti_store_entry **link = bucket_of(table, entry->key, entry->key_bytes);
    while (*link != entry) link = &(*link)->next;
    *link = entry->next;
    table->n_entries--;
    table->bytes -= sizeof *entry + entry->key_bytes;
    tutti_free(entry);
}

enum tutti_status tutti_store_table_set(struct tutti_store_table *table, struct tutti_store_entry *entry,
                                        const void *value, size_t bytes)
{
    uint8_t *copy = NULL;
    if (table->bytes + bytes <= TABLE_BYTES_MAX) copy = tutti_alloc(bytes);
    if (!copy) {
        size_t held = table->bytes;
        entry_settle(table, entry);
        return tutti_fail(TUTTI_ERR_MEMORY, "the store holds %zu bytes and has no room for %zu more", held, bytes);
    }
    if (bytes) memcpy(copy, value, bytes);
    table->bytes += bytes;
    table->bytes -= entry->value_bytes;
    tutti_free(entry->value);
    entry->value = copy;
    entry->value_bytes = (uint32_t)bytes;
    entry->present = true;
    return TUTTI_OK;
}

void tutti_store_table_remove(struct tutti_store_table *table, struct tutti_store_entry *entry)
{
    table->bytes -= entry->value_bytes;
    tutti_free(entry->value);
    entry->value = NULL;
    entry->value_bytes = 0;
    entry->present = false;
    entry_settle(table, entry);
}

void tutti_store_waiter_add(struct tutti_store_entry *entry, struct tutti_store_waiter *waiter)
{
    waiter->entry = entry;
    waiter->previous = NULL;
    waiter->next = entry->waiters;
    if (entry->waiters) entry->waiters->previous = waiter;
    entry->waiters = waiter;
}

void tutti_store_waiter_remove(struct tutti_store_table *table, struct tutti_store_waiter *waiter)
{
    struct tutti_store_entry *entry = waiter->entry;
    if (!entry) return;
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        entry->waiters = waiter->next;
    if (waiter->next) waiter->next->previous = waiter->previous;
    waiter->entry = NULL;
    entry_settle(table, entry);
}
