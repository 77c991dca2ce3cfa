# SPDX-License-Identifier: BSD-3-Clause
"""A rank of PyTorch's gloo backend in the harness of collectives.c, whose library is the argument: the harness
measures, and calls back for each call. all_reduce and reduce work in place there, so that the copy is part of an out of
place call."""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist


class Call(ctypes.Structure):
    _fields_ = [
        ("send", ctypes.c_void_p),
        ("recv", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("n", ctypes.c_int),
        ("root", ctypes.c_int),
    ]


CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Call))
OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)
CLOSE = ctypes.CFUNCTYPE(None)
NOT_OFFERED = 1


def tensor(address: int, count: int) -> torch.Tensor:
    memory = (ctypes.c_float * max(count, 1)).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32)[:count]


def copied(call) -> None:
    call["recv"].copy_(call["send"])


def all_reduce(c: dict) -> None:
    copied(c)
    dist.all_reduce(c["recv"])


def reduce(c: dict) -> None:
    buffer = c["recv"] if c["rank"] == c["root"] else c["scratch"]
    buffer.copy_(c["send"])
    dist.reduce(buffer, c["root"])


def broadcast(c: dict) -> None:
    dist.broadcast(c["send"] if c["rank"] == c["root"] else c["recv"], c["root"])


# Blocks sent and received; None: one for each rank. Below, in the order of enum peer_operation, the calls.
SHAPES = {
    "all_reduce": (1, 1),
    "reduce_scatter": (None, 1),
    "all_gather": (1, None),
    "all_to_all": (None, None),
    "broadcast": (1, 1),
    "reduce": (1, 1),
    "gather": (1, None),
    "scatter": (None, 1),
    "barrier": (0, 0),
}
ROOTED = {"gather": "recv", "scatter": "send"}
CALLS = {
    "all_reduce": all_reduce,
    "reduce_scatter": lambda c: dist.reduce_scatter_tensor(c["recv"], c["send"]),
    "all_gather": lambda c: dist.all_gather_into_tensor(c["recv"], c["send"]),
    "all_to_all": lambda c: dist.all_to_all_single(c["recv"], c["send"]),
    "broadcast": broadcast,
    "reduce": reduce,
    "gather": lambda c: dist.gather(c["send"], c["blocks"], c["root"]),
    "scatter": lambda c: dist.scatter(c["recv"], c["blocks"], c["root"]),
    "scan": None,  # torch has none
    "barrier": lambda c: dist.barrier(),
}


def prepare(operation: str, call: Call) -> dict:
    """The tensors of a call; made once a point."""
    sides = dict(zip(("send", "recv"), SHAPES[operation]))
    prepared: dict = {"rank": call.rank, "root": call.root, "blocks": None}
    for side, blocks in sides.items():
        count = call.count * (call.n if blocks is None else blocks)
        if ROOTED.get(operation) == side:
            if call.rank == call.root:
                prepared["blocks"] = list(tensor(getattr(call, side), count).chunk(call.n))
        else:
            prepared[side] = tensor(getattr(call, side), count)
    if operation == "reduce" and call.rank != call.root:
        prepared["scratch"] = torch.empty(call.count)
    return prepared


def callback(operation: str):
    """Calls of one operation; what torch refuses at the first call of a kind is not offered."""
    state: dict = {"key": None, "prepared": None}
    run = CALLS[operation]

    def invoke(pointer) -> int:
        call = pointer.contents
        key = (call.send, call.recv, call.count)
        try:
            if state["key"] != key:
                state["key"], state["prepared"] = key, prepare(operation, call)
            run(state["prepared"])
            return 0
        except (RuntimeError, NotImplementedError) as error:
            unsupported = isinstance(error, NotImplementedError) or "not support" in str(error)
            if not unsupported:
                traceback.print_exc()
            return NOT_OFFERED if unsupported else -1
        except BaseException:
            traceback.print_exc()
            return -1

    return CALL(invoke)


@OPEN
def open_gloo(rank: int, n: int) -> int:
    try:
        torch.set_num_threads(1)
        store = dist.FileStore(os.path.join(os.environ["PEERS_FOLDER"], "store"), n)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=n, timeout=timedelta(minutes=2))
        return 0
    except BaseException:
        traceback.print_exc()
        return -1


@CLOSE
def close_gloo() -> None:
    dist.destroy_process_group()


class Peer(ctypes.Structure):
    _fields_ = [
        ("open", OPEN),
        ("close", CLOSE),
        ("alloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
        ("calls", CALL * len(CALLS)),
    ]


def main() -> int:
    harness = ctypes.CDLL(sys.argv[1])
    calls = (CALL * len(CALLS))(*(callback(operation) if CALLS[operation] else CALL() for operation in CALLS))
    return harness.peer_serve(ctypes.byref(Peer(open_gloo, close_gloo, None, None, calls)))


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main())
