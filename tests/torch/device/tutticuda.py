# SPDX-License-Identifier: BSD-3-Clause
"""CUDA without a GPU, in a PyTorch that was built without it: importing this module makes torch.cuda as much of a
device as the tests of collectives ask for. Its memory, streams, events and graphs are those of the stand-in for CUDA's
driver, on which libtutti's kernels run too; PyTorch's own operators are functions of the host in its streams. Not here:
random numbers, compiled kernels, other libraries."""

import contextlib
import os

import torch

torch.ops.load_library(os.environ["TUTTI_TEST_CUDA"])
ops = torch.ops.tuttidev


def index_of(device=None) -> int:
    index = device if device is None or isinstance(device, int) else torch.device(device).index
    return ops.current_device() if index is None else index


class Stream:
    def __init__(self, index: int = -1, number: int = -1) -> None:
        self.index = index_of() if index < 0 else index
        self.number = ops.next_stream(self.index) if number < 0 else number

    def __enter__(self) -> None:
        self.before = ops.current_stream(self.index)
        ops.set_stream(self.index, self.number)

    def __exit__(self, *error) -> None:
        ops.set_stream(self.index, self.before)

    def wait_stream(self, other: "Stream") -> None:
        event = torch.Event(f"cuda:{self.index}")
        event.record(other.torch_stream())
        event.wait(self.torch_stream())

    def synchronize(self) -> None:
        self.torch_stream().synchronize()

    def torch_stream(self) -> torch.Stream:
        return torch.Stream(stream_id=self.number, device_index=self.index, device_type=1)


def current_stream(device=None) -> Stream:
    return Stream(index_of(device), ops.current_stream(index_of(device)))


class CUDAGraph:
    def replay(self) -> None:
        stream = current_stream()
        ops.replay(self.made, stream.index, stream.number)


@contextlib.contextmanager
def graph(into: CUDAGraph):
    stream = Stream()
    with stream:
        ops.begin_capture(stream.index, stream.number)
        try:
            yield
        finally:
            into.made = ops.end_capture(stream.index, stream.number)


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


class device:
    def __init__(self, chosen) -> None:
        self.index = index_of(chosen)

    def __enter__(self) -> None:
        self.before = ops.current_device()
        ops.set_device(self.index)

    def __exit__(self, *error) -> None:
        ops.set_device(self.before)


def sleep(cycles: int) -> None:
    ops.sleep(max(1, cycles // 2_000_000), ops.current_device())


replaced = {
    "_lazy_init": lambda: None, "is_available": lambda: True, "is_initialized": lambda: True,
    "device_count": ops.device_count, "current_device": ops.current_device, "device": device, "_sleep": sleep,
    "set_device": lambda chosen: ops.set_device(index_of(chosen)), "Stream": Stream, "stream": lambda stream: stream,
    "current_stream": current_stream, "CUDAGraph": CUDAGraph, "graph": graph,
    "MemPool": MemPool, "use_mem_pool": use_mem_pool, "empty_cache": lambda: None,
    "get_device_capability": lambda chosen=None: (9, 0),
    "synchronize": lambda chosen=None: ops.synchronize(index_of(chosen)),
}  # fmt: skip
for name, function in replaced.items():
    setattr(torch.cuda, name, function)
torch._C._cuda_customAllocator = lambda take, give: (take, give)
torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
torch.accelerator.is_available = lambda: True
