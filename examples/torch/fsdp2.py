# SPDX-License-Identifier: BSD-3-Clause
"""FSDP2: every rank holds its part of each parameter; fully_shard gathers them for a layer's work and scatters the
sums of the gradients. Plain, with bfloat16 for compute and communication, on a mesh of replicas and parts (HSDP),
with a divisor of one's own, and with buffers that the backend allocates. The reference is one process on all ranks'
images."""

from __future__ import annotations

from typing import Callable, List

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.func import functional_call
from torch.nn.functional import mse_loss

from example import Job, main, random, share

WIDTH, LAYERS, ROWS, STEPS = 24, 3, 4, 3
ROUNDING = 2e-6


class Block(nn.Module):
    """Odd sizes, so that the parts of the ranks differ."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 37), nn.Linear(37, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, 3))


def shard(**options) -> nn.Module:
    model = net()
    for layer in model:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def loss_of(model: Callable, step: int, rank: int, world: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    inputs, targets = random(2 * step, world * ROWS, WIDTH), random(2 * step + 1, world * ROWS, 3)
    return mse_loss(model(share(inputs, rank, world).to(dtype)).float(), share(targets, rank, world))


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()


def train(job: Job, model: nn.Module) -> List[torch.Tensor]:
    """Returns the whole parameters."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        loss_of(model, step, job.rank, job.world).backward()
        step_of(model, optimizer)
    return [p.full_tensor() for p in model.parameters()]


def alone(world: int, factor: float = 0, dtype: torch.dtype = torch.float32) -> List[torch.Tensor]:
    """One process: each rank's gradient computed with parameters of `dtype`, summed as float32, divided by `factor`."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        for rank in range(world):
            rounded = {name: p.to(dtype) for name, p in model.named_parameters()}
            loss = loss_of(lambda x: functional_call(model, rounded, x), step, rank, world, dtype)
            (loss / (factor or world)).backward()
        step_of(model, optimizer)
    return list(model.parameters())


# ---- the cases ----
def fp32(job: Job) -> None:
    model = shard()
    local = sum(p.to_local().numel() for p in model.parameters())
    total = sum(p.numel() for p in model.parameters())
    assert local < total or job.world == 1, "nobody holds it all"
    job.check("fp32", train(job, model), alone(job.world), ROUNDING)


def bf16(job: Job) -> None:
    """Gathered and computed as bfloat16; summed as float32, or as bfloat16."""
    want = alone(job.world, dtype=torch.bfloat16)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    job.check("bf16, summed as fp32", train(job, shard(mp_policy=policy)), want, 1e-4)
    # Adam's first steps have the learning rate's size, whatever the gradient's: a sign that rounding turns is two.
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    job.check("bf16, summed as bf16", train(job, shard(mp_policy=policy)), want, 0.02 * STEPS)


def hsdp(job: Job) -> None:
    """Two replicas, each in as many parts as there are ranks for."""
    replicas = 2 if job.world % 2 == 0 else 1
    mesh = init_device_mesh("cpu", (replicas, job.world // replicas), mesh_dim_names=("replicate", "shard"))
    job.check("hsdp", train(job, shard(mesh=mesh)), alone(job.world), ROUNDING)


def divide_factor(job: Job) -> None:
    """1.0 sums gradients (TorchTitan asks for that, and scales the loss by the tokens of all ranks); others scale."""
    for factor in (1.0, 3.0 * job.world):
        model = shard()
        for module in (*model, model):
            module.set_gradient_divide_factor(factor)
        job.check(f"divide by {factor}", train(job, model), alone(job.world, factor), ROUNDING)


def accumulate(job: Job) -> None:
    """Gradients of two batches, scattered once."""
    model, want = shard(), net()
    for last in (False, True):
        model.set_requires_gradient_sync(last)
        loss_of(model, int(last), job.rank, job.world).backward()
        for rank in range(job.world):
            (loss_of(want, int(last), rank, job.world) / job.world).backward()
    got = [p.grad.full_tensor() for p in model.parameters()]
    job.check("accumulate", got, [p.grad for p in want.parameters()], ROUNDING)


def backend_memory(job: Job) -> None:
    """What is gathered and scattered lies in memory that the backend allocates, if it can (gloo can not)."""
    model = shard()
    for module in (*model, model):
        module.set_allocate_memory_from_process_group_for_comm(True)
    job.check("backend_memory", train(job, model), alone(job.world), ROUNDING)


CASES = {
    "fp32": fp32,
    "bf16": bf16,
    "HSDP": hsdp,
    "set_gradient_divide_factor": divide_factor,
    "set_requires_gradient_sync": accumulate,
    "allocate_memory_from_process_group": backend_memory,
}

if __name__ == "__main__":
    main(CASES)
