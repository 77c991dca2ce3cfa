# SPDX-License-Identifier: BSD-3-Clause
"""Digits, learned by replica groups that may be killed at any time and come back:

    tutti chaos -g 3 --every 3s --for 60s -- python examples/torch/train_ft.py

Each group is one process that holds the whole model. A step counts when it is committed; who comes back receives the
state of the others, and all go on together. At the end each group tells the accuracy on images that were held out.
The API is torchft's: with `from torchft import ...` in place of tutti_torch.ft, and ProcessGroupGloo, the same runs
there, but for what torchft has not: with --survive the step in which a group dies counts, with what the others gave;
with --whole they take the images of that group, too, so that a step is always over as many (docs/no_lost_step.md)."""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

import digits
from tutti_torch.ft import DistributedDataParallel, GlobalBatch, Manager, Optimizer, ProcessGroupTutti

BATCH = 64  # each group's


def model(hidden: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(digits.PIXELS, hidden), nn.Tanh(), nn.Linear(hidden, digits.CLASSES))


class Stream:
    """Endless batches of a group: the groups' batches of a step have no image in common."""

    def __init__(self, images: digits.Digits, group: int, groups: int):
        self.images, self.group, self.groups = images, group, groups
        self.epoch, self.order = -1, []

    def batch(self, step: int):
        n = len(self.images.labels)
        first = (step * self.groups + self.group) * BATCH
        epoch, at = divmod(first, n - n % BATCH)
        if epoch != self.epoch:
            self.epoch, self.order = epoch, digits.shuffle(n, epoch)
        rows = self.order[at : at + BATCH]
        return self.images.pixels[rows], self.images.labels[rows]

    def of_all_groups(self, step: int, rows: torch.Tensor):
        """Some images, by their numbers in the step."""
        n, size = len(self.images.labels), self.groups * BATCH
        epoch, at = divmod(step, n // size)
        if epoch != self.epoch:
            self.epoch, self.order = epoch, torch.as_tensor(digits.shuffle(n, epoch))
        chosen = self.order[at * size + rows]
        return self.images.pixels[chosen], self.images.labels[chosen]


def train(options: argparse.Namespace, images: digits.Digits) -> nn.Module:
    group, groups = int(os.environ.get("REPLICA_GROUP_ID", 0)), int(os.environ.get("NUM_REPLICA_GROUPS", 1))
    net = model(options.hidden)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def load(state):
        net.load_state_dict(state["model"])
        sgd.load_state_dict(state["optimizer"])

    pixels, labels = images.pixels[:BATCH], images.labels[:BATCH]
    cross_entropy(net(pixels), labels).backward()  # a process's first pass is slow: not while the others wait for it
    net.zero_grad()
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # this group's ranks
    manager = Manager(
        pg=ProcessGroupTutti(timeout=timedelta(seconds=10)),
        load_state_dict=load,
        state_dict=lambda: {"model": net.state_dict(), "optimizer": sgd.state_dict()},
        min_replica_size=1,
        replica_id=f"digits_{group}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        **({"survive": True} if options.survive or options.whole else {}),
    )
    parallel, optimizer = DistributedDataParallel(manager, net), Optimizer(manager, sgd)
    stream = Stream(images, group, groups)
    if options.whole:
        batch = GlobalBatch(manager, net, groups * BATCH)
    told = open(os.environ["CHAOS_STEPS"], "a") if "CHAOS_STEPS" in os.environ else None  # for tutti chaos
    while manager.current_step() < options.steps:
        step, n = manager.current_step(), BATCH
        time.sleep(options.pace)
        optimizer.zero_grad()  # asks who takes part
        if options.whole:
            n = 0
            for rows in batch:  # once; and once more, when a group dies
                n += len(rows)
                pixels, labels = stream.of_all_groups(step, rows)
                (cross_entropy(parallel(pixels), labels, reduction="sum") / (groups * BATCH)).backward()
        else:
            pixels, labels = stream.batch(step)
            cross_entropy(parallel(pixels), labels).backward()
        contributes = manager.is_participating()
        optimizer.step()  # if all groups could
        if told and contributes and n and manager.current_step() > step:
            print(time.monotonic_ns(), step + 1, n, manager.num_participants(), file=told, flush=True)
    print(f"group {group}: step {manager.current_step()}, {manager.batches_committed()} batches", flush=True)
    manager.shutdown()
    return net


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--survive", action="store_true", help="no step is lost when a group dies")
    parser.add_argument("--whole", action="store_true", help="nor are the images of that group")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that each step takes longer")
    options = parser.parse_args()
    images, held_out = digits.load()
    net = train(options, images)
    with torch.no_grad():
        accuracy = 100.0 * (net(held_out.pixels).argmax(dim=1) == held_out.labels).float().mean().item()
    print(f"accuracy {accuracy:.1f} %", flush=True)
    return 0 if accuracy >= 95.0 else 1


if __name__ == "__main__":
    sys.exit(main())
