/* SPDX-License-Identifier: BSD-3-Clause */

/* The shortest program: every rank gives a number, every rank gets the sum. Start it with
 *     tutti run -n 4 -- ./hello */

#include <stdio.h>
#include <tutti/tutti.h>

int main(void)
{
    struct tutti_comm *world;
    if (tutti_comm_create(NULL, NULL, &world)) return puts(tutti_last_error()->text), 1;
    float x = (float)tutti_comm_rank(world) + 1, sum = 0;
    if (tutti_all_reduce(&x, &sum, 1, TUTTI_FLOAT32, TUTTI_SUM, world, NULL, NULL))
        return puts(tutti_last_error()->text), 1;
    printf("rank %d of %d: the sum is %g\n", tutti_comm_rank(world), tutti_comm_size(world), sum);
    tutti_comm_destroy(world);
}
