/* SPDX-License-Identifier: BSD-3-Clause */
/* Members: logs that are opened and mapped, and what stays when an instance is closed. Peers' kernels may still write
 * to this rank's device memory after its own calls are over, and peers look at its log. So both are kept until all
 * peers have closed their side, which they say in the log, or are gone. */
#include "backend/shared.h"
#include "backend/watch.h"

#include <string.h>

#define SWEEP_NS TUTTI_NS_PER_S /* that peers may take, when the world closes */
#define NAP_NS (UINT64_C(100) * 1000)

struct watch_kept {
    struct watch_kept *next;
    struct watch_remains remains;
    struct watch_log *log;
    size_t log_bytes;
    bool addresses;
    struct tutti_transport *transport;
    struct tutti_control *control;
    uint32_t members[WATCH_MAX_RANKS];
    uint32_t n, me;
};

/* ---- what is kept; under its lock ---- */

static void release(const struct watch_kept *kept)
{
    if (kept->remains.release) kept->remains.release(kept->remains.gpu, kept->remains.memory);
    tutti_shared_free(kept->transport, kept->addresses, kept->log, kept->log_bytes);
}

static bool is_over(const struct watch_kept *kept)
{
    for (uint32_t q = 0; q < kept->n; q++) {
        if (q == kept->me || atomic_load_explicit(&kept->log->dropped[q], memory_order_acquire)) continue;
        if (!tutti_life_gone(kept->control->ops->life(kept->control, kept->members[q]))) return false;
    }
    return true;
}

static bool sweep(struct watch *watch)
{
    pthread_mutex_lock(&watch->keeping);
    for (struct watch_kept **at = &watch->kept; *at;) {
        struct watch_kept *kept = *at;
        if (!is_over(kept)) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        release(kept);
        tutti_free(kept);
    }
    const bool left = watch->kept != NULL;
    pthread_mutex_unlock(&watch->keeping);
    return left;
}

/* Without memory for the note, all of it stays taken. */
static void keep(const struct watched *w, struct watch_remains remains)
{
    struct watch_kept *kept = tutti_alloc(sizeof *kept);
    if (!kept) return;
    kept->remains = remains;
    kept->log = watch_own_log(w), kept->log_bytes = w->log_bytes;
    kept->addresses = w->addresses;
    kept->transport = w->transport, kept->control = w->control;
    memcpy(kept->members, w->members, sizeof kept->members);
    kept->n = w->n, kept->me = w->me;
    pthread_mutex_lock(&w->watch->keeping);
    kept->next = w->watch->kept;
    w->watch->kept = kept;
    pthread_mutex_unlock(&w->watch->keeping);
}

/* ---- the world's watch ---- */

static enum tutti_status watch_of(struct tutti_backend_host *host, struct watch **out)
{
    pthread_mutex_lock(&host->lock);
    struct watch *watch = host->watch ? host->watch : tutti_alloc(sizeof *watch);
    if (watch && !host->watch) {
        pthread_mutex_init(&watch->life, NULL);
        pthread_mutex_init(&watch->asking, NULL);
        pthread_mutex_init(&watch->lock, NULL);
        pthread_mutex_init(&watch->keeping, NULL);
        host->watch = watch;
    }
    pthread_mutex_unlock(&host->lock);
    *out = watch;
    return watch ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for the watch of devices");
}

/* What lies in the transport's memory goes with it. Device memory that peers still map stays taken, with the context.
 */
void tutti_device_sweep(struct tutti_backend_host *host)
{
    struct watch *watch = host->watch;
    if (!watch) return;
    const uint64_t until = tutti_deadline_ns(SWEEP_NS);
    while (sweep(watch) && tutti_now_ns() < until) tutti_sleep_ns(NAP_NS);
    while (watch->kept) {
        struct watch_kept *kept = watch->kept;
        watch->kept = kept->next;
        if (kept->remains.release)
            tutti_log(TUTTI_LOG_INFO, "device memory of a closed communicator stays taken: peers have not closed it");
        tutti_free(kept);
    }
    pthread_mutex_destroy(&watch->life);
    pthread_mutex_destroy(&watch->asking);
    pthread_mutex_destroy(&watch->lock);
    pthread_mutex_destroy(&watch->keeping);
    tutti_free(watch);
    host->watch = NULL;
}

/* ---- members ---- */

enum tutti_status watch_member_open(struct watched *w, const struct tutti_backend_config *config, const char *name,
                                    size_t log_bytes, uint64_t *where)
{
    void *log;
    if (config->n > WATCH_MAX_RANKS)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s serves up to %d ranks, not %u", name, WATCH_MAX_RANKS, config->n);
    if (config->n > 1 && !tutti_memory_reaches_all(config->transport->memory, config->members, config->n))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s needs memory of the host that all ranks map, which %s has not",
                          name, config->transport->name);
    TUTTI_TRY(watch_of(config->host, &w->watch));
    (void)sweep(w->watch);
    w->transport = config->transport, w->control = config->control;
    w->team = config->team;
    w->n = config->n, w->me = config->me;
    memcpy(w->members, config->members, w->n * sizeof *w->members);
    w->addresses = w->n == 1 || tutti_memory_is_one(w->transport->memory);
    w->log_bytes = log_bytes;
    TUTTI_TRY(tutti_shared_open(w->transport, w->addresses, log_bytes, "log", &log, where));
    w->logs[w->me] = log;
    return TUTTI_OK;
}

enum tutti_status watch_member_map(struct watched *w, uint32_t r, uint64_t where)
{
    if (r == w->me) return TUTTI_OK;
    w->logs[r] = tutti_shared_map(w->transport, w->addresses, w->members[r], where, w->log_bytes);
    return w->logs[r] ? TUTTI_OK : tutti_fail(TUTTI_ERR_SYSTEM, "the log of rank %u can not be mapped", r);
}

void watch_member_close(struct watched *w, struct watch_remains remains)
{
    struct watch_log *log = watch_own_log(w);
    for (uint32_t q = 0; q < w->n; q++)
        if (q != w->me && w->logs[q]) atomic_store_explicit(&w->logs[q]->dropped[w->me], 1, memory_order_release);
    if (w->agreed && !w->seen) { /* as all members know, nobody connects */
        if (remains.release) remains.release(remains.gpu, remains.memory);
        if (log) tutti_shared_free(w->transport, w->addresses, log, w->log_bytes);
        return;
    }
    keep(w, remains);
    (void)sweep(w->watch);
}
