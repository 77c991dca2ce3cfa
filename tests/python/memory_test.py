# SPDX-License-Identifier: BSD-3-Clause
"""Memory that others show: the buffer protocol, DLPack by a producer of our own and by the packages that are here
(NumPy, ml_dtypes, PyTorch, JAX, pyarrow), and what is refused."""

import array
import importlib
import unittest

import ranks
import tutti
from dlpack import Producer


def package(name):
    """A package, or the test is skipped with a sentence."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise unittest.SkipTest(f"{name} is not here") from None


class Protocols(unittest.TestCase):
    """On one rank: what a call of one rank reads and writes is its own."""

    def setUp(self):
        self.comm = tutti.Comm(0, 1, name=self.id())
        self.addCleanup(self.comm.close)

    def copied(self, send, recv):
        self.comm.all_reduce(send, recv)
        return recv

    def test_dlpack(self):
        for versioned in (True, False):
            data = bytearray(array.array("f", [1.0, 2.0, 3.0]).tobytes())
            got = array.array("f", [0.0] * 3)
            self.copied(Producer(data, 2, 32, [3], versioned=versioned), got)
            self.assertEqual(list(got), [1.0, 2.0, 3.0])
            self.copied(array.array("f", [4.0, 5.0]), Producer(data, 2, 32, [2, 1], [1, 1], versioned, offset=4))
            self.assertEqual(array.array("f", bytes(data)).tolist(), [1.0, 4.0, 5.0])

    def test_codes_of_dlpack(self):
        names = {(0, 8): "int8", (0, 64): "int64", (1, 16): "uint16", (2, 16): "float16", (2, 64): "float64",
                 (4, 16): "bfloat16", (5, 64): "complex64", (5, 128): "complex128", (6, 8): "bool",
                 (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}
        for (code, bits), name in names.items():
            with self.assertRaisesRegex(tutti.ArgumentError, f"recv is int32, and the other buffer {name}$"):
                self.comm.all_reduce(Producer(bytearray(32), code, bits, [256 // bits]), array.array("i", [0] * 8))

    def test_what_dlpack_refuses(self):
        data = bytearray(32)
        for producer, why in ((Producer(data, 2, 32, [4], [2]), "not contiguous"),
                              (Producer(data, 2, 32, [4], flags=1), "read-only"),
                              (Producer(data, 9, 8, [4]), "a type that tutti does not know"),
                              (Producer(data, 2, 24, [4]), "a type that tutti does not know")):
            with self.assertRaisesRegex(tutti.ArgumentError, f"all_reduce #1 on rank 0: send .*{why}"):
                self.comm.all_reduce(producer)

    def test_shapes_without_elements(self):
        self.comm.all_reduce(Producer(bytearray(4), 2, 32, [0, 3], [7, 7]))
        self.comm.all_reduce(array.array("f"))

    def test_types_by_name_and_number(self):
        for dtype in ("float16", tutti.FLOAT16, tutti.DType.FLOAT16, 10):
            self.comm.all_reduce(bytearray(4), dtype=dtype if dtype != 10 else int(tutti.FLOAT16))
        for wrong in ("float15", 99, -1, object):
            with self.assertRaisesRegex(ValueError, "dtype"):
                self.comm.all_reduce(bytearray(4), dtype=wrong)
        self.assertEqual(tutti.dtype_bytes("complex128"), 16)

    def test_numpy(self):
        numpy = package("numpy")
        for dtype in ("int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "complex128", "bool"):
            x = numpy.ones((3, 4), dtype)
            self.assertTrue((self.copied(x, numpy.zeros((3, 4), dtype)) == 1).all(), dtype)
            self.comm.all_reduce(x, dtype=x.dtype)
            self.comm.all_reduce(x, dtype=getattr(numpy, dtype if dtype != "bool" else "bool_"))
        for wrong in (numpy.ones((4, 4))[:, 1], numpy.ones(3, ">f4"), numpy.broadcast_to(numpy.ones(1), (2,))):
            with self.assertRaises(tutti.ArgumentError):
                self.comm.all_reduce(wrong)

    def test_ml_dtypes(self):
        numpy, ml_dtypes = package("numpy"), package("ml_dtypes")
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            x = numpy.array([1, 2, 4], getattr(ml_dtypes, name))
            self.assertEqual(self.copied(x, numpy.zeros_like(x)).tolist(), [1, 2, 4])
            self.comm.all_reduce(x, dtype=getattr(ml_dtypes, name))
            with self.assertRaisesRegex(tutti.ArgumentError, "contiguous"):
                self.comm.all_reduce(numpy.zeros(8, x.dtype)[::2])
            x.flags.writeable = False
            with self.assertRaisesRegex(tutti.ArgumentError, "read-only"):
                self.comm.all_reduce(x)

    def test_torch(self):
        torch = package("torch")
        for name in ("float32", "bfloat16", "int64", "bool", "float8_e4m3fn", "float8_e5m2"):
            x = torch.ones(5).to(getattr(torch, name))
            self.assertTrue((self.copied(x, torch.zeros_like(x)).float() == 1).all(), name)
            self.comm.all_reduce(x, dtype=x.dtype, op="max")

    def test_jax(self):
        jnp = package("jax.numpy")
        for dtype in (jnp.float32, jnp.bfloat16, jnp.int32):
            x = jnp.ones(6, dtype)
            got = bytearray(6 * x.dtype.itemsize)
            self.comm.all_reduce(x, got, dtype=x.dtype.name)
            self.assertEqual(bytes(got), x.tobytes())
            with self.assertRaisesRegex(tutti.ArgumentError, "read-only"):
                self.comm.all_reduce(x)

    def test_pyarrow(self):
        pyarrow = package("pyarrow")
        got = array.array("d", [0.0] * 3)
        self.copied(pyarrow.array([1.0, 2.0, 3.0]), got)
        self.assertEqual(list(got), [1.0, 2.0, 3.0])
        buffer = pyarrow.allocate_buffer(24)
        self.comm.all_reduce(got, buffer, dtype="float64")
        self.assertEqual(pyarrow.Array.from_buffers(pyarrow.float64(), 3, [None, buffer]).to_pylist(), [1.0, 2.0, 3.0])
        with self.assertRaisesRegex(tutti.ArgumentError, "read-only"):
            self.comm.all_reduce(pyarrow.py_buffer(bytes(8)), dtype="float64")


if __name__ == "__main__":
    ranks.main()
