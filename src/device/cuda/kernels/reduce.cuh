/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_REDUCE_CUH
#define TUTTI_DEVICE_CUDA_REDUCE_CUH

/* Reductions, a unit of 16 bytes at a time. A reducer R (cuda_fold_any<type>: any operation, chosen by a branch that is
 * the same for all threads; cuda_fold_sum<type>: sums alone) folds units in the order in which they are given:
 *
 *     typename R::total total;
 *     R::first(&total, unit);             the first contribution,
 *     R::next(&total, unit, call.op);     each further one,
 *     unit = R::result(total, call.divisor);
 *
 * and R::scale(unit, call.factor) is what premul_sum does to the own contribution before anything else (call.scales).
 * Units at the end of a part may have fewer elements; the others are computed, too, and ignored. */

#include "device/exchange.h"
#include "numbers.cuh"

#include <tutti/types.h>

template <typename T> struct cuda_total {
    typename T::part parts[T::n];
};

template <typename T, uint32_t OP> CUDA_DEVICE typename T::part cuda_fold_part(typename T::part a, typename T::part b)
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
template <typename T> CUDA_DEVICE void cuda_multiply_complex(typename T::part *a, const typename T::part *b)
{
    CUDA_UNROLL
    for (uint32_t k = 0; k < T::n; k += 2) {
        const typename T::part real = T::sum(T::product(a[k], b[k]), -T::product(a[k + 1], b[k + 1]));
        a[k + 1] = T::sum(T::product(a[k], b[k + 1]), T::product(a[k + 1], b[k]));
        a[k] = real;
    }
}

template <typename T, uint32_t OP> CUDA_DEVICE void cuda_fold_unit(cuda_total<T> *total, cuda_words unit)
{
    typename T::part parts[T::n];
    T::take(parts, unit);
    if constexpr (T::is_complex && OP == TUTTI_PROD) {
        cuda_multiply_complex<T>(total->parts, parts);
    } else {
        CUDA_UNROLL
        for (uint32_t k = 0; k < T::n; k++) total->parts[k] = cuda_fold_part<T, OP>(total->parts[k], parts[k]);
    }
}

/* What all reducers of a type share. */
template <typename T> struct cuda_reducer {
    using type = T;
    using total = cuda_total<T>;
    static constexpr bool moves = false;

    CUDA_DEVICE void first(total *sum, cuda_words unit) { T::take(sum->parts, unit); }
    CUDA_DEVICE cuda_words result(const total &sum, uint32_t divisor)
    {
        if (divisor == 0) return T::give(sum.parts);
        total quotient;
        CUDA_UNROLL
        for (uint32_t k = 0; k < T::n; k++) quotient.parts[k] = T::divide(sum.parts[k], divisor);
        return T::give(quotient.parts);
    }
    /* The factor is one element: repeated over a unit it makes parts of its own. */
    CUDA_DEVICE cuda_words scale(cuda_words unit, const unsigned char *factor)
    {
        if constexpr (T::is_bool) return unit;
        constexpr uint32_t elements = T::is_complex ? T::n / 2 : T::n, bytes = 16 / elements;
        uint32_t words[4] = {0, 0, 0, 0};
        CUDA_UNROLL
        for (uint32_t k = 0; k < 16; k++) words[k / 4] |= (uint32_t)factor[k % bytes] << (k % 4 * 8);
        total scaled;
        T::take(scaled.parts, unit);
        cuda_fold_unit<T, TUTTI_PROD>(&scaled, cuda_words{words[0], words[1], words[2], words[3]});
        return T::give(scaled.parts);
    }
};

template <typename T> struct cuda_fold_sum : cuda_reducer<T> {
    CUDA_DEVICE void next(cuda_total<T> *total, cuda_words unit, uint32_t)
    {
        cuda_fold_unit<T, TUTTI_SUM>(total, unit);
    }
};

template <typename T> struct cuda_fold_any : cuda_reducer<T> {
    CUDA_DEVICE void next(cuda_total<T> *total, cuda_words unit, uint32_t op)
    {
        if (op == TUTTI_PROD) return cuda_fold_unit<T, TUTTI_PROD>(total, unit);
        if constexpr (!T::is_complex) {
            if (op == TUTTI_MIN) return cuda_fold_unit<T, TUTTI_MIN>(total, unit);
            if (op == TUTTI_MAX) return cuda_fold_unit<T, TUTTI_MAX>(total, unit);
        }
        if constexpr (T::is_integer) {
            if (op == TUTTI_BAND) return cuda_fold_unit<T, TUTTI_BAND>(total, unit);
            if (op == TUTTI_BOR) return cuda_fold_unit<T, TUTTI_BOR>(total, unit);
            if (op == TUTTI_BXOR) return cuda_fold_unit<T, TUTTI_BXOR>(total, unit);
        }
        cuda_fold_unit<T, TUTTI_SUM>(total, unit);
    }
};

/* The reducer of kernels that only move: nothing is folded, and any bits may come. */
struct cuda_move {
    struct type {
        static constexpr uint32_t word = 0;
    };
    static constexpr bool moves = true;
};

/* ---- the kernels there are: X(name, reducer) ---- */
#define CUDA_REDUCER(X, type) X(type, cuda_fold_any<cuda_##type>)
#define CUDA_FLOAT_REDUCERS(X)                                                                                         \
    CUDA_REDUCER(X, float8_e4m3fn)                                                                                     \
    CUDA_REDUCER(X, float8_e5m2)                                                                                       \
    CUDA_REDUCER(X, float16)                                                                                           \
    CUDA_REDUCER(X, bfloat16)                                                                                          \
    CUDA_REDUCER(X, float32)                                                                                           \
    CUDA_REDUCER(X, float64)                                                                                           \
    CUDA_REDUCER(X, complex64)                                                                                         \
    CUDA_REDUCER(X, complex128)
#define CUDA_INTEGER_REDUCERS(X)                                                                                       \
    CUDA_REDUCER(X, int8)                                                                                              \
    CUDA_REDUCER(X, uint8)                                                                                             \
    CUDA_REDUCER(X, int16)                                                                                             \
    CUDA_REDUCER(X, uint16)                                                                                            \
    CUDA_REDUCER(X, int32)                                                                                             \
    CUDA_REDUCER(X, uint32)                                                                                            \
    CUDA_REDUCER(X, int64)                                                                                             \
    CUDA_REDUCER(X, uint64)                                                                                            \
    CUDA_REDUCER(X, bool)
#define CUDA_FAST_REDUCERS(X)                                                                                          \
    X(float32_sum, cuda_fold_sum<cuda_float32>)                                                                        \
    X(float16_sum, cuda_fold_sum<cuda_float16>)                                                                        \
    X(bfloat16_sum, cuda_fold_sum<cuda_bfloat16>)

#endif
