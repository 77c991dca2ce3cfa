/* SPDX-License-Identifier: BSD-3-Clause */
/* Worlds of devices and hosts: see mixed.h. */

#include "cuda/support/mixed.h"

#include "cuda/support/gpu_ranks.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct mixed_world mixed_worlds[] = {
    {.n = 1, .devices = 0x1, .host = true},
    {.n = 2, .devices = 0x1},
    {.n = 2, .devices = 0x3, .host = true},
    {.n = 3, .devices = 0x2},
    {.n = 4, .devices = 0xb},
    {.n = 5, .devices = 0x1f, .host = true},
};
const uint32_t mixed_n_worlds = TUTTI_ARRAY_LEN(mixed_worlds);

struct run {
    const struct mixed_world *world;
    const rank_function *functions;
    size_t n;
};

static bool comm_open(struct rank *rank, size_t i)
{
    char name[128];
    snprintf(name, sizeof name, "%s-%zu", rank->name, i);
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank->index, config.n_ranks = rank->n;
    config.name = name;
    config.timeout_ns = UINT64_C(30000000000);
    if (tutti_comm_create(rank->context, &config, &rank->comm) == TUTTI_OK) return true;
    rank_fail(rank, __FILE__, __LINE__, "function %zu: %s", i, tutti_last_error()->text);
    return false;
}

static void run_functions(struct rank *rank)
{
    const struct run *run = rank->arg;
    for (size_t i = 0; i < run->n && !rank->failure[0] && comm_open(rank, i); i++) run->functions[i](rank);
}

unsigned mixed_run(const struct mixed_world *world, const rank_function *functions, size_t n)
{
    const struct tutti_option option = {"gpu", "host"};
    struct run run = {world, functions, n};
    struct ranks_config config = {.n = world->n,
                                  .forked = world->forked,
                                  .no_comm = true,
                                  .options = &option,
                                  .n_options = world->host,
                                  .deadline_s = gpu_ranks_deadline_s(),
                                  .may_die = world->may_die,
                                  .arg = &run};
    unsigned failed = ranks_run(&config, run_functions);
    if (failed)
        print_message("%u %s, devices %#llx%s\n", world->n, world->forked ? "processes" : "threads",
                      (unsigned long long)world->devices, world->host ? ", through the host" : "");
    return failed;
}

void mixed_run_all(uint32_t least, bool forked, const rank_function *functions, size_t n)
{
    for (uint32_t w = 0; w < mixed_n_worlds; w++) {
        struct mixed_world world = mixed_worlds[w];
        world.forked = forked;
        if (test_is_sampled() && (w + forked + test_seed()) % 4) continue;
        if (world.n >= least) assert_int_equal(mixed_run(&world, functions, n), 0);
    }
}

bool mixed_open(struct rank *rank, struct mixed *out)
{
    static const struct tutti_call_options init = TUTTI_CALL_OPTIONS_INIT;
    const struct mixed_world *world = ((const struct run *)rank->arg)->world;
    enum tutti_status status = TUTTI_OK;
    int32_t device = TUTTI_DEVICE_NONE;
    memset(out, 0, sizeof *out);
    out->rank = rank, out->world = world;
    if (world->devices >> rank->index & 1) {
        device = rank->index % (int32_t)tutti_cuda_count();
        status = tutti_cuda_open(device, &out->gpu);
    }
    for (int s = 0; s < MIXED_STREAMS; s++) {
        if (status == TUTTI_OK && out->gpu) status = tutti_cuda_stream_create(out->gpu, &out->streams[s]);
        out->on[s] = init;
        out->on[s].stream = out->streams[s];
    }
    if (status == TUTTI_OK) status = tutti_comm_dup(rank->comm, &out->beside);
    if (status == TUTTI_OK) status = tutti_comm_set_device(rank->comm, device);
    if (status == TUTTI_OK) status = tutti_barrier(out->beside, NULL, NULL);
    if (status == TUTTI_OK && tutti_comm_device(rank->comm) == device) return true;
    rank_fail(rank, __FILE__, __LINE__, "device %d: %s", (int)device, tutti_last_error()->text);
    return false;
}

void mixed_close(struct mixed *m)
{
    tutti_comm_destroy(m->rank->comm);
    tutti_comm_destroy(m->beside);
    m->rank->comm = m->beside = NULL;
    if (!m->gpu) return;
    for (int s = 0; s < MIXED_STREAMS; s++) tutti_cuda_stream_destroy(m->gpu, m->streams[s]);
    tutti_cuda_close(m->gpu);
}

void *mixed_put(struct mixed *m, const void *from, size_t bytes)
{
    void *memory = m->gpu ? NULL : calloc(1, bytes);
    enum tutti_status status = m->gpu ? tutti_cuda_alloc(m->gpu, bytes, &memory) : TUTTI_OK;
    if (status == TUTTI_OK && m->gpu)
        status = from ? tutti_cuda_copy_now(m->gpu, memory, from, bytes) : tutti_cuda_set(m->gpu, memory, 0, bytes);
    if (memory && from && !m->gpu) memcpy(memory, from, bytes);
    if (status == TUTTI_OK && memory) return memory;
    rank_fail(m->rank, __FILE__, __LINE__, "no memory of %zu bytes: %s", bytes, tutti_last_error()->text);
    return NULL;
}

bool mixed_sync(struct mixed *m)
{
    enum tutti_status status = TUTTI_OK;
    for (int s = 0; s < MIXED_STREAMS && m->gpu && status == TUTTI_OK; s++)
        status = tutti_cuda_stream_sync(m->gpu, m->streams[s]);
    if (status < 0) rank_fail(m->rank, __FILE__, __LINE__, "a stream: %s", tutti_last_error()->text);
    return status == TUTTI_OK;
}

bool mixed_get(struct mixed *m, void *to, const void *memory, size_t bytes)
{
    if (!m->gpu) {
        memcpy(to, memory, bytes);
        return true;
    }
    if (!mixed_sync(m)) return false;
    if (tutti_cuda_copy_now(m->gpu, to, memory, bytes) == TUTTI_OK) return true;
    rank_fail(m->rank, __FILE__, __LINE__, "copy back: %s", tutti_last_error()->text);
    return false;
}

void mixed_free(struct mixed *m, void *memory)
{
    if (m->gpu)
        tutti_cuda_free(m->gpu, memory);
    else
        free(memory);
}
