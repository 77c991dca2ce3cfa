/* SPDX-License-Identifier: BSD-3-Clause */

/* Opening and closing. A card says where a member's board is; connecting maps the boards and looks whether NCCL would
 * take these members. */

#include "backend/library/nccl.h"

#include <math.h>
#include <string.h>

#define CARD_VERSION 4
#define NAP_NS UINT64_C(50000)
#define FAREWELL_NS (2 * TUTTI_NS_PER_S) /* for peers to be done with what this member has done */
#define EXIT_NS                                                                                                        \
    (10 * TUTTI_NS_PER_S)            /* for a communicator before the process may exit, which must not be meanwhile;   \
                                      */
#define HELD_NS (3 * TUTTI_NS_PER_S) /* and where a graph may hold calls of it, which it waits for */

struct nccl_card {
    uint32_t version, nccl;
    unsigned char uuid[16];
    uint64_t board; /* offset in the heap, or address */
    uint32_t shares, unused;
};
_Static_assert(sizeof(struct nccl_card) <= TUTTI_BACKEND_CARD_MOST, "a card holds what is told");

static void discard(struct nccl_backend *b)
{
    const struct watch_remains nothing = {0};
    watch_marks_free(&b->marks);
    watch_member_close(&b->watched, nothing);
    nccl_ending_leave(b);
    pthread_mutex_destroy(&b->lock);
    tutti_free(b);
}

static enum tutti_status nccl_open(const struct tutti_backend_config *config, void *out_card,
                                   struct tutti_backend **out)
{
    const struct nccl_library *library = nccl_library(config->options->text[TUTTI_OPT_nccl_library]);
    if (!library) return tutti_last_error()->status;
    struct nccl_backend *b = tutti_alloc(sizeof *b);
    if (!b) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a device back end");
    enum tutti_status status = TUTTI_OK;
    struct nccl_card card = {
        .version = CARD_VERSION, .nccl = (uint32_t)library->version, .shares = nccl_shares(library)};
    b->base.ops = &tutti_backend_nccl;
    b->watched.ops = &nccl_watch_ops;
    b->library = library;
    b->gpu = config->device, b->blocks = config->blocks;
    b->reproducible = config->reproducible;
    b->marks.watched = &b->watched, b->marks.gpu = b->gpu, b->marks.name = "nccl";
    memcpy(card.uuid, b->gpu->uuid, sizeof card.uuid);
    pthread_mutex_init(&b->lock, NULL);
    TUTTI_TRY_GOTO(status, watch_member_open(&b->watched, config, "nccl", sizeof(struct nccl_board), &card.board),
                   err_backend);
    memcpy(out_card, &card, sizeof card);
    *out = &b->base;
    return TUTTI_OK;
err_backend:
    b->watched.agreed = true; /* nobody has heard of it */
    discard(b);
    return status;
}

/* ---- connect ---- */

static void card_read(const void *cards, size_t stride, uint32_t r, struct nccl_card *out)
{
    memcpy(out, (const char *)cards + r * stride, sizeof *out);
}

/* What NCCL would find out only when the communicator is made. */
static enum tutti_status cards_check(const struct nccl_backend *b, const void *cards, size_t stride)
{
    struct nccl_card first, card, other;
    card_read(cards, stride, 0, &first);
    for (uint32_t r = 0; r < b->watched.n; r++) {
        card_read(cards, stride, r, &card);
        if (card.version != CARD_VERSION || card.nccl / 100 != first.nccl / 100)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "rank %u has NCCL %u.%u, and rank 0 %u.%u", r, card.nccl / 10000,
                              card.nccl / 100 % 100, first.nccl / 10000, first.nccl / 100 % 100);
        for (uint32_t q = 0; q < r; q++) {
            card_read(cards, stride, q, &other);
            if (memcmp(card.uuid, other.uuid, sizeof card.uuid) == 0 && !(card.shares && other.shares))
                return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                                  "ranks %u and %u share a GPU, which NCCL allows from 2.30 on where "
                                  "NCCL_MULTI_RANK_GPU_ENABLE is 1",
                                  q, r);
        }
    }
    return TUTTI_OK;
}

static enum tutti_status boards_map(struct nccl_backend *b, const void *cards, size_t stride)
{
    b->watched.seen = true;
    for (uint32_t r = 0; r < b->watched.n; r++) {
        struct nccl_card card;
        card_read(cards, stride, r, &card);
        TUTTI_TRY(watch_member_map(&b->watched, r, card.board));
    }
    return TUTTI_OK;
}

static enum tutti_status nccl_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct nccl_backend *b = nccl_of(backend);
    /* First, so that all members let go of all boards, however it ends. */
    enum tutti_status status = boards_map(b, cards, stride);
    if (status == TUTTI_OK) status = cards_check(b, cards, stride);
    if (status < 0) discard(b);
    return status;
}

static void nccl_connected(struct tutti_backend *backend)
{
    nccl_of(backend)->watched.agreed = true;
}

/* ---- the end ---- */

static void *nccl_last_event(struct tutti_backend *backend)
{
    return watch_marks_last(&nccl_of(backend)->marks);
}

static void nccl_close(struct tutti_backend *backend, uint64_t deadline_ns)
{
    struct nccl_backend *b = nccl_of(backend);
    const bool over = watch_marks_over(&b->marks, deadline_ns);
    if (!over) nccl_stop(b); /* what the watch may be waiting for in the driver ends */
    watch_remove(&b->watched);
    atomic_store(&nccl_own(b)->log.closed, 1);
    const uint64_t until = tutti_deadline_ns(FAREWELL_NS);
    while (over && nccl_made(b) && !watch_peers_done(&b->watched) && tutti_now_ns() < until) tutti_sleep_ns(NAP_NS);
    nccl_end_begin(b, over && b->watched.n == 1);
    nccl_end_wait(b, atomic_load(&b->watched.captured) ? HELD_NS : EXIT_NS);
    discard(b);
}

/* ---- the rest ---- */

/* Its communicator takes seconds and memory when the first call makes it: a few percent are not worth that. */
#define WORTH_IT 2.0

static double nccl_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    const struct nccl_backend *b = nccl_of(backend);
    if (b->reproducible && tutti_kind_info(call->info.kind)->reduces) return HUGE_VAL; /* not in rank order */
    return nccl_can(call, b->watched.n) ? WORTH_IT * nccl_cost_ns(b, call) : HUGE_VAL;
}

static void stop(struct tutti_backend *backend)
{
    nccl_stop(nccl_of(backend));
}

static bool nccl_failed(struct tutti_backend *backend)
{
    return atomic_load(&nccl_of(backend)->marks.stopped);
}

static size_t nccl_scratch_used(const struct tutti_backend *backend)
{
    (void)backend;
    return 0; /* none of ours; NCCL does not say how much it takes */
}

const struct tutti_backend_ops tutti_backend_nccl = {
    .name = "nccl",
    .help = "NVIDIA GPUs, by NVIDIA's library, where it is installed",
    .device = &tutti_device_cuda,
    .card_bytes = sizeof(struct nccl_card),
    .open = nccl_open,
    .connect = nccl_connect,
    .connected = nccl_connected,
    .close = nccl_close,
    .score = nccl_score,
    .enqueue = nccl_enqueue,
    .messages = nccl_messages,
    .stop = stop,
    .failed = nccl_failed,
    .last_event = nccl_last_event,
    .memory_used = nccl_scratch_used,
};
