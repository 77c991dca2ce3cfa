# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in SYCL's unified shared memory (dpctl, dpnp, all that have `__sycl_usm_array_interface__`) as tensors on the
same memory, so that collectives of a program that computes with SYCL need no copies:

    dist.all_reduce(usm.as_tensor(array))

On a SYCL queue of the CPU, and for host and shared memory, the tensor is a CPU tensor: as_tensor waits for the queue,
and after a call that has ended the queue may use the array again. Device memory of a GPU is a tensor of "xpu", for
which PyTorch has to be one that was built with XPU."""

from __future__ import annotations

import ctypes
from typing import Any, Tuple

import torch

TYPES = {
    "b1": torch.bool, "i1": torch.int8, "u1": torch.uint8, "i2": torch.int16, "u2": torch.uint16, "i4": torch.int32,
    "u4": torch.uint32, "i8": torch.int64, "u8": torch.uint64, "f2": torch.float16, "f4": torch.float32,
    "f8": torch.float64, "c8": torch.complex64, "c16": torch.complex128,
}  # fmt: skip


def as_tensor(array: Any) -> torch.Tensor:
    """A tensor that shares the array's memory and keeps the array alive.
    TypeError: it is no such array, is read-only, or of a type that PyTorch does not have; RuntimeError: the host
    does not reach its memory, and this PyTorch has no XPU."""
    try:
        facts = array.__sycl_usm_array_interface__
    except AttributeError:
        raise TypeError(f"{type(array).__name__} has no __sycl_usm_array_interface__") from None
    if facts["data"][1]:
        raise TypeError("the array is read-only: calls write to their tensors")
    dtype = _dtype(facts["typestr"])
    queue = facts["syclobj"]
    queue.wait()  # what was enqueued on the array is in it
    if not _on_host(array, queue):
        if not torch.xpu.is_available():
            raise RuntimeError(
                f"the array is in memory of {queue.sycl_device.name}: that takes a PyTorch built with XPU, "
                "or usm_type='shared'"
            )
        return torch.from_dlpack(array)
    shape = tuple(facts["shape"])
    strides = facts.get("strides") or _packed(shape)
    address = facts["data"][0] + facts.get("offset", 0) * dtype.itemsize
    return _on(address, shape, tuple(strides), dtype, array)


def _dtype(typestr: str) -> torch.dtype:
    if typestr[0] == ">" or typestr[1:] not in TYPES:
        raise TypeError(f"PyTorch has no type for elements of '{typestr}'")
    return TYPES[typestr[1:]]


def _on_host(array: Any, queue: Any) -> bool:
    """Memory that is not the device's alone says so in `usm_type`, as dpctl's and dpnp's arrays have it."""
    kind = getattr(array, "usm_type", None) or getattr(array, "get_usm_type", lambda: "device")()
    return queue.sycl_device.is_cpu or kind in ("host", "shared")


def _packed(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


def _on(
    address: int, shape: Tuple[int, ...], strides: Tuple[int, ...], dtype: torch.dtype, owner: Any
) -> torch.Tensor:
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    if min(strides, default=0) < 0:
        raise TypeError("PyTorch has no tensors with negative strides: copy the array first")
    n = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides))
    memory = type("Memory", (ctypes.c_char * (n * dtype.itemsize),), {}).from_address(address)
    memory.owner = owner
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides)
