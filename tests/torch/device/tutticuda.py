# SPDX-License-Identifier: BSD-3-Clause
"""CUDA without a GPU, in a PyTorch that was built without it: importing this module makes torch.cuda as much of a
device as the tests of collectives ask for. Its memory, streams, events and graphs are those of the stand-in for CUDA's
driver, on which libtutti's kernels run too; PyTorch's own operators are functions of the host in its streams. Not here:
random numbers of its own, compiled kernels, other libraries."""

import contextlib

import torch

import standin_device

ops = standin_device.load("cuda")
functions = standin_device.functions("cuda")


class CUDAGraph:
    def replay(self) -> None:
        stream = functions["current_stream"]()
        ops.replay(self.made, stream.device_index, stream.stream_id)


@contextlib.contextmanager
def graph(into: CUDAGraph):
    stream = functions["Stream"]()
    with standin_device.stream(stream):
        ops.begin_capture(stream.device_index, stream.stream_id)
        try:
            yield
        finally:
            into.made = ops.end_capture(stream.device_index, stream.stream_id)


class MemPool:
    def __init__(self, functions: tuple) -> None:
        self.number = ops.make_pool(*functions)

    def __del__(self) -> None:
        ops.drop_pool(self.number)

    def snapshot(self) -> list:
        numbers = ops.segments_of(self.number)
        return [{"address": address, "total_size": size} for address, size in zip(numbers[::2], numbers[1::2])]


@contextlib.contextmanager
def use_mem_pool(pool: MemPool):
    before = ops.use_pool(pool.number)
    try:
        yield
    finally:
        ops.use_pool(before)


functions.update({
    "CUDAGraph": CUDAGraph, "graph": graph, "MemPool": MemPool, "use_mem_pool": use_mem_pool,
    "get_device_capability": lambda chosen=None: (9, 0),
})  # fmt: skip
for name, function in functions.items():
    setattr(torch.cuda, name, function)
torch._C._cuda_customAllocator = lambda take, give: (take, give)
torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
torch.accelerator.is_available = lambda: True
