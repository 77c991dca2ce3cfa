/* SPDX-License-Identifier: BSD-3-Clause */
/* all_to_all_v_dynamic on device memory: counts are read on the device, also by a graph that is launched again with
 * others; what does not fit is told in the device's memory, and nothing is moved on any rank. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include <string.h>

enum { RANKS_MOST = 16, ROOM = 60000 };

/* In device memory and in pinned memory alike. */
struct sides {
    uint64_t send_counts[RANKS_MOST], send_displs[RANKS_MOST], recv_displs[RANKS_MOST]; /* in */
    uint64_t recv_counts[RANKS_MOST];                                                   /* out */
    int32_t status, padding;
    int32_t send[ROOM];
    int32_t recv[ROOM];
};

struct scene {
    struct gpu_rank g;
    struct tutti_call_options options;
    struct sides *device, *host, *want;
    size_t most; /* elements for one rank */
};

static uint64_t count_of(const struct scene *s, uint64_t round, int32_t from, int32_t to)
{
    uint64_t state = round * 1009 + (uint64_t)from * 31 + (uint64_t)to + test_seed();
    const uint64_t bits = tutti_random64(&state);
    return bits % 5 == 0 ? 0 : bits % 5 == 1 ? (bits >> 8) % s->most : (bits >> 8) % 40;
}
static int32_t value_of(uint64_t round, int32_t from, int32_t to, uint64_t i)
{
    return (int32_t)(round * 1000003 + (uint64_t)from * 7919 + (uint64_t)to * 104729 + i * 31 + 1);
}

static bool scene_open(struct rank *rank, struct scene *s)
{
    if (!gpu_rank_open(rank, &s->g)) return false;
    const struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    s->options = options;
    s->options.stream = s->g.stream;
    s->most = (ROOM - 200) / (size_t)rank->n;
    s->device = (struct sides *)(void *)gpu_rank_words(&s->g, sizeof(*s->device) / 4);
    s->host = (struct sides *)(void *)gpu_rank_host_words(&s->g, sizeof(*s->host) / 4);
    s->want = (struct sides *)(void *)gpu_rank_host_words(&s->g, sizeof(*s->want) / 4);
    return s->device && s->host && s->want;
}

static void scene_close(struct scene *s)
{
    tutti_cuda_free(s->g.gpu, s->device);
    tutti_cuda_free_host(s->g.gpu, s->host);
    tutti_cuda_free_host(s->g.gpu, s->want);
    gpu_rank_leave(&s->g);
}

/* misfit: a rank whose receives do not fit, or -1. */
static void fill(struct scene *s, uint64_t round, bool displs, int32_t misfit)
{
    const int32_t n = s->g.rank->n, me = s->g.rank->index;
    uint64_t sent = 0, received = 0;
    memset(s->host, 0x55, sizeof(*s->host));
    for (int32_t i = 0; i < n; i++) {
        const int32_t r = displs ? n - 1 - i : i;
        s->host->send_counts[r] = count_of(s, round, me, r);
        if (displs) sent += 1 + round % 3, received += 2;
        s->host->send_displs[r] = sent, s->host->recv_displs[r] = received;
        for (uint64_t k = 0; k < s->host->send_counts[r]; k++) s->host->send[sent + k] = value_of(round, me, r, k);
        sent += s->host->send_counts[r], received += count_of(s, round, r, me);
    }
    memcpy(s->want, s->host, sizeof(*s->want));
    s->want->status = misfit < 0 ? TUTTI_OK : TUTTI_ERR_TRUNCATED;
    for (int32_t r = 0; r < n; r++) {
        s->want->recv_counts[r] = count_of(s, round, r, me);
        for (uint64_t k = 0; k < s->want->recv_counts[r] && misfit < 0; k++)
            s->want->recv[s->host->recv_displs[r] + k] = value_of(round, r, me, k);
    }
    if (misfit != me) return;
    s->host->recv_displs[0] = s->want->recv_displs[0] = ROOM - 1; /* where more than one element comes */
}

static enum tutti_status call(struct scene *s, bool displs, struct tutti_work **work)
{
    const struct tutti_all_to_all_v_dynamic call = {.size = sizeof(call),
                                                    .send = s->device->send,
                                                    .send_counts = s->device->send_counts,
                                                    .send_displs = displs ? s->device->send_displs : NULL,
                                                    .send_capacity = ROOM,
                                                    .recv = s->device->recv,
                                                    .recv_counts = s->device->recv_counts,
                                                    .recv_displs = displs ? s->device->recv_displs : NULL,
                                                    .recv_capacity = ROOM,
                                                    .status = &s->device->status,
                                                    .dtype = TUTTI_INT32};
    return tutti_all_to_all_v_dynamic(&call, s->g.rank->comm, &s->options, work);
}

static void compare(struct scene *s, uint64_t round, const char *how)
{
    struct rank *rank = s->g.rank;
    RANK_CHECK_OK(rank, tutti_cuda_copy(s->g.gpu, s->host, s->device, sizeof(*s->host), s->g.stream));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s->g.gpu, s->g.stream));
    const size_t n = (size_t)rank->n * sizeof(uint64_t);
    memcpy(s->want->recv_counts + rank->n, s->host->recv_counts + rank->n, sizeof(s->want->recv_counts) - n);
    if (memcmp(s->host, s->want, sizeof(*s->want)) == 0) return;
    size_t i = 0;
    while (i < ROOM - 1 && s->host->recv[i] == s->want->recv[i]) i++;
    rank_fail(rank, __FILE__, __LINE__, "%s, round %llu: status %d instead of %d, element %zu is %x instead of %x", how,
              (unsigned long long)round, s->host->status, s->want->status, i, (unsigned)s->host->recv[i],
              (unsigned)s->want->recv[i]);
}

static enum tutti_status copy_in(struct scene *s)
{
    return tutti_cuda_copy(s->g.gpu, s->device, s->host, sizeof(*s->host), s->g.stream);
}

static void eager(struct rank *rank)
{
    struct scene s;
    if (!scene_open(rank, &s)) return;
    for (uint64_t round = 0; round < gpu_ranks_times((uint32_t)rank->n, 100, 40, 20) && !rank->failure[0]; round++) {
        const bool displs = round % 2, wants_work = round % 3 == 0;
        struct tutti_work *work = NULL;
        fill(&s, round, displs, -1);
        RANK_CHECK_OK(rank, copy_in(&s));
        RANK_CHECK_OK(rank, call(&s, displs, wants_work ? &work : NULL));
        if (work) RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
        compare(&s, round, "eager");
    }
    scene_close(&s);
}

static void misfit(struct rank *rank)
{
    struct scene s;
    const bool by_host = gpu_ranks_across((uint32_t)rank->n) || gpu_ranks_by_nccl();
    if (!scene_open(rank, &s)) return;
    uint64_t round = 1000;
    while (count_of(&s, round, 0, 1) < 2) round++;
    fill(&s, round, true, 1);
    RANK_CHECK_OK(rank, copy_in(&s));
    RANK_CHECK_STATUS(rank, by_host ? TUTTI_ERR_TRUNCATED : TUTTI_OK, call(&s, true, NULL));
    compare(&s, round, "misfit");
    fill(&s, round + 1, true, -1); /* and all goes on */
    RANK_CHECK_OK(rank, copy_in(&s));
    RANK_CHECK_OK(rank, call(&s, true, NULL));
    if (!rank->failure[0]) compare(&s, round + 1, "after it");
    scene_close(&s);
}

static void replayed(struct rank *rank)
{
    struct scene s;
    void *graph;
    if (!scene_open(rank, &s)) return;
    RANK_CHECK_OK(rank, tutti_cuda_graph_begin(s.g.gpu, s.g.stream));
    RANK_CHECK_OK(rank, call(&s, true, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_graph_end(s.g.gpu, s.g.stream, &graph));
    for (uint64_t round = 0; round < 12 && !rank->failure[0]; round++) {
        fill(&s, round, true, -1);
        RANK_CHECK_OK(rank, copy_in(&s));
        RANK_CHECK_OK(rank, tutti_cuda_graph_launch(s.g.gpu, graph, s.g.stream));
        compare(&s, round, "replay");
    }
    tutti_cuda_graph_destroy(s.g.gpu, graph);
    scene_close(&s);
}

static void run(rank_function function, uint32_t n)
{
    struct ranks_config config = {.n = gpu_ranks_at_most(n), .forked = true, .timeout_ns = UINT64_C(60000000000)};
    config.deadline_s = gpu_ranks_deadline_s();
    assert_int_equal(ranks_run(&config, function), 0);
}

static void what_came_is_told(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) run(eager, n);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    run(misfit, 3);
}

static void graphs(void **state)
{
    (void)state;
    if (gpu_ranks_across(3) || gpu_ranks_by_nccl()) skip();
    run(replayed, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_came_is_told),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(graphs),
    };
    gpu_ranks_need_device();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
