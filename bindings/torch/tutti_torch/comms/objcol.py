# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects: sizes first, then exactly the bytes, so that nothing is padded to the largest object.

Objects travel in the format of torch.save, and are read by torch.load, which with weights_only=True (the default)
builds tensors, numbers, strings and containers of these, and runs no code of the sender's. What needs more is asked
for: weights_only=False, or serialization="pickle" (or TORCHCOMMS_SERIALIZATION=pickle in the environment of all ranks):
both run what the sender says. All calls block."""

from __future__ import annotations

import ctypes
import io
import os
import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any, List, Optional, Tuple

import torch

if TYPE_CHECKING:
    from . import TorchComm

__all__ = [
    "all_gather_object",
    "gather_object",
    "send_object_list",
    "recv_object_list",
    "broadcast_object_list",
    "scatter_object_list",
]

FORMATS = {"torch": b"PK", "pickle": b"\x80"}  # what their bytes begin with


class Call:
    """One call on one rank: how objects become bytes in it, and the words of its errors."""

    def __init__(
        self,
        name: str,
        comm: TorchComm,
        timeout: Optional[timedelta],
        weights_only: bool = True,
        serialization: Optional[str] = None,
    ) -> None:
        self.name, self.comm, self.timeout, self.weights_only = name, comm, timeout, weights_only
        self.rank, self.size, self.device = comm.get_rank(), comm.get_size(), comm.get_device()
        self.format = serialization or ("pickle" if os.getenv("TORCHCOMMS_SERIALIZATION") == "pickle" else "torch")
        if self.format not in FORMATS:
            raise ValueError(f"{name}: serialization is {serialization!r}; there are 'torch' and 'pickle'")

    def fail(self, said: str) -> RuntimeError:
        return RuntimeError(f"{self.name} on rank {self.rank}: {said}")

    def check_root(self, root: int) -> None:
        if not 0 <= root < self.size:
            raise ValueError(f"{self.name} on rank {self.rank}: root is {root}, and the communicator has {self.size}")

    # ---- objects and bytes ----

    def pack(self, obj: Any) -> torch.Tensor:
        file = io.BytesIO()
        if self.format == "pickle":
            pickle.dump(obj, file)
        else:
            torch.save(obj, file)
        return torch.frombuffer(file.getbuffer(), dtype=torch.uint8).to(self.device)

    def unpack(self, packed: torch.Tensor, source: int) -> Any:
        host = packed.cpu()
        data = ctypes.string_at(host.data_ptr(), host.numel())
        sent = f"what rank {source} sent ({len(data)} bytes)"
        if not data.startswith(FORMATS[self.format]):
            other = next((name for name, start in FORMATS.items() if data.startswith(start)), None)
            kind = f"in the format {other!r}" if other else "no object"
            raise self.fail(f"{sent} is {kind}, and this rank reads {self.format!r}")
        try:
            if self.format == "pickle":
                return pickle.loads(data)
            return torch.load(io.BytesIO(data), weights_only=self.weights_only)
        except Exception as error:
            said = str(error).strip().splitlines()
            reason = said[0] if said else type(error).__name__
            raise self.fail(f"{sent} is no object that may be read: {reason}") from error

    # ---- sizes ----

    def numbers(self, values: List[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def room(self, sizes: List[int], sources: List[int]) -> Tuple[torch.Tensor, List[torch.Tensor]]:
        """Memory for what others are about to send: the block, and its parts, one an object."""
        for size, source in zip(sizes, sources):
            if size <= 0:
                raise self.fail(f"rank {source} announced an object of {size} bytes")
        try:
            block = torch.empty(sum(sizes), dtype=torch.uint8, device=self.device)
        except RuntimeError as error:
            raise self.fail(f"there is no memory for the objects that were announced: {sizes} bytes") from error
        return block, list(block.split(sizes))

    # ---- bytes between one rank and others ----

    def send(self, parts: List[torch.Tensor], peers: List[int]) -> None:
        for work in [self.comm.send(*to, async_op=True, timeout=self.timeout) for to in zip(parts, peers)]:
            work.wait()

    def recv(self, parts: List[torch.Tensor], peers: List[int]) -> None:
        for work in [self.comm.recv(*to, async_op=True, timeout=self.timeout) for to in zip(parts, peers)]:
            work.wait()

    def others(self) -> List[int]:
        return [rank for rank in range(self.size) if rank != self.rank]


def all_gather_object(
    comm: TorchComm,
    object_list: List[Any],
    obj: Any,
    timeout: Optional[timedelta] = None,
    weights_only: bool = True,
    serialization: Optional[str] = None,
) -> None:
    """Puts every rank's `obj` into `object_list`, which has one place a rank, on all ranks."""
    call = Call("all_gather_object", comm, timeout, weights_only, serialization)
    if len(object_list) != call.size:
        raise ValueError(f"all_gather_object on rank {call.rank}: object_list has {len(object_list)} places, and the "
                         f"communicator {call.size} ranks")
    mine = call.pack(obj)
    announced = call.numbers([0] * call.size)
    comm.all_gather_single(announced, call.numbers([mine.numel()]), async_op=False, timeout=timeout)
    _, parts = call.room(announced.tolist(), list(range(call.size)))
    comm.all_gather_v(parts, mine, async_op=False, timeout=timeout)
    object_list[:] = [call.unpack(part, rank) for rank, part in enumerate(parts)]


def gather_object(
    comm: TorchComm,
    obj: Any,
    root: int,
    object_gather_list: Optional[List[Any]] = None,
    timeout: Optional[timedelta] = None,
    weights_only: bool = True,
    serialization: Optional[str] = None,
) -> None:
    """Puts every rank's `obj` into the `object_gather_list` of rank `root`, which has one place a rank there."""
    call = Call("gather_object", comm, timeout, weights_only, serialization)
    call.check_root(root)
    if call.rank == root and (object_gather_list is None or len(object_gather_list) != call.size):
        raise ValueError(f"gather_object on rank {root}: object_gather_list needs a place for each of {call.size}")
    mine = call.pack(obj)
    announced = call.numbers([0] * call.size if call.rank == root else [])
    comm.gather_single(announced, call.numbers([mine.numel()]), root, async_op=False, timeout=timeout)
    if call.rank != root:
        call.send([mine], [root])
        return
    others = call.others()
    sizes = announced.tolist()
    _, parts = call.room([sizes[rank] for rank in others], others)
    call.recv(parts, others)
    parts.insert(root, mine)
    object_gather_list[:] = [call.unpack(part, rank) for rank, part in enumerate(parts)]


def send_object_list(
    comm: TorchComm,
    object_list: List[Any],
    dst: int,
    timeout: Optional[timedelta] = None,
    serialization: Optional[str] = None,
) -> None:
    """Sends the objects to rank `dst`, which calls recv_object_list with a list of the same length."""
    call = Call("send_object_list", comm, timeout, serialization=serialization)
    if not object_list:
        return
    parts = [call.pack(obj) for obj in object_list]
    call.send([call.numbers([part.numel() for part in parts])], [dst])
    call.send([parts[0] if len(parts) == 1 else torch.cat(parts)], [dst])


def recv_object_list(
    comm: TorchComm,
    object_list: List[Any],
    src: int,
    timeout: Optional[timedelta] = None,
    weights_only: bool = True,
    serialization: Optional[str] = None,
) -> None:
    """Receives into `object_list` as many objects as it has places, from rank `src`."""
    call = Call("recv_object_list", comm, timeout, weights_only, serialization)
    if not object_list:
        return
    announced = call.numbers([0] * len(object_list))
    call.recv([announced], [src])
    block, parts = call.room(announced.tolist(), [src] * len(object_list))
    call.recv([block], [src])
    object_list[:] = [call.unpack(part, src) for part in parts]


def broadcast_object_list(
    comm: TorchComm,
    object_list: List[Any],
    root: int,
    timeout: Optional[timedelta] = None,
    weights_only: bool = True,
    serialization: Optional[str] = None,
) -> None:
    """Puts the objects of rank `root` into the lists of all ranks, which have the same length."""
    call = Call("broadcast_object_list", comm, timeout, weights_only, serialization)
    call.check_root(root)
    if not object_list:
        return
    if call.rank == root:
        parts = [call.pack(obj) for obj in object_list]
        announced = call.numbers([part.numel() for part in parts])
        comm.broadcast(announced, root, async_op=False, timeout=timeout)
        comm.broadcast(parts[0] if len(parts) == 1 else torch.cat(parts), root, async_op=False, timeout=timeout)
        return
    announced = call.numbers([0] * len(object_list))
    comm.broadcast(announced, root, async_op=False, timeout=timeout)
    block, parts = call.room(announced.tolist(), [root] * len(object_list))
    comm.broadcast(block, root, async_op=False, timeout=timeout)
    object_list[:] = [call.unpack(part, root) for part in parts]


def scatter_object_list(
    comm: TorchComm,
    root: int,
    scatter_object_output_list: List[Any],
    scatter_object_input_list: Optional[List[Any]] = None,
    timeout: Optional[timedelta] = None,
    weights_only: bool = True,
    serialization: Optional[str] = None,
) -> None:
    """Puts object i of rank `root` into the first place of rank i's `scatter_object_output_list`."""
    call = Call("scatter_object_list", comm, timeout, weights_only, serialization)
    call.check_root(root)
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(f"scatter_object_list on rank {call.rank}: scatter_object_output_list needs a place")
    if call.rank != root:
        announced = call.numbers([0])
        comm.scatter(announced, [], root, async_op=False, timeout=timeout)
        block, _ = call.room(announced.tolist(), [root])
        call.recv([block], [root])
        scatter_object_output_list[0] = call.unpack(block, root)
        return
    if scatter_object_input_list is None or len(scatter_object_input_list) != call.size:
        raise ValueError(f"scatter_object_list on rank {root}: scatter_object_input_list needs an object for each of "
                         f"{call.size} ranks")
    parts = [call.pack(obj) for obj in scatter_object_input_list]
    announced = [call.numbers([part.numel()]) for part in parts]
    comm.scatter(call.numbers([0]), announced, root, async_op=False, timeout=timeout)
    others = call.others()
    call.send([parts[rank] for rank in others], others)
    scatter_object_output_list[0] = call.unpack(parts[root], root)

