/* SPDX-License-Identifier: BSD-3-Clause */

/* Opening and closing. A card says which oneCCL a member has and which process it is; that of slot 0 where the boards
 * are, and the id of the communicator that the first call makes. */

#include "backend/library/oneccl.h"
#include "backend/shared.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CARD_VERSION 1
#define FAREWELL_NS TUTTI_NS_PER_S /* for the others to come to the end, too */
#define NAP_NS UINT64_C(50000)
#define GIVEN_UP (UINT32_C(1) << 31)

struct oneccl_card {
    struct oneccl_about about;
    uint64_t boards; /* offset in the heap; of slot 0 */
    uint32_t has_boards, unused;
    char id[ONECCL_ID_TOLD]; /* slot 0's */
};
_Static_assert(sizeof(struct oneccl_card) <= TUTTI_BACKEND_CARD_MOST, "a card holds what is told");

uint64_t oneccl_process_number(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t number;
    static int of; /* a child is another process */
    pthread_mutex_lock(&lock);
    if (of != (int)getpid() && tutti_random_bytes(&number, sizeof number) == TUTTI_OK) of = (int)getpid();
    const uint64_t out = of == (int)getpid() ? number | 1 : 0;
    pthread_mutex_unlock(&lock);
    return out;
}

static void discard(struct oneccl_backend *b)
{
    tutti_free(b->members);
    tutti_free(b);
}

enum tutti_status oneccl_id_make(const struct oneccl_library *library, struct oneccl_id *out)
{
    const bool held = oneccl_lock();
    const int result = library->id_get(out);
    oneccl_unlock(held);
    if (result != ONECCL_OK)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "onecclGetUniqueId failed with result %d", result);
    for (size_t i = ONECCL_ID_TOLD; i < ONECCL_ID_BYTES; i++)
        if (out->bytes[i])
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "oneCCL's id is longer than %d bytes", ONECCL_ID_TOLD);
    return TUTTI_OK;
}

/* Slot 0 gives the boards, and an id. */
static enum tutti_status lead(struct oneccl_backend *b, struct oneccl_card *card)
{
    TUTTI_TRY(oneccl_id_make(b->library, &b->like.id));
    memcpy(card->id, b->like.id.bytes, sizeof card->id);
    if (!card->has_boards) return TUTTI_OK;
    void *memory = NULL;
    TUTTI_TRY(tutti_shared_open(b->transport, false, b->boards_bytes, "boards", &memory, &card->boards));
    b->boards = memory;
    atomic_store(&b->boards->users, b->n);
    const uint32_t fences = tutti_fence_all_available() ? 0 : 1;
    for (uint32_t r = 0; r < b->n; r++) b->boards->of[r].bell.fences = fences;
    return TUTTI_OK;
}

static enum tutti_status oneccl_open(const struct tutti_backend_config *config, void *out_card,
                                     struct tutti_backend **out)
{
    if (config->n == 1) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "a rank alone needs no oneCCL");
    if (tutti_memory_is_one(config->transport->memory))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the ranks are of one process, for which oneCCL hangs");
    if (oneccl_is_lost()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, ONECCL_IS_LOST);
    const struct oneccl_library *library = oneccl_library(config->options, false);
    if (!library) return tutti_last_error()->status;
    struct oneccl_card card = {.about = {CARD_VERSION, (uint32_t)library->version, oneccl_process_number()},
                               .has_boards =
                                   tutti_memory_reaches_all(config->transport->memory, config->members, config->n)};
    struct oneccl_backend *b = tutti_alloc(sizeof *b);
    uint32_t *members = tutti_alloc_array(config->n, sizeof *members);
    if (!b || !members) {
        tutti_free(b);
        tutti_free(members);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an instance");
    }
    memcpy(members, config->members, config->n * sizeof *members);
    *b =
        (struct oneccl_backend){.base.ops = &tutti_backend_oneccl,
                                .library = library,
                                .transport = config->transport,
                                .control = config->control,
                                .team = config->team,
                                .members = members,
                                .n = config->n,
                                .me = config->me,
                                .reproducible = config->reproducible,
                                .boards_bytes = sizeof(struct oneccl_boards) + config->n * sizeof(struct oneccl_board)};
    b->like.library = library;
    b->like.n = b->n, b->like.me = b->me;
    b->like.spins = config->n_cpus >= 2 * config->n;
    if (b->me == 0 && lead(b, &card) < 0) {
        discard(b);
        return tutti_last_error()->status;
    }
    memcpy(out_card, &card, sizeof card);
    *out = &b->base;
    return TUTTI_OK;
}

/* ---- connect ---- */

static void card_read(const void *cards, size_t stride, uint32_t r, struct oneccl_card *out)
{
    memcpy(out, (const char *)cards + r * stride, sizeof *out);
}

static void about_read(const void *cards, size_t stride, uint32_t r, struct oneccl_about *out)
{
    memcpy(out, (const char *)cards + r * stride, sizeof *out);
}

enum tutti_status oneccl_members_check(const void *cards, size_t stride, uint32_t n)
{
    struct oneccl_about first, card, other;
    about_read(cards, stride, 0, &first);
    for (uint32_t r = 0; r < n; r++) {
        about_read(cards, stride, r, &card);
        if (card.card != CARD_VERSION || card.oneccl / 100 != first.oneccl / 100)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "rank %u has oneCCL %u.%u, and rank 0 %u.%u", r,
                              card.oneccl / 10000, card.oneccl / 100 % 100, first.oneccl / 10000,
                              first.oneccl / 100 % 100);
        for (uint32_t q = 0; q < r; q++) {
            about_read(cards, stride, q, &other);
            if (card.process == 0 || card.process == other.process)
                return tutti_fail(TUTTI_ERR_UNSUPPORTED, "ranks %u and %u are of one process, for which oneCCL hangs",
                                  q, r);
        }
    }
    return TUTTI_OK;
}

static enum tutti_status cards_check(const void *cards, size_t stride, uint32_t n)
{
    struct oneccl_card first, card;
    card_read(cards, stride, 0, &first);
    for (uint32_t r = 1; r < n; r++) {
        card_read(cards, stride, r, &card);
        if (card.has_boards != first.has_boards)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "rank %u and rank 0 see different hosts", r);
    }
    return oneccl_members_check(cards, stride, n);
}

static enum tutti_status boards_map(struct oneccl_backend *b, const struct oneccl_card *first)
{
    b->like.compares = !first->has_boards;
    if (!first->has_boards || b->me == 0) return TUTTI_OK;
    b->boards = tutti_shared_map(b->transport, false, b->members[0], first->boards, b->boards_bytes);
    if (!b->boards) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "rank 0's boards can not be mapped");
    if (!b->boards->of[b->me].bell.fences) (void)tutti_fence_all_available(); /* takes part in fences of others */
    return TUTTI_OK;
}

/* Memory that others have mapped stays until the world closes, unless its giver is the last. */
static void boards_leave(struct oneccl_backend *b)
{
    if (!b->boards) return;
    const bool alone = !b->connected || atomic_fetch_sub(&b->boards->users, 1) == 1;
    if (b->me == 0 && alone) tutti_shared_free(b->transport, false, b->boards, b->boards_bytes);
}

static enum tutti_status oneccl_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct oneccl_backend *b = oneccl_of(backend);
    struct oneccl_card first;
    card_read(cards, stride, 0, &first);
    enum tutti_status status = boards_map(b, &first);
    if (status == TUTTI_OK) status = cards_check(cards, stride, b->n);
    b->connected = true; /* others may have mapped the boards */
    if (status < 0) {
        boards_leave(b);
        discard(b);
        return status;
    }
    memcpy(b->like.id.bytes, first.id, sizeof first.id);
    return TUTTI_OK;
}

static bool all_live(const struct oneccl_end *end)
{
    for (uint32_t r = 0; r < end->n; r++)
        if (r != end->me && end->control->ops->life(end->control, end->members[r]) == TUTTI_LIFE_DEAD) return false;
    return true;
}

bool oneccl_all_end(const struct oneccl_end *end, uint64_t deadline_ns)
{
    const uint64_t until = oneccl_sooner(FAREWELL_NS, deadline_ns);
    uint32_t ended = atomic_load(end->ended);
    while (!(ended & GIVEN_UP) && !atomic_compare_exchange_weak(end->ended, &ended, ended + 1)) {
    }
    if (ended & GIVEN_UP) return false;
    while ((ended = atomic_load(end->ended)) < end->n && tutti_now_ns() < until && all_live(end))
        tutti_sleep_ns(NAP_NS);
    if (ended < end->n) ended = atomic_fetch_or(end->ended, GIVEN_UP);
    return (ended & ~GIVEN_UP) == end->n;
}

void oneccl_end_early(const struct oneccl_end *end)
{
    atomic_fetch_or(end->ended, GIVEN_UP);
}

/* oneCCL destroys a communicator together: rank 0 waits for the others, and these end their process where rank 0's is
 * gone. So all do it at once, or nobody does: then it stays until the process ends, as it does between hosts. */
static bool may_destroy(struct oneccl_backend *b, uint64_t deadline_ns)
{
    if (!b->boards) return false;
    const struct oneccl_end end = {b->control, b->members, b->n, b->me, &b->boards->ended};
    if (!b->lost) return oneccl_all_end(&end, deadline_ns);
    oneccl_end_early(&end);
    return false;
}

static void oneccl_close(struct tutti_backend *backend, uint64_t deadline_ns)
{
    struct oneccl_backend *b = oneccl_of(backend);
    const bool together = (b->carrier || b->lost) && may_destroy(b, deadline_ns);
    if (b->carrier) oneccl_carrier_end(b->carrier, together, deadline_ns);
    boards_leave(b);
    discard(b);
}

/* ---- the rest ---- */

static double oneccl_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    const struct oneccl_backend *b = oneccl_of(backend);
    if (!oneccl_can(b->library, call, b->n, false)) return HUGE_VAL;
    if (b->reproducible && tutti_kind_info(call->info.kind)->reduces) return HUGE_VAL;
    return oneccl_cost_ns(call, b->n);
}

static size_t oneccl_memory_used(const struct tutti_backend *backend)
{
    const struct oneccl_backend *b = oneccl_of(backend);
    return b->boards && b->me == 0 ? b->boards_bytes : 0;
}

static void oneccl_describe(const struct tutti_backend *backend, char *out, size_t capacity)
{
    const struct oneccl_backend *b = oneccl_of(backend);
    snprintf(out, capacity, "oneCCL %d.%d", b->library->version / 10000, b->library->version / 100 % 100);
}

const struct tutti_backend_ops tutti_backend_oneccl = {
    .name = "oneccl",
    .help = "Intel's library, by name",
    .is_library = true,
    .card_bytes = sizeof(struct oneccl_card),
    .open = oneccl_open,
    .connect = oneccl_connect,
    .close = oneccl_close,
    .score = oneccl_score,
    .memory_used = oneccl_memory_used,
    .describe = oneccl_describe,
    .begin = oneccl_begin,
    .run_inline = oneccl_run_inline,
    .overlay = oneccl_overlay,
};
