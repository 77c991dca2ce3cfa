# SPDX-License-Identifier: BSD-3-Clause
# label: gpu
"""CUDA memory that the ranks can map: pools of PyTorch's allocator, and the windows that register_mem_pool makes of
their segments, for one group and for several. Each test has processes and groups of its own.

Whether a group has a window is seen by what only windows ask for: that outputs lie at the same place on all ranks. The
method `direct`, which the tests name, works in windows alone; where there is none another one serves the call, and
places may differ. The group is of no use after that question."""

from __future__ import annotations

import gc
import time
import unittest
from datetime import timedelta
from typing import Any, Callable, List, Optional

import cuda_world
import ranks
import torch
import torch.distributed as dist
from cuda_world import calls
from calls import values

SMALL, LARGE = 5000, 3 << 20  # elements; a large tensor has a segment to itself
STEP = 128  # elements, by which places differ
TIMEOUT = timedelta(seconds=20)


def world(rank: int, n: int, store: dist.Store) -> torch.device:
    return cuda_world.world(rank, n, store, "tutti", timeout=TIMEOUT)


def backend_of(group: Optional[dist.ProcessGroup], device: torch.device) -> Any:
    return (group or dist.distributed_c10d._get_default_group())._get_backend(device)


def new_pool(group: Optional[dist.ProcessGroup], device: torch.device) -> Any:
    return torch.cuda.MemPool(backend_of(group, device).mem_allocator)


def take(pool: Any, device: torch.device, *sizes: int) -> List[torch.Tensor]:
    with torch.cuda.use_mem_pool(pool):
        return [torch.empty(size, device=device) for size in sizes]


def gather(output: torch.Tensor, group: Optional[dist.ProcessGroup], apart: bool = False) -> None:
    """An all_gather into the tensor, at the same place on all ranks, or apart, gives what it should."""
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    at, mine = rank * STEP if apart else 0, values(rank, SMALL)
    part = output[at:at + n * SMALL]
    part.fill_(99)
    dist.all_gather_into_tensor(part, mine.to(output.device), group=group)
    assert torch.equal(part.cpu(), torch.cat([values(r, SMALL) for r in range(n)]))


def has_window(output: torch.Tensor, group: Optional[dist.ProcessGroup] = None) -> bool:
    """Ends the group if it has."""
    gather(output, group)
    try:
        dist.all_gather_into_tensor(
            output[dist.get_rank(group) * STEP:][:dist.get_world_size(group) * SMALL],
            torch.ones(SMALL, device=output.device), group=group)  # fmt: skip
        for _ in range(40):  # the ranks' calls are compared every few milliseconds
            time.sleep(0.1)
            dist.all_reduce(torch.ones(1, device=output.device), group=group)
    except dist.DistBackendError as error:
        assert "place in a window" in str(error), error
        return True
    return False


def empty(pools: List[Any]) -> None:
    """Gives back what the pools have, of which there are no tensors any more."""
    pools.clear()
    gc.collect()
    torch.cuda.empty_cache()


def sums(rank: int, n: int, store: dist.Store) -> None:
    """Before and after a pool is registered, and when it is gone, by whatever method."""
    device = world(rank, n, store)
    memory = new_pool(None, device)
    for registered in (False, True):
        tensors = take(memory, device, 1000, LARGE) if cuda_world.PLAYED else take(memory, device, 1000, 300_000, LARGE)
        assert memory.snapshot(), "the pool has no memory"
        if registered:
            backend_of(None, device).register_mem_pool(memory)
        for tensor in tensors:
            for again in range(1 if cuda_world.PLAYED else 3):
                tensor.copy_(values(rank + again, len(tensor)))
                dist.all_reduce(tensor)
                assert torch.equal(tensor.cpu(), sum(values(r + again, len(tensor)) for r in range(n)))
        del tensors, tensor
    pools = [memory]
    del memory
    empty(pools)
    dist.all_reduce(torch.ones(1, device=device))
    dist.destroy_process_group()


def one_group(rank: int, n: int, store: dist.Store) -> None:
    """What was there when the pool was registered is a window; what came later is, when that is done again."""
    device = world(rank, n, store)
    pool = new_pool(None, device)
    (first,) = take(pool, device, LARGE)
    gather(first, None, apart=True)
    backend_of(None, device).register_mem_pool(pool)
    (second,) = take(pool, device, LARGE)
    gather(first, None)
    gather(second, None, apart=True)
    for _ in range(2):
        backend_of(None, device).register_mem_pool(pool)
    assert has_window(second)
    dist.destroy_process_group()


def part_and_whole(rank: int, n: int, store: dist.Store) -> None:
    """A pool is registered with some of the ranks first, and then with all of them."""
    device = world(rank, n, store)
    pair = dist.new_group([0, 1], timeout=TIMEOUT)
    pool = new_pool(None, device)
    (output,) = take(pool, device, LARGE)
    if rank < 2:
        backend_of(pair, device).register_mem_pool(pool)
    backend_of(None, device).register_mem_pool(pool)
    gather(output, None)
    assert rank == 2 or has_window(output, pair)
    assert has_window(output)
    dist.destroy_process_group()


def equal_groups(rank: int, n: int, store: dist.Store) -> None:
    """Each has windows of its own, which another's do not take the place of, also when that is gone."""
    device = world(rank, n, store)
    groups = [dist.new_group(timeout=TIMEOUT) for _ in range(4)]
    pool = new_pool(groups[0], device)
    (output,) = take(pool, device, LARGE)
    for group in groups[:2]:
        backend_of(group, device).register_mem_pool(pool)
        gather(output, group)
    gather(output, groups[2], apart=True)
    assert not has_window(output, groups[2])
    assert has_window(output, groups[0])
    dist.destroy_process_group(groups[0])
    assert has_window(output, groups[1])
    dist.destroy_process_group(groups[1])
    backend_of(groups[3], device).register_mem_pool(pool)
    assert has_window(output, groups[3])
    dist.destroy_process_group()


def segments_end(rank: int, n: int, store: dist.Store) -> None:
    """Windows go with their segments, for all groups, and others come in their place."""
    device = world(rank, n, store)
    group = dist.new_group(timeout=TIMEOUT)
    for again in range(3):
        pools = [new_pool(None, device)]
        (output,) = take(pools[0], device, LARGE)
        gather(output, None, apart=True)
        for one in (None, group):
            backend_of(one, device).register_mem_pool(pools[0])
            gather(output, one)
        if again < 2:
            torch.cuda.synchronize()
            dist.barrier()
            del output
            empty(pools)
            dist.barrier()
    assert has_window(output, group)
    assert has_window(output)
    dist.destroy_process_group()


def ranks_that_differ(rank: int, n: int, store: dist.Store) -> None:
    """All ranks are told which of them differs, and the group lives on."""
    device = world(rank, n, store)
    register = backend_of(None, device).register_mem_pool
    pools = [new_pool(None, device) for _ in range(3)]
    outputs = take(pools[0], device, *[LARGE] * (2 if rank == 1 else 1))
    with ranks.raises(ValueError, "rank 1 has 2 segments", "rank 0 has 1"):
        register(pools[0])
    outputs += take(pools[1], device, LARGE * (2 if rank == n - 1 else 1))
    with ranks.raises(ValueError, "number 0", f"{8 * LARGE} bytes on rank {n - 1}", f"{4 * LARGE} on rank 0"):
        register(pools[1])

    class Foreign:
        def snapshot(self) -> list:
            return [{"address": 4096, "total_size": 4096}] if rank == 1 else pools[2].snapshot()

    outputs += take(pools[2], device, LARGE)
    with ranks.raises(ValueError, "the pool of rank 1 has memory that is not from"):
        register(Foreign())
    gather(outputs[-1], None, apart=True)
    register(pools[2])
    assert has_window(outputs[-1])
    dist.destroy_process_group()


class Pools(unittest.TestCase):
    """Each with processes and groups of its own."""


def in_a_world(function: Callable, n: int, method: str) -> Callable:
    env = {"TUTTI_GPU_METHOD": method}
    return lambda self: ranks.run(function, n, backend=None, timeout=120.0, env=env) and None


for function, n, method in ((sums, 2, ""), (one_group, 2, "direct"), (part_and_whole, 3, "direct"),
                            (equal_groups, 2, "direct"), (segments_end, 2, "direct"),
                            (ranks_that_differ, 2, "direct")):  # fmt: skip
    setattr(Pools, f"test_{function.__name__}", in_a_world(function, n, method))


if __name__ == "__main__":
    cuda_world.require_device()
    unittest.main()
