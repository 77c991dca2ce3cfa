# SPDX-License-Identifier: BSD-3-Clause
"""Hooks of tutti_torch.comms: their order, names, numbers and arguments for each call; that they can be removed, also
beside calls of other threads; abort hooks; and backends that are written in Python."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import unittest
from datetime import timedelta
from typing import Any, List

import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import COLLECTIVES, CPU, Case, Process, call, new_comm, on_threads

# What each call's arguments are called, besides async_op; lists in capitals.
FIELDS = {
    "broadcast": "tensor root", "all_reduce": "tensor op", "reduce": "tensor root op", "all_gather": "input OUTPUT",
    "all_gather_v": "input OUTPUT", "all_gather_single": "input output", "reduce_scatter": "INPUT output op",
    "reduce_scatter_v": "INPUT output op", "reduce_scatter_single": "input output op",
    "all_to_all_single": "input output",
    "all_to_all_v_single": "input output input_split_sizes output_split_sizes", "all_to_all": "INPUT OUTPUT",
    "barrier": "", "scatter": "INPUT output root", "gather": "input OUTPUT root", "gather_single": "input output root",
}  # fmt: skip


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def check_fields(name: str, args: Any, asynchronous: bool) -> None:
    assert type(args).__name__ == f"{camel(name)}PreHookArgs", type(args)
    assert args.async_op == asynchronous
    for field in FIELDS[name].split():
        value = getattr(args, field.lower())
        if field.isupper():
            assert isinstance(value, list) and all(isinstance(one, torch.Tensor) for one in value), (name, field)
        elif field in ("tensor", "input", "output"):
            assert isinstance(value, torch.Tensor), (name, field)
        elif field == "op":
            assert isinstance(value, tc.ReduceOp)


@ranks.on(1, 2)
def of_all_calls(rank: int, n: int, store: dist.Store) -> None:
    comm, told = new_comm(rank, n, store, "hooks"), []
    pre = comm.register_pre_hook(lambda name, op_id, args: told.append(("pre", name, op_id, args)))
    comm.register_post_hook(lambda op_id, args: told.append(("post", None, op_id, args)))
    last = -1
    for make in COLLECTIVES:
        for asynchronous in (False, True):
            call(comm, make, Case(rank, n, 5, torch.float32, CPU), asynchronous)
            (first, name, op_id, args), (second, _, same, after) = told
            assert (first, second, op_id, name.name) == ("pre", "post", same, make.__name__) and op_id > last
            check_fields(make.__name__, args, asynchronous)
            assert type(after).__name__ == f"{camel(make.__name__)}PostHookArgs"
            assert isinstance(after, tc.CollectivePostHookArgs) and after.work.is_completed()
            last = op_id
            told.clear()
    child = comm.split([rank], "child")
    (_, name, op_id, args), (_, _, _, after) = told
    assert name == tc.OpName.split and (args.ranks, args.name) == ([rank], "child") and after.new_comm is child
    told.clear()
    child.barrier(False)
    child.finalize()
    assert not told  # a communicator's own hooks
    batch = comm.batch_op_create()
    batch.send(torch.ones(1), rank)
    batch.recv(torch.zeros(1), rank)
    batch.issue(True).wait()
    (_, name, _, args), _ = told
    assert name == tc.OpName.batch_op_issue and (args.num_ops, args.async_op) == (2, True)
    pre.remove()
    told.clear()
    comm.barrier(False)
    assert [row[0] for row in told] == ["post"]
    told.clear()
    comm.finalize()
    (kind, _, op_id, args), = told
    assert kind == "post" and op_id == sys.maxsize * 2 + 1 and type(args).__name__ == "FinalizePostHookArgs"


@ranks.on(2)
def messages(rank: int, n: int, store: dist.Store) -> None:
    comm, told = new_comm(rank, n, store, "messages"), []
    comm.register_pre_hook(lambda name, op_id, args: told.append((name, args)))
    tensor = torch.ones(3)
    (comm.send if rank == 0 else comm.recv)(tensor, 1 - rank, False)
    (name, args), = told
    assert name == (tc.OpName.send if rank == 0 else tc.OpName.recv) and args.peer == 1 - rank
    assert args.tensor.data_ptr() == tensor.data_ptr() and not args.async_op
    comm.finalize()


@ranks.on(2)
def a_hook_that_raises(rank: int, n: int, store: dist.Store) -> None:
    """The call is not made, and the error is the caller's."""
    comm = new_comm(rank, n, store, "raises")

    def refuse(name: tc.OpName, op_id: int, args: Any) -> None:
        raise KeyError("no")

    handle = comm.register_pre_hook(refuse)
    with ranks.raises(KeyError, "no"):
        comm.barrier(False)
    handle.remove()
    comm.barrier(False)
    comm.finalize()


@ranks.on(2)
def callbacks(rank: int, n: int, store: dist.Store) -> None:
    """Hooks of works: at their end, once, and before each wait."""
    comm, told = new_comm(rank, n, store, "callbacks"), []

    def after(op_id: int, args: Any) -> None:
        args.work._on_end(lambda: told.append("end"))
        args.work._on_wait(lambda: told.append("wait"))

    handle = comm.register_post_hook(after)
    work = comm.all_reduce(torch.ones(100000), tc.ReduceOp.SUM, True)
    work.wait()
    work.wait()
    handle.remove()
    comm.barrier(False)
    ranks.settle(["end", "wait", "wait"], lambda: sorted(told))
    comm.finalize()


@ranks.on(2)
def aborts(rank: int, n: int, store: dist.Store) -> None:
    """Once, when a call fails; not when the arguments were wrong."""
    comm, told = new_comm(rank, n, store, "aborts"), []
    comm.register_abort_hook(lambda: told.append(1))
    removed = comm.register_abort_hook(lambda: told.append(2))
    removed.remove()
    with ranks.raises(RuntimeError, "root"):
        comm.broadcast(torch.ones(1), 5, False)
    assert not told
    if rank == 0:
        work = comm.recv(torch.ones(1), 1, True, timeout=timedelta(milliseconds=100))
        ranks.settle([1], lambda: told)  # nobody waits for the call
        with ranks.raises(RuntimeError, "Timed out"):
            work.wait()
        with ranks.raises(RuntimeError):
            comm.barrier(False)
        assert told == [1]
        store.set("failed", "")
    else:
        store.wait(["failed"])
    comm.abort()
    assert told == [1] and comm.is_abort_supported() and comm.is_aborted()
    comm.finalize()


class OnThreads(unittest.TestCase):
    def test_hooks_come_and_go_beside_calls(self) -> None:
        def body(rank: int, n: int, store: dist.Store) -> None:
            comm, counts = new_comm(rank, n, store, "busy"), [0]

            def count(op_id: int, args: Any) -> None:
                counts[0] += 1

            for _ in range(100):
                handle = comm.register_post_hook(count)
                comm.barrier(False)
                handle.remove()
                comm.barrier(False)
            assert counts[0] == 100
            comm.finalize()

        on_threads(2, body)

    def test_a_comm_with_hooks_goes(self) -> None:
        gone: List[int] = []

        class Hook:
            def __call__(self, *args: Any) -> None:
                pass

            def __del__(self) -> None:
                gone.append(1)

        comm = tc.new_comm("tutti", CPU, "gone", hints={"rank": "0", "size": "1"})
        for register in (comm.register_pre_hook, comm.register_post_hook, comm.register_abort_hook):
            register(Hook())
        comm.finalize()
        del comm, register
        gc.collect()
        self.assertEqual(len(gone), 3)


def dies(path: str) -> None:
    """A call that fails ends the process, where that was asked for, after the hooks."""
    comm = tc.new_comm("tutti", CPU, "dies", True, hints={"rank": "0", "size": "1"})
    comm.register_abort_hook(lambda: open(path, "w").close())
    comm.recv(torch.ones(1), 0, True, timeout=timedelta(milliseconds=50)).wait()


class Death(unittest.TestCase):
    def test_it_is_asked_for(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "dies")
            self.assertEqual(Process(dies, path).ended(60), -signal.SIGABRT)
            self.assertTrue(os.path.exists(path))


class Later:
    def __init__(self, body: Any) -> None:
        self.body = body

    def wait(self) -> None:
        self.body()


class Mine(tc.TorchCommBackend):
    """One rank that talks to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: List[tuple] = []

    def init(self, device: torch.device, name: str, options: tc.CommOptions) -> None:
        self.device, self.name, self.hints = device, name, options.hints

    def finalize(self) -> None:
        self.calls.append(("finalize",))

    def get_rank(self) -> int:
        return 0

    def get_size(self) -> int:
        return 1

    def set_timeout(self, timeout: timedelta) -> None:
        self.calls.append(("set_timeout", timeout))

    def split(self, chosen: list, name: str, options: tc.CommOptions) -> "Mine":
        child = Mine()
        child.init(self.device, name, options)
        return child

    def all_reduce(self, tensor: torch.Tensor, op: tc.ReduceOp, async_op: bool) -> Any:
        if async_op:
            return Later(lambda: tensor.mul_(3))
        tensor.mul_(2)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self.calls.append((name, *arguments))


class InPython(unittest.TestCase):
    def test_backend(self) -> None:
        tc.register_backend("mine", Mine)
        self.assertTrue(tc._is_backend_registered("mine") and not tc._is_backend_registered("nobody's"))
        with ranks.raises(RuntimeError, "'tutti' is taken"):
            tc.register_backend("tutti", Mine)
        comm = tc.new_comm("mine", CPU, "in python", hints={"a": "b"})
        self.assertEqual((comm.get_rank(), comm.get_size(), comm.get_backend()), (0, 1, "mine"))
        tensor = torch.ones(2)
        comm.all_reduce(tensor, tc.ReduceOp.SUM, False)
        work = comm.all_reduce(tensor, tc.ReduceOp.SUM, True)
        self.assertFalse(work.is_completed())
        work.wait()
        self.assertTrue(work.is_completed())
        self.assertEqual(tensor.tolist(), [6, 6])
        comm.all_to_all_v_single(tensor, tensor, [2], [2], False)
        comm.gather([tensor], tensor, 0, False)
        own = comm.get_backend_impl().object
        self.assertEqual([row[0] for row in own.calls], ["all_to_all_v_single", "gather"])
        self.assertEqual(own.calls[0][3:], ([2], [2], False))
        self.assertEqual(own.hints, {"a": "b"})
        child = comm.split([0], "child")
        self.assertEqual(child.get_backend_impl().object.name, "child")
        with ranks.raises(RuntimeError, "root", "got 1"):
            comm.broadcast(tensor, 1, False)
        child.finalize()
        comm.finalize()
        self.assertEqual(own.calls[-1], ("finalize",))


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    unittest.main()
