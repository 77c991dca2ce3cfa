# SPDX-License-Identifier: BSD-3-Clause
# timeout: 120
"""tutti_torch.comms.objcol: Python objects between 2 and 4 ranks, in both formats; memory without padding; what a rank
is told of bytes that are no object, of sizes that can not be, and of ranks that read another format."""

from __future__ import annotations

import os
import sys
import unittest
from datetime import timedelta
from typing import Any, List

import torch

from comms_support import new_comm
from ranks import cases, on, raises
from tutti_torch.comms import objcol


class Point:
    """What torch.load refuses unless told to trust the sender."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x


def thing(rank: int) -> Any:
    """Each rank's is another, and of another size."""
    return {"rank": rank, "text": "x" * 1000 * rank, "tensor": torch.arange(3 + rank), "list": [rank, None, 2.5, True]}


def same(a: Any, b: Any) -> bool:
    equal = (torch.equal(a[key], b[key]) if key == "tensor" else a[key] == b[key] for key in b)
    return a.keys() == b.keys() and all(equal)


def all_calls(comm: Any, rank: int, n: int, **options: Any) -> None:
    got: List[Any] = [None] * n
    objcol.all_gather_object(comm, got, thing(rank), timedelta(seconds=30), **options)
    assert all(same(got[i], thing(i)) for i in range(n))

    for root in (0, n - 1):
        got = [None] * n
        objcol.gather_object(comm, thing(rank), root, got if rank == root else None, **options)
        if rank == root:
            assert all(same(got[i], thing(i)) for i in range(n))

        got = [thing(i) if rank == root else None for i in range(3)]
        objcol.broadcast_object_list(comm, got, root, **options)
        assert all(same(got[i], thing(i)) for i in range(3))

        got = [None, "kept"]
        objcol.scatter_object_list(comm, root, got, [thing(i) for i in range(n)] if rank == root else None, **options)
        assert same(got[0], thing(rank)) and got[1] == "kept"

    format_only = {key: value for key, value in options.items() if key == "serialization"}
    for count in (1, 4):
        if rank == 0:
            objcol.send_object_list(comm, [thing(i) for i in range(count)], 1, **format_only)
        elif rank == 1:
            got = [None] * count
            objcol.recv_object_list(comm, got, 0, **options)
            assert all(same(got[i], thing(i)) for i in range(count))


@on(1, 2, 4)
def torch_format(rank: int, n: int, store: Any) -> None:
    comm = new_comm(rank, n, store, "torch_format")
    if n > 1:
        all_calls(comm, rank, n)
    got: List[Any] = [None] * n
    objcol.all_gather_object(comm, got, rank)
    assert got == list(range(n))
    comm.finalize()


@on(2)
def pickle_format(rank: int, n: int, store: Any) -> None:
    """Asked for by the argument, and by the environment."""
    comm = new_comm(rank, n, store, "pickle_format")
    all_calls(comm, rank, n, serialization="pickle")
    os.environ["TORCHCOMMS_SERIALIZATION"] = "pickle"
    try:
        all_calls(comm, rank, n)
        got: List[Any] = [None] * n
        objcol.all_gather_object(comm, got, Point(rank))
        assert got == [Point(0), Point(1)]
    finally:
        del os.environ["TORCHCOMMS_SERIALIZATION"]
    comm.finalize()


@on(2)
def objects_that_run_code(rank: int, n: int, store: Any) -> None:
    """They come only when asked for; the communicator lives on when they are refused."""
    comm = new_comm(rank, n, store, "objects_that_run_code")
    got: List[Any] = [None] * n
    with raises(RuntimeError, "all_gather_object on rank", "rank 0 sent", "no object that may be read"):
        objcol.all_gather_object(comm, got, Point(rank))
    objcol.all_gather_object(comm, got, Point(rank), weights_only=False)
    assert got == [Point(0), Point(1)]
    comm.finalize()


@on(4)
def nothing_is_padded(rank: int, n: int, store: Any) -> None:
    """One rank's object is large; the memory taken is the sum of the sizes, not ranks times the largest."""
    comm = new_comm(rank, n, store, "nothing_is_padded")
    taken: List[int] = []
    room = objcol.Call.room

    def watched(self: objcol.Call, sizes: List[int], sources: List[int]) -> Any:
        block, parts = room(self, sizes, sources)
        taken.append(block.numel())
        assert block.numel() == sum(sizes) == sum(part.numel() for part in parts)
        return block, parts

    objcol.Call.room = watched
    try:
        got: List[Any] = [None] * n
        large = torch.ones(1 << 20, dtype=torch.uint8)
        objcol.all_gather_object(comm, got, large if rank == 2 else rank)
        assert torch.equal(got[2], large) and got[3] == 3
        objcol.gather_object(comm, large if rank == 2 else rank, 0, got if rank == 0 else None)
    finally:
        objcol.Call.room = room
    assert len(taken) == 1 + (rank == 0) and max(taken) < 1.1 * large.numel(), taken
    comm.finalize()


@on(2)
def bad_bytes(rank: int, n: int, store: Any) -> None:
    """A peer that sends something else, by hand."""
    comm = new_comm(rank, n, store, "bad_bytes")

    def from_peer(sizes: List[int], data: bytes, *words: str) -> None:
        if rank == 0:
            comm.send(torch.tensor(sizes), 1, async_op=False)
            if data:
                comm.send(torch.frombuffer(bytearray(data), dtype=torch.uint8), 1, async_op=False)
            return
        with raises(RuntimeError, "recv_object_list on rank 1", *words):
            objcol.recv_object_list(comm, [None] * len(sizes), 0)

    from_peer([7], b"garbage", "rank 0 sent (7 bytes)", "no object", "'torch'")
    from_peer([9], b"PK\3\4 what", "rank 0 sent (9 bytes)", "no object that may be read")
    from_peer([-1], b"", "rank 0 announced an object of -1 bytes")
    from_peer([0, 5], b"", "rank 0 announced an object of 0 bytes")
    from_peer([1 << 60], b"", "no memory", str(1 << 60))
    if rank == 0:
        objcol.send_object_list(comm, ["pickled"], 1, serialization="pickle")
    else:
        with raises(RuntimeError, "in the format 'pickle'", "this rank reads 'torch'"):
            objcol.recv_object_list(comm, [None], 0)
    all_calls(comm, rank, n)
    comm.finalize()


@on(2)
def wrong_arguments(rank: int, n: int, store: Any) -> None:
    """Found before anything is sent, so that the communicator is as it was."""
    comm = new_comm(rank, n, store, "wrong_arguments")
    with raises(ValueError, "object_list has 1 places", "2 ranks"):
        objcol.all_gather_object(comm, [None], 1)
    with raises(ValueError, "root is 2"):
        objcol.broadcast_object_list(comm, [None], 2)
    with raises(ValueError, "object_gather_list needs a place"):
        objcol.gather_object(comm, 1, rank, None)
    with raises(ValueError, "scatter_object_output_list"):
        objcol.scatter_object_list(comm, 0, [])
    with raises(ValueError, "scatter_object_input_list"):
        objcol.scatter_object_list(comm, rank, [None], [1])
    with raises(ValueError, "'json'", "'pickle'"):
        objcol.all_gather_object(comm, [None] * n, 1, serialization="json")
    all_calls(comm, rank, n)
    comm.finalize()


cases(globals(), backend=None)

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
