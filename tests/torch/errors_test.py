# SPDX-License-Identifier: BSD-3-Clause
# timeout: 600
"""Errors as a program sees them: each is a torch.distributed.DistBackendError (or a ValueError, where the caller is
wrong) with a sentence that names the rank and the call; afterwards the group can be destroyed at once although its
timeout is long, and the process makes another one."""

from __future__ import annotations

import os
import time
import unittest
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Callable, Iterator

import ranks  # first: it says how many threads torch starts
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import WorkResult

LONG = timedelta(minutes=30)
AT_ONCE = 1.0


@contextmanager
def group_of(rank: int, n: int, store: dist.Store, name: str, timeout: timedelta = LONG) -> Iterator[None]:
    """A world, whose destruction takes no time; then one of the ranks but the last, which works."""
    dist.init_process_group("tutti", store=dist.PrefixStore(name, store), rank=rank, world_size=n, timeout=timeout)
    yield
    start = time.monotonic()
    dist.destroy_process_group()
    took = time.monotonic() - start
    assert took < AT_ONCE, f"{name}: destroy_process_group took {took:.2f} s"
    if rank < n - 1:
        again = dist.PrefixStore(name + " again", store)
        dist.init_process_group("tutti", store=again, rank=rank, world_size=n - 1, timeout=LONG)
        one = torch.ones(3)
        dist.all_reduce(one)
        assert one.tolist() == [n - 1] * 3
        dist.destroy_process_group()


def refused(function: Callable[[], Any], *words: str) -> None:
    with ranks.raises(dist.DistBackendError, *words):
        function()


def mismatches(rank: int, n: int, store: dist.Store) -> None:
    """Each on a new group: the last rank calls something else than the others."""
    odd = rank == n - 1
    words = (f"rank {n - 1} called", "all_reduce")
    cases = {
        "length": lambda: dist.all_reduce(torch.ones(5 if odd else 4)),
        "type": lambda: dist.all_reduce(torch.ones(4, dtype=torch.float64 if odd else torch.float32)),
        "operation": lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM),
        "root": lambda: dist.broadcast(torch.ones(4), 1 if odd else 0),
        "call": lambda: dist.barrier() if odd else dist.all_reduce(torch.ones(4)),
    }
    for name, call in cases.items():
        with group_of(rank, n, store, name):
            if name != "root":
                refused(call, *words)
            elif odd:
                refused(call, "broadcast", "root 0", "root 1")
            else:  # between these two nothing differs: they may be done before anybody sees
                try:
                    call()
                except dist.DistBackendError as error:
                    assert "broadcast" in str(error) and "root 1" in str(error), error
            refused(lambda: dist.all_reduce(torch.ones(4)), f"rank {n - 1} ")  # the group is of no use any more


def timeouts(rank: int, n: int, store: dist.Store) -> None:
    """The last rank does not come. The words PyTorch's users look for, and who was waited for, and in what."""
    words = ("Timed out waiting", "timed out after", " ms", f"rank {n - 1}")
    with group_of(rank, n, store, "group", timedelta(seconds=3)):
        if rank < n - 1:
            start = time.monotonic()
            refused(lambda: dist.all_reduce(torch.ones(4)), *words, "all_reduce")
            assert 2 < time.monotonic() - start < 10
            assert ranks.backend_of().get_error() != ranks.backend_of().get_error().SUCCESS
        else:
            while ranks.backend_of().get_error() == ranks.backend_of().get_error().SUCCESS:
                time.sleep(0.05)  # it hears of it without a call
    with group_of(rank, n, store, "set later"):
        dist.barrier()
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1))  # in which those that come meet
        if rank < n - 1:
            work = dist.all_gather_into_tensor(torch.ones(3 * n), torch.ones(3), async_op=True)
            refused(work.wait, *words, "all_gather")
            assert WorkResult(work.get_future_result().wait()) == WorkResult.TIMEOUT
            assert work.is_completed() and not work.is_success()
            with ranks.raises(RuntimeError, *words):
                raise work.exception()
        else:
            while ranks.backend_of().get_error() == ranks.backend_of().get_error().SUCCESS:
                time.sleep(0.05)


def waits_with_a_time(rank: int, n: int, store: dist.Store) -> None:
    """Work.wait(timeout) that passes: the call goes on, and the group with it."""
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n, timeout=LONG)
    one = torch.ones(3)
    if rank > 0:
        store.wait(["rank 0 has waited"])
    work = dist.all_reduce(one, async_op=True)
    if rank == 0:
        start = time.monotonic()
        refused(lambda: work.wait(timedelta(milliseconds=100)), "all_reduce timed out after 100 ms")
        assert 0.09 < time.monotonic() - start < 10
        assert not work.is_completed()
        store.set("rank 0 has waited", "")
    assert work.wait() and one.tolist() == [n] * 3
    dist.barrier()
    dist.destroy_process_group()


def aborts(rank: int, n: int, store: dist.Store) -> None:
    with group_of(rank, n, store, "abort"):
        sub_group = dist.new_group(list(range(n)))
        if rank == 0:
            time.sleep(0.2)
            ranks.backend_of().abort()
            refused(lambda: dist.barrier(), "rank 0 aborted")
        else:
            work = dist.barrier(async_op=True)
            refused(work.wait, "rank 0 aborted")
        one = torch.ones(2)
        dist.all_reduce(one, group=sub_group)  # another group is not concerned
        assert one.tolist() == [n] * 2
    with group_of(rank, n, store, "abort all"):
        dist.barrier()
        store.add("past the barrier", 1)
        if rank == 0:
            while store.add("past the barrier", 0) < n:
                time.sleep(0.01)
            dist.distributed_c10d._abort_process_group()
            dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
        else:
            refused(lambda: dist.all_reduce(torch.ones(2)), "rank 0 ")


def leaves(rank: int, n: int, store: dist.Store) -> None:
    with group_of(rank, n, store, "leaves"):
        if rank < n - 1:
            refused(lambda: dist.barrier(), f"rank {n - 1} left", "Connection closed by peer", "barrier")


def futures(rank: int, n: int, store: dist.Store) -> None:
    """The error is the future's too, and its callbacks run."""
    with group_of(rank, n, store, "futures"):
        if rank < n - 1:
            future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
            store.add("futures", 1)
            seen = future.then(lambda done: True)
            with ranks.raises(RuntimeError, f"rank {n - 1} left"):
                future.wait()
            assert seen.wait() is True
        else:
            while store.add("futures", 0) < n - 1:
                time.sleep(0.01)


def wrong_arguments(rank: int, n: int, store: dist.Store) -> None:
    """They are told before anything starts: the group goes on."""
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n, timeout=LONG)
    backend = ranks.backend_of()
    options = dist.BroadcastOptions()
    options.rootRank = n
    with ranks.raises(ValueError, "root"):
        backend.broadcast([torch.ones(2)], options)
    with ranks.raises(ValueError):
        backend.send([torch.ones(2)], n, 0)
    dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()
    with ranks.raises(ValueError):
        dist.all_reduce(torch.ones(2))


def not_a_number(rank: int, n: int, store: dist.Store) -> None:
    """Looked for where the variable asks, or the program; found before anything starts: the group goes on."""
    os.environ["TORCH_XCCL_NAN_CHECK"] = "1"
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n, timeout=LONG)
    for dtype in (torch.float32, torch.bfloat16, torch.complex64, torch.float8_e5m2):
        wrong = torch.tensor([1.0, float("nan")]).to(dtype)
        with ranks.raises(RuntimeError, "all_gather_into_tensor: input 0 of sizes", "has a NaN"):
            dist.all_gather_into_tensor(torch.empty(2 * n, dtype=dtype), wrong)
    with ranks.raises(RuntimeError, "all_reduce: input 0", "NaN"):
        dist.all_reduce_coalesced([torch.tensor(float("nan")), torch.ones(2)])
    dist.all_reduce(torch.ones(2, dtype=torch.int32))
    ranks.backend_of()._set_enable_nan_check(False)
    tensor = torch.tensor([1.0, float("nan")])
    dist.all_reduce(tensor)
    assert tensor[0] == n and tensor[1].isnan()
    dist.destroy_process_group()


def used_after_the_end(rank: int, n: int, store: dist.Store) -> None:
    """A backend that somebody still holds."""
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n, timeout=LONG)
    backend, world = ranks.backend_of(), dist.group.WORLD
    dist.destroy_process_group()
    refused(lambda: backend.allreduce([torch.ones(2)]).wait(), "destroyed")
    refused(lambda: world.allreduce([torch.ones(2)]).wait(), "destroyed")
    backend.abort()
    backend.shutdown()


def missing_at_the_start(rank: int, n: int, store: dist.Store) -> None:
    """A rank that waits for one that does not come to the first meeting learns which; then all meet."""
    if rank < n - 1:
        start = time.monotonic()
        with ranks.raises(dist.DistBackendError, f"rank {n - 1}"):
            dist.init_process_group("tutti", store=store, rank=rank, world_size=n, timeout=timedelta(seconds=0.5))
        assert time.monotonic() - start < 5
        assert not dist.is_initialized()
    store.add("gone on", 1)
    while store.add("gone on", 0) < n:
        time.sleep(0.01)
    with group_of(rank, n, store, "later"):
        dist.barrier()


class Failing(dist.Store):  # type: ignore[misc]
    """A store whose server is gone."""

    def add(self, key: str, amount: int) -> int:
        raise RuntimeError("the server went home")


def a_store_that_fails(rank: int, n: int, store: dist.Store) -> None:
    with ranks.raises(dist.DistBackendError, "store", "the server went home"):
        dist.init_process_group("tutti", store=Failing(), rank=rank, world_size=n, timeout=LONG)


class Errors(unittest.TestCase):
    def each(self, function: Any, n: int = 3) -> None:
        ranks.run(function, n, backend=None, timeout=90)


def add(function: Any) -> None:
    def test(self: Errors) -> None:
        self.each(function)

    test.__doc__ = function.__doc__
    setattr(Errors, f"test_{function.__name__}", test)


for case in (mismatches, timeouts, waits_with_a_time, aborts, leaves, futures, wrong_arguments, not_a_number,
             used_after_the_end, missing_at_the_start):
    add(case)

if __name__ == "__main__":
    unittest.main()
