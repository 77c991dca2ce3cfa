/* SPDX-License-Identifier: BSD-3-Clause */

/* Every kind over threads, with the simplest algorithms, against values computed here: sizes from nothing to many
 * slices, in and out of place, with and without credit to spare, copied, offered, and over a wire that borrows what it
 * sends and fills. Data is random by seed and known to all ranks as a function of (rank, block, index). */

#include "engine/flight/flight.h"
#include "engine/pass/rig_test.h"

static uint64_t seed;

static int32_t value(uint32_t rank, uint32_t block, size_t i)
{
    return (int32_t)(tutti_mix64(seed + rank * 1000003 + block * 10007 + i) & 0xffffff);
}

/* Composition of x -> a x + b, packed as a << 32 | b: associative, does not commute. */
static void compose(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    const uint64_t *l = left, *r = right;
    uint64_t *o = out;
    (void)dtype, (void)arg;
    for (size_t i = 0; i < count; i++) {
        uint32_t la = (uint32_t)(l[i] >> 32), lb = (uint32_t)l[i], ra = (uint32_t)(r[i] >> 32), rb = (uint32_t)r[i];
        o[i] = (uint64_t)(la * ra) << 32 | (uint32_t)(ra * lb + rb);
    }
}

static uint64_t affine(uint32_t rank, uint32_t block, size_t i)
{
    return tutti_mix64(seed + rank * 7919 + block * 104729 + i) | UINT64_C(1) << 32;
}

/* The fold over ranks first..last of a block's element. */
static uint64_t affine_fold(uint32_t first, uint32_t last, uint32_t block, size_t i)
{
    uint64_t all = affine(first, block, i), next;
    for (uint32_t r = first + 1; r <= last; r++) {
        next = affine(r, block, i);
        compose(&all, &next, &all, 1, TUTTI_UINT64, NULL);
    }
    return all;
}

struct sweep {
    enum tutti_kind kind;
    size_t count;
    bool in_place, user;
};

static bool blocks_in(enum tutti_kind kind)
{
    return kind == TUTTI_SCATTER || kind == TUTTI_REDUCE_SCATTER || kind == TUTTI_ALL_TO_ALL;
}
static bool blocks_out(enum tutti_kind kind)
{
    return kind == TUTTI_GATHER || kind == TUTTI_ALL_GATHER || kind == TUTTI_ALL_TO_ALL;
}

/* What a rank's input holds: one block, or one for each rank. */
static uint64_t input_of(const struct sweep *s, uint32_t rank, uint32_t block, size_t i)
{
    if (s->user) return affine(rank, block, i);
    return (uint64_t)(uint32_t)value(rank, block, i);
}

/* What block `block` of rank's output must hold; false: untouched. */
static bool expected(const struct sweep *s, uint32_t rank, uint32_t n, uint32_t root, uint32_t block, size_t i,
                     uint64_t *out)
{
    uint32_t first = 0, last = n - 1, b = 0;
    switch (s->kind) {
    case TUTTI_ALL_REDUCE:
        break;
    case TUTTI_REDUCE:
        if (rank != root) return false;
        break;
    case TUTTI_REDUCE_SCATTER:
        b = rank;
        break;
    case TUTTI_SCAN:
        last = rank;
        break;
    case TUTTI_EXSCAN:
        if (rank == 0) return false;
        last = rank - 1;
        break;
    case TUTTI_BROADCAST:
        *out = input_of(s, root, 0, i);
        return true;
    case TUTTI_GATHER:
        if (rank != root) return false;
        *out = input_of(s, block, 0, i);
        return true;
    case TUTTI_ALL_GATHER:
        *out = input_of(s, block, 0, i);
        return true;
    case TUTTI_SCATTER:
        *out = input_of(s, root, rank, i);
        return true;
    case TUTTI_ALL_TO_ALL:
        *out = input_of(s, block, rank, i);
        return true;
    default:
        return false;
    }
    if (s->user) {
        *out = affine_fold(first, last, b, i);
    } else {
        uint32_t sum = 0;
        for (uint32_t r = first; r <= last; r++) sum += (uint32_t)value(r, b, i);
        *out = sum;
    }
    return true;
}

static void put(void *buffer, bool wide, size_t i, uint64_t x)
{
    if (wide)
        ((uint64_t *)buffer)[i] = x;
    else
        ((uint32_t *)buffer)[i] = (uint32_t)x;
}
static uint64_t get(const void *buffer, bool wide, size_t i)
{
    return wide ? ((const uint64_t *)buffer)[i] : ((const uint32_t *)buffer)[i];
}

#define UNTOUCHED UINT64_C(0x5a5a5a5a)

/* One call of a kind on this rank, checked. Guard elements around the output must stay. */
static void run_one(struct rig_rank *rank, const struct sweep *s, uint32_t root)
{
    uint32_t n = rank->n, in_blocks = blocks_in(s->kind) ? n : 1, out_blocks = blocks_out(s->kind) ? n : 1;
    size_t element = s->user ? 8 : 4, room = (s->count * n + 8) * element;
    unsigned char *in = malloc(room), *out = malloc(room), *base = out;
    struct rig_call call = {.kind = s->kind,
                            .dtype = s->user ? TUTTI_UINT64 : TUTTI_INT32,
                            .op = s->user ? 20 : TUTTI_SUM,
                            .root = root,
                            .count = s->count,
                            .user = s->user ? compose : NULL};

    for (size_t i = 0; i < s->count * n + 8; i++) put(in, s->user, i, 0), put(out, s->user, i, UNTOUCHED);
    unsigned char *from = in, *to = out + 4 * element; /* unaligned to lines, with guards */
    if (s->in_place) {                                 /* the smaller side is the own block of the larger one */
        from = to;
        if (blocks_out(s->kind) && !blocks_in(s->kind)) from = to + rank->me * s->count * element;
        if (blocks_in(s->kind) && !blocks_out(s->kind)) to = from + rank->me * s->count * element;
    }
    for (uint32_t b = 0; b < in_blocks; b++)
        for (size_t i = 0; i < s->count; i++)
            put(from, s->user, b * s->count + i, input_of(s, rank->me, in_blocks == 1 ? 0 : b, i));
    call.input = from, call.output = to;
    if (s->kind == TUTTI_BROADCAST) {
        if (rank->me != root) memset(from, 0, s->count * element), call.input = NULL;
        call.output = from, to = from;
    }
    if (s->kind == TUTTI_SCATTER && rank->me != root) call.input = NULL;
    RIG_OK(rank, rig_call(rank, rank->team, &call));
    for (uint32_t b = 0; b < out_blocks; b++) {
        for (size_t i = 0; i < s->count; i++) {
            uint64_t want = 0, got = get(to, s->user, b * s->count + i);
            if (!expected(s, rank->me, n, root, b, i, &want)) {
                if (s->in_place) continue;
                want = UNTOUCHED;
            }
            RIG_CHECK(rank, got == want, "%s of %zu, %s place%s, root %u: block %u [%zu] is %" PRIx64 ", not %" PRIx64,
                      tutti_kind_name(s->kind), s->count, s->in_place ? "in" : "out of", s->user ? ", user" : "", root,
                      b, i, got, want);
        }
    }
    for (size_t i = 0; i < 4; i++)
        RIG_CHECK(rank, get(base, s->user, i) == UNTOUCHED && get(base, s->user, s->count * n + 4 + i) == UNTOUCHED,
                  "%s of %zu wrote outside", tutti_kind_name(s->kind), s->count);
    free(in);
    free(base);
}

static void every_kind(struct rig_rank *rank)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 61, 1000, 6000, 40000};

    for (size_t c = 0; c < TUTTI_ARRAY_LEN(counts); c++) {
        for (int kind = 0; kind < TUTTI_N_KINDS && !rank->wrong[0]; kind++) {
            for (int mode = 0; mode < 4; mode++) {
                struct sweep s = {(enum tutti_kind)kind, counts[c], mode & 1, mode & 2};
                if (s.count == 40000 && (mode || rank->n > 4)) continue;
                run_one(rank, &s, (uint32_t)(c + (size_t)mode) % rank->n);
            }
        }
    }
}

static void run_kinds(uint32_t n, size_t slice, size_t eager, size_t zero_copy)
{
    struct rig rig = {.n = n,
                      .slice_bytes = slice,
                      .eager_bytes = eager,
                      .zero_copy_bytes = zero_copy,
                      .staging_bytes = 1 << 16,
                      .main = every_kind};
    rig_run(&rig);
}

static void test_kinds_copied(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) run_kinds(n, 1 << 17, 2048, SIZE_MAX);
}

static void test_kinds_sliced(void **state)
{
    (void)state;
    run_kinds(3, 4096, 64, SIZE_MAX);
    run_kinds(4, 4096, 4096, SIZE_MAX);
}

static void test_kinds_offered(void **state)
{
    (void)state;
    run_kinds(2, 8192, 64, 1);
    run_kinds(4, 1 << 17, 2048, 4096);
}

/* Sends are pending, and payloads are placed: who reads or gives back too early sees wrong sums (late_test.h). */
static void test_kinds_late(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        struct rig rig = {.n = n, .eager_bytes = 2048, .wire_ns = 2000, .main = every_kind};
        if (n == 3) rig.slice_bytes = 1 << 14;
        rig_run(&rig);
    }
}

static void test_kinds_tcp(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        struct rig rig = {.n = n, .eager_bytes = n == 3 ? 1 << 16 : 2048, .tcp = true, .main = every_kind};
        if (n == 2) rig.slice_bytes = 1 << 14;
        rig_run(&rig);
    }
}

/* More packets than there are loans, of calls and messages at once. */
static void test_kinds_ofi(void **state)
{
    static const char *const providers[] = {"tcp;ofi_rxm", "net"};
    (void)state;
    if (tutti_ofi_lacks()) skip();
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(providers); i++) {
        struct rig rig = {.n = 3 + i, .eager_bytes = i ? 2048 : 1 << 16, .ofi = providers[i], .main = every_kind};
        rig_run(&rig);
    }
}

static void many_at_once(struct rig_rank *rank)
{
    enum { CALLS = 5, COUNT = 75000, LETTERS = 4, BYTES = COUNT * 4, MOST = 5 };
    struct tutti_work *works[CALLS], *sends[MOST * LETTERS], *recvs[MOST * LETTERS];
    struct rig_call calls[CALLS];
    const uint32_t n = rank->n, me = rank->me;
    int32_t *data = malloc((size_t)CALLS * BYTES), *out = malloc(BYTES);
    int32_t *in = malloc((size_t)n * LETTERS * BYTES);

    for (size_t i = 0; i < COUNT; i++) out[i] = value(me, n, i);
    for (uint32_t k = 0; k < n * LETTERS; k++) {
        uint32_t peer = (me + k / LETTERS) % n, from = (me + n - k / LETTERS) % n;
        const int32_t tag = (int32_t)(k % LETTERS);
        const struct tutti_p2p_message_info send = {.send = out, .bytes = BYTES, .peer = (int32_t)peer, .tag = tag};
        const struct tutti_p2p_message_info recv = {
            .recv = in + (size_t)k * COUNT, .bytes = BYTES, .peer = (int32_t)from, .tag = tag};
        RIG_OK(rank, tutti_engine_send(rank->team, &send, false, &sends[k]));
        RIG_OK(rank, tutti_engine_recv(rank->team, &recv, false, &recvs[k]));
    }
    for (uint32_t c = 0; c < CALLS; c++) {
        int32_t *at = data + (size_t)c * COUNT;
        for (size_t i = 0; i < COUNT; i++) at[i] = value(me, c, i);
        calls[c] =
            (struct rig_call){.kind = TUTTI_BROADCAST, .dtype = TUTTI_INT32, .op = -1, .root = c % n, .count = COUNT};
        calls[c].input = calls[c].output = at;
        RIG_OK(rank, rig_start(rank, rank->team, &calls[c], false, &works[c]));
    }
    for (uint32_t c = 0; c < CALLS && !rank->wrong[0]; c++) {
        RIG_OK(rank, tutti_work_finish(works[c]));
        tutti_schedule_destroy(calls[c].schedule);
        for (size_t i = 0; i < COUNT; i++)
            RIG_CHECK(rank, data[(size_t)c * COUNT + i] == value(c % n, c, i), "call %u [%zu]", c, i);
    }
    for (uint32_t k = 0; k < n * LETTERS && !rank->wrong[0]; k++) {
        RIG_OK(rank, tutti_work_finish(sends[k]));
        RIG_OK(rank, tutti_work_finish(recvs[k]));
        for (size_t i = 0; i < COUNT; i++)
            RIG_CHECK(rank, in[(size_t)k * COUNT + i] == value((me + n - k / LETTERS) % n, n, i), "msg %u", k);
    }
    free(in);
    free(out);
    free(data);
}

static void test_many_late(void **state)
{
    (void)state;
    struct rig rig = {.n = 5, .slice_bytes = 1 << 19, .wire_ns = TUTTI_NS_PER_MS, .main = many_at_once};
    rig_run(&rig);
}

/* Slices of several packets, some of which are folded on arrival. */
static void large(struct rig_rank *rank)
{
    enum { COUNT = 1200007 };
    const uint32_t n = rank->n, me = rank->me;
    int32_t *in = malloc((size_t)n * COUNT * 4), *out = malloc((size_t)n * COUNT * 4);

    for (size_t i = 0; i < (size_t)n * COUNT; i++) in[i] = value(me, 1, i);
    struct rig_call sum = {
        .kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT32, .op = TUTTI_SUM, .count = COUNT, .input = in, .output = out};
    RIG_OK(rank, rig_call(rank, rank->team, &sum));
    for (size_t i = 0; i < COUNT && !rank->wrong[0]; i++) {
        uint32_t wanted = 0;
        for (uint32_t r = 0; r < n; r++) wanted += (uint32_t)value(r, 1, i);
        RIG_CHECK(rank, (uint32_t)out[i] == wanted, "sum [%zu]", i);
    }
    struct rig_call all = {
        .kind = TUTTI_ALL_TO_ALL, .dtype = TUTTI_INT32, .op = -1, .count = COUNT, .input = in, .output = out};
    RIG_OK(rank, rig_call(rank, rank->team, &all));
    for (size_t i = 0; i < (size_t)n * COUNT && !rank->wrong[0]; i++)
        RIG_CHECK(rank, out[i] == value((uint32_t)(i / COUNT), 1, me * (size_t)COUNT + i % COUNT), "block [%zu]", i);
    free(in);
    free(out);
}

static void test_large_tcp(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .slice_bytes = 1 << 22, .tcp = true, .main = large};
    rig_run(&rig);
    rig = (struct rig){.n = 4, .slice_bytes = 1 << 19, .tcp = true, .main = many_at_once};
    rig_run(&rig);
    if (tutti_ofi_lacks()) return;
    rig = (struct rig){.n = 3, .slice_bytes = 1 << 22, .ofi = "auto", .main = large};
    rig_run(&rig);
    rig = (struct rig){.n = 4, .slice_bytes = 1 << 19, .ofi = "auto", .main = many_at_once};
    rig_run(&rig);
}

/* Rank 0 aborts while a packet is with the wire. Whose work has ended owns its buffers again: the wire does not fill
 * them any more. */
static enum late_state abort_state; /* the packet's */
static bool abort_messages;

static bool is_under_way(struct late_net *net)
{
    bool found = false;
    pthread_mutex_lock(&net->lock);
    for (const struct late_message *m = net->first; m; m = m->next) found |= m->borrowed && m->state == abort_state;
    pthread_mutex_unlock(&net->lock);
    return found;
}

static void aborted(struct rig_rank *rank)
{
    enum { BYTES = 100000 };
    unsigned char *data = malloc(BYTES), *copy = malloc(BYTES);
    struct tutti_team *other = rig_team(rank, RIG_TEAM + 1, 0);
    struct rig_call call = {.kind = TUTTI_BROADCAST, .dtype = TUTTI_UINT8, .op = -1, .count = BYTES};
    struct tutti_work *work = NULL;
    const struct tutti_p2p_message_info send = {.send = data, .bytes = BYTES, .peer = 1, .tag = 3};
    const struct tutti_p2p_message_info recv = {.recv = data, .bytes = BYTES, .peer = 0, .tag = 3};
    struct tutti_error error;

    memset(data, 0x11, BYTES);
    call.input = call.output = data;
    if (!abort_messages)
        RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
    else if (rank->me == 0)
        RIG_OK(rank, tutti_engine_send(rank->team, &send, true, &work));
    else
        RIG_OK(rank, tutti_engine_recv(rank->team, &recv, true, &work));
    rig_meet(rank);
    if (rank->me == 0) {
        int left = 100000;
        while (--left > 0 && !is_under_way(rank->rig->net)) rig_sleep(50000);
        RIG_CHECK(rank, left > 0, "no packet in state %d", (int)abort_state);
        tutti_error_set(&error, TUTTI_ERR_ABORTED, "aborted");
        tutti_team_fail(rank->team, &error, true);
    }
    if (work) {
        enum tutti_status status = tutti_work_finish(work); /* OK: on a slow host the abort may come too late */
        RIG_CHECK(rank, status == TUTTI_ERR_ABORTED || status == TUTTI_OK, "%s", tutti_last_error()->text);
    }
    memset(data, 0x77 + (int)rank->me, BYTES); /* not what the other one writes */
    memset(copy, 0x77 + (int)rank->me, BYTES);
    for (int i = 0; i < 3; i++) { /* the wire goes on */
        struct rig_call barrier = {.kind = TUTTI_BARRIER, .dtype = TUTTI_UINT8, .op = -1};
        RIG_OK(rank, rig_call(rank, other, &barrier));
    }
    RIG_CHECK(rank, memcmp(data, copy, BYTES) == 0, "the buffer was written to after the end, state %d",
              (int)abort_state);
    rig_meet(rank);
    tutti_team_destroy(other);
    if (!abort_messages) tutti_schedule_destroy(call.schedule);
    free(data);
    free(copy);
}

static void test_aborted_late(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct rig rig = {.n = 2, .wire_ns = 20 * TUTTI_NS_PER_MS, .main = aborted};
        abort_messages = k % 2, abort_state = k / 2 ? LATE_PLACED : LATE_SENT;
        rig_run(&rig);
    }
}

/* The wire gives back memory of a receive that nobody has granted: the communicator fails, and nothing is read past the
 * list of granted messages. */
static void given_back_ungranted(struct rig_rank *rank)
{
    struct tutti_step step = {.op = TUTTI_STEP_RECV, .peer = 1 - rank->me};
    const struct tutti_schedule schedule = {.n_steps = 1, .steps = &step};
    struct tutti_flight *flight = calloc(1, sizeof(*flight));
    struct tutti_slice slice = {.flight = flight};
    const struct tutti_loan loan = {.team = rank->team, .of = &slice, .peer = 1 - rank->me};
    struct tutti_error error;
    flight->bind.schedule = &schedule;
    tutti_owner_enter(rank->engine->owner);
    tutti_flights_back(rank->team, &loan, TUTTI_OK);
    tutti_owner_leave(rank->engine->owner);
    RIG_CHECK(rank, tutti_team_state(rank->team, &error) == TUTTI_ERR_PROTOCOL, "%s", error.text);
    RIG_CHECK(rank, slice.done == 0, "the step is complete");
    rig_meet(rank);
    free(flight);
}

static void test_given_back_ungranted(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = given_back_ungranted};
    rig_run(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_back_ungranted),
        cmocka_unit_test(test_kinds_copied),
        cmocka_unit_test(test_kinds_sliced),
        cmocka_unit_test(test_kinds_offered),
        cmocka_unit_test(test_kinds_late),
        cmocka_unit_test(test_many_late),
        cmocka_unit_test(test_aborted_late),
        cmocka_unit_test(test_kinds_tcp),
        cmocka_unit_test(test_kinds_ofi),
        cmocka_unit_test(test_large_tcp),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
