# SPDX-License-Identifier: BSD-3-Clause
"""What a call hands out: the Work, its futures, numbers, durations and hooks."""

from __future__ import annotations

import math
import threading
import unittest
import warnings
from datetime import timedelta
from typing import Any, List

import ranks
import torch
import torch.distributed as dist
from meetings import LARGE, PATIENCE, group_of_all, meet, store
from ranks import raises
from reference import ReduceOp, check, inputs
from torch._C._distributed_c10d import WorkResult
from torch.distributed import _functional_collectives as functional


# ---- Work ----


@ranks.on(1, 2, 3)
def work_of_a_collective(rank: int, n: int) -> None:
    given = inputs("work", n, 37, torch.float32)
    tensor = given[rank].clone()
    work = dist.all_reduce(tensor, async_op=True)
    assert isinstance(work, dist.Work)
    assert work.wait() is True and work.is_completed()
    check(tensor, given, ReduceOp.SUM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert work.is_success()
        (result,) = work.result()
    assert result.data_ptr() == tensor.data_ptr()
    assert work.exception() is None
    assert work.wait(timedelta(seconds=1)) is True  # any number of times
    work.synchronize()
    work.block_current_stream()
    with raises(RuntimeError, "source rank"):
        work._source_rank()


@ranks.on(2)
def results_are_the_users_tensors(rank: int, n: int) -> None:
    """Works of every kind of call, also where it went through other memory."""
    group = dist.group.WORLD
    one, many = torch.ones(4), [torch.ones(4) for _ in range(n)]
    whole = torch.ones(4 * n)
    cases = (
        (group.allgather([many], [one]), many),
        (group.reduce_scatter([one], [many]), [one]),
        (group.alltoall(many, [one.clone() for _ in range(n)]), many),
        (group._allgather_base(whole, one), [whole]),
        (group._reduce_scatter_base(one, whole), [one]),
        (group.broadcast(one, 0), [one]),
        (group.reduce(one, 0), [one]),
        (group.gather([many] if rank == 0 else [], [one], dist.distributed_c10d.GatherOptions()), many),
        (group.barrier(), []),
    )
    for work, tensors in cases:
        if tensors is many and rank != 0 and len(work.get_future().wait()) == 0:
            continue  # gather has no result but at the root
        assert [t.data_ptr() for t in work.get_future().wait()] == [t.data_ptr() for t in tensors]


@ranks.on(2, 3)
def waits_end_when_told(rank: int, n: int) -> None:
    """wait(timeout) gives up alone: the call goes on, and is complete when the others come."""
    name = "late"
    given = inputs(name, n, 1000, torch.float32)
    if rank == 0:
        meet(name, 0, 1)
        tensor = given[0].clone()
        work = dist.all_reduce(tensor, async_op=True)
        assert not work.is_completed()
        with raises(dist.DistBackendError, "all_reduce timed out after 40 ms"):
            work.wait(timedelta(milliseconds=40))
        assert not work.is_completed() and work.exception() is None
        store().set("go", "")
        assert work.wait(timedelta(seconds=PATIENCE))
    else:
        store().wait(["go"])
        tensor = given[rank].clone()
        dist.all_reduce(tensor)
    check(tensor, given, ReduceOp.SUM)
    meet("late, end", rank, n)
    store().delete_key("go")
    meet("late, gone", rank, n)


@ranks.on(3)
def many_in_flight(rank: int, n: int) -> None:
    """Hundreds of calls at once, waited for backwards."""
    works, tensors = [], []
    for i in range(300):
        tensors.append(torch.full((i % 7,), float(rank + i)))
        works.append(dist.all_reduce(tensors[-1], async_op=True))
    for work in reversed(works):
        work.wait()
    for i, tensor in enumerate(tensors):
        assert tensor.tolist() == [float(3 * i + 3)] * (i % 7)


@ranks.on(2)
def threads_wait_together(rank: int, n: int) -> None:
    """Several threads on one Work, and calls from several threads on groups of their own."""
    groups = [group_of_all() for _ in range(3)]
    tensors = [torch.full((LARGE // 10,), float(rank)) for _ in groups]
    failures: List[BaseException] = []

    def use(i: int) -> None:
        try:
            for _ in range(5):
                work = dist.all_reduce(tensors[i], group=groups[i], async_op=True)
                waiters = [threading.Thread(target=work.wait) for _ in range(2)]
                for waiter in waiters:
                    waiter.start()
                work.wait()
                assert tensors[i][0] > 0
                for waiter in waiters:
                    waiter.join()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(i,)) for i in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for tensor in tensors:
        assert (tensor == 16).all()
    for group in groups:
        dist.destroy_process_group(group)


@ranks.on(2)
def work_is_unregistered_when_waited_for(rank: int, n: int) -> None:
    size = torch._C._distributed_c10d._get_work_registry_size
    with functional.allow_inflight_collective_as_graph_input_ctx():
        assert size() == 0
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert size() == 1
        work.wait()
        assert size() == 0


# ---- futures ----


@ranks.on(1, 2)
def futures(rank: int, n: int) -> None:
    for count in (5, LARGE):
        given = inputs("future", n, count, torch.float32)
        tensor = given[rank].clone()
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
        (value,) = future.wait()
        assert future.done() and work.is_completed()
        check(value, given, ReduceOp.SUM)
        assert value.data_ptr() == tensor.data_ptr()
        assert work.get_future().done()  # the future of a call that is complete
    outputs = [torch.empty(3) for _ in range(n)]
    work = dist.all_gather(outputs, torch.full((3,), float(rank)), async_op=True)
    gathered = work.get_future().wait()
    assert [t.tolist() for t in gathered] == [[float(r)] * 3 for r in range(n)]
    assert dist.barrier(async_op=True).get_future().wait() == []


@ranks.on(2)
def wait_means_that_futures_are_done(rank: int, n: int) -> None:
    for _ in range(200):
        work = dist.all_reduce(torch.ones(3), async_op=True)
        future = work.get_future()
        work.wait()
        assert future.done()


@ranks.on(2)
def futures_go_on(rank: int, n: int) -> None:
    """then() and callbacks run though nobody waits for the call itself; the error of one is its future's."""
    tensor = torch.full((1000,), float(rank + 1))
    seen = threading.Event()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    halved = future.then(lambda f: f.value()[0] / 2).then(lambda f: f.value() + 1)
    future.add_done_callback(lambda f: seen.set())
    assert torch.equal(halved.wait(), torch.full((1000,), 2.5))
    assert seen.wait(PATIENCE)
    failing = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda f: 1 // 0)
    with raises(Exception, "ZeroDivisionError"):
        failing.wait()
    works = [dist.all_reduce(torch.full((2,), float(i)), async_op=True) for i in range(4)]
    done = torch.futures.wait_all([work.get_future() for work in works])
    assert [value[0].tolist() for value in done] == [[2.0 * i] * 2 for i in range(4)]


@ranks.on(2)
def calls_from_callbacks(rank: int, n: int) -> None:
    """A callback may start the next call, wait for it, and ask the Work it came from."""
    first = torch.ones(100)
    work = dist.all_reduce(first, async_op=True)

    def again(future: Any) -> torch.Tensor:
        assert work.is_completed()
        work.wait()
        (tensor,) = future.value()
        inner = dist.all_reduce(tensor, async_op=True)
        inner.get_future().wait()
        dist.all_reduce(tensor)
        return tensor

    chained = work.get_future().then(again)
    assert (chained.wait() == 8).all()


@ranks.on(2)
def result_futures(rank: int, n: int) -> None:
    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert WorkResult(work.get_future_result().wait()) == WorkResult.SUCCESS and work.is_completed()
    assert WorkResult(work.get_future_result().wait()) == WorkResult.SUCCESS


@ranks.on(2)
def errors_of_work(rank: int, n: int) -> None:
    """What an abort does to a call in flight: exception(), both futures, wait, and later calls say so."""
    group = group_of_all()
    dist.barrier(group=group)
    meet("errors of work, begin", rank, n)
    if rank == 0:
        work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
        future, result = work.get_future(), work.get_future_result()
        later = future.then(lambda f: f.value())
        assert not work.is_completed()
        group.abort()
        with raises(dist.DistBackendError, "all_reduce", "abort"):
            work.wait()
        assert work.is_completed() and isinstance(work.exception(), dist.DistBackendError)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert not work.is_success()
        for each in (future, later, work.get_future()):
            with raises(RuntimeError, "abort"):
                each.wait()
        assert WorkResult(result.wait()) == WorkResult.COMM_ERROR
        with raises(dist.DistBackendError, "abort"):
            dist.all_reduce(torch.ones(4), group=group)
    meet("errors of work", rank, n)
    if rank == 1:
        with raises(dist.DistBackendError, "abort"):
            dist.all_reduce(torch.ones(4), group=group)
    dist.destroy_process_group(group)


# ---- numbers, durations, hooks ----


@ranks.on(1, 2)
def sequence_numbers(rank: int, n: int) -> None:
    """From 0, one more with each collective, for each group by itself."""
    group, other = group_of_all(), group_of_all()
    number = group._get_sequence_number_for_group
    assert number() == 0
    calls = (
        lambda: dist.all_reduce(torch.ones(1), group=group),
        lambda: dist.all_reduce(torch.ones(1), group=group, async_op=True),
        lambda: dist.barrier(group=group),
        lambda: dist.all_gather([torch.empty(2) for _ in range(n)], torch.ones(2), group=group),
        lambda: dist.all_reduce_coalesced([torch.ones(1), torch.ones(2)], group=group),
        lambda: dist.all_to_all_single(torch.empty(n), torch.ones(n), group=group),
    )
    for i, call in enumerate(calls):
        call()
        assert number() == i + 1, (i, number())
    assert other._get_sequence_number_for_group() == 0
    dist.barrier(group=other)
    assert (number(), other._get_sequence_number_for_group()) == (len(calls), 1)
    assert ranks.backend_of(group)._get_sequence_number_for_group() == len(calls)
    for each in (group, other):
        dist.destroy_process_group(each)


@ranks.on(2)
def durations(rank: int, n: int) -> None:
    group = group_of_all()
    before = dist.all_reduce(torch.ones(1024), group=group, async_op=True)
    before.wait()
    group._enable_collectives_timing()
    with raises(RuntimeError, "timing"):
        before._get_duration()
    with dist._coalescing_manager(group, torch.device("cpu"), async_ops=True) as region:
        dist.broadcast(torch.ones(1024), 0, group=group)
        dist.broadcast(torch.ones(1024), 0, group=group)
    for work in (dist.all_reduce(torch.ones(1024), group=group, async_op=True), *region.works):
        work.wait()
        duration = work._get_duration()
        assert 0 < duration < 60_000 and math.isfinite(duration), duration  # milliseconds
    dist.destroy_process_group(group)


@ranks.on(1, 2)
def completion_hooks(rank: int, n: int) -> None:
    """One report for each call, when it is complete, whoever waits or does not."""
    group = group_of_all()
    reports: List[Any] = []
    group._register_on_completion_hook(reports.append)
    with raises(RuntimeError, "hook"):
        group._register_on_completion_hook(reports.append)
    dist.all_reduce(torch.ones(5), group=group)
    dist.all_reduce(torch.ones(LARGE), group=group, async_op=True)
    dist.all_gather([torch.empty(2) for _ in range(n)], torch.ones(2), group=group, async_op=True).wait()
    group._wait_for_pending_works()
    assert len(reports) == 3, len(reports)
    assert sorted(report.seq for report in reports) == [1, 2, 3]
    kinds = {report.seq: report.op_type for report in reports}
    assert "ALLREDUCE" in str(kinds[1]) and "ALLREDUCE" in str(kinds[2]) and "ALLGATHER" in str(kinds[3])
    for report in reports:
        assert report.time_finished >= report.time_started
        assert report.active_duration >= timedelta(0)
    dist.all_reduce(torch.ones(LARGE), group=group, async_op=True)
    dist.destroy_process_group(group)  # waits for the hook
    assert len(reports) == 4


@ranks.on(2)
def a_hook_that_fails(rank: int, n: int) -> None:
    """Nobody is there to catch what it raises; the group goes on, and its end does not wait for it."""
    group = group_of_all()
    reports: List[Any] = []

    def hook(report: Any) -> None:
        reports.append(report)
        raise KeyError("a hook's own")

    group._register_on_completion_hook(hook)
    tensor = torch.ones(5)
    dist.all_reduce(tensor, group=group, async_op=True).wait()
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [4.0] * 5
    group._wait_for_pending_works()
    assert len(reports) == 2
    dist.destroy_process_group(group)


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
