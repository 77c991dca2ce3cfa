# SPDX-License-Identifier: BSD-3-Clause
"""Meshes of one, two and three dimensions: who is where, and collectives along each dimension, which are compared with
sums over the coordinates. Integers below 2^24 as floats, so that all is exact."""

from __future__ import annotations

import math
from typing import Tuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from example import Job, main


def along(mesh: DeviceMesh, dim: int) -> torch.Tensor:
    """The ranks of this rank's group along a dimension, from its coordinates alone."""
    place = list(mesh.get_coordinate())
    place[dim] = slice(None)
    return mesh.mesh[tuple(place)]


def value_of(ranks: torch.Tensor) -> torch.Tensor:
    """What the ranks contribute: one row of three numbers each."""
    return torch.stack([ranks + 1, ranks * ranks, 1000 - ranks], dim=-1).float()


def collectives(job: Job, mesh: DeviceMesh, dim: int, name: str) -> None:
    group, ranks = mesh.get_group(dim), along(mesh, dim)
    size, mine = len(ranks), value_of(torch.tensor(job.rank))
    assert dist.get_process_group_ranks(group) == ranks.tolist()
    assert mesh.get_local_rank(dim) == dist.get_rank(group) == ranks.tolist().index(job.rank)

    everyone = value_of(ranks)
    summed, greatest = mine.clone(), mine.clone()
    dist.all_reduce(summed, group=group)
    dist.all_reduce(greatest, dist.ReduceOp.MAX, group=group)
    gathered = torch.empty(size * 3)
    dist.all_gather_into_tensor(gathered, mine, group=group)
    scattered = torch.empty(3)
    dist.reduce_scatter_tensor(scattered, torch.cat([mine + i for i in range(size)]), group=group)
    first = mine.clone()
    dist.broadcast(first, src=int(ranks[0]), group=group)
    turned = torch.empty(size, 3)
    dist.all_to_all_single(turned, torch.stack([mine + i for i in range(size)]), group=group)
    place = mesh.get_local_rank(dim)
    job.check(
        name,
        [summed, greatest, gathered.view(size, 3), scattered, first, turned],
        [everyone.sum(0), everyone.amax(0), everyone, (everyone + place).sum(0), everyone[0], everyone + place],
    )


def over(job: Job, shape: Tuple[int, ...], names: Tuple[str, ...]) -> DeviceMesh:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    assert mesh.shape == shape and math.prod(shape) == job.world and mesh[names[-1]].ndim == 1
    for dim, name in enumerate(names):
        collectives(job, mesh, dim, f"{'x'.join(map(str, shape))} along {name}")
    return mesh


# ---- the cases ----
def one_dimension(job: Job) -> None:
    over(job, (job.world,), ("data",))


def two_dimensions(job: Job) -> None:
    half = 2 if job.world % 2 == 0 else 1
    mesh = over(job, (half, job.world // half), ("data", "tensor"))
    collectives(job, mesh["tensor"], 0, "the slice called tensor")


def three_dimensions(job: Job) -> None:
    """Two ranks a dimension as far as they go: 2x1x1, 2x2x1, 2x2x2."""
    half = 2 if job.world % 2 == 0 else 1
    quarter = 2 if job.world % 4 == 0 else 1
    mesh = over(job, (half, quarter, job.world // half // quarter), ("pipeline", "data", "tensor"))
    collectives(job, mesh["pipeline", "data"], 1, "the slice of two")
    flat = mesh["pipeline", "data"]._flatten("both")
    collectives(job, flat, 0, "two dimensions as one")


def from_groups(job: Job) -> None:
    """A mesh around a group that was there before."""
    group = dist.new_group(list(range(job.world)))
    mesh = DeviceMesh.from_group(group, "cpu")
    collectives(job, mesh, 0, "around a group")


CASES = {"1-D": one_dimension, "2-D": two_dimensions, "3-D": three_dimensions, "from_group": from_groups}

if __name__ == "__main__":
    main(CASES)
