# SPDX-License-Identifier: BSD-3-Clause
"""Windows of tutti_torch.comms: puts, gets, signals, atomics, flush and fence; memory that peers map, and memory that
they do not; many in flight; what is refused; and peers that are killed in the midst of it. Also persistent calls."""

from __future__ import annotations

import os
import signal
import tempfile
import unittest
from datetime import timedelta

import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import CPU, Process, given, new_comm, on_threads


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
    comm.all_reduce_p_free(sums)
    comm.all_gather_p_free(gathers)
    with ranks.raises(RuntimeError, "freed"):
        comm.all_reduce_p_exec(sums, False)
    with ranks.raises(RuntimeError, "freed"):
        comm.all_gather_p_exec(gathers, source, False)
    comm.broadcast_p_free(spreads)
    comm.finalize()


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    unittest.main()
