/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_GPU_GPU_PLAN_H
#define TUTTI_BACKEND_GPU_GPU_PLAN_H

/* What a call becomes on GPUs: a pure function of the call and of what all members agree on. A *method*, chosen from a
 * table, gives the call's *steps* one by one; a step is a kernel's exchange, a copy or a meeting
 * (device/exchange.h). Nothing here touches a device: pointers are computed with, never read.
 *
 * Begin with gpu_methods.c: the table and the choice. gpu_forms.c: what calls are as exchanges. gpu_tiles.c,
 * gpu_direct.c, gpu_engines.c: methods. gpu_groups.c: groups of calls. gpu_methods.c: what was measured, on which the
 * choice rests. gpu_layout.c: scratch memory. */

#include "backend/backend.h"
#include "base/config.h"
#include "device/exchange.h"
#include "model/constants.h"

/* ---- what was measured (gpu_methods.c) ---- */

/* What was measured of GPUs, from which the methods of the back end cuda predict what they cost: by the device's name
 * and the number of ranks, in a table of what is known (gpu_methods.c) or in a file of lines `name value`. Those of the
 * first rank stand for all, so they travel in its card. */

/* X(name, minimum, maximum, help). Times in ns, of a call in a graph whose bytes do not matter, from one launch's start
 * to its end; rates in bytes a ns, which is GB/s. */
#define GPU_SPEED(X)                                                                                                   \
    X(lines_ns, 1, 1e7, "a call by lines")                                                                             \
    X(sentinel_ns, 1, 1e7, "a call by sentinels")                                                                      \
    X(exceptions_ns, 0, 1e7, "and what data of any bits adds to it")                                                   \
    X(sentinel2_ns, 1, 1e7, "a call by sentinels in two shots")                                                        \
    X(tiles_ns, 1, 1e7, "a call by tiles")                                                                             \
    X(store_gbs, 0.1, 1e5, "bytes that a GPU stores to its peers, by lines (two a byte of data) and sentinels")        \
    X(tile_gbs, 0.1, 1e5, "bytes that a GPU stores to its peers by tiles")                                             \
    X(direct_ns, 1, 1e7, "a call that stores straight to peers' windows, and what spreading results there adds")       \
    X(direct_gbs, 0.1, 1e5, "bytes that a GPU stores straight to its peers")                                           \
    X(hop_ns, 0, 1e7, "what it adds that a rank sends on what is stored to it")                                        \
    X(chain_gbs, 0.1, 1e5, "bytes that a GPU stores straight to one peer, if all store to one")                        \
    X(copy_gbs, 0.1, 1e5, "bytes copied within a GPU")                                                                 \
    X(engine_ns, 1, 1e7, "a copy by a copy engine")                                                                    \
    X(engine_gbs, 0.1, 1e5, "its bytes")                                                                               \
    X(meet_ns, 1, 1e7, "a meeting before or after copies")                                                             \
    X(blocks, 4, 128, "blocks of a launch, at most")

struct gpu_speed {
#define GPU_SPEED_FIELD(name, minimum, maximum, help) float name;
    GPU_SPEED(GPU_SPEED_FIELD)
#undef GPU_SPEED_FIELD
};

extern const struct tutti_constants gpu_speed_constants;
/* What the table has of the device: the row of its name for the number of ranks that is nearest; of a device that it
 * does not know, the row of H200. */
const struct gpu_speed *gpu_speed_known(const char *device, uint32_t n);
/* The same; of a device of CUDA that it does not know, by the generation of its links. capability: 90 is 9.0; 0: not
 * one of CUDA. Times and rates are guesses then, of which `tutti tune --device cuda` makes measured ones. */
void gpu_speed_guess(const char *device, uint32_t capability, uint32_t n, struct gpu_speed *out);
/* With what the option gpu_tuning asks for: "auto" the file of this device and number of ranks if there is one (one
 * that can not be used is told in the log), "off" none, else the file of that name, which must be right. */
enum tutti_status gpu_speed_load(const char *tuning, const char *device, uint32_t capability, uint32_t n,
                                 struct gpu_speed *out);
/* Whether the text is one of those. ARGUMENT, SYSTEM. */
enum tutti_status gpu_tuning_check(const char *tuning);

/* ---- scratch (gpu_layout.c) ---- */
#define GPU_SCRATCH_DEFAULT ((size_t)64 << 20)
#define GPU_LEAST_BLOCKS 4 /* of a launch */
/* The largest layout of at most `budget` bytes; `bounce` bytes of private memory come after layout.bytes. False: the
 * budget does not suffice. Pure, so that all members have one layout. */
bool gpu_layout(uint32_t n, size_t budget, uint32_t n_blocks, struct gpu_layout *out, size_t *bounce);
/* How many blocks a launch of a rank may have: kernels of a collective wait for one another, so those of all ranks on a
 * GPU have to be there at once. */
uint32_t gpu_blocks_for(uint32_t n_sms, uint32_t ranks_on_gpu);

/* ---- steps ---- */
enum gpu_protocol {
    GPU_LINES,
    GPU_SENTINEL,
    GPU_SENTINEL2,
    GPU_SENTINEL_RELAY,
    GPU_BATCH_LINES,
    GPU_BATCH_SENTINEL, /* up to here kernels wait by themselves for what is ahead of them */
    GPU_TILES,
    GPU_DIRECT,
    GPU_MAPPED,
    GPU_FOLD,
    GPU_N_PROTOCOLS
};
enum gpu_stream { GPU_CALLERS, GPU_OWN }; /* FORK and JOIN tie the own one to the caller's */
/* ARRIVE: waits for all to come to the launch behind, of which it has all. */
enum gpu_act { GPU_LAUNCH, GPU_COPY, GPU_MEET, GPU_FORK, GPU_JOIN, GPU_ARRIVE };

/* What a step does. Exchanges are filled but for `call`; so is `direct` in its steps, and the exchange is not; of
 * mapped ones both are, as struct gpu_mapped has them, but where buffers are; sentinel2 has in, out, result_bytes (of
 * the whole) and send[0].bytes (of a shard); folds have `from` and out and result_bytes; batches are in the instance's
 * struct gpu_batch, but for `call` and units. */
struct gpu_step {
    enum gpu_act act;
    enum gpu_protocol protocol;
    bool folds;       /* else it moves */
    bool scales;      /* the factor of premul_sum is applied here */
    uint32_t divisor; /* 0: none */
    uint32_t blocks;  /* 0: nothing to be done by this rank */
    uint32_t threads;
    enum gpu_stream stream;
    char *dst; /* copies */
    const char *src;
    size_t bytes;
    const char *from[GPU_MAX_RANKS];
    uint32_t needs, straight; /* mapped: bits of places; blocks that go straight */
    bool spreads, in_the_way; /* its output lies where peers load, or what it sends where they store: by tiles */
    struct gpu_exchange exchange;
    struct gpu_direct direct;
};

/* Where a plan is made: all but what is of this rank's memory is equal on all members. */
struct gpu_site {
    uint32_t n, me;
    uint32_t tile_threads; /* in a block of kernels by tiles */
    const struct gpu_speed *speed;
    struct gpu_layout layout;
    bool maps;                                     /* all members map ordinary memory of others */
    bool has[GPU_N_PROTOCOLS][TUTTI_N_DTYPES + 1]; /* kernels that fold the dtype; last: that move */
    size_t bounce_bytes;
    char *bounce;
    char *own;                  /* windows: the base of the own one that holds the call's output, NULL: none does */
    uint64_t block;             /* and the identity of its memory when it was made */
    uint64_t where;             /* which one, and at which offset: equal on all members, or they differ */
    char *peers[GPU_MAX_RANKS]; /* and where the others' are mapped */
};

struct gpu_method {
    const char *name;
    bool in_windows; /* fits only what is in a window on all ranks */
    bool (*fits)(const struct gpu_site *site, const struct tutti_backend_call *call);
    double (*cost_ns)(const struct gpu_site *site, const struct tutti_backend_call *call);
    /* The i-th step; false: there are no more. */
    bool (*step)(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i, struct gpu_step *out);
};
extern const struct gpu_method gpu_alone, gpu_lines, gpu_sentinel, gpu_sentinel2, gpu_sentinels, gpu_tiles, gpu_tiles2,
    gpu_relay, gpu_sentinel_relay, gpu_direct, gpu_mapped, gpu_engines;

/* ---- what calls are (gpu_forms.c) ---- */
/* Bytes of as many elements as the call counts. */
size_t gpu_call_bytes(const struct tutti_backend_call *call);
/* Whether it adds up, to divide or scale besides: some types have faster kernels for that. */
bool gpu_sums(const struct tutti_backend_call *call);
/* Bytes of a block, the largest of the blocks of v forms that all members know; 0 where they do not (gather_v,
 * scatter_v, all_to_all_v: *known is false). */
size_t gpu_block_bytes(const struct gpu_site *site, const struct tutti_backend_call *call, bool *known);
/* The k-th of n parts of so many bytes, all but the last ones equal, multiples of GPU_SHARD_UNIT. */
#define GPU_SHARD_UNIT 128
struct gpu_part gpu_shard(size_t bytes, uint32_t n, uint32_t k);
/* The part for q, and the part from q, as the call's kind and tables have them. */
struct gpu_part gpu_sent_to(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t q);
struct gpu_part gpu_received_from(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t q);
/* What a busiest rank sends or receives: a block for each other one, whatever the kind. */
double gpu_pushed_bytes(const struct gpu_site *site, const struct tutti_backend_call *call);
/* Begins a step: an exchange between these buffers, of no parts. */
void gpu_step_begin(struct gpu_step *step, enum gpu_protocol protocol, const void *in, void *out);
/* The step folds, and scales and divides as the call says. */
void gpu_step_fold(const struct tutti_backend_call *call, struct gpu_step *step);
/* The call as one exchange. */
void gpu_step_form(const struct gpu_site *site, const struct tutti_backend_call *call, enum gpu_protocol protocol,
                   struct gpu_step *step);
/* Ends a step of lines or sentinels, whose longest part is so long, in slots of block_bytes. False: it is too long.
 * step NULL: only asks. */
bool gpu_step_grid(const struct gpu_site *site, size_t bytes, uint32_t block_bytes, struct gpu_step *step);
/* Whether there is a kernel for the call's type, or to move. */
bool gpu_has(const struct gpu_site *site, const struct tutti_backend_call *call, enum gpu_protocol protocol);
/* The pairs that exchange, and whether each has a block of its own. */
void gpu_batch_form(const struct gpu_site *site, const struct tutti_backend_call *call, struct gpu_batch *out);
/* Ends a step: blocks and threads that its parts ask for. */
void gpu_step_tiles(const struct gpu_site *site, struct gpu_step *step);
/* Whether it is in place, of a reduction of blocks wherever in the input the output lies: equal on all members, as
 * windows have it. */
bool gpu_call_in_place(const struct gpu_site *site, const struct tutti_backend_call *call);
/* Where a peer has the byte of the call's output that is `at` in mine. The call is in a window. */
char *gpu_site_there(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t peer, size_t at);
/* What this rank has for rank q, itself included, in an all_gather or all_to_all of equal blocks in a window. */
struct gpu_push {
    const char *from;
    char *to;
    size_t bytes;
};
struct gpu_push gpu_push_to(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t q);
/* The step of `direct`, which the call's kind has (gpu_direct.c). */
bool gpu_direct_step(const struct gpu_site *site, const struct tutti_backend_call *call, struct gpu_step *out);

/* ---- all_reduce in two exchanges (gpu_tiles.c) ---- */
/* A step in which each rank folds, by tiles, its own shard of [at, +bytes), which goes to `to` on this rank. */
void gpu_step_fold_shards(const struct gpu_site *site, const struct tutti_backend_call *call, size_t at, size_t bytes,
                          char *to, struct gpu_step *out);
/* By tiles: shards are folded, then spread. */
bool gpu_two_shots_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                        struct gpu_step *out);

/* ---- the choice (gpu_methods.c) ---- */
enum tutti_status gpu_options_check(const struct tutti_config *options); /* the options cuda and gpu_tuning */
extern const struct gpu_method *const gpu_methods[];
extern const size_t gpu_n_methods;
/* All that can do it, and which of them would be chosen. wanted: as below. */
size_t gpu_candidates(const struct gpu_site *site, const struct tutti_backend_call *call, const char *wanted,
                      struct tutti_backend_candidate *out, size_t capacity);
/* NULL: it can not be done here. wanted: "" or the name of the one to be used where it can. */
const struct gpu_method *gpu_choose(const struct gpu_site *site, const struct tutti_backend_call *call,
                                    const char *wanted, double *ns);

/* ---- groups (gpu_groups.c) ---- */
/* The first calls of several as one exchange. */
struct gpu_run {
    size_t n;                        /* calls; 1: the first one alone */
    const struct gpu_method *method; /* by which all are one call */
    enum gpu_protocol protocol;
    struct tutti_backend_call whole; /* that call; its buffers are the first one's */
};
/* How many of the first of n calls to fuse: as long as that is predicted to take no longer than one by one (wanted
 * "batch": as long as it can be done). Pure over what is equal on all members. */
void gpu_run_plan(const struct gpu_site *site, const struct tutti_backend_call *calls, size_t n, const char *wanted,
                  struct gpu_run *out);
/* Units of these calls' segments, from the first one's beginning to the end of the last. */
size_t gpu_run_units(const struct tutti_backend_call *calls, size_t n);
/* The segments of n calls that were planned as one run, in their order. */
void gpu_run_fill(const struct gpu_site *site, const struct tutti_backend_call *calls, size_t n, struct gpu_batch *out);
/* How many of the first of n planned calls may run at once on this rank: none but the first uses a result of another,
 * or writes what another one uses, and all have one factor. */
size_t gpu_run_independent(const struct gpu_site *site, const struct tutti_backend_call *calls, size_t n);

#endif
