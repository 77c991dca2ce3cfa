# SPDX-License-Identifier: BSD-3-Clause
# timeout: 120
"""tutti_torch.usm: arrays in SYCL's memory as tensors. Where dpctl and dpnp are installed they are theirs, on a queue
of the CPU, else objects with the same interface; what is refused is shown by those."""

from __future__ import annotations

import ctypes
import gc
import os
import types
import unittest
import weakref
from typing import Any, Optional, Sequence

import torch
import torch.distributed as dist

import ranks
from tutti_torch import usm

try:
    import dpctl
    import dpctl.memory
    import dpnp
except ImportError:
    if "TUTTI_TEST_SYCL" in os.environ:  # it is what is to be tried
        raise
    dpctl = dpnp = None


class Array:
    """Bytes of dpctl's, or of the host, as arrays show them."""

    def __init__(self, typestr: str, shape: Sequence[int], strides: Optional[Sequence[int]] = None, offset: int = 0,
                 n_bytes: int = 4096, is_cpu: bool = True, usm_type: str = "device") -> None:
        self.waits = 0
        self.usm_type = usm_type
        if dpctl and is_cpu:
            queue = dpctl.SyclQueue("cpu")
            self.memory = dpctl.memory.MemoryUSMShared(n_bytes, queue=queue)
            address = self.memory.__sycl_usm_array_interface__["data"][0]
        else:
            device = types.SimpleNamespace(is_cpu=is_cpu, name="a GPU")
            queue = types.SimpleNamespace(sycl_device=device, wait=self.waited)
            self.memory = (ctypes.c_char * n_bytes)()
            address = ctypes.addressof(self.memory)
        self.__sycl_usm_array_interface__ = {"data": (address, False), "shape": tuple(shape), "strides": strides,
                                             "typestr": typestr, "offset": offset, "version": 1, "syclobj": queue}

    def waited(self) -> None:
        self.waits += 1


@ranks.on(2)
def reduced(rank: int, n: int) -> None:
    """In place, and of every second row."""
    array = Array("<f4", (10, 20))
    whole = usm.as_tensor(array)
    whole.copy_(torch.arange(200.0).view(10, 20) * (rank + 1))
    rows = usm.as_tensor(Array("<f8", (4, 3)))
    rows.fill_(rank)
    dist.all_reduce(whole)
    dist.broadcast(rows, src=n - 1)
    again = usm.as_tensor(array)  # the same memory
    assert torch.equal(again, torch.arange(200.0).view(10, 20) * (n * (n + 1) // 2)), again
    assert torch.equal(rows, torch.full((4, 3), n - 1.0, dtype=torch.float64)), rows


@ranks.on(2)
def of_dpnp(rank: int, n: int) -> None:
    """As the manual shows it."""
    if dpnp is None:
        return
    x = dpnp.arange(1000, dtype="f4", device="cpu") * (rank + 1)
    dist.all_reduce(usm.as_tensor(x))
    assert (dpnp.asnumpy(x) == dpnp.asnumpy(dpnp.arange(1000, dtype="f4")) * (n * (n + 1) // 2)).all(), x


class Arrays(unittest.TestCase):
    def test_types(self) -> None:
        for name, dtype in usm.TYPES.items():
            tensor = usm.as_tensor(Array(f"|{name}", (3, 4)))
            self.assertEqual((tensor.dtype, tensor.shape, tensor.device.type), (dtype, (3, 4), "cpu"))

    def test_places(self) -> None:
        array = Array("<i4", (3, 2), strides=(4, 1), offset=5)
        base = usm.as_tensor(array)
        base.copy_(torch.tensor([[1, 2], [3, 4], [5, 6]]))
        array.__sycl_usm_array_interface__.update(shape=(20,), strides=None, offset=0)
        flat = usm.as_tensor(array).tolist()
        self.assertEqual([flat[5], flat[6], flat[9], flat[10], flat[13], flat[14]], [1, 2, 3, 4, 5, 6])
        self.assertEqual(usm.as_tensor(Array("<f4", (0, 3))).shape, (0, 3))
        self.assertEqual(usm.as_tensor(Array("<f4", ())).shape, ())

    def test_kept(self) -> None:
        array = Array("<f4", (8,))
        gone = weakref.ref(array)
        part = usm.as_tensor(array)[2:4]
        del array
        gc.collect()
        self.assertIsNotNone(gone())
        part.fill_(1)
        del part
        gc.collect()
        self.assertIsNone(gone())

    def test_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "list has no __sycl_usm_array_interface__"):
            usm.as_tensor([1, 2])
        fixed = Array("<f4", (2,))
        fixed.__sycl_usm_array_interface__["data"] = (fixed.__sycl_usm_array_interface__["data"][0], True)
        with self.assertRaisesRegex(TypeError, "read-only"):
            usm.as_tensor(fixed)
        with self.assertRaisesRegex(TypeError, "elements of '>f4'"):
            usm.as_tensor(Array(">f4", (2,)))
        with self.assertRaisesRegex(TypeError, "negative strides"):
            usm.as_tensor(Array("<f4", (2,), strides=(-1,), offset=1))
        with self.assertRaisesRegex(RuntimeError, "memory of a GPU: that takes a PyTorch built with XPU"):
            usm.as_tensor(Array("<f4", (2,), is_cpu=False))
        shared = Array("<f4", (2,), is_cpu=False, usm_type="shared")
        self.assertEqual(usm.as_tensor(shared).device.type, "cpu")
        self.assertEqual(shared.waits, 1)


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
