/* SPDX-License-Identifier: BSD-3-Clause */
/* What a reduction on a device results in, by the reference's operations on one element at a time. Like the CPU's, but
 * that 8- and 16-bit floats are kept in float32 between ranks. */
#include "cuda/support/line_calls.h"
#include "reference.h"

#include <string.h>

enum { MOST_BYTES = 16 };

static void reduce_narrow(enum tutti_dtype dtype, enum tutti_op op, unsigned char elements[][MOST_BYTES], size_t n,
                          unsigned char *out)
{
    float value = (float)ref_decode(dtype, elements[0]);
    for (size_t i = 1; i < n; i++) {
        const float next = (float)ref_decode(dtype, elements[i]);
        value = op == TUTTI_PROD ? value * next : value + next;
    }
    if (op == TUTTI_AVG) value = value / (float)n;
    ref_encode(dtype, (double)value, out);
}

static void reduce_element(enum tutti_dtype dtype, enum tutti_op op, unsigned char elements[][MOST_BYTES], size_t n,
                           unsigned char *out)
{
    if (ref_is_small_float(dtype) && op != TUTTI_MIN && op != TUTTI_MAX) {
        reduce_narrow(dtype, op, elements, n, out);
        return;
    }
    memcpy(out, elements[0], ref_bytes(dtype));
    for (size_t i = 1; i < n; i++) ref_hop(dtype, op, out, out, elements[i], 1);
    if (op == TUTTI_AVG) ref_divide(dtype, out, 1, (uint32_t)n);
    if (dtype == TUTTI_BOOL) *out = *out != 0;
}

void line_reduce(enum tutti_dtype dtype, enum tutti_op op, const unsigned char *const *inputs,
                 const unsigned char *const *factors, size_t n_inputs, size_t n, unsigned char *out)
{
    const size_t size = ref_bytes(dtype);
    for (size_t i = 0; i < n; i++) {
        unsigned char elements[GPU_MAX_RANKS][MOST_BYTES];
        for (size_t k = 0; k < n_inputs; k++) {
            memcpy(elements[k], inputs[k] + i * size, size);
            if (op == TUTTI_PREMUL_SUM) ref_scale(dtype, elements[k], 1, factors[k]);
        }
        reduce_element(dtype, op, elements, n_inputs, out + i * size);
    }
}
