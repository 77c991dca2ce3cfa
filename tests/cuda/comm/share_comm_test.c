/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators whose memory is shared by descriptors: calls and windows on memory of all kinds, also such as consists
 * of many mappings; peers that die; closing in any order; a part of the contract; and what becomes of it where the
 * system lets nobody take descriptors. No descriptor stays open but while others take it. */

#include "test.h"

#include "contract/contract.h"
#include "cuda/support/descriptors.h"
#include "cuda/support/gpu_ranks.h"
#include "cuda/support/segment.h"

#include "comm/call/device.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

enum { COUNT = 40000, PIECES = 3, ROUNDS = 3, OFFSET = 4096, VICTIM = 1 };

/* ---- calls ---- */

/* Buffers in one range of memory: the own block at its beginning, the result across the first two mappings. */
struct scene {
    struct gpu_rank g;
    struct tutti_call_options options;
    char *base; /* the start of PIECES pieces */
    size_t piece;
    uint32_t *in, *out, *host;
};

static uint32_t value(int32_t rank, size_t i, uint32_t round)
{
    uint64_t seed = test_seed() + (uint64_t)rank * 1000003 + round;
    return (uint32_t)tutti_mix64(seed ^ (i << 20));
}

static void place(struct scene *s, char *base, size_t piece)
{
    s->base = base, s->piece = piece;
    s->in = (uint32_t *)(void *)(base + OFFSET);
    s->out = (uint32_t *)(void *)(base + piece - OFFSET);
}

static void check_calls(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    const size_t all = COUNT * (size_t)rank->n;
    for (size_t i = 0; i < COUNT; i++) s->host[i] = value(rank->index, i, round);
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, s->in, s->host, COUNT * 4));
    /* What maps memory may wait for a kernel of another rank on this device, which would wait for this rank. */
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_all_gather(s->in, s->out, COUNT, TUTTI_UINT32, rank->comm, &s->options, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(s->in, s->in, COUNT, TUTTI_UINT32, TUTTI_SUM, rank->comm, &s->options, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s->g.gpu, s->g.stream));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(s->g.gpu, s->host, s->out, all * 4));
    for (size_t i = 0; i < all; i++) RANK_CHECK(rank, s->host[i] == value((int32_t)(i / COUNT), i % COUNT, round));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(s->g.gpu, s->host, s->in, COUNT * 4));
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t sum = 0;
        for (int32_t q = 0; q < rank->n; q++) sum += value(q, i, round);
        RANK_CHECK(rank, s->host[i] == sum);
    }
}

/* Each rank writes its number into the next one's last words. */
static void check_window(struct scene *s, struct tutti_window *window)
{
    struct rank *rank = s->g.rank;
    const size_t bytes = PIECES * s->piece - OFFSET;
    size_t size = 0;
    uint32_t mine = 77 + (uint32_t)rank->index, found = 0;
    char *next = tutti_window_peer(window, (rank->index + 1) % rank->n, &size);
    RANK_CHECK(rank, next && size == bytes);
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, next + bytes - 4, &mine, 4));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, &found, s->base + OFFSET + bytes - 4, 4));
    RANK_CHECK(rank, found == 77 + (uint32_t)((rank->index + rank->n - 1) % rank->n));
}

static void windowed(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    struct tutti_window *window = NULL;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, s->base + OFFSET, PIECES * s->piece - OFFSET, NULL, &window));
    RANK_CHECK(rank, descriptors_offered() == 0);
    check_window(s, window);
    if (!rank->failure[0]) check_calls(s, round);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

/* ---- what ranks do ---- */

struct plan {
    const char *share;
    bool through_host; /* nobody can take anything */
    bool forbidden;    /* so, by the system, to rank 0 */
    bool threads;      /* one process: nothing is exported */
};

static bool scene_open(struct rank *rank, struct scene *s)
{
    static const struct tutti_call_options init = TUTTI_CALL_OPTIONS_INIT;
    *s = (struct scene){.options = init, .host = malloc(COUNT * 4 * (size_t)rank->n)};
    if (!gpu_rank_open(rank, &s->g)) return false;
    s->options.stream = s->g.stream;
    return s->host != NULL;
}

static void scene_close(struct scene *s)
{
    tutti_comm_destroy(s->g.rank->comm);
    s->g.rank->comm = NULL;
    gpu_rank_close(&s->g);
    free(s->host);
}

static void on_segments(struct scene *s)
{
    struct rank *rank = s->g.rank;
    struct segment segment;
    int n_before = 0;
    if (!segment_open(&segment, s->g.gpu, PIECES, true)) {
        rank_fail(rank, __FILE__, __LINE__, "a segment: %s", tutti_last_error()->text);
        return;
    }
    place(s, segment.base, segment.piece);
    for (uint32_t round = 0; round < ROUNDS && !rank->failure[0]; round++) {
        check_calls(s, round);
        if (!rank->failure[0]) windowed(s, round);
        if (round == 0) n_before = descriptors_open();
    }
    if (rank->failure[0]) return;
    const bool alone = !((const struct plan *)rank->arg)->threads; /* others open and close what they need */
    RANK_CHECK(rank, !alone || (descriptors_open() == n_before && n_before > 0));
    segment_close(&segment);
}

static void on_own(struct scene *s)
{
    struct rank *rank = s->g.rank;
    void *memory;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, PIECES * s->piece, &memory));
    place(s, memory, s->piece);
    for (uint32_t round = 0; round < ROUNDS && !rank->failure[0]; round++) windowed(s, round);
    if (!rank->failure[0]) RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, memory));
}

static void all_memory(struct rank *rank)
{
    struct scene s;
    if (!scene_open(rank, &s)) return;
    RANK_CHECK(rank, rank->comm->device && rank->comm->device->n > 0);
    RANK_CHECK(rank, descriptors_offered() == 0);
    on_segments(&s);
    if (!rank->failure[0]) on_own(&s);
    if (!rank->failure[0]) scene_close(&s);
}

/* Neither from the process that has a descriptor, nor by asking it. */
static bool nothing_can_be_taken(void)
{
    return descriptors_forbid(SYS_pidfd_getfd, EPERM) && descriptors_forbid(SYS_sendto, EPERM);
}

static void check_messages(struct scene *s, struct tutti_window *window)
{
    struct rank *rank = s->g.rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    const struct tutti_signal_info one = {0, TUTTI_SIGNAL_ADD, 1};
    options.stream = s->g.stream;
    RANK_CHECK_OK(rank, tutti_put_signal(s->base, 64, (rank->index + 1) % rank->n, 2048, &one, window, &options, NULL));
    RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, 1, TUTTI_ANY_SOURCE, window, &options, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s->g.gpu, s->g.stream));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

/* Calls go through the host, those on windows by messages, where memory can not be had. */
static void none_can_be_had(struct rank *rank)
{
    const struct plan *plan = rank->arg;
    struct scene s;
    struct segment segment;
    struct tutti_window *window = NULL;
    if (plan->forbidden && rank->index == 0) RANK_CHECK(rank, nothing_can_be_taken());
    if (!scene_open(rank, &s)) return;
    RANK_CHECK(rank, rank->comm->device && rank->comm->device->n == 0);
    RANK_CHECK(rank, descriptors_offered() == 0);
    if (!segment_open(&segment, s.g.gpu, PIECES, true)) return;
    place(&s, segment.base, segment.piece);
    check_calls(&s, 1);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, s.base, 4096, NULL, &window));
    RANK_CHECK(rank, descriptors_offered() == 0);
    check_messages(&s, window);
    if (rank->failure[0]) return;
    tutti_window_destroy(window);
    segment_close(&segment);
    scene_close(&s);
}

/* Forbidden when the communicator is there already: windows go by messages on all, calls go on as they did. */
static void windows_can_not_be_had(struct rank *rank)
{
    struct scene s;
    struct segment segment;
    struct tutti_window *window = NULL;
    if (!scene_open(rank, &s)) return;
    RANK_CHECK(rank, rank->comm->device->n > 0);
    if (rank->index == 0) RANK_CHECK(rank, nothing_can_be_taken());
    if (!segment_open(&segment, s.g.gpu, PIECES, true)) return;
    place(&s, segment.base, segment.piece);
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, s.base, 4096, NULL, &window));
    RANK_CHECK(rank, descriptors_offered() == 0);
    RANK_CHECK(rank, !tutti_window_peer(window, (rank->index + 1) % rank->n, NULL));
    check_calls(&s, 2);
    if (!rank->failure[0]) check_messages(&s, window);
    if (rank->failure[0]) return;
    tutti_window_destroy(window);
    segment_close(&segment);
    scene_close(&s);
}

/* One rank is killed with a window open; the others close all they have, and go on among themselves. */
static void one_dies(struct rank *rank)
{
    struct scene s;
    void *memory;
    struct tutti_window *window = NULL;
    struct tutti_comm *left = NULL;
    int32_t victim = VICTIM;
    if (!scene_open(rank, &s)) return;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, PIECES << 21, &memory));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, memory, PIECES << 21, NULL, &window));
    place(&s, memory, 1 << 21);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == VICTIM) raise(SIGKILL);
    enum tutti_status status =
        tutti_all_reduce(s.in, s.out, COUNT, TUTTI_UINT32, TUTTI_SUM, rank->comm, &s.options, NULL);
    RANK_CHECK(rank, status == TUTTI_OK || status == TUTTI_ERR_PEER_DEAD);
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s.g.gpu, s.g.stream));
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, &victim, 1, &left));
    RANK_CHECK(rank, left->device && left->device->n > 0);
    tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, memory));
    tutti_comm_destroy(rank->comm);
    rank->comm = left;
    struct rank again = *rank;
    again.index = tutti_comm_rank(left), again.n = tutti_comm_size(left);
    s.g.rank = &again;
    RANK_CHECK_OK(rank, tutti_mem_alloc(left, PIECES << 21, &memory));
    place(&s, memory, 1 << 21);
    windowed(&s, 5);
    memcpy(rank->failure, again.failure, sizeof rank->failure);
    if (rank->failure[0]) return;
    RANK_CHECK(rank, descriptors_offered() == 0);
    s.g.rank = rank;
    scene_close(&s);
}

/* In turns, from each rank on; who is first leaves memory behind that the others still have. */
static void any_order(struct rank *rank)
{
    for (int32_t first = 0; first < rank->n && !rank->failure[0]; first++) {
        struct rank turn = *rank;
        struct scene s;
        void *memory;
        struct tutti_window *window = NULL;
        RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &turn.comm));
        if (!scene_open(&turn, &s)) memcpy(rank->failure, turn.failure, sizeof turn.failure);
        if (rank->failure[0]) return;
        RANK_CHECK_OK(rank, tutti_mem_alloc(turn.comm, PIECES << 21, &memory));
        place(&s, memory, 1 << 21);
        RANK_CHECK_OK(rank, tutti_window_create(turn.comm, memory, PIECES << 21, NULL, &window));
        check_calls(&s, (uint32_t)first);
        memcpy(rank->failure, turn.failure, sizeof turn.failure);
        for (int32_t r = 0; r < rank->n && !rank->failure[0]; r++) {
            if ((first + r) % rank->n == rank->index) {
                RANK_CHECK_OK(rank, tutti_mem_free(turn.comm, memory)); /* others map it still */
                if (first % 2) tutti_window_destroy(window);
                scene_close(&s);
                if (first % 2 == 0) tutti_window_destroy(window);
            }
            RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        }
        RANK_CHECK(rank, descriptors_offered() == 0);
    }
}

/* ---- the contract ---- */

static void contract(struct rank *rank)
{
    enum { STEP = 9, MOST = 4099 };
    struct contract_memory memory;
    struct gpu_rank g;
    size_t n, count = 0, n_run = 0;
    struct contract_case *cases = contract_pairs(test_seed() + 77, &n);
    RANK_CHECK(rank, cases);
    if (!gpu_rank_open(rank, &g)) return;
    contract_memory_init(&memory, g.gpu, g.stream);
    for (size_t i = 0; i < n && !rank->failure[0]; i++) {
        struct contract_case c = cases[i];
        if (contract_sizes[c.at[SIZE]] > MOST || count++ % STEP != 0) continue;
        c.memory = &memory;
        c.thrifty = true;
        c.mapped = c.seed >> 5;
        contract_run(rank, &c, NULL);
        n_run++;
    }
    free(cases);
    if (rank->failure[0]) return;
    RANK_CHECK(rank, n_run > 10 && rank->comm->device->n > 0);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    contract_memory_fini(&memory, rank->comm);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&g);
}

/* ---- in which worlds ---- */

static void run(uint32_t n, void (*function)(struct rank *rank), const struct plan *plan, uint64_t may_die)
{
    struct plan copy = *plan;
    const struct tutti_option options[] = {{"gpu_share", plan->share},
                                           {"gpu_method", "engines"},
                                           {"gpu", plan->through_host ? "auto" : "cuda"},
                                           {"log", "error"}};
    struct ranks_config config = {.n = n,
                                  .forked = !plan->threads,
                                  .options = options,
                                  .n_options = TUTTI_ARRAY_LEN(options),
                                  .timeout_ns = 60 * TUTTI_NS_PER_S,
                                  .deadline_s = 300,
                                  .may_die = may_die,
                                  .arg = &copy};
    if (!plan->threads && !ranks_can_fork()) skip();
    const unsigned failed = ranks_run(&config, function);
    if (failed) print_message("%u ranks, gpu_share %s\n", n, plan->share);
    assert_int_equal(failed, 0);
}

static const struct plan by_descriptors = {.share = "fd"};

static void memory_of_all_kinds(void **state)
{
    (void)state;
    const struct plan automatic = {.share = "auto"};
    for (uint32_t n = 2; n <= 3; n++) run(n, all_memory, &by_descriptors, 0);
    run(2, all_memory, &automatic, 0);
}

static void without_handles(void **state)
{
    (void)state;
    const struct plan automatic = {.share = "auto"}, handles = {.share = "ipc", .through_host = true};
    if (!gpu_ranks_stand_in()) skip(); /* this machine's driver makes handles or does not */
    setenv("TUTTI_STANDIN_IPC", "0", 1);
    run(2, all_memory, &automatic, 0);
    run(2, none_can_be_had, &handles, 0);
    unsetenv("TUTTI_STANDIN_IPC");
}

static void what_is_forbidden(void **state)
{
    (void)state;
    const struct plan forbidden = {.share = "fd", .through_host = true, .forbidden = true};
    run(3, none_can_be_had, &forbidden, 0);
    run(2, windows_can_not_be_had, &by_descriptors, 0);
}

static void deaths(void **state)
{
    (void)state;
    run(3, one_dies, &by_descriptors, 1 << VICTIM);
}

static void orders(void **state)
{
    (void)state;
    run(3, any_order, &by_descriptors, 0);
}

static void a_part_of_the_contract(void **state)
{
    (void)state;
    run(2, contract, &by_descriptors, 0);
    run(3, contract, &by_descriptors, 0);
}

/* After the processes, since the driver does not survive a fork. */
static void memory_within_a_process(void **state)
{
    (void)state;
    const struct plan threads = {.share = "fd", .threads = true};
    run(3, all_memory, &threads, 0);
}

static void names(void **state)
{
    (void)state;
    const struct tutti_option option = {"gpu_share", "both"};
    struct tutti_context *context = NULL;
    assert_int_equal(tutti_context_create(&option, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "option gpu_share is \"both\" but can be auto, ipc or fd"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_all_kinds),
        cmocka_unit_test(without_handles),
        cmocka_unit_test(what_is_forbidden),
        cmocka_unit_test(deaths),
        cmocka_unit_test(orders),
        cmocka_unit_test(a_part_of_the_contract),
        cmocka_unit_test(names),
        cmocka_unit_test(memory_within_a_process),
    };
    gpu_ranks_need_device();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
