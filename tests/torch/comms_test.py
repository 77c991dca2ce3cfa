# SPDX-License-Identifier: BSD-3-Clause
"""torchcomms' API (tutti_torch.comms): all calls against a reference, synchronous and not, on ranks that are processes
and on ranks that are threads; messages and batches; split; works; what is refused, and in which words."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import unittest
from datetime import timedelta

import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import COLLECTIVES, CPU, Case, call, check, given, new_comm, on_threads, reduced

TYPES = (torch.float32, torch.int64, torch.int8, torch.bfloat16)


def try_all(comm: tc.TorchComm, sizes: tuple = (1, 5, 1000)) -> None:
    rank, n = comm.get_rank(), comm.get_size()
    for make in COLLECTIVES:
        for turn, count in enumerate((*sizes, 0)):
            dtype = TYPES[(turn + len(make.__name__)) % len(TYPES)]
            for asynchronous in (False, True):
                if count > 0 or not make.__name__.endswith("_v"):
                    call(comm, make, Case(rank, n, count, dtype, CPU), asynchronous)


@ranks.on(1, 2, 4)
def all_calls(rank: int, n: int, store: dist.Store) -> None:
    """Also of a megabyte, where a call takes another way."""
    comm = new_comm(rank, n, store, "all")
    assert (comm.get_rank(), comm.get_size(), comm.get_ranks()) == (rank, n, list(range(n)))
    assert (comm.get_name(), comm.get_backend(), comm.get_device()) == ("all", "tutti", CPU)
    assert comm.get_backend_version().count(".") == 2
    try_all(comm)
    for make in COLLECTIVES:
        call(comm, make, Case(rank, n, 300_001, torch.float32, CPU), True)
    comm.finalize()


@ranks.on(2, 4)
def reductions(rank: int, n: int, store: dist.Store) -> None:
    comm, op = new_comm(rank, n, store, "reductions"), tc.ReduceOp
    for one in (op.SUM, op.PRODUCT, op.MIN, op.MAX, op.BAND, op.BOR, op.BXOR, op.AVG):
        for dtype in (torch.int32, torch.int8, torch.float32):
            if dtype == torch.float32 and one in (op.BAND, op.BOR, op.BXOR):
                continue
            if dtype == torch.int8 and one == op.PRODUCT and n > 2:
                continue
            tensor = given(rank, 100, dtype)
            comm.all_reduce(tensor, one, False)
            check([(tensor, reduced(one, [given(r, 100, dtype) for r in range(n)]))], f"{one.type} {dtype}")
    for factor in (2.0, torch.tensor(0.5), torch.tensor([2.0], dtype=torch.bfloat16)):
        for dtype in (torch.float16, torch.float32, torch.float64, torch.bfloat16):
            tensor = given(rank, 100, dtype)
            comm.all_reduce(tensor, op.PREMUL_SUM(factor), async_op=False)
            check([(tensor, reduced(op.SUM, [given(r, 100, dtype) * float(factor) for r in range(n)]))], f"{factor}")
    comm.finalize()


@ranks.on(2, 4)
def messages(rank: int, n: int, store: dist.Store) -> None:
    """Around a ring: one by one, asynchronously, by tags, and in batches."""
    comm = new_comm(rank, n, store, "messages")
    after, before = (rank + 1) % n, (rank - 1) % n
    expected = given(before, 50, torch.float32)
    got, mine = torch.zeros(50), given(rank, 50, torch.float32)
    if rank % 2 == 0:
        comm.send(mine, after, False)
        comm.recv(got, before, False)
    else:
        comm.recv(got, before, False)
        comm.send(mine, after, False)
    check([(got, expected)], "ring")
    got.zero_()
    works = [comm.send(mine, after, True), comm.recv(got, before, async_op=True)]
    for work in works:
        work.wait()
    check([(got, expected)], "asynchronous ring")
    first, second = torch.zeros(1), torch.zeros(1)
    works = [comm.send(torch.ones(1) * tag, after, True, hints={"tag": str(tag)}) for tag in (7, 8)]
    works += [comm.recv(second, before, True, hints={"tag": "8"}), comm.recv(first, before, True, {"tag": "7"})]
    for work in works:
        work.wait()
    assert (first.item(), second.item()) == (7, 8)
    for asynchronous in (False, True):
        batch, outs = comm.batch_op_create(), [torch.zeros(50) for _ in range(2)]
        for i in range(2):
            batch.send(mine + i, after)
            batch.recv(outs[i], before)
        assert len(batch.ops) == 4 and batch.ops[1].type == tc.P2POpType.RECV and batch.ops[0].peer == after
        work = batch.issue(asynchronous, tc.BatchP2POptions())
        if asynchronous:
            work.wait()
        check([(outs[i], expected + i) for i in range(2)], "batch")
    comm.finalize()


@ranks.on(4)
def splits(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "parent")
    half = [0, 2] if rank % 2 == 0 else [3, 1]
    child = comm.split(half, "half")
    assert child.get_rank() == half.index(rank) and child.get_size() == 2 and child.get_ranks() == half
    try_all(child, (3,))
    grandchild = child.split([child.get_rank()], "alone")
    assert grandchild.get_ranks() == [rank]
    try_all(grandchild, (3,))
    again = comm.split(half, "half")  # the same ranks and name
    try_all(again, (3,))
    some = comm.split([1, 3] if rank in (1, 3) else [], "some")
    assert (some is None) == (rank in (0, 2))
    with ranks.raises(RuntimeError, "Duplicate ranks", f"rank {rank} of communicator 'parent'"):
        comm.split([rank, rank], "twice")
    with ranks.raises(RuntimeError, f"Current rank {rank} is not included"):
        comm.split([(rank + 1) % n], "without")
    with ranks.raises(RuntimeError, "rank 4 is not in [0, 4)"):
        comm.split([rank, 4], "beyond")
    for one in (some, again, grandchild, child, comm):
        if one is not None:
            one.finalize()


@ranks.on(2)
def several(rank: int, n: int, store: dist.Store) -> None:
    """Communicators of one name after another with one store, several at a time, and their calls crosswise."""
    for _ in range(3):
        comm = new_comm(rank, n, store, "same")
        comm.barrier(False)
        comm.finalize()
    comms = [new_comm(rank, n, store, f"c{i}") for i in range(3)]
    tensors = [torch.full((10,), float(rank + i)) for i in range(3)]
    works = [comm.all_reduce(tensor, tc.ReduceOp.SUM, True) for comm, tensor in zip(comms, tensors)]
    for i in (2, 0, 1):
        works[i].wait()
        assert tensors[i][0].item() == 1 + 2 * i
        comms[i].finalize()


@ranks.on(2)
def handles(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "handles")
    if rank == 0:
        tensor = torch.zeros(4)
        work = comm.recv(tensor, 1, True)
        assert not work.is_completed() and work.status() == tc.WorkStatus.INPROGRESS
        comm.send(torch.ones(1), 1, False)
        work.wait_blocking()
        work.wait_blocking()
        assert work.is_completed() and tensor[0].item() == 1
    else:
        comm.recv(torch.zeros(1), 0, False)
        comm.send(torch.ones(4), 0, False)
    comm.all_reduce(torch.ones(1000), tc.ReduceOp.SUM, True)  # nobody waits, the tensor is gone
    gc.collect()
    comm.barrier(False)
    comm.finalize()


@ranks.on(2)
def refused(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "refused")
    where = f"rank {rank} of communicator 'refused'"
    tensor = torch.zeros(4)
    with ranks.raises(RuntimeError, "broadcast", "root", "got 2", where):
        comm.broadcast(tensor, 2, False)
    with ranks.raises(RuntimeError, "send", "dst", "got -1"):
        comm.send(tensor, -1, False)
    with ranks.raises(RuntimeError, "all_reduce", "contiguous", where):
        comm.all_reduce(torch.zeros(4, 4)[:, 0], tc.ReduceOp.SUM, False)
    with ranks.raises(RuntimeError, "all_gather", "outputs has 1 tensors, 2 expected", where):
        comm.all_gather([tensor], tensor, False)
    with ranks.raises(RuntimeError, "output has 5 elements, 8 expected", where):
        comm.all_gather_single(torch.zeros(5), tensor, False)
    with ranks.raises(TypeError, "async_op"):
        comm.barrier()
    with ranks.raises(RuntimeError, "the batch is empty", where):
        comm.batch_op_create().issue(False)
    with ranks.raises(RuntimeError, "PREMUL_SUM needs a factor"):
        tc.ReduceOp(tc.RedOpType.PREMUL_SUM)
    comm.barrier(False)  # nothing of that was started
    comm.finalize()
    with ranks.raises(RuntimeError, "finalized already", "'refused'"):
        comm.finalize()
    with ranks.raises(RuntimeError, "finalized already"):
        comm.barrier(False)


@ranks.on(2)
def timeouts(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "late")
    comm.set_timeout(timedelta(seconds=50))
    assert comm.get_options().timeout == timedelta(seconds=50)
    with ranks.raises(RuntimeError, "more than 0"):
        comm.set_timeout(timedelta(0))
    if rank == 0:
        work = comm.recv(torch.zeros(1), 1, True, timeout=timedelta(milliseconds=200))
        with ranks.raises(dist.DistBackendError, "Timed out", "recv"):
            work.wait()
        assert work.is_completed() and work.status() == tc.WorkStatus.TIMEDOUT
    dist.PrefixStore("x", store).set(f"done{rank}", "")
    store.wait([f"x/done{1 - rank}"])
    comm.finalize()


@ranks.on(2)
def memory(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "memory")
    tensor = torch.full((1 << 18,), 99.0 if rank == 0 else 0.0)
    comm.tensor_register(tensor)
    with ranks.raises(RuntimeError, "registered already"):
        comm.tensor_register(tensor)
    comm.broadcast(tensor, 0, False)
    comm.tensor_deregister(tensor)
    assert torch.equal(tensor, torch.full((1 << 18,), 99.0))
    with ranks.raises(RuntimeError, "not registered"):
        comm.tensor_deregister(tensor)
    assert comm.get_mem_allocator() is not None
    comm.tensor_register(tensor)  # finalize lets it go
    comm.finalize()


PROGRAM = """import torch, tutti_torch.comms as tc
new = lambda name: tc.new_comm("tutti", torch.device("cpu"), name, hints={"rank": "0", "size": "1"})
c = new("first")
"""


def stderr_of(code: str) -> str:
    """What a program of one rank says."""
    command = [sys.executable, "-c", PROGRAM + code]
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


class Threads(unittest.TestCase):
    def test_all_calls(self) -> None:
        def body(rank: int, n: int, store: dist.Store) -> None:
            comm = new_comm(rank, n, store, "threads")
            try_all(comm)
            child = comm.split([0, 2] if rank % 2 == 0 else [1, 3], "half")
            try_all(child, (3,))
            child.finalize()
            comm.finalize()

        on_threads(4, body)

    def test_calls_of_many_threads(self) -> None:
        """Threads of one rank, each with its own communicator, and all with messages on a common one."""

        def body(rank: int, n: int, store: dist.Store) -> None:
            common = new_comm(rank, n, store, "common")
            comms = [new_comm(rank, n, store, f"t{i}") for i in range(4)]
            errors = []

            def calls(i: int) -> None:
                try:
                    for turn in range(50):
                        tensor = torch.full((20,), float(i + turn + rank))
                        comms[i].all_reduce(tensor, tc.ReduceOp.SUM, turn % 2 == 0).wait()
                        assert tensor[0].item() == 2 * (i + turn) + 1
                        got, hints = torch.zeros(3), {"tag": str(i)}
                        work = common.recv(got, 1 - rank, True, hints=hints)
                        common.send(torch.full((3,), float(100 * i + turn)), 1 - rank, False, hints=hints)
                        work.wait()
                        assert got[0].item() == 100 * i + turn
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=calls, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert not errors, errors
            for comm in (common, *comms):
                comm.finalize()

        on_threads(2, body)


class Alone(unittest.TestCase):
    """What needs no other rank."""

    def setUp(self) -> None:
        self.environment = dict(os.environ)

    def tearDown(self) -> None:
        os.environ.clear()
        os.environ.update(self.environment)

    def test_backends(self) -> None:
        self.assertIn("tutti:flat", tc.built_backends())
        self.assertTrue(tc.is_backend_built("tutti") and not tc.is_backend_built("tutti:oneccl"))
        for name in ("oneccl", "tutti:oneccl", "nccl"):
            with ranks.raises(RuntimeError, f"no backend '{name}'", "tutti:flat"):
                tc.new_comm(name, CPU, "x")
        for name in ("tutti:flat", "tutti:engine"):
            comm = tc.new_comm(name, CPU, "forced", hints={"rank": "0", "size": "1"})
            try_all(comm, (3,))
            self.assertEqual(comm.get_backend(), name)
            comm.finalize()

    def test_hints(self) -> None:
        comm = tc.new_comm("tutti", CPU, "hints", hints={"rank": "0", "size": "1", "ncclx::x": "1", "minCTAs": "4"})
        comm.set_hints({"algorithm": "all_reduce=ring,all_gather=ring"})
        self.assertEqual(comm.get_options().hints["algorithm"], "all_reduce=ring,all_gather=ring")
        try_all(comm, (3,))
        comm.all_gather_single(torch.zeros(2), torch.ones(2), False, hints={"algorithm": "ring"})
        with ranks.raises(RuntimeError, "\"no_such\" is no algorithm"):
            comm.all_reduce(torch.zeros(2), tc.ReduceOp.SUM, False, hints={"algorithm": "no_such"})
        with ranks.raises(RuntimeError, "'ring'", "all_reduce=ring"):
            comm.set_hints({"algorithm": "ring"})
        with ranks.raises(RuntimeError, "unknown hint 'algoritm'", "'algorithm'"):
            comm.set_hints({"algoritm": "ring"})
        said = stderr_of("c.barrier(False, hints={'tga': '1'}); c.barrier(False, {'tga': '1'}); c.finalize()")
        self.assertEqual(said.count("unknown hint 'tga'; the nearest that means something here is 'tag'"), 1)
        with ranks.raises(RuntimeError, "hint 'tag'", "not a number"):
            comm.barrier(False, hints={"tag": "x"})
        for hints in ({"rank": "0"}, {"rank": "1", "size": "1"}, {"rank": "a", "size": "1"}):
            with ranks.raises(RuntimeError, "hint"):
                tc.new_comm("tutti", CPU, "wrong", hints=hints)
        comm.finalize()

    def test_ranks_of_the_environment(self) -> None:
        for variables in ("TORCHCOMM_RANK TORCHCOMM_SIZE", "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE",
                          "PMI_RANK PMI_SIZE", "PALS_RANKID PMI_SIZE", "RANK WORLD_SIZE"):  # fmt: skip
            rank, size = variables.split()
            os.environ.update({rank: "0", size: "1"})
            comm = tc.new_comm("tutti", CPU, variables)
            self.assertEqual((comm.get_rank(), comm.get_size()), (0, 1))
            comm.finalize()
            del os.environ[rank], os.environ[size]
        with ranks.raises(RuntimeError, "torchrun", "TORCHCOMM_RANK"):
            tc.new_comm("tutti", CPU, "nowhere")
        os.environ.update({"TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD": "mpi", "RANK": "0", "WORLD_SIZE": "1"})
        with ranks.raises(RuntimeError, "QUERY_METHOD is mpi"):
            tc.new_comm("tutti", CPU, "nowhere")
        os.environ["TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"] = "slurm"
        with ranks.raises(RuntimeError, "none of auto, mpi, pals, torchrun"):
            tc.new_comm("tutti", CPU, "nowhere")
        os.environ["TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"] = "torchrun"
        os.environ["WORLD_SIZE"] = "2"
        with ranks.raises(RuntimeError, "MASTER_ADDR", "TORCHCOMM_STORE_PATH"):
            tc.new_comm("tutti", CPU, "nowhere")

    def test_options(self) -> None:
        self.assertEqual(tc.CommOptions().timeout, timedelta(seconds=600))
        os.environ.update({"TORCHCOMM_TIMEOUT_SECONDS": "7", "TORCHCOMM_ABORT_ON_ERROR": "true"})
        options = tc.CommOptions()
        self.assertTrue(options.abort_process_on_timeout_or_error)
        self.assertEqual(options.timeout, timedelta(seconds=7))
        os.environ["TORCHCOMM_ABORT_ON_ERROR"] = "perhaps"
        with ranks.raises(RuntimeError, "TORCHCOMM_ABORT_ON_ERROR=perhaps"):
            tc.CommOptions()

    def test_without_finalize(self) -> None:
        said = stderr_of("c.barrier(False); del c; d = new('second'); d.barrier(False); d.finalize(); print('alive')")
        self.assertIn("'first' was destroyed without finalize()", said)
        self.assertNotIn("'second'", said)
        self.assertIn("alive", said)


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    unittest.main()
