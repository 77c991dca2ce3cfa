# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel and its options: gradients that are views of the buckets, parameters that a step does not
use, a static graph with recomputation, communication hooks, accumulation without communication, uneven inputs. The
reference of each is the same training in one process on all ranks' images."""

from __future__ import annotations

from typing import Callable, List, Optional

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from example import Job, main, random, share

WIDTH, ROWS, STEPS = 24, 4, 4  # ROWS: a rank's share of a batch
ROUNDING = 1e-6


class Net(nn.Module):
    """Two branches, of which a step may use one or both."""

    def __init__(self, recompute: bool = False):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.branches = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.last = nn.Linear(WIDTH, 3)
        self.recompute = recompute

    def forward(self, x: torch.Tensor, branch: Optional[int] = None) -> torch.Tensor:
        x = checkpoint(self.first, x, use_reentrant=False) if self.recompute else self.first(x)
        chosen = self.branches if branch is None else [self.branches[branch]]
        for layer in chosen:
            x = x + torch.tanh(layer(x))
        return self.last(x)


def batch(step: int, world: int):
    return random(2 * step, world * ROWS, WIDTH), random(2 * step + 1, world * ROWS, 3)


def loss_of(model: nn.Module, step: int, rank: int, world: int, *branch: int) -> torch.Tensor:
    """The mean loss of one rank's share of a batch."""
    inputs, targets = batch(step, world)
    return mse_loss(model(share(inputs, rank, world), *branch), share(targets, rank, world))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def alone(world: int, losses_of_step: Callable[[nn.Module, int], List[torch.Tensor]], steps: int = STEPS) -> nn.Module:
    """The reference: one process, whose gradient is the mean over the ranks' losses."""
    model = Net()
    optimizer = optimizer_of(model)
    for step in range(steps):
        optimizer.zero_grad()
        (sum(losses_of_step(model, step)) / world).backward()
        optimizer.step()
    return model


def all_ranks(world: int) -> Callable[[nn.Module, int], List[torch.Tensor]]:
    return lambda model, step: [loss_of(model, step, rank, world) for rank in range(world)]


def train(job: Job, model: DistributedDataParallel) -> None:
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, job.rank, job.world).backward()
        optimizer.step()


# ---- the cases ----
def bucket_view(job: Job) -> None:
    model = DistributedDataParallel(Net(), gradient_as_bucket_view=True, bucket_cap_mb=0.004)
    train(job, model)
    assert all(p.grad._base is not None for p in model.parameters()), "gradients are views of the buckets"
    job.check("bucket_view", model.parameters(), alone(job.world, all_ranks(job.world)).parameters(), ROUNDING)


def find_unused_parameters(job: Job) -> None:
    """Each rank uses another branch; what only some use is averaged with zeros, what nobody uses keeps no gradient."""

    def branch(rank: int, step: int) -> int:
        return 0 if step == 0 else (rank + step) % 2

    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, job.rank, job.world, branch(job.rank, step)).backward()
        assert step > 0 or model.module.branches[1].weight.grad is None, "nobody used it"
        optimizer.step()
    single = alone(job.world, lambda m, s: [loss_of(m, s, r, job.world, branch(r, s)) for r in range(job.world)])
    job.check("find_unused_parameters", model.parameters(), single.parameters(), ROUNDING)


def static_graph(job: Job) -> None:
    model = DistributedDataParallel(Net(recompute=True), static_graph=True)
    train(job, model)
    job.check("static_graph", model.parameters(), alone(job.world, all_ranks(job.world)).parameters(), ROUNDING)


def bf16_hook(state, bucket):
    """The hook under a name of ours: by its own, DDP refuses it wherever neither CUDA nor XPU is there."""
    return default_hooks.bf16_compress_hook(state, bucket)


def compress(job: Job) -> None:
    """Gradients travel in 16 bits: rounded and divided on each rank, and rounded again as they are added."""
    hooks = {torch.bfloat16: bf16_hook, torch.float16: default_hooks.fp16_compress_hook}
    for dtype, hook in hooks.items():
        model = DistributedDataParallel(Net())
        model.register_comm_hook(None, hook)
        loss_of(model, 0, job.rank, job.world).backward()
        want = [torch.zeros_like(p, dtype=dtype) for p in model.parameters()]
        for rank in range(job.world):
            single = Net()
            loss_of(single, 0, rank, job.world).backward()
            want = [w + p.grad.to(dtype).div(job.world) for w, p in zip(want, single.parameters())]
        got = [p.grad.to(dtype) for p in model.parameters()]
        assert all(torch.equal(g.float(), p.grad) for g, p in zip(got, model.parameters())), f"not of {dtype}"
        # A sum of two has but one value; of more, each addition may round the other way.
        tolerance = 0 if job.world <= 2 else torch.finfo(dtype).eps * job.world
        job.check(f"compress {dtype}", got, want, tolerance)


def power_sgd(job: Job) -> None:
    """Gradients travel as products of thin matrices. As thick as the gradient itself, they lose nothing: the reference
    is then plain training. Of rank 1, what arrives is a product of two vectors."""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=WIDTH, start_powerSGD_iter=2, min_compression_rate=0.01
    )
    model = DistributedDataParallel(Net())
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(job, model)
    job.check("power_sgd", model.parameters(), alone(job.world, all_ranks(job.world)).parameters(), 1e-4)

    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model = DistributedDataParallel(Net())
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(job, model)
    for matrix in (p.grad for p in model.parameters() if p.dim() == 2):
        assert torch.linalg.matrix_rank(matrix, rtol=1e-4) == 1, "a product of two vectors"
    job.record("power_sgd rank 1", model.parameters(), 1e-4)


def no_sync(job: Job) -> None:
    """Two batches a step; only the second one's backward pass communicates, for both."""
    model = DistributedDataParallel(Net())
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            loss_of(model, 2 * step, job.rank, job.world).backward()
        loss_of(model, 2 * step + 1, job.rank, job.world).backward()
        optimizer.step()
    single = alone(job.world, lambda m, s: all_ranks(job.world)(m, 2 * s) + all_ranks(job.world)(m, 2 * s + 1))
    job.check("no_sync", model.parameters(), single.parameters(), ROUNDING)


def join_uneven_inputs(job: Job) -> None:
    """Rank r has 2 + r batches; who has none left takes part with zeros until the last has none."""
    model = DistributedDataParallel(Net())
    optimizer = optimizer_of(model)
    with model.join(divide_by_initial_world_size=True):
        for step in range(2 + job.rank):
            optimizer.zero_grad()
            loss_of(model, step, job.rank, job.world).backward()
            optimizer.step()
    single = alone(
        job.world,
        lambda m, s: [loss_of(m, s, rank, job.world) for rank in range(job.world) if s < 2 + rank],
        steps=1 + job.world,
    )
    job.check("join_uneven_inputs", model.parameters(), single.parameters(), ROUNDING)


CASES = {
    "gradient_as_bucket_view": bucket_view,
    "find_unused_parameters": find_unused_parameters,
    "static_graph": static_graph,
    "bf16_compress": compress,
    "PowerSGD": power_sgd,
    "no_sync": no_sync,
    "join": join_uneven_inputs,
}

if __name__ == "__main__":
    main(CASES)
