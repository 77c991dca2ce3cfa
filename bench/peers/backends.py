# SPDX-License-Identifier: BSD-3-Clause
"""The peers that are compared, behind one interface: a peer turns a case (collective, size, buffers) into a call
without arguments. Torch's backends differ in their group alone; MPI is called through mpi4py, on the same memory."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Callable

import torch
import torch.distributed as dist

ELEMENT = 4  # bytes of a float32
COMMS = {"comms": ("tutti_torch.comms", "tutti"), "torchcomms": ("torchcomms", "gloo")}

# Newer versions of torch warn of the older names.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass
class Case:
    """One cell. `size` is the larger side of the collective in bytes, as in nccl-tests; a block has at least one
    element. `a` is read (and written where the collective works in place), `b` is written."""

    operation: str
    size: int
    rank: int
    n: int
    a: torch.Tensor
    b: torch.Tensor

    @staticmethod
    def make(operation: str, size: int, rank: int, n: int, memory: tuple[torch.Tensor, torch.Tensor]) -> "Case":
        whole = max(1, size // ELEMENT)
        block = max(1, whole // n)
        inputs, outputs = {
            "all_gather": (block, block * n),
            "reduce_scatter": (block * n, block),
            "all_to_all": (block * n, block * n),
            "barrier": (0, 0),
        }.get(operation, (whole, whole))
        return Case(operation, size, rank, n, memory[0][:inputs], memory[1][:outputs])

    @property
    def partner(self) -> int | None:
        """The other end of the round trip: neighbours in pairs; of an odd number the last one has none."""
        other = self.rank ^ 1
        return other if other < self.n else None

    def fill(self) -> None:
        """Small whole numbers, exact in every order of summing, that tell which rank and which block they are of."""
        if self.operation in ("reduce_scatter", "all_to_all"):
            for j, block in enumerate(self.a.chunk(self.n)):
                block.fill_(self.rank * self.n + j + 1)
        else:
            self.a.fill_(self.rank + 1)
        self.b.fill_(-1)

    def verify(self) -> None:
        """Raises if the call after fill() did not do what it says."""
        n, rank = self.n, self.rank
        expected: list[tuple[torch.Tensor, float]] = {
            "all_reduce": lambda: [(self.a, n * (n + 1) / 2)],
            "all_gather": lambda: [(block, r + 1) for r, block in enumerate(self.b.chunk(n))],
            "reduce_scatter": lambda: [(self.b, sum(r * n + rank + 1 for r in range(n)))],
            "all_to_all": lambda: [(block, r * n + rank + 1) for r, block in enumerate(self.b.chunk(n))],
            "broadcast": lambda: [(self.a, 1)],
            "barrier": lambda: [],
            "send_recv": lambda: [(self.b, self.partner + 1)] if self.partner is not None else [],
        }[self.operation]()
        for tensor, value in expected:
            if not bool((tensor == value).all()):
                raise AssertionError(f"{self.operation} of {self.size} bytes: rank {rank} did not find {value}")


Call = Callable[[], object]


class Peer:
    name: str

    def calls(self, a, b, partner: int | None) -> dict[str, Call]:
        """By operation; "send" and "recv" make a round trip with the partner."""
        raise NotImplementedError

    def call(self, case: Case) -> Call:
        calls = self.calls(case.a, case.b, case.partner)
        if case.operation != "send_recv":
            return calls[case.operation]
        if case.partner is None:
            return lambda: None
        first, second = (calls["send"], calls["recv"]) if case.rank % 2 == 0 else (calls["recv"], calls["send"])
        return lambda: (first(), second())


class TorchPeer(Peer):
    """A backend of torch.distributed, by a group of its own over all ranks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.group = dist.new_group(backend=name)

    def calls(self, a, b, partner: int | None) -> dict[str, Call]:
        group = self.group
        return {
            "all_reduce": lambda: dist.all_reduce(a, group=group),
            "all_gather": lambda: all_gather_single(b, a, group=group),
            "reduce_scatter": lambda: reduce_scatter_single(b, a, group=group),
            "all_to_all": lambda: dist.all_to_all_single(b, a, group=group),
            "broadcast": lambda: dist.broadcast(a, 0, group=group),
            "barrier": lambda: dist.barrier(group=group),
            "send": lambda: dist.send(a, partner, group),
            "recv": lambda: dist.recv(b, partner, group),
        }


class CommsPeer(Peer):
    """A communicator of torchcomms' API: of this package ("comms": tutti), or of the real one ("torchcomms": gloo)."""

    def __init__(self, name: str) -> None:
        self.name = name
        module, backend = COMMS[name]
        self.api = importlib.import_module(module)
        store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
        os.environ.update(TORCHCOMM_RANK=str(dist.get_rank()), TORCHCOMM_SIZE=str(dist.get_world_size()))
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")  # the real one looks for it whatever store it is given
        self.comm = self.api.new_comm(backend, torch.device("cpu"), f"peer_{name}", store=store)

    def close(self) -> None:
        self.comm.finalize()

    def calls(self, a, b, partner: int | None) -> dict[str, Call]:
        comm, sum_of = self.comm, self.api.ReduceOp.SUM
        return {
            "all_reduce": lambda: comm.all_reduce(a, sum_of, False),
            "all_gather": lambda: comm.all_gather_single(b, a, False),
            "reduce_scatter": lambda: comm.reduce_scatter_single(b, a, sum_of, False),
            "all_to_all": lambda: comm.all_to_all_single(b, a, False),
            "broadcast": lambda: comm.broadcast(a, 0, False),
            "barrier": lambda: comm.barrier(False),
            "send": lambda: comm.send(a, partner, False),
            "recv": lambda: comm.recv(b, partner, False),
        }


class MpiPeer(Peer):
    """MPI_COMM_WORLD through mpi4py, on the memory of the tensors."""

    name = "mpi"

    def __init__(self) -> None:
        self.mpi = importlib.import_module("mpi4py.MPI")

    def calls(self, a, b, partner: int | None) -> dict[str, Call]:
        comm, a, b = self.mpi.COMM_WORLD, a.numpy(), b.numpy()
        return {
            "all_reduce": lambda: comm.Allreduce(self.mpi.IN_PLACE, a),
            "all_gather": lambda: comm.Allgather(a, b),
            "reduce_scatter": lambda: comm.Reduce_scatter_block(a, b),
            "all_to_all": lambda: comm.Alltoall(a, b),
            "broadcast": lambda: comm.Bcast(a, 0),
            "barrier": comm.Barrier,
            "send": lambda: comm.Send(a, partner),
            "recv": lambda: comm.Recv(b, partner),
        }


def load_backend(name: str) -> None:
    """Makes the name known to torch: tutti's package registers it when it is imported."""
    if name == "tutti":
        importlib.import_module("tutti_torch")
    elif name in COMMS:
        importlib.import_module(COMMS[name][0])


def make_peer(name: str):
    return MpiPeer() if name == "mpi" else CommsPeer(name) if name in COMMS else TorchPeer(name)
