# SPDX-License-Identifier: BSD-3-Clause
"""tutti_torch.comms on the tensors of a device that it knows nothing of: the test device of tests/torch/device, whose
memory faults when a thread of the host touches it. Inputs are computed late and outputs are overwritten at once, as in
device_test.py. Also ranks of the host beside ranks on devices, and tensors of both in one communicator."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from typing import Any, Callable

import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import COLLECTIVES, CPU, Case, Pairs, given, new_comm
from tutti_torch.comms import hooks

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "device"))
import calls  # noqa: E402
from calls import DEVICE, SECOND, late, module, set_copy_delay, sleep  # noqa: E402

calls.SLOW = 10
TYPES = (torch.float32, torch.int64, torch.int8, torch.bfloat16)


class LateCase(Case):
    """A call of a rank on a device, or of one on the host."""

    def mine(self, salt: int = 0) -> torch.Tensor:
        return self.on_device([self.given(self.rank, salt)])[0]

    def on_device(self, tensors: list) -> list:
        return [tensor.clone() if self.device == CPU else late(tensor, self.device) for tensor in tensors]


def compare(pairs: Pairs, what: str) -> None:
    """The stream's next work reads the results, and the work after that overwrites them."""
    seen = [tensor.clone() for tensor, _ in pairs]
    for tensor, _ in pairs:
        tensor.fill_(77)
    for tensor, (_, expected) in zip(seen, pairs):
        assert torch.equal(tensor.cpu(), expected), f"{what}: {tensor.cpu()}, not {expected}"


def call(comm: tc.TorchComm, make: Callable, case: Case, asynchronous: bool, **options: Any) -> tc.TorchWork:
    arguments, pairs = make(case)
    work = getattr(comm, make.__name__)(*arguments, asynchronous, **options)
    assert isinstance(work, tc.TorchWork)
    if asynchronous:
        work.wait()
    compare(pairs, f"{make.__name__} on {case.device}, rank {case.rank} of {case.n}, async_op={asynchronous}")
    work.wait_blocking()  # after wait alone, its results may be under way on the stream
    assert work.is_completed() and work.status() == tc.WorkStatus.COMPLETED
    return work


def try_all(comm: tc.TorchComm, device: torch.device, count: int = 37, case: type = LateCase) -> None:
    rank, n = comm.get_rank(), comm.get_size()
    for turn, make in enumerate(COLLECTIVES):
        call(comm, make, case(rank, n, count, TYPES[turn % len(TYPES)], device), turn % 2 == 0)


@ranks.on(2)
def all_calls(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "all", DEVICE)
    assert comm.get_device() == DEVICE
    set_copy_delay(calls.COPY)
    try_all(comm, DEVICE)
    for make in COLLECTIVES:
        for asynchronous in (True, False):
            call(comm, make, Case(rank, n, 5, torch.float32, DEVICE), asynchronous)
    set_copy_delay(0)
    child = comm.split([1, 0], "child")
    try_all(child, DEVICE, 3, Case)
    for one in (child, comm):
        one.finalize()


@ranks.on(2)
def by_the_tensors_device(rank: int, n: int, store: dist.Store) -> None:
    """On one communicator: calls on two devices and on the host in turns, some under way at the same time."""
    comm = new_comm(rank, n, store, "devices", DEVICE)
    for device in (CPU, DEVICE, SECOND, CPU):
        try_all(comm, device, 3, Case)
    tensors = [late(given(rank, 50, torch.float32, i), d) if d != CPU else given(rank, 50, torch.float32, i)
               for i, d in enumerate((DEVICE, CPU, SECOND, CPU, DEVICE))]  # fmt: skip
    works = [comm.all_reduce(tensor, tc.ReduceOp.SUM, True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    sums = [sum(given(r, 50, torch.float32, i) for r in range(n)) for i in range(len(tensors))]
    compare(list(zip(tensors, sums)), "mixed")
    with ranks.raises(RuntimeError, "different devices"):
        comm.all_gather_single(torch.empty(2 * n, device=SECOND), torch.empty(2, device=DEVICE), False)
    comm.barrier(False)
    comm.finalize()


@ranks.on(2)
def ranks_of_both(rank: int, n: int, store: dist.Store) -> None:
    """The last rank is on the host, the others are on devices."""
    device = CPU if rank == n - 1 else DEVICE
    comm = new_comm(rank, n, store, "both", device)
    assert comm.get_device() == device
    try_all(comm, device)
    got, mine = torch.zeros(9, device=device), torch.full((9,), float(rank), device=device)
    for asynchronous in (True, False):
        batch = comm.batch_op_create()
        batch.send(mine, (rank + 1) % n)
        batch.recv(got, (rank - 1) % n)
        work = batch.issue(asynchronous)
        work.wait()
        compare([(got, torch.full((9,), float((rank - 1) % n)))], "batch")
    child = comm.split(list(range(n)), "child")
    try_all(child, device, 3, Case)
    child.finalize()
    comm.finalize()


# ---- works, streams, messages ----


@ranks.on(2)
def works(rank: int, n: int, store: dist.Store) -> None:
    """An asynchronous call returns while its input is computed. wait makes the current stream wait, wait_blocking the
    host, too."""
    comm = new_comm(rank, n, store, "works", DEVICE)
    tensor = torch.ones(100, device=DEVICE)
    comm.all_reduce(tensor, tc.ReduceOp.SUM, False)
    module.synchronize()
    for blocking in (True, False):
        begin = time.monotonic()
        sleep(500)
        tensor.fill_(float(rank))
        work = comm.all_reduce(tensor, tc.ReduceOp.SUM, True)
        assert not work.is_completed() and work.status() == tc.WorkStatus.INPROGRESS
        assert time.monotonic() - begin < 0.45
        work.wait_blocking() if blocking else work.wait()
        assert time.monotonic() - begin >= 0.45 and (work.is_completed() or not blocking)
        compare([(tensor, torch.full((100,), float(sum(range(n)))))], f"blocking={blocking}")
    one, two = module.Stream(), module.Stream()
    with module.stream(one):
        tensor = late(given(rank, 200, torch.float32))
        work = comm.all_reduce(tensor, tc.ReduceOp.SUM, True)
    with module.stream(two):
        work.wait()
        compare([(tensor, sum(given(r, 200, torch.float32) for r in range(n)))], "streams")
    comm.finalize()


@ranks.on(2)
def messages(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "messages", DEVICE)
    peer = 1 - rank
    expected = given(peer, 50, torch.float32)
    got = calls.fresh(50)
    works = [comm.send(late(given(rank, 50, torch.float32)), peer, True), comm.recv(got, peer, True)]
    for work in works:
        work.wait()
    compare([(got, expected)], "crossing")
    mine, got = late(given(rank, 50, torch.float32)), calls.fresh(50)
    for action in ((comm.send, comm.recv) if rank == 0 else (comm.recv, comm.send)):
        action(mine if action.__name__ == "send" else got, peer, False)
    compare([(got, expected)], "one by one")
    for asynchronous in (False, True):
        batch, outs = comm.batch_op_create(), [calls.fresh(20), torch.zeros(20, device=DEVICE)]
        for i, out in enumerate(outs):
            batch.send(late(given(rank, 20, torch.float32, i)), peer)
            batch.recv(out, peer)
        batch.issue(asynchronous).wait()
        compare([(out, given(peer, 20, torch.float32, i)) for i, out in enumerate(outs)], "batch")
    comm.finalize()


@ranks.on(2)
def barrier_follows_the_stream(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "barrier", DEVICE)
    begin = torch.tensor(time.monotonic(), dtype=torch.float64)  # the clock is the host's, so ranks can compare
    if rank == 0:
        sleep(300)
    comm.barrier(False).wait_blocking()
    end = time.monotonic()
    comm.broadcast(begin, 0, False)
    assert end - begin.item() >= 0.3
    comm.finalize()


@ranks.on(2)
def late_and_aborted(rank: int, n: int, store: dist.Store) -> None:
    """A call whose input does not come in time, and one that is aborted while its input is computed."""
    comm = new_comm(rank, n, store, "late", DEVICE)
    comm.barrier(False)
    if rank == 0:
        sleep(3000)
    tensor = torch.ones(10, device=DEVICE)
    with ranks.raises(dist.DistBackendError, "imed out"):
        comm.all_reduce(tensor, tc.ReduceOp.SUM, False, timeout=timedelta(milliseconds=300))
    store.set(f"late{rank}", "")
    store.wait([f"late{r}" for r in range(n)])
    comm.finalize()
    comm, told = new_comm(rank, n, store, "aborted", DEVICE), []
    comm.register_abort_hook(lambda: told.append(1))
    module.synchronize()
    comm.all_reduce(torch.ones(1), tc.ReduceOp.SUM, False)  # on the host: the ranks go on together
    sleep(2000)
    begin = time.monotonic()
    work = comm.all_reduce(tensor.fill_(1), tc.ReduceOp.SUM, True)
    if rank == 0:
        comm.abort()
    with ranks.raises(dist.DistBackendError, "abort"):
        work.wait()
    assert comm.is_aborted() and time.monotonic() - begin < 1.9
    ranks.settle([1], lambda: told)
    comm.finalize()


# ---- what hangs on communicators ----


@ranks.on(2)
def hooks_are_told(rank: int, n: int, store: dist.Store) -> None:
    comm, told = new_comm(rank, n, store, "hooks", DEVICE), []
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        recorder, check = hooks.FlightRecorderHook(isolated=True), hooks.NanCheckHook()
        for one in (recorder, check, hooks.clog(log, ["LIFECYCLE"])):
            one.register_with_comm(comm)
        comm.register_pre_hook(lambda name, op_id, args: told.append((op_id, name.name, args)))
        comm.register_post_hook(lambda op_id, args: told.append((op_id, "post", getattr(args, "work", None))))
        for asynchronous in (True, False):
            tensor = late(given(rank, 10, torch.float32))
            call_of = comm.all_reduce(tensor, tc.ReduceOp.SUM, asynchronous)
            call_of.wait()
            compare([(tensor, sum(given(r, 10, torch.float32) for r in range(n)))], "with hooks")
            (op_id, name, args), (same, post, work) = told
            assert (op_id, name, post) == (same, "all_reduce", "post") and args.tensor.device == DEVICE
            assert work.is_completed() and args.async_op == asynchronous
            told.clear()
        assert recorder.size() == 2 and recorder.dump_json().count("completed") >= 2
        if rank == 0:
            with ranks.raises(RuntimeError, "NaN detected", "all_reduce"):
                comm.all_reduce(torch.full((3,), float("nan"), device=DEVICE), tc.ReduceOp.SUM, False)
        with open(log) as file:
            events = [line.split("|")[1] for line in file.read().splitlines() if line.startswith("C")]
        assert events[:1] == ["sig"] and {"Q", "S", "E", "W"} <= set(events), events
    comm.barrier(False)
    comm.finalize()


# ---- windows ----


@ranks.on(2)
def windows(rank: int, n: int, store: dist.Store) -> None:
    """The parts are memory of the host; what is put into them and got from them is on the device."""
    comm = new_comm(rank, n, store, "windows", DEVICE)
    with ranks.raises(RuntimeError, "of the host or of CUDA", "tuttidev"):
        comm.new_window(torch.zeros(4, device=DEVICE))
    peer, own = 1 - rank, torch.zeros(100)
    window = comm.new_window(own)
    for turn, asynchronous in enumerate((True, False, True)):
        mine, expected = given(rank, 10, torch.float32, turn), given(peer, 10, torch.float32, turn)
        if turn < 2:
            window.put(late(mine), peer, 20, asynchronous).wait()
            window.signal(peer, asynchronous).wait()
        else:
            window.put_signal(late(mine), peer, 20, asynchronous).wait()
        window.wait_signal(peer, asynchronous).wait()
        assert torch.equal(own[20:30], expected), (turn, own)
        comm.barrier(False).wait_blocking()
        got = calls.fresh(10)
        window.get(got, peer, 20, asynchronous).wait()
        compare([(got, mine)], "get")
        comm.barrier(False).wait_blocking()
    window.tensor_deregister()
    comm.finalize()


# ---- calls that are recorded ----


@ranks.on(2)
def persistent(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "persistent", DEVICE)
    tensor, source, output = torch.zeros(6, device=DEVICE), calls.fresh(6), calls.fresh(6 * n)
    sums, gathers = comm.all_reduce_p_init(tensor, tc.ReduceOp.SUM), comm.all_gather_p_init(output)
    for turn in range(3):
        sleep(calls.SLOW)
        tensor.fill_(rank + turn)
        comm.all_reduce_p_exec(sums, turn % 2 == 0).wait()
        compare([(tensor, torch.full((6,), n * (n - 1) / 2 + n * turn))], "all_reduce_p")
        source.fill_(10 * turn + rank)
        comm.all_gather_p_exec(gathers, source, turn % 2 == 0).wait()
        compare([(output, torch.cat([torch.full((6,), 10.0 * turn + r) for r in range(n)]))], "all_gather_p")
    comm.all_reduce_p_free(sums)
    comm.all_gather_p_free(gathers)
    comm.finalize()


# ---- that the tests can fail ----


def in_order(rank: int, n: int, store: dist.Store) -> None:
    calls.SLOW = 250
    comm = new_comm(rank, n, store, "order", DEVICE)
    set_copy_delay(calls.COPY)
    for make in COLLECTIVES[:4]:
        call(comm, make, LateCase(rank, n, 37, torch.float32, DEVICE), True)
    comm.finalize()


class BrokenDevice(unittest.TestCase):
    def test_streams_that_do_not_wait(self) -> None:
        with self.assertRaises(ranks.RankError):
            ranks.run(in_order, 2, backend=None, env={"TUTTIDEV_BREAK": "wait"})


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    unittest.main()
