# SPDX-License-Identifier: BSD-3-Clause
"""An algorithm of your own: a function that emits the steps of one rank. It moves no bytes and waits for nothing; it
says what is sent, received, combined and copied, and the library proves it for all ranks before it runs it.

    tutti sched show ./ring.py --size 4            look at it
    tutti sched check ./ring.py --sizes 1-16       prove it
    tutti sched sim ./ring.py --world 64 --bytes 64M
    tutti bench all_reduce -n 4 --algorithm ./ring.py --check
    TUTTI_ALGORITHMS=./ring.py any-program"""

import tutti


# The kind; what it needs (here the order of operands is not kept); into how many chunks the data is cut. `world` and
# `rank` have size, root, radix and levels; a rank has its slot, too.
@tutti.algorithm("all_reduce", needs="commutative", chunks=lambda world: world.size)
def my_ring(rank):
    """blocks go round a ring, once to be added up and once to be known to all"""
    p, me = rank.size, rank.slot
    right, left = (me + 1) % p, (me - 1) % p

    # A bare number is a chunk of DATA, the input and the output as one. What comes in is combined with this rank's own
    # chunk, on the left of the operation.
    for k in range(p - 1):
        rank.send(right, (me - k - 1) % p)
        rank.recv_reduce(left, (me - k - 2) % p, side="left")
        rank.round()

    # Rounds are program order, no barrier: a step waits for those before it that touch the same chunks alone.
    for k in range(p - 1):
        rank.send(right, (me - k) % p)
        rank.recv(left, (me - k - 1) % p)
        rank.round()
