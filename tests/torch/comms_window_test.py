# SPDX-License-Identifier: BSD-3-Clause
"""Windows of tutti_torch.comms: puts, gets, signals, atomics, flush and fence; memory that peers map, and memory that
they do not; many in flight; what is refused; and peers that are killed in the midst of it. Also persistent calls."""

from __future__ import annotations

import os
import signal
import tempfile
import unittest
from datetime import timedelta
from typing import Any, Callable, List

import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import COLLECTIVES, CPU, Case, Process, check, given, new_comm, on_threads


def buffer(comm: tc.TorchComm, count: int, dtype: torch.dtype = torch.float32, mapped: bool = True) -> torch.Tensor:
    """Memory that the ranks of the host map, or any."""
    if not mapped:
        return torch.zeros(count, dtype=dtype)
    return comm.get_backend_impl().allocate_tensor(count, dtype=dtype, device=CPU).zero_()


@ranks.on(2, 4)
def ring(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "ring")
    after, before = (rank + 1) % n, (rank - 1) % n
    for mapped in (True, False):
        own = buffer(comm, 100, mapped=mapped)
        window = comm.new_window(own)
        assert (window.get_size(), window.dtype, window.shape, window.device) == (400, torch.float32, [100], CPU)
        assert window.get_tensor().data_ptr() == own.data_ptr()
        for turn in range(5):
            mine, expected = given(rank, 10, torch.float32, turn), given(before, 10, torch.float32, turn)
            if turn == 0:
                window.put(mine, after, 20, async_op=False)
                window.signal(after, False)
            elif turn == 1:
                work = window.put(mine, after, 20, True)
                work.wait()
                window.signal(after, True).wait()
            else:
                window.put_signal(mine, after, 20, turn % 2 == 0).wait()
            window.wait_signal(before, turn % 2 == 0).wait()
            assert torch.equal(own[20:30], expected), (mapped, turn, own)
            comm.barrier(False)
            got = torch.zeros(10)
            window.get(got, after, 20, False)
            assert torch.equal(got, mine)
            comm.barrier(False)
        window.flush()
        window.flush(after, async_op=True).wait()
        window.fence()
        access = window.get_attr(after).access_type
        if mapped:
            assert access == tc.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED
        if access == tc.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED:
            assert torch.equal(window.map_remote_tensor(after)[20:30], given(rank, 10, torch.float32, 4))
        window.tensor_deregister()
        assert window.get_size() == 0 and window.get_tensor() is None
    comm.finalize()


@ranks.on(4)
def counters(rank: int, n: int, store: dist.Store) -> None:
    """All ranks add to one word, and take a lock by compare_swap."""
    comm = new_comm(rank, n, store, "counters")
    own = buffer(comm, 4, torch.int64)
    window, turns, seen = comm.new_window(own), 50, []
    for _ in range(turns):
        seen.append(window.fetch_add(0, 1, 3))
        while window.compare_swap(0, 2, 0, rank + 1) != 0:
            pass
        got = torch.zeros(1, dtype=torch.int64)
        window.get(got, 0, 3, False)
        window.put(got + 1, 0, 3, False)
        window.flush(0)
        assert window.compare_swap(0, 2, rank + 1, 0) == rank + 1
    assert sorted(seen) == seen and all(value % 3 == 0 for value in seen)
    comm.barrier(False)
    if rank == 0:
        assert own.tolist() == [0, 3 * n * turns, 0, n * turns], own
    window.tensor_deregister()
    comm.finalize()


@ranks.on(2, 4)
def signals_with_an_index(rank: int, n: int, store: dist.Store) -> None:
    """Set, added to, compared in each way, read and written; beside those that are counted for each peer."""
    comm = new_comm(rank, n, store, "signals")
    own = buffer(comm, 8)
    window = comm.new_window(own, n_signals=3)
    assert window.n_signals == 3
    after, before = (rank + 1) % n, (rank - 1) % n
    window.signal(after, False, index=0, value=40 + rank, op=tc.SignalOp.SET)
    window.wait_signal(before, False, index=0, value=40 + before, compare=tc.SignalCompare.EQ)
    assert window.read_signal(0) == 40 + before
    for compare, value in (("NE", 3), ("LT", 100), ("LE", 40 + before), ("GT", 39), ("GE", 40 + before)):
        window.wait_signal(-1, True, index=0, value=value, compare=getattr(tc.SignalCompare, compare)).wait()
    comm.barrier(False)
    for peer in range(n):
        window.signal(peer, peer % 2 == 0, index=1, value=10).wait()
    window.wait_signal(-1, False, index=1, value=10 * n)
    window.put_signal(torch.full((2,), float(rank)), after, 2, True, index=2, value=2**40).wait()
    window.wait_signal(before, False, index=2, value=2**40)
    assert own.tolist() == [0, 0, before, before, 0, 0, 0, 0]
    window.signal(after, False)  # counted as ever
    window.wait_signal(before, False)
    comm.barrier(False)
    window.write_signal(1, 7)
    assert (window.read_signal(1), window.read_signal(2)) == (7, 2**40)
    with ranks.raises(RuntimeError, "signal", "index must be in range [0, 3)", "got 3", "n_signals"):
        window.signal(after, False, index=3)
    with ranks.raises(RuntimeError, "signal", "needs an index"):
        window.signal(after, False, op=tc.SignalOp.SET)
    with ranks.raises(RuntimeError, "wait_signal", "needs an index"):
        window.wait_signal(before, False, value=3)
    with ranks.raises(dist.DistBackendError, "Timed out", "wait_signal"):
        window.wait_signal(before, False, None, timedelta(milliseconds=50), index=1, compare=tc.SignalCompare.LT)
    store.set(f"late{rank}", "")
    store.wait([f"late{r}" for r in range(n)])
    comm.finalize()


@ranks.on(2)
def atomics_under_way(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "atomics")
    own = buffer(comm, 4, torch.int64)
    window, turns = comm.new_window(own), 20
    befores = [torch.zeros(1, dtype=torch.int64) for _ in range(turns)]
    works = [window.fetch_add_into(before, 0, 1, 3, True) for before in befores]
    for work in works:
        work.wait()
    seen = [int(before) for before in befores]
    assert seen == sorted(seen) and all(value % 3 == 0 for value in seen)
    swapped = torch.zeros(1, dtype=torch.int64)
    window.compare_swap_into(swapped, rank, 2, 0, 5, True).wait()
    assert swapped.item() == 0 and window.compare_swap(rank, 2, 5, 6) == 5
    window.compare_swap_into(swapped, rank, 2, 0, 9, False)
    assert swapped.item() == 6
    comm.barrier(False)
    assert own[2].item() == 6 and (rank != 0 or own[1].item() == 3 * n * turns), own
    for wrong in (torch.zeros(1), torch.zeros(2, dtype=torch.int64)):
        with ranks.raises(RuntimeError, "fetch_add_into", "result must be one int64"):
            window.fetch_add_into(wrong, 0, 0, 1, False)
    window.tensor_deregister()
    comm.finalize()


@ranks.on(2)
def for_kernels(rank: int, n: int, store: dist.Store) -> None:
    """There are none on the host, and that is said."""
    comm = new_comm(rank, n, store, "kernels")
    window = comm.new_window(torch.zeros(4))
    for call, words in ((lambda: window.get_device_window(), ("get_device_window", "memory of devices")),
                        (lambda: window.get_device_window(1000), ("signal_count is 1000", "n_signals")),
                        (lambda: window.get_device_window(-1, 2), ("counter_count is 2", "no counters")),
                        (lambda: window.get_device_window(-1, -1, 99), ("barrier_count is 99",)),
                        (lambda: window.register_local_buffer(torch.zeros(1)), ("register_local_buffer", "CUDA")),
                        (lambda: window.deregister_local_buffer(5), ("no tensor at 5",)),
                        (lambda: comm.get_device_transport(), ("communicator 'kernels'", "the devices of no rank",
                                                               "gave to ranks 0, 1; by messages all other"))):
        with ranks.raises(RuntimeError, *words):
            call()
    comm.barrier(False)
    window.tensor_deregister()
    comm.finalize()


@ranks.on(2)
def refused(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "refused")
    window, tensor = comm.new_window(), torch.zeros(4)
    with ranks.raises(RuntimeError, "put", "no tensor is registered", "'refused'"):
        window.put(tensor, 1 - rank, 0, False)
    with ranks.raises(RuntimeError, "contiguous"):
        window.tensor_register(torch.zeros(4, 4).t())
    own = torch.zeros(8)
    window.tensor_register(own)
    with ranks.raises(RuntimeError, "double registration"):
        window.tensor_register(own)
    with ranks.raises(RuntimeError, "put", "Double", "Float"):
        window.put(tensor.double(), 1 - rank, 0, False)
    with ranks.raises(RuntimeError, "put", f"rank {rank} of communicator 'refused'"):
        window.put(tensor, 1 - rank, 5, False)
    with ranks.raises(RuntimeError, "put"):
        window.put(tensor, 2, 0, False)
    with ranks.raises(RuntimeError, "wait_signal", "got 2"):
        window.wait_signal(2, False)
    comm.barrier(False)
    window.tensor_deregister()
    with ranks.raises(RuntimeError, "no tensor is registered"):
        window.tensor_deregister()
    comm.finalize()


@ranks.on(2)
def late(rank: int, n: int, store: dist.Store) -> None:
    """A signal that does not come, by its deadline."""
    comm = new_comm(rank, n, store, "late")
    window = comm.new_window(torch.zeros(4))
    if rank == 0:
        with ranks.raises(dist.DistBackendError, "wait_signal", "Timed out"):
            window.wait_signal(1, False, timeout=timedelta(milliseconds=200))
    store.set(f"done{rank}", "")
    store.wait([f"done{1 - rank}"])
    comm.finalize()


class OnThreads(unittest.TestCase):
    def test_many_in_flight(self) -> None:
        def body(rank: int, n: int, store: dist.Store) -> None:
            comm = new_comm(rank, n, store, "many")
            own = buffer(comm, 64 * n)
            window = comm.new_window(own)
            for turn in range(20):
                parts = [torch.full((64,), float(100 * turn + rank)) for _ in range(n)]
                works = [window.put_signal(parts[r], r, 64 * rank, True) for r in range(n)]
                for r in range(n):
                    window.wait_signal(r, True).wait()
                for work in works:
                    work.wait()
                expected = torch.cat([torch.full((64,), float(100 * turn + r)) for r in range(n)])
                assert torch.equal(own, expected), (turn, own)
                comm.barrier(False)
            window.tensor_deregister()
            comm.finalize()

        on_threads(4, body)


# ---- peers that are killed ----


def killed_one(path: str, n: int, what: str) -> None:
    rank = 1
    comm = new_comm(rank, n, dist.FileStore(path, n), "killed")
    window = comm.new_window(buffer(comm, 1 << 16, mapped=what != "messages"))
    comm.barrier(False)
    os.kill(os.getpid(), signal.SIGKILL)
    window.fence()


def survivor(path: str, n: int, what: str) -> None:
    comm = new_comm(0, n, dist.FileStore(path, n), "killed")
    window = comm.new_window(buffer(comm, 1 << 16, mapped=what != "messages"))
    comm.barrier(False)
    with ranks.raises(dist.DistBackendError, "rank 1"):
        if what == "wait_signal":
            window.wait_signal(1, False)
        else:
            data = torch.ones(1 << 14)
            while True:
                window.put(data, 1, 0, False)
                window.flush(1)
    comm.finalize()


class Killed(unittest.TestCase):
    def test_survivors_are_told(self) -> None:
        for what in ("wait_signal", "put", "messages"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "store")
                processes = [Process(survivor, path, 2, what), Process(killed_one, path, 2, what)]
                self.assertEqual([process.ended(60) for process in processes], [0, -signal.SIGKILL], what)


# ---- persistent calls ----


@ranks.on(2, 4)
def persistent(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "persistent")
    tensor, source, output = torch.zeros(6), torch.zeros(6), torch.zeros(6 * n)
    sums = comm.all_reduce_p_init(tensor, tc.ReduceOp.SUM)
    gathers = comm.all_gather_p_init(output)
    spreads = comm.broadcast_p_init(source, n - 1)
    meets = comm.barrier_p_init()
    for turn in range(4):
        asynchronous = turn % 2 == 0
        tensor.fill_(rank + turn)
        comm.all_reduce_p_exec(sums, asynchronous).wait()
        assert tensor[0].item() == n * (n - 1) / 2 + n * turn
        source.fill_(10 * turn + rank)
        comm.all_gather_p_exec(gathers, source if turn < 2 else source.clone(), asynchronous).wait()
        assert output.view(n, 6)[:, 0].tolist() == [10.0 * turn + r for r in range(n)]
        comm.broadcast_p_exec(spreads, asynchronous).wait()
        assert source[0].item() == 10 * turn + n - 1
        comm.barrier_p_exec(meets, asynchronous).wait()
    for turn in range(20):  # nobody waits: each one follows the one before, whose handle is gone
        comm.broadcast_p_exec(spreads, True)
        comm.all_gather_p_exec(gathers, source if turn % 3 else source + 0, True)
    works = [comm.all_reduce_p_exec(sums, True) for _ in range(6)]
    comm.all_reduce_p_free(sums)  # what was started goes on
    comm.all_gather_p_free(gathers)
    for work in works:
        work.wait()
    assert tensor[0].item() == (n * (n - 1) / 2 + n * 3) * n**6
    assert output.view(n, 6)[:, 0].tolist() == [30.0 + n - 1] * n
    with ranks.raises(RuntimeError, "freed"):
        comm.all_reduce_p_exec(sums, False)
    with ranks.raises(RuntimeError, "freed"):
        comm.all_gather_p_exec(gathers, source, False)
    comm.broadcast_p_free(spreads)
    comm.finalize()


def recorded(comm: tc.TorchComm, make: Callable, case: Case) -> None:
    """One call of the table, started again and again: what it reads changes in place, what it wrote is wiped out."""
    arguments, pairs = make(case)
    inputs = [one for one in flat(arguments) if not any(one is output for output, _ in pairs)]
    in_place = [(output, output.clone()) for output, _ in pairs if make.__name__ in IN_PLACE]
    kept = [one.clone() for one in inputs]
    name = "all_gather" if make.__name__ == "all_gather" else make.__name__
    given_once = arguments[:1] if name == "all_gather" else arguments
    call = getattr(comm, f"{name}_p_init")(*given_once)
    for turn in range(3):
        for output, _ in pairs:
            output.fill_(77)
        for tensor, before in (*zip(inputs, kept), *in_place):
            tensor.copy_(before)
        more = arguments[1:] if name == "all_gather" else ()
        work = getattr(comm, f"{name}_p_exec")(call, *more, turn % 2 == 0)
        work.wait()
        check(pairs, f"persistent {name} on rank {case.rank} of {case.n}, {turn}")
    for one in inputs:
        one.fill_(3)  # what is read is what is there when it starts
    getattr(comm, f"{name}_p_free")(call)


IN_PLACE = ("broadcast", "all_reduce", "reduce")


def flat(arguments: Any) -> List[torch.Tensor]:
    if isinstance(arguments, torch.Tensor):
        return [arguments]
    return [one for each in arguments for one in flat(each)] if isinstance(arguments, (list, tuple)) else []


@ranks.on(2, 4)
def every_call_recorded(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "recorded")
    for make in COLLECTIVES:
        recorded(comm, make, Case(rank, n, 7, torch.float32, CPU))
    lists = [torch.zeros(6).view(2, 3).t()[r % 3] for r in range(n)]  # with holes between elements
    part, parts = torch.zeros(2), []
    spread = comm.scatter_p_init(part, lists if rank == 0 else [], 0)
    for turn in range(20):  # the lists are copied when it starts, which is not before the last copy was read
        for r, one in enumerate(lists):
            one.fill_(turn + r % 3)
        work = comm.scatter_p_exec(spread, True)
        if rank % 2:
            work.wait()
            parts.append(part[1].item())
    work.wait()
    assert part[1].item() == 19 + rank % 3 and (not parts or parts == [turn + rank % 3 for turn in range(20)]), parts
    comm.scatter_p_free(spread)
    with ranks.raises(RuntimeError, "scatter", "freed"):
        comm.scatter_p_exec(spread, False)
    comm.finalize()


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    unittest.main()
