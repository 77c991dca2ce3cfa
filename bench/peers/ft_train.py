# SPDX-License-Identifier: BSD-3-Clause
"""One replica group of a job that ft_peers.py disturbs: ft_train.py PARTS WAY. PARTS: "tutti" or "torchft", whose
packages have the same names; WAY: "ddp" or "diloco". The group is a rank of its own and trains until it is killed."""

from __future__ import annotations

import importlib
import os
import sys
import time
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn, optim

TIMEOUT = timedelta(seconds=5)  # a call's: what torchft's examples give gloo
STEP_S = 0.02  # computing, beside the product itself


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def batch(generator: torch.Generator) -> "tuple[torch.Tensor, torch.Tensor]":
    time.sleep(STEP_S)
    return torch.randn(32, 256, generator=generator), torch.randint(0, 10, (32,), generator=generator)


def manager(parts: str, ft, states, store: dist.TCPStore, group: str, **more):
    process_group = ft.ProcessGroupTutti(timeout=TIMEOUT) if parts == "tutti" else ft.ProcessGroupGloo(timeout=TIMEOUT)
    save, load = states
    return ft.Manager(
        pg=process_group, min_replica_size=1, load_state_dict=load, state_dict=save, replica_id=f"bench_{group}",
        store_addr="localhost", store_port=store.port, rank=0, world_size=1, timeout=timedelta(seconds=20), **more,
    )


def ddp(parts: str, ft, store: dist.TCPStore, group: str, generator: torch.Generator) -> None:
    net, loss = model(), nn.CrossEntropyLoss()
    inner = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def save():
        return {"model": net.state_dict(), "optim": inner.state_dict()}

    def load(state):
        net.load_state_dict(state["model"])
        inner.load_state_dict(state["optim"])

    parallel = manager(parts, ft, (save, load), store, group)
    wrapped, optimizer = ft.DistributedDataParallel(parallel, net), ft.Optimizer(parallel, inner)
    while True:
        inputs, labels = batch(generator)
        optimizer.zero_grad()
        loss(wrapped(inputs), labels).backward()
        optimizer.step()


def diloco(parts: str, ft, store: dist.TCPStore, group: str, generator: torch.Generator) -> None:
    net, loss = model(), nn.CrossEntropyLoss()
    inner = optim.AdamW(net.parameters(), lr=1e-3)
    outer = optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)

    def save():
        return {"model": net.state_dict(), "inner": inner.state_dict()}

    def load(state):
        net.load_state_dict(state["model"])
        inner.load_state_dict(state["inner"])

    parallel = manager(parts, ft, (save, load), store, group, use_async_quorum=False)
    local_sgd = importlib.import_module(ft.__name__ + ".local_sgd")
    with local_sgd.DiLoCo(parallel, [net], inner, outer, sync_every=20):
        while True:
            inputs, labels = batch(generator)
            inner.zero_grad()
            loss(net(inputs), labels).backward()
            inner.step()


def main() -> None:
    parts, way = sys.argv[1:]
    ft = importlib.import_module("tutti_torch.ft" if parts == "tutti" else "torchft")
    torch.set_num_threads(1)
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    group = os.environ["REPLICA_GROUP_ID"]
    generator = torch.Generator().manual_seed(uuid.uuid4().int % 2**31)
    {"ddp": ddp, "diloco": diloco}[way](parts, ft, store, group, generator)


if __name__ == "__main__":
    main()
