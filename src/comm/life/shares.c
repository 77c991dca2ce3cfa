/* SPDX-License-Identifier: BSD-3-Clause */
/* A large all_reduce of a communicator that survives, where its members map one another's memory, in two phases. Each
 * member reduces its share of the result into memory of its own that the others map: inputs are intact, and in place is
 * no different. When all have theirs, which is the barrier of a call (commit), each copies all shares to its output:
 * that memory outlives the process, so the result is sure, whoever dies from then on. A copy of the input is not
 * needed, and of the bytes that an all_reduce moves only the own share is moved once more.
 *
 * Shares of two calls take turns: a member that reduces call k + 2 has seen that all have begun k + 1, and so left k.
 * Only a late one that the others went on without can still be reading then, and looks at what they have begun. */

#include "comm/life/survive.h"

#include "device/cpu/copy.h"

#include <string.h>

/* Bytes of results that are shared: smaller ones are done sooner when a rank's input is saved. */
#define SHARED_LEAST ((size_t)2 << 20)
#define SHARED_BY_TWO ((size_t)4 << 20) /* from here on a barrier behind the call costs two ranks less */
#define SHARE_UNIT 1024                 /* elements of a share, but for the last one's */
#define PAGE ((size_t)4096)
#define EPOCH_BITS 20 /* of a word, behind the number of the call */

/* A member's memory: this page, and two halves. Words grow. */
struct share {
    _Atomic uint64_t begun; /* the call whose share may be half written, */
    _Atomic uint64_t done;  /* and the one whose share is whole */
};

struct tutti_shares {
    struct tutti_family *family; /* held: what is mapped stays */
    uint64_t epoch;              /* the view's; all below is its members' */
    bool is_refused;             /* some member can not */
    uint32_t n, me;
    size_t bytes;      /* the most that a share has */
    size_t *counts;    /* n, then as many offsets: elements of the call at hand */
    struct share **at; /* n */
    size_t *halves;    /* n */
    struct share *own; /* the latest. Those before go with the family: a late rank may be reading them */
    size_t own_half;
};

struct offer {
    uint64_t where, half; /* bytes of each of the two; 0: there are none */
};

static uint64_t word_of(const struct tutti_survive *s)
{
    return s->synchrony.called << EPOCH_BITS | (s->shares->epoch & ((1u << EPOCH_BITS) - 1));
}

static unsigned char *half_of(const struct tutti_survive *s, uint32_t member)
{
    return (unsigned char *)s->shares->at[member] + PAGE + s->synchrony.called % 2 * s->shares->halves[member];
}

void tutti_shares_close(struct tutti_survive *s)
{
    if (!s->shares) return;
    tutti_free(s->shares->counts);
    tutti_free(s->shares->at);
    tutti_free(s->shares->halves);
    tutti_family_drop(s->shares->family);
    tutti_free(s->shares);
    s->shares = NULL;
}

/* Elements of each share of the call; the bytes of the largest. */
static size_t cut(struct tutti_shares *shares, const struct tutti_call *call)
{
    const size_t count = call->job.bind.count, n = shares->n;
    const size_t unit = (count / n + SHARE_UNIT - 1) / SHARE_UNIT * SHARE_UNIT;
    const size_t most = count % n == 0 ? count / n : unit;
    for (size_t i = 0, at = 0; i < n; at += shares->counts[i++]) {
        shares->counts[i] = count - at < most || i + 1 == n ? count - at : most;
        shares->counts[n + i] = at;
    }
    return shares->counts[n - 1] > most ? shares->counts[n - 1] : most;
}

/* ---- the memory of a view's members ---- */

/* Those of a view that has none yet. */
static struct tutti_shares *shares_new(const struct tutti_survive *s, struct tutti_shares *before)
{
    struct tutti_shares *shares = tutti_alloc(sizeof(*shares));
    if (!shares) return NULL;
    *shares = (struct tutti_shares){.epoch = s->synchrony.epoch, .n = s->n, .me = (uint32_t)s->inner->rank};
    shares->counts = tutti_alloc_array(2 * (size_t)s->n, sizeof(*shares->counts));
    shares->at = tutti_alloc_array(s->n, sizeof(struct share *));
    shares->halves = tutti_alloc_array(s->n, sizeof(*shares->halves));
    shares->family = tutti_family_hold(s->inner->family);
    if (before && before->family == shares->family) shares->own = before->own, shares->own_half = before->own_half;
    return shares;
}

/* Memory of this member's, which others can map and which outlives it; none in one process, which dies as a whole. */
static struct offer offer_of(struct tutti_survive *s, size_t bytes)
{
    struct tutti_shares *shares = s->shares;
    struct tutti_memory *memory = shares->family->world.transport->memory;
    struct offer offer = {0, 0};
    size_t half = PAGE;
    void *own;
    while (half < bytes) half *= 2;
    if (!tutti_memory_reaches_all(memory, s->inner->members, s->n) || memory->addresses) return offer;
    if (shares->own_half < bytes) {
        if (memory->ops->alloc(memory, PAGE + 2 * half, &own) < 0) return offer;
        shares->own = own;
        shares->own_half = half;
    }
    if (memory->ops->locate(memory, shares->own, PAGE + 2 * shares->own_half, &offer.where))
        offer.half = shares->own_half;
    return offer;
}

static enum tutti_status map_all(struct tutti_survive *s, const struct offer *offers, size_t bytes)
{
    struct tutti_shares *shares = s->shares;
    struct tutti_memory *memory = shares->family->world.transport->memory;
    for (uint32_t i = 0; i < shares->n; i++) {
        const size_t half = offers[i].half;
        void *at = i == shares->me ? (void *)shares->own
                   : half < bytes || half > PTRDIFF_MAX / 4
                       ? NULL
                       : memory->ops->map(memory, s->inner->members[i], offers[i].where, PAGE + 2 * half);
        if (!at) return tutti_fail(TUTTI_ERR_INTERNAL, "rank %u's memory for shares can not be mapped", s->ranks[i]);
        shares->at[i] = at;
        shares->halves[i] = half;
    }
    shares->bytes = bytes;
    return TUTTI_OK;
}

/* All members bring memory for shares of so many bytes. AGAIN: some can not. */
static enum tutti_status bring(struct tutti_survive *s, size_t bytes)
{
    struct tutti_shares *shares = s->shares;
    struct offer *offers = tutti_alloc_array(s->n, sizeof(*offers));
    if (!offers) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the offers of %u ranks", s->n);
    const struct offer own = offer_of(s, bytes);
    enum tutti_status status = tutti_all_gather(&own, offers, sizeof(own), TUTTI_UINT8, s->inner, NULL, NULL);
    for (uint32_t i = 0; status >= 0 && i < s->n; i++) shares->is_refused = shares->is_refused || offers[i].half == 0;
    if (status >= 0) status = shares->is_refused ? TUTTI_AGAIN : map_all(s, offers, bytes);
    tutti_free(offers);
    return status;
}

/* Whether the call may go this way, by what is equal on all members. */
static bool is_served(const struct tutti_survive *s, const struct tutti_call *call)
{
    const struct tutti_call_info *info = &call->job.info;
    const size_t bytes = call->job.bind.count * tutti_dtype_bytes(info->dtype);
    return info->kind == TUTTI_ALL_REDUCE && s->n > 1 && !call->options.algorithm && !call->options.wire &&
           !s->inner->facts.own[TUTTI_ALL_REDUCE] && bytes >= SHARED_LEAST && (s->n > 2 || bytes < SHARED_BY_TWO);
}

enum tutti_status tutti_shares_ready(struct tutti_survive *s, const struct tutti_call *call)
{
    if (!is_served(s, call)) return TUTTI_AGAIN;
    if (!s->shares || s->shares->epoch != s->synchrony.epoch) {
        struct tutti_shares *shares = shares_new(s, s->shares);
        tutti_shares_close(s);
        s->shares = shares;
        if (!shares || !shares->counts || !shares->at || !shares->halves) {
            tutti_shares_close(s);
            return tutti_call_fail(call, TUTTI_ERR_MEMORY, "no memory for the shares of %u ranks", s->n);
        }
    }
    if (s->shares->is_refused) return TUTTI_AGAIN;
    const size_t bytes = cut(s->shares, call) * tutti_dtype_bytes(call->job.info.dtype);
    return bytes > s->shares->bytes ? bring(s, bytes) : TUTTI_OK;
}

/* ---- the two phases ---- */

enum tutti_status tutti_shares_reduce(struct tutti_survive *s, const struct tutti_call *call,
                                      const struct tutti_call_options *options)
{
    struct tutti_shares *shares = s->shares;
    const struct tutti_call_info *info = &call->job.info;
    const size_t count = call->job.bind.count;
    void *own = half_of(s, shares->me);
    atomic_store(&shares->own->begun, word_of(s));
    atomic_thread_fence(memory_order_seq_cst); /* before what may be written past the caches */
    struct tutti_call inner;
    tutti_call_set(&inner, TUTTI_REDUCE_SCATTER, info->dtype, info->op, 0, count / shares->n, call->job.bind.input,
                   own);
    tutti_call_begin(&inner, s->inner, NULL);
    inner.name = call->name; /* sentences say what the user called */
    inner.job.info.reduced = count;
    if (count % shares->n != 0)
        inner.job.bind.v = true, inner.job.bind.counts = shares->counts, inner.job.bind.count = 0;
    const enum tutti_status status = tutti_call_submit(&inner, options);
    tutti_copy_fence();
    if (status >= 0) atomic_store(&shares->own->done, word_of(s));
    return status;
}

bool tutti_shares_whole(const struct tutti_survive *s)
{
    bool whole = true;
    for (uint32_t i = 0; i < s->shares->n; i++) whole = whole && atomic_load(&s->shares->at[i]->done) >= word_of(s);
    return whole;
}

bool tutti_shares_take(const struct tutti_survive *s, const struct tutti_call *call)
{
    const struct tutti_shares *shares = s->shares;
    const size_t element = tutti_dtype_bytes(call->job.info.dtype), bytes = call->job.bind.count * element;
    const bool past = bytes >= TUTTI_PAST_CACHE_BYTES;
    bool intact = true;
    for (uint32_t k = 1; k <= shares->n; k++) { /* not all from the same one at once */
        const uint32_t i = (shares->me + k) % shares->n;
        unsigned char *to = (unsigned char *)call->job.bind.output + shares->counts[shares->n + i] * element;
        if (past)
            tutti_copy_stream(to, half_of(s, i), shares->counts[i] * element);
        else
            memcpy(to, half_of(s, i), shares->counts[i] * element);
    }
    if (past) tutti_copy_fence();
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < shares->n; i++)
        intact = intact && atomic_load(&shares->at[i]->begun) >> EPOCH_BITS < s->synchrony.called + 2;
    return intact;
}
