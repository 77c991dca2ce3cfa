/* SPDX-License-Identifier: BSD-3-Clause */

/* The mathematics of train_digits, without communication: the gradient against differences of the loss, the parts of a
 * batch against the whole, how far rounding drives two runs apart, and how far a lost image would. */

#include "test.h"

#include "digits.h"

#include <math.h>
#include <string.h>

#define HIDDEN 256
#define EPOCHS 30

static struct digits images, held_out;

static int setup(void **state)
{
    (void)state;
    return digits_load(DIGITS_CSV, &images, &held_out) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    digits_free(&images);
    digits_free(&held_out);
    return 0;
}

static void test_data(void **state)
{
    (void)state;
    size_t n_of[CLASSES] = {0};
    assert_int_equal(images.n + held_out.n, 1797);
    assert_int_equal(held_out.n, 360);
    for (size_t i = 0; i < images.n; i++) n_of[images.labels[i]]++;
    for (size_t c = 0; c < CLASSES; c++) assert_in_range(n_of[c], 120, 170); /* the classes are about equal */
    for (size_t a = 0; a < held_out.n; a++)                                  /* nothing held out is trained on */
        for (size_t b = 0; b < images.n; b++)
            assert_memory_not_equal(held_out.pixels + a * PIXELS, images.pixels + b * PIXELS, sizeof(float[PIXELS]));
}

static void test_shuffle_is_a_permutation(void **state)
{
    (void)state;
    uint32_t a[1000], b[1000];
    uint8_t seen[1000] = {0};
    digits_shuffle(a, 1000, 1);
    digits_shuffle(b, 1000, 1);
    assert_memory_equal(a, b, sizeof a);
    digits_shuffle(b, 1000, 2);
    assert_memory_not_equal(a, b, sizeof a);
    for (size_t i = 0; i < 1000; i++) seen[a[i]]++;
    for (size_t i = 0; i < 1000; i++) assert_int_equal(seen[i], 1);
}

/* Central differences of the loss, for weights of both layers. */
static void test_gradient(void **state)
{
    (void)state;
    struct model model, probe;
    uint32_t indices[8] = {3, 1, 4, 15, 9, 2, 6, 5};
    assert_true(model_init(&model, 12, 8, 7));
    assert_true(model_init(&probe, 12, 8, 7));
    model_gradient(&model, &images, indices, 8, 1.0f, NULL, NULL);
    for (size_t i = 0; i < model.n_weights; i += 7) {
        const float h = 1.0f / 256;
        float kept = probe.weights[i];
        probe.weights[i] = kept + h;
        double above = model_gradient(&probe, &images, indices, 8, 1.0f, NULL, NULL);
        probe.weights[i] = kept - h;
        double below = model_gradient(&probe, &images, indices, 8, 1.0f, NULL, NULL);
        probe.weights[i] = kept;
        assert_float_equal((float)((above - below) / (2 * (double)h)), model.gradient[i], 4e-3f);
    }
    model_free(&model);
    model_free(&probe);
}

static size_t last_ready;
static float snapshot[4096];
static void keep_ready(void *arg, size_t n)
{
    const struct model *model = arg;
    assert_true(n > last_ready);
    memcpy(snapshot + last_ready, model->gradient + last_ready, (n - last_ready) * sizeof(float));
    last_ready = n;
}

/* What is called ready does not change any more, and in the end all is. */
static void test_ready_is_final(void **state)
{
    (void)state;
    struct model model;
    uint32_t indices[5] = {10, 20, 30, 40, 50};
    assert_true(model_init(&model, 41, 5, 7));
    assert_true(model.n_weights <= sizeof snapshot / sizeof snapshot[0]);
    last_ready = 0;
    memset(snapshot, 0, sizeof snapshot);
    model_gradient(&model, &images, indices, 5, 1.0f, keep_ready, &model);
    assert_int_equal(last_ready, model.n_weights);
    assert_memory_equal(snapshot, model.gradient, model.n_weights * sizeof(float));
    model_free(&model);
}

/* Trains as `parts` ranks would, their gradients averaged in rank order; drop: leaves out one image of the first batch.
 */
static void train_parts(struct model *model, size_t parts, size_t epochs, bool drop)
{
    const size_t batch = 64;
    uint32_t *order = malloc(images.n * sizeof *order);
    float *sum = malloc(model->n_weights * sizeof *sum);
    assert_non_null(order);
    assert_non_null(sum);
    for (size_t epoch = 0; epoch < epochs; epoch++) {
        digits_shuffle(order, images.n, (uint32_t)epoch);
        for (size_t first = 0; first < images.n; first += batch) {
            size_t n = images.n - first < batch ? images.n - first : batch;
            memset(sum, 0, model->n_weights * sizeof *sum);
            for (size_t part = 0; part < parts; part++) {
                size_t begin = n * part / parts, end = n * (part + 1) / parts;
                if (drop && epoch == 0 && first == 0 && part == 0) begin++;
                model_gradient(model, &images, order + first + begin, end - begin, (float)parts / (float)n, NULL, NULL);
                for (size_t i = 0; i < model->n_weights; i++) sum[i] += model->gradient[i];
            }
            for (size_t i = 0; i < model->n_weights; i++) model->gradient[i] = sum[i] / (float)parts;
            model_step(model, DIGITS_RATE, DIGITS_MOMENTUM);
        }
    }
    free(order);
    free(sum);
}

static double distance_of(const struct model *a, const struct model *b)
{
    double distance = 0;
    for (size_t i = 0; i < a->n_weights; i++)
        distance = fmax(distance, fabs((double)a->weights[i] - (double)b->weights[i]));
    return distance;
}

/* The tolerance of train_digits lies between rounding and the smallest mistake, far from both. */
static void test_tolerance(void **state)
{
    (void)state;
    static const size_t parts[] = {4, 7};
    struct model one, other;
    assert_true(model_init(&one, HIDDEN, 64, 1));
    train_parts(&one, 1, EPOCHS, false);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        assert_true(model_init(&other, HIDDEN, 64, 1));
        train_parts(&other, parts[i], EPOCHS, false);
        print_message("%zu parts: %.2e\n", parts[i], distance_of(&one, &other));
        assert_true(distance_of(&one, &other) < DIGITS_TOLERANCE / 5);
        model_free(&other);
    }
    assert_true(model_init(&other, HIDDEN, 64, 1));
    train_parts(&other, 4, EPOCHS, true);
    print_message("an image lost: %.2e\n", distance_of(&one, &other));
    assert_true(distance_of(&one, &other) > 100 * DIGITS_TOLERANCE);
    model_free(&other);
    print_message("%zu of %zu\n", model_count_right(&one, &held_out, 0, held_out.n), held_out.n);
    assert_true(model_count_right(&one, &held_out, 0, held_out.n) >= held_out.n * 95 / 100);
    model_free(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data),      cmocka_unit_test(test_shuffle_is_a_permutation),
        cmocka_unit_test(test_gradient),  cmocka_unit_test(test_ready_is_final),
        cmocka_unit_test(test_tolerance),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
