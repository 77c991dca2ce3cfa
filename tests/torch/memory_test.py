# SPDX-License-Identifier: BSD-3-Clause
"""Tensors from allocate_tensor lie in memory that all ranks of the host map: every collective takes them, large
messages from them are read in place, and they outlive their group."""

from __future__ import annotations

import gc
import unittest
from typing import Any, Iterator, List, Tuple

import ranks
import reference
import torch
import torch.distributed as dist
from ranks import backend_of, raises
from reference import ReduceOp, check, inputs, same, values

CPU = torch.device("cpu")
HEAP, RINGS = "memfd:tutti-heap", "memfd:tutti-control"


def mappings(file: str) -> Iterator[Tuple[List[str], int]]:
    """This process's mappings: the words of each one's line, and the KiB of it that are there, if the file says so."""
    head: List[str] = []
    with open(f"/proc/self/{file}") as lines:
        for words in map(str.split, lines):
            if not words[0].endswith(":"):
                head = words
            if head is words or words[0] == "Rss:":
                yield head, 0 if head is words else int(words[1])


def resident_kib(name: str) -> int:
    return sum(kib for head, kib in mappings("smaps") if name in " ".join(head[5:]))


def in_heap(tensor: torch.Tensor) -> bool:
    for head, _ in mappings("maps"):
        low, high = (int(end, 16) for end in head[0].split("-"))
        if low <= tensor.data_ptr() < high:
            return HEAP in " ".join(head[5:])
    return False


def allocate(count: int, dtype: torch.dtype = torch.float32, group: Any = None) -> torch.Tensor:
    return backend_of(group).allocate_tensor(count, dtype=dtype, device=CPU)


def allocated(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in such memory."""
    copy = allocate(tensor.numel(), tensor.dtype)
    return copy.copy_(tensor)


@ranks.on(2)
def tensors_in_mapped_memory(rank: int, n: int) -> None:
    assert backend_of().supports_tensor_alloc(CPU)
    for dtype in (torch.uint8, torch.bfloat16, torch.float32, torch.complex128, torch.bool):
        tensor = allocate(1000, dtype)
        assert tensor.dtype == dtype and tensor.shape == (1000,) and tensor.device == CPU
        assert not tensor.to(torch.complex128).any(), "it begins as zeros"
        assert in_heap(tensor) and in_heap(tensor[500:]) and not in_heap(torch.empty(1000, dtype=dtype))
    assert allocate(0).numel() == 0
    with raises(ValueError, "size"):
        allocate(-1)
    assert backend_of().mem_allocator is not None


@ranks.on(1, 2, 3)
def every_collective(rank: int, n: int) -> None:
    for count in (37, 200_003):
        given = inputs("memory", n, n * count, torch.float32)
        blocks = [[tensor[r * count:(r + 1) * count] for tensor in given] for r in range(n)]
        tensor = allocated(given[rank])
        dist.all_reduce(tensor)
        check(tensor, given, ReduceOp.SUM)
        tensor.copy_(given[rank])
        dist.all_reduce(tensor, ReduceOp.AVG, async_op=True).wait()
        check(tensor, given, ReduceOp.AVG)
        tensor.copy_(given[rank])
        mine = tensor[rank * count:(rank + 1) * count]
        dist.reduce_scatter_tensor(mine, tensor)
        check(mine, blocks[rank], ReduceOp.SUM)
        whole = allocate(n * count)
        dist.all_gather_into_tensor(whole, allocated(given[rank][:count]))
        same(whole, torch.cat(blocks[0]))
        outputs = list(allocate(n * count).view(n, count))
        dist.all_gather(outputs, allocated(given[rank][:count]))
        for output, want in zip(outputs, blocks[0]):
            same(output, want)
        tensor.copy_(given[rank])
        dist.all_to_all_single(whole, tensor)
        same(whole, torch.cat(blocks[rank]))
        dist.broadcast(tensor, n - 1)
        same(tensor, given[n - 1])
        dist.reduce(tensor, 0)
        if rank == 0:
            check(tensor, [given[n - 1]] * n, ReduceOp.SUM)
        dist.scatter(mine, outputs if rank == 0 else None, 0)
        same(mine, blocks[0][rank])
        dist.gather(mine, outputs if rank == 0 else None, 0)


@ranks.on(2)
def messages_of_either_kind(rank: int, n: int) -> None:
    """From such memory to ordinary memory, and back."""
    for kinds in ((True, False), (False, True), (True, True)):
        for dtype in reference.FLOATS:
            want = values("message", 0, 150_001, dtype)
            if rank == 0:
                dist.send(allocated(want) if kinds[0] else want, 1)
            else:
                got = allocate(want.numel(), dtype) if kinds[1] else torch.empty_like(want)
                dist.recv(got, 0)
                same(got, want)


def rings_grow_kib(rank: int, n: int, mapped: bool) -> int:
    """How much of the rings between the ranks a large message touches."""
    tensor = allocate(4 << 20) if mapped else torch.zeros(4 << 20)
    tensor.fill_(rank + 1)
    dist.barrier()
    before = resident_kib(RINGS)
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    after = resident_kib(RINGS)
    assert (tensor == 1).all()
    if mapped and rank == 1:
        assert resident_kib(HEAP) > 17 << 10, "the other's pages are not there"
    dist.barrier()  # a rank that frees memory takes its pages from the others too
    return after - before


@ranks.on(2)
def freed_memory_is_used_again(rank: int, n: int) -> None:
    """Twice what there is in all, a piece after the other; each begins as zeros."""
    for i in range(128):
        tensor = allocate(1 << 30, torch.uint8)
        assert tensor[0] == 0 and tensor[-1] == 0
        tensor[0] = tensor[-1] = 7
    views = [allocate(100)[i:] for i in range(50)]
    del tensor
    gc.collect()
    assert all(in_heap(view) for view in views)
    dist.all_reduce(views[3])


@ranks.on(2)
def memory_outlives_its_group(rank: int, n: int) -> None:
    """Also through a call in flight, whose end nobody awaits."""
    group = dist.new_group()
    tensor = allocate(100_003, group=group)
    tensor.fill_(rank + 1.0)
    dist.all_reduce(tensor, group=group)
    late = allocate(100_003, group=group)
    late.fill_(1.0)
    work = dist.all_reduce(late, group=group, async_op=True)
    backend = backend_of(group)
    dist.destroy_process_group(group)
    assert (tensor == 3).all() and in_heap(tensor)
    with raises(dist.DistBackendError, "destroyed"):
        backend.allocate_tensor(10, dtype=torch.float32, device=CPU)
    del group, backend
    work.wait()
    assert (late == 2).all()
    dist.all_reduce(tensor)  # in the other group, which shares the memory or copies
    assert (tensor == 6).all()
    del tensor, late, work
    gc.collect()
    dist.barrier()


class ZeroCopy(unittest.TestCase):
    def test_large_messages_do_not_go_through_the_rings(self) -> None:
        """In processes of their own, whose rings nothing has touched."""
        copied = min(ranks.run(rings_grow_kib, 2, False))
        in_place = max(ranks.run(rings_grow_kib, 2, True))
        self.assertGreater(copied, 256)
        self.assertLess(in_place, copied // 4)


class AfterTheEnd(unittest.TestCase):
    def test_memory_after_destroy_and_a_new_start(self) -> None:
        ranks.run(keep_memory, 2, backend=None)


def keep_memory(rank: int, n: int, store: dist.Store) -> None:
    """The whole of torch.distributed ends, the tensor stays, another world begins."""
    for life in range(3):
        dist.init_process_group("tutti", store=dist.PrefixStore(str(life), store), rank=rank, world_size=n)
        tensor = allocate(70_001)
        tensor.fill_(rank + life)
        dist.all_reduce(tensor)
        if life > 0:
            assert (kept == 2 * life - 1).all()  # noqa: F821
        kept = tensor  # noqa: F841
        dist.destroy_process_group()
    assert (kept == 5).all() and in_heap(kept)


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
