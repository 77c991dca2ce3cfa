# SPDX-License-Identifier: BSD-3-Clause
# label: gpu
"""tutti_torch.comms on CUDA: all calls against references, ranks of the host beside ranks on GPUs, tensors of both in
one communicator, windows (for kernels, too), memory for pools, recorded calls, hooks, and ways that can be forced."""

from __future__ import annotations

import unittest
from datetime import timedelta
from typing import Any, Callable, List

import cuda_world
import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import COLLECTIVES, CPU, Case, Pairs, given, new_comm
from cuda_world import calls
from tutti_torch.comms import hooks

TYPES = (torch.float32, torch.int64, torch.int8, torch.bfloat16)


class LateCase(Case):
    """Inputs that the stream has only when it has slept."""

    def mine(self, salt: int = 0) -> torch.Tensor:
        return self.on_device([self.given(self.rank, salt)])[0]

    def on_device(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        return [tensor.clone() if self.device == CPU else calls.late(tensor, self.device) for tensor in tensors]


def compare(pairs: Pairs, what: str) -> None:
    """The stream's next work reads the results, and the work after that overwrites them."""
    seen = [tensor.clone() for tensor, _ in pairs]
    for tensor, _ in pairs:
        tensor.fill_(77)
    for tensor, (_, expected) in zip(seen, pairs):
        assert torch.equal(tensor.cpu(), expected), f"{what}: {tensor.cpu()}, not {expected}"


def try_all(comm: tc.TorchComm, device: torch.device, case: type = Case, sizes: tuple = (37,)) -> None:
    rank, n = comm.get_rank(), comm.get_size()
    for turn, make in enumerate(COLLECTIVES):
        for count in sizes:
            arguments, pairs = make(case(rank, n, count, TYPES[turn % len(TYPES)], device))
            work = getattr(comm, make.__name__)(*arguments, turn % 2 == 0)
            work.wait()
            compare(pairs, f"{make.__name__} of {count} on {device}, rank {rank} of {n}")
            work.wait_blocking()
            assert work.is_completed() and work.status() == tc.WorkStatus.COMPLETED


def world(name: str, rank: int, n: int, store: dist.Store, device: torch.device, **options: Any) -> tc.TorchComm:
    options.setdefault("timeout", timedelta(seconds=60))
    return new_comm(rank, n, store, name, device, **options)


@ranks.on(2)
def all_calls(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = world("all", rank, n, store, device)
    assert comm.get_device() == device
    try_all(comm, device, LateCase)
    try_all(comm, device, sizes=(1, 3000))
    child = comm.split([1, 0], "child")
    try_all(child, device)
    child.finalize()
    comm.finalize()


@ranks.on(2)
def by_the_tensors_device(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = world("devices", rank, n, store, device)
    for where in (CPU, device, CPU):
        try_all(comm, where)
    tensors = [given(rank, 50, torch.float32, i).to(CPU if i % 2 else device) for i in range(4)]
    works = [comm.all_reduce(tensor, tc.ReduceOp.SUM, True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    compare([(t, sum(given(r, 50, torch.float32, i) for r in range(n))) for i, t in enumerate(tensors)], "mixed")
    comm.barrier(False)
    comm.finalize()


@ranks.on(3)
def ranks_of_both(rank: int, n: int, store: dist.Store) -> None:
    """The last rank is on the host."""
    device = CPU if rank == n - 1 else calls.use_device_of(rank)
    comm = world("both", rank, n, store, device)
    try_all(comm, device)
    got, mine = torch.zeros(9, device=device), torch.full((9,), float(rank), device=device)
    batch = comm.batch_op_create()
    batch.send(mine, (rank + 1) % n)
    batch.recv(got, (rank - 1) % n)
    batch.issue(True).wait()
    compare([(got, torch.full((9,), float((rank - 1) % n)))], "batch")
    comm.barrier(False)
    comm.finalize()


# ---- windows ----


def part(comm: tc.TorchComm, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    tensor = comm.get_backend_impl().allocate_tensor(count, dtype=dtype, device=device).zero_()
    calls.module.synchronize(device)  # peers will write into it, on streams of their own
    return tensor


@ranks.on(2)
def windows(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = world("windows", rank, n, store, device)
    own, peer = part(comm, 100, torch.float32, device), 1 - rank
    window = comm.new_window(own, n_signals=2)
    for turn in range(4):
        mine, expected = given(rank, 10, torch.float32, turn), given(peer, 10, torch.float32, turn)
        if turn < 2:
            window.put(calls.late(mine, device), peer, 20, turn == 0).wait()
            window.signal(peer, turn == 1).wait()
        else:
            window.put_signal(calls.late(mine, device), peer, 20, turn == 2).wait()
        window.wait_signal(peer, turn == 3).wait()
        assert torch.equal(own[20:30].cpu(), expected), turn
        comm.barrier(False).wait_blocking()
        got = torch.zeros(10, device=device)
        window.get(got, peer, 20, turn == 0).wait()
        compare([(got, mine)], "get")
        comm.barrier(False).wait_blocking()
    if window.get_attr(peer).access_type == tc.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED:
        assert torch.equal(window.map_remote_tensor(peer)[20:30].cpu(), given(rank, 10, torch.float32, 3))
    window.signal(peer, False, index=1, value=5, op=tc.SignalOp.SET)
    window.wait_signal(peer, False, index=1, value=5, compare=tc.SignalCompare.EQ)
    assert window.read_signal(1) == 5
    window.flush()
    window.fence()
    comm.barrier(False).wait_blocking()
    window.tensor_deregister()
    comm.finalize()


@ranks.on(2)
def atomics(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = world("atomics", rank, n, store, device)
    own = part(comm, 4, torch.int64, device)
    window = comm.new_window(own)
    before = torch.zeros(1, dtype=torch.int64, device=device)
    for _ in range(5):
        assert window.fetch_add(0, 1, 3) % 3 == 0
        window.fetch_add_into(before, 0, 1, 3, True).wait()
        assert before.cpu().item() % 3 == 0
    assert window.compare_swap(rank, 2, 0, 7) == 0 and window.compare_swap(rank, 2, 0, 8) == 7
    comm.barrier(False).wait_blocking()
    assert rank != 0 or own[1].item() == 30 * n
    comm.barrier(False).wait_blocking()
    window.tensor_deregister()
    comm.finalize()


@ranks.on(2)
def windows_for_kernels(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = world("kernels", rank, n, store, device)
    window = comm.new_window(part(comm, 64, torch.float32, device))
    address = window.get_device_window(signal_count=n + 16, barrier_count=2)
    assert address != 0 and address == window.get_device_window()
    buffer = torch.zeros(8, device=device)
    handle = window.register_local_buffer(buffer)
    assert handle == buffer.data_ptr()
    window.deregister_local_buffer(handle)
    with ranks.raises(RuntimeError, "register_local_buffer", "tensor is on cpu"):
        window.register_local_buffer(torch.zeros(8))
    comm.barrier(False).wait_blocking()
    window.tensor_deregister()
    comm.finalize()


# ---- memory, recorded calls, hooks ----


@ranks.on(2)
def pools(rank: int, n: int, store: dist.Store) -> None:
    """For each of the two allocators: what a pool takes from it serves calls and windows."""
    device = calls.use_device_of(rank)
    comm = world("pools", rank, n, store, device)
    for allocator in (comm.get_mem_allocator(), tc.get_mem_allocator("tutti")):
        pool = torch.cuda.MemPool(allocator)
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.empty(1000, device=device)
        tensor.fill_(rank + 1)
        comm.all_reduce(tensor, tc.ReduceOp.SUM, False)
        compare([(tensor, torch.full((1000,), n * (n + 1) / 2))], "of a pool")
        comm.barrier(False).wait_blocking()
        del tensor, pool
    comm.finalize()


@ranks.on(2)
def persistent(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = world("persistent", rank, n, store, device)
    tensor, output = torch.zeros(6, device=device), [torch.zeros(6, device=device) for _ in range(n)]
    sums, gathers = comm.all_reduce_p_init(tensor, tc.ReduceOp.SUM), comm.all_gather_p_init(output)
    inputs = [torch.zeros(4, device=device) for _ in range(n)]
    scattered = comm.reduce_scatter_p_init(torch.zeros(4, device=device), inputs, tc.ReduceOp.SUM)
    for turn in range(3):
        tensor.fill_(rank + turn)
        comm.all_reduce_p_exec(sums, turn % 2 == 0).wait()
        compare([(tensor, torch.full((6,), n * (n - 1) / 2 + n * turn))], "all_reduce_p")
        comm.all_gather_p_exec(gathers, torch.full((6,), 10.0 * turn + rank, device=device), turn % 2 == 0).wait()
        compare([(one, torch.full((6,), 10.0 * turn + r)) for r, one in enumerate(output)], "all_gather_p")
        for r, one in enumerate(inputs):
            one.fill_(turn + r)
        comm.reduce_scatter_p_exec(scattered, False)
    for name, handle in (("all_reduce", sums), ("all_gather", gathers), ("reduce_scatter", scattered)):
        getattr(comm, f"{name}_p_free")(handle)
    comm.finalize()


@ranks.on(2)
def hooks_are_told(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm, told = world("hooks", rank, n, store, device), []
    recorder = hooks.FlightRecorderHook(isolated=True)
    for one in (recorder, hooks.NanCheckHook()):
        one.register_with_comm(comm)
    comm.register_pre_hook(lambda name, op_id, args: told.append((name.name, args)))
    for asynchronous in (True, False):
        tensor = calls.late(given(rank, 10, torch.float32), device)
        comm.all_reduce(tensor, tc.ReduceOp.SUM, asynchronous).wait()
        compare([(tensor, sum(given(r, 10, torch.float32) for r in range(n)))], "with hooks")
        name, args = told.pop()
        assert name == "all_reduce" and args.tensor.device == device and args.async_op == asynchronous
    assert recorder.size() == 2
    comm.barrier(False)
    comm.finalize()


# ---- ways that are forced ----


def forced(way: str) -> Callable:
    def test(rank: int, n: int, store: dist.Store) -> None:
        device = calls.use_device_of(rank)
        comm = world(way, rank, n, store, device, backend=f"tutti:{way}")
        assert comm.get_backend() == f"tutti:{way}"
        try_all(comm, device)
        comm.finalize()

    return test


class Ways(unittest.TestCase):
    def on_two(self, way: str) -> None:
        if f"tutti:{way}" not in tc.built_backends():
            self.skipTest(f"there is no backend tutti:{way} here, but {', '.join(tc.built_backends())}")
        if way == "nccl" and cuda_world.count_devices() < 2:
            self.skipTest("NCCL wants a GPU for each rank, there is one")
        ranks.run(forced(way), 2, backend=None, timeout=120.0)

    def test_cuda(self) -> None:
        self.on_two("cuda")

    def test_nccl(self) -> None:
        self.on_two("nccl")

    def test_host(self) -> None:
        self.on_two("host")


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    cuda_world.require_device()
    unittest.main()
