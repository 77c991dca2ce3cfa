/* SPDX-License-Identifier: BSD-3-Clause */
/* Ordinary memory of users that peers map, without a call of theirs. A call that may go straight asks where peers have
 * its buffers: of an allocation that was never seen nobody knows yet, so it becomes the table's, and the call goes by
 * tiles. The asking thread of the watch does the rest beside calls: it offers what is new to the peers, in the log that
 * they map; maps what peers offer, and says where; and when all have said so, calls of this rank may use it. What has
 * been freed, or mapped anew, is withdrawn: peers unmap it, and say so, before its row serves another one.
 *
 * Never is one allocation taken for another. Each call asks whether its buffer is still in what was offered (range_is),
 * and each allocation has a number of its own; what peers do not map any more they do not know by it. Until they have
 * unmapped it, the memory that was offered stays: peers' maps keep it. So where a device has little left its owner may
 * free memory and not get it back in time: then all is withdrawn but what graphs look up, and nothing is offered, until
 * there is enough again. */
#include "backend/gpu/gpu_backend.h"

#include <string.h>

#define SELDOM 16 /* looks of the asking thread, one in 5 ms */
/* Memory is scarce when less than this part of the device's is free, until more than the other part is. */
#define SCARCE_PART 16
#define AMPLE_PART 8
#define IMPORT_NS (5 * TUTTI_NS_PER_S) /* until what lay at an address before is unmapped, at most */
#define ASK_NS (100 * TUTTI_NS_PER_MS) /* between two questions for it */

/* ---- rows of this rank ---- */

static struct gpu_log *log_of(const struct gpu_backend *b, uint32_t rank)
{
    return (struct gpu_log *)(void *)b->watched.logs[rank];
}

static uint32_t rows_of(const struct gpu_backend *b, uint32_t rank)
{
    const uint32_t n = atomic_load_explicit(&log_of(b, rank)->n_rows, memory_order_acquire);
    return n < GPU_MAPS ? n : GPU_MAPS;
}

static bool is_over(const struct gpu_backend *b, uint32_t q)
{
    return atomic_load(&log_of(b, q)->log.closed) != 0;
}

/* What peer q says of this rank's row. */
static uint64_t taken_by(const struct gpu_backend *b, uint32_t q, uint32_t row, uint64_t *there)
{
    struct gpu_taken *taken = &log_of(b, q)->taken[b->site.me][row];
    const uint64_t number = atomic_load_explicit(&taken->number, memory_order_acquire);
    *there = atomic_load_explicit(&taken->there, memory_order_relaxed);
    return number;
}

static void go_to(struct gpu_backend *b, uint32_t row, enum gpu_map state)
{
    pthread_mutex_lock(&b->maps.lock);
    b->maps.own[row].state = state;
    pthread_mutex_unlock(&b->maps.lock);
}

/* Once a look. A driver that does not answer changes nothing. */
static void ask_memory(struct gpu_backend *b)
{
    size_t left, bytes;
    if (b->maps.asked == b->maps.n_looks) return;
    b->maps.asked = b->maps.n_looks;
    b->maps.ask_ns = tutti_now_ns() + ASK_NS;
    if (b->gpu->ops->gpu->memory_left(b->gpu, &left, &bytes) < 0) return;
    const bool before = atomic_load(&b->maps.scarce),
               now = before ? left <= bytes / AMPLE_PART : left < bytes / SCARCE_PART;
    if (now == before) return;
    atomic_store(&b->maps.scarce, now);
    tutti_log(TUTTI_LOG_INFO, "rank %u: %zu of %zu MiB of the device are free: peers %s", b->site.me, left >> 20,
              bytes >> 20,
              now ? "unmap ordinary memory, and large calls go by tiles" : "may map ordinary memory again");
}

static void offer(struct gpu_backend *b, uint32_t row)
{
    struct gpu_own *own = &b->maps.own[row];
    struct gpu_offer *out = &log_of(b, b->site.me)->offers[row];
    enum tutti_status status = TUTTI_OK;
    out->offset = 0;
    out->address = (uint64_t)(uintptr_t)own->range.base;
    out->bytes = own->range.bytes;
    memset(out->handle, 0, sizeof out->handle);
    if (!tutti_memory_is_one(b->watched.transport->memory))
        status = b->gpu->ops->export_memory(b->gpu, own->range.base, own->range.bytes, out->handle, &out->offset);
    if (status < 0) {
        tutti_log(TUTTI_LOG_INFO, "rank %u: peers can not map memory at %p: %s", b->site.me, (void *)own->range.base,
                  tutti_last_error()->text);
        go_to(b, row, GPU_MAP_REFUSED);
        return;
    }
    go_to(b, row, GPU_MAP_OFFERED); /* what was exported is what was found, if that is still there: see `tend_own` */
    if (b->gpu->ops->gpu->range_is(b->gpu, &own->range))
        atomic_store_explicit(&out->number, own->number, memory_order_release);
}

static void withdraw(struct gpu_backend *b, uint32_t row)
{
    struct gpu_own *own = &b->maps.own[row];
    struct gpu_offer *out = &log_of(b, b->site.me)->offers[row];
    __atomic_store_n(&b->maps.known[row].number, 0, __ATOMIC_SEQ_CST);
    atomic_store(&out->number, 0);
    go_to(b, row, GPU_MAP_LEAVING); /* no call asks about the range any more */
    b->gpu->ops->unexport_memory(out->handle);
    b->gpu->ops->gpu->range_close(b->gpu, &own->range);
}

/* All peers have mapped it, or one could not. */
static void confirm(struct gpu_backend *b, uint32_t row)
{
    struct gpu_own *own = &b->maps.own[row];
    uint64_t there[GPU_MAX_RANKS] = {0};
    bool all = true;
    there[b->site.me] = (uint64_t)(uintptr_t)own->range.base;
    for (uint32_t q = 0; q < b->site.n; q++) {
        if (q == b->site.me) continue;
        if (taken_by(b, q, row, &there[q]) != own->number) return;
        all = all && there[q] != 0;
    }
    b->gpu->ops->unexport_memory(log_of(b, b->site.me)->offers[row].handle); /* all have taken it */
    pthread_mutex_lock(&b->maps.lock);
    own->state = all ? GPU_MAP_KNOWN : GPU_MAP_REFUSED;
    memcpy(b->maps.known[row].there, there, sizeof there);
    if (all) __atomic_store_n(&b->maps.known[row].number, own->number, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&b->maps.lock);
}

static void leave(struct gpu_backend *b, uint32_t row)
{
    uint64_t there;
    for (uint32_t q = 0; q < b->site.n; q++)
        if (q != b->site.me && !is_over(b, q) && taken_by(b, q, row, &there) != 0) return;
    pthread_mutex_lock(&b->maps.lock);
    b->maps.own[row] = (struct gpu_own){.state = GPU_MAP_NONE};
    pthread_mutex_unlock(&b->maps.lock);
}

/* Whether the row's memory is still there; of many mappings that takes long, so they are asked about seldom. */
static bool is_gone(const struct gpu_backend *b, uint32_t row)
{
    const struct tutti_gpu_range *range = &b->maps.own[row].range;
    if (range->kept && (b->maps.n_looks + row) % SELDOM != 0) return false;
    return !b->gpu->ops->gpu->range_is(b->gpu, range);
}

/* Takes the row from calls if it has to go. No call under way may post where it is, since peers unmap it whatever this
 * rank's calls do: so none is that found it before, and none finds it from now on. Calls of graphs may be under way at
 * any time. */
static bool retire(struct gpu_backend *b, uint32_t row)
{
    struct gpu_own *own = &b->maps.own[row];
    if (watch_is_in_flight(&b->watched)) return false;
    const bool gone = is_gone(b, row);
    pthread_mutex_lock(&b->maps.lock);
    const bool has_to = gone || (atomic_load(&b->maps.scarce) && !own->replayed),
               under_way = atomic_load(&b->maps.placing) || watch_is_in_flight(&b->watched);
    if (has_to && !under_way) own->state = GPU_MAP_LEAVING;
    pthread_mutex_unlock(&b->maps.lock);
    return has_to && !under_way;
}

static void offer_if_ample(struct gpu_backend *b, uint32_t row)
{
    if (!atomic_load(&b->maps.scarce)) ask_memory(b);
    if (!atomic_load(&b->maps.scarce)) offer(b, row);
}

/* Whether the row is in use. */
static bool tend_own(struct gpu_backend *b, uint32_t row)
{
    struct gpu_own *own = &b->maps.own[row];
    pthread_mutex_lock(&b->maps.lock);
    const enum gpu_map state = own->state;
    pthread_mutex_unlock(&b->maps.lock);
    if (state == GPU_MAP_NONE) return false;
    if (state == GPU_MAP_NEW) offer_if_ample(b, row);
    if (state == GPU_MAP_OFFERED) confirm(b, row);
    if (state == GPU_MAP_LEAVING)
        leave(b, row);
    else if (retire(b, row))
        withdraw(b, row);
    return true;
}

/* ---- rows of peers ---- */

static void take(struct gpu_backend *b, uint32_t q, uint32_t row, uint64_t number)
{
    const struct gpu_offer *now = &log_of(b, q)->offers[row];
    struct gpu_taken *taken = &log_of(b, b->site.me)->taken[q][row];
    const struct gpu_offer offer = *now;
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load(&now->number) != number) return; /* it was withdrawn meanwhile, and may be another one */
    void *memory = (void *)(uintptr_t)offer.address, **import = &b->maps.imports[q][row];
    enum tutti_status status;
    if (!b->imports[q]) { /* this process's */
        status = b->gpu->ops->gpu->reach_memory(b->gpu, memory, offer.bytes);
    } else {
        status = b->gpu->ops->import_memory(b->gpu, offer.handle, &memory);
        if (status == TUTTI_ERR_TIMEOUT) return; /* later: what lay there before has to go first */
        if (status >= 0) *import = memory, memory = (char *)memory + offer.offset;
    }
    atomic_store_explicit(&taken->there, status < 0 ? 0 : (uint64_t)(uintptr_t)memory, memory_order_relaxed);
    if (status < 0)
        tutti_log(TUTTI_LOG_INFO, "rank %u can not map memory of rank %u: %s", b->site.me, q, tutti_last_error()->text);
    atomic_store_explicit(&taken->number, number, memory_order_release);
}

static void drop(struct gpu_backend *b, uint32_t q, uint32_t row)
{
    struct gpu_taken *taken = &log_of(b, b->site.me)->taken[q][row];
    if (b->maps.imports[q][row]) b->gpu->ops->unimport_memory(b->gpu, b->maps.imports[q][row]);
    b->maps.imports[q][row] = NULL;
    atomic_store_explicit(&taken->number, 0, memory_order_release);
}

/* Whether the row is in use. Unmapping an allocation waits until the device is idle, and who launches meanwhile waits,
 * too (driver 580; not so mappings of the virtual memory API): a peer's call that this rank has yet to launch on
 * another stream would keep it waiting. So it is left for a time at which none of this rank's calls is under way. */
static bool tend_peers(struct gpu_backend *b, uint32_t q, uint32_t row)
{
    const struct gpu_log *theirs = log_of(b, q);
    const uint64_t offered =
        is_over(b, q) ? 0 : atomic_load_explicit(&theirs->offers[row].number, memory_order_acquire);
    const uint64_t mine = atomic_load(&log_of(b, b->site.me)->taken[q][row].number);
    if (offered == mine) return mine != 0;
    if (mine == 0)
        take(b, q, row, offered);
    else if (watch_is_quiet(b->watched.watch))
        drop(b, q, row);
    return true;
}

void gpu_maps_tend(struct gpu_backend *b)
{
    bool busy = false;
    if (!b->site.maps) return;
    b->maps.n_looks++;
    atomic_store(&b->watched.tends, false);
    if (rows_of(b, b->site.me) > 0 && tutti_now_ns() >= b->maps.ask_ns) ask_memory(b);
    for (uint32_t q = 0; q < b->site.n; q++)
        for (uint32_t row = 0; row < rows_of(b, q); row++)
            busy |= q == b->site.me ? tend_own(b, row) : tend_peers(b, q, row);
    if (busy || atomic_load(&b->maps.scarce) || atomic_load(&b->watched.captured))
        atomic_store(&b->watched.tends, true);
}

enum tutti_status gpu_import(struct gpu_backend *b, const unsigned char *handle, void **out)
{
    const uint64_t until = tutti_deadline_ns(IMPORT_NS);
    enum tutti_status status = b->gpu->ops->import_memory(b->gpu, handle, out);
    while (status == TUTTI_ERR_TIMEOUT && tutti_now_ns() < until) {
        tutti_sleep_ns(TUTTI_NS_PER_MS); /* the owner and this process hear of it beside calls */
        status = b->gpu->ops->import_memory(b->gpu, handle, out);
    }
    return status;
}

/* ---- calls ---- */

/* The row that has the buffer; GPU_MAPS: none. Under the lock. */
static uint32_t find(struct gpu_backend *b, const char *pointer, size_t bytes)
{
    for (uint32_t row = 0; row < rows_of(b, b->site.me); row++) {
        const struct gpu_own *own = &b->maps.own[row];
        if (own->state == GPU_MAP_NONE || own->state == GPU_MAP_LEAVING || pointer < own->range.base) continue;
        const size_t at = (size_t)(pointer - own->range.base);
        if (at >= own->range.bytes || bytes > own->range.bytes - at) continue;
        if (b->gpu->ops->gpu->range_is(b->gpu, &own->range)) return row;
    }
    return GPU_MAPS;
}

/* What the driver does not know, or others can not map, is asked about once more by each call. */
static uint32_t add(struct gpu_backend *b, const char *pointer, size_t bytes)
{
    uint32_t row = 0;
    struct gpu_own own = {.state = GPU_MAP_NEW};
    while (row < GPU_MAPS && b->maps.own[row].state != GPU_MAP_NONE) row++;
    if (row == GPU_MAPS || b->gpu->ops->gpu->range_open(b->gpu, pointer, bytes, &own.range) < 0) return GPU_MAPS;
    own.number = ++b->maps.n_seen;
    b->maps.own[row] = own;
    if (row >= rows_of(b, b->site.me)) atomic_store(&log_of(b, b->site.me)->n_rows, row + 1);
    atomic_store(&b->watched.tends, true);
    return row;
}

void gpu_maps_place(struct gpu_backend *b, const void *pointer, size_t bytes, bool captured, struct gpu_place *out)
{
    *out = (struct gpu_place){0};
    if (!pointer || (uintptr_t)pointer % 16 || bytes == 0) return;
    if (!captured && atomic_load(&b->maps.scarce)) return;
    pthread_mutex_lock(&b->maps.lock);
    uint32_t row = find(b, pointer, bytes);
    if (row == GPU_MAPS) row = add(b, pointer, bytes);
    if (row < GPU_MAPS) {
        struct gpu_own *own = &b->maps.own[row];
        own->replayed |= captured;
        atomic_store(&b->maps.placing, !captured);
        out->at = (uint64_t)((const char *)pointer - own->range.base);
        out->number = own->number;
        if (captured) out->known = &b->maps.known[row];
        for (uint32_t q = 0; q < b->site.n && own->state == GPU_MAP_KNOWN; q++)
            out->there[q] = b->maps.known[row].there[q] + out->at;
    }
    pthread_mutex_unlock(&b->maps.lock);
}

/* ---- the table ---- */

enum tutti_status gpu_maps_open(struct gpu_backend *b)
{
    void *known;
    TUTTI_TRY(b->gpu->ops->alloc_host(b->gpu, GPU_MAPS * sizeof *b->maps.known, &known));
    b->maps.known = known;
    return TUTTI_OK;
}

void gpu_maps_close(struct gpu_backend *b)
{
    if (!b->gpu || !b->maps.known) return;
    for (uint32_t row = 0; row < GPU_MAPS && b->site.maps; row++) {
        const enum gpu_map state = b->maps.own[row].state;
        if (state != GPU_MAP_NONE && state != GPU_MAP_LEAVING) withdraw(b, row);
        for (uint32_t q = 0; q < b->site.n; q++)
            if (q != b->site.me) drop(b, q, row);
    }
    b->gpu->ops->free_host(b->gpu, b->maps.known);
    b->maps.known = NULL;
}
