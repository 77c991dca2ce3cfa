# SPDX-License-Identifier: BSD-3-Clause
# label: gpu
"""Training on CUDA (or Intel's) devices, the ways PyTorch has of it, on tutti, in one process, and on nccl where it is
there and has enough devices: the same losses, within rounding."""

from __future__ import annotations

import os
import unittest
from typing import Callable, Iterable, List

import cuda_world
import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from cuda_world import TYPE, calls

WIDTH, BATCH, STEPS = 64, 16, 8
STEPS_ALONE = [step % 2 for step in range(STEPS)]  # which batch each takes
WARM_UP = 3  # calls of graph_step before it captures


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def model() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 8))


def batch(step: int, of: slice, device: torch.device) -> tuple:
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(BATCH, WIDTH, generator=generator), torch.randn(BATCH, 8, generator=generator)
    return x[of].to(device), y[of].to(device)


def share(rank: int, n: int) -> slice:
    return slice(rank * BATCH // n, (rank + 1) * BATCH // n)


def adam(net: nn.Module) -> torch.optim.Optimizer:
    # One by one: with parallel tensors some of the parameters are DTensors, and others are not.
    return torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=False)


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    """Gradients that are too large or too small by a factor make a difference."""
    return torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)


def losses_of(net: nn.Module, of: slice, device: torch.device, average: bool, amp: bool = False,
              optimizer_of: Callable = adam) -> List[float]:  # fmt: skip
    """The loss of each step over all ranks."""
    optimizer = optimizer_of(net)
    scaler = torch.amp.GradScaler(TYPE, enabled=amp, init_scale=2.0**8)
    losses = []
    for step in range(STEPS):
        x, y = batch(step % 2, of, device)
        with torch.autocast(TYPE, dtype=torch.float16, enabled=amp):
            loss = torch.nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        total = loss.detach().float().clone()
        if average:
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
        losses.append(total)
    return torch.stack(losses).tolist()


def alone(device: torch.device, amp: bool = False) -> List[float]:
    return losses_of(model().to(device), slice(0, BATCH), device, False, amp)


def in_shares(net: nn.Module, n: int, device: torch.device, steps: Iterable[int], reduce: Callable) -> List[float]:
    """What n ranks do, by one: each share of the batch by itself, then reduce(name, its gradients on the ranks)."""
    optimizer, losses = sgd(net), []
    for step in steps:
        parts, gradients = [], []
        for rank in range(n):
            x, y = batch(step, share(rank, n), device)
            parts.append(torch.nn.functional.mse_loss(net(x), y))
            gradients.append(torch.autograd.grad(parts[-1], list(net.parameters())))
        for (name, parameter), *of_ranks in zip(net.named_parameters(), *gradients):
            parameter.grad = reduce(name, of_ranks)
        optimizer.step()
        losses.append(torch.stack(parts).detach().mean())
    return torch.stack(losses).tolist()


# ---- the ways ----


def ddp(rank: int, n: int, device: torch.device) -> List[float]:
    net = nn.parallel.DistributedDataParallel(model().to(device), device_ids=[device.index], bucket_cap_mb=0.05)
    return losses_of(net, share(rank, n), device, True)


def ddp_hook(rank: int, n: int, device: torch.device) -> List[float]:
    """Gradients in float16 on the way: the hook goes on with the future of the call."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    net = nn.parallel.DistributedDataParallel(model().to(device), device_ids=[device.index])
    net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return losses_of(net, share(rank, n), device, True, optimizer_of=sgd)


def ddp_hook_alone(n: int, device: torch.device) -> List[float]:
    net = model().to(device)
    return in_shares(net, n, device, STEPS_ALONE, lambda name, of_ranks: sum(g.half() / n for g in of_ranks).float())


def amp(rank: int, n: int, device: torch.device) -> List[float]:
    net = nn.parallel.DistributedDataParallel(model().to(device), device_ids=[device.index])
    return losses_of(net, share(rank, n), device, True, amp=True)


def fsdp2(rank: int, n: int, device: torch.device) -> List[float]:
    from torch.distributed.fsdp import fully_shard

    net = model().to(device)
    for block in net[:2]:
        fully_shard(block)
    fully_shard(net)
    return losses_of(net, share(rank, n), device, True)


def fsdp2_bfloat16(rank: int, n: int, device: torch.device) -> List[float]:
    """With a factor of its own, for which gradients are multiplied before they are summed. Blocks are bfloat16, what
    is between them is not."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    net = model().to(device)
    for block in net[:2]:
        fully_shard(block, mp_policy=policy)
        block.set_gradient_divide_factor(2.0 * n) if hasattr(block, "set_gradient_divide_factor") else None
    fully_shard(net)
    return losses_of(net, share(rank, n), device, True, optimizer_of=sgd)


class Bfloat16(nn.Module):
    """A block that computes in bfloat16, with parameters of float32."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = {name: parameter.bfloat16() for name, parameter in self.block.named_parameters()}
        return torch.func.functional_call(self.block, low, x.bfloat16()).float()


def fsdp2_bfloat16_alone(n: int, device: torch.device) -> List[float]:
    from torch.distributed.fsdp import FSDPModule

    of_block = (2.0 if hasattr(FSDPModule, "set_gradient_divide_factor") else 1.0) * n
    first, second, last = model().to(device)
    net = nn.Sequential(Bfloat16(first), Bfloat16(second), last)

    def reduce(name: str, of_ranks: List[torch.Tensor]) -> torch.Tensor:
        return sum(of_ranks) / (of_block if ".block." in name else n)

    return in_shares(net, n, device, STEPS_ALONE, reduce)


def tensor_parallel(rank: int, n: int, device: torch.device) -> List[float]:
    mesh = init_device_mesh(TYPE, (n,))
    net = model().to(device)
    for block in net[:2]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return losses_of(net, slice(0, BATCH), device, False)


def tensor_parallel_compiled(rank: int, n: int, device: torch.device) -> List[float]:
    """One graph, without a break."""
    mesh = init_device_mesh(TYPE, (n,))
    net = model().to(device)
    for block in net[:2]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return losses_of(torch.compile(net, fullgraph=True), slice(0, BATCH), device, False)


def pipeline(rank: int, n: int, device: torch.device) -> List[float]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    layers = list(model())
    cut = [layers[i * len(layers) // n : (i + 1) * len(layers) // n] for i in range(n)]
    net = nn.Sequential(*cut[rank]).to(device)
    stage = PipelineStage(net, rank, n, device)
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses: List[float] = []
    for step in range(STEPS):
        x, y = batch(step % 2, slice(0, BATCH), device)
        parts: List[torch.Tensor] = []
        schedule.step(*([x] if rank == 0 else []), target=y if rank == n - 1 else None, losses=parts)
        optimizer.step()
        optimizer.zero_grad()
        total = torch.stack(parts).mean().detach() if rank == n - 1 else torch.zeros((), device=device)
        dist.broadcast(total, n - 1)
        losses.append(total.item())
    return losses


def graph_step(rank: int, n: int, device: torch.device) -> List[float]:
    """A whole step, its collectives included, captured once and replayed."""
    net = model().to(device)
    optimizer = sgd(net)
    x, y = batch(0, share(rank, n), device)
    total = torch.zeros((), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        works = [dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, async_op=True) for p in net.parameters()]
        for work in works:
            work.wait()
        optimizer.step()
        total.copy_(loss.detach())
        dist.all_reduce(total, op=dist.ReduceOp.AVG)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    losses = []
    for i in range(STEPS):
        for into, new in zip((x, y), batch(i % 2, share(rank, n), device)):
            into.copy_(new)
        captured.replay()
        losses.append(total.item())
    return losses


def graph_step_alone(n: int, device: torch.device) -> List[float]:
    steps = [0] * WARM_UP + STEPS_ALONE
    return in_shares(model().to(device), n, device, steps, lambda name, of_ranks: sum(of_ranks) / n)[WARM_UP:]


# Largest difference of a loss to that with nccl, relative to it.
WAYS = {
    ddp: 1e-5, ddp_hook: 1e-5, amp: 5e-4, fsdp2: 1e-5, fsdp2_bfloat16: 2e-2, tensor_parallel: 1e-5,
    tensor_parallel_compiled: 1e-5, pipeline: 1e-5, graph_step: 1e-5,
}  # fmt: skip
if TYPE != "cuda":
    del WAYS[graph_step]  # SYCL's graphs have no part in calls
if cuda_world.PLAYED:
    del WAYS[tensor_parallel_compiled]  # there is no compiler for it
# What one process does otherwise than from the whole batch: other types on the way, gradients divided by more, warm-up.
ALONE = {ddp_hook: ddp_hook_alone, fsdp2_bfloat16: fsdp2_bfloat16_alone, graph_step: graph_step_alone}


def reference_alone(way: Callable, n: int, device: torch.device) -> List[float]:
    return ALONE[way](n, device) if way in ALONE else alone(device, way is amp)


def nccl_shares() -> bool:
    """Whether it takes ranks that share a GPU."""
    return os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1" and torch.cuda.nccl.version() >= (2, 30)


def compare(rank: int, n: int, store: dist.Store, way: Callable) -> str:
    with_nccl = TYPE == "cuda" and dist.is_nccl_available() and (torch.cuda.device_count() >= n or nccl_shares())
    ours = cuda_world.on_each(["tutti"], way, rank, n, store)[0]
    assert all(loss == loss for loss in ours) and ours[-2] < ours[0], f"nothing is learnt: {ours}"
    device = calls.use_device_of(rank)
    # Products of other shapes are rounded otherwise; those of shares have the ranks' shapes, on other streams.
    tolerance = max(WAYS[way], 1e-3) if way in ALONE else 100 * WAYS[way]
    references = {"one process": (reference_alone(way, n, device), tolerance)}
    if with_nccl:
        references["nccl"] = (cuda_world.on_each(["nccl"], way, rank, n, store)[0], WAYS[way])
    for name, (want, tolerance) in references.items():
        worst = max(abs(a - b) / abs(b) for a, b in zip(ours, want))
        assert worst <= tolerance, f"losses differ by {worst:.3g} from those of {name}: {ours} and {want}"
    return " and ".join(references)


class Training(ranks.OnRanks):
    n, options = 2, {"backend": None, "timeout": 180.0}


def case(way: Callable) -> Callable:
    def test(self: Training) -> None:
        found = self.ranks.run(compare, way)[0]
        print(f"{way.__name__}: compared with {found}", flush=True)

    test.__doc__ = way.__doc__
    return test


for way in WAYS:
    setattr(Training, f"test_{way.__name__}", case(way))

if __name__ == "__main__":
    cuda_world.require_device()
    unittest.main(warnings="ignore")
