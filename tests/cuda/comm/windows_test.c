/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory and windows of devices: what tutti_mem_alloc gives, that peers read and write each other's parts, and what is
 * refused. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"

#include <string.h>
#include <tutti/device.h>

enum { PAGE = 4096, COUNT = 40000 };

static void fill(unsigned char *out, size_t bytes, int32_t rank)
{
    for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)(i * 7 + 31 * (size_t)rank + (i >> 8));
}

/* What peer has at `at` is what it wrote there. */
static bool reads(struct mixed *m, const unsigned char *at, size_t bytes, int32_t peer)
{
    unsigned char *got = malloc(bytes), *want = malloc(bytes);
    bool same = got && want && tutti_cuda_copy_now(m->gpu, got, at, bytes) == TUTTI_OK;
    if (same) fill(want, bytes, peer);
    same = same && memcmp(got, want, bytes) == 0;
    free(got);
    free(want);
    return same;
}

static size_t bytes_of(int32_t rank)
{
    return 10000 * ((size_t)rank + 1) + 1;
}

static void memory(struct rank *rank)
{
    struct mixed m;
    void *pointers[3];
    unsigned char page[PAGE + 1], zeros[PAGE + 1] = {0};
    if (!mixed_open(rank, &m)) return;
    for (int i = 0; i < 3; i++) {
        RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, sizeof page, &pointers[i]));
        RANK_CHECK(rank, (uintptr_t)pointers[i] % PAGE == 0);
        RANK_CHECK(rank, tutti_cuda_of(pointers[i]) == tutti_comm_device(rank->comm));
        RANK_CHECK_OK(rank, tutti_cuda_copy_now(m.gpu, page, pointers[i], sizeof page));
        RANK_CHECK(rank, memcmp(page, zeros, sizeof page) == 0);
        memset(page, i + 1, sizeof page);
        RANK_CHECK_OK(rank, tutti_cuda_copy_now(m.gpu, pointers[i], page, sizeof page));
    }
    struct tutti_mem *mem = NULL;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* a rank of this process may get what is freed here */
    RANK_CHECK_OK(rank, tutti_mem_register(rank->comm, pointers[0], sizeof page, &mem));
    tutti_mem_deregister(mem);
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, pointers[1]));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "tutti_mem_alloc", tutti_mem_free(rank->comm, pointers[1]));
    RANK_CHECK(rank, tutti_cuda_of(pointers[1]) == -1);
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(m.gpu, page, pointers[2], sizeof page));
    RANK_CHECK(rank, page[0] == 3 && page[PAGE] == 3);
    mixed_close(&m); /* what is not freed goes with the family */
}

/* Parts of all sizes, of tutti_mem_alloc or inside another allocation; one rank may bring none. */
static void share(struct mixed *m, bool own_memory, int32_t without)
{
    struct rank *rank = m->rank;
    int32_t me = rank->index, n = rank->n, right = (me + 1) % n;
    size_t bytes = bytes_of(me), offset = own_memory ? 512 : 0;
    unsigned char *data = rank_alloc(rank, bytes), mark = 0, byte;
    void *base = NULL;
    struct tutti_window *window = NULL;
    if (own_memory)
        RANK_CHECK_OK(rank, tutti_cuda_alloc(m->gpu, bytes + 2 * offset, &base));
    else
        RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, bytes, &base));
    unsigned char *mine = (unsigned char *)base + offset;
    fill(data, bytes, me);
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(m->gpu, mine, data, bytes));
    bool none = me == without;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, none ? NULL : mine, none ? 0 : bytes, NULL, &window));
    for (int32_t r = 0; r < n; r++) {
        size_t size = 1;
        const unsigned char *at = tutti_window_peer(window, r, &size);
        RANK_CHECK(rank, size == (r == without ? 0 : bytes_of(r)) && (at != NULL) == (r != without));
        RANK_CHECK(rank, r == without || reads(m, at, size, r));
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    unsigned char *there = tutti_window_peer(window, right, NULL);
    byte = (unsigned char)(200 + me);
    if (there) RANK_CHECK_OK(rank, tutti_cuda_copy_now(m->gpu, there + 9999, &byte, 1));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(m->gpu, &mark, mine + 9999, 1));
    RANK_CHECK(rank, none || mark == (unsigned char)(200 + (me + n - 1) % n));
    tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* nobody has it mapped any more */
    if (own_memory)
        tutti_cuda_free(m->gpu, base);
    else
        RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, base));
}

static void windows(struct rank *rank)
{
    struct mixed m;
    if (!mixed_open(rank, &m)) return;
    for (int own_memory = 0; own_memory < 2 && !rank->failure[0]; own_memory++) {
        share(&m, own_memory, -1);
        if (rank->n > 1 && !rank->failure[0]) share(&m, own_memory, 1);
    }
    if (!rank->failure[0]) mixed_close(&m);
}

/* A window of no bytes of this rank, whose base is that of another window: its end is not that one's. */
static void empty(struct rank *rank)
{
    struct mixed m;
    float *base = NULL, *other = NULL;
    const size_t bytes = COUNT * sizeof(float) * (size_t)(rank->n + 1);
    struct tutti_window *window = NULL, *second = NULL;
    if (!mixed_open(rank, &m)) return;
    const bool none = rank->n > 1 && rank->index == 1;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, bytes, (void **)&base));
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, bytes, (void **)&other));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, base, bytes, NULL, &window));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, none ? base : other, none ? 0 : bytes, NULL, &second));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_window_destroy(second);
    m.on[0].algorithm = rank->n > 1 ? "cuda:direct" : NULL;
    RANK_CHECK_OK(rank, tutti_all_gather(base, base + COUNT, COUNT, TUTTI_FLOAT32, rank->comm, &m.on[0], NULL));
    RANK_CHECK(rank, mixed_sync(&m));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_window_destroy(window);
    mixed_close(&m);
}

/* ---- what is refused ---- */

static void wrong(struct rank *rank)
{
    struct mixed m;
    void *base = NULL;
    struct tutti_window *window = NULL;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, 4096, &base));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "one allocation",
                     tutti_window_create(rank->comm, base, rank->index == 1 ? (size_t)1 << 40 : 4096, NULL, &window));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "not the communicator's",
                     tutti_window_create(m.beside, base, 4096, NULL, &window));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, base, 4096, NULL, &window));
    RANK_CHECK(rank, tutti_window_peer(window, 1, NULL) != NULL);
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, tutti_comm_device(rank->comm)));
    RANK_CHECK(rank, tutti_window_peer(window, 1, NULL) == NULL);
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "another device") != NULL);
    tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, base, 4096, NULL, &window));
    mixed_close(&m);
    RANK_CHECK(rank, tutti_window_peer(window, 0, NULL) == NULL);
    tutti_window_destroy(window);
}

/* Rank 1 brings memory of a pool, which peers on other devices reach as little as peers in other processes do: calls go
 * by messages. */
static void pooled(struct rank *rank)
{
    struct mixed m;
    void *base = NULL, *pool = NULL;
    struct tutti_window *window = NULL;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, 4096, &base));
    RANK_CHECK_OK(rank, tutti_cuda_alloc_ordered(m.gpu, 4096, m.streams[0], &pool));
    RANK_CHECK(rank, mixed_sync(&m));
    unsigned char *own = rank->index == 1 ? pool : base, byte = (unsigned char)(90 + rank->index), came = 0;
    const int32_t right = (rank->index + 1) % rank->n, left = (rank->index + rank->n - 1) % rank->n;
    const struct tutti_signal_info one = {0, TUTTI_SIGNAL_ADD, 1};
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, own, 4096, NULL, &window));
    const bool apart = m.world->forked || tutti_cuda_count() > 1;
    RANK_CHECK(rank, !apart || rank->n == 1 || !tutti_window_peer(window, right, NULL));
    RANK_CHECK_OK(rank, tutti_put_signal(&byte, 1, right, 4095, &one, window, &m.on[0], NULL));
    RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, 1, left, window, &m.on[0], NULL));
    RANK_CHECK_OK(rank, tutti_get(&came, 1, right, 4095, window, &m.on[0], NULL));
    RANK_CHECK(rank, mixed_sync(&m) && came == byte);
    RANK_CHECK_OK(rank, tutti_barrier(m.beside, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(m.gpu, &came, own + 4095, 1));
    RANK_CHECK(rank, came == (unsigned char)(90 + left));
    RANK_CHECK_OK(rank, tutti_barrier(m.beside, NULL, NULL));
    tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_barrier(m.beside, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_free_ordered(m.gpu, pool, m.streams[0]));
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, base));
    mixed_close(&m);
}

/* Memory that is freed under its window: a call there ends on all ranks, whoever the address belongs to by then. */
static void freed(struct rank *rank)
{
    enum { BLOCK = 4096, TRIES = 16, VICTIM = 1 };
    struct mixed m;
    struct tutti_window *window = NULL;
    void *base = NULL, *again = NULL;
    int32_t same = 1, all = 0;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, BLOCK * (size_t)rank->n, &base));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, base, BLOCK * (size_t)rank->n, NULL, &window));
    if (rank->index == VICTIM) {
        RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, base));
        for (int i = 0; i < TRIES && again != base; i++)
            RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, BLOCK * (size_t)rank->n, &again));
        same = again == base; /* else the address is nobody's */
    }
    RANK_CHECK_OK(rank, tutti_all_reduce(&same, &all, 1, TUTTI_INT32, TUTTI_MIN, m.beside, NULL, NULL));
    struct tutti_call_options options = m.on[0];
    options.algorithm = "cuda:direct";
    if (all) {
        char *block = (char *)base + BLOCK * (size_t)rank->index;
        enum tutti_status status = tutti_all_gather(block, base, BLOCK, TUTTI_UINT8, rank->comm, &options, NULL);
        RANK_CHECK(rank, rank->index != VICTIM || status == TUTTI_ERR_ARGUMENT);
        for (int i = 0; i < 2000 && tutti_comm_state(rank->comm, NULL) == TUTTI_OK; i++)
            tutti_sleep_ns(TUTTI_NS_PER_MS);
        struct tutti_error error = {0};
        RANK_CHECK(rank, tutti_comm_state(rank->comm, &error) == TUTTI_ERR_ARGUMENT);
        RANK_CHECK(rank, strstr(error.text, "on rank 1: the output lies in a window whose memory was freed") != NULL);
    }
    RANK_CHECK_OK(rank, tutti_barrier(m.beside, NULL, NULL));
    tutti_window_destroy(window);
    mixed_close(&m);
}

/* Where devices do not reach one another, and where one rank has none: nobody maps a part of a device
 * (onesided_test.c). */
static void unreached(struct rank *rank)
{
    struct mixed m;
    void *base = NULL;
    struct tutti_window *window = NULL;
    struct tutti_device_window kernels = {.size = sizeof kernels};
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, 4096, &base));
    RANK_CHECK(rank, (tutti_cuda_of(base) >= 0) == (m.gpu != NULL));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, base, 4096, NULL, &window));
    RANK_CHECK(rank, tutti_window_peer(window, rank->index, NULL) == base);
    RANK_CHECK(rank, rank->index == 0 || tutti_window_peer(window, 0, NULL) == NULL);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "reach one another", tutti_window_device(window, &kernels));
    RANK_CHECK_OK(rank, tutti_barrier(m.beside, NULL, NULL));
    tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_barrier(m.beside, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, base));
    mixed_close(&m);
}

/* ---- in which worlds ---- */

static void run(bool forked)
{
    static const rank_function functions[] = {empty, memory, windows, wrong, pooled, freed};
    static const rank_function apart_function = unreached;
    for (uint32_t n = 1; n <= 3; n++) {
        struct mixed_world world = {.n = n, .devices = 0x7, .forked = forked};
        const size_t alone = 3; /* what comes after needs a peer */
        assert_int_equal(mixed_run(&world, functions, n == 1 ? alone : TUTTI_ARRAY_LEN(functions)), 0);
    }
    struct mixed_world one_without = {.n = 2, .devices = 0x1, .forked = forked},
                       apart = {.n = 2, .devices = 0x3, .host = true, .forked = forked};
    assert_int_equal(mixed_run(&one_without, &apart_function, 1), 0);
    assert_int_equal(mixed_run(&apart, &apart_function, 1), 0);
}

static void processes(void **state)
{
    (void)state, run(true);
}

static void threads(void **state)
{
    (void)state, run(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes), cmocka_unit_test(threads)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests_name("windows of devices", tests, NULL, NULL);
}
