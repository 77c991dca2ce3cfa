/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the host's ranks share, windows on it, and that large messages from it are read in place. */
#include "comm/comm.h"
#include "ranks.h"
#include "test.h"

#include <string.h>

static void windows(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    int32_t n = rank->n, me = rank->index;
    size_t bytes = ((size_t)me + 1) * 10000;
    void *memory = NULL;
    RANK_CHECK_OK(rank, tutti_mem_alloc(comm, bytes, &memory));
    RANK_CHECK(rank, (uintptr_t)memory % 4096 == 0);
    for (size_t i = 0; i < bytes; i++) RANK_CHECK(rank, ((unsigned char *)memory)[i] == 0);
    struct tutti_window *window = NULL;
    bool none = me == 1; /* one rank brings nothing */
    RANK_CHECK_OK(rank, tutti_window_create(comm, none ? NULL : memory, none ? 0 : bytes, NULL, &window));
    memset(memory, me + 1, bytes);
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    for (int32_t r = 0; r < n; r++) {
        size_t size = 77;
        unsigned char *peer = tutti_window_peer(window, r, &size);
        size_t expected = r == 1 ? 0 : ((size_t)r + 1) * 10000;
        RANK_CHECK(rank, size == expected && (peer != NULL) == (expected > 0));
        for (size_t i = 0; i < expected; i++) RANK_CHECK(rank, peer[i] == r + 1);
    }
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    int32_t next = (me + 1) % n; /* and write */
    if (next != 1 || n == 1) ((unsigned char *)tutti_window_peer(window, next, NULL))[5] = (unsigned char)(100 + me);
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    if (!none) RANK_CHECK(rank, ((unsigned char *)memory)[5] == 100 + (me + n - 1) % n);
    RANK_CHECK(rank, tutti_window_peer(window, n, NULL) == NULL);
    RANK_CHECK(rank, tutti_window_peer(window, -1, NULL) == NULL);
    tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_mem_free(comm, memory));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "tutti_mem_alloc", tutti_mem_free(comm, memory));
}

static void shared_windows(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        assert_int_equal(ranks_threads(n, windows, NULL), 0);
        assert_int_equal(ranks_forked(n, windows, NULL), 0);
    }
}

static void wrong_windows(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm, *dup = NULL;
    char local[64];
    void *memory = NULL;
    struct tutti_window *window = NULL;
    struct tutti_mem *mem = NULL;
    RANK_CHECK_OK(rank, tutti_mem_alloc(comm, 4096, &memory));
    bool wrong = rank->index == 1;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, wrong ? "base is NULL but bytes is 64" : "rank 1 failed",
                     tutti_window_create(comm, wrong ? NULL : memory, 64, NULL, &window));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, wrong ? "rank 0 failed" : "reach past the end of their memory",
                     tutti_window_create(comm, memory, wrong ? 4096 : 100000, NULL, &window));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, wrong ? "out is NULL" : "rank 1 failed",
                     tutti_window_create(comm, memory, 64, NULL, wrong ? NULL : &window));
    struct tutti_window_config config = TUTTI_WINDOW_CONFIG_INIT;
    config.n_signals = wrong ? 3 : 4;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "n_signals is 4 on rank 0 and 3 on rank 1",
                     tutti_window_create(comm, memory, 64, &config, &window));
    config.size = 1;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "config.size is 1",
                     tutti_window_create(comm, memory, 64, &config, &window));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_mem_alloc(comm, 0, &memory));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_mem_alloc(comm, 16, NULL));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_mem_free(comm, local));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_mem_register(comm, NULL, 16, &mem));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_mem_register(comm, local, 0, &mem));
    RANK_CHECK_OK(rank, tutti_mem_register(comm, local, sizeof(local), &mem));
    tutti_mem_deregister(mem);
    /* A window that outlives its communicator maps nothing any more. */
    RANK_CHECK_OK(rank, tutti_comm_dup(comm, &dup));
    RANK_CHECK_OK(rank, tutti_window_create(dup, memory, 4096, NULL, &window));
    tutti_comm_destroy(dup);
    RANK_CHECK(rank, tutti_window_peer(window, 0, NULL) == NULL);
    tutti_window_destroy(window);
    tutti_window_destroy(NULL);
    /* memory is left to the communicator's family */
}

static void window_refusals(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, wrong_windows, NULL), 0);
    assert_int_equal(ranks_forked(2, wrong_windows, NULL), 0);
}

/* The same calls from shared and from private memory: equal results, and only the first are read in place. */
static void in_place_reads(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    size_t count = 100000, bytes = count * sizeof(int64_t);
    void *shared = NULL;
    struct tutti_engine_stats before, after;
    int64_t *out = rank_alloc(rank, bytes), *own = rank_alloc(rank, bytes);
    RANK_CHECK_OK(rank, tutti_mem_alloc(comm, bytes, &shared));
    int64_t *in = shared;
    for (size_t i = 0; i < count; i++) in[i] = own[i] = (int64_t)i + rank->index;
    tutti_engine_stats(comm->context->engine, &before);
    RANK_CHECK_OK(rank, tutti_all_reduce(own, out, count, TUTTI_INT64, TUTTI_SUM, comm, NULL, NULL));
    int32_t n = rank->n;
    for (size_t i = 0; i < count; i++) RANK_CHECK(rank, out[i] == n * (int64_t)i + n * (n - 1) / 2);
    RANK_CHECK_OK(rank, tutti_all_reduce(in, in, count, TUTTI_INT64, TUTTI_SUM, comm, NULL, NULL));
    for (size_t i = 0; i < count; i++) RANK_CHECK(rank, in[i] == n * (int64_t)i + n * (n - 1) / 2);
    tutti_engine_stats(comm->context->engine, &after);
    RANK_CHECK(rank, after.zero_copy_messages > before.zero_copy_messages);
}

static void zero_copy(void **state)
{
    (void)state;
    struct tutti_option off = {"backends", "off"}; /* it is the engine's */
    struct ranks_config config = {.n = 3, .options = &off, .n_options = 1};
    assert_int_equal(ranks_run(&config, in_place_reads), 0);
    config.forked = true;
    assert_int_equal(ranks_run(&config, in_place_reads), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_windows),
        cmocka_unit_test(window_refusals),
        cmocka_unit_test(zero_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
