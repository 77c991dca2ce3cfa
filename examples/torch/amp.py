# SPDX-License-Identifier: BSD-3-Clause
"""Automatic mixed precision: autocast to bfloat16 under DistributedDataParallel, and gradients scaled by a GradScaler
(under FSDP1 by its ShardedGradScaler) that skips the step of all ranks when one rank's gradient is not finite. The
reference is one process that casts and scales as the ranks do."""

from __future__ import annotations

import torch
from torch import nn
from torch.amp import GradScaler
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel

import fsdp1
import fsdp2
from ddp import ROUNDING, STEPS, Net, loss_of, optimizer_of
from example import Job, main

SCALE, BAD_STEP = 2.0**10, 1


def scaler_of(scaler_class=GradScaler):
    return scaler_class(device="cpu", init_scale=SCALE, growth_interval=2)


def autocast_loss(model: nn.Module, step: int, rank: int, world: int) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return loss_of(model, step, rank, world)


def spoiled(loss: torch.Tensor, step: int, rank: int) -> torch.Tensor:
    """In one step, one rank's loss is infinite."""
    return loss * float("inf") if (step, rank) == (BAD_STEP, 0) else loss


def scaled_step(scaler: GradScaler, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


# ---- the cases ----
def autocast(job: Job) -> None:
    """The products are computed as bfloat16, their gradients arrive as float32."""
    model, single = DistributedDataParallel(Net()), Net()
    optimizer, single_optimizer = optimizer_of(model), optimizer_of(single)
    for step in range(STEPS):
        optimizer.zero_grad()
        autocast_loss(model, step, job.rank, job.world).backward()
        optimizer.step()
        single_optimizer.zero_grad()
        for rank in range(job.world):
            (autocast_loss(single, step, rank, job.world) / job.world).backward()
        single_optimizer.step()
    assert not torch.equal(model.module.last.weight, trained_without_autocast(job)), "autocast changes the result"
    job.check("autocast", model.parameters(), single.parameters(), 1e-3)


def trained_without_autocast(job: Job) -> torch.Tensor:
    model = Net()
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        (sum(loss_of(model, step, rank, job.world) for rank in range(job.world)) / job.world).backward()
        optimizer.step()
    return model.last.weight


def grad_scaler(job: Job) -> None:
    """Averaging carries the infinite gradient to all ranks: all skip the step and halve the scale."""
    model, single = DistributedDataParallel(Net()), Net()
    optimizer, scaler = optimizer_of(model), scaler_of()
    single_optimizer, single_scaler = optimizer_of(single), scaler_of()
    for step in range(STEPS):
        loss = spoiled(loss_of(model, step, job.rank, job.world), step, job.rank)
        scaled_step(scaler, model, optimizer, loss)
        losses = [spoiled(loss_of(single, step, rank, job.world), step, rank) for rank in range(job.world)]
        scaled_step(single_scaler, single, single_optimizer, sum(losses) / job.world)
        assert scaler.get_scale() == single_scaler.get_scale()
    assert scaler.get_scale() == SCALE / 2 * 2, "halved once, doubled once"
    job.check("GradScaler", model.parameters(), single.parameters(), ROUNDING)


def sharded_grad_scaler(job: Job) -> None:
    """Each rank sees its parts of the gradients only: whether any is not finite, the ranks find out together."""
    model, single = fsdp1.shard(), fsdp2.net()
    optimizer, single_optimizer = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, single))
    scaler, single_scaler = scaler_of(ShardedGradScaler), scaler_of()
    for step in range(fsdp2.STEPS):
        loss = spoiled(fsdp2.loss_of(model, step, job.rank, job.world), step, job.rank)
        scaled_step(scaler, model, optimizer, loss)
        losses = [spoiled(fsdp2.loss_of(single, step, rank, job.world), step, rank) for rank in range(job.world)]
        scaled_step(single_scaler, single, single_optimizer, sum(losses) / job.world)
        assert scaler.get_scale() == single_scaler.get_scale()
    with FullyShardedDataParallel.summon_full_params(model):
        job.check("ShardedGradScaler", model.parameters(), single.parameters(), ROUNDING)


def one_rank_overflows(job: Job) -> None:
    """An overflow that lies in one rank's part alone, and is seen by that rank only: all skip the step."""
    model = fsdp1.shard()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), scaler_of(ShardedGradScaler)
    with FullyShardedDataParallel.summon_full_params(model):
        before = [p.detach().clone() for p in model.parameters()]
    scaler.scale(fsdp2.loss_of(model, 0, job.rank, job.world)).backward()
    if job.rank == job.world - 1:
        next(p.grad for p in model.parameters() if p.grad is not None and p.grad.numel()).fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == SCALE / 2
    with FullyShardedDataParallel.summon_full_params(model):
        job.check("the step is skipped", model.parameters(), before)


CASES = {
    "autocast": autocast,
    "GradScaler": grad_scaler,
    "ShardedGradScaler": sharded_grad_scaler,
    "one rank overflows": one_rank_overflows,
}

if __name__ == "__main__":
    main(CASES)
