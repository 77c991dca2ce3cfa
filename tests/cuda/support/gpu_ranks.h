/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_GPU_RANKS_H
#define TUTTI_TESTS_CUDA_GPU_RANKS_H

/* Ranks with a device each, as processes: more ranks than devices share them. The parent never touches the driver,
 * which does not survive a fork. */

#include "ranks.h"

#include "device/cuda/cuda_device.h"

/* Visible devices, found out by a child; 0: none. */
uint32_t gpu_ranks_devices(void);
/* Says "skipped: no CUDA device" and ends the program with 77 where there is none; and where the program is to run by
 * nccl, which is not there. */
void gpu_ranks_need_device(void);
/* TUTTI_GPU is nccl: the same tests by that back end, which serves as many ranks as there are devices (more where NCCL
 * lets them share: nccl_shares), and captures no communicator's first call. */
bool gpu_ranks_by_nccl(void);
/* With RANKS_A_HOST so many ranks are on several hosts: no back end of devices serves them. Their calls go through the
 * host, which captures nothing, has no methods, and maps no memory of devices. */
bool gpu_ranks_across(uint32_t n);
/* What the option gpu says of so many ranks: the back end that is to serve them, auto where there is none. */
const char *gpu_ranks_way(uint32_t n);
/* Where that has no two: the same end. */
void gpu_ranks_need_two(void);
/* What a child says of its device 0; it is closed then. */
bool gpu_ranks_ask(bool (*question)(const struct tutti_device *gpu));
/* As many ranks as are wanted, or as can be. */
uint32_t gpu_ranks_at_most(uint32_t n);
/* The machine of TUTTI_CUDA_DRIVER is a stand-in: everything takes a thousand times as long. */
bool gpu_ranks_stand_in(void);
/* So many processes share devices, where they take turns of a millisecond or two: a call takes that long at each end.
 */
bool gpu_ranks_take_turns(uint32_t n);
/* How often processes of a world do a thing: with devices of their own, in turns, on the stand-in. */
uint32_t gpu_ranks_times(uint32_t n, uint32_t own, uint32_t in_turns, uint32_t stand_in);
/* For a world that does much: less than a test has on devices. */
uint32_t gpu_ranks_deadline_s(void);

/* What a rank has. Opened by gpu_rank_open, which gives the rank's communicator its device, too. */
struct gpu_rank {
    struct rank *rank;
    struct tutti_device *gpu;
    void *stream;
};
bool gpu_rank_open(struct rank *rank, struct gpu_rank *out);
void gpu_rank_close(struct gpu_rank *g); /* the communicator of the rank must not use the device any more */
void gpu_rank_leave(struct gpu_rank *g); /* when all have come to it, and with the communicator; not after a failure */

/* Device memory and pinned host memory of so many 32-bit words, zeroed. NULL and a failure of the rank: there is none.
 */
uint32_t *gpu_rank_words(struct gpu_rank *g, size_t n);
uint32_t *gpu_rank_host_words(struct gpu_rank *g, size_t n);
#define GPU_CHECK_OK(g, call) RANK_CHECK_OK((g)->rank, call)

#endif
