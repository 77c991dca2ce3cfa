/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_LOCKSTEP_H
#define TUTTI_SIM_LOCKSTEP_H

/* Collectives round by round: each round's messages are run by the simulator as one program, and the rounds are added
 * up as if all ranks waited for one another between them. That is what algorithms do in which everybody does the same
 * at the same time; then a time costs one run a round instead of an event for each message, and 24,576 ranks take
 * seconds. It is exact where ranks share nothing and keep step (ports; ring, halving and doubling of 2^k ranks). Where
 * ranks get ahead of others it is too long, by up to three quarters in a ring over nodes; where a rank waits within a
 * round (halves that differ by one) or ranks out of step disturb one another on shared links, it may be too short, by a
 * sixth (lockstep_test.c). */

#include "sim/network.h"

/* All groups of a world that have one collective under way: ranks 0, stride, 2 * stride, ... are the first group's, and
 * so on. n_ranks is a multiple of size * stride. */
struct tutti_sim_groups {
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    uint32_t size, stride, n_ranks;
};
struct tutti_sim_opener {
    enum tutti_status (*open)(void *argument, const struct tutti_sim_program *program, struct tutti_sim_network **out);
    void *argument;
};
/* Seconds of a call whose whole buffer is so large. UNSUPPORTED: the algorithm does not fit, or its rounds are too many
 * to be run one by one and not all alike; ARGUMENT, MEMORY. */
enum tutti_status tutti_sim_lockstep(const struct tutti_sim_groups *groups, uint64_t bytes,
                                     const struct tutti_sim_opener *opener, double *seconds);

#endif
