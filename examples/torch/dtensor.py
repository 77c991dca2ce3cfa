# SPDX-License-Identifier: BSD-3-Clause
"""Distributed tensors: split, replicated and partial, turned into one another in all ways on meshes of one and two
dimensions, also where the ranks' parts differ in size. The reference is the whole tensor; the numbers are integers, so
that all is exact. Then mathematics on split operands."""

from __future__ import annotations

import itertools
from typing import Tuple

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor

from example import Job, main, random


def integers(*shape: int) -> torch.Tensor:
    return (random(7, *shape) * 100).round()


def part_of(whole: torch.Tensor, mesh: DeviceMesh, placements: Tuple[Placement, ...]) -> torch.Tensor:
    """What this rank holds of it, from its coordinates alone."""
    for size, place, placement in zip(mesh.shape, mesh.get_coordinate(), placements):
        if isinstance(placement, Shard):
            chunks = whole.chunk(size, placement.dim)
            whole = chunks[place] if place < len(chunks) else whole.narrow(placement.dim, 0, 0)
    return whole


def redistributions(job: Job, mesh: DeviceMesh, shape: Tuple[int, ...]) -> None:
    """From every placement to every other."""
    whole = integers(*shape)
    each = (Replicate(), *(Shard(dim) for dim in range(len(shape))))
    all_placements = list(itertools.product(each, repeat=mesh.ndim))
    got, want = [], []
    for before, after in itertools.product(all_placements, repeat=2):
        tensor = distribute_tensor(whole, mesh, before)
        got.append(tensor.to_local())
        want.append(part_of(whole, mesh, before))
        got.append(tensor.redistribute(placements=after).to_local())
        want.append(part_of(whole, mesh, after))
    job.check(f"{len(want) // 2} redistributions of {'x'.join(map(str, shape))}", got, want)


# ---- the cases ----
def one_dimension(job: Job) -> None:
    mesh = init_device_mesh("cpu", (job.world,))
    redistributions(job, mesh, (2 * job.world, job.world, 3))
    redistributions(job, mesh, (2 * job.world + 1, 3))  # unequal parts, and none for some


def two_dimensions(job: Job) -> None:
    half = 2 if job.world % 2 == 0 else 1
    mesh = init_device_mesh("cpu", (half, job.world // half))
    redistributions(job, mesh, (2 * job.world, 3))


def partial(job: Job) -> None:
    """Each rank holds a term of the result; it becomes whole, or is scattered as it is summed."""
    mesh = init_device_mesh("cpu", (job.world,))
    terms = [integers(job.world * 2 + 1, 4) + rank for rank in range(job.world)]
    stacked = torch.stack(terms)
    results = {"sum": stacked.sum(0), "avg": stacked.sum(0) / job.world, "max": stacked.amax(0), "min": stacked.amin(0)}
    for operation, want in results.items():
        tolerance = 1e-6 if operation == "avg" else 0
        tensor = DTensor.from_local(terms[job.rank], mesh, [Partial(operation)])
        job.check(f"{operation} to all", tensor.redistribute(placements=[Replicate()]).to_local(), want, tolerance)
        for dim in range(2):
            placements = (Shard(dim),)
            got = tensor.redistribute(placements=placements).to_local()
            job.check(f"{operation} scattered by {dim}", got, part_of(want, mesh, placements), tolerance)


def mathematics(job: Job) -> None:
    """Operands split in any way: the product, its reductions, its gradients."""
    mesh = init_device_mesh("cpu", (job.world,))
    a, b = integers(2 * job.world, 4 * job.world), integers(4 * job.world, 5)
    for left, right in itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2):
        x, y = (t.clone().requires_grad_() for t in (a, b))
        dx, dy = (
            distribute_tensor(t, mesh, [p]).requires_grad_() for t, p in zip((a, b), (left, right))
        )
        want, got = x @ y, dx @ dy
        (want * want).sum().backward()
        (got * got).sum().backward()
        job.check(
            f"{left} @ {right}",
            [got.full_tensor(), got.sum().full_tensor(), got.amax(0).full_tensor(), dx.grad.full_tensor()],
            [want, want.sum(), want.amax(0), x.grad],
            1e-6,
        )


CASES = {"1-D": one_dimension, "2-D": two_dimensions, "partial": partial, "mathematics": mathematics}

if __name__ == "__main__":
    main(CASES)
