# SPDX-License-Identifier: BSD-3-Clause
# label: gpu
"""What is Intel's devices' own: how their queues are found, what can not be recorded, and what the library's way to
them is without Level Zero. All else on "xpu" is tested by the files for CUDA (cuda_world.py)."""

from __future__ import annotations

import os
import tempfile
import unittest
from typing import Callable

os.environ["TUTTI_TEST_DEVICE"] = "xpu"

import cuda_world
import ranks
import torch
import torch.distributed as dist
from calls import compare, late, module, values


def sums(rank: int, n: int) -> None:
    for asynchronous in (True, False):
        tensor = late(values(rank, 5000))
        work = dist.all_reduce(tensor, async_op=asynchronous)
        if work is not None:
            work.wait()
        compare([(tensor, sum(values(r, 5000) for r in range(n)))])


def recorded(rank: int, n: int, store: dist.Store) -> None:
    """A queue that is being recorded takes no calls; the group serves others meanwhile, and this one after it."""
    device = cuda_world.world(rank, n, store, "tutti")
    sums(rank, n)
    tensor, other = values(rank, 100).to(device), module.Stream()
    with module.recording():
        for asynchronous in (True, False):
            with ranks.raises(RuntimeError, "is being recorded into a graph"):
                dist.all_reduce(tensor, async_op=asynchronous)
        with module.stream(other):
            sums(rank, n)
    dist.all_reduce(tensor)
    assert torch.equal(tensor.cpu(), sum(values(r, 100) for r in range(n)))
    dist.destroy_process_group()


def queues_by_symbol(rank: int, n: int, store: dist.Store) -> None:
    """As in versions of PyTorch whose streams do not tell their native handles."""
    os.environ["TUTTIDEV_HANDLES"] = "no"
    cuda_world.world(rank, n, store, "tutti")
    assert module.current_stream().native_handle == 0
    sums(rank, n)
    dist.destroy_process_group()


def through_host(rank: int, n: int, store: dist.Store) -> None:
    """Where the library has no way to the device, which is said once."""
    cuda_world.calls.use_device_of(rank)
    torch.ones(1, device="xpu").cpu()
    os.environ["TUTTI_LEVEL_ZERO_LIBRARY"] = "/nowhere/libze_loader.so.1"
    with tempfile.TemporaryFile() as told:
        os.dup2(told.fileno(), 2)
        cuda_world.world(rank, n, store, "tutti")
        sums(rank, n)
        told.seek(0)
        said = told.read().decode()
    assert said.count(f"tensors of xpu:{rank} go through the host: there is no Level Zero here") == 1, said
    dist.destroy_process_group()


def profiled(rank: int, n: int, store: dist.Store) -> list:
    device = cuda_world.world(rank, n, store, "tutti")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(torch.ones(3, 5, device=device))
        dist.all_gather_into_tensor(torch.empty(4 * n, device=device), torch.ones(4, device=device))
    dist.destroy_process_group()
    return [event.name for event in profiler.events() if event.name.startswith("tutti:")]


class Worlds(unittest.TestCase):
    """Each with processes and groups of its own."""

    def test_profiler_names(self) -> None:
        for names in ranks.run(profiled, 2, backend=None):
            self.assertEqual(names, ["tutti:all_reduce", "tutti:all_gather_into_tensor"])


def in_a_world(function: Callable) -> Callable:
    return lambda self: ranks.run(function, 2, backend=None, timeout=120.0) and None


ALSO_PLAYED = (recorded, queues_by_symbol, through_host) if cuda_world.PLAYED else ()
for function in ALSO_PLAYED:
    setattr(Worlds, f"test_{function.__name__}", in_a_world(function))


if __name__ == "__main__":
    cuda_world.require_device()
    unittest.main()
