# SPDX-License-Identifier: BSD-3-Clause
"""Tensors that are not a plain piece of memory (strides, holes, gradients, conjugates, sparse ones), and arguments that
are wrong: the rank that erred gets a ValueError that names the collective and the argument, and the group lives on."""

from __future__ import annotations

import unittest
from typing import Any, Callable, Tuple

import ranks
import torch
import torch.distributed as dist
from ranks import finish, raises
from reference import ReduceOp, check, inputs, same, values
from torch.distributed.distributed_c10d import AllreduceOptions, BroadcastOptions, ReduceOptions


def images(rank: int, batch: int = 2) -> torch.Tensor:
    """A batch in channels-last layout."""
    plain = values("images", rank, batch * 3 * 4 * 5, torch.float32).view(batch, 3, 4, 5)
    return plain.contiguous(memory_format=torch.channels_last)


# ---- layouts ----


@ranks.on(2, 3)
def dense_strides(rank: int, n: int) -> None:
    """What fills its memory goes as it lies, in place."""
    for make in (images, lambda r: values("t", r, 12, torch.float32).view(3, 4).t()):
        given = [make(r) for r in range(n)]
        for later in (False, True):
            tensor = given[rank].clone()
            assert tensor.stride() == given[rank].stride() and not tensor.is_contiguous()
            finish(dist.all_reduce(tensor, async_op=later), later)
            check(tensor, given, ReduceOp.SUM)
        tensor = given[rank].clone()
        dist.broadcast(tensor, n - 1)
        same(tensor, given[n - 1])
        tensor = given[rank].clone()
        dist.reduce(tensor, 0)
        if rank == 0:
            check(tensor, given, ReduceOp.SUM)
        if rank == 0:
            dist.send(given[0].clone(), 1)
        elif rank == 1:
            got = torch.empty_like(given[0])
            dist.recv(got, 0)
            same(got, given[0])


@ranks.on(2)
def channels_last_into_tensor(rank: int, n: int) -> None:
    given = [images(r) for r in range(n)]
    whole = torch.empty(n * 2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    dist.all_gather_into_tensor(whole, given[rank])
    same(whole, torch.cat(given))
    output = torch.empty(1, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    dist.reduce_scatter_tensor(output, given[rank])
    check(output, [tensor[rank:rank + 1] for tensor in given], ReduceOp.SUM)
    whole = torch.empty(n * 2, 3, 4, 5)
    for plain in (whole, whole.view(n, 2, 3, 4, 5), whole.flatten()):  # elements would come out of order
        with raises(ValueError, "all_gather_into_tensor", "Tensors must be contiguous"):
            dist.all_gather_into_tensor(plain, given[rank])
    with raises(ValueError, "reduce_scatter_tensor", "Tensors must be contiguous"):
        dist.reduce_scatter_tensor(torch.empty(60), given[rank])


@ranks.on(2, 3)
def lists_of_any_strides(rank: int, n: int) -> None:
    """Lists are packed anyhow: tensors of other strides, also with holes, keep the place of every element."""
    given = inputs("strides", n, 12, torch.float32)
    shaped = [tensor.view(3, 4) for tensor in given]
    holes = torch.zeros(3, 8)[:, ::2]
    holes.copy_(shaped[rank])
    for mine in (holes, shaped[rank].t().contiguous().t()):
        outputs = [torch.zeros(3, 8)[:, ::2], torch.zeros(4, 3).t(), torch.zeros(3, 4)][:n]
        for later in (False, True):
            for output in outputs:
                output.zero_()
            finish(dist.all_gather(outputs, mine, async_op=later), later)
            for output, want in zip(outputs, shaped):
                same(output, want)
            got = [torch.zeros(4, 3).t() for _ in range(n)] if rank == 0 else None
            finish(dist.gather(mine, got, 0, async_op=later), later)
            for output, want in zip(got or (), shaped):
                same(output, want)
            output = torch.zeros(3, 8)[:, ::2]
            finish(dist.scatter(output, got, 0, async_op=later), later)
            same(output, shaped[rank])
            finish(dist.reduce_scatter(output, [holes] * n, async_op=later), later)
            check(output, shaped, ReduceOp.SUM)
            outs = [torch.zeros(3, 8)[:, 1::2] for _ in range(n)]
            finish(dist.all_to_all(outs, [mine] * n, async_op=later), later)
            for output, want in zip(outs, shaped):
                same(output, want)


@ranks.on(2)
def holes_are_refused(rank: int, n: int) -> None:
    holes, whole = torch.ones(4, 8)[:, ::2], torch.ones(4, 4)
    calls: Tuple[Tuple[str, Callable[[], Any]], ...] = (
        ("all_reduce", lambda: dist.all_reduce(holes)),
        ("broadcast", lambda: dist.broadcast(holes, 0)),
        ("reduce", lambda: dist.reduce(holes, 0)),
        ("all_gather_into_tensor", lambda: dist.all_gather_into_tensor(torch.empty(8, 4), holes)),
        ("all_gather_into_tensor", lambda: dist.all_gather_into_tensor(torch.empty(8, 8)[:, ::2], whole)),
        ("reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(torch.empty(2, 4), holes)),
        ("all_to_all_single", lambda: dist.all_to_all_single(torch.empty(4, 4), holes)),
        ("all_to_all_single", lambda: dist.all_to_all_single(torch.empty(2, 2), torch.arange(4.0).view(2, 2).t())),
        ("send", lambda: dist.send(holes, 1 - rank)),
        ("recv", lambda: dist.recv(holes, 1 - rank)),
        ("all_reduce", lambda: dist.all_reduce(torch.ones(1).expand(4))),
    )
    for name, call in calls:
        with raises(ValueError, name, "Tensors must be contiguous"):
            call()
    dist.barrier()


@ranks.on(2)
def views_of_conjugates(rank: int, n: int) -> None:
    """Conjugates are a bit on the tensor: memory that says otherwise is not sent."""
    plain = values("conjugate", rank, 6, torch.complex64)
    others = inputs("conjugate", n, 6, torch.complex64)
    options = AllreduceOptions()
    with raises(ValueError, "all_reduce", "conjugate"):
        ranks.backend_of().allreduce([plain.conj()], options)
    outputs = [[torch.empty(6, dtype=torch.complex64) for _ in range(n)]]
    dist.group.WORLD.allgather(outputs, [plain.conj()]).wait()
    for output, other in zip(outputs[0], others):
        same(output, other.conj().resolve_conj())
    imaginary = plain.conj().imag  # negative
    assert imaginary.is_neg()
    gathered = [torch.empty(6) for _ in range(n)]
    dist.all_gather(gathered, imaginary)
    for output, other in zip(gathered, others):
        same(output, -other.imag.clone())


@ranks.on(2, 3)
def scalars(rank: int, n: int) -> None:
    """Tensors without dimensions."""
    tensor = torch.tensor(float(rank + 1))
    dist.all_reduce(tensor)
    assert tensor.item() == n * (n + 1) / 2
    outputs = [torch.tensor(0) for _ in range(n)]
    dist.all_gather(outputs, torch.tensor(rank))
    assert outputs == list(range(n))
    whole = torch.empty(n, dtype=torch.long)
    dist.all_gather_into_tensor(whole, torch.tensor(rank))
    assert whole.tolist() == list(range(n))


# ---- gradients ----


@ranks.on(2)
def tensors_that_require_grad(rank: int, n: int) -> None:
    """Parameters are communicated; nothing of it is recorded for the backward pass."""
    given = inputs("grad", n, 5, torch.float32)

    def parameter() -> torch.nn.Parameter:
        return torch.nn.Parameter(given[rank].clone())

    leaf = parameter()
    for later in (False, True):
        with torch.no_grad():
            leaf.copy_(given[rank])
        finish(dist.all_reduce(leaf, async_op=later), later)
        check(leaf, given, ReduceOp.SUM)
        outputs = [parameter() for _ in range(n)]
        finish(dist.all_gather(outputs, parameter(), async_op=later), later)
        for output, want in zip(outputs, given):
            same(output, want)
            assert output.grad_fn is None and output.is_leaf
        whole = torch.nn.Parameter(torch.zeros(n * 5))
        finish(dist.all_gather_into_tensor(whole, parameter(), async_op=later), later)
        same(whole, torch.cat(given))
        finish(dist.broadcast(leaf, 1, async_op=later), later)
        finish(dist.reduce_scatter(leaf, [parameter() for _ in range(n)], async_op=later), later)
        check(leaf, given, ReduceOp.SUM)
        finish(dist.all_to_all(outputs, [parameter() for _ in range(n)], async_op=later), later)
        same(outputs[1 - rank], given[1 - rank])
    assert leaf.is_leaf and leaf.requires_grad and leaf.grad_fn is None


@ranks.on(2)
def tensors_of_inference_mode(rank: int, n: int) -> None:
    """They can be written in that mode alone, and calls may end anywhere."""
    given = inputs("inference", n, 5, torch.float32)
    for later in (False, True):
        for of_mode in (False, True):  # what is written
            with torch.inference_mode(of_mode):
                outputs, output, whole = [torch.empty(5) for _ in range(n)], torch.empty(5), torch.empty(n * 5)
            with torch.inference_mode():
                mine = given[rank].clone()
                works = [
                    dist.all_gather(outputs, mine, async_op=later),
                    dist.reduce_scatter(output, [mine.clone() for _ in range(n)], async_op=later),
                    dist.all_gather_into_tensor(whole, mine, async_op=later),
                ]
            for work in works:
                finish(work, later)
            same(torch.cat(outputs), torch.cat(given))
            same(whole, torch.cat(given))
            check(output, given, ReduceOp.SUM)
            with torch.inference_mode():
                finish(dist.all_to_all(outputs, [mine + r for r in range(n)], async_op=later), later)
            same(outputs[1 - rank], given[1 - rank] + rank)


# ---- sparse ----


def sparse(rank: int, n: int, dims: int) -> torch.Tensor:
    """Rows of its own, rows that others have too, and one entry twice."""
    indices = torch.tensor([[rank, n, 0, 0], [1, 2, 0, 0]])[:dims]
    rest = (4,) if dims == 1 else ()
    entries = values("sparse", rank, 4 * (4 if rest else 1), torch.float64).view(4, *rest)
    return torch.sparse_coo_tensor(indices, entries, (n + 1, 4))


@ranks.on(1, 2, 3)
def sparse_sums(rank: int, n: int) -> None:
    before = dist.distributed_c10d._get_default_group()._get_sequence_number_for_group()
    for dims in (1, 2):
        want = sum(sparse(r, n, dims).to_dense() for r in range(n))
        for later in (False, True):
            tensor = sparse(rank, n, dims)
            finish(dist.all_reduce(tensor, async_op=later), later)
            assert tensor.is_sparse and torch.allclose(tensor.to_dense(), want)
    after = dist.distributed_c10d._get_default_group()._get_sequence_number_for_group()
    assert after == before + 4, (before, after)
    nothing = torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.long), torch.empty(0), (3, 4))
    dist.all_reduce(nothing)
    assert nothing._nnz() == 0
    with raises(ValueError, "sparse", "sum"):
        dist.all_reduce(sparse(rank, n, 2), ReduceOp.MAX)


@ranks.on(2)
def sparse_where_dense_is_asked_for(rank: int, n: int) -> None:
    tensor = sparse(rank, n, 2)
    backend = ranks.backend_of()
    with raises(ValueError, "broadcast", "dense"):
        backend.broadcast([tensor], BroadcastOptions())
    with raises(ValueError, "reduce", "dense"):
        backend.reduce([tensor], ReduceOptions())
    with raises(ValueError, "all_gather", "sparse"):
        backend.allgather([[tensor, tensor]], [tensor])
    dist.barrier()


# ---- wrong arguments ----


def wrong_calls(rank: int, n: int) -> Tuple[Tuple[Callable[[], Any], str, str], ...]:
    """What to call, and two words of its sentence: the collective and the argument."""
    group = dist.group.WORLD
    f4, i4 = torch.ones(4), torch.ones(4, dtype=torch.int32)
    meta, rows, rest = torch.ones(4, device="meta"), torch.ones(2 * n), [2 * n + 1] + [0] * (n - 2)

    def root(options: Any) -> Any:
        options.rootRank = n
        return options

    def reduction(tensor: torch.Tensor, op: Any) -> Callable[[], Any]:
        options = AllreduceOptions()
        options.reduceOp = op
        return lambda: group.allreduce([tensor], options)

    def many(k: int, like: torch.Tensor = f4) -> list:
        return [like.clone() for _ in range(k)]

    return (
        (lambda: dist.all_gather(many(n + 1), f4), "all_gather", "outputs"),
        (lambda: dist.all_gather(many(n, torch.ones(5)), f4), "all_gather", "elements"),
        (lambda: group.allgather([many(n, i4)], [f4]), "all_gather", "types"),
        (lambda: group.allgather([many(n - 1) + [meta]], [f4]), "all_gather", "devices"),
        (lambda: dist.all_gather_into_tensor(torch.ones(4 * n + 1), f4), "all_gather_into_tensor", "output"),
        (lambda: dist.all_gather_into_tensor(torch.ones(4 * n, dtype=torch.int32), f4), "all_gather_into_tensor",
         "types"),
        (lambda: dist.reduce_scatter(f4, many(n + 1)), "reduce_scatter", "inputs"),
        (lambda: dist.reduce_scatter_tensor(f4, torch.ones(4 * n - 1)), "reduce_scatter_tensor", "input"),
        (lambda: dist.reduce_scatter_tensor(i4, torch.ones(4 * n)), "reduce_scatter_tensor", "types"),
        (lambda: dist.gather(f4, many(n + 2) if rank == 0 else many(1), 0), "", ""),
        (lambda: dist.scatter(f4, many(n + 2), rank), "scatter", "inputs"),
        (lambda: dist.all_to_all(many(n), many(n - 1)), "all_to_all", "inputs"),
        (lambda: dist.all_to_all(many(n + 1), many(n)), "all_to_all", "outputs"),
        (lambda: dist.all_to_all_single(rows, rows, [1] * (n + 1), None), "all_to_all_single", "output"),
        (lambda: dist.all_to_all_single(rows, rows, None, [2 * n + 1] + [0] * (n - 1)), "all_to_all_single", "input"),
        (lambda: dist.all_to_all_single(rows, rows, None, [-1, *rest]), "all_to_all_single", "negative"),
        (lambda: group.alltoall_base(rows, rows.int(), [], []), "all_to_all_single", "types"),
        (lambda: dist.all_to_all_single(torch.ones(4 * n + 1), torch.ones(4 * n + 1)), "all_to_all_single", "splits"),
        (lambda: dist.all_to_all_single(torch.tensor(1.0), torch.tensor(1.0)), "all_to_all_single", "scalar"),
        (lambda: group.broadcast([f4], root(BroadcastOptions())), "broadcast", "root"),
        (lambda: group.reduce([f4], root(ReduceOptions())), "reduce", "root"),
        (lambda: group.broadcast([f4, i4], BroadcastOptions()), "broadcast", "types"),
        (lambda: dist.isend(f4, (rank + 1) % n, tag=-2), "send", "tag"),
        (lambda: dist.irecv(f4, (rank + 1) % n, tag=-2), "recv", "tag"),
        (lambda: group.send([f4], n, 0), "send", "rank"),
        (lambda: group.recv([f4], n, 0), "recv", "rank"),
        (reduction(f4, ReduceOp.BAND), "all_reduce", "band"),
        (reduction(torch.ones(2, dtype=torch.complex64), ReduceOp.MAX), "all_reduce", "max"),
        (reduction(torch.ones(2, dtype=torch.bool), ReduceOp.AVG), "all_reduce", "avg"),
        (reduction(torch.ones(2, dtype=torch.bool), dist._make_nccl_premul_sum(2.0)), "all_reduce", "premul"),
        (reduction(i4, dist._make_nccl_premul_sum(0.5)), "PREMUL_SUM", "factor"),
        (reduction(i4, dist._make_nccl_premul_sum(torch.tensor(1.5))), "PREMUL_SUM", "factor"),
        (reduction(torch.ones(2).to(torch.float8_e4m3fnuz), ReduceOp.SUM), "all_reduce", "Float8_e4m3fnuz"),
        (lambda: ranks.backend_of().allreduce_coalesced([]), "all_reduce_coalesced", "empty"),
    )  # fmt: skip


@ranks.on(2, 3)
def wrong_arguments(rank: int, n: int) -> None:
    group = dist.distributed_c10d._get_default_group()
    before = group._get_sequence_number_for_group()
    for call, *words in wrong_calls(rank, n):
        with raises(TypeError if "types" in words else ValueError, *words):
            call()
    assert group._get_sequence_number_for_group() == before
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [float(n)] * 3


@ranks.on(3)
def one_rank_errs(rank: int, n: int) -> None:
    """The others wait meanwhile, and get their results when it calls again."""
    for later in (False, True):
        if rank == 1:
            with raises(ValueError, "all_reduce", "contiguous"):
                dist.all_reduce(torch.ones(4, 2)[:, 0], async_op=later)
        tensor = torch.ones(4)
        finish(dist.all_reduce(tensor, async_op=later), later)
        assert tensor.tolist() == [3.0] * 4


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
