# SPDX-License-Identifier: BSD-3-Clause
"""Calls go on while Python computes, after everybody has forgotten them, and where a signal has ended the wait
for them; and no wait holds the GIL."""

from __future__ import annotations

import gc
import pickle
import signal
import sys
import threading
import time
import unittest
from datetime import timedelta
from typing import Any, List

import ranks
import torch
import torch.distributed as dist
import tutti_torch
from meetings import LARGE, PATIENCE, group_of_all, meet, store
from ranks import finish, raises
from reference import ReduceOp, check, inputs, same


def until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.001)


@ranks.on(2)
def dropped_work_and_tensors(rank: int, n: int) -> None:
    """Nobody has to keep anything: not the Work, not the tensors, not the list."""
    for count in (4, LARGE):
        for later in (False, True):
            given = inputs(f"dropped {count}", n, count, torch.float32)
            tensor = given[rank].clone()
            outputs = [torch.empty(count) for _ in range(n)]
            dist.all_reduce(tensor, async_op=True)
            dist.all_gather(outputs, given[rank].clone(), async_op=True)
            dist.all_reduce(torch.ones(count), async_op=True)
            if rank == 0:
                dist.isend(torch.full((count,), 5.0), 1)
            else:
                got = torch.empty(count)
                dist.irecv(got, 0)
            gc.collect()
            finish(dist.barrier(async_op=later), later)
            check(tensor, given, ReduceOp.SUM)
            for output, want in zip(outputs, given):
                same(output, want)
            if rank == 1:
                assert (got == 5).all()


@ranks.on(2, 3)
def calls_go_on_while_python_computes(rank: int, n: int) -> None:
    """Nobody touches torch.distributed between the start and the look."""
    for count in (10, LARGE):
        given = inputs("overlap", n, count, torch.float32)
        tensor = given[rank].clone()
        work = dist.all_reduce(tensor, async_op=True)
        deadline = time.monotonic() + PATIENCE
        want = given[0] + given[1] if n == 2 else None
        while time.monotonic() < deadline:
            sum(range(1000))
            if want is None or torch.equal(tensor, want):  # the memory itself tells
                break
        if want is None:
            time.sleep(0.2)
            until(work.is_completed)
        else:
            assert torch.equal(tensor, want)
            until(work.is_completed)  # said just after the last byte was there
        check(tensor, given, ReduceOp.SUM)
        dist.barrier()


@ranks.on(2)
def no_wait_holds_the_gil(rank: int, n: int) -> None:
    """While the main thread waits, in every way there is, another Python thread runs."""
    steps, awaited = [0], ["", 0]  # awaited: the key that rank 1 waits for, and the steps when rank 0 did
    stop = threading.Event()

    def count() -> None:
        """Lets rank 1 come only after it has run for a while beside rank 0's wait."""
        while not stop.is_set():
            steps[0] += 1
            if awaited[0] and steps[0] > awaited[1] + 20:
                store().set(awaited[0], "")
                awaited[0] = ""
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    native = torch.ops._c10d_functional
    waits = (
        lambda: dist.all_reduce(torch.ones(3)),
        lambda: dist.all_reduce(torch.ones(3), async_op=True).wait(),
        lambda: dist.all_reduce(torch.ones(3), async_op=True).get_future().wait(),
        lambda: dist.barrier(),
        lambda: dist.monitored_barrier(),
        lambda: native.wait_tensor(native.all_reduce(torch.ones(3), "sum", dist.group.WORLD.group_name)),
        lambda: dist.send(torch.ones(LARGE), 1) if rank == 0 else dist.recv(torch.ones(LARGE), 0),
        lambda: dist.new_group(),
    )
    for i, wait in enumerate(waits):
        name = f"gil/{i}"
        if rank == 0:
            before = steps[0]
            awaited[:] = [name, before]
            wait()
            assert steps[0] > before + 1, f"wait {i} held the GIL"
        else:
            store().wait([name])
            wait()
        meet(f"{name}/end", rank, n)
    stop.set()
    thread.join()


@ranks.on(2)
def work_dies_while_python_is_busy(rank: int, n: int) -> None:
    """Work, tensors and callbacks end on the library's thread while this one keeps the GIL."""
    seen: List[int] = []
    for i in range(20):
        tensor = torch.full((2000,), float(rank))
        tensor.extra = {"python": [i]}  # a Python object that dies with it
        work = dist.all_reduce(tensor, async_op=True)
        if i % 2:
            work.get_future().then(lambda f, i=i: seen.append(i))
        del work, tensor
        total = 0
        for j in range(20_000):  # holds the GIL but for the interpreter's switches
            total += j
    until(lambda: len(seen) == 10)
    assert sorted(seen) == list(range(1, 20, 2))
    dist.barrier()


class Interrupted(Exception):
    pass


def handler(number: int, frame: Any) -> None:
    raise Interrupted


@ranks.on(2)
def signals_end_waits(rank: int, n: int) -> None:
    """The handler's exception comes out of the wait; the call goes on, and the memory it uses stays."""

    other = group_of_all()
    previous = signal.signal(signal.SIGALRM, handler)
    given = inputs("signals", n, LARGE, torch.float32)
    if rank == 0:
        tensor = given[0].clone()
        work = dist.all_reduce(tensor, async_op=True)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with raises(Interrupted):
            work.wait()
        extra = torch.ones(LARGE)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with raises(Interrupted):
            dist.all_reduce(extra)
        del extra
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with raises(Interrupted):
            dist.monitored_barrier(other, timedelta(seconds=PATIENCE))
        store().set("signals/go", "")
    else:
        store().wait(["signals/go"])
        tensor = given[1].clone()
        dist.all_reduce(tensor)
        dist.all_reduce(torch.ones(LARGE))
    signal.signal(signal.SIGALRM, previous)
    dist.barrier()
    if rank == 0:
        work.wait()
    check(tensor, given, ReduceOp.SUM)


@ranks.on(2)
def handlers_run_while_futures_wait(rank: int, n: int) -> None:
    """In Future.wait, and at the end of DDP's backward; the calls come to their end as if there had been no signal."""
    seen: List[float] = []
    previous = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))

    def future() -> None:
        tensor = torch.ones(2)
        (shown,) = dist.all_reduce(tensor, async_op=True).get_future().wait()
        assert shown.tolist() == [2.0, 2.0]

    def backward() -> None:
        model(torch.full((1, 4), float(rank + 1))).sum().backward()
        assert model.module.weight.grad.tolist() == [[1.5] * 4]

    for name, call in (("future", future), ("backward", backward)):
        dist.barrier()
        if rank == 1:
            store().wait([f"handlers/{name}"])  # which is set by the handler's rank, within the call
            call()
            continue
        seen.clear()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        opener = threading.Thread(target=lambda name=name: (until(lambda: seen), store().set(f"handlers/{name}", "")))
        opener.start()
        call()
        opener.join()
    signal.signal(signal.SIGALRM, previous)
    dist.barrier()


def interrupted_call_is_recorded(rank: int, n: int, store_: dist.Store) -> None:
    """A call whose wait a handler ended is complete in the recorder when it is complete."""
    dist.init_process_group("tutti", store=store_, rank=rank, world_size=n, timeout=timedelta(seconds=PATIENCE))
    if rank == 0:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with raises(Interrupted):
            dist.all_reduce(torch.ones(3))
        store_.set("interrupted", "")
        until(lambda: all(entry["state"] == "completed" and entry["retired"] for entry in recorded()))
        assert len(recorded()) == 1
    else:
        store_.wait(["interrupted"])
        dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()


def recorded() -> list:
    return pickle.loads(tutti_torch.dump_flight_recorder())["entries"]


def centuries(rank: int, n: int, store_: dist.Store) -> None:
    """A time that nanoseconds can not count is the longest one, and not none."""
    for long in (timedelta(days=400 * 365), timedelta.max):
        prefix = dist.PrefixStore(str(long.days), store_)
        dist.init_process_group("tutti", store=prefix, rank=rank, world_size=n, timeout=timedelta(seconds=PATIENCE))
        dist.distributed_c10d._set_pg_timeout(long)
        tensor = torch.ones(2)
        if rank == 1:
            time.sleep(0.3)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait(long)
        assert tensor.tolist() == [n] * 2
        dist.destroy_process_group()


def state_beside_calls(rank: int, n: int, store_: dist.Store) -> None:
    """A thread asks for the state of the group whose calls want the GIL for the frames that they record."""
    dist.init_process_group("tutti", store=store_, rank=rank, world_size=n, timeout=timedelta(seconds=PATIENCE))
    backend, over = ranks.backend_of(), threading.Event()

    def ask() -> None:
        while not over.is_set():
            backend.get_error()
            backend._set_default_timeout(timedelta(seconds=PATIENCE))
            backend.mem_allocator

    sys.setswitchinterval(1e-4)
    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(2000):
        dist.all_reduce(torch.ones(4))
    over.set()
    thread.join()
    dist.destroy_process_group()


class Beside(unittest.TestCase):
    def test_interrupted_call_is_recorded(self) -> None:
        ranks.run(interrupted_call_is_recorded, 2, backend=None)

    def test_centuries(self) -> None:
        ranks.run(centuries, 2, backend=None)

    def test_state_beside_calls(self) -> None:
        ranks.run(state_beside_calls, 2, backend=None, env={"TORCH_INCLUDE_STACK_TRACE": "1"})


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
