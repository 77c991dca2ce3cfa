# SPDX-License-Identifier: BSD-3-Clause
"""One program for every kind of device: a two-layer network learns handwritten digits under DistributedDataParallel or
FSDP2, on CPUs, NVIDIA's or Intel's GPUs. The kind is one word of the command; streams and events are those of
torch.accelerator. While the network learns from one batch, a stream of its own brings the next one to the device.
    tutti run -n 4 -- python examples/torch/train_device.py --device cuda
    tutti run -n 4 -- python examples/torch/train_device.py --device xpu --spread fsdp2"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Iterator, List, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import digits
import example

MIN_ACCURACY = 90.0
Batch = Tuple[torch.Tensor, torch.Tensor]


class Ahead:
    """Batches on the device, brought one ahead. On CPUs they are there already."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = None if device.type == "cpu" else torch.Stream(device=device)

    def bring(self, batch: Batch) -> Tuple[Batch, torch.Event]:
        """The memory that it takes may be that of a batch which the current stream still learns from: so it waits."""
        event, current = torch.Event(self.device.type), torch.accelerator.current_stream()
        self.stream.wait_stream(current)
        torch.accelerator.set_stream(self.stream)
        try:
            brought = tuple(part.to(self.device, non_blocking=True) for part in batch)
            event.record(self.stream)
        finally:
            torch.accelerator.set_stream(current)
        return brought, event

    def of(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        if self.stream is None:
            yield from batches
            return
        next_one = None
        for batch in batches:
            now, next_one = next_one, self.bring(batch)
            if now:
                yield self.ready(*now)
        if next_one:
            yield self.ready(*next_one)

    def ready(self, batch: Batch, event: torch.Event) -> Batch:
        torch.accelerator.current_stream().wait_event(event)
        return batch


def shares(images: digits.Digits, order: List[int], size: int, rank: int, world: int) -> Iterator[Batch]:
    """This rank's part of each whole batch."""
    for first in range(0, len(order) - size + 1, size):
        mine = order[first + size * rank // world : first + size * (rank + 1) // world]
        yield images.pixels[mine], images.labels[mine]


def use_device(kind: str) -> torch.device:
    """Each rank has its own, as far as they go."""
    if kind == "cpu":
        return torch.device(kind)
    found = torch.accelerator.current_accelerator()
    if found is None or found.type != kind or not torch.accelerator.is_available():
        raise SystemExit(f"train_device: there is no device of kind {kind} here")
    index = int(os.environ.get("LOCAL_RANK", "0")) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    return torch.device(kind, index)


def spread(model: nn.Module, way: str, device: torch.device, world: int) -> nn.Module:
    if way == "ddp":
        return DistributedDataParallel(model, gradient_as_bucket_view=True)
    mesh = init_device_mesh(device.type, (world,))
    for layer in model.children():
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def accuracy(model: nn.Module, held_out: digits.Digits, device: torch.device, rank: int, world: int) -> float:
    n = len(held_out.labels)
    mine = slice(n * rank // world, n * (rank + 1) // world)
    with torch.no_grad():
        guesses = model(held_out.pixels[mine].to(device)).argmax(dim=1)
    right = (guesses == held_out.labels[mine].to(device)).sum()
    dist.all_reduce(right)
    return 100.0 * right.item() / n


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda", "xpu"), default="cpu")
    parser.add_argument("--spread", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    return parser.parse_args()


def main() -> int:
    options = read_arguments()
    images, held_out = digits.load()
    rank, world = example.start()
    device = use_device(options.device)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(digits.PIXELS, 64), nn.Tanh(), nn.Linear(64, digits.CLASSES)).to(device)
    model = spread(net, options.spread, device, world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ahead = Ahead(device)
    for epoch in range(options.epochs):
        order, total = digits.shuffle(len(images.labels), epoch), torch.zeros((), device=device)
        for pixels, labels in ahead.of(shares(images, order, options.batch, rank, world)):
            optimizer.zero_grad()
            loss = cross_entropy(model(pixels), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch + 1} loss {total.item() / world / (len(order) // options.batch):.4f}", flush=True)
    reached = accuracy(model, held_out, device, rank, world)
    if rank == 0:
        backend = dist.group.WORLD._get_backend(device).name()
        print(f"{world} ranks on {device.type}, {options.spread}, backend {backend}")
        print(f"accuracy {reached:.1f} %", flush=True)
    dist.destroy_process_group()
    return 0 if reached >= MIN_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
