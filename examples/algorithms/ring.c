/* SPDX-License-Identifier: BSD-3-Clause */
/* An algorithm of your own: one function that emits the steps of one rank. It moves no bytes and waits for nothing; it
 * says what is sent, received, combined and copied, and the library proves it for all ranks before it runs it.
 *
 *     tutti sched show ./ring.c --size 4            look at it
 *     tutti sched check ./ring.c --sizes 1-64       prove it
 *     tutti sched sim ./ring.c --world 64 --bytes 64M
 *     tutti bench all_reduce -n 4 --algorithm ./ring.c --check
 *     TUTTI_ALGORITHMS=./ring.c any-program
 *
 * Below: kind, name, needs (bits of enum tutti_needs: here the order of operands is not kept), into how many chunks the
 * data is cut, how many chunks of scratch memory there are, number of rounds. All are expressions of `shape`, the
 * world: shape->size ranks, of which the function is shape->slot; shape->root in kinds that have one. */

#include <tutti/schedule.h>

TUTTI_COLLECTIVE(TUTTI_ALL_REDUCE, "my_ring", TUTTI_NEEDS_COMMUTATIVE, shape->size, 0, 2 * (shape->size - 1))
{
    uint32_t p = shape->size, me = shape->slot, right = (me + 1) % p, left = (me + p - 1) % p;

    /* What is sent and received in a round are chunks of TUTTI_DATA, the input and the output as one. They go round
     * once to be added up: what comes in is combined with this rank's own chunk. */
    if (round < p - 1) {
        tutti_emit_send(emit, right, TUTTI_DATA, (me + 2 * p - round - 1) % p, 1);
        tutti_emit_recv_reduce(emit, left, TUTTI_DATA, (me + 2 * p - round - 2) % p, 1, TUTTI_LEFT);
        return;
    }
    /* They go round once more to be known to all. Rounds are program order, no barrier: a step waits for those before
     * it that touch the same chunks, and for nothing else. */
    round -= p - 1;
    tutti_emit_send(emit, right, TUTTI_DATA, (me + p - round) % p, 1);
    tutti_emit_recv(emit, left, TUTTI_DATA, (me + 2 * p - round - 1) % p, 1);
}
