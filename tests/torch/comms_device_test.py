# SPDX-License-Identifier: BSD-3-Clause
"""tutti_torch.comms on the tensors of devices: all calls against references, inputs that are computed late and outputs
that are overwritten at once, as in device_test.py; ranks of the host beside ranks on devices, tensors of both in one
communicator, windows, memory for pools, recorded calls, hooks. On a device that it knows nothing of, the test device of
tests/torch/device, whose memory faults when a thread of the host touches it; and, as cuda_world.py finds them, on CUDA
and on Intel's devices, which have windows for kernels, and ways that can be forced."""

from __future__ import annotations

import os
import tempfile
import time
import unittest
from typing import Any, Callable, List

if not {"TUTTI_TEST_CUDA", "TUTTI_TEST_XPU"} & set(os.environ):
    os.environ.setdefault("TUTTI_TEST_DEVICE", "tuttidev")

import cuda_world
import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import COLLECTIVES, CPU, Case, Pairs, given, new_comm
from cuda_world import TYPE, calls
from tutti_torch.comms import hooks

from calls import late, module, set_copy_delay, sleep

UNKNOWN = TYPE == "tuttidev"
if UNKNOWN:
    calls.SLOW = 10
TYPES = (torch.float32, torch.int64, torch.int8, torch.bfloat16)
on_unknown = ranks.on(2) if UNKNOWN else lambda function: function
on_gpus = lambda function: function if UNKNOWN else ranks.on(2)(function)  # noqa: E731


class LateCase(Case):
    """A call of a rank on a device, or of one on the host."""

    def mine(self, salt: int = 0) -> torch.Tensor:
        return self.on_device([self.given(self.rank, salt)])[0]

    def on_device(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        return [tensor.clone() if self.device == CPU else late(tensor, self.device) for tensor in tensors]


def compare(pairs: Pairs, what: str) -> None:
    """The stream's next work reads the results, and the work after that overwrites them."""
    seen = [tensor.clone() for tensor, _ in pairs]
    for tensor, _ in pairs:
        tensor.fill_(77)
    for tensor, (_, expected) in zip(seen, pairs):
        assert torch.equal(tensor.cpu(), expected), f"{what}: {tensor.cpu()}, not {expected}"


def call(comm: tc.TorchComm, make: Callable, case: Case, asynchronous: bool, **options: Any) -> tc.TorchWork:
    arguments, pairs = make(case)
    work = getattr(comm, make.__name__)(*arguments, asynchronous, **options)
    assert isinstance(work, tc.TorchWork)
    if asynchronous:
        work.wait()
    compare(pairs, f"{make.__name__} on {case.device}, rank {case.rank} of {case.n}, async_op={asynchronous}")
    work.wait_blocking()  # after wait alone, its results may be under way on the stream
    assert work.is_completed() and work.status() == tc.WorkStatus.COMPLETED
    return work


def try_all(comm: tc.TorchComm, device: torch.device, count: int = 37, case: type = LateCase) -> None:
    rank, n = comm.get_rank(), comm.get_size()
    for turn, make in enumerate(COLLECTIVES):
        call(comm, make, case(rank, n, count, TYPES[turn % len(TYPES)], device), turn % 2 == 0)


@ranks.on(2)
def all_calls(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "all", device)
    assert comm.get_device() == device
    set_copy_delay(calls.COPY)
    try_all(comm, device)
    for make in COLLECTIVES:
        for asynchronous in (True, False):
            call(comm, make, Case(rank, n, 5, torch.float32, device), asynchronous)
    set_copy_delay(0)
    for count in (1, 3000):
        try_all(comm, device, count, Case)
    child = comm.split([1, 0], "child")
    try_all(child, device, 3, Case)
    for one in (child, comm):
        one.finalize()


@ranks.on(2)
def by_the_tensors_device(rank: int, n: int, store: dist.Store) -> None:
    """On one communicator: calls on devices and on the host in turns, some under way at the same time."""
    device = calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "devices", device)
    second = torch.device(TYPE, 1 - device.index) if UNKNOWN else device
    for where in (CPU, device, second, CPU):
        try_all(comm, where, 3, Case)
    tensors = [late(given(rank, 50, torch.float32, i), d) if d != CPU else given(rank, 50, torch.float32, i)
               for i, d in enumerate((device, CPU, second, CPU, device))]  # fmt: skip
    works = [comm.all_reduce(tensor, tc.ReduceOp.SUM, True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    sums = [sum(given(r, 50, torch.float32, i) for r in range(n)) for i in range(len(tensors))]
    compare(list(zip(tensors, sums)), "mixed")
    if UNKNOWN:
        with ranks.raises(RuntimeError, "different devices"):
            comm.all_gather_single(torch.empty(2 * n, device=second), torch.empty(2, device=device), False)
    comm.barrier(False)
    comm.finalize()


@ranks.on(3)
def ranks_of_both(rank: int, n: int, store: dist.Store) -> None:
    """The last rank is on the host, the others are on devices."""
    device = CPU if rank == n - 1 else calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "both", device)
    assert comm.get_device() == device
    try_all(comm, device)
    got, mine = torch.zeros(9, device=device), torch.full((9,), float(rank), device=device)
    for asynchronous in (True, False):
        batch = comm.batch_op_create()
        batch.send(mine, (rank + 1) % n)
        batch.recv(got, (rank - 1) % n)
        batch.issue(asynchronous).wait()
        compare([(got, torch.full((9,), float((rank - 1) % n)))], "batch")
    child = comm.split(list(range(n)), "child")
    try_all(child, device, 3, Case)
    child.finalize()
    comm.finalize()


# ---- works, streams, messages ----


@on_unknown
def works(rank: int, n: int, store: dist.Store) -> None:
    """An asynchronous call returns while its input is computed. wait makes the current stream wait, wait_blocking the
    host, too."""
    device = calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "works", device)
    tensor = torch.ones(100, device=device)
    comm.all_reduce(tensor, tc.ReduceOp.SUM, False)
    module.synchronize()
    for blocking in (True, False):
        begin = time.monotonic()
        sleep(500)
        tensor.fill_(float(rank))
        work = comm.all_reduce(tensor, tc.ReduceOp.SUM, True)
        assert not work.is_completed() and work.status() == tc.WorkStatus.INPROGRESS
        assert time.monotonic() - begin < 0.45
        work.wait_blocking() if blocking else work.wait()
        assert time.monotonic() - begin >= 0.45 and (work.is_completed() or not blocking)
        compare([(tensor, torch.full((100,), float(sum(range(n)))))], f"blocking={blocking}")
    one, two = module.Stream(), module.Stream()
    with module.stream(one):
        tensor = late(given(rank, 200, torch.float32))
        work = comm.all_reduce(tensor, tc.ReduceOp.SUM, True)
    with module.stream(two):
        work.wait()
        compare([(tensor, sum(given(r, 200, torch.float32) for r in range(n)))], "streams")
    comm.finalize()


@ranks.on(2)
def messages(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "messages", device)
    peer = 1 - rank
    expected = given(peer, 50, torch.float32)
    got = calls.fresh(50)
    works = [comm.send(late(given(rank, 50, torch.float32)), peer, True), comm.recv(got, peer, True)]
    for work in works:
        work.wait()
    compare([(got, expected)], "crossing")
    mine, got = late(given(rank, 50, torch.float32)), calls.fresh(50)
    for action in ((comm.send, comm.recv) if rank == 0 else (comm.recv, comm.send)):
        action(mine if action.__name__ == "send" else got, peer, False)
    compare([(got, expected)], "one by one")
    for asynchronous in (False, True):
        batch, outs = comm.batch_op_create(), [calls.fresh(20), torch.zeros(20, device=device)]
        for i, out in enumerate(outs):
            batch.send(late(given(rank, 20, torch.float32, i)), peer)
            batch.recv(out, peer)
        batch.issue(asynchronous).wait()
        compare([(out, given(peer, 20, torch.float32, i)) for i, out in enumerate(outs)], "batch")
    comm.finalize()


@ranks.on(2)
def hooks_are_told(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm, told = new_comm(rank, n, store, "hooks", device), []
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        recorder, check = hooks.FlightRecorderHook(isolated=True), hooks.NanCheckHook()
        for one in (recorder, check, hooks.clog(log, ["LIFECYCLE"])):
            one.register_with_comm(comm)
        comm.register_pre_hook(lambda name, op_id, args: told.append((op_id, name.name, args)))
        comm.register_post_hook(lambda op_id, args: told.append((op_id, "post", getattr(args, "work", None))))
        for asynchronous in (True, False):
            tensor = late(given(rank, 10, torch.float32))
            call_of = comm.all_reduce(tensor, tc.ReduceOp.SUM, asynchronous)
            call_of.wait()
            call_of.wait_blocking()
            compare([(tensor, sum(given(r, 10, torch.float32) for r in range(n)))], "with hooks")
            (op_id, name, args), (same, post, work) = told
            assert (op_id, name, post) == (same, "all_reduce", "post") and args.tensor.device == device
            assert work.is_completed() and args.async_op == asynchronous
            told.clear()
        assert recorder.size() == 2 and recorder.dump_json().count("completed") >= 2
        if rank == 0:
            with ranks.raises(RuntimeError, "NaN detected", "all_reduce"):
                comm.all_reduce(torch.full((3,), float("nan"), device=device), tc.ReduceOp.SUM, False)
        with open(log) as file:
            events = [line.split("|")[1] for line in file.read().splitlines() if line.startswith("C")]
        assert events[:1] == ["sig"] and {"Q", "S", "E", "W"} <= set(events), events
    comm.barrier(False)
    comm.finalize()


# ---- windows ----


def part(comm: tc.TorchComm, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory of the device; of the host, where the library has none of it."""
    if UNKNOWN:
        return torch.zeros(count, dtype=dtype)
    tensor = comm.get_backend_impl().allocate_tensor(count, dtype=dtype, device=device).zero_()
    module.synchronize(device)  # peers will write into it, on streams of their own
    return tensor


@ranks.on(2)
def windows(rank: int, n: int, store: dist.Store) -> None:
    """What is put into the parts and got from them is on the device."""
    device = calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "windows", device)
    if UNKNOWN:
        with ranks.raises(RuntimeError, "of the host or of CUDA", "tuttidev"):
            comm.new_window(torch.zeros(4, device=device))
    own, peer = part(comm, 100, torch.float32, device), 1 - rank
    window = comm.new_window(own, n_signals=2)
    for turn in range(4):
        mine, expected = given(rank, 10, torch.float32, turn), given(peer, 10, torch.float32, turn)
        if turn < 2:
            window.put(late(mine), peer, 20, turn == 0).wait()
            window.signal(peer, turn == 1).wait()
        else:
            window.put_signal(late(mine), peer, 20, turn == 2).wait()
        window.wait_signal(peer, turn == 3).wait()
        assert torch.equal(own[20:30].cpu(), expected), turn
        comm.barrier(False).wait_blocking()
        got = calls.fresh(10)
        window.get(got, peer, 20, turn == 0).wait()
        compare([(got, mine)], "get")
        comm.barrier(False).wait_blocking()
    if not UNKNOWN and window.get_attr(peer).access_type == tc.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED:
        assert torch.equal(window.map_remote_tensor(peer)[20:30].cpu(), given(rank, 10, torch.float32, 3))
    window.signal(peer, False, index=1, value=5, op=tc.SignalOp.SET)
    window.wait_signal(peer, False, index=1, value=5, compare=tc.SignalCompare.EQ)
    assert window.read_signal(1) == 5
    window.flush()
    window.fence()
    comm.barrier(False).wait_blocking()
    window.tensor_deregister()
    comm.finalize()


@on_gpus
def atomics(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "atomics", device)
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


def windows_mixed(rank: int, n: int, store: dist.Store, spans: bool = False) -> None:
    """A part on the host beside one on a device, and both on the host; tensors of both are put and got."""
    device = calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "mixed windows", device)
    with ranks.raises(RuntimeError, "get_device_transport on rank", "mixed windows", "by messages",
                      "devices of no rank, and" if spans else "devices of ranks 0, 1, as kernels do"):
        comm.get_device_transport()
    peer = 1 - rank
    for host_parts in ((0,), (0, 1), ()):
        own = torch.zeros(64) if rank in host_parts else part(comm, 64, torch.float32, device)
        window = comm.new_window(own)
        assert window.device == own.device
        for turn, place in enumerate((CPU, device) * 2):
            mine, expected = given(rank, 10, torch.float32, turn), given(peer, 10, torch.float32, turn)
            sent = mine if place == CPU else late(mine)
            if turn < 2:
                window.put(sent, peer, 20, False)
                window.signal(peer, False)
            else:
                window.put_signal(sent, peer, 20, turn == 2).wait()
            window.wait_signal(peer, turn == 1).wait()
            assert torch.equal(own[20:30].cpu(), expected), (host_parts, turn, own)
            window.flush()
            comm.barrier(False).wait_blocking()
            got = torch.zeros(10, device=place)
            window.get(got, peer, 20, turn == 3).wait()
            assert torch.equal(got.cpu(), mine), (host_parts, turn, got)
            comm.barrier(False).wait_blocking()
        if window.get_attr(peer).access_type == tc.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED:
            there = window.map_remote_tensor(peer)
            assert there.device == (CPU if peer in host_parts else device)
            assert torch.equal(there[20:30].cpu(), given(rank, 10, torch.float32, 3))
        comm.barrier(False).wait_blocking()
        window.tensor_deregister()
    comm.finalize()


def windows_over_hosts(rank: int, n: int, store: dist.Store) -> None:
    """Each rank is a host of its own."""
    os.environ.update(TUTTI_HOST=f"host{rank}", TUTTI_TRUST_NETWORK="1")
    windows_mixed(rank, n, store, True)


@unittest.skipIf(UNKNOWN, "parts are of the host there")
class MixedWindows(unittest.TestCase):
    def test_one_host(self) -> None:
        ranks.run(windows_mixed, 2, backend=None, timeout=120.0)

    def test_two_hosts(self) -> None:
        ranks.run(windows_over_hosts, 2, backend=None, timeout=120.0)


@on_gpus
def windows_for_kernels(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "kernels", device)
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


# ---- memory, and calls that are recorded ----


@on_gpus
def pools(rank: int, n: int, store: dist.Store) -> None:
    """For each of the two allocators: what a pool takes from it serves calls and windows."""
    device = calls.use_device_of(rank)
    comm = new_comm(rank, n, store, "pools", device)
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
    comm = new_comm(rank, n, store, "persistent", device)
    tensor, output = torch.zeros(6, device=device), [torch.zeros(6, device=device) for _ in range(n)]
    sums, gathers = comm.all_reduce_p_init(tensor, tc.ReduceOp.SUM), comm.all_gather_p_init(output)
    inputs = [torch.zeros(4, device=device) for _ in range(n)]
    scattered = comm.reduce_scatter_p_init(torch.zeros(4, device=device), inputs, tc.ReduceOp.SUM)
    for turn in range(3):
        sleep(calls.SLOW)
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


# ---- ways that are forced ----


def forced(way: str) -> Callable:
    def test(rank: int, n: int, store: dist.Store) -> None:
        device = calls.use_device_of(rank)
        comm = new_comm(rank, n, store, way, device, backend=f"tutti:{way}")
        assert comm.get_backend() == f"tutti:{way}"
        try_all(comm, device)
        comm.finalize()

    return test


@unittest.skipIf(UNKNOWN, "the library has one way to it")
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


# ---- that the tests can fail ----


def in_order(rank: int, n: int, store: dist.Store) -> None:
    device = calls.use_device_of(rank)
    calls.SLOW = 250
    comm = new_comm(rank, n, store, "order", device)
    set_copy_delay(calls.COPY)
    for make in COLLECTIVES[:4]:
        call(comm, make, LateCase(rank, n, 37, torch.float32, device), True)
    comm.finalize()


@unittest.skipUnless(UNKNOWN, "only the test device can break the order")
class BrokenDevice(unittest.TestCase):
    def test_streams_that_do_not_wait(self) -> None:
        with self.assertRaises(ranks.RankError):
            ranks.run(in_order, 2, backend=None, env={"TUTTIDEV_BREAK": "wait"})


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    if not UNKNOWN:
        cuda_world.require_device()
    unittest.main()
