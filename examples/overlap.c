/* SPDX-License-Identifier: BSD-3-Clause */

/* Asynchronous overlap: with a place for the work a call returns at once, and the transfer goes on while this thread
 * computes. Several calls are in flight; they complete in any order and are waited for where the result is needed. */

#include "example.h"

#define CALLS 4
#define COUNT (1 << 16)

/* Something to do meanwhile: the same answer every time, so that the compiler can not leave it out unnoticed. */
static uint64_t compute(void)
{
    uint64_t x = 1;
    for (int i = 0; i < 1000000; i++) x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return x;
}

int main(void)
{
    struct tutti_comm *world = world_create();
    int32_t rank = tutti_comm_rank(world), size = tutti_comm_size(world);
    float *in = malloc(sizeof(float) * CALLS * COUNT), *out = malloc(sizeof(float) * CALLS * COUNT);
    struct tutti_work *works[CALLS];
    if (!in || !out) exit(1);
    for (int i = 0; i < CALLS * COUNT; i++) in[i] = (float)(rank + i % 128);

    for (int c = 0; c < CALLS; c++)
        CHECK(
            tutti_all_reduce(in + c * COUNT, out + c * COUNT, COUNT, TUTTI_FLOAT32, TUTTI_SUM, world, NULL, &works[c]));
    uint64_t answer = compute(); /* `in` and `out` belong to the calls until they complete */

    int wrong = 0, of_ranks = size * (size - 1) / 2;
    for (int c = 0; c < CALLS; c++) {
        int early = tutti_work_test(works[c]) == TUTTI_OK;
        CHECK(tutti_work_wait(works[c], 0));
        printf("rank %d: call %d took %.0f us%s\n", rank, c, (double)tutti_work_duration_ns(works[c]) / 1e3,
               early ? ", all of it behind the computation" : "");
        tutti_work_free(works[c]);
        for (int i = c * COUNT; i < (c + 1) * COUNT; i++)
            wrong += out[i] != (float)(of_ranks + size * (i % 128)); /* small integers: exact */
    }
    if (wrong || answer != compute()) fprintf(stderr, "rank %d: %d wrong results\n", rank, wrong);
    free(in);
    free(out);
    tutti_comm_destroy(world);
    return wrong != 0;
}
