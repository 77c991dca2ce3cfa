/* SPDX-License-Identifier: BSD-3-Clause */

/* A halo exchange by one-sided calls: heat spreads over a grid whose rows are shared out among the ranks. In each step
 * a rank puts its first and its last row where its neighbours need them, and tells each by a signal; then it waits for
 * theirs. Nobody calls a receive. Each rank also computes the whole grid alone, and compares. */

#include "example.h"

#include <string.h>

#define COLUMNS 32
#define ROWS 6 /* a rank's */
#define STEPS 50

typedef double row[COLUMNS];

/* What neighbours write: the row above mine and the one below, for even and for odd steps; so a neighbour that is one
 * step ahead, and no one can be two, does not touch what I still read. */
struct halos {
    row above[2], below[2];
};
enum { FROM_ABOVE, FROM_BELOW }; /* signals: how many rows have come */

static void heat(const double *above, const double *at, const double *below, double *to)
{
    to[0] = at[0], to[COLUMNS - 1] = at[COLUMNS - 1];
    for (int c = 1; c < COLUMNS - 1; c++) to[c] = at[c] + (above[c] + below[c] + at[c - 1] + at[c + 1] - 4 * at[c]) / 8;
}

/* grid has a row more at both ends. */
static void step(row *grid, row *next, int n)
{
    for (int r = 1; r <= n; r++) heat(grid[r - 1], grid[r], grid[r + 1], next[r]);
    memcpy(grid[1], next[1], (size_t)n * sizeof(row));
}

static void begin(row *grid, int n, int first)
{
    memset(grid, 0, ((size_t)n + 2) * sizeof(row));
    for (int r = 1; r <= n; r++)
        for (int c = 0; c < COLUMNS; c++) grid[r][c] = (first + r) * 7 % 10 + c * 3 % 11;
}

int main(void)
{
    struct tutti_comm *world = world_create();
    const int32_t rank = tutti_comm_rank(world), size = tutti_comm_size(world);
    const struct tutti_signal_info down = {FROM_ABOVE, TUTTI_SIGNAL_ADD, 1}, up = {FROM_BELOW, TUTTI_SIGNAL_ADD, 1};
    static row mine[ROWS + 2], next[ROWS + 2];
    struct tutti_window *window;
    struct halos *halos;
    void *memory;

    CHECK(tutti_mem_alloc(world, sizeof *halos, &memory)); /* which ranks of this host reach directly */
    CHECK(tutti_window_create(world, memory, sizeof *halos, NULL, &window));
    halos = memory;
    begin(mine, ROWS, rank * ROWS);
    for (int t = 0; t < STEPS; t++) {
        const size_t above = offsetof(struct halos, above[t % 2]), below = offsetof(struct halos, below[t % 2]);
        if (rank > 0) CHECK(tutti_put_signal(mine[1], sizeof(row), rank - 1, below, &up, window, NULL, NULL));
        if (rank + 1 < size)
            CHECK(tutti_put_signal(mine[ROWS], sizeof(row), rank + 1, above, &down, window, NULL, NULL));
        if (rank > 0) {
            CHECK(tutti_wait_signal(FROM_ABOVE, TUTTI_COMPARE_GE, t + 1u, rank - 1, window, NULL, NULL));
            memcpy(mine[0], halos->above[t % 2], sizeof(row));
        }
        if (rank + 1 < size) {
            CHECK(tutti_wait_signal(FROM_BELOW, TUTTI_COMPARE_GE, t + 1u, rank + 1, window, NULL, NULL));
            memcpy(mine[ROWS + 1], halos->below[t % 2], sizeof(row));
        }
        step(mine, next, ROWS);
    }

    row *whole = calloc((size_t)size * ROWS + 2, sizeof(row)), *other = calloc((size_t)size * ROWS + 2, sizeof(row));
    if (!whole || !other) return 1;
    begin(whole, size * ROWS, 0);
    for (int t = 0; t < STEPS; t++) step(whole, other, size * ROWS);
    const bool equal = memcmp(mine[1], whole[rank * ROWS + 1], ROWS * sizeof(row)) == 0;
    printf("rank %d: %d steps, %s\n", rank, STEPS, equal ? "the same as computed alone" : "WRONG");
    free(whole), free(other);
    CHECK(tutti_barrier(world, NULL, NULL)); /* the memory stays until all are through */
    tutti_window_destroy(window);
    tutti_comm_destroy(world);
    return !equal;
}
