# SPDX-License-Identifier: BSD-3-Clause
"""ZeroRedundancyOptimizer: under DistributedDataParallel, each rank keeps the optimizer's state of some parameters
only, updates these, and broadcasts them. Also with steps that run behind the backward pass, and with the state
brought together for a checkpoint. The reference is the plain optimizer in one process."""

from __future__ import annotations

import torch
from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from ddp import ROUNDING, STEPS, Net, loss_of
from example import Job, main

ADAM = dict(lr=0.01, weight_decay=0.1)
SGD = dict(lr=0.1, momentum=0.9)


def alone(job: Job, optimizer_class=torch.optim.Adam, **options):
    model = Net()
    optimizer = optimizer_class(model.parameters(), **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        (sum(loss_of(model, step, rank, job.world) for rank in range(job.world)) / job.world).backward()
        optimizer.step()
    return model, optimizer


def train(job: Job, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, job.rank, job.world).backward()
        optimizer.step()


# ---- the cases ----
def plain(job: Job) -> None:
    """Afterwards the state of all is brought together on rank 0, and loaded: each rank keeps its part."""
    model = DistributedDataParallel(Net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, **ADAM)
    train(job, model, optimizer)
    single, single_optimizer = alone(job, **ADAM)
    job.check("Adam", model.parameters(), single.parameters(), 10 * ROUNDING)
    mine, total = len(optimizer.optim.state), len(list(model.parameters()))
    assert mine < total or job.world == 1, "nobody keeps all the state"

    optimizer.consolidate_state_dict(to=0)
    if job.rank == 0:
        state, want = optimizer.state_dict()["state"], single_optimizer.state_dict()["state"]
        assert state.keys() == want.keys()
        moments = [[s[i][k] for i in sorted(want) for k in ("exp_avg", "exp_avg_sq")] for s in (state, want)]
        job.check("Adam: its state", *moments, ROUNDING)
        optimizer.load_state_dict(optimizer.state_dict())
        assert len(optimizer.optim.state) == mine


def as_buckets(job: Job) -> None:
    """The parameters of each rank lie side by side in one buffer, which is broadcast as a whole."""
    model = DistributedDataParallel(Net())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, parameters_as_bucket_view=True, **SGD
    )
    train(job, model, optimizer)
    single, _ = alone(job, torch.optim.SGD, **SGD)
    job.check("SGD, in buckets", model.parameters(), single.parameters(), ROUNDING)


def overlapped(job: Job) -> None:
    """The step of a bucket runs as soon as its gradients are there, and nobody calls step(). The first two backward
    passes only learn the buckets, so that the training proper begins after them."""
    model = DistributedDataParallel(Net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, overlap_with_ddp=True, **ADAM)
    model.register_comm_hook(None, hook_with_zero_step(allreduce_hook, model, optimizer))
    for step in (0, 0, *range(STEPS)):
        model.zero_grad()
        loss_of(model, step, job.rank, job.world).backward()
    single, _ = alone(job, **ADAM)
    job.check("Adam, behind the backward pass", model.parameters(), single.parameters(), 10 * ROUNDING)


CASES = {"plain": plain, "parameters_as_bucket_view": as_buckets, "overlap_with_ddp": overlapped}

if __name__ == "__main__":
    main(CASES)
