# SPDX-License-Identifier: BSD-3-Clause
"""Step times of a model of 21 million parameters, on GPUs 134 million, under DistributedDataParallel and FSDP2, one
model a peer, from the same seed on the same data: the losses have to agree, else the time is that of a wrong result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import torch
import torch.distributed as dist
from torch import nn

from .cells import Clock, interleave


@dataclass(frozen=True)
class Size:
    """Of the model, and of what each rank learns from in a step."""

    width: int
    layers: int
    batch: int


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


def stepper(model: nn.Module, rank: int, device: torch.device) -> Callable[[], torch.Tensor]:
    optimizer, size = torch.optim.SGD(model.parameters(), lr=1.0), SIZES[device.type]
    generator = torch.Generator().manual_seed(100 + rank)
    inputs, targets = (torch.randn(size.batch, size.width, generator=generator).to(device) for _ in range(2))

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    if device.type == "cuda":
        step.settle = torch.cuda.synchronize
    return step


def losses_of(clock: Clock, step: Callable[[], torch.Tensor]) -> tuple[list[float], str]:
    """The losses of three steps on all ranks; or why they could not be made."""
    losses, reason = [], ""
    try:
        losses = [float(step()) for _ in range(3)]
    except (RuntimeError, NotImplementedError, ValueError) as error:
        reason = str(error).splitlines()[0]
    failed = clock.most([float(bool(reason))])[0] > 0
    return losses, (reason or "another rank could not") if failed else ""


def measure_training(clock: Clock, peers: list, rank: int, seconds: float, device: torch.device) -> dict:
    """{"ddp": {peer: times}, "fsdp2": {peer: times}}; a peer that can not, or that learns otherwise, has a reason."""
    result: dict[str, dict] = {}
    expected: list[float] | None = None
    for name, wrap in {"ddp": under_ddp, "fsdp2": under_fsdp2}.items():
        steps, result[name] = {}, {}
        for peer in peers:
            if not hasattr(peer, "group"):
                continue
            step = stepper(wrap(peer.group, device), rank, device)
            losses, reason = losses_of(clock, step)
            expected = expected or losses
            if not reason:
                apart = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
                reason = "" if clock.most([apart])[0] < 1e-3 else "wrong gradients"
            if reason:
                result[name][peer.name] = {"reason": reason}
            else:
                steps[peer.name] = step
        if steps:
            result[name].update(interleave(clock, steps, seconds / 2, 0.2))
    return result
