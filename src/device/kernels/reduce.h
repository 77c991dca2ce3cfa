/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_REDUCE_CUH
#define TUTTI_DEVICE_CUDA_REDUCE_CUH

/* Reductions, a unit of 16 bytes at a time. A reducer R (gpu_fold_any<type>: any operation, chosen by a branch that is
 * the same for all threads; gpu_fold_sum<type>: sums alone) folds units in the order in which they are given:
 *
 *     typename R::total total;
 *     R::first(&total, unit);             the first contribution,
 *     R::next(&total, unit, call.op);     each further one,
 *     unit = R::result(total, call.divisor);
 *
 * and R::scale(unit, call.factor) is what premul_sum does to the own contribution before anything else (call.scales).
 * Units at the end of a part may have fewer elements; the others are computed, too, and ignored. */

#include "device/exchange.h"
#include "device/kernels/numbers.h"

#include <tutti/types.h>

template <typename T> struct gpu_total {
    typename T::part parts[T::n];
};

template <typename T, uint32_t OP> GPU_DEVICE typename T::part gpu_fold_part(typename T::part a, typename T::part b)
{
    if constexpr (OP == TUTTI_PROD) return T::product(a, b);
    if constexpr (OP == TUTTI_MIN) return T::least(a, b);
    if constexpr (OP == TUTTI_MAX) return T::greatest(a, b);
    if constexpr (OP == TUTTI_BAND) return T::both(a, b);
    if constexpr (OP == TUTTI_BOR) return T::either(a, b);
    if constexpr (OP == TUTTI_BXOR) return T::one_of(a, b);
    if constexpr (OP == TUTTI_SUM) return T::sum(a, b);
}

/* Each product rounded, never fused: (ar br - ai bi, ar bi + ai br). */
template <typename T> GPU_DEVICE void gpu_multiply_complex(typename T::part *a, const typename T::part *b)
{
    GPU_UNROLL
    for (uint32_t k = 0; k < T::n; k += 2) {
        const typename T::part real = T::sum(T::product(a[k], b[k]), -T::product(a[k + 1], b[k + 1]));
        a[k + 1] = T::sum(T::product(a[k], b[k + 1]), T::product(a[k + 1], b[k]));
        a[k] = real;
    }
}

template <typename T, uint32_t OP> GPU_DEVICE void gpu_fold_unit(gpu_total<T> *total, gpu_words unit)
{
    typename T::part parts[T::n];
    T::take(parts, unit);
    if constexpr (T::is_complex && OP == TUTTI_PROD) {
        gpu_multiply_complex<T>(total->parts, parts);
    } else {
        GPU_UNROLL
        for (uint32_t k = 0; k < T::n; k++) total->parts[k] = gpu_fold_part<T, OP>(total->parts[k], parts[k]);
    }
}

/* What all reducers of a type share. */
template <typename T> struct gpu_reducer {
    using type = T;
    using total = gpu_total<T>;
    static constexpr bool moves = false;

    GPU_DEVICE void first(total *sum, gpu_words unit) { T::take(sum->parts, unit); }
    GPU_DEVICE gpu_words result(const total &sum, uint32_t divisor)
    {
        if (divisor == 0) return T::give(sum.parts);
        total quotient;
        GPU_UNROLL
        for (uint32_t k = 0; k < T::n; k++) quotient.parts[k] = T::divide(sum.parts[k], divisor);
        return T::give(quotient.parts);
    }
    /* The factor is one element: repeated over a unit it makes parts of its own. */
    GPU_DEVICE gpu_words factor(const unsigned char *element)
    {
        constexpr uint32_t elements = T::is_complex ? T::n / 2 : T::n, bytes = T::is_bool ? 1 : 16 / elements;
        uint32_t words[4] = {0, 0, 0, 0};
        GPU_UNROLL
        for (uint32_t k = 0; k < 16; k++) words[k / 4] |= (uint32_t)element[k % bytes] << (k % 4 * 8);
        return gpu_words{words[0], words[1], words[2], words[3]};
    }
    GPU_DEVICE gpu_words scale_by(gpu_words unit, gpu_words factors)
    {
        if constexpr (T::is_bool) return unit;
        total scaled;
        T::take(scaled.parts, unit);
        gpu_fold_unit<T, TUTTI_PROD>(&scaled, factors);
        return T::give(scaled.parts);
    }
    GPU_DEVICE gpu_words scale(gpu_words unit, const unsigned char *element) { return scale_by(unit, factor(element)); }
};

template <typename T> struct gpu_fold_sum : gpu_reducer<T> {
    static constexpr bool sums = true;

    GPU_DEVICE void next(gpu_total<T> *total, gpu_words unit, uint32_t) { gpu_fold_unit<T, TUTTI_SUM>(total, unit); }
};

template <typename T> struct gpu_fold_any : gpu_reducer<T> {
    static constexpr bool sums = false;

    GPU_DEVICE void next(gpu_total<T> *total, gpu_words unit, uint32_t op)
    {
        if (op == TUTTI_PROD) return gpu_fold_unit<T, TUTTI_PROD>(total, unit);
        if constexpr (!T::is_complex) {
            if (op == TUTTI_MIN) return gpu_fold_unit<T, TUTTI_MIN>(total, unit);
            if (op == TUTTI_MAX) return gpu_fold_unit<T, TUTTI_MAX>(total, unit);
        }
        if constexpr (T::is_integer) {
            if (op == TUTTI_BAND) return gpu_fold_unit<T, TUTTI_BAND>(total, unit);
            if (op == TUTTI_BOR) return gpu_fold_unit<T, TUTTI_BOR>(total, unit);
            if (op == TUTTI_BXOR) return gpu_fold_unit<T, TUTTI_BXOR>(total, unit);
        }
        gpu_fold_unit<T, TUTTI_SUM>(total, unit);
    }
};

/* The reducer of kernels that only move: nothing is folded, and any bits may come. */
struct gpu_move {
    struct type {
        static constexpr uint32_t word = 0;
    };
    static constexpr bool moves = true;
};

/* ---- the kernels there are: X(name, reducer) ---- */
#define GPU_REDUCER(X, type) X(type, gpu_fold_any<gpu_##type>)
#define GPU_FLOAT_REDUCERS(X)                                                                                          \
    GPU_REDUCER(X, float8_e4m3fn)                                                                                      \
    GPU_REDUCER(X, float8_e5m2)                                                                                        \
    GPU_REDUCER(X, float16)                                                                                            \
    GPU_REDUCER(X, bfloat16)                                                                                           \
    GPU_REDUCER(X, float32)                                                                                            \
    GPU_REDUCER(X, complex64)
#define GPU_FLOAT64_REDUCERS(X)                                                                                        \
    GPU_REDUCER(X, float64)                                                                                            \
    GPU_REDUCER(X, complex128)
#define GPU_INTEGER_REDUCERS(X)                                                                                        \
    GPU_REDUCER(X, int8)                                                                                               \
    GPU_REDUCER(X, uint8)                                                                                              \
    GPU_REDUCER(X, int16)                                                                                              \
    GPU_REDUCER(X, uint16)                                                                                             \
    GPU_REDUCER(X, int32)                                                                                              \
    GPU_REDUCER(X, uint32)                                                                                             \
    GPU_REDUCER(X, int64)                                                                                              \
    GPU_REDUCER(X, uint64)                                                                                             \
    GPU_REDUCER(X, bool)
#define GPU_FAST_REDUCERS(X)                                                                                           \
    X(float32_sum, gpu_fold_sum<gpu_float32>)                                                                          \
    X(float16_sum, gpu_fold_sum<gpu_float16>)                                                                          \
    X(bfloat16_sum, gpu_fold_sum<gpu_bfloat16>)

#endif
