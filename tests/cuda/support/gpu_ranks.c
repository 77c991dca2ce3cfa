/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks with devices: see gpu_ranks.h. */

#include "cuda/support/gpu_ranks.h"

#include "backend/library/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Looked for once, in a child: the driver does not survive a fork. */
uint32_t gpu_ranks_devices(void)
{
    static int known = -1;
    int status = 0;
    if (known >= 0) return (uint32_t)known;
    pid_t child = fork();
    if (child == 0) _exit((int)(tutti_cuda_count() & 0x7f));
    const bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    known = ended ? WEXITSTATUS(status) : 0;
    return (uint32_t)known;
}

bool gpu_ranks_ask(bool (*question)(const struct tutti_device *gpu))
{
    struct tutti_device *gpu;
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(tutti_cuda_open(0, &gpu) < 0 || !question(gpu));
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Looked for in a child, once: this process opens no library of CUDA's. */
static enum { NCCL_UNKNOWN = -1, NCCL_ALONE, NCCL_SHARES, NCCL_NONE } nccl_look(void)
{
    static int known = NCCL_UNKNOWN;
    if (known != NCCL_UNKNOWN) return known;
    int status = 0;
    const char *named = getenv("TUTTI_NCCL_LIBRARY");
    pid_t child = fork();
    if (child == 0) {
        const struct nccl_library *library = nccl_library(named);
        if (library) _exit(nccl_shares(library) ? NCCL_SHARES : NCCL_ALONE);
        printf("skipped: %s\n", tutti_last_error()->text);
        fflush(stdout);
        _exit(NCCL_NONE);
    }
    const bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    if (!ended) puts("skipped: a process that opened NCCL did not survive it");
    known = ended ? WEXITSTATUS(status) : NCCL_NONE;
    return known;
}

void gpu_ranks_need_device(void)
{
    if (gpu_ranks_devices() == 0)
        puts("skipped: no CUDA device");
    else if (!gpu_ranks_by_nccl() || nccl_look() != NCCL_NONE)
        return;
    exit(77);
}

void gpu_ranks_need_two(void)
{
    if (gpu_ranks_at_most(2) == 2) return;
    puts("skipped: nccl needs a GPU for each rank, or 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1, and there is one");
    exit(77);
}

bool gpu_ranks_by_nccl(void)
{
    const char *gpu = getenv("TUTTI_GPU");
    return gpu && strcmp(gpu, "nccl") == 0;
}

bool gpu_ranks_across(uint32_t n)
{
    const char *variable = getenv("RANKS_A_HOST");
    const uint32_t a_host = variable ? (uint32_t)atoi(variable) : 0;
    return a_host > 0 && n > a_host;
}

const char *gpu_ranks_way(uint32_t n)
{
    if (gpu_ranks_across(n)) return "auto";
    return gpu_ranks_by_nccl() ? "nccl" : "cuda";
}

uint32_t gpu_ranks_at_most(uint32_t n)
{
    const uint32_t n_devices = gpu_ranks_by_nccl() && nccl_look() != NCCL_SHARES ? gpu_ranks_devices() : n;
    return n < n_devices ? n : n_devices;
}

bool gpu_ranks_stand_in(void)
{
    const char *driver = getenv("TUTTI_CUDA_DRIVER");
    return driver && strstr(driver, "standin");
}

bool gpu_ranks_take_turns(uint32_t n)
{
    return n > gpu_ranks_devices() && !gpu_ranks_stand_in();
}

uint32_t gpu_ranks_times(uint32_t n, uint32_t own, uint32_t in_turns, uint32_t stand_in)
{
    if (gpu_ranks_stand_in()) return stand_in;
    return gpu_ranks_take_turns(n) ? in_turns : own;
}

uint32_t gpu_ranks_deadline_s(void)
{
    return gpu_ranks_stand_in() ? 400 : 100;
}

bool gpu_rank_open(struct rank *rank, struct gpu_rank *out)
{
    const uint32_t n_devices = tutti_cuda_count();
    const int32_t device = n_devices ? rank->index % (int32_t)n_devices : 0;
    *out = (struct gpu_rank){.rank = rank};
    if (tutti_cuda_open(device, &out->gpu) == TUTTI_OK &&
        tutti_cuda_stream_create(out->gpu, &out->stream) == TUTTI_OK &&
        (!rank->comm || tutti_comm_set_device(rank->comm, device) == TUTTI_OK))
        return true;
    rank_fail(rank, __FILE__, __LINE__, "device %d: %s", (int)device, tutti_last_error()->text);
    return false;
}

void gpu_rank_close(struct gpu_rank *g)
{
    tutti_cuda_stream_destroy(g->gpu, g->stream);
    tutti_cuda_close(g->gpu);
}

void gpu_rank_leave(struct gpu_rank *g)
{
    if (g->rank->failure[0]) return;
    RANK_CHECK_OK(g->rank, tutti_barrier(g->rank->comm, NULL, NULL));
    tutti_comm_destroy(g->rank->comm);
    g->rank->comm = NULL;
    gpu_rank_close(g);
}

uint32_t *gpu_rank_words(struct gpu_rank *g, size_t n)
{
    void *words = NULL;
    if (tutti_cuda_alloc(g->gpu, n * 4, &words) == TUTTI_OK && tutti_cuda_set(g->gpu, words, 0, n * 4) == TUTTI_OK)
        return words;
    rank_fail(g->rank, __FILE__, __LINE__, "%zu words of a device: %s", n, tutti_last_error()->text);
    return NULL;
}

uint32_t *gpu_rank_host_words(struct gpu_rank *g, size_t n)
{
    void *words = NULL;
    if (tutti_cuda_alloc_host(g->gpu, n * 4, &words) == TUTTI_OK) return words;
    rank_fail(g->rank, __FILE__, __LINE__, "%zu pinned words: %s", n, tutti_last_error()->text);
    return NULL;
}
