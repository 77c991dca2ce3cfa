/* SPDX-License-Identifier: BSD-3-Clause */

/* A parameter server by one-sided calls: rank 0 keeps the parameters in its part of a window. Each worker gets them
 * when it likes, computes a gradient, and puts it into its own place beside them with a signal; the server adds what
 * has come. Nobody waits for the slowest worker. */

#include "example.h"

#define N 16 /* parameters */
#define ROUNDS 300
#define RATE 0.05

enum {
    COME,
    TAKEN = 0
}; /* signals: at the server how many gradients came, 1 + rank: of this worker; at a worker, taken */

/* The part of the server: the parameters, and a gradient of each rank. */
static size_t place_of(int32_t rank)
{
    return (size_t)(1 + rank) * N * sizeof(double);
}

static void serve(double *part, struct tutti_window *window, int32_t size)
{
    uint64_t seen[64] = {0}, n_taken = 0;
    while (n_taken < (uint64_t)(size - 1) * ROUNDS) {
        CHECK(tutti_wait_signal(COME, TUTTI_COMPARE_GT, n_taken, TUTTI_ANY_SOURCE, window, NULL, NULL));
        for (int32_t worker = 1; worker < size; worker++) {
            uint64_t come;
            CHECK(tutti_signal_read(1 + (uint32_t)worker, &come, window, NULL));
            if (come == seen[worker]) continue;
            const double *gradient = part + place_of(worker) / sizeof(double);
            for (int i = 0; i < N; i++) {
                uint64_t word; /* workers read it at the same time: words are written as one */
                double value = part[i] - RATE * gradient[i];
                CHECK(tutti_put(&value, sizeof word, 0, (size_t)i * sizeof value, window, NULL, NULL));
            }
            const struct tutti_signal_info taken = {TAKEN, TUTTI_SIGNAL_SET, come};
            CHECK(tutti_signal(&taken, worker, window, NULL, NULL));
            seen[worker] = come;
            n_taken++;
        }
    }
}

/* Wants parameter i to be i + 1: half the square of the distance has this gradient. */
static void work(struct tutti_window *window, int32_t rank)
{
    const struct tutti_signal_info one = {COME, TUTTI_SIGNAL_ADD, 1}, mine = {1 + (uint32_t)rank, TUTTI_SIGNAL_ADD, 1};
    double gradient[N];
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            CHECK(tutti_get(&gradient[i], sizeof gradient[i], 0, (size_t)i * sizeof gradient[i], window, NULL, NULL));
        for (int i = 0; i < N; i++) gradient[i] -= i + 1;
        CHECK(tutti_put_signal(gradient, sizeof gradient, 0, place_of(rank), &mine, window, NULL, NULL));
        CHECK(tutti_signal(&one, 0, window, NULL, NULL));
        CHECK(tutti_wait_signal(TAKEN, TUTTI_COMPARE_GE, round, 0, window, NULL, NULL));
    }
}

int main(void)
{
    struct tutti_comm *world = world_create();
    const int32_t rank = tutti_comm_rank(world), size = tutti_comm_size(world);
    const size_t bytes = rank == 0 ? place_of(size) : 0;
    struct tutti_window *window;
    void *memory = NULL;
    double wrong = 0;

    if (size > 62) return fprintf(stderr, "at most 62 ranks: a signal for each\n"), 1;
    if (rank == 0) CHECK(tutti_mem_alloc(world, bytes, &memory)); /* zeroed */
    CHECK(tutti_window_create(world, memory, bytes, NULL, &window));
    if (rank == 0)
        serve(memory, window, size);
    else
        work(window, rank);
    CHECK(tutti_barrier(world, NULL, NULL));
    for (int i = 0; rank == 0 && i < N && size > 1; i++) {
        const double off = ((double *)memory)[i] - (i + 1);
        if (off * off > wrong) wrong = off * off;
    }
    if (rank == 0) printf("%d workers: the parameters are %s\n", size - 1, wrong < 1e-6 ? "learned" : "WRONG");
    tutti_window_destroy(window);
    tutti_comm_destroy(world);
    return wrong >= 1e-6;
}
