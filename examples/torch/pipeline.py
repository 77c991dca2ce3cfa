# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline parallelism: each rank holds some layers of a model, and microbatches travel from rank to rank. One training
step under each schedule (GPipe, 1F1B, interleaved, zero bubble) is compared with the same step in one process."""

from __future__ import annotations

from typing import List, Type

import torch
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from torch.nn.functional import mse_loss

from example import Job, main, random

WIDTH, ROWS = 12, 2  # ROWS: of a microbatch
ROUNDING = 1e-6


class Layer(nn.Module):
    def __init__(self, index: int):
        super().__init__()
        torch.manual_seed(index)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x))


def one_process(layers: int, inputs: torch.Tensor, targets: torch.Tensor, n_micro: int):
    """The whole model, the output and the losses of the microbatches; gradients are the mean over these."""
    model = nn.Sequential(*(Layer(i) for i in range(layers)))
    outputs = [model(micro) for micro in inputs.chunk(n_micro)]
    losses = [mse_loss(output, target) for output, target in zip(outputs, targets.chunk(n_micro))]
    (sum(losses) / n_micro).backward()
    return model, torch.cat(outputs), losses


def compare(job: Job, schedule_class: Type, mine: List[int]) -> None:
    """One step, with this rank holding the layers `mine`."""
    layers, n_micro = job.world * len(mine), 2 * job.world
    inputs, targets = random(1, n_micro * ROWS, WIDTH), random(2, n_micro * ROWS, WIDTH)
    stages = [PipelineStage(Layer(i), i, layers, torch.device("cpu")) for i in mine]
    several = len(mine) > 1
    schedule = schedule_class(stages if several else stages[0], n_microbatches=n_micro, loss_fn=mse_loss)
    first, last = 0 in mine, layers - 1 in mine
    losses: List[torch.Tensor] = []
    output = schedule.step(*[inputs] * first, target=targets if last else None, losses=losses if last else None)

    name = schedule_class.__name__
    model, want_output, want_losses = one_process(layers, inputs, targets, n_micro)
    if last:
        job.check(f"{name}: output", output, want_output, ROUNDING)
        job.check(f"{name}: losses", losses, want_losses, ROUNDING)
    got = [p.grad for stage in stages for p in stage.submod.parameters()]
    want = [p.grad for i in mine for p in model[i].parameters()]
    job.check(f"{name}: gradients", got, want, ROUNDING)


def gpipe(job: Job) -> None:
    """All microbatches forward, then all backward."""
    compare(job, ScheduleGPipe, [job.rank])


def one_forward_one_backward(job: Job) -> None:
    """As soon as a microbatch is through, its backward pass: forward and backward alternate."""
    compare(job, Schedule1F1B, [job.rank])


def looped(job: Job) -> None:
    """Two layers a rank, `world` apart: microbatches pass each rank twice."""
    compare(job, ScheduleLoopedBFS, [job.rank, job.rank + job.world])


def interleaved(job: Job) -> None:
    compare(job, ScheduleInterleaved1F1B, [job.rank, job.rank + job.world])


def zero_bubble(job: Job) -> None:
    """Gradients of inputs first, those of weights when there is time."""
    compare(job, ScheduleInterleavedZeroBubble, [job.rank, job.rank + job.world])


def zero_bubble_v(job: Job) -> None:
    """The layers go down the ranks and up again: rank 0 holds the first and the last."""
    compare(job, ScheduleZBVZeroBubble, [job.rank, 2 * job.world - 1 - job.rank])


CASES = {
    "GPipe": gpipe,
    "1F1B": one_forward_one_backward,
    "looped": looped,
    "interleaved": interleaved,
    "zero bubble": zero_bubble,
    "zero bubble, V": zero_bubble_v,
}

if __name__ == "__main__":
    main(CASES)
