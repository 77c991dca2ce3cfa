/* SPDX-License-Identifier: BSD-3-Clause */

/* The transports of one host: what self and shm have in common, then each of them. */

#include "transport/host/host.h"

#include "transport/host/heap.h"
#include "transport/open.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* ---- packets through rings ---- */

#define NO_PEER UINT32_MAX

/* ---- open and close ---- */

static void tables_free(struct tutti_host *host)
{
    tutti_unmap(host->peers, host->base.n * sizeof(*host->peers));
    tutti_free(host->ready);
}

enum tutti_status tutti_host_init(struct tutti_host *host, const char *name, const struct tutti_transport_ops *ops,
                                  struct tutti_segment *segment, uint32_t me)
{
    if (me >= segment->n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u does not exist: the segment has %u", me, segment->n);
    host->base = (struct tutti_transport){.ops = ops,
                                          .name = name,
                                          .n = segment->n,
                                          .me = me,
                                          .max_payload = tutti_ring_max_payload(segment->ring_bytes),
                                          .copied = tutti_ring_max_payload(segment->ring_bytes)};
    host->segment = segment;
    host->doorbell = tutti_segment_doorbell(segment, me);
    host->n_ready_words = (segment->n + 63) / 64;
    host->peers = tutti_map_lazy(segment->n * sizeof(*host->peers));
    host->ready = tutti_alloc_array(host->n_ready_words, sizeof(*host->ready));
    if (!host->peers || !host->ready) {
        tables_free(host);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for what a transport knows of %u peers", segment->n);
    }
    uint32_t absent = TUTTI_MEMBER_ABSENT;
    if (atomic_compare_exchange_strong(&tutti_segment_member(segment, me)->state, &absent, TUTTI_MEMBER_OPEN))
        return TUTTI_OK;
    tables_free(host);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u is open already, or has left", me);
}

void tutti_host_fini(struct tutti_host *host)
{
    atomic_store_explicit(&tutti_segment_member(host->segment, host->base.me)->state, TUTTI_MEMBER_LEFT,
                          memory_order_release);
    tables_free(host);
    tutti_segment_release(host->segment);
}

/* ---- doorbells ---- */

/* The flag falls before the word changes. The other way round, a slow ringer could take the flag of the next sleep,
 * whose sleeper has already seen the changed word: it would sleep with its flag down, and nobody would ring again. */
void tutti_doorbell_ring(struct tutti_doorbell *doorbell)
{
    if (atomic_load_explicit(&doorbell->sleeping, memory_order_seq_cst) == 0) return;
    if (atomic_exchange_explicit(&doorbell->sleeping, 0, memory_order_seq_cst) == 0) return;
    atomic_fetch_add_explicit(&doorbell->ring, 1, memory_order_seq_cst);
    tutti_futex_wake(&doorbell->ring, 1);
}

static bool anything_to_do(struct tutti_host *host)
{
    bool found = atomic_exchange_explicit(&host->woken, 0, memory_order_seq_cst) != 0;
    if (atomic_exchange_explicit(&host->doorbell->room, 0, memory_order_seq_cst) != 0) found = true;
    for (uint32_t i = 0; i < host->n_ready_words; i++)
        if (host->ready[i] != 0 || atomic_load_explicit(&host->doorbell->ready[i], memory_order_seq_cst) != 0)
            found = true;
    return found;
}

bool tutti_host_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct tutti_host *host = tutti_host_of(t);
    tutti_sources_add_word(sources, &host->doorbell->ring,
                           atomic_load_explicit(&host->doorbell->ring, memory_order_relaxed));
    atomic_store_explicit(&host->doorbell->sleeping, 1, memory_order_seq_cst);
    return !anything_to_do(host);
}

void tutti_host_sleep_end(struct tutti_transport *t)
{
    atomic_store_explicit(&tutti_host_of(t)->doorbell->sleeping, 0, memory_order_relaxed);
}

void tutti_host_wake(struct tutti_transport *t)
{
    struct tutti_host *host = tutti_host_of(t);
    atomic_store_explicit(&host->woken, 1, memory_order_seq_cst);
    tutti_doorbell_ring(host->doorbell);
}

/* ---- packets ---- */

void tutti_host_cut(struct tutti_transport *t, uint32_t peer)
{
    if (peer < t->n) atomic_store_explicit(&tutti_host_of(t)->peers[peer].dead, true, memory_order_relaxed);
}

static enum tutti_status broken_peer(struct tutti_host *host, uint32_t peer, const char *what)
{
    host->peers[peer].broken = true;
    return tutti_fail(TUTTI_ERR_PROTOCOL, "member %u wrote %s into the ring between it and member %u", peer, what,
                      host->base.me);
}

static enum tutti_status check_send(struct tutti_host *host, uint32_t peer, const struct tutti_packet *packet,
                                    const struct tutti_span *spans, uint32_t n_spans)
{
    if (peer >= host->base.n) return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet to member %u of %u", peer, host->base.n);
    size_t bytes = 0;
    for (uint32_t i = 0; i < n_spans; i++) bytes += spans[i].bytes;
    if (bytes != packet->bytes || bytes > host->base.max_payload)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet of %u bytes (at most %zu) with %zu bytes of payload",
                          packet->bytes, host->base.max_payload, bytes);
    struct tutti_host_peer *p = &host->peers[peer];
    if (p->broken) return tutti_fail(TUTTI_ERR_PROTOCOL, "member %u broke the protocol before", peer);
    if (atomic_load_explicit(&p->dead, memory_order_relaxed))
        return tutti_fail(TUTTI_ERR_PEER_DEAD, TUTTI_SAYS_CLOSED ": the process of member %u died", peer);
    if (atomic_load_explicit(&tutti_segment_member(host->segment, peer)->state, memory_order_relaxed) ==
        TUTTI_MEMBER_LEFT)
        return tutti_fail(TUTTI_ERR_PEER_LEFT, TUTTI_SAYS_CLOSED ": member %u has left", peer);
    return TUTTI_OK;
}

enum tutti_status tutti_host_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct tutti_host *host = tutti_host_of(t);
    (void)token; /* copied, so complete at once */
    TUTTI_TRY(check_send(host, peer, packet, spans, n_spans));
    struct tutti_packet stamped = *packet;
    stamped.version = TUTTI_WIRE_VERSION;
    stamped.source = t->me;
    const struct tutti_ring_record record = {&stamped, 0, spans, n_spans};
    enum tutti_status status = tutti_ring_put(tutti_segment_ring(host->segment, peer, t->me), host->segment->ring_bytes,
                                              &host->peers[peer].out, &record);
    if (status == TUTTI_AGAIN) return status;
    if (status < 0) return broken_peer(host, peer, "an impossible position");
    struct tutti_doorbell *doorbell = tutti_segment_doorbell(host->segment, peer);
    atomic_fetch_or_explicit(&doorbell->ready[t->me / 64], UINT64_C(1) << t->me % 64, memory_order_seq_cst);
    tutti_doorbell_ring(doorbell);
    return TUTTI_OK;
}

/* First peer at or after `from` whose ring may hold something. */
static uint32_t ready_from(const struct tutti_host *host, uint32_t from)
{
    for (uint32_t i = from / 64; i < host->n_ready_words; i++) {
        uint64_t word = host->ready[i];
        if (i == from / 64) word &= UINT64_MAX << from % 64;
        if (word != 0) return i * 64 + (uint32_t)__builtin_ctzll(word);
    }
    return NO_PEER;
}

/* Takes the bits that senders have set. Bits beyond n, which nobody has a right to, are ignored. */
static void take_ready(struct tutti_host *host)
{
    for (uint32_t i = 0; i < host->n_ready_words; i++) {
        _Atomic uint64_t *shared = &host->doorbell->ready[i];
        if (atomic_load_explicit(shared, memory_order_relaxed) == 0) continue;
        uint64_t word = atomic_exchange_explicit(shared, 0, memory_order_acq_rel);
        uint32_t left = host->base.n - i * 64;
        host->ready[i] |= left < 64 ? word & ((UINT64_C(1) << left) - 1) : word;
    }
}

/* Peers take turns: a peer is asked again only after all others that have something. */
static uint32_t next_ready(struct tutti_host *host)
{
    uint32_t peer = host->cursor < host->base.n ? ready_from(host, host->cursor) : NO_PEER;
    if (peer != NO_PEER) return peer;
    take_ready(host);
    return ready_from(host, 0);
}

enum tutti_status tutti_host_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct tutti_host *host = tutti_host_of(t);
    if (host->arrival_open) return tutti_fail(TUTTI_ERR_INTERNAL, "poll before the last arrival was released");
    for (;;) {
        uint32_t peer = next_ready(host);
        if (peer == NO_PEER) return TUTTI_AGAIN;
        host->cursor = peer + 1;
        struct tutti_host_peer *p = &host->peers[peer];
        struct tutti_ring_view view;
        enum tutti_status status = p->broken ? TUTTI_AGAIN
                                             : tutti_ring_peek(tutti_segment_ring(host->segment, t->me, peer),
                                                               host->segment->ring_bytes, &p->in, &view);
        if (status == TUTTI_AGAIN) {
            host->ready[peer / 64] &= ~(UINT64_C(1) << peer % 64);
            continue;
        }
        if (status < 0) return broken_peer(host, peer, "a record that can not be");
        view.packet.source = peer; /* the ring tells who, not the packet */
        if (!tutti_packet_valid(&view.packet, t->max_payload))
            return broken_peer(host, peer, "a packet that can not be");
        out->type = TUTTI_EVENT_ARRIVAL;
        out->packet = view.packet;
        out->payload = view.payload;
        host->arrival_open = true;
        host->arrival_peer = peer;
        host->arrival_next = view.next;
        return TUTTI_OK;
    }
}

void tutti_host_release(struct tutti_transport *t)
{
    struct tutti_host *host = tutti_host_of(t);
    if (!host->arrival_open) return;
    host->arrival_open = false;
    const uint32_t peer = host->arrival_peer;
    if (!tutti_ring_pop(tutti_segment_ring(host->segment, t->me, peer), &host->peers[peer].in, host->arrival_next))
        return;
    struct tutti_doorbell *doorbell = tutti_segment_doorbell(host->segment, peer);
    atomic_store_explicit(&doorbell->room, 1, memory_order_seq_cst);
    tutti_doorbell_ring(doorbell);
}

bool tutti_host_reaches(const struct tutti_memory *m, uint32_t peer)
{
    (void)m, (void)peer;
    return true;
}

/* ---- shm, of processes ---- */

struct shm {
    struct tutti_host host;
    struct tutti_heap heap;
};

static struct shm *shm_of(struct tutti_transport *t)
{
    return (struct shm *)(void *)t;
}

static void shm_close(struct tutti_transport *t)
{
    struct shm *shm = shm_of(t);
    tutti_heap_fini(&shm->heap); /* before the segment, whose descriptor it borrows */
    tutti_host_fini(&shm->host);
    tutti_free(shm);
}

static const struct tutti_transport_ops shm_ops = {
    TUTTI_HOST_OPS,
    .close = shm_close,
};
static const struct tutti_memory_ops shm_memory_ops = {
    .size = sizeof(struct tutti_memory_ops),
    .alloc = tutti_heap_alloc,
    .free = tutti_heap_free,
    .locate = tutti_heap_locate,
    .map = tutti_heap_map,
    .reaches = tutti_host_reaches,
};

enum tutti_status tutti_shm_open(struct tutti_segment *segment, uint32_t me, struct tutti_transport **out)
{
    if (segment->heap_fd < 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "transport shm needs a segment that can be shared between processes");
    struct shm *shm = tutti_alloc(sizeof(*shm));
    if (!shm) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a transport");
    enum tutti_status status;
    TUTTI_TRY_GOTO(status, tutti_heap_init(&shm->heap, segment->heap_fd, segment->n, me, segment->heap_bytes),
                   err_free);
    TUTTI_TRY_GOTO(status, tutti_host_init(&shm->host, "shm", &shm_ops, segment, me), err_fini_heap);
    shm->heap.memory.ops = &shm_memory_ops;
    shm->host.base.memory = &shm->heap.memory;
    *out = &shm->host.base;
    return TUTTI_OK;

err_fini_heap:
    tutti_heap_fini(&shm->heap);
err_free:
    tutti_free(shm);
    return status;
}

/* ---- self, of threads ---- */

/* Memory from alloc: page-aligned and zeroed as everywhere, so its size is kept in the list, not before it. */
struct self_block {
    struct self_block *next;
    void *pointer;
    size_t bytes;
};

struct self {
    struct tutti_host host;
    struct tutti_memory memory;
    pthread_mutex_t lock;
    struct self_block *blocks;
};

static struct self *self_of(struct tutti_transport *t)
{
    return (struct self *)(void *)t;
}

static void self_close(struct tutti_transport *t)
{
    struct self *self = self_of(t);
    while (self->blocks) {
        struct self_block *block = self->blocks;
        self->blocks = block->next;
        tutti_unmap(block->pointer, block->bytes);
        tutti_free(block);
    }
    pthread_mutex_destroy(&self->lock);
    tutti_host_fini(&self->host);
    tutti_free(self);
}

static struct self *owner_of(struct tutti_memory *m)
{
    return (struct self *)(void *)((char *)m - offsetof(struct self, memory));
}

static enum tutti_status self_alloc(struct tutti_memory *m, size_t bytes, void **out)
{
    struct self *self = owner_of(m);
    if (bytes == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "an allocation of 0 bytes");
    struct self_block *block = tutti_alloc(sizeof(*block));
    if (!block) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the heap's bookkeeping");
    block->pointer = tutti_map_lazy(bytes);
    block->bytes = bytes;
    if (!block->pointer) {
        tutti_free(block);
        return tutti_fail(TUTTI_ERR_MEMORY, "%zu bytes of memory are not to be had", bytes);
    }
    pthread_mutex_lock(&self->lock);
    block->next = self->blocks;
    self->blocks = block;
    pthread_mutex_unlock(&self->lock);
    *out = block->pointer;
    return TUTTI_OK;
}

static enum tutti_status self_free(struct tutti_memory *m, void *pointer)
{
    struct self *self = owner_of(m);
    if (!pointer) return TUTTI_OK;
    pthread_mutex_lock(&self->lock);
    struct self_block **at = &self->blocks;
    while (*at && (*at)->pointer != pointer) at = &(*at)->next;
    struct self_block *block = *at;
    if (block) *at = block->next;
    pthread_mutex_unlock(&self->lock);
    if (!block) return tutti_fail(TUTTI_ERR_ARGUMENT, "%p is not the start of memory of this heap", pointer);
    tutti_unmap(block->pointer, block->bytes);
    tutti_free(block);
    return TUTTI_OK;
}

static bool self_locate(struct tutti_memory *m, const void *pointer, size_t bytes, uint64_t *where)
{
    (void)m, (void)bytes;
    *where = (uint64_t)(uintptr_t)pointer;
    return true;
}

static void *self_map(struct tutti_memory *m, uint32_t peer, uint64_t where, size_t bytes)
{
    if (peer >= owner_of(m)->host.base.n || where == 0 || where + bytes < where || where + bytes > UINTPTR_MAX)
        return NULL;
    return (void *)(uintptr_t)where;
}

static const struct tutti_transport_ops self_ops = {
    TUTTI_HOST_OPS,
    .close = self_close,
};
static const struct tutti_memory_ops self_memory_ops = {
    .size = sizeof(struct tutti_memory_ops),
    .alloc = self_alloc,
    .free = self_free,
    .locate = self_locate,
    .map = self_map,
    .reaches = tutti_host_reaches,
};

enum tutti_status tutti_self_open(struct tutti_segment *segment, uint32_t me, struct tutti_transport **out)
{
    if (segment->heap_fd >= 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "transport self needs a segment of plain memory: its offers are addresses");
    struct self *self = tutti_alloc(sizeof(*self));
    if (!self) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a transport");
    enum tutti_status status;
    if (pthread_mutex_init(&self->lock, NULL) != 0) {
        status = tutti_fail(TUTTI_ERR_SYSTEM, "no lock for the heap");
        goto err_free;
    }
    TUTTI_TRY_GOTO(status, tutti_host_init(&self->host, "self", &self_ops, segment, me), err_destroy_lock);
    self->memory = (struct tutti_memory){.ops = &self_memory_ops, .addresses = true};
    self->host.base.memory = &self->memory;
    *out = &self->host.base;
    return TUTTI_OK;

err_destroy_lock:
    pthread_mutex_destroy(&self->lock);
err_free:
    tutti_free(self);
    return status;
}
