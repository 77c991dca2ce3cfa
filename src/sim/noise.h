/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_NOISE_H
#define TUTTI_SIM_NOISE_H

/* Ranks that are disturbed: a network around any other one, in which ranks are held for a while now and then, begin
 * late, or compute slowly. What happens to a rank at a time is a pure function of the seed, so runs repeat.
 *
 * A rank that is held begins nothing, computes nothing, and sees what arrives when it is free again; bytes under way go
 * on. T. Hoefler, T. Schneider, A. Lumsdaine: Characterizing the influence of system noise on large-scale applications
 * by simulation (SC 2010). */

#include "sim/network.h"
#include "sim/parameters.h"

/* X(name, default, least, most, unit, help): times in seconds. */
#define TUTTI_SIM_NOISE(X)                                                                                             \
    X(every, 1e-3, 1e-6, 1e3, TIME, "each rank is held once in each such time, at a random point of it")               \
    X(length, 25e-6, 0, 1e3, TIME, "mean of the exponential distribution of how long; cut at the end of `every`")      \
    X(together, 0, 0, 1, COUNT, "1: all ranks at the same points, for the same time")
#define TUTTI_SIM_STRAGGLER(X)                                                                                         \
    X(late, 0, 0, 1e3, TIME, "it begins this much later than the others")                                              \
    X(slow, 1, 1, 1e6, RATIO, "it computes (copies, folds) this many times as long")

#define TUTTI_SIM_FIELD(name, ...) double name;
#define TUTTI_SIM_MOST_STRAGGLERS 16
struct tutti_sim_noise {
    struct {
        TUTTI_SIM_NOISE(TUTTI_SIM_FIELD)
    } is; /* every 0: no noise */
    uint64_t seed;
    struct tutti_sim_stragglers {
        uint32_t first, last; /* ranks; */
        double share;         /* above 0: so much of all ranks instead, by seed */
        struct {
            TUTTI_SIM_STRAGGLER(TUTTI_SIM_FIELD)
        } is;
    } stragglers[TUTTI_SIM_MOST_STRAGGLERS];
    uint32_t n_stragglers;
};
#undef TUTTI_SIM_FIELD
extern const struct tutti_sim_table tutti_sim_noise_table, tutti_sim_straggler_table;

/* "every=1ms,length=25us". ARGUMENT with a sentence. */
enum tutti_status tutti_sim_noise_set(struct tutti_sim_noise *noise, const char *text);
/* "WHICH:late=1ms,slow=1.5" with WHICH a rank (7), ranks (8-15) or a share of all (1%). ARGUMENT with a sentence. */
enum tutti_status tutti_sim_straggler_add(struct tutti_sim_noise *noise, const char *text);
bool tutti_sim_noise_any(const struct tutti_sim_noise *noise);
/* Puts the noise around a network, which becomes its own, but on an error. ARGUMENT where a straggler is no rank of the
 * program; MEMORY. */
enum tutti_status tutti_sim_noise_open(const struct tutti_sim_noise *noise, struct tutti_sim_network *inner,
                                       struct tutti_sim_network **out);

/* Takes exactly `needed` of `left` things by chance, asked for one after another. */
struct tutti_sim_sample {
    uint64_t random, needed, left;
};
struct tutti_sim_sample tutti_sim_sample_of(double share, uint64_t n, uint64_t seed);
bool tutti_sim_sample_takes(struct tutti_sim_sample *sample);

#endif
