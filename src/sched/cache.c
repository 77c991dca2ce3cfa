/* SPDX-License-Identifier: BSD-3-Clause */

/* Sealed schedules by (algorithm, kind, shape, lanes), shared by all who ask, so that a collective that is called a
 * thousand times is sealed once. At most `capacity` schedules stay; those in use are never dropped, so there may be
 * more while more are in use. Sealing happens outside of the lock: two threads that miss at once both seal, and one
 * result is kept. Thread: any, all calls. */

#include "sched/sched.h"

#include <pthread.h>
#include <string.h>

struct entry {
    struct tutti_schedule *schedule;
    uint32_t users;
    uint64_t hash;
    struct entry *chain;         /* in its bucket */
    struct entry *newer, *older; /* by last use */
};

struct tutti_cache {
    pthread_mutex_t lock;
    uint32_t capacity, n_entries;
    uint32_t n_buckets; /* a power of two */
    struct entry **buckets;
    struct entry *newest, *oldest;
};

static const struct tutti_lanes no_lanes = {.n = 0};

struct key {
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    const struct tutti_shape *shape;
    const struct tutti_lanes *lanes;
};

static struct key key_of(const struct tutti_schedule *schedule)
{
    return (struct key){schedule->algorithm, schedule->kind, &schedule->shape, &schedule->lanes};
}

static uint64_t key_hash(const struct key *key)
{
    const struct tutti_shape *shape = key->shape;
    uint64_t hash = tutti_mix64((uintptr_t)key->algorithm + (uint64_t)key->kind);
    uint32_t facts[] = {shape->slot, shape->size, shape->root, shape->radix, shape->n_levels};

    hash = tutti_hash64(facts, sizeof(facts), hash);
    for (uint32_t l = 0; l < shape->n_levels; l++)
        hash = tutti_hash64(shape->levels[l].runs, shape->levels[l].n_runs * sizeof(struct tutti_run), hash);
    return tutti_hash64(key->lanes->lanes, key->lanes->n * sizeof(struct tutti_lane), hash);
}

static bool key_same(const struct key *a, const struct key *b)
{
    return a->algorithm == b->algorithm && a->kind == b->kind && a->shape->slot == b->shape->slot &&
           tutti_shape_same_world(a->shape, b->shape) && a->lanes->n == b->lanes->n &&
           memcmp(a->lanes->lanes, b->lanes->lanes, a->lanes->n * sizeof(struct tutti_lane)) == 0;
}

static struct entry **find(struct tutti_cache *cache, uint64_t hash, const struct key *key)
{
    struct entry **at = &cache->buckets[hash & (cache->n_buckets - 1)];

    for (; *at; at = &(*at)->chain) {
        const struct key its = key_of((*at)->schedule);
        if ((*at)->hash == hash && key_same(&its, key)) break;
    }
    return at;
}

/* ---- order of use ---- */

static void list_remove(struct tutti_cache *cache, struct entry *entry)
{
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
}

static void list_add(struct tutti_cache *cache, struct entry *entry)
{
    entry->newer = NULL, entry->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

static void drop(struct tutti_cache *cache, struct entry *entry)
{
    const struct key key = key_of(entry->schedule);
    struct entry **at = find(cache, entry->hash, &key);

    *at = entry->chain;
    list_remove(cache, entry);
    cache->n_entries--;
    tutti_schedule_destroy(entry->schedule);
    tutti_free(entry);
}

static void trim(struct tutti_cache *cache)
{
    for (struct entry *entry = cache->oldest; entry && cache->n_entries > cache->capacity;) {
        struct entry *newer = entry->newer;
        if (entry->users == 0) drop(cache, entry);
        entry = newer;
    }
}

/* ---- the calls ---- */

enum tutti_status tutti_cache_create(uint32_t capacity, struct tutti_cache **out)
{
    struct tutti_cache *cache = tutti_alloc(sizeof(*cache));
    if (!cache) goto err_none;
    cache->capacity = capacity > 0 ? capacity : 1;
    for (cache->n_buckets = 16; cache->n_buckets < capacity && cache->n_buckets < 1 << 16;) cache->n_buckets *= 2;
    cache->buckets = tutti_alloc_array(cache->n_buckets, sizeof(struct entry *));
    if (!cache->buckets) goto err_cache;
    if (pthread_mutex_init(&cache->lock, NULL) != 0) goto err_buckets;
    *out = cache;
    return TUTTI_OK;

err_buckets:
    tutti_free(cache->buckets);
err_cache:
    tutti_free(cache);
err_none:
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a cache of %u schedules", capacity);
}

void tutti_cache_destroy(struct tutti_cache *cache)
{
    if (!cache) return;
    while (cache->oldest) drop(cache, cache->oldest);
    pthread_mutex_destroy(&cache->lock);
    tutti_free(cache->buckets);
    tutti_free(cache);
}

/* Borrows what is there; NULL if nothing is. Called with the lock. */
static const struct tutti_schedule *borrow(struct tutti_cache *cache, struct entry *entry)
{
    if (!entry) return NULL;
    entry->users++;
    list_remove(cache, entry);
    list_add(cache, entry);
    return entry->schedule;
}

static enum tutti_status seal_entry(const struct key *key, uint64_t hash, struct entry **out)
{
    struct entry *entry = tutti_alloc(sizeof(*entry));
    enum tutti_status status;

    if (!entry) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a schedule of %s", key->algorithm->name);
    entry->hash = hash;
    TUTTI_TRY_GOTO(status,
                   tutti_schedule_seal_lanes(key->algorithm, key->kind, key->shape, key->lanes, &entry->schedule),
                   err_entry);
    if (entry->schedule->defect) {
        status = tutti_fail(TUTTI_ERR_INTERNAL, "%s", entry->schedule->defect);
        goto err_schedule;
    }
    *out = entry;
    return TUTTI_OK;

err_schedule:
    tutti_schedule_destroy(entry->schedule);
err_entry:
    tutti_free(entry);
    return status;
}

enum tutti_status tutti_cache_get(struct tutti_cache *cache, const struct tutti_algorithm *algorithm,
                                  enum tutti_kind kind, const struct tutti_shape *shape,
                                  const struct tutti_lanes *lanes, const struct tutti_schedule **out)
{
    const struct key key = {algorithm, kind, shape, lanes ? lanes : &no_lanes};
    uint64_t hash = key_hash(&key);
    struct entry *fresh = NULL;

    pthread_mutex_lock(&cache->lock);
    const struct tutti_schedule *schedule = borrow(cache, *find(cache, hash, &key));
    pthread_mutex_unlock(&cache->lock);
    if (schedule) {
        *out = schedule;
        return TUTTI_OK;
    }
    TUTTI_TRY(seal_entry(&key, hash, &fresh));

    pthread_mutex_lock(&cache->lock);
    struct entry **at = find(cache, hash, &key);
    if (*at) { /* another thread was first */
        tutti_schedule_destroy(fresh->schedule);
        tutti_free(fresh);
    } else {
        *at = fresh;
        list_add(cache, fresh);
        cache->n_entries++;
    }
    schedule = borrow(cache, *at);
    trim(cache);
    pthread_mutex_unlock(&cache->lock);
    *out = schedule;
    return TUTTI_OK;
}

void tutti_cache_release(struct tutti_cache *cache, const struct tutti_schedule *schedule)
{
    const struct key key = key_of(schedule);
    uint64_t hash = key_hash(&key);

    pthread_mutex_lock(&cache->lock);
    struct entry *entry = *find(cache, hash, &key);
    if (entry && entry->users > 0) entry->users--;
    trim(cache);
    pthread_mutex_unlock(&cache->lock);
}
