# SPDX-License-Identifier: BSD-3-Clause
"""Step times of a model of 21 million parameters under DistributedDataParallel and FSDP2, one model a peer, from the
same seed on the same data: the losses have to agree, else the time of the peer is that of a wrong result."""

from __future__ import annotations

from typing import Callable

import torch
import torch.distributed as dist
from torch import nn

from .cells import Clock, interleave

WIDTH, LAYERS, BATCH = 2048, 5, 16


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(*(m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH), nn.GELU())))


def under_ddp(group: dist.ProcessGroup) -> nn.Module:
    return nn.parallel.DistributedDataParallel(make_model(), process_group=group)


def under_fsdp2(group: dist.ProcessGroup) -> nn.Module:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = make_model(), DeviceMesh.from_group(group, "cpu")
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def stepper(model: nn.Module, rank: int) -> Callable[[], torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    generator = torch.Generator().manual_seed(100 + rank)
    inputs, targets = (torch.randn(BATCH, WIDTH, generator=generator) for _ in range(2))

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

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


def measure_training(clock: Clock, peers: list, rank: int, seconds: float) -> dict:
    """{"ddp": {peer: times}, "fsdp2": {peer: times}}; a peer that can not, or that learns otherwise, has a reason."""
    result: dict[str, dict] = {}
    expected: list[float] | None = None
    for name, wrap in {"ddp": under_ddp, "fsdp2": under_fsdp2}.items():
        steps, result[name] = {}, {}
        for peer in peers:
            if not hasattr(peer, "group"):
                continue
            step = stepper(wrap(peer.group), rank)
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
