/* SPDX-License-Identifier: BSD-3-Clause */
/* Constants of GPUs: ranks that know different ones use those of the first, so that they agree on how scratch is laid
 * out and on which method serves a call. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include "backend/gpu/gpu_backend.h"
#include "comm/call/device.h"
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N = 3, BLOCKS = 8, WORDS = 1 << 15 };

/* Each rank's own file: other blocks, and another method that seems cheap. */
static void tell_own(struct rank *rank, char *path, size_t capacity)
{
    static const char *const cheap[N] = {"tiles_ns 1\ntile_gbs 1000", "lines_ns 1\nstore_gbs 1000", "sentinel_ns 1"};
    snprintf(path, capacity, "/tmp/gpu_speed_%d_%d", (int)getpid(), (int)rank->index);
    FILE *file = fopen(path, "w");
    RANK_CHECK(rank, file);
    fprintf(file, "blocks %d\n%s\n", BLOCKS << rank->index, cheap[rank->index]);
    fclose(file);
    char *text = tutti_alloc(capacity), **option = &rank->comm->context->config.text[TUTTI_OPT_gpu_tuning];
    RANK_CHECK(rank, text);
    memcpy(text, path, capacity);
    tutti_free(*option);
    *option = text;
}

static void sum(struct gpu_rank *g, uint32_t *words, size_t n)
{
    struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    static _Thread_local uint32_t host[WORDS];
    options.stream = g->stream;
    for (size_t i = 0; i < n; i++) host[i] = (uint32_t)(i * 7 + (size_t)rank->index);
    GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, words, host, n * 4));
    GPU_CHECK_OK(g, tutti_all_reduce(words, words, n, TUTTI_UINT32, TUTTI_SUM, rank->comm, &options, NULL));
    GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, g->stream));
    GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, host, words, n * 4));
    for (size_t i = 0; i < n; i++) RANK_CHECK(rank, host[i] == (uint32_t)(i * 7 * N + N * (N - 1) / 2));
}

static void sums_then_close(struct gpu_rank *g)
{
    struct rank *rank = g->rank;
    uint32_t *words = gpu_rank_words(g, WORDS);
    if (!words) return;
    for (size_t n = 1; n <= WORDS && !rank->failure[0]; n *= 8) sum(g, words, n);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_cuda_free(g->gpu, words);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(g);
}

static void first_counts(struct rank *rank)
{
    struct gpu_rank g;
    char path[64];
    tell_own(rank, path, sizeof path);
    if (rank->failure[0] || !gpu_rank_open(rank, &g)) return;
    unlink(path);
    const struct tutti_comm_device *device = rank->comm->device;
    RANK_CHECK(rank, device && device->n == 1 && device->backends[0]->ops == &tutti_backend_cuda);
    const struct gpu_backend *b = (const struct gpu_backend *)(const void *)device->backends[0];
    RANK_CHECK(rank, b->site.speed->tiles_ns == 1 && b->site.speed->blocks == BLOCKS);
    RANK_CHECK(rank, b->site.speed->lines_ns == gpu_speed_known("", N)->lines_ns);
    RANK_CHECK(rank, b->site.layout.n_blocks <= BLOCKS);
    sums_then_close(&g);
}

static void ranks_differ(void **state)
{
    (void)state;
    static const struct tutti_option options[] = {{"gpu", "cuda"}};
    for (int forked = 1; forked >= 0; forked--) {
        struct ranks_config config = {.n = N, .forked = forked, .options = options, .n_options = 1, .deadline_s = 100};
        assert_int_equal(ranks_run(&config, first_counts), 0);
    }
}

/* The option goes before any file; a communicator has as much on its way by few blocks as by many. */
static void few(struct rank *rank)
{
    const uint32_t wanted = *(const uint32_t *)rank->arg, most = wanted < 4 ? 4 : wanted;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    const struct gpu_backend *b = (const struct gpu_backend *)(const void *)rank->comm->device->backends[0];
    RANK_CHECK(rank, b->site.layout.n_blocks <= most && b->site.layout.n_blocks * 2 > most);
    sums_then_close(&g);
}

static void fewer_blocks(void **state)
{
    (void)state;
    uint32_t wanted[] = {1, 4, 6};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wanted); i++) {
        char text[8];
        snprintf(text, sizeof text, "%u", wanted[i]);
        const struct tutti_option options[] = {{"gpu", "cuda"}, {"gpu_blocks", text}};
        struct ranks_config config = {
            .n = N, .forked = true, .options = options, .n_options = 2, .deadline_s = 100, .arg = &wanted[i]};
        assert_int_equal(ranks_run(&config, few), 0);
    }
}

/* A file that is not right is refused before anything is opened. */
static void nonsense_is_refused(void **state)
{
    (void)state;
    static const struct tutti_option options[] = {{"gpu_tuning", "/nowhere/to/be/found"}};
    struct tutti_context *context = NULL;
    assert_int_equal(tutti_context_create(options, 1, &context), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error()->text, "/nowhere/to/be/found"));
    assert_null(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fewer_blocks), cmocka_unit_test(ranks_differ),
                                       cmocka_unit_test(nonsense_is_refused)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
