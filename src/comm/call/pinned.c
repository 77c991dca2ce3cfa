/* SPDX-License-Identifier: BSD-3-Clause */
/* Pinned memory for copies: see pinned.h. */
#include "comm/call/pinned.h"

#define LEAST_BYTES ((size_t)64 << 10)

/* Powers of two: what was too small at each growth is no more than the largest one. */
static size_t size_for(size_t bytes)
{
    size_t size = LEAST_BYTES;
    while (size < bytes && size <= SIZE_MAX / 4) size *= 2;
    return size < bytes ? bytes : size;
}

/* Takes the smallest idle one that is large enough; NULL if there is none. */
static struct tutti_pinned *take_idle(struct tutti_pinned_pool *pool, size_t bytes)
{
    struct tutti_pinned **best = NULL;

    for (struct tutti_pinned **at = &pool->idle; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes)) best = at;
    if (!best) return NULL;
    struct tutti_pinned *pinned = *best;
    *best = pinned->next;
    return pinned;
}

static enum tutti_status make(struct tutti_pinned_pool *pool, size_t bytes, struct tutti_pinned **out)
{
    struct tutti_pinned *pinned = tutti_alloc(sizeof(*pinned));
    void *at = NULL;

    if (!pinned) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for calls that go through the host");
    pinned->bytes = size_for(bytes);
    enum tutti_status status = pool->device->ops->alloc_host(pool->device, pinned->bytes, &at);
    if (status < 0) {
        tutti_free(pinned);
        return status;
    }
    pinned->at = at;
    *out = pinned;
    return TUTTI_OK;
}

enum tutti_status tutti_pinned_take(struct tutti_pinned_pool *pool, size_t bytes, struct tutti_pinned **out)
{
    pthread_mutex_lock(&pool->lock);
    struct tutti_pinned *pinned = take_idle(pool, bytes);
    pthread_mutex_unlock(&pool->lock);
    if (!pinned) TUTTI_TRY(make(pool, bytes, &pinned));
    pthread_mutex_lock(&pool->lock);
    pool->used_bytes += pinned->bytes;
    pthread_mutex_unlock(&pool->lock);
    *out = pinned;
    return TUTTI_OK;
}

void tutti_pinned_give(struct tutti_pinned_pool *pool, struct tutti_pinned *pinned)
{
    if (!pinned) return;
    pthread_mutex_lock(&pool->lock);
    pool->used_bytes -= pinned->bytes;
    pinned->next = pool->idle;
    pool->idle = pinned;
    pthread_mutex_unlock(&pool->lock);
}

enum tutti_status tutti_pinned_reserve(struct tutti_pinned_pool *pool, uint32_t n, size_t bytes)
{
    struct tutti_pinned *all = NULL;
    enum tutti_status status = TUTTI_OK;

    while (n > 0 && status >= 0) { /* taken, so that the next one is another */
        struct tutti_pinned *one;
        status = tutti_pinned_take(pool, bytes, &one);
        if (status < 0) break;
        one->next = all, all = one, n--;
    }
    while (all) {
        struct tutti_pinned *next = all->next;
        tutti_pinned_give(pool, all);
        all = next;
    }
    return status;
}

size_t tutti_pinned_used(struct tutti_pinned_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    const size_t bytes = pool->used_bytes;
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

/* ---- life ---- */

enum tutti_status tutti_pinned_create(const struct tutti_device *device, struct tutti_pinned_pool **out)
{
    struct tutti_pinned_pool *pool = tutti_alloc(sizeof(*pool));
    if (!pool) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for calls that go through the host");
    if (device->ops->open(device->ordinal, &pool->device) < 0) {
        tutti_free(pool);
        return tutti_last_error()->status;
    }
    atomic_init(&pool->refs, 1);
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return TUTTI_OK;
}

struct tutti_pinned_pool *tutti_pinned_hold(struct tutti_pinned_pool *pool)
{
    atomic_fetch_add(&pool->refs, 1);
    return pool;
}

void tutti_pinned_drop(struct tutti_pinned_pool *pool)
{
    if (!pool || atomic_fetch_sub(&pool->refs, 1) != 1) return;
    while (pool->idle) {
        struct tutti_pinned *pinned = pool->idle;
        pool->idle = pinned->next;
        pool->device->ops->free_host(pool->device, pinned->at);
        tutti_free(pinned);
    }
    pool->device->ops->close(pool->device);
    pthread_mutex_destroy(&pool->lock);
    tutti_free(pool);
}

/* Which bytes of a call's buffers are copied, and where to: the pinned copy holds the two sides of the call one after
 * the other. */

#define APART 256 /* sides begin at multiples of this */

struct sides {
    struct tutti_call_side send, recv; /* what is sent travels in, */
    bool recv_in, recv_out;            /* what is received, so */
};

static struct sides sides_of(const struct tutti_call *call)
{
    struct sides sides = {.send = tutti_call_side(call, true), .recv = tutti_call_side(call, false), .recv_out = true};
    if (call->type != TUTTI_CALL_COLLECTIVE) {
        sides.recv_in = true; /* a shorter message leaves the rest as it is */
    } else if (tutti_kind_info(call->job.info.kind)->in_place == TUTTI_ONE_BUFFER) {
        sides.recv_in = sides.send.n_blocks > 0; /* it is recv's, which is what the root sends */
        sides.recv_out = !sides.recv_in;
        sides.send.n_blocks = 0;
    }
    return sides;
}

static size_t add(size_t a, size_t b)
{
    size_t sum;
    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static size_t block_bytes(const struct tutti_call_side *side, size_t b)
{
    size_t bytes;
    if (!side->counts) return side->block_bytes;
    return __builtin_mul_overflow(side->counts[b], side->element, &bytes) ? SIZE_MAX : bytes;
}

/* Blocks that are sent may overlap: their sum may be more than there is memory. */
static size_t side_bytes(const struct tutti_call_side *side)
{
    size_t bytes = 0;
    for (size_t b = 0; b < side->n_blocks; b++) bytes = add(bytes, block_bytes(side, b));
    return bytes;
}

static size_t round_up(size_t bytes)
{
    return bytes > SIZE_MAX - APART ? SIZE_MAX : (bytes + APART - 1) & ~(size_t)(APART - 1);
}

static size_t recv_begin(const struct sides *sides)
{
    return round_up(side_bytes(&sides->send));
}

size_t tutti_pinned_bytes(const struct tutti_call *call)
{
    struct sides sides = sides_of(call);
    return round_up(add(recv_begin(&sides), side_bytes(&sides.recv)));
}

/* Blocks that follow one another are one run. */
static enum tutti_status side_whole(const struct tutti_call_side *side, size_t begin, tutti_pinned_visit visit,
                                    void *arg)
{
    char *device = (char *)(uintptr_t)side->base;
    size_t packed = 0, run_at = 0, run_from = 0, run = 0;
    for (size_t b = 0; b < side->n_blocks; b++) {
        size_t bytes = block_bytes(side, b);
        size_t at = side->displs ? side->displs[b] * side->element : packed;
        if (bytes == 0) continue;
        if (run > 0 && at != run_at + run) {
            TUTTI_TRY(visit(arg, device + run_at, begin + run_from, run));
            run = 0;
        }
        if (run == 0) run_at = at, run_from = packed;
        run += bytes;
        packed += bytes;
    }
    return run > 0 ? visit(arg, device + run_at, begin + run_from, run) : TUTTI_OK;
}

/* Blocks lie packed on both sides; of each chunk of each block the slices are one run. */
static enum tutti_status side_part(const struct tutti_call_side *side, size_t begin,
                                   const struct tutti_pinned_part *part, tutti_pinned_visit visit, void *arg)
{
    const struct tutti_layout *l = part->layout;
    for (size_t b = 0; b < side->n_blocks; b++)
        for (uint32_t chunk = 0; chunk < l->per_block; chunk++) {
            size_t first, last;
            tutti_layout_part(l, 0, chunk, part->first, &first);
            size_t end = tutti_layout_part(l, 0, chunk, part->until - 1, &last) + last;
            size_t at = b * side->block_bytes + first * l->element;
            if (end == first) continue;
            TUTTI_TRY(visit(arg, (char *)(uintptr_t)side->base + at, begin + at, (end - first) * l->element));
        }
    return TUTTI_OK;
}

struct visitor {
    const struct tutti_pinned_part *part;
    tutti_pinned_visit visit;
    void *arg;
};

static enum tutti_status side_each(const struct tutti_call_side *side, size_t begin, const struct visitor *v)
{
    return v->part ? side_part(side, begin, v->part, v->visit, v->arg) : side_whole(side, begin, v->visit, v->arg);
}

enum tutti_status tutti_pinned_each(const struct tutti_call *call, enum tutti_pinned_way way,
                                    const struct tutti_pinned_part *part, tutti_pinned_visit visit, void *arg)
{
    const struct visitor visitor = {part, visit, arg};
    struct sides sides = sides_of(call);
    bool in = way == TUTTI_PINNED_IN;
    if (in) TUTTI_TRY(side_each(&sides.send, 0, &visitor));
    if (in ? sides.recv_in : sides.recv_out) TUTTI_TRY(side_each(&sides.recv, recv_begin(&sides), &visitor));
    return TUTTI_OK;
}

void tutti_pinned_put(struct tutti_call *call, char *pinned)
{
    struct sides sides = sides_of(call);
    call->job.bind.input = side_bytes(&sides.send) > 0 ? pinned : NULL;
    call->job.bind.output = side_bytes(&sides.recv) > 0 ? pinned + recv_begin(&sides) : NULL;
    if (call->type == TUTTI_CALL_COLLECTIVE && tutti_kind_info(call->job.info.kind)->in_place == TUTTI_ONE_BUFFER)
        call->job.bind.input = call->job.bind.output;
    call->job.bind.displs = call->job.bind.in_displs = NULL;
}
