# SPDX-License-Identifier: BSD-3-Clause
# timeout: 300
"""Process groups of tutti_torch.ft: all calls, other members, aborts, deaths, several ranks in one process, and what
torchft takes them for."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from typing import Any, List
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    ReduceScatterOptions,
)

import ranks
import tutti_torch.comms as tc
from comms_support import Process, on_threads
from tutti_torch.ft import meeting
from tutti_torch.ft import process_group as pgs
from tutti_torch.ft.process_group import ProcessGroup, ProcessGroupBabyTutti, ProcessGroupTutti
from tutti_torch.ft.torchcomms import ProcessGroupTorchComms
from tutti_torch.ft.work import _DummyWork

LONG = timedelta(seconds=60)
SOON = 5.0  # seconds, on a busy machine


class Meeting:
    """Where ranks tell one another their handles: for those that are threads."""

    def __init__(self, n: int) -> None:
        self.barrier, self.handles = threading.Barrier(n, timeout=60), [""] * n

    def of(self, pg: ProcessGroup, rank: int) -> List[str]:
        self.barrier.wait()
        self.handles[rank] = pg.get_reconfigure_handle()
        self.barrier.wait()
        return list(self.handles)


def reconfigure(pg: ProcessGroup, uuid: int, handles: Any, timeout: timedelta = LONG) -> None:
    opts = pgs.ReconfigureOptions()
    opts.uuid, opts.handles, opts.timeout = uuid, handles, timeout
    pg.reconfigure(opts).wait()


def check_sum(pg: ProcessGroup, rank: int, n: int) -> None:
    for count in (1, 5000):
        tensor = torch.full((count,), float(rank + 1))
        pg.allreduce([tensor], dist.ReduceOp.SUM).wait()
        assert tensor[-1].item() == n * (n + 1) / 2, tensor


def all_calls(pg: ProcessGroup, rank: int, n: int) -> None:
    mine = torch.arange(2 * n, dtype=torch.float32) + 100 * rank
    everyone = [torch.arange(2 * n, dtype=torch.float32) + 100 * r for r in range(n)]
    total = torch.stack(everyone).sum(0)

    gathered = [[torch.empty(2 * n) for _ in range(n)]]
    pg.allgather(gathered, [mine], AllgatherOptions()).wait()
    assert all(map(torch.equal, gathered[0], everyone))

    flat = torch.empty(2 * n * n)
    pg.allgather_into_tensor_coalesced([flat], [mine], AllgatherOptions()).wait()
    assert torch.equal(flat, torch.cat(everyone))

    tensor = mine.clone()
    pg.allreduce([tensor], AllreduceOptions()).wait()
    assert torch.equal(tensor, total)

    pair = [mine.clone(), mine + 1]
    pg.allreduce_coalesced(pair, AllreduceCoalescedOptions()).wait()
    assert torch.equal(pair[0], total) and torch.equal(pair[1], total + n)

    out = torch.empty(2 * n)
    pg.alltoall_base(out, mine, [2] * n, [2] * n, AllToAllOptions()).wait()
    assert torch.equal(out, torch.cat([e[2 * rank : 2 * rank + 2] for e in everyone]))

    pg.barrier(BarrierOptions()).wait()
    tensor = mine.clone()
    pg.broadcast_one(tensor, n - 1).wait()
    assert torch.equal(tensor, everyone[n - 1])

    out = torch.empty(2)
    pg.reduce_scatter([out], [list(mine.split(2))], ReduceScatterOptions()).wait()
    assert torch.equal(out, total[2 * rank : 2 * rank + 2])
    pg.reduce_scatter_tensor_coalesced([out], [mine], ReduceScatterOptions()).wait()
    assert torch.equal(out, total[2 * rank : 2 * rank + 2])

    work = pg.send([mine], (rank + 1) % n, 7)
    pg.recv([out := torch.empty(2 * n)], (rank - 1) % n, 7).wait()
    work.wait()
    assert torch.equal(out, everyone[rank - 1])


class Threads(unittest.TestCase):
    def test_all_calls(self) -> None:
        for kind in (ProcessGroupTutti, ProcessGroupBabyTutti):
            meeting = Meeting(3)

            def body(rank: int, n: int, store: dist.Store) -> None:
                pg = kind(timeout=LONG)
                reconfigure(pg, 1, meeting.of(pg, rank))
                assert pg.size() == n and pg.getBackendName() == "tutti"
                all_calls(pg, rank, n)
                assert pg.errored() is None
                pg.shutdown()

            on_threads(3, body)

    def test_the_secret_may_be_a_file(self) -> None:
        """The store where members meet believes who knows it."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("sesame\n")
            file.flush()
            with mock.patch.dict(os.environ, {"TUTTI_SECRET": "", "TUTTI_SECRET_FILE": file.name}):
                self.assertEqual(meeting.secret(), "sesame")
            with mock.patch.dict(os.environ, {"TUTTI_SECRET": "other", "TUTTI_SECRET_FILE": file.name}):
                self.assertEqual(meeting.secret(), "other")

    def test_a_baby_counts_what_is_held(self) -> None:
        pg = ProcessGroupBabyTutti(timeout=LONG)
        reconfigure(pg, 1, [pg.get_reconfigure_handle()])
        work = pg.allreduce([torch.ones(2)], AllreduceOptions())
        work.wait()
        self.assertEqual(pg.num_active_work(), 1)
        del work
        self.assertEqual(pg.num_active_work(), 0)
        members = pg._p
        with ranks.raises(TimeoutError, "timed out after 0.05 seconds"):
            self.wait_for_nobody(pg)
        self.assertFalse(members.is_alive())
        pg.shutdown()
        with ranks.raises(OSError, "handle is closed"):
            pg.allreduce([torch.ones(2)], AllreduceOptions())

    def test_other_members(self) -> None:
        """All; in another order; without the last; one alone; all again; by a store, as torchft did until 2026-04."""
        meeting = Meeting(4)
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

        def body(rank: int, n: int, store: dist.Store) -> None:
            pg = ProcessGroupTutti(timeout=LONG)
            handles = meeting.of(pg, rank)
            reconfigure(pg, 1, handles)
            check_sum(pg, rank, n)
            handles = meeting.of(pg, rank)
            reconfigure(pg, 1, handles[::-1])  # a number may come again: handles do not
            check_sum(pg, n - 1 - rank, n)
            handles = meeting.of(pg, rank)
            if rank < 3:
                reconfigure(pg, 2, handles[:3])
                check_sum(pg, rank, 3)
            handles = meeting.of(pg, rank)
            reconfigure(pg, 3, [handles[rank]])
            check_sum(pg, 0, 1)
            handles = meeting.of(pg, rank)
            reconfigure(pg, 4, handles)
            check_sum(pg, rank, n)
            pg.configure(f"127.0.0.1:{server.port}/torchft/5/0", "group", rank, n, 5, 0, 1)
            check_sum(pg, rank, n)
            pg.shutdown()

        on_threads(4, body)

    def test_what_is_refused(self) -> None:
        pg, other = ProcessGroupTutti(timeout=LONG), ProcessGroupTutti(timeout=LONG)
        with ranks.raises(RuntimeError, "no members until it is configured"):
            pg.allreduce([torch.ones(1)], AllreduceOptions())
        with ranks.raises(ValueError, "0 times among the 1 given"):
            reconfigure(pg, 1, [other.get_reconfigure_handle()])
        with ranks.raises(ValueError, "give a list"):
            reconfigure(pg, 1, {pg.get_reconfigure_handle()})
        with ranks.raises(ValueError, "none of get_reconfigure_handle"):
            reconfigure(pg, 1, ["nonsense"])
        with ranks.raises(ValueError, "no address"):
            pgs.create_store_client("nowhere/prefix", LONG)

    def wait_for_nobody(self, pg: ProcessGroup) -> None:
        missing = json.dumps({"id": "missing", "store": "nowhere:1", "global_rank": None})
        reconfigure(pg, 2, [pg.get_reconfigure_handle(), missing], timedelta(milliseconds=50))

    def test_who_does_not_come(self) -> None:
        pg = ProcessGroupTutti(timeout=LONG)
        self.assertTrue(pg.supports_reconfigure)
        with ranks.raises(RuntimeError, "imed out", "timeout after 50ms"):
            self.wait_for_nobody(pg)
        reconfigure(pg, 2, [pg.get_reconfigure_handle()])
        check_sum(pg, 0, 1)

    def test_an_abort_ends_calls(self) -> None:
        """Failures of this rank and of the others; the group works again with other members."""
        meeting = Meeting(3)

        def body(rank: int, n: int, store: dist.Store) -> None:
            pg = ProcessGroupTutti(timeout=LONG)
            reconfigure(pg, 1, meeting.of(pg, rank))
            if rank < 2:
                work = pg.allreduce([torch.ones(10)], AllreduceOptions())
                if rank == 0:
                    threading.Timer(0.2, pg.abort).start()
                begun = time.monotonic()
                with ranks.raises(RuntimeError, "abort"):
                    work.wait()
                assert time.monotonic() - begun < SOON
                assert "aborted" in str(pg.errored())
            reconfigure(pg, 2, meeting.of(pg, rank))
            assert pg.errored() is None
            check_sum(pg, rank, n)
            pg.shutdown()

        on_threads(3, body)

    def test_an_abort_while_members_meet(self) -> None:
        """Is not lost: the group has no members then, and gets others later."""
        meeting = Meeting(2)

        def body(rank: int, n: int, store: dist.Store) -> None:
            pg = ProcessGroupTutti(timeout=LONG)
            handles = meeting.of(pg, rank)
            if rank == 0:
                threading.Timer(0.2, pg.abort).start()
                with ranks.raises(dist.DistBackendError, "aborted or shut down while its members met"):
                    reconfigure(pg, 1, handles)
            else:
                time.sleep(0.5)
                reconfigure(pg, 1, handles)
            reconfigure(pg, 2, meeting.of(pg, rank))
            check_sum(pg, rank, n)
            pg.shutdown()

        on_threads(2, body)

    def test_timeouts(self) -> None:
        meeting = Meeting(2)

        def body(rank: int, n: int, store: dist.Store) -> None:
            pg = ProcessGroupTutti()
            assert pg._timeout == timedelta(seconds=60) and not pg.timeout_given
            reconfigure(pg, 1, meeting.of(pg, rank))
            pg.set_timeout(timedelta(milliseconds=100))
            if rank == 0:
                with ranks.raises(RuntimeError, "timed out after 100 ms"):
                    pg.allreduce([torch.ones(10)], AllreduceOptions()).wait()
                assert "timed out" in str(pg.errored())
            meeting.barrier.wait()
            pg.shutdown()

        on_threads(2, body)


# ---- deaths ----


def member(path: str, rank: int) -> None:
    """Three groups; the last one is killed while the others wait for it, and they go on without it."""
    store = dist.FileStore(path, -1)
    pg = ProcessGroupTutti(timeout=LONG)

    def meet(uuid: int, members: List[int]) -> None:
        store.set(f"{uuid}/{rank}", pg.get_reconfigure_handle())
        reconfigure(pg, uuid, [store.get(f"{uuid}/{r}").decode() for r in members])
        check_sum(pg, members.index(rank), len(members))

    meet(1, [0, 1, 2])
    if rank == 2:
        store.wait(["waits/0", "waits/1"])
        os.kill(os.getpid(), signal.SIGKILL)
    work = pg.allreduce([torch.ones(1 << 20)], AllreduceOptions())
    store.set(f"waits/{rank}", "")
    with ranks.raises(dist.DistBackendError, "Connection closed by peer: rank 2 died"):
        work.wait()
    assert "rank 2" in str(pg.errored()), pg.errored()
    meet(2, [1, 0])
    assert pg.errored() is None
    pg.shutdown()


class Deaths(unittest.TestCase):
    def test_a_member_is_killed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            processes = [Process(member, os.path.join(folder, "store"), rank) for rank in range(3)]
            codes = [process.ended(60) for process in processes]
        self.assertEqual(codes, [0, 0, -signal.SIGKILL])


# ---- what others take them for ----


class Theirs(unittest.TestCase):
    def test_torchft_takes_them(self) -> None:
        """What torchft.process_group.ProcessGroup is, ours are, too, where it is loaded."""

        class Base(dist.ProcessGroup):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                self.seen = args

        module = mock.Mock(ProcessGroup=Base)
        with mock.patch.dict("sys.modules", {"torchft.process_group": module}):
            pg = ProcessGroupTutti(timeout=LONG)
            self.assertIsInstance(pg, Base)
            self.assertEqual((pg.seen, repr(pg)), ((0, 1), "ProcessGroupTutti(pg=None)"))
            self.assertIsInstance(pg, ProcessGroupTutti)
            reconfigure(pg, 1, [pg.get_reconfigure_handle()])
            all_calls(pg, 0, 1)
            pg.shutdown()

    def test_functional_collectives(self) -> None:
        dist.init_process_group("tutti", rank=0, world_size=1, store=dist.HashStore())
        try:
            pg = ProcessGroupTutti(timeout=LONG).register("ft_test")
            reconfigure(pg, 1, [pg.get_reconfigure_handle()])
            self.assertIs(dist.distributed_c10d._resolve_process_group(pg.group_name), pg)
            tensor = torch.ones(3)
            result = functional.all_reduce(tensor, "sum", pg)
            self.assertEqual(result.tolist(), [1.0] * 3)
            pg.unregister()
        finally:
            dist.destroy_process_group()

    def test_wrappers(self) -> None:
        one, options = torch.ones(1), AllreduceOptions()
        dummy = pgs.ProcessGroupDummy(0, 1)
        wrapped = pgs.ProcessGroupWrapper(pg=dummy)
        reconfigure(wrapped, 1, [wrapped.get_reconfigure_handle()])
        self.assertEqual((dummy.reconfigure_count, repr(wrapped)), (1, "ProcessGroupWrapper(pg=ProcessGroupDummy())"))

        swallowing = pgs.ErrorSwallowingProcessGroupWrapper(pgs.FakeProcessGroupWrapper(dummy))
        self.assertTrue(swallowing.allreduce([one], options).wait())
        self.assertIsNone(swallowing.error())
        swallowing.parent.report_future_error(RuntimeError("injected"))
        self.assertTrue(swallowing.allreduce([one], options).wait())
        self.assertIn("injected", str(swallowing.error()))
        self.assertIsInstance(swallowing.allreduce([one], options), _DummyWork)
        reconfigure(swallowing, 2, [swallowing.get_reconfigure_handle()])
        self.assertIsNone(swallowing.error())

        fake = pgs.FakeProcessGroupWrapper(dummy)
        fake.report_future_error(RuntimeError("injected"))
        work = fake.allreduce([one], options)
        with ranks.raises(RuntimeError, "injected"):
            work.wait()
        with ranks.raises(RuntimeError, "injected"):
            work.get_future().wait()
        self.assertTrue(fake.allreduce([one], options).wait())


class OverComms(unittest.TestCase):
    def test_a_communicator_of_torchcomms(self) -> None:
        """Gets members, others, and after an abort again; and makes the calls of a process group."""
        stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(3)]

        def body(rank: int, n: int, store: dist.Store) -> None:
            comm = tc.new_comm("tutti", torch.device("cpu"), "ft", enable_reconfigure=True, timeout=LONG,
                               hints={"rank": str(rank), "size": str(n)})
            pg = ProcessGroupTorchComms(comm, LONG)
            self.assertEqual(pg.getBackendName(), "tutti")
            for number, place in enumerate(stores):
                pg.configure(f"127.0.0.1:{place.port}/q/{number}", "g", n - 1 - rank, n, number + 1)
                self.assertEqual(pg.size(), n)
                check_sum(pg, n - 1 - rank, n)
                self.assertIsNone(pg.errored())
                store.set(f"{number}/{rank}", "")
                store.wait([f"{number}/{peer}" for peer in range(n)])
                if number == 1:
                    pg.abort()
                    self.assertIn("aborted", str(pg.errored()))
            pg.shutdown()

        on_threads(3, body)


if __name__ == "__main__":
    unittest.main()
