/* SPDX-License-Identifier: BSD-3-Clause */

/* The network, in plain loops. What matters for data-parallel training: the gradient is a sum over images, so that the
 * ranks' parts add up; and it is completed from front to back, so that reducing it can begin while it is computed. */

#include "digits.h"

#include <math.h>
#include <stdlib.h>

#define READY_UNITS 16 /* hidden units between two calls of `ready` */

static float random_normal(uint64_t *state)
{
    double sum = 0; /* the sum of twelve uniform numbers has variance 1 */
    for (int i = 0; i < 12; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (double)(*state >> 11) / 9007199254740992.0;
    }
    return (float)(sum - 6);
}

bool model_init(struct model *model, size_t hidden, size_t max_batch, uint64_t seed)
{
    size_t n = CLASSES * (hidden + 1) + hidden * (PIXELS + 1);
    *model = (struct model){.hidden = hidden, .n_weights = n, .max_batch = max_batch};
    model->weights = calloc(n, sizeof(float));
    model->gradient = calloc(n, sizeof(float));
    model->velocity = calloc(n, sizeof(float));
    model->activation = calloc(max_batch, hidden * sizeof(float));
    model->delta = calloc(max_batch, hidden * sizeof(float));
    model->output = calloc(max_batch, sizeof(float[CLASSES]));
    if (!model->weights || !model->gradient || !model->velocity || !model->activation || !model->delta ||
        !model->output) {
        model_free(model);
        return false;
    }
    float *outer = model->weights, *inner = outer + CLASSES * (hidden + 1);
    for (size_t i = 0; i < CLASSES * hidden; i++) outer[i] = random_normal(&seed) / sqrtf((float)hidden);
    for (size_t h = 0; h < hidden; h++)
        for (size_t i = 0; i < PIXELS; i++) inner[h * (PIXELS + 1) + i] = random_normal(&seed) / sqrtf(PIXELS);
    return true;
}

void model_free(struct model *model)
{
    free(model->weights);
    free(model->gradient);
    free(model->velocity);
    free(model->activation);
    free(model->delta);
    free(model->output);
    *model = (struct model){0};
}

static void forward(const struct model *model, const float *pixels, float *activation, float *output)
{
    const float *outer = model->weights, *inner = outer + CLASSES * (model->hidden + 1);
    for (size_t h = 0; h < model->hidden; h++) {
        const float *row = inner + h * (PIXELS + 1);
        float sum = row[PIXELS];
        for (size_t i = 0; i < PIXELS; i++) sum += row[i] * pixels[i];
        activation[h] = tanhf(sum);
    }
    for (size_t c = 0; c < CLASSES; c++) {
        const float *row = outer + c * model->hidden;
        float sum = outer[CLASSES * model->hidden + c];
        for (size_t h = 0; h < model->hidden; h++) sum += row[h] * activation[h];
        output[c] = sum;
    }
}

/* Logits to probabilities minus the truth, which is the loss's derivative; returns the loss. */
static double softmax_delta(float *output, uint8_t label, float scale)
{
    float top = output[0], sum = 0;
    for (size_t c = 1; c < CLASSES; c++) top = fmaxf(top, output[c]);
    double shifted = output[label] - top;
    for (size_t c = 0; c < CLASSES; c++) sum += output[c] = expf(output[c] - top);
    for (size_t c = 0; c < CLASSES; c++) output[c] = scale * (output[c] / sum - (c == label ? 1.0f : 0.0f));
    return log((double)sum) - shifted;
}

static void outer_gradient(struct model *model, size_t n)
{
    size_t hidden = model->hidden;
    float *weights = model->gradient, *biases = weights + CLASSES * hidden;
    for (size_t i = 0; i < CLASSES * (hidden + 1); i++) weights[i] = 0;
    for (size_t b = 0; b < n; b++) {
        const float *activation = model->activation + b * hidden, *output = model->output + b * CLASSES;
        for (size_t c = 0; c < CLASSES; c++) {
            biases[c] += output[c];
            for (size_t h = 0; h < hidden; h++) weights[c * hidden + h] += output[c] * activation[h];
        }
    }
}

/* delta = derivative of the loss by each hidden unit's sum. */
static void hidden_delta(struct model *model, size_t n)
{
    size_t hidden = model->hidden;
    for (size_t b = 0; b < n; b++) {
        const float *activation = model->activation + b * hidden, *output = model->output + b * CLASSES;
        float *delta = model->delta + b * hidden;
        for (size_t h = 0; h < hidden; h++) {
            float sum = 0;
            for (size_t c = 0; c < CLASSES; c++) sum += output[c] * model->weights[c * hidden + h];
            delta[h] = sum * (1 - activation[h] * activation[h]);
        }
    }
}

static void unit_gradient(struct model *model, const struct digits *digits, const uint32_t *indices, size_t n, size_t h)
{
    float *row = model->gradient + CLASSES * (model->hidden + 1) + h * (PIXELS + 1);
    for (size_t i = 0; i <= PIXELS; i++) row[i] = 0;
    for (size_t b = 0; b < n; b++) {
        const float *pixels = digits->pixels + indices[b] * PIXELS;
        float delta = model->delta[b * model->hidden + h];
        for (size_t i = 0; i < PIXELS; i++) row[i] += delta * pixels[i];
        row[PIXELS] += delta;
    }
}

double model_gradient(struct model *model, const struct digits *digits, const uint32_t *indices, size_t n, float scale,
                      model_ready ready, void *arg)
{
    size_t hidden = model->hidden, outer = CLASSES * (hidden + 1);
    double loss = 0;
    for (size_t b = 0; b < n; b++) {
        float *output = model->output + b * CLASSES;
        forward(model, digits->pixels + indices[b] * PIXELS, model->activation + b * hidden, output);
        loss += softmax_delta(output, digits->labels[indices[b]], scale);
    }
    outer_gradient(model, n);
    if (ready) ready(arg, outer);
    hidden_delta(model, n);
    for (size_t h = 0; h < hidden; h++) {
        unit_gradient(model, digits, indices, n, h);
        bool last = h + 1 == hidden;
        if (ready && (last || (h + 1) % READY_UNITS == 0)) ready(arg, outer + (h + 1) * (PIXELS + 1));
    }
    return loss;
}

void model_step(struct model *model, float rate, float momentum)
{
    for (size_t i = 0; i < model->n_weights; i++) {
        model->velocity[i] = momentum * model->velocity[i] + model->gradient[i];
        model->weights[i] -= rate * model->velocity[i];
    }
}

size_t model_count_right(struct model *model, const struct digits *digits, size_t first, size_t n)
{
    size_t n_right = 0;
    for (size_t i = first; i < first + n; i++) {
        float *output = model->output;
        size_t best = 0;
        forward(model, digits->pixels + i * PIXELS, model->activation, output);
        for (size_t c = 1; c < CLASSES; c++) best = output[c] > output[best] ? c : best;
        n_right += best == digits->labels[i];
    }
    return n_right;
}
