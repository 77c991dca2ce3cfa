/* SPDX-License-Identifier: BSD-3-Clause */

/* Opening and closing. A card says where a member's board is; connecting maps the boards and looks whether NCCL would
 * take these members. The communicator is made at the first call, for which slot 0 puts its id on its board. What waits
 * within NCCL is ended from outside, by the watch, which aborts the communicator: NCCL knows no deadlines. */

#include "backend/nccl/nccl.h"
#include "backend/shared.h"

#include <math.h>
#include <string.h>

#define CARD_VERSION 4
#define NAP_NS UINT64_C(50000)
#define FAREWELL_NS (2 * TUTTI_NS_PER_S) /* for peers to be done with what this member has done */
#define STUCK_NS (TUTTI_NS_PER_S / 2)    /* within NCCL, which is long where nothing connects */
#define ENDING_NS TUTTI_NS_PER_S         /* of a communicator, as a rule; */
#define EXIT_NS (10 * TUTTI_NS_PER_S)    /* for it before the process may exit, which must not be meanwhile; */
#define HELD_NS (3 * TUTTI_NS_PER_S)     /* and where a graph may hold calls of it, which it waits for */

struct card {
    uint32_t version, nccl;
    unsigned char uuid[16];
    uint64_t board; /* offset in the heap, or address */
    uint32_t shares, unused;
};
_Static_assert(sizeof(struct card) <= TUTTI_DEVICE_CARD_BYTES, "a card holds what is told");

/* ---- the end of a communicator ---- */

/* ncclCommAbort ends what runs on the device at once, but returns only when there is no graph any more that holds a
 * call of the communicator: a thread of its own waits for that. It is there from the beginning, for the end has no time
 * for errors, and lasts as long as NCCL takes; where that is longer than can be waited for, it frees what it has. */
struct nccl_ending {
    pthread_t thread;
    const struct nccl_library *library;
    struct tutti_gpu *gpu; /* until it is within */
    void *comm;            /* NULL: there was none */
    bool alone;            /* nobody is left to wait for, and all is well: destroyed, which is quicker */
    _Atomic uint32_t state;
};
enum { ENDING_AWAITED, ENDING_BEGUN, ENDING_WITHIN, ENDING_OVER, ENDING_LEFT };

static void *ending_run(void *arg)
{
    struct nccl_ending *ending = arg;
    struct tutti_gpu_scope scope;
    while (atomic_load(&ending->state) == ENDING_AWAITED) tutti_futex_wait(&ending->state, ENDING_AWAITED, TUTTI_NEVER);
    const bool entered = ending->comm && tutti_gpu_enter(ending->gpu, &scope) == TUTTI_OK;
    atomic_store(&ending->state, ENDING_WITHIN);
    if (entered) {
        if (!ending->alone || ending->library->comm_destroy(ending->comm) != NCCL_OK)
            ending->library->comm_abort(ending->comm);
        tutti_gpu_leave(&scope);
    }
    if (atomic_exchange(&ending->state, ENDING_OVER) == ENDING_LEFT) tutti_free(ending);
    return NULL;
}

static enum tutti_status ending_start(struct nccl_backend *b)
{
    struct nccl_ending *ending = tutti_alloc(sizeof *ending);
    if (!ending) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for NCCL's communicator");
    ending->library = b->library, ending->gpu = b->gpu;
    const enum tutti_status status = nccl_thread_start(&ending->thread, ending_run, ending);
    if (status < 0) {
        tutti_free(ending);
        return status;
    }
    atomic_store(&b->ending, ending);
    return TUTTI_OK;
}

static void ending_begin(struct nccl_ending *ending, void *comm, bool alone)
{
    ending->comm = comm;
    ending->alone = alone;
    atomic_store(&ending->state, ENDING_BEGUN);
    tutti_futex_wake(&ending->state, 1);
}

/* Until it is over; or, once it needs nothing of ours any more, for so long. */
static void ending_wait(const struct nccl_ending *ending, uint64_t most_ns)
{
    const uint64_t until = tutti_deadline_ns(most_ns);
    for (;;) {
        const uint32_t state = atomic_load(&ending->state);
        if (state == ENDING_OVER || (state == ENDING_WITHIN && tutti_now_ns() >= until)) return;
        tutti_sleep_ns(NAP_NS);
    }
}

static bool has_begun(const struct nccl_ending *ending)
{
    return ending && atomic_load(&ending->state) != ENDING_AWAITED;
}

/* The communicator, or that there is none, has been ended. A thread that is over is joined: what NCCL and the driver
 * hold for threads goes before the process, which may exit next. */
static void ending_leave(struct nccl_ending *ending)
{
    if (!ending) return;
    const pthread_t thread = ending->thread;
    if (!has_begun(ending)) ending_begin(ending, NULL, false);
    while (atomic_load(&ending->state) < ENDING_WITHIN) tutti_sleep_ns(NAP_NS);
    if (ending->comm && atomic_exchange(&ending->state, ENDING_LEFT) != ENDING_OVER) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    tutti_free(ending);
}

static void end_begin(struct nccl_backend *b, bool alone)
{
    atomic_store(&b->stopped, true);
    if (has_begun(atomic_load(&b->ending))) return;
    const bool locked = tutti_mutex_lock_within(&b->lock, STUCK_NS);
    void *comm = __atomic_exchange_n(&b->comm, NULL, __ATOMIC_ACQ_REL);
    if (locked) pthread_mutex_unlock(&b->lock);
    if (comm) ending_begin(atomic_load(&b->ending), comm, alone && locked);
}

void nccl_stop_begin(struct nccl_backend *b)
{
    end_begin(b, false);
}

static void end_wait(struct nccl_backend *b, uint64_t most_ns)
{
    const struct nccl_ending *ending = atomic_load(&b->ending);
    if (has_begun(ending)) ending_wait(ending, most_ns);
}

void nccl_stop(struct tutti_device_backend *backend)
{
    nccl_stop_begin(nccl_of(backend));
    end_wait(nccl_of(backend), ENDING_NS);
}

bool nccl_is_left(const struct nccl_backend *b)
{
    return atomic_load(&b->within_ns) && !has_begun(atomic_load(&b->ending));
}

static bool nccl_failed(struct tutti_device_backend *backend)
{
    return atomic_load(&nccl_of(backend)->stopped);
}

/* ---- open ---- */

static void discard(struct nccl_backend *b)
{
    for (uint32_t i = 0; i < NCCL_MARKS; i++) {
        tutti_gpu_event_destroy(b->gpu, b->marks[i].begun);
        tutti_gpu_event_destroy(b->gpu, b->marks[i].over);
    }
    nccl_boards_close(b);
    ending_leave(atomic_load(&b->ending));
    pthread_mutex_destroy(&b->lock);
    tutti_free(b);
}

static enum tutti_status refuse(const struct tutti_device_config *config)
{
    if (config->n > CUDA_MAX_RANKS)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "nccl serves up to %d ranks, not %u", CUDA_MAX_RANKS, config->n);
    if (config->n > 1 && !(config->transport->caps & (TUTTI_CAP_ADDRESSES | TUTTI_CAP_HEAP)))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "nccl needs memory of the host that all ranks map, which %s has not",
                          config->transport->name);
    return TUTTI_OK;
}

static enum tutti_status nccl_open(const struct tutti_device_config *config, void *out_card,
                                   struct tutti_device_backend **out)
{
    TUTTI_TRY(refuse(config));
    const struct nccl_library *library = nccl_library(config->library);
    if (!library) return tutti_last_error()->status;
    struct nccl_backend *b = tutti_alloc(sizeof *b);
    if (!b) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a device back end");
    enum tutti_status status = TUTTI_OK;
    struct card card = {.version = CARD_VERSION, .nccl = (uint32_t)library->version, .shares = nccl_shares(library)};
    b->base.ops = &tutti_device_nccl;
    b->library = library;
    b->gpu = config->gpu, b->transport = config->transport, b->control = config->control, b->team = config->team;
    b->n = config->n, b->me = config->me, b->blocks = config->blocks;
    memcpy(b->members, config->members, b->n * sizeof *b->members);
    memcpy(card.uuid, b->gpu->uuid, sizeof card.uuid);
    pthread_mutex_init(&b->lock, NULL);
    TUTTI_TRY_GOTO(status, nccl_board_open(b, &card.board), err_backend);
    memset(out_card, 0, TUTTI_DEVICE_CARD_BYTES);
    memcpy(out_card, &card, sizeof card);
    *out = &b->base;
    return TUTTI_OK;
err_backend:
    b->alone = true; /* nobody has heard of it */
    discard(b);
    return status;
}

/* ---- connect ---- */

static void card_read(const void *cards, size_t stride, uint32_t r, struct card *out)
{
    memcpy(out, (const char *)cards + r * stride, sizeof *out);
}

/* What NCCL would find out only when the communicator is made. */
static enum tutti_status cards_check(const struct nccl_backend *b, const void *cards, size_t stride)
{
    struct card first, card, other;
    card_read(cards, stride, 0, &first);
    for (uint32_t r = 0; r < b->n; r++) {
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
    b->connected = true;
    for (uint32_t r = 0; r < b->n; r++) {
        struct card card;
        card_read(cards, stride, r, &card);
        if (r == b->me) continue;
        b->boards[r] =
            tutti_shared_map(b->transport, b->addresses, b->members[r], card.board, sizeof(struct nccl_board));
        if (!b->boards[r]) return tutti_fail(TUTTI_ERR_SYSTEM, "the log of rank %u can not be mapped", r);
    }
    return TUTTI_OK;
}

static enum tutti_status nccl_connect(struct tutti_device_backend *backend, const void *cards, size_t stride)
{
    struct nccl_backend *b = nccl_of(backend);
    /* First, so that all members let go of all boards, however it ends. */
    enum tutti_status status = boards_map(b, cards, stride);
    if (status == TUTTI_OK) status = cards_check(b, cards, stride);
    if (status < 0) discard(b);
    return status;
}

static void nccl_connected(struct tutti_device_backend *backend)
{
    nccl_of(backend)->alone = true;
}

/* ---- the communicator ---- */

/* Whether there is any point in waiting on. */
static enum tutti_status go_on(const struct nccl_backend *b, uint64_t deadline_ns, const char *what)
{
    struct tutti_error error;
    struct tutti_board call;
    if (tutti_team_state(b->team, &error) < 0) return tutti_fail_record(&error);
    for (uint32_t r = 0; r < b->n; r++) {
        const enum tutti_life life = r == b->me ? TUTTI_LIFE_ALIVE : nccl_life(b, r, &call);
        if (life == TUTTI_LIFE_ALIVE) continue;
        return tutti_fail(life == TUTTI_LIFE_DEAD ? TUTTI_ERR_PEER_DEAD : TUTTI_ERR_PEER_LEFT,
                          "rank %u %s while rank %u was waiting for %s", r, life == TUTTI_LIFE_DEAD ? "died" : "left",
                          b->me, what);
    }
    if (tutti_now_ns() >= deadline_ns)
        return tutti_fail(TUTTI_ERR_TIMEOUT, "the deadline passed while rank %u was waiting for %s", b->me, what);
    tutti_sleep_ns(NAP_NS);
    return TUTTI_OK;
}

enum tutti_status nccl_refused(const struct nccl_backend *b, int result, const char *call)
{
    const char *last = b->library->last_error(NULL);
    return tutti_fail(TUTTI_ERR_SYSTEM, "%s on CUDA device %d: %s%s%.200s", call, b->gpu->ordinal,
                      b->library->error_text(result), last && *last ? ": " : "", last ? last : "");
}

/* NCCL hears of a peer's end before the watch does, and does not name it; the watch stops NCCL before it tells why. */
static void echo_wait(const struct nccl_backend *b)
{
    const uint64_t until = tutti_deadline_ns(NCCL_ECHO_NS);
    while (!tutti_team_failed(b->team) && tutti_now_ns() < until) tutti_sleep_ns(NAP_NS);
}

void *nccl_enter(struct nccl_backend *b)
{
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->within_ns, tutti_now_ns());
    return __atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
}

enum tutti_status nccl_leave(struct nccl_backend *b, int result, const char *call)
{
    struct tutti_error error;
    const bool gone = !__atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
    if (gone || result > 0) echo_wait(b);
    atomic_store(&b->within_ns, 0);
    pthread_mutex_unlock(&b->lock);
    if ((gone || result > 0) && tutti_team_state(b->team, &error) < 0) return tutti_fail_record(&error);
    if (result < 0) return tutti_last_error()->status;
    if (result != NCCL_OK) return nccl_refused(b, result, call);
    return gone ? tutti_fail(TUTTI_ERR_ABORTED, "the communicator was stopped on the device") : TUTTI_OK;
}

/* The id that slot 0 makes, of which it tells the others on its board. */
static enum tutti_status id_agree(struct nccl_backend *b, uint64_t deadline_ns, struct nccl_id *out)
{
    struct nccl_board *board = b->boards[0];
    if (b->me == 0) {
        const int result = b->library->id_get(&board->id);
        if (result != NCCL_OK) return nccl_refused(b, result, "ncclGetUniqueId");
        atomic_store_explicit(&board->ready, 1, memory_order_release);
    }
    while (!atomic_load_explicit(&board->ready, memory_order_acquire))
        TUTTI_TRY(go_on(b, deadline_ns, "rank 0's first call of NCCL"));
    *out = board->id;
    return TUTTI_OK;
}

static enum tutti_status comm_make(struct nccl_backend *b, uint64_t deadline_ns)
{
    const struct nccl_config config = {
        .size = sizeof config,
        .magic = NCCL_CONFIG_MAGIC,
        .version = NCCL_NEEDED,
        .cluster = NCCL_UNSET,
        .min_ctas = NCCL_UNSET,
        .max_ctas = b->blocks ? (int)b->blocks : NCCL_UNSET,
        .split_share = NCCL_UNSET,
        .blocking = 1, /* else every call is a thread of its own */
    };
    struct nccl_id id;
    TUTTI_TRY(id_agree(b, deadline_ns, &id));
    nccl_enter(b);
    /* Not where it was stopped meanwhile: who stops before this rank is within finds nothing to end. */
    const int result =
        atomic_load(&b->stopped) ? NCCL_OK : b->library->comm_init(&b->comm, (int)b->n, id, (int)b->me, &config);
    return nccl_leave(b, result, "ncclCommInitRankConfig");
}

enum tutti_status nccl_make(struct nccl_backend *b, uint64_t timeout_ns)
{
    if (nccl_made(b)) return TUTTI_OK;
    enum tutti_status status = ending_start(b);
    if (status == TUTTI_OK) status = nccl_watch_start(b);
    if (status == TUTTI_OK) status = comm_make(b, tutti_deadline_ns(timeout_ns));
    if (status < 0) return nccl_give_up(b, "the making of NCCL's communicator", tutti_team_next(b->team));
    atomic_store(&b->boards[b->me]->made, 1);
    return TUTTI_OK;
}

/* ---- the end ---- */

static void *nccl_last_event(struct tutti_device_backend *backend)
{
    const struct nccl_backend *b = nccl_of(backend);
    const uint64_t n = atomic_load(&b->n_enqueued);
    return n ? b->marks[(n - 1) % NCCL_MARKS].over : NULL;
}

/* Whether all that was enqueued is over at the deadline. */
static bool is_over(struct nccl_backend *b, uint64_t deadline_ns)
{
    void *event = nccl_last_event(&b->base);
    while (event && !tutti_team_failed(b->team)) {
        const enum tutti_status status = tutti_gpu_event_query(b->gpu, event);
        if (status != TUTTI_PENDING) return status == TUTTI_OK;
        if (tutti_now_ns() >= deadline_ns) return false;
        tutti_sleep_ns(NAP_NS);
    }
    return !tutti_team_failed(b->team);
}

/* Peers may still be reading what NCCL has here. True: all are done with it. */
static bool peers_are_done(struct nccl_backend *b)
{
    for (uint32_t r = 0; r < b->n; r++) {
        const struct cuda_log_pair pair = nccl_pair(b, r);
        if (r == b->me || atomic_load(&pair.theirs->closed)) continue;
        if (tutti_life_gone(b->control->ops->life(b->control, b->members[r]))) continue;
        if (atomic_load(&b->captured) || !cuda_log_done(&pair)) return false;
    }
    return true;
}

static void nccl_close(struct tutti_device_backend *backend, uint64_t deadline_ns)
{
    struct nccl_backend *b = nccl_of(backend);
    const bool over = is_over(b, deadline_ns);
    if (!over) nccl_stop(backend); /* what the watch may be waiting for in the driver ends */
    nccl_watch_end(b);
    atomic_store(&b->boards[b->me]->log.closed, 1);
    const uint64_t until = tutti_deadline_ns(FAREWELL_NS);
    while (over && nccl_made(b) && !peers_are_done(b) && tutti_now_ns() < until) tutti_sleep_ns(NAP_NS);
    end_begin(b, over && b->n == 1);
    end_wait(b, atomic_load(&b->captured) ? HELD_NS : EXIT_NS);
    discard(b);
}

/* ---- the rest ---- */

/* Its communicator takes seconds and memory when the first call makes it: a few percent are not worth that. */
#define WORTH_IT 2.0

static double nccl_score(const struct tutti_device_backend *backend, const struct tutti_backend_call *call)
{
    const struct nccl_backend *b = nccl_of(backend);
    return nccl_can(call, b->n) ? WORTH_IT * nccl_cost_ns(b, call) : HUGE_VAL;
}

static size_t nccl_scratch_used(const struct tutti_device_backend *backend)
{
    (void)backend;
    return 0; /* of ours; NCCL does not say how much it takes */
}

const struct tutti_device_backend_ops tutti_device_nccl = {
    .name = "nccl",
    .help = "NVIDIA GPUs, by NVIDIA's library, where it is installed",
    .open = nccl_open,
    .connect = nccl_connect,
    .connected = nccl_connected,
    .close = nccl_close,
    .score = nccl_score,
    .enqueue = nccl_enqueue,
    .messages = nccl_messages,
    .stop = nccl_stop,
    .failed = nccl_failed,
    .last_event = nccl_last_event,
    .scratch_used = nccl_scratch_used,
};
