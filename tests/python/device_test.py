# SPDX-License-Identifier: BSD-3-Clause
"""Memory of CUDA devices by DLPack, on streams: on the driver that TUTTI_CUDA_DRIVER names (a stand-in plays one), else
on the system's. CuPy, PyTorch and JAX show theirs likewise."""

import array
import ctypes
import os
import unittest

import ranks
import tutti
from dlpack import CUDA, Producer


def check(result):
    if result:
        raise RuntimeError(f"CUDA's driver said {result}")


def driver_and_count():
    """The driver, and how many devices it has; none where there is no driver."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL(os.environ.get("TUTTI_CUDA_DRIVER") or "libcuda.so.1")
    except OSError:
        return None, 0
    started = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return driver, count.value if started else 0


class Device:
    """A device of the driver, current on this thread, with a stream."""

    def __init__(self, driver, index):
        self.driver, self.index = driver, index
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), index))
        check(driver.cuCtxSetCurrent(context))
        check(driver.cuStreamCreate(ctypes.byref(stream), 1))  # it does not wait for the default stream
        self.stream = stream.value

    def copy(self, to, source, count):
        arguments = (ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(4 * count))
        check(self.driver.cuMemcpyAsync(*arguments, ctypes.c_void_p(self.stream)))
        check(self.driver.cuStreamSynchronize(ctypes.c_void_p(self.stream)))

    def put(self, numbers, offset=0):
        """An array on the device, or what claims to be on one `offset` further."""
        data, at = array.array("f", numbers), ctypes.c_uint64()
        check(self.driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(4 * len(data))))
        self.copy(at.value, data.buffer_info()[0], len(data))
        return Producer(at.value, 2, 32, [len(data)], device=(CUDA, self.index + offset))

    def get(self, producer):
        """Its numbers, once the stream has come past what was enqueued."""
        data = array.array("f", [0.0] * producer.shape[0])
        self.copy(data.buffer_info()[0], producer.data, len(data))
        return data.tolist()


def on_devices(test, size, function):
    """function(comm, device) on threads, each with a device as far as they go."""
    driver, count = driver_and_count()
    if not count:
        test.skipTest("there is no CUDA device")
    ranks.threads(size, lambda comm: function(comm, Device(driver, comm.device)), device=lambda rank: rank % count)


class Devices(unittest.TestCase):
    def test_calls_on_a_stream(self):
        def run(comm, device):
            total = float(sum(range(1, comm.size + 1)))
            x, y = device.put([comm.rank + 1.0] * 1000), device.put([0.0] * 1000)
            self.assertIsNone(comm.all_reduce(x, y, stream=device.stream))
            self.assertEqual(device.get(y), [total] * 1000)
            comm.all_reduce(x, stream=device.stream)
            self.assertEqual(device.get(x), [total] * 1000)
            self.assertEqual(x.streams, [device.stream] * 2)  # what its producer still computes is waited for
            wide = device.put([0.0] * 3 * comm.size)
            comm.all_gather(device.put([float(comm.rank)] * 3), wide, stream=device.stream)
            self.assertEqual(device.get(wide), [float(rank) for rank in range(comm.size) for _ in range(3)])
            work = comm.all_reduce(y, op="max", async_op=True, stream=device.stream)
            self.assertIs(work.wait(20), True)
            again = comm.all_reduce(y, op="sum", persistent=True, stream=device.stream)
            again.start()
            again.start()
            self.assertEqual(device.get(y), [total * comm.size**2] * 1000)

        on_devices(self, 2, run)

    def test_messages_in_a_group(self):
        def run(comm, device):
            mine, got = device.put([float(comm.rank)] * 4), device.put([9.0] * 4)
            with tutti.group():
                comm.send(mine, (comm.rank + 1) % comm.size, stream=device.stream)
                comm.recv(got, (comm.rank - 1) % comm.size, stream=device.stream)
            self.assertEqual(device.get(got), [float((comm.rank - 1) % comm.size)] * 4)

        on_devices(self, 2, run)

    def test_memory_of_another_device(self):
        def run(comm, device):
            with self.assertRaisesRegex(tutti.ArgumentError, r"send is memory of device \d, and .* has \d"):
                comm.all_reduce(device.put([1.0], offset=1))

        on_devices(self, 2, run)


if __name__ == "__main__":
    ranks.main()
