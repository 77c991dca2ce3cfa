/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CPU_CPU_H
#define TUTTI_DEVICE_CPU_CPU_H

/* The device `cpu`: folds and copies on the host's CPUs. This room may use base and device/device.h. Begin with
 * cpu_device.c (the table of device functions), then reduce.h and copy.h. Here: the kernels of one instruction set, as
 * one table; cpu_kernels.h fills it in, once for each cpu_<isa>.c. */

#include "device/cpu/reduce.h"
#include "device/recode.h"

/* Types whose elements can be packed: floats of 16 bits and more. */
static inline bool tutti_recode_takes(enum tutti_dtype dtype)
{
    const struct tutti_dtype_info *type = &tutti_dtypes[dtype];
    return type->class == TUTTI_FLOAT || (type->class == TUTTI_SMALL_FLOAT && type->bytes > 1);
}

/* Packed data: loops over a group. By type and wire; NULL: undefined. */
struct tutti_recoders {
    void (*widen[TUTTI_N_DTYPES])(float *out, const void *elements, size_t n);
    void (*narrow[TUTTI_N_DTYPES])(void *elements, const float *in, size_t n);
    uint32_t (*greatest)(const float *in, size_t n); /* the bits of the largest magnitude */
    /* random: a key of recode_random; NULL: to nearest. */
    void (*encode[TUTTI_N_WIRES])(unsigned char *codes, const float *in, size_t n, float inverse,
                                  const uint64_t *random);
    void (*decode[TUTTI_N_WIRES])(float *out, const unsigned char *codes, size_t n, float scale);
    void (*decode_add[TUTTI_N_WIRES])(float *sum, const unsigned char *codes, size_t n, float scale);
};

struct tutti_cpu_kernels {
    tutti_reduce_kernel reduce[TUTTI_N_DTYPES][TUTTI_N_OPS]; /* NULL: undefined */
    tutti_divide_kernel divide[TUTTI_N_DTYPES];
    tutti_scale_kernel scale[TUTTI_N_DTYPES];
    struct tutti_recoders recoders;
};

extern const struct tutti_cpu_kernels tutti_cpu_scalar;
#if defined(__x86_64__)
extern const struct tutti_cpu_kernels tutti_cpu_avx2;
extern const struct tutti_cpu_kernels tutti_cpu_avx512;
#elif defined(__aarch64__)
extern const struct tutti_cpu_kernels tutti_cpu_neon;
#endif

/* The set for an option: "auto", "avx2", ... as tutti_reduce_find takes it. */
const struct tutti_cpu_kernels *tutti_kernels_find(const char *isa);
/* UNSUPPORTED: operation and type do not go together. */
struct tutti_fold;
enum tutti_status tutti_fold_on_cpu(const struct tutti_fold *fold);
/* Carries out a job, at once (recode.c). */
void tutti_recode_on_cpu(const struct tutti_recode *recode, const char *isa);

#endif
