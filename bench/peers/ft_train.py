# SPDX-License-Identifier: BSD-3-Clause
"""One replica group of a job that ft_peers.py disturbs: ft_train.py PARTS WAY. PARTS: "survive" (tutti's, where a step
with a loss goes on), "tutti" (as torchft does it) or "torchft", whose packages have the same names; WAY: "ddp" or
"diloco". The group is a rank of its own, learns digits by a small convolutional network, and trains until it is killed.

It tells `tutti chaos` each step that it committed (CHAOS_STEPS), and FT_TRACE, a folder, where the time goes: a line
for each step with the times at which its parts ended, and after each commit a number for the bits of the weights, which
all groups must have alike. FT_DEVICE=cuda: groups take the GPUs by turns. FT_PACE: a step's least time in seconds,
that of a device which computes; the CPU has little to do meanwhile, so that groups that share it are not slowed."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

STARTED = time.monotonic_ns()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn, optim  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples" / "torch"))

import digits  # noqa: E402

TIMEOUT = timedelta(seconds=5)  # a call's: what torchft's examples give gloo
PACE_S = float(os.environ.get("FT_PACE", "0.1"))
BATCH = 16
GROUP = int(os.environ["REPLICA_GROUP_ID"])
DEVICE = torch.device(f"cuda:{GROUP % torch.cuda.device_count()}" if os.environ.get("FT_DEVICE") == "cuda" else "cpu")
HOST = socket.gethostname() if socket.gethostname().startswith("10.") else "localhost"  # a network of its own, or none


class Tell:
    """What is written down: steps for `tutti chaos`, and, if asked for, the times of a step's parts."""

    def __init__(self) -> None:
        steps, trace = os.environ.get("CHAOS_STEPS"), os.environ.get("FT_TRACE")
        self.steps = open(steps, "a", encoding="utf-8") if steps else None
        self.trace = open(f"{trace}/{GROUP}.{os.getpid()}", "w", encoding="utf-8") if trace else None
        self.marks: "list[int]" = []
        if self.trace:
            print("started", STARTED, time.monotonic_ns(), file=self.trace, flush=True)

    def mark(self) -> None:
        self.marks.append(time.monotonic_ns())

    def committed(self, step: int, contributes: bool, samples: int, groups: int, committed: bool) -> None:
        self.mark()
        if self.steps and committed and contributes:
            print(self.marks[-1], step, samples, groups, file=self.steps, flush=True)
        if self.trace:
            print("step", step, int(committed), int(contributes), *self.marks, file=self.trace, flush=True)
        self.marks = []

    def weights(self, step: int, net: nn.Module, loss: torch.Tensor) -> None:
        """After a commit."""
        if self.trace:
            sums = [weights.detach().view(torch.int32).sum() for weights in net.parameters()]
            bits = sum((i + 1) * one for i, one in enumerate(sums))
            print("weights", step, time.monotonic_ns(), int(bits), float(loss), file=self.trace, flush=True)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, digits.CLASSES),
    ).to(DEVICE)


class Batches:
    """Endless, from the digits, by chance: a group that starts again does not repeat itself."""

    def __init__(self) -> None:
        self.images = digits.load()[0]
        self.chance = torch.Generator().manual_seed(time.time_ns() % 2**31 + GROUP)
        self.begin = time.monotonic()

    def take(self) -> "tuple[torch.Tensor, torch.Tensor]":
        self.begin = time.monotonic()
        rows = torch.randint(0, len(self.images.labels), (BATCH,), generator=self.chance)
        pixels, labels = self.images.pixels[rows].unflatten(1, (8, 8)), self.images.labels[rows]
        return pixels.to(DEVICE), labels.to(DEVICE)

    def compute(self) -> None:
        """The rest of the step's least time."""
        time.sleep(max(0.0, self.begin + PACE_S - time.monotonic()))


def manager(parts: str, ft, save, load, **more):
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    theirs = ft.ProcessGroupNCCL if DEVICE.type == "cuda" else ft.ProcessGroupGloo
    group = theirs(timeout=TIMEOUT) if parts == "torchft" else ft.ProcessGroupTutti(timeout=TIMEOUT)
    if parts == "survive":
        more["survive"] = True
    return ft.Manager(
        pg=group, min_replica_size=1, load_state_dict=load, state_dict=save, replica_id=f"bench_{GROUP}",
        store_addr=HOST, store_port=store.port, rank=0, world_size=1, timeout=timedelta(seconds=20), hostname=HOST,
        **more,
    )


def ddp(parts: str, ft, batches: Batches, tell: Tell) -> None:
    net, loss = model(), nn.CrossEntropyLoss()
    inner = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def save():
        return {"model": net.state_dict(), "optim": inner.state_dict()}

    def load(state):
        net.load_state_dict(state["model"])
        inner.load_state_dict(state["optim"])

    one = manager(parts, ft, save, load)
    wrapped, optimizer = ft.DistributedDataParallel(one, net), ft.Optimizer(one, inner)
    while True:
        inputs, labels = batches.take()
        tell.mark()
        optimizer.zero_grad()
        tell.mark()
        value = loss(wrapped(inputs), labels)
        batches.compute()
        tell.mark()
        value.backward()
        tell.mark()
        contributes, step = one.is_participating(), one.current_step()
        optimizer.step()
        committed = one.current_step() > step
        tell.committed(one.current_step(), contributes, BATCH, one.num_participants(), committed)
        if committed:
            tell.weights(one.current_step(), net, value)


def diloco(parts: str, ft, batches: Batches, tell: Tell) -> None:
    net, loss, every = model(), nn.CrossEntropyLoss(), 20
    inner = optim.AdamW(net.parameters(), lr=1e-3)
    outer = optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)

    def save():
        return {"model": net.state_dict(), "inner": inner.state_dict()}

    def load(state):
        net.load_state_dict(state["model"])
        inner.load_state_dict(state["inner"])

    one = manager(parts, ft, save, load, use_async_quorum=False)
    local_sgd = importlib.import_module(ft.__name__ + ".local_sgd")
    with local_sgd.DiLoCo(one, [net], inner, outer, sync_every=every):
        while True:
            inputs, labels = batches.take()
            inner.zero_grad()
            value = loss(net(inputs), labels)
            value.backward()
            batches.compute()
            step = one.current_step()
            inner.step()
            if one.current_step() > step:
                tell.committed(one.current_step(), one.is_participating(), every * BATCH, one.num_participants(), True)
                tell.weights(one.current_step(), net, value)


def main() -> None:
    parts, way = sys.argv[1:]
    torch.set_num_threads(1)
    ft = importlib.import_module("torchft" if parts == "torchft" else "tutti_torch.ft")
    {"ddp": ddp, "diloco": diloco}[way](parts, ft, Batches(), Tell())


if __name__ == "__main__":
    main()
