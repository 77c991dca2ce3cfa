/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_JOB_H
#define TUTTI_SIM_JOB_H

/* A training job on many nodes: how long a step takes, from what a rank computes, what it sends, and how unequal ranks
 * are. Pure: how long a collective takes is asked of the caller. job.c has the steps of the three ways to share the
 * work, job_noise.c what the slowest rank adds, job_text.c the text that describes a job (docs/prediction.md).
 *
 * Sources: S. Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB 2020
 * (buckets); Y. Zhao et al., "PyTorch FSDP", VLDB 2023 (shards and replicas); D. Narayanan et al., "PipeDream", SOSP
 * 2019 (1F1B). */

#include "sim/sim.h"

#define TUTTI_JOB_MOST_TENSORS (UINT32_C(1) << 20)
#define TUTTI_JOB_MOST_BYTES (UINT32_C(1) << 26) /* of the text */
enum { TUTTI_JOB_MOST_POINTS = 32, TUTTI_JOB_MOST_NOISES = 8, TUTTI_JOB_TEXT = 256, TUTTI_JOB_MOST_STAGES = 256 };

enum tutti_job_parallel { TUTTI_JOB_DATA, TUTTI_JOB_HSDP, TUTTI_JOB_PIPELINE, TUTTI_JOB_PARALLELS };
enum tutti_job_order { TUTTI_JOB_1F1B, TUTTI_JOB_GPIPE, TUTTI_JOB_ORDERS };
enum tutti_job_noise_kind { TUTTI_JOB_GAUSSIAN, TUTTI_JOB_EXPONENTIAL, TUTTI_JOB_SPIKES, TUTTI_JOB_TRACE };

/* A tensor, or a layer: what is sent as one where it is not put into buckets. */
struct tutti_job_tensor {
    char name[96];
    uint64_t bytes;      /* its gradient's */
    uint64_t activation; /* bytes that go on to the next stage, where a stage ends with it */
    double forward_s, backward_s;
    double ready_s;    /* from the begin of the backward pass until its gradient is there */
    bool has_backward; /* the text gave backward, not ready */
};

/* A part of how much longer than others a rank takes in a step. */
struct tutti_job_noise {
    enum tutti_job_noise_kind kind;
    double amount, probability; /* gaussian: deviation; exponential: mean; spikes: delay, and how likely in a step */
    bool relative;              /* amount is a share of the step's computing; else seconds */
};

struct tutti_job {
    char name[TUTTI_JOB_TEXT], net[TUTTI_JOB_TEXT], slow_links[TUTTI_JOB_TEXT], failed_links[TUTTI_JOB_TEXT];
    char algorithm[TUTTI_JOB_TEXT];
    uint32_t parallel, order;         /* enum tutti_job_parallel, tutti_job_order */
    struct tutti_job_tensor *tensors; /* as the forward pass takes them */
    uint32_t *by_ready;               /* numbers of tensors in the order in which their gradients are there */
    uint32_t n_tensors, tensor_capacity;
    double input_s, forward_s, backward_s,
        optimizer_s;     /* input to optimizer: beyond what tensors say; backward: in all */
    uint32_t accumulate; /* passes before one that communicates, and that one */
    uint64_t bucket, first_bucket, unit;
    bool bucket_given, first_bucket_given, overlap;
    double speed, call_overhead_s, interference, compression, compression_rate, gather;
    uint32_t ranks_per_node, shard, stages, microbatches, strong_from;
    uint32_t nodes[TUTTI_JOB_MOST_POINTS], n_nodes;
    struct tutti_job_noise noises[TUTTI_JOB_MOST_NOISES];
    uint32_t n_noises;
    double *samples; /* a trace's: how much longer each step took, as a share of their mean */
    uint32_t n_samples, sample_capacity;
    double slow_share, slow_factor, drop; /* stragglers; share of ranks that nobody waits for */
    uint32_t steps;
    uint64_t seed;
    struct {
        uint32_t nodes;
        double efficiency;
    } published[TUTTI_JOB_MOST_POINTS];
    uint32_t n_published;
};

/* ---- text (job_text.c) ---- */
void tutti_job_init(struct tutti_job *job); /* every key has its default, and there is no tensor */
void tutti_job_fini(struct tutti_job *job);
/* Reads a description into a job that was inited. ARGUMENT with a sentence of the form "NAME:LINE: ..."; MEMORY. */
enum tutti_status tutti_job_read(const char *name, const char *text, size_t bytes, struct tutti_job *job);
/* Sets one key, as a line "key = value" does. ARGUMENT with a sentence. */
enum tutti_status tutti_job_set(struct tutti_job *job, const char *key, const char *value);
/* Whether keys fit one another, and what follows from them; to be called once, when all are set. ARGUMENT with a
 * sentence. */
enum tutti_status tutti_job_check(struct tutti_job *job);
/* The keys, one by one, for help; false: there are no more. */
bool tutti_job_key(uint32_t i, const char **name, const char **fallback, const char **help);

/* ---- what the job asks of a network ---- */
/* A collective of groups of ranks, which all have one under way: members of a group are `stride` ranks apart. For
 * all_gather and reduce_scatter bytes is the whole buffer. BROADCAST in groups of two is a message to the next stage.
 */
struct tutti_job_call {
    enum tutti_kind kind;
    uint64_t bytes;
    uint32_t size, stride, ranks_per_node;
};
struct tutti_job_times {
    /* Seconds. An error has its sentence recorded. */
    enum tutti_status (*seconds)(void *argument, const struct tutti_job_call *call, double *out);
    void *argument;
};

/* ---- steps (job.c) ---- */
struct tutti_job_point {
    uint32_t nodes, ranks, calls; /* calls: collectives of a rank in a step */
    bool possible;                /* false: the work can not be shared so far */
    double ideal_s;               /* the rank's computing, were it alone */
    double called_s;              /* all its collectives, one after another */
    double exposed_s;             /* by which these lengthen a step of equal ranks; with the bubble of a pipeline */
    double waited_s;              /* by which the slowest rank does */
    double step_s;                /* ideal_s + exposed_s + waited_s: the mean over steps */
    double efficiency; /* (1 - drop) * ideal_s / step_s; strong: the ideal is what strong_from nodes take by its
                          share of the nodes, optimizer and all */
};
/* A step at so many nodes. Weak: each rank has the work that the text describes; strong: all have the work of
 * strong_from nodes together. The job was checked. ARGUMENT, MEMORY, and what `times` returns. */
enum tutti_status tutti_job_step(const struct tutti_job *job, uint32_t nodes, bool strong,
                                 const struct tutti_job_times *times, struct tutti_job_point *out);
/* Buckets of gradients as PyTorch's DDP makes them from the second step on: tensors in the order in which they are
 * ready; one is closed by the tensor that makes it reach its size. ends[i] is one more than the last place of bucket i
 * in that order. Returns how many there are. ends has n_tensors places. */
uint32_t tutti_job_buckets(const struct tutti_job *job, const uint32_t *order, uint32_t n, uint32_t *ends);

/* ---- unequal ranks (job_noise.c) ---- */
/* For each of job->steps steps: how many seconds longer than compute_s the last rank takes that others wait for. The
 * same seed gives the same delays. MEMORY. */
enum tutti_status tutti_job_delays(const struct tutti_job *job, uint32_t n_ranks, double compute_s, double *delays);

#endif
