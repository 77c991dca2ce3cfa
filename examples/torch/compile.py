# SPDX-License-Identifier: BSD-3-Clause
"""Functional collectives inside torch.compile: each function is one graph with its collectives in it (fullgraph=True
refuses a break, and the counters of dynamo are read), compiled by inductor. The same arithmetic on all ranks' inputs in
one process is the reference. Inductor needs a C++ compiler."""

from __future__ import annotations

from typing import Callable, List

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import mse_loss

from example import Job, main, random

ROUNDING = 1e-6


def compiled(function: Callable) -> Callable:
    torch._dynamo.reset()
    counters.clear()
    return torch.compile(function, backend="inductor", fullgraph=True)


def assert_one_graph() -> None:
    assert counters["stats"]["unique_graphs"] == 1, dict(counters["stats"])
    assert not counters["graph_break"], dict(counters["graph_break"])


def input_of(rank: int, world: int) -> torch.Tensor:
    return random(rank, 2 * world, 3)


# ---- the cases ----
def collectives(job: Job) -> None:
    """All of them in one graph, with arithmetic before and after."""
    world, group = job.world, dist.group.WORLD

    def everything(x: torch.Tensor) -> List[torch.Tensor]:
        y = torch.relu(x) + 1
        summed = funcol.all_reduce(y, "sum", group)
        averaged = funcol.all_reduce(y, "avg", group)
        greatest = funcol.all_reduce(y, "max", group)
        gathered = funcol.all_gather_tensor(y * 2, 0, group)
        scattered = funcol.reduce_scatter_tensor(y, "sum", 0, group)
        turned = funcol.all_to_all_single(y, None, None, group)
        first = funcol.broadcast(y, 0, group)
        together = funcol.all_reduce_coalesced([y, y * 3], "sum", group)
        return [summed / 2, averaged, greatest, gathered - 1, scattered * 2, turned, first, *together]

    function = compiled(everything)
    got = function(input_of(job.rank, world))
    again = function(input_of(job.rank, world) + 1)
    assert_one_graph()

    def wanted(more: int) -> List[torch.Tensor]:
        ys = torch.stack([torch.relu(input_of(rank, world) + more) + 1 for rank in range(world)])
        total, mine = ys.sum(0), slice(2 * job.rank, 2 * job.rank + 2)
        turned = ys[:, mine].reshape(2 * world, 3)
        gathered = ys.reshape(-1, 3) * 2 - 1
        return [total / 2, total / world, ys.amax(0), gathered, total[mine] * 2, turned, ys[0], total, total * 3]

    job.check("collectives", got, wanted(0), ROUNDING)
    job.check("collectives, again", again, wanted(1), ROUNDING)


def in_place(job: Job) -> None:
    """The calls of torch.distributed itself: dynamo turns them into functional ones."""

    def function(x: torch.Tensor) -> List[torch.Tensor]:
        summed = x * 2
        dist.all_reduce(summed)
        gathered = torch.empty(job.world * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(gathered, x)
        return [summed + 1, gathered]

    got = compiled(function)(input_of(job.rank, job.world))
    assert_one_graph()
    everyone = torch.stack([input_of(rank, job.world) for rank in range(job.world)])
    job.check("in place", got, [(everyone * 2).sum(0) + 1, everyone.reshape(-1, 3)], ROUNDING)


def with_gradient(job: Job) -> None:
    """Forward and backward pass: the gradient of gathering is scattering, and the other way round."""
    world, group = job.world, dist.group.WORLD

    def function(x: torch.Tensor) -> torch.Tensor:
        gathered = funcol.all_gather_tensor_autograd(torch.sin(x), 0, group)
        return funcol.reduce_scatter_tensor_autograd(gathered * gathered, "sum", 0, group)

    x = input_of(job.rank, world).requires_grad_()
    got = compiled(function)(x)
    (got * got).sum().backward()
    assert_one_graph()
    inputs = [input_of(rank, world).requires_grad_() for rank in range(world)]
    rows = torch.cat([torch.sin(other) for other in inputs])
    want = rows * rows * world
    (want * want).sum().backward()
    job.check("with gradient", [got, x.grad], [want.chunk(world)[job.rank], inputs[job.rank].grad], ROUNDING)


def tensor_parallel(job: Job) -> None:
    """A model under tensor parallelism, compiled as a whole."""

    def net() -> nn.Sequential:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    mesh = init_device_mesh("cpu", (job.world,))
    split, single = parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}), net()
    inputs, targets = random(1, 4, 8), random(2, 4, 8)
    got = compiled(split)(inputs)
    mse_loss(got, targets).backward()
    assert_one_graph()
    want = single(inputs)
    mse_loss(want, targets).backward()
    gradients = [p.grad.full_tensor() for p in split.parameters()]
    job.check("tensor parallel", [got, *gradients], [want, *(p.grad for p in single.parameters())], ROUNDING)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


def layers_under_fsdp2(job: Job) -> None:
    """The common way with FSDP2: each layer compiled by itself, gathering and scattering between them."""

    def net() -> nn.Sequential:
        torch.manual_seed(1)
        return nn.Sequential(Layer(), Layer())

    torch._dynamo.reset()
    counters.clear()
    model, single = net(), net()
    for layer in model:
        layer.compile(backend="inductor", fullgraph=True)
        fully_shard(layer)
    fully_shard(model)
    for rank in range(job.world):
        (mse_loss(single(random(rank, 4, 8)), random(10 + rank, 4, 8)) / job.world).backward()
    mse_loss(model(random(job.rank, 4, 8)), random(10 + job.rank, 4, 8)).backward()
    assert counters["stats"]["unique_graphs"] > 0 and not counters["graph_break"]
    gradients = [p.grad.full_tensor() for p in model.parameters()]
    job.check("layers under FSDP2", gradients, [p.grad for p in single.parameters()], ROUNDING)


CASES = {
    "functional collectives": collectives,
    "torch.distributed": in_place,
    "autograd": with_gradient,
    "tensor parallel": tensor_parallel,
    "FSDP2": layers_under_fsdp2,
}

if __name__ == "__main__":
    main(CASES)
