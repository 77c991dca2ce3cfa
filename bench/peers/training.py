# SPDX-License-Identifier: BSD-3-Clause
"""Step times of a model of 21 million parameters, on GPUs 134 million, under DistributedDataParallel and FSDP2, one
model a peer, from the same seed on the same data. The first steps' gradients have to be those of one process that
learns from the data of all ranks, else the time is that of a wrong result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from .cells import Clock, interleave


@dataclass(frozen=True)
class Size:
    """The size of the model, and of what each rank learns from in a step."""

    width: int
    layers: int
    batch: int


CHECKED = 3  # steps
APART = 1e-3  # sums in another order are 1e-6 apart
SIZES = {"cpu": Size(2048, 5, 16), "cuda": Size(4096, 8, 256)}


def make_model(device: torch.device) -> nn.Module:
    size = SIZES[device.type]
    torch.manual_seed(1)
    layers = (m for _ in range(size.layers) for m in (nn.Linear(size.width, size.width), nn.GELU()))
    return nn.Sequential(*layers).to(device)


def under_ddp(group: dist.ProcessGroup, device: torch.device) -> nn.Module:
    devices = [device] if device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(make_model(device), devices, process_group=group)


def under_fsdp2(group: dist.ProcessGroup, device: torch.device) -> nn.Module:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = make_model(device), DeviceMesh.from_group(group, device.type)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def data_of(ranks: Sequence[int], device: torch.device) -> list[torch.Tensor]:
    """What these ranks learn from, one after the other: inputs and targets."""
    size, found = SIZES[device.type], []
    for rank in ranks:
        generator = torch.Generator().manual_seed(100 + rank)
        found.append([torch.randn(size.batch, size.width, generator=generator) for _ in range(2)])
    return [torch.cat(parts).to(device) for parts in zip(*found)]


def stepper(model: nn.Module, ranks: Sequence[int], device: torch.device) -> Callable[[], torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    inputs, targets = data_of(ranks, device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    if device.type == "cuda":
        step.settle = torch.cuda.synchronize
    return step


# ---- checking ----


def gradients_alone(n: int, device: torch.device) -> list[list[torch.Tensor]]:
    """The gradients of one process on the data of all ranks: no library has a part in them."""
    model = make_model(device)
    step, found = stepper(model, range(n), device), []
    for _ in range(CHECKED):
        step()
        found.append([parameter.grad for parameter in model.parameters()])
    return found


def apart(model: nn.Module, expected: list[torch.Tensor], rank: int, n: int) -> float:
    """The greatest distance of a parameter's gradient from the expected one, as a part of that; of a sharded one, of
    the rows that are this rank's."""
    distances = []
    for parameter, whole in zip(model.parameters(), expected):
        if parameter.grad is None:
            return math.inf
        grad = parameter.grad
        if hasattr(grad, "to_local"):
            grad, whole = grad.to_local(), whole.chunk(n)[rank]
        distances.append(float((grad - whole).norm() / whole.norm()))
    return max(math.inf if math.isnan(distance) else distance for distance in distances)


def checked(
    clock: Clock,
    make: Callable[[], nn.Module],
    expected: list[list[torch.Tensor]],
    rank: int,
    n: int,
    device: torch.device,
) -> tuple[Callable[[], torch.Tensor] | None, str]:
    """The step, after its first ones gave the right gradients on all ranks; else None and the reason."""
    reason, step, distances = "", None, [0.0] * len(expected)
    try:
        model = make()
        step = stepper(model, [rank], device)
        for i, gradients in enumerate(expected):
            step()
            distances[i] = apart(model, gradients, rank, n)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        reason = str(error).splitlines()[0]
    failed, *distances = clock.most([float(bool(reason)), *distances])
    if failed:
        return None, reason or "another rank could not"
    wrong = next((i for i, distance in enumerate(distances) if not distance < APART), None)
    if wrong is not None:
        return None, f"wrong gradients: in step {wrong + 1} by {distances[wrong]:.2g} of what one process has"
    return step, ""


def measure_training(clock: Clock, peers: list, rank: int, n: int, seconds: float, device: torch.device) -> dict:
    """{"ddp": {peer: times}, "fsdp2": {peer: times}}; a peer that can not, or that learns otherwise, has a reason."""
    result: dict[str, dict] = {}
    expected = gradients_alone(n, device)
    for name, wrap in {"ddp": under_ddp, "fsdp2": under_fsdp2}.items():
        steps, result[name] = {}, {}
        for peer in peers:
            if not hasattr(peer, "group"):
                continue
            step, reason = checked(clock, lambda: wrap(peer.group, device), expected, rank, n, device)
            if reason:
                result[name][peer.name] = {"reason": reason}
            else:
                steps[peer.name] = step
        if steps:
            result[name].update(interleave(clock, steps, seconds / 2, 0.2))
    return result
