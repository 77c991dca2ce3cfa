/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that see different devices, or the same ones under other numbers: each one's device is its number 0, and
 * they find one another, and who shares a GPU, by the devices' identities. Where devices do not reach one another,
 * whether that can be known before or not, calls go through the host. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include "backend/gpu/gpu_backend.h"
#include "comm/call/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICES_MOST = 16, COUNT = 5000, LIST_MOST = 1024 };

struct scene {
    uint32_t n_devices;
    bool all;   /* each sees all devices, its own one first; else its own one alone */
    bool apart; /* they do not reach one another */
};

/* The k-th of the devices that this program sees, as CUDA_VISIBLE_DEVICES names it. */
static void device_name(uint32_t k, char *out, size_t capacity)
{
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");
    snprintf(out, capacity, "%u", k);
    for (; seen && k > 0; k--) {
        seen = strchr(seen, ',');
        seen = seen ? seen + 1 : NULL;
    }
    if (seen) snprintf(out, capacity, "%.*s", (int)strcspn(seen, ","), seen);
}

static void see(const struct scene *scene, uint32_t rank)
{
    char list[LIST_MOST] = "";
    for (uint32_t i = 0; i < (scene->all ? scene->n_devices : 1); i++) {
        char name[64];
        size_t used = strlen(list);
        device_name((rank + i) % scene->n_devices, name, sizeof name);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? "," : "", name);
    }
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
}

static void check_window(struct gpu_rank *g, uint32_t *words, uint32_t *host)
{
    struct rank *rank = g->rank;
    struct tutti_window *window = NULL;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, words, COUNT * 4, NULL, &window));
    for (int32_t r = 0; r < rank->n; r++) {
        RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, host, tutti_window_peer(window, r, NULL), COUNT * 4));
        for (uint32_t i = 0; i < COUNT; i++) RANK_CHECK(rank, host[i] == i * (uint32_t)(r + 1));
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_window_destroy(window);
}

/* Devices that do not reach one another: nothing is mapped, and all that is put and got goes by messages. */
static void check_far_window(struct gpu_rank *g, uint32_t *words, uint32_t *host)
{
    struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_window *window = NULL;
    uint32_t *got = NULL;
    options.stream = g->stream;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, words, COUNT * 4, NULL, &window));
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, COUNT * 4, (void **)&got));
    for (int32_t r = 0; r < rank->n; r++) {
        RANK_CHECK(rank, r == rank->index || !tutti_window_peer(window, r, NULL));
        RANK_CHECK_OK(rank, tutti_get(got, COUNT * 4, r, 0, window, &options, NULL));
        RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
        RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, host, got, COUNT * 4));
        for (uint32_t i = 0; i < COUNT; i++) RANK_CHECK(rank, host[i] == i * (uint32_t)(r + 1));
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, got));
}

static void check_calls(struct gpu_rank *g, bool apart)
{
    struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    uint32_t host[COUNT], *words = NULL;
    options.stream = g->stream;
    for (uint32_t i = 0; i < COUNT; i++) host[i] = i * (uint32_t)(rank->index + 1);
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, sizeof host, (void **)&words));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, words, host, sizeof host));
    if (apart)
        check_far_window(g, words, host);
    else
        check_window(g, words, host);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_all_reduce(words, words, COUNT, TUTTI_UINT32, TUTTI_SUM, rank->comm, &options, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, host, words, sizeof host));
    for (uint32_t i = 0; i < COUNT; i++) RANK_CHECK(rank, host[i] == i * (uint32_t)(rank->n * (rank->n + 1) / 2));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, words));
}

/* The back end is there, and knows who shares a GPU: kernels of all of them are resident at once. Or there is none. */
static bool is_as_wanted(const struct rank *rank, const struct scene *scene)
{
    const struct tutti_comm_device *device = rank->comm->device;
    if (!device || device->ordinal != 0 || scene->apart) return device && device->ordinal == 0 && device->n == 0;
    if (device->n == 0 || strcmp(device->backends[0]->ops->name, "cuda") != 0) return false;
    const struct gpu_backend *backend = (const struct gpu_backend *)device->backends[0];
    const uint32_t sharing = ((uint32_t)rank->n + scene->n_devices - 1) / scene->n_devices; /* the fullest */
    return backend->alone == (sharing == 1) && backend->site.layout.n_blocks * sharing <= backend->gpu->n_sms;
}

static void meet(struct rank *rank)
{
    const struct scene *scene = rank->arg;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct gpu_rank g = {.rank = rank};
    config.rank = rank->index, config.n_ranks = rank->n, config.name = rank->name;
    config.timeout_ns = UINT64_C(30000000000);
    config.device = 0;
    if (scene->apart) setenv("TUTTI_STANDIN_PEERS", "0", 1);
    see(scene, (uint32_t)rank->index);
    RANK_CHECK(rank, tutti_cuda_count() == (scene->all ? scene->n_devices : 1));
    RANK_CHECK_OK(rank, tutti_cuda_open(0, &g.gpu));
    RANK_CHECK_OK(rank, tutti_cuda_stream_create(g.gpu, &g.stream));
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &rank->comm));
    RANK_CHECK(rank, is_as_wanted(rank, scene));
    check_calls(&g, scene->apart);
    if (rank->failure[0]) return;
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&g);
}

static void run(struct scene scene)
{
    scene.n_devices = gpu_ranks_devices();
    if (!ranks_can_fork()) skip();
    if (scene.n_devices > DEVICES_MOST) scene.n_devices = DEVICES_MOST;
    for (uint32_t n = 2; n <= 3; n++) {
        struct ranks_config config = {.n = n, .forked = true, .no_comm = true, .deadline_s = 100, .arg = &scene};
        assert_int_equal(ranks_run(&config, meet), 0);
    }
}

static void each_sees_its_own(void **state)
{
    (void)state;
    run((struct scene){.all = false});
}

static void each_counts_from_its_own(void **state)
{
    (void)state;
    run((struct scene){.all = true});
}

/* The stand-in's devices can be kept apart. */
static void none_reaches_another(void **state)
{
    (void)state;
    if (!gpu_ranks_stand_in() || gpu_ranks_devices() < 2) skip();
    setenv("TUTTI_NCCL_LIBRARY", "/there/is/none", 1); /* which might go its own ways */
    run((struct scene){.all = false, .apart = true});
    run((struct scene){.all = true, .apart = true});
}

static void nobody_sees_any(void **state)
{
    int status = -1;
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
        const char *why = tutti_cuda_absence();
        _exit(!why || !strstr(why, "sees no device; CUDA_VISIBLE_DEVICES is empty") || tutti_cuda_count() != 0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_sees_its_own), cmocka_unit_test(each_counts_from_its_own),
                                       cmocka_unit_test(none_reaches_another), cmocka_unit_test(nobody_sees_any)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
