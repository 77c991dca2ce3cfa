/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DIGITS_H
#define DIGITS_H

/* The parts of train_digits: the images (digits_data.c), the network (digits_model.c), the bucketed reducer
 * (digits_reducer.c). The first two know nothing of tutti. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

#define PIXELS 64
#define CLASSES 10
#define DIGITS_RATE 0.1f
#define DIGITS_MOMENTUM 0.9f

/* Summing a gradient in another order changes its last bits (relative 2^-24 = 6e-8 a value), and every step carries on
 * the differences of those before it: over the some 700 steps of a run they grow to about 5e-7, of weights of size 1.
 * This is twenty times that, and a thousandth of what a single image left out of a single batch changes (digits_test.c
 * measures both). */
#define DIGITS_TOLERANCE 1e-5

/* ---- images ---- */
struct digits {
    size_t n;
    float *pixels; /* n x 64, 0..1 */
    uint8_t *labels;
};
/* Reads the CSV and deals the images out by a fixed shuffle: every fifth is held out. false: a sentence is on stderr.
 */
bool digits_load(const char *path, struct digits *train, struct digits *held_out);
void digits_free(struct digits *digits);
/* The order of an epoch: a permutation of 0..n-1 that depends on nothing but n and the epoch. */
void digits_shuffle(uint32_t *order, size_t n, uint32_t epoch);

/* ---- the network: 64 pixels -> hidden units (tanh) -> 10 classes (softmax, cross entropy) ----
 * Weights and gradients are one array each, laid out in the order in which the backward pass completes them: first the
 * output layer (10 x hidden weights, 10 biases), then the hidden units, one after another (64 weights, 1 bias). */
struct model {
    size_t hidden, n_weights, max_batch;
    float *weights, *gradient, *velocity;
    float *activation, *delta, *output; /* max_batch x hidden, x hidden, x 10 */
};
bool model_init(struct model *model, size_t hidden, size_t max_batch, uint64_t seed);
void model_free(struct model *model);
/* Called as soon as the first n values of the gradient are final. */
typedef void (*model_ready)(void *arg, size_t n);
/* gradient = scale * sum of the images' gradients; returns the sum of their losses. indices[0..n) choose the images;
 * n <= max_batch. ready may be NULL. */
double model_gradient(struct model *model, const struct digits *digits, const uint32_t *indices, size_t n, float scale,
                      model_ready ready, void *arg);
/* One step of stochastic gradient descent with momentum. */
void model_step(struct model *model, float rate, float momentum);
size_t model_count_right(struct model *model, const struct digits *digits, size_t first, size_t n);

/* ---- the reducer: averages the gradient over the ranks, bucket by bucket, while the backward pass goes on ---- */
struct reducer {
    struct tutti_comm *comm;
    float *gradient;
    size_t n, bucket; /* values in all, values in a bucket */
    size_t n_buckets, n_started;
    struct tutti_work **works;
    enum tutti_status status;      /* the status of the first call that could not be started */
    uint64_t started_ns;           /* the first call of this step */
    uint64_t waited_ns, flying_ns; /* since init: time waited, and time in which calls were in flight */
};
bool reducer_init(struct reducer *reducer, struct tutti_comm *comm, float *gradient, size_t n, size_t bucket);
void reducer_free(struct reducer *reducer);
void reducer_ready(void *reducer, size_t n); /* a model_ready: starts the buckets that are complete */
enum tutti_status reducer_wait(struct reducer *reducer);

uint64_t digits_now_ns(void);

#endif
