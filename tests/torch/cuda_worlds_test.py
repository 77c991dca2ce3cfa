# SPDX-License-Identifier: BSD-3-Clause
# label: gpu
"""Groups with CUDA tensors (or Intel's): the ways to make one, single messages, and how one ends when a rank aborts, is
late, leaves or calls something else. Each test has processes and groups of its own."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import time
import unittest
from datetime import timedelta
from typing import Callable

import cuda_world
import ranks
import torch
import torch.distributed as dist
import tutti_torch
from cuda_world import calls
from calls import TYPE, compare, late, module, values
from comms_support import Process


def sums(rank: int, n: int, device: torch.device) -> None:
    tensor = late(values(rank, 1000))
    dist.all_reduce(tensor)
    compare([(tensor, sum(values(r, 1000) for r in range(n)))])


def named(rank: int, n: int, store: dist.Store) -> None:
    names = ["tutti", f"{TYPE}:tutti", f"cpu:tutti,{TYPE}:tutti", f"cpu:gloo,{TYPE}:tutti"]
    cuda_world.on_each(names, sums, rank, n, store)


def bound(rank: int, n: int, store: dist.Store) -> None:
    """device_id= connects at once, and makes groups by splitting; single messages then need no meeting of their own."""
    device = cuda_world.world(rank, n, store, "tutti", device_id=calls.use_device_of(rank))
    sums(rank, n, device)
    dist.barrier()
    mesh = dist.init_device_mesh(TYPE, (1, n), mesh_dim_names=("outer", "inner"))
    tensor = values(rank, 100).to(device)
    dist.all_reduce(tensor, group=mesh.get_group("outer"))
    dist.all_reduce(tensor, group=mesh.get_group("inner"))
    assert torch.equal(tensor.cpu(), sum(values(r, 100) for r in range(n)))
    if rank == 0:
        dist.send(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
    dist.destroy_process_group()


def messages_of_pairs(rank: int, n: int, store: dist.Store) -> None:
    """In a group of three, two of them have something to tell each other before all have met."""
    device = cuda_world.world(rank, n, store, "tutti")
    tensor = values(rank, 5000).to(device)
    if rank < 2:
        other = torch.empty_like(tensor)
        (dist.send(tensor, 1), dist.recv(other, 1)) if rank == 0 else (dist.recv(other, 0), dist.send(tensor, 0))
        assert torch.equal(other.cpu(), values(1 - rank, 5000))
    dist.all_reduce(tensor)
    assert torch.equal(tensor.cpu(), sum(values(r, 5000) for r in range(n)))
    dist.destroy_process_group()


def abort(rank: int, n: int, store: dist.Store) -> None:
    """A kernel that waits for a rank that does not come is ended; the device stays usable."""
    device = cuda_world.world(rank, n, store, "tutti")
    tensor = torch.ones(1000, device=device)
    dist.all_reduce(tensor)
    module.synchronize()
    begin = time.monotonic()
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        time.sleep(0.2)
        dist.distributed_c10d._get_default_group()._get_backend(device).abort()
        module.synchronize()
        with ranks.raises(dist.DistBackendError, "abort"):
            work.wait()
        assert not work.is_success()
        store.set("aborted", "")
    else:
        store.wait(["aborted"])
    with ranks.raises(dist.DistBackendError, "abort"):
        while time.monotonic() - begin < 20:
            dist.all_reduce(tensor)
            module.synchronize()
            time.sleep(0.2)
    assert torch.equal(torch.ones(10, device=device).cpu(), torch.ones(10))
    dist.destroy_process_group()
    assert time.monotonic() - begin < 20


def late_rank(rank: int, n: int, store: dist.Store) -> None:
    """The deadline ends a call for which a rank is missing."""
    device = cuda_world.world(rank, n, store, "tutti")
    tensor = torch.ones(1000, device=device)
    dist.all_reduce(tensor)
    module.synchronize()
    backend = dist.distributed_c10d._get_default_group()._get_backend(device)
    backend._set_default_timeout(timedelta(seconds=1))
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        with ranks.raises(dist.DistBackendError, "given to wait"):
            work.wait(timedelta(milliseconds=100))
        with ranks.raises(dist.DistBackendError, "imed out"):
            work.wait(timedelta(seconds=30))
        store.set("told", "")
    else:
        store.wait(["told"])
    dist.destroy_process_group()


def leaving_rank(rank: int, n: int, store: dist.Store) -> None:
    """A rank that waits for one that has left is told."""
    device = cuda_world.world(rank, n, store, "tutti")
    tensor = torch.ones(1000, device=device)
    dist.all_reduce(tensor)
    module.synchronize()
    if rank == 0:
        with ranks.raises(dist.DistBackendError, "rank 1"):
            dist.all_reduce(tensor)
            module.synchronize()
            time.sleep(1)
            dist.all_reduce(tensor)
    dist.destroy_process_group()


def mismatch(rank: int, n: int, store: dist.Store) -> None:
    """A rank that calls on is told, also one that had all that it waited for."""
    device = cuda_world.world(rank, n, store, "tutti", timeout=timedelta(seconds=10))
    dist.all_reduce(torch.ones(10, device=device))
    module.synchronize()
    begin = time.monotonic()
    with ranks.raises(dist.DistBackendError, "all_reduce", "1000 elements", "1001 elements"):
        dist.all_reduce(torch.ones(1000 + rank, device=device))
        while time.monotonic() - begin < 20:
            time.sleep(0.2)
            dist.all_reduce(torch.ones(10, device=device))
    dist.destroy_process_group()


def failed_device(rank: int, n: int, store: dist.Store, ending: str) -> None:
    """A device that failed for good answers nothing any more: the group ends all the same, and the program goes on."""
    device = calls.use_device_of(rank)
    backend = tutti_torch._C.Backend(store, rank, n, tutti_torch._C.Backend.Options())
    for _ in range(3):  # some time apart, so that the flight recorder has an event to ask
        backend.allreduce([torch.ones(10, device=device)]).wait()
        time.sleep(0.002)
    module.synchronize()
    backend.barrier().wait()  # on the host
    torch.ops.tuttidev.fail_for_good()
    if ending == "program":
        tutti_torch._C.end_program()
    elif ending == "shutdown":
        backend.shutdown()
    del backend
    gc.collect()


def killed(path: str, rank: int) -> None:
    """Rank 1 dies; rank 0, whose call waits for it, is told within a second or so."""
    device = cuda_world.world(rank, 2, dist.FileStore(path, 2), "tutti")
    tensor = torch.ones(1000, device=device)
    dist.all_reduce(tensor)
    module.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with ranks.raises(dist.DistBackendError, "rank 1 died"):
        while time.monotonic() - begin < 20:
            dist.all_reduce(tensor)
            module.synchronize()
            time.sleep(0.05)
    assert time.monotonic() - begin < 10
    dist.destroy_process_group()


class Killed(unittest.TestCase):
    def test_survivor_is_told(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store")
            processes = [Process(killed, path, rank) for rank in range(2)]
            self.assertEqual([process.ended(60) for process in processes], [0, -signal.SIGKILL])


class Worlds(unittest.TestCase):
    """Each with processes and groups of its own."""


def in_a_world(function: Callable, n: int, *args: str) -> Callable:
    return lambda self: ranks.run(function, n, *args, backend=None, timeout=120.0) and None


for function, n in ((named, 2), (bound, 2), (messages_of_pairs, 3), (abort, 2), (late_rank, 2), (leaving_rank, 2),
                    (mismatch, 2)):  # fmt: skip
    setattr(Worlds, f"test_{function.__name__}", in_a_world(function, n))
for ending in ("program", "destructor", "shutdown"):
    if cuda_world.PLAYED:  # GPUs can not be made to fail
        setattr(Worlds, f"test_failed_device_{ending}", in_a_world(failed_device, 2, ending))


if __name__ == "__main__":
    cuda_world.require_device()
    unittest.main()
