# SPDX-License-Identifier: BSD-3-Clause
"""Times of training steps of models of three sizes, as people run them: under DistributedDataParallel and FSDP2, tensor
parallel, and as a pipeline; one model a peer, from the same seed on the same data, and one that runs alone, without
communication: what a step takes beyond that is exposed. Gradients have to be those of one process that learns from the
data of all ranks, else the time is that of a wrong result."""

from __future__ import annotations

import argparse
import contextlib
import math
from dataclasses import dataclass
from typing import Callable

import torch
import torch.distributed as dist
from torch import nn

from . import models
from .cells import Clock, interleave
from .models import Size

CHECKED = 2  # batches
APART = 1e-3  # parts of a gradient's norm; sums in another order are 1e-6 apart, products in tensor cores 1e-4
MICROBATCHES = 4


@dataclass(frozen=True)
class World:
    rank: int
    n: int
    device: torch.device
    size: Size


@dataclass
class Trained:
    """A model of this rank, and how it learns from a batch: `learn` leaves the gradients of its mean loss."""

    model: nn.Module
    learn: Callable[[torch.Tensor], None]


def learn_whole(model: nn.Module) -> Trained:
    def learn(words: torch.Tensor) -> None:
        models.loss_of(model(words), words).backward()

    return Trained(model, learn)


def mesh_of(group: dist.ProcessGroup, device: torch.device):
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh.from_group(group, device.type)


def alone(group, world: World) -> Trained:
    return learn_whole(models.make_model(world.size, world.device))


def under_ddp(group: dist.ProcessGroup, world: World) -> Trained:
    devices = [world.device] if world.device.type == "cuda" else None
    model = models.make_model(world.size, world.device)
    return learn_whole(nn.parallel.DistributedDataParallel(model, devices, process_group=group))


def under_own_ddp(group: dist.ProcessGroup, world: World) -> Trained:
    import tutti_torch

    trained = under_ddp(group, world)
    tutti_torch.average_gradients(trained.model)
    return trained


def under_fsdp2(group: dist.ProcessGroup, world: World) -> Trained:
    from torch.distributed.fsdp import fully_shard

    model, mesh = models.make_model(world.size, world.device), mesh_of(group, world.device)
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh)
    return learn_whole(fully_shard(model, mesh=mesh))


def tensor_parallel(group: dist.ProcessGroup, world: World) -> Trained:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, mesh = models.make_model(world.size, world.device), mesh_of(group, world.device)
    plan = {"heads": ColwiseParallel, "joined": RowwiseParallel, "up": ColwiseParallel, "down": RowwiseParallel}
    for block in model.blocks.values():
        parallelize_module(block, mesh, {name: style() for name, style in plan.items()})
    return learn_whole(model)


def pipeline(group: dist.ProcessGroup, world: World) -> Trained:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    stage = models.stage_of(world.size, world.device, world.rank, world.n)
    part = PipelineStage(stage, world.rank, world.n, world.device, group=group)
    schedule = Schedule1F1B(part, MICROBATCHES, loss_fn=models.loss_of)
    is_last = world.rank == world.n - 1

    def learn(words: torch.Tensor) -> None:
        given = (words,) if world.rank == 0 else ()
        schedule.step(*given, **({"target": words, "losses": []} if is_last else {}))

    return Trained(stage, learn)


@dataclass(frozen=True)
class Way:
    title: str
    wrap: Callable[[dist.ProcessGroup, World], Trained]
    each_its_own: bool  # each rank learns from a batch of its own, else all from the first one's
    has_alone: bool  # the same work without communication is a whole model's


WAYS = {
    "ddp": Way("DDP", under_ddp, True, True),
    "fsdp2": Way("FSDP2", under_fsdp2, True, True),
    "tp": Way("tensor parallel", tensor_parallel, False, False),
    "pipeline": Way("pipeline", pipeline, False, False),
}


def batch_of(way: Way, world: World, step: int = 0) -> torch.Tensor:
    return models.words_of(world.size, [world.rank if way.each_its_own else 0], world.device, step)


# ---- checking ----


def gradients_alone(way: Way, world: World) -> list[dict[str, torch.Tensor]]:
    """By name, for each checked batch: the gradients of one process on the data of all ranks that have their own. No
    library has a part in them."""
    trained, found = learn_whole(models.make_model(world.size, world.device)), []
    for step in range(CHECKED):
        trained.model.zero_grad()
        ranks = range(world.n) if way.each_its_own else [0]
        for rank in ranks:
            trained.learn(models.words_of(world.size, [rank], world.device, step))
        found.append({name: p.grad / len(ranks) for name, p in trained.model.named_parameters()})
        trained.model.zero_grad(set_to_none=True)
    return found


def apart(model: nn.Module, expected: dict[str, torch.Tensor]) -> float:
    """The greatest distance of a parameter's gradient from the expected one, as a part of that."""
    distances = []
    for name, parameter in model.named_parameters():
        grad, wanted = parameter.grad, expected[name.removeprefix("module.")]
        if grad is None:
            return math.inf
        whole = grad.full_tensor() if hasattr(grad, "full_tensor") else grad
        distances.append(float((whole - wanted).norm() / wanted.norm()))
    return max(math.inf if math.isnan(distance) else distance for distance in distances)


def checked(
    clock: Clock,
    make: Callable[[], Trained],
    expected: list[dict[str, torch.Tensor]],
    way: Way,
    world: World,
) -> tuple[Trained | None, str]:
    """The model, after it was seen to have the right gradients on all ranks; else None and the reason."""
    reason, trained, distances = "", None, [0.0] * len(expected)
    try:
        trained = make()
        for step, gradients in enumerate(expected):
            trained.model.zero_grad()
            trained.learn(batch_of(way, world, step))
            distances[step] = apart(trained.model, gradients)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    failed, *distances = clock.most([float(bool(reason)), *distances])
    if failed:
        return None, reason or "another rank could not"
    wrong = next((i for i, distance in enumerate(distances) if not distance < APART), None)
    if wrong is not None:
        return None, f"wrong gradients: of batch {wrong + 1} by {distances[wrong]:.2g} of what one process has"
    return trained, ""


# ---- measuring ----


def stepper(trained: Trained, words: torch.Tensor, device: torch.device) -> Callable[[], None]:
    """A step as people run it: on GPUs in bfloat16, with an optimizer of one launch."""
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.AdamW(trained.model.parameters(), lr=1e-5, fused=on_gpu or None)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16) if on_gpu else contextlib.nullcontext():
            trained.learn(words)
        optimizer.step()

    if on_gpu:
        step.settle = torch.cuda.synchronize
    return step


def steps_of(clock: Clock, peers: list, way: Way, world: World) -> tuple[dict, dict]:
    """By peer: the steps that can be measured, and the reasons of the others."""
    expected, steps, reasons = gradients_alone(way, world), {}, {}
    makers = {peer.name: (peer.group, way.wrap) for peer in peers if hasattr(peer, "group")}
    if way.has_alone:
        if way.wrap is under_ddp and "tutti" in makers:
            makers["tutti, own buckets"] = (makers["tutti"][0], under_own_ddp)
        steps["alone"] = stepper(alone(None, world), batch_of(way, world), world.device)
    for name, (group, wrap) in makers.items():
        trained, reason = checked(clock, lambda: wrap(group, world), expected, way, world)
        if reason:
            reasons[name] = {"reason": reason}
        else:
            steps[name] = stepper(trained, batch_of(way, world), world.device)
    for step in steps.values():
        for _ in range(3):
            step()
    return steps, reasons


def measure_training(
    clock: Clock, peers: list, rank: int, n: int, seconds: float, device: torch.device, chosen: argparse.Namespace
) -> dict:
    """{"ddp medium": {peer: times}, ...}; a peer that can not, or that learns otherwise, has a reason."""
    from .profiling import profiled

    result: dict[str, dict] = {}
    for name in chosen.steps:
        for model in chosen.models:
            world = World(rank, n, device, models.SIZES[device.type][model])
            steps, reasons = steps_of(clock, peers, WAYS[name], world)
            share = seconds / len(chosen.steps) / len(chosen.models)
            found = result[f"{name} {model}"] = {**interleave(clock, steps, share, share / 25), **reasons}
            if chosen.profile and device.type == "cuda":
                for peer, step in steps.items():
                    found[peer]["profile"] = profiled(clock, step, rank, f"{chosen.profile}/{name}_{model}_{peer}")
    return result
