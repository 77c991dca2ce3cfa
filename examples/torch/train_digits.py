# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training, whole, in PyTorch: a two-layer network learns handwritten digits under
DistributedDataParallel, where every rank holds all weights, then again under FSDP2 (fully_shard), where every rank
holds its part of each. Each time the loss curve is printed and the claims are checked: accuracy on images that were
held out, weights equal bit for bit on all ranks, and the curve and the weights of one process that trains alone on
the same batches, but for rounding.
    tutti run -n 4 -- python examples/torch/train_digits.py"""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import List

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import digits
import example

SEED = 1
MIN_ACCURACY = 95.0
# Summing a gradient in another order changes its last bits, and every step carries on the differences of those before
# it: over some 500 steps they grow to about 3e-7, of weights of size 1. An image left out of a batch changes 1e-2.
TOLERANCE = 1e-5


class Training:
    """The same training for one process or many: which rows of each batch are ours is all that differs."""

    def __init__(self, options: argparse.Namespace, images: digits.Digits, rank: int, world: int):
        self.options, self.images, self.rank, self.world = options, images, rank, world

    def model(self) -> nn.Sequential:
        torch.manual_seed(SEED)
        hidden = self.options.hidden
        return nn.Sequential(nn.Linear(digits.PIXELS, hidden), nn.Tanh(), nn.Linear(hidden, digits.CLASSES))

    def backward(self, model: nn.Module, batch: List[int], part: int, parts: int) -> torch.Tensor:
        """The scale makes the average of the ranks' gradients the mean over the batch, also where their shares differ
        by one image or are empty. Returns the sum of these images' losses."""
        mine = batch[len(batch) * part // parts : len(batch) * (part + 1) // parts]
        loss = cross_entropy(model(self.images.pixels[mine]), self.images.labels[mine], reduction="sum")
        (loss * (self.world / len(batch))).backward()
        return loss.detach()

    def step(self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: List[int]) -> torch.Tensor:
        optimizer.zero_grad()
        loss = self.backward(model, batch, self.rank, self.world)
        optimizer.step()
        return loss

    def run(self, model: nn.Module, show: bool = False) -> List[float]:
        """The loss of each epoch."""
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        curve: List[float] = []
        n, size = len(self.images.labels), self.options.batch
        for epoch in range(self.options.epochs):
            begin, order, loss = time.monotonic(), digits.shuffle(n, epoch), torch.zeros((), dtype=torch.float64)
            for first in range(0, n, size):
                loss += self.step(model, optimizer, order[first : first + size])
            if self.world > 1:
                dist.all_reduce(loss)
            curve.append(loss.item() / n)
            if show:
                show_epoch(epoch, curve, n / (time.monotonic() - begin))
        return curve


def show_epoch(epoch: int, curve: List[float], rate: float) -> None:
    """The bar is logarithmic: ten characters for a factor of ten above 0.001."""
    bar = "#" * max(1, round(10 * math.log10(max(curve[-1], 1e-4) / 0.001)))
    print(f"epoch {epoch + 1:2} loss {curve[-1]:.4f} {bar:32} {rate:6.0f} images/s", flush=True)


# ---- the claims; each prints on rank 0 and returns whether it holds, equally on all ranks ----
def check_accuracy(model: nn.Module, held_out: digits.Digits, rank: int, world: int) -> bool:
    n = len(held_out.labels)
    mine = slice(n * rank // world, n * (rank + 1) // world)
    with torch.no_grad():
        right = (model(held_out.pixels[mine]).argmax(dim=1) == held_out.labels[mine]).sum()
    dist.all_reduce(right)
    accuracy = 100.0 * right.item() / n
    if rank == 0:
        print(f"{right.item()} of {n} held-out images are right\naccuracy {accuracy:.1f} %", flush=True)
    return accuracy >= MIN_ACCURACY


def check_replicas(weights: torch.Tensor, rank: int, world: int) -> bool:
    """Every rank gets every rank's weights and counts the bits that differ from its own."""
    everyone = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(everyone, weights)
    different = sum((other.view(torch.int32) != weights.view(torch.int32)).sum() for other in everyone)
    dist.all_reduce(different)
    if rank == 0:
        verdict = "bit for bit equal" if different == 0 else f"{different.item()} DIFFERENCES"
        print(f"weights: {weights.numel()} values, {verdict} on {world} ranks", flush=True)
    return different.item() == 0


def check_single(weights: torch.Tensor, curve: List[float], alone: torch.Tensor, alone_curve: List[float]) -> bool:
    """Against the run of one process (on rank 0, the only one that needs to know)."""
    apart = (weights - alone).abs().max().item()
    curve_apart = max(abs(a - b) for a, b in zip(curve, alone_curve))
    holds = apart <= TOLERANCE and curve_apart <= TOLERANCE  # also False for NaN
    print(
        f"one process on the same batches: the weights differ by at most {apart:.1e}, the losses by {curve_apart:.1e}, "
        f"{'less' if holds else 'NOT less'} than {TOLERANCE:.0e}: {'rounding' if holds else 'WRONG'}",
        flush=True,
    )
    return holds


# ---- the two ways to spread the training ----
def under_ddp(model: nn.Module, world: int) -> nn.Module:
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def under_fsdp2(model: nn.Module, world: int) -> nn.Module:
    mesh = init_device_mesh("cpu", (world,))
    for layer in model.children():
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole_weights(model: nn.Module) -> torch.Tensor:
    """All weights in one row; under FSDP2 the parts are gathered."""
    weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([w.detach().flatten() for w in weights])


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    options = parser.parse_args()
    if min(options.epochs, options.batch, options.hidden) < 1:
        parser.error("epochs, batch and hidden are at least 1")
    return options


def main() -> int:
    options = read_arguments()
    images, held_out = digits.load()
    rank, world = example.start()
    training = Training(options, images, rank, world)
    alone, alone_curve = None, []
    if rank == 0:
        single = Training(options, images, 0, 1)
        alone = single.model()
        alone_curve = single.run(alone)
        count = whole_weights(alone).numel()
        sizes = f"{len(images.labels)} images ({len(held_out.labels)} held out), {count} weights"
        print(f"{world} ranks, {sizes}, backend {dist.get_backend()}", flush=True)
    holds = True
    for name, spread in {"DDP": under_ddp, "FSDP2 (fully_shard)": under_fsdp2}.items():
        if rank == 0:
            print(f"---- {name} ----", flush=True)
        model = spread(training.model(), world)
        curve = training.run(model, show=rank == 0)
        holds &= check_accuracy(model, held_out, rank, world)
        weights = whole_weights(model)
        holds &= check_replicas(weights, rank, world)
        if alone is not None:
            holds &= check_single(weights, curve, whole_weights(alone), alone_curve)
    verdict = torch.tensor(int(holds))
    dist.all_reduce(verdict, op=dist.ReduceOp.MIN)
    dist.destroy_process_group()
    if not verdict and rank == 0:
        print("train_digits: not all of this is as it must be", file=sys.stderr)
    return 0 if verdict else 1


if __name__ == "__main__":
    sys.exit(main())
