# SPDX-License-Identifier: BSD-3-Clause
"""Messages from one rank to another, and coalesced regions: send and recv by source and tag, from any source, batches
in any order, the coalescing manager with and without a device, and what becomes of a region that an error leaves."""

from __future__ import annotations

import time
import unittest
from datetime import timedelta
from typing import List

import ranks
import reference
import torch
import torch.distributed as dist
from meetings import meet
from ranks import raises
from reference import ReduceOp, check, same, values

CPU = torch.device("cpu")


# ---- send, recv ----


@ranks.on(2, 3)
def ring_of_every_type(rank: int, n: int) -> None:
    """Blocking and not; counts from none to more than any buffer between the ranks holds."""
    right, left = (rank + 1) % n, (rank - 1) % n
    for dtype in reference.MOVED:
        for count in (0, 1, 37, 300_007):
            if count > 1000 and dtype not in (torch.uint8, torch.float32, torch.complex128):
                continue
            what = f"{dtype} x {count}"
            mine, got = values(what, rank, count, dtype), torch.empty(count, dtype=dtype)
            if rank == 0:
                dist.send(mine, right)
                assert dist.recv(got, left) == left
            else:
                assert dist.recv(got, left) == left
                dist.send(mine, right)
            same(got, values(what, left, count, dtype), what)
            got = torch.empty(count, dtype=dtype)
            works = [dist.irecv(got, left), dist.isend(mine, right)]
            for work in works:
                work.wait()
            same(got, values(what, left, count, dtype), what)


@ranks.on(2)
def tags_choose(rank: int, n: int) -> None:
    """Messages of one tag come in the order in which they were sent, those of others wait."""
    tags = (0, 7, 2**20, 7)
    if rank == 0:
        works = [dist.isend(torch.tensor([float(i)]), 1, tag=tag) for i, tag in enumerate(tags)]
        for work in works:
            work.wait()
        return
    for tag, want in ((2**20, 2), (7, 1), (7, 3), (0, 0)):
        got = torch.empty(1)
        dist.recv(got, 0, tag=tag)
        assert got.item() == want, (tag, got)


@ranks.on(3)
def from_any_source(rank: int, n: int) -> None:
    if rank != 0:
        dist.send(torch.full((5,), float(rank)), 0, tag=3)
        dist.send(torch.full((5,), 10.0 * rank), 0, tag=4)
        return
    seen = set()
    for _ in range(n - 1):
        got = torch.empty(5)
        source = dist.recv(got, tag=3)
        assert got.tolist() == [float(source)] * 5
        seen.add(source)
    assert seen == {1, 2}
    for _ in range(n - 1):
        got = torch.empty(5)
        work = dist.irecv(got, tag=4)
        work.wait()
        source = work._source_rank()
        assert source == work.source_rank() and got.tolist() == [10.0 * source] * 5
        seen.remove(source)


@ranks.on(3)
def group_ranks_in_a_subgroup(rank: int, n: int) -> None:
    """Tags and sources are the subgroup's own."""
    group = dist.new_group([2, 1])
    if rank == 0:
        return
    tensor = torch.full((2,), float(rank))
    if rank == 1:
        dist.send(tensor, 2, group=group)
        got = torch.empty(2)
        assert dist.recv(got, group_src=1, group=group) == 2 and got.tolist() == [2.0] * 2
    else:
        got = torch.empty(2)
        assert dist.recv(got, group=group) == 1 and got.tolist() == [1.0] * 2
        dist.send(tensor, group_dst=0, group=group)
    dist.destroy_process_group(group)


@ranks.on(2)
def to_itself(rank: int, n: int) -> None:
    group = ranks.backend_of()
    sent, got = torch.arange(9.0) + rank, torch.empty(9)
    works = [group.recv([got], rank, 5), group.send([sent], rank, 5)]
    for work in works:
        work.wait()
    same(got, sent)


@ranks.on(2)
def longer_messages_are_refused(rank: int, n: int) -> None:
    """A message that does not fit its tensor fails the receive, not the group."""
    group = dist.new_group()
    if rank == 0:
        dist.send(torch.arange(8.0), 1, group=group)
        dist.send(torch.arange(3.0), 1, group=group)
    else:
        with raises(dist.DistBackendError, "recv", "32 bytes", "has 16"):
            dist.recv(torch.empty(4), 0, group=group)
        longer = torch.full((5,), -1.0)
        dist.recv(longer, 0, group=group)  # shorter ones fit
        assert longer.tolist() == [0.0, 1.0, 2.0, -1.0, -1.0]
    dist.barrier(group=group)
    dist.destroy_process_group(group)


@ranks.on(2)
def sends_that_nobody_receives(rank: int, n: int) -> None:
    """wait(timeout) of a send ends by its time, whatever the size, unless the message has left; it goes on, and is
    received in the end. A small one has left at once, as long as there is room for it on the way."""
    for size in (1, 1000, 100_003, 5_000_011):
        if rank == 0:
            messages = [torch.full((size,), float(i)) for i in range(40)]
            works = [dist.isend(message, 1) for message in messages]
            waiting = 0
            for work in works:
                begin = time.monotonic()
                try:
                    work.wait(timedelta(milliseconds=20))
                    assert work.is_completed()
                except dist.DistBackendError as error:
                    assert "send timed out after 20 ms" in str(error), error
                    waiting += not work.is_completed()
                assert time.monotonic() - begin < 5
            assert waiting > 0 or size <= 1000, f"{size}: all {len(works)} sends are complete, and nobody has received"
            meet(f"nobody receives {size}", rank, n)
            for work in works:
                work.wait()
        else:
            meet(f"nobody receives {size}", rank, n)
            for i in range(40):
                got = torch.empty(size)
                dist.recv(got, 0)
                assert got[0] == got[-1] == i


# ---- batches ----


@ranks.on(2, 3, 4)
def batches(rank: int, n: int) -> None:
    """Sends first, receives first, and mixed; messages of one pair in their order; small and large."""
    for order in ("sends first", "receives first", "mixed"):
        for count in (1, 37, 100_003):
            sends, receives, wants = [], [], []
            for other in range(n):
                if other == rank:
                    continue
                for i in range(2):
                    got = torch.empty(count)
                    mine = values(f"{rank}{other}{i}", 0, count, torch.float32)
                    sends.append(dist.P2POp(dist.isend, mine, other))
                    receives.append(dist.P2POp(dist.irecv, got, other))
                    wants.append((got, values(f"{other}{rank}{i}", 0, count, torch.float32)))
            ops = {
                "sends first": sends + receives,
                "receives first": receives + sends,
                "mixed": [op for pair in zip(sends, receives) for op in pair],
            }[order]
            works = dist.batch_isend_irecv(ops)
            assert len(works) == 1
            for work in works:
                work.wait()
                assert work.is_completed()
            for got, want in wants:
                same(got, want, order)


@ranks.on(2)
def batches_are_not_counted(rank: int, n: int) -> None:
    group = dist.distributed_c10d._get_default_group()
    before = group._get_sequence_number_for_group()
    other = 1 - rank
    ops = [dist.P2POp(dist.isend, torch.ones(3), other), dist.P2POp(dist.irecv, torch.empty(3), other)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    dist.isend(torch.ones(1), other)
    dist.recv(torch.empty(1), other)
    assert group._get_sequence_number_for_group() == before


@ranks.on(2)
def batch_of_one_direction(rank: int, n: int) -> None:
    op = dist.P2POp(dist.isend, torch.arange(4.0), 1) if rank == 0 else dist.P2POp(dist.irecv, torch.empty(4), 0)
    for work in dist.batch_isend_irecv([op]):
        work.wait()
    if rank == 1:
        assert op.tensor.tolist() == [0.0, 1.0, 2.0, 3.0]


@ranks.on(2)
def batch_from_any_source_and_future(rank: int, n: int) -> None:
    group = dist.distributed_c10d._get_default_group()
    got = torch.empty(3)
    group._start_coalescing(CPU)
    inner = [group.recv_anysource([got], 9), group.send([torch.arange(3.0) + rank], 1 - rank, 9)]
    assert not inner[0].is_completed()
    of_inner = inner[0].get_future()
    work = group._end_coalescing(CPU)
    (value,) = of_inner.wait()
    assert value.data_ptr() == got.data_ptr()
    future = work.get_future()
    future.wait()
    assert future.done() and got.tolist() == [1.0 - rank, 2.0 - rank, 3.0 - rank]
    for part in inner:
        part.wait()
        assert part.is_completed()
    assert inner[0]._source_rank() == 1 - rank


# ---- coalesced regions ----


def region_inputs(rank: int, n: int) -> tuple:
    sizes = (3, 40, 0, 5_001)
    mine = [values(f"region{i}", rank, size, torch.float32) for i, size in enumerate(sizes)]
    all_ = [[values(f"region{i}", r, size, torch.float32) for r in range(n)] for i, size in enumerate(sizes)]
    return mine, all_


@ranks.on(1, 2, 3)
def coalescing_manager(rank: int, n: int) -> None:
    """One kind of collective, as the manager asks: with a device through the region, without through the methods that
    take many tensors."""
    mine, all_ = region_inputs(rank, n)
    for device in (None, CPU):
        for later in (False, True):
            tensors = [tensor.clone() for tensor in mine]
            with dist._coalescing_manager(device=device, async_ops=later) as manager:
                for tensor in tensors:
                    dist.all_reduce(tensor)
            assert len(manager.works) == (1 if later else 0)
            manager.wait()
            for tensor, given in zip(tensors, all_):
                check(tensor, given, ReduceOp.SUM)
            outputs = [torch.empty(n * tensor.numel()) for tensor in mine]
            with dist._coalescing_manager(device=device, async_ops=later) as manager:
                for output, tensor in zip(outputs, mine):
                    dist.all_gather_into_tensor(output, tensor)
            manager.wait()
            for output, given in zip(outputs, all_):
                same(output, torch.cat(given))
            scattered = [torch.empty_like(tensor) for tensor in mine]
            with dist._coalescing_manager(device=device, async_ops=later) as manager:
                for output, tensor in zip(scattered, mine):
                    dist.reduce_scatter_tensor(output, tensor.repeat(n), ReduceOp.AVG)
            manager.wait()
            for output, given in zip(scattered, all_):
                check(output, given, ReduceOp.AVG)


@ranks.on(2, 3)
def region_of_mixed_calls(rank: int, n: int) -> None:
    """Different collectives and messages in one region, lists among them: one start, one Work, one number."""
    group = dist.distributed_c10d._get_default_group()
    before = group._get_sequence_number_for_group()
    mine, all_ = region_inputs(rank, n)
    summed, largest = mine[1].clone(), mine[3].clone()
    outputs: List[torch.Tensor] = [torch.empty_like(mine[1]) for _ in range(n)]
    got = torch.empty(3)
    largest_of = dist.distributed_c10d.AllreduceOptions()
    largest_of.reduceOp = ReduceOp.MAX
    group._start_coalescing(CPU)
    group.allreduce([summed])
    group.send([mine[0]], (rank + 1) % n, 0)
    group.allgather([outputs], [mine[1]])
    group.allreduce([largest], largest_of)
    group.recv([got], (rank - 1) % n, 0)
    work = group._end_coalescing(CPU)
    work.wait()
    check(summed, all_[1], ReduceOp.SUM)
    check(largest, all_[3], ReduceOp.MAX)
    same(got, all_[0][(rank - 1) % n])
    for output, want in zip(outputs, all_[1]):
        same(output, want)
    assert group._get_sequence_number_for_group() == before + 1


@ranks.on(1, 2)
def empty_regions(rank: int, n: int) -> None:
    group = dist.distributed_c10d._get_default_group()
    before = group._get_sequence_number_for_group()
    for later in (False, True):
        with dist._coalescing_manager(device=CPU, async_ops=later) as manager:
            pass
        manager.wait()
    group._start_coalescing(CPU)
    work = group._end_coalescing(CPU)
    assert work.wait() and work.is_completed() and work.result() == []
    assert work.get_future().wait() == []
    assert group._get_sequence_number_for_group() == before
    with raises(RuntimeError, "region"):
        group._end_coalescing(CPU)
    dist.barrier()


@ranks.on(2)
def errors_in_a_region(rank: int, n: int) -> None:
    """A call that is refused ends the region: nothing of it is started, and the group goes on as if it had not been."""
    group = dist.distributed_c10d._get_default_group()
    other = 1 - rank
    bad = torch.ones(4, 4)[:, 0]
    for _ in range(2):
        good = dist.P2POp(dist.isend, torch.ones(3), other)
        with raises(ValueError, "recv", "contiguous"):
            dist.batch_isend_irecv([good, dist.P2POp(dist.irecv, bad, other)])
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2.0] * 3
    with raises(ValueError, "all_reduce", "contiguous"):
        with dist._coalescing_manager():
            dist.all_reduce(torch.ones(2))
            dist.all_reduce(bad)
    with raises(KeyError, "mine"):
        with dist._coalescing_manager(device=CPU):
            dist.all_reduce(torch.ones(2))
            raise KeyError("mine")
    tensor = torch.ones(3)
    assert dist.all_reduce(tensor) is None and tensor.tolist() == [2.0] * 3
    group._start_coalescing(CPU)
    sent = group.send([torch.ones(3)], n, 0)  # there is no such rank, which the library knows
    with raises(ValueError, "send", "rank"):
        group._end_coalescing(CPU)
    assert sent.exception() is not None
    dist.barrier()


@ranks.on(2)
def abort_inside_a_region(rank: int, n: int) -> None:
    """What a program that gives everything up does to all its groups."""
    group = dist.new_group(timeout=timedelta(seconds=20))
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    dist.barrier()  # in another group: here all are done with this one
    group._start_coalescing(CPU)
    group.abort()
    work = group._end_coalescing(CPU)
    work.wait()  # there was nothing in it
    with raises(dist.DistBackendError, "abort"):
        dist.all_reduce(tensor, group=group)
    group.shutdown()
    dist.barrier()


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
