# SPDX-License-Identifier: BSD-3-Clause
# label: long
"""Collectives on the tensors of an accelerator, of which the shim knows nothing: the test device of tests/torch/device,
whose memory faults when a thread of the host touches it. What a call reads is computed late, after the stream has
slept, and what it writes is used at once by the next work of the stream; so each result here says that the call came in
between. The same with a device that does not keep the order must fail. TUTTI_TEST_DEVICE=cuda tries what can be tried
on a GPU."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time
import unittest
from datetime import timedelta
from typing import Any, Callable

import ranks
import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "device"))
import calls  # noqa: E402
from calls import CALLS, COPY, DEVICE, SECOND, TYPE, compare, late, module, set_copy_delay, sleep, values  # noqa: E402

only_here = unittest.skipUnless(TYPE == "tuttidev", "asks for what only the test device does")


def try_call(rank: int, n: int, name: str, asynchronous: bool) -> None:
    set_copy_delay(COPY)
    work, pairs = CALLS[name](rank, n, asynchronous)
    for one in work if isinstance(work, list) else [work]:
        if one is not None:
            one.wait()
    compare(pairs)


def of_call(name: str) -> Callable:
    def test(rank: int, n: int) -> None:
        for asynchronous in (True, False):
            try_call(rank, n, name, asynchronous)

    test.__qualname__ = f"call_{name}"  # under which the ranks find it
    return ranks.on(2)(test)


for name in CALLS:
    globals()[f"call_{name}"] = of_call(name)


# ---- order, streams, memory ----


@ranks.on(2)
def waits_for_no_device(rank: int, n: int) -> None:
    """An asynchronous call returns while its input is computed; its Work is complete some time after, unasked."""
    tensor = torch.full((100,), 1.0, device=DEVICE)
    module.synchronize()
    begin = time.monotonic()
    sleep(1500)
    tensor.fill_(float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    assert not work.is_completed()
    assert time.monotonic() - begin < 1.3
    while not work.is_completed():
        assert time.monotonic() - begin < 30
        time.sleep(0.005)
    assert time.monotonic() - begin >= 1.4
    assert torch.equal(tensor.cpu(), torch.full((100,), float(sum(range(n)))))


@ranks.on(2)
def host_calls_keep_their_place(rank: int, n: int) -> None:
    """Calls on host memory start behind those of the device, on one rank of which the device is slow."""
    tensor, host = torch.ones(1000, device=DEVICE), values(rank, 17)
    for _ in range(3):
        if rank == 0:
            sleep(100)
        first = dist.all_reduce(tensor, async_op=True)
        second = dist.all_reduce(host, async_op=True)
        dist.barrier()
        second.wait()
        first.wait()
    assert torch.equal(tensor.cpu(), torch.full((1000,), float(n**3)))
    assert torch.equal(host, sum(values(r, 17) for r in range(n)) * n * n)


@ranks.on(2)
def coalesced_with_the_host(rank: int, n: int) -> None:
    device, host = late(values(rank, 50)), values(rank, 60)
    with dist._coalescing_manager(device=DEVICE, async_ops=True) as manager:
        dist.broadcast(device, 0)
        dist.broadcast(host, 1)
    manager.wait()
    assert torch.equal(host, values(1, 60))
    compare([(device, values(0, 50))])


@ranks.on(2)
def other_streams(rank: int, n: int) -> None:
    """A call belongs to the stream that is current then, its wait to the one that is current there."""
    one, two = module.Stream(), module.Stream()
    set_copy_delay(COPY)
    with module.stream(one):
        tensor = late(values(rank, 200))
        work = dist.all_reduce(tensor, async_op=True)
    with module.stream(two):
        work.wait()
        compare([(tensor, sum(values(r, 200) for r in range(n)))])


@ranks.on(2)
def other_devices(rank: int, n: int) -> None:
    if module.device_count() < 2:
        return
    set_copy_delay(COPY)
    tensor = late(values(rank, 200), SECOND)
    dist.all_reduce(tensor)
    compare([(tensor, sum(values(r, 200) for r in range(n)))])
    one, two = late(values(rank, 50)), late(values(rank, 60), SECOND)
    with dist._coalescing_manager(device=DEVICE, async_ops=True) as manager:
        dist.broadcast(one, 0)
        dist.broadcast(two, 1)
    manager.wait()
    compare([(one, values(0, 50))])
    compare([(two, values(1, 60))])
    with ranks.raises(ValueError, "different devices"):
        dist.all_gather_into_tensor(torch.empty(n * 50, device=SECOND), one)


@ranks.on(2)
def barrier_follows_the_stream(rank: int, n: int) -> None:
    begin = torch.tensor(time.monotonic(), dtype=torch.float64)  # the clock is the host's, so ranks can compare
    if rank == 0:
        sleep(300)
    dist.barrier(device_ids=[0])
    end = time.monotonic()
    dist.broadcast(begin, 0)
    assert end - begin.item() >= 0.3
    dist.barrier()  # on the host


@ranks.on(2)
def future(rank: int, n: int) -> None:
    """Callbacks compute with the result on a stream that waits for it."""
    set_copy_delay(COPY)
    tensor = late(values(rank, 200))
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0].mul_(2))
    result = doubled.wait()
    compare([(result, 2 * sum(values(r, 200) for r in range(n)))])
    work = dist.all_reduce(late(values(rank, 20)), async_op=True)
    work.wait()
    compare([(work.get_future().wait()[0], sum(values(r, 20) for r in range(n)))])


@ranks.on(2)
def short_message(rank: int, n: int) -> None:
    """What a message does not fill stays as it was."""
    if rank == 0:
        dist.send(late(values(0, 10)), 1)
    else:
        output = late(values(1, 30))
        dist.recv(output, 0)
        compare([(output, torch.cat([values(0, 10), values(1, 30)[10:]]))])


@ranks.on(2)
def many_calls(rank: int, n: int) -> None:
    """Calls of all sizes, with a wait for the last alone."""
    set_copy_delay(0)
    sizes = [1, 1000, 7, 100_000, 64, 300_000]
    tensors = [values(rank, size).to(DEVICE) for size in sizes for _ in range(10)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    compare([(tensor, sum(values(r, len(tensor)) for r in range(n))) for tensor in tensors])


def reuse_a_block(rank: int, n: int) -> None:
    """The last holder of an output lets go of it before the result has come; who gets the memory then, keeps it."""
    set_copy_delay(500)
    output = torch.empty(1000, device=DEVICE)
    address = output.data_ptr()
    if rank == 0:
        dist.send(values(0, 1000).to(DEVICE), 1)
        return
    work = dist.irecv(output, 0)
    came = work.get_future_result()
    while not came.done():
        time.sleep(0.001)
    del output, work, came  # the result is on its way back, which takes a while
    time.sleep(0.02)
    other = torch.empty(1000, device=DEVICE).fill_(5)
    time.sleep(0.8)
    assert torch.equal(other.cpu(), torch.full((1000,), 5.0)), "the memory differs: another's result was written to it"
    assert other.data_ptr() != address
    set_copy_delay(0)
    time.sleep(0.05)
    assert address in [torch.empty(1000, device=DEVICE).data_ptr()], "the block is never used again"


def touch_on_the_host(rank: int, n: int) -> None:
    """The device's memory does what these tests take for granted."""
    tensor = torch.ones(10, device=DEVICE)
    assert tensor.cpu().sum() == 10
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        os._exit(ctypes.c_int.from_address(tensor.data_ptr()).value & 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV


# ---- errors and the end ----


def new_world(rank: int, n: int, store: dist.Store, seconds: float = 60, **options: Any) -> None:
    timeout = timedelta(seconds=seconds)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n, timeout=timeout, **options)


def sleeping(milliseconds: int) -> torch.Tensor:
    """An input that the device computes when it has slept. Its kernels are loaded before, for which some devices
    wait."""
    tensor = torch.ones(10, device=DEVICE)
    dist.all_reduce(tensor)
    module.synchronize(DEVICE)
    sleep(milliseconds)
    return tensor.fill_(1)


def abort_in_queue(rank: int, n: int, store: dist.Store) -> None:
    """A call whose input is not there yet is aborted, and all behind it."""
    new_world(rank, n, store)
    works = [dist.all_reduce(sleeping(10_000), async_op=True), dist.all_reduce(torch.ones(1), async_op=True)]
    future = works[0].get_future()
    begin = time.monotonic()
    if rank == 0:
        time.sleep(0.1)
        ranks.backend_of().abort()
    for work in works:
        with ranks.raises(dist.DistBackendError, "aborted"):
            work.wait()
        assert work.is_completed() and not work.is_success()
    with ranks.raises(Exception, "aborted"):
        future.wait()
    dist.destroy_process_group()
    assert time.monotonic() - begin < 8, "the end waited for the device"


def time_out_in_queue(rank: int, n: int, store: dist.Store) -> None:
    """On rank 0 the input never comes in time; the other rank hears of it."""
    new_world(rank, n, store)
    tensor = sleeping(10_000 if rank == 0 else 0)
    ranks.backend_of()._set_default_timeout(timedelta(seconds=0.5))
    begin = time.monotonic()
    with ranks.raises(dist.DistBackendError, "imed out"):
        dist.all_reduce(tensor)
    assert 0.4 < time.monotonic() - begin < 8
    dist.destroy_process_group()


def time_out_of_wait(rank: int, n: int, store: dist.Store) -> None:
    new_world(rank, n, store)
    tensor = sleeping(1000)
    work = dist.all_reduce(tensor, async_op=True)
    with ranks.raises(dist.DistBackendError, "given to wait"):
        work.wait(timedelta(milliseconds=100))
    work.wait()
    assert tensor.cpu().sum() == 10 * n
    dist.destroy_process_group()


def mismatch(rank: int, n: int, store: dist.Store) -> None:
    new_world(rank, n, store)
    work = dist.all_reduce(torch.ones(10 + rank, device=DEVICE), async_op=True)
    with ranks.raises(dist.DistBackendError, "all_reduce"):
        work.wait()
    assert work.is_completed() and not work.is_success()
    dist.destroy_process_group()


def end_with_calls_queued(rank: int, n: int, store: dist.Store) -> None:
    """They are made before the group ends."""
    new_world(rank, n, store)
    set_copy_delay(COPY)
    tensors = [late(values(rank, 100 + i)) for i in range(3)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dist.destroy_process_group()
    for work in works:
        work.wait()
    compare([(tensor, sum(values(r, 100 + i) for r in range(n))) for i, tensor in enumerate(tensors)])
    with ranks.raises(ValueError):
        dist.all_reduce(tensors[0])


def bound_device(rank: int, n: int, store: dist.Store) -> None:
    """device_id= connects at once, and makes groups by splitting."""
    new_world(rank, n, store, device_id=DEVICE)
    tensor = late(values(rank, 100))
    dist.all_reduce(tensor)
    compare([(tensor, sum(values(r, 100) for r in range(n)))])
    dist.barrier()
    both, alone = dist.new_group([0, 1]), dist.new_group([1])
    tensor = late(values(rank, 100))
    dist.all_reduce(tensor, group=both)
    if rank == 1:
        dist.all_reduce(tensor, group=alone)
    compare([(tensor, sum(values(r, 100) for r in range(n)))])
    mesh = dist.init_device_mesh(TYPE, (1, n), mesh_dim_names=("outer", "inner"))
    tensor = late(values(rank, 100))
    dist.all_reduce(tensor, group=mesh.get_group("outer"))
    dist.all_reduce(tensor, group=mesh.get_group("inner"))
    compare([(tensor, sum(values(r, 100) for r in range(n)))])
    dist.destroy_process_group()


class Worlds(unittest.TestCase):
    """Each with processes and a group of its own."""


for function in (
    abort_in_queue,
    time_out_in_queue,
    time_out_of_wait,
    mismatch,
    end_with_calls_queued,
    bound_device,
):
    def test(self: Worlds, function: Callable = function) -> None:
        ranks.run(function, 2, backend=None)

    setattr(Worlds, f"test_{function.__name__}", test)


# ---- training ----


@ranks.on(2)
def data_parallel(rank: int, n: int) -> None:
    """DDP on the device, as one process on the host computes it."""

    def model() -> torch.nn.Module:
        torch.manual_seed(7)
        return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5))

    def train(net: torch.nn.Module, of: slice, device: torch.device) -> torch.nn.Module:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            x, y = values(step, 8, 20)[of].to(device), values(step, 8, 5)[of].to(device)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
        return net

    set_copy_delay(0)
    size = 8 // n
    wrapped = torch.nn.parallel.DistributedDataParallel(model().to(DEVICE))
    ours = train(wrapped, slice(rank * size, (rank + 1) * size), DEVICE)
    one = train(model(), slice(0, 8), torch.device("cpu"))
    for (name, got), expected in zip(ours.module.named_parameters(), one.parameters()):
        torch.testing.assert_close(got.detach().cpu(), expected.detach(), msg=lambda text: f"{name}: {text}")


# ---- the test device itself, and what it shows when it breaks the order ----


def try_slowly(rank: int, n: int, name: str) -> None:
    """A device that breaks the order has all the time to do so."""
    calls.SLOW = 250
    try_call(rank, n, name, True)


@only_here
class TestDevice(unittest.TestCase):
    def test_memory_is_out_of_the_hosts_reach(self) -> None:
        ranks.run(touch_on_the_host, 1)

    def test_freed_block(self) -> None:
        ranks.run(reuse_a_block, 2)

    def test_without_pinned_memory(self) -> None:
        for name in ("all_reduce", "all_gather", "send_recv"):
            ranks.run(try_call, 2, name, True, env={"TUTTIDEV_BREAK": "pinned"})

    def differs(self, broken: str, function: Callable, *args: Any) -> None:
        """What is wrong with the device shows in the results: the tests can fail."""
        with self.assertRaises(ranks.RankError) as raised:
            ranks.run(function, 2, *args, env={"TUTTIDEV_BREAK": broken})
        self.assertIn("differs", str(raised.exception))

    def test_streams_that_do_not_wait(self) -> None:
        for name in ("all_reduce", "all_gather", "reduce_scatter_tensor", "send_recv", "coalesced"):
            with self.subTest(name):
                self.differs("wait", try_slowly, name)

    def test_events_that_are_over_at_once(self) -> None:
        self.differs("query", try_slowly, "all_reduce")

    def test_allocator_that_knows_of_one_stream(self) -> None:
        self.differs("record", reuse_a_block)


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
