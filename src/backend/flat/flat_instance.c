/* SPDX-License-Identifier: BSD-3-Clause */
/* Instances: made by all members together, each giving memory that it alone writes and that the others map. Everything
 * is touched by its owner when it is made, so that no call takes page faults and pages lie near who writes them. */
#include "backend/flat/flat.h"
#include "backend/shared.h"
#include "base/bell.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define CARD_VERSION 3
#define CHUNK_MOST ((size_t)256 << 10)
#define CHUNK_EACH ((size_t)32 << 10) /* of a rank: more gains nothing where ranks are few */
#define PAGE ((size_t)4096)
/* A membarrier interrupts the CPUs of all ranks, one call after another: once many ranks sleep in each call, they keep
 * one another from ever spinning again. 48 and 64 ranks on 64 CPUs took milliseconds a call, mostly in the kernel. */
#define BARRIER_RANKS 16
/* Butterflies: groups of so many are read at once; measured: flat to 16 ranks, then groups of about eight. */
#define GROUP_ALONE 16
#define GROUP_MOST 10

struct flat_card {
    uint32_t version, area_bytes, depth;
    uint64_t where, bytes; /* the memory's offset in the heap, or address */
    uint64_t address;
    uint64_t chunk;
    uint64_t tuned; /* mark of what tutti tune measured */
    int32_t pid;
    uint8_t fences;
};

static size_t staging_at(void)
{
    return (sizeof(struct flat_memory) + PAGE - 1) / PAGE * PAGE;
}

static size_t memory_bytes(size_t chunk)
{
    return staging_at() + 2 * FLAT_SLOTS * chunk + 2 * FLAT_ASK_BYTES;
}

/* ---- factors ---- */

static uint32_t next_factor(uint32_t n)
{
    if (n <= GROUP_ALONE) return n;
    for (uint32_t f = GROUP_MOST; f > 1; f--)
        if (n % f == 0) return f;
    for (uint32_t f = GROUP_MOST + 1; f * f <= n; f++)
        if (n % f == 0) return f;
    return n;
}

/* The factors of butterflies. */
static void factor(uint32_t n, uint32_t *n_factors, uint32_t factors[FLAT_LEVELS])
{
    *n_factors = 0;
    while (n > 1) {
        uint32_t f = *n_factors + 1 == FLAT_LEVELS ? n : next_factor(n);
        factors[(*n_factors)++] = f;
        n /= f;
    }
}

/* ---- memory ---- */

static enum tutti_status memory_open(struct flat_instance *inst, uint64_t *where)
{
    void *memory;
    inst->own_bytes = memory_bytes(inst->chunk);
    TUTTI_TRY(tutti_shared_open(inst->transport, inst->addresses, inst->own_bytes, "staging", &memory, where));
    inst->memories[inst->me] = memory;
    inst->memories[inst->me]->bytes = inst->own_bytes;
    atomic_store(&inst->memories[inst->me]->refs, inst->n);
    flat_attach_open(inst);
    return TUTTI_OK;
}

/* No other rank has mapped it. */
static void memory_discard(struct flat_instance *inst)
{
    struct flat_memory *own = inst->memories ? inst->memories[inst->me] : NULL;
    if (own) tutti_shared_free(inst->transport, inst->addresses, own, inst->own_bytes);
}

static void inst_free(struct flat_instance *inst)
{
    tutti_free(inst->members);
    tutti_free(inst->memories);
    tutti_free(inst->areas);
    tutti_free(inst->staging);
    tutti_free(inst->pids);
    flat_tuned_close(inst);
    tutti_free(inst);
}

/* ---- opening ---- */

static enum tutti_status tables_open(struct flat_instance *inst, const struct tutti_backend_config *config)
{
    uint32_t n = config->n;
    inst->members = tutti_alloc_array(n, sizeof(*inst->members));
    inst->memories = tutti_alloc_array(n, sizeof(*inst->memories));
    inst->areas = tutti_alloc_array(n, sizeof(*inst->areas));
    inst->staging = tutti_alloc_array(n, sizeof(*inst->staging));
    inst->pids = tutti_alloc_array(n, sizeof(*inst->pids));
    if (!inst->members || !inst->memories || !inst->areas || !inst->staging || !inst->pids)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an instance of %u ranks", n);
    memcpy(inst->members, config->members, n * sizeof(*inst->members));
    return TUTTI_OK;
}

/* As long as rounds gain from it, but leaving as much again for other instances. Every instance gets a page: small
 * calls need no more. */
static size_t chunk_within(size_t budget, uint32_t n)
{
    size_t chunk = CHUNK_EACH * n < CHUNK_MOST ? CHUNK_EACH * n : CHUNK_MOST;
    while (chunk > PAGE && memory_bytes(chunk) > budget / 2) chunk -= PAGE;
    return chunk;
}

static enum tutti_status refuse(const struct tutti_backend_config *config)
{
    const struct tutti_transport *t = config->transport;
    if (config->n > FLAT_MAX_RANKS)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "flat serves up to %d ranks, not %u", FLAT_MAX_RANKS, config->n);
    if (!tutti_memory_reaches_all(t->memory, config->members, config->n))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "flat needs memory that all ranks map, which %s has not", t->name);
    return TUTTI_OK;
}

/* Peers are as far away as they are on average. */
static void machine_copy(struct flat_instance *inst, const struct tutti_backend_config *config)
{
    const struct tutti_domains *domains = &config->domains;
    struct tutti_machine *m = &inst->machine;
    *m = *config->machine;
    if (domains->n < 2) return;
    float near = (float)(domains->size - 1), far = (float)(inst->n - domains->size);
    m->pull_gbs = (near + far) / (near / m->pull_gbs + far / m->far_gbs);
}

static enum tutti_status flat_open(const struct tutti_backend_config *config, void *card, struct tutti_backend **out)
{
    tutti_backend_sweep(config->host, false);
    TUTTI_TRY(refuse(config));
    struct flat_instance *inst = tutti_alloc(sizeof(*inst));
    if (!inst) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an instance");
    struct flat_card mine = {.version = CARD_VERSION, .area_bytes = sizeof(struct flat_area), .pid = getpid()};
    enum tutti_status status;
    inst->base.ops = &tutti_backend_flat;
    inst->transport = config->transport;
    inst->control = config->control;
    inst->host = config->host;
    inst->n = config->n, inst->me = config->me;
    inst->addresses = tutti_memory_is_one(config->transport->memory);
    inst->n_cpus = config->n_cpus;
    inst->crowded = config->crowded, inst->reproducible = config->reproducible;
    inst->depth = inst->crowded ? FLAT_DEPTH_CROWDED : FLAT_DEPTH_ALONE;
    inst->slot_bytes = FLAT_LEVEL_BYTES / inst->depth;
    inst->survives = config->options->number[TUTTI_OPT_survives];
    machine_copy(inst, config);
    snprintf(inst->forced, sizeof(inst->forced), "%s", config->options->text[TUTTI_OPT_flat]);
    factor(inst->n, &inst->n_factors, inst->factors);
    TUTTI_TRY_GOTO(status, tables_open(inst, config), err_inst);
    if (inst->n > 1) {
        TUTTI_TRY_GOTO(status, flat_tuned_open(inst, config->options, &mine.tuned), err_inst);
        inst->chunk = chunk_within(config->staging_bytes, config->n);
        TUTTI_TRY_GOTO(status, memory_open(inst, &mine.where), err_inst);
    }
    mine.bytes = inst->own_bytes;
    mine.address = inst->n > 1 ? (uint64_t)(uintptr_t)inst->memories[inst->me] : 0;
    mine.chunk = inst->chunk;
    mine.depth = inst->depth;
    mine.fences = !tutti_fence_all_available();
    memcpy(card, &mine, sizeof(mine));
    *out = &inst->base;
    return TUTTI_OK;
err_inst:
    memory_discard(inst);
    inst_free(inst);
    return status;
}

/* tuned: the first rank's mark, which all must share. */
static enum tutti_status peer_connect(struct flat_instance *inst, uint32_t r, const struct flat_card *card,
                                      uint64_t tuned)
{
    if (card->version != CARD_VERSION || card->area_bytes != sizeof(struct flat_area) || card->depth != inst->depth ||
        card->bytes != memory_bytes(card->chunk))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "rank %u has another layout of flat's memory", r);
    if (r != inst->me)
        inst->memories[r] =
            tutti_shared_map(inst->transport, inst->addresses, inst->members[r], card->where, card->bytes);
    if (!inst->memories[r]) return tutti_fail(TUTTI_ERR_SYSTEM, "memory of rank %u can not be mapped", r);
    inst->areas[r] = &inst->memories[r]->area;
    inst->staging[r] = (unsigned char *)inst->memories[r] + staging_at();
    inst->pids[r] = card->pid;
    flat_attach_try(inst, r, card->address);
    if (card->chunk < inst->chunk) inst->chunk = card->chunk;
    if (card->tuned != tuned) flat_tuned_close(inst);
    inst->fences |= card->fences;
    return TUTTI_OK;
}

static void flat_close(struct tutti_backend *backend, uint64_t deadline_ns);

static enum tutti_status flat_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct flat_instance *inst = (struct flat_instance *)backend;
    inst->fences |= inst->crowded || inst->n > BARRIER_RANKS;
    inst->spins = inst->crowded ? 1 : 1024;
    inst->turns = 1000;
    uint64_t tuned = 0;
    for (uint32_t r = 0; r < inst->n && inst->n > 1; r++) {
        struct flat_card card;
        memcpy(&card, (const char *)cards + r * stride, sizeof(card));
        if (r == 0) tuned = card.tuned;
        enum tutti_status status = peer_connect(inst, r, &card, tuned);
        if (status >= 0) continue;
        flat_close(backend, 0);
        return status;
    }
    if (inst->n > 1) flat_attach_publish(inst);
    flat_lines_limit(inst);
    return TUTTI_OK;
}

/* ---- closing ---- */

/* The own memory of a closed instance that peers have not closed yet. */
struct flat_retired {
    struct flat_retired *next;
    struct flat_memory *memory;
    struct tutti_transport *transport;
};

void tutti_backend_sweep(struct tutti_backend_host *host, bool all)
{
    pthread_mutex_lock(&host->lock);
    for (struct flat_retired **at = &host->retired; *at;) {
        struct flat_retired *retired = *at;
        bool over = atomic_load_explicit(&retired->memory->refs, memory_order_acquire) == 0;
        if (over) (void)retired->transport->memory->ops->free(retired->transport->memory, retired->memory);
        if (over || all) {
            *at = retired->next;
            tutti_free(retired);
        } else {
            at = &retired->next;
        }
    }
    if (all && host->pagemap > 0) close(host->pagemap - 1), host->pagemap = 0;
    pthread_mutex_unlock(&host->lock);
}

/* Without memory for the note it stays in the heap until the world closes. */
static void retire(struct flat_instance *inst)
{
    struct flat_retired *retired = tutti_alloc(sizeof(*retired));
    if (!retired) return;
    retired->memory = inst->memories[inst->me];
    retired->transport = inst->transport;
    pthread_mutex_lock(&inst->host->lock);
    retired->next = inst->host->retired;
    inst->host->retired = retired;
    pthread_mutex_unlock(&inst->host->lock);
}

/* This rank reads none of them any more. */
static void memories_drop(struct flat_instance *inst)
{
    for (uint32_t r = 0; r < inst->n; r++) {
        struct flat_memory *memory = inst->memories[r];
        size_t bytes = memory ? memory->bytes : 0;
        if (memory && atomic_fetch_sub(&memory->refs, 1) == 1 && inst->addresses) tutti_unmap(memory, bytes);
    }
    if (inst->addresses) return;
    retire(inst);
    tutti_backend_sweep(inst->host, false);
}

static void flat_close(struct tutti_backend *backend, uint64_t deadline_ns)
{
    (void)deadline_ns; /* nothing waits */
    struct flat_instance *inst = (struct flat_instance *)backend;
    if (inst->n > 1) {
        inst->areas[inst->me] = &inst->memories[inst->me]->area; /* also when it did not come to that */
        flat_leave(inst);
        memories_drop(inst);
    }
    inst_free(inst);
}

/* ---- the rest ---- */

static size_t tiny_below(const struct tutti_backend *backend, enum tutti_kind kind)
{
    return flat_tiny_below((const struct flat_instance *)(const void *)backend, kind);
}

static size_t flat_staging_used(const struct tutti_backend *backend)
{
    return ((const struct flat_instance *)(const void *)backend)->own_bytes;
}

const struct tutti_backend_ops tutti_backend_flat = {
    .name = "flat",
    .help = "ranks of one host, through memory that all of them map",
    .check = flat_options_check,
    .card_bytes = sizeof(struct flat_card),
    .open = flat_open,
    .connect = flat_connect,
    .close = flat_close,
    .score = flat_score,
    .begin = flat_begin,
    .run_inline = flat_run_inline,
    .tiny_below = tiny_below,
    .tiny = flat_tiny,
    .resume = flat_resume,
    .overlay = flat_overlay,
    .candidates = flat_candidates,
    .memory_used = flat_staging_used,
};
