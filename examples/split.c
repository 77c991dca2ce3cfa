/* SPDX-License-Identifier: BSD-3-Clause */

/* Splitting into groups: the ranks are laid out as a grid of two columns, and each rank sums along its row and along
 * its column. One call makes all groups; rank 0 alone goes on to a group of its own colour, the others to none. */

#include "example.h"

#define COLUMNS 2

static int32_t sum_over(struct tutti_comm *group, int32_t value)
{
    int32_t sum = 0;
    CHECK(tutti_all_reduce(&value, &sum, 1, TUTTI_INT32, TUTTI_SUM, group, NULL, NULL));
    return sum;
}

int main(void)
{
    struct tutti_comm *world = world_create(), *row, *column, *chosen;
    int32_t rank = tutti_comm_rank(world), size = tutti_comm_size(world);
    int32_t my_row = rank / COLUMNS, my_column = rank % COLUMNS;

    CHECK(tutti_comm_split(world, my_row, my_column, &row));
    CHECK(tutti_comm_split(world, my_column, my_row, &column));
    CHECK(tutti_comm_split(world, rank == 0 ? 0 : TUTTI_UNDEFINED, 0, &chosen)); /* NULL for all but rank 0 */

    int32_t in_row = sum_over(row, rank), in_column = sum_over(column, rank);
    int32_t expected_row = 0, expected_column = 0;
    for (int32_t r = 0; r < size; r++) {
        expected_row += r / COLUMNS == my_row ? r : 0;
        expected_column += r % COLUMNS == my_column ? r : 0;
    }
    printf("rank %d: row %d sums to %d, column %d to %d\n", rank, my_row, in_row, my_column, in_column);
    int wrong = in_row != expected_row || in_column != expected_column || (chosen != NULL) != (rank == 0) ||
                tutti_comm_rank(row) != my_column || tutti_comm_rank(column) != my_row;

    tutti_comm_destroy(chosen);
    tutti_comm_destroy(column);
    tutti_comm_destroy(row);
    tutti_comm_destroy(world);
    return wrong;
}
