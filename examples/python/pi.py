# SPDX-License-Identifier: BSD-3-Clause
"""What programs for mpi4py look like here: collectives, a message around the ring, groups of ranks, overlapping a call
with work. tutti run -n 4 -- python3 pi.py"""

import array

import tutti

N = 200_000


def main(world):
    # Each rank adds up every size-th part of the integral of 4 / (1 + x * x).
    mine = sum(4 / (1 + ((i + 0.5) / N) ** 2) for i in range(world.rank, N, world.size)) / N
    pi = array.array("d", [mine])
    work = world.all_reduce(pi, async_op=True)  # MPI's Iallreduce
    squares = sum(i * i for i in range(1000))  # meanwhile
    work.wait()

    token = array.array("q", [squares])
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    came = world.sendrecv(array.array("q", [world.rank]), token, right, left)  # a Message: source, tag, bytes

    everyone = array.array("q", [0] * world.size)
    world.all_gather(array.array("q", [world.rank**2]), everyone)

    with world.split(world.rank % 2) as half:  # the even and the odd ranks
        n = array.array("q", [1])
        half.all_reduce(n)
    print(f"rank {world.rank}: pi is {pi[0]:.8f}, {token[0]} came from {came.source}, squares {everyone.tolist()}, "
          f"{n[0]} ranks like me")


if __name__ == "__main__":
    with tutti.Comm() as world_:
        main(world_)
