# SPDX-License-Identifier: BSD-3-Clause
"""FSDP1, the class FullyShardedDataParallel, which much code still uses: its sharding strategies, bfloat16 parameters,
and gradients clipped by the norm of all parts. The reference is one process on all ranks' images."""

from __future__ import annotations

from typing import List

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import fsdp2
from example import Job, main
from fsdp2 import LAYERS, ROUNDING, STEPS, Block, alone, loss_of


def shard(**options) -> FullyShardedDataParallel:
    policy = ModuleWrapPolicy({Block})
    return FullyShardedDataParallel(
        fsdp2.net(), auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True, **options
    )


def train(job: Job, model: FullyShardedDataParallel) -> List[torch.Tensor]:
    """Returns the whole parameters."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        loss_of(model, step, job.rank, job.world).backward()
        model.clip_grad_norm_(0.5)
        optimizer.step()
        optimizer.zero_grad()
    with FullyShardedDataParallel.summon_full_params(model):
        return [p.detach().clone() for p in model.parameters()]


# ---- the cases ----
def strategies(job: Job) -> None:
    want = alone(job.world)
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
        model = shard(sharding_strategy=strategy)
        assert sum(isinstance(m, FullyShardedDataParallel) for m in model.modules()) == LAYERS + 1
        job.check(strategy.name, train(job, model), want, ROUNDING)


def hybrid(job: Job) -> None:
    """Two replicas, each in parts (FSDP1 refuses parts of one rank: of two ranks, one replica)."""
    replicas = 2 if job.world % 4 == 0 else 1
    mesh = init_device_mesh("cpu", (replicas, job.world // replicas), mesh_dim_names=("replicate", "shard"))
    model = shard(sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)
    job.check("HYBRID_SHARD", train(job, model), alone(job.world), ROUNDING)


def bf16(job: Job) -> None:
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = shard(mixed_precision=precision)
    job.check("bf16", train(job, model), alone(job.world, dtype=torch.bfloat16), 1e-4)


def no_sync(job: Job) -> None:
    """Gradients of two batches; the first stays where it was computed."""
    model, want = shard(), fsdp2.net()
    with model.no_sync():
        loss_of(model, 0, job.rank, job.world).backward()
    loss_of(model, 1, job.rank, job.world).backward()
    for step in range(2):
        for rank in range(job.world):
            (loss_of(want, step, rank, job.world) / job.world).backward()
    with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
        got = [p.grad.clone() for p in model.parameters()]
    job.check("no_sync", got, [p.grad for p in want.parameters()], ROUNDING)


CASES = {"strategies": strategies, "HYBRID_SHARD": hybrid, "bf16": bf16, "no_sync": no_sync}

if __name__ == "__main__":
    main(CASES)
