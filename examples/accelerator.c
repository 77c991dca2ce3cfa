/* SPDX-License-Identifier: BSD-3-Clause */

/* usage: accelerator [--device cpu|cuda|xpu]
 * One program for every kind of devices: collectives, streams and events by the same calls, the kind is a word. Two
 * streams share the work: one brings the next vector to the device while calls on the other one run. */

#include "example.h"

#include <string.h>

#define N 5000
#define STEPS 8

struct step {
    float *host, *vector, *blocks; /* blocks: of all ranks */
    void *brought;                 /* event: the vector is on the device */
};

static struct tutti_accelerator *acc;

static void *memory(size_t bytes)
{
    void *at;
    CHECK(tutti_accelerator_alloc(acc, bytes, &at));
    return at;
}

static void bring(struct step *step, int number, int32_t rank, void *stream)
{
    for (int i = 0; i < N; i++) step->host[i] = (float)(number + rank + i % 7);
    CHECK(tutti_accelerator_copy(acc, step->vector, step->host, N * sizeof(float), stream));
    CHECK(tutti_accelerator_event_record(acc, step->brought, stream));
}

/* The sum of all vectors, then the sums of all ranks, which are alike. */
static void run(struct tutti_comm *world, struct step *step, void *stream)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = stream;
    CHECK(tutti_accelerator_stream_wait(acc, stream, step->brought));
    CHECK(tutti_all_reduce(step->vector, step->vector, N, TUTTI_FLOAT32, TUTTI_SUM, world, &options, NULL));
    CHECK(tutti_all_gather(step->vector, step->blocks, N, TUTTI_FLOAT32, world, &options, NULL));
}

static int wrong(const float *got, int32_t size, int number)
{
    int found = 0;
    for (int64_t i = 0; i < (int64_t)size * N; i++) {
        const int64_t column = i % N;
        found += got[i] != (float)(size * (number + column % 7) + size * (size - 1) / 2);
    }
    return found;
}

static void step_open(struct step *step, int32_t size)
{
    step->host = malloc(N * sizeof(float));
    step->vector = memory(N * sizeof(float));
    step->blocks = memory((size_t)size * N * sizeof(float));
    CHECK(tutti_accelerator_event_create(acc, &step->brought));
}

static void step_close(struct step *step)
{
    tutti_accelerator_event_destroy(acc, step->brought);
    tutti_accelerator_free(acc, step->blocks);
    tutti_accelerator_free(acc, step->vector);
    free(step->host);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 2 && strcmp(argv[1], "--device") == 0 ? argv[2] : NULL;
    struct tutti_comm *world = world_create();
    const int32_t rank = tutti_comm_rank(world), size = tutti_comm_size(world);
    void *copies, *calls, *began, *ended;
    struct step steps[2];
    double us;
    int errors = 0;

    CHECK(tutti_accelerator_open(kind, 0, &acc));
    CHECK(tutti_comm_set_device(world, tutti_accelerator_device(acc)));
    CHECK(tutti_accelerator_stream_create(acc, &copies));
    CHECK(tutti_accelerator_stream_create(acc, &calls));
    CHECK(tutti_accelerator_event_create(acc, &began));
    CHECK(tutti_accelerator_event_create(acc, &ended));
    for (int i = 0; i < 2; i++) step_open(&steps[i], size);
    float *got = malloc((size_t)size * N * sizeof(float));

    CHECK(tutti_accelerator_event_record(acc, began, calls));
    bring(&steps[0], 0, rank, copies);
    for (int number = 0; number < STEPS; number++) {
        struct step *now = &steps[number % 2], *next = &steps[(number + 1) % 2];
        run(world, now, calls);
        if (number + 1 < STEPS) bring(next, number + 1, rank, copies); /* its last results were read below */
        CHECK(tutti_accelerator_copy(acc, got, now->blocks, (size_t)size * N * sizeof(float), calls));
        CHECK(tutti_accelerator_stream_sync(acc, calls));
        errors += wrong(got, size, number);
    }
    CHECK(tutti_accelerator_event_record(acc, ended, calls));
    CHECK(tutti_accelerator_stream_sync(acc, calls));
    CHECK(tutti_accelerator_elapsed(acc, began, ended, &us));
    printf("rank %d of %d on %s: %d steps in %.0f us, %d values are wrong\n", (int)rank, (int)size,
           tutti_accelerator_kind(acc), STEPS, us, errors);
    free(got);
    for (int i = 0; i < 2; i++) step_close(&steps[i]);
    tutti_comm_destroy(world);
    tutti_accelerator_event_destroy(acc, ended);
    tutti_accelerator_event_destroy(acc, began);
    tutti_accelerator_stream_destroy(acc, calls);
    tutti_accelerator_stream_destroy(acc, copies);
    tutti_accelerator_close(acc);
    return errors > 0;
}
