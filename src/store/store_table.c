/* SPDX-License-Identifier: BSD-3-Clause */

/* Entries by key, in a tree of the C library. An entry lives while it has a value or somebody who waits for one; the
 * bytes of all entries together are bounded. */

#include "store/store_table.h"

#include <search.h>
#include <string.h>

#define TABLE_BYTES_MAX ((size_t)256 << 20)

static int compare(const void *left, const void *right)
{
    const struct tutti_store_entry *a = left, *b = right;
    if (a->key_bytes != b->key_bytes) return a->key_bytes < b->key_bytes ? -1 : 1;
    return memcmp(a->key, b->key, a->key_bytes);
}

static void entry_free(void *freed)
{
    struct tutti_store_entry *entry = freed;
    tutti_free(entry->value);
    tutti_free(entry);
}

void tutti_store_table_fini(struct tutti_store_table *table)
{
    tdestroy(table->tree, entry_free);
    memset(table, 0, sizeof *table);
}

struct tutti_store_entry *tutti_store_table_find(struct tutti_store_table *table, const uint8_t *key, size_t bytes)
{
    const struct tutti_store_entry wanted = {.key = (const char *)key, .key_bytes = (uint32_t)bytes};
    void *const *node = tfind(&wanted, &table->tree, compare);
    return node ? *node : NULL;
}

enum tutti_status tutti_store_table_get(struct tutti_store_table *table, const uint8_t *key, size_t bytes,
                                        struct tutti_store_entry **out)
{
    *out = tutti_store_table_find(table, key, bytes);
    if (*out) return TUTTI_OK;
    if (table->bytes + sizeof **out + bytes > TABLE_BYTES_MAX)
        return tutti_fail(TUTTI_ERR_MEMORY, "the store is full: it holds %zu bytes", table->bytes);
    struct tutti_store_entry *entry = tutti_alloc(sizeof *entry + bytes);
    if (!entry) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a key of the store");
    memcpy(entry->key_room, key, bytes);
    entry->key = entry->key_room;
    entry->key_bytes = (uint32_t)bytes;
    if (!tsearch(entry, &table->tree, compare)) {
        tutti_free(entry);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a key of the store");
    }
    table->bytes += sizeof *entry + bytes;
    *out = entry;
    return TUTTI_OK;
}

/* Frees what has neither value nor waiter. */
static void entry_settle(struct tutti_store_table *table, struct tutti_store_entry *entry)
{
    if (entry->present || entry->waiters) return;
    tdelete(entry, &table->tree, compare);
    table->bytes -= sizeof *entry + entry->key_bytes;
    entry_free(entry);
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
