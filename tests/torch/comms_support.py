# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of tutti_torch.comms share: a communicator for each rank of a test, by its environment where ranks are
processes and by hints where they are threads; and all calls of the API, each with its arguments and what is expected of
it. What rank r passes can be computed anywhere, so that every rank knows all results."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.distributed as dist
import tutti_torch.comms as tc

CPU = torch.device("cpu")
Pairs = List[Tuple[torch.Tensor, torch.Tensor]]


def hints_of(rank: int, n: int) -> Dict[str, str]:
    return {"rank": str(rank), "size": str(n)}


def new_comm(
    rank: int, n: int, store: dist.Store, name: str, device: torch.device = CPU, **options: Any
) -> tc.TorchComm:
    options.setdefault("timeout", timedelta(seconds=60))
    options["hints"] = {**hints_of(rank, n), **options.get("hints", {})}
    return tc.new_comm(options.pop("backend", "tutti"), device, name, store=store, **options)


def on_threads(n: int, body: Callable[[int, int, dist.Store], Any], seconds: float = 60.0) -> List[Any]:
    """body(rank, n, store) on n threads of this process; what each returned."""
    store, results, errors = dist.HashStore(), [None] * n, []

    def run(rank: int) -> None:
        try:
            results[rank] = body(rank, n, store)
        except BaseException:
            errors.append(f"rank {rank}: {traceback.format_exc()}")

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert not errors, "\n".join(errors)
    assert not any(thread.is_alive() for thread in threads), "a rank is not done in time"
    return results


# ---- all calls ----


def given(rank: int, count: int, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    """What that rank passes: small whole numbers, so that every order of a sum gives the same."""
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    return torch.randint(1, 5, (count,), generator=generator).to(dtype)


class Case:
    """One call: comm.<name>(*arguments, async_op), and pairs of what it wrote and what is expected there."""

    def __init__(self, rank: int, n: int, count: int, dtype: torch.dtype, device: torch.device) -> None:
        self.rank, self.n, self.count, self.dtype, self.device = rank, n, count, dtype, device

    def given(self, rank: int, salt: int = 0) -> torch.Tensor:
        return given(rank, self.count, self.dtype, salt)

    def mine(self, salt: int = 0) -> torch.Tensor:
        return self.given(self.rank, salt).to(self.device)

    def empty(self, count: int) -> torch.Tensor:
        return torch.full((count,), 77, dtype=self.dtype).to(self.device)

    def all(self, salt: int = 0) -> List[torch.Tensor]:
        return [self.given(r, salt) for r in range(self.n)]

    def blocks(self, rank: int) -> List[torch.Tensor]:
        """What that rank passes for each other one."""
        return [self.given(rank, 10 + r) for r in range(self.n)]

    def on_device(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        return [tensor.clone().to(self.device) for tensor in tensors]


def reduced(op: tc.ReduceOp, tensors: List[torch.Tensor]) -> torch.Tensor:
    stacked = torch.stack(tensors)
    kinds = tc.RedOpType
    if op.type == kinds.SUM:
        return stacked.sum(0).to(stacked.dtype)
    if op.type == kinds.MAX:
        return stacked.max(0).values
    if op.type == kinds.MIN:
        return stacked.min(0).values
    if op.type == kinds.PRODUCT:
        return stacked.prod(0).to(stacked.dtype)
    if op.type == kinds.AVG:  # whole numbers: towards zero
        return (stacked.to(torch.float64).sum(0) / len(tensors)).to(stacked.dtype)
    folds = {kinds.BAND: torch.bitwise_and, kinds.BOR: torch.bitwise_or, kinds.BXOR: torch.bitwise_xor}
    result = stacked[0]
    for other in stacked[1:]:
        result = folds[op.type](result, other)
    return result


def broadcast(case: Case) -> Tuple[tuple, Pairs]:
    root, tensor = case.n - 1, case.mine()
    return (tensor, root), [(tensor, case.given(root))]


def all_reduce(case: Case) -> Tuple[tuple, Pairs]:
    tensor = case.mine()
    return (tensor, tc.ReduceOp.SUM), [(tensor, reduced(tc.ReduceOp.SUM, case.all()))]


def reduce(case: Case) -> Tuple[tuple, Pairs]:
    root, tensor = case.n - 1, case.mine()
    pairs = [(tensor, reduced(tc.ReduceOp.MAX, case.all()))] if case.rank == root else []
    return (tensor, root, tc.ReduceOp.MAX), pairs


def all_gather(case: Case) -> Tuple[tuple, Pairs]:
    outputs = [case.empty(case.count) for _ in range(case.n)]
    return (outputs, case.mine()), list(zip(outputs, case.all()))


def all_gather_v(case: Case) -> Tuple[tuple, Pairs]:
    parts = [given(r, case.count + r, case.dtype) for r in range(case.n)]
    outputs = [case.empty(case.count + r) for r in range(case.n)]
    return (outputs, parts[case.rank].to(case.device)), list(zip(outputs, parts))


def all_gather_single(case: Case) -> Tuple[tuple, Pairs]:
    output = case.empty(case.n * case.count)
    return (output, case.mine()), [(output, torch.cat(case.all()))]


def reduce_scatter(case: Case) -> Tuple[tuple, Pairs]:
    output, op = case.empty(case.count), tc.ReduceOp.SUM
    expected = reduced(op, [case.blocks(r)[case.rank] for r in range(case.n)])
    return (output, case.on_device(case.blocks(case.rank)), op), [(output, expected)]


def reduce_scatter_v(case: Case) -> Tuple[tuple, Pairs]:
    def blocks(rank: int) -> List[torch.Tensor]:
        return [given(rank, case.count + r, case.dtype, 20 + r) for r in range(case.n)]

    output, op = case.empty(case.count + case.rank), tc.ReduceOp.SUM
    expected = reduced(op, [blocks(r)[case.rank] for r in range(case.n)])
    return (output, case.on_device(blocks(case.rank)), op), [(output, expected)]


def reduce_scatter_single(case: Case) -> Tuple[tuple, Pairs]:
    output, op = case.empty(case.count), tc.ReduceOp.SUM
    expected = reduced(op, [case.blocks(r)[case.rank] for r in range(case.n)])
    return (output, torch.cat(case.blocks(case.rank)).to(case.device), op), [(output, expected)]


def all_to_all_single(case: Case) -> Tuple[tuple, Pairs]:
    output = case.empty(case.n * case.count)
    expected = torch.cat([case.blocks(r)[case.rank] for r in range(case.n)])
    return (output, torch.cat(case.blocks(case.rank)).to(case.device)), [(output, expected)]


def all_to_all_v_single(case: Case) -> Tuple[tuple, Pairs]:
    """Rank a sends a + b rows to rank b: none from rank 0 to itself."""

    def rows(a: int, b: int) -> torch.Tensor:
        return given(a, (a + b) * 2, case.dtype, 30 + b).view(a + b, 2)

    ins = outs = [case.rank + b for b in range(case.n)]
    source = torch.cat([rows(case.rank, b) for b in range(case.n)]).to(case.device)
    output = torch.full((sum(outs), 2), 77, dtype=case.dtype).to(case.device)
    expected = torch.cat([rows(b, case.rank) for b in range(case.n)])
    return (output, source, outs, ins), [(output, expected)]


def all_to_all(case: Case) -> Tuple[tuple, Pairs]:
    outputs = [case.empty(case.count) for _ in range(case.n)]
    expected = [case.blocks(r)[case.rank] for r in range(case.n)]
    return (outputs, case.on_device(case.blocks(case.rank))), list(zip(outputs, expected))


def barrier(case: Case) -> Tuple[tuple, Pairs]:
    return (), []


def scatter(case: Case) -> Tuple[tuple, Pairs]:
    root, output = case.n - 1, case.empty(case.count)
    inputs = case.on_device(case.blocks(root)) if case.rank == root else []
    return (output, inputs, root), [(output, case.blocks(root)[case.rank])]


def gather(case: Case) -> Tuple[tuple, Pairs]:
    root = case.n - 1
    outputs = [case.empty(case.count) for _ in range(case.n)] if case.rank == root else []
    return (outputs, case.mine(), root), list(zip(outputs, case.all()))


def gather_single(case: Case) -> Tuple[tuple, Pairs]:
    root, output = case.n - 1, case.empty(case.n * case.count)
    pairs = [(output, torch.cat(case.all()))] if case.rank == root else []
    return (output, case.mine(), root), pairs


COLLECTIVES = (broadcast, all_reduce, reduce, all_gather, all_gather_v, all_gather_single, reduce_scatter,
               reduce_scatter_v, reduce_scatter_single, all_to_all_single, all_to_all_v_single, all_to_all, barrier,
               scatter, gather, gather_single)  # fmt: skip


def check(pairs: Pairs, what: str) -> None:
    for got, expected in pairs:
        assert got.dtype == expected.dtype and torch.equal(got.cpu(), expected), f"{what}: {got}, not {expected}"


def call(comm: tc.TorchComm, make: Callable, case: Case, asynchronous: bool, **options: Any) -> None:
    arguments, pairs = make(case)
    work = getattr(comm, make.__name__)(*arguments, asynchronous, **options)
    assert isinstance(work, tc.TorchWork)
    if asynchronous:
        work.wait()
    what = f"{make.__name__} of {case.count} {case.dtype} on rank {case.rank} of {case.n}"
    check(pairs, what)
    assert work.is_completed() and work.status() == tc.WorkStatus.COMPLETED, what


# ---- processes that come and go ----


class Process:
    """body(*arguments) in a process of its own, forked from this one; how it ended is asked for in time."""

    def __init__(self, body: Callable, *arguments: Any) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it goes with the test
                torch.set_num_threads(1)
                body(*arguments)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def ended(self, seconds: float) -> int:
        """Its exit code, negative for a signal; after that time it is killed."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError("a process did not end in time")


def exchange(store: dist.Store, step: str, names: List[str], name: str, handle: str) -> List[str]:
    """The handles of all of them, in this order: what programs do by their own control plane."""
    store.set(f"{step}/{name}", handle)
    return [store.get(f"{step}/{other}").decode() for other in names]
