# SPDX-License-Identifier: BSD-3-Clause
"""libtutti.so for benchmarks: communicators, device memory and collectives on a stream, by ctypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

DTYPES = {"bfloat16": 12, "float32": 13}  # enum tutti_dtype
SUM = 0  # enum tutti_op
TIMEOUT_NS = 12 * 10**9  # a call's: the library says which rank is awaited before a rank's own time is up


class CommConfig(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int32),
        ("n_ranks", c_int32),
        ("store", c_void_p),
        ("name", c_char_p),
        ("secret", c_char_p),
        ("timeout_ns", c_uint64),
        ("nonblocking", c_bool),
        ("device", c_int64),
    ]


class CallOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("timeout_ns", c_uint64),
        ("algorithm", c_char_p),
        ("label", c_char_p),
        ("premul", c_void_p),
        ("premul_value", c_double),
        ("attended", c_bool),
        ("stream", c_void_p),
    ]


class Option(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class Error(ctypes.Structure):
    _fields_ = [
        ("status", c_int),
        ("peer", c_int32),
        ("os_errno", c_int32),
        ("step", ctypes.c_uint32),
        ("seq", c_uint64),
        ("collective", c_char_p),
        ("text", ctypes.c_char * 440),
    ]


class Tutti:
    """One communicator over all ranks, whose environment says who they are."""

    def __init__(self, library: str, device: int, rank: int, n_ranks: int, options: dict, name: str = "peers") -> None:
        self.lib = ctypes.CDLL(library)
        self.lib.tutti_last_error.restype = POINTER(Error)
        given = (Option * max(1, len(options)))(*[Option(k.encode(), v.encode()) for k, v in options.items()])
        self.context, self.comm = c_void_p(), c_void_p()
        self.check(self.lib.tutti_context_create(given, c_size_t(len(options)), byref(self.context)))
        config = CommConfig(
            ctypes.sizeof(CommConfig), rank, n_ranks, None, name.encode(), None, TIMEOUT_NS, False, device
        )
        self.check(self.lib.tutti_comm_create(self.context, byref(config), byref(self.comm)))
        self.options = CallOptions(ctypes.sizeof(CallOptions), 0, None, None, None, 1.0, False, None)
        self.windows: list[c_void_p] = []

    def check(self, status: int) -> None:
        if status < 0:
            raise RuntimeError(self.lib.tutti_last_error().contents.text.decode())

    def state(self) -> None:
        """Raises what ended the communicator, if something did."""
        error = Error()
        if self.lib.tutti_comm_state(self.comm, byref(error)) < 0:
            raise RuntimeError(error.text.decode())

    def alloc(self, n_bytes: int) -> int:
        """Memory of the device in a window of all ranks."""
        address, window = c_void_p(), c_void_p()
        self.check(self.lib.tutti_mem_alloc(self.comm, c_size_t(n_bytes), byref(address)))
        self.check(self.lib.tutti_window_create(self.comm, address, c_size_t(n_bytes), None, byref(window)))
        self.windows.append(window)
        return int(address.value or 0)

    def call(self, op: str, send: int, recv: int, count: int, dtype: str, stream: int, method: str | None = None):
        options = self.options
        options.stream = stream
        options.algorithm = method.encode() if method else None
        s, r, n, t = c_void_p(send), c_void_p(recv), c_size_t(count), c_int(DTYPES[dtype])
        lib, comm, given = self.lib, self.comm, byref(options)
        if op == "all_reduce":
            status = lib.tutti_all_reduce(s, r, n, t, SUM, comm, given, None)
        elif op == "reduce_scatter":
            status = lib.tutti_reduce_scatter(s, r, n, t, SUM, comm, given, None)
        elif op == "all_gather":
            status = lib.tutti_all_gather(s, r, n, t, comm, given, None)
        elif op == "all_to_all":
            status = lib.tutti_all_to_all(s, r, n, t, comm, given, None)
        else:
            status = lib.tutti_broadcast(r, n, t, c_int32(0), comm, given, None)
        self.check(status)

    def close(self) -> None:
        for window in self.windows:
            self.lib.tutti_window_destroy(window)
        self.lib.tutti_comm_destroy(self.comm)
        self.lib.tutti_context_destroy(self.context)
