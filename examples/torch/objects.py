# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects of any size and kind: each rank's are told to one, to all, or dealt out. The
reference is arithmetic on the rank; what arrives is compared as an object and, for the comparison between backends,
as its text."""

from __future__ import annotations

from typing import Any, Dict

import torch
import torch.distributed as dist

from example import Job, main


def thing(rank: int) -> Dict[str, Any]:
    """An object whose size depends on the rank: 0 to some hundred kilobytes."""
    return {"rank": rank, "text": "é" * (rank * 1000), "nested": [(rank, None), {rank}], "bytes": b"\x00" * rank**3}


def compare(job: Job, name: str, got: Any, want: Any) -> None:
    assert got == want, f"{name}: rank {job.rank} got {str(got)[:200]}, not {str(want)[:200]}"
    got, want = (torch.frombuffer(bytearray(repr(x).encode()), dtype=torch.uint8) for x in (got, want))
    job.check(name, got, want)


# ---- the cases ----
def all_gather(job: Job) -> None:
    got = [None] * job.world
    dist.all_gather_object(got, thing(job.rank))
    compare(job, "all_gather_object", got, [thing(rank) for rank in range(job.world)])


def gather(job: Job) -> None:
    """To the last rank."""
    last = job.world - 1
    got = [None] * job.world if job.rank == last else None
    dist.gather_object(thing(job.rank), got, dst=last)
    compare(job, "gather_object", got, [thing(rank) for rank in range(job.world)] if job.rank == last else None)


def broadcast(job: Job) -> None:
    for source in range(job.world):
        got = [thing(source), "and more", source] if job.rank == source else [None] * 3
        dist.broadcast_object_list(got, src=source)
        compare(job, f"broadcast_object_list from {source}", got, [thing(source), "and more", source])


def scatter(job: Job) -> None:
    got = [None]
    dist.scatter_object_list(got, [thing(rank) for rank in range(job.world)] if job.rank == 0 else None, src=0)
    compare(job, "scatter_object_list", got, [thing(job.rank)])


def ring(job: Job) -> None:
    """From rank to rank: each adds itself to the list that it received."""
    got = [[]]
    if job.rank > 0:
        dist.recv_object_list(got, src=job.rank - 1)
    got[0] = got[0] + [thing(job.rank)]
    if job.rank < job.world - 1:
        dist.send_object_list(got, dst=job.rank + 1)
    compare(job, "send_object_list", got[0], [thing(rank) for rank in range(job.rank + 1)])


def of_a_group(job: Job) -> None:
    """Among the ranks of one parity."""
    ranks = list(range(job.rank % 2, job.world, 2))
    groups = [dist.new_group(list(range(parity, job.world, 2))) for parity in range(min(2, job.world))]
    group = groups[job.rank % 2]
    got = [None] * len(ranks)
    dist.all_gather_object(got, thing(job.rank), group=group)
    compare(job, "all_gather_object in a group", got, [thing(rank) for rank in ranks])


CASES = {
    "all_gather_object": all_gather,
    "gather_object": gather,
    "broadcast_object_list": broadcast,
    "scatter_object_list": scatter,
    "send_object_list": ring,
    "group": of_a_group,
}

if __name__ == "__main__":
    main(CASES)
