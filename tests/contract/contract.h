/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CONTRACT_H
#define TUTTI_TESTS_CONTRACT_H

/* The contract of the public calls, as data: a case is one value of each dimension; contract_run makes the call on one
 * rank and compares every byte that it may and may not write. It knows nothing of transports or back ends, so every one
 * of them must pass it. */

#include "ranks.h"

enum contract_dimension {
    CALL,   /* contract_calls[] */
    DTYPE,  /* enum tutti_dtype */
    OP,     /* enum tutti_op */
    SIZE,   /* contract_sizes[] */
    RANKS,  /* 1 .. 17: value + 1 */
    PLACE,  /* 0 out of place, 1 in place */
    ALIGN,  /* 0 aligned, 1 every buffer begins one byte off */
    FORM,   /* enum contract_form */
    VALUES, /* 0 exact in every order, 1 random */
    N_DIMENSIONS
};
enum contract_form { BLOCKING, ASYNCHRONOUS, IN_GROUP, N_FORMS };

extern const uint32_t contract_domain[N_DIMENSIONS]; /* number of values */
#define CONTRACT_N_SIZES 7
extern const size_t contract_sizes[CONTRACT_N_SIZES]; /* elements of a block */

/* Where a rank's buffers are, if not in host memory; by contract_device.c, which only programs with devices need. What
 * was taken is kept until the end: giving memory of a device back waits for all that runs there, also for calls of
 * other ranks of the process, which wait for this one. */
#define CONTRACT_ROOMS 32
struct contract_room {
    void *at; /* NULL: none */
    size_t bytes;
    bool mapped, used;
    struct tutti_window *window; /* NULL: it is in none */
};
struct tutti_device;
struct contract_memory {
    struct tutti_device *device;
    void *stream; /* for the calls */
    struct contract_room rooms[CONTRACT_ROOMS];
    /* Device memory for an arena of host memory, with its bytes. NULL: there is none. */
    void *(*put)(struct contract_memory *memory, struct tutti_comm *comm, bool mapped, const void *arena, size_t bytes);
    /* When the stream has come past the call: the bytes back, and false if they can not be had. */
    bool (*get)(struct contract_memory *memory, void *device, void *arena, size_t bytes);
    void (*release)(struct contract_memory *memory, void *device);
};

struct contract_case {
    uint32_t at[N_DIMENSIONS];
    uint64_t seed;
    const char *algorithm;          /* NULL: chosen */
    uint64_t mapped;                /* bit r % 64: the buffers of rank r are of tutti_mem_alloc */
    struct contract_memory *memory; /* this rank's; NULL: host memory */
    bool thrifty;                   /* large reductions are compared by one rank, which differs from case to case */
};
const char *contract_call_name(const struct contract_case *c);
bool contract_call_reduces(uint32_t call);
uint32_t contract_n_calls(void);

/* One case on one rank; *right (may be NULL) tells when an override does not fit the call, which is no failure. */
void contract_run(struct rank *rank, const struct contract_case *c, bool *refused);

/* Fills in the functions (contract_device.c). */
void contract_memory_init(struct contract_memory *memory, struct tutti_device *device, void *stream);
/* Then, by all ranks: buffers of cases that are mapped on all of them, of at most so many bytes, lie in windows. */
enum tutti_status contract_memory_windows(struct contract_memory *memory, struct tutti_comm *comm, size_t bytes);
void contract_memory_fini(struct contract_memory *memory, struct tutti_comm *comm);

/* Cases that contain every pair of values of every two dimensions; malloc'ed. */
struct contract_case *contract_pairs(uint64_t seed, size_t *n);
/* Every combination for a number of ranks; malloc'ed. */
struct contract_case *contract_product(uint32_t n_ranks, uint64_t seed, size_t *n);

#endif
