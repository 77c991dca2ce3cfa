# SPDX-License-Identifier: BSD-3-Clause
"""Groups: new ones, split, merged and shrunk ones, their options and timeouts, the barrier that names who is missing,
and the end: abort, shutdown, destroy, and another start in the same process."""

from __future__ import annotations

import copy
import inspect
import os
import signal
import time
import unittest
from datetime import timedelta
from typing import Any, List, Optional

import ranks
import torch
import torch.distributed as dist
from ranks import backend_of, raises
from torch.distributed import distributed_c10d as c10d

PATIENCE = timedelta(seconds=40)


def sum_of(value: float, group: Any = None) -> float:
    tensor = torch.tensor([value])
    if group is None or isinstance(group, dist.ProcessGroup) and group in c10d._world.pg_map:
        dist.all_reduce(tensor, group=group)
    else:  # one that torch.distributed's functions do not know
        group.allreduce([tensor]).wait()
    return tensor.item()


def meet(name: str, rank: int, n: int) -> None:
    store = c10d._get_default_store()
    store.set(f"{name}/{rank}", "here")
    store.wait([f"{name}/{r}" for r in range(n)])


# ---- new groups ----


@ranks.on(1, 2, 3)
def what_the_group_says(rank: int, n: int) -> None:
    group, backend = c10d._get_default_group(), backend_of()
    assert dist.is_backend_available("tutti") and dist.get_backend() == "tutti"
    assert backend.name() == "tutti" and backend._get_backend_name() == "tutti"
    assert (backend.rank(), backend.size(), group.rank(), group.size()) == (rank, n, rank, n)
    assert backend.supports_coalescing and backend.supports_splitting and backend.supports_shrinking
    assert not backend.supports_time_estimate
    for device in ("cpu", "cuda", "xpu"):  # one backend serves all
        assert group._get_backend(torch.device(device)).name() == "tutti"


@ranks.on(4)
def subgroups(rank: int, n: int) -> None:
    """Disjoint, overlapping, in any order, of one; those outside pass through."""
    for members in ([0, 1], [1, 2, 3], [3, 0], [2], [0, 1, 2, 3]):
        group = dist.new_group(members)
        if rank not in members:
            assert group == dist.GroupMember.NON_GROUP_MEMBER
            continue
        assert sum_of(2.0**rank, group) == sum(2.0**r for r in members)
        tensor = torch.tensor([float(rank)])
        dist.broadcast(tensor, members[0], group=group)
        assert tensor.item() == members[0]
        assert dist.get_process_group_ranks(group) == sorted(members)
        dist.destroy_process_group(group)
    mine, all_ = dist.new_subgroups(2)
    assert sum_of(rank, mine) == {0: 1, 1: 5}[rank // 2] and len(all_) == 2
    pair = [rank, (rank + 2) % 4]
    crossed = dist.new_group(sorted(pair), use_local_synchronization=True)
    assert sum_of(rank, crossed) == sum(pair)
    assert sum_of(1) == n


@ranks.on(2)
def many_groups_leave_nothing(rank: int, n: int) -> None:
    """What a group takes, it gives back."""

    def held() -> tuple:
        return len(os.listdir("/proc/self/fd")), ranks.threads()

    for i in range(12):
        group = dist.new_group()
        assert sum_of(1, group) == n
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        work.get_future().wait()
        dist.destroy_process_group(group)
        if i == 2:
            before = held()
    meet("many groups", rank, n)
    ranks.settle(before, held)


# ---- split, merge ----


@ranks.on(4)
def split(rank: int, n: int) -> None:
    parent = c10d._get_default_group()
    half = [0, 2] if rank % 2 == 0 else [1, 3]
    child = parent.split_group(half, timeout=timedelta(seconds=33), group_name=f"half{rank % 2}")
    assert (child.rank(), child.size()) == (half.index(rank), 2)
    assert sum_of(rank, child) == sum(half)
    assert backend_of(child).name() == "tutti"
    assert backend_of(child).options._timeout == timedelta(seconds=33)
    assert backend_of().options._timeout != timedelta(seconds=33)
    again = child.split_group([child.rank()], group_name=f"alone{rank}")
    assert again.size() == 1 and sum_of(7, again) == 7
    some = parent.split_group([3, 1], group_name="some")
    if rank in (1, 3):
        assert sum_of(rank, some) == 4
    else:
        assert some is None
    assert sum_of(1) == n


@ranks.on(4)
def split_by_the_function(rank: int, n: int) -> None:
    group = dist.split_group(split_ranks=[[0, 1], [3, 2]])
    members = [0, 1] if rank < 2 else [2, 3]
    assert dist.get_process_group_ranks(group) == members and sum_of(rank, group) == sum(members)
    assert dist.get_backend(group) == "tutti"
    inner = dist.split_group(group, [[1]], timeout=timedelta(seconds=44), group_desc="inner")
    if rank % 2:
        assert inner.group_desc == "inner" and sum_of(5, inner) == 5
        assert backend_of(inner).options._timeout == timedelta(seconds=44)
    else:
        assert inner is None
    dist.destroy_process_group(group)
    if "backend" in inspect.signature(dist.split_group).parameters:
        whole = dist.split_group(split_ranks=[[0, 1, 2, 3]], backend="tutti")
        assert sum_of(1, whole) == n
        with raises(Exception):  # there is none
            dist.split_group(split_ranks=[[0, 1, 2, 3]], backend="gloo")
    for wrong in ([], [[]], [[0, 0]], [[0, 4]], [[0], [0, 1]]):
        with raises(ValueError, "split_ranks"):
            dist.split_group(split_ranks=wrong)
    assert sum_of(1) == n


@ranks.on(4)
def split_beside_groups_of_some(rank: int, n: int) -> None:
    """Members that are in different numbers of groups find each other."""
    uneven = dist.new_group([0, 1])
    rows = dist.split_group(split_ranks=[[0, 2], [1, 3]], timeout=PATIENCE)
    again = dist.split_group(split_ranks=[[0, 2], [1, 3]], timeout=PATIENCE)
    assert rows.group_name != again.group_name
    for group in (rows, again):
        assert sum_of(rank, group) == {0: 2, 1: 4}[rank % 2]
        found = [None] * 2
        dist.all_gather_object(found, group.group_name, group=group)
        assert found[0] == found[1]
    one = dist.split_group(rows, [[0], [1]], timeout=PATIENCE)
    assert sum_of(rank, one) == rank
    for group in (one, again, rows) + ((uneven,) if rank < 2 else ()):
        dist.destroy_process_group(group)
    assert sum_of(1) == n


@ranks.on(4)
def merge(rank: int, n: int) -> None:
    half = c10d._get_default_group().split_group([0, 1] if rank < 2 else [2, 3], group_name=f"part{rank // 2}")
    store = dist.PrefixStore("merge", c10d._get_default_store())
    whole = half.merge_remote_group(store, n, timeout=PATIENCE, group_name="whole")
    assert whole.size() == n and sum_of(2.0**rank, whole) == 15
    seen: List[torch.Tensor] = [torch.empty(1) for _ in range(n)]
    whole.allgather([seen], [torch.tensor([float(whole.rank())])]).wait()
    assert [int(each) for each in seen] == list(range(n))
    assert sum_of(1, half) == 2


# ---- shrink ----


def shrink_default(rank: int, n: int) -> None:
    """The default group loses a rank, which leaves; the others get a new default group."""
    if rank == 1:
        return
    assert sum_of(1, dist.new_group([0, 2], use_local_synchronization=True)) == 2
    group = dist.shrink_group([1])
    assert dist.get_world_size() == n - 1 and group == c10d._get_default_group()
    assert sum_of(rank) == sum(r for r in range(n) if r != 1)
    assert dist.get_rank() == (0 if rank == 0 else rank - 1)
    assert backend_of().name() == "tutti"
    dist.barrier()


def shrink_dead(rank: int, n: int) -> None:
    """A rank is killed in the middle of a call: the others are told, shrink, and go on."""
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    with raises(dist.DistBackendError, "rank 2 died"):
        dist.all_reduce(torch.ones(1000))
    dist.shrink_group([2], shrink_flags=c10d.SHRINK_ABORT)
    assert sum_of(1) == n - 1
    dist.destroy_process_group()


def shrink_hanging(rank: int, n: int) -> None:
    """Calls in flight, for which a rank never comes, end with SHRINK_ABORT."""
    dist.barrier()
    store = c10d._get_default_store()
    if rank == 0:
        store.add("hanging", 1)
        return store.wait(["shrunk"])
    work = dist.all_reduce(torch.ones(3), async_op=True)
    store.add("hanging", 1)
    while store.add("hanging", 0) < n:  # rank 0 has left the barrier, too
        time.sleep(0.01)
    group = dist.shrink_group([0], shrink_flags=c10d.SHRINK_ABORT)
    with raises(dist.DistBackendError):
        work.wait()
    assert work.is_completed() and sum_of(1, group) == n - 1
    store.set("shrunk", "")
    dist.destroy_process_group()


def shrink_subgroup(rank: int, n: int) -> None:
    parent = dist.new_group([0, 1, 2])
    if rank == 3:
        pass
    elif rank == 0:
        dist.destroy_process_group(parent)
    else:
        child = dist.shrink_group([0], group=parent)
        assert child.size() == 2 and sum_of(rank, child) == 3
        with raises(TypeError):
            dist.shrink_group("0")
        with raises(ValueError, "empty"):
            dist.shrink_group([])
    assert sum_of(1) == n


class Shrink(unittest.TestCase):
    def test_default_group(self) -> None:
        ranks.run(shrink_default, 3)

    def test_calls_in_flight(self) -> None:
        ranks.run(shrink_hanging, 3)

    def test_subgroup(self) -> None:
        ranks.run(shrink_subgroup, 4)

    def test_dead_rank(self) -> None:
        with self.assertRaises(ranks.RankError) as caught:
            ranks.run(shrink_dead, 3)
        self.assertRegex(str(caught.exception), r"^rank 2 of 3: died of SIGKILL$")


# ---- options, timeouts ----


@ranks.on(2)
def options(rank: int, n: int) -> None:
    import tutti_torch

    given = tutti_torch._C.Backend.Options(timedelta(seconds=17))
    assert given._timeout == timedelta(seconds=17) and given.backend == "tutti"
    for other in (copy.copy(given), copy.deepcopy(given)):
        other._timeout = timedelta(seconds=18)
        assert given._timeout == timedelta(seconds=17) and other.backend == "tutti"
    group = dist.new_group(timeout=timedelta(seconds=19), pg_options=given)
    assert backend_of(group).options._timeout == timedelta(seconds=19)
    dist.destroy_process_group(group)


@ranks.on(2)
def timeouts_can_be_set(rank: int, n: int) -> None:
    """On every group, in every way that there is; what is set is what counts."""
    world = c10d._get_default_group()
    groups = [world, dist.new_group(), world.split_group([0, 1], group_name="st")]
    before = backend_of().options._timeout
    setters = [lambda time, group: c10d._set_pg_timeout(time, group), lambda time, group: group.set_timeout(time)]
    if hasattr(dist, "set_timeout"):
        setters.append(lambda time, group: dist.set_timeout(time, group))
    for group in groups:
        for i, setter in enumerate(setters):
            if i == 0 and group not in c10d._world.pg_map:
                continue
            setter(timedelta(seconds=50 + i), group)
            assert backend_of(group).options._timeout == timedelta(seconds=50 + i)
            assert sum_of(1, group) == n
    groups[0].set_timeout(before)
    groups[1].set_timeout(timedelta(milliseconds=200))
    if rank == 0:
        begin = time.monotonic()
        with raises(dist.DistBackendError, "rank 1"):
            dist.barrier(group=groups[1])
        assert time.monotonic() - begin < 20
    meet("timeouts", rank, n)
    dist.destroy_process_group(groups[1])


# ---- the barrier that names who is missing ----


@ranks.on(1, 3)
def monitored_barrier(rank: int, n: int) -> None:
    for _ in range(3):
        dist.monitored_barrier()
        dist.monitored_barrier(timeout=PATIENCE, wait_all_ranks=True)
        backend_of().monitored_barrier(PATIENCE, False)


@ranks.on(3, 4)
def monitored_barrier_names_the_missing(rank: int, n: int) -> None:
    """One, or all of them; beside a collective that hangs for the same reason; and the group is usable afterwards."""
    group = dist.new_group()
    missing = (1, 2) if n > 3 else (1,)
    short = timedelta(seconds=1)  # in which those that come meet
    for wait_all in (False, True):
        words = f"Ranks {'1, 2' if n > 3 else '1'} failed to pass" if wait_all else "Rank 1 failed to pass"
        if rank in missing:
            meet(f"missing{wait_all}", rank, n)
            with raises(dist.DistBackendError):
                dist.monitored_barrier(group, short)  # so that its count is that of the others
        else:
            with raises(dist.DistBackendError, words if rank == 0 else "Please check rank 0"):
                dist.monitored_barrier(group, short, wait_all_ranks=wait_all)
            meet(f"missing{wait_all}", rank, n)
        meet(f"next{wait_all}", rank, n)
    dist.monitored_barrier(group, PATIENCE)
    assert sum_of(1, group) == n
    dist.destroy_process_group(group)


# ---- the end ----


@ranks.on(2)
def a_group_that_was_shut_down(rank: int, n: int) -> None:
    group = dist.new_group()
    assert sum_of(1, group) == n
    backend = backend_of(group)
    for _ in range(2):
        group.shutdown()
    tensor = torch.ones(2)
    for call in (
        lambda: dist.all_reduce(tensor, group=group),
        lambda: dist.isend(tensor, 1 - rank, group=group),
        lambda: backend.allreduce([tensor], c10d.AllreduceOptions()),
        lambda: backend.shrink([1 - rank]),
    ):
        with raises(dist.DistBackendError, "destroyed"):
            call()
    backend.abort()  # nothing is left to abort
    dist.destroy_process_group(group)
    assert sum_of(1) == n


@ranks.on(2)
def shutdown_waits_for_calls(rank: int, n: int) -> None:
    """Those in flight are complete afterwards, and right."""
    group = dist.new_group()
    tensors = [torch.full((100_003,), float(rank + i)) for i in range(5)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    dist.destroy_process_group(group)
    for i, (work, tensor) in enumerate(zip(works, tensors)):
        work.wait()
        assert (tensor == 2 * i + 1).all()


def lives(rank: int, n: int, store: dist.Store) -> None:
    """Starts, ends in several ways, and starts again, at last with fewer ranks."""
    for life, end in enumerate(("destroy", "abort", "destroy after abort", "forget")):
        dist.init_process_group("tutti", store=dist.PrefixStore(str(life), store), rank=rank, world_size=n)
        other = dist.new_group()
        assert sum_of(rank) == n * (n - 1) / 2 and sum_of(1, other) == n
        meet("met", rank, n)
        if end == "abort":
            c10d._abort_process_group()
        elif end == "destroy after abort":
            work: Optional[dist.Work] = None
            if rank > 0:
                work = dist.all_reduce(torch.ones(1), group=other, async_op=True)
            store.add("started", 1)
            while store.add("started", 0) < n:
                time.sleep(0.01)
            if rank == 0:
                c10d._get_default_group().abort()
                other.abort()
            else:
                with raises(dist.DistBackendError, "abort"):
                    work.wait()
            begin = time.monotonic()
            dist.destroy_process_group()
            assert time.monotonic() - begin < 20
        else:
            dist.destroy_process_group()
        assert not dist.is_initialized()
    if rank < n - 1:
        dist.init_process_group("tutti", store=dist.PrefixStore("last", store), rank=rank, world_size=n - 1)
        assert sum_of(1) == n - 1


def lives_of_one_store(rank: int, n: int, store: dist.Store) -> None:
    """What one life leaves in the store means nothing to the next one."""
    for life in range(3):
        dist.init_process_group("tutti", store=store, rank=rank, world_size=n)
        pair = dist.split_group(split_ranks=[[0, 1]], timeout=PATIENCE)
        assert sum_of(rank, pair) == 1
        dist.monitored_barrier(timeout=PATIENCE)
        if rank == 1:  # comes too late
            store.wait([f"missed {life}"])
        with raises(dist.DistBackendError, "monitoredBarrier"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.2))
        store.set(f"missed {life}", "")
        dist.monitored_barrier(timeout=PATIENCE)
        dist.destroy_process_group()


def by_address(rank: int, n: int, store: dist.Store) -> None:
    """env:// and tcp:// over and over."""
    if rank == 0:
        server = dist.TCPStore("127.0.0.1", 0, n, is_master=True, wait_for_workers=False)
        store.set("port", str(server.port))
    port = int(store.get("port"))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(n))
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the server is there already
    for _ in range(3):
        dist.init_process_group("tutti")
        assert sum_of(1) == n
        dist.monitored_barrier(timeout=PATIENCE)
        dist.destroy_process_group()
    store.add("done", 1)
    while store.add("done", 0) < n:
        time.sleep(0.01)


class Lives(unittest.TestCase):
    def test_starts_and_ends(self) -> None:
        ranks.run(lives, 3, backend=None)

    def test_of_one_store(self) -> None:
        ranks.run(lives_of_one_store, 2, backend=None)

    def test_by_address(self) -> None:
        ranks.run(by_address, 2, backend=None)


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
