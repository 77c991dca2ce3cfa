# SPDX-License-Identifier: BSD-3-Clause
"""CUDA memory that the ranks of a host can map, so that calls on it are zero-copy:

    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.empty(...)
    backend.register_mem_pool(pool)  # on all ranks of the group

PyTorch's allocator cuts tensors out of segments that it takes from tutti, and keeps them. The last line is a collective
of the group: the segments become windows, in which a call finds the other ranks' buffers without asking."""

import functools

import torch
from torch.distributed import distributed_c10d as c10d

from . import _C

CUDA = torch.device("cuda")


def serves_cuda(backend) -> bool:
    """Whether it is what CUDA tensors of some group are given to."""
    if not torch.cuda.is_available():
        return False
    groups = [group for group in c10d._world.pg_map if CUDA in getattr(group, "_device_types", ())]
    return any(group._get_backend(CUDA) is backend for group in groups)


@functools.lru_cache(maxsize=None)
def allocator():
    """One for all groups and devices: what it takes comes from the group that serves the device."""
    take, give = _C.device_memory_functions()
    return torch._C._cuda_customAllocator(take, give)


def mem_allocator(on_host: property) -> property:
    """What stands before the property of PyTorch's class, which knows of one allocator: the host's."""

    def of(backend):
        if not serves_cuda(backend):
            return on_host.__get__(backend)
        backend._serve_memory(torch.cuda.current_device())
        return allocator()

    return property(of, doc="An allocator for torch.cuda.MemPool. Its memory is of the current device.")


def register_mem_pool(backend, pool) -> None:
    """Collective: what the pool has taken so far becomes windows of this group. Every rank has allocated the same in
    the same order, else all refuse; where the group has a window already, it keeps it."""
    backend._add_windows(torch.cuda.current_device(), [segment["address"] for segment in pool.snapshot()])


@functools.lru_cache(maxsize=None)
def enable() -> None:
    """Puts the property and the method in place, once."""
    on_host = getattr(_C.Backend, "mem_allocator", None)
    if on_host is not None:
        _C.Backend.mem_allocator = mem_allocator(on_host)
    _C.Backend.register_mem_pool = register_mem_pool
