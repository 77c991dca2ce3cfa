/* SPDX-License-Identifier: BSD-3-Clause */

/* The images: reading, holding out, shuffling. All of it is equal on all ranks, since nothing here is random. */

#include "digits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_OUT 5 /* every fifth image */

static uint64_t random64(uint64_t *state) /* splitmix64 */
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void digits_shuffle(uint32_t *order, size_t n, uint32_t epoch)
{
    uint64_t state = UINT64_C(0x6469676974) + epoch;
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)(random64(&state) % i);
        uint32_t kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

static bool digits_init(struct digits *digits, size_t capacity)
{
    *digits = (struct digits){0, calloc(capacity, sizeof(float[PIXELS])), calloc(capacity, 1)};
    return digits->pixels && digits->labels;
}

void digits_free(struct digits *digits)
{
    free(digits->pixels);
    free(digits->labels);
    *digits = (struct digits){0};
}

/* One line: 64 pixels of 0..16 and the digit. */
static bool parse_line(const char *line, float *pixels, uint8_t *label)
{
    for (size_t i = 0; i <= PIXELS; i++) {
        char *end;
        long value = strtol(line, &end, 10);
        if (end == line || value < 0 || value > (i < PIXELS ? 16 : CLASSES - 1)) return false;
        if (*end != (i < PIXELS ? ',' : '\n')) return false;
        if (i < PIXELS) pixels[i] = (float)value / 16.0f;
        if (i == PIXELS) *label = (uint8_t)value;
        line = end + 1;
    }
    return true;
}

static bool read_all(FILE *file, const char *path, struct digits *all)
{
    char line[512];
    size_t capacity = 0;
    *all = (struct digits){0};
    for (; fgets(line, sizeof line, file); all->n++) {
        if (all->n == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            float *pixels = realloc(all->pixels, capacity * sizeof(float[PIXELS]));
            if (pixels) all->pixels = pixels;
            uint8_t *labels = realloc(all->labels, capacity);
            if (labels) all->labels = labels;
            if (!pixels || !labels) return fprintf(stderr, "out of memory\n"), false;
        }
        if (!parse_line(line, all->pixels + all->n * PIXELS, all->labels + all->n)) {
            fprintf(stderr, "%s:%zu: not 64 pixels of 0..16 and a digit\n", path, all->n + 1);
            return false;
        }
    }
    if (all->n < HOLD_OUT) return fprintf(stderr, "%s: %zu images are too few\n", path, all->n), false;
    return true;
}

bool digits_load(const char *path, struct digits *train, struct digits *held_out)
{
    struct digits all = {0};
    bool ok = false;
    uint32_t *order = NULL;
    *train = *held_out = (struct digits){0};
    FILE *file = fopen(path, "r");
    if (!file) return fprintf(stderr, "%s: %s\n", path, strerror(errno)), false;
    if (!read_all(file, path, &all)) goto err_free;
    order = malloc(all.n * sizeof *order);
    if (!order || !digits_init(train, all.n) || !digits_init(held_out, all.n)) {
        fprintf(stderr, "out of memory\n");
        goto err_free;
    }
    digits_shuffle(order, all.n, UINT32_MAX); /* the file is sorted by writer */
    for (size_t i = 0; i < all.n; i++) {
        struct digits *to = i % HOLD_OUT == 0 ? held_out : train;
        memcpy(to->pixels + to->n * PIXELS, all.pixels + order[i] * PIXELS, sizeof(float[PIXELS]));
        to->labels[to->n++] = all.labels[order[i]];
    }
    ok = true;
err_free:
    free(order);
    digits_free(&all);
    fclose(file);
    if (!ok) {
        digits_free(train);
        digits_free(held_out);
    }
    return ok;
}
