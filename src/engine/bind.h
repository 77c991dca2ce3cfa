/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_BIND_H
#define TUTTI_ENGINE_BIND_H

/* Where the chunks of a bound schedule are, in bytes: pure arithmetic over what the call gave. This room may use base
 * and sched; begin with struct tutti_bind. A chunk is the k-th even part of a block, a slice the s-th even part of a
 * chunk. Both are cut in elements, so every rank computes the same sizes. */

#include "engine/engine.h"

struct tutti_layout {
    enum tutti_kind kind;
    uint32_t slot, root;
    uint32_t n_blocks, per_block; /* chunks of a block */
    uint32_t n_slices;
    size_t element;
    bool uniform;          /* all chunks of DATA are equal */
    size_t count, largest; /* elements of a block; of the largest chunk */
    const size_t *counts;  /* NULL: all blocks have `count` */
    const size_t *in_displs,
        *out_displs;            /* displacements on the side with all blocks, in elements; NULL: block * count */
    const size_t *in_counts;    /* all_to_all: of IN's blocks; NULL: count */
    const size_t *packed;       /* displacements of private DATA; NULL: block * count */
    const unsigned char *input; /* the user's, or a private copy */
    unsigned char *output, *private_data, *scratch;
    size_t scratch_stride;
};

/* One side of a step. `extent` gives the sizes of SCRATCH chunks. */
struct tutti_operand {
    uint8_t buffer; /* enum tutti_buffer */
    bool input;     /* DATA is read from the user's input */
    uint32_t chunk, n, extent;
};
static inline struct tutti_operand tutti_operand_src(const struct tutti_step *step)
{
    return (struct tutti_operand){step->src_buffer, (step->flags & TUTTI_STEP_SRC_INPUT) != 0, step->src, step->n,
                                  step->extent};
}
static inline struct tutti_operand tutti_operand_dst(const struct tutti_step *step)
{
    return (struct tutti_operand){step->dst_buffer, false, step->dst, step->n, step->extent};
}
/* What the destination held before: the left or right operand of a reduction. */
static inline struct tutti_operand tutti_operand_old(const struct tutti_step *step)
{
    return (struct tutti_operand){step->dst_buffer, (step->flags & TUTTI_STEP_DST_INPUT) != 0, step->dst, step->n,
                                  step->extent};
}

/* What a call needs of private memory, as offsets into one region (64-byte aligned). */
struct tutti_need {
    size_t bytes;
    size_t tables, copy, data, scratch; /* offsets */
    size_t copy_bytes, data_bytes;
    uint32_t n_tables;
};

/* Fills what needs no memory; ARGUMENT when sizes overflow, INTERNAL for schedules that can not be run. */
enum tutti_status tutti_layout_init(struct tutti_layout *layout, const struct tutti_bind *bind, size_t slice_bytes,
                                    struct tutti_need *need);
/* The rest: copies tables, takes private copies of the input. region: need.bytes bytes, NULL if 0. */
void tutti_layout_fill(struct tutti_layout *layout, const struct tutti_bind *bind, const struct tutti_need *need,
                       unsigned char *region);

/* The same where the region is memory of a device, whose tables are the host's: the function copies, and scales, n > 0
 * elements of a block. Its errors. */
typedef enum tutti_status (*tutti_layout_copy)(void *arg, const struct tutti_bind *bind, void *to, const void *from,
                                               size_t n);
struct tutti_layout_room {
    size_t *tables; /* need.n_tables * blocks */
    unsigned char *region;
    tutti_layout_copy copy;
    void *arg;
};
enum tutti_status tutti_layout_place(struct tutti_layout *layout, const struct tutti_bind *bind,
                                     const struct tutti_need *need, const struct tutti_layout_room *place);

/* Bytes of a slice of all chunks of an operand. */
size_t tutti_layout_bytes(const struct tutti_layout *layout, const struct tutti_operand *place, uint32_t slice);
/* The contiguous run at byte `offset` of these bytes, at most `limit` bytes (both are multiples of the element). */
size_t tutti_layout_run(const struct tutti_layout *layout, const struct tutti_operand *place, uint32_t slice,
                        size_t offset, size_t limit, unsigned char **out);
/* The part of block `block` that slice `slice` of chunk `part` covers, in elements. */
size_t tutti_layout_part(const struct tutti_layout *layout, uint32_t block, uint32_t part, uint32_t slice,
                         size_t *first);
/* Where the slice of an operand's first whole block lies; the other blocks follow at equal distances, in bytes. */
unsigned char *tutti_layout_blocks(const struct tutti_layout *layout, const struct tutti_operand *place, uint32_t slice,
                                   size_t *stride);
/* Whether the user's output holds this block of DATA; else it lives in private memory. */
bool tutti_layout_visible(const struct tutti_layout *layout, uint32_t block);

#endif
