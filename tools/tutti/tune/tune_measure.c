/* SPDX-License-Identifier: BSD-3-Clause */
/* The measurements of `tutti tune`, a function each. Every one takes the best of some short batches, since what else
 * the machine does now and then only ever makes one longer; that the best was no accident, rounds and their median see
 * to. */

#include "tune.h"

#include "device/cpu/copy.h"
#include "topo/topo.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>

#define BATCHES 15
#define LIMIT_NS (200 * TUTTI_NS_PER_MS) /* of one wait: a peer that lost its CPU comes back sooner */
#define NEAR_BYTES ((size_t)512 << 10)   /* what is copied in cache: with what it is copied from about a second level */
#define BLOCK_BYTES ((size_t)32 << 10)   /* what is folded, as back ends do: three of them in the second level */
#define RING_BYTES ((size_t)512 << 10)
#define PULL_BYTES ((size_t)256 << 10)
#define ATTACH_BYTES ((size_t)256 << 10) /* in the own cache, with what they are copied to */
#define PAGE_BYTES 4096
#define LEAST_NS 0.01 /* of what was measured, and takes no time: 0 says that it was not */

/* A rank's part of the window: lines to wait for, then what others pull. */
struct shared {
    struct tutti_baton baton;
    _Alignas(128) _Atomic uint64_t arrived;
    _Alignas(4096) unsigned char data[PULL_BYTES];
};
_Static_assert(sizeof(struct shared) <= TUNE_SHARED_BYTES, "the window holds it");

static struct shared *shared_of(const struct tune *tune, uint32_t rank)
{
    return (struct shared *)(void *)tune->peers[rank];
}

/* ns of one of `n` acts in the best batch; 0: one failed. */
static double best_ns(struct tune *tune, bool (*act)(struct tune *tune), uint32_t batches, uint32_t n)
{
    double best = 0;
    for (uint32_t batch = 0; batch < batches; batch++) {
        const uint64_t start = tutti_now_ns();
        for (uint32_t i = 0; i < n; i++)
            if (!act(tune)) return 0;
        const double ns = (double)(tutti_now_ns() - start) / n;
        if (batch == 0 || ns < best) best = ns;
    }
    return best;
}

/* The row's ranks wait for one another, spinning. False: somebody did not come in time. */
static bool meet(struct tune *tune)
{
    _Atomic uint64_t *arrived = &shared_of(tune, 0)->arrived;
    uint64_t goal = ++tune->n_meetings * tune->n_together, deadline = tutti_deadline_ns(LIMIT_NS);
    atomic_fetch_add(arrived, 1);
    for (uint32_t spins = 1; atomic_load(arrived) < goal; spins++) {
        if (spins % 1024) continue;
        if (tutti_now_ns() > deadline) return false;
        sched_yield();
    }
    return true;
}

/* The row's ranks, whose earlier meetings were perhaps not the same, begin to count anew. */
static bool begin(struct tune *tune)
{
    tune->n_meetings = 0;
    if (tutti_barrier(tune->comm, NULL, NULL) < 0) return false;
    if (tune->rank == 0) {
        struct shared *own = shared_of(tune, 0);
        atomic_store(&own->arrived, 0), atomic_store(&own->baton.turn, 0), atomic_store(&own->baton.futex, 0);
    }
    return tutti_barrier(tune->comm, NULL, NULL) >= 0;
}

/* ---- hand-overs ---- */

static double hand_over_ns(struct tune *tune, enum tutti_waiting how, uint32_t hops)
{
    const struct tutti_relay relay = {how, BATCHES, hops, BATCHES * LIMIT_NS};
    return tutti_relay_ns(&shared_of(tune, 0)->baton, tune->rank, &relay);
}

static double line(struct tune *tune)
{
    return hand_over_ns(tune, TUTTI_SPIN, 1000);
}

/* Both on rank 0's CPU. */
static double on_one_cpu(struct tune *tune, enum tutti_waiting how, uint32_t hops)
{
    cpu_set_t before, one;
    if (sched_getaffinity(0, sizeof before, &before) != 0) return 0;
    CPU_ZERO(&one);
    CPU_SET((size_t)tune->facts[0].cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return 0;
    double ns = hand_over_ns(tune, how, hops);
    return sched_setaffinity(0, sizeof before, &before) == 0 ? ns : 0;
}

static double yield(struct tune *tune)
{
    return on_one_cpu(tune, TUTTI_YIELD, 400);
}

static double wake(struct tune *tune)
{
    return on_one_cpu(tune, TUTTI_SLEEP, 200);
}

/* ---- the engine ---- */

static bool small_call(struct tutti_comm *comm)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    int64_t in = 1, out;
    options.algorithm = "direct";
    return tutti_all_reduce(&in, &out, 1, TUTTI_INT64, TUTTI_SUM, comm, &options, NULL) >= 0;
}

static bool call_alone(struct tune *tune)
{
    return small_call(tune->alone);
}

static bool call_pair(struct tune *tune)
{
    return small_call(tune->pair);
}

static double call(struct tune *tune)
{
    return best_ns(tune, call_alone, BATCHES, 500);
}

/* Two ranks send each other one message. */
static double message(struct tune *tune)
{
    double ns = best_ns(tune, call_pair, BATCHES, 500),
           rest = (double)tune->known->call_ns + (double)tune->known->links[TUTTI_LINK_HOST].line_ns;
    return ns > rest ? ns - rest : 0;
}

static bool exchange(struct tune *tune)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    const unsigned char *own = tune->a + tune->rank * RING_BYTES;
    options.algorithm = "direct";
    return tutti_all_gather(own, tune->a, RING_BYTES, TUTTI_UINT8, tune->pair, &options, NULL) >= 0;
}

/* Two ranks send each other a block, in place. */
static double ring(struct tune *tune)
{
    double call_ns = (double)tune->known->call_ns + (double)tune->known->links[TUTTI_LINK_HOST].line_ns +
                     (double)tune->known->links[TUTTI_LINK_HOST].message_ns;
    double spent = best_ns(tune, exchange, BATCHES, 10);
    return spent > call_ns ? RING_BYTES / (spent - call_ns) : 0;
}

/* ---- bytes in cache ---- */

/* Each rank writes its data, all meet, each copies what the rank `distance` after it wrote. */
static double pull_from(struct tune *tune, uint32_t distance)
{
    double best = 0;
    for (size_t batch = 0; batch < BATCHES; batch++) {
        memset(shared_of(tune, tune->rank)->data, (int)batch, PULL_BYTES);
        if (!meet(tune)) return 0;
        uint64_t start = tutti_now_ns();
        memcpy(tune->a, shared_of(tune, (tune->rank + distance) % tune->n_together)->data, PULL_BYTES);
        const double ns = (double)(tutti_now_ns() - start);
        if (batch == 0 || ns < best) best = ns;
        if (!meet(tune)) return 0;
    }
    return PULL_BYTES / best;
}

static double pull(struct tune *tune)
{
    return pull_from(tune, 1);
}

/* As staging does, again and again: each rank writes its data, which the next one then reads. */
static double give(struct tune *tune)
{
    unsigned char *own = shared_of(tune, tune->rank)->data;
    double best = 0;
    for (size_t batch = 0; batch < BATCHES; batch++) {
        memset(tune->a, (int)batch, PULL_BYTES);
        if (!meet(tune)) return 0;
        const uint64_t start = tutti_now_ns();
        memcpy(own, tune->a, PULL_BYTES);
        const double ns = (double)(tutti_now_ns() - start);
        if (batch == 1 || (batch > 1 && ns < best)) best = ns; /* nobody had read it before the first one */
        if (!meet(tune)) return 0;
        memcpy(tune->b, shared_of(tune, (tune->rank + 1) % tune->n_together)->data, PULL_BYTES);
    }
    return PULL_BYTES / best;
}

/* Whether both are known, and in different groups of the widest sort of which the host has several. */
static bool are_apart(const struct tutti_topo *host, int32_t one, int32_t other)
{
    const struct tutti_topo_cpu *a = tutti_topo_cpu(host, (uint32_t)one), *b = tutti_topo_cpu(host, (uint32_t)other);
    if (!a || !b) return false;
    if (host->n_packages > 1) return a->package != b->package;
    return host->n_nodes > 1 ? a->node != b->node : a->l3 != b->l3;
}

static double far(struct tune *tune)
{
    const struct tutti_topo *host;
    const uint32_t n = tune->n_together, distance = n / 2;
    if (n < 2 || tutti_topo_host(&host) < 0) return 0;
    for (uint32_t r = 0; r < n; r++)
        if (!are_apart(host, tune->facts[r].cpu, tune->facts[(r + distance) % n].cpu)) return 0;
    return pull_from(tune, distance);
}

static bool copy_once(struct tune *tune)
{
    memcpy(tune->of_small ? tune->small[1] : tune->b, tune->of_small ? tune->small[0] : tune->a, tune->copied);
    return true;
}

static double copy_gbs(struct tune *tune, size_t bytes, uint32_t batches, uint32_t copies)
{
    tune->copied = bytes, tune->of_small = false;
    return meet(tune) ? (double)bytes / best_ns(tune, copy_once, batches, copies) : 0;
}

static double copy(struct tune *tune)
{
    return copy_gbs(tune, NEAR_BYTES, BATCHES, 20);
}

/* What is copied is twice the own cache, and as much what it is copied to. */
static double copy_mid(struct tune *tune)
{
    const struct tutti_machine *m = tune->known;
    const size_t bytes = (size_t)((double)m->own_kib * 2 * 1024);
    const bool fits = bytes <= tune->far_bytes && (double)m->own_kib * 4 * tune->n <= (double)m->cache_kib;
    return fits ? copy_gbs(tune, bytes, 5, 2) : 0;
}

static bool fold_block(struct tune *tune)
{
    tune->add(tune->sum, tune->a, tune->b, BLOCK_BYTES / sizeof(float));
    return true;
}

static double fold(struct tune *tune)
{
    tune->add = tutti_reduce_find(TUTTI_FLOAT32, TUTTI_SUM, "auto");
    return meet(tune) ? BLOCK_BYTES / best_ns(tune, fold_block, BATCHES, 200) : 0;
}

/* ---- bytes in memory ---- */

static bool copy_far(struct tune *tune)
{
    tutti_copy_past_cache(tune->b, tune->a, tune->far_bytes);
    return true;
}

static double memory(struct tune *tune)
{
    return meet(tune) ? (double)tune->far_bytes / best_ns(tune, copy_far, 3, 1) : 0;
}

/* From the other's private memory. False: the kernel forbids it. */
static bool attach_copy(struct tune *tune)
{
    const struct tune_fact *peer = &tune->facts[1 - tune->rank];
    const size_t bytes = tune->copied;
    const struct iovec here = {tune->of_small ? tune->small[1] : tune->b, bytes};
    const struct iovec there = {(void *)(uintptr_t)(tune->of_small ? peer->small : peer->address), bytes};
    return process_vm_readv(peer->pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

static double attach_copy_ns(struct tune *tune, size_t bytes, bool of_small, uint32_t copies)
{
    tune->copied = bytes, tune->of_small = of_small;
    return meet(tune) ? best_ns(tune, attach_copy, BATCHES, copies) : 0;
}

static double attach_call(struct tune *tune)
{
    return attach_copy_ns(tune, 8, false, 200);
}

static double attach(struct tune *tune)
{
    double ns = attach_copy_ns(tune, ATTACH_BYTES, false, 4);
    return ns > (double)tune->known->attach_ns ? ATTACH_BYTES / (ns - (double)tune->known->attach_ns) : 0;
}

/* What the same bytes take longer. Where there are no huge pages, attach_gbs tells of small ones. */
static double attach_page(struct tune *tune)
{
    const struct tutti_machine *m = tune->known;
    const double ns = attach_copy_ns(tune, ATTACH_BYTES, true, 2);
    const double more = ns - (double)m->attach_ns - ATTACH_BYTES / (double)m->attach_gbs;
    return ns > 0 ? fmax(more / (ATTACH_BYTES / PAGE_BYTES), LEAST_NS) : 0;
}

/* What a row's function needs of others stands above it. */
const struct tune_row tune_rows[] = {
    {"line_ns", TUNE_PAIR, TUNE_MEAN, true, line},
    {"yield_ns", TUNE_PAIR, TUNE_MEAN, false, yield},
    {"wake_ns", TUNE_PAIR, TUNE_MEAN, false, wake},
    {"call_ns", TUNE_ONE, TUNE_MEAN, false, call},
    {"message_ns", TUNE_PAIR, TUNE_MEAN, true, message},
    {"ring_gbs", TUNE_PAIR, TUNE_MEAN, true, ring},
    {"pull_gbs", TUNE_PAIR, TUNE_MEAN, true, pull},
    {"pull_all_gbs", TUNE_ALL, TUNE_TOTAL, true, pull},
    {"far_gbs", TUNE_ALL, TUNE_MEAN, true, far},
    {"give_gbs", TUNE_PAIR, TUNE_MEAN, true, give},
    {"copy_gbs", TUNE_ALL, TUNE_MEAN, false, copy},
    {"mid_gbs", TUNE_ALL, TUNE_MEAN, false, copy_mid},
    {"fold_gbs", TUNE_ALL, TUNE_MEAN, false, fold},
    {"memory_gbs", TUNE_ONE, TUNE_MEAN, false, memory},
    {"memory_all_gbs", TUNE_ALL, TUNE_TOTAL, false, memory},
    {"attach_ns", TUNE_PAIR, TUNE_MEAN, false, attach_call},
    {"attach_gbs", TUNE_PAIR, TUNE_MEAN, false, attach},
    {"attach_page_ns", TUNE_PAIR, TUNE_MEAN, false, attach_page},
};
const size_t tune_n_rows = TUTTI_ARRAY_LEN(tune_rows);

/* ---- the row's ranks, together ---- */

enum tutti_status tune_measure(struct tune *tune, const struct tune_row *row, const struct tutti_machine *known,
                               double *value)
{
    const uint32_t n = row->who == TUNE_ONE ? 1 : row->who == TUNE_PAIR ? 2 : tune->n;
    double mine[2] = {0, 0}, all[2]; /* the sum, and how many could not */
    tune->n_together = n, tune->known = known;
    if (!begin(tune)) return tutti_last_error()->status;
    if (tune->rank < n) mine[0] = row->measure(tune);
    if (tune->rank < n && !(mine[0] > 0)) mine[1] = 1;
    enum tutti_status status = tutti_all_reduce(mine, all, 2, TUTTI_FLOAT64, TUTTI_SUM, tune->comm, NULL, NULL);
    if (status < 0) return status;
    *value = all[1] > 0 ? 0 : row->sum == TUNE_TOTAL ? all[0] : all[0] / n;
    return TUTTI_OK;
}
