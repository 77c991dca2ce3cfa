# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallelism: the weights of a transformer block are split by columns and rows over the ranks, attention by
heads; with sequence parallelism also the activations between them, by position. Outputs, gradients and the loss over
split classes are compared with the same block in one process."""

from __future__ import annotations

from typing import Dict, List

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, gelu, mse_loss

from example import Job, main, random

HEADS, HEAD, POSITIONS, BATCH, CLASSES = 4, 8, 8, 2, 16
WIDTH = HEADS * HEAD
ROUNDING = 2e-6


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Each rank sees its own heads only: their number follows from the width of its columns."""
        query, key, value = (
            layer(x).view(BATCH, POSITIONS, -1, HEAD).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        weights = torch.softmax(query @ key.transpose(2, 3) / HEAD**0.5, dim=-1)
        return self.out((weights @ value).transpose(1, 2).reshape(BATCH, POSITIONS, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


COLUMNS_AND_ROWS: Dict[str, ParallelStyle] = {
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(),
    "mlp.up": ColwiseParallel(),
    "mlp.down": RowwiseParallel(),
}

# Between the layers each rank holds some of the positions; they are gathered before a product and scattered after.
BY_POSITION: Dict[str, ParallelStyle] = {
    **COLUMNS_AND_ROWS,
    "norms.0": SequenceParallel(),
    "norms.1": SequenceParallel(),
    "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
    "attention.out": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "mlp": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
    "mlp.down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
}


def whole(tensors) -> List[torch.Tensor]:
    return [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]


def compare(job: Job, name: str, block: nn.Module, by_position: bool) -> None:
    """One forward and backward pass against the block in one process."""
    mesh = init_device_mesh("cpu", (job.world,))
    inputs, targets, single = random(1, BATCH, POSITIONS, WIDTH), random(2, BATCH, POSITIONS, WIDTH), Block()
    want = single(inputs)
    mse_loss(want, targets).backward()
    got = block(DTensor.from_local(inputs, mesh).redistribute(placements=[Shard(1)]) if by_position else inputs)
    got = got.redistribute(placements=[Replicate()]).to_local() if by_position else got
    mse_loss(got, targets).backward()
    job.check(f"{name}: output", got, want, ROUNDING)
    gradients = whole(p.grad for p in block.parameters())
    job.check(f"{name}: gradients", gradients, [p.grad for p in single.parameters()], ROUNDING)


# ---- the cases ----
def tensor_parallel(job: Job) -> None:
    assert HEADS % job.world == 0, f"{HEADS} heads are not to be had by {job.world} ranks: take 1, 2 or 4"
    block = parallelize_module(Block(), init_device_mesh("cpu", (job.world,)), COLUMNS_AND_ROWS)
    assert block.mlp.up.weight.to_local().shape == (4 * WIDTH // job.world, WIDTH), "each rank holds its rows"
    compare(job, "columns and rows", block, by_position=False)


def sequence_parallel(job: Job) -> None:
    block = parallelize_module(Block(), init_device_mesh("cpu", (job.world,)), BY_POSITION)
    compare(job, "by position", block, by_position=True)


def split_loss(job: Job) -> None:
    """Classes over the ranks: the softmax of the loss runs over all of them without gathering the logits."""
    mesh = init_device_mesh("cpu", (job.world,))
    torch.manual_seed(1)
    single = nn.Linear(WIDTH, CLASSES)
    torch.manual_seed(1)
    split = parallelize_module(nn.Linear(WIDTH, CLASSES), mesh, ColwiseParallel(use_local_output=False))
    inputs, labels = random(3, 6, WIDTH), torch.arange(6) * 7 % CLASSES
    want = cross_entropy(single(inputs), labels)
    want.backward()
    with loss_parallel():
        got = cross_entropy(split(inputs), labels)
        got.backward()
    job.check("split loss", got.full_tensor() if isinstance(got, DTensor) else got, want, ROUNDING)
    gradients = whole(p.grad for p in split.parameters())
    job.check("split loss: gradients", gradients, [p.grad for p in single.parameters()], ROUNDING)


def split_embedding(job: Job) -> None:
    """Words over the ranks: each looks up its own, and the sum of what they found is scattered by position."""
    mesh = init_device_mesh("cpu", (job.world,))
    torch.manual_seed(1)
    single = nn.Embedding(CLASSES, WIDTH)
    torch.manual_seed(1)
    plan = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False)
    split = parallelize_module(nn.Embedding(CLASSES, WIDTH), mesh, plan)
    words = torch.arange(BATCH * POSITIONS).view(BATCH, POSITIONS) * 5 % CLASSES
    got = split(words)
    assert got.placements == (Shard(1),)
    job.check("split embedding", got.full_tensor(), single(words))


def prepare_output(job: Job) -> None:
    """What a module returns is spread as the next one wants it."""
    mesh = init_device_mesh("cpu", (job.world,))
    plan = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
    module = parallelize_module(nn.Identity(), mesh, plan)
    whole_input = random(4, 2 * job.world, 3)
    job.check("prepared output", module(whole_input), whole_input.chunk(job.world)[job.rank])


CASES = {
    "columns and rows": tensor_parallel,
    "sequence": sequence_parallel,
    "loss_parallel": split_loss,
    "embedding": split_embedding,
    "PrepareModuleOutput": prepare_output,
}

if __name__ == "__main__":
    main(CASES)
