# SPDX-License-Identifier: BSD-3-Clause
# timeout: 1200
# short: On2Ranks.test_results_and_gradients On2Ranks.test_numbers On2Ranks.test_methods_with_grad
# short: On2Ranks.test_methods_of_a_root_with_grad On4Ranks.test_results_and_gradients
"""tutti_torch.comms.functional: results and gradients of every collective on 2 and 4 ranks, against one process that
computes all ranks' outputs and lets autograd find the gradient of the sum of their losses, and against differences of
that loss; the same of the methods of TorchComm; and what is said of what can not be."""

from __future__ import annotations

import sys
import unittest
from typing import Any, Callable, List, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import tutti_torch.comms as tc
from comms_support import new_comm
from ranks import cases, on, raises
from tutti_torch.comms import ReduceOp, RedOpType, WorkStatus, functional

Tensors = List[Tensor]
FACTOR = 0.75


class Collective(NamedTuple):
    """inputs(rank, n): shapes of what that rank gives; call(comm, inputs): what it gets; alone(all inputs, n): what
    every rank gets."""

    name: str
    inputs: Callable[[int, int], List[tuple]]
    call: Callable[[Any, Tensors], Tensors]
    alone: Callable[[List[Tensors], int], List[Tensors]]


def reduced(op: str, tensors: Tensors) -> Tensor:
    stacked = torch.stack(tensors)
    if op == "AVG":
        return stacked.mean(0)
    if op == "PREMUL_SUM":
        return FACTOR * stacked.sum(0)
    return {"SUM": stacked.sum, "PRODUCT": stacked.prod, "MIN": stacked.amin, "MAX": stacked.amax}[op](0)


SCALED = ReduceOp.PREMUL_SUM(FACTOR)  # a compiler can not make one


def op_of(name: str) -> ReduceOp:
    return SCALED if name == "PREMUL_SUM" else getattr(ReduceOp, name)


def one(rank: int, n: int) -> List[tuple]:
    return [(3,)]


def listed(rank: int, n: int) -> List[tuple]:
    return [(2, 2)] * n


def whole(rank: int, n: int) -> List[tuple]:
    return [(2 * n, 2)]


def chunk(all_inputs: List[Tensors], sender: int, receiver: int, n: int) -> Tensor:
    return all_inputs[sender][0].chunk(n)[receiver]


def of_op(op: str) -> List[Collective]:
    def at_root(x: List[Tensors], n: int) -> List[Tensors]:
        return [x[r] if r != n - 1 else [reduced(op, [i[0] for i in x])] for r in range(n)]

    return [
        Collective(
            f"all_reduce {op}",
            one,
            lambda comm, x: [functional.all_reduce(comm, x[0], op_of(op))],
            lambda x, n: [[reduced(op, [i[0] for i in x])] for r in range(n)],
        ),
        Collective(
            f"reduce {op}",
            one,
            lambda comm, x: [functional.reduce(comm, x[0], comm.get_size() - 1, op_of(op))],
            at_root,
        ),
        Collective(
            f"reduce_scatter {op}",
            listed,
            lambda comm, x: [functional.reduce_scatter(comm, x, op_of(op))],
            lambda x, n: [[reduced(op, [i[r] for i in x])] for r in range(n)],
        ),
        Collective(
            f"reduce_scatter_v {op}",
            lambda rank, n: [(r + 1,) for r in range(n)],
            lambda comm, x: [functional.reduce_scatter_v(comm, x, op_of(op))],
            lambda x, n: [[reduced(op, [i[r] for i in x])] for r in range(n)],
        ),
        Collective(
            f"reduce_scatter_single {op}",
            whole,
            lambda comm, x: [functional.reduce_scatter_single(comm, x[0], op_of(op))],
            lambda x, n: [[reduced(op, [chunk(x, s, r, n) for s in range(n)])] for r in range(n)],
        ),
    ]


def at_root_only(results: Callable[[List[Tensors]], Tensors], empties: Callable[[int], int]) -> Callable:
    return lambda x, n: [results(x) if r == 0 else [torch.empty(0)] * empties(n) for r in range(n)]


def scatter(comm: Any, x: Tensors) -> Tensors:
    root = comm.get_rank() == 0
    return [functional.scatter(comm, x if root else None, 0, None if root else x[0])]


def splits(rank: int, n: int) -> tuple:
    """Rank a sends a + b rows to rank b: none from rank 0 to itself."""
    return [rank + b for b in range(n)], [rank + b for b in range(n)]


def all_to_all_v_alone(x: List[Tensors], n: int) -> List[Tensors]:
    parts = [x[s][0].split(splits(s, n)[1]) for s in range(n)]
    return [[torch.cat([parts[s][r] for s in range(n)])] for r in range(n)]


PLAIN = [
    Collective(
        "broadcast",
        one,
        lambda comm, x: [functional.broadcast(comm, x[0], 1)],
        lambda x, n: [x[1] for r in range(n)],
    ),
    Collective(
        "all_gather",
        one,
        lambda comm, x: functional.all_gather(comm, x[0]),
        lambda x, n: [[i[0] for i in x] for r in range(n)],
    ),
    Collective(
        "all_gather_v",
        lambda rank, n: [(rank + 1, 2)],
        lambda comm, x: functional.all_gather_v(comm, x[0], [(r + 1, 2) for r in range(comm.get_size())]),
        lambda x, n: [[i[0] for i in x] for r in range(n)],
    ),
    Collective(
        "all_gather_single",
        lambda rank, n: [(2, 3)],
        lambda comm, x: [functional.all_gather_single(comm, x[0])],
        lambda x, n: [[torch.cat([i[0] for i in x])] for r in range(n)],
    ),
    Collective(
        "all_to_all",
        lambda rank, n: [(rank + r + 1,) for r in range(n)],
        lambda comm, x: functional.all_to_all(comm, x, [(r + comm.get_rank() + 1,) for r in range(comm.get_size())]),
        lambda x, n: [[x[s][r] for s in range(n)] for r in range(n)],
    ),
    Collective(
        "all_to_all_single",
        whole,
        lambda comm, x: [functional.all_to_all_single(comm, x[0])],
        lambda x, n: [[torch.cat([chunk(x, s, r, n) for s in range(n)])] for r in range(n)],
    ),
    Collective(
        "all_to_all_v_single",
        lambda rank, n: [(sum(splits(rank, n)[1]), 2)],
        lambda comm, x: [functional.all_to_all_v_single(comm, x[0], *splits(comm.get_rank(), comm.get_size()))],
        all_to_all_v_alone,
    ),
    Collective(
        "scatter",
        lambda rank, n: [(3,)] * (n if rank == 0 else 1),
        scatter,
        lambda x, n: [[x[0][r]] for r in range(n)],
    ),
    Collective(
        "gather",
        one,
        lambda comm, x: functional.gather(comm, x[0], 0),
        at_root_only(lambda x: [i[0] for i in x], lambda n: n),
    ),
    Collective(
        "gather_single",
        lambda rank, n: [(2, 2)],
        lambda comm, x: [functional.gather_single(comm, x[0], 0)],
        at_root_only(lambda x: [torch.cat([i[0] for i in x])], lambda n: 1),
    ),
]
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "PREMUL_SUM")
ALL = PLAIN + [each for op in OPS for each in of_op(op)]


def random(shape: tuple, *seeds: int) -> Tensor:
    seed = sum(factor * number for factor, number in zip((1, 101, 10007), seeds))
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def given(what: Collective, rank: int, n: int) -> Tensors:
    return [random(shape, rank, i).requires_grad_() for i, shape in enumerate(what.inputs(rank, n))]


def loss_of(outputs: Tensors, rank: int) -> Tensor:
    """Not linear, so that gradients of gradients are there, too."""
    return sum(((random(tuple(y.shape), rank, i, 7) * y) + 0.1 * y**3).sum() for i, y in enumerate(outputs))


def alone(what: Collective, n: int) -> tuple:
    """All ranks' inputs, outputs, and gradients."""
    inputs = [given(what, rank, n) for rank in range(n)]
    outputs = what.alone(inputs, n)
    total = sum(loss_of(y, rank) for rank, y in enumerate(outputs))
    flat = torch.autograd.grad(total, [x for each in inputs for x in each], allow_unused=True)
    found = iter([torch.zeros(()) if grad is None else grad for grad in flat])
    return outputs, [[next(found) for _ in each] for each in inputs]


def same(got: Tensors, want: Tensors, what: str) -> None:
    assert len(got) == len(want), what
    for one_got, one_want in zip(got, want):
        want_all = one_want.to(one_got.dtype)
        want_all = want_all.view_as(one_got) if one_want.numel() == one_got.numel() else want_all.expand_as(one_got)
        assert torch.allclose(one_got, want_all, rtol=1e-10, atol=1e-12), f"{what}: {one_got}, not {one_want}"


def check_one(what: Collective, comm: Any, call: Callable, rank: int, n: int) -> None:
    outputs, grads = alone(what, n)
    inputs = given(what, rank, n)
    got = call(comm, inputs)
    same([y.detach() for y in got], [y.detach() for y in outputs[rank]], f"{what.name} on rank {rank} of {n}")
    loss_of(got, rank).backward()
    same([x.grad for x in inputs], grads[rank], f"gradient of {what.name} on rank {rank} of {n}")


@on(2, 4)
def results_and_gradients(rank: int, n: int, store: Any) -> None:
    comm = new_comm(rank, n, store, "results_and_gradients")
    for what in ALL:
        check_one(what, comm, what.call, rank, n)
    comm.finalize()


@on(2)
def numbers(rank: int, n: int, store: Any) -> None:
    """The gradient of every element of every rank, by differences of the sum of all ranks' losses."""
    comm, step = new_comm(rank, n, store, "numbers"), 1e-5

    def total(what: Collective, changed: int, place: tuple, by: float) -> float:
        inputs = given(what, rank, n)
        if rank == changed:
            inputs[place[0]].detach().view(-1)[place[1]] += by
        loss = loss_of(what.call(comm, [x.detach() for x in inputs]), rank).detach()
        comm.all_reduce(loss, ReduceOp.SUM, async_op=False)
        return float(loss)

    for what in PLAIN + [each for op in OPS for each in of_op(op)[:2]] + of_op("PRODUCT") + of_op("MAX"):
        inputs = given(what, rank, n)
        loss_of(what.call(comm, inputs), rank).backward()
        for changed in range(n):
            for i, shape in enumerate(what.inputs(changed, n)):
                for j in range(torch.Size(shape).numel()):
                    up, down = (total(what, changed, (i, j), by) for by in (step, -step))
                    if rank == changed:
                        slope, found = (up - down) / (2 * step), float(inputs[i].grad.view(-1)[j])
                        assert abs(slope - found) < 1e-6 * max(1, abs(slope)), f"{what.name}: {found}, not {slope}"
    comm.finalize()


@on(4)
def ties(rank: int, n: int, store: Any) -> None:
    """Ranks that have the same least or greatest value share the gradient; a product of zeros has one, too."""
    comm = new_comm(rank, n, store, "ties")
    for op, values in (("MAX", [3.0, 3.0, 1.0, 3.0]), ("MIN", [0.0, 2.0, 0.0, 5.0]), ("PRODUCT", [0.0, 2.0, 3.0, 4.0])):
        every = [torch.tensor([value, 1.0], dtype=torch.float64, requires_grad=True) for value in values]
        reduced(op, every).sum().backward()
        x = torch.tensor([values[rank], 1.0], dtype=torch.float64, requires_grad=True)
        y = functional.all_reduce(comm, x, getattr(ReduceOp, op))
        (y.sum() / n).backward()
        same([x.grad], [every[rank].grad], op)
    comm.finalize()


@on(2)
def gradients_of_gradients(rank: int, n: int, store: Any) -> None:
    comm = new_comm(rank, n, store, "gradients_of_gradients")
    for what in PLAIN + of_op("SUM") + of_op("AVG"):
        every = [given(what, r, n) for r in range(n)]
        total = sum(loss_of(y, r) for r, y in enumerate(what.alone(every, n)))
        flat = [x for each in every for x in each]
        first = torch.autograd.grad(total, flat, create_graph=True, materialize_grads=True)
        second = torch.autograd.grad(sum((g**2).sum() for g in first), flat, allow_unused=True)
        want = dict(zip(map(id, flat), second))

        inputs = given(what, rank, n)
        grads = torch.autograd.grad(loss_of(what.call(comm, inputs), rank), inputs, create_graph=True)
        got = torch.autograd.grad(sum((g**2).sum() for g in grads), inputs)
        expected = [want[id(x)] for x in every[rank]]
        same(got, [torch.zeros(()) if x is None else x for x in expected], f"second gradient of {what.name}")
    comm.finalize()


@on(2)
def methods_with_grad(rank: int, n: int, store: Any) -> None:
    """Eager: tensors that require grad pass through; what is returned are the results, and a handle."""
    functional.enable()
    comm = new_comm(rank, n, store, "methods_with_grad")
    x = torch.ones(4, requires_grad=True)
    y = comm.all_reduce(x * 2.0, ReduceOp.SUM, async_op=True)
    y.wait()
    assert y.status() == WorkStatus.COMPLETED and y.is_completed()
    assert torch.equal(y.detach(), torch.full((4,), 2.0 * n))
    out = [torch.zeros(4) for _ in range(n)]
    gathered = comm.all_gather(out, y, async_op=False)
    sum(each.sum() for each in gathered).backward()
    assert torch.equal(x.grad, torch.full((4,), 2.0 * n * n)), x.grad
    with torch.no_grad():
        work = comm.all_reduce(x, ReduceOp.SUM, async_op=False)
    assert work.is_completed() and not isinstance(work, Tensor)
    leaf = torch.ones(4, requires_grad=True)  # is written, and has a gradient of its own
    y = comm.all_reduce(leaf, ReduceOp.SUM, async_op=False)
    y.sum().backward()
    assert torch.equal(leaf, torch.full((4,), float(n))) and torch.equal(leaf.grad, torch.full((4,), float(n)))
    comm.finalize()


def weights(rank: int) -> Tensor:
    return torch.tensor([1.0, 2.0, 3.0]) * (rank + 1)


def to_and_from_a_root(comm: Any, rank: int, n: int, root: int) -> None:
    """Losses of the ranks are sums of weights(rank) * what they got; others than the root get empty tensors."""
    x = torch.full((3,), rank + 1.0, requires_grad=True)
    outputs = [torch.zeros(3) for _ in range(n)] if rank == root else []
    got = comm.gather(outputs, x * 2, root, async_op=False)
    got = got if isinstance(got, list) else [got]
    sum((weights(r) * y).sum() if rank == root else y.sum() for r, y in enumerate(got)).backward()
    same([x.grad], [2 * weights(rank)], "gather")
    if rank == root:
        same([y.detach() for y in outputs], [torch.full((3,), 2.0 * (r + 1)) for r in range(n)], "gathered")

    x = torch.full((3,), rank + 1.0, requires_grad=True)
    output = torch.zeros(3 * n if rank == root else 0)
    got = comm.gather_single(output, x * 2, root, async_op=False)
    ((torch.cat([weights(r) for r in range(n)]) * got).sum() if rank == root else got.sum()).backward()
    same([x.grad], [2 * weights(rank)], "gather_single")

    parts = [torch.full((3,), r + 1.0, requires_grad=True) for r in range(n)]
    output = torch.zeros(3, requires_grad=rank != root)
    got = comm.scatter(output, [2 * part for part in parts] if rank == root else [], root, async_op=False)
    (weights(rank) * got).sum().backward()
    assert torch.equal(got.detach(), torch.full((3,), 2.0 * (rank + 1))) and torch.equal(output.detach(), got.detach())
    if rank == root:
        same([part.grad for part in parts], [2 * weights(r) for r in range(n)], "scatter")
    else:
        same([output.grad], [torch.zeros(3)], "scatter")

    x = torch.full((3,), rank + 1.0, requires_grad=True)
    got = comm.reduce(x * 2, root, ReduceOp.SUM, async_op=False)
    (weights(rank) * got).sum().backward()
    own = torch.zeros(3) if rank == root else 2 * weights(rank)  # the others keep what they had
    same([x.grad], [2 * weights(root) + own], "reduce")


@on(2, 4)
def methods_of_a_root_with_grad(rank: int, n: int, store: Any) -> None:
    functional.enable()
    comm = new_comm(rank, n, store, "methods_of_a_root_with_grad")
    for root in range(n):
        to_and_from_a_root(comm, rank, n, root)
    comm.finalize()


@on(2)
def refusals(rank: int, n: int, store: Any) -> None:
    comm = new_comm(rank, n, store, "refusals")
    x = torch.ones(2, dtype=torch.int64)
    assert torch.equal(functional.all_reduce(comm, x, ReduceOp.BOR), x)
    assert torch.equal(functional.all_reduce(comm, x, ReduceOp(RedOpType.SUM)), n * x)
    if rank == 0:
        functional.send(comm, torch.ones(2, requires_grad=True), 1)
    else:
        functional.recv(comm, torch.ones(2), 0)
    with raises(TypeError, "all_reduce() misses the argument 'async_op'"):
        functional.methods.arguments_of("all_reduce", (x, ReduceOp.SUM), {})
    comm.finalize()
    with raises(RuntimeError, "finalized"):
        functional.all_reduce(comm, x, ReduceOp.SUM)


@on(2)
def what_torchcomms_has_besides(rank: int, n: int, store: Any) -> None:
    """Tensors that wait by themselves, the operators that wait, questions about versions, a torch.distributed backend
    over a communicator."""
    comm = new_comm(rank, n, store, "besides")
    tensor = torch.full((3,), float(rank + 1))
    late = functional.async_tensor.TorchCommsAsyncTensor(tensor, comm.all_reduce(tensor, ReduceOp.SUM, async_op=True))
    assert torch.equal(late + 1, torch.full((3,), 4.0)) and late.completed
    x = torch.ones(2, requires_grad=True)
    (waited,) = torch.ops.torchcomms.torchcomm_wait_tensors([x])
    waited.sum().backward()
    assert torch.equal(x.grad, torch.ones(2))
    other = torch.full((3,), float(rank + 1))
    late = functional.async_tensor.TorchCommsAsyncTensor(other, comm.all_reduce(other, ReduceOp.SUM, async_op=True))
    (waited,) = torch.ops.torchcomms.torchcomm_wait_tensors_([late])
    assert torch.equal(waited, torch.full((3,), 3.0))
    assert functional.is_torch_compile_supported_and_enabled(_current_version="2.6.0") is False
    backend = tc._comms._BackendWrapper(comm)
    group = dist.ProcessGroup(store, rank, n)
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(custom)
    group._register_backend(torch.device("cpu"), custom, backend)
    one = torch.ones(2)
    group.allreduce([one]).wait()
    assert one.tolist() == [2.0, 2.0]
    comm.finalize()


cases(globals(), backend=None, timeout=500.0)

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
