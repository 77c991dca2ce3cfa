# SPDX-License-Identifier: BSD-3-Clause
"""What PyTorch and the binding add to a call, and how much of a long call is hidden behind other work.

Overhead: the same all_reduce of 8 bytes through PyTorch on tutti, through PyTorch on its `fake` backend (which does
nothing: what PyTorch alone costs), and through tutti's C library alone, called by ctypes from the same processes; what
ctypes costs is measured on a function that does nothing with as many arguments, and taken off. Once in groups of one
rank, which wait for nobody, and once with all ranks, where each call also waits for the slowest of them. On GPUs: what
the host takes to enqueue a call of 1 KiB, by all of these and by the peers."""

from __future__ import annotations

import ctypes
import importlib
import time
from statistics import median
from typing import Callable

import torch
import torch.distributed as dist

from .cells import Clock, interleave, seconds_of

OVERLAP_BYTES = 64 << 20
NO_DEVICE = -2  # TUTTI_DEVICE_NONE
ENQUEUED = 64  # calls in a round, which all fit in the queues of a device


class CLibrary:
    """tutti's C interface on a communicator of its own, over the library that the backend has loaded."""

    class Config(ctypes.Structure):
        _fields_ = [
            ("size", ctypes.c_size_t),
            ("rank", ctypes.c_int32),
            ("n_ranks", ctypes.c_int32),
            ("store", ctypes.c_void_p),
            ("name", ctypes.c_char_p),
            ("secret", ctypes.c_char_p),
            ("timeout_ns", ctypes.c_uint64),
            ("nonblocking", ctypes.c_bool),
            ("device", ctypes.c_int64),
            ("survive", ctypes.c_int64),
            ("joins", ctypes.c_int64),
        ]

    def __init__(self, path: str, rank: int, n: int, name: str, device: int = NO_DEVICE) -> None:
        self.library = ctypes.PyDLL(path)  # keeps the GIL, as nobody else needs it: the cheapest way in
        self.dtype, self.op = self.constant("tutti_dtype_name", b"float32"), self.constant("tutti_op_name", b"sum")
        self.comm = ctypes.c_void_p()
        config = self.Config(ctypes.sizeof(self.Config), rank, n, None, name.encode(), None, 60 * 10**9, False)
        config.device = device
        status = self.library.tutti_comm_create(None, ctypes.byref(config), ctypes.byref(self.comm))
        if status < 0:
            raise RuntimeError(f"tutti_comm_create: status {status}")
        types = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int]
        types += [ctypes.c_void_p] * 3
        self.function, self.nothing = self.library.tutti_all_reduce, ctypes.PyDLL(None).getppid
        self.function.argtypes = self.nothing.argtypes = types

    def constant(self, function: str, name: bytes) -> int:
        """The value that the library's own table of names gives."""
        name_of = getattr(self.library, function)
        name_of.restype = ctypes.c_char_p
        return next(value for value in range(64) if name_of(value) == name)

    def arguments(self, tensor: torch.Tensor) -> tuple:
        pointer = ctypes.c_void_p(tensor.data_ptr())
        return pointer, pointer, tensor.numel(), self.dtype, self.op, self.comm, None, None

    def all_reduce(self, tensor: torch.Tensor) -> Callable[[], object]:
        arguments, function = self.arguments(tensor), self.function

        def call() -> None:
            if function(*arguments) < 0:
                raise RuntimeError("tutti_all_reduce failed")

        return call

    def empty(self, tensor: torch.Tensor) -> Callable[[], object]:
        """As all_reduce(), but for what is called."""
        arguments, function = self.arguments(tensor), self.nothing

        def call() -> None:
            if function(*arguments) < 0:
                raise RuntimeError("getppid failed")

        return call

    def close(self) -> None:
        self.library.tutti_comm_destroy(self.comm)


def measure_overhead(clock: Clock, peer, path: str, name: str, seconds: float) -> dict:
    """{"alone": parts, "all": parts}. path: of tutti's library; name: of this job's communicators."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  registers the backend "fake"

    comms = importlib.import_module("tutti_torch.comms")
    rank, n, tensor = dist.get_rank(), dist.get_world_size(), torch.zeros(2)
    fake = dist.new_group(backend="fake")
    alone = [dist.new_group([r], backend=peer.name) for r in range(n)][rank]
    result = {}
    for where, group, member, size in (("alone", alone, 0, 1), ("all", peer.group, rank, n)):
        job = f"{name}-{rank if size == 1 else where}"
        library = CLibrary(path, member, size, job)
        store = dist.PrefixStore(job, dist.distributed_c10d._get_default_store())
        hints = {"rank": str(member), "size": str(size)}
        comm = comms.new_comm("tutti", torch.device("cpu"), job, store=store, hints=hints)
        calls = {"comms": by_comms(comm, comms.ReduceOp.SUM, tensor), **by_library(library, tensor)}
        result[where] = parts_of_a_call(clock, group, fake, calls, seconds / 2)
        library.close()
        comm.finalize()
    return result


def by_comms(comm, sum_of, tensor: torch.Tensor) -> Callable[[], object]:
    """Through torchcomms' API."""
    return lambda: comm.all_reduce(tensor, sum_of, False)


def by_library(library: CLibrary, tensor: torch.Tensor) -> dict:
    return {"c": library.all_reduce(tensor), "ctypes": library.empty(tensor)}


def parts_of_a_call(clock: Clock, group, fake, others: dict, seconds: float) -> dict:
    """Microseconds of a call of 8 bytes in all its parts."""
    tensor = torch.zeros(2)
    calls = {
        "torch": lambda: dist.all_reduce(tensor, group=group),
        "fake": lambda: dist.all_reduce(tensor, group=fake),
        **others,
    }
    times = interleave(clock, calls, seconds, 20e-3)
    result = {}
    for which in ("median_us", "min_us"):
        parts = {name: times[name][which] for name in calls}
        parts["c"] -= parts["ctypes"]
        parts["overhead"] = parts["torch"] - parts["fake"] - parts["c"]
        parts["comms_overhead"] = parts["comms"] - parts["c"]
        result[which] = parts
    return result


# ---- on a GPU: calls that are enqueued ----


def host_us(clock: Clock, call: Callable[[], object], rounds: int = 15) -> float:
    """The median over rounds of the host's time of a call, at the slowest rank; what they leave to the device comes
    between rounds."""
    times = []
    for _ in range(rounds):
        clock.meet()
        start = time.perf_counter()
        for _ in range(ENQUEUED):
            call()
        times.append((time.perf_counter() - start) / ENQUEUED)
        torch.cuda.synchronize()
    return median(clock.most(times)) * 1e6


def measure_enqueued(clock: Clock, peers: list, path: str, name: str, device: torch.device) -> dict:
    """Microseconds of the host, or why not: by the C library, by PyTorch's backend fake, by each peer at once and as
    async_op that is waited for."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  registers the backend "fake"

    tensor, rank, n = torch.zeros(256, device=device), dist.get_rank(), dist.get_world_size()
    library = CLibrary(path, rank, n, f"{name}-enqueued", device.index)
    fake = dist.new_group(backend="fake")
    calls = {**by_library(library, tensor), "fake": lambda: dist.all_reduce(tensor, group=fake)}
    for peer in (peer for peer in peers if hasattr(peer, "group")):
        calls[peer.name] = lambda group=peer.group: dist.all_reduce(tensor, group=group)
        started = lambda group=peer.group: dist.all_reduce(tensor, group=group, async_op=True)  # noqa: E731
        calls[f"{peer.name}, async"] = lambda started=started: started().wait()
    found: dict[str, float | str] = {}
    for what, call in calls.items():
        found[what], reason = 0.0, ""
        try:
            call()
        except (RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
        failed = clock.most([float(bool(reason))])[0]
        found[what] = (reason or "another rank could not") if failed else host_us(clock, call)
    found["c"] -= found.pop("ctypes")
    torch.cuda.synchronize()
    clock.meet()
    library.close()
    return found


def compute_for(seconds: float) -> Callable[[], object]:
    """Work of one thread that takes about so long when it is alone."""
    matrix, out = torch.rand(256, 256), torch.empty(256, 256)
    one = min(seconds_of(lambda: torch.mm(matrix, matrix, out=out), 8) for _ in range(5)) / 8
    n = max(1, round(seconds / one))

    def compute() -> None:
        for _ in range(n):
            torch.mm(matrix, matrix, out=out)

    return compute


def measure_overlap(clock: Clock, peers: list, memory: torch.Tensor, seconds: float) -> dict:
    """For each peer: an asynchronous all_reduce beside computing, and beside a sleeping caller, each for as long as
    the all_reduce takes alone; and what part of the shorter of the two was hidden behind the other: what is saved of
    the time that one takes after the other, measured so, since memory that rests meanwhile leaves the caches."""
    tensor = memory[: OVERLAP_BYTES // 4].zero_()
    result = {}
    for peer in peers:
        if not hasattr(peer, "group"):
            continue

        def start(group=peer.group):
            return dist.all_reduce(tensor, group=group, async_op=True)

        alone = clock.most([min(seconds_of(lambda: start().wait(), 1) for _ in range(3))])[0]
        compute = compute_for(alone)

        def beside(other: Callable[[], object], start=start) -> None:
            work = start()
            other()
            work.wait()

        def after(other: Callable[[], object], start=start) -> None:
            other()
            start().wait()

        calls = {
            "alone": lambda: start().wait(),
            "compute": compute,
            "sleep": lambda: time.sleep(alone),
            "after_compute": lambda: after(compute),
            "after_sleep": lambda: after(lambda: time.sleep(alone)),
            "beside_compute": lambda: beside(compute),
            "beside_sleep": lambda: beside(lambda: time.sleep(alone)),
        }
        times = interleave(clock, calls, seconds / len(peers), alone)
        row = {name: times[name]["min_us"] for name in calls}  # what else runs would count three times
        for other in ("compute", "sleep"):
            saved = row["after_" + other] - row["beside_" + other]
            row["hidden_" + other] = min(1.0, saved / min(row["alone"], row[other]))
        result[peer.name] = row
    return result
