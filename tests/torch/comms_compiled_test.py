# SPDX-License-Identifier: BSD-3-Clause
# timeout: 1200
# short: On2Ranks.test_methods_compiled On2Ranks.test_gradients_compiled
"""tutti_torch.comms in torch.compile(fullgraph=True): results and gradients of every collective, as one graph; the
methods of TorchComm and of windows; and that all calls keep their order, by the default backend, Inductor, too."""

from __future__ import annotations

import sys
import unittest
from datetime import timedelta
from typing import Any, Callable, List

import torch
from torch import Tensor

from comms_functional_test import Collective, PLAIN, Tensors, alone, given, loss_of, of_op, same
from comms_support import COLLECTIVES, Case, check, new_comm
from ranks import cases, on, raises
from tutti_torch.comms import ReduceOp, WorkStatus, functional

COMPILING = timedelta(seconds=400)  # one rank may be done long before another


def compiled(function: Callable, backend: str = "aot_eager") -> Callable:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend)


def compare_compiled(comm: Any, collectives: List[Collective], rank: int, n: int, backend: str) -> None:
    """All in one graph, so that compiling is done once."""
    places, inputs = [], []
    for what in collectives:
        mine = given(what, rank, n)
        places.append(slice(len(inputs), len(inputs) + len(mine)))
        inputs += mine

    def run(*x: Tensor) -> List[Tensors]:
        return [what.call(comm, list(x[place])) for what, place in zip(collectives, places)]

    got = compiled(run, backend)(*inputs)
    loss = sum(loss_of(y, rank) for y in got)
    loss.backward()
    for what, place, outputs in zip(collectives, places, got):
        want, grads = alone(what, n)
        same([y.detach() for y in outputs], [y.detach() for y in want[rank]], f"compiled {what.name}")
        same([x.grad for x in inputs[place]], grads[rank], f"compiled gradient of {what.name}")


SOME = PLAIN + of_op("SUM") + of_op("PREMUL_SUM")[:2] + of_op("MAX")[:1] + of_op("PRODUCT")[4:]


@on(2)
def gradients_compiled(rank: int, n: int, store: Any) -> None:
    functional.enable()  # get_size of all_gather_v's sizes is a method
    comm = new_comm(rank, n, store, "gradients_compiled", timeout=COMPILING)
    compare_compiled(comm, SOME, rank, n, "aot_eager")
    comm.finalize()


def all_methods(comm: Any, rank: int, n: int, async_op: bool, backend: str) -> None:
    made = [(make.__name__, *make(Case(rank, n, 5, torch.float32, torch.device("cpu")))) for make in COLLECTIVES]

    def run() -> None:
        works = [getattr(comm, name)(*arguments, async_op=async_op) for name, arguments, _ in made]
        if async_op:
            for work in works:
                before = work.is_completed()
                work.wait()
                states.append((before, work.is_completed(), work.status() == WorkStatus.COMPLETED))

    states: List[Any] = []
    compiled(run, backend)()
    assert states == ([(False, True, True)] * len(made) if async_op else []), states
    for name, _, pairs in made:
        check(pairs, f"compiled {name}, async_op={async_op}")


@on(2)
def methods_compiled(rank: int, n: int, store: Any) -> None:
    functional.enable()
    comm = new_comm(rank, n, store, "methods_compiled", timeout=COMPILING)
    for async_op in (False, True):
        all_methods(comm, rank, n, async_op, "aot_eager")
    comm.finalize()


@on(2)
def messages_compiled(rank: int, n: int, store: Any) -> None:
    """Their order is kept, also where nobody uses what came; hints and timeouts pass; two communicators in turns."""
    functional.enable()
    comm = new_comm(rank, n, store, "messages_compiled", timeout=COMPILING)
    other = new_comm(rank, n, store, "messages_compiled_2", timeout=COMPILING)
    peer, timeout = 1 - rank, timedelta(seconds=30)

    def run(comm: Any, x: Tensor) -> Tensor:
        ignored, got = torch.empty_like(x), torch.empty_like(x)
        for tensor, buffer in ((x, ignored), (x + 1, got)):
            if comm.get_rank() == 0:
                comm.send(tensor, peer, async_op=False, timeout=timeout)
                comm.recv(buffer, peer, async_op=False)
            else:
                comm.recv(buffer, peer, async_op=False)
                comm.send(tensor, peer, False, {"tag": "0"})
        (crossed,) = functional.batch_send_recv(comm, [(x * 10, peer)], [(x, peer)])
        functional.barrier(comm)
        return got * comm.get_size() + crossed

    step = compiled(run)
    for each in (comm, other, comm):
        x = torch.arange(4.0) + rank
        got = step(each, x)
        want = torch.arange(4.0) + peer
        assert torch.equal(got, (want + 1) * 2 + want * 10), got
    for each in (comm, other):
        each.finalize()


@on(2)
def order_in_inductor(rank: int, n: int, store: Any) -> None:
    """Ranks whose graphs differ, and calls that share no data: the default backend keeps the order of all."""
    functional.enable()
    comm = new_comm(rank, n, store, "order_in_inductor", timeout=COMPILING)

    def run(x: Tensor, y: Tensor, z: Tensor) -> Tensors:
        parts = functional.gather(comm, z, 1)  # only rank 1 uses its results
        got = torch.empty(3)
        if rank == 0:
            comm.send(z, 1, async_op=False)
        else:
            comm.recv(got, 0, async_op=False)
        work = comm.all_reduce(y, ReduceOp.MAX, async_op=True)
        alone = functional.all_reduce(comm, x, ReduceOp.SUM)
        after = functional.all_gather_single(comm, alone)
        comm.barrier(async_op=False)
        work.wait()
        root = functional.broadcast(comm, z, 0)
        return [after, alone] if rank == 0 else [root, after, got, *parts]

    step = compiled(run, "inductor")
    for turn in range(2):
        x = torch.full((2,), float(rank + turn), requires_grad=True)
        y, z = torch.full((5,), float(rank)), torch.full((3,), 10.0 * rank + turn)
        results = step(x, y, z)
        alone = torch.full((2,), 1.0 + 2 * turn)
        sent = torch.full((3,), float(turn))
        want = [alone.repeat(n), alone] if rank == 0 else [sent, alone.repeat(n), sent, sent, z]
        same([result.detach() for result in results], want, "inductor")
        assert torch.equal(y, torch.ones(5)), y
        results[rank].sum().backward()  # through the all_gather_single on both
        assert torch.equal(x.grad, torch.full((2,), float(n * n))), x.grad
    comm.finalize()


@on(2)
def batches_compiled(rank: int, n: int, store: Any) -> None:
    """BatchSendRecv in a compiled program, blocking and not."""
    functional.enable()
    comm = new_comm(rank, n, store, "batches_compiled", timeout=COMPILING)

    def run(x: Tensor, later: bool) -> Tensor:
        batch, got = comm.batch_op_create(), torch.empty_like(x)
        batch.send(x + 1, 1 - rank)
        batch.recv(got, 1 - rank)
        work = batch.issue(async_op=later)
        if later:
            work.wait()
        return got * 2

    step = compiled(run)
    for later in (False, True):
        same([step(torch.full((3,), float(rank)), later)], [torch.full((3,), 2.0 * (2 - rank))], f"later {later}")
    comm.finalize()


def on_windows(window: Any, peer: int, x: Tensor) -> Tensor:
    window.put(x * 2, peer, 1, async_op=False)
    window.signal(peer, async_op=False)
    window.wait_signal(peer, async_op=False)
    first = functional.get(window, x.shape, 1 - peer, 1)
    functional.put_signal(window, x + 10, peer, 1 + x.shape[0])
    window.wait_signal(peer, async_op=False)
    there = torch.empty_like(x)
    window.get(there, 1 - peer, 1 + x.shape[0], async_op=False)
    return first + there


@on(2)
def windows_compiled(rank: int, n: int, store: Any) -> None:
    """Calls on windows keep their order with one another and with those of communicators."""
    functional.enable()
    comm = new_comm(rank, n, store, "windows_compiled", timeout=COMPILING)
    mapped = comm.get_backend_impl().allocate_tensor(9, dtype=torch.float32, device=torch.device("cpu"))
    window = comm.new_window(mapped.zero_())

    def run(x: Tensor) -> Tensors:
        result = on_windows(window, 1 - rank, x)
        comm.barrier(async_op=False)
        return [result, window.map_remote_tensor(1 - rank)]

    step = compiled(run)
    for turn in range(2):
        x = torch.arange(4.0) + rank + turn
        other = torch.arange(4.0) + 1 - rank + turn
        result, part = step(x)
        same([result, part], [2 * other + other + 10, torch.cat([torch.zeros(1), 2 * x, x + 10])], "windows")
        comm.barrier(False)
    with raises(TypeError, "signal() takes peer_rank", "index"):
        functional.methods.arguments_of("signal", (0, False), {"index": 1})
    window.tensor_deregister()
    comm.finalize()


cases(globals(), backend=None, timeout=500.0)

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
