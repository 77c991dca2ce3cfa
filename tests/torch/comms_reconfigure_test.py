# SPDX-License-Identifier: BSD-3-Clause
# timeout: 900
# short: Threads Killed
"""Communicators that get other members: fewer, more, others, the same; in the order of the list of handles; after an
abort, and after a rank was killed and another process has come for it. Nothing stays behind of those that were."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from typing import List

import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import CPU, Process, exchange, new_comm, on_threads

SHORT = timedelta(milliseconds=500)
LONG = timedelta(seconds=60)


def fresh(name: str, **options) -> tc.TorchComm:
    comm = tc.new_comm("tutti", CPU, name, enable_reconfigure=True, timeout=LONG, **options)
    assert (comm.get_rank(), comm.get_size()) == (-1, -1)
    return comm


def seated(rank: int, n: int, name: str) -> tc.TorchComm:
    """The handle of a rank that is a thread."""
    return fresh(name, hints={"rank": str(rank), "size": str(n)})


def check_sum(comm: tc.TorchComm) -> None:
    n = comm.get_size()
    for count in (4, 5000):
        tensor = torch.full((count,), float(comm.get_rank() + 1))
        comm.all_reduce(tensor, tc.ReduceOp.SUM, async_op=False)
        assert tensor[-1].item() == n * (n + 1) / 2, tensor


def configure(comm: tc.TorchComm, uuid: int, handles, rank: int, size: int) -> None:
    work = comm.reconfigure(uuid, handles, timeout=LONG)
    work.wait()
    assert work.is_completed() and work.status() == tc.WorkStatus.COMPLETED
    assert (comm.get_rank(), comm.get_size()) == (rank, size), (comm.get_rank(), comm.get_size())
    check_sum(comm)


@ranks.on(4)
def members(rank: int, n: int, store: dist.Store) -> None:
    """All; in another order; as a set; without the last; without one of the middle; one alone; all again."""
    comm = fresh("members")
    handle = comm.get_init_handle()
    assert handle == comm.get_init_handle() and handle.startswith("tutti:")
    with ranks.raises(RuntimeError, "call reconfigure first", "'members'"):
        comm.barrier(False)
    handles = exchange(store, "h", list("0123"), str(rank), handle)
    configure(comm, 1, handles, rank, n)
    configure(comm, 2, handles[::-1], n - 1 - rank, n)
    configure(comm, 3, set(handles), sorted(handles).index(handle), n)
    configure(comm, 4, handles, rank, n)
    child = comm.split([0, 1] if rank < 2 else [2, 3], "child")
    check_sum(child)
    child.finalize()
    if rank < 3:
        configure(comm, 5, handles[:3], rank, 3)
    if rank != 1:
        some = [handles[0], *handles[2:]]
        configure(comm, 6, some, some.index(handle), 3)
    configure(comm, 7, [handle], 0, 1)
    configure(comm, 8, handles, rank, n)
    exchange(store, "through", list("0123"), str(rank), "")
    comm.abort()
    assert comm.is_aborted()
    with ranks.raises(RuntimeError, "aborted"):
        comm.barrier(False)
    configure(comm, 9, handles, rank, n)
    assert not comm.is_aborted()
    with ranks.raises(RuntimeError, "uuid 9 was used before"):
        comm.reconfigure(9, handles)
    comm.barrier(False)
    comm.finalize()


@ranks.on(2)
def worlds(rank: int, n: int, store: dist.Store) -> None:
    """A communicator that was made without reconfigure can get other members, too; its old calls are over by then."""
    comm = new_comm(rank, n, store, "worlds")
    handles = exchange(store, "w", ["0", "1"], str(rank), comm.get_init_handle())
    tensor = torch.ones(1000)
    work = comm.all_reduce(tensor, tc.ReduceOp.SUM, True)
    configure(comm, 1, handles[::-1], 1 - rank, n)
    work.wait()
    assert tensor[0].item() == 2
    comm.finalize()


class Threads(unittest.TestCase):
    def test_it_is_asynchronous(self) -> None:
        """It returns while the others have not called it; calls that follow wait for it."""
        called = threading.Event()

        def body(rank: int, n: int, store: dist.Store) -> None:
            comm = seated(rank, n, "late")
            handles = exchange(store, "h", ["0", "1"], str(rank), comm.get_init_handle())
            if rank == 1:
                called.wait(30)
                time.sleep(0.2)
            work = comm.reconfigure(1, handles, LONG)
            if rank == 0:
                assert not work.is_completed() and work.status() == tc.WorkStatus.INPROGRESS
                called.set()
            check_sum(comm)
            work.wait_blocking()
            comm.finalize()

        on_threads(2, body)

    def test_late_joiners_and_merges(self) -> None:
        def body(rank: int, n: int, store: dist.Store) -> None:
            comm = seated(rank, n, "merge")
            handles = exchange(store, "h", list("0123"), str(rank), comm.get_init_handle())
            if rank < 3:
                part = handles[:2] if rank < 2 else handles[2:3]
                configure(comm, 4, part, part.index(handles[rank]), len(part))
            configure(comm, 5, handles, rank, n)
            comm.finalize()

        on_threads(4, body)

    def test_who_does_not_come(self) -> None:
        """The deadline passes, and the next reconfiguration does."""

        def body(rank: int, n: int, store: dist.Store) -> None:
            comm = seated(rank, n, "missing")
            handles = exchange(store, "h", ["0", "1"], str(rank), comm.get_init_handle())
            if rank == 0:
                work = comm.reconfigure(1, handles, SHORT)
                with ranks.raises(RuntimeError, "tutti"):
                    work.wait()
                assert work.status() == tc.WorkStatus.ERROR
                with ranks.raises(RuntimeError, "call reconfigure first"):
                    comm.barrier(False)
            configure(comm, 2, handles, rank, n)
            comm.finalize()

        on_threads(2, body)

    def test_abort_ends_it(self) -> None:
        """A reconfiguration that others never come to: ended at once, and it can be called again."""

        def body(rank: int, n: int, store: dist.Store) -> None:
            comm = seated(rank, n, "given up")
            handles = exchange(store, "h", ["0", "1"], str(rank), comm.get_init_handle())
            if rank == 0:
                work = comm.reconfigure(1, handles, LONG)
                began = time.monotonic()
                threading.Timer(0.2, comm.abort).start()
                with ranks.raises(RuntimeError, "'given up'", "aborted it before all members had come"):
                    work.wait()
                assert time.monotonic() - began < LONG.total_seconds() / 2
                assert comm.is_aborted() and work.status() == tc.WorkStatus.ERROR
                assert comm.get_rank() == -1
            configure(comm, 2, handles, rank, n)
            assert not comm.is_aborted()
            comm.finalize()

        on_threads(2, body)

    def test_from_two_threads(self) -> None:
        """One after the other, in some order; uuids tell which members meet."""
        comm = seated(0, 1, "from two")
        handles = [comm.get_init_handle()]
        works: List[tc.TorchWork] = []
        threads = [threading.Thread(target=lambda uuid=uuid: works.append(comm.reconfigure(uuid, handles, LONG)))
                   for uuid in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for work in works:
            work.wait()
        assert len(works) == 8
        check_sum(comm)
        comm.finalize()

    def test_what_is_refused(self) -> None:
        comm, other = seated(0, 1, "refused"), seated(0, 1, "other")
        own, its = comm.get_init_handle(), other.get_init_handle()
        with ranks.raises(RuntimeError, "'refused'", "not among the 1 given"):
            comm.reconfigure(1, [its])
        with ranks.raises(RuntimeError, "given twice"):
            comm.reconfigure(1, [own, own])
        with ranks.raises(RuntimeError, "'nonsense' is no handle"):
            comm.reconfigure(1, [own, "nonsense"])
        configure(comm, 1, [own], 0, 1)
        comm.finalize()
        with ranks.raises(RuntimeError, "finalized already"):
            comm.reconfigure(2, [own])
        other.finalize()


# ---- killed, and replaced ----


def survivor(path: str, name: str, last: int) -> None:
    """Three members, of which one is killed; then as many as there are with the one that came for it."""
    store = dist.FileStore(path, -1)
    comm = fresh("job")
    names = ["a", "b", "c"]
    handles = exchange(store, "first", names, name, comm.get_init_handle())
    configure(comm, 1, handles, names.index(name), 3)
    if name == names[last]:
        comm.barrier(False)
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier(False)
    with ranks.raises(dist.DistBackendError):
        while True:
            comm.all_reduce(torch.ones(1000), tc.ReduceOp.SUM, False)
    assert comm.is_aborted()
    join(store, comm, name, last)


def newcomer(path: str, last: int) -> None:
    join(dist.FileStore(path, -1), fresh("job"), "d", last)


def join(store: dist.Store, comm: tc.TorchComm, name: str, last: int) -> None:
    names = ["a", "b", "c"]
    names[last] = "d"
    handles = exchange(store, "second", names, name, comm.get_init_handle())
    configure(comm, 2, handles, names.index(name), 3)
    comm.finalize()


class Killed(unittest.TestCase):
    def test_a_new_process_comes_for_one_that_was_killed(self) -> None:
        """Also for the first, in whose store all had met."""
        for last in (2, 0):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "store")
                processes = [Process(survivor, path, name, last) for name in "abc"]
                processes.append(Process(newcomer, path, last))
                codes = [process.ended(120) for process in processes]
            expected = [0, 0, 0, 0]
            expected[last] = -signal.SIGKILL
            self.assertEqual(codes, expected)


# ---- nothing stays ----


def kept() -> dict:
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"threads": ranks.threads(), "descriptors": len(os.listdir("/proc/self/fd")), "bytes": resident}


def again_and_again(rank: int, n: int, store: dist.Store, turns: int) -> List[dict]:
    comm = fresh("again")
    handles = exchange(store, "h", ["0", "1"], str(rank), comm.get_init_handle())
    seen = []
    for turn in range(turns + 1):
        comm.reconfigure(turn, handles if turn % 2 == 0 else handles[::-1], LONG).wait()
        tensor = torch.ones(10)
        comm.all_reduce(tensor, tc.ReduceOp.SUM, turn % 3 == 0).wait()
        assert tensor[0].item() == 2
        if turn in (turns // 10, turns):
            comm.barrier(False)
            seen.append(kept())
    comm.finalize()
    return seen


class Again(unittest.TestCase):
    TURNS = int(os.environ.get("TUTTI_TEST_TURNS", "1000"))

    def test_a_thousand_times(self) -> None:
        for first, last in ranks.run(again_and_again, 2, self.TURNS, backend=None, timeout=600):
            self.assertLessEqual(last["threads"], first["threads"] + 2)
            self.assertLessEqual(last["descriptors"], first["descriptors"] + 4)
            self.assertLess(last["bytes"] - first["bytes"], 16 << 20, f"{first} {last}")


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    unittest.main()
